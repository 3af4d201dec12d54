"""Whether workers share batches, by the times of samples in their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from dali_like.engine.pool.sharing import Sharing, Size
from dali_like.engine.worker.neighbors import NUM_WORDS, NeighborCounts, count_neighbors, counts_of

MILLISECOND = 1_000_000
WORKERS = 4


class Counted:
    """Tasks of workers, and the decision by them."""

    def __init__(self, sharing: Sharing, *, are_single: bool = False, num_ahead: int = 2 * WORKERS) -> None:
        self._sharing = sharing
        self._words = memoryview(bytearray(8 * NUM_WORDS)).cast("q")
        self._are_single = are_single
        self._num_ahead = num_ahead

    def look_after(self, count: int, times_ms: Sequence[float], *, is_whole: bool = False) -> Size:
        """Look after some more tasks whose samples take these times."""
        for _ in range(count):
            count_neighbors(self._words, 0, [int(ms * MILLISECOND) for ms in times_ms], is_whole=is_whole)
        return self.look()

    def look(self) -> Size:
        parts, wholes = counts_of(self._words.tolist())
        self._sharing.look(parts, wholes, are_single=self._are_single, num_workers=WORKERS, num_ahead=self._num_ahead)
        return self._sharing.size


def test_a_slow_first_and_a_slow_last_sample_are_counted_apart() -> None:
    words = memoryview(bytearray(8 * NUM_WORDS)).cast("q")

    count_neighbors(words, 0, [30, 1, 1], is_whole=False)
    count_neighbors(words, 0, [1, 1, 30], is_whole=False)
    count_neighbors(words, 0, [1, 30, 1], is_whole=False)
    count_neighbors(words, 0, [7], is_whole=False)
    count_neighbors(words, 0, [9, 1], is_whole=True)

    assert counts_of(words.tolist()) == (NeighborCounts(3, 1, 1, 10, 103), NeighborCounts(1, 1, 0, 2, 10))


def test_batches_are_shared_until_enough_tasks_begin_with_a_slow_sample() -> None:
    counted = Counted(Sharing())

    assert counted.look_after(7, [30, 0, 0, 0]) is Size.USUAL
    assert counted.look_after(1, [30, 0, 0, 0]) is Size.WHOLE


@pytest.mark.parametrize(
    "times_ms",
    [
        pytest.param([10, 10, 10, 10], id="all samples slow"),
        pytest.param([0.03, 0, 0, 0], id="quick tasks"),
        pytest.param([0, 0, 0, 30], id="slow last samples"),
    ],
)
def test_other_tasks_stay_shared(times_ms: list[float]) -> None:
    counted = Counted(Sharing())

    assert {counted.look_after(20, times_ms) for _ in range(20)} == {Size.USUAL}


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("times", ["log-normal", "one of 20 100 times"])
def test_tails_are_not_taken_for_neighbors(times: str, size: int) -> None:
    random, num_trials = Random(size), 0

    for _ in range(100):
        counted = Counted(Sharing())
        for _ in range(32):
            times_ms = [
                random.lognormvariate(0, 1) if times == "log-normal" else 100 if random.random() < 0.05 else 1
                for _ in range(size)
            ]
            size_of_tasks = counted.look_after(1, times_ms)
        num_trials += size_of_tasks is Size.WHOLE

    assert num_trials <= 5


def test_a_trial_lasts_if_a_sample_takes_less_time() -> None:
    sharing = Sharing()
    counted = Counted(sharing)
    counted.look_after(8, [30, 0, 0, 0])

    assert not sharing.is_settled
    assert counted.look_after(4, [30, *[0] * 31], is_whole=True) is Size.WHOLE
    assert sharing.is_settled


def test_a_trial_that_brings_nothing_ends_and_the_next_one_comes_much_later() -> None:
    counted = Counted(Sharing())
    counted.look_after(8, [30, 0, 0, 0])  # a chunk has four samples

    assert counted.look_after(4, [30, 0, 0, 0] * 8, is_whole=True) is Size.USUAL
    assert counted.look_after(63, [30, 0, 0, 0]) is Size.USUAL
    assert counted.look_after(1, [30, 0, 0, 0]) is Size.WHOLE


def test_a_trial_ends_if_too_few_batches_are_in_flight_for_the_workers() -> None:
    counted = Counted(Sharing(), num_ahead=1)
    counted.look_after(8, [30, 0, 0, 0])

    assert counted.look_after(4, [30, *[0] * 3, 30, *[0] * 11], is_whole=True) is Size.USUAL


def test_batches_are_shared_again_when_the_order_is_another() -> None:
    counted = Counted(Sharing(is_whole=True))

    assert counted.look_after(32, [30, *[0] * 31], is_whole=True) is Size.WHOLE
    assert counted.look_after(32, [30] * 32, is_whole=True) is Size.USUAL


def test_tasks_of_single_samples_become_pairs_to_see_neighbors() -> None:
    counted = Counted(Sharing(), are_single=True)

    assert counted.look_after(8, [30]) is Size.PAIRS
    assert counted.look_after(8, [30, 0]) is Size.WHOLE
    assert counted.look_after(4, [30, *[0] * 7], is_whole=True) is Size.WHOLE


def test_pairs_without_neighbors_become_single_samples_again() -> None:
    counted = Counted(Sharing(), are_single=True)
    counted.look_after(8, [30])

    assert counted.look_after(31, [30, 30]) is Size.PAIRS
    assert counted.look_after(1, [30, 30]) is Size.USUAL
    assert counted.look_after(63, [30]) is Size.USUAL


def test_quick_single_samples_are_left_alone() -> None:
    counted = Counted(Sharing(), are_single=True)

    assert counted.look_after(100, [0.1]) is Size.USUAL
