"""What an iteration of all sources knows of its end."""

from __future__ import annotations

import pytest

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch
from dali_like.graph.steps import BEFORE, UNKNOWN, WITHIN, Iteration

#: Batches, by what is known of them.
KINDS = ("missing", "being made", "made", "last", "ended")


def batch(kind: str) -> Batch | None:
    if kind == "missing":
        return None
    made = Batch(BatchKey(0, 0, 0, 0, 4))
    if kind != "being made":
        made.outcome = StopIteration() if kind == "ended" else []
    made.is_last = kind == "last"
    return made


def step(*kinds: str, is_beyond: bool = False) -> Iteration:
    made = Iteration(0, 3, 3, len(kinds), is_beyond=is_beyond)
    made.batches = list(map(batch, kinds))
    return made


@pytest.mark.parametrize(
    ("kinds", "end"),
    [
        (("made", "made"), UNKNOWN),
        (("missing", "being made"), UNKNOWN),
        (("made", "last"), WITHIN),
        (("missing", "last"), WITHIN),
        (("made", "ended"), BEFORE),
        (("last", "ended"), BEFORE),
        (("ended", "last"), BEFORE),
    ],
)
def test_ends_where_the_first_source_does(kinds: tuple[str, ...], end: int) -> None:
    assert step(*kinds).end == end
    assert step(*kinds).may_end() == (end != UNKNOWN)


@pytest.mark.parametrize("kind", KINDS)
def test_that_is_beyond_an_end_is_so_whatever_its_batches_are(kind: str) -> None:
    beyond = step(kind, is_beyond=True)

    assert (beyond.end, beyond.may_end(), beyond.is_submitted) == (BEFORE, True, True)


@pytest.mark.parametrize("kind", KINDS)
def test_is_complete_when_all_outcomes_are_known(kind: str) -> None:
    is_known = kind not in ("missing", "being made")

    assert step("made", kind).complete == step(kind, "ended").complete == is_known


def test_that_is_emptied_is_beyond_the_end_and_asks_for_nothing() -> None:
    emptied = step("made", "last")
    assert not emptied.is_submitted

    emptied.empty()

    assert (emptied.batches, emptied.end, emptied.is_submitted) == ([None, None], BEFORE, True)
