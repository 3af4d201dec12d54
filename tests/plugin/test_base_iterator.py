"""Iterators over pipelines: batches, epochs, last batches, and checkpoints."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    IteratorArgumentError,
    OutputMapError,
    RaggedError,
)
from dali_like.pipeline.checkpoints import Checkpoint
from dali_like.plugin import BaseIterator, DALIGenericIterator, DALIRaggedIterator, LastBatchPolicy
from dali_like.tensors import TensorListCPU
from tests.conftest import in_both_places

MakePipeline = Callable[..., Pipeline]

FILL, DROP, PARTIAL = LastBatchPolicy.FILL, LastBatchPolicy.DROP, LastBatchPolicy.PARTIAL


def numbers(length: int | None = None, first: int = 0) -> Callable[..., Any]:
    """Return a source of the numbers `first`, `first` + 1, ..., plus 1000 per epoch.

    Args:
        length: samples in an epoch. None: an epoch without end.
    """

    def source(info: Any) -> Any:
        if length is not None and info.idx_in_epoch >= length:
            raise StopIteration
        return np.array(first + 1000 * info.epoch_idx + info.idx_in_epoch)

    return source


class ScriptedPipeline(Pipeline):
    """Pipeline without sources that follows a script, with all methods that an iterator uses.

    Args:
        epochs: a script for each epoch, with lengths of batches, and exceptions. The last script repeats.
        samples: converts the numbers of a batch, which count as in `numbers`, to its array.
    """

    def __init__(
        self,
        *epochs: Sequence[Any],
        batch_size: int = 4,
        samples: Callable[[Any], Any] = lambda batch: batch,
        enable_checkpointing: bool = False,
    ) -> None:
        super().__init__(batch_size, enable_checkpointing=enable_checkpointing)
        self._epochs = epochs
        self._samples = samples
        self._position = (0, 0)

    def __len__(self) -> int:
        return len(self._script)

    @property
    def _script(self) -> Sequence[Any]:
        return self._epochs[min(self._position[0], len(self._epochs) - 1)]

    def start_py_workers(self) -> None:
        """Do nothing."""

    def build(self) -> None:
        """Do nothing."""

    def run(self) -> tuple[TensorListCPU, ...]:
        """Return the next batch of the script, or raise its exception."""
        epoch, iteration = self._position
        if iteration == len(self._script):
            raise StopIteration
        self._position = (epoch, iteration + 1)
        length = self._script[iteration]
        if isinstance(length, Exception):
            raise length
        first = 1000 * epoch + sum(length for length in self._script[:iteration] if isinstance(length, int))
        return (TensorListCPU(self._samples(np.arange(first, first + length))),)

    def reset(self) -> None:
        """Begin the next epoch."""
        if self._position[1] or not self._script:
            self._position = (self._position[0] + 1, 0)

    def _take_checkpoint(self) -> Checkpoint:
        return Checkpoint(4, 1, *self._position, False, 0, ())


def plain(batch: Any) -> Any:
    """Return a batch as lists of numbers. The batch of a single pipeline has no outer list."""
    values = [[np.asarray(sample).tolist() for sample in pipeline["x"]] for pipeline in batch]
    return values[0] if len(values) == 1 else values


def epoch_of(iterator: Any) -> list[Any]:
    """Return the batches of a ``for`` loop over an iterator. Fail if the loop does not end."""
    batches: list[Any] = []
    for batch in iterator:
        batches.append(plain(batch))
        assert len(batches) < 50, "the epoch does not end"
    return batches


def consecutive(first: int, *lengths: int) -> list[list[int]]:
    """Return batches of consecutive numbers."""
    starts = np.cumsum([first, *lengths]).tolist()
    return [list(range(start, start + length)) for start, length in zip(starts, lengths, strict=False)]


# Delivered batches


def test_batch_is_a_list_with_a_dict_for_each_pipeline(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: Any) -> Any:
        return np.full((2, 3), info.idx_in_batch, np.uint8), np.array(info.idx_in_epoch, np.int32)

    iterator = DALIGenericIterator(make_pipeline(source, way, num_outputs=2), ["image", "label"])

    [batch] = next(iterator)

    assert {name: (type(array), array.shape, array.dtype) for name, array in batch.items()} == {
        "image": (np.ndarray, (4, 2, 3), np.uint8),
        "label": (np.ndarray, (4,), np.int32),
    }
    assert batch["label"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [4, 3])
def test_arrays_are_views(size: int, make_pipeline: MakePipeline) -> None:
    class Spy(DALIGenericIterator):
        def _convert(self, name: str, output: TensorListCPU) -> Any:
            self.memory = output.as_array()
            return super()._convert(name, output)

    iterator = Spy(make_pipeline(numbers()), ["x"], size, last_batch_policy=PARTIAL)
    [batch] = next(iterator)

    assert len(batch["x"]) == size
    assert np.shares_memory(batch["x"], iterator.memory)


def test_next_is_also_a_method() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4]), ["x"])

    assert plain(iterator.next()) == [0, 1, 2, 3]


def test_frameworks_convert_outputs_and_combine_pipelines() -> None:
    class Totals(BaseIterator[Any, int]):
        def _convert(self, name: str, output: TensorListCPU) -> Any:
            return -output.as_array()

        def _combine(self, batches: list[dict[str, Any]]) -> int:
            return sum(int(batch["x"].sum()) for batch in batches)

    pipelines = [ScriptedPipeline([4]), ScriptedPipeline([3])]

    assert list(Totals(pipelines, ["x"])) == [-(0 + 1 + 2 + 3) - (0 + 1 + 2)]


# Samples of different shapes


def ragged(batch: Any) -> list[Any]:
    """Return samples whose length is their number modulo 3."""
    return [np.zeros(number % 3, np.int64) for number in batch]


def test_ragged_output_is_refused_by_name() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4], samples=ragged), ["points"])

    with pytest.raises(RaggedError, match=r"'points' have 3 different shapes, from \(0,\) to \(2,\).*DALIRaggedIterator"):
        next(iterator)


def test_batch_behind_a_ragged_one_is_delivered() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([2, 1], samples=ragged), ["x"])
    with pytest.raises(RaggedError):
        next(iterator)

    assert plain(next(iterator)) == [[0, 0]]


def test_ragged_iterator_gives_lists_for_samples_of_any_shapes() -> None:
    pipe = ScriptedPipeline([2, 1, 4], samples=ragged)
    iterator = DALIRaggedIterator(pipe, ["x"], output_types=[DALIRaggedIterator.SPARSE_LIST_TAG])

    types_and_lengths = [(type(batch["x"]), [len(sample) for sample in batch["x"]]) for [batch] in iterator]

    assert types_and_lengths == [(list, [0, 1]), (list, [2]), (list, [0, 1, 2, 0])]


def test_ragged_iterator_cuts_the_last_batch() -> None:
    tags = [DALIRaggedIterator.SPARSE_LIST_TAG]
    pipe = ScriptedPipeline([4, 4], samples=ragged)
    iterator = DALIRaggedIterator(pipe, ["x"], 6, output_types=tags, last_batch_policy=PARTIAL)

    assert [[len(sample) for sample in batch] for batch in epoch_of(iterator)] == [[0, 1, 2, 0], [1, 2]]


@pytest.mark.parametrize("tags", [None, [DALIRaggedIterator.DENSE_TAG]])
def test_ragged_iterator_gives_arrays_of_dense_outputs(tags: Any) -> None:
    iterator = DALIRaggedIterator(ScriptedPipeline([4]), ["x"], output_types=tags)

    [batch] = next(iterator)

    assert isinstance(batch["x"], np.ndarray)


@pytest.mark.parametrize("tags", [[], ["dense", "dense"], ["sparse_coo"]])
def test_ragged_iterator_wants_a_type_for_each_output(tags: Any) -> None:
    with pytest.raises(IteratorArgumentError, match=r"output_types.*for each of the outputs \['x'\]"):
        DALIRaggedIterator(ScriptedPipeline([4]), ["x"], output_types=tags)


# Epochs that the pipelines end

either_reset = pytest.mark.parametrize("auto_reset", [False, True])
either_preparation = pytest.mark.parametrize("prepare", [False, True])


@either_reset
@either_preparation
def test_each_for_loop_is_an_epoch(way: str, make_pipeline: MakePipeline, auto_reset: bool, prepare: bool) -> None:
    pipe = make_pipeline(numbers(11), way)
    iterator = DALIGenericIterator(pipe, ["x"], auto_reset=auto_reset, prepare_first_batch=prepare)

    assert [epoch_of(iterator) for _ in range(3)] == [consecutive(first, 4, 4) for first in (0, 1000, 2000)]


@pytest.mark.parametrize("size", [-1, 4])
def test_next_raises_stop_iteration_until_reset(size: int) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4]), ["x"], size)
    next(iterator)

    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)

    iterator.reset()
    assert plain(next(iterator)) == [1000, 1001, 1002, 1003]


@pytest.mark.parametrize("size", [-1, 4])
@pytest.mark.parametrize("auto_reset", [True, "yes"])
def test_auto_reset_begins_the_next_epoch_behind_stop_iteration(size: int, auto_reset: Any) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4]), ["x"], size, auto_reset=auto_reset)
    next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)

    assert plain(next(iterator)) == [1000, 1001, 1002, 1003]


@pytest.mark.parametrize("size", [-1, 10, 100])
@pytest.mark.parametrize("policy", LastBatchPolicy)
@in_both_places
def test_reset_leaves_an_epoch(way: str, make_pipeline: MakePipeline, size: int, policy: LastBatchPolicy) -> None:
    iterator = DALIGenericIterator(make_pipeline(numbers(12), way), ["x"], size, last_batch_policy=policy)
    next(iterator)

    iterator.reset()

    assert plain(next(iterator)) == [1000, 1001, 1002, 1003]


@pytest.mark.parametrize("size", [-1, 8])
@either_preparation
def test_reset_before_the_first_batch_has_no_effect(size: int, prepare: bool) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4, 4, 4]), ["x"], size, prepare_first_batch=prepare)

    iterator.reset()
    iterator.reset()

    assert plain(next(iterator)) == [0, 1, 2, 3]


def test_reset_twice_begins_one_epoch() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4, 4, 4]), ["x"], 8)
    epoch_of(iterator)

    iterator.reset()
    iterator.reset()

    assert plain(next(iterator)) == [8, 9, 10, 11]


@pytest.mark.parametrize("size", [-1, 12])
def test_for_loop_goes_on_with_an_unfinished_epoch(size: int) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4, 4, 4]), ["x"], size)
    next(iterator)

    assert epoch_of(iterator) == consecutive(4, 4, 4)


@either_reset
@either_preparation
@in_both_places
def test_epochs_without_batches(way: str, make_pipeline: MakePipeline, auto_reset: bool, prepare: bool) -> None:
    pipe = make_pipeline(numbers(0), way)
    iterator = DALIGenericIterator(pipe, ["x"], auto_reset=auto_reset, prepare_first_batch=prepare)

    assert [epoch_of(iterator) for _ in range(3)] == [[], [], []]


@either_preparation
def test_no_epoch_is_skipped_because_it_has_no_batches(prepare: bool) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([], [4], [], [4]), ["x"], prepare_first_batch=prepare)

    assert [len(epoch_of(iterator)) for _ in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("policy", [FILL, PARTIAL])
def test_short_batches_are_delivered_as_they_are(policy: LastBatchPolicy) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([3, 4, 1]), ["x"], last_batch_policy=policy)

    assert epoch_of(iterator) == consecutive(0, 3, 4, 1)


def test_drop_leaves_out_batches_that_are_not_full() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4, 4, 1]), ["x"], last_batch_policy=DROP)

    assert [epoch_of(iterator) for _ in range(2)] == [consecutive(0, 4, 4), consecutive(1000, 4, 4)]


# Epochs of a size


def epochs(
    pipelines: Any, size: int, policy: LastBatchPolicy, *, padded: bool = False, number: int = 3, **options: Any
) -> list[Any]:
    """Return the first epochs of an iterator with a size."""
    iterator = DALIGenericIterator(pipelines, ["x"], size, last_batch_policy=policy, last_batch_padded=padded, **options)
    return [epoch_of(iterator) for _ in range(number)]


@pytest.mark.parametrize(
    ("policy", "padded", "expected"),
    [
        # The last two samples of the third batch, 10 and 11, belong to the second epoch.
        (FILL, False, [consecutive(0, 4, 4, 4), consecutive(12, 4, 4), consecutive(20, 4, 4, 4)]),
        (FILL, True, [consecutive(0, 4, 4, 4), consecutive(12, 4, 4, 4), consecutive(24, 4, 4, 4)]),
        (PARTIAL, False, [consecutive(0, 4, 4, 2), consecutive(12, 4, 4, 2), consecutive(24, 4, 4, 2)]),
        (PARTIAL, True, [consecutive(0, 4, 4, 2), consecutive(12, 4, 4, 2), consecutive(24, 4, 4, 2)]),
        (DROP, False, [consecutive(0, 4, 4), consecutive(12, 4, 4), consecutive(24, 4, 4)]),
        (DROP, True, [consecutive(0, 4, 4), consecutive(12, 4, 4), consecutive(24, 4, 4)]),
    ],
)
@either_reset
@either_preparation
def test_last_batch(
    policy: LastBatchPolicy, padded: bool, expected: Any, auto_reset: bool, prepare: bool, make_pipeline: MakePipeline
) -> None:
    pipe = make_pipeline(numbers(), "serial")

    assert epochs(pipe, 10, policy, padded=padded, auto_reset=auto_reset, prepare_first_batch=prepare) == expected


@pytest.mark.parametrize("policy", LastBatchPolicy)
def test_size_of_full_batches_is_cut_by_no_policy(policy: LastBatchPolicy) -> None:
    pipe = ScriptedPipeline([4] * 100)

    assert epochs(pipe, 8, policy) == [consecutive(0, 4, 4), consecutive(8, 4, 4), consecutive(16, 4, 4)]


def test_size_below_the_batch_size_carries_over() -> None:
    # A batch of 4 exceeds an epoch of 3 samples. It takes 1, then 2, then 0 samples of the next epoch.
    pipe = ScriptedPipeline([4] * 100)

    assert epochs(pipe, 3, FILL, number=4) == [consecutive(first, 4) for first in (0, 4, 8, 12)]


@pytest.mark.parametrize(
    ("size", "policy", "expected"),
    [
        # For each epoch and batch: the numbers of samples from the two pipelines.
        (10, FILL, [[[4, 4], [4, 4]], [[4, 4]], [[4, 4]]]),
        (10, PARTIAL, [[[4, 4], [2]], [[4, 4], [2]], [[4, 4], [2]]]),
        (14, PARTIAL, [[[4, 4], [4, 2]], [[4, 4], [4, 2]], [[4, 4], [4, 2]]]),
        (12, PARTIAL, [[[4, 4], [4]], [[4, 4], [4]], [[4, 4], [4]]]),
        (10, DROP, [[[4, 4]], [[4, 4]], [[4, 4]]]),
    ],
)
def test_size_counts_the_samples_of_all_pipelines(size: int, policy: LastBatchPolicy, expected: Any) -> None:
    pipelines = [ScriptedPipeline([4] * 100) for _ in range(2)]
    iterator = DALIGenericIterator(pipelines, ["x"], size, last_batch_policy=policy)

    assert [[[len(pipeline["x"]) for pipeline in batch] for batch in iterator] for _ in range(3)] == expected


def test_pipelines_end_an_epoch_with_the_size() -> None:
    pipe = ScriptedPipeline([4, 4])

    assert epochs(pipe, 8, FILL) == [consecutive(first, 4, 4) for first in (0, 1000, 2000)]


def test_epoch_goes_on_in_the_next_one_of_the_pipelines() -> None:
    pipe = ScriptedPipeline([4, 4, 4])

    assert epochs(pipe, 8, FILL) == [
        consecutive(0, 4, 4),
        [*consecutive(8, 4), *consecutive(1000, 4)],
        consecutive(1004, 4, 4),
    ]


def test_no_more_than_one_epoch_of_the_pipelines_is_begun() -> None:
    # The second epoch begins the pipeline's epoch of number 1000. When that one ends, so does the iterator's epoch.
    pipe = ScriptedPipeline([4, 4, 4, 4], [4], [4, 4, 4])

    assert epochs(pipe, 12, FILL) == [
        consecutive(0, 4, 4, 4),
        [*consecutive(12, 4), *consecutive(1000, 4)],
        consecutive(2000, 4, 4, 4),
    ]


@pytest.mark.parametrize("policy", LastBatchPolicy)
@either_reset
def test_pipelines_that_are_shorter_than_the_size_end_the_epoch(policy: LastBatchPolicy, auto_reset: bool) -> None:
    pipe = ScriptedPipeline([4, 4])

    assert epochs(pipe, 12, policy, auto_reset=auto_reset) == [consecutive(first, 4, 4) for first in (0, 1000, 2000)]


def test_drop_takes_no_batch_of_the_next_epoch_of_the_pipelines() -> None:
    pipe = ScriptedPipeline([4, 4])

    assert epochs(pipe, 10, DROP) == [consecutive(first, 4, 4) for first in (0, 1000, 2000)]


@pytest.mark.parametrize("policy", [FILL, PARTIAL])
def test_samples_of_short_batches_count(policy: LastBatchPolicy) -> None:
    pipe = ScriptedPipeline([4, 4, 2])

    assert epochs(pipe, 10, policy) == [consecutive(first, 4, 4, 2) for first in (0, 1000, 2000)]


def test_short_batches_that_drop_leaves_out_count() -> None:
    pipe = ScriptedPipeline([4, 3, 4, 4, 4, 4])

    assert epochs(pipe, 12, DROP, number=1) == [[*consecutive(0, 4), *consecutive(7, 4)]]


@pytest.mark.parametrize("policy", LastBatchPolicy)
def test_reset_behind_the_last_batch_goes_on_in_the_stream(policy: LastBatchPolicy) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4] * 100), ["x"], 10, last_batch_policy=policy)
    for _ in range(len(iterator)):
        next(iterator)

    iterator.reset()

    assert plain(next(iterator)) == [12, 13, 14, 15]


def test_for_loop_behind_the_last_batch_is_the_next_epoch() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4] * 100), ["x"], 8)
    for _ in range(len(iterator)):
        next(iterator)

    assert epoch_of(iterator) == consecutive(8, 4, 4)


def test_reset_within_an_epoch_carries_nothing_over() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4] * 100), ["x"], 10)
    epoch_of(iterator)
    iterator.reset()
    next(iterator)

    iterator.reset()

    assert len(iterator) == 3
    assert epoch_of(iterator) == consecutive(1000, 4, 4, 4)


def test_fill_last_batch_is_an_older_name() -> None:
    def sizes(fill: bool) -> list[int]:
        iterator = DALIGenericIterator(ScriptedPipeline([4] * 100), ["x"], 10, fill_last_batch=fill, last_batch_policy=DROP)
        return [len(batch) for batch in epoch_of(iterator)]

    assert (sizes(True), sizes(False)) == ([4, 4, 4], [4, 4, 2])


# Several pipelines


def test_pipelines_advance_together_until_the_first_ends(way: str, make_pipeline: MakePipeline) -> None:
    pipelines = [make_pipeline(numbers(length, first), way) for length, first in ((12, 0), (8, 100), (12, 200))]
    iterator = DALIGenericIterator(pipelines, ["x"])

    for epoch in (0, 1000):
        assert epoch_of(iterator) == [
            [[epoch + first + i for i in batch] for first in (0, 100, 200)] for batch in (range(4), range(4, 8))
        ]


def test_drop_wants_the_batches_of_all_pipelines_to_be_full() -> None:
    pipelines = [ScriptedPipeline([4, 4]), ScriptedPipeline([4, 3])]

    assert len(epoch_of(DALIGenericIterator(pipelines, ["x"], last_batch_policy=DROP))) == 1


def test_batch_of_one_pipeline_survives_the_error_of_another() -> None:
    pipelines = [ScriptedPipeline([4, 4]), ScriptedPipeline([ValueError("broken"), 4, 4])]
    iterator = DALIGenericIterator(pipelines, ["x"], prepare_first_batch=False)

    with pytest.raises(ValueError, match="broken"):
        next(iterator)

    assert plain(next(iterator)) == [[0, 1, 2, 3], [0, 1, 2, 3]]


def test_reset_drops_batches_taken_beside_an_error() -> None:
    pipelines = [ScriptedPipeline([4, 4]), ScriptedPipeline([4, ValueError("broken")])]
    iterator = DALIGenericIterator(pipelines, ["x"])
    next(iterator)
    with pytest.raises(ValueError, match="broken"):
        next(iterator)

    iterator.reset()

    assert plain(next(iterator)) == [[1000, 1001, 1002, 1003], [1000, 1001, 1002, 1003]]


def test_tuple_of_pipelines() -> None:
    assert len(next(DALIGenericIterator((ScriptedPipeline([4]), ScriptedPipeline([4])), ["x"]))) == 2


# The first batch


@either_preparation
def test_first_batch_is_taken_when_asked_to(prepare: bool, make_pipeline: MakePipeline) -> None:
    calls = []

    def source(info: Any) -> Any:
        calls.append(info)
        return np.array(0)

    DALIGenericIterator(make_pipeline(source, "serial"), ["x"], prepare_first_batch=prepare)

    assert bool(calls) is prepare


@either_preparation
def test_pipelines_are_built(prepare: bool, start_method: str, make_pipeline: MakePipeline) -> None:
    pipelines = [make_pipeline(numbers(), start_method, workers=1) for _ in range(2)]

    DALIGenericIterator(pipelines, ["x"], prepare_first_batch=prepare)

    assert all(repr(pipe).endswith(", built>") for pipe in pipelines)


def test_error_of_the_first_batch_shows_at_once(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: Any) -> Any:
        raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback"):
        DALIGenericIterator(make_pipeline(source, way), ["x"])


def test_iterator_goes_on_behind_an_error(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: Any) -> Any:
        if info.iteration == 1:
            raise ZeroDivisionError("in the callback")
        return numbers(12)(info)

    iterator = DALIGenericIterator(make_pipeline(source, way), ["x"])
    next(iterator)
    with pytest.raises(ZeroDivisionError, match="in the callback"):
        next(iterator)

    assert epoch_of(iterator) == consecutive(8, 4)


# Length and size


@pytest.mark.parametrize(
    ("size", "policy", "num_pipelines", "expected"),
    [
        *((8, policy, 1, 2) for policy in LastBatchPolicy),
        *((9, policy, 1, length) for policy, length in ((FILL, 3), (PARTIAL, 3), (DROP, 2))),
        *((9, policy, 2, length) for policy, length in ((FILL, 2), (PARTIAL, 2), (DROP, 1))),
        *((1, policy, 2, 1) for policy in (FILL, PARTIAL)),
    ],
)
def test_length_of_a_size(size: int, policy: LastBatchPolicy, num_pipelines: int, expected: int) -> None:
    pipelines = [ScriptedPipeline([4] * 100) for _ in range(num_pipelines)]
    iterator = DALIGenericIterator(pipelines, ["x"], size, last_batch_policy=policy)

    assert (len(iterator), len(epoch_of(iterator))) == (expected, expected)


@either_reset
def test_length_of_an_epoch_excludes_batches_taken_before(auto_reset: bool) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4] * 100), ["x"], 10, auto_reset=auto_reset)

    lengths = [(len(iterator), len(epoch_of(iterator))) for _ in range(4)]

    assert lengths == [(3, 3), (2, 2), (3, 3), (2, 2)]


def test_length_does_not_change_during_an_epoch() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4] * 100), ["x"], 10)

    assert [len(iterator) for _ in iterator] == [3, 3, 3]
    assert [len(iterator) for _ in iterator] == [2, 2]


def test_length_behind_an_epoch_that_was_shorter_than_the_size() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4, 4]), ["x"], 12)
    epoch_of(iterator)

    assert len(iterator) == 3


def test_length_without_a_size_is_that_of_the_shortest_pipeline() -> None:
    assert len(DALIGenericIterator(ScriptedPipeline([4, 4, 2]), ["x"])) == 3
    assert len(DALIGenericIterator([ScriptedPipeline([4, 4, 4]), ScriptedPipeline([4, 4])], ["x"])) == 2


def test_length_is_unknown_where_that_of_the_source_is(make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(make_pipeline(numbers(12), "serial"), ["x"])

    with pytest.raises(TypeError):
        len(iterator)


@pytest.mark.parametrize("size", [-1, 10, np.int64(10)])
def test_size_and_batch_size(size: int) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4]), ["x"], size)

    assert (iterator.size, iterator.batch_size) == (size, 4)


# Checkpoints


def places_of(iterator: Any) -> list[tuple[int, int]]:
    """Return epoch and iteration of each pipeline, from the iterator's state."""
    return [(state["epoch"], state["iteration"]) for state in iterator.state_dict()["pipelines"]]


