"""``py_start_method="ray"``: batches, errors and restarts are the same as with forked workers."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, get_worker_info, types
from dali_like.engine.backends.ray import ray_cluster, ray_dispatcher
from dali_like.errors import ArgumentError, ClosedError, PicklingError, WorkerDiedError, WorkerStartError
from dali_like.monitor.trace.trace_records import WORKERS
from tests.conftest import DEADLINE_S, wait_until
from tests.internals import backend_of, pool_of
from tests.on_ray.conftest import actors

pytestmark = pytest.mark.usefixtures("cluster")

NUM_BATCHES = 5
BATCH_SIZE = 4


def until(num_samples: int, sample: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A source with epochs of so many samples."""

    def source(info: Any) -> Any:
        if info.idx_in_epoch >= num_samples:
            raise StopIteration
        return sample(info)

    return source


def dense(info: Any) -> Any:
    return info.rng().integers(0, 255, (20, 3), np.uint8)


def ragged(info: Any) -> Any:
    return np.arange(info.idx_in_epoch * 1000 % 777, dtype=np.float32)


def empty(info: Any) -> Any:
    return np.zeros((info.idx_in_epoch % 2, 0), np.int16)


def large(info: Any) -> Any:
    return np.full((300, 1000), info.idx_in_epoch, np.int32), np.array(info.epoch_idx)


def in_place(info: Any) -> Any:
    row = info.empty((10,), np.int64)
    row[:] = info.idx_in_epoch
    return row


def fails_at_five(info: Any) -> Any:
    if info.idx_in_epoch == 5:
        raise KeyError(info.idx_in_epoch)
    return dense(info)


async def awaited(info: Any) -> Any:
    if info.idx_in_epoch >= NUM_BATCHES * BATCH_SIZE:
        raise StopIteration
    return dense(info)


def whole_batch(info: types.BatchInfo) -> Any:
    if info.iteration >= NUM_BATCHES:
        raise StopIteration
    return np.full((BATCH_SIZE, 3), info.iteration + 100 * info.epoch_idx)


def generator() -> Iterator[Any]:
    for i in range(NUM_BATCHES):
        yield [np.full(3, i * BATCH_SIZE + j) for j in range(BATCH_SIZE)]


class Shard:
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for i in range(NUM_BATCHES + info.id):
            yield np.full((BATCH_SIZE, 2), 10 * i + info.id)


FULL = NUM_BATCHES * BATCH_SIZE
KINDS: dict[str, tuple[Any, int | None, dict[str, Any]]] = {
    "samples of one shape": (until(FULL, dense), None, {}),
    "samples of many shapes": (until(FULL, ragged), None, {}),
    "samples of no bytes": (until(FULL, empty), None, {}),
    "two outputs, large": (until(FULL, large), 2, {}),
    "samples made in place": (until(FULL, in_place), None, {}),
    "objects": (until(FULL, lambda info: {"index": info.idx_in_epoch}), None, {"dtype": types.OBJECT}),
    "a partial last batch": (until(FULL - 2, dense), None, {"last_batch_policy": "partial"}),
    "samples that are skipped": (until(FULL, fails_at_five), None, {"on_error": "skip"}),
    "coroutines": (awaited, None, {"concurrency": 4}),
    "whole batches": (whole_batch, None, {"batch": True, "batch_info": True}),
    "an iterable": (generator, None, {"batch": True}),
    "a shard in every worker": (Shard(), None, {"batch": True, "sharded": True}),
}


def content(batch: tuple[Any, ...]) -> list[Any]:
    """A batch as values that can be compared."""
    return [
        [
            (np.asarray(sample).dtype, np.asarray(sample).tolist()) if not isinstance(sample, dict) else sample
            for sample in out
        ]
        for out in batch
    ]


def epochs_of(pipe: Pipeline, num_epochs: int = 2) -> list[list[Any]]:
    epochs = []
    for _ in range(num_epochs):
        epochs.append([content(batch) for batch in pipe])
        pipe.reset()
    return epochs


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_forked_workers(make_pipeline: Callable[..., Pipeline], kind: str) -> None:
    source, num_outputs, options = KINDS[kind]
    forked, ray = (
        make_pipeline(source, way, num_outputs=num_outputs, source_options=options, batch_size=BATCH_SIZE, seed=5)
        for way in ("fork", "ray")
    )

    epochs = epochs_of(ray)

    assert epochs == epochs_of(forked)
    assert len(epochs[0]) >= NUM_BATCHES
    assert ray.statistics().replaced_samples >= ("skip" in options.values())


