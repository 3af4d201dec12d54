"""``dali-like replay``: the batch of a step, from a saved state."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import cli
from tests.data.loader_cases import MANY_WORKERS

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

PROGRAM = """
import numpy as np
from dali_like import fn, pipeline_def
from dali_like.data import ComposedDataset, DataLoader, IterableDataset

class Photos:
    files = [f"photo-{number}.png" for number in range(12)]

    def __len__(self):
        return 12

    def __getitem__(self, index):
        picture = np.random.random((8, 8, 3)).astype(np.float32)
        if index == 7:
            picture[0, 0, 0] = np.nan
        return {"picture": picture, "label": index}

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(12))

photos = DataLoader(Photos(), batch_size=4, shuffle=True, num_workers=2)
stream = DataLoader(Stream(), batch_size=4)
composed = DataLoader(ComposedDataset.source(range(12)), batch_size=4)

mixture = DataLoader(
    ComposedDataset.mix([ComposedDataset.source(range(8)), ComposedDataset.source(range(8))], names=["a", "b"], block=2)
    .filter(lambda number: number < 9), batch_size=4
)

@pipeline_def(batch_size=4, num_threads=1, enable_checkpointing=True)
def pipeline(size=12):
    return fn.external_source(lambda info: np.full(2, info.idx_in_epoch), batch=False, size=size)

@pipeline_def(batch_size=2, num_threads=1, enable_checkpointing=True)
def files():
    return fn.readers.file(files=["replayed_program.py", "state.json"])

def make(size=4):
    return DataLoader(Photos(), batch_size=size, num_workers=1)

number = 3
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module ``replayed_program`` in the current folder."""
    (tmp_path / "replayed_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import replayed_program  # type: ignore[import-not-found]

    yield replayed_program
    del sys.modules["replayed_program"]


def replay(name: str, step: int, *options: str, state: str = "state.json") -> int:
    return cli.main(["replay", f"replayed_program:{name}", "--state", state, "--step", str(step), *options])


def save(loader: Any, steps: int = 1) -> list[Any]:
    """Take batches, save the state behind the given number of them, and return them all."""
    batches = []
    for batch in loader:
        batches.append(batch)
        if len(batches) == steps:
            Path("state.json").write_text(json.dumps(loader.state_dict()))
    return batches


def test_the_batch_of_a_step_is_described(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    batches = save(program.photos, steps=2)
    step = next(number for number, batch in enumerate(batches) if 7 in batch["label"])

    assert replay("photos", step, "--picture", "batch.png") == 0

    shown = capsys.readouterr().out
    labels = batches[step]["label"].tolist()
    assert f"step {step}: samples {', '.join(f'{n} (photo-{n}.png)' for n in labels)}\n" in shown
    finite = batches[step]["picture"][np.isfinite(batches[step]["picture"])]
    row = ["picture", "4", r"\(8, 8, 3\)", "float32", *(f"{float(f(finite)):.4g}" for f in (np.min, np.mean, np.max)), "1"]
    assert re.search(r"\s+".join(row), shown)
    assert Path("batch.png").read_bytes().startswith(b"\x89PNG")


def test_loaders_of_all_kinds_and_functions_that_make_them_are_replayed(
    program: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save(program.stream)
    assert replay("stream", 2) == 0
    assert "step 2: samples of an iterable dataset" in capsys.readouterr().out
    save(program.composed)
    assert replay("composed", 1) == 0
    assert "step 1: samples 4, 5, 6, 7" in capsys.readouterr().out
    save(program.mixture)
    assert replay("mixture", 0) == 0
    assert re.search(r"samples (a \d|b \d|, )+\n", capsys.readouterr().out)
    save(program.make(6))
    assert replay("make", 1, "--with", "size=6") == 0
    assert "samples 6 (photo-6.png), 7 (photo-7.png)" in capsys.readouterr().out


def test_pipelines_are_replayed(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(program.pipeline(16)) as pipe:
        save(pipe)
    assert replay("pipeline", 3, "--with", "size=16") == 0
    shown = capsys.readouterr().out
    assert "step 3: epoch 0, samples 12, 13, 14, 15" in shown
    assert re.search(r"0\s+4\s+\(2,\)\s+int64\s+12\s+13.5\s+15\s+0", shown)
    with contextlib.closing(program.files()) as pipe:
        pipe.run()
        Path("state.json").write_bytes(pipe.checkpoint())
    assert replay("files", 0) == 0
    assert "step 0: epoch 0, samples 0 (replayed_program.py), 1 (state.json)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "step", "state", "message"),
    [
        ("number", 0, "state.json", "is an int, not a loader or pipeline of this library"),
        ("photos", -1, "state.json", "--step must not be negative, but is -1"),
        ("photos", 9, "state.json", "the epoch has no batch 9"),
        ("photos", 0, "none.json", "cannot read none.json: No such file"),
        ("photos", 0, "replayed_program.py", "replayed_program.py is not JSON"),
        ("stream", 0, "state.json", "it is of a map-style dataset, and this is an iterable one"),
    ],
)
def test_wrong_arguments_are_errors(
    program: Any, name: str, step: int, state: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(program.photos)

    assert replay(name, step, state=state) == 2

    assert message in capsys.readouterr().err
