"""Rate and bytes of files read in chunks from an HTTP server with latency, relative to one sequential download.

The server is a process of its own. All of its connections share one link of limited bandwidth.

python -m benchmarks.http_chunks [LATENCY_MS] [MEGABYTES] [CHUNK_MB]
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from dali_like.data import ComposedDataset

#: Bandwidth of the link: that of a store, not that of loopback.
_BYTES_PER_S = 50e6
_PIECE_BYTES = 64 << 10
_NUM_FILES = 4
_RECORD_BYTES = 100_000


class _Link:
    """Passes bytes on at a limited rate, in the order of their arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_s = 0.0
        self.sent_bytes = 0

    def pass_on(self, num_bytes: int) -> None:
        with self._lock:
            self._free_s = max(time.monotonic(), self._free_s) + num_bytes / _BYTES_PER_S
            self.sent_bytes += num_bytes
            left_s = self._free_s - time.monotonic()
        time.sleep(max(left_s, 0))


def _handler(folder: str, latency_s: float) -> type[BaseHTTPRequestHandler]:
    link = _Link()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._begin(200, os.path.getsize(self._path))

        def do_GET(self) -> None:
            if self.path == "/sent":
                text = str(link.sent_bytes).encode()
                self._begin(200, len(text))
                self.wfile.write(text)
                return
            wanted = self.headers.get("Range", "")
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            with open(self._path, "rb") as file:
                file.seek(int(first or 0))
                left = int(last) + 1 - int(first) if wanted else os.path.getsize(self._path)
                self._begin(206 if wanted else 200, left)
                while piece := file.read(min(left, _PIECE_BYTES)):
                    link.pass_on(len(piece))
                    self.wfile.write(piece)
                    left -= len(piece)

        @property
        def _path(self) -> str:
            return os.path.join(folder, os.path.basename(self.path))

        def _begin(self, status: int, size: int) -> None:
            time.sleep(latency_s)
            self.send_response(status)
            self.send_header("Content-Length", str(size))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


def _serve(folder: str, latency_ms: str) -> None:
    ThreadingHTTPServer.request_queue_size = 128  # with the default, some of many connections at once wait a second
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder, float(latency_ms) / 1000))
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


def _write_tar(path: str, num_bytes: int) -> None:
    with tarfile.open(path, mode="w") as archive:
        for number in range(num_bytes // _RECORD_BYTES):
            header = tarfile.TarInfo(f"{number:06}.bin")
            header.size = _RECORD_BYTES
            archive.addfile(header, io.BytesIO(os.urandom(header.size)))


def _write_parquet(path: str, num_bytes: int, group_bytes: int) -> None:
    import pyarrow as pa  # optional
    import pyarrow.parquet as pq

    rows = [os.urandom(_RECORD_BYTES) for _ in range(num_bytes // _RECORD_BYTES)]
    table = pa.table({"bin": rows, "n": np.arange(len(rows))})
    size = max(group_bytes // _RECORD_BYTES, 1)
    pq.write_table(table, path, row_group_size=size, compression="none", use_dictionary=False, write_statistics=False)


def _used_bytes(dataset: ComposedDataset) -> int:
    return sum(len(sample["bin"]) for sample in dataset)


def _measure(url: str, names: list[str], describe: Callable[[list[str]], Any]) -> None:
    begin = time.perf_counter()
    num_bytes = sum(len(urllib.request.urlopen(f"{url}/{name}").read()) for name in names)
    sequential = num_bytes / (time.perf_counter() - begin)
    dataset = describe([f"{url}/{name}" for name in names])
    shuffled = dataset.shuffle(together=8)
    for order, each in (("in order", dataset), ("shuffle(together=8)", shuffled)):
        before = int(urllib.request.urlopen(f"{url}/sent").read())
        begin = time.perf_counter()
        used = _used_bytes(each)
        rate = used / (time.perf_counter() - begin)
        sent = int(urllib.request.urlopen(f"{url}/sent").read()) - before
        print(
            f"{names[0].partition('.')[2]:8}{order:20} {rate / 1e6:6.1f} MB/s, {rate / sequential:.2f} of the sequential "
            f"rate, {sequential / 1e6:.1f} MB/s; {sent / used:.3f} of the used bytes fetched"
        )


def main(latency_ms: str = "50", megabytes: str = "64", chunk_mb: str = "1") -> None:
    """Print the rates, and the fetched bytes."""
    chunk_bytes = int(float(chunk_mb) * (1 << 20))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
        each = int(float(megabytes) * 1e6) // _NUM_FILES
        tars = [f"{i}.tar" for i in range(_NUM_FILES)]
        parquets = [f"{i}.parquet" for i in range(_NUM_FILES)]
        for name in tars:
            _write_tar(os.path.join(folder, name), each)
        for name in parquets:
            _write_parquet(os.path.join(folder, name), each, chunk_bytes)
        command = [sys.executable, "-m", "benchmarks.http_chunks", "serve", folder, latency_ms]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                url = f"http://127.0.0.1:{int(server.stdout.readline())}"
                _measure(url, tars, lambda urls: ComposedDataset.from_tar(urls, chunk_bytes=chunk_bytes))
                _measure(url, parquets, ComposedDataset.from_parquet)
            finally:
                server.terminate()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _serve(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
