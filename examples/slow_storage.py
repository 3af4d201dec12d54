"""Read many small files at a time in each worker of a loader, from an object store, an HTTP server or a folder.

    python -m examples.slow_storage s3://bucket/train --reads 64
    python -m examples.slow_storage file:///data/train --workers 2 --seconds 10

Prints the number of files per second. Requires the extra ``remote``, and for object stores the package that fsspec uses:
s3fs, gcsfs, adlfs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.data import DataLoader
from dali_like.remote import RemoteFiles


class Files:
    """A dataset of files: the bytes of each, and its number."""

    def __init__(self, files: RemoteFiles, names: Sequence[str]) -> None:
        self._files, self._names = files, names

    def __len__(self) -> int:
        return len(self._names)

    async def __getitem__(self, index: int) -> Any:
        content = await self._files.read(self._names[index])
        return {"size": len(content), "first": np.frombuffer(content, np.uint8, 1), "index": index}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read all files once, or until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m examples.slow_storage", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", help="a folder, as fsspec has it")
    parser.add_argument("--pattern", default="**", help="of the names, default: all files")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--reads", type=int, default=32, help="reads at a time in each worker")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after this time")
    options = parser.parse_args(arguments)

    files = RemoteFiles(options.url)
    dataset = Files(files, files.names(options.pattern))
    loader = DataLoader(dataset, batch_size=options.batch_size, num_workers=options.workers, concurrency=options.reads)
    begin_s, count, num_bytes = time.perf_counter(), 0, 0
    for batch in loader:
        count += len(batch["index"])
        num_bytes += int(np.sum(batch["size"]))
        if time.perf_counter() - begin_s > options.seconds:
            break
    took_s = time.perf_counter() - begin_s
    print(f"{count} files, {num_bytes} bytes: {count / took_s:.0f} files/s")


if __name__ == "__main__":
    main()
