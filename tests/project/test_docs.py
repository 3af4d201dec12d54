"""The documentation: links, paths, programs and tables match the code."""

from __future__ import annotations

import builtins
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dali_like import cli, errors
from dali_like.data import ComposedDataset
from dali_like.data.loader import DataLoader
from tests.conftest import skip_without
from tests.documents import DOCS, FROM_PYTORCH, README, SCALING, run_program_of
from tools.diagrams import diagrams
from tools.svg import Picture

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("**/*.md"))]
MIGRATING = DOCS / "migrating-from-dali.md"
DALI_ERRORS = DOCS / "dali-errors.md"
#: Documents with complete programs that need only this library.
WITH_PROGRAMS = [
    *(README, FROM_PYTORCH, MIGRATING, DOCS / "index.md", DOCS / "tutorial.md", DOCS / "performance.md"),
    *(DOCS / "composed-tutorial.md", DOCS / "composed-resume.md"),
    *(
        DOCS / "composed-datasets.md",
        DOCS / "costs-and-curricula.md",
        DOCS / "coming-from-grain.md",
        DOCS / "coming-from-webdataset.md",
    ),
    *(DOCS / "coming-from-spdl.md", DOCS / "coming-from-tf-data.md", DOCS / "coming-from-energon.md"),
    *(DOCS / "coming-from-litdata.md", DOCS / "coming-from-mosaicml.md", DOCS / "coming-from-ray-data.md"),
    *(DOCS / "coming-from-ffcv.md", DOCS / "coming-from-hf-datasets.md"),
    *sorted((DOCS / "how-to").glob("*.md")),
]
#: The packages of those that need more than the tests do.
OPTIONAL = {"weather-and-cells": ("h5py", "zarr"), "robots": ("av",)}


