"""The epochs of a reader, with either library."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

import dali_like


def delivered(
    dali: ModuleType, reader: str, num_batches: int | None = None, *, batch_size: int = 1, **options: Any
) -> tuple[dict[str, int], list[list[Any]]]:
    """The metadata of a reader, and the dtype, shape and content of each output of some samples.

    Args:
        dali: the library.
        reader: name of the reader in ``fn.readers``.
        num_batches: number of batches; None: an epoch of single samples.
        batch_size: of the pipeline.
        options: arguments of the reader. Paths become strings.
    """
    pipe = dali.Pipeline(batch_size, 1, None, **({"py_num_workers": 0} if dali is dali_like else {}))
    try:
        with pipe:
            made = getattr(dali.fn.readers, reader)(name="reader", **options)
            pipe.set_outputs(*(made.values() if isinstance(made, dict) else made if isinstance(made, list) else [made]))
        pipe.build()
        samples = []
        for _ in range(num_batches or pipe.epoch_size("reader")):
            outputs = pipe.run()
            samples += [[_plain(output.at(i)) for output in outputs] for i in range(batch_size)]
        return pipe.reader_meta("reader"), samples
    finally:
        if dali is dali_like:
            pipe.close()


def _plain(array: Any) -> tuple[str, tuple[int, ...], Any]:
    array = np.array(array)
    return str(array.dtype), array.shape, array.tolist()
