"""Readers of your own formats, for ``fn.readers``: the base class, the decorator, and files. See docs/how-to/readers.md."""

from __future__ import annotations

from dali_like.errors import BrokenFileError, FileReadError, MissingFileError
from dali_like.sources.readers.reader import Reader, reader
from dali_like.sources.readers.stored_files import FileNames, StoredFiles

__all__ = [
    "BrokenFileError",
    "FileNames",
    "FileReadError",
    "MissingFileError",
    "Reader",
    "StoredFiles",
    "reader",
]
