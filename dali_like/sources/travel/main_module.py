"""Decide whether spawned workers import the program's main module, and which of its objects travel by name then.

The decision comes from the source text. With a top-level ``if __name__ == "__main__"``, the rest of the module is meant to
be imported, as workers of `multiprocessing` do. Without, an import would start the program again: workers do not import it,
and its objects travel by value. Runs in the main process.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dali_like.common.notices import warn
from dali_like.engine.backends.main_import import IMPORTED_MAIN, MAIN, MainModule, main_file
from dali_like.engine.pool.backend_traits import BackendTraits
from dali_like.errors import ArgumentError

#: Calls that change settings of libraries, by the last part of the function's name.
_SETTERS = frozenset(
    {
        *("set_default_dtype", "set_default_device", "seterr", "seterrcall", "filterwarnings", "simplefilter"),
        *("register_heif_opener", "register_avif_opener", "register_open", "register_extension", "register_mime"),
        *("register_decoder", "setUseOptimized", "setUseOpenVX", "set_option", "setcontext", "setlocale"),
    }
)
#: Modules whose attributes are not settings of workers: spawned workers get them, or have no use for them.
_OTHER_MODULES = ("sys", "os", "torch.backends", "torch.cuda", "matplotlib", "multiprocessing")

_Statements = Iterable[ast.stmt]


class ImportedMain(NamedTuple):
    """A main module that workers import.

    Attributes:
        module: its place; None: workers are threads of the program.
        names: the names that its import binds to the same objects as in the program.
    """

    module: MainModule | None
    names: frozenset[str]

    @classmethod
    def of_this_process(cls) -> ImportedMain:
        """Return the main module for worker threads, which have all of it."""
        return cls(None, frozenset(vars(sys.modules[MAIN])))

    def has(self, value: Any) -> bool:
        """Return whether workers find a class or function by its name in the main module."""
        path = getattr(value, "__qualname__", None)
        if getattr(value, "__module__", None) not in (MAIN, IMPORTED_MAIN) or not isinstance(path, str):
            return False
        if path.partition(".")[0] not in self.names:
            return False
        found: Any = sys.modules[MAIN]
        for step in path.split("."):
            found = getattr(found, step, None)
        return found is value


def main_for(backend: BackendTraits, import_main: bool | None) -> ImportedMain | None:
    """Return the main module that workers of a backend have; None if they have none. See `find_main`."""
    if backend.are_threads:
        return ImportedMain.of_this_process()
    return find_main(import_main) if backend.imports_main else None


def find_main(import_main: bool | None) -> ImportedMain | None:
    """Return the main module to import in spawned workers; None: they do not import it.

    Args:
        import_main: the argument of a pipeline or loader. None: import it if it has a top-level guard. A warning says once
            which settings workers lack without one.

    Raises:
        ArgumentError: `import_main` is True, and the program has no main module that can be imported.
    """
    if import_main is False:
        return None
    place = _place_of_main(is_wanted=bool(import_main))
    if place is None:
        if import_main:
            raise ArgumentError(
                "import_main=True (py_import_main of a pipeline): this program has no main module that workers could "
                "import, as an interactive session or `python -c`. Put the program into a file, or leave the argument out"
            )
        return None
    main = sys.modules[MAIN]
    text = text_of(*place)
    if not (import_main or main.__name__ == IMPORTED_MAIN or text.has_guard):
        text.warn_of_settings()
        return None
    if main.__name__ == MAIN:
        sys.modules[IMPORTED_MAIN] = main  # objects from workers refer to it, as with multiprocessing
    return ImportedMain(place, text.names)


def has_unguarded_main() -> bool:
    """Return whether workers would import this program's main module if it had a guard."""
    place = _place_of_main(is_wanted=False)
    return place is not None and not text_of(*place).has_guard


