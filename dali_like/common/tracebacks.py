"""Tracebacks that show the user's frames, and not the library's. Runs in every process.

A *library frame* is one of this package, or of the standard library when this package called it, such as a frame of
`concurrent.futures`. `user_frames_first` removes these frames from exceptions that leave the library; `collapse` does so
before an exception is formatted in a worker. With ``DALI_LIKE_FULL_TRACEBACK=1`` in the environment, all frames stay.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ParamSpec, TypeVar

from dali_like.common.foreign_errors import cause_of, causes_of, is_a, traceback_of, with_traceback
from dali_like.errors import DaliLikeError

_Params = ParamSpec("_Params")
_Returned = TypeVar("_Returned")

#: The environment variable that keeps all frames.
FULL_TRACEBACK = "DALI_LIKE_FULL_TRACEBACK"

#: This package, and AutoGraph, which calls functions of pipelines with conditionals.
_HIDDEN = (__name__.partition(".")[0], "malt")


class TracebackText(Exception):
    """The cause of an exception that was raised elsewhere: its traceback there, as text.

    Attributes:
        place: the place in words, such as "a worker".
        text: the frames.
    """

    def __init__(self, place: str, text: str) -> None:
        super().__init__(place, text)
        self.place = place
        self.text = text

    def __str__(self) -> str:
        return f"in {self.place}:\n{self.text}".rstrip()


def user_frames_first(function: Callable[_Params, _Returned]) -> Callable[_Params, _Returned]:
    """Decorate a function that users call: exceptions leave it without library frames."""

    @functools.wraps(function)
    def call(*args: _Params.args, **kwargs: _Params.kwargs) -> _Returned:
        try:
            return function(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            collapse(error)
            raise  # not `raise error`, which would add this frame

    return call


def shows_all_frames() -> bool:
    """Return whether the environment asks for tracebacks with library frames."""
    return os.environ.get(FULL_TRACEBACK, "") not in ("", "0")


def collapse(error: BaseException) -> None:
    """Remove the library frames from the tracebacks of an exception, of its causes and contexts, and of its parts.

    The innermost frame always stays, except if it only raises an exception from elsewhere again, an exception of
    `dali_like.errors`, whose message suffices, or KeyboardInterrupt, whose note says which samples the program waits for.
    """
    if shows_all_frames():
        return
    pending = [error]
    seen: set[int] = set()
    while pending:
        if id(part := pending.pop()) in seen:
            continue
        seen.add(id(part))
        with_traceback(part, _collapsed(part))
        pending += causes_of(part)


def _collapsed(error: BaseException) -> TracebackType | None:
    entries = [*_entries(traceback_of(error))]
    is_hidden = [_package_of(entry) in _HIDDEN for entry in entries]
    for i in range(1, len(entries)):
        is_hidden[i] |= is_hidden[i - 1] and _package_of(entries[i]) in sys.stdlib_module_names
    is_ours = is_a(error, DaliLikeError) or is_a(error, KeyboardInterrupt)
    if entries and not is_ours and not is_a(cause_of(error), TracebackText):
        is_hidden[-1] = False
    chain: TracebackType | None = None
    for entry, hidden in zip(reversed(entries), reversed(is_hidden), strict=True):
        if not hidden:
            entry.tb_next = chain
            chain = entry
    return chain


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _package_of(entry: TracebackType) -> str:
    name = dict.get(entry.tb_frame.f_globals, "__name__")  # of a subclass of dict, if `exec` got one
    return name.partition(".")[0] if type(name) is str else ""
