"""Rate of tar archives read in chunks from an HTTP server with latency, relative to one sequential download.

python -m benchmarks.http_chunks [LATENCY_MS] [MEGABYTES]
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dali_like.data import ComposedDataset

#: Bandwidth of a connection: that of a store, not that of loopback.
_BYTES_PER_S = 50e6
_PIECE_BYTES = 64 << 10


def _handler(data: bytes, latency_s: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._begin(200, len(data))

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            body = data[int(first) : int(last) + 1] if wanted else data
            self._begin(206 if wanted else 200, len(body))
            for begin in range(0, len(body), _PIECE_BYTES):
                piece = body[begin : begin + _PIECE_BYTES]
                self.wfile.write(piece)
                time.sleep(len(piece) / _BYTES_PER_S)

        def _begin(self, status: int, size: int) -> None:
            time.sleep(latency_s)
            self.send_response(status)
            self.send_header("Content-Length", str(size))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


def _archive(num_bytes: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number in range(num_bytes // 100_000):
            header = tarfile.TarInfo(f"{number:06}.bin")
            header.size = 100_000
            archive.addfile(header, io.BytesIO(os.urandom(header.size)))
    return file.getvalue()


def main(latency_ms: float = 50.0, megabytes: int = 64) -> None:
    """Print both rates and their ratio."""
    data = _archive(megabytes * 1_000_000)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(data, latency_ms / 1000))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/a.tar"
    begin = time.perf_counter()
    urllib.request.urlopen(url).read()
    sequential = len(data) / (time.perf_counter() - begin)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        dataset = ComposedDataset.from_tar(url)
    for name, each in (("in order", dataset), ("shuffle(together=8)", dataset.shuffle(together=8))):
        begin = time.perf_counter()
        num_bytes = sum(len(sample["bin"]) for sample in each)
        rate = num_bytes / (time.perf_counter() - begin)
        print(f"{name}: {rate / 1e6:.0f} MB/s, {rate / sequential:.2f} of the sequential rate, {sequential / 1e6:.0f} MB/s")
    server.shutdown()


if __name__ == "__main__":
    given = sys.argv[1:]
    latency_ms, megabytes = given + ["50", "64"][len(given) :]
    main(float(latency_ms), int(megabytes))
