"""The comparison of test suites: which tests count, and which are lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.suites.plugin import dali_like_recording
from tests.suites.suite import Project, Runner, projects, verdict

TESTS = """
import os, time
import pytest
from torch.utils.data import DataLoader

OURS = DataLoader.__module__.startswith("dali_like")

def test_loads():
    assert [batch.tolist() for batch in DataLoader(range(3), batch_size=2)] == [[0, 1], [2]]

def test_fails_always():
    assert False

def test_fails_with_ours():
    assert not OURS

@pytest.mark.parametrize("number", [1, 2])
def test_is_excepted(number):
    assert not OURS

def test_hangs_with_ours():
    time.sleep(30 if OURS else 0)

@pytest.fixture
def broken():
    yield
    assert False

def test_cannot_clean_up(broken):
    pass

def test_is_skipped():
    pytest.skip("no network")
"""


def test_a_test_counts_if_it_passes_twice_with_pytorch() -> None:
    first = {"a": "passed", "b": "passed", "c": "failed", "d": "passed", "e": "skipped"}
    second = {"a": "passed", "b": "failed", "c": "passed", "d": "passed"}

    found = verdict(first, second, {"a": "passed", "b": "failed"}, {})

    assert found.counted == {"a", "d"}
    assert found.faults == {"d": "not reached"}


def test_an_exception_holds_for_all_parameters_of_a_test() -> None:
    passed = dict.fromkeys(["t[1]", "t[2]", "u[1]"], "passed")

    found = verdict(passed, passed, dict.fromkeys(passed, "failed"), {"t": "reason", "u[2]": "other"})

    assert found.excepted == {"t[1]": "reason", "t[2]": "reason"}
    assert found.faults == {"u[1]": "failed"}


def test_each_project_has_sources_tests_and_reasons() -> None:
    for project in projects().values():
        assert project.repository.startswith("https://")
        assert project.tests
        assert all(len(reason) > 10 for reason in project.excepted.values())


def test_last_attempt_of_a_repeated_test_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALI_LIKE_RECORD", str(tmp_path / "record"))
    attempts = [("setup", "passed"), ("call", "rerun"), ("setup", "passed"), ("call", "passed"), ("teardown", "passed")]

    for when, outcome in attempts:
        dali_like_recording.pytest_runtest_logreport(SimpleNamespace(nodeid="t", when=when, outcome=outcome))

    assert json.loads((tmp_path / "record").read_text()) == ["t", "passed"]


def test_a_suite_runs_with_both_loaders(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "test_it.py").write_text(TESTS, encoding="utf-8")
    project = Project("project", "https://", ["test_it.py"], excepted={"test_it.py::test_is_excepted": "it shows the list"})

    found = Runner(tmp_path, sys.executable, limit_s=120, test_limit_s=2).verdict(project)

    names = {test.rpartition("::")[2] for test in found.counted}
    assert names == {
        *("test_loads", "test_fails_with_ours", "test_is_excepted[1]", "test_is_excepted[2]", "test_hangs_with_ours"),
    }
    assert found.faults == {"test_it.py::test_fails_with_ours": "failed", "test_it.py::test_hangs_with_ours": "failed"}
    assert set(found.excepted.values()) == {"it shows the list"}
    assert sorted(path.name for path in folder.iterdir()) == ["test_it.py"]
