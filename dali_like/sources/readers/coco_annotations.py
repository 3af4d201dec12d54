"""The annotations of a COCO dataset as arrays, from its JSON file or from files of preprocessed annotations.

The main process parses them once. The arrays travel to the workers. The files of preprocessed annotations are DALI's: each
library reads the files of the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.json_text import json_value
from dali_like.errors import BrokenFileError, FileReadError, MissingFileError
from dali_like.sources.readers.stored_files import FileNames, StoredFiles, joined, shown


def _empty() -> NDArray[np.int64]:
    return np.zeros(0, np.int64)


class _Stored(NamedTuple):
    """How a file of preprocessed annotations stores a table.

    Attributes:
        file: its name.
        dtype: of the numbers.
        columns: numbers in a row; 0: rows are single numbers.
        counts_rows: whether the file begins with the number of rows, and not of numbers.
    """

    file: str
    dtype: str
    columns: int = 0
    counts_rows: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return (-1, self.columns) if self.columns else (-1,)

    def encoded(self, array: NDArray[Any]) -> bytes:
        """Return the content of the file."""
        count = len(array) if self.counts_rows else array.size
        return np.uint32(count).tobytes() + array.astype(self.dtype).tobytes()

    def decoded(self, path: str, data: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the table that a file contains; it is empty if the file is.

        Raises:
            BrokenFileError: the file is too short, or too long.
        """
        if not len(data):
            return _none(self)
        count = int.from_bytes(data[:4].tobytes(), "little") * ((self.columns or 1) if self.counts_rows else 1)
        if len(data) != 4 + count * np.dtype(self.dtype).itemsize:
            raise _truncated(path, len(data))
        return np.frombuffer(data.tobytes(), self.dtype, count, 4).reshape(self.shape)


_BASIC = {
    "offsets": _Stored("offsets.dat", "<i4"),
    "boxes": _Stored("boxes.dat", "<f4", 4, counts_rows=False),
    "labels": _Stored("labels.dat", "<i4"),
    "counts": _Stored("counts.dat", "<i4"),
}
_POLYGONS = {
    "polygons": _Stored("polygon_data.dat", "<i4", 3),
    "polygon_offsets": _Stored("polygon_offset.dat", "<i8"),
    "polygon_counts": _Stored("polygons_count.dat", "<i8"),
    "vertices": _Stored("vertices.dat", "<f4", 2),
    "vertex_offsets": _Stored("vertices_offset.dat", "<i8"),
    "vertex_counts": _Stored("vertices_count.dat", "<i8"),
}
_PIXELS = {
    "run_objects": _Stored("masks_rles_idx.dat", "<i4"),
    "run_offsets": _Stored("masks_offset.dat", "<i8"),
    "run_counts": _Stored("mask_count.dat", "<i8"),
    "heights": _Stored("heights.dat", "<i4"),
    "widths": _Stored("widths.dat", "<i4"),
}
_IDS = {"image_ids": _Stored("original_ids.dat", "<i4")}
#: The counts of rows in tables.
_TABLES = {"counts": "labels", "polygon_counts": "polygons", "vertex_counts": "vertices", "run_counts": "run_objects"}
_NAMES_FILE, _RUNS_FILE = "filenames.dat", "masks_rles.dat"


@dataclass(frozen=True, kw_only=True)
class CocoOptions:
    """Arguments of the reader that change the annotations; see `CocoReader`."""

    polygons: bool = False
    pixels: bool = False
    image_ids: bool = False
    ltrb: bool = False
    ratio: bool = False
    size_threshold: float = 0.1
    include_iscrowd: bool = True
    skip_empty: bool = False
    avoid_class_remapping: bool = False
    images: tuple[str, ...] = ()

    @property
    def needs_sizes(self) -> bool:
        """Whether the outputs depend on the sizes of images."""
        return self.ratio or self.pixels

    @property
    def stored(self) -> dict[str, _Stored]:
        """The tables that the outputs need, and the names of their files."""
        return {
            **_BASIC,
            **(_POLYGONS if self.polygons or self.pixels else {}),
            **(_PIXELS if self.pixels else {}),
            **(_IDS if self.image_ids else {}),
        }


