"""Limits: memory, address space and descriptors that run out, and sizes at both ends.

A shortage is a typed error that says what is needed, what there is and which knob turns it. It costs nothing: what is held
keeps its bytes, and once the cause is gone `run` delivers the very next batch.
"""

from __future__ import annotations

import functools
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def
from dali_like.data.loader import DataLoader
from dali_like.engine.memory import space
from dali_like.engine.memory.limits import (
    available_bytes,
    available_cpus,
    memory_limit,
    oom_kills,
    oom_kills_in_machine,
    processes_left,
)
from dali_like.engine.worker import task
from dali_like.errors import OutOfMemoryError
from dali_like.tensors import TensorListCPU
from dali_like.types import SampleInfo
from tests.conftest import in_both_places
from tests.faults.programs import Program

MakePipeline = Callable[..., Pipeline]
Source = Callable[[SampleInfo], NDArray[Any]]
StartProgram = Callable[..., Program]

BATCH_SIZE = 4
MIB = 1 << 20


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartProgram]:
    """Starts a program; see `Program`. In the end it must have left neither processes nor files behind."""
    programs: list[Program] = []

    def start(text: str, *arguments: str) -> Program:
        programs.append(Program(tmp_path, (text,), arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.finish()


# Sources


def dense(info: SampleInfo) -> NDArray[Any]:
    """A quarter of a MiB, with the index in it."""
    return np.full(1 << 16, info.idx_in_epoch, np.uint32)


def ragged(info: SampleInfo) -> NDArray[Any]:
    """As large, but each of another length: these go to regions, which workers put memory behind."""
    return np.full((1 << 16) + info.idx_in_epoch % 7, info.idx_in_epoch, np.uint32)


@pytest.fixture(params=[dense, ragged], ids=["dense", "ragged"])
def source(request: pytest.FixtureRequest) -> Source:
    """Samples that lie in rows, and samples that lie in regions."""
    made: Source = request.param
    return made


def is_right(batch: TensorListCPU, source: Source, iteration: int) -> bool:
    """Return whether a batch has exactly the source's values for this iteration."""
    first = iteration * BATCH_SIZE
    made = [source(SampleInfo(first + i, i, iteration, 0)) for i in range(BATCH_SIZE)]
    return len(batch) == len(made) and all(np.array_equal(batch.at(i), sample) for i, sample in enumerate(made))


def hold_until_no_memory(pipe: Pipeline, held: list[TensorListCPU]) -> OutOfMemoryError:
    """Take batches, and keep them, until there is no memory for more."""
    while len(held) < 200:
        try:
            held.append(pipe.run()[0])
        except OutOfMemoryError as error:
            return error.with_traceback(None)
    return pytest.fail("200 batches were held, and no limit was met")


# How much there is


class Machine:
    """A made-up machine: the files that say how much memory there is, in a folder that takes the place of ``/``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write({"proc/meminfo": meminfo(1 << 40)})

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def meminfo(available: int) -> str:
    return f"MemTotal:  {1 << 31} kB\nMemFree:   1 kB\nMemAvailable:  {available >> 10} kB\nBuffers:  1 kB\n"


def v2(group: str, limit: int | str, used: int, cache: int = 0) -> dict[str, str]:
    """A control group of version 2; `cache` is the evictable part of its use."""
    folder = f"sys/fs/cgroup{group}"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": f"anon 5\nfile 99999\ninactive_file {cache}\nactive_file 99999\n",
    }


def v1(group: str, limit: int, used: int, cache: int = 0) -> dict[str, str]:
    """A control group of version 1; `cache` is the evictable part of its use and of its inner groups' use."""
    folder = f"sys/fs/cgroup/memory{group}"
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": f"cache 99999\ninactive_file 0\nactive_file 5\ntotal_inactive_file {cache}\n",
    }


UNLIMITED_V1 = 9223372036854771712


def membership(group: str, version: int) -> dict[str, str]:
    """The text of /proc/self/cgroup for a process in this group."""
    lines = {1: f"12:pids:{group}\n5:cpu,memory:{group}\n1:name=systemd:{group}\n0::/user.slice\n", 2: f"0::{group}\n"}
    return {"proc/self/cgroup": lines[version]}


class TestAvailableMemory:
    @pytest.mark.parametrize("tight", ["/job", "/job/step", "/job/step/task"])
    def test_is_that_of_the_tightest_group_wherever_it_is(self, tight: str, machine: Machine) -> None:
        machine.write(membership("/job/step/task", 2))
        for group in ("/job", "/job/step", "/job/step/task"):
            machine.write(v2(group, 10_000 if group == tight else 50_000, 7_000))

        assert available_bytes(machine.root) == 3_000

    @pytest.mark.parametrize("tight", ["/job", "/job/step", "/job/step/task"])
    def test_is_that_of_the_tightest_group_also_in_version_1(self, tight: str, machine: Machine) -> None:
        machine.write(membership("/job/step/task", 1))
        for group in ("", "/job", "/job/step", "/job/step/task"):
            machine.write(v1(group, 10_000 if group == tight else UNLIMITED_V1, 7_000))

        assert available_bytes(machine.root) == 3_000

    @pytest.mark.parametrize("group", ["/", "/not/here", "/../../host"])
    @pytest.mark.parametrize("version", [1, 2])
    def test_is_found_in_a_container_with_its_own_group_at_the_top(self, version: int, group: str, machine: Machine) -> None:
        machine.write(membership(group, version))
        machine.write(v1("", 10_000, 7_000) if version == 1 else v2("", 10_000, 7_000))

        assert available_bytes(machine.root) == 3_000

    @pytest.mark.parametrize("version", [1, 2])
    def test_counts_page_cache_that_gives_way(self, version: int, machine: Machine) -> None:
        machine.write(membership("/job", version))
        machine.write(v1("/job", 10_000, 9_000, cache=4_000) if version == 1 else v2("/job", 10_000, 9_000, cache=4_000))

        assert available_bytes(machine.root) == 5_000

    def test_is_zero_and_not_negative_for_a_group_over_its_limit(self, machine: Machine) -> None:
        machine.write(membership("/job", 2) | v2("/job", 10_000, 12_000))

        assert available_bytes(machine.root) == 0

    def test_does_not_count_page_cache_in_a_group_over_its_limit(self, machine: Machine) -> None:
        machine.write(membership("/job", 2) | v2("/job", 10_000, 12_000, cache=3_000))

        assert available_bytes(machine.root) == 1_000

    def test_is_never_more_than_the_machine_has(self, machine: Machine) -> None:
        machine.write({"proc/meminfo": meminfo(2_048_000)} | membership("/job", 2) | v2("/job", 10_000_000, 0))

        assert available_bytes(machine.root) == 2_048_000

    def test_is_found_for_a_group_with_colons_in_its_name(self, machine: Machine) -> None:
        """As container runtimes give them."""
        machine.write(membership("/system.slice:docker:3f2a", 2) | v2("/system.slice:docker:3f2a", 10_000, 7_000))

        assert available_bytes(machine.root) == 3_000

    @pytest.mark.parametrize(
        "files",
        [
            {},
            membership("/job", 1),
            membership("/job", 2),
            membership("/job", 2) | v2("/job", "max", 5),
            membership("/job", 2) | {"sys/fs/cgroup/job/memory.max": "5\n"},
        ],
        ids=["no group", "version 1", "version 2", "no limit", "nobody knows how much is used"],
    )
    def test_is_that_of_the_machine_where_no_group_limits_it(self, files: dict[str, str], machine: Machine) -> None:
        machine.write({"proc/meminfo": meminfo(2_048_000)} | files)

        assert available_bytes(machine.root) == 2_048_000


@pytest.mark.parametrize(
    ("files", "count"),
    [
        (membership("/job/step", 1) | {"sys/fs/cgroup/memory/job/step/memory.oom_control": "under_oom 0\noom_kill 3\n"}, 3),
        (membership("/job/step", 2) | {"sys/fs/cgroup/job/step/memory.events": "max 9\noom 4\noom_kill 3\n"}, 3),
        (membership("/host/job", 2) | {"sys/fs/cgroup/memory.events": "max 9\noom 4\noom_kill 3\n"}, 3),
        (membership("/job", 1) | {"sys/fs/cgroup/memory/job/memory.oom_control": "under_oom 0\n"}, None),
        (membership("/job", 2), None),
        ({}, None),
    ],
    ids=["version 1", "version 2", "in a container", "old kernel", "no controller", "no groups"],
)
def test_kills_for_lack_of_memory_are_those_of_the_group(files: dict[str, str], count: int | None, machine: Machine) -> None:
    machine.write(files)

    assert oom_kills(machine.root) == count


@pytest.mark.parametrize(("files", "count"), [({"proc/vmstat": "nr_free_pages 9\noom_kill 3\n"}, 3), ({}, None)])
def test_kills_for_lack_of_memory_in_the_machine(files: dict[str, str], count: int | None, machine: Machine) -> None:
    machine.write(files)

    assert oom_kills_in_machine(machine.root) == count


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("outer", "inner", "tightest"), [(900, 700, "/job/step"), (700, 900, "/job"), (9000, 9000, None)])
def test_limit_of_memory_is_the_tightest(
    outer: int, inner: int, tightest: str | None, version: int, machine: Machine
) -> None:
    top, name = ("sys/fs/cgroup/memory", "limit_in_bytes") if version == 1 else ("sys/fs/cgroup", "max")
    machine.write({"proc/meminfo": "MemTotal: 1 kB\nMemAvailable: 0 kB\n"} | membership("/job/step", version))
    for group, limit_bytes in (("/job", outer), ("/job/step", inner)):
        machine.write({f"{top}{group}/memory.{name}": f"{limit_bytes}\n"})

    limit, file = memory_limit(machine.root)

    assert limit == min(outer, inner, 1024)
    assert file == (f"{machine.root}/{top}{tightest}/memory.{name}" if tightest else "")


