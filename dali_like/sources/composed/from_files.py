"""Descriptions of files: the arguments of `ComposedDataset.from_jsonl` and its like, checked."""

from __future__ import annotations

import functools
import glob
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dali_like.common.articles import kind_of
from dali_like.common.checks import not_negative, positive
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, MissingFileError
from dali_like.sources.composed.array_files import Hdf5Files, ZarrStores, layout_of
from dali_like.sources.composed.chunk_shuffle import ChunkShuffle
from dali_like.sources.composed.chunked_files import ChunkedSource, FileRecords
from dali_like.sources.composed.columnar import RecordBatchFiles, RecordBatchParts
from dali_like.sources.composed.decompression import is_compressed
from dali_like.sources.composed.elementwise import Map
from dali_like.sources.composed.inputs import Indexed, Part, Parts
from dali_like.sources.composed.library_files import ArrayRecordFiles, LanceTable
from dali_like.sources.composed.parquet_files import ParquetFiles
from dali_like.sources.composed.sequential_files import (
    CompressedLines,
    CompressedTar,
    IterablePart,
    parse_line,
)
from dali_like.sources.composed.span_files import LineFiles
from dali_like.sources.composed.stage import Stage
from dali_like.sources.composed.tar_files import TarFiles
from dali_like.sources.composed.token_files import TokenFiles, TokenLayout
from dali_like.sources.readers.stored_files import StoredFiles, is_url, shown

if TYPE_CHECKING:
    from dali_like.sources.composed.reader_samples import Episode

__all__ = ["Paths"]

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: ``{000..099}`` or ``{a,b}``.
_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")
#: Local files that a process keeps open for one source.
_MOST_OPEN = 1


def jsonl(
    paths: Paths,
    interleave: int | None,
    chunk_bytes: int,
    max_record_bytes: int,
    remote_options: Mapping[str, Any] | None,
) -> Stage:
    """Return the stage of `ComposedDataset.from_jsonl`."""
    files, found = _listed(paths, remote_options)
    part = functools.partial(CompressedLines, most_bytes=positive("max_record_bytes", max_record_bytes))
    if _are_compressed(found):
        return Map(_parts("jsonl", part, files, found, interleave), parse_line)
    return _indexed("jsonl", found, LineFiles(files, found, positive("chunk_bytes", chunk_bytes)), interleave)


def tar(
    paths: Paths,
    interleave: int | None,
    chunk_bytes: int,
    max_record_bytes: int,
    remote_options: Mapping[str, Any] | None,
) -> Stage:
    """Return the stage of `ComposedDataset.from_tar`."""
    files, found = _listed(paths, remote_options)
    part = functools.partial(CompressedTar, most_bytes=positive("max_record_bytes", max_record_bytes))
    if _are_compressed(found):
        return _parts("tar", part, files, found, interleave)
    return _indexed("tar", found, TarFiles(files, found, positive("chunk_bytes", chunk_bytes)), interleave)


def parquet(
    paths: Paths,
    columns: Sequence[str] | None,
    as_batches: bool,
    interleave: int | None,
    max_row_group_bytes: int,
    remote_options: Mapping[str, Any] | None,
) -> Stage:
    """Return the stage of `ComposedDataset.from_parquet`."""
    files, found = _listed(paths, remote_options)
    source = ParquetFiles(files, found, _names(columns), positive("max_row_group_bytes", max_row_group_bytes))
    return _record_batches(found, source, interleave) if as_batches else _indexed("parquet", found, source, interleave)


def _record_batches(paths: Sequence[str], rows: ParquetFiles, interleave: int | None) -> Stage:
    """Return the stage of files that are read in columns. A part is a row group, or with `interleave` a file."""
    source = RecordBatchFiles(rows)
    ends = source.chunk_ends.tolist()
    of_files = np.searchsorted(rows.file_ends, rows.chunk_ends).tolist()
    if interleave is not None:
        ends = [end for end, number, after in zip(ends, of_files, [*of_files[1:], -1], strict=True) if number != after]
        of_files = sorted(set(of_files))
    parts = [
        FileRecords(source, range(first, end), shown(paths[number]))
        for first, end, number in zip([0, *ends[:-1]], ends, of_files, strict=True)
    ]
    interleave = positive("interleave", 1 if interleave is None else interleave)
    return RecordBatchParts(tuple(parts), "parquet in columns", interleave)


