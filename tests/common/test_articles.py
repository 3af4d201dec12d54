"""Articles of words that messages insert."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dali_like
from dali_like.common.articles import kind_of, with_article

_PACKAGE = Path(dali_like.__file__).parent
_ARTICLE = re.compile(r"(?<![-\w])[Aa]n? $")

#: Expressions behind an article whose words are known, and begin with a consonant: "sample", "batch", "pipeline".
#: The number of dimensions is in a message of DALI.
_FIXED = {"what", "source.unit", "other", "now.form", "before.form", "data.ndim", "kind.__name__"}


def _values_behind_articles(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            for before, value in itertools.pairwise(node.values):
                words = str(before.value) if isinstance(before, ast.Constant) else ""
                if _ARTICLE.search(words) and isinstance(value, ast.FormattedValue):
                    yield ast.unparse(value.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            if _ARTICLE.search(node.left.value):
                yield ast.unparse(node.right)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"(?<![-\w])[Aa]n? (\{\w*\}|%[sr])", node.value)


@pytest.mark.parametrize("text", ['f"a {x}"', '"it is an " + x', '"not a {}".format(x)', 'f"one" f" a {x}"', '"a %s" % x'])
def test_values_behind_articles_are_found(text: str) -> None:
    assert list(_values_behind_articles(text))


def test_messages_leave_the_article_of_a_value_to_a_function() -> None:
    found = {
        f"{path.relative_to(_PACKAGE)}: {value}"
        for path in _PACKAGE.rglob("*.py")
        for value in _values_behind_articles(path.read_text())
        if value not in _FIXED
    }

    assert not found, "use with_article() or kind_of()"


@pytest.mark.parametrize(
    "word",
    [
        "an int",
        "a str",
        "an OrderedDict",
        "a uint8",
        "a Union",
        "an unsigned",
        "a UserDict",
        "an ndarray",
        "a numpy.ndarray",
    ],
)
def test_a_word_gets_the_article_of_its_sound(word: str) -> None:
    assert with_article(word.partition(" ")[2]) == word


def test_a_private_class_gets_the_article_of_its_first_letter() -> None:
    class _Item: ...

    assert kind_of(_Item()).startswith("a ")
    assert with_article("_Item") == "an _Item"
