"""Workers, started and asked for a batch."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from dali_like import fn
from dali_like.cli.doctor.findings import Check, Finding, failure, ok
from dali_like.pipeline import pipeline_def
from dali_like.types import SampleInfo

_BATCH_SIZE = 4
_DEADLINE_S = 60.0
_REMEDY = "see docs/reliability.md for what each of these means; py_start_method chooses the other way to start workers"


def square(info: SampleInfo) -> NDArray[np.int64]:
    """The source that they run."""
    return np.array(info.idx_in_epoch**2, np.int64)


def start_method(method: str) -> Finding:
    """Whether workers start and make a batch.

    Args:
        method: "fork" or "spawn".
    """

    @pipeline_def(batch_size=_BATCH_SIZE, py_num_workers=2, py_start_method=method, py_timeout_s=_DEADLINE_S)
    def squares() -> object:
        return fn.external_source(source=square, batch=False, parallel=True)

    subject = f"workers by {method}"
    try:
        with squares() as pipe:
            made = [int(np.asarray(sample)) for sample in pipe.run()[0]]
    except Exception as error:  # whatever it is, that is the finding
        return failure(subject, f"{type(error).__name__}: {error}", _REMEDY)
    if made != [i**2 for i in range(_BATCH_SIZE)]:
        return failure(subject, f"a batch came as {made}", _REMEDY)
    return ok(subject, "two have made a batch")


CHECKS: tuple[Check, ...] = (partial(start_method, "fork"), partial(start_method, "spawn"))
