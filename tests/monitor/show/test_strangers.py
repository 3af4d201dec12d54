"""Damaged texts of strangers in place of statistics, and connections that they hold: neither breaks the two commands."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like.cli import top
from dali_like.engine.memory.system_calls import anonymous_file
from dali_like.monitor.show import live, server
from dali_like.monitor.show.live_schema import SNAPSHOT
from tests.conftest import wait_until
from tests.monitor.made_up import everything

_IS_FULL = os.environ.get("PARITY") == "full"


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values of a document."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield (*path, key)
        yield from places(value, (*path, key))


VALID = json.loads(json.dumps(live.snapshot(everything(), "train", 1)))
PLACES = list(places(VALID))


def published(text: bytes, length: int | None = None) -> int:
    """Publish any text; return the descriptor."""
    fd = anonymous_file("dali_like_live")
    os.write(fd, struct.pack("=qq", 2, len(text) if length is None else length) + text)
    return fd


def test_statistics_of_all_kinds_have_the_form() -> None:
    assert SNAPSHOT(VALID, "") is None


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (b"", None),
        (b"[" * 100_000, None),
        (b"{}", None),
        (b"[]", None),
        (b"null", None),
        (b"\xff\xfe", None),
        (b'{"name": 3}', None),
        (json.dumps({**VALID, "pid": os.getpid()}).encode(), -5),
        (json.dumps({**VALID, "pid": os.getpid(), "at_ns": 10**400}).encode(), None),
        (json.dumps({**VALID, "pid": os.getpid(), "wait_s": float("nan")}).encode(), None),
        (json.dumps({**VALID, "pid": os.getpid(), "workers": [{}]}).encode(), None),
        (json.dumps({**VALID, "pid": os.getpid(), "name": ["x"]}).encode(), None),
    ],
)
def test_publications_in_another_form_are_skipped(text: bytes, length: int | None) -> None:
    fd = published(text, length)
    try:
        assert live.find(os.getpid()) == []
        assert live.read_all(os.getpid()) == []
    finally:
        os.close(fd)


def test_a_file_without_a_header_is_skipped() -> None:
    fd = anonymous_file("dali_like_live")
    try:
        assert live.find(os.getpid()) == []
    finally:
        os.close(fd)


@settings(max_examples=10_000 if _IS_FULL else 150, deadline=None)
@given(st.data())
def test_damaged_statistics_are_shown_or_skipped(choices: st.DataObject) -> None:
    junk = st.none() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
    shown = json.loads(json.dumps({**VALID, "pid": os.getpid()}))
    place = choices.draw(st.sampled_from(PLACES))
    part = shown
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = choices.draw(junk)
    fd = published(json.dumps(shown).encode())
    try:
        found = [each.read() for each in live.find(os.getpid())]
    finally:
        os.close(fd)

    for each in found:
        top.screen(each, each)
        top.overview([each])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone may read the files of others")
def test_root_skips_other_users_unless_their_process_is_given() -> None:
    program = """
import os, struct, sys, time
os.setgid(65534)
os.setuid(65534)
text = sys.stdin.buffer.readline().replace(b'"pid": 0', b'"pid": %d' % os.getpid())
fd = os.memfd_create("dali_like_live")
os.write(fd, struct.pack("=qq", 2, len(text)) + text)
print("published", flush=True)
sys.stdin.read()
"""
    text = json.dumps({**VALID, "pid": 0, "name": "of a stranger"}).encode()
    with subprocess.Popen([sys.executable, "-Ic", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdin is not None
        assert stranger.stdout is not None
        stranger.stdin.write(text + b"\n")
        stranger.stdin.flush()
        assert stranger.stdout.readline() == b"published\n"
        assert [each.name for each in live.find(stranger.pid)] == ["of a stranger"]
        assert "of a stranger" not in [each.name for each in live.find()]


def test_a_pipe_in_place_of_the_file_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    fd = os.open(tmp_path / "pipe", os.O_RDWR)
    monkeypatch.setattr(live, "_is_publication", lambda pid, number: number == str(fd))
    try:
        assert live.find(os.getpid()) == []
    finally:
        os.close(fd)


# Connections


@pytest.fixture
def page() -> Iterator[server.PageServer]:
    """A server with the page."""
    made = server.PageServer({})
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def connected(page: server.PageServer, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", page.server_port), timeout=300)
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize("sent", [b"", b"GET / HT"], ids=["silent", "slow"])
def test_idle_connections_are_closed_without_a_word(
    sent: bytes, page: server.PageServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "_CONNECTION_S", 0.05)

    before = threading.active_count()

    with connected(page, sent) as connection:
        assert connection.recv(1) == b""
    wait_until(lambda: threading.active_count() == before, "the end of their threads")
    assert capsys.readouterr().err == ""


def test_more_connections_than_the_limit_are_closed_at_once(
    page: server.PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 3)
    before = threading.active_count()
    held = [connected(page) for _ in range(3)]
    try:
        with connected(page) as another:
            assert another.recv(1) == b""
    finally:
        for each in held:
            each.close()
    wait_until(lambda: threading.active_count() == before, "the end of their threads")
    with connected(page, b"GET / HTTP/1.0\r\nHost: localhost:%d\r\n\r\n" % page.server_port) as again:
        assert again.recv(12) == b"HTTP/1.0 200"
