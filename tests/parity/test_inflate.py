"""``experimental.inflate``, which DALI has on the GPU alone: its example, and a comparison where there is a GPU.

tests/operators/arrays/test_inflating.py compares results with arrays; test_operator_schemas.py compares arguments with
DALI's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

dali = pytest.importorskip("nvidia.dali")
block = pytest.importorskip("lz4.block")
torch = pytest.importorskip("torch")

from tests.parity.conftest import OURS, Library  # noqa: E402

pytestmark = pytest.mark.peers

FILMS = [np.arange(2 * i * 12, dtype=np.uint8).reshape(2 * i, 2, 3, 2) for i in range(1, 4)]


def squeezed(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(block.compress(array.tobytes(), store_size=False), np.uint8)


def source() -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    chunks = [
        [np.frombuffer(block.compress(frame.tobytes(), store_size=False), np.uint8) for frame in film] for film in FILMS
    ]
    sizes = [np.int32([chunk.size for chunk in film]) for film in chunks]
    return [np.concatenate(film) for film in chunks], [np.int32(film.shape[1:]) for film in FILMS], sizes


def frames(library: Any, *, on_gpu: bool) -> Any:
    """The example of DALI's documentation."""
    data, shape, sizes = library.fn.external_source(source, num_outputs=3, batch=True)
    inflated = library.fn.experimental.inflate(
        data.gpu() if on_gpu else data, chunk_sizes=sizes, shape=shape, layout="HWC", sequence_axis_name="F"
    )
    return inflated.cpu() if on_gpu else inflated


def run(library: Library, *, on_gpu: bool) -> tuple[str, list[np.ndarray]]:
    options = {"batch_size": len(FILMS), "device_id": 0 if on_gpu else None}
    with library.pipeline(lambda: frames(library, on_gpu=on_gpu), **options) as pipe:
        (batch,) = pipe.run()
        return batch.layout(), [np.array(batch.at(i)) for i in range(len(batch))]


def test_example():
    layout, samples = run(OURS, on_gpu=False)

    assert layout == "FHWC"
    for sample, film in zip(samples, FILMS, strict=True):
        np.testing.assert_array_equal(sample, film, strict=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="DALI's needs a GPU")
def test_samples_are_the_same_as_on_a_gpu(dali):
    ours, theirs = run(OURS, on_gpu=False), run(dali, on_gpu=True)

    assert ours[0] == theirs[0]
    for one, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
