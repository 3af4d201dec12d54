"""The problems of all samples of a check."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from dali_like.cli.check.examining import Examined

#: A shape or dtype is odd if this share of the samples, or more, has another one.
_ALIKE = 0.99
#: A sample is slow if it takes so many times the median, and at least so many seconds.
_SLOW_TIMES, _SLOW_S = 10.0, 0.010
#: Samples of a problem that are kept and shown.
_MOST_KEPT, MOST_SHOWN = 1000, 5


@dataclass(frozen=True)
class Problem:
    """A problem of some samples.

    Attributes:
        kind: "error", "file", "empty", "not finite", "odd", "duplicate" or "slow".
        text: the problem.
        count: number of samples with it.
        examples: the first of them, each with further words, or "".
    """

    kind: str
    text: str
    count: int
    examples: list[tuple[int, str]]


class _ProblemGroup:
    """Samples with one problem."""

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[tuple[int, str]] = []

    def add(self, index: int, words: str = "") -> None:
        self.count += 1
        if len(self.examples) < _MOST_KEPT:
            self.examples.append((index, words))


class Findings:
    """Collects the properties of samples. It keeps an index, a digest and a duration for each sample."""

    def __init__(self) -> None:
        self.count = 0
        self._groups: defaultdict[tuple[str, str], _ProblemGroup] = defaultdict(_ProblemGroup)
        #: For each place in a sample and each property: samples by value.
        self._values: defaultdict[tuple[str, str], defaultdict[Any, _ProblemGroup]] = defaultdict(
            lambda: defaultdict(_ProblemGroup)
        )
        self._indices: list[int] = []
        self._digests: list[int | None] = []
        self._durations: list[float | None] = []

    def add(self, sample: Examined) -> None:
        """Add a sample."""
        self.count += 1
        if sample.error is not None:
            if sample.file is not None:
                self._groups["file", "cannot be read"].add(sample.index, sample.error)
            else:
                # Numbers in messages differ from sample to sample, such as lines or offsets.
                self._groups["error", re.sub(r"\d+(?![^(]*\)$)", "#", sample.error)].add(sample.index, sample.error)
            return
        self._indices.append(sample.index)
        self._digests.append(sample.digest)
        self._durations.append(sample.duration_s)
        self._values["", "items"][tuple(item.path for item in sample.items)].add(sample.index)
        index = sample.index
        for item in sample.items:
            name = f"{item.path}: " if item.path else ""
            if item.is_empty:
                self._groups["empty", f"{name}empty"].add(index)
            if not item.is_finite:
                self._groups["not finite", f"{name}NaN or infinite"].add(index)
            self._values[item.path, "dtype"][item.dtype].add(index)
            if item.shape is not None:
                self._values[item.path, "dimensions"][len(item.shape)].add(index)
                self._values[item.path, "shape"][item.shape].add(index)

    def problems(self) -> list[Problem]:
        """Return all problems, the worst kinds first."""
        found = [_problem_of(kind, text, group) for (kind, text), group in self._groups.items()]
        order = ["error", "file", "empty", "not finite"]
        found.sort(key=lambda problem: (order.index(problem.kind), -problem.count))
        return [*found, *self._odd(), *self._duplicates(), *self._slow()]

    def _odd(self) -> Iterator[Problem]:
        for (path, what), groups in self._values.items():
            usual = _usual(groups)
            others = {value: group for value, group in groups.items() if value != usual}
            if what == "shape":  # another number of dimensions is a problem of its own
                dimensions = _usual(self._values[path, "dimensions"])
                others = {shape: group for shape, group in others.items() if len(shape) == dimensions}
            total = groups[usual].count + sum(group.count for group in others.values())
            if others and groups[usual].count >= _ALIKE * total:
                rare = sorted((index, _shown(value)) for value, group in others.items() for index, _ in group.examples)
                text = f"{path}: " if path else ""
                text += f"{what} other than {_shown(usual)}"
                yield Problem("odd", text, sum(group.count for group in others.values()), rare[:_MOST_KEPT])

    def _duplicates(self) -> Iterator[Problem]:
        first: dict[int, int] = {}
        group = _ProblemGroup()
        for index, digest in sorted(zip(self._indices, self._digests, strict=True), key=itemgetter(0)):
            if digest is not None and (other := first.setdefault(digest, index)) != index:
                group.add(index, f"as {other}")
        if group.count:
            yield Problem("duplicate", "the same content as another sample", group.count, group.examples)

    def slow(self) -> list[int]:
        """Return the indices of slow samples, the slowest first."""
        known = [(s, index) for index, s in zip(self._indices, self._durations, strict=True) if s is not None]
        if not known:
            return []
        limit_s = max(_SLOW_TIMES * float(np.median([s for s, _ in known])), _SLOW_S)
        return [index for s, index in sorted(known, reverse=True) if s >= limit_s]

    def measured_again(self, sample: Examined) -> None:
        """Keep the smaller one of two durations of a sample: other programs delay any sample now and then."""
        if sample.duration_s is not None:
            place = self._indices.index(sample.index)
            self._durations[place] = min(sample.duration_s, self._durations[place] or 0.0)

    def _slow(self) -> Iterator[Problem]:
        if slow := self.slow():
            known = {index: s for index, s in zip(self._indices, self._durations, strict=True) if s is not None}
            share = sum(known[index] for index in slow) / sum(known.values())
            median_ms = float(np.median([*known.values()])) * 1e3
            text = f"slow: {share:.0%} of the time; the median is {median_ms:.3g} ms"
            yield Problem("slow", text, len(slow), [(index, f"{known[index]:.3g} s") for index in slow[:_MOST_KEPT]])


def _problem_of(kind: str, text: str, group: _ProblemGroup) -> Problem:
    """Return the problem of a group. If all its samples have the same words, these are its text."""
    if len({words for _, words in group.examples}) == 1 and (words := group.examples[0][1]):
        return Problem(kind, words, group.count, [(index, "") for index, _ in group.examples])
    return Problem(kind, text, group.count, group.examples)


def _usual(groups: Mapping[Any, _ProblemGroup]) -> Any:
    """Return the value that most samples have."""
    return max(groups, key=lambda value: groups[value].count)


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and all(isinstance(part, str) for part in value) and value:
        return ", ".join(part or "one object" for part in value)
    return str(value)
