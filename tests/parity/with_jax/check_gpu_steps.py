"""The step of ``make gpu`` with JAX, on the CPU."""

from __future__ import annotations

import pytest

from benchmarks.gpu import framework_steps
from benchmarks.gpu.access import Gpu, StepSkipped
from tests.programs.simulated_gpu import SimulatedGpu


def test_batches_dropped_while_a_jitted_function_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework_steps, "DELAY_S", 0.001)

    assert framework_steps.jax_drops(SimulatedGpu(), 1.0)["batches"] == 20


def test_jax_without_cuda_is_a_reason_to_skip() -> None:
    with pytest.raises(StepSkipped, match="JAX uses the platform cpu: it is installed without CUDA"):
        framework_steps.jax_drops(Gpu(), 1.0)
