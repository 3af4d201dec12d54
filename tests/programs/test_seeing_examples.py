"""The examples about seeing the data find what has been planted in their data."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("PIL")

from examples import check_data, profile_workers, replay_batch


def test_broken_picture_is_found_in_the_batch_with_the_largest_loss(capsys: pytest.CaptureFixture[str]) -> None:
    step, state = replay_batch.train(replay_batch.pictures())

    picture = replay_batch.replay(step, state)

    assert f"step {step}: pictures/077.png is the least smooth" in capsys.readouterr().out
    assert picture.image.size[0] > 600


def test_profile_names_lines_of_pillow_with_their_callers(tmp_path: Path) -> None:
    profile = profile_workers.profiled(tmp_path / "profile.json", epochs=1)

    lines = profile.lines()
    assert any(line.file.startswith("PIL/") and "profile_workers.py" in line.caller for line in lines[:3])
    assert (tmp_path / "profile.json").exists()


def test_check_finds_all_problems_of_the_scans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_data.check(tmp_path / "findings.html") == 1

    out = capsys.readouterr().out
    for found in ("FileNotFoundError", "empty", "NaN", "shape other than", "the same content", "slow"):
        assert found in out
    assert "scans/0111.npy" in (tmp_path / "findings.html").read_text()
