"""Checkpoints of dynamic mode: the states of readers and random generators, in one file.

>>> import dali_like.experimental.dynamic as ndd
>>> rng = ndd.random.RNG(seed=1)
>>> checkpoint = ndd.checkpoint.Checkpoint()
>>> checkpoint.register(rng, "augmentation")
'augmentation'
>>> checkpoint.collect()
>>> text, following = checkpoint.serialize(), rng()
>>> again, other = ndd.checkpoint.Checkpoint(), ndd.random.RNG(seed=2)
>>> again.deserialize(text)
>>> again.register(other, "augmentation")  # takes the state
'augmentation'
>>> other() == following
True
"""

from __future__ import annotations

import glob
import json
import os
import re
import string
from typing import Any

from dali_like.common.articles import kind_of, with_article
from dali_like.errors import ArgumentError, CheckpointError, CheckpointNameError, CheckpointTypeError, MissingFileError
from dali_like.experimental.dynamic.evaluation import EvalContext

__all__ = ["Checkpoint", "current"]

#: Of DALI 2.4.0. States themselves are of this library.
_VERSION = 2
#: Names that objects without a name get begin so.
_NAMELESS = "__op_"


class Checkpoint:
    """The states of readers and generators, by name.

    `register` names an object. If a state of its name has been loaded, the object continues from there. `collect` takes the
    states of all objects.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all objects and states."""
        self._members: dict[str, Any] = {}
        #: States, with the class names of their objects; None if these are not known.
        self._states: dict[str, tuple[Any, str | None]] = {}
        self._pending: set[str] = set()
        self._is_complete = self._is_loaded = False
        self._next_number: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the states are those of the last `collect`."""
        return self._is_complete

    @property
    def is_loaded(self) -> bool:
        """Whether the states are those of the last `load` or `deserialize`."""
        return self._is_loaded

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the objects."""
        return tuple(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return str(name) in self._members

    def register(self, op: Any, name: str | None = None) -> str:
        """Add an object. It takes the state of its name, if one has been loaded or set.

        Args:
            op: a reader, a generator, or another object with ``get_state`` and ``set_state``.
            name: its name. Default: a number, in the order of the calls.

        Returns:
            The name.

        Raises:
            ArgumentError: the name is empty, or one of those that objects without a name get.
            CheckpointError: the checkpoint is complete, or the object has another name.
            CheckpointNameError: the loaded checkpoint has no state of that name.
            CheckpointTypeError: the state, or the earlier object of that name, is of another class.
        """
        known = next((key for key, member in self._members.items() if member is op), None)
        if name is not None and (not name or name.startswith(_NAMELESS)):
            raise ArgumentError(f"the name of an object must not be empty, nor begin with {_NAMELESS!r}: {name!r}")
        if name is not None and known not in (None, name):
            raise CheckpointError(f"the object {known!r} cannot have a second name, {name!r}")
        key = known or name or f"{_NAMELESS}{len(self._members)}"
        earlier = self._members.get(key)
        if earlier is None and self._is_complete:
            raise CheckpointError(
                f"a checkpoint after collect() takes no other objects, such as {key!r}: call clear() first"
            )
        if earlier is None and self._is_loaded and key not in self._states:
            raise CheckpointNameError(f"the loaded checkpoint has no state of {key!r}; it has {sorted(self._states)}")
        if earlier is not None and type(earlier) is not type(op):
            raise CheckpointTypeError(f"{key!r} is {kind_of(earlier)}, not {kind_of(op)}")
        self._members[key] = op
        self._apply(key)
        return key

    def get_state(self, name: str) -> Any:
        """Return the state of an object; None if it has none yet.

        Raises:
            CheckpointNameError: no object has that name.
        """
        if name not in self:
            raise CheckpointNameError(f"no object has the name {name!r}; there are {list(self._members)}")
        return self._states.get(str(name), (None, None))[0]

    def set_state(self, name: str, value: Any, op_type: Any = None) -> None:
        """Set the state of an object, for the next `register` of its name, or `restore`.

        Args:
            name: of an object, or of one to come.
            value: what its ``set_state`` takes.
            op_type: its class, or the name of it, to be compared.

        Raises:
            CheckpointNameError: the checkpoint is complete, and has no object of that name.
            CheckpointTypeError: `op_type` is neither a class nor a name.
        """
        if self._is_complete and name not in self:
            raise CheckpointNameError(f"no object has the name {name!r}; there are {list(self._members)}")
        kind = op_type.__qualname__ if isinstance(op_type, type) else op_type
        if kind is not None and not isinstance(kind, str):
            raise CheckpointTypeError(f"`op_type` must be a class or a string, not {op_type!r}")
        self._states[str(name)] = value, kind
        self._pending.add(str(name))

    def collect(self) -> None:
        """Take the states of all objects.

        Raises:
            CheckpointError: a state has no object.
        """
        self._check_objects()
        self._states = {key: (member.get_state(), type(member).__qualname__) for key, member in self._members.items()}
        self._pending.clear()
        self._is_complete, self._is_loaded = True, False

    def restore(self) -> None:
        """Let all objects take the states that were loaded or set since.

        Raises:
            CheckpointError: an object has no state, or a state no object.
            CheckpointTypeError: see `register`.
        """
        if not self._states:
            return
        self._check_objects()
        if missing := sorted(self._members.keys() - self._states.keys()):
            raise CheckpointError(f"the checkpoint has no states of {missing}")
        for key in sorted(self._pending):
            self._apply(key)

    def serialize(self) -> str:
        """Return the states as JSON.

        Raises:
            CheckpointError: no state has been collected, loaded or set.
        """
        if not self._states:
            raise CheckpointError("the checkpoint is empty: call collect() first")
        states = {key: {"state": str(state), "type": kind} for key, (state, kind) in self._states.items()}
        return json.dumps({"version": _VERSION, "states": states})

    def deserialize(self, data: str) -> None:
        """Take the place of all states by those of a result of `serialize`.

        Raises:
            CheckpointError: `data` is something else.
        """
        try:
            content = json.loads(data)
            version, states = content.get("version", 0), content["states"]
            read = {str(key): (str(entry["state"]), entry.get("type")) for key, entry in states.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError("this is not a checkpoint of dynamic mode") from error
        if version != _VERSION:
            raise CheckpointError(f"Unsupported checkpoint format version {version}; expected {_VERSION}")
        self._states, self._pending = read, set(read)
        self._is_complete, self._is_loaded = False, True

    def save(self, filename: str) -> str:
        """Write the states to a new file.

        Args:
            filename: a path with a place for a number, such as ``"state_{seq:04d}.json"``, which is that of the last file
                plus one.

        Returns:
            The path.

        Raises:
            ArgumentError: the place for the number is missing, or there are others.
            CheckpointError: no state has been collected, loaded or set.
        """
        if self._next_number is None:
            self._next_number = 1 + max((number for number, _ in _numbered(filename)), default=-1)
        while os.path.exists(path := filename.format(seq=self._next_number)):
            self._next_number += 1
        text = self.serialize()
        if folder := os.path.dirname(path):
            os.makedirs(folder, exist_ok=True)
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.tmp", path)
        self._next_number += 1
        return path

    def load(self, filename: str) -> str:
        """Read the states from the file with the highest number.

        Args:
            filename: as for `save`.

        Returns:
            The path.

        Raises:
            ArgumentError: see `save`.
            CheckpointError: the file is not a checkpoint.
            MissingFileError: there is no file.
        """
        number, path = max(_numbered(filename), default=(-1, ""))
        if number < 0:
            raise MissingFileError(f"No checkpoint file matches filename {filename!r}", filename)
        with open(path, encoding="utf-8") as file:
            self.deserialize(file.read())
        self._next_number = number + 1
        return path

    def _apply(self, key: str) -> None:
        """Let an object take a state that it has not taken yet."""
        if key not in self._pending:
            return
        state, kind = self._states[key]
        member = self._members[key]
        if kind is not None and type(member).__qualname__ != kind:
            raise CheckpointTypeError(f"the state of {key!r} is of {with_article(kind)}, the object is {kind_of(member)}")
        member.set_state(state)
        self._pending.discard(key)

    def _check_objects(self) -> None:
        if extra := sorted(self._states.keys() - self._members.keys()):
            raise CheckpointError(f"the checkpoint has states of {extra}, and no such objects: register them first")


def current() -> Checkpoint:
    """Return the checkpoint of the current `EvalContext`."""
    return EvalContext.current().checkpoint


def _numbered(filename: str) -> list[tuple[int, str]]:
    """Return the numbers and paths of the files of a pattern."""
    parts = [*string.Formatter().parse(filename)]
    fields = [field for _, field, _, _ in parts if field is not None]
    if fields != ["seq"]:
        raise ArgumentError(f"the name of a checkpoint file needs one place for a number, {{seq}}, not {filename!r}")
    literals = [(literal, field is not None) for literal, field, _, _ in parts]
    pattern = re.compile("".join(re.escape(literal) + (r"(\d+)" if is_number else "") for literal, is_number in literals))
    paths = glob.iglob("".join(glob.escape(literal) + ("*" if is_number else "") for literal, is_number in literals))
    return [(int(found[1]), path) for path in paths if (found := pattern.fullmatch(path)) is not None]
