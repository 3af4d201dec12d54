"""The forkserver, its reserve, or both are killed: the batches stay the same, or one error tells why they do not come."""

from __future__ import annotations

import ctypes
import errno
import inspect
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline
from dali_like.data import DataLoader, IterableDataset
from dali_like.engine.backends import forkserver as forkserver_module
from dali_like.engine.backends import processes as processes_module
from dali_like.engine.backends.forkserver_link import reap_forkservers
from dali_like.engine.backends.processes import ProcessGroup
from dali_like.errors import WorkerDiedError
from dali_like.types import SampleInfo
from tests.conftest import is_running, wait_until
from tests.faults.played import PlayedPool
from tests.faults.processes import (
    children_of,
    forkserver_of,
    kill_and_wait,
    link_of,
    reserve_of,
    wait_for_processes,
    wait_for_reserve,
    workers_of,
)
from tests.faults.streams import Disturbed, Noise, batches_of, happens
from tests.faults.test_played_workers import SIZE, batch_of, of, played, ragged, rows, samples_of, walks
from tests.internals import backend_of, dispatcher_of, pool_of, recovery_of

BATCH_SIZE = 4
LENGTH = Noise.length // BATCH_SIZE

MakePipeline = Callable[..., Pipeline]


def kill_forkserver() -> None:
    """Kill the parent, which is the forkserver, and wait for the own end."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def kill_forkserver_of(pipe: Pipeline) -> list[int]:
    """Kill the forkserver, and wait until its workers are gone, too. Return the processes that have ended."""
    pids = [pid for pid in wait_for_processes(pipe) if pid != reserve_of(pipe)]
    os.kill(pids[0], signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, pids)), "the end of the forkserver and its workers")
    return pids


def run_to(error: type[Exception], pipe: Pipeline) -> pytest.ExceptionInfo[Any]:
    def run() -> None:
        while True:
            pipe.run()

    with pytest.raises(error) as caught:
        run()
    return caught


def refuse_first_fork(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the forkserver fail to fork its reserve, which is its first fork."""
    main, fork = os.getpid(), os.fork

    def refuse_first() -> int:
        if os.getpid() != main and happens(folder / "refused"):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", refuse_first)


