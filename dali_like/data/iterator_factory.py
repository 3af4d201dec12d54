"""Begins the iterators of a loader: the next epoch, a resumed epoch, or one that was begun ahead of time.

Runs in the main process, in the threads that iterate over the loader.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.common.collector import paused_collector
from dali_like.common.interrupts import InterruptSafeLock
from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import Fetcher
from dali_like.data.generators import randomness_of
from dali_like.data.iterable_walk import restore
from dali_like.data.loader_iterator import LoaderIterator
from dali_like.data.plans import IteratorState, resolved
from dali_like.data.sampler_iterators import changes_sampler
from dali_like.data.settled import Settled
from dali_like.engine.memory.limits import available_cpus
from dali_like.monitor.monitoring import Monitor

if TYPE_CHECKING:
    from dali_like.data.agreement import Agreement
    from dali_like.data.base_loader import BaseDataLoader
    from dali_like.data.device_senders import DeviceSender
    from dali_like.data.loader_iterator import WorkerIterator
    from dali_like.data.loader_workers import LoaderWorkers
    from dali_like.data.local_iterator import LocalIterator
    from dali_like.data.options import LoaderOptions
    from dali_like.data.peers import PeerLink
    from dali_like.data.position_sampler import PositionIterator, PositionSampler
    from dali_like.data.weights_file import WeightsWatcher
    from dali_like.engine.pool.tuner import Tuner
    from dali_like.sources.state_format import ShardState

#: Values of these types are compared; other objects must be identical.
_PLAIN = (int, float, str, bytes, type(None))


class IteratorFactory:
    """Begins the iterators of one loader.

    Args:
        local_type, worker_type: the classes of iterators without and with workers.

    Attributes:
        counters: of all iterators.
        monitor: reports, callbacks and traces of the loader.
        workers: kept for the next iterator, running or at rest; None without kept workers.
        tuner: chooses the arguments given as "auto"; None without.
        sender: copies the batches of the latest iterator to a device; None if they stay in host memory.
        latest_state: the state of the latest iterator.
        link: to the peers of this process that share the loader; None without.
        settled: the common parts of the iterators, as long as the options stay the same; None before the first one.
    """

    def __init__(self, local_type: type[LocalIterator], worker_type: type[WorkerIterator]) -> None:
        self._local_type = local_type
        self._worker_type = worker_type
        self.counters = LoaderCounters()
        self.monitor = Monitor(self.counters.loop)
        self.workers: LoaderWorkers | None = None
        self.tuner: Tuner | None = None
        self.sender: DeviceSender | None = None
        self.latest_state: IteratorState | None = None
        self.link: PeerLink | None = None
        self.settled: Settled | None = None
        self._latest: weakref.ref[LoaderIterator] | None = None
        self._prepared: PreparedIterator | None = None
        # Of the latest iterator over a composed dataset.
        self._positions: PositionIterator | None = None
        self._shard_states: Mapping[int, ShardState] = {}
        self._agreement: Agreement | None = None
        self._watcher: WeightsWatcher | None = None
        self._locks: dict[int, InterruptSafeLock] = {}
        self._has_searched = False

    @property
    def lock(self) -> InterruptSafeLock:
        """Held while an iterator begins. A forked child has its own: the parent's may have been held during the fork."""
        lock = self._locks.get(pid := os.getpid())
        return self._locks.setdefault(pid, InterruptSafeLock()) if lock is None else lock

    @property
    def latest(self) -> LoaderIterator | None:
        """The latest iterator, while the program keeps it."""
        return None if self._latest is None else self._latest()

    @staticmethod
    def is_own(iterator: Any) -> bool:
        """Return whether an iterator is one of this library."""
        return isinstance(iterator, LoaderIterator)

    def replace_latest(self, iterator: LoaderIterator) -> None:
        """Note that another object has taken the place of the latest iterator, with its state."""
        self._latest = weakref.ref(iterator)

    def adapt_workers(self, options: LoaderOptions) -> None:
        """Drop or renew the workers of earlier epochs, if the options or the objects that they copied have changed."""
        if (workers := self.workers) is None:
            return
        copies = _look_at(options)
        if copies is None or copies != workers.terms.copies:
            self.drop_prepared()
        if not workers.fit(options, copies):
            self.drop_workers()

    def refresh(self) -> None:
        """Let the objects that workers copy count as changed."""
        if self.workers is not None:
            self.workers.terms = self.workers.terms._replace(copies=None)

    def next_iterator(
        self,
        settled: Settled,
        loaded: dict[str, Any] | None,
        loader: BaseDataLoader[Any],
    ) -> LoaderIterator:
        """Begin the next iterator, from a loaded state if there is one.

        Args:
            loaded: a result of ``state_dict`` of the loader.
            loader: begins the next iterator ahead of time, with ``prefetch_epochs=True``.
        """
        options = settled.options
        iterator: LoaderIterator | None = None
        if loaded is not None:
            iterator = self._resume(settled, loaded)
        elif self._prepared is not None:
            iterator = self._take_prepared(options)
        if iterator is None:
            iterator = self._begin(settled, previous=self.latest_state)
        self.latest_state, self._latest = iterator.state, weakref.ref(iterator)
        if settled.is_composed:
            self._positions, self._shard_states = iterator.positions, iterator.shard_states
        if (trace := self.monitor.trace) is not None:
            trace.follow(iterator)
        if options.num_workers and options.own["prefetch_epochs"] and isinstance(iterator, self._worker_type):
            iterator.call_on_last_batch(_preparation_by(loader))
        return iterator

    def position_state(self, sampler: PositionSampler) -> dict[str, Any]:
        """Return the state of a composed dataset behind the last returned batch of the latest iterator."""
        state = self.latest_state
        if state is None:
            return sampler.state(None, 0, True, {})
        return sampler.state(self._positions, state.position, state.is_over, self._shard_states)

    @property
    def positions_in_progress(self) -> PositionIterator | None:
        """The positions of a composed dataset in the epoch that has begun; None between two epochs."""
        return None if self.latest_state is None or self.latest_state.is_over else self._positions

    def watcher_of(self, loader: BaseDataLoader[Any], path: Any) -> WeightsWatcher:
        """Return what looks at the file with weights, at the beginning of a loop."""
        if self._watcher is None:
            from dali_like.data.weights_file import WeightsWatcher  # few programs need it

            self._watcher = WeightsWatcher(loader, path)
        self._watcher.begin()
        return self._watcher

    def agreement_of(self, sampler: PositionSampler) -> Agreement:
        """Return the agreement with the loaders of other ranks."""
        if self._agreement is None:
            from dali_like.data.agreement import Agreement  # few programs need it

            self._agreement = Agreement(has_others=sampler.rank.count > 1 or sampler.has_mesh)
        return self._agreement

    def forget(self) -> None:
        """Forget the latest iterator: the next one begins elsewhere."""
        self.latest_state, self._latest = None, None

    def drop_workers(self) -> None:
        """End the workers as soon as no iterator uses them."""
        self.drop_prepared()
        workers, self.workers = self.workers, None
        if workers is not None:
            workers.release()

    def generator_state(self, generator: Any) -> dict[str, Any] | None:
        """Return the state of the loader's generator, without the draws of an iterator that was prepared ahead of time."""
        if generator is None:
            return None
        state = randomness_of(generator).snapshot()()
        if self._prepared is not None and state == self._prepared.generator_after:
            return self._prepared.generator_before
        return state

    # Resuming and seeding

    def _resume(self, settled: Settled, loaded: dict[str, Any]) -> LoaderIterator:
        options = settled.options
        state = None if loaded["iterator"] is None else IteratorState.from_dict(loaded["iterator"])
        has_ended = state is None or state.is_over
        if state is not None and has_ended and changes_sampler(resolved(state.sampler)):
            self._finish_sampler(options, state)
        if state is not None and has_ended and not options.num_workers:
            walk = state.walk_of(0)
            if walk is not None and not walk["of_iterator"]:
                restore(options.dataset, walk["state"])
        generator_state = loaded["generator"] if state is None or has_ended else resolved(state.generator)
        if generator_state is not None and options.generator is not None:
            randomness_of(options.generator).restore(generator_state)
        return self._begin(settled, previous=state) if has_ended else self._begin(settled, state=state)

    def _finish_sampler(self, options: LoaderOptions, state: IteratorState) -> None:
        """Bring a sampler to the state in which a finished epoch left it."""
        indices = options.array_backend.iterate_sampler(options.index_sampler)
        indices.load_state_dict(resolved(state.sampler) or {})
        indices.finish()

    def _begin(
        self,
        settled: Settled,
        *,
        previous: IteratorState | None = None,
        state: IteratorState | None = None,
    ) -> LoaderIterator:
        """Begin the iterator after a previous one, or resume one from its state."""
        options = settled.options
        # In PyTorch's order: samplers may draw from the loader's generator as soon as their iterators begin.
        indices = options.array_backend.iterate_sampler(options.index_sampler)
        if state is None:
            state = self._next_state(settled, previous)
        counters = self.counters
        if settled.goes_to_device:
            options.array_backend.check_device(options)
        if not options.num_workers:
            sender = self._sender_for(options, None) if settled.goes_to_device else None
            plan = settled.plan_type(options, state, indices, counters)
            return self._local_type(options, plan, settled.fetcher or Fetcher.of(options), counters, sender)
        workers = self._workers_for(options, state.base_seed)
        if (trace := self.monitor.trace) is not None:
            trace.follow_workers(workers)
        if (profiling := self.monitor.profiling) is not None:
            profiling.follow(workers.pool)
        sender = self._sender_for(options, workers) if settled.goes_to_device else None
        plan = settled.plan_type(options, state, indices, counters, workers)
        return self._worker_type(options, plan, workers, counters, sender)

    def _sender_for(self, options: LoaderOptions, workers: LoaderWorkers | None) -> DeviceSender | None:
        """Return what copies batches to the device. Workers have been forked: from now on, this process may use CUDA."""
        try:
            self.sender = sender = options.array_backend.sender_for(options, self.sender)
        except BaseException:
            if workers is not None and not workers.is_in_use:
                self.drop_workers()
                workers.close()
            raise
        if sender is not None:
            self.counters.copies = sender.totals
            if workers is not None:
                sender.observe(workers.space)
        return sender

    def _workers_for(self, options: LoaderOptions, base_seed: int) -> LoaderWorkers:
        """Return workers that run with a base seed: the kept ones, or new ones."""
        if not self._has_searched:
            _import_workers()
        from dali_like.data.loader_workers import LoaderWorkers, start_message

        if (workers := self.workers) is not None:
            if workers.run_with(start_message(base_seed)):
                return workers
            self.drop_workers()
        if not self._has_searched:
            self._has_searched = True
            from dali_like.sources.travel.hazards import warn_of_hazards_in_dataset

            repeats = not options.is_iterable and options.worker_init_fn is None
            warn_of_hazards_in_dataset(options.dataset, options.start_method, options.num_workers, repeats=repeats)
        self._tune(options)
        workers = LoaderWorkers(options, _look_at(options), base_seed, self.counters, self.tuner)
        self.counters.watch(workers)
        if options.can_reuse_workers:
            self.workers = workers
        return workers

    def _tune(self, options: LoaderOptions) -> None:
        """Make the tuner for arguments given as "auto". Workers that divide a dataset keep their number."""
        auto = {name for name, number in options.auto.items() if getattr(options, name) == number}  # not set since
        if not auto:
            self.tuner = None
            return
        if self.tuner is None:
            from dali_like.engine.pool.tuner import Tuner  # few programs tune

            self.tuner = Tuner(
                available_cpus(),
                num_workers=None if "num_workers" in auto and not options.binds_batches else options.num_workers,
                depth=None if "prefetch_factor" in auto else options.prefetch_factor,
                per_worker="prefetch_factor" not in auto,
                are_threads=options.backend.are_threads,
                shares_cpus=not options.backend.is_remote,
            )
        self.tuner.begin()

    def _next_state(self, settled: Settled, previous: IteratorState | None) -> IteratorState:
        """Draw the seeds of the next iterator. Kept workers are seeded once, so that nothing is drawn for them."""
        options, workers = settled.options, self.workers
        array_backend, generator, shared_seed = options.array_backend, options.generator, None
        if options.is_iterable:
            shared_seed = array_backend.draw_shared_seed(options.dataset, generator)
        if (
            previous is not None
            and options.num_workers
            and options.keeps_workers
            and (options.seeds_by_task or (workers is not None and not workers.is_resting))
        ):
            base_seed, number = previous.base_seed, previous.number + 1
        else:
            base_seed, number = array_backend.draw_seed(generator), 0
            if options.num_workers and options.is_iterable:
                array_backend.draw_shared_seed(options.dataset, generator)  # a second draw, as in PyTorch
        saved = None if settled.randomness is None else settled.randomness.snapshot()
        return IteratorState(base_seed, number, saved, shared_seed=shared_seed)

    # Beginning the next epoch ahead of time

    def prepare(self, settle: Callable[[], Settled]) -> None:
        """Begin the next iterator ahead of time, unless a thread is beginning one.

        That thread may wait for a lock of the caller, so the caller must not wait for it.
        """
        if not self.lock.take_unless(lambda: True):
            return
        try:
            settled = settle()
            options = settled.options
            if self._prepared is None and not settled.is_composed:
                before = self.generator_state(options.generator)
                iterator = self._begin(settled, previous=self.latest_state)
                self._prepared = PreparedIterator(
                    iterator=iterator,
                    options=options,
                    samplers=_sampler_attributes(options.index_sampler),
                    generator_before=before,
                    generator_after=self.generator_state(options.generator),
                )
        finally:
            self.lock.__exit__(*sys.exc_info())

    def drop_prepared(self) -> None:
        """End the prepared iterator, and put the loader's generator back to its state before it."""
        prepared = self._prepared
        if prepared is None:
            return
        generator = prepared.options.generator
        state = self.generator_state(generator)
        self._prepared = None
        prepared.iterator.end()
        if state is not None:
            randomness_of(generator).restore(state)

    def _take_prepared(self, options: LoaderOptions) -> LoaderIterator | None:
        """Return the prepared iterator, unless an iterator that begins now would differ."""
        prepared = self._prepared
        if prepared is None:
            return None
        if not prepared.fits(options) or self.generator_state(options.generator) != prepared.generator_before:
            self.drop_prepared()
            return None
        self._prepared = None
        return prepared.iterator


