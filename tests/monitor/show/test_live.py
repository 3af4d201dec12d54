"""Statistics that a running pipeline publishes to other programs, and the server for the browser."""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.errors import NotRunningError
from dali_like.monitor.measure.statistics import WorkerStatistics
from dali_like.monitor.show import live
from dali_like.monitor.show.server import PageServer
from dali_like.monitor.show.watching import Watching
from dali_like.types import SampleInfo
from tests.conftest import DEADLINE_S, wait_until
from tests.monitor.made_up import everything

MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish after every batch, without the minimum interval."""
    monkeypatch.setattr(live, "_PERIOD_NS", 0)


def number(info: SampleInfo) -> Any:
    return np.array(info.idx_in_epoch)


def mine(name: str | None = None) -> list[live.Live]:
    return live.find(os.getpid(), name)


@pytest.mark.usefixtures("at_once")
def test_a_published_pipeline_shows_its_statistics(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(number)
    pipe.publish("train")
    for _ in range(6):  # each call publishes the state before it
        pipe.run()
    [shown] = mine()
    what = shown.read()
    assert (what["name"], what["pid"], what["batches"], what["samples"]) == ("train", os.getpid(), 5, 20)
    assert {worker["pid"] for worker in what["workers"]} <= {0, *pipe.py_worker_pids}
    assert {call["source"] for call in what["slowest"]} == {"external_source of number"}
    assert what["age_s"] >= 0


def test_nothing_is_shown_unless_it_is_asked_for(make_pipeline: MakePipeline) -> None:
    make_pipeline(number, "serial").run()
    assert not mine()


def test_publishing_starts_no_thread_and_takes_one_descriptor(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(number, "serial")
    pipe.build()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    pipe.publish()
    pipe.run()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, descriptors + 1)


def test_a_pipeline_is_shown_no_longer_when_it_has_been_closed(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(number, "serial")
    pipe.publish("train")
    [shown] = mine()
    pipe.close()
    assert not mine()
    with pytest.raises(NotRunningError, match=r"train \(process \d+\) has ended"):
        shown.read()


def test_statistics_are_written_four_times_a_second_at_most(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [10**10]
    monkeypatch.setattr(live.time, "monotonic_ns", lambda: clock[0])
    pipe = make_pipeline(number, "serial")
    pipe.publish()
    [shown] = mine()
    pipe.run()
    pipe.run()
    assert shown.read()["batches"] == 0
    clock[0] += 250_000_000
    pipe.run()
    assert shown.read()["batches"] == 2


@pytest.mark.usefixtures("at_once")
def test_errors_are_shown_too(make_pipeline: MakePipeline) -> None:
    def broken(info: SampleInfo) -> Any:
        raise ZeroDivisionError

    pipe = make_pipeline(broken, "serial")
    pipe.publish()
    [shown] = mine()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            pipe.run()
    assert shown.read()["errors"] == 1


def test_a_publication_does_not_keep_its_pipeline() -> None:
    class Shown:
        def statistics(self) -> Any:
            return Pipeline(batch_size=1).statistics()

    shown = Shown()
    publication = live.Publication(shown)
    del shown
    # Private: as if time had passed
    publication._written_ns = 0
    publication(1)
    # Private: nothing else reads the owner
    assert publication._whose() is None


@pytest.mark.usefixtures("at_once")
def test_a_forked_child_neither_publishes_nor_changes_the_statistics_of_its_parent(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(number, "serial")
    pipe.publish()
    [shown] = mine()
    before = shown.read()["at_ns"]
    child = os.fork()
    if child == 0:
        # Private: begins a call that does not end
        pipe._meter.begin()
        os._exit(len(live.find(os.getppid())) != 1 or bool(mine()))
    assert os.waitpid(child, 0)[1] == 0
    assert shown.read()["at_ns"] == before


def test_workers_are_busy_while_their_task_is_in_progress() -> None:
    worker = WorkerStatistics(0, 4712, busy_s=2.0, alive_s=5.0, on_task_s=1.5)

    [shown] = live.snapshot(replace(everything(), workers=(worker,)), "train", 0)["workers"]

    assert (shown["busy_s"], shown["on_task_s"]) == (3.5, 1.5)


def test_a_loader_can_be_published() -> None:
    loader = DataLoader([np.array(i) for i in range(8)], 4)
    loader.publish("digits")
    for _ in loader:
        pass
    assert [shown.name for shown in mine()] == ["digits"]


PROGRAM = """
import sys
import numpy as np
from dali_like import fn, pipeline_def
from dali_like.data import DataLoader

