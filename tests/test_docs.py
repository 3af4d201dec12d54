"""The documentation refers to what is there."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from pathlib import Path

import pytest
from documents import DOCS, FROM_PYTORCH, README, SCALING, run_program_of

from dali_like import errors
from dali_like.data.options import LoaderOptions

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [README, *sorted(DOCS.glob("**/*.md"))]
MIGRATING = DOCS / "migrating-from-dali.md"
#: Those whose programs need nothing but this library, and say all that they need.
WITH_PROGRAMS = [
    *(README, FROM_PYTORCH, MIGRATING, DOCS / "tutorial.md", DOCS / "performance.md"),
    *sorted((DOCS / "how-to").glob("*.md")),
]
ARCHITECTURE = DOCS / "architecture.md"
PACKAGE = ROOT / "dali_like"


def rows_of_errors() -> list[list[str]]:
    """Of the table of errors in docs/migrating-from-dali.md: the situation, what DALI raises, what is raised here.

    Those that are marked as exceptions are left out.
    """
    _, _, text = MIGRATING.read_text("utf-8").partition("## Errors")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows[1:] if not row[-1].endswith("*")]


def files_of_row(row: str) -> set[str]:
    """What a row of the tables in docs/architecture.md names; a name without a folder is beside the first one."""
    first, *others = re.findall(r"`(\w[\w/]*(?:\.py|/))`", row)
    folder = Path(first if first.endswith("/") else Path(first).parent)
    return {first, *(name if "/" in name else str(folder / name) for name in others)}


def levels_of_architecture() -> dict[str, int]:
    """Which files and folders of the package docs/architecture.md tells of, and in which group, counted from the top.

    Those of the engine are one group.
    """
    _, _, text = ARCHITECTURE.read_text("utf-8").partition("## File by file")
    titles = re.findall(r"^### (.*)", text, re.MULTILINE)
    groups = list(dict.fromkeys(title.partition(":")[0] for title in titles))
    return {
        name: groups.index(part.partition("\n")[0].partition(":")[0])
        for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]
        for row in re.findall(r"^\| `.*", part, re.MULTILINE)
        for name in files_of_row(row)
    }


def imports_when_imported(path: Path) -> set[str]:
    """The modules of this package that a module imports at its outermost level, type annotations apart: as files."""
    found = set()
    for statement in ast.parse(path.read_text("utf-8")).body:
        if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("dali_like."):
            module = str(statement.module).removeprefix("dali_like.").replace(".", "/")
            found |= {f"{module}.py", *(f"{module}/{name.name}.py" for name in statement.names)}
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text("utf-8"))

    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_architecture_tells_of_files_that_are_there() -> None:
    assert [name for name in levels_of_architecture() if not (PACKAGE / name).exists()] == []


def test_the_architecture_tells_of_every_module() -> None:
    modules = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if not path.name.startswith("__")}
    told = levels_of_architecture()

    assert [name for name in modules if name not in told and f"{Path(name).parent}/" not in told] == []


def test_imports_point_downwards_in_the_groups_of_the_architecture() -> None:
    levels = levels_of_architecture()

    upwards = [
        (name, other)
        for name, level in levels.items()
        if name.endswith(".py")
        for other in imports_when_imported(PACKAGE / name)
        if levels.get(other, level) < level
    ]

    assert upwards == []


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

    assert sorted(told) == sorted(set(inspect.signature(LoaderOptions).parameters))
