"""Shards: each rank delivers its part of an epoch, nothing comes twice, and nothing is missing."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.sources.ranks import detect_shard
from dali_like.sources.sharding import Division, Rest, Shard, part_begins
from dali_like.types import BatchInfo, SampleInfo

BATCH_SIZE = 3
END = [-1]


def sample(info: SampleInfo) -> Any:
    return np.int64(info.idx_in_epoch)


def sample_until_17(info: SampleInfo) -> Any:
    if info.idx_in_epoch >= 17:
        raise StopIteration
    return sample(info)


def batch(number: int) -> Any:
    return np.full(2, number)


def batch_by_info(info: BatchInfo) -> Any:
    return batch(info.iteration)


def batches() -> Iterator[Any]:
    yield from map(batch, range(5))


#: Sources of five batches, with their options.
SOURCES: dict[str, tuple[Any, dict[str, int]]] = {
    "callable": (batch, {"size": 5}),
    "generator function": (batches, {}),
    "list": ([batch(number) for number in range(5)], {}),
}


def rank_of(source: Any, rank: int, ranks: int, way: str = "serial", **options: Any) -> Pipeline:
    """The pipeline of one rank."""
    method = {} if way == "serial" else {"py_start_method": way, "py_num_workers": 2}
    pipe = Pipeline(BATCH_SIZE, num_threads=1, seed=1, **method)
    source = fn.external_source(source, shard_id=rank, num_shards=ranks, parallel=way != "serial", **options)
    pipe.set_outputs(source)
    return pipe


def epochs_of(pipe: Pipeline, count: int = 2) -> list[list[list[int]]]:
    """The batches of the next epochs."""
    with closing(pipe):
        return [[outputs[0].as_array().tolist() for outputs in pipe] for _ in range(count)]


def epochs(source: Any, ranks: int = 2, way: str = "serial", **options: Any) -> list[list[list[int]]]:
    """The batches of each rank, in the second of two epochs."""
    return [epochs_of(rank_of(source, rank, ranks, way, **options))[1] for rank in range(ranks)]


# Which batches a rank has


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize(
    ("rest", "first", "second"),
    [
        ("drop", [[0, 1, 2], [6, 7, 8]], [[3, 4, 5], [9, 10, 11]]),
        ("pad", [[0, 1, 2], [6, 7, 8], [12, 13, 14]], [[3, 4, 5], [9, 10, 11], [15, 16, 0]]),
        ("uneven", [[0, 1, 2], [6, 7, 8], [12, 13, 14]], [[3, 4, 5], [9, 10, 11], [15, 16]]),
    ],
)
def test_ranks_take_batches_in_turn(way: str, rest: str, first: Any, second: Any) -> None:
    assert epochs(sample, way=way, batch=False, size=17, shard_rest=rest) == [first, second]


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("name", SOURCES)
def test_whole_batches_are_taken_in_turn(name: str, way: str) -> None:
    source, options = SOURCES[name]

    seen = epochs(source, way=way, shard_rest="uneven", **options)

    assert seen == [[[0, 0], [2, 2], [4, 4]], [[1, 1], [3, 3]]]


def test_a_batch_info_has_the_number_among_all_ranks() -> None:
    assert epochs(batch_by_info, batch_info=True, size=4) == [[[0, 0], [2, 2]], [[1, 1], [3, 3]]]


@pytest.mark.parametrize("way", ["serial", "fork", "thread"])
@pytest.mark.parametrize("name", ["callable", "list"])
def test_whole_batches_are_padded_by_the_first_ones(name: str, way: str) -> None:
    source, options = SOURCES[name]

    seen = epochs(source, way=way, shard_rest="pad", **options)

    assert seen == [[[0, 0], [2, 2], [4, 4]], [[1, 1], [3, 3], [0, 0]]]


def test_samples_of_an_iterable_are_padded_by_the_first_ones() -> None:
    samples = [np.int64(i) for i in range(7)]

    assert epochs(samples, batch=False, shard_rest="pad") == [[[0, 1, 2], [6, 0, 1]], [[3, 4, 5], [2, 3, 4]]]


def test_an_iterator_goes_on_in_the_next_epoch() -> None:
    pipes = [rank_of(map(batch, range(9)), rank, 2, shard_rest="uneven") for rank in range(2)]
    taken = []
    for pipe in pipes:
        with closing(pipe):
            first = [pipe.run()[0].as_array()[0] for _ in range(2)]
            pipe.reset()
            taken.append([*first, *(outputs[0].as_array()[0] for outputs in pipe)])

    assert taken == [[0, 2, 4, 6, 8], [1, 3, 5, 7]]


def test_an_epoch_of_unknown_length_ends_where_the_source_says() -> None:
    seen = epochs(sample_until_17, 3, batch=False, shard_rest="uneven")

    assert sorted(number for rank in seen for numbers in rank for number in numbers) == list(range(17))
    assert [rank[-1] for rank in seen] == [[9, 10, 11], [12, 13, 14], [15, 16]]


def test_the_length_is_that_of_the_part() -> None:
    for rest, lengths in (("drop", [2, 2, 2]), ("pad", [3, 3, 3]), ("uneven", [3, 3, 2])):
        pipes = [rank_of(sample, rank, 3, batch=False, size=23, shard_rest=rest) for rank in range(3)]

        assert [len(pipe) for pipe in pipes] == lengths


@pytest.mark.parametrize("is_striped", [False, True])
@pytest.mark.parametrize("rest", Rest)
@pytest.mark.parametrize("length", [0, 1, 5, 6, 7, 12, 35, 36, 37])
@pytest.mark.parametrize("ranks", [1, 2, 6])
def test_parts_make_the_whole(length: int, ranks: int, rest: Rest, is_striped: bool) -> None:
    size = 2
    positions, counts = [], []
    for rank in range(ranks):
        division = Division(length, size, Shard(rank, ranks), rest, is_striped)
        num_batches, last = division.sizes()
        counts.append(num_batches)
        for iteration in range(num_batches):
            begin = iteration * division.step
            count = last if iteration == num_batches - 1 else size
            assert division.count(begin) == count
            first = division.first(begin)
            of_step = range(first, begin + division.step, ranks) if is_striped else range(first, first + size)
            positions += [division.item(position) for position in of_step[:count]]
        assert division.count(num_batches * division.step) == 0

    whole = length // (ranks * size) * ranks * size
    assert sorted(set(positions)) == list(range(whole if rest is Rest.DROP else length))
    if rest is not Rest.PAD:
        assert len(positions) == len(set(positions))
    if rest is not Rest.UNEVEN:
        assert len(set(counts)) == 1
        assert len(positions) == sum(counts) * size


@pytest.mark.parametrize("is_striped", [False, True])
@pytest.mark.parametrize("rest", Rest)
@pytest.mark.parametrize("begin", [0, 3])
def test_steps_count_the_batches_of_each_rank_from_any_position_on(rest: Rest, begin: int, is_striped: bool) -> None:
    length, ranks, batch_size = 23, 3, 2
    counts = [0] * ranks
    for step in range(begin, length + 6, 6):
        for rank in range(ranks):
            counts[rank] += Division(length, batch_size, Shard(rank, ranks), rest, is_striped).count(step)

    left = length - begin
    assert sum(counts) == {Rest.DROP: left // 6 * 6, Rest.PAD: -(-left // 6) * 6, Rest.UNEVEN: left}[rest]


def test_endless_stream_has_only_full_steps() -> None:
    assert Division(None, 4, Shard(1, 2), Rest.DROP, is_striped=True).count(10**12) == 4


@pytest.mark.parametrize("length", [0, 5, 12, 13])
def test_consecutive_parts_differ_by_one_item_at_most(length: int) -> None:
    begins = part_begins(length, 5)

    sizes = [end - begin for begin, end in itertools.pairwise(begins)]
    assert (begins[0], begins[-1], len(sizes)) == (0, length, 5)
    assert max(sizes) - min(sizes) <= 1


# Values that depend on the position


def noisy(info: SampleInfo) -> Any:
    return info.rng().integers(1 << 30)


def with_operators(rank: int, ranks: int, batch_size: int, threads: int) -> list[Any]:
    """Batches of one rank, with random numbers of the source's and of an operator's."""
    pipe = Pipeline(batch_size, num_threads=threads, py_num_workers=2, seed=1)
    source = fn.external_source(noisy, batch=False, parallel=True, size=24, shard_id=rank, num_shards=ranks)
    pipe.set_outputs(source, fn.random.uniform(source))
    with closing(pipe):
        return [np.stack([np.float64(output.as_array()) for output in outputs], axis=1) for outputs in pipe]


@pytest.mark.parametrize("threads", [1, 4], ids=["operators in workers", "operators in threads"])
def test_random_numbers_belong_to_the_position(threads: int) -> None:
    whole = np.concatenate(with_operators(0, 1, 12, 1))
    parts = zip(*(with_operators(rank, 3, 4, threads) for rank in range(3)), strict=True)

    assert len(np.unique(whole[:, 1])) == 24
    assert np.array_equal(np.concatenate([np.concatenate(part) for part in parts]), whole)


# Which rank this is


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without launcher variables, in a process that has not initialized a framework."""
    for prefix in ("", "OMPI_COMM_WORLD_", "PMI_"):
        for name in ("RANK", "WORLD_SIZE", "SIZE"):
            monkeypatch.delenv(prefix + name, raising=False)
    for name in ("SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("torch.distributed", "jax._src.distributed"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ],
)
def test_detect_shard_reads_the_variables_of_each_launcher(environment: pytest.MonkeyPatch, rank: str, size: str) -> None:
    environment.setenv(rank, "3")
    environment.setenv(size, "8")

    assert detect_shard() == Shard(3, 8)


