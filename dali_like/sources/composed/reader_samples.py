"""Samples of readers as sources: `ComposedDataset.from_reader`, and clips of videos."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.arguments import Argument
from dali_like.common.suggestions import list_unknown
from dali_like.errors import ArgumentError, ArgumentTypeError
from dali_like.images.video import PadMode
from dali_like.sources.composed.chunked_files import ChunkedSource, finished
from dali_like.sources.composed.elementwise import Map
from dali_like.sources.composed.inputs import Indexed
from dali_like.sources.composed.stage import Stage
from dali_like.sources.readers.reader import Reader
from dali_like.sources.readers.stored_files import shown
from dali_like.sources.readers.video_reader import Listed, VideoFramesReader
from dali_like.types import DALIImageType, SampleInfo

if TYPE_CHECKING:
    from dali_like.sources.composed.background_reads import BackgroundReads

__all__ = ["Episode", "EpisodesReader", "ReaderSamples", "VideoClips", "reader_stage"]

#: A video, or a range of frames of one: path, first frame, end.
Episode = str | os.PathLike[str] | tuple[str | os.PathLike[str], int, int]


class _ReadInfo(SampleInfo):
    """The info of a sample of a dataset. The batch may drop it or keep others before it, so its memory is not used."""

    def empty(self, shape: int | Iterable[int], dtype: Any = np.uint8, output: int = 0) -> NDArray[Any]:
        return np.empty(shape if isinstance(shape, int) else tuple(shape), dtype)

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.idx_in_epoch)


class ReaderSamples(Sequence[Any]):
    """The samples of a reader by index: an array, a tuple of arrays, or a dict if the outputs have names.

    Args:
        reader: prepared.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._is_async = inspect.iscoroutinefunction(reader.read)
        self._is_remote = reader.is_remote
        #: Keeps the thread for reads running.
        self._reads: BackgroundReads | None = None

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: Any) -> Any:
        sample = self._reader.read(index, _info(index))
        if self._is_async:
            sample = self._waited(sample)
        return self._named(sample)

    async def later(self, index: int) -> Any:
        """Return a sample. Several of them may be read at a time."""
        return self._named(await self._reader.read(index, _info(index)))

    @property
    def is_async(self) -> bool:
        """Whether `later` may suspend."""
        return self._is_async and self._is_remote

    @property
    def files(self) -> Sequence[str]:
        """The origin of each sample, for `dali_like.sources.origins`."""
        return _Origins(self._reader)

    def _waited(self, coroutine: Any) -> Any:
        if not self._is_remote:
            return finished(coroutine)
        from dali_like.sources.composed.background_reads import background_reads  # imports asyncio

        self._reads = background_reads()
        return self._reads.start(coroutine).result()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_reads": None}

    def _named(self, sample: Any) -> Any:
        names = self._reader.output_names
        return dict(zip(names, sample, strict=True)) if names else sample


class _Origins(Sequence[str]):
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: Any) -> str:
        return self._reader.source_info(index, 0)


def _info(index: int) -> SampleInfo:
    return _ReadInfo(index, 0, 0, 0)


def reader_stage(
    reader: Any, arguments: Mapping[str, Any], concurrency: int, remote_options: Mapping[str, Any] | None
) -> Stage:
    """Return the stage of `ComposedDataset.from_reader`."""
    made = _made(reader, arguments)
    if remote_options is not None:
        made.remote_options = remote_options
    made.prepare()
    samples = ReaderSamples(made)
    name = type(made).path or type(made).__qualname__
    if not len(samples):
        raise ArgumentError(f"{name}: {made.why_empty()}")
    if concurrency == 1 or not samples.is_async:
        return Indexed(samples, name)
    return Map(Indexed(range(len(samples)), name), samples.later, num_reads=concurrency)


def _made(reader: Any, arguments: Mapping[str, Any]) -> Reader:
    """Return a reader.

    Raises:
        ArgumentTypeError: this is not a reader, or it has no such arguments.
        ArgumentError: it is unknown, or an argument has a wrong value.
    """
    if isinstance(reader, Reader):
        if arguments:
            raise ArgumentTypeError("the reader is made already: give its arguments to its class")
        return reader
    cls = _named(reader) if isinstance(reader, str) else reader
    if not (isinstance(cls, type) and issubclass(cls, Reader)):
        raise ArgumentTypeError(
            f'a reader is a name such as "readers.file", or a class derived from Reader, not {reader!r:.100}'
        )
    known = _arguments_of(cls)
    if unknown := sorted(arguments.keys() - known.keys()):
        raise ArgumentTypeError(f"{cls.path or cls.__qualname__} has no argument {list_unknown(unknown, known)}")
    given = {name: _plain_paths(value) for name, value in arguments.items()}
    made: Reader = cls(**{name: known[name].convert(value, cls.path) for name, value in given.items()})
    return made


