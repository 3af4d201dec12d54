"""Sharded iterables: the order of the workers, the number of the shard, and the end of each shard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_like import get_worker_info
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.base import Pool
from dali_like.engine.pool.batch import Batch, Output, result_of
from dali_like.feed.feed import SourcePlan, TurnsFeed
from dali_like.types import SampleInfo
from tests.batches import BATCH_SIZE, END, Batches, batch_of, batches_in, numbers_in, outcomes, pipeline_of
from tests.conftest import wait_until

MIB = 1 << 20
SHARDED = {"sharded": True, "parallel": True}


def identity() -> int:
    """Return the number of this worker."""
    info = get_worker_info()
    assert info is not None
    return info.id


@dataclass(frozen=True)
class Shards:
    """In worker `i`, an iterable of as many batches as the i-th of the lengths says, from number 10 i on.

    Attributes:
        lengths: by worker.
        make: makes a batch of its number.
    """

    lengths: Sequence[int]
    make: Callable[[int], Any] = batch_of

    def __iter__(self) -> Iterator[Any]:
        first = 10 * identity()
        return map(self.make, range(first, first + self.lengths[identity()]))


def merged(lengths: Sequence[int]) -> list[int]:
    """Return the numbers of an epoch: one batch of each worker in turn, without workers that have ended."""
    return [10 * i + number for number in range(max(lengths)) for i, length in enumerate(lengths) if number < length]


def pipeline_of_shards(source: Any, workers: int, way: str = "fork", **options: Any) -> Any:
    return pipeline_of((source, SHARDED), way=way, workers=workers, **options)


# Order


LENGTHS = [(3,), (2, 2), (3, 1), (1, 3), (0, 2), (2, 0), (0, 0, 0), (5, 1, 3), (1, 0, 6), (0, 0, 2, 0), (4, 4, 4, 3)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_workers_take_turns_until_they_end(lengths: Sequence[int]) -> None:
    expected = [*merged(lengths), END]

    with pipeline_of_shards(Shards(lengths), len(lengths)) as pipe:
        assert outcomes(pipe, 3 * len(expected)) == 3 * expected


def test_turns_do_not_depend_on_the_start_method(start_method: str) -> None:
    lengths = (2, 4)

    with pipeline_of_shards(Shards(lengths), 2, start_method) as pipe:
        assert outcomes(pipe, 14) == 2 * [*merged(lengths), END]


def test_turns_do_not_depend_on_the_speed_of_workers(tmp_path: Path) -> None:
    """The first two wait until the last worker is idle."""

    def make(number: int) -> NDArray[Any]:
        if number == 23:
            (tmp_path / "last").touch()
        while number in (1, 11) and not (tmp_path / "last").exists():
            time.sleep(0.001)
        return batch_of(number)

    lengths = (3, 3, 4)
    with pipeline_of_shards(Shards(lengths, make), 3, prefetch_queue_depth=9) as pipe:
        assert outcomes(pipe, 11) == [*merged(lengths), END]


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    depth=st.integers(1, 6),
    takes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
)
@settings(max_examples=15, deadline=None)
def test_any_lengths_depths_and_resets(lengths: Sequence[int], depth: int, takes: Sequence[int]) -> None:
    expected = [*merged(lengths), END]

    with pipeline_of_shards(Shards(lengths), len(lengths), prefetch_queue_depth=depth) as pipe:
        for take in takes:
            taken = min(take, len(expected))
            assert outcomes(pipe, taken) == expected[:taken]
            pipe.reset()  # after the end of an epoch, once is enough, and twice is no more
        assert outcomes(pipe, len(expected)) == expected


@pytest.mark.parametrize("depth", [1, 4, 9])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 0), (1, 1, 1)], ids=str)
def test_many_short_epochs_are_begun_ahead(lengths: Sequence[int], depth: int) -> None:
    expected = [*merged(lengths), END]

    with pipeline_of_shards(Shards(lengths), len(lengths), prefetch_queue_depth=depth) as pipe:
        assert outcomes(pipe, 10 * len(expected)) == 10 * expected


def test_quiet_cycle_gives_turns_for_ever() -> None:
    with pipeline_of((Shards((1, 3)), SHARDED | {"cycle": "quiet"})) as pipe:
        assert outcomes(pipe, 8) == [0, 10, 0, 11, 0, 12, 0, 10]


@pytest.mark.filterwarnings("ignore:.*have the same content:UserWarning")
@pytest.mark.parametrize("kind", ["no cycle", "iterator"])
def test_iterators_continue_after_a_reset_in_the_middle(kind: str) -> None:
    """With iterators, each worker has the whole."""
    source, options = (Shards((4, 4)), {"cycle": "no"}) if kind == "no cycle" else (iter(list(Batches(4))), {})
    expected = [0, 10, 1, 11, 2, 12, 3, 13] if kind == "no cycle" else [0, 0, 1, 1, 2, 2, 3, 3]

    with pipeline_of((source, SHARDED | options)) as pipe:
        seen = []
        for count in (1, 3, 2, 2):
            seen += outcomes(pipe, count)
            pipe.reset()
        assert seen == expected
        assert outcomes(pipe, 2) == [END, END]


# Numbers of shards


def test_worker_info_has_number_and_count(start_method: str) -> None:
    def source() -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for number in range(2):
            yield np.array([[info.id, info.num_workers, os.getpid(), number]])

    with pipeline_of_shards(source, 3, start_method) as pipe:
        seen = [outputs[0].at(0).tolist() for outputs in pipe]
        assert len(set(pipe.py_worker_pids)) == 3

        assert [entry[:2] + entry[3:] for entry in seen] == [[i, 3, number] for number in range(2) for i in range(3)]
        assert [entry[2] for entry in seen] == 2 * pipe.py_worker_pids


@pytest.mark.parametrize(("policy", "last"), [("drop", None), ("partial", [8]), ("fill", [8, 8, 8, 8])])
@pytest.mark.parametrize("num_outputs", [None, 1, 2])
def test_samples_become_batches_within_each_worker(num_outputs: int | None, policy: str, last: list[int] | None) -> None:
    def source() -> Iterator[Any]:
        for number in range(9 if identity() == 0 else 4):
            sample = np.full(2, 100 * identity() + number)
            yield sample if num_outputs is None else [sample] * num_outputs

    options = SHARDED | {"batch": False, "num_outputs": num_outputs, "last_batch_policy": policy}
    with pipeline_of((source, options)) as pipe:
        seen = outcomes(pipe, 5, lambda outputs: [numbers_in(output) for output in outputs])

    expected: list[Any] = [[0, 1, 2, 3], [100, 101, 102, 103], [4, 5, 6, 7]] + ([last] if last else [])
    assert seen[: len(expected) + 1] == [*([numbers] * (num_outputs or 1) for numbers in expected), END]


@pytest.mark.parametrize("sample", [np.zeros(2), 3.0, None, (np.zeros(2),), (np.zeros(2),) * 3], ids=repr)
def test_samples_must_have_their_outputs(sample: Any) -> None:
    def source() -> Iterator[Any]:
        for number in range(3 * BATCH_SIZE):
            yield sample if number == BATCH_SIZE + 1 else (np.full(2, number), np.full(2, number))

    with pipeline_of((source, SHARDED | {"batch": False, "num_outputs": 2}), workers=1) as pipe:
        seen = outcomes(pipe, 4, lambda outputs: [numbers_in(output) for output in outputs])

    assert seen == [[[0, 1, 2, 3]] * 2, "OutputCountError", [[8, 9, 10, 11]] * 2, END]


def test_single_output_must_be_in_a_tuple() -> None:
    with pipeline_of(([np.zeros(1)] * 8, SHARDED | {"batch": False, "num_outputs": 1})) as pipe:
        assert outcomes(pipe, 1) == ["OutputCountError"]


def test_worker_functions_belong_to_each_shard(tmp_path: Path) -> None:
    class Opened:
        def open(self) -> None:
            self.first = 10 * identity()

        def close(self) -> None:
            (tmp_path / f"{self.first}").touch()

        def __iter__(self) -> Iterator[Any]:
            return map(batch_of, range(self.first, self.first + 2))

    source = Opened()
    options = SHARDED | {"worker_setup": source.open, "worker_teardown": source.close}
    with pipeline_of((source, options), workers=2) as pipe:
        assert outcomes(pipe, 5) == [0, 10, 1, 11, END]

    assert {path.name for path in tmp_path.iterdir()} == {"0", "10"}


def test_all_workers_are_busy_at_once(tmp_path: Path) -> None:
    """Each waits for all others, so prefetching must have requested all."""

    def make(number: int) -> NDArray[Any]:
        (tmp_path / str(number)).touch()
        while number % 10 == 1 and len(list(tmp_path.glob("?1"))) + (tmp_path / "1").exists() < 5:
            time.sleep(0.001)
        return batch_of(number)

    lengths = (2,) * 5
    with pipeline_of_shards(Shards(lengths, make), 5, prefetch_queue_depth=1) as pipe:
        assert outcomes(pipe, 11) == [*merged(lengths), END]


def test_each_worker_is_ahead_by_the_depth_of_the_source(tmp_path: Path) -> None:
    def make(number: int) -> NDArray[Any]:
        (tmp_path / str(number)).touch()
        return batch_of(number)

    options = SHARDED | {"prefetch_queue_depth": 2}
    with pipeline_of((Shards((9, 9, 9), make), options), workers=3, prefetch_queue_depth=1) as pipe:
        pipe.run()
        wait_until(lambda: len(os.listdir(tmp_path)) == 1 + 2 * 3 + 1, "the batches ahead")


# Errors


@pytest.mark.parametrize("number", [0, 10, 11, 12])
def test_error_costs_its_batch_and_no_turn(number: int) -> None:
    def make(this: int) -> Any:
        if this == number:
            raise LookupError(f"no batch {this}")
        return batch_of(this)

    lengths = (2, 3)
    expected = [("LookupError" if this == number else this) for this in merged(lengths)]
    with pipeline_of_shards(Shards(lengths, make), 2) as pipe:
        assert outcomes(pipe, 12) == 2 * [*expected, END]


def test_error_of_a_generator_ends_its_shard() -> None:
    def source() -> Iterator[Any]:
        yield from Shards((3, 1))
        if identity() == 1:
            raise LookupError("no more")

    with pipeline_of_shards(source, 2) as pipe:
        assert outcomes(pipe, 6) == [0, 10, 1, "LookupError", 2, END]


def test_error_names_worker_and_batch() -> None:
    def make(number: int) -> Any:
        if number == 11:
            raise LookupError("no batch 11")
        return batch_of(number)

    with pipeline_of((Shards((2, 2), make), SHARDED | {"name": "shards"})) as pipe:
        outcomes(pipe, 3)
        with pytest.raises(LookupError) as caught:
            pipe.run()

    note = "".join(caught.value.__notes__)
    assert "'shards'" in note
    assert "iteration 1 in epoch 0" in note
    assert "in worker 1" in note


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (batch_of, {}, "callable"),
        (Batches(), {"parallel": False}, "parallel=True"),
        (Batches(), {"size": 3}, "size"),
        (None, {"parallel": False}, "sharded"),
    ],
    ids=["callable", "serial", "size", "no source"],
)
def test_sources_that_cannot_be_sharded_are_refused(source: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words), pipeline_of((source, SHARDED | options)):
        pass


# With other sources


def test_shorter_source_ends_the_epoch_and_nothing_is_out_of_step(start_method: str) -> None:
    def of_sample(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 3:
            raise StopIteration
        return np.array([100 * info.iteration + info.idx_in_batch])

    sources = [(Shards((3, 3)), SHARDED), (of_sample, {"batch": False}), (Batches(9), {})]
    with pipeline_of(*sources, way=start_method) as pipe:
        seen = outcomes(pipe, 8, lambda outputs: [batches_in([output]) for output in outputs])

    assert seen == 2 * [[0, 0, 0], [10, 1, 1], [1, 2, 2], END]


def test_shards_end_the_epoch_for_others() -> None:
    with pipeline_of((Shards((1, 2)), SHARDED), (iter(list(Batches(9))), {})) as pipe:
        seen = outcomes(pipe, 8, lambda outputs: [batches_in([output]) for output in outputs])

    assert seen == [[0, 0], [10, 1], [11, 2], END, [0, 3], [10, 4], [11, 5], END]


def test_several_sources_of_shards() -> None:
    with pipeline_of((Shards((2, 2)), SHARDED), (Shards((1, 3)), SHARDED), workers=2) as pipe:
        seen = outcomes(pipe, 10, lambda outputs: [batches_in([output]) for output in outputs])

    assert seen == 2 * [[0, 0], [10, 10], [1, 11], [11, 12], END]


# Room


@pytest.mark.parametrize("kind", ["anew", "once"])
def test_batches_that_need_more_room_come_once_and_in_order(kind: str) -> None:
    def make(number: int) -> list[NDArray[Any]]:
        width = MIB if number in (3, 4, 12) else 10
        return [np.full(width + i, 100 * number + i) for i in range(BATCH_SIZE)]

    lengths = (6, 6)
    options = SHARDED | {"cycle": None if kind == "anew" else "no"}
    with pipeline_of((Shards(lengths, make), options)) as pipe:
        assert outcomes(pipe, 13) == [*merged(lengths), END]


def test_want_of_memory_costs_nothing_but_an_error() -> None:
    def make(number: int) -> list[NDArray[Any]]:
        return [np.full(MIB // 8 + i, 100 * number + i) for i in range(BATCH_SIZE)]

    lengths = (10, 10)
    with pipeline_of_shards(Shards(lengths, make), 2, max_held_bytes=32 * MIB) as pipe:
        held, seen = [], []
        while len(seen) < 20:
            try:
                held.append(pipe.run())
                seen.append(batches_in(held[-1]))
            except MemoryError:
                assert held
                held.clear()

    assert seen == merged(lengths)


def test_batches_that_are_held_do_not_change() -> None:
    lengths = (9, 7)
    with pipeline_of_shards(Shards(lengths, lambda number: batch_of(number, number % 4 + 1)), 2) as pipe:
        held = list(pipe)

    assert [batches_in(outputs) for outputs in held] == merged(lengths)


# Turns: the unfinished tasks of a worker are posted again in their order


class Recorder(Pool):
    """A pool that records its requests, and computes nothing."""

    def __init__(self) -> None:
        self.asked: list[Batch] = []
        self.cancelled: list[Batch] = []

    def submit(self, key: BatchKey) -> Batch:
        self.asked.append(Batch(key))
        return self.asked[-1]

    def poll(self) -> None:
        pass

    def wait(self, batch: Batch) -> Sequence[Output]:
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        self.cancelled.append(batch)

    def close(self) -> None:
        pass


def feed_over(pool: Pool) -> TurnsFeed:
    """Return a feed of a source in two workers."""
    return TurnsFeed(SourcePlan(0, BATCH_SIZE), pool, 1, num_workers=2)


@pytest.mark.parametrize("first", [0, 3])
def test_turns_of_a_shard_stay_in_order_after_another_ends(first: int) -> None:
    """When one shard ends, the batches of the others answer its requests, too."""
    recorder = Recorder()
    feed = feed_over(recorder)
    for turn in range(6):
        feed.begin(0, first + turn, turn)

    next(batch for batch in recorder.asked if batch.key.worker == 0).outcome = StopIteration()
    feed.poll()

    of_other = [batch.key for batch in recorder.asked if batch.key.worker == 1]
    assert [key.iteration for key in of_other] == list(range(len(of_other)))
    assert [key.turn for key in of_other] == sorted(key.turn for key in of_other)


def test_batches_beyond_the_end_of_a_shard_are_cancelled() -> None:
    recorder = Recorder()
    feed = feed_over(recorder)
    for turn in range(6):
        feed.begin(0, turn, turn)
    of_first = [batch for batch in recorder.asked if batch.key.worker == 0]

    of_first[0].outcome = StopIteration()
    feed.poll()

    assert recorder.cancelled == of_first[1:]


def test_on_the_way_into_an_epoch_each_worker_has_one_batch_to_drop() -> None:
    recorder = Recorder()

    feed_over(recorder).begin(0, 100, 0)

    assert len(recorder.asked) == 3


# Checkpoints


def resumed(source: Any, checkpoint: bytes, count: int, options: dict[str, Any]) -> list[Any]:
    with pipeline_of((source, SHARDED | options), workers=3, checkpoint=checkpoint) as pipe:
        return outcomes(pipe, count)


@pytest.mark.parametrize(("cycle", "step"), [(None, 2), ("no", 5), ("quiet", 5)])
def test_checkpoint_at_every_position(cycle: str | None, step: int) -> None:
    lengths = (2, 0, 4)
    total = 2 * (len(merged(lengths)) + 1)

    with pipeline_of((Shards(lengths), SHARDED | {"cycle": cycle}), workers=3, enable_checkpointing=True) as pipe:
        checkpoints, seen = [pipe.checkpoint()], []
        for _ in range(total):
            seen += outcomes(pipe, 1)
            checkpoints.append(pipe.checkpoint())
        seen += outcomes(pipe, 4)

    for position in range(0, len(checkpoints), step):
        assert resumed(Shards(lengths), checkpoints[position], 4, {"cycle": cycle}) == seen[position : position + 4]


def test_checkpoint_where_the_end_has_been_seen_and_no_reset() -> None:
    lengths = (1, 2, 0)
    with pipeline_of_shards(Shards(lengths), 3, enable_checkpointing=True) as pipe:
        for _ in pipe:
            pass
        checkpoint = pipe.checkpoint()

    assert resumed(Shards(lengths), checkpoint, 5, {}) == [END, *merged(lengths), END]


@pytest.mark.filterwarnings("ignore:.*have the same content:UserWarning")
def test_checkpoint_far_into_an_epoch_takes_no_more_memory() -> None:
    lengths = (100, 100, 100)

    def large(number: int) -> NDArray[Any]:
        return batch_of(number % 10, width=MIB // 32)

    with pipeline_of_shards(Shards(lengths, large), 3, enable_checkpointing=True, max_held_bytes=64 * MIB) as pipe:
        outcomes(pipe, 250)
        checkpoint = pipe.checkpoint()
        expected = outcomes(pipe, 3)
    with pipeline_of((Shards(lengths, large), SHARDED), workers=3, checkpoint=checkpoint, max_held_bytes=64 * MIB) as pipe:
        assert outcomes(pipe, 3) == expected


def test_checkpoint_in_the_middle_passes_errors_over() -> None:
    def make(number: int) -> Any:
        if number in (1, 10):
            raise LookupError
        return batch_of(number)

    lengths = (3, 3, 0)
    with pipeline_of_shards(Shards(lengths, make), 3, enable_checkpointing=True) as pipe:
        seen = outcomes(pipe, 3)
        checkpoint = pipe.checkpoint()
        seen += outcomes(pipe, 4)

    assert seen == [0, "LookupError", "LookupError", 11, 2, 12, END]
    assert resumed(Shards(lengths, make), checkpoint, 4, {}) == seen[3:]
