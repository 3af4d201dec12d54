"""The queue of scheduled batches of a pipeline, for `schedule_run` and `outputs`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dali_like.errors import PipelineStateError
from dali_like.tensors import TensorListCPU
from dali_like.types import PipelineAPIType

if TYPE_CHECKING:
    from dali_like.graph.execution.computation import TensorList


class Schedule:
    """Batches scheduled and not yet asked for, and the check against mixing `run` with `schedule_run`.

    Sources and operators work ahead in both ways of running a pipeline.

    Attributes:
        batches: the scheduled batches, oldest first.
        checks_api: whether mixing raises.
        api: how the pipeline has been run; None before.
    """

    def __init__(self) -> None:
        self.batches: deque[tuple[TensorList, ...]] = deque()
        self.checks_api = True
        self._begins_epoch = True
        self.api: PipelineAPIType | None = None

    def use(self, api: PipelineAPIType) -> None:
        """Note how the pipeline is run.

        Raises:
            PipelineStateError: it has been run in the other way before.
        """
        if not self.checks_api:
            return
        if self.api is None:
            self.api = api
        elif self.api is not api:
            raise PipelineStateError(f"Mixing pipeline API type. Currently used: {self.api}, but trying to use {api}")

    def fill(self, take: Callable[[], tuple[TensorList, ...]], first_batches: int) -> None:
        """Schedule the next batch; at the beginning of an epoch, `first_batches` of them. The end of the epoch ends it."""
        num_batches = first_batches if self._begins_epoch else 1
        self._begins_epoch = False
        for _ in range(num_batches):
            try:
                self.batches.append(take())
            except StopIteration:
                return

    def clear(self) -> None:
        """Drop the scheduled batches. The next batch begins an epoch."""
        self.batches.clear()
        self._begins_epoch = True


def wait_on_stream(outputs: Sequence[Any], cuda_stream: Any) -> None:
    """Let a CUDA stream wait for the outputs on a GPU, if there are any; see `dali_like.Pipeline.run`.

    Raises:
        ArgumentTypeError: `cuda_stream` is not a stream.
    """
    for output in outputs:
        if not isinstance(output, (TensorListCPU, list)):
            from dali_like.tensors import gpu_tensor_lists  # lazy: most programs have no GPU outputs

            gpu_tensor_lists.let_wait(outputs, cuda_stream)
            break
