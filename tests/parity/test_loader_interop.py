"""Our DataLoader where PyTorch's is expected: by programs and libraries that ask for its type, read its attributes or its
workers, make another loader of it, or give it PyTorch's datasets."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
    get_worker_info,
    random_split,
)

from dali_like.data.loader_arguments import own_arguments  # noqa: E402
from dali_like.data.sample_schema import schema_of  # noqa: E402
from dali_like.plugin.pytorch import DataLoader  # noqa: E402
from dali_like.plugin.pytorch.tensor_backend import TorchBackend  # noqa: E402
from tests.conftest import is_running, wait_until  # noqa: E402
from tests.parity.same import assert_same  # noqa: E402

pytestmark = pytest.mark.peers

TORCHS = torch.utils.data.DataLoader
METHODS = ["fork", "spawn"]


def numbers(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


# Its type


def test_loader_is_a_loader_of_pytorch() -> None:
    assert isinstance(DataLoader(range(3)), TORCHS)
    assert issubclass(DataLoader, TORCHS)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_its_iterators_are_iterators_of_pytorch(num_workers: int) -> None:
    theirs, ours = (iter(kind(range(3), num_workers=num_workers)) for kind in (TORCHS, DataLoader))

    assert isinstance(ours, type(theirs))
    assert numbers(ours) == numbers(theirs)


def test_loader_class_is_generic() -> None:
    kind = DataLoader[int]

    assert numbers(kind(range(3), batch_size=3)) == [[0, 1, 2]]


def test_its_signature_is_pytorchs_and_ours() -> None:
    theirs, ours = (inspect.signature(kind).parameters for kind in (TORCHS, DataLoader))

    common = list(ours.values())[: len(theirs)]
    assert [(each.name, each.kind, each.default) for each in common] == [
        (each.name, each.kind, each.default) for each in theirs.values()
    ]
    assert {name: ours[name].default for name in list(ours)[len(theirs) :]} == {
        name: argument.default for name, argument in own_arguments().items()
    }


# Its attributes


@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"batch_sampler": [[0, 1], [2]]}])
def test_batch_attributes_equal_pytorchs(options: dict[str, Any]) -> None:
    theirs, ours = (kind(range(3), **options) for kind in (TORCHS, DataLoader))

    assert ours._auto_collation == theirs._auto_collation
    assert list(ours._index_sampler) == list(theirs._index_sampler)
    assert ours._dataset_kind == theirs._dataset_kind
    assert ours._iterator is theirs._iterator is None


def test_the_iterator_of_kept_workers_is_an_attribute_and_no_other_is() -> None:
    kept, other = (DataLoader(range(3), num_workers=1, persistent_workers=kept) for kept in (True, False))

    begun = iter(kept)
    iter(other)

    assert kept._iterator is begun
    assert other._iterator is None


def test_iterators_count_their_delivered_batches() -> None:
    for kind in (TORCHS, DataLoader):
        begun = iter(kind(range(5), num_workers=1))
        next(begun), next(begun)

        # Private: PyTorch's attribute
        assert (begun._num_yielded, len(begun)) == (2, 5)


def test_an_iterator_cannot_be_pickled() -> None:
    for kind in (TORCHS, DataLoader):
        with pytest.raises(NotImplementedError):
            pickle.dumps(iter(kind(range(3))))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_copy_loads_the_same(duplicate: Callable[[Any], Any], num_workers: int) -> None:
    loader = DataLoader(range(5), num_workers=num_workers, worker_seeding="torch")
    expected = numbers(loader)

    duplicated = duplicate(loader)

    assert numbers(duplicated) == expected
    assert duplicated.worker_seeding == "torch"


# Loaders that are made of others


class Named(DataLoader[Any]):
    """A loader of a user's, with arguments of its own."""

    def __init__(self, name: str, *args: Any, scale: int = 2, **options: Any) -> None:
        super().__init__(*args, **options)
        self.name = name
        self.scale = scale

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch * self.scale


