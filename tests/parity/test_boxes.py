"""Bounding boxes, masks and mosaics against DALI's.

Boxes are computed in other orders of single precision: 1e-5. Random windows are drawn by other generators: their
distributions are compared by two-sample Kolmogorov-Smirnov tests, with fixed seeds.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")
stats = pytest.importorskip("scipy.stats")

from tests.parity.conftest import OURS  # noqa: E402
from tests.parity.covering import covering_rows  # noqa: E402
from tests.parity.operators import compare, error_of, outputs  # noqa: E402

pytestmark = pytest.mark.peers

BOXES = np.array([[0.1, 0.2, 0.5, 0.7], [0.3, 0.3, 0.4, 0.9], [0, 0, 0.1, 0.1]], np.float32)
SIZED = np.array([[0.1, 0.2, 0.5, 0.7], [0.3, 0.3, 0.4, 0.6], [0, 0, 0.1, 0.1]], np.float32)
VOLUMES = np.array([[0.3, 0.3, 0.3, 0.7, 0.7, 0.7], [0.2, 0.5, 0.3, 0.4, 0.6, 0.9]], np.float32)
LABELS = np.array([3, 7, 9], np.int32)
NONE = BOXES[:0]
ANCHORS = [0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 0.2, 0.2, 0.6, 0.8, 0.0, 0.0, 1.0, 1.0, 0.2, 0.2, 0.6, 0.8]
SAMPLES = 600


def several(define):
    """A program with many outputs from a function of the library's module `fn`, and nodes, that yields them."""
    return lambda library, *nodes: list(itertools.chain.from_iterable(map(listed, define(library.fn, *nodes))))


