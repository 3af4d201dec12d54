"""Where samples come from: the index in a dataset, the file, and the input of a mixture."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["UNKNOWN", "Origin", "Origins", "file_of", "flat", "origin_at", "text_of", "texts_of"]

#: Attributes of datasets with a file, or a tuple that begins with a file, for each sample.
_FILE_ATTRIBUTES = ("samples", "imgs", "files", "paths", "filenames", "image_files", "items")


class Origin(NamedTuple):
    """Where a sample comes from.

    Attributes:
        index: the index in a map-style dataset or a source; the number of the record, in a file or an iterable; the position
            in the epoch, of a source of a pipeline. Another key if the sampler yields such keys. None: unknown.
        file: the file that has the sample; "": unknown, or none.
        source: the name of the input of a mixture or of `ComposedDataset.concat`, or of an iterable; "": only one.
    """

    index: Any = None
    file: str = ""
    source: str = ""


#: The origin of one sample, or of each part of a pack, a window or a zip.
Origins = Origin | tuple[Origin, ...]

#: The origin of an element that nobody knows, such as the result of ``on_error``.
UNKNOWN = Origin()


def origin_at(dataset: Any, index: Any) -> Origin:
    """Return the origin of a sample of a map-style dataset: its index, and the file if the dataset lists its files."""
    return Origin(index, file_of(dataset, index))


def file_of(dataset: Any, index: Any) -> str:
    """Return the file of a sample, if the dataset lists the files; "" otherwise."""
    try:
        while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):  # a subset
            dataset, index = dataset.dataset, dataset.indices[index]
        for name in _FILE_ATTRIBUTES:
            listed = getattr(dataset, name, None)
            if isinstance(listed, Collection) and hasattr(listed, "__getitem__") and len(listed) == len(dataset):
                entry = listed[index]
                first = entry[0] if isinstance(entry, tuple | list) and entry else entry
                if isinstance(first, str | os.PathLike):
                    return os.fspath(first)
    except Exception:  # a user's object may do anything; its files are unknown then
        return ""
    return ""


def flat(rows: Iterable[Origins]) -> tuple[Origin, ...]:
    """Return the origins of some rows in one tuple."""
    return tuple(part for row in rows for part in ((row,) if isinstance(row, Origin) else row))


def text_of(row: Origins) -> str:
    """Describe the origin of a row in a few words: ``12 (a.jpg)``, ``web 7``, ``[3, 4]``."""
    if not isinstance(row, Origin):
        return f"[{', '.join(map(text_of, row))}]"
    words = [row.source, "?" if row.index is None and not row.file else "" if row.index is None else str(row.index)]
    if row.file:
        words.append(f"({row.file})" if any(words) else row.file)
    return " ".join(filter(None, words))


def texts_of(rows: Sequence[Origins]) -> str:
    """Describe the origins of a batch."""
    return ", ".join(map(text_of, rows))
