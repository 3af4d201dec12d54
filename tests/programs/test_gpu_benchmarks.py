"""The steps of ``make gpu`` without a GPU: their order, their verdicts, and their calls of the simulated device."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as script
from benchmarks.gpu import cases, framework_steps, memory_steps, program_steps, systems
from benchmarks.gpu.access import Figures, Gpu, StepFailed, StepSkipped
from benchmarks.gpu.cases import CASES, needs
from benchmarks.gpu.steps import FAILED, PASSED, SKIPPED, STEPS, Outcome, Step, outcome_of, run_apart
from dali_like.device.opening import substitute
from tests.programs.simulated_gpu import SimulatedGpu

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    gpu = SimulatedGpu()
    with substitute(gpu.make):
        yield gpu


# The program


def test_without_a_gpu_it_says_so_at_once() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"],
        cwd=ROOT,
        env={"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert result.returncode == 1
    assert result.stderr.startswith("no step has run: there is no GPU here: ")


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "accelerator_is_available", lambda: True)
    monkeypatch.setattr(script, "missing", lambda modules: ["cupy"])

    assert script.why_not() == f"{sys.executable} lacks cupy; make gpu PYTHON=... takes another one"


def test_a_gpu_that_cannot_be_counted_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some containers have CUDA's driver, but not NVML."""
    monkeypatch.setattr(script, "accelerator_is_available", lambda: False)
    monkeypatch.setattr(script, "count_is_known", lambda: False)
    monkeypatch.setattr(script, "missing", lambda modules: [])

    assert script.why_not() is None


def test_order_of_the_steps() -> None:
    names = [step.name for step in STEPS]

    assert names[:6] == ["start", "tests/gpu", "registration", "checksums", "shut gate", "copy"]
    assert names[6:12] == ["arrays", "jax: drops", "torch: drops", "torch: capture", "torch: loader", "decoding"]
    assert names[12:15] == ["exit without close", "interrupts", "device failure"]
    assert sorted([*names[15:], "copy"]) == sorted(CASES)


def test_steps_after_the_deadline_are_skipped() -> None:
    outcomes = script.run_steps(STEPS, 0.0)

    assert [outcome.verdict for outcome in outcomes.values()] == [SKIPPED] * len(STEPS)
    assert outcomes["start"].reason == "no time is left"


# Outcomes


def raises(error: Exception) -> Callable[[Gpu, float], Figures]:
    def run(gpu: Gpu, seconds: float) -> Figures:
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "outcome"),
    [
        (lambda gpu, seconds: {"GB/s": seconds}, Outcome(PASSED, figures={"GB/s": 5.0})),
        (raises(StepSkipped("no JAX")), Outcome(SKIPPED, "no JAX")),
        (raises(StepFailed("7 samples are wrong")), Outcome(FAILED, "7 samples are wrong")),
        (raises(ValueError("no")), Outcome(FAILED, "ValueError: no")),
    ],
    ids=["passed", "skipped", "failed", "error"],
)
def test_outcome_of_a_step(run: Callable[[Gpu, float], Figures], outcome: Outcome) -> None:
    assert outcome_of(Step("step", run), SimulatedGpu()) == outcome


STEP = Step("step", raises(ValueError()), modules=())


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("print('noise'); print_outcome(Outcome('passed', '', {'MiB': 1.5}))", Outcome(PASSED, figures={"MiB": 1.5})),
        ("print_outcome(Outcome('FAILED', 'wrong')); sys.exit(1)", Outcome(FAILED, "wrong")),
        ("print_outcome(Outcome('passed')); sys.exit(3)", Outcome(FAILED, "the process failed at its end, with 3")),
        ("sys.exit('out of luck')", Outcome(FAILED, "the process ended with 1: out of luck")),
        ("os.kill(os.getpid(), 9)", Outcome(FAILED, "the process ended with -9: it printed nothing")),
    ],
    ids=["passed", "failed", "fails at its end", "exits", "killed"],
)
def test_outcome_of_a_process(program: str, outcome: Outcome) -> None:
    program = "import os, sys; from benchmarks.gpu.steps import Outcome, print_outcome; " + program

    assert run_apart(STEP, [sys.executable, "-c", program], 60.0) == outcome


def test_a_step_that_hangs_is_ended_with_its_processes() -> None:
    program = "import subprocess; subprocess.run(['sleep', '1000'])"

    assert run_apart(STEP, [sys.executable, "-c", program], 0.2) == Outcome(FAILED, "not done after 0 s")


def test_a_step_without_its_modules_is_skipped() -> None:
    step = Step("step", raises(ValueError()), modules=("sys", "no_such_module", "nvidia.no_such_module"))

    assert run_apart(step, [], 1.0) == Outcome(SKIPPED, "not installed: no_such_module, nvidia.no_such_module")


@pytest.mark.parametrize(
    ("case", "modules"),
    [
        ("copy", ["cupy", "torch"]),
        ("rate: DALI", ["cupy", "torch", "nvidia.dali"]),
        ("decode: dali_like", ["cupy", "torch", "nvidia.nvimgcodec", "PIL"]),
        ("decode: DALI", ["cupy", "torch", "nvidia.dali", "PIL"]),
    ],
)
def test_measurements_need(case: str, modules: list[str]) -> None:
    assert case in CASES
    assert needs(case) == modules


