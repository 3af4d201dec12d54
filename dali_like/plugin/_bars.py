"""Progress bars of iterators, by tqdm: one for each epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dali_like.common.extras import optional
from dali_like.monitor.loops import LoopMeter

__all__ = ["EpochBar"]


class EpochBar:
    """Shows how far an epoch is, and which share of the time the loop waits for batches.

    Args:
        loops: measure the loop, one for each pipeline.

    Raises:
        MissingExtraError: tqdm is not installed.
    """

    def __init__(self, loops: list[LoopMeter]) -> None:
        tqdm = optional("tqdm.auto", "progress=True", "progress").tqdm
        # Its monitor is a thread for bars that stand still, which nobody has asked for.
        self._kind: Any = type("EpochTqdm", (tqdm,), {"monitor_interval": 0})
        self._loops = loops
        self._bar: Any = None
        self._wait_ns = self._work_ns = 0

    def begin(self, length: Callable[[], int]) -> None:
        """A batch is asked for: begin a bar, if there is none.

        Args:
            length: says how many batches the epoch has, or raises TypeError where that is not known.
        """
        if self._bar is not None:
            return
        try:
            total = length()
        except TypeError:
            total = None
        self._wait_ns, self._work_ns = self._times()
        self._bar = self._kind(total=total, unit="batch")

    def advance(self) -> None:
        """A batch is delivered."""
        self._bar.set_postfix_str(f"waiting {self._wait_share():.0%}", refresh=False)
        self._bar.update()

    def end(self) -> None:
        """The epoch has ended, or is broken off."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()

    def _times(self) -> tuple[int, int]:
        return sum(loop.wait.total_ns for loop in self._loops), sum(loop.work.total_ns for loop in self._loops)

    def _wait_share(self) -> float:
        wait_ns, work_ns = self._times()
        wait_ns, work_ns = wait_ns - self._wait_ns, work_ns - self._work_ns
        return wait_ns / max(wait_ns + work_ns, 1)