def test_a_trace_has_a_track_for_each_actor(make_pipeline: Callable[..., Pipeline]) -> None:
    pipe = make_pipeline(until(FULL, dense), "ray", batch_size=BATCH_SIZE)

    with pipe.trace() as trace:
        for _ in pipe:
            pass

    tasks = [span for span in trace.records.spans if span.track.group == WORKERS and not span.details["epoch"]]
    made = sorted((span.details["iteration"], span.details["samples"]) for span in tasks if "ended" not in span.details)
    assert len(made) == len(set(made))
    assert {iteration for iteration, _ in made} == set(range(NUM_BATCHES))
    assert all(trace.records.begin_ns <= span.begin_ns <= span.end_ns for span in tasks)
    assert {span.track.name for span in tasks} <= {"worker 0", "worker 1"}


class TestErrors:
    def test_keep_their_type_and_say_where_they_come_from(self, make_pipeline: Callable[..., Pipeline]) -> None:
        class OddError(Exception):
            pass

        def source(info: Any) -> Any:
            if info.idx_in_epoch == 5:
                raise OddError(info.idx_in_epoch)
            return dense(info)

        pipe = make_pipeline(until(FULL, source), "ray", source_options={"name": "odd"})

        pipe.run()
        with pytest.raises(OddError) as caught:
            pipe.run()

        assert caught.value.args == (5,)
        assert "raise OddError(info.idx_in_epoch)" in str(caught.value.__cause__)
        assert caught.value.__notes__[0].startswith(
            "raised by external_source 'odd' for sample 1 of iteration 1 in epoch 0 (idx_in_epoch 5)"
        )
        assert len(list(pipe)) == NUM_BATCHES - 2

    def test_of_the_start_are_raised_by_run(self, make_pipeline: Callable[..., Pipeline]) -> None:
        def setup() -> None:
            raise LookupError("no such store")

        pipe = make_pipeline(dense, "ray", source_options={"worker_setup": setup})

        with pytest.raises(WorkerStartError, match="no such store") as caught:
            pipe.run()

        assert isinstance(caught.value.__cause__, LookupError)

    def test_source_with_a_lock_is_refused(self, make_pipeline: Callable[..., Pipeline]) -> None:
        lock = multiprocessing.get_context("spawn").Lock()

        def source(info: Any) -> Any:
            with lock:
                return dense(info)

        with pytest.raises(PicklingError, match="a Lock, refuses"):
            make_pipeline(source, "ray").build()

    @pytest.mark.parametrize(
        ("options", "text"),
        [({"max_restarts": 1}, "the pipeline sets 'max_restarts' itself"), ({"num_cpu": 1}, "Ray rejects these options")],
    )
    def test_wrong_options_are_refused(
        self, make_pipeline: Callable[..., Pipeline], options: dict[str, Any], text: str
    ) -> None:
        with pytest.raises(ArgumentError, match=text):
            make_pipeline(dense, "ray", py_worker_options=options).build()


