"""The systems: dali_like and Grain, with the same description, two workers each, and otherwise their defaults.

- dali_like: forked workers
- dali_like_spawn: spawned workers, as in Grain
- loop: copies windows of tokens in a plain loop, without workers and without a library
- grain: fills 256 packs at a time
- grain_64: fills 64 packs at a time: faster, with more padding

Grain has one reading thread in each worker instead of its default of 16: these sources compute nothing and wait for nothing,
so threads would only take turns.
"""

from __future__ import annotations

import copy
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.composed.sources import (
    GROUP_TOKENS,
    PACK_TOKENS,
    WINDOW_TOKENS,
    Numbers,
    alone,
    brighten,
    costs_of,
    first_of,
    log_normal_costs,
    noisy,
    one,
    same,
    summary,
    token_file,
    twice,
    two_thirds,
)
from benchmarks.composed.workloads import Workload, weights
from benchmarks.workloads import WORKERS

__all__ = ["SYSTEMS", "System", "open_system"]

SYSTEMS = ("dali_like", "dali_like_spawn", "grain", "grain_64", "loop")
SEED = 7
#: Documents that dali_like packs together, about 64 packs.
BLOCK = 256


class System:
    """A library with a workload. The constructor imports the library, and starts nothing."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._batches: Iterator[Any] = iter(())

    def start(self) -> None:
        """Make the description and the loader, and begin to iterate."""
        raise NotImplementedError

    def state_at(self, step: int) -> Any:
        """Return the state of a loader that has delivered so many batches."""
        raise NotImplementedError

    def resume(self, state: Any) -> None:
        """Do the same as `start`, but continue from a state."""
        raise NotImplementedError

    def costs(self) -> dict[str, float]:
        """Return how equal the costs of the ranks were, if elements have costs."""
        return {}

    def consume(self, batches: int) -> Any:
        """Receive batches, drop each when the next arrives, and return the last."""
        for batch in itertools.islice(self._batches, batches):  # noqa: B007 the last batch is returned
            pass
        return batch

    def close(self) -> None:
        """Stop."""
        self._batches = iter(())


class DaliLike(System):
    """dali_like's DataLoader."""

    def __init__(self, workload: Workload, start_method: str) -> None:
        super().__init__(workload)
        # As `from dali_like.data import ...` of a program: packages import their modules on first access.
        data = importlib.import_module("dali_like.data")
        self._loader_type, self._composed = data.DataLoader, data.ComposedDataset
        self._start_method = start_method

    def start(self) -> None:
        self._batches = iter(self._loader())

    def state_at(self, step: int) -> Any:
        loader = self._loader()
        next(iter(loader))
        return loader.state_dict()

    def resume(self, state: Any) -> None:
        loader = self._loader()
        loader.load_state_dict(state)
        self._batches = iter(loader)

    def _loader(self) -> Any:
        dataset = self._dataset().with_options(seed=SEED)
        ranks = self._workload.num_ranks
        balance = {"balance": "cost", "costs": log_normal_costs()} if ranks > 1 else {}
        self._latest = self._loader_type(
            dataset,
            batch_size=self._workload.batch_size,
            num_workers=WORKERS,
            multiprocessing_context=self._start_method,
            shard_id=0,
            num_shards=ranks,
            **balance,
        )
        return self._latest

    def costs(self) -> dict[str, float]:
        figures = self._latest.statistics().sources[0].balance
        if not figures.steps:
            return {}
        return {
            "dearest_of_mean": figures.dearest / figures.mean,
            "dearest_of_bound": figures.dearest / figures.bound,
            "in_order_of_mean": figures.in_order / figures.mean,
        }

    def _dataset(self) -> Any:
        composed = self._composed
        if self._workload.element == "windows":
            return composed.from_tokens(token_file(), WINDOW_TOKENS).shuffle().repeat()
        if self._workload.element == "numbers":
            return self._through(self._workload.stage)
        shuffled = [composed.source(source).shuffle() for source in self._workload.sources()]
        is_single = len(shuffled) == 1
        mixed = shuffled[0].repeat() if is_single else composed.mix(shuffled, weights(len(shuffled)), stop="never")
        if self._workload.element == "images":
            return mixed.map(brighten)
        if self._workload.element == "multimodal":
            packs = mixed.pack(budget={"tokens": GROUP_TOKENS}, cost=costs_of, method="knapsack", block=4 * BLOCK)
            return packs.map(summary).with_options(shards=WORKERS)  # few shards: the first blocks are smaller
        return mixed.pack({"tokens": PACK_TOKENS}, method="first_fit", block=BLOCK)

    def _through(self, stage: str) -> Any:
        """Return the numbers behind a stage; of a stage that makes lists, the first number of each."""
        composed = self._composed
        numbers = composed.source(Numbers(0)).shuffle().repeat()
        others = composed.source(Numbers(1)).shuffle().repeat()
        stages: dict[str, Callable[[], Any]] = {
            "none": lambda: numbers,
            "map": lambda: numbers.map(same),
            "map_rng": lambda: numbers.map(noisy, rng=True),
            "enumerate": lambda: numbers.enumerate().map(first_of),
            "slice": lambda: numbers.slice(1, None, 2),
            "concat": lambda: composed.concat([composed.source(Numbers(0)).shuffle(), others]),
            "zip": lambda: composed.zip([numbers, others]).map(first_of),
            "mix": lambda: composed.mix([numbers, others], [2, 1], stop="never"),
            "shuffle_block": lambda: numbers.shuffle(block=1024),
            "window": lambda: numbers.window(4).map(first_of),
            "filter": lambda: numbers.filter(two_thirds),
            "filter_map": lambda: numbers.filter(two_thirds).map(same),
            "flat_map": lambda: numbers.flat_map(twice),
            "shards_mix": lambda: composed.mix([numbers.filter(two_thirds), others], [2, 1], stop="never"),
            "pack_concat": lambda: numbers.map(alone).pack(4, method="concat").map(first_of),
            "pack_first_fit": lambda: numbers.map(alone).pack(4, block=256).map(first_of),
            "bucket": lambda: numbers.bucket(one, [2], [4, 4], block=256).map(first_of),
            "batch_by_budget": lambda: numbers.batch_by_budget(4, one, block=256).map(first_of),
        }
        return stages[stage]()