@dataclass(frozen=True, kw_only=True)
class CocoTables:
    """The annotations of all images. Image i has the objects from ``offsets[i]`` on, ``counts[i]`` of them.

    Attributes:
        names: files of the images.
        offsets, counts: objects of each image.
        boxes: float32, of shape (objects, 4).
        labels: of each object.
        polygons: object in its image, first vertex, and end of the vertices, counted in the image. Shape (polygons, 3).
        polygon_offsets, polygon_counts: polygons of each image.
        vertices: float32, of shape (vertices, 2).
        vertex_offsets, vertex_counts: vertices of each image.
        runs: lengths of the runs of all run-length encoded masks.
        run_ends: end of each mask in `runs`, from 0 on: one more than there are masks.
        run_sizes: height and width of each mask.
        run_objects: object of each mask in its image.
        run_offsets, run_counts: masks of each image.
        heights, widths: of each image, in pixels.
        image_ids: of each image.
    """

    names: FileNames
    offsets: NDArray[Any] = field(default_factory=_empty)
    counts: NDArray[Any] = field(default_factory=_empty)
    boxes: NDArray[Any] = field(default_factory=_empty)
    labels: NDArray[Any] = field(default_factory=_empty)
    polygons: NDArray[Any] = field(default_factory=_empty)
    polygon_offsets: NDArray[Any] = field(default_factory=_empty)
    polygon_counts: NDArray[Any] = field(default_factory=_empty)
    vertices: NDArray[Any] = field(default_factory=_empty)
    vertex_offsets: NDArray[Any] = field(default_factory=_empty)
    vertex_counts: NDArray[Any] = field(default_factory=_empty)
    runs: NDArray[Any] = field(default_factory=_empty)
    run_ends: NDArray[Any] = field(default_factory=_empty)
    run_sizes: NDArray[Any] = field(default_factory=_empty)
    run_objects: NDArray[Any] = field(default_factory=_empty)
    run_offsets: NDArray[Any] = field(default_factory=_empty)
    run_counts: NDArray[Any] = field(default_factory=_empty)
    heights: NDArray[Any] = field(default_factory=_empty)
    widths: NDArray[Any] = field(default_factory=_empty)
    image_ids: NDArray[Any] = field(default_factory=_empty)

    def __len__(self) -> int:
        return len(self.names)

    def part(self, table: str, image: int, prefix: str = "") -> NDArray[Any]:
        """Return the rows of an image in a table, whose offsets and counts begin with `prefix`."""
        begin = int(getattr(self, f"{prefix}offsets")[image])
        rows: NDArray[Any] = getattr(self, table)[begin : begin + int(getattr(self, f"{prefix}counts")[image])]
        return rows


# Parsing


def parse_annotations(path: str, files: StoredFiles, options: CocoOptions) -> CocoTables:
    """Return the annotations in a JSON file.

    Raises:
        BrokenFileError: the file is not JSON, or lacks something; the message names the annotation.
    """
    try:
        parsed = json_value(files.read_now(path).tobytes())
    except ValueError as error:
        offset = getattr(error, "pos", None)
        raise BrokenFileError(f"{shown(path)} is not a JSON file: {error}", path, offset) from None
    if not isinstance(parsed, dict):
        raise BrokenFileError(
            f'{shown(path)} is not a COCO dataset: it must be an object with "images" and "annotations"', path
        )
    try:
        return _TableBuilder(options).tables(parsed)
    except _FormatError as error:
        raise BrokenFileError(f"{shown(path)}: {error}", path) from error.__cause__


#: Exceptions of conversions for values that JSON can have.
_FORMAT_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)
#: Pixels of an image with masks. Each takes 5 bytes.
MOST_PIXELS = (1 << 31) - 1


class _FormatError(Exception):
    """The JSON file lacks something."""


class _Image(NamedTuple):
    number: int
    name: str
    width: int
    height: int


class _Object(NamedTuple):
    """An annotation: a box, its category, and its mask."""

    category: int
    box: NDArray[np.float32]
    segmentation: Any
    number: int


