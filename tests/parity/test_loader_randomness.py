"""Random results of passes over the real PyTorch's DataLoader and over ours: the same program with both, and one seed.

Indices are the same with any seeding, and so are the states of the generators afterwards. Samples draw the same in workers
with ``worker_seeding="torch"``; by default their numbers do not depend on the workers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from dali_like.plugin.pytorch import DataLoader  # noqa: E402
from tests.parity.torch_side import generator  # noqa: E402

pytestmark = pytest.mark.peers

Program = Callable[..., Any]


def seed_everything(seed: int = 5) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def global_state() -> Any:
    """Of the generators that a loader could draw from."""
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]


def outcomes(program: Program) -> list[Any]:
    """The results of a program with each of the two loaders, and the state of the global generators afterwards."""
    results = []
    for loader in (torch.utils.data.DataLoader, DataLoader):
        seed_everything()
        results.append((program(loader), global_state()))
    return results


def assert_same(program: Program) -> None:
    theirs, ours = outcomes(program)
    assert theirs[0] == ours[0]
    assert theirs[1] == ours[1], "the global generators are left in different states"


def epochs(loader: Any, count: int = 3) -> list[list[Any]]:
    """Everything that some passes over a loader deliver."""
    return [[plain(batch) for batch in loader] for _ in range(count)]


def plain(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [plain(part) for part in batch] if isinstance(batch, (list, tuple)) else batch


def expecting_too_many(num_workers: int) -> contextlib.AbstractContextManager[Any]:
    """A machine with fewer CPUs warns of so many workers."""
    if len(os.sched_getaffinity(0)) >= num_workers:
        return contextlib.nullcontext()
    return pytest.warns(UserWarning, match="excessive worker creation")


# Samplers


class Shuffled(Sampler[int]):
    """A user's own, which draws from the global generator when it is asked for an index."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(self.length).tolist()

    def __len__(self) -> int:
        return self.length


class Eager(Shuffled):
    """Draws as soon as it is asked for an iterator."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.length).tolist())


class Backwards(RandomSampler):
    """Changes the results of its base."""

    def __iter__(self) -> Iterator[int]:
        yield from reversed(list(super().__iter__()))


class Renamed(RandomSampler):
    """Changes nothing."""


class OfTheEpoch(DistributedSampler):
    """Counts the passes over it."""

    def __iter__(self) -> Iterator[int]:
        self.set_epoch(self.epoch + 1)
        return super().__iter__()


class EvenFirst(BatchSampler):
    """Batches in another order."""

    def __iter__(self) -> Iterator[list[int]]:
        batches = list(super().__iter__())
        yield from batches[::2] + batches[1::2]


def distributed(kind: type[DistributedSampler] = DistributedSampler, **options: Any) -> Any:
    return kind(range(23), num_replicas=2, rank=1, **options)


WEIGHTS = [0.1, 0.0, 3.0, 0.5, 2.0, 1.0]

#: Each makes a sampler, given a generator or None.
SAMPLERS: dict[str, Callable[[Any], Any]] = {
    "sequential": lambda rng: SequentialSampler(range(23)),
    "random": lambda rng: RandomSampler(range(23), generator=rng),
    "random, fewer": lambda rng: RandomSampler(range(23), num_samples=9, generator=rng),
    "random, more": lambda rng: RandomSampler(range(23), num_samples=50, generator=rng),
    "random, twice": lambda rng: RandomSampler(range(10), num_samples=20, generator=rng),
    "random, replacement": lambda rng: RandomSampler(range(23), replacement=True, generator=rng),
    "random, replacement, many": lambda rng: RandomSampler(range(23), replacement=True, num_samples=64, generator=rng),
    "subset": lambda rng: SubsetRandomSampler([3, 1, 4, 15, 9, 2, 6], generator=rng),
    "weighted": lambda rng: WeightedRandomSampler(WEIGHTS, 14, generator=rng),
    "weighted, no replacement": lambda rng: WeightedRandomSampler(WEIGHTS, 5, replacement=False, generator=rng),
    "distributed": lambda rng: distributed(seed=3),
    "distributed, in order": lambda rng: distributed(shuffle=False, drop_last=True),
    "distributed, counting": lambda rng: distributed(OfTheEpoch),
    "own": lambda rng: Shuffled(23),
    "own, eager": lambda rng: Eager(23),
    "list": lambda rng: [5, 3, 8],
    "subclass": lambda rng: Backwards(range(23), generator=rng),
    "subclass, same": lambda rng: Renamed(range(23), generator=rng),
}


@pytest.fixture(params=SAMPLERS, ids=[name.replace(", ", "-") for name in SAMPLERS])
def make_sampler(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return SAMPLERS[request.param]


@pytest.mark.parametrize("seed", [None, 11])
def test_samplers(make_sampler: Callable[[Any], Any], seed: int | None) -> None:
    """The indices of three epochs; and the sampler's generator is left in the same state."""

    def program(kind: Any) -> Any:
        rng = None if seed is None else generator(seed)
        return epochs(kind(range(23), batch_size=4, sampler=make_sampler(rng))), rng and rng.get_state().tolist()

    assert_same(program)


