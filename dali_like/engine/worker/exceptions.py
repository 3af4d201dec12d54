"""How exceptions travel from a worker to the main process.

The type is kept wherever it can be: first by pickle, which finds classes by name; then by cloudpickle, which carries
classes of ``__main__`` by value and gives the main process its own class back; then, or where these would make another one
of it, by rebuilding the object from its class, arguments and attributes, without calling its constructor, with what cannot
travel replaced by its ``repr``. The traceback travels as text.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import re
import traceback
from types import MemberDescriptorType
from typing import Any, TypeVar

import cloudpickle

from dali_like.engine.memory.protocol import WORD_BYTES
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import CorruptionError, WorkerError

_Error = TypeVar("_Error", bound=Exception)

#: So many letters are left of texts in what would be too long, of tracebacks, and so many notes.
_SHORT = 1000
_SHORT_TRACEBACK = 10000
_MOST_NOTES = 10
#: `pack_exception` always keeps to that, if it is told to.
SHORT_BYTES = 1 << 16

_SLOT = MemberDescriptorType
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class of Python


class WorkerTraceback(Exception):
    """The cause of an exception that was raised in a worker: its traceback there, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"in a worker:\n\n{self.text}"


def pack_exception(error: Exception, most_bytes: float = math.inf) -> bytes:
    """An exception and its traceback as bytes.

    Args:
        most_bytes: where they would be more, long texts are shortened, and other large objects are replaced by their `repr`.
    """
    text = "".join(traceback.format_exception(error))
    notes = [note for note in getattr(error, "__notes__", []) if isinstance(note, str)]
    message = pickle.dumps((_packed(error), text, notes))
    if len(message) <= most_bytes:
        return message
    text, notes = _shortened(text, _SHORT_TRACEBACK), [_shortened(note) for note in notes[:_MOST_NOTES]]
    message = pickle.dumps((_packed(error, _SHORT), text, notes))
    return message if len(message) <= most_bytes else pickle.dumps((_told(error), text, []))


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


def _packed(error: Exception, most_bytes: float = math.inf) -> bytes:
    try:
        return _pack(error, most_bytes)
    except Exception:  # a class that cannot even be pickled by value
        return _told(error)


def _told(error: Exception) -> bytes:
    """What is left of an exception that cannot travel."""
    try:
        text = str(error)
    except Exception:  # a user's class
        text = "<exception str() failed>"
    return pickle.dumps(WorkerError(f"{type(error).__qualname__}: {_shortened(text)}"))


def _pack(error: BaseException, most_bytes: float) -> bytes:
    for dumps in (pickle.dumps, cloudpickle.dumps) if most_bytes == math.inf else ():
        try:
            packed = dumps(error)
            if _is_like(pickle.loads(packed), error):
                return bytes(packed)
        except Exception:  # whatever a user's class does when pickled; there is another way below
            continue
    if isinstance(error, BaseExceptionGroup):
        args: tuple[Any, ...] = error.message, [_pack(part, most_bytes) for part in error.exceptions]
        state = vars(error)
    else:
        args, state = error.args, {**_members(error), **vars(error)}
        args = tuple(_portable(value, most_bytes) for value in args)
    state = {name: _portable(value, most_bytes) for name, value in state.items()}
    return bytes(cloudpickle.dumps((type(error), args, state)))


def _is_like(copy: Any, error: BaseException) -> bool:
    """Whether pickle has made the same again: it hands constructors the arguments, which may have been others before."""
    return type(copy) is type(error) and _shown(copy) == _shown(error)


def _shown(error: BaseException) -> str:
    return _ADDRESS.sub("", repr((error.args, _members(error))))


def _members(error: BaseException) -> dict[str, Any]:
    """What an exception keeps in slots, of its own or of a class in C: ``OSError.filename``, say."""
    slots = (name for kind in type(error).__mro__ for name in vars(kind) if isinstance(vars(kind)[name], _SLOT))
    # The object that lacks an attribute may be a whole dataset; pickle leaves it behind, too.
    values = ((name, getattr(error, name, None)) for name in slots if not name.startswith("__") and name != "obj")
    return {name: value for name, value in values if value is not None}


def _unpack(packed: bytes) -> Exception:
    loaded = pickle.loads(packed)
    if isinstance(loaded, Exception):
        return loaded
    kind, args, state = loaded
    if not issubclass(kind, Exception):
        raise TypeError(f"{kind!r} is not a class of exceptions")
    if issubclass(kind, BaseExceptionGroup):
        args = args[0], list(map(_unpack, args[1]))
    basis = next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)
    error: Exception = basis.__new__(kind, *args)
    _set(error, "args", args)
    for name, value in state.items():
        try:
            _set(error, name, value)
        except (AttributeError, TypeError):  # a property has that name, say
            vars(error)[name] = value
    return error


def _portable(value: Any, most_bytes: float) -> Any:
    try:
        packed = cloudpickle.dumps(value)
        pickle.loads(packed)
    except Exception:  # see _pack
        return _shortened(repr(value))
    if len(packed) <= most_bytes:
        return value
    return _shortened(value if isinstance(value, str) else repr(value))


def _shortened(text: str, most: int = _SHORT) -> str:
    """A text, or its beginning and its end."""
    if len(text) <= most:
        return text
    return f"{text[: most * 3 // 4]}[... {len(text) - most} letters ...]{text[len(text) - most // 4 :]}"
