"""PyTorch's loader with ``device=``: batches on the simulated GPU, whose copies run only when somebody waits for them."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import functools
import gc
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from dali_like import data
from dali_like.data import ComposedDataset
from dali_like.device.opening import substitute
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    BatchSizeError,
    BuffersInUseError,
    DeviceError,
    OutOfMemoryError,
)
from dali_like.plugin.pytorch import DataLoader, jagged_collate
from dali_like.testing.simulated_device import DEFAULT_STREAM, SimulatedDevice

pytestmark = pytest.mark.peers

SIDE = 256  # so that tensors are large enough to lie in slots
SIZE = 2


class Numbers(torch.utils.data.Dataset[Any]):
    """Samples that are full of their number, a label, and a text."""

    def __init__(self, length: int = 32) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return np.full((SIDE, SIDE), index, np.uint8), index, f"sample {index}"


@pytest.fixture
def gpu() -> Iterator[SimulatedDevice]:
    """A machine with one GPU."""
    device = SimulatedDevice()
    with substitute(lambda number: device):
        yield device
        gc.collect()
    assert not device.faults
    assert not device.registered


def load(dataset: Any = None, device: Any = "cuda:0", **options: Any) -> DataLoader[Any]:
    given = {"batch_size": SIZE, "num_workers": 1, "prefetch_factor": 2, **options}
    if not given["num_workers"]:
        del given["prefetch_factor"]
    return DataLoader(Numbers() if dataset is None else dataset, device=device, **given)


def numbers(batch: Any, gpu: SimulatedDevice) -> list[int]:
    """Return the numbers of a batch, as a kernel on the default stream would see them."""
    gpu.run(DEFAULT_STREAM)
    images, labels, texts = batch
    assert texts == tuple(f"sample {int(label)}" for label in labels)
    assert [int(image[0, 0]) for image in images] == [int(image[-1, -1]) for image in images] == labels.tolist()
    return list(labels.tolist())


def expected(length: int = 32) -> list[list[int]]:
    return [list(range(begin, min(begin + SIZE, length))) for begin in range(0, length, SIZE)]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("device", ["cuda", "cuda:0", 0, torch.device("cuda", 0), "auto"], ids=str)
def test_batches_arrive_in_order_on_the_device(device: Any, num_workers: int, gpu: SimulatedDevice) -> None:
    loader = load(device=device, num_workers=num_workers)

    assert [numbers(batch, gpu) for batch in loader] == expected()
    assert loader.statistics().copies.batches == 16


def test_a_tensor_is_not_filled_before_the_stream_of_the_program_has_waited(gpu: SimulatedDevice) -> None:
    batches = iter(load())
    images, _, _ = next(batches)

    before = int(images[0, 0, 0])
    gpu.run(DEFAULT_STREAM)

    assert (before, int(images[1, 0, 0])) == (0xDD, 1)


def test_large_tensors_are_one_copy_each_from_locked_slots_and_small_ones_one_together(gpu: SimulatedDevice) -> None:
    for batch in load():
        numbers(batch, gpu)

    assert all(is_locked for _, is_locked in gpu.copies)
    assert [nbytes for nbytes, _ in gpu.copies] == [SIZE * SIDE * SIDE, SIZE * 8] * 16


def test_pin_memory_besides_changes_nothing(gpu: SimulatedDevice) -> None:
    assert [numbers(batch, gpu) for batch in load(pin_memory=True)] == expected()
    assert len(gpu.copies) == 32


def test_copies_of_the_next_batches_begin_before_the_program_takes_them(gpu: SimulatedDevice) -> None:
    loader = load(prefetch_to_device=3, num_workers=1, prefetch_factor=8)
    batches = iter(loader)
    next(batches)
    while len(gpu.copies) < 2 * 5:  # the first calls find as many as are ready
        next(batches)
        assert len(gpu.copies) <= 2 * (loader.statistics().loop.batches + 3)

    assert gpu.num_waiting() > 0
    assert numbers(next(batches), gpu) == expected()[loader.statistics().loop.batches - 1]


@pytest.mark.parametrize("stream", [DEFAULT_STREAM, None])
def test_memory_is_not_used_again_while_a_kernel_may_read_it(stream: int | None, gpu: SimulatedDevice) -> None:
    seen: list[int] = []
    if stream is None:
        stream = gpu.current_stream = gpu.make_stream()
    for images, _, _ in load(prefetch_factor=8):
        gpu.launch(functools.partial(look, images.data_ptr(), seen), stream)
        del images  # before the kernel has run
    gpu.run()
    gpu.run(stream)

    assert seen == [batch[0] for batch in expected()]


def look(address: int, seen: list[int]) -> None:
    seen.append(ctypes.c_uint8.from_address(address).value)


def test_a_batch_dropped_while_its_copy_runs_leaves_its_slot_alone_until_the_copy_has_ended(gpu: SimulatedDevice) -> None:
    for _ in load(prefetch_factor=8):
        pass  # nothing ever runs, unless the loader waits

    gpu.run()
    assert gpu.num_waiting() == 0  # `gpu` checks that no pages were unlocked under a copy


def test_a_part_of_a_batch_keeps_its_memory_alone(gpu: SimulatedDevice) -> None:
    labels = [labels for _, labels, _ in load()]
    gpu.run(DEFAULT_STREAM)

    assert [part.tolist() for part in labels] == expected()
    assert sum(block.nbytes for block in gpu.blocks.values()) < 16 * SIZE * SIDE * SIDE


def test_held_batches_outlive_the_loader(gpu: SimulatedDevice) -> None:
    held = list(load())
    gc.collect()

    assert [numbers(batch, gpu) for batch in held] == expected()


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Record:
    image: Any
    name: str


def nested(samples: list[Any]) -> Any:
    images = torch.stack([torch.from_numpy(image) for image, *_ in samples])
    return {
        "pair": Pair(images, [images[0].float(), "text"]),
        "ordered": collections.OrderedDict(tuple=(images[:, 0].clone(),), none=None),
        "record": Record(images.bool(), "name"),
        "array": np.arange(3),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(4.5),
        "half": images.to(torch.bfloat16),
        "columns": images.float()[:, :, None].contiguous(memory_format=torch.channels_last),
        "transposed": images.mT,
        "gaps": images[:, ::2],
        # PyTorch keeps sparse tensors that it unpickles from a worker, and with them the memory.
        "sparse": None if torch.utils.data.get_worker_info() else images.to_sparse(),
        "trained": torch.ones(3, requires_grad=True),
    }


def same(ours: Any, theirs: Any) -> bool:
    """Whether two batches have the same types and the same values."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, torch.Tensor):
        dense = (ours.to_dense(), theirs.to_dense()) if ours.is_sparse else (ours, theirs)
        return torch.equal(*dense) and (ours.is_sparse or ours.numel() < 2 or dense[0].stride() == dense[1].stride())
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, np.ndarray):
        return np.array_equal(ours, theirs)
    return same(vars(ours), vars(theirs)) if dataclasses.is_dataclass(ours) else ours == theirs


