"""Pictures of batches for ``dali-like view``: on request, and only of programs that have agreed."""

from __future__ import annotations

import base64
import io
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def, types
from dali_like.data import DataLoader
from dali_like.monitor.show import live
from dali_like.monitor.show.batch_pictures import PICTURE_BYTES, PictureDesk, request_picture
from dali_like.monitor.show.watching import Watching
from dali_like.pipeline.operator_steps import OperatorStep
from tests.conftest import wait_until

Image = pytest.importorskip("PIL.Image")


class Photos:
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> Any:
        return np.full((16, 16, 3), index % 255, np.uint8), index


def asked(take: Callable[[], Any], name: str, sample: int | None = None) -> dict[str, Any]:
    """Ask for a picture, or the steps of a sample, in a thread, and take batches until it is there."""
    (found,) = live.find(os.getpid(), name)
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(found.picture(100, sample)))
    thread.start()
    wait_until(lambda: (take(), not thread.is_alive())[1], "an answer")
    thread.join()
    return answers[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_answers_with_a_picture_of_its_next_batch(workers: int) -> None:
    loader = DataLoader(Photos(), 4, num_workers=workers)
    loader.publish("photos", pictures=True)
    batches = iter(loader)

    answer = asked(lambda: next(batches), "photos")

    picture = Image.open(io.BytesIO(base64.b64decode(answer["png"])))
    assert min(picture.size) > 100
    assert batches.on_next is None


def test_pipeline_answers_with_a_picture_of_its_next_batch() -> None:
    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline() -> Any:
        return fn.external_source(lambda info: np.zeros((8, 8, 3), np.uint8), batch=False)

    with pipeline() as pipe:
        pipe.publish("photos", pictures=True)
        assert "png" in asked(pipe.run, "photos")
        assert "png" in asked(pipe.run, "photos")


def test_pipeline_answers_with_the_steps_of_a_sample_of_its_next_batch() -> None:
    taken: list[int] = []

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline() -> Any:
        pictures = fn.external_source(
            lambda info: np.full((8, 8, 3), info.idx_in_epoch % 256, np.uint8), batch=False, name="photos", layout="HWC"
        )
        return fn.crop(pictures, crop=[4, 4]), pictures[0, 0, 0]

    with pipeline() as pipe:
        pipe.publish("photos", pictures=True)
        steps = asked(lambda: taken.append(pipe.run()[1].at(1)), "photos", sample=1)["steps"]
        assert [step["name"] for step in steps][:2] == ["photos", "fn.crop_0"]
        assert [step["outputs"][0]["about"] for step in steps][:2] == ["uint8 (8, 8, 3) HWC", "uint8 (4, 4, 3) HWC"]
        pixel = Image.open(io.BytesIO(base64.b64decode(steps[0]["outputs"][0]["png"]))).convert("RGB").getpixel((40, 40))
        assert pixel[0] in taken  # of the batch that was next
        assert "the batch has 2 samples" in asked(pipe.run, "photos", sample=7)["error"]
        assert "png" in asked(pipe.run, "photos")


def test_steps_of_objects_have_no_picture() -> None:
    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline() -> Any:
        return fn.external_source(lambda info: {"a": 1}, batch=False, dtype=types.OBJECT)

    with pipeline() as pipe:
        pipe.publish("objects", pictures=True)
        [step] = asked(pipe.run, "objects", sample=0)["steps"]
        assert step["outputs"] == [{"png": "", "about": "dict"}]


def test_loader_has_no_steps() -> None:
    loader = DataLoader(Photos(), 4)
    loader.publish("photos", pictures=True)
    batches = iter(loader)

    assert "only pipelines show their steps" in asked(lambda: next(batches), "photos", sample=0)["error"]


def test_answer_of_a_stranger_is_no_picture() -> None:
    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline() -> Any:
        return fn.external_source(lambda info: np.zeros((8, 8, 3), np.uint8), batch=False)

    with pipeline() as pipe:
        pipe.publish("stranger", pictures=True)
        (found,) = live.find(os.getpid(), "stranger")
        # Private: the place of the request in the published file.
        desk = PictureDesk(found.fd, live._BYTES, lambda use: None, lambda sample: [OperatorStep(5, (), ())])  # type: ignore[arg-type]
        assert asked(desk.look, "stranger", sample=0) == {"error": "the answer is not a picture"}


def test_batch_that_cannot_be_drawn_gives_an_error_and_the_loop_goes_on() -> None:
    loader = DataLoader([object()] * 10_000, 2, collate_fn=lambda samples: samples[0])
    loader.publish("objects", pictures=True)
    batches = iter(loader)

    assert set(asked(lambda: next(batches), "objects")) <= {"error", "png"}
    next(batches)


def test_program_without_pictures_has_no_room_for_them() -> None:
    loader = DataLoader(Photos(), 4)
    loader.publish("photos")
    next(iter(loader))
    (found,) = live.find(os.getpid(), "photos")

    assert "publish(pictures=True)" in found.picture(5)["error"]
    assert os.stat(f"/proc/self/fd/{found.fd}").st_size < PICTURE_BYTES


def test_program_that_takes_no_batch_gives_an_error() -> None:
    loader = DataLoader(Photos(), 4)
    loader.publish("photos", pictures=True)
    (found,) = live.find(os.getpid(), "photos")

    assert "no batch for 0.01 s" in found.picture(0.01)["error"]
    assert request_picture(os.getpid(), 10_000, 0, 1) == {"error": "the program has ended"}


def test_page_gets_the_pictures_of_all_programs() -> None:
    loader = DataLoader(Photos(), 4)
    loader.publish("photos")
    watching = Watching(os.getpid(), "photos")
    (shown,) = watching.read()["pipelines"]

    assert "error" in watching.pictures()[shown["id"]]
