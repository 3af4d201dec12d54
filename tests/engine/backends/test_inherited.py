"""Primitives of `multiprocessing` in sources and datasets: the program and all its workers have the same ones."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from multiprocessing import heap, resource_tracker, shared_memory
from typing import Any

import numpy as np
import psutil
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.data import DataLoader
from dali_like.data.fingerprints import fingerprint_of
from dali_like.engine.backends.forkserver import MOST_FDS
from dali_like.errors import PicklingError
from dali_like.sources.travel.callback_pickler import dumps
from dali_like.types import SampleInfo
from tests.conftest import START_METHODS, wait_until
from tests.faults.processes import children_of, kill_and_wait, workers_of
from tests.internals import drop_workers, loader_workers_of, pool_of

MakePipeline = Callable[..., Pipeline]

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True, scope="module")
def _tracker() -> Iterator[None]:
    """The resource tracker of `multiprocessing`, which would go on after the first test that needs it."""
    tracker: Any = resource_tracker._resource_tracker
    # Private: an attribute of multiprocessing
    was_running = tracker._fd is not None
    tracker.ensure_running()
    yield
    if not was_running:
        # Private: a method of multiprocessing
        tracker._stop()


@pytest.fixture(autouse=True)
def _memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """`multiprocessing` keeps the memory of its counters, and the descriptors of that, for those to come."""
    monkeypatch.setattr(heap.BufferWrapper, "_heap", heap.Heap())


class Source:
    """Does something with primitives at each sample, and returns a number."""

    def __init__(self, act: Callable[..., Any], *primitives: Any) -> None:
        self.act = act
        self.primitives = primitives

    def __call__(self, info: SampleInfo) -> Any:
        return np.array(self.act(*self.primitives), np.int64)


class Dataset(Source):
    """The same, with eight samples."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return np.array(self.act(*self.primitives), np.int64)


def value_of(counter: Any) -> Any:
    return counter.value


def first_batch(pipe: Pipeline) -> list[Any]:
    values: list[Any] = pipe.run()[0].as_array().tolist()
    return values


def passes_over(loader: Any) -> list[Any]:
    return [np.asarray(batch).tolist() for batch in loader]


def renew(pipe: Pipeline, source: Source) -> None:
    pool = pool_of(pipe)
    pool.renew([pool.assemblers[0].source._replace(callback=source)])


# One and the same


def test_worker_that_is_running_sees_the_epoch(start_method: str) -> None:
    epoch = multiprocessing.get_context(start_method).Value("i", 0)
    loader: Any = DataLoader(
        Dataset(value_of, epoch), 4, num_workers=2, persistent_workers=True, multiprocessing_context=start_method
    )

    seen = []
    for number in range(3):
        epoch.value = number
        seen.append(passes_over(loader))
    pids = {worker.pid for worker in loader_workers_of(loader).handles}
    passes_over(loader)

    assert seen == [[[number] * 4] * 2 for number in range(3)]
    assert {worker.pid for worker in loader_workers_of(loader).handles} == pids
    drop_workers(loader)


def test_lock_excludes(start_method: str) -> None:
    context = multiprocessing.get_context(start_method)
    lock, counter = context.Lock(), context.RawValue("i", 0)

    def count(lock: Any, counter: Any) -> int:
        for _ in range(200):
            with lock:
                before = counter.value
                os.sched_yield()
                counter.value = before + 1
        return 0

    passes_over(DataLoader(Dataset(count, lock, counter), 4, num_workers=2, multiprocessing_context=start_method))

    assert counter.value == 8 * 200


def set_event(event: Any) -> int:
    event.set()
    return 0


def put(queue: Any) -> int:
    queue.put(7)
    return 0


def send(reader: Any, writer: Any) -> int:
    writer.send(7)
    return 0


def notify(condition: Any) -> int:
    with condition:
        condition.notify_all()
    return 0


