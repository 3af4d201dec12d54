"""The thread that serves Ray actors, without Ray: when it fails. For the rest see tests/on_ray."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from dali_like.engine.backends.ray_dispatcher import RayDispatcher
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import FORKSERVER, control_bytes
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import EndQueue, WorkerOptions
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


def test_failure_of_the_thread_is_the_reason_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(dispatcher: RayDispatcher) -> None:
        raise LookupError("it fails")

    monkeypatch.setattr(RayDispatcher, "_hand_out", fail)
    (tasks, post), (read, done) = (map(Descriptor, os.pipe()) for _ in range(2))
    space, ends = SharedSpace.create(), EndQueue()
    space.allocate(control_bytes(1, 1))
    left = []
    cluster: Any = SimpleNamespace(actor_class=lambda *_: None, leave=lambda: left.append(True), most_bytes=1)
    dispatcher = RayDispatcher(OPTIONS, space, tasks=[tasks], done=done, cluster=cluster, ends=ends, send_stop=lambda: None)
    dispatcher.thread.start()
    dispatcher._alarm.ring()

    end = wait_until(ends.take_end, "the end of the thread")
    dispatcher.finish()

    assert (end.worker, end.pid, end.exitcode) == (FORKSERVER, 0, None)
    assert dispatcher.reasons[FORKSERVER] == "LookupError('it fails')"
    assert OPTIONS.forkserver_name == "the thread that serves Ray actors"
    with pytest.raises(WorkerStartError, match="another one would fail in the same way") as caught:
        end.restart()
    assert isinstance(caught.value.__cause__, LookupError)
    assert left == [True]
    for descriptor in (tasks, post, read, done):
        descriptor.close()
