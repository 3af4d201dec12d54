"""Loaders of composed datasets: batches of ranks, ends of epochs, states, errors and workers."""

from __future__ import annotations

import functools
import json
import os
import pickle
import signal
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader, merge_states
from dali_like.errors import (
    ArgumentClashError,
    CheckpointError,
    LoaderTimeoutError,
    WorkerDiedError,
)
from dali_like.sources.sharding import Shard
from tests.conftest import wait_until
from tests.data.loader_cases import MANY_WORKERS, loader_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

SHARDED = ["sharded", "random access"]
WORKERS = [0, 1, 2]


def always(number: int) -> bool:
    return True


def fails_at_5(number: int) -> bool:
    if number == 5:
        raise ValueError("five")
    return True


def negated(number: int) -> int:
    return -number


def numbers(count: int = 12, *, shards: int | None = 4, keep: Any = always) -> ComposedDataset:
    """Return numbers equal to their positions: in logical shards, or with random access for None."""
    dataset = ComposedDataset.source(range(count))
    return dataset if shards is None else dataset.filter(keep).with_options(shards=shards)


def dataset_of(kind: str, count: int = 12) -> ComposedDataset:
    return numbers(count, shards=None if kind == "random access" else 4)


def loader(dataset: ComposedDataset, batch_size: int | None = 2, workers: int = 0, **options: Any) -> DataLoader[Any]:
    return loader_of(dataset, workers, batch_size=batch_size, collate_fn=options.pop("collate_fn", as_given), **options)


def as_given(elements: Any) -> Any:
    return elements


def rank_of(dataset: ComposedDataset, rank: int, ranks: int, batch_size: int | None = 2, **options: Any) -> DataLoader[Any]:
    return loader(dataset, batch_size, shard_id=rank, num_shards=ranks, **{"shard_rest": "uneven", **options})


def ranks_of(dataset: ComposedDataset, ranks: int, batch_size: int, **options: Any) -> list[DataLoader[Any]]:
    return [rank_of(dataset, rank, ranks, batch_size, **options) for rank in range(ranks)]


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


def joined(batches: Any) -> list[Any]:
    """Return the elements of all batches."""
    return [element for batch in batches for element in batch]


