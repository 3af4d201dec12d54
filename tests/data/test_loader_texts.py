"""Error messages of the engine, in terms of the loader and its arguments."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from dali_like.data import DataLoader, Subset
from dali_like.errors import ClosedError, PicklingError
from tests.data.loader_cases import MANY_WORKERS, Squares, loader_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)


class Locked(Squares):
    """A callable that cannot be pickled, because it has a lock."""

    def __init__(self) -> None:
        super().__init__(1)
        self.lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        return args[0]


def spawning(dataset: Any = None, **options: Any) -> DataLoader[Any]:
    return loader_of(Squares() if dataset is None else dataset, 1, "spawn", **options)


@pytest.mark.parametrize(
    ("loader", "culprit"),
    [
        pytest.param(lambda: spawning(Locked()), "dataset.lock", id="dataset"),
        pytest.param(lambda: spawning(Subset(Locked(), [0])), "dataset.lock", id="within one of ours"),
        pytest.param(lambda: spawning(collate_fn=Locked()), "collate_fn.lock", id="collate_fn"),
        pytest.param(lambda: spawning(worker_init_fn=Locked()), "worker_init_fn.lock", id="worker_init_fn"),
        pytest.param(lambda: spawning(on_error=Locked()), "on_error.lock", id="on_error"),
    ],
)
def test_message_about_an_unpicklable_object_uses_the_loaders_names(loader: Any, culprit: str) -> None:
    message = (
        rf"the loader of dataset \w+ cannot be pickled for spawned workers: {re.escape(culprit)}, a lock, refuses: .*"
        r'worker_init_fn, .*multiprocessing_context="fork"$'
    )

    with pytest.raises(PicklingError, match=message):
        iter(loader())


def test_unknown_arguments_are_those_of_the_class_that_users_know() -> None:
    with pytest.raises(TypeError, match=r"^DataLoader\.__init__\(\) got an unexpected keyword argument 'batchsize'"):
        DataLoader(Squares(), batchsize=1)  # type: ignore[call-arg]


def test_workers_ended_by_the_program_are_an_error_that_names_the_iterator() -> None:
    loader = loader_of(Squares(), 1, persistent_workers=True)
    first, second = iter(loader), iter(loader)

    first._shutdown_workers()

    with pytest.raises(ClosedError) as caught:
        next(second)

    assert str(caught.value) == "the workers of this iterator have been ended; begin another iterator"
