"""The parts of user sources, as searched for fork hazards and pickling errors."""

from __future__ import annotations

from dali_like.graph.execution.program import Program
from dali_like.sources.travel.introspection import parts_of


def test_named_tuples_that_sources_are_wrapped_in_are_not_for_the_user_to_know() -> None:
    fields = Program((), 2, (), (1,), ())

    assert list(parts_of(fields)) == [("", field) for field in fields]


def test_defaults_of_functions_have_the_names_of_their_parameters() -> None:
    def function(first: int, second: int = 2, third: int = 3, *, fourth: int = 4) -> None: ...

    assert sorted(parts_of(function)) == [(" -> fourth", 4), (" -> second", 2), (" -> third", 3)]


def test_global_names_of_functions_are_those_that_are_there_now() -> None:
    def function() -> object:
        return known  # type: ignore[name-defined]  # noqa: F821

    before = list(parts_of(function))
    function.__globals__["known"] = 1
    after = [part for _, part in parts_of(function)]
    del function.__globals__["known"]

    assert before == []
    assert after == [1]
