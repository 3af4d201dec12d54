"""Where sources of batches and iterables do more with dali_like than with DALI 1.53, on purpose.

Each test shows DALI's behavior, too, so that it fails when a reason has gone. `programs.reference` knows the first three.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from dali_like.errors import LostItemError
from tests.parity.conftest import END, OURS, RESET, Library, play, values
from tests.parity.kinds import KINDS
from tests.parity.programs import UNSAID, Program, run

pytestmark = pytest.mark.peers

ITERATIONS = 2
ZERO, ONE = np.zeros(1), np.ones(1)


def outcomes(library: Library, program: Program) -> list[Any]:
    return [each.outcome for each in run(library, program)]


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("cycle", [UNSAID, None])
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.begins_anew and name != "array"])
def test_iterables_begin_anew_in_every_epoch(dali: Library, name: str, cycle: Any, way: str) -> None:
    """DALI walks through them once without cycle="raise": its second epoch is empty."""
    program = Program(name, way, cycle=cycle, iterations=ITERATIONS)

    theirs = outcomes(dali, program)

    assert outcomes(OURS, program) == outcomes(dali, dataclasses.replace(program, cycle="raise"))
    assert theirs[ITERATIONS:] == [END] * (len(theirs) - ITERATIONS)


@pytest.mark.parametrize("name", ["batches", "generator function", "array"])
def test_batches_from_workers_may_be_arrays(dali: Library, name: str) -> None:
    """DALI's workers die of them."""
    program = Program(name, "fork", data="array", epochs=1)

    assert outcomes(OURS, program) == outcomes(dali, dataclasses.replace(program, way="serial"))
    with pytest.raises(RuntimeError, match="interrupted"):
        run(dali, program)


def test_outputs_from_workers_may_be_tensor_lists(dali: Library) -> None:
    """DALI takes them where there is but one output, and that without num_outputs."""
    program = Program("batches", "fork", data="TensorList", num_outputs=2, epochs=1)

    assert outcomes(OURS, program) == outcomes(dali, dataclasses.replace(program, data="list"))
    with pytest.raises(Exception, match="Unsupported callback return type"):
        run(dali, program)


def log_of(
    library: Library, sources: list[Any], way: str, steps: tuple[int | str, ...], **options: Any
) -> list[tuple[Any, ...]]:
    """Results of sources of batches of one sample, in numbers."""

    def define() -> Any:
        return tuple(library.fn.external_source(source, parallel=way != "serial", **options) for source in sources)

    with library.pipeline(define, way, batch_size=1) as pipe:
        return play(pipe, steps, values, catch=(Exception,))


def batches(*numbers: int) -> list[Any]:
    return [[np.array(number)] for number in numbers]


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_iterables_of_different_lengths_begin_epochs_together(dali: Library, way: str) -> None:
    """DALI takes a batch too many from the longer one, loses it, and then goes on with the rest."""
    sources = [batches(1, 2), batches(11, 12, 13, 14)]
    epoch = [([1], [11]), ([2], [12]), END]

    def program(library: Library) -> list[Any]:
        return log_of(library, sources, way, (3, RESET, 3), cycle="raise")

    assert program(OURS) == epoch + epoch
    assert program(dali) != epoch + epoch


def two_batches(number: int) -> Any:
    if number == 2:
        raise StopIteration
    return [np.array(11 + number)]


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_iterators_lose_nothing_at_the_end_of_an_epoch(dali: Library, way: str) -> None:
    """DALI drops the batch that it has taken from one when another source has ended."""

    def program(library: Library) -> list[Any]:
        sources = [iter(batches(1, 2, 3, 4)), two_batches]
        return log_of(library, sources, way, (3, RESET, 3))

    assert program(OURS) == [([1], [11]), ([2], [12]), END, ([3], [11]), ([4], [12]), END]
    assert ([3], [11]) not in program(dali)


@pytest.mark.parametrize("cycle", ["raise", "quiet"])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_reset_in_the_middle_of_an_epoch_begins_iterables_anew(dali: Library, way: str, cycle: str) -> None:
    """DALI ignores it."""

    def program(library: Library) -> list[Any]:
        return log_of(library, [batches(1, 2, 3)], way, (2, RESET, 3), cycle=cycle)

    assert program(OURS) == [([1],), ([2],), ([1],), ([2],), ([3],)]
    assert program(dali)[2] == ([3],)


