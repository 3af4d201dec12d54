"""Parquet files in columns: rows and positions are the same on any ranks and workers, and wherever a run resumes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from dali_like.data import ComposedDataset, DataLoader, plans
from dali_like.data.plans import PositionsPlan
from dali_like.errors import ArgumentError, SampleTypeError
from dali_like.sources.composed import row_pieces
from dali_like.testing.rank_runs import LoaderRank, Reference, first_mismatch
from tests.sources.composed.resuming import assert_resumes
from tests.sources.composed.test_any_ranks import parts_of

NUM_FILES, NUM_ROWS, NUM_SHARDS = 4, 150, 12


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("columns")
    for number in range(NUM_FILES):
        x = np.arange(NUM_ROWS) + NUM_ROWS * number
        lists = [list(range(i % 4 + 1)) for i in range(NUM_ROWS)]
        table = pa.table(
            {"x": x, "y": (x / 2).astype(np.float32), "flag": x % 2 == 0, "tokens": lists, "name": x.astype(str)}
        )
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=40)
    return f"{folder}/*.parquet"


@pytest.fixture(autouse=True)
def small_record_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("record_batches", "columnar"):
        monkeypatch.setattr(f"dali_like.sources.composed.{module}.MOST_ROWS", 16)


def columns_from(files: str, columns: list[str] | None = None) -> ComposedDataset:
    wanted = ["x", "y", "flag"] if columns is None else columns
    return ComposedDataset.from_parquet(files, columns=wanted, as_batches=True).with_options(shards=NUM_SHARDS)


def doubled(columns: dict[str, Any]) -> dict[str, Any]:
    return {**columns, "double": 2 * columns["x"]}


def sums(columns: dict[str, Any]) -> dict[str, Any]:
    """A function that is not one of single rows: it shows the bounds of the record batches."""
    return {**columns, "sum": np.full(len(columns["x"]), columns["x"].sum())}


def noisy(columns: dict[str, Any], generator: np.random.Generator) -> dict[str, Any]:
    return {**columns, "noise": generator.random(len(columns["x"]))}


def not_third(columns: dict[str, Any]) -> Any:
    return columns["x"] % 3 != 0


STAGES: dict[str, Callable[[ComposedDataset, Any], ComposedDataset]] = {
    "map": lambda dataset, number: dataset.map(doubled if number(0, 1) else sums),
    "map_rng": lambda dataset, number: dataset.map(noisy, rng=True),
    "filter": lambda dataset, number: dataset.filter(not_third),
    "shuffle": lambda dataset, number: dataset.shuffle(block=number(1, 40)),
    "repeat": lambda dataset, number: dataset.repeat(number(1, 2)),
    "slice": lambda dataset, number: dataset.slice(number(0, 30), number(40, 300)),
    "mix": lambda dataset, number: ComposedDataset.mix([dataset, dataset.filter(not_third)], [2, 1], block=number(9, 16)),
    "concat": lambda dataset, number: ComposedDataset.concat([dataset.take(100), dataset]),
}


@st.composite
def columnar_datasets(draw: st.DrawFn, files: str) -> ComposedDataset:
    dataset = columns_from(files)
    if draw(st.booleans()):
        dataset = dataset.shuffle(together=draw(st.integers(1, 3)))
    for name in draw(st.lists(st.sampled_from(sorted(STAGES)), max_size=4)):
        dataset = STAGES[name](dataset, lambda low, high: draw(st.integers(low, high)))
    if draw(st.booleans()):  # last: a filter behind it may reject the rows of a shard again and again
        dataset = dataset.repeat()
    return dataset.with_options(seed=draw(st.integers(0, 2)))


class ColumnRank(LoaderRank):
    """A rank whose loader makes batches of columns."""

    collate_fn = None

    def next_batch(self) -> list[Any]:
        batch = next(self._iterator, None)
        if batch is None:
            return []
        return [{name: column[i] for name, column in batch.items()} for i in range(len(batch["x"]))]


@hypothesis.settings(max_examples=40, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(data=st.data())
def test_simulated_ranks_deliver_the_rows_of_a_plain_iteration(files: str, data: Any) -> None:
    dataset: ComposedDataset = data.draw(columnar_datasets(files))
    parts = data.draw(parts_of(NUM_SHARDS))

    assert first_mismatch(dataset, parts, Reference(dataset)) is None


@pytest.mark.filterwarnings("ignore:(this rank has fewer logical shards|this epoch is empty):UserWarning")
@hypothesis.settings(max_examples=20, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(data=st.data())
def test_loaders_deliver_the_rows_of_a_plain_iteration(files: str, data: Any) -> None:
    """Also while batch sizes change, and workers are killed."""
    dataset: ComposedDataset = data.draw(columnar_datasets(files))
    parts = data.draw(parts_of(NUM_SHARDS, most_steps=3, most_ranks=3, most_workers=2))
    start_method = data.draw(st.sampled_from(("fork", "thread", "thread", "thread")))

    mismatch = first_mismatch(dataset, parts, Reference(dataset), partial(ColumnRank, start_method=start_method))

    assert mismatch is None


def test_an_iterator_yields_record_batches_and_resumes_within_one(files: str) -> None:
    dataset = columns_from(files).map(sums).filter(not_third)
    rows = [row["x"] for row in dataset.as_rows()]
    whole = np.concatenate([columns["x"] for columns in dataset])
    assert whole.tolist() == rows

    loader = DataLoader(dataset, batch_size=7)
    first = next(iter(loader))
    resumed = iter(dataset)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))

    assert first["x"].tolist() == rows[:7]
    assert np.concatenate([columns["x"] for columns in resumed]).tolist() == rows[7:]


def test_single_rows_resume_at_each_position(files: str) -> None:
    assert_resumes(columns_from(files, ["x", "name"]).shuffle(together=2).filter(not_third).take(60).as_rows())


def first_row_only(columns: dict[str, Any]) -> Callable[[int], Any]:
    """As `row_getter`, of the first row: a schema is learned from it."""
    return {0: {name: column[0] for name, column in columns.items()}}.__getitem__


@pytest.mark.parametrize("rows", ["whole epochs", "an uneven end"])
@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_batches_of_numbers_make_no_objects_for_rows(
    files: str, num_workers: int, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_pieces, "row_getter", first_row_only)
    dataset = columns_from(files)
    dataset = dataset.repeat(2) if rows == "whole epochs" else dataset.filter(lambda columns: columns["x"] > 250)

    batches = list(DataLoader(dataset, batch_size=24, num_workers=num_workers))

    kinds = {name: column.dtype for name, column in batches[0].items()}
    assert kinds == {"x": np.int64, "y": np.float32, "flag": np.bool_}
    assert all((batch["y"] == batch["x"] / 2).all() for batch in batches)
    found = sorted(np.concatenate([batch["x"] for batch in batches]).tolist())
    assert found == (sorted([*range(600)] * 2) if rows == "whole epochs" else [*range(251, 600)])


def test_requests_and_answers_have_the_same_size_for_any_batch_size(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[int, set[int]] = {}
    for batch_size in (480, 4800):
        seen: list[int] = []

        def packed(request: Any, seen: list[int] = seen, pack: Any = plans.pack_request) -> bytes:
            seen.append(len(pack(request)))
            return pack(request)

        def noted(
            plan: Any, answers: Any, size: int, seen: list[int] = seen, note: Any = PositionsPlan.note_answers
        ) -> bool:
            seen.append(len(pickle.dumps(answers)) if not answers[0].others else 0)
            return note(plan, answers, size)

        with monkeypatch.context() as patch:
            patch.setattr(plans, "pack_request", packed)
            patch.setattr(PositionsPlan, "note_answers", noted)
            batches = iter(DataLoader(columns_from(files).repeat(), batch_size=batch_size, num_workers=2))
            for _ in range(8):
                next(batches)
            del batches
        sizes[batch_size] = set(seen)

    assert max(sizes[4800]) < max(sizes[480]) + 1000, "a byte for each row would take 4320 more"


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_padded_ranks_repeat_rows_of_their_shards(files: str, num_ranks: int, num_workers: int) -> None:
    dataset = columns_from(files, ["x"]).filter(not_third).take(170)
    options: dict[str, Any] = {"num_shards": num_ranks, "shard_rest": "pad", "num_workers": num_workers}
    as_rows, in_columns = (
        [[batch["x"].tolist() for batch in DataLoader(each, 16, shard_id=rank, **options)] for rank in range(num_ranks)]
        for each in (dataset.as_rows(), dataset)
    )

    assert in_columns == as_rows
    assert {len(batch) for rank in in_columns for batch in rank} == {16}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_lists_of_one_length_and_texts_make_batches_as_single_rows_do(tmp_path: Path, num_workers: int) -> None:
    x = np.arange(96)
    table = pa.table({"x": x, "name": x.astype(str), "ids": [[i, i + 1, i + 2] for i in range(96)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=24)
    dataset = ComposedDataset.from_parquet(tmp_path / "a.parquet", as_batches=True).with_options(shards=4)
    as_rows, in_columns = (list(DataLoader(each, 16, num_workers=num_workers)) for each in (dataset.as_rows(), dataset))

    assert len(in_columns) == 6
    for batch, expected in zip(in_columns, as_rows, strict=True):
        assert batch["name"] == expected["name"]
        assert (batch["ids"] == expected["ids"]).all()
        assert batch["ids"].shape == (16, 3)


def test_an_exception_names_the_position_of_its_row(files: str) -> None:
    def failing(columns: dict[str, Any]) -> dict[str, Any]:
        if columns["x"][0] == 16:  # the second record batch of the first shard
            raise ValueError("sixteen")
        return columns

    batches = iter(DataLoader(columns_from(files).map(failing).repeat(), batch_size=24 * NUM_SHARDS, num_workers=1))

    with pytest.raises(ValueError, match="sixteen") as info:
        next(batches)
    assert f"position {16 * NUM_SHARDS} of epoch 0" in str(info.value.__notes__)
    assert len(next(batches)["x"]) == 24 * NUM_SHARDS


def test_functions_get_the_record_batches_of_row_groups_on_any_batch_size(files: str) -> None:
    sizes = {}
    for batch_size in (3, 50):
        batches = list(DataLoader(columns_from(files).map(sums), batch_size=batch_size))
        sizes[batch_size] = np.concatenate([batch["sum"] for batch in batches]).tolist()

    assert sizes[3] == sizes[50]


def test_packs_are_made_of_lists_in_columns(files: str) -> None:
    packs = list(columns_from(files, ["tokens"]).pack({"tokens": 8}, block=32))

    assert sum(int((pack["tokens_segment_ids"] > 0).sum()) for pack in packs) == sum(i % 4 + 1 for i in range(150)) * 4


def test_text_and_numbers_make_batches_as_single_rows_do(files: str) -> None:
    batch = next(iter(DataLoader(columns_from(files, ["x", "name"]), batch_size=5)))

    assert batch["name"] == [str(x) for x in batch["x"]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda dataset: dataset.map(lambda columns: columns["x"]), "a function has returned|has returned an ndarray"),
        (lambda dataset: dataset.map(lambda columns: {"x": columns["x"], "y": columns["y"][:1]}), "equally many rows"),
        (lambda dataset: dataset.map(lambda columns: {"x": np.sum(columns["x"])}), "should be an array|single number"),
        (lambda dataset: dataset.filter(lambda columns: True), "a boolean for each"),
    ],
)
def test_wrong_results_of_functions_are_errors(files: str, make: Any, message: str) -> None:
    with pytest.raises(SampleTypeError, match=message):
        next(iter(make(columns_from(files))))


def test_integers_with_nulls_are_an_error_and_floats_become_nan(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": [1, None], "f": [1.5, None]}), tmp_path / "a.parquet")
    source = {name: ComposedDataset.from_parquet(tmp_path / "a.parquet", columns=[name], as_batches=True) for name in "if"}

    assert np.isnan(next(iter(source["f"].with_options(shards=1)))["f"][1])
    with pytest.raises(SampleTypeError, match="column 'i' of int64 has nulls"):
        next(iter(source["i"].with_options(shards=1)))


def test_fewer_row_groups_than_shards_are_an_error_that_names_the_fitting_number(files: str) -> None:
    with pytest.raises(ArgumentError, match="Pass shards=16"):
        next(iter(ComposedDataset.from_parquet(files, as_batches=True)))
