"""Pictures of the latest batch, for ``dali-like view``: on request, and only of programs that have agreed.

``publish(pictures=True)`` makes the published file larger (`dali_like.monitor.show.live`): behind the statistics, it has a
request word and an area for the answer. A reader of the same user writes another number into the word. The loop sees it
where it publishes its statistics, and draws the batch that it takes next. So nothing is drawn without a
request.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import struct
import time
from collections.abc import Callable
from typing import Any

__all__ = ["PICTURE_BYTES", "PictureDesk", "request_picture"]

#: Of the request word and the answer.
PICTURE_BYTES = 1 << 21
_REQUEST = struct.Struct("=q")
#: The sequence number of the answer, odd during a write; the number of the request; the length of the text.
_ANSWER = struct.Struct("=3q")
_MOST_TEXT = PICTURE_BYTES - _REQUEST.size - _ANSWER.size
#: Samples, and the longer side of each; fewer and smaller ones if they need more room.
_SIZES = ((16, 160), (8, 120), (4, 80), (1, 80))
_PAUSE_S = 0.02


class PictureDesk:
    """Answers requests for pictures, in the loop.

    Args:
        fd: of the published file.
        offset: of the request word.
        peek: calls a function with the next batch, once, before the program gets it.
    """

    def __init__(self, fd: int, offset: int, peek: Callable[[Callable[[Any], None]], None]) -> None:
        self._fd, self._offset, self._peek = fd, offset, peek
        self._change = 0
        self._answered = 0

    def look(self) -> None:
        """Ask for the next batch if there is a request."""
        (number,) = _REQUEST.unpack(os.pread(self._fd, _REQUEST.size, self._offset))
        if number != self._answered:
            self._answered = number
            self._peek(lambda batch: self._answer(number, batch))

    def _answer(self, number: int, batch: Any) -> None:
        try:
            text = _picture_of(batch)
        except Exception as error:  # a batch may be anything, and the loop goes on
            text = json.dumps({"error": f"{type(error).__name__}: {error}"[:1000]}).encode()
        offset, self._change = self._offset + _REQUEST.size, self._change + 2
        os.pwrite(self._fd, _ANSWER.pack(self._change - 1, number, 0), offset)
        os.pwrite(self._fd, text, offset + _ANSWER.size)
        os.pwrite(self._fd, _ANSWER.pack(self._change, number, len(text)), offset)


def _picture_of(batch: Any) -> bytes:
    from dali_like.showing.pictures import picture_of  # needs Pillow

    for samples, size in _SIZES:
        file = io.BytesIO()
        picture = picture_of(batch, samples=samples, size=size)
        picture.image.save(file, "PNG")
        text = json.dumps({"png": base64.b64encode(file.getvalue()).decode(), "roles": dict(picture.roles)}).encode()
        if len(text) <= _MOST_TEXT:
            return text
    raise ValueError("the picture of one sample is too large")


def request_picture(pid: int, fd: int, offset: int, timeout_s: float) -> dict[str, Any]:
    """Ask a program for a picture of its next batch. Runs in the reader.

    Returns:
        "png", in base64, or "error".
    """
    number = time.monotonic_ns()
    end_s = time.monotonic() + timeout_s
    with contextlib.suppress(OSError):
        opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if os.fstat(opened).st_size < offset + PICTURE_BYTES:
                return {"error": "this program shows no pictures: it needs publish(pictures=True)"}
            os.pwrite(opened, _REQUEST.pack(number), offset)
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
    for name in ("png", "error"):
        if isinstance(answer, dict) and isinstance(answer.get(name), str):
            return {name: answer[name]}
    return {"error": "the answer is not a picture"}
