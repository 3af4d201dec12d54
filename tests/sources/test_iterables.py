"""Iterables as sources: one walk an epoch, in order; no item is lost or delivered twice."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import floordiv
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, errors, fn, get_worker_info
from dali_like.engine.worker.streams import Stream
from dali_like.types import BatchInfo, SampleInfo
from tests.batches import (
    BATCH_SIZE,
    END,
    ITERABLES,
    ITERATORS,
    LENGTH,
    Batches,
    batch_of,
    batch_source,
    batches_in,
    epoch_of,
    generate,
    numbers_in,
    outcome,
    outcomes,
    pipeline_of,
)
from tests.conftest import WAYS, in_both_places, in_processes, wait_until
from tests.internals import space_of

MIB = 1 << 20


# Epochs


@pytest.mark.parametrize("kind", ITERABLES)
@pytest.mark.parametrize("way", WAYS)  # they are pickled
def test_iterable_begins_anew_in_each_epoch(kind: str, way: str) -> None:
    with pipeline_of((ITERABLES[kind](), {}), way=way) as pipe:
        assert outcomes(pipe, 3 * LENGTH + 3) == 3 * epoch_of()


def each_batch_in(outputs: Sequence[Any]) -> list[Any]:
    return [batches_in([output]) for output in outputs]


def one_shot(way: str) -> list[str]:
    return [kind for kind in ITERATORS if kind != "generator" or way != "spawn"]  # those cannot be pickled


@pytest.mark.parametrize("kind", ITERATORS)
@pytest.mark.parametrize("way", WAYS)  # they are pickled
def test_iterator_has_one_epoch(kind: str, way: str) -> None:
    if kind not in one_shot(way):
        pytest.skip("generators cannot be pickled")
    with pipeline_of((ITERATORS[kind](), {}), way=way) as pipe:
        assert outcomes(pipe, LENGTH + 4) == [*epoch_of(), END, END, END]


def test_generator_cannot_travel_to_spawned_workers() -> None:
    with (
        pipeline_of((generate(), {"name": "batches"}), way="spawn") as pipe,
        pytest.raises(errors.PicklingError, match=r"'batches'.*generator"),
    ):
        pipe.build()


@pytest.mark.parametrize("taken", [1, LENGTH])
@pytest.mark.parametrize("kind", ["list", "generator function"])
@in_both_places
def test_reset_in_the_middle_begins_anew(kind: str, taken: int, way: str) -> None:
    with pipeline_of((ITERABLES[kind](), {}), way=way) as pipe:
        for _ in range(3):
            assert outcomes(pipe, taken) == list(range(taken))
            pipe.reset()
        assert outcomes(pipe, LENGTH + 1) == epoch_of()


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("kind", ["iterator", "generator"])
@in_both_places
def test_iterator_goes_on_after_a_reset_in_the_middle(kind: str, depth: int, way: str) -> None:
    if kind not in one_shot(way):
        pytest.skip("generators cannot be pickled")
    with pipeline_of((ITERATORS[kind](), {}), way=way, prefetch_queue_depth=depth) as pipe:
        seen = outcomes(pipe, 1)
        for count in (2, 1, 2):
            pipe.reset()
            seen += outcomes(pipe, count)
        pipe.reset()

        assert seen == list(range(LENGTH))
        assert outcomes(pipe, 2) == [END, END]


@pytest.mark.parametrize("kind", [*ITERATORS, "no cycle"])
@in_both_places
def test_iterator_goes_on_after_an_epoch_that_another_source_has_ended(kind: str, way: str) -> None:
    source, options = (Batches(), {"cycle": "no"}) if kind == "no cycle" else (ITERATORS[kind](), {})

    with pipeline_of((source, options), (Batches(3), {}), way=way) as pipe:
        seen = outcomes(pipe, 10, each_batch_in)

    assert seen == [[0, 0], [1, 1], [2, 2], END, [3, 0], [4, 1], [5, 2], END, END, END]


class Ending(Iterator[Any]):
    """An iterator of batches that says how often it has ended."""

    def __init__(self) -> None:
        self.batches = iter(list(Batches()))
        self.num_ends = 0

    def __next__(self) -> Any:
        for batch in self.batches:
            return batch
        self.num_ends += 1
        raise StopIteration


def test_epochs_that_were_begun_behind_an_end_are_not_where_a_reset_has_moved_it() -> None:
    """An iterator that ends again at once: the next epoch gets the items that this one leaves."""
    iterator = Ending()

    def of_epoch(info: BatchInfo) -> Any:
        return batch_of(10 * info.epoch_idx + info.iteration)

    sources = (iterator, {}), (of_epoch, {"batch_info": True})
    with pipeline_of(*sources, way="thread", prefetch_queue_depth=12) as pipe:
        seen = []
        for num_ends in (6, 7):  # of those behind the first epoch, and behind the second; the next run takes note of them
            seen += outcomes(pipe, 1, each_batch_in)
            wait_until(lambda n=num_ends: iterator.num_ends >= n, "the end")
        seen += outcomes(pipe, 1, each_batch_in)
        pipe.reset()
        seen += outcomes(pipe, 4, each_batch_in)

    assert seen == [[0, 0], [1, 1], [2, 2], [3, 10], [4, 11], [5, 12], END]


@pytest.mark.parametrize("taken", [3, 2], ids=["whole epochs", "left before their ends"])
@pytest.mark.parametrize("depth", [1, 2, 8])
@pytest.mark.parametrize("way", ["serial", "fork", "thread"])
def test_iterator_that_goes_on_behind_its_end_has_an_epoch_up_to_each(way: str, depth: int, taken: int) -> None:
    numbers = itertools.count(1)

    class Threes(Iterator[Any]):
        def __next__(self) -> Any:
            number = next(numbers)
            if number % 3 == 0:
                raise StopIteration
            return batch_of(number)

    with pipeline_of((Threes(), {}), way=way, prefetch_queue_depth=depth) as pipe:
        seen = []
        for _ in range(3):
            seen += outcomes(pipe, taken)
            pipe.reset()

    assert seen == ([1, 2, END, 4, 5, END, 7, 8, END] if taken == 3 else [1, 2, END, 4, 5, END])


@in_both_places
def test_iterator_goes_on_after_a_reset_while_operators_are_ahead(way: str) -> None:
    simplejpeg = pytest.importorskip("simplejpeg")

    def jpegs(number: int) -> Any:
        return [np.frombuffer(simplejpeg.encode_jpeg(np.full((8, 8, 3), 10 * number, np.uint8)), np.uint8)] * 2

    def number_in(outputs: Sequence[Any]) -> int:
        return round(int(outputs[0].at(0)[0, 0, 0]) / 10)

    pipe = Pipeline(2, 2, py_num_workers=1, prefetch_queue_depth=3)
    images = fn.external_source(iter([jpegs(number) for number in range(12)]), batch=True, parallel=way != "serial")
    pipe.set_outputs(fn.decoders.image(images))
    with contextlib.closing(pipe):
        seen = []
        for count in (1, 4, 2, 3):
            seen += outcomes(pipe, count, number_in)
            pipe.reset()
        seen += outcomes(pipe, 3, number_in)

    assert seen == epoch_of(12)


@pytest.mark.parametrize("ways", [("serial", "fork"), ("fork", "serial")], ids="-".join)
def test_iterator_next_to_a_source_elsewhere_loses_nothing(ways: tuple[str, str]) -> None:
    parallel = [{"parallel": way != "serial"} for way in ways]

    with pipeline_of((iter(list(Batches(10))), parallel[0]), (Batches(3), parallel[1])) as pipe:
        seen = outcomes(pipe, 12, each_batch_in)

    assert seen == [[0, 0], [1, 1], [2, 2], END, [3, 0], [4, 1], [5, 2], END, [6, 0], [7, 1], [8, 2], END]


@pytest.mark.parametrize("lengths", [(2, 5, 3), (5, 2, 3), (4, 4, 1)], ids=str)
@in_both_places
def test_iterables_of_different_lengths_stay_aligned(lengths: tuple[int, ...], way: str) -> None:
    with pipeline_of(*((Batches(length), {}) for length in lengths), way=way, prefetch_queue_depth=3) as pipe:
        assert outcomes(pipe, 3 * min(lengths) + 3) == 3 * epoch_of(min(lengths))


@in_both_places
def test_iterable_without_items_has_empty_epochs(way: str) -> None:
    with pipeline_of((Batches(0), {}), way=way) as pipe:
        assert outcomes(pipe, 3) == [END, END, END]


@in_both_places
def test_iterable_with_another_epoch_each_time(way: str) -> None:
    class Growing:
        def __init__(self) -> None:
            self.length = 0

        def __iter__(self) -> Iterator[Any]:
            self.length += 1
            return iter(Batches(self.length))

    with pipeline_of((Growing(), {}), way=way) as pipe:
        assert outcomes(pipe, 9) == [0, END, 0, 1, END, 0, 1, 2, END]


@in_both_places
@pytest.mark.parametrize("length", [2, 99])
def test_length_of_an_iterable_does_not_end_its_epochs(length: int, way: str) -> None:
    class Sized(Batches):
        def __len__(self) -> int:
            return length

    with pipeline_of((Sized(), {}), way=way) as pipe:
        assert len(pipe) == length
        assert outcomes(pipe, 2 * LENGTH + 2) == 2 * epoch_of(LENGTH)


# Checkpoints


@pytest.mark.parametrize("kind", ["list", "generator function", *ITERATORS])
@in_both_places
def test_checkpoint_at_every_position(kind: str, way: str) -> None:
    """With another source that ends the epochs."""

    def sources() -> list[tuple[Any, dict[str, Any]]]:
        return [((ITERABLES | ITERATORS)[kind](), {}), (lambda info: next(itertools.islice(Batches(4), info, None)), {})]

    with pipeline_of(*sources(), way=way, enable_checkpointing=True) as pipe:
        checkpoints, seen = [pipe.checkpoint()], []
        for _ in range(10):
            seen += outcomes(pipe, 1, each_batch_in)
            checkpoints.append(pipe.checkpoint())
        seen += outcomes(pipe, 3, each_batch_in)

    for position in range(0, len(checkpoints), 3 if way == "fork" else 1):  # starting workers takes its time
        with pipeline_of(*sources(), way=way, checkpoint=checkpoints[position]) as pipe:
            assert outcomes(pipe, 3, each_batch_in) == seen[position : position + 3]


# Cycles


@pytest.mark.parametrize(
    ("kind", "cycle"),
    [("list", True), ("object with __iter__", "quiet"), ("generator function", "quiet"), ("rewinding iterator", True)],
)
@in_both_places
def test_quiet_cycle_never_ends(kind: str, cycle: Any, way: str) -> None:
    with pipeline_of((ITERABLES[kind](), {"cycle": cycle}), way=way) as pipe:
        assert outcomes(pipe, 3 * LENGTH) == 3 * list(range(LENGTH))


@pytest.mark.parametrize("kind", ["list", "generator function"])
@in_both_places
def test_raising_cycle_ends_each_epoch(kind: str, way: str) -> None:
    with pipeline_of((ITERABLES[kind](), {"cycle": "raise"}), way=way) as pipe:
        assert outcomes(pipe, 2 * LENGTH + 2) == 2 * epoch_of()


@pytest.mark.parametrize(
    ("kind", "cycle"),
    [("list", False), ("object with __iter__", "no"), ("generator function", "no"), ("rewinding iterator", False)],
)
@in_both_places
def test_without_a_cycle_there_is_one_epoch(kind: str, cycle: Any, way: str) -> None:
    with pipeline_of((ITERABLES[kind](), {"cycle": cycle}), way=way) as pipe:
        assert outcomes(pipe, LENGTH + 3) == [*epoch_of(), END, END]


@pytest.mark.parametrize("cycle", ["quiet", "raise"])
@pytest.mark.parametrize("kind", ["iterator", "map"])
@in_both_places
def test_an_iterator_has_nothing_to_cycle_through(kind: str, cycle: str, way: str) -> None:
    with pipeline_of((ITERATORS[kind](), {"cycle": cycle}), way=way) as pipe:
        assert outcomes(pipe, LENGTH + 3) == [*epoch_of(), END, END]


@in_both_places
def test_quiet_cycle_of_nothing_ends_at_once(way: str) -> None:
    with pipeline_of((Batches(0), {"cycle": "quiet"}), way=way) as pipe:
        assert outcomes(pipe, 2) == [END, END]


@in_both_places
def test_quiet_cycle_begins_anew_in_an_epoch_that_another_source_begins(way: str) -> None:
    with pipeline_of((Batches(2), {"cycle": "quiet"}), (Batches(3), {}), way=way) as pipe:
        seen = outcomes(pipe, 8, each_batch_in)

    assert seen == 2 * [[0, 0], [1, 1], [0, 2], END]


@in_both_places
def test_quiet_cycle_survives_an_error_where_it_begins_anew(way: str) -> None:
    def first_raises(number: int) -> NDArray[Any]:
        if number == 0:
            raise LookupError
        return batch_of(number)

    with pipeline_of((Batches(3, first_raises), {"cycle": "quiet"}), way=way) as pipe:
        assert outcomes(pipe, 6) == ["LookupError", 1, 2, "LookupError", 1, 2]


@pytest.mark.parametrize("cycle", ["often", 3, None], ids=repr)
def test_cycle_of_a_callable_or_unknown_is_refused(cycle: Any) -> None:
    source, cycle = (Batches(), cycle) if cycle is not None else (lambda info: None, "quiet")
    with pytest.raises(ValueError, match="cycle"), pipeline_of((source, {"cycle": cycle})):
        pass


@pytest.mark.parametrize("cycle", [True, "quiet", "raise"])
def test_generator_cannot_cycle(cycle: Any) -> None:
    with (
        pytest.raises(TypeError, match="Cannot cycle through a generator"),
        pipeline_of((generate(), {"cycle": cycle})),
    ):
        pass


# Kinds of iterables, and their processes


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_items_of_several_outputs(num_outputs: int, way: str) -> None:
    def outputs_of(number: int) -> Any:
        return [(batch_of, lambda number: list(batch_of(number)))[j % 2](number) for j in range(num_outputs)]

    with pipeline_of((Batches(make=outputs_of), {"num_outputs": num_outputs}), way=way) as pipe:
        assert len(pipe.run()) == num_outputs
        assert outcomes(pipe, LENGTH) == epoch_of()[1:]


def test_samples_of_an_iterable_are_made_into_batches() -> None:
    samples = [np.array([100 * (i // 4) + i % 4]) for i in range(14)]

    with pipeline_of((samples, {"batch": False, "last_batch_policy": "drop"}), way="serial") as pipe:
        assert outcomes(pipe, 8) == 2 * epoch_of(3)


@pytest.mark.parametrize(("policy", "last"), [("drop", None), ("partial", [300, 301]), ("fill", [300, 301, 301, 301])])
def test_last_samples_of_an_iterable(policy: str, last: list[int] | None) -> None:
    samples = [np.array([100 * (i // 4) + i % 4]) for i in range(14)]

    def unsized() -> Iterator[Any]:
        yield from samples

    for source in (samples, unsized):
        with pipeline_of((source, {"batch": False, "last_batch_policy": policy}), way="serial") as pipe:
            seen = outcomes(pipe, 5, lambda outputs: numbers_in(outputs[0]))
        assert seen[3:] == ([END, [0, 1, 2, 3]] if last is None else [last, END])


def where(number: int) -> NDArray[Any]:
    return np.array([[os.getpid(), number]])


def test_iterable_is_walked_through_in_one_worker(start_method: str) -> None:
    with pipeline_of((Batches(make=where), {}), workers=3, way=start_method) as pipe:
        pids = {int(outputs[0].at(0)[0]) for _ in range(2) for outputs in pipe}
        assert len(pids) == 1
        assert pids < set(wait_until(lambda: len(pipe.py_worker_pids) == 3 and pipe.py_worker_pids, "three workers"))


@pytest.mark.parametrize("iterables", [2, 5])
def test_iterables_are_shared_out_among_the_workers(iterables: int, start_method: str) -> None:
    def who(number: int) -> NDArray[Any]:
        info = get_worker_info()
        assert info is not None
        return np.array([info.id, info.num_workers])[np.newaxis]

    with pipeline_of(*[(Batches(make=who), {})] * iterables, workers=2, way=start_method) as pipe:
        seen = [[output.at(0).tolist() for output in outputs] for outputs in pipe]

    assert seen == [[[i % 2, 2] for i in range(iterables)]] * LENGTH


def test_iterable_in_the_main_process_has_no_worker() -> None:
    with pipeline_of((Batches(make=lambda number: [np.array(get_worker_info() is None)]), {}), way="serial") as pipe:
        assert all(outputs[0].at(0) for outputs in pipe)


def test_iterables_samples_and_batches_in_one_pipeline(start_method: str) -> None:
    def sample(info: SampleInfo) -> NDArray[Any]:
        return np.array([100 * info.iteration + info.idx_in_batch])

    sources = [
        (Batches(), {}),
        (sample, {"batch": False}),
        (batch_source, {}),
        (generate, {"parallel": False}),
        (sample, {"batch": False, "parallel": False}),
        (generate, {"prefetch_queue_depth": 4}),
        (Batches(), {"sharded": True}),
        (lambda info: batch_of(info.iteration), {"batch_info": True}),
    ]

    with pipeline_of(*sources, workers=1, way=start_method) as pipe:
        assert outcomes(pipe, 3 * LENGTH + 3) == 3 * epoch_of()


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("source_depth", [1, 4])
def test_prefetching_changes_nothing(depth: int, source_depth: int) -> None:
    options = {"prefetch_queue_depth": source_depth}

    with pipeline_of((generate, options), prefetch_queue_depth=depth) as pipe:
        assert outcomes(pipe, 2 * LENGTH + 2) == 2 * epoch_of()


def test_worker_is_ahead_by_both_depths_and_no_more(tmp_path: Path) -> None:
    def noted(number: int) -> NDArray[Any]:
        (tmp_path / str(number)).touch()
        return batch_of(number)

    with pipeline_of((Batches(100, noted), {"prefetch_queue_depth": 3})) as pipe:
        for taken in range(1, 4):
            pipe.run()
            wait_until((tmp_path / str(taken + 4)).exists, "the batches ahead")
            assert len(os.listdir(tmp_path)) == taken + 5


def test_main_process_is_ahead_by_the_depth_of_the_pipeline() -> None:
    made: list[int] = []

    def noted(number: int) -> NDArray[Any]:
        made.append(number)
        return batch_of(number)

    with pipeline_of((Batches(100, noted), {}), way="serial", prefetch_queue_depth=3) as pipe:
        pipe.run()

    assert made == [0, 1, 2]


@in_processes
def test_worker_functions_belong_to_the_iterable(way: str, tmp_path: Path) -> None:
    class Opened:
        def open(self) -> None:
            self.file = (tmp_path / f"{os.getpid()}").open("w")

        def close(self) -> None:
            self.file.write("closed")
            self.file.close()

        def __iter__(self) -> Iterator[Any]:
            for number in range(LENGTH):
                self.file.write(f"{number} ")
                yield batch_of(number)

    source = Opened()
    options = {"worker_setup": source.open, "worker_teardown": source.close}

    with pipeline_of((source, options), way=way, workers=2) as pipe:
        assert outcomes(pipe, LENGTH + 1) == epoch_of()

    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert all(text.endswith("closed") for text in texts)
    assert sum(text.startswith("0 1 2 3 4 5 ") for text in texts) == 1


# Errors


@pytest.mark.parametrize("depth", [1, 4])
def test_error_costs_the_batch_that_it_stands_for(depth: int, way: str) -> None:
    def make(number: int) -> Any:
        if number == 2:
            raise LookupError("no batch 2")
        return None if number == 4 else batch_of(number)

    expected = [0, 1, "LookupError", 3, "SampleTypeError", 5, END]
    with pipeline_of((Batches(make=make), {}), way=way, prefetch_queue_depth=depth) as pipe:
        assert outcomes(pipe, 14) == 2 * expected


@in_both_places
def test_error_of_a_generator_ends_it(way: str) -> None:
    def source() -> Iterator[Any]:
        yield from Batches(3)
        raise LookupError("no more")

    with pipeline_of((source, {}), way=way) as pipe:
        assert outcomes(pipe, 10) == 2 * [0, 1, 2, "LookupError", END]


@in_both_places
def test_error_where_an_epoch_begins(way: str) -> None:
    class Reluctant(Batches):
        tries = 0

        def __iter__(self) -> Iterator[Any]:
            type(self).tries += 1
            if type(self).tries == 2:
                raise LookupError("not now")
            return super().__iter__()

    with pipeline_of((Reluctant(), {}), way=way) as pipe:
        assert outcomes(pipe, 2 * LENGTH + 2) == [*epoch_of(), "LookupError", *epoch_of()[1:]]


@in_both_places
def test_error_has_a_note_that_says_where(way: str) -> None:
    def make(number: int) -> Any:
        if number == 2:
            raise LookupError("no batch 2")
        return batch_of(number)

    with pipeline_of((Batches(make=make), {"name": "batches"}), way=way) as pipe:
        outcomes(pipe, 2)
        with pytest.raises(LookupError) as caught:
            pipe.run()

    assert "external_source 'batches'" in "".join(caught.value.__notes__)
    assert "iteration 2 in epoch 0" in "".join(caught.value.__notes__)


@in_both_places
def test_on_error_makes_a_replacement(way: str) -> None:
    def make(number: int) -> Any:
        if number == 2:
            raise LookupError("no batch 2")
        return [1, 2] if number == 4 else batch_of(number)

    def replacement(info: BatchInfo, error: Exception) -> Any:
        assert isinstance(error, (LookupError, errors.NdimMismatchError))
        return batch_of(info.iteration)

    with pipeline_of((Batches(make=make), {"on_error": replacement, "ndim": 1}), way=way) as pipe:
        assert outcomes(pipe, LENGTH + 1) == epoch_of()


def test_on_error_cannot_ask_an_iterable_for_the_next_index() -> None:
    with pytest.raises(ValueError, match="iterable"), pipeline_of((Batches(), {"on_error": "skip"})):
        pass


def test_generator_function_with_arguments_is_refused() -> None:
    def source(number: int) -> Iterator[Any]:
        yield batch_of(number)

    with pytest.raises(TypeError, match="generator function with arguments"), pipeline_of((source, {})):
        pass


@in_both_places
def test_iterable_that_makes_no_iterator(way: str) -> None:
    class Wrong:
        def __iter__(self) -> Any:
            return 7

    with pipeline_of((Wrong(), {}), way=way) as pipe:
        assert outcomes(pipe, 2) == ["TypeError", "TypeError"]


class ItemsWithABadOne:
    """A sequence by ``__getitem__`` alone."""

    def __getitem__(self, number: int) -> NDArray[Any]:
        if number == 2:
            raise LookupError("no such item")
        return batch_of(number)


@in_both_places
def test_an_item_that_raises_is_where_a_sequence_by_getitem_alone_stays(way: str) -> None:
    """As with DALI: the interpreter's iterator over it does so. The next epoch begins with the first item."""
    with pipeline_of((ItemsWithABadOne(), {}), way=way) as pipe:
        seen = outcomes(pipe, 5)
        pipe.reset()
        seen += outcomes(pipe, 3)

    assert seen == [0, 1, *["LookupError"] * 3, 0, 1, "LookupError"]


