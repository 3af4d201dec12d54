"""Kernels and sandboxes that refuse system calls: fallbacks, or one clear error when workers start."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.engine.worker.source import Source
from dali_like.errors import UnsupportedSystemError
from tests.callbacks import number
from tests.faults.played import PlayedPool
from tests.faults.refusing import refusal, run_program

#: A pipeline with samples of different sizes, which do not fit their first slots, and a loader.
_LOOPS = """
    import itertools, os, signal
    import numpy as np
    from dali_like import fn, pipeline_def
    from dali_like.data.loader import DataLoader

    def size(n):
        return 1 + n % 7 + n // 40 % 3 * 5000

    def sample(info):
        return np.full(size(info.idx_in_epoch), info.idx_in_epoch, np.int64)

    class Squares:
        def __len__(self):
            return 40

        def __getitem__(self, i):
            return np.int64(i * i)

    def run(method, kills=0):
        @pipeline_def(batch_size=16, num_threads=1, py_num_workers=2, py_start_method=method)
        def pipeline():
            return fn.external_source(sample, batch=False, parallel=True)

        with pipeline() as pipe:
            killed = 0
            for i in itertools.count():
                restarts = pipe.statistics().worker_restarts
                if i >= 6 and restarts == kills:
                    break
                (batch,) = pipe.run()
                for j, array in enumerate(map(np.asarray, batch)):
                    n = 16 * i + j
                    assert array.size == size(n) and (array == n).all(), (method, n, array)
                if killed < kills and killed == restarts and (pids := pipe.py_worker_pids):
                    os.kill(pids[0], signal.SIGKILL)
                    killed += 1
        loader = DataLoader(Squares(), batch_size=8, num_workers=2, multiprocessing_context=method)
        batches = [np.asarray(batch).tolist() for batch in loader]
        assert batches == [[i * i for i in range(k, k + 8)] for k in range(0, 40, 8)], (method, batches)
