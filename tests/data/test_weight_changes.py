"""Weights of mixtures that are set while a loader runs: where they hold, and that a resume replays them."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader, merge_states
from dali_like.errors import ArgumentError, ArgumentTypeError, CheckpointError
from tests.data.loader_cases import MANY_WORKERS, loader_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

mix = ComposedDataset.mix
SHARDS = 6
OLD, NEW = {"web": 3, "code": 1}, {"web": 1, "code": 3}


def everything(_: Any) -> bool:
    return True


def not_fifth(element: Any) -> bool:
    return bool(element[1] % 5)


def array_of(element: Any) -> Any:
    return np.full(1 + element[1] % 3, 1000 * (element[0] == "code") + element[1] % 900)


def as_pair(element: Any) -> Any:
    return element, element


@functools.cache
def pairs(name: str, count: int) -> list[tuple[str, int]]:
    """Return a list that all datasets of this module share: a fork of the process takes longer the more memory it has."""
    return [(name, i) for i in range(count)]


def numbered(name: str, count: int = 2000) -> ComposedDataset:
    return ComposedDataset.source(pairs(name, count))


def mixture(is_sharded: bool = False, **options: Any) -> ComposedDataset:
    web, code = numbered("web").shuffle(), numbered("code")
    datasets = [web, code.filter(everything) if is_sharded else code]
    return mix(datasets, list(OLD.values()), **{"block": 8, "names": list(OLD), "stop": "never", **options})


#: Streams, each with a mixture whose weights can change.
STREAMS = {
    "random access": mixture(),
    "random access, mapped": mixture().map(as_pair).skip(3),
    "random access, shuffled in blocks": mixture().shuffle(block=16),
    "random access, ended": mixture().take(1500),
    "in shards": mixture(True),
    "in shards, mapped": mixture(True).map(as_pair),
    "in shards, first ends": mixture(True, stop="first"),
    "filtered": mixture().filter(not_fifth),
    "filtered and shuffled": mixture(True).filter(not_fifth).shuffle(block=5),
    "packed": mixture().map(array_of).pack(8, block=16),
    "packed by concat": mixture(True).map(array_of).pack(8, method="concat"),
    "flat": mixture(True).flat_map(as_pair).batch(4, collate=list),
    "left out of packs": mixture().pack(budget=2000, cost=lambda e: e[1] % 900, method="knapsack", block=8, too_long="drop"),
    "shared out": mixture(True).filter(everything).shard(1, 2),
    "zipped": ComposedDataset.zip([mixture(True), numbered("other", 9000)]),
    "nested": mix([mixture(name="inner"), numbered("c").shuffle()], [1, 1], block=6, stop="never", names=["in", "c"]),
}
STREAMS = {name: dataset.with_options(shards=SHARDS, seed=3) for name, dataset in STREAMS.items()}


def loader(dataset: ComposedDataset, batch_size: int = 4, workers: int = 0, **options: Any) -> DataLoader[Any]:
    return loader_of(dataset, workers, batch_size=batch_size, collate_fn=list, **{"shard_rest": "uneven", **options})


def plain(value: Any) -> str:
    return repr(value)


def stream(dataset: ComposedDataset, changes: Any, count: int) -> list[str]:
    """Return the first elements of a stream in one process, with changes of weights known from the beginning."""
    iterator = iter(dataset)
    iterator.load_state_dict({**iterator.state_dict(), "changes": changes})
    return [plain(element) for element in itertools.islice(iterator, count)]


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


def taken(batches: Any, count: int) -> list[str]:
    return [plain(element) for batch in itertools.islice(batches, count) for element in batch]


def drawn_by(each: DataLoader[Any], mix: str | None) -> int:
    """Return the first position from which a rank may have other weights, as the error for an earlier one names it."""
    with pytest.raises(ArgumentError, match="have been drawn: pass at=") as caught:
        each.set_weights(NEW, mix=mix, at=0)
    return int(str(caught.value).partition("at=")[2].partition(",")[0])


def changes_of(each: DataLoader[Any]) -> Any:
    return each.state_dict()["changes"]


def name_of(stream: str) -> str | None:
    return "inner" if stream == "nested" else None


# Where they hold


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_goes_on_as_if_the_weights_had_been_known(name: str, workers: int) -> None:
    each = loader(STREAMS[name], workers=workers)
    batches = iter(each)
    found = taken(batches, 5)
    position = each.set_weights(NEW, mix=name_of(name))
    found += taken(batches, 9)
    second = each.set_weights({"web": 1, "code": 1}, mix=name_of(name))
    found += taken(batches, 9)
    state = through_json(each.state_dict())

    assert second > position
    assert [change[2] for change in state["changes"]] == [position, second]
    assert found == stream(STREAMS[name], state["changes"], len(found))
    assert found != stream(STREAMS[name], [], len(found))


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 2)])
def test_a_resume_on_other_ranks_replays_changes(name: str, before: int, after: int) -> None:
    dataset = STREAMS[name]
    found: list[str] = []

    def run(loaders: list[Any], steps: int) -> list[Any]:
        """Take steps of all ranks, and return their states."""
        running = [iter(each) for each in loaders]
        for step in range(steps):
            if step == 2:
                position = max(drawn_by(each, name_of(name)) for each in loaders)
                weights = {"web": 1, "code": 3} if not changes_of(loaders[0]) else {"web": 1, "code": 1}
                for each in loaders:
                    assert each.set_weights(weights, mix=name_of(name), at=position) == position
            rows = [[plain(element) for element in next(each)] for each in running]
            found.extend(element for column in itertools.zip_longest(*rows) for element in column)
        return [each.state_dict() for each in loaders]

    def ranks(count: int, size: int) -> list[Any]:
        return [loader(dataset, size, shard_id=rank, num_shards=count) for rank in range(count)]

    states = through_json(run(ranks(before, 6), 4))
    resumed = ranks(after, 12 // after)
    for each in resumed:
        each.load_state_dict(states)
    states = through_json(run(resumed, 4))

    changes = merge_states(states)["changes"]
    assert len(changes) == 2
    assert found == stream(dataset, changes, len(found))


def in_uneven_shards(element: Any) -> bool:
    return element[1] // SHARDS < 2 + element[1] % SHARDS % 3


def in_last_shards(element: Any) -> bool:
    return element[1] % SHARDS > 3


def uneven(weights: Any, stop: str, web: Any, code: Any, web_count: int = 30) -> ComposedDataset:
    datasets = [numbered("web", web_count).filter(web) if web else numbered("web", web_count), numbered("code", 30)]
    datasets[1] = datasets[1].filter(code)
    options: Any = {"schedule": weights} if isinstance(weights[0], tuple) else {"weights": weights}
    return mix(datasets, **options, block=8, names=list(OLD), stop=stop)


#: Mixtures that end earlier in some logical shards than in others.
UNEVEN = {
    "an input ends the first": uneven([3, 1], "first", in_uneven_shards, everything),
    "random access ends the first": uneven([3, 1], "first", None, in_uneven_shards, web_count=15),
    "all have ended": uneven([3, 1], "all", in_uneven_shards, in_uneven_shards),
    "all have ended, one is empty": uneven([3, 1], "all", in_uneven_shards, in_last_shards),
    "all with a weight are empty": uneven([0, 1], "never", everything, in_last_shards, web_count=300).take(60),
    "empty at the end of a schedule": uneven(
        [(0, [1, 1]), (48, [0, 1])], "never", everything, in_last_shards, web_count=300
    ).take(60),
}


@pytest.mark.parametrize("stage", ["mixed", "packed", "shuffled"])
@pytest.mark.parametrize("name", UNEVEN)
def test_shards_that_have_ended_stay_so_with_new_weights(name: str, stage: str) -> None:
    dataset = UNEVEN[name]
    if stage != "mixed":
        dataset = dataset.map(array_of).pack(8, block=4) if stage == "packed" else dataset.shuffle(block=5)
    dataset = dataset.with_options(shards=SHARDS, seed=3)
    num_batches = len(list(loader(dataset, SHARDS)))
    for weights in ({"web": 7, "code": 1}, {"web": 1, "code": 7}):
        for before in range(num_batches):
            each = loader(dataset, SHARDS)
            batches = iter(each)
            found = taken(batches, before)
            each.set_weights(weights)
            changes = changes_of(each)
            found += taken(batches, 1000)

            assert found == stream(dataset, changes, len(found) + 1), (weights, before)


def test_shares_follow_the_new_weights_exactly() -> None:
    each = loader(STREAMS["in shards"], batch_size=SHARDS)
    batches = iter(each)
    before = [next(batches) for _ in range(11)]
    position = each.set_weights(NEW)
    after = [next(batches) for _ in range(16)]

    assert position == 11 * SHARDS
    assert Counter(name for batch in after for name, _ in batch) == {"web": 4 * SHARDS, "code": 12 * SHARDS}
    elements = [element for batch in before + after for element in batch]
    assert len(set(elements)) == len(elements)


def test_weights_are_as_fine_within_a_block_as_elsewhere() -> None:
    dataset = mix([numbered("web", 50_000), numbered("code", 50_000)], block=4096, stop="never", names=list(OLD))
    each = loader(dataset, batch_size=100)
    batches = iter(each)
    next(batches)
    assert each.set_weights({"web": 4095, "code": 1}) == 100
    names = Counter(name for batch in itertools.islice(batches, 41) for name, _ in batch)

    assert names["code"] in (1, 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_position_is_behind_the_last_input_that_has_been_drawn(workers: int) -> None:
    dataset = mixture(block=64).filter(everything).map(array_of).pack(8, block=32).with_options(shards=4)
    each = loader(dataset, 4, workers)
    batches = iter(each)
    next(batches)
    drawn: Any = each.dataset.report(each.state_dict())
    position = each.set_weights(NEW)

    assert sum(each.samples for each in drawn[0].inputs) <= position <= 4 * 3 * 32


@pytest.mark.parametrize("name", ["packed", "in shards", "random access"])
def test_weights_are_set_before_the_first_batch_and_behind_a_resume(name: str) -> None:
    each = loader(STREAMS[name])
    assert each.set_weights(NEW) == 0
    batches = iter(each)
    found = taken(batches, 3)
    resumed = loader(STREAMS[name], workers=2)
    resumed.load_state_dict(each.state_dict())
    resumed.set_weights({"web": 1, "code": 1})
    found += taken(iter(resumed), 12)

    assert found == stream(STREAMS[name], resumed.state_dict()["changes"], len(found))


@pytest.mark.parametrize("name", [name for name in STREAMS if "access" not in name])
@pytest.mark.parametrize("ranks", [1, 3])
def test_behind_a_resume_the_position_is_as_near_as_before(name: str, ranks: int) -> None:
    each = loader(STREAMS[name], 9)
    batches = iter(each)
    found = taken(batches, 4)
    expected = drawn_by(each, name_of(name))
    state = through_json(each.state_dict())
    resumed = [loader(STREAMS[name], 3, shard_id=rank, num_shards=ranks) for rank in range(ranks)]
    for rank in resumed:
        rank.load_state_dict([state])
        rank.set_weights(NEW, mix=name_of(name), at=expected)
    running = [iter(rank) for rank in resumed]
    for _ in range(8):
        rows = [[plain(element) for element in next(batches)] for batches in running]
        found += [element for column in zip(*rows, strict=True) for element in column]

    assert {drawn_by(rank, name_of(name)) >= expected for rank in resumed} == {True}
    assert found == stream(STREAMS[name], resumed[0].state_dict()["changes"], len(found))


def test_the_next_epoch_begins_with_the_weights() -> None:
    dataset = mixture(True, stop="first").filter(everything).take(96).with_options(shards=SHARDS)
    each = loader(dataset, 12)
    list(each)
    position = each.set_weights(NEW)
    (change,) = each.state_dict()["changes"]
    names = Counter(name for batch in each for name, _ in batch)

    assert (position, change[1]) == (0, 1)
    assert names == {"web": 24, "code": 72}


#: Streams with epochs that take turns in an endless mixture.
ENDED = {
    "taken": mixture().take(100),
    "shuffled in blocks": mixture().take(100).shuffle(block=16),
    "concatenated": ComposedDataset.concat([numbered("other", 7), mixture().take(93)]),
    "zipped": ComposedDataset.zip([numbered("other", 100), mixture()]),
    "first ends": mix([mixture(name="inner"), numbered("other", 50)], [1, 1], block=4, names=["in", "other"]),
    "filtered": mixture().take(100).filter(not_fifth).with_options(shards=SHARDS),
    "shuffled": mixture().take(100).shuffle(),
    "shuffled and filtered": mixture().take(100).shuffle().filter(not_fifth).with_options(shards=SHARDS),
    "repeated": mixture().take(50).repeat(2),
    "repeated and filtered": mixture().take(50).repeat(2).filter(not_fifth).with_options(shards=SHARDS),
    "in rounds": mixture(True).take(48).repeat(2).with_options(shards=SHARDS),
    "in rounds of rounds": mixture(True).take(18).repeat(2).filter(everything).repeat(3).with_options(shards=SHARDS),
    "endless before a filter": mixture().filter(everything).take(96).with_options(shards=SHARDS),
    "mapped before a filter": mixture().skip(4).map(as_pair).filter(everything).take(96).with_options(shards=SHARDS),
    "rounds before a filter": mixture().filter(everything).take(48).repeat(2).with_options(shards=SHARDS),
}


def names_in(batches: Any) -> set[str]:
    return set(str(batches).replace("'", " ").split())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batches", [1, 8, 30], ids=["at the beginning", "near the end", "at the end"])
@pytest.mark.parametrize("epochs", [0, 2])
@pytest.mark.parametrize("name", ENDED)
def test_weights_that_are_set_in_any_epoch_leave_earlier_batches_as_they_are(
    name: str, epochs: int, batches: int, workers: int
) -> None:
    each = loader(ENDED[name], 10, workers)
    for _ in range(epochs):
        assert names_in(list(each)) >= {"web", "code"}
    iterator = iter(each)
    taken(iterator, batches)
    each.set_weights({"web": 0, "code": 1}, mix="inner" if name == "first ends" else None)
    resumed = loader(ENDED[name], 10)
    resumed.load_state_dict(through_json(each.state_dict()))
    rest = list(iterator)
    if rest:
        assert list(resumed) == rest
    later = list(each)

    assert list(resumed) == later
    assert "code" in names_in(later)
    assert "web" not in names_in(later)


def test_weights_in_a_description_do_not_change_behind_an_epoch_of_an_endless_mixture() -> None:
    each = loader(mixture().take(100))
    list(each)
    changed = loader(
        mix([numbered("web").shuffle(), numbered("code")], [1, 3], block=8, names=list(OLD), stop="never").take(100)
    )

    with pytest.raises(CheckpointError, match="have been drawn with the old ones"):
        changed.load_state_dict(each.state_dict(), allow_change=["weights"])


@pytest.mark.parametrize("name", ["shuffled", "shuffled and filtered"])
def test_behind_a_shuffle_of_whole_epochs_weights_hold_from_the_next_epoch_on(name: str) -> None:
    each = loader(ENDED[name], 10)
    batches = iter(each)
    taken(batches, 3)
    position = each.set_weights({"web": 0, "code": 1})

    assert position == 100
    assert "web" in names_in(list(batches))
    assert names_in(list(each)) & set(OLD) == {"code"}


@pytest.mark.parametrize("times", [3, None])
@pytest.mark.parametrize("workers", [0, 2])
def test_weights_hold_in_later_rounds_of_repeat_and_in_the_rest_of_this_one(times: int | None, workers: int) -> None:
    dataset = mixture(True, block=4).take(96).repeat(times).filter(everything).with_options(shards=SHARDS)
    each = loader(dataset, 12, workers)
    batches = iter(each)
    first = [name for batch in itertools.islice(batches, 10) for name, _ in batch]
    position = each.set_weights({"web": 0, "code": 1})
    (change,) = each.state_dict()["changes"]
    later = [name for batch in itertools.islice(batches, 10) for name, _ in batch]

    assert (change[1], change[2]) == (1, position)
    assert position <= 24 + 12 * 6 * workers
    assert set(first) == set(OLD)
    assert set(later[position:96]) == {"code"}


@pytest.mark.parametrize("name", ["endless before a filter", "mapped before a filter", "rounds before a filter"])
def test_epochs_of_a_mixture_that_ends_behind_a_filter_have_other_elements(name: str) -> None:
    each = loader(ENDED[name], 12)
    first, second, third = (sorted(str(batch) for batch in each) for _ in range(3))
    again = loader(ENDED[name], 12)
    again.set_epoch(1)

    assert not set(first) & set(second)
    assert not set(second) & set(third)
    assert sorted(str(batch) for batch in again) == second


def test_an_endless_stream_has_the_same_elements_in_all_epochs() -> None:
    each = loader(mixture().filter(everything).with_options(shards=SHARDS))
    first, second = taken(iter(each), 5), taken(iter(each), 5)

    assert first == second


def test_a_report_has_the_weights_that_were_set() -> None:
    each = loader(STREAMS["in shards"], SHARDS)
    batches = iter(each)
    elements = [element for _ in range(3) for element in next(batches)]
    position = each.set_weights(NEW)
    elements += [element for _ in range(5) for element in next(batches)]
    (report,) = each.dataset.report(each.state_dict())

    assert [(piece.begin, piece.quotas) for piece in report.pieces] == [(0, (6, 2)), (position, (2, 6))]
    names = Counter(name for name, _ in elements)
    assert [(part.name, part.samples) for part in report.inputs] == sorted(names.items(), reverse=True)


@pytest.mark.parametrize("name", ["random access", "in shards", "packed"])
def test_a_batch_and_its_origins_are_found_behind_a_change(name: str) -> None:
    each = loader(STREAMS[name])
    batches = iter(each)
    next(batches)
    each.set_weights(NEW)
    for _ in range(10):
        batch = next(batches)

    assert plain(each.batch_at(10)) == plain(batch)
    if name != "packed":
        assert [(origin.source, origin.index) for origin in each.origins_of(batch)] == batch


@pytest.mark.parametrize("name", ["random access", "filtered"])
def test_a_dataset_that_the_program_shares_keeps_its_weights(name: str) -> None:
    first, second = loader(STREAMS[name]), loader(STREAMS[name])
    first.set_weights(NEW)
    list(itertools.islice(first, 3))

    assert taken(iter(second), 5) == stream(STREAMS[name], [], 20)
    assert [plain(element) for element in itertools.islice(STREAMS[name], 20)] == stream(STREAMS[name], [], 20)


@pytest.mark.parametrize("name", ["random access", "filtered"])
def test_kept_workers_go_back_with_a_loaded_state(name: str) -> None:
    each = loader(STREAMS[name], workers=1, persistent_workers=True)
    batches = iter(each)
    next(batches)
    before = through_json(each.state_dict())
    each.set_weights(NEW)
    taken(batches, 6)
    each.load_state_dict(before)

    found = taken(iter(each), 6)
    each._iterator = None

    assert found == stream(STREAMS[name], [], 28)[4:]


def fails_at_7(element: Any) -> Any:
    if element[1] % 7 == 0:
        raise ValueError("seven")
    return element


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("workers", [0, 2])
def test_failed_elements_do_not_move_the_position_too_far_or_too_little(on_error: str, workers: int) -> None:
    dataset = mixture(True).map(fails_at_7).shuffle(block=4).with_options(shards=SHARDS)

    def run(each: Any, batches: Any, count: int) -> list[str]:
        found: list[str] = []
        for _ in range(count):
            try:
                found.append(plain(next(batches)))
            except ValueError as error:
                found.append(str(error))
        return found

    each = loader(dataset, 5, workers, on_error=on_error)
    batches = iter(each)
    found = run(each, batches, 6)
    each.set_weights(NEW)
    state = through_json(each.state_dict())
    found += run(each, batches, 12)
    again = loader(dataset, 5, on_error=on_error)
    again.load_state_dict({**again.state_dict(), "changes": state["changes"]})

    assert run(again, iter(again), 18) == found


# Errors


@pytest.mark.parametrize(
    ("dataset", "weights", "options", "message"),
    [
        (mixture(), {"web": 1}, {}, "the weight of 'code' in mix.* is missing"),
        (mixture(), {"web": 1, "code": 2, "books": 1}, {}, r"has no dataset 'books'\. It has web, code; names="),
        (mixture(), {"web": 0, "code": 0}, {}, "not all 0"),
        (mixture(), {"web": 100, "code": 1}, {}, "less than one position in a block of 8"),
        (mixture(), NEW, {"mix": "other"}, r"there is no such mixture: pass mix=.*mix\(web, code\)"),
        (mixture(stop="first"), NEW, {}, 'its length would change: describe it with stop="never"'),
        (mixture(True, stop="all"), {"web": 1, "code": 0}, {}, "no weight may be 0"),
        (ComposedDataset.concat([mixture(True).take(9)]), NEW, {}, r"stage concat\(1 inputs\) behind it hides its position"),
        (numbered("web"), NEW, {}, "this dataset has no mixture: set_weights"),
        (ComposedDataset.zip([mixture(), mixture()]), NEW, {}, "several mixtures fit"),
    ],
    ids=str,
)
def test_wrong_weights(dataset: ComposedDataset, weights: Any, options: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        loader(dataset.with_options(shards=SHARDS)).set_weights(weights, **options)


def test_weights_are_a_mapping() -> None:
    with pytest.raises(ArgumentTypeError, match="a mapping from the names of datasets to weights"):
        loader(mixture()).set_weights([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="weights should be a list of numbers"):
        loader(mixture()).set_weights({"web": "x", "code": 1})  # type: ignore[dict-item]


def test_positions_that_have_been_drawn_keep_their_weights() -> None:
    each = loader(mixture())
    next(iter(each))
    with pytest.raises(ArgumentError, match="positions below 4 have been drawn: pass at=4"):
        each.set_weights(NEW, at=3)


def test_ranks_with_different_changes_cannot_be_merged() -> None:
    loaders = [loader(STREAMS["in shards"], shard_id=rank, num_shards=2) for rank in range(2)]
    loaders[0].set_weights(NEW)

    with pytest.raises(CheckpointError, match="Call set_weights on all ranks"):
        merge_states([each.state_dict() for each in loaders])


def test_new_weights_in_the_description_do_not_go_with_a_change() -> None:
    each = loader(STREAMS["random access"])
    each.set_weights(NEW)
    other = mix([numbered("web").shuffle(), numbered("code")], [1, 1], block=8, names=list(OLD), stop="never")

    with pytest.raises(CheckpointError, match="call set_weights after the resume"):
        loader(other.with_options(seed=3)).load_state_dict(each.state_dict(), allow_change=["weights"])


@pytest.mark.parametrize(
    "value",
    [[[[], 0, 4]], [[[9], 0, 4, [1, 3]]], [[[], 0, -4, [1, 3]]], [[[], 0, 4, [1, "x"]]], [[[], 0, 4, [1]]], 7],
    ids=str,
)
def test_damaged_changes_are_refused(value: Any) -> None:
    each = loader(STREAMS["random access"])
    with pytest.raises(CheckpointError, match="changes"):
        each.load_state_dict({**each.state_dict(), "changes": value})
