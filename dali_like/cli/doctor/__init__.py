"""Looks at the machine and the installation, and says what to do where something is amiss.

It shows what calls for action, the worst first, and with --verbose all that it has found. The exit status is 1 if anything
has failed. Warnings are about speed, or about what may fail later; notes are about what not everybody needs.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from dali_like import __version__
from dali_like.cli.doctor import gpu, kernel, libraries, machine, worker_start
from dali_like.cli.doctor.findings import Check, Finding, Verdict, failure

__all__ = ["CHECKS", "add_arguments", "examine", "run"]

#: All there are, in the order of the report. Those of the GPU are last, since others fork.
CHECKS: tuple[Check, ...] = (*machine.CHECKS, *kernel.CHECKS, *libraries.CHECKS, *worker_start.CHECKS, *gpu.CHECKS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    parser.add_argument("--verbose", action="store_true", help="show what is well, too, and what nobody needs to do")
    parser.add_argument("--json", action="store_true", help="print all findings as JSON, for programs")


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    found = list(examine(CHECKS))
    print(_as_json(found) if options.json else _as_text(found, shows_all=options.verbose))
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


def _as_text(found: Sequence[Finding], *, shows_all: bool) -> str:
    order = list(Verdict)
    worst_first = sorted(found, key=lambda finding: -order.index(finding.verdict))
    shown = [finding for finding in worst_first if shows_all or finding.calls_for_action]
    lines = [_line(finding) for finding in shown] or ["There is nothing to do."]
    rest = "" if len(shown) == len(found) else "; --verbose shows all"
    return "\n".join([*lines, "", f"{_summary(found)}{rest}"])


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
