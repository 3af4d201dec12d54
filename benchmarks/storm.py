"""Compare how DALI, PyTorch and dali_like behave when workers are killed: ``python -m benchmarks.storm``.

Each system runs in a separate process and delivers epochs of `EPOCH_BATCHES` batches, with samples of one millisecond, from
`WORKERS` forked workers, with its default options. SIGKILL hits random workers for ``--seconds``; of the last two systems,
also the forkserver and its reserve, but not both at once. The loop behaves like a user's program:

- it counts an exception and continues with the next epoch: ``reset()`` in DALI and dali_like, a new iterator in torch
- if the next attempt fails too, before a batch has arrived, it makes a new pipeline or DataLoader

Every byte of each batch is checked. Batches are missing if their epoch delivered others and then ended early. A program
without output for `HANG_S` hangs; it is killed and not started again. Processes are left behind if they exist `LEFT_S` after
the program has exited.

Limitation: workers do not die once a second in practice. The comparison shows the effect of one death, many times over.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.processes import session_of
from benchmarks.signals import Storm, is_alive, target_pids, worker_pids

__all__ = ["main"]

WORKERS = 2
BATCH_SIZE = 32
EPOCH_BATCHES = 100
SAMPLE_S = 0.001
HANG_S = 20.0
LEFT_S = 3.0
ERROR_CHARS = 90


def sample(index: int) -> NDArray[np.int64]:
    """Return a sample of 8 KiB that depends on its index, after one millisecond."""
    if index >= EPOCH_BATCHES * BATCH_SIZE:
        raise StopIteration
    time.sleep(SAMPLE_S)
    return np.full(1024, index, np.int64)


class Loop(Protocol):
    """One system in a training loop."""

    def make(self) -> None:
        """Make the pipeline or loader, replacing a previous one."""
        ...

    def epoch(self) -> Iterator[Any]:
        """Begin an epoch; yield its batches as arrays, or as objects that NumPy converts to arrays."""
        ...

    def close(self) -> None:
        """Close the pipeline or loader, as at program exit."""
        ...


class PipelineLoop:
    """DALI or dali_like."""

    def __init__(self, library: str, start_method: str = "fork", **options: Any) -> None:
        self._dali: Any = importlib.import_module(library)
        self._start_method = start_method
        self._options = options
        self._pipeline: Any = None
        self._fresh = True

    def make(self) -> None:
        dali = self._dali
        self.close()

        @dali.pipeline_def(  # type: ignore[untyped-decorator]
            batch_size=BATCH_SIZE,
            num_threads=1,
            device_id=None,
            py_num_workers=WORKERS,
            py_start_method=self._start_method,
            **self._options,
        )
        def pipeline() -> Any:
            return dali.fn.external_source(source=lambda info: sample(info.idx_in_epoch), batch=False, parallel=True)

        self._pipeline = pipeline()
        self._pipeline.build()
        self._fresh = True

    def epoch(self) -> Iterator[Any]:
        if not self._fresh:
            self._pipeline.reset()
        self._fresh = False
        while True:
            try:
                (batch,) = self._pipeline.run()
            except StopIteration:
                return
            yield batch.as_array()

    def close(self) -> None:
        if hasattr(self._pipeline, "close"):
            self._pipeline.close()
        self._pipeline = None  # DALI has no close(): its workers stop with the pipeline


class TorchLoop:
    """torch's DataLoader."""

    def __init__(self, *, persistent_workers: bool) -> None:
        self._data: Any = importlib.import_module("torch.utils.data")
        self._persistent_workers = persistent_workers
        self._loader: Any = None

    def make(self) -> None:
        self._loader = self._data.DataLoader(
            Samples(), batch_size=BATCH_SIZE, num_workers=WORKERS, persistent_workers=self._persistent_workers
        )

    def epoch(self) -> Iterator[Any]:
        yield from self._loader

    def close(self) -> None:
        self._loader = None


class Samples:
    """The samples as a map-style dataset of torch, which requires no base class."""

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        return sample(index)

    def __len__(self) -> int:
        return EPOCH_BATCHES * BATCH_SIZE


LOOPS: dict[str, Callable[[], Loop]] = {
    "dali_like": lambda: PipelineLoop("dali_like"),
    "dali_like, py_worker_restarts=None": lambda: PipelineLoop("dali_like", py_worker_restarts=None),
    "DALI": lambda: PipelineLoop("nvidia.dali"),
    "torch": lambda: TorchLoop(persistent_workers=False),
    "torch, persistent_workers=True": lambda: TorchLoop(persistent_workers=True),
    "dali_like, every process": lambda: PipelineLoop("dali_like", py_worker_restarts=None),
    "dali_like, every process, spawn": lambda: PipelineLoop("dali_like", "spawn", py_worker_restarts=None),
}
#: Of these systems, every process below the main one may be killed.
TARGETS: dict[str, Callable[[Iterable[int]], Sequence[int]]] = {
    "dali_like, every process": functools.partial(target_pids, have_reserves=True),
    "dali_like, every process, spawn": functools.partial(target_pids, have_reserves=False),
}


# In the process under test


def tell(kind: str, text: str = "") -> None:
    """Write an event to stdout as one flushed line."""
    os.write(1, f"{json.dumps([kind, text])}\n".encode())


