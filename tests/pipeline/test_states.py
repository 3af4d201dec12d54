"""States of pipelines and iterators: loaded at any time, by other ranks and workers, with the states of sources."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Self

import numpy as np
import pytest

from dali_like import Pipeline, fn, get_worker_info, types
from dali_like.common.user_objects import is_stateful
from dali_like.errors import CheckpointError, LostItemError, PipelineStateError
from dali_like.plugin.base_iterator import BaseIterator
from dali_like.tensors import TensorListCPU
from dali_like.types import SampleInfo
from tests.conftest import wait_until

END = "end"


def through_json(state: Any) -> Any:
    """Return a state after a round trip through JSON."""
    return json.loads(json.dumps(state))


def samples(info: SampleInfo) -> Any:
    if info.idx_in_epoch >= 40:
        raise StopIteration
    return np.array([info.epoch_idx, info.idx_in_epoch, info.rng().integers(1 << 30)])


def pipeline_of(source: Any, way: str = "serial", batch_size: int = 4, **options: Any) -> Pipeline:
    """Return a pipeline of one source, with a random operator behind it."""
    method = {} if way == "serial" else {"py_start_method": way, "py_num_workers": 2}
    names = ("batch", "size", "shard_id", "num_shards", "shard_rest", "sharded")
    source_options = {name: options.pop(name) for name in names if name in options}
    pipe = Pipeline(batch_size, num_threads=2, **method, **{"seed": 1, "enable_checkpointing": True, **options})
    node = fn.external_source(source, parallel=way != "serial", **source_options)
    pipe.set_outputs(node, fn.random.uniform(node))
    return pipe


def take(pipe: Any, count: int) -> list[Any]:
    """So many steps; the end of an epoch is one, and reset() comes after it."""
    log: list[Any] = []
    for _ in range(count):
        try:
            outputs = next(pipe)
        except StopIteration:
            log.append(END)
            pipe.reset()
        else:
            log.append([output.as_array().tolist() for output in outputs])
    return log


def states_and_rest(pipe: Pipeline, steps: int, behind: int = 6) -> list[tuple[Any, list[Any]]]:
    """Take steps; return the state before each, with the following steps."""
    states, log = [], []
    for _ in range(steps):
        states.append(through_json(pipe.state_dict()))
        log += take(pipe, 1)
    log += take(pipe, behind)
    return [(state, log[i : i + behind]) for i, state in enumerate(states)]


# Pipelines


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_a_pipeline_goes_on_from_any_state(way: str) -> None:
    with closing(pipeline_of(samples, batch=False)) as pipe:
        expected = states_and_rest(pipe, 13)

    with closing(pipeline_of(samples, way, batch=False)) as pipe:
        for state, rest in reversed(expected):
            pipe.load_state_dict(state)
            assert take(pipe, 6) == rest


def test_before_it_is_built_it_takes_the_seed_of_the_state() -> None:
    with closing(pipeline_of(samples, batch=False, seed=None)) as pipe:
        ((state, rest),) = states_and_rest(pipe, 1)

    with closing(pipeline_of(samples, batch=False, seed=None)) as pipe:
        pipe.load_state_dict(state)
        assert take(pipe, 6) == rest


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_running_it_takes_another_seed_too(way: str) -> None:
    with closing(pipeline_of(samples, way, batch=False, seed=2)) as pipe:
        (_, (state, rest)) = states_and_rest(pipe, 2)

    with closing(pipeline_of(samples, way, batch=False, seed=3)) as pipe:
        take(pipe, 3)
        pipe.load_state_dict(state)
        assert take(pipe, 6) == rest


def test_the_workers_stay() -> None:
    def worker(info: SampleInfo) -> Any:
        return np.array(os.getpid())

    with closing(pipeline_of(worker, "fork", batch=False)) as pipe:
        pipe.run()
        wait_until(lambda: len(pipe.py_worker_pids) == pipe.py_num_workers, "the start of all workers")
        pids = set(pipe.py_worker_pids)
        pipe.load_state_dict(pipe.state_dict())

        assert set(pipe.run()[0].as_array()) <= pids


def test_scheduled_batches_do_not_count_in_the_state() -> None:
    with closing(pipeline_of(samples, batch=False)) as pipe:
        pipe.schedule_run()
        state = pipe.state_dict()
        first = pipe.outputs()[0].as_array()
        pipe.load_state_dict(state)
        pipe.schedule_run()

        assert state["iteration"] == 0
        assert np.array_equal(pipe.outputs()[0].as_array(), first)


def test_end_behind_scheduled_batches_does_not_count() -> None:
    with closing(pipeline_of(samples, batch=False)) as pipe:
        for _ in range(12):
            pipe.schedule_run()
        pipe.outputs()
        state = pipe.state_dict()

        assert (state["iteration"], state["ended"]) == (1, False)


def test_a_state_is_a_checkpoint() -> None:
    with closing(pipeline_of(samples, batch=False)) as pipe:
        take(pipe, 3)
        state = pipe.state_dict()

        assert json.loads(pipe.checkpoint()) == state
        expected = take(pipe, 3)

    with closing(pipeline_of(samples, batch=False, checkpoint=state)) as pipe:
        assert take(pipe, 3) == expected


def test_states_must_be_asked_for() -> None:
    with closing(pipeline_of(samples, batch=False, enable_checkpointing=False)) as pipe, pytest.raises(PipelineStateError):
        pipe.state_dict()


@pytest.mark.parametrize("state", [{}, [], None, {"format": "dali_like checkpoint"}, {"pipelines": []}], ids=str)
def test_a_damaged_state_is_refused_and_changes_nothing(state: Any) -> None:
    with closing(pipeline_of(samples, batch=False)) as pipe:
        expected = take(pipe, 4)[2:]
        pipe.reset()
        pipe.reset()
    with closing(pipeline_of(samples, batch=False)) as pipe:
        take(pipe, 2)
        with pytest.raises(CheckpointError):
            pipe.load_state_dict(state)

        assert take(pipe, 2) == expected


def batches() -> Iterator[Any]:
    for number in range(5):
        yield np.full((2, 1), number)


def shards() -> Iterator[Any]:
    worker = get_worker_info()
    assert worker is not None
    for number in range(3 + worker.id):
        yield np.full((2, 1), 10 * worker.id + number)


WALKED: dict[str, tuple[Any, str, dict[str, bool]]] = {
    "in this process": (batches, "serial", {}),
    "in a worker": (batches, "fork", {}),
    "in each worker": (shards, "fork", {"sharded": True}),
}


@pytest.mark.parametrize("name", WALKED)
def test_iterables_are_walked_to_any_state(name: str) -> None:
    source, way, options = WALKED[name]
    with closing(pipeline_of(source, way, **options)) as pipe:
        expected = states_and_rest(pipe, 11)

    with closing(pipeline_of(source, way, **options)) as pipe:
        for state, rest in (*reversed(expected), *expected):
            pipe.load_state_dict(state)
            assert take(pipe, 6) == rest


def test_within_an_epoch_iterables_in_each_worker_go_back_and_forth() -> None:
    with closing(pipeline_of(shards, "fork", sharded=True)) as pipe:
        states = states_and_rest(pipe, 6, behind=2)

        for i in (4, 2, 5, 0, 3):
            state, rest = states[i]
            pipe.load_state_dict(state)
            assert take(pipe, 2) == rest


def test_iterators_in_each_worker_do_not_go_back() -> None:
    with closing(pipeline_of(map(np.array, [[[number]] for number in range(9)]), "fork", sharded=True)) as pipe:
        state = pipe.state_dict()
        take(pipe, 1)

        with pytest.raises(CheckpointError, match="iterators that run in every worker cannot go back"):
            pipe.load_state_dict(state)


def test_inputs_continue_with_fed_batches() -> None:
    pipe = Pipeline(2, num_threads=1, seed=1, enable_checkpointing=True)
    pipe.set_outputs(fn.external_source(name="fed"))
    with closing(pipe):
        state = pipe.state_dict()
        for number in range(4):
            pipe.feed_input("fed", np.full((2, 1), number))
        seen = [pipe.run()[0].as_array()[0, 0] for _ in range(2)]
        pipe.load_state_dict(state)
        seen += [pipe.run()[0].as_array()[0, 0] for _ in range(2)]

    assert seen == [0, 1, 2, 3]


# Ranks


def ranks_of(ranks: int, batch_size: int, **options: Any) -> list[Pipeline]:
    return [
        pipeline_of(samples, batch_size=batch_size, batch=False, shard_id=rank, num_shards=ranks, **options)
        for rank in range(ranks)
    ]


def steps_of(pipes: list[Pipeline], count: int) -> list[Any]:
    """Return the outputs of each step, concatenated over all ranks."""
    steps = zip(*(take(pipe, count) for pipe in pipes), strict=True)
    return [END if END in step else [[*itertools.chain(*parts)] for parts in zip(*step, strict=True)] for step in steps]


@pytest.mark.parametrize(("before", "after"), [((4, 3), (3, 4)), ((1, 12), (6, 2)), ((2, 6), (1, 12))], ids=str)
@pytest.mark.parametrize("rest", ["drop", "pad"])
def test_other_ranks_go_on_with_the_same_order(before: tuple[int, int], after: tuple[int, int], rest: str) -> None:
    options = {"size": 40, "shard_rest": rest}
    whole, first = ranks_of(1, 12, **options), ranks_of(*before, **options)
    expected = steps_of(whole, 10)

    seen = steps_of(first, 2)
    state = through_json(first[-1].state_dict())
    second = ranks_of(*after, **options)
    for pipe in second:
        pipe.load_state_dict(state)
    seen += steps_of(second, 8)

    for pipe in (*whole, *first, *second):
        pipe.close()
    assert seen == expected


def test_ranks_that_take_more_at_once_are_refused() -> None:
    with closing(pipeline_of(samples, batch_size=12, batch=False)) as pipe:
        state = pipe.state_dict()

    with closing(ranks_of(3, 5, size=45)[0]) as pipe:
        pipe.build()
        with pytest.raises(
            CheckpointError, match="of a pipeline with batch_size=12, not batch_size=5 on 3 ranks; all ranks"
        ):
            pipe.load_state_dict(state)


def test_whole_batches_are_divided_among_as_many_ranks() -> None:
    def of(ranks: int, batch_size: int) -> Pipeline:
        return pipeline_of(lambda number: np.full(2, number), batch_size=batch_size, size=12, shard_id=0, num_shards=ranks)

    with closing(of(2, 6)) as pipe:
        state = pipe.state_dict()

    with closing(of(3, 4)) as pipe:
        pipe.build()
        with pytest.raises(CheckpointError, match="resume with the same number of ranks"):
            pipe.load_state_dict(state)


# Sources that know their state


class Counter:
    """Numbers that only the state can restore: skipped items are counted, too."""

    def __init__(self, start: int = 0) -> None:
        self.number = start

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["number"]

    def count(self) -> Any:
        self.number += 1
        return np.array([self.number])


class Callable(Counter):
    def __call__(self) -> Any:
        return self.count()


class Live(Callable):
    """Its state_dict() returns the same dictionary each time, which it changes later."""

    def __init__(self, start: int = 0) -> None:
        self.state = {"number": start}

    @property
    def number(self) -> int:
        return self.state["number"]

    @number.setter
    def number(self, number: int) -> None:
        self.state["number"] = number

    def state_dict(self) -> dict[str, int]:
        return self.state


class Told(Counter):
    def __call__(self, info: SampleInfo) -> Any:
        if info.idx_in_epoch >= 14:
            raise StopIteration
        return self.count()


class Iterable(Counter):
    """Its position is part of its state, and starts again at the end of an epoch. Its numbers do not."""

    position = 0

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number, self.position = state["number"], state["position"]

    def __iter__(self) -> Iterator[Any]:
        while self.position < 14:
            self.position += 1
            yield self.count()
        self.position = 0


class Tape(Counter, Iterator[Any]):
    """An iterator that cannot start again: all epochs share it."""

    def __next__(self) -> Any:
        return self.count()


class Cursor(Counter):
    """An iterator that returns itself in each epoch."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self.count()


