"""The parts that work on macOS and Windows, as far as Linux can show it: in processes without the calls that these lack.

Nobody has tried the package there yet. The documentation says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dali_like
from tests.conftest import DEADLINE_S

#: ``pretend(platform)`` removes calls that Python does not have on macOS ("darwin") or Windows ("win32"). The modules of
#: other packages are imported before: they would find the calls missing, too.
_PROLOGUE = """
import asyncio, builtins, concurrent.futures, ctypes, faulthandler, logging, mmap, multiprocessing, os, select, signal
import socket, subprocess, sys, tempfile, threading
import _signal, fcntl, resource, termios
import multiprocessing.connection, multiprocessing.queues, multiprocessing.synchronize
import cloudpickle, numpy, numpy.random, threadpoolctl

LINUX = {
    os: "memfd_create MFD_ splice SPLICE_ pidfd_open posix_fallocate posix_fadvise eventfd EFD_ sched_ O_TMPFILE",
    signal: "SIGRTM", fcntl: "F_SEAL F_ADD_SEALS F_GET_SEALS F_GETPIPE F_SETPIPE", mmap: "MADV_REMOVE",
}
POSIX = {
    os: "fork register_at_fork getuid geteuid getgid sysconf set_blocking get_blocking mkfifo wait4 WNOHANG killpg "
    "O_CLOEXEC getpriority statvfs pread pwrite",
    signal: "pthread_ SIGKILL SIGCHLD SIGPIPE SIGBUS SIGUSR SIGALRM SIGSTOP SIGCONT SIGHUP setitimer siginterrupt",
    _signal: "pthread_ SIGKILL", select: "poll epoll PIPE_BUF", socket: "AF_UNIX SOCK_SEQPACKET send_fds recv_fds",
    mmap: "MADV_ MAP_ PROT_",
}

def remove(names):
    for module, beginnings in names.items():
        for name in list(vars(module)):
            if name.startswith(tuple(beginnings.split())):
                delattr(module, name)

def without_proc(function):
    def call(path, *args, **kwargs):
        if str(path).startswith(("/proc", "/sys", "/dev/shm")):
            raise FileNotFoundError(path)
        return function(path, *args, **kwargs)
    return call

def pretend(platform):
    remove(LINUX)
    builtins.open, os.open, os.listdir = map(without_proc, (builtins.open, os.open, os.listdir))
    if platform == "win32":
        remove(POSIX)
        for name in ("fcntl", "resource", "termios", "pwd", "grp"):
            sys.modules[name] = None
        def refuse(name, *args, **kwargs):
            raise TypeError("LoadLibrary() argument 1 must be str, not None") if name is None else OSError(name)
        ctypes.CDLL = refuse
    sys.platform = platform
"""

_SERIAL = """
    import numpy as np
    from dali_like import fn, pipeline_def
    from dali_like.data.loader import DataLoader
    from dali_like.errors import OutOfMemoryError, UnsupportedSystemError

    def size(n):
        return 1 + n % 5 + n // 40 % 3 * 5000

    def sample(info):
        return np.full(size(info.idx_in_epoch), info.idx_in_epoch, np.int64)

    def batches_of(num_batches, **options):
        @pipeline_def(batch_size=16, num_threads=2, **options)
        def pipeline():
            return fn.external_source(sample, batch=False, parallel="py_start_method" in options)

        with pipeline() as pipe:
            for i in range(num_batches):
                (batch,) = pipe.run()
                for j, array in enumerate(map(np.asarray, batch)):
                    n = 16 * i + j
                    assert array.size == size(n) and (array == n).all(), (n, array)
            return pipe.statistics()

    class Squares:
        def __len__(self):
            return 40

        def __getitem__(self, i):
            return np.int64(i * i)

    def load(**options):
        batches = [np.asarray(batch).tolist() for batch in DataLoader(Squares(), batch_size=8, **options)]
        assert batches == [[i * i for i in range(k, k + 8)] for k in range(0, 40, 8)], batches

    def error_of(function, *args, **options):
        try:
            function(*args, **options)
        except UnsupportedSystemError as error:
            return error

    statistics = batches_of(20)
    assert 0 < statistics.held_bytes < 1 << 24, statistics.held_bytes
    load()
    try:
        batches_of(20, max_held_bytes=1 << 16)
        raise AssertionError("more than max_held_bytes")
    except OutOfMemoryError:
        pass
"""


def run_elsewhere(folder: Path, platform: str, *parts: str) -> str:
    path = folder / "program.py"
    path.write_text("\n".join([_PROLOGUE, f"pretend({platform!r})", *map(textwrap.dedent, parts)]))
    environment = {**os.environ, "PYTHONPATH": str(Path(dali_like.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        check=False,
        env=environment,
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_macos_has_serial_pipelines_loaders_and_threads(tmp_path: Path) -> None:
    told = run_elsewhere(
        tmp_path,
        "darwin",
        _SERIAL,
        """
        batches_of(20, py_num_workers=2, py_start_method="thread")
        load(num_workers=2, multiprocessing_context="thread")
        load(num_workers=2, multiprocessing_context="thread", persistent_workers=True)
        print(error_of(batches_of, 1, py_num_workers=2, py_start_method="fork"))
        print(error_of(load, num_workers=2, multiprocessing_context="spawn"))

        from dali_like import cli
        cli.main(["doctor"])
        """,
    )

    remedy = (
        'use parallel=False (num_workers=0 of a DataLoader), or py_start_method="thread" (multiprocessing_context="thread" '
        "of a DataLoader), or run the program on Linux"
    )
    assert told.splitlines()[:3] == [
        f"py_start_method='fork' needs Linux, and this system is darwin; {remedy}",
        f"py_start_method='spawn' needs Linux, and this system is darwin; {remedy}",
        "Ready in part: only thread works, not fork and spawn and thread_copies.",
    ]
    assert "please report" not in told


def test_windows_has_serial_pipelines_and_loaders(tmp_path: Path) -> None:
    told = run_elsewhere(
        tmp_path,
        "win32",
        _SERIAL,
        """
        print(error_of(batches_of, 1, py_num_workers=2, py_start_method="thread"))
        print(error_of(load, num_workers=2))

        from dali_like import cli
        cli.main(["doctor"])
        """,
    )

    refusal = (
        "workers need Linux, and this system is win32; use parallel=False (num_workers=0 of a DataLoader), or run the "
        "program on Linux"
    )
    assert told.splitlines()[:3] == [refusal, refusal, "Not ready: no workers start."]
    assert "please report" not in told


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_documentation_calls_them_untested(page: str) -> None:
    text = " ".join((Path(dali_like.__file__).parents[1] / page).read_text("utf-8").split())
    assert "macOS and Windows are untested" in text
