"""The message of a pool whose next batch would exceed ``max_held_bytes``. It names a limit that suffices.

Runs in the main process, after unused memory has been freed and batches computed ahead have given up theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import Assembler
from dali_like.errors import OutOfMemoryError


def explain_shortage(
    error: OutOfMemoryError, space: SharedSpace, assemblers: Sequence[Assembler], num_begun: Callable[[int], int]
) -> OutOfMemoryError:
    """Return the error to raise: with a sufficient limit if the limit is the reason, else the given one.

    The limit has room for the batches that the program holds, for all batches computed ahead, and for one more of each
    source. A program that holds none yet is going to hold one while it gets the next.

    Args:
        error: the reason why the next batch could not be begun.
        num_begun: returns the number of batches of a source that have been submitted, and not delivered.
    """
    sizes = [assembler.batch_bytes for assembler in assemblers]
    largest = max(sizes)
    used, needed = space.used_bytes, sum(size or largest for size in sizes)
    if used + needed <= space.limit_bytes:
        return error
    total = used
    for source, (assembler, size) in enumerate(zip(assemblers, sizes, strict=True)):
        holds_none = assembler.ring.num_slots == assembler.ring.num_free
        total += (num_begun(source) + 1 + holds_none) * (size or largest)
    return OutOfMemoryError(space.limit_text(needed, total))