# Room


def grown(at: Iterable[int], size: int = 2 * MIB) -> Callable[[int], Any]:
    """Makes batches of samples of different lengths that at some numbers are far larger than before."""

    def make(number: int) -> list[NDArray[Any]]:
        length = size // 8 if number in at else 10
        return [np.full(length + i, 100 * number + i) for i in range(BATCH_SIZE)]

    return make


SOURCES_THAT_GROW: dict[str, Callable[[Batches], Any]] = {
    "object with __iter__": lambda batches: batches,
    "list": list,
    "iterator": lambda batches: iter(list(batches)),
    "map": lambda batches: map(batches.make, range(batches.length)),
}


@pytest.mark.parametrize("at", [(0,), (2, 3, 7)], ids=str)
@pytest.mark.parametrize("kind", SOURCES_THAT_GROW)
@in_both_places
def test_batches_that_need_more_room_come_once_and_in_order(kind: str, at: tuple[int, ...], way: str) -> None:
    source = SOURCES_THAT_GROW[kind](Batches(8, grown(at)))

    with pipeline_of((source, {}), way=way) as pipe:
        assert outcomes(pipe, 9) == epoch_of(8)


def test_iterable_is_not_walked_through_again_for_want_of_room(way: str, tmp_path: Path) -> None:
    """It may be shuffled each time."""
    source = Batches(8, grown({3, 4, 6}), tmp_path)

    with pipeline_of((source, {}), way=way) as pipe:
        outcomes(pipe, 8)
        walks = len(os.listdir(tmp_path))

    assert walks <= 2  # the second is the next epoch, which workers may have begun


