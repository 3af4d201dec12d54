"""Iteration, states and statistics of data loaders, for this library's loader and for the subclass of PyTorch's.

All of it runs in the main process. The options are attributes of the loader; see `dali_like.data.options.LoaderOptions`.

Many programs import a loader's class and make no loader, so the engine is imported when the first iterator is made.
"""

from __future__ import annotations

import copy
import functools
import os
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from dali_like.common.articles import kind_of
from dali_like.common.collector import paused_collector
from dali_like.common.conditional_methods import unavailable_if
from dali_like.common.notices import warn
from dali_like.common.stability import unstable
from dali_like.common.tracebacks import collapse, user_frames_first
from dali_like.data.loader_arguments import LoaderArguments
from dali_like.data.options import LoaderOptions, check_before_iteration, kind_of_workers, samples_per_batch
from dali_like.engine.memory.limits import allowed_cpus
from dali_like.errors import ArgumentClashError, CheckpointError
from dali_like.sources.composed import is_composed

if TYPE_CHECKING:
    from dali_like.data.array_backends import ArrayBackend
    from dali_like.data.device_senders import DeviceSender
    from dali_like.data.iterator_factory import IteratorFactory
    from dali_like.data.loader_iterator import LoaderIterator, WorkerIterator
    from dali_like.data.loader_trace import LoaderTrace
    from dali_like.data.local_iterator import LocalIterator
    from dali_like.data.peers import PeerLink
    from dali_like.data.position_sampler import PositionSampler
    from dali_like.data.settled import Settled
    from dali_like.engine.pool.pool import WorkerPool
    from dali_like.monitor.measure.statistics import Statistics
    from dali_like.monitor.monitoring import Monitor
    from dali_like.monitor.profile.profiling import Profiling
    from dali_like.monitor.show.report import Report
    from dali_like.serving.batch_server import Policy, Server
    from dali_like.sources.composed.draws import DrawnMixture
    from dali_like.sources.origins import Origins

T_co = TypeVar("T_co", covariant=True)


def _why_no_epoch(loader: Any) -> str | None:
    """Return why a loader has no ``set_epoch``: PyTorch's has none, and programs call it if it exists."""
    if is_composed(loader.dataset):
        return None
    return "it is for composed datasets; call that of the sampler, or of the dataset"


def _why_no_change(loader: Any) -> str | None:
    return None if is_composed(loader.dataset) else "it is for composed datasets, such as ComposedDataset.source(dataset)"


def _why_no_state(loader: Any) -> str | None:
    reason: str | None = loader._dali_like_why_foreign
    return None if reason is None else f"the position is not known, because {reason}"


