"""Iteration over a loader: the batches and their order, which do not depend on workers."""

from __future__ import annotations

import collections
import contextlib
import copy
import gc
import itertools
import os
import pickle
import re
import signal
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    SequentialSampler,
    SubsetRandomSampler,
    default_collate_fn_map,
)
from dali_like.data.array_backends import ArrayBackend
from dali_like.data.sample_schema import nesting_of
from dali_like.engine.worker.out_of_band import LEAST_BUFFER_BYTES
from dali_like.errors import CollateError, CollateTypeError, IteratorPicklingError, WorkerDiedError
from tests.conftest import is_running, wait_until
from tests.data.loader_cases import MANY_WORKERS, Box, Made, Pair, Squares, Stream, all_of, labels_of, loader_of, plain
from tests.internals import loader_workers_of, schema_of_assembler, space_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

WORKERS = (0, 1, 2, 3)
#: Enough samples that a batch is larger than the arrays that are copied.
LARGE = (LEAST_BUFFER_BYTES,)


@pytest.fixture(params=WORKERS)
def workers(request: pytest.FixtureRequest) -> int:
    """The number of workers."""
    return int(request.param)


class Gate:
    """A sampler that counts the indices it has yielded."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        for index in range(self.length):
            self.taken += 1
            yield index


def row_of_database(index: int) -> Any:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        return database.execute("select ?, ?", (index, str(index))).fetchone()


# Batches


def test_a_batch_is_the_collation_of_its_samples(workers: int) -> None:
    images, labels = list(loader_of(Squares(5), workers, batch_size=2))[1]

    assert images.tolist() == [[4.0] * 3, [9.0] * 3]
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    assert labels.tolist() == [2, 3]


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_last_batch_is_smaller_unless_it_is_dropped(workers: int, drop_last: bool) -> None:
    loader = loader_of(Squares(8), workers, batch_size=3, drop_last=drop_last)

    assert labels_of(loader) == [[0, 1, 2], [3, 4, 5], [6, 7]][: 2 if drop_last else 3]
    assert len(loader) == 2 if drop_last else 3


@pytest.mark.parametrize("sampler", [[5, 1, 3], range(9, 4, -2), (index for index in (2, 4))], ids=["list", "range", "once"])
def test_a_sampler_is_any_iterable_of_keys(sampler: Any) -> None:
    batches = labels_of(loader_of(Squares(), 2, sampler=sampler, batch_size=2))

    assert batches in ([[5, 1], [3]], [[9, 7], [5]], [[2, 4]])


def test_keys_may_be_anything_that_can_be_pickled(workers: int) -> None:
    dataset = {("a", 1): 10, b"b": 20, frozenset("c"): 30}

    batches = list(loader_of(dataset, workers, sampler=list(dataset), batch_size=2))

    assert [batch.tolist() for batch in batches] == [[10, 20], [30]]


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([[1, 2, 3], [4], [5, 6]], id="lists"),
        pytest.param([(1, 2), (3,)], id="tuples"),
        pytest.param([np.array([3, 1]), np.array([2])], id="arrays"),
        pytest.param([{3: None, 1: None}, {2: None}], id="iterables"),
        pytest.param(BatchSampler(SequentialSampler(range(7)), 3, True), id="batch sampler"),
    ],
)
def test_a_batch_sampler_chooses_the_indices_of_each_batch(batches: Any) -> None:
    expected = [list(batch) for batch in batches]

    for workers in (0, 2):
        loader = loader_of(Squares(), workers, batch_sampler=batches)

        assert labels_of(loader) == expected
        assert (len(loader), loader.batch_size) == (len(expected), None)


def test_without_batches_samples_come_one_by_one(workers: int) -> None:
    samples = list(loader_of(Squares(4), workers, batch_size=None))

    assert [(image.tolist(), label) for image, label in samples] == [([index**2] * 3, index) for index in range(4)]
    assert type(samples[0]) is list


def test_without_batches_a_sampler_may_ask_for_many_samples_at_once(workers: int) -> None:
    loader = loader_of(np.arange(10) * 10, workers, batch_size=None, sampler=[[1, 2], [5]])

    assert [batch.tolist() for batch in loader] == [[10, 20], [50]]


@pytest.mark.parametrize("batch_size", [2, None])
def test_a_collation_of_the_users_makes_the_batch(workers: int, batch_size: int | None) -> None:
    loader = loader_of(range(5), workers, batch_size=batch_size, collate_fn=lambda samples: {"made of": samples})

    expected: list[Any] = [[0, 1], [2, 3], [4]] if batch_size else [0, 1, 2, 3, 4]
    assert list(loader) == [{"made of": samples} for samples in expected]


def test_a_batch_may_be_anything_that_can_be_pickled(workers: int) -> None:
    assert list(loader_of(range(2), workers, collate_fn=lambda samples: {str, samples[0]})) == [{str, 0}, {str, 1}]


def test_a_dataset_that_can_be_asked_for_several_samples_is(workers: int) -> None:
    class Many(Squares):
        def __getitems__(self, indices: Any) -> list[Any]:
            return [(np.zeros(1), -index) for index in indices]

    assert labels_of(loader_of(Many(5), workers, batch_size=2)) == [[0, -1], [-2, -3], [-4]]


def test_keys_of_a_batch_reach_such_a_dataset_as_the_batch_sampler_gave_them(workers: int) -> None:
    class Many(Squares):
        def __getitems__(self, indices: Any) -> list[str]:
            return [type(indices).__name__]

    loader = loader_of(Many(), workers, batch_sampler=[np.array([1]), (2,), [3], {4}])

    assert list(loader) == [["ndarray"], ["tuple"], ["list"], ["set"]]


@pytest.mark.parametrize("options", [{"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}], ids=str)
def test_an_iterable_dataset_is_walked_through(options: Any) -> None:
    samples: list[Any] = list(range(8))
    expected = samples if options["batch_size"] is None else [samples[:3], samples[3:6], samples[6:]][: 3 - len(options) + 1]

    for workers in (0, 1):
        assert [np.asarray(batch).tolist() for batch in loader_of(Stream(8), workers, **options)] == expected


@pytest.mark.parametrize(
    ("length", "workers", "expected"), [(9, 3, [0, 1, 2, 4, 5, 7, 8]), (24, 2, [0, *range(1, 24, 2)])], ids=["short", "long"]
)
def test_workers_take_turns_at_an_iterable_dataset_until_each_has_ended(
    length: int, workers: int, expected: list[int]
) -> None:
    class Uneven(Stream):
        def __iter__(self) -> Iterator[Any]:
            numbers = list(super().__iter__())
            return iter(numbers if numbers[0] else numbers[:1])

    assert [int(number) for number in loader_of(Uneven(length), workers, batch_size=None)] == expected


def test_each_worker_drops_its_own_last_batch() -> None:
    assert [batch.tolist() for batch in loader_of(Stream(10), 2, batch_size=3, drop_last=True)] == [[0, 2, 4], [1, 3, 5]]


def test_an_empty_dataset_has_no_batches(workers: int) -> None:
    assert list(loader_of([], workers)) == list(loader_of(Stream(0), workers)) == []


@pytest.mark.parametrize("dataset", [Squares(6), Stream(6)], ids=["map", "iterable"])
def test_after_the_end_there_is_nothing_more(workers: int, dataset: Any) -> None:
    batches = iter(loader_of(dataset, workers, batch_size=2))
    list(batches)

    assert list(batches) == list(batches) == []


def test_a_dataset_that_raises_stop_iteration_ends_the_epoch(workers: int) -> None:
    def stop_at_five(index: int) -> int:
        if index == 5:
            raise StopIteration
        return index

    batches = iter(loader_of(Made(stop_at_five), workers, batch_size=2))

    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert list(batches) == []


def test_batches_do_not_depend_on_workers_and_start_methods() -> None:
    def batches(workers: int, method: str = "fork") -> Any:
        sampler = SubsetRandomSampler(range(20), generator=1)
        return all_of(loader_of(Squares(), workers, method, batch_size=4, sampler=sampler))

    expected = batches(0)

    assert len(expected) == 5
    assert [batches(workers) for workers in WORKERS] == [expected] * 4
    assert [batches(workers, "spawn") for workers in (1, 2, 3)] == [expected] * 3


# Types of samples


def image(index: int, length: int = 6) -> Any:
    return np.full(length, index, np.uint8)


KINDS: dict[str, Callable[[int], Any]] = {
    "array": image,
    "large array": lambda i: np.full((3, *LARGE), i, np.uint8),
    "array without dimensions": lambda i: np.array(i, np.int16),
    "empty array": lambda i: (np.zeros((0, 3)), np.zeros(0, np.complex64)),
    "complex array": lambda i: np.full((2, 2), i + 1j),
    "strided array": lambda i: np.arange(i, i + 12).reshape(3, 4).T[::2],
    "big-endian array": lambda i: np.full(2, i, ">i4"),
    "dates": lambda i: np.full(2, i, "M8[s]"),
    "subclass of array": lambda i: np.ma.array([i, 2], mask=[False, True]),
    "bool": lambda i: i % 3 == 0,
    "int": lambda i: -i,
    "float": lambda i: i / 7,
    "numbers of NumPy": lambda i: (np.float16(i), np.uint64(2**64 - 1 - i), np.bool_(i % 2), np.complex64(i * 1j)),
    "str": lambda i: f"number {i}",
    "bytes": lambda i: b"b" * i,
    "tuple": lambda i: (image(i), i, "a" * i, b"b"),
    "list": lambda i: [image(i), i, "a" * i, b"b"],
    "dict": lambda i: {"image": image(i), 3: i, ("text",): "a" * i},
    "named tuple": lambda i: Pair(image(i), str(i)),
    "dataclass": lambda i: Box(image(i), str(i)),
    "nested": lambda i: {"a": [Pair({"b": (i, [Box(image(i), (str(i), i))])}, b"c" * i)], "d": ({}, (), [[]])},
    "empty tuple": lambda i: (),
    "empty dict": lambda i: {},
    "tuple of texts": lambda i: (str(i), str(-i)),
    "sequence that cannot be pickled": row_of_database,
    "sequence that cannot be pickled, from the second batch on": lambda i: (i, "") if i < 4 else row_of_database(i),
}


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_any_kind_make_the_same_batches_in_workers(kind: str) -> None:
    dataset = Made(KINDS[kind])

    assert all_of(loader_of(dataset, 2, batch_size=4)) == all_of(loader_of(dataset, batch_size=4))


def test_only_those_begun_before_that_is_known_are_made_twice(tmp_path: Path) -> None:
    def make(index: int) -> Any:
        with (tmp_path / str(index)).open("a") as log:
            log.write("made")
        return row_of_database(index)

    all_of(loader_of(Made(make, 24), 1, batch_size=4, prefetch_factor=1))

    assert [(tmp_path / str(index)).read_text() for index in (0, 23)] == ["made" * 2, "made"]


@pytest.mark.parametrize("kind", [np.ndarray, np.int64, bool, str, dict, tuple, Pair, Box, object])
def test_workers_collate_by_functions_that_the_default_collation_has_been_given(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(default_collate_fn_map, kind, lambda batch, *, collate_fn_map: f"{len(batch)} together")
    dataset = Made(lambda i: {"a": (image(i), i, i > 2, str(i), np.int64(i)), "b": Pair(i, i), "c": Box(i, i)})

    batches = all_of(loader_of(dataset, 2, batch_size=4))

    assert "4 together" in str(batches)
    assert batches == all_of(loader_of(dataset, batch_size=4))


def test_arrays_that_have_been_unpickled_go_into_rows() -> None:
    array = pickle.loads(pickle.dumps(np.arange(3)))
    nesting = nesting_of((array, 1), ArrayBackend())

    assert nesting is not None
    assert plain(nesting.collate([(array, 1), (array, 2)], False, True)) == plain(
        [np.array([[0, 1, 2]] * 2), np.array([1, 2])]
    )


@pytest.mark.parametrize("kind", ["array", "large array", "complex array", "tuple", "nested"])
def test_batches_may_be_written_to_and_are_aligned(kind: str) -> None:
    def check(part: Any) -> None:
        if isinstance(part, np.ndarray):
            assert part.flags.writeable
            assert part.flags.aligned
        elif isinstance(part, (dict, list, tuple)):
            for item in part.values() if isinstance(part, dict) else part:
                check(item)

    for collate_fn in (None, list):
        for batch in loader_of(Made(KINDS[kind]), 1, batch_size=4, collate_fn=collate_fn):
            check(batch)


CHANGES: dict[str, Callable[[int], Any]] = {
    "text to number": lambda i: str(i) if i == 0 else i,
    "dtype": lambda i: np.full(3, i, np.float32 if i % 5 else np.float64),
    "number to array": lambda i: i if i % 2 else np.array(i),
    "int to float": lambda i: (i / 2 if i % 7 == 3 else i, str(i)),
    "too large an int": lambda i: (str(i), float(i) if i % 4 else 2**70),
    "text beside": lambda i: (f"a{i}", i if i % 7 else np.int8(i), f"b{i}"),
    "text later": lambda i: (image(i), f"a{i}", i if i < 9 else float(i), f"b{i}"),
    "str to bytes": lambda i: {"a": f"{i}" if i % 6 else b"%d" % i, "b": i},
    "more keys": lambda i: {"a": i, "b": str(i), **({"c": i} if i % 4 else {})},
    "list to tuple": lambda i: ((i, "a"), (str(i),)) if i % 3 else [(i, "a"), (str(i),)],
    "list to tuple inside": lambda i: ([i, str(i)] if i % 5 else (i, str(i)), image(i)),
    "kind of object": lambda i: Pair(i, str(i)) if i % 6 else (i, str(i)),
    "complex": lambda i: np.full(2, i + 1j, np.complex64 if i % 5 else np.complex128),
    "every batch": lambda i: [image(i), (image(i), str(i)), {"a": i}, str(i), i, [i, b"a"], Box(i, "a")][i // 4 % 7],
    "shape of every batch": lambda i: (image(i, 1 + i // 4), str(i)),
    "for good": lambda i: (image(i), str(i)) if i < 8 else {"a": image(i, 9), "b": (str(i), i)},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("batch_size", [4, 9])
def test_samples_may_change_their_form(change: str, batch_size: int) -> None:
    dataset = Made(CHANGES[change], 60)

    def outcomes(workers: int) -> list[Any]:
        batches = iter(loader_of(dataset, workers, batch_size=batch_size))
        return [outcome_of(batches) for _ in range(-(-60 // batch_size) + 1)]

    assert outcomes(2) == outcomes(0)


def outcome_of(batches: Iterator[Any]) -> Any:
    """Return the next batch, or type and text of the exception."""
    try:
        return plain(next(batches))
    except Exception as error:
        return type(error), str(error)


def test_schema_that_has_changed_for_good_is_learned_after_some_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.engine.pool.assembler._FIRST_WHOLE", 2)
    dataset = Made(lambda i: (image(i), i) if i < 4 else (np.full(9, i, np.float64), str(i)), 60)
    batches = iter(loader_of(dataset, 1, batch_size=4, prefetch_factor=1))
    stage = loader_workers_of(batches).pool.assemblers[0]

    list(batches)

    assert [layout.shape for layout in schema_of_assembler(stage).layouts] == [(9,)]


@pytest.mark.parametrize(("every", "is_kept"), [(2, False), (7, True)])
def test_schema_is_kept_if_few_batches_have_another_one(every: int, is_kept: bool) -> None:
    """Otherwise workers collate whole batches."""
    batches = iter(loader_of(Made(lambda i: i if (i // 4 + 1) % every else float(i), 160), 1, batch_size=4))
    stage = loader_workers_of(batches).pool.assemblers[0]
    for _ in range(every):
        next(batches)
    schema = schema_of_assembler(stage)

    list(batches)

    assert (schema is not None and schema_of_assembler(stage) is schema) == is_kept


@pytest.mark.parametrize(
    ("make", "batch_size"),
    [(image, 1), (str, 4), (lambda i: (str(i), [f"b{i}"]), 4)],
    ids=["one sample", "texts", "nested texts"],
)
def test_worker_sends_a_whole_batch_where_rows_bring_nothing(make: Any, batch_size: int) -> None:
    loader = loader_of(Made(make, 60), 1, batch_size=batch_size)
    batches = iter(loader)
    for _ in range(10):
        next(batches)

    assert loader_workers_of(batches).fetcher.takes_whole(batch_size, 60)
    assert 10 + len(list(batches)) == 60 // batch_size


BAD: dict[str, Callable[[int], Any]] = {
    "type": lambda i: None,
    "type in the middle": lambda i: None if i == 6 else i,
    "dtype": lambda i: np.array(["a"]),
    "shape": lambda i: image(i, 3 if i < 6 else 4),
    "length": lambda i: (i,) * (1 if i < 6 else 2),
    "key": lambda i: {"a": i} if i < 6 else {"b": i},
    "beside a text": lambda i: ("a" * i, i if i != 6 else "a"),
    "type that cannot be pickled": lambda i: (i for i in ()),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    "way", [{"batch_size": 4}, {"batch_sampler": [range(4), range(4, 8), range(8, 12)]}], ids=["rows", "whole"]
)
def test_samples_that_make_no_batch_are_refused_as_without_workers(bad: str, way: Any) -> None:
    def outcomes(workers: int) -> list[Any]:
        batches = iter(loader_of(Made(BAD[bad], 12), workers, **way))
        return [outcome_of(batches) for _ in range(4)]

    expected = outcomes(0)

    assert any(isinstance(outcome[0], type) and issubclass(outcome[0], CollateError) for outcome in expected)
    assert outcomes(2) == expected


def test_errors_of_a_collation_are_raised_unchanged(workers: int) -> None:
    def refuse(samples: list[int]) -> Any:
        raise LookupError(f"no batch of {samples}")

    batches = iter(loader_of(range(3), workers, batch_size=2, collate_fn=refuse))

    assert [outcome_of(batches) for _ in range(3)] == [
        (LookupError, "no batch of [0, 1]"),
        (LookupError, "no batch of [2]"),
        (StopIteration, ""),
    ]


def five_is_wrong(index: int) -> int:
    if index == 5:
        raise ZeroDivisionError("five")
    return index


@pytest.mark.parametrize("options", [{}, {"collate_fn": np.array}], ids=["rows", "whole"])
def test_an_error_costs_its_batch_alone(workers: int, options: Any) -> None:
    batches = iter(loader_of(Made(five_is_wrong, 10), workers, batch_size=2, **options))

    outcomes = [outcome_of(batches) for _ in range(6)]

    assert outcomes[2] == (ZeroDivisionError, "five")
    assert [outcome[-1] for outcome in outcomes] == [[0, 1], [2, 3], "five", [6, 7], [8, 9], ""]


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"batch_size": 4}, r"index 5 \(sample 1 of batch 1\)"),
        ({"batch_size": 4, "collate_fn": list}, r"index 5 \(sample 1 of batch 1\)"),
        ({"batch_sampler": [[0], [3, 4, 5]]}, r"index 5 \(sample 2 of batch 1\)"),
        ({"batch_size": None}, "index 5"),
    ],
)
def test_an_error_names_its_sample(options: Any, where: str) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(loader_of(Made(five_is_wrong), 1, **options))

    (note,) = caught.value.__notes__
    assert re.fullmatch(rf"raised by dataset Made for {where}, in worker 0 \(pid \d+\)", note)


@pytest.mark.parametrize("options", [{}, {"collate_fn": list}], ids=["rows", "whole"])
def test_error_for_a_dead_worker_names_its_sample(options: Any) -> None:
    def die_at_five(index: int) -> int:
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return index

    loader = loader_of(Made(die_at_five), 1, batch_size=4, worker_restarts=None, **options)

    with pytest.raises(WorkerDiedError, match=r"index 5 \(sample 1 of batch 1\)"):
        list(loader)


def test_an_error_of_a_collation_names_its_batch() -> None:
    def refuse_five(samples: list[int]) -> int:
        return max(map(five_is_wrong, samples))

    with pytest.raises(ZeroDivisionError) as caught:
        list(loader_of(range(9), 1, batch_size=3, collate_fn=refuse_five))

    assert caught.value.__notes__[0].startswith("raised by dataset range for batch 1 (indices 3, 4, 5), in worker 0")


@pytest.mark.parametrize(("length", "last"), [(256, "254, 255)"), (257, "254, 255, ...)")])
def test_an_error_of_a_collation_names_at_most_256_indices(length: int, last: str) -> None:
    def refuse(samples: list[int]) -> int:
        raise LookupError

    with pytest.raises(LookupError) as caught:
        list(loader_of(range(length), 1, batch_size=length, collate_fn=refuse))

    indices = ", ".join(map(str, range(254)))
    assert f"for batch 0 (indices {indices}, {last}, in worker" in caught.value.__notes__[0]


def test_an_error_of_the_default_collation_names_its_samples(workers: int) -> None:
    loader = loader_of(Made(lambda i: image(i, 3 if i < 6 else 4)), workers, batch_sampler=[[0, 1], [2, 6, 4]])

    with pytest.raises(CollateError, match=r"\[4\] at entry 1") as caught:
        list(loader)

    assert any(note.startswith("raised by") and "batch 1 (indices 2, 6, 4)" in note for note in caught.value.__notes__)


def test_an_error_of_the_sampler_comes_behind_the_batches_before_it(workers: int) -> None:
    def sampler() -> Iterator[int]:
        yield from range(4)
        raise ArithmeticError("no more")

    batches = iter(loader_of(Squares(), workers, sampler=sampler(), batch_size=2))

    assert [next(batches)[1].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(ArithmeticError, match="no more") as caught:
        next(batches)
    assert not workers or "raised by the sampler" in caught.value.__notes__[0]
    assert list(batches) == []


def test_an_object_that_cannot_be_pickled_is_an_error_and_no_hang() -> None:
    loader = loader_of(range(2), 1, collate_fn=lambda samples: (index for index in samples))

    with pytest.raises(TypeError, match=r"an object that a worker has to send cannot be pickled: .*generator"):
        next(iter(loader))


# Memory


def memory_of(batches: Any) -> int:
    """Return the memory of the shared space of an iterator."""
    return int(space_of(loader_workers_of(batches).pool).used_bytes)


@pytest.mark.parametrize("collate_fn", [None, lambda samples: [np.stack(column) for column in zip(*samples, strict=True)]])
def test_kept_labels_do_not_hold_the_memory_of_images(collate_fn: Any) -> None:
    images_bytes = 4 * 4 * LEAST_BUFFER_BYTES
    dataset = Made(lambda i: (np.zeros(LARGE, np.float32), np.full(3, i)), 160)
    batches = iter(loader_of(dataset, 1, batch_size=4, prefetch_factor=1, collate_fn=collate_fn))

    labels = [batch[1] for batch in batches if memory_of(batches) < 8 * images_bytes]

    assert [label[0, 0] for label in labels] == list(range(0, 160, 4))


@pytest.mark.parametrize("options", [{}, {"batch_sampler": [[i, i + 1] for i in range(0, 60, 2)], "batch_size": 1}])
def test_batches_that_are_kept_stay_as_they_were(options: Any) -> None:
    dataset = Made(lambda i: (np.full((16, 1024), i), np.full((2, 2), i), str(i)), 60)

    loader = loader_of(dataset, 2, **{"batch_size": 2, "prefetch_factor": 1, "persistent_workers": True, **options})

    kept = list(loader)
    list(loader)
    del loader

    assert [(np.unique(images).tolist(), np.unique(labels).tolist(), texts) for images, labels, texts in kept] == [
        ([i, i + 1], [i, i + 1], (str(i), str(i + 1))) for i in range(0, 60, 2)
    ]


def test_memory_of_batches_that_are_dropped_is_used_again() -> None:
    dataset = Made(lambda i: np.zeros(LARGE, np.float64), 200)
    batches = iter(loader_of(dataset, 1, batch_size=2, prefetch_factor=1))
    batch_bytes = next(batches).nbytes

    assert max(memory_of(batches) for _ in batches) < 5 * batch_bytes


# Batches ahead


@pytest.mark.parametrize("persistent", [False, True])
def test_the_sampler_is_walked_through_in_this_process_and_only_as_far_as_batches_are_ahead(persistent: bool) -> None:
    sampler = Gate(40)
    batches = iter(
        loader_of(Squares(40), 2, sampler=sampler, batch_size=2, prefetch_factor=3, persistent_workers=persistent)
    )

    taken = [sampler.taken]
    for _ in range(3):
        next(batches)
        taken.append(sampler.taken)

    assert taken == [12, 14, 16, 18]


def test_without_workers_the_sampler_is_asked_when_a_batch_is() -> None:
    sampler = Gate(40)
    batches = iter(loader_of(Squares(40), sampler=sampler, batch_size=2))

    assert [sampler.taken, next(batches) and sampler.taken, next(batches) and sampler.taken] == [0, 2, 4]


def test_no_more_is_made_ahead_than_the_prefetch_factor_says(tmp_path: Any) -> None:
    def note(index: int) -> int:
        (tmp_path / str(index)).touch()
        return index

    batches = iter(loader_of(Made(note, 40), 2, batch_size=2, prefetch_factor=2))

    def made() -> int:
        return sum(1 for _ in tmp_path.iterdir())

    wait_until(lambda: made() == 8, "making the first batches")
    next(batches)
    wait_until(lambda: made() == 10, "making another")
    next(batches)
    assert made() <= 12


def test_an_infinite_sampler_is_no_obstacle(workers: int) -> None:
    batches = iter(loader_of(Squares(), workers, sampler=itertools.count(), batch_size=2))

    assert [next(batches)[1].tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]


# Out of order


def test_batches_may_come_as_they_are_ready(tmp_path: Any) -> None:
    def wait_at_zero(index: int) -> int:
        if index == 0:
            wait_until((tmp_path / "go").exists, "permission to go on")
        return index

    batches = iter(loader_of(Made(wait_at_zero, 8), 2, batch_size=1, in_order=False))

    first = [next(batches).item() for _ in range(7)]
    (tmp_path / "go").touch()

    assert sorted(first) == list(range(1, 8))
    assert [batch.item() for batch in batches] == [0]


def test_a_slow_worker_does_not_hold_up_another_ones_items(tmp_path: Any) -> None:
    class Slow(Stream):
        def sample(self, number: int) -> int:
            if number == 0:
                wait_until((tmp_path / "go").exists, "permission to go on")
            return number

    batches = iter(loader_of(Slow(8), 2, batch_size=1, in_order=False))

    first = [next(batches).item() for _ in range(4)]
    (tmp_path / "go").touch()

    assert first == [1, 3, 5, 7]
    assert sorted(batch.item() for batch in batches) == [0, 2, 4, 6]


# Several iterators


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("dataset", [Squares(6), Made(lambda i: (str(i), i), 6)], ids=["rows", "texts"])
def test_loops_may_be_nested(persistent: bool, dataset: Any) -> None:
    loader = loader_of(dataset, 2, batch_size=2, persistent_workers=persistent)
    expected = [[0, 1], [2, 3], [4, 5]]

    assert [(outer[1].tolist(), labels_of(loader)) for outer in loader] == [(labels, expected) for labels in expected]


def test_a_worker_finds_its_way_in_more_passes_than_it_has_in_mind() -> None:
    loader = loader_of(Stream(3), 1, batch_size=1, persistent_workers=True)

    passes = [iter(loader) for _ in range(18)]

    for number in range(3):
        assert [next(batches).item() for batches in passes] == [number] * 18


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", [Squares, Stream])
def test_two_iterators_do_not_know_of_each_other(persistent: bool, kind: Any) -> None:
    loader = loader_of(kind(12), 2, batch_size=2, persistent_workers=persistent)
    expected = all_of(loader)

    pairs = [tuple(map(plain, pair)) for pair in zip(loader, loader, strict=True)]

    assert pairs == [(batch, batch) for batch in expected]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", [Squares, Stream])
def test_an_epoch_after_a_break_begins_at_the_beginning(persistent: bool, kind: Any) -> None:
    loader = loader_of(kind(12), 2, batch_size=2, persistent_workers=persistent)
    expected = all_of(loader)
    for _ in itertools.islice(loader, 2):
        pass

    assert all_of(loader) == expected


def test_samples_of_an_abandoned_iterator_are_not_computed(tmp_path: Any) -> None:
    def note(index: int) -> int:
        (tmp_path / str(index)).touch()
        if index == 1:
            wait_until((tmp_path / "go").exists, "permission to go on")
        return index

    sampler = [0, 1, 2, 3, 4, 5]
    loader = loader_of(Made(note), 1, sampler=sampler, prefetch_factor=6, persistent_workers=True)
    next(iter(loader))
    wait_until((tmp_path / "1").exists, "making the second sample")

    sampler[:] = [7]
    batches = iter(loader)
    (tmp_path / "go").touch()

    assert [batch.item() for batch in batches] == [7]
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "7", "go"}


def test_a_pass_that_has_been_broken_off_ends_before_the_next_begins() -> None:
    class Watching(Gate):
        broken_off: Any = None

        def __iter__(self) -> Iterator[int]:
            if self.broken_off is not None:
                assert self.broken_off() is None
            return super().__iter__()

    sampler = Watching(8)
    loader = loader_of(Squares(), 1, sampler=sampler, batch_size=2, persistent_workers=True)
    for _ in loader:
        sampler.broken_off = weakref.ref(loader._iterator)
        break

    assert len(list(loader)) == 4


def test_persistent_workers_are_the_same_in_each_epoch() -> None:
    loader = loader_of(Made(lambda i: os.getpid(), 8), 2, batch_size=1, persistent_workers=True)

    assert len({batch.item() for _ in range(3) for batch in loader}) <= 2


@pytest.mark.parametrize("persistent", [False, True])
def test_changed_attributes_count_from_the_next_epoch_on(persistent: bool) -> None:
    loader = loader_of(range(4), 1, batch_size=2, persistent_workers=persistent)
    first = [batch.tolist() for batch in loader]

    loader.collate_fn = sum
    second = list(loader)
    loader.num_workers = 3
    third = iter(loader)

    assert (first, second, list(third)) == ([[0, 1], [2, 3]], [1, 5], [1, 5])
    loader.num_workers = 0
    assert list(loader) == [1, 5]


@pytest.mark.parametrize("change", ["collate_fn", "num_workers", "dataset"])
def test_a_pass_that_is_under_way_goes_on_when_the_loader_changes(change: str) -> None:
    loader = loader_of(Squares(8), 1, batch_size=2, persistent_workers=True)
    outer = iter(loader)
    next(outer)

    if change == "dataset":
        loader.dataset.shape = (1,)
    else:
        setattr(loader, change, {"collate_fn": len, "num_workers": 2}[change])
    inner = list(loader)

    assert len(inner) == 4
    assert labels_of(outer) == [[2, 3], [4, 5], [6, 7]]


def test_after_workers_that_have_died_too_often_the_next_epoch_has_others(tmp_path: Any) -> None:
    def die_once(index: int) -> int:
        if not (tmp_path / "dead").exists():
            (tmp_path / "dead").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index

    loader = loader_of(Made(die_once, 4), 1, batch_size=2, persistent_workers=True, worker_restarts=0)
    with pytest.raises(WorkerDiedError):
        list(loader)

    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_changes_of_the_dataset_reach_persistent_workers() -> None:
    loader = loader_of(Squares(4), 1, batch_size=4, persistent_workers=True)
    shapes = []

    for length in (1, 2):
        loader.dataset.shape = (length,)
        shapes += [images.shape for images, _ in loader]

    assert shapes == [(4, 1), (4, 2)]


# The end of workers


def pids_of(batches: Any) -> list[int]:
    return [worker.pid for worker in batches._workers]


def assert_gone(pids: list[int]) -> None:
    assert pids
    assert not any(map(is_running, pids))


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_garbage_collection")
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", [Squares, Stream])
def test_workers_end_with_a_loader_that_is_dropped_in_the_middle_of_an_epoch(persistent: bool, kind: Any) -> None:
    loader = loader_of(kind(), 2, batch_size=2, persistent_workers=persistent)
    batches = iter(loader)
    next(batches)
    pids = pids_of(batches)

    del loader, batches

    assert_gone(pids)


@pytest.mark.usefixtures("_no_garbage_collection")
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_workers_end_with_a_loader_and_a_pass_that_are_garbage(way: str) -> None:
    """As in exceptions with tracebacks. The garbage collector may end the workers before the iterator."""
    loader = loader_of(Squares(), 2, way, batch_size=2)
    batches = iter(loader)
    next(batches)
    pids = pids_of(batches)
    ring: list[Any] = [loader, batches]
    ring.append(ring)

    del loader, batches, ring
    gc.collect()

    assert_gone(pids)


@pytest.mark.usefixtures("_no_garbage_collection")
def test_workers_end_with_a_pass_that_is_dropped_before_an_error_of_its_sampler() -> None:
    batches = iter(loader_of(Squares(), 2, batch_size=2, sampler=map(five_is_wrong, range(9))))
    next(batches)
    pids = pids_of(batches)

    del batches

    assert_gone(pids)


@pytest.mark.usefixtures("_no_garbage_collection")
@pytest.mark.parametrize("kind", ["error", "error of collation", "error of the sampler"])
def test_workers_end_with_a_pass_that_is_dropped_after_an_error(kind: str) -> None:
    def sampler() -> Iterator[int]:
        yield from range(4)
        raise CollateTypeError("no more")

    dataset = Made(lambda i: [][i] if kind == "error" else None if kind == "error of collation" and i else i)
    options: dict[str, Any] = {"sampler": sampler()} if kind == "error of the sampler" else {}
    batches = iter(loader_of(dataset, 2, batch_size=2, **options))
    pids = pids_of(batches)

    with pytest.raises((IndexError, CollateTypeError)):
        list(batches)
    del batches

    assert_gone(pids)


@pytest.mark.usefixtures("_no_garbage_collection")
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_end_when_one_of_them_cannot_start(persistent: bool) -> None:
    def refuse(worker: int) -> None:
        if worker == 0:
            raise LookupError("no key")

    endless = itertools.count()
    batches = iter(loader_of(Squares(), 2, sampler=endless, worker_init_fn=refuse, persistent_workers=persistent))
    pids = pids_of(batches)

    with pytest.raises(LookupError, match="no key"):
        collections.deque(batches, maxlen=0)

    assert_gone(pids)
    with pytest.raises(LookupError, match="no key"):
        next(batches)


@pytest.mark.parametrize(("way", "persistent"), [("fork", False), ("fork", True), ("spawn", False)])
def test_a_worker_that_cannot_start_is_noticed_where_another_makes_all_batches(
    way: str, persistent: bool, tmp_path: Path
) -> None:
    is_done = tmp_path / "done"

    def refuse(worker: int) -> None:
        if worker == 1:
            wait_until(is_done.exists, "the last sample")
            raise LookupError("no key")

    def sample(index: int) -> int:
        if index == 3:
            is_done.touch()
        return index

    dataset = Made(sample, 4)
    loader = loader_of(dataset, 2, way, batch_size=2, worker_init_fn=refuse, persistent_workers=persistent)
    batches = iter(loader)
    next(batches)

    with pytest.raises(LookupError, match="no key"):
        next(batches)
    with pytest.raises(LookupError, match="no key"):
        list(loader)


def test_iteration_ends_after_errors_if_workers_cannot_start() -> None:
    def refuse(worker: int) -> None:
        raise LookupError("no key")

    batches = iter(loader_of(Squares(100), 2, worker_init_fn=refuse))

    outcomes = [outcome_of(batches) for _ in range(20)]

    assert outcomes[0] == (LookupError, "no key")
    assert set(outcomes[1:]) == {(LookupError, "no key"), (StopIteration, "")}


def test_workers_that_are_not_kept_end_with_their_epoch() -> None:
    batches = iter(loader_of(Squares(), 2, batch_size=2))
    next(batches)
    pids = pids_of(batches)

    list(batches)

    assert_gone(pids)


def test_workers_that_are_kept_end_when_the_number_of_workers_is_set_to_zero() -> None:
    loader = loader_of(Squares(4), 2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    pids = pids_of(batches)
    list(batches)

    loader.num_workers = 0
    list(loader)

    assert_gone(pids)


# Lengths, and other details


def test_an_iterable_dataset_that_is_longer_than_it_says_is_warned_of() -> None:
    class Longer(Stream):
        def __len__(self) -> int:
            return self.length - 1

    loader = loader_of(Longer(4), batch_size=1)
    assert len(loader) == 3

    with pytest.warns(UserWarning, match=r"reported to be 3\(when accessing len\(dataloader\)\), but 4 samples have been"):
        assert len(list(loader)) == 4


@pytest.mark.filterwarnings("ignore:.*have the same content:UserWarning")
def test_replicas_of_an_iterable_dataset_are_warned_of_too() -> None:
    class Replicated(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

        def __len__(self) -> int:
            return 3

    loader = loader_of(Replicated(), 2, batch_size=None)
    assert len(loader) == 3

    with pytest.warns(UserWarning, match="not properly configuring the IterableDataset replica") as caught:
        assert len(list(loader)) == 6
    assert len([each for each in caught if "Length of IterableDataset" in str(each.message)]) == 3


def test_no_length_warning_without_a_call_of_len() -> None:
    class Longer(Stream):
        def __len__(self) -> int:
            return 1

    assert len(list(loader_of(Longer(4)))) == 4


def test_an_iterator_is_as_long_as_its_sampler(workers: int) -> None:
    assert len(iter(loader_of(Squares(7), workers, batch_size=2))) == 4


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_iterator_cannot_be_pickled(duplicate: Callable[[Any], Any]) -> None:
    for workers in (0, 1):
        with pytest.raises(IteratorPicklingError, match="cannot be pickled"):
            duplicate(iter(loader_of(Squares(), workers)))


def test_a_loader_can_be_pickled_that_has_not_begun() -> None:
    loader: DataLoader[Any] = pickle.loads(pickle.dumps(DataLoader(Squares(4), batch_size=2, num_workers=1)))

    assert labels_of(loader) == [[0, 1], [2, 3]]
