"""Readers as sources of the engine: a stream without an end. The main process owns it; the workers call its callback.

Every pipeline imports this module, so it imports neither files nor readers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dali_like.common.class_names import class_name
from dali_like.errors import ArgumentError, DefinitionError
from dali_like.types import SampleInfo

if TYPE_CHECKING:
    from dali_like.sources.readers.reader import Reader
    from dali_like.sources.readers.reader_order import ReaderOptions, ReaderOrder


class ReaderStream:
    """A reader with its arguments: the endless stream of its samples. Owned by the main process.

    Args:
        reader: the reader.
        options: the order of samples.
        arguments: the arguments from which ``fn`` can make the same reader again.
        is_lazy: whether `Pipeline.build` leaves the preparation of the reader to the first run.

    Attributes:
        reader, options, arguments, is_lazy: as given.
        infos: numbers of the outputs that are origins of samples, each with the number of the output of those samples.
    """

    def __init__(
        self, reader: Reader, options: ReaderOptions, arguments: Mapping[str, Any], *, is_lazy: bool = False
    ) -> None:
        self.reader = reader
        self.options = options
        self.arguments = arguments
        self.is_lazy = is_lazy
        self.infos: dict[int, int] = {}
        self._size: int | None = None

    def number_of_info(self, output: int) -> int | None:
        """Return the number of the output that is the origin of another one, or of itself, or None."""
        return next((number for number, other in self.infos.items() if output in (number, other)), None)

    @property
    def class_name(self) -> str:
        """Name of the reader's class in ``ops``, without modules."""
        return class_name(type(self.reader).path.rpartition(".")[2])

    def label(self, name: str | None) -> str:
        """Return the name of the reader in messages."""
        return f"fn.{type(self.reader).path}" + (f" {name!r}" if name else "")

    @property
    def size(self) -> int:
        """Number of samples of all shards together. The first access prepares the reader.

        Raises:
            ArgumentError: there are no samples, or fewer than shards.
            Exception: an exception of `Reader.prepare`.
        """
        if self._size is None:
            self.reader.prepare()
            size = len(self.reader)
            if not size:
                raise ArgumentError(f"fn.{type(self.reader).path}: {self.reader.why_empty()}")
            self.options.check_size(size)
            self._size = size
        return self._size

    @property
    def meta(self) -> dict[str, int]:
        """The result of `Pipeline.reader_meta`."""
        return self.options.meta(self.size)

    def num_batches(self, batch_size: int) -> int:
        """Return the number of batches that deliver the largest shard."""
        return self.options.batches_per_epoch(self.size, batch_size)

    @property
    def is_async(self) -> bool:
        """Whether a worker reads several samples at once. The first access prepares the reader."""
        return self.size > 0 and inspect.iscoroutinefunction(self.reader.read) and self.reader.is_remote

    def callback(self, batch_size: int, seeds: tuple[int, int]) -> Callable[[SampleInfo], Any]:
        """Return the function that the workers call.

        Args:
            batch_size: samples in a batch.
            seeds: the seed of the pipeline, and the number of the source there.
        """
        order = self.order(batch_size, seeds)
        if self.is_async:
            return _AsyncCallback(self.reader, order, self.infos)
        kind = _FileCallback if inspect.iscoroutinefunction(self.reader.read) else _PlainCallback
        return kind(self.reader, order, self.infos)

    def origin_of(self, batch_size: int, seeds: tuple[int, int]) -> Callable[..., str]:
        """Return the function that returns the origin of a sample, usually a file name, or ""; see `callback`.

        Its arguments are the SampleInfo and, by name, the number of the output.
        """
        return _PlainCallback(self.reader, self.order(batch_size, seeds), {}).origin

    def order(self, batch_size: int, seeds: tuple[int, int]) -> ReaderOrder:
        """Return the order of the samples; see `callback`."""
        from dali_like.sources.readers.reader_order import ReaderOrder  # see this module

        seed = self.options.seed if self.options.seed >= 0 else (seeds[0] << 16) + seeds[1]
        size = self.size
        file_sizes = self.reader.file_sizes() if self.options.shuffles_files else None
        return ReaderOrder(size, batch_size, self.options, seed, file_sizes)


class _PlainCallback:
    """Calls a reader whose `read` is a plain function."""

    def __init__(self, reader: Reader, order: ReaderOrder, infos: Mapping[int, int]) -> None:
        self._reader = reader
        self._order = order
        self._infos = tuple(infos.values())

    def __call__(self, info: SampleInfo) -> Any:
        index = self._order.index(info.idx_in_epoch)
        return self._with_infos(index, self._reader.read(index, info))

    def origin(self, info: SampleInfo, output: int = 0) -> str:
        """Return the origin of a sample, usually a file name; "" if it is unknown."""
        return self._reader.source_info(self._order.index(info.idx_in_epoch), output)

    def _with_infos(self, index: int, sample: Any) -> Any:
        if not self._infos:
            return sample
        texts = [self._reader.source_info(index, output).encode() for output in self._infos]
        return *(sample if isinstance(sample, tuple) else (sample,)), *[np.frombuffer(text, np.uint8) for text in texts]


class _AsyncCallback(_PlainCallback):
    """Calls a reader of URLs: several samples are read at once."""

    async def __call__(self, info: SampleInfo) -> Any:
        index = self._order.index(info.idx_in_epoch)
        return self._with_infos(index, await self._reader.read(index, info))


class _FileCallback(_PlainCallback):
    """Calls a reader whose coroutines are expected to read local files. Those never suspend, so they need no event loop."""

    def __call__(self, info: SampleInfo) -> Any:
        index = self._order.index(info.idx_in_epoch)
        coroutine = self._reader.read(index, info)
        try:
            coroutine.send(None)
        except StopIteration as finished:
            return self._with_infos(index, finished.value)
        coroutine.close()
        raise DefinitionError(
            f"fn.{type(self._reader).path}: read() awaits something, although the attributes of the reader have no URLs: "
            "give the class is_remote = True"
        )
