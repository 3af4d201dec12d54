"""Measure one group in this process, and print its figures and limits as one line of JSON: ``... run_one GROUP SECONDS``."""

from __future__ import annotations

import json
import sys

from benchmarks.limits.rows import GROUPS


def main() -> None:
    group, seconds = sys.argv[1:]
    print(json.dumps(GROUPS[group].measure(float(seconds))))


if __name__ == "__main__":
    main()
