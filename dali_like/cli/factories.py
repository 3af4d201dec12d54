"""Pipelines that are named on the command line, as ``module:function`` or ``file.py:function``."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from dali_like.errors import ArgumentError
from dali_like.pipeline.pipeline import Pipeline


@dataclass(frozen=True)
class Factory:
    """A function that makes pipelines.

    Attributes:
        function: it.
        name: what it is called.
        given: arguments that it is called with each time.
    """

    function: Callable[..., Any]
    name: str
    given: dict[str, Any] = field(default_factory=dict)

    def make(self, **settings: Any) -> Pipeline:
        """A pipeline with some arguments of `Pipeline`.

        Raises:
            ArgumentError: it makes something else, or does not take these arguments.
        """
        self._check(settings)
        pipe = self.function(**{**self.given, **settings})
        if not isinstance(pipe, Pipeline):
            raise ArgumentError(f"{self.name} has returned a {type(pipe).__qualname__}, and not a Pipeline")
        return pipe

    def line(self, **settings: Any) -> str:
        """The line of code that makes it."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in {**self.given, **settings}.items())
        return f"{self.name}({arguments})"

    def _check(self, settings: dict[str, Any]) -> None:
        if getattr(self.function, "_is_pipeline_def", False):
            return
        parameters = inspect.signature(self.function).parameters.values()
        takes = {parameter.name for parameter in parameters}
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            return
        if missing := sorted({*settings, *self.given} - takes):
            raise ArgumentError(
                f"{self.name} does not take {', '.join(missing)}, which are to be tried: put @pipeline_def on it, or let it "
                "pass keyword arguments on to Pipeline"
            )


def add_factory_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that `factory_of` looks at."""
    parser.add_argument("pipeline", help="the function that makes it, as module:function or file.py:function")
    parser.add_argument(
        "--with",
        dest="given",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an argument of that function, as Python writes it; may be said several times",
    )


def factory_of(options: argparse.Namespace) -> Factory:
    """What the user has named.

    Raises:
        ArgumentError: there is no such module, or no such function in it.
    """
    where, _, name = options.pipeline.rpartition(":")
    if not where or not name:
        raise ArgumentError(f"{options.pipeline!r} does not name a pipeline: say module:function or file.py:function")
    function = getattr(_module(where), name, None)
    if isinstance(function, Pipeline):
        raise ArgumentError(f"{options.pipeline} is a pipeline; several have to be made, so name the function that makes it")
    if not callable(function):
        raise ArgumentError(f"{where} has no function {name}")
    return Factory(function, name, dict(map(_argument, options.given)))


def _module(where: str) -> ModuleType:
    if where.endswith(".py"):
        return _module_in(Path(where))
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{where}.".startswith(f"{error.name}."):
            raise ArgumentError(f"there is no module {where} in {os.getcwd()}, nor anywhere else on the path") from error
        raise


def _module_in(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ArgumentError(f"there is no file {path}")
    sys.path.insert(0, str(path.parent.resolve()))  # as `python file.py` does
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ArgumentError(f"--with {text}: say NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
