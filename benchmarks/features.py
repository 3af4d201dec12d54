"""One feature at a time of `fn.external_source`, `Pipeline` and `DataLoader`: the share of the plain rate that remains.

    python -m benchmarks.features [--features rng,cache] [--repeats 3] [--seconds 1] [--report build/features.md]
    python -m benchmarks.features --draw                # the picture of the documentation, from its table

The plain pipeline delivers images of 28x28 bytes and a label, in batches of 256, from two forked workers; the plain loader
does the same with a dataset. Samples are so small that they cost hardly more than their hand-over. So the shares are the
lowest that a program sees: with callbacks that take a millisecond, most features are free.

A share is the CPU time of a plain sample, divided by that of one with the feature: of all processes together. Other programs
disturb CPU time less than rates. Each measurement is a process of its own, and plain ones take turns with the others.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import processes
from benchmarks.adapters import is_installed
from benchmarks.turns import last_line_of, names
from tools.svg import Picture, text_width

BATCH_SIZE = 256
NUM_WORKERS = 2
WARM_UP_S = 0.5
DEADLINE_S = 120
EPOCH = 1 << 24
DOCS = Path(__file__).resolve().parents[1] / "docs"
DOCUMENTATION, PICTURE = DOCS / "benchmarks" / "operators-and-features.md", DOCS / "pictures" / "benchmark-features.svg"
_WIDTH, _RIGHT, _MOST_SHARE = 720, 60, 3.0

_rng = np.random.default_rng(0)
_DIGITS = _rng.integers(0, 256, (64, 28, 28, 1), np.uint8)
_LABELS = np.arange(64, dtype=np.int32)[:, np.newaxis] % 10
_RAGGED = [_rng.integers(0, 256, (28, width, 1), np.uint8) for width in range(20, 37)]


class Running(NamedTuple):
    """A pipeline or loader.

    Attributes:
        take: receives one batch, and returns its number of samples; 0 at the end of an epoch.
        close: ends the workers.
    """

    take: Callable[[], int]
    close: Callable[[], None]


def digit(info: Any) -> tuple[Any, ...]:
    """A small image and its label."""
    i = info.idx_in_epoch % 64
    return _DIGITS[i], _LABELS[i]


async def digit_later(info: Any) -> tuple[Any, ...]:
    """The same from a coroutine."""
    i = info.idx_in_epoch % 64
    return _DIGITS[i], _LABELS[i]


def random_digit(info: Any) -> tuple[Any, ...]:
    """An image chosen by chance."""
    i = int(64 * info.rng().random())
    return _DIGITS[i], _LABELS[i]


def digit_in_place(info: Any) -> tuple[Any, ...]:
    """An image written into the memory of the batch."""
    i = info.idx_in_epoch % 64
    image = info.empty((28, 28, 1), np.uint8)
    image[...] = _DIGITS[i]
    return image, _LABELS[i]


@functools.cache
def _tensors() -> tuple[Any, Any]:
    import torch  # type: ignore[import-not-found, unused-ignore]  # an optional library

    return [*torch.from_numpy(_DIGITS)], [*torch.from_numpy(_LABELS)]


def tensor_digit(info: Any) -> tuple[Any, ...]:
    """An image and its label as PyTorch's tensors."""
    images, labels = _tensors()
    i = info.idx_in_epoch % 64
    return images[i], labels[i]


def ragged_digit(info: Any) -> tuple[Any, ...]:
    """An image whose width differs from sample to sample."""
    i = info.idx_in_epoch
    return _RAGGED[i % 17], _LABELS[i % 64]


def ten_numbers(info: Any) -> tuple[Any, ...]:
    """Ten small arrays."""
    return (_LABELS[info.idx_in_epoch % 64],) * 10


def dictionary(info: Any) -> tuple[Any, ...]:
    """An image, and a Python object."""
    i = info.idx_in_epoch % 64
    return _DIGITS[i], {"label": i}


def array_batch(number: Any) -> tuple[Any, ...]:
    """A batch as two arrays."""
    return _DIGITS.repeat(4, 0), _LABELS.repeat(4, 0)


def list_batch(number: Any) -> tuple[Any, ...]:
    """A batch as two lists of arrays."""
    return [*_DIGITS, *_DIGITS, *_DIGITS, *_DIGITS], [*_LABELS, *_LABELS, *_LABELS, *_LABELS]


def digits_one_by_one() -> Iterator[tuple[Any, ...]]:
    """Yield images and labels for ever."""
    for i in itertools.count():
        yield _DIGITS[i % 64], _LABELS[i % 64]


