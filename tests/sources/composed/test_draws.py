"""Changes of weights at a resume, and reports of mixtures."""

import re
from collections import Counter

import numpy as np
import pytest

from dali_like.data import DataLoader
from dali_like.errors import CheckpointError
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.states import merge_states

mix = ComposedDataset.mix

OLD, NEW = [3, 1], [1, 3]


def numbered(name, count):
    return ComposedDataset.source([(name, i) for i in range(count)])


def inputs():
    return [numbered("a", 400), numbered("b", 400)]


def read(running, count):
    return [next(running) for _ in range(count)]


def suggested(error):
    """The schedule in an error message, as a user would type it."""
    (text,) = re.findall(r"schedule=(\[.*\])", str(error))
    return eval(text)


def identity(dataset):
    return dataset


def everything(_):
    return True


def in_pairs(element):
    return element, element


BEHIND = {
    "nothing": identity,
    "map": lambda dataset: dataset.map(identity),
    "enumerate": lambda dataset: dataset.enumerate().map(lambda element: element[1]),
    "skip": lambda dataset: dataset.skip(3),
    "slice": lambda dataset: dataset.slice(2, None, 3),
    "take": lambda dataset: dataset.take(90),
    "block shuffle": lambda dataset: dataset.shuffle(block=16),
    "repeat": lambda dataset: dataset.repeat(2),
    "concat": lambda dataset: ComposedDataset.concat(dataset, numbered("c", 20)),
    "zip": lambda dataset: ComposedDataset.zip(numbered("c", 999), dataset).map(lambda pair: pair[1]),
    "mix": lambda dataset: mix([numbered("c", 400), dataset], block=8),
    "filter": lambda dataset: dataset.filter(everything),
    "shuffle and filter": lambda dataset: dataset.shuffle(block=16).filter(everything),
    "flat map": lambda dataset: dataset.flat_map(lambda element: (element,)),
    "filter and block shuffle": lambda dataset: dataset.filter(everything).shuffle(block=5),
    "batch": lambda dataset: dataset.batch(4, collate=list).flat_map(identity),
    "filter and batch": lambda dataset: dataset.filter(everything).batch(4, collate=list).flat_map(identity),
    "bucket": lambda dataset: dataset.bucket(lambda e: e[1], [9, 99], [2, 3, 4], block=16).flat_map(identity),
    "filter, skip and map": lambda dataset: dataset.filter(everything).skip(7).map(identity),
}


def changed_at(build, count, schedule=None):
    """Deliver some elements with the old weights, change to the new ones, and return the rest and the dataset."""
    before = iter(build(mix(inputs(), OLD, block=8)))
    first = read(before, count)
    state = before.state_dict()
    if schedule is None:
        with pytest.raises(CheckpointError, match="differ from position 0 on") as caught:
            iter(build(mix(inputs(), NEW, block=8))).load_state_dict(state, allow_change=["weights"])
        schedule = suggested(caught.value)
    after = iter(build(mix(inputs(), schedule=schedule, block=8)))
    after.load_state_dict(state, allow_change=["weights"])
    return first, after, schedule


