"""PyTorch on both sides: its tensors as samples, and batches as its tensors, without a copy and for as long as one likes."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

# The rest needs PyTorch.
from dali_like import Pipeline, pipeline_def  # noqa: E402
from dali_like.errors import SampleTypeError  # noqa: E402
from dali_like.types import SampleInfo  # noqa: E402
from tests.parity.conftest import OURS, Library, play  # noqa: E402

pytestmark = pytest.mark.peers

MakePipeline = Callable[..., Pipeline]


@pytest.fixture(params=["serial", "fork"])
def way(request: pytest.FixtureRequest) -> str:
    """How sources are called. Spawned workers take seconds to import PyTorch, and have a test of their own."""
    return str(request.param)


# Tensors as samples

TENSORS = {
    **{
        str(dtype).removeprefix("torch."): torch.tensor([[0, 1], [2, 3]]).to(dtype)
        for dtype in (
            torch.bool,
            torch.uint8,
            torch.uint16,
            torch.uint32,
            torch.uint64,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.float32,
            torch.float64,
        )
    },
    "scalar": torch.tensor(7),
    "no elements": torch.zeros(3, 0),
    "transposed": torch.arange(6).reshape(2, 3).T,
    "every other": torch.arange(12).reshape(3, 4)[:, ::2],
    "expanded": torch.arange(3).expand(2, 3),
    "detached": torch.ones(2, requires_grad=True).detach(),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_tensors_are_samples(make_pipeline: MakePipeline, tensor: torch.Tensor, way: str) -> None:
    pipe = make_pipeline(lambda info: tensor, way)

    (batch,) = pipe.run()

    assert len(batch) == 4
    for sample in batch:
        received = torch.from_dlpack(sample)
        assert received.dtype == tensor.dtype
        assert torch.equal(received, tensor)


def test_tensors_are_samples_of_spawned_workers(make_pipeline: MakePipeline) -> None:
    scale = torch.tensor([1.0, 2.0])
    pipe = make_pipeline(lambda info: scale * info.idx_in_epoch, "spawn")

    (batch,) = pipe.run()

    assert batch.as_array().tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda info: torch.arange(6, dtype=torch.int16).reshape(2, 3) + info.idx_in_epoch, id="dense"),
        pytest.param(lambda info: torch.arange(info.idx_in_batch + 1), id="ragged"),
        pytest.param(lambda info: torch.tensor(info.idx_in_epoch / 3), id="scalar"),
    ],
)
def test_tensors_arrive_as_in_dali(dali: Library, source: Callable[[SampleInfo], Any]) -> None:
    """From workers: in the main process DALI asks the tensor for its CUDA stream, and needs a PyTorch that has CUDA."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(source, "fork") as pipe:
            return play(pipe, [3])

    assert program(OURS) == program(dali)


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        pytest.param(torch.ones(2, requires_grad=True), "requires grad", id="with a gradient"),
        pytest.param(torch.ones(2, dtype=torch.bfloat16), "BFloat16|bfloat16", id="bfloat16"),
        pytest.param(torch.eye(2).to_sparse(), "layout|[Ss]parse", id="sparse"),
        pytest.param(torch.ones(2, device="meta"), "meta", id="without data"),
    ],
)
def test_tensors_that_numpy_cannot_read_are_refused(
    make_pipeline: MakePipeline, tensor: torch.Tensor, why: str, way: str
) -> None:
    pipe = make_pipeline(lambda info: tensor, way)

    with pytest.raises(SampleTypeError, match=why):
        pipe.run()


@pytest.mark.parametrize(("start_method", "threads"), [("fork", 1), ("fork", 2), ("spawn", 2)])
def test_workers_have_as_many_threads_of_torch_as_the_pipeline_says(
    make_pipeline: MakePipeline, start_method: str, threads: int
) -> None:
    pipe = make_pipeline(lambda info: torch.tensor(torch.get_num_threads()), start_method, py_worker_threads=threads)

    (batch,) = pipe.run()

    assert set(batch.as_array().tolist()) == {threads}


# Batches as tensors


def numbered(info: SampleInfo) -> Any:
    return np.full((3, 5), info.idx_in_epoch, np.float32)


def numbers_of(run: int) -> torch.Tensor:
    """The samples of `numbered` in one run of four samples."""
    return torch.arange(4 * run, 4 * run + 4, dtype=torch.float32).reshape(4, 1, 1).expand(4, 3, 5)


#: The ways to a tensor of a whole batch.
TO_TORCH: dict[str, Callable[[Any], torch.Tensor]] = {
    "from_dlpack of as_tensor": lambda batch: torch.from_dlpack(batch.as_tensor()),
    "from_dlpack of as_array": lambda batch: torch.from_dlpack(batch.as_array()),
    "from_numpy of as_array": lambda batch: torch.from_numpy(batch.as_array()),
    "as_tensor of as_array": lambda batch: torch.as_tensor(batch.as_array()),
    "as_tensor of as_tensor": lambda batch: torch.as_tensor(batch.as_tensor()),
    "asarray of as_tensor": lambda batch: torch.asarray(batch.as_tensor()),
}


@pytest.fixture(params=TO_TORCH.values(), ids=TO_TORCH)
def to_torch(request: pytest.FixtureRequest) -> Callable[[Any], torch.Tensor]:
    """A way to a tensor of a whole batch."""
    way: Callable[[Any], torch.Tensor] = request.param
    return way