#: For each primitive: how to make it, how a worker uses it, and how the main process sees that.
PRIMITIVES: dict[str, tuple[Callable[[Any], tuple[Any, ...]], Callable[..., Any], Callable[..., Any]]] = {
    "Array": (
        lambda context: (context.Array("d", 3),),
        lambda array: array.__setitem__(1, 7) or 0,
        lambda array: array[1] == 7,
    ),
    "RawArray": (
        lambda context: (context.RawArray("d", 100_000),),
        lambda array: array.__setitem__(99_999, 7) or 0,
        lambda array: array[99_999] == 7,
    ),
    "RLock": (
        lambda context: (context.RLock(),),
        lambda lock: lock.acquire(timeout=0) * 0,
        lambda lock: not lock.acquire(timeout=0),
    ),
    "Semaphore": (
        lambda context: (context.Semaphore(0),),
        lambda semaphore: semaphore.release() or 0,
        lambda semaphore: semaphore.acquire(timeout=300),
    ),
    "Event": (lambda context: (context.Event(),), set_event, lambda event: event.wait(60)),
    "Queue": (lambda context: (context.Queue(),), put, lambda queue: queue.get(timeout=300) == 7),
    "SimpleQueue": (lambda context: (context.SimpleQueue(),), put, lambda queue: queue.get() == 7),
    "Pipe": (lambda context: context.Pipe(), send, lambda reader, writer: reader.recv() == 7),
    "Pipe of one direction": (
        lambda context: context.Pipe(duplex=False),
        send,
        lambda reader, writer: reader.recv() == 7,
    ),
}


@pytest.mark.parametrize("name", PRIMITIVES)
@pytest.mark.parametrize("start_method", START_METHODS)  # they are pickled
def test_a_primitive_used_by_a_worker_shows_it_in_the_main_process(
    name: str, start_method: str, make_pipeline: MakePipeline
) -> None:
    make, act, has_acted = PRIMITIVES[name]
    primitives = make(multiprocessing.get_context(start_method))

    pipe = make_pipeline(Source(act, *primitives), start_method, workers=1, prefetch_queue_depth=1)
    pipe.run()

    assert has_acted(*primitives)
    pipe.close()


def test_condition(start_method: str) -> None:
    condition = multiprocessing.get_context(start_method).Condition()
    loader: Any = DataLoader(Dataset(notify, condition), 4, num_workers=1, multiprocessing_context=start_method)

    with condition:
        batches = iter(loader)  # the worker waits for the condition now, or will
        was_notified = condition.wait(60)
    list(batches)
    drop_workers(loader)

    assert was_notified


def test_primitive_in_two_sources_is_one() -> None:
    lock, counter = SPAWN.Lock(), SPAWN.RawValue("i", 3)

    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, py_start_method="spawn")
    def pipeline() -> Any:
        sources = [Source(lambda lock, counter: counter.value, lock, counter) for _ in range(2)]
        return tuple(fn.external_source(source=source, batch=False, parallel=True) for source in sources)

    with pipeline() as pipe:
        seen = [output.as_array().tolist() for output in pipe.run()]

    assert seen == [[3] * 4] * 2


def test_values_of_ctypes_that_are_not_shared_travel(make_pipeline: MakePipeline) -> None:
    shared, plain = SPAWN.RawValue("i", 1), ctypes.c_int(2)

    pipe = make_pipeline(Source(lambda shared, plain: 10 * shared.value + plain.value, shared, plain), "spawn")

    assert first_batch(pipe) == [12] * 4


def test_items_put_into_a_queue_before_the_worker_ends_arrive(start_method: str) -> None:
    queue = multiprocessing.get_context(start_method).Queue()

    def put_many(queue: Any) -> int:
        for _ in range(50):
            queue.put(7)
        return 0

    loader: Any = DataLoader(Dataset(put_many, queue), 4, num_workers=2, multiprocessing_context=start_method)
    for _ in range(2):
        passes_over(loader)

    assert [queue.get(timeout=300) for _ in range(2 * 8 * 50)] == [7] * (2 * 8 * 50)
    drop_workers(loader)
    queue.close()


# Workers that start later


def test_worker_that_takes_the_place_of_a_dead_one(start_method: str, make_pipeline: MakePipeline) -> None:
    counter = multiprocessing.get_context(start_method).Value("i", 1)
    pipe = make_pipeline(Source(value_of, counter), start_method)
    pipe.build()
    kill_and_wait(workers_of(pipe))

    counter.value = 2

    wait_until(lambda: first_batch(pipe) == [2] * 4, "the new value")


def test_sources_that_are_renewed(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Source(lambda: 0), start_method)
    pipe.build()
    others = [SPAWN.Pipe() for _ in range(3)]  # so that numbers differ
    counter, (reader, writer) = SPAWN.Value("i", 1), SPAWN.Pipe()

    def answer(counter: Any, writer: Any) -> Any:
        writer.send(counter.value)
        return counter.value

    renew(pipe, Source(answer, counter, writer))
    del others
    kill_and_wait(workers_of(pipe))
    counter.value = 2
    wait_until(lambda: first_batch(pipe) == [2] * 4, "the new value")

    assert reader.recv() == 2


