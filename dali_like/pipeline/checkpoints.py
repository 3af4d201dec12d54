"""Checkpoints: how far a pipeline has come, in a form that is safe to load from strangers.

A sample depends on its position and the pipeline's seed alone. So a few numbers are enough: the position, the seed, and for
sources that go on from epoch to epoch how many batches have been taken. They are JSON, and each is checked. What sources say
of themselves is handed back to them as it is.

Positions count the samples of all ranks. So a checkpoint of one rank is good for any other, and for another number of them,
as long as they take as many samples at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from dali_like.errors import CheckpointError

_FORMAT = "dali_like checkpoint"
_VERSION = 2
_LIMIT = 1 << 62
_SEED_LIMIT = 1 << 128


@dataclass(frozen=True)
class IteratorPosition:
    """How far an iterator over pipelines is that counts samples.

    Attributes:
        size: samples in an epoch.
        first: how many of them the epoch before has taken.
        count: how many have been taken, `first` included.
        persists: whether the epoch began within one of the pipelines.
        ended: whether the user has seen its end.
    """

    size: int
    first: int
    count: int
    persists: bool
    ended: bool

    @classmethod
    def of_words(cls, words: Any) -> IteratorPosition | None:
        """The position that has become these words of JSON.

        Raises:
            CheckpointError: there is none that does.
        """
        if words is None:
            return None
        if not isinstance(words, dict) or set(words) != set(cls.__dataclass_fields__):
            raise CheckpointError(f"the checkpoint has a position of an iterator that is none: {words!r}")
        good = all(_is_number(words[name], _LIMIT) for name in ("size", "first", "count"))
        if not good or not all(isinstance(words[name], bool) for name in ("persists", "ended")):
            raise CheckpointError(f"the checkpoint has a position of an iterator that no iterator has: {words!r}")
        return cls(**words)


class Checkpoint(NamedTuple):
    """How far a pipeline has come.

    Attributes:
        batch_size: of the pipeline.
        num_shards: how many ranks there are, each with such a pipeline.
        epoch, iteration: of the next batch.
        ended: whether the end of the epoch has been seen.
        seed: what `SampleInfo.rng` depends on, whether given or drawn.
        passed: for each source that goes on from epoch to epoch, how many batches have been delivered; 0 for others.
        sources: for each source that has a state of its own, what it says of that; None for others.
        iterator: how far an iterator over the pipeline is, if it counts samples.
    """

    batch_size: int
    num_shards: int
    epoch: int
    iteration: int
    ended: bool
    seed: int
    passed: tuple[int, ...]
    sources: tuple[Any, ...]
    iterator: IteratorPosition | None = None

    def words(self) -> dict[str, Any]:
        """The checkpoint as what JSON consists of."""
        words = self._asdict()
        words |= {"passed": list(self.passed), "sources": list(self.sources)}
        words["iterator"] = None if self.iterator is None else asdict(self.iterator)
        return {"format": _FORMAT, "version": _VERSION, **words}

    def dumps(self) -> bytes:
        """The checkpoint as JSON."""
        return json.dumps(self.words()).encode()

    @classmethod
    def of(cls, given: Any) -> Checkpoint:
        """The checkpoint that a user gives: one, or what `words` or `dumps` made of it.

        Raises:
            CheckpointError: it is none.
        """
        if isinstance(given, Checkpoint):
            return given
        return cls.of_words(given) if isinstance(given, Mapping) else cls.loads(given)

    @classmethod
    def loads(cls, data: Any) -> Checkpoint:
        """The checkpoint that `dumps` made these bytes, or this text, of.

        Raises:
            CheckpointError: it did not.
        """
        if not isinstance(data, (bytes, bytearray, str)):
            raise CheckpointError(
                f"a checkpoint is what Pipeline.checkpoint() or state_dict() has returned, not a {type(data).__qualname__}"
            )
        try:
            return cls.of_words(json.loads(data))
        except (ValueError, RecursionError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"this is no checkpoint of a pipeline: {error}") from None

    @classmethod
    def of_words(cls, given: Any) -> Checkpoint:
        """The checkpoint that `words` made these of.

        Raises:
            CheckpointError: it did not.
        """
        words = dict(given) if isinstance(given, Mapping) else {}
        if words.pop("format", None) != _FORMAT:
            raise CheckpointError("this is no checkpoint of a pipeline")
        if (version := words.pop("version", None)) != _VERSION:
            raise CheckpointError(f"the checkpoint is of version {version!r}; this version of dali_like reads {_VERSION}")
        if set(words) != set(cls._fields):
            raise CheckpointError(f"the checkpoint has the entries {sorted(words)}, not {sorted(cls._fields)}")
        passed, sources = words["passed"], words["sources"]
        good = all(_is_number(words[name], _LIMIT) for name in ("batch_size", "num_shards", "epoch", "iteration"))
        good &= _is_number(words["seed"], _SEED_LIMIT) and isinstance(words["ended"], bool)
        good &= isinstance(passed, list) and all(_is_number(count, _LIMIT) for count in passed)
        good &= isinstance(sources, list) and isinstance(passed, list) and len(sources) == len(passed)
        if not good:
            raise CheckpointError("the checkpoint has entries that no checkpoint has; it has been damaged")
        iterator = IteratorPosition.of_words(words["iterator"])
        return cls(**{**words, "passed": tuple(passed), "sources": tuple(sources), "iterator": iterator})

    def with_iterator(self, position: IteratorPosition | None) -> Checkpoint:
        """A checkpoint that says where an iterator is, too."""
        return self._replace(iterator=position)

    def check(self, batch_size: int, num_shards: int, go_on: Sequence[bool], *, divides_batches: bool) -> None:
        """Whether a pipeline can go on from here.

        Args:
            batch_size: of the pipeline.
            num_shards: how many ranks there are.
            go_on: for each of its sources, whether it goes on from epoch to epoch.
            divides_batches: whether whole batches are divided among the ranks.

        Raises:
            CheckpointError: it is another pipeline.
        """
        if self.batch_size * self.num_shards != batch_size * num_shards:
            there, here = _team(self.batch_size, self.num_shards), _team(batch_size, num_shards)
            hint = "" if self.num_shards == num_shards else "; all ranks together must take as many samples at once"
            raise CheckpointError(f"the checkpoint is of a pipeline with {there}, not {here}{hint}")
        if divides_batches and self.num_shards != num_shards:
            raise CheckpointError(
                f"the checkpoint is of {self.num_shards} ranks, and here are {num_shards}; a source that makes batches "
                "(batch=True) goes on with as many ranks only"
            )
        if len(self.passed) != len(go_on):
            raise CheckpointError(f"the checkpoint is of a pipeline with {len(self.passed)} sources, not {len(go_on)}")
        for i, (count, persists) in enumerate(zip(self.passed, go_on, strict=True)):
            if count and not persists:
                raise CheckpointError(f"in the checkpoint, source {i} is an iterator; in this pipeline it is none")


def _team(batch_size: int, num_shards: int) -> str:
    return f"batch_size={batch_size}" + (f" on {num_shards} ranks" if num_shards > 1 else "")


def _is_number(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit
