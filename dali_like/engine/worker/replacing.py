"""Replaces samples and batches whose callback fails, as ``on_error`` of `Source` says. Runs wherever sources are called."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from dali_like.engine.worker.coroutines import EventLoop
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.task import NoMemoryError, RegionFullError
from dali_like.types import BatchInfo, SampleInfo

#: With ``on_error="skip"``, at most this many following indices are tried.
_MAX_SKIPPED = 1000

_log = logging.getLogger("dali_like")


def note_replacement(cell: memoryview | list[int], what: str, by: str, error: Exception) -> None:
    """Count and log a replacement.

    Args:
        cell: of the worker; see `dali_like.engine.worker.runner.TaskRunner`.
        what: names the failed sample or batch.
        by: names the replacement.
        error: why it failed.
    """
    cell[1] += 1
    _log.warning("%s is replaced by %s: %s", what, by, repr(error))


class Replacer:
    """Replaces failed samples and batches.

    Args:
        cell: of the worker; see `dali_like.engine.worker.runner.TaskRunner`.
        loop: runs ``on_error`` if it is a coroutine function.
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
        """Replace a failed sample or batch: by the result of `on_error`, or by that of the next index that succeeds.

        Args:
            info: of the failed sample or batch.
            error: why it failed.
            source: the source that it belongs to.
            make: computes the sample or batch of an info.
            put: writes a sample or batch to that place. Its errors name the source that it is given.

        Raises:
            Exception: the exception of `on_error`; or `error`, if all indices fail that are tried.
        """
        index_name, index = info._fields[0], info[0]
        if callable(source.on_error):
            stand_in = source._replace(name=f"on_error of {source.name}")  # errors in its result name on_error
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
    """Return the first index after `index` for which `make` succeeds.

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
        except Exception:  # this index fails, too
            continue
        return other
    raise error
