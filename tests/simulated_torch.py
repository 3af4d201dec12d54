"""The functions of ``torch.cuda`` that steps and measurements use, for tensors in host memory: all work runs at once.

A captured graph records the operations on tensors, and runs them again.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

_handles = itertools.count(7000)


class Stream:
    def __init__(self, handle: int | None = None) -> None:
        self.cuda_stream = next(_handles) if handle is None else handle

    def wait_stream(self, stream: Stream) -> None:
        assert isinstance(stream, Stream)


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.has_timing = enable_timing

    def record(self, stream: Stream | None = None) -> None:
        self.time_s = time.monotonic()

    def synchronize(self) -> None:
        assert self.time_s

    def elapsed_time(self, end_event: Event) -> float:
        assert self.has_timing
        assert end_event.has_timing
        return (end_event.time_s - self.time_s) * 1e3


class CUDAGraph(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, made))
        return made

    def replay(self) -> None:
        for func, args, kwargs, made in self.calls:
            made.copy_(func(*args, **kwargs))


class SimulatedCuda:
    """The functions of ``torch.cuda``."""

    Stream, Event, CUDAGraph = Stream, Event, CUDAGraph

    def __init__(self) -> None:
        self._streams = [Stream(0)]

    def is_available(self) -> bool:
        return True

    def default_stream(self) -> Stream:
        return self._streams[0]

    def current_stream(self, device: Any = None) -> Stream:
        return self._streams[-1]

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self._streams.append(stream)
        yield
        self._streams.pop()

    @contextlib.contextmanager
    def graph(self, cuda_graph: CUDAGraph, *, capture_error_mode: str = "global") -> Iterator[None]:
        assert capture_error_mode in ("global", "thread_local", "relaxed")
        with cuda_graph:
            yield

    def synchronize(self) -> None:
        pass

    def _sleep(self, cycles: int) -> None:
        assert isinstance(cycles, int)


def simulate_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch act as if it had CUDA, as far as this module goes."""
    cuda = SimulatedCuda()
    for name in (name for name in dir(cuda) if not name.startswith("__") and name != "_streams"):
        assert hasattr(torch.cuda, name)
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
