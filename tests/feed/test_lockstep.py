"""Whether and where an iteration ends its epoch, by the state of its batches."""

from __future__ import annotations

import pytest

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch
from dali_like.feed.lockstep import END_UNKNOWN, ENDS_BEFORE, ENDS_WITHIN, Iteration

#: States of a batch.
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
        (("made", "made"), END_UNKNOWN),
        (("missing", "being made"), END_UNKNOWN),
        (("made", "last"), ENDS_WITHIN),
        (("missing", "last"), ENDS_WITHIN),
        (("made", "ended"), ENDS_BEFORE),
        (("last", "ended"), ENDS_BEFORE),
        (("ended", "last"), ENDS_BEFORE),
    ],
)
def test_ends_where_the_first_source_does(kinds: tuple[str, ...], end: int) -> None:
    assert step(*kinds).end == end


@pytest.mark.parametrize("kind", KINDS)
def test_beyond_a_known_end_batches_do_not_matter(kind: str) -> None:
    beyond = step(kind, is_beyond=True)

    assert (beyond.end, beyond.is_begun) == (ENDS_BEFORE, True)


@pytest.mark.parametrize("kind", KINDS)
def test_is_complete_when_all_outcomes_are_known(kind: str) -> None:
    is_known = kind not in ("missing", "being made")

    assert step("made", kind).complete == step(kind, "ended").complete == is_known


def test_marked_as_beyond_the_end_it_asks_for_no_batches() -> None:
    marked = step("made", "last")
    assert not marked.is_begun

    marked.mark_beyond()

    assert (marked.batches, marked.end, marked.is_begun) == ([None, None], ENDS_BEFORE, True)
