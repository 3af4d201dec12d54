"""Fixtures for operators that tests define."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dali_like.operators.machinery import description
from dali_like.operators.machinery.functions import make_function


@pytest.fixture
def operator() -> Iterator[Callable[..., Callable[..., Any]]]:
    """Make a function of ``fn`` like `dali_like.operators.machinery.description.operator`; registered for one test."""
    before = set(description.descriptions())

    def described(**options: Any) -> Callable[..., Any]:
        return lambda function: make_function(description.operator(**options)(function))

    yield described
    for path in set(description.registry) - before:
        del description.registry[path]
