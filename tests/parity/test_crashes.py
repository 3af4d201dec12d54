"""A worker of the real DALI that crashes fails its test, even if DALI waits for the worker forever, as it often does."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from dali_like.types import SampleInfo
from tests.conftest import wait_until
from tests.parity.conftest import DALIHasCrashed, Library, play

pytestmark = pytest.mark.peers


def indices(info: SampleInfo) -> np.ndarray:
    return np.array([info.idx_in_epoch])


def kill_worker(dali: Library) -> None:
    with dali.source_pipeline(indices, "fork") as pipe:
        play(pipe, [2])
        # Private: DALI's attribute
        process = pipe._py_pool.pool._processes[0]
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: process.exitcode is not None, "the end of the worker")


def test_the_error_names_the_signal(dali: Library) -> None:
    with pytest.raises(DALIHasCrashed, match=rf"signals \[{signal.SIGKILL:d}"):
        kill_worker(dali)
