"""Covering arrays: each possible pair of values occurs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.parity.covering import covering_rows, rows_with_few_of

COLUMNS = {"colour": ["red", "green", "blue"], "size": [1, 2, 3, 4], "loud": [False, True], "name": [None, "a"]}


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_any_values_of_so_many_columns_meet(strength: int) -> None:
    rows = covering_rows(COLUMNS, strength)

    for names in itertools.combinations(COLUMNS, strength):
        met = {tuple(row[name] for name in names) for row in rows}
        assert met == set(itertools.product(*(COLUMNS[name] for name in names)))


def test_few_rows_are_enough() -> None:
    assert len(covering_rows(COLUMNS, 2)) <= 16 < 3 * 4 * 2 * 2


def test_impossible_pairs_are_left_out_and_all_others_occur() -> None:
    def settle(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "loud": False} if row["colour"] == "blue" else row

    rows = covering_rows(COLUMNS, 2, settle)

    met = {(row["colour"], row["loud"]) for row in rows}
    assert met == {("red", False), ("red", True), ("green", False), ("green", True), ("blue", False)}
    assert {(row["colour"], row["size"]) for row in rows} == set(itertools.product(COLUMNS["colour"], COLUMNS["size"]))


def test_dear_values_are_in_no_more_rows_than_needed() -> None:
    rows = rows_with_few_of("loud", COLUMNS, 2, lambda row: row)

    met = {(row["colour"], row["size"], row["loud"]) for row in rows}
    assert {(colour, size) for colour, size, _ in met} == set(itertools.product(COLUMNS["colour"], COLUMNS["size"]))
    assert {(size, loud) for _, size, loud in met} == set(itertools.product(COLUMNS["size"], COLUMNS["loud"]))
    assert sum(row["loud"] for row in rows) == len(COLUMNS["size"])


def test_rows_are_the_same_in_every_run() -> None:
    assert covering_rows(COLUMNS, 2) == covering_rows(COLUMNS, 2)
