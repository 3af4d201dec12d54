"""Operators whose results are wanted on a GPU: they run on the CPU, and only outputs are copied."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, math, ops, pipeline_def, types
from dali_like.device import opening
from dali_like.errors import ArgumentClashError
from dali_like.testing.simulated_device import SimulatedArray, SimulatedDevice
from tests.image_files import as_file, with_opencv

Gpus = list[SimulatedDevice]
BATCH = 4
NOTICE = "run on the CPU, and the GPU gets only the outputs"


def image(info: Any) -> Any:
    return np.full((8, 6, 3), info.idx_in_epoch, np.uint8)


def chain(data: Any, device: str | None) -> Any:
    """The usual end of a training pipeline."""
    small = fn.crop(data, crop=(4, 4), crop_pos_x=fn.random.uniform(range=(0, 1), seed=3), device=device)
    return fn.crop_mirror_normalize(small, dtype=types.FLOAT, mean=[1.0], std=[2.0], device=device)


def run(define: Callable[[], Any], **options: Any) -> tuple[list[Any], dict[str, str]]:
    """Return the outputs of the second batch, and the places of the operators."""
    arguments = {"batch_size": BATCH, "num_threads": 1, "device_id": 0, **options}
    with closing(pipeline_def(define)(**arguments)) as pipe, warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".*{NOTICE}")
        pipe.run()
        outputs = [output.as_cpu().as_array().copy() for output in pipe.run()]
        return outputs, pipe.operator_places


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("moves", [lambda data: chain(data, "gpu"), lambda data: chain(data.gpu(), None)])
def test_values_are_those_of_the_cpu(moves: Callable[[Any], Any], parallel: bool, gpus: Gpus) -> None:
    options = {"py_num_workers": 2, "py_start_method": "thread"} if parallel else {}

    def source() -> Any:
        return fn.external_source(image, batch=False, parallel=parallel)

    (on_gpu,), places = run(lambda: moves(source()), **options)
    copied = [nbytes for nbytes, _ in gpus[0].copies]
    (on_cpu,), expected_places = run(lambda: chain(source(), None), **options)

    assert np.array_equal(on_gpu, on_cpu)
    assert places == expected_places
    assert set(places.values()) == {"workers" if parallel else "threads"}
    assert set(copied) == {on_cpu.nbytes}


def test_only_outputs_are_copied(gpus: Gpus) -> None:
    def define() -> Any:
        data = fn.external_source(image, batch=False).gpu()
        mean = fn.reductions.mean(data)
        return mean, math.sqrt(mean).cpu(), data.shape()

    outputs, _ = run(define)

    assert [output.shape for output in outputs] == [(BATCH,), (BATCH,), (BATCH, 3)]
    assert {nbytes for nbytes, _ in gpus[0].copies} == {outputs[0].nbytes}


@pytest.mark.parametrize(
    ("define", "device"),
    [
        (fn.flip, "cpu"),
        (lambda data: fn.flip(data.gpu()), "gpu"),
        (lambda data: fn.flip(data, device="gpu"), "gpu"),
        (lambda data: fn.flip(data.gpu(), device="cpu"), "cpu"),
        (ops.Flip(device="gpu"), "gpu"),
        (lambda data: fn.cat(data, data.gpu(), axis=0), "gpu"),
        (lambda data: fn.flip([data, data.gpu()])[0], "gpu"),
        (lambda data: fn.decoders.image_crop(data, device="mixed"), "gpu"),
        (lambda data: fn.image_decoder(data, device="mixed"), "gpu"),
        (lambda data: data.gpu() + 1, "gpu"),
        (lambda data: data + data.gpu(), "gpu"),
        (lambda data: data.gpu()[0], "gpu"),
        (lambda data: math.sin(data.gpu()), "gpu"),
        (lambda data: data.gpu().shape(), "cpu"),
        (lambda data: fn.random.uniform(device="gpu"), "gpu"),
    ],
)
@pytest.mark.filterwarnings("ignore:fn.image_decoder is deprecated")
def test_the_device_of_results_is_that_of_dali(define: Callable[[Any], Any], device: str) -> None:
    node = define(fn.external_source(name="data"))

    assert node.device == device


def test_one_notice_names_the_operators(gpus: Gpus) -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        data = fn.flip(fn.external_source(image, batch=False))
        return chain(fn.flip(data).gpu(), "gpu")

    with closing(pipeline()) as pipe:
        with pytest.warns(
            UserWarning, match=rf"{NOTICE}.*: fn\.crop, fn\.crop_mirror_normalize\. .*operator_places"
        ) as told:
            pipe.run()
        assert len(told) == 1


def test_operators_before_a_copy_are_not_worth_a_notice(gpus: Gpus) -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return chain(fn.external_source(image, batch=False), None).gpu()

    with closing(pipeline()) as pipe:
        pipe.run()


# Data that may be on the GPU already


@pytest.mark.filterwarnings(f"ignore:.*{NOTICE}")
def test_arrays_on_the_cpu_from_a_source_of_the_gpu_are_copied_behind_the_operators(gpus: Gpus) -> None:
    outputs, _ = run(lambda: chain(fn.external_source(image, batch=False, device="gpu"), None))

    assert {nbytes for nbytes, _ in gpus[0].copies} == {outputs[0].nbytes}


@pytest.mark.filterwarnings(f"ignore:.*{NOTICE}")
def test_arrays_on_the_gpu_are_not_copied_back_unasked(gpus: Gpus) -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline(is_asked: bool) -> Any:
        data = fn.external_source(lambda info: SimulatedArray(image(info)), batch=False, device="gpu", name="arrays")
        return fn.flip(data.cpu() if is_asked else data)

    with closing(pipeline(True)) as pipe:
        assert pipe.run()[0].as_array().shape == (1, 8, 6, 3)
    with (
        closing(pipeline(False)) as pipe,
        pytest.raises(ArgumentClashError, match=r"^fn\.flip works on the CPU; arrays is on the GPU: pass its \.cpu\(\)$"),
    ):
        pipe.run()


# Decoders


def decoding(then: Callable[[Any], Any]) -> Any:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return then(
            fn.decoders.image(
                fn.external_source(lambda info: as_file(with_opencv(image(info), ".png")), batch=False), device="mixed"
            )
        )

    return pipeline()


@pytest.mark.parametrize(
    ("then", "place"),
    [
        (lambda images: images, "gpu"),
        (lambda images: (images, fn.flip(images.cpu())), "gpu"),
        (fn.flip, "threads"),
        (lambda images: (images, images[0]), "threads"),
    ],
)
@pytest.mark.filterwarnings(f"ignore:.*{NOTICE}")
def test_images_are_decoded_where_operators_need_them(then: Callable[[Any], Any], place: str, gpus: Gpus) -> None:
    with closing(decoding(then)) as pipe:
        decoded: list[bytes] = []
        pipe.build()
        gpus[0].decode = lambda file, is_gray, is_upright: decoded.append(file)
        pipe.run()

        assert pipe.operator_places["fn.decoders.image_0"] == place
        assert bool(decoded) is (place == "gpu")


@pytest.mark.parametrize(("dtype", "is_on_gpu"), [(types.UINT8, True), (types.UINT16, False)])
def test_images_of_other_depths_are_decoded_on_the_cpu(dtype: Any, is_on_gpu: bool, gpus: Gpus) -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        files = fn.external_source(lambda info: as_file(with_opencv(image(info), ".png")), batch=False)
        return fn.experimental.decoders.image(files, device="mixed", dtype=dtype)

    with closing(pipeline()) as pipe:
        upright: list[bool] = []
        pipe.build()
        gpus[0].decode = lambda file, is_gray, is_upright: upright.append(is_upright)
        (images,) = pipe.run()

        assert {*upright} == ({True} if is_on_gpu else set())
        assert images.dtype is dtype


def test_without_nvimagecodec_images_are_decoded_on_the_cpu(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "can_decode_images", lambda: False)

    with closing(decoding(lambda images: images)) as pipe:
        with pytest.warns(UserWarning, match=rf"{NOTICE}.*: fn\.decoders\.image\."):
            (batch,) = pipe.run()
        assert np.array_equal(np.asarray(batch.as_cpu()[0]), np.zeros((8, 6, 3), np.uint8))
        assert pipe.operator_places == {"fn.decoders.image_0": "threads"}


@pytest.mark.filterwarnings(f"ignore:.*{NOTICE}")
def test_a_serialized_pipeline_wants_the_same(gpus: Gpus) -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        data = fn.external_source(name="data", device="gpu")
        return chain(data, "gpu"), data + 1, fn.flip(data, device="cpu")

    with closing(pipeline()) as pipe, closing(Pipeline.deserialize(pipe.serialize())) as loaded:
        outputs = loaded.run(data=[np.zeros((8, 6, 3), np.uint8)])
        assert [type(output).__name__ for output in outputs] == ["TensorListGPU", "TensorListGPU", "TensorListCPU"]
