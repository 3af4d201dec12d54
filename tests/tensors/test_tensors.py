"""Tensors and lists in host memory: their properties, and zero-copy exchange with other libraries."""

from __future__ import annotations

import copy
import ctypes
import pickle
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
    """Return four samples of shape (2, 3)."""
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


@pytest.mark.parametrize("dtype", [dtype for dtype in types.DALIDataType if 0 <= dtype < types.STRING])
def test_tensor_of_every_numeric_type(dtype: types.DALIDataType) -> None:
    array = np.zeros(3, types.to_numpy_type(dtype))

    assert TensorCPU(array).dtype is dtype
    assert TensorListCPU(array).dtype is dtype


def test_tensor_as_cpu_is_itself(array: NDArray[Any]) -> None:
    tensor = TensorCPU(array)

    assert tensor.as_cpu() is tensor


def views_of(tensor: TensorCPU) -> dict[str, NDArray[Any]]:
    """Convert a tensor to an array in every possible way."""
    return {
        "asarray": np.asarray(tensor),
        "array": np.array(tensor, copy=False),
        "array interface": np.asarray(_OnlyInterface(tensor)),
        "__array__": tensor.__array__(),
        "DLPack": np.from_dlpack(tensor),
    }


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


def test_texts_of_a_tensor() -> None:
    tensor = TensorCPU(np.array([[7, 8]], np.uint8), layout="HW")
    facts = "dtype=DALIDataType.UINT8,\n    layout=HW,\n    shape=[1, 2])"

    assert repr(tensor) == f"TensorCPU(\n    {facts}"
    assert str(tensor) == f"TensorCPU(\n    [[7 8]],\n    {facts}"


def test_layout_of_a_tensor_can_be_set(array: NDArray[Any]) -> None:
    tensor = TensorCPU(array)

    tensor.set_layout("NHW")
    assert tensor.layout() == tensor.get_property("layout") == "NHW"
    with pytest.raises(ArgumentError, match="'HW' cannot describe 3-dimensional"):
        tensor.set_layout("HW")
    tensor.set_layout(None)
    assert tensor.layout() == ""


@pytest.mark.parametrize(
    ("dim", "changes", "shape", "layout"),
    [
        (None, True, [2, 3], "BD"),
        (0, True, [2, 1, 3], "BCD"),
        (1, False, [1, 2, 1, 3], "ABCD"),
        (2, True, [1, 2, 3], "ABD"),
        (-2, True, [1, 2, 3], "ABD"),
        (-1, False, [1, 2, 1, 3], "ABCD"),
        (np.int64(0), True, [2, 1, 3], "BCD"),
    ],
)
def test_dimensions_of_extent_1_can_be_removed(dim: Any, changes: bool, shape: list[int], layout: str) -> None:
    array = np.arange(6).reshape(1, 2, 1, 3)
    tensor = TensorCPU(array, "ABCD")

    assert tensor.squeeze(dim) is changes

    assert tensor.shape() == shape
    assert tensor.layout() == layout
    assert np.shares_memory(np.asarray(tensor), array)


def test_squeeze_to_a_scalar() -> None:
    tensor = TensorCPU(np.zeros((1, 1)))

    assert tensor.squeeze()
    assert tensor.shape() == []
    assert not tensor.squeeze()


@pytest.mark.parametrize("dim", [2, -3])
def test_squeeze_of_a_dimension_that_is_not_there(dim: int) -> None:
    with pytest.raises(RuntimeError, match=f"axis {dim} is out of bound for a tensor with 2 dimensions"):
        TensorCPU(np.zeros((1, 1))).squeeze(dim)


@pytest.mark.parametrize("dtype", [types.INT32, np.int32, "int32"])
def test_elements_can_be_taken_for_others_of_their_size(
    dtype: Any, array: NDArray[Any], dense: TensorListCPU, ragged: TensorListCPU
) -> None:
    tensor = TensorCPU(array)

    tensor.reinterpret(dtype)
    dense.reinterpret(dtype)
    ragged.reinterpret(types.INT8)

    assert tensor.dtype is dense.dtype is types.INT32
    assert np.asarray(tensor).tolist() == dense.as_array().tolist() == array.view(np.int32).tolist()
    assert np.shares_memory(np.asarray(tensor), array)
    assert ragged.dtype is types.INT8
    assert ragged.at(1).dtype == np.int8


@pytest.mark.parametrize("dtype", [types.UINT8, types.FLOAT64])
def test_elements_cannot_be_taken_for_others_of_another_size(dtype: types.DALIDataType, dense: TensorListCPU) -> None:
    for tensors in (dense, dense[0]):
        with pytest.raises(RuntimeError, match="the sizes differ"):
            tensors.reinterpret(dtype)


