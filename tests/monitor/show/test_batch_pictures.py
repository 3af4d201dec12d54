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

from dali_like import fn, pipeline_def
from dali_like.data import DataLoader
from dali_like.monitor.show import live
from dali_like.monitor.show.batch_pictures import PICTURE_BYTES, request_picture
from dali_like.monitor.show.watching import Watching
from tests.conftest import wait_until

Image = pytest.importorskip("PIL.Image")


class Photos:
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> Any:
        return np.full((16, 16, 3), index % 255, np.uint8), index


def asked(take: Callable[[], Any], name: str) -> dict[str, Any]:
    """Ask for a picture in a thread, and take batches until it is there."""
    (found,) = live.find(os.getpid(), name)
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(found.picture(100)))
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