def batches() -> Iterator[tuple[Any, ...]]:
    """Yield batches for ever."""
    while True:
        yield list_batch(0)


def _nothing() -> None:
    pass


def _inverted(image: Any) -> Any:
    return 255 - image


class Digits:
    """A dataset of images and labels."""

    def __len__(self) -> int:
        return EPOCH

    def __getitem__(self, i: int) -> Any:
        return _DIGITS[i % 64], i % 10


class Dictionaries(Digits):
    """A dataset of dictionaries."""

    def __getitem__(self, i: int) -> Any:
        return {"image": _DIGITS[i % 64], "label": i % 10}


class RaggedDigits(Digits):
    """A dataset of images of several widths."""

    def __getitem__(self, i: int) -> Any:
        return _RAGGED[i % 17], i % 10


class TensorDigits(Digits):
    """A dataset of PyTorch's tensors."""

    def __getitem__(self, i: int) -> Any:
        return _tensors()[0][i % 64], i % 10


class DigitBatches(Digits):
    """A dataset that takes all indices of a batch at once."""

    def __getitems__(self, indices: Any) -> Any:
        return [self[i] for i in indices]


def _stream() -> Any:
    from dali_like.data import IterableDataset

    class DigitStream(IterableDataset[Any]):
        """An iterable dataset."""

        def __iter__(self) -> Any:
            return ((_DIGITS[i % 64], i % 10) for i in itertools.count())

    return DigitStream()


class Feature(NamedTuple):
    """A row of the table.

    Attributes:
        group: the program with the feature; its plain rate is the unit.
        text: the feature in the table.
        start: builds a pipeline or loader.
        goal: the wanted share, if there is one.
        needs: a module that must be installed.
    """

    group: str
    text: str
    start: Callable[[], Running]
    goal: float | None = None
    needs: str = "numpy"


def _pipeline(
    source: Any = digit,
    *,
    source_options: Mapping[str, Any] | None = None,
    operators: Callable[..., Any] = lambda *outputs: outputs,
    use: Callable[[Any, Any], None] = lambda pipe, outputs: None,
    begin: Callable[[Any], None] = lambda pipe: None,
    batch_size: int = BATCH_SIZE,
    **options: Any,
) -> Running:
    """Build a pipeline that is the plain one except for the arguments."""
    from dali_like import fn, pipeline_def  # each system is imported where it is measured

    external = {"num_outputs": 2, "batch": False, "parallel": True, **(source_options or {})}
    if external["parallel"]:
        external["prefetch_queue_depth"] = 2

    @pipeline_def(
        **{"batch_size": batch_size, "py_num_workers": NUM_WORKERS, "num_threads": 2, "py_start_method": "fork", **options}
    )
    def pipeline() -> Any:
        return operators(*fn.external_source(source, **external))

    pipe = pipeline()
    pipe.build()
    begin(pipe)

    def take() -> int:
        try:
            outputs = pipe.run()
        except StopIteration:
            pipe.reset()
            return 0
        use(pipe, outputs)
        return len(outputs[0])

    return Running(take, pipe.close)


def _of_source(**options: Any) -> Callable[[], Running]:
    return functools.partial(_pipeline, source_options=options)


def _copied(*outputs: Any) -> Any:
    from dali_like import fn

    return tuple(map(fn.copy, outputs))


def _called(image: Any, label: Any) -> Any:
    from dali_like import fn

    return fn.python_function(image, function=_inverted, num_outputs=1), label


def _decided(image: Any, label: Any) -> Any:
    from dali_like.graph.language.branches import condition, in_branch, merge

    decision = condition(label[0] > 4, expression="if", where="features")
    sides = [in_branch(decision, taken, lambda: image + 1 if taken else image - 1) for taken in (True, False)]  # noqa: B023
    return merge(decision, *sides, variable="image"), label


def _cast(image: Any, label: Any) -> Any:
    from dali_like import fn, types

    return fn.cast(image, dtype=types.FLOAT), label


def _at_each(pipe: Any, outputs: Any) -> None:
    for i in range(BATCH_SIZE):
        outputs[0].at(i)
        outputs[1].at(i)


def _kept_state(pipe: Any, outputs: Any) -> None:
    pipe.state_dict()


def _traced(pipe: Any) -> None:
    pipe.trace(os.devnull).__enter__()


def _fed() -> Running:
    from dali_like import fn, pipeline_def

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2)
    def pipeline() -> Any:
        return fn.external_source(name="images"), fn.external_source(name="labels")

    pipe = pipeline()
    images, labels = array_batch(0)

    def take() -> int:
        pipe.feed_input("images", images)
        pipe.feed_input("labels", labels)
        return len(pipe.run()[0])

    return Running(take, pipe.close)


