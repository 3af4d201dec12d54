"""Make the output of a worker process reach the terminal or notebook in whole lines, marked with the worker.

In a worker, `sys.stdout` and `sys.stderr` are streams that write to the descriptors 1 and 2, even if the main process has
replaced its own streams. Terminals, pipes and notebooks read these descriptors. The streams guarantee:

- One system call writes a line with its mark and its newline, so that lines of several workers do not mix. The kernel may
  split a line only if it is longer than PIPE_BUF and goes to a full pipe. A carriage return ends a line, too: progress bars
  work.
- Lines written by one call stay together up to PIPE_BUF bytes, as in a log record, a warning, or a traceback.
- An incomplete line waits for its newline, or gets one at the end of the worker. Each thread has its own line.
- A stream never raises because nobody reads: it drops text that it cannot write.

Log handlers for the standard streams of the main process write to the streams of the worker. Forked workers inherit the
handlers; spawned workers get the handlers of the root logger, with level and format. Uncaught exceptions look as in Python
without a hook: the hooks of the main process, such as a notebook's, may need connections that the worker does not have.

Output of C code and of child processes is not marked, nor is output through a stream object of the main process that the
program has kept.
"""

from __future__ import annotations

import contextlib
import io
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
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dali_like.engine.memory.system_calls import anonymous_file

if TYPE_CHECKING:
    import logging

_DESCRIPTORS = {"stdout": 1, "stderr": 2}

_LINE = rb"[^\r\n]*(?:\r?\n|\r)"

#: The streams of the main process that this worker has replaced.
_replaced: list[Any] = []


class LineWriter(io.RawIOBase):
    """Writes whole lines to a descriptor, each after a mark.

    Args:
        fd: the descriptor. It stays open.
        mark: the text before each line.
        name: the name of the stream.
    """

    _all: ClassVar[weakref.WeakSet[LineWriter]] = weakref.WeakSet()

    def __init__(self, fd: int, mark: str, name: str) -> None:
        self.name = name
        self._fd = fd
        self._mark = mark.encode()
        self._begun: dict[int, bytearray] = {}  # by thread: its incomplete line
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
        """Write incomplete lines, with a newline each."""
        while self._begun:
            _, begun = self._begun.popitem()
            if begun:
                self._write_lines(bytes(begun) + b"\n")

    def _write_lines(self, lines: bytes) -> None:
        together = b""
        for line in re.findall(_LINE, lines):
            marked = self._mark + line
            if together and len(together) + len(marked) > select.PIPE_BUF:
                _write(self._fd, together)
                together = b""
            together += marked
        _write(self._fd, together)

    @classmethod
    def forget_begun_lines(cls) -> None:
        """In a forked child, drop incomplete lines: the parent writes them."""
        for writer in cls._all:
            writer._begun.clear()

    @classmethod
    def end_all_lines(cls) -> None:
        """Call `end_lines` of all writers."""
        for writer in cls._all:
            writer.end_lines()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=LineWriter.forget_begun_lines)


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    with contextlib.suppress(OSError):  # closed or broken: nobody reads
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()


def marked_stream(fd: int, mark: str, name: str, like: Any) -> io.TextIOWrapper:
    """Return a text stream that writes whole lines, each after a mark.

    Args:
        fd, mark, name: as for `LineWriter`.
        like: a stream with the encoding to use.
    """
    stream = io.TextIOWrapper(
        LineWriter(fd, mark, name),
        getattr(like, "encoding", None) or "utf-8",  # a replaced stream may have none
        getattr(like, "errors", None) or "backslashreplace",
        newline="\n",
        line_buffering=True,
        write_through=True,
    )
    stream.mode = "w"  # type: ignore[misc]  # as in sys.stdout
    return stream