@either_preparation
def test_checkpoints_are_where_the_user_is(prepare: bool) -> None:
    pipelines = [ScriptedPipeline([4, 4, 4], enable_checkpointing=True) for _ in range(2)]
    iterator = DALIGenericIterator(pipelines, ["x"], prepare_first_batch=prepare)

    places = [places_of(iterator)]
    for _ in range(2):
        next(iterator)
        places.append(places_of(iterator))

    assert places == [[(0, 0)] * 2, [(0, 1)] * 2, [(0, 2)] * 2]


def test_checkpoints_are_states_as_text() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4], enable_checkpointing=True), ["x"], size=4)

    assert [json.loads(checkpoint) for checkpoint in iterator.checkpoints()] == iterator.state_dict()["pipelines"]


def test_checkpoint_behind_an_epoch_is_the_beginning_of_the_next() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([4], enable_checkpointing=True), ["x"], auto_reset=True)
    epoch_of(iterator)

    assert places_of(iterator) == [(1, 0)]


def test_checkpoint_behind_an_epoch_without_batches() -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([], [4], enable_checkpointing=True), ["x"], auto_reset=True)
    epoch_of(iterator)

    assert places_of(iterator) == [(1, 0)]


def going_on(length: int | None, checkpoints: Sequence[Any], **options: Any) -> Any:
    """Return an iterator over one pipeline per checkpoint, with sources of `length` numbers."""

    def pipeline(first: int, checkpoint: Any) -> Pipeline:
        pipe = Pipeline(4, enable_checkpointing=True, checkpoint=checkpoint)
        with pipe:
            pipe.set_outputs(fn.external_source(source=numbers(length, first), batch=False))
        return pipe

    pipelines = [pipeline(100 * i, checkpoint) for i, checkpoint in enumerate(checkpoints)]
    return DALIGenericIterator(pipelines, ["x"], **options)