def test_nothing_is_known_of_where_a_tensor_comes_from(array: NDArray[Any]) -> None:
    tensor = TensorCPU(array)

    assert tensor.source_info() == ""
    assert tensor.get_property("source_info") is None


def test_address_of_a_tensor_and_of_a_list(array: NDArray[Any], dense: TensorListCPU, ragged: TensorListCPU) -> None:
    assert TensorCPU(array).data_ptr() == dense.data_ptr() == array.ctypes.data
    assert dense[1].data_ptr() == array[1].ctypes.data
    assert ragged.data_ptr() == ragged.at(0).ctypes.data


@pytest.mark.parametrize("pointer", [lambda array: array.ctypes.data, lambda array: ctypes.c_void_p(array.ctypes.data)])
def test_elements_can_be_copied_to_an_address(
    pointer: Callable[[Any], Any], array: NDArray[Any], dense: TensorListCPU, ragged: TensorListCPU
) -> None:
    for tensors in (TensorCPU(array), dense, TensorListCPU(list(array)), TensorCPU(array.T.copy().T)):
        copy = np.full_like(array, -1)
        tensors.copy_to_external(pointer(copy))
        np.testing.assert_array_equal(copy, array)
    flat = np.zeros(21, np.uint8)
    ragged.copy_to_external(pointer(flat))
    assert flat.tolist() == [1] * 3 + [4] * 12 + [2] * 6


def test_a_null_pointer_or_another_type_is_not_an_address(dense: TensorListCPU) -> None:
    for tensors in (dense, dense[0]):
        for pointer in (0, ctypes.c_void_p(None)):
            with pytest.raises(ArgumentError, match="null pointer"):
                tensors.copy_to_external(pointer)
        with pytest.raises(TypeError):
            tensors.copy_to_external("0")  # type: ignore[arg-type]


# Pickling


@pytest.mark.parametrize("copy_of", [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy])
def test_tensors_and_lists_are_pickled_by_value(
    copy_of: Callable[[Any], Any], dense: TensorListCPU, ragged: TensorListCPU
) -> None:
    for original in (dense, ragged):
        tensors = copy_of(original)
        assert (tensors.layout(), tensors.dtype, tensors.shape()) == (original.layout(), original.dtype, original.shape())
        for i, sample in enumerate(original):
            np.testing.assert_array_equal(tensors.at(i), original.at(i), strict=True)
            assert not np.shares_memory(tensors.at(i), original.at(i))
            assert np.asarray(copy_of(sample)).tolist() == original.at(i).tolist()
            assert copy_of(sample).layout() == "HW"


def test_batches_of_a_pipeline_are_pickled_by_value(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: (np.array(info.idx_in_epoch), np.zeros(info.idx_in_batch)), way, num_outputs=2)

    dense, ragged = (pickle.loads(pickle.dumps(batch)) for batch in pipe.run())

    assert dense.as_array().tolist() == [0, 1, 2, 3]
    assert ragged.shape() == [(0,), (1,), (2,), (3,)]


def test_shallow_copies_share_memory(array: NDArray[Any], dense: TensorListCPU) -> None:
    assert np.shares_memory(copy.copy(dense).as_array(), array)
    assert np.shares_memory(np.asarray(copy.copy(dense[0])), array)


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
        with pytest.raises(IndexError, match=f"has no sample {index}: it has {len(batch)}"):
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


def test_repr_of_a_list_shows_its_properties(dense: TensorListCPU, ragged: TensorListCPU) -> None:
    assert repr(dense) == (
        'TensorListCPU(\n    dtype=DALIDataType.FLOAT,\n    layout="HW",\n    num_samples=4,\n'
        "    shape=[(2, 3), (2, 3), (2, 3), (2, 3)])"
    )
    assert repr(ragged).endswith("num_samples=3,\n    shape=[(1, 3), (4, 3), (2, 3)])")


def test_str_of_a_list_shows_its_samples_too(dense: TensorListCPU, ragged: TensorListCPU) -> None:
    assert "[18. 19. 20.]" in str(dense)
    assert "[[1 1 1]]\n\n    [[4 4 4]" in str(ragged)
    for tensors in (dense, ragged):
        assert str(tensors).endswith(repr(tensors).removeprefix("TensorListCPU("))


