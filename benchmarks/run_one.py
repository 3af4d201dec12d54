"""Measure one system on one workload in this process: ``python -m benchmarks.run_one SYSTEM WORKLOAD``.

Prints the `Measurement` as one line of JSON. The steps are:

1. import the library (``import_s``); record the memory of the process
2. make the loader and call ``build()`` or ``iter()`` (``start_s``); receive one batch (``first_run_s``)
3. steady: warm up with 1, 2, 4, ... batches until one such step lasts a fifth of ``--seconds``
4. receive a fixed number of batches, about ``--seconds`` long at the rate of the warm-up, and time it
5. record the memory of the process tree; close the loader

The last batch of each part is compared byte by byte with the callback's result. There is no comparison between warm-up and
the timed part, because workers would prefetch during the pause.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from typing import Any

from benchmarks import processes
from benchmarks.adapters import SYSTEMS, Loader
from benchmarks.limit import measure_limit
from benchmarks.measurement import Measurement
from benchmarks.timing import Run, Timed, by_process, rates
from benchmarks.workloads import SLEEP_S, WORKERS, WORKLOADS, Workload, check_batch

__all__ = ["measure"]


def measure(system: str, workload: Workload, *, seconds: float, repeat: int) -> Measurement:
    """Measure one system on one workload; ``seconds`` is the intended length of the timed part."""
    began = time.perf_counter()
    loader = SYSTEMS[system].open(workload)
    import_s = time.perf_counter() - began
    base_pss_bytes = processes.pss_bytes([os.getpid()])

    began = time.perf_counter()
    loader.start()
    start_s = time.perf_counter() - began
    run = Run(loader.consume, partial(_verify, workload, loader))
    first_run_s = run.receive(1)
    tree = processes.descendants(os.getpid())

    steady: dict[str, Any] = {}
    if workload.part == "steady":
        run.check()
        while len(tree := processes.descendants(os.getpid())) < SYSTEMS[system].processes:  # wait until all have started
            run.receive(1)
        steady = _rates(workload, run.steady(seconds, tree))
    elif workload.part == "cold":
        batches = _cold_batches(workload, seconds)
        steady = _rates(workload, run.timed(batches - 1, tree))
        wall_s = first_run_s + steady["wall_s"]
        samples_per_s = batches * workload.batch_size / wall_s
        steady |= {
            "batches": batches,
            "wall_s": wall_s,
            "samples_per_s": samples_per_s,
            "bytes_per_s": samples_per_s * workload.mean_sample_bytes,
        }
    run.check()
    pss_bytes = processes.pss_bytes([os.getpid(), *tree])
    loader.close()
    return Measurement(
        workload=workload.name,
        system=system,
        repeat=repeat,
        batch_size=workload.batch_size,
        import_s=import_s,
        start_s=start_s,
        first_run_s=first_run_s,
        first_batch_s=start_s + first_run_s,
        pss_bytes=pss_bytes,
        base_pss_bytes=base_pss_bytes,
        **steady,
    )


def _verify(workload: Workload, loader: Loader, batch: Any, number: int) -> None:
    check_batch(workload, loader.samples(batch), number * workload.batch_size)


def _rates(workload: Workload, timed: Timed) -> dict[str, Any]:
    figures = rates(timed, batch_size=workload.batch_size, sample_bytes=workload.mean_sample_bytes)
    return {**figures, "processes": by_process(timed)}


def _cold_batches(workload: Workload, seconds: float) -> int:
    """Return the number of batches for about ``seconds`` of sleeping callbacks, in whole rounds of one batch per worker."""
    round_s = SLEEP_S * workload.batch_size
    return WORKERS * max(1, round(seconds / round_s))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run_one", description=__doc__.splitlines()[0])
    parser.add_argument("system", choices=[*SYSTEMS, "limit"])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--seconds", type=float, default=2.5, help="length of the timed part")
    parser.add_argument("--repeat", type=int, default=0, help="number of this run, for the record")
    options = parser.parse_args()
    workload = WORKLOADS[options.workload]
    if options.system != "limit" and not SYSTEMS[options.system].runs(workload):
        parser.error(f"{options.system} is not for {workload.name}")
    if options.system == "limit":
        result = measure_limit(workload, seconds=options.seconds, repeat=options.repeat)
    else:
        result = measure(options.system, workload, seconds=options.seconds, repeat=options.repeat)
    print(result.to_json(), flush=True)
    os._exit(0)  # exit without library finalizers, which are not measured and may hang


if __name__ == "__main__":
    main()
