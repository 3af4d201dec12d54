"""An object store on loopback: moto's server, which speaks S3, in a process of its own."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.http_store import HttpStore, http_store

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("s3fs") is None else []

BUCKET = "photographs"
FILES = {f"train/{i:02}.bin": bytes([i]) * (50_000 + i) for i in range(12)}
ACCOUNT: dict[str, Any] = {"key": "who", "secret": "knows", "client_kwargs": {"region_name": "us-east-1"}}


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    """The port of the store; there are FILES in BUCKET."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        assert process.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(answers, "the store")
        fill(port)
        yield port
    finally:
        process.kill()
        process.wait()


def fill(port: int) -> None:
    """Put the files there."""
    import botocore.session

    client = botocore.session.get_session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=ACCOUNT["key"],
        aws_secret_access_key=ACCOUNT["secret"],
    )
    client.create_bucket(Bucket=BUCKET)
    for name, data in FILES.items():
        client.put_object(Bucket=BUCKET, Key=name, Body=data)
    client.close()


@pytest.fixture
def store(moto_port: int) -> Iterator[HttpStore]:
    """A way to the store with faults: requests fail when the test says so."""
    with http_store() as store:
        store.upstream = moto_port
        yield store
