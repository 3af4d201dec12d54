"""Traces: records of pipelines and loaders, of their workers and GPUs, and the content of the file."""

from __future__ import annotations

import gc
import itertools
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def
from dali_like.data import DataLoader
from dali_like.engine.memory.protocol import HEADER_WORDS, LOG_BYTES, LOG_RECORDS, Header, Status, control_bytes, log_offset
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.worker.meters import Meter, TaskLog, TaskLogs
from dali_like.errors import PipelineStateError, TraceFileError
from dali_like.monitor.trace import chrome
from dali_like.monitor.trace.trace_records import GPU, MAIN, PART_OF, WORKERS, Count, Records, Span, Track
from dali_like.monitor.trace.tracer import TracedSource, Tracer
from dali_like.testing.simulated_device import SimulatedDevice
from dali_like.types import SampleInfo
from tests.conftest import is_running, wait_until
from tests.faults.processes import workers_of
from tests.internals import monitor_of, runtime_of

BATCHES = 5
BATCH = 4
MAIN_THREAD = Track(MAIN, "main thread")

MakePipeline = Callable[..., Pipeline]


def numbered(info: SampleInfo) -> NDArray[Any]:
    if info.iteration >= BATCHES:
        raise StopIteration
    return np.full(3, info.idx_in_epoch)


def spans_of(records: Records, name: str) -> list[Span]:
    return sorted((span for span in records.spans if span.name == name), key=lambda span: span.begin_ns)


def tasks_of(records: Records) -> list[Span]:
    return [span for span in records.spans if span.track.group == WORKERS]


def samples_of(records: Records) -> list[int]:
    """Return the samples of the first epoch that workers have computed."""
    tasks = [span.details for span in tasks_of(records) if span.details["epoch"] == 0]
    bounds = [tuple(map(int, details["samples"].split(" to "))) for details in tasks]
    return sorted(sample for first, last in bounds for sample in range(first, last + 1) if sample < BATCHES * BATCH)


# Workers


def test_each_sample_of_an_epoch_is_on_the_track_of_one_worker(make_pipeline: MakePipeline, start_method: str) -> None:
    pipe = make_pipeline(numbered, start_method)
    with pipe.trace() as trace:
        for _ in pipe:
            pass
    assert samples_of(trace.records) == list(range(BATCHES * BATCH))
    assert {span.track.name for span in tasks_of(trace.records)} <= {"worker 0", "worker 1"}
    assert {span.name for span in tasks_of(trace.records)} == {"external_source of numbered"}


def test_a_task_says_its_batch_its_process_and_lies_within_the_trace(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered)
    with pipe.trace() as trace:
        for _ in pipe:
            pass
        pids = workers_of(pipe)
    records = trace.records
    for span in tasks_of(records):
        assert span.details["iteration"] * BATCH <= int(span.details["samples"].split()[0])
        assert span.details["pid"] in pids
        assert records.begin_ns <= span.begin_ns <= span.end_ns <= records.end_ns


def test_an_unsuccessful_task_has_its_outcome(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered)
    with pipe.trace() as trace:
        for _ in pipe:
            pass
    assert {span.details.get("ended") for span in tasks_of(trace.records)} >= {None, "STOPPED"}


def test_a_worker_that_takes_the_place_of_another_goes_on_with_its_track(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered, workers=1)
    with pipe.trace() as trace:
        pipe.run()
        [first] = pipe.py_worker_pids
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not is_running(first), "the end of the worker")
        for _ in range(BATCHES - 1):
            pipe.run()
        [second] = pipe.py_worker_pids
    assert {(span.track.name, span.details["pid"]) for span in tasks_of(trace.records)} == {
        ("worker 0", first),
        ("worker 0", second),
    }


def test_workers_note_nothing_before_a_trace_nor_after_it(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered, workers=1)
    pipe.run()
    runtime = runtime_of(pipe)
    header = runtime.space.array(log_offset(0, 1), (2,), np.dtype(np.int64))
    assert header[1] == 0  # records
    with pipe.trace():
        pass
    noted = int(header[1])
    for _ in range(BATCHES - 1):
        pipe.run()
    assert header[1] == noted


