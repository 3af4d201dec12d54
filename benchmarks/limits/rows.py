"""The rows of the table: each with a figure, its limit, and a bound on their ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.limits import figures, starting
from benchmarks.limits.figures import Figures
from benchmarks.workloads import WORKLOADS

__all__ = ["GROUPS", "Group", "Row"]


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        name: name of the figure in the results of `Group.measure`.
        unit: unit of figure and limit.
        limit: description of the limit.
        judged: description of the figure that is judged.
        figure: computes it from the two.
        at_least, at_most: bound of that figure, if any.
    """

    name: str
    unit: str
    limit: str
    judged: str
    figure: Callable[[float, float], float]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bound(self) -> str:
        """The bound, as shown in the table."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "-" if self.at_most is None else f"<= {self.at_most:g}"

    def judge(self, figure: float) -> str:
        """Return the verdict on a figure, as shown in the table."""
        if self.bound == "-":
            return "-"
        is_reached = figure >= self.at_least if self.at_least is not None else figure <= (self.at_most or 0)
        return "yes" if is_reached else "NO"


@dataclass(frozen=True)
class Group:
    """Rows that are measured together in a separate process.

    Attributes:
        measure: given an approximate time in seconds, returns our figures and their limits by row name.
        rows: the rows.
    """

    measure: Callable[[float], Figures]
    rows: tuple[Row, ...]


def _ours(ours: float, _: float) -> float:
    return ours


def _share(ours: float, limit: float) -> float:
    return ours / limit


def _more(ours: float, limit: float) -> float:
    return ours - limit


def _throughput(name: str, share: float, of_cores: float | None = None) -> Group:
    rows = (
        Row(name, "samples/s", "bare loops, no hand-over", "share", _share, at_least=share),
        Row(figures.in_ring(name), "samples/s", "the same loops, through as much memory by turns", "share", _share),
        Row(
            figures.on_cores(name),
            "samples/s",
            "the cores, divided by the CPU time of main process and workers",
            "share",
            _share,
            at_least=of_cores,
        ),
        Row(
            figures.on_cores_by_loops(name),
            "samples/s",
            "the same, with the CPU time of the loops for that of the workers",
            "share",
            _share,
        ),
    )
    return Group(lambda seconds: figures.throughput(WORKLOADS[name], seconds), rows)


def _times(name: str, unit: str, limit: str, at_most: float) -> Row:
    return Row(name, unit, limit, "times", _share, at_most=at_most)


def _absolute(name: str, unit: str, limit: str, at_most: float) -> Row:
    return Row(name, unit, limit, f"ours, {unit}", _ours, at_most=at_most)


GROUPS: dict[str, Group] = {
    "tiny": _throughput("tiny", 0.75, of_cores=0.97),
    "image": _throughput("image", 0.90),
    "in_place": _throughput("in_place", 0.90),
    "encoded": _throughput("encoded", 0.70),
    "large": _throughput("large", 0.95),
    "main_cpu": Group(
        figures.main_cpu,
        (
            _absolute("main CPU a batch, one worker", "us", "-", 60),
            _absolute("main CPU a batch, both cores busy", "us", "-", 120),
            _times("main CPU a batch of 4,096", "us", "that of a batch of 64", 2),
            _times("main CPU a batch of images", "us", "that of a batch of as many small samples", 1.2),
        ),
    ),
    "hand_over": Group(
        figures.hand_over,
        (
            _absolute("last sample to batch in hand, median", "us", "a wake-up through a pipe", 60),
            _absolute("last sample to batch in hand, 99 %", "us", "a wake-up through a pipe", 200),
        ),
    ),
    "slow": Group(figures.slow, (_times("first batch of slow samples", "s", "their time, divided by the workers", 1.05),)),
    "straggler": Group(
        figures.straggler,
        (
            _absolute("longest wait for batches before a slow sample", "ms", "0", 2),
            _absolute("longest wait for those that the ring has room for, after it", "ms", "0", 2),
        ),
    ),
    "next_epoch": Group(figures.next_epoch, (_times("first batch of the next epoch", "ms", "any other batch", 1.1),)),
    "spawn": Group(
        starting.spawn,
        (_times("build() to the first batch, spawned", "s", "two interpreters that import numpy and cloudpickle", 1.5),),
    ),
    "large_source": Group(
        starting.large_source,
        (
            _absolute("memory for a source with 500 MB, in copies of it", "copies", "one copy", 1.1),
            Row("time for it", "s", "one copy into shared memory", "more, s", _more, at_most=1),
        ),
    ),
    "import": Group(starting.imports, (Row("import dali_like", "ms", "import numpy", "more, ms", _more, at_most=50),)),
    "slots": Group(
        figures.slots,
        (
            _times("memory of slots", "MB", "(depth + 2) batches", 1.1),
            _times("memory for a batch in somebody's hand", "MB", "a batch", 1.1),
        ),
    ),
}


def all_rows(groups: Iterable[str]) -> list[Row]:
    """Return the rows of these groups."""
    return [row for group in groups for row in GROUPS[group].rows]