@pytest.mark.parametrize("kind", SOURCES_THAT_GROW)
@in_both_places
def test_replacement_that_needs_more_room(kind: str, way: str) -> None:
    def make(number: int) -> Any:
        return None if number in (3, 4) else grown(())(number)

    def replacement(info: BatchInfo, error: Exception) -> Any:
        return grown({3, 4})(info.iteration)

    source = SOURCES_THAT_GROW[kind](Batches(8, make))
    with pipeline_of((source, {"on_error": replacement}), way=way) as pipe:
        assert outcomes(pipe, 9) == epoch_of(8)


@pytest.mark.parametrize("kind", SOURCES_THAT_GROW)
@in_both_places
def test_want_of_memory_costs_nothing_but_an_error(kind: str, way: str) -> None:
    source = SOURCES_THAT_GROW[kind](Batches(24, grown(range(24), MIB)))

    with pipeline_of((source, {}), way=way, max_held_bytes=24 * MIB) as pipe:
        held, seen, errors_seen = [], [], 0
        while len(seen) < 24:
            try:
                held.append(pipe.run())
            except errors.OutOfMemoryError:
                assert len(held) >= 2
                errors_seen += 1
                held.clear()
            else:
                seen.append(batches_in(held[-1]))

    assert seen == list(range(24))
    assert errors_seen >= 3