class TestLostWorkers:
    def test_their_samples_are_computed_again(self, make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
        def dies_once(info: Any) -> Any:
            if info.idx_in_epoch == 9:
                with contextlib.suppress(FileExistsError):
                    (tmp_path / "died").touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)
            return dense(info)

        pipe = make_pipeline(until(FULL, dies_once), "ray", seed=5)
        forked = make_pipeline(until(FULL, dense), "fork", seed=5)

        assert epochs_of(pipe) == epochs_of(forked)
        assert pipe.statistics().worker_restarts == 1

    def test_killed_from_outside_again_and_again(self, make_pipeline: Callable[..., Pipeline]) -> None:
        sources = until(40 * BATCH_SIZE, dense)
        pipe = make_pipeline(sources, "ray", seed=5, py_worker_restarts=None)
        forked = make_pipeline(sources, "fork", seed=5)
        batches = []

        for i, batch in enumerate(pipe):
            batches.append(content(batch))
            if i % 15 == 7:
                os.kill(pipe.py_worker_pids[0], signal.SIGKILL)

        assert batches == epochs_of(forked, 1)[0]
        assert pipe.statistics().worker_restarts >= 1

    def test_an_iterable_goes_on_in_another(self, make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
        def dies_once() -> Iterator[Any]:
            for i, batch in enumerate(generator()):
                if i == 3:
                    with contextlib.suppress(FileExistsError):
                        (tmp_path / "died").touch(exist_ok=False)
                        os.kill(os.getpid(), signal.SIGKILL)
                yield batch

        pipe = make_pipeline(dies_once, "ray", source_options={"batch": True})
        forked = make_pipeline(generator, "fork", source_options={"batch": True})

        assert epochs_of(pipe) == epochs_of(forked)
        assert pipe.statistics().worker_restarts == 1

    def test_past_the_allowance_run_raises(self, make_pipeline: Callable[..., Pipeline]) -> None:
        pipe = make_pipeline(lambda _: os._exit(3), "ray", py_worker_restarts=0, source_options={"name": "exits"})

        with pytest.raises(
            WorkerDiedError, match=r"was lost \(.*\) while external_source 'exits' was computing sample 0 of iteration 0"
        ):
            pipe.run()

    def test_a_sample_that_kills_them_all_is_given_up(self, make_pipeline: Callable[..., Pipeline]) -> None:
        def source(info: Any) -> Any:
            return os._exit(3) if info.idx_in_epoch == 4 else dense(info)

        pipe = make_pipeline(until(FULL, source), "ray", batch_size=2, workers=2)

        pipe.run()
        pipe.run()
        with pytest.raises(WorkerDiedError, match="sample 0 of iteration 2"):
            pipe.run()

        assert len(list(pipe)) == FULL // 2 - 3


def test_setup_and_teardown_are_called_in_each_worker(make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    def note(what: str) -> None:
        info = get_worker_info()
        assert info is not None
        (tmp_path / f"{what}{info.id}of{info.num_workers}").touch()

    options = {"worker_setup": functools.partial(note, "up"), "worker_teardown": functools.partial(note, "down")}
    pipe = make_pipeline(until(FULL, dense), "ray", source_options=options)

    list(pipe)
    wait_until(lambda: len(pipe.py_worker_pids) == 2, "the start of both")
    pipe.close()

    assert {path.name for path in tmp_path.iterdir()} == {"up0of2", "up1of2", "down0of2", "down1of2"}


def test_a_pipeline_that_is_dropped_ends_its_actors(make_pipeline: Callable[..., Pipeline]) -> None:
    from dali_like import fn, pipeline_def

    @pipeline_def(batch_size=2, num_threads=1, py_num_workers=1, py_start_method="ray")
    def pipeline() -> Any:
        return fn.external_source(source=dense, parallel=True, batch=False)

    pipe = pipeline()
    pipe.run()
    assert actors()

    del pipe  # the fixture waits for the rest


def test_reset_in_the_middle_of_an_epoch(make_pipeline: Callable[..., Pipeline]) -> None:
    pipe, forked = (make_pipeline(until(FULL, large), way, num_outputs=2) for way in ("ray", "fork"))

    for each in (pipe, forked):
        each.run()
        each.reset()

    assert epochs_of(pipe) == epochs_of(forked)


def test_a_batch_that_is_held_does_not_change(make_pipeline: Callable[..., Pipeline]) -> None:
    pipe = make_pipeline(until(FULL, large), "ray", num_outputs=2)

    held = list(pipe)
    pipe.close()

    assert [batch[0].as_array()[:, 0, 0].tolist() for batch in held] == np.arange(FULL).reshape(-1, BATCH_SIZE).tolist()


def test_ctrl_c_while_a_callback_is_busy(make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    def source(info: Any) -> Any:
        if info.idx_in_epoch == 6:
            (tmp_path / "busy").touch()
            wait_until((tmp_path / "go").exists, "the permission to go on")
        return np.array(info.idx_in_epoch)

    def interrupt() -> None:
        wait_until((tmp_path / "busy").exists, "the sample")
        os.kill(os.getpid(), signal.SIGINT)

    pipe = make_pipeline(until(FULL, source), "ray", source_options={"prefetch_queue_depth": 1})
    pipe.run()
    thread = threading.Thread(target=interrupt)

    def run() -> None:
        thread.start()
        pipe.run()

    with pytest.raises(KeyboardInterrupt):
        run()
    thread.join()
    (tmp_path / "go").touch()

    assert [content(batch)[0][0][1] for batch in pipe][-1] == FULL - BATCH_SIZE


@pytest.mark.parametrize("share", [1, 1 << 60])
def test_results_on_their_way_are_limited_by_their_bytes(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    monkeypatch.setattr(ray_cluster, "_STORE_SHARE", share)
    # Private: replaced by a slower one
    given = ray_dispatcher.RayDispatcher._give_some
    busy: list[int] = []

    def give(self: Any, actor: Any) -> bool:
        has_given = given(self, actor)
        busy.append(actor.num_calls)
        return has_given

    monkeypatch.setattr(ray_dispatcher.RayDispatcher, "_give_some", give)
    pipe = make_pipeline(until(FULL, large), "ray", num_outputs=2, source_options={"prefetch_queue_depth": 3})

    assert len(list(pipe)) == NUM_BATCHES
    assert max(busy) == (2 if share == 1 else 1)


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    """Record the tasks of each batch in each call of an actor, from now on."""
    # Private: replaced by one that counts
    call = ray_dispatcher.RayDispatcher._call
    calls: list[list[list[int]]] = []

    def note(self: Any, actor: Any, method: str, then: Any, *args: Any) -> None:
        if method == "compute":
            calls.append([tasks for _, tasks in args[0]])
        call(self, actor, method, then, *args)

    monkeypatch.setattr(ray_dispatcher.RayDispatcher, "_call", note)
    return calls


@pytest.mark.parametrize("call_s", [1e-9, 1e6])
def test_tasks_that_take_little_time_share_a_call(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, call_s: float
) -> None:
    monkeypatch.setattr(ray_dispatcher, "_CALL_S", call_s)
    calls = calls_of(monkeypatch)
    pipe, forked = (make_pipeline(until(40 * BATCH_SIZE, ragged), way) for way in ("ray", "fork"))

    assert epochs_of(pipe, 1) == epochs_of(forked, 1)
    assert sorted({len(tasks) for call in calls for tasks in call}) == ([1, 2] if call_s > 1 else [1])
    assert all(len(call) == 1 for call in calls) or call_s > 1


def test_quick_batches_that_wait_share_a_call(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = calls_of(monkeypatch)

    def source(info: Any) -> Any:
        if info.iteration == 1:
            wait_until((tmp_path / "go").exists, "the permission to go on")
        return dense(info)

    sources = until(40 * BATCH_SIZE, source), until(40 * BATCH_SIZE, dense)
    options = {"workers": 1, "seed": 5, "source_options": {"prefetch_queue_depth": 16}}
    pipe, forked = (make_pipeline(each, way, **options) for each, way in zip(sources, ("ray", "fork"), strict=True))

    batches = [content(pipe.run())]
    (tmp_path / "go").touch()
    batches += [content(batch) for batch in pipe]

    assert batches == epochs_of(forked, 1)[0]
    assert 2 <= max(map(len, calls)) <= ray_dispatcher.MOST_BATCHES


def test_a_task_that_ends_its_actor_loses_no_other_tasks_of_the_call(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_dispatcher, "_CALL_S", 1e6)
    calls = calls_of(monkeypatch)

    def source(info: Any) -> Any:
        return os._exit(3) if info.idx_in_epoch == FULL - 1 else dense(info)

    pipe = make_pipeline(until(FULL, source), "ray", workers=4, seed=5)
    forked = make_pipeline(until(FULL, dense), "fork", seed=5)
    batches = [content(pipe.run()) for _ in range(NUM_BATCHES - 1)]

    with pytest.raises(WorkerDiedError, match=f"sample {BATCH_SIZE - 1} of iteration {NUM_BATCHES - 1}"):
        pipe.run()
    assert batches == epochs_of(forked, 1)[0][:-1]
    assert max(len(tasks) for call in calls for tasks in call) > 1


def test_large_arrays_of_sources_can_be_written_to_unless_they_could_not_before(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    ours, fixed = np.zeros(100_000), np.ones(100_000)
    fixed.flags.writeable = False

    def source(_: Any) -> Any:
        return np.array([ours.flags.writeable, fixed.flags.writeable])

    pipe = make_pipeline(source, "ray", batch_size=1)

    assert content(pipe.run())[0][0][1] == [True, False]


def test_actors_that_have_ended_with_the_program_are_no_failure(make_pipeline: Callable[..., Pipeline]) -> None:
    pipe = make_pipeline(dense, "ray")
    pipe.run()
    pool = pool_of(pipe)

    # Private: runs as at the end of the program
    backend_of(pool)._dispatcher.finish()  # as the end of the program does

    with pytest.raises(ClosedError, match="the program is exiting"):
        pipe.run()


def test_a_program_that_leaves_the_cluster_gets_an_error_and_no_other_cluster() -> None:
    """Ray's functions would start another cluster by themselves, and wait for the actors of this one for ever."""
    program = """if True:
        import numpy as np
        import ray
        from dali_like import fn, pipeline_def
        from dali_like.errors import WorkerDiedError

        @pipeline_def(batch_size=4, device_id=None, py_num_workers=1, py_start_method="ray", py_worker_restarts=None)
        def pipeline():
            return fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False, parallel=True)

        ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
        pipe = pipeline()
        pipe.run()
        ray.shutdown()
        try:
            while True:
                pipe.run()
        except WorkerDiedError as error:
            print(error, *error.__notes__)
        pipe.close()
        print(ray.is_initialized())
    """

    ended = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, timeout=3 * DEADLINE_S, check=True
    )

    error, is_initialized = ended.stdout.splitlines()
    assert "(the program has left the cluster)" in error
    assert "build the pipeline again" in error
    assert is_initialized == "False"
