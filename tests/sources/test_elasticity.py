"""1,024 ranks of 16 workers; 768 ranks resume in the middle of an epoch: every sample is delivered once.

Which positions a rank has, where the tasks of its workers begin, and which sample stands at a position, is computed by the
very functions that pipelines use. Ranks and iterations are arrays here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like.data import Permutation
from dali_like.engine.memory.slot_layout import task_size
from dali_like.sources.sharding import Division, Rest, Shard

NUM_WORKERS = 16
#: Iterations that are looked at together.
CHUNK = 64


class Phase(NamedTuple):
    """Iterations of an epoch with the same number of ranks.

    Attributes:
        ranks: how many there are.
        size: samples in a batch of each.
        begin, stop: the iterations in which all of them have full batches.
    """

    ranks: int
    size: int
    begin: int
    stop: int

    def firsts(self) -> Iterator[NDArray[np.int64]]:
        """Where the batches begin, of shape (iterations, ranks), for some iterations at a time."""
        for begin in range(self.begin, self.stop, CHUNK):
            iterations = np.arange(begin, min(begin + CHUNK, self.stop))
            yield Shard(np.arange(self.ranks), self.ranks).first(iterations[:, np.newaxis], self.size)


class Epoch:
    """An epoch of so many samples, with 1,024 ranks up to some iteration, and 768 from there on."""

    def __init__(self, length: int, rest: Rest, change: int) -> None:
        self.divisions = [Division(length, 64, Shard(rank, 768), rest) for rank in range(768)]
        self.sizes = [division.sizes() for division in self.divisions]
        full = min(num_batches - (last < 64) for num_batches, last in self.sizes)
        self.phases = Phase(1024, 48, 0, change), Phase(768, 64, change, full)

    def tail(self) -> Iterator[tuple[int, int]]:
        """Behind the iterations in which all ranks have full batches: where each batch begins, and how many it has."""
        for division, (num_batches, last) in zip(self.divisions, self.sizes, strict=True):
            if num_batches > self.phases[-1].stop:
                yield division.shard.first(num_batches - 1, 64), last


def tasks(size: int) -> list[NDArray[np.int64]]:
    """The samples of a batch that each worker makes, if they are equally fast."""
    step = task_size(size, NUM_WORKERS)
    parts = [np.arange(begin, min(begin + step, size)) for begin in range(0, size, step)]
    return [np.concatenate(parts[worker::NUM_WORKERS]) for worker in range(NUM_WORKERS)]


@pytest.mark.parametrize("rest", Rest)
def test_ten_million_samples_come_once(rest: Rest) -> None:
    length = 10_000_000
    epoch = Epoch(length, rest, change=100)
    order, item = Permutation(length, seed=1, epoch=2), epoch.divisions[0].item
    times, given = np.zeros(length, np.int8), 0

    for phase in epoch.phases:
        for firsts in phase.firsts():
            for offsets in tasks(phase.size):
                positions = firsts[..., np.newaxis] + offsets
                times[order[item(positions)]] += 1
                given += positions.size
    for first, count in epoch.tail():
        times[order[item(np.arange(first, first + count))]] += 1
        given += count

    global_batch = 768 * 64
    surplus = {Rest.DROP: -(length % global_batch), Rest.PAD: -length % global_batch, Rest.UNEVEN: 0}[rest]
    assert given == times.sum(dtype=np.int64) == length + surplus
    assert np.count_nonzero(times == 1) == length - abs(surplus)
    if rest is Rest.PAD:
        assert (times[order[np.arange(surplus)]] == 2).all()


def test_the_batches_of_ten_thousand_million_samples_lie_side_by_side() -> None:
    length = 10**10
    epoch = Epoch(length, Rest.UNEVEN, change=70_000)
    end = 0

    for phase in epoch.phases:
        for firsts in phase.firsts():
            begins = firsts.ravel()
            assert begins[0] == end
            assert (np.diff(begins) == phase.size).all()
            end = int(begins[-1]) + phase.size
    for first, count in epoch.tail():
        assert first == end
        end += count

    assert end == length


def test_each_of_ten_thousand_million_samples_is_at_its_position() -> None:
    """Its rank follows from its position; the test before shows that no other rank has it."""
    length = 10**10
    epoch = Epoch(length, Rest.UNEVEN, change=70_000)
    order = Permutation(length, seed=1, epoch=2)
    samples = np.random.default_rng(3).integers(length, size=1_000_000)

    positions = order.index(samples)

    change = epoch.phases[0].stop * 1024 * 48
    for phase, mine in zip(epoch.phases, (positions < change, positions >= change), strict=True):
        batches, offsets = np.divmod(positions[mine], phase.size)
        iterations, ranks = np.divmod(batches, phase.ranks)
        firsts = Shard(ranks, phase.ranks).first(iterations, phase.size)
        assert ((phase.begin <= iterations) & (iterations <= phase.stop)).all()
        assert np.isin(offsets, np.concatenate(tasks(phase.size))).all()
        assert np.array_equal(order[firsts + offsets], samples[mine])
