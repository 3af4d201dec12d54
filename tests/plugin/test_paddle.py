"""Iterators that yield tensors of PaddlePaddle. Where it is not installed, a stand-in has its place."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.errors import IteratorArgumentError, MissingExtraError, OutputMapError, RaggedError
from dali_like.plugin import LastBatchPolicy
from dali_like.plugin import paddle as plugin
from dali_like.tensors import TensorCPU, TensorListCPU
from tests.plugin import paddle_stand_in

IS_INSTALLED = importlib.util.find_spec("paddle") is not None


@pytest.fixture(autouse=True)
def core(monkeypatch: pytest.MonkeyPatch) -> Any:
    if not IS_INSTALLED:
        monkeypatch.setitem(sys.modules, "paddle", paddle_stand_in.module())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of missing compilers, in Paddle 3.3
        import paddle

    return paddle.framework.core


def pipeline(samples: Callable[[int], Any], length: int = 5, batch_size: int = 2, **options: Any) -> Pipeline:
    """Return a pipeline of the samples 0 to `length` - 1, and their numbers."""

    def source(info: Any) -> Any:
        if info.idx_in_epoch >= length:
            raise StopIteration
        return samples(info.idx_in_epoch), np.int64([info.idx_in_epoch])

    @pipeline_def(batch_size=batch_size, num_threads=1, device_id=None, **options)
    def define() -> Any:
        return fn.external_source(source, num_outputs=2, batch=False, parallel="py_num_workers" in options)

    return define()


def lengths_of(tensor: Any) -> list[list[int]]:
    return [np.diff(offsets).tolist() for offsets in tensor.lod()]


def rows(tensor: Any) -> list[Any]:
    return np.array(tensor).tolist()


def test_dense_outputs_are_tensors_of_paddle_with_the_type_of_the_output(core: Any) -> None:
    with pipeline(lambda i: np.full((2, 3), i, np.float32)) as pipe:
        ((batch,), *_) = plugin.DALIGenericIterator(pipe, ["data", "label"])

    assert isinstance(batch["data"], core.DenseTensor)
    assert list(batch["data"].shape()) == [2, 2, 3]
    assert np.array(batch["data"]).dtype == np.float32
    assert rows(batch["label"]) == [[0], [1]]
    assert lengths_of(batch["data"]) == []


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64"])
def test_each_type_of_paddle(dtype: str) -> None:
    with pipeline(lambda i: np.array([i, 1], dtype)) as pipe:
        ((batch,), *_) = plugin.DALIGenericIterator(pipe, ["data", "label"])

    assert np.array(batch["data"]).dtype == dtype
    assert rows(batch["data"]) == np.array([[0, 1], [1, 1]], dtype).tolist()
    assert plugin.dtype_map[TensorCPU(np.zeros(1, dtype)).dtype] == plugin.to_paddle_type(TensorCPU(np.zeros(1, dtype)))


def test_types_that_paddle_lacks_name_the_cast() -> None:
    with (
        pipeline(lambda i: np.uint32([i])) as pipe,
        pytest.raises(IteratorArgumentError, match=r"no tensors of UINT32: use fn\.cast"),
    ):
        next(plugin.DALIGenericIterator(pipe, ["data", "label"]))


def test_a_tensor_keeps_its_batch() -> None:
    with pipeline(lambda i: np.full(1000, i, np.int32), length=40, py_num_workers=1) as pipe:
        kept = [batch["data"] for (batch,) in plugin.DALIGenericIterator(pipe, ["data", "label"])]

    assert [np.array(tensor)[:, -1].tolist() for tensor in kept] == [[i, i + 1] for i in range(0, 40, 2)]


def test_a_level_of_detail_concatenates_samples_of_different_lengths() -> None:
    with pipeline(lambda i: np.full((i, 2), i, np.float32), length=6) as pipe:
        batches = [batch for (batch,) in plugin.DALIGenericIterator(pipe, [("data", 1), "label"])]

    assert rows(batches[1]["data"]) == [[2.0, 2.0]] * 2 + [[3.0, 3.0]] * 3
    assert [lengths_of(batch["data"]) for batch in batches] == [[[0, 1]], [[2, 3]], [[4, 5]]]


def test_two_levels_of_detail() -> None:
    with pipeline(lambda i: np.arange((i + 1) * 2 * (i + 1), dtype=np.int64).reshape(i + 1, 2 * (i + 1), 1)) as pipe:
        ((batch,), *_) = plugin.DALIGenericIterator(pipe, [("data", 2), "label"])

    assert lengths_of(batch["data"]) == [[1, 2], [2, 4, 4]]
    assert rows(batch["data"]) == [[i] for i in (*range(2), *range(8))]


@pytest.mark.parametrize(("policy", "lengths"), [(LastBatchPolicy.FILL, [2, 3]), (LastBatchPolicy.PARTIAL, [2])])
def test_the_last_batch_follows_the_policy(policy: LastBatchPolicy, lengths: list[int]) -> None:
    with pipeline(lambda i: np.full((i % 4 + 2, 2), i), length=100) as pipe:
        iterator = plugin.DALIGenericIterator(pipe, [("data", 1), "label"], size=5, last_batch_policy=policy)
        *_, (last,) = iterator

    assert lengths_of(last["data"]) == [lengths]
    assert len(rows(last["data"])) == sum(lengths)
    assert rows(last["label"]) == [[4], [5]][: len(lengths)]


def test_classification_has_the_names_data_and_label() -> None:
    with pipeline(lambda i: np.uint8([i])) as pipe:
        batches = [batch for (batch,) in plugin.DALIClassificationIterator(pipe, auto_reset=True)]

    assert (
        [rows(batch["data"]) for batch in batches] == [rows(batch["label"]) for batch in batches] == [[[0], [1]], [[2], [3]]]
    )


def test_samples_of_different_shapes_name_the_level_of_detail() -> None:
    with (
        pipeline(lambda i: np.zeros((i + 1, 2))) as pipe,
        pytest.raises(RaggedError, match=r"shapes, such as \(1, 2\) and \(2, 2\).*level of detail: \('data', 2\)"),
    ):
        next(plugin.DALIGenericIterator(pipe, ["data", "label"]))


def test_a_level_of_detail_above_the_dimensions_is_an_error() -> None:
    with (
        pipeline(lambda i: np.zeros(2)) as pipe,
        pytest.raises(IteratorArgumentError, match=r"output 'data' have 1 dimensions, fewer than its level of detail 2"),
    ):
        next(plugin.DALIGenericIterator(pipe, [("data", 2), "label"]))


@pytest.mark.parametrize("pair", [("data", -1), ("data", True), ("data", "1"), ("data",)])
def test_wrong_levels_of_detail(pair: Any) -> None:
    with pipeline(lambda i: np.zeros(2)) as pipe, pytest.raises(IteratorArgumentError, match="pairs of a name and a level"):
        plugin.DALIGenericIterator(pipe, [pair, "label"])


def test_names_of_outputs_differ() -> None:
    with pipeline(lambda i: np.zeros(2)) as pipe, pytest.raises(OutputMapError, match="different name"):
        plugin.DALIGenericIterator(pipe, [("data", 1), "data"])


def test_lengths_of_nested_sequences() -> None:
    batch = TensorListCPU([np.zeros((1, 2, 5)), np.zeros((2, 3, 5))])

    assert plugin.recursive_length(batch, 3) == [[2], [1, 2], [2, 3, 3]]
    assert plugin.recursive_length(np.zeros((2, 3, 5)), 2) == plugin.recursive_length((2, 3, 5), 2) == [[2], [3, 3]]
    assert plugin.recursive_length(TensorCPU(np.zeros((2, 0, 5))), 3) == [[2], [0, 0], []]


def test_a_tensor_is_clipped_with_its_sequences(core: Any) -> None:
    tensor = core.DenseTensor()
    tensor.set(np.arange(9, dtype=np.int32).reshape(9, 1), core.CPUPlace())
    tensor.set_recursive_sequence_lengths([[2, 1], [2, 3, 4]])

    clipped = plugin.lod_tensor_clip(tensor, 1)

    assert lengths_of(clipped) == [[2], [2, 3]]
    assert rows(clipped) == [[0], [1], [2], [3], [4]]


def test_batches_are_copied_to_addresses() -> None:
    target = np.zeros((2, 3), np.int16)
    batch = TensorListCPU([np.full(3, 1, np.int16), np.full(3, 2, np.int16)])

    assert plugin.feed_ndarray(batch, target.ctypes.data) == target.ctypes.data
    assert target.tolist() == [[1, 1, 1], [2, 2, 2]]


def test_missing_paddle_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paddle", None)

    with (
        pipeline(lambda i: np.zeros(2)) as pipe,
        pytest.raises(MissingExtraError, match=r"dali_like\.plugin\.paddle needs paddle: pip install 'paddlepaddle>="),
    ):
        plugin.DALIGenericIterator(pipe, ["data", "label"])


@pytest.mark.skipif(not IS_INSTALLED, reason="PaddlePaddle is not installed")
def test_a_model_trains_with_it() -> None:
    import paddle

    layer = paddle.nn.Linear(3, 1)
    optimizer = paddle.optimizer.SGD(0.01, parameters=layer.parameters())
    losses = []
    with pipeline(lambda i: np.full(3, i % 4, np.float32), length=64, batch_size=8) as pipe:
        for (batch,) in plugin.DALIGenericIterator(pipe, ["data", "label"]):
            data = paddle.to_tensor(batch["data"])
            loss = (layer(data) - data.sum(axis=1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(loss))

    assert losses[-1] < losses[0]


def test_the_types_are_those_of_dali() -> None:
    names = {
        types.FLOAT,
        types.FLOAT64,
        types.FLOAT16,
        types.BOOL,
        types.UINT8,
        types.INT8,
        types.INT16,
        types.INT32,
        types.INT64,
    }

    assert set(plugin.dtype_map) == names
