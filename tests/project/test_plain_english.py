"""Docstrings, comments, messages and pages avoid phrases that are not plain English; `tools.wordiness` has the list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.wordiness import UNCLEAR, files_in

ROOT = Path(__file__).resolve().parents[2]


def texts() -> Iterator[tuple[str, str]]:
    """The package and the pages, by their paths."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files_in(ROOT / "docs")]
    for path in (*files_in(ROOT / "dali_like"), *pages):
        name = str(path.relative_to(ROOT))
        yield name, path.read_text("utf-8")


def test_no_text_has_an_unclear_phrase() -> None:
    found = [f"{name}: {match[0]}" for name, text in texts() for match in UNCLEAR.finditer(" ".join(text.split()))]

    assert found == []


@pytest.mark.parametrize(
    ("text", "is_unclear"),
    [
        ("Return the next end; None if there is none.", True),
        ("a number is none", True),
        ("the file is no tar archive", True),
        ("nodes that are no operators", True),
        ("there is no tar archive", False),
        ("threads are no faster than a worker", False),
        ("if the value is None", False),
        ("Return the next end, or None.", False),
    ],
)
def test_unclear_phrases_are_found(text: str, is_unclear: bool) -> None:
    assert bool(UNCLEAR.search(text)) is is_unclear
