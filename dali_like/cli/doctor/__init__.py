"""Checks the machine and the installation, and suggests remedies.

The report says whether workers start, then lists problems, the worst first, then optional components that are absent. With
--verbose it also lists the other findings. The exit status is 1 if a check has failed. Warnings concern speed and later
failures. Notes concern optional components.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from dali_like import __version__
from dali_like.cli.doctor import gpu, kernel, libraries, machine, user_object, worker_start
from dali_like.cli.doctor.findings import Check, Finding, Verdict, failure

__all__ = ["CHECKS", "add_arguments", "examine", "run"]

#: All checks, in the order of the report. Checks of the GPU come last: other checks fork, which is not possible after CUDA.
CHECKS: tuple[Check, ...] = (
    *((*machine.CHECKS, *kernel.CHECKS) if sys.platform == "linux" else machine.EVERYWHERE),
    *(*libraries.CHECKS, *worker_start.CHECKS, *gpu.CHECKS),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; see `dali_like.cli.Command`."""
    parser.add_argument(
        "dataset", nargs="?", help="also examine a dataset, loader or source: module:name or file.py:name of the object"
    )
    parser.add_argument("--verbose", action="store_true", help="also show passed checks and absent optional components")
    parser.add_argument("--json", action="store_true", help="print all findings as JSON, for programs")


def run(options: argparse.Namespace) -> int:
    """Run all checks and print the report; see `dali_like.cli.Command`."""
    of_object = () if options.dataset is None else user_object.checks_of(options.dataset)
    found = [*examine(CHECKS), *(asked := [*examine(of_object)])]
    if options.json:
        print(json.dumps({"version": __version__, "findings": [asdict(finding) for finding in found]}, indent=2))
    else:
        print(_as_text(found, found if options.verbose else asked, shows_all=options.verbose))
    return int(any(finding.verdict is Verdict.FAILURE for finding in found))


def examine(checks: Iterable[Check]) -> Iterator[Finding]:
    """Run checks in order, and yield the finding of each. An exception of a check becomes a failure."""
    for check in checks:
        try:
            yield check()
        except Exception as error:  # the other checks still run
            name = str(getattr(check, "__name__", check))  # a partial function has no name
            yield failure(name, f"the check raised {type(error).__name__}: {error}", "please report this")


def _as_text(found: Sequence[Finding], asked: Sequence[Finding], *, shows_all: bool) -> str:
    """Format findings. Those that the user has asked for are shown although they need no action."""
    order = list(Verdict)
    worst_first = sorted(found, key=lambda finding: -order.index(finding.verdict))
    shown = [finding for finding in worst_first if finding in asked or finding.needs_action]
    optional = [finding for finding in shown if finding.verdict is Verdict.NOTE]
    optional = optional if shows_all else libraries.join_extras(optional)
    problems = [finding for finding in shown if finding.verdict in (Verdict.FAILURE, Verdict.WARNING)]
    passed = [finding for finding in shown if finding.verdict is Verdict.OK]
    rest = "" if len(shown) == len(found) else "; --verbose shows all"
    parts = [
        worker_start.headline(found),
        "\n".join(map(_line, problems)) or "No action is needed.",
        "\n".join(["Optional:", *map(_line, optional)]) if optional else "",
        "\n".join(map(_line, passed)),
        f"{_summary(found)}{rest}",
    ]
    return "\n\n".join(filter(None, parts))


def _line(finding: Finding) -> str:
    line = f"{finding.verdict:<8} {finding.subject:<22} {finding.found}"
    if not finding.remedy:
        return line
    between = " " if finding.verdict is Verdict.NOTE else f"\n{'':<32}"
    return f"{line}{between}-> {finding.remedy}"


def _summary(found: Iterable[Finding]) -> str:
    counts = Counter(finding.verdict for finding in found)
    parts = [
        f"{counts[verdict]} {verdict}{'s' * (counts[verdict] != 1)}" for verdict in reversed(Verdict) if verdict in counts
    ]
    return f"dali_like {__version__}: {', '.join(part.replace('oks', 'ok') for part in parts)}"