def array_record(paths: Paths) -> Stage:
    """Return the stage of `ComposedDataset.from_array_record`."""
    _, found = _listed(paths, None)
    return Indexed(ArrayRecordFiles(found), _with_count("array_record", found), tuple(found))


def lance(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None,
    version: int | None,
    storage_options: Mapping[str, str] | None,
) -> Stage:
    """Return the stage of `ComposedDataset.from_lance`."""
    return Indexed(LanceTable(os.fspath(path), _names(columns), version, storage_options), "lance")


def hdf5(
    paths: Paths,
    fields: str | Sequence[str] | None,
    window: int | None,
    shift: int | None,
    interleave: int | None,
    remote_options: Mapping[str, Any] | None,
) -> Stage:
    """Return the stage of `ComposedDataset.from_hdf5`."""
    files, found = _listed(paths, remote_options)
    layout = layout_of(fields, window, shift)
    return _indexed("hdf5", found, Hdf5Files(files, found, layout), interleave, str(layout))


def zarr(
    paths: Paths,
    fields: str | Sequence[str] | None,
    window: int | None,
    shift: int | None,
    interleave: int | None,
    storage_options: Mapping[str, Any] | None,
) -> Stage:
    """Return the stage of `ComposedDataset.from_zarr`."""
    found = [path for pattern in _patterns(paths) for path in _folders(pattern)]
    layout = layout_of(fields, window, shift)
    return _indexed("zarr", found, ZarrStores(found, layout, storage_options), interleave, str(layout))


def tokens(
    paths: Paths,
    window: int,
    shift: int | None,
    dtype: Any,
    header_bytes: int,
    interleave: int | None,
    chunk_bytes: int,
    remote_options: Mapping[str, Any] | None,
) -> Stage:
    """Return the stage of `ComposedDataset.from_tokens`."""
    files, found = _listed(paths, remote_options)
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        raise ArgumentError(f'dtype must be a dtype of NumPy, such as "uint16", not {dtype!r}') from None
    if wanted.kind not in "iuf":
        raise ArgumentError(f"the dtype of tokens is that of numbers, not {wanted}")
    layout = TokenLayout(
        positive("window", window),
        window if shift is None else positive("shift", shift),
        wanted,
        not_negative("header_bytes", header_bytes),
    )
    source = TokenFiles(files, found, layout, positive("chunk_bytes", chunk_bytes))
    return _indexed("tokens", found, source, interleave, f"window={layout.window}, shift={layout.shift}")


