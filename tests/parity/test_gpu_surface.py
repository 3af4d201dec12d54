"""Tensors and batches on a GPU have the names that DALI's have. Their results are compared where there is a GPU."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from nvidia.dali import backend as dali_backend
from nvidia.dali import fn as dali_fn
from nvidia.dali import pipeline_def as dali_pipeline_def
from nvidia.dali import tensors as dali_tensors

from dali_like import backend, fn, pipeline_def, tensors

pytestmark = pytest.mark.peers

#: Names of pybind11.
OF_THE_BINDING = {"_pybind11_conduit_v1_"}


def names_of(kind: type) -> set[str]:
    """The public names, and the protocols, of a class."""
    protocols = {"__cuda_array_interface__", "__dlpack__", "__dlpack_device__", "__len__", "__getitem__"}
    return {name for name in dir(kind) if not name.startswith("_") or name in protocols} - OF_THE_BINDING


@pytest.mark.parametrize("name", ["TensorGPU", "TensorListGPU"])
def test_classes_have_the_same_names(name: str) -> None:
    theirs, ours = getattr(dali_tensors, name), getattr(tensors, name)

    assert names_of(theirs) <= names_of(ours)
    assert getattr(backend, name) is ours
    assert getattr(dali_backend, name) is theirs


@pytest.mark.parametrize("name", ["TensorGPU", "TensorListGPU"])
def test_copies_to_an_address_take_the_same_arguments(name: str) -> None:
    arguments = inspect.signature(getattr(tensors, name).copy_to_external).parameters

    for argument in list(arguments)[1:]:
        assert argument in getattr(dali_tensors, name).copy_to_external.__doc__


@pytest.mark.parametrize("package", [(dali_pipeline_def, dali_fn), (pipeline_def, fn)], ids=["DALI", "dali_like"])
def test_nodes_move_between_devices_alike(package: tuple[Any, Any]) -> None:
    define, functions = package
    seen: list[Any] = []

    @define(batch_size=1, num_threads=1, device_id=None)
    def pipeline() -> Any:
        node = functions.external_source(name="x")
        moved = node.gpu()
        seen.extend([node.device, moved.device, moved.cpu().device, moved.gpu() is moved, moved.name == node.name])
        return node

    pipeline()
    assert seen == ["cpu", "gpu", "cpu", True, True]


@pytest.mark.parametrize("package", [(dali_pipeline_def, dali_fn), (pipeline_def, fn)], ids=["DALI", "dali_like"])
def test_a_gpu_that_is_not_there_is_an_error_of_the_same_kind_at_the_same_time(package: tuple[Any, Any]) -> None:
    define, functions = package

    @define(batch_size=1, num_threads=1, device_id=None)
    def pipeline() -> Any:
        return functions.external_source(lambda info: [0.0], batch=False).gpu()

    pipe = pipeline()
    with pytest.raises(RuntimeError, match="GPU"):
        pipe.build()
