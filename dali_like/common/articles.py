"""Articles of words that messages insert: "an int", "a str"."""

from __future__ import annotations

from typing import Any

__all__ = ["full_kind_of", "kind_of", "with_article"]

#: Beginnings of words, in lower case, that sound otherwise than their first letter.
_CONSONANTS = ("eu", "one", "ui", "uni", "url", "us", "utf", "uu")
_VOWELS = ("hour", "http", "ndarray", "ndim")


def with_article(word: str) -> str:
    """Return a word behind its indefinite article.

    >>> with_article("int"), with_article("str"), with_article("uint8"), with_article("ndarray")
    ('an int', 'a str', 'a uint8', 'an ndarray')
    """
    begin = word.lstrip("_").lower()
    is_vowel = begin.startswith(_VOWELS) or (begin[:1] in tuple("aeiou") and not begin.startswith(_CONSONANTS))
    return f"{'an' if is_vowel else 'a'} {word}"


def kind_of(value: Any) -> str:
    """Return the class of an object behind its indefinite article.

    >>> kind_of(5), kind_of("5")
    ('an int', 'a str')
    """
    return with_article(type(value).__qualname__)


def full_kind_of(value: Any) -> str:
    """Return the class of an object with its module, behind its indefinite article.

    >>> full_kind_of(5), full_kind_of(with_article)
    ('an int', 'a function')
    """
    kind = type(value)
    return with_article(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))