@pytest.mark.parametrize("quotas", [("50000", "200000"), ("200000", "50000"), ("max", "50000"), ("50000", "max")])
def test_processors_are_those_of_the_tightest_group(quotas: tuple[str, str], machine: Machine) -> None:
    machine.write(membership("/job/step", 2))
    for group, quota in zip(("/job", "/job/step"), quotas, strict=True):
        machine.write({f"sys/fs/cgroup{group}/cpu.max": f"{quota} 100000\n"})

    assert available_cpus(machine.root) == 0.5


def test_processors_are_not_limited_by_groups_of_another_kind(machine: Machine) -> None:
    """For example the groups of "cpuset"."""
    machine.write({"proc/self/cgroup": "6:cpuset:/others\n5:cpu,cpuacct:/job\n"})
    for group, quota in (("others", 20_000), ("job", 50_000)):
        folder = f"sys/fs/cgroup/cpu/{group}"
        machine.write({f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": "100000\n"})

    assert available_cpus(machine.root) == 0.5


@pytest.mark.parametrize(
    ("quota", "period"),
    [("-1", "100000"), ("50000", None), (None, "100000")],
    ids=["no quota", "no period", "a period only"],
)
def test_processors_are_not_limited_by_a_quota_without_a_period_or_the_reverse(
    quota: str | None, period: str | None, machine: Machine
) -> None:
    machine.write({"proc/self/cgroup": "5:cpu,cpuacct:/job\n"})
    for name, text in (("quota", quota), ("period", period)):
        if text is not None:
            machine.write({f"sys/fs/cgroup/cpu/job/cpu.cfs_{name}_us": f"{text}\n"})

    assert available_cpus(machine.root) == len(os.sched_getaffinity(0))


def test_processors_are_never_more_than_there_are_for_the_process(machine: Machine) -> None:
    machine.write(membership("/job", 2) | {"sys/fs/cgroup/job/cpu.max": "100000000 100000\n"})

    assert available_cpus(machine.root) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("most", "used", "left"), [("9", 6, 3), ("9", 12, 0), ("max", 6, None)])
@pytest.mark.parametrize("version", [1, 2])
def test_processes_left_are_those_of_the_group(
    most: str, used: int, left: int | None, version: int, machine: Machine
) -> None:
    folder = "sys/fs/cgroup/pids/job" if version == 1 else "sys/fs/cgroup/job"
    machine.write(membership("/job", version))
    machine.write({f"{folder}/pids.max": f"{most}\n", f"{folder}/pids.current": f"{used}\n"})

    assert processes_left(machine.root) == left


def test_processes_left_are_unlimited_if_their_number_is_unknown(machine: Machine) -> None:
    machine.write(membership("/job", 2) | {"sys/fs/cgroup/job/pids.max": "9\n"})

    assert processes_left(machine.root) is None


#: Where 100 KiB are left, and where there is plenty again.
SHORTAGES = {
    "machine": ({"proc/meminfo": meminfo(100 << 10)}, {"proc/meminfo": meminfo(1 << 40)}),
    "group of version 2": (membership("/job/step", 2) | v2("/job", (9 << 30) + (100 << 10), 9 << 30), v2("/job", "max", 0)),
    "group of version 1": (
        membership("/job/step", 1) | v1("/job", (9 << 30) + (100 << 10), 9 << 30),
        v1("/job", UNLIMITED_V1, 0),
    ),
}


class TestLittleMemory:
    @pytest.mark.parametrize("way", ["serial", "fork"])  # forked workers look at the made-up machine too
    @pytest.mark.parametrize("shortage", SHORTAGES)
    def test_is_seen_before_it_is_taken(
        self,
        shortage: str,
        way: str,
        source: Source,
        make_pipeline: MakePipeline,
        machine: Machine,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        scarce, plenty = SHORTAGES[shortage]
        monkeypatch.setattr(
            "dali_like.engine.memory.space.available_bytes", functools.partial(available_bytes, machine.root)
        )
        pipe = make_pipeline(source, way)
        held = [pipe.run()[0] for _ in range(3)]

        machine.write(scarce)
        error = hold_until_no_memory(pipe, held)

        assert re.search(r"need \d+\.\d MiB more, and 0\.1 MiB are available", str(error))
        assert "give the process more memory" in str(error)
        machine.write(plenty)
        held += [pipe.run()[0] for _ in range(5)]
        assert all(is_right(batch, source, n) for n, batch in enumerate(held))

    def test_costs_nothing_but_an_error(self, way: str, source: Source, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(source, way, max_held_bytes=24 * MIB)
        held: list[TensorListCPU] = []

        error = hold_until_no_memory(pipe, held)

        assert re.search(r"need \d+\.\d MiB more; the limit is 24\.0 MiB", str(error))
        assert "max_held_bytes" in str(error)
        count = len(held)
        assert count >= 4
        assert all(is_right(batch, source, n) for n, batch in enumerate(held))
        held.clear()
        assert all(is_right(pipe.run()[0], source, n) for n in range(count, count + 8))

    def test_is_an_error_again_for_as_long_as_it_lasts(self, way: str, source: Source, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(source, way, max_held_bytes=24 * MIB)
        held: list[TensorListCPU] = []
        hold_until_no_memory(pipe, held)

        for _ in range(5):
            with pytest.raises(OutOfMemoryError, match="max_held_bytes"):
                pipe.run()

        count = len(held)
        held.clear()
        assert is_right(pipe.run()[0], source, count)

    def test_ends_when_some_of_the_batches_are_released(self, way: str, source: Source, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(source, way, max_held_bytes=48 * MIB)
        held: list[TensorListCPU] = []
        released = 0

        for _ in range(4):
            hold_until_no_memory(pipe, held)
            count = released + len(held)
            del held[:4]  # as many as are computed ahead, with the next
            released += 4
            held.append(pipe.run()[0])
            assert is_right(held[-1], source, count)

    def test_may_be_too_little_for_any_batch(self, way: str, source: Source, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(source, way, max_held_bytes=256 << 10)

        for _ in range(3):
            with pytest.raises(OutOfMemoryError, match=r"the limit is 0\.2 MiB.*max_held_bytes"):
                pipe.run()

    @pytest.mark.parametrize("on_error", ["skip", lambda info, error: np.zeros(0, np.uint32)], ids=["skip", "callable"])
    def test_is_nothing_that_on_error_is_about(self, on_error: Any, way: str, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(ragged, way, max_held_bytes=24 * MIB, source_options={"on_error": on_error})
        held: list[TensorListCPU] = []

        hold_until_no_memory(pipe, held)

        assert all(is_right(batch, ragged, n) for n, batch in enumerate(held))
        assert pipe.statistics().replaced_samples == 0

    def test_while_samples_grow_ends_with_the_samples_that_are_too_large(
        self, start_method: str, make_pipeline: MakePipeline
    ) -> None:
        def source(info: SampleInfo) -> NDArray[Any]:
            size = 20 * MIB if info.iteration == 3 else 1000 + info.idx_in_epoch
            return np.full(size, info.idx_in_epoch % 251, np.uint8)

        pipe = make_pipeline(source, start_method, max_held_bytes=32 * MIB)

        batches = [[int(sample[0]) for sample in map(np.asarray, pipe.run()[0])] for _ in range(3)]

        assert batches == [[4 * n + i for i in range(4)] for n in range(3)]
        with pytest.raises(OutOfMemoryError, match="max_held_bytes"):
            pipe.run()

    def test_for_the_results_of_operators_costs_nothing_but_an_error(self) -> None:
        simplejpeg = pytest.importorskip("simplejpeg")

        def jpeg(info: SampleInfo) -> NDArray[Any]:
            pixels = np.full((256, 256, 3), info.idx_in_epoch % 251, np.uint8)
            return np.frombuffer(simplejpeg.encode_jpeg(pixels, quality=100), np.uint8)

        @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, py_num_workers=1, max_held_bytes=24 * MIB)
        def images() -> Any:
            return fn.decoders.image(fn.external_source(source=jpeg, batch=False, parallel=True))

        pipe = images()
        held: list[TensorListCPU] = []

        error = hold_until_no_memory(pipe, held)
        count = len(held)
        held.clear()
        after = [pipe.run()[0].as_array()[:, 100, 100, 0].tolist() for _ in range(4)]
        pipe.close()

        assert "max_held_bytes" in str(error)
        assert np.abs(np.array(after) - np.arange(4 * count, 4 * count + 16).reshape(4, 4)).max() <= 1

    @pytest.mark.parametrize("num_threads", [1, 2])
    def test_for_a_batch_of_operators_is_given_back_by_those_ahead_of_it(self, num_threads: int) -> None:
        sizes = [1, 3, 1, 1]  # of batches whose samples become 4 MiB each

        def batch(i: int) -> NDArray[Any]:
            if i == len(sizes):
                raise StopIteration
            return np.full(sizes[i], i, np.int32)

        @pipeline_def(batch_size=3, num_threads=num_threads, prefetch_queue_depth=3, max_held_bytes=15 * MIB)
        def large() -> Any:
            return fn.one_hot(fn.external_source(batch), num_classes=MIB)

        with large() as pipe:
            first = pipe.run()[0]  # beside it there is room for each batch but the next
            with pytest.raises(OutOfMemoryError):
                pipe.run()
            del first
            after = [pipe.run()[0].as_array().argmax(axis=1).tolist() for _ in sizes[1:]]

        assert after == [[1, 1, 1], [2], [3]]

    def test_in_a_callback_is_an_exception_like_any_other(self, start: StartProgram, start_method: str) -> None:
        program = start(LITTLE_ADDRESS_SPACE, start_method, "greedy")

        end = program.end()

        assert (end.status, end.stderr) == (0, "")
        assert program.lines("batch") == [0, 1, 3, 4]
        assert program.lines("error") == ["MemoryError"]


#: Samples of 1 MiB. "hold": all batches are held until the end of the address space. "greedy": one callback wants too much.
LITTLE_ADDRESS_SPACE = """
import json, resource
import numpy as np
from dali_like import errors, fn, pipeline_def

limit = 1 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
start_method, what = sys.argv[1:]
MIB = 1 << 20

def source(info):
    if what == "greedy" and info.idx_in_epoch == 9:
        np.ones(2 << 30, np.uint8)
    return np.full(MIB, info.idx_in_epoch % 251, np.uint8)

@pipeline_def(batch_size=4, py_num_workers=1, py_start_method=start_method, max_held_bytes=1 << 40)
def pipeline():
    return fn.external_source(source=source, batch=False, parallel=True)

def number(batch):
    first = int(batch.at(0)[0])
    assert all((batch.at(i) == (first + i) % 251).all() for i in range(4))
    return first // 4

pipe = pipeline()
held = []
for _ in range(5 if what == "greedy" else 200):
    try:
        held.append(pipe.run()[0])
    except MemoryError as error:
        if what == "greedy":
            tell(f"error: {json.dumps(type(error).__mro__[-4].__name__)}")
            continue
        tell(f"error: {json.dumps([type(error).__name__, str(error)])}")
        break
if what == "hold":
    tell(f"held: {len(held)}")
    assert [number(batch) for batch in held] == list(range(len(held)))
    held.clear()
    held = [pipe.run()[0] for _ in range(5)]
for batch in held:
    tell(f"batch: {number(batch)}")
pipe.close()
"""


def test_little_address_space_costs_nothing_but_an_error(start: StartProgram, start_method: str) -> None:
    program = start(LITTLE_ADDRESS_SPACE, start_method, "hold")

    end = program.end()

    assert (end.status, end.stderr) == (0, "")
    ((kind, message),) = program.lines("error")
    assert kind == "OutOfMemoryError"
    assert "MiB are left of" in message
    assert "ulimit -v" in message
    (count,) = program.lines("held")
    assert count >= 4
    assert program.lines("batch") == list(range(count, count + 5))


def test_hundred_pipelines_and_loaders_on_a_machine_with_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has an address space of its own, and a process has 128 TiB for all of them."""
    monkeypatch.setattr(space, "available_bytes", lambda: 64 << 40)
    pipes = [scalars_in_a_thread() for _ in range(50)]
    loaders = [iter(DataLoader(range(8), 4, num_workers=1, multiprocessing_context="thread")) for _ in range(50)]

    with ExitStack() as stack:
        for pipe in pipes:
            stack.callback(pipe.close)
        batches = [pipe.run()[0].as_array() for pipe in pipes] + [next(loader) for loader in loaders]

        assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3]] * 100


@pipeline_def(batch_size=4, py_num_workers=1, py_start_method="thread")
def scalars_in_a_thread() -> Any:
    """The index of each sample."""
    return fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False, parallel=True)


# Descriptors


#: Builds pipelines until there is no descriptor left for one, uses them, closes them. "open" and "children" count files
#: and processes before and after.
MANY_PIPELINES = """
import gc, json, resource
import numpy as np, psutil
from dali_like import errors, fn, pipeline_def

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

@pipeline_def(batch_size=2, py_num_workers=1, py_start_method=sys.argv[1])
def pipeline(number):
    source = lambda info: np.int64([number, info.idx_in_epoch])
    return fn.external_source(source=source, batch=False, parallel=True)

def first_batch(pipe):
    return pipe.run()[0].as_array().tolist()

def count():
    gc.collect()
    return [len(os.listdir("/proc/self/fd")), len(psutil.Process().children(recursive=True))]

tell(f"before: {count()}")
pipes = []
for number in range(64):
    pipe = pipeline(number)
    try:
        pipe.build()
    except errors.DescriptorLimitError as error:
        tell(f"error: {json.dumps([error.errno, str(error)])}")
        break
    pipes.append(pipe)
tell(f"right: {json.dumps([first_batch(pipe) == [[n, 0], [n, 1]] for n, pipe in enumerate(pipes)])}")
for _ in range(2):  # the start of an interpreter takes some more for a moment
    pipes.pop(0).close()
tell(f"another: {json.dumps(first_batch(pipe))}")
for pipe in [*pipes, pipe]:
    pipe.close()
del pipe
pipes.clear()
tell(f"after: {count()}")
"""


def test_descriptors_that_run_out_leave_all_other_pipelines_alone(start: StartProgram) -> None:
    program = start(MANY_PIPELINES, "fork")

    end = program.end()

    assert (end.status, end.stderr) == (0, "")
    (right,) = program.lines("right")
    assert len(right) >= 4
    assert all(right)
    ((number, message),) = program.lines("error")
    assert number == 24
    assert "ulimit -n" in message
    assert program.lines("another") == [[[len(right), 0], [len(right), 1]]]  # the one that was refused before
    assert program.lines("after") == program.lines("before")


#: Builds a pipeline while so and so many descriptors are left; then, if there were too few, when they are there again.
FEW_DESCRIPTORS = """
import json, resource
import numpy as np
from dali_like import errors, fn, pipeline_def

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

@pipeline_def(batch_size=2, py_num_workers=3, py_start_method=sys.argv[1])
def pipeline():
    return fn.external_source(source=lambda info: np.int64(info.idx_in_epoch), batch=False, parallel=True)

def outcome(pipe):
    try:
        return pipe.run()[0].as_array().tolist()
    except Exception as error:
        return type(error).__name__

for left in range(24):
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for fd in taken[:left]:
        os.close(fd)
    pipe = pipeline()
    first = outcome(pipe)
    for fd in taken[left:]:
        os.close(fd)
    tell(f"{left}: {json.dumps([first, outcome(pipe)])}")
    pipe.close()
"""


def test_with_any_number_of_descriptors_a_pipeline_runs_or_raises_a_typed_error(
    start: StartProgram, start_method: str
) -> None:
    program = start(FEW_DESCRIPTORS, start_method)

    end = program.end()

    outcomes = {left: program.lines(str(left))[0] for left in range(24)}
    refused, delivered = ["DescriptorLimitError", [0, 1]], [[0, 1], [2, 3]]
    assert {left: seen for left, seen in outcomes.items() if seen not in (refused, delivered)} == {}
    assert outcomes[0] == refused
    assert outcomes[23] == delivered
    assert (end.status, end.stderr) == (0, "")


# Sizes


def test_sample_above_4_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pages get memory when they are first written. All 4 GiB would take slow machines more than a minute.
    monkeypatch.setattr(space, "available_bytes", lambda: 64 << 30)
    monkeypatch.setattr(space, "put_memory_behind", lambda fd, offset, nbytes: None)
    monkeypatch.setattr(task, "map_pages", lambda mapping, offset, nbytes: None)
    nbytes = (1 << 32) + 8
    places = [0, (1 << 31) - 1, 1 << 31, nbytes - 1]

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration > 0:
            raise StopIteration
        sample = info.empty(nbytes)  # new memory of the batch: zeros
        sample[places] = [1, 2, 3, 4]
        return sample

    pipe = Pipeline(1, 1, prefetch_queue_depth=1, py_num_workers=1, max_held_bytes=3 * nbytes)
    pipe.set_outputs(fn.external_source(source=source, batch=False, parallel=True))

    (batch,) = pipe.run()

    array = batch.as_array()
    assert array.shape == (1, nbytes)
    assert array[0, places].tolist() == [1, 2, 3, 4]
    assert not array[0, [1, (1 << 31) + 1, nbytes - 2]].any()
    with pytest.raises(StopIteration):
        pipe.run()
    pipe.close()


@pytest.mark.parametrize(
    "shapes",
    [
        [(0,)],
        [(0, 3)],
        [(3, 0, 2)],
        [(0, 3), (2, 3)],
        [(2, 3), (0, 3), (0, 3)],
        [(0, 3)] * 8 + [(2, 3)] * 8,
        [(2, 3)] * 8 + [(0, 5_000_000)] * 8,
    ],
    ids=str,
)
@in_both_places
def test_samples_of_no_size(shapes: Sequence[tuple[int, ...]], way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        return np.full(shapes[info.idx_in_epoch % len(shapes)], info.idx_in_epoch, np.int16)

    pipe = make_pipeline(source, way)

    batches = [pipe.run()[0] for _ in range(8)]

    expected = [shapes[n % len(shapes)] for n in range(32)]
    assert [shape for batch in batches for shape in batch.shape()] == expected
    assert all((batch.at(i) == 4 * n + i).all() for n, batch in enumerate(batches) for i in range(4))


def test_batches_of_one_sample(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        return np.full(1 + info.idx_in_epoch // 5, info.idx_in_epoch)

    pipe = make_pipeline(source, way, batch_size=1)

    batches = [pipe.run()[0].as_array().tolist() for _ in range(30)]

    assert batches == [[[n] * (1 + n // 5)] for n in range(30)]


def test_batches_of_a_hundred_thousand_samples(make_pipeline: MakePipeline) -> None:
    size = 100_000
    pipe = make_pipeline(lambda info: np.int32(info.idx_in_epoch), "fork", batch_size=size)

    for iteration in range(3):
        assert np.array_equal(pipe.run()[0].as_array(), np.arange(iteration * size, (iteration + 1) * size))


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_batches_of_a_hundred_thousand_samples_of_different_lengths(way: str, make_pipeline: MakePipeline) -> None:
    size = 100_000
    pipe = make_pipeline(lambda info: np.full(info.idx_in_epoch % 3, info.idx_in_epoch), way, batch_size=size)

    for iteration in range(2):
        (batch,) = pipe.run()
        indices = range(iteration * size, (iteration + 1) * size)
        assert [len(batch.at(i)) for i in range(size)] == [index % 3 for index in indices]
        assert all((batch.at(i) == indices[i]).all() for i in range(0, size, 997))


def test_memory_of_batches_that_are_ready_goes_to_the_one_that_is_due(
    make_pipeline: MakePipeline, start_method: str, tmp_path: Path
) -> None:
    """There is memory for one batch at a time, and the second is ready before the first."""
    is_written = tmp_path / "7"

    def source(info: SampleInfo) -> NDArray[np.uint8]:
        while info.idx_in_epoch == 3 and not is_written.exists():
            time.sleep(0.001)
        sample = np.full(9 * MIB + info.idx_in_batch * 1000, info.idx_in_epoch, np.uint8)
        if info.idx_in_epoch == 7:
            weakref.finalize(sample, is_written.touch)
        return sample

    options = {"dtype": np.uint8, "ndim": 1}
    pipe = make_pipeline(source, start_method, max_held_bytes=70 * MIB, prefetch_queue_depth=1, source_options=options)

    assert [int(pipe.run()[0].at(3)[-1]) for _ in range(6)] == [3, 7, 11, 15, 19, 23]


def test_small_batches_of_different_lengths_take_little(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(lambda info: np.zeros(info.idx_in_epoch % 5 + 1, np.uint8), way)

    held = [pipe.run() for _ in range(200)]
    taken = pipe.statistics().held_bytes
    held.clear()
    for _ in range(3):
        pipe.run()

    assert taken < 32 * MIB
    assert pipe.statistics().held_bytes < 4 * MIB


def test_memory_that_another_source_keeps_is_had(way: str) -> None:
    def of_rows(info: SampleInfo) -> NDArray[np.uint8]:
        return np.zeros(MIB, np.uint8)

    def that_grow(info: SampleInfo) -> NDArray[np.uint8]:
        return np.zeros(4 * MIB if info.iteration >= 5 else 10, np.uint8)

    method = {} if way == "serial" else {"py_start_method": way}

    @pipeline_def(batch_size=4, py_num_workers=2, max_held_bytes=80 * MIB, **method)
    def pipeline() -> Any:
        return [fn.external_source(source=source, batch=False, parallel=way != "serial") for source in (of_rows, that_grow)]

    pipe = pipeline()
    try:
        held = [pipe.run() for _ in range(4)]
        held.clear()
        assert [len(pipe.run()[1].at(3)) for _ in range(4)] == [10, 4 * MIB, 4 * MIB, 4 * MIB]
    finally:
        pipe.close()
