"""Loaders of the real PyTorch and of dali_like side by side: the allowed arguments, the attributes, and the errors."""

from __future__ import annotations

import gc
import inspect
import itertools
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dali_like import data  # noqa: E402
from dali_like.data.loader import DataLoader as NumpyLoader  # noqa: E402
from dali_like.data.loader_arguments import own_arguments  # noqa: E402
from dali_like.data.options import check_before_iteration  # noqa: E402
from tests.parity.covering import covering_rows  # noqa: E402
from tests.parity.torch_side import generator  # noqa: E402

pytestmark = pytest.mark.peers

#: Attributes of PyTorch's loader that ours keeps under other names: only the loader itself asks for them.
RENAMED = {"_DataLoader__multiprocessing_context", "_DataLoader__initialized"}
#: Objects that each loader makes, and that cannot be the same.
MADE = {"sampler", "batch_sampler", "collate_fn"}
PROPERTIES = {"multiprocessing_context", "_auto_collation", "_index_sampler"}


class DataLoader(NumpyLoader[Any]):
    """Its name is in some of the texts."""


BOTH = (torch.utils.data.DataLoader, DataLoader)


class Keyed:
    """Without a length."""

    def __getitem__(self, index: int) -> int:
        return index


class Endless(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


class Lines(Endless):
    def __len__(self) -> int:
        return 10


class Named:
    """Any object, which is printed in the same way each time."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


# Comparisons


def outcome(make: Callable[[Any], Any], loader: Any) -> tuple[Any, list[Any]]:
    """The result of a program with one of the two loaders, a value or an exception; and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = make(loader)
        except Exception as error:
            result = error.with_traceback(None)
    return result, [(warning.category, str(warning.message)) for warning in caught]


def _of_workers(warned: tuple[Any, str]) -> bool:
    """Whether it is the warning about too many workers, which PyTorch repeats where an iterator begins."""
    return warned[1].startswith("This DataLoader will create")


def difference(make: Callable[[Any], Any], *, beginning: bool = False) -> str:
    """The differences of the two loaders, as a text; empty without any.

    Args:
        make: a program for each; its results can be compared.
        beginning: whether the text of our exception may go on where that of PyTorch's ends.
    """
    (theirs, their_warnings), (ours, our_warnings) = (outcome(make, loader) for loader in BOTH)
    their_warnings = [warned for i, warned in enumerate(their_warnings) if i == 0 or not _of_workers(warned)]
    if our_warnings != their_warnings:
        return f"warnings: {our_warnings} instead of {their_warnings}"
    if not isinstance(theirs, Exception):
        return "" if ours == theirs else f"{ours!r} instead of {theirs!r}"
    same_text = str(ours).startswith(str(theirs)) if beginning else str(ours) == str(theirs)
    return "" if isinstance(ours, type(theirs)) and same_text else f"{ours!r} instead of {theirs!r}"


def features(loader: Any) -> dict[str, Any]:
    """All that can be seen of a loader of one of the two kinds."""
    names = [*inspect.signature(BOTH[0]).parameters, "_dataset_kind", "_iterator", "_IterableDataset_len_called"]
    seen = {name: getattr(loader, name) for name in names if name not in MADE | {"shuffle"}}
    length, _ = outcome(len, loader)
    return {
        **seen,
        "sampler": description(loader.sampler),
        "batch_sampler": description(loader.batch_sampler),
        "collate_fn": getattr(loader.collate_fn, "__name__", loader.collate_fn),
        "batches": loader._auto_collation,
        "asks its batch sampler": loader._index_sampler is loader.batch_sampler,
        "asks its sampler": loader._index_sampler is loader.sampler,
        "length": (type(length), str(length)) if isinstance(length, Exception) else length,
        "length asked for": loader._IterableDataset_len_called,
    }


def description(sampler: Any) -> Any:
    """A sampler that a loader has made: its class and arguments. Another one itself."""
    if not isinstance(sampler, (torch.utils.data.Sampler, data.Sampler)):
        return sampler
    given = ("data_source", "generator", "num_samples", "batch_size", "drop_last", "replacement")
    inner = description(sampler.sampler) if hasattr(sampler, "sampler") else None
    return [type(sampler).__name__, *(getattr(sampler, name, None) for name in given), inner]


def construct(row: dict[str, Any]) -> Callable[[Any], Any]:
    """Makes a loader of these arguments; returns its visible state."""
    return lambda loader: features(loader(**row))


def differences(rows: Any) -> list[Any]:
    """The rows that make the two loaders differ, and the differences."""
    return [(row, found) for row in rows if (found := difference(construct(row)))]


# Arguments

SEQUENCE = list(range(10))
GENERATOR = generator(1)
SPAWN = multiprocessing.get_context("spawn")

GOOD: dict[str, list[Any]] = {
    "batch_size": [1, 4, 100, None],
    "shuffle": [None, False, True],
    "sampler": [None, [3, 1, 2], iter([3, 1, 2])],
    "batch_sampler": [None, [[0, 1], [2]], iter([[0, 1]])],
    "num_workers": [0, 1, 1000],
    "collate_fn": [None, list],
    "pin_memory": [False, True],
    "drop_last": [False, True],
    "timeout": [0, 1.5],
    "worker_init_fn": [None, print],
    "multiprocessing_context": [None, "fork", "spawn", "forkserver", SPAWN],
    "generator": [None, GENERATOR],
    "prefetch_factor": [None, 0, 3],
    "persistent_workers": [False, True],
    "pin_memory_device": ["", "cuda"],
    "in_order": [True, False],
}
#: Values that are refused, alone or with others, or at least odd.
ODD: list[tuple[str, Any]] = [
    *(("batch_size", value) for value in (0, -1, 4, None, True, 2.0, "two", np.int64(2))),
    *(("shuffle", value) for value in (True, 0, 3, "yes", np.bool_(False))),
    *(("sampler", value) for value in ([], Named("sampler"), range(3))),
    *(("batch_sampler", value) for value in ([], Named("sampler"), data.BatchSampler(range(3), 2, False))),
    *(("num_workers", value) for value in (-1, True, 1.5, np.int64(2), 1000)),
    *(("pin_memory", value) for value in (1, "yes")),
    *(("drop_last", value) for value in (True, 0, 1, None, "yes")),
    *(("timeout", value) for value in (-1, -0.5, True, float("inf"))),
    *(("multiprocessing_context", value) for value in ("bad", "", "fork", 0, Named("context"), multiprocessing)),
    *(("prefetch_factor", value) for value in (-1, 0, 1.5, True)),
    *(("persistent_workers", value) for value in (True, 1, "yes")),
    *(("in_order", value) for value in (0, None)),
    ("collate_fn", 3),
    ("worker_init_fn", 3),
    ("generator", GENERATOR),
    ("pin_memory_device", 3),
]
#: Of all kinds; the last ones are walked through.
DATASETS = {
    "sequence": SEQUENCE,
    "empty": [],
    "without length": Keyed(),
    "array": np.arange(0),
    "tensor": torch.arange(10),
    "of ours": data.Subset(SEQUENCE, [1, 2]),
    "iterable": Lines(),
    "endless": Endless(),
}


@pytest.fixture(params=DATASETS)
def dataset(request: pytest.FixtureRequest) -> Any:
    """One of each kind."""
    return DATASETS[request.param]


def settled(row: dict[str, Any]) -> dict[str, Any]:
    """A row without values that clash."""
    if row["num_workers"] == 0:
        row = {**row, "prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None}
    if row["batch_sampler"] is not None:
        row = {**row, "batch_size": 1, "shuffle": None, "sampler": None, "drop_last": False}
    if row["sampler"] is not None:
        row = {**row, "shuffle": None}
    return {**row, "drop_last": False} if row["batch_size"] is None else row


def settled_without_order(row: dict[str, Any]) -> dict[str, Any]:
    """A row without values that clash, for datasets that are walked through."""
    return settled({**row, "shuffle": None, "sampler": None, "batch_sampler": None})


@pytest.mark.parametrize("settle", [settled, settled_without_order, dict])
def test_two_good_values(settle: Callable[[dict[str, Any]], dict[str, Any]], dataset: Any) -> None:
    rows = covering_rows(GOOD, 2, settle)

    assert differences({"dataset": dataset, **row} for row in rows) == []


@pytest.mark.parametrize(("settle", "dataset"), [(settled, SEQUENCE), (settled_without_order, Lines())])
def test_good_values_that_go_together_are_accepted(settle: Callable[[dict[str, Any]], dict[str, Any]], dataset: Any) -> None:
    rows = covering_rows(GOOD, 2, settle)

    results = [outcome(construct({"dataset": dataset, **row}), DataLoader)[0] for row in rows]

    assert [result for result in results if isinstance(result, Exception)] == []


@pytest.mark.parametrize("num_workers", [0, 2])
def test_of_two_odd_values_the_same_one_is_named(dataset: Any, num_workers: int) -> None:
    usual = {"dataset": dataset, "num_workers": num_workers}
    rows = [usual, *({**usual, **dict(pair)} for pair in itertools.combinations_with_replacement(ODD, 2))]

    assert differences(rows) == []


def test_arguments_by_position() -> None:
    arguments = (SEQUENCE, 2, None, [1, 2, 3], None, 1, list, True, True, 3, print, "spawn", GENERATOR)

    assert difference(lambda loader: features(loader(*arguments))) == ""


def test_the_signature_is_the_same_and_goes_on() -> None:
    theirs, ours = (
        {name: (parameter.kind, parameter.default) for name, parameter in inspect.signature(loader).parameters.items()}
        for loader in BOTH
    )

    assert list(ours)[: len(theirs)] == list(theirs)
    assert {name: ours[name] for name in theirs} == theirs
    assert ours.keys() - theirs.keys() == {*own_arguments()}


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_workers", "2"), ("num_workers", None), ("timeout", "x"), ("timeout", None), ("prefetch_factor", "x")],
)
def test_values_that_are_not_numbers_are_named(name: str, value: Any) -> None:
    """PyTorch leaves it to Python to complain that they cannot be compared."""
    arguments = {"num_workers": 2, name: value}
    (theirs, _), (ours, _) = (outcome(lambda loader: loader(SEQUENCE, **arguments), loader) for loader in BOTH)

    assert type(theirs) is TypeError
    assert isinstance(ours, TypeError)
    may_be_chosen = ' or "auto"' if isinstance(value, str) and name != "timeout" else ""
    assert str(ours) == f"{name} option should be a non-negative number{may_be_chosen}, but got {name}={value!r}"


def test_wrong_generator_is_refused_at_once() -> None:
    """PyTorch notices that when it draws from it."""
    with pytest.raises(TypeError, match=r"generator should be a numpy\.random\.Generator, a seed or a torch\.Generator"):
        DataLoader(SEQUENCE, generator="x")


# Attributes


@pytest.mark.parametrize("dataset", [SEQUENCE, Lines()], ids=["map", "iterable"])
@pytest.mark.parametrize("batch_size", [2, None])
def test_all_attributes_of_theirs_are_there(dataset: Any, batch_size: int | None) -> None:
    theirs, ours = (loader(dataset, batch_size) for loader in BOTH)

    missing = {name for name in vars(theirs).keys() | PROPERTIES if not hasattr(ours, name)}

    assert missing == RENAMED
    assert {name for name in vars(theirs).keys() - RENAMED if name not in vars(ours)} == set()


@pytest.mark.parametrize("name", sorted({*vars(BOTH[0](SEQUENCE)), *PROPERTIES, "anything"} - RENAMED))
def test_attributes_can_be_set_as_in_pytorch(name: str) -> None:
    def set_it(kind: Any) -> Any:
        loader = kind(SEQUENCE)
        setattr(loader, name, None)
        return getattr(loader, name)

    assert difference(set_it) == ""


@pytest.mark.parametrize("value", [None, "fork", "spawn", "bad", "", SPAWN, 3, Named("context")])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_context_can_be_set(value: Any, num_workers: int) -> None:
    def set_it(kind: Any) -> Any:
        loader = kind(SEQUENCE, num_workers=num_workers)
        loader.multiprocessing_context = value
        return loader.multiprocessing_context

    assert difference(set_it) == ""


def test_the_length_is_that_of_now() -> None:
    def lengths(kind: Any) -> Any:
        grows = [1, 2, 3]
        loader = kind(grows, 2)
        before = len(loader)
        grows.extend(grows)
        return before, len(loader)

    assert difference(lengths) == ""


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 3, 5, 20])
def test_the_length_of_an_iterable_dataset_is_remembered(drop_last: bool, batch_size: int | None) -> None:
    def lengths(kind: Any) -> Any:
        loader = kind(Lines(), batch_size, drop_last=drop_last)
        before = loader._IterableDataset_len_called
        return before, len(loader), loader._IterableDataset_len_called

    assert difference(lengths) == ""


