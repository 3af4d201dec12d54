"""Values of the stages, against models in plain Python: with random access, and in logical shards."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dali_like.data import ComposedDataset
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, EmptyFilterError
from tests.internals import stage_of

SHARDS = 3


def numbers(count: int = 10) -> ComposedDataset:
    return ComposedDataset.source(list(range(count)))


def in_shards(count: int = 20) -> ComposedDataset:
    """Return a stream in logical shards whose element at position p is p."""
    return numbers(count).filter(_yes).with_options(shards=SHARDS)


def _yes(x: Any) -> bool:
    return True


def by_shard(elements: list[list[Any]]) -> list[Any]:
    """Return the elements of shards in the order of the stream."""
    rows = itertools.zip_longest(*elements, fillvalue=None)
    return [element for row in rows for element in row if element is not None]


def parts_of(count: int = 20) -> list[list[int]]:
    return [list(range(shard, count, SHARDS)) for shard in range(SHARDS)]


def resumed_everywhere(dataset: ComposedDataset) -> list[Any]:
    """Return the elements of an epoch, after a check that a resume at each element gives the same."""
    elements = list(dataset)
    for start in range(len(elements) + 1):
        first = iter(dataset)
        assert list(itertools.islice(first, start)) == elements[:start]
        second = iter(dataset)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert list(second) == elements[start:], start
    return elements


@pytest.mark.parametrize("make", [numbers, in_shards])
@pytest.mark.parametrize(
    ("stage", "model"),
    [
        (lambda d: d.map(str), lambda e: list(map(str, e))),
        (lambda d: d.enumerate(5), lambda e: list(enumerate(e, 5))),
        (lambda d: d.take(4), lambda e: e[:4]),
        (lambda d: d.take(100), lambda e: e),
        (lambda d: d.skip(4), lambda e: e[4:]),
        (lambda d: d.skip(100), lambda e: []),
        (lambda d: d.slice(2, 7), lambda e: e[2:7]),
        (lambda d: d.skip(1).take(5), lambda e: e[1:6]),
        (lambda d: d.shard(1, 2), lambda e: e[1::2]),
        (lambda d: ComposedDataset.zip(d, d.map(str)), lambda e: [(x, str(x)) for x in e]),
        (lambda d: ComposedDataset.zip(d, d.take(3)), lambda e: [(x, x) for x in e[:3]]),
    ],
)
def test_a_stage_gives_the_values_of_its_model(
    make: Callable[[], ComposedDataset],
    stage: Callable[[ComposedDataset], ComposedDataset],
    model: Callable[[list[Any]], list[Any]],
) -> None:
    dataset = stage(make())

    assert resumed_everywhere(dataset) == model(list(make()))
    if dataset.shards is None:
        assert len(dataset) == len(list(dataset))


def test_a_slice_with_a_step_needs_random_access() -> None:
    assert list(numbers().slice(1, 9, 3)) == [1, 4, 7]
    with pytest.raises(ArgumentError, match=r"Use shard\(index, count\)"):
        in_shards().slice(1, 9, 3)


def test_concat_goes_through_each_shard_of_each_input() -> None:
    assert resumed_everywhere(ComposedDataset.concat(numbers(3), numbers(2))) == [0, 1, 2, 0, 1]
    combined = ComposedDataset.concat(in_shards(7), numbers(5))
    assert resumed_everywhere(combined) == by_shard(
        [first + second for first, second in zip(parts_of(7), parts_of(5), strict=True)]
    )


def test_repeat_takes_the_next_epoch_of_its_input() -> None:
    assert resumed_everywhere(numbers(3).repeat(2)) == [0, 1, 2] * 2
    assert resumed_everywhere(in_shards(7).repeat(2)) == by_shard([part * 2 for part in parts_of(7)])
    shuffled = list(numbers(20).shuffle().repeat(2))
    assert sorted(shuffled[:20]) == sorted(shuffled[20:]) == list(range(20))
    assert shuffled[:20] != shuffled[20:]


def test_an_endless_repeat_of_nothing_ends() -> None:
    assert list(in_shards().filter(lambda x: False).repeat()) == []


@pytest.mark.parametrize(("size", "shift", "drops"), [(3, None, True), (3, 1, True), (2, 3, False), (4, 2, False)])
def test_windows_are_of_consecutive_elements(size: int, shift: int | None, drops: bool) -> None:
    def windows(elements: list[int]) -> list[list[int]]:
        every = [elements[i : i + size] for i in range(0, len(elements), shift or size)]
        return [window for window in every if len(window) == size or not drops]

    assert resumed_everywhere(numbers().window(size, shift, drop_remainder=drops)) == windows(list(range(10)))
    assert resumed_everywhere(in_shards().window(size, shift, drop_remainder=drops)) == by_shard(
        list(map(windows, parts_of()))
    )


def test_filter_and_flat_map_work_in_shards() -> None:
    assert sorted(resumed_everywhere(in_shards().filter(lambda x: x % 5))) == [x for x in range(20) if x % 5]
    repeated = in_shards(7).flat_map(lambda x: [x] * (x % 3))
    assert resumed_everywhere(repeated) == by_shard([[x for x in part for _ in range(x % 3)] for part in parts_of(7)])


def test_a_filter_that_rejects_everything_ends_with_an_error() -> None:
    dataset = numbers().repeat().filter(lambda x: False, most_rejected=25).with_options(shards=1)
    with pytest.raises(EmptyFilterError, match="has rejected 25 inputs in a row in shard 0"):
        next(iter(dataset))


@pytest.mark.parametrize("make", [numbers, in_shards])
def test_shuffling_in_blocks_keeps_the_blocks(make: Callable[[], ComposedDataset]) -> None:
    dataset = make().shuffle(block=4)
    elements = resumed_everywhere(dataset)

    assert sorted(elements) == list(make())
    assert elements != list(make())
    if dataset.shards is None:
        assert sorted(elements[:4]) == [0, 1, 2, 3]


def test_shuffle_depends_on_the_seed_and_the_epoch() -> None:
    dataset = numbers(50).shuffle()
    epochs = [[dataset[50 * epoch + i] for i in range(50)] for epoch in range(3)]

    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert list(dataset.with_options(seed=1)) != epochs[0]
    own = numbers(50).shuffle(seed=4)
    assert list(own.with_options(seed=1)) == list(own)


@pytest.mark.parametrize("dataset", [in_shards(), numbers().repeat()])
def test_a_shuffle_of_the_whole_set_names_the_ways_out(dataset: ComposedDataset) -> None:
    with pytest.raises(ArgumentError, match=r"shuffle\(block=1024\)"):
        dataset.shuffle()


def test_generators_depend_on_the_position_alone() -> None:
    def draw(element: Any, generator: Any) -> int:
        return int(generator.integers(1 << 40))

    whole = list(numbers().map(draw, rng=True))
    assert numbers().map(draw, rng=True)[7] == whole[7]
    assert len(set(whole)) == 10
    resumed_everywhere(in_shards().map(draw, rng=True))


def _fails(x: Any) -> Any:
    if x in (3, 7):
        raise ValueError(f"bad {x}")
    return x


def outcomes(iterator: Iterator[Any]) -> list[Any]:
    """Return elements, and the texts of exceptions in their place."""
    found = []
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except ValueError as error:
            found.append(str(error))


@pytest.mark.parametrize("make", [numbers, in_shards])
@pytest.mark.parametrize("stage", [lambda d: d.take(9), lambda d: d.map(str), lambda d: d.enumerate()])
def test_an_exception_is_an_output(
    make: Callable[[], ComposedDataset], stage: Callable[[ComposedDataset], ComposedDataset]
) -> None:
    dataset = stage(make().map(_fails))
    found = outcomes(iter(dataset))

    assert found[3] == "bad 3"
    assert found[7] == "bad 7"
    assert len(found) == len(list(stage(make())))


def test_a_description_never_changes() -> None:
    dataset = numbers()
    before = repr(dataset)
    dataset.map(str).shuffle().take(3)

    assert repr(dataset) == before == "list[10]"
    assert dataset.map(str).description == ["map(str)", "  list[10]"]
    with pytest.raises(AttributeError):
        stage_of(dataset).name = "other"


def test_a_copy_by_pickle_gives_the_same_elements() -> None:
    dataset = numbers().shuffle().map(str)
    assert dataset[3] == pickle.loads(pickle.dumps(dataset))[3]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ArgumentTypeError, match="generator does not"):
        ComposedDataset.source(x for x in [])
    with pytest.raises(ArgumentTypeError, match="a stage needs a function, but got 3"):
        numbers().map(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Use slice\(begin, end\)"):
        numbers()[1:3]  # type: ignore[misc]
    for use, hint in (
        (lambda: numbers().pack(5, blocks=3), r"'blocks' \(did you mean block\?\)"),
        (lambda: ComposedDataset.from_tar("a.tar", clas=3), r"argument 'clas'$"),
    ):
        with pytest.raises(ArgumentTypeError, match=hint):
            use()
    with pytest.raises(ArgumentTypeError, match=r"ComposedDataset.source\(it\)"):
        ComposedDataset.zip([numbers(), [1]])  # type: ignore[list-item]
    with pytest.raises(ArgumentClashError, match="seed=1 and 2"):
        ComposedDataset.concat(numbers().with_options(seed=1), numbers().with_options(seed=2))
    with pytest.raises(ArgumentError, match="dataset 0 is endless"):
        ComposedDataset.concat(numbers().repeat(), numbers())
    with pytest.raises(ArgumentError, match="index should be below count"):
        numbers().shard(3, 3)
    with pytest.raises(TypeError, match=r"because of a stage such as filter.* Count its elements"):
        len(in_shards())
    with pytest.raises(TypeError, match=r"endless, so it has no length\. Describe an end: take"):
        len(numbers().repeat())
    with pytest.raises(TypeError, match="endless, so it has no length"):
        len(in_shards().repeat())
    with pytest.raises(TypeError, match=r"no random access.* Iterate over it"):
        in_shards()[0]
    with pytest.raises(IndexError, match="position -1 is negative"):
        numbers()[-1]


@pytest.mark.parametrize("combine", [ComposedDataset.zip, ComposedDataset.concat])
def test_datasets_may_come_in_a_list_or_one_by_one(combine: Any) -> None:
    datasets = [numbers(3), numbers(2).map(str)]

    assert list(combine(datasets)) == list(combine(tuple(datasets))) == list(combine(*datasets))
    assert list(combine(datasets[:1])) == list(combine(datasets[0]))
    with pytest.raises(ArgumentError, match="at least one dataset is needed"):
        combine([])
    with pytest.raises(ArgumentTypeError, match="the inputs are composed datasets, and one is a list"):
        combine(datasets, datasets)
