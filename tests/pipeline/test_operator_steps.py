"""``Pipeline.steps_at``: the way of one sample through the operators, with the values of the pipeline itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def
from dali_like.errors import NotRepeatableError, SampleIndexError
from dali_like.pipeline.operator_steps import OperatorStep
from dali_like.types import FLOAT, OBJECT, SampleInfo
from tests.conftest import skip_without

skip_without("cv2")


def picture(info: SampleInfo) -> Any:
    return info.rng().integers(0, 256, (24, 32, 3), np.uint8)


@pipeline_def(batch_size=4, num_threads=1, py_num_workers=1, seed=3)
def augmented(**said: Any) -> Any:
    pictures = fn.external_source(picture, batch=False, parallel=True, size=16, layout="HWC", name="pictures", **said)
    angle = fn.random.uniform(range=[-30, 30])
    turned = fn.rotate(pictures, angle=angle, keep_size=True)
    return fn.flip(fn.resize(turned, size=[12, 16]), horizontal=fn.random.coin_flip()), angle * 2


@pipeline_def(batch_size=4, num_threads=1, seed=3, enable_conditionals=True)
def branching() -> Any:
    numbers = fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False, size=8)
    if numbers % 2 == 0:  # noqa: SIM108  (a conditional of the pipeline)
        result = numbers + fn.random.uniform(range=[0, 0.5])
    else:
        result = fn.cast(numbers, dtype=FLOAT) * 100.0
    return result


def names_of(steps: list[OperatorStep]) -> list[str]:
    return [step.name.rpartition("_")[0] or step.name for step in steps]


def test_last_steps_have_the_outputs_of_the_pipeline_to_the_bit() -> None:
    with augmented() as pipe:
        batches = [[np.copy(output.at(2)) for output in outputs] for outputs in pipe]
        for iteration, (pixels, doubled) in enumerate(batches):
            steps = pipe.steps_at(0, iteration, sample=2)
            by_name = dict(zip(names_of(steps), steps, strict=True))
            assert np.array_equal(by_name["fn.flip"].outputs[0], pixels)
            assert np.array_equal(steps[-1].outputs[0], doubled)


def test_steps_are_in_the_order_of_the_function_and_have_layouts() -> None:
    with augmented() as pipe:
        steps = pipe.steps_at(0, 1)

    assert names_of(steps)[:5] == ["pictures", "fn.random.uniform", "fn.rotate", "fn.resize", "fn.random.coin_flip"]
    assert (steps[0].layouts, steps[0].outputs[0].shape) == (("HWC",), (24, 32, 3))
    assert (steps[3].layouts, steps[3].outputs[0].shape) == (("HWC",), (12, 16, 3))


def test_sample_has_the_steps_of_its_branch_alone() -> None:
    with branching() as pipe:
        (batch,) = pipe.run()
        even, odd = (pipe.steps_at(0, 0, sample) for sample in (2, 3))

    assert "fn.cast" not in names_of(even)
    assert "fn.random.uniform" not in names_of(odd)
    for steps, sample in ((even, 2), (odd, 3)):
        assert np.array_equal(steps[-1].outputs[0], batch.at(sample))


def test_steps_of_objects_are_the_objects() -> None:
    @pipeline_def(batch_size=2, num_threads=1)
    def texts() -> Any:
        return fn.external_source(lambda info: f"text {info.idx_in_epoch}", batch=False, size=4, dtype=OBJECT)

    with texts() as pipe:
        [step] = pipe.steps_at(0, 1, sample=1)
    assert step.outputs == ("text 3",)


def test_steps_leave_the_pipeline_and_the_global_generators_as_they_are() -> None:
    def drawing(info: SampleInfo) -> Any:
        return np.array([np.random.random(), info.idx_in_epoch])

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline() -> Any:
        return fn.external_source(drawing, batch=False, size=8)

    with pipeline() as pipe:
        pipe.run()
        before = np.random.get_state()[1].copy()  # type: ignore[union-attr,index]
        pipe.steps_at(0, 2)
        pipe.batch_at(0, 3)
        assert np.array_equal(np.random.get_state()[1], before)  # type: ignore[index]
        assert pipe.run()[0].as_array()[:, 1].tolist() == [2, 3]


def test_step_beyond_the_epoch_or_the_batch_is_refused() -> None:
    with augmented() as pipe:
        with pytest.raises(SampleIndexError, match="epoch 0 has no iteration 4"):
            pipe.steps_at(0, 4)
        with pytest.raises(SampleIndexError, match="the batch has 4 samples, and none with number 4"):
            pipe.steps_at(0, 0, sample=4)


def test_input_that_the_program_feeds_has_no_steps() -> None:
    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline() -> Any:
        return fn.external_source(name="fed") + 1

    with pipeline() as pipe, pytest.raises(NotRepeatableError, match="the program feeds it"):
        pipe.steps_at(0, 0)
