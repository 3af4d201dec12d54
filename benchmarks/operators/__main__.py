"""Every operator of `fn` beside that of NVIDIA DALI.

    python -m benchmarks.operators [--quick] [--cases cast,resize] [--repeats 5] [--seconds 0.05] [--json PATH]

Each row is a pipeline of one operator behind a source without workers, with batches of 16: small and large samples, of one
shape and of different ones, with one thread and with two. The pipelines of both libraries are in one process and take turns.
Prints the medians of the CPU time of a batch, in all threads together, and their ratio: above 1, DALI is faster.

The results go to a JSON file, beside results with other versions of DALI, and with dali-like-kernels. To
compare with another version, run the program with the interpreter of an environment that has it, and the dependencies of
this package::

    python3 -m venv build/dali24 && build/dali24/bin/pip install nvidia-dali-cuda120==2.4.0 ".[images,audio,segmentation]"
    build/dali24/bin/python -m benchmarks.operators
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path

from benchmarks.operators.cases import CASES
from benchmarks.operators.measuring import Row, measure
from benchmarks.operators.report import WITH_LOOPS, geometric_mean
from benchmarks.turns import names
from dali_like.common.kernel_library import kernels

REPEATS, SECONDS = 5, 0.03
QUICK_REPEATS, QUICK_SECONDS = 3, 0.01


def rows_of(cases: Iterable[str], threads: Iterable[int]) -> Iterator[Row]:
    """Return the rows of cases."""
    threads = list(threads)
    for case in cases:
        for small in (True, False):
            for ragged in (False, True) if CASES[case].can_be_ragged else (False,):
                for num_threads in threads:
                    yield Row(case, small, ragged, num_threads)


def dali_version() -> str:
    """Return the version of DALI that is installed."""
    found = [each.version for each in distributions() if each.metadata["Name"].startswith("nvidia-dali-cuda")]
    if not found:
        raise SystemExit("DALI is not installed: pip install nvidia-dali-cuda120==1.53.0")
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_REPEATS} repeats of {QUICK_SECONDS} s")
    parser.add_argument("--cases", type=names(CASES), default=[*CASES], metavar="A,B", help=", ".join(CASES))
    parser.add_argument("--threads", type=names("12"), default=["1", "2"], metavar="1,2", help="numbers of threads")
    parser.add_argument("--repeats", type=int, help=f"turns of each library ({REPEATS})")
    parser.add_argument("--seconds", type=float, help=f"least CPU time of a turn ({SECONDS})")
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks/operators.json"), metavar="PATH")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    repeats = options.repeats or (QUICK_REPEATS if options.quick else REPEATS)
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    version = dali_version() + ("" if kernels() is None else WITH_LOOPS)
    ratios: dict[str, float] = {}
    print(f"{'':72}{'DALI ms':>9}{'ms':>9}{'ratio':>8}")
    for row in rows_of(options.cases, map(int, options.threads)):
        try:
            ours, theirs = measure(row, repeats=repeats, seconds=seconds)
        except Exception as error:
            print(f"{row.name:72} {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", flush=True)
            continue
        ratios[row.name] = round(ours / theirs, 3)
        print(f"{row.name:72}{theirs * 1e3:9.3f}{ours * 1e3:9.3f}{ours / theirs:8.2f}", flush=True)
    slower = sum(ratio > 1 for ratio in ratios.values())
    mean = geometric_mean(ratios.values())
    print(f"beside DALI {version}: geometric mean {mean:.2f}, {slower} of {len(ratios)} rows above 1", file=sys.stderr)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    stored = json.loads(options.json.read_text()) if options.json.exists() else {}
    stored[version] = {**stored.get(version, {}), **ratios}
    options.json.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
