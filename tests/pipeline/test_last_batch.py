"""The length of an epoch, and the treatment of its incomplete last batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, get_worker_info, pipeline_def, types
from dali_like.errors import ArgumentClashError, ArgumentError, BatchSizeError, DefinitionError
from dali_like.plugin import LastBatchPolicy
from dali_like.types import BatchInfo, SampleInfo
from tests.conftest import in_both_places

BATCH_SIZE = 4
POLICIES = ("drop", "partial", "fill")

MakePipeline = Callable[..., Pipeline]
Source = Callable[[SampleInfo], Any]


def numbers(length: int | None = None, value: Callable[[int], Any] = np.int64) -> Source:
    """A source of numbers, whose epochs end by StopIteration after so many samples."""

    def source(info: SampleInfo) -> Any:
        if length is not None and info.idx_in_epoch >= length:
            raise StopIteration
        return value(info.idx_in_epoch)

    return source


def expected_batches(length: int, policy: str, batch_size: int = BATCH_SIZE) -> list[list[int]]:
    """The batches of an epoch of consecutive numbers."""
    batches = [list(range(i, min(i + batch_size, length))) for i in range(0, length, batch_size)]
    if batches and len(batches[-1]) < batch_size:
        last = batches.pop()
        if policy == "partial":
            batches.append(last)
        elif policy == "fill":
            batches.append(last + last[-1:] * (batch_size - len(last)))
    return batches


def samples_of(output: Any) -> list[Any]:
    """The samples of a batch of arrays or of objects."""
    return list(output) if isinstance(output, list) else [output.at(i).tolist() for i in range(len(output))]


def epoch_of(pipe: Pipeline) -> list[list[Any]]:
    """The batches of an epoch, of the first output."""
    return [samples_of(outputs[0]) for outputs in pipe]


# Which samples are delivered


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("known", [False, True], ids=["StopIteration", "size"])
@pytest.mark.parametrize("length", [0, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_epochs_of_any_length(length: int, known: bool, policy: str, way: str, make_pipeline: MakePipeline) -> None:
    options = {"last_batch_policy": policy, "size": length if known else None}
    pipe = make_pipeline(numbers(None if known else length), way, source_options=options)

    for _ in range(2):
        assert epoch_of(pipe) == expected_batches(length, policy)
        with pytest.raises(StopIteration):
            pipe.run()


def by_length(number: int) -> NDArray[Any]:
    return np.full(number % 3 + 1, number)


def by_object(number: int) -> Any:
    return {"number": number}


KINDS: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "dense": (lambda number: np.full((2, 3), number), {}),
    "ragged": (by_length, {}),
    "objects": (by_object, {"dtype": types.OBJECT}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("length", "policy"), [(2, "fill"), (11, "partial"), (11, "fill")])
@in_both_places
def test_samples_of_any_kind(length: int, kind: str, policy: str, way: str, make_pipeline: MakePipeline) -> None:
    value, options = KINDS[kind]
    pipe = make_pipeline(numbers(length, value), way, source_options={"last_batch_policy": policy, **options})

    expected = [
        [np.asarray(value(number)).tolist() for number in batch] if kind != "objects" else [value(n) for n in batch]
        for batch in expected_batches(length, policy)
    ]
    for _ in range(2):
        assert epoch_of(pipe) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_repeated_samples_that_fill_a_batch_have_memory_of_their_own(
    kind: str, way: str, make_pipeline: MakePipeline
) -> None:
    value, options = KINDS[kind]
    pipe = make_pipeline(numbers(6, value), way, source_options={"last_batch_policy": "fill", **options})
    pipe.run()

    (batch,) = pipe.run()

    if kind == "objects":
        assert batch[1] is not batch[2] is not batch[3]
    else:
        batch.at(2)[...] = -1
        assert [sample.flat[0] for sample in map(np.asarray, batch)] == [4, 5, -1, 5]


@pytest.mark.parametrize("policy", ["partial", "fill"])
@in_both_places
def test_several_outputs(policy: str, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= 6:
            raise StopIteration
        return np.int64(info.idx_in_epoch), by_length(info.idx_in_epoch), by_object(info.idx_in_epoch)

    options = {"last_batch_policy": policy, "dtype": [None, None, types.OBJECT]}
    pipe = make_pipeline(source, way, num_outputs=3, source_options=options)

    for _ in range(2):
        epoch = list(pipe)
        assert len(epoch) == 2
        for outputs, batch in zip(epoch, expected_batches(6, policy), strict=True):
            assert samples_of(outputs[0]) == batch
            assert samples_of(outputs[1]) == [by_length(number).tolist() for number in batch]
            assert outputs[2] == [by_object(number) for number in batch]


@pytest.mark.parametrize("batch_size", [1, 2, 7, 33])
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_and_samples(batch_size: int, workers: int, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(
        numbers(50), batch_size=batch_size, workers=workers, source_options={"last_batch_policy": "partial"}
    )

    assert epoch_of(pipe) == expected_batches(50, "partial", batch_size)


@pytest.mark.parametrize("policy", POLICIES)
@in_both_places
def test_epochs_of_different_lengths(policy: str, way: str, make_pipeline: MakePipeline) -> None:
    lengths = [2, 0, 9, 4, 7]

    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= lengths[info.epoch_idx]:
            raise StopIteration
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way, source_options={"last_batch_policy": policy})

    for length in lengths:
        assert epoch_of(pipe) == expected_batches(length, policy)
        pipe.reset() if not length else None


@pytest.mark.parametrize("policy", [*LastBatchPolicy, "PARTIAL"])
def test_policies_may_be_those_of_iterators(policy: Any, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(5), "serial", source_options={"last_batch_policy": policy})

    name = policy if isinstance(policy, str) else policy.name
    assert epoch_of(pipe) == expected_batches(5, name.lower())


def test_batches_that_are_held_stay_as_they_were(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(6), way, source_options={"last_batch_policy": "partial"})

    held = [outputs[0] for _ in range(4) for outputs in pipe]
    pipe.close()

    assert [samples_of(batch) for batch in held] == expected_batches(6, "partial") * 4


# Where it ends


@pytest.mark.parametrize(("size", "expected"), [(6, 6), (None, 7)], ids=["size", "StopIteration"])
@pytest.mark.parametrize("depth", [1, 4])
def test_the_callable_is_not_asked_for_more(
    depth: int, size: int | None, expected: int, make_pipeline: MakePipeline
) -> None:
    asked = []

    def source(info: SampleInfo) -> Any:
        asked.append(info.idx_in_epoch)
        return numbers(None if size else 6)(info)

    options = {"last_batch_policy": "partial", "size": size}
    pipe = make_pipeline(source, "serial", prefetch_queue_depth=depth, source_options=options)

    assert epoch_of(pipe) == expected_batches(6, "partial")
    assert asked == list(range(expected))


def test_the_first_stop_iteration_is_the_end(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 5:
            raise StopIteration
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way, source_options={"last_batch_policy": "partial"})

    for _ in range(3):
        assert epoch_of(pipe) == [[0, 1, 2, 3], [4]]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_stop_iteration_may_come_before_the_size(policy: str, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(6), way, source_options={"last_batch_policy": policy, "size": 100})

    for _ in range(2):
        assert epoch_of(pipe) == expected_batches(6, policy)


@pytest.mark.parametrize("policy", ["partial", "fill"])
@in_both_places
def test_an_error_behind_the_end_is_dropped(policy: str, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch > 5:
            raise LookupError("there is no such sample")
        if info.idx_in_epoch == 5:
            raise StopIteration
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way, source_options={"last_batch_policy": policy})

    for _ in range(2):
        assert epoch_of(pipe) == expected_batches(5, policy)


@pytest.mark.parametrize("policy", ["partial", "fill"])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_an_error_before_the_end_is_raised(policy: str, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 4:
            raise LookupError("not this one")
        if info.idx_in_epoch > 4:
            raise StopIteration
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way, source_options={"last_batch_policy": policy})

    assert samples_of(pipe.run()[0]) == [0, 1, 2, 3]
    with pytest.raises(LookupError, match="not this one"):
        pipe.run()
    with pytest.raises(StopIteration):
        pipe.run()


@pytest.mark.parametrize("large", [3, 5])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_a_sample_too_large_for_its_slot_before_the_end_or_behind_it(
    large: int, way: str, make_pipeline: MakePipeline
) -> None:
    def source(info: SampleInfo) -> Any:
        index = info.idx_in_epoch
        if index in (14, 15) and large == 5:
            return np.zeros(40 << 20, np.uint8) if index == 15 else by_end()
        if index >= 14:
            return by_end()
        return np.full(40 << 20 if index == 8 + large else index % 3, index, np.uint8)

    def by_end() -> Any:
        raise StopIteration

    pipe = make_pipeline(source, way, source_options={"last_batch_policy": "partial"})

    sizes = [batch.shape() for (batch,) in pipe]

    assert [len(batch) for batch in sizes] == [4, 4, 4, 2]
    assert sizes[2][3] == ((40 << 20,) if large == 3 else (2,))


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_the_next_epoch_begins_at_its_beginning(depth: int, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        return np.array([info.epoch_idx, info.idx_in_epoch])

    options = {"last_batch_policy": "partial", "size": 6}
    pipe = make_pipeline(source, way, prefetch_queue_depth=depth, source_options=options)

    for epoch in range(4):
        assert epoch_of(pipe) == [[[epoch, i] for i in range(4)], [[epoch, 4], [epoch, 5]]]


@pytest.mark.parametrize("policy", ["partial", "fill"])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_reset_before_the_incomplete_batch(policy: str, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(6), way, source_options={"last_batch_policy": policy})

    pipe.run()
    pipe.reset()

    assert epoch_of(pipe) == expected_batches(6, policy)


@pytest.mark.parametrize("policy", ["partial", "fill"])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_on_error_stands_in_up_to_the_end(policy: str, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= 6:
            raise StopIteration
        if info.idx_in_epoch in (0, 5):
            raise ValueError("bad")
        return np.int64(info.idx_in_epoch)

    options = {"last_batch_policy": policy, "on_error": lambda info, error: np.int64(-1)}
    pipe = make_pipeline(source, way, source_options=options)

    assert epoch_of(pipe) == [[-1, 1, 2, 3], [4, -1] if policy == "partial" else [4, -1, -1, -1]]


# Sources of other kinds


@pytest.mark.parametrize("policy", POLICIES)
def test_iterables_of_samples(policy: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline([np.int64(i) for i in range(6)], "serial", source_options={"last_batch_policy": policy})

    for _ in range(2):
        assert epoch_of(pipe) == expected_batches(6, policy)
    assert len(pipe) == len(expected_batches(6, policy))


@pytest.mark.parametrize("policy", POLICIES)
def test_shards(policy: str, make_pipeline: MakePipeline) -> None:
    class Shards:
        def __iter__(self) -> Iterator[Any]:
            info = get_worker_info()
            assert info is not None
            return iter([np.int64(10 * info.id + i) for i in range(6)])

    pipe = make_pipeline(Shards(), source_options={"last_batch_policy": policy, "sharded": True})

    batches = [[[10 * worker + number for number in batch] for worker in range(2)] for batch in expected_batches(6, policy)]
    for _ in range(2):
        assert epoch_of(pipe) == [batch for turn in batches for batch in turn]


def test_batches_may_be_of_any_size_by_themselves(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: BatchInfo) -> Any:
        if info.iteration == 3:
            raise StopIteration
        return np.arange(3 - info.iteration)

    pipe = make_pipeline(source, way, source_options={"batch": True, "batch_info": True})

    for _ in range(2):
        assert epoch_of(pipe) == [[0, 1, 2], [0, 1], [0]]


@pytest.mark.parametrize("policy", ["partial", "fill"])
@in_both_places
def test_coroutines(policy: str, way: str, make_pipeline: MakePipeline) -> None:
    plain = numbers(6)

    async def source(info: SampleInfo) -> Any:
        return plain(info)

    pipe = make_pipeline(source, way, source_options={"last_batch_policy": policy})

    for _ in range(2):
        assert epoch_of(pipe) == expected_batches(6, policy)


# Several sources


def pipeline_of(sources: dict[str, tuple[int | None, str]], way: str = "serial", **options: Any) -> Pipeline:
    """A pipeline of sources of numbers, by name, with the lengths of their epochs and their policies."""
    method = {} if way == "serial" else {"py_start_method": way}

    @pipeline_def(**{"batch_size": BATCH_SIZE, "num_threads": 2, "py_num_workers": 2, **method, **options})
    def pipeline() -> Any:
        return [
            fn.external_source(
                source=numbers(length), batch=False, parallel=way != "serial", name=name, last_batch_policy=policy
            )
            for name, (length, policy) in sources.items()
        ]

    return pipeline()


@pytest.mark.parametrize("policy", ["partial", "fill"])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_sources_that_end_together_may_end_alike(policy: str, way: str) -> None:
    with closing(pipeline_of({"one": (6, policy), "other": (6, policy)}, way)) as pipe:
        for _ in range(2):
            assert [list(map(samples_of, outputs)) for outputs in pipe] == [[b, b] for b in expected_batches(6, policy)]


def test_the_source_that_drops_its_last_batch_ends_the_epoch(way: str) -> None:
    with closing(pipeline_of({"one": (6, "partial"), "other": (6, "drop")}, way)) as pipe:
        for _ in range(2):
            assert epoch_of(pipe) == expected_batches(6, "drop")


def test_sources_that_do_not_end_alike_clash(way: str) -> None:
    with closing(pipeline_of({"one": (6, "partial"), "other": (None, "drop")}, way)) as pipe:
        for _ in range(2):
            assert samples_of(pipe.run()[1]) == [0, 1, 2, 3]
            with pytest.raises(BatchSizeError, match=r"'one' returned 2 samples, .*'other' returned 4 samples"):
                pipe.run()
            with pytest.raises(StopIteration):
                pipe.run()
            pipe.reset()


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_a_clash_before_operators_is_raised_when_it_is_its_turn(depth: int, way: str) -> None:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, py_num_workers=2, prefetch_queue_depth=depth)
    def pipeline() -> Any:
        options = {"batch": False, "parallel": way != "serial"}
        one = fn.external_source(source=numbers(10), last_batch_policy="partial", **options)
        return one, fn.external_source(source=numbers(), **options).shape()

    with closing(pipeline()) as pipe:
        for _ in range(2):
            assert [samples_of(pipe.run()[0]) for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
            with pytest.raises(BatchSizeError):
                pipe.run()
            with pytest.raises(StopIteration):
                pipe.run()
            pipe.reset()


@pytest.mark.parametrize("policy", ["partial", "fill"])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_operators_and_constants_are_as_long(policy: str, depth: int, way: str) -> None:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, py_num_workers=2, prefetch_queue_depth=depth)
    def pipeline() -> Any:
        data = fn.external_source(
            source=numbers(6, by_length), batch=False, parallel=way != "serial", last_batch_policy=policy
        )
        return data, data.shape(), 7

    with closing(pipeline()) as pipe:
        for _ in range(2):
            epoch = [[samples_of(output) for output in outputs] for outputs in pipe]
            for (data, shapes, constants), batch in zip(epoch, expected_batches(6, policy), strict=True):
                assert data == [by_length(number).tolist() for number in batch]
                assert shapes == [[number % 3 + 1] for number in batch]
                assert constants == [7] * len(batch)


# The number of batches


class Numbers:
    """Numbers that know how many they are."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __call__(self, info: SampleInfo) -> Any:
        return np.int64(info.idx_in_epoch)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("length", [0, 3, 4, 9])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_length_of_a_source_that_has_one(length: int, policy: str, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Numbers(length), way, source_options={"last_batch_policy": policy})

    assert len(pipe) == len(expected_batches(length, policy))
    assert epoch_of(pipe) == expected_batches(length, policy)


