"""Show which tests reach which lines of the package, to find tests that may be redundant.

Run ``python -m tools.coverage_matrix tests/cli`` for a folder, with further arguments of pytest. It prints the tests that
reach no line alone, each with the tests that reach all of its lines, fewest lines first. Such a test is a candidate, and not
always redundant: the same lines with other values are another behavior. ``--modules`` prints for each module the test file
that reaches most of its lines.

All cases of a parametrized test count as one test. Lines of modules and classes do not count, because the first import runs
them. Lines of threads and forked processes count, but not of spawned interpreters. Workers of several tests count only
with the first of them. Needs Python 3.12 or later, for `sys.monitoring`; it takes little longer than the tests alone.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import mmap
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: `sys.monitoring`; None before Python 3.12.
MONITORING: Any = getattr(sys, "monitoring", None)
#: The tests of candidates that are shown as reaching the same lines.
_MOST_SHOWN = 3


class Lines:
    """The lines of a package that run, also in forked processes: a byte for each, in memory that they share.

    Args:
        package: the folder of the package.
    """

    def __init__(self, package: Path) -> None:
        self._begins: dict[str, int] = {}
        self._places: list[tuple[str, int]] = []
        for path in sorted(package.rglob("*.py")):
            self._begins[str(path)] = len(self._places)
            name = str(path.relative_to(package.parent))
            self._places += ((name, number) for number in range(path.read_text("utf-8").count("\n") + 2))
        self._reached = mmap.mmap(-1, len(self._places))

    def note(self, code: CodeType, line: int) -> Any:
        """Note a line. The interpreter reports it no more until `clear`: a line costs a call once in a test."""
        begin = self._begins.get(code.co_filename)
        # Bodies of modules and classes have names of their own namespace: they are not optimized.
        if begin is not None and code.co_flags & inspect.CO_OPTIMIZED:
            self._reached[begin + line] = 1
        return MONITORING.DISABLE

    def clear(self) -> None:
        """Forget all lines."""
        self._reached[:] = bytes(len(self._places))
        MONITORING.restart_events()

    def reached(self) -> frozenset[int]:
        """Return the numbers of the lines that have run."""
        return frozenset(number for number, byte in enumerate(self._reached[:]) if byte)

    def place(self, number: int) -> tuple[str, int]:
        """Return file and line of a number."""
        return self._places[number]


class Recorder:
    """A plugin of pytest that records the lines of each test, with the fixtures that are made for it.

    Args:
        lines: of the package.
        tool_id: of the tool, for `sys.monitoring`.

    Attributes:
        tests: the lines of each test function, by its id without parameters.
    """

    def __init__(self, lines: Lines, tool_id: int) -> None:
        self.lines = lines
        self.tests: dict[str, frozenset[int]] = {}
        self._tool_id = tool_id

    def pytest_sessionstart(self) -> None:
        """Import all modules, because their decorators belong to no test, and begin."""
        import dali_like

        for module in pkgutil.walk_packages(dali_like.__path__, "dali_like.", onerror=lambda name: None):
            try:
                importlib.import_module(module.name)
            except (ImportError, SystemExit):
                continue  # an optional library is missing
        self.begin()

    def begin(self) -> None:
        """Begin to record lines."""
        MONITORING.use_tool_id(self._tool_id, "coverage_matrix")
        MONITORING.register_callback(self._tool_id, MONITORING.events.LINE, self.lines.note)
        MONITORING.set_events(self._tool_id, MONITORING.events.LINE)

    def pytest_runtest_logstart(self) -> None:
        """Forget the lines of the test before."""
        self.lines.clear()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Add the lines to those of other cases of the test."""
        name = nodeid.partition("[")[0]
        self.tests[name] = self.tests.get(name, frozenset()) | self.lines.reached()

    def pytest_sessionfinish(self) -> None:
        """End recording."""
        MONITORING.set_events(self._tool_id, 0)
        MONITORING.free_tool_id(self._tool_id)


def candidates(tests: Mapping[str, frozenset[int]]) -> dict[str, list[str]]:
    """Return the tests that reach no line alone, each with the tests that reach all of its lines, fewest lines first."""
    alone: dict[int, str | None] = {}
    for name, lines in tests.items():
        alone.update((line, None if line in alone else name) for line in lines)
    needed = {name for name in alone.values() if name is not None}
    return {
        name: sorted(
            (other for other in tests if other != name and lines <= tests[other]), key=lambda other: len(tests[other])
        )
        for name, lines in tests.items()
        if name not in needed and lines
    }


def modules(tests: Mapping[str, frozenset[int]], lines: Lines) -> dict[str, tuple[str, int]]:
    """Return for each module the test file that reaches most of its lines, and how many."""
    reached: dict[str, dict[str, set[int]]] = {}
    for name, numbers in tests.items():
        for number in numbers:
            by_file = reached.setdefault(lines.place(number)[0], {})
            by_file.setdefault(name.partition("::")[0], set()).add(number)
    return {
        module: max(((file, len(numbers)) for file, numbers in by_file.items()), key=lambda item: item[1])
        for module, by_file in sorted(reached.items())
    }


def report(tests: Mapping[str, frozenset[int]]) -> Iterator[str]:
    """Yield the lines of the list of candidates."""
    found = candidates(tests)
    yield f"{len(tests)} tests; {len(found)} reach no line alone"
    for name, others in found.items():
        yield f"{name}: {len(tests[name])} lines"
        yield from (f"    all in {other} ({len(tests[other])} lines)" for other in others[:_MOST_SHOWN])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run tests and print the candidates."""
    import pytest

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", action="store_true", help="print the test file of each module")
    options, rest = parser.parse_known_args(arguments)
    if sys.version_info < (3, 12):
        parser.error("needs Python 3.12 or later")
    lines = Lines(ROOT / "dali_like")
    recorder = Recorder(lines, MONITORING.COVERAGE_ID)
    status = pytest.main(["-q", "-p", "no:cacheprovider", *rest], plugins=[recorder])
    if options.modules:
        for module, (file, count) in modules(recorder.tests, lines).items():
            print(f"{module}: {file} ({count} lines)")
    else:
        print(*report(recorder.tests), sep="\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
