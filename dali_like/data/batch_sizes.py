"""Batch sizes of a composed dataset that change with the position. Runs in the main process.

A step begins where the one before it ends. Its size is the one that holds at its beginning, so a step may reach beyond the
position of a change. All ranks have the same steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from dali_like.common.checks import not_negative, positive
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, CheckpointError
from dali_like.sources.composed import is_composed

__all__ = ["SizeSchedule", "SizeFrom", "Steps", "batch_sizes_of"]


class SizeFrom(NamedTuple):
    """A batch size, and the point from which it holds.

    Attributes:
        epoch, position: of the first step.
        size: positions in a batch of one rank.
    """

    epoch: int
    position: int
    size: int


class Steps(NamedTuple):
    """The steps of an epoch, of all ranks together.

    Attributes:
        begins: ascending positions, the first one 0; a piece ends where the next one begins.
        sizes: the batch size of one rank in each piece.
        num_ranks: how many there are.
    """

    begins: tuple[int, ...]
    sizes: tuple[int, ...]
    num_ranks: int

    def piece(self, position: int) -> int:
        """Return the number of the piece for a step that begins at a position."""
        return bisect_right(self.begins, position) - 1

    def end_of(self, piece: int) -> int | None:
        """Return the position where a piece ends; None for the last one."""
        return self.begins[piece + 1] if piece + 1 < len(self.begins) else None

    def after(self, begin: int, count: int) -> int:
        """Return the position so many steps after a position where a step begins.

        >>> Steps((0, 10), (2, 3), 2).after(0, 3), Steps((0, 10), (2, 3), 2).after(0, 4)
        (12, 18)
        """
        return self._walked(begin, count, None)[0]

    def between(self, begin: int, end: int) -> int:
        """Return how many steps begin between two positions, if one begins at the first.

        >>> Steps((0, 10), (2, 3), 2).between(0, 13)
        4
        """
        return self._walked(begin, None, end)[1]

    def _walked(self, begin: int, count: int | None, end: int | None) -> tuple[int, int]:
        """Take steps up to a number of them, or as long as they begin before `end`. Return the position and their number."""
        taken = 0
        for piece in range(self.piece(begin), len(self.begins)):
            step, stop = self.sizes[piece] * self.num_ranks, self.end_of(piece)
            if end is not None:
                stop = end if stop is None else min(stop, end)
            most = None if count is None else count - taken
            if stop is not None:
                fitting = max(-(-(stop - begin) // step), 0)
                most = fitting if most is None else min(most, fitting)
            assert most is not None
            begin += most * step
            taken += most
            if taken == count or (end is not None and begin >= end):
                break
        return begin, taken


class SizeSchedule(NamedTuple):
    """Batch sizes by position.

    Attributes:
        schedule: the argument of the loader, ascending; the first one from the beginning.
        changes: once a size has been set: that one, and those before it. They count instead of the schedule.
    """

    schedule: tuple[SizeFrom, ...]
    changes: tuple[SizeFrom, ...] = ()

    @classmethod
    def fixed(cls, size: int) -> SizeSchedule:
        """Return the same size for all positions."""
        return cls((SizeFrom(0, 0, size),))

    @property
    def pieces(self) -> tuple[SizeFrom, ...]:
        """The sizes that count, ascending."""
        return self.changes or self.schedule

    @property
    def largest(self) -> int:
        """The largest size."""
        return max(piece.size for piece in self.pieces)

    def steps(self, epoch: int, num_ranks: int) -> Steps:
        """Return the steps of an epoch."""
        pieces = self.pieces
        before = [piece for piece in pieces if piece[:2] <= (epoch, 0)]
        found = {0: before[-1].size if before else pieces[0].size}
        found.update((piece.position, piece.size) for piece in pieces if piece.epoch == epoch)
        return Steps(tuple(found), tuple(found.values()), num_ranks)

    def changed(self, change: SizeFrom) -> SizeSchedule:
        """Return the sizes with another one from a point on. It replaces those from there on."""
        kept = [piece for piece in self.pieces if piece[:2] < change[:2]]
        return self._replace(changes=(*kept, change))

    def listed(self, epoch: int, position: int, num_ranks: int) -> list[list[int]]:
        """Return the changes that count from a position on, for a state: in steps of all ranks."""
        passed = sum(piece[:2] <= (epoch, position) for piece in self.changes)
        return [[each.epoch, each.position, each.size * num_ranks] for each in self.changes[max(passed - 1, 0) :]]

    def with_changes(self, listed: Sequence[Sequence[int]], num_ranks: int) -> SizeSchedule:
        """Return the sizes with the changes of a state.

        Raises:
            CheckpointError: the ranks cannot share out a step.
        """
        for _, position, step in listed:
            if step % num_ranks:
                raise CheckpointError(
                    f"Invalid state_dict: from position {position} on, {step} positions make a batch of all ranks together, "
                    f"because of set_batch_size, and {num_ranks} ranks cannot share them out evenly. Use other ranks; or "
                    'leave such sizes out: load_state_dict(state, allow_change=["batch_size"])'
                )
        return self._replace(changes=tuple(SizeFrom(epoch, begin, step // num_ranks) for epoch, begin, step in listed))


def batch_sizes_of(batch_size: Any, dataset: Any) -> tuple[Any, SizeSchedule | None]:
    """Return the largest batch size for the argument of a loader, and the sizes by position.

    Args:
        batch_size: a number, which is checked elsewhere; or pairs of a position and the size from there on.

    Returns:
        The sizes are None for a number, and without batches.

    Raises:
        ArgumentTypeError, ArgumentError: it is not a list of such pairs; or it is an array.
        ArgumentClashError: it is another kind of dataset, or its positions do not go on from epoch to epoch.
    """
    if not isinstance(batch_size, (list, tuple)):
        if getattr(batch_size, "shape", ()):  # comparing it would raise an error of NumPy or PyTorch
            raise ArgumentError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        return batch_size, None
    example = "batch_size should be a number, or pairs of a position and a size, such as [(0, 64), (100_000, 128)]"
    if not batch_size or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in batch_size):
        raise ArgumentTypeError(f"{example}, not {batch_size!r:.200}")
    pairs = [(not_negative("a position of batch_size", begin), positive("batch_size", size)) for begin, size in batch_size]
    begins = [begin for begin, _ in pairs]
    if begins[0] != 0 or begins != sorted(set(begins)):
        raise ArgumentError(f"the positions of batch_size should begin with 0 and ascend, but are {begins}")
    if not is_composed(dataset):
        raise ArgumentClashError(
            "batch_size by position is for composed datasets: describe the dataset with ComposedDataset.source(dataset)"
        )
    length = dataset.length
    if len(pairs) > 1 and length is None and not dataset.is_endless:
        raise ArgumentClashError(
            "batch_size by position needs positions that go on from epoch to epoch, and the length of this stream is "
            "unknown. Describe an endless stream with repeat(), or call set_batch_size between batches"
        )
    points = [divmod(begin, length) if length else (0, begin) for begin in begins]
    sizes = SizeSchedule(
        tuple(SizeFrom(epoch, begin, size) for (epoch, begin), (_, size) in zip(points, pairs, strict=True))
    )
    return sizes.largest, sizes
