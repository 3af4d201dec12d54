"""Iterators over samplers that are stored and resumed: indices, generators and later epochs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SamplerIterator,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    resumable,
)
from dali_like.errors import CheckpointError

LENGTH = 75

#: Makes a sampler with a generator or None.
MAKERS: dict[str, Callable[[Any], Any]] = {
    "sequential": lambda generator: SequentialSampler(range(LENGTH)),
    "permutation": lambda generator: RandomSampler(range(LENGTH), generator=generator),
    "permutations": lambda generator: RandomSampler(range(LENGTH // 3 - 5), num_samples=LENGTH, generator=generator),
    "replacement": lambda generator: RandomSampler(range(LENGTH), True, generator=generator),
    "subset": lambda generator: SubsetRandomSampler(range(100, 100 + LENGTH), generator=generator),
    "weighted": lambda generator: WeightedRandomSampler(np.arange(1.0, 9), LENGTH, generator=generator),
    "distributed": lambda generator: DistributedSampler(range(LENGTH * 2), 2, 1),
    "iterable": lambda generator: [f"key {i}" for i in range(LENGTH)],
}
BIT_GENERATORS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


def stored(state: dict[str, Any]) -> Any:
    """Return a state after a round trip through JSON."""
    return json.loads(json.dumps(state))


def passes(sampler: Any, count: int) -> list[list[Any]]:
    return [list(sampler) for _ in range(count)]


@pytest.mark.parametrize("kind", MAKERS)
@given(batches=st.integers(0, 12), batch_size=st.integers(1, 30), drop_last=st.booleans(), seed=st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_after_any_batch_all_that_follows_is_the_same(
    kind: str, batches: int, batch_size: int, drop_last: bool, seed: int
) -> None:
    sampler = BatchSampler(MAKERS[kind](seed), batch_size, drop_last)
    running = iter(sampler)
    running.take(batches)
    state = stored(running.state_dict())
    expected = list(running), passes(sampler, 2)

    elsewhere = BatchSampler(MAKERS[kind](seed + 1), batch_size, drop_last)  # the generator is restored, too
    resumed = iter(elsewhere)
    resumed.load_state_dict(state)

    assert (list(resumed), passes(elsewhere, 2)) == expected


@pytest.mark.parametrize("kind", MAKERS)
def test_a_pass_without_generator_is_resumed_too(kind: str) -> None:
    running = resumable(MAKERS[kind](None))
    running.take(40)
    state = stored(running.state_dict())

    resumed = resumable(MAKERS[kind](None))
    resumed.load_state_dict(state)

    assert list(resumed) == list(running)


@pytest.mark.parametrize("kind", ["permutation", "replacement", "subset", "weighted"])
def test_resuming_takes_nothing_from_the_global_state(kind: str) -> None:
    state = resumable(MAKERS[kind](None)).state_dict()
    np.random.seed(3)
    before = np.random.get_state()[1].tolist()

    resumed = resumable(MAKERS[kind](None))
    resumed.load_state_dict(state)
    list(resumed)

    assert np.random.get_state()[1].tolist() == before


@pytest.mark.parametrize("kind", ["permutation", "replacement", "subset", "weighted"])
def test_finishing_takes_nothing_from_the_global_state(kind: str) -> None:
    np.random.seed(3)
    before = np.random.get_state()[1].tolist()

    for sampler in (MAKERS[kind](None), BatchSampler(MAKERS[kind](None), 4, False)):
        resumable(sampler).finish()

    assert np.random.get_state()[1].tolist() == before


@pytest.mark.parametrize("kind", ["permutation", "replacement", "subset", "weighted"])
def test_a_pass_that_has_not_begun_has_a_state(kind: str) -> None:
    running = resumable(MAKERS[kind](None))
    state = stored(running.state_dict())

    resumed = resumable(MAKERS[kind](None))
    resumed.load_state_dict(state)

    assert list(resumed) == list(running)


@pytest.mark.parametrize("bits", BIT_GENERATORS)
def test_the_state_of_every_generator_of_numpy_is_numbers_and_text(bits: Callable[[int], Any]) -> None:
    running = iter(RandomSampler(range(30), True, generator=np.random.Generator(bits(1))))
    running.take(7)
    state = stored(running.state_dict())

    resumed = iter(RandomSampler(range(30), True, generator=np.random.Generator(bits(2))))
    resumed.load_state_dict(state)

    assert list(resumed) == list(running)


def test_a_state_may_be_loaded_into_a_pass_that_has_begun() -> None:
    for kind, make in MAKERS.items():
        running = resumable(make(1))
        running.take(5)
        state = running.state_dict()
        expected = running.take(9)
        running.take(20)

        running.load_state_dict(state)

        assert running.take(9) == expected, kind


def test_a_state_of_the_beginning_may_be_loaded_into_a_pass_that_has_ended() -> None:
    for kind, make in MAKERS.items():
        running = resumable(make(1))
        state = stored(running.state_dict())
        expected = list(running)

        running.load_state_dict(state)

        assert running.state_dict() == state, kind
        assert list(running) == expected, kind


def test_a_finished_pass_stays_finished() -> None:
    for kind, make in MAKERS.items():
        running = resumable(make(1))
        assert len(running.take(1000)) == LENGTH, kind
        assert next(running, None) is None

        resumed = resumable(make(1))
        resumed.load_state_dict(stored(running.state_dict()))

        assert list(resumed) == [], kind


def test_a_state_does_not_change_when_the_pass_goes_on() -> None:
    running = resumable(RandomSampler(range(70), True, generator=1))
    running.take(3)
    state = running.state_dict()
    kept = stored(state)

    running.take(60)

    assert stored(state) == kept


def test_other_batch_sizes_go_on_where_the_indices_were() -> None:
    running = iter(BatchSampler(RandomSampler(range(20), generator=1), 3, False))
    running.take(2)
    rest = iter(BatchSampler(RandomSampler(range(20), generator=2), 7, False))

    rest.load_state_dict(running.state_dict())

    assert [index for batch in rest for index in batch] == [index for batch in running for index in batch]


def test_a_state_of_one_rank_is_good_for_all() -> None:
    states = []
    for rank in (0, 1):
        sampler = DistributedSampler(range(20), 2, rank, seed=3)
        sampler.set_epoch(5)
        running = iter(sampler)
        running.take(4)
        states.append(running.state_dict())

    assert states[0] == states[1] == {"seed": 3, "epoch": 5, "total": 10, "taken": 4}


def test_a_distributed_pass_is_resumed_in_its_epoch() -> None:
    sampler = DistributedSampler(range(20), 2, 1)
    sampler.set_epoch(5)
    running = iter(sampler)
    running.take(4)

    resumed = iter(DistributedSampler(range(20), 2, 1))
    resumed.load_state_dict(running.state_dict())

    assert list(resumed) == list(running)


def test_a_seed_and_an_epoch_of_numpy_can_be_stored() -> None:
    sampler = DistributedSampler(range(20), 2, 1, seed=np.int64(3))
    sampler.set_epoch(np.int64(5))

    assert stored(iter(sampler).state_dict()) == {"seed": 3, "epoch": 5, "total": 10, "taken": 0}


# Iterators of other libraries


class Countdown(Sampler[int]):
    """A sampler with stateful iterators."""

    class LoaderIterator:
        def __init__(self, left: int) -> None:
            self.left = left

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            self.left -= 1
            return self.left

        def state_dict(self) -> dict[str, int]:
            return {"left": self.left}

        def load_state_dict(self, state_dict: dict[str, int]) -> None:
            self.left = state_dict["left"]

    def __iter__(self) -> Iterator[int]:
        return self.LoaderIterator(9)


def test_an_iterator_with_a_state_of_its_own_is_asked_for_it() -> None:
    running = resumable(Countdown())
    assert running.take(4) == [8, 7, 6, 5]
    assert running.state_dict() == {"iterator": {"left": 5}}

    resumed = resumable(Countdown())
    resumed.load_state_dict(running.state_dict())

    assert list(resumed) == [4, 3, 2, 1, 0]


class Turning(Sampler[int]):
    """A stateful sampler, which returns its own dict as the state, and continues with each iterator."""

    def __init__(self) -> None:
        self.state = {"first": 0}

    def __iter__(self) -> Iterator[int]:
        first = self.state["first"]
        self.state["first"] = (first + 1) % 5
        return iter([(first + i) % 5 for i in range(5)])

    def state_dict(self) -> dict[str, int]:
        return self.state

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.state = state_dict


def test_a_sampler_with_a_state_of_its_own_is_put_where_it_was_when_the_pass_began() -> None:
    sampler = Turning()
    list(sampler)
    running = resumable(sampler)
    assert running.take(2) == [1, 2]
    state = running.state_dict()

    resumed_sampler = Turning()
    resumed = resumable(resumed_sampler)
    for _ in range(2):  # a state is not used up
        resumed.load_state_dict(state)
        assert list(resumed) == [3, 4, 0]

    assert list(resumed_sampler) == list(sampler) == [2, 3, 4, 0, 1]


def test_any_other_iterable_is_skipped_to_where_it_was() -> None:
    def letters() -> Iterator[str]:
        yield from "abcdef"

    running = resumable(letters())
    assert next(running) == "a"
    assert running.take(2) == ["b", "c"]

    resumed = resumable(letters())
    resumed.load_state_dict(running.state_dict())

    assert list(resumed) == ["d", "e", "f"]


def test_an_iterable_with_state_dict_only_is_skipped_to_its_place() -> None:
    class Telling(list[str]):
        def state_dict(self) -> dict[str, int]:
            return {"first": 0}

    running = resumable(Telling("abc"))
    running.take(2)

    resumed = resumable(Telling("abc"))
    resumed.load_state_dict(running.state_dict())

    assert list(resumed) == ["c"]


def test_an_iterable_that_has_become_shorter_is_noticed() -> None:
    with pytest.raises(CheckpointError, match="4 items had been taken, and this sampler has only 3"):
        resumable("abc").load_state_dict({"taken": 4})


def test_passes_of_this_package_are_given_as_they_are() -> None:
    sampler = SequentialSampler("abc")

    assert type(resumable(sampler)) is type(iter(sampler))
    assert isinstance(iter(sampler), SamplerIterator)


# Invalid states


@pytest.mark.parametrize(
    "state",
    [{}, {"taken": "3"}, {"total": LENGTH, "taken": -1}, {"total": LENGTH, "taken": LENGTH + 1}, {"iterator": 3}, [], None],
)
def test_invalid_state_is_refused(state: Any) -> None:
    for make in [*MAKERS.values(), lambda generator: BatchSampler("abc", 2, False), lambda generator: Countdown()]:
        with pytest.raises(CheckpointError, match="Invalid state_dict"):
            resumable(make(1)).load_state_dict(state)


def test_a_sampler_of_indices_refuses_a_state_of_batches() -> None:
    state = iter(BatchSampler(SequentialSampler("abc"), 2, False)).state_dict()

    with pytest.raises(CheckpointError, match="the state has no 'total'"):
        iter(SequentialSampler("abc")).load_state_dict(state)


@pytest.mark.parametrize("kind", ["sequential", "permutation", "replacement", "subset", "distributed"])
def test_a_dataset_of_another_length_is_noticed(kind: str) -> None:
    state = resumable(MAKERS[kind](1)).state_dict()
    state["total"] += 1

    with pytest.raises(CheckpointError, match=f"of an epoch of {LENGTH + 1} indices, and this sampler has {LENGTH}"):
        resumable(MAKERS[kind](1)).load_state_dict(state)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("drawn", 4, "drawn should be an integer from 0 to 3, not 4"),
        ("taken", 33, "taken should be an integer from 0 to 32, not 33"),
        ("drawn", 0, "taken should be an integer from 0 to 0, not 1"),
        ("drawn", True, "drawn should be an integer from 0 to 3, not True"),
        ("generator", None, "generator should be an object, not None"),
        ("generator", {"torch": "00"}, "its generator is not a PCG64 of NumPy"),
        ("generator", {"bit_generator": "MT19937"}, "its generator is not a PCG64 of NumPy"),
    ],
)
def test_numbers_that_cannot_be(key: str, value: Any, message: str) -> None:
    sampler = RandomSampler(range(LENGTH), True, generator=1)
    running = iter(sampler)
    running.take(1)

    with pytest.raises(CheckpointError, match=message):
        iter(sampler).load_state_dict({**running.state_dict(), key: value})


def test_no_more_can_have_been_taken_than_the_last_block_has() -> None:
    sampler = RandomSampler(range(LENGTH), True, generator=1)
    running = iter(sampler)
    running.take(LENGTH)

    with pytest.raises(CheckpointError, match="taken should be an integer from 0 to 11, not 12"):
        iter(sampler).load_state_dict({**running.state_dict(), "taken": 12})
