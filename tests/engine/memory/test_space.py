"""The shared space: extents that are taken, given memory and given back, in a file that cannot shrink."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import itertools
import mmap
import os
import random
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_like import Pipeline
from dali_like.engine.memory import shared_file
from dali_like.engine.memory import space as memory
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import available_bytes, memory_bytes, memory_limit
from dali_like.engine.memory.ring import Ring, Slot
from dali_like.engine.memory.shared_file import SharedFile
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import OutOfMemoryError
from dali_like.types import SampleInfo

MakePipeline = Callable[..., Pipeline]

PAGE = os.sysconf("SC_PAGESIZE")
F_SEAL_FUTURE_WRITE = 0x10  # see fcntl(2); Python has no name for it before 3.13


def make_space(num_pages: int = 1 << 16) -> SharedSpace:
    """A small space, so that its end is near."""
    fd = Descriptor(os.memfd_create("dali_like", os.MFD_CLOEXEC))
    os.ftruncate(fd.fileno(), num_pages * PAGE)
    return SharedSpace(SharedFile(fd, num_pages * PAGE), limit_bytes=1 << 40)


# Extents


def test_extents_are_aligned_and_apart() -> None:
    space = make_space()

    offsets = [space.allocate(nbytes) for nbytes in (1, PAGE, PAGE + 1, 1)]

    assert offsets == [0, PAGE, 2 * PAGE, 4 * PAGE]


def test_extent_that_is_given_back_is_used_again() -> None:
    space = make_space()
    offset = space.allocate(3 * PAGE)
    space.allocate(PAGE)

    space.free(offset, 3 * PAGE)

    assert space.allocate(3 * PAGE) == offset


def test_neighbours_that_are_given_back_become_one_extent() -> None:
    space = make_space(num_pages=4)
    offsets = [space.allocate(PAGE) for _ in range(4)]

    for i in (0, 2, 1):  # the last one joins both of its neighbours
        space.free(offsets[i], PAGE)

    assert space.allocate(3 * PAGE) == 0


@given(st.lists(st.integers(1, 5 * PAGE), max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_space_becomes_whole_again_after_frees_in_any_order(sizes: list[int], order: random.Random) -> None:
    space = make_space()
    taken: list[tuple[int, int]] = []
    for nbytes in sizes:
        if taken and order.random() < 0.4:
            space.free(*taken.pop(order.randrange(len(taken))))
        taken.append((space.allocate(nbytes), nbytes))
        ends = sorted((offset, offset + size) for offset, size in taken)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))

    order.shuffle(taken)
    for extent in taken:
        space.free(*extent)

    assert space.allocate(space.size) == 0


def test_an_extent_larger_than_the_remaining_space_is_refused() -> None:
    space = make_space(num_pages=512)
    space.allocate(PAGE)

    with pytest.raises(OutOfMemoryError, match=r"no 2 MiB are left of 2 MiB .*ulimit -v"):
        space.allocate(512 * PAGE)

    assert space.allocate(511 * PAGE) == PAGE


# Memory behind them


def test_address_space_costs_no_memory() -> None:
    space = SharedSpace.create()

    space.allocate(1 << 30)

    assert space.size >= 1 << 30
    assert space.used_bytes == 0


def test_commit_puts_memory_behind_an_extent() -> None:
    space = make_space()
    offset = space.allocate(10 * PAGE)

    space.commit(offset, 10 * PAGE)

    assert space.used_bytes == 10 * PAGE


def test_discard_gives_memory_back_and_leaves_zeros() -> None:
    space = make_space()
    offset = space.allocate(10 * PAGE)
    array = space.array(offset, (10, PAGE), np.dtype(np.uint8))
    array[:] = 7

    space.discard(offset + PAGE, 8 * PAGE)

    assert space.used_bytes == 2 * PAGE
    assert array[:, 0].tolist() == [7, 0, 0, 0, 0, 0, 0, 0, 0, 7]


def test_free_gives_memory_back() -> None:
    space = make_space()
    offset = space.allocate(10 * PAGE)
    space.commit(offset, 10 * PAGE)

    space.free(offset, 10 * PAGE)

    assert space.used_bytes == 0


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_extent_that_gets_no_memory_is_not_taken(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, offset: int, nbytes: int) -> None:
        raise error

    space = make_space()
    monkeypatch.setattr(os, "posix_fallocate", fail)

    with pytest.raises(error):
        space.take(2 * PAGE, PAGE)

    assert space.allocate(space.size) == 0


def test_memory_that_only_garbage_keeps_can_be_had() -> None:
    class Idle:
        """Unused memory, whose owner is garbage in a cycle."""

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            space.free(offset, PAGE)

    space = make_space()
    offset = space.take(PAGE, PAGE)
    gc.disable()
    try:
        Idle()
        space.drop_free()
        before = space.used_bytes
        space.reclaim()
    finally:
        gc.enable()

    assert (before, space.used_bytes) == (PAGE, 0)


def test_array_is_a_view_of_the_mapping() -> None:
    space = make_space()

    space.array(2 * PAGE, (3, 2), np.dtype(np.int16))[...] = 513

    assert space.map[2 * PAGE : 2 * PAGE + 4] == bytes([1, 2, 1, 2])
    assert space.array(PAGE, (), np.dtype(np.uint8)).__array_interface__["data"][0] == space.address + PAGE


def test_used_bytes_are_those_of_the_file() -> None:
    space = make_space()
    space.commit(0, 5 * PAGE)

    assert space.used_bytes == os.fstat(space.fd.fileno()).st_blocks * 512 == 5 * PAGE


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM])
def test_commit_that_the_system_refuses(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, offset: int, nbytes: int) -> None:
        raise OSError(number, os.strerror(number))

    space = make_space()
    monkeypatch.setattr(os, "posix_fallocate", refuse)

    with pytest.raises(OutOfMemoryError, match=r"need 3\.0 MiB more, which the system refuses"):
        space.commit(0, 3 << 20)


@pytest.mark.parametrize("limit_bytes", [None, 1 << 60])
def test_commit_of_more_than_the_machine_has_is_refused_at_once(
    limit_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would not refuse: it gives page after page, and then kills processes."""

    def fill_the_machine(fd: int, offset: int, nbytes: int) -> None:
        pytest.fail("the system was asked for more than all its memory")

    space = SharedSpace.create(limit_bytes)
    memory = os.sysconf("SC_PHYS_PAGES") * PAGE
    monkeypatch.setattr(os, "posix_fallocate", fill_the_machine)

    with pytest.raises(OutOfMemoryError, match=rf"need {2 * memory / (1 << 20):.1f} MiB more"):
        space.commit(0, 2 * memory)


