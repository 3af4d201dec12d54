"""Tensors of PyTorch as pickles that leave their memory apart: to sources of spawned workers, and with batches from workers.

Of its own accord PyTorch writes the memory of a tensor into the pickle, the whole storage even where the tensor is a small
part of it. Here a tensor is pickled as a NumPy array of its elements, which protocol 5 can leave out of band (PEP 574), and
is a view of that array's memory afterwards.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

#: NumPy knows neither bfloat16 nor the float8 types. So elements travel as integers, except those for which there are none.
_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """How to pickle a tensor: an entry for ``copyreg``, a ``dispatch_table`` or `dali_like.sources.by_value.register`.

    For the classes ``torch.Tensor`` and ``torch.nn.Parameter`` themselves. Dtype, shape, strides (unless there are gaps),
    requires_grad and the class are kept; that two tensors share memory is not. The buffers that ``pickle.loads`` is given
    must be writable. Tensors that are more than elements on the CPU, sparse, quantised or with hooks say, are pickled as
    PyTorch does it.

    Returns:
        what ``__reduce__`` may return.
    """
    if not _is_plain(tensor):
        return tensor.__reduce_ex__(5)
    elements = tensor.detach().resolve_conj().resolve_neg()
    shape = elements.shape
    # Dimensions along which all elements are the same memory travel as one.
    elements = elements[tuple(slice(0, 1) if step == 0 else slice(None) for step in elements.stride())]
    order = sorted(range(elements.ndim), key=elements.stride, reverse=True)
    array = elements.permute(order).contiguous().view(_CARRIERS[tensor.element_size()]).numpy()
    is_parameter = type(tensor) is torch.nn.Parameter
    return _make_tensor, (array, tensor.dtype, tuple(order), tuple(shape), tensor.requires_grad, is_parameter)


def _make_tensor(
    array: NDArray[Any],
    dtype: torch.dtype,
    order: tuple[int, ...],
    shape: tuple[int, ...],
    requires_grad: bool,
    is_parameter: bool,
) -> torch.Tensor:
    back = sorted(range(len(order)), key=order.__getitem__)
    tensor = torch.from_numpy(array).view(dtype).permute(back).expand(shape)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        not tensor.is_nested
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and tensor.element_size() in _CARRIERS
        and not (tensor.__dict__ or tensor._backward_hooks)
    )