def test_the_launcher_inside_counts(environment: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "RANK": "5", "WORLD_SIZE": "16"}.items():
        environment.setenv(name, value)

    assert detect_shard() == Shard(5, 16)


def test_frameworks_that_are_initialised_count_more(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("RANK", "1")
    environment.setenv("WORLD_SIZE", "2")
    jax = SimpleNamespace(global_state=SimpleNamespace(client=object(), process_id=4, num_processes=6))
    environment.setitem(sys.modules, "jax._src.distributed", jax)
    assert detect_shard() == Shard(4, 6)
    torch = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 7, get_world_size=lambda: 9
    )
    environment.setitem(sys.modules, "torch.distributed", torch)
    assert detect_shard() == Shard(7, 9)


def test_frameworks_that_are_not_initialised_say_nothing(environment: pytest.MonkeyPatch) -> None:
    jax = SimpleNamespace(global_state=SimpleNamespace(client=None, process_id=0, num_processes=None))
    environment.setitem(sys.modules, "jax._src.distributed", jax)
    environment.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_available=lambda: False))

    assert detect_shard() == Shard(0, 1)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "1"}, "RANK is set in the environment, and WORLD_SIZE is not"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK in the environment should be a number, not 'one'"),
        ({"PMI_RANK": "2", "PMI_SIZE": "2"}, "PMI_RANK must be from 0 to PMI_SIZE - 1, which is 1, not 2"),
    ],
    ids=str,
)
def test_environments_that_cannot_be(environment: pytest.MonkeyPatch, variables: dict[str, str], message: str) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)

    with pytest.raises(ArgumentError, match=message):
        detect_shard()


