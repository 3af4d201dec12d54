"""Sources of users in dynamic mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd
from dali_like import errors


def arrays(count: int = 3) -> list[np.ndarray[Any, Any]]:
    return [np.full((2, 2), i, np.int32) for i in range(count)]


def taken(source: ndd.ExternalSource, count: int) -> list[int | None]:
    """The first elements of the next items; None at an end."""
    found: list[int | None] = []
    for _ in range(count):
        try:
            found.append(int(np.asarray(source()).flat[0]))
        except StopIteration:
            found.append(None)
    return found


def numbered() -> Iterator[Any]:
    yield from arrays()


@pytest.mark.parametrize("source", [arrays(), numbered], ids=["list", "generator function"])
@pytest.mark.parametrize(
    ("cycle", "expected"),
    [
        (None, [0, 1, 2, None, None]),
        (False, [0, 1, 2, None, None]),
        ("no", [0, 1, 2, None, None]),
        ("raise", [0, 1, 2, None, 0]),
        ("quiet", [0, 1, 2, 0, 1]),
        (True, [0, 1, 2, 0, 1]),
    ],
)
def test_end_of_an_iterable(source: Any, cycle: Any, expected: list[int | None]) -> None:
    assert taken(ndd.ExternalSource(source, cycle=cycle), 5) == expected


def test_callable_is_called_for_each_item() -> None:
    items = iter(arrays())
    assert taken(ndd.ExternalSource(lambda: next(items)), 4) == [0, 1, 2, None]


def test_tensors_are_repeated_to_batches_and_batches_keep_their_size() -> None:
    source = ndd.ExternalSource(arrays(), layout="HW", dtype=ndd.float32)
    single, repeated = source(), source(batch_size=4)
    assert (type(single), single.dtype, single.layout) == (ndd.Tensor, ndd.float32, "HW")
    assert (type(repeated), repeated.batch_size, repeated.layout) == (ndd.Batch, 4, "HW")
    assert np.asarray(repeated)[:, 0, 0].tolist() == [1] * 4

    batches = ndd.ExternalSource([ndd.as_batch(arrays())], cycle="quiet")
    assert batches().batch_size == batches(batch_size=3).batch_size == 3
    with pytest.raises(errors.BatchSizeError, match="Expected batch size 2, got 3"):
        batches(batch_size=2)


def test_several_outputs_have_their_own_types_and_layouts() -> None:
    source = ndd.ExternalSource(
        lambda: (np.zeros((2, 3)), np.ones(4)), num_outputs=2, layout=("HW", "X"), dtype=[ndd.uint8, ndd.float32]
    )
    first, second = source()
    assert (first.layout, first.dtype, second.layout, second.dtype) == ("HW", ndd.uint8, "X", ndd.float32)
    wrong = ndd.ExternalSource(lambda: (np.zeros(2),), num_outputs=2)
    with pytest.raises(errors.OutputCountError, match="Expected 2 outputs"):
        wrong()
    mixed = ndd.ExternalSource(lambda: (np.zeros(2), ndd.as_batch([np.zeros(2)])), num_outputs=2)
    with pytest.raises(errors.SampleTypeError, match="uniformly"):
        mixed()


def test_captured_loop_ends_with_the_source() -> None:
    source = ndd.ExternalSource(arrays(), cycle="raise")
    epochs = [[int(np.asarray(batch)[1, 0, 0]) for batch in source.captured(batch_size=2)] for _ in range(2)]
    assert epochs == [[0, 1, 2]] * 2


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="strictly positive"):
        ndd.ExternalSource(arrays(), 0)
    with pytest.raises(ValueError, match="only be specified if"):
        ndd.ExternalSource(lambda: None, cycle="quiet")
    with pytest.raises(ValueError, match="cycle"):
        ndd.ExternalSource(arrays(), cycle="often")
    with pytest.raises(ValueError, match="size 2, got 1"):
        ndd.ExternalSource(arrays(), 2, layout=["HW"])
    with pytest.raises(errors.DefinitionError, match="no parameters"):
        ndd.ExternalSource(lambda index: index)
    with pytest.raises(errors.ArgumentError, match="pass its function"):
        ndd.ExternalSource(numbered(), cycle="raise")
