"""The worker processes of a loader, as users of PyTorch's look at theirs."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Mapping

from dali_like.engine.memory.limits import read_file

#: How often to look whether a worker has ended.
_LOOK_S = 0.002


class WorkerHandle:
    """A worker process, with some attributes of `multiprocessing.Process`."""

    def __init__(self, pid: int, name: str, exitcodes: Mapping[int, int]) -> None:
        self.pid = pid
        self.name = name
        self._exitcodes = exitcodes

    @property
    def exitcode(self) -> int | None:
        """How it has ended: the exit status, or minus the number of the signal; None: not yet."""
        return self._exitcodes.get(self.pid)

    def is_alive(self) -> bool:
        """Whether it is there and has not ended."""
        if self.pid in self._exitcodes:
            return False
        return read_file(f"/proc/{self.pid}/stat").rpartition(") ")[2][:1] not in ("", "Z", "X")

    def terminate(self) -> None:
        """Send SIGTERM, if it is alive."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, if it is alive."""
        self._signal(signal.SIGKILL)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        deadline_s = math.inf if timeout is None else time.monotonic() + timeout
        while self.is_alive() and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)  # it is no child of this process

    def _signal(self, number: int) -> None:
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
