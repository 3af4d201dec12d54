"""Schemas of samples: samples that fit, and the content of the rows."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like.data.array_backends import ArrayBackend
from dali_like.data.sample_schema import TOGETHER_BYTES, SampleSchema, UnfitError, schema_of
from dali_like.engine.memory.protocol import DTYPES, MAX_NDIM
from dali_like.sources.collate import default_collate


class Point(NamedTuple):
    x: int
    y: NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Boxed:
    label: str
    box: NDArray[Any]

    def __post_init__(self) -> None:
        assert self.box.ndim == 1, "what is made of a batch has two"


@dataclasses.dataclass
class Likewise:
    label: str
    box: NDArray[Any]


@dataclasses.dataclass(slots=True)
class Slotted:
    label: str


class Pair(tuple[int, int]):
    __slots__ = ()


class Tagged(np.ndarray[Any, Any]):
    """An array with an attribute."""


class Special(ArrayBackend):
    def is_collated_specially(self, value: Any) -> bool:
        return isinstance(value, bytes)


def of(sample: Any) -> SampleSchema:
    schema = schema_of(sample, ArrayBackend())
    assert schema is not None
    return schema


def put(schema: SampleSchema, samples: Sequence[Any]) -> tuple[int, list[NDArray[Any]], list[list[Any]]]:
    """Put samples into rows. Return their number, the rows and the texts."""
    rows = [np.zeros((len(samples), *(layout.shape or ())), DTYPES[layout.dtype]) for layout in schema.layouts]
    texts: list[list[Any]] = [["before"] for _ in range(schema.num_texts)]
    count = schema.put(samples, rows, texts)
    assert all(column.pop(0) == "before" for column in texts)
    return count, rows, texts


def batch_in_rows(samples: Sequence[Any]) -> Any:
    """Return the batch of samples by way of rows."""
    schema = of(samples[0])
    _, rows, texts = put(schema, samples)
    return schema.root.batch(rows, texts, False)


def unlike(sample: Any) -> Any:
    """Convert a sample for `==`."""
    if isinstance(sample, np.ndarray):
        return type(sample), sample.dtype, sample.shape, sample.tolist()
    if isinstance(sample, (tuple, list)):
        return type(sample), [unlike(part) for part in sample]
    if isinstance(sample, dict):
        return [(key, unlike(part)) for key, part in sample.items()]
    if dataclasses.is_dataclass(sample):
        return type(sample), unlike(vars(sample))
    return type(sample), sample


LABELLED = [(np.arange(3.0), 1), (np.arange(3.0) + 5, 2)]

KINDS: dict[str, Sequence[Any]] = {
    "numbers": [3, 5],
    "floats": [0.1, 1e300],
    "truths": [True, False],
    "numbers of NumPy": [np.float32(0.1), np.float32(7)],
    "arrays": [np.arange(6).reshape(2, 3), np.arange(6, 12).reshape(2, 3)],
    "arrays of other strides": [np.arange(12).reshape(2, 6)[:, ::2], np.arange(6, 18).reshape(2, 6)[:, ::2]],
    "arrays of no dimensions": [np.array(3), np.array(4)],
    "arrays of no elements": [np.zeros((0, 3)), np.zeros((0, 3))],
    "large arrays": [np.arange(1 << 14), np.arange(1 << 14) + 1],
    "complex arrays": [np.array([1j, 2]), np.array([3, 4j])],
    "complex arrays of half the size": [np.array([1j], np.complex64), np.array([3], np.complex64)],
    "as many dimensions as can be": [np.full((1,) * (MAX_NDIM - 1), i) for i in range(2)],
    "as many complex dimensions as can be": [np.full((1,) * (MAX_NDIM - 1), 1j * i) for i in range(2)],
    "texts": ["a", "b"],
    "bytes": [b"a", b"b"],
    "tuples": LABELLED,
    "lists": [[1, "a"], [2, "b"]],
    "nothing": [(), ()],
    "dicts": [{"x": 1, "label": "a"}, {"x": 2, "label": "b"}],
    "named tuples": [Point(1, np.arange(2)), Point(2, np.arange(2, 4))],
    "dataclasses": [Boxed("a", np.arange(4)), Boxed("b", np.arange(4, 8))],
    "one in another": [({"inner": [1, Point(2, np.ones(2))]}, "a"), ({"inner": [3, Point(4, np.zeros(2))]}, "b")],
}


@pytest.mark.parametrize("kind", KINDS)
def test_samples_come_out_of_rows_as_they_were(kind: str) -> None:
    samples = KINDS[kind]
    schema = of(samples[0])

    count, rows, texts = put(schema, samples)

    assert count == len(samples)
    assert [unlike(schema.root.sample(rows, texts, i)) for i in range(2)] == list(map(unlike, samples))


@pytest.mark.parametrize("sample", [np.arange(3), np.array([1j])], ids=["array", "complex"])
def test_samples_do_not_keep_the_rows_that_they_come_out_of(sample: NDArray[Any]) -> None:
    schema = of(sample)
    _, rows, texts = put(schema, [sample])

    assert not np.shares_memory(schema.root.sample(rows, texts, 0), rows[0])


@pytest.mark.parametrize(
    ("samples", "batch"),
    [
        (["a", "b"], ["a", "b"]),
        ([("a", 1), ("b", 2)], [("a", "b"), np.array([1, 2])]),
        ([{"x": "a"}, {"x": "b"}], {"x": ["a", "b"]}),
        ([({"x": "a"},), ({"x": "b"},)], [{"x": ["a", "b"]}]),
        (KINDS["complex arrays"], np.array([[1j, 2], [3, 4j]])),
        (KINDS["named tuples"], Point(np.array([1, 2]), np.arange(4).reshape(2, 2))),  # type: ignore[arg-type]
    ],
    ids=["texts", "in tuples", "in dicts", "in dicts in tuples", "complex arrays", "named tuples"],
)
def test_batches_are_those_of_the_default_collation(samples: Sequence[Any], batch: Any) -> None:
    assert unlike(of(samples[0]).root.collate(samples, False, True)) == unlike(batch)
    assert unlike(batch_in_rows(samples)) == unlike(batch)


def test_batches_of_dataclasses_are_made_without_calling_them() -> None:
    samples = KINDS["dataclasses"]
    for batch in (of(samples[0]).root.collate(samples, False, True), batch_in_rows(samples)):
        assert type(batch) is Boxed
        assert (batch.label, batch.box.tolist()) == (["a", "b"], [[0, 1, 2, 3], [4, 5, 6, 7]])


@pytest.mark.parametrize(
    ("sample", "other"),
    [
        (np.zeros(3), np.zeros(3).view(Tagged)),
        (np.zeros(3), np.zeros(1)),
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros(3), [0.0, 0.0, 0.0]),
        (np.zeros(3, np.complex128), np.zeros(1, np.complex128)),
        (np.zeros(3, np.complex128), np.zeros(3, np.complex64)),
        (np.zeros(3, np.complex128), np.zeros(3, np.complex128).view(Tagged)),
        (1, True),
        (1, 1 << 70),
        ("a", b"a"),
        ((1, 2), [1, 2]),
        ((1, 2), (1, 2, 3)),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}),
        ({"x": 1}, OrderedDict(x=1)),
        (Boxed("a", np.zeros(2)), Likewise("a", np.zeros(2))),
        (Point(1, np.zeros(2)), (1, np.zeros(2))),
    ],
    ids=repr,
)
def test_up_to_a_sample_of_another_form_samples_are_written(sample: Any, other: Any) -> None:
    samples = [("first", sample), ("second", sample), ("third", other), ("last", sample)]
    schema = of(samples[0])

    count, rows, texts = put(schema, samples)

    assert count == 2
    assert texts[0] == ["first", "second"]
    assert [unlike(schema.root.sample(rows, texts, i)) for i in range(2)] == list(map(unlike, samples[:2]))
    if type(other) in (bytes, dict):
        return  # they can be collated
    with pytest.raises((UnfitError, OverflowError)):
        schema.root.collate(samples, False, True)


@pytest.mark.parametrize(
    "samples",
    [
        [("a", 1), (b"a", 2)],
        [{"x": 1, "y": "a"}, {"y": "b", "x": 2}],
        [{"x": 1}, {"x": 2, "y": 3}],
    ],
    ids=["texts of two kinds", "keys in another order", "further keys"],
)
def test_collation_follows_the_first_sample_as_the_default_collation_does(samples: list[Any]) -> None:
    assert unlike(of(samples[0]).root.collate(samples, False, True)) == unlike(default_collate(samples))


def test_collation_of_dicts_with_different_keys_raises_a_key_error() -> None:
    with pytest.raises(KeyError):
        of({"x": 1, "y": 2}).root.collate([{"x": 1, "y": 2}, {"x": 1}], False, True)


def test_collation_of_samples_of_another_shape_and_dtype_needs_no_other_schema() -> None:
    samples = [(np.full(5, i, np.uint8), i) for i in range(3)]

    batch = of((np.zeros(3), 1)).root.collate(samples, False, True)

    assert unlike(batch) == unlike([np.stack([array for array, _ in samples]), np.arange(3)])


def in_itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def with_more() -> Likewise:
    made = Likewise("a", np.zeros(2))
    made.more = 1  # type: ignore[attr-defined]
    return made


def of_a_local_class() -> Any:
    class Local(NamedTuple):
        x: int

    return Local(1)


@pytest.mark.parametrize(
    "sample",
    [
        object(),
        Pair((1, 2)),
        Slotted("a"),
        Boxed,
        with_more(),
        in_itself(),
        of_a_local_class(),
        {threading.Lock(): 1},
        np.datetime64("2020-01-01"),
        np.complex128(1j),
        np.zeros(3, ">f8"),
        np.zeros(3, "S2"),
        np.zeros(3).view(Tagged),
        np.zeros((1,) * MAX_NDIM),
    ],
    ids=lambda sample: type(sample).__name__,
)
def test_samples_with_a_collation_of_their_own_have_no_schema(sample: Any) -> None:
    assert schema_of(sample, ArrayBackend()) is None
    assert schema_of((1, sample), ArrayBackend()) is None


def test_types_with_a_registered_collation_have_no_schema() -> None:
    assert schema_of((1, "a"), Special()) is not None
    assert schema_of((1, b"a"), Special()) is None


@pytest.mark.parametrize("together", [1, 2, 100])
def test_samples_up_to_the_size_of_the_cache_are_collated_together(together: int) -> None:
    assert of(np.zeros(TOGETHER_BYTES // together, np.uint8)).together == together


@pytest.mark.parametrize(("nbytes", "together"), [(0, TOGETHER_BYTES), (2 * TOGETHER_BYTES, 1)])
def test_empty_samples_and_large_ones_have_limits_of_collation(nbytes: int, together: int) -> None:
    assert of(np.zeros(nbytes, np.uint8)).together == together