def test_table_has_verdicts_reasons_and_ratios_to_others() -> None:
    outcomes = {
        "rate: dali_like": Outcome(PASSED, figures={"batches/s": 3000.0}),
        "rate: torch DataLoader": Outcome(PASSED, figures={"batches/s": 1000.0}),
        "rate: DALI": Outcome(SKIPPED, "not installed: nvidia.dali"),
        "wait: dali_like": Outcome(PASSED, figures={"median us": 12.0}),
        "arrays": Outcome(FAILED, "a | b"),
    }

    ratios = script.ratios(outcomes)
    table = script.table({**outcomes, "compared": Outcome(PASSED, figures=ratios)})

    assert ratios == {"rate, times that of torch DataLoader": 3.0}
    assert "| rate: dali_like | passed | batches/s: 3,000 |" in table
    assert "| rate: DALI | skipped | not installed: nvidia.dali |" in table
    assert "| arrays | FAILED | a / b |" in table
    assert "| compared | passed | rate, times that of torch DataLoader: 3 |" in table


@pytest.mark.parametrize("run", [framework_steps.torch_drops, framework_steps.capture])
def test_pytorch_without_cuda_is_a_reason_to_skip(run: Callable[[Gpu, float], Figures]) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this PyTorch has CUDA")

    assert outcome_of(Step("step", run), SimulatedGpu()).reason.startswith("this PyTorch has no CUDA")


# Steps on the simulated device


def test_start(gpu: SimulatedGpu) -> None:
    assert memory_steps.start(gpu, 1.0)["address space of each, GiB"] > 1


def test_registration(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_steps, "REGISTERED_MIB", (1, 2))
    monkeypatch.setattr(memory_steps.resource, "setrlimit", lambda *_: None)

    figures = memory_steps.registration(gpu, 1.0)

    assert list(figures)[-1] == "2 MiB behind a kernel, unlock ms"
    assert gpu.delays_s == [2.0, 2.0]
    assert gpu.devices[0].num_registrations == 8
    assert gpu.devices[0].registered == {}
    assert gpu.devices[0].faults == []


def test_checksums(gpu: SimulatedGpu) -> None:
    pytest.importorskip("torch")

    assert memory_steps.checksums(gpu, 60.0, num_batches=20)["batches"] == 20


def test_checksums_find_wrong_samples(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(memory_steps, "number", lambda info: memory_steps.np.full((64, 64), 252, "int32"))

    with pytest.raises(StepFailed, match="320 of 320 samples have wrong checksums"):
        memory_steps.checksums(gpu, 60.0, num_batches=20)


def test_shut_gate(gpu: SimulatedGpu) -> None:
    assert memory_steps.shut_gate(gpu, 1.0)["median us"] > 0


def test_a_slow_copy_fails(gpu: SimulatedGpu) -> None:
    gpu.most_copy_us = 0.0

    with pytest.raises(StepFailed, match="a call that begins a copy takes"):
        memory_steps.shut_gate(gpu, 1.0)


def test_programs_that_end_badly(gpu: SimulatedGpu) -> None:
    assert program_steps.exit_without_close(gpu, 1.0) == {"exit status": 0}
    assert program_steps.device_failure(gpu, 1.0) == {"error": "DeviceError", "exit status": 0}


def test_interrupts(gpu: SimulatedGpu) -> None:
    assert program_steps.interrupts(gpu, 1.0) == {"interrupts": 5}


def test_a_program_that_finds_no_gpu_says_so() -> None:
    with pytest.raises(StepFailed, match=r"the program ended with 1: .*Error"):
        program_steps.exit_without_close(Gpu(), 1.0)


def test_decoding(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")

    assert program_steps.decoding(gpu, 0.0)["images"] == 3 * program_steps.IMAGES


def test_there_are_jpegs_of_all_kinds() -> None:
    image = pytest.importorskip("PIL.Image")

    files = [image.open(program_steps.io.BytesIO(file.tobytes())) for file in program_steps.unusual_jpegs()]

    assert {file.mode for file in files} == {"RGB", "L", "CMYK"}
    assert any(file.info.get("progressive") for file in files)
    assert (1, 1) in {file.size for file in files}


# Steps and measurements with PyTorch


@pytest.fixture
def torch_gpu(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> SimulatedGpu:
    pytest.importorskip("torch")
    importlib.import_module("tests.simulated_torch").simulate_cuda(monkeypatch)
    return gpu


def test_torch_drops(torch_gpu: SimulatedGpu) -> None:
    assert framework_steps.torch_drops(torch_gpu, 1.0) == {"record_stream protects dropped batches": True}


def test_torch_drops_behind_a_gate_that_opened_too_early_fail(
    torch_gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.programs.simulated_gpu.SimulatedGate.is_shut", False)

    with pytest.raises(StepFailed, match="nothing was tested"):
        framework_steps.torch_drops(torch_gpu, 1.0)


def test_torch_capture(torch_gpu: SimulatedGpu) -> None:
    assert framework_steps.capture(torch_gpu, 1.0) == {"modes": 2}


@pytest.mark.filterwarnings("ignore:.*no accelerator is found")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_torch_loader(torch_gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework_steps, "LOADER_IMAGES", 2)
    monkeypatch.setattr(framework_steps, "LOADER_WORKERS", 1)
    monkeypatch.setattr(framework_steps, "ROUNDS", 1)

    figures = framework_steps.loader(torch_gpu, 0.0)

    assert len(figures) == 5
    assert figures["ratio"] > 0
    torch_gpu.least_loader_ratio = 1e9
    with pytest.raises(StepFailed, match="of the rate of bare copies"):
        framework_steps.loader(torch_gpu, 0.0)


@pytest.mark.parametrize("case", ["rate: dali_like", "wait: dali_like"])
def test_measurements_of_batches(case: str, torch_gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "WORKERS", 2)
    monkeypatch.setattr(systems, "BATCH_SIZE", 4)

    assert all(figure >= 0 for figure in CASES[case](0.0).values())


def test_measurement_of_decoding(torch_gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    monkeypatch.setattr(cases, "BATCH_SIZE", 2)

    assert CASES["decode: dali_like"](0.01)["images/s"] > 0
