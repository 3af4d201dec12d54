"""The base class of readers, and its decorator.

A reader is a class with samples by index. `reader` makes ``fn.readers.lines`` and ``ops.readers.Lines`` of it::

    import numpy as np
    from dali_like.readers import BrokenFileError, Reader, reader

    @reader
    class Lines(Reader):
        \"""Reads the lines of a text file, and their numbers.

        Args:
            path: path or URL of the file.
        \"""

        num_outputs = 2  # default None: the function returns one node instead of a list
        dtype = np.uint8, np.int32  # also `ndim` and `layout`: one value per output, as for fn.external_source

        def __init__(self, *, path: str) -> None:  # checks arguments, and reads nothing
            self.path = path

        def prepare(self) -> None:  # once, in the main process, before the workers start: lists files, reads indexes
            data = self.files.read_now(self.path).tobytes()
            self.ends = np.cumsum([0] + [len(line) for line in data.splitlines(keepends=True)])
            if not data.endswith(b"\\n"):
                raise BrokenFileError(f"{self.path} does not end with a line feed: complete it", self.path, len(data))

        def __len__(self) -> int:
            return len(self.ends) - 1

        async def read(self, index: int, info: SampleInfo) -> Any:  # in the workers; a plain `def` is fine without files
            start, end = self.ends[index : index + 2].tolist()
            return await self.files.read(self.path, start, end, info.empty), np.array([index], np.int32)

`read` may be called for any index, in any order, and in several workers or threads. Its result depends on the index alone.
The reader travels to the workers with all its attributes: keep large tables in arrays, and names in a `FileNames`. Files,
pools and handles of libraries are opened at the first `read` in each worker.

The decorated function has the arguments of ``__init__``, with the annotations of `dali_like.operators.parameters`, and
besides the arguments of all readers: see `dali_like.sources.readers.reader_order.ReaderOptions`, ``on_error``, ``name`` and
more.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, overload

from dali_like.errors import DefinitionError
from dali_like.sources.readers.stored_files import FileNames, StoredFiles, is_url
from dali_like.types import SampleInfo

__all__ = ["Reader", "reader"]

AnyReader = TypeVar("AnyReader", bound="type[Reader]")

#: All readers by their names in ``fn``; see `dali_like.sources.readers.registered`.
registry: dict[str, type[Reader]] = {}


class Reader(ABC):
    """Samples by index, for ``fn.readers``. docs/how-to/readers.md has an example.

    A class may set attributes, or define them as properties that depend on the arguments:

    - ``num_outputs``: the number of outputs. None, the default: a sample is one array, and the function returns one node.
    - ``output_names``: the function returns a dict of nodes with these names.
    - ``dtype``, ``ndim``, ``layout``: of the outputs, as for ``fn.external_source``.
    - ``behind``: path of an operator that the function applies to the first output, if it gets arguments of that operator.
      The function then has these arguments, too, and nodes are allowed for them. Not a property.
    """

    num_outputs: int | None = None
    output_names: Sequence[str] = ()
    dtype: Any = None
    ndim: int | Sequence[int | None] | None = None
    layout: str | Sequence[str] | None = None
    behind: ClassVar[str] = ""
    #: Whether `shuffle_after_epoch` shuffles files with many samples each; then `file_sizes` says how many.
    shuffles_files: ClassVar[bool] = False
    # The name in ``fn``, such as "readers.file". Set by the decorator.
    path: ClassVar[str] = ""
    # Set behind ``__init__``: arguments of `RemoteFiles`, whether built indexes are stored, and whether there is an operator
    # behind.
    remote_options: Mapping[str, Any] | None = None
    stores_indexes: bool = True
    has_operator_behind: bool = False

    def prepare(self) -> None:  # noqa: B027  # some readers have nothing to prepare
        """List files and read indexes. Called once, in the main process, before the workers start.

        Raises:
            Exception: the data cannot be used. The build of the pipeline raises it.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples, of all shards together. Called after `prepare`."""

    @abstractmethod
    def read(self, index: int, info: SampleInfo) -> Any:
        """Return a sample: an array, or a tuple of `num_outputs` arrays. May be a coroutine function.

        Args:
            index: number of the sample, from 0 on.
            info: of the position in the stream. `SampleInfo.empty` gives memory, `SampleInfo.rng` random numbers.

        Raises:
            FileReadError: a file is missing or broken.
        """

    def file_sizes(self) -> Sequence[int]:
        """Return the number of samples in each file, for readers that shuffle files. Called after `prepare`."""
        raise NotImplementedError

    def why_empty(self) -> str:
        """Return the message for the case that `prepare` has found no samples: the result of the search, and the remedy."""
        return "No files found. Check the paths and filters"

    def source_info(self, index: int, output: int) -> str:
        """Return the origin of a sample, usually the name of its file, for ``fn.get_property``. Called in the workers.

        Args:
            index: number of the sample.
            output: number of the output.
        """
        return ""

    def input_paths(self) -> Iterator[str]:
        """Yield the paths of the input files, among other texts, for the fingerprint of a cache on disk.

        By default: all texts in attributes, also relative to the attribute ``_root``.
        """
        root = vars(self).get("_root") or ""
        for value in vars(self).values():
            texts = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple, FileNames)) else ()
            for text in texts:
                if isinstance(text, str):
                    yield os.path.join(root, text)

    @property
    def is_remote(self) -> bool:
        """Whether `read` awaits a store or server, so that a worker should read several samples at once.

        Asked after `prepare`. By default: whether any attribute is a URL, or holds URLs.
        """
        return any(map(_holds_url, vars(self).values()))

    @functools.cached_property
    def files(self) -> StoredFiles:
        """The only way to files."""
        return StoredFiles(self.remote_options, stores_indexes=self.stores_indexes)


def _holds_url(value: Any) -> bool:
    if isinstance(value, str):
        return is_url(value)
    if isinstance(value, FileNames):
        return value.have_urls
    return isinstance(value, (list, tuple)) and any(isinstance(part, str) and is_url(part) for part in value)


@overload
def reader(cls: AnyReader, /) -> AnyReader: ...


@overload
def reader(*, path: str) -> Callable[[AnyReader], AnyReader]: ...


def reader(cls: Any = None, /, *, path: str = "") -> Any:
    """Make a class derived from `Reader` available in ``fn`` and ``ops``.

    Args:
        path: name in ``fn``, such as "experimental.readers.video". Default: "readers" and the name of the class, in lower
            case with underscores.

    Raises:
        DefinitionError: the class does not derive from `Reader`, or ``__init__`` has positional arguments.
    """

    def register(cls: Any) -> Any:
        if not (isinstance(cls, type) and issubclass(cls, Reader)):
            raise DefinitionError(f"@reader is for classes that derive from Reader, not for {cls!r}")
        for parameter in inspect.signature(cls).parameters.values():
            if parameter.kind is not parameter.KEYWORD_ONLY:
                raise DefinitionError(
                    f"{cls.__qualname__}.__init__: the argument {parameter.name} must be keyword-only: put a * before it"
                )
        cls.path = path or "readers." + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        registry[cls.path] = cls
        return cls

    return register if cls is None else register(cls)
