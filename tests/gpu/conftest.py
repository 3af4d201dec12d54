"""Checks for leftovers of a test. CUDA opens descriptors and starts threads at any time, so those do not count."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import psutil
import pytest

from tests.conftest import wait_until


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves a process. Replaces the fixture of the other tests."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    gc.collect()
    wait_until(
        lambda: {child.pid for child in psutil.Process().children(recursive=True)} <= before, "the end of all workers"
    )
