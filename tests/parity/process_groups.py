"""Process groups of gloo on this machine, for tests."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def in_ranks(count: int, folder: Path, function: Callable[[int, Path], Any], killed: Collection[int] = ()) -> None:
    """Call a function in each rank of a new process group. Those `killed` must end by SIGKILL."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_as_rank, args=(rank, count, folder, function, bool(killed))) for rank in range(count)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    errors = [path.read_text() for path in folder.glob(f"error-{count}-*")]
    assert not errors, errors[0]
    assert [each.exitcode for each in ranks] == [-signal.SIGKILL if rank in killed else 0 for rank in range(count)]


def _as_rank(rank: int, count: int, folder: Path, function: Callable[[int, Path], Any], loses_ranks: bool) -> None:
    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/ranks-{count}", rank=rank, world_size=count)
        function(rank, folder)
        if not loses_ranks:
            dist.destroy_process_group()
    except BaseException:
        (folder / f"error-{count}-{rank}").write_text(traceback.format_exc())
        raise
