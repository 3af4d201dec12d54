"""A plugin of pytest that limits the time of each test, and appends its outcome to a file, however the run ends.

It has a folder of its own: on the path of another project's tests, no other module of this repository may appear.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

_worst: dict[str, str] = {}
_ORDER = ("passed", "skipped", "failed")


def pytest_runtest_logreport(report: Any) -> None:
    """Note the worst outcome of the phases of a test. Of a test that another plugin repeats, the last attempt counts."""
    if report.outcome == "rerun":  # there are no further phases of this attempt
        _worst.pop(report.nodeid, None)
        return
    earlier = _worst.get(report.nodeid, "passed")
    _worst[report.nodeid] = max(earlier, report.outcome, key=_ORDER.index)
    if report.when == "teardown":
        with open(os.environ["DALI_LIKE_RECORD"], "a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, _worst.pop(report.nodeid)]) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Let a test that takes too long fail."""

    def end(*_: Any) -> None:
        raise TimeoutError(f"the test takes more than {limit_s:.0f} s")

    limit_s = float(os.environ["DALI_LIKE_TEST_LIMIT_S"])
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
