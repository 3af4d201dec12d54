"""Profiles of workers: counts of stacks in shared memory, written by each worker while the main process wants them.

The first word of a worker's log says so (`dali_like.engine.worker.meters`): its lowest bit asks for records of tasks, the
other bits are the number of the profile, 0 for none. A worker looks at it where it begins, and behind each task. So a worker
begins its `StackSampler` with its first task, or with the one after that in progress. No message is sent.

The area of a worker begins with a header: a sequence number, odd during a write; the length of the text; the number of the
profile; and whether it is complete. A replacement of a dead worker goes on with the counts in the area.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.engine.memory.protocol import LOG_BYTES, PROFILE_BYTES, WORD_BYTES, log_offset, profile_offset
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.info import is_worker_thread
from dali_like.engine.worker.sampling import WORKER_FILES, StackCounts, StackSampler

__all__ = ["WorkerProfiles", "begin_profile"]

_HEADER = struct.Struct("=4q")
_MOST_TEXT = PROFILE_BYTES - _HEADER.size
#: The lowest bit of the first word of a log asks for records of tasks; see `dali_like.engine.worker.meters`.
_SHIFT = 1
#: How long the main process waits for the last counts of running workers.
_LAST_S = 1.0
_PAUSE_S = 0.005
_TRIES = 100


class _Area:
    """The memory for the profile of one worker."""

    def __init__(self, space: SharedSpace, worker: int, num_workers: int) -> None:
        begin = profile_offset(worker, num_workers)
        self._memory = memoryview(space.map)[begin : begin + PROFILE_BYTES]

    def write(self, number: int, text: bytes, *, is_complete: bool) -> None:
        """Write the text of a profile."""
        change = _HEADER.unpack_from(self._memory)[0] // 2 * 2 + 2
        _HEADER.pack_into(self._memory, 0, change - 1, 0, number, 0)
        self._memory[_HEADER.size : _HEADER.size + len(text)] = text
        _HEADER.pack_into(self._memory, 0, change, len(text), number, is_complete)

    def read(self, number: int) -> tuple[StackCounts, bool] | None:
        """Return the counts of a profile, and whether they are complete; None: it has not begun, or the worker has died
        during a write.
        """
        for _ in range(_TRIES):
            change, length, found, is_complete = _HEADER.unpack_from(self._memory)
            if found != number:
                return None
            text = bytes(self._memory[_HEADER.size : _HEADER.size + min(max(length, 0), _MOST_TEXT)])
            if change % 2 == 0 and _HEADER.unpack_from(self._memory)[0] == change:
                return StackCounts.from_json(json.loads(text)), bool(is_complete)
            time.sleep(_PAUSE_S)
        return None


def begin_profile(space: SharedSpace, worker: int, num_workers: int, words: Sequence[int]) -> StackSampler:
    """Begin to sample the stacks of this worker, as the main process wants.

    Args:
        words: of the worker's log.
    """
    number = words[0] >> _SHIFT
    area = _Area(space, worker, num_workers)
    before = area.read(number)

    def publish(counts: StackCounts) -> None:
        total = StackCounts()
        total.add_all(counts)
        if before is not None:
            total.add_all(before[0])
        area.write(number, total.as_text(_MOST_TEXT), is_complete=not is_wanted() or sampler.has_to_stop)

    def is_wanted() -> bool:
        return words[0] >> _SHIFT == number

    has_process = not is_worker_thread()
    sampler = StackSampler(WORKER_FILES, is_wanted, publish, is_alone=has_process, all_reads=has_process)
    sampler.start()
    return sampler


class WorkerProfiles:
    """The profiles of all workers that a pool may have, as the main process sees them. They are wanted until `end`.

    Raises:
        OutOfMemoryError: there is no memory for them.
    """

    def __init__(self, space: SharedSpace, num_workers: int, number: int) -> None:
        self._number = number
        self._space = space  # its end frees the pages
        self._areas = [_Area(space, worker, num_workers) for worker in range(num_workers)]
        space.commit(profile_offset(0, num_workers), num_workers * PROFILE_BYTES)
        logs = space.array(log_offset(0, num_workers), (num_workers, LOG_BYTES // WORD_BYTES), np.dtype(np.int64))
        self._wanted: Any = logs[:, 0]
        self._set(number)

    def read(self) -> dict[int, StackCounts]:
        """Return the counts so far, by worker."""
        found = {worker: area.read(self._number) for worker, area in enumerate(self._areas)}
        return {worker: counts[0] for worker, counts in found.items() if counts is not None}

    def end(self, running: Sequence[int]) -> dict[int, StackCounts]:
        """Stop the workers from sampling, and return their counts.

        Args:
            running: the workers that may write further counts.
        """
        self._set(0)
        end_s = time.monotonic() + _LAST_S
        for worker in running:
            while (
                (found := self._areas[worker].read(self._number)) is not None and not found[1] and time.monotonic() < end_s
            ):
                time.sleep(_PAUSE_S)  # the next look of the sampler
        return self.read()

    def _set(self, number: int) -> None:
        self._wanted[:] = (self._wanted & 1) | number << _SHIFT
