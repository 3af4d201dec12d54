"""``element_extract`` and ``sequence_rearrange``, against DALI."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.parity.conftest import OURS
from tests.parity.operators import compare, error_of

pytestmark = pytest.mark.peers

FILMS = [np.arange(120).reshape(5, 4, 3, 2) + i for i in range(3)]
ORDERS = [np.int32([4]), np.int32([0, 3, 2, 2, 1, 0]), np.int32([1, 1])]


def define(library, films, orders):
    fn = library.fn
    return [
        *fn.element_extract(films, element_map=[2, 0, 2]),
        fn.element_extract(films, element_map=4),
        fn.element_extract(films, element_map=[3]),
        fn.sequence_rearrange(films, new_order=[3, 0, 0]),
        fn.sequence_rearrange(films, new_order=2),
        fn.sequence_rearrange(films, new_order=orders),
    ]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "int64", "bool"])
@pytest.mark.parametrize("layout", ["FHWC", "FCHW", None])
def test_elements(layout, dtype, dali):
    compare(dali, define, [[film.astype(dtype) for film in FILMS], ORDERS], [layout])


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 1, 2, 2)], ids=str)
def test_dimensions(shape, dali):
    arrays = [np.arange(np.prod(shape)).reshape(shape)] * 2

    def define(library, data):
        return [*library.fn.element_extract(data, element_map=[2, 1]), library.fn.sequence_rearrange(data, new_order=[2, 0])]

    compare(dali, define, [arrays])


def test_sequences_of_different_lengths(dali):
    def define(library, data):
        return [library.fn.element_extract(data, element_map=[1]), library.fn.sequence_rearrange(data, new_order=[1, 0])]

    compare(dali, define, [[film[: 2 + i, i:] for i, film in enumerate(FILMS)]], ["FHWC"])


WRONG = [
    ("element_extract", {}, "FHWC"),
    ("element_extract", {"element_map": []}, "FHWC"),
    ("element_extract", {"element_map": [-1]}, "FHWC"),
    ("element_extract", {"element_map": [5]}, "FHWC"),
    ("element_extract", {"element_map": [1]}, "HWCD"),
    ("sequence_rearrange", {}, "FHWC"),
    ("sequence_rearrange", {"new_order": []}, "FHWC"),
    ("sequence_rearrange", {"new_order": [-1]}, "FHWC"),
    ("sequence_rearrange", {"new_order": [5]}, "FHWC"),
    ("sequence_rearrange", {"new_order": [1]}, "HWCD"),
]


@pytest.mark.parametrize(("operator", "arguments", "layout"), WRONG)
def test_wrong_arguments(operator, arguments, layout, dali):
    for library in (OURS, dali):

        def define(library, data):
            return getattr(library.fn, operator)(library.fn.reshape(data, layout=layout), **arguments)

        assert error_of(library, define, [FILMS]) is not None


@pytest.mark.parametrize("order", [np.zeros(0, np.int32), np.int32([9])], ids=str)
def test_wrong_orders_of_samples(order, dali):
    for library in (OURS, dali):
        error = error_of(
            library, lambda library, data, order: library.fn.sequence_rearrange(data, new_order=order), [FILMS[:1], [order]]
        )
        assert error is not None
