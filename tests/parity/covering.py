"""Few rows in which many values meet: covering arrays, made greedily.

Bugs seldom need more than two or three circumstances to meet. Where all combinations of many columns would take hours, rows
in which every two values of every two columns meet at least once take a minute.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Row = tuple[Any, ...]
#: Some columns with a value for each: ((column, number of the value), ...).
_Meeting = tuple[tuple[int, int], ...]
#: How many rows are looked at for the one in which most meets that has not met before.
_TRIES = 40


def covering_rows(
    columns: Mapping[str, Sequence[Any]],
    strength: int = 2,
    settle: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: row,
    besides: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Rows in which any values of any `strength` columns meet, as far as they can. The same in every run.

    Args:
        columns: the values of each; no two of a column are the same.
        strength: how many columns; at least 1.
        settle: changes a row that is impossible into one that is not, and no other. Values that it never lets meet are not
            among the rows.
        besides: rows that there are already; pairs of values in them need not occur again.
    """
    array = _Array(columns, settle)
    missing = dict.fromkeys(array.meetings(strength))
    for row in besides:
        for meeting in _meetings_of(array.numbers(row), strength):
            missing.pop(meeting, None)
    rows = []
    while missing:
        wanted = next(iter(missing))
        candidates = [row for row in array.rows_with(wanted) if wanted in _meetings_of(row, strength)]
        if not candidates:
            del missing[wanted]
            continue
        best = max(candidates, key=lambda row: sum(meeting in missing for meeting in _meetings_of(row, strength)))
        for meeting in _meetings_of(best, strength):
            missing.pop(meeting, None)
        rows.append(array.values(best))
    return rows


class _Array:
    """Rows as the numbers of their values."""

    def __init__(self, columns: Mapping[str, Sequence[Any]], settle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._names = list(columns)
        self._columns = list(columns.values())
        self._settle = settle
        self._random = random.Random(1)

    def meetings(self, strength: int) -> Iterator[_Meeting]:
        for chosen in itertools.combinations(range(len(self._columns)), strength):
            for numbers in itertools.product(*(range(len(self._columns[column])) for column in chosen)):
                yield tuple(zip(chosen, numbers, strict=True))

    def rows_with(self, wanted: _Meeting) -> Iterator[Row]:
        """Some possible rows, most of them with these values."""
        for _ in range(_TRIES):
            row = [self._random.randrange(len(column)) for column in self._columns]
            for column, number in wanted:
                row[column] = number
            yield self.numbers(self._settle(self.values(tuple(row))))

    def values(self, row: Row) -> dict[str, Any]:
        return {name: column[number] for name, column, number in zip(self._names, self._columns, row, strict=True)}

    def numbers(self, values: Mapping[str, Any]) -> Row:
        return tuple(column.index(values[name]) for name, column in zip(self._names, self._columns, strict=True))


def rows_with_few_of(
    name: str, columns: Mapping[str, Sequence[Any]], strength: int, settle: Callable[[dict[str, Any]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Covering rows; no more than needed have the later values of one column, the expensive ones."""
    rows: list[dict[str, Any]] = []
    for count in range(1, 1 + len(columns[name])):
        rows += covering_rows({**columns, name: columns[name][:count]}, strength, settle, rows)
    return rows


def _meetings_of(row: Row, strength: int) -> Iterator[_Meeting]:
    return itertools.combinations(enumerate(row), strength)


def combinations(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows in which every two values meet; with ``PARITY=full`` in the environment, all combinations."""
    if os.environ.get("PARITY") == "full":
        return [dict(zip(columns, row, strict=True)) for row in itertools.product(*columns.values())]
    return covering_rows(columns)
