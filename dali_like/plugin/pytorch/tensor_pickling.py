"""Out-of-band pickling of PyTorch tensors, for sources of spawned workers and for batches from workers.

PyTorch itself copies the memory of a tensor into the pickle; for a view, it copies the whole storage. Here, a tensor is
pickled as a NumPy array of its elements, which protocol 5 can leave out of band (PEP 574). The unpickled tensor is a view of
that array.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

#: By element size, the dtype of the array: integers, because NumPy has no bfloat16 or float8, and none of 16 bytes.
_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """Reduce a tensor: an entry for ``copyreg``, a ``dispatch_table`` or `dali_like.sources.travel.register`.

    It is for the classes ``torch.Tensor`` and ``torch.nn.Parameter`` themselves. It keeps dtype, shape, strides (unless
    there are gaps), requires_grad and the class. It does not keep memory shared by several tensors. The buffers for
    ``pickle.loads`` must be writable. PyTorch itself pickles other tensors: sparse, quantized or with hooks, for example.

    Returns:
        A result for ``__reduce__``.
    """
    if not _is_plain(tensor):
        return tensor.__reduce_ex__(5)
    elements = tensor.detach().resolve_conj().resolve_neg()
    shape = elements.shape
    # Of a dimension with stride 0, one element is enough.
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
