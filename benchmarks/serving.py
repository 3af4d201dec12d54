"""CPU time and memory of one loader for four processes, beside the same loader for one; and random kills of consumers.

    python -m benchmarks.serving [--consumers 4] [--batches 400] [--workers 2] [--sample-ms 1]
    python -m benchmarks.serving --kills 200

Each side runs in processes of its own, which end with it, so that the system has added up their CPU time, with that of
workers. "Shared memory" is the sum of the proportional set sizes of shared pages over all processes, so a page counts once,
however many processes map it: the median of regular readings, and the largest. The first batches of a loader are copied for
consumers, until their shapes are known.

With ``--kills``, consumers are killed at random moments and replaced, while the others check each batch. The exit status is
0 if no batch was wrong, nothing hung, and the server has neither descriptors nor leases left of the killed ones.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dali_like
from dali_like.data import DataLoader

BATCH_SIZE = 64
#: Between two readings of the memory.
INTERVAL_S = 0.25
#: An epoch of the run with kills, and how long a batch may take there.
KILL_EPOCH = 64
DEADLINE_S = 60


class Images:
    """Arrays that are filled with their index, each after some CPU time.

    Args:
        length: number of samples.
        side: height and width of an image.
        sample_s: CPU time of a sample, in seconds.
    """

    def __init__(self, length: int, side: int, sample_s: float) -> None:
        self.length = length
        self.side = side
        self.sample_s = sample_s

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        end_s = time.thread_time() + self.sample_s
        image = np.full((self.side, self.side, 3), index % 251, np.uint8)
        while time.thread_time() < end_s:
            pass
        return image, index


class Cost(NamedTuple):
    """The resources that one side of the comparison has used.

    Attributes:
        cpu_s: CPU time of all processes, in seconds.
        shared_bytes: sums of proportional set sizes of shared pages, read at intervals.
        wall_s: time of the whole run, in seconds.
    """

    cpu_s: float
    shared_bytes: list[int]
    wall_s: float


def loader_of(given: argparse.Namespace, length: int, sample_s: float) -> DataLoader[Any]:
    """Return the loader of both sides."""
    return DataLoader(
        Images(length, given.side, sample_s),
        batch_size=BATCH_SIZE,
        num_workers=given.workers,
        multiprocessing_context="fork",
    )


def run_alone(given: argparse.Namespace) -> None:
    """Take the batches of a loader."""
    for batch in loader_of(given, given.batches * BATCH_SIZE, given.sample_ms / 1e3):
        del batch


def run_server(given: argparse.Namespace, path: str) -> None:
    """Serve the batches of a loader."""
    loader = loader_of(given, given.batches * BATCH_SIZE, given.sample_ms / 1e3)
    with loader.serve(path, consumers=given.consumers, lead=given.lead) as server:
        server.run()


def run_consumer(path: str) -> None:
    """Take the batches of a server."""
    with dali_like.connect(path) as batches:
        for batch in batches:
            del batch


def started(work: Callable[[], None]) -> int:
    """Do something in a forked process, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def cost(works: list[Callable[[], None]]) -> Cost:
    """Run processes until they end."""
    begin_s = time.perf_counter()
    pids = [started(work) for work in works]
    cpu_s, readings = 0.0, []
    while pids:
        readings.append(sum(shared_bytes(pid) for pid in descendants(pids)))
        for pid in list(pids):
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                pids.remove(pid)
                cpu_s += usage.ru_utime + usage.ru_stime
                if status:
                    raise RuntimeError(f"a process of the benchmark ended with status {status}")
        time.sleep(INTERVAL_S)
    return Cost(cpu_s, readings, time.perf_counter() - begin_s)


def descendants(pids: list[int]) -> set[int]:
    """Return processes, and all that they have started."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found


def shared_bytes(pid: int) -> int:
    """Return the proportional set size of the shared pages of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Shmem:"):
                return int(line.split()[1]) << 10
    return 0


# Kills


