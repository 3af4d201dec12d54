"""The base class of readers whose samples are the records of LMDB databases.

The main process reads the keys and the places of the records. The workers read records as parts of the file.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.saved_arguments import SavedTexts
from dali_like.errors import ArgumentError, BrokenFileError
from dali_like.sources.readers.file_reader import listed
from dali_like.sources.readers.lmdb_file import find_records
from dali_like.sources.readers.reader import Reader
from dali_like.sources.readers.stored_files import FileNames, is_url, joined, shown
from dali_like.types import SampleInfo


class LmdbReader(Reader):
    """Reads records of LMDB databases, in the order of their keys, and one database after the other.

    Args:
        path: folders of the databases.
    """

    def __init__(self, *, path: SavedTexts) -> None:
        self._paths = listed(path) or ()
        if not self._paths:
            raise ArgumentError("path must name at least one folder of an LMDB database")
        self._keys = FileNames(())
        self._firsts = np.zeros(1, np.int64)
        self._spans = np.zeros((0, 2), np.int64)
        self._versions: list[str] = []

    def prepare(self) -> None:
        keys: list[str] = []
        firsts, spans = [0], []
        for path in self._paths:
            data_path = joined(path, "data.mdb")
            self._versions.append(self.files.version(data_path))
            with self.files.open(data_path) as file:
                found = find_records(data_path, file)
            keys += map(os.fsdecode, found.keys)
            spans.append(found.spans)
            firsts.append(len(keys))
        self._keys = FileNames(keys)
        self._firsts = np.asarray(firsts)
        self._spans = np.concatenate(spans)

    def __len__(self) -> int:
        return len(self._keys)

    async def read(self, index: int, info: SampleInfo) -> Any:
        number = int(np.searchsorted(self._firsts, index, "right")) - 1
        path = self._paths[number]
        data_path = joined(path, "data.mdb")
        if not is_url(path) and self.files.version(data_path) != self._versions[number]:
            raise BrokenFileError(
                f"{shown(data_path)} has changed since the pipeline was built. Let the other program finish first", data_path
            )
        record = await self.files.read(data_path, *self._spans[index].tolist())
        try:
            return self.parse(record, info)
        except ValueError as error:
            raise BrokenFileError(f"{shown(path)}, record with the key {shown(self._keys[index])}: {error}", path) from None

    @abstractmethod
    def parse(self, record: NDArray[np.uint8], info: SampleInfo) -> Any:
        """Return the sample of a record. It must not refer to the record's memory.

        Raises:
            ValueError: the record is damaged, or of another format.
        """
