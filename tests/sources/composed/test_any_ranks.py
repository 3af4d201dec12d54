"""The element at a position is the same on any ranks and workers, after any changes of them and any deaths.

`make parity-full` tries many times as many examples, in parts that run at the same time.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dali_like.data import ComposedDataset
from dali_like.testing.rank_runs import LoaderRank, Part, Reference, first_mismatch
from dali_like.testing.strategies import composed_datasets

_IS_FULL = os.environ.get("PARITY") == "full"
#: The examples are the same in each run, and others in each part.
in_parts = pytest.mark.parametrize("part", range(16 if _IS_FULL else 1))


@st.composite
def parts_of(draw: st.DrawFn, num_shards: int | None, most_steps: int = 4, most_workers: int = 3) -> list[Part]:
    """Two or three parts with different ranks and workers."""
    counts = [count for count in range(1, 7) if (num_shards or 60) % count == 0]
    parts = []
    for _ in range(draw(st.integers(2, 3))):
        num_steps = draw(st.integers(1, most_steps))
        parts.append(
            Part(
                num_steps,
                batch_size=draw(st.integers(1, 12)),
                num_ranks=draw(st.sampled_from(counts)),
                num_workers=draw(st.integers(1, most_workers)),
                kill_before=draw(st.none() | st.integers(0, num_steps - 1)),
            )
        )
    return parts


@in_parts
def test_simulated_ranks_deliver_the_elements_of_a_plain_iteration(part: int) -> None:
    @hypothesis.seed(part)
    @hypothesis.settings(max_examples=1250 if _IS_FULL else 200)
    @hypothesis.given(st.data())
    def check(data: Any) -> None:
        dataset: ComposedDataset = data.draw(composed_datasets(shards=(12, 4, 60), raising=True))
        parts = data.draw(parts_of(dataset.shards))
        epoch = data.draw(st.integers(0, 1))

        mismatch = first_mismatch(dataset, parts, Reference(dataset, epoch, keep_errors=True), epoch=epoch)

        assert mismatch is None

    check()


@in_parts
def test_loaders_deliver_the_elements_of_a_plain_iteration(part: int) -> None:
    @hypothesis.seed(part)
    @hypothesis.settings(max_examples=63 if _IS_FULL else 10)
    @hypothesis.given(st.data())
    def check(data: Any) -> None:
        dataset: ComposedDataset = data.draw(composed_datasets(shards=(60,)))
        parts = data.draw(parts_of(dataset.shards, most_steps=3, most_workers=2))
        start_method = data.draw(st.sampled_from(("fork", "fork", "fork", "thread", "spawn")))

        mismatch = first_mismatch(dataset, parts, Reference(dataset), partial(LoaderRank, start_method=start_method))

        assert mismatch is None

    check()