def _named(name: str) -> type[Reader]:
    from dali_like.sources.readers.registered import registered_readers  # it imports all readers

    readers = registered_readers()
    for path in (name, f"readers.{name}"):
        if path in readers:
            return readers[path]
    raise ArgumentError(f"there is no reader {list_unknown([name], readers)}")


def _arguments_of(cls: type[Reader]) -> dict[str, Argument]:
    init: Any = cls.__init__
    hints = typing.get_type_hints(init, include_extras=True)
    return {
        name: Argument(name, hints.get(name, Any), parameter.default)
        for name, parameter in inspect.signature(init).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _plain_paths(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain_paths(part) for part in value] if isinstance(value, (list, tuple)) else value


class EpisodesReader(VideoFramesReader):
    """Reads clips of episodes, or whole ones, as dicts. An episode is a video, or a range of frames of one.

    Args:
        episodes: path, first frame and end of each; None: the first frame and the end of the video.
        frames: in a clip; None: all of the episode.
        step, stride, pad_mode, image_type, decoder_cache_bytes, max_sample_bytes: as for the base class.

    Attributes:
        clip_ends: the number of clips up to the end of each episode, of shape (number of episodes,).
    """

    def __init__(
        self,
        episodes: Sequence[tuple[str, int | None, int | None]],
        frames: int | None,
        *,
        step: int | None,
        stride: int,
        pad_mode: PadMode,
        image_type: DALIImageType,
        decoder_cache_bytes: int,
        max_sample_bytes: int,
    ) -> None:
        super().__init__(
            sequence_length=1 if frames is None else frames,
            filenames=tuple(path for path, _, _ in episodes),
            labels=tuple(range(len(episodes))),
            step=-1 if step is None else step,
            stride=stride,
            pad_mode=pad_mode,
            image_type=image_type,
            enable_frame_num="sequence",
            enable_timestamps=True,
            decoder_cache_bytes=decoder_cache_bytes,
            max_sample_bytes=max_sample_bytes,
        )
        self._episodes = list(episodes)
        self._takes_whole = frames is None
        self.clip_ends = np.zeros(0, np.int64)

    def prepare(self) -> None:
        self._counts: dict[str, int] = {}
        super().prepare()
        self.clip_ends = np.searchsorted(self._samples[:, 0], np.arange(len(self._episodes)), "right")

    async def read(self, index: int, info: SampleInfo) -> dict[str, Any]:
        frames, episode, numbers, seconds = await super().read(index, info)
        return {"frames": frames, "numbers": numbers, "seconds": seconds, "episode": int(episode[0])}

    def _listed_videos(self) -> list[Listed]:
        return [Listed(path, number) for number, (path, _, _) in enumerate(self._episodes)]

    def _counted_range(self, video: Listed) -> tuple[int, int]:
        count = self._counts.get(video.name)
        if count is None:
            _, count = super()._counted_range(video)
            self._counts[video.name] = count
        _, first, end = self._episodes[video.label]
        first, end = first or 0, count if end is None else end
        if not 0 <= first < end <= count:
            raise ArgumentError(
                f"{shown(video.name)}: episode {video.label} is from frame {first} to {end} of a video with {count} frames"
            )
        return first, end

    @property
    def step(self) -> int:
        """Frames from the beginning of a clip to that of the next."""
        return self._step

    def _firsts(self, start: int, end: int) -> Iterable[int]:
        if self._takes_whole:
            return [start]
        if self._pad_mode != "none":
            return super()._firsts(start, end)
        return range(start, end - (self._length - 1) * self._stride, self._step)

    def _numbers(self, first: int, end: int) -> list[int]:
        return list(range(first, end, self._stride)) if self._takes_whole else super()._numbers(first, end)


class VideoClips(ReaderSamples, ChunkedSource):
    """The clips of episodes. A chunk has the clips of one episode: ``shuffle(together=n)`` has n episodes open at a time.

    It is its own reader, which decodes the frames of one clip at a time. The decoders of the latest videos stay open.
    """

    most_ahead = 0

    def __init__(self, reader: EpisodesReader) -> None:
        super().__init__(reader)
        self.chunk_ends = reader.clip_ends

    @property
    def file_ends(self) -> NDArray[np.int64]:
        """The number of clips up to the end of each episode."""
        return self.chunk_ends

    def reader(self, keep: int = 2, in_order: range | None = None) -> Any:
        return self

    def expect(self, chunks: Iterable[int]) -> None:
        """See `dali_like.sources.composed.chunked_files.ChunkReader.expect`."""
