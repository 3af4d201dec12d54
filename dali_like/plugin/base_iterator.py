"""What the iterators of all frameworks have in common: how they take batches of pipelines, and what an epoch is.

Pipelines have epochs of their own, which their sources end. Without a size, they are the iterator's epochs too.

With a size, the iterator takes the batches of the pipelines as one stream, their epochs one behind the other, and ends an
epoch of its own after so many samples. The next one goes on in the stream. But if the pipelines begin and end an epoch
within one of the iterator, they have fewer samples than the size says, and the iterator's epoch ends with theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from dali_like.common.checks import is_int
from dali_like.errors import (
    ArgumentClashError,
    ArgumentTypeError,
    CheckpointError,
    IteratorArgumentError,
    OutputMapError,
)
from dali_like.pipeline.checkpoints import Checkpoint, IteratorPosition
from dali_like.pipeline.pipeline import Pipeline
from dali_like.plugin._bars import EpochBar
from dali_like.plugin._pipelines import Pipelines
from dali_like.plugin.epoch_progress import EpochProgress, LastBatchPolicy
from dali_like.tensors import TensorListCPU

__all__ = ["BaseIterator", "LastBatchPolicy"]


class _Samples(Protocol):
    """One output of a batch, in whatever form: something of which the first samples can be taken."""

    def __getitem__(self, samples: slice, /) -> Any: ...


Value = TypeVar("Value", bound=_Samples)
Batch = TypeVar("Batch")


class BaseIterator(ABC, Generic[Value, Batch]):
    """Iterates over the batches of one or more pipelines, epoch by epoch.

    The plugin of a framework derives from it. It defines `_convert` and, for other batches than lists of dicts, `_combine`.

    Args:
        pipelines: a pipeline, or a list of them that have the same batch size. They advance together: each step takes one
            batch of each. They are built here, and still to be closed by whoever has made them.
        output_map: a name for each output of the pipelines.
        size: samples in an epoch, of all pipelines together. -1: as many as there are until a pipeline ends its epoch; with
            a size, one that the pipelines begin and end within that ends it too.
        reader_name: there are no readers; only None is allowed.
        auto_reset: True or "yes": the next epoch begins at the end of each. False, None or "no": it begins with `reset`, or
            when the next ``for`` loop does; until then ``next`` raises StopIteration.
        fill_last_batch: an older name, which wins over `last_batch_policy`: True is FILL, False is PARTIAL.
        dynamic_shape: without effect: shapes may change from batch to batch.
        last_batch_padded: whether samples of a full last batch beyond the size are padding. If not, FILL counts them for the
            next epoch.
        last_batch_policy: what becomes of the last batch. Without a size: only DROP has an effect.
        prepare_first_batch: take the first batch right now, so that the workers begin, and what is wrong shows. An epoch
            without batches is no error, neither then nor later.
        progress: show a progress bar for each epoch, with the share of the time that the loop waits for batches. Needs tqdm
            (extra ``dali_like[progress]``).

    Raises:
        IteratorArgumentError: an argument has a value that is not allowed.
        ArgumentTypeError: an argument has a type that is not allowed.
        ArgumentClashError: a reader is named, or an epoch is so small that DROP leaves nothing of it.
        OutputMapError: `output_map` does not give a name to each output of the pipelines, or the same one to two.
        MissingExtraError: there is no tqdm for a progress bar.
        CheckpointError: the pipelines go on from what `checkpoints` of iterators with other sizes have returned, or from
            different places.
        Exception: what `Pipeline.build` raises, and `Pipeline.run` for the first batch.
    """

    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: bool | str | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: Any = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
        *,
        progress: bool = False,
    ) -> None:
        if reader_name:
            raise ArgumentClashError(
                f"there is no reader named {reader_name!r}: pipelines have sources instead. Leave reader_name out; epochs "
                "are those of the sources, or have the size that you give"
            )
        self.output_map = _checked_output_map(output_map)
        self._pipelines = Pipelines(pipelines, self.output_map)
        self._size = _checked_size(size)
        self._auto_reset = _checked_auto_reset(auto_reset)
        self._policy = _checked_policy(last_batch_policy, fill_last_batch)
        step = self._pipelines.step_size
        self._progress = EpochProgress(self._size, self._policy, last_batch_padded, step)
        if self._progress.is_complete:
            raise ArgumentClashError(f"with DROP, nothing is left of an epoch of {size} samples: a full batch has {step}")
        self._begun = False  # whether the user has asked for something of this epoch
        self._ended = False  # whether the user has seen its end
        self._goes_on = False  # whether it began within an epoch of the pipelines
        self._bar = EpochBar([pipe._meter for pipe in self._pipelines]) if progress else None
        self._restore()
        self._pipelines.build()
        self._prepares = prepare_first_batch
        if prepare_first_batch:
            self._pipelines.prepare()

    @abstractmethod
    def _convert(self, name: str, output: TensorListCPU) -> Value:
        """Make of an output what is to be delivered, and can be sliced by samples."""

    def _combine(self, batches: list[dict[str, Value]]) -> Batch:
        """Make of what each pipeline has given, by name, what is to be delivered.

        At the end of an epoch under PARTIAL, the last pipelines may be missing.
        """
        return cast(Batch, batches)

    @property
    def batch_size(self) -> int:
        """Samples in a full batch of one pipeline."""
        return self._pipelines.batch_size

    @property
    def size(self) -> int:
        """Samples in an epoch; -1 where the pipelines end it."""
        return self._size

    def __len__(self) -> int:
        """The number of batches in this epoch; when it has ended, in the next.

        Without a size, it is that of the pipelines, for which a last batch that DROP leaves out counts.

        Raises:
            TypeError: there is no size, and a source does not say how long its epochs are.
        """
        if self._size < 0:
            return min(map(len, self._pipelines))
        return self._progress.num_batches(of_next=self._ended)

    def __iter__(self) -> Self:
        """The iterator itself. An epoch that is over is followed by the next one; one that is not goes on."""
        if self._ended or self._progress.is_complete:
            self.reset()
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            StopIteration: the epoch has ended.
            Exception: what `Pipeline.run` raises. The next call goes on with the next batch; what other pipelines have
                already given for this one is not lost.
        """
        self._begun = True
        if self._bar is not None:
            self._bar.begin(self.__len__)
        try:
            outputs = self._take()
        except StopIteration:
            self._ended = True
            if self._bar is not None:
                self._bar.end()
            if self._auto_reset:
                self.reset()
            raise
        batch = self._deliver(outputs)
        if self._bar is not None:
            self._bar.advance()
        return batch

    def next(self) -> Batch:
        """The next batch, as ``next(iterator)``."""
        return next(self)

    def reset(self) -> None:
        """Begin the next epoch, whether or not this one has ended. Without effect if nothing has been taken from it yet.

        An epoch that is cut short is followed by the next one of the pipelines.
        """
        if self._bar is not None:
            self._bar.end()
        if self._progress.is_complete:
            drops_one = self._progress.drops_one
            self._progress.begin_next()
            self._begun = self._ended = False
            self._goes_on = True
            if drops_one:
                self._pipelines.drop()
        elif self._begun or self._ended:
            self._restart_pipelines()
            self._progress.begin_anew()
            self._begun = self._ended = False

    def checkpoints(self) -> list[bytes]:
        """`state_dict` as text, one for each pipeline, for ``Pipeline(checkpoint=...)``: DALI's way to go on.

        Raises:
            ArgumentClashError: the pipelines were made without ``enable_checkpointing``.
        """
        return [checkpoint.dumps() for checkpoint in self._take_checkpoints()]

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator and its pipelines are, as what JSON consists of: an equal iterator goes on with the next batch.

        What may be different there, and what is in it, says `Pipeline.state_dict`. With a size, the ranks must be as many.

        Raises:
            ArgumentClashError: the pipelines were made without ``enable_checkpointing``.
            CheckpointError: JSON cannot hold the state of a source.
        """
        return {"pipelines": [checkpoint.to_dict() for checkpoint in self._take_checkpoints()]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` has returned. At any time; see `Pipeline.load_state_dict`.

        Raises:
            CheckpointError: it is no state, or one of another iterator; or an iterator would have to go back.
        """
        words = state_dict.get("pipelines") if isinstance(state_dict, Mapping) else None
        if not isinstance(words, list):
            raise CheckpointError("this is no state of an iterator over pipelines")
        saved = [Checkpoint.from_dict(each) for each in words]
        if len(saved) != len(self._pipelines):
            raise CheckpointError(f"the state is of an iterator over {len(saved)} pipelines, not {len(self._pipelines)}")
        self._pipelines.load(saved)
        self._progress.begin_anew()
        self._begun = self._ended = self._goes_on = False
        self._restore()
        if self._prepares:
            self._pipelines.prepare()

    def _take_checkpoints(self) -> list[Checkpoint]:
        if not self._pipelines.are_checkpointed:
            raise ArgumentClashError("state_dict() and checkpoints() need pipelines made with enable_checkpointing=True")
        saved = self._pipelines.checkpoints()
        if self._size < 0:
            return saved
        position = IteratorPosition(self._size, *self._progress.position, self._goes_on, self._ended)
        return [checkpoint.with_iterator(position) for checkpoint in saved]

    def _restore(self) -> None:
        """Go on from where an iterator was whose checkpoints the pipelines go on from."""
        restored = self._pipelines.restored
        positions = {None if checkpoint is None else checkpoint.iterator for checkpoint in restored}
        if positions == {None}:
            known = [checkpoint for checkpoint in restored if checkpoint is not None]
            self._begun = any(checkpoint.iteration > 0 for checkpoint in known)
            self._ended = any(checkpoint.ended for checkpoint in known)  # one is enough to end the epoch of all
            return
        position = positions.pop()
        if positions or position is None:
            raise CheckpointError("the pipelines go on from checkpoints that are not of one iterator at one moment")
        if position.size != self._size:
            raise CheckpointError(f"the checkpoints are of an iterator with size={position.size}, not {self._size}")
        self._progress.position = position.first, position.count
        self._begun = position.count > position.first
        self._goes_on, self._ended = position.persists, position.ended

    def _take(self) -> list[Sequence[TensorListCPU]]:
        """What the pipelines give for the next batch that is to be delivered."""
        while not self._progress.is_complete:
            outputs = self._next_step()
            if self._policy is LastBatchPolicy.DROP and any(_length(output) < self.batch_size for output in outputs):
                self._progress.add(sum(map(_length, outputs)))
                continue
            return outputs
        raise StopIteration

    def _deliver(self, outputs: list[Sequence[TensorListCPU]]) -> Batch:
        room = self._progress.room
        self._progress.add(sum(map(_length, outputs)))
        batches = []
        for output in outputs:
            batch = {name: self._convert_any(name, data) for name, data in zip(self.output_map, output, strict=True)}
            if room < _length(output):
                batch = {name: value[:room] for name, value in batch.items()}
            batches.append(batch)
            room -= _length(output)
            if room <= 0:
                break
        return self._combine(batches)

    def _convert_any(self, name: str, output: TensorListCPU | list[Any]) -> Any:
        return output if isinstance(output, list) else self._convert(name, output)  # Python objects stay as they are

    def _next_step(self) -> list[Sequence[TensorListCPU]]:
        """The next batch of each pipeline."""
        try:
            return self._pipelines.take()
        except StopIteration:
            if not self._goes_on:
                raise
        self._restart_pipelines()
        return self._pipelines.take()

    def _restart_pipelines(self) -> None:
        """Let the next step be the first of an epoch of the pipelines."""
        self._goes_on = False
        self._pipelines.reset()


