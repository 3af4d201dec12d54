"""The file with which an interrupted check continues: a line of JSON for each examined sample."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from dali_like.cli.check.examining import Examined, SampleItem
from dali_like.errors import ArgumentError

_VERSION = 1


class StateFile:
    """Examined samples in a file. Each sample is written when it is added, so that a killed check loses none.

    Args:
        path: of the file. It is made if it does not exist.
        name: of the checked object.

    Raises:
        ArgumentError: the file is of another object, or cannot be read.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        header = json.dumps({"dali_like check": _VERSION, "name": name})
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                first = file.readline(len(header) + 4096).rstrip("\n")
        except FileNotFoundError:
            first = ""
        except OSError as error:
            raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
        if first and first != header:
            raise ArgumentError(f"{path} is not the state of a check of {name}; choose another --state")
        self._ids: dict[tuple[SampleItem, ...], int] = {}
        self._items: list[tuple[SampleItem, ...]] = []
        self._known = list(self._read()) if first else []
        # Written anew: the last line may be incomplete.
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._file.write(header + "\n")
        self._ids.clear()
        for sample in self._known:
            self.add(sample)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self) -> list[Examined]:
        """Return the samples that were known at the beginning."""
        return self._known

    def add(self, sample: Examined) -> None:
        """Write a sample. Its items are written once for all samples with the same."""
        number = self._ids.get(sample.items)
        if number is None:
            number = self._ids[sample.items] = len(self._ids)
            self._file.write(json.dumps({"items": sample.items}) + "\n")
        line = [sample.index, sample.duration_s, number, sample.digest, sample.error, sample.file]
        self._file.write(json.dumps(line) + "\n")

    def _read(self) -> Iterator[Examined]:
        with self._path.open(encoding="utf-8") as file:
            next(file)
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    return  # the process was killed while it wrote this line
                if isinstance(entry, dict):
                    self._items.append(tuple(_item(*fields) for fields in entry["items"]))
                else:
                    index, duration_s, number, digest, error, name = entry
                    yield Examined(index, duration_s, self._items[number], digest, error, name)


def _item(path: str, dtype: str, shape: list[int] | None, is_empty: bool, is_finite: bool) -> SampleItem:
    return SampleItem(path, dtype, None if shape is None else tuple(shape), is_empty, is_finite)
