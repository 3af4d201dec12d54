"""The examples of iterators, and that of Lightning, run as users run them, and learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "OMP_NUM_THREADS": "1",
    }
    warnings = () if example == "lightning_digits" else ("-W", "error")  # Lightning's own are not ours to mend

    program = subprocess.run(
        [sys.executable, *warnings, "-m", f"examples.{example}", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (program.returncode, program.stderr) == (0, "")
    epochs = re.findall(r"epoch (\d): loss [\d.]+, accuracy ([\d.]+)", program.stdout)
    assert [number for number, _ in epochs] == ["0", "1", "2"]
    assert float(epochs[-1][1]) > 0.8
