"""The program's main module in spawned workers. The forkserver imports it once, so workers are forked with it.

As `multiprocessing` does, it is imported under the name ``__mp_main__``, so that code under ``if __name__ == "__main__"``
does not run. `dali_like.sources.travel.main_module` decides whether to import it. Its objects then travel by name.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dali_like.errors import PipelineStateError

#: The module's name in the program, and its name where it is imported.
MAIN, IMPORTED_MAIN = "__main__", "__mp_main__"

_REMEDY = (
    'Put this code under `if __name__ == "__main__":`, or pass py_import_main=False to the pipeline (import_main=False to a '
    "DataLoader)"
)

#: Not empty while this process imports the main module.
_importing: list[None] = []


class MainModule(NamedTuple):
    """The place of a main module.

    Attributes:
        name: the name for ``python -m``; None if `path` is given.
        path: the file.
    """

    name: str | None
    path: str | None

    def load(self) -> None:
        """Import the module, unless this process has imported it.

        Raises:
            Exception: that of the module. It is imported again by the next call.
            PipelineStateError: the module ends the program.
        """
        if IMPORTED_MAIN in sys.modules:
            return
        module = types.ModuleType(IMPORTED_MAIN)
        before = sys.modules.get(MAIN)
        sys.modules[MAIN] = sys.modules[IMPORTED_MAIN] = module
        _importing.append(None)
        try:
            with _like_multiprocessing():
                exec(self._code(module), vars(module))  # runpy would run it in a module of its own
        except BaseException as error:
            del sys.modules[IMPORTED_MAIN]
            if before is not None:
                sys.modules[MAIN] = before
            if isinstance(error, SystemExit):
                raise PipelineStateError(
                    f"the main module ends the program when workers import it, by {error!r}. {_REMEDY}"
                ) from error
            raise
        finally:
            _importing.clear()

    def _code(self, module: types.ModuleType) -> types.CodeType:
        """Return the code, and set the attributes of the module."""
        if self.name is not None:
            import importlib.util  # few programs are modules

            spec = importlib.util.find_spec(self.name)
            loader: Any = None if spec is None else spec.loader
            code: types.CodeType | None = None if loader is None else loader.get_code(self.name)
            if spec is None or code is None:
                raise ModuleNotFoundError(f"No module named {self.name}", name=self.name)
            module.__spec__, module.__loader__, module.__package__ = spec, loader, spec.parent
            module.__file__ = spec.origin
            return code
        path = module.__file__ = str(self.path)
        with io.open_code(path) as file:
            return compile(file.read(), path, "exec", dont_inherit=True)


@contextlib.contextmanager
def _like_multiprocessing() -> Iterator[None]:
    """Let `multiprocessing` refuse to start processes, and tell the module that this is not the program's process."""
    from multiprocessing import process  # programs without a main module need none of it

    own, parts = process.current_process(), vars(process)
    name, parent = own.name, parts["_parent_process"]
    own._inheriting = True  # type: ignore[attr-defined]
    program = os.pidfd_open(os.getppid())
    if parent is None:  # a forkserver; workers have one already
        own.name, parts["_parent_process"] = "dali_like:start", parts["_ParentProcess"](name, os.getppid(), program)
    try:
        yield
    finally:
        own.name, parts["_parent_process"] = name, parent
        del own._inheriting  # type: ignore[attr-defined]
        os.close(program)


class MainVariables:
    """The global variables of the imported main module. Unpickling an instance gives them."""

    def __reduce__(self) -> tuple[Callable[[], dict[str, Any]], tuple[()]]:
        return _main_variables, ()


def _main_variables() -> dict[str, Any]:
    return vars(sys.modules[MAIN])


def main_file() -> str | None:
    """Return the file of this program's main module; None if it has none, or it cannot be read again."""
    path = getattr(sys.modules[MAIN], "__file__", None)
    if not isinstance(path, str) or path.startswith(("/dev/", "/proc/")) or not os.path.isfile(path):
        return None
    return os.path.abspath(path)


def refuse_while_importing() -> None:
    """Refuse to start workers in a process that imports the main module for workers: they would do so without end.

    Raises:
        PipelineStateError: this is such a process.
    """
    if _importing:
        raise PipelineStateError(f"the main module starts workers when it is imported, and workers import it. {_REMEDY}")