def test_the_limit_counts_memory_in_use() -> None:
    space = SharedSpace.create(limit_bytes=4 << 20)
    space.commit(0, 3 << 20)

    with pytest.raises(
        OutOfMemoryError, match=r"take 3\.0 MiB and need 2\.0 MiB more; the limit is 4\.0 MiB.*max_held_bytes"
    ):
        space.commit(3 << 20, 2 << 20)

    space.discard(0, 1 << 20)
    space.commit(3 << 20, 2 << 20)
    assert space.used_bytes == 4 << 20


def test_the_default_limit_is_half_of_the_available_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 10 << 20)

    assert SharedSpace.create().limit_bytes == 5 << 20
    assert SharedSpace.create(7 << 20).limit_bytes == 7 << 20


def test_batches_that_are_held_count_against_the_limit(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.full(1 << 18, info.idx_in_epoch % 256, np.uint8), way, max_held_bytes=16 << 20)
    held = []

    for _ in range(4):
        held.append(pipe.run()[0])
    with pytest.raises(OutOfMemoryError, match="max_held_bytes"):
        held.extend(pipe.run()[0] for _ in range(16))

    assert len(held) < 16
    assert pipe.statistics().held_bytes <= 16 << 20
    num_held = len(held)
    held.clear()
    assert pipe.run()[0].as_array()[:, 0].tolist() == [4 * num_held + i for i in range(4)]


