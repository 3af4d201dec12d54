"""Reads a composed dataset on changing numbers of ranks and workers, and compares it with a plain iteration.

All ranks run in this process, one loader each. In a training job, each process has one of these loaders, and leaves out
``shard_id`` and ``num_shards``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from dali_like.data import ComposedDataset, DataLoader, Jagged

__all__ = ["PARTS", "Element", "run_in_parts"]

#: Arrays, or `Jagged` ones.
Element = dict[str, Any]

#: Ranks, and workers of each, in the parts of the run.
PARTS = ((2, 2), (3, 1), (4, 0))


def run_in_parts(
    dataset: ComposedDataset, batch_size: int | None, steps: int, columns: str, summary: Callable[[Sequence[Element]], str]
) -> bool:
    """Run a number of steps with each entry of `PARTS`, and print a line for each; return whether all elements were right.

    Args:
        dataset: its elements are dicts of arrays or of `Jagged`.
        batch_size: elements of a rank in a step; None: one, which is a batch by itself.
        columns: heading of the summaries.
        summary: returns the text about the elements of a step.
    """
    plain = iter(dataset)
    position, states, all_right = 0, "", True
    print(f"step  ranks  workers  positions  {columns}  plain iteration")
    for part, (num_ranks, workers) in enumerate(PARTS):
        loaders = [
            DataLoader(dataset, batch_size=batch_size, num_workers=workers, shard_id=rank, num_shards=num_ranks)
            for rank in range(num_ranks)
        ]
        if states:
            for loader in loaders:
                loader.load_state_dict(json.loads(states))
        for step, batches in enumerate(islice(zip(*loaders, strict=True), steps), part * steps):
            by_rank = [[batch] if batch_size is None else _split(batch, batch_size) for batch in batches]
            elements = _by_position(by_rank, position)
            is_right = list(map(_checksum, elements)) == [_checksum(next(plain)) for _ in elements]
            verdict = "same" if is_right else "DIFFERENT"
            last = position + len(elements) - 1
            print(f"{step:4} {num_ranks:6} {workers:8} {position:6}..{last:<4}{summary(elements)}  {verdict}", flush=True)
            position, all_right = last + 1, all_right and is_right
        states = json.dumps([loader.state_dict() for loader in loaders])
    return all_right


def _split(batch: Element, batch_size: int) -> list[Element]:
    """Return the elements of a batch."""
    return [{name: array[i] for name, array in batch.items()} for i in range(batch_size)]


def _by_position(by_rank: Sequence[Sequence[Element]], begin: int) -> list[Element]:
    """Return the elements of a step that begins at a position: rank r of R has the positions p with ``p % R == r``."""
    num_ranks = len(by_rank)
    ranks = [(begin + offset) % num_ranks for offset in range(num_ranks)]
    return [by_rank[rank][i] for i in range(len(by_rank[0])) for rank in ranks]


def _checksum(element: Element) -> int:
    """Return a checksum of all arrays of an element."""
    checksum = 0
    for name, value in sorted(element.items()):
        for array in value if isinstance(value, Jagged) else (value,):
            checksum = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes(), checksum)
    return checksum
