"""Test the stability of dali_like while its processes are killed and stopped for hours: ``python -m benchmarks.soak``.

Three kinds of pipelines live through the whole run and take turns: small samples in rows, samples of all sizes, and slow
samples. SIGKILL hits random workers, forkservers and reserves of all pipelines, including idle ones; SIGSTOP hits workers.
The program checks:

- the batches: the checksum of each must equal that of a pipeline without workers
- errors: there must be none, because dead processes are replaced without limit
- hangs: if no batch arrives for `HANG_S`, the program exits with the stack of each thread
- the memory of all processes, and the file descriptors of long-lived ones: the median of the last quarter of the run may
  exceed that of the second quarter by `MEMORY_SLACK` for memory, and not at all for descriptors (in runs of three minutes
  or more)

It prints a status line every `LINE_S`. The exit status is 1 if a check fails.

Limitation: a sample whose worker is stopped twice is given up, as intended, and counts as an error. Stops are `STOP_GAP_S`
apart, so this hardly ever happens.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import os
import signal
import statistics
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.processes import adopt_orphans, descendants, pss_bytes
from benchmarks.signals import Storm, is_alive, target_pids, worker_pids
from dali_like import Pipeline, fn, pipeline_def
from dali_like.types import SampleInfo

__all__ = ["main"]

TURN_S = 1.0
LINE_S = 10.0
HANG_S = 30.0
TIMEOUT_S = 0.3
STOP_GAP_S = 2.0
#: Of this number of signals, one stops a worker instead of killing it.
STOP_SHARE = 6
MEMORY_SLACK = 1.15
#: Measurements in a quarter of the run; fewer are not compared, because some processes may just be missing.
LEAST_MEASUREMENTS = 4
#: A footprint is the least of this many measurements.
MEASUREMENTS = 5
EPOCH_BATCHES = 40
#: Number of different epochs, after which the samples repeat.
KINDS_OF_EPOCHS = 3
NOISE_BYTES = 1 << 18
MIB = 1 << 20


@dataclass(frozen=True)
class Source:
    """Samples that depend only on their epoch and index.

    Attributes:
        batch_size: number of samples in a batch.
        least_bytes, most_bytes: range of sample sizes.
        sleep_s: time to sleep per sample.
    """

    batch_size: int
    least_bytes: int
    most_bytes: int
    sleep_s: float = 0.0

    def __call__(self, info: SampleInfo) -> NDArray[np.uint8]:
        if info.iteration >= EPOCH_BATCHES:
            raise StopIteration
        if self.sleep_s:
            time.sleep(self.sleep_s)
        number = (info.epoch_idx % KINDS_OF_EPOCHS * EPOCH_BATCHES * self.batch_size + info.idx_in_epoch) * 2_654_435_761
        nbytes = self.least_bytes + number % (self.most_bytes - self.least_bytes + 1)
        start = number % (NOISE_BYTES - nbytes)
        return noise()[start : start + nbytes]


_noise: list[NDArray[np.uint8]] = []


def noise() -> NDArray[np.uint8]:
    """Return the same random bytes in every process."""
    if not _noise:
        _noise.append(np.random.default_rng(0).integers(256, size=NOISE_BYTES, dtype=np.uint8))
    return _noise[0]


SOURCES = {
    "tiny": Source(batch_size=128, least_bytes=784, most_bytes=784),
    "ragged": Source(batch_size=64, least_bytes=0, most_bytes=20_000),
    "slow": Source(batch_size=32, least_bytes=784, most_bytes=784, sleep_s=0.001),
}


def make_pipeline(source: Source, *, parallel: bool, **options: Any) -> Pipeline:
    @pipeline_def(batch_size=source.batch_size, num_threads=1, **options)
    def pipeline() -> Any:
        return fn.external_source(source=source, batch=False, parallel=parallel)

    made: Pipeline = pipeline()
    return made


def checksum(samples: Iterable[Any]) -> int:
    """Return the checksum of the sizes and bytes of all samples of a batch."""
    value = 0
    for sample in samples:
        array = np.asarray(sample)
        value = zlib.crc32(array.data, zlib.crc32(repr(array.shape).encode(), value))
    return value


class Contestant:
    """A pipeline under test, and the expected checksums of its batches."""

    def __init__(self, name: str, workers: int, start_method: str) -> None:
        source = SOURCES[name]
        self._name = name
        self._expected = self._undisturbed(source)
        self._pipeline = make_pipeline(
            source,
            parallel=True,
            py_num_workers=workers,
            py_start_method=start_method,
            py_worker_restarts=None,
            py_timeout_s=TIMEOUT_S,
        )
        self._pipeline.build()
        self._epoch = 0
        self._iteration = 0
        self.batches = 0
        self.differences: list[str] = []

    @property
    def restarts(self) -> int:
        """Number of replaced workers."""
        return self._pipeline.statistics().worker_restarts

    @staticmethod
    def _undisturbed(source: Source) -> list[list[int]]:
        pipeline = make_pipeline(source, parallel=False)
        expected = []
        for _ in range(KINDS_OF_EPOCHS):
            expected.append([checksum(batch[0]) for batch in pipeline])
        pipeline.close()
        return expected

    def take_batch(self) -> None:
        """Receive a batch, or the end of the epoch, and compare it."""
        expected = self._expected[self._epoch % KINDS_OF_EPOCHS]
        try:
            (batch,) = self._pipeline.run()
        except StopIteration:
            if self._iteration != len(expected):
                self._differs(f"the epoch has ended after {self._iteration} batches instead of {len(expected)}")
            self._pipeline.reset()
            self._epoch += 1
            self._iteration = 0
            return
        except Exception as error:  # any exception counts as an error
            self._differs(f"{type(error).__name__}: {error} {getattr(error, '__notes__', '')}")
        else:
            self.batches += 1
            if self._iteration >= len(expected) or checksum(batch) != expected[self._iteration]:
                self._differs("other samples")
        self._iteration += 1

    def close(self) -> None:
        """Close the pipeline."""
        self._pipeline.close()

    def _differs(self, what: str) -> None:
        where = f"{self._name}, epoch {self._epoch}, iteration {self._iteration}"
        self.differences.append(f"{where}: {what}")
        print(f"DIFFERENCE: {self.differences[-1]}", flush=True)


class Watchdog:
    """Exit the program when there is no progress for `HANG_S`."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def pat(self) -> None:
        """Record progress."""
        self._last_s = time.monotonic()

    def _watch(self) -> None:
        while time.monotonic() - self._last_s < HANG_S:
            time.sleep(1)
        print(f"HANG: no batch for {HANG_S} s", flush=True)
        faulthandler.dump_traceback()
        for pid in worker_pids(descendants(os.getpid())):
            os.kill(pid, signal.SIGKILL)
        os._exit(1)


