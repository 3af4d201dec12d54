"""Sample schemas: the nesting of a dataset's samples, and the dtypes and shapes of their leaves.

Most datasets return samples of one schema: an image and its label, or a dict of arrays. Once the schema is known, workers
write the leaves of samples directly into rows of the batch's slot. The main process then builds the batch from arrays that
are already there. The result equals that of the default collation, which handles samples that do not fit the schema.

A schema is a tree of nodes: containers, and leaves with one row each. Texts have no rows; they travel in lists. Several
samples are written at a time, to share the overhead of Python and NumPy among them.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import operator
import pickle
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import DTYPE_CODES, DTYPES, MAX_NDIM
from dali_like.engine.memory.slot_layout import OutputSchema

#: For each row number, an array of that row of all samples.
Rows = Sequence[NDArray[Any]]
#: For each text of a schema, a list of the texts of all samples.
Texts = Sequence[list[Any]]

_NUMBERS: dict[type, str] = {bool: "?", int: "i8", float: "f8"}

#: Arrays up to this size are joined and written together: 0.04 us for each instead of 0.2 us.
_MOST_JOINED_BYTES = 1 << 12
#: Samples of about this size are written at a time: they stay in the CPU cache until then.
TOGETHER_BYTES = 1 << 19


class UnfitError(Exception):
    """A part of a sample does not fit any schema."""


class Piece(typing.NamedTuple):
    """Rows of one array.

    Attributes:
        values: the array or tensor.
        numbers: of the rows. Negative ones count from the end.
        places: of the rows in the batch; None: all of it, in order.
    """

    values: Any
    numbers: NDArray[np.int64]
    places: NDArray[np.int64] | None = None

    def checked_numbers(self) -> NDArray[np.int64]:
        """Return the numbers of the rows, none of them negative.

        Raises:
            UnfitError: a number is out of range.
        """
        numbers, length = self.numbers, len(self.values)
        if np.maximum.reduce(numbers.view(np.uint64)) < length:  # negative ones are larger then
            return numbers
        least = numbers.min()
        if least < -length or numbers.max() >= length:
            raise UnfitError
        return np.where(numbers < 0, numbers + length, numbers)


class Column(typing.NamedTuple):
    """The part of a batch that is one leaf of the samples, in the arrays of a dataset; see `dali_like.data.columns`.

    Attributes:
        pieces: make up the whole part.
        size: number of samples.
    """

    pieces: tuple[Piece, ...]
    size: int


class Node(abc.ABC):
    """A part of a schema."""

    @abc.abstractmethod
    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        """Write this part of several samples. Return False if one does not fit; the written data is then void."""

    @abc.abstractmethod
    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        """Return the batch of this part, as from the default collation, with texts in a tuple or a list as there."""

    @abc.abstractmethod
    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        """Return this part of one sample, as from the dataset."""

    @abc.abstractmethod
    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        """Return the batch of this part of several samples that are in no rows. Their shapes may differ from the node's.

        Args:
            values: the parts, at least one.
            in_tuple: as for `batch`.
            contiguous: whether a batch of tensors has contiguous memory, as in rows, also if the samples have not.

        Raises:
            UnfitError: only the default collation handles these values.
            Exception: the default collation fails, too.
        """

    def gather(self, columns: Any, rows: Rows | None) -> Any:
        """Write this part of several samples from the arrays of a dataset to rows; without rows, return the batch.

        Args:
            columns: of this part, nested as a sample.

        Raises:
            UnfitError: the columns do not fit; the written data is then void.
        """
        raise UnfitError


class Leaf(Node):
    """A part with its own row.

    Attributes:
        number: of the row.
        layout: of the row.
    """

    number = -1
    layout: OutputSchema

    @staticmethod
    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, NDArray[Any]]:
        """Return the memory of a batch as the program gets it, and as an array to write to."""
        place = np.empty(shape, dtype)
        return place, place

    def _place_for(self, column: Column, rows: Rows | None) -> tuple[Any, NDArray[Any]]:
        """Return the batch, and where to write it."""
        if rows is not None:
            return None, rows[self.number]
        values = column.pieces[0].values
        return self.allocate((column.size, *values.shape[1:]), values.dtype)


class ArrayLeaf(Leaf):
    """A NumPy array."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.shape = array.shape
        self.layout = layout_of(array.dtype, array.shape)

    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        place, shape = rows[self.number], self.shape
        dtype = place.dtype
        for value in values:
            if value.__class__ is not np.ndarray or value.shape != shape:
                return False
            if value.dtype is not dtype and value.dtype != dtype:  # unpickled arrays have equal copies of a dtype
                return False
        _write(values, place)
        return True

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return rows[self.number]

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        return rows[self.number][i, ...].copy()

    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        first = values[0]
        if not _are(np.ndarray, values):
            raise UnfitError
        dtype, shape = first.dtype, first.shape
        if any(value.shape != shape or value.dtype != dtype for value in values):
            raise UnfitError
        batch, place = self.allocate((len(values), *shape), dtype)
        _write(values, place)
        return batch

    def gather(self, columns: Any, rows: Rows | None) -> Any:
        values = _first_array(columns)
        if values.ndim < 2:  # its rows are numbers
            raise UnfitError
        batch, place = self._place_for(columns, rows)
        gather_rows(columns, place)
        return batch