class Shelf:
    """An iterable whose iterators are stateful."""

    def __iter__(self) -> Iterator[Any]:
        return Book()


class Book(Counter):
    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self.number == 14:
            raise StopIteration
        return self.count()


KNOWERS = {
    "callable": Callable,
    "callable that shows its insides": Live,
    "method": lambda start: Callable(start).__call__,
    "told": Told,
    "iterable": Iterable,
    "iterator": Cursor,
    "iterator that goes on": Tape,
    "iterators of an iterable": lambda start: Shelf(),
}


@pytest.mark.parametrize("is_running", [False, True], ids=["new", "running"])
@pytest.mark.parametrize("name", KNOWERS)
def test_sources_resume_from_their_reported_states(name: str, is_running: bool) -> None:
    with closing(pipeline_of(KNOWERS[name](100), batch=False)) as pipe:
        expected = states_and_rest(pipe, 7)

    for state, rest in expected:
        with closing(pipeline_of(KNOWERS[name](0), batch=False)) as pipe:
            if is_running:
                take(pipe, 2)
            pipe.load_state_dict(state)
            assert through_json(pipe.state_dict()) == state
            assert take(pipe, 6) == rest


def test_behind_the_end_of_an_epoch_they_have_said_something_else() -> None:
    with closing(pipeline_of(Iterable(100), batch=False)) as pipe:
        assert len(list(pipe)) == 3
        state = through_json(pipe.state_dict())
        expected = take(pipe, 5)

    with closing(pipeline_of(Iterable(0), batch=False)) as pipe:
        pipe.load_state_dict(state)
        assert take(pipe, 5) == expected