def _place_of_main(*, is_wanted: bool) -> MainModule | None:
    spec = getattr(sys.modules[MAIN], "__spec__", None)
    if (name := getattr(spec, "name", None)) is not None:
        # Like multiprocessing: the module of `python -m package` or of an archive is all program.
        is_all_program = name.rpartition(".")[2] == MAIN
        return MainModule(name, None) if name != MAIN and (is_wanted or not is_all_program) else None
    path = main_file()
    return None if path is None else MainModule(None, path)


class _Text(NamedTuple):
    """The content of the source text of a main module.

    Attributes:
        has_guard: whether it has a top-level ``if __name__ == "__main__"``.
        names: the names that its import binds, and the program does not bind again.
        settings: the top-level statements that change settings of libraries, each with its line.
    """

    has_guard: bool
    names: frozenset[str]
    settings: tuple[str, ...]

    def warn_of_settings(self) -> None:
        """Warn, once for each program, of settings that spawned workers do not have."""
        if self.settings and not _warned:
            _warned.append(None)
            warn(
                f"spawned workers do not have the settings of the main module: {', '.join(self.settings)}. Workers import "
                'the main module if the code that starts the program is under `if __name__ == "__main__":`. Or change the '
                "settings in worker_setup (worker_init_fn of a DataLoader), or in a module that the source or dataset "
                "imports",
                RuntimeWarning,
            )


_warned: list[None] = []


@functools.cache
def text_of(name: str | None, path: str | None) -> _Text:
    """Read the source text of a main module. Without a text, nothing is known."""
    try:
        tree = ast.parse(_source_of(name, path))
    except (OSError, ImportError, SyntaxError, ValueError):  # compiled, removed, or in another language
        return _Text(has_guard=False, names=frozenset(), settings=())
    guards, imported = [], []
    for statement in tree.body:
        if isinstance(statement, ast.If) and _asks_for_main(statement.test):
            guards.append(statement)
            imported += statement.orelse
        else:
            imported.append(statement)
    program = [part for guard in guards for part in guard.body]
    rebound = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    names = frozenset(_bound_by(imported)) - frozenset(_bound_by(program)) - rebound
    return _Text(bool(guards), names, tuple(_settings_of(imported)))


def _source_of(name: str | None, path: str | None) -> str | bytes:
    if name is None:
        with open(str(path), "rb") as file:
            return file.read()
    loader: Any = getattr(importlib.util.find_spec(name), "loader", None)
    source = None if loader is None else loader.get_source(name)
    if source is None:
        raise ImportError(f"{name} has no source text", name=name)
    return str(source)


def _asks_for_main(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(_asks_for_main, test.values))
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = (test.left, *test.comparators)
    names = [side.id for side in sides if isinstance(side, ast.Name)]
    return names == ["__name__"] and any(isinstance(side, ast.Constant) and side.value == MAIN for side in sides)


def _run_at_once(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of statements without those inside of functions and classes."""
    for node in statements:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _run_at_once(ast.iter_child_nodes(node))


def _bound_by(statements: _Statements) -> Iterator[str]:
    for node in _run_at_once(statements):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _settings_of(statements: _Statements) -> Iterator[str]:
    """Yield the statements that change settings: of attributes of imported modules and their objects, and known calls."""
    nodes = list(_run_at_once(statements))
    imported = {
        (alias.asname or alias.name).partition(".")[0]: f"{getattr(node, 'module', None) or ''}.{alias.name}".strip(".")
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    for node in nodes:
        if isinstance(node, ast.Assign):
            paths = [_path_of(target) for target in node.targets if isinstance(target, ast.Attribute)]
        elif isinstance(node, ast.Call) and (path := _path_of(node.func)).rpartition(".")[2] in _SETTERS:
            paths = [path]
        else:
            continue
        for path in paths:
            root, _, rest = path.partition(".")
            full = f"{imported.get(root, '')}.{rest}."
            if root in imported and not full.startswith(tuple(f"{module}." for module in _OTHER_MODULES)):
                yield f"{path} in line {node.lineno}"


def _path_of(node: ast.expr) -> str:
    """Return "a.b.c" for such an expression; "" for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (path := _path_of(node.value)):
        return f"{path}.{node.attr}"
    return ""
