"""The measures of `tools.shape`, on a package of a few lines; and the names of classes of dali_like."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

import dali_like
from tools import shape

#: Classes of one meaning, for several frameworks, or as DALI and as PyTorch name them.
ALIKE = {
    "BatchSampler",
    "Checkpoint",
    "Compose",
    "DALIClassificationIterator",
    "DALIGenericIterator",
    "DALIRaggedIterator",
    "DataLoader",
    "DistributedSampler",
    "ExternalSource",
    "RandomSampler",
    "Reader",
    "Stream",
}
#: Public names of DALI or of this library that another class has, too. No further ones, please.
KNOWN = {
    "Batch",
    "Counts",
    "Device",
    "Draws",
    "Elementwise",
    "Frame",
    "Item",
    "Kind",
    "Packer",
    "Padded",
    "Part",
    "Samples",
    "Task",
}

#: Files of a package: the test of each file gives its reason.
FILES = {
    "__init__.py": "",
    "first.py": '''
        """A module."""
        from __future__ import annotations

        from typing import TYPE_CHECKING

        from package import second

        if TYPE_CHECKING:
            from package.typed import Window

        def _alone():
            """A docstring."""

            return 1

        def _shared():
            return _shared

        def _callback():
            return 2

        atexit.register(_callback)

        def public(start_method):
            _shared()
            return _alone(), start_method == "fork"

        def other(start_method):
            _shared()
            return start_method in _PROCESSES

        _PROCESSES = ("fork", "spawn")
    ''',
    "second.py": """
        import importlib

        def _alone():
            return importlib.import_module("package.first"), _alone

        class Window:
            def of(self, method):
                match method:
                    case "ray":
                        return _alone()
                return method == "Fork"
    """,
    "typed.py": """
        import package.first

        class _Window:
            place = "fork"
    """,
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> shape.Shape:
    package = tmp_path_factory.mktemp("root") / "package"
    package.mkdir()
    for name, text in FILES.items():
        (package / name).write_text(textwrap.dedent(text))
    return shape.shape_of(package)


def test_lines_of_functions_exclude_docstrings_and_empty_lines(measured: shape.Shape) -> None:
    by_name = {place.split()[1]: count for place, count in measured.functions.items() if "first" in place}

    assert by_name == {"_alone": 2, "_shared": 2, "_callback": 2, "public": 3, "other": 3}


def test_private_functions_with_one_caller_are_counted_by_module(measured: shape.Shape) -> None:
    assert [(place.split(":")[0].rpartition("/")[2], place.split()[1]) for place in measured.one_caller] == [
        ("first.py", "_alone"),
        ("first.py", "_callback"),
        ("second.py", "_alone"),
    ]
    assert [place.split()[1] for place in measured.passed_on] == ["_callback"]
    assert measured.private == 4


def test_names_of_several_modules_are_found_without_regard_to_leading_underscores(measured: shape.Shape) -> None:
    assert measured.classes == {"Window": ["package/second.py", "package/typed.py"]}
    assert measured.helpers == {"_alone": ["package/first.py", "package/second.py"]}


def test_circles_of_imports_grow_with_the_kinds_of_imports(measured: shape.Shape) -> None:
    pair, trio = ["package.first", "package.second"], ["package.first", "package.second", "package.typed"]

    assert measured.circles == {"at module level": [], "and in functions": [pair], "and of types": [trio]}


def test_comparisons_with_start_methods_are_found_in_collections_and_cases(measured: shape.Shape) -> None:
    assert measured.comparisons == ["package/first.py:27", "package/first.py:31", "package/second.py:10"]


def test_circles_are_strongly_connected_components_largest_first() -> None:
    edges = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"e"}, "e": {"c"}, "f": {"a"}, "g": set[str]()}

    assert shape.circles_in(edges) == [["c", "d", "e"], ["a", "b"]]


def test_the_report_shows_places_only_on_request(measured: shape.Shape) -> None:
    assert not any(line.startswith(" ") for line in shape.report(measured))
    assert "    package/second.py:10" in [*shape.report(measured, shows_places=True)]


def test_a_class_name_has_one_meaning() -> None:
    trees = {str(path): ast.parse(path.read_bytes()) for path in Path(dali_like.__file__).parent.rglob("*.py")}

    assert {*shape.repeated_classes(trees)} <= ALIKE | KNOWN
