"""What callbacks print, log and warn in worker processes reaches the terminal or notebook whole, and marked with the worker.

In a worker, `sys.stdout` and `sys.stderr` are streams that write to the descriptors 1 and 2, which terminals, pipes and
notebooks read, whatever the main process has put in the place of its own streams. They guarantee:

- A line is written in one system call, with its mark and its end, so that lines of several workers do not mix. The kernel
  may tear one only where it is longer than PIPE_BUF and goes to a pipe that is full. A carriage return ends a line, too, so
  that progress bars work.
- Lines that are written at once stay together up to PIPE_BUF bytes: those of a log record, a warning, a traceback.
- What has no end yet waits for it, or for the end of the worker, where it gets one. Each thread has its own.
- Nothing is raised because nobody reads: what cannot be written is dropped.

Log handlers that write to the standard streams of the main process write to those of the worker: forked workers have the
handlers, and spawned ones get those of the root logger, with their level and format. Uncaught exceptions are shown as Python
shows them: the hooks of the main process, a notebook's say, may need connections that are not the worker's.

What C code and child processes write, and a stream object of the main process that somebody has kept, goes past all this.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pickle
import re
import select
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

import cloudpickle

_DESCRIPTORS = {"stdout": 1, "stderr": 2}

_LINE = re.compile(rb"[^\r\n]*(?:\r?\n|\r)")

#: The streams that a worker has got from the main process, and replaced.
_replaced: list[Any] = []


class LineWriter(io.RawIOBase):
    """Writes whole lines to a descriptor, each behind a mark.

    Args:
        fd: the descriptor; it is not closed.
        mark: what comes before each line.
        name: of the stream.
    """

    _all: ClassVar[weakref.WeakSet[LineWriter]] = weakref.WeakSet()

    def __init__(self, fd: int, mark: str, name: str) -> None:
        self.name = name
        self._fd = fd
        self._mark = mark.encode()
        self._begun: dict[int, bytearray] = {}  # by thread: the line that has no end yet
        self._all.add(self)

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        data = bytes(data)
        begun = self._begun.setdefault(threading.get_ident(), bytearray())
        begun += data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end:
            lines = bytes(begun[: len(begun) - len(data) + end])
            del begun[: len(lines)]
            self._write_lines(lines)
        return len(data)

    def close(self) -> None:
        self.end_lines()
        super().close()

    def end_lines(self) -> None:
        """Give an end to the lines that have none, and write them."""
        while self._begun:
            _, begun = self._begun.popitem()
            if begun:
                self._write_lines(bytes(begun) + b"\n")

    def _write_lines(self, lines: bytes) -> None:
        together = b""
        for line in _LINE.findall(lines):
            marked = self._mark + line
            if together and len(together) + len(marked) > select.PIPE_BUF:
                _write(self._fd, together)
                together = b""
            together += marked
        _write(self._fd, together)

    @classmethod
    def forget_begun_lines(cls) -> None:
        """In a forked child: they are the parent's to write."""
        for writer in cls._all:
            writer._begun.clear()

    @classmethod
    def end_all_lines(cls) -> None:
        """`end_lines` of all."""
        for writer in cls._all:
            writer.end_lines()


os.register_at_fork(after_in_child=LineWriter.forget_begun_lines)


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    with contextlib.suppress(OSError):  # closed or broken: nobody is there to be told
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()


def marked_stream(fd: int, mark: str, name: str, like: Any) -> io.TextIOWrapper:
    """A text stream that writes whole lines, each behind a mark.

    Args:
        fd, mark, name: as for `LineWriter`.
        like: a stream with the encoding that is wanted.
    """
    stream = io.TextIOWrapper(
        LineWriter(fd, mark, name),
        getattr(like, "encoding", None) or "utf-8",  # what stands in for a stream may have none
        getattr(like, "errors", None) or "backslashreplace",
        newline="\n",
        line_buffering=True,
        write_through=True,
    )
    stream.mode = "w"  # type: ignore[misc]  # as sys.stdout has it
    return stream


def mark_output(worker: int) -> None:
    """Let this process, which is a worker from now on, mark what it prints, logs and warns, and uncaught exceptions."""
    marked = {}
    for name, fd in _DESCRIPTORS.items():
        stream = getattr(sys, name)
        if stream is not None and getattr(sys, f"__{name}__") is not None:  # else the program has none, or wants none
            marked[name] = marked_stream(fd, f"[worker {worker}] ", f"<{name}>", stream)
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        for handler, name in _handlers_of(logger):
            if name in marked:
                handler.stream = marked[name]  # setStream() would write what the main process had in the old one
    for name, stream in marked.items():
        _replaced.extend((getattr(sys, name), getattr(sys, f"__{name}__")))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.excepthook = _show_exception
    threading.excepthook = _show_thread_exception


