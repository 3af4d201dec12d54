"""Data for the page of ``dali-like view``, from running pipelines. Runs in the process of ``dali-like view``."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dali_like.errors import NotRunningError
from dali_like.monitor.show import live
from dali_like.monitor.show.slowest_rank import slowest_rank_text

#: How often to look for pipelines that have begun: that reads all of /proc.
_SEARCH_PERIOD_S = 2.0
#: How long a program may take until its next batch.
_PICTURE_S = 5.0


class Watching:
    """Reads all published pipelines and loaders, also those that begin later.

    Args:
        pid: process id; None: all programs of this user.
        name: name of the pipelines; None: all.
    """

    def __init__(self, pid: int | None = None, name: str | None = None) -> None:
        self._filter = (pid, name)
        self._reading = threading.Lock()  # each request has a thread
        self._found: list[live.Live] = []
        self._searched_s = 0.0
        self._shown: dict[live.Live, dict[str, Any]] = {}

    def read(self) -> dict[str, Any]:
        """Return the statistics of all pipelines, and the rank that holds the job up.

        Raises:
            NotRunningError: there is no pipeline, or all have ended.
        """
        with self._reading:
            now_s = time.monotonic()
            if now_s - self._searched_s >= _SEARCH_PERIOD_S:
                self._found, self._searched_s = live.find(*self._filter), now_s
            shown: dict[live.Live, dict[str, Any]] = {}
            for each in self._found:
                with contextlib.suppress(NotRunningError):
                    shown[each] = each.read_with_memory(self._shown.get(each))
            before, self._shown = self._shown, shown
        if not shown:
            if before:
                ended = next(iter(before))
                raise NotRunningError(f"{ended.name} (process {ended.pid}) has ended")
            live.choose(*self._filter)  # raises the error for no pipeline at all
        pipelines = [{"id": f"{each.pid}-{each.fd}", **statistics} for each, statistics in shown.items()]
        return {"pipelines": pipelines, "slowest_rank": slowest_rank_text(shown.values())}

    def pictures(self, sample: int | None = None) -> dict[str, Any]:
        """Return a picture of the next batch of each pipeline shown, or the steps of one of its samples; see
        `dali_like.monitor.show.batch_pictures.request_picture`."""
        with self._reading:
            shown = list(self._shown)
        with ThreadPoolExecutor(max(len(shown), 1)) as threads:
            answers = threads.map(lambda each: each.picture(_PICTURE_S, sample), shown)
            return {f"{each.pid}-{each.fd}": answer for each, answer in zip(shown, answers, strict=True)}
