"""Detection of GPUs. Stand-ins replace the driver and NVML."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dali_like.device.accelerator import accelerator_is_available, count_is_known, found_library
from dali_like.device.driver import cuda_is_initialized

SUCCESS = 0
FAILURE = 3


def driver(count: int, answer: int = SUCCESS) -> Callable[[str], Any]:
    """A driver that the process has loaded."""
    return {"libcuda.so.1": SimpleNamespace(cuDeviceGetCount=_counting(count, answer))}.get


class NVML:
    """NVML on a machine with `count` GPUs.

    Attributes:
        is_on: between nvmlInit_v2 and nvmlShutdown.
        asked: how often the library was looked up.
    """

    def __init__(self, count: int, answer: int = SUCCESS, starts: int = SUCCESS) -> None:
        self.is_on = False
        self.asked = 0
        self._starts = starts
        self.nvmlDeviceGetCount_v2 = _counting(count, answer)

    def nvmlInit_v2(self) -> int:  # noqa: N802  # NVML's name, as below
        self.is_on = self._starts == SUCCESS
        return self._starts

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_on = False

    def find(self, name: str) -> NVML:
        assert name == "libnvidia-ml.so.1"
        self.asked += 1
        return self


def _counting(count: int, answer: int) -> Callable[[Any], int]:
    def get_count(result: Any) -> int:
        result._obj.value = count
        return answer

    return get_count


def nobody(name: str) -> None:
    """Find no library."""


@pytest.fixture(autouse=True)
def _all_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize("count", [0, 2])
def test_the_driver_knows_where_cuda_is_in_use(count: int) -> None:
    nvml = NVML(1)

    assert accelerator_is_available(driver(count), nvml.find) is (count > 0)
    assert not nvml.asked


@pytest.mark.parametrize("loaded", [nobody, driver(1, FAILURE)], ids=["no driver", "a driver that waits"])
@pytest.mark.parametrize(
    ("nvml", "expected"),
    [(NVML(2), True), (NVML(0), False), (NVML(1, answer=FAILURE), False), (NVML(1, starts=FAILURE), False)],
    ids=["GPUs", "no GPU", "does not tell", "does not start"],
)
def test_elsewhere_nvml_is_asked(loaded: Callable[[str], Any], nvml: NVML, expected: bool) -> None:
    assert accelerator_is_available(loaded, nvml.find) is expected
    assert not nvml.is_on


def test_without_cupy_and_a_gpu_there_is_no_accelerator() -> None:
    assert not accelerator_is_available(nobody, lambda name: None)


@pytest.mark.parametrize(
    ("named", "expected"), [("0", True), ("1,0", True), ("GPU-1234", True), ("", False), ("-1", False), (" -1,0", False)]
)
def test_all_may_be_hidden(named: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)

    assert accelerator_is_available(nobody, NVML(1).find) is expected


@pytest.mark.parametrize(
    ("libraries", "is_known"),
    [({"libcuda.so.1"}, False), ({"libcuda.so.1", "libnvidia-ml.so.1"}, True), ({"libnvidia-ml.so.1"}, True), (set(), True)],
)
def test_a_driver_without_nvml_leaves_the_number_of_gpus_unknown(libraries: set[str], is_known: bool) -> None:
    assert count_is_known(lambda name: name if name in libraries else None) is is_known


def test_nvml_is_asked_once() -> None:
    nvml = NVML(1)
    find = nvml.find

    assert [accelerator_is_available(nobody, find) for _ in range(3)] == [True] * 3
    assert nvml.asked == 1


def test_looking_for_one_does_not_initialise_cuda() -> None:
    before = cuda_is_initialized()

    accelerator_is_available()

    assert cuda_is_initialized() == before


def test_libraries_are_loaded() -> None:
    assert found_library("libc.so.6").getpid() > 0
    assert found_library("libnobody.so.1") is None
