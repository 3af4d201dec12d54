"""Arguments and data that programs seldom have: empty samples, nodes for classes, enumerations as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

import nvidia.dali as theirs

import dali_like as ours

pytestmark = pytest.mark.peers

MASK = np.pad(np.ones((2, 2), np.int32), 1)


def results(library: Any, define: Callable[[Any, Any], Any]) -> list[tuple[Any, ...]]:
    """The first batch, as dtypes, shapes and values."""

    @library.pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline() -> Any:
        return define(library.fn, library.types)

    pipe = pipeline()
    pipe.build()
    arrays = [np.array(output.at(i)) for output in pipe.run() for i in range(2)]
    return [(array.dtype, array.shape, array.tolist()) for array in arrays]


def constant(fn: Any, value: Any, dtype: Any = np.int32) -> Any:
    return fn.external_source(lambda info: np.array(value, dtype), batch=False)


@pytest.mark.parametrize("name", ["sum", "mean", "min", "max", "mean_square", "rms", "variance", "std_dev"])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3), ()])
@pytest.mark.parametrize("axes", [None, [0], []])
def test_reductions_of_empty_data_and_numbers(name: str, shape: tuple[int, ...], axes: list[int] | None) -> None:
    if not shape and axes:
        pytest.skip("an error in both")
    given: dict[str, Any] = {} if axes is None else {"axes": axes}

    def define(fn: Any, types: Any) -> Any:
        data = constant(fn, np.ones(shape), np.float32)
        means = [fn.reductions.mean(data, **given)] if name in ("variance", "std_dev") else []
        return getattr(fn.reductions, name)(data, *means, **given)

    expected, found = (results(library, define) for library in (theirs, ours))
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    np.testing.assert_array_equal(*([np.array(each[2]) for each in side] for side in (found, expected)))


@pytest.mark.parametrize("name", ["classes", "class_weights", "background", "threshold", "all"])
def test_arguments_of_random_object_bbox_may_be_nodes(name: str) -> None:
    values = {"classes": ([1], np.int32), "class_weights": ([1.0], np.float32), "background": (0, np.int32)}
    values |= {"threshold": ([1, 1], np.int32)}
    names = [*values] if name == "all" else [name]

    def define(fn: Any, types: Any) -> Any:
        nodes = {each: constant(fn, *values[each]) for each in names}
        return fn.segmentation.random_object_bbox(constant(fn, MASK), format="box", foreground_prob=1.0, **nodes)

    assert results(ours, define) == results(theirs, define)


def test_members_of_an_enumeration_can_be_drawn_as_arguments() -> None:
    def define(fn: Any, types: Any) -> Any:
        image = constant(fn, np.arange(75).reshape(5, 5, 3), np.uint8)
        drawn = fn.random.choice([types.INTERP_NN, types.INTERP_LINEAR], p=[1.0, 0.0])
        return fn.resize(fn.reshape(image, layout="HWC"), size=(3, 3), interp_type=drawn, antialias=False)

    assert results(ours, define) == results(theirs, define)
