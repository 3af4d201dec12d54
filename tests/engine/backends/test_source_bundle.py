"""What spawned workers get of their sources: large arrays once for all of them, modules that are imported already; and how
workers that start later get other sources."""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline
from dali_like.engine.backends import source_bundle as bundle
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.worker.source import PickledSource, Source
from dali_like.errors import ClosedError, OutOfMemoryError, PicklingError, WorkerStartError
from dali_like.sources.travel import REDUCERS, register
from dali_like.sources.travel.callback_pickler import dumps
from dali_like.types import SampleInfo
from tests.conftest import wait_until
from tests.faults.processes import forkserver_of, kill_and_wait, reserve_of, wait_for_reserve
from tests.faults.processes import workers_of as running_workers_of
from tests.internals import pool_of

MakePipeline = Callable[..., Pipeline]

LARGE = 1 << 20


class Holding:
    """A source that holds an array."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def read_all(self) -> None:
        self.array.sum()

    def __call__(self, info: SampleInfo) -> Any:
        return self.array[:4]


def pickled(value: Any) -> PickledSource:
    return dumps({"source": value}, "the source")


def workers_of(pipe: Pipeline) -> list[int]:
    pipe.build()
    return running_workers_of(pipe)


def first_batch(pipe: Pipeline) -> list[Any]:
    values: list[Any] = pipe.run()[0].as_array().tolist()
    return values


def memory_of(pids: list[int]) -> int:
    """Return the memory of these processes together. Shared memory counts once."""
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids)


def bundles_held() -> list[str]:
    targets = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return [target for target in targets if "dali_like_sources" in target]


# Copies of the workers


@pytest.mark.parametrize(
    ("make", "is_apart"),
    [
        (lambda: np.ones(LARGE), True),
        (lambda: np.ones((512, 512)).T, True),
        (lambda: np.ones((512, 512))[:, ::2], False),
        (lambda: np.ones(1 << 13), True),
        (lambda: np.ones((1 << 13) - 1), False),
        (lambda: np.full(LARGE, None), False),
        (lambda: np.ones(LARGE, "i4,f4"), True),
    ],
    ids=["large", "column by column", "with gaps", "64 KiB", "less", "objects", "records"],
)
def test_large_arrays_stay_apart(make: Callable[[], NDArray[Any]], is_apart: bool) -> None:
    made = pickled(make())

    assert len(made.buffers) == is_apart
    assert (len(made.data) < 1000) == is_apart


def test_array_of_a_mapped_file_stays_apart(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "file", np.uint8, "w+", shape=(LARGE,))
    array[7] = 7

    made = pickled(array)
    (travelled,) = pickle.loads(made.data, buffers=made.buffers)

    assert len(made.buffers) == 1
    assert type(travelled) is np.memmap
    assert travelled[7] == 7


def test_array_that_is_there_twice_travels_once() -> None:
    array = np.ones(LARGE)

    assert len(pickled([array, {"again": array}]).buffers) == 1


def test_an_unchanged_source_is_pickled_to_the_same_data() -> None:
    source = Holding(np.ones(LARGE))

    before = pickled(source).data
    unchanged = pickled(source).data
    source.more = [1]  # type: ignore[attr-defined]

    assert unchanged == before
    assert pickled(source).data != before


def test_other_classes_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapping:
        pass

    class Derived(Wrapping):
        pass

    monkeypatch.setitem(REDUCERS, Wrapping, None)  # so that it is removed after the test

    register(Wrapping, lambda value: (list, ("registered",)))

    ((registered, derived),) = pickle.loads(pickled([Wrapping(), Derived()]).data)
    assert registered == list("registered")
    assert type(derived).__name__ == "Derived"


# Sources of workers


def test_arrays_are_there_once_for_all_workers(make_pipeline: MakePipeline) -> None:
    source = Holding(np.ones(16 << 20))  # 128 MiB, beside which interpreters are small
    pipe = make_pipeline(source, "spawn", workers=4, source_options={"worker_setup": source.read_all})

    workers = workers_of(pipe)

    assert memory_of([forkserver_of(pipe), *workers]) < 2 * source.array.nbytes


@pytest.mark.parametrize("shape", [(LARGE,), (4, 4)], ids=["large", "small"])
def test_arrays_are_as_they_were(shape: tuple[int, ...], make_pipeline: MakePipeline) -> None:
    arrays = [np.random.default_rng(i).random(shape) for i in range(3)]
    arrays[1] = np.asfortranarray(arrays[1])
    sums = [array.sum() for array in arrays]

    pipe = make_pipeline(lambda info: np.array([array.sum() for array in arrays]), "spawn")

    assert first_batch(pipe) == [sums] * 4


def test_writes_to_an_array_stay_in_their_worker(make_pipeline: MakePipeline) -> None:
    array = np.zeros(LARGE)

    def count(info: SampleInfo) -> Any:
        array[0] += 1
        return np.array([os.getpid(), array[0]])

    pipe = make_pipeline(count, "spawn", batch_size=64)
    workers_of(pipe)

    counted = np.concatenate([pipe.run()[0].as_array() for _ in range(3)])

    for pid in np.unique(counted[:, 0]):
        mine = counted[counted[:, 0] == pid, 1]
        assert sorted(mine) == list(range(1, len(mine) + 1))
    assert array[0] == 0


def test_a_replacement_does_not_see_writes_of_the_dead_worker(make_pipeline: MakePipeline) -> None:
    array = np.zeros(LARGE)

    def write() -> None:
        array[0] += 1

    pipe = make_pipeline(lambda info: array[:1], "spawn", workers=1, source_options={"worker_setup": write})
    before = first_batch(pipe)
    kill_and_wait(workers_of(pipe))
    for _ in range(3):  # batches in flight come first
        after = first_batch(pipe)

    assert before == after == [[1.0]] * 4


@pytest.mark.parametrize("size", [LARGE, 4], ids=["large", "small"])
def test_arrays_that_cannot_be_written_stay_so(size: int, make_pipeline: MakePipeline) -> None:
    writable, read_only = np.zeros(size), np.zeros(size)
    read_only.flags.writeable = False

    pipe = make_pipeline(lambda info: np.array([writable.flags.writeable, read_only.flags.writeable]), "spawn")

    assert first_batch(pipe) == [[True, False]] * 4


def test_sources_of_one_pipeline_have_arrays_of_their_own() -> None:
    first, second = Holding(np.arange(LARGE)), Holding(np.arange(LARGE) + 7)
    source = Source("the source", first)

    sources = [source, source._replace(name="the other", callback=second, worker_setup=second.read_all)]
    (packed,) = bundle.pack(sources, bundle.pickle_sources(sources, dumps))
    arrived = bundle.SourceBundle(Descriptor(os.dup(packed.fileno()))).unpack()

    assert [(each.name, each.callback(None).tolist()) for each in arrived] == [
        ("the source", [0, 1, 2, 3]),
        ("the other", [7, 8, 9, 10]),
    ]
    setup: Any = arrived[1].worker_setup
    assert setup.__self__ is arrived[1].callback


def test_a_shipment_cannot_be_changed() -> None:
    sources = [Source("the source", Holding(np.arange(LARGE)))]

    (packed,) = bundle.pack(sources, bundle.pickle_sources(sources, dumps))

    for change in (
        lambda: os.pwrite(packed.fileno(), b"x", 0),
        lambda: os.ftruncate(packed.fileno(), 0),
        lambda: mmap.mmap(packed.fileno(), 0, mmap.MAP_SHARED),
    ):
        with pytest.raises(PermissionError):
            change()


def test_main_process_keeps_a_shipment_for_another_forkserver_until_it_closes(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Holding(np.ones(LARGE)), "spawn")

    pipe.run()

    assert len(bundles_held()) == 1
    pipe.close()
    assert bundles_held() == []


def test_arrays_go_with_a_pickler_of_the_users_own(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Holding(np.arange(LARGE)), "spawn", py_callback_pickler=pickle)

    assert first_batch(pipe) == [[0, 1, 2, 3]] * 4


# When there is no memory


def test_a_bundle_larger_than_the_available_memory_is_refused(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "available_bytes", lambda: 6 << 20)
    pipe = make_pipeline(Holding(np.ones(LARGE)), "spawn")

    with pytest.raises(OutOfMemoryError, match=r"need 8\.0 MiB .* 6\.0 MiB are available: 2\.0 MiB are missing"):
        pipe.build()


def test_arrays_larger_than_the_machine_are_refused_at_once(tmp_path: Path, make_pipeline: MakePipeline) -> None:
    """The kernel would not refuse: it gives page after page, and then kills processes."""
    fd = os.memfd_create("sparse")
    size = 2 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    os.ftruncate(fd, size)
    sparse = np.frombuffer(mmap.mmap(fd, size), np.uint8)
    os.close(fd)
    pipe = make_pipeline(Holding(sparse), "spawn")

    with pytest.raises(OutOfMemoryError, match=r"are missing.*fork"):
        pipe.build()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM])
def test_memory_that_the_system_refuses(number: int, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> int:
        raise OSError(number, os.strerror(number))

    pipe = make_pipeline(Holding(np.ones(LARGE)), "spawn")
    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", refuse)
        with pytest.raises(OutOfMemoryError, match=r"need 8\.0 MiB .* the system refuses"):
            pipe.build()

    assert bundles_held() == []


def test_shipment_that_is_written_in_pieces_is_whole(make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: write(fd, data[: len(data) // 2 + 1], offset))
    monkeypatch.setattr(bundle, "_WRITE_BYTES", 100_001)
    array = np.arange(LARGE)

    pipe = make_pipeline(lambda info: np.array_equal(array, np.arange(LARGE)), "spawn")

    assert first_batch(pipe) == [True] * 4


# Modules


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module and imports it. The module notes each process that imports it; see `importers`."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def make(name: str, text: str) -> ModuleType:
        start = f"import os\nwith open({str(tmp_path / name)!r}, 'a') as file: print(os.getpid(), file=file)\n"
        (tmp_path / f"{name}.py").write_text(start + textwrap.dedent(text))
        made.append(name)
        return __import__(name)

    yield make
    for name in made:
        del sys.modules[name]


def importers(module: ModuleType) -> list[int]:
    assert module.__file__ is not None
    return [int(pid) for pid in Path(module.__file__).with_suffix("").read_text().split()]


TEXT = """
    import numpy
    print("imported")
    def function(info): return numpy.int64(info.idx_in_epoch)
    class Class:
        def __call__(self, info): return function(info)
