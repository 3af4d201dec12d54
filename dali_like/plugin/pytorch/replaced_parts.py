"""Finds the parts of PyTorch's loader that the program has replaced, and that this library's iterators would not call.

Libraries patch PyTorch's classes, for example to skip batches when they resume, and expect that each loader obeys. Such a
loader gets PyTorch's own iterator instead. Each iterator looks anew, because programs patch at any time.

An original function has the globals of one of PyTorch's modules. That needs no copy of the originals, so parts that were
replaced before this module was imported are found, too.
"""

from __future__ import annotations

import functools
import multiprocessing.context
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch.multiprocessing
from torch.utils.data import dataloader as torch_dataloader
from torch.utils.data._utils import fetch, pin_memory
from torch.utils.data._utils import worker as torch_worker

from dali_like.common.notices import warn
from dali_like.data.options import OwnContext

__all__ = ["TorchDataLoader", "is_original", "reason_of", "replaced_part", "warn_of_part"]

if TYPE_CHECKING:  # type checkers follow no expression in a list of base classes
    from torch.utils.data import DataLoader as TorchDataLoader
else:
    #: PyTorch's class itself. The name in its module may be this library's class meanwhile; see `dali_like.running.hook`.
    TorchDataLoader = vars(torch_dataloader).get("_dali_like_original") or torch_dataloader.DataLoader

#: Modules whose functions wrap PyTorch's in decorators.
_DECORATORS = ("typing_extensions", "warnings", "functools", "contextlib")
#: Start methods of contexts that this library's workers can replace.
_PROCESSES = {getattr(multiprocessing.context, f"{name}Process", None) for name in ("Fork", "Spawn", "ForkServer")} | {
    multiprocessing.context.Process
}


def replaced_part(loader: Any) -> str | None:
    """Return the name of a part of PyTorch's loader that the program has replaced, or None.

    Args:
        loader: a loader that is about to begin an iterator.
    """
    has_workers, pins = bool(loader.num_workers), bool(loader.pin_memory)
    parts = _parts_for(has_workers, pins)
    seen, part = _seen.get((has_workers, pins), _UNSEEN)
    if parts != seen:
        part = next(_replaced(has_workers, pins), None)
        _seen[has_workers, pins] = parts, part
    if part is not None or not has_workers:
        return part
    return next(_replaced_in_context(getattr(loader, "multiprocessing_context", None)), None)


@functools.cache
def warn_of_part(part: str) -> None:
    """Warn, once for each part, that a loader gets PyTorch's own iterator."""
    warn(
        f"{reason_of(part)}. It has PyTorch's speed and random numbers, and no state_dict. To avoid this warning, make the "
        "loader with torch.utils.data.DataLoader",
        UserWarning,
    )


def reason_of(part: str) -> str:
    """Return the reason for PyTorch's iterator, for warnings, errors and reports."""
    return f"this loader uses PyTorch's iterator, because the program replaces {part}"


def is_original(value: Any) -> bool:
    """Return whether an attribute of one of PyTorch's classes or modules is PyTorch's."""
    function = getattr(value, "__func__", value)
    if not callable(function):
        return True
    if isinstance(function, type):
        return function.__module__.partition(".")[0] == "torch"
    module = str(getattr(function, "__globals__", {}).get("__name__"))
    if module in _DECORATORS and hasattr(function, "__wrapped__"):
        return is_original(function.__wrapped__)
    return module.partition(".")[0] == "torch"


_CLASSES = (
    (torch_dataloader, "_BaseDataLoaderIter"),
    (torch_dataloader, "_MultiProcessingDataLoaderIter"),
    (torch_dataloader, "_SingleProcessDataLoaderIter"),
    (torch_dataloader, "_DatasetKind"),
    (fetch, "_MapDatasetFetcher"),
    (fetch, "_IterableDatasetFetcher"),
)
#: The iterator that a loader does not use, without and with workers.
_UNUSED = ("_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter")
_UNSEEN: tuple[list[Any], str | None] = ([], None)
#: The parts that all loaders share, with and without workers and pinning, and the first replaced one. It is searched again
#: only if a part is another object than before.
_seen: dict[tuple[bool, bool], tuple[list[Any], str | None]] = {}
#: ``__iter__`` of PyTorch's loader. If the program has replaced it before, nothing is equal to this.
ITER = TorchDataLoader.__iter__ if is_original(TorchDataLoader.__iter__) else None


def _parts_for(has_workers: bool, pins: bool) -> list[Any]:
    """Return all objects that `_replaced` looks at."""
    loader = vars(TorchDataLoader)
    parts = [loader["__iter__"], loader["_get_iterator"]]
    for module, name in _CLASSES:
        parts.append(kind := getattr(module, name))
        if name != _UNUSED[has_workers]:
            parts += kind.__dict__.values()
    if has_workers:
        parts.append(torch_worker._worker_loop)
    if pins:
        parts += pin_memory.pin_memory, pin_memory._pin_memory_loop
    return parts


def _replaced(has_workers: bool, pins: bool) -> Iterator[str]:
    yield from _replaced_in(TorchDataLoader, "DataLoader", ("__iter__", "_get_iterator"))
    for module, name in _CLASSES:
        kind = getattr(module, name)
        if kind.__module__ != module.__name__:
            yield name
        elif name != _UNUSED[has_workers]:
            # `__del__` is replaced to silence it, and does not concern batches.
            yield from _replaced_in(kind, name, tuple(vars(kind).keys() - {"__del__"}))
    if has_workers:
        yield from _replaced_in(torch_worker, "_utils.worker", ("_worker_loop",))
    if pins:
        yield from _replaced_in(pin_memory, "_utils.pin_memory", ("pin_memory", "_pin_memory_loop"))


def _replaced_in(owner: Any, shown: str, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the names of replaced functions of a class or module."""
    values = vars(owner)
    for name in names:
        if not is_original(values[name]):
            yield f"{shown}.{name}"


def _replaced_in_context(context: Any) -> Iterator[str]:
    """Yield the properties of a multiprocessing context that this library's workers would not have."""
    if isinstance(context, OwnContext):
        return
    if context is None:
        if torch.multiprocessing.Process is not multiprocessing.context.Process:
            yield "torch.multiprocessing.Process"
        return
    name = f"multiprocessing_context={type(context).__name__}"
    if context.Process not in _PROCESSES:
        yield f"{name}.Process"
    for part in ("Queue", "Event"):
        if getattr(getattr(context, part), "__func__", None) is not vars(multiprocessing.context.BaseContext)[part]:
            yield f"{name}.{part}"
