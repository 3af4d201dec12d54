"""`check_dataset` finds elements that depend on something other than their position, and shows the smallest failing run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset
from dali_like.errors import ArgumentError, ArgumentTypeError, DatasetCheckError
from dali_like.sources.composed import stream, yielding
from dali_like.sources.composed.blocks import BlockWalk
from dali_like.sources.composed.selection import SliceWalk
from dali_like.sources.composed.stage import RandomAccessWalk
from dali_like.testing import check_dataset

NUMBERS = ComposedDataset.source(range(60))


def accept(number: int) -> bool:
    return number % 3 != 0


def twice(number: int) -> list[int]:
    return [number, -number]


def failure(dataset: ComposedDataset, **options: Any) -> str:
    with pytest.raises(DatasetCheckError) as caught:
        check_dataset(dataset, start_methods=(), **options)
    return str(caught.value)


class Calls:
    """Counts its calls: the elements depend on the worker."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, element: Any) -> Any:
        self.count += 1
        return element, self.count


@pytest.mark.parametrize(
    "dataset",
    [
        NUMBERS.map(str).shuffle(),
        NUMBERS.repeat().shuffle(block=7),
        NUMBERS.take(0),
        NUMBERS.filter(accept).with_options(shards=4),
        NUMBERS.filter(accept).window(2).shuffle(block=3).repeat().with_options(shards=6),
        NUMBERS.map(lambda x, rng: {"x": rng.random(2), "y": [x]}, rng=True).flat_map(lambda x: [x] * 2).enumerate(),
    ],
    ids=["random access", "endless", "empty", "filter", "blocks", "objects"],
)
def test_correct_datasets_pass(dataset: ComposedDataset) -> None:
    check_dataset(dataset, start_methods=(), num_steps=5)


def test_random_access_that_counts_its_calls_is_found() -> None:
    assert failure(NUMBERS.map(Calls())).startswith("position 0, asked for again: [1]: expected 1, got 4")


def test_random_access_that_depends_on_the_order_is_found() -> None:
    latest = [0]

    def with_latest(element: int) -> tuple[int, bool]:
        was_next = element == latest[0] + 1 or element == 0
        latest[0] = element
        return element, was_next

    assert "in another order: [1]: expected True, got False" in failure(NUMBERS.map(with_latest))


def test_a_function_that_changes_its_input_is_found() -> None:
    arrays = [np.zeros(2) for _ in range(8)]

    def increment(array: Any) -> Any:
        array += 1
        return array

    text = f"[0]: expected {np.float64(1.0)!r}, got {np.float64(2.0)!r}"
    assert text in failure(ComposedDataset.source(arrays).map(increment))


def test_the_failing_run_is_the_smallest_and_can_be_repeated() -> None:
    text = failure(NUMBERS.filter(accept).map(Calls()).with_options(shards=1), num_ranks=(1,), num_workers=(0,), seed=3)

    assert text.startswith("position ")
    assert text.count("    Part(") == 1  # no resume is needed: an answer that is repeated is enough
    assert "batch_size=1, num_ranks=1, num_workers=0, kill_before=None" in text
    program = text.partition("run:\n\n")[2]
    assert "from dali_like.testing.rank_runs import SimulatedRank, Part, Reference, first_mismatch" in program
    printed: list[Any] = []
    names = {"dataset": NUMBERS.filter(accept).map(Calls()).with_options(shards=1), "print": printed.append}
    exec(program, names)
    assert f"position {printed[0].position}: {printed[0].text}." in text


def test_a_number_of_ranks_divides_the_logical_shards() -> None:
    with pytest.raises(ArgumentError, match="3 ranks cannot share out 4 logical shards evenly"):
        check_dataset(NUMBERS.filter(accept).with_options(shards=4), num_ranks=(1, 3))


def test_only_composed_datasets_are_checked() -> None:
    with pytest.raises(ArgumentTypeError, match=r"got a list: pass ComposedDataset.source\(it\)"):
        check_dataset([1, 2])  # type: ignore[arg-type]


def test_exceptions_of_the_dataset_are_raised_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError):
        check_dataset(NUMBERS.map(lambda x: 1 // x), start_methods=())


def test_strategies_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "dali_like.testing.strategies", raising=False)

    with pytest.raises(ImportError, match=r"needs hypothesis: pip install 'hypothesis>=6.60'"):
        import dali_like.testing.strategies  # noqa: F401


def _flat_map_forgets(self: Any) -> list[Any]:
    return [self._before, self._taken + self._to_skip + 1]


def _slice_forgets(self: Any) -> Any:
    return None if self._taken is None else [self._source.state(), max(self._taken - 1, 0)]


def _block_forgets(self: Any) -> list[Any]:
    return [self._before, self._number, 0, self._raised]


def _skip_too_far(self: Any) -> None:
    self._take()
    self._take()


def _seed_of_worker(place: Any, epoch: int, position: int) -> np.random.Generator:
    return np.random.default_rng(next(_drawn))


_drawn: Iterator[int] = iter(range(10**9))


def _walk_without_states(self: Any, epoch: int, shard: int, taken: int, states: Any) -> Any:
    return _WALK_TO(self, epoch, shard, taken, {number: state._replace(state=None) for number, state in states.items()})


# Private: replaced by one with an error
_WALK_TO: Callable[..., Any] = stream.Elements._walk_to


@pytest.mark.parametrize(
    ("dataset", "owner", "name", "fault"),
    [
        (NUMBERS.flat_map(twice), yielding.FlatMapWalk, "state", _flat_map_forgets),
        (NUMBERS.filter(accept).slice(3, 23), SliceWalk, "state", _slice_forgets),
        (NUMBERS.filter(accept).shuffle(block=4), BlockWalk, "state", _block_forgets),
        (ComposedDataset.zip(NUMBERS.filter(accept), NUMBERS), RandomAccessWalk, "skip", _skip_too_far),
        (NUMBERS.filter(accept), stream.Elements, "_walk_to", _walk_without_states),
    ],
    ids=["flat_map", "slice", "block", "skip", "states"],
)
def test_faults_of_the_library_are_found(
    monkeypatch: pytest.MonkeyPatch, dataset: ComposedDataset, owner: Any, name: str, fault: Any
) -> None:
    dataset = dataset.with_options(shards=4)
    check_dataset(dataset, start_methods=(), num_ranks=(1, 2))
    monkeypatch.setattr(owner, name, fault)

    assert "The smallest failing run" in failure(dataset, num_ranks=(1, 2))


def test_a_seed_that_depends_on_the_worker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = NUMBERS.filter(accept).map(lambda x, rng: rng.random(), rng=True)
    monkeypatch.setattr("dali_like.sources.composed.elementwise.generator_at", _seed_of_worker)

    assert "got np.float64" in failure(dataset) or "got 0." in failure(dataset)
