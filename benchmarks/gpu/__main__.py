"""Run the tests that need a GPU, and compare figures with a plain copy, PyTorch and DALI.

    python -m benchmarks.gpu [--no-tests] [--seconds 5] [--out FOLDER]

Requires CuPy and PyTorch with CUDA, eight CPUs for the workers, no network, and less than eight minutes. DALI and
nvImageCodec are measured if installed. Each measurement is a separate process, because workers are forked before CUDA is
used. The table comes last, with the reason for each missing measurement.

- *copy*: batches of images, repeatedly copied from a page-locked slot to the GPU; for comparison, plain asynchronous copies
  of the same size from memory allocated by CUDA. GB/s.
- *rate*: batches of 64 images of 224 x 224 x 3, made by 8 workers and passed to the GPU, where a kernel touches each.
- *wait*: time the loop waits for its batch while each step runs a kernel of 10 ms, one step behind: the median.
- *soak*: 100,000 batches, or as many as fit into a minute, with checksums computed and compared on the GPU; growth of memory
  after the first tenth.
- *decode*: JPEG files decoded on the GPU, by the mixed decoders and by nvImageCodec alone.

Limitations: no other program may use the machine. *wait* includes the Python time to hand over a batch, but no kernel time.
Rates are for a consumer that does nothing else.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.cases import CASES, Figures, needs
from dali_like.device.accelerator import accelerator_is_available, count_is_known

REPOSITORY = Path(__file__).resolve().parent.parent.parent
#: Time limits: in total, for the tests, and for each measurement.
DEADLINE_S = 470.0
TESTS_S = 200.0
CASE_S = 75.0


def missing(modules: Sequence[str]) -> list[str]:
    """Return the modules that are not installed."""

    def is_there(module: str) -> bool:
        try:
            return importlib.util.find_spec(module) is not None
        except ImportError:
            return False

    return [module for module in modules if not is_there(module)]


def run_case(case: str, seconds: float, timeout_s: float) -> Figures:
    """Measure in a separate process; an error message is a result, too."""
    if absent := missing(needs(case)):
        return {"not measured": f"no {', '.join(absent)} here"}
    command = [sys.executable, "-m", "benchmarks.gpu", "--case", case, "--seconds", str(seconds)]
    try:
        finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return {"not measured": f"not done after {timeout_s:.0f} s"}
    lines = [line for line in finished.stdout.splitlines() if line.startswith("{")]
    if finished.returncode or not lines:
        print(finished.stdout + finished.stderr, flush=True)
        last = (finished.stderr.strip().splitlines() or [f"exit status {finished.returncode}"])[-1]
        return {"not measured": last[:200]}
    figures: Figures = json.loads(lines[-1])
    return figures


def run_tests(timeout_s: float) -> str:
    """Run the tests that need a GPU, and return their outcome."""
    # Warnings from other libraries, of any version, are not our failures.
    command = [sys.executable, "-m", "pytest", "-q", "tests/gpu", "-p", "no:cacheprovider", "-W", "default"]
    try:
        finished = subprocess.run(command, cwd=REPOSITORY, timeout=timeout_s, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired as error:
        print((error.stdout or b"").decode(errors="replace"))
        return f"not done after {timeout_s:.0f} s"
    print(finished.stdout + finished.stderr, flush=True)
    return (finished.stdout.strip().splitlines() or ["nothing was said"])[-1].strip("= ")


def table(results: dict[str, Figures]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| measurement | figure | value |", "| --- | --- | ---: |"]
    for case, figures in results.items():
        for name, value in figures.items():
            text = f"{value:,.3g}" if isinstance(value, float) and value < 1000 else value
            lines.append(f"| {case} | {name} | {f'{text:,.0f}' if isinstance(text, float) else text} |")
    return "\n".join(lines)


def why_not() -> str | None:
    """Return the reason why nothing can be measured here; None if it can."""
    if not accelerator_is_available() and count_is_known():
        return (
            "there is no GPU here: NVIDIA's driver is not installed, or CUDA_VISIBLE_DEVICES hides what there is (in a "
            "container, was it started with --gpus?)"
        )
    if absent := missing(("cupy", "torch", "pytest")):
        return f"{sys.executable} lacks {', '.join(absent)}; make gpu PYTHON=... takes another one"
    return None


def ratios(results: Mapping[str, Figures]) -> Figures:
    """Return our rates relative to others."""
    rates = {case: next(iter(figures.values())) for case, figures in results.items() if case.startswith(("rate", "decode"))}
    made: Figures = {}
    for case, rate in rates.items():
        what, _, system = case.partition(": ")
        ours = rates.get(f"{what}: dali_like")
        if isinstance(rate, float) and isinstance(ours, float) and not system.startswith("dali_like"):
            made[f"{what}, times that of {system}"] = ours / rate
    return made


def main() -> None:
    """Run the tests and all measurements, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="measure one case in this process, and print it as JSON")
    parser.add_argument("--seconds", type=float, default=5.0, help="approximate time of each measurement, in seconds")
    parser.add_argument("--no-tests", action="store_true", help="skip the tests")
    parser.add_argument("--out", type=Path, help="folder for gpu.json and gpu.md")
    given = parser.parse_args()
    if given.case:
        try:
            print(json.dumps(CASES[given.case](given.seconds)), flush=True)
        except Exception:
            traceback.print_exc()
            sys.exit(1)
        return
    if reason := why_not():
        sys.exit(f"nothing has been measured: {reason}")
    begin = time.monotonic()
    results: dict[str, Figures] = {}
    if not given.no_tests:
        results["tests/gpu"] = {"result": run_tests(TESTS_S)}
    for case in CASES:
        left_s = begin + DEADLINE_S - time.monotonic()
        results[case] = (
            run_case(case, given.seconds, min(CASE_S, left_s)) if left_s > 10 else {"not measured": "no time left"}
        )
        print(f"{case}: {results[case]}", flush=True)
    results["dali_like"] = ratios(results)
    text = table(results)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "gpu.json").write_text(json.dumps(results, indent=1))
        (given.out / "gpu.md").write_text(text + "\n")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
