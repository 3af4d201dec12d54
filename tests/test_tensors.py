"""Tensors and lists of them: what they say of themselves, and that nothing is copied on the way to other libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, types
from dali_like.errors import ArgumentError, RaggedError
from dali_like.tensors import TensorCPU, TensorListCPU

MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def array() -> NDArray[Any]:
    """Four samples of shape (2, 3)."""
    return np.arange(24, dtype=np.float32).reshape(4, 2, 3)


@pytest.fixture
def dense(array: NDArray[Any]) -> TensorListCPU:
    return TensorListCPU(array, layout="HW")


@pytest.fixture
def ragged() -> TensorListCPU:
    return TensorListCPU([np.full((height, 3), height, np.uint8) for height in (1, 4, 2)], layout="HW")


# One tensor


def test_tensor_tells_its_properties(array: NDArray[Any]) -> None:
    tensor = TensorCPU(array, layout="NHW")

    assert tensor.shape() == [4, 2, 3]
    assert tensor.dtype is types.FLOAT
    assert tensor.ndim() == 3
    assert tensor.layout() == "NHW"


def test_tensor_without_layout(array: NDArray[Any]) -> None:
    assert TensorCPU(array).layout() == ""


@pytest.mark.parametrize("dtype", types.DALIDataType)
def test_tensor_of_every_data_type(dtype: types.DALIDataType) -> None:
    array = np.zeros(3, types.to_numpy_type(dtype))

    assert TensorCPU(array).dtype is dtype
    assert TensorListCPU(array).dtype is dtype


def test_tensor_as_cpu_is_itself(array: NDArray[Any]) -> None:
    tensor = TensorCPU(array)

    assert tensor.as_cpu() is tensor


def views_of(tensor: TensorCPU) -> dict[str, NDArray[Any]]:
    """The ways from a tensor to an array."""
    views = {
        "asarray": np.asarray(tensor),
        "array": np.array(tensor, copy=False),
        "array interface": np.asarray(_OnlyInterface(tensor)),
        "__array__": tensor.__array__(),
        "DLPack": np.from_dlpack(tensor),
    }
    if sys.version_info >= (3, 12):
        views["buffer"] = np.frombuffer(tensor, np.float32).reshape(tensor.shape())
    return views


class _OnlyInterface:
    def __init__(self, tensor: TensorCPU) -> None:
        self.tensor = tensor
        self.__array_interface__ = tensor.__array_interface__


@pytest.mark.parametrize("way_out", views_of(TensorCPU(np.zeros(1, np.float32))))
def test_tensor_shares_its_memory(way_out: str, array: NDArray[Any]) -> None:
    tensor = TensorCPU(array)

    view = views_of(tensor)[way_out]

    assert np.shares_memory(view, array)
    np.testing.assert_array_equal(view, array, strict=True)


def test_tensor_can_be_written_to(array: NDArray[Any]) -> None:
    np.asarray(TensorCPU(array))[0, 0, 0] = 99

    assert array[0, 0, 0] == 99


def test_tensor_converted_is_a_copy(array: NDArray[Any]) -> None:
    tensor = TensorCPU(array)

    converted = np.asarray(tensor, np.float64)

    assert converted.dtype == np.float64
    np.testing.assert_array_equal(converted, array)
    assert not np.shares_memory(np.array(tensor), array)


def test_tensor_of_another_object_shares_its_memory(array: NDArray[Any]) -> None:
    assert np.shares_memory(np.asarray(TensorCPU(TensorCPU(array))), array)


def test_torch_views_of_tensors(array: NDArray[Any]) -> None:
    torch = pytest.importorskip("torch")

    torch.from_dlpack(TensorCPU(array))[1, 1, 1] = 77
    torch.as_tensor(np.asarray(TensorCPU(array)))[1, 1, 2] = 78

    assert array[1, 1].tolist() == [9, 77, 78]


@pytest.mark.parametrize("layout", ["H", "HWC", "NHWC"])
def test_layout_of_another_number_of_dimensions_is_refused(layout: str) -> None:
    with pytest.raises(ArgumentError, match=f"'{layout}' cannot describe 2-dimensional"):
        TensorCPU(np.zeros((2, 3)), layout)
    with pytest.raises(ArgumentError, match=f"'{layout}' cannot describe 2-dimensional"):
        TensorListCPU(np.zeros((4, 2, 3)), layout)
    with pytest.raises(ArgumentError, match=f"'{layout}' cannot describe 2-dimensional"):
        TensorListCPU([np.zeros((2, 3)), np.zeros((1, 3))], layout)


@pytest.mark.parametrize("data", [np.zeros(2, complex), np.array(["text"]), np.array([None]), np.zeros(2, "M8[s]")])
def test_tensor_of_an_unsupported_dtype_is_refused(data: NDArray[Any]) -> None:
    with pytest.raises(ArgumentError, match="not a data type of tensors"):
        TensorCPU(data)


def test_repr_of_a_tensor_shows_data_and_properties() -> None:
    text = repr(TensorCPU(np.array([[7, 8]], np.uint8), layout="HW"))

    for part in ("TensorCPU", "[[7, 8]]", "UINT8", "'HW'", "[1, 2]"):
        assert part in text


# A dense list


def test_dense_list_tells_its_properties(dense: TensorListCPU) -> None:
    assert len(dense) == 4
    assert dense.shape() == [(2, 3)] * 4
    assert dense.dtype is types.FLOAT
    assert dense.ndim() == 2
    assert dense.layout() == "HW"
    assert dense.is_dense_tensor()


def test_dense_list_is_one_array(dense: TensorListCPU, array: NDArray[Any]) -> None:
    assert dense.as_array() is array
    assert np.shares_memory(np.asarray(dense), array)


def test_dense_list_as_tensor_has_the_batch_in_its_layout(dense: TensorListCPU, array: NDArray[Any]) -> None:
    tensor = dense.as_tensor()

    assert tensor.shape() == [4, 2, 3]
    assert tensor.layout() == "NHW"
    assert np.shares_memory(np.asarray(tensor), array)


def test_dense_list_without_layout_makes_a_tensor_without(array: NDArray[Any]) -> None:
    assert TensorListCPU(array).as_tensor().layout() == ""


@pytest.mark.parametrize("index", [0, 3, -1, -4])
def test_samples_are_views(index: int, dense: TensorListCPU, array: NDArray[Any]) -> None:
    tensor = dense[index]

    assert isinstance(tensor, TensorCPU)
    assert tensor.layout() == "HW"
    assert np.shares_memory(np.asarray(tensor), array[index])
    assert np.shares_memory(dense.at(index), array[index])
    np.testing.assert_array_equal(dense.at(index), array[index], strict=True)


@pytest.mark.parametrize("index", [4, -5, 100])
def test_index_out_of_range(index: int, dense: TensorListCPU, ragged: TensorListCPU) -> None:
    for batch in (dense, ragged):
        with pytest.raises(IndexError, match=rf"sample {index} of a batch of {len(batch)}"):
            batch.at(index)
        with pytest.raises(IndexError):
            batch[index]


def test_iteration_gives_the_samples_in_order(dense: TensorListCPU, ragged: TensorListCPU) -> None:
    for batch in (dense, ragged):
        tensors = list(batch)
        assert all(isinstance(tensor, TensorCPU) for tensor in tensors)
        assert [tensor.shape() for tensor in tensors] == [list(shape) for shape in batch.shape()]
        assert all(np.shares_memory(np.asarray(tensor), batch.at(i)) for i, tensor in enumerate(tensors))


def test_list_as_cpu_is_itself(dense: TensorListCPU) -> None:
    assert dense.as_cpu() is dense


@pytest.mark.parametrize("labels", [np.arange(3, dtype=np.int32), [np.array(i, np.int32) for i in range(3)]])
def test_samples_without_dimensions_are_arrays_that_share_memory(labels: Any) -> None:
    batch = TensorListCPU(labels)

    sample = batch.at(1)
    sample[...] = 50
    np.asarray(batch[2])[...] = 60

    assert isinstance(sample, np.ndarray)
    assert sample.shape == ()
    assert batch.ndim() == 0
    assert batch.shape() == [()] * 3
    assert batch.as_array().tolist() == [0, 50, 60]


def test_list_of_tensors_and_arrays_takes_views(array: NDArray[Any]) -> None:
    batch = TensorListCPU([TensorCPU(array[0]), array[1]])

    assert np.shares_memory(batch.at(0), array)
    assert np.shares_memory(batch.at(1), array)


def test_scattered_samples_of_one_shape_are_copied_together_once() -> None:
    batch = TensorListCPU([np.full((2, 2), i) for i in range(3)])

    array = batch.as_array()

    assert array.tolist() == [[[i, i], [i, i]] for i in range(3)]
    assert batch.as_array() is array
    assert np.shares_memory(batch.at(1), array)
    assert np.shares_memory(np.asarray(batch[2]), array)


def test_list_converted_is_a_copy(dense: TensorListCPU, array: NDArray[Any]) -> None:
    assert np.asarray(dense, np.int64).tolist() == array.astype(np.int64).tolist()
    assert not np.shares_memory(np.array(dense), array)


def test_repr_of_a_list_shows_samples_and_properties(dense: TensorListCPU, ragged: TensorListCPU) -> None:
    for part in ("TensorListCPU", "[18., 19., 20.]", "FLOAT", "'HW'", "num_samples=4", "(2, 3)"):
        assert part in repr(dense)
    for part in ("[4, 4, 4]", "UINT8", "num_samples=3", "(1, 3)", "(4, 3)"):
        assert part in repr(ragged)


# A ragged list


def test_ragged_list_tells_its_properties(ragged: TensorListCPU) -> None:
    assert len(ragged) == 3
    assert ragged.shape() == [(1, 3), (4, 3), (2, 3)]
    assert ragged.dtype is types.UINT8
    assert ragged.ndim() == 2
    assert not ragged.is_dense_tensor()


def test_ragged_samples_are_views() -> None:
    samples = [np.zeros(i) for i in range(1, 4)]

    batch = TensorListCPU(samples)

    assert all(np.shares_memory(batch.at(i), sample) for i, sample in enumerate(samples))
    assert np.shares_memory(np.asarray(batch[-1]), samples[-1])


@pytest.mark.parametrize("call", [TensorListCPU.as_array, TensorListCPU.as_tensor, np.asarray])
def test_ragged_list_is_not_one_array(call: Callable[[TensorListCPU], Any], ragged: TensorListCPU) -> None:
    with pytest.raises(RaggedError, match=r"3 different ones, from \(1, 3\) to \(4, 3\)"):
        call(ragged)


# An empty list


@pytest.mark.parametrize("data", [[], np.zeros((0, 2, 3), np.float32)])
def test_empty_list(data: Any) -> None:
    batch = TensorListCPU(data, layout="HW")

    assert len(batch) == 0
    assert list(batch) == []
    assert batch.shape() == []
    assert batch.is_dense_tensor()
    assert len(batch.as_array()) == 0
    assert "num_samples=0" in repr(batch)
    with pytest.raises(IndexError, match="batch of 0"):
        batch.at(0)


# The batches of a pipeline


def test_views_of_a_batch_are_writable_and_shared(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.full((2, 2), info.idx_in_batch, np.float32), way)
    pipe.run()

    (batch,) = pipe.run()
    np.asarray(batch)[0] = 10
    np.asarray(batch[1])[...] = 11
    batch.at(2)[...] = 12
    np.from_dlpack(batch[3])[...] = 13

    assert batch.as_array()[:, 0, 0].tolist() == [10, 11, 12, 13]


def test_samples_of_a_ragged_batch_are_writable_and_shared(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(info.idx_in_batch + 1), way)

    (batch,) = pipe.run()
    for i in range(4):
        batch.at(i)[...] = i
        np.asarray(batch[i])[0] += 100

    assert [batch.at(i).tolist() for i in range(4)] == [[100], [101, 1], [102, 2, 2], [103, 3, 3, 3]]


@pytest.mark.parametrize("iteration", [0, 2])
def test_labels_of_a_batch_are_arrays_that_share_its_memory(iteration: int, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.int32(info.idx_in_batch), way)
    for _ in range(iteration):
        pipe.run()

    (batch,) = pipe.run()
    batch.at(1)[...] = 50
    np.asarray(batch[2])[...] = 60

    assert batch.as_array().tolist() == [0, 50, 60, 3]


def test_layouts_reach_the_batches(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(
        lambda info: (np.zeros((4, 5, 3)), np.zeros(2), np.zeros((2, 2))),
        way,
        num_outputs=3,
        source_options={"layout": ["HWC", "X"]},
    )

    for _ in range(2):
        outputs = pipe.run()
        assert [batch.layout() for batch in outputs] == ["HWC", "X", ""]
        assert [batch[0].layout() for batch in outputs] == ["HWC", "X", ""]
        assert outputs[0].as_tensor().layout() == "NHWC"