@pytest.mark.parametrize(
    "name", ["sequential", "random", "random, replacement", "weighted", "distributed", "own, eager", "subclass", "list"]
)
def test_samplers_of_workers(name: str) -> None:
    """They are iterated in the main process, too; with workers, PyTorch draws at other moments."""
    assert_same(lambda kind: epochs(kind(range(23), batch_size=4, sampler=SAMPLERS[name](None), num_workers=2)))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("kind_of_batches", [BatchSampler, EvenFirst])
@pytest.mark.parametrize("inner", [Shuffled, Eager, RandomSampler])
def test_batch_samplers(drop_last: bool, kind_of_batches: Any, inner: Any) -> None:
    def program(kind: Any) -> Any:
        sampler = inner(range(23)) if inner is RandomSampler else inner(23)
        return epochs(kind(range(23), batch_sampler=kind_of_batches(sampler, 4, drop_last)))

    assert_same(program)


def test_indices_without_batches(make_sampler: Callable[[Any], Any]) -> None:
    def program(kind: Any) -> Any:
        return epochs(kind(range(23), batch_size=None, sampler=make_sampler(None)))

    assert_same(program)


@pytest.mark.parametrize("name", ["sequential", "random, replacement", "own", "subclass"])
def test_indices_without_batches_of_workers(name: str) -> None:
    def program(kind: Any) -> Any:
        return epochs(kind(range(23), batch_size=None, sampler=SAMPLERS[name](None), num_workers=2))

    assert_same(program)


def test_with_workers_a_sampler_is_asked_for_one_iterator_in_each_epoch_and_not_for_two_as_in_pytorch() -> None:
    def program(kind: Any) -> Any:
        sampler = distributed(OfTheEpoch)
        epochs(kind(range(23), batch_size=None, sampler=sampler, num_workers=2), 2)
        return sampler.epoch

    (theirs, _), (ours, _) = outcomes(program)
    assert (theirs, ours) == (4, 2)


@pytest.mark.parametrize("seed", [None, 11])
@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_shuffle(workers: dict[str, Any], seed: int | None) -> None:
    def program(kind: Any) -> Any:
        rng = None if seed is None else generator(seed)
        loader = kind(range(23), batch_size=4, shuffle=True, generator=rng, **workers)
        return epochs(loader), rng and rng.get_state().tolist()

    assert_same(program)


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_loading_in_order_draws_as_much_as_pytorch(workers: dict[str, Any]) -> None:
    def program(kind: Any) -> Any:
        loader = kind(range(8), batch_size=4, **workers)
        return [(epochs(loader, 1), torch.rand(1).item()) for _ in range(3)]

    assert_same(program)


def test_a_pass_that_is_not_begun_takes_as_much() -> None:
    def program(kind: Any) -> Any:
        loader = kind(range(8), shuffle=True)
        iter(loader)
        first = torch.rand(1).item()
        next(iter(loader))
        return first, torch.rand(1).item()

    assert_same(program)


def test_two_passes_that_are_begun_before_either_is_walked_through() -> None:
    def program(kind: Any) -> Any:
        loader = kind(range(8), batch_size=2, sampler=Eager(8))
        passes = iter(loader), iter(loader)
        return [[plain(batch) for batch in each] for each in passes]

    assert_same(program)


def test_an_eager_batch_sampler_is_asked_for_an_iterator_before_the_workers_seed_is_drawn() -> None:
    class Batches(Eager):
        def __iter__(self) -> Iterator[Any]:
            return iter([indices.tolist() for indices in torch.randperm(self.length).split(3)])

    def program(kind: Any) -> Any:
        return epochs(kind(range(8), batch_sampler=Batches(8)))

    assert_same(program)


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_set_epoch_of_a_distributed_sampler(workers: dict[str, Any]) -> None:
    def program(kind: Any) -> Any:
        sampler = distributed(seed=3)
        loader = kind(range(23), batch_size=3, sampler=sampler, **workers)
        passes = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            passes += epochs(loader, 1)
        return passes

    assert_same(program)


