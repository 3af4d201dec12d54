"""Read-only lists and dicts of Python objects in one shared block of memory.

A list of a million paths is a million objects, and every process that reads one changes its reference count. So each forked
worker soon has its own copy of all pages, and each spawned worker unpickles its own copy. `SharedList` and `SharedDict` hold
the objects as pickles in one block: a sealed file in memory, or a file with a path. All processes map the same block, and an
access unpickles one object.

::

    | pickles of the objects | offsets: n + 1 words | hash table: words, for dicts | footer |

Objects with a file in memory travel to workers by its descriptor, as primitives of `multiprocessing` do. Objects with a path
travel as the path. The problem is described in https://github.com/pytorch/pytorch/issues/13246.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import operator
import os
import pickle
import stat
import struct
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

from dali_like.common.articles import kind_of
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import available_bytes
from dali_like.engine.memory.system_calls import advise_on_shortage, anonymous_file, seal
from dali_like.errors import ArgumentError, ArgumentTypeError, OutOfMemoryError, PicklingError

__all__ = ["SharedDict", "SharedList"]

T = TypeVar("T")
Key = TypeVar("Key")

_MAGIC = b"dlshare1"
_FOOTER = struct.Struct("<8sQQQ")
_WORD_BYTES = 8
#: Written at a time. Before each write, the available memory is compared.
_WRITE_BYTES = 16 << 20
_FIRST_SLOTS = 8
#: A word of the hash table: the upper half of the key's hash, and the number of the pair plus one. 0 is a free word.
_NUMBER_BITS = 32
_NUMBER = (1 << _NUMBER_BITS) - 1


class _Footer(NamedTuple):
    magic: bytes
    num_objects: int
    offsets: int
    num_slots: int


class _MappedBlock:
    """The mapped block of a list or dict: pickles with their offsets, and a hash table.

    Args:
        file: the file of the block. The mapping stays valid when it is closed.
        path: its path; None: a file in memory.

    Attributes:
        nbytes: size of the block.
    """

    def __init__(self, file: Descriptor, path: str | None) -> None:
        self.file = file
        self.path = path
        self.nbytes = os.fstat(file.fileno()).st_size
        if self.nbytes < _FOOTER.size:
            raise ArgumentError(f"{path or 'the file'} holds no shared objects; create it with SharedList(items, path=...)")
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        footer = _Footer(*_FOOTER.unpack(view[-_FOOTER.size :]))
        if footer.magic != _MAGIC:
            raise ArgumentError(f"{path or 'the file'} holds no shared objects; create it with SharedList(items, path=...)")
        table = footer.offsets + (footer.num_objects + 1) * _WORD_BYTES
        self.pickles = view
        self.offsets = view[footer.offsets : table].cast("Q")
        self.table = view[table : table + footer.num_slots * _WORD_BYTES].cast("Q")
        self.count = footer.num_objects

    def load(self, number: int) -> Any:
        """Unpickle an object."""
        offsets = self.offsets
        return pickle.loads(self.pickles[offsets[number] : offsets[number + 1]])

    def reference(self) -> Any:
        """Return an object that becomes this block again when it is unpickled.

        Raises:
            PicklingError: the receiver cannot get the file in memory.
        """
        from multiprocessing import context, reduction  # few programs need it

        if self.path is not None:
            return _BlockReference(self.path)
        if context.get_spawning_popen() is None or self.file.fileno() < 0:
            raise PicklingError(
                "a shared list or dict without a path can only travel to worker processes of this program that start now; "
                "create it with path=, such as a file in /dev/shm"
            )
        return _BlockReference(None, reduction.DupFd(self.file.fileno()))


class _BlockReference:
    """A block in a pickle."""

    def __init__(self, path: str | None, inherited: Any = None) -> None:
        self._path = path
        self._inherited = inherited

    def open(self) -> _MappedBlock:
        """Map the block. Runs in the process that unpickles."""
        if self._path is not None:
            return _open(self._path)
        return _MappedBlock(Descriptor(self._inherited.detach()), None)


def _open(path: str | os.PathLike[str]) -> _MappedBlock:
    path = os.path.abspath(path)
    file = Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    status = os.fstat(file.fileno())
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ArgumentError(
            f"{path} belongs to another user, or others may write to it. Its objects are unpickled, and a pickle can run "
            "any program. Create the file as this user, in a folder that only this user can write to"
        )
    return _MappedBlock(file, path)


class _Writer:
    """Writes a block into a file in memory, or into a new file that replaces the one at a path."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else os.path.abspath(path)
        self._partial = None if self._path is None else f"{self._path}.{os.getpid()}.{os.urandom(4).hex()}.part"
        if self._partial is None:
            self._file = Descriptor(anonymous_file("dali_like_objects"))
        else:
            self._file = Descriptor(os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._pending = bytearray()
        self._offsets = array("Q", [0])

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._file.close()
            if self._partial is not None:
                os.unlink(self._partial)

    def add(self, value: Any, name: str, of: Any) -> None:
        """Append an object.

        Args:
            name: of the object, for messages; `of` is inserted at the braces.

        Raises:
            PicklingError: it cannot be pickled; the message contains its name.
        """
        try:
            data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise PicklingError(f"{name.format(of)}, {kind_of(value)}, cannot be pickled: {error}") from error
        self._pending += data
        self._offsets.append(self._offsets[-1] + len(data))
        if len(self._pending) >= _WRITE_BYTES:
            self._flush()

    def finish(self, table: array[int]) -> _MappedBlock:
        """Write offsets and hash table, and map the block."""
        count = len(self._offsets) - 1
        padding = -self._offsets[-1] % _WORD_BYTES
        self._pending += bytes(padding) + self._offsets.tobytes() + table.tobytes()
        self._pending += _FOOTER.pack(_MAGIC, count, self._offsets[-1] + padding, len(table))
        self._flush()
        if self._path is None or self._partial is None:
            seal(self._file.fileno(), "SHRINK", "GROW", "WRITE")
        else:
            os.replace(self._partial, self._path)
        return _MappedBlock(self._file, self._path)

    def _flush(self) -> None:
        if self._path is None and (available := available_bytes()) < len(self._pending):
            raise OutOfMemoryError(
                f"a shared list or dict needs more than the {available >> 20} MiB that are available; give the process more "
                "memory, or pass path= with a file on a disk"
            )
        view = memoryview(self._pending)
        written = 0
        try:
            while written < len(view):
                written += os.write(self._file.fileno(), view[written:])
        except OSError as error:
            error.add_note(f"while writing a shared list or dict{advise_on_shortage(self._file.fileno())}")
            raise
        finally:
            view.release()
        self._pending.clear()


class _SharedContainer:
    """The common part of lists and dicts: they are immutable, and pickle as references to their block."""

    _block: _MappedBlock

    @property
    def nbytes(self) -> int:
        """Size of the block in bytes."""
        return self._block.nbytes

    @property
    def path(self) -> str | None:
        """Path of the file; None: a file in memory without a name."""
        return self._block.path

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Any:
        """Open objects that another process has written with ``path=``.

        The file must belong to this user, and no other user may have the right to write to it.

        Raises:
            ArgumentError: the file is not of this kind, or others could have written it.
            OSError: the file cannot be read.
        """
        block = _open(path)
        if bool(block.table) != (cls is SharedDict):
            other = "SharedDict" if block.table else "SharedList"
            raise ArgumentError(f"{block.path} holds a {other}; use {other}.open")
        return cls._of(block)

    @classmethod
    def _of(cls, block: _MappedBlock) -> Any:
        made = cls.__new__(cls)
        made._block = block
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_reference, (type(self), self._block.reference())

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __repr__(self) -> str:
        place = "" if self.path is None else f" in {self.path}"
        return f"{type(self).__name__} of {len(self):,} objects, {self.nbytes:,} bytes{place}"  # type: ignore[arg-type]


def _of_reference(kind: type[_SharedContainer], reference: _BlockReference) -> Any:
    return kind._of(reference.open())


class SharedList(_SharedContainer, Sequence[T], Generic[T]):
    """An immutable list whose objects lie in memory that all processes share, as pickles.

    An access unpickles one object, so each access returns another object. Use it in place of a long list of paths, labels or
    annotations in a dataset or a source::

        self.samples = SharedList(samples)

    Forked and spawned workers share the memory of the list. Unrelated processes share it by a file: one process creates
    ``SharedList(items, path="/dev/shm/samples")``, and others call ``SharedList.open("/dev/shm/samples")``.

    Args:
        items: the objects. Each is pickled alone, with everything that belongs to it: keep large common parts elsewhere.
        path: a file for the block. An existing file is replaced when the new one is complete; lists that have it open keep
            the old content. Default: a file in memory without a name, which ends with the last process that has the list.

    Raises:
        PicklingError: an object cannot be pickled; the message has its index.
        OutOfMemoryError: there is not enough memory.

    >>> words = SharedList(["one", "two", "three"])
    >>> words[1], words[-1], len(words)
    ('two', 'three', 3)
    """

    def __init__(self, items: Iterable[T], *, path: str | os.PathLike[str] | None = None) -> None:
        with _Writer(path) as writer:
            for index, item in enumerate(items):
                writer.add(item, "object {}", index)
            self._block = writer.finish(array("Q"))

    def __len__(self) -> int:
        return self._block.count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        block = self._block
        if isinstance(index, slice):
            return [block.load(number) for number in range(*index.indices(block.count))]
        number = operator.index(index)
        if number < 0:
            number += block.count
        if not 0 <= number < block.count:
            raise IndexError(f"index {index} is out of range for a SharedList of {block.count:,} objects")
        found: T = block.load(number)
        return found

    def __iter__(self) -> Iterator[T]:
        return map(self._block.load, range(self._block.count))


class SharedDict(_SharedContainer, Mapping[Key, T], Generic[Key, T]):
    """An immutable dict whose keys and values lie in memory that all processes share, as pickles.

    See `SharedList` for the use. An access hashes the key and unpickles the key and the value.

    Args:
        items: a mapping, or pairs of keys and values. Keys are strings, bytes, numbers, None, or tuples of these.
        path: see `SharedList`.

    Raises:
        ArgumentError: a key occurs twice.
        ArgumentTypeError: a key of another type.
        PicklingError: a key or value cannot be pickled; the message has the key.
        OutOfMemoryError: there is not enough memory.

    >>> sizes = SharedDict({"a.jpg": (640, 480), "b.jpg": (320, 240)})
    >>> sizes["b.jpg"], sizes.get("c.jpg"), list(sizes)
    ((320, 240), None, ['a.jpg', 'b.jpg'])
    """

    def __init__(
        self, items: Mapping[Key, T] | Iterable[tuple[Key, T]], *, path: str | os.PathLike[str] | None = None
    ) -> None:
        hashes: dict[int, None] = {}
        with _Writer(path) as writer:
            for key, value in items.items() if isinstance(items, Mapping) else items:
                hashed = _hash_of(key)
                if hashed in hashes:
                    raise ArgumentError(f"key {key!r} occurs twice")
                hashes[hashed] = None
                writer.add(key, "key {!r}", key)
                writer.add(value, "the value of {!r}", key)
            self._block = writer.finish(_hash_table(hashes))

    def __len__(self) -> int:
        return self._block.count // 2

    def __getitem__(self, key: Key) -> T:
        block = self._block
        hashed = _hash_of(key)
        last = len(block.table) - 1
        slot = hashed & last
        while entry := block.table[slot]:
            if (entry ^ hashed) >> _NUMBER_BITS == 0:
                number = 2 * ((entry & _NUMBER) - 1)
                if block.load(number) == key:
                    found: T = block.load(number + 1)
                    return found
            slot = (slot + 1) & last
        raise KeyError(key)

    def __iter__(self) -> Iterator[Key]:
        return map(self._block.load, range(0, self._block.count, 2))


def _hash_table(hashes: Collection[int]) -> array[int]:
    """Return an open hash table, at most half full: the numbers of pairs by the lower bits of the hashes."""
    slots = _FIRST_SLOTS
    while slots < 2 * len(hashes):
        slots *= 2
    table = array("Q", bytes(slots * _WORD_BYTES))
    for number, hashed in enumerate(hashes):
        slot = hashed & (slots - 1)
        while table[slot]:
            slot = (slot + 1) & (slots - 1)
        table[slot] = hashed & ~_NUMBER | (number + 1)
    return table


def _hash_of(key: Any) -> int:
    """Return a hash of 64 bits that is the same in all processes, as `hash` is not. Equal keys have equal hashes."""
    return int.from_bytes(hashlib.blake2b(_encoded(key), digest_size=_WORD_BYTES).digest(), "little")


def _encoded(key: Any) -> bytes:
    if isinstance(key, str):
        return b"s" + key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, tuple):
        parts = [_encoded(part) for part in key]
        return b"t" + b"".join(itertools.chain.from_iterable((len(part).to_bytes(8, "little"), part) for part in parts))
    if key is None:
        return b"n"
    if isinstance(key, float):
        return b"i%d" % int(key) if key.is_integer() else b"f" + key.hex().encode()
    try:
        return b"i%d" % operator.index(key)
    except TypeError:
        raise ArgumentTypeError(
            f"keys of a SharedDict are strings, bytes, numbers, None, or tuples of these, not {type(key).__qualname__}"
        ) from None
