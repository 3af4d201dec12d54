"""Suggestions in messages about unknown names: "did you mean num_workers?"."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from dali_like.common.tracebacks import user_frames_first
from dali_like.errors import ArgumentTypeError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def list_unknown(unknown: Iterable[str], known: Iterable[str]) -> str:
    """List unknown names for a message, each with the known name that is similar."""
    names = list(known)
    return ", ".join(with_suggestion(name, name, names) for name in unknown)


def with_suggestion(text: str, name: str, known: Iterable[str]) -> str:
    """Add to a text about an unknown name the known name that is similar, if there is one."""
    import difflib  # spawned workers import this module, and need no messages

    names = {each: each for each in known}
    lower = {each.lower(): each for each in names}
    meant = difflib.get_close_matches(name, names, 1) or difflib.get_close_matches(name.lower(), lower, 1)
    return f"{text} (did you mean {(names | lower)[meant[0]]}?)" if meant else text


def suggest_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function without ``**kwargs``: its error for an unknown argument names the known one that is similar.

    Exceptions leave it without library frames, see `dali_like.common.tracebacks`.
    """
    code = function.__code__
    names = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    @user_frames_first
    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs.keys() - names:
            owner = f"{type(args[0]).__name__}.__init__" if function.__name__ == "__init__" else function.__name__
            text = f"{owner}() got an unexpected keyword argument {name!r}"
            raise ArgumentTypeError(with_suggestion(text, name, names - {"self", "cls"}))
        return function(*args, **kwargs)

    return checked
