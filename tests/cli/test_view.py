"""``dali-like view`` and ``dali-like top``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, cli
from dali_like.cli import top
from dali_like.engine.worker.sampling import StackCounts
from dali_like.monitor.profile.profile import Profile
from dali_like.monitor.trace import chrome
from dali_like.monitor.trace.trace_records import Records
from tests.conftest import DEADLINE_S

MakePipeline = Callable[..., Pipeline]


@contextlib.contextmanager
def viewing(*arguments: str) -> Iterator[str]:
    """Run ``dali-like view``, yield the address that it prints, and end it with Ctrl-C, which must give status 0."""
    command = [sys.executable, "-m", "dali_like", "view", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            yield program.stdout.readline()
            program.send_signal(signal.SIGINT)
            assert program.wait(DEADLINE_S) == 0
        finally:
            program.kill()


def get(url: str, name: str) -> Any:
    """Fetch a resource of the page at `url`, with the page's token."""
    page, _, token = url.strip().partition("#token=")
    request = urllib.request.Request(page + name, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def test_a_trace_is_served_until_ctrl_c(tmp_path: Path) -> None:
    chrome.write(Records(0, 7), tmp_path / "run.json")
    with viewing(str(tmp_path / "run.json")) as url:
        assert get(url, "about.json") == {"kind": "trace", "name": "run.json"}
        assert get(url, "trace.json") == chrome.as_json(Records(0, 7))


def test_a_profile_is_served(tmp_path: Path) -> None:
    profile = Profile()
    profile.add("worker 0", StackCounts())
    profile.write(tmp_path / "profile.json")
    with viewing(str(tmp_path / "profile.json")) as url:
        assert get(url, "about.json") == {"kind": "profile", "name": "profile.json"}
        assert get(url, "profile.json") == profile.as_json()


def test_a_running_pipeline_is_served(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.array(0), "serial")
    pipe.publish("train")
    with viewing("--pid", str(os.getpid())) as url:
        assert get(url, "about.json") == {"kind": "live"}
        [shown] = get(url, "live.json")["pipelines"]
        assert (shown["pid"], shown["name"]) == (os.getpid(), "train")
        assert shown["memory"]["bytes"] >= shown["memory"]["main_bytes"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.json"], "nothing.json: No such file"),
        ([__file__], "test_view.py is not a trace of dali_like"),
        ([sys.executable], f"{sys.executable} is not a trace of dali_like: it is not text\n"),
        (["--pid", "1"], "process 1 does not show a pipeline"),
    ],
)
def test_view_without_anything_to_show_is_an_error_with_the_reason(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["view", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_port_that_is_taken_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chrome.write(Records(0, 7), tmp_path / "run.json")
    with viewing(str(tmp_path / "run.json")) as url:
        [port] = re.findall(r":(\d+)/", url)
        assert cli.main(["view", str(tmp_path / "run.json"), "--port", port]) == 2
    assert f"cannot listen on port {port}: Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "99999999"])
def test_ports_that_there_are_not_are_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["view", f"--port={port}"])

    assert "expected a TCP port" in capsys.readouterr().err


# top


def snapshot(at_s: float, **changes: Any) -> dict[str, Any]:
    return {
        "name": "train",
        "pid": 4711,
        "at_ns": round(at_s * 1e9),
        "age_s": 0.1,
        "batches": 100 * at_s,
        "samples": 1600 * at_s,
        "epochs": 3,
        "errors": 0,
        "restarts": 0,
        "replaced": 0,
        "wait_s": 0.25 * at_s,
        "bytes": 3 << 20,
        "ready": 2,
        "slots_in_use": 5,
        "workers": [{"number": 0, "pid": 4712, "busy_s": 0.5 * at_s, "on_task_s": 0.021}],
        "slowest": [{"source": "photos [x]", "sample": 77, "epoch": 1, "duration_s": 0.0125}],
        "rank": 0,
        "num_ranks": 1,
        "calls": [{"source": "photos [x]", "unit": "sample", "counts": [1, 0, 8], "edges_s": [1e-3, 2e-3, 3e-3, 4e-3]}],
        "operators": [
            {"name": "fn.decoders.image_0", "place": "workers", "seconds": 0.3 * at_s},
            {"name": "fn.resize_1", "place": "threads", "seconds": 0.1 * at_s},
        ],
        "recent": {
            "seconds": 15.0,
            "batches": 1500,
            "wait_s": 0.0025,
            "work_s": 0.0075,
            "wait_share": 0.25,
            "diagnosis": {"bottleneck": "workers", "sentence": "Too few.", "advice": "More workers.", "expected": ""},
            "stages": [
                {"name": "fn.decoders.image_0", "wait_s": 0.002, "share": 0.8},
                {"name": "photos [x]", "wait_s": 0.0005, "share": 0.2},
            ],
        },
        **changes,
    }


def shown(before: dict[str, Any], now: dict[str, Any]) -> str:
    console = pytest.importorskip("rich.console").Console(width=120, no_color=True)
    with console.capture() as capture:
        console.print(top.screen(before, now))
    return str(capture.get())


def test_top_shows_the_rates_between_two_moments() -> None:
    text = shown(snapshot(1), snapshot(3))
    assert "1,600 samples/s" in text
    assert "100 batches/s" in text
    assert re.search(r"waiting .* 25% +of the loop's time", text)
    assert re.search(r"0 +4712 .* 50% +21 ms", text)
    assert re.search(r"photos \[x\] +12\.5 ms +1 +77", text)
    assert "no errors" in text
    assert "Bottleneck: workers" in text
    assert "More workers." in text
    assert "for fn.decoders.image_0 80%, photos [x] 20%" in text
    assert re.search(r"fn\.decoders\.image_0 .* 75% +workers", text)
    assert re.search(r"fn\.resize_1 .* 25% +threads", text)
    assert re.search(r"photos \[x\] +1\.0 ms +▁ █ +4\.0 ms", text)


def of_rank(rank: int, wait_s: float, **changes: Any) -> dict[str, Any]:
    made = snapshot(1, rank=rank, num_ranks=3, pid=4711 + rank, **changes)
    share = wait_s / 0.01
    return {**made, "recent": {**made["recent"], "wait_s": wait_s, "wait_share": share}}


def test_top_lists_several_pipelines_with_the_rank_that_holds_the_job_up() -> None:
    console = pytest.importorskip("rich.console").Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(top.overview([of_rank(2, 0.004), of_rank(0, 0.0001), of_rank(1, 0.0001)]))
    text = str(capture.get())

    assert "Rank 2, stage fn.decoders.image_0, holds the job up: it waits 4.0 ms a batch for data, 40% of its time" in text
    lines = [line for line in text.splitlines() if "of 3" in line]
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    assert re.search(r"2 of 3 +train +4713 +workers +40% +4\.0 ms +fn\.decoders\.image_0 80%", lines[2])


def test_top_shows_the_state_before_there_are_rates() -> None:
    text = shown(snapshot(1), snapshot(1))
    assert "2 ready, 5 in use" in text
    assert "samples/s" not in text


def test_top_shows_a_task_longer_than_the_time_between_two_moments_as_busy_all_the_time() -> None:
    def moment(at_s: float, busy_s: float) -> dict[str, Any]:
        return snapshot(at_s, workers=[{"number": 0, "pid": 4712, "busy_s": busy_s, "on_task_s": 0.0}])

    assert re.search(r"0 +4712 .* 100%", shown(moment(1, 0.0), moment(2, 1.57)))
    assert re.search(r"0 +4712 .* 0%", shown(moment(1, 1.0), moment(2, 0.9)))


def test_bars_of_top_show_their_share_without_color() -> None:
    bars = re.findall(r"(━+)(·+) +(\d+)%", shown(snapshot(1), snapshot(3)))

    assert [int(share) for _, _, share in bars] == [25, 50, 75, 25]
    assert [(len(filled), len(rest)) for filled, rest, _ in bars] == [(6, 18), (12, 12), (18, 6), (6, 18)]


@pytest.mark.parametrize("count", [1, 2])
def test_top_prints_screen_after_screen_into_a_pipe(count: int, make_pipeline: MakePipeline) -> None:
    pytest.importorskip("rich")
    for i in range(count):
        make_pipeline(lambda info: np.array(0), "serial").publish(f"train {i}")
    command = [sys.executable, "-m", "dali_like", "top", "--pid", str(os.getpid())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "120"}

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = iter(process.stdout)
        screens = [next(line for line in lines if "train 0" in line) for _ in range(2)]
        process.stdout.close()  # as head does
        errors = process.stderr.read()

    assert len(screens) == 2
    assert errors == ""


def test_top_shows_trouble_and_loops_that_stand_still() -> None:
    text = shown(snapshot(1), snapshot(2, restarts=2, replaced=1, age_s=12.4))
    assert "2 restarts of workers, 1 samples replaced" in text
    assert "no batch requested for 12 s" in text


def test_texts_of_other_programs_move_no_cursor() -> None:
    assert "\x1b" not in shown(snapshot(1), snapshot(2, name="\x1b[2Jtrain"))


def test_top_prints_it_once(make_pipeline: MakePipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    pipe = make_pipeline(lambda info: np.array(0), "serial")
    pipe.publish("train")
    assert cli.main(["top", "--once", "--pid", str(os.getpid())]) == 0
    assert "train, process" in capsys.readouterr().out


def test_top_lists_all_pipelines_once(make_pipeline: MakePipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    pipes = [make_pipeline(lambda info: np.array(0), "serial") for _ in range(2)]
    for name, pipe in zip(("train", "valid"), pipes, strict=True):
        pipe.publish(name)

    assert cli.main(["top", "--once", "--pid", str(os.getpid())]) == 0
    out = capsys.readouterr().out
    assert "train" in out
    assert "valid" in out
    assert "holds the job up" not in out


def test_without_rich_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert cli.main(["top"]) == 2
    assert "pip install 'rich>=13'" in capsys.readouterr().err
