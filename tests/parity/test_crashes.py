"""A worker of the real DALI that crashes fails no test here, and hangs none."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from dali_like.types import SampleInfo
from tests.parity.conftest import MAX_CRASHES, DALIHasCrashed, Library, play

pytestmark = pytest.mark.peers

_attempts: list[int] = []


def indices(info: SampleInfo) -> np.ndarray:
    return np.array([info.idx_in_epoch])


def crash(dali: Library) -> None:
    with dali.source_pipeline(indices, "fork") as pipe:
        play(pipe, [2])
        os.kill(pipe._py_pool.pool.pids()[0], signal.SIGSEGV)
        play(pipe, [20])


def test_the_test_is_repeated(dali: Library) -> None:
    """The last attempt is allowed to succeed. Without `pytest_pyfunc_call` the first one would fail this test."""
    _attempts.append(len(_attempts))
    if len(_attempts) <= MAX_CRASHES:
        crash(dali)
    assert _attempts == [*range(MAX_CRASHES + 1)]


def test_the_error_names_the_signal(dali: Library) -> None:
    with pytest.raises(DALIHasCrashed, match=rf"signals \[{signal.SIGSEGV}"):
        crash(dali)
