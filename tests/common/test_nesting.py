"""Nested containers: their parts, their leaves, and containers with other parts."""

from __future__ import annotations

import array
import collections
import types
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from dali_like.common.nesting import leaves_of, parts_of, rebuilt


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Box:
    left: Any
    right: Any

    def __post_init__(self) -> None:
        assert isinstance(self.left, int), "only the first object is made by the constructor"


@dataclass
class ArrayOfAClass:
    content: list[int]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.content)


class Pairs(tuple[Any, ...]):
    """A tuple that only its own constructor makes."""

    def __new__(cls, one: Any, other: Any) -> Pairs:
        return super().__new__(cls, (one, other))


CONTAINERS = {
    "dict": ({"a": 1, 2: "b"}, [("a", 1), (2, "b")]),
    "mapping": (types.MappingProxyType({"a": 1}), [("a", 1)]),
    "list": ([1, "b"], [(0, 1), (1, "b")]),
    "tuple": ((1, "b"), [(0, 1), (1, "b")]),
    "named tuple": (Point(1, 2), [("x", 1), ("y", 2)]),
    "dataclass": (Box(1, 2), [("left", 1), ("right", 2)]),
    "other sequence": (collections.UserList([1]), [(0, 1)]),
    "range": (range(2), [(0, 0), (1, 1)]),
    "empty list": ([], []),
}

LEAVES = [1, "text", b"bytes", bytearray(b"a"), array.array("d", [1]), np.arange(2), None, {1, 2}, Box, ArrayOfAClass([1])]


@pytest.mark.parametrize(("value", "parts"), CONTAINERS.values(), ids=CONTAINERS)
def test_container_has_parts_with_keys_names_or_numbers(value, parts):
    assert parts_of(value) == parts


@pytest.mark.parametrize("value", LEAVES, ids=lambda value: type(value).__name__)
def test_leaf_has_no_parts(value):
    assert parts_of(value) is None


def test_leaves_have_the_path_of_all_containers_around_them():
    nested = {"image": 1, "boxes": [Box(2, (3, 4)), Point(5, {"deep": 6})], 7: 8}

    assert dict(leaves_of(nested)) == {
        "image": 1,
        "boxes[0].left": 2,
        "boxes[0].right[0]": 3,
        "boxes[0].right[1]": 4,
        "boxes[1].x": 5,
        "boxes[1].y.deep": 6,
        "7": 8,
    }
    assert list(leaves_of("text")) == [("", "text")]
    assert list(leaves_of([])) == []


@pytest.mark.parametrize("name", [name for name in CONTAINERS if name != "range"])
def test_rebuilt_container_has_the_class_and_keys_of_its_model(name):
    model, parts = CONTAINERS[name]

    made = rebuilt(model, [f"part {key}" for key, _ in parts])

    assert type(made) is type(model)
    assert parts_of(made) == [(key, f"part {key}") for key, _ in parts]


def test_rebuilt_container_leaves_its_model_as_it_is():
    model = collections.OrderedDict(a=[1])

    rebuilt(model, ["other"])

    assert model == {"a": [1]}


@pytest.mark.parametrize(
    ("model", "parts", "expected"),
    [
        (range(2), ["a", "b"], ["a", "b"]),
        (array.array("q", [1, 2]), ["a", "b"], ["a", "b"]),
        (Pairs(1, 2), ["a", "b"], ("a", "b")),
    ],
    ids=["range", "typed sequence", "tuple with a constructor of its own"],
)
def test_container_that_cannot_hold_the_parts_becomes_a_plain_one(model, parts, expected):
    made = rebuilt(model, parts)

    assert type(made) is type(expected)
    assert made == expected


def test_attributes_of_a_mapping_stay_when_it_is_rebuilt():
    class Named(dict[str, Any]):
        name = ""

    model = Named(a=1)
    model.name = "kept"

    assert rebuilt(model, [2]).name == "kept"
