"""The documentation refers to what is there."""

from __future__ import annotations

import builtins
import inspect
import re
from pathlib import Path

import pytest

from dali_like import errors
from dali_like.data.loader import DataLoader
from tests.documents import DOCS, FROM_PYTORCH, README, SCALING, run_program_of

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [README, *sorted(DOCS.glob("**/*.md"))]
MIGRATING = DOCS / "migrating-from-dali.md"
#: Those whose programs need nothing but this library, and say all that they need.
WITH_PROGRAMS = [
    *(README, FROM_PYTORCH, MIGRATING, DOCS / "tutorial.md", DOCS / "performance.md"),
    *sorted((DOCS / "how-to").glob("*.md")),
]


def rows_of_errors() -> list[list[str]]:
    """Of the table of errors in docs/migrating-from-dali.md: the situation, what DALI raises, what is raised here.

    Those that are marked as exceptions are left out.
    """
    _, _, text = MIGRATING.read_text("utf-8").partition("## Errors")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows[1:] if not row[-1].endswith("*")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text("utf-8"))

    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize(("situation", "theirs", "ours"), rows_of_errors(), ids=[row[0] for row in rows_of_errors()])
def test_errors_derive_from_those_of_dali_where_the_table_says_so(situation: str, theirs: str, ours: str) -> None:
    named = [getattr(errors, name) for name in re.findall(r"`(\w+Error)`", ours)]
    builtin = tuple(getattr(builtins, name) for name in re.findall(r"\w+Error", theirs)) or Exception

    assert named
    assert [error for error in named if not issubclass(error, builtin)] == []


@pytest.mark.usefixtures("fonts")
@pytest.mark.parametrize("document", WITH_PROGRAMS, ids=lambda path: path.stem)
def test_programs_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_program_of(document, "python")


def test_programs_among_pieces_of_programs_run() -> None:
    run_program_of(SCALING, "python run")


def test_arguments_of_the_loader_are_all_told() -> None:
    _, _, text = FROM_PYTORCH.read_text("utf-8").partition("## Arguments")
    cells = [line.split(" | ")[0] for line in text.partition("## ")[0].splitlines() if line.startswith("| `")]

    told = re.findall(r"`(\w+)", " ".join(cells))

    assert sorted(told) == sorted(set(inspect.signature(DataLoader).parameters))
