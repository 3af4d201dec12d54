"""How exceptions travel from a worker to the main process.

The type is kept wherever it can be: first by pickle, which finds classes by name; then by cloudpickle, which carries
classes of ``__main__`` by value and gives the main process its own class back; then by rebuilding the object from its class,
arguments and attributes, without calling its constructor, with what cannot travel replaced by its ``repr``. The
traceback travels as text.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from typing import Any, TypeVar

import cloudpickle

from dali_like.errors import CorruptionError, WorkerError
from dali_like.workers.memory import SharedSpace
from dali_like.workers.protocol import WORD_BYTES

_Error = TypeVar("_Error", bound=Exception)


class WorkerTraceback(Exception):
    """The cause of an exception that was raised in a worker: its traceback there, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"in a worker:\n\n{self.text}"


def pack_exception(error: Exception) -> bytes:
    """An exception and its traceback as bytes."""
    text = "".join(traceback.format_exception(error))
    try:
        packed = _pack(error)
    except Exception:  # a class that cannot even be pickled by value
        packed = pickle.dumps(WorkerError(f"{type(error).__qualname__}: {error}"))
    notes = [note for note in getattr(error, "__notes__", []) if isinstance(note, str)]
    return pickle.dumps((packed, text, notes))


def unpack_exception(message: bytes) -> Exception:
    """The exception that `pack_exception` was given, with a `WorkerTraceback` as its cause."""
    try:
        packed, text, notes = pickle.loads(message)
        notes = list(map(str, notes))
    except Exception as reason:  # pickle raises whatever it stumbles over
        raise CorruptionError(f"the message about an exception in a worker cannot be read: {reason!r}") from reason
    try:
        error = _unpack(packed)
    except Exception as reason:  # a class that cannot be found or made here
        error = WorkerError(f"a worker raised an exception that cannot be made here ({reason!r}); see its traceback above")
    _set(error, "__cause__", WorkerTraceback(text))
    if notes:
        _set(error, "__notes__", notes)  # some classes leave their attributes behind when they are pickled
    return error


def add_note(error: Exception, note: str) -> None:
    """As ``error.add_note``, for exceptions too that cannot be changed, such as frozen dataclasses.

    A note of where an exception object was raised replaces the one of where it was raised before.
    """
    notes = [old for old in getattr(error, "__notes__", []) if not old.startswith("raised by external_source")]
    _set(error, "__notes__", [*notes, note])


def without_frames(error: _Error) -> _Error:
    """An error that is kept for later; the frames that it has come through would keep batches, and each other."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def announce_exceptions() -> None:
    """Make the exception classes of this program known that cannot be found by name, before a worker is forked.

    cloudpickle gives each class that it carries by value an identity, and recognises the class when it comes back. In a
    forked worker that works for those which have got theirs before the fork.
    """
    classes: list[type[BaseException]] = [Exception]
    while classes:
        kind = classes.pop()
        classes += kind.__subclasses__()
        if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
            with contextlib.suppress(Exception):  # a class that cannot be pickled comes back as a WorkerError
                cloudpickle.dumps(kind)


def _set(error: Exception, name: str, value: Any) -> None:
    object.__setattr__(error, name, value)


def read_message(space: SharedSpace, start: int, limit: int) -> bytes:
    """The message that lies at `start`, behind its length; no more than `limit` bytes of it."""
    length = min(int.from_bytes(space.map[start : start + WORD_BYTES], "little"), limit)
    return bytes(space.map[start + WORD_BYTES : start + WORD_BYTES + length])


def write_message(space: SharedSpace, start: int, limit: int, message: bytes) -> None:
    """Leave a message, or the first `limit` bytes of it, at `start`, behind its length."""
    message = message[:limit]
    space.map[start : start + WORD_BYTES] = len(message).to_bytes(WORD_BYTES, "little")
    space.map[start + WORD_BYTES : start + WORD_BYTES + len(message)] = message


def _pack(error: Exception) -> bytes:
    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            packed = dumps(error)
            if type(pickle.loads(packed)) is type(error):
                return bytes(packed)
        except Exception:  # whatever a user's class does when pickled; there is another way below
            continue
    state = {name: _portable(value) for name, value in vars(error).items()}
    return bytes(cloudpickle.dumps((type(error), tuple(map(_portable, error.args)), state)))


def _unpack(packed: bytes) -> Exception:
    loaded = pickle.loads(packed)
    if isinstance(loaded, Exception):
        return loaded
    kind, args, state = loaded
    if not issubclass(kind, Exception):
        raise TypeError(f"{kind!r} is not a class of exceptions")
    error: Exception = kind.__new__(kind, *args)
    _set(error, "args", args)
    vars(error).update(state)
    return error


def _portable(value: Any) -> Any:
    try:
        pickle.loads(cloudpickle.dumps(value))
    except Exception:  # see _pack
        return repr(value)
    return value
