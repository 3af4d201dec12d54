"""Pictures of the next batch, for ``dali-like view``: on request, and only of programs that have agreed.

``publish(pictures=True)`` makes the published file larger (`dali_like.monitor.show.live`): behind the statistics, it has a
request and an area for the answer. A reader of the same user writes its wish into the request, a batch or the steps of one
sample, and then a new number. The loop sees the number where it publishes its statistics. For a batch, it draws the one that
it takes next. For steps, it computes the sample again, operator by operator, and draws each result. Without a request,
nothing is drawn.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dali_like.common.json_state import TEXT, list_of, mapping

__all__ = ["PICTURE_BYTES", "PictureDesk", "request_picture"]

#: Of the request and the answer.
PICTURE_BYTES = 1 << 21
#: The number of the request; the sample whose steps are wanted, or `_BATCH`.
_REQUEST = struct.Struct("=2q")
_BATCH = -1
#: The sequence number of the answer, odd during a write; the number of the request; the length of the text.
_ANSWER = struct.Struct("=3q")
_MOST_TEXT = PICTURE_BYTES - _REQUEST.size - _ANSWER.size
#: Samples, and the longer side of each; fewer and smaller ones if they need more room.
_SIZES = ((16, 160), (8, 120), (4, 80), (1, 80))
#: The longer side of a step.
_STEP_SIZES = (200, 120, 60)
_PAUSE_S = 0.02
#: The parts of an answer; strangers may write anything.
_OUTPUTS = list_of(mapping(png=TEXT, about=TEXT))
_ANSWERS = {"png": TEXT, "error": TEXT, "steps": list_of(mapping(name=TEXT, outputs=_OUTPUTS))}


class PictureDesk:
    """Answers requests for pictures, in the loop.

    Args:
        fd: of the published file.
        offset: of the request.
        peek: calls a function with the next batch, once, before the program gets it.
        steps: returns the steps of a sample of the next batch, each a `dali_like.pipeline.operator_steps.OperatorStep`.
            None: there are no operators.
    """

    def __init__(
        self,
        fd: int,
        offset: int,
        peek: Callable[[Callable[[Any], None]], None],
        steps: Callable[[int], Sequence[Any]] | None = None,
    ) -> None:
        self._fd, self._offset, self._peek, self._steps = fd, offset, peek, steps
        self._change = 0
        self._answered = 0

    def look(self) -> None:
        """Answer a request, if there is one: with steps at once, with a picture when the next batch is there."""
        number, sample = _REQUEST.unpack(os.pread(self._fd, _REQUEST.size, self._offset))
        if number == self._answered:
            return
        self._answered = number
        if sample == _BATCH:
            self._peek(lambda batch: self._answer(number, lambda: _picture_of(batch)))
        else:
            self._answer(number, lambda: self._steps_of(sample))

    def _steps_of(self, sample: int) -> bytes:
        if self._steps is None:
            raise ValueError("a loader has no operators: only pipelines show their steps")
        return _pictures_of(self._steps(sample))

    def _answer(self, number: int, make: Callable[[], bytes]) -> None:
        try:
            text = make()
        except Exception as error:  # a batch may be anything, and the loop goes on
            text = json.dumps({"error": f"{type(error).__name__}: {error}"[:1000]}).encode()
        offset, self._change = self._offset + _REQUEST.size, self._change + 2
        os.pwrite(self._fd, _ANSWER.pack(self._change - 1, number, 0), offset)
        os.pwrite(self._fd, text, offset + _ANSWER.size)
        os.pwrite(self._fd, _ANSWER.pack(self._change, number, len(text)), offset)


def _picture_of(batch: Any) -> bytes:
    for samples, size in _SIZES:
        png, roles = _png_of(batch, samples, size)
        if len(text := json.dumps({"png": png, "roles": roles}).encode()) <= _MOST_TEXT:
            return text
    raise ValueError("the picture of one sample is too large")


def _pictures_of(steps: Sequence[Any]) -> bytes:
    for size in _STEP_SIZES:
        found = [
            {
                "name": step.name,
                "outputs": [_drawn(*output, size) for output in zip(step.outputs, step.layouts, strict=True)],
            }
            for step in steps
        ]
        if len(text := json.dumps({"steps": found}).encode()) <= _MOST_TEXT:
            return text
    raise ValueError("the pictures of the steps are too large")


def _drawn(value: Any, layout: str, size: int) -> dict[str, str]:
    """Return the picture of a sample, and a description. Objects have no picture."""
    import numpy as np

    from dali_like.tensors import TensorListCPU

    if not isinstance(value, np.ndarray | np.generic):
        return {"png": "", "about": type(value).__qualname__}
    value = np.asarray(value)
    png, _ = _png_of(TensorListCPU([value], layout or None), 1, size)
    return {"png": png, "about": " ".join(filter(None, (str(value.dtype), str(value.shape), layout)))}


def _png_of(batch: Any, samples: int, size: int) -> tuple[str, Mapping[str, str]]:
    from dali_like.showing.pictures import picture_of  # needs Pillow

    file = io.BytesIO()
    picture = picture_of(batch, samples=samples, size=size)
    picture.image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode(), dict(picture.roles)


def request_picture(pid: int, fd: int, offset: int, timeout_s: float, sample: int | None = None) -> dict[str, Any]:
    """Ask a program for a picture of its next batch, or for the steps of one of its samples. Runs in the reader.

    Args:
        sample: number of the sample in the batch; None: a picture of the batch.

    Returns:
        "png", in base64; or "steps", each with its "name" and "outputs", each of these a "png" and a text "about" it; or
        "error".
    """
    number = time.monotonic_ns()
    end_s = time.monotonic() + timeout_s
    with contextlib.suppress(OSError):
        opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if os.fstat(opened).st_size < offset + PICTURE_BYTES:
                return {"error": "this program shows no pictures: it needs publish(pictures=True)"}
            request = _REQUEST.pack(number, _BATCH if sample is None else sample)
            os.pwrite(opened, request[8:], offset + 8)  # the number is last: the loop looks at it
            os.pwrite(opened, request[:8], offset)
            while time.monotonic() < end_s:
                if (answer := _answer_in(opened, number, offset + _REQUEST.size)) is not None:
                    return answer
                time.sleep(_PAUSE_S)
        finally:
            os.close(opened)
        return {"error": f"the program has taken no batch for {timeout_s:g} s"}
    return {"error": "the program has ended"}


def _answer_in(fd: int, number: int, offset: int) -> dict[str, Any] | None:
    """Return the answer to a request; None: it is not complete. Other programs may write anything."""
    head = os.pread(fd, _ANSWER.size, offset)
    change, found, length = _ANSWER.unpack(head)
    if change % 2 or found != number or not 0 <= length <= _MOST_TEXT:
        return None
    text = os.pread(fd, length, offset + _ANSWER.size)
    if os.pread(fd, _ANSWER.size, offset) != head:
        return None
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    for name, check in _ANSWERS.items():
        if isinstance(answer, dict) and name in answer and check(answer[name], name) is None:
            return {name: answer[name]}
    return {"error": "the answer is not a picture"}
