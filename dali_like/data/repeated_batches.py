"""One batch of a loader again: `BaseDataLoader.batch_at`. Computed in this process, without workers.

The loader's state decides the batch: the seeds of the epoch, and the state of the sampler at its beginning. The
loop that may be running is not disturbed: samplers and generators are copied, and the global random generators are put back.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.data.fetcher import Fetcher, LocalRequest
from dali_like.data.generators import randomness_of
from dali_like.data.loader_origins import origins_of, origins_of_keys, with_column_for
from dali_like.data.messages import ItemsRequest, SamplesRequest
from dali_like.data.options import LoaderOptions
from dali_like.data.plans import IteratorState, checked_state, resolved
from dali_like.engine.worker.info import WorkerInfo
from dali_like.errors import CheckpointError, NotRepeatableError, SampleIndexError
from dali_like.feed.turns import Turns
from dali_like.sources.state_format import ENDED

if TYPE_CHECKING:
    from dali_like.data.base_loader import BaseDataLoader
    from dali_like.data.position_sampler import PositionSampler
    from dali_like.sources.origins import Origins


class Repeated(NamedTuple):
    """A batch again.

    Attributes:
        batch: as the loader has yielded it.
        origins: where its samples come from; None for an iterable dataset.
    """

    batch: Any
    origins: list[Origins] | None


def repeat_batch(loader: BaseDataLoader[Any], step: int, saved: Any) -> Repeated:
    """Return a batch of a loader again; see `BaseDataLoader.batch_at`.

    Args:
        saved: the state of the loader in that epoch.
    """
    options = LoaderOptions.of(loader)
    backend = options.array_backend
    with backend.undisturbed():
        if (positions := loader._dali_like_positions) is not None:
            return _of_composed(loader, positions, step, saved)
        loaded = checked_state(saved, options.is_iterable, options.num_workers, options.samples_per_batch)["iterator"]
        if loaded is None:
            raise CheckpointError(
                "the state is from before the first epoch: it tells no seeds; pass one of the epoch itself"
            )
        state = IteratorState.from_dict(loaded)
        return (_of_iterable if options.is_iterable else _of_samples)(options, step, state)


def _of_samples(options: LoaderOptions, step: int, state: IteratorState) -> Repeated:
    """Compute a batch of a map-style dataset."""
    if state.sampler is None:
        raise CheckpointError("the state is from before the first batch of an epoch; pass a later one")
    sampler, generator = _copied(options)
    if state.generator is not None and generator is not None:
        randomness_of(generator).restore(resolved(state.generator))
    indices = options.array_backend.iterate_sampler(sampler)
    indices.load_state_dict(resolved(state.sampler))
    try:
        indices.skip(step)
        keys = next(indices)
    except StopIteration:
        raise _no_batch(step) from None
    dataset = copy.copy(options.dataset) if options.worker_init_fn is not None else options.dataset
    worker = _Worker(options._replace(dataset=dataset), 0, state)
    request = SamplesRequest(worker.seed, step, keys, True)
    here = _RepeatedRequest()
    try:
        batch = _computed(options, lambda: worker.fetcher.fetch_here(request, here))
        return Repeated(with_column_for(options, batch, keys), origins_of_keys(options, keys))
    finally:
        here.close()


def _of_iterable(options: LoaderOptions, step: int, state: IteratorState) -> Repeated:
    """Compute a batch of an iterable dataset: walk there with all workers, from the state or from the beginning."""
    if options.num_workers and not options.in_order:
        raise NotRepeatableError("with in_order=False, the speed of the workers decides which one computes a batch")
    if Fetcher.of(options).once:
        raise NotRepeatableError("the dataset is an iterator, which cannot be iterated again")
    num_workers = options.num_workers or 1
    may_resume = step >= state.position and not state.ahead
    ended = [worker for worker, known in state.states.items() if known.state == ENDED] if may_resume else []
    passed = [state.passed(worker) if may_resume else 0 for worker in range(num_workers)]
    turns = Turns(passed, state.turn if may_resume else 0, ended)
    number = state.position if may_resume else 0
    workers: dict[int, _Worker] = {}
    while waiting := turns.waiting():
        this = waiting[0]
        if this not in workers:
            workers[this] = _Worker(options._replace(dataset=copy.deepcopy(options.dataset)), this, state)
            workers[this].open(state.walk_of(this) if may_resume else None)
        try:
            batch = workers[this].take(turns.take(this))
        except StopIteration:
            ended.append(this)
            continue
        if number == step:
            return Repeated(batch, None)
        number += 1
    raise _no_batch(step)


def _of_composed(loader: BaseDataLoader[Any], positions: PositionSampler, step: int, saved: Any) -> Repeated:
    """Compute a batch of a composed dataset: at its position, or in logical shards by walking there from a state."""
    dataset = positions.dataset
    state = dataset.checked_state(saved, (), positions.owned)
    sampler = copy.copy(positions)
    sampler.start_from(state)
    # The weights and batch sizes of the batch: the loader's may have changed after this state.
    changes = sampler.changes if positions.changes.version == 0 else positions.changes
    sizes = positions.sizes if positions.sizes.changes else sampler.sizes
    steps = sizes.steps(state["epoch"], sampler.rank.count)
    wanted = steps.after(0, step)
    if dataset.shards is None:
        state = {**state, "position": wanted}
    elif state["position"] > wanted:
        state = {**state, "position": 0, "states": {shard: [0, None] for shard in state["states"]}}
    if steps.after(state["position"], steps.between(state["position"], wanted)) != wanted:
        raise NotRepeatableError(
            f"the state is at position {state['position']}, from which steps of {steps.sizes[0] * steps.num_ranks} "
            f"positions do not lead to batch {step}, at position {wanted}; pass a state of a loader with the same batch "
            "size and ranks"
        )
    twin = copy.copy(loader)
    batched = loader.batch_sampler is not None  # type: ignore[attr-defined]
    vars(twin).update(
        num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0, pin_memory=False,
        device=None, sharding=None, static_buffers=False,
        _dali_like_auto={}, sampler=sampler, batch_sampler=sampler if batched else None,
    )  # fmt: skip
    sampler.start_from(state)
    sampler.sizes, sampler.changes = sizes, changes
    options, batches = LoaderOptions.of(twin), iter(twin)
    drawn = batches.positions
    assert drawn is not None
    with contextlib.suppress(StopIteration):
        while drawn.reached <= wanted:
            batch = _computed(options, batches.__next__)
            if drawn.reached == steps.after(wanted, 1):  # a step whose positions are all empty has no batch
                return Repeated(batch, origins_of(twin, batch))
    raise _no_batch(step)


class _RepeatedRequest(LocalRequest):
    """A request in this process whose samples are seeded as in a worker; a loader without workers does not seed them."""


class _Worker:
    """Computes in this process the same as a worker of the loader.

    Args:
        options: of the loader, with the worker's own copy of the dataset.
        number: of the worker.
        state: of the iterator.
    """

    def __init__(self, options: LoaderOptions, number: int, state: IteratorState) -> None:
        self.fetcher = Fetcher.of(options)
        self.fetcher.as_batches = True
        self._options = options
        self._state = state
        self._number = number
        self._info = WorkerInfo(number, options.num_workers, state.base_seed + number, options.dataset)
        self.seed = state.seed if _is_seeded(options) else None
        if not options.num_workers:
            return
        options.array_backend.enter_worker(self._info)
        if self.fetcher.worker_init_fn is not None:
            self.fetcher.worker_init_fn(number)
        if self.seed is not None:
            self.fetcher._seeders = options.array_backend.seeders(self._info.seed or 0)

    def open(self, reported: Mapping[str, Any] | None) -> None:
        """Begin the walk through an iterable dataset, or continue one that has been reported."""
        fetcher, shared_seed = self.fetcher, self._state.shared_seed
        fetcher._seed(self.seed, self._number)
        self._walk = _computed(
            self._options, lambda: fetcher.open_walk(shared_seed, None if reported is None else dict(reported))
        )

    def take(self, number: int) -> Any:
        """Return a batch of the walk; the ones before it are taken, too.

        Raises:
            StopIteration: the walk has ended.
        """
        options, walk = self._options, self._walk
        if options.num_workers:
            options.array_backend.enter_worker(self._info)
        while True:
            wanted = ItemsRequest(
                seed=self.seed,
                iterator=0,
                worker=self._number,
                number=walk.position,
                size=options.samples_per_batch,
                drop_last=options.drop_last,
                shared_seed=self._state.shared_seed,
                state=None,
                wants_state=False,
            )
            batch = _computed(options, functools.partial(self.fetcher.step, walk, wanted, _RepeatedRequest()))
            if walk.position > number:
                return batch


def _copied(options: LoaderOptions) -> tuple[Any, Any]:
    """Return copies of the sampler and the generator, which may be in use.

    Raises:
        NotRepeatableError: they cannot be copied.
    """
    # The dataset stays: samplers know its length, and it may be large.
    known = {id(options.dataset): options.dataset}
    if options.generator is not None and hasattr(options.generator, "clone_state"):  # a generator of PyTorch
        known[id(options.generator)] = options.generator.clone_state()
    try:
        sampler, generator = copy.deepcopy((options.index_sampler, options.generator), known)
    except Exception as error:
        raise NotRepeatableError(f"the sampler cannot be copied, and is in use: {type(error).__name__}: {error}") from error
    return sampler, generator


def _is_seeded(options: LoaderOptions) -> bool:
    """Return whether global generators are seeded for samples. Threads do not seed generators shared with the program."""
    return options.num_workers > 0 and options.seeds_by_task and not options.backend.are_threads


def _computed(options: LoaderOptions, compute: Callable[[], Any]) -> Any:
    """Return a batch.

    Raises:
        NotRepeatableError: its samples have drawn from global random generators that nobody has seeded for them.
    """
    if _is_seeded(options):
        return compute()
    backend = options.array_backend
    before = backend.global_randomness()
    batch = compute()
    if backend.global_randomness() != before:
        why = "only worker processes seed these for samples"
        if options.num_workers and not options.seeds_by_task:
            why = 'worker_seeding="torch" seeds these for each worker, not for each sample'
        raise NotRepeatableError(f"the samples depend on random numbers of global generators, and {why}")
    return batch


def _no_batch(step: int) -> SampleIndexError:
    return SampleIndexError(f"the epoch has no batch {step}")
