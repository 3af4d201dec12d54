"""Tensors of PyTorch in pickles: their state afterwards, and that their memory stays apart."""

from __future__ import annotations

import copyreg
import io
import os
import pickle
from collections.abc import Callable
from typing import Any

import psutil
import pytest

torch = pytest.importorskip("torch")

# The rest needs PyTorch.
from dali_like import Pipeline  # noqa: E402
from dali_like.plugin.pytorch.tensor_pickling import reduce_tensor  # noqa: E402
from dali_like.sources.travel import REDUCERS  # noqa: E402
from dali_like.sources.travel.callback_pickler import dumps  # noqa: E402
from tests.faults.processes import children_of, workers_of  # noqa: E402

pytestmark = pytest.mark.peers

MakePipeline = Callable[..., Pipeline]

DTYPES = sorted(
    (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    ),
    key=str,
)


def travelled(value: Any) -> tuple[Any, int]:
    """A value after its travel, and how many buffers went apart."""
    buffers: list[bytearray] = []
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5, buffer_callback=lambda buffer: buffers.append(bytearray(buffer.raw())))
    reducers = {torch.Tensor: reduce_tensor, torch.nn.Parameter: reduce_tensor}
    pickler.dispatch_table = {**copyreg.dispatch_table, **reducers}
    pickler.dump(value)
    return pickle.loads(file.getvalue(), buffers=buffers), len(buffers)


def equal(a: Any, b: Any) -> bool:
    """Bit by bit."""
    return bool(torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_and_elements_are_kept(dtype: Any) -> None:
    tensor = torch.arange(-6, 6).reshape(3, 4).to(dtype)

    there, num_apart = travelled(tensor)

    assert (there.dtype, there.shape, num_apart) == (dtype, (3, 4), 1)
    assert equal(there, tensor)


LAYOUTS = {
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": torch.randn(3, 4).T,
    "permuted": torch.randn(3, 4, 5).permute(1, 2, 0),
    "expanded": torch.randn(1, 5, 1).expand(1000, 5, 7),
    "a number": torch.tensor(3.5),
    "empty": torch.empty(0, 3),
    "a part": torch.randn(100, 3)[10:20],
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_layout_is_kept(kind: str) -> None:
    tensor = LAYOUTS[kind]

    there, num_apart = travelled(tensor)

    assert (there.shape, there.stride(), num_apart) == (tensor.shape, tensor.stride(), 1)
    assert torch.equal(there, tensor)


@pytest.mark.parametrize(
    "tensor",
    [torch.randn(10)[::2], torch.randn(3, dtype=torch.complex64).conj(), torch.randn(3, dtype=torch.complex64).conj().imag],
    ids=["with gaps", "conjugate", "negative"],
)
def test_elements_of_other_views_are_kept(tensor: Any) -> None:
    there, _ = travelled(tensor)

    assert torch.equal(there, tensor)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("kind", [torch.Tensor, torch.nn.Parameter])
def test_class_and_gradient_are_kept(kind: Any, requires_grad: bool) -> None:
    tensor = torch.randn(3)
    tensor = (
        torch.nn.Parameter(tensor, requires_grad) if kind is torch.nn.Parameter else tensor.requires_grad_(requires_grad)
    )

    there, num_apart = travelled(tensor)

    assert (type(there), there.requires_grad, there.is_leaf, num_apart) == (kind, requires_grad, True, 1)
    assert torch.equal(there, tensor)


def test_only_the_part_travels_that_is_the_tensor() -> None:
    part = torch.randn(1 << 20)[:10]

    assert len(pickle.dumps(reduce_tensor(part))) < 1000 < len(pickle.dumps(part))


def with_attribute() -> Any:
    tensor = torch.randn(3)
    tensor.label = "seven"
    return tensor


class TestOthersTravelAsPyTorchLikes:
    def test_sparse(self) -> None:
        there, _ = travelled(torch.eye(3).to_sparse())

        assert there.layout is torch.sparse_coo
        assert torch.equal(there.to_dense(), torch.eye(3))

    def test_with_attributes(self) -> None:
        there, num_apart = travelled(with_attribute())

        assert (there.label, num_apart) == ("seven", 0)

    def test_without_elements(self) -> None:
        there, _ = travelled(torch.empty(3, device="meta"))

        assert (there.device.type, there.shape) == ("meta", (3,))


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (torch.Tensor, torch.nn.Parameter):
        monkeypatch.setitem(REDUCERS, kind, reduce_tensor)


@pytest.mark.usefixtures("_registered")
def test_large_tensors_of_sources_stay_apart() -> None:
    pickled = dumps({"source": [torch.ones(1 << 20), torch.nn.Parameter(torch.ones(1 << 20)), torch.ones(3)]}, "the source")

    assert len(pickled.buffers) == 2
    assert "dali_like.plugin.pytorch.tensor_pickling" in pickled.modules


@pytest.mark.usefixtures("_registered")
def test_tensors_of_sources_are_there_once_for_all_workers(make_pipeline: MakePipeline) -> None:
    tensor = torch.ones(64 << 20)  # 256 MiB; all else that four processes with PyTorch have may come to as much again

    pipe = make_pipeline(lambda info: tensor[:2].numpy() + tensor.sum().numpy(), "spawn", workers=3)
    batch = pipe.run()[0].as_array()
    processes = [*children_of(os.getpid()), *workers_of(pipe)]

    assert (batch == 1 + (64 << 20)).all()
    assert sum(psutil.Process(pid).memory_full_info().pss for pid in processes) < 3 * tensor.nbytes
