"""``fn.readers.file``: files and their labels."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dali_like.common.saved_arguments import SavedText, SavedTexts
from dali_like.errors import ArgumentClashError, ArgumentError, BrokenFileError
from dali_like.sources.readers.reader import Reader, reader
from dali_like.sources.readers.stored_files import FileNames, StoredFiles, joined, shown
from dali_like.types import SampleInfo

#: The patterns of files that DALI's reader takes by default.
KNOWN_EXTENSIONS = (
    *("*.jpg", "*.jpeg", "*.png", "*.bmp", "*.tif", "*.tiff", "*.pnm", "*.ppm", "*.pgm", "*.pbm", "*.jp2", "*.webp"),
    *("*.flac", "*.ogg", "*.wav"),
)
#: A line of a file list. Only the label at its end separates it from the name, which may contain spaces.
_LISTED = re.compile(r"(.*?\S)\s+(\d+)\s*")


@reader(path="readers.file")
class FileReader(Reader):
    """Reads files, and returns their bytes and labels.

    There are three ways to list the files:

    - `file_root` alone: each folder in it is a class. The folders, sorted by their names, have the labels 0, 1, 2 and so on,
      whether or not they contain files. The files in a folder are sorted by their names. Deeper folders are not read.
    - `file_list`: a text file with a name and a label per line, such as ``dog.jpg 0``.
    - `files`: the paths.

    Args:
        file_root: folder of the classes; with `file_list` or `files`, the folder that relative names begin from.
        files: paths of files.
        labels: a label for each of `files`. Default: their numbers in `files`.
        file_list: path of a text file. Relative names in it begin from `file_root`, or else from the folder of this file.
        file_filters: shell patterns of file names in the folders; a name must match one of them. Default: images and audio
            files, by their extensions.
        dir_filters: shell patterns of names of folders. Default: all folders.
        case_sensitive_filter: whether patterns distinguish upper and lower case.

    Returns:
        The bytes of a file, of shape (number of bytes,) and dtype UINT8, and the label, of shape (1,) and dtype INT32.
    """

    num_outputs = 2
    dtype = np.uint8, np.int32
    ndim = 1, 1

    def __init__(
        self,
        *,
        file_root: SavedText | None = None,
        files: SavedTexts | None = None,
        labels: tuple[int, ...] | None = None,
        file_list: SavedText | None = None,
        file_filters: SavedTexts = KNOWN_EXTENSIONS,
        dir_filters: SavedTexts | None = None,
        case_sensitive_filter: bool = False,
    ) -> None:
        check_sources(file_root, files, file_list)
        if labels is not None and files is None:
            raise ArgumentClashError("labels is valid only when file paths are provided as files: leave labels out")
        self._root = file_root or ""
        self._given = listed(files)
        self._labels = np.asarray(labels, np.int32) if labels is not None else None
        self._list = file_list
        self._accepts_file = name_filter("file_filters", file_filters, case_sensitive=case_sensitive_filter)
        self._accepts_folder = name_filter("dir_filters", dir_filters, case_sensitive=case_sensitive_filter)
        if labels is not None and len(labels) != len(self._given or ()):
            raise ArgumentError(f"labels: Provided {len(labels)} labels for {len(self._given or ())} files")
        self._names = FileNames(())

    def prepare(self) -> None:
        if self._given is not None:
            names: Sequence[str] = self._given
            labels = np.arange(len(names), dtype=np.int32) if self._labels is None else self._labels
        elif self._list is not None:
            root = self._root or os.path.dirname(self._list)
            self._root = root
            names, labels = self._listed_files(self._list)
        else:
            names, labels = self._found_files()
        self._names = FileNames(names)
        self._labels = labels

    def __len__(self) -> int:
        return len(self._names)

    async def read(self, index: int, info: SampleInfo) -> Any:
        data = await self.files.read(joined(self._root, self._names[index]), empty=info.empty)
        assert self._labels is not None
        return data, self._labels[index : index + 1]

    def why_empty(self) -> str:
        if self._list is not None:
            return f"No files found: {shown(self._list)} has no lines"
        root = shown(self._root)
        folders = {
            name: files for name, files in self.files.names_in_folders(self._root).items() if self._accepts_folder(name)
        }
        others = [f"{folder}/{name}" for folder, names in folders.items() for name in names]
        direct = [name for name in self.files.names(self._root) if not name.startswith(".")]
        if direct and not others:
            return (
                f"No files found in folders of {root}, but {len(direct)} directly in it, such as {shown(direct[0])}. With "
                "file_root alone, each class is a folder. For files without such folders, pass files=, or file_list= with "
                "labels"
            )
        if not folders:
            return f"No files found: {root} has no folder, or none that matches dir_filters. Each class is a folder in it"
        if not others:
            return f"No files found: all folders in {root} are empty. Folders in them are not read"
        return (
            f"No files found: none of the {len(others)} files in the folders of {root}, such as {shown(others[0])}, matches "
            "file_filters. Correct these, or leave them out"
        )

    def source_info(self, index: int, output: int) -> str:
        return self._names[index] if output == 0 else ""

    def _found_files(self) -> tuple[list[str], Any]:
        names, labels = [], []
        folders = self.files.names_in_folders(self._root)
        for label, folder in enumerate(filter(self._accepts_folder, folders)):
            accepted = list(filter(self._accepts_file, folders[folder]))
            names += [f"{folder}/{name}" for name in accepted]
            labels += [label] * len(accepted)
        return names, np.asarray(labels, np.int32)

    def _listed_files(self, path: str) -> tuple[list[str], Any]:
        names, labels = [], []
        for number, line in enumerate(self.files.text_lines(path), 1):
            if not line.strip():
                continue
            match = _LISTED.fullmatch(line)
            if match is None:
                raise BrokenFileError(
                    f'Incorrect format of the list file "{shown(path)}":{number} expected file name followed by a label; '
                    f"got: {shown(line)}",
                    path,
                )
            names.append(match[1])
            labels.append(int(match[2]))
            if labels[-1] > np.iinfo(np.int32).max:
                raise BrokenFileError(f"{shown(path)}:{number} the label {match[2]} does not fit into 32 bits", path)
        return names, np.asarray(labels, np.int32)


def check_sources(file_root: str | None, files: Any, file_list: str | None) -> None:
    """Refuse arguments that name no files, or name them twice.

    Raises:
        ArgumentClashError: `files` and `file_list` are both given, or nothing is.
        ArgumentError: `files` is empty.
    """
    if files is not None and file_list is not None:
        raise ArgumentClashError("File paths can be provided through files or file_list but not both")
    if files is None and file_list is None and file_root is None:
        raise ArgumentClashError("file_root argument is required when not using files or file_list")
    if files is not None and not files:
        raise ArgumentError("files specified an empty list")


def find_files(
    files: StoredFiles, root: str, given: tuple[str, ...] | None, list_path: str | None, accepts: Callable[[str], Any]
) -> tuple[str, list[str]]:
    """Return a folder, and the names of files that begin there: those given, those listed, or those found.

    Args:
        files: reads the list and the folders.
        root: the folder; "" if the user has not given any.
        given: names of files, or None.
        list_path: path of a text file with a name per line, or None.
        accepts: whether to take a file in `root`, or in a folder of it.
    """
    if given is not None:
        return root, list(given)
    if list_path is not None:
        return root or os.path.dirname(list_path), [line for line in files.text_lines(list_path) if line]
    names = list(filter(accepts, files.names(root)))
    for folder, inside in files.names_in_folders(root).items():
        names += [f"{folder}/{name}" for name in filter(accepts, inside)]
    return root, names


def why_none_found(root: str, list_path: str | None, file_filter: str) -> str:
    """Return the message for the case that `find_files` has found nothing; the files must match `file_filter`."""
    if list_path is not None:
        return f"No files found: {shown(list_path)} has no lines"
    return (
        f"No files found: neither {shown(root)} nor a folder in it has a file that matches file_filter={file_filter!r}. "
        "Deeper folders are not read: pass files="
    )


def listed(value: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return one string, or several, as a tuple."""
    return (value,) if isinstance(value, str) else value


def name_filter(argument: str, patterns: str | tuple[str, ...] | None, *, case_sensitive: bool) -> Callable[[str], Any]:
    """Return a function that is true for names that match one of some shell patterns; None matches all.

    Raises:
        ArgumentError: there are no patterns.
    """
    if patterns is None:
        return _accept
    given = listed(patterns)
    if not given:
        raise ArgumentError(f"{argument} list cannot be empty")
    flags = 0 if case_sensitive else re.IGNORECASE
    return re.compile("|".join(map(fnmatch.translate, given)), flags).match


def _accept(name: str) -> bool:
    return True
