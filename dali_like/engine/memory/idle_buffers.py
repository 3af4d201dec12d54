"""Free buffers by their sizes, and those of them that nobody has asked for in a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar


class Released(Protocol):
    """A free buffer.

    Attributes:
        request: number of the last request before its release.
    """

    @property
    def request(self) -> int: ...


B = TypeVar("B", bound=Released)


def take_idle(free: Mapping[int, deque[B]], last_request: int) -> Iterator[B]:
    """Remove and yield the buffers released at a request or before. Other threads may take buffers meanwhile.

    Args:
        free: for each size, buffers in the order of their release.
        last_request: number of the request.
    """
    for buffers in list(free.values()):
        while buffers and buffers[0].request <= last_request:
            try:
                idle = buffers.popleft()
            except IndexError:  # another thread took it
                break
            yield idle