class ComplexLeaf(ArrayLeaf):
    """A NumPy array of complex numbers. Its row has pairs of real numbers."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.dtype = array.dtype
        self.shape = array.shape
        self.layout = layout_of(np.dtype(f"f{array.dtype.itemsize // 2}"), (*array.shape, 2))

    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        place = rows[self.number].view(self.dtype)[..., 0]
        for i, value in enumerate(values):
            if value.__class__ is not np.ndarray or value.dtype != self.dtype or value.shape != self.shape:
                return False
            place[i, ...] = value
        return True

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return rows[self.number].view(self.dtype)[..., 0]

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        return rows[self.number].view(self.dtype)[i, ..., 0].copy()

    def _place_for(self, column: Column, rows: Rows | None) -> tuple[Any, NDArray[Any]]:
        batch, place = super()._place_for(column, rows)
        return batch, place if rows is None else place.view(self.dtype)[..., 0]


class NumberLeaf(Leaf):
    """A number of Python or NumPy."""

    def __init__(self, number: Any) -> None:
        self.kind = type(number)
        self.layout = layout_of(np.dtype(_NUMBERS.get(self.kind, self.kind)), ())

    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        if not _are(self.kind, values):
            return False
        try:
            rows[self.number][...] = values
        except OverflowError:
            return False
        return True

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return rows[self.number]

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        return self.kind(rows[self.number][i])

    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        if not _are(self.kind, values):
            raise UnfitError
        batch, place = self.allocate((len(values),), DTYPES[self.layout.dtype])
        place[...] = values
        return batch

    def gather(self, columns: Any, rows: Rows | None) -> Any:
        values = _first_array(columns)
        if values.ndim != 1 or values.dtype.type is not self.kind:
            raise UnfitError
        batch, place = self._place_for(columns, rows)
        gather_rows(columns, place)
        return batch


class TextLeaf(Node):
    """A str or bytes."""

    def __init__(self, text: Any) -> None:
        self.number = -1
        self.kind = type(text)

    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        if not _are(self.kind, values):
            return False
        texts[self.number].extend(values)
        return True

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return tuple(texts[self.number]) if in_tuple else texts[self.number]

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        return texts[self.number][i]

    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        if type(values[0]) is not self.kind:  # the default collation looks at no others, either
            raise UnfitError
        kind = tuple if in_tuple else list
        return values if type(values) is kind else kind(values)


class Container(Node):
    """A tuple or list with a fixed number of parts."""

    def __init__(self, kind: type, parts: Sequence[Node]) -> None:
        self.kind = kind
        self.parts = tuple(parts)

    def _columns(self, values: Sequence[Any]) -> Iterable[tuple[Any, ...]] | None:
        """Return the values of each part; None if one of the containers does not fit."""
        if not _are(self.kind, values) or set(map(len, values)) != {len(self.parts)}:
            return None
        return zip(*values, strict=True)

    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        if (columns := self._columns(values)) is None:
            return False
        return all(part.put(column, rows, texts) for part, column in zip(self.parts, columns, strict=True))

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return [part.batch(rows, texts, True) for part in self.parts]

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        return self.kind(part.sample(rows, texts, i) for part in self.parts)

    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        if (columns := self._columns(values)) is None:
            raise UnfitError
        return [part.collate(column, True, contiguous) for part, column in zip(self.parts, columns, strict=True)]

    def gather(self, columns: Any, rows: Rows | None) -> Any:
        if not _are(self.kind, (columns,)) or len(columns) != len(self.parts):
            raise UnfitError
        return [part.gather(column, rows) for part, column in zip(self.parts, columns, strict=True)]


class NamedTuple(Container):
    """A named tuple."""

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return self.kind(*super().batch(rows, texts, in_tuple))

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        return self.kind(*(part.sample(rows, texts, i) for part in self.parts))

    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        return self.kind(*super().collate(values, in_tuple, contiguous))


class Dict(Node):
    """A dict."""

    def __init__(self, parts: Mapping[Any, Node]) -> None:
        self.parts = dict(parts)
        self._keys = tuple(parts)

    @functools.cached_property
    def leaves(self) -> list[tuple[str, int, type | None]] | None:
        """For each part its key, the number of its row, or of its texts, and the type of these. None: not all are leaves."""
        found: list[tuple[str, int, type | None]] = []
        for key, part in self.parts.items():
            if not isinstance(part, (Leaf, TextLeaf)):
                return None
            found.append((key, part.number, part.kind if isinstance(part, TextLeaf) else None))
        return found

    def _columns(self, values: Sequence[Any]) -> Iterable[tuple[Any, ...]] | None:
        """Return the values of each part; None if one of the dicts does not fit."""
        # The order of keys matters: a batch has the order of its first sample.
        if not _are(dict, values) or set(map(tuple, values)) != {self._keys}:
            return None
        return zip(*(value.values() for value in values), strict=True)

    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        if (columns := self._columns(values)) is None:
            return False
        return all(part.put(column, rows, texts) for part, column in zip(self.parts.values(), columns, strict=True))

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return {key: part.batch(rows, texts, False) for key, part in self.parts.items()}

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        return {key: part.sample(rows, texts, i) for key, part in self.parts.items()}

    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        if not _are(dict, values) or tuple(values[0]) != self._keys:
            raise UnfitError
        # As in the default collation, others may have further keys, and another order.
        return {
            key: part.collate([*map(operator.itemgetter(key), values)], False, contiguous)
            for key, part in self.parts.items()
        }

    def gather(self, columns: Any, rows: Rows | None) -> Any:
        if type(columns) is not dict or tuple(columns) != self._keys:
            raise UnfitError
        return {key: part.gather(columns[key], rows) for key, part in self.parts.items()}


class Dataclass(Dict):
    """A dataclass whose instances have no other attributes than its fields."""

    def __init__(self, kind: type, parts: Mapping[Any, Node]) -> None:
        super().__init__(parts)
        self.kind = kind

    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        return _are(self.kind, values) and super().put(list(map(vars, values)), rows, texts)

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return self._made(super().batch(rows, texts, in_tuple))

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        return self._made(super().sample(rows, texts, i))

    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        if not _are(self.kind, values):
            raise UnfitError
        return self._made(super().collate(list(map(vars, values)), in_tuple, contiguous))

    def gather(self, columns: Any, rows: Rows | None) -> Any:
        raise UnfitError

    def _made(self, fields: dict[str, Any]) -> Any:
        value: Any = object.__new__(self.kind)
        vars(value).update(fields)  # works for frozen classes, and does not run __post_init__
        return value


class SampleSchema:
    """The schema of the samples of a dataset; see `dali_like.engine.worker.requests.Schema`.

    Attributes:
        root: the tree.
        layouts: of all rows.
        num_texts: number of texts per sample.
        together: number of samples to write at a time.
    """

    def __init__(self, root: Node, leaves: Sequence[Leaf], num_texts: int) -> None:
        self.root = root
        self.num_texts = num_texts
        self.layouts = tuple(leaf.layout for leaf in leaves)
        nbytes = sum(math.prod(layout.shape or ()) * DTYPES[layout.dtype].itemsize for layout in self.layouts)
        self.together = max(TOGETHER_BYTES // max(nbytes, 1), 1)

    @functools.cached_property
    def packed(self) -> bytes:
        """The pickled schema, for workers."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    def put(self, samples: Sequence[Any], rows: Rows, texts: Texts) -> int:
        """Write samples up to the first one that does not fit. Return how many were written."""
        before = [len(column) for column in texts]
        if self.root.put(samples, rows, texts):
            return len(samples)
        for i, sample in enumerate(samples):
            if not self.root.put([sample], [row[i : i + 1] for row in rows], texts):
                break
        for column, length in zip(texts, before, strict=True):
            del column[length + i :]  # the texts of the first, failed attempt begin with the same
        return i