class _TableBuilder:
    """Builds the tables of a dataset, image by image."""

    def __init__(self, options: CocoOptions) -> None:
        self._options = options
        self._columns: dict[str, list[Any]] = {each.name: [] for each in fields(CocoTables)}
        self._columns["run_ends"] = [0]
        self._num_vertices = 0
        self._num_runs = 0

    def tables(self, parsed: dict[str, Any]) -> CocoTables:
        options = self._options
        images = _entries(parsed, "images", _image)
        numbers = _entries(parsed, "categories", lambda category: int(category["id"]))
        labels: dict[int, int] = {}
        for label, number in enumerate(numbers, 1):
            labels.setdefault(number, label)
        objects: dict[int, list[_Object]] = {}
        for image, each in _entries(parsed, "annotations", self._object):
            if each is not None:
                objects.setdefault(image, []).append(each)
        if not options.images:
            images.sort(key=lambda image: image.number)
        by_name = {image.name: image for image in images}
        for name in options.images or [image.name for image in images]:
            if name in by_name:
                self._add(by_name[name], objects.get(by_name[name].number, []), labels)
        return self._finished()

    def _object(self, entry: dict[str, Any], number: int) -> tuple[int, _Object | None]:
        """Return the image of an annotation, and the object; None if it is not wanted."""
        options = self._options
        image, category = int(entry["image_id"]), int(entry["category_id"])
        box = _finite(entry["bbox"])
        if box.shape != (4,):
            raise ValueError(f"bbox must have 4 numbers, got {entry['bbox']}")
        if entry.get("iscrowd", 0) and not options.include_iscrowd:
            return image, None
        if not (box[2:] >= np.float32(options.size_threshold)).all():
            return image, None
        if options.ltrb:
            box[2:] += box[:2]
        wanted = options.polygons or options.pixels
        return image, _Object(category, box, entry.get("segmentation") if wanted else None, number)

    def _add(self, image: _Image, objects: Sequence[_Object], labels: dict[int, int]) -> None:
        if not objects and self._options.skip_empty:
            return
        columns = self._columns
        first_polygon, first_vertex, first_mask = len(columns["polygons"]), self._num_vertices, len(columns["run_objects"])
        columns["offsets"].append(len(columns["labels"]))
        size = np.array([image.width, image.height], np.float32)
        if objects and self._options.needs_sizes:
            _check_size(image, objects[0])
        for place, each in enumerate(objects):
            columns["labels"].append(each.category if self._options.avoid_class_remapping else labels.get(each.category, 0))
            columns["boxes"].append(each.box / np.tile(size, 2) if self._options.ratio else each.box)
            try:
                self._add_segmentation(each.segmentation, place, first_vertex, size)
            except _FORMAT_ERRORS as error:
                raise _FormatError(f"the segmentation of annotation {each.number}: {_reason(error)}") from error
        columns["counts"].append(len(objects))
        for name, first, end in (
            ("polygon", first_polygon, len(columns["polygons"])),
            ("vertex", first_vertex, self._num_vertices),
            ("run", first_mask, len(columns["run_objects"])),
        ):
            columns[f"{name}_offsets"].append(first)
            columns[f"{name}_counts"].append(end - first)
        columns["names"].append(image.name)
        columns["image_ids"].append(image.number)
        columns["heights"].append(image.height)
        columns["widths"].append(image.width)

    def _add_segmentation(self, segmentation: Any, place: int, first_vertex: int, size: NDArray[np.float32]) -> None:
        if isinstance(segmentation, list):
            for polygon in segmentation:
                vertices = _finite(polygon).reshape(-1, 2)
                begin = self._num_vertices - first_vertex
                self._columns["polygons"].append((place, begin, begin + len(vertices)))
                # Masks of pixels are drawn from vertices in pixels.
                relative = self._options.ratio and not self._options.pixels
                self._columns["vertices"].append(vertices / size if relative else vertices)
                self._num_vertices += len(vertices)
        elif isinstance(segmentation, dict) and self._options.pixels:
            height, width = map(int, segmentation["size"])
            runs = _runs(segmentation["counts"])
            if runs.sum() != height * width:
                raise ValueError(f"its runs have {runs.sum()} pixels together, but its size is {height} x {width}")
            self._columns["runs"].append(runs)
            self._num_runs += len(runs)
            self._columns["run_ends"].append(self._num_runs)
            self._columns["run_sizes"].append((height, width))
            self._columns["run_objects"].append(place)

    def _finished(self) -> CocoTables:
        arrays: dict[str, Any] = {}
        for name, stored in {**_BASIC, **_POLYGONS, **_PIXELS, **_IDS}.items():
            rows = self._columns[name]
            whole = np.concatenate(rows) if name == "vertices" and rows else np.asarray(rows)
            try:
                arrays[name] = whole.astype(stored.dtype, casting="unsafe").reshape(stored.shape) if rows else _none(stored)
            except (OverflowError, ValueError) as error:
                raise _FormatError(f"{name} do not fit {stored.dtype}: {error}") from error
            if stored.dtype == "<i4" and not np.array_equal(arrays[name], whole.reshape(stored.shape)):
                raise _FormatError(f"{name.replace('_', ' ')} do not fit into 32 bits")
        return CocoTables(
            names=FileNames(self._columns["names"]),
            runs=np.concatenate([np.empty(0, np.uint32), *self._columns["runs"]]),
            run_ends=np.asarray(self._columns["run_ends"]),
            run_sizes=np.asarray(self._columns["run_sizes"], np.int64).reshape(-1, 2),
            **arrays,
        )


