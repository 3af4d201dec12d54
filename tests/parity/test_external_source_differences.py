"""Where external sources that make samples differ from DALI's on purpose.

Each test shows DALI's behavior, too, so that it fails when a reason has gone.
"""

from __future__ import annotations

import functools
import os
import pickle
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from dali_like.errors import WorkerDiedError
from dali_like.types import SampleInfo
from tests.parity.conftest import END, OURS, RESET, Library, error_of, play, values
from tests.parity.samples import ONE, function, random_source

pytestmark = pytest.mark.peers


def test_a_batch_that_is_held_is_not_overwritten(dali: Library) -> None:
    """DALI 1.53 hands out the workers' slot itself where a batch is contiguous there, and fills it again: a known bug."""

    def hold(library: Library) -> list[int]:
        with library.source_pipeline(lambda info: np.int32([info.idx_in_epoch]), "fork", batch_size=1, workers=1) as pipe:
            held = [pipe.run()[0] for _ in range(6)]
            return [int(batch.as_array()[0, 0]) for batch in held]

    assert hold(OURS) == [0, 1, 2, 3, 4, 5]
    assert hold(dali) != [0, 1, 2, 3, 4, 5]


def fails_in_iteration_2(info: SampleInfo) -> Any:
    if info.iteration == 2 and info.idx_in_batch == 1:
        raise ValueError("of the user's")
    if info.iteration == 4:
        raise StopIteration
    return np.array(info.iteration)


@pytest.mark.parametrize(("way", "kind"), [("serial", "ValueError"), ("fork", "Exception")])
def test_the_batches_before_an_error_are_delivered(dali: Library, way: str, kind: str) -> None:
    """DALI raises an error when it comes across it, ahead of the loop, and drops the batches that are ready."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(fails_in_iteration_2, way, batch_size=2, prefetch_queue_depth=3) as pipe:
            return play(pipe, [3], values, catch=(Exception,))

    assert program(OURS) == [([0, 0],), ([1, 1],), "ValueError"]
    assert program(dali)[0] == kind


@pytest.mark.parametrize(("way", "for_ever"), [("serial", "ValueError"), ("fork", "AssertionError")])
def test_a_pipeline_goes_on_after_an_error(dali: Library, way: str, for_ever: str) -> None:
    """DALI asks a serial source for the same sample for ever, and has nothing left to wait for with workers."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(fails_in_iteration_2, way, batch_size=2, prefetch_queue_depth=1) as pipe:
            return play(pipe, (5, RESET, 1), values, catch=(Exception,))

    assert program(OURS) == [([0, 0],), ([1, 1],), "ValueError", ([3, 3],), END, ([0, 0],)]
    assert program(dali)[3:] == [for_ever] * 3


def test_exceptions_of_callbacks_in_workers_keep_their_type(dali: Library) -> None:
    """DALI raises a plain `Exception`, which no `except ValueError` catches, and keeps the user's as its cause."""

    def program(library: Library) -> None:
        with library.source_pipeline(fails_in_iteration_2, "fork") as pipe:
            play(pipe, [3])

    with pytest.raises(ValueError, match="of the user's") as raised:
        program(OURS)
    assert "in fails_in_iteration_2" in str(raised.value.__cause__)
    with pytest.raises(Exception, match="of the user's") as wrapped:
        program(dali)
    assert type(wrapped.value) is Exception


class TwoArgumentsError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


class UnpicklableError(Exception):
    def __reduce__(self) -> Any:
        raise pickle.PicklingError("no")


@pytest.mark.parametrize(
    ("error", "theirs"),
    [(TwoArgumentsError("this", "that"), TypeError), (UnpicklableError("that"), RuntimeError)],
    ids=["pickled, but not loaded", "not pickled"],
)
def test_exceptions_that_pickle_cannot_carry_keep_their_type(
    dali: Library, error: Exception, theirs: type[Exception]
) -> None:
    """In DALI another exception takes their place; where they cannot be pickled at all, all workers end."""

    def source(info: SampleInfo) -> Any:
        raise error

    def program(library: Library) -> None:
        with library.source_pipeline(source, "fork") as pipe:
            pipe.run()

    with pytest.raises(type(error), match="that"):
        program(OURS)
    assert type(error_of(program, dali)) is theirs


