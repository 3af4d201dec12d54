"""Small samples with an operator or two behind the source: dali_like, NVIDIA DALI, and a PyTorch dataset that uses NumPy.

    python -m benchmarks.small [--rows plain,cast] [--systems dali_like] [--repeats 3] [--seconds 1] [--report FILE]

Each row is a pipeline, or a `DataLoader` of PyTorch, over two forked workers, with batches of 256; pipelines have two
threads. The dataset computes in its ``__getitem__`` with NumPy what the operators compute, and the default collation makes
the batch. Hand-over costs dali_like microseconds a sample, so these rows show what an operator costs.

Prints medians: the samples per second; for dali_like the share of the first row, in CPU time of all processes together; and
how many times the rate of the others it has, and how many times less CPU time it takes. CPU time changes less with the other
load of a machine than rates. Each run is a process of its own, and the systems take turns. Systems that are not installed
are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import processes
from benchmarks.adapters import is_installed
from benchmarks.turns import last_line_of, names

BATCH_SIZE = 256
NUM_WORKERS = 2
NUM_THREADS = 2
WARM_UP_S = 0.4
DEADLINE_S = 120

_rng = np.random.default_rng(0)
_DIGITS = _rng.integers(0, 256, (64, 28, 28, 1), np.uint8)
_LABELS = np.arange(64, dtype=np.int32)[:, np.newaxis] % 10
_TOKENS = [_rng.integers(0, 50_000, length, np.int32) for length in range(20, 81)]
_BOXES = _rng.random((64, 8, 4), np.float32)
_COMMANDS = _rng.standard_normal((16, 16_000)).astype(np.float32)
_SERIES = _rng.standard_normal((64, 128, 6)).astype(np.float32)
_POINTS = _rng.standard_normal((64, 256, 3)).astype(np.float32)


def digit(info: Any) -> tuple[Any, ...]:
    """A small image and its label."""
    i = info.idx_in_epoch % 64
    return _DIGITS[i], _LABELS[i]


def tokens(info: Any) -> tuple[Any, ...]:
    """Text as 20 to 80 numbers, and a label."""
    i = info.idx_in_epoch
    return _TOKENS[i % 61], _LABELS[i % 64]


def boxes(info: Any) -> tuple[Any, ...]:
    """Eight boxes, and a label."""
    i = info.idx_in_epoch % 64
    return _BOXES[i], _LABELS[i]


def command(info: Any) -> tuple[Any, ...]:
    """One second of speech, and a label."""
    i = info.idx_in_epoch
    return _COMMANDS[i % 16], _LABELS[i % 64]


def series(info: Any) -> tuple[Any, ...]:
    """A time series of six sensors, and a label."""
    i = info.idx_in_epoch % 64
    return _SERIES[i], _LABELS[i]


def points(info: Any) -> tuple[Any, ...]:
    """A cloud of points, and a label."""
    i = info.idx_in_epoch % 64
    return _POINTS[i], _LABELS[i]


def _plain(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    return digits, labels


def _cast(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.cast(digits, dtype=lib.types.FLOAT), lib.fn.one_hot(labels, num_classes=10)


def _normalized(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.crop_mirror_normalize(digits, mean=[127.5], std=[127.5], dtype=lib.types.FLOAT), labels


def _arithmetic(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    return (digits - 127.5) / 127.5, labels


def _padded(lib: Any, ids: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.pad(ids, fill_value=0), labels


def _cropped(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.flip(lib.fn.crop(digits, crop=(24, 24))), labels


def _mirrored(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    mirror = lib.fn.random.coin_flip()
    return lib.fn.crop_mirror_normalize(digits, mirror=mirror, mean=[127.5], std=[127.5], dtype=lib.types.FLOAT), labels


def _flipped_boxes(lib: Any, found: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.bb_flip(found, ltrb=True), labels


def _spectrogram(lib: Any, audio: Any, labels: Any) -> tuple[Any, ...]:
    spectrum = lib.fn.spectrogram(audio, nfft=512, window_length=400, window_step=160)
    mel = lib.fn.mel_filter_bank(spectrum, sample_rate=16_000, nfilter=64)
    return lib.fn.to_decibels(mel), labels


def _standardized(lib: Any, measured: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.normalize(measured, axes=[0]), labels


def _moved_points(lib: Any, cloud: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.coord_transform(cloud, M=[0, 1, 0, 1, 0, 0, 0, 0, 1], T=[1, 2, 3]), labels


def _looked_up(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.lookup_table(digits, keys=[*range(256)], values=[i / 255 for i in range(256)]), labels


def _reduced(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.reductions.mean(digits), lib.fn.reductions.max(digits), labels


def _reshaped(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.reshape(digits, shape=[784]), labels


def _stacked(lib: Any, digits: Any, labels: Any) -> tuple[Any, ...]:
    return lib.fn.stack(digits, digits), lib.fn.cat(labels, labels)


# The same in NumPy


def _as_they_are(data: Any, label: Any) -> tuple[Any, ...]:
    return data, label


def _numpy_cast(digit: Any, label: Any) -> tuple[Any, ...]:
    classes = np.zeros(10, np.float32)
    classes[label[0]] = 1
    return digit.astype(np.float32), classes


def _numpy_normalized(digit: Any, label: Any) -> tuple[Any, ...]:
    return (digit.transpose(2, 0, 1).astype(np.float32) - 127.5) * np.float32(1 / 127.5), label


def _numpy_arithmetic(digit: Any, label: Any) -> tuple[Any, ...]:
    return (digit.astype(np.float32) - np.float32(127.5)) / np.float32(127.5), label


def _numpy_cropped(digit: Any, label: Any) -> tuple[Any, ...]:
    return np.ascontiguousarray(digit[2:26, 25:1:-1]), label


def _numpy_mirrored(digit: Any, label: Any) -> tuple[Any, ...]:
    mirrored = digit[:, ::-1] if np.random.random() < 0.5 else digit  # PyTorch seeds it in workers
    return _numpy_normalized(mirrored, label)


def _numpy_flipped_boxes(found: Any, label: Any) -> tuple[Any, ...]:
    flipped = found.copy()
    flipped[:, 0] = 1 - found[:, 2]
    flipped[:, 2] = 1 - found[:, 0]
    return flipped, label


@functools.cache
def _window() -> Any:
    window = np.zeros(512, np.float32)
    window[56:456] = np.sin((np.arange(400) + 0.5) * np.pi / 400) ** 2
    return window


@functools.cache
def _mel_weights() -> Any:
    """Return the matrix of Slaney's mel filters: 64 filters for the 257 bins of a window of 512 samples at 16 kHz."""

    def mel(hz: float) -> float:
        return 3 * hz / 200 if hz < 1000 else 15 + 27 * float(np.log(hz / 1000) / np.log(6.4))

    mels = np.linspace(0, mel(8000), 66)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))
    bins = np.arange(257) * 16_000 / 512
    low, middle, high = edges[:-2, np.newaxis], edges[1:-1, np.newaxis], edges[2:, np.newaxis]
    triangles = np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle))
    return (np.maximum(triangles, 0) * 2 / (high - low)).astype(np.float32)


