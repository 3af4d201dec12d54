"""Running a pipeline in two steps: `schedule_run` for a batch, and `outputs` to have it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dali_like.errors import PipelineStateError
from dali_like.tensors import TensorListCPU
from dali_like.types import PipelineAPIType

if TYPE_CHECKING:
    from dali_like.graph.computation import TensorList


class Schedulable:
    """The methods of DALI's that plugins use, and their queue of batches that nobody has asked for yet.

    Sources and operators work ahead by themselves, whichever way a pipeline is run. Batches are not overwritten, so that
    there is nothing to be released.
    """

    def __init__(self) -> None:
        super().__init__()
        self._scheduled: deque[tuple[TensorList, ...]] = deque()
        self._begins_epoch = True
        self._api: PipelineAPIType | None = None
        self._checks_api = True

    def schedule_run(self) -> None:
        """Have the next batch computed, for `outputs` or `share_outputs`. Without effect when the epoch has ended.

        The first call in an epoch schedules as many batches as ``prefetch_queue_depth`` says.

        Raises:
            PipelineStateError: the pipeline is run by `run`.
            Exception: see `run`.
        """
        self._use_api(PipelineAPIType.SCHEDULED)
        num_batches = self._first_batches() if self._begins_epoch else 1
        self._begins_epoch = False
        for _ in range(num_batches):
            try:
                self._scheduled.append(self._take())
            except StopIteration:
                return

    def share_outputs(self, cuda_stream: Any = None) -> tuple[TensorList, ...]:
        """The batch that was scheduled first.

        Args:
            cuda_stream: see `Pipeline.run`.

        Raises:
            StopIteration: none is scheduled.
            PipelineStateError: the pipeline is run by `run`, or has been closed.
        """
        self._check_open()
        self._use_api(PipelineAPIType.SCHEDULED)
        if not self._scheduled:
            raise StopIteration
        outputs = self._scheduled.popleft()
        let_wait(outputs, cuda_stream)
        return outputs

    outputs = share_outputs

    def release_outputs(self) -> None:
        """Say that the batch last shared is no longer needed. Without effect: batches are not overwritten.

        Raises:
            PipelineStateError: the pipeline is run by `run`.
        """
        self._use_api(PipelineAPIType.SCHEDULED)

    def empty(self) -> bool:
        """Whether no scheduled batch waits for `outputs`."""
        return not self._scheduled

    def enable_api_check(self, enable: bool) -> None:
        """Whether it is an error to run a pipeline both by `run` and by `schedule_run`, as it is by default."""
        self._checks_api = bool(enable)

    def _take(self) -> tuple[TensorList, ...]:
        """The next batch, by whatever way the pipeline is run."""
        raise NotImplementedError

    def _check_open(self) -> None:
        """Raise, unless the pipeline can be used."""
        raise NotImplementedError

    def _first_batches(self) -> int:
        """How many batches the first call schedules."""
        raise NotImplementedError

    def _use_api(self, api: PipelineAPIType) -> None:
        if not self._checks_api:
            return
        if self._api is None:
            self._api = api
        elif self._api is not api:
            raise PipelineStateError(f"Mixing pipeline API type. Currently used: {self._api}, but trying to use {api}")

    def _forget_schedule(self) -> None:
        """Drop what has been scheduled; the next batch begins an epoch."""
        self._scheduled.clear()
        self._begins_epoch = True


def let_wait(outputs: Sequence[Any], cuda_stream: Any) -> None:
    """Let a stream wait until the outputs are there, as far as they are on a GPU; see `Pipeline.run`.

    Raises:
        ArgumentTypeError: it is no stream.
    """
    for output in outputs:
        if not isinstance(output, (TensorListCPU, list)):
            from dali_like.tensors import gpu_tensor_lists  # noqa: PLC0415  # most programs have no need of it

            gpu_tensor_lists.let_wait(outputs, cuda_stream)
            break
