"""Checks the samples of your dataset, loader, source or pipeline.

Computes one epoch, or --samples of it, in workers. Lists samples that raise, end their worker, cannot be read, are empty,
have NaN or infinite elements, have another shape or dtype than 99 % of the others, have the content of another sample, or
take ten times the median time and 10 ms or more. The exit status is 1 if there is any. With --state, an interrupted check
continues where it has been.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dali_like.cli.check.examining import Examined
from dali_like.cli.check.problems import MOST_SHOWN, Findings, Problem
from dali_like.cli.check.state_file import StateFile
from dali_like.cli.check.subjects import Subject, subject_of
from dali_like.cli.factories import parse_argument
from dali_like.cli.reports import StatusLine, rate_text
from dali_like.engine.memory.limits import allowed_cpus
from dali_like.errors import ArgumentError

__all__ = ["add_arguments", "run"]

_MOST_WORKERS = 8
_INTERRUPTED = 130  # as shells say it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    parser.add_argument(
        "object",
        help="module:name or file.py:name of a dataset, loader, source or pipeline, or of a function that makes it",
    )
    parser.add_argument(
        "--with", dest="given", metavar="NAME=VALUE", action="append", default=[], help="argument of that function"
    )
    parser.add_argument(
        "--samples", type=_count, metavar="N", help="so many samples, evenly spread; without random access, the first ones"
    )
    parser.add_argument("--workers", type=int, default=min(allowed_cpus(), _MOST_WORKERS), help="default: %(default)s")
    parser.add_argument("--state", type=Path, metavar="FILE", help="keep what is known, and continue with it the next time")
    parser.add_argument("--json-file", type=Path, metavar="FILE", help="write the findings as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the findings as a page")


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    if options.workers < 0:
        raise ArgumentError(f"--workers must not be negative, but is {options.workers}")
    subject = subject_of(options.object, dict(map(parse_argument, options.given)), options.workers)
    indices = _indices(subject, options.samples)
    if options.state is not None and not subject.has_random_access:
        raise ArgumentError(
            f"--state needs samples with an index; {options.object} is iterated from its beginning each time"
        )
    findings = Findings()
    begin_s = time.monotonic()
    was_interrupted = False
    try:
        # Without a file, nothing is known and nothing is kept.
        with contextlib.nullcontext() if options.state is None else StateFile(options.state, options.object) as state:
            for sample in _samples(subject, indices, options.samples, state):
                findings.add(sample)
        if subject.has_random_access and (slow := findings.slow()):
            for sample in subject.examine(slow):
                findings.measured_again(sample)
    except KeyboardInterrupt:
        was_interrupted = True
    problems = findings.problems()
    expected = len(indices) if subject.has_random_access else options.samples
    total = f" of {expected:,}" if expected is not None and expected != findings.count else ""
    rate = rate_text(findings.count / max(time.monotonic() - begin_s, 1e-9))
    print(f"{options.object}: {findings.count:,}{total} samples, {rate}/s")
    print(_as_text(problems, subject))
    document = _document(options.object, findings.count, problems, subject)
    if options.json_file is not None:
        options.json_file.write_text(json.dumps(document, indent=2) + "\n")
    if options.html is not None:
        from dali_like.cli.check.page import page_of

        options.html.write_text(page_of(document), encoding="utf-8")
    if was_interrupted:
        hint = "the same command continues" if options.state is not None else "with --state FILE it could be continued"
        print(f"Interrupted; {hint}.")
        return _INTERRUPTED
    return int(bool(problems))


def _indices(subject: Subject, samples: int | None) -> Sequence[int]:
    """Return the indices to check; the indices of a part are evenly spread."""
    if not subject.has_random_access:
        return range(0)
    if subject.length is None:
        if samples is None:
            raise ArgumentError("the number of samples is unknown: pass --samples")
        return range(samples)
    if samples is None or samples >= subject.length:
        return range(subject.length)
    return [number * subject.length // samples for number in range(samples)]


def _samples(subject: Subject, indices: Sequence[int], most: int | None, state: StateFile | None) -> Iterator[Examined]:
    """Yield the samples that are known from the state, and then the others, while a bar shows the progress."""
    if subject.has_random_access:
        most = len(indices)
    begin_s = time.monotonic()
    count = 0
    with StatusLine("check") as progress:
        if state is not None:
            wanted = set(indices)
            known = {sample.index: sample for sample in state.read() if sample.index in wanted}
            yield from known.values()
            indices = [index for index in indices if index not in known]
            most = len(indices)
        for sample in subject.examine(indices):
            yield sample
            if state is not None:
                state.add(sample)
            count += 1
            if most and not subject.has_random_access and count >= most:
                return
            if not count % 16:
                progress.show(count / most if most else 0.0, count / (time.monotonic() - begin_s))


def _as_text(problems: Sequence[Problem], subject: Subject) -> str:
    if not problems:
        return "Nothing found."
    lines = []
    for problem in problems:
        lines.append(f"\n{problem.count:,} x {problem.text}")
        for index, words in problem.examples[:MOST_SHOWN]:
            origin = subject.origin(index)
            lines.append("    " + "  ".join(filter(None, [f"sample {index}", origin, words])))
        if problem.count > MOST_SHOWN:
            lines.append(f"    and {problem.count - MOST_SHOWN:,} more")
    return "\n".join(lines)


def _document(name: str, count: int, problems: Sequence[Problem], subject: Subject) -> dict[str, object]:
    """Return the findings as JSON types."""
    return {
        "name": name,
        "samples": count,
        "problems": [
            {
                "kind": problem.kind,
                "text": problem.text,
                "samples": problem.count,
                "examples": [
                    {"index": index, "origin": subject.origin(index), "words": words} for index, words in problem.examples
                ],
            }
            for problem in problems
        ],
    }


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, not {text}")
    return count
