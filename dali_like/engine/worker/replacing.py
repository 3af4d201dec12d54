"""The reaction to a failed sample or batch, for sources and for datasets. Runs wherever these are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from dali_like.common.foreign_errors import notes_of, repr_of
from dali_like.engine.worker.task import NoMemoryError, RegionFullError

T = TypeVar("T")


def replace(
    on_error: str | Callable[[], T],
    error: Exception,
    what: str,
    cell: memoryview | list[int],
    *,
    function: str,
    others: Iterable[tuple[str, Callable[[], T]]],
) -> T:
    """Return the replacement of a failed sample or batch, and note it.

    Args:
        on_error: calls the user's function; "skip": the first of the `others` that succeeds is the replacement.
        error: why the sample or batch failed.
        what: its name.
        cell: of the worker; see `note_replacement`.
        function: name of the user's function for messages.
        others: names of possible replacements, and functions that compute them.

    Raises:
        Exception: the exception of `on_error`; or `error`, if none of the others succeeds before the source ends.
    """
    if callable(on_error):
        by = "what on_error returned"
        try:
            replacement = on_error()
        except StopIteration as stop:
            raise RuntimeError(f"{function} raised StopIteration; return a sample or raise another error") from stop
    else:
        by, replacement = _first_that_succeeds(others, error)
    note_replacement(cell, what, by, error)
    return replacement


def note_replacement(cell: memoryview | list[int], what: str, by: str, error: Exception) -> None:
    """Count and log a replacement.

    Args:
        cell: of the worker; see `dali_like.engine.worker.runner.TaskRunner`.
        what: names the failed sample or batch.
        by: names the replacement.
        error: why it failed.
    """
    import logging  # rarely needed, and slow to import

    cell[1] += 1
    notes = "".join(f"; {note}" for note in notes_of(error))
    logging.getLogger("dali_like").warning("%s is replaced by %s: %s%s", what, by, repr_of(error), notes)


def _first_that_succeeds(others: Iterable[tuple[str, Callable[[], T]]], error: Exception) -> tuple[str, T]:
    for name, make in others:
        try:
            return name, make()
        except (RegionFullError, NoMemoryError):
            raise
        except StopIteration:
            break
        except Exception:  # this one fails, too
            continue
    raise error
