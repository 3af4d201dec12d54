"""Batch sizes of composed datasets that change: by position, and between two batches."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from dali_like.data import ComposedDataset, DataLoader, merge_states
from dali_like.data.agreement import Agreement
from dali_like.data.batch_sizes import Steps
from dali_like.data.peer_meeting import LocalBoard
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, CheckpointError, ServerTimeoutError
from dali_like.sources.sharding import Shard
from tests.data.loader_cases import MANY_WORKERS, loader_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

KINDS = ["sharded", "random access"]


def always(number: int) -> bool:
    return True


def numbers(kind: str, count: int = 60) -> ComposedDataset:
    dataset = ComposedDataset.source(range(count))
    return dataset if kind == "random access" else dataset.filter(always).with_options(shards=12)


def endless(kind: str) -> ComposedDataset:
    return numbers(kind).repeat()


def loader(dataset: ComposedDataset, batch_size: Any, workers: int = 0, **options: Any) -> DataLoader[Any]:
    return loader_of(dataset, workers, batch_size=batch_size, collate_fn=list, **options)


def ranks_of(dataset: ComposedDataset, ranks: int, batch_size: Any, **options: Any) -> list[DataLoader[Any]]:
    return [loader(dataset, batch_size, shard_id=rank, num_shards=ranks, **options) for rank in range(ranks)]


def sizes(batches: Any, count: int) -> list[int]:
    return [len(next(batches)) for _ in range(count)]


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


def steps_of(loaders: list[DataLoader[Any]], count: int) -> list[list[int]]:
    """Return the elements of all ranks in each step, sorted."""
    running = [iter(each) for each in loaders]
    return [sorted(element for each in running for element in next(each)) for _ in range(count)]


# By position


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_has_the_size_of_the_position_where_it_begins(kind: str, workers: int) -> None:
    dataset = endless(kind)

    steps = steps_of(ranks_of(dataset, 2, [(0, 2), (10, 3), (24, 1)], workers=workers), 7)

    assert [len(step) for step in steps] == [4, 4, 4, 6, 6, 2, 2]
    assert [element for step in steps for element in step] == list(range(28))


def test_positions_count_over_epochs_if_the_length_is_known() -> None:
    each = loader(numbers("random access", 10), [(0, 2), (14, 5)])

    assert len(each) == 5
    assert [[len(batch) for batch in each] for _ in range(3)] == [[2] * 5, [2, 2, 5, 1], [5, 5]]
    assert len(each) == 2


@pytest.mark.parametrize(("rest", "expected"), [("drop", [4, 6]), ("uneven", [4, 6, 3]), ("pad", [4, 6, 6])])
def test_the_end_of_an_epoch_has_its_size(rest: str, expected: list[int]) -> None:
    loaders = ranks_of(numbers("random access", 13), 2, [(0, 2), (4, 3)], shard_rest=rest)

    lengths = [len(each) for each in loaders]
    ranks = [[len(batch) for batch in each] for each in loaders]

    assert [sum(pair) for pair in zip(*ranks, strict=True)] == expected
    assert lengths == [len(expected)] * 2


def test_last_batches_are_dropped_by_the_size_of_their_step() -> None:
    dataset = numbers("random access", 13)

    assert [len(batch) for batch in loader(dataset, [(0, 4), (8, 6)], drop_last=True)] == [4, 4]
    assert len(loader(dataset, [(0, 4), (8, 6)], drop_last=True)) == 2
    assert [len(batch) for batch in loader(dataset, [(0, 4), (8, 5)], drop_last=True)] == [4, 4, 5]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_at_its_end_leaves_a_batch_that_is_dropped(workers: int) -> None:
    each = loader(numbers("sharded", 13), 4, workers, drop_last=True)
    each.set_batch_size(5)

    assert [len(batch) for batch in each] == [5, 5]


def test_the_attribute_is_the_largest_size() -> None:
    each = loader(endless("sharded"), [(0, 2), (100, 7), (200, 3)])

    assert each.batch_size == 7
    assert each.statistics().settings.batch_size == 7
    assert each.set_batch_size(9) == 0
    assert each.batch_size == 9


@pytest.mark.parametrize(
    ("batch_size", "error", "message"),
    [
        ([], ArgumentTypeError, "pairs of a position and a size"),
        ([(0, 2, 3)], ArgumentTypeError, "pairs of a position and a size"),
        ([(5, 2)], ArgumentError, r"begin with 0 and ascend, but are \[5\]"),
        ([(0, 2), (8, 3), (8, 4)], ArgumentError, "begin with 0 and ascend"),
        ([(0, 0)], ArgumentError, "batch_size must be a positive integer"),
        ([(0, 2.5)], ArgumentTypeError, "batch_size must be a positive integer"),
    ],
    ids=str,
)
def test_wrong_sizes_by_position(batch_size: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        loader(endless("sharded"), batch_size)


def test_sizes_by_position_need_positions_that_go_on() -> None:
    with pytest.raises(ArgumentClashError, match=r"ComposedDataset.source\(dataset\)"):
        DataLoader(range(9), batch_size=[(0, 2)])
    with pytest.raises(ArgumentClashError, match="set_batch_size between batches"):
        loader(numbers("sharded"), [(0, 2), (8, 3)])
    assert sizes(iter(loader(numbers("sharded"), [(0, 7)])), 2) == [7, 7]


# Between two batches


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("workers", "ahead"), [(0, 0), (1, 2), (2, 4)])
def test_a_size_holds_from_the_first_batch_that_was_not_requested(kind: str, workers: int, ahead: int) -> None:
    each = loader(endless(kind), 4, workers)
    batches = iter(each)
    before = [next(batches) for _ in range(3)]

    position = each.set_batch_size(6)
    after = [next(batches) for _ in range(ahead + 2)]

    assert position == 4 * (3 + ahead)
    assert [len(batch) for batch in after] == [4] * ahead + [6] * 2
    assert [element for batch in before + after for element in batch] == [i % 60 for i in range(position + 12)]


def test_a_size_may_change_before_the_first_batch_and_between_epochs() -> None:
    each = loader(numbers("random access", 12), 4)
    assert each.set_batch_size(6) == 0
    assert [len(batch) for batch in each] == [6, 6]
    assert each.set_batch_size(3) == 12
    assert [len(batch) for batch in each] == [3] * 4
    assert each.set_batch_size(5) == 24
    assert [len(batch) for batch in each] == [5, 5, 2]


def test_behind_the_last_request_a_size_holds_from_the_next_epoch_on() -> None:
    each = loader(numbers("random access", 12), 6, workers=1)
    batches = iter(each)
    next(batches)

    assert each.set_batch_size(4) == 12
    assert [len(batch) for batch in batches] == [6]
    assert [len(batch) for batch in each] == [4, 4, 4]


def test_a_size_replaces_those_by_position_from_there_on() -> None:
    each = loader(endless("sharded"), [(0, 2), (10, 3), (16, 4)])
    batches = iter(each)
    assert sizes(batches, 6) == [2] * 5 + [3]
    assert each.set_batch_size(5) == 13

    assert sizes(batches, 3) == [5, 5, 5]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_resume_has_the_same_steps_on_other_ranks(kind: str, workers: int, ranks: int) -> None:
    dataset = endless(kind)
    loaders = ranks_of(dataset, 2, 3, workers=workers)
    running = [iter(each) for each in loaders]
    for _ in range(2):
        [next(each) for each in running]
    positions = {each.set_batch_size(6) for each in loaders}
    for _ in range(2):
        [next(each) for each in running]
    states = through_json([each.state_dict() for each in loaders])
    expected = [sorted(element for each in running for element in next(each)) for _ in range(6)]

    resumed = ranks_of(dataset, ranks, 1, workers=workers)
    for each in resumed:
        each.load_state_dict(states)

    assert len(positions) == 1
    assert steps_of(resumed, 6) == expected


def test_ranks_that_do_not_divide_a_step_are_an_error_with_a_way_out() -> None:
    before = loader(endless("random access"), 4)
    before.set_batch_size(8)
    state = before.state_dict()
    (after,) = [each for each in ranks_of(endless("random access"), 3, 2) if each.shard_id == 1]

    with pytest.raises(CheckpointError, match="8 positions make a batch of all ranks together, because of set_batch_size"):
        after.load_state_dict(state)
    after.load_state_dict(state, allow_change=["batch_size"])

    assert next(iter(after)) == [1, 4]


def test_a_loaded_state_replaces_the_size_that_was_set() -> None:
    each = loader(endless("random access"), 4)
    state = each.state_dict()
    each.set_batch_size(8)

    each.load_state_dict(state)

    assert sizes(iter(each), 2) == [4, 4]
    assert each.batch_size == 4


def test_a_state_before_the_position_has_the_later_size() -> None:
    each = loader(endless("sharded"), 4, workers=2)
    batches = iter(each)
    next(batches)
    each.set_batch_size(6)
    state = through_json(each.state_dict())
    resumed = loader(endless("sharded"), 4)
    resumed.load_state_dict(state)

    assert state["batch_sizes"] == [[0, 0, 4], [0, 20, 6]]
    assert sizes(iter(resumed), 6) == [4, 4, 4, 4, 6, 6]


def test_states_have_no_sizes_without_a_call() -> None:
    assert loader(endless("sharded"), [(0, 2), (9, 3)]).state_dict()["batch_sizes"] == []


def test_states_keep_sizes_as_long_as_they_count() -> None:
    each = loader(numbers("random access", 8), 2)
    for size in (1, 4, 2):
        each.set_batch_size(size)
        list(each)

    assert each.state_dict()["batch_sizes"] == [[2, 0, 2]]


def test_ranks_with_different_sizes_cannot_be_merged() -> None:
    loaders = ranks_of(endless("sharded"), 2, 4)
    loaders[1].set_batch_size(6)

    with pytest.raises(CheckpointError, match="Call set_batch_size on all ranks"):
        merge_states([each.state_dict() for each in loaders])


@pytest.mark.parametrize("value", [[[0, 4]], [[0, 4, 0]], [[0, 4, 6], [0, 4, 8]], [[0, -1, 6]], 6], ids=str)
def test_damaged_sizes_are_refused(value: Any) -> None:
    each = loader(endless("sharded"), 4)
    with pytest.raises(CheckpointError, match="batch_sizes"):
        each.load_state_dict({**each.state_dict(), "batch_sizes": value})


def test_only_loaders_of_composed_datasets_that_make_batches_have_sizes_to_set() -> None:
    assert not hasattr(DataLoader(range(4)), "set_batch_size")
    with pytest.raises(ArgumentClashError, match="pass batch_size="):
        loader(endless("sharded"), None).set_batch_size(4)
    with pytest.raises(ArgumentError, match="batch_size must be a positive integer"):
        loader(endless("sharded"), 4).set_batch_size(0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_can_be_repeated_behind_a_change(kind: str) -> None:
    each = loader(endless(kind), [(0, 2), (8, 3)])
    batches = iter(each)
    delivered = [next(batches) for _ in range(6)]
    state = each.state_dict()
    each.set_batch_size(5)
    delivered += [next(batches) for _ in range(2)]

    assert [each.batch_at(step) for step in range(8)] == delivered
    assert each.batch_at(7, state) == delivered[7]


def test_kept_workers_get_rows_for_larger_batches() -> None:
    each = loader_of(numbers("random access", 12), 1, batch_size=2, persistent_workers=True)
    list(each)
    pids = [worker.pid for worker in each._iterator._workers]
    each.set_batch_size(6)
    sizes = [len(batch) for batch in each]
    others = [worker.pid for worker in each._iterator._workers]
    each._iterator = None

    assert sizes == [6, 6]
    assert others != pids


# Arithmetic


def test_steps_are_counted_as_they_are_taken() -> None:
    steps = Steps((0, 7, 8, 30), (2, 1, 5, 3), 2)
    begins = [0]
    while begins[-1] < 80:
        begins.append(begins[-1] + 2 * steps.sizes[steps.piece(begins[-1])])

    for first, begin in enumerate(begins[:-1]):
        for number in range(first, len(begins)):
            assert steps.after(begin, number - first) == begins[number]
            assert steps.between(begin, begins[number]) == number - first
            if number > first:
                assert steps.between(begin, begins[number] - 1) == number - first


# Agreement of ranks


class Rank(Agreement):
    """One of several ranks, which share a store."""

    def __init__(self, board: LocalBoard, rank: int, ranks: int) -> None:
        super().__init__(has_others=True)
        self.board, self.rank = board, Shard(rank, ranks)
        self._name = "test"

    def _job(self) -> tuple[LocalBoard, Shard]:
        return self.board, self.rank


def answers_of(calls: list[Any]) -> list[Any]:
    """Call functions in threads, and return their results, or the errors."""
    found: list[Any] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            found[number] = calls[number]()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_ranks_agree_on_the_last_of_their_points() -> None:
    board = LocalBoard()
    ranks = [Rank(board, rank, 3) for rank in range(3)]
    points = [(0, 40), (1, 0), (0, 60)]

    for _ in range(2):
        found = answers_of(
            [
                lambda rank=rank, point=point: rank.last_point(8, point, "f")
                for rank, point in zip(ranks, points, strict=True)
            ]
        )
        assert found == [(1, 0)] * 3


def test_ranks_that_want_different_things_get_an_error_each() -> None:
    board = LocalBoard()
    found = answers_of([lambda rank=rank: Rank(board, rank, 2).last_point(8 + rank, (0, 0), "set") for rank in range(2)])

    assert [type(each) for each in found] == [ArgumentError] * 2
    assert "set: this rank wants 8, and rank 1 wants 9" in str(found[0])


def test_a_rank_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.data.agreement._TIMEOUT_S", 0.01)
    with pytest.raises(ServerTimeoutError, match="set: rank 1 did not call it"):
        Rank(LocalBoard(), 0, 2).last_point(8, (0, 0), "set")


def test_without_a_job_a_rank_decides_alone() -> None:
    agreement = Agreement(has_others=True)
    assert agreement.last_point(8, (0, 4), "set") == (0, 4)
    assert agreement.from_first("text", "set") == "text"
    assert agreement.is_first