def outcomes(batches: Any) -> list[Any]:
    """Return the remaining batches of an iterator; in the place of an error, its text."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(batches))
        except StopIteration:
            return found
        except ValueError as error:
            found.append(str(error))


# Positions of ranks


@pytest.mark.parametrize("kind", SHARDED)
def test_ranks_take_turns_within_a_step(kind: str) -> None:
    dataset = numbers(16, shards=4) if kind == "sharded" else numbers(16, shards=None)

    two = [next(iter(each)) for each in ranks_of(dataset, 2, 4)]
    four = [next(iter(each)) for each in ranks_of(dataset, 4, 2)]

    assert two == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert four == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_batches_and_shards_need_no_relation() -> None:
    assert next(iter(rank_of(numbers(60, shards=12), 0, 4, 5))) == [0, 4, 8, 12, 16]


@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("workers", WORKERS)
def test_a_loader_delivers_the_positions_of_its_rank(kind: str, workers: int, batch_size: int | None) -> None:
    steps = [list(Shard(1, 2).stripe(begin, batch_size or 1)) for begin in range(0, 12, (batch_size or 1) * 2)]

    batches = list(rank_of(dataset_of(kind), 1, 2, batch_size, workers=workers))

    assert batches == ([step[0] for step in steps] if batch_size is None else steps)


def test_three_ranks_become_four_between_batches() -> None:
    dataset = numbers(60, shards=12)
    before = ranks_of(dataset, 3, 1)
    for each in before:
        batches = iter(each)
        [next(batches) for _ in range(5)]

    states = through_json([each.state_dict() for each in before])
    after = rank_of(dataset, 0, 4, 1)
    after.load_state_dict(states)

    assert states[0]["position"] == 15
    assert next(iter(after)) == [16]


def test_three_ranks_take_larger_batches_and_keep_their_shards() -> None:
    dataset = numbers(60, shards=12)
    before, after = rank_of(dataset, 0, 3, 2), rank_of(dataset, 0, 3, 3)
    batches = iter(before)
    assert [next(batches) for _ in range(2)] == [[0, 3], [6, 9]]

    after.load_state_dict(before.state_dict())  # its own state is enough

    assert next(iter(after)) == [12, 15, 18]


# Epochs


def drawn(rng: np.random.Generator, number: int) -> int:
    return int(rng.integers(1000))


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("workers", [0, 2])
def test_each_iterator_is_the_next_epoch(kind: str, workers: int) -> None:
    dataset = ComposedDataset.source(range(12)).shuffle(seed=3)
    dataset = dataset if kind == "random access" else dataset.filter(always).with_options(shards=4)
    each = loader(dataset, 4, workers)
    epochs = [list(each), next(iter(each)), list(each)]

    assert sorted(joined(epochs[0])) == sorted(joined(epochs[2])) == list(range(12))
    assert epochs[0] != epochs[2]
    for number in (2, 0):
        each.set_epoch(number)
        assert list(each) == epochs[number]
    assert next(iter(each)) == epochs[1]


def test_only_composed_datasets_have_epochs() -> None:
    loader = DataLoader(range(4))

    assert not hasattr(loader, "set_epoch")
    with pytest.raises(AttributeError, match=r"DataLoader\.set_epoch: it is for composed datasets"):
        loader.set_epoch(1)


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("workers", [0, 2])
def test_an_endless_stream_goes_on(kind: str, workers: int) -> None:
    batches = iter(rank_of(dataset_of(kind, 8).repeat(), 0, 2, 3, workers=workers, shard_rest=None))

    delivered = [next(batches) for _ in range(4)]

    assert delivered == [[0, 2, 4], [6, 0, 2], [4, 6, 0], [2, 4, 6]]


def test_the_number_of_batches_is_known_with_random_access() -> None:
    assert len(loader(numbers(7, shards=None))) == 4
    assert len(loader(numbers(7, shards=None), drop_last=True)) == 3
    for dataset in (numbers(7), numbers(7, shards=None).repeat()):
        with pytest.raises(TypeError):
            len(loader(dataset))


RESTS = ["drop", "pad", "uneven", "count"]


@pytest.mark.parametrize("rest", RESTS)
@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_end_of_an_epoch(rest: str, kind: str, workers: int) -> None:
    full = [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]
    # Logical shards are filled up with their own first elements, and a stream with random access with its own.
    filling = ([8, 2], [1, 3]) if kind == "sharded" else ([8, 1], [0, 2])
    expected = {
        "drop": full,
        "count": full,
        "pad": [[*each, last] for each, last in zip(full, filling, strict=True)],
        "uneven": [[*full[0], [8]], full[1]],
    }
    dataset = dataset_of(kind, 9)
    if rest == ("drop" if kind == "sharded" else "count"):
        with pytest.raises(ArgumentClashError, match=r"unknown|known"):
            rank_of(dataset, 0, 2, shard_rest=rest)
        return

    batches = [list(each) for each in ranks_of(dataset, 2, 2, shard_rest=rest, workers=workers)]

    assert batches == expected[rest]


@pytest.mark.parametrize("workers", [0, 2])
def test_last_batches_may_be_dropped(workers: int) -> None:
    for kind in SHARDED:
        assert list(loader(dataset_of(kind, 9), 2, workers, drop_last=True)) == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("rest", ["count", "pad"])
def test_a_count_is_kept_in_the_state(rest: str, tmp_path: Path) -> None:
    def keep(number: int) -> bool:
        with (tmp_path / "calls").open("a") as calls:
            calls.write(".")
        return True

    dataset = numbers(8, keep=keep)
    before = rank_of(dataset, 0, 2, shard_rest=rest)
    next(iter(before))
    state = through_json(before.state_dict())
    calls = (tmp_path / "calls").stat().st_size

    after = rank_of(dataset, 0, 2, shard_rest=rest)
    after.load_state_dict(state)
    assert next(iter(after)) == [4, 6]

    assert calls == 8 + 2
    assert (tmp_path / "calls").stat().st_size == calls + 2
    assert state["counts"] == [2, 2, 2, 2]


def below_36(number: int) -> bool:
    return number < 36


@pytest.mark.parametrize("shuffles", [False, True])
def test_a_count_serves_other_epochs_unless_they_differ(shuffles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = []

    def count(self: ComposedDataset, epoch: int = 0) -> list[int]:
        epochs.append(epoch)
        return counted(self, epoch)

    counted = ComposedDataset.count_outputs
    monkeypatch.setattr(ComposedDataset, "count_outputs", count)
    source = ComposedDataset.source(range(40))
    dataset = (source.shuffle() if shuffles else source).filter(below_36).map(negated).with_options(shards=4)
    each = rank_of(dataset, 0, 2, shard_rest="count")

    next(iter(each)), next(iter(each))
    each.set_epoch(1)
    next(iter(each))
    resumed = rank_of(dataset, 0, 2, shard_rest="count")
    resumed.load_state_dict(each.state_dict())
    next(iter(resumed)), next(iter(resumed))

    assert epochs == ([0, 1, 2] if shuffles else [0])


@pytest.mark.parametrize(
    ("dataset", "varies"),
    [
        (numbers(9).map(negated), False),
        (numbers(9).shuffle(block=3), False),
        (numbers(9).map(negated, rng=True), False),
        (numbers(9).map(negated, rng=True).filter(bool), True),
        (numbers(9).shuffle(block=3).filter(bool), True),
        (numbers(9).batch_by_budget(9, abs), False),
        (numbers(9).batch_by_budget(9, abs).filter(bool), True),
        (numbers(9).repeat().take(7).filter(bool), True),
        (ComposedDataset.mix([numbers(9), numbers(9)]), True),
    ],
)
def test_the_stages_tell_whether_counts_differ(dataset: ComposedDataset, varies: bool) -> None:
    assert dataset.count_varies is varies


def test_counts_of_a_state_are_checked() -> None:
    each = loader(numbers())
    with pytest.raises(CheckpointError, match="3 counts, but 4 logical shards"):
        each.load_state_dict({**each.state_dict(), "counts": [1, 2, 3]})


def test_a_rank_without_elements_warns() -> None:
    with pytest.warns(UserWarning, match="the stream has no elements for this rank"):
        assert list(rank_of(numbers(1), 1, 2)) == []


# Arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_order": False}, "delivered in order"),
        ({"shuffle": True}, r"dataset.shuffle\(\)"),
        ({"sampler": [1, 2]}, "leave sampler= out"),
        ({"batch_sampler": [[1, 2]]}, "leave batch_sampler= out"),
        ({"shard_rest": "some"}, "shard_rest must be one of"),
        ({"shard_id": 0, "num_shards": 3, "shard_rest": "uneven"}, "3 ranks cannot share out 4 logical shards"),
        ({"shard_id": 0, "num_shards": 2}, 'Pass shard_rest="count"'),
    ],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(numbers(), num_workers=1, **options)


@pytest.mark.parametrize("option", [{"shard_id": 0}, {"num_shards": 1}, {"shard_rest": "pad"}], ids=str)
def test_ranks_are_for_composed_datasets(option: dict[str, Any]) -> None:
    with pytest.raises(ArgumentClashError, match="is for composed datasets"):
        DataLoader(range(3), **option)


def test_idle_workers_are_named() -> None:
    loader = rank_of(numbers(4, shards=2), 0, 2, workers=2)
    with pytest.warns(UserWarning, match=r"fewer logical shards \(1\) than workers \(2\), so some"):
        assert list(loader) == [[0, 2]]
    assert loader.statistics().sources[0].logical_shards == 1
    assert "; 1 without a logical shard, so idle" in str(loader.report())


def with_pid(number: int) -> tuple[int, int]:
    return number, os.getpid()


def dying_at_5(path: Path, number: int) -> tuple[int, int]:
    if number == 5 and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return with_pid(number)


def first_of_pairs(number: int) -> bool:
    return number % 4 < 2


@pytest.mark.parametrize(("batch_size", "shards", "workers"), [(4, 1, 3), (3, 2, 3), (5, 2, 4), (1, 1, 2)])
def test_workers_share_a_shard_that_ends_with_a_map(batch_size: int, shards: int, workers: int) -> None:
    dataset = numbers(48, shards=shards, keep=first_of_pairs).map(with_pid)
    each = loader(dataset, batch_size, workers)

    found = joined(each)

    assert [number for number, _ in found] == [number for number in range(48) if first_of_pairs(number)]
    assert len({pid for _, pid in found}) == workers
    assert "idle" not in str(each.report())


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_state_of_a_shared_shard_is_behind_all_of_its_workers(steps: int) -> None:
    dataset = numbers(24, shards=1).map(negated)
    each = loader(dataset, 3, 2)
    batches = iter(each)
    delivered = [next(batches) for _ in range(steps)]
    state = through_json(each.state_dict())
    assert state["states"]["0"][0] == 3 * steps
    resumed = loader(dataset, 4, 3)
    resumed.load_state_dict(state)

    assert joined(delivered) + joined(resumed) == [-number for number in range(24)]


def test_another_worker_continues_in_a_shared_shard(tmp_path: Path) -> None:
    dataset = numbers(12, shards=1).map(functools.partial(dying_at_5, tmp_path / "dead"))

    found = joined(loader(dataset, 3, 2))

    assert [number for number, _ in found] == list(range(12))
    assert len({pid for _, pid in found}) == 3


# Collation


def with_process(elements: list[int]) -> tuple[list[int], int]:
    return elements, os.getpid()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_collates_batches_that_are_its_own(workers: int) -> None:
    batches = list(loader(numbers(8), 4, workers, collate_fn=with_process))

    assert [elements for elements, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert all((pid == os.getpid()) == (workers == 2) for _, pid in batches)


@pytest.mark.parametrize("workers", WORKERS)
def test_arrays_are_stacked(workers: int) -> None:
    (batch,) = loader_of(numbers(4).map(np.float32), workers, batch_size=4)

    assert batch.dtype == np.float32
    assert batch.tolist() == [0, 1, 2, 3]


def refused(elements: list[int]) -> Any:
    raise ZeroDivisionError("refused")


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_of_the_collation_has_a_note(workers: int) -> None:
    with pytest.raises(ZeroDivisionError, match="refused") as caught:
        next(iter(loader(numbers(4), 4, workers, collate_fn=refused)))

    assert caught.value.__notes__[0].startswith("raised ")


class Element(NamedTuple):
    """A large array, texts, and numbers."""

    array: np.ndarray[Any, Any]
    text: str
    parts: dict[str, Any]


def element(number: int) -> Element:
    parts = {"number": number, "small": np.full(3, number, np.int16), "complex": np.array([1j * number])}
    return Element(np.full((64, 300), number, np.float32), f"text {number}", parts)


def ragged_at_33(number: int) -> Element:
    made = element(number)
    return made._replace(array=made.array[:9]) if number == 33 else made


def equal(one: Any, other: Any) -> bool:
    """Return whether two batches of elements are equal."""
    return (
        np.array_equal(one.array, other.array)
        and one.text == other.text
        and one.parts.keys() == other.parts.keys()
        and all(np.array_equal(one.parts[name], other.parts[name]) for name in one.parts)
    )


def batches_of(dataset: ComposedDataset, workers: int, method: str = "fork", **options: Any) -> list[Any]:
    """Return the batches with the default collation."""
    return list(loader_of(dataset, workers, batch_size=4, method=method, **options))


@pytest.mark.parametrize("method", ["fork", "thread"])
@pytest.mark.parametrize(("shards", "workers"), [(4, 2), (5, 2), (7, 3), (1, 1)])
def test_workers_fill_the_rows_of_a_batch(method: str, shards: int, workers: int) -> None:
    """Also with holes behind the ends of shards, and with wherever the shards of a worker are in a batch."""
    dataset = numbers(42, shards=shards).map(element)

    batches = batches_of(dataset, workers, method)

    assert len(batches) == 11
    assert all(map(equal, batches, batches_of(dataset, 0)))


def test_elements_of_several_workers_lie_in_the_memory_that_workers_write() -> None:
    batches = iter(loader_of(numbers(64).map(element), 2, batch_size=4))
    for _ in range(8):  # until the schema is known
        next(batches)

    batch = next(batches)

    assert not batch.array.flags.owndata
    assert batch.array[:, 0, 0].tolist() == [32, 33, 34, 35]


@pytest.mark.parametrize("workers", [0, 2])
def test_elements_that_do_not_fit_are_collated(workers: int) -> None:
    batches = iter(loader_of(numbers(48).map(ragged_at_33), workers, batch_size=4))
    for number in range(8):
        assert next(batches).array[:, 0, 0].tolist() == list(range(4 * number, 4 * number + 4))

    with pytest.raises((ValueError, RuntimeError), match=r"same shape|equal size"):
        next(batches)

    assert next(batches).parts["number"].tolist() == [36, 37, 38, 39]


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_rows_survive_a_change_of_the_batch_size(method: str) -> None:
    each = loader_of(numbers(60).map(element), 2, batch_size=4, method=method, persistent_workers=True)
    first = [batch.parts["number"].tolist() for batch in each]

    each.batch_sampler.batch_size = 6
    second = [batch.parts["number"].tolist() for batch in each]

    assert joined(first) == joined(second) == list(range(60))
    assert {len(batch) for batch in second} == {6}


def test_another_worker_fills_the_rows_of_a_dead_one(tmp_path: Path) -> None:
    dataset = numbers(40, keep=DieOnce(tmp_path, at=25)).map(element)

    batches = batches_of(dataset, 2)

    assert (tmp_path / "dead").exists()
    assert all(map(equal, batches, batches_of(numbers(40).map(element), 0)))


# Errors of elements


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_takes_the_place_of_its_batch(workers: int) -> None:
    assert outcomes(iter(loader(numbers(8, keep=fails_at_5), 2, workers))) == [[0, 1], [2, 3], "five", [6, 7]]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_names_dataset_stage_position_and_worker(workers: int) -> None:
    with pytest.raises(ValueError, match="five") as caught:
        list(loader(numbers(8, keep=fails_at_5), 2, workers))

    notes = "\n".join(caught.value.__notes__)
    assert "raised by stage filter" in notes
    assert "raised by dataset ComposedDataset for position 5 of epoch 0 (batch 2)" in notes
    assert ("in worker 0" in notes) == bool(workers)


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_function_replaces_failed_elements(kind: str, workers: int) -> None:
    dataset = dataset_of(kind, 8).map(fails_at_5)

    batches = list(loader(dataset, 4, workers, on_error=lambda position, error: (position, str(error))))

    assert batches == [[True] * 4, [True, (5, "five"), True, True]]


def unless_5_or_11(number: int) -> int:
    if number in (5, 11):
        raise ValueError(f"bad {number}")
    return number


@pytest.mark.parametrize(("kind", "instead_of_5", "instead_of_11"), [("random access", 6, 0), ("shards", 9, 3)])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_replacement_of_a_skipped_element_depends_on_its_position_alone(
    kind: str, instead_of_5: int, instead_of_11: int, workers: int
) -> None:
    """Neither batches nor ranks matter, so all ranks have equally many batches, and a resume is exact."""
    dataset = dataset_of(kind).map(unless_5_or_11)
    expected = [*range(5), instead_of_5, *range(6, 11), instead_of_11]

    for ranks, batch_size in ((1, 4), (2, 2), (2, 1)):
        each = ranks_of(dataset, ranks, batch_size, workers=workers, on_error="skip")
        of_ranks = [joined(of_rank) for of_rank in each]
        assert joined(zip(*of_ranks, strict=True)) == expected
        assert sum(of_rank.statistics().replaced_samples for of_rank in each) == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_an_element_without_a_replacement_is_an_error(workers: int) -> None:
    batches = iter(loader(numbers(3, shards=1).map(_refused), 1, workers, on_error="skip"))

    assert outcomes(batches) == ["0", "1", "2"]


def _refused(number: int) -> int:
    raise ValueError(str(number))


# States


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("workers", WORKERS)
def test_a_state_belongs_to_the_last_returned_batch(kind: str, workers: int) -> None:
    dataset = dataset_of(kind, 11)
    expected = list(loader(dataset, 2))
    each = loader(dataset, 2, workers, **({"prefetch_factor": 4} if workers else {}))
    states, batches = [each.state_dict()], iter(each)
    for number, batch in enumerate(batches, 1):
        assert batch == expected[number - 1]
        states.append(through_json(each.state_dict()))

    for number, state in enumerate(states):
        resumed = loader(dataset, 2, (workers + number) % 3)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert state["position"] == 2 * number
        assert list(resumed) == expected[number:]
    assert each.state_dict()["epoch"] == 1
    assert each.state_dict()["position"] == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_behind_an_error_does_not_repeat_it(workers: int) -> None:
    dataset = numbers(8, keep=fails_at_5)
    each = loader(dataset, 2, workers)
    batches = iter(each)
    next(batches), next(batches)
    with pytest.raises(ValueError, match="five"):
        next(batches)

    resumed = loader(dataset, 2)
    resumed.load_state_dict(through_json(each.state_dict()))

    assert list(resumed) == [[6, 7]]


class InterruptOnce:
    """Returns numbers. At 5, it interrupts the program once, as Ctrl-C does."""

    has_interrupted = False

    def __call__(self, number: int) -> int:
        if number == 5 and not self.has_interrupted:
            self.has_interrupted = True
            signal.raise_signal(signal.SIGINT)
        return number


@pytest.mark.parametrize("kind", SHARDED)
def test_an_interrupt_loses_no_batch(kind: str) -> None:
    each = loader(dataset_of(kind, 8).map(InterruptOnce()), 2)
    batches = iter(each)
    delivered = [next(batches), next(batches)]
    with pytest.raises(KeyboardInterrupt):
        next(batches)

    state = each.state_dict()
    delivered += batches

    assert delivered == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert state["position"] == 4


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_outlives_the_iterator(kind: str, workers: int) -> None:
    each = loader(dataset_of(kind), 2, workers)
    for batch in each:
        if batch == [2, 3]:
            break
    del batch

    state = each.state_dict()
    each.load_state_dict(state)

    assert state["position"] == 4
    assert list(each) == [[4, 5], [6, 7], [8, 9], [10, 11]]


@pytest.mark.parametrize("combine", [list, merge_states])
@pytest.mark.parametrize(("ranks", "batch_size", "workers"), [(1, 5, 2), (4, 1, 0), (2, 3, 1), (3, 2, 1)])
def test_a_stream_resumes_on_other_ranks(combine: Any, ranks: int, batch_size: int, workers: int) -> None:
    dataset = numbers(48, shards=12)
    before = ranks_of(dataset, 2, 3, workers=1)
    for each in before:
        batches = iter(each)
        next(batches), next(batches)
    states = combine([each.state_dict() for each in before])

    after = ranks_of(dataset, ranks, batch_size, workers=workers)
    for each in after:
        each.load_state_dict(states)

    assert sorted(number for each in after for batch in each for number in batch) == list(range(12, 48))


def test_a_missing_rank_is_named() -> None:
    dataset = numbers()
    states = [each.state_dict() for each in ranks_of(dataset, 2, 2)]

    with pytest.raises(CheckpointError, match="shard 1 is missing; it was saved by rank 1 of 2"):
        loader(dataset).load_state_dict(states[:1])


def test_without_shards_one_state_is_enough_near_an_uneven_end() -> None:
    dataset = numbers(9, shards=None)
    states = []
    for each in ranks_of(dataset, 2, 1):
        batches = iter(each)
        for _ in range(5):
            next(batches, None)
        states.append(each.state_dict())
    assert [(state["epoch"], state["position"]) for state in states] == [(0, 10), (1, 0)]

    for state in (states, states[0]):
        each = loader(dataset)
        each.load_state_dict(state)
        assert list(each) == []


@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (2, 1), (4, 1)])
def test_some_ranks_may_have_finished_an_uneven_epoch(ranks: int, workers: int) -> None:
    dataset = numbers(18).filter(even_or_early)
    before = ranks_of(dataset, 2, 1)
    iterators = [iter(each) for each in before]
    taken = [next(batches, None) for _ in range(5) for batches in iterators]
    states = through_json([each.state_dict() for each in before])
    assert states[0]["epoch"] == 0
    assert states[1]["epoch"] == 1
    left = joined(iterators[0])

    after = ranks_of(dataset, ranks, 1, workers=workers)
    for each in after:
        each.load_state_dict(states)
    resumed = [joined(each) for each in after]

    assert None in taken
    assert sorted(joined(resumed)) == left
    again = [each.state_dict() for each in after]
    assert {state["epoch"] for state in again} == {1}
    assert sorted(joined(joined(each) for each in after)) == sorted(joined(loader(dataset, 1)))


def even_or_early(number: int) -> bool:
    return number % 2 == 0 or number < 6


def test_an_epoch_resumes_twice_near_its_uneven_end() -> None:
    dataset = numbers(24).filter(even_or_early)
    before = ranks_of(dataset, 2, 1)
    for each in before:
        batches = iter(each)
        for _ in range(5):
            next(batches, None)
    states = [each.state_dict() for each in before]

    middle = ranks_of(dataset, 4, 1)
    for each in middle:
        each.load_state_dict(states)
        next(iter(each), None)
    last = loader(dataset, 4)
    last.load_state_dict([each.state_dict() for each in middle])

    assert joined(last) == [14, 16, 18, 20, 22]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_rank_that_is_ahead_delivers_nothing_twice_after_a_resume(workers: int) -> None:
    ahead, behind = ranks_of(numbers(16), 2, 2)
    batches = iter(ahead)
    next(batches), next(batches)
    states = through_json([ahead.state_dict(), behind.state_dict()])

    resumed = loader(numbers(16), 4, workers)
    resumed.load_state_dict(states)
    batches = iter(resumed)

    assert [next(batches), next(batches)] == [[1, 3], [5, 7]]
    resumed.load_state_dict(through_json(resumed.state_dict()))
    assert list(resumed) == [[8, 9, 10, 11], [12, 13, 14, 15]]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_rank_that_is_ahead_is_not_raised_again_after_a_resume(workers: int) -> None:
    dataset = numbers(16, keep=fails_at_5)
    behind, ahead = ranks_of(dataset, 2, 1)
    assert outcomes(iter(ahead)) == [[1], [3], "five", [7], [9], [11], [13], [15]]
    ahead.set_epoch(0)
    batches = iter(ahead)
    next(batches), next(batches)
    with pytest.raises(ValueError, match="five"):
        next(batches)
    states = through_json([behind.state_dict(), ahead.state_dict()])

    resumed = loader(dataset, 4, workers)
    resumed.load_state_dict(states)

    assert list(resumed) == [[0, 2], [4, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]


def test_ranks_in_the_middle_of_different_epochs_are_named() -> None:
    each, other = ranks_of(numbers(), 2, 2)
    list(each), next(iter(each))

    with pytest.raises(CheckpointError, match="rank 1 has epoch 0, and rank 0 has 1"):
        loader(numbers()).load_state_dict([each.state_dict(), other.state_dict()])


def test_a_loaded_state_is_saved_with_the_new_description() -> None:
    def mixture(schedule: Any) -> ComposedDataset:
        parts = [ComposedDataset.source(range(100)), ComposedDataset.source(range(100, 200))]
        return ComposedDataset.mix(parts, schedule=schedule, block=4, stop="never")

    before = loader(mixture([(0, [1, 1])]), 4)
    next(iter(before))
    changed = mixture([(0, [1, 1]), (4, [1, 3])])
    after = loader(changed, 4)
    after.load_state_dict(before.state_dict(), allow_change=["weights"])

    state = after.state_dict()

    loader(changed, 4).load_state_dict(state)  # the new weights are in it
    assert state["position"] == 4


def test_a_rank_saves_its_own_shards_right_after_a_resume() -> None:
    dataset = numbers()
    after = ranks_of(dataset, 4, 1)
    for each in after:
        each.load_state_dict([each.state_dict() for each in ranks_of(dataset, 2, 2)])

    states = [each.state_dict() for each in after]

    assert [list(state["states"]) for state in states] == [["0"], ["1"], ["2"], ["3"]]
    assert merge_states(states)["num_ranks"] == 1


def test_the_epoch_of_a_loaded_state_may_be_set_again() -> None:
    each, resumed = loader(numbers(4)), loader(numbers(4))
    next(iter(each))
    state = each.state_dict()

    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert list(resumed) == [[2, 3]]

    resumed.load_state_dict(state)
    resumed.set_epoch(3)
    assert resumed.state_dict()["epoch"] == 3
    assert list(resumed) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("kind", SHARDED)
def test_an_epoch_may_resume_behind_its_last_batch(kind: str, recwarn: pytest.WarningsRecorder) -> None:
    each = loader(dataset_of(kind, 4), 4)
    batches = iter(each)
    next(batches)
    resumed = loader(dataset_of(kind, 4), 4)
    resumed.load_state_dict(each.state_dict())

    assert list(resumed) == []
    assert list(resumed) == [[0, 1, 2, 3]]
    assert not recwarn.list


def test_an_empty_state_is_ignored() -> None:
    each = loader(numbers(4))
    each.load_state_dict({})
    assert list(each) == [[0, 1], [2, 3]]


# Workers


class DieOnce:
    """Keeps all numbers. At 5 or another one, the first process dies."""

    def __init__(self, folder: Path, *, always: bool = False, at: int = 5) -> None:
        self.path = folder / "dead"
        self.always = always
        self.at = at

    def __call__(self, number: int) -> bool:
        if number == self.at and (self.always or not self.path.exists()):
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return True


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_worker_continues_for_a_dead_one(method: str, tmp_path: Path) -> None:
    dataset = numbers(12, keep=DieOnce(tmp_path))

    batches = list(loader(dataset, 3, 1 if method == "spawn" else 2, method=method))

    assert batches == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert (tmp_path / "dead").exists()


def test_without_restarts_a_dead_worker_is_an_error(tmp_path: Path) -> None:
    dataset = numbers(12, keep=DieOnce(tmp_path))
    each = loader(dataset, 3, 2, worker_restarts=0)
    batches = iter(each)
    delivered: list[Any] = []
    with pytest.raises(WorkerDiedError):
        delivered.extend(batches)
    state = each.state_dict()
    del batches

    resumed = loader(dataset, 3)
    resumed.load_state_dict(state)

    assert delivered + list(resumed) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


class WaitAt5:
    """Keeps all numbers. At 5, it waits for a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "go"

    def __call__(self, number: int) -> bool:
        if number == 5:
            wait_until(self.path.exists, "the file")
        return True