class Footprint(NamedTuple):
    """Memory of all processes of the program, and descriptors of long-lived processes, without handles of workers."""

    memory_bytes: int
    descriptors: int


def footprint() -> Footprint:
    """Return the minimum of several measurements, because starting and exiting workers distort them.

    A measurement fails if a process exits meanwhile. The watchdog ends the program if none succeeds.
    """
    successful = filter(None, (_look() for _ in itertools.count()))
    return min(itertools.islice(successful, MEASUREMENTS))


def _look() -> Footprint | None:
    # A worker that dies together with its forkserver, before it has announced itself, is left to the init process.
    tree = [os.getpid(), *filter(is_alive, descendants(os.getpid()))]
    try:
        lasting = [os.getpid(), *(pid for pid in tree if _name_of(pid) in ("dali_like:start", "dali_like:spare"))]
        return Footprint(pss_bytes(tree), sum(map(_num_descriptors, lasting)))
    except OSError:  # a process has exited meanwhile
        return None


def _num_descriptors(pid: int) -> int:
    folder = f"/proc/{pid}/fd"
    return sum(
        "pidfd" not in os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder) if os.path.lexists(f"{folder}/{fd}")
    )


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


class Observer:
    """Print the status, and check at the end whether the footprint has grown."""

    def __init__(self, contestants: Sequence[Contestant], storm: Storm) -> None:
        self._contestants = contestants
        self._storm = storm
        self._began_s = time.monotonic()
        self._footprints: list[Footprint] = []

    def look(self, label: str = "") -> None:
        """Measure, and print a line."""
        now = footprint()
        self._footprints.append(now)
        print(
            f"{label or f'{time.monotonic() - self._began_s:6.0f} s'}: {self._sum(lambda one: one.batches)} batches, "
            f"{self._storm.sent[signal.SIGKILL]} kills, {self._storm.sent[signal.SIGSTOP]} stops, "
            f"{self._sum(lambda one: one.restarts)} restarts, {self._sum(lambda one: len(one.differences))} differences; "
            f"{now.memory_bytes / MIB:.1f} MiB, {now.descriptors} descriptors",
            flush=True,
        )

    def growth(self) -> list[str]:
        """Return the growth from the second quarter of the run to the last."""
        quarter = len(self._footprints) // 4
        if quarter < LEAST_MEASUREMENTS:
            return []
        before = self._medians(self._footprints[quarter : 2 * quarter])
        after = self._medians(self._footprints[-quarter:])
        grown = []
        if after.memory_bytes > before.memory_bytes * MEMORY_SLACK:
            grown.append(f"memory from {before.memory_bytes / MIB:.1f} to {after.memory_bytes / MIB:.1f} MiB")
        if after.descriptors > before.descriptors:
            grown.append(f"descriptors from {before.descriptors} to {after.descriptors}")
        return grown

    def _sum(self, count: Callable[[Contestant], int]) -> int:
        return sum(map(count, self._contestants))

    @staticmethod
    def _medians(footprints: Sequence[Footprint]) -> Footprint:
        columns = zip(*footprints, strict=True)
        return Footprint(*(int(statistics.median_low(column)) for column in columns))


