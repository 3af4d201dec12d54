"""Feeding the inputs of a pipeline: its external sources without a source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dali_like.errors import ArgumentClashError, ArgumentTypeError, ClosedError, InputNameError
from dali_like.graph.nodes import DataNode, Graph, SourceNode
from dali_like.graph.pipeline_arguments import HasArguments

if TYPE_CHECKING:
    from dali_like.graph.inputs import InputPool
    from dali_like.pipeline.runtime import Runtime


class Feedable(HasArguments):
    """The methods that feed. They may be called in any thread, also while another one is in `Pipeline.run`."""

    _graph: Graph | None
    _runtime: Runtime | None

    def feed_input(
        self,
        data_node: DataNode | str,
        data: Any,
        layout: str | None = None,
        cuda_stream: Any = None,
        use_copy_kernel: bool = False,
    ) -> None:
        """Feed an input with the data of one iteration. What is fed is queued, and taken by the next runs, one each.

        Args:
            data_node: the node of the input, or its name.
            data: a batch: a list of arrays, an array whose first dimension counts the samples, or a TensorList. It is
                copied, unless the input has been made with ``no_copy=True``. With ``device="gpu"`` the arrays may be on that
                GPU.
            layout: a letter for each dimension of a sample. Default: that of the tensors, if the data is of such.
            cuda_stream, use_copy_kernel: for arrays on the GPU, see ``fn.external_source``.

        Raises:
            InputNameError: there is no input of that name.
            ArgumentTypeError, ArgumentClashError: `data_node` is something else; or a source that feeds itself.
            SampleError: the data is no batch, or another one than declared or fed before.
        """
        pool = self._input(data_node)
        pool.feed(pool.check(data, layout, cuda_stream, use_copy_kernel or None))

    def _feed_all(self, batches: Mapping[str, Any]) -> None:
        """Feed several inputs, or none of them if something is wrong: later batches must not meet the wrong partners."""
        pools = [self._input(name) for name in batches]
        checked = [pool.check(data, None) for pool, data in zip(pools, batches.values(), strict=True)]
        for pool, fed in zip(pools, checked, strict=True):
            pool.feed(fed)

    def input_feed_count(self, input_name: str) -> int:
        """How many batches DALI wants to be fed before the first run; here, one for each run will do.

        Raises:
            InputNameError: there is no input of that name.
        """
        self._input(input_name)
        return self.cpu_queue_size

    def _input(self, data_node: DataNode | str) -> InputPool:
        if not isinstance(data_node, (str, DataNode)):
            raise ArgumentTypeError(f"an input is a DataNode or the name of one, not a {type(data_node).__qualname__}")
        self._build_once()
        graph, runtime = self._graph, self._runtime  # another thread may be closing the pipeline
        if graph is None or runtime is None:
            raise ClosedError("the pipeline has been closed")
        node = _find(graph, data_node) if isinstance(data_node, str) else data_node.producer
        if not isinstance(node, SourceNode):
            raise ArgumentTypeError(f"{data_node!r} is no input")
        if node.external.kind is not None:
            raise ArgumentClashError(f"{node.external.name} has a `source`, which feeds it; feed_input is for those without")
        if node not in runtime.inputs:
            raise InputNameError(f"{node.external.name} does not belong to this pipeline, or none of its outputs needs it")
        return runtime.inputs[node]

    def _build_once(self) -> None:
        """Build, where that has not been done; without waiting for another thread otherwise."""
        raise NotImplementedError


def _find(graph: Graph, name: str) -> SourceNode:
    for node in graph.sources:
        if node.external.key == name:
            return node
    names = ", ".join(repr(node.external.key) for node in graph.sources if node.external.key) or "none"
    raise InputNameError(f'Could not find an input operator with name "{name}"; those with names: {names}')
