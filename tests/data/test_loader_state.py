"""States of a loader: a resumed loader yields the same batches, in this epoch and in later ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dali_like.data import BatchSampler, DataLoader, RandomSampler, Sampler, SubsetRandomSampler, WeightedRandomSampler
from dali_like.errors import CheckpointError
from tests.data.loader_cases import MANY_WORKERS, Dice, DiceStream, Made, Squares, Stream, all_of, loader_of, plain

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

KINDS = {"map": Squares, "iterable": Stream}


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state after a round trip through JSON."""
    stored: dict[str, Any] = json.loads(json.dumps(state))
    return stored


def states_of(loader: DataLoader[Any]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Return the states after each batch of an epoch, and the batches before them."""
    batches, delivered = iter(loader), []
    yield through_json(loader.state_dict()), []
    for batch in batches:
        delivered.append(plain(batch))
        yield through_json(loader.state_dict()), list(delivered)


def rest_of(loader: DataLoader[Any], state: dict[str, Any]) -> list[Any]:
    """Return the batches after a state."""
    loader.load_state_dict(state)
    return all_of(loader)


# After every batch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("workers", "method"), [(0, "fork"), (1, "thread"), (2, "fork")])
@pytest.mark.parametrize("options", [{"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}], ids=str)
def test_resume_after_any_batch_delivers_the_missing_batches(kind: str, workers: int, method: str, options: Any) -> None:
    def make() -> DataLoader[Any]:
        return loader_of(KINDS[kind](10), workers, method, **options)

    expected = all_of(make())

    for state, delivered in states_of(make()):
        assert delivered + (rest_of(make(), state) if len(delivered) < len(expected) else []) == expected


@pytest.mark.parametrize("workers", [(0, 2), (2, 0), (1, 3), (3, 1)], ids=str)
@pytest.mark.parametrize("seed", [None, 7], ids=["no generator", "generator"])
def test_the_number_of_workers_may_change(workers: tuple[int, int], seed: int | None) -> None:
    before, after = (loader_of(Squares(), count, batch_size=3, shuffle=True, generator=seed) for count in workers)
    batches = iter(before)
    first = [plain(next(batches)) for _ in range(2)]

    state = through_json(before.state_dict())

    assert rest_of(after, state) == all_of(batches)
    assert len(first) == 2


SAMPLERS: dict[str, Any] = {
    "shuffled": lambda: {"shuffle": True},
    "shuffled with a generator": lambda: {"shuffle": True, "generator": 3},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(0, 20, 2), generator=5)},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1.0] * 20, 12, generator=5)},
    "of any kind": lambda: {"sampler": [3, 1, 4, 1, 5, 9, 2, 6]},
    "batches of any kind": lambda: {"batch_sampler": [[1, 2], [3], [4, 5, 6]], "batch_size": 1},
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 1])
def test_the_order_is_that_of_the_epoch_that_was_under_way(name: str, workers: int) -> None:
    def make() -> DataLoader[Any]:
        return loader_of(Squares(), workers, **{"batch_size": 3, **SAMPLERS[name]()})

    loader = make()
    next(batches := iter(loader))

    state = through_json(loader.state_dict())

    assert rest_of(make(), state) == all_of(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_has_not_begun_has_an_order_already(workers: int) -> None:
    loader = loader_of(Squares(), workers, batch_size=3, shuffle=True)
    batches = iter(loader)

    state = through_json(loader.state_dict())

    assert rest_of(loader_of(Squares(), workers, batch_size=3, shuffle=True), state) == all_of(batches)


def test_a_state_may_be_loaded_where_it_comes_from() -> None:
    for options in ({"workers": 0}, {"workers": 2}, {"workers": 2, "persistent_workers": True}):
        loader = loader_of(Dice(), batch_size=3, shuffle=True, generator=1, **options)
        next(batches := iter(loader))
        state = loader.state_dict()
        expected = all_of(batches)
        list(loader)

        again = rest_of(loader, state)

        assert [batch[1][0] for batch in again] == [batch[1][0] for batch in expected]
        assert again == expected or not options["workers"]


def test_a_state_may_be_loaded_twice() -> None:
    loader = loader_of(Squares(), 1, batch_size=3, shuffle=True)
    next(iter(loader))
    state = loader.state_dict()

    assert rest_of(loader, state) == rest_of(loader, state)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_state_of_a_resumed_loader_resumes(kind: str, workers: int) -> None:
    def make() -> DataLoader[Any]:
        return loader_of(KINDS[kind](12), workers, batch_size=2)

    expected = all_of(make())
    state: dict[str, Any] = {}
    delivered = []
    for _ in expected:
        loader = make()
        loader.load_state_dict(state)
        delivered.append(plain(next(iter(loader))))
        state = through_json(loader.state_dict())

    assert delivered == expected


def test_loaded_state_is_the_state_until_iteration() -> None:
    loader, other = (loader_of(Squares(), batch_size=2) for _ in range(2))
    next(iter(loader))
    state = through_json(loader.state_dict())

    other.load_state_dict(state)

    assert other.state_dict() == state


def test_a_state_is_a_copy() -> None:
    loader = loader_of(Squares(), 1, batch_size=2)
    next(batches := iter(loader))
    state = loader.state_dict()
    before = json.dumps(state)

    next(batches)
    assert json.dumps(state) == before
    rest_of(loader, state)
    assert json.dumps(state) == before


@pytest.mark.parametrize("ahead", range(8))
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_out_of_order_come_once(ahead: int, workers: int, tmp_path: Any) -> None:
    def wait_at_the_first(index: int) -> int:
        while index == 0 and not (tmp_path / "go").exists():
            pass
        return index

    loader = loader_of(Made(wait_at_the_first, 8), 2, batch_size=1, in_order=False, prefetch_factor=4)
    batches = iter(loader)
    delivered = {next(batches).item() for _ in range(min(ahead, 7))}
    state = through_json(loader.state_dict())
    (tmp_path / "go").touch()

    rest = [batch.item() for batch in _resumed(loader_of(range(8), workers, batch_size=1), state)]

    assert rest == sorted(set(range(8)) - delivered)
    list(batches)


@pytest.mark.parametrize("ahead", range(3))
def test_items_of_an_iterable_dataset_out_of_order_come_once(ahead: int, tmp_path: Any) -> None:
    class Slow(Stream):
        def sample(self, number: int) -> int:
            while number == 0 and not (tmp_path / "go").exists():
                pass
            return number

    loader = loader_of(Slow(8), 2, batch_size=1, in_order=False)
    batches = iter(loader)
    delivered = [next(batches).item() for _ in range(ahead)]
    state = through_json(loader.state_dict())
    (tmp_path / "go").touch()

    rest = [batch.item() for batch in _resumed(loader_of(Slow(8), 2, batch_size=1), state)]

    assert delivered == [1, 3][:ahead]
    assert sorted(delivered + rest) == list(range(8))
    list(batches)


def _resumed(loader: DataLoader[Any], state: dict[str, Any]) -> DataLoader[Any]:
    loader.load_state_dict(state)
    return loader


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_end_the_next_epoch_comes(kind: str) -> None:
    for workers in (0, 1):
        loader = loader_of(KINDS[kind](6), workers, batch_size=2)
        expected = all_of(loader)

        assert rest_of(loader_of(KINDS[kind](6), workers, batch_size=2), loader.state_dict()) == expected


def shared() -> dict[str, Any]:
    generator = np.random.default_rng(5)
    return {"sampler": RandomSampler(range(20), generator=generator), "generator": generator}


DRAWING: dict[str, Any] = {
    "shuffled": lambda: {"sampler": RandomSampler(range(20), generator=5)},
    "drawn with replacement": lambda: {"sampler": RandomSampler(range(20), True, 100, generator=5)},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(0, 20, 2), generator=5)},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1.0] * 20, 12, generator=5)},
    "in batches": lambda: {"batch_size": 1, "batch_sampler": BatchSampler(RandomSampler(range(20), generator=5), 3, True)},
    "shared": shared,
}


@pytest.mark.parametrize("name", DRAWING)
@pytest.mark.parametrize("workers", [0, 1])
def test_sampler_draws_the_same_after_a_resume_at_the_end(name: str, workers: int) -> None:
    def make() -> DataLoader[Any]:
        return loader_of(Squares(), workers, **{"batch_size": 3, **DRAWING[name]()})

    loader, other = make(), make()
    first = all_of(loader)
    state = through_json(loader.state_dict())

    expected = [all_of(loader), all_of(loader)]

    assert first != expected[0] != expected[1]
    assert [rest_of(other, state), all_of(other)] == expected


def test_before_the_beginning_the_first_epoch_comes() -> None:
    state = through_json(loader_of(Squares(), 2, batch_size=3, shuffle=True, generator=9).state_dict())

    batches = rest_of(loader_of(Squares(), 2, batch_size=3, shuffle=True, generator=1), state)

    assert batches == all_of(loader_of(Squares(), batch_size=3, shuffle=True, generator=9))


def five_is_wrong(index: int) -> int:
    if index == 5:
        raise LookupError("five")
    return index


class Wrong(Stream):
    """Raises at one item, and continues."""

    class Items:
        def __init__(self, numbers: Iterator[int]) -> None:
            self.numbers = numbers

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            return five_is_wrong(next(self.numbers))

    def __iter__(self) -> Iterator[int]:
        return self.Items(super().__iter__())


@pytest.mark.parametrize("dataset", [Made(five_is_wrong, 12), Wrong(12)], ids=["map", "iterable"])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_counts_as_a_batch(dataset: Any, workers: int) -> None:
    loader = loader_of(dataset, workers, batch_size=2)
    batches = iter(loader)
    with pytest.raises(LookupError):
        list(batches)

    state = through_json(loader.state_dict())

    assert rest_of(loader_of(dataset, workers, batch_size=2), state) == all_of(batches) != []


# Later epochs


LATER: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "shuffled": ({"shuffle": True}, (0, 1, 3, 5)),
    "in order": ({}, (0, 1, 3, 5)),
    "workers": ({"workers": 2, "shuffle": True}, (0, 1, 3, 5)),
    "workers in order": ({"workers": 2}, (3,)),
    "persistent workers": ({"workers": 2, "shuffle": True, "persistent_workers": True}, (1, 5)),
    "epochs ahead": ({"workers": 2, "shuffle": True, "prefetch_epochs": True}, (0, 3)),
}


@pytest.mark.parametrize(
    ("options", "after"),
    [pytest.param(options, after, id=f"{name}, {after}") for name, (options, points) in LATER.items() for after in points],
)
def test_later_epochs_are_those_of_a_run_that_was_not_interrupted(after: int, options: Any) -> None:
    def make() -> DataLoader[Any]:
        return loader_of(Dice(10) if "workers" in options else Squares(10), batch_size=2, generator=4, **options)

    whole = make()
    expected = [all_of(whole) for _ in range(4)]
    interrupted = make()
    list(interrupted)
    batches = iter(interrupted)
    first = [plain(next(batches)) for _ in range(after)]
    if after == 5:
        assert list(batches) == []
    state = through_json(interrupted.state_dict())

    resumed = make()
    resumed.load_state_dict(state)
    epochs = [all_of(resumed) for _ in range(3 if after < 5 else 2)]

    assert first == expected[1][:after]
    assert epochs == ([expected[1][after:], expected[2], expected[3]] if after < 5 else expected[2:])


def test_later_epochs_of_an_iterable_dataset_are_too() -> None:
    def make() -> DataLoader[Any]:
        return loader_of(DiceStream(12), 2, batch_size=2, generator=4, persistent_workers=True)

    whole = make()
    expected = [all_of(whole) for _ in range(3)]
    interrupted = make()
    list(interrupted)
    next(batches := iter(interrupted))
    state = through_json(interrupted.state_dict())
    del batches
    resumed = make()
    resumed.load_state_dict(state)

    assert [all_of(resumed), all_of(resumed)] == [expected[1][1:], expected[2]]


# Epochs prepared ahead of time


class Epochs(Sampler[int]):
    """Indices that begin with the number of the epoch."""

    def __init__(self, length: int = 4) -> None:
        self.length = length
        self.epoch = 0
        self.begun: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.begun.append(self.epoch)
        return iter([(self.epoch * 10 + index) % 100 for index in range(self.length)])

    def __len__(self) -> int:
        return self.length


def ahead_of(sampler: Epochs, **options: Any) -> DataLoader[Any]:
    return loader_of(Made(int, 100), 2, sampler=sampler, batch_size=2, prefetch_epochs=True, **options)


def values_of(loader: Any) -> list[int]:
    return list(itertools.chain.from_iterable(batch.tolist() for batch in loader))


def test_the_next_epoch_is_begun_when_the_last_batch_of_this_one_is() -> None:
    sampler = Epochs(20)
    loader = ahead_of(sampler)

    begun = [len(sampler.begun) for _ in loader]

    assert begun == [1] * 6 + [2] * 4


def test_every_epoch_is_begun_ahead_however_short_it_is() -> None:
    for length in (1, 4, 20):
        sampler = Epochs(length)
        loader = ahead_of(sampler)

        assert [values_of(loader) for _ in range(4)] == [list(range(length))] * 4
        assert len(sampler.begun) == 5


def test_prefetched_epoch_is_used() -> None:
    sampler = Epochs()
    loader = ahead_of(sampler)
    list(loader)

    assert (values_of(loader), sampler.begun) == ([0, 1, 2, 3], [0, 0, 0])


def test_setting_the_epoch_of_the_sampler_discards_it() -> None:
    sampler = Epochs()
    loader = ahead_of(sampler)
    epochs = []

    for epoch in range(3):
        sampler.set_epoch(epoch)
        epochs.append(values_of(loader))

    assert epochs == [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_setting_an_attribute_of_the_dataset_discards_it(method: str) -> None:
    dataset = Squares(4, (1,))
    loader = loader_of(dataset, 1, method, batch_size=4, prefetch_epochs=True)
    shapes = []

    for length in (1, 2, 3):
        dataset.shape = (length,)
        shapes += [images.shape for images, _ in loader]

    assert shapes == [(4, 1), (4, 2), (4, 3)]


def test_setting_an_attribute_of_the_loader_discards_it() -> None:
    loader = ahead_of(Epochs())
    list(loader)

    loader.collate_fn = sum

    assert list(loader) == [1, 5]


def test_loading_a_state_discards_it() -> None:
    loader = ahead_of(Epochs())
    next(batches := iter(loader))
    state = loader.state_dict()
    list(batches)

    assert [batch[2] for batch in rest_of(loader, state)] == [(2,)]
    assert values_of(loader) == [0, 1, 2, 3]


def test_discarded_epoch_draws_no_random_numbers() -> None:
    def epochs(discard: bool) -> list[Any]:
        loader = loader_of(Dice(), 1, batch_size=4, shuffle=True, generator=2, prefetch_epochs=True)
        made = []
        for epoch in range(3):
            if discard:
                loader.dataset.epoch = epoch
            made.append(all_of(loader))
        return made

    assert epochs(discard=True) == epochs(discard=False)


def test_seeding_the_generator_discards_it() -> None:
    generator = np.random.default_rng(1)
    loader = loader_of(Squares(), 1, batch_size=20, shuffle=True, generator=generator, prefetch_epochs=True)
    first = all_of(loader)
    second = all_of(loader)

    generator.bit_generator.state = np.random.default_rng(1).bit_generator.state
    generator.integers(2**63 - 1)

    assert all_of(loader) == first != second


# Invalid states


def test_an_empty_state_changes_nothing() -> None:
    loader = loader_of(Squares(4), batch_size=2)
    expected = all_of(loader)

    assert rest_of(loader, {}) == expected


def state_of(**options: Any) -> dict[str, Any]:
    loader = loader_of(**{"dataset": Squares(), "batch_size": 2, **options})
    next(iter(loader))
    return loader.state_dict()


def with_changes(**changes: Any) -> dict[str, Any]:
    state = state_of()
    return {**state, "iterator": {**state["iterator"], **changes}}


#: The state of a worker's iterable.
WALK = {"epoch": None, "end": None, "of_iterator": True, "state": 1}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        pytest.param([1], "the state is not a state of a DataLoader", id="list"),
        pytest.param({"epoch": 1}, "the state is not a state of a DataLoader", id="foreign"),
        pytest.param(
            {**state_of(), "version": 99}, "the state has version 99; this version of dali_like reads 2 and 3", id="version"
        ),
        pytest.param(
            {"version": 2}, "the state has no 'batch_size', 'generator', 'iterable', 'iterator', 'num_workers'", id="missing"
        ),
        pytest.param(state_of(dataset=Stream()), "it is of an iterable dataset, and this is a map-style one", id="iterable"),
        pytest.param(state_of(batch_size=3), "it counts batches of 3 samples, and this loader's have 2", id="batch size"),
        pytest.param({**state_of(), "iterator": 5}, "the state: iterator should be an object, not 5", id="iterator"),
        pytest.param({**state_of(), "generator": 5}, "the state: generator should be an object, not 5", id="generator"),
        pytest.param(with_changes(more=1), "iterator has the unknown entries 'more'", id="more"),
        pytest.param(
            with_changes(position=-1),
            "position should be an integer from 0 to 281474976710656, not -1",
            id="negative",
        ),
        pytest.param(with_changes(base_seed="a"), "base_seed should be an integer", id="seed"),
        pytest.param(with_changes(ahead=3), "ahead should be a list", id="ahead"),
        pytest.param(with_changes(ahead=[True]), "ahead should be an integer from 0 to .*, not True", id="truth"),
        pytest.param(with_changes(is_over="no"), "is_over should be true or false", id="over"),
        pytest.param(
            {"version": 3, "sources": []}, "the state is a state of a pipeline, not of a DataLoader", id="of a pipeline"
        ),
        *(
            pytest.param(with_changes(states=wrong), f"iterator: states{message}", id=f"states {wrong}")
            for wrong, message in (
                ([5], " should be an object, not"),
                ({"a": [0, None]}, " should have the numbers of workers as keys, not 'a'"),
                ({"0": 5}, r": 0 should be \[items, state\] or \[items, state, items passed\], not 5"),
                ({"0": [-1, None]}, r": 0 should be \[items, state\] or"),
                ({"0": [1, {"end": None}]}, ": 0 has no 'epoch', 'of_iterator', 'state'"),
                ({"0": [1, {**WALK, "end": -1}]}, ": 0: end should be"),
                ({"0": [1, {**WALK, "of_iterator": None}]}, ": 0: of_iterator should be"),
            )
        ),
        pytest.param(with_changes(states={"1": [0, None]}), "it has a state of worker 1, and only 0 had", id="worker"),
        *(
            pytest.param(with_changes(**wrong), f"iterator: {next(iter(wrong))} should be", id=next(iter(wrong)))
            for wrong in (
                *({"number": -1}, {"turn": 0.5}, {"shared_seed": "a"}),
                *({"generator": 5}, {"sampler": [1]}),
            )
        ),
    ],
)
def test_invalid_state_is_refused_and_changes_nothing(state: Any, message: str) -> None:
    loader = loader_of(Squares(4), batch_size=2)
    expected = all_of(loader)

    with pytest.raises(CheckpointError, match=f"Invalid state_dict: .*{message}"):
        loader.load_state_dict(state)

    assert all_of(loader) == expected


@pytest.mark.parametrize("dataset", [Squares(), Stream()], ids=["map-style", "iterable"])
def test_batches_are_counted_in_the_size_that_the_batch_sampler_has_been_given(dataset: Any) -> None:
    loader = loader_of(dataset, batch_size=2)
    loader.batch_sampler.batch_size = 3  # type: ignore[union-attr]
    next(iter(loader))
    state = loader.state_dict()

    with pytest.raises(CheckpointError, match="batches of 3 samples, and this loader's have 2"):
        loader_of(dataset, batch_size=2).load_state_dict(state)
    assert rest_of(loader, state) == rest_of(loader_of(dataset, batch_size=3), state)


def test_workers_that_have_divided_an_iterable_dataset_are_as_many() -> None:
    with pytest.raises(CheckpointError, match=r"0 workers had divided the iterable dataset .* this loader has 2"):
        loader_of(Stream(), 2).load_state_dict(state_of(dataset=Stream(), batch_size=1))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_of_a_longer_dataset_is_refused_when_it_is_used(workers: int) -> None:
    loader = loader_of(Squares(19), workers, batch_size=2, shuffle=True)
    loader.load_state_dict(state_of(shuffle=True))

    with pytest.raises(CheckpointError, match="it is of an epoch of 20 indices, and this sampler has 19"):
        iter(loader)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_of_a_longer_sampler_is_refused_when_it_is_used(workers: int) -> None:
    loader = loader_of(Squares(), workers, batch_sampler=[])
    loader.load_state_dict({**state_of(batch_size=1, batch_sampler=[[1], [2]])})

    with pytest.raises(CheckpointError, match="1 batches had been delivered, and the sampler of this loader has fewer"):
        iter(loader)


def test_a_state_that_is_refused_leaves_no_workers() -> None:
    loader = loader_of(Squares(19), 2, batch_size=2, persistent_workers=True)
    loader.load_state_dict(state_of())

    with pytest.raises(CheckpointError):
        iter(loader)

    assert len(all_of(loader)) == 10


# Stateful samplers


class Walker(Sampler[int]):
    """A stateful sampler as of another library, which continues from its position in the next epoch."""

    def __init__(self, seed: int, length: int = 10) -> None:
        self.generator = np.random.default_rng(seed)
        self.length = length

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.length):
            yield int(self.generator.integers(20))

    def __len__(self) -> int:
        return self.length

    def state_dict(self) -> dict[str, Any]:
        return dict(self.generator.bit_generator.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.bit_generator.state = state


def in_batches(sampler: Walker) -> dict[str, Any]:
    return {"batch_size": 1, "batch_sampler": BatchWalker(sampler)}


class BatchWalker(Sampler[list[int]]):
    """Makes batches of another sampler, and has its state."""

    def __init__(self, indices: Walker) -> None:
        self.indices = indices
        self.state_dict, self.load_state_dict = indices.state_dict, indices.load_state_dict

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.indices)
        while batch := list(itertools.islice(indices, 3)):
            yield batch


WALKERS: dict[str, Any] = {"sampler": lambda sampler: {"batch_size": 3, "sampler": sampler}, "batch sampler": in_batches}


@pytest.mark.parametrize("way", WALKERS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_sampler_that_knows_its_state_goes_on_from_it(way: str, workers: int, after: int) -> None:
    def make(seed: int) -> DataLoader[Any]:
        return loader_of(Squares(), workers, **WALKERS[way](Walker(seed)))

    interrupted, resumed = make(1), make(2)
    list(interrupted)
    batches = iter(interrupted)
    for _ in range(after):
        next(batches)

    state = through_json(interrupted.state_dict())

    assert rest_of(resumed, state) == all_of(batches)
    assert all_of(resumed) == all_of(interrupted)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_a_sampler_is_good_after_the_end_too(workers: int) -> None:
    def make(seed: int) -> DataLoader[Any]:
        return loader_of(Squares(), workers, batch_size=3, sampler=Walker(seed))

    interrupted, resumed = make(1), make(2)
    list(interrupted)

    state = through_json(interrupted.state_dict())

    assert rest_of(resumed, state) == all_of(interrupted)


class Belt(Sampler[int]):
    """Continues at the end of the previous iterator; the iterators are stateful."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        return BeltIterator(self)

    def __len__(self) -> int:
        return 6


class BeltIterator(Iterator[int]):
    def __init__(self, belt: Belt) -> None:
        self.belt = belt
        self.left = len(belt)

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        self.belt.at += 1
        return self.belt.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.belt.at, "left": self.left}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.belt.at, self.left = state["at"], state["left"]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_an_iterator_of_a_sampler_is_good_after_the_end_too(workers: int) -> None:
    interrupted, resumed = (loader_of(Squares(), workers, batch_size=3, sampler=Belt()) for _ in range(2))
    list(interrupted)

    state = through_json(interrupted.state_dict())

    assert rest_of(resumed, state) == all_of(interrupted)