@pytest.fixture(autouse=True)
def _reserve_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let forkservers fork their reserve at the start: most tests need it."""
    monkeypatch.setattr(processes_module, "FIRST_RESERVE_S", 0.0)


@pytest.fixture
def expected(make_pipeline: MakePipeline) -> Callable[..., list[str]]:
    """The batches of a pipeline without workers."""
    return lambda source, count, **options: batches_of(make_pipeline(source, "serial", **options), count)


class TestAForkserverThatDies:
    def test_during_run_leaves_no_trace_in_the_batches(
        self, make_pipeline: MakePipeline, expected: Any, start_method: str, tmp_path: Path
    ) -> None:
        deadly = {(0, 0), (0, 21), (1, 47)} if start_method == "fork" else {(0, 21)}
        pipe = make_pipeline(Disturbed(Noise(ragged=True), deadly, kill_forkserver, tmp_path), start_method)

        assert batches_of(pipe, 2 * (LENGTH + 1)) == expected(Noise(ragged=True), 2 * (LENGTH + 1))
        assert pipe.statistics().worker_restarts >= len(deadly)

    def test_between_runs_and_epochs_leaves_no_trace(
        self, make_pipeline: MakePipeline, expected: Any, start_method: str
    ) -> None:
        pipe = make_pipeline(Noise(), start_method, py_worker_restarts=None)
        seen = []

        for count in (2, LENGTH - 2, 1, 3):  # the end of the epoch is the third
            seen += batches_of(pipe, count)
            kill_forkserver_of(pipe)

        assert seen + batches_of(pipe, 5) == expected(Noise(), LENGTH + 9)

    def test_while_workers_start_leaves_no_trace(
        self, make_pipeline: MakePipeline, expected: Any, start_method: str
    ) -> None:
        pipe = make_pipeline(Noise(), start_method, workers=4)
        pipe.start_py_workers()
        wait_for_reserve(pipe)

        os.kill(forkserver_of(pipe), signal.SIGKILL)

        assert batches_of(pipe, LENGTH + 1) == expected(Noise(), LENGTH + 1)

    def test_right_after_the_start_has_a_reserve(self, make_pipeline: MakePipeline, expected: Any) -> None:
        pipe = make_pipeline(Noise(), "fork", workers=4)
        pipe.start_py_workers()

        os.kill(forkserver_of(pipe), signal.SIGKILL)

        assert batches_of(pipe, LENGTH + 1) == expected(Noise(), LENGTH + 1)

    @pytest.mark.parametrize("deaths", [1, 3])
    def test_before_it_has_a_reserve_is_forked_again(
        self, make_pipeline: MakePipeline, expected: Any, deaths: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes_module, "FIRST_RESERVE_S", 1000.0)
        serve = forkserver_module.Forkserver.serve

        def die_first(forkserver: Any) -> Any:
            if any(happens(tmp_path / str(death)) for death in range(deaths)):
                os.kill(os.getpid(), signal.SIGKILL)
            return serve(forkserver)

        monkeypatch.setattr(forkserver_module.Forkserver, "serve", die_first)
        pipe = make_pipeline(Noise(), "fork")

        assert batches_of(pipe, LENGTH + 1) == expected(Noise(), LENGTH + 1)
        assert len(list(tmp_path.iterdir())) == deaths

    def test_between_batches_before_it_has_a_reserve_is_forked_again(
        self, make_pipeline: MakePipeline, expected: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes_module, "FIRST_RESERVE_S", 1000.0)
        pipe = make_pipeline(Noise(), "fork")
        seen = batches_of(pipe, 2)

        os.kill(forkserver_of(pipe), signal.SIGKILL)

        assert seen + batches_of(pipe, LENGTH) == expected(Noise(), LENGTH + 2)

    def test_that_could_fork_no_reserve_is_an_error(
        self, make_pipeline: MakePipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The main process may have changed its sources since, so it must not fork another one."""
        refuse_first_fork(tmp_path, monkeypatch)
        pipe = make_pipeline(lambda info: np.int64(0), "fork", py_worker_restarts=None)
        pipe.run()
        pool = pool_of(pipe)
        wait_until(lambda: backend_of(pool).read_news() or link_of(pipe, "reserve") is None, "the failure")

        os.kill(forkserver_of(pipe), signal.SIGKILL)

        assert "its reserve has ended as well" in run_to(WorkerDiedError, pipe).value.__notes__[0]

    @pytest.mark.parametrize(
        ("start_method", "moment"),
        [("fork", "before the state"), ("fork", "behind the state"), ("spawn", "behind the state")],
    )
    def test_around_a_checkpoint_leaves_no_trace(
        self, moment: str, make_pipeline: MakePipeline, expected: Any, start_method: str
    ) -> None:
        pipe, resumed = (make_pipeline(Noise(), start_method, enable_checkpointing=True) for _ in range(2))
        seen = batches_of(pipe, 5)

        if moment == "before the state":
            kill_forkserver_of(pipe)
        state = json.loads(json.dumps(pipe.state_dict()))
        if moment == "behind the state":
            kill_forkserver_of(pipe)
        resumed.load_state_dict(state)

        assert seen + batches_of(pipe, 3) == expected(Noise(), 8)
        assert batches_of(resumed, 3) == expected(Noise(), 8)[5:]

    def test_just_before_close_leaves_nothing(self, make_pipeline: MakePipeline, start_method: str) -> None:
        pipe = make_pipeline(Noise(), start_method)
        pipe.run()
        pids = wait_for_processes(pipe)

        os.kill(forkserver_of(pipe), signal.SIGKILL)
        pipe.close()

        assert not any(map(is_running, pids))

    def test_leaves_the_main_process_as_few_descriptors(self, make_pipeline: MakePipeline, start_method: str) -> None:
        pipe = make_pipeline(Noise(), start_method, py_worker_restarts=None)
        wait_for_processes(pipe)
        before = len(os.listdir("/proc/self/fd"))

        for _ in range(2):
            kill_forkserver_of(pipe)
            wait_for_processes(pipe)

        assert len(os.listdir("/proc/self/fd")) == before

    def test_leaves_the_next_one_no_longer_a_stack(self, make_pipeline: MakePipeline) -> None:
        """The next reserve is forked in the loop of the one before, which would add to the stack without end."""
        pipe = make_pipeline(lambda info: np.int64(len(inspect.stack())), "fork", py_worker_restarts=None)
        first = pipe.run()[0].as_array().tolist()

        for _ in range(3):
            kill_forkserver_of(pipe)
            batches_of(pipe, 4)  # some had been made before

        assert pipe.run()[0].as_array().tolist() == first

    def test_is_replaced_in_the_environment_of_the_start(
        self, make_pipeline: MakePipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A spawned one starts in the folder of the start, with its variables."""

        def source(info: SampleInfo) -> tuple[NDArray[Any], NDArray[Any]]:
            folder, variable = os.getcwd(), os.environ.get("OF_THE_START", "")
            return tuple(np.frombuffer(text.encode().ljust(200), np.uint8) for text in (folder, variable))

        monkeypatch.setenv("OF_THE_START", "yes")
        pipe = make_pipeline(source, "spawn", num_outputs=2, batch_size=1)
        before = [output.as_array().tolist() for output in pipe.run()]
        wait_for_processes(pipe)

        monkeypatch.setenv("OF_THE_START", "no")
        monkeypatch.chdir(tmp_path)
        kill_forkserver_of(pipe)
        seen = [[output.as_array().tolist() for output in pipe.run()] for _ in range(6)]

        assert seen == [before] * 6


class TestAReserve:
    def test_that_dies_is_replaced(self, make_pipeline: MakePipeline, expected: Any) -> None:
        pipe = make_pipeline(Noise(), "fork", py_worker_restarts=0)
        seen = batches_of(pipe, 3)

        for _ in range(3):
            wait_for_reserve(pipe)
            before = reserve_of(pipe)
            kill_and_wait([before])
            wait_until(lambda before=before: wait_for_reserve(pipe) or reserve_of(pipe) != before, "another reserve")

        assert seen + batches_of(pipe, 3) == expected(Noise(), 6)
        assert pipe.statistics().worker_restarts == 0

    def test_that_cannot_be_forked_is_tried_again_with_the_next_worker(
        self, make_pipeline: MakePipeline, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refuse_first_fork(tmp_path, monkeypatch)
        pipe = make_pipeline(Noise(), "fork")
        seen = batches_of(pipe, 1)
        pool = pool_of(pipe)
        wait_until(lambda: backend_of(pool).read_news() or link_of(pipe, "reserve") is None, "the failure")

        kill_and_wait([workers_of(pipe)[0]])
        wait_for_reserve(pipe)

        assert seen + batches_of(pipe, LENGTH) == expected(Noise(), LENGTH + 1)

    def test_is_no_child_of_the_workers_and_has_none(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(Noise(), "fork")
        wait_for_processes(pipe)

        assert psutil.Process(reserve_of(pipe)).ppid() == forkserver_of(pipe)
        assert children_of(reserve_of(pipe)) == []

    def test_ends_with_the_main_process_after_the_forkserver_has(self, tmp_path: Path) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                from dali_like import fn, pipeline_def

                @pipeline_def(batch_size=2, num_threads=1, py_num_workers=1)
                def pipeline() -> Any:
                    return fn.external_source(lambda info: np.int64(0), batch=False, parallel=True)

                pipe = pipeline()
                kill_forkserver_of(pipe)
                for _ in range(5):
                    pipe.run()
                pids = wait_for_processes(pipe)
                (tmp_path / "half").write_text(json.dumps(pids))
                (tmp_path / "half").rename(tmp_path / "pids")
                time.sleep(1000)
            finally:
                os._exit(1)
        wait_until((tmp_path / "pids").exists, "the processes of the other program")
        pids = json.loads((tmp_path / "pids").read_text())

        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

        wait_until(lambda: not any(map(is_running, pids)), "the end of the forkserver, its reserve and its workers")

    def test_that_dies_together_with_the_forkserver_is_an_error(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(lambda info: np.int64(0), "fork", py_worker_restarts=None)
        wait_for_processes(pipe)
        forkserver, reserve = forkserver_of(pipe), reserve_of(pipe)
        os.kill(forkserver, signal.SIGSTOP)  # else it would fork another one
        os.kill(reserve, signal.SIGKILL)
        wait_until(lambda: not is_running(reserve), "the end of the reserve")
        os.kill(forkserver, signal.SIGKILL)

        error = run_to(WorkerDiedError, pipe).value

        assert str(error) == (
            f"the process that starts the workers (pid {forkserver}) was killed by SIGKILL; its workers ended with it"
        )
        assert error.__notes__ == [
            "it cannot be replaced: its reserve has ended as well, and no other process has the sources as they were at the "
            'start; build the pipeline again, or use py_start_method="spawn" (multiprocessing_context="spawn" of a '
            "DataLoader)"
        ]


class TestTheLimit:
    def test_counts_a_death_of_the_forkserver_once(self, make_pipeline: MakePipeline, start_method: str) -> None:
        pipe = make_pipeline(lambda info: np.int64(0), start_method, workers=3, py_worker_restarts=2)

        for _ in range(2):
            kill_forkserver_of(pipe)
        pid, *_ = kill_forkserver_of(pipe)
        error = run_to(WorkerDiedError, pipe).value

        assert error.pid == pid
        assert f"(pid {pid})" in str(error)
        assert error.__notes__ == [
            "it is not replaced: the limit is 2 restarts within a minute; raise py_worker_restarts (worker_restarts of a "
            "DataLoader)"
        ]
        # A process that was a reserve is not a child of the main process, unless that is the init process of a container.
        assert error.exitcode == (-signal.SIGKILL if start_method == "spawn" else None)
        assert ("with an unknown exit status" in str(error)) == (start_method == "fork")
        with pytest.raises(WorkerDiedError):
            pipe.run()

    def test_of_zero_restarts_is_an_error_at_the_first_death(self, make_pipeline: MakePipeline, start_method: str) -> None:
        pipe = make_pipeline(lambda info: np.int64(0), start_method, py_worker_restarts=0)
        pid, *_ = kill_forkserver_of(pipe)

        error = run_to(WorkerDiedError, pipe).value

        assert (error.pid, error.exitcode) == (pid, -signal.SIGKILL)
        assert (
            str(error) == f"the process that starts the workers (pid {pid}) was killed by SIGKILL; its workers ended with it"
        )


class TestNoRowHasTwoWriters:
    def test_tasks_of_a_worker_that_survives_its_forkserver_wait_for_its_end(
        self, make_pipeline: MakePipeline, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def survive() -> None:
            wait_until((tmp_path / "first batch").exists, "the first batch")
            ctypes.CDLL(None).prctl(forkserver_module.PR_SET_PDEATHSIG, 0)
            (tmp_path / "survivor").write_text(str(os.getpid()))
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(1000)

        monkeypatch.setattr(processes_module, "kill", lambda pidfd: None)
        (tmp_path / "survivor").touch()
        pipe = make_pipeline(Disturbed(Noise(), {(0, 14)}, survive, tmp_path), "fork")
        first = batches_of(pipe, 1)
        (tmp_path / "first batch").touch()
        pool = pool_of(pipe)
        survivor = int(wait_until((tmp_path / "survivor").read_text, "a worker that survives"))
        try:
            wait_until(lambda: backend_of(pool).read_news() or link_of(pipe, "forkserver") is None, "the end of its parent")
            backend_of(pool).read_news()
            assert is_running(survivor)
            assert backend_of(pool).take_end() is None
        finally:
            os.kill(survivor, signal.SIGKILL)

        assert first + batches_of(pipe, LENGTH) == expected(Noise(), LENGTH + 1)

    def test_an_unknown_worker_takes_no_task(
        self, make_pipeline: MakePipeline, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The forkserver dies after it has forked a worker, and before the main process hears of that."""
        announce = forkserver_module.announce

        def die_first(control: int, worker: int) -> None:
            if worker == 1 and happens(tmp_path / "died"):
                kill_forkserver()
            announce(control, worker)

        monkeypatch.setattr(forkserver_module, "announce", die_first)
        pipe = make_pipeline(Noise(), "fork")

        assert batches_of(pipe, LENGTH + 1) == expected(Noise(), LENGTH + 1)

    def test_a_worker_may_die_before_it_is_known(
        self, make_pipeline: MakePipeline, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        announce = forkserver_module.announce

        def die_first(control: int, worker: int) -> None:
            if worker == 0 and happens(tmp_path / "died"):
                os.kill(os.getpid(), signal.SIGKILL)
            announce(control, worker)

        monkeypatch.setattr(forkserver_module, "announce", die_first)
        pipe = make_pipeline(Noise(), "fork")
        seen = batches_of(pipe, 1)

        # The other worker can compute an epoch before the main process reads the news of the death.
        def restarted() -> bool:
            seen.append(batches_of(pipe, 1)[0])
            return pipe.statistics().worker_restarts == 1

        wait_until(restarted, "the restart of the worker")
        assert seen == expected(Noise(), len(seen))


# Streams and loaders


class Counting:
    """An iterable with a state, which kills the forkserver before some of its batches."""

    def __init__(self, folder: Path | None, length: int = 12) -> None:
        self.folder, self.length, self.position = folder, length, 0

    def __iter__(self) -> Counting:
        self.position = 0
        return self

    def __next__(self) -> Any:
        if self.position == self.length:
            raise StopIteration
        if self.folder is not None and self.position in (0, 5, 11) and happens(self.folder / str(self.position)):
            kill_forkserver()
        self.position += 1
        return np.arange(BATCH_SIZE) + self.position

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class CountingWithoutState(Counting):
    state_dict = load_state_dict = None  # type: ignore[assignment]


@pytest.mark.parametrize(("start_method", "kind"), [("fork", Counting), ("fork", CountingWithoutState), ("spawn", Counting)])
def test_iterable_goes_on_where_it_was(
    kind: type[Counting], make_pipeline: MakePipeline, expected: Any, start_method: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"source_options": {"batch": True}}
    pipe = make_pipeline(kind(tmp_path), start_method, py_worker_restarts=None, **options)

    assert batches_of(pipe, 26) == expected(kind(None), 26, **options)


class Squares:
    def __init__(self, folder: Path | None, deadly: tuple[int, ...] = (7, 30)) -> None:
        self.folder, self.deadly = folder, deadly

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if self.folder is not None and index in self.deadly and happens(self.folder / str(index)):
            kill_forkserver()
        return index, np.random.randint(1 << 30)


class SquaresInOrder(Squares, IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for index in range(40):
            yield self[index]


def epochs_of(loader: DataLoader[Any], count: int) -> list[Any]:
    return [[part.tolist() for part in batch] for _ in range(count) for batch in loader]


@pytest.mark.parametrize(
    ("start_method", "kind", "persistent"),
    [
        ("fork", Squares, False),
        ("fork", Squares, True),
        ("fork", SquaresInOrder, True),
        ("spawn", Squares, True),
        ("spawn", SquaresInOrder, False),
    ],
)
def test_loader_goes_on_where_it_was(kind: type[Squares], persistent: bool, start_method: str, tmp_path: Path) -> None:
    def make(folder: Path | None) -> DataLoader[Any]:
        dataset: Any = kind(folder)
        return DataLoader(
            dataset,
            BATCH_SIZE,
            num_workers=2,
            multiprocessing_context=start_method,
            persistent_workers=persistent,
            generator=np.random.default_rng(5),
        )

    undisturbed, loader = make(None), make(tmp_path)

    assert epochs_of(loader, 2) == epochs_of(undisturbed, 2)
    assert len(list(tmp_path.iterdir())) >= 2


def forkserver_of_loader(loader: DataLoader[Any]) -> int:
    """The forkserver of a loader's workers, which may be at rest."""
    (pid,) = (pid for pid in children_of(os.getpid()) if psutil.Process(pid).name() == "dali_like:start")
    return pid


@pytest.mark.parametrize(("start_method", "persistent"), [("fork", True), ("spawn", True), ("spawn", False)])
def test_forkserver_that_dies_between_two_iterators_is_replaced(start_method: str, persistent: bool) -> None:
    """Without persistent workers, forked ones have ended with their forkserver by then."""

    def make() -> DataLoader[Any]:
        return DataLoader(
            Squares(None),
            BATCH_SIZE,
            num_workers=2,
            multiprocessing_context=start_method,
            persistent_workers=persistent,
            generator=np.random.default_rng(5),
        )

    loader = make()
    seen = epochs_of(loader, 1)
    pid = forkserver_of_loader(loader)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), "the end of the forkserver")

    assert seen + epochs_of(loader, 2) == epochs_of(make(), 3)


def test_dataset_that_has_changed_since_is_that_of_the_next_forkserver() -> None:
    loader = DataLoader(Factors(1), BATCH_SIZE, num_workers=1, multiprocessing_context="spawn")
    first = epochs_of(loader, 1)
    loader.dataset.factor = 2
    second = epochs_of(loader, 1)
    pid = forkserver_of_loader(loader)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), "the end of the forkserver")

    third = epochs_of(loader, 1)

    assert (first[0], second[0], third[0]) == ([0, 1, 2, 3], [0, 2, 4, 6], [0, 2, 4, 6])


