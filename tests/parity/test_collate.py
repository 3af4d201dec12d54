"""Collation by the real PyTorch and by dali_like side by side: the same, with arrays for tensors."""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils.data._utils.collate import collate as torch_collate  # noqa: E402

from dali_like import data  # noqa: E402
from dali_like.sources.collate import collate  # noqa: E402
from tests.conftest import without_addresses  # noqa: E402
from tests.parity.torch_side import BOTH, assert_same_error, outcomes  # noqa: E402

pytestmark = pytest.mark.peers


class Point(NamedTuple):
    x: Any
    y: Any


class Named(list[Any]):
    pass


class Fixed(Sequence[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def plain(value: Any) -> Any:
    """Arrays and tensors as (dtype, shape, values); all else with its type."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return "array", str(value.dtype).removeprefix("torch."), tuple(value.shape), value.tolist()
    if isinstance(value, Mapping):
        return type(value).__name__, {key: plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return type(value).__name__, [plain(part) for part in value]
    return type(value).__name__, value


def assert_same(samples: Any, function: str = "default_collate") -> None:
    theirs, ours = (getattr(module, function)(samples) for module in BOTH)

    assert plain(ours) == plain(theirs)


ZOO: dict[str, Any] = {
    **{dtype: [np.zeros((2, 3), dtype), np.ones((2, 3), dtype)] for dtype in ("?", "u1", "i1", "i2", "i4", "i8")},
    **{dtype: [np.zeros((2, 3), dtype), np.ones((2, 3), dtype)] for dtype in ("u2", "u4", "u8", "f2", "f4", "f8")},
    "complex": [np.zeros(2, "c8"), np.ones(2, "c8")],
    "one array": [np.arange(3)],
    "no dimensions": [np.array(1), np.array(2)],
    "no elements": [np.zeros((0, 3)), np.zeros((0, 3))],
    "columns first": [np.asfortranarray(np.arange(6).reshape(2, 3))] * 2,
    "array and list": [np.zeros(2), [1, 2]],
    "masked": [np.ma.array([1, 2], mask=[False, True])] * 2,
    "int": [1, -2, 2**62],
    "bool": [True, False],
    "bool and int": [True, 2],
    "int and bool": [1, True],
    "float": [0.5, float("inf")],
    "float and int": [0.5, 2],
    "float and large int": [1.0, 2**70],
    "float and bool": [0.5, True],
    "IntEnum": [Level.LOW, Level.HIGH],
    "float32": [np.float32(1), np.float32(2)],
    "float16": [np.float16(1)],
    "uint8": [np.uint8(1), np.uint8(2)],
    "bool_": [np.bool_(True), np.bool_(False)],
    "complex64": [np.complex64(1j)],
    "float32 and float64": [np.float32(1), np.float64(2)],
    "str": ["a", "bc"],
    "bytes": [b"a", b"bc"],
    "str and int": ["a", 1],
    "str_": [np.str_("a")],
    "tuple of str": ("a", "b"),
    "tuple of int": (1, 2),
    "text": "ab",
    "array as batch": np.arange(6).reshape(2, 3),
    "tuples": [(np.zeros(2), 1, "a"), (np.ones(2), 2, "b")],
    "lists": [[1, "a"], [2, "b"]],
    "empty tuples": [(), ()],
    "empty lists": [[], []],
    "empty dicts": [{}, {}],
    "dicts": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
    "dicts of other order": [{"a": 1, "b": 2}, {"b": 3, "a": 4}],
    "dicts with more keys": [{"a": 1}, {"a": 2, "b": 3}],
    "nested": [{"a": [(i, {"b": [np.full(2, i)]})], "c": Point(i, [str(i)])} for i in range(3)],
    "named tuples": [Point(1, 2), Point(3, 4)],
    "OrderedDict": [collections.OrderedDict(b=1, a=2)] * 2,
    "defaultdict": [collections.defaultdict(int, a=1)] * 2,
    "UserDict": [collections.UserDict(a=1)] * 2,
    "mapping proxy": [types.MappingProxyType({"a": 1})] * 2,
    "list subclass": [Named([1, 2]), Named([3, 4])],
    "UserList": [collections.UserList([1, 2])] * 2,
    "deque": [collections.deque([1, 2])] * 2,
    "fixed sequence": [Fixed([1, 2])] * 2,
    "range": [range(3), range(3)],
    "bytearray": [bytearray(b"ab")] * 2,
    "memoryview": [memoryview(b"ab")] * 2,
    "tensors": [torch.zeros(2), torch.ones(2)],
    "tensor views": [torch.arange(6).reshape(2, 3).T, torch.arange(12).reshape(3, 4)[:, ::2]],
    "tensors in dicts": [{"a": torch.tensor(i)} for i in range(3)],
}


@pytest.mark.parametrize("samples", ZOO.values(), ids=ZOO.keys())
def test_batches(samples: Any) -> None:
    assert_same(samples)


LEAVES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans(), st.text(max_size=3), st.binary(max_size=3)
)
STRUCTURES = st.recursive(
    LEAVES.map(lambda leaf: ("leaf", leaf)),
    lambda children: st.one_of(
        st.lists(children, max_size=3).map(lambda parts: ("list", parts)),
        st.lists(children, max_size=3).map(lambda parts: ("tuple", parts)),
        st.dictionaries(st.text(max_size=2), children, max_size=3).map(lambda parts: ("dict", parts)),
        st.tuples(children, children).map(lambda parts: ("point", parts)),
        st.tuples(children, children).map(lambda parts: ("deque", parts)),
    ),
    max_leaves=8,
)


def build(structure: tuple[str, Any]) -> Any:
    kind, content = structure
    match kind:
        case "leaf":
            return content
        case "dict":
            return {key: build(part) for key, part in content.items()}
        case "point":
            return Point(*map(build, content))
        case "deque":
            return collections.deque(map(build, content))
    return list(map(build, content)) if kind == "list" else tuple(map(build, content))


@given(STRUCTURES, st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_batches_of_any_structure(structure: tuple[str, Any], count: int) -> None:
    assert_same([build(structure) for _ in range(count)])


@given(st.lists(st.one_of(st.integers(-(2**70), 2**70), st.booleans(), st.none(), st.text(max_size=1)), min_size=1))
@settings(max_examples=150, deadline=None)
def test_lists_of_anything_make_the_same_batch_or_the_same_kind_of_error(samples: list[Any]) -> None:
    theirs, ours = outcomes(lambda module: module.default_collate(samples))

    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs))
    else:
        assert plain(ours) == plain(theirs)


@pytest.mark.parametrize(
    ("samples", "theirs", "ours"),
    [
        ([1, 0.5], "float32", "float64"),  # PyTorch's default dtype; [0.5, 1] is float64 there, too
        ([2**63, 0.5], "float32", "float64"),
        ([-1, 2**70, 0.5], "float32", "float64"),
        ([np.int64(1), np.float32(0.5)], "float32", "float64"),
        ([np.zeros(1, "i8"), np.zeros(1, "f4")], "float32", "float64"),
        ([np.float32(1), 1], "float32", "float64"),
    ],
)
def test_where_dtypes_differ_numpy_promotes(samples: list[Any], theirs: str, ours: str) -> None:
    batches = [module.default_collate(samples) for module in BOTH]

    assert [str(batch.dtype).removeprefix("torch.") for batch in batches] == [theirs, ours]
    assert batches[0].tolist() == batches[1].tolist()


@pytest.mark.parametrize(
    "samples",
    [
        [np.zeros(2, "M8[s]")],
        [np.zeros(2, "i4,f4")],
        [np.zeros(2, ">f4")],
        [np.zeros(2)[::-1]],
        [np.datetime64("2020-01-01")],
        [np.uint64(2**63)],
        [torch.zeros(2), np.zeros(2)],
    ],
    ids=["datetime", "fields", "byte order", "negative strides", "date", "large number", "tensor and array"],
)
def test_samples_that_pytorch_cannot_collate_become_arrays(samples: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        torch.utils.data.default_collate(samples)

    assert isinstance(data.default_collate(samples), np.ndarray)


# default_convert


@pytest.mark.parametrize(
    "sample",
    [
        1,
        0.5,
        None,
        "a",
        b"a",
        {1, 2},
        np.float32(1),
        np.int8(1),
        np.bool_(True),
        np.str_("a"),
        np.arange(3),
        np.array(["a"]),
        (1, np.zeros(1), "a"),
        [np.zeros(1), (np.float32(1),)],
        Point(np.zeros(1), 2),
        {"a": np.zeros(1), "b": {"c": (np.int64(1),)}},
        collections.OrderedDict(a=np.zeros(1)),
        types.MappingProxyType({"a": np.zeros(1)}),
        range(3),
        bytearray(b"ab"),
        collections.deque([np.zeros(1)]),
        Named([np.zeros(1)]),
        Fixed([np.zeros(1)]),
        torch.zeros(2),
        [torch.zeros(2)],
    ],
    ids=without_addresses,
)
def test_single_samples(sample: Any) -> None:
    theirs, ours = (module.default_convert(sample) for module in BOTH)

    if isinstance(theirs, np.ndarray):
        assert ours is theirs
    else:
        assert plain(ours) == plain(theirs)


# Refusals


@pytest.mark.parametrize(
    "samples",
    [
        [None, None],
        [{1, 2}],
        [object()],
        [1j],
        [np.array(["a"])],
        [np.array([b"a"])],
        [np.array([None])],
        [{"a": None}],
        [(1, None), (2, None)],
        [np.zeros(3), np.zeros(4)],
        [np.zeros(3), np.zeros((3, 1))],
        [np.zeros(3), np.zeros(3), np.zeros(4)],
        [np.zeros(2), 1],
        [[1, 2], [1]],
        [{"a": [1]}, {"a": [1, 2]}],
        [2**63],
        [-(2**63) - 1],
        [1, 2**70],
    ],
    ids=without_addresses,
)
def test_errors(samples: list[Any]) -> None:
    assert_same_error(lambda module: module.default_collate(samples))


@pytest.mark.filterwarnings("ignore:.*(beta|prototype)")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2).to_sparse(),
        lambda: torch.zeros(2, 2).to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    ],
    ids=["sparse", "sparse rows", "nested"],
)
def test_tensors_that_cannot_be_stacked(make: Callable[[], Any]) -> None:
    assert_same_error(lambda module: module.default_collate([make()]))


@pytest.mark.parametrize(
    "samples",
    [[], [{"a": 1, "b": 2}, {"a": 1}], [1, None], [1, "a"], [1.0, "2"], [1.0, None], [[1, 2], 3], 5],
    ids=repr,
)
def test_errors_of_the_same_kind_with_texts_that_say_more(samples: Any) -> None:
    assert_same_error(lambda module: module.default_collate(samples), text=False)


# Functions for types


class Special:
    pass


class MoreSpecial(Special):
    pass


@pytest.mark.parametrize(
    "functions",
    [
        {Special: lambda batch, *, collate_fn_map: ("base", len(batch))},
        {MoreSpecial: lambda batch, *, collate_fn_map: "exact", Special: lambda batch, *, collate_fn_map: "base"},
        {Special: lambda batch, *, collate_fn_map: "base", MoreSpecial: lambda batch, *, collate_fn_map: "exact"},
        {(str, Special): lambda batch, *, collate_fn_map: "one of two"},
        {Special: lambda batch, *, collate_fn_map: sorted(kind.__name__ for kind in collate_fn_map)},
        {object: lambda batch, *, collate_fn_map: "anything"},
    ],
)
@pytest.mark.parametrize("kind", [Special, MoreSpecial])
def test_functions_are_chosen_alike(functions: Any, kind: type[Any]) -> None:
    samples = [{"a": [kind()]}, {"a": [kind()]}]

    assert collate(samples, collate_fn_map=functions) == torch_collate(samples, collate_fn_map=functions)