@pytest.mark.parametrize("num_in_the_last_message", [1, 2])
def test_sources_that_are_renewed_with_many_descriptors(num_in_the_last_message: int, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Source(lambda: 0), "spawn", workers=1)
    pipe.build()
    pipes = [SPAWN.Pipe() for _ in range(MOST_FDS // 2 + 1)]

    def answer(readers: Any, writers: Any) -> int:
        for writer in writers:
            writer.send(1)
        return 7

    readers, writers = zip(*pipes, strict=True)  # with the bundle itself, one more than a message can have
    renew(pipe, Source(answer, readers[: MOST_FDS + num_in_the_last_message - 1 - len(writers)], writers))
    kill_and_wait(workers_of(pipe))
    wait_until(lambda: first_batch(pipe) == [7] * 4, "the new source")

    assert sum(reader.recv() for reader, _ in pipes) == len(pipes)


def test_template_keeps_no_descriptors_of_sources_that_are_gone(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Source(lambda: 0), start_method)
    pipe.build()
    pool_of(pipe).wait_for_pids()  # the forkserver says so when it has a descriptor of each
    (forkserver,) = (pid for pid in children_of(os.getpid()) if psutil.Process(pid).name() == "dali_like:start")
    pipes = [SPAWN.Pipe() for _ in range(2)]
    ends = {os.readlink(f"/proc/self/fd/{end.fileno()}") for both in pipes for end in both}

    def received() -> set[str]:
        found = set()
        for name in os.listdir(f"/proc/{forkserver}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.add(os.readlink(f"/proc/{forkserver}/fd/{name}"))
        return found & ends

    for both in pipes:
        renew(pipe, Source(send, *both))
    wait_until(received, "the descriptors of the last source")
    renew(pipe, Source(lambda: 0))

    wait_until(lambda: not received(), "the end of the descriptors")


def inheritable(*primitives: Any) -> list[int]:
    """The files, by inode, that a program run from here inherits unless they are closed."""
    files = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the one that the list was read from
            if fd > 2 and os.get_inheritable(fd):
                files.append(os.fstat(fd).st_ino)
    return files


def test_programs_that_callbacks_run_get_no_descriptors(start_method: str, make_pipeline: MakePipeline) -> None:
    """`os.system` and the like, unlike `subprocess`, close none."""
    pipe = make_pipeline(Source(inheritable, *SPAWN.Pipe()), start_method, workers=1)

    (batch,) = pipe.run()

    assert set(batch.at(0).tolist()) <= set(inheritable())


# Shared memory with a name


@pytest.fixture
def memory() -> Iterator[shared_memory.SharedMemory]:
    made = shared_memory.SharedMemory(create=True, size=8)
    yield made
    made.close()
    made.unlink()


def test_shared_memory_outlives_workers(memory: shared_memory.SharedMemory) -> None:
    loader: Any = DataLoader(Dataset(lambda memory: memory.buf[0], memory), 4, num_workers=2, multiprocessing_context=SPAWN)

    seen = []
    for value in (1, 2):
        memory.buf[0] = value  # type: ignore[index]  # it is open
        seen.append(passes_over(loader))
    drop_workers(loader)

    assert seen == [[[1] * 4] * 2, [[2] * 4] * 2]
    assert os.path.exists(f"/dev/shm/{memory.name}")


def test_workers_have_no_tracker_of_their_own(memory: shared_memory.SharedMemory, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Source(lambda _: len(psutil.Process().children()), memory), "spawn")

    assert first_batch(pipe) == [0] * 4


def test_shareable_list(make_pipeline: MakePipeline) -> None:
    values = shared_memory.ShareableList([1, 2])
    pipe = make_pipeline(Source(lambda values: values[1] + len(psutil.Process().children()), values), "spawn")

    seen = first_batch(pipe)
    values.shm.close()
    values.shm.unlink()

    assert seen == [2] * 4


# Errors


@pytest.mark.parametrize("kind", ["Value", "Lock"])
def test_primitives_of_fork_are_refused(kind: str, make_pipeline: MakePipeline) -> None:
    context = multiprocessing.get_context("fork")
    primitive = context.Value("i") if kind == "Value" else context.Lock()

    with pytest.raises(PicklingError, match=r"source\.primitives\[0\], .*fork context.*get_context\(\"spawn\"\)"):
        make_pipeline(Source(value_of, primitive), "spawn").build()


def test_pickler_of_the_user_is_given_none(make_pipeline: MakePipeline) -> None:
    """It would make copies of counters."""
    counter = SPAWN.Value("i")

    with pytest.raises(PicklingError, match="should only be shared between processes through inheritance"):
        make_pipeline(Source(value_of, counter), "spawn", py_callback_pickler=pickle).build()


def test_elsewhere_they_are_refused_as_before() -> None:
    counter = SPAWN.Value("i")

    dumps({"source": counter}, "the source")

    with pytest.raises(RuntimeError, match="through inheritance"):
        pickle.dumps(counter)


def test_after_an_error_they_are_refused_as_before() -> None:
    counter = SPAWN.Value("i")

    with pytest.raises(PicklingError):
        dumps({"source": [counter, (_ for _ in ())]}, "the source")
    with pytest.raises(RuntimeError, match="through inheritance"):
        pickle.dumps(counter)


# Whether a dataset has changed


def test_dataset_does_not_change_with_a_counter(start_method: str) -> None:
    counter = multiprocessing.get_context(start_method).Value("i", 1)
    source = Dataset(value_of, counter)

    before = fingerprint_of(source)
    counter.value = 2

    assert fingerprint_of(source) == before


@pytest.mark.parametrize("kind", ["Value", "Lock", "Pipe", "Array"])
def test_dataset_changes_with_another_primitive(kind: str, start_method: str) -> None:
    context = multiprocessing.get_context(start_method)
    make: dict[str, Callable[[], Any]] = {
        "Value": lambda: context.Value("i"),
        "Lock": context.Lock,
        "Pipe": context.Pipe,
        "Array": lambda: context.RawArray("d", 1 << 16),
    }
    source = Dataset(value_of, make[kind]())
    kept = source.primitives

    before = fingerprint_of(source)
    source.primitives = (make[kind](),)

    assert fingerprint_of(source) != before
    assert kept


def test_loader_has_the_other_primitive_after_a_change() -> None:
    source = Dataset(lambda pipe: pipe[1].send(1) or 0, SPAWN.Pipe())
    loader: Any = DataLoader(source, 4, num_workers=1, multiprocessing_context="spawn", persistent_workers=True)
    passes_over(loader)
    other = SPAWN.Pipe()

    source.primitives = (other,)
    passes_over(loader)
    drop_workers(loader)

    assert other[0].poll(60)


# Primitives that the program has used before


def asks_for_itself(answers: Any) -> bool:
    own = os.getpid()
    answers[own] = own
    return all(answers[own] == own for _ in range(100))


def test_proxy_of_a_manager_has_a_connection_of_its_own_in_each_forked_worker() -> None:
    with multiprocessing.get_context("fork").Manager() as manager:
        answers = manager.dict()
        answers["before"] = 1
        loader: Any = DataLoader(
            Dataset(asks_for_itself, answers), 4, num_workers=2, multiprocessing_context="fork", timeout=300
        )

        assert passes_over(loader) == [[1] * 4, [1] * 4]


def test_a_queue_already_used_by_the_program_transports_items_of_a_forked_worker() -> None:
    queue = multiprocessing.get_context("fork").Queue()
    queue.put("before")
    assert queue.get() == "before"

    passes_over(DataLoader(Dataset(put, queue), 4, num_workers=2, multiprocessing_context="fork"))

    assert [queue.get(timeout=300) for _ in range(8)] == [1] * 8
    queue.close()
    queue.join_thread()


def put(queue: Any) -> int:
    queue.put(1)
    return 1


def family() -> list[Any]:
    """Facts about the process, by which programs tell workers from each other and from the main process."""
    own, parent = multiprocessing.current_process(), multiprocessing.parent_process()
    assert parent is not None
    assert parent.is_alive()
    assert (own.name, own.ident) == (f"dali_like:{own._identity[0] - 1}", os.getpid())  # type: ignore[attr-defined]
    return [parent.pid, own._identity[0], len(multiprocessing.active_children())]  # type: ignore[attr-defined]


def test_worker_is_another_process_to_multiprocessing(start_method: str) -> None:
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    loader: Any = DataLoader(Dataset(family), 4, num_workers=2, multiprocessing_context=start_method)
    facts = [fact for batch in passes_over(loader) for fact in batch]
    child.kill()
    child.join()

    assert {(parent, children) for parent, _, children in facts} == {(os.getpid(), 0)}
    assert {number for _, number, _ in facts} <= {1, 2}
