"""What takes the place of a sample, or of a batch, that could not be made: see ``on_error`` of `Source`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from dali_like.engine.worker.coroutines import EventLoop
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.task import NoMemoryError, RegionFullError
from dali_like.types import BatchInfo, SampleInfo

#: So many indices are tried in the place of one that fails.
_MAX_SKIPPED = 1000

_log = logging.getLogger("dali_like")


def note_replacement(cell: memoryview | list[int], what: str, by: str, error: Exception) -> None:
    """Count and log that something has been replaced.

    Args:
        cell: see `dali_like.engine.worker.runner.TaskRunner`.
    """
    cell[1] += 1
    _log.warning("%s is replaced by %s: %s", what, by, repr(error))


class Replacer:
    """Puts something else in the place of what could not be made.

    Args:
        cell: see `dali_like.engine.worker.runner.TaskRunner`.
        loop: where an ``on_error`` runs that is a coroutine function.
    """

    def __init__(self, cell: memoryview, loop: EventLoop) -> None:
        self._cell = cell
        self._loop = loop

    def replace(
        self,
        info: SampleInfo | BatchInfo,
        error: Exception,
        source: Source,
        make: Callable[[Any], Any],
        put: Callable[[Any, Source], None],
    ) -> None:
        """Put what `on_error` returns in its place, or what is made of the next index that succeeds.

        Args:
            info: what could not be made.
            error: why.
            source: whose it is.
            make: makes a sample or batch of an info.
            put: writes it where the other one would have been; given also the source that its errors name.

        Raises:
            Exception: `error`, if no other can be made either; or what `on_error` raises.
        """
        index_name, index = info._fields[0], info[0]
        if callable(source.on_error):
            stand_in = source._replace(name=f"on_error of {source.name}")  # for what is wrong with its result
            put(self._call_on_error(stand_in, info, error), stand_in)
            by = "what on_error returned"
        else:
            other = _next_that_succeeds(index, lambda i: put(make(info._replace(**{index_name: i})), source), error)
            by = f"that of {index_name} {other}"
        kind = "batch" if isinstance(info, BatchInfo) else "sample"
        note_replacement(self._cell, f"{source.name}: the {kind} of {index_name} {index}", by, error)

    def _call_on_error(self, source: Source, info: SampleInfo | BatchInfo, error: Exception) -> Any:
        assert callable(source.on_error)
        try:
            return self._loop.finish(source.on_error(info, error))
        except StopIteration as stop:
            raise RuntimeError(f"{source.name} raised StopIteration; only the callback ends the epoch") from stop


def _next_that_succeeds(index: int, make: Callable[[int], None], error: Exception) -> int:
    """The first index after `index` for which `make` succeeds.

    Raises:
        Exception: `error`, if there is none.
    """
    for other in range(index + 1, index + 1 + _MAX_SKIPPED):
        try:
            make(other)
        except (RegionFullError, NoMemoryError):
            raise
        except StopIteration:
            raise error from None
        except Exception:  # that one too: on to the next
            continue
        return other
    raise error
