"""Programs in which the kernel refuses a system call, by a filter of seccomp(2), as old kernels and sandboxes do."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dali_like
from tests.conftest import DEADLINE_S

#: Numbers of the calls, by architecture; see the kernel's tables of system calls.
_NUMBERS = {
    "x86_64": {
        "memfd_create": 319,
        "splice": 275,
        "fallocate": 285,
        "madvise": 28,
        "fcntl": 72,
        "pidfd_open": 434,
        "prctl": 157,
        "socketpair": 53,
        "sched_getaffinity": 204,
        "eventfd2": 290,
        "poll": 7,
        "ioctl": 16,
        "pipe2": 293,
        "epoll_create1": 291,
        "epoll_ctl": 233,
        "waitid": 247,
        "wait4": 61,
        "sendmsg": 46,
        "recvmsg": 47,
        "getppid": 110,
        "dup2": 33,
        "lseek": 8,
        "prlimit64": 302,
        "sigaltstack": 131,
    },
    "aarch64": {
        "memfd_create": 279,
        "splice": 76,
        "fallocate": 47,
        "madvise": 233,
        "fcntl": 25,
        "pidfd_open": 434,
        "prctl": 167,
        "socketpair": 199,
        "sched_getaffinity": 123,
        "eventfd2": 19,
        "poll": 73,
        "ioctl": 29,
        "pipe2": 59,
        "epoll_create1": 20,
        "epoll_ctl": 21,
        "waitid": 95,
        "wait4": 260,
        "sendmsg": 211,
        "recvmsg": 212,
        "getppid": 173,
        "dup2": 24,
        "lseek": 62,
        "prlimit64": 261,
        "sigaltstack": 132,
    },
}

#: ``refuse(call, number, argument, value)``: from now on, a system call fails with an error number in this process and its
#: descendants; if `argument` is the index of an argument, only with that value of it.
_PROLOGUE = """
import ctypes, errno, struct

def refuse(number, error, argument=None, value=0):
    load, jump, end = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
    allow, fail = (end, 0, 0, 0x7FFF0000), (end, 0, 0, 0x00050000 | error)
    if argument is None:
        program = [(load, 0, 0, 0), (jump, 0, 1, number), fail, allow]
    else:
        program = [(load, 0, 0, 0), (jump, 0, 3, number), (load, 0, 0, 16 + 8 * argument), (jump, 0, 1, value), fail, allow]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    filters = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(38, 1, 0, 0, 0) or prctl(22, 2, filters, 0, 0):  # PR_SET_NO_NEW_PRIVS; PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "no filter")
"""

#: Value of an argument of a call that is refused, with its index: only this use of the call is refused.
_PARTS = {
    "fcntl(F_ADD_SEALS)": ("fcntl", 1, 1033),
    "fcntl(F_GETPIPE_SZ)": ("fcntl", 1, 1032),
    "madvise(MADV_REMOVE)": ("madvise", 2, 9),
    "prctl(PR_SET_PDEATHSIG)": ("prctl", 0, 1),
}


def refusal(call: str, error: int = errno.ENOSYS) -> str:
    """Return a statement after which a system call is refused, for programs of `run_program`."""
    name, *part = _PARTS.get(call, (call,))
    if platform.machine() not in _NUMBERS:
        pytest.skip(f"the numbers of system calls on {platform.machine()} are not in this file")
    return f"refuse({_NUMBERS[platform.machine()][str(name)]}, {error}, *{part})"


def run_program(folder: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, from a file: spawned workers read the source."""
    path = folder / "program.py"
    path.write_text("\n".join([_PROLOGUE, *map(textwrap.dedent, parts)]))
    environment = {**os.environ, "PYTHONPATH": str(Path(dali_like.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        check=False,
        env=environment,
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
