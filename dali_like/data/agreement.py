"""Agreement of the ranks of a job on a change that holds from a position on. Runs in the main process.

Each rank writes its wish, and its first possible point, into the store of the process group of PyTorch or JAX, and reads
the answers of the others. All ranks take the last point. No collective operation is needed, so a job with NCCL needs no
second process group.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from dali_like.data.peer_meeting import Board, await_all, find_board
from dali_like.errors import ArgumentError
from dali_like.sources.ranks import rank_in_job
from dali_like.sources.sharding import Shard

__all__ = ["Agreement"]

#: How long to wait for the other ranks.
_TIMEOUT_S = 300.0
#: Loaders of this process that have agreed with others, in the order of their first calls.
_numbers = itertools.count()


class Agreement:
    """The agreements of a loader with the other ranks of its job.

    Args:
        has_others: whether other ranks deliver parts of the same stream, or the same batches.
    """

    def __init__(self, *, has_others: bool) -> None:
        self._has_others = has_others
        self._name = ""
        self._count = 0

    def last_point(self, wish: Any, point: tuple[int, ...], method: str) -> tuple[int, ...]:
        """Return the last point of all ranks; alone, the given one.

        Args:
            wish: JSON can hold it; all ranks should have the same.
            point: the first possible one here.
            method: of the loader, for messages.

        Raises:
            ArgumentError: another rank has another wish.
            ServerTimeoutError: a rank does not call the method.
        """
        answers = self.exchange({"wish": wish, "point": list(point)}, method)
        for rank, answer in answers.items():
            if answer["wish"] != json.loads(json.dumps(wish)):
                raise ArgumentError(
                    f"{method}: this rank wants {wish!r:.200}, and rank {rank} wants {answer['wish']!r:.200}. Call it with "
                    "the same arguments on all ranks, after the same number of batches"
                )
        return max((point, *(tuple(answer["point"]) for answer in answers.values())))

    def exchange(self, text: Any, method: str) -> dict[int, Any]:
        """Return the arguments of all ranks, by rank; alone, nothing.

        Raises:
            ServerTimeoutError: a rank does not call the method.
        """
        found = self._job()
        if found is None:
            return {}
        board, rank = found
        name = self._next_name()
        board.put(f"{name}/{rank.id}", json.dumps(text))
        texts = await_all(board, {each: f"{name}/{each}" for each in range(rank.count)}, _TIMEOUT_S, _absent(method))
        return {each: json.loads(answer) for each, answer in texts.items()}

    def from_first(self, text: Any, method: str) -> Any:
        """Return the argument of the first rank; alone, of this one.

        Raises:
            ServerTimeoutError: the first rank does not call the method.
        """
        found = self._job()
        if found is None:
            return text
        board, rank = found
        name = self._next_name()
        if rank.id == 0:
            board.put(name, json.dumps(text))
            return text
        return json.loads(await_all(board, {0: name}, _TIMEOUT_S, _absent(method))[0])

    @property
    def has_job(self) -> bool:
        """Whether there are several ranks to agree with."""
        return self._job() is not None

    @property
    def is_first(self) -> bool:
        """Whether this is the first rank of the job, or the only one."""
        found = self._job()
        return found is None or found[1].id == 0

    def _job(self) -> tuple[Board, Shard] | None:
        rank = rank_in_job() if self._has_others else None
        if rank is None or rank.count == 1:
            return None
        return find_board(None), rank

    def _next_name(self) -> str:
        if not self._name:
            self._name = f"dali_like/agreement/{next(_numbers)}"
        self._count += 1
        return f"{self._name}/{self._count}"


def _absent(method: str) -> str:
    return f"{method}: {{}} did not call it within {{:.0f}} s. Call it on all ranks, after the same number of batches"
