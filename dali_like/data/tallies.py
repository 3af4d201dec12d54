"""What has happened in a loader, whoever has worked for it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class LoaderStatistics:
    """What has happened in a loader, in all its epochs.

    Attributes:
        worker_restarts: how often a worker that had died was replaced.
        replaced_samples: how many samples were replaced, or left out, as ``on_error`` says; those included that have been
            made, and not been delivered.
    """

    worker_restarts: int
    replaced_samples: int


class Counting(Protocol):
    """Workers that count."""

    @property
    def counts(self) -> tuple[int, int]:
        """Restarts and replaced samples; none once they have been added to the tally."""


class Tally:
    """The counts of a loader: of workers that have ended, by sum; of those that have not, by asking them."""

    def __init__(self) -> None:
        self._restarts = 0
        self._replaced = 0
        self._counting: weakref.WeakSet[Counting] = weakref.WeakSet()

    def watch(self, workers: Counting) -> None:
        """Ask these, too, until they have been dropped."""
        self._counting.add(workers)

    def add(self, restarts: int, replaced: int) -> None:
        """Take note of counts for good. Finalizers may call this."""
        self._restarts += restarts
        self._replaced += replaced

    def total(self) -> LoaderStatistics:
        """All counts so far."""
        counts = [(self._restarts, self._replaced), *(workers.counts for workers in self._counting)]
        restarts, replaced = map(sum, zip(*counts, strict=True))
        return LoaderStatistics(restarts, replaced)