class TestChangedWeights:
    @pytest.mark.parametrize("behind", BEHIND)
    def test_the_error_has_the_remedy_and_no_element_comes_twice(self, behind):
        def build(dataset):
            return BEHIND[behind](dataset).with_options(shards=3)

        first, after, schedule = changed_at(build, 37)
        rest = list(after)
        assert schedule[0] == (0, OLD)
        assert schedule[1][1] == NEW
        assert [*first, *rest] == list(build(mix(inputs(), schedule=schedule, block=8)))
        most = 2 if behind == "repeat" else 1
        assert max(Counter([*first, *rest]).values()) == most

    def test_shares_follow_the_new_weights(self):
        first, after, schedule = changed_at(identity, 37)
        assert schedule == [(0, OLD), (40, NEW)]
        assert [name for name, _ in first].count("a") in (27, 28, 29)
        read(after, 3)
        assert [name for name, _ in read(after, 80)].count("a") == 20

    def test_a_later_beginning_is_as_good(self):
        _, after, _ = changed_at(identity, 37, [(0, OLD), (64, NEW)])
        assert [name for name, _ in read(after, 27 + 80)].count("b") >= 60

    def test_an_earlier_beginning_is_an_error(self):
        with pytest.raises(CheckpointError, match=r"differ from position 32 on, and positions up to 40 "):
            changed_at(identity, 37, [(0, OLD), (32, NEW)])

    def test_weights_change_several_times(self):
        _, after, _ = changed_at(identity, 37)
        read(after, 50)
        state = after.state_dict()
        with pytest.raises(CheckpointError, match=r"schedule=\[\(0, \[3, 1\]\), \(40, \[1, 3\]\), \(88, \[1, 1\]\)\]"):
            iter(mix(inputs(), block=8)).load_state_dict(state, allow_change=["weights"])

    def test_states_of_all_ranks(self):
        """Each rank checks its own shards; all states together know the first position that is possible."""

        def build(weights):
            return mix(inputs(), weights, block=8).filter(everything).with_options(shards=4)

        running = iter(build(OLD))
        read(running, 48)
        state = running.state_dict()
        ranks = [
            {**state, "rank": rank, "num_ranks": 2, "states": {str(s): state["states"][str(s)] for s in (rank, rank + 2)}}
            for rank in range(2)
        ]
        with pytest.raises(CheckpointError, match=r"positions up to 56 have been drawn"):
            iter(build(NEW)).load_state_dict(ranks, allow_change=["weights"])

    @pytest.mark.parametrize("method", ["concat", "first_fit"])
    def test_a_loader_of_packs(self, method):
        """Packs of numbers: packs before the change come from the old weights, the others from the new schedule."""

        def build(schedule):
            documents = [
                ComposedDataset.source(list(range(begin, begin + 300))).map(lambda x: np.full(1 + x % 5, x))
                for begin in (0, 1000)
            ]
            mixture = mix(documents, schedule=schedule, block=8)
            return mixture.pack(8, method=method, block=16).with_options(shards=2)

        def loader(schedule):
            return DataLoader(build(schedule), batch_size=2, shard_rest="uneven")

        before = loader([(0, OLD)])
        first = [batch["tokens"] for batch in read(iter(before), 3)]
        with pytest.raises(CheckpointError, match="differ from position 0") as caught:
            loader([(0, NEW)]).load_state_dict(before.state_dict(), allow_change=["weights"])
        schedule = suggested(caught.value)
        after = loader(schedule)
        after.load_state_dict(before.state_dict(), allow_change=["weights"])
        rest = [batch["tokens"] for batch in after]
        expected = [batch["tokens"] for batch in loader(schedule)]
        np.testing.assert_array_equal(np.concatenate(first + rest), np.concatenate(expected))

    def test_without_permission_they_are_an_error(self):
        running = iter(mix(inputs(), OLD))
        with pytest.raises(CheckpointError, match=r"Use the same description, or load_state_dict\(state, allow_change="):
            iter(mix(inputs(), NEW)).load_state_dict(running.state_dict())

    def test_stages_that_hide_the_position_matter_behind_the_first_element_only(self):
        old, new = (mix(inputs(), weights, block=8).filter(everything).repeat(2) for weights in (OLD, NEW))
        iter(new).load_state_dict(iter(old).state_dict(), allow_change=["weights"])

    def test_a_mixture_that_is_used_twice(self):
        def build(weights):
            mixture = mix(inputs(), weights, block=8)
            return ComposedDataset.zip(mixture, mixture.skip(100)).filter(everything).with_options(shards=2)

        running = iter(build(OLD))
        read(running, 9)
        with pytest.raises(CheckpointError, match=r"positions up to (16|120) have been drawn"):
            iter(build(NEW)).load_state_dict(running.state_dict(), allow_change=["weights"])

    def test_may_change_before_the_first_element(self):
        running = iter(mix(inputs(), NEW, block=8))
        running.load_state_dict(iter(mix(inputs(), OLD, block=8)).state_dict(), allow_change=["weights"])
        assert list(running) == list(mix(inputs(), NEW, block=8))

    def test_equal_shares_may_have_other_numbers(self):
        before = iter(mix(inputs(), [3, 1], block=8))
        first = read(before, 37)
        after = iter(mix(inputs(), [0.75, 0.25], block=8))
        after.load_state_dict(before.state_dict(), allow_change=["weights"])
        assert first + list(after) == list(mix(inputs(), OLD, block=8))

    @pytest.mark.parametrize(
        "behind",
        [
            lambda dataset: dataset.filter(everything).repeat(2),
            lambda dataset: ComposedDataset.concat(dataset.filter(everything), numbered("c", 9)),
            lambda dataset: mix([dataset.filter(everything), numbered("c", 99)], block=8),
        ],
    )
    def test_stages_that_hide_the_position_are_named(self, behind):
        def build(weights):
            return behind(mix(inputs(), weights, block=8)).with_options(shards=2)

        running = iter(build(OLD))
        read(running, 9)
        with pytest.raises(CheckpointError, match=r"before stage (repeat|concat|mix)\(.* cannot change"):
            iter(build(NEW)).load_state_dict(running.state_dict(), allow_change=["weights"])

    def test_a_whole_shuffle_needs_the_whole_epoch(self):
        running = iter(mix(inputs(), OLD, block=8).shuffle())
        read(running, 9)
        with pytest.raises(CheckpointError, match="have been drawn"):
            iter(mix(inputs(), schedule=[(0, OLD), (200, NEW)], block=8).shuffle()).load_state_dict(
                running.state_dict(), allow_change=["weights"]
            )

    def test_a_mixture_in_shards(self):
        def build(**weights):
            a, b = inputs()
            return mix([a, b.filter(everything)], **weights, block=4).with_options(shards=3)

        before = iter(build(weights=OLD))
        first = read(before, 37)
        state = before.state_dict()
        with pytest.raises(CheckpointError, match="differ from position 0") as caught:
            iter(build(weights=NEW)).load_state_dict(state, allow_change=["weights"])
        schedule = suggested(caught.value)
        assert schedule == [(0, OLD), (48, NEW)]
        after = iter(build(schedule=schedule))
        after.load_state_dict(state, allow_change=["weights"])
        elements = first + list(after)
        assert len(set(elements)) == len(elements)
        assert elements == list(build(schedule=schedule))

    def test_only_owned_shards_are_read(self):
        def build(weights, seen):
            def keep(element):
                seen.append(element)
                return True

            return mix(inputs(), weights, block=8).filter(keep).with_options(shards=4)

        before = iter(build(OLD, []))
        read(before, 40)
        for owned, count in (([1], 1), (None, 4)):
            seen: list = []
            with pytest.raises(CheckpointError, match="have been drawn"):
                build(NEW, seen).checked_state(before.state_dict(), ["weights"], owned)
            assert len(seen) == count

    @pytest.mark.parametrize("place", ["an input", "all inputs"])
    @pytest.mark.parametrize("behind", ["nothing", "mix", "filter", "zip"])
    def test_a_cache_has_no_line_in_the_description(self, place, behind):
        """So the lines of a state are those of the same stages, behind a cache and beside it."""

        def build(weights):
            a, b = inputs()
            datasets = [a.cache("1MiB"), b.cache("1MiB") if place == "all inputs" else b]
            return BEHIND[behind](mix(datasets, weights, block=8)).with_options(shards=3)

        before = iter(build(OLD))
        read(before, 37)
        with pytest.raises(CheckpointError, match="differ from position 0 on") as caught:
            iter(build(NEW)).load_state_dict(before.state_dict(), allow_change=["weights"])
        schedule = suggested(caught.value)
        without = BEHIND[behind](mix(inputs(), OLD, block=8)).with_options(shards=3)

        assert schedule[1][1] == NEW
        assert build(OLD).description == without.description
        assert len(build(OLD).report(before.state_dict())) == len(without.report(before.state_dict()))

    def test_damaged_weights(self):
        state = iter(mix(inputs(), OLD)).state_dict()
        state["position"] = 1
        state["description"][0] = state["description"][0].replace("[3, 1]", "[3")
        with pytest.raises(CheckpointError, match="are not weights of mix"):
            iter(mix(inputs(), NEW)).load_state_dict(state, allow_change=["weights"])


