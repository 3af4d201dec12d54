"""Programs whose states are kept in files: each kind of loader and pipeline that can resume.

A program takes steps; a step is a batch as plain values, or `END` at the end of an epoch, after which the next one begins.
No operator draws random numbers. `python -m tests.states.programs` writes the missing files of the newest version.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dali_like import Pipeline, fn, get_worker_info
from dali_like.data import (
    ComposedDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    ShardedBatchSampler,
    WeightedRandomSampler,
    merge_states,
)
from dali_like.types import SampleInfo

#: The states of each version of the format.
FOLDERS = {"before version 3": Path(__file__).parent / "saved", "version 3": Path(__file__).parent / "saved_3"}
END = "end"
#: Steps after a state that its file has: they reach into the next epoch, or the one after it.
FOLLOWING = 9


class Walker:
    """Takes steps of a loader, and begins the next epoch after each end."""

    def __init__(self, loader: DataLoader[Any], state: Any = None) -> None:
        self.loader = loader
        if state is not None:
            loader.load_state_dict(state)
        self._batches: Iterator[Any] | None = None

    def step(self) -> Any:
        if self._batches is None:
            self._batches = iter(self.loader)
        try:
            return plain(next(self._batches))
        except StopIteration:
            self._batches = None
            return END

    def state(self) -> Any:
        return self.loader.state_dict()

    def close(self) -> None:
        self._batches = None


class Runner:
    """Takes steps of a pipeline, and resets it after each end."""

    def __init__(self, pipe: Pipeline, state: Any = None) -> None:
        self.pipe = pipe
        if state is not None:
            pipe.load_state_dict(state)

    def step(self) -> Any:
        try:
            return [[np.asarray(sample).tolist() for sample in output] for output in self.pipe.run()]
        except StopIteration:
            self.pipe.reset()
            return END

    def state(self) -> Any:
        return self.pipe.state_dict()

    def close(self) -> None:
        self.pipe.close()


class Together:
    """Several ranks that take their steps together. Their state is the list of all states, or the merged one."""

    def __init__(self, ranks: Sequence[Walker | Runner], merge: bool) -> None:
        self._ranks = ranks
        self._merge = merge

    def step(self) -> Any:
        return [rank.step() for rank in self._ranks]

    def state(self) -> Any:
        states = [rank.state() for rank in self._ranks]
        return merge_states(states) if self._merge else states

    def close(self) -> None:
        for rank in self._ranks:
            rank.close()


@dataclass(frozen=True)
class Program:
    """How to begin a program, or to resume it from a state.

    Attributes:
        begin: takes a state; None: begins without one.
        steps: numbers of steps before which a state is kept.
        is_new: whether there are no states before version 3.
        continues: whether the steps behind a state are the steps of the same run; else a resumed run takes them.
    """

    begin: Callable[[Any], Walker | Runner | Together]
    steps: Sequence[int] = (0, 2, 6)
    continues: bool = True
    is_new: bool = False

    def opened(self, state: Any = None) -> AbstractContextManager[Walker | Runner | Together]:
        return contextlib.closing(self.begin(state))


def plain(value: Any) -> Any:
    """Convert a batch to values that JSON can hold."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


# Datasets and sources


class Squares:
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return np.full(2, index**2), index


