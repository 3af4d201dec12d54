"""Operators of the tests' own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dali_like.operators import description
from dali_like.operators.functions import make_function


@pytest.fixture
def operator() -> Iterator[Callable[..., Callable[..., Any]]]:
    """As `dali_like.operators.description.operator`, but it makes the function of ``fn`` at once; for one test."""
    before = set(description.descriptions())

    def described(**options: Any) -> Callable[..., Any]:
        return lambda function: make_function(description.operator(**options)(function))

    yield described
    for path in set(description._registry) - before:
        del description._registry[path]
