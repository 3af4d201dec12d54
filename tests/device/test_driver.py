"""Detection of CUDA in this process, and the refusal to fork workers then. A stand-in replaces the driver."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from dali_like import Pipeline
from dali_like.device.driver import cuda_is_initialized, loaded_library
from dali_like.errors import CudaForkError

MakePipeline = Callable[..., Pipeline]

SUCCESS = 0
NOT_INITIALIZED = 3
SYSTEM_NOT_READY = 802


def driver_that_says(answer: int) -> Callable[[str], Any]:
    """A driver that the process has loaded."""

    def device_count(count: Any) -> int:
        assert isinstance(count._obj, ctypes.c_int)
        return answer

    libraries = {"libcuda.so.1": SimpleNamespace(cuDeviceGetCount=device_count)}
    return libraries.get


class NVMLError(Exception):
    pass


class NVML(ModuleType):
    """NVML's list of the processes on two GPUs.

    Attributes:
        is_on: between nvmlInit and nvmlShutdown.
    """

    NVMLError = NVMLError

    def __init__(self, processes: list[int], fails: str = "") -> None:
        super().__init__("pynvml")
        self.is_on = False
        self._processes = [[], processes]
        self._fails = fails

    def nvmlInit(self) -> None:  # noqa: N802  # NVML's name, as those below
        self._do("nvmlInit")
        self.is_on = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_on = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._processes)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> list[int]:  # noqa: N802
        return self._processes[index]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: list[int]) -> list[Any]:  # noqa: N802
        self._do("nvmlDeviceGetComputeRunningProcesses")
        return [SimpleNamespace(pid=pid) for pid in handle]

    def _do(self, name: str) -> None:
        if name == self._fails:
            raise NVMLError(name)


class TestCudaIsInitialized:
    def test_where_the_driver_answers(self) -> None:
        assert cuda_is_initialized(driver_that_says(SUCCESS))

    def test_not_where_the_driver_waits_to_be_initialized(self) -> None:
        assert not cuda_is_initialized(driver_that_says(NOT_INITIALIZED))

    def test_not_where_no_driver_is_loaded(self) -> None:
        assert not cuda_is_initialized(lambda name: None)
        assert not cuda_is_initialized()

    @pytest.mark.parametrize(
        ("nvml", "expected"),
        [
            (NVML([1, os.getpid()]), True),
            (NVML([1, 2]), False),
            (NVML([os.getpid()], fails="nvmlInit"), False),
            (NVML([os.getpid()], fails="nvmlDeviceGetComputeRunningProcesses"), False),
            (None, False),
        ],
        ids=["on a GPU", "not on a GPU", "NVML does not work", "NVML does not tell", "no NVML"],
    )
    def test_where_nvml_says_so_and_the_driver_nothing(
        self, nvml: NVML | None, expected: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", nvml)

        assert cuda_is_initialized(driver_that_says(SYSTEM_NOT_READY)) is expected

        assert nvml is None or not nvml.is_on

    @pytest.mark.parametrize("answer", [SUCCESS, NOT_INITIALIZED])
    def test_does_not_ask_nvml_where_the_driver_knows(self, answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = answer == SUCCESS
        monkeypatch.setitem(sys.modules, "pynvml", NVML([] if expected else [os.getpid()]))

        assert cuda_is_initialized(driver_that_says(answer)) is expected


class TestLoadedLibrary:
    def test_is_found(self) -> None:
        library = loaded_library("libc.so.6")

        assert library.getpid() == os.getpid()

    def test_is_not_loaded_by_being_looked_for(self) -> None:
        name = "libBrokenLocale.so.1"  # a part of glibc that no program loads

        assert loaded_library(name) is None
        assert name not in Path("/proc/self/maps").read_text()

        try:
            ctypes.CDLL(name)
        except OSError:
            pytest.skip(f"there is no {name}, so it could not have been loaded anyway")
        assert loaded_library(name) is not None

    def test_may_not_exist(self) -> None:
        assert loaded_library("libnobody.so.1") is None


class TestStartingWorkers:
    @pytest.fixture(autouse=True)
    def _cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dali_like.pipeline.runtime.cuda_is_initialized", lambda: True)

    @pytest.mark.parametrize("call", [Pipeline.start_py_workers, Pipeline.build, Pipeline.run])
    def test_is_refused_before_the_fork(self, call: Callable[[Pipeline], Any], make_pipeline: MakePipeline) -> None:
        children = psutil.Process().children()
        pipe = make_pipeline(lambda info: np.int64(1), "fork")

        with pytest.raises(CudaForkError, match=r"start_py_workers\(\).* before .*, or .*py_start_method='spawn'") as info:
            call(pipe)

        assert isinstance(info.value, RuntimeError)
        assert psutil.Process().children() == children

    @pytest.mark.parametrize("way", ["serial", "spawn"])
    def test_is_allowed_where_nothing_is_forked(self, way: str, make_pipeline: MakePipeline) -> None:
        assert make_pipeline(lambda info: np.int64(1), way).run()[0].as_array().sum() == 4

    def test_is_allowed_before_cuda_is_used(self, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
        pipe = make_pipeline(lambda info: np.int64(1), "fork")
        with monkeypatch.context() as context:
            context.setattr("dali_like.pipeline.runtime.cuda_is_initialized", lambda: False)
            pipe.start_py_workers()

        assert pipe.run()[0].as_array().sum() == 4