def check_batches(path: str, epochs: int | None, on_batch: Callable[[], None] = lambda: None) -> int:
    """Take the batches of a server, check each one, and write to it. Return their number."""
    count = 0
    with dali_like.connect(path) as batches:
        while epochs is None or count < epochs * KILL_EPOCH:
            for images, labels in batches:
                wanted = np.asarray(labels)
                if not (images == (wanted % 251).astype(np.uint8)[:, None, None, None]).all():
                    raise AssertionError(f"a batch of samples {wanted} is wrong")
                images[:] = 255
                count += 1
                on_batch()
    return count


def run_kills(given: argparse.Namespace, path: str) -> None:
    """Kill consumers at random moments while one of them, in this process, sees the whole stream.

    Raises:
        RuntimeError: a consumer that was not killed has ended, or the server keeps something of a killed one.
    """
    choice = random.Random(given.seed)
    loader = loader_of(given, KILL_EPOCH * BATCH_SIZE, 0)
    read, write = os.pipe()

    def serve() -> None:
        with loader.serve(path, consumers=given.consumers) as server:
            num_open = 0
            while os.read(read, 1) == b"g":
                server.run()
                num_open = num_open or len(os.listdir("/proc/self/fd"))
            left = len(os.listdir("/proc/self/fd")) - num_open
            if left > 0:
                raise RuntimeError(f"the server has {left} descriptors more than after its first epoch")

    server = started(serve)
    victims = [started(lambda: drained(path)) for _ in range(given.consumers - 1)]
    seen = kills = 0
    begin_s = time.perf_counter()
    os.write(write, b"g")  # the server answers while it serves an epoch
    with dali_like.connect(path) as batches:
        quiet = 0  # epochs since the last kill
        while quiet < 2:
            quiet += kills >= given.kills
            for images, labels in deadlined(batches):
                if not (images == (np.asarray(labels) % 251).astype(np.uint8)[:, None, None, None]).all():
                    raise RuntimeError(f"a batch of samples {labels} is wrong")
                images[:] = 255
                seen += 1
                if kills < given.kills and choice.random() < 0.25:
                    victim = victims.pop(choice.randrange(len(victims)))
                    time.sleep(choice.random() * 2e-3)  # anywhere between two batches, or within one
                    os.kill(victim, signal.SIGKILL)
                    if os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]) != -signal.SIGKILL:
                        raise RuntimeError(f"consumer {victim} ended with an error before it was killed")
                    victims.append(started(lambda: drained(path)))
                    kills += 1
            del images, labels
            os.write(write, b"g" if quiet < 2 else b"q")
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
    if os.waitpid(server, 0)[1]:
        raise RuntimeError("the server ended with an error")
    os.close(read)
    os.close(write)
    print(f"{kills} kills, {seen} batches checked, none wrong; {time.perf_counter() - begin_s:.1f} s")


def drained(path: str) -> None:
    """Check batches until this process is killed."""
    check_batches(path, None)


def deadlined(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches of an epoch; end the program if one takes too long."""
    signal.alarm(DEADLINE_S)
    for batch in batches:
        yield batch
        del batch
        signal.alarm(DEADLINE_S)
    signal.alarm(0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument("--batches", type=int, default=400, help="at least a second of work")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--sample-ms", type=float, default=1.0)
    parser.add_argument("--lead", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/served/socket"
        if given.kills:
            run_kills(given, path)
            return
        alone = cost([lambda: run_alone(given)])
        served = cost([lambda: run_server(given, path), *[lambda: run_consumer(path)] * given.consumers])
    print(f"| {given.batches} batches of {BATCH_SIZE} images | one loader | served to {given.consumers} | ratio |")
    print("| --- | ---: | ---: | ---: |")
    print(f"| CPU time, s | {alone.cpu_s:.2f} | {served.cpu_s:.2f} | {served.cpu_s / alone.cpu_s:.2f} |")
    for name, of in (("median", statistics.median), ("largest", max)):
        mib = [of(each.shared_bytes) / (1 << 20) for each in (alone, served)]
        print(f"| shared memory, MiB, {name} | {mib[0]:.0f} | {mib[1]:.0f} | {mib[1] / mib[0]:.2f} |")
    print(f"| time, s | {alone.wall_s:.1f} | {served.wall_s:.1f} | {served.wall_s / alone.wall_s:.2f} |")


if __name__ == "__main__":
    main()
