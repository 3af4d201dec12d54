"""Copies the batches of PyTorch's loader to a GPU. Runs in the main process.

The GPU reads large tensors in page-locked slots where they are: one copy each. Other large tensors are copied to page-locked
memory first, and small ones are packed there, to be one copy together. The copies are on a stream of their own. Tensors on
the GPU keep leases of their memory, see `dali_like.device.device_memory`, as batches of pipelines do.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dali_like.data.batch_trees import map_arrays
from dali_like.device.copier import CopyTotals, PackedArrays, Uploader
from dali_like.device.device_array import DeviceArray
from dali_like.device.device_memory import StaticMemory
from dali_like.device.interface import DeviceFence
from dali_like.device.pinned import PinnedMemory
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import BatchSizeError, BuffersInUseError
from dali_like.graph.execution.buffers import BufferPool
from dali_like.plugin.pytorch.torch_device import flat_tensor

__all__ = ["TorchSender", "map_tensors"]

#: Tensors below this size are packed: a copy of its own would take longer than copying the bytes once more.
_LEAST_ALONE_BYTES = 1 << 16
#: Objects that refer to no memory of a slot.
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class _Sent:
    """A batch on the GPU, whose copy may not have ended.

    Attributes:
        batch: the batch.
        ready: passes when it is there.
    """

    __slots__ = ("batch", "ready")

    def __init__(self, batch: Any, ready: DeviceFence | None) -> None:
        self.batch = batch
        self.ready = ready


class TorchSender:
    """Copies batches to a GPU; see `dali_like.data.device_senders.DeviceSender`.

    Args:
        device: the GPU.
        num_ahead: the number of batches to copy ahead.
        is_static: whether batches have the same addresses in turns, ``num_ahead + 1`` of them.
    """

    def __init__(self, device: Any, num_ahead: int, *, is_static: bool) -> None:
        self.device = device
        self.num_ahead = num_ahead
        self.num_delivered = 0
        self.place = torch.device("cpu") if device.dlpack_device[0] == 1 else torch.device("cuda", device.device_id)
        self._pinned = PinnedMemory(device, fenced=False)
        self._static = StaticMemory(device, num_ahead + 1) if is_static else None
        self._form: list[_Form] | None = None
        space = SharedSpace.create_in_common(None)
        self._buffers = BufferPool(space)
        self._uploader = Uploader(device, self._buffers.bytes, self._static)
        self.totals: CopyTotals | None = self._uploader.totals
        self.observe(space)

    def observe(self, space: SharedSpace) -> None:
        if space.observer is not self._pinned:
            space.observer = self._pinned
            space.register(self._uploader)

    def can_send(self, turn: int) -> bool:
        return self._static is None or self._static.is_free(turn)

    def send(self, batch: Any, turn: int) -> _Sent:
        sources: list[torch.Tensor] = []
        map_tensors(batch, _noted_in(sources), self._note_other)
        parts = [_TensorOnItsWay(source) for source in sources]
        alone = [part for part in parts if part.nbytes >= _LEAST_ALONE_BYTES]
        packed = [part for part in parts if 0 < part.nbytes < _LEAST_ALONE_BYTES]
        if self._static is not None:
            self._begin_turn(parts, turn)
        try:
            places = self._upload(alone, packed)
        finally:
            if self._static is not None:
                self._static.end()
        ready = places[0].ready if places else None
        for part, array in zip((*alone, *packed), places, strict=True):
            part.made = part.on_device(flat_tensor(array, self.place), self.place)
        made = iter([part.result(self.place) for part in parts])
        return _Sent(map_tensors(batch, lambda _: next(made), _unchanged), ready)

    def deliver(self, sent: _Sent) -> Any:
        self.num_delivered += 1
        if sent.ready is not None:
            self.device.hold(sent.ready, None)
            if sent.ready.error is not None:
                raise sent.ready.error
        return sent.batch

    def _upload(self, alone: list[_TensorOnItsWay], packed: list[_TensorOnItsWay]) -> list[DeviceArray]:
        """Begin the copies of some parts, and return their places."""
        outputs: list[Any] = [self._locked(part) for part in alone]
        if packed:
            outputs.append(PackedArrays(part.bytes for part in packed if part.bytes is not None))
        if not outputs:
            return []
        sent: list[Any] = self._uploader.send(outputs)
        return [*sent[: len(alone)], *(sent[-1] if packed else [])]

    def _locked(self, part: _TensorOnItsWay) -> NDArray[np.uint8]:
        """Return the bytes of a part in page-locked memory. Without, the process would wait for the GPU."""
        assert part.bytes is not None
        if self._pinned.covers(part.address, part.nbytes):
            return part.bytes
        staged = self._buffers.bytes(part.nbytes)
        np.copyto(staged, part.bytes)
        return staged

    def _begin_turn(self, parts: list[_TensorOnItsWay], turn: int) -> None:
        """Let the next copies go to the addresses of a turn.

        Raises:
            BatchSizeError: the batch has other tensors than the first one.
            BuffersInUseError: a tensor at these addresses is alive.
        """
        assert self._static is not None
        form = [part.form for part in parts]
        if self._form is None:
            self._form = form
        if form != self._form:
            raise BatchSizeError(
                f"static_buffers=True: a batch has {_described(form, self._form)}. All batches need the same shapes and "
                "dtypes: pass drop_last=True, and pad samples in collate_fn"
            )
        if not self._static.is_free(turn):
            gc.collect()  # tensors in cycles
        if not self._static.is_free(turn):
            raise BuffersInUseError(
                f"static_buffers=True: a tensor of batch {turn - self._static.num_turns}, or a view of one, is alive, and "
                f"batch {turn} needs its memory. Drop it, clone it, or raise prefetch_to_device, now {self.num_ahead}"
            )
        self._static.begin(turn)

    def _note_other(self, value: Any) -> Any:
        """An object that stays on the CPU may refer to a slot. The program may copy it to the GPU itself, and drop it."""
        if not isinstance(value, _PLAIN):
            self._pinned.fenced = True
        return value


#: dtype, shape and strides of a tensor.
_Form = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]


class _TensorOnItsWay:
    """A tensor of a batch, on its way.

    Attributes:
        source: the tensor on the CPU.
        bytes: its memory; None for tensors that PyTorch copies itself, and for empty ones.
        address: of that memory.
        made: the tensor on the GPU.
    """

    def __init__(self, source: torch.Tensor) -> None:
        self.source = source
        self.bytes: NDArray[np.uint8] | None = None
        self.address = 0
        self.made: torch.Tensor | None = None
        if _is_plain(source) and source.numel():
            if not _is_packed(source):
                self.source = source = source.contiguous()
            flat = torch.as_strided(source, (source.numel(),), (1,))
            self.bytes = flat.view(torch.uint8).numpy()
            self.address = source.data_ptr()

    @property
    def nbytes(self) -> int:
        """The size of its memory; 0 without."""
        return 0 if self.bytes is None else self.bytes.nbytes

    @property
    def form(self) -> _Form:
        """Its dtype, shape and strides."""
        source = self.source
        return source.dtype, tuple(source.shape), source.stride() if self.bytes is not None else ()

    def on_device(self, flat: torch.Tensor, place: torch.device) -> torch.Tensor:
        """Return the tensor over its memory on the GPU. It is not a view of another tensor."""
        source = self.source
        made = torch.empty(0, dtype=source.dtype, device=place)
        return made.set_(flat.untyped_storage(), 0, source.shape, source.stride())

    def result(self, place: torch.device) -> torch.Tensor:
        """Return the tensor on the GPU. PyTorch copies tensors without bytes of their own, such as sparse ones."""
        return self.source.to(place) if self.made is None else self.made


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the bytes of a tensor are all of it."""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_nested or tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _is_packed(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no gaps and no overlaps, in any order of its dimensions."""
    if tensor.is_contiguous():
        return True
    order = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()


def map_tensors(value: Any, function: Callable[[torch.Tensor], Any], other: Callable[[Any], Any]) -> Any:
    """Return a batch with other tensors, also in nested ones; see `dali_like.data.batch_trees.map_arrays`."""

    def mapped(tensor: torch.Tensor) -> Any:
        return _mapped_jagged(tensor, function) if tensor.is_nested else function(tensor)

    return map_arrays(value, torch.Tensor, mapped, other)


def _mapped_jagged(tensor: torch.Tensor, function: Callable[[torch.Tensor], Any]) -> Any:
    """Return a nested tensor with other components; the function gets those of the strided layout whole."""
    if tensor.layout is not torch.jagged:
        return function(tensor)
    nested: Any = tensor
    lengths = nested.lengths() if hasattr(nested, "lengths") else None
    if lengths is not None or nested._ragged_idx != 1 or nested.requires_grad:
        return function(tensor)
    return torch.nested.nested_tensor_from_jagged(function(nested.values()), function(nested.offsets()))


def _noted_in(sources: list[torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def note(tensor: torch.Tensor) -> torch.Tensor:
        sources.append(tensor)
        return tensor

    return note


def _unchanged(value: Any) -> Any:
    return value


def _described(form: list[_Form], first: list[_Form]) -> str:
    """Describe how a batch differs from the first one."""
    for (dtype, shape, strides), (first_dtype, first_shape, first_strides) in zip(form, first, strict=False):
        if (dtype, shape) != (first_dtype, first_shape):
            return f"a tensor of {dtype} and shape {shape}, where the first one has {first_dtype} and shape {first_shape}"
        if strides != first_strides:
            return f"a tensor with strides {strides}, where the first one has {first_strides}"
    return f"{len(form)} tensors, where the first one has {len(first)}"