def write_files(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


MEMINFO = {"proc/meminfo": "MemTotal:  2000 kB\nMemFree:  10 kB\nMemAvailable:   1000 kB\n"}


def test_available_memory_without_control_groups_is_that_of_the_machine(tmp_path: Path) -> None:
    write_files(tmp_path, MEMINFO)

    assert available_bytes(tmp_path) == 1000 * 1024


@pytest.mark.parametrize(
    ("limits", "left"), [(("max", "max"), 1_024_000), (("max", "9000"), 8500), (("9000", "7000"), 5500)]
)
def test_available_memory_is_the_least_that_the_control_groups_have_left(
    limits: tuple[str, str], left: int, tmp_path: Path
) -> None:
    inner, outer = limits
    write_files(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/inner/memory.max": f"{inner}\n",
            "sys/fs/cgroup/outer/inner/memory.current": "3500\n",
            "sys/fs/cgroup/outer/inner/memory.stat": "anon 1\ninactive_file 0\n",
            "sys/fs/cgroup/outer/memory.max": f"{outer}\n",
            "sys/fs/cgroup/outer/memory.current": "3500\n",
            "sys/fs/cgroup/outer/memory.stat": "anon 1\ninactive_file 3000\n",
        },
    )

    assert available_bytes(tmp_path) == left


@pytest.mark.parametrize(("limit", "left"), [("9223372036854771712", 1_024_000), ("5000", 1000)])
def test_available_memory_is_the_least_that_control_groups_of_version_1_have_left(
    limit: str, left: int, tmp_path: Path
) -> None:
    write_files(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/group\n0::/\n",
            "sys/fs/cgroup/memory/group/memory.limit_in_bytes": f"{limit}\n",
            "sys/fs/cgroup/memory/group/memory.usage_in_bytes": "4000\n",
        },
    )

    assert available_bytes(tmp_path) == left


def test_other_errors_of_commit_are_not_taken_for_want_of_memory() -> None:
    space = make_space()
    space.fd.close()

    with pytest.raises(OSError, match="Bad file descriptor") as info:
        space.commit(0, PAGE)

    assert not isinstance(info.value, OutOfMemoryError)


def growing_source(info: SampleInfo) -> NDArray[Any]:
    """Another shape in each batch, so that each batch asks for memory."""
    if info.iteration >= 8:
        raise StopIteration
    return np.full(info.iteration + 1, info.idx_in_epoch)


GROWING_BATCHES = [[4 * iteration + i for i in range(4)] for iteration in range(8)]


def run_to_the_end(pipe: Pipeline) -> tuple[list[list[int]], int]:
    """The samples of the batches, and how often there was no memory instead."""
    batches: list[list[int]] = []
    errors = 0
    while True:
        try:
            (batch,) = pipe.run()
        except OutOfMemoryError:
            errors += 1
        except StopIteration:
            return batches, errors
        else:
            batches.append(batch.as_array()[:, 0].tolist())


