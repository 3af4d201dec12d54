"""Find the files that a callback reads a sample from, to name them in the errors of operators behind the callback.

A callback that returns the bytes of a file does not say which file. After an error of an operator, it is called once more,
and the interpreter reports the files that it opens. Runs in the process and the thread that have called it before.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from dali_like.types import SampleInfo, current_call

#: Files of one sample to name.
_MOST_FILES = 3
#: Files of the interpreter and of libraries, which a callback may import.
_CODE = (".py", ".pyc", ".so", ".zip")
_SYSTEM = ("/proc/", "/sys/", "/dev/")

_watched = threading.local()


def files_read_by(callback: Callable[[SampleInfo], Any], info: SampleInfo) -> list[str]:
    """Call a callback again; return the first files that it opens for reading."""
    _install()
    call = current_call.get()
    files: dict[str, None] = {}
    _watched.files = files
    current_call.set(call._replace(empty=None, watch=None))
    try:
        with contextlib.suppress(Exception):  # the names are only an addition to an error
            callback(info)
    finally:
        _watched.files = None
        current_call.set(call)
    return list(files)[:_MOST_FILES]


@functools.cache
def _install() -> None:
    """Let the interpreter report files. A hook cannot be removed; without a callback to watch, it costs 0.1 us per event."""
    sys.addaudithook(_note)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or (files := getattr(_watched, "files", None)) is None:
        return
    path, _, flags = arguments
    if isinstance(path, (str, bytes)) and isinstance(flags, int) and flags & os.O_ACCMODE == os.O_RDONLY:
        name = os.fsdecode(path)
        if not name.endswith(_CODE) and not name.startswith(_SYSTEM):
            files[name] = None
