"""Mixtures: shares, ends, epochs, and resuming."""

import collections
import dataclasses
import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, CheckpointError
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.mixing import Mix, quotas
from dali_like.sources.composed.stage import Place, RandomAccess
from dali_like.sources.permutation import Permutation
from dali_like.sources.sharding import Shard
from tests.internals import stage_of

mix = ComposedDataset.mix


def numbered(name, count):
    """A source of pairs of its name and a number."""
    return ComposedDataset.source([(name, i) for i in range(count)])


def kept(name, count, every=2):
    """A dataset in logical shards."""
    return numbered(name, count).filter(lambda element: element[1] % every == 0)


def shares(elements):
    return dict(Counter(name for name, _ in elements))


class Numbers:
    """A source of its indices."""

    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        return index


class TestQuotas:
    def test_sum_to_the_block(self):
        numbers = quotas([1 / 3, 1 / 3, 1 / 3], 4096, "abc")
        assert sum(numbers) == 4096
        assert sorted(numbers) == [1365, 1365, 1366]

    def test_go_to_the_largest_remainders(self):
        assert quotas([2.6, 1.7, 5.7], 10, "abc") == (2, 2, 6)

    def test_a_weight_without_a_position_is_an_error_that_names_the_block(self):
        with pytest.raises(ArgumentError, match=r"0\.001 of rare is less than one position .* block=1000"):
            mix([numbered("a", 9), numbered("b", 9)], [0.999, 0.001], names=["common", "rare"], block=100)
        assert mix([numbered("a", 9), numbered("b", 9)], [0.999, 0.001], block=1000)

    def test_the_named_block_suffices(self):
        assert min(quotas([7, 0.003, 90.2], -(-97203 // 3), "abc")) == 1


class TestRandomAccess:
    def test_each_block_has_the_shares(self):
        mixture = mix([numbered("a", 90), numbered("b", 90), numbered("c", 90)], [5, 3, 2], block=20, stop="never")
        for begin in range(0, 200, 20):
            assert shares(mixture[i] for i in range(begin, begin + 20)) == {"a": 10, "b": 6, "c": 4}

    def test_weights_are_equal_by_default(self):
        mixture = mix([numbered("a", 90), numbered("b", 90)], block=10)
        assert shares(mixture) == {"a": 90, "b": 90}

    def test_blocks_have_different_orders(self):
        mixture = mix([numbered("a", 999), numbered("b", 999)], block=32)
        orders = {tuple(mixture[begin + i][0] for i in range(32)) for begin in range(0, 320, 32)}
        assert len(orders) == 10

    def test_the_seed_changes_the_order_and_not_the_length(self):
        mixture = mix([numbered("a", 101), numbered("b", 57)], [2, 1], block=32)
        other = mixture.with_options(seed=1)
        assert len(other) == len(mixture)
        assert list(other) != list(mixture)

    def test_any_order_of_positions_gives_the_same_elements(self):
        """Blocks are cached after some positions."""
        mixture = mix([numbered("a", 2000), numbered("b", 1000)], [2, 1], block=512)
        elements = list(mixture)
        assert [mixture[i] for i in Permutation(len(mixture), 3)[np.arange(600)]] == [
            elements[i] for i in Permutation(len(mixture), 3)[np.arange(600)]
        ]

    def test_a_nested_mixture_has_an_order_of_its_own(self):
        inner = mix([numbered("a", 64), numbered("b", 64)], block=64)
        outer = mix([inner, inner], block=128)
        assert Counter(outer[i] for i in range(256)) == dict.fromkeys(inner, 2)

    def test_an_exception_names_the_input(self):
        mixture = mix([numbered("a", 3).map(lambda _: 1 / 0)], names=["letters"])
        with pytest.raises(ZeroDivisionError) as caught:
            mixture[0]
        assert "input 0 (letters) of stage mix(letters)" in "\n".join(caught.value.__notes__)

    def test_inputs_have_the_names_of_their_files(self, tmp_path):
        """By the last parts of their paths, whole paths, or numbers: the shortest names that differ."""
        for name in ("a/x.jsonl", "b/x.jsonl", "c.jsonl"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("1\n2\n")
        a, b, c = (ComposedDataset.from_jsonl(tmp_path / name) for name in ("a/x.jsonl", "b/x.jsonl", "c.jsonl"))
        several = ComposedDataset.from_jsonl(sorted(tmp_path.glob("*/x.jsonl")), interleave=2)

        def names(*datasets):
            (report,) = mix([*datasets]).report()
            return [each.name for each in report.inputs]

        assert names(a.map(str).shuffle(), c, numbered("a", 3)) == ["x.jsonl", "c.jsonl", "input 2"]
        assert names(a, b.repeat(2)) == [str(tmp_path / "a/x.jsonl"), str(tmp_path / "b/x.jsonl")]
        assert names(c, c) == ["input 0", "input 1"]
        assert names(several.with_options(shards=2), c) == ["x.jsonl and 1 more", "c.jsonl"]
        assert mix([a, b]).description == mix([b, c]).description

    def test_reports_are_printed_as_tables(self):
        mixture = mix(
            [numbered("a", 90), numbered("b", 90)], schedule=[(0, [3, 1]), (40, [1, 0])], block=20, names=["x", "yy"]
        )
        running = iter(mixture)
        collections.deque(itertools.islice(running, 20), maxlen=0)

        assert str(mixture.report(running.state_dict(), cost=lambda _: 100)) == (
            "mix(x, yy), 20 positions in a block\n"
            "input  share from 0  share from 40  samples  epochs  tokens\n"
            "x           75.00 %       100.00 %       15   0.167   1,500\n"
            "yy          25.00 %         0.00 %        5   0.056     500"
        )
        assert str(ComposedDataset.concat(mixture, mixture).report()).count("mix(x, yy)") == 2
        assert str(numbered("a", 3).report()) == "no mixtures"

    def test_length_is_exact(self):
        for lengths in ([1, 1], [7, 30], [100, 3], [64, 32], [0, 5]):
            mixture = mix([numbered("a", lengths[0]), numbered("b", lengths[1])], [2, 1], block=12)
            assert len(list(mixture)) == len(mixture)


class TestFirst:
    def test_ends_with_the_first_input_in_proportion(self):
        mixture = mix([numbered("a", 1000), numbered("b", 37), numbered("c", 1000)], [5, 3, 2], block=10)
        assert shares(mixture) == {"a": 61, "b": 37, "c": 24}

    def test_proportional_weights_deliver_each_element_once(self):
        mixture = mix([numbered("a", 50), numbered("b", 30), numbered("c", 20)], [50, 30, 20], block=30)
        assert len(set(mixture)) == len(mixture) == 100

    def test_no_element_comes_twice(self):
        elements = list(mix([numbered("a", 100), numbered("b", 41)], [1.7, 1], block=13))
        assert len(set(elements)) == len(elements)

    def test_an_endless_input_continues_in_the_next_epoch(self):
        mixture = mix([numbered("a", 5), numbered("b", 100).repeat()], block=2)
        assert sorted(mixture[i] for i in range(20) if mixture[i][0] == "b") == [("b", i) for i in range(10)]

    def test_endless_inputs_make_an_endless_mixture(self):
        assert mix([numbered("a", 5).repeat(), numbered("b", 5).repeat()]).length is None

    def test_a_schedule_may_leave_out_the_input_that_would_end(self):
        a, b = numbered("a", 4), numbered("b", 100)
        mixture = mix([a, b], schedule=[(0, [1, 1]), (8, [0, 1])], block=4)
        assert shares(mixture) == {"a": 4, "b": 100}


class TestAll:
    def test_ends_when_each_input_has_ended(self):
        mixture = mix([numbered("a", 50), numbered("b", 30), numbered("c", 20)], [1, 1, 1], block=9, stop="all")
        elements = list(mixture)
        assert len(set(elements)) == 100
        assert shares(elements) == {"a": 50, "b": 50, "c": 50}

    def test_repeated_inputs_begin_another_epoch(self):
        shuffled = numbered("b", 30).shuffle()
        mixture = mix([numbered("a", 60), shuffled], block=2, stop="all")
        drawn = [element for element in mixture if element[0] == "b"]
        assert sorted(drawn[:30]) == sorted(drawn[30:])
        assert drawn[:30] != drawn[30:]

    def test_an_endless_input_makes_it_endless(self):
        assert mix([numbered("a", 5), numbered("b", 5).repeat()], stop="all").length is None

    def test_waiting_for_an_input_without_weight_is_an_error(self):
        a, b = numbered("a", 40), numbered("b", 100)
        with pytest.raises(ArgumentError, match=r"input 0 may never end"):
            mix([a, b], schedule=[(0, [1, 1]), (8, [0, 1])], block=4, stop="all")
        with pytest.raises(ArgumentError, match=r"input 0 may never end"):
            mix([kept("a", 9), b], schedule=[(0, [1, 1]), (8, [0, 1])], block=4, stop="all")

    def test_an_empty_input_cannot_be_repeated(self):
        with pytest.raises(ArgumentError, match="input 0 is empty"):
            mix([numbered("a", 0), numbered("b", 5)], stop="all")


class TestEpochs:
    @pytest.mark.parametrize("stop", ["first", "all"])
    def test_inputs_begin_fresh_epochs(self, stop):
        epochs = mix([by_epoch(40), by_epoch(10)], block=10, stop=stop)
        seen = [{epochs[epoch * len(epochs) + i] for i in range(len(epochs))} for epoch in range(3)]
        assert len(seen[0] | seen[1] | seen[2]) == sum(map(len, seen))

    def test_each_epoch_has_each_element_in_another_order(self):
        mixture = mix([numbered("a", 40).shuffle(), numbered("b", 40)], block=8)
        first, second = ([mixture[e * 80 + i] for i in range(80)] for e in range(2))
        assert sorted(first) == sorted(second)
        assert [x for x in first if x[0] == "a"] != [x for x in second if x[0] == "a"]
        assert [x[0] for x in first] != [x[0] for x in second]


def by_epoch(count):
    """A dataset whose elements are different in each epoch."""
    return ComposedDataset.source(list(range(count))).map(lambda x, rng: (count, int(rng.integers(1 << 60)), x), rng=True)


class TestSchedule:
    def test_begins_at_blocks(self):
        mixture = mix([numbered("a", 99), numbered("b", 99)], schedule=[(0, [1, 1]), (25, [1, 4])], block=10, stop="never")
        assert [shares(mixture[i] for i in range(begin, begin + 10))["b"] for begin in (0, 10, 20, 30, 40)] == [
            5,
            5,
            5,
            8,
            8,
        ]

    def test_draws_continue_over_pieces(self):
        mixture = mix(
            [numbered("a", 100), numbered("b", 100)],
            schedule=[(0, [1, 1]), (20, [0, 1]), (40, [9, 1])],
            block=10,
        )
        elements = list(mixture)
        for name in "ab":
            drawn = sorted(number for each, number in elements if each == name)
            assert drawn == list(range(len(drawn)))
        assert shares(elements)["a"] == 100

    def test_the_same_weights_again_change_nothing(self):
        inputs = [numbered("a", 100), numbered("b", 100)]
        assert list(mix(inputs, [3, 1], block=8)) == list(mix(inputs, schedule=[(0, [3, 1]), (40, [6, 2])], block=8))

    def test_wrong_arguments(self):
        inputs = [numbered("a", 9), numbered("b", 9)]
        for schedule in ([], [(5, [1, 1])], [(0, [1, 1]), (0, [1, 2])], [(0, [1, 1]), (9, [1, 2]), (4, [1, 1])]):
            with pytest.raises(ArgumentError, match="should begin with 0 and ascend"):
                mix(inputs, schedule=schedule)
        with pytest.raises(ArgumentClashError, match="exclude each other"):
            mix(inputs, [1, 1], schedule=[(0, [1, 1])])
        with pytest.raises(ArgumentError, match="2 datasets and 3 weights"):
            mix(inputs, [1, 1, 1])
        with pytest.raises(ArgumentTypeError, match=r"weights should be a list of numbers.* not \['x', 'y'\]"):
            ComposedDataset.mix(inputs, ["x", "y"])
        with pytest.raises(ArgumentTypeError, match=r"names=list\(datasets\)"):
            ComposedDataset.mix({"a": inputs[0]}, {"a": 1})
        with pytest.raises(ArgumentError, match="2 datasets and 1 names"):
            mix(inputs, names=["a"])
        with pytest.raises(ArgumentError, match="finite, not negative"):
            mix(inputs, [1, -1])
        with pytest.raises(ArgumentError, match="not all 0"):
            mix(inputs, [0, 0])
        with pytest.raises(ArgumentError, match="at most 1048576"):
            mix(inputs, block=1 << 21)
        with pytest.raises(ArgumentError, match='"first", "all" or "never"'):
            mix(inputs, stop="last")
        with pytest.raises(ArgumentError, match="at least one dataset"):
            mix([])


def resumes_exactly(dataset, every=5):
    """Return the elements of an epoch, after resuming at some positions."""
    elements = list(dataset)
    running = iter(dataset)
    for begin in range(0, len(elements), every):
        resumed = iter(dataset)
        resumed.load_state_dict(running.state_dict())
        assert list(resumed) == elements[begin:]
        for _ in range(min(every, len(elements) - begin)):
            next(running)
    return elements


@st.composite
def mixtures(draw, stop):
    """Mixtures of 1 to 4 finite inputs, with schedules of 1 to 3 pieces."""
    count = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(1, 60), min_size=count, max_size=count))
    weights = st.lists(st.integers(1, 9), min_size=count, max_size=count)
    begins = [0, *sorted(draw(st.sets(st.integers(1, 99), max_size=2)))]
    schedule = [(begin, draw(weights)) for begin in begins]
    inputs = [numbered(i, length) for i, length in enumerate(lengths)]
    return lengths, mix(inputs, schedule=schedule, block=draw(st.integers(36, 80)), stop=stop)


class TestAnyMixture:
    @given(mixtures("first"))
    def test_first_delivers_the_beginning_of_each_input(self, mixture):
        lengths, dataset = mixture
        drawn = [sorted(i for name, i in dataset if name == number) for number in range(len(lengths))]
        assert drawn == [list(range(len(each))) for each in drawn]
        assert any(len(each) == length for each, length in zip(drawn, lengths, strict=True))

    @given(mixtures("all"))
    def test_all_delivers_each_input(self, mixture):
        lengths, dataset = mixture
        counts = Counter(dataset)
        assert set(counts) == {(number, i) for number, length in enumerate(lengths) for i in range(length)}
        assert len(dataset) == counts.total()
        totals = Counter(name for name, _ in counts.elements())
        assert any(totals[number] == length for number, length in enumerate(lengths))

    @given(mixtures("all"), st.integers(1, 5), st.integers(0, 80))
    def test_shards_resume_exactly(self, mixture, shards, count):
        _, dataset = mixture
        stage = stage_of(dataset)
        inputs = [stage_of(ComposedDataset(each).filter(lambda _: True)) for each in stage.inputs]
        mixed = ComposedDataset(dataclasses.replace(stage, all_inputs=tuple(inputs))).with_options(shards=shards)
        elements = list(mixed)
        running = iter(mixed)
        first = [next(running) for _ in range(min(count, len(elements)))]
        resumed = iter(mixed)
        resumed.load_state_dict(json.loads(json.dumps(running.state_dict())))
        assert [*first, *resumed] == elements
        assert set(elements) == set(dataset)


class TestShards:
    @pytest.mark.parametrize("stop", ["first", "all"])
    def test_resumes_exactly(self, stop):
        mixture = mix([numbered("a", 60), kept("b", 90), kept("c", 50)], [5, 3, 2], block=10, stop=stop)
        elements = resumes_exactly(mixture.with_options(shards=4))
        if stop == "all":
            assert len(set(elements)) == 60 + 45 + 25

    def test_first_takes_no_element_twice(self):
        mixture = mix([numbered("a", 60), kept("b", 90)], block=10).with_options(shards=3)
        elements = list(mixture)
        assert len(set(elements)) == len(elements) > 80

    def test_each_shard_has_its_shares_and_draws_in_order(self):
        mixture = mix([numbered("a", 600), kept("b", 900)], [3, 1], block=8).with_options(shards=3)
        reader = mixture.elements()
        for shard in range(3):
            elements = [reader.at(0, k * 3 + shard) for k in range(80)]
            for begin in range(0, 80, 8):
                assert shares(elements[begin : begin + 8]) == {"a": 6, "b": 2}
            assert [i for name, i in elements if name == "a"] == [i * 3 + shard for i in range(60)]
            drawn = [i for name, i in elements if name == "b"]
            assert drawn == sorted(drawn)

    def test_never_repeats_inputs_by_epochs(self):
        """Epochs are exact, for any length: 7 elements in 3 shards."""
        mixture = mix([numbered("a", 7), kept("b", 90)], block=2, stop="never").with_options(shards=3)
        running = iter(mixture)
        drawn = [element for element in (next(running) for _ in range(84)) if element[0] == "a"]
        assert Counter(drawn) == {("a", i): 6 for i in range(7)}

    def test_a_schedule_counts_positions_of_all_shards(self):
        mixture = mix(
            [numbered("a", 999), kept("b", 999, every=3)], schedule=[(0, [1, 1]), (40, [3, 1])], block=4, stop="never"
        ).with_options(shards=4)
        reader = mixture.elements()
        for shard in range(4):
            elements = [reader.at(0, k * 4 + shard) for k in range(20)]
            # 40 positions are 10 outputs of each shard, and 12 in blocks.
            assert [shares(elements[i : i + 4])["a"] for i in range(0, 20, 4)] == [2, 2, 2, 3, 3]

    def test_an_input_that_is_empty_in_a_shard_is_left_out(self):
        nothing = numbered("b", 30).filter(lambda _: False)
        for stop in ("all", "never"):
            mixture = mix([numbered("a", 12), nothing], block=4, stop=stop).with_options(shards=2)
            running = iter(mixture.take(30))
            assert shares(running) == {"a": 12 if stop == "all" else 30}

    def test_a_mixture_of_nothing_ends(self):
        nothing = numbered("b", 30).filter(lambda _: False)
        for stop in ("first", "all", "never"):
            assert list(mix([nothing, nothing], stop=stop).with_options(shards=2)) == []

    def test_resumes_with_empty_inputs(self):
        rare = numbered("b", 40).filter(lambda element: element[1] in (4, 8))
        mixture = mix([numbered("a", 20), rare], [2, 1], block=6, stop="all").with_options(shards=4)
        assert set(resumes_exactly(mixture, every=1)) == {("a", i) for i in range(20)} | {("b", 4), ("b", 8)}

    def test_exceptions_are_outputs_and_name_the_input(self):
        def fail(element):
            if element[1] % 4 == 0:
                raise ValueError("bad")
            return True

        mixture = mix([numbered("a", 20), numbered("b", 20).filter(fail)], block=4, names=["good", "bad"])
        running = iter(mixture.with_options(shards=2))
        outcomes = []
        notes = set()
        while True:
            try:
                outcomes.append(next(running))
            except StopIteration:
                break
            except ValueError as error:
                notes.add(error.__notes__[-1])
                outcomes.append("bad")
        assert notes == {"raised by input 1 (bad) of stage mix(good, bad)"}
        assert outcomes.count("bad") == 5
        assert {each for each in outcomes if each != "bad"} >= {("b", i) for i in range(20) if i % 4}

    def test_an_input_that_only_raises_is_not_empty(self):
        def fail(element):
            raise ValueError("bad")

        mixture = mix([numbered("a", 20), numbered("b", 4).filter(fail)], block=4, stop="never").with_options(shards=1)
        running = iter(mixture)
        num_bad = 0
        for _ in range(40):
            try:
                next(running)
            except ValueError:
                num_bad += 1
        assert num_bad == 20

    def test_shards_have_different_orders(self):
        mixture = mix([numbered("a", 999), kept("b", 999, every=3)], block=32, stop="never").with_options(shards=4)
        reader = mixture.elements()
        assert len({"".join(reader.at(0, k * 4 + shard)[0] for k in range(32)) for shard in range(4)}) == 4

    def test_a_state_of_another_stage_is_an_error(self):
        mixture = mix([numbered("a", 20), kept("b", 20)]).with_options(shards=1)
        running = iter(mixture)
        next(running)
        state = running.state_dict()
        state["states"]["0"][1] = {"step": 3}
        running.load_state_dict(state)
        with pytest.raises(CheckpointError, match="not a state of such a stage"):
            next(running)

    def test_epochs_of_sharded_inputs_are_fresh(self):
        """The mixture of epoch 1 has other random numbers than that of epoch 0, though inputs repeat in both."""
        noisy = by_epoch(8).filter(lambda _: True)
        mixture = mix([numbered("a", 40).map(lambda x: (*x, 0)), noisy], block=4, stop="all").with_options(shards=2)
        reader = mixture.elements()
        seen = [{reader.at(epoch, i) for i in range(60)} - {("a", i, 0) for i in range(40)} for epoch in range(2)]
        assert not seen[0] & seen[1]
        assert len(seen[0]) > 16

    def test_many_inputs_open_when_it_is_their_turn(self):
        opened = []

        class Part:
            def __init__(self, number):
                self.number = number

            def open(self, record):
                opened.append(self.number)
                return iter(range(record, 100))

        inputs = [ComposedDataset.from_parts([Part(number)]) for number in range(100)]
        running = iter(mix(inputs, block=200).with_options(shards=1))
        next(running)
        assert len(opened) == 1
        state = running.state_dict()
        opened.clear()
        resumed = iter(mix(inputs, block=200).with_options(shards=1))
        resumed.load_state_dict(state)
        next(resumed)
        assert len(opened) == 1


class TestSimulation:
    """35 sources with 10^10 elements on many ranks; see `positions`."""

    LENGTHS = tuple(10_000_000 * (1 + 7 * i % 35) for i in range(35))

    def mixture(self):
        sources = [ComposedDataset.source(Numbers(length)) for length in self.LENGTHS]
        inputs = [source.map(_Pair(number)) for number, source in enumerate(sources)]
        return mix(inputs, self.LENGTHS, block=1 << 14)

    def test_each_element_comes_at_most_once_on_any_ranks(self):
        """Windows of steps of the same global batch are read with different numbers of ranks."""
        mixture = self.mixture()
        assert len(mixture) > 0.99 * sum(self.LENGTHS)
        total = 384_000
        seen = set()
        for begin, ranks in ((0, 1024), (total, 768), (len(mixture) // total * total - total, 1000)):
            for rank in range(0, ranks, 25):
                positions = Shard(rank, ranks).stripe(begin, total // ranks)
                elements = [mixture[position] for position in positions]
                assert not seen.intersection(elements)
                seen.update(elements)
        assert len(seen) == 375 * 41 + 500 * 31 + 384 * 40

    def test_draws_are_a_bijection(self):
        """The draws of blocks follow each other for each input, from the first block to the last position."""
        stage = stage_of(self.mixture())
        assert isinstance(stage, Mix)
        schedule = stage.whole_schedule
        assert len(schedule.pieces) == 2
        last = schedule.pieces[-1]
        assert last.drawn == tuple(schedule.drawn(last.begin))
        ends = [drawn + quota for drawn, quota in zip(last.drawn, last.quotas, strict=True)]
        assert sum(ends) == schedule.length
        assert all(end <= length for end, length in zip(ends, self.LENGTHS, strict=True))
        assert any(end == length for end, length in zip(ends, self.LENGTHS, strict=True))

    def test_shards_of_one_stream_on_any_ranks(self):
        """A stage with an unknown yield behind the mixture, L = 3,072: owners change, and the elements stay distinct."""
        dataset = self.mixture().flat_map(_twice).with_options(shards=3072)
        seen: Counter = Counter()
        for begin, ranks in ((0, 1024), (6144, 768), (12288, 512)):
            for rank in range(0, ranks, 8):
                seen.update(self.read(dataset, Shard(rank, ranks).stripe(begin, 6144 // ranks)))
        assert set(seen.values()) == {2}
        evaluator = stage_of(dataset).inputs[0].evaluator(Place(0, 3072).input(0))
        assert isinstance(evaluator, RandomAccess)
        assert seen.keys() <= {evaluator.at(position) for position in range(3 * 3072)}

    def test_packs_of_one_stream_on_any_ranks(self):
        """Each document is in one pack. The ranks that are read own the same logical shards, every eighth one."""
        documents = self.mixture().map(_document)
        dataset = documents.pack(16, block=8).with_options(shards=3072)
        seen: Counter = Counter()
        for begin, ranks in ((0, 1024), (6144, 768), (12288, 512)):
            for rank in range(0, ranks, 8):
                packs = self.read(dataset, Shard(rank, ranks).stripe(begin, 6144 // ranks))
                seen.update(token for pack in packs for token in pack["tokens"].tolist() if token)
        evaluator = stage_of(dataset).input.evaluator(Place(0, 3072).input(0))
        assert isinstance(evaluator, RandomAccess)
        inputs = [evaluator.at(position) for shard in range(0, 3072, 8) for position in range(shard, 3072 * 40, 3072)]
        lengths = {document[0].item(): len(document) for document in inputs}
        assert len(seen) > 384 * 3 * 3
        assert all(lengths[token] == count for token, count in seen.items())

    def read(self, dataset, positions):
        """Read elements as a new rank does, without the walks of other ranks."""
        reader = dataset.elements()
        return [reader.at(0, position) for position in positions]


class _Pair:
    def __init__(self, number):
        self._number = number

    def __call__(self, index):
        return self._number, index


def _document(element):
    """Return one to five tokens, all of them the number of the element."""
    number, index = element
    return np.full(1 + index % 5, 1 + number + 35 * index)


def _twice(element):
    return element, element
