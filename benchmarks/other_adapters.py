"""Adapters of less common libraries: Grain, SPDL, Ray Data. Each is imported when it is measured.

- Grain makes batches in worker processes with ``mp_prefetch``, in order. Each has one reading thread instead of the default
  16, because these callbacks compute and threads would only take turns.
- SPDL has parts of a loader, but no loader. Here each worker process iterates over every second batch
  (``iterate_in_subprocess``). Arrays come back without copying through a pool of shared-memory segments
  (``SharedMemorySegmentPool``), and the consumer alternates between the workers.
- Ray Data maps the indices in tasks, in ordered blocks of one batch, and iterates with ``iter_batches``.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.workloads import WORKERS, Sample, Workload

__all__ = ["GrainLoader", "RayDataLoader", "SpdlLoader"]

#: Number of samples in an endless epoch; these libraries require a length.
NUM_SAMPLES = 1 << 40
#: Batches that an SPDL process prefetches (its default), and further batches that the consumer may hold.
SPDL_BUFFER = 3
SPDL_HELD = 3
#: Ray Data plans all of its tasks in advance.
RAY_BATCHES = 1 << 13


class StackedLoader:
    """Common part of the loaders in this module: batches are pairs of stacked arrays."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._batches: Iterator[Any] = iter(())

    def consume(self, batches: int) -> Any:
        for arrays, labels in itertools.islice(self._batches, batches):  # noqa: B007 the last batch is returned
            pass
        return arrays, labels

    def samples(self, batch: Any) -> list[Sample]:
        arrays, labels = batch
        return [(np.asarray(array), np.asarray(label)) for array, label in zip(arrays, labels, strict=True)]

    def close(self) -> None:
        self._batches = iter(())


class GrainSource:
    """The workload's callback as a data source of Grain."""

    def __init__(self, make: Callable[[int], Sample]) -> None:
        self._make = make

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: Any) -> Sample:
        return self._make(int(index))


class GrainLoader(StackedLoader):
    """Grain; its workers are always spawned."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self._grain = importlib.import_module("grain")
        # Grain requires parsed absl flags.
        importlib.import_module("absl.flags").FLAGS.mark_as_parsed()

    def start(self) -> None:
        grain = self._grain
        dataset = grain.MapDataset.source(GrainSource(self._workload.make)).batch(self._workload.batch_size)
        reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
        ahead = grain.MultiprocessingOptions(num_workers=WORKERS)
        self._batches = iter(dataset.to_iter_dataset(reading).mp_prefetch(ahead))


class SpdlLoader(StackedLoader):
    """SPDL; see the module docstring."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self._spdl = importlib.import_module("spdl.pipeline")

    def start(self) -> None:
        workload = self._workload
        segment_bytes = workload.batch_size * (workload.max_sample_bytes + 64) + (1 << 16)
        shares = [
            self._spdl.iterate_in_subprocess(
                functools.partial(stacked_batches, workload.make, workload.batch_size, worker),
                buffer_size=SPDL_BUFFER,
                mp_context=workload.start_method,
                arena=self._spdl.SharedMemorySegmentPool(segment_bytes, SPDL_BUFFER + SPDL_HELD),
            )
            for worker in range(WORKERS)
        ]
        self._batches = itertools.chain.from_iterable(zip(*shares, strict=True))


class RayDataLoader(StackedLoader):
    """Ray Data on a local cluster that the constructor starts."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self._ray = importlib.import_module("ray")
        self._data = importlib.import_module("ray.data")

    def start(self) -> None:
        # Ray counts one more CPU, for the tasks that make indices.
        self._ray.init(
            "local",
            num_cpus=WORKERS + 1,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            # The CPU time of a process that exits during the measurement is lost.
            _system_config={"idle_worker_killing_time_threshold_ms": 1_000_000_000},
        )
        context = self._data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        size = self._workload.batch_size
        rows = self._data.range(RAY_BATCHES * size, override_num_blocks=RAY_BATCHES)
        make = functools.partial(mapped_batch, self._workload.make)
        dataset = rows.map_batches(make, batch_size=size, num_cpus=1, concurrency=WORKERS)
        batches = dataset.iter_batches(batch_size=size, batch_format="numpy")
        self._batches = ((batch["array"], batch["label"]) for batch in batches)

    def close(self) -> None:
        super().close()
        gc.collect()  # finalizers that call Ray later would start it again
        with contextlib.suppress(Exception):  # the iterator is given up; its errors do not matter
            self._ray.shutdown()


def stacked_batches(make: Callable[[int], Sample], batch_size: int, worker: int) -> Iterator[list[Any]]:
    """Yield every batch of this worker, in order."""
    for batch in itertools.count(worker, WORKERS):
        samples = [make(index) for index in range(batch * batch_size, (batch + 1) * batch_size)]
        yield [np.stack(column) for column in zip(*samples, strict=True)]


def mapped_batch(make: Callable[[int], Sample], rows: dict[str, Any]) -> dict[str, Any]:
    """Compute a batch for Ray Data."""
    arrays, labels = zip(*(make(int(index)) for index in rows["id"]), strict=True)
    return {"array": np.stack(arrays), "label": np.stack(labels)}