def made_anew(loader: Any, **instead: Any) -> Any:
    """A loader like another one, by the arguments that its class and those it derives from have, as far as it has them as
    attributes: so libraries put in a sampler of theirs."""
    names: dict[str, Any] = {}
    for kind in type(loader).__mro__:
        if issubclass(kind, TORCHS) and "__init__" in vars(kind):
            names.update(inspect.signature(kind).parameters)
    known = {name: getattr(loader, name) for name in names if hasattr(loader, name)}
    for name in ("batch_size", "sampler", "shuffle", "drop_last", "multiprocessing_context"):
        if "batch_sampler" in instead or known.get(name) is None:
            known.pop(name, None)
    return type(loader)(**{**known, **instead})


OWN = {"worker_seeding": "torch", "on_error": "skip", "worker_restarts": 7, "max_held_bytes": 1 << 28, "worker_threads": 2}


def test_copied_loader_keeps_its_arguments() -> None:
    loader = DataLoader(range(8), batch_size=3, num_workers=1, persistent_workers=True, prefetch_factor=3, **OWN)
    batches = BatchSampler(SequentialSampler(range(4)), 2, drop_last=False)

    made = made_anew(loader, batch_sampler=batches)

    assert numbers(made) == [[0, 1], [2, 3]]
    assert made.batch_sampler is batches
    assert {name: getattr(made, name) for name in OWN} == OWN
    assert (made.num_workers, made.persistent_workers, made.prefetch_factor) == (1, True, 3)


def test_a_subclass_made_anew_keeps_its_own_arguments() -> None:
    loader = Named("of the user", range(8), batch_size=4, scale=10, worker_threads=None)

    made = made_anew(loader, batch_sampler=[[7, 0]])

    assert numbers(made) == [[70, 0]]
    assert (made.name, made.worker_threads) == ("of the user", None)


def test_a_class_that_mixes_ours_in_dynamically() -> None:
    class Shard:
        def __iter__(self) -> Any:
            yield from (batch + 1 for batch in super().__iter__())  # type: ignore[misc]

    loader = DataLoader(range(4), batch_size=2, num_workers=1)
    loader.__class__ = type("DataLoaderShard", (Shard, DataLoader), {})

    assert numbers(loader) == [[1, 2], [3, 4]]


def test_an_argument_of_ours_that_is_refused_in_words_of_ours() -> None:
    with pytest.raises(ValueError, match="worker_seeding must be"):
        DataLoader(range(3), worker_seeding="tensorflow")
    with pytest.raises(TypeError, match="on_eror"):
        DataLoader(range(3), on_eror="skip")


@pytest.mark.parametrize("name", ["batch_size", "sampler", "dataset", *own_arguments()])
def test_locked_attributes_cannot_be_set(name: str) -> None:
    loader = DataLoader(range(3))

    with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
        setattr(loader, name, None)


# Workers


def test_workers_are_there_as_soon_as_the_iterator_is() -> None:
    for kind in (TORCHS, DataLoader):
        begun = iter(kind(range(4), num_workers=2))
        workers = begun._workers

        assert len({worker.pid for worker in workers}) == 2
        assert [is_running(worker.pid) for worker in workers] == [True, True]
        assert [worker.exitcode for worker in workers] == [None, None]


@pytest.mark.parametrize("kind", [TORCHS, DataLoader])
def test_workers_have_ended_when_the_pass_has(kind: Any) -> None:
    begun = iter(kind(range(4), num_workers=2))
    workers = list(begun._workers)
    list(begun)

    assert len(begun._workers) == 2
    assert [worker.pid for worker in begun._workers] == [worker.pid for worker in workers]
    wait_until(lambda: not any(worker.is_alive() for worker in begun._workers), "the end of the workers")


@pytest.mark.parametrize("kind", [TORCHS, DataLoader])
def test_kept_workers_are_there_when_a_pass_has_ended(kind: Any) -> None:
    loader = kind(range(4), num_workers=2, persistent_workers=True)
    begun = iter(loader)
    pids = [worker.pid for worker in begun._workers]
    list(begun)

    assert [worker.is_alive() for worker in begun._workers] == [True, True]
    assert [worker.pid for worker in iter(loader)._workers] == pids


def end_by_del(holder: dict[str, Any]) -> None:
    del holder["loader"]


