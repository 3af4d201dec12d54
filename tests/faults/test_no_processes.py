"""A system that refuses to make processes."""

from __future__ import annotations

import errno
import gc
import os
import signal
from collections.abc import Callable

import numpy as np
import pytest

from dali_like import Pipeline


def refuse() -> int:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def test_a_fork_that_is_refused_leaves_ctrl_c_and_the_garbage_collector_as_they_were(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = make_pipeline(lambda info: np.array(0))
    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(BlockingIOError):
        pipe.build()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert gc.isenabled()
