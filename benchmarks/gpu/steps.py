"""The steps of ``make gpu``, in their order, and their outcomes."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.gpu import framework_steps, memory_steps, program_steps
from benchmarks.gpu.access import Figures, Gpu, StepFailed, StepSkipped
from benchmarks.gpu.cases import CASES, needs

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"
#: Marks the line of a process with its outcome.
_MARK = "outcome of the step: "


@dataclass(frozen=True)
class Outcome:
    """The outcome of one step.

    Attributes:
        verdict: PASSED, FAILED or SKIPPED.
        reason: why it failed or was skipped; "" if it passed.
        figures: what was measured.
    """

    verdict: str
    reason: str = ""
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One step, which runs in a process of its own.

    Attributes:
        name: its name in the table.
        run: measures or checks; gets the GPU, and about how many seconds to take.
        modules: the modules that it requires.
        limit_s: its time limit.
        seconds: about how many seconds to take.
    """

    name: str
    run: Callable[[Gpu, float], Figures]
    modules: Sequence[str] = ("cupy",)
    limit_s: float = 40.0
    seconds: float = 5.0


def tests(gpu: Gpu, seconds: float) -> Figures:
    """Run tests/gpu."""
    # Warnings from other libraries, of any version, are not our failures.
    command = [sys.executable, "-m", "pytest", "-q", "tests/gpu", "-p", "no:cacheprovider", "-W", "default"]
    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    print(finished.stdout + finished.stderr, flush=True)
    last = (finished.stdout.strip().splitlines() or ["pytest printed nothing"])[-1].strip("= ")
    if finished.returncode:
        raise StepFailed(last)
    return {"result": last}


def _measure(case: str) -> Step:
    return Step(case, lambda gpu, seconds: CASES[case](seconds), needs(case), limit_s=60.0)


#: First what everything else depends on, then the checks, then comparisons with other systems.
STEPS: Sequence[Step] = (
    Step("start", memory_steps.start),
    Step("tests/gpu", tests, ("cupy", "pytest"), limit_s=150.0),
    Step("registration", memory_steps.registration, limit_s=45.0),
    Step("checksums", memory_steps.checksums, ("cupy", "torch"), limit_s=90.0, seconds=60.0),
    Step("shut gate", memory_steps.shut_gate, ("cupy", "pytest")),
    _measure("copy"),
    Step("arrays", memory_steps.arrays, ("cupy", "pytest")),
    Step("jax: drops", framework_steps.jax_drops, ("cupy", "jax"), limit_s=60.0),
    Step("torch: drops", framework_steps.torch_drops, ("cupy", "torch", "pytest"), limit_s=60.0),
    Step("torch: capture", framework_steps.capture, ("cupy", "torch")),
    Step("torch: loader", framework_steps.loader, ("torch",), limit_s=90.0, seconds=2.0),
    Step("decoding", program_steps.decoding, ("cupy", "nvidia.nvimgcodec", "PIL"), limit_s=50.0, seconds=15.0),
    Step("exit without close", program_steps.exit_without_close, limit_s=75.0),
    Step("interrupts", program_steps.interrupts, limit_s=75.0),
    Step("device failure", program_steps.device_failure, limit_s=75.0),
    *(_measure(case) for case in CASES if case != "copy"),
)


def missing(modules: Sequence[str]) -> list[str]:
    """Return the modules that are not installed."""

    def is_there(module: str) -> bool:
        try:
            return importlib.util.find_spec(module) is not None
        except ImportError:
            return False

    return [module for module in modules if not is_there(module)]


def outcome_of(step: Step, gpu: Gpu) -> Outcome:
    """Run a step in this process. Any error is a failure with a reason."""
    try:
        return Outcome(PASSED, figures=step.run(gpu, step.seconds))
    except StepSkipped as skipped:
        return Outcome(SKIPPED, str(skipped))
    except StepFailed as failed:
        return Outcome(FAILED, str(failed))
    except Exception as error:
        traceback.print_exc()
        return Outcome(FAILED, f"{type(error).__name__}: {error}")


def print_outcome(outcome: Outcome) -> None:
    """Pass an outcome to the process that has called `run_apart`."""
    print(_MARK + json.dumps(asdict(outcome)), flush=True)


def run_apart(step: Step, command: Sequence[str], timeout_s: float) -> Outcome:
    """Run a step in a process of its own, which calls `print_outcome`.

    Args:
        command: starts the process.
        timeout_s: the process is ended after this time.
    """
    if absent := missing(step.modules):
        return Outcome(SKIPPED, f"not installed: {', '.join(absent)}")
    # In a session of its own, so that its workers can be ended with it.
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            print(*process.communicate(), flush=True)
            return Outcome(FAILED, f"not done after {timeout_s:.0f} s")
    printed, mark, last = stdout.rpartition(_MARK)
    if not mark:
        print(stdout + stderr, flush=True)
        reason = (stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return Outcome(FAILED, f"the process ended with {process.returncode}: {reason[:200]}")
    outcome = Outcome(**json.loads(last.splitlines()[0]))
    if outcome.verdict == FAILED:
        print(printed + stderr, flush=True)
    elif process.returncode:
        return Outcome(FAILED, f"the process failed at its end, with {process.returncode}", outcome.figures)
    return outcome
