"""A training script with PyTorch's DataLoader and with ours: the losses that it prints are the same to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from examples import train_digits

pytestmark = pytest.mark.peers

ROOT = Path(__file__).resolve().parents[2]
#: On small machines, PyTorch warns rightly that there are more workers than cores.
WARNINGS = ("-W", "error", "-W", "ignore:This DataLoader will create")
#: Runs the script with one list of arguments after the other, and prints a list of the outputs.
SEVERAL = """
import contextlib, io, json, sys
from examples import train_digits

texts = []
for arguments in json.loads(sys.argv[1]):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        train_digits.main(arguments)
    texts.append(text.getvalue())
print(json.dumps(texts))
"""

THEIRS = ("--epochs", "2")
OURS = (*THEIRS, "--loader", "dali_like")
OURS_AS_IN_PYTORCH = (*OURS, "--worker-seeding", "torch")
#: Ways to have workers.
WORKERS: dict[str, tuple[str, ...]] = {
    "2 workers": (),
    "persistent workers": ("--persistent-workers",),
    "3 workers": ("--workers", "3"),
    "no workers": ("--workers", "0"),
}
RUNS = [
    *[(*which, *more) for which in (THEIRS, OURS_AS_IN_PYTORCH) for more in WORKERS.values()],
    *[(*which, "--no-augment") for which in (THEIRS, OURS)],
    OURS,
    (*OURS, "--workers", "1"),
]

#: The output of the script with some arguments, as lines.
Losses = Callable[..., list[str]]


def printed_by(*command: str) -> str:
    """The output of a program. One thread, since with several PyTorch may add in another order."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = (sys.executable, *WARNINGS, *command)
    program = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert program.returncode == 0, program.stderr
    return program.stdout


@pytest.fixture(scope="module")
def losses() -> Losses:
    """The output of the script in `RUNS`. One process makes them all, since importing PyTorch takes longer than training."""
    texts = json.loads(printed_by("-c", SEVERAL, json.dumps(RUNS)))
    made = {arguments: text.splitlines() for arguments, text in zip(RUNS, texts, strict=True)}
    return lambda *arguments: made[arguments]


def test_the_script_repeats_itself_and_learns(losses: Losses) -> None:
    lines = printed_by("-m", "examples.train_digits", *THEIRS).splitlines()

    assert lines == losses(*THEIRS)
    assert [line.partition(":")[0] for line in lines] == ["epoch 0", "epoch 1"]
    assert float(lines[-1].rpartition(" ")[2]) > 0.6


def test_augmentation_and_where_it_happens_change_losses(losses: Losses) -> None:
    """Else the comparisons below would say less than they seem to."""
    others = [("--no-augment",), WORKERS["no workers"], WORKERS["3 workers"]]

    assert len({losses(*THEIRS, *more)[0] for more in [(), *others]}) == 4


@pytest.mark.parametrize("more", WORKERS.values(), ids=WORKERS.keys())
def test_with_random_augmentation_when_workers_are_seeded_as_in_pytorch(losses: Losses, more: tuple[str, ...]) -> None:
    assert losses(*OURS_AS_IN_PYTORCH, *more) == losses(*THEIRS, *more)


def test_losses_without_augmentation_are_the_same_with_both_seedings(losses: Losses) -> None:
    assert losses(*OURS, "--no-augment") == losses(*THEIRS, "--no-augment")


def test_tasks_are_seeded_so_that_the_number_of_workers_does_not_matter(losses: Losses) -> None:
    assert losses(*OURS) == losses(*OURS, "--workers", "1")


def test_the_argument_that_is_ours_alone_is_refused_for_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train_digits.parse(["--worker-seeding", "torch"])

    assert "--worker-seeding is for --loader dali_like" in capsys.readouterr().err
