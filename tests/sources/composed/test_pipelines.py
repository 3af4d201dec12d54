"""Composed datasets in pipelines: the positions of the contract, on any number of ranks, and after any resume."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops, types
from dali_like.data import ComposedDataset
from dali_like.errors import ArgumentClashError, ArgumentError, CheckpointError, SampleTypeError

pytestmark = pytest.mark.filterwarnings("ignore:.*are dropped:UserWarning")

NUMBERS = ComposedDataset.source(np.arange(22)).shuffle()
FILTERED = ComposedDataset.source(np.arange(60)).filter(lambda x: x % 7).with_options(shards=12)
WAYS = ["serial", "thread", "fork"]


def pipeline_of(
    dataset: Any, batch_size: int, rank: tuple[int, int] | None = None, way: str = "serial", **options: Any
) -> Pipeline:
    """Return a pipeline of one composed dataset; `rank` is (shard_id, num_shards)."""
    names = ("last_batch_policy", "num_outputs", "dtype", "on_error")
    source_options = {name: options.pop(name) for name in names if name in options}
    if rank is not None:
        source_options |= {"shard_id": rank[0], "num_shards": rank[1], "shard_rest": options.pop("shard_rest", "uneven")}
    method = {} if way == "serial" else {"py_start_method": way, "py_num_workers": 2}
    pipe = Pipeline(batch_size, num_threads=1, **method, **{"seed": 1, "enable_checkpointing": True, **options})
    node = fn.external_source(dataset, parallel=way != "serial", **source_options)
    pipe.set_outputs(*(node if isinstance(node, list) else [node]))
    return pipe


def batches(pipe: Pipeline) -> Iterator[list[int]]:
    """Yield the batches up to the end of the epoch."""
    try:
        while True:
            yield [int(np.asarray(sample)) for sample in pipe.run()[0]]
    except StopIteration:
        return


def flat(lists: Iterable[Iterable[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(lists))


def interleaved(by_rank: Sequence[Sequence[Sequence[int]]]) -> list[int]:
    """Return the elements of all ranks in the order of the stream, for full batches except the last."""
    steps = max(map(len, by_rank))
    stream = []
    for step in range(steps):
        columns = [batches[step] if step < len(batches) else [] for batches in by_rank]
        for j in range(max(map(len, columns))):
            stream += [column[j] for column in columns if j < len(column)]
    return stream


@pytest.mark.parametrize("way", WAYS)
def test_random_access_gives_the_elements_in_order_and_reshuffles_each_epoch(way: str) -> None:
    with closing(pipeline_of(NUMBERS, 4, way=way, last_batch_policy="partial")) as pipe:
        first = flat(batches(pipe))
        pipe.reset()
        second = flat(batches(pipe))

    assert first == [int(NUMBERS[i]) for i in range(22)]
    assert second == [int(NUMBERS[22 + i]) for i in range(22)]


@pytest.mark.parametrize(("policy", "sizes"), [(None, [4] * 5), ("partial", [4] * 5 + [2]), ("fill", [4] * 6)])
def test_the_length_ends_the_epoch(policy: str | None, sizes: list[int]) -> None:
    with closing(pipeline_of(NUMBERS, 4, last_batch_policy=policy)) as pipe:
        assert len(pipe) == len(sizes)
        assert [len(batch) for batch in batches(pipe)] == sizes


@pytest.mark.parametrize(("rest", "expected"), [("drop", [8, 8]), ("pad", [12, 12]), ("uneven", [12, 10])])
def test_the_positions_of_ranks_interleave(rest: str, expected: list[int]) -> None:
    by_rank = []
    for rank in range(2):
        with closing(pipeline_of(NUMBERS, 4, (rank, 2), shard_rest=rest)) as pipe:
            expected_batches = len(pipe)
            by_rank.append(list(batches(pipe)))
            assert len(by_rank[-1]) == expected_batches

    assert by_rank[0][0] == [int(NUMBERS[i]) for i in (0, 2, 4, 6)]
    assert by_rank[1][1] == [int(NUMBERS[i]) for i in (9, 11, 13, 15)]
    stream = interleaved(by_rank)
    count = {"drop": 16, "pad": 24, "uneven": 22}[rest]
    assert stream == [int(NUMBERS[i % 22]) for i in range(count)]


def test_random_operators_draw_by_position_in_threads_and_in_workers() -> None:
    def drawn(rank: tuple[int, int] | None, batch_size: int, way: str) -> dict[int, float]:
        with closing(pipeline_of(ComposedDataset.source(np.arange(16)), batch_size, rank, way)) as pipe:
            pipe.set_outputs(
                node := fn.external_source(
                    ComposedDataset.source(np.arange(16)),
                    parallel=way != "serial",
                    **({} if rank is None else {"shard_id": rank[0], "num_shards": rank[1]}),
                ),
                fn.random.uniform(node),
            )
            pairs = {}
            while True:
                try:
                    numbers, values = pipe.run()
                except StopIteration:
                    return pairs
                pairs |= {int(np.asarray(n)): float(np.asarray(v)) for n, v in zip(numbers, values, strict=True)}

    alone = drawn(None, 4, "serial")

    assert drawn((0, 2), 2, "serial") | drawn((1, 2), 2, "fork") == alone
    assert len(set(alone.values())) == 16


@pytest.mark.parametrize("way", WAYS)
def test_random_access_resumes_on_other_ranks_with_another_batch_size(way: str) -> None:
    with closing(pipeline_of(NUMBERS, 3, (1, 2), way)) as pipe:
        pipe.run()
        pipe.run()
        state = json.loads(json.dumps(pipe.state_dict()))
    resumed, later = [], []
    for rank in range(5):
        with closing(pipeline_of(NUMBERS, 1, (rank, 5), way, checkpoint=state)) as pipe:
            resumed.append(list(batches(pipe)))
            pipe.reset()
            later.append(list(batches(pipe)))

    # Position 12 is of rank 2 of 5: the step begins there.
    assert sorted(flat(flat(resumed))) == sorted(int(NUMBERS[i]) for i in range(12, 22))
    assert resumed[2][0] == [int(NUMBERS[12])]
    assert resumed[0][0] == [int(NUMBERS[15])]
    assert interleaved(later) == [int(NUMBERS[22 + i]) for i in range(22)]


def test_a_checkpoint_after_a_change_of_ranks_counts_positions() -> None:
    with closing(pipeline_of(NUMBERS, 3)) as pipe:
        pipe.run()
        first = pipe.state_dict()
    with closing(pipeline_of(NUMBERS, 4, checkpoint=first)) as pipe:
        pipe.run()
        second = pipe.state_dict()
    with closing(pipeline_of(NUMBERS, 5)) as pipe:
        pipe.run()
        pipe.load_state_dict(second)
        assert next(batches(pipe)) == [int(NUMBERS[i]) for i in range(7, 12)]


@pytest.mark.parametrize("way", WAYS)
def test_logical_shards_give_the_elements_in_order_and_again_in_the_next_epoch(way: str) -> None:
    with closing(pipeline_of(FILTERED, 5, way=way)) as pipe:
        first = flat(batches(pipe))
        pipe.reset()
        second = flat(batches(pipe))

    assert first == second == [int(x) for x in FILTERED]


def test_logical_shards_reshuffle_each_epoch() -> None:
    dataset = ComposedDataset.source(np.arange(30)).shuffle().filter(lambda x: x > 3).with_options(shards=1)
    with closing(pipeline_of(dataset, 26)) as pipe:
        (first,) = batches(pipe)
        pipe.reset()
        (second,) = batches(pipe)

    assert first != second
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize("way", WAYS)
def test_the_states_of_all_ranks_resume_on_other_ranks(way: str) -> None:
    states, before = [], []
    for rank in range(3):
        with closing(pipeline_of(FILTERED, 4, (rank, 3), way)) as pipe:
            before.append([next(batches(pipe))])
            states.append(json.loads(json.dumps(pipe.state_dict())))
    after = []
    for rank in range(2):
        with closing(pipeline_of(FILTERED, 2, (rank, 2), way, checkpoint=states)) as pipe:
            after.append(list(batches(pipe)))

    assert interleaved(before) == [int(x) for x in FILTERED][:12]
    assert sorted(interleaved(before) + flat(flat(after))) == [x for x in range(60) if x % 7]
    assert after[0][0] == [[int(x) for x in FILTERED][i] for i in (12, 14)]


def test_a_lone_state_of_several_ranks_lacks_shards() -> None:
    with closing(pipeline_of(FILTERED, 4, (1, 3))) as pipe:
        pipe.run()
        state = pipe.state_dict()

    with pytest.raises(CheckpointError, match="logical shard 0 is missing; it was saved by rank 0 of 3"):
        pipeline_of(FILTERED, 4, (0, 2), checkpoint=state).build()


def test_states_of_different_iterations_cannot_be_merged() -> None:
    states = []
    for rank in range(2):
        with closing(pipeline_of(FILTERED, 2, (rank, 2))) as pipe:
            for _ in range(rank + 1):
                pipe.run()
            states.append(pipe.state_dict())

    with pytest.raises(CheckpointError, match="iteration is 1 in one and 2 in another"):
        pipeline_of(FILTERED, 2, checkpoint=states)


@pytest.mark.parametrize("dataset", [NUMBERS, FILTERED])
def test_another_description_is_refused(dataset: ComposedDataset) -> None:
    with closing(pipeline_of(dataset, 2)) as pipe:
        pipe.run()
        state = pipe.state_dict()

    with pytest.raises(CheckpointError, match="line 0 of the description was"):
        pipeline_of(dataset.map(abs).filter(abs) if dataset.shards else dataset.map(abs), 2, checkpoint=state).build()
    with pytest.raises(CheckpointError, match="it was saved with seed=0, and this dataset has seed=9"):
        pipeline_of(dataset.with_options(seed=9), 2, checkpoint=state).build()


@pytest.mark.parametrize("in_shards", [False, True])
@pytest.mark.parametrize("way", ["serial", "thread"])
def test_weights_may_change_at_a_resume(in_shards: bool, way: str) -> None:
    def mixture(schedule: Any) -> ComposedDataset:
        parts = [ComposedDataset.source(np.arange(begin, begin + 100)) for begin in (0, 100)]
        if in_shards:
            parts[0] = parts[0].filter(lambda x: True).with_options(shards=2)
        return ComposedDataset.mix(parts, schedule=schedule, block=4, stop="never")

    changed = mixture([(0, [1, 1]), (16, [1, 3])])
    with closing(pipeline_of(mixture([(0, [1, 1])]), 4, way=way)) as pipe:
        pipe.run(), pipe.run()
        state = json.loads(json.dumps(pipe.state_dict()))

    with closing(pipeline_of(changed, 2, way=way, checkpoint=state)) as pipe, pytest.raises(CheckpointError, match="line 0"):
        pipe.run()
    with closing(pipeline_of(changed, 2, way=way)) as pipe:
        pipe.load_state_dict([state], allow_change=["weights"])
        resumed = flat(next(batches(pipe)) for _ in range(8))
        pipe.load_state_dict(pipe.state_dict())  # the new weights are in it
        resumed += next(batches(pipe))

    assert resumed == [int(x) for x in itertools.islice(changed, 8, 26)]


@pytest.mark.parametrize("dataset", [NUMBERS, FILTERED])
def test_a_killed_worker_costs_no_element(dataset: ComposedDataset) -> None:
    expected = [int(x) for x in dataset]
    with closing(pipeline_of(dataset, 2, way="fork", py_worker_restarts=4)) as pipe:
        stream = next(batches(pipe))
        for pid in pipe.py_worker_pids:
            os.kill(pid, signal.SIGKILL)
        stream += flat(batches(pipe))

    assert stream == expected


def test_tuples_are_several_outputs() -> None:
    for dataset in (NUMBERS.map(lambda x: (x, x + 1)), FILTERED.map(lambda x: (x, x + 1))):
        with closing(pipeline_of(dataset, 4, num_outputs=2)) as pipe:
            first, second = pipe.run()
            assert [int(np.asarray(x)) + 1 for x in first] == [int(np.asarray(x)) for x in second]


def as_dict(x: Any) -> dict[str, Any]:
    return {"a": x, "b": x}


@pytest.mark.parametrize("dataset", [NUMBERS, FILTERED])
def test_a_dict_names_the_way_to_a_tuple(dataset: ComposedDataset) -> None:
    with (
        closing(pipeline_of(dataset.map(as_dict), 2)) as pipe,
        pytest.raises(SampleTypeError, match=r"\(element\['a'\], element\['b'\]\)\) and num_outputs=2"),
    ):
        pipe.run()
    with closing(pipeline_of(dataset.map(as_dict), 2, dtype=types.OBJECT)) as pipe:
        assert next(iter(pipe.run()[0])).keys() == {"a", "b"}


def test_a_wrong_number_of_outputs_in_shards_is_named() -> None:
    with (
        closing(pipeline_of(FILTERED.map(lambda x: (x,)), 2, num_outputs=2)) as pipe,
        pytest.raises(SampleTypeError, match="is a tuple of 1; with num_outputs=2"),
    ):
        pipe.run()


def test_an_exception_names_the_stage_and_the_stream_continues() -> None:
    def fail_at_three(x: Any) -> Any:
        if x == 3:
            raise ValueError("three")
        return x

    for shards in (False, True):
        dataset = ComposedDataset.source(np.arange(8)).map(fail_at_three)
        dataset = dataset.filter(lambda x: True).with_options(shards=2) if shards else dataset
        with closing(pipeline_of(dataset, 2)) as pipe:
            assert next(batches(pipe)) == [0, 1]
            with pytest.raises(ValueError, match="three") as raised:
                pipe.run()
            assert any("position 3 of epoch 0" in note for note in raised.value.__notes__)
            assert next(batches(pipe)) == [4, 5]


def test_on_error_gets_the_position() -> None:
    seen = []

    def note(info: Any, error: Exception) -> Any:
        seen.append(info.idx_in_epoch)
        return np.int64(-1)

    dataset = ComposedDataset.source(np.arange(8)).map(lambda x: 1 // 0)
    with closing(pipeline_of(dataset, 2, (1, 2), on_error=note)) as pipe:
        list(batches(pipe))

    assert seen == [1, 3, 5, 7]


def test_an_incomplete_batch_of_shards_can_be_dropped() -> None:
    with closing(pipeline_of(FILTERED, 15, last_batch_policy="drop")) as pipe:
        assert [len(batch) for batch in batches(pipe)] == [15, 15, 15]


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ({"size": 4}, "dataset.take"),
        ({"cycle": True}, "dataset.repeat"),
        ({"batch_info": True}, "dataset.enumerate"),
        ({"concurrency": 2}, "more workers"),
        ({"sharded": True, "parallel": True}, "use shard"),
        ({"on_error": "skip"}, "dataset.filter"),
    ],
)
def test_options_that_a_composed_dataset_replaces_are_refused(option: dict[str, Any], hint: str) -> None:
    with pytest.raises(ArgumentClashError, match=hint):
        fn.external_source(NUMBERS, **option)


def test_the_ranks_divide_the_shards() -> None:
    with pytest.raises(ArgumentError, match="5 ranks cannot share out 12 logical shards evenly"):
        fn.external_source(FILTERED, shard_id=0, num_shards=5, shard_rest="uneven")
    with pytest.raises(ArgumentClashError, match=r'Pass shard_rest="uneven"; or use dali_like.data.DataLoader'):
        fn.external_source(FILTERED, shard_id=0, num_shards=2)


def test_an_endless_stream_of_random_access_needs_no_rest() -> None:
    endless = NUMBERS.repeat()
    with closing(pipeline_of(endless, 4, (1, 2), shard_rest=None)) as pipe:
        stream = batches(pipe)
        assert flat(next(stream) for _ in range(8)) == [int(endless[i]) for i in range(1, 64, 2)]


def test_other_sources_of_several_ranks_have_other_positions() -> None:
    pipe = Pipeline(2, num_threads=1)
    ranks = {"shard_id": 0, "num_shards": 2}
    other = fn.external_source(lambda info: np.int64(info.idx_in_epoch), size=22, batch=False, **ranks)
    pipe.set_outputs(fn.external_source(NUMBERS, **ranks), other)
    with pytest.raises(ArgumentClashError, match=r"ComposedDataset.zip\(\[a, ComposedDataset.source\(b\)\]\)"):
        pipe.build()


def test_the_class_and_spawned_workers_take_composed_datasets() -> None:
    pipe = Pipeline(11, num_threads=1, py_start_method="spawn", py_num_workers=1)
    pipe.set_outputs(ops.ExternalSource(NUMBERS, parallel=True)(), ops.ExternalSource(FILTERED, parallel=True)())
    with closing(pipe):
        first, second = ([int(np.asarray(sample)) for sample in output] for output in pipe.run())

    assert first == [int(NUMBERS[i]) for i in range(11)]
    assert second == [int(x) for x in FILTERED][:11]


def test_a_serialized_pipeline_has_an_input_in_place_of_the_dataset() -> None:
    pipe = Pipeline(2, num_threads=1)
    pipe.set_outputs(fn.external_source(NUMBERS, name="numbers"))
    with closing(Pipeline.deserialize(pipe.serialize())) as copy:
        copy.feed_input("numbers", [np.int64(4), np.int64(5)])
        assert next(batches(copy)) == [4, 5]
