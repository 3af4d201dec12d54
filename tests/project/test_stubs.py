"""The stubs of modules that no file defines: which there are, and how they are written."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import dali_like
from tools.stubs import stubs, write

ROOT = Path(str(dali_like.__file__)).parents[1]


def test_each_module_without_a_file_has_a_stub() -> None:
    program = "import sys, dali_like.fn, dali_like.ops; print(*(m for m in sys.modules if m.startswith('dali_like.')))"
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    places = [name.replace(".", "/").removeprefix("dali_like/") for name in printed.split()]
    without_file = {place for place in places if not any((ROOT / "dali_like").glob(f"{place}*.py"))} - {
        place for place in places if (ROOT / "dali_like" / place / "__init__.py").exists()
    }

    assert "backend" in without_file
    assert without_file | {"fn", "ops"} == {path.removesuffix("/__init__.pyi") for path in stubs()}


def test_stubs_are_valid_and_describe_arguments() -> None:
    texts = stubs()
    trees = {path: ast.parse(text) for path, text in texts.items()}

    assert "def resize(" in texts["fn/__init__.pyi"]
    assert all(ast.get_docstring(tree) for tree in trees.values())


def test_writing_changes_only_stubs_that_differ_and_removes_former_ones(tmp_path: Path) -> None:
    write(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pyi")}
    changed, former = tmp_path / "fn" / "random" / "__init__.pyi", tmp_path / "fn" / "former.pyi"
    changed.write_text("")
    former.write_text("")

    write(tmp_path)

    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pyi")}
    assert {path for path in after if after[path] != before.get(path)} == {changed}
    assert changed.read_text("utf-8") == stubs()["fn/random/__init__.pyi"]