def test_set_epoch_between_the_beginning_of_a_pass_and_its_first_batch() -> None:
    def program(kind: Any) -> Any:
        sampler = distributed(seed=3)
        begun = iter(kind(range(23), batch_size=3, sampler=sampler))
        sampler.set_epoch(2)
        return [plain(batch) for batch in begun]

    assert_same(program)


def test_a_dataset_that_grows_while_it_is_walked_through_in_order() -> None:
    """PyTorch's sampler takes the length when it is asked for an iterator, and so before the dataset grows."""

    def program(kind: Any) -> Any:
        samples = [1, 2, 3]
        begun = iter(kind(samples, batch_size=1))
        next(begun)
        samples.append(4)
        return [plain(batch) for batch in begun]

    assert_same(program)


def test_a_pass_given_up_leaves_the_generators_as_pytorch_does() -> None:
    """Numbers that are drawn ahead depend on how many batches are on their way."""

    def program(kind: Any) -> Any:
        loader = kind(range(40), batch_size=1, num_workers=2, sampler=RandomSampler(range(40), replacement=True))
        next(iter(loader))
        rng = generator(1)
        replaced = RandomSampler(range(64), replacement=True, num_samples=200, generator=rng)
        begun = iter(kind(range(64), batch_size=7, num_workers=2, prefetch_factor=3, sampler=replaced))
        taken = [plain(next(begun)) for _ in range(4)]
        return taken, rng.get_state().tolist()

    assert_same(program)


# Random numbers of samples, with PyTorch's seeding


def draw() -> list[float]:
    """A number of each global generator."""
    return [torch.rand(()).item(), random.random(), float(np.random.random())]


class Noise:
    """Its samples have the number of their worker, and its random numbers."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        return [index, info.id, info.num_workers, info.seed, *draw()]

    def __len__(self) -> int:
        return 13


class NoiseStream(IterableDataset):
    """An iterable dataset that is divided among the workers."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        for number in range(info.id, 13, info.num_workers):
            yield [number, info.id, info.seed, *draw()]


class LoudNoise(Noise):
    """Gives whole batches."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [[*self[index], *draw()] for index in indices]


def note_start(worker: int) -> None:
    """A worker_init_fn that notes its view of the worker in the dataset, for samples to tell."""
    info = get_worker_info()
    info.dataset.seen = [worker, torch.initial_seed(), info.seed, *draw()]


class Told:
    """Its samples are the notes of the worker_init_fn, and random numbers."""

    def __getitem__(self, index: int) -> Any:
        return [*self.seen, *draw()]  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return 6


def as_is(samples: Any) -> Any:
    """A collation that draws, too."""
    return samples, draw()


def as_in_torch(kind: Any, *args: Any, **options: Any) -> Any:
    """A loader whose workers are seeded as PyTorch seeds them."""
    own = {"worker_seeding": "torch"} if kind is DataLoader else {}
    return kind(*args, **options, **own)


DATASETS = {"map": Noise, "iterable": NoiseStream, "getitems": LoudNoise}


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 3},
        {"batch_size": 3, "collate_fn": as_is, "persistent_workers": True},
        {"batch_size": None},
        {"batch_size": None, "persistent_workers": True},
    ],
)
def test_samples_draw_the_same_bit_for_bit(dataset: Any, options: dict[str, Any]) -> None:
    def program(kind: Any) -> Any:
        return epochs(as_in_torch(kind, dataset(), num_workers=2, **options))

    assert_same(program)


def test_with_a_generator_and_three_workers() -> None:
    def program(kind: Any) -> Any:
        return epochs(as_in_torch(kind, Noise(), batch_size=2, shuffle=True, num_workers=3, generator=generator(9)))

    with expecting_too_many(3):
        assert_same(program)


def test_a_batch_sampler_of_ones_own() -> None:
    def program(kind: Any) -> Any:
        batches = [[0, 1], [2], [3, 4, 5], [6], [7, 8]]
        return epochs(as_in_torch(kind, Noise(), batch_sampler=batches, num_workers=2))

    assert_same(program)


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn_sees_and_draws_the_same_as_in_pytorch(persistent: bool) -> None:
    def program(kind: Any) -> Any:
        loader = as_in_torch(
            kind, Told(), batch_size=2, num_workers=2, worker_init_fn=note_start, persistent_workers=persistent
        )
        return epochs(loader)

    assert_same(program)


def test_worker_init_fn_sees_and_draws_the_same_by_default() -> None:
    def program(kind: Any) -> Any:
        told = epochs(kind(Told(), batch_size=1, num_workers=1, worker_init_fn=note_start))
        return [[batch[:6] for batch in epoch] for epoch in told]  # the rest are random numbers of the samples

    assert_same(program)


def seed_constantly(worker: int) -> None:
    torch.manual_seed(12345)


def seed_for_reproducibility(worker: int) -> None:
    """As PyTorch's notes recommend it."""
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)