def _entries(parsed: dict[str, Any], key: str, convert: Callable[..., Any]) -> list[Any]:
    """Return the converted entries of a list. Each has a number in messages."""
    converted = []
    entries = parsed.get(key) or []
    if not isinstance(entries, list):
        raise _FormatError(f'"{key}" must be a list, not {entries!r:.50}')
    for number, entry in enumerate(entries):
        try:
            if not isinstance(entry, dict):
                raise TypeError(f"it must be an object, not {entry!r:.50}")
            converted.append(convert(entry, number) if key == "annotations" else convert(entry))
        except _FORMAT_ERRORS as error:
            raise _FormatError(f'entry {number} of "{key}": {_reason(error)}') from error
    return converted


def _image(entry: dict[str, Any]) -> _Image:
    name = str(entry["file_name"])
    os.fsencode(name)  # raises for a lone surrogate
    return _Image(int(entry["id"]), name, int(entry.get("width", 0)), int(entry.get("height", 0)))


def _check_size(image: _Image, first: _Object) -> None:
    if min(image.width, image.height) < 1 or image.width * image.height > MOST_PIXELS:
        raise _FormatError(
            f"annotation {first.number}: its image {shown(image.name)} with the id {image.number} has the width "
            f"{image.width} and the height {image.height}, if any. Relative coordinates and masks of pixels need both, and "
            f"at most {MOST_PIXELS} pixels. Add them to the image, or leave out ratio and pixelwise_masks"
        )


def _finite(values: Any) -> NDArray[np.float32]:
    """Return numbers as an array.

    Raises:
        ValueError: one is NaN or infinite, or too large for the dtype.
    """
    numbers = np.asarray(values, np.float64)
    if not (np.abs(numbers) <= np.finfo(np.float32).max).all():
        raise ValueError(f"numbers must be finite, got {values!r:.100}")
    return numbers.astype(np.float32)


def _reason(error: Exception) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)


def _none(stored: _Stored) -> NDArray[Any]:
    return np.zeros((0, stored.columns) if stored.columns else 0, stored.dtype)


def _runs(counts: Any) -> NDArray[np.uint32]:
    """Return the lengths of the runs of a mask, alternately of zeros and ones."""
    if isinstance(counts, list):
        runs = np.asarray(counts)
        if runs.ndim != 1 or (len(runs) and not (runs.dtype.kind in "iu" and 0 <= runs.min() <= runs.max() <= MOST_PIXELS)):
            raise ValueError(f"counts must be integers from 0 to {MOST_PIXELS}, not {counts!r:.100}")
        return runs.astype(np.uint32)
    if not isinstance(counts, str):
        raise TypeError(f"counts must be a list or a string, not {type(counts).__name__}")
    return decoded_runs(counts.encode())


def decoded_runs(text: bytes) -> NDArray[np.uint32]:
    """Return the lengths of runs in a compressed mask.

    The string has 5 bits per character: numbers of variable length, from the third on as differences to the last but one.
    `pycocotools.mask.decode` does the same, but warns with NumPy 2.

    Raises:
        ValueError: the string is damaged.
    """
    lengths: list[int] = []
    value = shift = 0
    for character in text:
        digit = character - 48
        value |= (digit & 0x1F) << shift
        shift += 5
        if digit & 0x20:
            continue
        if digit & 0x10:
            value -= 1 << shift
        lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
        value = shift = 0
    if shift or min(lengths, default=0) < 0 or max(lengths, default=0) > MOST_PIXELS:
        raise ValueError(f"the compressed mask {text[:20]!r} is damaged")
    return np.asarray(lengths, np.uint32)


