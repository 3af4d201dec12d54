"""Notices side effects of code: writing files, unpickling, starting programs, connecting. Of one process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

#: Audit events that change files, run code, or open databases, and names of libraries that do.
_ACTS = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"),
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "subprocess.Popen"),
    *("pickle.find_class", "sqlite3.connect", "socket.connect", "socket.bind", "shutil.rmtree"),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_records: list[list[str]] = []
_is_installed = False


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """Yield the list of side effects until the end of the block. Imports of modules write no byte code meanwhile."""
    global _is_installed  # noqa: PLW0603  # hooks cannot be removed
    if not _is_installed:
        sys.addaudithook(_hook)
        _is_installed = True
    acts: list[str] = []
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    _records.append(acts)
    try:
        yield acts
    finally:
        _records.remove(acts)
        sys.dont_write_bytecode = before


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _records:
        return
    if event == "open":
        path, _, flags = arguments
        if not flags & _WRITING or path == os.devnull:
            return
    elif event not in _ACTS or (event == "os.truncate" and isinstance(arguments[0], int)):  # of a file that is open already
        return
    for acts in _records:
        acts.append(f"{event} {arguments}")
