"""Small samples with an operator or two behind the source, in dali_like and in NVIDIA DALI.

    python -m benchmarks.small [--rows plain,cast] [--systems dali_like] [--repeats 3] [--seconds 1]

Each row is a pipeline over two forked workers, with batches of 256 and two threads. Hand-over costs dali_like microseconds a
sample, so these rows show what an operator costs. Prints medians of samples per second, and for dali_like the share of its
row `plain`. Each run is a process of its own, and the systems take turns. DALI is left out if it is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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


#: The source of each row, the layout of its first output, and its operators.
ROWS: Mapping[str, tuple[Callable[[Any], tuple[Any, ...]], str | None, Callable[..., tuple[Any, ...]]]] = {
    "plain": (digit, "HWC", _plain),
    "cast": (digit, "HWC", _cast),
    "normalized": (digit, "HWC", _normalized),
    "arithmetic": (digit, "HWC", _arithmetic),
    "padded": (tokens, None, _padded),
    "cropped": (digit, "HWC", _cropped),
    "mirrored": (digit, "HWC", _mirrored),
    "boxes": (boxes, None, _flipped_boxes),
    "audio": (command, None, _spectrogram),
    "series": (series, None, _standardized),
    "points": (points, None, _moved_points),
    "table": (digit, "HWC", _looked_up),
    "reductions": (digit, "HWC", _reduced),
    "reshaped": (digit, "HWC", _reshaped),
    "stacked": (digit, "HWC", _stacked),
}
SYSTEMS = {"dali_like": "dali_like", "dali": "nvidia.dali"}


def samples_per_s(system: str, row: str, seconds: float) -> float:
    """Return the rate of a row's pipeline."""
    lib: Any = importlib.import_module(SYSTEMS[system])
    importlib.import_module(f"{SYSTEMS[system]}.fn")
    source, layout, operators = ROWS[row]

    @lib.pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=BATCH_SIZE,
        num_threads=NUM_THREADS,
        device_id=None,
        py_num_workers=NUM_WORKERS,
        py_start_method="fork",
        prefetch_queue_depth=2,
    )
    def pipeline() -> tuple[Any, ...]:
        layouts = None if layout is None else [layout, ""]
        data, labels = lib.fn.external_source(
            source, num_outputs=2, batch=False, parallel=True, layout=layouts, prefetch_queue_depth=2
        )
        return operators(lib, data, labels)

    pipe: Any = pipeline()
    pipe.build()
    try:
        return BATCH_SIZE * _batches_per_s(pipe.run, seconds)
    finally:
        if hasattr(pipe, "close"):
            pipe.close()


def _batches_per_s(take: Callable[[], Any], seconds: float) -> float:
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < WARM_UP_S or count < 2:
        take()
        count += 1
    count, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds or count < 2:
        take()
        count += 1
    return count / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=names(ROWS), default=[*ROWS], metavar="A,B", help=", ".join(ROWS))
    parser.add_argument("--systems", type=names(SYSTEMS), default=[*SYSTEMS], metavar="A,B", help=", ".join(SYSTEMS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--one", action="store_true", help="measure one row of one system in this process")
    options = parser.parse_args()
    if options.one:
        print(samples_per_s(options.systems[0], options.rows[0], options.seconds))
        return
    systems = [system for system in options.systems if is_installed(SYSTEMS[system])]
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.repeats):
        for row in options.rows:
            for system in systems:
                arguments = ["--one", "--rows", row, "--systems", system, "--seconds", str(options.seconds)]
                rate = float(last_line_of("benchmarks.small", arguments, deadline_s=DEADLINE_S))
                rates.setdefault((row, system), []).append(rate)
    medians = {key: statistics.median(measured) for key, measured in rates.items()}
    plain = medians.get(("plain", "dali_like"))
    for row in options.rows:
        shown = [f"{system} {medians[row, system]:9,.0f}" for system in systems]
        if plain and "dali_like" in systems:
            shown.append(f"share {medians[row, 'dali_like'] / plain:.2f}")
        if len(systems) > 1:
            shown.append(f"{medians[row, 'dali_like'] / medians[row, 'dali']:6.1f} times DALI")
        print(f"{row:12} {'   '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
