"""Fixtures for dynamic mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dali_like.experimental.dynamic import EvalContext


@pytest.fixture(autouse=True)
def context() -> Iterator[EvalContext]:
    """Two threads, which end with the test."""
    with EvalContext(num_threads=2) as context:
        yield context
