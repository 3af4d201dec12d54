"""Completion scripts, in the shells that are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dali_like import cli


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed_by_bash(text: str, words: list[str], folder: Path) -> list[str]:
    """Return what bash proposes for the last word of a command line."""
    program = f"{text}\nCOMP_WORDS=({' '.join(map(repr, words))})\nCOMP_CWORD={len(words) - 1}\n_dali_like\n" + (
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=folder)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (["dali-like", "b"], ["bench"]),
        (["dali-like", "t"], ["tune", "top"]),
        (["dali-like", "run", "--st"], ["--steps"]),
        (["dali-like", "completion", ""], ["bash", "zsh", "fish"]),
        (["dali-like", "doctor", "tr"], ["train.py"]),
        (["dali-like", "nothing", "--"], []),
    ],
)
def test_bash_proposes_subcommands_options_words_and_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], proposed: list[str]
) -> None:
    (tmp_path / "train.py").touch()

    assert completed_by_bash(script("bash", capsys), words, tmp_path) == proposed


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_each_option_of_each_subcommand_is_in_the_script(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    text = script(shell, capsys)

    for name, parser in cli.parsers().items():
        assert f" {name}" in text
        for option in parser._option_string_actions:
            flag = option if shell == "zsh" else option.lstrip("-")
            assert flag in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_reads_its_script(capsys: pytest.CaptureFixture[str], tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script(shell, capsys))

    subprocess.run([program, "-n", str(tmp_path / "script")], check=True)
