"""Images decoded on a GPU, compared with the CPU's."""

from __future__ import annotations

import io
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def, types
from tests.gpu import gates

cupy: Any = gates.cuda()
pytest.importorskip("nvidia.nvimgcodec", reason="nvImageCodec is not installed")
Image: Any = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

#: Largest and mean difference allowed between pixels.
MOST, MEAN = 12, 1.0


def encoded(kind: str, seed: int, size: tuple[int, int] = (160, 120)) -> Any:
    small = np.random.default_rng(seed).integers(0, 255, (12, 16, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(file, kind, quality=90)
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.mark.parametrize("output_type", [types.RGB, types.GRAY, types.BGR])
@pytest.mark.parametrize("sizes", [[(160, 120)] * 4, [(160, 120), (64, 48), (99, 77), (160, 120)]])
def test_images_are_those_of_the_cpu(sizes: list[tuple[int, int]], output_type: types.DALIImageType) -> None:
    files = [encoded(kind, i, size) for i, (kind, size) in enumerate(zip(("JPEG", "PNG") * 2, sizes, strict=True))]

    @pipeline_def(batch_size=4, num_threads=2, device_id=0)
    def pipeline() -> Any:
        source = fn.external_source(lambda info: files[info.idx_in_batch], batch=False)
        images = fn.decoders.image(source, device="mixed", output_type=output_type)
        return images, fn.decoders.image(source, output_type=output_type)

    with closing(pipeline()) as pipe:
        for _ in range(5):
            on_gpu, on_cpu = pipe.run()
            for decoded, expected in zip(on_gpu.as_cpu(), on_cpu, strict=True):
                difference = np.abs(np.asarray(decoded).astype(int) - np.asarray(expected))
                assert difference.max() <= MOST
                assert difference.mean() <= MEAN
