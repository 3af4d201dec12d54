"""Costs of elements by position, without reading the elements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError

mix = ComposedDataset.mix


class Unread:
    """A source that must not be read."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        raise AssertionError(f"element {index} has been read")


def unread(length: int = 40) -> ComposedDataset:
    return ComposedDataset.source(Unread(length)).map(repr)


def priced(dataset: ComposedDataset, costs: Any, count: int = 60) -> list[float]:
    at = dataset.costs_by_position(costs)
    return [at(position) for position in range(count)]


def inner(source: ComposedDataset) -> list[ComposedDataset]:
    """Return datasets over a source in which elements stay numbers."""
    return [
        source,
        source.shuffle(),
        source.shuffle(block=7).repeat(),
        source.skip(3).take(30).shuffle(seed=5),
        source.slice(1, None, 3).repeat(2),
        source.shuffle().shard(1, 2),
        source.cache("1MiB").shuffle(),
    ]


@pytest.mark.parametrize("number", range(7))
def test_costs_follow_the_order_of_the_elements(number: int) -> None:
    costs = np.arange(40) * 3.5
    elements = inner(ComposedDataset.source(range(40)))[number].map(abs).enumerate()
    dataset = inner(unread())[number].map(len).enumerate()

    assert priced(dataset, costs) == [costs[elements[position][1]] for position in range(60)]


def test_windows_and_tuples_cost_as_much_as_their_elements() -> None:
    numbers = ComposedDataset.source(range(40))
    costs = np.arange(40.0)
    windows = priced(unread().shuffle().window(3, 2), costs, 15)
    pairs = priced(ComposedDataset.zip([unread(), unread().shuffle()]), {"input 0": costs, "input 1": 100 * costs}, 40)

    assert windows == [float(sum(window)) for window in numbers.shuffle().window(3, 2)][:15]
    assert pairs == [a + 100.0 * b for a, b in ComposedDataset.zip([numbers, numbers.shuffle()])]


def test_each_source_of_a_mixture_has_its_costs() -> None:
    def build(a: ComposedDataset, b: ComposedDataset) -> ComposedDataset:
        both = ComposedDataset.concat([a.take(9), b])
        return mix([a.shuffle(), both.shuffle()], [2, 1], block=9, names=["web", "books"], stop="never")

    plain = build(ComposedDataset.source(range(40)), ComposedDataset.source(range(100, 140)))
    costs = {"web": np.arange(40.0), "books / input 0": np.arange(40.0), "books / input 1": np.arange(100.0, 140)}

    assert priced(build(unread(), unread()), costs, 100) == [float(plain[position]) for position in range(100)]


@pytest.mark.parametrize(
    ("costs", "error", "message"),
    [
        (
            np.ones(3),
            ArgumentError,
            r"an array of shape \(40,\), with a number for each element, but it has the shape \(3,\)",
        ),
        (["a"] * 40, ArgumentTypeError, "should be numbers"),
        (-np.ones(40), ArgumentError, "finite numbers from 0 on"),
        ([np.nan] * 40, ArgumentError, "finite numbers from 0 on"),
        ({"web": np.ones(40)}, ArgumentError, "there is no source 'web'; the sources are ''"),
        ({}, ArgumentError, "those of source '' are missing"),
        (None, ArgumentClashError, "has no index with the sizes of its elements"),
        ("tokens", ArgumentClashError, "has no column 'tokens'"),
    ],
    ids=str,
)
def test_wrong_costs(costs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        unread().costs_by_position(costs)


def test_several_sources_need_a_mapping() -> None:
    with pytest.raises(ArgumentTypeError, match="there are 2 of them: 'a', 'b'"):
        mix([unread(), unread()], names=["a", "b"]).costs_by_position(np.ones(40))


def test_a_column_of_a_table_is_taken() -> None:
    class Table(Unread):
        def __getitem__(self, index: Any) -> Any:
            return list(range(40)) if index == "tokens" else super().__getitem__(index)

    assert priced(ComposedDataset.source(Table(40)), "tokens", 40) == list(range(40))


def test_the_index_of_files_has_the_bytes_of_records(tmp_path: Path) -> None:
    texts = [[json.dumps("x" * (number * count)) for number in range(5)] for count in (3, 0, 7)]
    paths = []
    for number, lines in enumerate(texts):
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "empty.jsonl").write_text("")
    dataset = ComposedDataset.from_jsonl([paths[0], tmp_path / "empty.jsonl", *paths[1:]], chunk_bytes=16)
    expected = [float(len(line) + 1) for lines in texts for line in lines]

    assert priced(dataset, None, 15) == expected
    assert priced(dataset.shuffle(together=2), None, 15) == [
        len(json.dumps(text)) + 1 for text in dataset.shuffle(together=2)
    ]


def test_a_column_of_parquet_files_is_read_alone(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for number in range(2):
        rows = range(10 * number, 10 * number + 10)
        table = pa.table({"id": list(rows), "tokens": [[0] * row for row in rows], "text": ["x"] * 10})
        parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=4)
    dataset = ComposedDataset.from_parquet(tmp_path / "*.parquet", columns=["text", "id"])

    assert priced(dataset, "id", 20) == priced(dataset, "tokens", 20) == list(range(20))
    shuffled = dataset.shuffle(together=2)
    assert priced(shuffled, "tokens", 20) == [row["id"] for row in shuffled]
    with pytest.raises(ArgumentError, match="has no column 'words'"):
        dataset.costs_by_position("words")