class Batches(Iterable):
    """The same, as batches."""

    def count(self) -> Any:
        return np.repeat(super().count(), 4)[:, np.newaxis]


@pytest.mark.parametrize("way", ["serial", "thread"])
def test_checkpoint_with_an_earlier_state_of_an_iterable_skips_the_items_since(way: str) -> None:
    with closing(pipeline_of(Batches(100), way)) as pipe:
        take(pipe, 2)
        earlier = through_json(pipe.state_dict())
        take(pipe, 3)
        state = {**through_json(pipe.state_dict()), "sources": earlier["sources"]}
        expected = take(pipe, 5)

    with closing(pipeline_of(Batches(0), way, checkpoint=state)) as pipe:
        assert take(pipe, 5) == expected


def test_sources_of_batches_do_too() -> None:
    with closing(pipeline_of(Batches())) as pipe:
        expected = states_and_rest(pipe, 16)

    for state, rest in expected:
        with closing(pipeline_of(Batches(), checkpoint=state)) as pipe:
            assert take(pipe, 6) == rest


class Growing(Batches):
    """Batches that need more and more room."""

    def count(self) -> Any:
        return np.tile(super().count(), (1, 1 if self.number < 104 else self.number << 12))


def test_a_batch_that_needs_more_room_has_the_state_from_before_it() -> None:
    """It is computed once, and requested again."""
    with closing(pipeline_of(Growing(100), prefetch_queue_depth=3)) as pipe:
        states = []
        for _ in range(8):
            states.append(pipe.state_dict()["sources"][0]["states"]["0"][1]["state"]["number"])
            pipe.run()

    assert states == list(range(100, 108))


