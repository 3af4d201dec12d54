"""The speech example: the real DALI computes the same features, and a network learns words from them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")
pytest.importorskip("torch")
pytest.importorskip("soundfile")

from examples.spoken_words import WORDS, make_folders
from tests.parity.conftest import OURS, Library

pytestmark = pytest.mark.peers

ROOT = Path(__file__).resolve().parents[2]


def features_by(library: Library, folder: Path) -> list[np.ndarray]:
    """The features of one batch, from the example with the import of this library."""
    text = (ROOT / "examples" / "speech_pipeline.py").read_text(encoding="utf-8")
    imports = "from dali_like import fn, pipeline_def, types\n"
    assert text.count(imports) == text.count("dali_like import") == 1
    module = ModuleType("speech_pipeline")
    if library is not OURS:
        text = text.replace(imports, imports.replace("dali_like", "nvidia.dali"))
    exec(compile(text, "speech_pipeline.py", "exec"), module.__dict__)
    pipe: Any = module.__dict__["log_mel"](str(folder), False, batch_size=len(WORDS), num_threads=1, device_id=None)
    pipe.build()
    try:
        features, _ = pipe.run()
        return [np.array(features.at(i)) for i in range(len(WORDS))]
    finally:
        if hasattr(pipe, "close"):
            pipe.close()


def test_features(tmp_path: Path, dali: Library) -> None:
    folder = make_folders(tmp_path, 1, seed=4)

    for one, other in zip(features_by(OURS, folder), features_by(dali, folder), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_speech_example_learns(tmp_path: Path) -> None:
    """With a loss below the 2.48 of guesses, and words of other voices; guesses recognize one in twelve."""
    options = ["--epochs", "3", "--workers", "1", "--per-word", "10", "--batch-size", "16", "--scratch", str(tmp_path)]
    command = [sys.executable, "-W", "error", "-m", "examples.speech_training", *options]

    finished = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (finished.returncode, finished.stderr) == (0, "")
    last = finished.stdout.splitlines()[-1].split()
    assert float(last[3].rstrip(",")) < 2
    assert float(last[5]) > 0.3
