"""The examples of iterators, and that of Lightning, run as users run them, and learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("example", "arguments", "devices"),
    [
        ("pytorch_iterator", ["--workers", "2"], 1),
        ("jax_iterator", ["--workers", "1"], 2),
        ("lightning_digits", ["--workers", "2"], 1),
    ],
    ids=["PyTorch", "JAX on two devices", "Lightning"],
)
def test_example(example: str, arguments: list[str], devices: int) -> None:
    needed = {"pytorch_iterator": "torch", "jax_iterator": "jax", "lightning_digits": "lightning"}[example]
    for module in ("sklearn", needed):
        if find_spec(module) is None:
            pytest.skip(f"needs {module}")
    warnings = () if example == "lightning_digits" else ("-W", "error")  # Lightning's own are not ours to mend

    output = output_of(example, *arguments, warnings=warnings, devices=devices)

    epochs = re.findall(r"epoch (\d): loss [\d.]+, accuracy ([\d.]+)", output)
    assert [number for number, _ in epochs] == ["0", "1", "2"]
    assert float(epochs[-1][1]) > 0.8


@pytest.mark.parametrize("device", ["", "cpu"], ids=["on the CPU", "written for a GPU"])
def test_imagenet(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sklearn", "skimage", "cv2", "simplejpeg"):
        pytest.importorskip(module)
    options = ["--scratch", str(tmp_path), "--per-photograph", "8", "--batch-size", "8", "--crop", "32", "--workers", "1"]

    monkeypatch.setenv("DALI_LIKE_DEVICE", device)

    output = output_of("imagenet_training", *options, *["--gpu"] * bool(device))

    epochs = re.findall(r"epoch (\d): 80 images, loss [\d.]+; 10 images, accuracy [\d.]+", output)
    assert epochs == ["0", "1"]


def output_of(example: str, *arguments: str, warnings: Sequence[str] = ("-W", "error"), devices: int = 1) -> str:
    """The output of an example."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "OMP_NUM_THREADS": "1",
    }
    program = subprocess.run(
        [sys.executable, *warnings, "-m", f"examples.{example}", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (program.returncode, program.stderr) == (0, "")
    return program.stdout
