"""Find the pipeline function that the command line names as ``module:function`` or ``file.py:function``."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from dali_like.common.articles import kind_of
from dali_like.common.suggestions import with_suggestion
from dali_like.errors import ArgumentError
from dali_like.pipeline.pipeline import Pipeline

#: Arguments that the commands choose.
_SETTINGS = ("prefetch_queue_depth", "py_num_workers", "py_start_method", "num_threads")


@dataclass(frozen=True)
class Factory:
    """A function that makes pipelines.

    Attributes:
        function: the function.
        name: its name.
        given: arguments of every call.
    """

    function: Callable[..., Any]
    name: str
    given: dict[str, Any] = field(default_factory=dict)

    def make(self, **settings: Any) -> Pipeline:
        """Make a pipeline with some arguments of `Pipeline`.

        Raises:
            ArgumentError: the function returns something else, or does not accept these arguments.
        """
        self._check(settings)
        pipe = self.function(**{**self.given, **settings})
        if not isinstance(pipe, Pipeline):
            raise ArgumentError(f"{self.name} returned {kind_of(pipe)}, not a Pipeline")
        return pipe

    def line(self, **settings: Any) -> str:
        """Return the line of code that makes the pipeline."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in {**self.given, **settings}.items())
        return f"{self.name}({arguments})"

    def _check(self, settings: dict[str, Any]) -> None:
        if getattr(self.function, "_is_pipeline_def", False):
            return
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except ValueError:  # a function in C without a signature, as NumPy 1 has them
            return
        takes = {parameter.name for parameter in parameters}
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            return
        if missing := sorted({*settings, *self.given} - takes):
            raise ArgumentError(
                f"{self.name} does not accept {', '.join(missing)}: decorate it with @pipeline_def, or pass its keyword "
                "arguments on to Pipeline"
            )


def add_factory_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `factory_of`."""
    parser.add_argument("pipeline", help="function that makes the pipeline: module:function or file.py:function")
    parser.add_argument(
        "--with",
        dest="given",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="argument of that function, as a Python literal; may be repeated",
    )


def seconds(text: str) -> float:
    """Parse a positive number of seconds, for argparse."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, not {text}")
    return value


def factory_of(options: argparse.Namespace) -> Factory:
    """Return the pipeline function that the user has named.

    Raises:
        ArgumentError: there is no such module, or no such function in it; or the function needs further arguments.
    """
    function = object_of(options.pipeline, "function", lambda found: callable(found) or isinstance(found, Pipeline))
    if isinstance(function, Pipeline):
        raise ArgumentError(f"{options.pipeline} is a pipeline, and several are needed: name the function that makes it")
    given = dict(map(parse_argument, options.given))
    if missing := [name for name in _required(function) if name not in given and name not in _SETTINGS]:
        raise ArgumentError(
            f"{options.pipeline} needs {', '.join(missing)}: pass {' '.join(f'--with {name}=...' for name in missing)}, or "
            "name a function that makes a pipeline"
        )
    return Factory(function, options.pipeline.rpartition(":")[2], given)


def _required(function: Callable[..., Any]) -> list[str]:
    """Return the parameters of a function that have no default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a function in C without a signature
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is inspect.Parameter.empty and each.kind not in variable]


def object_of(text: str, what: str, accepts: Callable[[Any], bool]) -> Any:
    """Return the object that ``module:name`` or ``file.py:name`` names.

    Args:
        text: the name.
        what: the kind of object, for messages.
        accepts: whether an object is of that kind.

    Raises:
        ArgumentError: there is no such module, or no such object in it.
    """
    where, _, name = text.rpartition(":")
    if not where or not name:
        raise ArgumentError(f"{text!r} does not name a {what}: use module:{what} or file.py:{what}")
    module = _module(where)
    found = getattr(module, name, None)
    if not accepts(found):
        others = [each for each, value in vars(module).items() if accepts(value) and not each.startswith("_")]
        raise ArgumentError(with_suggestion(f"{where} has no {what} {name}", name, others))
    return found


def _module(where: str) -> ModuleType:
    if where.endswith(".py"):
        return _module_in(Path(where))
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{where}.".startswith(f"{error.name}."):
            text = f"no module {where} in {os.getcwd()} or on the Python path"
            raise ArgumentError(with_suggestion(text, where, [path.stem for path in Path().glob("*.py")])) from error
        raise


def _module_in(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        text = f"no such file: {path}"
        raise ArgumentError(with_suggestion(text, path.name, [other.name for other in path.parent.glob("*.py")]))
    if (known := sys.modules.get(path.stem)) is not None and getattr(known, "__file__", None) == spec.origin:
        return known  # a second run of its code would make other objects
    sys.path.insert(0, str(path.parent.resolve()))  # as `python file.py` does
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def parse_argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ArgumentError(f"--with {text}: use NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
