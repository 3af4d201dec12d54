"""So many workers that not all orders to start one have room on the way to the forkserver at the same time."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from dali_like import Pipeline
from tests.callbacks import number
from tests.conftest import wait_until

NUM_WORKERS = 24


@pytest.fixture
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let half a dozen messages fill a socket, in either direction, as 278 do otherwise."""
    socketpair = socket.socketpair

    def small(*args: Any) -> tuple[socket.socket, socket.socket]:
        ends = socketpair(*args)
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        return ends

    monkeypatch.setattr(socket, "socketpair", small)


@pytest.mark.usefixtures("_little_room")
def test_all_of_them_start(start_method: str, make_pipeline: Callable[..., Pipeline]) -> None:
    pipe = make_pipeline(number, start_method, workers=NUM_WORKERS)

    def have_started() -> bool:
        pipe.run()
        return len(pipe.py_worker_pids) == NUM_WORKERS

    wait_until(have_started, "the start of all workers")
