"""Elements of sequences."""

from __future__ import annotations

import numpy as np
import pytest

from dali_like import fn
from dali_like.errors import ArgumentError, SampleError
from tests.operators.running import WAYS, batches, run

FILMS = [np.arange(24, dtype=np.int16).reshape(4, 3, 2) + i for i in range(2)]


@pytest.mark.parametrize("way", WAYS)
def test_elements_and_their_order(way):
    def define(films, orders):
        return [
            *fn.element_extract(films, element_map=[2, 0]),
            fn.element_extract(films, element_map=1),
            fn.sequence_rearrange(films, new_order=[3, 3, 0]),
            fn.sequence_rearrange(films, new_order=orders),
        ]

    orders = [np.int32([1]), np.int32([0, 3, 2, 2])]
    ((outputs),) = batches(define, FILMS, orders, layouts=["FHW"], way=way)

    assert [output.layout() for output in outputs] == ["HW", "HW", "HW", "FHW", "FHW"]
    for i, film in enumerate(FILMS):
        expected = [film[2], film[0], film[1], film[[3, 3, 0]], film[orders[i]]]
        for output, array in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(np.array(output.at(i)), array, strict=True)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda films: fn.element_extract(films, element_map=[4]), "element_map has 4, but .* from 0 to 3"),
        (lambda films: fn.sequence_rearrange(films, new_order=[-1]), "new_order has -1, but .* from 0 to 3"),
        (lambda films: fn.sequence_rearrange(films[0, 0], new_order=[0]), "the input has 1 dimensions"),
    ],
)
def test_elements_that_are_not_there(define, message):
    with pytest.raises(SampleError, match=message):
        run(define, FILMS)


@pytest.mark.parametrize("operator", [fn.element_extract, fn.sequence_rearrange])
def test_layouts_that_are_no_sequences(operator):
    (name,) = {fn.element_extract: {"element_map": [0]}, fn.sequence_rearrange: {"new_order": [0]}}[operator].items()
    with pytest.raises(ArgumentError, match="'HWC' does not begin with F"):
        operator(fn.external_source(name="x", layout="HWC"), **dict([name]))
