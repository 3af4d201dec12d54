"""Measure one DataLoader on one workload in this process: ``python -m benchmarks.loader.run_one SYSTEM WORKLOAD``.

Prints the `Measurement` as one line of JSON. Every run makes the dataset, then imports the DataLoader, and continues with
the function for the workload's part; see below. ``first_batch_s`` is always measured from the call of the class to the first
batch. Batches are compared with the dataset outside of timed parts.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks import processes
from benchmarks.loader.datasets import Dataset, OneSlow, check_batch, leaves
from benchmarks.loader.workloads import WORKLOADS, Part, Workload
from benchmarks.measurement import Measurement
from benchmarks.timing import Run, rates
from benchmarks.workloads import WrongBatchError

__all__ = ["SYSTEMS", "Arrival", "longest_wait_s", "measure"]

EPOCHS = 5
MEMORY_BATCHES = 64

#: Classes of the systems. Any other system is given by its class in the same form.
SYSTEMS = {
    "dali_like": "dali_like.plugin.pytorch:DataLoader",
    "dali_like_numpy": "dali_like.data:DataLoader",
    "torch": "torch.utils.data:DataLoader",
}


class Subject:
    """A DataLoader class with a workload."""

    def __init__(self, loader_class: Callable[..., Iterable[Any]], workload: Workload, dataset: Dataset) -> None:
        self._loader_class = loader_class
        self._workload = workload
        self.dataset = dataset
        self.batch_size = workload.batch_size
        self.batches = len(dataset) // workload.batch_size

    def make(self) -> Iterable[Any]:
        """Make a DataLoader."""
        return self._loader_class(self.dataset, **self._workload.arguments)

    def verify(self, batch: Any, number: int) -> None:
        """Raise `WrongBatchError` unless it is that batch of an epoch in order."""
        check_batch(self.dataset, batch, range(number * self.batch_size, (number + 1) * self.batch_size))


def measure(system: str, workload: Workload, *, seconds: float, repeat: int) -> Measurement:
    """Measure one DataLoader on one workload.

    Args:
        system: one of `SYSTEMS`, or ``module:class``.
        seconds: intended length of the timed part of steady workloads.
    """
    dataset = workload.make_dataset()
    began = time.perf_counter()
    module, _, name = SYSTEMS.get(system, system).partition(":")
    loader_class = getattr(importlib.import_module(module), name)
    import_s = time.perf_counter() - began
    figures = MEASURES[workload.part](Subject(loader_class, workload, dataset), seconds)
    return Measurement(
        workload=workload.name,
        system=system,
        repeat=repeat,
        batch_size=workload.batch_size,
        import_s=import_s,
        **figures,
    )


def steady(subject: Subject, seconds: float) -> dict[str, Any]:
    """Measure rate and CPU time of an endless epoch, after warm-up."""
    began = time.perf_counter()
    loader = subject.make()
    iterator = iter(loader)
    run = Run(lambda batches: _last(itertools.islice(iterator, batches)), subject.verify)
    run.receive(1)
    first_batch_s = time.perf_counter() - began
    run.check()
    timed = run.steady(seconds, processes.descendants(os.getpid()))
    run.check()
    sample_bytes = sum(array.nbytes for array in leaves(subject.dataset.sample(0)))
    return {"first_batch_s": first_batch_s, **rates(timed, batch_size=subject.batch_size, sample_bytes=sample_bytes)}


def first(subject: Subject, _seconds: float) -> dict[str, Any]:
    """Measure the time to the first batch."""
    began = time.perf_counter()
    loader = subject.make()
    iterator = iter(loader)
    batch = next(iterator)
    first_batch_s = time.perf_counter() - began
    subject.verify(batch, 0)
    return {"first_batch_s": first_batch_s}


def waits(subject: Subject, _seconds: float) -> dict[str, Any]:
    """Measure how long the batches of an epoch wait, in any order of arrival."""
    dataset = subject.dataset
    assert isinstance(dataset, OneSlow)
    arrivals = []
    indices: list[int] = []
    began = time.perf_counter()
    for _, labels in subject.make():
        arrivals.append(Arrival(int(labels[0]) // subject.batch_size, time.perf_counter()))
        indices += labels.tolist()
    if sorted(indices) != list(range(len(dataset))):
        raise WrongBatchError(f"samples with the indices {indices} arrived, expected each of {len(dataset)} once")
    return {
        "first_batch_s": arrivals[0].at_s - began,
        "longest_wait_s": longest_wait_s(arrivals, slow_batch=dataset.slow_index // subject.batch_size),
        "epoch_s": arrivals[-1].at_s - began,
    }


class Arrival(NamedTuple):
    """A batch and its time of arrival."""

    batch: int
    at_s: float


def longest_wait_s(arrivals: Sequence[Arrival], slow_batch: int) -> float:
    """Return the longest delay of a batch, except the slow one.

    A batch is delayed since the arrival of its predecessor, or since the first arrival of a later batch if that was earlier.
    So a stuck batch counts whether it blocks the others or they overtake it.
    """
    others = [arrival for arrival in arrivals if arrival.batch != slow_batch]
    longest_s = 0.0
    for before, arrival in itertools.pairwise(others):
        overtaken = [other.at_s for other in others if other.batch > arrival.batch]
        longest_s = max(longest_s, arrival.at_s - min([before.at_s, *overtaken]))
    return longest_s


def restart(subject: Subject, _seconds: float) -> dict[str, Any]:
    """Measure complete epochs, one after the other."""
    loader = subject.make()
    epochs = [_epoch(subject, loader) for _ in range(EPOCHS)]
    return {
        "first_batch_s": epochs[0].first_s,
        "restart_s": statistics.median(epoch.first_s for epoch in epochs[1:]),
        "epoch_s": statistics.median(epoch.all_s for epoch in epochs[1:]),
    }


class Epoch(NamedTuple):
    """Seconds from ``iter()`` to the first batch and to the end."""

    first_s: float
    all_s: float


def _epoch(subject: Subject, loader: Iterable[Any]) -> Epoch:
    began = time.perf_counter()
    iterator = iter(loader)
    batch = next(iterator)
    first_s = time.perf_counter() - began
    batch = _last(iterator)
    all_s = time.perf_counter() - began
    subject.verify(batch, subject.batches - 1)
    return Epoch(first_s, all_s)


def memory(subject: Subject, _seconds: float) -> dict[str, Any]:
    """Measure the memory that the loader and its workers add to that of the dataset."""
    before_bytes = processes.pss_bytes([os.getpid()])
    began = time.perf_counter()
    loader = subject.make()
    iterator = iter(loader)
    batch = next(iterator)
    first_batch_s = time.perf_counter() - began
    at_first_bytes = _tree_pss_bytes()
    subject.verify(batch, 0)
    del batch
    _last(itertools.islice(iterator, MEMORY_BATCHES))  # by then, every worker has computed a batch
    return {"first_batch_s": first_batch_s, "added_bytes": max(at_first_bytes, _tree_pss_bytes()) - before_bytes}


def _tree_pss_bytes() -> int:
    return processes.pss_bytes([os.getpid(), *processes.descendants(os.getpid())])


def _last(batches: Iterable[Any]) -> Any:
    """Return the last element; each is dropped when the next arrives."""
    for batch in batches:  # noqa: B007 the last is returned
        pass
    return batch


MEASURES: dict[Part, Callable[[Subject, float], dict[str, Any]]] = {
    "steady": steady,
    "first": first,
    "waits": waits,
    "restart": restart,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loader.run_one", description=__doc__.splitlines()[0])
    parser.add_argument("system", help=f"{', '.join(SYSTEMS)}, or module:class")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--seconds", type=float, default=2.5, help="length of the timed part of steady workloads")
    parser.add_argument("--repeat", type=int, default=0, help="number of this run, for the record")
    options = parser.parse_args()
    print(measure(options.system, WORKLOADS[options.workload], seconds=options.seconds, repeat=options.repeat).to_json())


if __name__ == "__main__":
    main()
