"""Files with the memory of pipelines: their number, their address space, and the processes that allocate from them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def
from dali_like.engine.memory import shared_file
from dali_like.engine.memory.shared_file import MOST_COMMON_FILES, SharedFile
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import OutOfMemoryError
from tests.internals import kept_files

PAGE = os.sysconf("SC_PAGESIZE")
#: As many pipelines as the library promises for one process.
MANY = 10_000 if os.environ.get("PARITY") == "full" else 150


@pipeline_def(batch_size=4, num_threads=1, device_id=None)
def small() -> Any:
    """A source without workers, of 64 bytes a sample."""
    return fn.external_source(lambda info: np.full(8, info.idx_in_epoch), batch=False)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mapped_bytes() -> int:
    """Address space of all shared memory of this process."""
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/memfd:dali_like" in line]
    spans = [[int(end, 16) for end in line.split()[0].split("-")] for line in lines]
    return sum(end - begin for begin, end in spans)


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """A growing list with an entry for each requested collection of all garbage."""
    asked: list[str] = []
    collect = gc.collect

    def count(generation: int = 2) -> int:
        asked.append("")
        return collect(generation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", count)
        yield asked


# Many pipelines


def test_serial_pipelines_beyond_a_few_take_no_descriptor_no_address_space_and_no_collection(collections: list[str]) -> None:
    descriptors = open_descriptors()
    pipes = [small() for _ in range(150)]
    for pipe in pipes[:MOST_COMMON_FILES]:
        pipe.build()
    mapped, asked = mapped_bytes(), len(collections)

    for pipe in pipes:
        pipe.build()
    batches = [pipe.run()[0] for pipe in pipes]

    assert open_descriptors() - descriptors == 2 * MOST_COMMON_FILES  # a mapping of Python has a descriptor of its own
    assert mapped_bytes() == mapped
    assert len(collections) == asked
    assert all(batch.as_array()[:, 0].tolist() == [0, 1, 2, 3] for batch in batches)


def test_many_pipelines_run_with_little_address_space_and_few_descriptors() -> None:
    """As many as above take 16 GiB; fewer take their part of it."""
    limit_bytes = max((16 << 30) * MANY // 10_000, 1 << 30)
    program = f"""
        import resource
        import numpy as np
        from dali_like import fn, pipeline_def

        resource.setrlimit(resource.RLIMIT_AS, ({limit_bytes}, {limit_bytes}))
        resource.setrlimit(resource.RLIMIT_NOFILE, ({1024 * MANY // 10_000 + 24},) * 2)

        @pipeline_def(batch_size=4, num_threads=1, device_id=None)
        def small():
            return fn.external_source(lambda info: np.full(8, info.idx_in_epoch), batch=False)

        pipes = [small() for _ in range({MANY})]
        for first in (0, 4):
            held = [pipe.run()[0] for pipe in pipes]
            assert all(batch.as_array()[:, 0].tolist() == list(range(first, first + 4)) for batch in held)
        print("done")
    """

    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert (result.stdout, result.stderr) == ("done\n", "")


def test_first_batches_that_are_held_take_no_address_space_for_others() -> None:
    """The first region is large, because nothing is known of the samples."""
    pipes = [small() for _ in range(2 * MOST_COMMON_FILES)]
    for pipe in pipes:
        pipe.build()
    # Private: all files, also the files of other tests
    free_bytes = {file: file.free_bytes for file in SharedFile._existing}

    held = [pipe.run() for pipe in pipes]

    taken = sum(before - file.free_bytes for file, before in free_bytes.items())
    assert len(held) == len(pipes)
    assert taken < len(pipes) << 20


def test_collections_for_address_space_are_few(collections: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Address space is always short here, as it is behind a hundred pipelines with workers."""
    monkeypatch.setattr(shared_file, "_SHARE_OF_FREE", 1 << 10)

    spaces = [SharedSpace.create(1 << 40) for _ in range(64)]

    assert len(spaces) == 64
    assert 1 <= len(collections) <= 9


# Spaces in one file


@pytest.fixture
def one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """All spaces without workers use one file."""
    monkeypatch.setattr(shared_file, "MOST_COMMON_FILES", 1)


@pytest.mark.usefixtures("one_file")
def test_each_space_in_a_file_has_its_own_limit_and_count() -> None:
    small, large = SharedSpace.create_in_common(3 * PAGE), SharedSpace.create_in_common(1 << 20)
    kept = large.take(8 * PAGE, 8 * PAGE)
    small.take(4 * PAGE, 2 * PAGE)

    with pytest.raises(OutOfMemoryError, match="max_held_bytes"):
        small.take(2 * PAGE, 2 * PAGE)

    assert small.file is large.file
    assert (small.used_bytes, large.used_bytes) == (2 * PAGE, 8 * PAGE)
    large.free(kept, 8 * PAGE)
    assert (small.used_bytes, large.used_bytes) == (2 * PAGE, 0)


@pytest.mark.usefixtures("one_file")
def test_space_that_ends_gives_its_pages_and_address_space_to_others() -> None:
    staying, ending = SharedSpace.create_in_common(1 << 20), SharedSpace.create_in_common(1 << 20)
    kept, given = staying.take(PAGE, PAGE), ending.take(3 * PAGE, 2 * PAGE)
    staying.bytes[kept] = staying.bytes[given] = 7
    free_bytes = staying.file.free_bytes

    del ending

    assert os.fstat(staying.fd.fileno()).st_blocks * 512 == PAGE
    assert (staying.bytes[kept], staying.bytes[given]) == (7, 0)
    assert staying.take(3 * PAGE, PAGE) == given
    assert staying.file.free_bytes == free_bytes


@pytest.mark.usefixtures("one_file")
def test_pages_that_a_gpu_does_not_give_up_stay_when_their_space_ends() -> None:
    staying, ending = SharedSpace.create_in_common(1 << 20), SharedSpace.create_in_common(1 << 20)
    ending.observer = observer = _Keeping()
    kept, given = ending.take(PAGE, PAGE), ending.take(PAGE, PAGE)
    ending.bytes[kept] = ending.bytes[given] = 7
    observer.kept_address = ending.address + kept

    del ending

    assert kept_files() == [staying.file]
    kept_files().clear()
    assert (staying.bytes[kept], staying.bytes[given]) == (7, 0)
    assert staying.take(PAGE, PAGE) == given
    assert staying.take(PAGE, PAGE) not in (kept, given)


class _Keeping:
    """A GPU that gives up all memory but that at one address."""

    kept_address = 0

    def made(self, address: int, nbytes: int) -> None:
        pass

    def fence(self) -> None:
        return None

    def freed(self, address: int) -> bool:
        return address != self.kept_address


@pytest.mark.usefixtures("one_file")
def test_forked_child_does_not_allocate_from_a_file_of_its_parent() -> None:
    space = SharedSpace.create_in_common(1 << 20)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = int(SharedSpace.create_in_common(1 << 20).file is space.file)
        finally:
            os._exit(status)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.usefixtures("one_file")
def test_file_that_other_programs_read_is_not_shared_with_later_spaces() -> None:
    space = SharedSpace.create_in_common(1 << 20)
    space.file.is_lent = True

    assert SharedSpace.create_in_common(1 << 20).file is not space.file
    space.file.is_lent = False


@pytest.mark.usefixtures("one_file")
def test_file_ends_with_its_last_space() -> None:
    before = mapped_bytes()
    spaces = [SharedSpace.create_in_common(1 << 20) for _ in range(2)]
    file = weakref.ref(spaces[0].file)

    del spaces[0]
    is_mapped = mapped_bytes() > before
    del spaces[0]

    assert is_mapped
    assert file() is None
    assert mapped_bytes() == before
