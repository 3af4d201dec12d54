"""The main module of the program in spawned workers, with ``py_import_main=True``.

By default, workers do not import it: pickles carry the needed parts by value. What the main module changes in other modules
is missing there then. Here, a pickle imports the main module first, under the name ``__mp_main__``, as workers of
`multiprocessing` do.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from dali_like.errors import ArgumentError, PipelineStateError

_NAME = "__mp_main__"
#: Not empty while this process, a worker, imports the main module.
_importing: list[None] = []


class MainModule(NamedTuple):
    """The place of a main module. Unpickling it imports the module.

    Attributes:
        name: the name for ``python -m``; None if `path` is given.
        path: the file.
    """

    name: str | None
    path: str | None

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return import_main, (self.name, self.path)


class AfterMain:
    """A value that is unpickled after the main module has been imported. Unpickling gives the value."""

    def __init__(self, main: MainModule, value: Any) -> None:
        self._parts = main, value

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _last, self._parts


def _last(_: None, value: Any) -> Any:
    return value


def find_main() -> MainModule:
    """Return the place of this program's main module.

    Raises:
        ArgumentError: the program has none that can be imported.
    """
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return MainModule(name, None)
    path = getattr(main, "__file__", None)
    if path is None or not os.path.exists(path):
        raise ArgumentError(
            "py_import_main=True: this program has no main module that workers could import, as an interactive session or "
            "`python -c`. Put the program into a file, or leave py_import_main out"
        )
    return MainModule(None, os.path.abspath(path))


def import_main(name: str | None, path: str | None) -> None:
    """Import the main module in a worker, once."""
    if _NAME in sys.modules:
        return
    module = types.ModuleType(_NAME)
    sys.modules[_NAME] = module
    _importing.append(None)
    try:
        if name is not None:
            content = runpy.run_module(name, run_name=_NAME, alter_sys=True)
        else:
            content = runpy.run_path(str(path), run_name=_NAME)
    except BaseException:
        del sys.modules[_NAME]
        raise
    finally:
        _importing.clear()
    vars(module).update(content)
    sys.modules["__main__"] = sys.modules[_NAME] = module


def refuse_while_importing() -> None:
    """Refuse to start workers in a worker that imports the main module: they would do so without end.

    Raises:
        PipelineStateError: this process is such a worker.
    """
    if _importing:
        raise PipelineStateError(
            "the main module starts workers when it is imported; with py_import_main=True, workers import it. Put the code "
            'that builds pipelines under `if __name__ == "__main__":`'
        )
