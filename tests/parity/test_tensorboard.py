"""The recipe for TensorBoard in docs/statistics.md, with the real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.documents import DOCS, program_of

STATISTICS = DOCS / "statistics.md"


def test_the_recipe_writes_scalars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    events: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    names: dict[str, Any] = {"__name__": "statistics", "folder": str(tmp_path)}
    for language in ("python", "python tensorboard"):
        exec(compile(program_of(STATISTICS, language), STATISTICS, "exec"), names)
    with names["pipe"]:
        for _ in range(45):
            names["pipe"].run()
    names["writer"].close()
    names.clear()

    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    assert "data/wait_share" in read.Tags()["scalars"]
    assert [event.step for event in read.Scalars("data/batches_per_s")] == [120, 140]
