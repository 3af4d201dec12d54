"""Measure one system on one workload in this process: ``python -m benchmarks.composed.run_one SYSTEM WORKLOAD``.

Prints the `Measurement` as one line of JSON. ``first_batch_s`` is measured from making the description to the first batch.
Batches are checked outside of timed parts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks import processes
from benchmarks.composed.systems import SYSTEMS, System, open_system
from benchmarks.composed.workloads import RESUMED_STEP, WORKLOADS, Part, Workload
from benchmarks.measurement import Measurement
from benchmarks.timing import Run, rates

__all__ = ["measure"]

MEMORY_BATCHES = 64


def measure(system: str, workload: Workload, *, seconds: float, repeat: int) -> Measurement:
    """Measure one system on one workload; ``seconds`` is the intended length of the timed part of steady workloads."""
    began = time.perf_counter()
    opened = open_system(system, workload)
    import_s = time.perf_counter() - began
    figures = _MEASURES[workload.part](opened, workload, seconds)
    opened.close()
    return Measurement(
        workload=workload.name,
        system=system,
        repeat=repeat,
        batch_size=workload.batch_size,
        import_s=import_s,
        **figures,
    )


def steady(system: System, workload: Workload, seconds: float) -> dict[str, Any]:
    """Measure rate and CPU time; of packs, also the share of padding."""
    run = Run(system.consume, lambda batch, _: workload.check(batch))
    began = time.perf_counter()
    system.start()
    run.receive(1)
    first_batch_s = time.perf_counter() - began
    run.check()
    if workload.counted_packs:
        figures = _packs(system, workload, run, seconds)
    else:
        timed = run.steady(seconds, processes.descendants(os.getpid()))
        figures = rates(timed, batch_size=workload.batch_size, sample_bytes=28 * 28 + 8)
    run.check()
    return {"first_batch_s": first_batch_s, **system.costs(), **figures}


def _packs(system: System, workload: Workload, run: Run, seconds: float) -> dict[str, Any]:
    """Count padding in a number of batches, as warm-up, then time at least as many: packs come in bursts."""
    batches = workload.counted_packs // workload.batch_size
    began, used = time.perf_counter(), 0
    for _ in range(batches):
        used += workload.used_tokens(system.consume(1))
    batch_s = (time.perf_counter() - began) / batches
    padding = 1 - used / (batches * workload.batch_size * workload.pack_tokens)
    timed = run.timed(max(batches, round(seconds / batch_s)), processes.descendants(os.getpid()))
    figures = rates(timed, batch_size=workload.batch_size, sample_bytes=3 * 4 * workload.pack_tokens)
    tokens_per_s = figures["samples_per_s"] * workload.pack_tokens * (1 - padding)
    return {**figures, "padding": padding, "tokens_per_s": tokens_per_s}


def first(system: System, workload: Workload, _seconds: float) -> dict[str, Any]:
    """Measure the time to the first batch."""
    return _first(system, workload, system.start)


def resume(system: System, workload: Workload, _seconds: float) -> dict[str, Any]:
    """Measure the time from a state to the next batch."""
    state = system.state_at(RESUMED_STEP)
    return _first(system, workload, lambda: system.resume(state))


def _first(system: System, workload: Workload, start: Callable[[], None]) -> dict[str, Any]:
    began = time.perf_counter()
    start()
    batch = system.consume(1)
    first_batch_s = time.perf_counter() - began
    workload.check(batch)
    return {"first_batch_s": first_batch_s}


def memory(system: System, workload: Workload, _seconds: float) -> dict[str, Any]:
    """Measure the memory that the loader and its workers add to this process with the imported library."""
    before_bytes = processes.pss_bytes([os.getpid()])
    figures = _first(system, workload, system.start)
    batch = system.consume(MEMORY_BATCHES)
    added_bytes = processes.pss_bytes([os.getpid(), *processes.descendants(os.getpid())]) - before_bytes
    workload.check(batch)
    return {**figures, "added_bytes": added_bytes}


_MEASURES: dict[Part, Callable[[System, Workload, float], dict[str, Any]]] = {
    "steady": steady,
    "first": first,
    "resume": resume,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.composed.run_one", description=__doc__.splitlines()[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--seconds", type=float, default=2.5, help="length of the timed part of steady workloads")
    parser.add_argument("--repeat", type=int, default=0, help="number of this run, for the record")
    options = parser.parse_args()
    print(measure(options.system, WORKLOADS[options.workload], seconds=options.seconds, repeat=options.repeat).to_json())


if __name__ == "__main__":
    main()