def _length(outputs: Sequence[TensorListCPU]) -> int:
    return len(outputs[0])


def _checked_output_map(output_map: Any) -> list[str]:
    if isinstance(output_map, str) or not all(isinstance(name, str) for name in output_map):
        raise ArgumentTypeError(f"output_map must be a list of names, not {output_map!r}")
    if len(set(output_map)) < len(output_map):
        raise OutputMapError(f"output_map must give each output another name, not {output_map!r}")
    return list(output_map)


def _checked_size(size: Any) -> int:
    if not is_int(size):
        raise ArgumentTypeError(f"size must be an integer, not {size!r}")
    if size < -1 or size == 0:
        raise IteratorArgumentError(
            f"size must be the number of samples in an epoch, or -1 to leave it to the source, not {size}"
        )
    return int(size)


def _checked_auto_reset(auto_reset: Any) -> bool:
    if auto_reset is None or auto_reset is False or auto_reset == "no":
        return False
    if auto_reset is True or auto_reset == "yes":
        return True
    raise IteratorArgumentError(f"auto_reset must be True or 'yes', or False, None or 'no', not {auto_reset!r}")


def _checked_policy(policy: Any, fill: Any) -> LastBatchPolicy:
    if fill is not None:
        return LastBatchPolicy.FILL if fill else LastBatchPolicy.PARTIAL
    if not isinstance(policy, LastBatchPolicy):
        raise ArgumentTypeError(f"last_batch_policy must be a LastBatchPolicy, not {policy!r}")
    return policy
