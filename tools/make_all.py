"""Make targets one after the other, all of them although some fail, and print one summary at the end.

    python -m tools.make_all test-faults "soak ARGS='--seconds 20'" [--beside lint] [--if-installed chromium browser]

Each part is a target of the Makefile, with its variables. The summary has a line for each part, with its result and its
time, and the lines in which pytest names a failed test. The part behind ``--beside`` runs at the same time as the others;
its output appears in one piece when it ends. A part behind ``--if-installed PROGRAM`` is skipped without this program. A
part may print ``SKIPPED PART: reason`` if this machine cannot run it. The exit status is 1 if a part fails.

Requires nothing but Python: it runs before any virtual environment exists.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

_SKIPPED = "SKIPPED PART: "
#: How pytest names a test that did not pass, with and without colors.
_NOT_PASSED = re.compile(r"(?:\x1b\[[0-9;]*m)*(?:FAILED|ERROR)(?:\x1b\[[0-9;]*m)* \S+\.py\b")


class Result(NamedTuple):
    """Outcome of one part.

    Attributes:
        part: target and variables.
        outcome: "ok", "FAILED" or "skipped".
        seconds: wall time.
        details: reason of skipping, or lines that name failed tests.
    """

    part: str
    outcome: str
    seconds: float = 0.0
    details: Sequence[str] = ()


def show(line: str) -> None:
    """Print a line of a part while it runs."""
    print(line, flush=True)


def make(part: str, show: Callable[[str], object] = show) -> Result:
    """Make a part, and call `show` for each line of its output."""
    start = time.monotonic()
    environment = {"PY_COLORS": "1", **os.environ} if sys.stdout.isatty() else dict(os.environ)
    command = [os.environ.get("MAKE", "make"), "--no-print-directory", *shlex.split(part)]
    skipped, not_passed = [], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as process:
        for line in _lines_of(process):
            show(line)
            if line.startswith(_SKIPPED):
                skipped.append(line.removeprefix(_SKIPPED).strip())
            elif _NOT_PASSED.match(line):
                not_passed.append(line.rstrip())
    outcome = "FAILED" if process.returncode else "skipped" if skipped else "ok"
    return Result(part, outcome, time.monotonic() - start, skipped + not_passed)


class Beside:
    """A part that is made in another thread. Its output appears when it ends, not among the lines of other parts."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._thread = threading.Thread(target=self._make)
        self._thread.start()

    def _make(self) -> None:
        lines: list[str] = []
        self._result = make(self._part, lines.append)
        show("\n".join(["", *lines]))

    def result(self) -> Result:
        """Wait for the end of the part, and return its outcome."""
        self._thread.join()
        return self._result


def _lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield the lines that a process writes until it ends. A process that a failed test has left may keep the pipe open."""
    assert process.stdout is not None
    rest = b""
    while True:
        if select.select([process.stdout], [], [], 1.0)[0]:
            written = os.read(process.stdout.fileno(), 1 << 16)
            *lines, rest = (rest + written).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if not written:
                break
        elif process.poll() is not None:
            break
    if rest:
        yield rest.decode(errors="replace")


def summary(results: Sequence[Result]) -> str:
    """Return the table of all results."""
    width = max(len(result.part) for result in results)
    lines = []
    for part, outcome, seconds, details in results:
        minutes = f"{seconds // 60:3.0f}:{seconds % 60:02.0f}"
        lines.append(f"{part:{width}}  {outcome:7}  {minutes}")
        lines += [f"    {detail}" for detail in details]
    failed = sum(result.outcome == "FAILED" for result in results)
    lines.append(f"{failed} of {len(results)} parts failed" if failed else f"none of {len(results)} parts failed")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all parts; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="targets, each with its variables")
    parser.add_argument(
        "--if-installed",
        nargs=2,
        action="append",
        default=[],
        metavar=("PROGRAM", "PART"),
        help="a part that needs a program",
    )
    parser.add_argument("--beside", metavar="PART", help="a part to make at the same time as the others")
    given = parser.parse_args(arguments)
    beside = None if given.beside is None else Beside(given.beside)
    results = [make(part) for part in given.parts]
    for program, part in given.if_installed:
        found = shutil.which(program) is not None
        results.append(make(part) if found else Result(part, "skipped", details=[f"{program} is not installed"]))
    if beside is not None:
        results.insert(0, beside.result())
    print("\n" + summary(results), flush=True)
    return int(any(result.outcome == "FAILED" for result in results))


if __name__ == "__main__":
    sys.exit(main())
