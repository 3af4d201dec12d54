"""Programs that run in processes of their own, for tests of how they end.

A `Program` runs in a session of its own, in an empty folder that is also its folder for temporary files. All of the
session's processes can be found, and the remains of the program in the folder and in /dev/shm can be seen.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import dali_like
from tests.conftest import DEADLINE_S, is_running, wait_until

#: Within this time after the main process everything must be gone. It takes some hundredths of a second.
GONE_S = 30.0

#: The first lines of programs. `tell` writes a line, whole, also when several processes write to the same file.
#: Semaphores and shared memory of multiprocessing get names with the mark of the program.
_PROLOGUE = """
import multiprocessing.process, os, sys
from multiprocessing import shared_memory

mark = "/" + os.environ["TEST_MARK"]
multiprocessing.process.current_process()._config["semprefix"] = shared_memory._SHM_NAME_PREFIX = mark

def tell(line):
    os.write(1, f"{line}\\n".encode())

def wait_for_the_test():
    sys.stdin.readline()
"""


@dataclass(frozen=True)
class End:
    """The end of a program: its exit status as in `subprocess`, and its output."""

    status: int
    stdout: str
    stderr: str


class Program:
    """A program that is running.

    Args:
        folder: an empty folder, for the program's text and its files.
        parts: the program, in pieces of any indentation; `tell` and `wait_for_the_test` are defined.
        arguments: in ``sys.argv`` from 1 on.
        flags: of the interpreter.
    """

    def __init__(self, folder: Path, parts: Sequence[str], arguments: Sequence[str] = (), flags: Sequence[str] = ()) -> None:
        self._stdout = folder / "stdout"
        self._stderr = folder / "stderr"
        self._cwd = folder / "cwd"
        self._cwd.mkdir()
        file = folder / "program.py"
        file.write_text("\n".join(map(textwrap.dedent, (_PROLOGUE, *parts))))
        self._mark = f"p{os.getpid():x}-"
        package = str(Path(dali_like.__file__).resolve().parents[1])
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, *flags, str(file), *arguments],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                cwd=self._cwd,
                env={
                    **os.environ,
                    "PYTHONPATH": package,
                    "TMPDIR": str(self._cwd),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "TEST_MARK": self._mark,
                },
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def lines(self, key: str) -> list[Any]:
        """Return the values of the program's lines ``key: JSON`` so far."""
        told = (line.partition(": ") for line in self._stdout.read_text().splitlines())
        return [json.loads(value) for name, _, value in told if name == key]

    def wait_for(self, key: str, count: int = 1) -> list[Any]:
        """Wait until the program has written so many lines with this key."""

        def told() -> list[Any] | None:
            lines = self.lines(key)
            assert len(lines) >= count or self.running, self._stderr.read_text()
            return lines if len(lines) >= count else None

        lines: list[Any] = wait_until(told, f"{count} times {key!r} in the output of the program")
        return lines

    def go_on(self) -> None:
        """Let the program return from `wait_for_the_test`."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the main process alone."""
        os.kill(self.pid, number)

    def press_ctrl_c(self) -> None:
        """Send SIGINT to all of its processes, as a terminal does, when the main process waits for something.

        At other moments KeyboardInterrupt may come up in a finalizer, where Python does not pass it on.
        """
        main = psutil.Process(self.pid)
        wait_until(lambda: main.status() != psutil.STATUS_RUNNING, "a main process that waits")
        os.killpg(self.pid, signal.SIGINT)

    def processes(self) -> set[int]:
        """Return all running processes in the session of the program."""
        return {pid for pid in psutil.pids() if _session_of(pid) == self.pid and is_running(pid)}

    def end(self, deadline_s: float = DEADLINE_S) -> End:
        """Wait for the main process to end."""
        self.go_on()
        status = self._process.wait(deadline_s)
        return End(status, self._stdout.read_text(), self._stderr.read_text())

    def left_behind(self) -> set[str]:
        """Return the names that the program has made: in /dev/shm, and of files in its folder."""
        names = {name for name in os.listdir("/dev/shm") if self._mark in name or "dali_like" in name}
        return names | set(map(str, self._cwd.rglob("*")))

    def finish(self) -> None:
        """Check that nothing of the program is left once its main process has ended; then end remaining processes."""
        try:
            wait_until(lambda: not self.processes(), "the end of all processes of the program", GONE_S)
            wait_until(lambda: not self.left_behind(), f"the end of {self.left_behind()}", GONE_S)
        finally:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self.go_on()


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


#: The fixture `start`: it starts a program, from `parts`, `arguments` and `flags` of `Program`.
StartProgram = Callable[..., Program]


def assert_is_interrupted(program: Program) -> None:
    """The program must end by Ctrl-C with the traceback of its main process, a note about it, and nothing else."""
    end = program.end()
    assert end.stderr.count("Traceback (most recent call last)") == 1, end.stderr
    assert end.stderr.startswith("Traceback"), end.stderr
    assert re.search(r"\nKeyboardInterrupt\n(while .*\n)?$", end.stderr), end.stderr
    assert end.status == -signal.SIGINT