"""


def use_of_module(module: Any) -> Any:
    def source(info: Any) -> Any:
        return module.function(info)

    return source


def use_of_class(module: Any) -> Any:
    kind = module.Class

    def source(info: Any) -> Any:
        return kind()(info)

    return source


USES: dict[str, Callable[[Any], Any]] = {
    "function": lambda module: module.function,
    "object": lambda module: module.Class(),
    "method": lambda module: module.Class().__call__,
    "module": use_of_module,
    "class": use_of_class,
}


@pytest.mark.parametrize("use", USES)
def test_module_is_imported_once_for_all_workers(
    use: str, make_module: Any, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    module = make_module("module_for_all", TEXT)
    capfd.readouterr()
    pipe = make_pipeline(USES[use](module), "spawn", workers=3)

    batch = first_batch(pipe)
    kill_and_wait(workers_of(pipe)[:1])  # its replacement need not import it, either
    for _ in range(3):
        pipe.run()
    workers_of(pipe)

    assert batch == [0, 1, 2, 3]
    assert importers(module) == [os.getpid(), forkserver_of(pipe)]
    assert capfd.readouterr() == ("imported\n", "")


def test_names_of_modules_come_with_the_pickle() -> None:
    made = pickled([pytest.fixture, lambda: psutil, Holding, np.ones(3)])

    assert {"_pytest.fixtures", "psutil", __name__} <= set(made.modules)


def test_import_that_fails_is_the_workers_error(
    make_module: Any, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    module = make_module(
        "module_that_fails_elsewhere",
        f"""
        import sys
        if os.getpid() != {os.getpid()}:
            print("about to fail")
            print("failing", file=sys.stderr)
            raise ZeroDivisionError("not here")
        def function(info): return info
        """,
    )
    pipe = make_pipeline(module.function, "spawn", workers=1)

    with pytest.raises(WorkerStartError, match="not here") as info:
        pipe.run()

    assert isinstance(info.value.__cause__, ZeroDivisionError)
    assert capfd.readouterr() == ("[worker 0] about to fail\n", "[worker 0] failing\n")


def test_import_that_ends_the_process_ends_the_worker(make_module: Any, make_pipeline: MakePipeline) -> None:
    module = make_module(
        "module_that_exits",
        f"""
        if os.getpid() != {os.getpid()}: raise SystemExit(3)
        def function(info): return info
        """,
    )
    pipe = make_pipeline(module.function, "spawn", workers=1, py_worker_restarts=0)

    with pytest.raises(RuntimeError, match="exit code 3"):
        pipe.run()


def test_threads_of_a_module_do_not_matter(make_module: Any, make_pipeline: MakePipeline) -> None:
    module = make_module(
        "module_with_thread",
        f"""
        import threading, numpy
        forever = threading.Event()
        if os.getpid() != {os.getpid()}: threading.Thread(target=forever.wait, daemon=True).start()
        def function(info): return numpy.int64(info.idx_in_epoch)
        """,
    )

    pipe = make_pipeline(module.function, "spawn")

    assert first_batch(pipe) == [0, 1, 2, 3]


# Other sources for workers that start later


def renew(pipe: Pipeline, callback: Callable[[SampleInfo], Any]) -> None:
    pool = pool_of(pipe)
    (stage,) = pool.assemblers
    pool.renew([stage.source._replace(callback=callback)])


def run_until(pipe: Pipeline, batch: list[Any]) -> None:
    wait_until(lambda: first_batch(pipe) == batch, f"the batch {batch}")


def constant(value: float, size: int = 1) -> Callable[[SampleInfo], Any]:
    array = np.full(size, value)
    return lambda info: array[-1]


@pytest.mark.parametrize("size", [1, LARGE], ids=["small", "large"])
def test_worker_that_takes_the_place_of_a_dead_one_gets_the_new_source(
    size: int, start_method: str, make_pipeline: MakePipeline
) -> None:
    pipe = make_pipeline(constant(1, size), start_method)
    workers = workers_of(pipe)

    renew(pipe, constant(2, size))
    running = [first_batch(pipe) for _ in range(4)]
    kill_and_wait(workers)

    assert running == [[1.0] * 4] * 4
    run_until(pipe, [2.0] * 4)
    assert len(bundles_held()) == (start_method == "spawn")  # the newest, for another forkserver


def test_sources_can_be_renewed_again(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(constant(1), start_method, workers=1)

    for value in (2, 3):
        renew(pipe, constant(value))
    kill_and_wait(workers_of(pipe))
    run_until(pipe, [3.0] * 4)
    renew(pipe, constant(4, LARGE))
    kill_and_wait(workers_of(pipe))

    run_until(pipe, [4.0] * 4)


def test_memory_of_replaced_sources_is_released(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(constant(1), start_method, workers=1)
    forkserver = forkserver_of(pipe)

    for value in (2, 3, 4):
        renew(pipe, constant(value, LARGE))
    kill_and_wait(workers_of(pipe))
    run_until(pipe, [4.0] * 4)

    held = [os.readlink(f"/proc/{forkserver}/fd/{fd}") for fd in os.listdir(f"/proc/{forkserver}/fd")]
    assert sum("dali_like_sources" in target for target in held) == 1


def test_template_imports_the_modules_of_new_sources(
    start_method: str, make_module: Any, make_pipeline: MakePipeline
) -> None:
    pipe = make_pipeline(constant(1), start_method)
    workers = workers_of(pipe)
    wait_for_reserve(pipe)
    module = make_module("module_for_later", "def two(): return 2.0")

    renew(pipe, lambda info: np.float64(module.two()))
    kill_and_wait(workers)

    run_until(pipe, [2.0] * 4)
    reserve = [reserve_of(pipe)] if start_method == "fork" else []
    assert sorted(importers(module)) == sorted([os.getpid(), forkserver_of(pipe), *reserve])


def test_source_that_cannot_be_pickled_leaves_the_old_one(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(constant(1), start_method, workers=1)
    workers = workers_of(pipe)

    with pytest.raises(PicklingError, match="an open file"), open(os.devnull) as file:
        renew(pipe, lambda info: np.float64(file.fileno()))
    kill_and_wait(workers)

    run_until(pipe, [1.0] * 4)
    wait_until(lambda: workers_of(pipe) != workers, "another worker")


def test_sources_that_have_been_pickled_are_not_pickled_again(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(constant(1), start_method, workers=1)
    workers = workers_of(pipe)
    pool = pool_of(pipe)
    parts: dict[str, Any] = {"source": constant(2), "on_error": "raise", "worker_setup": None, "worker_teardown": None}

    pool.renew([pool.assemblers[0].source], [dumps(parts, "the source")])
    kill_and_wait(workers)

    run_until(pipe, [2.0] * 4)


def test_pool_that_is_closed_gets_no_new_sources(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(constant(1), start_method)
    pool = pool_of(pipe)
    pipe.close()

    with pytest.raises(ClosedError):
        pool.renew([pool.assemblers[0].source])


def test_forkserver_in_the_place_of_a_dead_one_has_the_new_sources(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(constant(1), start_method)
    workers_of(pipe)
    wait_for_reserve(pipe)

    for value in (2, 3):
        renew(pipe, constant(value))
    kill_and_wait_for_zombie(forkserver_of(pipe))

    run_until(pipe, [3.0] * 4)


def test_forkserver_that_has_just_died_gets_new_sources(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(constant(1), start_method)
    workers_of(pipe)
    wait_for_reserve(pipe)
    kill_and_wait_for_zombie(forkserver_of(pipe))

    renew(pipe, constant(2))

    run_until(pipe, [2.0] * 4)


def kill_and_wait_for_zombie(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "the end of the forkserver")
