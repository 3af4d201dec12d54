"""Arguments with a value for each frame of a sequence; `tests/parity/test_frames.py` compares the results with DALI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import fn
from dali_like.errors import ArgumentError, SampleError, SampleTypeError
from tests.operators.running import WAYS, run

RANDOM = np.random.default_rng(0)
VIDEOS = [RANDOM.integers(0, 255, (count, 9, 12, 3), np.uint8) for count in (3, 1, 2)]
FACTORS = [RANDOM.random(len(video), np.float32) for video in VIDEOS]


def brightened(video: Any, factors: Any) -> Any:
    return fn.brightness(video, brightness=fn.per_frame(factors))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_output", [True, False])
def test_each_frame_of_a_sequence_equals_the_result_of_the_frame_alone(is_output: bool, way: str) -> None:
    def define(video: Any, factors: Any) -> Any:
        result = brightened(video, factors)
        return result if is_output else fn.flip(fn.flip(result))

    ((sequences,),) = run(define, VIDEOS, FACTORS, layouts=["FHWC"], way=way)

    for video, factors, sequence in zip(VIDEOS, FACTORS, sequences, strict=True):
        ((frames,),) = run(lambda frame, factor: fn.brightness(frame, brightness=factor), video, factors, layouts=["HWC"])
        np.testing.assert_array_equal(sequence, frames)


def test_four_dimensions_without_a_layout_are_a_sequence() -> None:
    with_layout, without = (run(brightened, VIDEOS, FACTORS, layouts=layouts) for layouts in (["FHWC"], []))

    for one, other in zip(with_layout[0][0], without[0][0], strict=True):
        np.testing.assert_array_equal(one, other)


WRONG: dict[str, tuple[Callable[..., Any], Any, type[Exception], str]] = {
    "fewer": (brightened, [1.0, 2.0], SampleError, "the argument brightness has 2 values for a sequence of 3 frames"),
    "none": (brightened, [], SampleError, "has 0 values for a sequence of 3 frames"),
    "matrices": (
        lambda video, values: fn.warp_affine(video, fn.per_frame(values)),
        np.ones((2, 2, 3)),
        SampleError,
        "the input matrix_input has 2 values for a sequence of 3 frames",
    ),
    "of samples": (
        lambda video, values: fn.flip(video, horizontal=fn.per_frame(values)),
        [1, 0, 1],
        SampleTypeError,
        "horizontal must be a single value.* but not from frame to frame",
    ),
    "a single number": (brightened, 1.0, SampleError, "no dimension that could count frames"),
}


@pytest.mark.parametrize(("define", "values", "kind", "message"), WRONG.values(), ids=WRONG)
def test_wrong_per_frame_arguments_are_errors(
    define: Callable[..., Any], values: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run(define, VIDEOS[:1], [np.array(values, np.float32)], layouts=["FHWC"])


def test_a_layout_of_something_else_is_an_error_when_the_graph_is_made() -> None:
    with pytest.raises(ArgumentError, match=r"fn\.per_frame: the layout 'XY' does not begin with F; pass replace=True"):
        fn.per_frame(fn.external_source(lambda: 0, layout="XY"))