def _loader(dataset: Any = None, *, batch_size: int = BATCH_SIZE, torch: bool = False, **options: Any) -> Running:
    """Build a loader that is the plain one except for the arguments."""
    if torch:
        from dali_like.plugin.pytorch import DataLoader
    else:
        from dali_like.data import DataLoader  # type: ignore[assignment]
    arguments: dict[str, Any] = {"num_workers": NUM_WORKERS, "multiprocessing_context": "fork", **options}
    use = arguments.pop("use", lambda loader, batch: None)
    loader = DataLoader(Digits() if dataset is None else dataset(), batch_size, **arguments)
    iterator = iter(loader)

    def take() -> int:
        use(loader, next(iterator))
        return batch_size

    return Running(take, iterator.end)


def _of_loader(dataset: Any = None, **options: Any) -> Callable[[], Running]:
    return functools.partial(_loader, dataset, **options)


def _as_they_are(samples: Any) -> Any:
    return samples


def _joined(samples: Any) -> Any:
    return np.stack([image for image, _ in samples]), np.array([label for _, label in samples])


def _strided() -> Any:
    return range(0, EPOCH, 3)


SOURCE, PIPELINE, LOADER = "fn.external_source", "Pipeline", "DataLoader"
PLAIN = {SOURCE: "plain", PIPELINE: "plain", LOADER: "plain_loader"}
FEATURES: Mapping[str, Feature] = {
    "plain": Feature(SOURCE, "a callable for each sample, two outputs", _pipeline),
    "rng": Feature(SOURCE, "`info.rng()` in each call", lambda: _pipeline(random_digit), 0.4),
    "empty": Feature(SOURCE, "`info.empty()` in each call", lambda: _pipeline(digit_in_place)),
    "async": Feature(SOURCE, "a coroutine function", lambda: _pipeline(digit_later), 0.25),
    "torch": Feature(SOURCE, "PyTorch tensors returned", lambda: _pipeline(tensor_digit), 0.5, "torch"),
    "ragged": Feature(SOURCE, "samples of several shapes", lambda: _pipeline(ragged_digit), 0.45),
    "ten_outputs": Feature(SOURCE, "ten outputs", lambda: _pipeline(ten_numbers, source_options={"num_outputs": 10}), 0.4),
    "objects": Feature(
        SOURCE, "an output of Python objects", lambda: _pipeline(dictionary, source_options={"dtype": [None, _object()]})
    ),
    "arrays": Feature(SOURCE, "`batch=True`, arrays", lambda: _pipeline(array_batch, source_options={"batch": True})),
    "lists": Feature(SOURCE, "`batch=True`, lists", lambda: _pipeline(list_batch, source_options={"batch": True}), 0.5),
    "iterable": Feature(
        SOURCE, "an iterable, `parallel=False`", lambda: _pipeline(digits_one_by_one, source_options={"parallel": False})
    ),
    "batches": Feature(
        SOURCE, "an iterable of batches, lists", lambda: _pipeline(batches, source_options={"batch": True}), 0.5
    ),
    "sharded": Feature(SOURCE, "`sharded=True`", lambda: _pipeline(digits_one_by_one, source_options={"sharded": True})),
    "rank": Feature(SOURCE, "`shard_id` and `num_shards`", _of_source(shard_id=1, num_shards=4, size=EPOCH)),
    "size": Feature(SOURCE, "`size`", _of_source(size=EPOCH)),
    "declared": Feature(SOURCE, "`dtype`, `ndim` and `layout`", lambda: _pipeline(source_options=_declared())),
    "partial": Feature(SOURCE, '`last_batch_policy="partial"`', _of_source(last_batch_policy="partial", size=EPOCH)),
    "on_error": Feature(SOURCE, '`on_error="skip"`', _of_source(on_error="skip")),
    "setup": Feature(
        SOURCE, "`worker_setup`, `worker_teardown`", _of_source(worker_setup=_nothing, worker_teardown=_nothing)
    ),
    "cache": Feature(SOURCE, "`cache`, while it is filled", _of_source(cache="8GiB", size=EPOCH), 0.25),
    "cached": Feature(SOURCE, "`cache`, when it is full", _of_source(cache="1GiB", size=4 * BATCH_SIZE, cycle=None)),
    "serial": Feature(SOURCE, "`parallel=False`", _of_source(parallel=False)),
    "input": Feature(SOURCE, "an input that the program feeds", _fed),
    "batch_of_16": Feature(PIPELINE, "`batch_size=16`", lambda: _pipeline(batch_size=16), 0.35),
    "threads": Feature(PIPELINE, '`py_start_method="thread"`', lambda: _pipeline(py_start_method="thread")),
    "spawn": Feature(PIPELINE, '`py_start_method="spawn"`', lambda: _pipeline(py_start_method="spawn")),
    "timeout": Feature(PIPELINE, "`py_timeout_s`", lambda: _pipeline(py_timeout_s=60)),
    "limit": Feature(PIPELINE, "`max_held_bytes`", lambda: _pipeline(max_held_bytes=1 << 30)),
    "expected": Feature(PIPELINE, "`output_dtype`, `output_ndim`", lambda: _pipeline(output_ndim=[3, 1])),
    "checkpoints": Feature(
        PIPELINE, "a state for each batch", lambda: _pipeline(enable_checkpointing=True, use=_kept_state)
    ),
    "trace": Feature(PIPELINE, "a trace", lambda: _pipeline(begin=_traced)),
    "cast": Feature(PIPELINE, "`fn.cast`", lambda: _pipeline(operators=_cast)),
    "copy": Feature(PIPELINE, "`fn.copy`", lambda: _pipeline(operators=_copied), 0.5),
    "python_function": Feature(PIPELINE, "`fn.python_function`", lambda: _pipeline(operators=_called), 0.3),
    "conditional": Feature(PIPELINE, "a conditional", lambda: _pipeline(operators=_decided), 0.3),
    "at": Feature(PIPELINE, "`at(i)` for each sample", lambda: _pipeline(use=_at_each)),
    "plain_loader": Feature(LOADER, "a dataset with `__getitem__`", _of_loader()),
    "in_process": Feature(LOADER, "`num_workers=0`", _of_loader(num_workers=0, multiprocessing_context=None)),
    "torch_loader": Feature(LOADER, "PyTorch's class", _of_loader(torch=True), needs="torch"),
    "tensors": Feature(LOADER, "PyTorch tensors returned", _of_loader(TensorDigits, torch=True), needs="torch"),
    "shuffle": Feature(LOADER, "`shuffle=True`", lambda: _loader(FewerDigits, shuffle=True)),
    "sampler": Feature(LOADER, "`sampler`", lambda: _loader(sampler=_strided())),
    "dictionaries": Feature(LOADER, "samples that are dictionaries", _of_loader(Dictionaries)),
    "jagged": Feature(LOADER, "`collate_fn`, samples of several shapes", _of_loader(RaggedDigits, collate_fn=_as_they_are)),
    "collate": Feature(LOADER, "`collate_fn` that stacks", _of_loader(collate_fn=_joined)),
    "getitems": Feature(LOADER, "`__getitems__`", _of_loader(DigitBatches)),
    "stream": Feature(LOADER, "an iterable dataset", _of_loader(_stream)),
    "loader_timeout": Feature(LOADER, "`timeout`", _of_loader(timeout=60)),
    "out_of_order": Feature(LOADER, "`in_order=False`", _of_loader(in_order=False)),
    "loader_errors": Feature(LOADER, '`on_error="skip"`', _of_loader(on_error="skip")),
    "seeding": Feature(LOADER, '`worker_seeding="torch"`', _of_loader(worker_seeding="torch")),
    "loader_threads": Feature(LOADER, '`multiprocessing_context="thread"`', _of_loader(multiprocessing_context="thread")),
    "loader_state": Feature(LOADER, "a state for each batch", _of_loader(use=lambda loader, batch: loader.state_dict())),
    "loader_of_16": Feature(LOADER, "`batch_size=16`", _of_loader(batch_size=16)),
}


