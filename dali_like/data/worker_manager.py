"""Which workers a loader has.

A loader without workers makes its batches itself. One with workers has a workers for each pass, or if it is told to keep it,
one for all; passes over it may then be nested. Kept workers are made anew when the dataset, or what else they have a copy
of, has changed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from dali_like.data.array_backends import ArrayBackend, NumpyBackend
from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import Fetcher, seed_every
from dali_like.data.fingerprints import fingerprint_of
from dali_like.data.loader_workers import LoaderWorkers
from dali_like.engine.memory.limits import available_cpus
from dali_like.engine.pool.tuner import Tuner


class Staffed:
    """The workers, for a class that has a loader's attributes; see `dali_like.data.options.LoaderOptions`."""

    dataset: Any
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], Any] | None
    persistent_workers: bool
    multiprocessing_context: Any
    worker_seeding: str
    on_error: Any
    worker_restarts: int | None
    max_held_bytes: int | None
    pin_memory: Any
    worker_threads: int | None
    prefetch_epochs: bool

    _dataset_kind: Any
    _auto_collation: bool
    _pins_memory: bool
    _chosen: dict[str, int]

    _array_backend: ArrayBackend = NumpyBackend()
    _workers: LoaderWorkers | None = None
    _fingerprint: bytes | None = None
    _tuner: Tuner | None = None

    def _drop_ahead(self) -> None:
        """Let the next pass go if it has been begun ahead of time."""

    @property
    def _counters(self) -> LoaderCounters:
        counters: LoaderCounters = vars(self).setdefault("_counts", LoaderCounters())
        return counters

    @property
    def _is_iterable(self) -> bool:
        return int(self._dataset_kind) == 1

    @property
    def _keeps_workers(self) -> bool:
        """Whether they go on when a pass ends."""
        return self.num_workers > 0 and (self.persistent_workers or self.prefetch_epochs)

    def _look_for_changes(self) -> None:
        """Let the workers of earlier passes go that are not wanted any more, or whose copies are not like the originals."""
        can_have = self.num_workers > 0 and (self._keeps_workers or self._start_method == "spawn")
        copied = (self.dataset, self.collate_fn, self.worker_init_fn)
        fingerprint = fingerprint_of(copied) if can_have else None
        is_changed, self._fingerprint = fingerprint != self._fingerprint, fingerprint
        workers = self._workers
        if workers is None:
            return
        if is_changed:
            self._drop_ahead()
        are_alike = (workers.num_workers, workers.start_method) == (self.num_workers, self._start_method)
        can_go_on = are_alike and workers.can_go_on(self._keeps_workers)
        if not can_go_on or (is_changed and (workers.is_in_use or self._start_method != "spawn")):
            self._drop_workers()
        elif is_changed:
            workers.rest(self._make_maker())

    def _workers_for(self, base_seed: int) -> LoaderWorkers:
        """Those of earlier passes, or others."""
        workers = self._workers
        if workers is not None and workers.base_seed != base_seed and workers.is_in_use:
            self._drop_workers()
            workers = None
        if workers is None:
            return self._make_workers(base_seed)
        if workers.base_seed != base_seed:
            workers.rest()
        if workers.is_resting:
            workers.wake(base_seed)
        return workers

    def _make_workers(self, base_seed: int) -> LoaderWorkers:
        fetcher = self._make_maker()
        workers = LoaderWorkers(
            fetcher,
            base_seed,
            num_workers=self.num_workers,
            batch_size=None if fetcher.whole else self.batch_size,
            is_bound=self._is_iterable or self.worker_seeding == "torch",
            is_kept=self._keeps_workers,
            start_method=self._start_method,
            threads=self.worker_threads,
            restarts=self.worker_restarts,
            max_held_bytes=self.max_held_bytes,
            counters=self._counters,
            pinning=self._array_backend.pinning() if self._pins_memory and self.pin_memory != "copy" else None,
            tuner=self._tuner_for_workers(),
        )
        self._counters.watch(workers)
        if self._keeps_workers or self._start_method == "spawn":
            self._workers = workers
        return workers

    def _tuner_for_workers(self) -> Tuner | None:
        """What chooses the settings, for one workers after the other. Workers that divide a dataset stay as many."""
        chosen = {name for name, number in self._chosen.items() if getattr(self, name) == number}  # or the user has set it
        if not chosen:
            self._tuner = None
            return None
        divides = self._is_iterable or self.worker_seeding == "torch"
        if self._tuner is None:
            self._tuner = Tuner(
                available_cpus(),
                num_workers=None if "num_workers" in chosen and not divides else self.num_workers,
                depth=None if "prefetch_factor" in chosen else self.prefetch_factor,
                per_worker="prefetch_factor" not in chosen,
                are_threads=self._start_method == "thread",
            )
        self._tuner.begin()
        return self._tuner

    def _drop_workers(self) -> None:
        self._drop_ahead()
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.let_go()

    @property
    def _start_method(self) -> str:
        """thread, fork or spawn: by a forkserver process, the last two are also what ``forkserver`` is for."""
        context = self.multiprocessing_context
        method = multiprocessing.get_start_method() if context is None else context.get_start_method()
        return method if method in ("fork", "thread") else "spawn"

    def _make_maker(self) -> Fetcher:
        batched = self._auto_collation
        by_sample = (
            batched
            and not self._is_iterable
            and self.batch_size is not None
            and self.worker_seeding == "tasks"
            and self._array_backend.is_default(self.collate_fn)
            and not getattr(self.dataset, "__getitems__", None)
        )
        return Fetcher(
            dataset=self.dataset,
            collate_fn=self.collate_fn,
            array_backend=self._array_backend,
            batched=batched,
            seed_every=seed_every(self.batch_size) if self.batch_size is not None else None,
            on_error=self.on_error,
            worker_init_fn=self.worker_init_fn,
            whole=not by_sample,
        )