def test_source_with_shard_auto_takes_the_shard_of_its_rank(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("RANK", "1")
    environment.setenv("WORLD_SIZE", "2")
    pipe = Pipeline(BATCH_SIZE, num_threads=1)

    pipe.set_outputs(fn.external_source(sample, batch=False, shard="auto", size=12))

    assert epochs_of(pipe, 1) == [[[3, 4, 5], [9, 10, 11]]]


# Refused arguments, and warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard": "yes"}, 'shard must be "auto" or None'),
        ({"shard": "auto", "shard_id": 0, "num_shards": 2}, "pass either it or them"),
        ({"shard_id": 0}, "shard_id and num_shards belong together; got 0 and None"),
        ({"shard_id": 2, "num_shards": 2}, "shard_id must be from 0 to num_shards - 1, which is 1, not 2"),
        ({"shard_id": -1, "num_shards": 2}, "shard_id must be an integer from 0 on"),
        ({"shard_id": 0, "num_shards": 0}, "num_shards must be a positive integer"),
        ({"shard_rest": "pad"}, "shard_rest is for shards"),
        ({"shard_id": 0, "num_shards": 2, "shard_rest": "cut"}, "must be one of 'drop', 'pad', 'uneven', not 'cut'"),
        ({"shard_id": 0, "num_shards": 2, "last_batch_policy": "fill"}, "use shard_rest for the last samples"),
        ({"shard_id": 0, "num_shards": 2}, "pass size=, use a source that has __len__"),
        ({"shard_id": 0, "num_shards": 2, "shard_rest": "pad"}, "shard_rest='pad'"),
    ],
    ids=str,
)
def test_arguments_that_say_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        fn.external_source(sample, batch=False, **options)


def test_shards_of_workers_are_not_those_of_ranks() -> None:
    with pytest.raises(ArgumentClashError, match="divides itself among the workers"):
        fn.external_source(batches, parallel=True, sharded=True, shard_id=0, num_shards=2)


@pytest.mark.parametrize("other", [{}, {"shard_id": 1, "num_shards": 3}], ids=["none", "another"])
def test_callables_of_a_pipeline_have_one_shard(other: dict[str, int]) -> None:
    pipe = Pipeline(2, num_threads=1)
    first = fn.external_source(sample, batch=False, size=12, shard_id=0, num_shards=3)
    second = fn.external_source(sample, batch=False, size=12, **other)
    pipe.set_outputs(first, second)

    with pytest.raises(ArgumentClashError, match="must have the same shard"):
        pipe.build()


class Samples:
    """Callables that have a length."""

    def __len__(self) -> int:
        return 17

    def __call__(self, info: SampleInfo) -> Any:
        return sample(info)


def test_samples_that_get_lost_unsaid_are_pointed_out() -> None:
    pipe = rank_of(Samples(), 0, 2, batch=False)

    with closing(pipe), pytest.warns(UserWarning, match="2 ranks take 6 at once: the last 5 of each epoch are dropped"):
        pipe.build()