@pipeline_def(batch_size=2)
def pipeline():
    return fn.external_source(lambda info: np.array(info.idx_in_epoch), batch=False)

pipe, loader = pipeline(), DataLoader([np.array(1)] * 2)
pipe.run()
next(iter(loader))
print("running", flush=True)
sys.stdin.read()
"""


def test_a_program_can_be_told_by_its_environment_to_publish() -> None:
    environment = {**os.environ, "DALI_LIKE_PUBLISH": "1"}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"running\n"
        names = {shown.name for shown in live.find(program.pid)}
        with pytest.raises(NotRunningError, match=r"choose one: .*--pid \d+ --name 'loader 2 of -c'"):
            live.choose(program.pid)
        chosen = live.choose(program.pid, "pipeline 1 of -c")
        assert program.stdin is not None
        program.stdin.close()
    assert names == {"pipeline 1 of -c", "loader 2 of -c"}
    with pytest.raises(NotRunningError, match="has ended"):
        chosen.read()


def test_choosing_a_missing_pipeline_is_an_error() -> None:
    with pytest.raises(NotRunningError, match=rf"process {os.getpid()} does not show a pipeline called 'x': call publish"):
        live.choose(os.getpid(), "x")


def test_a_text_that_changes_while_it_is_read_is_read_again(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer stops in the middle of a change and continues while the reader waits."""
    pipe = make_pipeline(number, "serial")
    pipe.publish("train")
    [shown] = mine()
    fd = os.open(f"/proc/self/fd/{shown.fd}", os.O_RDWR)
    whole = os.pread(fd, 1 << 16, 0)
    os.pwrite(fd, (3).to_bytes(8, "little"), 0)
    os.pwrite(fd, b"half a te", 16)

    with monkeypatch.context() as patched:
        patched.setattr(live.time, "sleep", lambda _: os.pwrite(fd, whole, 0))
        assert shown.read()["name"] == "train"
    os.close(fd)


# The server


@pytest.fixture
def server() -> Iterator[PageServer]:
    """Run a server with some data and the page."""
    made = PageServer({"about.json": lambda: {"kind": "trace"}, "trace.json": b"[]", "ended.json": _ended})
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def _ended() -> Any:
    raise NotRunningError("it has ended")


def ask(server: PageServer, path: str, token: str | None = None, **headers: str) -> tuple[int, bytes, Any]:
    """Send a request. Return the status, body and headers of the response."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=300)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers


def test_a_browser_that_closes_the_connection_leaves_no_traceback(
    server: PageServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, closed = threading.Event(), threading.Event()

    def answer() -> bytes:
        asked.set()
        assert closed.wait(DEADLINE_S)
        return b"x" * (64 << 20)  # more than the buffers of the connection

    server.data = {**server.data, "large.json": lambda: answer().decode()}
    client = socket.create_connection(("127.0.0.1", server.server_port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    host = f"Host: 127.0.0.1:{server.server_port}"
    client.sendall(f"GET /large.json HTTP/1.1\r\n{host}\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
    assert asked.wait(DEADLINE_S)
    client.close()
    with pytest.MonkeyPatch.context() as patch:
        handled = threading.Event()
        patch.setattr(server, "shutdown_request", lambda request: (request.close(), handled.set()))
        closed.set()
        assert handled.wait(DEADLINE_S)

    assert capsys.readouterr().err == ""
    assert ask(server, "/about.json", server.token)[0] == 200


def test_other_errors_of_the_server_are_printed(server: PageServer, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> Any:
        raise ValueError("a fault of the page")

    server.data = {**server.data, "faulty.json": fail}
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/faulty.json", server.token)

    assert "a fault of the page" in capsys.readouterr().err


def test_the_server_listens_on_this_machine_alone(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_requests_with_the_token_get_data(server: PageServer) -> None:
    assert ask(server, "/about.json", server.token)[:2] == (200, b'{"kind": "trace"}')
    assert ask(server, "/trace.json", server.token)[:2] == (200, b"[]")


@pytest.mark.parametrize("token", [None, "", "wrong", "wröng"])
def test_a_request_without_the_token_gets_no_data(server: PageServer, token: str | None) -> None:
    status, content, _ = ask(server, "/trace.json", token and token.encode("utf-8").decode("latin-1"))
    assert status == 403
    assert b"[]" not in content


def test_the_token_does_not_count_in_the_address(server: PageServer) -> None:
    assert ask(server, f"/trace.json?token={server.token}")[0] == 403


def test_requests_by_another_name_are_refused(server: PageServer) -> None:
    """This prevents DNS rebinding: another site's name may resolve to this machine."""
    assert ask(server, "/", Host=f"example.org:{server.server_port}")[0] == 403
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize("path", ["/../server.py", "/%2e%2e/server.py", "//etc/passwd", "/nothing", "/page/view.js"])
def test_nothing_but_the_page_is_served(server: PageServer, path: str) -> None:
    assert ask(server, path, server.token)[0] == 404