def _numpy_spectrogram(audio: Any, label: Any) -> tuple[Any, ...]:
    padded = np.pad(audio, 256, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, 512)[::160] * _window()
    spectrum = np.fft.rfft(frames)
    mel = _mel_weights() @ (spectrum.real**2 + spectrum.imag**2).T.astype(np.float32)
    return 10 * np.log10(np.maximum(mel / mel.max(), np.float32(1e-20))), label


def _numpy_standardized(measured: Any, label: Any) -> tuple[Any, ...]:
    return (measured - measured.mean(axis=0)) / measured.std(axis=0), label


_TURN, _SHIFT = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]], np.float32), np.array([1, 2, 3], np.float32)
_TABLE = (np.arange(256) / 255).astype(np.float32)


def _numpy_moved_points(cloud: Any, label: Any) -> tuple[Any, ...]:
    return cloud @ _TURN.T + _SHIFT, label


def _numpy_looked_up(digit: Any, label: Any) -> tuple[Any, ...]:
    return _TABLE[digit], label


def _numpy_reduced(digit: Any, label: Any) -> tuple[Any, ...]:
    return digit.mean(dtype=np.float32), digit.max(), label


def _numpy_reshaped(digit: Any, label: Any) -> tuple[Any, ...]:
    return digit.reshape(784), label


def _numpy_stacked(digit: Any, label: Any) -> tuple[Any, ...]:
    return np.stack((digit, digit)), np.concatenate((label, label))