def end_by_attribute(holder: dict[str, Any]) -> None:
    holder["loader"]._iterator = None


def end_by_attribute_that_is_deleted(holder: dict[str, Any]) -> None:
    del holder["loader"]._iterator


def end_by_shutdown(holder: dict[str, Any]) -> None:
    holder["loader"]._iterator._shutdown_workers()


@pytest.mark.parametrize("taken", [0, 1, 4])
@pytest.mark.parametrize("end", [end_by_del, end_by_attribute, end_by_attribute_that_is_deleted, end_by_shutdown])
@pytest.mark.parametrize("kind", [TORCHS, DataLoader])
def test_each_way_of_programs_ends_kept_workers(kind: Any, end: Callable[[Any], None], taken: int) -> None:
    """Without the garbage collector."""
    holder = {"loader": kind(range(4), num_workers=1, persistent_workers=True)}
    pids = [worker.pid for worker in iter(holder["loader"])._workers]
    for _ in range(taken):
        next(holder["loader"]._iterator)

    gc.disable()
    try:
        end(holder)
        wait_until(lambda: not any(map(is_running, pids)), "the end of the workers")
    finally:
        gc.enable()


@pytest.mark.parametrize("end", [end_by_attribute, end_by_shutdown])
def test_loader_starts_new_workers_after_theirs_were_ended(end: Callable[[Any], None]) -> None:
    loader = DataLoader(range(4), num_workers=1, persistent_workers=True)
    next(iter(loader))

    end({"loader": loader})

    assert numbers(loader) == [[0], [1], [2], [3]]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("persistent", [False, True])
def test_the_iterator_of_a_loader_that_is_gone_goes_on(persistent: bool, method: str) -> None:
    begun = iter(DataLoader(range(4), num_workers=1, persistent_workers=persistent, multiprocessing_context=method))

    assert numbers(begun) == [[0], [1], [2], [3]]


# Datasets of PyTorch's


class Informed(Dataset):  # type: ignore[misc]
    """The result of PyTorch's get_worker_info in the worker."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        return [info.id, info.num_workers, info.dataset is self, type(info).__module__]

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("method", METHODS)
def test_get_worker_info_of_pytorch(method: str) -> None:
    theirs, ours = (
        list(kind(Informed(), batch_size=2, num_workers=1, multiprocessing_context=chosen))
        for kind, chosen in ((TORCHS, "fork"), (DataLoader, method))
    )

    assert_same(theirs, ours)
    assert get_worker_info() is None


class Formed(IterableDataset):  # type: ignore[misc]
    """Whether workers put a batch of tensors together themselves, as if it lay in rows."""

    def __iter__(self) -> Iterator[bool]:
        yield schema_of(torch.zeros(2), TorchBackend()) is not None


@pytest.mark.parametrize("method", METHODS)
def test_workers_know_the_collation_of_pytorch_in_their_own_guise(method: str) -> None:
    """There it does not put tensors into files in /dev/shm."""
    (batch,) = DataLoader(Formed(), num_workers=1, multiprocessing_context=method)

    assert batch.tolist() == [True]


class Count(IterableDataset):  # type: ignore[misc]
    """Numbers, divided among the workers."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return iter(range(self.begin + info.id, self.end, info.num_workers))


def tensors() -> TensorDataset:
    return TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12))


DATASETS: dict[str, Callable[[], Any]] = {
    "tensors": tensors,
    "subset": lambda: Subset(tensors(), [5, 3, 8, 1]),
    "concatenated": lambda: ConcatDataset([tensors(), Subset(tensors(), [2, 4])]),
    "sum": lambda: tensors() + tensors(),
    "split": lambda: random_split(tensors(), [9, 3], torch.Generator().manual_seed(1))[0],
    "stacked": lambda: StackDataset(tensors(), torch.arange(12) * 10),
    "stacked by name": lambda: StackDataset(images=tensors(), labels=torch.arange(12) * 10),
    "tensor": lambda: torch.arange(12).reshape(6, 2),
    "list": lambda: [(1, "a"), (2, "b"), (3, "c")],
    "chained": lambda: ChainDataset([Count(0, 7), Count(10, 15)]),
}


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"batch_size": None}], ids=["batches", "samples"])
@pytest.mark.parametrize("make", DATASETS.values(), ids=DATASETS)
def test_datasets_of_pytorch(make: Callable[[], Any], options: dict[str, Any]) -> None:
    """Datasets with indices are the same without workers in PyTorch, which starts workers slowly."""
    their_workers = 2 if make is DATASETS["chained"] else 0
    theirs = list(TORCHS(make(), num_workers=their_workers, **options))
    ours = list(DataLoader(make(), num_workers=2, **options))

    assert_same(theirs, ours)


