"""What workers owe who have ended, and what becomes of it: the seam between their recovery and the dispatch of tasks."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dali_like.engine.memory.ring import Lease, Slot
from dali_like.engine.pool.batch import Batch
from dali_like.errors import DaliLikeError, WorkerError


class UnfinishedTask(NamedTuple):
    """A task that a worker has taken and not reported, and the sample of the batch that it is on."""

    batch: Batch
    task: int
    sample: int

    @property
    def is_open(self) -> bool:
        """Whether it has not been reported since."""
        return self.batch.slot is not None and bool(self.batch.open_tasks >> self.task & 1)


class Work(Protocol):
    """What is to be done, as far as recovery is concerned; that is a `dali_like.engine.pool.dispatch.Dispatcher`."""

    def has_waiting_tasks(self) -> bool:
        """Whether there are tasks that no worker has taken yet."""

    @property
    def num_open_tasks(self) -> int:
        """How many tasks have been posted and not been reported."""

    def read_reports(self) -> None:
        """Take note of what workers have completed."""

    def batch_of(self, ticket: int, task: int) -> Batch | None:
        """The batch of a ticket, if that task of it has been posted and not been reported."""

    def post_again(self, unfinished: UnfinishedTask) -> None:
        """Post a task that nobody works on, at once."""

    def post_in_turn(self, unfinished: UnfinishedTask) -> None:
        """Post a task that nobody works on; one that must be done in order, after those that come before it."""

    def take_back(self, worker: int) -> None:
        """Post the tasks in turn that only this worker could have done, and has not taken."""

    def give_up(self, unfinished: UnfinishedTask, error: WorkerError) -> None:
        """Let a batch fail by a sample that cannot be made."""

    def hold(self, unfinished: UnfinishedTask) -> Lease[Slot]:
        """Keep the slot of a task from being used again."""

    def can_repeat(self, unfinished: UnfinishedTask) -> bool:
        """Whether another worker could make what this one was making, while this one goes on."""

    def fail(self, error: WorkerError, first_lost: Batch | None) -> None:
        """Give up: `first_lost` and all batches after it, or all that have not been begun, will not be completed."""

    def fail_at_once(self, error: DaliLikeError) -> None:
        """Give up: no batch that is not complete now will be."""

    @property
    def has_failed(self) -> bool:
        """Whether no more batches will be begun."""

    def retire(self, num_workers: int) -> None:
        """Tell idle workers to end."""

    def clear_tasks(self) -> None:
        """Take the tasks back that no worker has taken; all are of batches that nobody wants."""

    def depends_on(self, worker: int) -> bool:
        """Whether there is work that only this worker can do."""

    def describe(self, unfinished: UnfinishedTask) -> str:
        """Which sample it is about."""
