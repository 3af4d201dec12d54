"""The own arguments of the loader, and attributes that may change. The parity tests compare the rest with PyTorch."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dali_like.data import IterableDataset, default_collate, default_collate_fn_map, default_convert
from dali_like.data.loader import DataLoader, DatasetKind
from dali_like.data.options import LoaderOptions, check_before_iteration
from dali_like.errors import ArgumentError, ArgumentTypeError, IteratorArgumentError

OWN = {
    "worker_seeding": "torch",
    "on_error": lambda info, error: 0,
    "worker_restarts": None,
    "prefetch_epochs": True,
    "max_held_bytes": 2**30,
    "worker_threads": None,
    "import_main": False,
    "share_batches": False,
    "reorder_window": 3,
}
#: See test_loader_origins.py and test_peers.py.
OF_OTHERS = {"origins": False, "peers": None}
#: Only for composed datasets; see test_composed_loader.py.
_OF_BALANCE = ["balance", "costs", "balance_window"]
OF_COMPOSED = ["shard_id", "num_shards", "shard_rest", *_OF_BALANCE, "weights_file", "mesh", "mesh_dims"]
#: Only for loaders of tensors; see tests/parity/test_loader_device.py.
OF_DEVICES = {"device": None, "prefetch_to_device": 2, "static_buffers": False, "sharding": None}
#: Of datasets that are read many samples at a time; see test_loader_reads.py.
OF_READS = ["concurrency", "read_threads", "max_read_bytes"]
LOCKED = [
    "dataset",
    "batch_size",
    "sampler",
    "batch_sampler",
    "drop_last",
    "persistent_workers",
    *OWN,
    *OF_COMPOSED,
    *OF_READS,
    *OF_DEVICES,
    *OF_OTHERS,
]


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


# Our own arguments


def test_own_arguments_are_attributes() -> None:
    loader = DataLoader("abc", **OWN)

    assert {name: vars(loader)[name] for name in OWN} == OWN


def test_the_error_of_an_unknown_start_method_names_those_of_the_library() -> None:
    with pytest.raises(ArgumentError, match=r"'spawn'.*got multiprocessing_context='threads'") as caught:
        DataLoader("abc", num_workers=1, multiprocessing_context="threads")

    assert str(caught.value).endswith("'threads'"), "PyTorch's message"
    assert caught.value.__notes__ == ["Those of this library alone are 'thread', 'thread_copies'"]


@pytest.mark.parametrize("options", [{}, {"batch_sampler": [[0, 1]]}, {"num_workers": 1}], ids=str)
def test_an_array_of_batch_sizes_is_an_error_of_that_argument(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"batch_size should be a positive integer value, but got batch_size=\[4 8\]"):
        DataLoader(range(8), np.array([4, 8]), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["set_weights", "set_batch_size"])
def test_a_change_in_the_loop_points_to_composed_datasets(name: str) -> None:
    with pytest.raises(AttributeError, match=r"it is for composed datasets, such as ComposedDataset\.source\(dataset\)"):
        getattr(DataLoader("abc"), name)


def test_own_arguments_have_defaults() -> None:
    loader = DataLoader("abc")

    assert {name: vars(loader)[name] for name in OWN} == {
        "worker_seeding": "tasks",
        "on_error": "raise",
        "worker_restarts": 3,
        "prefetch_epochs": False,
        "max_held_bytes": None,
        "worker_threads": 1,
        "import_main": None,
        "share_batches": "auto",
        "reorder_window": None,
    }


def test_an_argument_of_the_constructor_becomes_an_option_of_iterators() -> None:
    options = LoaderOptions.of(DataLoader("abc", **OWN))

    assert options.own == {**OWN, **dict.fromkeys([*OF_COMPOSED, *OF_READS]), **OF_DEVICES, **OF_OTHERS}
    assert [*options.own] == [*inspect.signature(DataLoader).parameters][-len(options.own) :]


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("worker_seeding", "tasks", "tasks"),
        ("on_error", "skip", "skip"),
        ("worker_restarts", 0, 0),
        ("worker_restarts", np.int64(2), 2),
        ("prefetch_epochs", np.True_, True),
        ("prefetch_epochs", 0, False),
        ("max_held_bytes", None, None),
        ("max_held_bytes", 1, 1),
        ("worker_threads", np.uint8(4), 4),
        ("import_main", None, None),
        ("share_batches", np.False_, False),
        ("reorder_window", np.int64(2), 2),
    ],
)
def test_values_that_are_allowed(name: str, value: Any, kept: Any) -> None:
    found = getattr(DataLoader("abc", **{name: value}), name)

    assert (type(found), found) == (type(kept), kept)


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("worker_seeding", "worker", ArgumentError, 'must be "tasks" \\(.*\\) or "torch" \\(.*\\), not \'worker\''),
        ("worker_seeding", None, ArgumentError, "must be .*, not None"),
        (
            "on_error",
            "ignore",
            ArgumentError,
            'must be "raise", "skip" or a callable that makes a replacement, not \'ignore\'',
        ),
        ("on_error", None, ArgumentError, "must be .*, not None"),
        ("worker_restarts", -1, ArgumentError, "must be an integer from 0 on, not -1"),
        ("worker_restarts", 1.0, ArgumentTypeError, "must be an integer from 0 on, not 1.0"),
        ("worker_restarts", True, ArgumentTypeError, "must be an integer from 0 on, not True"),
        ("prefetch_epochs", 2, ArgumentTypeError, "must be True or False, not 2"),
        ("prefetch_epochs", None, ArgumentTypeError, "must be True or False, not None"),
        ("max_held_bytes", 0, ArgumentError, "must be a positive integer, not 0"),
        ("max_held_bytes", "1G", ArgumentTypeError, "must be a positive integer, not '1G'"),
        ("worker_threads", 0, ArgumentError, "must be a positive integer, not 0"),
        ("worker_threads", 1.5, ArgumentTypeError, "must be a positive integer, not 1.5"),
        ("import_main", 2, ArgumentTypeError, "must be True or False, not 2"),
        ("share_batches", None, ArgumentTypeError, 'must be True, False or "auto", not None'),
        ("reorder_window", 0, ArgumentError, "must be a positive integer, not 0"),
    ],
)
def test_values_that_are_not(name: str, value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{name} {text}") as info:
        DataLoader("abc", **{name: value})

    assert type(info.value) is error


def test_checks_of_pytorch_come_before_our_own() -> None:
    with pytest.raises(ArgumentError, match="num_workers option should be non-negative"):
        DataLoader("abc", num_workers=-1, on_error="ignore")


# Changes of attributes


@pytest.mark.parametrize("name", LOCKED)
def test_attributes_that_are_locked(name: str) -> None:
    class Loader(DataLoader[Any]):
        pass

    loader = Loader("abc")
    before = getattr(loader, name)

    with pytest.raises(ArgumentError, match=f"^{name} attribute should not be set after Loader is initialized$"):
        setattr(loader, name, 1)

    assert getattr(loader, name) is before


@pytest.mark.parametrize("name", sorted(vars(DataLoader("abc")).keys() - {*LOCKED, "_dali_like_is_complete"}))
def test_attributes_that_are_not(name: str) -> None:
    loader = DataLoader("abc")

    setattr(loader, name, 1)

    assert getattr(loader, name) == 1


def test_subclasses_may_set_locked_attributes_before_construction() -> None:
    class Loader(DataLoader[Any]):
        def __init__(self) -> None:
            self.dataset = "early"
            super().__init__("abc")

    assert Loader().dataset == "abc"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_copies_are_locked_too(copied: Any) -> None:
    loader = copied(DataLoader("abcd", 2, worker_restarts=7))

    assert (list(loader.batch_sampler), loader.worker_restarts) == ([[0, 1], [2, 3]], 7)
    with pytest.raises(ArgumentError):
        loader.batch_size = 3


def test_a_loader_can_be_made_of_the_attributes_of_another() -> None:
    """As frameworks do to replace the sampler."""
    loader = DataLoader("abcd", collate_fn=list, timeout=3, **OWN)
    names = ["dataset", "collate_fn", "timeout", *OWN]

    again = DataLoader(**{name: vars(loader)[name] for name in names})

    assert {name: vars(again)[name] for name in names} == {name: vars(loader)[name] for name in names}


# Datasets, batches, generators


def test_samples_are_collated_into_batches_and_converted_without() -> None:
    assert DataLoader("abc").collate_fn is default_collate
    assert DataLoader("abc", batch_sampler=[[0]]).collate_fn is default_collate
    assert DataLoader("abc", batch_size=None).collate_fn is default_convert


@pytest.mark.parametrize(("dataset", "kind"), [(Numbers(), DatasetKind.ITERABLE), ("abc", DatasetKind.MAP)])
def test_kinds_of_datasets(dataset: Any, kind: DatasetKind) -> None:
    assert DataLoader(dataset)._dataset_kind is kind


def test_a_seed_becomes_the_generator_that_shuffling_draws_from() -> None:
    loaders = [DataLoader(range(20), shuffle=True, generator=3) for _ in range(2)]

    assert loaders[0].sampler.generator is loaders[0].generator
    assert list(loaders[0].sampler) == list(loaders[1].sampler)


@pytest.mark.parametrize("shuffle", [False, True])
def test_wrong_generator_is_refused_without_shuffle(shuffle: bool) -> None:
    with pytest.raises(ArgumentTypeError, match=r"^generator should be a numpy\.random\.Generator"):
        DataLoader("abc", shuffle=shuffle, generator="x")


# Warnings and errors at the beginning of an iterator


def test_nothing_if_all_is_well() -> None:
    check_before_iteration(DataLoader("abc"))
    check_before_iteration(DataLoader("abc", num_workers=1, timeout=3))


def test_a_timeout_needs_workers() -> None:
    with pytest.raises(IteratorArgumentError, match="Set num_workers > 0, or timeout=0 instead of 2") as info:
        check_before_iteration(DataLoader("abc", timeout=2))

    assert isinstance(info.value, AssertionError)


@pytest.mark.parametrize(("name", "value"), [("num_workers", 0.5), ("prefetch_factor", 1.5), ("prefetch_factor", None)])
def test_numbers_that_are_no_integers(name: str, value: Any) -> None:
    loader = DataLoader("abc", num_workers=1)
    setattr(loader, name, value)

    with pytest.raises(ArgumentTypeError, match=f"^{name} option should be an integer, but got {name}={value}$"):
        check_before_iteration(loader)


@pytest.mark.parametrize("available", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_memory_is_pinned_where_there_is_an_accelerator(
    asked: bool, available: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dali_like.device.accelerator.accelerator_is_available", lambda: available)
    loader = DataLoader("abc", pin_memory=asked)

    assert LoaderOptions.of(loader).pins_memory is (asked and available)


def test_no_accelerator_is_looked_for_without_pinning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("dali_like.device.accelerator.accelerator_is_available")

    check_before_iteration(DataLoader("abc"))


@pytest.mark.parametrize(("context", "kind"), [(None, "processes"), ("spawn", "processes"), ("thread_copies", "threads")])
def test_the_warning_of_too_many_workers_names_their_kind(
    context: str | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})

    with pytest.warns(UserWarning, match=f"will create 2 worker {kind} in total"):
        DataLoader("abc", num_workers=2, multiprocessing_context=context)


def test_warnings_point_at_the_line_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DataLoader("abc", num_workers=2)

    assert [(warning.filename, warning.category) for warning in caught] == [(__file__, UserWarning)]
    assert "will create 2 worker processes in total. Our suggested max number of worker" in str(caught[0].message)


# Options that stay the same for several epochs


class Letters:
    def __getitem__(self, index: int) -> Any:
        return "abcd"[index]

    def __len__(self) -> int:
        return 4


def replace_method(loader: Any) -> None:
    loader.dataset.__getitems__ = lambda keys: [key * 10 for key in keys]


def replace_sampler(loader: Any) -> None:
    vars(loader)["batch_sampler"] = [[3], [2]]  # as programs do that may not set it


def replace_collation(loader: Any) -> None:
    loader.collate_fn = "".join


def replace_size(loader: Any) -> None:
    loader.batch_sampler.batch_size = 3


def replace_class(loader: Any) -> None:
    loader.dataset.__class__ = type("Capitals", (Letters,), {"__getitem__": lambda self, index: "ABCD"[index]})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (replace_method, [[0, 10], [20, 30]]),
        (replace_sampler, [["d"], ["c"]]),
        (replace_collation, ["ab", "cd"]),
        (replace_size, [["a", "b", "c"], ["d"]]),
        (replace_class, [["A", "B"], ["C", "D"]]),
    ],
    ids=["methods", "sampler", "collation", "size of batches", "class"],
)
def test_a_change_between_epochs_counts_from_the_next_one_on(change: Callable[[Any], None], expected: list[Any]) -> None:
    loader = DataLoader(Letters(), 2)
    assert [list(batch) for batch in loader] == [["a", "b"], ["c", "d"]]

    change(loader)

    assert [batch if isinstance(batch, str) else np.asarray(batch).tolist() for batch in loader] == expected


def test_a_collation_that_the_program_registers_between_epochs_counts_from_the_next_one_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = DataLoader(Letters(), 4)
    assert list(loader) == [["a", "b", "c", "d"]]

    def joined(batch: list[str], *, collate_fn_map: Any) -> str:
        return "".join(batch)

    monkeypatch.setitem(default_collate_fn_map, str, joined)

    assert list(loader) == ["abcd"]
