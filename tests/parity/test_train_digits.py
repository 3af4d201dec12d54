"""A training script with PyTorch's DataLoader and with ours: the losses that it prints are the same to the last bit."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

pytestmark = pytest.mark.peers

ROOT = Path(__file__).resolve().parents[2]
#: That there are more workers than cores is said on small machines, and right.
WARNINGS = ("-W", "error", "-W", "ignore:This DataLoader will create")


@functools.cache
def losses(*arguments: str) -> list[str]:
    """What `examples.train_digits` prints, as lines. One thread, since with several PyTorch may add in another order."""
    command = [sys.executable, *WARNINGS, "-m", "examples.train_digits", "--epochs", "2", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    program = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert program.returncode == 0, program.stderr
    return program.stdout.splitlines()


def ours(*arguments: str) -> list[str]:
    return losses("--loader", "dali_like", *arguments)


def test_the_script_repeats_itself_and_learns() -> None:
    first = losses()
    losses.cache_clear()

    assert losses() == first
    assert [line.partition(":")[0] for line in first] == ["epoch 0", "epoch 1"]
    assert float(first[-1].rpartition(" ")[2]) > 0.6


def test_augmentation_and_where_it_happens_change_losses() -> None:
    """Else the comparisons below would say less than they seem to."""
    assert len({losses()[0], losses("--no-augment")[0], losses("--workers", "0")[0], losses("--workers", "3")[0]}) == 4


@pytest.mark.parametrize(
    "more",
    [(), ("--persistent-workers",), ("--workers", "3"), ("--workers", "0")],
    ids=["2 workers", "persistent workers", "3 workers", "no workers"],
)
def test_with_random_augmentation_when_workers_are_seeded_as_in_pytorch(more: tuple[str, ...]) -> None:
    assert ours("--worker-seeding", "torch", *more) == losses(*more)


def test_without_augmentation_whatever_the_seeding() -> None:
    assert ours("--no-augment") == losses("--no-augment")


def test_tasks_are_seeded_so_that_the_number_of_workers_does_not_matter() -> None:
    assert ours() == ours("--workers", "1")


def test_the_argument_that_is_ours_alone_is_refused_for_pytorch() -> None:
    with pytest.raises(AssertionError, match="--worker-seeding is for --loader dali_like"):
        losses("--worker-seeding", "torch")
