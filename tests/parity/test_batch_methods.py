"""The methods of batches and tensors, and data types: of the real DALI 1.53, and of dali_like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("nvidia.dali")

from tests.parity.conftest import OURS, Library, copied, error_of
from tests.parity.samples import Source, assert_raises_the_same

pytestmark = pytest.mark.peers

BATCHES: dict[str, tuple[Source, dict[str, Any]]] = {
    "dense": (lambda info: np.arange(6, dtype=np.float32).reshape(2, 3) + info.idx_in_epoch, {}),
    "with a layout": (lambda info: np.full((2, 3), info.idx_in_epoch, np.uint8), {"layout": "HW"}),
    "scalars": (lambda info: np.array(info.idx_in_epoch, np.int64), {}),
    "without elements": (lambda info: np.zeros((2, 0), bool), {}),
    "ragged": (lambda info: np.arange(info.idx_in_batch + 1, dtype=np.int16), {}),
    "ragged with a layout": (lambda info: np.zeros((1 + info.idx_in_batch, 2), np.float64), {"layout": "XY"}),
}

#: Methods and attributes of every batch.
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "shape": lambda batch: batch.shape(),
    "ndim": lambda batch: batch.ndim(),
    "layout": lambda batch: batch.layout(),
    "is_dense_tensor": lambda batch: batch.is_dense_tensor(),
    "str of the dtype": lambda batch: str(batch.dtype),
    "repr of the dtype": lambda batch: repr(batch.dtype),
    "name and value of the dtype": lambda batch: (batch.dtype.name, batch.dtype.value, int(batch.dtype)),
    "at": lambda batch: [batch.at(i).tolist() for i in range(len(batch))],
    "at is a writable array": lambda batch: (type(batch.at(0)), batch.at(0).flags.writeable, str(batch.at(0).dtype)),
    "index": lambda batch: [np.array(batch[i]).tolist() for i in range(len(batch))],
    "negative index": lambda batch: [np.array(batch[-1 - i]).tolist() for i in range(len(batch))],
    "index of NumPy's": lambda batch: np.array(batch[np.int64(2)]).tolist(),
    "iteration": lambda batch: [np.array(tensor).tolist() for tensor in batch],
    "as_cpu is the batch": lambda batch: batch.as_cpu() is batch,
    "shape of a tensor": lambda batch: [tensor.shape() for tensor in batch],
    "ndim of a tensor": lambda batch: batch[1].ndim(),
    "layout of a tensor": lambda batch: batch[1].layout(),
    "dtype of a tensor": lambda batch: str(batch[1].dtype),
    "as_cpu of a tensor": lambda batch: np.array(batch[1].as_cpu()).tolist(),
    "asarray of a tensor": lambda batch: (np.asarray(batch[1]).tolist(), np.asarray(batch[1]).flags.writeable),
    "asarray with a dtype": lambda batch: np.asarray(batch[1], dtype=np.float64).tolist(),
    "array of a tensor is a copy": lambda batch: np.shares_memory(np.array(batch[1]), batch.at(1)),
    "from_dlpack of a tensor": lambda batch: np.from_dlpack(batch[1]).tolist(),
    "DLPack device": lambda batch: tuple(map(int, batch[1].__dlpack_device__())),
}

#: More of them, of a dense batch.
DENSE_QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "as_array": lambda batch: batch.as_array().tolist(),
    "as_array is a writable array": lambda batch: (batch.as_array().flags.writeable, str(batch.as_array().dtype)),
    "as_tensor": lambda batch: np.array(batch.as_tensor()).tolist(),
    "shape of as_tensor": lambda batch: (batch.as_tensor().shape(), batch.as_tensor().ndim()),
    "dtype of as_tensor": lambda batch: str(batch.as_tensor().dtype),
    "layout of as_tensor": lambda batch: batch.as_tensor().layout(),
    "from_dlpack of as_tensor": lambda batch: np.from_dlpack(batch.as_tensor()).tolist(),
}


def ask(library: Library, kind: str, question: Callable[[Any], Any]) -> Any:
    source, options = BATCHES[kind]
    with library.source_pipeline(source, source_options=options) as pipe:
        return question(pipe.run()[0])


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_answer_the_same(dali: Library, kind: str) -> None:
    questions = QUESTIONS if "ragged" in kind else {**QUESTIONS, **DENSE_QUESTIONS}

    def answers(batch: Any) -> dict[str, Any]:
        return {name: question(batch) for name, question in questions.items()}

    assert ask(OURS, kind, answers) == ask(dali, kind, answers)


@pytest.mark.parametrize("kind", ["dense", "ragged"])
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        pytest.param(lambda batch: batch[4], IndexError, id="index beyond the end"),
        pytest.param(lambda batch: batch[-5], IndexError, id="index before the start"),
        pytest.param(lambda batch: batch[1:2], TypeError, id="slice"),
        pytest.param(lambda batch: batch["1"], TypeError, id="index that is a string"),
        pytest.param(lambda batch: batch[1.0], TypeError, id="index that is a float"),
        pytest.param(lambda batch: batch.at(4), RuntimeError, id="at beyond the end"),
        pytest.param(lambda batch: len(batch[0]), TypeError, id="length of a tensor"),
    ],
)
def test_wrong_calls_raise_as_in_dali(
    dali: Library, kind: str, question: Callable[[Any], Any], expected: type[Exception]
) -> None:
    assert_raises_the_same(lambda library: ask(library, kind, question), dali, expected)


@pytest.mark.parametrize("name", ["as_array", "as_tensor"])
def test_ragged_batches_refuse_to_be_one_array(dali: Library, name: str) -> None:
    assert_raises_the_same(lambda library: ask(library, "ragged", lambda batch: getattr(batch, name)()), dali, RuntimeError)


@pytest.mark.parametrize("kind", ["dense", "scalars", "ragged"])
def test_writes_to_a_tensor_change_the_batch(dali: Library, kind: str) -> None:
    def write(batch: Any) -> Any:
        np.asarray(batch[1])[...] = 77
        return copied(batch)

    assert ask(OURS, kind, write) == ask(dali, kind, write)


def test_writes_to_as_tensor_change_the_batch(dali: Library) -> None:
    def write(batch: Any) -> Any:
        np.asarray(batch.as_tensor())[2] = 77
        return copied(batch)

    assert ask(OURS, "dense", write) == ask(dali, "dense", write)


@pytest.mark.parametrize("array", [lambda batch: batch.at(0), lambda batch: batch.as_array()], ids=["at", "as_array"])
def test_arrays_of_a_batch_are_not_copies(dali: Library, array: Callable[[Any], NDArray[Any]]) -> None:
    """DALI copies for `at` and `as_array`, and returns views to callers that ask for tensors first."""

    def question(batch: Any) -> bool:
        return np.shares_memory(array(batch), np.asarray(batch[0]))

    assert ask(OURS, "dense", question)
    assert not ask(dali, "dense", question)


ARRAY = np.arange(12, dtype=np.int16).reshape(2, 2, 3)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda tensors: tensors.TensorCPU(ARRAY), id="tensor"),
        pytest.param(lambda tensors: tensors.TensorCPU(ARRAY, "HWC"), id="tensor with a layout"),
        pytest.param(lambda tensors: tensors.TensorCPU(ARRAY, layout="HWC"), id="tensor with a named layout"),
        pytest.param(lambda tensors: tensors.TensorListCPU(ARRAY)[1], id="batch"),
        pytest.param(lambda tensors: tensors.TensorListCPU(ARRAY, "HW")[1], id="batch with a layout"),
        pytest.param(lambda tensors: tensors.TensorListCPU([ARRAY, ARRAY])[1], id="batch of arrays"),
        pytest.param(lambda tensors: tensors.TensorListCPU([tensors.TensorCPU(ARRAY)] * 2)[1], id="batch of tensors"),
    ],
)
def test_tensors_are_made_of_the_same(dali: Library, make: Callable[[Any], Any]) -> None:
    def describe(library: Library) -> Any:
        tensor = make(library.tensors)
        return str(tensor.dtype), tensor.shape(), tensor.layout(), np.array(tensor).tolist()

    assert describe(OURS) == describe(dali)


def test_layout_of_another_length_raises_as_in_dali(dali: Library) -> None:
    assert_raises_the_same(lambda library: library.tensors.TensorCPU(ARRAY, "HW"), dali, ValueError)


def test_data_types_have_the_same_names_and_values(dali: Library) -> None:
    """That of Python objects has another name in DALI, whose sources cannot return them."""

    def numbers(library: Library) -> set[tuple[str, int]]:
        kinds = library.types.DALIDataType, library.types.DALIImageType
        return {(str(member), int(member)) for kind in kinds for member in kind.__members__.values()}

    assert numbers(OURS) - {("DALIDataType.OBJECT", 24)} <= numbers(dali)


def test_data_types_are_the_same_types_of_numpy(dali: Library) -> None:
    """They can be called, and have a name, which dtypes have not."""

    def kinds(library: Library) -> dict[str, Any]:
        names = [member.name for member in OURS.types.DALIDataType if OURS.types.NO_TYPE < member < OURS.types.STRING]
        return {name: library.types.to_numpy_type(getattr(library.types, name)) for name in names}

    assert all(ours is theirs for ours, theirs in zip(kinds(OURS).values(), kinds(dali).values(), strict=True))


@pytest.mark.parametrize("name", ["UINT8", "FLOAT", "RGB", "GRAY", "INTERP_NN", "INTERP_LINEAR"])
def test_constants_are_true_also_the_one_that_is_0(dali: Library, name: str) -> None:
    """Programs say ``dtype or types.FLOAT``."""
    theirs, ours = (bool(getattr(library.types, name)) for library in (dali, OURS))

    assert (theirs, ours) == (True, True)


@pytest.mark.parametrize("layout", ["HWC", ""])
@pytest.mark.parametrize(
    "question",
    [str, repr, bytes, lambda tensor: tensor.get_property("layout")],
    ids=["str", "repr", "bytes", "get_property"],
)
def test_tensors_say_the_same_of_themselves(dali: Library, layout: str, question: Callable[[Any], Any]) -> None:
    theirs, ours = (question(library.tensors.TensorCPU(ARRAY, layout)) for library in (dali, OURS))

    assert ours == theirs


@pytest.mark.parametrize("negative", [-1, -4])
def test_at_counts_from_the_end_as_well(dali: Library, negative: int) -> None:
    """DALI's `at` refuses negative indices, although ``[i]`` takes them."""

    def question(batch: Any) -> Any:
        return batch.at(negative).tolist()

    assert ask(OURS, "dense", question) == ask(dali, "dense", lambda batch: np.array(batch[negative]).tolist())
    assert type(error_of(lambda library: ask(library, "dense", question), dali)) is RuntimeError