def mark_output(worker: int) -> None:
    """From now on, mark the output of this worker process: prints, logs, warnings and uncaught exceptions."""
    marked = {}
    for name, fd in _DESCRIPTORS.items():
        stream = getattr(sys, name)
        if stream is not None and getattr(sys, f"__{name}__") is not None:  # else the program has closed it
            marked[name] = marked_stream(fd, f"[worker {worker}] ", f"<{name}>", stream)
    for handler, name in _stream_handlers(everywhere=True):
        if name in marked:
            handler.stream = marked[name]  # setStream() would flush text of the main process in the old one
    for name, stream in marked.items():
        _replaced.extend((getattr(sys, name), getattr(sys, f"__{name}__")))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.excepthook = _show_exception
    threading.excepthook = _show_thread_exception


def end_output() -> None:
    """Write all pending output of a worker. A process that ends by ``_exit`` must call this."""
    flush_streams()
    LineWriter.end_all_lines()


def flush_streams() -> None:
    """Flush the standard streams of this process."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, *_replaced):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, replaced or gone
            continue


def _stream_handlers(*, everywhere: bool = False) -> Iterator[tuple[Any, str]]:
    """Yield the handlers of the root logger, or of all loggers, for standard streams, with the name of the stream."""
    if "logging" not in sys.modules:
        return  # and importing it takes milliseconds
    import logging

    streams = {id(stream): name for name in _DESCRIPTORS for stream in (getattr(sys, name), getattr(sys, f"__{name}__"))}
    streams.pop(id(None), None)
    # Private, but much shorter than the loggers: a forked worker copies the memory of each object that it looks at.
    everyone = [handler for reference in logging._handlerList if (handler := reference())]  # type: ignore[attr-defined]
    for handler in everyone if everywhere else logging.root.handlers:
        if isinstance(handler, logging.StreamHandler) and (name := streams.get(id(vars(handler).get("stream")))):
            yield handler, name


def _show_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an exception as Python does, but by one call."""
    sys.stderr.write("".join(traceback.format_exception(kind, error, trace)))


def _show_thread_exception(args: threading.ExceptHookArgs) -> None:
    """Show an exception as Python does, but by one call."""
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
    """The root logger, as ``logging.basicConfig`` sets it up: level, and handlers for standard streams.

    The level is None if the program does not import `logging`.
    """

    level: int | None
    handlers: tuple[HandlerSetup, ...]


def logging_setup() -> LoggingSetup:
    """Return the setup of this process."""
    handlers = [
        HandlerSetup(name, handler.level, _pickle_formatter(handler.formatter)) for handler, name in _stream_handlers()
    ]
    level = sys.modules["logging"].root.level if "logging" in sys.modules else None
    return LoggingSetup(level, tuple(handlers))


def _pickle_formatter(formatter: logging.Formatter | None) -> bytes:
    if formatter is None:
        return pickle.dumps(None)
    try:
        from dali_like.common.pickling_by_value import dumps_by_value  # needed only with a formatter

        return dumps_by_value(formatter)
    except Exception:  # a user's class may raise anything; the text matters more than its format
        return pickle.dumps(None)


#: The log handlers made by `log_as_in`.
_adopted: list[logging.Handler] = []


def log_as_in(setup: LoggingSetup) -> None:
    """From now on, log as the main process does."""
    if setup.level is None:
        return
    import logging  # slow to import

    for wanted in setup.handlers:
        handler = logging.StreamHandler(getattr(sys, wanted.stream))
        handler.setLevel(wanted.level)
        with contextlib.suppress(Exception):  # the default format remains
            handler.setFormatter(pickle.loads(wanted.formatter))
        logging.root.addHandler(handler)
        _adopted.append(handler)
    logging.root.setLevel(setup.level)


def settle_logging() -> None:
    """Remove the handlers of `log_as_in` if a module imported since then has set up logging itself."""
    if _adopted and len(list(_stream_handlers())) > len(_adopted):
        while _adopted:
            sys.modules["logging"].root.removeHandler(_adopted.pop())


@contextlib.contextmanager
def held_output() -> Iterator[None]:
    """Hold back all output of this process, also of C code, until the block ends. An exception drops the output."""
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
    """Redirect a descriptor to a file in memory. Yield the file."""
    with contextlib.ExitStack() as stack:
        file = anonymous_file("dali_like_output")
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
