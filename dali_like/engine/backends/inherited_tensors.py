"""Tensors of PyTorch in shared memory, which spawned workers share with the program; see `Tensor.share_memory_`.

Runs in the main process, within `dali_like.engine.backends.inherited.InheritedObjects`. A pickle names the storage of such a
tensor, as with ``torch.multiprocessing``: by its descriptor, or by the name of its file in /dev/shm, as
``torch.multiprocessing.set_sharing_strategy`` says. Views of one storage stay views of one storage.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing import get_sharing_strategy
from torch.multiprocessing.reductions import rebuild_storage_fd, rebuild_typed_storage, storage_from_cache

from dali_like.engine.backends.inherited import Inherited

if TYPE_CHECKING:
    from dali_like.engine.backends.inherited import InheritedObjects


def _reduce_tensor(tensor: Any, objects: InheritedObjects) -> Any:
    is_shared = tensor.device.type == "cpu" and tensor.layout is torch.strided and _is_shared(tensor.untyped_storage())
    return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL) if is_shared else NotImplemented


def _reduce_typed_storage(storage: Any, objects: InheritedObjects) -> Any:
    if not _is_shared(storage._untyped_storage):
        return NotImplemented
    return rebuild_typed_storage, (storage._untyped_storage, storage.dtype)


def _reduce_storage(storage: Any, objects: InheritedObjects) -> Any:
    if not _is_shared(storage):
        return NotImplemented
    if get_sharing_strategy() == "file_system":
        return _attach, storage._share_filename_cpu_()
    fd, nbytes = storage._share_fd_cpu_()
    return _inherit, (Inherited(objects.lend_to_child(fd, storage)), type(storage), nbytes)


def _is_shared(storage: Any) -> bool:
    """Return whether other processes can attach the memory. Memory of a file, by ``torch.from_file``, has no descriptor."""
    if storage.device.type != "cpu" or not storage.is_shared() or not storage.nbytes():
        return False
    return storage.filename is None and (get_sharing_strategy() == "file_system" or storage._share_fd_cpu_()[0] >= 0)


def _inherit(inherited: Inherited, kind: type, nbytes: int) -> Any:
    """Return the storage of an inherited descriptor. A dataset of many tensors has many of them."""
    return inherited.become(lambda descriptor: rebuild_storage_fd(kind, descriptor, nbytes))


def _attach(manager: bytes, handle: bytes, nbytes: int) -> Any:
    """Attach memory that has a name. PyTorch's own function gives up a reference, and each worker reads the same pickle."""
    storage = storage_from_cache(torch.UntypedStorage, handle)
    return torch.UntypedStorage._new_shared_filename_cpu(manager, handle, nbytes) if storage is None else storage


#: By class, the reducers of its direct instances. They return NotImplemented for memory that is not shared.
REDUCERS = {
    torch.Tensor: _reduce_tensor,
    torch.nn.Parameter: _reduce_tensor,
    torch.TypedStorage: _reduce_typed_storage,
    torch.UntypedStorage: _reduce_storage,
}
