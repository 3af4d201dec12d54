"""Objects in sources and datasets that workers cannot share or must not copy: the warnings, and their advice."""

from __future__ import annotations

import functools
import io
import random
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.data import DataLoader, IterableDataset
from dali_like.errors import PicklingError
from dali_like.sources.travel.hazards import UseInWorkers, hazards_of
from dali_like.types import SampleInfo

MakePipeline = Callable[..., Pipeline]

#: By name: the code that makes the object, and the start methods with which it is named.
OBJECTS: dict[str, tuple[Callable[[], Any], set[str]]] = {
    "file": (functools.partial(open, __file__, "rb"), {"fork", "thread"}),
    "text file": (functools.partial(open, __file__), {"fork", "thread"}),
    "closed file": (lambda: closed(functools.partial(open, __file__)()), set()),
    "file in memory": (lambda: io.BytesIO(b"content"), set()),
    "socket": (socket.socket, {"fork", "thread"}),
    "connection": (lambda: sqlite3.connect(":memory:"), {"fork", "thread"}),
    "lock": (lambda: locked(threading.Lock()), {"fork"}),
    "free lock": (threading.Lock, set()),
    "Generator": (lambda: np.random.default_rng(0), {"fork", "spawn", "ray"}),
    "BitGenerator": (lambda: np.random.PCG64(0), {"fork", "spawn", "ray"}),
    "RandomState": (lambda: np.random.RandomState(0), {"fork", "spawn", "ray"}),
    "Random": (lambda: random.Random(0), {"fork", "spawn", "ray"}),
    "SystemRandom": (random.SystemRandom, set()),
    "NumPy's global generator": (lambda: np.random.mtrand._rand, set()),
    "Python's global generator": (lambda: random._inst, set()),  # type: ignore[attr-defined]
}


def closed(file: io.IOBase) -> io.IOBase:
    file.close()
    return file


def locked(lock: Any) -> Any:
    lock.acquire()
    return lock


@pytest.fixture
def thing(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = OBJECTS[request.param][0]()
    yield made
    if hasattr(made, "close"):
        made.close()


class Holder:
    """A source that holds something."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __call__(self, info: SampleInfo) -> np.int64:
        return np.int64(info.idx_in_epoch)


class Numbers:
    """A dataset that holds something."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


def place(start_method: str, **options: Any) -> UseInWorkers:
    return UseInWorkers(
        **{"are_several": True, "repeats": True, "setup": "setup", "random": "Random.", **options}, start_method=start_method
    )


@pytest.mark.parametrize("thing", OBJECTS, indirect=True)
def test_objects_are_named_where_they_are_hazards(thing: Any, request: pytest.FixtureRequest) -> None:
    named = {
        method
        for method in ("fork", "spawn", "thread", "ray")
        if any(text.startswith("source.thing is a") for text in hazards_of(Holder(thing), "source", place(method)))
    }

    assert named == OBJECTS[request.node.callspec.params["thing"]][1]


def test_files_that_are_only_written_to_are_none(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as log:
        assert hazards_of(Holder(log), "source", place("fork")) == []


@pytest.mark.parametrize(
    ("start_method", "options", "name"),
    [("thread", {"are_several": False}, "file"), ("fork", {"repeats": False}, "Generator")],
    ids=["one thread", "seeded"],
)
def test_objects_of_one_worker_are_none(start_method: str, options: dict[str, Any], name: str) -> None:
    thing = OBJECTS[name][0]()

    assert hazards_of(Holder(thing), "source", place(start_method, **options)) == []
    assert hazards_of(Holder(thing), "source", place(start_method)) != []
    getattr(thing, "close", int)()


generator = np.random.default_rng(0)


class UsingGlobal(Numbers):
    def __getitem__(self, index: int) -> Any:
        return generator.random()


def test_global_variables_of_methods_are_seen() -> None:
    (text,) = hazards_of(UsingGlobal(None), "dataset", place("fork"))

    assert text.startswith("dataset.__getitem__ -> generator is a random generator.")


# Pipelines


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_generator_in_a_source_is_a_warning_that_names_rng(way: str, make_pipeline: MakePipeline) -> None:
    with pytest.warns(RuntimeWarning) as seen:
        make_pipeline(Holder(np.random.default_rng(0)), way).build()

    (warning,) = seen
    assert str(warning.message) == (
        "external_source of Holder: source.thing is a random generator. Each worker starts with a copy, and draws the same "
        "numbers. Draw from info.rng(), of a SampleInfo or BatchInfo, whose numbers depend on the sample"
    )


def test_a_generator_of_a_library_is_its_own_matter(way: str, make_pipeline: MakePipeline) -> None:
    recipe = type("Recipe", (), {"__module__": "pytest"})()
    recipe.random_generator = np.random.default_rng(0)

    make_pipeline(Holder(recipe), way).build()  # warnings are errors


def stream() -> Iterator[Any]:
    yield from generator.random((100, 1))


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (Holder(generator), {"workers": 1}),
        (Holder(generator), {"source_options": {"worker_setup": print}}),
        (stream, {"source_options": {"batch": True}}),
        (Holder(generator), {"way": "thread"}),
    ],
    ids=["one worker", "setup", "stream", "threads"],
)
def test_a_generator_with_numbers_that_do_not_repeat_is_not_a_hazard(
    source: Any, options: dict[str, Any], make_pipeline: MakePipeline
) -> None:
    make_pipeline(source, **options).build()  # warnings are errors


