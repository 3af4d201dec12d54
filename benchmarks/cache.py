"""Epochs over photographs with a sample cache, beside PyTorch's loader over a dataset that keeps a dict.

    python -m benchmarks.cache [--photographs 2000] [--workers 8] [--kills 20]

Each photograph is decoded and resized, which takes 10 ms with the rest of the time in a busy loop. Prints samples/s of each
epoch, and after an epoch with random kills of workers whether all samples are right and the budget holds. PyTorch's loader
keeps its workers, so each fills a dict of its own.

Memory is the sum of the proportional set sizes of all processes at the end, minus that of the same loader over the same
dataset without a cache: workers, code and batches in flight are in both.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import random
import signal
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.processes import descendants, pss_bytes
from dali_like.data import ComposedDataset, DataLoader

SIZE = 224
SAMPLE_BYTES = SIZE * SIZE * 3
SAMPLE_S = 0.01
BATCH_SIZE = 50
EPOCHS = 3


def photograph() -> bytes:
    """Return a JPEG of 640 x 427 pixels."""
    from PIL import Image  # optional

    pixels = np.random.default_rng(0).integers(256, size=(54, 80, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((640, 427)).save(file, "JPEG")
    return file.getvalue()


class Photographs:
    """Decodes a photograph for each sample, and marks it with its index."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.data = photograph()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        from PIL import Image  # optional

        end_s = time.perf_counter() + SAMPLE_S
        image = np.array(Image.open(io.BytesIO(self.data)).resize((SIZE, SIZE)))
        image[0, 0, 0], image[0, 0, 1] = divmod(index, 256)
        while time.perf_counter() < end_s:
            pass
        return image, index


class KeptInDict(Photographs):
    """Keeps samples in a dict, as programs for PyTorch do."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.kept: dict[int, tuple[NDArray[np.uint8], int]] = {}

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        if index not in self.kept:
            self.kept[index] = super().__getitem__(index)
        return self.kept[index]


def memory_bytes() -> int:
    """Return the proportional set sizes of this process and its descendants."""
    return pss_bytes([os.getpid(), *descendants(os.getpid())])


def rates(loader: Any, length: int, kills: int = 0, epochs: int = EPOCHS) -> tuple[list[float], int, int]:
    """Return samples/s of each epoch, the memory at the end in bytes, and the number of wrong samples."""
    found, wrong, pss = [], 0, 0
    for epoch in range(epochs):
        begin_s = time.perf_counter()
        seen = 0
        for number, batch in enumerate(loader):
            images, indices = map(np.asarray, batch)
            wrong += int((images[:, 0, 0, 0].astype(int) * 256 + images[:, 0, 0, 1] != indices).sum())
            seen += len(indices)
            if epoch == 0 and kills and number % max(1, length // BATCH_SIZE // kills) == 0:
                pids = [worker.pid for worker in loader.statistics().workers if worker.pid]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(pids), signal.SIGKILL)
            if epoch == epochs - 1 and seen == length:
                pss = memory_bytes()
        found.append(seen / (time.perf_counter() - begin_s))
        wrong += length - seen
    return found, pss, wrong


def texts_of(found: list[float]) -> str:
    """Return the samples/s of all epochs as text."""
    return ", ".join(f"{rate:,.0f}" for rate in found)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=20)
    given = parser.parse_args()
    length = given.photographs
    budget = 2 * length * SAMPLE_BYTES
    options: Any = {"num_workers": given.workers, "persistent_workers": True}
    plain = DataLoader(ComposedDataset.source(Photographs(length)).shuffle(), BATCH_SIZE, **options)
    (rate,), plain_bytes, _ = rates(plain, length, epochs=1)
    print(f"no cache: {rate:,.0f} samples/s; {plain_bytes / 1e6:,.0f} MB in all processes")
    del plain
    gc.collect()
    for kills in (0, given.kills):
        cached = ComposedDataset.source(Photographs(length)).cache(budget)
        loader = DataLoader(cached.shuffle(), BATCH_SIZE, worker_restarts=None, **options)
        found, pss, wrong = rates(loader, length, kills)
        statistics = cached.caches[0].statistics()
        copies = (pss - plain_bytes) / (length * SAMPLE_BYTES)
        print(f"cache, {kills} kills: {texts_of(found)} samples/s; {copies:.2f} copies in memory;")
        print(f"  {wrong} wrong samples; {statistics.used_bytes:,} of {statistics.budget_bytes:,} bytes")
        del loader, cached
        gc.collect()
    try:
        from torch.utils.data import DataLoader as TorchLoader  # optional
    except ImportError:
        return
    torch_loader: Any = TorchLoader(KeptInDict(length), BATCH_SIZE, shuffle=True, **options)
    found, pss, wrong = rates(torch_loader, length)
    copies = (pss - plain_bytes) / (length * SAMPLE_BYTES)
    print(f"PyTorch, dict: {texts_of(found)} samples/s; {copies:.2f} copies; {wrong} wrong samples")


if __name__ == "__main__":
    main()