class Factors:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index * self.factor


# With played workers


@pytest.mark.parametrize("callback", [rows, ragged])
@pytest.mark.parametrize("deaths", [0.0, 0.1])
def test_each_batch_comes_once_and_whole_in_any_order_of_events(callback: Callable[[Any], Any], deaths: float) -> None:
    for seed in range(10):
        with played(of(callback), num_workers=3, deaths=deaths, forkserver_deaths=0.05, seed=seed) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(6)]

            assert [samples_of(pool, batch) for batch in batches] == [batch_of(iteration) for iteration in range(6)]

            pool.play_on()
            assert pool.is_settled


def test_walks_lose_nothing_in_any_order_of_events() -> None:
    for seed in range(10):
        with played(walks(8), num_workers=2, deaths=0.05, forkserver_deaths=0.05, seed=seed) as pool:
            batches = [pool.begin(iteration, SIZE, worker=iteration % 2) for iteration in range(8)]

            assert [samples_of(pool, batch) for batch in batches] == [batch_of(iteration) for iteration in range(8)]


def test_sample_has_nothing_to_do_with_the_end_of_the_forkserver() -> None:
    """So it is not suspected of it, however often."""
    with played(of(rows), num_workers=2) as pool:
        batch = pool.begin(0, SIZE)
        for _ in range(5):
            pool.play_until(lambda: any(worker.task for worker in pool.workers.running.values()))
            pool.workers.end_forkserver()
            pool.poll()
            recovery_of(pool).look()

        # Private: counts of failures show only after many of them
        assert not recovery_of(pool)._failures
        assert samples_of(pool, batch) == batch_of(0)


