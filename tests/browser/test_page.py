"""The page of ``dali-like view`` in a browser."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dali_like.errors import NotRunningError
from dali_like.monitor import chrome
from dali_like.monitor.trace_records import GPU, MAIN, WORKERS, Count, Records, Span, Track
from tests.browser.conftest import Browser, Serve

_MS = 1_000_000
NASTY = '<img src=x onerror="document.title=1">'


def trace_of(batches: int = 20, source: str = "external_source of photos") -> Records:
    """Return a trace of two workers, one of them slower, and a loop that waits for them at the beginning."""
    records = Records(begin_ns=0, end_ns=batches * 10 * _MS)
    main = Track(MAIN, "main thread")
    for i in range(batches):
        begin, wait = i * 10 * _MS, max(6 - i, 1) * _MS
        records.spans += [
            Span(main, "run", begin, begin + wait + _MS, {"number": i}),
            Span(main, "wait", begin + _MS // 4, begin + _MS // 4 + wait, {}),
            Span(main, "step", begin + wait + _MS, begin + 10 * _MS, {}),
            Span(Track(GPU, "GPU 0"), "to the GPU", begin + wait, begin + wait + _MS // 2, {"bytes": 9633792}),
        ]
        for worker, took in ((0, 9), (1, 4 if i != 7 else 10)):
            details = {
                "epoch": 0,
                "iteration": i,
                "samples": f"{16 * i + 8 * worker} to {16 * i + 8 * worker + 7}",
                "pid": 1,
            }
            records.spans.append(Span(Track(WORKERS, f"worker {worker}"), source, begin, begin + took * _MS, details))
        records.counts += [
            Count("batches", begin + wait, {"ready": i % 3, "slots_in_use": 3 + i % 3}),
            Count("shared memory", begin + wait, {"bytes": 30 << 20}),
        ]
    return records


def data_of(records: Records, name: str = "run.json") -> dict[str, Any]:
    return {
        "about.json": lambda: {"kind": "trace", "name": name},
        "trace.json": json.dumps(chrome.as_json(records)).encode(),
    }


def live_data(wobble: float = 0.0) -> dict[str, Any]:
    """Return snapshots of a pipeline: every 250 ms, 400 more samples and 50 ms more of waiting."""
    times = itertools.count()

    def vary(i: int, speed: float) -> float:
        return wobble * (math.sin(speed * i) + math.sin(2.7 * speed * i))

    def snapshot() -> dict[str, Any]:
        i = next(times)
        return {
            "name": "pipeline 1 of train.py",
            "pid": 4711,
            "at_ns": i * 250 * _MS,
            "age_s": 0.1,
            "batches": 25 * i,
            "samples": 400 * i + round(300 * vary(i, 0.3)),
            "epochs": i // 40,
            "errors": 0,
            "restarts": 1,
            "replaced": 0,
            "wait_s": 0.05 * i + 0.06 * vary(i, 0.2),
            "bytes": 30 << 20,
            "ready": i % 3,
            "slots_in_use": 5,
            "workers": [
                {"number": 0, "pid": 4712, "busy_s": 0.25 * i, "on_task_s": 0.0},
                {"number": 1, "pid": 4713, "busy_s": 0.125 * i, "on_task_s": 0.0},
            ],
            "slowest": [{"source": "external_source of photos", "sample": 1234, "epoch": 2, "duration_s": 0.0417}],
        }

    return {"about.json": lambda: {"kind": "live", "name": "pipeline 1 of train.py"}, "live.json": snapshot}


def text_of(html: str) -> str:
    """Return the visible text of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def table_of(html: str, name: str) -> list[list[str]]:
    """Return the rows of a table."""
    [table] = re.findall(rf'<table id="{name}">(.*?)</table>', html, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)
    return [[text_of(cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for row in rows]


def test_a_trace_is_drawn_with_its_figures(browser: Browser, serve: Serve) -> None:
    html = browser.dom(serve(data_of(trace_of())).url)

    assert 'data-state="drawn"' in html
    text = text_of(html)
    assert "run.json" in text
    assert "20 batches" in text
    assert "of the loop's time is waiting" in text
    assert html.count("<canvas") == 3  # timeline, batches, ring
    assert table_of(html, "workers") == [["worker 0", "90 %", "20"], ["worker 1", "43 %", "20"]]
    assert table_of(html, "slowest")[0] == ["10 ms", "external_source of photos", "0", "7", "120 to 127", "worker 1"]


def test_lost_records_are_stated(browser: Browser, serve: Serve) -> None:
    records = trace_of()
    records.lost = 17
    assert "17 tasks were lost" in text_of(browser.dom(serve(data_of(records)).url))


def test_an_empty_trace_is_drawn(browser: Browser, serve: Serve) -> None:
    assert 'data-state="drawn"' in browser.dom(serve(data_of(Records(0, 1))).url)


def test_names_do_not_become_markup(browser: Browser, serve: Serve) -> None:
    html = browser.dom(serve(data_of(trace_of(source=NASTY), NASTY)).url)
    assert "<img" not in html
    assert 'data-state="drawn"' in html


def test_a_running_pipeline_is_shown_with_its_rates(browser: Browser, serve: Serve) -> None:
    html = browser.dom(serve(live_data()).url)

    text = text_of(html)
    assert "pipeline 1 of train.py, process 4711" in text
    assert "1,600 samples/s" in text
    assert "100 batches/s" in text
    assert "20 % of the loop's time is waiting" in text
    assert table_of(html, "workers") == [["worker 0", "4712", "100 %"], ["worker 1", "4713", "50 %"]]
    assert table_of(html, "slowest") == [["41.7 ms", "external_source of photos", "1234", "2"]]


def test_the_end_of_a_pipeline_is_shown(browser: Browser, serve: Serve) -> None:
    def ended() -> Any:
        raise NotRunningError("pipeline 1 of train.py (process 4711) has ended")

    data = {**live_data(), "live.json": ended}
    assert "pipeline 1 of train.py (process 4711) has ended" in text_of(browser.dom(serve(data).url))


def test_without_the_token_nothing_is_shown(browser: Browser, serve: Serve) -> None:
    html = browser.dom(serve(data_of(trace_of())).url.partition("#")[0])
    assert "missing token" in text_of(html)
    assert "run.json" not in html


@pytest.mark.parametrize("kind", ["trace", "live"])
def test_a_screenshot_can_be_taken(browser: Browser, serve: Serve, tmp_path: Path, kind: str) -> None:
    """Set DALI_LIKE_SCREENSHOTS to save the pictures in docs/pictures."""
    server = serve(data_of(trace_of()) if kind == "trace" else live_data(wobble=1.0))
    folder = Path("docs/pictures") if os.environ.get("DALI_LIKE_SCREENSHOTS") else tmp_path
    folder.mkdir(exist_ok=True)
    browser.screenshot(server.url, folder / f"view-{kind}.png", 1180, 1180 if kind == "trace" else 1060)
    assert (folder / f"view-{kind}.png").read_bytes().startswith(b"\x89PNG")
