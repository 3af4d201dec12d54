"""A module has a test file of its name, or the table at the end of CONTRIBUTING.md names the test file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dali_like

ROOT = Path(__file__).resolve().parents[2]
HEADING = "## Tests of modules without a test file of their own"

#: Names of modules; a leading underscore does not belong to the name of the test file.
MODULES = {path.stem for path in Path(dali_like.__file__).parent.rglob("*.py")} - {"__init__", "__main__"}
WITH_OWN_FILE = {path.stem.removeprefix("test_") for path in (ROOT / "tests").rglob("test_*.py")}


def rows() -> Iterator[tuple[str, list[str]]]:
    """Yield each test file of the table, relative to ``tests/``, with its modules."""
    _, _, text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition(HEADING)
    for folder, cell in re.findall(r"^\| `([\w/]+)` \| (.*) \|$", text, re.MULTILINE):
        for entry in cell.split("; "):
            file, _, modules = entry.partition(": ")
            yield f"{folder}/{file.strip('`')}", [name.strip("`") for name in modules.split(", ")]


def test_each_module_has_a_test_file_of_its_name_or_is_in_the_table() -> None:
    listed = {module for _, modules in rows() for module in modules}

    assert {module for module in MODULES if module.lstrip("_") not in WITH_OWN_FILE} - listed == set()


def test_the_table_lists_existing_test_files_and_each_module_once() -> None:
    listed = Counter(module for _, modules in rows() for module in modules)

    assert [file for file, _ in rows() if not (ROOT / "tests" / file).is_file()] == []
    assert [module for module, count in listed.items() if count > 1] == []
    assert {*listed} - MODULES == set(), "these modules do not exist"
    assert {module for module in listed if module.lstrip("_") in WITH_OWN_FILE} == set(), "these have a test file"
