"""Composed datasets in logical shards in pipelines: all workers compute, and the main process keeps the states."""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, types
from dali_like.data import ComposedDataset
from dali_like.errors import CheckpointError, DtypeMismatchError, NdimMismatchError, WorkerTimeoutError

pytestmark = pytest.mark.filterwarnings("ignore:.*are dropped:UserWarning")

WAYS = ["serial", "thread", "fork"]


def always(number: int) -> bool:
    return True


def with_pid(number: int) -> Any:
    return np.array([number, os.getpid()])


def several_with_pid(number: int) -> list[Any]:
    return [with_pid(number)] * (number % 5)


def numbers(count: int, shards: int = 4, keep: Any = always) -> ComposedDataset:
    return ComposedDataset.source(range(count)).filter(keep).with_options(shards=shards)


def pipeline_of(dataset: ComposedDataset, batch_size: int, way: str = "fork", workers: int = 2, **options: Any) -> Pipeline:
    of_source = (
        *("last_batch_policy", "num_outputs", "dtype", "ndim", "layout", "on_error"),
        *("shard_id", "num_shards", "shard_rest"),
    )
    source_options = {name: options.pop(name) for name in of_source if name in options}
    method = {} if way == "serial" else {"py_start_method": way, "py_num_workers": workers}
    pipe = Pipeline(batch_size, num_threads=1, **{"seed": 1, "enable_checkpointing": True, **method, **options})
    node = fn.external_source(dataset, parallel=way != "serial", **source_options)
    pipe.set_outputs(*(node if isinstance(node, list) else [node]))
    return pipe


def batches(pipe: Pipeline, most: int | None = None) -> list[list[Any]]:
    """Return the next batches, up to the end of the epoch."""
    found = []
    while most is None or len(found) < most:
        try:
            (output,) = pipe.run()
        except StopIteration:
            break
        found.append([np.asarray(sample).tolist() for sample in output])
    return found


def flat(lists: Any) -> list[Any]:
    return list(itertools.chain.from_iterable(lists))


# Workers


@pytest.mark.parametrize(("shards", "workers"), [(4, 2), (12, 3), (3, 3)])
def test_all_workers_compute_a_stream_with_flat_map(shards: int, workers: int) -> None:
    dataset = ComposedDataset.source(range(30)).flat_map(several_with_pid).with_options(shards=shards)
    expected = [int(number) for number, _ in dataset]

    with closing(pipeline_of(dataset, 6, workers=workers)) as pipe:
        found = flat(batches(pipe))
        pids = set(pipe.py_worker_pids)

    assert [number for number, _ in found] == expected
    assert {pid for _, pid in found} == pids
    assert len(pids) == workers


def test_each_shard_stays_with_its_worker() -> None:
    with closing(pipeline_of(numbers(48, shards=6).map(with_pid).filter(np.any), 5, workers=2)) as pipe:
        found = flat(batches(pipe))

    by_shard = {shard: {pid for number, pid in found if number % 6 == shard} for shard in range(6)}
    assert [len(pids) for pids in by_shard.values()] == [1] * 6
    assert by_shard[0] != by_shard[1]


def test_workers_share_a_shard_that_ends_with_a_map() -> None:
    with closing(pipeline_of(numbers(24, shards=1).map(with_pid), 4, workers=3)) as pipe:
        found = flat(batches(pipe))

    assert [number for number, _ in found] == list(range(24))
    assert len({pid for _, pid in found}) == 3


@pytest.mark.parametrize("way", WAYS)
def test_full_batches_are_one_array_and_smaller_ones_their_samples(way: str) -> None:
    with closing(pipeline_of(numbers(10, keep=lambda x: x not in (4, 8)).map(with_pid), 4, way)) as pipe:
        outputs = [pipe.run()[0] for _ in range(3)]

    assert [output.is_dense_tensor() for output in outputs[:1]] == [True]
    assert [[int(np.asarray(x)[0]) for x in output] for output in outputs] == [[0, 1, 2, 3], [5, 6, 7], [9]]