def test_the_page_may_load_nothing_from_elsewhere(server: PageServer) -> None:
    status, content, headers = ask(server, "/")
    assert status == 200
    assert b"view.js" in content
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    for name, kind in (("view.js", "text/javascript"), ("style.css", "text/css")):
        assert ask(server, f"/{name}")[2]["Content-Type"] == f"{kind}; charset=utf-8"


def test_an_ended_pipeline_is_gone(server: PageServer) -> None:
    assert ask(server, "/ended.json", server.token)[:2] == (410, b"it has ended")


def test_each_server_has_a_token_of_its_own() -> None:
    with PageServer({}) as first, PageServer({}) as second:
        assert first.token != second.token
        assert first.token in first.url


def test_published_statistics_are_json_without_data_of_the_user(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(number, "serial")
    pipe.run()
    what = live.snapshot(pipe.statistics(), "train", 5)
    assert json.loads(json.dumps(what)) == what
    assert set(what["slowest"][0]) == {"source", "sample", "epoch", "duration_s"}


# Values of readers


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("variables", "rank"), [({}, (0, 1)), ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4)), ({"RANK": "2"}, (0, 1))]
)
def test_the_rank_is_that_of_the_launcher(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: tuple[int, int]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    pipe = make_pipeline(number, "serial")
    pipe.publish("train")

    shown = mine("train")[0].read()
    assert (shown["rank"], shown["num_ranks"]) == rank


def test_diagnosis_and_waiting_are_of_the_recent_past() -> None:
    long_ago, before, now = (replace(everything(), replaced_samples=count) for count in (1, 10, 100))
    window = live.RecentPast(long_ago)

    assert window.since(before, 1).replaced_samples == 9
    assert window.since(before, live.WINDOW_NS // 2).replaced_samples == 9
    assert window.since(before, live.WINDOW_NS + 1).replaced_samples == 9  # from now on, this is the earlier moment
    assert window.since(now, live.WINDOW_NS + 2).replaced_samples == 99
    assert window.since(now, 2 * live.WINDOW_NS + 2).replaced_samples == 90


@pytest.mark.usefixtures("at_once")
def test_calls_operators_and_diagnosis_are_shown(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(number, "serial")
    pipe.publish("train")
    for _ in range(15):
        pipe.run()

    def shows_all() -> bool:
        """Statistics are published from time to time."""
        pipe.run()
        return sum(mine("train")[0].read()["calls"][0]["counts"]) >= 14 * 4

    wait_until(shows_all, "the calls of all batches")
    shown = mine("train")[0].read()
    [calls] = shown["calls"]
    assert len(calls["edges_s"]) == len(calls["counts"]) + 1
    assert shown["recent"]["diagnosis"]["bottleneck"] != "not known yet"
    assert {stage["name"] for stage in shown["recent"]["stages"]} <= {"number", "assembly"}


@pytest.mark.usefixtures("at_once")
def test_the_page_gets_all_pipelines_until_they_have_ended(make_pipeline: MakePipeline) -> None:
    pipes = [make_pipeline(number, "serial"), make_pipeline(number, "serial")]
    for name, pipe in zip(("first", "second"), pipes, strict=True):
        pipe.publish(name)
    watching = Watching(os.getpid())

    first, second = sorted(watching.read()["pipelines"], key=lambda shown: str(shown["name"]))
    assert (first["name"], second["name"]) == ("first", "second")
    assert first["id"] != second["id"]
    assert first["memory"]["bytes"] >= first["memory"]["main_bytes"] > 0
    again = {shown["id"]: shown["memory"] for shown in watching.read()["pipelines"]}
    assert again[first["id"]] == first["memory"]  # not measured again at once

    pipes[0].close()
    assert [shown["name"] for shown in watching.read()["pipelines"]] == ["second"]
    pipes[1].close()
    with pytest.raises(NotRunningError, match=r"second \(process \d+\) has ended"):
        watching.read()


def test_without_any_pipeline_the_page_is_not_served() -> None:
    with pytest.raises(NotRunningError, match="does not show a pipeline"):
        Watching(os.getpid()).read()
