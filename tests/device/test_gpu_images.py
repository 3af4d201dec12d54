"""Images decoded on a simulated GPU; the CPU decodes files that the GPU refuses."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.device import opening
from dali_like.errors import DecodeError, DeviceError, MissingExtraError
from dali_like.images.decode import decoded_shape
from dali_like.testing.simulated_device import SimulatedArray, SimulatedDevice
from tests.image_files import png_promising

cv2 = pytest.importorskip("cv2")

Gpus = list[SimulatedDevice]
JPEG = b"\xff\xd8"


def encoded(extension: str, height: int = 8) -> NDArray[np.uint8]:
    pixels = np.full((height, 8, 3), 7, np.uint8)
    return np.asarray(cv2.imencode(extension, pixels)[1]).ravel()


def on_gpu(file: bytes, is_gray: bool, is_upright: bool) -> Any:
    """Decode a JPEG file to another number than the CPU does."""
    shape = decoded_shape(np.frombuffer(file, np.uint8), types.GRAY if is_gray else types.RGB, is_upright)
    return SimulatedArray(np.full(shape, 99, np.uint8)) if shape and file.startswith(JPEG) else None


def decode(
    gpus: Gpus, *files: NDArray[np.uint8], by: Any = on_gpu, max_held_bytes: int | None = None, **options: Any
) -> Any:
    """Return the images that a pipeline decodes, and their batch."""

    @pipeline_def(batch_size=len(files), num_threads=2, device_id=0, max_held_bytes=max_held_bytes)
    def pipeline() -> Any:
        source = fn.external_source(lambda info: files[info.idx_in_batch], batch=False)
        return fn.decoders.image(source, device="mixed", **options)

    with closing(pipeline()) as pipe:
        pipe.build()
        gpus[0].decode = by
        (batch,) = pipe.run()
        assert batch.layout() == "HWC"
        return [np.asarray(sample) for sample in batch.as_cpu()], batch


def test_images_that_the_gpu_supports_are_decoded_there(gpus: Gpus) -> None:
    images, batch = decode(gpus, encoded(".jpg"), encoded(".jpg"))

    assert [image.shape for image in images] == [(8, 8, 3)] * 2
    assert all((image == 99).all() for image in images)
    assert batch.as_tensor().shape() == [2, 8, 8, 3]
    assert not gpus[0].copies


@pytest.mark.parametrize("heights", [(8, 8, 8), (8, 12, 16)])
def test_the_cpu_decodes_the_rest(heights: tuple[int, ...], gpus: Gpus) -> None:
    extensions = (".png", ".jpg", ".bmp")
    images, _ = decode(gpus, *map(encoded, extensions, heights))

    assert [image.shape for image in images] == [(height, 8, 3) for height in heights]
    assert [int(image.flat[0]) for image in images] == [7, 99, 7]


def test_output_types_that_the_gpu_does_not_know_come_from_the_cpu(gpus: Gpus) -> None:
    images, _ = decode(gpus, encoded(".png"), encoded(".png"), output_type=types.BGR)

    assert [int(image.flat[0]) for image in images] == [7, 7]


def test_gray_images_have_one_channel(gpus: Gpus) -> None:
    images, _ = decode(gpus, encoded(".jpg"), encoded(".png"), output_type=types.GRAY)

    assert [image.shape for image in images] == [(8, 8, 1)] * 2


@pytest.mark.parametrize("options", [{}, {"adjust_orientation": False}, {"adjust_orientation": True}])
def test_the_gpu_is_told_whether_images_are_to_be_upright(options: dict[str, bool], gpus: Gpus) -> None:
    told: list[bool] = []

    def tell(file: bytes, is_gray: bool, is_upright: bool) -> Any:
        told.append(is_upright)
        return on_gpu(file, is_gray, is_upright)

    decode(gpus, encoded(".jpg"), by=tell, **options)

    assert set(told) == {options.get("adjust_orientation", False)}


def test_an_image_that_neither_gpu_nor_cpu_decodes_is_named(gpus: Gpus) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(gpus, encoded(".jpg"), np.zeros(10, np.uint8))

    assert "for sample 1 of iteration 0" in caught.value.__notes__[0]


@pytest.mark.parametrize(("max_held_bytes", "said"), [(1 << 26, "raise max_held_bytes"), (1 << 40, "damaged")])
def test_the_cpu_decodes_images_as_large_as_max_held_bytes_allows(max_held_bytes: int, said: str, gpus: Gpus) -> None:
    file = np.frombuffer(png_promising(14000, 14000), np.uint8)

    with pytest.raises(DecodeError, match=said):
        decode(gpus, file, max_held_bytes=max_held_bytes)


def test_decoded_images_can_be_had_on_the_cpu(gpus: Gpus) -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        images = fn.decoders.image(fn.external_source(lambda info: encoded(".png"), batch=False), device="mixed")
        return images.cpu(), images.shape(), images

    with closing(pipeline()) as pipe:
        on_cpu, shape, on_gpu = pipe.run()
        assert np.array_equal(on_cpu[0], on_gpu.as_cpu()[0])
        assert shape.as_array().tolist() == [[8, 8, 3]]


def test_a_serialised_pipeline_decodes_on_the_gpu(gpus: Gpus) -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.decoders.image(fn.external_source(name="x"), device="mixed")

    with closing(pipeline()) as pipe, closing(Pipeline.deserialize(pipe.serialize())) as loaded:
        assert type(loaded.run(x=[encoded(".png")])[0]).__name__ == "TensorListGPU"


@pytest.mark.parametrize(
    ("installed", "count", "error", "words"),
    [
        ({"nvidia.nvimgcodec"}, 1, MissingExtraError, "needs cupy"),
        ({"cupy", "nvidia.nvimgcodec"}, 0, DeviceError, r"fn\.decoders\.image on the GPU needs a GPU.*sees none"),
    ],
)
def test_without_a_gpu_or_cupy_the_error_names_the_missing_part(
    installed: set[str], count: int, error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "count_accelerators", lambda: count)
    monkeypatch.setattr(opening, "_is_installed", installed.__contains__)

    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.decoders.image(fn.external_source(name="x"), device="mixed")

    with pytest.raises(error, match=words):
        pipeline().build()


def test_the_cpu_decodes_in_branches_and_only_the_merged_batch_is_copied(gpus: Gpus) -> None:
    files = [encoded(".jpg"), np.zeros(9, np.uint8), encoded(".jpg")]

    @pipeline_def(batch_size=3, num_threads=1, device_id=0, enable_conditionals=True)
    def pipeline() -> Any:
        file = fn.external_source(lambda info: files[info.idx_in_batch], batch=False)
        if file[0] == JPEG[0]:
            fn.decoders.image(file, device="mixed", preserve=True)
            image = fn.flip(fn.decoders.image(file, device="mixed"))
        else:
            image = types.Constant(np.zeros((8, 8, 3), np.uint8), layout="HWC", device="gpu")
        return image

    with closing(pipeline()) as pipe:
        with pytest.warns(UserWarning, match=r"fn.decoders.image, fn.flip\. Pipeline"):
            pipe.build()
        gpus[0].decode = on_gpu
        (batch,) = pipe.run()
        assert [int(np.asarray(sample).flat[0]) for sample in batch.as_cpu()] == [7, 0, 7]
        assert batch.as_tensor().shape() == [3, 8, 8, 3]