@pytest.mark.parametrize("num_workers", [0, 1])
def test_tensors_in_any_nesting_go_to_the_device_and_other_objects_stay(num_workers: int, gpu: SimulatedDevice) -> None:
    options = {"num_workers": num_workers, "collate_fn": nested}

    theirs = list(load(device=None, **options))
    ours = list(load(**options))
    gpu.run(DEFAULT_STREAM)

    for batch, other in zip(ours, theirs, strict=True):
        other["gaps"] = other["gaps"].contiguous()  # a copy has no gaps
        assert same(batch, other)
        assert not batch["half"]._is_view()
        assert batch["array"] is not None


def test_nested_tensors_go_to_the_device(gpu: SimulatedDevice) -> None:
    samples = [torch.arange(length, dtype=torch.float32) for length in (3, 5, 2, 4)]
    batches = list(load(samples, collate_fn=jagged_collate))
    gpu.run(DEFAULT_STREAM)

    assert [[part.tolist() for part in batch.unbind()] for batch in batches] == [
        [sample.tolist() for sample in samples[begin : begin + SIZE]] for begin in (0, 2)
    ]


# States, errors


@pytest.mark.parametrize("num_workers", [0, 1])
def test_states_count_batches_that_the_program_has_got(num_workers: int, gpu: SimulatedDevice) -> None:
    loader = load(num_workers=num_workers, prefetch_to_device=3)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    other = load(num_workers=num_workers)
    other.load_state_dict(loader.state_dict())

    assert [numbers(batch, gpu) for batch in other] == expected()[5:]


