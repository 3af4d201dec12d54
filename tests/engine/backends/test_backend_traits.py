"""Backends are described by traits: a fifth one is a module and a row, and no code compares the name of one."""

from __future__ import annotations

import ast
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dali_like
from dali_like import Pipeline, fn
from dali_like.cli.doctor import worker_start
from dali_like.data import DataLoader
from dali_like.engine.pool.backend_traits import BACKENDS, backend_named, start_methods
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.types import SampleInfo
from tests.conftest import wait_until
from tests.engine.backends import bare_forks
from tools.shape import start_methods_compared

NAME = bare_forks.TRAITS.name


@pytest.fixture
def _bare_forks() -> Iterator[None]:
    """Add a backend, as a change of the package would."""
    BACKENDS[NAME] = bare_forks.TRAITS
    yield
    del BACKENDS[NAME]


def pid_and_index(info: SampleInfo) -> tuple[np.int64, np.int64]:
    return np.int64(os.getpid()), np.int64(info.idx_in_epoch)


def pipeline(start_method: str = NAME) -> Pipeline:
    pipe = Pipeline(batch_size=4, py_num_workers=2, py_start_method=start_method)
    with pipe:
        pipe.set_outputs(*fn.external_source(pid_and_index, num_outputs=2, batch=False, parallel=True))
    return pipe


class Pids:
    """A dataset of the process ids of workers."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int]:
        return os.getpid(), index


@pytest.mark.usefixtures("_bare_forks")
class TestFifthBackend:
    def test_a_pipeline_computes_in_its_workers(self) -> None:
        with pipeline() as pipe:
            pids, indices = (np.concatenate([np.ravel(sample) for sample in output]) for output in pipe.run())
            workers = pipe.py_worker_pids

            assert {*pids.tolist()} <= {*workers}
        assert indices.tolist() == [0, 1, 2, 3]
        assert os.getpid() not in workers

    def test_a_killed_worker_is_replaced(self) -> None:
        with pipeline() as pipe:
            pipe.run()
            first = pipe.py_worker_pids
            os.kill(first[0], signal.SIGKILL)
            numbers = [int(np.asarray(sample)) for _ in range(12) for sample in pipe.run()[1]]

            wait_until(lambda: pipe.run() and first[0] not in pipe.py_worker_pids, "the replacement of the worker")
        assert numbers == [*range(4, 52)]

    def test_a_loader_computes_in_its_workers(self) -> None:
        batches = [*DataLoader(Pids(), batch_size=4, num_workers=2, multiprocessing_context=NAME)]

        assert [index for _, indices in batches for index in np.asarray(indices).tolist()] == [*range(8)]
        assert os.getpid() not in {pid for pids, _ in batches for pid in np.asarray(pids).tolist()}

    def test_an_alias_is_the_same_start_method(self) -> None:
        with pipeline("bare") as pipe:
            assert pipe.py_start_method == NAME

    def test_its_traits_decide_on_arguments(self) -> None:
        with pytest.raises(ArgumentClashError, match=f"the '{NAME}' start method is used: such workers"):
            Pipeline(batch_size=1, py_start_method=NAME, py_callback_pickler=pickle)

    def test_messages_and_checks_of_the_machine_name_it(self) -> None:
        with pytest.raises(ArgumentError, match=f"one of .*{NAME}, bare, not 'vfork'"):
            Pipeline(batch_size=1, py_start_method="vfork")

        assert worker_start.start_method(NAME).found == "2 workers have computed a batch"


def test_names_and_aliases_of_backends_differ() -> None:
    names = start_methods()

    assert len({*names}) == len(names)
    assert {
        name: backend.name for name in names if (backend := backend_named(name)) is not None and backend.name != name
    } == {"forkserver": "spawn"}


def test_the_package_compares_no_names_of_start_methods() -> None:
    package = Path(str(dali_like.__file__)).parent
    found = [
        f"{path.relative_to(package)}:{line}"
        for path in sorted(package.rglob("*.py"))
        for line in start_methods_compared(ast.parse(path.read_text("utf-8")))
    ]

    assert found == []