class CopyLoop(System):
    """No library: a loop in this process that copies each window of a batch into a new array."""

    def start(self) -> None:
        self._batches = self._loop()

    def _loop(self) -> Iterator[Any]:
        tokens = np.memmap(token_file(), np.uint16, "r")
        count, size = len(tokens) // WINDOW_TOKENS, self._workload.batch_size
        for epoch in itertools.count():
            order = np.random.default_rng(epoch).permutation(count).tolist()
            for begin in range(0, count - size + 1, size):
                batch = np.empty((size, WINDOW_TOKENS), np.uint16)
                for row, window in enumerate(order[begin : begin + size]):
                    batch[row] = tokens[window * WINDOW_TOKENS : (window + 1) * WINDOW_TOKENS]
                yield batch


class Grain(System):
    """Grain's Dataset API; its workers are always spawned."""

    def __init__(self, workload: Workload, bins: int) -> None:
        super().__init__(workload)
        self._grain: Any = importlib.import_module("grain")
        importlib.import_module("absl.flags").FLAGS.mark_as_parsed()  # which Grain requires
        self._bins = bins

    def start(self) -> None:
        self._batches = iter(self._loader())

    def state_at(self, step: int) -> Any:
        # set_next_index refuses several workers. Each worker has an index of its own.
        iterator = iter(self._loader())
        next(iterator)
        state = copy.deepcopy(iterator.get_state())
        iterator.close()
        state["next_index_in_cycle"] = step % WORKERS
        for worker, of_worker in enumerate(state["iterators_in_use_states"]):
            of_worker["next_index"] = (step + WORKERS - 1 - worker) // WORKERS
        return state

    def resume(self, state: Any) -> None:
        iterator = iter(self._loader())
        iterator.set_state(state)
        self._batches = iterator

    def close(self) -> None:
        if hasattr(self._batches, "close"):
            self._batches.close()
        super().close()

    def _loader(self) -> Any:
        grain = self._grain
        dataset = self._dataset().batch(self._workload.batch_size)
        if self._workload.element == "images":
            dataset = dataset.to_iter_dataset(self._reading())
        return dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=WORKERS))

    def _dataset(self) -> Any:
        grain = self._grain
        shuffled = [
            grain.MapDataset.source(source).seed(SEED + place).shuffle().repeat()
            for place, source in enumerate(self._workload.sources())
        ]
        mixed = shuffled[0] if len(shuffled) == 1 else grain.MapDataset.mix(shuffled, weights(len(shuffled)))
        if self._workload.element == "images":
            return mixed.map(brighten)
        return grain.experimental.FirstFitPackIterDataset(
            mixed.to_iter_dataset(self._reading()), length_struct={"tokens": PACK_TOKENS}, num_packing_bins=self._bins
        )

    def _reading(self) -> Any:
        return self._grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)


def open_system(system: str, workload: Workload) -> System:
    """Return a system with a workload."""
    if system.startswith("grain"):
        return Grain(workload, bins=64 if system == "grain_64" else 256)
    if system == "loop":
        return CopyLoop(workload)
    return DaliLike(workload, start_method="spawn" if system == "dali_like_spawn" else "fork")
