"""Services for callbacks in workers: set-up, teardown, worker info, random numbers, numerical libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, WorkerInfo, fn, get_worker_info, pipeline_def
from dali_like.engine.worker.thread_limits import find_libraries
from dali_like.errors import ArgumentError, WorkerStartError
from dali_like.types import SampleInfo
from tests.conftest import in_processes, wait_until

MakePipeline = Callable[..., Pipeline]


class Connected:
    """A source with a connection to open in each process. It leaves a file for each event."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connection: int | None = None

    def connect(self) -> None:
        self.connection = os.getpid()
        (self.folder / f"connected {os.getpid()}").touch()

    def disconnect(self) -> None:
        (self.folder / f"disconnected {self.connection}").touch()

    def __call__(self, info: SampleInfo) -> Any:
        assert self.connection == os.getpid()
        return np.int64(info.idx_in_epoch)


def notes(folder: Path, what: str) -> set[int]:
    return {int(name.split()[1]) for name in os.listdir(folder) if name.startswith(what)}


class TestSetUpAndTeardown:
    @in_processes
    def test_happen_once_in_each_process_that_calls_the_source(
        self, way: str, make_pipeline: MakePipeline, tmp_path: Path
    ) -> None:
        source = Connected(tmp_path)
        options = {"worker_setup": source.connect, "worker_teardown": source.disconnect}
        pipe = make_pipeline(source, way, source_options=options)

        batches = [pipe.run()[0].as_array().tolist() for _ in range(3)]
        if way == "serial":
            expected = {os.getpid()}
        else:
            wait_until(lambda: len(pipe.py_worker_pids) == 2, "both workers")
            expected = set(pipe.py_worker_pids)
        wait_until(lambda: notes(tmp_path, "connected") == expected, "their connections")
        assert notes(tmp_path, "disconnected") == set()
        pipe.close()

        assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert notes(tmp_path, "disconnected") == expected

    def test_that_fails_is_an_error_of_the_first_run(self, start_method: str, make_pipeline: MakePipeline) -> None:
        def setup() -> None:
            raise ConnectionError("nobody there")

        pipe = make_pipeline(lambda info: np.int64(0), start_method, source_options={"worker_setup": setup})

        with pytest.raises(WorkerStartError, match="nobody there") as caught:
            pipe.run()

        assert isinstance(caught.value.__cause__, ConnectionError)

    def test_an_exception_of_worker_setup_in_the_main_process_is_raised_by_run(self, make_pipeline: MakePipeline) -> None:
        def setup() -> None:
            raise ConnectionError("nobody there")

        pipe = make_pipeline(lambda info: np.int64(0), "serial", source_options={"worker_setup": setup})

        for _ in range(2):
            with pytest.raises(ConnectionError, match="nobody there"):
                pipe.run()

    def test_teardown_that_fails_in_the_main_process_leaves_a_closed_pipeline(self, make_pipeline: MakePipeline) -> None:
        def teardown() -> None:
            raise ConnectionError("lost")

        pipe = make_pipeline(lambda info: np.int64(0), "serial", source_options={"worker_teardown": teardown})
        pipe.run()

        with pytest.raises(ConnectionError, match="lost"):
            pipe.close()

        pipe.close()

    @pytest.mark.parametrize("name", ["worker_setup", "worker_teardown"])
    @pytest.mark.parametrize("value", [1, "connect", [print]])
    def test_must_be_callable(self, name: str, value: Any) -> None:
        @pipeline_def(batch_size=1)
        def pipeline() -> Any:
            return fn.external_source(source=lambda info: np.int64(0), batch=False, **{name: value})

        with pytest.raises(ArgumentError, match=name):
            pipeline()


