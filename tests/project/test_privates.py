"""Tests know few private attributes of the package: each is a reason why a change without effect breaks a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dali_like

TESTS = Path(__file__).parents[1]
#: The module through which other tests reach private attributes. It is not counted.
FACADE = TESTS / "internals.py"
#: Lines of all other modules; may only fall.
MOST_LINES = 48
#: Private names of Python, of notebooks, and of iterators and loaders of PyTorch, which programs use.
PYTHON = {"_replace", "_asdict", "_fields", "_make", "_exit", "_current_frames", "_repr_html_", "_repr_png_"}
PYTORCH = {
    "_IterableDataset_len_called", "_auto_collation", "_base_seed", "_dataset", "_dataset_kind", "_index_sampler",
    "_iterator", "_next_data", "_next_index", "_reset", "_sampler_iter", "_shutdown_workers", "_workers",
}  # fmt: skip


def is_private(name: str) -> bool:
    return re.match("_[^_]", name) is not None


def defined_in(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines: functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store(), value=ast.Name("self" | "cls")):
                yield node.attr


@cache
def privates_of_package() -> set[str]:
    """Return all private names that the package defines. Expressions take less time than parsing."""
    definition = re.compile(r"(?:\b(?:def|class) |\b(?:self|cls)\.|^\s*)(_[a-zA-Z]\w*)", re.MULTILINE)
    files = Path(dali_like.__file__).parent.rglob("*.py")
    return {name for file in files for name in definition.findall(file.read_text())}


def private_lines(source: str) -> list[int]:
    """Return the numbers of the lines that use private names of the package. A test may have private names of its own."""
    if not re.search(r"(?<!self)(?<!cls)\._[a-zA-Z]|^from .* _[a-zA-Z]", source, re.MULTILINE):
        return []
    tree = ast.parse(source)
    names = privates_of_package() - set(defined_in(tree)) - PYTHON
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name("self" | "cls")):
                pass
            case ast.Attribute(owner, name) if name in names:
                if name not in PYTORCH or ast.unparse(owner).endswith("pool"):
                    found.add(node.end_lineno)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == dali_like.__name__:
                found |= {node.lineno for alias in node.names if is_private(alias.name)}
    return sorted(found)


def test_few_lines_of_tests_use_private_names_and_each_has_a_reason_above_it() -> None:
    count = 0
    unexplained = []
    for path in sorted({*TESTS.rglob("*.py")} - {FACADE}):
        lines = (source := path.read_text()).splitlines()
        numbers = private_lines(source)
        count += len(numbers)
        unexplained += [f"{path}:{n}: {lines[n - 1]}" for n in numbers if "# Private: " not in lines[n - 2]]
    assert not unexplained, "reach these through tests/internals.py, or write '# Private: ' and the reason above them"
    assert count <= MOST_LINES


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("pipe._runtime.space", 1),
        ("pool._workers", 1),
        ("batches._workers", 0),
        ("point._replace(x=1)", 0),
        ("class Own:\n    def _take(self): ...\nOwn()._take()", 0),
        ("from dali_like.engine.pool.recovery import _PHASES", 1),
        ("pipe.run()", 0),
    ],
)
def test_private_names_are_those_that_the_package_defines(source: str, count: int) -> None:
    assert len(private_lines(source)) == count
