"""Checks of the layout that import-linter cannot make: lazy imports by name, and names of modules."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dali_like

PACKAGE = Path(str(dali_like.__file__)).parent
FILES = sorted(PACKAGE.rglob("*.py"))

#: `compat` and `operators` fill the modules `fn` and `ops`, whose names
#: they know. The last one is the name of a logger.
UPWARDS = {
    ("compat", "fn"),
    ("compat", "ops"),
    ("operators", "fn"),
    ("operators", "ops"),
    ("sources", "remote"),
}
#: Names that DALI gives to several modules: of `fn` and `ops`, and of plugins. `inputs` are of `fn`, and of datasets.
SHARED_NAMES = {
    "__init__",
    "__main__",
    "_external_source",
    "_video_input",
    "fn",
    "experimental",
    "inputs",
    "nodes",
    "pytorch",
}


def layers() -> dict[str, int]:
    """Return the number of each layer, counted from the top, as the contract of import-linter has them."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    return {name: i for i, layer in enumerate(contract["layers"]) for name in re.split(r"\s*[|:]\s*", layer)}


def lazy_imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file names in strings: for `importlib.import_module`, and for `lazy_names.importer`."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"dali_like(\.\w+)+", node.value):
            yield node.value


def layer_of(module: str) -> str:
    return module.split(".")[1]


def test_lazy_imports_point_downwards() -> None:
    level = layers()
    above = {
        (layer, layer_of(module))
        for path in FILES
        if path.parent != PACKAGE or path.stem in ("types", "errors")
        for layer in [path.relative_to(PACKAGE).with_suffix("").parts[0]]
        for module in lazy_imports(path)
        if level[layer_of(module)] < level[layer]
    }

    assert above == UPWARDS


def test_no_two_modules_have_one_name() -> None:
    names = Counter(path.stem for path in FILES)

    assert {name for name, count in names.items() if count > 1} - SHARED_NAMES == set()


@pytest.mark.parametrize("folder", sorted(path.parent for path in PACKAGE.rglob("__init__.py")), ids=lambda path: path.name)
def test_every_folder_has_a_docstring(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))