@pytest.mark.parametrize("way", WAYS)
def test_elements_of_different_shapes_keep_their_places(way: str) -> None:
    dataset = numbers(40).map(lambda x: np.full(x % 3 if x % 7 == 0 else 2, x))

    with closing(pipeline_of(dataset, 8, way)) as pipe:
        found = flat(batches(pipe))

    assert found == [x.tolist() for x in dataset]


@pytest.mark.parametrize("way", WAYS)
def test_several_outputs_with_one_of_varying_size(way: str) -> None:
    dataset = numbers(30).map(lambda x: (np.int64(x), np.arange(x % 4, dtype=np.float32)))

    with closing(pipeline_of(dataset, 7, way, num_outputs=2)) as pipe:
        first, second = [], []
        for _ in range(5):
            a, b = pipe.run()
            first += [int(np.asarray(x)) for x in a]
            second += [len(np.asarray(x)) for x in b]

    assert (first, second) == (list(range(30)), [x % 4 for x in range(30)])


@pytest.mark.parametrize("way", WAYS)
def test_objects_travel(way: str) -> None:
    with closing(pipeline_of(numbers(6).map(lambda x: {"x": x}), 4, way, dtype=types.OBJECT)) as pipe:
        assert list(pipe.run()[0]) == [{"x": x} for x in range(4)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("options", "error"),
    [({"dtype": types.FLOAT}, DtypeMismatchError), ({"ndim": 2}, NdimMismatchError), ({"layout": "HWC"}, NdimMismatchError)],
)
def test_elements_are_compared_with_the_declaration(way: str, options: dict[str, Any], error: type[Exception]) -> None:
    with closing(pipeline_of(numbers(8).map(with_pid), 4, way, **options)) as pipe, pytest.raises(error):
        pipe.run()


@pytest.mark.parametrize("way", WAYS)
def test_all_batches_have_the_dtype_of_the_first(way: str) -> None:
    dataset = numbers(12).map(lambda x: np.array([x], np.int32 if x < 4 else np.int64))
    with closing(pipeline_of(dataset, 4, way)) as pipe:
        pipe.run()
        with pytest.raises(DtypeMismatchError, match="which was int32 in the first batch"):
            pipe.run()


@pytest.mark.parametrize("way", WAYS)
def test_elements_beyond_the_region_of_their_task_are_computed_again(way: str) -> None:
    def sized(number: int) -> Any:
        return np.full(1 if number < 8 else 700_000 + number, number, np.int64)

    with closing(pipeline_of(numbers(16).map(sized), 4, way)) as pipe:
        found = [[(int(np.asarray(x)[-1]), len(np.asarray(x))) for x in pipe.run()[0]] for _ in range(4)]

    assert flat(found) == [(x, 1 if x < 8 else 700_000 + x) for x in range(16)]


# Errors


def fails_at_5(number: int) -> int:
    if number == 5:
        raise ValueError("five")
    return number