def test_pool_at_rest_outlives_the_forkserver() -> None:
    with played(of(rows), num_workers=2) as pool:
        begin_and_rest(pool)
        pool.workers.end_forkserver()
        pool.wake(b"")

        assert samples_of(pool, pool.begin(1, SIZE)) == batch_of(1)


def test_forkserver_may_end_while_the_pool_comes_to_rest() -> None:
    with played(of(rows), num_workers=2) as pool:
        pool.begin(0, SIZE)
        pool.play_until(lambda: any(worker.task for worker in pool.workers.running.values()))
        dispatcher_of(pool).cancel_all()
        pool.workers.end_forkserver()
        recovery_of(pool).rest()
        pool.wake(b"")

        assert samples_of(pool, pool.begin(1, SIZE)) == batch_of(1)


def begin_and_rest(pool: PlayedPool) -> None:
    pool.begin(0, SIZE)
    pool.rest()


class TestAShortEpoch:
    """With workers that are not kept."""

    def test_has_no_reserve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes_module, "FIRST_RESERVE_S", 1000.0)
        forked = []

        class Group(ProcessGroup):
            def stop(self) -> None:
                forked.append((len(self.pids), self.awaits_first_reserve))
                super().stop()

        monkeypatch.setattr(processes_module, "ProcessGroup", Group)
        loader = DataLoader(range(16), 4, num_workers=2)

        assert epochs_of(loader, 1) == epochs_of(DataLoader(range(16), 4), 1)
        assert forked == [(2, True)]

    def test_ends_before_its_forkserver(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Its exit may take long; the workers have ended."""
        flush = forkserver_module.flush_streams

        def wait() -> None:
            wait_until((tmp_path / "the epoch is over").exists, "the end of the epoch")
            flush()

        monkeypatch.setattr(forkserver_module, "flush_streams", wait)
        loader = DataLoader(range(16), 4, num_workers=2)
        iterator = iter(loader)
        pids = [worker.pid for worker in iterator._workers]  # type: ignore[attr-defined]
        for _ in iterator:
            pass
        (tmp_path / "the epoch is over").touch()

        assert not any(map(psutil.pid_exists, pids))
        wait_until(reap_forkservers, "the end of the forkserver")
