"""Collation of samples of each type, and errors."""

from __future__ import annotations

import array
import collections
import dataclasses
import enum
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_like.data import default_collate, default_collate_fn_map, default_convert
from dali_like.errors import CollateError, CollateKeyError, CollateTypeError, SampleIndexError
from dali_like.sources.collate import collate
from dali_like.tensors import TensorCPU


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Box:
    corner: Any
    label: str
    area: Any = dataclasses.field(init=False, default=0.5)

    def __post_init__(self) -> None:
        if not isinstance(self.label, str):
            raise TypeError("a label is a str")


class Named(collections.UserList[Any]):
    """A list with an attribute."""

    name = "none"


class Fixed(Sequence[Any]):
    """An immutable sequence, constructed from its items."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


class Fields(Mapping[str, Any]):
    """A mapping that cannot be constructed from a dict."""

    def __init__(self, x: Any, y: Any) -> None:
        self.fields = {"x": x, "y": y}

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)


class Colour(enum.IntEnum):
    RED = 3
    BLUE = 4


def assert_array(value: Any, expected: Any, dtype: Any) -> None:
    assert type(value) is np.ndarray
    assert value.dtype == dtype
    assert value.tolist() == expected


# Arrays and numbers


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "M8[s]", "i4,f4"])
def test_arrays_get_a_dimension_in_front(dtype: str) -> None:
    for shape in [(), (3,), (2, 0), (2, 3, 2)]:
        samples = [np.zeros(shape, dtype), np.ones(shape, dtype)]

        batch = default_collate(samples)

        assert_array(batch, [samples[0].tolist(), samples[1].tolist()], dtype)
        assert batch.shape == (2, *shape)
        assert batch.flags.c_contiguous


def test_a_batch_is_a_copy() -> None:
    sample = np.zeros(2)
    batch = default_collate([sample])
    sample[:] = 1

    assert batch.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([np.arange(4)[::-1], np.arange(8)[::2]], id="strides"),
        pytest.param([np.asfortranarray(np.arange(6).reshape(2, 3))] * 2, id="columns first"),
        pytest.param([np.arange(3, dtype=">i8")] * 2, id="byte order"),
        pytest.param([np.ma.array([1, 2], mask=[False, True])] * 2, id="masked"),
    ],
)
def test_arrays_of_any_make(samples: list[NDArray[Any]]) -> None:
    assert_array(default_collate(samples), [np.asarray(sample).tolist() for sample in samples], np.int64)


@pytest.mark.parametrize(
    ("samples", "dtype"),
    [
        ([1, 2], np.int64),
        ([True, False], np.bool_),
        ([True, 2], np.int64),
        ([0.5, 1.5], np.float64),
        ([0.5, 2], np.float64),
        ([2, 0.5], np.float64),
        ([2**63, 0.5], np.float64),
        ([-1, 2**70, 0.5], np.float64),
        ([1.5, True], np.float64),
        ([1.0, 2**70], np.float64),
        ([1.0, np.float16(2)], np.float64),
        ([1.0, np.longdouble(2)], np.float64),
        ([2**62, -(2**63), 2**63 - 1], np.int64),
        ([Colour.RED, Colour.BLUE], np.int64),
        ([np.uint8(1), np.uint8(2)], np.uint8),
        ([np.float16(1)], np.float16),
        ([np.float32(1), np.float64(2)], np.float64),
        ([np.uint64(2**63)], np.uint64),
        ([np.bool_(True)], np.bool_),
        ([np.complex64(1j)], np.complex64),
        ([1, np.array(2)], np.int64),
    ],
)
def test_numbers_make_an_array(samples: list[Any], dtype: Any) -> None:
    assert_array(default_collate(samples), np.array(samples).astype(dtype).tolist(), dtype)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.booleans(), min_size=1))
@settings(max_examples=50, deadline=None)
def test_integers_are_kept_exactly(samples: list[int]) -> None:
    assert default_collate(samples).tolist() == samples


@pytest.mark.parametrize("samples", [["a", "bc"], [b"a", b"b"], ("a", "b"), [np.str_("a")], ["a", 1]])
def test_texts_are_left_alone(samples: Any) -> None:
    assert default_collate(samples) is samples


def test_objects_with_the_array_interface_are_collated_as_arrays() -> None:
    batch = default_collate([TensorCPU(np.full((2, 2), i, np.uint8)) for i in range(2)])

    assert_array(batch, [[[0, 0], [0, 0]], [[1, 1], [1, 1]]], np.uint8)


# Containers


def test_tuples_become_lists_of_batches() -> None:
    batch = default_collate([(np.zeros(2), 1, "a"), (np.ones(2), 2, "b")])

    assert type(batch) is list
    assert batch[0].tolist() == [[0, 0], [1, 1]]
    assert batch[1].tolist() == [1, 2]
    assert batch[2] == ("a", "b")


def test_containers_may_be_nested() -> None:
    batch = default_collate([{"a": [{"b": (i, [Point(i, str(i))])}]} for i in range(2)])

    assert batch["a"][0]["b"][0].tolist() == [0, 1]
    assert batch["a"][0]["b"][1][0].x.tolist() == [0, 1]
    assert batch["a"][0]["b"][1][0].y == ("0", "1")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda i: {"x": i, "y": -i}, dict),
        (lambda i: collections.OrderedDict(x=i, y=-i), collections.OrderedDict),
        (lambda i: collections.defaultdict(int, x=i, y=-i), collections.defaultdict),
        (lambda i: types.MappingProxyType({"x": i, "y": -i}), types.MappingProxyType),
        (lambda i: Fields(i, -i), dict),
    ],
)
def test_mappings_keep_their_class_if_it_can_be_constructed(make: Any, kind: type[Any]) -> None:
    samples = [make(1), make(2)]

    batch = default_collate(samples)

    assert type(batch) is kind
    assert {key: value.tolist() for key, value in batch.items()} == {"x": [1, 2], "y": [-1, -2]}
    assert dict(samples[0]) == {"x": 1, "y": -1}


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda i: [i, -i], list),
        (lambda i: Named([i, -i]), Named),
        (lambda i: Fixed([i, -i]), Fixed),
        (lambda i: collections.deque([i, -i]), collections.deque),
        (lambda i: range(i, i - 2 * i - 1, -2 * i), list),
        (lambda i: array.array("q", [i, -i]), list),
        (lambda i: array.array("d", [i, -i]), list),
        (lambda i: Point(i, -i), Point),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_sequences_keep_their_class_if_it_can_be_constructed(make: Any, kind: type[Any], count: int) -> None:
    batch = default_collate([make(1), make(2)][:count])

    assert type(batch) is kind
    assert [value.tolist() for value in batch] == [[1, 2][:count], [-1, -2][:count]]


def test_samples_are_not_changed() -> None:
    samples = [{"a": [1]}, {"a": [2]}]

    default_collate(samples)

    assert samples == [{"a": [1]}, {"a": [2]}]


def test_attributes_of_containers_are_those_of_the_first() -> None:
    samples = [Named([1]), Named([2])]
    samples[0].name = "first"

    assert default_collate(samples).name == "first"


def test_dataclasses_keep_their_class() -> None:
    samples = [Box(np.array([i, i]), f"box {i}") for i in range(2)]

    batch = default_collate(samples)

    assert type(batch) is Box
    assert batch.corner.tolist() == [[0, 0], [1, 1]]
    assert batch.label == ["box 0", "box 1"]
    assert batch.area.tolist() == [0.5, 0.5]
    assert samples[0].label == "box 0"


@pytest.mark.parametrize("samples", [[[], []], [(), ()]])
def test_empty_sequences_make_an_empty_list(samples: list[Any]) -> None:
    assert default_collate(samples) == []


def test_a_batch_may_be_any_sequence() -> None:
    assert default_collate(np.arange(6).reshape(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert default_collate((1, 2)).tolist() == [1, 2]


def test_the_keys_are_those_of_the_first_sample() -> None:
    assert list(default_collate([{"a": 1}, {"a": 1, "b": 2}])) == ["a"]


# Errors


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        ([None, None], "<class 'NoneType'>"),
        ([{1, 2}], "<class 'set'>"),
        ([object()], "<class 'object'>"),
        ([1j], "<class 'complex'>"),
        ([np.array(["a"])], "<U1"),
        ([np.array([b"a"])], r"\|S1"),
        ([np.array([None])], "object"),
        ([np.zeros(1), np.array(["a"])], "<U1"),
        ([1, None], "<class 'NoneType'>"),
        ([1, "a"], "<class 'str'>"),
        ([1.0, None], "<class 'NoneType'>"),
        ([1.0, "2.0"], "<class 'str'>"),
        ([1.0, 1j], "<class 'complex'>"),
        ([1.0, np.complex64(1)], "<class 'float'> and <class 'numpy.complex64'>"),
        ([np.float32(1), "a"], "<class 'str'>"),
        ([1, np.zeros(2)], "<class 'numpy.ndarray'>"),
        ([int], "<class 'type'>"),
        ([np.ndarray], "<class 'type'>"),
        ([Box], "<class 'type'>"),
    ],
)
def test_types_that_make_no_batch(samples: list[Any], found: str) -> None:
    message = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
    message += f"{found}(, in sample .*)?$"

    with pytest.raises(CollateTypeError, match=message):
        default_collate(samples)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            [np.zeros(3), np.zeros(3), np.zeros(4)],
            r"stack expects each tensor to be equal size, but got \[3\] at entry 0 and \[4\] at entry 2",
        ),
        ([np.zeros(3), np.zeros((3, 1))], r"got \[3\] at entry 0 and \[3, 1\] at entry 1"),
        ([np.zeros(2), 1], r"got \[2\] at entry 0 and \[\] at entry 1"),
        ([[1, 2], [1]], "each element in list of batch should be of equal size"),
        ([(1, 2), (1, 2, 3)], "each element in list of batch should be of equal size"),
        ([Point(1, 2), (1,)], "each element in list of batch should be of equal size"),
        ([2**63], "Overflow when unpacking long long"),
        ([2**63, -1], "Overflow when unpacking long long"),
        ([1, 2**70], "Overflow when unpacking long long"),
        ([[1, 2], 3], "the first one is a list, another is an int"),
        ([{"a": 1}, 3], "the first one is a dict, another is an int"),
        ([Box(1, "a"), 3], "the first one is a Box, another is an int"),
    ],
)
def test_samples_that_do_not_go_together(samples: list[Any], message: str) -> None:
    with pytest.raises(CollateError, match=message):
        default_collate(samples)


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy has such texts from 2.0 on")
def test_texts_of_any_length_are_no_numbers() -> None:
    texts = np.array(["a", "bc"], np.dtypes.StringDType())

    with pytest.raises(CollateTypeError, match="must contain tensors, numpy arrays, numbers, dicts or lists; found String"):
        default_collate([texts, texts])


def test_a_missing_key() -> None:
    with pytest.raises(CollateKeyError, match=r"^sample 2 of the batch has no key 'b', unlike the first sample$"):
        default_collate([{"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1}])


def test_no_samples() -> None:
    with pytest.raises(SampleIndexError, match="the batch is empty"):
        default_collate([])


def test_notes_say_where_it_happened() -> None:
    samples = [{"image": (1, Box(corner=None, label="a"))}]

    with pytest.raises(CollateTypeError) as caught:
        default_collate(samples)

    assert caught.value.__notes__ == [
        "in field 'corner' of the samples",
        "in item 1 of the samples",
        "in key 'image' of the samples",
    ]


# Functions for types


class Special:
    pass


class MoreSpecial(Special):
    pass


def test_a_function_for_a_type_is_given_the_samples_and_all_functions() -> None:
    seen = []

    def together(batch: Any, *, collate_fn_map: Any) -> str:
        seen.append((batch, collate_fn_map))
        return "together"

    functions = {Special: together}
    samples = [{"a": MoreSpecial()}, {"a": MoreSpecial()}]

    assert collate(samples, collate_fn_map=functions) == {"a": "together"}
    assert seen == [([samples[0]["a"], samples[1]["a"]], functions)]


def test_the_exact_type_goes_before_a_base_class() -> None:
    functions = {Special: lambda batch, *, collate_fn_map: "base", MoreSpecial: lambda batch, *, collate_fn_map: "exact"}

    assert collate([MoreSpecial()], collate_fn_map=functions) == "exact"


def test_a_key_may_be_several_types() -> None:
    functions = {(Special, str): lambda batch, *, collate_fn_map: f"{len(batch)} together"}

    assert collate([Special(), Special()], collate_fn_map=functions) == "2 together"


def test_functions_go_before_containers() -> None:
    functions = {list: lambda batch, *, collate_fn_map: max(batch, key=len)}

    assert collate([{"a": [1]}, {"a": [1, 2]}], collate_fn_map=functions) == {"a": [1, 2]}


@pytest.mark.parametrize(("samples", "kind"), [([(1,), (2,)], int), ([("a",), ("b",)], str), ([b"a"], bytes)])
def test_without_functions_there_are_only_containers(samples: list[Any], kind: type[Any]) -> None:
    with pytest.raises(CollateTypeError, match=f"found <class '{kind.__name__}'>"):
        collate(samples)


def test_the_functions_of_default_collate_may_be_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_collate_fn_map, Special, lambda batch, *, collate_fn_map: "together")

    assert default_collate([(Special(),), (Special(),)]) == ["together"]


def test_an_error_of_a_function_passes_through() -> None:
    @dataclasses.dataclass(frozen=True)
    class NoSpecialsError(Exception):
        """An immutable one."""

    def failing(batch: Any, *, collate_fn_map: Any) -> None:
        raise NoSpecialsError

    with pytest.raises(NoSpecialsError) as caught:
        collate([[Special()]], collate_fn_map={Special: failing})

    assert caught.value.__notes__ == ["in item 0 of the samples"]


# default_convert


@pytest.mark.parametrize(
    "value", [1, 0.5, None, "a", b"a", {1, 2}, np.str_("a"), np.bytes_(b"a"), bytearray(b"ab"), Special()]
)
def test_default_convert_leaves_other_objects_alone(value: Any) -> None:
    assert default_convert(value) is value


@pytest.mark.parametrize("value", [np.arange(3), np.array(["a"]), np.array([None])])
def test_arrays_are_left_alone(value: Any) -> None:
    assert default_convert(value) is value


@pytest.mark.parametrize("value", [np.float32(0.5), np.int8(3), np.bool_(True), np.datetime64("2020-01-01")])
def test_numbers_of_numpy_become_arrays(value: Any) -> None:
    converted = default_convert(value)

    assert_array(converted, value.tolist(), value.dtype)
    assert converted.ndim == 0


def test_default_convert_makes_arrays_of_objects_with_the_array_interface() -> None:
    assert_array(default_convert(TensorCPU(np.arange(3))), [0, 1, 2], np.int64)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (("a", 1), ["a", 1]),
        (["a", 1], ["a", 1]),
        (Point("a", 1), Point("a", 1)),
        (Named(["a", 1]), Named(["a", 1])),
        (range(2), [0, 1]),
        ({"a": ("b", 1)}, {"a": ["b", 1]}),
        (collections.OrderedDict(a=1), collections.OrderedDict(a=1)),
        (Box(("c", 1), "label"), Box(["c", 1], "label")),
    ],
)
def test_default_convert_keeps_containers_but_makes_lists_of_tuples(value: Any, expected: Any) -> None:
    converted = default_convert(value)

    assert converted == expected
    assert type(converted) is type(expected)


def test_default_convert_converts_the_contents_of_containers() -> None:
    assert_array(default_convert({"a": [(np.float32(1),)]})["a"][0][0], 1.0, np.float32)