def listed(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def test_flip_and_paste(dali):
    def define(fn, boxes, flags, ratios, *others):
        for horizontal, vertical, ltrb in itertools.product((0, 1), (0, 1), (False, True)):
            yield fn.bb_flip(boxes, horizontal=horizontal, vertical=vertical, ltrb=ltrb)
        flags, ratios = fn.squeeze(flags, axes=[0]), fn.squeeze(ratios, axes=[0])
        yield fn.bb_flip(boxes, horizontal=flags, vertical=flags)
        for ltrb in (False, True):
            yield fn.bbox_paste(boxes, ratio=1.5, paste_x=0.3, paste_y=0.9, ltrb=ltrb)
            yield fn.bbox_paste(boxes, ratio=ratios, paste_x=ratios - 1, ltrb=ltrb)
        yield fn.bbox_paste(boxes, ratio=0.5, paste_x=-1.0)
        for other in others:
            yield fn.bb_flip(other)
            yield fn.bbox_paste(other, ratio=2.0)

    inputs = [[BOXES, SIZED, NONE], list(np.int32([0, 1, 2])), list(np.float32([1.5, 1.2, 1.0]))]
    others = [[shaped] * 3 for shaped in (BOXES[0], BOXES.ravel(), BOXES[None], BOXES.reshape(-1, 2))]
    compare(dali, several(define), [*inputs, *others], ["xy"], bound=1e-6, mean=1e-6)


def test_rotation(dali):
    rows = covering_rows(
        {
            "angle": [30.0, 100.0, -40.0, 90.0, 0.0],
            "mode": ["expand", "fixed", "halfway"],
            "bbox_layout": ["xyXY", "xyWH"],
            "bbox_normalized": [True, False],
            "remove_threshold": [0.0, 0.1, 0.6],
            "shape": [{"input_shape": [200, 301]}, {"input_shape": [33, 4, 21], "shape_layout": "WCH"}],
            "canvas": [{}, {"keep_size": True}, {"size": [100.7, 120.0]}, {"size": [400, 500]}],
        }
    )

    def define(fn, boxes, pixels, labels, columns, angles, shapes):
        for row in rows:
            arguments = {**row, **row["shape"], **row["canvas"]}
            del arguments["shape"], arguments["canvas"]
            yield fn.bbox_rotate(boxes if row["bbox_normalized"] else pixels, labels, **arguments)
        yield fn.bbox_rotate(boxes, columns, angle=angles, input_shape=shapes)
        yield fn.bbox_rotate(boxes, angle=10.0, input_shape=[20, 30])

    inputs = [[BOXES, SIZED], [BOXES * 30, SIZED * 40], [LABELS] * 2, [LABELS[:, None]] * 2]
    turns = [np.float32([20, 70]), np.int64([[20, 30], [40, 30]])]
    compare(dali, several(define), [*inputs, *turns], bound=2e-3, mean=1e-5)


def test_encoder(dali):
    rng = np.random.default_rng(1)
    corners = rng.uniform(0, 0.6, (12, 2))
    many = np.hstack([corners, corners + rng.uniform(0.1, 0.4, (12, 2))]).astype(np.float32)

    def define(fn, boxes, labels):
        for criteria, offset in itertools.product((0.0, 0.2, 0.5, 1.0), (False, True)):
            yield fn.box_encoder(boxes, labels, anchors=ANCHORS, criteria=criteria, offset=offset)
        coding = {"means": [0.1, 0.2, 0.3, 0.4], "stds": [0.1, 0.1, 0.2, 0.2], "scale": 300.0}
        yield fn.box_encoder(boxes, labels, anchors=ANCHORS, offset=True, **coding)
        yield fn.box_encoder(boxes, labels, anchors=many.ravel().tolist(), criteria=0.3)

    boxes = [BOXES, BOXES[[0, 0, 1, 1]], NONE, many]
    labels = [LABELS, np.int32([1, 2, 3, 4]), LABELS[:0], np.arange(1, 13, dtype=np.int32)]
    compare(dali, several(define), [boxes, labels], bound=1e-4, mean=1e-5)
    compare(dali, several(define), [boxes[:2], [row[:, None] for row in labels[:2]]], bound=1e-4, mean=1e-5)


def drawn(library, define, inputs, samples=SAMPLES):
    """The columns of the results of a random operator, over samples of the same inputs."""
    results = outputs(library, define, [[data] * samples for data in inputs])
    return [result.samples for result in results]


def assert_alike(ours, theirs):
    """Assert that numbers have the same distribution, by a test that fails once in a million."""
    for one, other in zip(np.atleast_2d(np.asarray(ours, float).T), np.atleast_2d(np.asarray(theirs, float).T), strict=True):
        assert stats.ks_2samp(one, other, method="asymp").pvalue > 1e-6


CROPS = [
    {"scaling": [0.3, 1.0], "aspect_ratio": [0.5, 2.0]},
    {"scaling": [0.3, 1.0], "aspect_ratio": [2.0, 2.0]},
    {"scaling": [0.3, 1.0], "thresholds": [0.0, 0.3], "num_attempts": 3},
    {"scaling": [0.3, 0.5], "input_shape": [100, 200], "bbox_prune_threshold": 0.0},
    {"scaling": [0.3, 1.0], "thresholds": [0.3, 0.9], "threshold_type": "overlap", "num_attempts": 2},
    {
        "scaling": [0.1, 1.0],
        "thresholds": [0.4],
        "all_boxes_above_threshold": False,
        "allow_no_crop": False,
        "threshold_type": "overlap",
        "bbox_prune_threshold": 0.5,
    },
    {"crop_shape": [50, 60], "input_shape": [100, 90]},
    {"crop_shape": [60, 120], "input_shape": [90, 100], "shape_layout": "HW", "bbox_layout": "yxYX"},
    {"scaling": [0.3, 0.6], "aspect_ratio": [0.8, 1.25], "bbox_layout": "xyWH", "allow_no_crop": False},
    {"scaling": [1.1, 1.5], "allow_no_crop": False},
]
SPATIAL = [
    {"scaling": [0.3, 1.0]},
    {"scaling": [0.3, 1.0], "aspect_ratio": [2.0, 2.0, 1.0, 3.0, 0.1, 10.0], "allow_no_crop": False},
    {"crop_shape": [5, 6, 7], "input_shape": [9, 10, 11], "shape_layout": "DHW"},
]


@pytest.mark.parametrize(("boxes", "cases"), [(BOXES, CROPS), (VOLUMES, SPATIAL)], ids=["images", "volumes"])
def test_random_crops(dali, boxes, cases):
    def define(library, given, labels, sized):
        for case in cases:
            used = sized if case.get("bbox_layout") == "xyWH" else given
            limited = {"total_num_attempts": 50, "output_bbox_indices": True, **case}
            yield library.fn.random_bbox_crop(used, labels, **limited)

    def program(library, *nodes):
        return [output for outputs in define(library, *nodes) for output in outputs]

    inputs = [boxes, LABELS[: len(boxes)], SIZED]
    ours, theirs = (drawn(library, program, inputs) for library in (OURS, dali))
    assert [samples[0].dtype for samples in ours] == [samples[0].dtype for samples in theirs]
    for i in range(len(cases)):
        mine, yours = ours[5 * i : 5 * i + 5], theirs[5 * i : 5 * i + 5]
        assert_alike(mine[0], yours[0])
        assert_alike(mine[1], yours[1])
        for label in LABELS:
            assert_alike([label in row for row in mine[3]], [label in row for row in yours[3]])
        assert_alike([row.sum() for row in mine[2]], [row.sum() for row in yours[2]])
        for index, label in zip(mine[4], mine[3], strict=True):
            np.testing.assert_array_equal(LABELS[index], label)


def test_boxes_in_a_window_are_transformed_alike(dali):
    """A window of the size of the image in one axis, and of the size but one in the other, has two places."""

    def define(library, boxes, labels):
        outputs = []
        for arguments in ({}, {"bbox_prune_threshold": 0.0}, {"bbox_layout": "xyXY"}):
            outputs += library.fn.random_bbox_crop(boxes, labels, crop_shape=[9, 10], input_shape=[10, 10], **arguments)
        return outputs

    ours, theirs = (drawn(library, define, [BOXES, LABELS], 20) for library in (OURS, dali))
    for i in range(0, len(ours), 4):
        cases = [
            {float(anchor[0]): row for anchor, row in zip(result[i], result[i + 2], strict=True)}
            for result in (ours, theirs)
        ]
        assert set(cases[0]) == set(cases[1]) == {0.0, 1.0}
        for place, row in cases[0].items():
            np.testing.assert_allclose(row, cases[1][place], atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_ssd_random_crop(dali):
    image = np.arange(40 * 30 * 3, dtype=np.uint8).reshape(40, 30, 3)

    def define(library, *nodes):
        return library.fn.ssd_random_crop(*nodes, num_attempts=3)

    ours, theirs = (drawn(library, define, [image, BOXES[:2], LABELS[:2]]) for library in (OURS, dali))
    assert_alike([picture.shape[:2] for picture in ours[0]], [picture.shape[:2] for picture in theirs[0]])
    assert_alike([picture[0, 0, 0] for picture in ours[0]], [picture[0, 0, 0] for picture in theirs[0]])
    assert_alike([boxes.mean() for boxes in ours[1]], [boxes.mean() for boxes in theirs[1]])
    assert_alike([labels.sum() for labels in ours[2]], [labels.sum() for labels in theirs[2]])


def test_roi_random_crop(dali):
    cases = [
        {"crop_shape": [8, 3], "roi_start": [5, 2], "roi_end": [8, 8], "in_shape": [10, 9]},
        {"crop_shape": [8, 3], "roi_start": [5, 2], "roi_shape": [3, 6]},
        {"crop_shape": 5, "roi_start": 9, "roi_shape": 1},
    ]

    def define(fn, data, starts):
        for case in cases:
            yield fn.roi_random_crop(**case)
        yield fn.roi_random_crop(data, crop_shape=[5, 6], roi_start=[1, 2], roi_end=[9, 8])
        yield fn.roi_random_crop(crop_shape=starts, roi_start=starts, roi_shape=[9, 1])

    inputs = [np.zeros((10, 20), np.uint8), np.int32([3, 4])]
    ours, theirs = (drawn(library, several(define), inputs) for library in (OURS, dali))
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine[0].dtype == yours[0].dtype
        assert {tuple(row) for row in mine} == {tuple(row) for row in yours}
        assert_alike(mine, yours)


MASK = np.zeros((8, 10), np.uint8)
MASK[0:2, 0:3] = MASK[4:8, 1:2] = 1
MASK[1:4, 6:9] = MASK[6, 7] = MASK[5, 6] = 2
OBJECTS = [
    {},
    {"ignore_class": True},
    {"ignore_class": True, "k_largest": 2},
    {"output_class": True, "background": 1},
    {"output_class": True, "classes": [2, 5]},
    {"output_class": True, "classes": [0, 1], "foreground_prob": 0.5},
    {"output_class": True, "class_weights": [0.2, 0.8], "k_largest": 1},
    {"output_class": True, "class_weights": [0.0, 0.0, 1.0]},
    {"output_class": True, "threshold": 2, "format": "start_end"},
    {"threshold": [9, 9], "format": "start_end"},
    {"cache_objects": True},
]


@pytest.mark.parametrize(
    "mask",
    [MASK, MASK.astype(np.int32), np.stack([MASK, MASK[::-1]]), MASK * 0],
    ids=["image", "int32", "volume", "empty"],
)
def test_random_object_bbox(dali, mask):
    cases = [case for case in OBJECTS if mask.ndim == 2 or "threshold" not in case]

    def define(fn, data):
        for case in cases:
            yield fn.segmentation.random_object_bbox(data, **case)
        yield fn.segmentation.random_object_bbox(data, format="box")

    ours, theirs = (drawn(library, several(define), [mask]) for library in (OURS, dali))
    for mine, yours in zip(ours, theirs, strict=True):
        assert (mine[0].dtype, mine[0].shape) == (yours[0].dtype, yours[0].shape)
        assert {tuple(row.ravel()) for row in mine} == {tuple(row.ravel()) for row in yours}
        assert_alike([row.ravel() for row in mine], [row.ravel() for row in yours])


def test_random_mask_pixel(dali):
    cases = [
        {},
        {"foreground": 1},
        {"foreground": 1, "value": 2},
        {"foreground": 1, "threshold": 1.0},
        {"foreground": 1, "value": 7},
        {"foreground": 1, "value": 257},
    ]

    def define(fn, flat, deep, values):
        for data in (flat, deep):
            for case in cases:
                yield fn.segmentation.random_mask_pixel(data, **case)
        yield fn.segmentation.random_mask_pixel(flat, foreground=values, value=values)

    inputs = [MASK, np.stack([MASK, MASK * 0]).astype(np.float32), np.int32(1)]
    ours, theirs = (drawn(library, several(define), inputs) for library in (OURS, dali))
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine[0].dtype == yours[0].dtype
        assert_alike(mine, yours)


def test_select_masks(dali):
    polygons = np.array([[0, 0, 3], [1, 3, 7], [2, 7, 10]], np.int32)
    vertices = [np.arange(20, dtype=dtype).reshape(10, 2) for dtype in (np.float32, np.float64, np.uint8)]

    def define(fn, ids, rows, *points):
        for data, reindex in itertools.product(points, (False, True)):
            yield fn.segmentation.select_masks(ids, rows, data, reindex_masks=reindex)

    inputs = [[np.int32([1]), np.int32([2, 0]), np.int32([])], [polygons] * 3, *([data] * 3 for data in vertices)]
    compare(dali, several(define), inputs)


def test_select_masks_keeps_all_polygons_of_a_mask(dali):
    """DALI keeps only the last one."""

    def define(library, ids, rows, points):
        return library.fn.segmentation.select_masks(ids, rows, points)

    inputs = [[np.int32([0])], [np.int32([[0, 0, 3], [0, 3, 7], [1, 7, 10]])], [np.zeros((10, 2), np.float32)]]
    ours, theirs = (outputs(library, define, inputs)[0].samples[0].tolist() for library in (OURS, dali))
    assert ours == [[0, 0, 3], [0, 3, 7]]
    assert theirs == [[0, 0, 4]]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32])