def test_texts_of_large_batches_are_short() -> None:
    dense = TensorListCPU(np.zeros((500, 100, 100)))
    ragged = TensorListCPU([np.zeros(2000 + i) for i in range(500)])

    for tensors in (dense, ragged):
        assert "..." in repr(tensors)
        assert len(repr(tensors)) < 200
        assert len(str(tensors)) < 1000
    assert "shape=[(2000,), (2001,), ..., (2498,), (2499,)]" in repr(ragged)


def test_layout_of_a_list_can_be_set(dense: TensorListCPU, ragged: TensorListCPU) -> None:
    for tensors in (dense, ragged):
        tensors.set_layout("XY")
        assert tensors.layout() == tensors[0].layout() == "XY"
        with pytest.raises(ArgumentError, match="'HWC' cannot describe 2-dimensional"):
            tensors.set_layout("HWC")
        tensors.set_layout(None)
        assert tensors.layout() == ""


def test_elements_of_a_list_as_a_tensor_of_another_shape(
    array: NDArray[Any], dense: TensorListCPU, ragged: TensorListCPU
) -> None:
    for shape in ([8, 3], (24,), [np.int64(2), 12]):
        tensor = dense.as_reshaped_tensor(shape)
        assert tensor.shape() == list(shape)
        assert tensor.layout() == ""
        assert np.shares_memory(np.asarray(tensor), array)
    assert dense.as_reshaped_tensor([4, 2, 3]).layout() == "NHW"
    assert np.asarray(ragged.as_reshaped_tensor([7, 3])).tolist() == [[1] * 3] + [[4] * 3] * 4 + [[2] * 3] * 2


@pytest.mark.parametrize("shape", [[5], [-1], [2, -12], []])
def test_shape_of_another_size(shape: list[int], dense: TensorListCPU) -> None:
    with pytest.raises(RuntimeError, match="the batch has 24 elements"):
        dense.as_reshaped_tensor(shape)


def test_one_tensor_as_all_samples() -> None:
    array = np.arange(3)

    batch = TensorListCPU.broadcast(TensorCPU(array, "X"), 4)

    assert batch.shape() == [(3,)] * 4
    assert batch.layout() == "X"
    assert all(np.shares_memory(batch.at(i), array) for i in range(4))


def test_list_of_a_list_shares_its_memory(array: NDArray[Any], dense: TensorListCPU) -> None:
    same, other = TensorListCPU(dense), TensorListCPU(dense, "XY")

    assert (same.layout(), other.layout()) == ("HW", "XY")
    assert np.shares_memory(same.as_array(), array)


def test_list_of_tensors_has_their_layout(array: NDArray[Any]) -> None:
    assert TensorListCPU([TensorCPU(sample, "HW") for sample in array]).layout() == "HW"


def test_list_of_a_tensor_of_another_library(array: NDArray[Any]) -> None:
    torch = pytest.importorskip("torch")

    batch = TensorListCPU(torch.from_numpy(array), "HW", is_pinned=False)

    assert np.shares_memory(batch.as_array(), array)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([np.zeros(2), np.zeros(2, np.int8)], "different data types; these have float64, int8"),
        ([np.zeros(2), np.zeros((2, 2))], "different numbers of dimensions; these have 1, 2"),
        ([TensorCPU(np.zeros(2), "H"), TensorCPU(np.zeros(2), "W")], "different layouts; these have H, W"),
    ],
)
def test_samples_that_are_no_batch(samples: list[Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        TensorListCPU(samples)


def test_scalar_that_is_no_batch() -> None:
    with pytest.raises(RuntimeError, match="0-dim"):
        TensorListCPU(np.array(3))


@pytest.mark.parametrize("index", [slice(1, 2), "1", 1.0, None])
def test_index_that_is_no_integer(index: Any, dense: TensorListCPU, ragged: TensorListCPU) -> None:
    for batch in (dense, ragged):
        with pytest.raises(TypeError):
            batch[index]


def test_list_can_let_go_of_its_samples(dense: TensorListCPU, ragged: TensorListCPU) -> None:
    for batch in (dense, ragged):
        batch.reset()
        assert len(batch) == 0
        assert batch.shape() == []
        assert batch.layout() == ""


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
    with pytest.raises(IndexError, match="has no sample 0: it has 0"):
        batch.at(0)


# The batches of a pipeline


def test_views_of_a_batch_are_writable_and_shared(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.full((2, 2), info.idx_in_batch, np.float32), way)
    pipe.run()

    (batch,) = pipe.run()
    np.asarray(batch)[0] = 10
    np.asarray(batch[1])[...] = 11
    batch.at(2)[...] = 12
    # In NumPy before 2.1, all arrays of `from_dlpack` are read-only.
    by_dlpack = np.from_dlpack if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else np.asarray
    by_dlpack(batch[3])[...] = 13

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
