"""Passes over the real PyTorch's DataLoader and over ours, from their length to their end: errors and warnings on the way,
order, timeouts, changes between them; and nested ones, which PyTorch does not have with kept workers."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler, get_worker_info  # noqa: E402

from dali_like.plugin.pytorch import DataLoader  # noqa: E402
from tests.conftest import DEADLINE_S, without_addresses  # noqa: E402
from tests.parity.same import assert_same  # noqa: E402

pytestmark = pytest.mark.peers

TORCHS = torch.utils.data.DataLoader
BOTH = (TORCHS, DataLoader)

#: Without workers, with them, and with kept ones.
WORKERS: dict[str, dict[str, Any]] = {
    "none": {},
    "two": {"num_workers": 2},
    "kept": {"num_workers": 2, "persistent_workers": True},
}


@pytest.fixture(params=WORKERS)
def workers(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WORKERS[request.param]


def numbers(loader: Any) -> list[Any]:
    return [batch.tolist() if isinstance(batch, torch.Tensor) else batch for batch in loader]


def outcome(program: Callable[..., Any], kind: Any) -> Any:
    try:
        return program(kind)
    except Exception as error:
        return error.with_traceback(None)  # which keeps the iterator, and PyTorch's workers with it


def assert_same_with_both(program: Callable[..., Any]) -> None:
    theirs, ours = (outcome(program, kind) for kind in BOTH)
    assert_same(theirs, ours)


def events(begun: Iterator[Any], limit: int = 12) -> list[Any]:
    """The results of one `next` after the other, also after errors and after the end: batches, and exceptions."""
    met: list[Any] = []
    for _ in range(limit):
        try:
            met.append(next(begun))
        except Exception as error:
            met.append(error.with_traceback(None))
    return met


# Length


class Growing:
    """Two samples at first."""

    length = 2

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return self.length


class Counted(IterableDataset):  # type: ignore[misc]
    """Numbers, divided among the workers, with a length that may not be theirs."""

    def __init__(self, end: int, length: int | None = None) -> None:
        self.end = end
        self.length = end if length is None else length

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return iter(range(self.end)) if info is None else iter(range(info.id, self.end, info.num_workers))

    def __len__(self) -> int:
        return self.length


class Uncounted(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


@pytest.mark.parametrize("size", [1, 3, 4, 12, 13, None])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("dataset", [range(12), range(0), Counted(12), Counted(0)], ids=without_addresses)
def test_length(dataset: Any, size: int | None, drop_last: bool) -> None:
    assert_same_with_both(lambda kind: len(kind(dataset, batch_size=size, drop_last=drop_last)))


@pytest.mark.parametrize(
    "options",
    [{"sampler": iter(range(3))}, {"batch_sampler": iter([[0]])}, {"batch_size": None, "sampler": iter(range(3))}],
)
def test_a_loader_has_no_length_if_its_sampler_has_none(options: dict[str, Any]) -> None:
    assert_same_with_both(lambda kind: len(kind(range(3), **options)))


def test_a_loader_has_no_length_if_its_iterable_dataset_has_none() -> None:
    assert_same_with_both(lambda kind: len(kind(Uncounted())))


def test_a_dataset_that_grows_makes_the_loader_longer() -> None:
    def program(kind: Any) -> Any:
        dataset = Growing()
        loader = kind(dataset)
        before = len(loader), len(list(loader))
        dataset.length = 5
        return before, len(loader), len(list(loader))

    assert_same_with_both(program)


@pytest.mark.parametrize("length", [3, 5, 9])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"num_workers": 2, "batch_size": 2}], ids=str)
def test_warnings_when_more_comes_than_the_length_has_promised(options: Any, asked: bool, length: int) -> None:
    class Promising(Counted):
        def __repr__(self) -> str:
            return "Promising()"

    def program(kind: Any) -> Any:
        loader = kind(Promising(6, length), **options)
        if asked:
            len(loader)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", module="multiprocessing")  # Python 3.12 warns of PyTorch's forks
            batches = [numbers(loader) for _ in range(2)]
        return batches, [(str(each.message), each.filename == __file__) for each in caught]

    (theirs, said), (ours, also_said) = (program(kind) for kind in BOTH)
    assert ours == theirs
    assert [text for text, _ in also_said] == [text for text, _ in said]
    assert all(is_here for _, is_here in also_said)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(
    ("workers", "end"), [*itertools.product(["none", "two"], [0, 1, 5, 6, 7, 11, 12]), ("kept", 0), ("kept", 7)]
)
def test_each_worker_drops_the_last_batch_of_its_own(workers: str, end: int, drop_last: bool) -> None:
    def program(kind: Any) -> Any:
        loader = kind(Counted(end), batch_size=3, drop_last=drop_last, **WORKERS[workers])
        return [numbers(loader) for _ in range(2)]

    assert_same_with_both(program)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("dataset", [range(12), Counted(12)], ids=without_addresses)
def test_a_batch_size_that_is_changed_in_the_batch_sampler(dataset: Any, drop_last: bool, workers: dict[str, Any]) -> None:
    """It holds from the next epoch on; the loader itself refuses to be given another."""

    def program(kind: Any) -> Any:
        loader = kind(dataset, batch_size=3, drop_last=drop_last, **workers)
        batches = []
        for size in (3, 5, 2):
            loader.batch_sampler.batch_size = size
            batches.append(numbers(loader))
        return batches, loader.batch_size

    assert_same_with_both(program)


# The end


@pytest.mark.parametrize("dataset", [range(3), Counted(3), range(0), Counted(0)], ids=without_addresses)
def test_a_pass_that_has_ended_stays_at_its_end(dataset: Any, workers: dict[str, Any]) -> None:
    if "persistent_workers" in workers and not len(dataset):
        pytest.skip("PyTorch's kept workers are told to go on, and do not come to the end")
    assert_same_with_both(lambda kind: events(iter(kind(dataset, **workers)), 6))


class Stopping:
    """Raises StopIteration in the middle."""

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise StopIteration
        return index

    def __len__(self) -> int:
        return 8


@pytest.mark.parametrize("options", [{}, {"collate_fn": torch.utils.data.default_convert}, {"worker_seeding": "torch"}])
@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_a_dataset_that_raises_stop_iteration_ends_the_epoch(batch_size: Any, options: Any, workers: dict[str, Any]) -> None:
    """PyTorch's workers end it at the same place, but they may take seconds to stop then."""
    theirs = numbers(TORCHS(Stopping(), batch_size=batch_size, collate_fn=options.get("collate_fn")))
    ours = numbers(DataLoader(Stopping(), batch_size=batch_size, **options, **workers))

    assert_same(theirs, ours)


