"""Looks at the machine and the installation, and says what to do where something is amiss.

The exit status is 1 if anything has failed. Warnings are about speed, or about what may fail later; notes are about what not
everybody needs.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from dali_like import __version__
from dali_like.cli.doctor import gpu, kernel, libraries, machine, workers
from dali_like.cli.doctor.findings import Check, Finding, Verdict, failure

__all__ = ["CHECKS", "add_arguments", "examine", "run"]

#: All there are, in the order of the report. Those of the GPU are last, since others fork.
CHECKS: tuple[Check, ...] = (*machine.CHECKS, *kernel.CHECKS, *libraries.CHECKS, *workers.CHECKS, *gpu.CHECKS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON, for programs")


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    found = []
    for finding in examine(CHECKS):
        found.append(finding)
        if not options.json:
            print(_line(finding), flush=True)
    print(_as_json(found) if options.json else f"\n{_summary(found)}")
    return int(any(finding.verdict is Verdict.FAILURE for finding in found))


def examine(checks: Iterable[Check]) -> Iterator[Finding]:
    """What each check finds, one after the other."""
    for check in checks:
        try:
            yield check()
        except Exception as error:  # one that cannot be made keeps none of the others from it
            yield failure(_name(check), f"could not be looked at: {type(error).__name__}: {error}", "please report this")


def _name(check: Check) -> str:
    return str(getattr(check, "__name__", check))


def _line(finding: Finding) -> str:
    line = f"{finding.verdict:<8} {finding.subject:<22} {finding.found}"
    return f"{line}\n{'':<31} -> {finding.remedy}" if finding.remedy else line


def _summary(found: Iterable[Finding]) -> str:
    counts = Counter(finding.verdict for finding in found)
    parts = [
        f"{counts[verdict]} {verdict}{'s' * (counts[verdict] != 1)}" for verdict in reversed(Verdict) if verdict in counts
    ]
    return f"dali_like {__version__}: {', '.join(part.replace('oks', 'ok') for part in parts)}"


def _as_json(found: Iterable[Finding]) -> str:
    return json.dumps({"version": __version__, "findings": [asdict(finding) for finding in found]}, indent=2)
