"""What is tried before a release: nothing is forgotten."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.project.try_release import BARE, OF_EXTRAS

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_each_extra_is_tried_alone() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]

    assert set(OF_EXTRAS) == set(extras)


def test_programs_can_be_compiled() -> None:
    for program in (BARE, *OF_EXTRAS.values()):
        compile(program, "program", "exec")
