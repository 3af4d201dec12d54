"""Checkpoints: the position of a pipeline as JSON that is safe to load from strangers.

A sample depends only on its position and the seed of the pipeline. A checkpoint therefore needs a few numbers: the position,
the seed, and the number of batches taken from each source that persists across epochs. Every number is checked. The states
that sources report about themselves are handed back to them unchanged.

Positions count the samples of all ranks. A checkpoint of one rank serves any other rank, and any other number of ranks, as
long as all ranks together take the same number of samples per iteration.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.common.articles import kind_of
from dali_like.errors import CheckpointError
from dali_like.sources.state_format import PIPELINE, PIPELINE_FORMAT, VERSION, SourceProgress, read_state

if TYPE_CHECKING:
    from dali_like.sources.external_source import ExternalSource


@dataclass(frozen=True)
class IteratorPosition:
    """The position of a framework iterator that counts samples.

    Attributes:
        size: samples in an epoch.
        first: samples that the epoch before took from this one.
        count: samples taken, `first` included.
        persists: whether the epoch began within an epoch of the pipelines.
        ended: whether the iterator has raised StopIteration.
    """

    size: int
    first: int
    count: int
    persists: bool
    ended: bool


class Checkpoint(NamedTuple):
    """The position of a pipeline.

    Attributes:
        batch_size: batch size of the pipeline.
        num_shards: number of ranks, each with such a pipeline.
        epoch, iteration: position of the next batch.
        ended: whether `run` has raised StopIteration for the epoch.
        seed: seed of `SampleInfo.rng` and of random operators, given or drawn.
        sources: where each source continues, and its state.
        iterator: position of an iterator over the pipeline, if it counts samples.
    """

    batch_size: int
    num_shards: int
    epoch: int
    iteration: int
    ended: bool
    seed: int
    sources: tuple[SourceProgress, ...]
    iterator: IteratorPosition | None = None

    @property
    def delivered(self) -> tuple[int, ...]:
        """Batches delivered of each source that persists across epochs; 0 for other sources."""
        return tuple(source.position if source.dataset is None else 0 for source in self.sources)

    def to_dict(self) -> dict[str, Any]:
        """Return the checkpoint as values that JSON can hold; see `dali_like.sources.state_format`."""
        fields = self._asdict()
        fields["sources"] = [source.to_dict() for source in self.sources]
        fields["iterator"] = None if self.iterator is None else asdict(self.iterator)
        return {"format": PIPELINE_FORMAT, "version": VERSION, **fields}

    def dumps(self) -> bytes:
        """Return the checkpoint as JSON."""
        return json.dumps(self.to_dict()).encode()

    @classmethod
    def of(cls, given: Any) -> Checkpoint:
        """Return the checkpoint that a user gives: a checkpoint, or the result of `to_dict` or `dumps`; or a list of those.

        Raises:
            CheckpointError: `given` is not a checkpoint, or a list of checkpoints that do not belong together.
        """
        if isinstance(given, (list, tuple)) and not isinstance(given, Checkpoint):
            return cls.merged([cls.of(each) for each in given])
        if isinstance(given, Checkpoint):
            return given
        return cls.from_dict(given) if isinstance(given, Mapping) else cls.loads(given)

    @classmethod
    def merged(cls, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
        """Return the checkpoint of all ranks together, for pipelines with composed datasets.

        Ranks may have finished the epoch, or be at the beginning of the next one, while others are still in it.

        Args:
            checkpoints: of all ranks, in any order.

        Raises:
            CheckpointError: the list is empty, they are of different positions, or a source is not a composed dataset.
        """
        if not checkpoints:
            raise CheckpointError("there are no checkpoints to merge: pass those of all ranks")
        epoch = min(checkpoint.epoch for checkpoint in checkpoints)
        within = [checkpoint for checkpoint in checkpoints if checkpoint.epoch == epoch and not checkpoint.ended]
        first = within[0] if within else checkpoints[0]
        for other in checkpoints:
            is_over = within and (other.ended or (other.epoch, other.iteration) == (epoch + 1, 0))
            names = ("epoch", "iteration", "ended")
            for name in ("batch_size", "num_shards", *(() if is_over else names)):
                if getattr(other, name) != getattr(first, name):
                    raise CheckpointError(
                        f"the checkpoints are of different positions: {name} is {getattr(first, name)} in one and "
                        f"{getattr(other, name)} in another. Take them on all ranks after the same iteration"
                    )
            if len(other.sources) != len(first.sources):
                raise CheckpointError("the checkpoints are of pipelines with different numbers of sources")
        columns = zip(*(_at_end(checkpoint).sources for checkpoint in (first, *checkpoints)), strict=True)
        sources = (_merged_source(i, column[1:], column[0]) for i, column in enumerate(columns))
        return first._replace(sources=tuple(sources))

    def with_changes(self, externals: Sequence[ExternalSource], allow_change: Collection[str]) -> Checkpoint:
        """Return this checkpoint for composed datasets whose descriptions have changed.

        Args:
            externals: the sources.
            allow_change: parts that may have changed.

        Raises:
            CheckpointError: there are other changes.
        """
        sources = list(self.sources)
        for i, external in enumerate(externals[: len(sources)]):  # `check` compares their numbers
            if external.composed is not None and (dataset := sources[i].dataset) is not None:
                sources[i] = sources[i]._replace(dataset=external.composed.checked_state(dataset, allow_change))
        return self._replace(sources=tuple(sources))

    @classmethod
    def loads(cls, data: Any) -> Checkpoint:
        """Return the checkpoint in a JSON text.

        Raises:
            CheckpointError: `data` is not the result of `dumps`.
        """
        if not isinstance(data, (bytes, bytearray, str)):
            raise CheckpointError(
                f"a checkpoint cannot be {kind_of(data)}: pass the result of Pipeline.checkpoint() or of "
                "Pipeline.state_dict()"
            )
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"this is not a checkpoint of a pipeline: {error}") from None
        return cls.from_dict(fields)

    @classmethod
    def from_dict(cls, given: Any) -> Checkpoint:
        """Return the checkpoint that `to_dict` described.

        Raises:
            CheckpointError: an entry is missing, unknown or out of range; or the version is another one.
        """
        fields = read_state(given, PIPELINE, "the checkpoint", CheckpointError)
        del fields["format"], fields["version"]
        sources = tuple(map(SourceProgress.from_dict, fields["sources"]))
        iterator = None if fields["iterator"] is None else IteratorPosition(**fields["iterator"])
        return cls(**{**fields, "sources": sources, "iterator": iterator})

    def with_iterator(self, position: IteratorPosition | None) -> Checkpoint:
        """Return a checkpoint that includes the position of an iterator."""
        return self._replace(iterator=position)

    def check_steps(self, batch_size: int, num_shards: int, *, divides_batches: bool) -> None:
        """Raise unless all ranks together take as many samples in an iteration. Composed datasets do not need that.

        Args:
            batch_size: batch size of the pipeline.
            num_shards: number of ranks.
            divides_batches: whether whole batches are divided among the ranks.

        Raises:
            CheckpointError: they do not.
        """
        if self.batch_size * self.num_shards != batch_size * num_shards:
            there, here = _team(self.batch_size, self.num_shards), _team(batch_size, num_shards)
            hint = "" if self.num_shards == num_shards else "; all ranks together must take as many samples at once"
            raise CheckpointError(f"the checkpoint is of a pipeline with {there}, not {here}{hint}")
        if divides_batches and self.num_shards != num_shards:
            raise CheckpointError(
                f"the checkpoint is of {self.num_shards} ranks, and this pipeline has {num_shards}: with a source of "
                "batches (batch=True), resume with the same number of ranks"
            )

    def check(self, persists: Sequence[bool]) -> None:
        """Raise unless a pipeline can resume from this checkpoint.

        Args:
            persists: for each source, whether it persists across epochs.

        Raises:
            CheckpointError: the checkpoint belongs to another pipeline.
        """
        if len(self.sources) != len(persists):
            raise CheckpointError(f"the checkpoint is of a pipeline with {len(self.sources)} sources, not {len(persists)}")
        for i, (count, can_persist) in enumerate(zip(self.delivered, persists, strict=True)):
            if count and not can_persist:
                raise CheckpointError(f"source {i} is an iterator in the checkpoint, and not in this pipeline")


def _at_end(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose composed datasets are at the beginning of the next epoch if it is at the end of one."""
    if not checkpoint.ended:
        return checkpoint
    place = {"epoch": checkpoint.epoch + 1, "position": 0}
    return checkpoint._replace(
        sources=tuple(
            source if source.dataset is None else source._replace(dataset={**source.dataset, **place})
            for source in checkpoint.sources
        )
    )


def _merged_source(number: int, states: Sequence[SourceProgress], first: SourceProgress) -> SourceProgress:
    """Return the state of a source, given those of all ranks.

    Args:
        first: the state of the rank whose position counts.
    """
    if all(state == first for state in states):
        return first
    datasets = [state.dataset for state in states if state.dataset is not None]
    if len(datasets) < len(states):
        raise CheckpointError(
            f"source {number} has another state on each rank, and is not a composed dataset: load the checkpoint of one rank"
        )
    from dali_like.sources.composed.states import merge_states  # few have composed datasets

    return first._replace(dataset=merge_states(datasets))


def _team(batch_size: int, num_shards: int) -> str:
    return f"batch_size={batch_size}" + (f" on {num_shards} ranks" if num_shards > 1 else "")
