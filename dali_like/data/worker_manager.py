"""Starts, reuses and replaces the workers of a loader.

Workers serve one iterator, or with ``persistent_workers`` or ``prefetch_epochs`` all of them, which may be nested. Kept
workers are restarted when the dataset, or another object that they have a copy of, has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.user_objects import method_of
from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import Fetcher, seed_every
from dali_like.data.loader_workers import LoaderWorkers
from dali_like.engine.memory.limits import available_cpus
from dali_like.engine.pool.tuner import Tuner
from dali_like.sources.hazards import warn_of_hazards_in_dataset

if TYPE_CHECKING:
    from dali_like.data.fingerprints import Fingerprint
    from dali_like.data.options import LoaderOptions
    from dali_like.engine.pool.settings import ChosenSettings


class WorkerManager:
    """Owns the workers of one loader.

    Attributes:
        workers: kept for the next iterator, running or at rest; None without kept workers.
    """

    def __init__(self, counters: LoaderCounters) -> None:
        self.workers: LoaderWorkers | None = None
        self._counters = counters
        self._fingerprint: Fingerprint | None = None
        self._tuner: Tuner | None = None
        self._has_searched = False

    @property
    def settings(self) -> ChosenSettings | None:
        """The current choice for arguments given as "auto"."""
        return None if self._tuner is None else self._tuner.settings

    def note_objects(self, options: LoaderOptions) -> bool:
        """Return whether the objects that workers copy have changed since the last call.

        Kept workers keep their copies, as PyTorch's do, unless a change is seen. Workers that are not kept, whose forkserver
        is used again, may only keep them if nothing can have changed.
        """
        previous, self._fingerprint = self._fingerprint, None
        if not (options.num_workers and options.can_reuse_workers):
            return previous is not None
        from dali_like.data.fingerprints import fingerprint_of  # few loaders reuse workers

        main = None
        if options.backend.imports_main:
            from dali_like.sources.main_module import find_main  # few programs spawn workers

            main = find_main(options.import_main)
        self._fingerprint = fingerprint_of((options.dataset, options.collate_fn, options.worker_init_fn), main)
        return self._fingerprint != previous or not (options.keeps_workers or self._fingerprint.is_complete)

    def forget_objects(self) -> None:
        """Let the objects that workers copy count as changed."""
        self._fingerprint = None

    def can_serve(self, options: LoaderOptions, has_changed: bool) -> bool:
        """Return whether the kept workers can serve another iterator, after a restart if their objects have changed."""
        workers = self.workers
        assert workers is not None
        are_alike = (workers.num_workers, workers.start_method) == (options.num_workers, options.start_method)
        if not are_alike or not workers.can_serve_another(options.keeps_workers):
            return False
        return not has_changed or (options.backend.can_rest and not workers.is_in_use)

    def renew(self, options: LoaderOptions) -> None:
        """End the workers. The next ones start with copies of the current objects."""
        assert self.workers is not None
        self.workers.rest(make_fetcher(options))

    def workers_for(self, options: LoaderOptions, base_seed: int) -> LoaderWorkers:
        """Return workers that are seeded with a base seed: the kept ones, restarted if necessary, or new ones."""
        workers = self.workers
        if workers is None:
            return self._start(options, base_seed)
        if workers.base_seed != base_seed:
            workers.rest()
        if workers.is_resting:
            workers.wake(base_seed)
        return workers

    def release(self) -> None:
        """End the kept workers as soon as no iterator uses them."""
        workers, self.workers = self.workers, None
        if workers is not None:
            workers.release()

    def _start(self, options: LoaderOptions, base_seed: int) -> LoaderWorkers:
        if not self._has_searched:
            self._has_searched = True
            repeats = not options.is_iterable and options.worker_init_fn is None
            warn_of_hazards_in_dataset(options.dataset, options.start_method, options.num_workers, repeats=repeats)
        workers = LoaderWorkers(options, make_fetcher(options), base_seed, self._counters, self._tuner_for(options))
        self._counters.watch(workers)
        if options.can_reuse_workers:
            self.workers = workers
        return workers

    def _tuner_for(self, options: LoaderOptions) -> Tuner | None:
        """Return the tuner for arguments given as "auto". Workers that divide a dataset keep their number."""
        auto = {name for name, number in options.auto.items() if getattr(options, name) == number}  # not set since
        if not auto:
            self._tuner = None
            return None
        if self._tuner is None:
            self._tuner = Tuner(
                available_cpus(),
                num_workers=None if "num_workers" in auto and not options.binds_batches else options.num_workers,
                depth=None if "prefetch_factor" in auto else options.prefetch_factor,
                per_worker="prefetch_factor" not in auto,
                are_threads=options.backend.shares_objects,
            )
        self._tuner.begin()
        return self._tuner


def make_fetcher(options: LoaderOptions) -> Fetcher:
    """Return a fetcher for the main process or for workers."""
    array_backend = options.array_backend
    by_sample = (
        options.stacks_samples
        and options.batch_size is not None
        and options.batch_size > 1  # one sample is made by one worker in any case
        and options.seeds_by_task
        and (options.gathers or method_of(options.dataset, "__getitems__") is None)
    )
    return Fetcher(
        dataset=options.dataset,
        collate_fn=options.collate_fn,
        array_backend=array_backend,
        batched=options.batched,
        seed_every=seed_every(options.batch_size) if options.batch_size is not None else None,
        on_error=options.on_error,
        worker_init_fn=array_backend.shard(options.dataset, options.num_workers, options.worker_init_fn),
        as_batches=not by_sample,
        has_workers=options.num_workers > 0,
        is_columnar=options.gathers,
    )
