"""Sources with known batches, and ways for their workers to end.

Spawned workers import this module, because its classes travel by name. So it needs nothing of pytest.
"""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like import Pipeline
from dali_like.types import SampleInfo

Source = Callable[[SampleInfo], Any]

#: In the result of `batches_of`: the end of an epoch.
END = "end"


@dataclass(frozen=True)
class Noise:
    """Samples that depend on their epoch and index alone.

    Attributes:
        ragged: whether their shapes differ.
        length: samples in an epoch.
    """

    ragged: bool = False
    length: int = 48

    def __call__(self, info: SampleInfo) -> NDArray[np.uint8]:
        if info.idx_in_epoch >= self.length:
            raise StopIteration
        rng = np.random.default_rng((info.epoch_idx, info.idx_in_epoch))
        shape = (int(rng.integers(200)), 3) if self.ragged else (8, 8)
        return rng.integers(256, size=shape, dtype=np.uint8)


def digest(batch: Sequence[Any]) -> str:
    """A checksum of everything in a batch: shapes, types and bytes of all samples of all outputs."""
    checksum = hashlib.sha256()
    for output in batch:
        for sample in output:
            array = np.asarray(sample)
            checksum.update(f"{array.shape} {array.dtype};".encode())
            checksum.update(array.tobytes())
    return checksum.hexdigest()


def batches_of(pipe: Pipeline, count: int) -> list[str]:
    """Return the checksums of the next batches, with END after each epoch."""
    return [_next(pipe) for _ in range(count)]


def _next(pipe: Pipeline) -> str:
    try:
        return digest(pipe.run())
    except StopIteration:
        pipe.reset()
        return END


# Disturbances of a worker


def die_of_signal(number: int) -> None:
    _die_quietly()
    os.kill(os.getpid(), number)


def die_of_null_pointer() -> None:
    _die_quietly()
    ctypes.string_at(0)


def die_of_no_memory() -> None:
    """Abort as C code does without memory, after the limit has been reached."""
    _die_quietly()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 28, resource.RLIM_INFINITY))
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    if libc.malloc(ctypes.c_size_t(1 << 28)) is None:
        os.abort()


def _die_quietly() -> None:
    """Without a core dump, and without the traceback that pytest's faulthandler would show."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()


#: Ways for a worker to end.
CRASHES: dict[str, Callable[[], Any]] = {
    **{
        f"SIG{name}": partial(die_of_signal, signal.Signals[f"SIG{name}"])
        for name in ("KILL", "TERM", "SEGV", "BUS", "ABRT")
    },
    "null pointer": die_of_null_pointer,
    "no memory": die_of_no_memory,
    "os._exit(0)": partial(os._exit, 0),
    "os._exit(3)": partial(os._exit, 3),
    "os._exit(70)": partial(os._exit, 70),
    "sys.exit()": sys.exit,
}
die_of_sigkill = CRASHES["SIGKILL"]


def sleep_for_ever() -> None:
    time.sleep(1000)


def be_busy_in_python() -> None:
    while True:
        pass


def be_busy_in_c() -> None:
    """Hang with the lock of the interpreter held, so that Python's signal handlers do not run."""
    sum(range(10**15))


def hang_with_signals_blocked() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(1000)


def stop_oneself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


#: Ways to hang in which a worker can show its stack.
HANGS: dict[str, Callable[[], None]] = {
    "sleeping": sleep_for_ever,
    "busy in Python": be_busy_in_python,
    "busy in C": be_busy_in_c,
}
#: Ways in which it cannot.
MUTE_HANGS: dict[str, Callable[[], None]] = {"signals blocked": hang_with_signals_blocked, "stopped": stop_oneself}


@dataclass(frozen=True)
class Disturbed:
    """A source that disturbs its worker before certain samples, a number of times for each.

    Attributes:
        source: makes the samples.
        at: their epochs and indices.
        event: the kind of event.
        folder: remembers the events that have happened.
        times: how often.
    """

    source: Source
    at: Collection[tuple[int, int]]
    event: Callable[[], Any]
    folder: Path
    times: int = 1

    def __call__(self, info: SampleInfo) -> Any:
        position = (info.epoch_idx, info.idx_in_epoch)
        if position in self.at and happens(self.folder / "{}-{}".format(*position), self.times):
            self.event()
        return self.source(info)


def happens(marker: Path, times: int = 1) -> bool:
    """Count an event, and return whether it had happened fewer times. Works across processes."""
    for number in range(times):
        try:
            os.close(os.open(f"{marker}.{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def counted(source: Source, folder: Path) -> Source:
    """Write a file for each computed sample, for `times_made`."""

    def counting_source(info: SampleInfo) -> Any:
        happens(folder / str(info.epoch_idx * 1000 + info.idx_in_epoch), times=100)
        return source(info)

    return counting_source


def times_made(folder: Path) -> list[int]:
    """How often each sample has been made, in their order."""
    names = sorted(int(name.partition(".")[0]) for name in os.listdir(folder))
    return [names.count(index) for index in sorted(set(names))]


def in_first_epochs(indices: Iterable[int], epochs: int = 2) -> set[tuple[int, int]]:
    """These samples in each of the first epochs."""
    return {(epoch, index) for epoch in range(epochs) for index in indices}
