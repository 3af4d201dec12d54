"""``tools.make_all`` makes all parts, and its summary and exit status tell which have failed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tools import make_all

MAKEFILE = """
good: ; @echo made good
bad: ; @echo 'FAILED tests/a/test_b.py::test_c - AssertionError'; exit 3
impossible: ; @echo 'SKIPPED PART: there is no browser'
slow: ; @echo begun; until [ -e made ]; do sleep 0.01; done; echo ended; exit 3
last: ; @touch made
named: ; @echo "with $(ARGS)"
left: ; @sleep 300 & echo $$! > pid; echo left
"""


@pytest.fixture(autouse=True)
def _makefile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAKEFLAGS", raising=False)


def without_times(text: str) -> list[str]:
    """Return the lines of a summary: runs of spaces and the time are left out."""
    return [re.sub(r"(\S) +", r"\1 ", re.sub(r" +\d+:\d\d$", "", line)) for line in text.splitlines()]


def test_parts_behind_a_failed_one_are_made_and_the_summary_names_its_failed_tests(
    capfd: pytest.CaptureFixture[str],
) -> None:
    status = make_all.main(["good", "bad", "named ARGS='--seconds 20'", "impossible"])

    output, _, summary = capfd.readouterr().out.partition("\n\n")
    assert status == 1
    assert "made good" in output
    assert "with --seconds 20" in output
    assert without_times(summary) == [
        "good ok",
        "bad FAILED",
        "    FAILED tests/a/test_b.py::test_c - AssertionError",
        "named ARGS='--seconds 20' ok",
        "impossible skipped",
        "    there is no browser",
        "1 of 4 parts failed",
    ]


def test_without_a_failed_part_the_status_is_0(capfd: pytest.CaptureFixture[str]) -> None:
    assert make_all.main(["good", "impossible"]) == 0
    assert capfd.readouterr().out.endswith("none of 2 parts failed\n")


def test_a_part_that_needs_a_program_is_skipped_with_a_reason_where_the_program_is_missing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    status = make_all.main(["--if-installed", "no-such-program", "bad", "--if-installed", "make", "good"])

    _, _, summary = capfd.readouterr().out.partition("\n\n")
    assert status == 0
    assert without_times(summary) == [
        "bad skipped",
        "    no-such-program is not installed",
        "good ok",
        "none of 2 parts failed",
    ]


def test_the_part_beside_the_others_shows_its_output_in_one_piece_and_is_the_first_of_the_summary(
    capfd: pytest.CaptureFixture[str],
) -> None:
    status = make_all.main(["--beside", "slow", "good", "last"])  # it ends when the last one has run

    output, _, summary = capfd.readouterr().out.rpartition("\n\n")
    assert status == 1
    assert output.index("made good") < output.index("begun\nended\n")
    assert without_times(summary) == ["slow FAILED", "good ok", "last ok", "1 of 3 parts failed"]


def test_a_process_that_a_part_leaves_with_its_output_stops_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        status = make_all.main(["left", "good"])
        os.kill(int((tmp_path / "pid").read_text()), 0)  # it still runs
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    assert status == 0
    assert "made good" in capfd.readouterr().out