@pytest.mark.parametrize("policy", LastBatchPolicy)
@pytest.mark.parametrize(("length", "size"), [(None, 10), (12, 10), (8, 10), (24, -1)])
def test_iterators_go_on_from_their_checkpoints(length: int | None, size: int, policy: LastBatchPolicy) -> None:
    paddings = (False, True) if policy is FILL else (False,)
    for taken, auto_reset, padded, num_pipelines in itertools.product((0, 2, 3, 4), (False, True), paddings, (1, 2)):
        options = {"size": size * num_pipelines if size > 0 else size, "last_batch_policy": policy}
        options |= {"auto_reset": auto_reset, "last_batch_padded": padded}
        iterator = going_on(length, [None] * num_pipelines, **options)
        take(iterator, taken)

        resumed = going_on(length, iterator.checkpoints(), **options)

        assert len(resumed) == len(iterator) if size > 0 else True
        assert [take(resumed, 1), epoch_of(resumed), epoch_of(resumed)] == [
            take(iterator, 1),
            epoch_of(iterator),
            epoch_of(iterator),
        ], (taken, options)


def take(iterator: Any, steps: int) -> list[Any]:
    """Call ``next`` `steps` times. The end of an epoch gives None, and the next epoch begins."""
    taken: list[Any] = []
    for _ in range(steps):
        try:
            taken.append(plain(next(iterator)))
        except StopIteration:
            taken.append(None)
            iterator.reset()
    return taken