"""

#: Calls that are refused together, each with its error number. Docker refuses with ENOSYS, older versions with EPERM.
_TOLERATED = {
    "memfd_create": {"memfd_create": errno.ENOSYS},
    "splice": {"splice": errno.EINVAL},  # as kernels that cannot splice into files of this kind
    "memory": {"fallocate": errno.EOPNOTSUPP, "madvise(MADV_REMOVE)": errno.ENOSYS},  # as gVisor
    "rest": {
        "fcntl(F_ADD_SEALS)": errno.EPERM,
        "fcntl(F_GETPIPE_SZ)": errno.EINVAL,
        "sched_getaffinity": errno.ENOSYS,
        "prlimit64": errno.EPERM,
        "sigaltstack": errno.EPERM,
        "eventfd2": errno.ENOSYS,
    },
}


@pytest.mark.parametrize("calls", _TOLERATED)
def test_workers_do_without_a_call(calls: str, tmp_path: Path) -> None:
    ended = run_program(
        tmp_path,
        *(refusal(call, error) for call, error in _TOLERATED[calls].items()),
        _LOOPS,
        'for method in ("fork", "spawn", "thread"): run(method)',
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_all_at_once_while_workers_are_killed(tmp_path: Path) -> None:
    ended = run_program(
        tmp_path,
        *(refusal(call, error) for calls in _TOLERATED.values() for call, error in calls.items()),
        _LOOPS,
        'run("fork", kills=2)',
    )

    assert (ended.returncode, ended.stderr) == (0, "")


#: Calls without which no worker process starts, the last one that is looked for first.
_REQUIRED = (
    *("lseek", "dup2", "recvmsg", "sendmsg", "wait4", "waitid", "getppid"),
    *("epoll_ctl", "epoll_create1", "poll", "ioctl", "pipe2"),
)


def test_an_error_names_each_call_that_workers_need(tmp_path: Path) -> None:
    ended = run_program(
        tmp_path,
        """
        import numpy as np
        from dali_like import Pipeline, fn
        from dali_like.errors import UnsupportedSystemError

        def tell(method):
            pipe = Pipeline(2, 1, None, py_num_workers=1, py_start_method=method, py_worker_restarts=None)
            pipe.set_outputs(fn.external_source(lambda info: np.zeros(3), batch=False, parallel=True))
            try:
                pipe.run()
            except UnsupportedSystemError as error:
                print(error.strerror)
        """,
        *(f"{refusal(call)}; tell('fork')" for call in _REQUIRED),
        "tell('thread')",
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    *processes, thread = ended.stdout.splitlines()
    assert [line.partition(" (ENOSYS")[0].partition("(")[0] for line in processes] == [
        f"the system refuses {call}" for call in _REQUIRED
    ]
    assert "use parallel=False" in thread


def test_an_error_names_the_call_its_purpose_and_the_remedy(tmp_path: Path) -> None:
    # Each call comes before the calls of the lines above, so each is named in turn.
    ended = run_program(
        tmp_path,
        _LOOPS,
        """
        import json
        from dali_like.engine.memory import system_calls
        from dali_like.errors import UnsupportedSystemError

        def tell():
            errors = []
            for method in ("fork", "spawn"):
                try:
                    run(method)
                except UnsupportedSystemError as error:
                    errors.append([error.errno, error.strerror])
            print(json.dumps(errors))
        """,
        refusal("socketpair", errno.EPERM) + "; tell()",
        refusal("prctl(PR_SET_PDEATHSIG)", errno.EPERM) + "; tell()",
        refusal("pidfd_open", errno.ENOSYS) + "; tell()",
        refusal("memfd_create", errno.ENOSYS) + "; system_calls.SHARED_MEMORY_FOLDER = '/nowhere'; tell()",
        'run("thread")',
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    remedy = (
        'use py_start_method="thread" (multiprocessing_context="thread" of a DataLoader), or a newer kernel, or a sandbox '
        "or seccomp profile that allows the call"
    )
    no_socketpair, no_prctl, no_pidfd, no_file = map(json.loads, ended.stdout.splitlines())
    assert (
        no_socketpair
        == [
            [
                errno.EPERM,
                "the system refuses socketpair(SOCK_SEQPACKET) (EPERM, errno 1), and worker processes need it to talk "
                f"to the process that starts them; {remedy}",
            ]
        ]
        * 2
    )
    assert (
        no_prctl
        == [
            [
                errno.EPERM,
                "the system refuses prctl(PR_SET_PDEATHSIG) (EPERM, errno 1), and worker processes need it to learn of each "
                f"other's end; {remedy}",
            ]
        ]
        * 2
    )
    assert (
        no_pidfd
        == [
            [
                errno.ENOSYS,
                "the system refuses pidfd_open (ENOSYS, errno 38), and worker processes need it to learn of "
                f"each other's end; {remedy}",
            ]
        ]
        * 2
    )
    assert (
        no_file
        == [
            [
                errno.ENOSYS,
                "the system refuses memfd_create (ENOSYS, errno 38) and a file in /nowhere (ENOENT, errno 2), and worker "
                f"processes share their batches in one of them; {remedy}, or mount /nowhere",
            ]
        ]
        * 2
    )


# gevent


@pytest.mark.parametrize(
    ("way", "patched", "remedy"),
    [("fork", "select", "patch_all(select=False)"), ("thread", "threading", "patch_all(select=False, thread=False)")],
)
def test_modules_that_gevent_has_replaced_are_refused(
    way: str, patched: str, remedy: str, make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", SimpleNamespace(is_module_patched=lambda name: name == patched))

    with pytest.raises(UnsupportedSystemError, match=re.escape(remedy)):
        make_pipeline(number, way).run()


def test_other_modules_may_be_replaced_by_gevent(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", SimpleNamespace(is_module_patched=lambda name: name == "threading"))

    assert make_pipeline(number, "fork").run()[0].as_array().tolist() == [0, 1, 2, 3]


# Another PID namespace


def test_a_pid_namespace_of_children_alone_is_refused(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    readlink = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[1]" if path.endswith("/pid_for_children") else readlink(path))

    with pytest.raises(UnsupportedSystemError, match=r"another PID namespace .* start it by `unshare --pid --fork`"):
        make_pipeline(number).run()


# Without `splice`, step by step


@pytest.fixture
def no_splice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.engine.pool.dispatch.can_splice", lambda: False)


def numbers(calls: list[int]) -> Source:
    def callback(info: Any) -> np.ndarray[Any, Any]:
        calls.append(info.idx_in_epoch)
        return np.full(3, info.idx_in_epoch)

    return Source("numbers", callback)


@pytest.mark.usefixtures("no_splice")
@pytest.mark.parametrize("seed", range(20))
def test_killed_workers_lose_no_task_and_repeat_only_their_own(seed: int) -> None:
    calls: list[int] = []
    pool = PlayedPool(lambda: [numbers(calls)], 16, num_workers=3, deaths=0.1, seed=seed)
    batches = [pool.begin(i, 16) for i in range(8)]
    for i, batch in enumerate(batches):
        (output,) = pool.wait(batch)
        assert np.array_equal(np.asarray(output)[:, 0], np.arange(16 * i, 16 * i + 16))
        del output
    assert set(calls) == set(range(128))
    batches.clear()
    del batch
    task_size = pool.assemblers[0].ring.slot_layout.task_size
    assert len(calls) - 128 <= task_size * pool.num_restarts
    pool.play_on()
    assert pool.is_settled
    pool.close()


@pytest.mark.usefixtures("no_splice")
def test_tasks_of_a_slow_worker_go_to_idle_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PlayedPool(lambda: [numbers([])], 16, num_workers=2)
    batch = pool.begin(0, 16)
    slow = pool.workers.running[0]
    slow.step()
    assert slow.has_read
    with monkeypatch.context() as context:
        context.setattr(slow, "step", lambda: False)

        pool.play_until(lambda: batch.open_tasks.bit_count() == 1)

    pool.wait(batch)
    pool.close()


@pytest.mark.usefixtures("no_splice")
def test_tasks_of_a_worker_that_is_not_replaced_go_to_others() -> None:
    pool = PlayedPool(lambda: [numbers([])], 16, num_workers=2, restarts=0)
    batch = pool.begin(0, 16)
    pool.workers.end(0, -9)

    (output,) = pool.wait(batch)

    assert np.asarray(output)[:, 0].tolist() == list(range(16))
    assert pool.has_failed
    del output
    pool.close()


@pytest.mark.usefixtures("no_splice")
def test_a_worker_that_dies_between_reading_a_task_and_its_cell_loses_nothing() -> None:
    calls: list[int] = []
    pool = PlayedPool(lambda: [numbers(calls)], 4, num_workers=1)
    batch = pool.begin(0, 4)
    worker = pool.workers.running[0]
    worker.step()
    assert worker.has_read
    pool.workers.end(0, -9)
    (output,) = pool.wait(batch)
    assert np.asarray(output)[:, 0].tolist() == [0, 1, 2, 3]
    assert sorted(calls) == [0, 1, 2, 3]
    del output
    pool.close()
