"""Exceptions on their way from a worker to the main process. The worker packs them; the main process unpacks them.

Three ways to keep the type are tried in turn. pickle finds classes by name. cloudpickle pickles classes of ``__main__`` by
value, and the main process gets its own class back. If both fail, or would change the exception, it is rebuilt without a
call of its constructor, from its class, arguments and attributes. Parts that cannot be pickled are replaced by their
``repr``. The traceback travels as text.

Messages about failures at the start of a worker lie in its message area of the shared space (`write_message`).
"""

from __future__ import annotations

import contextlib
import io
import math
import pickle
import re
import traceback
from types import MemberDescriptorType
from typing import Any, TypeVar, cast

from dali_like.common.foreign_errors import (
    drop_context,
    is_a,
    notes_of,
    repr_of,
    set_cause,
    set_notes,
    text_of,
    type_name,
    with_traceback,
)
from dali_like.common.tracebacks import TracebackText, collapse, shows_all_frames
from dali_like.engine.memory.protocol import WORD_BYTES
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import CorruptionError, WorkerError

_Error = TypeVar("_Error", bound=Exception)

#: Limits for long exceptions: characters of a text and of a traceback, and the number of notes.
_SHORT = 1000
_SHORT_TRACEBACK = 10000
_MOST_NOTES = 10
#: A limit that `pack_exception` can always keep.
SHORT_BYTES = 1 << 16

_HEADING = "Traceback (most recent call last):\n"
_SLOT = MemberDescriptorType
_ADDRESS = " at 0x[0-9a-f]+"
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class defined in Python


def pack_exception(error: Exception, most_bytes: float = math.inf) -> bytes:
    """Pack an exception and its traceback.

    Args:
        most_bytes: the limit. To keep it, long texts are shortened, and other large objects are replaced by their `repr`.
    """
    frames, summary = _texts_of(error)
    notes = notes_of(error)
    message = pickle.dumps((_packed(error), frames, summary, notes))
    if len(message) <= most_bytes:
        return message
    frames, summary = _shortened(frames, _SHORT_TRACEBACK), _shortened(summary)
    notes = [_shortened(note) for note in notes[:_MOST_NOTES]]
    message = pickle.dumps((_packed(error, _SHORT), frames, summary, notes))
    return message if len(message) <= most_bytes else pickle.dumps((_text_of(error), frames, summary, []))


def unpack_exception(message: bytes) -> Exception:
    """Unpack an exception. Its cause is a `TracebackText`, unless only library code has run.

    Raises:
        CorruptionError: the message is not from `pack_exception`.
    """
    try:
        packed, frames, summary, notes = pickle.loads(message)
        notes = list(map(str, notes))
    except Exception as reason:  # unpickling corrupted bytes may raise anything
        raise CorruptionError(f"the message about an exception in a worker cannot be read: {reason!r}") from reason
    try:
        error = _unpack(packed)
    except (Exception, SystemExit) as reason:  # the class cannot be imported or rebuilt in this process
        text = f"a worker raised an exception that cannot be made here ({repr_of(reason)}); see its traceback above"
        error = WorkerError(text)
        frames = f"{frames}{summary}"
    if frames:
        set_cause(error, TracebackText("a worker", frames))
    if notes:
        set_notes(error, notes)  # some classes lose their attributes when they are pickled
    return error


def _texts_of(error: Exception) -> tuple[str, str]:
    """Return the traceback of an exception, and those of its causes, as text; and the last lines, with its message.

    Without `FULL_TRACEBACK`, the traceback is empty if only library code has run, and has two lines for each frame.
    """
    collapse(error)
    try:
        formatted = traceback.TracebackException.from_exception(error)
        if not shows_all_frames():
            for frame in formatted.stack:
                frame.colno = None  # no line with carets
        message = "".join(formatted.format_exception_only())
        whole = "".join(formatted.format())
    except Exception:  # a property of the class, or the loader of the module's source, raises
        return "", f"{type_name(error)}: {text_of(error)}\n"
    if not whole.endswith(message):  # an ExceptionGroup, whose lines have a margin
        return f"\n{whole}", ""
    frames = whole.removesuffix(message)
    alone = frames.removeprefix(_HEADING)
    return (f"\n{frames}" if _HEADING in alone else alone), message


def without_frames(error: _Error) -> _Error:
    """Drop the traceback, cause and context of an error that is kept for later: their frames would keep batches alive."""
    set_cause(error, None)
    drop_context(error)
    return with_traceback(error, None)


def with_traceback_as_text(error: _Error, place: str) -> _Error:
    """Replace the traceback and the causes of an error that is raised later: their frames would keep batches alive."""
    frames, _ = _texts_of(error)
    drop_context(error)
    set_cause(error, TracebackText(place, frames) if frames else None)
    return with_traceback(error, None)


