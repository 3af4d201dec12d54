"""Fixtures of the tests that kill, stop and interrupt processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.programs import Program, StartProgram


@pytest.fixture(autouse=True)
def _time_limit(limited_time: None) -> None:
    """Limit the time of each test: a defect here often shows as a call that never returns."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartProgram]:
    """Starts a program; see `Program`. In the end it must have left neither processes nor files behind."""
    programs: list[Program] = []

    def start(*parts: str, arguments: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> Program:
        programs.append(Program(tmp_path, parts, arguments, flags))
        return programs[-1]

    yield start
    for program in programs:
        program.finish()
