"""Fixtures of the tests that kill, stop and interrupt processes."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _time_limit(limited_time: None) -> None:
    """Limit the time of each test: a defect here often shows as a call that never returns."""
