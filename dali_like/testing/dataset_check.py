"""The check of a composed dataset, for tests of users: it resumes exactly, on any ranks and workers."""

from __future__ import annotations

import functools
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dali_like.common.articles import kind_of
from dali_like.common.checks import flag, not_negative, positive
from dali_like.common.pickling_by_value import dumps_by_value
from dali_like.common.suggestions import suggest_arguments
from dali_like.errors import ArgumentTypeError, DatasetCheckError
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.positions import check_ranks
from dali_like.testing.differences import first_difference
from dali_like.testing.rank_runs import LoaderRank, MakeRank, Mismatch, Part, Reference, SimulatedRank, first_mismatch

__all__ = ["check_dataset"]

#: How many smaller cases are tried for a failing one, in simulations and with processes.
_MOST_TRIALS, _MOST_TRIALS_OF_PROCESSES = 300, 15

_CAUSES = (
    "An element must depend only on its position. Usual causes: random numbers that do not come from map(f, rng=True), a "
    "function that counts its calls or changes its input, a source that changes"
)


@dataclass(frozen=True)
class _Case:
    """A run that is compared with the plain iteration.

    Attributes:
        start_method: of the loaders' workers; None: ranks and workers are simulated in this process.
    """

    parts: tuple[Part, ...]
    start_method: str | None = None


