"""`tools.coverage_matrix`: the lines of functions that tests reach, also in forked processes, and the candidates."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tools import coverage_matrix
from tools.coverage_matrix import Lines, Recorder

needs_monitoring = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring needs Python 3.12")

MODULE = """
def reached(x):
    if x:
        return 1
    return 2
"""


def test_tests_that_reach_no_line_alone_are_candidates_with_the_tests_that_reach_their_lines() -> None:
    tests = {
        "a": frozenset({1, 2, 3}),
        "b": frozenset({2, 3}),
        "c": frozenset({3, 4}),
        "d": frozenset({3}),
        "e": frozenset(),
    }

    assert coverage_matrix.candidates(tests) == {"b": ["a"], "d": ["b", "c", "a"]}


@needs_monitoring
class TestLines:
    @pytest.fixture
    def module(self, tmp_path: Path) -> ModuleType:
        (tmp_path / "package").mkdir()
        path = tmp_path / "package" / "module.py"
        path.write_text(MODULE)
        spec = importlib.util.spec_from_file_location("measured_module", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @pytest.fixture
    def recorder(self, tmp_path: Path, module: ModuleType) -> Recorder:
        return Recorder(Lines(tmp_path / "package"), tool_id=coverage_matrix.MONITORING.PROFILER_ID)

    def test_of_each_case_of_a_test_are_put_together(self, recorder: Recorder, module: ModuleType) -> None:
        recorder.begin()
        try:
            for case in (0, 1):
                recorder.pytest_runtest_logstart()
                module.reached(case)
                recorder.pytest_runtest_logfinish(f"test_module.py::test_it[{case}]")
            recorder.pytest_runtest_logstart()
            module.reached(0)
            recorder.pytest_runtest_logfinish("test_module.py::test_other")
        finally:
            recorder.pytest_sessionfinish()

        places = {name: [recorder.lines.place(line) for line in sorted(lines)] for name, lines in recorder.tests.items()}
        assert places == {
            "test_module.py::test_it": [("package/module.py", line) for line in (3, 4, 5)],
            "test_module.py::test_other": [("package/module.py", line) for line in (3, 5)],
        }

    def test_of_forked_processes_count(self, recorder: Recorder, module: ModuleType) -> None:
        recorder.begin()
        try:
            recorder.pytest_runtest_logstart()
            pid = os.fork()
            if not pid:
                module.reached(1)
                os._exit(0)
            os.waitpid(pid, 0)
            recorder.pytest_runtest_logfinish("test_module.py::test_fork")
        finally:
            recorder.pytest_sessionfinish()

        [lines] = recorder.tests.values()
        assert [recorder.lines.place(line)[1] for line in sorted(lines)] == [3, 4]