class TestWorkerInfo:
    def test_get_worker_info_has_the_number_of_the_worker(self, start_method: str, make_pipeline: MakePipeline) -> None:
        def source(info: SampleInfo) -> Any:
            worker = get_worker_info()
            assert worker is not None
            return np.int64([worker.id, worker.num_workers])

        pipe = make_pipeline(source, start_method, batch_size=64, workers=3)

        seen = np.concatenate([pipe.run()[0].as_array() for _ in range(5)])

        assert set(seen[:, 0]) <= {0, 1, 2}
        assert set(seen[:, 1]) == {3}

    def test_is_none_in_the_main_process(self, make_pipeline: MakePipeline) -> None:
        def source(info: SampleInfo) -> Any:
            return np.bool_(get_worker_info() is None)

        assert make_pipeline(source, "serial").run()[0].as_array().all()
        assert get_worker_info() is None

    def test_is_a_value(self) -> None:
        assert WorkerInfo(1, 2) == WorkerInfo(id=1, num_workers=2)


def draw(info: SampleInfo) -> Any:
    rng = info.rng()
    return np.concatenate([rng.random(3), info.rng().random(1)])


def drawn(pipe: Pipeline, batches: int = 4) -> Any:
    return np.concatenate([pipe.run()[0].as_array() for _ in range(batches)])


class TestRandomNumbers:
    def test_are_the_same_however_samples_are_made(self, make_pipeline: MakePipeline) -> None:
        ways = [("serial", 1, 4), ("fork", 1, 4), ("fork", 3, 8), ("spawn", 2, 2)]

        one, *others = [
            drawn(make_pipeline(draw, way, workers=workers, batch_size=size, seed=7), 16 // size)
            for way, workers, size in ways
        ]

        assert all(np.array_equal(one, other) for other in others)
        assert np.array_equal(one[:, 0], one[:, 3])  # each call begins anew
        assert len(np.unique(one[:, :3])) == 16 * 3

    def test_depend_on_seed_source_and_epoch(self, make_pipeline: MakePipeline) -> None:
        first = make_pipeline(draw, "serial", seed=7)
        epoch = drawn(first)
        first.reset()

        assert not np.isin(drawn(first), epoch).any()
        assert not np.isin(drawn(make_pipeline(draw, "serial", seed=8)), epoch).any()
        assert not np.isin(drawn(make_pipeline(draw, "serial")), epoch).any()
        assert not np.isin(drawn(make_pipeline(draw, "serial", seed=-1)), epoch).any()

    def test_differ_between_sources_and_not_between_parallel_and_serial_ones(self) -> None:
        def outputs(parallel: bool) -> list[Any]:
            @pipeline_def(batch_size=8, py_num_workers=1, seed=3)
            def pipeline() -> Any:
                return [fn.external_source(source=draw, batch=False, parallel=parallel and i > 0) for i in range(2)]

            pipe = pipeline()
            made = [output.as_array().copy() for output in pipe.run()]
            pipe.close()
            return made

        first, second = outputs(parallel=False)

        assert not np.isin(second, first).any()
        assert np.array_equal(outputs(parallel=True), [first, second])

    def test_can_be_had_outside_of_a_pipeline(self) -> None:
        info = SampleInfo(5, 1, 2, 0)

        assert info.rng().random() == info.rng().random()
        assert info.rng().random() != SampleInfo(6, 2, 2, 0).rng().random()


@pytest.mark.parametrize("way", ["serial", "fork"])  # the fixture cannot be pickled
def test_random_numbers_are_not_those_of_a_pipeline_that_the_callback_runs(make_pipeline: MakePipeline, way: str) -> None:
    inner: list[Pipeline] = []

    def source(info: SampleInfo) -> Any:
        if not inner:
            inner.append(make_pipeline(draw, "serial", seed=1))
        inner[0].run()
        return draw(info)

    expected = drawn(make_pipeline(draw, "serial", seed=7))

    assert np.array_equal(drawn(make_pipeline(source, way, seed=7)), expected)


def test_numerical_libraries_are_looked_for_again_when_something_has_been_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_libraries()
    is_known = find_libraries() is found
    monkeypatch.setitem(sys.modules, "brings_a_library", ModuleType("brings_a_library"))

    assert is_known
    assert find_libraries() is not found