# Errors


class Refused(Exception):
    """Of a user's, made of more than a text."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code


class Failing:
    """Fails at one sample."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise type(self.error)(*self.error.args)  # which has no notes yet
        return index

    def __len__(self) -> int:
        return 6


ERRORS = [KeyError("colour"), ValueError("not a number"), OSError(2, "no such file"), IndexError(), RuntimeError("a\nb")]


@pytest.mark.parametrize(("workers", "batch_size"), [*itertools.product(["none", "two"], [1, 3, None]), ("kept", 3)])
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_errors_of_a_dataset_come_at_their_turn_and_the_others_behind_them(
    error: Exception, batch_size: Any, workers: str
) -> None:
    assert_same_with_both(lambda kind: events(iter(kind(Failing(error), batch_size=batch_size, **WORKERS[workers])), 8))


def test_exception_of_a_users_class_keeps_its_attributes() -> None:
    """PyTorch can make it anew of a text only, and so raises another."""
    begun = iter(DataLoader(Failing(Refused(418, "teapot")), batch_size=3, num_workers=1))

    with pytest.raises(Refused) as caught:
        next(begun)

    assert (caught.value.code, caught.value.args) == (418, (418, "teapot"))
    assert "worker 0" in " ".join(caught.value.__notes__)


@pytest.mark.parametrize("options", [{}, {"collate_fn": list}, {"worker_seeding": "torch"}, {"batch_sampler": [[0, 1, 2]]}])
def test_note_names_the_failed_sample_of_a_batch_of_one_worker(options: dict[str, Any]) -> None:
    size = {} if "batch_sampler" in options else {"batch_size": 3}
    begun = iter(DataLoader(Failing(ValueError("no")), num_workers=1, **size, **options))

    with pytest.raises(ValueError, match="no") as caught:
        next(begun)

    assert "index 2 (sample 2 of batch 0)" in " ".join(caught.value.__notes__)


def spoil(samples: Any) -> Any:
    """A collation that fails at times."""
    if 2 in samples:
        raise ValueError(f"cannot collate {samples}")
    return samples


def test_errors_of_a_collation(workers: dict[str, Any]) -> None:
    assert_same_with_both(lambda kind: events(iter(kind(range(6), batch_size=2, collate_fn=spoil, **workers)), 6))


class Breaking(IterableDataset):  # type: ignore[misc]
    """Fails on the way, and is at its end then."""

    def __iter__(self) -> Iterator[int]:
        yield from range(3)
        raise ValueError("the file ends here")


@pytest.mark.filterwarnings("ignore:.*have the same content:UserWarning")
@pytest.mark.parametrize("batch_size", [1, 2, None])
def test_errors_of_an_iterable_dataset(batch_size: Any, workers: dict[str, Any]) -> None:
    assert_same_with_both(lambda kind: events(iter(kind(Breaking(), batch_size=batch_size, **workers)), 10))


