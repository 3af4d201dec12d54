"""The common parts of comparisons of external sources that make samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dali_like.types import SampleInfo
from tests.parity.conftest import OURS, Library, error_of

Source = Callable[[SampleInfo], Any]

ONE = np.zeros(1, np.float32)


def function(info: SampleInfo) -> Any:
    return np.int32([info.idx_in_epoch, 1])


def random_source(num_outputs: int | None, ragged: bool, iterations: int) -> Source:
    """A source whose every sample differs from every other, in every epoch."""

    def source(info: SampleInfo) -> Any:
        if info.iteration >= iterations:
            raise StopIteration
        random = np.random.default_rng([info.epoch_idx, info.idx_in_epoch])
        height = int(random.integers(0, 9)) if ragged else 3
        outputs = random.integers(0, 256, (height, 5), np.uint8), np.array(random.standard_normal(), np.float32)
        return outputs[0] if num_outputs is None else outputs[:num_outputs]

    return source


def assert_raises_the_same(program: Callable[[Library], object], dali: Library, expected: type[Exception]) -> None:
    """DALI raises this builtin class; an `except` clause for it must go on working."""
    theirs = error_of(program, dali)
    ours = error_of(program, OURS)

    assert type(theirs) is expected
    assert isinstance(ours, expected), f"{type(ours).__mro__}: {ours}"