def soak(contestants: Sequence[Contestant], storm: Storm, seconds: float) -> list[str]:
    """Run the contestants in turn while signals are sent; return the growth."""
    watchdog = Watchdog()
    for contestant in contestants:
        contestant.take_batch()  # before their start, processes have no names yet
    observer = Observer(contestants, storm)
    end = time.monotonic() + seconds
    line = time.monotonic() + LINE_S
    with storm:
        while time.monotonic() < end:
            for contestant in contestants:
                turn = time.monotonic() + TURN_S
                while time.monotonic() < turn:
                    contestant.take_batch()
                    watchdog.pat()
            if time.monotonic() > line:
                line += LINE_S
                observer.look()
    for contestant in contestants:  # the workers stopped last are not yet replaced
        for _ in range(2 * EPOCH_BATCHES):
            contestant.take_batch()
            watchdog.pat()
    observer.look(label="in all")
    return observer.growth()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the test, and print the result; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=2, help="workers of each of the three pipelines")
    parser.add_argument("--start-method", choices=("fork", "spawn"), default="fork")
    parser.add_argument("--kills-per-second", type=float, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    kills = options.kills_per_second
    adopt_orphans()  # the workers of a dead forkserver, and its reserve

    def find(number: signal.Signals) -> list[int]:
        pids = descendants(os.getpid())
        if number == signal.SIGKILL:
            return target_pids(pids, have_reserves=options.start_method == "fork")
        return worker_pids(pids)

    storm = Storm(
        find,
        {signal.SIGKILL: kills, signal.SIGSTOP: kills / STOP_SHARE},
        least_gaps_s={signal.SIGSTOP: STOP_GAP_S},
        seed=options.seed,
    )
    contestants = [Contestant(name, options.workers, options.start_method) for name in SOURCES]
    failures = soak(contestants, storm, options.minutes * 60)
    for contestant in contestants:
        contestant.close()
        failures += contestant.differences
    if left := list(filter(is_alive, descendants(os.getpid()))):
        failures.append(f"{len(left)} processes are left behind")
    print("\n".join(["FAILED:", *failures]) if failures else "all checks passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