@pytest.mark.parametrize("batch", [False, True])
def test_length_alone_does_not_end_the_epoch(batch: bool, make_pipeline: MakePipeline) -> None:
    source = Numbers(7) if not batch else NumberedBatches(7)
    pipe = make_pipeline(source, "serial", source_options={"batch": batch})

    assert len(pipe) == (7 if batch else 1)
    with pytest.warns(UserWarning, match=r"has a len\(\) of 7, which does not end the epoch.* size=7$"):
        batches = [pipe.run()[0].as_array().tolist() for _ in range(10)]
    assert batches[-1] == list(range(9 * BATCH_SIZE, 10 * BATCH_SIZE))


def test_length_of_an_iterable_is_no_reason_to_warn(make_pipeline: MakePipeline) -> None:
    batches = [np.arange(2), np.arange(3)]

    assert epoch_of(make_pipeline(batches, "serial", source_options={"batch": True})) == [[0, 1], [0, 1, 2]]


class NumberedBatches(Numbers):
    """The same as a source of batches."""

    def __call__(self, iteration: Any) -> Any:
        return np.arange(iteration * BATCH_SIZE, (iteration + 1) * BATCH_SIZE)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_size_comes_before_the_length_of_the_source(policy: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Numbers(100), "serial", source_options={"last_batch_policy": policy, "size": 6})

    assert len(pipe) == len(expected_batches(6, policy))
    assert epoch_of(pipe) == expected_batches(6, policy)


