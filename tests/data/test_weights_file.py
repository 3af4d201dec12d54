"""Weights in a file that an operator edits while a loader runs."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dali_like.data import ComposedDataset
from dali_like.data.agreement import Agreement
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from dali_like.sources.sharding import Shard
from tests.data.loader_cases import MANY_WORKERS, loader_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)


def numbered(name: str) -> ComposedDataset:
    return ComposedDataset.source([(name, i) for i in range(900)])


def always(_: Any) -> bool:
    return True


def mixture(**options: Any) -> ComposedDataset:
    datasets = [numbered("web"), numbered("code")]
    return ComposedDataset.mix(datasets, [3, 1], **{"block": 4, "names": ["web", "code"], "stop": "never", **options})


def loader(dataset: ComposedDataset, path: Path, workers: int = 0, **options: Any) -> Any:
    return loader_of(dataset, workers, batch_size=4, collate_fn=list, weights_file=path, **options)


def write(path: Path, content: Any) -> None:
    """Replace a file, so that it differs even if it is as long and as old."""
    new = path.with_suffix(".new")
    new.write_text(content if isinstance(content, str) else json.dumps(content))
    os.replace(new, path)


def counts(batches: Any, count: int) -> list[int]:
    """Return how many elements of each batch are of "code"."""
    return [sum(name == "code" for name, _ in batch) for batch in itertools.islice(batches, count)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("dataset", [mixture(), mixture().filter(always).with_options(shards=4)], ids=["access", "shards"])
def test_weights_change_with_the_file(dataset: ComposedDataset, workers: int, tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    each = loader(dataset, path, workers)
    batches = iter(each)
    found = counts(batches, 4)
    write(path, {"web": 1, "code": 3})
    found += counts(batches, 8)
    (change,) = each.state_dict()["changes"]
    write(path, {"web": 2, "code": 2})
    found += counts(batches, 8)
    state = each.state_dict()

    assert change[3] == [1, 3]
    assert [each[3] for each in state["changes"]] == [[1, 3], [2, 2]]
    iterator = iter(dataset)
    iterator.load_state_dict({**iterator.state_dict(), "changes": state["changes"]})
    assert found == counts(iter(lambda: list(itertools.islice(iterator, 4)), []), 20)


def test_equal_weights_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    write(path, {"web": 6, "code": 2})
    each = loader(mixture(), path)
    batches = iter(each)
    counts(batches, 2)
    assert each.state_dict()["changes"] == []
    each.set_weights({"web": 1, "code": 1})
    write(path, {"web": 2, "code": 2})
    counts(batches, 2)

    resumed = loader(mixture(), path)
    resumed.load_state_dict(each.state_dict())
    counts(iter(resumed), 2)

    assert len(each.state_dict()["changes"]) == len(resumed.state_dict()["changes"]) == 1


def test_several_mixtures_have_names_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    write(path, {"second": {"web": 1, "code": 3}})
    dataset = ComposedDataset.zip([mixture(name="first"), mixture(name="second")])
    each = loader(dataset, path)
    next(iter(each))

    assert each.state_dict()["changes"] == [[[1], 0, 0, [1, 3]]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"web": 1,', "is not JSON, and the weights stay as they are until it changes"),
        pytest.param("[" * 100_000, "is not JSON", id="nested too deeply"),
        ([1, 3], "it should have a mapping"),
        ("null", "it should have a mapping, .*, not None"),
        ("", "is not JSON"),
        ({"web": 1}, "the weight of 'code' in mix.* is missing"),
        ({"web": 1, "code": 1, "books": 1}, "has no dataset 'books'"),
        ({"other": {"web": 1, "code": 1}}, "there is no such mixture"),
    ],
    ids=str,
)
def test_a_wrong_file_is_a_warning_once(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    each = loader(mixture(), path)
    batches = iter(each)
    write(path, content)
    with pytest.warns(UserWarning, match=f"weights_file .*weights.json .*{message}"):
        next(batches)
    next(batches)
    assert each.state_dict()["changes"] == []
    write(path, {"web": 1, "code": 3})
    next(batches)

    assert len(each.state_dict()["changes"]) == 1


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_a_pipe_or_a_folder_in_the_place_of_the_file_is_a_warning_once(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    each = loader(mixture(), path)
    batches = iter(each)
    make(path)
    with pytest.warns(UserWarning, match="weights.json is not a regular file, and the weights stay as they are"):
        next(batches)
    next(batches)
    with pytest.raises(ArgumentError, match="weights_file should be a regular file"):
        loader(mixture(), path)
    path.rename(tmp_path / "elsewhere")
    write(path, {"web": 1, "code": 3})
    next(batches)

    assert len(each.state_dict()["changes"]) == 1


def test_the_first_rank_reads_for_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loaders in turns, as ranks whose store is a dict: the first one is a step ahead."""
    texts: dict[str, str] = {}

    class Board:
        put = staticmethod(texts.__setitem__)
        find = staticmethod(texts.get)

    ranks = [loader(mixture(), tmp_path / f"{rank}.json", shard_id=rank, num_shards=2) for rank in range(2)]
    jobs = {id(each): (Board(), Shard(rank, 2)) for rank, each in enumerate(ranks)}
    current: list[Any] = []
    monkeypatch.setattr(Agreement, "_job", lambda self: jobs[id(current[0])])
    monkeypatch.setattr(Agreement, "_next_name", _names())
    monkeypatch.setattr(Agreement, "last_point", lambda self, wish, point, method: (0, 400))
    write(tmp_path / "1.json", {"web": 1, "code": 1})

    running = [iter(each) for each in ranks]
    for step in range(40):
        if step == 3:
            write(tmp_path / "0.json", {"web": 1, "code": 3})
        for each, batches in zip(ranks, running, strict=True):
            current[:] = [each]
            next(batches)

    assert [each.state_dict()["changes"] for each in ranks] == [[[[], 0, 400, [1, 3]]]] * 2
    assert len(texts) == 3  # at steps 0, 16 and 32


def _names() -> Any:
    numbers: dict[int, Any] = {}
    return lambda self: f"look {next(numbers.setdefault(id(self), itertools.count()))}"


@pytest.mark.parametrize(
    ("dataset", "options", "error", "message"),
    [
        (mixture(), {"path": 7}, ArgumentTypeError, "weights_file should be a path"),
        (numbered("web"), {}, ArgumentClashError, "This dataset has no mixture"),
        (mixture(stop="first"), {}, ArgumentClashError, "its length would change"),
        (
            mixture().filter(always).take(99).with_options(shards=4),
            {"shard_id": 0, "num_shards": 2, "shard_rest": "uneven"},
            ArgumentClashError,
            "equally many batches on all ranks",
        ),
    ],
    ids=str,
)
def test_wrong_arguments(dataset: Any, options: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        loader(dataset, options.pop("path", tmp_path / "weights.json"), **options)
