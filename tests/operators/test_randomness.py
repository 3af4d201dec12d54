"""Random numbers of operators: their dependence and independence, and their distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, types
from dali_like.errors import ArgumentError, SampleError
from dali_like.graph.language.operator_random import BLOCK, generator_at, key_of, key_of_seed, numbers_at
from tests.operators.running import pipeline, run


def draws(define: Any, **options: Any) -> np.ndarray:
    """Return all numbers, as (output, iteration, sample)."""
    results = run(define, batch_size=4, **options)
    return np.array(results).swapaxes(0, 1)


class TestTheGenerator:
    def test_random_numbers_are_distinct_and_repeatable_for_each_place(self):
        places = [
            (key, epoch, index)
            for key in (key_of(1, 0), key_of(1, 1), key_of(2, 0), key_of_seed(1))
            for epoch in (0, 1)
            for index in (0, 1, 2)
        ]

        numbers = [generator_at(*place).random() for place in places]

        assert len(set(numbers)) == len(places)
        assert [generator_at(*place).random() for place in reversed(places)] == numbers[::-1]

    def test_nothing_is_left_of_the_numbers_before(self):
        """Neither the rest of a generated block, nor the unused half of a number."""
        key = key_of(1, 0)
        fresh = generator_at(key, 0, 0).integers(0, 100, 7, np.int32)

        generator_at(key, 3, 4).random(3)
        generator_at(key, 3, 4).integers(0, 100, 3, np.int32)

        np.testing.assert_array_equal(generator_at(key, 0, 0).integers(0, 100, 7, np.int32), fresh)

    def test_numbers_of_many_samples_are_those_of_their_generators(self):
        last = (1 << 64) - 1
        for key, epoch in [(key_of(1, 0), 0), (key_of_seed(2), 7), ((last, 3), 0), ((0, last), last)]:
            indices = [0, 1, 5, 1 << 31, 1 << 32, (1 << 63) + 12345, last, *range(100, 160)]

            numbers = numbers_at(key, epoch, indices)

            alone = [generator_at(key, epoch, index).random(BLOCK) for index in indices]
            np.testing.assert_array_equal(numbers, alone)

    @pytest.mark.parametrize("shape", [[], [1], [4], [2, 2], [5], [0]])
    def test_batches_of_any_size_have_the_same_numbers(self, shape):
        def define():
            options = {"shape": shape} if shape else {}
            return [
                fn.random.uniform(range=[2, 7], **options),
                fn.random.coin_flip(probability=0.3, **options),
            ]

        def numbers(batch_size):
            results = run(define, batch_size=batch_size, iterations=240 // batch_size)
            return [np.concatenate([np.stack(outputs[i]) for outputs in results]) for i in range(2)]

        for few, many in zip(numbers(3), numbers(120), strict=True):
            np.testing.assert_array_equal(few, many)

    def test_a_range_that_is_too_wide_is_an_error(self):
        with pytest.raises(ArgumentError, match="too wide"):
            run(lambda: fn.random.uniform(range=[-1e308, 1e308]))


class TestDependence:
    def test_on_the_sample_the_epoch_and_the_operator(self):
        numbers = draws(lambda: [fn.random.uniform(), fn.random.uniform()], iterations=4, reset_before=[2])

        assert len(np.unique(numbers)) == numbers.size

    def test_on_the_seed_of_the_pipeline(self):
        one, same, other = (draws(fn.random.uniform, seed=seed) for seed in (1, 1, 2))

        np.testing.assert_array_equal(one, same)
        assert not np.intersect1d(one, other).size

    def test_a_seed_of_the_operator_is_all_that_counts(self):
        """As in DALI, operators with the same seed draw the same numbers."""
        a, b, c = draws(lambda: [fn.random.uniform(seed=5), fn.random.uniform(seed=5), fn.random.uniform(seed=6)], seed=1)
        again, _ = draws(lambda: [fn.random.uniform(seed=5), fn.random.uniform()], seed=2)

        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, again)
        assert not np.intersect1d(a, c).size

    def test_not_on_operators_without_random_numbers(self):
        image = [np.zeros((1, 2, 3), np.uint8)] * 4
        (alone,) = draws(fn.random.uniform)
        _, behind = run(lambda data: [fn.flip(data), fn.random.uniform()], image)[0]

        np.testing.assert_array_equal(alone[0], behind)

    def test_not_on_where_it_was_resumed(self):
        def define() -> Any:
            source = fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False)
            return source, fn.random.uniform()

        options = {"batch_size": 2, "enable_checkpointing": True}
        pipe = pipeline(define, **options)
        first, second = pipe.run(), None
        state, second = pipe.checkpoint(), pipe.run()
        resumed = pipeline(define, **options, checkpoint=state)
        try:
            np.testing.assert_array_equal(resumed.run()[1].as_array(), second[1].as_array())
            assert not np.array_equal(first[1].as_array(), second[1].as_array())
        finally:
            pipe.close()
            resumed.close()

    def test_lists_of_nodes_share_them(self):
        """As in DALI, an image and its mask get the same numbers."""
        forkserver = [np.zeros(5)] * 4
        a, b = run(lambda one, other: fn.random.uniform([one, other]), forkserver, forkserver)[0]

        np.testing.assert_array_equal(a, b)

    def test_not_on_having_been_serialized(self):
        def define() -> Any:
            return [fn.random.uniform(), fn.random.coin_flip(), fn.random.uniform()]

        pipe = pipeline(define, batch_size=8)
        again = Pipeline.deserialize(pipe.serialize())
        try:
            for ours, theirs in zip(pipe.run(), again.run(), strict=True):
                np.testing.assert_array_equal(ours.as_array(), theirs.as_array())
        finally:
            pipe.close()
            again.close()


class TestDistributions:
    def test_uniform(self):
        (((whole, bounded, among, half),),) = [
            run(
                lambda: [
                    fn.random.uniform(shape=[40_000]),
                    fn.random.uniform(range=[3, 5], shape=40_000),
                    fn.random.uniform(values=[1, 7, 9], shape=[40_000]),
                    fn.random.uniform(range=[0, 1], shape=[40_000], dtype=types.FLOAT16),
                ],
                batch_size=1,
            )
        ]

        assert whole[0].dtype == np.float32
        assert -1 <= whole[0].min() < -0.99 < 0.99 < whole[0].max() < 1
        assert abs(whole[0].mean()) < 0.02
        assert bounded[0].min() >= 3
        assert bounded[0].max() < 5
        values, counts = np.unique(among[0], return_counts=True)
        assert values.tolist() == [1, 7, 9]
        assert counts.min() > 12_500
        assert half[0].dtype == np.float16
        assert half[0].max() < 1

    def test_coin_flip(self):
        ((often, never),) = run(
            lambda: [fn.random.coin_flip(probability=0.8, shape=[20_000]), fn.random.coin_flip(probability=0.0, shape=[9])],
            batch_size=1,
        )

        assert often[0].dtype == np.int32
        assert 0.78 < often[0].mean() < 0.82
        assert not never[0].any()

    def test_the_probability_may_differ_from_sample_to_sample(self):
        probabilities = [np.float32(0), np.float32(1)]

        ((flips,),) = run(lambda p: fn.random.coin_flip(probability=p, shape=[50]), probabilities)

        assert [flip.mean() for flip in flips] == [0, 1]

    def test_the_shape_of_an_input(self):
        ((numbers,),) = run(fn.random.uniform, [np.zeros((2, 3)), np.zeros((4, 1))])

        assert [array.shape for array in numbers] == [(2, 3), (4, 1)]

    @pytest.mark.parametrize("arguments", [{"range": [1, 0]}, {"range": [1]}])
    def test_wrong_ranges(self, arguments):
        with pytest.raises(ValueError, match=r"fn.random.uniform: range must be .*, 2 of them, .* the lower one first"):
            run(lambda: fn.random.uniform(**arguments))

    def test_normal(self):
        (((plain, wide, small, whole),),) = [
            run(
                lambda: [
                    fn.random.normal(shape=[40_000]),
                    fn.random.normal(mean=5, stddev=20, shape=40_000),
                    fn.random.normal(mean=100, stddev=200, shape=[1000], dtype=types.UINT8),
                    fn.random.normal(stddev=3, shape=[1000], dtype=types.INT32),
                ],
                batch_size=1,
            )
        ]

        assert plain[0].dtype == np.float32
        assert abs(plain[0].mean()) < 0.03
        assert 0.98 < plain[0].std() < 1.02
        assert abs(wide[0].mean() - 5) < 0.5
        assert 19.5 < wide[0].std() < 20.5
        assert {0, 255} < set(small[0])
        assert 2.7 < whole[0].std() < 3.4

    def test_integers_are_rounded(self):
        ((numbers, beyond),) = run(
            lambda: [
                fn.random.uniform(range=[0, 1], shape=[1000], dtype=types.INT32),
                fn.random.uniform(range=[300, 400], shape=[10], dtype=types.UINT8),
            ],
            batch_size=1,
        )

        assert 400 < numbers[0].sum() < 600
        assert set(beyond[0]) == {255}

    def test_choice(self):
        letters = np.array([[1.5, 2], [3, 4], [5, 6]], np.float32)
        (((below, among, rows, row, likely),),) = [
            run(
                lambda: [
                    fn.random.choice(4, shape=[4000]),
                    fn.random.choice([3, 7], shape=[2, 3]),
                    fn.random.choice(letters, shape=[50]),
                    fn.random.choice(letters),
                    fn.random.choice([1, 2, 3], p=[0.1, 0, 0.90001], shape=1000),
                ],
                batch_size=1,
            )
        ]

        assert below[0].dtype == np.int32
        assert np.bincount(below[0]).min() > 850
        assert among[0].shape == (2, 3)
        assert set(among[0].flat) <= {3, 7}
        assert {tuple(pair) for pair in rows[0].tolist()} == {(1.5, 2), (3, 4), (5, 6)}
        assert row[0].shape == (2,)
        assert np.bincount(likely[0])[2] == 0
        assert 850 < np.bincount(likely[0])[3] < 950

    def test_choice_for_each_sample(self):
        values = [np.array([1, 2], np.uint8), np.array([9], np.uint8)]
        like = [np.zeros((2, 2)), np.zeros((1, 3))]

        ((results, numbers),) = run(lambda a, like: [fn.random.choice(a, like), fn.random.choice(5, like)], values, like)

        assert [result.shape for result in results] == [(2, 2), (1, 3)]
        assert results[1].tolist() == [[9, 9, 9]]
        assert results[0].dtype == np.uint8
        assert max(array.max() for array in numbers) < 5

    @pytest.mark.parametrize(
        ("a", "arguments", "message"),
        [
            (0, {}, "a must have at least one element, not 0"),
            (2.5, {}, "a must be an integer or an array, not a number of dtype float32"),
            ([1, 2], {"p": [1]}, "p must have one probability for each of the 2 elements, not 1"),
        ],
    )
    def test_wrong_choices(self, a, arguments, message):
        with pytest.raises(ValueError, match=message):
            run(lambda: fn.random.choice(a, **arguments))

    @pytest.mark.parametrize(
        ("define", "message"),
        [
            (
                lambda: fn.random.choice(2, p=[0.5, 0.4]),
                r"choice: p must be probabilities, .* whose sum is 1, not \[0.5, 0.4\]",
            ),
            (lambda: fn.random.choice(2, p=[-1, 2]), "choice: p must be .* from 0 to 1, .* not .*-1, 2"),
            (lambda: fn.random.choice(2, shape=[-1]), r"choice: shape must be .* from 0 on, .* not \[-1\]"),
            (lambda: fn.random.normal(shape=[2, -1]), "normal: shape must be .* from 0 on"),
            (
                lambda: fn.random.uniform(range=[2, 1]),
                r"uniform: range must be .* the lower one first, .* not \[2, 1\]",
            ),
            (
                lambda: fn.random.coin_flip(probability=1.5),
                "coin_flip: probability must be .* from 0 to 1, .* not 1.5",
            ),
        ],
    )
    def test_wrong_constants_are_refused_when_the_graph_is_made(self, define, message):
        with pytest.raises(ValueError, match=rf"fn.random.{message}"):
            define()

    def test_wrong_values_of_samples(self):
        with pytest.raises(SampleError, match=r"the argument probability must be a number from 0 to 1; .* array\(2"):
            run(lambda p: fn.random.coin_flip(probability=p), [np.float32(2)])

    def test_results_have_no_layout(self):
        image = fn.external_source(lambda info: np.zeros((2, 3, 3)), batch=False, layout="HWC")

        for node in (
            fn.random.normal(image),
            fn.random.uniform(image),
            fn.random.coin_flip(image),
            fn.random.choice(5, image),
        ):
            assert node.producer.layouts == ("",)