def test_length_of_batches(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda i: np.arange(2) + i, way, source_options={"batch": True, "size": 3})

    assert len(pipe) == 3
    assert epoch_of(pipe) == [[0, 1], [1, 2], [2, 3]]


def test_length_of_a_list_of_batches(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline([np.arange(2), np.arange(3)], way, source_options={"batch": True})

    assert len(pipe) == 2
    assert epoch_of(pipe) == [[0, 1], [0, 1, 2]]


def test_the_shortest_source_decides() -> None:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1)
    def pipeline() -> Any:
        return [fn.external_source(source=numbers(), batch=False, size=size) for size in (20, 9, None, 100)]

    with closing(pipeline()) as pipe:
        assert len(pipe) == 2
        for _ in range(2):
            assert len(list(pipe)) == 2


def test_a_known_length_is_there_before_anything_has_started(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Numbers(9), "fork")

    assert len(pipe) == 2
    assert pipe.py_worker_pids == []


UNKNOWN_LENGTHS: dict[str, tuple[Any, dict[str, Any]]] = {
    "callable": (numbers(9), {}),
    "generator function": (lambda: (yield np.int64(0)), {}),
    "iterator": (iter([np.int64(0)]), {}),
    "endless": ([np.int64(0)], {"cycle": "quiet"}),
}


