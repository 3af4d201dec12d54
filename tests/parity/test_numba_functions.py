"""Functions compiled by Numba, against DALI's on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")
pytest.importorskip("numba")

import nvidia.dali.plugin.numba as theirs

import dali_like.plugin.numba as ours
from tests.operators.running import run
from tests.parity.conftest import OURS
from tests.parity.operators import compare, outputs

pytestmark = pytest.mark.peers

PICTURES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(3)]
RAGGED = [picture[: 1 + i % 2] for i, picture in enumerate(PICTURES)]


#: Compiled functions, which DALI calls by their addresses.
KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def _keep_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """DALI lets compiled functions be collected before it calls them."""
    compile_ = theirs.experimental.cfunc

    def keeping(*signature: Any, **options: Any) -> Any:
        def decorate(function: Any) -> Any:
            KEPT.append(compile_(*signature, **options)(function))
            return KEPT[-1]

        return decorate

    monkeypatch.setattr(theirs.experimental, "cfunc", keeping)


def function_of(library: Any) -> Any:
    return (ours if library is OURS else theirs).fn.experimental.numba_function


def inverted(out: Any, data: Any) -> None:
    out[:] = 255 - data


def inverted_batch(out: Any, data: Any) -> None:
    for i in range(len(out)):
        out[i][:] = 255 - data[i]


def turned(out: Any, data: Any) -> None:
    out[:] = np.transpose(data, (1, 0, 2))


def sides_exchanged(outs: Any, ins: Any) -> None:
    for i in range(len(outs[0])):
        outs[0][i][0] = ins[0][i][1]
        outs[0][i][1] = ins[0][i][0]
        outs[0][i][2] = ins[0][i][2]


def sum_and_half(total: Any, half: Any, one: Any, other: Any) -> None:
    total[:] = one + other
    half[:] = other * np.float32(0.5)


def define(library: Any, data: Any) -> list[Any]:
    types, plugin, numba_function = library.types, ours if library is OURS else theirs, function_of(library)
    one = {"in_types": [types.UINT8], "ins_ndim": [3], "out_types": [types.UINT8], "outs_ndim": [3]}
    return [
        numba_function(data, run_fn=inverted, **one),
        plugin.experimental.NumbaFunction(run_fn=inverted_batch, batch_processing=True, **one)(data),
        numba_function(data, run_fn=turned, setup_fn=sides_exchanged, **one),
    ]


def test_results(dali):
    """One pipeline, because DALI takes seconds to compile a function."""
    compare(dali, define, [RAGGED], ["HWC"])


def test_several_inputs_and_outputs():
    """With these, DALI 1.53 overwrites memory of the program."""

    def define(data: Any) -> Any:
        types = OURS.types
        return function_of(OURS)(
            data,
            data,
            run_fn=sum_and_half,
            in_types=[types.UINT8] * 2,
            ins_ndim=[3, 3],
            out_types=[types.UINT8, types.FLOAT],
            outs_ndim=[3, 3],
        )

    ((totals, halves),) = run(define, RAGGED)

    for picture, total, half in zip(RAGGED, totals, halves, strict=True):
        np.testing.assert_array_equal(total, 2 * picture, strict=True)
        np.testing.assert_array_equal(half, picture * np.float32(0.5), strict=True)


def test_in_workers():
    ((results,),) = run(lambda data: define(OURS, data)[0], PICTURES, way="workers")

    np.testing.assert_array_equal(results, 255 - np.array(PICTURES))


def test_errors_of_the_function():
    """DALI prints them and goes on."""

    def fails(out: Any, data: Any) -> None:
        raise ValueError("no")

    def define(library: Any, data: Any) -> Any:
        types = library.types
        options = {"in_types": types.UINT8, "ins_ndim": 3, "out_types": types.UINT8, "outs_ndim": 3}
        return function_of(library)(data, run_fn=fails, **options)

    with pytest.raises(ValueError, match="no"):
        outputs(OURS, define, [PICTURES])
