# pyright: strict
"""Mistakes that type checkers find: they are in the lines that say so, and nowhere else."""

from __future__ import annotations

import numpy as np

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.data import DataLoader
from dali_like.tensors import TensorListCPU


def source(info: types.SampleInfo) -> object:
    return np.zeros(info.index)  # wrong: idx_in_epoch


@pipeline_def(batch_size=8)
def pipeline() -> object:
    files = fn.external_source(source, batch=False)
    images = fn.decoders.image(files, output_typ=types.RGB)  # wrong: output_type
    turned = fn.rotate(images, angle="90")  # wrong: a number
    return fn.reszie(turned, size=[8, 8])  # wrong: resize


def use(pipe: Pipeline, batch: TensorListCPU) -> int:
    pipe.run_all()  # wrong: run
    array: list[int] = batch.as_array()  # wrong: an array
    Pipeline("8")  # wrong: a number
    number: int = pipe.checkpoint()  # wrong: bytes
    return len(array) + number


def load() -> object:
    DataLoader(3)  # wrong: no dataset
    return DataLoader([1, 2], num_worker=2)  # wrong: num_workers