def test_an_open_file_under_threads_is_a_warning(make_pipeline: MakePipeline) -> None:
    with open(__file__, "rb") as file, pytest.warns(RuntimeWarning) as seen:
        make_pipeline(Holder(file), "thread").build()

    (warning,) = seen
    assert str(warning.message) == (
        "external_source of Holder: source.thing is an open file, whose position all workers share. Give each thread its "
        "own: keep it in a threading.local, and open it in worker_setup"
    )


# Loaders


def test_a_generator_in_a_dataset_is_one_warning_that_names_the_global_ones() -> None:
    loader = DataLoader(Numbers(np.random.default_rng(0)), num_workers=2, multiprocessing_context="fork")

    with pytest.warns(RuntimeWarning) as seen:
        assert len([*loader, *loader]) == 8

    (warning,) = seen
    assert str(warning.message) == (
        "dataset.thing is a random generator. Each worker starts with a copy, and draws the same numbers. Draw from the "
        "global generators of random, NumPy and PyTorch, which the loader seeds, or seed this one in worker_init_fn"
    )
    assert warning.filename == __file__


class Stream(IterableDataset[int]):
    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        yield from range(4)


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Numbers(generator), {"worker_init_fn": id}),
        (Stream(), {}),
        (Numbers(generator), {"multiprocessing_context": "thread"}),
    ],
    ids=["worker_init_fn", "iterable", "threads"],
)
def test_generators_of_datasets_that_others_seed_or_use_in_turn_are_not_hazards(
    dataset: Any, options: dict[str, Any]
) -> None:
    list(DataLoader(dataset, num_workers=1, **{"multiprocessing_context": "fork", **options}))


@pytest.mark.parametrize(
    ("context", "advice"),
    [
        ("fork", "Open it in the worker, in worker_init_fn or when it is first used"),
        ("thread", "Give each thread its own: keep it in a threading.local, and open it in worker_init_fn"),
    ],
)
def test_an_open_file_in_a_dataset_is_a_warning(context: str, advice: str) -> None:
    with open(__file__, "rb") as file, pytest.warns(RuntimeWarning) as seen:
        list(DataLoader(Numbers(file), num_workers=2, multiprocessing_context=context))

    (warning,) = seen
    assert str(warning.message) == f"dataset.thing is an open file, whose position all workers share. {advice}"


# Pickling


@pytest.mark.parametrize("thing", ["file", "text file", "socket", "connection", "free lock"], indirect=True)
def test_the_advice_for_an_unpicklable_object_leads_to_no_other_hazard(
    thing: Any, make_pipeline: MakePipeline, request: pytest.FixtureRequest
) -> None:
    loader = DataLoader(Numbers(thing), num_workers=1, multiprocessing_context="spawn")
    for start in (make_pipeline(Holder(thing), "spawn").build, loader.__iter__):
        with pytest.raises(PicklingError) as info:
            start()

        assert ("fork" in str(info.value)) is (request.node.callspec.params["thing"] == "free lock")
