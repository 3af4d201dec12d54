"""Prints, logs and warnings of workers arrive in whole, marked lines; closed streams do no harm."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import re
import select
import socket
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dali_like
from dali_like import Pipeline, get_worker_info
from dali_like.engine.worker.output import LineWriter, marked_stream
from dali_like.types import SampleInfo
from tests.conftest import DEADLINE_S, START_METHODS

MakePipeline = Callable[..., Pipeline]

LIKE_STDOUT = SimpleNamespace(encoding="utf-8", errors="strict")


# The streams


class Wire:
    """A stream, and the data of each of its calls of `os.write`.

    Attributes:
        stream: marks its lines with "[3] ".
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader.setblocking(False)
        self.stream = marked_stream(self._writer.fileno(), "[3] ", "<stdout>", LIKE_STDOUT)

    def received(self) -> list[str]:
        """Return the data of each system call since the last call."""
        messages = []
        with contextlib.suppress(BlockingIOError):
            while True:
                messages.append(self._reader.recv(1 << 20).decode())
        return messages

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def in_a_thread(call: Callable[[], Any]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


class TestLines:
    def test_are_written_at_once_with_mark_and_end(self, wire: Wire) -> None:
        print("sample", 7, file=wire.stream)

        assert wire.received() == ["[3] sample 7\n"]

    def test_wait_for_their_end(self, wire: Wire) -> None:
        print("load", end="", file=wire.stream, flush=True)
        print("ing ", end="", file=wire.stream, flush=True)
        assert wire.received() == []

        print("done", file=wire.stream)

        assert wire.received() == ["[3] loading done\n"]

    def test_stay_together_when_they_are_written_at_once(self, wire: Wire) -> None:
        wire.stream.write("one\n\ntwo\nthr")
        wire.stream.write("ee\n")

        assert wire.received() == ["[3] one\n[3] \n[3] two\n", "[3] three\n"]

    def test_are_parted_where_they_are_too_many_for_a_pipe(self, wire: Wire) -> None:
        lines = [f"{i}".rjust(1000) + "\n" for i in range(10)]

        wire.stream.write("".join(lines))

        received = wire.received()
        assert "".join(received) == "".join(f"[3] {line}" for line in lines)
        assert len(received) == 3
        assert all(len(message) <= select.PIPE_BUF and message.endswith("\n") for message in received)

    def test_are_written_at_once_however_long(self, wire: Wire) -> None:
        line = "x" * 20 * select.PIPE_BUF

        print(line, file=wire.stream)

        assert wire.received() == [f"[3] {line}\n"]

    def test_end_with_a_carriage_return_too(self, wire: Wire) -> None:
        for text in ("\r 10%", "\r 20%", "\n", "Windows\r\n"):
            wire.stream.write(text)

        assert wire.received() == ["[3] \r", "[3]  10%\r", "[3]  20%\n", "[3] Windows\r\n"]

    def test_of_several_threads_do_not_mix(self, wire: Wire) -> None:
        wire.stream.write("of the main thread: ")
        in_a_thread(lambda: print("of", "another", file=wire.stream))
        wire.stream.write("here\n")

        assert wire.received() == ["[3] of another\n", "[3] of the main thread: here\n"]

    def test_of_bytes_are_marked_too(self, wire: Wire) -> None:
        wire.stream.buffer.write(b"\xffbytes\n"[1:])
        wire.stream.buffer.writelines([b"a", b"b\n"])

        assert wire.received() == ["[3] bytes\n", "[3] ab\n"]

    def test_without_end_get_one_at_the_end(self, wire: Wire) -> None:
        wire.stream.write("half")
        in_a_thread(lambda: wire.stream.write("a line"))
        writer = wire.stream.buffer
        assert isinstance(writer, LineWriter)

        writer.end_lines()
        writer.end_lines()

        assert sorted(wire.received()) == ["[3] a line\n", "[3] half\n"]

    def test_without_end_are_the_parents_after_a_fork(self, wire: Wire) -> None:
        wire.stream.write("begun")

        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # about threads of other tests
            pid = os.fork()
        if pid == 0:
            print("child", file=wire.stream)
            wire.stream.close()
            os._exit(0)
        os.waitpid(pid, 0)
        wire.stream.write(" and ended\n")

        assert wire.received() == ["[3] child\n", "[3] begun and ended\n"]


class TestWithoutReaders:
    def test_a_closed_descriptor(self) -> None:
        reader, writer = os.pipe()
        stream = marked_stream(writer, "[0] ", "<stdout>", LIKE_STDOUT)
        os.close(reader)
        os.close(writer)

        print("into nothing", file=stream, flush=True)

        assert not stream.isatty()

    def test_a_broken_pipe(self) -> None:
        reader, writer = os.pipe()
        stream = marked_stream(writer, "[0] ", "<stdout>", LIKE_STDOUT)
        os.close(reader)

        print("into nothing", file=stream, flush=True)

        os.close(writer)

    def test_a_full_device(self) -> None:
        with Path("/dev/full").open("wb", buffering=0) as full:
            stream = marked_stream(full.fileno(), "[0] ", "<stdout>", LIKE_STDOUT)
            print("into nothing", file=stream, flush=True)

    def test_for_a_while_from_a_full_pipe_that_does_not_block(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        stream = marked_stream(writer, "[0] ", "<stdout>", LIKE_STDOUT)
        line = "x" * (1 << 20)
        received = bytearray()

        def read() -> None:
            while data := os.read(reader, 1 << 16):
                received.extend(data)

        thread = threading.Thread(target=read)
        thread.start()
        print(line, file=stream)
        os.close(writer)
        thread.join()

        assert received.decode() == f"[0] {line}\n"
        os.close(reader)


class TestAStream:
    def test_is_like_the_one_that_it_replaces(self, wire: Wire) -> None:
        stream = wire.stream

        assert isinstance(stream, io.TextIOBase)
        assert (stream.name, stream.mode, stream.encoding, stream.errors) == ("<stdout>", "w", "utf-8", "strict")
        assert (stream.writable(), stream.readable(), stream.seekable(), stream.closed) == (True, False, False, False)
        assert stream.line_buffering

    def test_has_the_descriptor(self, wire: Wire) -> None:
        subprocess.run([sys.executable, "-c", "print('child')"], stdout=wire.stream, check=True)

        assert "".join(wire.received()) == "child\n"

    def test_knows_a_terminal(self) -> None:
        main, terminal = os.openpty()

        assert marked_stream(terminal, "", "<stdout>", LIKE_STDOUT).isatty()

        os.close(main)
        os.close(terminal)

    def test_has_the_encoding_of_the_other(self, wire: Wire) -> None:
        like = SimpleNamespace(encoding="ascii", errors="replace")
        stream = marked_stream(wire.stream.fileno(), "[3] ", "<stdout>", like)

        print("a → b", file=stream)

        assert wire.received() == ["[3] a ? b\n"]

    @pytest.mark.parametrize("like", [SimpleNamespace(), SimpleNamespace(encoding=None, errors=None), object()])
    def test_has_one_where_the_other_has_not(self, like: Any, wire: Wire) -> None:
        stream = marked_stream(wire.stream.fileno(), "[3] ", "<stdout>", like)

        print("→ \udc80", file=stream)

        assert wire.received() == ["[3] → \\udc80\n"]

    def test_is_closed_by_its_user_alone(self, wire: Wire) -> None:
        wire.stream.write("last words")
        wire.stream.close()

        assert wire.received() == ["[3] last words\n"]
        os.fstat(wire._writer.fileno())
        with pytest.raises(ValueError, match="closed"):
            wire.stream.write("more")


# Workers


def lines_of(text: str) -> dict[int, list[str]]:
    """Return the lines of each worker. Every line must have a mark."""
    lines: dict[int, list[str]] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\[worker (\d+)\] (.*)", line)
        assert match, f"a line without a mark: {line!r}"
        lines.setdefault(int(match[1]), []).append(match[2])
    return lines


def all_lines(text: str) -> list[str]:
    return list(itertools.chain.from_iterable(lines_of(text).values()))


def at_first(action: Callable[[], Any], end: Callable[[], Any] | None = None) -> dict[str, Any]:
    """Options of a source whose workers call a function at their start, and another one at their end."""
    return {"source": lambda info: np.int64(0), "source_options": {"worker_setup": action, "worker_teardown": end}}


def run_and_close(make_pipeline: MakePipeline, *, way: str, workers: int = 1, **options: Any) -> None:
    pipe = make_pipeline(options.pop("source"), way, workers=workers, **options)
    pipe.run()
    pipe.close()


class TestWorkers:
    def test_mark_the_lines_that_callbacks_print(
        self, start_method: str, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        def source(info: SampleInfo) -> Any:
            worker = get_worker_info()
            assert worker is not None
            for stream in (sys.stdout, sys.stderr):
                print("worker", worker.id, "sample", info.idx_in_epoch, file=stream)
            return np.int64(0)

        run_and_close(make_pipeline, source=source, way=start_method, workers=2, batch_size=16)

        output = capfd.readouterr()
        for text in output:
            for worker, lines in lines_of(text).items():
                assert all(line.startswith(f"worker {worker} ") for line in lines)
            assert {f"sample {i}" for i in range(16)} <= {line[len("worker 0 ") :] for line in all_lines(text)}

    def test_do_not_mix_their_lines(self, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]) -> None:
        def source(info: SampleInfo) -> Any:
            worker = get_worker_info()
            assert worker is not None
            for length in (1, 100, 5000):
                print(*[worker.id] * length, sep="")
            return np.int64(0)

        run_and_close(make_pipeline, source=source, way="fork", workers=4, batch_size=64)

        for worker, lines in lines_of(capfd.readouterr().out).items():
            assert set(lines) == {str(worker) * length for length in (1, 100, 5000)}

    def test_mark_warnings(self, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]) -> None:
        def warn() -> None:
            warnings.simplefilter("always")
            warnings.warn("something is odd", stacklevel=1)

        run_and_close(make_pipeline, way="spawn", **at_first(warn))  # pytest would record the warnings of forked workers

        assert any("UserWarning: something is odd" in line for line in lines_of(capfd.readouterr().err)[0])

    def test_end_a_line_that_they_have_begun(
        self, start_method: str, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        run_and_close(make_pipeline, way=start_method, **at_first(lambda: print("half a line", end="")))

        assert capfd.readouterr().out == "[worker 0] half a line\n"

    def test_show_uncaught_exceptions_whole(
        self, start_method: str, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        def fail() -> None:
            raise ConnectionError("lost")

        run_and_close(make_pipeline, way=start_method, workers=4, **at_first(int, fail))

        output = capfd.readouterr().err
        in_turn = [mark for mark, _ in itertools.groupby(re.findall(r"^\[worker (\d)\]", output, re.MULTILINE))]
        assert sorted(in_turn) == ["0", "1", "2", "3"]
        for lines in lines_of(output).values():
            assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "ConnectionError: lost")

    def test_show_exceptions_of_their_threads_whole(
        self, start_method: str, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        class Pieces(io.StringIO):
            def write(self, text: str) -> int:
                return super().write(f"({text})")

        def start() -> None:
            def fail() -> None:
                raise ConnectionError("lost")

            with contextlib.redirect_stderr(Pieces()) as pieces:
                thread = threading.Thread(target=fail, name="prefetch")
                thread.start()
                thread.join()
                in_a_thread(sys.exit)
            print(pieces.getvalue())

        run_and_close(make_pipeline, way=start_method, **at_first(start))

        lines = lines_of(capfd.readouterr().out)[0]
        assert lines[:2] == ["(Exception in thread prefetch:", "Traceback (most recent call last):"]
        assert lines[-2:] == ["ConnectionError: lost", ")"]

    def test_mark_lines_written_to_the_original_streams(
        self, start_method: str, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        def write() -> None:
            print("past all redirections", file=sys.__stdout__)

        run_and_close(make_pipeline, way=start_method, **at_first(write))

        assert capfd.readouterr().out == "[worker 0] past all redirections\n"

    def test_do_not_call_the_hooks_of_the_program(
        self, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> None:
            raise ConnectionError("lost")

        monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: print("the hook:", error))
        run_and_close(make_pipeline, way="fork", **at_first(int, fail))

        output = capfd.readouterr()
        assert output.out == ""
        assert lines_of(output.err)[0][-1] == "ConnectionError: lost"

    def test_have_no_stream_where_the_program_has_none(
        self, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdout", None)

        run_and_close(make_pipeline, way="fork", **at_first(lambda: print("into nothing")))

        assert capfd.readouterr().out == ""


# Logging


@contextlib.contextmanager
def fresh_root_logger() -> Iterator[None]:
    """The root logger as in programs, without the handlers of pytest."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def log_something() -> None:
    logging.debug("too low")
    logging.getLogger("loader").info("loading %d", 7)
    logging.error("broken\nbeyond repair")


class LoudFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).upper()


class TestLogging:
    def test_has_level_and_format_of_the_program(
        self, start_method: str, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with fresh_root_logger():
            logging.basicConfig(level=logging.INFO, format="%(levelname)s from %(name)s: %(message)s")
            run_and_close(make_pipeline, way=start_method, **at_first(log_something))

        output = capfd.readouterr()
        assert output.out == ""
        assert lines_of(output.err)[0] == ["INFO from loader: loading 7", "ERROR from root: broken", "beyond repair"]

    def test_goes_to_the_stream_that_the_program_has_chosen(
        self, start_method: str, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with fresh_root_logger():
            of_errors = logging.StreamHandler(sys.stderr)
            of_errors.setLevel(logging.ERROR)
            handlers = [logging.StreamHandler(sys.stdout), of_errors]
            logging.basicConfig(level=logging.INFO, handlers=handlers, format="%(levelname)s")
            run_and_close(make_pipeline, way=start_method, **at_first(log_something))

        output = capfd.readouterr()
        assert output.out == "[worker 0] INFO\n[worker 0] ERROR\n"
        assert output.err == "[worker 0] ERROR\n"

    def test_has_the_formatter_of_the_program(
        self, start_method: str, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        class LoudFormatter(logging.Formatter):
            def format(self, record: logging.LogRecord) -> str:
                return super().format(record).upper()

        with fresh_root_logger():
            handler = logging.StreamHandler()
            handler.setFormatter(LoudFormatter("{message}", style="{"))
            logging.getLogger().addHandler(handler)
            run_and_close(make_pipeline, way=start_method, **at_first(log_something))

        assert lines_of(capfd.readouterr().err)[0] == ["BROKEN", "BEYOND REPAIR"]

    def test_has_a_plain_format_where_the_formatter_cannot_travel(
        self, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with fresh_root_logger():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(lock)s", defaults={"lock": threading.Lock()}))
            logging.getLogger().addHandler(handler)
            run_and_close(make_pipeline, way="spawn", **at_first(log_something))

        assert lines_of(capfd.readouterr().err)[0] == ["broken", "beyond repair"]

    def test_is_as_python_has_it_where_the_program_has_set_up_nothing(
        self, start_method: str, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with fresh_root_logger():
            logger = logging.getLogger("loader")
            run_and_close(make_pipeline, way=start_method, **at_first(lambda: logger.error("broken")))

        assert lines_of(capfd.readouterr().err)[0] == ["broken"]

    def test_of_other_loggers_is_marked_by_forked_workers(
        self, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]
    ) -> None:
        logger = logging.getLogger("test_worker_output.other")
        handler = logging.StreamHandler(sys.stdout)
        logger.addHandler(handler)
        try:
            run_and_close(make_pipeline, way="fork", **at_first(lambda: logger.error("broken")))
        finally:
            logger.removeHandler(handler)

        assert capfd.readouterr().out == "[worker 0] broken\n"

    def test_to_other_streams_is_left_alone(
        self, make_pipeline: MakePipeline, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with fresh_root_logger():
            logging.basicConfig(filename=tmp_path / "log", format="%(message)s")
            run_and_close(make_pipeline, way="fork", **at_first(log_something))

        assert (tmp_path / "log").read_text() == "broken\nbeyond repair\n"
        assert capfd.readouterr() == ("", "")

    def test_is_not_doubled_by_modules_that_see_to_it_themselves(
        self,
        make_pipeline: MakePipeline,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        (tmp_path / "module_that_logs.py").write_text(
            "import logging\nlogging.getLogger().addHandler(logging.StreamHandler())\ndef log(): logging.error('broken')\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        with fresh_root_logger():
            import module_that_logs  # written above

            run_and_close(make_pipeline, way="spawn", **at_first(module_that_logs.log))

        assert lines_of(capfd.readouterr().err)[0] == ["broken"]
        del sys.modules["module_that_logs"]


# Programs with closed streams


PROGRAM = """
    import os, signal, sys
    import numpy as np
    from dali_like import fn, pipeline_def

    method, *actions = sys.argv[1:]
    if "SIGPIPE kills" in actions:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def source(info):
        print("sample", info.idx_in_epoch)
        print("sample", info.idx_in_epoch, file=sys.stderr)
        return np.int64(info.idx_in_epoch)

    @pipeline_def(batch_size=4, py_num_workers=2, py_start_method=method)
    def pipeline(): return fn.external_source(source=source, batch=False, parallel=True)

    pipe = pipeline()
    batches = [pipe.run()[0].as_array().tolist() for _ in range(3)]
    restarts = pipe.statistics().worker_restarts
    pipe.close()
    sys.exit(0 if batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]] and not restarts else 1)
"""


class TestAProgram:
    def start(self, folder: Path, *arguments: str, shell: str = "{}", **options: Any) -> subprocess.Popen[str]:
        file = folder / "program.py"
        file.write_text(textwrap.dedent(PROGRAM))
        command = shell.format(" ".join(f"'{part}'" for part in (sys.executable, str(file), *arguments)))
        package = str(Path(dali_like.__file__).resolve().parents[1])
        return subprocess.Popen(command, shell=True, text=True, env={**os.environ, "PYTHONPATH": package}, **options)

    @pytest.mark.parametrize("what_sigpipe_does", ["SIGPIPE kills", "SIGPIPE is ignored"])
    def test_runs_on_after_its_reader_has_ended(self, start_method: str, what_sigpipe_does: str, tmp_path: Path) -> None:
        with self.start(
            tmp_path, start_method, what_sigpipe_does, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as program:
            assert program.stdout is not None
            assert program.stderr is not None
            program.stdout.close()
            program.stderr.close()

            assert program.wait(DEADLINE_S) == 0

    @pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
    @pytest.mark.parametrize("start_method", START_METHODS)
    def test_runs_with_closed_streams(self, start_method: str, closed: str, tmp_path: Path) -> None:
        with self.start(
            tmp_path, start_method, shell=f"exec {{}} {closed}", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as program:
            out, err = program.communicate(timeout=DEADLINE_S)

        assert program.returncode == 0
        for text, name in ((out, ">&-"), (err, "2>&-")):
            gone = name in closed.split()
            assert len(all_lines(text)) == 0 if gone else {f"sample {i}" for i in range(12)} <= set(all_lines(text))
