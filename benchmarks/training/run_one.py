"""Measure one system on one workload in this process: ``python -m benchmarks.training.run_one SYSTEM WORKLOAD``.

Prints the `Measurement` as one line of JSON. The files exist before the timed part, and are in the page cache after warm-up.
``first_batch_s`` is measured from making the loader to its first batch. The first and the last batch are compared with
OpenCV's results, outside of the timed part.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from benchmarks import processes
from benchmarks.measurement import Measurement
from benchmarks.timing import Run, rates
from benchmarks.training.systems import OURS, SYSTEMS, open_system
from benchmarks.training.workloads import WORKLOADS, Workload, check_batch

__all__ = ["measure"]

#: Systems with dali_like's random numbers.
SAME_WINDOWS = (*OURS, "torch", "grain", "spdl")
FLOAT_BYTES = 4
#: A worker's first write to each page of batch memory causes a page fault; after this number of batches few are left.
WARM_UP_BATCHES = 32


def measure(system: str, workload: Workload, *, seconds: float, repeat: int) -> Measurement:
    """Measure one system on one workload; ``seconds`` is the intended length of the timed part."""
    source = workload.source()
    began = time.perf_counter()
    loader = open_system(system, workload, source)
    import_s = time.perf_counter() - began

    def verify(batch: Any, number: int) -> None:
        if system != "decoding":
            check_batch(workload, source, loader.samples(batch), number, same_windows=system in SAME_WINDOWS)

    began = time.perf_counter()
    loader.start()
    run = Run(loader.consume, verify)
    run.receive(1)
    first_batch_s = time.perf_counter() - began
    run.check()
    run.receive(WARM_UP_BATCHES)
    timed = run.steady(seconds, processes.descendants(os.getpid()))
    run.check()
    loader.close()
    channels, height, width = workload.shape
    return Measurement(
        workload=workload.name,
        system=system,
        repeat=repeat,
        batch_size=workload.batch_size,
        import_s=import_s,
        first_batch_s=first_batch_s,
        **rates(timed, batch_size=workload.batch_size, sample_bytes=channels * height * width * FLOAT_BYTES),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.run_one", description=__doc__.splitlines()[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--seconds", type=float, default=2.5, help="length of the timed part")
    parser.add_argument("--repeat", type=int, default=0, help="number of this run, for the record")
    options = parser.parse_args()
    print(measure(options.system, WORKLOADS[options.workload], seconds=options.seconds, repeat=options.repeat).to_json())


if __name__ == "__main__":
    main()
