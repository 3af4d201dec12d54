"""The composed dataset: the class that users see."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from dali_like.common.articles import kind_of
from dali_like.common.checks import flag, not_negative, one_of, positive
from dali_like.common.suggestions import suggest_arguments
from dali_like.engine.memory.sample_cache import CacheMemory
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, CheckpointError
from dali_like.images.decoding_limit import READER_LIMIT_BYTES
from dali_like.sources import composed
from dali_like.sources.caching.cache_options import CacheOptions
from dali_like.sources.caching.element_cache import SampleCache
from dali_like.sources.collate import default_collate, is_sparse_matrix
from dali_like.sources.composed import cache_stage, selection
from dali_like.sources.composed.blocks import BlockShuffle, Shuffle
from dali_like.sources.composed.chunked_files import CHUNK_BYTES
from dali_like.sources.composed.elementwise import Enumerate, Map, is_coroutine_function, name_of, num_reads
from dali_like.sources.composed.inputs import Indexed, Part, Parts, SparseRows
from dali_like.sources.composed.positions import DEFAULT_SHARDS
from dali_like.sources.composed.stage import Place, Stage, WeightChange
from dali_like.sources.composed.states import checked_state, make_state, shard_states
from dali_like.sources.composed.stream import Elements, ShardEndedError, outputs_ahead
from dali_like.sources.composed.yielding import Admission, Filter, FlatMap
from dali_like.sources.state_format import ShardState
from dali_like.types import RGB, DALIImageType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dali_like.images.video import PadMode
    from dali_like.sources.composed.costs import Cost
    from dali_like.sources.composed.draws import DrawnMixture, MixtureReport, Reach
    from dali_like.sources.composed.from_files import Paths
    from dali_like.sources.composed.reader_samples import Episode
    from dali_like.sources.composed.reads import ElementsAhead
    from dali_like.sources.composed.stage import SourceRows
    from dali_like.sources.readers.reader import Reader

__all__ = ["ComposedDataset", "ComposedIterator"]

_SHARDED_SINCE = "it runs in logical shards, because of a stage such as filter, or of an input that is read in order"
#: Inputs in a row that a filter may reject in a shard.
_MOST_REJECTED = 1_000_000
#: Rows of the record batches of an iterator.
_ROWS_OF_ITERATOR = 4096
#: Default size limit of a record of a compressed file, after decompression.
_MAX_RECORD_BYTES = 1 << 30


class ComposedDataset:
    """A dataset described by sources and stages, with an exact position for each element.

    The description is immutable, can be pickled, and is cheap to copy. Each method returns a new dataset. Elements are
    computed where they are needed: by `dali_like.data.DataLoader` in its workers, by ``fn.external_source``, or by
    ``iter(dataset)`` and ``dataset[position]`` in this process.

    The element at a position depends only on the description and the seed: never on ranks, workers, batch size, start
    method, timing or restarts. So a stream resumes exactly, with other ranks and workers, too. See
    docs/composed-datasets.md.

    >>> numbers = ComposedDataset.source(range(10)).map(lambda x: x * x).filter(lambda x: x % 2 == 0).with_options(shards=1)
    >>> list(numbers)
    [0, 4, 16, 36, 64]
    """

    def __init__(self, stage: Stage, seed: int | None = None, num_shards: int | None = None) -> None:
        self._stage = stage
        self._seed = seed
        self._num_shards = num_shards
        self._changes: tuple[WeightChange, ...] = ()
        self._elements: Elements | None = None

    # Inputs

    @classmethod
    def source(cls, source: Any, *, name: str | None = None) -> Self:
        """Describe a source with random access: a list, an array, a dataset of PyTorch or Hugging Face.

        Args:
            source: has ``__getitem__`` and ``__len__``. Workers get a copy. The elements of a sparse matrix of SciPy, as
                in the CSR format, are matrices of one row each, for ``collate_fn=scipy.sparse.vstack`` or
                ``.map(lambda row: row.toarray()[0])``.
            name: for messages and descriptions; default: the name of its class.

        Raises:
            ArgumentTypeError: it has no such methods.
        """
        if isinstance(source, ComposedDataset):
            raise ArgumentTypeError("the source is a composed dataset already: use it as it is")
        if not all(hasattr(type(source), method) for method in ("__getitem__", "__len__")):
            raise ArgumentTypeError(
                f"a source has __getitem__ and __len__, and {type(source).__qualname__} does not. For data that is read in "
                "order, use ComposedDataset.from_iterables([...]), or from_parts"
            )
        name = name or type(source).__qualname__
        return cls(Indexed(SparseRows(source) if is_sparse_matrix(source) else source, name))

    @classmethod
    def from_parts(cls, parts: Sequence[Part], *, name: str = "parts", interleave: int = 1) -> Self:
        """Describe a source of parts that are read in order, such as compressed files.

        Logical shard s reads the parts s, s + shards, and so on, each one whole.

        Args:
            parts: each has ``open(record)``, which returns an iterator over its records from that number on.
            name: for messages and descriptions.
            interleave: number of parts that each shard has open at a time, and takes one record each from in turn.
                ``.shuffle(block=...)`` then mixes their records.

        Raises:
            ArgumentTypeError: a part has no such method.
        """
        for part in parts:
            if not callable(getattr(part, "open", None)):
                raise ArgumentTypeError(f"a part has open(record), and {type(part).__qualname__} does not")
        return cls(Parts(tuple(parts), name, positive("interleave", interleave)))

    # Files

    @classmethod
    @suggest_arguments
    def from_jsonl(
        cls,
        paths: Paths,
        *,
        interleave: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        max_record_bytes: int = _MAX_RECORD_BYTES,
        remote_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Describe the records of JSON Lines files: the value of each line that is not empty.

        Files that end in .gz, .bz2, .xz or .zst are read in order, each one whole, in logical shards. Others have random
        access: an index is built once, and stored beside the file or in the user's cache.

        Args:
            paths: path, URL for fsspec or shell pattern, or several of them. Files of a pattern are sorted.
                ``{000..099}`` stands for the numbers between, and ``{a,b}`` for alternatives, as in WebDataset.
            interleave: read each file in order and as a whole, in one logical shard; a shard has so many files open at a
                time, see `from_parts`. Then one worker of one rank alone fetches a file. Default for compressed files: 1;
                otherwise random access.
            chunk_bytes: size of a read of neighboring records. Two chunks are in memory. Remote files are read ahead:
                32 MiB more, which all sources of a process share.
            max_record_bytes: largest size of a record in compressed files, after decompression. A small file can hold a
                record of many GiB.
            remote_options: arguments of `dali_like.remote.RemoteFiles` for URLs, such as ``cache_dir``.

        Raises:
            MissingFileError: a file does not exist, or no file matches a pattern.
            FileReadError: a file cannot be read.
            ArgumentError: there are compressed files and others, or an argument is out of range.
        """
        return cls(composed.from_files.jsonl(paths, interleave, chunk_bytes, max_record_bytes, remote_options))

    @classmethod
    @suggest_arguments
    def from_tar(
        cls,
        paths: Paths,
        *,
        interleave: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        max_record_bytes: int = _MAX_RECORD_BYTES,
        remote_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Describe the samples of tar archives, as WebDataset has them.

        Consecutive files with the same name before the first dot are a sample: a dict of ``"__key__"``, which is that name,
        and the bytes of each file by its extension, such as ``"jpg"``. Decode them with `map`.

        Args:
            paths, interleave, chunk_bytes, max_record_bytes, remote_options: as for `from_jsonl`. Files that end in .tgz are
                compressed, too.

        Raises:
            MissingFileError: a file does not exist, or no file matches a pattern.
            BrokenFileError: a file is not a tar archive, or is damaged.
            FileReadError: a file cannot be read.
            ArgumentError: there are compressed files and others, or an argument is out of range.
        """
        return cls(composed.from_files.tar(paths, interleave, chunk_bytes, max_record_bytes, remote_options))

    @classmethod
    @suggest_arguments
    def from_parquet(
        cls,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        as_batches: bool = False,
        interleave: int | None = None,
        max_row_group_bytes: int = 1 << 30,
        remote_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Describe the rows of Parquet files, as dicts. Needs pyarrow.

        Lists of numbers without nulls become arrays; other values are Python objects. Row groups are read as wholes: a
        shuffle of all rows reads one for almost each row. Use ``.shuffle(together=8)`` instead.

        Args:
            paths, interleave, remote_options: as for `from_jsonl`.
            columns: names of columns. Only their bytes are read. None: all.
            as_batches: read in columns. `map` and `filter` get record batches, and ``iter`` yields them: dicts from name to
                an array of NumPy, for numbers, or of pyarrow. A function of `map` returns such a dict, one of `filter` a
                boolean for each row. Positions, weights, `take` and ``shuffle(block=)`` count rows. Loaders make batches
                of numbers without an object for each row. The stream runs in logical shards: one shard reads a row group.
            max_row_group_bytes: largest size of a row group after decompression, in the wanted columns. A small file can
                contain many GiB. Each process holds a few row groups.

        Raises:
            MissingExtraError: pyarrow is not installed.
            MissingFileError: a file does not exist, or no file matches a pattern.
            BrokenFileError: a file is not a Parquet file, is damaged, or has a larger row group.
            FileReadError: a file cannot be read.
            ArgumentError: a file has no such column.
        """
        return cls(
            composed.from_files.parquet(
                paths, columns, flag("as_batches", as_batches), interleave, max_row_group_bytes, remote_options
            )
        )

    @classmethod
    @suggest_arguments
    def from_array_record(cls, paths: Paths) -> Self:
        """Describe the records of ArrayRecord files, as bytes. Needs array_record.

        Args:
            paths: of local files; otherwise as for `from_jsonl`.

        Raises:
            MissingExtraError: array_record is not installed.
            MissingFileError: a file does not exist, or no file matches a pattern.
            BrokenFileError: a file is not an ArrayRecord file, or is damaged.
            ArgumentError: a path is a URL.
        """
        return cls(composed.from_files.array_record(paths))

    @classmethod
    @suggest_arguments
    def from_lance(
        cls,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Describe the rows of a Lance table, as dicts like in `from_parquet`. Needs pylance.

        Lance has threads. Use it with the start method "spawn" or "forkserver".

        Args:
            path: path or URL, as Lance has it.
            columns: names of columns; None: all.
            version: of the table; None: the latest one at this call.
            storage_options: of Lance, for URLs.

        Raises:
            MissingExtraError: pylance is not installed.
            MissingFileError: there is no such table or version.
            ArgumentError: it has no such column.
        """
        return cls(composed.from_files.lance(path, columns, version, storage_options))

    @classmethod
    @suggest_arguments
    def from_hdf5(
        cls,
        paths: Paths,
        *,
        fields: str | Sequence[str] | None = None,
        window: int | None = None,
        shift: int | None = None,
        interleave: int | None = None,
        remote_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Describe the rows of HDF5 files: the items of their datasets along the first axis. Needs h5py.

        Chunks are read as wholes: a shuffle of all rows reads one for almost each row. Use ``.shuffle(together=80)``. The
        dataset with the most bytes decides about the chunks. Datasets with longer chunks are read as wholes, once in each
        process, if they have at most 64 MiB.

        Args:
            paths, interleave, remote_options: as for `from_jsonl`.
            fields: names of datasets with the same number of rows, such as ``["images", "meta/labels"]``: elements are
                dicts. One name: elements are its rows. None: all datasets outside of groups.
            window: rows of an element, with an axis for them in front, such as for time series. No window crosses files.
                None: single rows, without this axis.
            shift: rows from one window to the next; default: `window`.

        Raises:
            MissingExtraError: h5py is not installed.
            MissingFileError: a file does not exist, or no file matches a pattern.
            BrokenFileError: a file is not an HDF5 file, or is damaged.
            ArgumentError: a file has no such dataset, or they have different numbers of rows.
        """
        return cls(composed.from_files.hdf5(paths, fields, _optional("window", window), shift, interleave, remote_options))

    @classmethod
    @suggest_arguments
    def from_zarr(
        cls,
        paths: Paths,
        *,
        fields: str | Sequence[str] | None = None,
        window: int | None = None,
        shift: int | None = None,
        interleave: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Describe the rows of Zarr arrays: their items along the first axis. Needs zarr.

        Chunks are read as for `from_hdf5`. Chunks that a store does not have are filled with the fill value of the array, as
        Zarr defines it.

        Args:
            paths: of stores: folders, .zip files, or URLs for fsspec; otherwise as for `from_jsonl`.
            fields, window, shift: as for `from_hdf5`. A store with a single array has no names: elements are its rows.
            interleave: read each store in order and as a whole, in one logical shard; see `from_jsonl`.
            storage_options: arguments of fsspec for URLs.

        Raises:
            MissingExtraError: zarr is not installed.
            MissingFileError: a store does not exist, or no store matches a pattern.
            BrokenFileError: a store cannot be read.
            ArgumentError: a store has no such array, or they have different numbers of rows.
        """
        return cls(composed.from_files.zarr(paths, fields, _optional("window", window), shift, interleave, storage_options))

    @classmethod
    @suggest_arguments
    def from_tokens(
        cls,
        paths: Paths,
        window: int,
        *,
        shift: int | None = None,
        dtype: Any = "uint16",
        header_bytes: int = 0,
        interleave: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        remote_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Describe windows of flat files of token ids, or of other numbers: arrays of `window` tokens.

        Local files are mapped. If all stages only select positions (`shuffle` of an epoch, `mix`, `concat`, `repeat`,
        `slice`), a loader gathers the windows of a batch at once. No window crosses files. Tokens behind the last whole
        window of a file are left out.

        Args:
            paths, interleave, remote_options: as for `from_jsonl`. Files that end in .npy have one-dimensional arrays, and
                say themselves which dtype these have.
            window: tokens of an element. For inputs and targets, one more than the model takes.
            shift: tokens from the beginning of a window to that of the next; default: `window`.
            dtype: of the tokens in other files.
            header_bytes: at the beginning of other files, which are left out.
            chunk_bytes: size of a read of neighboring windows of a remote file.

        Raises:
            MissingFileError: a file does not exist, or no file matches a pattern.
            BrokenFileError: a file does not have a whole number of tokens, or is truncated.
            FileReadError: a file cannot be read.
            ArgumentError: files have different dtypes, or an argument is out of range.
        """
        return cls(
            composed.from_files.tokens(paths, window, shift, dtype, header_bytes, interleave, chunk_bytes, remote_options)
        )

    @classmethod
    @suggest_arguments
    def from_video(
        cls,
        paths: str | os.PathLike[str] | Sequence[Episode],
        *,
        frames: int | None,
        stride: int = 1,
        step: int | None = None,
        pad_mode: PadMode = "none",
        image_type: DALIImageType = RGB,
        interleave: int | None = None,
        decoder_cache_bytes: int = 256 << 20,
        max_sample_bytes: int = READER_LIMIT_BYTES,
        remote_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Describe clips of videos, or whole episodes. Needs PyAV.

        An element is a dict of ``"frames"``, of shape (frames, height, width, 3) and dtype uint8; ``"numbers"`` of the
        frames in the video, int32; ``"seconds"`` from the first frame of the video to each, float64; and ``"episode"``, the
        number in `paths`. No clip crosses episodes.

        A process keeps the latest videos open, and goes on decoding where it was. With ``.shuffle(together=4)``, these are
        the videos of four episodes at a time.

        Args:
            paths: path, URL or shell pattern of videos, or several of them. In a list, ``(path, first frame, end)`` is an
                episode that is a part of a video.
            frames: frames of a clip. None: an element is a whole episode.
            stride: distance of consecutive frames of a clip.
            step: distance of the first frames of consecutive clips; default: ``frames * stride``.
            pad_mode: treatment of frames behind the end of an episode, as in ``fn.experimental.readers.video``. "none":
                clips with fewer frames are left out.
            image_type: RGB or YCbCr.
            interleave: read the clips of each episode in order, in one logical shard; see `from_jsonl`. Then one worker of
                one rank alone decodes an episode.
            decoder_cache_bytes: memory of the videos that a process keeps open.
            max_sample_bytes: largest clip, after decoding. A small file can contain many GiB.
            remote_options: arguments of `dali_like.remote.RemoteFiles` for URLs. Remote videos are read as wholes.

        Raises:
            MissingExtraError: PyAV is not installed.
            MissingFileError: a file does not exist, or no file matches a pattern.
            BrokenFileError: a file is not a video, or a frame is missing or damaged.
            ArgumentError: an episode is not within its video, or an argument is out of range.
        """
        options = {
            "stride": positive("stride", stride),
            "step": _optional("step", step),
            "pad_mode": pad_mode,
            "image_type": image_type,
            "decoder_cache_bytes": not_negative("decoder_cache_bytes", decoder_cache_bytes),
            "max_sample_bytes": max_sample_bytes,
        }
        return cls(composed.from_files.video(paths, frames, interleave, remote_options, options))

    @classmethod
    def from_reader(
        cls,
        reader: str | type[Reader] | Reader,
        *,
        concurrency: int = 1,
        remote_options: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Self:
        """Describe the samples of a reader of ``fn.readers``: an array, or a tuple of arrays, as its outputs.

        The order is that of the files; `shuffle` changes it. Arguments of all readers, such as ``random_shuffle``, have no
        place here.

        Args:
            reader: its name in ``fn``, such as ``"readers.tfrecord"``; a class derived from `dali_like.readers.Reader`; or
                an instance of one.
            concurrency: samples of URLs that are read at a time in each worker; see `map`.
            remote_options: arguments of `dali_like.remote.RemoteFiles` for URLs.
            arguments: of the reader.

        Raises:
            ArgumentError, ArgumentTypeError: the reader is unknown, or has no such arguments; or it finds no samples.
            MissingFileError, BrokenFileError: a file does not exist, or is damaged.
        """
        concurrency = positive("concurrency", concurrency)
        return cls(composed.reader_samples.reader_stage(reader, arguments, concurrency, remote_options))

    @classmethod
    @suggest_arguments
    def from_iterables(cls, iterables: Sequence[Any], *, name: str = "iterables", interleave: int = 1) -> Self:
        """Describe a source of iterables, each read in order by one logical shard; see `from_parts`.

        Args:
            iterables: objects with ``open(record)``; or iterables that can be begun again, such as instances of a class with
                ``__iter__``; or generator functions without arguments. A resume goes through the latter two from the
                beginning, up to the record.
            name: for messages and descriptions.
            interleave: see `from_parts`.

        Raises:
            ArgumentTypeError: one is neither, or an iterator, which cannot be begun again.
        """
        return cls.from_parts(composed.from_files.iterable_parts(iterables), name=name, interleave=interleave)

    # Options of the whole dataset

    @suggest_arguments
    def with_options(self, *, seed: int | None = None, shards: int | None = None) -> Self:
        """Set options of the whole dataset. They determine the stream, so they must not change for a resume.

        Args:
            seed: of all random stages; default 0.
            shards: number of logical shards, in which stages with an unknown yield run; default 60. The number of ranks must
                divide it.
        """
        return type(self)(
            self._stage,
            self._seed if seed is None else not_negative("seed", seed),
            self._num_shards if shards is None else positive("shards", shards),
        )

    @property
    def seed(self) -> int:
        """The seed of all random stages."""
        return self._seed or 0

    @cached_property
    def shards(self) -> int | None:
        """The number of logical shards; None if every position has random access."""
        return (self._num_shards or DEFAULT_SHARDS) if self._stage.is_sharded else None

    @property
    def is_columnar(self) -> bool:
        """Whether the stream is read in columns; see `from_parquet`."""
        return self._stage.is_columnar

    @property
    def _row_stage(self) -> Stage:
        """The last stage; if its elements are record batches, a stage with their rows."""
        return composed.columnar.row_stage(self._stage) if self._stage.is_columnar else self._stage

    @property
    def _evaluated(self) -> Stage:
        """The stage that is evaluated: its elements are those at the positions."""
        return self._row_stage

    @property
    def ends_in_map(self) -> bool:
        """Whether the last stage is a `map` that reads nothing ahead. Several workers can then share a logical shard."""
        return isinstance(self._stage, Map) and self._stage.num_reads == 1 and not self._stage.is_columnar

    @cached_property
    def num_reads(self) -> int:
        """The number of elements that a process should compute at a time, for the stages that read; or 1."""
        return num_reads(self._stage)

    @property
    def has_rows(self) -> bool:
        """Whether all elements are rows of arrays, and no stage computes anything: a loader gathers batches at once."""
        return self._stage.has_rows

    def rows(self, positions: NDArray[np.int64]) -> list[SourceRows]:
        """Return where the elements at some positions are, if `has_rows`."""
        if self._elements is None:
            self._elements = self.elements()
        return self._elements.rows(positions)

    @property
    def description(self) -> list[str]:
        """One line for each stage and input, the last stage first, inputs indented."""
        return self._evaluated.outline()

    # Stages

    @suggest_arguments
    def map(
        self,
        function: Callable[..., Any],
        *,
        rng: bool = False,
        concurrency: int | None = None,
        read_threads: int | None = None,
    ) -> Self:
        """Call a function with each element.

        Args:
            function: returns the new element. The result of a coroutine function (``async def``) is awaited.
            rng: whether to call ``function(element, generator)`` with a `numpy.random.Generator` that depends on the seed
                and the position of the element.
            concurrency: number of calls of a coroutine function that run at a time in each worker, also for the next
                batches; default: one. The stream does not depend on it.
            read_threads: the same for a function that blocks, such as one that reads from a slow disk: it runs in so many
                threads. Other functions of the dataset are called by one thread at a time.

        Raises:
            ArgumentError: `concurrency` is given for a function that blocks, or `read_threads` for a coroutine function.
            ArgumentClashError: both are given.
        """
        _callable(function)
        given = [("concurrency", concurrency, True), ("read_threads", read_threads, False)]
        reads = [(name, positive(name, count), is_async) for name, count, is_async in given if count is not None]
        if len(reads) > 1:
            raise ArgumentClashError(
                "concurrency is for a coroutine function, and read_threads for a function that blocks: pass one of them"
            )
        for name, _, is_async in reads:
            if is_coroutine_function(function) != is_async:
                kind, other = (
                    ("a coroutine function (async def)", "read_threads")
                    if is_async
                    else ("a function that blocks", "concurrency")
                )
                raise ArgumentError(f"{name} is for {kind}, and {name_of(function)} is not one: pass {other}=")
        return self._then(Map(self._stage, function, flag("rng", rng), reads[0][1] if reads else 1))

    @suggest_arguments
    def cache(
        self,
        memory: int | str | None = None,
        *,
        disk: str | os.PathLike[str] | None = None,
        key: str | None = None,
        policy: str = "keep",
    ) -> Self:
        """Store the elements of this stage in memory that all workers share, and compute each one once.

        Later epochs read them from there: arrays are read-only views, or with ``policy="lru"`` read-only copies. The stream
        is the same with and without a cache. Call it behind deterministic work such as decoding, and before `shuffle` and
        random `map`.

        The cache belongs to the process that creates it, and lives as long as the dataset and its copies. All loaders and
        pipelines of the process share it.

        Args:
            memory: limit of the entries in memory: bytes, or a text such as "16GiB". None: only on disk.
            disk: folder that only this user may enter; it is created. Each element is a file there, without a limit, and
                later runs read it. Damaged files are computed again.
            key: identifies the elements on disk, together with the stages and the sizes and times of input files. Change it
                after each change of a function or of its arguments: they are not compared. Required with `disk`, unless all
                stages are of this library and read files.
            policy: when the memory is used up: "keep" stores no more elements, "lru" replaces those used least recently.

        Raises:
            ArgumentError: an element differs between epochs, because of a random stage; or the stream is endless or runs in
                logical shards; or an argument has an unknown value; or others may enter the folder.
        """
        stage, options = self._stage, CacheOptions.of(memory=memory, disk=disk, key=key, policy=policy)
        length = cache_stage.check_cacheable(stage)
        cache = SampleCache(options, length, cache_stage.folder_for(stage, options), stage.text)
        return self._then(cache_stage.Cache(stage, cache))

    def check_cacheable(self) -> None:
        """Check that the element at a position is the same in each epoch.

        Raises:
            ArgumentError: it is not, or positions have no random access.
        """
        cache_stage.check_cacheable(self._stage)

    @property
    def caches(self) -> list[SampleCache]:
        """The caches of this dataset, the last one first. Each has ``statistics()``."""
        return cache_stage.caches_of(self._stage)

    def cache_memories(self) -> tuple[CacheMemory, ...]:
        """Return the memory of each cache. Call it before workers start, which inherit the memory."""
        return tuple(memory for cache in self.caches if (memory := cache.open()) is not None)

    def filter(self, function: Callable[[Any], Any], *, most_rejected: int = _MOST_REJECTED) -> Self:
        """Keep the elements for which a function returns a true value. The stream then runs in logical shards.

        Args:
            most_rejected: after so many rejected inputs in a row in a shard, `dali_like.errors.EmptyFilterError` is raised.
        """
        kind = composed.columnar.ColumnFilter if self._stage.is_columnar else Filter
        return self._then(kind(self._stage, _callable(function), positive("most_rejected", most_rejected)))

    def as_rows(self) -> Self:
        """Deliver single rows from here on, as dicts, instead of record batches; see `from_parquet`.

        Stages that combine single elements, such as `pack`, `zip` and `window`, do so by themselves.

        Raises:
            ArgumentError: the dataset is not one of record batches.
        """
        if not self._stage.is_columnar:
            raise ArgumentError("as_rows() is for streams of record batches: from_parquet(as_batches=True)")
        return self._then(self._row_stage)

    def flat_map(self, function: Callable[[Any], Iterable[Any]]) -> Self:
        """Replace each element by the items of the iterable that a function returns. The stream then runs in shards.

        After a million elements in a row without items in a shard, `dali_like.errors.EmptyFilterError` is raised.
        """
        return self._then(FlatMap(self._row_stage, _callable(function)))

    def enumerate(self, start: int = 0) -> Self:
        """Replace each element by ``(start + position, element)``."""
        return self._then(Enumerate(self._row_stage, start))

    @classmethod
    def zip(cls, *datasets: ComposedDataset | Sequence[ComposedDataset]) -> Self:
        """Combine the elements at the same position to tuples, as long as all datasets have one.

        Args:
            datasets: a list of them, as for `mix`; or one by one.
        """
        return cls._combine(lambda stages: selection.Zip(tuple(map(composed.columnar.row_stage, stages))), as_list(datasets))

    @classmethod
    def concat(cls, *datasets: ComposedDataset | Sequence[ComposedDataset]) -> Self:
        """Deliver one dataset after another. In logical shards, each shard goes through its part of each dataset.

        Args:
            datasets: a list of them, as for `mix`; or one by one.

        Raises:
            ArgumentError: a dataset before the last one is endless.
        """
        listed = as_list(datasets)
        for number, dataset in enumerate(listed[:-1]):
            if isinstance(dataset, ComposedDataset) and not dataset.shards and dataset.length is None:
                raise ArgumentError(f"dataset {number} is endless: only the last one may be")
        return cls._combine(lambda stages: selection.Concat(composed.columnar.alike(stages)), listed)

    def repeat(self, times: int | None = None) -> Self:
        """Repeat the dataset; None: endlessly. Random stages before this one give another order each time."""
        return self._then(selection.Repeat(self._stage, None if times is None else positive("times", times)))

    def take(self, count: int) -> Self:
        """Keep the positions below `count`."""
        return self.slice(0, not_negative("count", count))

    def skip(self, count: int) -> Self:
        """Leave out the positions below `count`."""
        return self.slice(not_negative("count", count), None)

    def slice(self, start: int, stop: int | None = None, step: int = 1) -> Self:
        """Keep the positions start, start + step, and so on, below stop.

        Raises:
            ArgumentError: a step other than 1 in a stream that runs in logical shards.
        """
        start, step = not_negative("start", start), positive("step", step)
        stop = None if stop is None else not_negative("stop", stop)
        if self._stage.is_sharded and step != 1:
            raise ArgumentError(
                "slice with a step needs random access, and this stream runs in logical shards. Use shard(index, count), or "
                "slice before the stages with an unknown yield"
            )
        if self._stage.is_columnar:
            return self._then(composed.columnar.ColumnSlice(self._stage, start, stop))
        return self._then(selection.Slice(self._stage, start, stop, step))

    def shard(self, index: int, count: int) -> Self:
        """Keep the positions index, index + count, and so on.

        Ranks need no such stage: loaders and pipelines divide the positions by themselves.
        """
        index, count = not_negative("index", index), positive("count", count)
        if index >= count:
            raise ArgumentError(f"index should be below count, {count}, but got {index}")
        if self._stage.is_sharded:
            return self._then(selection.ShardOut(self._stage, index, count))
        return self._then(selection.Slice(self._stage, index, None, count))

    @suggest_arguments
    def window(self, size: int, shift: int | None = None, *, drop_remainder: bool = True) -> Self:
        """Replace the elements by lists of `size` consecutive ones. In logical shards, these are of one shard.

        Args:
            shift: positions from one window to the next; default `size`.
            drop_remainder: whether to drop windows at the end that have fewer elements.
        """
        size = positive("size", size)
        shift = size if shift is None else positive("shift", shift)
        return self._then(selection.Window(self._row_stage, size, shift, flag("drop_remainder", drop_remainder)))

    @suggest_arguments
    def shuffle(
        self, *, block: int | None = None, together: int | None = None, whole: bool = False, seed: int | None = None
    ) -> Self:
        """Put the elements into random order, another one in each epoch.

        Args:
            block: shuffle each block of so many consecutive elements by itself; in logical shards, of one shard. None: the
                whole epoch, which needs random access.
            together: for files that are read in chunks, directly behind `from_parquet`, `from_jsonl` and so on: put the
                chunks in random order, and shuffle the records of so many chunks together. Each worker reads the chunks of
                its positions, about once. Twice as many chunks are in memory.
            whole: with `together`: each chunk belongs to one logical shard, and so to one worker of one rank, which alone
                reads it. The stream then runs in logical shards, each with its chunks in memory.
            seed: of this stage; None: from the seed of the dataset.

        Raises:
            ArgumentClashError: `block` and `together` are both given; or `whole` without `together`.
            ArgumentError: the input of ``shuffle(together=...)`` has no chunks. Or without `block`, the stream is
                endless, or runs in logical shards.
        """
        seed = None if seed is None else not_negative("seed", seed)
        if together is not None:
            together, whole = positive("together", together), flag("whole", whole)
            if self._stage.is_columnar:
                return self._then(composed.columnar.row_group_shuffle(self._stage, together, block, seed))
            return self._then(composed.from_files.chunk_shuffle(self._stage, together, block, seed, whole))
        if whole:
            raise ArgumentClashError("whole=True is for chunks of files: pass together=, too")
        if block is not None:
            if self._stage.is_columnar:
                return self._then(composed.columnar.ColumnShuffle(self._stage, positive("block", block), seed))
            return self._then(BlockShuffle(self._stage, positive("block", block), seed))
        if self._stage.is_sharded:
            raise ArgumentError(
                "this stream has an unknown number of elements, because of a stage such as filter, or of an input that is "
                "read in order. Shuffle before that stage; or shuffle in blocks: shuffle(block=1024)"
            )
        if self._stage.length is None:
            raise ArgumentError("this stream is endless: shuffle before repeat(), or in blocks: shuffle(block=1024)")
        return self._then(Shuffle(self._stage, seed))

    # Packs and batches

    @suggest_arguments
    def pack(
        self,
        length: int | Mapping[str, int] | None = None,
        *,
        budget: float | Mapping[str, float] | None = None,
        cost: Callable[[Any], float | Mapping[str, float]] | None = None,
        method: str | Callable[[Any, np.random.Generator], Iterable[Sequence[int]]] = "first_fit",
        block: int = 1024,
        rest: str | None = None,
        pad: Any = 0,
        too_long: str | None = None,
        most_segments: int | None = None,
    ) -> Self:
        """Combine elements of different lengths, such as tokenized documents, to packs of one length.

        The stream then runs in logical shards, and no pack has elements of two shards. A pack is a dict of arrays:

        - each field: the elements one after another, ``length`` entries in the dtype of the elements; NumPy promotes
          different dtypes. Other fields of the elements are left out.
        - ``<field>_segment_ids``: int32, 1 for the first element of the pack, 2 for the second, and so on; 0 for padding.
        - ``<field>_positions``: int32, from 0 on in each element; 0 in padding.
        - ``cu_seqlens``: int32, 0 and the end of each element in the first field. The padding is a segment, too. Then
          ``length`` is repeated, so that all packs have ``most_segments + 2`` entries. Further fields have
          ``<field>_cu_seqlens``.

        Grain has the same names. Elements without any entry are left out.

        With ``cost=`` instead of a length, elements have any structure, such as images, text and sound together. A pack is
        then a list of elements whose summed costs stay within ``budget=``, without padding. Collate it with
        ``map(jagged_collate)``, or a function of your own.

        Args:
            length: of a pack, if the elements are arrays; their field is named "tokens". Or a mapping from field to length,
                if the elements are mappings. All fields of an element have the same segment id. Arrays with more dimensions
                are packed along the first.
            budget: limit of the cost of a pack; or a mapping from name to limit, for several costs.
            cost: of an element, a function that returns a number from 0 on; or a mapping with the names of `budget`, such as
                ``{"tokens": 600, "images": 2}``. It is called once for each element.
            method: "first_fit" puts each element into the first pack with room for it, and "best_fit" into the fullest one,
                the longest elements of a block first. The packs of a block come in random order, which depends on the seed.
                "concat" puts elements one after another, and splits them at the end of a pack.
                "knapsack" fills one pack after another so that the least is unused, of the scarcest cost. It leaves out the
                emptiest packs of a block: their elements begin packs of the next block. "balanced" makes as few packs as
                possible, with nearly equal costs. A function makes packs of its own: it is called with the costs of a block
                (an array; for several costs or fields, a mapping of arrays) and a generator that depends on the seed and the
                block, and returns lists of indices, in the order in which the packs come. Elements that it leaves out are
                the first ones of the next block. Elements in no pack at the end, or left out for 64 blocks, are dropped,
                with a warning that counts them.
            block: number of inputs that are distributed together, except for "concat". Packs are closed at the end of a
                block, so larger blocks need less padding. A process holds a block of each of its logical shards in memory.
            rest: "pad" (with `cost`: "keep") or "drop" the last pack of a shard. By fitting, a shard that ends together with
                a block has no rest.
            pad: value of the padding; or a mapping from field to value.
            too_long: for elements that are longer than a pack, or cost more than the budget: "error"; "drop"; or "split",
                the default for "concat". Otherwise, the default is "error". With `cost`, elements cannot be split.
            most_segments: limit of elements in a pack; default: the sum of all lengths, so no limit.

        Raises:
            ArgumentError: an argument has an unknown value.
            ArgumentClashError: there are both a length and a cost, or neither; or arguments do not fit together.
        """
        packing = composed.packing
        if (length is None) == (cost is None) or (length is not None and budget is not None):
            raise ArgumentClashError(
                "pack needs either length=, for arrays, or budget= and cost=, for elements of any structure"
            )
        arguments = packing.PackArguments(
            method=method,
            block=positive("block", block),
            rest=rest,
            too_long=too_long,
            most_segments=None if most_segments is None else positive("most_segments", most_segments),
            most_rejected=_MOST_REJECTED,
        )
        if length is not None:
            return self._then(packing.pack_stage(self._row_stage, length, pad, arguments))
        if pad != 0:
            raise ArgumentClashError("pad= is for packs of arrays, with length=; packs by cost have no padding")
        return self._then(packing.group_stage(self._row_stage, _callable(cost), budget, arguments))

    @suggest_arguments
    def bucket(
        self,
        length: Callable[[Any], float | Mapping[str, float]],
        boundaries: Sequence[float],
        batch_sizes: Sequence[int],
        *,
        key: str | None = None,
        block: int = 1024,
        rest: str = "keep",
    ) -> Self:
        """Make batches of elements of similar length, as ``bucket_by_sequence_length`` of TensorFlow.

        The stream then runs in logical shards. Its elements are lists: collate them with ``map(jagged_collate)``, and pass
        ``batch_size=None`` to the loader. The batches of a block come in random order, which depends on the seed. Ranks may
        get different numbers of batches; the loader's ``shard_rest`` evens them out.

        Args:
            length: of an element, a function that returns a number from 0 on, or a mapping of several.
            key: of the number in such a mapping.
            boundaries: ascending. Bucket i has the elements with ``boundaries[i - 1] <= length < boundaries[i]``.
            batch_sizes: of the buckets, one more than boundaries.
            block: number of inputs that are put into buckets together.
            rest: "keep" or "drop" the smaller batch that a bucket has at the end of a block.

        Raises:
            ArgumentError: an argument has an unknown value.
        """
        if not boundaries or any(low >= high for low, high in itertools.pairwise(boundaries)):
            raise ArgumentError(f"boundaries should ascend, but got {list(boundaries)}")
        if len(batch_sizes) != len(boundaries) + 1:
            raise ArgumentError(
                f"{len(boundaries)} boundaries make {len(boundaries) + 1} buckets, but batch_sizes has {len(batch_sizes)}: "
                "pass one for each bucket"
            )
        sizes = tuple(positive("batch_sizes", size) for size in batch_sizes)
        is_dropped = one_of("rest", rest, ("keep", "drop")) == "drop"
        return self._then(
            composed.bucketing.Bucket(
                self._row_stage, positive("block", block), cost_of(length, key), tuple(boundaries), sizes, is_dropped
            )
        )

    @suggest_arguments
    def batch_by_budget(
        self,
        budget: float | Mapping[str, float],
        cost: Callable[[Any], float | Mapping[str, float]],
        *,
        block: int = 1024,
        padded: bool = False,
        most: int | None = None,
        too_large: str = "error",
    ) -> Self:
        """Make batches whose cost stays within a budget, for example of tokens or of pixels.

        The stream then runs in logical shards. Its elements are lists, in random order: see `bucket`.

        Args:
            budget: limit of the cost of a batch; or a mapping from name to limit, for several costs.
            cost: of an element, a function that returns a number from 0 on; or a mapping with the names of `budget`, such as
                ``{"tokens": 600, "pixels": 50176}``. It is called once for each element.
            block: number of inputs that are distributed together. Larger blocks make fuller batches.
            padded: whether the cost of a batch is the maximum of its elements times its size, as for batches that are
                padded; for each of several costs. A batch then has elements of similar cost. False: the sum, distributed by
                first fit.
            most: limit of elements in a batch.
            too_large: for elements that cost more than the budget: "error" or "drop".

        Raises:
            ArgumentError: an argument has an unknown value.
        """
        limits = composed.costs.budget_of(budget, _callable(cost))
        stage, most = self._row_stage, None if most is None else positive("most", most)
        is_dropped = one_of("too_large", too_large, ("error", "drop")) == "drop"
        if is_dropped:
            stage = Admission(stage, composed.costs.WithinBudget(limits), _MOST_REJECTED)
        return self._then(
            composed.bucketing.BudgetBatches(
                stage, positive("block", block), limits, flag("padded", padded), most, is_measured=is_dropped
            )
        )

    @suggest_arguments
    def batch(
        self, size: int, *, drop_remainder: bool = False, collate: Callable[[list[Any]], Any] = default_collate
    ) -> Self:
        """Make batches of `size` consecutive elements. In logical shards, these are of one shard.

        Loaders make batches by themselves. For batches of this stage, pass ``batch_size=None`` to the loader.

        Args:
            drop_remainder: whether to drop a smaller batch at the end.
            collate: makes a batch of a list of elements; default: `dali_like.data.default_collate`. For elements of
                different lengths, use `dali_like.data.jagged_collate`.
        """
        return self.window(size, drop_remainder=drop_remainder).map(collate)

    # Mixtures

    @classmethod
    @suggest_arguments
    def mix(
        cls,
        datasets: Sequence[ComposedDataset],
        weights: Sequence[float] | None = None,
        *,
        schedule: Sequence[tuple[int, Sequence[float]]] | None = None,
        block: int = 4096,
        stop: str = "first",
        names: Sequence[str] | None = None,
        name: str = "",
    ) -> Self:
        """Draw from several datasets, in shares given by weights.

        The shares are exact in each block of positions: each dataset has a whole number of them, in random order. Shares
        count elements of the datasets. For exact shares of filtered data, filter the datasets before. If a dataset runs in
        logical shards, so does the mixture, and each shard has blocks of its own.

        Args:
            weights: one for each dataset, of any sum; default: equal.
            schedule: pairs of a position of the mixture and the weights from there on, beginning with position 0. Positions
                are rounded up to a block (see `report`). A weight of 0 leaves a dataset out.
            block: positions per block, at most 2^20. A dataset with fewer elements than its share of a block repeats some of
                them before it has delivered all.
            stop: the end. "first": with the first dataset that ends. The last block is smaller, in the same proportion.
                "all": when each dataset has ended once; other ones begin their next epoch. "never": the stream is endless.
                In logical shards, each shard ends by itself. A dataset without elements in a shard is left out there; with
                "first", it ends the shard.
            names: of the datasets, for messages, reports and `set_weights`; default: names of their files, or "input 0" and
                so on.
            name: of the mixture, for `set_weights`, if there are several.

        Weights may change at a resume, with ``load_state_dict(state, allow_change=["weights"])``. Describe the mixture with
        a schedule: the old weights, then the new ones. If elements have been drawn already where the new weights begin, an
        error names the first position where they may begin. In a running job, `DataLoader.set_weights` changes them.

        In each epoch of the mixture, the datasets begin epochs that they have not had. A dataset that is endless continues
        instead; in logical shards, it begins again.

        Raises:
            ArgumentTypeError: a dataset is not a composed one, or weights are not numbers.
            ArgumentError: a weight is less than one position of a block, or datasets, weights and names do not fit.
            ArgumentClashError: both weights and a schedule are given.
        """
        if isinstance(datasets, Mapping):
            raise ArgumentTypeError(
                "mix needs a list of datasets, not a mapping. Pass list(datasets.values()), names=list(datasets)"
            )
        if names is None:
            names = composed.mixing.names_of([each._stage if isinstance(each, cls) else None for each in datasets])
        names = list(map(str, names))
        if len(names) != len(datasets):
            raise ArgumentError(f"there are {len(datasets)} datasets and {len(names)} names: pass one name for each dataset")
        mixing = composed.mixing
        if stop not in mixing.STOPS:
            raise ArgumentError(f'stop should be "first", "all" or "never", not {stop!r}')
        pieces = mixing.checked_schedule(len(datasets), weights, schedule) if datasets else ()
        if positive("block", block) > mixing.MOST_IN_BLOCK:
            raise ArgumentError(
                f"block should be at most {mixing.MOST_IN_BLOCK}, not {block}: use a smaller block and larger weights"
            )
        return cls._combine(
            lambda stages: composed.columnar.mixed(
                stages, lambda inputs: mixing.checked_mix(mixing.Mix(inputs, tuple(names), pieces, block, stop, name)), block
            ),
            datasets,
        )

    @suggest_arguments
    def report(
        self,
        state: Mapping[str, Any] | None = None,
        *,
        cost: Callable[[Any], float | Mapping[str, float]] | None = None,
        key: str | None = None,
    ) -> list[MixtureReport]:
        """Return how the mixtures of this dataset draw from their inputs: rounded shares; samples and epochs until a state.

        ``print(dataset.report(state))`` shows tables.

        Args:
            state: of an iterator or a loader, of one rank or merged; default: the beginning.
            cost: returns the number of tokens of an element, or a mapping of several numbers. Up to 100 elements of each
                input are read, to estimate totals.
            key: of the number in such a mapping.

        Raises:
            CheckpointError: the state is of another stream, or stages behind a mixture hide its position.
        """
        if state is None:
            first = {0: ShardState(0, None)} if self.shards else {}
            state = make_state(self.description, self.seed, self.shards, 0, 0, first)
        checked = checked_state(state, self.description, self.seed, self.shards)
        place = Place(self.seed, self._num_shards or DEFAULT_SHARDS, changes=self.changes_in(checked))
        return composed.draws.report(self._evaluated, place, checked, None if cost is None else cost_of(cost, key))

    # Elements

    def __len__(self) -> int:
        """Return the number of elements in an epoch.

        Raises:
            TypeError: the stream is endless, or its length is unknown.
        """
        if self._stage.length is None:
            raise TypeError(
                f"the length of this stream is unknown: {_SHARDED_SINCE}. Count its elements: sum(dataset.count_outputs())"
                if not self._stage.is_endless
                else "this stream is endless, so it has no length. Describe an end: take(count)"
            )
        return self._stage.length

    @cached_property
    def length(self) -> int | None:
        """The number of elements in an epoch; None if the stream is endless, or its length is unknown."""
        return self._stage.length

    @property
    def is_endless(self) -> bool:
        """Whether an epoch has no end."""
        return self._stage.is_endless

    @property
    def count_varies(self) -> bool:
        """Whether `count_outputs` may differ from epoch to epoch."""
        return self._stage.count_varies

    def count_outputs(self, epoch: int = 0) -> list[int]:
        """Return the number of elements of each logical shard in an epoch, by going through all of them in this process.

        Functions of `map` are not called behind the last stage with an unknown yield.
        """
        assert self.shards is not None
        elements = self.elements()
        return [elements.count(epoch, shard) for shard in range(self.shards)]

    def __getitem__(self, position: int) -> Any:
        """Return the element at a position. Positions from the length on are of later epochs.

        Raises:
            TypeError: the stream runs in logical shards; or `position` is a slice.
            IndexError: the position is negative, or the dataset has no elements.
        """
        if isinstance(position, slice):
            raise TypeError("a composed dataset has no [begin:end]. Use slice(begin, end), take(count) or skip(count)")
        position = operator.index(position)
        if position < 0:
            raise IndexError(f"position {position} is negative")
        if self.length == 0:
            raise IndexError(f"there is no position {position}: the dataset has no elements")
        if self._elements is None:
            if self.shards is not None:
                raise TypeError(
                    f"the elements of this stream have no random access: {_SHARDED_SINCE}. Iterate over it, for example "
                    "with a DataLoader"
                )
            self._elements = self.elements()
        return self._elements.at(0, position)

    def __iter__(self) -> ComposedIterator:
        """Return an iterator over one epoch, in this process. It has ``state_dict`` and ``load_state_dict``."""
        return ColumnIterator(self) if self.is_columnar else ComposedIterator(self)

    def costs_by_position(self, costs: Any) -> Callable[[int], float]:
        """Return a function from a position to the cost of its element, which reads nothing.

        For arguments and errors see `dali_like.sources.composed.known_costs.costs_by_position`.
        """
        from dali_like.sources.composed.known_costs import costs_by_position  # few programs need it

        return costs_by_position(self._evaluated, self.seed, costs)

    def elements(self, changes: Sequence[WeightChange] | None = None) -> Elements:
        """Return the evaluator of the dataset for this process.

        Args:
            changes: of the weights of mixtures; None: as the dataset has them.
        """
        changes = self._changes if changes is None else changes
        return Elements(self._evaluated, self.seed, self._num_shards or DEFAULT_SHARDS, changes)

    def with_changes(self, changes: Sequence[WeightChange]) -> Self:
        """Return the dataset with other weights of mixtures from positions on. The description stays the same."""
        twin = copy.copy(self)
        vars(twin).update(_changes=tuple(changes), _elements=None)
        return twin

    @cached_property
    def mixtures(self) -> list[DrawnMixture]:
        """The mixtures of the description, in its order."""
        return composed.draws.mixtures_of(self._evaluated)

    def drawn(self, path: Sequence[int], epoch: int, ends: Sequence[int], changes: Sequence[WeightChange]) -> Reach:
        """Return how far a mixture has been drawn; see `dali_like.sources.composed.draws.reach_of`."""
        place = Place(self.seed, self._num_shards or DEFAULT_SHARDS, changes=tuple(changes))
        return composed.draws.reach_of(self._evaluated, place, path, epoch, ends)

    def changes_in(self, state: Mapping[str, Any]) -> tuple[WeightChange, ...]:
        """Return the changes of weights in a state of this dataset.

        Raises:
            CheckpointError: they do not fit the mixtures of this dataset.
        """
        return composed.draws.changes_in(state, self.mixtures)

    def checked_state(
        self, state: Any, allow_change: Collection[str] = (), owned: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """Return a state, or merged states, of this dataset; see `dali_like.sources.composed.states.checked_state`.

        If parts of the description may have changed, the result has the parts of this dataset.

        Args:
            owned: logical shards whose draws are checked if weights may change; default: all in the state.
        """
        checked = checked_state(state, self.description, self.seed, self.shards, allow_change)
        if self.changes_in(checked) and checked["description"] != self.description:
            raise CheckpointError(
                "Invalid state_dict: weights have been set while the job was running, and the description has other ones. "
                "Use the description of the state, and call set_weights after the resume"
            )
        if "weights" in allow_change:
            composed.draws.check_weights(self._evaluated, self.seed, self._num_shards or DEFAULT_SHARDS, checked, owned)
        return {**checked, "description": self.description}

    def __getstate__(self) -> dict[str, Any]:
        """Return the description alone: copies, and hashes of them, do not depend on earlier use."""
        kept = {name: vars(self)[name] for name in ("_stage", "_seed", "_num_shards", "_changes")}
        return {**kept, "_elements": None}

    def __repr__(self) -> str:
        return "\n".join(self.description)

    def _then(self, stage: Stage) -> Self:
        return type(self)(stage, self._seed, self._num_shards)

    @classmethod
    def _combine(cls, stage: Callable[[tuple[Stage, ...]], Stage], datasets: Sequence[ComposedDataset]) -> Self:
        """Return a dataset of several inputs, with their common options.

        Raises:
            ArgumentError: no dataset is given.
            ArgumentClashError: they have different options.
        """
        if not datasets:
            raise ArgumentError("at least one dataset is needed")
        for dataset in datasets:
            if not isinstance(dataset, ComposedDataset):
                raise ArgumentTypeError(
                    f"the inputs are composed datasets, and one is {kind_of(dataset)}: use ComposedDataset.source(it)"
                )
        options = []
        for name, values in (
            ("seed", {dataset._seed for dataset in datasets}),
            ("shards", {dataset._num_shards for dataset in datasets}),
        ):
            given = sorted(value for value in values if value is not None)
            if len(given) > 1:
                raise ArgumentClashError(
                    f"the datasets have different options: {name}={' and '.join(map(str, given))}. Give them to the "
                    "combined dataset: with_options(...)"
                )
            options.append(given[0] if given else None)
        return cls(stage(tuple(dataset._stage for dataset in datasets)), *options)


class ComposedIterator(Iterator[Any]):
    """Goes through one epoch of a composed dataset in this process, by position. It can be resumed exactly."""

    def __init__(self, dataset: ComposedDataset) -> None:
        self._dataset = dataset
        self._elements = dataset.elements()
        self._epoch = 0
        self._position = 0
        self._states: Mapping[int, ShardState] = {}
        self._changes: tuple[WeightChange, ...] = ()
        self._ahead: Mapping[int, int] = {}
        self._ended: set[int] = set()
        self._reads: ElementsAhead | None = None
        self._has_begun = False

    def __next__(self) -> Any:
        shards, length = self._dataset.shards, self._dataset.length
        while True:
            if (shards is None and length is not None and self._position >= length) or len(self._ended) == shards:
                raise StopIteration
            position = self._position
            if shards is not None and (
                position % shards in self._ended or position // shards < self._ahead.get(position % shards, 0)
            ):
                self._position += 1
                continue
            try:
                element = self._take(position)
            except ShardEndedError:
                assert shards is not None
                self._ended.add(position % shards)
                self._position += 1
                continue
            except Exception:
                self._position += 1
                raise
            self._position += 1
            return element

    def _take(self, position: int) -> Any:
        elements, epoch, states = self._elements, self._epoch, self._states
        if not elements.reads:
            return elements.at(epoch, position, states)
        shards, length = self._dataset.shards, self._dataset.length
        if shards is None:
            if self._reads is None:
                from dali_like.sources.composed.reads import ElementsAhead  # it imports asyncio

                at = functools.partial(elements.at, epoch)
                self._reads = ElementsAhead(at, length, self._dataset.num_reads)
            return self._reads.take(position)
        if not self._has_begun:
            self._has_begun = True
            elements.begin(epoch, range(position, position + shards), states)
        return elements.at(epoch, position, states)

    @property
    def position(self) -> int:
        """The number of positions that have passed, empty ones included."""
        return self._position

    def state_dict(self) -> dict[str, Any]:
        """Return the state before the next element, for JSON."""
        dataset, shards, epoch, position = self._dataset, self._dataset.shards, self._epoch, self._position
        ahead = outputs_ahead(self._states, position, shards) if self._ahead and shards is not None else ()
        states = {
            shard: self._states[shard] if shard in ahead else self._elements.state(epoch, shard, position, self._states)
            for shard in range(shards or 0)
        }
        state = make_state(dataset.description, dataset.seed, shards, epoch, position, states)
        return {**state, "changes": composed.draws.listed_changes(self._changes)} if self._changes else state

    def load_state_dict(self, state_dict: Any, allow_change: Collection[str] = ()) -> None:
        """Continue from a state, also of several ranks.

        Raises:
            CheckpointError: it is of another stream.
        """
        state = self._dataset.checked_state(state_dict, allow_change)
        self._states = shard_states(state)
        self._changes = self._dataset.changes_in(state)
        self._elements = self._dataset.elements(self._changes)
        self._epoch, self._position, self._ended = state["epoch"], state["position"], set()
        self._reads, self._has_begun = None, False
        self._ahead = outputs_ahead(self._states, self._position, state["shards"] or 0)


class ColumnIterator(ComposedIterator):
    """Yields record batches of consecutive positions. Its states count rows."""

    def __next__(self) -> Any:
        from dali_like.sources.composed import row_pieces  # few programs need it

        shards = self._dataset.shards
        assert shards is not None
        while len(self._ended) < shards:
            begin, self._position = self._position, self._position + _ROWS_OF_ITERATOR
            positions = range(begin, self._position)
            runs = row_pieces.runs_of(positions, shards, self._ended, self._ahead)
            taken = row_pieces.take_rows(
                self._elements, shards, self._epoch, positions, runs, self._states, lambda place: None
            )
            self._ended.update(taken.ended)
            if taken.rows:
                return taken.rows.joined()
        raise StopIteration


def _optional(name: str, value: int | None) -> int | None:
    """Return a positive number, or None."""
    return None if value is None else positive(name, value)


def cost_of(function: Callable[[Any], Any], key: str | None) -> Cost:
    """Return a measure of one cost of elements."""
    return composed.costs.Cost(_callable(function), None if key is None else (key,))


def as_list(datasets: Sequence[Any]) -> Sequence[Any]:
    """Return the datasets of a call that gets a list of them, or one by one."""
    return datasets[0] if len(datasets) == 1 and isinstance(datasets[0], (list, tuple)) else datasets


def _callable(function: Any) -> Any:
    if not callable(function):
        raise ArgumentTypeError(f"a stage needs a function, but got {function!r:.100}")
    return function
