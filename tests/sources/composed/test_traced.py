"""Origins of the elements of composed datasets: the same stream, and each element knows its sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset
from dali_like.sources.composed import bucketing, dataset, traced
from dali_like.sources.composed.stage import Stage
from dali_like.sources.composed.traced import Traced, traced_dataset
from dali_like.sources.origins import Origin, flat
from dali_like.testing.strategies import RandomGroups

A, B = range(100, 120), range(500, 510)

#: By the hundreds of an element, the name of its source in a mixture, and the first element there.
SOURCES = {1: ("a", 100), 5: ("b", 500)}


def mixed(stop: str = "first") -> ComposedDataset:
    inputs = [ComposedDataset.source(A), ComposedDataset.source(B)]
    return ComposedDataset.mix(inputs, [3, 1], block=8, stop=stop, names=["a", "b"])


def is_kept(element: int) -> bool:
    return element % 3 > 0


def negated(element: int) -> int:
    return -element


def noisy(element: int, generator: np.random.Generator) -> int:
    return element if generator.random() < 2 else 0


async def later(element: int) -> int:
    return element


def twice(element: int) -> list[int]:
    return [element, element]


def document(element: int) -> Any:
    return np.full(element % 7, element)


def numbers_in(value: Any) -> list[int]:
    """Return the elements of the sources in an output, in their order."""
    if isinstance(value, dict):
        tokens, ids = value["tokens"], value["tokens_segment_ids"]
        return [int(tokens[ids == number][0]) for number in range(1, ids.max() + 1)]
    if isinstance(value, tuple | list):
        return [number for part in value for number in numbers_in(part)]
    return [abs(int(value))]


def named_cost(number: int) -> dict[str, int]:
    return {"a": abs(number)}


STREAMS: dict[str, Callable[[], ComposedDataset]] = {
    "mix": mixed,
    "mix that repeats": lambda: mixed("all"),
    "map": lambda: mixed().map(negated),
    "map with random numbers": lambda: mixed().map(noisy, rng=True),
    "coroutines": lambda: mixed().map(later, concurrency=3),
    "threads": lambda: mixed().map(negated, read_threads=2),
    "slice": lambda: mixed().slice(2, 20, 3),
    "shard": lambda: mixed().shard(1, 2),
    "shard of a filter": lambda: mixed().filter(is_kept).shard(1, 2),
    "repeat": lambda: mixed().repeat(2),
    "shuffle": lambda: mixed().shuffle(),
    "shuffle in blocks": lambda: mixed().shuffle(block=5),
    "shuffle in blocks of a filter": lambda: mixed().filter(is_kept).shuffle(block=5),
    "window": lambda: mixed().window(3, 2),
    "window of a filter": lambda: mixed().filter(is_kept).window(3, 2),
    "zip": lambda: ComposedDataset.zip(mixed(), mixed().shuffle()),
    "cache": lambda: ComposedDataset.mix(
        [ComposedDataset.source(A).map(negated).cache("1 MiB"), ComposedDataset.source(B)], names=["a", "b"]
    ),
    "filter": lambda: mixed().filter(is_kept),
    "take of a filter": lambda: mixed().filter(is_kept).skip(2).take(9),
    "filter behind everything": lambda: mixed().map(negated).shuffle().filter(is_kept).map(negated),
    "flat_map": lambda: mixed().flat_map(twice),
    "bucket": lambda: mixed().bucket(abs, [300], [2, 3], block=16),
    "batch_by_budget": lambda: mixed().batch_by_budget(1100, abs, block=8),
    "batch_by_budget that drops": lambda: mixed().batch_by_budget(210, abs, block=8, too_large="drop"),
    "pack by cost": lambda: mixed().pack(budget=1100, cost=abs, method="knapsack", block=8),
    "pack by cost that drops": lambda: mixed().pack(budget={"a": 210}, cost=named_cost, block=8, too_long="drop"),
    "pack of a packer": lambda: mixed().pack(cost=named_cost, method=RandomGroups(2), block=8),
    "pack": lambda: mixed().map(document).filter(len).pack(8),
    "pack that drops": lambda: mixed().map(document).filter(len).pack(2, too_long="drop"),
    "pack of whole elements": lambda: mixed().map(document).filter(len).pack(8, method="best_fit", block=8),
    "pack of pieces": lambda: mixed().map(document).filter(len).pack(4, method="first_fit", block=8, too_long="split"),
}


def elements_of(stream: ComposedDataset) -> list[Any]:
    return list(iter(stream))


@pytest.mark.parametrize("name", STREAMS)
def test_traced_stream_has_the_same_elements_and_the_origin_of_each(name: str) -> None:
    plain = STREAMS[name]().with_options(seed=7, shards=2)

    found: list[Traced] = elements_of(traced_dataset(plain))

    assert len(found) > 3
    assert repr([each.value for each in found]) == repr(elements_of(plain))
    for each in found:
        rows = [each.origins] if isinstance(each.origins, Origin) else list(each.origins)
        told = [(row.source, row.index + dict(SOURCES.values())[row.source]) for row in rows]
        truth = [(SOURCES[number // 100][0], number) for number in numbers_in(each.value)]
        assert told == truth


@pytest.mark.parametrize("name", [name for name, make in STREAMS.items() if make().shards is None])
def test_origins_with_random_access_need_no_elements(name: str) -> None:
    plain = STREAMS[name]().with_options(seed=7)
    length = len(plain)

    without = traced_dataset(plain, values=False).elements()
    found = traced_dataset(plain).elements()

    assert [without.at(epoch, position).origins for epoch in (0, 2) for position in range(length)] == [
        found.at(epoch, position).origins for epoch in (0, 2) for position in range(length)
    ]


def test_origins_with_random_access_call_no_function_of_the_program() -> None:
    def fail(element: int) -> int:
        raise AssertionError

    class Failing:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> int:
            raise AssertionError

    without = traced_dataset(ComposedDataset.source(Failing()).map(fail).shuffle(seed=3), values=False)

    assert sorted(each.origins.index for each in iter(without)) == list(range(9))


def test_a_state_of_the_stream_fits_the_traced_stream() -> None:
    plain = STREAMS["pack"]()
    walk = iter(plain)
    taken = [next(walk) for _ in range(3)]
    state = json.loads(json.dumps(walk.state_dict()))
    rest = list(walk)

    other = iter(traced_dataset(plain))
    other.load_state_dict(state)

    assert taken
    assert repr([each.value for each in other]) == repr(rest)


def jsonl(folder: Path, count: int) -> list[str]:
    paths = []
    for number in range(count):
        path = folder / f"{number}.jsonl"
        path.write_text("".join(json.dumps({"file": number, "record": i}) + "\n" for i in range(3 + number)))
        paths.append(str(path))
    return paths


@pytest.mark.parametrize("how", ["random access", "in order", "shuffled chunks"])
def test_origins_of_records_of_files_are_the_file_and_the_number_in_it(how: str, tmp_path: Path) -> None:
    paths = jsonl(tmp_path, 3)
    stream = ComposedDataset.from_jsonl(paths, interleave=2 if how == "in order" else None, chunk_bytes=64)
    if how == "shuffled chunks":
        stream = stream.shuffle(together=2)
    stream = stream.with_options(shards=1 if how == "in order" else None)

    found = elements_of(traced_dataset(stream))

    assert len(found) == 12
    assert [each.origins for each in found] == [Origin(each.value["record"], paths[each.value["file"]]) for each in found]


def test_origins_of_iterables_are_their_numbers_and_those_of_the_records() -> None:
    def numbers() -> Iterator[int]:
        yield from range(3)

    stream = ComposedDataset.from_iterables([numbers, range(10, 12)]).with_options(shards=2)

    found = elements_of(traced_dataset(stream))

    assert sorted((each.value, each.origins.source, each.origins.index) for each in found) == [
        *((i, "iterable 0", i) for i in range(3)),
        *((10 + i, "iterable 1", i) for i in range(2)),
    ]


def test_a_record_that_raises_leaves_the_others_in_a_traced_stream() -> None:
    class Broken:
        def open(self, record: int) -> Iterator[int]:
            return map(self.read, range(record, 4))

        def read(self, number: int) -> int:
            if number == 1:
                raise OSError("broken")
            return number

    walk = iter(traced_dataset(ComposedDataset.from_parts([Broken()]).with_options(shards=1)))

    assert next(walk).origins.index == 0
    with pytest.raises(OSError, match="broken"):
        next(walk)
    assert [each.origins.index for each in walk] == [2, 3]


def test_concat_names_its_inputs() -> None:
    stream = ComposedDataset.concat(ComposedDataset.source(A), ComposedDataset.source(B))

    assert {each.origins.source for each in iter(traced_dataset(stream))} == {"input 0", "input 1"}


def test_every_stage_of_a_description_can_be_traced() -> None:
    def all_of(kind: type[Stage]) -> set[type[Stage]]:
        return {kind}.union(*map(all_of, kind.__subclasses__()))

    assert {dataset, bucketing}  # imported: their stages are classes now
    # Modules whose stages stand for others in copies of descriptions:
    own = {traced.__name__, *(f"{bucketing.__package__}.{name}" for name in ("draws", "known_costs"))}
    public = {kind for kind in all_of(Stage) if kind.__module__ not in own and not kind.__abstractmethods__}
    public = {kind for kind in public if kind.__name__ != "ReadingMap" and kind.__module__.startswith("dali_like.")}

    assert public == set(traced.RULES)


def test_parts_of_several_rows_are_flat() -> None:
    assert flat([Origin(1), (Origin(2), Origin(3))]) == (Origin(1), Origin(2), Origin(3))