def write_records(
    count: int, *, task_size: int = 1, batch_size: int = 1 << 20, space: SharedSpace | None = None
) -> TaskLogs:
    """Return the log of a worker that has computed the first `count` tasks of a batch."""
    space = space or SharedSpace.create()
    space.allocate(control_bytes(1, 1))
    header = [0] * HEADER_WORDS
    header[Header.BATCH_SIZE], header[Header.TASK_SIZE] = batch_size, task_size
    logs = TaskLogs(space, 1)
    logs.want(1)
    log = TaskLog(space, 0, 1)
    for task in range(count):
        log.write(header, task, 0, 0, Status.DENSE, 0)
    return logs


def test_the_last_task_of_a_batch_has_the_samples_that_are_left() -> None:
    logs = write_records(3, task_size=3, batch_size=8)
    assert [(record.first_sample, record.num_samples) for _, record in logs.read()] == [(0, 3), (3, 3), (6, 2)]


def test_tasks_of_cancelled_batches_are_recorded_as_skipped_while_records_are_wanted() -> None:
    space = SharedSpace.create()
    space.allocate(control_bytes(1, 1))
    header = [0] * HEADER_WORDS
    header[Header.BATCH_SIZE], header[Header.TASK_SIZE] = 8, 3
    logs, meter = TaskLogs(space, 1), Meter(log=TaskLog(space, 0, 1))

    meter.skip(header, 1)
    logs.want(1)
    meter.skip(header, 2)

    [(_, record)] = logs.read()
    assert (record.status, record.first_sample, record.num_samples) == (Status.SKIPPED, 6, 2)
    assert record.begin_ns == record.end_ns > 0


def test_records_of_an_earlier_trace_are_not_read() -> None:
    space = SharedSpace.create()
    write_records(5, space=space)
    logs = TaskLogs(space, 1)
    for _ in range(2):  # enabling twice has no further effect
        logs.want(1)
    assert not logs.read()
    assert not logs.num_lost


def test_records_that_are_not_read_in_time_are_counted_as_lost() -> None:
    count = 2 * LOG_RECORDS + 10
    logs = write_records(count)
    samples = [record.first_sample for _, record in logs.read()]
    assert samples == list(range(count - len(samples), count))
    assert LOG_RECORDS - 2 <= len(samples) <= LOG_RECORDS
    assert logs.num_lost == count - len(samples)


def test_the_record_that_a_worker_may_be_writing_over_is_not_read() -> None:
    logs = write_records(LOG_RECORDS)
    samples = [record.first_sample for _, record in logs.read()]
    assert samples == list(range(1, LOG_RECORDS))
    assert logs.num_lost == 1


def test_workers_that_have_not_been_started_have_no_memory_for_records() -> None:
    space = SharedSpace.create()
    space.allocate(control_bytes(64, 1))
    logs = TaskLogs(space, 64)

    logs.want(2)
    assert not logs.read()
    few_bytes = space.used_bytes
    logs.want(3)

    assert 2 * LOG_BYTES <= few_bytes < 3 * LOG_BYTES
    assert 3 * LOG_BYTES <= space.used_bytes < 4 * LOG_BYTES


def test_records_are_read_once() -> None:
    logs = write_records(10)
    assert len(logs.read()) == 10
    assert not logs.read()
    assert not logs.num_lost


def test_lost_records_are_stated_in_the_file() -> None:
    tracer = Tracer()
    tracer.follow(write_records(LOG_RECORDS * 2), [TracedSource("source")])
    trace = chrome.as_json(tracer.close())
    assert trace["otherData"]["lost_records"] >= LOG_RECORDS


# The main process


def test_the_main_thread_runs_waits_within_and_steps_between(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered)
    with pipe.trace() as trace:
        for _ in pipe:
            pass
    records = trace.records
    runs, steps = spans_of(records, "run"), spans_of(records, "step")
    assert len(runs) == len(steps) == BATCHES + 1  # the last call raises StopIteration
    ends = [time for run, step in zip(runs, steps, strict=True) for time in (*run[2:4], *step[2:4])]
    assert ends == sorted(ends)
    waits = spans_of(records, "wait")
    assert waits
    assert all(any(run.begin_ns <= wait.begin_ns and wait.end_ns <= run.end_ns for run in runs) for wait in waits)
    assert {span.track for span in [*runs, *steps, *waits]} == {MAIN_THREAD}
    assembled = [span.details for span in spans_of(records, "assemble") if span.details["epoch"] == 0]
    assert sorted(details["iteration"] for details in assembled) == list(range(BATCHES))


