"""Constants as inputs of operators, compared with DALI."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.parity.conftest import OURS, Library

pytestmark = pytest.mark.peers

IMAGE = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
PROGRAMS: dict[str, Any] = {
    "number": lambda fn, types: fn.cast(5.0, dtype=types.INT32),
    "list": lambda fn, types: fn.cast([1.6, 2.4], dtype=types.INT32),
    "constant": lambda fn, types: fn.cast(types.Constant(3.7), dtype=types.UINT8),
    "array": lambda fn, types: fn.flip(IMAGE),
    "several": lambda fn, types: fn.stack(1, 2, 3),
    "lists": lambda fn, types: fn.cat([1, 2], [3]),
    "reduction": lambda fn, types: fn.reductions.sum(np.arange(6.0).reshape(2, 3), axes=[0]),
    "shape": lambda fn, types: fn.shapes(np.zeros((4, 5))),
    "layout": lambda fn, types: fn.crop(types.Constant(IMAGE, layout="HWC"), crop=(2, 2)),
}
WRONG = ["a", {}, [[1, 2], [3, 4]], object()]


def batch_of(library: Library, program: Any) -> Any:
    with library.pipeline(lambda: program(library.fn, library.types), batch_size=2) as pipe:
        (batch,) = pipe.run()
        return batch.dtype.name, batch.layout(), [np.array(batch.at(i)).tolist() for i in range(len(batch))]


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_batches_are_the_same(dali: Library, program: Any) -> None:
    assert batch_of(OURS, program) == batch_of(dali, program)


@pytest.mark.parametrize("value", WRONG, ids=["text", "dict", "nested list", "object"])
def test_other_values_are_refused(dali: Library, value: Any) -> None:
    for library in (OURS, dali):
        with pytest.raises(TypeError):
            batch_of(library, lambda fn, types: fn.cast(value, dtype=types.INT32))
