"""Several pipelines: their batches as one array over several devices, and which part of the data is whose."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from dali_like import Pipeline, fn, types
from dali_like.errors import ArgumentError, ArgumentTypeError, IteratorArgumentError, ShardError
from dali_like.plugin.jax import DALIGenericIterator, data_iterator

from ..conftest import Library
from ..iterators import quiet

MakePipeline = Callable[..., Pipeline]

DEVICES = jax.devices()


def split(devices: Sequence[Any] = DEVICES, *names: str | None, shape: tuple[int, ...] | None = None) -> Sharding:
    """A sharding over devices, by default along the first dimension."""
    mesh = Mesh(np.array(devices).reshape(shape or len(devices)), ("data", "model")[: len(shape or (0,))])
    return NamedSharding(mesh, PartitionSpec(*(names or ("data",))))


def numbered(first: int) -> Callable[[Any], Any]:
    """A source of rows: the number of the sample, twice."""
    return lambda info: np.full(2, first + info.idx_in_epoch, np.int32)


def pipelines(make_pipeline: MakePipeline, number: int, way: str = "serial") -> list[Pipeline]:
    """Pipelines of batches of 3, the first from 0, the second from 100, and so on."""
    return [make_pipeline(numbered(100 * i), way, batch_size=3) for i in range(number)]


def places(array: Any) -> dict[int, list[int]]:
    """The place of the data: by the number of the device, the first column of its shard."""
    return {shard.device.id: np.asarray(shard.data)[..., 0].ravel().tolist() for shard in array.addressable_shards}


# One array along the first dimension


def test_a_shard_for_each_device(make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(pipelines(make_pipeline, 8), ["x"], sharding=split())

    next(iterator)
    batch = next(iterator)

    assert (batch["x"].shape, batch["x"].sharding) == ((24, 2), split())
    assert places(batch["x"]) == {i: [100 * i + 3, 100 * i + 4, 100 * i + 5] for i in range(8)}


def test_shards_are_not_copied(make_pipeline: MakePipeline) -> None:
    class Spy(DALIGenericIterator):
        def _convert(self, name: str, output: Any) -> Any:
            self.addresses = [*getattr(self, "addresses", []), output.data_ptr()]
            return super()._convert(name, output)

    iterator = Spy(pipelines(make_pipeline, 4), ["x"], sharding=split(DEVICES[:4]))
    next(iterator)
    iterator.addresses = []
    batch = next(iterator)

    assert [shard.data.unsafe_buffer_pointer() for shard in batch["x"].addressable_shards] == iterator.addresses


def test_shards_that_are_kept_do_not_change(make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(pipelines(make_pipeline, 2), ["x"], sharding=split(DEVICES[:2]))

    kept = [batch["x"] for batch in itertools.islice(iterator, 20)]

    firsts = [np.asarray(array)[[0, 3], 0].tolist() for array in kept]
    assert firsts == [[3 * i, 100 + 3 * i] for i in range(20)]


def test_pipelines_belong_to_devices_in_the_order_of_their_numbers(make_pipeline: MakePipeline) -> None:
    """As in DALI, where the first pipeline is on the first GPU wherever that is in the mesh."""
    iterator = DALIGenericIterator(pipelines(make_pipeline, 3), ["x"], sharding=split([DEVICES[i] for i in (5, 2, 7)]))

    batch = next(iterator)

    assert places(batch["x"]) == {2: [0, 1, 2], 5: [100, 101, 102], 7: [200, 201, 202]}
    assert np.asarray(batch["x"])[::3, 0].tolist() == [100, 0, 200]


def test_all_axes_of_a_mesh_may_split_the_first_dimension(make_pipeline: MakePipeline) -> None:
    sharding = NamedSharding(Mesh(np.array(DEVICES[:4]).reshape(2, 2), ("a", "b")), PartitionSpec(("a", "b")))

    batch = next(DALIGenericIterator(pipelines(make_pipeline, 4), ["x"], sharding=sharding))

    assert np.asarray(batch["x"])[::3, 0].tolist() == [0, 100, 200, 300]


def test_shards_make_one_computation(make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(pipelines(make_pipeline, 8), ["x"], sharding=split())

    total = jax.jit(lambda x: x[:, 0].sum())(next(iterator)["x"])

    assert int(total) == sum(100 * i + j for i in range(8) for j in range(3))


def test_one_shard_as_with_dali(dali: Library, theirs: Any, make_pipeline: MakePipeline) -> None:
    """On the CPU, DALI puts everything on the first device, which must be the only one of the sharding then."""
    sharding = split(DEVICES[:1])
    with dali.source_pipeline(numbered(7), batch_size=3) as pipe:
        expected = next(theirs.DALIGenericIterator(pipe, ["x"], sharding=sharding))["x"]

    batch = next(DALIGenericIterator(make_pipeline(numbered(7), "serial", batch_size=3), ["x"], sharding=sharding))

    assert batch["x"].sharding == expected.sharding
    assert batch["x"].tolist() == expected.tolist()


@pytest.mark.parametrize(
    "sharding",
    [
        split(DEVICES[:4], "data", shape=(2, 2)),
        split(DEVICES[:4], None, "data"),
        split(DEVICES[:4], "data", "model", shape=(2, 2)),
    ],
    ids=["replicas", "columns", "blocks"],
)
def test_shardings_that_split_in_another_way(sharding: Sharding, make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(pipelines(make_pipeline, 4), ["x"], sharding=sharding)

    with pytest.raises(ShardError, match=r"output 'x':.*array of shape \(12, 2\)"):
        next(iterator)


@pytest.mark.parametrize("more", [{"sharding": split(DEVICES[:4])}, {"devices": DEVICES[:4]}], ids=["sharding", "devices"])
def test_there_is_a_pipeline_for_each_device(more: dict[str, Any], make_pipeline: MakePipeline) -> None:
    with pytest.raises(IteratorArgumentError, match="one pipeline for each of the 4 devices, not 3"):
        DALIGenericIterator(pipelines(make_pipeline, 3), ["x"], **more)


# Stacked


def test_without_a_sharding_batches_are_stacked(make_pipeline: MakePipeline) -> None:
    batch = next(DALIGenericIterator(pipelines(make_pipeline, 2), ["x"]))

    assert batch["x"].devices() == {DEVICES[0]}
    assert batch["x"][..., 0].tolist() == [[0, 1, 2], [100, 101, 102]]


def test_stacked_on_devices(make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(pipelines(make_pipeline, 2), ["x"], devices=[DEVICES[6], DEVICES[3]])

    batch = next(iterator)

    assert batch["x"].shape == (2, 3, 2)
    assert places(batch["x"]) == {6: [0, 1, 2], 3: [100, 101, 102]}


def test_stacked_batches_are_for_pmap(make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(pipelines(make_pipeline, 8), ["x"], devices=DEVICES)

    with warnings.catch_warnings(action="ignore"):  # of deprecated names of JAX
        sums = jax.pmap(lambda x: x[:, 0].sum())(next(iterator)["x"])

    assert sums.tolist() == [300 * i + 3 for i in range(8)]


def test_one_pipeline_is_not_stacked(make_pipeline: MakePipeline) -> None:
    batch = next(DALIGenericIterator(pipelines(make_pipeline, 1), ["x"], devices=[DEVICES[4]]))

    assert (batch["x"].shape, batch["x"].devices()) == ((3, 2), {DEVICES[4]})


def test_devices_that_some_pipelines_share(make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(pipelines(make_pipeline, 3), ["x"], devices=[DEVICES[i] for i in (1, 2, 1)])

    with pytest.raises(ShardError, match="3 pipelines on 2 devices"):
        next(iterator)


def zeros(count: int, info: types.SampleInfo) -> Any:
    return np.zeros(count)


def named(name: str, info: types.SampleInfo) -> Any:
    return name, info.idx_in_batch


@pytest.mark.parametrize("more", [{"sharding": split(DEVICES[:2])}, {}], ids=["sharded", "stacked"])
def test_batches_of_different_shapes(more: dict[str, Any], make_pipeline: MakePipeline) -> None:
    pipes = [make_pipeline(functools.partial(zeros, n), "serial", batch_size=3) for n in (2, 4)]

    with pytest.raises(ShardError, match=r"shapes differ between pipelines: \(3, 2\), \(3, 4\)"):
        next(DALIGenericIterator(pipes, ["x"], **more))


def test_objects_of_all_pipelines_are_one_list(make_pipeline: MakePipeline) -> None:
    pipes = [
        make_pipeline(functools.partial(named, n), "serial", batch_size=2, source_options={"dtype": types.OBJECT})
        for n in "ab"
    ]

    assert next(DALIGenericIterator(pipes, ["x"]))["x"] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


# Functions with a part of the data as argument


def parts(**options: Any) -> Any:
    """A decorated function: sample by sample, the number of the shard, how many there are, and the number in the shard."""

    @data_iterator(output_map=["part"], **options)
    def part(shard_id: int = -1, num_shards: int = -1) -> Any:
        return fn.external_source(source=lambda info: np.int32([shard_id, num_shards, info.idx_in_epoch]), batch=False)

    return part


def test_each_device_has_its_part_of_the_data() -> None:
    batch = next(parts(sharding=split())(batch_size=16))

    assert np.asarray(batch["part"]).tolist() == [[i, 8, j] for i in range(8) for j in range(2)]


def test_parts_count_the_devices_of_the_sharding() -> None:
    batch = next(parts(sharding=split(DEVICES[5:]))(batch_size=6))

    assert np.asarray(batch["part"]).tolist() == [[i, 3, j] for i in range(3) for j in range(2)]


def test_parts_of_devices() -> None:
    batch = next(parts(devices=[DEVICES[4], DEVICES[2]])(batch_size=4))

    assert places(batch["part"]) == {4: [0, 0], 2: [1, 1]}
    assert batch["part"][..., 1:].tolist() == [[[2, 0], [2, 1]]] * 2


def test_without_devices_there_is_one_pipeline() -> None:
    assert next(parts()(batch_size=2))["part"].tolist() == [[-1, -1, 0], [-1, -1, 1]]


def test_batch_size_is_divided_and_rounded_down() -> None:
    iterator = parts(sharding=split(), size=48)(batch_size=20)

    assert (iterator.batch_size, len(iterator)) == (2, 3)
    assert next(iterator)["part"].shape == (16, 3)


def test_checkpoints_of_all_shards() -> None:
    make = parts(sharding=split(DEVICES[:2]))
    iterator = make(batch_size=4, enable_checkpointing=True)
    next(iterator)

    resumed = make(batch_size=4, enable_checkpointing=True, checkpoints=iterator.checkpoints())

    assert np.asarray(next(resumed)["part"]).tolist() == [[i, 2, j] for i in range(2) for j in (2, 3)]


def test_batch_size_must_be_known() -> None:
    with pytest.raises(ArgumentError, match="batch_size must be given"):
        parts(sharding=split())()


@pytest.mark.parametrize("name", ["device_id", "shard_id", "num_shards"])
def test_iterator_sets_the_shard_arguments_itself(name: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"the iterator sets {name}"):
        parts(devices=DEVICES)(batch_size=16, **{name: 1})


# Where ours differs


def test_several_devices_on_the_cpu(dali: Library, theirs: Any, make_pipeline: MakePipeline) -> None:
    """DALI has all batches on the first device, and asks arrays for their devices as older versions of JAX had it."""
    with dali.source_pipeline(numbered(0)) as one, dali.source_pipeline(numbered(100)) as other, quiet(dali):
        with pytest.raises(ValueError, match="device"):
            theirs.DALIGenericIterator([one, other], ["x"], size=16, sharding=split(DEVICES[:2]))
        with pytest.raises(TypeError, match="not callable"):
            theirs.DALIGenericIterator([one, other], ["x"], size=16)

    pipes = pipelines(make_pipeline, 2)
    assert places(next(DALIGenericIterator(pipes, ["x"], sharding=split(DEVICES[:2])))["x"]).keys() == {0, 1}


def test_batch_size_is_divided_among_the_devices_that_are_given(dali: Library, theirs: Any) -> None:
    """DALI divides it among all that there are."""

    def part(device_id: int, shard_id: int, num_shards: int) -> Any:
        return dali.fn.external_source(source=lambda info: np.int32([shard_id]), batch=False)

    make = theirs.data_iterator(part, ["part"], size=16, devices=DEVICES[:2], prepare_first_batch=False)

    with quiet(dali):
        assert make(batch_size=16).batch_size == 2
    assert parts(devices=DEVICES[:2])(batch_size=16).batch_size == 8
