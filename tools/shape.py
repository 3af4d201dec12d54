"""Measure the shape of the code: figures that show whether a change makes it simpler.

A figure is a guide for readers of a change, not a grade: a short function, a repeated name or a circle may be right.

Run ``python -m tools.shape`` for the package, ``python -m tools.shape PATH ...`` for other folders of Python files, and
``--list`` for the places that are counted.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: Names of start methods and contexts. Code that compares with one asks for a property of a backend by its name.
START_METHODS = ("fork", "spawn", "forkserver", "thread", "ray")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Shape:
    """Figures of the code of some files.

    Attributes:
        lines: of each file.
        functions: lines of each function, by its place, without docstrings and empty lines.
        one_caller: places of private functions that only one other function, or the module's own level, uses.
        passed_on: those of them that are used as a value, such as callbacks: they cannot stand where they are used.
        private: the number of all private functions.
        classes: modules that define each class name which several modules define; leading underscores do not count.
        helpers: the same for private functions at module level.
        circles: modules that import each other, largest circle first, by the imports that are counted.
        comparisons: places that compare a value with the name of a start method.
    """

    lines: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    one_caller: list[str] = field(default_factory=list)
    passed_on: list[str] = field(default_factory=list)
    private: int = 0
    classes: dict[str, list[str]] = field(default_factory=dict)
    helpers: dict[str, list[str]] = field(default_factory=dict)
    circles: dict[str, list[list[str]]] = field(default_factory=dict)
    comparisons: list[str] = field(default_factory=list)


def shape_of(root: Path) -> Shape:
    """Measure all Python files below a folder, which is a package."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(root.rglob("*.py"))}
    shape = Shape()
    users = {path: _users_by_name(tree) for path, tree in trees.items()}
    called = {path: {*_called_names(tree)} for path, tree in trees.items()}
    defined = {path: {function.name for function in _functions_in(tree)} for path, tree in trees.items()}
    helpers: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        place = str(path.relative_to(root.parent))
        lines = path.read_text("utf-8").splitlines()
        shape.lines[place] = len(lines)
        for function in _functions_in(tree):
            name = f"{place}:{function.lineno} {function.name}"
            shape.functions[name] = _lines_of(function, lines)
            if _is_private(function.name):
                shape.private += 1
                # A name that another module defines, too, is that module's own there.
                near = [each for each in users if each == path or function.name not in defined[each]]
                if sum(len(users[each].get(function.name, set()) - {function.name}) for each in near) == 1:
                    shape.one_caller.append(name)
                    if not (_is_property(function) or any(function.name in called[each] for each in near)):
                        shape.passed_on.append(name)
        for node in tree.body:
            if isinstance(node, _Function) and _is_private(node.name):
                helpers[node.name].append(place)
        shape.comparisons += [f"{place}:{line}" for line in sorted(start_methods_compared(tree))]
    shape.classes = repeated_classes({str(path.relative_to(root.parent)): tree for path, tree in trees.items()})
    shape.helpers = {name: places for name, places in helpers.items() if len(places) > 1}
    shape.circles = _circles(root, trees)
    return shape


