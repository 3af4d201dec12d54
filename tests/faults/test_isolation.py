"""Access to the memory of a pipeline: only its processes have it, and processes that could read their memory anyway."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

import dali_like
from dali_like import Pipeline, fn
from dali_like.types import SampleInfo
from tests.conftest import wait_until
from tests.faults.processes import children_of, kill_and_wait, wait_for_processes

MakePipeline = Callable[..., Pipeline]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, or make a mount namespace")


def numbers(info: SampleInfo) -> np.int64:
    return np.int64(info.idx_in_epoch)


def large(info: SampleInfo) -> NDArray[np.int64]:
    return np.full(100_000, info.idx_in_epoch)


def started(pipe: Pipeline) -> Pipeline:
    """The pipeline, when all its workers work."""
    while len(pipe.py_worker_pids) < 2:
        pipe.run()
    return pipe


def processes_of(pipe: Pipeline) -> list[int]:
    """This process, the one that starts workers, and the workers."""
    forkserver = psutil.Process(pipe.py_worker_pids[0]).ppid()
    assert forkserver != os.getpid()
    return [os.getpid(), forkserver, *pipe.py_worker_pids]


def open_in(pid: int) -> dict[str, str]:
    """Return the targets of the descriptors of a process, by their path in /proc."""
    files = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that the listing itself used
            files[str(fd)] = os.readlink(fd)
    return files


def memory_of(pid: int) -> list[str]:
    """The descriptors of a process that are memory of a pipeline."""
    return [path for path, link in open_in(pid).items() if link.startswith("/memfd:dali_like")]


#: Tries, as another user, to open the arguments in every way, and prints the ones that it could open.
INTRUDER = """
import os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for path in sys.argv[1:]:
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        try:
            os.open(path, flags)
        except (PermissionError, IsADirectoryError):
            continue
        print(path, flags)
"""


@needs_root
def test_memory_cannot_be_opened_by_another_user(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = started(make_pipeline(numbers, start_method))
    pids = processes_of(pipe)
    memory = [path for pid in pids for path in memory_of(pid)]
    assert {path.split("/")[2] for path in memory} == {str(pid) for pid in pids}

    others = [f"/proc/{pid}/{name}" for pid in pids for name in ("mem", "fd", "map_files")]
    result = subprocess.run(
        [sys.executable, "-c", INTRUDER, *memory, *others], capture_output=True, text=True, check=True, timeout=300
    )

    assert result.stdout == ""


@needs_root
def test_memory_can_be_opened_by_the_same_user(make_pipeline: MakePipeline) -> None:
    """So that the test above shows more than that the files are not there."""
    pipe = started(make_pipeline(numbers, "fork"))

    for pid in processes_of(pipe):
        for path in memory_of(pid):
            os.close(os.open(path, os.O_RDWR))


@pytest.mark.parametrize("size", ["half", "one page less", "one page more"])
def test_memory_cannot_be_resized_by_a_callback(size: str, start_method: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> np.int64:
        return np.int64(resized() if info.idx_in_epoch == 5 else info.idx_in_epoch)

    def resized() -> int:
        for name in os.listdir("/proc/self/fd"):
            path = f"/proc/self/fd/{name}"
            if os.path.lexists(path) and os.readlink(path).startswith("/memfd:dali_like "):
                now = os.stat(path).st_size
                try:
                    os.truncate(path, {"half": now // 2, "one page less": now - 4096, "one page more": now + 4096}[size])
                except PermissionError:
                    return 5
        return -1

    pipe = make_pipeline(source, start_method)

    assert [pipe.run()[0].as_array().tolist() for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_workers_have_no_ends_of_the_pipes_of_others(start_method: str, make_pipeline: MakePipeline) -> None:
    def ends(*pids: int) -> set[str]:
        return {link for pid in pids for link in open_in(pid).values() if link.startswith(("pipe:", "socket:"))}

    inherited = ends(os.getpid())  # the standard streams, say
    first = started(make_pipeline(numbers, start_method))
    second = started(make_pipeline(numbers, start_method))
    for pipe in (first, second):
        wait_for_processes(pipe)

    def of(pipe: Any) -> set[str]:
        return ends(*processes_of(pipe)[1:]) - inherited

    # Tasks, reports, and the socket of the process that starts workers. It has another one while the reserve is forked.
    wait_until(lambda: len(of(first)) == len(of(second)) == 3, "three ends of each pipeline")
    assert not of(first) & of(second)


def test_workers_have_nothing_that_tells_of_the_others(start_method: str, make_pipeline: MakePipeline) -> None:
    inherited = list(open_in(os.getpid()).values())
    pipe = started(make_pipeline(numbers, start_method))

    for pid in pipe.py_worker_pids:
        links = list(open_in(pid).values())
        assert links.count("anon_inode:[pidfd]") == inherited.count("anon_inode:[pidfd]") + 1  # of the main process
        assert not [link for link in links if link.startswith("socket:") and link not in inherited]


def test_workers_that_have_ended_leave_no_descriptors(start_method: str, make_pipeline: MakePipeline) -> None:
    def targets(pid: int) -> list[str]:
        return list(open_in(pid).values())

    def wait_for_pidfds() -> None:
        """Of each child, and of the main process."""
        wait_until(lambda: targets(forkserver).count("anon_inode:[pidfd]") == len(children_of(forkserver)) + 1, "the pidfds")

    pipe = make_pipeline(numbers, start_method, py_worker_restarts=None)
    forkserver, *_ = wait_for_processes(pipe)
    wait_for_pidfds()
    before = len(targets(forkserver))

    for _ in range(3):
        dead = pipe.py_worker_pids
        kill_and_wait(dead)
        wait_until(lambda dead=dead: pipe.run() and len({*pipe.py_worker_pids} - {*dead}) == 2, "other workers")

    wait_for_pidfds()
    assert len(targets(forkserver)) == before


def test_memory_of_a_dropped_pipeline_returns_although_forked_processes_map_it(start_method: str) -> None:
    def make() -> Pipeline:
        pipe = Pipeline(4, 1, py_num_workers=2, py_start_method=start_method)
        pipe.set_outputs(fn.external_source(source=large, batch=False, parallel=True))
        return started(pipe)

    def pages_of_others(pids: list[int]) -> int:
        return sum(os.stat(path).st_blocks for pid in pids for path in memory_of(pid) if os.stat(path).st_ino == inode)

    dropped = make()
    inode = os.stat(memory_of(dropped.py_worker_pids[0])[0]).st_ino
    kept = make()

    del dropped
    gc.collect()

    assert pages_of_others(processes_of(kept)) == 0
    kept.close()


#: Lists the names while a pipeline runs: in /dev/shm, in its folder for temporary files, and among its mappings.
NAMES = """
import json, os, sys, tempfile
import numpy as np, psutil
from dali_like import fn, pipeline_def

