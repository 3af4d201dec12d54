"""Automatic augmentation: magnitudes, choices, statistics of the schemes, and wrong arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def, types
from dali_like.auto_aug import augmentations as a
from dali_like.auto_aug import auto_augment, rand_augment, trivial_augment
from dali_like.auto_aug.core import Policy, augmentation, select, signed_bin
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError

BINS = 5


def run(define: Callable[[], Any], count: int, **options: Any) -> list[list[Any]]:
    """Return the outputs of a pipeline for a batch, as lists."""
    pipe = pipeline_def(**options)(define)(batch_size=count, num_threads=1, device_id=None, seed=7)
    with closing(pipe):
        return [[np.asarray(output.at(i)).tolist() for i in range(count)] for output in pipe.run()]


def zeros() -> Any:
    return fn.external_source(lambda _: np.zeros(3, np.float32), batch=False)


def record(number: int, sign: bool = True) -> Any:
    """Return an augmentation that writes its number and its magnitude into the sample."""

    def mark(data: Any, magnitude: Any) -> Any:
        return data * np.float32(100) + fn.stack(types.Constant(np.float32(number)), magnitude, data[2] * 0 + 1)

    return augmentation(mark, mag_range=(1, BINS), randomly_negate=sign, name=f"mark{number}")


def test_trivial_augment_chooses_evenly_and_independently() -> None:
    marks = [record(i) for i in range(4)]
    (samples,) = run(lambda: trivial_augment.apply_trivial_augment(marks, zeros(), BINS, seed=3), 2_000)

    counts = Counter((number, magnitude) for number, magnitude, _ in samples)
    assert len(counts) == 4 * 2 * BINS
    expected = 2_000 / len(counts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 72.1  # 39 degrees of freedom, p = 0.001


def test_rand_augment_applies_n_augmentations_with_one_magnitude() -> None:
    @augmentation(mag_range=(0, 4), randomly_negate=True)
    def one(data: Any, magnitude: Any) -> Any:
        return data * np.float32(10) + fn.stack(magnitude, magnitude, magnitude)

    (samples,) = run(lambda: rand_augment.apply_rand_augment([one], zeros(), 2, 3, BINS), 2_000)
    counts = Counter(sample[0] for sample in samples)
    assert counts.keys() == {33, 27, -27, -33}
    assert all(abs(count - 500) < 80 for count in counts.values())


def test_policies_have_probabilities() -> None:
    one, two = record(1, sign=False), record(2, sign=False)
    policy = Policy("p", BINS, [[(one, 0.25, 2)], [(two, 1.0, 4), (one, 0.5, 0)]])
    (samples,) = run(lambda: auto_augment.apply_auto_augment(policy, zeros()), 2_000)
    counts = Counter(tuple(sample[:2]) for sample in samples)
    shares = {(0, 0): 0.375, (1, 3): 0.125, (2, 5): 0.25, (201, 501): 0.25}
    assert counts.keys() == shares.keys()
    assert all(abs(counts[key] / 2_000 - share) < 0.04 for key, share in shares.items())


def test_select_applies_one_function_to_each_sample() -> None:
    def define() -> Any:
        index = fn.external_source(lambda info: np.int32(info.idx_in_batch % 3), batch=False)
        return select([lambda x, y=i: x * 0 + y for i in (10, 20, 30)], index, index)

    assert run(define, 6) == [[10, 20, 30, 10, 20, 30]]


def test_augmentations_of_users_may_have_conditions() -> None:
    @augmentation(mag_range=(0, 4))
    def conditional(data: Any, magnitude: Any) -> Any:
        return data + 1 if magnitude > 1 else data - 1

    def define() -> Any:
        index = fn.external_source(lambda info: np.int32(info.idx_in_batch), batch=False)
        return conditional(zeros(), magnitude_bin=index, num_magnitude_bins=BINS)[0]

    assert run(define, 3, enable_conditionals=True) == [[-1, -1, 1]]


def test_wrong_arguments() -> None:
    mark = record(1)
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ArgumentError, "augmentations is empty", lambda: trivial_augment.apply_trivial_augment([], zeros())),
        (ArgumentError, "positive integer", lambda: trivial_augment.trivial_augment_wide(zeros(), 0)),
        (ArgumentError, "no such augmentation", lambda: rand_augment.rand_augment(zeros(), 1, 1, excluded=["x"])),
        (ArgumentError, "from 0 to 30", lambda: rand_augment.rand_augment(zeros(), 1, 31)),
        (ArgumentClashError, "without", lambda: rand_augment.rand_augment(zeros(), 1, 1, max_translate_rel=1)),
        (ArgumentError, "is unknown", lambda: auto_augment.auto_augment(zeros(), "x")),
        (ArgumentClashError, "omit shape", lambda: auto_augment.auto_augment(zeros(), "reduced_image_net", [2, 2])),
        (ArgumentTypeError, "no augmentation has", lambda: trivial_augment.apply_trivial_augment([mark], zeros(), x=1)),
        (
            ArgumentTypeError,
            "peek_image_shape",
            lambda: a.translate_x(zeros(), magnitude_bin=signed_bin(0), num_magnitude_bins=1),
        ),
        (ArgumentError, "pass magnitude_bin", lambda: mark(zeros(), num_magnitude_bins=BINS)),
        (ArgumentClashError, "random_sign", lambda: signed_bin(1, zeros(), seed=1)),
        (ArgumentTypeError, "shape=3 must begin with height", lambda: rand_augment.rand_augment(zeros(), n=1, m=1, shape=3)),
        (ArgumentTypeError, "augmentation already", lambda: augmentation(mark)),
        (ArgumentError, "from 0 to 4", lambda: Policy("p", BINS, [[(mark, 1.0, 5)]])),
        (ArgumentError, "is None", lambda: Policy("p", BINS, [[(mark, 1.0, None)]])),
    ]
    for error, message, define in wrong:
        with pytest.raises(error, match=message):
            pipeline_def(define)(batch_size=1, num_threads=1, device_id=None)
