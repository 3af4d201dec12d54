"""Source bundles: the pickled sources in one sealed anonymous file, which all spawned workers map.

The main process packs a bundle (`memfd_create`) and sends its descriptor to the forkserver. Workers inherit it, map the
file, and unpickle the sources. Large arrays lie in the file without a pickle, each at the start of a page, and become views
of the mapping. The mapping is private (MAP_PRIVATE): pages that a worker writes to become its own; all other pages exist
once for all workers.

Under spawn, the main process keeps the descriptor of the newest bundle, for another forkserver after the death of this one,
but no mapping. The memory is freed when the pool is closed or gets another bundle, and the last worker with a mapping has
ended. The file is sealed, so that no process can change it.

::

    | buffers, aligned to pages | pickles of the sources | index with their places | offset of the index: 8 bytes |

Large containers of plain values lie there, too, apart from the pickles; see `dali_like.sources.plain_parts`. If there are
several workers, the forkserver loads them before it forks the workers: once for all, and workers share the pages.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import importlib
import io
import marshal
import mmap
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from dali_like.engine.backends.inherited import inheriting
from dali_like.engine.backends.main_import import MainModule
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import available_bytes
from dali_like.engine.memory.protocol import PAGE_BYTES, WORD_BYTES, align
from dali_like.engine.memory.space import mib
from dali_like.engine.memory.system_calls import anonymous_file, seal
from dali_like.engine.worker.output import held_output
from dali_like.engine.worker.source import PickledSource, Source, SourcePickler
from dali_like.errors import OutOfMemoryError

#: Threads of a program take turns: `inheriting` is for one of them at a time.
_copying = threading.Lock()

#: Size of a write. Ctrl-C does not interrupt a write, so large data take several.
_WRITE_BYTES = 64 << 20


def pickle_sources(sources: Iterable[Source], pickler: SourcePickler) -> list[PickledSource]:
    """Pickle sources.

    Raises:
        PicklingError: a source cannot be pickled.
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


def pack(sources: Sequence[Source], pickled: Sequence[PickledSource]) -> tuple[Descriptor, ...]:
    """Pack sources into a bundle. Return its descriptor, and the descriptors that workers inherit with the sources.

    Raises:
        OutOfMemoryError: there is no memory for the bundle.
    """
    buffers = [buffer.raw() for source in pickled for buffer in source.buffers]
    nbytes = sum(align(buffer.nbytes, PAGE_BYTES) for buffer in buffers)
    nbytes += sum(len(data) for source in pickled for data in (source.data, *source.plain))
    available = available_bytes()
    if nbytes > available:
        raise OutOfMemoryError(
            f"workers need {mib(nbytes)} for sources or a dataset with their arrays, and {mib(available)} are available: "
            f"{mib(nbytes - available)} are missing. Read large data from files in the workers, start workers by fork "
            "instead of spawn, to share the memory of the main process, or give the process more memory"
        )
    bundle = Descriptor(anonymous_file("dali_like_sources"))
    try:
        _write_file(bundle.fileno(), sources, pickled)
    except OSError as error:
        bundle.close()
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        raise OutOfMemoryError(
            f"workers need {mib(nbytes)} for the sources, which the system refuses; give the process more memory"
        ) from error
    seal(bundle.fileno(), "SHRINK", "GROW", "WRITE")
    return bundle, *(descriptor for source in pickled for descriptor in source.descriptors)


class SourceBundle:
    """A received bundle, in the forkserver and in workers. It owns its descriptors.

    Args:
        descriptor: the descriptor of the bundle.
        inherited: descriptors of the objects in its sources; see `dali_like.engine.backends.inherited`.
    """

    def __init__(self, descriptor: Descriptor, *inherited: Descriptor) -> None:
        self._descriptor = descriptor
        self._inherited = inherited
        self._index = _read_index(descriptor.fileno())  # once for all workers that the forkserver forks
        self._plain: list[tuple[Any, ...]] | None = None

    def import_modules(self) -> None:
        """Import the modules of the sources in the forkserver, so that workers need not. The main module is the first.

        A failed import is silent here: workers import the module again, and the user sees their errors. Workers do not have
        threads that a module starts at its import. Of NumPy, SciPy, PyTorch, OpenCV and scikit-learn, only OpenBLAS starts
        threads then; it ends them before a fork, and starts new ones on demand.
        """
        if self._index.main is not None:
            _try(self._index.main.load)
        for name in self._index.modules:
            if name not in sys.modules:
                _try(functools.partial(importlib.import_module, name))

    def load_plain_parts(self) -> None:
        """Load the large containers of plain values in the forkserver, so that workers need not."""
        view = memoryview(mmap.mmap(self._descriptor.fileno(), 0, access=mmap.ACCESS_READ))
        with collector_paused(), contextlib.suppress(MemoryError):  # which a worker may report
            self._plain = [source.load_plain(view) for source in self._index.sources]

    def unpack(self) -> list[Source]:
        """Unpickle the sources, and close the bundle. Arrays of the sources keep the mapping."""
        with collector_paused():
            sources = self._load(self._index)
        self._plain = None
        self.close()
        return sources

    def copy(self) -> list[Source]:
        """Unpickle the sources in a thread of the program, and keep the bundle for other threads."""
        with _copying:
            return self._load(_read_index(self._descriptor.fileno()))  # threads share no part of a source

    def _load(self, index: _Index) -> list[Source]:
        view = memoryview(mmap.mmap(self._descriptor.fileno(), 0, access=mmap.ACCESS_COPY))
        if index.main is not None:
            index.main.load()
        with inheriting(self._inherited):
            plain = self._plain or [source.load_plain(view) for source in index.sources]
            return [source.unpack(view, parts) for source, parts in zip(index.sources, plain, strict=True)]

    def close(self) -> None:
        """Close the descriptors. Unpickled sources stay valid."""
        for descriptor in (self._descriptor, *self._inherited):
            descriptor.close()


