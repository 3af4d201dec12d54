"""A program that imports the user's module, and computes some samples several times: ``python -m`` with ``module:name``.

It prints a line of JSON: the time of the import, and digests of each sample. A digest tells whether two samples are equal.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.cli.check.examining import Examined
from dali_like.cli.check.subjects import Subject, subject_of
from dali_like.cli.factories import object_of
from dali_like.errors import ArgumentError

#: Printed to the log before the user's module is imported.
BEGINS_IMPORT = "dali-like doctor: begins the import\n"
#: Seeds of the global generators: the first two calls have the same one.
_SEEDS = (1, 1, 2)
#: Samples of a dataset: the first one, the last one, and one in between.
_NUM_SAMPLES = 3


def main(text: str) -> dict[str, Any]:
    """Return the result for an object named as ``module:name``."""
    sys.stderr.write(BEGINS_IMPORT)
    wall_s, cpu_s = time.monotonic(), time.process_time()
    object_of(text, "dataset", lambda value: value is not None)
    wall_s, cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s
    result: dict[str, Any] = {"module": text.rpartition(":")[0], "wall_s": wall_s, "cpu_s": cpu_s}
    try:
        return {**result, "samples": _samples(text)}
    except ArgumentError as error:
        return {**result, "error": str(error)}


def _samples(text: str) -> list[dict[str, Any]]:
    _seed(_SEEDS[0])
    subject = subject_of(text, {}, num_workers=0)
    if subject.is_pipeline:
        raise ArgumentError("it is a pipeline; name its source")
    rounds = [_examined(subject, seed) for seed in _SEEDS]
    return [
        {
            "index": same[0].index,
            "digests": [sample.digest for sample in same],
            "problem": same[0].error or f"sample {same[0].index} has objects whose content cannot be read",
        }
        for same in zip(*rounds, strict=False)
    ]


def _examined(subject: Subject, seed: int) -> list[Examined]:
    if not subject.has_random_access:
        _seed(seed)
        return [*itertools.islice(subject.examine(()), _NUM_SAMPLES)]
    found: list[Examined] = []
    for index in _indices(subject.length):
        _seed(seed)
        found += subject.examine([index])
    return found


def _indices(length: int | None) -> Sequence[int]:
    if length is None:
        return range(_NUM_SAMPLES)
    return sorted({0, length // 2, length - 1}) if length else ()


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
