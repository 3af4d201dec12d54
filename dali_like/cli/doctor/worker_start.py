"""Checks that workers start, by each start method, and compute a batch. The first line of the report says so."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dali_like import fn
from dali_like.cli.doctor.findings import Check, Finding, Verdict, failure, ok
from dali_like.engine.pool.backend_traits import BACKENDS
from dali_like.errors import UnsupportedSystemError
from dali_like.pipeline import pipeline_def
from dali_like.types import SampleInfo

_BATCH_SIZE = 4
_DEADLINE_S = 60.0
_SUBJECT = "workers by "


def square(info: SampleInfo) -> NDArray[np.int64]:
    """Return the square of the sample's index. The source of the test pipeline."""
    return np.array(info.idx_in_epoch**2, np.int64)


def start_method(method: str) -> Finding:
    """Check that two workers start and compute a batch.

    Args:
        method: the start method.
    """

    @pipeline_def(batch_size=_BATCH_SIZE, py_num_workers=2, py_start_method=method, py_timeout_s=_DEADLINE_S)
    def squares() -> object:
        return fn.external_source(source=square, batch=False, parallel=True)

    subject = f"{_SUBJECT}{method}"
    other = next(each.name for each in BACKENDS.values() if each.has_processes and each.name != method)
    remedy = f"try py_start_method={other!r}; docs/reliability.md explains the errors"
    try:
        with squares() as pipe:
            batch = [int(np.asarray(sample)) for sample in pipe.run()[0]]
    except UnsupportedSystemError as error:
        return failure(subject, str(error), "run on Linux, with a kernel and a sandbox that allow the call")
    except Exception as error:  # any error is the finding
        return failure(subject, f"{type(error).__name__}: {error}", remedy)
    expected = [i**2 for i in range(_BATCH_SIZE)]
    if batch != expected:
        return failure(subject, f"a batch was {batch} instead of {expected}", remedy)
    return ok(subject, "2 workers have computed a batch")


#: A check of each backend of this machine.
CHECKS: tuple[Check, ...] = tuple(partial(start_method, each.name) for each in BACKENDS.values() if not each.is_remote)


def headline(found: Iterable[Finding]) -> str:
    """Say whether this machine is ready, by the findings of these checks; "" without any."""
    works = {
        finding.subject.removeprefix(_SUBJECT): finding.verdict is Verdict.OK
        for finding in found
        if finding.subject.startswith(_SUBJECT)
    }
    if not works:
        return ""
    if works.get("fork") and works.get("spawn"):
        return "Ready: fork and spawn work."
    working = " and ".join(method for method, does in works.items() if does)
    failing = " and ".join(method for method, does in works.items() if not does)
    if not working:
        return "Not ready: no workers start."
    return f"Ready in part: only {working} work{'s' * (' ' not in working)}, not {failing}."
