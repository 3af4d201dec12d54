"""The interface between iterators of a loader and the class that copies its batches to a device. Runs in the main process.

There is one sender for all iterators of a loader. An iterator sends batches that are ready before the program takes them.
They count as delivered only when it does: states of the loader do not depend on copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dali_like.device.copier import CopyTotals
    from dali_like.engine.memory.space import SharedSpace


class SentBatch:
    """Outcome of a batch that has been sent to the device, or the error that stands in its place.

    Attributes:
        answers: of the workers; None if they could not be read.
        batch: the result of `DeviceSender.send`.
        in_host: the batch in host memory, if the iterator keeps it.
        error: raised in place of the batch.
        is_empty: whether there is no batch for the program, because its positions are empty.
    """

    __slots__ = ("answers", "batch", "error", "in_host", "is_empty")

    def __init__(self) -> None:
        self.answers: Mapping[int, Any] | None = None
        self.batch: Any = None
        self.in_host: Any = None
        self.error: Exception | None = None
        self.is_empty = False


class DeviceSender(Protocol):
    """Sends the batches of a loader to a device.

    Attributes:
        num_ahead: the number of batches to send before the program takes them.
        num_delivered: the number of batches that the program has taken.
        totals: statistics of the copies; None if they are not known.
    """

    num_ahead: int
    num_delivered: int
    totals: CopyTotals | None

    def observe(self, space: SharedSpace) -> None:
        """Page-lock the memory of batches in a space, from now on."""

    def can_send(self, turn: int) -> bool:
        """Whether the memory for a batch is free.

        Args:
            turn: `num_delivered`, plus the number of batches that have been sent and not been delivered.
        """

    def send(self, batch: Any, turn: int) -> Any:
        """Begin to copy a batch, and return the argument of `deliver`. The copy keeps the memory of the batch.

        Raises:
            OutOfMemoryError: memory is short. The call can be repeated.
            Exception: the batch cannot be sent, or an earlier copy has failed.
        """

    def deliver(self, sent: Any) -> Any:
        """Return a batch on the device. The streams in use wait for its copy; the caller does not.

        Raises:
            DeviceError: the copy has failed.
        """
