"""Declared outputs of pipelines: output_dtype, output_ndim, output_layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, types
from dali_like.errors import ArgumentError, DtypeMismatchError, LayoutMismatchError, NdimMismatchError, SampleError
from dali_like.types import SampleInfo

MakePipeline = Callable[..., Pipeline]


def pair(info: SampleInfo) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return an image and a label."""
    return np.zeros((2, 3), np.uint8), np.array(info.idx_in_epoch)


@pytest.fixture
def make(make_pipeline: MakePipeline) -> MakePipeline:
    """Create serial pipelines of (image, label) pairs; only the image has a layout."""

    def make(**options: Any) -> Pipeline:
        return make_pipeline(pair, "serial", num_outputs=2, source_options={"layout": ["HW"]}, **options)

    return make


@pytest.mark.parametrize(
    "options",
    [
        {"output_dtype": [types.UINT8, types.INT64], "output_ndim": [2, 0], "output_layout": ["HW", ""]},
        {"output_dtype": (types.UINT8, types.INT64)},
        {"output_dtype": [None, types.INT64]},
        {"output_dtype": ["uint8", np.int64]},
        {"output_dtype": [np.dtype("u1"), None]},
        {"output_ndim": [None, 0]},
        {"output_ndim": [np.int64(2), None]},
        {"output_layout": ["HW", None]},
        {"output_layout": ""},
        {"output_dtype": None, "output_ndim": None, "output_layout": None},
    ],
)
def test_outputs_that_are_as_expected_are_delivered(options: dict[str, Any], make: MakePipeline) -> None:
    pipe = make(**options)

    for _ in range(3):
        assert len(pipe.run()) == 2


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"output_dtype": types.UINT8},
            DtypeMismatchError,
            "Data type in the output_idx=1 {} Expected: uint8. Received: int64.",
        ),
        (
            {"output_dtype": ["float32", None]},
            DtypeMismatchError,
            "Data type in the output_idx=0 {} Expected: float32. Received: uint8.",
        ),
        ({"output_ndim": 2}, NdimMismatchError, "Number of dimensions in the output_idx=1 {} Expected: 2. Received: 0."),
        (
            {"output_ndim": [1, None]},
            NdimMismatchError,
            "Number of dimensions in the output_idx=0 {} Expected: 1. Received: 2.",
        ),
        ({"output_layout": "HW"}, LayoutMismatchError, "Layout in the output_idx=1 {} Expected: HW. Received: ."),
        ({"output_layout": ["WH", None]}, LayoutMismatchError, "Layout in the output_idx=0 {} Expected: WH. Received: HW."),
        (
            {"output_dtype": types.INT64, "output_ndim": 0},
            NdimMismatchError,
            "Number of dimensions in the output_idx=0 {} Expected: 0. Received: 2.",
        ),
    ],
)
def test_outputs_that_are_not_raise_each_time(
    options: dict[str, Any], error: type[Exception], text: str, make: MakePipeline
) -> None:
    pipe = make(**options)

    for _ in range(3):
        with pytest.raises(error) as caught:
            pipe.run()
        assert isinstance(caught.value, RuntimeError)
        assert str(caught.value).startswith(text.format("does not match."))


def test_the_batch_after_a_wrong_one_is_the_next(make_pipeline: MakePipeline) -> None:
    layouts = iter(["", "X", "X"])

    class Alternating(Pipeline):
        def iter_setup(self) -> None:
            self._expectations = (self._expectations[0]._replace(layout=next(layouts)),)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dali_like.pipeline.definition.Pipeline", Alternating)
        pipe = make_pipeline(lambda info: np.array([info.idx_in_epoch]), "serial", output_ndim=1)

    assert pipe.run()[0].at(0).tolist() == [0]
    for _ in range(2):
        with pytest.raises(LayoutMismatchError):
            pipe.run()


def test_batches_that_are_scheduled_are_held_against_it_too(make: MakePipeline) -> None:
    with pytest.raises(SampleError, match="does not match"):
        make(output_ndim=3).schedule_run()


def test_workers_batches_are_held_against_it_too(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(info.idx_in_batch), way, output_dtype=types.FLOAT64, output_ndim=1)

    for _ in range(4):
        pipe.run()


@pytest.mark.parametrize(
    "options", [{"output_dtype": [types.UINT8]}, {"output_ndim": [2, 0, 1]}, {"output_layout": []}, {"output_ndim": ()}]
)
@pytest.mark.parametrize("call", [Pipeline.build, Pipeline.run, Pipeline.start_py_workers])
def test_lists_of_another_length_are_refused_when_the_pipeline_is_built(
    options: dict[str, Any], call: Callable[[Pipeline], Any], make: MakePipeline
) -> None:
    (name,) = options
    pipe = make(**options)

    with pytest.raises(ArgumentError, match=rf"Lengths of provided .*{name} has \d entries, and the pipeline 2") as caught:
        call(pipe)

    assert isinstance(caught.value, RuntimeError)


def test_expected_dtypes_and_dimensions_can_be_read(make: MakePipeline) -> None:
    pipe = make(output_dtype=["uint8", None], output_ndim=2)

    assert pipe.num_outputs == 2
    assert pipe.output_dtype() == [types.UINT8, None]
    assert pipe.output_ndim() == [2, 2]


def test_nothing_is_expected_by_default(make: MakePipeline) -> None:
    pipe = make()

    assert pipe.output_dtype() == pipe.output_ndim() == [None, None]


def test_asking_does_not_start_the_workers(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(1), "fork")

    assert pipe.num_outputs == 1
    assert pipe.output_dtype() == [None]
    assert "not built" in repr(pipe)
