"""Measure the cost of saving a state, and of resuming from one.

    python -m benchmarks.checkpoints [seconds]

In the middle of an epoch, the program repeatedly requests the state of pipelines and loaders, without batches in between. It
prints medians in microseconds, with the 99th percentile in parentheses. "As JSON" includes serialization. Loading a state
drops the prefetched batches, so the next batch, which is not measured, takes as long as the first of an epoch. The program
also measures the cost of one index of a permutation.

Limitation: nothing else runs. In training, other threads take the GIL.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from dali_like import Pipeline, fn
from dali_like.data import DataLoader, Permutation, ShardedBatchSampler
from dali_like.types import SampleInfo

LENGTH = 10**6
BATCH_SIZE = 64


def make(info: SampleInfo) -> Any:
    return np.array(info.idx_in_epoch)


class StatefulSource:
    """A callable with a small state."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(1)

    def __call__(self) -> Any:
        return self.generator.integers(10, size=(BATCH_SIZE, 1))

    def state_dict(self) -> Any:
        return self.generator.bit_generator.state

    def load_state_dict(self, state: Any) -> None:
        self.generator.bit_generator.state = state


@contextmanager
def pipeline(source: Any, **options: Any) -> Iterator[Pipeline]:
    """Return a pipeline that has delivered some batches."""
    pipe = Pipeline(BATCH_SIZE, num_threads=1, seed=1, py_num_workers=2, enable_checkpointing=True)
    pipe.set_outputs(fn.external_source(source, **options))
    with closing(pipe):
        for _ in range(8):
            pipe.run()
        yield pipe


@contextmanager
def loader(**options: Any) -> Iterator[DataLoader[Any]]:
    """Return a loader that has delivered some batches."""
    made: DataLoader[Any] = DataLoader(range(LENGTH), num_workers=0, **options)
    batches = iter(made)
    for _ in range(8):
        next(batches)
    yield made


CASES: dict[str, Callable[[], Any]] = {
    "pipeline": lambda: pipeline(make, batch=False),
    "pipeline, two workers": lambda: pipeline(make, batch=False, parallel=True),
    "pipeline, a shard of 1,024": lambda: pipeline(
        make, batch=False, size=LENGTH, shard_id=5, num_shards=1024, shard_rest="drop"
    ),
    "pipeline, a source that knows its state": lambda: pipeline(StatefulSource()),
    "loader, in order": lambda: loader(batch_size=BATCH_SIZE),
    "loader, shuffled": lambda: loader(batch_size=BATCH_SIZE, shuffle=True, generator=1),
    "loader, a shard of 1,024": lambda: loader(
        batch_sampler=ShardedBatchSampler(range(LENGTH), BATCH_SIZE, shard_id=5, num_shards=1024)
    ),
}


def timed_us(function: Callable[[], Any], seconds: float) -> str:
    """Return median and 99th percentile of the calls that fit into the time."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end or len(times) < 2:
        function()
        times.append(1e6 * (time.perf_counter() - begin))
    return f"{statistics.median(times):10.1f} ({statistics.quantiles(times, n=100)[98]:.1f})"


def index_times(seconds: float) -> None:
    """Measure the cost of an index of a permutation."""
    order, numbers = Permutation(10**12, seed=1), np.random.default_rng(2).integers(10**12, size=BATCH_SIZE * 1024)
    position = iter(numbers.tolist() * 1000)
    print(f"{'an index of a permutation of 10^12':42}{timed_us(lambda: order[next(position)], seconds)}")
    print(f"{'65,536 of them at once':42}{timed_us(lambda: order[numbers], seconds)}")


def main(seconds: float) -> None:
    print(f"{'':42}{'state_dict()':>18}{'as JSON':>18}{'load_state_dict()':>20}")
    for name, case in CASES.items():
        with case() as resumable:
            state = resumable.state_dict()
            columns = [resumable.state_dict, lambda it=resumable: json.dumps(it.state_dict())]
            columns.append(lambda it=resumable, state=state: it.load_state_dict(state))
            print(f"{name:42}" + "".join(f"{timed_us(column, seconds):>19}" for column in columns), flush=True)
    index_times(seconds)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
