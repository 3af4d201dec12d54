"""Pipelines with one reader, and their outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dali_like import Pipeline, fn


@contextlib.contextmanager
def pipeline_with(
    reader: Callable[..., Any], batch_size: int = 2, *, of_pipeline: dict[str, Any] | None = None, **options: Any
) -> Iterator[Pipeline]:
    """A pipeline with all outputs of a reader, in this process unless `of_pipeline` says something else."""
    pipe = Pipeline(batch_size, **{"num_threads": 1, "py_num_workers": 0, "seed": 1, **(of_pipeline or {})})
    with pipe:
        made = reader(**options)
        nodes = list(made.values()) if isinstance(made, dict) else made if isinstance(made, list) else [made]
        pipe.set_outputs(*nodes)
    try:
        yield pipe
    finally:
        pipe.close()


def samples_of(pipe: Pipeline, num_batches: int, output: int = 0) -> list[Any]:
    """The samples of the next batches: bytes for arrays of bytes, otherwise lists or numbers."""
    arrays = []
    for _ in range(num_batches):
        batch = pipe.run()[output]
        arrays += [np.array(batch.at(i)) for i in range(len(batch))]
    return [array.tobytes() if array.dtype == np.uint8 and array.ndim == 1 else array.tolist() for array in arrays]


def read_all(num_batches: int, batch_size: int = 2, reader: Callable[..., Any] | None = None, **options: Any) -> list[Any]:
    """The samples of the first output of a reader, `fn.readers.file` by default."""
    with pipeline_with(reader or fn.readers.file, batch_size, **options) as pipe:
        return samples_of(pipe, num_batches)


def make_files(root: Path, *names: str) -> None:
    """Make files whose content is their name."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
