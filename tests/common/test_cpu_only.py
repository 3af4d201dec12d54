"""DALI_LIKE_DEVICE=cpu: programs written for a GPU run without one, and deliver their outputs on the CPU."""

from __future__ import annotations

import json
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dali_like
from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.common.cpu_only import is_cpu_only
from dali_like.data import DataLoader
from dali_like.data.options import LoaderOptions
from dali_like.device import opening
from dali_like.errors import ArgumentError, DeviceError, SampleTypeError
from dali_like.tensors import TensorListCPU
from dali_like.testing.simulated_device import SimulatedArray, SimulatedDevice
from tests.image_files import with_opencv

pytest.importorskip("cv2")


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, and with the switch set."""
    monkeypatch.setattr(opening, "count_accelerators", lambda: 0)
    monkeypatch.setenv("DALI_LIKE_DEVICE", "cpu")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of ten images of two classes; sample i is of color 10 * i."""
    for i in range(10):
        folder = tmp_path / "ab"[i // 5]
        folder.mkdir(exist_ok=True)
        (folder / f"{i}.png").write_bytes(with_opencv(np.full((8 + i, 9, 3), 10 * i, np.uint8), ".png"))
    return tmp_path


@pipeline_def(batch_size=4, num_threads=1, device_id=0, py_num_workers=0, enable_checkpointing=True, seed=3)
def training(root: Path) -> Any:
    files, labels = fn.readers.file(file_root=str(root), name="Reader", pad_last_batch=True)
    images = fn.decoders.image(files, device="mixed", output_type=types.RGB)
    images = fn.random_resized_crop(images, size=(4, 4), device="gpu")
    images = fn.crop_mirror_normalize(
        images.gpu(), mirror=fn.random.coin_flip(), dtype=types.FLOAT, mean=[0.0], std=[10.0], output_layout="HWC"
    )
    return images, labels.gpu()


@pytest.mark.usefixtures("on_cpu")
def test_a_program_for_a_gpu_runs_on_the_cpu(root: Path) -> None:
    with closing(training(root)) as pipe, closing(training(root)) as resumed:
        for _ in range(2):
            images, labels = pipe.run()
        assert [type(output) for output in (images, labels)] == [TensorListCPU] * 2
        assert images.as_cpu().as_array()[:, 0, 0, 0].tolist() == [4, 5, 6, 7]
        assert labels.as_cpu().as_array().ravel().tolist() == [0, 1, 1, 1]
        assert set(pipe.operator_places.values()) == {"threads"}

        resumed.load_state_dict(pipe.state_dict())
        for expected, output in zip(pipe.run(0), resumed.run(0), strict=True):
            assert np.array_equal(expected.as_array(), output.as_array())


@pytest.mark.usefixtures("on_cpu")
def test_iterators_yield_arrays_on_the_cpu(root: Path) -> None:
    from dali_like.plugin.numpy import DALIGenericIterator

    with closing(training(root)) as pipe:
        batches = list(DALIGenericIterator(pipe, ["images", "labels"], reader_name="Reader"))

    assert [type(batch["images"]) for [batch] in batches] == [np.ndarray] * 3


@pytest.mark.usefixtures("on_cpu")
def test_a_serialized_pipeline_keeps_the_devices() -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        files = fn.external_source(name="files")
        return fn.decoders.image(files, device="mixed"), fn.external_source(name="more", device="gpu") + 1

    with closing(pipeline()) as pipe:
        text = pipe.serialize()
        file = np.frombuffer(with_opencv(np.zeros((2, 2, 3), np.uint8), ".png"), np.uint8)
        pipe.feed_input("more", [np.ones(2)], cuda_stream=0)
        outputs = pipe.run(files=[file])

    assert [type(output) for output in outputs] == [TensorListCPU] * 2
    assert [output[2] for output in json.loads(text)["outputs"]] == ["gpu", "gpu"]
    with closing(Pipeline.deserialize(text)) as loaded:
        assert type(loaded.run(files=[file], more=[np.ones(2)])[0]) is TensorListCPU


def test_a_machine_with_a_gpu_does_not_use_it(gpus: list[SimulatedDevice], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALI_LIKE_DEVICE", "CPU")
    of_cpu = fn.external_source(lambda info: np.zeros(2), device="gpu", batch=False)
    of_gpu = fn.external_source(lambda info: SimulatedArray(np.zeros(2)), device="gpu", batch=False)

    for node in (of_cpu, of_gpu):
        pipe = Pipeline(batch_size=1, device_id=0)
        pipe.set_outputs(node)
        with closing(pipe):
            if node is of_gpu:
                with pytest.raises(SampleTypeError, match="an array on a GPU"):
                    pipe.run()
            else:
                assert type(pipe.run()[0]) is TensorListCPU
    pipe = Pipeline(batch_size=1, num_threads=1, device_id=0)
    pipe.set_outputs(fn.decoders.image(fn.external_source(name="files"), device="mixed"))
    with closing(pipe):
        assert pipe.operator_places == {"fn.decoders.image_0": "threads"}
        file = np.frombuffer(with_opencv(np.zeros((2, 2, 3), np.uint8), ".png"), np.uint8)
        assert type(pipe.run(files=[file])[0]) is TensorListCPU
    assert not gpus


@pytest.mark.parametrize("available", [False, True])
@pytest.mark.usefixtures("on_cpu")
def test_loaders_do_not_pin_and_say_nothing(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.device.accelerator.accelerator_is_available", lambda: available)
    loader = DataLoader(range(2), batch_size=2, pin_memory=True)
    with warnings.catch_warnings(action="error"):
        (batch,) = loader

    assert np.asarray(batch).tolist() == [0, 1]
    assert not LoaderOptions.of(loader).pins_memory


def test_errors_name_the_switch(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "count_accelerators", lambda: 0)
    monkeypatch.setattr(opening, "count_is_known", lambda: True)
    monkeypatch.setenv("DALI_LIKE_DEVICE", "")

    with pytest.raises(DeviceError, match=r"set DALI_LIKE_DEVICE=cpu in the environment, or call dali_like\.use_cpu\(\)$"):
        training(root).build()

    dali_like.use_cpu()
    assert is_cpu_only()
    with closing(training(root)) as pipe:
        assert type(pipe.run()[0]) is TensorListCPU


@pytest.mark.parametrize(("value", "expected"), [("", False), ("gpu", False), ("cpu", True), ("cuda", None)])
def test_values_of_the_switch(value: str, expected: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALI_LIKE_DEVICE", value)
    if expected is None:
        with pytest.raises(ArgumentError, match="DALI_LIKE_DEVICE='cuda' is not a device: set it to cpu"):
            is_cpu_only()
    else:
        assert is_cpu_only() is expected