@pytest.mark.parametrize("way", WAYS)
def test_an_error_names_the_position_and_the_stream_goes_on(way: str) -> None:
    with closing(pipeline_of(numbers(12).map(fails_at_5), 4, way)) as pipe:
        assert batches(pipe, 1) == [[0, 1, 2, 3]]
        with pytest.raises(ValueError, match="five") as raised:
            pipe.run()
        assert batches(pipe) == [[8, 9, 10, 11]]

    assert any("idx_in_epoch 5" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("way", WAYS)
def test_on_error_replaces_one_element(way: str) -> None:
    def replace(info: Any, error: Exception) -> Any:
        return -info.idx_in_epoch

    with closing(pipeline_of(numbers(12).map(fails_at_5), 4, way, on_error=replace)) as pipe:
        assert flat(batches(pipe)) == [0, 1, 2, 3, 4, -5, 6, 7, 8, 9, 10, 11]


def hangs_at_6(number: int) -> int:
    while number == 6:
        signal.pause()
    return number


def test_a_time_out_names_the_position() -> None:
    pipe = pipeline_of(numbers(12).map(hangs_at_6), 4, py_timeout_s=0.5, py_worker_restarts=0)
    with closing(pipe), pytest.raises(WorkerTimeoutError, match="idx_in_epoch 6"):
        batches(pipe)


# Deaths


def dying(path: Path, number: int) -> Any:
    if number % 5 == 0 and not (path / str(number)).exists():
        (path / str(number)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return np.int64(number)


@pytest.mark.parametrize("reports_each_state", [False, True])
@pytest.mark.parametrize("last", ["map", "filter"])
def test_dying_workers_cost_no_element(tmp_path: Path, last: str, reports_each_state: bool) -> None:
    dataset = numbers(23).map(functools.partial(dying, tmp_path))
    dataset = dataset if last == "map" else dataset.filter(always)

    options: dict[str, Any] = {"py_worker_restarts": 20, "enable_checkpointing": reports_each_state}
    with closing(pipeline_of(dataset, 4, workers=2, **options)) as pipe:
        assert flat(batches(pipe)) == list(range(23))


# States


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_at_each_batch_resumes_there(way: str) -> None:
    dataset = ComposedDataset.source(range(25)).flat_map(lambda x: [np.int64(x)] * (x % 4)).with_options(shards=6)
    expected = [int(x) for x in dataset]
    states = []
    with closing(pipeline_of(dataset, 4, way)) as pipe:
        delivered = [[]]
        for _ in itertools.count():
            states.append(json.loads(json.dumps(pipe.state_dict())))
            if not (batch := batches(pipe, 1)):
                break
            delivered.append(delivered[-1] + batch[0])
        assert delivered[-1] == expected
        for state, before in zip(states, delivered, strict=True):
            pipe.load_state_dict(state)
            assert before + flat(batches(pipe)) == expected
    with closing(pipeline_of(dataset, 5, way, workers=3, checkpoint=states[2])) as pipe:
        assert delivered[2] + flat(batches(pipe)) == expected


@pytest.mark.parametrize("way", ["serial", "thread"])
def test_a_break_drops_the_rest_of_the_epoch(way: str) -> None:
    with closing(pipeline_of(numbers(20).map(with_pid), 4, way)) as pipe:
        for most in (2, 1, 0, 3):
            assert [number for number, _ in flat(batches(pipe, most))] == list(range(4 * most))
            pipe.reset()


def short_at_the_front(number: int) -> bool:
    return number % 4 != 0 or number < 4


def ranks_at(states: list[int], **options: Any) -> list[Any]:
    """Return the checkpoints of two ranks behind so many calls of `run`, and their elements."""
    found = []
    for rank, calls in enumerate(states):
        pipe = pipeline_of(
            numbers(32, keep=short_at_the_front), 1, "thread", shard_id=rank, num_shards=2, shard_rest="uneven", **options
        )
        with closing(pipe):
            taken = batches(pipe, calls)
            if len(taken) < calls:
                pipe.reset()
            found.append((json.loads(json.dumps(pipe.state_dict())), taken))
    return found


@pytest.mark.parametrize("calls", range(1, 18))
def test_ranks_at_different_steps_near_the_end_of_an_epoch_resume_together(calls: int) -> None:
    ranks = ranks_at([calls, calls])
    before = flat(flat(taken) for _, taken in ranks)
    expected = sorted(int(x) for x in numbers(32, keep=short_at_the_front))
    if all(state["epoch"] for state, _ in ranks):
        assert sorted(before) == expected
        return

    pipe = pipeline_of(numbers(32, keep=short_at_the_front), 3, "thread", checkpoint=[state for state, _ in ranks])
    with closing(pipe):
        after = flat(batches(pipe))

    assert sorted(before + after) == expected


def test_a_state_of_another_kind_is_refused() -> None:
    with closing(pipeline_of(numbers(8), 2, "thread")) as pipe:
        state = json.loads(json.dumps(pipe.state_dict()))
        source = state["sources"][0]
        for wrong, message in (
            ({"position": -1}, "sources: position should be an integer from 0"),
            ({"dataset": None, "states": {"0": [3, {}]}}, "another kind of source"),
            ({"dataset": {**source["dataset"], "position": "0"}}, "position should be an integer from 0"),
        ):
            with pytest.raises(CheckpointError, match=message):
                pipe.load_state_dict({**state, "sources": [{**source, **wrong}]})
