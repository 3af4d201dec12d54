"""Iterators that can be asked for the next batch without taking it, beside DALI's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dali_like import Pipeline, fn, plugin
from dali_like.errors import PipelineStateError, SpecError
from dali_like.plugin.jax import clu

from ..conftest import OURS, Library
from ..iterators import quiet

MakePipeline = Callable[..., Pipeline]


def counted(length: int | None) -> Callable[[Any], Any]:
    """A source of numbers, whose epochs have `length` samples or no end."""

    def make(info: Any) -> Any:
        if length is not None and info.idx_in_epoch >= length:
            raise StopIteration
        return np.int32(100 * info.epoch_idx + info.idx_in_epoch)

    return make


@pytest.fixture(params=["dali", "ours"])
def library(request: pytest.FixtureRequest) -> Library:
    """One of the two."""
    return OURS if request.param == "ours" else request.getfixturevalue("dali")


@contextlib.contextmanager
def iterator_of(library: Library, theirs: Any, make: Callable[[Any], Any], **options: Any) -> Iterator[Any]:
    """A peekable iterator over one pipeline."""
    module = plugin.jax.clu if library is OURS else theirs.clu
    pipeline_options = {name: options.pop(name) for name in ("enable_checkpointing",) if name in options}
    with library.source_pipeline(make, **pipeline_options) as pipe, quiet(library):
        yield module.DALIGenericPeekableIterator(pipe, ["x"], **options)


def numbers(batch: dict[str, Any]) -> list[int]:
    """The values of a batch."""
    return [int(number) for number in batch["x"]]


@pytest.mark.parametrize("prepare", [False, True])
def test_peek_returns_the_next_batch(library: Library, theirs: Any, prepare: bool) -> None:
    with iterator_of(library, theirs, counted(None), prepare_first_batch=prepare) as iterator:
        seen = [numbers(step()) for step in (iterator.peek, iterator.peek, iterator.next, iterator.next, iterator.peek)]

    assert seen == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_peek_in_another_thread(library: Library, theirs: Any) -> None:
    with iterator_of(library, theirs, counted(None)) as iterator:
        peeked = iterator.peek_async().result()
        if library is not OURS:
            # Private: an attribute of the peer's iterator
            iterator._pool.shutdown()

        assert numbers(peeked) == numbers(next(iterator)) == [0, 1, 2, 3]


def test_exception_of_the_source_is_in_the_future(make_pipeline: MakePipeline) -> None:
    def broken(info: Any) -> Any:
        raise ZeroDivisionError("broken")

    iterator = clu.DALIGenericPeekableIterator(make_pipeline(broken, "serial"), ["x"], prepare_first_batch=False)

    assert isinstance(iterator.peek_async().exception(), ZeroDivisionError)


def test_loop_after_a_peek_begins_with_the_peeked_batch(library: Library, theirs: Any) -> None:
    with iterator_of(library, theirs, counted(8)) as iterator:
        iterator.peek()
        epoch = list(map(numbers, iterator))

    assert epoch == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_epoch_ends_when_peeking(library: Library, theirs: Any) -> None:
    with iterator_of(library, theirs, counted(4), auto_reset="yes") as iterator:
        next(iterator)
        with pytest.raises(StopIteration):
            iterator.peek()

        assert numbers(iterator.peek()) == [100, 101, 102, 103]


def test_element_spec(library: Library, theirs: Any) -> None:
    with iterator_of(library, theirs, counted(None)) as iterator:
        spec = iterator.element_spec

        assert list(spec) == ["x"]
        assert (spec["x"].shape, spec["x"].dtype) == ((4,), np.int32)
        assert numbers(next(iterator)) == [0, 1, 2, 3]


@pytest.mark.parametrize("step", ["peek", "next"])
def test_batches_must_be_alike(step: str, library: Library, theirs: Any) -> None:
    with iterator_of(library, theirs, lambda info: np.zeros(1 + info.iteration)) as iterator:
        next(iterator)
        with pytest.raises(ValueError, match=r"shape") as caught:
            getattr(iterator, step)()

    assert library is not OURS or isinstance(caught.value, SpecError)


def test_checkpoints_are_refused_after_a_peek(library: Library, theirs: Any) -> None:
    with iterator_of(library, theirs, counted(None), enable_checkpointing=True) as iterator:
        iterator.peek()
        with pytest.raises(RuntimeError, match="peeked") as caught:
            iterator.checkpoints()
        next(iterator)

        assert len(iterator.checkpoints()) == 1
        assert library is not OURS or isinstance(caught.value, PipelineStateError)


def test_loading_a_state_drops_the_peeked_batch(make_pipeline: MakePipeline) -> None:
    iterator = clu.DALIGenericPeekableIterator(make_pipeline(counted(12), "serial", enable_checkpointing=True), ["x"])
    state = iterator.state_dict()
    first = next(iterator)["x"]
    iterator.peek()
    with pytest.raises(PipelineStateError, match="peeked"):
        iterator.state_dict()

    iterator.load_state_dict(state)

    assert np.array_equal(iterator.peek()["x"], first)


def test_reset_drops_the_peeked_batch(make_pipeline: MakePipeline) -> None:
    """DALI ignores it within an epoch."""
    iterator = clu.DALIGenericPeekableIterator(make_pipeline(counted(12), "serial"), ["x"])
    next(iterator)
    iterator.peek()

    iterator.reset()

    assert numbers(next(iterator)) == [100, 101, 102, 103]


def test_samples_beyond_the_size_are_padding(make_pipeline: MakePipeline) -> None:
    """DALI knows it of readers alone."""
    iterator = clu.DALIGenericPeekableIterator(
        make_pipeline(counted(None), "serial"), ["x"], size=6, last_batch_padded=True, auto_reset=True
    )

    flags = [iterator.is_nonpadding.tolist() for _ in range(2) for _ in iterator]

    assert flags == [[True] * 4, [True, True, False, False]] * 2


def test_padding_is_that_of_the_batch_that_was_given(make_pipeline: MakePipeline) -> None:
    iterator = clu.DALIGenericPeekableIterator(make_pipeline(counted(None), "serial"), ["x"], size=6)
    next(iterator)

    iterator.peek()

    assert iterator.is_nonpadding.tolist() == [True] * 4


def test_padding_of_shards() -> None:
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("data",)), PartitionSpec("data"))

    @clu.peekable_data_iterator(output_map=["x"], size=7, last_batch_padded=True, sharding=sharding)
    def pipeline(shard_id: int, num_shards: int) -> Any:
        return fn.external_source(source=lambda info: np.int32(100 * shard_id + info.idx_in_epoch), batch=False)

    iterator = pipeline(batch_size=4)
    flags = [iterator.is_nonpadding for _ in iterator]

    assert [flag.tolist() for flag in flags] == [[True] * 4, [True, True, True, False]]
    assert flags[0].sharding == sharding


def test_decorated_functions(dali: Library, theirs: Any) -> None:
    def batches(library: Library, module: Any) -> Any:
        @module.peekable_data_iterator(output_map=["x"], size=8)
        def pipeline() -> Any:
            return library.fn.external_source(source=counted(None), batch=False)

        with quiet(library):
            iterator = pipeline(batch_size=4, device_id=None)
            return type(iterator).__name__, numbers(iterator.peek()), list(map(numbers, iterator))

    assert batches(OURS, plugin.jax.clu) == batches(dali, theirs.clu)


def test_padding_without_a_reader(dali: Library, theirs: Any) -> None:
    """DALI raises, since it asks the reader."""
    with iterator_of(dali, theirs, counted(None), size=6) as iterator, pytest.raises(AttributeError):
        _ = iterator.is_nonpadding