def _pad_batch(samples: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Collate texts of several lengths."""
    import torch  # type: ignore[import-not-found, unused-ignore]  # an optional library

    padded = np.zeros((len(samples), max(len(ids) for ids, _ in samples)), np.int32)
    for row, (ids, _) in zip(padded, samples, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded), torch.from_numpy(np.stack([label for _, label in samples]))


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        text: what the row does, in the table.
        source: returns data and label of a sample.
        layout: of the data.
        operators: of the pipeline.
        in_numpy: the same for one sample.
        collate: of the `DataLoader`; None: the default.
    """

    text: str
    source: Callable[[Any], tuple[Any, ...]]
    layout: str | None
    operators: Callable[..., tuple[Any, ...]]
    in_numpy: Callable[[Any, Any], tuple[Any, ...]]
    collate: Callable[[Any], Any] | None = None


ROWS: Mapping[str, Row] = {
    "plain": Row("28x28 bytes and a label", digit, "HWC", _plain, _as_they_are),
    "cast": Row("`cast`, `one_hot`", digit, "HWC", _cast, _numpy_cast),
    "normalized": Row("`crop_mirror_normalize`", digit, "HWC", _normalized, _numpy_normalized),
    "arithmetic": Row("`(x - 127.5) / 127.5`", digit, "HWC", _arithmetic, _numpy_arithmetic),
    "padded": Row("texts of 20 to 80 tokens, `pad`", tokens, None, _padded, _as_they_are, _pad_batch),
    "cropped": Row("`crop`, `flip`", digit, "HWC", _cropped, _numpy_cropped),
    "mirrored": Row("`crop_mirror_normalize`, mirrored by chance", digit, "HWC", _mirrored, _numpy_mirrored),
    "boxes": Row("eight boxes, `bb_flip`", boxes, None, _flipped_boxes, _numpy_flipped_boxes),
    "audio": Row("a second of speech, mel spectrogram in decibels", command, None, _spectrogram, _numpy_spectrogram),
    "series": Row("128 values of six sensors, `normalize`", series, None, _standardized, _numpy_standardized),
    "points": Row("256 points, `coord_transform`", points, None, _moved_points, _numpy_moved_points),
    "table": Row("`lookup_table`", digit, "HWC", _looked_up, _numpy_looked_up),
    "reductions": Row("`reductions.mean`, `reductions.max`", digit, "HWC", _reduced, _numpy_reduced),
    "reshaped": Row("`reshape`", digit, "HWC", _reshaped, _numpy_reshaped),
    "stacked": Row("`stack`, `cat`", digit, "HWC", _stacked, _numpy_stacked),
}
SYSTEMS = {"dali_like": "dali_like", "dali": "nvidia.dali", "torch": "torch"}
TITLES = {"dali_like": "dali_like", "dali": "DALI", "torch": "PyTorch"}


class Measured(NamedTuple):
    """The measurements of a run: samples per second, and microseconds of CPU time for each sample, of all processes."""

    samples_per_s: float
    cpu_us: float


class _Position:
    """The values that sources read of a SampleInfo."""

    idx_in_epoch = 0


class Dataset:
    """A dataset for PyTorch's `DataLoader` that does what a row does."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._position = _Position()

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, i: int) -> tuple[Any, ...]:
        self._position.idx_in_epoch = i
        return self._row.in_numpy(*self._row.source(self._position))


@contextlib.contextmanager
def running(system: str, row: str) -> Iterator[Callable[[], Any]]:
    """Start the pipeline or loader of a row. Yield a function that returns the next batch."""
    starts = _loader if system == "torch" else functools.partial(_pipeline, SYSTEMS[system])
    with starts(ROWS[row]) as take:
        yield take


@contextlib.contextmanager
def _loader(row: Row) -> Iterator[Callable[[], Any]]:
    from torch.utils.data import DataLoader  # type: ignore[import-not-found, unused-ignore]  # an optional library

    options = {"num_workers": NUM_WORKERS, "multiprocessing_context": "fork", "collate_fn": row.collate}
    batches = iter(DataLoader(Dataset(row), BATCH_SIZE, **options))  # type: ignore[arg-type, unused-ignore]
    try:
        yield functools.partial(next, batches)
    finally:
        del batches


@contextlib.contextmanager
def _pipeline(module: str, row: Row) -> Iterator[Callable[[], Any]]:
    lib: Any = importlib.import_module(module)
    importlib.import_module(f"{module}.fn")

    @lib.pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=BATCH_SIZE,
        num_threads=NUM_THREADS,
        device_id=None,
        py_num_workers=NUM_WORKERS,
        py_start_method="fork",
        prefetch_queue_depth=2,
    )
    def pipeline() -> tuple[Any, ...]:
        layouts = None if row.layout is None else [row.layout, ""]
        data, labels = lib.fn.external_source(
            row.source, num_outputs=2, batch=False, parallel=True, layout=layouts, prefetch_queue_depth=2
        )
        return row.operators(lib, data, labels)

    pipe: Any = pipeline()
    pipe.build()
    try:
        yield pipe.run
    finally:
        if hasattr(pipe, "close"):
            pipe.close()


def measure(system: str, row: str, seconds: float) -> Measured:
    """Measure a row."""
    with running(system, row) as take:
        _take_for(take, WARM_UP_S)
        tree = [os.getpid(), *processes.descendants(os.getpid())]
        before_s, began = processes.cpu_s(tree), time.perf_counter()
        count = BATCH_SIZE * _take_for(take, seconds)
        took = time.perf_counter() - began
        return Measured(count / took, 1e6 * (processes.cpu_s(tree) - before_s) / count)


def _take_for(take: Callable[[], Any], seconds: float) -> int:
    """Take batches for some seconds, and at least two; return how many."""
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds or count < 2:
        take()
        count += 1
    return count


def report_of(measured: Mapping[tuple[str, str], Sequence[Measured]]) -> str:
    """Return the table of the documentation.

    Args:
        measured: the repeats, by row and system.
    """
    rows, systems = list(dict.fromkeys(row for row, _ in measured)), list(dict.fromkeys(system for _, system in measured))
    others = [system for system in systems if system != "dali_like"]
    head = ["row", *(f"{TITLES[system]}, samples/s" for system in systems)]
    if "dali_like" in systems:
        head.append("share of the first row")
        head += [f"{text} {TITLES[other]}" for other in others for text in ("times the rate of", "times less CPU than")]
    lines = [head, ["---", *["--:"] * (len(head) - 1)]]
    for row in rows:
        rates = {system: statistics.median(run.samples_per_s for run in measured[row, system]) for system in systems}
        cells = [ROWS[row].text, *(f"{rates[system]:,.0f}" for system in systems)]
        if "dali_like" in systems:
            mine, first = measured[row, "dali_like"], measured[rows[0], "dali_like"]
            share = statistics.median(run.cpu_us for run in first) / statistics.median(run.cpu_us for run in mine)
            cells.append(f"{share:.2f}")
            for other in others:
                pairs = [*zip(mine, measured[row, other], strict=True)]
                rate = statistics.median(run.samples_per_s / theirs.samples_per_s for run, theirs in pairs)
                cpu = statistics.median(theirs.cpu_us / run.cpu_us for run, theirs in pairs)
                cells += [f"{rate:.1f}", f"{cpu:.1f}"]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=names(ROWS), default=[*ROWS], metavar="A,B", help=", ".join(ROWS))
    parser.add_argument("--systems", type=names(SYSTEMS), default=[*SYSTEMS], metavar="A,B", help=", ".join(SYSTEMS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--report", type=Path, help="write the table to this file")
    parser.add_argument("--one", action="store_true", help="measure one row of one system in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.systems[0], options.rows[0], options.seconds)))
        return
    systems = [system for system in options.systems if is_installed(SYSTEMS[system])]
    measured: dict[tuple[str, str], list[Measured]] = {(row, system): [] for row in options.rows for system in systems}
    for repeat in range(options.repeats):
        for row in options.rows:
            turn = repeat % len(systems)
            for system in systems[turn:] + systems[:turn]:
                print(f"[{repeat + 1}/{options.repeats}] {row} {system}", file=sys.stderr, flush=True)
                arguments = ["--one", "--rows", row, "--systems", system, "--seconds", str(options.seconds)]
                line = last_line_of("benchmarks.small", arguments, deadline_s=DEADLINE_S)
                measured[row, system].append(Measured(*json.loads(line)))
    report = report_of(measured)
    print(report)
    if options.report:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