def test_a_serial_source_is_on_the_track_of_the_main_thread(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered, "serial")
    with pipe.trace() as trace:
        for _ in pipe:
            pass
    spans = spans_of(trace.records, "serial source")
    assert [span.details["iteration"] for span in spans] == list(range(BATCHES + 1))
    assert {span.details["source"] for span in spans} == {"external_source of numbered"}
    assert {span.track for span in spans} == {MAIN_THREAD}


def test_operators_in_threads_have_tracks_of_their_own() -> None:
    @pipeline_def(batch_size=BATCH, num_threads=2)
    def pipeline() -> Any:
        return fn.external_source(large, batch=False) * 2

    def large(info: SampleInfo) -> NDArray[Any]:
        return np.broadcast_to(numbered(info)[0], (512, 512))  # batches of less work stay in the calling thread

    pipe = pipeline()
    with pipe.trace() as trace:
        for _ in pipe:
            pass
    pipe.close()
    spans = spans_of(trace.records, "operators")
    assert sorted(span.details["iteration"] for span in spans) == list(range(BATCHES))  # two threads finish in any order
    assert MAIN_THREAD not in {span.track for span in spans}


def test_counts_of_the_ring_are_taken_at_each_batch(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered)
    with pipe.trace() as trace:
        held = [pipe.run() for _ in range(3)]
    batches = [count for count in trace.records.counts if count.name == "batches"]
    memory = [count.values["bytes"] for count in trace.records.counts if count.name == "shared memory"]
    assert len(batches) == len(memory) == len(held)
    assert all(count.values["slots_in_use"] >= i for i, count in enumerate(batches, start=1))
    assert min(memory) > 0


def hooked_parts(pipe: Pipeline) -> list[Any]:
    """Return the parts of a pipeline with operators in threads and workers that a trace listens to."""
    runtime = runtime_of(pipe)
    assert runtime.executor is not None
    return [monitor_of(pipe), runtime.executor.computation, runtime.inline_pool, runtime.process_pool]


def test_hooks_are_empty_before_and_after_a_trace(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered)
    pipe.build()
    parts = hooked_parts(pipe)
    none = [type(part.hooks)() for part in parts]
    assert [part.hooks for part in parts] == none
    with pipe.trace():
        pipe.run()
        assert not any(part.hooks == empty for part, empty in zip(parts, none, strict=True))
    assert [part.hooks for part in parts] == none


def test_a_trace_replaces_no_attributes_of_traced_objects(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered)
    pipe.build()
    parts = [pipe, *hooked_parts(pipe)]
    before = [set(vars(part)) for part in parts]
    with pipe.trace():
        pipe.run()
        assert [set(vars(part)) for part in parts] == before


