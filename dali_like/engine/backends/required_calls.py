"""Check, before a pool starts, that the system allows the calls that workers cannot do without.

Sandboxes refuse calls by seccomp filters, which child processes inherit. Without this check, the first refusal would be an
error without a name, or the end of each worker or forkserver at its start. Runs in the main process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import sys

from dali_like.engine.backends.forkserver import PR_SET_PDEATHSIG, prctl
from dali_like.engine.memory.descriptor_messages import as_socket, receive, send, socket_pair
from dali_like.engine.memory.descriptors import Descriptor, EventSet
from dali_like.engine.memory.system_calls import USE_NO_WORKERS, anonymous_file, required
from dali_like.engine.pool.pipes import waiting_bytes
from dali_like.errors import UnsupportedSystemError

#: See PR_GET_PDEATHSIG(2const).
_PR_GET_PDEATHSIG = 2


def check_patches(*, has_threads: bool) -> None:
    """Check that gevent has not replaced the modules by which workers run and wait: its versions wait for each other.

    Args:
        has_threads: whether workers are threads.

    Raises:
        UnsupportedSystemError: it has.
    """
    monkey = sys.modules.get("gevent.monkey")
    needed = ("select", "threading") if has_threads else ("select",)
    if monkey is not None and any(map(monkey.is_module_patched, needed)):
        arguments = "select=False, thread=False" if has_threads else "select=False"
        raise UnsupportedSystemError(
            f"gevent.monkey has replaced parts of Python that workers need; call gevent.monkey.patch_all({arguments}), or "
            f"{USE_NO_WORKERS}"
        )


def check_namespace() -> None:
    """Check that children of this process are in its PID namespace. Elsewhere they cannot watch it, or cannot be started.

    Raises:
        UnsupportedSystemError: they are not.
    """
    own, of_children = "/proc/self/ns/pid", "/proc/self/ns/pid_for_children"
    if not os.path.lexists(of_children):
        return  # no /proc, or a kernel before 4.12
    try:
        is_same = os.readlink(own) == os.readlink(of_children)
    except FileNotFoundError:  # the namespace has no process
        is_same = False
    if not is_same:
        raise UnsupportedSystemError(
            "child processes of this program are in another PID namespace than the program, and workers cannot watch the "
            f"program from there; start it by `unshare --pid --fork`, or {USE_NO_WORKERS}"
        )


def check_waiting_calls() -> None:
    """Check the calls by which the main process waits for workers of any kind.

    Raises:
        UnsupportedSystemError: the system refuses one.
    """
    purpose = "to wait for each other"
    with required("pipe2", purpose, USE_NO_WORKERS):
        read, write = map(Descriptor, os.pipe())
    with required("ioctl(FIONREAD)", purpose, USE_NO_WORKERS):
        waiting_bytes(read)
    with required("poll", purpose, USE_NO_WORKERS):
        select.poll().poll(0)
    with required("epoll_create1", purpose, USE_NO_WORKERS):
        events = EventSet()
    with required("epoll_ctl", purpose, USE_NO_WORKERS):
        events.add(read)
    for descriptor in (events, read, write):
        descriptor.close()


def check_process_calls() -> None:
    """Check the calls by which worker processes start, and learn of each other's end.

    Raises:
        UnsupportedSystemError: the system refuses one.
    """
    purpose = "to learn of each other's end"
    with required("pidfd_open", purpose):
        own = Descriptor(os.pidfd_open(os.getpid()))
    with required("prctl(PR_SET_PDEATHSIG)", purpose):
        number = ctypes.c_int()
        prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
        prctl(PR_SET_PDEATHSIG, number.value)  # changes nothing
    with required("getppid", purpose):
        if os.getppid() < 0:  # Python does not look for an error of this call
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    with required("waitid", purpose), contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, own.fileno(), os.WEXITED | os.WNOHANG)
    with required("wait4", purpose), contextlib.suppress(ChildProcessError):
        os.wait4(os.getpid(), os.WNOHANG)
    purpose = "to talk to the process that starts them"
    with required("socketpair(SOCK_SEQPACKET)", purpose):
        ours, theirs = socket_pair()
    with required("sendmsg(SCM_RIGHTS)", purpose), as_socket(ours) as sender:
        send(sender, b"x", [own.fileno()])
    with required("recvmsg(SCM_RIGHTS)", purpose), as_socket(theirs) as receiver:
        _, fds = receive(receiver, 1, 1)
    copies = [own, ours, theirs, *map(Descriptor, fds)]
    purpose = "to start"
    with required("dup2", purpose):
        os.dup2(own.fileno(), copies[-1].fileno())
    copies.append(Descriptor(anonymous_file("dali_like_probe")))
    with required("lseek", purpose):
        os.lseek(copies[-1].fileno(), 0, os.SEEK_CUR)
    for descriptor in copies:
        descriptor.close()
