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
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.documents import DOCS, README, program_of
from tools import stubs

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
IS_TYPES_TARGET = importlib.util.find_spec("pyright") is not None

if importlib.util.find_spec("mypy") is None:
    pytest.skip("mypy is not installed", allow_module_level=True)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment that the package is installed in, as checkers see it."""
    stubs.write(ROOT / "dali_like")
    folder = tmp_path / "environment"
    venv.create(folder)
    # Beside the package itself, mypy would show the errors of its modules, too.
    for program in FOLDER.glob("*.py"):
        shutil.copy(program, folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "dali_like").symlink_to(ROOT / "dali_like")
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "python"


#: Strict for annotated programs. Those of documents have no annotations, and an editor checks them with its defaults. The
#: options of packages are the same for both, so one run finds the packages' types once.
MYPY_CONFIG = """
[mypy]
strict = True

[mypy-program_of_readme,program_of_tutorial]
disallow_untyped_defs = False
disallow_incomplete_defs = False
disallow_untyped_calls = False
disallow_untyped_decorators = False
disallow_any_generics = False
disallow_subclassing_any = False
check_untyped_defs = False
warn_return_any = False
warn_unused_ignores = False
strict_equality = False
extra_checks = False
"""

#: Line and text of each error, by program.
Errors = dict[str, list[tuple[int, str]]]


def errors_of_mypy(programs: Sequence[str], python: Path) -> Errors:
    """Return the errors that mypy finds."""
    folder = python.parent.parent
    (folder / "mypy.ini").write_text(MYPY_CONFIG)
    # Its notes of other packages are kept, by which the next run takes a second.
    options = [
        "--config-file=mypy.ini",
        f"--python-executable={python}",
        f"--cache-dir={ROOT / '.mypy_cache' / 'programs'}",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *programs],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not result.stderr, result.stderr
    errors: Errors = {program: [] for program in programs}
    for program, line, text in re.findall(r"^([^:]+):(\d+): error: (.*)$", result.stdout, re.MULTILINE):
        errors[program].append((int(line), text))
    return errors


def errors_of_pyright(programs: Sequence[str], python: Path) -> Errors:
    """Return the errors that pyright finds. Programs say themselves whether it is to be strict."""
    result = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", f"--pythonpath={python}", *programs],
        cwd=python.parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    errors: Errors = {program: [] for program in programs}
    for error in json.loads(result.stdout)["generalDiagnostics"]:
        if error["severity"] == "error":
            errors[Path(error["file"]).name].append((error["range"]["start"]["line"] + 1, error["message"]))
    return errors


Check = Callable[[Sequence[str], Path], Errors]
CHECKERS: list[Check] = [errors_of_mypy, *([errors_of_pyright] if IS_TYPES_TARGET else [])]
PROGRAMS = ["program.py", "wrong.py", *(["torch_program.py"] if IS_TYPES_TARGET else [])]


@pytest.mark.parametrize("check", CHECKERS)
def test_checkers_find_the_marked_mistakes_and_no_others(check: Check, python: Path) -> None:
    """All programs in one run, because a checker reads the types of NumPy and of this package in each run."""
    folder = python.parent.parent
    for document in (README, DOCS / "tutorial.md"):
        (folder / f"program_of_{document.stem.lower()}.py").write_text(program_of(document, "python"))
    programs = [*PROGRAMS, "program_of_readme.py", "program_of_tutorial.py"]
    marked = {
        program: {number for number, line in enumerate((folder / program).read_text().splitlines(), 1) if "# wrong" in line}
        for program in programs
    }

    found = check(programs, python)

    assert [(program, *error) for program in programs for error in found[program] if error[0] not in marked[program]] == []
    assert {program: {line for line, _ in errors} for program, errors in found.items()} == marked