class Numbers(IterableDataset[int]):
    """Numbers, divided among the workers. The epochs of a worker have different lengths for different workers."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 11, step))


class Counted(IterableDataset[int]):
    """Numbers that only the state restores: each one is counted, in all epochs."""

    length = 11

    def __init__(self) -> None:
        self.counted = self.position = 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < self.length:
            self.counted += 1
            self.position += 1
            yield self.made(100 * self.counted + self.position)
        self.position = 0

    def made(self, number: int) -> Any:
        return number

    def state_dict(self) -> dict[str, int]:
        return {"counted": self.counted, "position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.counted, self.position = state["counted"], state["position"]


class OwnIterator:
    """An iterator with a state of its own."""

    def __init__(self, stop: int) -> None:
        self.number, self.stop = 0, stop

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.number == self.stop:
            raise StopIteration
        self.number += 1
        return self.made(self.number)

    def made(self, number: int) -> Any:
        return number

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.number = state["number"]


class OwnIterators(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return OwnIterator(7)


class ForeignSampler:
    """A sampler of another library: it has a state, and each epoch depends on the ones before."""

    def __init__(self) -> None:
        self.epochs = 0

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        return iter([(5 * i + self.epochs) % 12 for i in range(6)])

    def state_dict(self) -> dict[str, int]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.epochs = state["epochs"]


class ForeignIterators:
    """A sampler whose iterators have a state."""

    def __len__(self) -> int:
        return 7

    def __iter__(self) -> Iterator[int]:
        return OwnIterator(7)


def sample(info: SampleInfo) -> Any:
    if info.idx_in_epoch >= 14:
        raise StopIteration
    return np.array([info.epoch_idx, info.iteration, info.idx_in_epoch])


def batch(number: int) -> Any:
    if number >= 4:
        raise StopIteration
    return np.full((2, 1), number)


def batches() -> Iterator[Any]:
    for number in range(5):
        yield np.full((2, 1), number)


def batches_of_worker() -> Iterator[Any]:
    worker = get_worker_info()
    assert worker is not None
    for number in range(3 + worker.id):
        yield np.full((2, 1), 10 * worker.id + number)


class CountedBatches(Counted):
    length = 4

    def made(self, number: int) -> Any:
        return np.full((2, 1), number)


class OwnBatches(OwnIterator):
    def __init__(self) -> None:
        super().__init__(6)

    def made(self, number: int) -> Any:
        return np.full((2, 1), number)


class OwnBatchIterators:
    def __iter__(self) -> Iterator[Any]:
        return OwnBatches()


def is_kept(number: Any) -> bool:
    return bool(number % 5)


def negated(number: Any) -> Any:
    return -number


POSITIONS = ComposedDataset.source(np.arange(23)).shuffle().map(negated)
FILTERED = ComposedDataset.source(np.arange(40)).shuffle().filter(is_kept).with_options(shards=4)
PACKED = ComposedDataset.source([np.arange(1 + i % 5) for i in range(24)]).pack(8).with_options(shards=4)
MIXED = ComposedDataset.mix(
    [ComposedDataset.source(np.arange(100, 130)).shuffle(), ComposedDataset.source(np.arange(7))], weights=[3, 1]
).with_options(shards=4)


class Curriculum(Walker):
    """Changes weights and batch size at positions, once each."""

    def step(self) -> Any:
        state = self.state()
        if state["position"] >= 3 and not state["changes"]:
            self.loader.set_weights({"first": 1, "second": 3})
        if state["position"] >= 9 and not state["batch_sizes"]:
            self.loader.set_batch_size(5)
        return super().step()


def curriculum(state: Any) -> Curriculum:
    datasets = [ComposedDataset.source(np.arange(begin, begin + 90)).shuffle() for begin in (0, 100)]
    mixture = ComposedDataset.mix(datasets, [3, 1], names=["first", "second"], block=4, stop="never")
    return Curriculum(DataLoader(mixture.filter(is_kept).with_options(shards=4), 3), state)


# Programs


def loaders(make: Callable[..., Any], *counts: int, **options: Any) -> dict[str, Program]:
    """Return a program of a loader for each number of workers. `make` returns a dataset, or more arguments with it."""

    def begin(count: int) -> Callable[[Any], Walker]:
        def begun(state: Any) -> Walker:
            made = make()
            dataset, more = made if isinstance(made, tuple) else (made, {})
            how = {"num_workers": count, "multiprocessing_context": "thread"} if count else {}
            return Walker(DataLoader(dataset, **{"batch_size": 3, **how, **options, **more}), state)

        return begun

    return {f"{count} workers": Program(begin(count)) for count in counts}


def pipelines(source: Any, *counts: int, **options: Any) -> dict[str, Program]:
    """Return a program of a pipeline for each number of workers."""

    def begin(count: int) -> Callable[[Any], Runner]:
        return lambda state: Runner(pipeline_of(source, count, **options), state)

    return {f"{count} workers": Program(begin(count)) for count in counts}


def pipeline_of(make: Callable[[], Any], workers: int, batch_size: int = 2, **options: Any) -> Pipeline:
    how: dict[str, Any] = {"py_num_workers": workers, "py_start_method": "thread"} if workers else {}
    pipe = Pipeline(batch_size, num_threads=1, seed=5, enable_checkpointing=True, **how)
    pipe.set_outputs(fn.external_source(make(), parallel=bool(workers), **options))
    return pipe


def out_of_order(state: Any) -> Walker:
    """Return a loader that has delivered its second batch before the first one; see `Late`."""
    late = Late()
    if state is not None:
        late.may_return.set()
    in_order = state is not None
    walker = Walker(DataLoader(late, 3, num_workers=2, multiprocessing_context="thread", in_order=in_order), state)
    walker.close = late.may_return.set  # type: ignore[method-assign]
    return walker


class Late(Squares):
    """The first sample waits."""

    def __init__(self) -> None:
        self.may_return = threading.Event()

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            assert self.may_return.wait(60)
        return index


def ranks_of_loaders(dataset: ComposedDataset, merge: bool) -> Callable[[Any], Together]:
    def begin(state: Any) -> Together:
        ranks = [DataLoader(dataset, 2, shard_id=rank, num_shards=2, shard_rest="uneven") for rank in range(2)]
        return Together([Walker(rank, state) for rank in ranks], merge)

    return begin


def ranks_of_pipelines(make: Callable[[], Any], **options: Any) -> Callable[[Any], Together]:
    def begin(state: Any) -> Together:
        pipes = [pipeline_of(make, 0, shard_id=rank, num_shards=2, **options) for rank in range(2)]
        return Together([Runner(pipe, state) for pipe in pipes], merge=False)

    return begin


_KINDS: dict[str, dict[str, Program]] = {
    "map-style": loaders(Squares, 0, 2),
    "shuffled": loaders(Squares, 0, 2, shuffle=True, generator=3),
    "kept workers": loaders(Squares, 2, shuffle=True, generator=3, persistent_workers=True),
    "drawn with replacement": loaders(lambda: (Squares(), {"sampler": RandomSampler(Squares(), True, 9, generator=4)}), 0),
    "weighted": loaders(lambda: (Squares(), {"sampler": WeightedRandomSampler([1.0, 2.0] * 6, 8, generator=4)}), 2),
    "without batches": loaders(Squares, 0, 2, batch_size=None),
    "sampler of another library": loaders(lambda: (Squares(), {"sampler": ForeignSampler()}), 0, 2, batch_size=2),
    "iterator of another library": loaders(lambda: (Squares(), {"sampler": ForeignIterators()}), 0, 2, batch_size=2),
    "batches of a rank": loaders(
        lambda: (Squares(), {"batch_sampler": ShardedBatchSampler(Squares(), 2, shuffle=True, shard_id=1, num_shards=2)}),
        0,
        2,
        batch_size=1,
    ),
    "iterable": loaders(Numbers, 0, 2),
    "iterable with a state": loaders(Counted, 0) | loaders(Counted, 2, multiprocessing_context="fork"),
    "iterators with a state": loaders(OwnIterators, 0, 2, batch_size=2),
    "composed, by position": loaders(lambda: POSITIONS, 0, 2, batch_size=4),
    "composed, filtered": loaders(lambda: FILTERED, 0, 2, batch_size=4),
    "composed, packed": loaders(lambda: PACKED, 0, 2, batch_size=1),
    "composed, mixed": loaders(lambda: MIXED, 0, 2, batch_size=4),
    "composed, with changes": {"0 workers": Program(curriculum, is_new=True)},
    "out of order": {"2 workers": Program(out_of_order, steps=(1,), continues=False)},
    "composed on two ranks": {
        "states of all ranks": Program(ranks_of_loaders(FILTERED, merge=False), (0, 2, 3)),
        "merged": Program(ranks_of_loaders(FILTERED, merge=True), (0, 2, 3)),
    },
    "pipeline of samples": pipelines(lambda: sample, 0, 2, batch=False),
    "pipeline of batches": pipelines(lambda: batch, 0, 2),
    "pipeline of an iterable": pipelines(lambda: batches, 0, 2),
    "pipeline of an iterable in each worker": pipelines(lambda: batches_of_worker, 2, sharded=True),
    "pipeline of an iterable with a state": pipelines(CountedBatches, 0, 1),
    "pipeline of iterators with a state": pipelines(OwnBatchIterators, 0),
    "pipeline of a composed dataset": pipelines(lambda: FILTERED, 0, 2, last_batch_policy="partial"),
    "pipeline of positions": pipelines(lambda: POSITIONS, 0, 2, last_batch_policy="partial"),
    "pipelines of two ranks": {
        "samples": Program(ranks_of_pipelines(lambda: sample, batch=False, size=14), (0, 2, 3)),
        "composed": Program(ranks_of_pipelines(lambda: FILTERED, shard_rest="uneven"), (0, 2, 3)),
    },
}

PROGRAMS = {f"{kind}, {how}": program for kind, programs in _KINDS.items() for how, program in programs.items()}


def names_of(version: str) -> list[str]:
    """Return the names of the programs with states of a version."""
    return [name for name, program in PROGRAMS.items() if not (program.is_new and version == "before version 3")]


def file_of(name: str, version: str) -> Path:
    """Return the file with the states of a program."""
    return FOLDERS[version] / f"{name.replace(', ', '-').replace(' ', '_')}.json"


def saved(program: Program) -> list[dict[str, Any]]:
    """Run a program, and return its states, each with the steps that follow."""
    states, log, last = {}, [], max(program.steps)
    with program.opened() as running:
        for number in range(last + (FOLLOWING if program.continues else 0)):
            if number in program.steps:
                states[number] = json.loads(json.dumps(running.state()))
            log.append(running.step())
        if not program.continues:
            states[last] = running.state()
    if not program.continues:
        with program.opened(states[last]) as running:
            log += [running.step() for _ in range(FOLLOWING)]
    return [{"state": states[number], "following": log[number : number + FOLLOWING]} for number in program.steps]


if __name__ == "__main__":
    *_, newest = FOLDERS
    FOLDERS[newest].mkdir(exist_ok=True)
    for name, program in PROGRAMS.items():
        if not file_of(name, newest).exists():
            file_of(name, newest).write_text(json.dumps(saved(program)) + "\n")
