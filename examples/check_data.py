"""Check a dataset before the training: samples that raise, are empty, NaN, of another shape, duplicates, or slow.

    python -m examples.check_data [findings.html]

Runs ``dali-like check examples.check_data:scans`` on made-up data with one sample of each kind, prints what it finds, and
writes a page. The exit status is 1, because there are findings.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from dali_like.cli import main as dali_like


class Scans:
    """Gray scans with their files, of which some have a problem."""

    def __init__(self, count: int = 400) -> None:
        self.files = [f"scans/{number:04d}.npy" for number in range(count)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 50:
            raise FileNotFoundError(2, "No such file or directory", self.files[index])
        if index == 120:
            time.sleep(0.1)  # a file on a slow disk
        scan = np.random.default_rng(110 if index == 111 else index).random((1, 28, 28), np.float32)
        if index == 60:
            scan[0, 3, 4] = np.nan
        if index in (70, 90):
            scan = scan[:, : 0 if index == 70 else 27]
        return {"image": scan, "label": index % 10}


def scans() -> Scans:
    """Return the dataset."""
    return Scans()


def check(page: Path) -> int:
    """Check the dataset, write a page with the findings, and return the exit status."""
    return dali_like(["check", "examples.check_data:scans", "--html", str(page)])


def main() -> int:
    """Check, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="?", type=Path, default=Path("findings.html"), help="default: %(default)s")
    return check(parser.parse_args().page)


if __name__ == "__main__":
    sys.exit(main())
