"""Iterating over a loader: what loaders of arrays and of tensors have in common, whatever they have been told and by whom.

Each iteration is a pass, which goes on from where the one before, or a state that has been stored, says; or which has been
begun ahead of time, behind the last one.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dali_like.common.interrupts import InterruptSafeLock
from dali_like.data.generators import randomness_of
from dali_like.data.iterable_walk import restore
from dali_like.data.iterator_state import STATE_VERSION, IteratorState, Plan, checked_state
from dali_like.data.loader_iterator import LoaderIterator
from dali_like.data.prepared_iterator import PreparedIterator, state_of_samplers
from dali_like.data.sampler_iterators import changes_sampler
from dali_like.data.serial_iterator import SerialIterator
from dali_like.data.worker_iterator import WorkerIterator
from dali_like.data.worker_manager import Staffed
from dali_like.monitor.monitoring import Monitor

if TYPE_CHECKING:
    from dali_like.data.loader_trace import LoaderTrace
    from dali_like.monitor.report import Report
    from dali_like.monitor.statistics import Statistics


class Loading(Staffed):
    """Iteration, for a class that has a loader's attributes; see `dali_like.data.options.LoaderOptions`."""

    drop_last: bool
    timeout: float
    in_order: bool
    batch_sampler: Any
    generator: Any

    _index_sampler: Iterable[Any]
    _IterableDataset_len_called: int | None
    _check_iteration: Callable[[], None]

    _serial_pass: type[SerialIterator] = SerialIterator
    _worker_pass: type[WorkerIterator] = WorkerIterator
    _ahead: PreparedIterator | None = None
    _latest: IteratorState | None = None
    _latest_pass: weakref.ref[LoaderIterator] | None = None
    _resumed: dict[str, Any] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("num_workers", "prefetch_factor") and isinstance(value, (bool, np.integer)):
            value = int(value)  # NumPy's overflow in what is computed with them
        super().__setattr__(name, value)

    def __iter__(self) -> LoaderIterator:
        self._check_iteration()
        self._monitor.publish_if_requested(self)
        self._counters.loop.pause()
        with self._lock:
            vars(self)["_iterator"] = None  # a pass that has been broken off is not to be worked for any more
            made = self._get_iterator()
            if self.persistent_workers and self.num_workers:
                self._iterator = made
        return made

    @property
    def _iterator(self) -> LoaderIterator | None:
        """The pass that was begun last, where workers are kept. Programs set it to None to end these."""
        made: LoaderIterator | None = vars(self).get("_iterator")
        return made

    @_iterator.setter
    def _iterator(self, made: LoaderIterator | None) -> None:
        vars(self)["_iterator"] = made
        if made is None and self._workers is not None:
            self._drop_workers()

    @_iterator.deleter
    def _iterator(self) -> None:
        self._iterator = None

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in _OF_PASSES}
        return {**state, "_iterator": None}

    def state_dict(self) -> dict[str, Any]:
        """How far the pass that was begun last has come: numbers and text, which can be stored as JSON.

        A loader that is given it goes on with the batch that comes next, and gives the batches that this one would have
        given, with any number of workers; where an iterable dataset is divided among them, with the same number. Indices are
        drawn again from the sampler, whose random generator is put back to where it was. Random numbers of samples are the
        same with ``worker_seeding="tasks"``; with "torch", the generators of workers begin anew. Later epochs are the same
        if workers are kept (``persistent_workers``, ``prefetch_epochs``) as before: as in PyTorch, less is drawn for them.

        An iterable dataset is walked through again up to where it was; unless its iterators, or else itself, have
        ``state_dict`` and ``load_state_dict``, as in ``torchdata``. After the latter, a dataset's ``iter`` is to go on from
        there. They are asked behind each batch, in the worker, for what JSON can hold. A dataset that several threads walk
        through at once is not asked, and what one in kept workers takes along from epoch to epoch is not known.

        A sampler of another library is resumed by its own ``state_dict``, which is then part of this one. Without that, it
        has to give the same indices again.
        """
        if self._resumed is not None:
            return copy.deepcopy(self._resumed)
        if self._latest_pass is not None and (latest_pass := self._latest_pass()) is not None:
            latest_pass.begin()
        progress = self._latest
        return {
            "version": STATE_VERSION,
            "iterable": self._is_iterable,
            "num_workers": self.num_workers,
            "batch_size": self._samples_per_batch,
            "generator": self._state_of_generator() if progress is None or progress.is_over else None,
            "progress": None if progress is None else dataclasses.asdict(progress),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next pass go on from a state that `state_dict` has returned. An empty one is ignored, as in ``torchdata``.

        Raises:
            CheckpointError: this is no state of such a loader.
        """
        if not state_dict:
            return
        resumed = checked_state(state_dict, self._is_iterable, self.num_workers, self._samples_per_batch)
        self._drop_ahead()
        self._resumed = resumed

    @property
    def _monitor(self) -> Monitor:
        monitor: Monitor | None = vars(self).get("_monitoring")
        if monitor is None:
            monitor = vars(self).setdefault("_monitoring", Monitor(self._counters.loop))
        return monitor

    def statistics(self, *, memory: bool = False) -> Statistics:
        """What has happened so far, in all epochs, and where the time has gone. Any thread may ask.

        Args:
            memory: whether to ask the system how much memory the processes take, which takes it some milliseconds each.
        """
        from dali_like.data.loader_statistics import statistics_of  # noqa: PLC0415
        from dali_like.monitor.gathering import num_cpus  # noqa: PLC0415  # not before somebody wants to know
        from dali_like.monitor.process_memory import memory_of  # noqa: PLC0415
        from dali_like.monitor.statistics import Settings, SourceStatistics  # noqa: PLC0415

        start_method = self._start_method if self.num_workers else ""
        chosen = None if self._tuner is None else self._tuner.settings
        workers, num_ahead = self.num_workers, self.num_workers * (self.prefetch_factor or 0)
        if chosen is not None:
            workers, num_ahead = chosen.num_workers, chosen.prefetch_depth
        settings = Settings("loader", self._samples_per_batch or 0, workers, start_method, 0, num_ahead, num_cpus(), chosen)
        unit = "batch" if self._auto_collation and getattr(self.dataset, "__getitems__", None) else "sample"
        dataset = SourceStatistics(f"dataset {type(self.dataset).__qualname__}", unit=unit)
        statistics = statistics_of(self._counters, settings, dataset)
        if not memory:
            return statistics
        return replace(statistics, memory=memory_of([worker.pid for worker in statistics.workers if worker.pid]))

    def report(self, since: Statistics | None = None) -> Report:
        """Return a report of bottlenecks, advice and figures, to ``print``.

        Args:
            since: an earlier result of `statistics`; the report covers the time since then. Default: all of it.
        """
        return self._monitor.report(self.statistics(), since)

    def on_statistics(
        self, function: Callable[[Statistics], Any], *, batches: int | None = None, seconds: float | None = None
    ) -> None:
        """Call a function regularly with the statistics since its last call; see `dali_like.Pipeline.on_statistics`.

        Args:
            function: called in the thread of the loop with a `dali_like.monitor.statistics.Statistics`.
            batches, seconds: the interval: a number of batches, or a time. Exactly one of the two.

        Raises:
            ArgumentClashError: neither is given, or both.
            ArgumentError: the interval is not positive.
        """
        self._monitor.call_regularly(self, function, batches, seconds)

    def trace(self, path: str | os.PathLike[str] | None = None, *, nvtx: bool = False) -> LoaderTrace:
        """Record the activity of each worker and of the main thread for the duration of a context.

        Iterators in progress at its beginning are recorded from then on; later iterators are recorded completely. For the
        arguments see `dali_like.Pipeline.trace`.

        Raises:
            PipelineStateError: the loader is being traced already. Raised on entering.
            MissingExtraError: `nvtx` is set, and the package is not installed.
        """
        from dali_like.data.loader_trace import LoaderTrace  # noqa: PLC0415

        return LoaderTrace(self, path, nvtx=nvtx)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the last trace into a file; see `dali_like.Pipeline.plot`."""
        self._monitor.plot(path)

    def publish(self, name: str = "") -> None:
        """Show the statistics to ``dali-like top`` and ``dali-like view``; see `dali_like.Pipeline.publish`."""
        self._monitor.publish(self, name)

    @property
    def _lock(self) -> InterruptSafeLock:
        """For whoever begins a pass. Forked children have another: it may be taken at that moment."""
        lock: InterruptSafeLock = vars(self).setdefault(f"_lock_{os.getpid()}", _Lock())
        return lock

    def _get_iterator(self) -> LoaderIterator:
        plan = self._plan()
        self._look_for_changes()
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            made = self._resume(plan, resumed)
        else:
            made = self._take_ahead(plan) or self._begin_pass(plan, self._latest)
        self._latest, self._latest_pass = made.progress, weakref.ref(made)
        if (trace := self._monitor.trace) is not None:
            trace.follow(made)
        if self.prefetch_epochs and isinstance(made, WorkerIterator):
            made.call_on_last_batch(self._make_begin_ahead())
        return made

    def _resume(self, plan: Plan, state: dict[str, Any]) -> LoaderIterator:
        progress = None if state["progress"] is None else IteratorState(**state["progress"])
        is_over = progress is None or progress.is_over
        if progress is not None and is_over and changes_sampler(progress.sampler):
            self._walk_to_the_end(plan, progress)
        if progress is not None and is_over and not self.num_workers:
            for told in progress.told:
                if not told["of_iterator"]:
                    restore(self.dataset, told["state"])
        generator = state["generator"] if progress is None or is_over else progress.generator
        if generator is not None and self.generator is not None:
            randomness_of(self.generator).restore(generator)
        return self._begin_pass(plan, progress if is_over else None, None if is_over else progress)

    def _walk_to_the_end(self, plan: Plan, progress: IteratorState) -> None:
        """Bring a sampler to where a pass left it that has ended."""
        indices = self._array_backend.passes(plan.index_sampler)
        indices.load_state_dict(progress.sampler or {})
        indices.finish()

    def _next_progress(self, plan: Plan, last: IteratorState | None) -> IteratorState:
        """Of a pass that follows another. Nothing is drawn for it where workers are kept, which are seeded once."""
        workers, array_backend = self._workers, self._array_backend
        shared_seed = array_backend.draw_shared_seed(self.dataset, self.generator)
        persists = plan.seeded_by_task or (workers is not None and not workers.is_resting)
        if last is not None and self._keeps_workers and persists:
            base_seed, number = last.base_seed, last.number + 1
        else:
            base_seed, number = array_backend.draw_seed(self.generator), 0
            if self.num_workers:
                array_backend.draw_shared_seed(self.dataset, self.generator)  # once more, as in PyTorch
        return IteratorState(base_seed, number, self._state_of_generator(), shared_seed=shared_seed)

    def _begin_pass(self, plan: Plan, last: IteratorState | None, progress: IteratorState | None = None) -> LoaderIterator:
        """Begin a pass that follows another, or that goes on from where `progress` says."""
        # In PyTorch's order: some samplers draw from the same generator, and as soon as a pass over them begins.
        indices = self._array_backend.passes(plan.index_sampler)
        if progress is None:
            progress = self._next_progress(plan, last)
        if not self.num_workers:
            return self._serial_pass(plan, progress, indices, self._make_maker(), self._counters)
        workers = self._workers_for(progress.base_seed)
        if (trace := self._monitor.trace) is not None:
            trace.follow_workers(workers)
        return self._worker_pass(plan, progress, indices, workers)

    def _state_of_generator(self) -> dict[str, Any] | None:
        """Of the loader's own; as it was before the next pass was begun ahead of time."""
        if self.generator is None:
            return None
        state = randomness_of(self.generator).state()
        if self._ahead is not None and state == self._ahead.generator_after:
            return self._ahead.generator_before
        return state

    @property
    def _samples_per_batch(self) -> int | None:
        """As the batch sampler has it, where it may have been changed; None where that is the user's, or there is none."""
        return None if self.batch_size is None else self.batch_sampler.batch_size

    def _plan(self) -> Plan:
        return Plan(
            dataset=self.dataset,
            is_iterable=self._is_iterable,
            batched=self._auto_collation,
            batch_size=self._samples_per_batch,
            drop_last=self.drop_last,
            index_sampler=self._index_sampler,
            num_workers=self.num_workers,
            num_ahead=self.num_workers * (self.prefetch_factor or 0),
            timeout_s=self.timeout,
            in_order=self.in_order,
            seeded_by_task=self.worker_seeding == "tasks",
            pins=self._pins_memory,
            announced_length=self._IterableDataset_len_called,
            array_backend=self._array_backend,
        )

    # The next epoch ahead of time

    def _make_begin_ahead(self) -> Callable[[], None]:
        """What a pass is to call when it has begun its last batch."""
        loader = weakref.ref(self)

        def begin_ahead() -> None:
            if (target := loader()) is not None:
                target._begin_ahead()

        return begin_ahead

    def _begin_ahead(self) -> None:
        # A thread that has the lock may wait for what this one has: then there is no next epoch ahead of time.
        if not self._lock.take_unless(lambda: True):
            return
        try:
            if self._ahead is None:
                plan = self._plan()
                before = self._state_of_generator()
                made = self._begin_pass(plan, self._latest)
                self._ahead = PreparedIterator(made, plan, state_of_samplers(plan), before, self._state_of_generator())
        finally:
            self._lock.__exit__(*sys.exc_info())

    def _take_ahead(self, plan: Plan) -> LoaderIterator | None:
        """The pass that has been begun ahead, unless something has changed since."""
        ahead = self._ahead
        if ahead is None:
            return None
        if not ahead.fits(plan) or self._state_of_generator() != ahead.generator_before:
            self._drop_ahead()
            return None
        self._ahead = None
        return ahead.made

    def _drop_ahead(self) -> None:
        """Let it be as if the next pass had not been begun."""
        generator = self._state_of_generator()
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        ahead.made.end()
        if generator is not None:
            randomness_of(self.generator).restore(generator)


class _Lock(InterruptSafeLock):
    """A lock that copies of its owner do not share."""

    def __reduce__(self) -> Any:
        return _Lock, ()


#: The attributes that copies of a loader do not have: they belong to what it is doing.
_OF_PASSES = {
    "_counts",
    "_workers",
    "_tuner",
    "_fingerprint",
    "_ahead",
    "_latest",
    "_latest_pass",
    "_monitoring",
}