class Reel(Tape):
    """Batches of an iterator that cannot start again."""

    def count(self) -> Any:
        return np.repeat(super().count(), 4)[:, np.newaxis]


class Pages(Shelf, Counter):
    """Both it and its iterators are stateful; only the state of the iterators matters."""

    def __iter__(self) -> Iterator[Any]:
        return Page()


class Page(Book):
    def count(self) -> Any:
        return np.repeat(super().count(), 4)[:, np.newaxis]


IN_WORKERS = {"iterable": Batches, "iterator that goes on": Reel, "iterators of an iterable": Pages}


@pytest.mark.parametrize("is_running", [False, True], ids=["new", "running"])
@pytest.mark.parametrize("name", IN_WORKERS)
def test_workers_return_to_their_earlier_states_before_the_next_batch(name: str, is_running: bool) -> None:
    """By their states, not only by their positions: the two iterables count from different numbers."""
    with closing(pipeline_of(IN_WORKERS[name](100), "fork")) as pipe:
        expected = states_and_rest(pipe, 17)

    for state, rest in expected[::3] if is_running else expected[:2] + expected[12:]:
        with closing(pipeline_of(IN_WORKERS[name](0), "fork")) as pipe:
            if is_running:
                take(pipe, 1)
            pipe.load_state_dict(state)
            assert take(pipe, 6) == rest


