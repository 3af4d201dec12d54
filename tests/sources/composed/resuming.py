"""Iteration with errors as outputs, and resumes at each position."""

from __future__ import annotations

from typing import Any

from dali_like.data import ComposedDataset, ComposedIterator


def output(iterator: ComposedIterator) -> Any:
    """Return the next output, or the text of an exception; None at the end."""
    try:
        return next(iterator, None)
    except Exception as error:
        return str(error)


def outputs(iterator: ComposedIterator) -> list[Any]:
    """Return the remaining outputs. In place of an exception, there is its text."""
    found: list[Any] = []
    while (each := output(iterator)) is not None:
        found.append(each)
    return found


def assert_resumes(dataset: ComposedDataset) -> None:
    """Check that the stream continues exactly from a state at each position."""
    iterator = iter(dataset)
    expected = [repr(each) for each in outputs(iter(dataset))]
    for number in range(len(expected) + 1):
        resumed = iter(dataset)
        resumed.load_state_dict(iterator.state_dict())
        assert [repr(each) for each in outputs(resumed)] == expected[number:]
        output(iterator)