def repeated_classes(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Return the class names that several modules define, each with these modules. Leading underscores do not count."""
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for place, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].append(place)
    return {name: places for name, places in classes.items() if len(places) > 1}


def _functions_in(tree: ast.AST) -> Iterator[_Function]:
    return (node for node in ast.walk(tree) if isinstance(node, _Function))


def _lines_of(function: _Function, lines: Sequence[str]) -> int:
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    counted = {*range(first, (function.end_lineno or first) + 1)}
    if ast.get_docstring(function, clean=False) is not None:
        counted -= {*range(function.body[0].lineno, (function.body[0].end_lineno or 0) + 1)}
    return sum(bool(lines[number - 1].strip()) for number in counted)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _users_by_name(tree: ast.Module) -> dict[str, set[str]]:
    """Return the functions that use each name, each as its name; "" is the level of the module and of classes."""
    users: defaultdict[str, set[str]] = defaultdict(set)

    def visit(node: ast.AST, user: str) -> None:
        if isinstance(node, ast.Name):
            users[node.id].add(user)
        elif isinstance(node, ast.Attribute):
            users[node.attr].add(user)
        below = node.name if isinstance(node, _Function) else user
        for child in ast.iter_child_nodes(node):
            visit(child, below)

    visit(tree, "")
    return users


def _called_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.func.id if isinstance(node.func, ast.Name) else node.func.attr


def _is_property(function: _Function) -> bool:
    return any(ast.unparse(decorator).endswith("property") for decorator in function.decorator_list)


def start_methods_compared(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of comparisons with names of start methods, also in collections, and of `match` cases."""
    named = {name for node in ast.walk(tree) for name in _tuples_of_methods(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if any(_names_method(side, named) for side in [node.left, *node.comparators]):
                yield node.lineno
        elif isinstance(node, ast.MatchValue) and _names_method(node.value, named):
            yield node.value.lineno


def _tuples_of_methods(node: ast.AST) -> Iterator[str]:
    """Yield the variable that a statement sets to a collection of names of start methods."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.Set | ast.List) and _names_method(node.value):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _names_method(node: ast.AST, variables: Iterable[str] = ()) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return bool(node.elts) and all(_names_method(each) for each in node.elts)
    return (isinstance(node, ast.Constant) and node.value in START_METHODS) or (
        isinstance(node, ast.Name) and node.id in variables
    )


def _circles(root: Path, trees: Mapping[Path, ast.Module]) -> dict[str, list[list[str]]]:
    modules = {_module_name(root, path): tree for path, tree in trees.items()}
    kinds = {
        "at module level": ("module",),
        "and in functions": ("module", "lazy"),
        "and of types": ("module", "lazy", "types"),
    }
    found = {name: list(_imports(name, tree, modules)) for name, tree in modules.items()}
    return {
        text: circles_in({name: {module for kind, module in found[name] if kind in counted} for name in found})
        for text, counted in kinds.items()
    }


def _module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(importer: str, tree: ast.Module, modules: Mapping[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Yield the modules that a module imports, each with the kind of the import: "module", "lazy" or "types"."""
    for kind, node in _import_nodes(tree.body, "module"):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call):  # import_module("name")
            names = [
                argument.value
                for argument in node.args[:1]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            ]
        else:
            names = [
                full if (full := f"{node.module}.{alias.name}") in modules else str(node.module) for alias in node.names
            ]
        yield from ((kind, name) for name in names if name in modules and name != importer)


def _import_nodes(nodes: Iterable[ast.AST], kind: str) -> Iterator[tuple[str, ast.Import | ast.ImportFrom | ast.Call]]:
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield kind, node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "importlib.import_module"):
            yield "lazy", node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _import_nodes(node.body, "types")
            yield from _import_nodes(node.orelse, kind)
        else:
            below = "lazy" if isinstance(node, _Function | ast.Lambda) else kind
            yield from _import_nodes(ast.iter_child_nodes(node), below)


def circles_in(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node, largest first, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in edges[node]:
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            start = stack.index(node)
            found.append(sorted(stack[start:]))
            del stack[start:]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + len(edges))
    try:
        for node in edges:
            if node not in order:
                visit(node)
    finally:
        sys.setrecursionlimit(limit)
    return sorted((circle for circle in found if len(circle) > 1), key=lambda circle: (-len(circle), circle))


def report(shape: Shape, *, shows_places: bool = False) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        shape: of the files.
        shows_places: whether the counted places follow each figure.
    """
    lines, functions = [*shape.lines.values()], [*shape.functions.values()]
    yield f"files: {len(lines)}; lines {sum(lines)}, {_spread(lines)} each"
    long = [f"{place} ({count} lines)" for place, count in shape.functions.items() if count > 50]
    yield f"functions: {len(functions)}; lines {_spread(functions)} each; more than 50 lines: {len(long)}"
    if shows_places:
        yield from _indented(long)
    yield (
        f"private functions: {shape.private}; used in one place: {len(shape.one_caller)}, "
        f"{len(shape.passed_on)} of them as a value"
    )
    if shows_places:
        yield from _indented(shape.one_caller)
    for what, names in {"class names": shape.classes, "names of private functions": shape.helpers}.items():
        yield f"{what} of several modules: {len(names)}"
        if shows_places:
            most_first = sorted(names.items(), key=lambda item: (-len(item[1]), item[0]))
            yield from _indented(f"{name} {len(places)}: {', '.join(places)}" for name, places in most_first)
    for kind, circles in shape.circles.items():
        yield f"circles of imports {kind}: {len(circles)}; modules {', '.join(str(len(each)) for each in circles) or 0}"
        if shows_places:
            yield from _indented(" ".join(circle) for circle in circles)
    files = {re.sub(r":\d+$", "", place) for place in shape.comparisons}
    yield f"comparisons with names of start methods: {len(shape.comparisons)} in {len(files)} files"
    if shows_places:
        yield from _indented(shape.comparisons)


def _spread(numbers: Sequence[int]) -> str:
    return f"{statistics.mean(numbers or [0]):.1f} on average, median {statistics.median(numbers or [0]):g}"


def _indented(texts: Iterable[str]) -> Iterator[str]:
    return (f"    {text}" for text in texts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of folders; by default, of the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, default=[Path("dali_like")])
    parser.add_argument("--list", action="store_true", help="list the places")
    options = parser.parse_args(arguments)
    for path in options.paths:
        print(f"{path}:")
        for line in report(shape_of(path.resolve()), shows_places=options.list):
            print(f"  {line}")


if __name__ == "__main__":
    main()