def _are(kind: type, values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {kind}


def _write(arrays: Sequence[NDArray[Any]], place: NDArray[Any]) -> None:
    """Write arrays of the right dtype and shape into rows, consecutive or at equal distances."""
    if 0 < place.nbytes <= _MOST_JOINED_BYTES * len(arrays):
        buffers: Sequence[Any] = arrays
        try:
            joined = b"".join(buffers)
        except TypeError:  # one is not contiguous
            pass
        else:
            if place.flags.c_contiguous:
                place.data.cast("B")[:] = joined
            else:
                place[...] = np.frombuffer(joined, place.dtype).reshape(place.shape)
            return
    for i, array in enumerate(arrays):
        place[i, ...] = array


def _first_array(column: Any) -> NDArray[Any]:
    """Return the first array of a column.

    Raises:
        UnfitError: it is not a column of arrays.
    """
    if type(column) is not Column or type(column.pieces[0].values) is not np.ndarray:
        raise UnfitError
    values: NDArray[Any] = column.pieces[0].values
    return values


def gather_rows(column: Column, place: NDArray[Any]) -> None:
    """Write the rows of a column.

    Raises:
        UnfitError: they have another dtype or shape.
    """
    for values, _, _ in column.pieces:
        if type(values) is not np.ndarray or values.dtype != place.dtype or values.shape[1:] != place.shape[1:]:
            raise UnfitError
    for piece in column.pieces:
        values, index, places = piece.values, piece.checked_numbers(), piece.places
        if places is not None:
            place[places] = values[index]
        elif values.flags.c_contiguous:
            values.take(index, 0, place, "clip")  # "raise" would write to a copy first
        else:  # it would make a contiguous copy of all rows
            place[...] = values[index]


class SchemaBackend(Protocol):
    """The part of an array backend that schemas depend on."""

    def leaf_of(self, value: Any) -> Leaf | None:
        """Return a leaf for a value that is not a container or text; None if only the default collation handles it."""

    def is_collated_specially(self, value: Any) -> bool:
        """Return whether the program has registered its own collation for values of this type."""


def numpy_leaf(value: Any) -> Leaf | None:
    """Return a leaf for an array or a number; None for other values."""
    if type(value) is np.ndarray:
        return array_leaf(value)
    if type(value) in _NUMBERS or (isinstance(value, np.generic) and value.dtype in DTYPE_CODES):
        return NumberLeaf(value)
    return None


def array_leaf(array: NDArray[Any]) -> Leaf | None:
    """Return a leaf for an array; None if rows cannot hold its elements."""
    if array.ndim > MAX_NDIM - 1:
        return None
    if array.dtype in DTYPE_CODES:
        return ArrayLeaf(array)
    return ComplexLeaf(array) if array.dtype in (np.complex64, np.complex128) else None


def layout_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> OutputSchema:
    """Return the layout of a leaf's row."""
    return OutputSchema(DTYPE_CODES[dtype], len(shape), shape)


def schema_of(sample: Any, array_backend: SchemaBackend) -> SampleSchema | None:
    """Return the schema of a sample; None if a part of it does not fit any schema.

    >>> from dali_like.data.array_backends import ArrayBackend
    >>> schema_of((np.zeros(3), 5, "cat"), ArrayBackend()).num_texts
    1
    """
    leaves: list[Leaf] = []
    texts: list[TextLeaf] = []
    try:
        root = _node_of(sample, array_backend, leaves, texts)
        schema = SampleSchema(root, leaves, len(texts))
        schema.packed  # noqa: B018  # local classes cannot be pickled
    except Exception:  # besides UnfitError: a sample may be any object, and raise anything when it is examined
        return None
    return schema


def nesting_of(sample: Any, array_backend: SchemaBackend) -> Node | None:
    """Return the root of a schema for `Node.collate`; None if a part of the sample does not fit any schema."""
    try:
        return _node_of(sample, array_backend, [], [])
    except (UnfitError, RecursionError):
        return None


def _node_of(value: Any, array_backend: SchemaBackend, leaves: list[Leaf], texts: list[TextLeaf]) -> Node:
    def node_of(part: Any) -> Node:
        return _node_of(part, array_backend, leaves, texts)

    if array_backend.is_collated_specially(value):
        raise UnfitError
    # By the exact class, unlike `dali_like.common.nesting`: a subclass may be collated in another way.
    kind = type(value)
    if kind in (str, bytes):
        texts.append(TextLeaf(value))
        texts[-1].number = len(texts) - 1
        return texts[-1]
    if kind in (tuple, list):
        return Container(kind, list(map(node_of, value)))
    if kind is dict:
        return Dict({key: node_of(part) for key, part in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return NamedTuple(kind, list(map(node_of, value)))
    leaf = array_backend.leaf_of(value)
    if leaf is not None:
        leaf.number = len(leaves)
        leaves.append(leaf)
        return leaf
    if _is_plain_dataclass(value):
        return Dataclass(kind, {name: node_of(part) for name, part in vars(value).items()})
    raise UnfitError


def _is_plain_dataclass(value: Any) -> bool:
    if not dataclasses.is_dataclass(value) or not hasattr(value, "__dict__"):
        return False
    return list(vars(value)) == [field.name for field in dataclasses.fields(value)]