class _ByteRange(NamedTuple):
    start: int
    stop: int

    def of(self, view: memoryview) -> memoryview:
        return view[self.start : self.stop]


class _PackedSource(NamedTuple):
    bare: Source  # the source without its functions
    data: _ByteRange
    buffers: tuple[_ByteRange, ...]
    plain: tuple[_ByteRange, ...]

    def load_plain(self, view: memoryview) -> tuple[Any, ...]:
        return tuple(marshal.loads(extent.of(view)) for extent in self.plain)

    def unpack(self, view: memoryview, plain: tuple[Any, ...]) -> Source:
        data, buffers = self.data.of(view), [extent.of(view) for extent in self.buffers]
        if plain:
            unpickler = _Unpickler(io.BytesIO(data), buffers=buffers)
            unpickler.plain = plain
            callback, on_error, setup, teardown = unpickler.load()
        else:
            callback, on_error, setup, teardown = pickle.loads(data, buffers=buffers)
        return self.bare._replace(callback=callback, on_error=on_error, worker_setup=setup, worker_teardown=teardown)


class _Unpickler(pickle.Unpickler):
    plain: tuple[Any, ...] = ()

    def persistent_load(self, pid: int) -> Any:
        return self.plain[pid]


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector: it would visit each of many new objects again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Index(NamedTuple):
    modules: tuple[str, ...]
    main: MainModule | None
    sources: tuple[_PackedSource, ...]


def _write_file(fd: int, sources: Sequence[Source], pickled: Sequence[PickledSource]) -> None:
    end = 0

    def append(data: Any) -> _ByteRange:
        nonlocal end
        start = end
        with memoryview(data) as rest:
            while end < start + len(rest):
                end += os.pwrite(fd, rest[end - start : end - start + _WRITE_BYTES], end)
        return _ByteRange(start, end)

    def append_pages(buffer: pickle.PickleBuffer) -> _ByteRange:
        nonlocal end
        end = align(end, PAGE_BYTES)
        return append(buffer.raw())

    # Buffers of all sources come first: the data after the last one need no alignment.
    buffers = [tuple(map(append_pages, source.buffers)) for source in pickled]
    packed = [
        _PackedSource(without_functions(source), append(parts.data), extents, tuple(map(append, parts.plain)))
        for source, parts, extents in zip(sources, pickled, buffers, strict=True)
    ]
    modules = dict.fromkeys(name for source in pickled for name in source.modules)
    main = next((source.main for source in pickled if source.main is not None), None)
    index = append(pickle.dumps(_Index(tuple(modules), main, tuple(packed)), pickle.HIGHEST_PROTOCOL))
    append(index.start.to_bytes(WORD_BYTES, "little"))


def _read_index(fd: int) -> _Index:
    end = os.fstat(fd).st_size - WORD_BYTES
    start = int.from_bytes(os.pread(fd, WORD_BYTES, end), "little")
    return _Index(*pickle.loads(os.pread(fd, end - start, start)))


def without_functions(source: Source) -> Source:
    """Return a source without its functions, which have a pickle of their own, and without its task size."""
    return source._replace(
        callback=_elsewhere, task_size=None, on_error="raise", worker_setup=None, worker_teardown=None, caches=()
    )


def _elsewhere(info: Any) -> NoReturn:
    """Stand in for a callback."""
    raise NotImplementedError


def _try(load: Callable[[], object]) -> None:
    try:
        with held_output():
            load()
    except (Exception, SystemExit):  # modules run user code
        pass