def video(
    paths: str | os.PathLike[str] | Sequence[Episode],
    frames: int | None,
    interleave: int | None,
    remote_options: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> Stage:
    """Return the stage of `ComposedDataset.from_video`."""
    from dali_like.sources.composed.reader_samples import EpisodesReader, VideoClips  # it imports readers

    files = StoredFiles(remote_options)
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    episodes: list[tuple[str, int | None, int | None]] = []
    for each in given:
        if isinstance(each, tuple):
            path, first, end = each
            episodes.append((os.fspath(path), not_negative("first frame", first), positive("end", end)))
        else:
            episodes += [(path, None, None) for pattern in _patterns(each) for path in files.matches(pattern)]
    if not episodes:
        raise ArgumentError("paths is empty: name at least one video")
    reader = EpisodesReader(episodes, None if frames is None else positive("frames", frames), **options)
    if remote_options is not None:
        reader.remote_options = remote_options
    reader.prepare()
    details = "whole episodes" if frames is None else f"frames={frames}, step={reader.step}"
    found = [path for path, _, _ in episodes]
    return _indexed("video", found, VideoClips(reader), interleave, f"{details}, stride={options['stride']}")


def iterable_parts(iterables: Sequence[Any]) -> list[Part]:
    """Return the parts of `ComposedDataset.from_iterables`."""
    return [_iterable_part(number, each) for number, each in enumerate(iterables)]


def chunk_shuffle(stage: Stage, together: int, block: int | None, seed: int | None, whole: bool) -> Stage:
    """Return the stage of ``shuffle(together=...)``."""
    if block is not None:
        raise ArgumentClashError("shuffle takes block or together, not both")
    if not isinstance(stage, Indexed) or not isinstance(stage.source, ChunkedSource):
        raise ArgumentError(
            f"shuffle(together=...) shuffles files that are read in chunks, and its input is {stage.text}. Use it directly "
            "behind from_parquet, from_jsonl and so on; or shuffle in blocks: shuffle(block=1024)"
        )
    return ChunkShuffle(stage, together, seed, whole)


def _listed(paths: Paths, remote_options: Mapping[str, Any] | None) -> tuple[StoredFiles, list[str]]:
    """Return the files of paths and patterns."""
    files = StoredFiles(remote_options, most_open=_MOST_OPEN)
    return files, [path for pattern in _patterns(paths) for path in files.matches(pattern)]


def _patterns(paths: Paths) -> list[str]:
    """Return paths and patterns, with braces expanded."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    for path in given:
        if not isinstance(path, (str, os.PathLike)):
            raise ArgumentTypeError(f"paths are texts or os.PathLike, and one is {kind_of(path)}")
    if not given:
        raise ArgumentError("paths is empty: name at least one file")
    return [pattern for path in given for pattern in expanded(os.fspath(path))]


def _folders(pattern: str) -> list[str]:
    """Return the sorted paths of the folders and files that match a pattern; a URL, or an existing path, as it is."""
    if is_url(pattern) or os.path.exists(pattern) or not glob.has_magic(pattern):
        return [pattern]
    if not (found := sorted(glob.iglob(pattern, recursive=True), key=os.fsencode)):
        raise MissingFileError(f"no file or folder matches {shown(pattern)}. Check the pattern", pattern)
    return found


def expanded(path: str) -> list[str]:
    """Return the paths or patterns that a path with braces stands for."""
    braces = None if os.path.exists(path) else _BRACES.search(path)
    if braces is None:
        return [path]
    first, last, names = braces.groups()
    if names is None:
        width = max(len(first), len(last)) if first.startswith("0") else 0
        alternatives = [f"{number:0{width}}" for number in range(int(first), int(last) + 1)]
    else:
        alternatives = names.split(",")
    return [found for each in alternatives for found in expanded(path[: braces.start()] + each + path[braces.end() :])]


def _are_compressed(paths: Sequence[str]) -> bool:
    compressed = [path for path in paths if is_compressed(path)]
    others = [path for path in paths if not is_compressed(path)]
    if compressed and others:
        raise ArgumentError(
            f"{shown(compressed[0])} is compressed and read in order, {shown(others[0])} has random access. Describe them "
            "as two datasets, and combine these: ComposedDataset.concat([...])"
        )
    return bool(compressed)


def _parts(
    name: str, part: Callable[[StoredFiles, str], Part], files: StoredFiles, paths: Sequence[str], interleave: int | None
) -> Parts:
    interleave = positive("interleave", 1 if interleave is None else interleave)
    return Parts(tuple(part(files, path) for path in paths), name, interleave)


def _indexed(name: str, paths: Sequence[str], source: Any, interleave: int | None, details: str = "") -> Stage:
    """Return the stage of files with an index: with random access, or in order if `interleave` is given.

    Args:
        source: a `ChunkedSource` with ``file_ends``.
        details: of its elements, for the text.
    """
    if interleave is None:
        return Indexed(source, _with_count(name, paths, details), tuple(paths))
    ends = source.file_ends.tolist()
    parts = [
        FileRecords(source, range(first, end), shown(path))
        for path, first, end in zip(paths, [0, *ends[:-1]], ends, strict=True)
    ]
    return Parts(tuple(parts), f"{name} {details}".strip(), positive("interleave", interleave))


def _with_count(name: str, paths: Sequence[str], details: str = "") -> str:
    return f"{name}({len(paths)} {'file' if len(paths) == 1 else 'files'}{', ' * bool(details)}{details})"


def _names(columns: Sequence[str] | None) -> list[str] | None:
    if isinstance(columns, str):
        raise ArgumentTypeError(f"columns is a list of names: columns=[{columns!r}]")
    return None if columns is None else list(columns)


def _iterable_part(number: int, iterable: Any) -> Part:
    if callable(getattr(iterable, "open", None)):
        part: Part = iterable
        return part
    if inspect.isgeneratorfunction(iterable):
        return IterablePart(iterable, number)
    if not hasattr(type(iterable), "__iter__"):
        raise ArgumentTypeError(
            f"iterables[{number}] should be an iterable or a generator function, or have open(record), but is "
            f"{iterable!r:.100}. Pass an object of a class with __iter__"
        )
    if iter(iterable) is iterable:
        raise ArgumentTypeError(
            f"iterables[{number}] is an iterator, which cannot be begun again. Pass the generator function, an object whose "
            "__iter__ begins anew, or one with open(record)"
        )
    return IterablePart(iterable, number)
