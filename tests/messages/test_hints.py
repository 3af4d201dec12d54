"""Hints at ``pip install`` name packages that exist, and warnings come once."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
import warnings
from pathlib import Path

import pytest
from numpy.testing import assert_array_equal

import dali_like
from dali_like.cli.doctor import gpu, libraries
from dali_like.common import extras
from dali_like.data import DataLoader
from dali_like.errors import MissingExtraError
from tests.data.loader_cases import MANY_WORKERS

PACKAGE = Path(dali_like.__file__).parent
PYPROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]


def test_packages_of_extras_are_those_of_the_project() -> None:
    assert {extra: list(packages) for extra, packages in extras.REQUIREMENTS.items()} == EXTRAS


@pytest.mark.parametrize("extra", EXTRAS)
def test_install_commands_have_the_requirements_of_their_extra(extra: str) -> None:
    assert shlex.split(extras.install_command(extra)) == ["pip", "install", *EXTRAS[extra]]


def test_a_missing_package_is_named_with_its_command() -> None:
    with pytest.raises(MissingExtraError) as caught:
        extras.optional("no_such_module", "progress=True", "progress")

    assert str(caught.value) == "progress=True needs no_such_module: pip install 'tqdm>=4.66'"


def test_one_of_several_extras_is_the_choice_of_the_user() -> None:
    text = str(extras.missing("cupy", "a GPU", *extras.GPU_EXTRAS))

    assert [shlex.split(command)[2:] for command in text.partition(": ")[2].split(" or ")] == [
        EXTRAS["cuda13"],
        EXTRAS["cuda12"],
    ]


def test_all_extras_that_the_package_asks_for_exist() -> None:
    """In the calls of `optional` and `missing`."""
    used = {
        argument.value
        for file in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("optional", "missing")
        for argument in call.args[2:]
        if isinstance(argument, ast.Constant)
    }

    assert used
    assert used <= set(EXTRAS)


def test_no_text_asks_to_install_this_package_from_an_index() -> None:
    """It is on none. The name might be another project's."""
    asking = re.compile(r"pip install [^\n`#]*(?<![/\w])dali[-_]like\b")
    files = [file for suffix in ("py", "pyi", "js", "html") for file in PACKAGE.rglob(f"*.{suffix}")]
    files += [PACKAGE.parent / "README.md", *(PACKAGE.parent / "docs").rglob("*.md")]

    assert [str(file) for file in files if asking.search(file.read_text("utf-8"))] == []


def test_doctor_names_packages() -> None:
    absent = {"no-such-package": "1.2", "another": ""}

    assert libraries.libraries("", absent).remedy == "pip install 'no-such-package>=1.2' 'another'"
    assert libraries.libraries("plot", absent).remedy == "pip install 'matplotlib>=3.9'"
    assert EXTRAS["cuda13"][0] in gpu.INSTALL


class TestTooManyWorkers:
    """PyTorch warns where a loader is made and where an iterator begins."""

    @pytest.fixture(autouse=True)
    def _one_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})

    def test_one_warning_for_each_loader(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = DataLoader(range(4), num_workers=2, multiprocessing_context="thread")
            batches = [list(loader) for _ in range(2)]

        assert_array_equal(batches, [[[0], [1], [2], [3]]] * 2)
        assert [(warning.filename, warning.category) for warning in caught] == [(__file__, UserWarning)]
        assert re.match(MANY_WORKERS.removeprefix("ignore:"), str(caught[0].message))

    def test_another_for_another_number(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = DataLoader(range(4), num_workers=1, multiprocessing_context="thread")
            list(loader)
            assert not caught
            loader.num_workers = 3
            for _ in range(2):
                list(loader)

        assert ["will create 3 worker threads" in str(warning.message) for warning in caught] == [True]