@pytest.mark.parametrize("case", UNKNOWN_LENGTHS)
def test_unknown_lengths(case: str, make_pipeline: MakePipeline) -> None:
    source, options = UNKNOWN_LENGTHS[case]
    pipe = make_pipeline(source, "serial", source_options=options)

    with pytest.raises(DefinitionError, match="the length of an epoch is unknown"):
        len(pipe)
    assert pipe


def test_a_length_that_is_unknown_is_no_obstacle_to_a_list(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(9), "serial")

    assert [samples_of(outputs[0]) for outputs in list(pipe)] == expected_batches(9, "drop")


def test_a_loop_goes_on_from_where_the_epoch_is(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Numbers(11), way, source_options={"last_batch_policy": "partial"})
    pipe.run()

    assert epoch_of(pipe) == expected_batches(11, "partial")[1:]
    assert epoch_of(pipe) == expected_batches(11, "partial")


def test_inputs_and_constants_do_not_count() -> None:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1)
    def pipeline() -> Any:
        return fn.external_source(name="x"), fn.external_source(source=Numbers(9), batch=False), 3

    with closing(pipeline()) as pipe:
        assert len(pipe) == 2


# Refused arguments


@pytest.mark.parametrize("policy", ["dropped", "", 3, True])
def test_unknown_policies_are_refused(policy: Any) -> None:
    with pytest.raises(ArgumentError, match="last_batch_policy must be one of 'drop', 'partial', 'fill'"):
        fn.external_source(source=numbers(), batch=False, last_batch_policy=policy)


@pytest.mark.parametrize("policy", ["partial", "fill"])
def test_batches_have_no_policy(policy: str) -> None:
    with pytest.raises(ArgumentClashError, match="last_batch_policy is for sources of samples"):
        fn.external_source(source=np.arange, last_batch_policy=policy)


@pytest.mark.parametrize("size", [-1, 1.5, "4", True])
def test_wrong_sizes_are_refused(size: Any) -> None:
    with pytest.raises(ArgumentError, match="size must be the number of samples"):
        fn.external_source(source=numbers(), batch=False, size=size)


def test_an_iterator_that_goes_on_has_no_size() -> None:
    with pytest.raises(ArgumentError, match="an iterator cannot restart"):
        fn.external_source(source=iter([1, 2]), batch=False, size=2)


def test_shards_have_no_size() -> None:
    with pytest.raises(ArgumentError, match="leave size out"):
        fn.external_source(source=[1, 2], batch=False, parallel=True, sharded=True, size=2)