def test_tensors_are_the_batchs_memory(make_pipeline: MakePipeline, to_torch: Callable[[Any], torch.Tensor]) -> None:
    (batch,) = make_pipeline(numbered, "serial").run()

    tensor = to_torch(batch)
    tensor[2] = -1

    assert tensor.data_ptr() == batch.as_array().ctypes.data
    assert batch.at(2).tolist() == [[-1] * 5] * 3


def test_tensors_stay_as_they_were_over_later_runs(
    make_pipeline: MakePipeline, to_torch: Callable[[Any], torch.Tensor], way: str
) -> None:
    pipe = make_pipeline(numbered, way)

    kept = [to_torch(pipe.run()[0]) for _ in range(12)]
    for _ in range(12):
        pipe.run()

    for run, tensor in enumerate(kept):
        assert torch.equal(tensor, numbers_of(run))


#: Parts of a tensor that may be left while everything else of the batch is gone.
REMAINS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a sample": lambda tensor: tensor[1],
    "a view": lambda tensor: tensor[1:2, ::2].permute(2, 0, 1),
    "a detached tensor": lambda tensor: tensor.detach(),
    "the storage": lambda tensor: tensor.untyped_storage(),
    "an array": lambda tensor: tensor.numpy(),
    "an exported tensor": np.from_dlpack,
    "another type": lambda tensor: tensor.view(torch.int32),
}


@pytest.mark.parametrize("remains", REMAINS.values(), ids=REMAINS)
def test_any_remaining_part_of_a_tensor_keeps_the_batch(
    make_pipeline: MakePipeline, remains: Callable[[torch.Tensor], Any], to_torch: Callable[[Any], torch.Tensor]
) -> None:
    pipe = make_pipeline(numbered, "serial")
    warm_up(pipe)

    tensor = to_torch(pipe.run()[0])
    address = tensor.data_ptr()
    rest = remains(tensor)
    del tensor

    assert address not in addresses(pipe)
    del rest
    assert address in addresses(pipe)


def test_the_slot_of_a_dropped_tensor_is_used_again(
    make_pipeline: MakePipeline, to_torch: Callable[[Any], torch.Tensor], way: str
) -> None:
    pipe = make_pipeline(numbered, way)
    warm_up(pipe)

    tensor = to_torch(pipe.run()[0])
    address = tensor.data_ptr()
    assert address not in addresses(pipe)

    del tensor
    assert address in addresses(pipe)


def test_the_slot_of_a_tensor_that_another_thread_drops_is_used_again(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered)
    warm_up(pipe)
    held = [torch.from_dlpack(pipe.run()[0].as_tensor())]
    address = held[0].data_ptr()

    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()

    assert address in addresses(pipe)


def warm_up(pipe: Pipeline) -> None:
    """The first batches show the shapes of samples, and have slots that are not used again."""
    for _ in range(8):
        pipe.run()


def addresses(pipe: Pipeline) -> set[int]:
    """Where the next batches lie."""
    return {pipe.run()[0].as_array().ctypes.data for _ in range(12)}


def test_samples_of_ragged_batches_stay_as_they_were(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(lambda info: np.full(1 + info.idx_in_batch, info.idx_in_epoch), way)

    kept = [torch.from_dlpack(sample) for _ in range(8) for sample in pipe.run()[0]]
    for _ in range(8):
        pipe.run()

    assert [tensor.tolist() for tensor in kept] == [[i] * (1 + i % 4) for i in range(32)]


def test_outputs_of_operators_do_not_change() -> None:
    cv2 = pytest.importorskip("cv2")

    def image(info: SampleInfo) -> Any:
        return cv2.imencode(".png", np.full((7, 9, 3), info.idx_in_epoch, np.uint8))[1].ravel()

    @pipeline_def(batch_size=4, num_threads=2)
    def images() -> Any:
        return OURS.fn.decoders.image(OURS.fn.external_source(source=image, batch=False))

    pipe = images()

    kept = [torch.from_dlpack(pipe.run()[0].as_tensor()) for _ in range(8)]
    for _ in range(8):
        pipe.run()
    pipe.close()

    assert [tensor[:, 0, 0, 0].tolist() for tensor in kept] == [list(range(4 * run, 4 * run + 4)) for run in range(8)]
    assert all(bool((tensor == tensor[:, :1, :1, :1]).all()) for tensor in kept)


def test_tensors_outlive_the_pipeline(
    make_pipeline: MakePipeline, to_torch: Callable[[Any], torch.Tensor], way: str
) -> None:
    pipe = make_pipeline(numbered, way)
    kept = [to_torch(pipe.run()[0]) for _ in range(3)]

    pipe.close()
    del pipe
    gc.collect()

    assert all(torch.equal(tensor, numbers_of(run)) for run, tensor in enumerate(kept))
    kept[0].add_(1)
    assert torch.equal(kept[0], numbers_of(0) + 1)


def test_tensors_saved_by_autograd_are_not_overwritten(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(numbered, way)
    weight = torch.ones(5, requires_grad=True)

    losses = [(torch.from_dlpack(pipe.run()[0].as_tensor()) * weight).sum() for _ in range(6)]
    for _ in range(6):
        pipe.run()
    sum(losses).backward()

    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0 * sum(range(24))] * 5


def test_writes_to_a_tensor_do_not_show_in_later_batches(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(numbered, way)

    for run in range(20):
        tensor = torch.from_dlpack(pipe.run()[0].as_tensor())
        assert torch.equal(tensor, numbers_of(run))
        tensor.mul_(0).sub_(1)