def _object() -> Any:
    from dali_like import types

    return types.OBJECT


def _declared() -> Mapping[str, Any]:
    from dali_like import types

    return {"dtype": [types.UINT8, types.INT32], "ndim": [3, 1], "layout": ["HWC", ""]}


class FewerDigits(Digits):
    """A dataset whose permutation does not take seconds."""

    def __len__(self) -> int:
        return 1 << 22


def cpu_us_per_sample(name: str, seconds: float) -> float:
    """Return the CPU time that a sample takes, in all processes together."""
    running = FEATURES[name].start()

    def take_for(span_s: float) -> int:
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < span_s or not count:
            count += running.take()
        return count

    try:
        take_for(WARM_UP_S)
        tree = [os.getpid(), *processes.descendants(os.getpid())]
        before_s = processes.cpu_s(tree)
        count = take_for(seconds)
        return 1e6 * (processes.cpu_s(tree) - before_s) / count
    finally:
        running.close()


def shares(chosen: list[str], repeats: int, seconds: float) -> dict[str, list[float]]:
    """Measure features in turns with the plain pipeline and loader. Return the shares of the repeats."""
    measured: dict[str, list[float]] = {name: [] for name in chosen}
    for repeat in range(repeats):
        plain: dict[str, float] = {}
        for number, name in enumerate(chosen):
            feature = FEATURES[name]
            if number % 8 == 0:
                plain.clear()
            unit = PLAIN[feature.group]
            if unit not in plain:
                plain[unit] = _measured(unit, seconds)
            print(f"[{repeat + 1}/{repeats}] {name}", file=sys.stderr, flush=True)
            measured[name].append(1.0 if name == unit else plain[unit] / _measured(name, seconds))
    return measured