def test_multi_paste(dali, dtype):
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 200, (6, 8, 2)).astype(dtype) for _ in range(3)]
    ids = [np.int32([0, 1]), np.int32([2, 2]), np.int32([1, 0])]
    places = [np.int32([[0, 0], [2, 3]]), np.int32([[1, 1], [0, 4]]), np.int32([[3, 3], [3, 3]])]
    shapes = [np.int32([[3, 4], [2, 2]])] * 3
    parts = [np.float32([[0.5, 0.38], [0.1, 0.45]])] * 3

    def define(library, batch, others, ids, places, shapes, parts):
        fn, types = library.fn, library.types
        return [
            fn.multi_paste(batch, in_ids=ids, output_size=[7, 9]),
            fn.multi_paste(batch, in_ids=ids, out_anchors=places, shapes=shapes),
            fn.multi_paste(batch, in_ids=ids, in_anchors=places, shapes=shapes, output_size=[9, 9], dtype=types.FLOAT),
            fn.multi_paste(batch, in_ids=ids, in_anchors=places, output_size=[9, 9, 1], dtype=types.UINT8),
            fn.multi_paste(batch, in_ids=ids, in_anchors_rel=parts, shapes_rel=parts, out_anchors_rel=parts),
            fn.multi_paste(batch, in_ids=ids, out_anchors_rel=parts, output_size=[20, 20], dtype=types.INT16),
            fn.multi_paste(batch, others, out_anchors=places, shapes=shapes),
            fn.multi_paste(batch, in_ids=[1]),
            fn.multi_paste(batch),
        ]

    compare(dali, define, [images, images[::-1], ids, places, shapes, parts], ["HWC"])


