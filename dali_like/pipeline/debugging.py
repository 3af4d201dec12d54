"""`DebugPipeline`: runs the pipeline's function anew for each batch, step by step, as in DALI's debug mode.

Each source is the only node of a small pipeline without workers, so callbacks, readers and inputs behave as elsewhere.
Everything runs in the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dali_like.common.articles import kind_of
from dali_like.common.interrupts import interruptible
from dali_like.common.tracebacks import user_frames_first
from dali_like.errors import ArgumentTypeError, InputNameError, NoOutputsError, PipelineStateError
from dali_like.graph.execution.batch_runs import BatchId
from dali_like.graph.execution.computation import TensorList
from dali_like.graph.execution.placement import image_limit_bytes
from dali_like.graph.language.conditions import in_scope
from dali_like.graph.language.defining import NO_OUTPUTS
from dali_like.graph.language.nodes import DataNode, SourceNode, check_complete, output_nodes
from dali_like.graph.language.stepping import Computed, current_stepper, stepping
from dali_like.graph.stepwise.debug_run import CallLog, DebugRun
from dali_like.pipeline.expectations import make_expectations
from dali_like.pipeline.pipeline import Pipeline
from dali_like.pipeline.runtime import Runtime
from dali_like.sources.external_source import ExternalSource
from dali_like.sources.sharding import ALONE
from dali_like.tensors import TensorListCPU


class DebugPipeline(Pipeline):
    """A pipeline whose function runs for each batch, and sees the values of nodes; see ``pipeline_def(debug=True)``.

    The methods that ask for the graph, such as `epoch_size` and `serialize`, call the function once more, without values.

    Args:
        function: the pipeline's function, with its arguments. It returns a tuple of outputs.
        options: arguments of `Pipeline`.

    Raises:
        PipelineStateError: the options have a checkpoint.
    """

    def __init__(self, function: Callable[[], tuple[Any, ...]], **options: Any) -> None:
        super().__init__(**options)
        if self._restored is not None:
            raise _refusal("cannot resume from a checkpoint")
        self._function = function
        self._log = CallLog()
        self._sources: list[_DebugSource] = []
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        self._epoch = self._iteration = 0
        self._ended = False

    def define_graph(self) -> Any:
        with in_scope(()):
            return self._function()

    def add_sink(self, edge: DataNode) -> None:
        if current_stepper() is None:  # otherwise it has been computed
            super().add_sink(edge)

    def start_py_workers(self) -> None:
        """Do nothing: the debug mode has no workers."""
        self._check_open()

    def build(self) -> None:
        """Do nothing: each run defines the pipeline anew."""
        self._check_open()

    def _start(self) -> Runtime:
        raise _refusal("has no workers and no checkpoints")

    def load_state_dict(self, *_: Any, **__: Any) -> None:
        raise _refusal("cannot resume from a checkpoint")

    # Running

    def _next_batch(self) -> tuple[TensorList, ...]:
        if self._ended:
            raise StopIteration
        given = self._arguments
        run = DebugRun(
            log=self._log,
            batch_id=self._batch_id,
            capacity=self._batch_size,
            entropy=self._entropy,
            image_limit_bytes=image_limit_bytes(given),
            fetch=self._fetch,
        )
        self._log.begin()
        try:
            with self, in_scope(()), stepping(run), interruptible():
                outputs = output_nodes(self._function())
                check_complete(outputs)
                batch = tuple([node.get() for node in outputs])
        except StopIteration:
            self._ended = True
            raise
        finally:
            self._iteration += 1
        if not outputs:
            raise NoOutputsError(NO_OUTPUTS)
        self._log.end()
        self._expectations = make_expectations(len(batch), given.output_dtype, given.output_ndim, given.output_layout)
        return batch

    def _batch_id(self, sources: Sequence[ExternalSource]) -> BatchId:
        shard = next((source.shard for source in sources if source.shard is not None), ALONE)
        return BatchId(self._epoch, self._iteration, shard.first(self._iteration, self._batch_size))

    def _fetch(self, number: int, external: ExternalSource) -> Computed:
        if number == len(self._sources):
            self._sources.append(self._make_source(number, external))
            waiting, self._waiting = self._waiting, []
            for name, fed in waiting:
                self.feed_input(name, *fed)
        return self._sources[number].batch(self._iteration)

    def _make_source(self, number: int, external: ExternalSource) -> _DebugSource:
        pipe = Pipeline(self._batch_size)
        alone = replace(
            self._arguments,
            prefetch_queue_depth=1,
            py_num_workers=0,
            enable_checkpointing=False,
            output_dtype=None,
            output_ndim=None,
            output_layout=None,
        )
        pipe._adopt(alone, None)
        pipe._entropy = self._entropy
        return _DebugSource(pipe, SourceNode(external.in_process(), number))

    @user_frames_first
    def feed_input(self, data_node: DataNode | str, data: Any, *options: Any, **named: Any) -> None:
        """Feed an input; see `Pipeline.feed_input`. Before the first run, every name is accepted."""
        if not isinstance(data_node, (str, DataNode)):
            raise ArgumentTypeError(f"an input is a DataNode or its name, not {kind_of(data_node)}")
        name = data_node if isinstance(data_node, str) else data_node.name
        source = next((source for source in self._sources if source.key == name), None)
        if source is not None:
            source.pipe.feed_input(name, data, *options, **named)
        elif self._log.is_complete:
            raise InputNameError(f'Could not find an input operator with name "{name}"')
        else:
            self._waiting.append((name, (data, *options, *named.values())))

    def _feed_all(self, batches: Mapping[str, Any]) -> None:
        for name, data in batches.items():
            self.feed_input(name, data)

    def input_feed_count(self, input_name: str) -> int:
        """Return 1: one batch per run."""
        return 1

    # Epochs

    @property
    def _is_endless(self) -> bool:
        return bool(self._sources) and all(source.external.reader is not None for source in self._sources)

    @user_frames_first
    def reset(self) -> None:
        with self._call:
            self._check_open()
            self._meter.pause()
            if self._ended or (self._iteration and not self._is_endless):
                for source in self._sources:
                    source.reset()
                self._epoch += 1
                self._iteration = 0
                self._ended = False
                self._schedule.clear()

    def __iter__(self) -> Iterator[tuple[TensorList, ...]]:
        self._check_open()
        if self._ended:
            self.reset()
        return self

    def _close(self) -> None:
        for source in self._sources:
            source.pipe.close()
        super()._close()


class _DebugSource:
    """A source in a pipeline of its own.

    Args:
        pipe: the pipeline, without outputs yet.
        node: the source.
    """

    def __init__(self, pipe: Pipeline, node: SourceNode) -> None:
        self.pipe = pipe
        self.external = node.external
        self._num_taken = 0
        device = "gpu" if node.external.may_be_on_gpu else "cpu"
        pipe.set_outputs(*(DataNode(node.external.name, device, node, i) for i in range(len(node.external.declared))))

    @property
    def key(self) -> str | None:
        """The name of the input, as given."""
        return self.external.key

    def batch(self, iteration: int) -> Computed:
        """Return the batch of an iteration. Batches of runs that failed before they reached this source are skipped."""
        while self._num_taken <= iteration:
            self._num_taken += 1
            outputs: Any = self.pipe.run()
        return computed_batch(outputs)

    def reset(self) -> None:
        """Begin the next epoch."""
        self.pipe.reset()
        self._num_taken = 0


def computed_batch(outputs: Sequence[Any]) -> Computed:
    """Return the outputs of a source, TensorLists or lists of objects, as the debug mode takes them."""
    lists = [batch if isinstance(batch, list) else batch.as_cpu() for batch in outputs]
    columns = [batch if isinstance(batch, list) else _column(batch) for batch in lists]
    return Computed(tuple(columns), tuple("" if isinstance(batch, list) else batch.layout() for batch in lists))


def _refusal(what: str) -> PipelineStateError:
    return PipelineStateError(f"a pipeline with debug=True {what}: pass debug=False")


def _column(batch: TensorListCPU) -> Any:
    """Return the samples of a batch: one array if it is dense."""
    return batch.as_array() if len(batch) and batch.is_dense_tensor() else [batch.at(i) for i in range(len(batch))]