def test_a_batch_may_come_after_a_timeout(tmp_path: Path) -> None:
    dataset = numbers(8, keep=WaitAt5(tmp_path))
    batches = iter(loader(dataset, 4, 2, timeout=0.2, method="thread"))
    delivered = [next(batches)]

    with pytest.raises(LoaderTimeoutError, match=r"timed out after 0\.2 seconds"):
        next(batches)
    (tmp_path / "go").touch()

    def next_or_none() -> Any:
        try:
            return next(batches)
        except LoaderTimeoutError:
            return None

    assert [*delivered, wait_until(next_or_none, "the batch")] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert list(batches) == []


def test_persistent_workers_serve_all_epochs() -> None:
    each = loader(numbers(8).map(with_pid), 4, 2, persistent_workers=True)

    first, second = (joined(each) for _ in range(2))

    assert first == second
    assert [number for number, _ in first] == list(range(8))
    assert len({pid for _, pid in first} - {os.getpid()}) == 2


def test_shards_stay_with_their_worker() -> None:
    pids = dict.fromkeys(range(4))
    for number, pid in joined(loader(numbers(12).map(with_pid), 3, 2)):
        assert pids[number % 4] in (None, pid)
        pids[number % 4] = pid

    assert pids[0] == pids[2] != pids[1] == pids[3]


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("options", [{"method": "thread"}, {"prefetch_epochs": True}], ids=str)
def test_other_workers(kind: str, options: dict[str, Any]) -> None:
    dataset = ComposedDataset.source(range(12)).shuffle(seed=1)
    dataset = dataset if kind == "random access" else dataset.filter(always).with_options(shards=4)
    plain, each = loader(dataset, 3), loader(dataset, 3, 2, **options)
    for _ in range(3):
        assert list(each) == list(plain)
        assert each.state_dict() == plain.state_dict()


