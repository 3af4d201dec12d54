"""Sources in the main process that return tensors: the batch has the layouts of the tensors."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import LayoutMismatchError, SampleTypeError
from dali_like.tensors import TensorCPU, TensorListCPU

PLANES = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)


def pipeline_of(source: Any, **options: Any) -> Pipeline:
    """A pipeline of a source, and of an operator that depends on the dimensions of an image."""
    pipe = Pipeline(batch_size=2, prefetch_queue_depth=1)
    with pipe:
        planes = fn.external_source(source, **options)
        pipe.set_outputs(planes, fn.flip(planes, horizontal=1))
    return pipe


@pytest.mark.parametrize("make", [lambda: TensorListCPU([PLANES] * 2, "CHW"), lambda: [TensorCPU(PLANES, "CHW")] * 2])
def test_layouts_of_tensors_are_those_of_the_batch(make: Any) -> None:
    with closing(pipeline_of(make)) as pipe:
        for _ in range(2):
            planes, flipped = pipe.run()
            assert (planes.layout(), flipped.layout()) == ("CHW", "CHW")
            assert (flipped.at(0) == PLANES[:, :, ::-1]).all()


def test_a_layout_that_is_declared_overrides_that_of_tensors() -> None:
    with closing(pipeline_of(lambda: [TensorCPU(PLANES, "HWC")] * 2, layout="CHW")) as pipe:
        assert pipe.run()[1].at(0)[0, 0, 0] == PLANES[0, 0, -1]


def test_the_layout_stays() -> None:
    layouts = iter(["CHW", "HWC"])

    with closing(pipeline_of(lambda: [TensorCPU(PLANES, next(layouts))] * 2)) as pipe:
        pipe.run()
        with pytest.raises(LayoutMismatchError, match='"CHW" and got: "HWC"'):
            pipe.run()


def test_a_capsule_that_is_empty_is_no_sample() -> None:
    capsule = PLANES.__dlpack__()

    with closing(pipeline_of(lambda: [capsule] * 2)) as pipe, pytest.raises(SampleTypeError, match="PyCapsule"):
        pipe.run()