def test_iterable_datasets_of_both_are_walked_through() -> None:
    class OfOurs(data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(())

    assert DataLoader(OfOurs())._dataset_kind == BOTH[0](Endless())._dataset_kind


def test_indices_of_iterable_datasets() -> None:
    def indices(kind: Any) -> Any:
        return [list(itertools.islice(kind(Lines(), size)._index_sampler, 3)) for size in (2, None)]

    assert difference(indices) == ""


def test_shuffling_draws_the_same_numbers() -> None:
    assert difference(lambda kind: list(kind(SEQUENCE, 3, True, generator=generator(5))._index_sampler)) == ""


# Errors of the start of an iterator


def begin(loader: Any) -> None:
    """Make an iterator, or let ours do the first steps of one."""
    if isinstance(loader, DataLoader):
        check_before_iteration(loader)
    else:
        iter(loader)


@pytest.fixture(params=[False, True], ids=["no accelerator", "accelerator"])
def _accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: request.param)
    monkeypatch.setattr("dali_like.device.accelerator.accelerator_is_available", lambda: request.param)


@pytest.mark.usefixtures("_accelerator")
@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.parametrize("device", ["", "cuda"])
@pytest.mark.parametrize("timeout", [0, 1])
def test_without_workers(pin_memory: bool, device: str, timeout: int) -> None:
    def program(kind: Any) -> None:
        begin(kind(SEQUENCE, pin_memory=pin_memory, pin_memory_device=device, timeout=timeout))

    assert difference(program, beginning=True) == ""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PyTorch's iterators are not complete then
@pytest.mark.parametrize(("name", "value"), [("prefetch_factor", 0), ("prefetch_factor", -1), ("num_workers", -1)])
@pytest.mark.usefixtures("_accelerator")
def test_with_too_few_workers_or_batches(name: str, value: int) -> None:
    def program(kind: Any) -> None:
        loader = kind(SEQUENCE, num_workers=1000, pin_memory=True, pin_memory_device="cuda")
        setattr(loader, name, value)
        begin(loader)

    found = difference(program)
    gc.collect()

    assert found == ""


def test_too_many_workers_are_warned_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's base class warns in its constructor as well, with a line of its own."""
    from dali_like.plugin.pytorch import DataLoader as TorchLoader

    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = TorchLoader(range(4), num_workers=2, multiprocessing_context="thread")
        batches = [[batch.tolist() for batch in loader] for _ in range(2)]

    assert batches == [[[0], [1], [2], [3]]] * 2
    assert [warning.filename for warning in caught] == [__file__]
    assert "will create 2 worker threads" in str(caught[0].message)
