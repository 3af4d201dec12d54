"""Questions to objects of the user, whose ``__getattr__`` may answer every name, or raise anything."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["is_stateful", "log_lost_state", "method_of", "next_items"]


def method_of(value: Any, name: str) -> Callable[..., Any] | None:
    """Return the method of an object, or None if the attribute is missing, cannot be read, or cannot be called.

    >>> class Attributes(dict):
    ...     __getattr__ = dict.get
    >>> method_of(Attributes(), "items") is None, method_of(Attributes(), "state_dict") is None
    (False, True)
    """
    try:
        method = getattr(value, name, None)
    except Exception:  # `__getattr__` may raise anything for a name that only this library asks for
        return None
    return method if callable(method) else None


def next_items(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    """Return the next `count` items of an iterator; fewer at its end.

    `itertools.islice` would call ``iter``, with which iterators of users begin again.
    """
    return map(next, itertools.repeat(iterator, count))


def is_stateful(value: Any) -> bool:
    """Return whether an object has both methods, ``state_dict()`` and ``load_state_dict(state)``."""
    return not isinstance(value, type) and bool(method_of(value, "state_dict") and method_of(value, "load_state_dict"))


def log_lost_state(stateful: Any, error: Exception, instead: str) -> None:
    """Log that ``state_dict()`` has raised an error, and how a loader resumes instead.

    A method with required arguments, as that of MosaicML's ``StreamingDataset``, is for another caller.
    """
    if not _wants_arguments(stateful.state_dict):
        import logging  # rarely needed, and slow to import
        import traceback

        logging.getLogger("dali_like").warning(
            "%s.state_dict() raised %s; a loader that resumes from a state %s instead",
            type(stateful).__qualname__,
            # A text: a handler may keep the record, and with the exception all that its frames refer to.
            traceback.format_exception_only(error)[-1].strip(),
            instead,
        )


def _wants_arguments(function: Callable[..., Any]) -> bool:
    import inspect  # rarely needed, and slow to import

    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # some built-in functions have no signature
        return False
    return False
