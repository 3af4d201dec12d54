"""Measures your pipeline: its speed, its upper limit, and the gain of each added worker.

An empty loop takes batches, with one worker, with several, and with one more than you have. The limit is the rate at which
the workers would do nothing but call your callbacks and the operators behind them, by the same measurement. Each line is
measured in a process of its own.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from dali_like.cli.factories import Factory, add_factory_arguments, factory_of, seconds
from dali_like.cli.machine_load import busy_cpus, load_text
from dali_like.cli.reports import StatusLine, rate_text, size_text, table
from dali_like.cli.trials import Outcome, ask, try_pipeline
from dali_like.engine.memory.limits import allowed_cpus
from dali_like.errors import TrialError
from dali_like.pipeline.pipeline import Pipeline

__all__ = ["add_arguments", "run"]

_USUAL_DEPTH = 2


#: From this share of the limit on, the work of callbacks and operators sets the rate.
_CLOSE = 0.9

#: Columns of the limit; see `dali_like.cli.stage_loads`.
_LIMIT = ("limit", "of the limit", "set by")


class _ResultLine(NamedTuple):
    """Result for one number of workers."""

    workers: int
    outcome: Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    add_factory_arguments(parser)
    parser.add_argument(
        "--workers", type=_numbers, metavar="N,N,...", help="numbers of workers to try; default: 1, 2, 4, ... CPUs"
    )
    parser.add_argument("--seconds", type=seconds, default=3.0, help="measuring time of each line; default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    factory = factory_of(options)
    try:
        told = ask(factory.make, facts_of)
        if told["has_parallel"]:
            return _measure_workers(
                factory, options.workers or _worker_counts(told["workers"]), told["workers"], options.seconds
            )
        return _measure_alone(factory, options.seconds)
    except TrialError as error:
        print(f"{error.traceback}{factory.line()} cannot be measured: {error}", file=sys.stderr)
        return 1


def facts_of(pipe: Pipeline) -> dict[str, Any]:
    """Return the facts about a pipeline that measurements need."""
    graph = pipe._make_graph()
    return {
        "has_parallel": any(node.external.parallel for node in graph.sources),
        "has_threads": bool({"threads", "gpu"} & {*pipe.operator_places.values()}),
        "workers": _number(pipe.py_num_workers, allowed_cpus()),
        "threads": _number(pipe.num_threads, allowed_cpus()),
        "depth": _number(pipe.cpu_queue_size, _USUAL_DEPTH),
        "start_method": pipe.py_start_method,
    }


def _number(given: Any, usual: int) -> int:
    """Return an argument of the pipeline, or a default if it is not a number."""
    return given if isinstance(given, int) else usual


def _measure_workers(factory: Factory, counts: Sequence[int], given: int, seconds: float) -> int:
    lines: list[_ResultLine] = []
    busy = busy_cpus()
    for workers in counts:
        with StatusLine(f"{workers} workers") as progress:
            outcome = try_pipeline(functools.partial(factory.make, py_num_workers=workers), seconds, progress.show)
        lines.append(_ResultLine(workers, outcome))
    head = ("workers", "samples/s", "each added brings", *_LIMIT, "first batch", "memory")
    _say_if_disturbed(busy, [line.outcome for line in lines])
    print(table(head, [_cells(line, before) for line, before in zip(lines, [None, *lines[:-1]], strict=True)]))
    print(f"\n{_advice(lines, given)}")
    if about_torch := _beside_torch(max(lines, key=lambda line: line.outcome.samples_per_s).outcome):
        print(about_torch)
    return 0


def _say_if_disturbed(busy: float | None, outcomes: Sequence[Outcome]) -> None:
    """Print whether other programs have disturbed the measurements, before their table."""
    if disturbed := load_text(busy, (outcome.lost_share for outcome in outcomes)):
        print(f"{disturbed}\n")


def _beside_torch(outcome: Outcome) -> str:
    """Say why PyTorch's loader would be about as fast; "" if it would not be."""
    if outcome.share_of_limit < _CLOSE:
        return ""
    return (
        "PyTorch's loader, with as many workers and the same work in its dataset, would be about as fast: "
        f"{outcome.share_of_limit:.0%} of the rate at which the workers do nothing else is reached."
    )


def _cells(line: _ResultLine, before: _ResultLine | None) -> tuple[str, ...]:
    outcome, gain = line.outcome, ""
    if before is not None:  # the relative gain of each added worker
        more = outcome.samples_per_s / before.outcome.samples_per_s - 1
        gain = f"{more / (line.workers - before.workers):+.0%}"
    return (
        str(line.workers),
        rate_text(outcome.samples_per_s),
        gain,
        *_limit_cells(outcome),
        f"{outcome.first_batch_s:.2f} s",
        size_text(outcome.memory_bytes),
    )


def _limit_cells(outcome: Outcome) -> tuple[str, str, str]:
    if not outcome.share_of_limit:
        return "", "", ""
    return rate_text(outcome.limit_per_s), f"{outcome.share_of_limit:.0%}", outcome.stage


def _advice(lines: list[_ResultLine], given: int) -> str:
    best = max(lines, key=lambda line: line.outcome.samples_per_s)
    now = next((line for line in lines if line.workers == given), None)
    cpus = allowed_cpus()
    found = f"The fastest is py_num_workers={best.workers}, on {cpus} CPUs" + (
        "; try more." if best is lines[-1] and len(lines) > 1 else "."
    )
    if now is None or now is best:
        return found
    return f"{found} You have {given}, at {now.outcome.samples_per_s / best.outcome.samples_per_s:.0%} of that rate."


def _measure_alone(factory: Factory, seconds: float) -> int:
    """Measure a pipeline without workers."""
    busy = busy_cpus()
    with StatusLine("no workers") as progress:
        outcome = try_pipeline(factory.make, seconds, progress.show)
    _say_if_disturbed(busy, [outcome])
    head = ("samples/s", *_LIMIT, "first batch", "memory")
    cells = (rate_text(outcome.samples_per_s), *_limit_cells(outcome), f"{outcome.first_batch_s:.2f} s")
    print(table(head, [(*cells, size_text(outcome.memory_bytes))]))
    print(
        "\nNo source is parallel, so there are no workers. With parallel=True and batch=False, each would add to the rate."
    )
    return 0


def _worker_counts(given: int) -> list[int]:
    cpus = allowed_cpus()
    powers = [1 << i for i in range(cpus.bit_length())]
    return sorted({*powers, cpus, given, given + 1})


def _numbers(text: str) -> list[int]:
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers of workers such as 1,2,4, not {text!r}") from None
    if numbers[0] < 1:
        raise argparse.ArgumentTypeError("at least one worker is needed")
    return numbers
