"""The main module of the program in spawned workers: what it changes in other modules, with and without its import."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

import dali_like
from dali_like import Pipeline
from dali_like.engine.worker.patched_names import advice, patched_name
from dali_like.errors import ArgumentClashError, ArgumentError, PipelineStateError
from dali_like.sources import main_module
from dali_like.sources.main_module import find_main, refuse_while_importing

PROGRAM = """
    import sys
    import numpy as np
    import helpers
    from dali_like import fn, pipeline_def

    helpers.number = 7  # what a module of the program does not have by itself

    def source(info):
        return np.int64(helpers.number + info.idx_in_epoch)

    @pipeline_def(batch_size=2, py_num_workers=1, py_start_method="spawn", py_import_main="import" in sys.argv)
    def pipeline():
        return fn.external_source(source, batch=False, parallel=True)

    def main():
        pipe = pipeline()
        try:
            print(pipe.run()[0].as_array().tolist(), flush=True)
        finally:
            pipe.close()

    if __name__ == "__main__" or "unguarded" in sys.argv:
        main()
"""


def run(folder: Path, *arguments: str, flags: tuple[str, ...] = ("program.py",)) -> subprocess.CompletedProcess[str]:
    (folder / "helpers.py").write_text("")
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    package = str(Path(dali_like.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *flags, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_the_main_module_has_added_is_missing_without_it(tmp_path: Path) -> None:
    result = run(tmp_path)

    assert result.returncode == 1
    assert "AttributeError: module 'helpers' has no attribute 'number'" in result.stderr
    assert "The program has helpers.number, and spawned workers do not" in result.stderr
    assert "pass py_import_main=True" in result.stderr


@pytest.mark.parametrize("flags", [("program.py",), ("-m", "program")], ids=["file", "module"])
def test_what_the_main_module_has_added_is_there_with_it(flags: tuple[str, ...], tmp_path: Path) -> None:
    result = run(tmp_path, "import", flags=flags)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "[7, 8]\n"


def test_a_main_module_without_a_guard_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path, "import", "unguarded")

    assert result.returncode == 1
    assert "the main module starts workers when it is imported" in result.stderr
    assert 'if __name__ == "__main__":' in result.stderr


def test_pipelines_within_the_import_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_module, "_importing", [None])

    with pytest.raises(PipelineStateError, match="the main module starts workers"):
        refuse_while_importing()


def test_programs_without_a_main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))

    with pytest.raises(ArgumentError, match="no main module that workers could import"):
        find_main()


def test_ray_cannot_import_the_main_module() -> None:
    with pytest.raises(ArgumentClashError, match="py_import_main is for spawned processes"):
        Pipeline(2, py_start_method="ray", py_import_main=True)


def test_a_forkserver_is_spawned() -> None:
    assert Pipeline(2, py_start_method="forkserver").py_start_method == "spawn"


# Names that the main process has


class Patched:
    added = 1


def attribute_error(value: Any, name: str) -> AttributeError:
    with pytest.raises(AttributeError) as caught:
        getattr(value, name)
    return caught.value


def test_names_that_this_process_has() -> None:
    bare = type("Patched", (), {})
    texts = [attribute_error(bare, "added"), attribute_error(bare(), "added")]
    texts += [AttributeError("module 'os' has no attribute 'getpid'")]
    texts += [AttributeError("Can't get attribute 'getpid' on <module 'os' from 'os.py'>")]

    ours = f"{__name__}.Patched.added"
    assert [patched_name(error) for error in texts] == [ours, ours, "os.getpid", "os.getpid"]
    assert "The program has os.getpid" in str(advice(texts[2]))


@pytest.mark.parametrize(
    "error",
    [
        attribute_error(os, "no_such_name"),
        attribute_error(Patched(), "no_such_name"),
        AttributeError("something else"),
        KeyError("module 'os' has no attribute 'getpid'"),
    ],
    ids=["module", "class", "text", "type"],
)
def test_other_errors_get_no_advice(error: Exception) -> None:
    assert advice(error) is None
