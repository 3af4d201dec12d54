"""Signals: the handlers of a program are not for its workers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline
from dali_like.types import SampleInfo
from tests.callbacks import number
from tests.conftest import wait_until

MakePipeline = Callable[..., Pipeline]


def signals_of_a_worker(info: SampleInfo) -> NDArray[np.int64]:
    """How many signals are blocked, whether there is a descriptor to wake up, and how some signals are handled."""
    handlers = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGCHLD)]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return np.array([len(blocked), signal.set_wakeup_fd(-1), *(int(handler) for handler in handlers)])  # type: ignore[arg-type]


@contextlib.contextmanager
def handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextlib.contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def waking() -> Iterator[None]:
    """As asyncio does: each signal writes to a socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        before = signal.set_wakeup_fd(ours.fileno())
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)


def test_workers_do_not_inherit_the_signal_handling_of_the_program(start_method: str, make_pipeline: MakePipeline) -> None:
    with (
        handled(signal.SIGUSR1, lambda *_: None),
        handled(signal.SIGCHLD, signal.SIG_IGN),
        blocked(signal.SIGTERM, signal.SIGUSR2),
        waking(),
    ):
        (batch,) = make_pipeline(signals_of_a_worker, start_method).run()

    assert batch.at(0).tolist() == [0, -1, signal.SIG_DFL, signal.SIG_DFL]


def test_a_program_that_ignores_the_ends_of_children_has_its_workers_replaced(
    start_method: str, make_pipeline: MakePipeline
) -> None:
    """The system then keeps nothing of a child that has ended, so no process can wait for it."""
    with handled(signal.SIGCHLD, signal.SIG_IGN):
        pipe = make_pipeline(number, start_method, workers=2)
        numbers = pipe.run()[0].as_array().tolist()
        dead = pipe.py_worker_pids[0]
        os.kill(dead, signal.SIGKILL)

        def replaced() -> bool:
            numbers.extend(pipe.run()[0].as_array().tolist())
            return pipe.statistics().worker_restarts == 1

        wait_until(replaced, "another worker")
        pipe.close()

    assert numbers == list(range(len(numbers)))


def signals_of_a_program(info: SampleInfo) -> NDArray[np.uint8]:
    """The signals that a program ignores or blocks if a callback starts it: with subprocess's resets, and without."""
    command = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    outputs = [subprocess.run(command, restore_signals=resets, stdout=-1, check=True).stdout for resets in (True, False)]
    return np.frombuffer(b"".join(outputs), np.uint8)


def interrupted(info: SampleInfo) -> NDArray[np.int64]:
    """The exit statuses of a program and of a fork of the worker that get SIGINT; how the worker handles it."""
    os.kill(os.getpid(), signal.SIGINT)  # without effect
    with subprocess.Popen(["sleep", "60"]) as program:
        program.send_signal(signal.SIGINT)
    if (fork := os.fork()) == 0:
        status = 1
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            status = 7
        finally:
            os._exit(status)
    return np.array([program.returncode, os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])])


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["handled", "ignored"])
def test_programs_of_workers_ignore_and_block_the_same_signals_as_those_of_the_program(
    handler: Any, start_method: str, make_pipeline: MakePipeline
) -> None:
    with handled(signal.SIGINT, handler):
        (batch,) = make_pipeline(signals_of_a_program, start_method).run()

        assert bytes(batch.at(0)).decode() == bytes(signals_of_a_program(SampleInfo(0, 0, 0, 0))).decode()


def test_programs_and_forks_of_workers_end_by_sigint_and_workers_do_not(
    start_method: str, make_pipeline: MakePipeline
) -> None:
    (batch,) = make_pipeline(interrupted, start_method).run()

    assert batch.at(0).tolist() == [-signal.SIGINT, 7]
