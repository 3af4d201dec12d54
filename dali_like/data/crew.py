"""The workers of a loader: processes that have a copy of its dataset, and make what passes over it ask for."""

from __future__ import annotations

import functools
import itertools
import math
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dali_like import pickling
from dali_like.data.making import SEEDS_PER_BATCH, BatchMaker
from dali_like.errors import WorkerStartError
from dali_like.hazards import announce_local_classes_of
from dali_like.interrupts import InterruptSafeLock
from dali_like.workers.batch import Batch, BatchKey
from dali_like.workers.geometry import TASKS_PER_WORKER
from dali_like.workers.memory import SharedSpace
from dali_like.workers.pool import ProcessPool
from dali_like.workers.requests import RequestStage
from dali_like.workers.samples import Source
from dali_like.workers.starting import WorkerOptions


@dataclass(frozen=True)
class WorkerHandle:
    """A worker process, as far as PyTorch's users look at theirs: some attributes of `multiprocessing.Process`."""

    pid: int
    name: str

    def is_alive(self) -> bool:
        """Whether the process is there and has not ended."""
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                return file.read().rpartition(") ")[2][:1] not in ("Z", "X")
        except OSError:
            return False

    def terminate(self) -> None:
        """Send SIGTERM."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the process has ended."""
        deadline_s = math.inf if timeout is None else time.monotonic() + timeout
        while self.is_alive() and time.monotonic() < deadline_s:
            time.sleep(0.001)  # it is not this process's child


class LoaderCrew:
    """Workers, and the pool that they belong to.

    Args:
        maker: what they do.
        base_seed: what their global generators depend on.
        first_pass: the number of the first pass that they work for.
        batch_size: samples in the largest batch; None where batches are made as ones.
        is_bound: whether each batch is to be made by one certain worker.
        is_kept: whether they go on when a pass ends.

    Attributes:
        maker: the main process's.
        capacity: samples in the largest batch that can be made sample by sample.
    """

    def __init__(
        self,
        maker: BatchMaker,
        base_seed: int,
        first_pass: int = 0,
        *,
        num_workers: int,
        batch_size: int | None,
        is_bound: bool,
        is_kept: bool,
        start_method: str,
        threads: int | None,
        restarts: int | None,
        max_held_bytes: int | None,
    ) -> None:
        self.maker = maker
        self.capacity = batch_size or 1
        self.num_workers = num_workers
        self.is_bound = is_bound
        self.base_seed = base_seed
        self._is_kept = is_kept
        self._turns = itertools.count()
        self._passes = itertools.count(first_pass)
        self._lock = InterruptSafeLock()
        self._pid = os.getpid()
        source = Source(
            f"dataset {type(maker.dataset).__qualname__}",
            maker,  # type: ignore[arg-type]
            requests=True,
            task_size=_task_size(self.capacity, num_workers),
            in_order=is_bound,
        )
        pickle_source = functools.partial(pickling.dumps, pickler=None)
        options = WorkerOptions(num_workers, start_method, threads, None, restarts, pickle_source)
        with self._lock:
            if start_method == "fork":
                announce_local_classes_of((maker.dataset, maker.collate_fn))
            self._pool = ProcessPool(
                [(source, ())], self.capacity, SharedSpace.create(max_held_bytes), options, str(base_seed).encode()
            )

    @property
    def workers(self) -> list[WorkerHandle]:
        """Those that have started."""
        return [WorkerHandle(pid, f"dali_like:{number}") for number, pid in enumerate(self._pool.worker_pids)]

    @property
    def has_failed(self) -> bool:
        """Whether it cannot make batches any more, in this process at least."""
        return self._pool.has_failed or self._pid != os.getpid()

    def next_turn(self) -> int:
        """The turn of the next batch: those that are asked for first are made first."""
        return next(self._turns)

    def next_pass(self) -> int:
        """The number of the next pass."""
        return next(self._passes)

    def submit(self, key: BatchKey, pending: Any) -> None:
        """Begin a batch, and add it to those of a pass."""
        with self._lock:
            pending.append(self._pool.submit(key))

    def wait_for(self, batches: Sequence[Batch], timeout_s: float) -> Batch | None:
        """Wait until one of several batches is there; None if that takes too long (0: nothing does).

        Raises:
            Exception: what the user's code has raised where workers start.
            WorkerError: workers have died, or cannot start.
        """
        deadline_s = time.monotonic() + timeout_s if timeout_s > 0 else math.inf
        try:
            with self._lock:
                return self._pool.wait_for(batches, deadline_s)
        except WorkerStartError as error:
            if error.__cause__ is None:
                raise
            cause = error.__cause__
        raise cause

    def take(self, batch: Batch) -> Any:
        """What has become of a batch that is there: a delivery, or an exception."""
        with self._lock:
            try:
                return self._pool.take(batch)
            except Exception as error:
                if error is not batch.outcome:
                    raise
                return error

    def note_form(self, is_odd: bool, messages: dict[int, Any]) -> None:
        """Take note of whether the samples of a batch were of the form that was expected."""
        stage = self._pool.stages[0]
        assert isinstance(stage, RequestStage)
        with self._lock:
            stage.note_form(is_odd, next((message for message in messages.values() if message.others), None))

    def describe_workers_on(self, batch: Batch) -> list[str]:
        """For each worker that is on a batch: which, what it is making, and its Python stack."""
        with self._lock:
            return self._pool.describe_workers_on(batch)

    def leave(self, pending: Iterable[Batch]) -> None:
        """A pass has ended, and will not ask for what is still pending. The workers end, unless they are kept."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if not self._pool.is_closed:
                for batch in pending:
                    self._pool.cancel(batch)
        if not self._is_kept:
            self.close()

    def close(self) -> None:
        """End the workers."""
        with self._lock:
            self._pool.close()


def _task_size(capacity: int, num_workers: int) -> int:
    """How many samples make a task: as many as are made between some seeds of the generators."""
    chunk = seed_every(capacity)
    num_chunks = -(-capacity // chunk)
    return chunk * -(-num_chunks // (TASKS_PER_WORKER * num_workers))


def seed_every(batch_size: int) -> int:
    """How many samples are made between two seeds of the global generators."""
    return -(-batch_size // SEEDS_PER_BATCH)
