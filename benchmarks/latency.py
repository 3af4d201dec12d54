"""Reads per second from a server with latency, many at a time in each worker: ``python -m benchmarks.latency``.

The server answers each request 50 ms after it has arrived. Two workers with 32 reads at a time could take 1,280 samples per
second. First, one process with many connections shows that the server answers at twice that rate. Then each loader reads
batches of 16, 64 and 256 samples; the time counts from the first batch on.

python -m benchmarks.latency [--loaders NAME,...] [--sizes N,...] [--batches-s SECONDS]
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import http.client
import importlib
import importlib.util
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.report import environment, markdown
from dali_like.data import ComposedDataset, DataLoader

LATENCY_S = 0.05
WORKERS, READS = 2, 32
#: Reads per second, if nothing but the latency takes time.
LIMIT = WORKERS * READS / LATENCY_S
_BYTES = 2048
_SIZES = (16, 64, 256)


# The server


class _Answering(asyncio.Protocol):
    """Answers each request of a connection, in order, after the latency."""

    _body = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % _BYTES + bytes(_BYTES)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        *requests, self._buffer = (self._buffer + data).split(b"\r\n\r\n")
        for _ in requests:
            self._loop.call_later(LATENCY_S, self._answer)

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._body)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# Reads


class Client:
    """Reads by coroutines, over connections that stay open. Each event loop has its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {}

    async def read(self, index: int) -> bytes:
        """Return the body for an index."""
        idle = self._idle.setdefault(id(asyncio.get_running_loop()), [])
        reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % index)
        await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_BYTES)
        idle.append((reader, writer))
        return body


class Coroutines:
    """A map-style dataset with coroutines."""

    def __init__(self, port: int, length: int) -> None:
        self._client, self._length = Client(port), length

    def __len__(self) -> int:
        return self._length

    async def __getitem__(self, index: int) -> Any:
        return np.frombuffer(await self._client.read(index), np.uint8)


class Blocking:
    """A map-style dataset that blocks: each thread has a connection."""

    def __init__(self, port: int, length: int) -> None:
        self._port, self._length = port, length
        self._local: Any = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        local = self._local = self._local or threading.local()
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", self._port)
        local.connection.request("GET", f"/{index}")
        return np.frombuffer(local.connection.getresponse().read(), np.uint8)


async def _capacity(port: int, seconds: float, connections: int) -> float:
    client, count, end_s = Client(port), 0, time.perf_counter() + seconds

    async def read() -> None:
        nonlocal count
        while time.perf_counter() < end_s:
            await client.read(0)
            count += 1

    begin_s = time.perf_counter()
    await asyncio.gather(*(read() for _ in range(connections)))
    return count / (time.perf_counter() - begin_s)


# Loaders


def _ours(port: int, size: int, length: int) -> Any:
    return DataLoader(Coroutines(port, length), batch_size=size, num_workers=WORKERS, concurrency=READS)


def _ours_in_threads(port: int, size: int, length: int) -> Any:
    return DataLoader(Blocking(port, length), batch_size=size, num_workers=WORKERS, read_threads=READS)


def _ours_composed(port: int, size: int, length: int) -> Any:
    dataset = ComposedDataset.source(range(length)).map(Coroutines(port, length).__getitem__, concurrency=READS)
    return DataLoader(dataset, batch_size=size, num_workers=WORKERS)


def _torch(port: int, size: int, length: int) -> Any:
    from torch.utils.data import DataLoader as TorchLoader  # optional

    return TorchLoader(Blocking(port, length), batch_size=size, num_workers=WORKERS)


def _grain(port: int, size: int, length: int) -> Any:
    importlib.import_module("absl.flags").FLAGS.mark_as_parsed()  # which Grain requires
    grain: Any = importlib.import_module("grain")  # optional

    dataset = grain.MapDataset.source(Blocking(port, length)).to_iter_dataset(grain.ReadOptions(READS, 2 * READS))
    return dataset.batch(size).mp_prefetch(grain.MultiprocessingOptions(num_workers=WORKERS))


def _spdl_batches(port: int, size: int, length: int, worker: int) -> Any:
    pipeline: Any = importlib.import_module("spdl.pipeline")  # optional
    builder = pipeline.PipelineBuilder().add_source(range(worker, length, WORKERS))
    read = builder.pipe(Coroutines(port, length).__getitem__, concurrency=READS, output_order="input")
    return read.aggregate(size).pipe(np.stack).add_sink(2).build(num_threads=1).get_iterator()


def _spdl(port: int, size: int, length: int) -> Any:
    # SPDL has no loader: here each of two processes makes every second batch. Segments are the way without a pickled copy.
    pipeline: Any = importlib.import_module("spdl.pipeline")  # optional
    shares = [
        pipeline.iterate_in_subprocess(
            functools.partial(_spdl_batches, port, size, length, worker),
            buffer_size=2,
            arena=pipeline.SharedMemorySegmentPool(size * _BYTES + (1 << 16), 4),
        )
        for worker in range(WORKERS)
    ]
    return itertools.chain.from_iterable(zip(*shares, strict=True))


LOADERS: dict[str, tuple[Callable[[int, int, int], Any], str]] = {
    "concurrency=32": (_ours, "dali_like"),
    "read_threads=32": (_ours_in_threads, "dali_like"),
    "map(concurrency=32)": (_ours_composed, "dali_like"),
    "PyTorch": (_torch, "torch"),
    "Grain with 32 read threads": (_grain, "grain"),
    "SPDL with 32 coroutines": (_spdl, "spdl"),
}


def _rate(batches: Iterator[Any], size: int, seconds: float) -> float:
    """Return the samples per second, from the first batch on."""
    next(batches)
    begin_s, count = time.perf_counter(), 0
    while (took_s := time.perf_counter() - begin_s) < seconds:
        next(batches)
        count += size
    return count / took_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loaders", default=",".join(LOADERS), help="names of loaders")
    parser.add_argument("--sizes", default=",".join(map(str, _SIZES)), help="batch sizes")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    options = parser.parse_args(arguments)
    sizes = [int(size) for size in options.sizes.split(",")]
    print(environment())
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.latency", "serve"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            capacity = asyncio.run(_capacity(port, min(options.seconds, 3.0), 4 * WORKERS * READS))
            print(f"the server answers {capacity:.0f} reads/s, {capacity / LIMIT:.1f} of the limit of {LIMIT:.0f}\n")
            rows = []
            for name in options.loaders.split(","):
                make, module = LOADERS[name]
                if importlib.util.find_spec(module) is None:
                    continue
                cells = []
                for size in sizes:
                    loader = make(port, size, 100_000_000)
                    rate = _rate(iter(loader), size, options.seconds)
                    cells.append(f"{rate:.0f} ({rate / LIMIT:.2f})")
                    del loader
                rows.append([name, *cells])
            print(markdown(["reads/s (share of the limit)", *(f"batches of {size}" for size in sizes)], rows))
        finally:
            server.terminate()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(_serve())
    else:
        main()