def rows_of_errors() -> list[list[str]]:
    """Return the rows of the table of errors in docs/dali-errors.md: situation, DALI's error, this library's error.

    Rows with a star are left out.
    """
    text = DALI_ERRORS.read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows[1:] if not row[-1].endswith("*")]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as MyST and GitHub make them."""
    headings = re.findall(r"^#{1,4} (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_there(path: str, name: str) -> bool:
    """Return whether a path exists, and its file defines a name, if one is given."""
    place = next((place for place in (ROOT / path, ROOT / "dali_like" / path) if place.exists()), None)
    if place is None or not name:
        return place is not None
    return re.search(rf"^\s*(class|def) {name}\b", place.read_text("utf-8"), re.MULTILINE) is not None


def found_in_documents(pattern: str) -> Iterator[tuple[Path, Any]]:
    """Yield the matches of a pattern in all documents, each with its document, as `re.findall` returns them."""
    for document in DOCUMENTS:
        for match in re.findall(pattern, document.read_text("utf-8")):
            yield document, match


def test_links_lead_somewhere() -> None:
    links = found_in_documents(r"\]\((?!https?:)([^)#]+)")

    assert [(document.name, link) for document, link in links if not (document.parent / link).exists()] == []


def test_anchors_are_headings() -> None:
    links = found_in_documents(r"\]\((?!https?:)([^)#]*\.md)?#([^)]+)\)")

    assert [
        (document.name, page, anchor)
        for document, (page, anchor) in links
        if anchor not in anchors_of(document.parent / page if page else document)
    ] == []


def test_named_files_exist() -> None:
    """Paths are below the root or below the package; a name behind "::" is a class or function of that file."""
    named = found_in_documents(r"`((?:\w+/)+(?:\w+\.py)?)(?:::(\w+))?`")

    assert [(document.name, path, name) for document, (path, name) in named if not is_there(path, name)] == []


@pytest.mark.parametrize(("name", "drawn"), diagrams().items(), ids=list(diagrams()))
def test_diagrams_are_drawn_from_the_code(name: str, drawn: str) -> None:
    """If this fails, run ``python -m tools.diagrams``."""
    assert (DOCS / "pictures" / name).read_text("utf-8") == drawn


def test_a_box_is_as_wide_as_its_text() -> None:
    with pytest.raises(ValueError, match="too wide for a box of 20 pixels: much text"):
        Picture(100, "picture").box(0, 0, 20, ["much text"])


def test_layers_have_their_first_files() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8").partition("## Layers")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    named = [
        (folder, file)
        for row in rows
        for folder in re.findall(r"`([\w/]+)/`", row[0])
        for file in re.findall(r"`(\w+\.py)`", row[-1])
    ]

    assert named
    assert [place for place in named if not (ROOT / "dali_like" / place[0] / place[1]).exists()] == []


@pytest.mark.parametrize(("situation", "theirs", "ours"), rows_of_errors(), ids=[row[0] for row in rows_of_errors()])
def test_errors_derive_from_those_of_dali_where_the_table_says_so(situation: str, theirs: str, ours: str) -> None:
    named = [getattr(errors, name) for name in re.findall(r"`(\w+Error)`", ours)]
    builtin = tuple(getattr(builtins, name) for name in re.findall(r"\w+Error", theirs)) or Exception

    assert named
    assert [error for error in named if not issubclass(error, builtin)] == []


@pytest.mark.parametrize("page", sorted((DOCS / "reference").glob("*.md")), ids=lambda path: path.stem)
def test_names_of_the_reference_can_be_imported(page: Path) -> None:
    named = re.findall(r"^\.\. auto\w+:: ([\w.]+)", page.read_text("utf-8"), re.MULTILINE)
    frameworks = ("dali_like.plugin.pytorch", "dali_like.plugin.jax")  # tests/parity imports these

    for name in named:
        if not name.startswith(frameworks):
            pkgutil.resolve_name(name)


@pytest.mark.usefixtures("fonts", "threads_of_zarr")
@pytest.mark.parametrize("document", WITH_PROGRAMS, ids=lambda path: path.stem)
def test_programs_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without(*OPTIONAL.get(document.stem, ()))
    monkeypatch.chdir(tmp_path)

    run_program_of(document, "python")


def test_programs_among_pieces_of_programs_run() -> None:
    run_program_of(SCALING, "python run")


def test_arguments_of_the_loader_are_all_listed() -> None:
    _, _, text = FROM_PYTORCH.read_text("utf-8").partition("## Arguments")
    cells = [line.split(" | ")[0] for line in text.partition("## ")[0].splitlines() if line.startswith("| `")]

    listed = re.findall(r"`(\w+)", " ".join(cells))

    assert sorted(listed) == sorted(set(inspect.signature(DataLoader).parameters))


def terms() -> list[list[str]]:
    """Return the rows of the glossary: term, meaning, class, file."""
    lines = (DOCS / "glossary.md").read_text("utf-8").splitlines()
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][2:]


def test_the_glossary_is_short() -> None:
    assert len(terms()) <= 30


@pytest.mark.parametrize("term", terms(), ids=lambda term: term[0])
def test_a_term_of_the_glossary_is_in_the_code(term: list[str]) -> None:
    _, _, kind, file = term
    text = (ROOT / "dali_like" / file).read_text("utf-8")

    assert not kind or re.search(rf"^class {kind}\b", text, re.MULTILINE)


def test_links_for_coding_agents_lead_to_sources_of_the_site() -> None:
    """The site has its pages as Markdown in the folder _sources."""
    links = re.findall(r"\]\(([^)]+)\)", (DOCS / "llms.txt").read_text("utf-8"))

    assert links
    assert [link for link in links if not (DOCS / link.removeprefix("_sources/")).is_file()] == []
    assert all(link.startswith("_sources/") for link in links)


def test_the_skill_for_coding_agents_names_existing_pages_commands_and_methods() -> None:
    text = (ROOT / "skills/dali-like/SKILL.md").read_text("utf-8")
    _, head, body = text.split("---\n", 2)

    assert re.match(r"name: dali-like\ndescription: .+\n$", head)
    assert [path for path in re.findall(r"`(docs/[\w./-]+)`", body) if not (ROOT / path).exists()] == []
    commands = set(re.findall(r"dali-like (\w+)", body))
    assert commands <= {command.__name__.rpartition(".")[2] for command in cli.COMMANDS}
    assert commands
    methods = re.findall(r"`(?:ComposedDataset)?\.?(from_\w+|mix|filter|map|pack)`", body)
    assert [name for name in methods if not hasattr(ComposedDataset, name)] == []
    assert methods


def test_all_example_programs_are_in_the_gallery() -> None:
    gallery = (DOCS / "gallery.md").read_text("utf-8")
    programs = [
        path.name for path in (ROOT / "examples").glob("*.py") if 'if __name__ == "__main__":' in path.read_text("utf-8")
    ]

    assert programs
    assert [name for name in programs if f"(../examples/{name})" not in gallery] == []
