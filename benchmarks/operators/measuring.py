"""One case in two libraries: two pipelines in one process, which take turns.

A turn is measured by the CPU time of the process, all threads together, from the moment that nothing works to the next such
moment. Other programs on the machine hardly change it, and batches that a pipeline computes in advance count for it.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from threading import get_native_id
from typing import Any, NamedTuple

from benchmarks.operators.cases import CASES
from benchmarks.operators.inputs import BATCH_SIZE, LAYOUTS, batch_of

__all__ = ["LIBRARIES", "Row", "measure"]

#: Ours first.
LIBRARIES = ("dali_like", "nvidia.dali")
_LEAST_BATCHES = 4
#: A process is idle if it has used less than this share of a pause, and no other thread could run behind it, several times.
_PAUSE_S, _IDLE_SHARE, _TIMES_IDLE = 0.005, 0.1, 2


class Row(NamedTuple):
    """A case with samples of a kind.

    Attributes:
        case: its name in `CASES`.
        small: whether samples are small.
        ragged: whether their shapes differ.
        num_threads: of the pipeline.
    """

    case: str
    small: bool
    ragged: bool
    num_threads: int

    @property
    def name(self) -> str:
        """The key of the results."""
        size = "small" if self.small else "large"
        threads = "1 thread" if self.num_threads == 1 else f"{self.num_threads} threads"
        return f"{self.case}: {size}, {'ragged' if self.ragged else 'alike'}, {threads}"


def measure(row: Row, *, repeats: int, seconds: float) -> tuple[float, float]:
    """Return the median CPU seconds of a batch, in this library and in DALI.

    Args:
        row: what to measure.
        repeats: turns of each library.
        seconds: least CPU time of a turn.

    Raises:
        AssertionError: the results have different shapes or dtypes.
    """
    pipelines = [_pipeline(importlib.import_module(name), name, row) for name in LIBRARIES]
    try:
        kinds = [kind_of(pipeline.run()) for pipeline in pipelines]
        assert kinds[0] == kinds[1] or "random" in row.case, f"the results differ: {kinds}"
        counts = [_batches_in(pipeline.run, seconds) for pipeline in pipelines]
        turns = [
            [_seconds_per_batch(pipeline.run, count) for pipeline, count in zip(pipelines, counts, strict=True)]
            for _ in range(repeats)
        ]
    finally:
        pipelines[0].close()
    ours, theirs = map(statistics.median, zip(*turns, strict=True))
    return ours, theirs


def _pipeline(lib: Any, name: str, row: Row) -> Any:
    for module in ("fn", "math", "types"):
        importlib.import_module(f"{name}.{module}")
    case = CASES[row.case]
    batches = [batch_of(kind, small=row.small, ragged=row.ragged) for kind in case.inputs]
    pipeline = lib.Pipeline(batch_size=BATCH_SIZE, num_threads=row.num_threads, device_id=None, seed=1)
    with pipeline:
        nodes = [
            lib.fn.external_source(_always(batch), layout=LAYOUTS.get(kind))
            for kind, batch in zip(case.inputs, batches, strict=True)
        ]
        results = case.apply(lib, *nodes)
        pipeline.set_outputs(*(results if isinstance(results, (list, tuple)) else [results]))
    pipeline.build()
    return pipeline


def _always(batch: Any) -> Callable[[], Any]:
    return lambda: batch


def kind_of(outputs: Any) -> list[Any]:
    return [(str(output.dtype).rpartition(".")[2], [tuple(shape) for shape in output.shape()]) for output in outputs]


def _batches_in(run: Callable[[], Any], seconds: float) -> int:
    """Return the number of batches that take as long, after a warm-up as long."""
    count, began = 0, time.process_time()
    while (took := time.process_time() - began) < seconds or count < _LEAST_BATCHES:
        run()
        count += 1
    return max(_LEAST_BATCHES, round(seconds * count / took))


def _seconds_per_batch(run: Callable[[], Any], count: int) -> float:
    """Return the CPU time per batch, of all threads. It includes batches that the pipeline computes ahead."""
    began = _idle_s()
    for _ in range(count):
        run()
    return (_idle_s() - began) / count


def _idle_s() -> float:
    """Wait until no thread of this process works, and return its CPU time until then.

    On a busy machine, a thread with work may get no CPU for longer than a pause.
    """
    now, times = time.process_time(), 0
    while times < _TIMES_IDLE:
        before = now
        time.sleep(_PAUSE_S)
        others_work = any(_may_run(thread) for thread in Path("/proc/self/task").iterdir())
        now = time.process_time()
        times = 0 if others_work or now - before >= _IDLE_SHARE * _PAUSE_S else times + 1
    return now


def _may_run(thread: Path) -> bool:
    """Whether another thread of this process has work, on a CPU or waiting for one; see proc(5)."""
    if int(thread.name) == get_native_id():
        return False
    try:
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has ended
        return False
    return state not in "SIZXt"
