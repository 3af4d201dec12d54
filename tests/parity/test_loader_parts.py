"""Programs that replace, read or call parts of PyTorch's loader: with our class they get PyTorch's behavior, or an error."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import resource_sharer
from multiprocessing.context import SpawnContext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, dataloader, default_collate  # noqa: E402
from torch.utils.data._utils import fetch, pin_memory  # noqa: E402
from torch.utils.data._utils import worker as torch_worker  # noqa: E402

from dali_like.errors import ArgumentError, CheckpointError  # noqa: E402
from dali_like.plugin.pytorch import DataLoader, replaced_parts  # noqa: E402
from tests.parity.same import assert_same  # noqa: E402

pytestmark = pytest.mark.peers

TORCHS = torch.utils.data.DataLoader


@pytest.fixture(autouse=True)
def _each_part_warns_again() -> None:
    replaced_parts.warn_of_part.cache_clear()


def numbers(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def call_through(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace a function of PyTorch's by one that calls it; return the list of calls."""
    calls: list[str] = []
    given = vars(owner)[name]
    original = getattr(given, "__func__", given)

    @functools.wraps(original)  # patched functions look like the original ones
    def patched(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return original(*args, **options)

    monkeypatch.setattr(owner, name, staticmethod(patched) if isinstance(given, staticmethod) else patched)
    return calls


# Replaced parts

SERIAL = [
    (TORCHS, "__iter__"),
    (TORCHS, "_get_iterator"),
    (dataloader._BaseDataLoaderIter, "__init__"),
    (dataloader._BaseDataLoaderIter, "__next__"),
    (dataloader._BaseDataLoaderIter, "_next_index"),
    (dataloader._SingleProcessDataLoaderIter, "_next_data"),
    (dataloader._DatasetKind, "create_fetcher"),
    (fetch._MapDatasetFetcher, "fetch"),
]
WITH_WORKERS = [
    (dataloader._MultiProcessingDataLoaderIter, "__init__"),
    (dataloader._MultiProcessingDataLoaderIter, "_next_data"),
    (dataloader._MultiProcessingDataLoaderIter, "_try_put_index"),
    (dataloader._MultiProcessingDataLoaderIter, "_reset"),
]


@pytest.mark.parametrize(
    ("owner", "name", "num_workers"), [*((*each, 0) for each in SERIAL), *((*each, 1) for each in WITH_WORKERS)]
)
def test_replaced_function_of_pytorch_is_called(
    owner: Any, name: str, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = call_through(owner, name, monkeypatch)

    with pytest.warns(UserWarning, match=rf"PyTorch's iterator, because the program replaces \S*{name}\."):
        assert numbers(DataLoader(range(3), num_workers=num_workers)) == [[0], [1], [2]]

    assert calls


def test_a_state_within_an_epoch_does_not_look_for_replaced_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(range(8), 2)
    batches = iter(loader)
    next(batches)
    looked: list[Any] = []
    monkeypatch.setattr("dali_like.plugin.pytorch.replaced_parts.replaced_part", looked.append)

    state = loader.state_dict()

    assert (state["iterator"]["position"], looked) == (1, [])


def test_replaced_worker_function_runs_in_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch_worker._worker_loop

    def loop(kind: Any, dataset: Any, *args: Any) -> None:
        original(kind, [10 * each for each in dataset], *args)

    monkeypatch.setattr(torch_worker, "_worker_loop", loop)

    with pytest.warns(UserWarning, match=r"_utils\.worker\._worker_loop"):
        assert numbers(DataLoader(range(3), num_workers=1)) == [[0], [10], [20]]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_class_put_in_the_place_of_an_iterator_of_pytorch_is_used(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_MultiProcessingDataLoaderIter" if num_workers else "_SingleProcessDataLoaderIter"

    class Tenfold(getattr(dataloader, name)):  # type: ignore[misc]
        def _next_data(self) -> Any:
            return 10 * super()._next_data()

    monkeypatch.setattr(dataloader, name, Tenfold)

    with pytest.warns(UserWarning, match=name):
        assert numbers(DataLoader(range(2), num_workers=num_workers)) == [[0], [10]]


def test_samples_that_a_patched_constructor_skips_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = dataloader._BaseDataLoaderIter.__init__

    def skipping(self: Any, loader: Any, *args: Any) -> None:
        begin(self, loader, *args)
        for _ in range(getattr(loader, "skip", 0)):
            next(self._sampler_iter)

    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "__init__", skipping)
    loader = DataLoader(range(4), num_workers=0)
    loader.skip = 2

    with pytest.warns(UserWarning, match="_BaseDataLoaderIter"):
        assert numbers(loader) == [[2], [3]]


def test_each_part_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    call_through(dataloader._BaseDataLoaderIter, "__init__", monkeypatch)
    loader = DataLoader(range(2))

    with pytest.warns(UserWarning, match="_BaseDataLoaderIter") as caught:
        numbers(loader), numbers(loader), numbers(DataLoader(range(2)))

    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_restored_part_gives_our_iterator_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(range(2))
    with monkeypatch.context() as patch:
        call_through(dataloader._BaseDataLoaderIter, "__init__", patch)
        with pytest.warns(UserWarning, match="_BaseDataLoaderIter"):
            numbers(loader)

    assert numbers(loader) == [[0], [1]]
    assert loader.state_dict()["iterator"]["is_over"]


@pytest.mark.parametrize("kept", [False, True])
def test_workers_of_pytorch_are_kept_with_persistent_workers_only(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    call_through(dataloader._MultiProcessingDataLoaderIter, "__init__", monkeypatch)
    loader = DataLoader(Pid(), num_workers=1, persistent_workers=kept)

    with pytest.warns(UserWarning, match="_MultiProcessingDataLoaderIter"):
        pids = {pid for _ in range(3) for [pid] in numbers(loader)}

    assert len(pids) == (1 if kept else 3)


def test_parts_that_a_loader_does_not_use_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in (
        (dataloader._MultiProcessingDataLoaderIter, "_next_data"),
        (torch_worker, "_worker_loop"),
        (pin_memory, "pin_memory"),
    ):
        call_through(owner, name, monkeypatch)

    loader = DataLoader(range(2))

    assert numbers(loader) == [[0], [1]]
    assert hasattr(loader, "state_dict")


def test_state_names_the_replaced_part(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(range(2))
    next(iter(loader))
    state = loader.state_dict()
    call_through(dataloader._BaseDataLoaderIter, "__init__", monkeypatch)

    assert not hasattr(loader, "state_dict")
    for name in ("state_dict", "load_state_dict"):
        with pytest.raises(AttributeError, match=r"the position is not known.* replaces _BaseDataLoaderIter\.__init__"):
            getattr(loader, name)
    assert state["iterator"]["position"] == 1


def test_loaded_state_is_not_lost_when_a_part_is_replaced_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(range(2))
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    call_through(dataloader._BaseDataLoaderIter, "__init__", monkeypatch)

    with pytest.warns(UserWarning, match="PyTorch's"), pytest.raises(CheckpointError, match="cannot resume, because"):
        iter(loader)


def test_report_names_the_foreign_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    call_through(dataloader._BaseDataLoaderIter, "__init__", monkeypatch)
    loader = DataLoader(range(40), batch_size=2)
    with pytest.warns(UserWarning, match="PyTorch's"):
        numbers(loader)

    statistics = loader.statistics()

    assert (statistics.loop.batches, statistics.sources[0].samples) == (20, 40)
    assert "PyTorch's iterator: " in str(loader.report())
    assert "_BaseDataLoaderIter.__init__" in " ".join(str(loader.report()).split())


def test_replaced_order_of_a_sampler_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequentialSampler, "__iter__", lambda self: iter(range(len(self.data_source) - 1, -1, -1)))

    assert numbers(DataLoader(range(3), batch_size=2)) == numbers(TORCHS(range(3), batch_size=2)) == [[2, 1], [0]]


def test_nothing_of_pytorch_counts_as_replaced() -> None:
    for num_workers in (0, 1):
        for context in (None, *multiprocessing.get_all_start_methods()) if num_workers else (None,):
            loader = TORCHS(range(1), num_workers=num_workers, pin_memory=True, multiprocessing_context=context)
            assert replaced_parts.replaced_part(loader) is None
    assert all(replaced_parts.is_original(kind.__iter__) for kind in (SequentialSampler, RandomSampler, BatchSampler))
    assert replaced_parts.is_original(default_collate)


# Contexts


class ThreadProcess(threading.Thread):
    pid = 0

    def run(self) -> None:
        super().run()
        torch_worker._worker_info = None


class ThreadContext(SpawnContext):
    Process = ThreadProcess  # type: ignore[assignment]


class Seen:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        self.seen.append(index)
        return index


def test_context_of_threads_shares_the_dataset() -> None:
    dataset = Seen()
    loader = DataLoader(dataset, num_workers=1, multiprocessing_context=ThreadContext())

    with pytest.warns(UserWarning, match=r"multiprocessing_context=ThreadContext\.Process"):
        assert numbers(loader) == [[0], [1], [2], [3]]

    resource_sharer.stop()  # PyTorch's worker has started it, in this process
    assert dataset.seen == [0, 1, 2, 3]


# Iterators of subclasses


class Pid:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return os.getpid()


def of_subclass(base: Any) -> tuple[Any, list[int]]:
    made: list[int] = []

    class Own(dataloader._MultiProcessingDataLoaderIter):
        def __init__(self, loader: Any) -> None:
            made.append(1)
            super().__init__(loader)

    class Loader(base):  # type: ignore[misc]
        def _get_iterator(self) -> Any:
            return Own(self)

    return Loader(Pid(), num_workers=1, persistent_workers=True), made


@pytest.mark.parametrize("base", [TORCHS, DataLoader])
def test_persistent_workers_of_an_iterator_from_get_iterator_are_kept(base: Any) -> None:
    loader, made = of_subclass(base)

    pids = {pid for _ in range(3) for [pid] in numbers(loader)}

    assert len(made) == len(pids) == 1
    assert loader._iterator is iter(loader)


def test_loader_with_an_iterator_of_a_subclass_has_no_state() -> None:
    loader, _ = of_subclass(DataLoader)
    next(iter(loader))

    with pytest.raises(AttributeError, match=r"_get_iterator returns an \S*Own as iterator"):
        loader.state_dict()
    loader._iterator = None


# Subclasses


def own_constructor(base: Any, num_workers: int) -> Any:
    class Own(base):  # type: ignore[misc]
        def __init__(self, dataset: Any) -> None:
            self.dataset, self.num_workers, self.prefetch_factor = dataset, num_workers, 2 if num_workers else None
            self.pin_memory, self.pin_memory_device, self.timeout, self.worker_init_fn = False, "", 0, None
            self.generator, self.multiprocessing_context, self.in_order = None, None, True
            self.persistent_workers = False
            self._dataset_kind, self._IterableDataset_len_called = dataloader._DatasetKind.Map, None
            self.drop_last = False
            self.sampler = SequentialSampler(dataset)
            self.batch_sampler = BatchSampler(self.sampler, 2, False)
            self.collate_fn = default_collate
            self._DataLoader__initialized = True
            self._iterator = None

    return Own(range(3))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_constructor_of_a_subclass_may_set_all_attributes_itself(num_workers: int) -> None:
    theirs, ours = (own_constructor(base, num_workers) for base in (TORCHS, DataLoader))

    assert numbers(ours) == numbers(theirs) == [[0, 1], [2]]
    assert numbers(copy.copy(ours)) == [[0, 1], [2]]


class Forever:
    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.batches


def infinite(base: Any, replace: Callable[[Any], None], num_workers: int) -> list[Any]:
    class Infinite(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            replace(self)
            self.iterator = super().__iter__()

        def __iter__(self) -> Any:
            for _ in range(2):
                yield next(self.iterator)

    loader = Infinite(range(6), batch_size=4, num_workers=num_workers)
    return [numbers(loader), numbers(loader)]


def by_object(loader: Any) -> None:
    object.__setattr__(loader, "batch_sampler", Forever(loader.batch_sampler))


def by_private_name(loader: Any) -> None:
    loader._DataLoader__initialized = False
    loader.batch_sampler = Forever(loader.batch_sampler)
    loader._DataLoader__initialized = True


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("replace", [by_object, by_private_name])
def test_batch_sampler_may_be_replaced_after_the_constructor(replace: Callable[[Any], None], num_workers: int) -> None:
    theirs, ours = (infinite(base, replace, num_workers) for base in (TORCHS, DataLoader))

    assert ours == theirs == 2 * [[[0, 1, 2, 3], [4, 5]]]


def test_private_names_of_the_loader_cannot_clash_with_those_of_subclasses() -> None:
    added = {name for kind in DataLoader.__mro__ if kind.__module__.startswith("dali_like") for name in vars(kind)}
    added |= set(vars(DataLoader(range(1)))) | {"_dali_like_auto"}
    theirs = set(dir(TORCHS)) | set(vars(TORCHS(range(1)))) | set(vars(type("Empty", (), {})))

    private = {name for name in added - theirs if name.startswith("_")}

    assert {name for name in private if not name.startswith("_dali_like_")} <= {
        *("__orig_bases__", "__parameters__"),
        "_repr_html_",  # of notebooks
    }


def test_subclass_may_have_attributes_with_the_names_of_our_methods() -> None:
    class Loader(DataLoader[Any]):
        statistics = report = trace = publish = plot = serve = refresh = batch_at = on_statistics = None  # type: ignore[assignment]

    loader = Loader(range(3), num_workers=1)

    assert numbers(loader) == [[0], [1], [2]]
    assert "3 batches" in str(DataLoader.report(loader))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_subclass_may_have_attributes_with_the_names_of_our_arguments(num_workers: int) -> None:
    class Loader(DataLoader[Any]):
        _dali_like_is_unknown = True  # as with ``dali-like run``
        peers = "of the class"

        def __init__(self, *args: Any, **options: Any) -> None:
            self.device = "before"
            super().__init__(*args, **options)
            self.origins = "after"
            self.device = "later"

        @property
        def shard_id(self) -> int:
            return 7

    loader = Loader(range(3), num_workers=num_workers, on_error="skip")

    assert numbers(loader) == numbers(loader) == [[0], [1], [2]]
    assert (loader.peers, loader.device, loader.origins, loader.shard_id) == ("of the class", "later", "after", 7)
    assert loader.on_error == "skip"
    assert numbers(copy.copy(loader)) == [[0], [1], [2]]
    state = loader.state_dict()
    loader.load_state_dict(state)
    with pytest.raises(ArgumentError, match="device attribute should not be set"):
        DataLoader(range(3)).device = "cpu"


def test_arguments_count_although_a_subclass_has_attributes_of_their_names() -> None:
    class Loader(DataLoader[Any]):
        origins = ()

    [batch] = Loader([{"number": 1}], origins=True)

    assert batch.keys() == {"number", "origins"}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_methods_replaced_on_an_iterator_are_called(num_workers: int) -> None:
    def add_one(iterator: Any) -> list[Any]:
        for _ in range(2):
            before = iterator._next_data
            iterator._next_data = lambda before=before: before() + 1
        return numbers(iterator)

    def every_other(iterator: Any) -> list[Any]:
        before = iterator._next_index

        def following() -> Any:
            before()
            return before()

        iterator._next_index = following
        return numbers(iterator)

    for use in (add_one, every_other) if not num_workers else (add_one,):
        found, expected = (use(iter(base(range(6), num_workers=num_workers))) for base in (DataLoader, TORCHS))
        assert found == expected


def test_methods_that_our_iterators_do_not_call_cannot_be_replaced_on_them() -> None:
    iterator = iter(DataLoader(range(2), num_workers=1))
    for name in ("_try_get_data", "_get_data", "_process_data", "_try_put_index"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            setattr(iterator, name, None)
    assert numbers(iterator) == [[0], [1]]


def test_fetcher_of_an_iterable_dataset_is_not_begun_again() -> None:
    class Items(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    assert not hasattr(iter(DataLoader(Items())), "_dataset_fetcher")


def test_iterators_have_the_names_of_pytorchs() -> None:
    for num_workers in (0, 1):
        names = {type(iter(base(range(1), num_workers=num_workers))).__name__ for base in (DataLoader, TORCHS)}
        assert len(names) == 1


@pytest.mark.parametrize("name", ["set_epoch"])
def test_loader_of_other_datasets_has_no_methods_for_composed_ones(name: str) -> None:
    loader = DataLoader(range(3))

    assert not hasattr(loader, name)
    with pytest.raises(AttributeError, match=f"DataLoader.{name}: it is for composed datasets"):
        getattr(loader, name)


# Attributes of iterators

READ = [
    *(
        "_dataset_kind",
        "_IterableDataset_len_called",
        "_auto_collation",
        "_drop_last",
        "_num_workers",
        "_world_size",
        "_rank",
    ),
    *("_pin_memory", "_pin_memory_device", "_timeout", "_collate_fn", "_persistent_workers", "_num_yielded", "_shared_seed"),
]
READ_WITH_WORKERS = [
    "_prefetch_factor",
    "_worker_init_fn",
    "_in_order",
    "_shutdown",
    "_send_idx",
    "_rcvd_idx",
    "_tasks_outstanding",
]


# With two workers, PyTorch counts an answer that overtakes another one, so that its numbers depend on the machine.
@pytest.mark.parametrize("num_workers", [0, 1])
def test_attributes_of_iterators_have_pytorchs_values(num_workers: int) -> None:
    options = {"batch_size": 2, "num_workers": num_workers, "drop_last": True}
    theirs, ours = (iter(kind(range(40), **options)) for kind in (TORCHS, DataLoader))
    next(theirs), next(ours)

    for name in READ + READ_WITH_WORKERS * bool(num_workers):
        assert_same(getattr(ours, name), getattr(theirs, name), name)
    assert list(ours._index_sampler) == list(theirs._index_sampler)
    assert list(ours._dataset) == list(theirs._dataset)


def test_base_seed_of_an_iterator_is_the_one_that_pytorch_draws() -> None:
    seeds = []
    for kind in (TORCHS, DataLoader):
        torch.manual_seed(3)
        seeds.append(iter(kind(range(3)))._base_seed)

    assert seeds[0] == seeds[1]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_program_may_advance_the_sampler_of_an_iterator(num_workers: int) -> None:
    results = []
    for kind in (TORCHS, DataLoader):
        iterator = iter(kind(range(8), num_workers=num_workers))
        next(iterator)
        skipped = next(iterator._sampler_iter), iterator._next_index()
        results.append((skipped, iterator._next_data().tolist(), numbers(iterator)))

    assert results[0] == results[1]


def test_loader_with_an_advanced_sampler_has_no_state_before_the_epoch_ends() -> None:
    loader = DataLoader(range(4))
    iterator = iter(loader)
    assert hasattr(loader, "state_dict")

    next(iterator._sampler_iter)

    with pytest.raises(AttributeError, match="the program advances _sampler_iter"):
        loader.state_dict()
    numbers(iterator)
    assert loader.state_dict()["iterator"]["is_over"]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_iterator_can_be_reset_for_the_next_epoch(num_workers: int) -> None:
    loader = DataLoader(range(4), num_workers=num_workers, persistent_workers=bool(num_workers))
    iterator = iter(loader)
    next(iterator), next(iterator)

    iterator._reset(loader)

    assert next(iterator).tolist() == [0]
    state = loader.state_dict()
    assert state["iterator"]["position"] == 1
    assert numbers(iterator) == [[1], [2], [3]]
    del iterator
    loader._iterator = None


def test_attribute_that_our_iterators_do_not_have_is_named() -> None:
    iterator = iter(DataLoader(range(4), num_workers=1))

    # Private: programs read these names of PyTorch's iterators
    for access in (lambda: iterator._index_queues, lambda: iterator._try_get_data):
        with pytest.raises(AttributeError, match=r"no attribute '_\w+'.*torch\.utils\.data\.DataLoader"):
            access()


def test_no_warning_without_replaced_parts() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numbers(DataLoader(range(2))) == [[0], [1]]