@suggest_arguments
def check_dataset(
    dataset: ComposedDataset,
    *,
    num_steps: int = 8,
    batch_size: int = 2,
    num_workers: Sequence[int] = (0, 2),
    num_ranks: Sequence[int] | None = None,
    start_methods: Sequence[str] = ("fork",),
    kill_workers: bool = True,
    seed: int = 0,
) -> None:
    """Check that a composed dataset delivers the same elements on any ranks and workers, and after any resume.

    The dataset is iterated once plainly. Then it is saved and resumed at every step, on other ranks and workers, with states
    that pass through JSON; workers are killed. Each element is compared with that of the plain iteration, bit for bit: items
    of mappings, lists and tuples; dtype, shape and bytes of arrays; other objects by ``==``. Random access is checked by
    asking again, in another order, and from a pickled copy.

    Most runs are simulated in this process. Some have loaders with worker processes.

    Args:
        dataset: of any stages; endless ones, too.
        num_steps: the number of batches of each rank in a run.
        batch_size: of each rank.
        num_workers: numbers of workers that take turns.
        num_ranks: numbers of ranks that take turns; None: 1, 2 and 3, if they divide the number of logical shards.
        start_methods: of worker processes: "fork", "spawn", "thread"; empty: only simulated workers.
        kill_workers: whether to kill a worker in each run that has workers.
        seed: for the order of positions, and for the choice of simulated workers.

    Raises:
        DatasetCheckError: an element differs. The error has the smallest failing run and the code that repeats it.
        ArgumentError: an argument is out of its range, or a number of ranks does not divide the number of logical shards.
        ArgumentTypeError: the dataset is not a composed dataset.

    Source: grain's ``assert_equal_output_after_checkpoint``, https://github.com/google/grain

    >>> from dali_like.data import ComposedDataset
    >>> check_dataset(ComposedDataset.source(range(30)).map(lambda x: x * x).shuffle(), start_methods=())
    """
    if not isinstance(dataset, ComposedDataset):
        raise ArgumentTypeError(f"a composed dataset is needed, but got {kind_of(dataset)}: pass ComposedDataset.source(it)")
    ranks = _ranks(dataset, num_ranks)
    workers = [not_negative("num_workers", count) for count in num_workers] or [0]
    not_negative("seed", seed)
    reference = Reference(dataset)
    if dataset.shards is None:
        count = positive("num_steps", num_steps) * positive("batch_size", batch_size) * max(ranks)
        _check_random_access(dataset, reference.at(range(count)), seed)
    cases = [
        *_simulated(num_steps, batch_size, ranks, workers),
        *_with_loaders(num_steps, batch_size, ranks, workers, start_methods),
    ]
    for case in cases:
        if flag("kill_workers", kill_workers):
            # A worker dies in the middle of each part.
            parts = (
                replace(part, kill_before=part.num_steps // 2) if part.num_workers and part.num_steps else part
                for part in case.parts
            )
            case = replace(case, parts=tuple(parts))  # noqa: PLW2901
        mismatch = _mismatch(dataset, case, reference, seed)
        if mismatch is not None:
            case, mismatch = _shrink(case, mismatch, lambda smaller: _mismatch(dataset, smaller, reference, seed))  # noqa: PLW2901
            raise DatasetCheckError(_report(case, mismatch, seed))


def _ranks(dataset: ComposedDataset, num_ranks: Sequence[int] | None) -> list[int]:
    if num_ranks is None:
        return [count for count in (1, 2, 3) if (dataset.shards or count) % count == 0]
    for count in num_ranks:
        positive("num_ranks", count)
        if dataset.shards is not None:
            check_ranks(dataset.shards, count)
    return list(num_ranks) or [1]


def _check_random_access(dataset: ComposedDataset, reference: dict[int, Any], seed: int) -> None:
    """Ask a pickled copy for all positions, again, and in another order."""
    copy: ComposedDataset = pickle.loads(dumps_by_value(dataset))
    positions = list(reference)
    for way, order in (
        ("of a pickled copy", positions),
        ("asked for again", positions),
        ("asked for in another order", random.Random(seed).sample(positions, len(positions))),
    ):
        for position in order:
            try:
                element = copy[position]
            except Exception as error:  # a user's function may raise anything
                element = error
            difference = first_difference(reference[position], element)
            if difference is not None:
                raise DatasetCheckError(
                    f"position {position}, {way}: {difference}.\nThe expected element is that of a plain iteration. "
                    f"{_CAUSES}"
                )


def _simulated(num_steps: int, batch_size: int, ranks: list[int], workers: list[int]) -> Iterator[_Case]:
    """Yield a resume at every step. All numbers of ranks take turns before and after it."""
    for step in range(num_steps + 1):
        for number, count in enumerate(ranks):
            before = Part(step, batch_size, count, _turn(workers, step + number))
            after = Part(num_steps - step, batch_size, _turn(ranks, number + step), _turn(workers, step + number + 1))
            yield _Case((before, after))


def _with_loaders(
    num_steps: int, batch_size: int, ranks: list[int], workers: list[int], start_methods: Sequence[str]
) -> Iterator[_Case]:
    """Yield runs in which all numbers of ranks take turns, for each number of workers and start method.

    Without processes, a resume is quick: there is one at every step.
    """
    if not start_methods:
        return
    if 0 in workers:
        counts = [_turn(ranks, step) for step in range(num_steps)]
        yield _Case(tuple(Part(1, batch_size, count) for count in counts), start_methods[0])
    each = -(-num_steps // len(ranks))
    for method in start_methods:
        for count in filter(None, workers):
            yield _Case(tuple(Part(each, batch_size, number, count) for number in ranks), method)


def _mismatch(dataset: ComposedDataset, case: _Case, reference: Reference, seed: int) -> Mismatch | None:
    make_rank: MakeRank = functools.partial(SimulatedRank, seed=seed)
    if case.start_method is not None:
        make_rank = functools.partial(LoaderRank, start_method=case.start_method)
    return first_mismatch(dataset, case.parts, reference, make_rank)


def _shrink(case: _Case, mismatch: Mismatch, run: Callable[[_Case], Mismatch | None]) -> tuple[_Case, Mismatch]:
    """Return the smallest failing case that is found by making one thing smaller at a time, and its mismatch."""
    left = {True: _MOST_TRIALS, False: _MOST_TRIALS_OF_PROCESSES}
    is_smallest = False
    while not is_smallest:
        is_smallest = True
        for smaller in _smaller(case):
            is_simulated = smaller.start_method is None
            left[is_simulated] -= 1
            found = run(smaller) if left[is_simulated] >= 0 else None
            if found is not None:
                case, mismatch, is_smallest = smaller, found, False
                break
    return case, mismatch


def _smaller(case: _Case) -> Iterator[_Case]:
    """Yield cases that are a bit smaller, the smallest first."""
    if case.start_method is not None:
        yield replace(case, start_method=None)
    parts = case.parts
    for number, part in enumerate(parts):
        before, after = parts[:number], parts[number + 1 :]
        if len(parts) > 1:
            yield replace(case, parts=(*before, *after))
        for one in _smaller_parts(part):
            yield replace(case, parts=(*before, one, *after))


def _smaller_parts(part: Part) -> Iterator[Part]:
    if part.kill_before is not None:
        yield replace(part, kill_before=None)
    for steps in _fewer(part.num_steps, 0):
        kill = None if part.kill_before is None or not steps else min(part.kill_before, steps - 1)
        yield replace(part, num_steps=steps, kill_before=kill)
    if part.num_ranks > 1:
        yield replace(part, num_ranks=1)
    for workers in _fewer(part.num_workers, 0):
        yield replace(part, num_workers=workers, kill_before=part.kill_before if workers else None)
    for size in _fewer(part.batch_size, 1):
        yield replace(part, batch_size=size)


def _fewer(count: int, fewest: int) -> list[int]:
    return sorted({fewest, count // 2, count - 1} & set(range(fewest, count)))


def _report(case: _Case, mismatch: Mismatch, seed: int) -> str:
    """Return the message: position, expected and got; the case; the code to repeat it."""
    kind = "SimulatedRank" if case.start_method is None else "LoaderRank"
    option = f"seed={seed}" if case.start_method is None else f"start_method={case.start_method!r}"
    where = "simulated" if case.start_method is None else f"of loaders ({case.start_method!r})"
    parts = "".join(f"    {part},\n" for part in case.parts)
    of_run = "" if len(case.parts) == 1 else f" of part {mismatch.part + 1} of {len(case.parts)}"
    return (
        f"position {mismatch.position}: {mismatch.text}.\n"
        f"Rank {mismatch.rank} delivered it in step {mismatch.step}{of_run}, with ranks and workers {where}. The expected "
        f"element is that of a plain iteration. {_CAUSES}.\n"
        "The smallest failing run:\n\n"
        "from functools import partial\n"
        f"from dali_like.testing.rank_runs import {kind}, Part, Reference, first_mismatch\n\n"
        f"parts = [\n{parts}]\n"
        f"print(first_mismatch(dataset, parts, Reference(dataset), partial({kind}, {option})))"
    )


def _turn(values: list[int], number: int) -> int:
    return values[number % len(values)]
