"""Operators of the user's: `dali_like.operator`."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any

import cloudpickle
import numpy as np
import pytest

import dali_like
from dali_like import fn, ops, pipeline_def
from dali_like.errors import ArgumentError, ArgumentTypeError, DefinitionError
from dali_like.operators.machinery.description import descriptions
from dali_like.operators.parameters import PerSample, at_least
from tests.conftest import in_both_places
from tests.custom_operators import removed_at_the_end


@pytest.fixture(autouse=True)
def _removed_again() -> Iterator[None]:
    """Remove the operators of a test."""
    with removed_at_the_end():
        yield


def first_batch(outputs: Any, way: str = "serial", **options: Any) -> list[Any]:
    """Return the first batch of a pipeline of the numbers 0, 1, 2, 3 as float32."""
    method = {} if way == "serial" else {"py_start_method": way, "py_num_workers": 1}

    @pipeline_def(batch_size=4, num_threads=2, **method, **options)
    def pipeline() -> Any:
        source = lambda info: np.float32([info.idx_in_epoch])  # noqa: E731
        return outputs(fn.external_source(source, batch=False, parallel=way != "serial"))

    with closing(pipeline()) as pipe:
        return [batch.as_array()[:, 0].tolist() for batch in pipe.run()]


@pytest.mark.parametrize("way", ["serial", "fork", "spawn"])
def test_a_function_becomes_an_operator(way: str) -> None:
    @dali_like.operator
    def scaled(data, *, by: Annotated[PerSample[float], at_least(0)] = 2.0, plus=0):  # type: ignore[no-untyped-def]
        """Multiply numbers."""
        return data * np.float32(by) + np.float32(plus)

    def outputs(data: Any) -> Any:
        return fn.scaled(data), ops.Scaled(by=3.0)(data), scaled(data, by=fn.cast(data, dtype=np.float32), plus=1)

    assert first_batch(outputs, way) == [[0, 2, 4, 6], [0, 3, 6, 9], [1, 2, 5, 10]]
    assert "scaled" in fn.__all__
    assert "Scaled" in ops.__all__
    assert fn.scaled.__doc__ == ops.Scaled.__doc__ == "Multiply numbers."
    assert [*inspect.signature(fn.scaled).parameters][:3] == ["data", "by", "plus"]


@in_both_places
def test_function_with_a_parameter_for_the_call_gets_it(way: str) -> None:
    @dali_like.operator(random=True)
    def noisy(call: Any, data: Any, /) -> Any:
        place = call.empty(data.shape, data.dtype)
        place[:] = data + call.rng().random()
        return place

    ((first,), (second,)) = (first_batch(lambda data: fn.noisy(data, seed=5), way) for _ in range(2))

    assert first == second
    assert [int(value) for value in first] == [0, 1, 2, 3]
    assert len({value % 1 for value in first}) == 4


def test_several_outputs_and_inputs() -> None:
    @dali_like.operator(num_outputs=2, output_layout="X")
    def both(first: Any, second: Any = None, *others: Any) -> Any:
        return first + 1, first * (1 if second is None else second)

    assert first_batch(lambda data: tuple(fn.both(data, data))) == [[1, 2, 3, 4], [0, 1, 4, 9]]
    assert first_batch(lambda data: tuple(fn.both(data))) == [[1, 2, 3, 4], [0, 1, 2, 3]]


def test_wrong_arguments_are_errors_when_the_graph_is_built() -> None:
    def check(arguments: Any) -> None:
        if arguments.get("low", 0) > arguments.get("high", 0):
            raise ArgumentError("low must not exceed high")

    @dali_like.operator(check=check)
    def limited(data: Any, *, low: int = 0, high: Annotated[int, at_least(0)] = 5) -> Any:
        return data

    with pytest.raises(ArgumentTypeError, match=r"fn.limited: high must be an integer"):
        first_batch(lambda data: fn.limited(data, high="x"))
    with pytest.raises(ArgumentError, match=r"fn.limited: high must be an integer from 0 on, not -1"):
        first_batch(lambda data: fn.limited(data, high=-1))
    with pytest.raises(ArgumentError, match=r"fn.limited: low must not exceed high"):
        first_batch(lambda data: fn.limited(data, low=3, high=2))
    with pytest.raises(ArgumentTypeError, match=r"fn.limited got unexpected arguments: "):
        first_batch(lambda data: fn.limited(data, other=2))


def test_operators_in_modules() -> None:
    @dali_like.operator(module="mine", name="twice")
    def function(data: Any) -> Any:
        return data * 2

    assert first_batch(lambda data: (fn.mine.twice(data), ops.mine.Twice()(data))) == [[0, 2, 4, 6]] * 2
    assert fn.mine.__all__ == ["twice"]


def test_a_later_definition_replaces_an_earlier_one() -> None:
    """As when a cell of a notebook runs again."""
    for factor in (2, 3):

        @dali_like.operator
        def redefined(data: Any, *, factor: int = factor) -> Any:
            return data * factor

    assert first_batch(fn.redefined) == [[0, 3, 6, 9]]


def test_operators_of_the_library_are_not_replaced() -> None:
    def resize(data: Any) -> Any:
        return data

    before = fn.resize
    with pytest.raises(DefinitionError, match=r"fn.resize is an operator of dali_like: choose another name"):
        dali_like.operator(resize)
    assert fn.resize is before


def test_wrong_definitions() -> None:
    with pytest.raises(DefinitionError, match=r"operator got unexpected options: layout .*layouts"):
        dali_like.operator(layout="HWC")
    with pytest.raises(DefinitionError, match=r"name the arguments of an operator, instead of \*\*kwargs"):
        dali_like.operator(lambda data, **kwargs: data)


def test_descriptions_travel_by_value() -> None:
    @dali_like.operator
    def local(data: Any) -> Any:
        return data + 1

    copy = pickle.loads(cloudpickle.dumps(descriptions()["local"]))

    assert copy is not descriptions()["local"]
    assert copy.function(None, 1) == 2
