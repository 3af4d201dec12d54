"""Progress bars of epochs, by tqdm or rich: batches per second, the share of the waiting, and the bottleneck.

The bars have no threads of their own: a loop that hangs shows no progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from dali_like.common.extras import optional
from dali_like.errors import ArgumentError
from dali_like.monitor.measure.diagnosis import Bottleneck, diagnose
from dali_like.monitor.measure.statistics import Statistics

__all__ = ["EpochBar", "checked_bar", "progress"]

_Batch = TypeVar("_Batch")

#: Time between two looks at the statistics, which take longer than the bar.
_INTERVAL_S = 0.5

#: For each library: its module, the argument that asks for it, and its extra.
_MODULES = {
    "tqdm": ("tqdm.auto", "progress=True", "progress"),
    "rich": ("rich.progress", 'progress="rich"', "top"),
}

#: Returns the statistics of each pipeline, or of a loader.
GetStatistics = Callable[[], Sequence[Statistics]]


class _Bar(Protocol):
    """A bar of a library."""

    def advance(self) -> None:
        """Count a batch."""

    def say(self, text: str) -> None:
        """Show a text beside the bar."""

    def close(self) -> None:
        """Draw the bar for the last time."""


class _TqdmBar:
    def __init__(self, total: int | None, description: str) -> None:
        tqdm = optional(*_MODULES["tqdm"]).tqdm
        # An interval of 0 disables the monitor thread of tqdm, which would redraw stalled bars.
        kind: Any = type("EpochTqdm", (tqdm,), {"monitor_interval": 0})
        self._bar = kind(total=total, unit="batch", **({"desc": description} if description else {}))

    def advance(self) -> None:
        self._bar.update()

    def say(self, text: str) -> None:
        self._bar.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        self._bar.close()


class _RichBar:
    def __init__(self, total: int | None, description: str) -> None:
        rich = optional(*_MODULES["rich"])
        columns = ("{task.description}", rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
        self._bar = rich.Progress(*columns, "{task.fields[rate]}", "{task.fields[text]}", auto_refresh=False)
        self._task = self._bar.add_task(description, total=total, rate="", text="")
        self._begin_s = time.monotonic()
        self._count = 0
        self._drawn_s = 0.0
        self._bar.start()

    def advance(self) -> None:
        self._count += 1
        now_s = time.monotonic()
        if now_s - self._drawn_s >= _INTERVAL_S / 5:
            self._draw(now_s)

    def _draw(self, now_s: float) -> None:
        self._drawn_s = now_s
        rate = f"{self._count / max(now_s - self._begin_s, 1e-9):,.1f} batches/s"
        self._bar.update(self._task, completed=self._count, rate=rate, refresh=True)

    def say(self, text: str) -> None:
        self._bar.update(self._task, text=text)

    def close(self) -> None:
        self._draw(time.monotonic())
        self._bar.stop()


_KINDS: dict[str, Callable[[int | None, str], _Bar]] = {"tqdm": _TqdmBar, "rich": _RichBar}


def checked_bar(name: str, value: Any) -> str:
    """Return the library of a bar, "" for none.

    Raises:
        ArgumentError: the value is neither a bool nor the name of such a library.
    """
    if value is True or value is False:
        return "tqdm" if value else ""
    if value not in _KINDS:
        raise ArgumentError(f'{name} must be True, False, "tqdm" or "rich", not {value!r}')
    return str(value)


class EpochBar:
    """Progress bar of each epoch, with the share of the time that the loop waits for batches, and the bottleneck.

    Args:
        statistics: returns the current statistics.
        kind: "tqdm" or "rich".
        description: text before the bar.

    Raises:
        MissingExtraError: the library is not installed.
    """

    def __init__(self, statistics: GetStatistics, kind: str, description: str = "") -> None:
        optional(*_MODULES[kind])
        self._statistics = statistics
        self._make = _KINDS[kind]
        self._description = description
        self._bar: _Bar | None = None
        self._before: Sequence[Statistics] = ()
        self._looked_s = 0.0

    def begin(self, length: Callable[[], int]) -> None:
        """Draw a bar at the first request of an epoch. No effect at later ones.

        Args:
            length: returns the number of batches in the epoch, or raises TypeError if it is unknown.
        """
        if self._bar is not None:
            return
        try:
            total = length()
        except TypeError:
            total = None
        self._before = self._statistics()
        self._looked_s = time.monotonic()
        self._bar = self._make(total, self._description)

    def advance(self) -> None:
        """Count a delivered batch."""
        bar = self._bar
        if bar is None:
            return
        if time.monotonic() - self._looked_s >= _INTERVAL_S:
            bar.say(self._text())
            self._looked_s = time.monotonic()
        bar.advance()

    def end(self) -> None:
        """Close the bar: the epoch has ended, or has been cut short."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.say(self._text())
            bar.close()

    def _text(self) -> str:
        """Return how much the loop waits since the beginning of the epoch, and the bottleneck, if it is known."""
        now = self._statistics()
        # Before the workers are started, there are no sources to compare.
        pairs = [*zip(now, self._before, strict=True)]
        has_begun = all(len(each.sources) == len(before.sources) for each, before in pairs)
        parts = [each.since(before) for each, before in pairs] if has_begun else now
        wait_s, work_s = (sum(getattr(part.loop, name).total_s for part in parts) for name in ("wait", "work"))
        slowest = max(parts, key=lambda part: part.loop.wait.total_s)
        found = diagnose(slowest)
        name = "" if found.bottleneck is Bottleneck.UNKNOWN else f" ({found.name})"
        return f"waiting {wait_s / max(wait_s + work_s, 1e-9):.0%}{name}"


def progress(batches: Any, bar: str = "tqdm", description: str = "") -> Iterator[Any]:
    """Iterate over an epoch of a pipeline or loader, and draw a bar: batches per second, waiting, and the bottleneck.

    Args:
        batches: a `Pipeline` or a `DataLoader`. The iterators of `dali_like.plugin` take ``progress=`` instead.
        bar: the library that draws: "tqdm" or "rich".
        description: a text before the bar.

    Yields:
        The batches.

    Raises:
        ArgumentError: there is no such bar, or the object has no statistics.
        MissingExtraError: the library is not installed.
    """
    if not callable(getattr(batches, "statistics", None)):
        raise ArgumentError(f"progress() is for pipelines and loaders, which have statistics(), not for {batches!r:.80}")
    shown = EpochBar(lambda: [batches.statistics()], checked_bar("bar", bar), description)
    return _with_bar(batches, shown)


def _with_bar(batches: Iterable[_Batch], bar: EpochBar) -> Iterator[_Batch]:
    try:
        bar.begin(lambda: len(batches))  # type: ignore[arg-type]  # it may raise TypeError
        for batch in batches:
            bar.advance()
            yield batch
            del batch  # while the loop waits, its memory is free for another one
    finally:
        bar.end()
