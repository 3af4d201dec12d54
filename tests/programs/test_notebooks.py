"""Each notebook runs from first to last cell in a Jupyter kernel, and shows the expected results.

Notebooks are stored with outputs. Most assertions check outputs of another run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import skip_without

skip_without("nbclient", "ipykernel", "matplotlib", "dill", "cv2", "simplejpeg", "skimage", "sklearn")

from tools.notebooks import FOLDER, METADATA, ROOT, run  # noqa: E402  (needs OpenCV)

NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))

#: Number of examples in DALI's tutorial; the cells are named after them.
NUM_EXAMPLES = 28
NUM_FIGURES = {"parallel_external_source.ipynb": 10, "parallel_external_source_fork.ipynb": 4}

Cell = dict[str, Any]


def cells_of(notebook: Path) -> list[Cell]:
    cells: list[Cell] = json.loads(notebook.read_text("utf-8"))["cells"]
    return cells


def code_cells(notebook: Path) -> list[Cell]:
    return [cell for cell in cells_of(notebook) if cell["cell_type"] == "code"]


@pytest.fixture(scope="module", params=NAMES)
def executed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a notebook in a separate folder, where it finds the packages of this repository."""
    home = tmp_path_factory.mktemp("notebooks")
    return run(FOLDER / request.param, home)


def outputs_of(executed: Path) -> list[dict[str, Any]]:
    return [output for cell in code_cells(executed) for output in cell["outputs"]]


def printed_by(executed: Path, cell_id: str) -> str:
    (cell,) = (cell for cell in code_cells(executed) if cell["id"] == cell_id)
    return "".join(text for output in cell["outputs"] for text in output.get("text", []))


def test_every_cell_runs(executed: Path) -> None:
    counts = [cell["execution_count"] for cell in code_cells(executed)]

    assert counts == list(range(1, len(counts) + 1))


def test_batches_are_shown(executed: Path) -> None:
    figures = [output for output in outputs_of(executed) if "image/png" in output.get("data", {})]

    assert len(figures) == NUM_FIGURES[executed.name]


def test_nothing_is_warned_of(executed: Path) -> None:
    assert [output["text"] for output in outputs_of(executed) if output.get("name") == "stderr"] == []


def test_no_output_tells_where_it_ran(executed: Path) -> None:
    text = json.dumps(outputs_of(executed))

    assert [str(place) for place in (ROOT, executed.parents[1], Path.home()) if str(place) in text] == []


def test_the_results_are_those_in_the_text(executed: Path) -> None:
    if executed.name == "parallel_external_source.ipynb":
        assert printed_by(executed, "length") == "6 batches: 4 4 4 4 4 1\n"
        assert "[0 1 2 3 4 5 6 7] (8, 256, 256) buffer in the main process: None" in printed_by(executed, "example-22")
        assert len(printed_by(executed, "example-23").splitlines()) == 2 * (1 + 5)
    else:
        assert re.search(r"[1-9]\d* workers have been replaced", printed_by(executed, "replacements"))


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_stored_with_outputs_of_one_run(name: str) -> None:
    """If this fails, run ``python -m tools.notebooks``."""
    stored = code_cells(FOLDER / name)
    outputs = outputs_of(FOLDER / name)

    assert [cell["execution_count"] for cell in stored] == list(range(1, len(stored) + 1))
    assert [cell["metadata"] for cell in stored] == [{}] * len(stored)
    assert sum("image/jpeg" in output.get("data", {}) for output in outputs) == NUM_FIGURES[name]
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    assert not re.search(r"/(home|root|tmp|Users)/", json.dumps([output for output in outputs if "text" in output]))


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_stored_for_no_python_in_particular(name: str) -> None:
    metadata = json.loads((FOLDER / name).read_text("utf-8"))["metadata"]

    assert metadata == METADATA


def test_the_tutorials_examples_come_in_their_order() -> None:
    ids = [cell["id"] for cell in code_cells(FOLDER / "parallel_external_source.ipynb")]

    assert [name for name in ids if name.startswith("example-")] == [f"example-{i:02}" for i in range(1, NUM_EXAMPLES + 1)]
