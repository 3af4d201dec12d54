"""A pipeline that goes on from a checkpoint, of the real DALI and of dali_like: after every position, the same batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.parity.conftest import END, OURS, RESET, Library, play

BATCH_SIZE = 3
NUM_ITERATIONS = 4


def sample(info: Any) -> Any:
    if info.iteration >= NUM_ITERATIONS:
        raise StopIteration
    return np.int32([info.epoch_idx, info.iteration, info.idx_in_epoch, info.idx_in_batch])


def batch_by_info(info: Any) -> Any:
    if info.iteration >= NUM_ITERATIONS:
        raise StopIteration
    return [np.int32([info.epoch_idx, info.iteration, i]) for i in range(1 + info.iteration % BATCH_SIZE)]


def batch_by_number(iteration: int) -> Any:
    if iteration >= NUM_ITERATIONS:
        raise StopIteration
    return [np.int32([iteration, i]) for i in range(BATCH_SIZE)]


SOURCES: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "samples": (sample, {"batch": False}),
    "batches, told by a BatchInfo": (batch_by_info, {"batch": True, "batch_info": True}),
    "batches, told by a number": (batch_by_number, {"batch": True}),
}

#: Two epochs and a half, with a run behind each end.
STEPS = [NUM_ITERATIONS + 1, RESET, NUM_ITERATIONS + 1, RESET, 2]


def continuation(library: Library, names: tuple[str, ...], way: str, position: int) -> list[Any]:
    """The batches after so many steps, of a pipeline that begins with a checkpoint made there."""
    steps = [step for count in STEPS for step in ([1] * count if isinstance(count, int) else [count])]

    def define() -> Any:
        return tuple(
            library.fn.external_source(source=SOURCES[name][0], parallel=way != "serial", **SOURCES[name][1])
            for name in names
        )

    with library.pipeline(define, way, batch_size=BATCH_SIZE, enable_checkpointing=True) as pipe:
        before = play(pipe, steps[:position])
        checkpoint = pipe.checkpoint()
    with library.pipeline(define, way, batch_size=BATCH_SIZE, enable_checkpointing=True, checkpoint=checkpoint) as pipe:
        pipe.build()
        assert pipe.is_restored_from_checkpoint
        return before + play(pipe, steps[position:])


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("names", [(name,) for name in SOURCES] + [("samples", "batches, told by a number")], ids=", ".join)
def test_every_position_is_gone_on_from_alike(dali: Library, names: tuple[str, ...], way: str) -> None:
    num_steps = sum(step if isinstance(step, int) else 1 for step in STEPS)
    behind_the_end = {NUM_ITERATIONS + 1, 2 * NUM_ITERATIONS + 3}  # see below

    for position in sorted(set(range(0, num_steps + 1, 1 if way == "serial" else 2)) - behind_the_end):
        assert continuation(OURS, names, way, position) == continuation(dali, names, way, position), position


def test_behind_the_end_of_an_epoch_comes_the_next(dali: Library) -> None:
    """DALI does not know that it has seen the end: it ignores `reset`, and sees it again."""
    undisturbed = continuation(OURS, ("samples",), "serial", 0)

    assert continuation(OURS, ("samples",), "serial", NUM_ITERATIONS + 1) == undisturbed
    assert continuation(dali, ("samples",), "serial", NUM_ITERATIONS + 1)[NUM_ITERATIONS : NUM_ITERATIONS + 2] == [END, END]


def test_checkpoints_must_be_asked_for(dali: Library) -> None:
    for library in (OURS, dali):
        with library.source_pipeline(sample) as pipe, pytest.raises(RuntimeError):
            pipe.checkpoint()


def test_garbage_is_no_checkpoint(dali: Library) -> None:
    for library in (OURS, dali):
        with pytest.raises(RuntimeError), library.source_pipeline(sample, checkpoint=b"garbage") as pipe:
            pipe.run()
