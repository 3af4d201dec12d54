"""Inner objects of pipelines, loaders and pools, for tests that look at them or interfere with them.

Tests reach private attributes of the package through this module, so that a change of them changes one place.
`tests/project/test_privates.py` counts the other uses.
"""

from __future__ import annotations

from typing import Any

from dali_like import Pipeline
from dali_like.engine.memory import space
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.dispatch import Dispatcher
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.recovery import Recovery
from dali_like.pipeline.runtime import Runtime


def runtime_of(pipe: Pipeline) -> Runtime:
    """The runtime of a pipeline, which is built if it is not."""
    if pipe._runtime is None:
        pipe.build()
    runtime = pipe._runtime
    assert runtime is not None
    return runtime


def pool_of(pipe: Pipeline) -> WorkerPool:
    """The pool of workers of a pipeline."""
    pool = runtime_of(pipe).process_pool
    assert pool is not None
    return pool


def loader_workers_of(owner: Any) -> Any:
    """The workers of a loader (the kept ones), or of an iterator over one: a `LoaderWorkers`."""
    return owner._dali_like_factory.workers if hasattr(owner, "_dali_like_factory") else owner._loader_workers


def requests_of(iterator: Any) -> list[bytes]:
    """The requests of an iterator over a loader that have not been delivered."""
    return [batch.key.request for batch in iterator._pending]


def drop_workers(loader: Any) -> None:
    """End the kept workers of a loader."""
    loader._dali_like_factory.drop_workers()


def dispatcher_of(pool: WorkerPool) -> Dispatcher:
    """The dispatcher of a pool."""
    return pool._dispatcher


def recovery_of(pool: WorkerPool) -> Recovery:
    """The recovery of a pool."""
    return pool._recovery


def backend_of(pool: WorkerPool) -> Any:
    """The workers of a pool: a `Workers` of one of the backends."""
    return pool._workers


def space_of(owner: Any) -> SharedSpace:
    """The shared space of a pipeline, pool or ring."""
    found: SharedSpace = runtime_of(owner).space if isinstance(owner, Pipeline) else owner._space
    return found


def stage_of(dataset: Any) -> Any:
    """The last stage of a composed dataset."""
    return dataset._stage


def free_of(memory: Any) -> Any:
    """The free slots of a ring, or the free extents of a shared file."""
    return memory._free


def returned_of(ring: Any) -> Any:
    """The slots that have come back to a ring, with the fences that they wait for."""
    return ring._returned


def pending_of(owner: Any) -> Any:
    """The pending copies of a copier, or the pending batches of an iterator over a loader."""
    return owner._pending


def as_gpu(data: Any) -> Any:
    """A tensor or batch on the CPU, copied to the GPU."""
    return data._as_gpu()


def gpu_data_of(value: Any) -> Any:
    """The data on the GPU behind a value of the dynamic mode."""
    return value._remote


def packer_of(server: Any) -> Any:
    """The packer of a server of batches."""
    return server._lender._packer


def untaken_of(server: Any) -> Any:
    """The batches of a server that not all consumers have taken."""
    return server._lender._open


def consumers_of(server: Any) -> Any:
    """The consumers of a server, by their descriptors."""
    return server._lender._peers


def part_of(crop: Any, height: int, width: int) -> tuple[int, int, int, int]:
    """The part of an image of this size that a `RandomResizedCrop` chooses: top, left, height and width."""
    part: tuple[int, int, int, int] = crop._part(height, width)
    return part


def num_parts_of(pickled: Any) -> int:
    """The number of parts of a value pickled out of band."""
    return len(pickled._parts)


def monitor_of(pipe: Pipeline) -> Any:
    """The monitor of a pipeline."""
    return pipe._monitor


def cells_of(pool: WorkerPool) -> Any:
    """The cells of the workers of a pool."""
    return pool._recovery._cells


def restart_policy_of(pool: WorkerPool) -> Any:
    """The policy that decides whether a worker is replaced."""
    return pool._recovery._restart_policy


def unfinished_task_of(pool: WorkerPool, worker: int) -> Any:
    """The task in the cell of a worker; None without."""
    return pool._recovery._unfinished_of(worker)


def worker_states_of(pool: WorkerPool) -> Any:
    """The state of each worker."""
    return pool._recovery._states


def hang_errors_of(pool: WorkerPool) -> Any:
    """The errors of the workers that hang."""
    return pool._recovery._hang_errors


def suspects_of(pool: WorkerPool) -> Any:
    """The open tasks that may have killed a worker."""
    return pool._recovery._suspects


def in_flight_of(pool: WorkerPool) -> dict[int, Any]:
    """The batches in flight, by their tickets."""
    return pool._dispatcher._in_flight


def note_report(pool: WorkerPool, *report: Any) -> None:
    """Handle a report as if a worker had written it."""
    pool._dispatcher._note(*report)


def set_decided(chooser: Any, settings: Any) -> None:
    """Make a chooser of settings believe that it has decided."""
    chooser._decided = settings


def schema_of_assembler(assembler: Any) -> Any:
    """The schema of samples that an assembler of requests has learned."""
    return assembler._schema.expected


def kept_files() -> list[Any]:
    """The files of shared memory that stay open in this process."""
    return space._kept_files


def lock_of(thread: Any) -> Any:
    """The lock of a worker thread."""
    return thread._lock


def set_lock(thread: Any, lock: Any) -> None:
    """Replace the lock of a worker thread."""
    thread._lock = lock


def shared_of(workers: Any) -> Any:
    """The state that all threads of a backend of threads share."""
    return workers._shared


def short_calls_of(driver: Any) -> Any:
    """The functions of the CUDA driver that never wait."""
    return driver._brief


def kept_chunks_of(reader: Any) -> Any:
    """The chunks that a reader of remote files keeps."""
    return reader._chunks


def block_of(shared: Any) -> Any:
    """The memory of a shared object."""
    return shared._block


def progress_of(iterator: Any) -> Any:
    """The progress of an iterator over pipelines."""
    return iterator._progress