def seed_everything_by_worker(worker: int) -> None:
    """As training frameworks do it."""
    random.seed(worker)
    np.random.seed(worker)
    torch.manual_seed(worker)


class Seeds(Told):
    def __getitem__(self, index: int) -> int:
        return torch.initial_seed()


def test_a_seed_that_worker_init_fn_gives_the_generator_of_pytorch_goes_on_to_show() -> None:
    def program(kind: Any) -> Any:
        return epochs(kind(Seeds(), batch_size=2, num_workers=2, worker_init_fn=seed_constantly))

    assert_same(program)


def test_without_workers_the_global_generators_are_the_programs_own() -> None:
    class Drawing:
        def __getitem__(self, index: int) -> Any:
            return draw()

        def __len__(self) -> int:
            return 5

    def program(kind: Any) -> Any:
        return epochs(kind(Drawing(), batch_size=2))

    assert_same(program)


def test_the_workers_numbers_with_seeds_of_more_than_32_bits() -> None:
    def program(kind: Any) -> Any:
        torch.manual_seed(2**40 + 3)
        return epochs(as_in_torch(kind, Noise(), num_workers=2), 1)

    assert_same(program)


# By default


class Sums:
    """Samples that are as large as they need be to differ."""

    def __getitem__(self, index: int) -> Any:
        return np.array([index, *draw()])

    def __len__(self) -> int:
        return 37


class SumStream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        for index in range(10):
            yield np.array([index, *draw()])


def drawn_with(num_workers: int, **options: Any) -> Any:
    seed_everything()
    return epochs(DataLoader(Sums(), num_workers=num_workers, **options), 2)


@pytest.mark.parametrize("worker_init_fn", [seed_for_reproducibility, seed_everything_by_worker])
def test_recipes_for_reproducible_loading_make_no_difference(worker_init_fn: Any) -> None:
    expected = drawn_with(2, batch_size=4)

    assert drawn_with(1, batch_size=4, worker_init_fn=worker_init_fn) == expected
    assert drawn_with(2, batch_size=4, worker_init_fn=worker_init_fn) == expected


def by_hand(samples: list[Any]) -> Any:
    return torch.utils.data.default_collate(samples), draw()


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 5},
        {"batch_size": 16, "shuffle": True},
        {"batch_size": 100},
        {"batch_size": 5, "collate_fn": by_hand},
        {"batch_size": None},
        {"batch_sampler": [[0], [1, 2, 3], [4, 5]]},
        {"batch_size": 5, "persistent_workers": True},
        {"batch_size": 5, "persistent_workers": True, "prefetch_epochs": True},
        {"batch_size": 5, "prefetch_factor": 5},
    ],
    ids="-".join,
)
def test_random_numbers_of_samples_do_not_depend_on_the_number_of_workers(options: dict[str, Any]) -> None:
    one, two = (drawn_with(num_workers, **options) for num_workers in (1, 2))

    assert one == two
    assert one[0] != one[1], "two epochs draw the same"


def test_three_workers_draw_the_same_as_one() -> None:
    with expecting_too_many(3):
        three = drawn_with(3, batch_size=8)

    assert three == drawn_with(1, batch_size=8)


def test_spawned_workers_draw_the_same_as_forked_ones() -> None:
    forked, spawned = (drawn_with(2, batch_size=8, multiprocessing_context=method) for method in ("fork", "spawn"))

    assert forked == spawned


def test_no_two_samples_of_an_epoch_draw_the_same() -> None:
    (first, _) = drawn_with(2, batch_size=5)
    numbers = [row[1:] for batch in first for row in batch]

    assert len(set(map(tuple, numbers))) == len(numbers)


def test_workers_of_an_iterable_dataset_do_not_draw_the_same() -> None:
    seed_everything()
    batches = [plain(batch) for batch in DataLoader(SumStream(), batch_size=5, num_workers=2)]

    drawn = [tuple(row[1:]) for batch in batches for row in batch]
    assert len(set(drawn)) == len(drawn)


def test_program_generators_are_left_as_by_pytorch_with_either_seeding() -> None:
    def program(kind: Any) -> Any:
        kinds = itertools.cycle([{}] if kind is not DataLoader else [{"worker_seeding": "torch"}, {}])
        for _ in range(2):
            list(kind(range(9), batch_size=2, shuffle=True, num_workers=2, **next(kinds)))
        return torch.rand(1).item()

    assert_same(program)