@pytest.mark.parametrize("call", range(1, 8))
def test_no_batch_is_lost_when_there_is_no_memory_for_a_slot(
    call: int, way: str, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    acquire = Ring.acquire

    def sometimes_refuse(ring: Ring, usual_region_bytes: int) -> Slot:
        nonlocal calls
        calls += 1
        if call <= calls < call + 5:  # it is tried again, at once and whenever another batch is asked for
            raise OutOfMemoryError("none now")
        return acquire(ring, usual_region_bytes)

    pipe = make_pipeline(growing_source, way)
    monkeypatch.setattr(Ring, "acquire", sometimes_refuse)

    batches, _ = run_to_the_end(pipe)

    assert calls >= call + 5
    assert batches == GROWING_BATCHES


@pytest.mark.parametrize("call", range(1, 12))
def test_no_memory_costs_an_error_and_no_batch_but_its_own(
    call: int, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    commit = SharedSpace.commit

    def sometimes_refuse(space: SharedSpace, offset: int, nbytes: int, part: int | None = None) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OutOfMemoryError("none this time")
        commit(space, offset, nbytes, part)

    pipe = make_pipeline(growing_source, "serial")
    monkeypatch.setattr(SharedSpace, "commit", sometimes_refuse)

    batches, errors = run_to_the_end(pipe)

    assert [batch for batch in GROWING_BATCHES if batch in batches] == batches
    assert len(batches) + errors >= len(GROWING_BATCHES)
    assert errors <= 1


# The file


def test_file_cannot_be_resized() -> None:
    space = SharedSpace.create()

    for size in (0, space.size - PAGE, space.size + PAGE):
        with pytest.raises(PermissionError):
            os.ftruncate(space.fd.fileno(), size)


def test_file_has_no_name_and_is_not_inherited() -> None:
    space = SharedSpace.create()
    fd = space.fd.fileno()

    assert Path(f"/proc/self/fd/{fd}").readlink().name == "memfd:dali_like (deleted)"
    assert not os.get_inheritable(fd)


def test_no_callback_can_keep_later_workers_from_mapping_the_file() -> None:
    space = SharedSpace.create()

    with pytest.raises(PermissionError):
        fcntl.fcntl(space.fd, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)


def test_two_mappings_of_the_file_show_the_same() -> None:
    space = make_space()

    with mmap.mmap(space.fd.fileno(), PAGE) as other:
        other[5] = 42

    assert space.bytes[5] == 42


# Little address space


def run_with_address_space(nbytes: int, program: str) -> subprocess.CompletedProcess[str]:
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({nbytes}, {nbytes}))\n"
    return subprocess.run(
        [sys.executable, "-c", limit + textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("way", ["serial", "fork", "spawn"])
def test_pipelines_work_with_little_address_space(way: str) -> None:
    program = f"""
        import numpy as np
        from dali_like import fn, pipeline_def
        method = {{}} if {way!r} == "serial" else {{"py_start_method": {way!r}}}

        @pipeline_def(batch_size=32, py_num_workers=2, **method)
        def pipeline():
            source = lambda info: np.full(info.idx_in_epoch * 37 % 10000, info.idx_in_epoch)
            return fn.external_source(source=source, batch=False, parallel={way!r} != "serial")

        pipe = pipeline()
        for iteration in range(20):
            (batch,) = pipe.run()
            for i, sample in enumerate(batch):
                number = iteration * 32 + i
                assert np.array_equal(np.asarray(sample), np.full(number * 37 % 10000, number))
        pipe.close()
        print("done")
    """

    result = run_with_address_space(2 << 30, program)

    assert result.stderr == ""
    assert result.stdout == "done\n"


def test_little_address_space_is_shared_among_few_large_batches() -> None:
    """Of 256 MiB of address space, a batch of 16 MiB takes more than the part that is one's usually."""
    program = """
        import numpy as np
        from dali_like import fn, pipeline_def

        @pipeline_def(batch_size=16, py_num_workers=2)
        def pipeline():
            source = lambda info: np.full(1 << 20, info.idx_in_epoch, np.uint8)
            return fn.external_source(source=source, batch=False, parallel=True)

        pipe = pipeline()
        for iteration in range(12):
            (batch,) = pipe.run()
            assert batch.as_array()[:, -1].tolist() == list(range(iteration * 16, iteration * 16 + 16))
        pipe.close()
        print("done")
    """

    result = run_with_address_space(1 << 30, program)

    assert result.stderr == ""
    assert result.stdout == "done\n"


def test_samples_too_large_for_the_address_space_are_an_error() -> None:
    program = """
        import numpy as np
        from dali_like import errors, fn, pipeline_def

        @pipeline_def(batch_size=2, py_num_workers=1)
        def pipeline():
            source = lambda info: np.zeros(1 if info.iteration != 1 else 150_000_000, np.uint8)
            return fn.external_source(source=source, batch=False, parallel=True)

        pipe = pipeline()
        pipe.run()
        try:
            pipe.run()
        except errors.OutOfMemoryError as error:
            print(error)
        print(pipe.run()[0].as_array().shape)
        pipe.close()
    """

    result = run_with_address_space(1 << 30, program)

    assert result.stderr == ""
    assert "address space" in result.stdout
    assert "ulimit -v" in result.stdout
    assert result.stdout.endswith("(2, 1)\n")


def test_garbage_has_no_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines that have been closed are garbage in cycles. Of spaces so large there is room for three."""
    monkeypatch.setattr(shared_file, "_MOST_BYTES", 1 << 45)
    monkeypatch.setattr(shared_file, "_SHARE_OF_FREE", 2)
    gc.disable()
    try:
        for _ in range(6):
            space: Any = SharedSpace.create(1 << 60)
            space.itself = space
        assert space.size >= 1 << 44
    finally:
        gc.enable()


GIB = 1 << 30


@pytest.mark.parametrize("memory_bytes", [16 * GIB, 256 * GIB, 1007 * GIB, 2050 * GIB, 65536 * GIB])
@pytest.mark.parametrize("is_limited", [False, True])
def test_hundred_pipelines_have_address_space_on_machines_of_any_size(
    memory_bytes: int, is_limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has 128 TiB. Drivers of GPUs need some of it, too."""
    monkeypatch.setattr(memory, "available_bytes", lambda: memory_bytes)
    limit_bytes = 8 * GIB if is_limited else None

    spaces = [SharedSpace.create(limit_bytes) for _ in range(100)]

    used = memory_bytes // 2 if limit_bytes is None else limit_bytes
    assert spaces[0].size >= min(64 * used, 3 << 40)
    assert max(space.size for space in spaces) <= 1 << 42
    assert min(space.size for space in spaces) >= 128 * GIB
    mmap.mmap(spaces[0].fd.fileno(), spaces[0].size).close()


def test_little_memory_does_not_mean_little_address_space() -> None:
    assert SharedSpace.create(PAGE).size == 64 * GIB


def test_refused_address_space_is_halved_without_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel with fewer bits of addresses, a strict overcommit rule, or a sandbox refuses."""
    map_memory, refused = mmap.mmap, []

    def map_little(fd: int, nbytes: int) -> mmap.mmap:
        if nbytes > GIB:
            refused.append(nbytes)
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return map_memory(fd, nbytes)

    monkeypatch.setattr(shared_file.mmap, "mmap", map_little)

    space = SharedSpace.create(GIB)

    assert space.size == GIB
    assert refused[0] == 64 * GIB


def test_no_address_space_at_all_is_an_error() -> None:
    program = """
        import mmap, resource
        from dali_like import errors
        from dali_like.engine.memory.space import SharedSpace
        used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
        try:
            SharedSpace.create()
        except errors.OutOfMemoryError as error:
            print(error)
    """

    result = run_with_address_space(-1, program)

    assert result.stderr == ""
    assert "cannot map" in result.stdout
    assert "ulimit -v" in result.stdout


@contextlib.contextmanager
def limited_files(nbytes: int) -> Iterator[None]:
    """Limit the size of files, as `ulimit -f` does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_limit_of_file_sizes_is_named() -> None:
    with limited_files(1 << 20), pytest.raises(OutOfMemoryError, match=r"limit of file sizes .* raise `ulimit -f`"):
        SharedSpace.create()


def test_a_space_fits_a_limit_of_file_sizes() -> None:
    with limited_files(1 << 30):
        assert SharedSpace.create().size <= 1 << 30


def test_a_space_of_one_process_needs_no_file() -> None:
    with limited_files(1 << 20):
        space = SharedSpace.create(for_processes=False)

    assert not space.has_file
    assert space.take(1 << 16, 1 << 16) >= 0


def test_without_proc_the_memory_of_the_machine_is_the_limit(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) == memory_limit(tmp_path)[0] == memory_bytes()
