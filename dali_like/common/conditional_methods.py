"""Methods that only some instances of a class have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from dali_like.errors import UnavailableAttributeError

F = TypeVar("F", bound=Callable[..., Any])


def unavailable_if(reason_of: Callable[[Any], str | None]) -> Callable[[F], F]:
    """Decorate a method that instances with a reason against it do not have.

    Other libraries call a method of a loader if ``hasattr`` finds it. So accessing the method raises an AttributeError with
    the reason.

    Args:
        reason_of: returns the reason why an instance does not have the method; None if it has it.
    """

    def decorate(function: F) -> F:
        return cast(F, _ConditionalMethod(function, reason_of))

    return decorate


class _ConditionalMethod:
    def __init__(self, function: Callable[..., Any], reason_of: Callable[[Any], str | None]) -> None:
        self._function = function
        self._reason_of = reason_of
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self._function
        if (reason := self._reason_of(instance)) is not None:
            raise UnavailableAttributeError(f"{type(instance).__name__}.{self._function.__name__}: {reason}")
        return self._function.__get__(instance, owner)
