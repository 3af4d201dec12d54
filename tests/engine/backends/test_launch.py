"""The interpreter from which spawned workers are forked: its imports, and programs that have none."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import dali_like
from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.errors import PicklingError, UnsupportedSystemError
from tests.callbacks import number

MakePipeline = Callable[..., Pipeline]

PROGRAM = """
    import pathlib, sys
    from dali_like.data import DataLoader

    class Numbers:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return index

    sys.path.append(pathlib.Path("no text, which imports skip"))
    print([batch.tolist() for batch in DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="spawn")])
"""


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path) -> None:
    somebodys = tmp_path / "somebodys"
    somebodys.mkdir()
    for name in sys.stdlib_module_names:
        (somebodys / f"{name}.py").write_text("open(f'{__name__}.ran', 'w'); raise SystemExit(3)")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    package = str(Path(dali_like.__file__).resolve().parents[1])

    result = subprocess.run(
        [sys.executable, str(program)],
        cwd=somebodys,
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (result.stdout, result.stderr) == ("[[0, 1]]\n", "")
    assert not list(somebodys.glob("*.ran"))


def test_frozen_programs_are_refused_instead_of_started_again(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    loader = DataLoader(range(2), num_workers=1, multiprocessing_context="spawn")
    for start in (make_pipeline(number, "spawn").build, loader.__iter__):
        with pytest.raises(UnsupportedSystemError) as info:
            start()

        assert str(info.value) == (
            f"spawned workers need a Python interpreter to start, and this program is frozen, so {sys.executable} is the "
            'program itself; use py_start_method="fork" or "thread" (multiprocessing_context="fork" or "thread" of a '
            "DataLoader)"
        )


@pytest.mark.parametrize("executable", [None, ""])
def test_programs_without_an_interpreter_are_refused(
    executable: str | None, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)

    with pytest.raises(UnsupportedSystemError, match=f'sys.executable is {executable!r}; use .*"fork" or "thread"'):
        make_pipeline(number, "spawn").build()


@pytest.mark.parametrize("way", ["fork", "thread"])
def test_other_workers_need_no_interpreter(way: str, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", None)
    monkeypatch.setattr(sys, "frozen", True, raising=False)

    assert make_pipeline(number, way).run()[0].at(0) == 0


class Pickled:
    """A source that notes the children of the process that pickles it. Negative ones fail."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.children: list[int] = []

    def __call__(self, info: Any) -> Any:
        return self.value

    def __reduce__(self) -> Any:
        self.children += [child.pid for child in psutil.Process().children()]
        if self.value < 0:
            raise TypeError("cannot pickle this source")
        return Pickled, (self.value,)


def test_the_interpreter_of_spawned_workers_starts_before_the_sources_are_pickled(make_pipeline: MakePipeline) -> None:
    before = {child.pid for child in psutil.Process().children()}
    source = Pickled(7)

    batch = make_pipeline(source, "spawn").run()[0]

    assert batch.at(0) == 7
    assert len({*source.children} - before) == 1


def test_a_source_that_cannot_be_pickled_leaves_no_interpreter(make_pipeline: MakePipeline) -> None:
    before = {child.pid for child in psutil.Process().children()}
    source = Pickled(-1)

    with pytest.raises(PicklingError):
        make_pipeline(source, "spawn").build()

    assert {*source.children} - before
    assert {child.pid for child in psutil.Process().children()} == before
