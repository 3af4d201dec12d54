"""A pipeline as a transform of PyTorch's datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dali_like import errors, fn, pipeline_def
from dali_like.plugin.pytorch.experimental import proxy


@pipeline_def(batch_size=4, num_threads=1, device_id=None, seed=5)
def two_inputs() -> Any:
    a, b = fn.external_source(name="a"), fn.external_source(name="b")
    return a + b, a - b


@pipeline_def(batch_size=4, num_threads=1, device_id=None)
def flipped() -> Any:
    return fn.flip(fn.external_source(name="images", layout="HWC"))


class Images(torch.utils.data.Dataset[Any]):
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return self.transform(np.full((2, 3, 3), index, np.uint8) + np.arange(3, dtype=np.uint8)[:, None]), index


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_workers_of_the_loader_compute(num_workers: int) -> None:
    pipe = flipped()
    with proxy.DALIServer(pipe) as server:
        loader = proxy.DataLoader(server, Images(server.proxy), batch_size=3, num_workers=num_workers)
        batches = [(images.clone(), labels.tolist()) for images, labels in loader]
    pipe.close()
    assert [labels for _, labels in batches] == [[0, 1, 2], [3, 4, 5]]
    assert batches[1][0].shape == (3, 2, 3, 3)
    assert batches[1][0][0, 0, :, 0].tolist() == [5, 4, 3]


def test_several_inputs_have_names() -> None:
    pipe = two_inputs()
    server = proxy.DALIServer(pipe)
    a, b = np.float32(3), np.float32(1)
    assert [float(value) for value in server.proxy(a=a, b=b)] == [4, 2]
    with pytest.raises(errors.ArgumentTypeError, match="by name: a, b"):
        server.proxy(a, b)
    pipe.close()


def test_wrong_pipelines() -> None:
    with pytest.raises(errors.ArgumentTypeError, match="Expected a pipeline"):
        proxy.DALIServer(object())  # type: ignore[arg-type]
