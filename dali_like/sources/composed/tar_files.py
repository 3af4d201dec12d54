"""Samples of tar archives, as WebDataset has them: consecutive files with the same name before the first dot."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from dali_like.errors import BrokenFileError
from dali_like.sources.composed.span_files import SpanFiles
from dali_like.sources.readers.stored_files import shown
from dali_like.sources.readers.webdataset_index import members

__all__ = ["TarFiles", "tar_samples"]

_BLOCK_BYTES = 512


class TarFiles(SpanFiles):
    """Tar archives that are not compressed."""

    kind = "tar"

    def scan(self, path: str, file: BinaryIO) -> list[int]:
        ends: list[int] = []
        last_name = None
        for name, _, member in members(path, file):
            if name != last_name:
                ends.append(0)
                last_name = name
            ends[-1] = member.offset_data + -(-member.size // _BLOCK_BYTES) * _BLOCK_BYTES
        return ends

    def decode(self, record: Any, index: int) -> dict[str, Any]:
        file = io.BytesIO(record)
        path, number, offset = self.place_of(index)
        try:
            found = (
                (name, ext, record[member.offset_data : member.offset_data + member.size])
                for name, ext, member in members(path, file, is_whole=False)
            )
            samples = list(tar_samples(found))
        except BrokenFileError as error:
            raise _broken(path, number, offset, str(error)) from error
        if len(samples) != 1:
            raise _broken(path, number, offset, "it has other files than the index says")
        return samples[0]


def tar_samples(found: Iterable[tuple[str, str, Any]]) -> Iterator[dict[str, Any]]:
    """Group files to samples.

    Args:
        found: the name of the sample, the extension and the bytes of each file, in order.

    Yields:
        ``{"__key__": name, extension: bytes, ...}``
    """
    sample: dict[str, Any] | None = None
    for name, ext, data in found:
        if sample is None or sample["__key__"] != name:
            if sample is not None:
                yield sample
            sample = {"__key__": name}
        sample[ext] = bytes(data)
    if sample is not None:
        yield sample


def _broken(path: str, number: int, offset: int, problem: str) -> BrokenFileError:
    return BrokenFileError(
        f"{shown(path)}: record {number} at byte {offset} is damaged: {problem}. Write the archive again", path, offset
    )