@pytest.mark.parametrize(
    "make",
    [lambda: ConcatDataset([make() for name, make in DATASETS.items() if name != "chained"]), DATASETS["chained"]],
    ids=["all with indices", "chained"],
)
def test_datasets_of_pytorch_travel_to_spawned_workers(make: Callable[[], Any]) -> None:
    theirs = list(TORCHS(make(), batch_size=None, num_workers=2))
    ours = list(DataLoader(make(), batch_size=None, num_workers=2, multiprocessing_context="spawn"))

    assert_same(theirs, ours)


class Places(Dataset):  # type: ignore[misc]
    """For each sample, the file that the dataset's tensor lies in, as the worker's memory map says."""

    def __init__(self) -> None:
        self.large = torch.zeros(1 << 20)

    def __getitem__(self, index: int) -> str:
        address = self.large.data_ptr()
        with open("/proc/self/maps") as maps:
            for line in maps:
                place, _, _, _, inode, *name = line.split()
                begin, end = (int(part, 16) for part in place.split("-"))
                if begin <= address < end:
                    return f"{inode} {' '.join(name)}"
        raise LookupError(hex(address))

    def __len__(self) -> int:
        return 16


def test_a_tensor_of_a_dataset_exists_once_for_all_spawned_workers() -> None:
    (places,) = DataLoader(Places(), batch_size=16, num_workers=2, multiprocessing_context="spawn")

    assert len(set(places)) == 1
    assert "memfd:dali_like" in places[0]


# Page-locked memory


class Custom:
    """A batch of a user's, which can pin itself."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples
        self.pinned_in = ""

    def pin_memory(self) -> Custom:
        self.pinned_in = "main" if get_worker_info() is None else "worker"
        return self


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"pin_memory_device": "cuda"}])
def test_without_an_accelerator_pin_memory_warns_and_batches_come(options: dict[str, Any]) -> None:
    results = []
    for kind in (TORCHS, DataLoader):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", module="multiprocessing")  # Python 3.12 warns of PyTorch's forks
            batches = numbers(kind(range(4), batch_size=2, pin_memory=True, **options))
        results.append((batches, [(each.category, str(each.message), each.filename == __file__) for each in caught]))

    (theirs, said), (ours, also_said) = results
    assert ours == theirs
    assert [text for _, text, _ in also_said] == [text for _, text, _ in said]
    assert all(is_here for _, _, is_here in also_said), "the warning does not point at the line that asked"


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_batch_that_can_pin_itself_does_so_in_the_main_process(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    loader = DataLoader(range(2), batch_size=2, pin_memory=True, num_workers=num_workers, collate_fn=Custom)

    (batch,) = loader

    assert (batch.samples, batch.pinned_in) == ([0, 1], "main")


def test_without_an_accelerator_nothing_is_asked_to_pin_itself() -> None:
    loader = DataLoader(range(2), batch_size=2, pin_memory=True, collate_fn=Custom)

    with pytest.warns(UserWarning, match="no accelerator is found"):
        (batch,) = loader

    assert batch.pinned_in == ""


@pytest.mark.parametrize("num_workers", [0, 1])
def test_profiles_show_the_waiting_of_the_loop(num_workers: int) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        numbers(DataLoader(range(4), batch_size=2, num_workers=num_workers))

    counts = {event.key: event.count for event in profile.key_averages()}
    (waits,) = (count for key, count in counts.items() if key.startswith("enumerate(DataLoader)#"))
    assert waits == 3  # two batches, and the end
