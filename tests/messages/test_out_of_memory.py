"""The death of a worker that the kernel kills for lack of memory: the error, the log and the statistics say so."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import dali_like
from dali_like.engine.pool import out_of_memory
from dali_like.engine.pool.out_of_memory import OutOfMemoryWatch, describe_memory
from tests.conftest import DEADLINE_S, wait_until

CERTAIN = "was killed by the kernel: out of memory,"
POSSIBLE = "was killed by SIGKILL, possibly by the kernel: out of memory,"
LIMIT_BYTES = 400 << 20

PROLOGUE = """
import os, signal, sys
import numpy as np
from dali_like import fn, pipeline_def
from dali_like.data import DataLoader
from dali_like.errors import WorkerDiedError

def take_all_memory():
    kept = []
    while True:
        kept.append(np.ones(16 << 20, np.uint8))

def make(source, **options):
    @pipeline_def(batch_size=2, num_threads=1, py_num_workers=2, **options)
    def pipeline():
        return fn.external_source(source, batch=False, parallel=True)
    return pipeline()
"""


class Group:
    """A control group with a limit of memory, for the processes of one program.

    Args:
        folder: the folder to make.
        name: the name of the file with the limit.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.limit_file = folder / name
        folder.mkdir()
        try:
            self.limit_file.write_text(str(LIMIT_BYTES))
            for swap, value in (("memory.memsw.limit_in_bytes", LIMIT_BYTES), ("memory.swap.max", 0)):
                with contextlib.suppress(OSError):  # the kernel does not account for swap
                    if (folder / swap).exists():
                        (folder / swap).write_text(str(value))
        except OSError:
            folder.rmdir()
            raise

    def run(self, text: str) -> tuple[str, str]:
        """Run a program in the group. Return its standard output and standard error."""
        enter = f"open({str(self.folder / 'cgroup.procs')!r}, 'w').write('0')"
        done = subprocess.run(
            [sys.executable, "-c", f"{enter}\n{PROLOGUE}\n{textwrap.dedent(text)}"],
            env={**os.environ, "PYTHONPATH": str(Path(dali_like.__file__).parents[1])},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr


@pytest.fixture
def group() -> Iterator[Group]:
    """A new control group, of version 1 or 2. The test is skipped if this user may not make one."""
    name = f"dali_like_test_{os.getpid()}"
    for top, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        with contextlib.suppress(OSError):
            group = Group(Path(top, name), limit)
            break
    else:
        pytest.skip("no control group with a limit of memory can be made")
    yield group

    def remove() -> bool:
        with contextlib.suppress(OSError):  # its last process is just ending
            group.folder.rmdir()
        return not group.folder.exists()

    wait_until(remove, "a control group without processes")


def without_numbers(text: str) -> str:
    return re.sub(r"(pid|[Ww]orker) \d+", r"\1 N", re.sub(r"[\d.]+ MiB", "N MiB", text))


class TestInAControlGroup:
    def test_the_error_names_reason_limit_memory_and_remedy(self, group: Group) -> None:
        stdout, _ = group.run(
            """
            pipe = make(lambda info: take_all_memory() if info.idx_in_epoch == 3 else np.zeros(3), py_worker_restarts=0)
            try:
                while True:
                    pipe.run()
            except WorkerDiedError as error:
                print(error)
                print(error.out_of_memory, pipe.statistics().oom_kills)
            pipe.close()
            """
        )

        assert without_numbers(stdout) == (
            f"worker N (pid N) {CERTAIN} while external_source of <lambda> was computing sample 1 of iteration 1 in epoch 0 "
            "(idx_in_epoch 3).\n"
            f"The limit of the control group is N MiB ({group.limit_file}). Resident memory: worker N N MiB at most, "
            "worker N N MiB, the main process N MiB; N MiB of it is shared memory of batches. Use fewer workers "
            "(py_num_workers; num_workers of a DataLoader), compute fewer batches ahead (prefetch_queue_depth; "
            "prefetch_factor), make batches or samples smaller, or allow more memory\n"
            "True 1\n"
        )
        assert f"is {LIMIT_BYTES >> 20}.0 MiB (" in stdout
        peak_mib = float(re.findall(r"([\d.]+) MiB at most", stdout)[0])
        assert LIMIT_BYTES / 4 < peak_mib * (1 << 20) < LIMIT_BYTES * 1.5

    def test_a_loader_has_the_text_of_pytorch_in_front(self, group: Group) -> None:
        stdout, _ = group.run(
            """
            class Dataset:
                def __len__(self):
                    return 10

                def __getitem__(self, index):
                    return take_all_memory() if index == 3 else index

            try:
                for batch in DataLoader(Dataset(), num_workers=1, multiprocessing_context="fork", worker_restarts=0):
                    pass
            except WorkerDiedError as error:
                print(error)
                print(error.out_of_memory)
            """
        )

        text = without_numbers(stdout)
        assert text.startswith(f"DataLoader worker (pid N) is killed by signal: Killed. worker N (pid N) {CERTAIN} while ")
        assert (
            f"The limit of the control group is N MiB ({group.limit_file}). Resident memory: worker N N MiB at most" in text
        )
        assert stdout.endswith("\nTrue\n")

    def test_a_replacement_is_logged_and_counted(self, group: Group) -> None:
        stdout, stderr = group.run(
            """
            import mmap
            has_died = mmap.mmap(-1, 1)

            def source(info):
                if info.idx_in_epoch == 3 and not has_died[0]:
                    has_died[0] = 1
                    take_all_memory()
                return np.array(info.idx_in_epoch)

            pipe = make(source)
            print([pipe.run()[0].as_array().tolist() for _ in range(4)])
            statistics = pipe.statistics()
            print(statistics.worker_restarts, statistics.oom_kills)
            print("killed by the kernel, out of memory: 1;" in str(pipe.report()))
            pipe.close()
            """
        )

        assert stdout == "[[0, 1], [2, 3], [4, 5], [6, 7]]\n1 1\nTrue\n"
        text = without_numbers(stderr)
        assert text.startswith(f"worker N (pid N) {CERTAIN} while external_source of source was computing sample")
        assert text.endswith("or allow more memory. Another worker takes its place\n")

    def test_another_kill_has_another_reason(self, group: Group) -> None:
        stdout, stderr = group.run(
            """
            pipe = make(lambda info: os.kill(os.getpid(), signal.SIGKILL), py_worker_restarts=0)
            try:
                pipe.run()
            except WorkerDiedError as error:
                print(error)
                print(error.out_of_memory)
            pipe.close()
            """
        )

        assert re.match(r"worker \d \(pid \d+\) was killed by SIGKILL while ", stdout)
        assert "memory" not in stdout
        assert stdout.endswith("\nFalse\n")
        assert not stderr


@pytest.mark.parametrize(
    ("in_group", "in_machine", "exitcode", "how"),
    [
        ([5, 6], [5, 6], -signal.SIGKILL, CERTAIN),
        ([5, 5], [5, 6], -signal.SIGKILL, None),  # the machine has killed a process of another group
        ([5, 6], [5, 6], -signal.SIGTERM, None),
        ([5, 6], [5, 6], None, None),
        ([None], [5, 6], -signal.SIGKILL, POSSIBLE),
        ([None], [5, 5], -signal.SIGKILL, None),
        ([None], [None], -signal.SIGKILL, POSSIBLE),
        ([None], [None], 1, None),
    ],
)
def test_reason_of_a_death(
    in_group: list[int | None],
    in_machine: list[int | None],
    exitcode: int | None,
    how: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each list has the counts at the start of the pool and at the death."""
    for name, counts in (("oom_kills", in_group), ("oom_kills_in_machine", in_machine)):
        values = itertools.chain(counts, itertools.repeat(counts[-1]))
        monkeypatch.setattr(out_of_memory, name, lambda values=values: next(values))

    shortage = OutOfMemoryWatch().explain(exitcode)

    assert (shortage.how if shortage is not None else None) == how
    assert shortage is None or shortage.is_certain is (how == CERTAIN)


def test_each_kill_explains_one_death(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([5, 7, 7, 7])
    monkeypatch.setattr(out_of_memory, "oom_kills", lambda: next(counts))
    watch = OutOfMemoryWatch()

    found = [watch.explain(-signal.SIGKILL) is not None for _ in range(3)]

    assert found == [True, True, False]


def test_only_the_largest_of_many_workers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_memory, "memory_limit", lambda: (1 << 30, ""))
    pages = iter(range(256, 256 * 100, 256))
    monkeypatch.setattr(out_of_memory, "read_file", lambda path: f"9999 {next(pages)} 1")
    monkeypatch.setattr(out_of_memory.mmap, "PAGESIZE", 4096)

    text = describe_memory("worker 3", 0, {worker: 1000 + worker for worker in range(10)}, 2 << 20)

    assert text.startswith(
        "The machine has 1024.0 MiB. Resident memory: worker 9 10.0 MiB, worker 8 9.0 MiB, worker 7 8.0 MiB"
    )
    assert "worker 2 3.0 MiB, 2 further workers 3.0 MiB together, the main process 11.0 MiB; 2.0 MiB of it is shared" in text
