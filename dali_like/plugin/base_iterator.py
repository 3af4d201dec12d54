"""Base class of the iterators for all frameworks. It runs in the main process and defines an epoch of an iterator.

The sources of a pipeline end its epochs. Without a size, the iterator has the same epochs.

With a size, the iterator chains the epochs of the pipelines into one stream and ends its own epoch after `size` samples. The
next epoch continues in the stream. If the pipelines begin and end an epoch within one epoch of the iterator, they have fewer
samples than `size`, and the iterator's epoch ends with theirs.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, cast

from dali_like.common.checks import is_int
from dali_like.common.suggestions import suggest_arguments
from dali_like.common.tracebacks import user_frames_first
from dali_like.errors import (
    ArgumentClashError,
    ArgumentTypeError,
    CheckpointError,
    IteratorArgumentError,
    OutputMapError,
)
from dali_like.pipeline.checkpoints import Checkpoint, IteratorPosition
from dali_like.pipeline.pipeline import Pipeline
from dali_like.plugin._pipelines import Pipelines
from dali_like.plugin.epoch_progress import EpochProgress, LastBatchPolicy
from dali_like.plugin.reader_progress import ReaderProgress
from dali_like.tensors import TensorListCPU

if TYPE_CHECKING:
    from dali_like.monitor.show.progress import EpochBar

__all__ = ["BaseIterator", "LastBatchPolicy"]


logger = logging.getLogger("dali_like")


class _OutputSamples(Protocol):
    """One output of a batch, in the form of a framework. A slice returns its first samples."""

    def __getitem__(self, samples: slice, /) -> Any: ...


Value = TypeVar("Value", bound=_OutputSamples)
Batch = TypeVar("Batch")


class BaseIterator(ABC, Generic[Value, Batch]):
    """Iterate over the batches of one or more pipelines, epoch by epoch.

    The iterators of each framework derive from this class. They define `_convert` and, unless a batch is a list of dicts,
    `_combine`. The arguments follow ``nvidia.dali.plugin.pytorch.DALIGenericIterator`` 1.53.

    Args:
        pipelines: a pipeline, or a list of pipelines of the same batch size. They advance together: each step takes one
            batch of each. The iterator builds them. The caller closes them.
        output_map: a name for each output of the pipelines.
        size: samples in an epoch, over all pipelines together. -1: the epoch ends when the first pipeline ends its own. With
            a size, an epoch also ends if the pipelines begin and end one of theirs within it.
        reader_name: name of a reader in each pipeline. It ends the epochs, after the samples of its shard; so `size` and
            `last_batch_padded` are left out. With FILL and without ``pad_last_batch`` of the reader, the last batch takes
            samples of the next epoch. Also the name of an external source of known length, which ends epochs itself.
        auto_reset: True or "yes": the end of an epoch begins the next one. False, None or "no": `reset` or the next ``for``
            loop begins it. Until then ``next`` raises StopIteration.
        fill_last_batch: older form of `last_batch_policy`, over which it takes precedence: True is FILL, False is PARTIAL.
        dynamic_shape: ignored. Shapes may change from batch to batch.
        last_batch_padded: whether the samples of a full last batch beyond `size` are padding. If not, FILL counts them as
            samples of the next epoch.
        last_batch_policy: the treatment of the last batch. Without a size, FILL and PARTIAL are the same.
        prepare_first_batch: take the first batch in the constructor, so that workers start and errors show early. An epoch
            without batches is not an error.
        progress: show a progress bar for each epoch, with the share of the time that the loop waits for batches, and the
            bottleneck: True or "tqdm" by tqdm, "rich" by rich; see `dali_like.progress`.

    Raises:
        IteratorArgumentError: the value of an argument is not allowed; or `size` or `last_batch_padded` is given beside
            `reader_name`; or readers differ in more than their shard.
        ArgumentTypeError: the type of an argument is not allowed.
        ArgumentClashError: there is no reader named `reader_name`, or DROP leaves no batch in an epoch.
        OutputMapError: `output_map` has a duplicate, or another length than the outputs of the pipelines.
        MissingExtraError: the library of `progress` is not installed.
        CheckpointError: the checkpoints of the pipelines are from an iterator of another size, or from different moments.
        Exception: any error of `Pipeline.build`, and of `Pipeline.run` for the first batch.
    """

    @suggest_arguments
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
        progress: bool | str = False,
    ) -> None:
        if reader_name and (size != -1 or last_batch_padded):
            raise IteratorArgumentError(
                f"size and last_batch_padded come from the reader {reader_name!r}: leave them out beside reader_name"
            )
        self.output_map = _checked_output_map(output_map)
        self._pipelines = Pipelines(pipelines, self.output_map)
        self._auto_reset = _checked_auto_reset(auto_reset)
        self._policy = _checked_policy(last_batch_policy, fill_last_batch)
        self._progress = self._make_progress(_checked_size(size), reader_name, last_batch_padded)
        if self._progress.is_complete:
            raise ArgumentClashError(
                f"LastBatchPolicy.DROP leaves no batch in an epoch of {self._progress.size} samples: a full batch has "
                f"{self._pipelines.step_size}. Pass a larger size, or FILL or PARTIAL"
            )
        self._begun = False  # whether the user has requested a batch of this epoch
        self._ended = False  # whether the user has seen the end of this epoch
        self._began_within = False  # whether this epoch began within an epoch of the pipelines
        self._bar = _bar_of(self._pipelines, progress) if progress is not False else None
        self._restore()
        self._pipelines.build()
        self._prepares = prepare_first_batch
        if prepare_first_batch:
            self._pipelines.prepare()

    def _make_progress(self, size: int, reader_name: str | None, padded: bool) -> EpochProgress | ReaderProgress:
        if reader_name:
            metas = [pipe.reader_meta(reader_name) for pipe in self._pipelines]
            if all(pipe._is_reader(reader_name) for pipe in self._pipelines):
                return ReaderProgress(metas, self._policy, self.batch_size)
        return EpochProgress(size, self._policy, padded, self._pipelines.step_size)

    @abstractmethod
    def _convert(self, name: str, output: TensorListCPU) -> Value:
        """Return an output in the form of the framework. Slicing it must select samples."""

    def _combine(self, batches: list[dict[str, Value]]) -> Batch:
        """Return the batch for the user, from one dict of converted outputs per pipeline.

        With PARTIAL, the last batch of an epoch may lack the last pipelines.
        """
        return cast(Batch, batches)

    @property
    def batch_size(self) -> int:
        """Number of samples in a full batch of one pipeline."""
        return self._pipelines.batch_size

    @property
    def size(self) -> int:
        """Number of samples in an epoch; -1 if the pipelines end it. With a reader: of one shard, in whole batches."""
        return self._progress.size

    @property
    def _size(self) -> int:  # DALI's examples of training read it
        return self.size

    def __len__(self) -> int:
        """Return the number of batches in this epoch, or in the next one if this epoch has ended.

        Without a size, this is the length of the shortest pipeline, and a last batch dropped by DROP counts.

        Raises:
            TypeError: there is no size, and a source has no known length.
        """
        if self._progress.size < 0:
            return min(map(len, self._pipelines))
        return self._progress.num_batches(of_next=self._ended)

    @user_frames_first
    def __iter__(self) -> Self:
        """Return the iterator. Begin the next epoch if this one has ended; otherwise continue this one."""
        if self._ended or self._progress.is_complete:
            self.reset()
        return self

    @user_frames_first
    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            StopIteration: the epoch has ended.
            Exception: any error of `Pipeline.run`. The next call continues with the next batch of that pipeline. It keeps
                the batches that other pipelines have already returned for this step.
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

    @user_frames_first
    def next(self) -> Batch:
        """Return the next batch, as ``next(iterator)``."""
        return next(self)

    @user_frames_first
    def reset(self) -> None:
        """Begin the next epoch, even if this one has not ended. No effect before the first batch of an epoch.

        A reset within an epoch also begins the next epoch of the pipelines. With `reader_name`, the epoch of the reader
        continues, as in DALI.
        """
        if self._bar is not None:
            self._bar.end()
        if self._progress.is_complete:
            must_drop = self._progress.must_drop
            self._progress.begin_next()
            self._begun = self._ended = False
            self._began_within = not self._has_reader
            if must_drop:
                self._pipelines.drop()
            if self._has_reader and not self._pipelines.are_endless:
                self._pipelines.reset()  # begins the next epoch of other sources
        elif self._has_reader:
            if self._ended:  # another source has ended the epoch
                self._pipelines.reset()
                self._ended = False
            elif self._begun:
                logger.warning("reset() has no effect within an epoch of a reader: the epoch continues")
        elif self._begun or self._ended:
            self._restart_pipelines()
            self._progress.restart()
            self._begun = self._ended = False

    @user_frames_first
    def checkpoints(self) -> list[bytes]:
        """Return the state as text for each pipeline, for ``Pipeline(checkpoint=...)``, as DALI's iterators do.

        Raises:
            ArgumentClashError: the pipelines were created without ``enable_checkpointing``.
        """
        return [checkpoint.dumps() for checkpoint in self._take_checkpoints()]

    @user_frames_first
    def state_dict(self) -> dict[str, Any]:
        """Return the position of the iterator and its pipelines as a JSON-serializable dict.

        An equal iterator resumes from it with the next batch. `Pipeline.state_dict` describes the content, and the options
        that may differ on resuming. With a size, the number of ranks must be the same.

        Raises:
            ArgumentClashError: the pipelines were created without ``enable_checkpointing``.
            CheckpointError: the state of a source is not JSON-serializable.
        """
        return {"pipelines": [checkpoint.to_dict() for checkpoint in self._take_checkpoints()]}

    @user_frames_first
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume from a state that `state_dict` has returned. Allowed at any time; see `Pipeline.load_state_dict`.

        Raises:
            CheckpointError: the argument is not a state, or the state of another iterator; or a source would have to move
                its iterator backward.
        """
        states = state_dict.get("pipelines") if isinstance(state_dict, Mapping) else None
        if not isinstance(states, list):
            raise CheckpointError("this is not a state of an iterator over pipelines; pass the result of its state_dict()")
        saved = [Checkpoint.from_dict(each) for each in states]
        if len(saved) != len(self._pipelines):
            raise CheckpointError(f"the state is of an iterator over {len(saved)} pipelines, not {len(self._pipelines)}")
        self._pipelines.load(saved)
        self._progress.restart()
        self._begun = self._ended = self._began_within = False
        self._restore()
        if self._prepares:
            self._pipelines.prepare()

    def _take_checkpoints(self) -> list[Checkpoint]:
        if not self._pipelines.are_checkpointed:
            raise ArgumentClashError(
                "state_dict() and checkpoints() need pipelines made with enable_checkpointing=True: pass it to pipeline_def"
            )
        saved = self._pipelines.checkpoints()
        if self._progress.size < 0:
            return saved
        position = IteratorPosition(self._progress.size, *self._progress.position, self._began_within, self._ended)
        return [checkpoint.with_iterator(position) for checkpoint in saved]

    def _restore(self) -> None:
        """Restore the position of the iterator from the checkpoints that the pipelines resume from."""
        restored = self._pipelines.restored
        positions = {None if checkpoint is None else checkpoint.iterator for checkpoint in restored}
        if positions == {None}:
            known = [checkpoint for checkpoint in restored if checkpoint is not None]
            self._begun = any(checkpoint.iteration > 0 for checkpoint in known)
            self._ended = any(checkpoint.ended for checkpoint in known)  # one pipeline ends the epoch of all
            return
        position = positions.pop()
        if positions or position is None:
            raise CheckpointError("the checkpoints of the pipelines are not from one iterator at one moment")
        self._progress.position = position.first, position.count
        if position.size != self._progress.size:
            size = self._progress.size
            self._progress.restart()
            raise CheckpointError(f"the checkpoints are from an iterator with size={position.size}, not {size}")
        self._begun = position.count > (0 if self._has_reader else position.first)
        self._began_within, self._ended = position.persists, position.ended

    def _take(self) -> list[Sequence[TensorListCPU]]:
        """Return the outputs of each pipeline for the next batch to deliver."""
        while not self._progress.is_complete:
            outputs = self._next_step()
            if self._policy is LastBatchPolicy.DROP and any(_length(output) < self.batch_size for output in outputs):
                self._progress.take([*map(_length, outputs)])
                continue
            return outputs
        raise StopIteration

    def _deliver(self, outputs: list[Sequence[TensorListCPU]]) -> Batch:
        batches = []
        for count, output in zip(self._progress.take([*map(_length, outputs)]), outputs, strict=False):
            batch = {
                # Python objects stay as they are.
                name: data if isinstance(data, list) else self._convert(name, data)
                for name, data in zip(self.output_map, output, strict=True)
            }
            if count < _length(output):
                batch = {name: value[:count] for name, value in batch.items()}
            batches.append(batch)
        return self._combine(batches)

    @property
    def _has_reader(self) -> bool:
        """Whether a reader ends the epochs."""
        return isinstance(self._progress, ReaderProgress)

    def _next_step(self) -> list[Sequence[TensorListCPU]]:
        """Return the next batch of each pipeline, and chain their epochs where this epoch spans two of them."""
        try:
            return self._pipelines.take()
        except StopIteration:
            if not self._began_within:
                raise
        self._restart_pipelines()
        return self._pipelines.take()

    def _restart_pipelines(self) -> None:
        """Begin the next epoch of the pipelines."""
        self._began_within = False
        self._pipelines.reset()


def _bar_of(pipelines: Pipelines, progress: Any) -> EpochBar | None:
    """Return the bar that the argument `progress` asks for."""
    from dali_like.monitor.show.progress import EpochBar, checked_bar  # few programs draw bars

    kind = checked_bar("progress", progress)
    return EpochBar(lambda: [pipe.statistics() for pipe in pipelines], kind) if kind else None


def _length(outputs: Sequence[TensorListCPU]) -> int:
    return len(outputs[0])


def _checked_output_map(output_map: Any) -> list[str]:
    if isinstance(output_map, str) or not all(isinstance(name, str) for name in output_map):
        raise ArgumentTypeError(f"output_map must be a list of names, not {output_map!r}")
    if len(set(output_map)) < len(output_map):
        raise OutputMapError(f"output_map must give each output a different name, not {output_map!r}")
    return list(output_map)


def _checked_size(size: Any) -> int:
    if not is_int(size):
        raise ArgumentTypeError(f"size must be an integer, not {size!r}")
    if size < -1 or size == 0:
        raise IteratorArgumentError(
            f"size must be the number of samples in an epoch, or -1 to let the sources end it, not {size}"
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
