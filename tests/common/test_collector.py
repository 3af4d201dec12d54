"""Pauses of the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from dali_like.common.collector import paused_collector


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    gc.enable()


def test_collector_is_paused_and_then_as_before() -> None:
    with paused_collector():
        assert not gc.isenabled()
        with paused_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_that_the_program_has_disabled_stays_disabled() -> None:
    gc.disable()
    with paused_collector():
        pass
    assert not gc.isenabled()


def test_failed_import_leaves_the_collector_enabled() -> None:
    with pytest.raises(ImportError), paused_collector():
        raise ImportError
    assert gc.isenabled()
