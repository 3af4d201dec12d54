"""Outputs of iterators for PyTorch, beside DALI's: tensors of all dtypes, sparse ones, copies; and the memory they share."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, plugin, types
from dali_like.errors import IteratorArgumentError, RaggedError, TargetMismatchError
from dali_like.tensors import TensorCPU, TensorListCPU

from .conftest import OURS, Library
from .iterators import iterator_of, outcome, plugin_of, source

torch: Any = pytest.importorskip("torch")

from dali_like.plugin import pytorch  # noqa: E402  (needs PyTorch)

pytestmark = pytest.mark.peers

MakePipeline = Callable[..., Pipeline]
BOTH = ("dali", "ours")

#: The dtypes that DALI's iterators know, and the others.
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
OURS_ALONE = ("uint16", "uint32", "uint64")


@pytest.fixture(params=BOTH)
def library(request: pytest.FixtureRequest) -> Library:
    """One of the two."""
    return OURS if request.param == "ours" else request.getfixturevalue("dali")


def described(value: Any) -> Any:
    """A tensor, or a list of tensors, bit for bit; of a sparse one, its indices and its elements."""
    if isinstance(value, list):
        return list(map(described, value))
    if value.layout is torch.sparse_coo:
        # Private: PyTorch's methods
        return value.is_coalesced(), tuple(value.shape), value._indices().tolist(), described(value._values())
    return value.dtype, value.device, tuple(value.shape), value.stride(), value.numpy().tobytes()


def first_batch(iterator: Any) -> Any:
    """The first batch of one pipeline, described."""
    [batch] = next(iterator)
    return {name: described(value) for name, value in batch.items()}


# Tensors


@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3, 4)], ids=str)
def test_dtypes(shape: tuple[int, ...], dali: Library) -> None:
    def make(info: Any) -> Any:
        return tuple(np.full(shape, info.idx_in_epoch % 2, dtype) for dtype in DTYPES)

    case = {"num_outputs": len(DTYPES), "output_map": DTYPES}
    ours = outcome(OURS, first_batch, make, **case)

    assert ours == outcome(dali, first_batch, make, **case)
    assert [ours[name][0] for name in DTYPES] == [getattr(torch, name) for name in DTYPES]


def test_dtypes_that_dali_does_not_deliver(dali: Library) -> None:
    def make(info: Any) -> Any:
        return tuple(np.full(3, info.idx_in_epoch + 2**15, dtype) for dtype in OURS_ALONE)

    case = {"num_outputs": len(OURS_ALONE), "output_map": OURS_ALONE}

    with pytest.raises(KeyError):
        outcome(dali, first_batch, make, **case)

    ours = outcome(OURS, first_batch, make, **case)
    assert [ours[name][0] for name in OURS_ALONE] == [torch.uint16, torch.uint32, torch.uint64]
    assert np.frombuffer(ours["uint16"][-1], np.uint16).tolist() == [2**15 + i // 3 for i in range(12)]


def test_names_of_dtypes(dali: Library) -> None:
    theirs = {dtype.name: kind for dtype, kind in plugin_of(dali).to_torch_type.items()}
    ours = {dtype.name: kind for dtype, kind in pytorch.to_torch_type.items()}

    assert {name: ours[name] for name in theirs} == theirs
    assert set(pytorch.to_torch_type) == {dtype for dtype in types.DALIDataType if 0 <= dtype < types.STRING}


def test_the_policy_is_the_same_for_all_frameworks() -> None:
    assert pytorch.LastBatchPolicy is plugin.LastBatchPolicy


def test_classification_names_its_outputs(dali: Library) -> None:
    def batches(library: Library) -> Any:
        with library.source_pipeline(source(10), num_outputs=2) as pipe:
            iterator = plugin_of(library).DALIClassificationIterator(pipe, auto_reset="yes")
            return iterator.output_map, [
                {name: described(value) for name, value in batch.items()} for _ in range(2) for [batch] in iterator
            ]

    names, epochs = batches(OURS)

    assert (names, epochs) == batches(dali)
    assert (names, len(epochs)) == (["data", "label"], 4)


# Samples of different lengths

COO = pytorch.DALIRaggedIterator.SPARSE_COO_TAG


def lengths(*numbers: int, rest: tuple[int, ...] = ()) -> Callable[[Any], Any]:
    """A source of samples of these lengths, again and again, whose elements are numbered."""

    def make(info: Any) -> Any:
        length = numbers[info.idx_in_epoch % len(numbers)]
        return 10 * info.idx_in_epoch + np.arange(length * math.prod(rest)).reshape(length, *rest)

    return make


def sparse_case(**more: Any) -> dict[str, Any]:
    """Arguments for an iterator over one sparse output."""
    return {"kind": "DALIRaggedIterator", "output_map": ["x"], "output_types": [COO], "num_outputs": None, **more}


def test_tags_are_those_of_dali(dali: Library) -> None:
    names = ("DENSE_TAG", "SPARSE_LIST_TAG", "SPARSE_COO_TAG")

    ours, theirs = ([getattr(plugin_of(library).DALIRaggedIterator, name) for name in names] for library in (OURS, dali))

    assert ours == theirs


@pytest.mark.parametrize("samples", [(3, 1, 2, 5), (2, 2, 2, 2), (1, 0, 0, 2)], ids=str)
def test_sparse_tensors(samples: tuple[int, ...], dali: Library) -> None:
    case = sparse_case()

    assert outcome(OURS, first_batch, lengths(*samples), **case) == outcome(dali, first_batch, lengths(*samples), **case)


def test_all_kinds_of_outputs_of_one_pipeline(dali: Library) -> None:
    def make(info: Any) -> Any:
        row = np.arange(1 + info.idx_in_batch % 3, dtype=np.float32)
        return row, row, np.array(info.idx_in_epoch)

    case = {
        "kind": "DALIRaggedIterator",
        "num_outputs": 3,
        "output_map": ["list", "coo", "dense"],
        "output_types": ["sparse_list", "sparse_coo", "dense"],
    }

    assert outcome(OURS, first_batch, make, **case) == outcome(dali, first_batch, make, **case)


def test_sparse_tensors_are_as_long_as_the_batch(dali: Library) -> None:
    """DALI infers the shape from the elements, and forgets empty samples at the end."""

    def shape(iterator: Any) -> tuple[int, ...]:
        return tuple(next(iterator)[0]["x"].shape)

    case = sparse_case()

    assert outcome(dali, shape, lengths(1, 2, 1, 0), **case) == (3, 2)
    assert outcome(OURS, shape, lengths(1, 2, 1, 0), **case) == (4, 2)
    assert outcome(OURS, shape, lengths(0), **case) == (4, 0)


def test_sparse_tensors_of_rows() -> None:
    def dense(iterator: Any) -> Any:
        return next(iterator)[0]["x"].to_dense()

    tensor = outcome(OURS, dense, lengths(1, 2, rest=(3,)), **sparse_case())

    assert tensor.shape == (4, 2, 3)
    assert tensor[1].tolist() == [[10, 11, 12], [13, 14, 15]]
    assert tensor[2].tolist() == [[20, 21, 22], [0, 0, 0]]


def test_sparse_tensors_of_a_partial_batch() -> None:
    def shapes(iterator: Any) -> list[tuple[int, ...]]:
        return [tuple(batch["x"].shape) for [batch] in iterator]

    case = sparse_case(size=6, policy="PARTIAL")

    assert outcome(OURS, shapes, lengths(1, 2, 3), **case) == [(4, 3), (2, 3)]


@pytest.mark.parametrize("shape", [(), (2, "idx_in_batch")], ids=str)
def test_samples_that_do_not_make_a_sparse_tensor(shape: tuple[Any, ...]) -> None:
    def make(info: Any) -> Any:
        return np.zeros([getattr(info, extent) if isinstance(extent, str) else extent for extent in shape])

    with pytest.raises(IteratorArgumentError, match="'x' cannot be 'sparse_coo'"):
        outcome(OURS, next, make, **sparse_case())


# Copies into tensors


def test_feed_ndarray_copies_a_tensor(library: Library) -> None:
    target = torch.zeros((4, 2, 3))

    with iterator_of(library, [source(None)]), library.source_pipeline(source(None), num_outputs=2) as pipe:
        pictures = pipe.run()[0].as_tensor()
        returned = plugin_of(library).feed_ndarray(pictures, target, cuda_stream=None)

    assert returned is target
    assert target[:, 0, 0].tolist() == [np.float32(i / 7) for i in range(4)]


@pytest.mark.parametrize(
    "target", [torch.zeros((4, 2, 3), dtype=torch.float64), torch.zeros((4, 3, 2))], ids=["dtype", "shape"]
)
def test_feed_ndarray_refuses_other_targets(target: Any, library: Library) -> None:
    with library.source_pipeline(source(None), num_outputs=2) as pipe:
        pictures = pipe.run()[0].as_tensor()
        with pytest.raises(AssertionError) as caught:
            plugin_of(library).feed_ndarray(pictures, target)

    assert library is not OURS or isinstance(caught.value, TargetMismatchError)
    assert not target.any()


def test_feed_ndarray_respects_strides() -> None:
    """DALI ignores them, and writes to the memory in order."""
    memory = torch.zeros((3, 4))

    pytorch.feed_ndarray(TensorCPU(np.arange(12, dtype=np.float32).reshape(4, 3)[::-1]), memory.T)

    assert memory.T.tolist() == [[9, 10, 11], [6, 7, 8], [3, 4, 5], [0, 1, 2]]


def test_feed_ndarray_of_a_parameter() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))

    pytorch.feed_ndarray(TensorCPU(np.ones(2, np.float32)), parameter)

    assert parameter.tolist() == [1, 1]


def test_feed_ndarray_takes_batches() -> None:
    target = torch.zeros((2, 3))

    pytorch.feed_ndarray(TensorListCPU([np.ones(3, np.float32), np.zeros(3, np.float32)]), target)

    assert target.tolist() == [[1, 1, 1], [0, 0, 0]]
    with pytest.raises(RaggedError):
        pytorch.feed_ndarray(TensorListCPU([np.ones(3), np.ones(2)]), target)


# Whose memory it is


def numbered(info: Any) -> Any:
    """A large sample, full of its number."""
    return np.full(5000, info.idx_in_epoch)


def test_tensors_are_the_memory_of_the_batch(way: str, make_pipeline: MakePipeline) -> None:
    class Spy(pytorch.DALIGenericIterator):
        def _convert(self, name: str, output: TensorListCPU) -> Any:
            self.address = output.data_ptr()
            return super()._convert(name, output)

    iterator = Spy(make_pipeline(numbered, way), ["x"])

    assert [batch["x"].data_ptr() == iterator.address for [batch] in itertools.islice(iterator, 3)] == [True] * 3


@pytest.mark.parametrize(
    ("keep", "first", "last"),
    [
        (lambda tensor: tensor, 0, 3),
        (lambda tensor: tensor.view(-1), 0, 3),
        (lambda tensor: tensor[2, 7:8], 2, 2),
        (lambda tensor: tensor[2].numpy(), 2, 2),
    ],
    ids=["tensor", "reshaped", "a part", "array"],
)
def test_kept_batches_do_not_change(keep: Callable[[Any], Any], first: int, last: int, make_pipeline: MakePipeline) -> None:
    iterator = pytorch.DALIGenericIterator(make_pipeline(numbered), ["x"])

    kept = [keep(batch["x"]) for [batch] in itertools.islice(iterator, 30)]

    ends = [(int(value.flatten()[0]), int(value.flatten()[-1])) for value in kept]
    assert ends == [(4 * i + first, 4 * i + last) for i in range(30)]


def test_memory_of_dropped_batches_is_reused(make_pipeline: MakePipeline) -> None:
    """Else the test above would pass with memory that is never used again."""
    iterator = pytorch.DALIGenericIterator(make_pipeline(numbered), ["x"])

    addresses = {batch["x"].data_ptr() for [batch] in itertools.islice(iterator, 100)}

    assert len(addresses) < 20


def test_tensors_may_be_written_to_also_where_an_input_is_not_copied() -> None:
    array = np.arange(6.0).reshape(2, 3)
    frozen = array.copy()
    frozen.flags.writeable = False
    for given in (frozen, array[:, ::-1]):
        tensor = delivered(given)
        tensor += 1
        assert (tensor.numpy() == given + 1).all()


def delivered(array: Any) -> Any:
    """The result of an iterator for an array that is fed and may not be copied."""
    from dali_like import fn, pipeline_def

    @pipeline_def(batch_size=2)
    def pipeline() -> Any:
        return fn.external_source(name="x", no_copy=True)

    pipe = pipeline()
    pipe.feed_input("x", array)
    iterator = pytorch.DALIGenericIterator(pipe, ["x"])
    [batch] = next(iterator)
    pipe.close()
    return batch["x"]


class OnAnotherDevice:
    """Stands in for a batch, its samples and its tensor on a GPU: there is no array, but there is DLPack."""

    dtype = types.INT64

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Any:
        return map(OnAnotherDevice, self.array)

    def shape(self) -> list[int]:
        """Of the tensor."""
        return list(self.array.shape)

    def as_tensor(self) -> OnAnotherDevice:
        """The batch as one tensor."""
        return self

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("tag", ["dense", "sparse_list", "sparse_coo"])
def test_batches_that_are_not_in_host_memory(tag: str, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(12).reshape(4, 3)
    pipe = make_pipeline(numbered, "serial")
    monkeypatch.setattr(pipe, "run", lambda: (OnAnotherDevice(array),))

    [batch] = next(pytorch.DALIRaggedIterator(pipe, ["x"], output_types=[tag]))

    value = batch["x"].to_dense() if tag == "sparse_coo" else batch["x"]
    assert [row.tolist() for row in value] == array.tolist()
    assert tag == "sparse_coo" or value[0].data_ptr() == array.ctypes.data


def test_feed_ndarray_copies_from_another_device() -> None:
    target = torch.zeros((4, 3), dtype=torch.int64)

    pytorch.feed_ndarray(OnAnotherDevice(np.arange(12).reshape(4, 3)), target)

    assert target.flatten().tolist() == list(range(12))


def test_objects_come_as_lists(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: {"number": info.idx_in_epoch}, "serial", source_options={"dtype": types.OBJECT})

    [batch] = next(pytorch.DALIGenericIterator(pipe, ["x"]))

    assert batch["x"] == [{"number": i} for i in range(4)]


def test_a_training_loop_goes_on_from_a_state() -> None:
    """Each rank has the tensors that it would have had."""

    def rank(number: int) -> Any:
        pipe = Pipeline(3, num_threads=1, seed=1, enable_checkpointing=True)
        pipe.set_outputs(
            OURS.fn.external_source(numbered, batch=False, size=20, shard_id=number, num_shards=2, shard_rest="pad")
        )
        return pipe, pytorch.DALIGenericIterator(pipe, ["x"], auto_reset=True)

    ranks = [rank(number) for number in range(2)]
    for _, iterator in ranks:
        list(iterator)
        next(iterator)
    state = json.loads(json.dumps(ranks[0][1].state_dict()))
    others = [rank(number) for number in range(2)]
    for (_, iterator), (_, other) in zip(ranks, others, strict=True):
        other.load_state_dict(state)

        assert [batch["x"].tolist() for [batch] in other] == [batch["x"].tolist() for [batch] in iterator]
    for pipe, _ in (*ranks, *others):
        pipe.close()