def test_checkpoint_at_an_end_that_has_been_seen() -> None:
    for length, size in ((8, 10), (8, 8)):
        iterator = going_on(length, [None], size=size)
        first = epoch_of(iterator)

        resumed = going_on(length, iterator.checkpoints(), size=size)

        assert (len(first), epoch_of(resumed)) == (2, consecutive(1000, 4, 4))


def test_reset_of_an_iterator_that_goes_on_within_an_epoch() -> None:
    iterator = going_on(None, [None], size=12)
    next(iterator)

    resumed = going_on(None, iterator.checkpoints(), size=12)
    resumed.reset()

    assert plain(next(resumed)) == [1000, 1001, 1002, 1003]


def test_checkpoints_of_iterators_that_count_in_another_way() -> None:
    one, other = (going_on(None, [None], size=12) for _ in range(2))
    next(one)

    with pytest.raises(CheckpointError, match="size=12, not 8"):
        going_on(None, one.checkpoints(), size=8)
    with pytest.raises(CheckpointError, match="not from one iterator at one moment"):
        going_on(None, [*one.checkpoints(), *other.checkpoints()], size=12)
    with pytest.raises(CheckpointError, match="not from one iterator at one moment"):
        going_on(None, [*one.checkpoints(), None], size=12)


def test_checkpoints_of_pipelines_that_make_none() -> None:
    with pytest.raises(ArgumentClashError, match="enable_checkpointing=True"):
        DALIGenericIterator(ScriptedPipeline([4]), ["x"]).checkpoints()


