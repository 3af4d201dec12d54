"""Run the notebooks, and store their outputs: ``python -m tools.notebooks``.

The stored files name no version of Python and no times, so that another run changes only outputs of cells. It needs
nbclient, ipykernel, Matplotlib, OpenCV and the packages of the demo.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
#: The first import of Matplotlib on a machine searches for fonts and may print a message, so import it before.
_RUN = "import matplotlib.font_manager; from nbclient.cli import main; main()"


def run(notebook: Path, home: Path) -> Path:
    """Run a copy of a notebook below `home`, without the user's settings, and return the path of the copy.

    Raises:
        RuntimeError: a cell has failed.
    """
    copy = home / "notebooks" / notebook.name
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(notebook, copy)
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    environment |= {
        "PYTHONPATH": str(ROOT),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    command = [sys.executable, "-c", _RUN, str(copy), "--inplace", "--timeout=60"]
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise RuntimeError(f"{notebook.name} fails:\n{done.stderr}")
    return copy


def settled(content: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook without versions and times, and with pictures as JPEG: a tenth of the size."""
    cells = [{**cell, "metadata": {}} for cell in content["cells"]]
    for cell in cells:
        for output in cell.get("outputs", []):
            if png := output.get("data", {}).pop("image/png", None):
                output["data"]["image/jpeg"] = _as_jpeg(png)
    return {**content, "cells": cells, "metadata": METADATA}


def _as_jpeg(png: str) -> str:
    picture: Any = cv2.imdecode(np.frombuffer(base64.b64decode(png), np.uint8), cv2.IMREAD_COLOR)
    return base64.b64encode(cv2.imencode(".jpg", picture, (cv2.IMWRITE_JPEG_QUALITY, 75))[1].tobytes()).decode()


def main() -> None:
    """Run all notebooks, and replace them by the results."""
    for notebook in sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as home:
            content = settled(json.loads(run(notebook, Path(home)).read_text("utf-8")))
        notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
