"""The benchmark of operators: its cases cover all operators, and its page is that of its results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.operators import cases, inputs, report
from benchmarks.operators.__main__ import rows_of
from benchmarks.operators.measuring import Row
from dali_like import Pipeline, fn, math, types
from dali_like.operators.machinery.description import own_descriptions

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Ours:
    fn, math, types = fn, math, types


def test_every_operator_has_a_case_or_a_reason_for_none() -> None:
    measured = {case.partition(" ")[0] for case in cases.CASES}

    assert {*own_descriptions()} - measured == {*cases.LEFT_OUT}
    assert not any("," in case for case in cases.CASES)  # they are listed behind --cases


@pytest.mark.parametrize("name", cases.CASES)
def test_a_case_runs(name: str) -> None:
    case = cases.CASES[name]
    with Pipeline(inputs.BATCH_SIZE, seed=1) as pipe:
        with pipe:
            batches = [inputs.batch_of(kind, small=True, ragged=case.can_be_ragged) for kind in case.inputs]
            nodes = [
                fn.external_source([batch], layout=inputs.LAYOUTS.get(kind))
                for kind, batch in zip(case.inputs, batches, strict=True)
            ]
            results = case.apply(Ours, *nodes)
            pipe.set_outputs(*(results if isinstance(results, (list, tuple)) else [results]))
        assert len(pipe.run()[0]) == inputs.BATCH_SIZE


def test_ragged_batches_have_several_shapes_and_others_one() -> None:
    alike = inputs.batch_of("image", small=True, ragged=False)
    ragged = inputs.batch_of("image", small=True, ragged=True)

    assert isinstance(alike, np.ndarray)
    assert len({image.shape for image in ragged}) == 7


def test_rows_name_size_shapes_and_threads() -> None:
    assert [row.name for row in rows_of(["cast", "zeros"], [2])] == [
        *(f"cast: {name}, 2 threads" for name in report.COLUMNS),
        *("zeros: small, alike, 2 threads", "zeros: large, alike, 2 threads"),
    ]
    assert Row("cast", small=True, ragged=False, num_threads=1).name == "cast: small, alike, 1 thread"


def test_page_and_picture_are_those_of_the_results() -> None:
    """If this fails, run ``python -m benchmarks.operators.report``."""
    assert (DOCS / "operators" / "costs.md").read_text("utf-8") == report.page()
    assert (DOCS / "pictures" / "benchmark-operators.svg").read_text("utf-8") == report.picture()


def test_a_row_above_one_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"cast: small, alike, 2 threads": 0.5, "cast: large, ragged, 2 threads": 2.0}
    monkeypatch.setattr(report, "results", lambda: {"1.53.0": rows, "2.4.0": rows})

    page = report.page()

    assert "| `cast` | 0.50 | - | - | 2.00 c | 1.00 |" in page
    assert "| DALI 1.53.0 | 1.00 | small, alike 0.50, " in page
