"""Objects of modules that spawned workers would not find travel by value."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from dali_like.data import DataLoader
from dali_like.sources.travel import by_value
from dali_like.sources.travel.lost_modules import is_lost

TEXT = """
import functools

SCALE = 10

def scaled(value):
    return SCALE * value

@functools.lru_cache
def cached(value):
    return scaled(value)

class Numbers:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return cached(index)
"""


def load(path: Path, name: str) -> ModuleType:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEXT)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["of_no_folder", "tests.of_no_folder", "tests"])
def lost(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module loaded from a file: a name of its own, one below a package that lacks it, and that of another package."""
    monkeypatch.setitem(sys.modules, request.param, ModuleType("replaced below"))
    return load(tmp_path / "elsewhere.py", request.param)


def test_module_that_workers_do_not_find_is_lost(lost: Any) -> None:
    assert is_lost(lost.__name__)


@pytest.mark.parametrize(
    "name", ["os", "sys", "numpy", "numpy.linalg", "dali_like.backend", "tests.conftest", __name__, "none"]
)
def test_module_that_workers_find_is_not_lost(name: str) -> None:
    assert not is_lost(name)


def test_dataset_of_a_lost_module_is_loaded_by_spawned_workers(lost: Any) -> None:
    loader = DataLoader(lost.Numbers(), num_workers=1, multiprocessing_context="spawn")

    assert [batch.tolist() for batch in loader] == [[0], [10], [20]]


def test_pickle_of_a_lost_module_is_loaded_in_a_fresh_interpreter(lost: Any, tmp_path: Path) -> None:
    file = tmp_path / "pickle"
    file.write_bytes(by_value.dumps((lost.scaled, lost.Numbers, lost.cached)))
    program = "import pickle, sys; scaled, kind, cached = pickle.load(open(sys.argv[1], 'rb')); print(scaled(2), kind()[1])"

    done = subprocess.run([sys.executable, "-c", program, file], text=True, capture_output=True, check=True)

    assert done.stdout == "20 10\n"


def test_cloudpickle_is_as_it_was_afterwards(lost: Any) -> None:
    before = cloudpickle.list_registry_pickle_by_value()

    by_value.dumps(lost.Numbers())

    assert cloudpickle.list_registry_pickle_by_value() == before


def test_objects_of_modules_that_are_found_travel_by_name() -> None:
    assert pickle.loads(by_value.dumps(load)) is load
    assert b"spec_from_file_location" not in by_value.dumps(load)
