"""Memory of a program that keeps some outputs of its batches: labels do not hold the images beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.plugin.numpy import DALIGenericIterator
from dali_like.testing.simulated_device import SimulatedDevice
from dali_like.types import SampleInfo
from tests.conftest import in_both_places
from tests.internals import space_of

BATCH_SIZE = 4
NUM_BATCHES = 30
#: Six batches of images, of 192 KiB each, and their labels.
LIMIT_BYTES = 6 * BATCH_SIZE * (49_152 + 4096)

IMAGE = np.zeros((128, 128, 3), np.uint8)


def with_label(info: SampleInfo) -> Any:
    return IMAGE, np.array([info.idx_in_epoch])


def with_boxes(info: SampleInfo) -> Any:
    """Images and boxes whose shapes differ; some batches have no box at all."""
    count = info.idx_in_epoch % 3 if info.iteration % 4 else 0
    return IMAGE[: 128 - info.idx_in_batch], np.full((count, 4), info.idx_in_epoch)


def with_last_label_elsewhere(info: SampleInfo) -> Any:
    """Labels of one shape, beside images whose shapes differ."""
    return IMAGE[: 128 - info.idx_in_batch], np.array([info.idx_in_epoch])


def pipeline(source: Callable[[SampleInfo], Any], way: str, change: Callable[[Any], Any] | None = None) -> Pipeline:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, device_id=None, max_held_bytes=LIMIT_BYTES, py_num_workers=2)
    def images_and_more() -> Any:
        images, more = fn.external_source(source, num_outputs=2, batch=False, parallel=way != "serial")
        return images if change is None else change(images), more

    pipe: Pipeline = images_and_more(**({} if way == "serial" else {"py_start_method": way}))
    return pipe


KEEP: dict[str, Callable[[Any], Any]] = {
    "tensor list": lambda labels: labels,
    "as_array": lambda labels: labels.as_array(),
    "sample": lambda labels: labels.at(0),
    "tensor": lambda labels: labels[0],
    "asarray": lambda labels: np.asarray(labels[0]),
    "dlpack": lambda labels: np.from_dlpack(labels[0]),
}


@pytest.mark.parametrize("keep", KEEP.values(), ids=KEEP)
@pytest.mark.parametrize("source", [with_label, with_last_label_elsewhere])
def test_kept_labels_hold_no_images(source: Callable[[SampleInfo], Any], keep: Callable[[Any], Any]) -> None:
    with pipeline(source, "serial") as pipe:
        kept = [keep(pipe.run()[1]) for _ in range(NUM_BATCHES)]

    firsts = [np.asarray(each[0] if isinstance(each, type(kept[0])) and hasattr(each, "at") else each) for each in kept]
    assert [int(first.ravel()[0]) for first in firsts] == list(range(0, NUM_BATCHES * BATCH_SIZE, BATCH_SIZE))


@in_both_places
def test_kept_boxes_of_varying_number_hold_no_images(way: str) -> None:
    with pipeline(with_boxes, way) as pipe:
        kept = [pipe.run()[1] for _ in range(NUM_BATCHES)]

    for iteration, boxes in enumerate(kept):
        for i in range(BATCH_SIZE):
            info = SampleInfo(iteration * BATCH_SIZE + i, i, iteration, 0)
            assert np.array_equal(boxes.at(i), with_boxes(info)[1])


@in_both_places
def test_kept_labels_hold_no_images_beside_operators_of_the_main_process(way: str) -> None:
    def change(images: Any) -> Any:
        return fn.python_function(images, function=lambda image: image + 1)

    with pipeline(with_label, way, change) as pipe:
        kept = [pipe.run()[1] for _ in range(NUM_BATCHES)]

    assert [int(labels.at(0)[0]) for labels in kept] == list(range(0, NUM_BATCHES * BATCH_SIZE, BATCH_SIZE))


def test_kept_labels_of_an_iterator_hold_no_images() -> None:
    with pipeline(with_label, "serial") as pipe:
        iterator = DALIGenericIterator(pipe, ["image", "label"], size=NUM_BATCHES * BATCH_SIZE)
        kept = [batch[0]["label"] for batch in iterator]

    assert np.concatenate(kept).ravel().tolist() == list(range(NUM_BATCHES * BATCH_SIZE))


def test_kept_labels_hold_no_images_that_go_to_a_gpu(gpus: list[SimulatedDevice]) -> None:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, device_id=0, max_held_bytes=LIMIT_BYTES)
    def images_on_gpu() -> Any:
        images, labels = fn.external_source(with_label, num_outputs=2, batch=False)
        return images.gpu(), labels

    kept = []
    with images_on_gpu() as pipe:
        for _ in range(NUM_BATCHES):
            kept.append(pipe.run()[1].as_array())
        (gpu,) = gpus
        is_locked = any(
            0 <= kept[-1].__array_interface__["data"][0] - address < nbytes for address, nbytes in gpu.registered.items()
        )

    assert np.concatenate(kept).ravel().tolist() == list(range(NUM_BATCHES * BATCH_SIZE))
    assert is_locked


def test_images_are_a_view_of_the_batch_and_small_batches_are_so_as_a_whole() -> None:
    def small(info: SampleInfo) -> Any:
        return IMAGE[:28, :28], np.array([info.idx_in_epoch])

    def are_views(source: Callable[[SampleInfo], Any]) -> list[bool]:
        with pipeline(source, "serial") as pipe:
            pipe.run()  # shows the shapes
            memory = space_of(pipe).bytes
            return [np.may_share_memory(output.as_array(), memory) for output in pipe.run()]

    assert are_views(with_label) == [True, False]
    assert are_views(small) == [True, True]
