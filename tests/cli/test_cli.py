"""The ``dali-like`` command: its subcommands, exit statuses and errors."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import dali_like
from dali_like import cli
from dali_like.errors import ArgumentError, MissingExtraError

ROOT = Path(dali_like.__file__).parent.parent

Install = Callable[[Callable[[argparse.Namespace], int]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Replace all subcommands by one called ``count``, with an argument ``--up-to``."""

    def install(run: Callable[[argparse.Namespace], int]) -> None:
        module = ModuleType("dali_like.cli.count", "Counts.\n\nSlowly.")
        module.add_arguments = lambda parser: parser.add_argument("--up-to", type=int)  # type: ignore[attr-defined]
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setattr(cli, "COMMANDS", (module,))

    return install


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.__name__)
def test_the_help_of_each_subcommand_begins_with_its_docstring(
    command: cli.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([command.__name__.rpartition(".")[2], "--help"])

    assert end.value.code == 0
    assert str(command.__doc__).splitlines()[0] in capsys.readouterr().out


def test_result_of_a_subcommand_is_the_exit_status(install: Install) -> None:
    install(lambda options: int(options.up_to))

    assert cli.main(["count", "--up-to", "7"]) == 7


def test_unknown_subcommands_are_usage_errors(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(lambda options: 0)

    with pytest.raises(SystemExit) as end:
        cli.main(["cuont"])

    assert end.value.code == 2
    assert "invalid choice: 'cuont'" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ArgumentError("up to what?"), MissingExtraError("up to what?")])
def test_errors_of_the_command_line_have_no_traceback(
    error: Exception, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: argparse.Namespace) -> int:
        raise error

    install(run)

    assert cli.main(["count"]) == 2
    assert capsys.readouterr().err == "dali-like count: up to what?\n"


def test_other_errors_keep_theirs(install: Install) -> None:
    def run(options: argparse.Namespace) -> int:
        raise RuntimeError("of the user's pipeline")

    install(run)

    with pytest.raises(RuntimeError, match="of the user's pipeline"):
        cli.main(["count"])


def test_ctrl_c_ends_it_quietly(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def run(options: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    install(run)

    assert cli.main(["count"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_closed_output_ends_it_quietly(lines: int) -> None:
    """As in ``dali-like doctor | true``."""
    program = (
        "import sys; from types import ModuleType; from dali_like import cli\n"
        f"def run(options):\n    for i in range({lines}): print('line')\n    return 0\n"
        "module = ModuleType('count', 'Counts.'); module.run, module.add_arguments = run, lambda parser: None\n"
        "cli.COMMANDS = (module,); sys.exit(cli.main(['count']))\n"
    )
    read, write = os.pipe()
    os.close(read)

    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=buffered, stdout=write, stderr=subprocess.PIPE, check=False
    )

    os.close(write)
    assert (result.returncode, result.stderr) == (141, b"")


def test_module_is_the_command() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", "dali_like", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert result.stdout == f"dali_like {dali_like.__version__}\n"


def test_installation_brings_the_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["scripts"] == {"dali-like": "dali_like.cli:main"}