@pipeline_def(batch_size=4, py_num_workers=2, py_start_method=sys.argv[1])
def pipeline():
    return fn.external_source(source=lambda info: np.full(100_000, info.idx_in_epoch), batch=False, parallel=True)

before = {*os.listdir("/dev/shm"), *os.listdir("/tmp")}
pipe = pipeline()
batches = [pipe.run()[0] for _ in range(5)]
shared = set()
for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
    with open(f"/proc/{process.pid}/maps") as maps:
        shared |= {line.split(maxsplit=5)[5].strip() for line in maps if line.split()[1].startswith("rw-s")}
print(json.dumps({
    "values": [int(batch.at(3)[-1]) for batch in batches],
    "temporary files": os.listdir(tempfile.gettempdir()),
    "new names": [name for name in {*os.listdir("/dev/shm"), *os.listdir("/tmp")} - before if "dali" in name],
    "shared mappings": sorted(shared),
}))
pipe.close()
"""


def run_program(text: str, folder: Path, *arguments: str, before: str = "") -> dict[str, Any]:
    """Run a program that prints JSON, perhaps in a mount namespace in which something has been done before."""
    temporary = folder / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", text, *arguments]
    if before:
        command = ["unshare", "--mount", "sh", "-c", f'{before} && exec "$@"', "sh", *command]
    package = str(Path(dali_like.__file__).resolve().parents[1])
    result = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": package, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (result.returncode, result.stderr) == (0, "")
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def test_nothing_has_a_name(start_method: str, tmp_path: Path) -> None:
    told = run_program(NAMES, tmp_path, start_method)

    assert told == {
        "values": [3, 7, 11, 15, 19],
        "temporary files": [],
        "new names": [],
        "shared mappings": ["/memfd:dali_like (deleted)"],
    }


@needs_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="the program unshare is not there")
@pytest.mark.parametrize(
    "mount",
    ["mount -t tmpfs -o size=64k tmpfs /dev/shm", "mount -t tmpfs -o ro tmpfs /dev/shm"],
    ids=["of 64 KB", "not writable"],
)
def test_dev_shm_makes_no_difference(mount: str, start_method: str, tmp_path: Path) -> None:
    """Batches of 3 MiB would not fit into it. In containers of Docker's it has 64 MB, unless one asks for more."""
    if subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this system allows no mounts, not even to root")

    told = run_program(NAMES, tmp_path, start_method, before=mount)

    assert told["values"] == [3, 7, 11, 15, 19]
    assert told["shared mappings"] == ["/memfd:dali_like (deleted)"]


def test_workers_have_an_empty_stdin_also_without_dev_null(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "devnull", "/nowhere/null")
    pipe = make_pipeline(lambda info: np.int64(len(os.read(0, 1))), "fork", workers=1, py_worker_restarts=0)

    assert pipe.run()[0].as_array().tolist() == [0] * 4