class Unopened(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        raise OSError("no such file")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_errors_where_an_iterable_dataset_is_opened(num_workers: int) -> None:
    assert_same_with_both(lambda kind: next(iter(kind(Unopened(), num_workers=num_workers))))


def refuse(worker: int) -> None:
    raise ValueError(f"no worker {worker}")


def test_errors_of_worker_init_fn() -> None:
    assert_same_with_both(lambda kind: next(iter(kind(range(3), num_workers=1, worker_init_fn=refuse))))


def failing_indices() -> Iterator[Any]:
    yield 0
    yield 1
    raise ValueError("no more indices")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_errors_of_a_sampler_come_when_its_index_is_needed(num_workers: int) -> None:
    """As without workers, also where there are some."""
    theirs = events(iter(TORCHS(range(9), sampler=failing_indices())), 4)

    ours = events(iter(DataLoader(range(9), sampler=failing_indices(), num_workers=num_workers)), 4)

    assert_same(theirs, ours)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_index_that_the_dataset_has_not(num_workers: int) -> None:
    assert_same_with_both(lambda kind: events(iter(kind([5, 6], sampler=[0, 7, 1], num_workers=num_workers)), 5))


# Order


class Gated:
    """One sample waits until it may go on."""

    def __init__(self) -> None:
        self.begun, self.gate = (multiprocessing.get_context("fork").Event() for _ in range(2))

    def __getitem__(self, index: int) -> int:
        if index == 0:
            self.begun.set()
            if not self.gate.wait(DEADLINE_S):
                raise TimeoutError
        return index

    def __len__(self) -> int:
        return 6


@pytest.mark.parametrize("kind", BOTH)
def test_out_of_order_a_slow_batch_holds_up_no_other(kind: Any) -> None:
    dataset = Gated()
    begun = iter(kind(dataset, num_workers=2, in_order=False, prefetch_factor=1))

    first = [next(begun).item() for _ in range(5)]
    dataset.gate.set()

    assert sorted(first) == [1, 2, 3, 4, 5]
    assert numbers(begun) == [[0]]


@pytest.mark.parametrize("kind", BOTH)
def test_in_order_batches_wait_for_those_before_them(kind: Any) -> None:
    dataset = Gated()
    begun = iter(kind(dataset, num_workers=2))
    dataset.gate.set()

    assert numbers(begun) == [[0], [1], [2], [3], [4], [5]]


class GatedStream(IterableDataset):  # type: ignore[misc]
    """Of the first worker, the first item waits until it may go on."""

    def __init__(self) -> None:
        self.gate = multiprocessing.get_context("fork").Event()

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if info.id == 0 and not self.gate.wait(DEADLINE_S):
            raise TimeoutError
        return iter(range(info.id, 12, info.num_workers))


@pytest.mark.parametrize("kind", BOTH)
def test_out_of_order_a_slow_worker_holds_up_no_other(kind: Any) -> None:
    dataset = GatedStream()
    begun = iter(kind(dataset, num_workers=2, in_order=False))

    first = [next(begun).item() for _ in range(6)]
    dataset.gate.set()

    assert first == [1, 3, 5, 7, 9, 11]
    assert numbers(begun) == [[0], [2], [4], [6], [8], [10]]


@pytest.mark.parametrize("kind", BOTH)
def test_out_of_order_all_of_an_iterable_dataset_comes(kind: Any) -> None:
    loader = kind(Counted(11), batch_size=2, num_workers=2, in_order=False)

    assert sorted(itertools.chain.from_iterable(numbers(loader))) == list(range(11))


# Timeouts


@pytest.mark.parametrize("kind", BOTH)
def test_iteration_continues_after_a_timeout(kind: Any) -> None:
    dataset = Gated()
    begun = iter(kind(dataset, num_workers=1, timeout=0.5))

    with pytest.raises(RuntimeError, match=r"^DataLoader timed out after 0.5 seconds"):
        next(begun)
    dataset.gate.set()
    seen = []
    while len(seen) < 6:
        with contextlib.suppress(RuntimeError):  # the machine is busy
            seen += map(torch.Tensor.tolist, begun)

    assert seen == [[0], [1], [2], [3], [4], [5]]


def test_timeout_names_worker_sample_and_stack() -> None:
    dataset = Gated()
    begun = iter(DataLoader(dataset, num_workers=1, timeout=0.5))
    assert dataset.begun.wait(DEADLINE_S)

    with pytest.raises(RuntimeError) as caught:
        next(begun)
    dataset.gate.set()

    text = str(caught.value)
    assert "worker 0" in text
    assert "index 0" in text
    assert "__getitem__" in text


def test_a_timeout_needs_workers() -> None:
    for kind in BOTH:
        with pytest.raises(AssertionError, match="_SingleProcessDataLoaderIter requires timeout"):
            iter(kind(range(3), timeout=1))


# Between passes


def doubled(samples: Any) -> Any:
    return [2 * sample for sample in samples]


#: Attributes that may be set, with their values.
CHANGES = {
    "num_workers": 1,
    "collate_fn": doubled,
    "timeout": 60,
    "worker_init_fn": print,
    "in_order": False,
    "prefetch_factor": 1,
}


@pytest.mark.parametrize("name", CHANGES)
def test_attributes_that_are_set_hold_from_the_next_pass_on(name: str) -> None:
    def program(kind: Any) -> Any:
        loader = kind(range(4), batch_size=2, num_workers=2)
        begun = iter(loader)
        setattr(loader, name, CHANGES[name])
        before, after = numbers(begun), iter(loader)
        return before, len(after._workers), sorted(numbers(after))

    assert_same_with_both(program)


@pytest.mark.parametrize("number", [np.int64(2), np.int8(2), np.uint8(2), True], ids=repr)
def test_numbers_of_workers_and_batches_may_be_those_of_numpy(number: Any) -> None:
    """From ``os.cpu_count() // np.prod(...)``, or a table of settings; a truth value is 0 or 1."""

    def program(kind: Any) -> Any:
        loader = kind(range(6), batch_size=2, num_workers=number, prefetch_factor=number)
        before = numbers(loader)
        loader.num_workers = loader.prefetch_factor = number
        return before, numbers(loader), loader.num_workers == number

    assert_same_with_both(program)


def test_workers_may_be_given_up_between_passes() -> None:
    def program(kind: Any) -> Any:
        loader = kind(range(4), batch_size=2, num_workers=2)
        before = numbers(loader)
        loader.num_workers = 0
        return before, numbers(loader)

    assert_same_with_both(program)


class ByEpoch:
    """Says which epoch `set_epoch` has set."""

    epoch = 0

    def __getitem__(self, index: int) -> int:
        return 10 * self.epoch + index

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_kept_workers_see_changes_of_the_dataset(method: str) -> None:
    """PyTorch's do not."""
    dataset = ByEpoch()
    loader = DataLoader(dataset, batch_size=2, num_workers=2, persistent_workers=True, multiprocessing_context=method)
    passes = []
    for dataset.epoch in range(3):
        passes += numbers(loader)

    assert passes == [[0, 1], [10, 11], [20, 21]]


def test_kept_workers_see_changes_of_the_loader() -> None:
    loader = DataLoader(range(4), batch_size=2, num_workers=1, persistent_workers=True)
    before = numbers(loader)
    loader.collate_fn = doubled

    assert (before, numbers(loader)) == ([[0, 1], [2, 3]], [[0, 2], [4, 6]])


def test_kept_workers_that_nothing_has_changed_for_are_the_same() -> None:
    dataset = ByEpoch()
    loader = DataLoader(dataset, num_workers=1, persistent_workers=True)
    pids = []
    for dataset.epoch in (0, 0, 1):
        begun = iter(loader)
        pids.append(begun._workers[0].pid)
        list(begun)

    assert pids[0] == pids[1] != pids[2]


def test_a_pass_that_is_given_up_does_not_disturb_the_next_one(workers: dict[str, Any]) -> None:
    def program(kind: Any) -> Any:
        loader = kind(range(20), **workers)
        for _ in zip(range(3), loader, strict=False):
            pass
        return numbers(loader)

    assert_same_with_both(program)


def test_an_error_does_not_disturb_the_next_pass(workers: dict[str, Any]) -> None:
    def program(kind: Any) -> Any:
        loader = kind(Failing(ValueError("no")), **workers)
        first = outcome(lambda _: numbers(loader), kind)
        return first, events(iter(loader), 8)

    assert_same_with_both(program)


# Several passes at a time


def test_nested_passes(workers: dict[str, Any]) -> None:
    """With kept workers, PyTorch's inner loop takes the iterator from the outer one."""
    loader = DataLoader(range(3), **workers)

    pairs = [(outer.item(), inner.item()) for outer in loader for inner in loader]

    assert pairs == [(outer, inner) for outer in range(3) for inner in range(3)]


def test_nested_passes_over_an_iterable_dataset(workers: dict[str, Any]) -> None:
    loader = DataLoader(Counted(4), **workers)

    pairs = [(outer.item(), inner.item()) for outer in loader for inner in loader]

    assert pairs == [(outer, inner) for outer in range(4) for inner in range(4)]


def test_passes_side_by_side(workers: dict[str, Any]) -> None:
    loader = DataLoader(range(5), batch_size=2, **workers)
    batches = BatchSampler(SequentialSampler(range(5)), 2, False)

    pairs = [(left.tolist(), right.tolist()) for left, right in zip(loader, loader, strict=True)]

    assert pairs == [(batch, batch) for batch in batches]
