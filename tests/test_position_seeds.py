"""Generators for positions: independent of each other, and objects of their own."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np

from dali_like import position_seeds
from dali_like.position_seeds import generator_for


def numbers(generator: np.random.Generator) -> list[int]:
    return generator.integers(1 << 62, size=3).tolist()


def test_numbers_depend_on_each_part_of_the_position() -> None:
    positions = list(itertools.product([0, 1, 1 << 70], [0, 1, 11], [0, 1], [0, 1, 1 << 62], [0, 1]))

    drawn = [tuple(numbers(generator_for(*position))) for position in positions]

    assert len(set(drawn)) == len(positions)
    assert [tuple(numbers(generator_for(*position))) for position in positions] == drawn


def test_a_generator_that_is_kept_goes_on_by_itself() -> None:
    kept = generator_for(1, 2, 3, 4)
    first = numbers(kept)
    generator_for(1, 2, 3, 5).random(7)

    assert [first, numbers(kept)] == [*generator_for(1, 2, 3, 4).integers(1 << 62, size=(2, 3)).tolist()]


def test_bits_are_uniform_over_neighboring_positions() -> None:
    drawn = np.array([generator_for(0, 0, 0, i).random() for i in range(4000)])

    assert abs(drawn.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.06
    assert np.histogram(drawn, 10, (0, 1))[0].min() > 320


def test_copies_and_children_draw_the_same_everywhere() -> None:
    generator = generator_for(1, 2, 3, 4)
    children = [numbers(child) for child in generator_for(1, 2, 3, 4).spawn(2)]

    assert numbers(pickle.loads(pickle.dumps(generator))) == numbers(copy.deepcopy(generator)) == numbers(generator)
    assert [numbers(child) for child in generator.spawn(2)] == children
    assert len({*map(tuple, children), tuple(numbers(generator))}) == 3


def test_other_bit_generators_take_the_seed() -> None:
    seed = generator_for(1, 2, 3, 4).bit_generator.seed_seq

    assert np.random.MT19937(seed).random_raw() == np.random.MT19937(seed).random_raw()


def test_neighboring_positions_share_a_hash() -> None:
    # Private: the number of hashes shows in no result
    hashes = position_seeds._states
    hashes.cache_clear()

    for index in range(160):
        generator_for(1, 2, 3, index)

    assert hashes.cache_info().misses == 10