def test_a_trace_that_cannot_begin_removes_its_hooks(make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = make_pipeline(numbered)
    pipe.build()

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(WorkerPool, "log_tasks", fail)
    with pytest.raises(MemoryError), pipe.trace():
        pass
    assert all(part.hooks == type(part.hooks)() for part in hooked_parts(pipe))


def test_a_pipeline_may_be_closed_within_its_trace(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered)
    with pipe.trace() as trace:
        for _ in pipe:
            pass
        pipe.close()
    assert samples_of(trace.records) == list(range(BATCHES * BATCH))


def test_a_pipeline_has_one_trace_at_a_time(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbered, "serial")
    with pipe.trace():
        with pytest.raises(PipelineStateError, match="being traced already"), pipe.trace():
            pass
        pipe.run()
    with pipe.trace() as trace:
        pipe.run()
    assert len(spans_of(trace.records, "run")) == 1


def test_more_records_than_are_kept_are_counted() -> None:
    tracer = Tracer(most=3)
    for i in range(5):
        tracer.add(MAIN_THREAD, "span", i, i + 1, {})
    tracer.count("batches", ready=1)
    records = tracer.close()
    assert (len(records.spans), records.dropped) == (3, 3)


# Copies to a GPU


def test_copies_are_on_the_track_of_the_gpu_and_say_their_bytes(gpus: list[SimulatedDevice]) -> None:
    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.external_source(numbered, batch=False).gpu()

    pipe = pipeline()
    with pipe.trace() as trace:
        for _ in pipe:
            pass
    pipe.close()
    copies = spans_of(trace.records, "to the GPU")
    assert [span.details["bytes"] for span in copies] == [BATCH * 3 * 8] * BATCHES
    assert {span.track for span in copies} == {Track(GPU, "GPU 0")}
    assert all(before.end_ns <= after.begin_ns for before, after in itertools.pairwise(copies))


def test_a_copy_takes_as_long_as_the_gpu_says() -> None:
    device = SimulatedDevice()
    tracer = Tracer()
    tracer.watch_copies(device)
    target, source = device.allocate(8), np.arange(8, dtype=np.uint8)
    device.launch(lambda: None, device.stream)
    device.upload(target.address, source.__array_interface__["data"][0], 8)
    tracer.read()
    assert not tracer.records.spans  # the GPU has not reached the copy yet
    device.run()
    tracer.read()
    [span] = tracer.records.spans
    assert tracer.records.begin_ns <= span.begin_ns <= span.end_ns
    tracer.close()


# Loaders


class Squares:
    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, index: int) -> NDArray[Any]:
        return np.full(3, index**2)


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_all_passes_of_a_loader_are_recorded_and_their_workers(start_method: str) -> None:
    loader = DataLoader(Squares(), BATCH, num_workers=2, multiprocessing_context=start_method)
    with loader.trace() as trace:
        for _ in range(2):
            for _ in loader:
                pass
    assert len(spans_of(trace.records, "run")) == 2 * (BATCHES + 1)
    tasks = [span.details for span in tasks_of(trace.records)]
    made = [(details["iteration"], int(details["samples"].split()[0])) for details in tasks]  # counted within the batch
    assert sorted(made) == sorted(2 * [(i, first) for i in range(BATCHES) for first in range(BATCH)])


def test_workers_that_are_kept_are_recorded_from_the_first_task_of_a_pass_on() -> None:
    loader = DataLoader(Squares(), BATCH, num_workers=2, multiprocessing_context="fork", persistent_workers=True)
    list(loader)
    with loader.trace() as trace:
        list(loader)
    made = {(span.details["iteration"], span.details["samples"]) for span in tasks_of(trace.records)}
    assert len(made) == BATCHES * BATCH
    loader._iterator = None


def test_a_trace_does_not_keep_the_memory_of_passes_that_have_ended() -> None:
    loader = DataLoader(Squares(), BATCH, num_workers=1, multiprocessing_context="fork")
    mapped = []
    with loader.trace():
        for _ in range(3):
            for _ in loader:
                pass
            gc.collect()
            mapped.append(Path("/proc/self/maps").read_bytes().count(b"/memfd:dali_like "))
    assert mapped == mapped[:1] * 3


def test_a_loader_without_workers_is_recorded() -> None:
    loader = DataLoader(Squares(), BATCH)
    with loader.trace() as trace:
        for _ in loader:
            pass
    assert len(spans_of(trace.records, "run")) == BATCHES + 1


def test_a_pass_that_has_begun_is_recorded_from_the_beginning_of_the_trace_to_its_end() -> None:
    loader = DataLoader(Squares(), BATCH, num_workers=1, multiprocessing_context="fork")
    made = iter(loader)
    next(made)
    with loader.trace() as trace:
        next(made)
    next(made)
    assert len(spans_of(trace.records, "run")) == 1


def test_workers_of_a_pass_that_is_dropped_end_while_it_is_traced() -> None:
    loader = DataLoader(Squares(), BATCH, num_workers=1, multiprocessing_context="fork")
    with loader.trace():
        made = iter(loader)
        next(made)
        [worker] = made._workers
        del made
        wait_until(lambda: not worker.is_alive(), "the end of the worker")