@pytest.mark.parametrize("name", IN_WORKERS)
@pytest.mark.parametrize("way", ["fork", "thread"])
def test_workers_stay_when_the_state_of_an_iterable_is_loaded(name: str, way: str) -> None:
    with closing(pipeline_of(IN_WORKERS[name](100), way)) as pipe:
        expected = states_and_rest(pipe, 17)
        pids = pipe.py_worker_pids

        for state, rest in (*reversed(expected[::3]), *expected[::4]):
            pipe.load_state_dict(state)
            assert take(pipe, 6) == rest
        assert set(pids) <= set(pipe.py_worker_pids)  # a worker may have started only later


def test_a_replaced_worker_resumes_from_the_last_state(tmp_path: Any) -> None:
    """It skips no items: neither those before the loaded state, nor those delivered since."""

    class Dying(Batches):
        def count(self) -> Any:
            batch = super().count()
            (tmp_path / f"{self.number} {os.getpid()}").touch()
            if self.number == 112 and not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os._exit(1)
            return batch

    with closing(pipeline_of(Batches(100), "fork")) as pipe:
        take(pipe, 4)
        state = through_json(pipe.state_dict())
    with closing(pipeline_of(Dying(0), "fork")) as pipe:
        pipe.load_state_dict(state)
        assert [step[0][0] for step in take(pipe, 10)] == [[105 + number] for number in range(10)]

    made = sorted(int(path.name.split()[0]) for path in tmp_path.glob("* *"))
    assert (tmp_path / "died").exists()
    assert made[0] == 105
    assert made.count(105) == 1


@pytest.mark.parametrize("name", IN_WORKERS)
def test_between_workers_and_this_process_states_are_the_same(name: str) -> None:
    with closing(pipeline_of(IN_WORKERS[name](100), "fork")) as pipe:
        in_worker = states_and_rest(pipe, 16)
    with closing(pipeline_of(IN_WORKERS[name](100))) as pipe:
        here = states_and_rest(pipe, 16)

    assert [rest for _, rest in here] == [rest for _, rest in in_worker]
    for (state, rest), way in [*((pair, "serial") for pair in in_worker[::3]), (here[4], "fork"), (here[15], "spawn")]:
        with closing(pipeline_of(IN_WORKERS[name](0), way)) as pipe:
            pipe.load_state_dict(state)
            assert take(pipe, 6) == rest


def test_beside_a_source_in_this_process_they_are_asked_too() -> None:
    """The source in this process has no end. When an epoch is cut short, the worker may or may not have met the end."""

    def both(start: int) -> Pipeline:
        pipe = Pipeline(4, num_threads=1, py_num_workers=1, seed=1, enable_checkpointing=True)
        pipe.set_outputs(fn.external_source(Batches(start), parallel=True), fn.external_source(Reel(start)))
        return pipe

    with closing(both(100)) as pipe:
        expected = states_and_rest(pipe, 16)
        list(pipe)
        expected.append((through_json(pipe.state_dict()), take(pipe, 3)))

    for state, rest in expected[::4]:
        with closing(both(0)) as pipe:
            pipe.load_state_dict(state)
            assert take(pipe, len(rest)) == rest


@pytest.mark.parametrize("name", IN_WORKERS)
def test_threads_are_asked_as_processes_are(name: str) -> None:
    with closing(pipeline_of(IN_WORKERS[name](100), "thread")) as pipe:
        expected = states_and_rest(pipe, 16)
    with closing(pipeline_of(IN_WORKERS[name](100), "fork")) as pipe:
        assert [rest for _, rest in states_and_rest(pipe, 16)] == [rest for _, rest in expected]

    for state, rest in expected[::3]:
        with closing(pipeline_of(IN_WORKERS[name](0), "thread")) as pipe:
            pipe.load_state_dict(state)
            assert take(pipe, 6) == rest


def test_a_thread_that_takes_the_place_of_another_begins_where_that_began(tmp_path: Any) -> None:
    class Leaving(Batches):
        def count(self) -> Any:
            batch = super().count()
            if self.number == 104 and not (tmp_path / "left").exists():
                (tmp_path / "left").touch()
                raise SystemExit
            return batch

    with closing(pipeline_of(Leaving(100), "thread")) as pipe:
        assert [step[0][0] for step in take(pipe, 6)] == [[101 + number] for number in range(6)]