# Preprocessed annotations


def save_annotations(tables: CocoTables, folder: str, options: CocoOptions) -> None:
    """Write preprocessed annotations. Empty tables have no file.

    Raises:
        MissingFileError: the folder does not exist.
        FileReadError: a file cannot be written.
    """
    contents: dict[str, bytes] = {}
    for name, stored in options.stored.items():
        if len(array := getattr(tables, name)):
            contents[stored.file] = stored.encoded(array)
    contents[_NAMES_FILE] = b"".join(os.fsencode(name) + b"\n" for name in tables.names)
    if options.pixels and len(tables.run_sizes):
        parts = [np.uint32(len(tables.run_sizes)).tobytes()]
        for (height, width), begin, end in zip(tables.run_sizes, tables.run_ends, tables.run_ends[1:], strict=False):
            parts += [
                np.array([height, width, end - begin], "<u8").tobytes(),
                tables.runs[begin:end].astype("<u4").tobytes(),
            ]
        contents[_RUNS_FILE] = b"".join(parts)
    try:
        for name, content in contents.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
    except FileNotFoundError as error:
        raise MissingFileError(
            f"the folder {shown(folder)} for preprocessed annotations does not exist: create it", folder
        ) from error
    except OSError as error:
        raise FileReadError(f"preprocessed annotations cannot be written to {shown(folder)}: {error}", folder) from error


def load_annotations(folder: str, files: StoredFiles, options: CocoOptions) -> CocoTables:
    """Return preprocessed annotations.

    Raises:
        BrokenFileError: a file is damaged, or the files lack entries for the outputs.
    """
    names = [line for line in files.text_lines(joined(folder, _NAMES_FILE)) if line]
    arrays = {}
    for name, stored in options.stored.items():
        path = joined(folder, stored.file)
        arrays[name] = stored.decoded(path, _content(path, files))
    for name, array in arrays.items():
        if name.endswith(("offsets", "counts", "image_ids", "heights", "widths")) and len(array) != len(names):
            path = joined(folder, options.stored[name].file)
            raise BrokenFileError(
                f"{shown(path)} has {len(array)} rows for {len(names)} images: save the annotations again with the same "
                "polygon_masks, pixelwise_masks and image_ids",
                path,
            )
    runs = _decoded_runs(joined(folder, _RUNS_FILE), files) if options.pixels else {}
    for counts, table in _TABLES.items():
        if counts in arrays:
            begins, ends = arrays[counts.replace("counts", "offsets")], len(arrays[table])
            if not ((begins >= 0) & (arrays[counts] >= 0) & (begins + arrays[counts].astype(np.int64) <= ends)).all():
                raise BrokenFileError(
                    f"{shown(folder)}: {options.stored[counts].file} names rows that {options.stored[table].file} lacks: "
                    "save the annotations again",
                    joined(folder, options.stored[counts].file),
                )
    return CocoTables(names=FileNames(names), **arrays, **runs)


def _decoded_runs(path: str, files: StoredFiles) -> dict[str, NDArray[Any]]:
    data = _content(path, files).tobytes()
    position, sizes, runs, ends = 4, [], [np.empty(0, np.uint32)], [0]
    try:
        for _ in range(int.from_bytes(data[:4], "little")):
            height, width, count = np.frombuffer(data, "<u8", 3, position).tolist()
            runs.append(np.frombuffer(data, "<u4", count, position + 24))
            position += 24 + 4 * count
            sizes.append((height, width))
            ends.append(ends[-1] + count)
        run_sizes = np.asarray(sizes, np.int64).reshape(-1, 2)
    except (ArithmeticError, ValueError):  # numbers are missing, or too large
        raise _truncated(path, len(data)) from None
    return {
        "runs": np.concatenate(runs),
        "run_sizes": run_sizes,
        "run_ends": np.asarray(ends),
    }


def _content(path: str, files: StoredFiles) -> NDArray[np.uint8]:
    """Return a file, or nothing if it does not exist, because empty tables have no file."""
    try:
        return files.read_now(path)
    except MissingFileError:
        return np.empty(0, np.uint8)


def _truncated(path: str, size: int) -> BrokenFileError:
    return BrokenFileError(f"{shown(path)} of {size} bytes is truncated: save the annotations again", path, size)
