"""What workers report of their tasks: held against what can be, noted on the batch, and what follows from a failure."""

from __future__ import annotations

from dali_like.engine.memory.protocol import Status
from dali_like.engine.memory.ring import Slot
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.cells import pid_in_cell
from dali_like.engine.worker.exceptions import add_note, read_message, unpack_exception

#: In the place of the worker that reported a failure: nobody did.
NO_WORKER = -1
#: In the place of the task that failed: the batch ended by StopIteration.
_STOPPED = -2


def is_plausible(batch: Batch, worker: int, status: int, value: int, num_workers: int) -> bool:
    """Whether that is what a worker may say of a task of a batch. What is not has been written by somebody else."""
    if (worker >= num_workers and worker != NO_WORKER) or value < 0:
        return False
    assert batch.slot is not None
    slot_layout = batch.slot.slot_layout
    return (
        (status == Status.DENSE and slot_layout.all_dense)
        or (status == Status.DESCRIBED and value <= slot_layout.region_bytes)
        or (status in (Status.STOPPED, Status.FAILED) and value < batch.key.stop)
        or (status == Status.TOO_LARGE and value > slot_layout.region_bytes)
        or (status == Status.SKIPPED and batch.cancelled)
        or (status == Status.NO_MEMORY and value > 0)
    )


def note_report(batch: Batch, task: int, worker: int, status: int, value: int) -> None:
    """Take note of what has become of a task."""
    if status == Status.DENSE:
        pass
    elif status == Status.DESCRIBED:
        batch.described |= 1 << task
        batch.region_bytes += value
        batch.largest_region_bytes = max(batch.largest_region_bytes, value)
    elif status == Status.STOPPED:
        batch.fail(value, _STOPPED, worker)
    elif status == Status.FAILED:
        batch.fail(value, task, worker)
    elif status == Status.TOO_LARGE:
        batch.grow(value, task)
    elif status == Status.NO_MEMORY:
        batch.lack(value, task)
    batch.open_tasks &= ~(1 << task)


def failure_of(batch: Batch, slot: Slot, assembler: Assembler, space: SharedSpace, unit: str) -> Exception:
    """What to raise for a batch that has failed: what its first sample that failed has raised.

    Args:
        unit: what the ids of workers are, for messages.
    """
    if batch.failed_task == _STOPPED:
        return StopIteration()
    if batch.fatal is not None and batch.failed_worker < 0:
        return batch.fatal
    start = slot.offset + slot.slot_layout.region_offset(batch.failed_task)
    error = unpack_exception(read_message(space, start, int(slot.marks[batch.failed_task])))
    worker = batch.failed_worker
    where = f", in worker {worker} ({unit} {pid_in_cell(space, worker)})"
    add_note(error, f"raised by {assembler.source.name} for {assembler.describe(batch.key, batch.failed_sample)}{where}")
    return error
