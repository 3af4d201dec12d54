"""Damaged states are refused by name, or continue somewhere: they raise nothing else, and skip no billions of elements."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from dali_like import Pipeline, fn
from dali_like.data import ComposedDataset, DataLoader
from dali_like.errors import CheckpointError, EmptyFilterError
from dali_like.testing.strategies import composed_datasets

_IS_FULL = os.environ.get("PARITY") == "full"
EXAMPLES = 10_000 if _IS_FULL else 300
#: Values that replace values of a state. Some are so large that counting up to them takes hours.
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.sampled_from([2**31, 2**53, 2**63, 2**70, 10**30]),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-1, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values of a state."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(draw: st.DrawFn | Any, state: Any) -> Any:
    """A state in JSON with one or two changed, missing or doubled values."""
    state = json.loads(json.dumps(state))
    for _ in range(draw(st.integers(1, 2))):
        ways = list(places(state))
        if not ways:
            break
        inner = [way for way in ways if len(way) > 2] or ways
        *before, last = draw(st.sampled_from(ways) | st.sampled_from(inner))
        part = state
        for key in before:
            part = part[key]
        act = draw(st.sampled_from(["change", "change", "change", "delete", "double"]))
        if act == "change":
            part[last] = draw(JUNK)
        elif act == "delete":
            del part[last]
        elif isinstance(part, list):
            part.insert(last, part[last])
    return state


def continued(begin: Callable[[Any], Iterator[Any]], state: Any) -> None:
    """Continue from a state for some elements, or refuse it; nothing else."""
    with contextlib.suppress(CheckpointError):
        iterator = begin(state)
        for _ in range(4):
            next(iterator, None)


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(choices=st.data())
def test_states_of_composed_datasets(choices: st.DataObject) -> None:
    dataset: ComposedDataset = choices.draw(composed_datasets(shards=(4, 12), max_stages=5))
    iterator = iter(dataset)
    try:
        for _ in range(choices.draw(st.integers(0, 6))):
            next(iterator, None)
    except EmptyFilterError:
        reject()
    state = mutated(choices.draw, iterator.state_dict())

    def begin(state: Any) -> Iterator[Any]:
        resumed = iter(dataset)
        resumed.load_state_dict(state)
        return resumed

    continued(begin, state)


class Numbers:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        return index


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "map-style": lambda: DataLoader(Numbers(), batch_size=4, shuffle=True),
    "iterable": lambda: DataLoader(range(40), batch_size=4),
    "random access": lambda: DataLoader(ComposedDataset.source(np.arange(40)).shuffle(), batch_size=4),
    "shards": lambda: DataLoader(ComposedDataset.source(np.arange(400)).filter(bool).with_options(shards=4), batch_size=4),
    "endless shards": lambda: DataLoader(
        ComposedDataset.source(np.arange(400)).filter(bool).repeat().with_options(shards=4), batch_size=4
    ),
}


# NumPy 1 takes the lowest bits of a number that is too large for a generator's state.
@pytest.mark.filterwarnings("ignore:NumPy will stop allowing conversion of out-of-bound:DeprecationWarning")
@pytest.mark.parametrize("name", LOADERS)
def test_states_of_loaders(name: str) -> None:
    @settings(max_examples=EXAMPLES // len(LOADERS), deadline=None)
    @given(choices=st.data())
    def check(choices: st.DataObject) -> None:
        loader = LOADERS[name]()
        iterator = iter(loader)
        for _ in range(choices.draw(st.integers(0, 3))):
            next(iterator)
        state = mutated(choices.draw, loader.state_dict())

        def begin(state: Any) -> Iterator[Any]:
            resumed = LOADERS[name]()
            resumed.load_state_dict(state)
            return iter(resumed)

        continued(begin, state)

    check()


SOURCES: dict[str, Callable[[], Any]] = {
    "callable": lambda: fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False),
    "iterable": lambda: fn.external_source(range(40), batch=False, cycle=True),
    "shards": lambda: fn.external_source(
        ComposedDataset.source(np.arange(400)).filter(bool).with_options(shards=4), batch=False
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_checkpoints_of_pipelines(name: str) -> None:
    def pipeline(**options: Any) -> Pipeline:
        pipe = Pipeline(4, 1, None, enable_checkpointing=True, **options)
        with pipe:
            pipe.set_outputs(SOURCES[name]())
        return pipe

    @settings(max_examples=EXAMPLES // (3 * len(SOURCES)), deadline=None)
    @given(choices=st.data())
    def check(choices: st.DataObject) -> None:
        with closing(pipeline()) as pipe:
            for _ in range(choices.draw(st.integers(0, 2))):
                pipe.run()
            checkpoint = json.dumps(mutated(choices.draw, json.loads(pipe.checkpoint())))

        def begin(checkpoint: Any) -> Iterator[Any]:
            with closing(pipeline(checkpoint=checkpoint)) as resumed:
                for _ in range(2):
                    with contextlib.suppress(StopIteration):
                        yield resumed.run()

        continued(begin, checkpoint)

    check()


def test_a_position_far_behind_the_states_of_shards_is_refused() -> None:
    dataset = ComposedDataset.source([1, 2, 3]).filter(bool).repeat().with_options(shards=1)
    iterator = iter(dataset)
    next(iterator)

    with pytest.raises(
        CheckpointError, match="position is 2147483648, at which logical shard 0 should be at output 2147483648"
    ):
        iterator.load_state_dict({**iterator.state_dict(), "position": 2**31})


def test_the_state_of_a_shard_is_named() -> None:
    dataset = ComposedDataset.source([1, 2, 3]).flat_map(lambda n: [n] * n).repeat().with_options(shards=1)
    iterator = iter(dataset)
    next(iterator)
    state = iterator.state_dict()
    state["states"]["0"][1][1] = ["a"]
    resumed = iter(dataset)
    resumed.load_state_dict(state)

    with pytest.raises(CheckpointError, match=r'Invalid state_dict: states: logical shard 0: this is not a state .*\["a"\]'):
        next(resumed)