@pytest.mark.parametrize("kind", SOURCES_THAT_GROW)
@in_both_places
def test_want_of_memory_and_of_room_at_once(kind: str, way: str) -> None:
    source = SOURCES_THAT_GROW[kind](Batches(12, grown(range(5, 12), MIB)))

    with pipeline_of((source, {}), way=way, max_held_bytes=20 * MIB) as pipe:
        held, seen = [], []
        while len(seen) < 12:
            try:
                held.append(pipe.run())
                seen.append(batches_in(held[-1]))
            except errors.OutOfMemoryError:
                held.clear()

    assert seen == list(range(12))


def test_samples_that_wait_for_memory_are_not_lost_with_an_epoch() -> None:
    samples = (np.full(MIB // 8 + i % 3, 100 * (i // 4) + i % 4) for i in itertools.count())

    with pipeline_of((samples, {"batch": False}), (batch_source, {}), way="serial", max_held_bytes=24 * MIB) as pipe:
        held, seen = [], []
        while len(seen) < 20:
            try:
                held.append(pipe.run()[0])
                seen.append(batches_in(held[-1:]))
            except errors.OutOfMemoryError:
                pipe.reset()
                held.clear()

    assert seen == list(range(20))


@pytest.mark.parametrize("kind", ["object with __iter__", "map"])
def test_memory_is_taken_from_batches_that_are_ready_if_they_can_be_made_again(kind: str, tmp_path: Path) -> None:
    """The first batch of one source is late, and finds no memory: the second of the iterable is ready before it."""

    def make(number: int) -> Any:
        if number == 1:
            (tmp_path / str(os.getpid())).touch()
        return grown(range(100), 9 * MIB)(number)

    def is_ready() -> bool:
        """Whether the worker of the iterable is idle."""
        return any(psutil.Process(int(file.name)).status() == psutil.STATUS_SLEEPING for file in tmp_path.iterdir())

    def late(info: SampleInfo) -> NDArray[Any]:
        worker = get_worker_info()
        assert worker is not None
        while worker.id == 1 and info.iteration == 0 and not is_ready():  # the other one makes the iterable's
            time.sleep(0.001)
        return np.full(9 * MIB // 8 + info.idx_in_batch, 100 * info.iteration + info.idx_in_batch)

    declared = {"dtype": np.int64, "ndim": 1}
    with pipeline_of(
        (SOURCES_THAT_GROW[kind](Batches(8, make)), declared),
        (late, declared | {"batch": False, "size": 32}),
        way="fork",
        max_held_bytes=100 * MIB,
    ) as pipe:
        seen = outcomes(pipe, 9)

    delivered = [entry for entry in seen if entry != "OutOfMemoryError"]
    assert delivered == epoch_of(8)[: len(delivered)]
    assert len(delivered) == 9 or kind == "map"  # whose batches are not taken away


@in_both_places
def test_batches_that_are_held_do_not_change(way: str) -> None:
    with pipeline_of((Batches(40, grown({7, 8, 20}, MIB)), {}), way=way) as pipe:
        held = [pipe.run() for _ in range(40)]

        assert [batches_in(outputs) for outputs in held] == list(range(40))
    assert [batches_in(outputs) for outputs in held] == list(range(40))


# Interrupts


class InterruptedAt:
    """Batches. One of them is interrupted by Ctrl-C before it is computed."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, number: int) -> NDArray[Any]:
        if number == self.number:
            self.number = -1
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # here it comes
                pass
        return batch_of(number)


def run_through_interrupt(pipe: Pipeline, count: int) -> list[Any]:
    seen = []
    for _ in range(count):
        try:
            seen.append(outcome(pipe))
        except KeyboardInterrupt:
            seen.append("interrupt")
    return seen


@pytest.mark.parametrize("number", [0, 4])
@pytest.mark.parametrize("kind", ["object with __iter__", "generator function"])
def test_interrupt_costs_an_iterable_in_the_main_process_nothing(kind: str, number: int) -> None:
    batches = Batches(make=InterruptedAt(number))

    def source() -> Iterator[Any]:
        yield from batches

    with pipeline_of((batches if kind == "object with __iter__" else source, {}), way="serial") as pipe:
        seen = run_through_interrupt(pipe, LENGTH + 2)

    assert [entry for entry in seen if entry != "interrupt"] == epoch_of()
    assert "interrupt" in seen


@pytest.mark.parametrize("number", [0, 4])
def test_interrupt_costs_an_iterator_in_the_main_process_one_batch(number: int) -> None:
    """The batch is lost; other sources drop their batches of that iteration."""
    iterator = map(InterruptedAt(number), range(10))

    with pipeline_of((iterator, {}), (map(batch_of, range(10)), {}), way="serial") as pipe:
        seen = run_through_interrupt(pipe, 12)

    expected = [*range(10), END]
    expected[number] = "LostItemError"
    assert [entry for entry in seen if entry != "interrupt"] == expected
    assert "interrupt" in seen


def test_an_interrupt_loses_no_item_of_an_iterator() -> None:
    """It comes while a batch is copied."""
    interrupted = InterruptedAt(3)

    class Late:
        def __init__(self, number: int) -> None:
            self.number = number

        def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
            return interrupted(self.number)

    with pipeline_of((map(Late, range(LENGTH)), {}), way="serial") as pipe:
        seen = run_through_interrupt(pipe, LENGTH + 2)

    assert [entry for entry in seen if entry != "interrupt"] == epoch_of()
    assert "interrupt" in seen


def test_interrupt_on_the_way_to_the_place_of_a_checkpoint() -> None:
    batches = Batches(make=InterruptedAt(1))

    def source() -> Iterator[Any]:
        yield from batches

    with pipeline_of((generate, {}), way="serial", enable_checkpointing=True) as pipe:
        outcomes(pipe, 3)
        checkpoint = pipe.checkpoint()
    with pipeline_of((source, {}), way="serial", checkpoint=checkpoint) as pipe:
        seen = run_through_interrupt(pipe, LENGTH - 1)

    assert seen == ["interrupt", *epoch_of()[3:]]


@pytest.mark.parametrize("source", [Batches(), generate], ids=["object with __iter__", "generator function"])
def test_memory_of_a_closed_pipeline_does_not_wait_for_the_garbage_collector(source: Any) -> None:
    gc.disable()
    try:
        with pipeline_of((source, {}), way="serial") as pipe:
            pipe.run()
            space = weakref.ref(space_of(pipe))
        del pipe
        assert space() is None
    finally:
        gc.enable()


# The walk itself


class Walks:
    """Walks over (number of the walk, item), with a record of the items taken."""

    def __init__(self, length: int = 10) -> None:
        self.length = length
        self.number = 0
        self.taken: list[int] = []

    def __call__(self) -> Iterator[tuple[int, int]]:
        self.number += 1
        return ((self.number, self.taken.append(i) or i) for i in range(self.length))  # type: ignore[func-returns-value]


@pytest.fixture
def walks() -> Walks:
    return Walks()


def test_stream_takes_each_item_once_where_it_is_asked_in_order(walks: Walks) -> None:
    stream = Stream(walks)

    assert [stream(BatchInfo(i, 0)) for i in range(10)] == [(1, i) for i in range(10)]
    assert walks.taken == list(range(10))


def test_a_stream_skips_to_a_later_position_and_reports_each_skip(walks: Walks) -> None:
    stream = Stream(walks)
    skipped: list[int] = []
    stream.on_skip = functools.partial(skipped.append, 1)

    assert stream(BatchInfo(4, 0)) == (1, 4)
    assert len(skipped) == 4


@pytest.mark.parametrize("once", [False, True])
def test_a_stream_gives_items_that_were_put_back_in_any_order(walks: Walks, once: bool) -> None:
    stream = Stream(walks, once=once)

    for position in (0, 1):
        stream.put_back(stream(BatchInfo(position, 0)))
    seen = [stream(BatchInfo(position, 0)) for position in (2, 0, 3, 1)]

    assert seen == [(1, 2), (1, 0), (1, 3), (1, 1)]


def test_stream_does_not_keep_an_item_that_it_has_given_again() -> None:
    stream = Stream(lambda: map(batch_of, range(3)))
    stream.put_back(stream(BatchInfo(0, 0)))

    kept = weakref.ref(stream(BatchInfo(0, 0)))

    assert kept() is None


def test_stream_takes_the_same_back_twice(walks: Walks) -> None:
    stream = Stream(walks)
    stream(BatchInfo(0, 0))
    stream.put_back(stream(BatchInfo(1, 0)))
    stream(BatchInfo(2, 0))
    stream.put_back(stream(BatchInfo(1, 0)))

    assert [stream(BatchInfo(i, 0)) for i in (3, 1, 4)] == [(1, 3), (1, 1), (1, 4)]


def test_a_stream_restarts_for_an_earlier_position(walks: Walks) -> None:
    stream = Stream(walks)

    seen = [stream(BatchInfo(i, epoch)) for i, epoch in [(3, 0), (1, 0), (2, 0), (0, 1), (1, 1)]]

    assert seen == [(1, 3), (2, 1), (2, 2), (3, 0), (3, 1)]


def test_a_stream_forgets_items_that_were_put_back_at_the_end_of_their_epoch(walks: Walks) -> None:
    stream = Stream(walks)
    for position in (0, 1):
        stream.put_back(stream(BatchInfo(position, 0)))

    assert [stream(BatchInfo(i, 1)) for i in (0, 1)] == [(2, 0), (2, 1)]


def test_a_stream_that_cannot_restart_names_the_lost_item(walks: Walks) -> None:
    stream = Stream(walks, once=True)
    stream(BatchInfo(0, 0))
    stream(BatchInfo(1, 0))

    with pytest.raises(errors.LostItemError, match=r"item 1 .* the next is item 2"):
        stream(BatchInfo(1, 0))

    assert [stream(BatchInfo(i, 0)) for i in (2, 5)] == [(1, 2), (1, 5)]


@pytest.mark.parametrize("once", [False, True])
def test_stream_has_no_item_behind_its_end_for_positions_in_any_order(walks: Walks, once: bool) -> None:
    stream = Stream(walks, once=once)

    for position in (13, 10, 12, 11, 14):  # on the way to the first, it meets its end
        with pytest.raises(StopIteration):
            stream(BatchInfo(position, 0))

    assert walks.number == 1


def test_an_ended_stream_that_cannot_restart_names_the_lost_item(walks: Walks) -> None:
    stream = Stream(walks, once=True)
    with pytest.raises(StopIteration):
        stream(BatchInfo(10, 0))

    with pytest.raises(errors.LostItemError, match="item 9"):
        stream(BatchInfo(9, 0))


class Counted:
    """Three items. Its state is the number of its walks."""

    walks = 0

    def __iter__(self) -> Iterator[int]:
        self.walks += 1
        return iter(range(3))

    def state_dict(self) -> dict[str, int]:
        return {"walks": self.walks}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.walks = state["walks"]


def test_stream_that_has_ended_walks_no_more_where_it_goes_on_from_its_state() -> None:
    before, after = Counted(), Counted()
    list(before)
    stream, resumed = (Stream(counted.__iter__, owner=counted) for counted in (before, after))
    with pytest.raises(StopIteration):
        stream(BatchInfo(3, 0))

    resumed.restore(stream.save())

    for position in (3, 4):
        with pytest.raises(StopIteration):
            resumed(BatchInfo(position, 0))
    assert (before.walks, after.walks) == (2, 2)


def test_a_stream_restarts_for_a_position_before_its_state() -> None:
    before, after = Counted(), Counted()
    stream, resumed = (Stream(counted.__iter__, owner=counted) for counted in (before, after))
    list(before)
    stream(BatchInfo(1, 0))

    resumed.restore(stream.save())

    assert [resumed(BatchInfo(i, 0)) for i in (0, 1)] == [0, 1]
    assert after.walks == 1  # the state at the beginning is not known


def test_stream_walks_to_where_it_was_if_nothing_is_said_of_the_state() -> None:
    class Silent(Counted):
        def state_dict(self) -> Any:
            return None

        def load_state_dict(self, state: Any) -> None:
            raise AssertionError

    stream, resumed = (Stream(silent.__iter__, owner=silent) for silent in (Silent(), Silent()))
    stream(BatchInfo(1, 0))

    resumed.restore(stream.save())

    assert resumed(BatchInfo(2, 0)) == 2


def test_stream_takes_the_state_of_an_iterator_where_its_own_has_one() -> None:
    class Walk(Counted):
        def __next__(self) -> int:
            return 0

    stream, resumed = Stream(Walk), Stream(lambda: iter(range(3)))
    stream(BatchInfo(0, 0))
    resumed.restore(stream.save())

    with pytest.raises(errors.CheckpointError, match=r"the state of an iterator; this one has no load_state_dict"):
        resumed(BatchInfo(1, 0))


def test_stream_goes_on_with_an_iterator_that_goes_on_behind_its_end() -> None:
    """As some iterators do that start again after StopIteration."""

    class Periodic:
        def __init__(self) -> None:
            self.numbers = itertools.count()

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            if (number := next(self.numbers)) % 3 == 2:
                raise StopIteration
            return number

    stream = Stream(Periodic, once=True)
    with pytest.raises(StopIteration):
        stream(BatchInfo(2, 0))

    assert [stream(BatchInfo(i, 0)) for i in (3, 4)] == [3, 4]
    with pytest.raises(errors.LostItemError):
        stream(BatchInfo(3, 0))


def test_stream_that_cannot_begin_anew_has_one_epoch(walks: Walks) -> None:
    stream = Stream(walks, once=True)

    assert [stream(BatchInfo(i, epoch)) for i, epoch in ((0, 0), (1, 1), (2, 7))] == [(1, 0), (1, 1), (1, 2)]


def test_stream_skips_items_that_raise() -> None:
    def raising() -> Iterator[int]:
        return map(functools.partial(floordiv, 12), itertools.count(-2))

    stream = Stream(raising)

    assert stream(SampleInfo(3, 0, 0, 0)) == 12
    with pytest.raises(ZeroDivisionError):
        Stream(raising)(SampleInfo(2, 0, 0, 0))