# The file


def records_of_all_kinds() -> Records:
    records = Records(begin_ns=1000, end_ns=9000, lost=1, dropped=2)
    records.spans = [
        Span(MAIN_THREAD, "run", 1000, 2500, {"number": 0}),
        Span(Track(WORKERS, "worker 2"), "source", 1250, 2250, {"samples": "0 to 3"}),
        Span(Track(WORKERS, "worker 10"), "source", 1250, 2250, {}),
        Span(Track(GPU, "GPU 0"), "to the GPU", 3000, 4001, {"bytes": 7}),
    ]
    records.counts = [Count("batches", 1500, {"ready": 1, "slots_in_use": 2})]
    return records


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = records_of_all_kinds()
    chrome.write(records, tmp_path / "run.json")
    assert chrome.load(tmp_path / "run.json") == records


def test_a_file_is_of_the_trace_event_format() -> None:
    trace = chrome.as_json(records_of_all_kinds())
    by_phase: dict[str, list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        by_phase.setdefault(event["ph"], []).append(event)
    threads = [event for event in by_phase["M"] if event["name"] == "thread_name"]
    assert [event["args"]["name"] for event in threads] == ["main thread", "worker 2", "worker 10", "GPU 0"]
    assert all({"name", "cat", "pid", "tid", "ts", "dur", "args"} <= set(event) for event in by_phase["X"])
    assert by_phase["X"][1]["ts"], by_phase["X"][1]["dur"] == (0.25, 1.0)  # microseconds
    assert by_phase["C"] == [{"ph": "C", "name": "batches", "pid": 0, "ts": 0.5, "args": {"ready": 1, "slots_in_use": 2}}]
    assert {event["tid"] for event in by_phase["X"]} == {event["tid"] for event in threads}


def _run_and_raise(pipe: Pipeline) -> None:
    pipe.run()
    raise ZeroDivisionError


def test_the_file_is_written_when_the_context_is_left_also_by_an_error(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    pipe = make_pipeline(numbered, "serial")
    pipe.run()
    with pytest.raises(ZeroDivisionError), pipe.trace(tmp_path / "run.json"):
        _run_and_raise(pipe)
    assert len(spans_of(chrome.load(tmp_path / "run.json"), "run")) == 1


def records_with_a_slow_task() -> Records:
    """Return twenty tasks of 2 ms, of which one takes 50 ms, and parts of tasks, which do not count."""
    records = Records(0, 2 * 10**9)
    for i in range(20):
        track, begin_ns = Track(WORKERS, f"worker {i % 2}"), i * 10**8
        end_ns = begin_ns + (50 if i == 13 else 2) * 10**6
        records.spans.append(Span(track, "load", begin_ns, end_ns, {"samples": f"{i} to {i}"}))
        records.spans.append(Span(track, "callback", begin_ns, end_ns, {PART_OF: "load"}))
    return records


def test_a_slow_task_has_a_mark_on_its_track() -> None:
    events = chrome.as_json(records_with_a_slow_task())["traceEvents"]
    (track,) = {event["tid"] for event in events if event["ph"] == "M" and event["args"].get("name") == "worker 1"}

    (mark,) = [event for event in events if event["ph"] == "i"]
    assert (mark["name"], mark["ts"], mark["tid"]) == ("slow: 25 times the median", 1.3e6, track)
    assert mark["args"] == {"samples": "13 to 13"}


def test_marks_are_left_out_when_a_trace_is_read(tmp_path: Path) -> None:
    chrome.write(records_with_a_slow_task(), tmp_path / "run.json")

    assert sorted(chrome.load(tmp_path / "run.json").spans) == sorted(records_with_a_slow_task().spans)


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"otherData": {"made_by": "chrome"}}', "\xff"])
def test_a_file_that_is_no_trace_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(TraceFileError, match=r"run\.json is not a trace"):
        chrome.load(path)


def test_a_trace_is_json_with_any_name_of_a_source(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    pipe = make_pipeline(numbered, "serial", source_options={"name": 'a "quoted" \n näme'})
    with pipe.trace(tmp_path / "run.json"):
        pipe.run()
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["traceEvents"]


# NVTX


def test_nvtx_ranges_are_nested(make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nvtx:
        def __init__(self) -> None:
            self.open: list[str] = []
            self.seen: set[str] = set()

        def push_range(self, message: str, domain: str) -> None:
            self.open.append(message)
            self.seen.add(f"{domain}: {message}")

        def pop_range(self, domain: str) -> None:
            self.open.pop()

    nvtx = Nvtx()
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    pipe = make_pipeline(numbered, "serial")
    with pipe.trace(nvtx=True):
        pipe.run()
        assert nvtx.open == ["step"]
        pipe.run()
    assert not nvtx.open
    assert nvtx.seen == {"dali_like: run", "dali_like: step", "dali_like: serial source"}


def test_without_nvtx_the_extra_is_named(make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(ImportError, match=r"pip install 'nvtx>="):
        make_pipeline(numbered, "serial").trace(nvtx=True)


# Pictures


@pytest.mark.usefixtures("fonts")
def test_a_picture_is_drawn_of_the_last_trace(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    pipe = make_pipeline(numbered)
    with pipe.trace():
        for _ in pipe:
            pass
    pipe.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_shows_the_cost_of_waiting() -> None:
    pytest.importorskip("matplotlib")
    from dali_like.monitor.trace.picture import BatchCost, batch_costs

    records = Records(0, 100)
    for name, begin, end in [("run", 0, 10), ("wait", 2, 5), ("wait", 6, 8), ("step", 10, 30), ("run", 30, 40)]:
        records.spans.append(Span(MAIN_THREAD, name, begin, end, {}))
    assert batch_costs(records) == [BatchCost(0, 5, 5, 20), BatchCost(30, 0, 10, 0)]


def texts_of(path: Path) -> str:
    """Return the texts of an SVG, which Matplotlib repeats in comments."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", path.read_text("utf-8")))


@pytest.mark.usefixtures("fonts")
def test_a_picture_has_the_diagnosis_the_operators_and_the_memory(tmp_path: Path) -> None:
    from dali_like.monitor.trace.picture import draw

    worker = Track(WORKERS, "worker 0")
    diagnosis = {"bottleneck": "operators", "sentence": "The loop waits.", "advice": "", "expected": ""}
    records = Records(0, 100, diagnosis=diagnosis)
    records.spans += [
        Span(worker, "source", 0, 50, {}),
        Span(worker, "fn.resize_0", 10, 40, {PART_OF: "source"}),
    ]
    records.counts += [Count("batches", 5, {"ready": 1, "slots_in_use": 2}), Count("shared memory", 5, {"bytes": 1 << 20})]
    draw(records, tmp_path / "run.svg")

    texts = texts_of(tmp_path / "run.svg").splitlines()
    assert {"Bottleneck: operators", "The loop waits.", "fn.resize_0", "slots in use", "shared memory", "MiB"} <= set(texts)


@pytest.mark.usefixtures("fonts")
def test_a_picture_marks_slow_tasks(tmp_path: Path) -> None:
    from dali_like.monitor.trace.picture import draw

    draw(records_with_a_slow_task(), tmp_path / "run.svg")

    assert "slow task (1)" in texts_of(tmp_path / "run.svg")


@pytest.mark.usefixtures("fonts")
def test_a_picture_of_nothing_can_be_drawn(tmp_path: Path) -> None:
    from dali_like.monitor.trace.picture import draw

    draw(Records(0, 1), tmp_path / "run.svg")
    assert "<svg" in (tmp_path / "run.svg").read_text(encoding="utf-8")


def test_a_pipeline_that_was_not_traced_cannot_be_plotted(make_pipeline: MakePipeline) -> None:
    with pytest.raises(PipelineStateError, match="no trace to plot"):
        make_pipeline(numbered, "serial").plot("run.png")


def test_without_matplotlib_the_extra_is_named(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    pipe = make_pipeline(numbered, "serial")
    with pipe.trace():
        pipe.run()
    with pytest.raises(ImportError, match=r"pip install 'matplotlib>="):
        pipe.plot(tmp_path / "run.png")
