"""Iterators over pipelines, beside DALI's for PyTorch: the same programs, the same batches, the same ends, the same errors.

Undone or wrong things of DALI come at the end: there, tests show its behavior, and say why ours differs.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like.errors import ArgumentError, RaggedError

from .conftest import OURS, Library
from .iterators import PROGRAMS, copied, iterator_of, numbers, outcome, plugin_of, rest, source

POLICIES = ("FILL", "DROP", "PARTIAL")
BATCH_SIZES = (3, 4)
SIZES = (1, 8, 10, 12)
EITHER = (False, True)


# The same programs


def assert_same(dali: Library, name: str, *sources: Callable[[Any], Any], **case: Any) -> None:
    """A program gives the same with either library."""
    theirs, ours = (outcome(library, PROGRAMS[name], *sources, **case) for library in (dali, OURS))
    assert ours == theirs, case


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_endless_stream_in_epochs_of_a_size(name: str, policy: str, dali: Library) -> None:
    for size, batch_size, padded, auto, prepare in itertools.product(SIZES, BATCH_SIZES, EITHER, EITHER, EITHER):
        if policy == "DROP" and size < batch_size:
            continue  # nothing is left of an epoch; see test_errors
        assert_same(
            dali,
            name,
            source(None),
            size=size + 16 * (name == "broken_loops"),  # whose loops are to come to no end
            batch_sizes=[batch_size],
            policy=policy,
            last_batch_padded=padded,
            auto_reset=auto,
            prepare_first_batch=prepare,
        )


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_epochs_that_the_source_ends(name: str, policy: str, dali: Library) -> None:
    for length, batch_size, auto, prepare in itertools.product((40, 43), (1, 4, 5), EITHER, EITHER):
        assert_same(
            dali,
            name,
            source(length),
            batch_sizes=[batch_size],
            policy=policy,
            auto_reset=auto,
            prepare_first_batch=prepare,
        )


@pytest.mark.parametrize("name", ["for_loops", "next_and_reset"])
@pytest.mark.parametrize("policy", POLICIES)
def test_epochs_of_a_size_and_of_the_source(name: str, policy: str, dali: Library) -> None:
    # Lengths and sizes with which DALI gets on; see test_source_that_is_shorter_than_the_size for others.
    numbers = ((12, 12), (12, 11), (12, 10), (12, 8), (8, 8), (8, 7))
    for (length, size), padded, auto in itertools.product(numbers, EITHER, EITHER):
        assert_same(dali, name, source(length), size=size, policy=policy, last_batch_padded=padded, auto_reset=auto)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_several_pipelines(name: str, policy: str, dali: Library) -> None:
    for size, num_pipelines in itertools.product((33, 36, 47, 48), (2, 3)):
        sources = [source(None, 100_000 * i) for i in range(num_pipelines)]
        assert_same(dali, name, *sources, size=size, policy=policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_reset_behind_as_many_batches_as_the_length_says(policy: str, dali: Library) -> None:
    def run(iterator: Any) -> list[Any]:
        epochs = []
        for _ in range(3):
            epochs.append([copied(next(iterator)) for _ in range(len(iterator))])
            iterator.reset()
        return epochs

    case = {"size": 10, "policy": policy, "last_batch_padded": True}

    assert outcome(OURS, run, source(None), **case) == outcome(dali, run, source(None), **case)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fill_last_batch", EITHER)
def test_older_name_of_the_policy(policy: str, fill_last_batch: bool, dali: Library) -> None:
    assert_same(dali, "for_loops", source(None), size=10, policy=policy, fill_last_batch=fill_last_batch)


def test_attributes(dali: Library) -> None:
    def attributes(iterator: Any) -> Any:
        return iterator.size, iterator.batch_size, iterator.output_map, iter(iterator) is iterator, len(iterator)

    for policy, (size, num_pipelines) in itertools.product(POLICIES, ((8, 1), (9, 1), (10, 2), (17, 2))):
        sources = [source(None)] * num_pipelines
        case = {"size": size, "policy": policy}

        assert outcome(OURS, attributes, *sources, **case) == outcome(dali, attributes, *sources, **case), case


def test_ragged_iterator(dali: Library) -> None:
    def shapes(iterator: Any) -> list[Any]:
        return [
            [[tuple(value.shape) for value in batch[0]["lengths"]], np.asarray(batch[0]["numbers"]).tolist()]
            for batch in iterator
        ]

    def make(info: Any) -> Any:
        if info.iteration == 3:
            raise StopIteration
        return np.zeros(info.idx_in_batch % 3), np.array(info.idx_in_epoch)

    case = {
        "kind": "DALIRaggedIterator",
        "output_map": ["lengths", "numbers"],
        "output_types": ["sparse_list", "dense"],
    }

    assert outcome(OURS, shapes, make, **case) == outcome(dali, shapes, make, **case)


# The same errors

WRONG = {
    "names": {"output_map": ["x", "x"]},
    "too few names": {"output_map": ["x"]},
    "no names": {"output_map": []},
    "batch sizes": {"sources": [source(12)] * 2, "batch_sizes": (3, 4), "size": 12},
    "size 0": {"size": 0},
    "size of letters": {"size": "many"},
    "no size": {"size": None},
    "auto_reset of 1": {"auto_reset": 1},
    "auto_reset of a word": {"auto_reset": "maybe"},
    "policy of a word": {"last_batch_policy": "DROP"},
    "no policy": {"last_batch_policy": None},
    "reader": {"reader_name": "reader"},
    "nothing left": {"size": 3, "policy": "DROP"},
    "output_types": {"kind": "DALIRaggedIterator", "output_types": ["dense", "thin"]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_errors(wrong: str, dali: Library) -> None:
    case = {"sources": [source(12)], **WRONG[wrong]}
    errors = []
    for library in (dali, OURS):
        try:
            with iterator_of(library, **case):
                pytest.fail("no error")
        except Exception as error:
            errors.append(error)

    theirs, ours = errors
    assert isinstance(ours, ArgumentError)
    assert isinstance(ours, type(theirs))


def test_no_pipelines_at_all(dali: Library) -> None:
    for library in (dali, OURS):
        with pytest.raises(AssertionError):
            plugin_of(library).DALIGenericIterator(None, ["x"])


@pytest.mark.parametrize("size", [-1, 10])
@pytest.mark.parametrize("policy", POLICIES)
def test_iterators_go_on_from_checkpoints(size: int, policy: str, dali: Library) -> None:
    def resumed(library: Library, taken: int) -> list[Any]:
        case = {"size": size, "policy": policy, "auto_reset": True}
        with iterator_of(library, [source(None)], enable_checkpointing=True, **case) as iterator:
            batches = itertools.chain.from_iterable(itertools.repeat(iterator))
            for _ in range(taken):
                next(batches)
            checkpoint = iterator.checkpoints()[0]
        more = {"enable_checkpointing": True, "checkpoint": checkpoint}
        with iterator_of(library, [source(None)], **more, **case) as iterator:
            return [list(map(copied, itertools.islice(iterator, 4))) for _ in range(2)]

    for taken in range(5):
        assert resumed(OURS, taken) == resumed(dali, taken), taken


def test_checkpoints_are_off(dali: Library) -> None:
    for library in (dali, OURS):
        with iterator_of(library, [source(12)]) as iterator, pytest.raises(ValueError, match="checkpointing"):
            iterator.checkpoints()


@pytest.mark.parametrize("prepare_first_batch", EITHER)
def test_error_of_the_source(prepare_first_batch: bool, dali: Library) -> None:
    def broken(info: Any) -> Any:
        raise ZeroDivisionError("broken")

    for library in (dali, OURS):
        with (
            pytest.raises(ZeroDivisionError, match="broken"),
            iterator_of(library, [broken], prepare_first_batch=prepare_first_batch) as iterator,
        ):
            next(iterator)


def test_samples_of_different_shapes(dali: Library) -> None:
    for library, error in ((dali, RuntimeError), (OURS, RaggedError)):
        with (
            pytest.raises(error),
            iterator_of(
                library,
                [lambda info: np.zeros(info.idx_in_batch)],
                num_outputs=None,
                output_map=["x"],
                prepare_first_batch=False,
            ) as iterator,
        ):
            next(iterator)
    assert issubclass(RaggedError, RuntimeError)


# Where ours differs


def test_source_that_is_shorter_than_the_size(dali: Library) -> None:
    """DALI takes reset() for premature and has no further epoch. Ours begins it, since the source has ended."""

    def lengths(iterator: Any) -> list[int]:
        epochs = []
        for _ in range(3):
            epochs.append(len(rest(iterator)))
            iterator.reset()
        return epochs

    assert outcome(dali, lengths, source(10), size=10) == [2, 0, 0]
    assert outcome(OURS, lengths, source(10), size=10) == [2, 2, 2]


@pytest.mark.parametrize("size", [-1, 40])
def test_reset_within_an_epoch(size: int, dali: Library) -> None:
    """DALI ignores it, with or without a warning in the log. Ours begins the next epoch, as the caller has asked."""

    def run(iterator: Any) -> list[int]:
        next(iterator)
        iterator.reset()
        return numbers(next(iterator))

    assert outcome(dali, run, source(40), size=size) == [4, 5, 6, 7]
    assert outcome(OURS, run, source(40), size=size) == [1000, 1001, 1002, 1003]


def test_source_without_samples(dali: Library) -> None:
    """DALI wants a first batch. An epoch without batches is a loop without passes."""
    with pytest.raises(RuntimeError, match="no data in the pipeline"):
        outcome(dali, list, source(0))

    assert outcome(OURS, PROGRAMS["for_loops"], source(0)) == [[], [], [], []]


def test_several_pipelines_without_a_size(dali: Library) -> None:
    """DALI refuses them. There is no reason to: the first that ends ends the epoch."""
    with pytest.raises(AssertionError, match="only for a single pipeline"):
        outcome(dali, list, source(8), source(12))

    assert outcome(OURS, lambda iterator: [len(list(iterator)) for _ in range(2)], source(8), source(12)) == [2, 2]


def test_length_without_a_size(dali: Library) -> None:
    """DALI says 0, which training frameworks believe. Ours has the length of the pipeline, or an error without one."""
    assert outcome(dali, len, source(12)) == 0

    with pytest.raises(TypeError):
        outcome(OURS, len, source(12))


def test_length_of_an_epoch_counts_batches_taken_before(dali: Library) -> None:
    """DALI gives the length of the first epoch for all."""

    def run(iterator: Any) -> list[tuple[int, int]]:
        return [(len(iterator), len(list(iterator))) for _ in range(2)]

    assert outcome(dali, run, source(None), size=10) == [(3, 3), (3, 2)]
    assert outcome(OURS, run, source(None), size=10) == [(3, 3), (2, 2)]


def test_size_is_no_reason_for_a_warning(dali: Library) -> None:
    """DALI recommends its readers, which external sources cannot do without."""
    for library, is_warned in ((dali, True), (OURS, False)):
        with library.source_pipeline(source(None), num_outputs=2) as pipe, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plugin_of(library).DALIGenericIterator([pipe], ["picture", "number"], size=8)
        assert bool(caught) is is_warned


def test_ragged_iterator_with_a_partial_batch(dali: Library) -> None:
    """DALI uses an attribute that it has not set."""
    case = {
        "kind": "DALIRaggedIterator",
        "output_map": ["x"],
        "output_types": ["sparse_list"],
        "num_outputs": None,
        "size": 6,
        "policy": "PARTIAL",
    }

    def lengths(iterator: Any) -> list[int]:
        return [len(batch[0]["x"]) for batch in iterator]

    def make(info: Any) -> Any:
        return np.zeros(info.idx_in_batch)

    with pytest.raises(AttributeError, match="_output_categories"):
        outcome(dali, lengths, make, **case)

    assert outcome(OURS, lengths, make, **case) == [4, 2]


@pytest.mark.parametrize("size", [10.5, "10", -7])
def test_sizes_that_are_no_sizes(size: Any, dali: Library) -> None:
    """DALI makes a number of any object that it can."""
    assert outcome(dali, lambda iterator: iterator.size, source(None), size=size) == int(size)

    with pytest.raises(ArgumentError, match="size must be"):
        outcome(OURS, list, source(None), size=size)


def test_name_too_many(dali: Library) -> None:
    """DALI looks the name up, and raises KeyError; too few are an IndexError, as they are here both."""
    for library in (dali, OURS):
        with pytest.raises(LookupError):
            outcome(library, next, source(12), output_map=["picture", "number", "name"])
