"""Verdicts of type checkers on programs that use the package, from outside and with no settings but strictness.

mypy checks everywhere; pyright where it is installed, and then programs for PyTorch, too: see `make types`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.documents import DOCS, README, program_of
from tools import stubs

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
IS_TYPES_TARGET = importlib.util.find_spec("pyright") is not None

if importlib.util.find_spec("mypy") is None:
    pytest.skip("mypy is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that the package is installed in, as checkers see it."""
    stubs.write(ROOT / "dali_like")
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    # Beside the package itself, mypy would show the errors of its modules, too.
    for program in FOLDER.glob("*.py"):
        shutil.copy(program, folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "dali_like").symlink_to(ROOT / "dali_like")
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "python"


def errors_of_mypy(program: Path, python: Path, *, strict: bool = True) -> list[tuple[int, str]]:
    """The lines that it finds errors in, and which."""
    # Its notes of other packages are kept, by which the next run takes a second.
    options = [
        *(["--strict"] if strict else []),
        "--config-file=",
        f"--python-executable={python}",
        f"--cache-dir={ROOT / '.mypy_cache' / 'programs'}",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, program.name],
        cwd=python.parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not result.stderr, result.stderr
    return [(int(line), text) for line, text in re.findall(r"^[^:]+:(\d+): error: (.*)$", result.stdout, re.MULTILINE)]


def errors_of_pyright(program: Path, python: Path, *, strict: bool = True) -> list[tuple[int, str]]:
    """As `errors_of_mypy`. Programs say themselves whether pyright is to be strict."""
    result = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", f"--pythonpath={python}", program.name],
        cwd=python.parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = json.loads(result.stdout)["generalDiagnostics"]
    return [(error["range"]["start"]["line"] + 1, error["message"]) for error in found if error["severity"] == "error"]


Check = Callable[..., list[tuple[int, str]]]
CHECKERS: list[Check] = [errors_of_mypy, *([errors_of_pyright] if IS_TYPES_TARGET else [])]
PROGRAMS = ["program.py", *(["torch_program.py"] if IS_TYPES_TARGET else [])]


@pytest.mark.parametrize("check", CHECKERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_right_programs_have_no_errors(program: str, check: Check, python: Path) -> None:
    assert check(FOLDER / program, python) == []


@pytest.mark.parametrize("check", CHECKERS)
def test_mistakes_are_found(check: Check, python: Path) -> None:
    lines = (FOLDER / "wrong.py").read_text().splitlines()

    found = {line for line, _ in check(FOLDER / "wrong.py", python)}

    assert found == {number for number, line in enumerate(lines, 1) if "# wrong" in line}


@pytest.mark.parametrize("check", CHECKERS)
@pytest.mark.parametrize("document", [README, DOCS / "tutorial.md"], ids=lambda document: document.name)
def test_programs_of_documents_have_no_errors(document: Path, check: Check, python: Path) -> None:
    """They have no annotations, and an editor checks them with its defaults."""
    program = python.parent.parent / f"program_of_{document.stem.lower()}.py"
    program.write_text(program_of(document, "python"))

    assert check(program, python, strict=False) == []