def test_an_epoch_that_is_cut_short_leaves_them_where_the_next_begins() -> None:
    with closing(pipeline_of(Reel(100), "fork", prefetch_queue_depth=5)) as pipe:
        take(pipe, 2)
        pipe.reset()
        state = through_json(pipe.state_dict())
        expected = take(pipe, 5)

    with closing(pipeline_of(Reel(0), "fork", checkpoint=state)) as pipe:
        assert take(pipe, 5) == expected


def test_behind_the_end_in_a_worker_they_have_said_something_else() -> None:
    with closing(pipeline_of(Batches(100), "fork")) as pipe:
        assert len(list(pipe)) == 14
        state = through_json(pipe.state_dict())
        expected = take(pipe, 5)

    with closing(pipeline_of(Batches(0), "fork", checkpoint=state)) as pipe:
        assert take(pipe, 5) == expected


def test_states_reported_in_a_worker_are_not_outputs() -> None:
    def pairs() -> Iterator[Any]:
        yield from ([np.full((2, 1), number), [object, {"number": number}]] for number in range(3))

    class Pairs(Counter):
        def __iter__(self) -> Iterator[Any]:
            return pairs()

    pipe = Pipeline(4, num_threads=1, py_num_workers=1, seed=1, enable_checkpointing=True)
    pipe.set_outputs(*fn.external_source(Pairs(), num_outputs=2, parallel=True, dtype=[types.INT64, types.OBJECT]))
    with closing(pipe):
        outputs = [(numbers.as_array().tolist(), things) for numbers, things in pipe]

    assert outputs == [([[number]] * 2, [object, {"number": number}]) for number in range(3)]


def test_a_state_in_a_worker_that_json_cannot_hold_is_pointed_out() -> None:
    class Source(Batches):
        def state_dict(self) -> Any:
            return {"number": {1, 2}}

    with closing(pipeline_of(Source(), "fork")) as pipe, pytest.raises(CheckpointError, match="what JSON can hold"):
        pipe.run()


def test_an_iterator_without_a_state_is_walked_to_its_place() -> None:
    numbers = [np.array([number]) for number in range(40)]
    with closing(pipeline_of(iter(numbers), batch=False)) as pipe:
        expected = states_and_rest(pipe, 3)

    for state, rest in expected:
        with closing(pipeline_of(iter(numbers), batch=False)) as pipe:
            take(pipe, 0)
            pipe.build()
            pipe.load_state_dict(state)
            assert take(pipe, 6) == rest


def test_of_an_iterator_nothing_is_lost_that_has_been_made_ahead() -> None:
    walk = map(np.array, [[[number]] * 4 for number in range(20)])
    with closing(pipeline_of(walk, shard_id=1, num_shards=2, shard_rest="uneven")) as pipe:
        seen = take(pipe, 2)
        pipe.load_state_dict(pipe.state_dict())
        seen += take(pipe, 6)

    assert [step[0][0] for step in seen] == [[number] for number in range(1, 17, 2)]


def test_an_iterator_without_a_state_does_not_go_back() -> None:
    with closing(pipeline_of(map(np.array, [[number] for number in range(40)]), batch=False)) as pipe:
        state = pipe.state_dict()
        take(pipe, 1)

        with pytest.raises(CheckpointError, match="has delivered 1 batches; it cannot go back to 0"):
            pipe.load_state_dict(state)

        assert take(pipe, 1)[0][0] == [[4], [5], [6], [7]]


def test_refused_state_leaves_batches_of_an_iterator_that_are_computed_ahead() -> None:
    walk = map(np.array, [[[number]] * 4 for number in range(20)])
    with closing(pipeline_of(walk, "thread", prefetch_queue_depth=3)) as pipe:
        state = pipe.state_dict()
        seen = take(pipe, 2)

        with pytest.raises(CheckpointError, match="has delivered 2 batches; it cannot go back to 0"):
            pipe.load_state_dict(state)

        seen += take(pipe, 6)

    assert [step[0][0] for step in seen] == [[number] for number in range(8)]


def test_an_iterator_that_has_been_further_does_not_go_back_for_another_seed_either() -> None:
    with closing(pipeline_of(map(np.array, [[number] for number in range(40)]), batch=False)) as pipe:
        state = pipe.state_dict()
        take(pipe, 1)
        pipe.load_state_dict({**state, "seed": 5})

        with pytest.raises(LostItemError, match="was taken before a state was loaded"):
            pipe.run()


