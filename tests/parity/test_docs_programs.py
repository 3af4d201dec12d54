"""The programs in the documentation that need PyTorch run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import DOCS, FROM_PYTORCH, README, run_program_of

pytest.importorskip("torch")

pytestmark = pytest.mark.peers


@pytest.mark.parametrize(
    "document",
    [
        README,
        FROM_PYTORCH,
        DOCS / "coming-from-torchdata.md",
        DOCS / "train-on-a-mesh.md",
        DOCS / "how-to" / "image-folders.md",
        DOCS / "how-to" / "pytorch.md",
    ],
    ids=lambda path: path.stem,
)
def test_programs_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_program_of(document, "python torch")
