"""Exceptions and samples whose classes define anything, and sources and datasets that raise and return them.

Spawned workers import this module, because its classes travel by name. So it needs nothing of pytest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dali_like.types import SampleInfo

NAME = "OddError"

#: Base classes, of exceptions and of samples, with arguments for their constructors.
BASES: dict[type, tuple[Any, ...]] = {
    ValueError: ("bad sample",),
    KeyError: ("bad sample",),
    FileNotFoundError: (2, "not there", "name"),
    AttributeError: ("bad sample",),
    TypeError: ("bad sample",),
    SyntaxError: ("bad sample",),
    ExceptionGroup: ("several", [ValueError("one"), KeyError("other")]),
    object: (),
    list: ([1, 2],),
    tuple: ([1, 2],),
    dict: ({"a": 1},),
    str: ("text",),
    int: (7,),
    np.float32: (7.0,),
}


def fails(*_: Any, **__: Any) -> Any:
    """Raise: the usual oddity."""
    raise LookupError("odd")


def never_ends(*_: Any) -> Any:
    """Recur for ever."""
    return never_ends()


class BrokenList(list[Any]):
    """A list that cannot be read."""

    __iter__ = __len__ = __getitem__ = fails  # type: ignore[assignment]


class BrokenText(str):
    """A text that cannot be read."""

    __slots__ = ()
    __len__ = __getitem__ = __str__ = __iter__ = __contains__ = startswith = partition = fails  # type: ignore[assignment]


#: Possible attributes of a class.
VALUES: dict[str, Callable[[], Any]] = {
    "fails": lambda: fails,
    "failing property": lambda: property(fails),
    "recursion": lambda: never_ends,
    "recursive property": lambda: property(never_ends),
    "nothing": lambda: None,
    "number": lambda: 1,
    "list of a number": lambda: [1],
    "tuple": lambda: (1, b"x", None),
    "bytes": lambda: b"x",
    "broken list": lambda: BrokenList(["x"]),
    "broken texts": lambda: [BrokenText("x"), "y"],
    "lambda": lambda: lambda *_: BrokenText("x"),
    "true": lambda: lambda *_: True,
    "false": lambda: lambda *_: False,
    "zero": lambda: lambda *_: 0,
    "other class": lambda: StopIteration,
    "property with another class": lambda: property(lambda _: StopIteration),
    "surrogate": lambda: "\ud800",
}
ATTRIBUTES = (
    *("__notes__", "__str__", "__repr__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"),
    *(
        "__getattr__",
        "__getattribute__",
        "__setattr__",
        "__delattr__",
        "__dir__",
        "__len__",
        "__bool__",
        "__eq__",
        "__hash__",
    ),
    *("__class__", "__cause__", "__context__", "__traceback__", "__suppress_context__", "__format__", "__iter__"),
    *("args", "with_traceback", "add_note", "exceptions", "message", "filename", "name", "obj", "errno", "strerror", "text"),
)


@dataclass(frozen=True)
class Oddity:
    """A class of exceptions or of samples.

    Attributes:
        base: the base class.
        of_class: attributes of the class, and the names of their values.
        of_instance: the same for attributes of the instance.
    """

    base: type
    of_class: tuple[tuple[str, str], ...]
    of_instance: tuple[tuple[str, str], ...]

    def make(self) -> Any:
        """Return an object; one of a plain class if this class forbids that."""
        try:
            made = type(NAME, (self.base,), {name: VALUES[value]() for name, value in self.of_class})(*BASES[self.base])
            for name, value in self.of_instance:
                object.__setattr__(made, name, VALUES[value]())
        except Exception:  # for example, an exception group needs a hash, and `args` is a tuple
            return type(NAME, (self.base,), {})(*BASES[self.base])
        return made


def oddities(count: int, *, are_errors: bool) -> list[Oddity]:
    """Return the same classes in each process."""
    chosen = random.Random(7)
    bases = [base for base in BASES if issubclass(base, Exception) == are_errors]

    def some(most: int) -> tuple[tuple[str, str], ...]:
        names = chosen.sample(ATTRIBUTES, chosen.randint(0, most))
        return tuple((name, chosen.choice(list(VALUES))) for name in names)

    single = [Oddity(bases[0], ((name, value),), ()) for name in ATTRIBUTES for value in ("fails", "failing property")]
    notes = [Oddity(bases[0], (), (("__notes__", value),)) for value in VALUES] if are_errors else []
    chosen.shuffle(single)
    mixed = [Oddity(chosen.choice(bases), some(4), some(3)) for _ in range(count)]
    return [*notes, *single, *mixed][:count]


def give(oddity: Oddity) -> Any:
    """Raise the exception, or return the sample."""
    made = oddity.make()
    if issubclass(oddity.base, Exception):
        raise made
    return made


@dataclass(frozen=True)
class OddSource:
    """Raises an exception, or returns an odd sample, in every other batch."""

    oddities: Sequence[Oddity]

    def __call__(self, info: SampleInfo) -> Any:
        if info.iteration // 2 >= len(self.oddities):
            raise StopIteration
        if info.iteration % 2 and info.idx_in_batch == 1:
            return give(self.oddities[info.iteration // 2])
        return np.int64(info.idx_in_epoch)


class OddDataset:
    """Raises an exception, or returns an odd sample, for every fourth index."""

    def __init__(self, oddities: Sequence[Oddity]) -> None:
        self.oddities = oddities

    def __len__(self) -> int:
        return 4 * len(self.oddities)

    def __getitem__(self, index: int) -> Any:
        return give(self.oddities[index // 4]) if index % 4 == 3 else index


class OddKey(int):
    """An index whose text cannot be made."""

    __repr__ = __str__ = __format__ = fails


class OddSampler:
    """Yields odd indices; the dataset of `oddities` has four for each."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[list[OddKey]]:
        return ([OddKey(2 * i), OddKey(2 * i + 1)] for i in range(2 * self.count))