ONE = np.int32([[0, 0]])
IMAGE = np.zeros((4, 5, 1), np.uint8)
WRONG = {
    "flip: dtype": lambda fn, boxes, labels, image: fn.bb_flip(labels),
    "paste: dtype": lambda fn, boxes, labels, image: fn.bbox_paste(labels, ratio=1.0),
    "paste: ratio": lambda fn, boxes, labels, image: fn.bbox_paste(boxes),
    "rotate: mode": lambda fn, boxes, labels, image: fn.bbox_rotate(boxes, angle=1.0, input_shape=[9, 9], mode="x"),
    "rotate: threshold": lambda fn, boxes, labels, image: fn.bbox_rotate(
        boxes, angle=1.0, input_shape=[9, 9], remove_threshold=1.0
    ),
    "rotate: layout": lambda fn, boxes, labels, image: fn.bbox_rotate(
        boxes, angle=1.0, input_shape=[9, 9], bbox_layout="yxYX"
    ),
    "rotate: size": lambda fn, boxes, labels, image: fn.bbox_rotate(
        boxes, angle=1.0, input_shape=[9, 9], size=[9, 9], keep_size=True
    ),
    "rotate: shape": lambda fn, boxes, labels, image: fn.bbox_rotate(boxes, angle=1.0, input_shape=[9]),
    "rotate: labels": lambda fn, boxes, labels, image: fn.bbox_rotate(boxes, image, angle=1.0, input_shape=[9, 9])[0],
    "encoder: criteria": lambda fn, boxes, labels, image: fn.box_encoder(boxes, labels, anchors=ANCHORS, criteria=1.2)[0],
    "encoder: anchors": lambda fn, boxes, labels, image: fn.box_encoder(boxes, labels, anchors=ANCHORS[:3])[0],
    "encoder: means": lambda fn, boxes, labels, image: fn.box_encoder(boxes, labels, anchors=ANCHORS, means=[0.0])[0],
    "encoder: stds": lambda fn, boxes, labels, image: fn.box_encoder(
        boxes, labels, anchors=ANCHORS, stds=[0.0, 1.0, 1.0, 1.0]
    )[0],
    "crop: thresholds": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, thresholds=[])[0],
    "crop: threshold": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, thresholds=[2.0])[0],
    "crop: type": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, threshold_type="x")[0],
    "crop: shape": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, crop_shape=[9, 9])[0],
    "crop: scaling": lambda fn, boxes, labels, image: fn.random_bbox_crop(
        boxes, crop_shape=[9, 9], input_shape=[9, 9], scaling=[0.5, 1.0]
    )[0],
    "crop: aspect": lambda fn, boxes, labels, image: fn.random_bbox_crop(
        boxes, crop_shape=[9, 9], input_shape=[9, 9], aspect_ratio=[0.5, 1.0]
    )[0],
    "crop: one scaling": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, scaling=0.5)[0],
    "crop: descending": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, scaling=[0.5, 0.3])[0],
    "crop: aspects": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, aspect_ratio=[0.5, 0.3])[0],
    "crop: one aspect": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, aspect_ratio=1.0)[0],
    "crop: outside": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes * 3)[0],
    "crop: layout": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, bbox_layout="xyXW")[0],
    "crop: layout of volumes": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, bbox_layout="xyzXYZ")[0],
    "crop: shape layout": lambda fn, boxes, labels, image: fn.random_bbox_crop(
        boxes, shape_layout="HWC", crop_shape=[9, 9, 9], input_shape=[9, 9, 9]
    )[0],
    "crop: attempts": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, num_attempts=0)[0],
    "crop: all attempts": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, total_num_attempts=0)[0],
    "crop: prune": lambda fn, boxes, labels, image: fn.random_bbox_crop(boxes, bbox_prune_threshold=2.0)[0],
    "crop: boxes": lambda fn, boxes, labels, image: fn.random_bbox_crop(labels)[0],
    "roi: both": lambda fn, boxes, labels, image: fn.roi_random_crop(
        crop_shape=[5], roi_start=[1], roi_end=[3], roi_shape=[3]
    ),
    "roi: none": lambda fn, boxes, labels, image: fn.roi_random_crop(crop_shape=[5], roi_start=[1]),
    "roi: larger": lambda fn, boxes, labels, image: fn.roi_random_crop(
        crop_shape=[15], roi_start=[1], roi_end=[3], in_shape=[10]
    ),
    "roi: outside": lambda fn, boxes, labels, image: fn.roi_random_crop(
        crop_shape=[5], roi_start=[1], roi_end=[13], in_shape=[10]
    ),
    "roi: before": lambda fn, boxes, labels, image: fn.roi_random_crop(
        crop_shape=[5], roi_start=[-1], roi_end=[3], in_shape=[10]
    ),
    "roi: input": lambda fn, boxes, labels, image: fn.roi_random_crop(
        labels, crop_shape=[2], roi_start=[0], roi_end=[3], in_shape=[3]
    ),
    "roi: axes": lambda fn, boxes, labels, image: fn.roi_random_crop(crop_shape=[5, 6, 7], roi_start=[1, 2], roi_end=[3, 4]),
    "pixel: both": lambda fn, boxes, labels, image: fn.segmentation.random_mask_pixel(image, value=1, threshold=1.0),
    "object: format": lambda fn, boxes, labels, image: fn.segmentation.random_object_bbox(image, format="x")[0],
    "object: class": lambda fn, boxes, labels, image: fn.segmentation.random_object_bbox(
        image, ignore_class=True, output_class=True
    )[0],
    "object: classes": lambda fn, boxes, labels, image: fn.segmentation.random_object_bbox(
        image, ignore_class=True, classes=[1]
    )[0],
    "object: weights": lambda fn, boxes, labels, image: fn.segmentation.random_object_bbox(
        image, class_weights=[1.0, 2.0], classes=[1]
    )[0],
    "object: background": lambda fn, boxes, labels, image: fn.segmentation.random_object_bbox(
        image, classes=[1], background=1
    )[0],
    "object: k": lambda fn, boxes, labels, image: fn.segmentation.random_object_bbox(image, k_largest=0)[0],
    "object: threshold": lambda fn, boxes, labels, image: fn.segmentation.random_object_bbox(image, threshold=[1, 1])[0],
    "object: floats": lambda fn, boxes, labels, image: fn.segmentation.random_object_bbox(boxes)[0],
    "multi_paste: ids": lambda fn, boxes, labels, image: fn.multi_paste(image, in_ids=[0, 7]),
    "multi_paste: inputs": lambda fn, boxes, labels, image: fn.multi_paste(image, image, in_ids=[0]),
    "multi_paste: dtypes": lambda fn, boxes, labels, image: fn.multi_paste(image, fn.cast(image, dtype=9)),
    "multi_paste: dtype": lambda fn, boxes, labels, image: fn.multi_paste(image, in_ids=[0], dtype=4),
    "multi_paste: size": lambda fn, boxes, labels, image: fn.multi_paste(image, in_ids=[0], output_size=[2, 2]),
    "multi_paste: one size": lambda fn, boxes, labels, image: fn.multi_paste(image, in_ids=[0], output_size=6),
    "multi_paste: dimensions": lambda fn, boxes, labels, image: fn.multi_paste(boxes, in_ids=[0]),
    "masks: missing": lambda fn, boxes, labels, image: fn.segmentation.select_masks(
        labels, fn.reshape(labels, shape=[1, 3]), boxes
    )[0],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments(dali, wrong):
    def define(library, *nodes):
        return WRONG[wrong](library.fn, *nodes)

    inputs = [[BOXES], [LABELS], [IMAGE]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert isinstance(error_of(dali, define, inputs), Exception)
        assert isinstance(error_of(OURS, define, inputs), Exception)
