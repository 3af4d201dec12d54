"""Readers in pipelines: workers, epochs, metadata, states. The readers themselves are in tests/sources/readers."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import ArgumentClashError, CudaForkError, SerializationError
from dali_like.pipeline import runtime
from dali_like.plugin.base_iterator import LastBatchPolicy
from dali_like.plugin.numpy import DALIGenericIterator
from dali_like.readers import Reader, reader
from tests.conftest import in_both_places
from tests.internals import progress_of


@reader(path="readers.numbers_for_tests")
class Numbers(Reader):
    """Returns the number of the sample.

    Args:
        size: samples in the dataset.
    """

    dtype = np.int64
    ndim = 0

    def __init__(self, *, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, index: int, info: Any) -> Any:
        return np.int64(index)


def numbers(**options: Any) -> Any:
    """The node of a reader of numbers."""
    return fn.readers.numbers_for_tests(**options)


def pipeline(size: int = 10, batch_size: int = 4, *, of_pipeline: dict[str, Any] | None = None, **options: Any) -> Pipeline:
    """A pipeline of one reader of numbers, without workers."""
    pipe = Pipeline(batch_size, **{"num_threads": 1, "py_num_workers": 0, "seed": 3, **(of_pipeline or {})})
    with pipe:
        pipe.set_outputs(numbers(size=size, name="reader", **options))
    return pipe


def batches(pipe: Pipeline, number: int) -> list[list[int]]:
    """The numbers in the next batches."""
    return [np.asarray(pipe.run()[0].as_array()).tolist() for _ in range(number)]


# Workers


def settings_of(given: dict[str, Any], *, parallel_callback: bool = False) -> Any:
    """The number of workers and the start method that a pipeline with a reader chooses."""
    pipe = Pipeline(2, 3, None, **given)
    with pipe:
        outputs = [numbers(size=3)]
        if parallel_callback:
            outputs.append(fn.external_source(lambda info: np.zeros(1), parallel=True, batch=False))
        pipe.set_outputs(*outputs)
    try:
        assert pipe.run()[0].as_array().tolist() == [0, 1]
        settings = pipe.statistics().settings
        return settings.num_workers, settings.start_method
    finally:
        pipe.close()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (3, "fork")),
        ({"py_num_workers": 1}, (1, "fork")),
        ({"py_num_workers": 2, "py_start_method": "thread"}, (2, "thread")),
    ],
    ids=str,
)
def test_readers_have_as_many_workers_as_threads(given: dict[str, Any], expected: tuple[int, str]) -> None:
    assert settings_of(given) == expected


def test_workers_start_by_spawn_if_cuda_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "cuda_is_initialized", lambda: True)

    assert settings_of({"py_num_workers": 1}) == (1, "spawn")
    with pytest.raises(CudaForkError):
        settings_of({"py_start_method": "fork"})
    with pytest.raises(CudaForkError):
        settings_of({}, parallel_callback=True)


def test_defaults_are_shown() -> None:
    pipe = Pipeline(1)

    assert (pipe.py_num_workers, pipe.py_start_method) == (1, "fork")
    assert str(pipe.py_num_workers) == "1"


@in_both_places
def test_random_operators_draw_the_same_everywhere(way: str) -> None:
    """Also behind a reset(); readers know nothing of it."""

    def drawn(given: dict[str, Any]) -> list[Any]:
        pipe = Pipeline(2, 1, None, seed=5, **given)
        with pipe:
            pipe.set_outputs(numbers(size=3) + fn.random.uniform(fn.cast(numbers(size=3), dtype=np.float32), range=[0, 1]))
        try:
            seen = []
            for _ in range(3):
                seen.append(pipe.run()[0].as_array().tolist())
                pipe.reset()
            return seen
        finally:
            pipe.close()

    there = {"py_num_workers": 0} if way == "serial" else {"py_start_method": way}
    assert drawn(there) == drawn({"py_num_workers": 0})


# Epochs


def test_readers_go_on_forever() -> None:
    with pipeline(6) as pipe:
        assert batches(pipe, 3) == [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]
        pipe.reset()
        assert batches(pipe, 1) == [[0, 1, 2, 3]]
        assert len(pipe) == 2
    pipe.close()


def test_another_source_ends_the_epoch_and_the_reader_continues() -> None:
    pipe = Pipeline(2, 1, None, py_num_workers=0)
    with pipe:
        pipe.set_outputs(numbers(size=5), fn.external_source([np.zeros((2, 1))] * 2))
    assert [batches(pipe, 2), batches(pipe, 0)] == [[[0, 1], [2, 3]], []]
    with pytest.raises(StopIteration):
        pipe.run()
    pipe.reset()
    assert batches(pipe, 2) == [[4, 0], [1, 2]]
    pipe.close()


# Metadata


def test_sizes_and_metadata() -> None:
    pipe = Pipeline(4, py_num_workers=0)
    with pipe:
        pipe.set_outputs(
            numbers(size=10, name="train", num_shards=3, pad_last_batch=True),
            numbers(size=7),
            fn.external_source(lambda info: np.zeros(1), size=9, batch=False, name="callable", last_batch_policy="drop"),
            fn.external_source([np.zeros((4, 1))] * 3, name="batches", shard_id=1, num_shards=2),
            fn.external_source(lambda info: np.zeros(1), batch=False, name="endless"),
        )

    assert pipe.epoch_size() == {"train": 12, "__NumbersForTests_1": 7, "callable": 9, "batches": 12}
    assert pipe.epoch_size("train") == 12  # with padding, as in DALI
    assert pipe.reader_meta("train")["epoch_size_padded"] == 12
    assert pipe.reader_meta("batches") == {
        "epoch_size": 12,
        "epoch_size_padded": 12,
        "number_of_shards": 2,
        "shard_id": 1,
        "pad_last_batch": 0,
        "stick_to_shard": 1,
    }
    for name in ("endless", "other"):
        with pytest.raises(ArgumentClashError, match=f"Operator {name} not found or does not expose .*'train'"):
            pipe.epoch_size(name)
    pipe.close()


def test_a_dataset_without_samples() -> None:
    with pytest.raises(RuntimeError, match=r"fn.readers.numbers_for_tests: No files found"):
        pipeline(0).epoch_size()


def test_readers_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(Numbers, "prepare", lambda self: calls.append(1))
    pipe = pipeline(of_pipeline={"enable_checkpointing": True})
    pipe.epoch_size("reader")
    pipe.run()
    pipe.load_state_dict({**pipe.state_dict(), "seed": 9})
    pipe.run()

    assert len(calls) == 1
    pipe.close()


# States


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True}, {"num_shards": 2, "random_shuffle": True}], ids=str)
@in_both_places
def test_states(way: str, options: dict[str, Any]) -> None:
    there = {"py_num_workers": 0} if way == "serial" else {"py_num_workers": 1, "py_start_method": way}
    make = lambda: pipeline(of_pipeline={**there, "enable_checkpointing": True}, **options)  # noqa: E731
    first = make()
    batches(first, 4)
    state = first.state_dict()
    expected = batches(first, 5)
    first.load_state_dict(state)  # a reader can go back
    assert batches(first, 5) == expected
    first.close()

    second = make()
    second.load_state_dict(state)
    assert batches(second, 5) == expected
    second.close()


def test_states_of_ranks_serve_other_numbers_of_ranks() -> None:
    states = []
    for shard in range(2):
        pipe = pipeline(12, 2, of_pipeline={"enable_checkpointing": True}, num_shards=2, shard_id=shard, stick_to_shard=True)
        batches(pipe, 2)
        states.append(pipe.state_dict())
        pipe.close()

    assert states[0] == states[1]


# Iterators


@pytest.mark.parametrize("policy", LastBatchPolicy)
@pytest.mark.parametrize("num_batches", [0, 2, 7])
def test_states_of_iterators(policy: LastBatchPolicy, num_batches: int) -> None:
    def make() -> DALIGenericIterator:
        pipes = [
            pipeline(11, 2, of_pipeline={"enable_checkpointing": True}, num_shards=2, shard_id=shard, random_shuffle=True)
            for shard in range(2)
        ]
        return DALIGenericIterator(pipes, ["x"], reader_name="reader", last_batch_policy=policy, auto_reset=True)

    def some(iterator: Any, number: int) -> list[Any]:
        seen: list[Any] = []
        while len(seen) < number:
            batch = next(iterator, None)
            seen.append(None if batch is None else [each["x"].tolist() for each in batch])
        return seen

    first = make()
    some(first, num_batches)
    state = first.state_dict()
    expected = some(first, 9), len(first)

    second = make()
    second.load_state_dict(state)
    assert (some(second, 9), len(second)) == expected
    del first, second
    gc.collect()


@pytest.mark.parametrize("order", [{"random_shuffle": True}, {"shuffle_after_epoch": True}, {}], ids=str)
def test_all_ranks_together_deliver_each_sample_once(order: dict[str, Any]) -> None:
    """Although the pipelines of the ranks have different seeds."""
    pipes = [
        pipeline(11, 2, of_pipeline={"seed": shard}, num_shards=3, shard_id=shard, pad_last_batch=True, **order)
        for shard in range(3)
    ]
    iterators = [
        DALIGenericIterator(pipe, ["x"], reader_name="reader", last_batch_policy=LastBatchPolicy.PARTIAL) for pipe in pipes
    ]
    epochs = []
    for _ in range(4):
        ranks = [[i for [batch] in iterator for i in batch["x"].tolist()] for iterator in iterators]
        assert sorted(i for rank in ranks for i in rank) == [*range(11)]
        assert len({len(iterator) for iterator in iterators}) == 1
        epochs.append(ranks)
    assert epochs[0] != epochs[3] or not order
    for pipe in pipes:
        pipe.close()


def test_a_reset_within_an_epoch_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    pipe = pipeline(8)
    iterator = DALIGenericIterator(pipe, ["x"], reader_name="reader")
    iterator.reset()
    assert not caplog.records
    assert next(iterator)[0]["x"].tolist() == [0, 1, 2, 3]
    iterator.reset()
    assert "reset() has no effect within an epoch of a reader" in caplog.text
    assert [batch[0]["x"].tolist() for batch in iterator] == [[4, 5, 6, 7]]
    pipe.close()


def test_a_named_source_of_known_length_ends_its_own_epochs() -> None:
    pipe = Pipeline(4, 1, None)
    with pipe:
        pipe.set_outputs(
            fn.external_source(
                lambda info: np.int64(info.idx_in_epoch), size=6, batch=False, name="mine", last_batch_policy="partial"
            )
        )
    iterator = DALIGenericIterator(pipe, ["x"], reader_name="mine", last_batch_policy=LastBatchPolicy.PARTIAL)

    for _ in range(2):
        assert len(iterator) == 2
        assert [batch[0]["x"].tolist() for batch in iterator] == [[0, 1, 2, 3], [4, 5]]
    pipe.close()


def test_unknown_readers() -> None:
    pipe = pipeline(8)

    with pytest.raises(ArgumentClashError, match=r"Operator train not found .*known length: 'reader'"):
        DALIGenericIterator(pipe, ["x"], reader_name="train")
    pipe.close()


def test_readers_must_be_alike() -> None:
    pipes = [pipeline(8), pipeline(9)]

    with pytest.raises(AssertionError, match=r"must have the same size of the dataset; these have \[8, 9\]"):
        DALIGenericIterator(pipes, ["x"], reader_name="reader")


def test_large_positions_take_no_time(tmp_path: Path) -> None:
    pipe = pipeline(7, 3, of_pipeline={"enable_checkpointing": True}, num_shards=2)
    iterator = DALIGenericIterator(pipe, ["x"], reader_name="reader", auto_reset=True)
    progress_of(iterator).position = 10**15, 1

    assert progress_of(iterator).position == (10**15, 1)
    pipe.close()


# Serialization


def test_readers_travel_as_their_arguments(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.arange(6).reshape(2, 3) + 10 * i)
    pipe = Pipeline(2, 1, None, py_num_workers=0)
    with pipe:
        array = fn.readers.numpy(file_root=tmp_path, name="arrays", num_shards=2, shard_id=1, roi_start=[0, 1], fill_value=2)
        data, label = fn.readers.file(file_root=tmp_path.parent, file_filters=["*.npy"], dir_filters=tmp_path.name)
        pipe.set_outputs(array, data[:6], label)
    expected = [[np.array(output.at(i)) for i in range(2)] for output in pipe.run()]
    text = pipe.serialize()
    pipe.close()

    again = Pipeline.deserialize(text, py_num_workers=0)
    assert again.reader_meta("arrays")["number_of_shards"] == 2
    for output, samples in zip(again.run(), expected, strict=True):
        for i, sample in enumerate(samples):
            np.testing.assert_array_equal(output.at(i), sample)
    again.close()


def test_functions_and_unknown_readers_cannot_be_serialized() -> None:
    pipe = pipeline(on_error=lambda info, error: 0)

    with pytest.raises(SerializationError, match=r"fn.readers.numbers_for_tests: the argument on_error is a function"):
        pipe.serialize()
    with pytest.raises(SerializationError, match=r"there is no operator 'fn.readers.os'"):
        Pipeline.deserialize(
            '{"format": "dali_like pipeline", "version": 1, "arguments": {}, "outputs": [], "sinks": [],'
            ' "nodes": [{"kind": "reader", "name": "fn.readers.os", "arguments": {}}]}'
        )