def fails_once(number: int) -> Any:
    if number == 1:
        raise ValueError("of the user's")
    return [np.array(number)]


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_sources_of_batches_go_on_after_an_error(dali: Library, way: str) -> None:
    """DALI makes the same batch for ever, or none any more, and drops earlier ones."""

    def program(library: Library) -> list[Any]:
        return log_of(library, [fails_once], way, (4,))

    assert program(OURS) == [([0],), "ValueError", ([2],), ([3],)]
    assert program(dali) == (["ValueError"] * 4 if way == "serial" else ["Exception", *["AssertionError"] * 3])


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("batch", [[7], [np.float32(7)]], ids=["number", "scalar of NumPy"])
def test_batches_may_be_of_numbers(dali: Library, batch: list[Any], way: str) -> None:
    """DALI takes scalars of NumPy in the main process, and no numbers."""

    def program(library: Library) -> list[Any]:
        return log_of(library, [lambda number: batch], way, (1,))

    assert program(OURS) == [([7],)]
    is_taken = way == "serial" and isinstance(batch[0], np.generic)
    assert (program(dali) == [([7],)]) == is_taken


@pytest.mark.parametrize(
    ("make", "way"),
    [
        pytest.param(lambda number: ([ZERO], [ONE], [ONE]), "serial", id="too many outputs"),
        pytest.param(lambda number: ([ZERO], [ONE], [ONE]), "fork", id="too many outputs, parallel"),
        pytest.param(lambda number: np.array([[ZERO], [ONE]]), "serial", id="one array"),
    ],
)
def test_the_number_of_outputs_must_be_right(dali: Library, make: Callable[[int], Any], way: str) -> None:
    """DALI drops outputs that nobody asked for, and takes the rows of an array for outputs: both hide mistakes."""

    def program(library: Library) -> list[Any]:
        def define() -> Any:
            return tuple(library.fn.external_source(make, 2, parallel=way != "serial"))

        with library.pipeline(define, way, batch_size=1) as pipe:
            return play(pipe, (1,), values, catch=(ValueError,))

    assert program(OURS) == ["OutputCountError"]
    assert program(dali) == [([[0.0]], [[1.0]])]


@pytest.mark.parametrize("depth", [1, 3])
def test_operators_are_one_batch_ahead_of_the_run(dali: Library, depth: int) -> None:
    """In DALI they are as far ahead as the sources are."""

    def asked_for(library: Library, *, operator: bool) -> int:
        asked: list[Any] = []

        def define() -> Any:
            node = library.fn.external_source(lambda info: (asked.append(info), ONE)[1], batch=False)
            return node + 1 if operator else node

        with library.pipeline(define, batch_size=1, prefetch_queue_depth=depth) as pipe:
            pipe.run()
            return len(asked)

    assert [asked_for(library, operator=False) for library in (OURS, dali)] == [depth, depth]
    assert [asked_for(library, operator=True) for library in (OURS, dali)] == [depth + 1, depth]


def test_a_batch_that_is_fed_is_enough_to_run(dali: Library) -> None:
    """DALI wants as many as it prefetches, and can do nothing any more when they are not there."""

    def program(library: Library) -> Any:
        with library.pipeline(lambda: library.fn.external_source(name="x"), prefetch_queue_depth=2) as pipe:
            seen = []
            for _ in range(2):
                pipe.feed_input("x", [ONE])
                seen.append(values(pipe.run()[0]))
            return seen

    assert program(OURS) == [[[1.0]], [[1.0]]]
    with pytest.raises(IndexError, match="Add more elements"):
        program(dali)


def test_a_node_may_be_in_several_pipelines(dali: Library) -> None:
    """In DALI they take turns with its source."""

    def program(library: Library, source: Any) -> list[Any]:
        node = library.fn.external_source(source)
        with (
            library.pipeline(lambda: node, prefetch_queue_depth=1) as one,
            library.pipeline(lambda: node, prefetch_queue_depth=1) as other,
        ):
            return [values(pipe.run()[0]) for _ in range(2) for pipe in (one, other)]

    assert program(OURS, batches(1, 2)) == [[1], [1], [2], [2]]
    assert program(dali, batches(1, 2, 3, 4)) == [[1], [2], [3], [4]]
    with pytest.raises(LostItemError, match="another pipeline has it"):
        program(OURS, iter(batches(1, 2, 3, 4)))