def test_instances_know_their_state_and_classes_do_not() -> None:
    assert [is_stateful(value) for value in (Counter, Counter())] == [False, True]


def test_a_state_that_json_cannot_hold_is_pointed_out() -> None:
    class Source(Callable):
        def state_dict(self) -> Any:
            return {"number": {1, 2}}

    with closing(pipeline_of(Source(), batch=False)) as pipe, pytest.raises(CheckpointError, match="what JSON can hold"):
        pipe.state_dict()


@pytest.mark.parametrize("name", ["callable", "iterable"])
@pytest.mark.parametrize("saved", [5, {}, {"state": 1, "more": 2}, {"epoch": "0", "end": None}], ids=str)
def test_a_damaged_state_of_a_source_is_refused(name: str, saved: Any) -> None:
    with closing(pipeline_of(KNOWERS[name](), batch=False)) as pipe:
        state = pipe.state_dict()
        state["sources"][0]["states"] = {"0": [1, saved]}

    with closing(pipeline_of(KNOWERS[name](), batch=False)) as pipe:
        pipe.load_state_dict(state)
        with pytest.raises(CheckpointError, match="a state of another kind of source"):
            pipe.build()


# Iterators


class PlainIterator(BaseIterator[Any, Any]):
    def _convert(self, name: str, output: TensorListCPU) -> Any:
        return output.as_array()

    def _combine(self, batches: list[dict[str, Any]]) -> Any:
        return [batch["samples"].tolist() for batch in batches]


ITERATORS: dict[str, dict[str, Any]] = {
    "epochs of the source": {},
    "restarted by itself": {"auto_reset": True},
    "with a size": {"size": 17},
    "with nothing prepared": {"prepare_first_batch": False},
}


def iterator_of(**options: Any) -> PlainIterator:
    pipes = [
        pipeline_of(samples, batch=False, shard_id=i, num_shards=2, size=40, shard_rest="drop", seed=1) for i in range(2)
    ]
    return PlainIterator(pipes, ["samples", "noise"], **options)


def close(iterator: PlainIterator) -> None:
    # Private: closes the pipelines of an iterator that failed
    for pipe in iterator._pipelines:
        pipe.close()


def play(iterator: PlainIterator, count: int) -> list[Any]:
    """So many steps; the end of an epoch is one, and reset() comes after it."""
    log: list[Any] = []
    for _ in range(count):
        try:
            log.append(next(iterator))
        except StopIteration:
            log.append(END)
            iterator.reset()
    return log


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_goes_on_from_any_state(name: str) -> None:
    iterator = iterator_of(**ITERATORS[name])
    states, log = [], []
    for _ in range(13):
        states.append(through_json(iterator.state_dict()))
        log += play(iterator, 1)
    log += play(iterator, 6)
    other = iterator_of(**ITERATORS[name])

    for i, state in reversed(list(enumerate(states))):
        other.load_state_dict(state)
        assert play(other, 6) == log[i : i + 6], i

    close(iterator)
    close(other)


def test_behind_the_end_of_an_epoch_a_loop_has_the_next() -> None:
    iterator, other = iterator_of(), iterator_of()
    list(iterator)
    state = through_json(iterator.state_dict())

    other.load_state_dict(state)

    assert list(other) == list(iterator)
    close(iterator)
    close(other)


def test_an_iterator_over_another_number_of_pipelines_is_refused() -> None:
    iterator = iterator_of()
    state = iterator.state_dict()
    state["pipelines"].pop()

    with pytest.raises(CheckpointError, match="over 1 pipelines, not 2"):
        iterator.load_state_dict(state)
    with pytest.raises(CheckpointError, match="not a state of an iterator"):
        iterator.load_state_dict({})

    close(iterator)


def test_an_iterator_with_a_size_counts_anew_from_the_state_of_one_without() -> None:
    unsized, sized = iterator_of(), iterator_of(size=17)
    expected = play(sized, 4)
    assert expected[3] == END
    sized.load_state_dict(unsized.state_dict())
    play(sized, 1)

    sized.load_state_dict(unsized.state_dict())

    assert play(sized, 4) == expected
    close(unsized)
    close(sized)