def _find_class(address: int, module: str, name: str, by_value: bytes) -> Any:
    """Return the class of exceptions that a worker knows by an address: in a forked worker, it is the same here."""
    classes: list[type[BaseException]] = [Exception]
    while classes:
        kind = classes.pop()
        if id(kind) == address and (kind.__module__, kind.__qualname__) == (module, name):
            return kind
        classes += kind.__subclasses__()
    return pickle.loads(by_value)


def _set(error: Exception, name: str, value: Any) -> None:
    object.__setattr__(error, name, value)


def read_message(space: SharedSpace, start: int, limit: int) -> bytes:
    """Read the message at `start`, which begins with its length; at most `limit` bytes of it."""
    length = min(int.from_bytes(space.map[start : start + WORD_BYTES], "little"), limit)
    return bytes(space.map[start + WORD_BYTES : start + WORD_BYTES + length])


def write_message(space: SharedSpace, start: int, limit: int, message: bytes) -> None:
    """Write the length of a message to `start`, then the message, or the first `limit` bytes of it."""
    message = message[:limit]
    space.map[start : start + WORD_BYTES] = len(message).to_bytes(WORD_BYTES, "little")
    space.map[start + WORD_BYTES : start + WORD_BYTES + len(message)] = message


def _packed(error: Exception, most_bytes: float = math.inf) -> bytes:
    try:
        return _pack(error, most_bytes)
    except Exception:  # the class cannot be pickled, even by value
        return _text_of(error)


def _text_of(error: Exception) -> bytes:
    """Pack the text of an exception that cannot be pickled."""
    return pickle.dumps(WorkerError(f"{type_name(error)}: {_shortened(text_of(error))}"))


def _pack(error: BaseException, most_bytes: float) -> bytes:
    for dumps in (pickle.dumps, _dumps_by_value) if most_bytes == math.inf else ():
        try:
            packed = dumps(error)
            if _is_like(pickle.loads(packed), error):
                return bytes(packed)
        except Exception:  # a user's class may raise anything; another way follows
            continue
    if isinstance(error, BaseExceptionGroup):
        args: tuple[Any, ...] = error.message, [_pack(part, most_bytes) for part in error.exceptions]
        state = vars(error)
    else:
        args, state = error.args, {**_members(error), **vars(error)}
        args = tuple(_portable(value, most_bytes) for value in args)
    state = {name: _portable(value, most_bytes) for name, value in state.items()}
    return _dumps_by_value((type(error), args, state))


def _dumps_by_value(value: Any) -> bytes:
    # Most programs need no cloudpickle.
    from dali_like.common.pickling_by_value import ByValuePickler, dumps_by_value

    class Pickler(ByValuePickler):
        def reducer_override(self, value: Any) -> Any:
            if not (issubclass(type(value), type) and issubclass(value, Exception)):
                return super().reducer_override(value)
            module, name = value.__module__, value.__qualname__
            if "<locals>" not in name and module != "__main__":
                return super().reducer_override(value)
            by_value = b""
            with contextlib.suppress(Exception):  # it cannot be pickled; a user's class may raise anything
                by_value = dumps_by_value(value)
            return _find_class, (id(value), module, name, by_value)

    with io.BytesIO() as file:
        Pickler(file).dump(value)
        return file.getvalue()


def _is_like(copy: Any, error: BaseException) -> bool:
    """Whether a copy by pickle equals the exception. pickle calls constructors with ``args``, which may have changed."""
    return type(copy) is type(error) and _shown(copy) == _shown(error)


def _shown(error: BaseException) -> str:
    return re.sub(_ADDRESS, "", repr((error.args, _members(error))))


def _members(error: BaseException) -> dict[str, Any]:
    """Return the attributes in slots, of the class or of a base class in C, such as ``OSError.filename``."""
    slots = (name for kind in type(error).__mro__ for name in vars(kind) if isinstance(vars(kind)[name], _SLOT))
    # Not `AttributeError.obj`, which may be a whole dataset; pickle leaves it out, too.
    values = ((name, getattr(error, name, None)) for name in slots if not name.startswith("__") and name != "obj")
    return {name: value for name, value in values if value is not None}


def _unpack(packed: bytes) -> Exception:
    loaded = pickle.loads(packed)
    if is_a(loaded, Exception):
        return cast(Exception, loaded)
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
        except (AttributeError, TypeError):  # the name of a property, for example
            vars(error)[name] = value
    return error


def _portable(value: Any, most_bytes: float) -> Any:
    try:
        packed = _dumps_by_value(value)
        pickle.loads(packed)
    except Exception:  # a user's class may raise anything
        return _shortened(repr_of(value))
    if len(packed) <= most_bytes:
        return value
    return _shortened(text_of(value) if is_a(value, str) else repr_of(value))


def _shortened(text: str, most: int = _SHORT) -> str:
    """Return a text, or its begin and end if it is long."""
    if len(text) <= most:
        return text
    return f"{text[: most * 3 // 4]}[... {len(text) - most} letters ...]{text[len(text) - most // 4 :]}"
