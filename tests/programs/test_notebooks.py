"""Each notebook runs from first to last cell in a Jupyter kernel, and shows the expected results.

Notebooks are stored without outputs. The assertions check outputs of the run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import skip_without

skip_without("nbclient", "ipykernel", "matplotlib", "dill", "cv2", "simplejpeg", "skimage", "sklearn")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))

#: Number of examples in DALI's tutorial; the cells are named after them.
NUM_EXAMPLES = 28
NUM_FIGURES = {"parallel_external_source.ipynb": 10, "parallel_external_source_fork.ipynb": 4}

#: The first import of Matplotlib on a machine searches for fonts and may print a message, so import it before.
RUN = "import matplotlib.font_manager; from nbclient.cli import main; main()"

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
    notebook = home / "notebooks" / request.param
    notebook.parent.mkdir()
    shutil.copy(FOLDER / request.param, notebook)
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    environment |= {
        "PYTHONPATH": str(ROOT),
        # Do not use kernels, settings or history of the user.
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    command = [sys.executable, "-c", RUN, str(notebook), "--inplace", "--timeout=60"]
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return notebook


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


def test_the_results_are_what_the_text_says(executed: Path) -> None:
    if executed.name == "parallel_external_source.ipynb":
        assert printed_by(executed, "length") == "6 batches: 4 4 4 4 4 1\n"
        assert "[0 1 2 3 4 5 6 7] (8, 256, 256) buffer in the main process: None" in printed_by(executed, "example-22")
        assert len(printed_by(executed, "example-23").splitlines()) == 2 * (1 + 5)
    else:
        assert re.search(r"[1-9]\d* workers have been replaced", printed_by(executed, "replacements"))


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_stored_without_outputs(name: str) -> None:
    stored = [(cell["id"], cell["outputs"], cell["execution_count"], cell["metadata"]) for cell in code_cells(FOLDER / name)]

    assert stored == [(cell["id"], [], None, {}) for cell in code_cells(FOLDER / name)]


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_stored_for_no_python_in_particular(name: str) -> None:
    metadata = json.loads((FOLDER / name).read_text("utf-8"))["metadata"]

    assert metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def test_the_tutorials_examples_come_in_their_order() -> None:
    ids = [cell["id"] for cell in code_cells(FOLDER / "parallel_external_source.ipynb")]

    assert [name for name in ids if name.startswith("example-")] == [f"example-{i:02}" for i in range(1, NUM_EXAMPLES + 1)]