@pytest.mark.parametrize("shards", [None, 2])
def test_composed_datasets_arrive_and_resume(shards: int | None, gpu: SimulatedDevice) -> None:
    dataset = ComposedDataset.source(Numbers()) if shards is None else ComposedDataset.source(Numbers()).shuffle()
    loader = load(dataset)
    batches = iter(loader)
    first = [numbers(next(batches), gpu) for _ in range(4)]
    other = load(dataset)
    other.load_state_dict(loader.state_dict())

    rest = [numbers(batch, gpu) for batch in other]
    assert sorted(itertools.chain(*first, *rest)) == list(range(32))


class Broken(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index == 9:
            raise KeyError(f"no sample {index}")
        return super().__getitem__(index)


def test_an_error_of_the_dataset_comes_at_its_turn(gpu: SimulatedDevice) -> None:
    batches, got = iter(load(Broken(), prefetch_to_device=3, prefetch_factor=8)), []
    with pytest.raises(KeyError, match="no sample 9"):
        got.extend(numbers(batch, gpu) for batch in batches)
    got.extend(numbers(batch, gpu) for batch in batches)

    assert got == [batch for batch in expected() if 9 not in batch]


def test_an_error_of_the_collation_comes_at_its_turn(gpu: SimulatedDevice) -> None:
    samples = [torch.zeros(3 if i != 9 else 4) + i for i in range(32)]
    batches, got = iter(load(samples, prefetch_factor=8)), []
    with pytest.raises(RuntimeError, match="equal size"):
        got.extend(batch for batch in batches)
    got.extend(batch for batch in batches)
    gpu.run(DEFAULT_STREAM)

    assert [batch[:, 0].tolist() for batch in got] == [batch for batch in expected() if 9 not in batch]


def test_a_copy_that_cannot_be_begun_costs_its_batch_and_no_other(gpu: SimulatedDevice) -> None:
    batches, got = iter(load()), []
    got.append(numbers(next(batches), gpu))
    gpu.fail()
    with pytest.raises(DeviceError, match="cudaErrorInvalidValue"):
        got.extend(numbers(batch, gpu) for batch in batches)
    got.extend(numbers(batch, gpu) for batch in batches)

    assert len(got) == 15
    assert all(batch in expected() for batch in got)


def test_a_copy_that_fails_later_is_an_error(gpu: SimulatedDevice) -> None:
    gpu.fail(when_carried_out=True)
    with pytest.raises(DeviceError, match="cudaErrorLaunchFailure"):
        [gpu.run(DEFAULT_STREAM) for _ in load()]


def test_without_memory_on_the_gpu_the_batch_waits_for_a_later_call(gpu: SimulatedDevice) -> None:
    gpu.capacity_bytes = 4 * SIZE * SIDE * SIDE
    loader = load()
    batches, held = iter(loader), []
    with pytest.raises(OutOfMemoryError, match="MiB"):
        held.extend(batches)
    saved = loader.state_dict()
    got = [numbers(batch, gpu) for batch in held]
    held.clear()
    gc.collect()
    got.extend(numbers(batch, gpu) for batch in batches)
    del batches, loader
    gc.collect()
    resumed = load()
    resumed.load_state_dict(saved)

    assert got == expected()
    assert numbers(next(iter(resumed)), gpu) in expected()[2:4]


def test_an_iterator_that_is_dropped_with_copies_on_their_way_leaves_nothing(gpu: SimulatedDevice) -> None:
    loader = load(persistent_workers=True, prefetch_factor=8)
    for _ in range(3):
        batches = iter(loader)
        next(batches)
        next(batches)

    assert [numbers(batch, gpu) for batch in loader] == expected()


def test_batch_at_computes_on_the_cpu(gpu: SimulatedDevice) -> None:
    loader = load()
    batches = iter(loader)
    next(batches)

    assert numbers(loader.batch_at(7), gpu) == expected()[7]
    assert gpu.copies[2:] == [] or len(gpu.copies) <= 6


# The same addresses in turns


@pytest.mark.parametrize("num_workers", [0, 2])
def test_static_buffers_have_their_addresses_in_a_fixed_order_over_epochs(num_workers: int, gpu: SimulatedDevice) -> None:
    loader = load(num_workers=num_workers, static_buffers=True, drop_last=True)
    addresses, got = [], []
    for _ in range(2):
        for batch in loader:
            got.append(numbers(batch, gpu))
            addresses.append((batch[0].data_ptr(), batch[1].data_ptr()))

    assert got == 2 * expected()
    assert len(set(addresses)) == 3
    assert addresses == [addresses[turn % 3] for turn in range(32)]


def test_static_buffers_wait_for_kernels_that_read_them(gpu: SimulatedDevice) -> None:
    seen: list[int] = []
    for images, _, _ in load(static_buffers=True, prefetch_factor=8):
        gpu.launch(functools.partial(look, images.data_ptr(), seen))
    gpu.run()
    gpu.run(DEFAULT_STREAM)

    assert seen == [batch[0] for batch in expected()]


def test_a_view_that_is_alive_a_round_later_is_an_error_and_costs_no_batch(gpu: SimulatedDevice) -> None:
    batches = iter(load(static_buffers=True))
    got = [numbers(next(batches), gpu)]
    image = next(batches)[0][1, 3:5]
    got += [[2, 3], numbers(next(batches), gpu), numbers(next(batches), gpu)]
    with pytest.raises(BuffersInUseError, match="a tensor of batch 1, or a view of one, is alive, and batch 4"):
        next(batches)
    assert int(image[0, 0]) == 3
    del image
    got.extend(numbers(batch, gpu) for batch in batches)

    assert got == expected()


def test_a_batch_of_another_shape_is_an_error_that_names_it(gpu: SimulatedDevice) -> None:
    with pytest.raises(BatchSizeError, match=r"shape \(1, 256, 256\), where the first one has torch.uint8 and shape \(2,"):
        for _ in load(Numbers(9), static_buffers=True):
            pass


# Arguments


@pytest.mark.parametrize(
    ("device", "error", "text"),
    [
        ("gpu", ArgumentError, "is not a device"),
        (1.5, ArgumentTypeError, "must be a torch.device"),
        (True, ArgumentTypeError, "must be a torch.device"),
        ("mps", ArgumentError, "GPUs of NVIDIA only"),
    ],
)
def test_wrong_devices_are_named(device: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        load(device=device)


def test_a_gpu_that_is_missing_is_an_error_before_workers_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.device.opening.count_accelerators", lambda: 0)
    monkeypatch.setattr("dali_like.device.opening.count_is_known", lambda: True)
    loader = load()
    with pytest.raises(DeviceError, match="needs a GPU, but this process sees none"):
        iter(loader)
    assert not loader.statistics().workers


def test_auto_without_a_gpu_is_the_cpu() -> None:
    batches = list(load(device="auto", num_workers=0))

    assert [labels.tolist() for _, labels, _ in batches] == expected()


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_on_the_cpu_no_code_of_devices_runs(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALI_LIKE_DEVICE", "cpu" if device != "cpu" else "")
    monkeypatch.delattr("dali_like.plugin.pytorch.device_batches.TorchSender")
    iterator = iter(load(device=device))

    assert [labels.tolist() for _, labels, _ in iterator] == expected()


def test_loaders_of_arrays_name_the_class_that_has_the_argument() -> None:
    with pytest.raises(ArgumentClashError, match=r"device is an argument of the DataLoader of dali_like\.plugin\.pytorch"):
        data.DataLoader(range(3), device="cuda")


@pytest.mark.parametrize("options", [{"in_order": False}, {"reorder_window": 2}, {"device": None}])
def test_static_buffers_refuse_other_orders_and_a_missing_device(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentClashError, match="static_buffers=True"):
        load(**{"static_buffers": True, **options})


def test_batches_on_a_device_are_not_served() -> None:
    with pytest.raises(ArgumentClashError, match="leave device= out"):
        load().serve("/nowhere/batches")