def run_loop(loop: Loop, seconds: float) -> None:
    """Deliver epochs for some time, and report events."""
    loop.make()
    end = time.monotonic() + seconds
    failed = False
    while time.monotonic() < end:
        delivered = 0
        try:
            for batch in loop.epoch():
                tell("batch" if is_right(batch, delivered) else "wrong")
                delivered += 1
                if time.monotonic() > end:
                    return
            tell("epoch", str(EPOCH_BATCHES - delivered))
            failed = False
        except Exception as error:  # any exception a user would see
            tell("error", f"{type(error).__name__}: {error}")
            tell("broken", str(EPOCH_BATCHES - delivered) if delivered else "0")
            if failed and not delivered:
                make_anew(loop)
            failed = True


def make_anew(loop: Loop) -> None:
    """Make a new pipeline or loader, which may also fail."""
    tell("anew")
    try:
        loop.make()
    except Exception as error:  # any exception a user would see
        tell("error", f"{type(error).__name__}: {error}")


def is_right(batch: Any, iteration: int) -> bool:
    """Return whether a batch is that of the iteration."""
    first = iteration * BATCH_SIZE
    expected = np.arange(first, first + BATCH_SIZE)[:, None]
    array = np.asarray(batch)
    return array.shape == (BATCH_SIZE, 1024) and bool((array == expected).all())


# In the observing process


@dataclass
class Outcome:
    """Result of one system.

    Attributes:
        events: number of events of each kind.
        missing: number of batches lost in epochs that ended early.
        errors: number of exceptions by text, without process ids and the like.
        kills: number of killed processes.
        longest_pause_s: longest time between two batches.
        hung: whether the program had to be killed.
        left: number of processes left behind.
    """

    events: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    longest_pause_s: float = 0.0
    hung: bool = False
    left: int = 0
    _last_s: float = 0.0

    def note(self, kind: str, text: str) -> None:
        """Record an event."""
        self.events[kind] += 1
        if kind in ("batch", "wrong"):
            now = time.monotonic()
            self.longest_pause_s = max(self.longest_pause_s, now - (self._last_s or now))
            self._last_s = now
        if kind == "error":
            self.errors[re.sub(r"\d+", "N", " ".join(text.split()))[:ERROR_CHARS]] += 1
        elif kind in ("epoch", "broken"):
            self.missing += int(text)


def contest(name: str, options: argparse.Namespace) -> Outcome:
    """Run one system while its workers are killed."""
    outcome = Outcome()
    command = [sys.executable, "-m", "benchmarks.storm", "--run", name, "--seconds", str(options.seconds)]
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True) as process,
    ):
        find = TARGETS.get(name, worker_pids)
        storm = Storm(
            lambda _: find(session_of(process.pid) - {process.pid}),
            {signal.SIGKILL: options.kills / options.seconds},
            seed=options.seed,
        )
        assert process.stdout is not None
        try:
            events = _events(process.stdout)
            outcome.note(*next(events))
            with storm:
                for event in events:
                    outcome.note(*event)
            process.wait(HANG_S)
        except (HungError, subprocess.TimeoutExpired):
            outcome.hung = True
            process.kill()
        if process.wait() and not outcome.hung:
            stderr.seek(0)
            outcome.note("error", f"the program ended with {process.returncode}: {stderr.read().decode().splitlines()[-1:]}")
        outcome.kills = storm.sent[signal.SIGKILL]
        outcome.left = len(_end_session(process.pid))
    return outcome


class HungError(Exception):
    """The program has produced no output for `HANG_S`."""


def _events(stream: IO[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the program's events until the end of its output."""
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                kind, text = json.loads(line)
                yield kind, text
            if not selector.select(HANG_S):
                raise HungError
            read = os.read(stream.fileno(), 1 << 16)
            if not read:
                return
            buffer += read


def _end_session(session: int) -> list[int]:
    """Kill the processes of a session that still exist after `LEFT_S`, and return them."""
    deadline = time.monotonic() + LEFT_S
    while (left := list(filter(is_alive, session_of(session)))) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def table(outcomes: dict[str, Outcome]) -> str:
    """Return all outcomes as a table, followed by the errors, in Markdown."""
    lines = [
        "| | kills | batches | missing | wrong | whole epochs | errors | recreated | longest pause | hung | left behind |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, outcome in outcomes.items():
        events = outcome.events
        cells = (
            outcome.kills,
            events["batch"],
            outcome.missing,
            events["wrong"],
            events["epoch"],
            events["error"],
            events["anew"],
            f"{outcome.longest_pause_s:.1f} s",
            "yes" if outcome.hung else "no",
            f"{outcome.left} processes" if outcome.left else "nothing",
        )
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    for name, outcome in outcomes.items():
        if outcome.errors:
            lines += ["", f"Errors of {name}:", ""]
            lines += [f"- {count} x `{text}`" for text, count in outcome.errors.most_common()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all systems in turn, and print the table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storm", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=25, help="time for each system, in seconds")
    parser.add_argument("--kills", type=int, default=30, help="approximate number of processes to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--systems", nargs="+", choices=LOOPS, default=list(LOOPS), metavar="NAME")
    parser.add_argument("--run", choices=LOOPS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    if options.run:
        loop = LOOPS[options.run]()
        run_loop(loop, options.seconds)
        loop.close()
        return 0
    outcomes = {}
    for name in options.systems:
        print(f"{name} ...", file=sys.stderr, flush=True)
        outcomes[name] = contest(name, options)
    print(table(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