@pytest.mark.parametrize("kind", SHARDED)
def test_a_pickled_loader_continues_with_its_epochs(kind: str) -> None:
    each = loader(dataset_of(kind, 4))
    list(each)

    copied = pickle.loads(pickle.dumps(each))

    assert list(copied) == [[0, 1], [2, 3]]
    assert copied.state_dict()["epoch"] == 2


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("workers", [0, 2])
def test_statistics_count_elements_and_batches(kind: str, workers: int) -> None:
    each = loader(dataset_of(kind, 9), 4, workers)
    list(each)

    (dataset,) = each.statistics().sources
    assert (dataset.samples, dataset.batches) == (9, 3)


def test_nothing_is_left_behind() -> None:
    before = set(os.listdir("/dev/shm"))
    each = loader_of(numbers(40).map(with_large_array), 2, batch_size=4)
    next(iter(each))
    del each

    wait_until(lambda: set(os.listdir("/dev/shm")) <= before, "the end of the shared memory")


def with_large_array(number: int) -> Any:
    return np.full(100_000, number)


def test_persistent_workers_serve_datasets_that_cannot_be_pickled() -> None:
    lock = threading.Lock()  # cannot be pickled, so that the parts of the dataset are compared
    parts = [numbers(8, shards=None).map(lambda number: (lock.locked(), os.getpid())) for _ in range(2)]
    each = loader(ComposedDataset.mix(parts, block=4), 4, 1, persistent_workers=True)

    assert joined(each) == joined(each)


@pytest.mark.parametrize(
    ("count", "options", "said"),
    [
        (103, {}, "each epoch leaves out 3 of 103 elements: they do not fill a batch of 10 on each of 2 ranks"),
        (100, {}, ""),
        (103, {"shard_rest": "drop"}, ""),
        (103, {"shard_rest": "pad"}, ""),
    ],
    ids=["by default", "none", "drop", "pad"],
)
def test_elements_that_ranks_leave_out_are_counted_in_the_log(
    caplog: pytest.LogCaptureFixture, count: int, options: dict[str, Any], said: str
) -> None:
    DataLoader(ComposedDataset.source(range(count)), 10, shard_id=0, num_shards=2, **options)

    lines = [record.getMessage() for record in caplog.records if "leaves out" in record.getMessage()]
    assert len(lines) == bool(said)
    assert all(said in line for line in lines)
