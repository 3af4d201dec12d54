"""The workloads: a dataset, the loader's arguments, and the measured part of a loader's life."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from benchmarks.loader.datasets import (
    Augmented,
    Dataset,
    Images,
    Large,
    OneSlow,
    Records,
    Slow,
    TensorImages,
    TensorRecords,
    stack_arrays,
)
from benchmarks.workloads import WORKERS

__all__ = ["LARGE_BYTES", "WORKLOADS", "Workload"]

RESTART_BATCHES = 8
WAITS_BATCH_SIZE = 4
#: While one worker computes the slow sample, the other has work for most of that time.
WAITS_BATCHES = 40
SLOW_S = 2.0
LARGE_ROWS, LARGE_ROW_BYTES = 10_000, 50_000
LARGE_BYTES = LARGE_ROWS * LARGE_ROW_BYTES

Part = Literal["steady", "first", "waits", "restart", "memory"]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One workload.

    Attributes:
        part: the measured part. "steady": the rate after warm-up; "first": the time to the first batch; "waits": how long
            batches wait for others; "restart": the time from epoch to epoch; "memory": memory added by the loader.
        make_dataset: called in the measuring process.
        more: further arguments of the DataLoader.
    """

    name: str
    part: Part
    make_dataset: Callable[[], Dataset]
    batch_size: int
    workers: int = WORKERS
    start_method: Literal["fork", "spawn"] = "fork"
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the DataLoader, without the dataset."""
        return {
            "batch_size": self.batch_size,
            "num_workers": self.workers,
            "multiprocessing_context": self.start_method,
            **self.more,
        }


def _restart(start_method: Literal["fork", "spawn"], *, persistent: bool) -> Workload:
    return Workload(
        name=f"restart_{start_method}" + "_persistent" * persistent,
        part="restart",
        make_dataset=partial(Images, 28, 28, length=RESTART_BATCHES * 256),
        batch_size=256,
        start_method=start_method,
        more={"persistent_workers": persistent},
    )


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(name="tiny", part="steady", make_dataset=partial(Images, 28, 28), batch_size=256),
        Workload(name="image", part="steady", make_dataset=partial(Images, 224, 224, 3), batch_size=64),
        Workload(name="tiny_tensors", part="steady", make_dataset=partial(TensorImages, 28, 28), batch_size=256),
        Workload(name="dict", part="steady", make_dataset=Records, batch_size=64),
        Workload(name="dict_tensors", part="steady", make_dataset=TensorRecords, batch_size=64),
        Workload(
            name="collate",
            part="steady",
            make_dataset=partial(Images, 224, 224, 3),
            batch_size=64,
            more={"collate_fn": stack_arrays},
        ),
        Workload(name="augment", part="steady", make_dataset=partial(Augmented, 256, 256, (224, 224)), batch_size=64),
        Workload(
            name="augment_large", part="steady", make_dataset=partial(Augmented, 1080, 1920, (1024, 1024)), batch_size=8
        ),
        Workload(name="slow", part="first", make_dataset=Slow, batch_size=64),
        Workload(
            name="slow_sample",
            part="waits",
            make_dataset=partial(OneSlow, WAITS_BATCHES * WAITS_BATCH_SIZE, slow_index=9, slow_s=SLOW_S),
            batch_size=WAITS_BATCH_SIZE,
            more={"in_order": False},
        ),
        _restart("fork", persistent=False),
        _restart("fork", persistent=True),
        _restart("spawn", persistent=False),
        _restart("spawn", persistent=True),
        Workload(
            name="large",
            part="memory",
            make_dataset=partial(Large, LARGE_ROWS, LARGE_ROW_BYTES),
            batch_size=64,
            workers=4,
            start_method="spawn",
        ),
    )
}