# Wrong arguments


@pytest.mark.parametrize("value", [None, [], ()])
def test_no_pipelines(value: Any) -> None:
    with pytest.raises(IteratorArgumentError, match="at least one"):
        DALIGenericIterator(value, ["x"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pipelines": numbers()}, ArgumentTypeError, "must be Pipeline objects, not "),
        (
            {"pipelines": [ScriptedPipeline([4]), ScriptedPipeline([4], batch_size=3)]},
            IteratorArgumentError,
            r"same batch size; these have \[3, 4\]",
        ),
        (
            {"pipelines": [ScriptedPipeline([4]), ScriptedPipeline([4], enable_checkpointing=True)]},
            IteratorArgumentError,
            "same enable_checkpointing",
        ),
        ({"output_map": "x"}, ArgumentTypeError, "list of names, not 'x'"),
        ({"output_map": [1]}, ArgumentTypeError, r"list of names, not \[1\]"),
        ({"output_map": ["x", "x"]}, OutputMapError, r"different name, not \['x', 'x'\]"),
        ({"output_map": []}, OutputMapError, r"must have 1 names, .*, not \[\]"),
        ({"output_map": ["x", "y"]}, OutputMapError, r"must have 1 names, .*, not \['x', 'y'\]"),
        *(({"size": size}, IteratorArgumentError, f"not {size}") for size in (0, -2)),
        *(({"size": size}, ArgumentTypeError, "integer, not") for size in (10.0, "10", True, None)),
        *(({"auto_reset": value}, IteratorArgumentError, f"auto_reset.*not {value!r}") for value in (0, 1, "maybe")),
        *(({"last_batch_policy": value}, ArgumentTypeError, "LastBatchPolicy, not") for value in (None, 1, "DROP")),
        ({"reader_name": "reader", "size": 4}, IteratorArgumentError, "come from the reader 'reader': leave them out"),
        ({"reader_name": "reader", "last_batch_padded": True}, IteratorArgumentError, "leave them out beside reader_name"),
        ({"size": 3, "last_batch_policy": DROP}, ArgumentClashError, "of 3 samples: a full batch has 4"),
    ],
)
@either_preparation
def test_wrong_arguments(arguments: dict[str, Any], error: type[ArgumentError], message: str, prepare: bool) -> None:
    options = {"pipelines": ScriptedPipeline([4]), "output_map": ["x"], **arguments}

    with pytest.raises(error, match=message):
        next(DALIGenericIterator(**options, prepare_first_batch=prepare))


def test_reader_name_of_no_source(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers())

    with pytest.raises(ArgumentClashError, match=r"Operator reader not found .*known length: none"):
        DALIGenericIterator(pipe, ["x"], reader_name="reader")


@pytest.mark.parametrize("value", [False, None, "no"])
def test_values_that_mean_no_auto_reset(value: Any) -> None:
    iterator = DALIGenericIterator(ScriptedPipeline([]), ["x"], auto_reset=value)

    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)
