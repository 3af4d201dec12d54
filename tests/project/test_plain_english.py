"""Docstrings, comments, messages, pages and names of tests are plain English; `tools.wordiness` has the phrases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import wordiness
from tools.wordiness import UNCLEAR, files_in

ROOT = Path(__file__).resolve().parents[2]
#: Words of questions and relative clauses. A name with one hides its subject.
QUESTION_WORDS = {"what", "whatever", "which", "whichever", "who", "whoever", "whom", "whose", "how", "why"}
#: Words for a person that stand in the place of the program, the worker or the batch.
PERSONS = {"nobody", "somebody", "someone", "anybody", "anyone"}
#: First words of names that only make sense behind the name of another test.
REFERENCES = {"and", "but", "it", "neither", "nor", "so", "they"}


def texts() -> Iterator[tuple[str, str]]:
    """Everything but this file and the tool with the examples, by its path."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files_in(ROOT / "docs")]
    folders = ("dali_like", "tests", "tools", "benchmarks", "examples")
    for path in (*pages, *(path for folder in folders for path in files_in(ROOT / folder))):
        if path not in (Path(__file__), Path(wordiness.__file__)):
            yield str(path.relative_to(ROOT)), path.read_text("utf-8")


def names_of_tests() -> Iterator[tuple[str, list[str]]]:
    """Names of test functions and test classes, each with its words in lower case. Parsing all tests would take seconds."""
    definition = re.compile(r"^ *(?:(?:async )?def (test_\w+)|class (Test\w+))", re.MULTILINE)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for function, kind in definition.findall(path.read_text("utf-8")):
            words = function.split("_") if function else [word.lower() for word in re.findall("[A-Z][a-z0-9]*", kind)]
            yield function or kind, words[1:]


def test_no_text_has_an_unclear_phrase() -> None:
    found = [f"{name}: {match[0]}" for name, text in texts() for match in UNCLEAR.finditer(" ".join(text.split()))]

    assert found == []


def test_names_of_tests_have_no_question_words_and_name_their_subject() -> None:
    found = [name for name, words in names_of_tests() if (QUESTION_WORDS | PERSONS) & {*words} or {*words[:1]} & REFERENCES]

    assert found == []


def test_a_part_above_the_limit_of_wordiness_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("The answer of whoever asks. " + "word " * 500)
    monkeypatch.setattr(wordiness, "PARTS", {"texts": [page]})

    with pytest.raises(SystemExit, match=r"texts: 1 phrases in 505 words, 1\.98 per 1,000; at most 1\.00"):
        wordiness.main(["--check"])

    page.write_text("The answer of whoever asks. " + "word " * 1500)
    wordiness.main(["--check"])


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
