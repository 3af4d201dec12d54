"""Folders that belong to the user, and that nobody else may enter: for files whose contents are believed."""

from __future__ import annotations

import contextlib
import os
import stat

from dali_like.errors import ArgumentError


def make_private_folder(path: str, argument: str) -> None:
    """Create a folder for this user alone, or check that an existing one is.

    Args:
        path: path of the folder; its parent exists.
        argument: name of the argument that names the folder, for messages.

    Raises:
        ArgumentError: the folder belongs to another user, or others may enter it.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ArgumentError(
            f"{argument}={path!r} should be a folder of this user that nobody else may enter; choose another one, or: "
            f"chmod 700 {path}"
        )
