"""``fn.readers.coco``: images, boxes, labels and masks of a COCO dataset."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.common.saved_arguments import NOT_SAVED, SavedText, SavedTexts
from dali_like.errors import ArgumentClashError, ArgumentError, BrokenFileError
from dali_like.sources.readers.coco_annotations import (
    MOST_PIXELS,
    CocoOptions,
    CocoTables,
    decoded_runs,
    load_annotations,
    parse_annotations,
    save_annotations,
)
from dali_like.sources.readers.file_reader import listed
from dali_like.sources.readers.reader import Reader, reader
from dali_like.sources.readers.stored_files import FileNames, is_url, joined, shown
from dali_like.types import SampleInfo


@reader(path="readers.coco")
class CocoReader(Reader):
    """Reads images, boxes, labels and masks of a COCO dataset.

    The images are sorted by their ids. The file of annotations, the folder of preprocessed annotations, and the folder of
    images may be URLs.

    Args:
        file_root: folder of the images.
        annotations_file: path of the JSON file.
        preprocessed_annotations: folder of preprocessed annotations, instead of the JSON file. Those of DALI fit, too.
        save_preprocessed_annotations: write the annotations to `save_preprocessed_annotations_dir`, with what the other
            arguments made of them.
        save_preprocessed_annotations_dir: a local folder.
        images: file names of the images to read, in this order. Names may repeat. Those without annotations are left out.
        ltrb: return boxes as left, top, right, bottom, instead of left, top, width, height.
        ratio: return boxes and polygons relative to the size of the image. Masks are drawn at their place in pixels; DALI
            draws them with relative coordinates.
        size_threshold: least width and height of objects in pixels. Smaller ones are left out.
        include_iscrowd: whether to include objects with ``iscrowd=1``.
        skip_empty: leave out images without objects.
        avoid_class_remapping: return the ids of categories, instead of their numbers from 1 on.
        polygon_masks: return polygons and their vertices.
        pixelwise_masks: return images of labels. If objects overlap, the greater label is seen. Of several run-length
            encoded masks with one label in an image the last one is drawn, and none if there are polygons with the label, as
            in DALI. Needs pycocotools, as run-length encoded masks in strings do.
        image_ids: return the ids of the images.
        masks: deprecated. As `polygon_masks`, but polygons count coordinates instead of vertices.

    Returns:
        The bytes of the image, of dtype UINT8. The boxes, of shape (objects, 4) and dtype FLOAT. The labels, of shape
        (objects,) and dtype INT32. With `polygon_masks` the polygons: number of the object, first vertex, and end of the
        vertices, of shape (polygons, 3) and dtype INT32; and the vertices, of shape (vertices, 2) and dtype FLOAT. With
        `pixelwise_masks` the labels of pixels, of shape (height, width, 1), dtype INT32 and layout HWC. With `image_ids` the
        id, of shape (1,) and dtype INT32.
    """

    def __init__(
        self,
        *,
        file_root: SavedText | None = None,
        annotations_file: SavedText = "",
        preprocessed_annotations: SavedText = "",
        save_preprocessed_annotations: Annotated[bool, NOT_SAVED] = False,
        save_preprocessed_annotations_dir: str = "",
        images: SavedTexts | None = None,
        ltrb: bool = False,
        ratio: bool = False,
        size_threshold: float = 0.1,
        include_iscrowd: bool = True,
        skip_empty: bool = False,
        avoid_class_remapping: bool = False,
        polygon_masks: bool = False,
        pixelwise_masks: bool = False,
        image_ids: bool = False,
        masks: bool = False,
    ) -> None:
        if file_root is None:
            raise ArgumentClashError("file_root is required: pass the folder of the images")
        if not (annotations_file or preprocessed_annotations):
            raise ArgumentClashError("pass either annotations_file or preprocessed_annotations")
        if preprocessed_annotations:
            _refuse_with_preprocessed(
                annotations_file=annotations_file, images=images, ltrb=ltrb, ratio=ratio, skip_empty=skip_empty
            )
            if size_threshold != CocoOptions.size_threshold:
                _refuse_with_preprocessed(size_threshold=size_threshold)
        if pixelwise_masks and (polygon_masks or masks):
            raise ArgumentClashError("pixelwise_masks and polygon_masks are mutually exclusive: leave one of them out")
        if save_preprocessed_annotations != bool(save_preprocessed_annotations_dir):
            raise ArgumentClashError(
                "save_preprocessed_annotations and save_preprocessed_annotations_dir should be provided together"
            )
        if is_url(save_preprocessed_annotations_dir):
            raise ArgumentError("save_preprocessed_annotations_dir must be a local folder: copy the files yourself")
        self._root = file_root
        self._json = annotations_file
        self._stored = preprocessed_annotations
        self._save_to = save_preprocessed_annotations_dir
        self._counts_coordinates = masks
        self._options = CocoOptions(
            polygons=polygon_masks or masks,
            pixels=pixelwise_masks,
            image_ids=image_ids,
            ltrb=ltrb,
            ratio=ratio,
            size_threshold=size_threshold,
            include_iscrowd=include_iscrowd,
            skip_empty=skip_empty,
            avoid_class_remapping=avoid_class_remapping,
            images=listed(images) or (),
        )
        self._tables = CocoTables(names=FileNames(()))
        polygons, pixels = self._options.polygons, self._options.pixels
        self.dtype = [np.uint8, np.float32, np.int32, *[np.int32, np.float32] * polygons, *[np.int32] * (pixels + image_ids)]
        self.ndim = [1, 2, 1, *[2, 2] * polygons, *[3] * pixels, *[1] * image_ids]
        self.layout = ["", "", "", *["", ""] * polygons, *["HWC"] * pixels, *[""] * image_ids]
        self.num_outputs = len(self.dtype)

    def prepare(self) -> None:
        if self._options.pixels:
            _masks()
        if self._stored:
            self._tables = load_annotations(self._stored, self.files, self._options)
        else:
            self._tables = parse_annotations(self._json, self.files, self._options)
        if self._save_to:
            save_annotations(self._tables, self._save_to, self._options)

    def _label_image(self, index: int) -> NDArray[np.int32]:
        try:
            return _label_image(self._tables, index)
        except (ArithmeticError, LookupError, ValueError) as error:  # preprocessed annotations are checked no further
            path = self._stored or self._json
            raise BrokenFileError(
                f"{shown(path)}: the masks of image {shown(self._tables.names[index])} are damaged: {error}", path
            ) from error

    def why_empty(self) -> str:
        path = shown(self._stored or self._json)
        if self._options.images:
            return f"No files found: {path} has none of the images of images=, which are values of file_name"
        if self._options.skip_empty:
            return (
                f"No files found: no image in {path} has objects that are wanted, and skip_empty leaves out images without"
            )
        return f"No files found: {path} has no images"

    @property
    def is_remote(self) -> bool:
        return is_url(self._root)

    def __len__(self) -> int:
        return len(self._tables)

    async def read(self, index: int, info: SampleInfo) -> Any:
        tables, options = self._tables, self._options
        image = await self.files.read(joined(self._root, tables.names[index]), empty=info.empty)
        outputs: list[NDArray[Any]] = [image, tables.part("boxes", index), tables.part("labels", index)]
        if options.polygons:
            polygons = tables.part("polygons", index, "polygon_")
            if self._counts_coordinates:
                polygons = polygons * np.array([1, 2, 2], np.int32)
            outputs += [polygons, tables.part("vertices", index, "vertex_")]
        if options.pixels:
            outputs.append(self._label_image(index)[..., np.newaxis])
        if options.image_ids:
            outputs.append(tables.image_ids[index : index + 1])
        return tuple(outputs)

    def source_info(self, index: int, output: int) -> str:
        return str(self._tables.names[index]) if output == 0 else ""


def _refuse_with_preprocessed(**given: Any) -> None:
    for name, value in given.items():
        if value:
            raise ArgumentClashError(
                f"{name} has no effect on preprocessed annotations: leave it out, or pass it when the annotations are saved"
            )


# Masks

#: How far outside the image a vertex may be, in half perimeters: drawing takes time and memory for each pixel of an edge.
_FARTHEST = 10


def _label_image(tables: CocoTables, image: int) -> NDArray[np.int32]:
    """Return the label of each pixel of an image, from the masks of its objects.

    As in DALI, a greater label covers smaller ones, except in the last run of pixels, column by column, in which neither the
    labels so far nor the next one change. There the smaller label stays.
    """
    height, width = int(tables.heights[image]), int(tables.widths[image])
    if min(height, width) < 0 or height * width > MOST_PIXELS:
        raise ValueError(f"the image is of size {height, width}")
    pixels = np.zeros(height * width, np.int32)
    last_run = 0
    for label, mask in sorted(_masks_by_label(tables, image, height, width).items()):
        changes = np.flatnonzero(mask[1:] != mask[:-1])
        last_run = max(last_run, int(changes[-1]) + 1 if len(changes) else 0)
        kept = pixels[-1] if mask[-1] else 0
        pixels[mask] = label
        if kept:
            pixels[last_run:] = kept
    return np.ascontiguousarray(pixels.reshape(width, height).T)


def _masks_by_label(tables: CocoTables, image: int, height: int, width: int) -> dict[int, NDArray[np.bool_]]:
    """Return which pixels have a label, column by column. Polygons replace run-length encoded masks."""
    labels = tables.part("labels", image)
    found: dict[int, NDArray[np.bool_]] = {}
    first = int(tables.run_offsets[image])
    for number, place in enumerate(tables.part("run_objects", image, "run_"), first):
        runs = tables.runs[tables.run_ends[number] : tables.run_ends[number + 1]]
        if (size := tuple(tables.run_sizes[number].tolist())) != (height, width):
            raise ValueError(f"the mask of object {place} is of size {size}, but the image of size {height, width}")
        if runs.sum(dtype=np.int64) != height * width:
            raise ValueError(f"the runs of object {place} have other numbers of pixels than the image")
        found[int(labels[place])] = _drawn(runs)
    vertices = tables.part("vertices", image, "vertex_")
    polygons: dict[int, list[list[float]]] = {}
    for place, begin, end in tables.part("polygons", image, "polygon_").tolist():
        if end > begin:
            if not (np.abs(vertices[begin:end]) <= _FARTHEST * (height + width)).all():
                raise ValueError(f"object {place} has a vertex far outside the image of size {height, width}")
            # pycocotools takes four coordinates for a box.
            points = [*vertices[begin:end], *[vertices[end - 1]] * max(0, 3 - (end - begin))]
            polygons.setdefault(int(labels[place]), []).append(np.concatenate(points).tolist())
    for label, drawn in polygons.items():
        mask = _masks()
        merged = mask.merge(mask.frPyObjects(drawn, height, width))
        found[label] = _drawn(decoded_runs(merged["counts"]))
    return found


def _drawn(runs: NDArray[np.uint32]) -> NDArray[np.bool_]:
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def _masks() -> Any:
    return optional("pycocotools.mask", "pixelwise_masks of fn.readers.coco", "coco")
