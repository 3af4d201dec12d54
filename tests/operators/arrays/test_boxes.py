"""Boxes, masks and mosaics: rejected inputs, and general properties. tests/parity has the rest."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from dali_like import fn
from dali_like.errors import ArgumentClashError, ArgumentError, MissingExtraError, SampleError
from dali_like.operators.arrays import box_crops
from tests.operators.running import WAYS, batches, run

BOXES = np.array([[0.1, 0.2, 0.5, 0.7], [0.3, 0.3, 0.4, 0.9]], np.float32)
LABELS = np.array([3, 7], np.int64)
IMAGE = np.arange(4 * 5, dtype=np.uint8).reshape(4, 5, 1)


def test_flipping_twice_changes_nothing() -> None:
    twice, once = run(lambda boxes: [fn.bb_flip(fn.bb_flip(boxes, vertical=1), vertical=1), fn.bb_flip(boxes)], [BOXES])[0]

    np.testing.assert_allclose(twice[0], BOXES, atol=1e-6)
    assert not np.allclose(once[0], BOXES)


def test_boxes_rotate_with_their_image() -> None:
    """A box around a bright rectangle is around the rotated rectangle."""
    image = np.zeros((100, 160, 1), np.uint8)
    image[30:50, 40:100] = 255
    box = np.float32([[40 / 160, 30 / 100, 100 / 160, 50 / 100]])

    for options in ({}, {"keep_size": True}, {"size": [150, 150]}):
        pictures, boxes = run(
            lambda image, box, options=options: (
                fn.rotate(image, angle=25.0, fill_value=0, **options),
                fn.bbox_rotate(box, angle=25.0, input_shape=[100, 160], **options),
            ),
            [image],
            [box],
            layouts=["HWC", ""],
        )[0]
        rows, columns = np.nonzero(pictures[0][..., 0] > 100)
        height, width = pictures[0].shape[:2]
        seen = [columns.min() / width, rows.min() / height, (columns.max() + 1) / width, (rows.max() + 1) / height]
        np.testing.assert_allclose(boxes[0][0], seen, atol=0.015)


def test_labels_go_with_their_boxes() -> None:
    """Boxes that leave the image are removed, with their labels of any integer dtype."""
    boxes = np.float32([[0, 0, 0.1, 0.1], [0.4, 0.4, 0.6, 0.6]])

    kept, labels = run(
        lambda boxes, labels: fn.bbox_rotate(boxes, labels, angle=45.0, input_shape=[9, 9], keep_size=True),
        [boxes],
        [LABELS],
    )[0]

    assert kept[0].shape == (1, 4)
    assert (labels[0].tolist(), labels[0].dtype) == ([7], np.int64)


@pytest.mark.parametrize("way", WAYS)
def test_random_windows_depend_on_the_position_alone(way: str) -> None:
    def define(boxes: Any, labels: Any) -> Any:
        return fn.random_bbox_crop(boxes, labels, scaling=[0.3, 1.0], allow_no_crop=False, seed=5)

    results = run(define, [BOXES] * 3, [LABELS] * 3, way=way, iterations=2)

    assert [len(outputs) for outputs in results] == [4, 4]
    anchors = [tuple(anchor) for outputs in results for anchor in outputs[0]]
    assert len(set(anchors)) == 6
    assert anchors == [
        tuple(anchor) for outputs in run(define, [BOXES] * 3, [LABELS] * 3, iterations=2) for anchor in outputs[0]
    ]


@pytest.mark.parametrize("prune", [{}, {"bbox_prune_threshold": 0.2}])
@pytest.mark.parametrize("attempts", [-1, 7])
@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("measure", ["iou", "overlap"])
def test_windows_do_not_depend_on_the_number_of_boxes_examined_one_by_one(
    measure: str, every: bool, attempts: int, prune: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    low = rng.random((9, 5, 2), np.float32) / 2
    boxes = [np.concatenate([corner, corner + 0.1 + rng.random((5, 2), np.float32) * 0.4], 1) for corner in low]
    boxes[4] = boxes[4][:0]

    def define(boxes: Any) -> Any:
        options = {"all_boxes_above_threshold": every, "total_num_attempts": attempts, "threshold_type": measure, **prune}
        return fn.random_bbox_crop(
            boxes, scaling=[0.3, 1.0], aspect_ratio=[0.5, 2.0], thresholds=[0.0, 0.2, 0.5], seed=5, **options
        )

    results = []
    for few in (16, 2, 0):
        monkeypatch.setattr(box_crops, "_FEW", few)
        results.append([np.concatenate([each.ravel() for each in output]) for output in run(define, boxes)[0]])

    for other in results[1:]:
        for one, same in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


def test_a_window_that_fits_no_aspect_ratio_is_an_error() -> None:
    def define(boxes: Any) -> Any:
        return fn.random_bbox_crop(
            boxes, scaling=[0.3, 0.5], aspect_ratio=[4.0, 5.0], total_num_attempts=9, allow_no_crop=False
        )

    with pytest.raises(SampleError, match="none of 9 random windows had an allowed aspect ratio; widen scaling"):
        run(define, [BOXES])


def test_deprecated_arguments_warn() -> None:
    with pytest.warns(DeprecationWarning, match="bbox_layout"):
        fn.random_bbox_crop(BOXES, ltrb=False)
    with pytest.warns(DeprecationWarning, match="use fn.random_bbox_crop"):
        fn.ssd_random_crop(IMAGE, BOXES, LABELS)


class TestMultiPaste:
    def test_a_mosaic_of_sequences(self) -> None:
        """Sequences are pasted frame by frame; places may differ from frame to frame."""
        sequences = [np.full((2, 1, 2, 1), value, np.uint8) for value in (10, 20)]
        sequences[1][1] += 1
        places = np.int32([[[0, 0]], [[1, 1]]])

        (outputs,) = batches(
            lambda images, ids, places: fn.multi_paste(
                images, in_ids=ids, output_size=[2, 3], out_anchors=fn.per_frame(places)
            ),
            sequences,
            [np.int32([1]), np.int32([0])],
            [places] * 2,
            layouts=["FHWC"],
        )

        assert outputs[0].layout() == "FHWC"
        first, second = (np.array(outputs[0].at(i))[..., 0].tolist() for i in range(2))
        assert first == [[[20, 20, 0], [0, 0, 0]], [[0, 0, 0], [0, 21, 21]]]
        assert second == [[[10, 10, 0], [0, 0, 0]], [[0, 0, 0], [0, 10, 10]]]

    def test_without_regions_the_result_is_black(self) -> None:
        outputs = run(lambda image, ids: fn.multi_paste(image, in_ids=ids), [IMAGE], [np.int32([])])[0]

        assert outputs[0][0].shape == IMAGE.shape
        assert not outputs[0][0].any()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"in_ids": [5]}, "in_ids has 5, but samples of the batch are numbered from 0 to 0"),
            ({"in_ids": [0], "output_size": [2, 2]}, r"the region at \(0, 0\) of size \(4, 5\) is not inside the result"),
            ({"in_ids": [0], "shapes": [[9, 9]]}, "is not inside the input"),
            ({"in_ids": [0], "shapes": [[1, 1], [1, 1]]}, r"shapes must have the shape \(1, 2\), for its regions"),
            ({"in_ids": [0], "shapes_rel": [[1.5, 1]]}, "shapes_rel must be from 0 to 1"),
            ({"in_ids": [0], "output_size": [4]}, "output_size must have height and width"),
        ],
    )
    def test_wrong_regions(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(SampleError, match=message):
            run(lambda image: fn.multi_paste(image, **arguments), [IMAGE])

    def test_wrong_arguments(self) -> None:
        with pytest.raises(ArgumentClashError, match="shapes and shapes_rel exclude each other"):
            fn.multi_paste(IMAGE, shapes=[[1, 1]], shapes_rel=[[1, 1]])
        with pytest.raises(ArgumentError, match="dtype must be UINT8, INT16, INT32 or FLOAT"):
            fn.multi_paste(IMAGE, dtype=np.float16)


class TestMasks:
    def test_objects_of_connected_pixels(self) -> None:
        mask = np.zeros((6, 6), np.int16)
        mask[0:2, 0:2] = mask[2, 2] = 4  # pixels that touch at a corner are not connected

        boxes = run(lambda mask: fn.segmentation.random_object_bbox(mask, format="box"), [mask] * 20)[0][0]

        assert {tuple(box.tolist()) for box in boxes} == {(0, 0, 2, 2), (2, 2, 3, 3)}

    def test_scipy_is_an_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "scipy.ndimage", None)

        with pytest.raises(MissingExtraError, match=r"random_object_bbox needs scipy.ndimage: .*scipy>=1.11"):
            run(fn.segmentation.random_object_bbox, [np.eye(3, dtype=np.uint8)])

    @pytest.mark.parametrize(
        ("polygons", "message"),
        [
            ([[0, 0, 3], [1, 3, 9]], "ascending indices of the 8 vertices"),
            ([[0, 0, 3], [2, 3, 7]], "there is no polygon of the mask 1"),
            ([[0, 0], [1, 3]], r"integers of shape \(N, 3\)"),
        ],
    )
    def test_wrong_polygons(self, polygons: Any, message: str) -> None:
        with pytest.raises(SampleError, match=message):
            run(
                fn.segmentation.select_masks,
                [np.int32([1])],
                [np.int32(polygons)],
                [np.zeros((8, 2), np.float32)],
            )

    def test_an_empty_mask_has_no_pixel(self) -> None:
        with pytest.raises(SampleError, match="has no pixel"):
            run(fn.segmentation.random_mask_pixel, [np.zeros((0, 3), np.uint8)])


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda boxes, labels: fn.bb_flip(labels), "boxes must be of dtype float32, not int64"),
        (lambda boxes, labels: fn.bb_flip(boxes[:, :3]), "has 6 numbers"),
        (lambda boxes, labels: fn.box_encoder(boxes, labels[:1], anchors=[0, 0, 1, 1])[0], "one for each box"),
        (lambda boxes, labels: fn.box_encoder(boxes[:, :3], labels, anchors=[0, 0, 1, 1])[0], r"shape \(N, 4\)"),
        (lambda boxes, labels: fn.random_bbox_crop(boxes * 9)[0], "fractions of the image, from 0 to 1"),
        (lambda boxes, labels: fn.roi_random_crop(crop_shape=[9], roi_start=[0], roi_end=[1], in_shape=[5]), "larger than"),
    ],
)
def test_wrong_samples(define: Any, message: str) -> None:
    with pytest.raises(SampleError, match=message):
        run(lambda boxes, labels: [define(boxes, labels), boxes, labels], [BOXES], [LABELS])
