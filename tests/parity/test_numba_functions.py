"""Functions compiled by Numba, against DALI's on the CPU."""

from __future__ import annotations

import os
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


def one_of(library: Any) -> dict[str, Any]:
    types = library.types
    return {"in_types": [types.UINT8], "ins_ndim": [3], "out_types": [types.UINT8], "outs_ndim": [3]}


def samples_turned(library: Any, data: Any) -> Any:
    return function_of(library)(data, run_fn=turned, setup_fn=sides_exchanged, **one_of(library))


def batches_inverted(library: Any, data: Any) -> Any:
    plugin = ours if library is OURS else theirs
    return plugin.experimental.NumbaFunction(run_fn=inverted_batch, batch_processing=True, **one_of(library))(data)


def test_samples(dali):
    compare(dali, samples_turned, [RAGGED], ["HWC"])


@pytest.mark.skipif(os.environ.get("PARITY") != "full", reason="DALI takes seconds to compile a function")
def test_batches_as_in_dali(dali):
    compare(dali, batches_inverted, [RAGGED], ["HWC"])


def test_batches():
    ((results,),) = run(lambda data: batches_inverted(OURS, data), RAGGED)

    for result, picture in zip(results, RAGGED, strict=True):
        np.testing.assert_array_equal(result, 255 - picture, strict=True)


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
    ((results,),) = run(lambda data: samples_turned(OURS, data), PICTURES, way="workers")

    np.testing.assert_array_equal(results, np.array(PICTURES).transpose(0, 2, 1, 3))


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
