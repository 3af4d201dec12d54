"""CUDA streams that programs pass to dynamic mode."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import dali_like.experimental.dynamic as ndd
from dali_like import errors


class Foreign:
    """A stream of another library."""

    def __init__(self, handle: int, device_id: int) -> None:
        self.device = SimpleNamespace(index=device_id)
        self.handle = handle
        self.waits = 0

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def synchronize(self) -> None:
        self.waits += 1


@pytest.fixture(autouse=True)
def no_streams() -> Iterator[None]:
    yield
    ndd.set_current_stream(None)
    for device_id in range(3):
        ndd.set_default_stream(None, device_id)


def test_wrapped_stream_has_handle_and_device_of_the_original() -> None:
    foreign = Foreign(7, 2)
    made = ndd.stream(stream=foreign)
    assert made is not None
    assert (made.handle, made.device_id, made.__cuda_stream__()) == (7, 2, (0, 7))
    assert made == ndd.Stream(stream=7, device_id=2)
    assert hash(made) == hash(ndd.Stream(stream=7, device_id=2))
    assert made != ndd.Stream(stream=7)
    assert ndd.stream(stream=made) is made
    assert ndd.stream(stream=None) is None
    made.synchronize()
    assert foreign.waits == 1


def test_current_stream_of_a_thread_comes_before_the_default_one() -> None:
    ndd.set_default_stream(5)
    ndd.set_default_stream(Foreign(6, 1))
    ndd.set_current_stream(8)
    elsewhere: list[Any] = []
    thread = threading.Thread(target=lambda: elsewhere.append(ndd.get_current_stream()))
    thread.start()
    thread.join()

    assert ndd.get_current_stream() == ndd.Stream(stream=8)
    assert ndd.EvalContext().cuda_stream == ndd.Stream(stream=8)
    assert ndd.EvalContext(cuda_stream=9).cuda_stream == 9
    assert elsewhere == [ndd.Stream(stream=5)]
    assert ndd.get_default_stream(1) == ndd.Stream(stream=6, device_id=1)
    ndd.set_current_stream(None)
    ndd.set_default_stream(None)
    assert ndd.get_current_stream() is None


def test_wrong_streams_are_errors() -> None:
    with pytest.raises(errors.DeviceError, match="makes no streams"):
        ndd.stream()
    with pytest.raises(errors.ArgumentError, match="None"):
        ndd.Stream(stream=None)
    with pytest.raises(errors.ArgumentClashError, match="doesn't match"):
        ndd.stream(stream=Foreign(1, 0), device_id=1)
    with pytest.raises(errors.ArgumentTypeError):
        ndd.stream(stream="fast")
    with pytest.raises(errors.DeviceError, match="synchronize it"):
        ndd.Stream(stream=3).synchronize()
