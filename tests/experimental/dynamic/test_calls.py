"""Operators in dynamic mode: on one sample, on batches, with random numbers."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd
from dali_like import errors, fn, pipeline_def, types
from dali_like.operators.machinery.description import descriptions
from dali_like.types import SampleInfo

FLOATS = np.ones(3, np.float32)
IMAGE = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def test_a_call_on_an_array_returns_a_tensor() -> None:
    made = ndd.flip(ndd.as_tensor(IMAGE, layout="HWC"))
    assert isinstance(made, ndd.Tensor)
    assert (made.shape, made.dtype, made.layout, str(made.device)) == ((4, 6, 3), ndd.uint8, "HWC", "cpu:0")
    assert np.array_equal(made, IMAGE[:, ::-1])
    assert np.array_equal(ndd.flip(IMAGE), IMAGE[:, ::-1])


def test_results_do_not_share_memory_with_later_results() -> None:
    images = [np.full((64, 64, 3), i, np.uint8) for i in range(3)]
    made = [np.asarray(ndd.resize(image, size=(128, 128))) for image in images]
    assert [int(result.max()) for result in made] == [0, 1, 2]
    assert not np.shares_memory(np.asarray(ndd.crop(IMAGE, crop=(2, 2))), IMAGE)


def test_arguments_may_be_tensors_and_batches() -> None:
    batch = ndd.as_batch([IMAGE] * 3, layout="HWC")
    made = ndd.resize(batch, resize_x=6, resize_y=ndd.batch([2.0, 4, 8]))
    assert made.shape == [(2, 6, 3), (4, 6, 3), (8, 6, 3)]
    assert made.layout == "HWC"
    assert ndd.resize(IMAGE, resize_x=np.float32(3), resize_y=ndd.tensor(2.0)).shape == (2, 3, 3)


def test_equal_numbers_of_other_types_are_other_constants() -> None:
    assert [ndd.full(value, shape=[1]).dtype for value in (1, 1.0, True)] == [ndd.int32, ndd.float32, ndd.bool]
    assert [ndd.cast(IMAGE, dtype=kind).dtype.name for kind in (ndd.float32, types.FLOAT16)] == ["f32", "f16"]
    for _ in range(2):  # the second calls find the first ones
        filled = [
            np.asarray(ndd.erase(FLOATS, anchor=[0], shape=[1], axes=[0], fill_value=value))
            for value in (0.0, -0.0, [0.0], [-0.0])
        ]
        assert [bool(np.signbit(each[0])) for each in filled] == [False, True, False, True]


def test_a_repeated_call_computes_the_same_as_the_first() -> None:
    other = np.ascontiguousarray(IMAGE[:, :3])
    for call in (
        ndd.flip,
        lambda image: ndd.crop(image, crop=[2, 3]),
        lambda image: ndd.cast(image, dtype=types.FLOAT16),
        lambda image: ndd.crop_mirror_normalize(image, mean=[1.0, 2.0, 3.0], std=[0.5]),
    ):
        first = [np.asarray(call(image)) for image in (IMAGE, other)]
        again = [call(image) for image in (IMAGE, other, ndd.as_tensor(IMAGE), ndd.as_tensor(IMAGE, layout="HWC"))]
        for made, expected in zip(again, [*first, first[0], first[0]], strict=True):
            np.testing.assert_array_equal(made, expected, strict=True)
        assert again[3].layout in ("HWC", "CHW")
    with pytest.raises(errors.DaliLikeError, match="layout"):
        ndd.flip(IMAGE[0])


def test_constants_that_are_not_numbers_are_converted_in_each_call() -> None:
    for offset in (1, 2):
        assert ndd.crop(IMAGE, crop=[np.int64(2 + offset), np.int64(3)]).shape == (2 + offset, 3, 3)
        with pytest.raises(errors.ArgumentTypeError, match="a list of numbers"):
            ndd.crop(IMAGE, crop=[np.array(2), 3])


def test_operators_on_batches() -> None:
    assert sorted(np.asarray(ndd.batch_permutation(batch_size=5)).tolist()) == [0, 1, 2, 3, 4]
    made = ndd.permute_batch(ndd.batch([10, 20, 30]), indices=[2, 0, 1])
    assert np.asarray(made).tolist() == [30, 10, 20]


def test_several_outputs_are_a_tuple() -> None:
    boxes = ndd.as_tensor(np.array([[0.1, 0.1, 0.5, 0.5]], np.float32))
    outputs = ndd.nonsilent_region(np.r_[np.zeros(100), np.ones(100)].astype(np.float32), window_length=4)
    assert isinstance(outputs, tuple)
    assert len(outputs) == 2
    assert boxes.shape == (1, 4)


def test_batches_are_computed_by_threads(context: ndd.EvalContext) -> None:
    barrier = threading.Barrier(2, timeout=300)
    context.for_each(2, lambda i: barrier.wait() and None)
    assert any(thread.name.startswith("dali_like") for thread in threading.enumerate())
    context.close()
    assert ndd.flip(ndd.batch([IMAGE] * 3, layout="HWC")).batch_size == 3  # the threads start again


def test_the_error_of_the_first_sample_comes_with_its_number() -> None:
    files = [np.frombuffer(b"no image", np.uint8)] * 3
    with pytest.raises(errors.DaliLikeError) as caught:
        ndd.decoders.image(ndd.as_batch(files))
    assert any("fn.decoders.image for sample 0 of the batch" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (ndd.flip, errors.ArgumentTypeError, "flip takes 1 inputs"),
        (lambda: ndd.flip(IMAGE, horizontl=1), errors.ArgumentTypeError, "horizontal"),
        (lambda: ndd.resize(IMAGE, resize_x="wide"), errors.ArgumentError, "resize_x"),
        (lambda: ndd.flip(IMAGE, device="tpu"), errors.ArgumentError, "Invalid device type"),
        (lambda: ndd.random.uniform(rng=3), errors.ArgumentTypeError, "rng must be"),
        (lambda: ndd.batch([1, 2]) + ndd.batch([1, 2, 3]), errors.BatchSizeError, "Inconsistent batch size"),
        (lambda: ndd.as_tensor("text"), errors.ArgumentTypeError, "a tensor is made of"),
        (lambda: ndd.batch([1, 2])[ndd.batch([0, 1])], errors.ArgumentError, "batch.slice"),
        (lambda: ndd.as_batch([]), errors.ArgumentError, "dtype="),
        (lambda: ndd.tensor([1, 2]).item(), errors.ArgumentError, "expected 1"),
    ],
)
def test_wrong_calls(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_arithmetic_follows_dali() -> None:
    one = ndd.tensor([1, 2, 3], dtype=ndd.uint8)
    assert (one + 255).dtype == ndd.int32
    assert np.asarray(one / 2).tolist() == [0.5, 1.0, 1.5]
    assert np.asarray(2 - one * ndd.tensor(1, dtype=ndd.int8)).tolist() == [1, 0, -1]
    assert np.asarray(np.array([1, 1, 1], np.uint8) + one).tolist() == [2, 3, 4]
    assert np.asarray((one > 1) & (one <= 2)).tolist() == [False, True, False]
    assert np.asarray(ndd.math.clamp(ndd.batch([1, 5, 9]), 2, 6)).tolist() == [2, 5, 6]
    assert float(ndd.math.sqrt(ndd.tensor(4.0))) == 2


def test_indices() -> None:
    image = ndd.as_tensor(IMAGE, layout="HWC")
    assert image[0].layout == "WC"
    assert np.array_equal(image[1:3, -1], IMAGE[1:3, -1])
    assert int(image[ndd.tensor(1), 2, 0]) == IMAGE[1, 2, 0]
    batch = ndd.as_batch([IMAGE, IMAGE + 1], layout="HWC")
    assert [np.asarray(one).tolist() for one in batch.slice[ndd.batch([0, 3]), 0, 0]] == [IMAGE[0, 0, 0], IMAGE[3, 0, 0] + 1]
    assert batch.slice[: ndd.batch([1, 2])].shape == [(1, 6, 3), (2, 6, 3)]
    assert batch.tensors[1:].as_batch().batch_size == batch.select([1]).batch_size == 1


def test_values_are_views_where_they_can_be() -> None:
    data = np.arange(3, dtype=np.float32)
    assert np.shares_memory(np.asarray(ndd.as_tensor(data)), data)
    assert not np.shares_memory(np.asarray(ndd.tensor(data)), data)
    assert np.shares_memory(np.from_dlpack(ndd.as_tensor(data)), data)
    dense = np.zeros((2, 3), np.uint8)
    assert np.shares_memory(np.asarray(ndd.as_batch(dense)), dense)
    assert np.array_equal(pickle.loads(pickle.dumps(ndd.as_batch(dense))), dense)
    assert np.array_equal(pickle.loads(pickle.dumps(ndd.as_tensor(data))), data)


def test_random_numbers_depend_on_the_generator() -> None:
    def draw(**options: Any) -> list[float]:
        return np.asarray(ndd.random.uniform(range=[0, 1], batch_size=4, **options)).tolist()

    rng = ndd.random.RNG(seed=3)
    first, second = draw(rng=rng), draw(rng=rng)
    assert first != second
    assert len(set(first)) == 4
    assert draw(rng=rng.clone()) == first
    state = rng.state_dict()
    third = draw(rng=rng)
    rng.load_state_dict(state)
    assert draw(rng=rng) == third
    ndd.random.set_seed(5)
    again = draw()
    ndd.random.set_seed(5)
    assert draw() == again


def test_random_numbers_by_position() -> None:
    def source(info: SampleInfo) -> Any:
        return ndd.random.uniform(range=[0, 1], rng=info.rng())

    def epoch(method: dict[str, Any]) -> list[float]:
        @pipeline_def(batch_size=4, num_threads=1, seed=7, **method)
        def numbers() -> Any:
            return fn.external_source(source, batch=False, parallel=bool(method["py_num_workers"]))

        pipe = numbers()
        try:
            return pipe.run()[0].as_array().tolist()
        finally:
            pipe.close()

    serial = epoch({"py_num_workers": 0})
    assert len(set(serial)) == 4
    assert epoch({"py_num_workers": 1, "py_start_method": "thread"}) == serial


def test_modes_and_devices() -> None:
    with ndd.EvalMode.deferred:
        assert ndd.EvalMode.current() is ndd.EvalMode.deferred
        assert ndd.flip(IMAGE).evaluate().shape == IMAGE.shape
    assert ndd.EvalMode.current() is ndd.EvalMode.default
    with ndd.Device("cpu") as device:
        assert ndd.Device.current() is device
    assert ndd.device("cuda:1") == ndd.Device("gpu", 1)
    assert ndd.dtype("f32") is ndd.dtype(np.float32) is ndd.dtype(types.FLOAT) is ndd.float32
    assert ndd.uint8([1, 2]).dtype == ndd.uint8


def test_every_operator_is_a_function() -> None:
    missing = [path for path in descriptions() if "python_function" not in path and not _has(path)]
    assert not [path for path in missing if path not in ("jax_function", "numba_function", "experimental.numba_function")]


def _has(path: str) -> bool:
    value: Any = ndd
    for name in path.split("."):
        value = getattr(value, name, None)
    return callable(value)


def test_a_pipeline_and_dynamic_mode_compute_equal_bits() -> None:
    mirrors = np.array([0, 1, 1, 0], np.int32)

    @pipeline_def(batch_size=4, num_threads=1)
    def recipe() -> Any:
        images = fn.external_source(lambda info: IMAGE + info.idx_in_epoch, batch=False, layout="HWC")
        mirror = fn.external_source(lambda info: mirrors[info.idx_in_epoch], batch=False)
        images = fn.resize(images, size=(8, 9))
        return fn.crop_mirror_normalize(images, mirror=mirror, mean=[1.0, 2, 3], std=[4.0, 5, 6], crop=(7, 7))

    pipe = recipe()
    expected = pipe.run()[0].as_array().copy()
    pipe.close()
    images = ndd.resize(ndd.as_batch([IMAGE + i for i in range(4)], layout="HWC"), size=(8, 9))
    made = ndd.crop_mirror_normalize(images, mirror=ndd.batch(mirrors), mean=[1.0, 2, 3], std=[4.0, 5, 6], crop=(7, 7))
    assert np.array_equal(made, expected)


def test_numbers_without_dimensions_are_converted() -> None:
    assert [int(ndd.cast(np.float32(number), dtype=ndd.uint8)) for number in (300.7, -2.0, 2.5)] == [255, 0, 3]
    assert int(ndd.random.uniform(range=[3.0, 3.1], dtype=ndd.int32, rng=ndd.random.RNG(seed=1))) == 3