def end_output() -> None:
    """Write all that a worker still has to write, as a process that ends by ``_exit`` must."""
    flush_streams()
    LineWriter.end_all_lines()


def flush_streams() -> None:
    """Write out what Python still holds of the standard streams of this process."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, *_replaced):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, replaced or gone: nobody is left to tell
            continue


def _handlers_of(logger: Any) -> Iterator[tuple[Any, str]]:
    """The handlers of a logger that write to a standard stream, and the name of the stream."""
    for handler in getattr(logger, "handlers", ()):
        if isinstance(handler, logging.StreamHandler):
            stream = vars(handler).get("stream")
            for name in _DESCRIPTORS:
                if stream is not None and (stream is getattr(sys, name) or stream is getattr(sys, f"__{name}__")):
                    yield handler, name
                    break


def _show_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """As Python does, but in one piece."""
    sys.stderr.write("".join(traceback.format_exception(kind, error, trace)))


def _show_thread_exception(args: threading.ExceptHookArgs) -> None:
    """As Python does, but in one piece."""
    if args.exc_type is not SystemExit:
        name = args.thread.name if args.thread is not None else threading.get_ident()
        text = "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
        sys.stderr.write(f"Exception in thread {name}:\n{text}")


class HandlerSetup(NamedTuple):
    """A log handler that writes to "stdout" or "stderr"; the formatter is pickled."""

    stream: str
    level: int
    formatter: bytes


class LoggingSetup(NamedTuple):
    """What of the root logger concerns the terminal: what ``logging.basicConfig`` sets up."""

    level: int
    handlers: tuple[HandlerSetup, ...]


def logging_setup() -> LoggingSetup:
    """That of this process."""
    handlers = [
        HandlerSetup(name, handler.level, _pickle_formatter(handler.formatter))
        for handler, name in _handlers_of(logging.root)
    ]
    return LoggingSetup(logging.root.level, tuple(handlers))


def _pickle_formatter(formatter: logging.Formatter | None) -> bytes:
    try:
        return bytes(cloudpickle.dumps(formatter))
    except Exception:  # whatever a user's class does when pickled: what is logged matters more than how it looks
        return pickle.dumps(None)


#: The log handlers that `log_as_in` has made.
_adopted: list[logging.Handler] = []


def log_as_in(setup: LoggingSetup) -> None:
    """Log as the main process does, from now on."""
    for wanted in setup.handlers:
        handler = logging.StreamHandler(getattr(sys, wanted.stream))
        handler.setLevel(wanted.level)
        with contextlib.suppress(Exception):  # see above
            handler.setFormatter(pickle.loads(wanted.formatter))
        logging.root.addHandler(handler)
        _adopted.append(handler)
    logging.root.setLevel(setup.level)


def settle_logging() -> None:
    """Log as the modules say that have been imported since `log_as_in`, if any of them sees to that itself."""
    if len(list(_handlers_of(logging.root))) > len(_adopted):
        while _adopted:
            logging.root.removeHandler(_adopted.pop())


@contextlib.contextmanager
def held_output() -> Iterator[None]:
    """Hold back what this process prints meanwhile, by whatever means; it is dropped if an exception comes."""
    with contextlib.ExitStack() as stack:
        flush_streams()
        held = {fd: stack.enter_context(_redirected(fd)) for fd in _DESCRIPTORS.values() if _is_open(fd)}
        stack.callback(flush_streams)
        yield
        flush_streams()
        printed = {fd: os.pread(file, os.fstat(file).st_size, 0) for fd, file in held.items()}
    for fd, data in printed.items():
        _write(fd, data)


@contextlib.contextmanager
def _redirected(fd: int) -> Iterator[int]:
    """Let a descriptor lead to a file in memory meanwhile, which is given."""
    with contextlib.ExitStack() as stack:
        file = os.memfd_create("dali_like_output", os.MFD_CLOEXEC)
        stack.callback(os.close, file)
        real = os.dup(fd)
        stack.callback(os.close, real)
        os.dup2(file, fd)
        stack.callback(os.dup2, real, fd)
        yield file


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