def _import_workers() -> None:
    """Import the half of the engine that only loaders with workers need. Python must not look for garbage meanwhile.

    Behind PyTorch, whose modules have many objects, that takes longer than the imports.
    """
    with paused_collector():
        import dali_like.data.loader_workers
        import dali_like.sources.travel.hazards  # noqa: F401


def _preparation_by(loader: BaseDataLoader[Any]) -> Callable[[], None]:
    """Return a function with which a loader begins the next iterator ahead of time. It does not keep the loader."""
    reference = weakref.ref(loader)

    def prepare_next() -> None:
        if (loader := reference()) is not None:
            loader._dali_like_factory.prepare(loader._dali_like_settle)

    return prepare_next


class PreparedIterator(NamedTuple):
    """An iterator that was begun ahead of time, and the circumstances of its beginning.

    Attributes:
        samplers: the plain attributes of its samplers, such as the epoch.
        generator_before: the state of the loader's generator before the iterator drew from it.
        generator_after: the state afterwards.
    """

    iterator: LoaderIterator
    options: LoaderOptions
    samplers: list[dict[str, Any]]
    generator_before: dict[str, Any] | None
    generator_after: dict[str, Any] | None

    def fits(self, options: LoaderOptions) -> bool:
        """Return whether an iterator that begins now would be the same."""
        pairs = [*zip(self.options, options, strict=True)]
        for before, now in pairs:
            if isinstance(now, dict):  # arguments by name, which a snapshot of the options has in a dict of its own
                pairs += [(before[name], now[name]) for name in now]
            elif before is not now and not (isinstance(now, _PLAIN) and before == now):
                return False
        return self.samplers == _sampler_attributes(options.index_sampler)


def _look_at(options: LoaderOptions) -> Any:
    """Look at the objects that workers copy. The result is equal as long as they have not changed; None if that is unknown.

    Kept workers keep their copies, as PyTorch's do, unless a change is seen. Workers that are not kept, whose forkserver is
    used again, may only keep them if nothing can have changed.
    """
    if not (options.num_workers and options.can_reuse_workers):
        return None
    from dali_like.data.fingerprints import fingerprint_of  # few loaders reuse workers

    main = None
    if not options.backend.inherits:
        from dali_like.sources.travel.main_module import main_for  # few programs spawn workers

        main = main_for(options.backend, options.own["import_main"])
    found = fingerprint_of((options.dataset, options.collate_fn, options.worker_init_fn), main)
    return found if options.keeps_workers or found.is_complete else None


def _sampler_attributes(sampler: Any) -> list[dict[str, Any]]:
    """Return the plain attributes of a sampler, such as its epoch, and of the samplers inside it."""
    attributes = []
    while sampler is not None and hasattr(sampler, "__dict__"):
        attributes.append({name: value for name, value in vars(sampler).items() if isinstance(value, _PLAIN)})
        sampler = getattr(sampler, "sampler", None)
    return attributes