class BaseDataLoader(LoaderArguments[T_co]):
    """A loader without its attributes. `IteratorFactory` does the work; copies of a loader get their own.

    All private names begin with ``_dali_like``, except those of PyTorch's loader: subclasses of users have names of their
    own. Constructors of subclasses may leave out that of the base class; then the class attributes count.
    """

    _dali_like_loaded_state: dict[str, Any] | None = None
    _dali_like_checked_num_workers: Any = 0
    _dali_like_auto: Mapping[str, int] = {}
    _dali_like_foreign_iterator: str | None = None
    _dali_like_begun: LoaderIterator | None = None
    dataset: Any
    num_workers: int
    persistent_workers: bool
    peers: str | None
    weights_file: Any

    @property
    def _dali_like_array_backend(self) -> ArrayBackend:
        from dali_like.data.array_backends import NUMPY_BACKEND

        return NUMPY_BACKEND

    @property
    def _dali_like_iterator_types(self) -> tuple[type[LocalIterator], type[WorkerIterator]]:
        """The classes of iterators without workers, and with workers."""
        from dali_like.data.loader_iterator import WorkerIterator
        from dali_like.data.local_iterator import LocalIterator

        return LocalIterator, WorkerIterator

    def check_worker_number_rationality(self) -> None:
        """Warn, once for each number of workers, if there are more than CPUs that this process may use."""
        num_workers = self.num_workers
        if num_workers == self._dali_like_checked_num_workers:
            return
        self._dali_like_checked_num_workers = num_workers
        suggested = allowed_cpus()
        if num_workers and num_workers > suggested:
            kind = kind_of_workers(getattr(self, "multiprocessing_context", None))
            warn(
                f"This DataLoader will create {num_workers} worker {kind} in total. Our suggested max number of worker in "
                f"current system is {suggested}, which is smaller than what this DataLoader is going to create. "
                "Please be aware that excessive worker creation might get DataLoader running slow or even freeze, lower the "
                "worker number to avoid potential slowness/freeze if necessary.",
                UserWarning,
            )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("num_workers", "prefetch_factor") and isinstance(value, (bool, np.integer)):
            value = int(value)  # NumPy's integers overflow in products
        super().__setattr__(name, value)

    def __iter__(self) -> LoaderIterator:
        try:
            if self._dali_like_begun is not None:
                return self._dali_like_take_begun()
            # A call less in each epoch of most loaders.
            if (self._dali_like_value("peers") if self._dali_like_aside else self.peers) is None:
                return self._dali_like_begin()
            from dali_like.data.peers import begin_with_peers  # few loaders have peers

            return cast("LoaderIterator", begin_with_peers(self, self._dali_like_begin))
        except (Exception, KeyboardInterrupt) as error:  # as `user_frames_first`, without a call
            collapse(error)
            raise

    @user_frames_first
    def start_prefetch(self) -> None:
        """Begin the next loop now: the workers start, and compute its first batches.

        Call it behind `load_state_dict` and ``set_epoch``, and before the program restores the model: both then happen at
        the same time. Another state or epoch that is set afterwards begins anew. Other changes of the loader, its dataset or
        its sampler count from the following loop on. Copy or pickle the loader before the call, not behind it: a copy begins
        with the loop after this one.

        Without workers it has no effect, and with ``peers="serve"`` neither: ranks find out in the loop which of them loads.
        """
        if self.num_workers and self._dali_like_value("peers") is None and self._dali_like_begun is None:
            self._dali_like_begun = BaseDataLoader.__iter__(self)

    def _dali_like_take_begun(self) -> LoaderIterator:
        """Return the iterator that `start_prefetch` has begun."""
        begun, self._dali_like_begun = self._dali_like_begun, None
        assert begun is not None
        self._dali_like_factory.counters.loop.pause()
        return begun

    def _dali_like_drop_begun(self) -> None:
        """End the iterator that `start_prefetch` has begun: the next one begins elsewhere."""
        begun, self._dali_like_begun = self._dali_like_begun, None
        if begun is not None:
            begun.end()
            self._dali_like_factory.forget()

    def _dali_like_begin(self) -> LoaderIterator:
        """Begin the next iterator, without peers."""
        factory = self._dali_like_factory
        # Without workers, an iterator shares nothing with others that a lock would have to protect.
        if self.num_workers or self._dali_like_loaded_state is not None or is_composed(self.dataset):
            with factory.lock:
                return self._dali_like_begin_in(factory)
        return self._dali_like_begin_in(factory)

    def _dali_like_begin_in(self, factory: IteratorFactory) -> LoaderIterator:
        """Begin the next iterator, or let a kept one of another library begin again."""
        factory.counters.loop.left_ns = 0  # `LoopMeter.pause`, without a call
        keeps_iterator = bool(self.num_workers and self.persistent_workers)
        attributes = vars(self)
        kept: Any = attributes.get("_iterator")
        if keeps_iterator and kept is not None and not factory.is_own(kept):
            kept._reset(self)
            return cast("LoaderIterator", kept)
        kept = attributes["_iterator"] = None  # an unfinished iterator must not get more batches
        latest = factory.latest_state
        iterator = self._get_iterator()
        if factory.latest_state is not latest or factory.is_own(iterator):
            if self._dali_like_foreign_iterator is not None:
                self._dali_like_foreign_iterator = None
            return iterator
        # A subclass, or a replaced part of PyTorch's loader, has made an iterator of another class.
        if keeps_iterator and hasattr(iterator, "_reset"):
            attributes["_iterator"] = iterator
        return cast("LoaderIterator", self._dali_like_note_foreign(iterator))

    def _dali_like_note_foreign(self, iterator: Any) -> Any:
        """Note that the batches come from an iterator of another library.

        Raises:
            CheckpointError: a state has been loaded, from which that iterator cannot continue.
        """
        what = f"{kind_of(iterator)} as iterator"
        self._dali_like_foreign_iterator = f"{type(self).__qualname__}._get_iterator returns {what}"
        if self._dali_like_loaded_state is not None:
            raise CheckpointError(f"the loader cannot resume, because {self._dali_like_why_foreign}")
        return iterator

    @property
    def _dali_like_why_foreign(self) -> str | None:
        """Why the batches come from an iterator that is not of this library; None if they do not."""
        return self._dali_like_foreign_iterator

    @property
    def _iterator(self) -> LoaderIterator | None:
        """The latest iterator, with ``persistent_workers=True``. Programs set it to None to end the workers."""
        iterator: LoaderIterator | None = vars(self).get("_iterator")
        return iterator

    @_iterator.setter
    def _iterator(self, iterator: LoaderIterator | None) -> None:
        vars(self)["_iterator"] = iterator
        factory: IteratorFactory | None = vars(self).get("_dali_like_iterator_factory")
        if iterator is None and factory is not None and factory.workers is not None:
            factory.drop_workers()

    @_iterator.deleter
    def _iterator(self) -> None:
        self._iterator = None

    def __getstate__(self) -> dict[str, Any]:
        of_process = ("_dali_like_iterator_factory", "_dali_like_begun")
        return {**{name: value for name, value in vars(self).items() if name not in of_process}, "_iterator": None}

    def refresh(self) -> None:
        """Let kept workers see the dataset as it is now: the next iterator starts them with a new copy.

        Without a call, the loader looks at the dataset before each epoch, for a millisecond at most. It finds numbers and
        texts that the program has changed in the attributes of the dataset and of the objects in it, other objects in their
        places, and longer or shorter containers. Call this method after changing elements of large lists, dicts or arrays.
        Tensors in shared memory and primitives of `multiprocessing` need no call: workers see their content.
        """
        self._dali_like_factory.refresh()

    @unavailable_if(_why_no_state)
    @user_frames_first
    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iterator, as numbers and text that JSON can store.

        A loader that loads this state continues with the next batch, and yields the same batches as this one would. The
        number of workers may differ, except for an iterable dataset, which the workers divide among themselves.

        Indices are drawn again from the sampler, with its random generator put back. With ``worker_seeding="tasks"``, the
        random numbers of samples are the same; with "torch", the generators of workers start again. Later epochs are the
        same if both loaders keep their workers (``persistent_workers``, ``prefetch_epochs``), or neither does: as in
        PyTorch, kept workers draw fewer seeds.

        The state of a `ComposedDataset` is that of `dali_like.sources.composed.states`. It can be loaded with other numbers
        of ranks and workers, and another batch size. With logical shards, each rank saves the states of its own shards, and
        all of them are loaded together. With ``torch.distributed.checkpoint.save({"loader": loader})``, the state of each
        shard is one key. Each rank of any other number then loads the keys of its own shards.

        An iterable dataset is iterated again up to the position, unless its iterators, or the dataset itself, have
        ``state_dict`` and ``load_state_dict``, as in ``torchdata``. Workers call ``state_dict`` now and then, and after each
        batch once the program has called this method; a loader that resumes takes the steps since the last call again. The
        state must be serializable as JSON. After ``load_state_dict`` of a dataset, ``iter(dataset)`` must continue from the
        state. The state of a dataset that several worker threads share is not saved. Changes that a dataset in kept workers
        carries from epoch to epoch are not saved either.

        A sampler of another library is resumed by its own ``state_dict``, which becomes part of this one. A sampler without
        it must yield the same indices again.
        """
        if self._dali_like_value("peers") is not None and (taken := self._dali_like_link.state) is not None:
            return copy.deepcopy(dict(taken))
        if (positions := self._dali_like_positions) is not None:
            return self._dali_like_factory.position_state(positions)
        if self._dali_like_loaded_state is not None:
            return copy.deepcopy(self._dali_like_loaded_state)
        from dali_like.sources.state_format import VERSION  # a program makes many loaders and few states

        loader: Any = self  # not `LoaderOptions.of`, which reads three times as much: some programs ask after each batch
        factory = self._dali_like_factory
        if (latest := factory.latest) is not None:
            latest.settle()
        state = factory.latest_state
        is_between_epochs = state is None or state.is_over
        return {
            "version": VERSION,
            "iterable": int(loader._dataset_kind) == 1,
            "num_workers": loader.num_workers,
            "batch_size": samples_per_batch(loader),
            "generator": factory.generator_state(loader.generator) if is_between_epochs else None,
            "iterator": None if state is None else state.to_dict(),
        }

    @unavailable_if(_why_no_state)
    @user_frames_first
    def load_state_dict(self, state_dict: Any, *, allow_change: Collection[str] = ()) -> None:
        """Let the next iterator continue from a result of `state_dict`. An empty state is ignored, as in ``torchdata``.

        Args:
            state_dict: for a `ComposedDataset`, also a list of the states of all ranks.
            allow_change: for a `ComposedDataset`: parts of its description that may have changed since, such as "weights".
                "batch_size": this loader's sizes count, and calls of `set_batch_size` do not.

        Raises:
            CheckpointError: this is not the state of such a loader.
        """
        if not state_dict:
            return
        self._dali_like_load(state_dict, allow_change)
        if self._dali_like_value("peers") is not None:
            self._dali_like_link.note("state", state_dict)

    def _dali_like_load(self, state_dict: Any, allow_change: Collection[str] = ()) -> None:
        """Load a state. The state of the peer that loads for this process then counts no longer."""
        from dali_like.data.plans import checked_state

        self._dali_like_drop_begun()
        if self._dali_like_value("peers") is not None:
            self._dali_like_link.state = None
        if (positions := self._dali_like_positions) is not None:
            state = positions.dataset.checked_state(state_dict, allow_change, positions.owned)
            if "batch_size" in allow_change:
                state.pop("batch_sizes", None)
            positions.start_from(state)
            self._dali_like_note_batch_size(positions)
            self._dali_like_factory.forget()
            return
        options = LoaderOptions.of(self)
        loaded = checked_state(state_dict, options.is_iterable, options.num_workers, options.samples_per_batch)
        self._dali_like_factory.drop_prepared()
        self._dali_like_loaded_state = loaded

    @unavailable_if(_why_no_state)
    @user_frames_first
    def batch_at(self, step: int, state: Any = None) -> Any:
        """Return the batch of a step again, bit for bit, with its random augmentation. For debuggers: it is computed in this
        process, without workers, and a loop over the loader is not disturbed.

        Samples of a map-style dataset are computed by their indices, and so are elements of a composed dataset with random
        access. In other cases the way from the state to the step is walked again, or from the beginning of the epoch if the
        state is behind the step.

        Args:
            step: number of the batch in its epoch, from 0 on.
            state: a result of `state_dict` in that epoch; for a `ComposedDataset`, also a list of the states of all ranks.
                None: the current epoch.

        Raises:
            NotRepeatableError: the batch depends on more than the state: samples use global random generators that are not
                seeded for them (``worker_seeding="torch"``, threads, no workers); the dataset is an iterator; the sampler
                cannot be copied.
            SampleIndexError: the epoch has no such batch.
            CheckpointError: this is not the state of such a loader, or no epoch has begun.
        """
        from dali_like.common.checks import not_negative
        from dali_like.data.repeated_batches import repeat_batch

        return repeat_batch(
            self, not_negative("step", step), BaseDataLoader.state_dict(self) if state is None else state
        ).batch

    @user_frames_first
    def origins_of(self, batch: Any) -> list[Origins]:
        """Return where the samples of one of the latest eight batches come from: for each row, the index in the dataset, the
        file, and the input of a mixture.

        With random access, the indices of the batch tell it. In logical shards, this process computes the elements again;
        ``origins=True`` costs less there. That argument adds the origins to each batch.

        Args:
            batch: as the loader has yielded it, the object itself.

        Returns:
            A `dali_like.sources.origins.Origin` for each row, and a tuple of them for a pack or a window. A sample that
            `on_error` has replaced has the index of the failed one; in logical shards, its origin is unknown.

        Raises:
            Exception: of a function of the dataset, if an element that is computed again fails without `on_error`.
            OriginError: the batch is not one of the latest batches, or the dataset is an iterable one, without indices.
        """
        from dali_like.data.loader_origins import origins_of  # few programs ask

        return origins_of(self, batch)

    @unstable("DataLoader.serve()")
    @user_frames_first
    def serve(
        self,
        path: str | os.PathLike[str],
        *,
        policy: Policy = "same",
        consumers: int = 1,
        lead: int = 1,
        consumer_timeout_s: float | None = None,
    ) -> Server:
        """Lend the batches to other processes of this user, which call `dali_like.connect` with the same path.

        Batches are not copied: consumers map the memory of this loader, and a batch stays there until all have dropped it.
        ``run`` of the result draws the batches::

            with loader.serve("/run/user/1000/batches/train", consumers=4) as server:
                server.run(epochs=10)

        Args:
            path: path of a socket that does not exist yet. Its folder must have mode 0700, or not exist.
            policy: "same": each consumer gets each batch, and the slowest one sets the pace. "split": each batch goes to one
                consumer.
            consumers: how many to wait for before the first batch. Later ones begin at the current batch.
            lead: how many batches a consumer may be sent before it takes them, 1 to 64.
            consumer_timeout_s: detach a consumer that makes the server wait this long, in seconds; and raise an error if
                there are too few consumers for this long. None: wait forever.

        Raises:
            ArgumentClashError: the batches of this loader go to a device.
            ArgumentError: an argument is wrong, or the folder is not private to this user, or another server uses the path.
            UnsupportedSystemError: the system is not Linux, or refuses a call.
        """
        from dali_like.serving.batch_server import Served, Server  # few programs need it

        if LoaderOptions.of(self).goes_to_device:
            raise ArgumentClashError(
                "serve lends batches in host memory: leave device= out here, and copy batches in the consumers"
            )

        def length() -> int | None:
            try:
                return len(self)  # type: ignore[arg-type]
            except TypeError:
                return None

        served = Served(type(self).__name__, self.__iter__, self.state_dict, length, self._dali_like_array_backend.reducers)
        return Server(served, path, policy=policy, consumers=consumers, lead=lead, consumer_timeout_s=consumer_timeout_s)

    @unavailable_if(_why_no_epoch)
    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterator over a `ComposedDataset`. Without it, each iterator is the next epoch.

        Loaders of other datasets do not have this method; their sampler or dataset may have one.
        """
        begun = self._dali_like_begun
        if begun is not None and begun.positions is not None and begun.positions.epoch == epoch:
            return  # it may begin at a loaded position in the middle of the epoch
        self._dali_like_drop_begun()
        cast("PositionSampler", self._dali_like_positions).set_epoch(epoch)
        if self._dali_like_value("peers") is not None:
            self._dali_like_link.note("epoch", epoch)

    @unavailable_if(_why_no_change)
    @user_frames_first
    def set_batch_size(self, batch_size: int) -> int:
        """Change the batch size of a `ComposedDataset`, between two batches or before a loop.

        Batches that have been requested from workers keep their size. The new one holds from the next batch on, for the rest
        of the job; sizes by position that should have begun later are forgotten. It is part of the state, as the number of
        positions of a batch of all ranks together: a resume has the same steps on any number of ranks that divides it.

        Call it on all ranks after the same number of batches. In a job of torch.distributed, or of JAX, they agree on the
        first batch, which waits for all of them.

        Workers have memory for the sizes known when they start. So name the largest one as `batch_size` by position, or
        begin with it: in logical shards, larger batches are slow until the next epoch.

        Args:
            batch_size: elements in a batch of one rank.

        Returns:
            The position from which it holds: of all ranks together, over all epochs if the length of an epoch is known.

        Raises:
            ArgumentError, ArgumentTypeError: the size is not a positive integer, or differs from that of another rank.
            ArgumentClashError: the loader makes no batches.
            ServerTimeoutError: another rank does not call this method.
        """
        from dali_like.common.checks import positive
        from dali_like.data.batch_sizes import SizeFrom

        size, positions = positive("batch_size", batch_size), cast("PositionSampler", self._dali_like_positions)
        if not positions.is_batched:
            raise ArgumentClashError("set_batch_size needs a loader that makes batches: pass batch_size=")
        factory = self._dali_like_factory
        point = positions.next_step(factory.positions_in_progress)
        epoch, position = factory.agreement_of(positions).last_point(size, point, "set_batch_size")
        positions.set_batch_size(SizeFrom(epoch, position, size))
        self._dali_like_note_batch_size(positions)
        return epoch * (positions.length or 0) + position

    @unavailable_if(_why_no_change)
    @user_frames_first
    def set_weights(self, weights: Mapping[str, float], *, mix: str | None = None, at: int | None = None) -> int:
        """Change the weights of a mixture in a `ComposedDataset`, between two batches or before a loop.

        Everything that has been drawn keeps the old weights: batches that workers have begun, and elements in open blocks of
        packs and the like. The new weights hold from the next position of the mixture on, for the rest of the job. They are
        part of the state, and a resume on any number of ranks and workers replays them exactly.

        Call it on all ranks after the same number of batches. In a job of torch.distributed, or of JAX, they agree on the
        position, which waits for all of them. Otherwise, pass the same `at` on all ranks.

        Weights can change in mixtures that are endless (``stop="never"``) or run in logical shards, unless a stage behind
        them hides their position: a `shuffle` of all elements, or in logical shards `concat`, `repeat` or another mixture.

        Args:
            weights: one for each dataset of the mixture, by its name.
            mix: name of the mixture, as given to `ComposedDataset.mix`, or as in `ComposedDataset.report`. None: the only
                one, or the only one with datasets of these names.
            at: position of the mixture from which they hold. None: the first possible one.

        Returns:
            The position from which they hold, counted in inputs of the mixture: in logical shards, in its epoch.

        Raises:
            ArgumentError, ArgumentTypeError: a name is unknown or missing, a weight does not fit, the weights are fixed, the
                position has been drawn, or another rank has other weights.
            LoaderTimeoutError: batches in flight take longer than the timeout.
            ServerTimeoutError: another rank does not call this method.
        """
        from dali_like.data import weight_changes  # few programs need it

        positions = cast("PositionSampler", self._dali_like_positions)
        mixture = weight_changes.mixture_of(positions.dataset, weights, mix)
        numbers = weight_changes.checked_weights(mixture, weights)
        return self._dali_like_change(positions, mixture, numbers, at)

    def _dali_like_change(
        self, positions: PositionSampler, mixture: DrawnMixture, weights: tuple[float, ...], at: int | None = None
    ) -> int:
        """Change the weights of a mixture on all ranks, and return the position from which they hold."""
        from dali_like.common.checks import not_negative
        from dali_like.data import weight_changes
        from dali_like.errors import ArgumentError
        from dali_like.sources.composed.stage import WeightChange

        factory = self._dali_like_factory
        first = weight_changes.first_position(factory, positions, mixture)
        wish = [list(mixture.path), list(weights), at]
        epoch, position = factory.agreement_of(positions).last_point(wish, first, "set_weights")
        if at is not None:
            if not_negative("at", at) < position:
                raise ArgumentError(f"positions below {position} have been drawn: pass at={position}, or a later position")
            position = at
        change = WeightChange(mixture.path, epoch, position, weights)
        positions.set_changes(weight_changes.with_change(positions.changes.items, change))
        return position

    def _dali_like_note_batch_size(self, positions: PositionSampler) -> None:
        """Give the attribute, which programs cannot set, the largest size."""
        vars(self)["batch_size"] = positions.batch_size

    def statistics(self, *, memory: bool = False) -> Statistics:
        """Return counts and times of all epochs so far. Any thread may call this.

        Args:
            memory: whether to read the memory use of the processes from the system, which takes milliseconds for each.
        """
        from dali_like.data.counters import statistics_of

        factory = self._dali_like_factory
        found = statistics_of(factory.counters, LoaderOptions.of(self), factory.tuner, memory=memory)
        foreign = self._dali_like_why_foreign or ""
        return replace(found, settings=replace(found.settings, foreign=foreign)) if foreign else found

    def report(self, since: Statistics | None = None) -> Report:
        """Return a report of bottlenecks, advice and figures, to ``print``.

        Args:
            since: an earlier result of `statistics`; the report covers the time since then. Default: all of it.
        """
        return self._dali_like_monitor.report(BaseDataLoader.statistics(self), since)

    def _repr_html_(self) -> str:
        """Show the loader and its report in a notebook."""
        from dali_like.showing.notebook import text_html  # only notebooks ask

        return text_html(f"{self!r}\n\n{BaseDataLoader.report(self)}")

    @user_frames_first
    def on_statistics(
        self, function: Callable[[Statistics], Any], *, batches: int | None = None, seconds: float | None = None
    ) -> None:
        """Call a function regularly with the statistics since its last call; see `dali_like.Pipeline.on_statistics`.

        Args:
            function: called in the thread of the loop with a `dali_like.monitor.measure.statistics.Statistics`.
            batches, seconds: the interval: a number of batches, or a time. Exactly one of the two.

        Raises:
            ArgumentClashError: neither is given, or both.
            ArgumentError: the interval is not positive.
        """
        self._dali_like_monitor.call_regularly(self, function, batches, seconds)

    def trace(self, path: str | os.PathLike[str] | None = None, *, nvtx: bool = False) -> LoaderTrace:
        """Record the activity of each worker and of the main thread for the duration of a context.

        Iterators in progress at its beginning are recorded from then on; later iterators are recorded completely. For the
        arguments see `dali_like.Pipeline.trace`.

        Raises:
            PipelineStateError: the loader is being traced already. Raised on entering.
            MissingExtraError: `nvtx` is set, and the package is not installed.
        """
        from dali_like.data.loader_trace import LoaderTrace

        return LoaderTrace(self, path, nvtx=nvtx)

    def profile(self, path: str | os.PathLike[str] | None = None) -> Profiling:
        """Sample the stacks of the workers for the duration of a context; see `dali_like.Pipeline.profile`.

        Workers of later iterators are sampled, too; without workers, the functions of the program in this thread.
        """
        from dali_like.monitor.profile.profiling import Profiling  # few programs want profiles

        counters = self._dali_like_factory.counters
        is_serial = not LoaderOptions.of(self).num_workers

        def pools() -> list[WorkerPool]:
            return [workers.pool for workers in counters.worker_sets]

        return Profiling(self._dali_like_monitor, "loader", pools, path, lambda: is_serial)

    @user_frames_first
    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the last trace into a file; see `dali_like.Pipeline.plot`."""
        self._dali_like_monitor.plot(path)

    @user_frames_first
    def publish(self, name: str = "", *, pictures: bool = False) -> None:
        """Show the statistics to ``dali-like top`` and ``dali-like view``; see `dali_like.Pipeline.publish`."""
        peek = functools.partial(_peek, weakref.ref(self)) if pictures else None
        self._dali_like_monitor.publish(self, name, peek)

    @property
    def _dali_like_positions(self) -> PositionSampler | None:
        """The sampler of a composed dataset."""
        loader: Any = self
        return cast("PositionSampler", loader._index_sampler) if is_composed(loader.dataset) else None

    @property
    def _dali_like_monitor(self) -> Monitor:
        return self._dali_like_factory.monitor

    @property
    def _dali_like_factory(self) -> IteratorFactory:
        """Made on first use: copies, and instances whose class was changed, have none."""
        factory: IteratorFactory | None = vars(self).get("_dali_like_iterator_factory")
        if factory is None:
            with paused_collector():
                from dali_like.data.iterator_factory import IteratorFactory

                types = self._dali_like_iterator_types
                _ = self._dali_like_array_backend
            made = IteratorFactory(*types)
            factory = vars(self).setdefault("_dali_like_iterator_factory", made)
        return factory

    @property
    def _dali_like_link(self) -> PeerLink:
        """The link to the peers of this process that share the loader."""
        factory = self._dali_like_factory
        if factory.link is None:
            from dali_like.data.peers import PeerLink

            factory.link = PeerLink()
        return factory.link

    def _dali_like_sender_for(self, options: LoaderOptions, before: DeviceSender | None) -> DeviceSender | None:
        """Return what copies batches of another process to the device; see `dali_like.data.array_backends.ArrayBackend`."""
        return options.array_backend.sender_for(options, before) if options.goes_to_device else None

    def _get_iterator(self) -> LoaderIterator:
        factory = self._dali_like_factory
        settled = factory.settled
        if settled is None or not settled.fits(self):
            settled = self._dali_like_settle()
        options = settled.options
        if factory.workers is not None:
            factory.adapt_workers(options)
        loaded = self._dali_like_loaded_state
        if loaded is not None:
            self._dali_like_loaded_state = None
        iterator = factory.next_iterator(settled, loaded, self)
        if options.own["weights_file"] is not None:
            iterator.before_next = factory.watcher_of(self, options.own["weights_file"])
        if options.num_workers and options.persistent_workers:
            vars(self)["_iterator"] = iterator
        return iterator

    def _dali_like_settle(self) -> Settled:
        """Check the options of the next iterator, and settle them."""
        from dali_like.data.settled import Settled  # many programs make a loader and no iterator

        check_before_iteration(self)
        factory = self._dali_like_factory
        factory.monitor.publish_if_requested(self)
        factory.settled = settled = Settled(self)
        return settled


def _peek(reference: weakref.ref[BaseDataLoader[Any]], use: Callable[[Any], None]) -> None:
    """Call a function with the next batch of a loader, unless it is being traced."""
    loader = reference()
    iterator = None if loader is None else loader._dali_like_factory.latest
    if iterator is None or iterator.on_next is not None:
        return
    target = weakref.ref(iterator)

    def take_and_use(take: Callable[[], Any]) -> Any:
        if (iterator := target()) is not None:
            iterator.on_next = None
        batch = take()
        use(batch)
        return batch

    iterator.on_next = take_and_use