def _measured(name: str, seconds: float) -> float:
    return float(last_line_of("benchmarks.features", ["--one", name, "--seconds", str(seconds)], deadline_s=DEADLINE_S))


def report_of(measured: Mapping[str, list[float]]) -> str:
    """Return the tables of the documentation."""
    lines: list[str] = []
    for group in (SOURCE, PIPELINE, LOADER):
        rows = [(FEATURES[name], found) for name, found in measured.items() if FEATURES[name].group == group]
        if rows:
            lines += ["", f"| {group}{_TITLE} | range | wanted |", "|---|--:|--:|--:|"]
        for feature, found in rows:
            wanted = "" if feature.goal is None else f"{feature.goal:.2f}"
            share, least, most = statistics.median(found), min(found), max(found)
            lines.append(f"| {feature.text} | {share:.2f} | {least:.2f} to {most:.2f} | {wanted} |")
    return "\n".join(lines[1:])


_TITLE = ": one feature | share of the plain rate"
_ROW = re.compile(r"^\| (.+) \| ([\d.]+) \| ([\d.]+) to ([\d.]+) \| ([\d.]*) \|$")


def draw(report: str) -> str:
    """Return a picture of the tables: a bar for each share, with its range, and a mark at the wanted share."""
    lines = report.splitlines()
    rows = [match.groups() for line in lines if (match := _ROW.match(line))]
    left = 32 + max(text_width(text.replace("`", "")) for text, *_ in rows)
    most = max(1.0, *(min(float(high), _MOST_SHARE) for *_, high, _ in rows))
    picture = Picture(_WIDTH, "The share of the plain rate that remains with one feature")
    picture.text(16, 26, "The share of the plain rate that remains with one feature", "strong")

    def place(share: float) -> float:
        return round(left + min(share, most) * (_WIDTH - left - _RIGHT) / most, 1)

    y = 46.0
    for line in lines:
        if line.startswith("| ") and _TITLE in line:
            picture.text(16, y + 14, line[2 : line.index(":")], "dim")
            y += 22
        elif match := _ROW.match(line):
            text, share, low, high, wanted = match.groups()
            picture.text(left - 10, y + 12, text.replace("`", ""), "", "end")
            picture.bar(left, y, max(place(float(share)) - left, 1), 14, "accent")
            picture.line((place(float(low)), y + 7), (place(float(high)), y + 7))
            if wanted:
                picture.line((place(float(wanted)), y - 2), (place(float(wanted)), y + 16))
            picture.text(place(max(float(share), float(high))) + 8, y + 12, share)
            y += 20
    picture.text(
        16, y + 10, "Bars are medians; lines show the range of the repeats, upright ones what was wanted.", "small dim"
    )
    return str(picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=names(FEATURES), default=[*FEATURES], metavar="A,B", help=", ".join(FEATURES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--report", type=Path, help="write the tables to this file, and the picture beside it")
    parser.add_argument("--draw", action="store_true", help="draw the picture of the documentation from its tables")
    parser.add_argument("--one", choices=FEATURES, help="print the CPU time of a sample, in microseconds")
    options = parser.parse_args()
    if options.draw:
        PICTURE.write_text(draw(DOCUMENTATION.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if options.one:
        print(cpu_us_per_sample(options.one, options.seconds))
        return
    chosen = [name for name in options.features if is_installed(FEATURES[name].needs)]
    report = report_of(shares(chosen, options.repeats, options.seconds))
    print(report)
    if options.report:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(report + "\n", encoding="utf-8")
        options.report.with_suffix(".svg").write_text(draw(report), encoding="utf-8")


if __name__ == "__main__":
    main()
