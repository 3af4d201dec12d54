"""The thread that serves Ray actors, without Ray: when it fails. For the rest see tests/on_ray."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from dali_like.engine.backends.ray.ray_dispatcher import RayDispatcher
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import FORKSERVER, control_bytes
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import End, EndQueue, WorkerOptions
from dali_like.errors import WorkerStartError
from tests.conftest import wait_until

OPTIONS = WorkerOptions(
    num_workers=1,
    start_method="ray",
    threads=None,
    timeout_s=None,
    restarts=None,
    pickle_source=lambda *_: None,  # type: ignore[arg-type,return-value]
)


class StandIn:
    """A cluster without Ray.

    Attributes:
        is_connected: whether the program is connected to it.
        has_left: whether the dispatcher has left it.
    """

    most_bytes = 1

    def __init__(self, *, is_connected: bool = True) -> None:
        self.is_connected = is_connected
        self.has_left = False

    def actor_class(self, *_: Any) -> None:
        """Return no class: the tests start no actor."""

    def check(self) -> None:
        """See `Cluster.check`."""
        if not self.is_connected:
            raise WorkerStartError("it has been left")

    def leave(self) -> None:
        """Note it."""
        self.has_left = True


@contextlib.contextmanager
def end_of_thread(cluster: Any) -> Iterator[tuple[RayDispatcher, End]]:
    """Let a dispatcher run until its thread ends, and provide both."""
    (tasks, post), (read, done) = (map(Descriptor, os.pipe()) for _ in range(2))
    space, ends = SharedSpace.create(), EndQueue()
    space.allocate(control_bytes(1, 1))
    dispatcher = RayDispatcher(OPTIONS, space, tasks=[tasks], done=done, cluster=cluster, ends=ends, send_stop=lambda: None)
    dispatcher.thread.start()
    # Private: wakes the dispatcher as a late alarm does
    dispatcher._alarm.ring()
    yield dispatcher, wait_until(ends.take_end, "the end of the thread")
    dispatcher.finish()
    for descriptor in (tasks, post, read, done):
        descriptor.close()


def test_failure_of_the_thread_is_the_reason_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(dispatcher: RayDispatcher) -> None:
        raise LookupError("it fails")

    monkeypatch.setattr(RayDispatcher, "_hand_out", fail)
    cluster = StandIn()

    with end_of_thread(cluster) as (dispatcher, end):
        pass

    assert (end.worker, end.pid, end.exitcode) == (FORKSERVER, 0, None)
    assert dispatcher.reasons[FORKSERVER] == "LookupError('it fails')"
    assert OPTIONS.backend.starter == "the thread that serves Ray actors"
    with pytest.raises(WorkerStartError, match="another one would fail in the same way") as caught:
        end.restart()
    assert isinstance(caught.value.__cause__, LookupError)
    assert cluster.has_left


def test_thread_ends_and_starts_no_actor_when_the_program_has_left_the_cluster() -> None:
    with end_of_thread(StandIn(is_connected=False)) as (dispatcher, end):
        dispatcher.start(0)  # else it would call the class of actors, which is None

        assert dispatcher.reasons[FORKSERVER] == "the program has left the cluster"
        with pytest.raises(WorkerStartError, match="it has been left"):
            end.restart()