class TestReport:
    def test_rounded_shares(self):
        mixture = mix(inputs(), schedule=[(0, [2, 1]), (13, [1, 2])], block=8, names=["web", "books"])
        (report,) = mixture.report()
        assert report.name == "mix(web, books)"
        assert [(piece.begin, piece.quotas, piece.shares) for piece in report.pieces] == [
            (0, (5, 3), (5 / 8, 3 / 8)),
            (16, (3, 5), (3 / 8, 5 / 8)),
        ]
        assert report.pieces[0].weights == (2 / 3, 1 / 3)
        assert [(each.name, each.samples, each.epochs) for each in report.inputs] == [("web", 0, 0), ("books", 0, 0)]

    @pytest.mark.parametrize("count", [0, 7, 24, 100])
    def test_samples_with_random_access(self, count):
        mixture = mix(inputs(), OLD, block=8, stop="all").map(identity)
        running = iter(mixture)
        names = Counter(name for name, _ in read(running, count))
        (report,) = mixture.report(running.state_dict(), cost=lambda _: 10)
        assert [each.samples for each in report.inputs] == [names["a"], names["b"]]
        assert [each.epochs for each in report.inputs] == [names["a"] / 400, names["b"] / 400]
        assert [each.tokens for each in report.inputs] == [names["a"] * 10, names["b"] * 10]

    @pytest.mark.parametrize("count", [0, 7, 30, 100])
    def test_samples_in_shards(self, count):
        a, b = inputs()
        mixture = mix([a, b.filter(everything)], OLD, block=8).map(identity).with_options(shards=3)
        running = iter(mixture)
        names = Counter(name for name, _ in read(running, count))
        (report,) = mixture.report(running.state_dict(), cost=lambda _: 10)
        assert [each.samples for each in report.inputs] == [names["a"], names["b"]]
        assert [each.tokens for each in report.inputs] == [names["a"] * 10, names["b"] * 10]
        assert report.inputs[1].epochs is None

    def test_shards_behind_random_access(self):
        """The last element of each of 4 shards is still open."""
        mixture = mix(inputs(), OLD, block=8).flat_map(in_pairs).with_options(shards=4)
        running = iter(mixture)
        read(running, 64)
        (report,) = mixture.report(merge_states([running.state_dict()]))
        assert [each.samples for each in report.inputs] == [21, 7]

    def test_all_mixtures_of_a_dataset(self):
        inner = mix(inputs(), OLD, block=8, names=["a", "b"])
        outer = mix([numbered("c", 300), inner], [1, 1], block=16, names=["c", "inner"])
        running = iter(outer)
        read(running, 64)
        first, second = outer.report(running.state_dict())
        assert [each.samples for each in first.inputs] == [32, 32]
        assert [each.samples for each in second.inputs] == [24, 8]

    def test_a_dataset_without_mixtures(self):
        assert numbered("a", 3).report() == []