def test_death_of_a_worker_names_worker_signal_and_sample(dali: Library) -> None:
    """DALI says "Worker data receiving interrupted", for every cause."""

    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 6:
            os._exit(7)
        return ONE

    def program(library: Library) -> None:
        with library.source_pipeline(source, "fork") as pipe:
            play(pipe, [3])

    with pytest.raises(WorkerDiedError, match=r"exit code 7.*idx_in_epoch 6") as raised:
        program(OURS)
    assert raised.value.exitcode == 7
    theirs = error_of(program, dali)
    assert isinstance(theirs, RuntimeError)
    assert not re.search("7|6", str(theirs))


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize(
    "sample", [(ONE, ONE + 1, ONE + 2), np.array([[0.0], [1.0]], np.float32)], ids=["too many outputs", "one array"]
)
def test_the_number_of_outputs_must_be_right(dali: Library, sample: Any, way: str) -> None:
    """DALI drops outputs that nobody asked for, and takes the rows of an array for outputs: both hide mistakes."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: sample, way, num_outputs=2, batch_size=1) as pipe:
            return play(pipe, [1], values)

    assert program(dali) == [([[0.0]], [[1.0]])]
    with pytest.raises(ValueError, match=r"num_outputs=2|instead of 2"):
        program(OURS)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_big_endian_numbers_keep_their_values(dali: Library, way: str) -> None:
    """DALI takes their bytes for little-endian ones."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: np.array([1, 2], ">i4"), way, batch_size=1) as pipe:
            return play(pipe, [1], values)

    assert program(OURS) == [([[1, 2]],)]
    assert program(dali) == [([[1 << 24, 2 << 24]],)]


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_complex_numbers_are_refused(dali: Library, way: str) -> None:
    """DALI takes them for half as many floats as there are."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: np.array([1 + 2j, 3 + 4j], np.complex64), way, batch_size=1) as pipe:
            return play(pipe, [1], values)

    with pytest.raises(TypeError, match="complex64"):
        program(OURS)
    assert program(dali) == [([[1.0, 2.0]],)]


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_reset_in_the_middle_of_an_epoch_begins_the_next(dali: Library, way: str) -> None:
    """DALI ignores it without a word, although users ask for it."""

    def program(library: Library) -> list[Any]:
        source = random_source(None, False, iterations=3)

        def epoch_and_iteration(info: SampleInfo) -> Any:
            source(info)
            return np.int32([info.epoch_idx, info.iteration])

        with library.source_pipeline(epoch_and_iteration, way, batch_size=1) as pipe:
            return play(pipe, (2, RESET, 4), values)

    first, second = ([[0, 0]],), ([[0, 1]],)
    assert program(OURS) == [first, second, ([[1, 0]],), ([[1, 1]],), ([[1, 2]],), END]
    assert program(dali) == [first, second, ([[0, 2]],), END, END, END]


def with_an_option(info: SampleInfo, scale: int = 2) -> Any:
    return np.int32([info.idx_in_epoch * scale])


def times(scale: int, info: SampleInfo) -> Any:
    return np.int32([info.idx_in_epoch * scale])


def with_any_arguments(*args: Any) -> Any:
    return np.int32([args[0].idx_in_epoch * 2])


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize(
    "source",
    [
        functools.partial(times, 2),
        functools.lru_cache(functools.partial(times, 2)),
        functools.partial(with_an_option, scale=2),
    ],
    ids=["partial", "lru_cache", "partial with a keyword"],
)
def test_partial_functions_are_sources(dali: Library, source: Any, way: str) -> None:
    """DALI counts the parameters of functools.partial itself."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(source, way, batch_size=3) as pipe:
            return play(pipe, [1], values)

    assert program(OURS) == [([[0], [2], [4]],)]
    assert type(error_of(program, dali)) in (TypeError, RecursionError)


@pytest.mark.parametrize(
    "source",
    [with_an_option, with_any_arguments, lambda info, *, scale=2: None, lambda info, **options: None, lambda *, info: None],
    ids=["argument with a default", "any arguments", "keyword with a default", "any keywords", "keyword"],
)
def test_further_parameters_are_refused(dali: Library, source: Any) -> None:
    for library in (OURS, dali):
        error = error_of(lambda library: library.source_pipeline(source).__enter__(), library)
        assert isinstance(error, TypeError)


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("sample", [3, 2.5, True], ids=repr)
def test_numbers_are_scalars(dali: Library, sample: Any, way: str) -> None:
    """DALI refuses Python's numbers."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: sample, way, batch_size=1) as pipe:
            return play(pipe, [1], values)

    assert program(OURS) == [([sample],)]
    assert type(error_of(program, dali)) is (RuntimeError if way == "serial" else TypeError)


def test_numpys_scalars_come_from_workers_as_well(dali: Library) -> None:
    """DALI takes them in the main process only."""

    def program(library: Library, way: str) -> list[Any]:
        with library.source_pipeline(lambda info: np.float32(info.idx_in_epoch), way) as pipe:
            return play(pipe, [2])

    assert program(OURS, "fork") == program(dali, "serial")
    assert type(error_of(lambda library: program(library, "fork"), dali)) is TypeError


def test_samples_with_strides_may_come_from_the_main_process_as_well(dali: Library) -> None:
    """DALI takes them from workers only."""

    def program(library: Library, way: str) -> list[Any]:
        with library.source_pipeline(lambda info: np.arange(12).reshape(3, 4)[:, ::2], way) as pipe:
            return play(pipe, [2])

    assert program(OURS, "serial") == program(dali, "fork")
    assert type(error_of(lambda library: program(library, "serial"), dali)) is RuntimeError


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        pytest.param({"num_outputs": 0}, NotImplementedError, id="no outputs of a source"),
        pytest.param({"source": None}, AttributeError, id="no source"),
        pytest.param({"source": lambda info: np.array("abc")}, AssertionError, id="text"),
        pytest.param({"source": lambda info: np.zeros(1, [("x", "i4")])}, ValueError, id="records"),
    ],
)
def test_mistakes_that_dali_stumbles_over_are_explained(
    dali: Library, options: dict[str, Any], theirs: type[Exception]
) -> None:
    """DALI's errors are accidents here, and say so: "'NoneType' object has no attribute 'kind'", "stoi"."""

    def program(library: Library) -> None:
        with library.source_pipeline(**{"source": function, "way": "fork", **options}) as pipe:
            pipe.run()

    ours = error_of(program, OURS)
    assert type(ours).__module__ == "dali_like.errors"
    assert re.search("num_outputs must be|only valid when using ``source``|dtype", str(ours))
    assert type(error_of(program, dali)) is theirs
