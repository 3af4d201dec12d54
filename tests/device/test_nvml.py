"""Workers and threads bound to the CPUs near the GPU; a stand-in replaces NVML."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.device import opening
from dali_like.device.nvml import bound_to, cpus_near
from dali_like.errors import ArgumentError, DeviceError, MissingExtraError
from dali_like.pipeline import runtime as engine

MakePipeline = Callable[..., Pipeline]
FIRST = min(os.sched_getaffinity(0))


class NVMLError(Exception):
    pass


def nvml(words: dict[int, list[int]], error: Exception | None = None) -> Any:
    """pynvml on a machine with one GPU per entry; an entry holds the words of its CPU mask. Each GPU has two parts."""
    state = SimpleNamespace(is_on=False)
    parts = {f"MIG-{gpu}-{part}": gpu for gpu in words for part in range(2)}

    def affinity(handle: int, num_words: int) -> list[int]:
        assert state.is_on
        if error is not None:
            raise error
        return (words[handle] + [0] * num_words)[:num_words]

    def by_uuid(uuid: str) -> str:
        if uuid not in parts:
            raise NVMLError("Not Found")
        return uuid

    return SimpleNamespace(
        NVMLError=NVMLError,
        state=state,
        nvmlInit=lambda: setattr(state, "is_on", True),
        nvmlShutdown=lambda: setattr(state, "is_on", False),
        nvmlDeviceGetCount=lambda: len(words),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}abc",
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle=lambda part: parts[part],
        nvmlDeviceGetCpuAffinity=affinity,
    )


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    def put(module: Any) -> Any:
        monkeypatch.setitem(sys.modules, "pynvml", module)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return module

    return put


def test_cpus_near_a_gpu_are_those_that_nvml_names(install: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = install(nvml({0: [0b1010], 1: [0, 0b1]}))
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(128)))

    assert cpus_near(0) == {1, 3}
    assert cpus_near(1) == {64}
    assert not module.state.is_on


def test_only_allowed_cpus_are_named_and_all_of_them_if_none_is_near(
    install: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(nvml({0: [0b1010], 1: [0b10000]}))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})

    assert cpus_near(0) == {1}
    assert cpus_near(1) == {0, 1, 2}


@pytest.mark.parametrize(("visible", "expected"), [("1,0", {5}), ("GPU-1", {5}), ("0", {4}), ("MIG-1-1", {5})])
def test_numbers_are_those_of_visible_gpus(
    visible: str, expected: set[int], install: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(nvml({0: [1 << 4], 1: [1 << 5]}))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))

    assert cpus_near(0) == expected


def test_errors_name_the_argument_and_the_gpu(install: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    install(nvml({0: [1]}, NVMLError("Not Supported")))
    with pytest.raises(DeviceError, match=r"set_affinity=True.*GPU 0 \(Not Supported\)"):
        cpus_near(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7")
    with pytest.raises(DeviceError, match="no GPU 'GPU-7'"):
        cpus_near(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-7-0")
    with pytest.raises(DeviceError, match=r"GPU 0 \(Not Found\)"):
        cpus_near(0)


def test_without_nvml_the_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingExtraError, match=r"set_affinity=True needs pynvml.*'nvidia-ml-py>="):
        cpus_near(0)


def test_binding_is_undone() -> None:
    before = os.sched_getaffinity(0)
    with bound_to({FIRST}):
        assert os.sched_getaffinity(0) == {FIRST}
    assert os.sched_getaffinity(0) == before
    with bound_to(None):
        assert os.sched_getaffinity(0) == before


def pin_to_first(monkeypatch: pytest.MonkeyPatch, count: int = 1) -> None:
    monkeypatch.setattr(engine, "accelerator_is_available", lambda: count > 0)
    monkeypatch.setattr(opening, "count_accelerators", lambda: count)
    monkeypatch.setattr(engine, "cpus_near", lambda device_id: {FIRST})


def affinity(info: Any) -> Any:
    return np.array(sorted(os.sched_getaffinity(0)))


@pytest.mark.skipif(os.cpu_count() == 1, reason="there is one CPU, to which all are bound")
def test_workers_are_bound_and_the_main_process_is_not(
    start_method: str, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin_to_first(monkeypatch)
    before = os.sched_getaffinity(0)

    pipe = make_pipeline(affinity, start_method, set_affinity=True, device_id=0)

    assert pipe.run()[0].as_array().tolist() == [[FIRST]] * 4
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(os.cpu_count() == 1, reason="there is one CPU, to which all are bound")
def test_threads_of_operators_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pin_to_first(monkeypatch)

    @pipeline_def(batch_size=2, num_threads=2, set_affinity=True, device_id=0)
    def pipeline() -> Any:
        return fn.python_function(
            fn.external_source(lambda info: np.array(info.idx_in_epoch), batch=False), function=affinity
        )

    with pipeline() as pipe:
        assert pipe.run()[0].as_array().tolist() == [[FIRST]] * 2


@pytest.mark.parametrize("options", [{"device_id": 0}, {"set_affinity": True}])
def test_nothing_is_bound_without_a_gpu_and_without_asking(
    options: dict[str, Any], make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin_to_first(monkeypatch)

    pipe = make_pipeline(affinity, "fork", **options)

    assert pipe.run()[0].as_array().tolist() == [sorted(os.sched_getaffinity(0))] * 4


def test_set_affinity_is_without_effect_where_there_is_no_gpu(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin_to_first(monkeypatch, 0)

    pipe = make_pipeline(affinity, "fork", set_affinity=True, device_id=0)

    assert pipe.run()[0].as_array().tolist() == [sorted(os.sched_getaffinity(0))] * 4


def test_the_number_of_the_gpu_is_checked(make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pin_to_first(monkeypatch)

    pipe = make_pipeline(affinity, "fork", set_affinity=True, device_id=1)

    with pytest.raises(ArgumentError, match="device_id=1: this process sees one GPU, number 0"):
        pipe.build()
