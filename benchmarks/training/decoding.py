"""The limit of decoding: two processes that only decode the files, with libjpeg-turbo."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.training.workloads import Workload
from benchmarks.workloads import WORKERS
from examples.photograph_source import PhotographSource

__all__ = ["DecodingLoader"]

#: Batches that a process may be ahead.
_AHEAD = 2


class DecodingLoader:
    """Decodes whole images in processes and drops them; a batch is the number of its images."""

    def __init__(self, workload: Workload, source: PhotographSource) -> None:
        self._workload = workload
        self._source = source
        self._processes: list[Any] = []
        self._connections: list[Connection] = []
        self._next = 0

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        for worker in range(WORKERS):
            here, there = context.Pipe()
            process = context.Process(target=self._decode, args=(worker, there), daemon=True)
            process.start()
            there.close()
            for _ in range(_AHEAD):
                here.send(True)
            self._processes.append(process)
            self._connections.append(here)

    def _decode(self, worker: int, connection: Connection) -> None:
        import simplejpeg  # other systems do without

        size = self._workload.batch_size
        for batch in itertools.count(worker, WORKERS):
            if not connection.recv():
                return
            for index in range(batch * size, (batch + 1) * size):
                file = self._workload.inputs(self._source, index)[0]
                image = simplejpeg.decode_jpeg(np.asarray(file))
                assert image.size
            connection.send(size)

    def consume(self, batches: int) -> Any:
        for _ in range(batches):
            connection = self._connections[self._next % WORKERS]
            size = connection.recv()
            connection.send(True)
            self._next += 1
        return size

    def samples(self, batch: Any) -> list[Any]:
        raise NotImplementedError("images are not kept")

    def close(self) -> None:
        for connection in self._connections:
            connection.send(False)
        for process, connection in zip(self._processes, self._connections, strict=True):
            with contextlib.suppress(EOFError):  # the process has ended
                while True:
                    connection.recv()
            process.join()
            connection.close()
