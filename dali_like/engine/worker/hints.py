"""Hints for a common mistake: a callback expects another argument than it gets.

With ``batch=True``, the default as in DALI, the argument is the number of the batch; with ``batch=False`` it is a
`SampleInfo`. The exception itself only shows that an attribute or operation is missing. Runs where the callback has failed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dali_like.common.foreign_errors import add_note, is_a
from dali_like.common.suggestions import with_suggestion
from dali_like.errors import DaliLikeError
from dali_like.types import BatchInfo, SampleInfo

if TYPE_CHECKING:
    from dali_like.engine.worker.source import Source

_SAMPLE_NAMES = (*SampleInfo._fields, "rng", "empty")
_BATCH_NAMES = (*BatchInfo._fields, "rng")
#: A name in a TypeError of Python or a library, and not in the `repr` of an info.
_SAMPLE_INFO, _BATCH_INFO = (rf"\b{kind.__name__}\b(?!\()" for kind in (SampleInfo, BatchInfo))
#: An int that is unpacked or subscripted like an info.
_INT = r"'int' object is not (iterable|subscriptable)|cannot unpack non-iterable int|argument of type 'int'"
#: NumPy and PyTorch take an info for one index per dimension.
_INDICES = rf"too many indices for (array|tensor).*|but {len(SampleInfo._fields)} were indexed"


def add_hint(error: Exception, source: Source) -> None:
    """Add a note to an exception of a source if its callback has probably expected another argument."""
    if is_a(error, DaliLikeError):
        return
    try:
        hint = _hint_for_batch(error) if source.batch else _hint_for_sample(error)
    except Exception:  # from an attribute of a foreign class
        return
    if hint:
        add_note(error, f"hint: {hint}")


def _hint_for_batch(error: Exception) -> str:
    missing = _missing_attribute(error, int)
    if missing in _BATCH_NAMES:
        return (
            "the callback gets the number of the batch, an int, because batch=True is the default. Pass batch=False to "
            "fn.external_source to get a SampleInfo for each sample, or batch_info=True to get a BatchInfo"
        )
    if missing in _SAMPLE_NAMES or (isinstance(error, TypeError) and re.search(_INT, str(error))):
        return (
            "the callback gets the number of the batch, an int, because batch=True is the default. Pass batch=False to "
            "fn.external_source to get a SampleInfo for each sample"
        )
    missing = _missing_attribute(error, BatchInfo)
    if missing in _SAMPLE_NAMES:
        return (
            "the callback gets a BatchInfo, because of batch_info=True. Pass batch=False to fn.external_source to get a "
            "SampleInfo for each sample"
        )
    if missing:
        return with_suggestion(f"a BatchInfo has {', '.join(_BATCH_NAMES)}", missing, _BATCH_NAMES)
    if _is_misused(error, BatchInfo, _BATCH_INFO):
        return (
            "the callback gets a BatchInfo, because of batch_info=True. Use info.iteration, the number of the batch, or "
            "leave batch_info=True out of fn.external_source to get that number"
        )
    return ""


def _hint_for_sample(error: Exception) -> str:
    if missing := _missing_attribute(error, SampleInfo):
        return with_suggestion(f"a SampleInfo has {', '.join(_SAMPLE_NAMES)}", missing, _SAMPLE_NAMES)
    is_index = isinstance(error, IndexError) and re.search(_INDICES, str(error))
    if is_index or _is_misused(error, SampleInfo, _SAMPLE_INFO):
        return (
            "the callback gets a SampleInfo, because of batch=False. Use info.idx_in_epoch, the number of the sample in the "
            "epoch; or leave batch=False out of fn.external_source to get the number of the batch, and return a batch"
        )
    return ""


def _missing_attribute(error: Exception, kind: type) -> str:
    """Return the name of the attribute that an object of this type lacks; "" for other errors."""
    if isinstance(error, AttributeError) and type(getattr(error, "obj", None)) is kind:
        return error.name or ""
    return ""


def _is_misused(error: Exception, kind: type, name: str) -> bool:
    """Return whether an info was used as a number, a key or a part of a path."""
    if isinstance(error, TypeError):
        return re.search(name, str(error)) is not None
    if isinstance(error, KeyError):
        return any(isinstance(key, kind) for key in error.args)
    return isinstance(error, FileNotFoundError) and f"{kind.__name__}(" in str(error.filename)
