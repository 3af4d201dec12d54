"""Check and measure the path to a GPU, step by step, and print one table.

    python -m benchmarks.gpu [--step NAME] [--out FOLDER]

Each step runs in a process of its own with a time limit, so that a failure does not end the others, and so that workers can
be forked before CUDA is used. A step passes, fails, or is skipped, with a reason: for example, JAX is not installed. The
whole takes less than eight minutes on one GPU and needs no network; measurements want eight CPUs. When the time is over, the
remaining steps are skipped.

| step | check |
| --- | --- |
| start | four shared spaces, and CUDA besides |
| tests/gpu | the tests that need a GPU |
| registration | page-lock and unlock 1 MiB to 1 GiB, idle and behind a kernel of 2 s, with ``ulimit -l 64`` |
| checksums | 100,000 batches, or a minute of them, summed up on the GPU; growth of memory |
| shut gate | calls that begin copies behind a blocked stream return in less than 50 microseconds |
| copy | GB/s from a page-locked slot; for comparison, from memory allocated by CUDA |
| arrays | strided and reversed arrays of the user's on the GPU, also with ``no_copy`` |
| jax: drops | batches dropped while a jitted function of 200 ms reads them |
| torch: drops | the same on PyTorch's default, side and autograd streams; ``record_stream`` |
| torch: capture | graph capture in both modes, while a pipeline runs |
| torch: loader | GB/s of a loop over the loader with ``device=``: at least 0.95 of bare copies; beside ``pin_memory`` |
| decoding | unusual JPEG files by the mixed decoder, compared with the CPU's |
| exit without close, interrupts, device failure | programs that end badly |
| rate | batches of 64 images of 224 x 224 x 3 by 8 workers, passed to the GPU, where a kernel touches each |
| wait | time the loop waits for its batch, while each step runs a kernel of 10 ms, one step behind |
| decode | JPEG files of 640 x 480 per second, by the mixed decoders and by nvImageCodec alone |

No other program may use the machine. *wait* includes the Python time to hand over a batch, but no kernel time. Rates are
for a consumer that does nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.access import Figures, Gpu
from benchmarks.gpu.steps import FAILED, PASSED, SKIPPED, STEPS, Outcome, Step, missing, outcome_of, print_outcome, run_apart
from dali_like.device.accelerator import accelerator_is_available, count_is_known

#: Time limit of all steps together.
DEADLINE_S = 470.0
#: A step does not begin with less time left.
LEAST_S = 10.0


def run_steps(steps: Sequence[Step], deadline_s: float) -> dict[str, Outcome]:
    """Run the steps, each in its process, until the time is over."""
    begin = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    for step in steps:
        left_s = begin + deadline_s - time.monotonic()
        command = [sys.executable, "-m", "benchmarks.gpu", "--step", step.name]
        if left_s < LEAST_S:
            outcomes[step.name] = Outcome(SKIPPED, "no time is left")
        else:
            outcomes[step.name] = run_apart(step, command, min(step.limit_s, left_s))
        print(f"{step.name}: {outcomes[step.name].verdict} {outcomes[step.name].reason}", flush=True)
    return outcomes


def why_not() -> str | None:
    """Return the reason why no step can run here; None if they can."""
    if not accelerator_is_available() and count_is_known():
        return (
            "there is no GPU here: NVIDIA's driver is not installed, or CUDA_VISIBLE_DEVICES hides what there is (in a "
            "container, was it started with --gpus?)"
        )
    if absent := missing(("cupy",)):
        return f"{sys.executable} lacks {', '.join(absent)}; make gpu PYTHON=... takes another one"
    return None


def ratios(outcomes: Mapping[str, Outcome]) -> Figures:
    """Return our rates relative to others."""
    rates = {
        step: next(iter(outcome.figures.values()))
        for step, outcome in outcomes.items()
        if outcome.verdict == PASSED and step.startswith(("rate: ", "decode: "))
    }
    made: Figures = {}
    for step, rate in rates.items():
        what, _, system = step.partition(": ")
        ours = rates.get(f"{what}: dali_like")
        if ours is not None and not system.startswith("dali_like"):
            made[f"{what}, times that of {system}"] = ours / rate
    return made


def table(outcomes: Mapping[str, Outcome]) -> str:
    """Return all outcomes as a Markdown table."""
    lines = ["| step | verdict | reason, or figures |", "| --- | --- | --- |"]
    for step, outcome in outcomes.items():
        figures = "; ".join(f"{name}: {_text(value)}" for name, value in outcome.figures.items())
        reason = outcome.reason.replace("|", "/").replace("\n", " ")
        lines.append(f"| {step} | {outcome.verdict} | {'; '.join(filter(None, (reason, figures)))} |")
    return "\n".join(lines)


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def main() -> int:
    """Run one step in this process, or all steps, and return the exit status."""
    names = [step.name for step in STEPS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", choices=names, help="run one step in this process, and print its outcome as JSON")
    parser.add_argument("--out", type=Path, help="folder for gpu.json and gpu.md")
    given = parser.parse_args()
    if given.step:
        outcome = outcome_of(STEPS[names.index(given.step)], Gpu())
        print_outcome(outcome)
        return int(outcome.verdict == FAILED)
    if reason := why_not():
        sys.exit(f"no step has run: {reason}")
    outcomes = run_steps(STEPS, DEADLINE_S)
    if compared := ratios(outcomes):
        outcomes["dali_like, compared"] = Outcome(PASSED, figures=compared)
    text = table(outcomes)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        result = {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()}
        (given.out / "gpu.json").write_text(json.dumps(result, indent=1))
        (given.out / "gpu.md").write_text(text + "\n")
    print(f"\n{text}")
    return int(any(outcome.verdict == FAILED for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
