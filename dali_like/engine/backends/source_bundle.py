"""Sources on their way to processes that do not have them: pickled, in one file that all workers map.

The main process packs a bundle, an anonymous file (`memfd_create`), and gives the forkserver its descriptor. Workers inherit
that, map the file, and unpickle the sources for themselves. Large arrays lie in the file as they are, each at the start of a
page, and are views of the mapping afterwards. It is private (MAP_PRIVATE): what a worker writes into an array is its own
from then on, page by page; all the rest is there once, however many workers there are.

The main process keeps neither the file nor a copy. The memory is gone when the forkserver and the last worker that has
mapped
it are, and nobody can change it: the file is sealed.

::

    | buffers, page by page | pickles of the sources | index: what lies where | where the index begins: 8 bytes |
"""

from __future__ import annotations

import errno
import fcntl
import importlib
import mmap
import os
import pickle
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from dali_like.engine.backends.inherited import inheriting
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import available_bytes
from dali_like.engine.memory.protocol import PAGE_BYTES, WORD_BYTES, align
from dali_like.engine.memory.space import mib
from dali_like.engine.worker.output import held_output
from dali_like.engine.worker.source import PickledSource, Source, SourcePickler
from dali_like.errors import OutOfMemoryError

#: A write is not interrupted by Ctrl-C, so that a large one is done in several.
_WRITE_BYTES = 64 << 20


def pickle_sources(sources: Iterable[Source], pickler: SourcePickler) -> list[PickledSource]:
    """Pickle sources.

    Raises:
        PicklingError: one of them refuses.
    """
    return [
        pickler(
            {
                "source": source.callback,
                "on_error": source.on_error,
                "worker_setup": source.worker_setup,
                "worker_teardown": source.worker_teardown,
            },
            source.name,
        )
        for source in sources
    ]


def pack(sources: Sequence[Source], pickled: Sequence[PickledSource]) -> Descriptor:
    """Put sources into a bundle; its descriptor.

    Raises:
        OutOfMemoryError: there is no memory for it.
    """
    buffers = [buffer.raw() for source in pickled for buffer in source.buffers]
    nbytes = sum(align(buffer.nbytes, PAGE_BYTES) for buffer in buffers) + sum(len(source.data) for source in pickled)
    _check_memory(nbytes)
    bundle = Descriptor(os.memfd_create("dali_like_sources", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    try:
        _write_file(bundle.fileno(), sources, pickled)
    except OSError as error:
        bundle.close()
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        raise OutOfMemoryError(f"workers need {mib(nbytes)} for the sources, which the system refuses") from error
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    fcntl.fcntl(bundle, fcntl.F_ADD_SEALS, seals)
    return bundle


class SourceBundle:
    """A bundle that has arrived.

    Args:
        fd: its descriptor, which is the bundle's from now on.
        inherited: the descriptors that have come with it, likewise.
    """

    def __init__(self, fd: int, *inherited: int) -> None:
        self._fd = Descriptor(fd)
        self._inherited = tuple(map(Descriptor, inherited))

    def import_modules(self) -> None:
        """Import what the sources refer to, so that workers that are forked from this process need not.

        What does not succeed is left to them, and with it whatever it would print: theirs are the errors that the user sees.
        Threads that a module starts at its import are not there in the workers. Of NumPy, SciPy, PyTorch, OpenCV and
        scikit-learn, none does that but for those of OpenBLAS, which ends them before a fork and starts others when it needs
        them.
        """
        for name in _read_index(self._fd.fileno()).modules:
            if name not in sys.modules:
                _try_import(name)

    def unpack(self) -> list[Source]:
        """The sources. The bundle is closed: their arrays keep what they need of it."""
        view = memoryview(mmap.mmap(self._fd.fileno(), 0, access=mmap.ACCESS_COPY))
        packed = _read_index(self._fd.fileno()).sources
        with inheriting(self._inherited):
            sources = [source.unpack(view) for source in packed]
        self.close()
        return sources

    def close(self) -> None:
        """Give it up, without regard to what has been unpacked."""
        for descriptor in (self._fd, *self._inherited):
            descriptor.close()


class _Extent(NamedTuple):
    start: int
    stop: int

    def of(self, view: memoryview) -> memoryview:
        return view[self.start : self.stop]


class _PackedSource(NamedTuple):
    bare: Source  # without its functions
    data: _Extent
    buffers: tuple[_Extent, ...]

    def unpack(self, view: memoryview) -> Source:
        buffers = [extent.of(view) for extent in self.buffers]
        callback, on_error, setup, teardown = pickle.loads(self.data.of(view), buffers=buffers)
        return self.bare._replace(callback=callback, on_error=on_error, worker_setup=setup, worker_teardown=teardown)


class _Index(NamedTuple):
    modules: tuple[str, ...]
    sources: tuple[_PackedSource, ...]


def _check_memory(nbytes: int) -> None:
    available = available_bytes()
    if nbytes > available:
        raise OutOfMemoryError(
            f"workers need {mib(nbytes)} for sources or a dataset, and the arrays in them, and {mib(available)} are "
            f"available: {mib(nbytes - available)} are missing. Let workers read from files what is so large, start them by "
            "fork instead of spawn, which shares it with the main process, or give the process more memory"
        )


def _write_file(fd: int, sources: Sequence[Source], pickled: Sequence[PickledSource]) -> None:
    end = 0

    def append(data: Any) -> _Extent:
        nonlocal end
        start = end
        with memoryview(data) as rest:
            while end < start + len(rest):
                end += os.pwrite(fd, rest[end - start : end - start + _WRITE_BYTES], end)
        return _Extent(start, end)

    def append_pages(buffer: pickle.PickleBuffer) -> _Extent:
        nonlocal end
        end = align(end, PAGE_BYTES)
        return append(buffer.raw())

    # Those of all sources first: what comes after the last one need not be aligned.
    buffers = [tuple(map(append_pages, source.buffers)) for source in pickled]
    packed = [
        _PackedSource(without_functions(source), append(parts.data), extents)
        for source, parts, extents in zip(sources, pickled, buffers, strict=True)
    ]
    modules = dict.fromkeys(name for source in pickled for name in source.modules)
    index = append(pickle.dumps(_Index(tuple(modules), tuple(packed)), pickle.HIGHEST_PROTOCOL))
    append(index.start.to_bytes(WORD_BYTES, "little"))


def _read_index(fd: int) -> _Index:
    end = os.fstat(fd).st_size - WORD_BYTES
    start = int.from_bytes(os.pread(fd, WORD_BYTES, end), "little")
    return _Index(*pickle.loads(os.pread(fd, end - start, start)))


def without_functions(source: Source) -> Source:
    """What users give travels in a pickle of its own, and how batches are cut is the main process's affair."""
    return source._replace(callback=_elsewhere, task_size=None, on_error="raise", worker_setup=None, worker_teardown=None)


def _elsewhere(info: Any) -> NoReturn:
    """In the place of a callback."""
    raise NotImplementedError


def _try_import(name: str) -> None:
    try:
        with held_output():
            importlib.import_module(name)
    except (Exception, SystemExit):  # whatever a user's module does
        pass
