"""The page of ``dali-like view`` in a browser."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.errors import NotRunningError
from dali_like.monitor.show.slowest_rank import slowest_rank_text
from dali_like.monitor.show.watching import Watching
from dali_like.monitor.trace import chrome
from dali_like.monitor.trace.trace_records import CALLBACK, GPU, MAIN, PART_OF, WORKERS, Count, Records, Span, Track
from dali_like.types import SampleInfo
from tests.browser.conftest import Browser, Serve
from tests.conftest import wait_until

_MS = 1_000_000
#: Counts five periods of the page.
IN_A_WHILE = "window.waited = 0; setInterval(() => { window.waited = Math.min(window.waited + 1, 5); }, 500)"
NASTY = '<img src=x onerror="document.title=1">'


DIAGNOSIS = {
    "bottleneck": "workers",
    "sentence": "The loop waits 40% of the time.",
    "advice": "More workers: py_num_workers=8.",
    "expected": "",
}


def trace_of(batches: int = 20, source: str = "external_source of photos") -> Records:
    """Return a trace of two workers, one of them slower, and a loop that waits for them at the beginning."""
    records = Records(begin_ns=0, end_ns=batches * 10 * _MS, diagnosis=DIAGNOSIS)
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
            track, end = Track(WORKERS, f"worker {worker}"), begin + took * _MS
            records.spans.append(Span(track, source, begin, end, details))
            decoded = begin + took * _MS * 3 // 4
            part = {**details, PART_OF: source}
            records.spans.append(Span(track, CALLBACK, begin, begin + _MS, part))
            records.spans.append(Span(track, "fn.decoders.image_0", begin + _MS, decoded, part))
            records.spans.append(Span(track, "fn.resize_1", decoded, end, part))
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


def live_data(num_pipelines: int = 1) -> dict[str, Any]:
    """Return snapshots of pipelines: every 250 ms, 400 more samples and 50 ms more of waiting. The last one waits longer."""
    times = itertools.count()

    def snapshot(i: int, rank: int) -> dict[str, Any]:
        wait_s = 0.004 if rank == num_pipelines - 1 else 0.0001
        return {
            "id": f"{4711 + rank}-9",
            "rank": rank,
            "num_ranks": num_pipelines,
            "name": "pipeline 1 of train.py",
            "pid": 4711 + rank,
            "at_ns": i * 250 * _MS,
            "age_s": 0.1,
            "batches": 25 * i,
            "samples": 400 * i,
            "epochs": i // 40,
            "errors": 0,
            "restarts": 1,
            "replaced": 0,
            "wait_s": 0.05 * i,
            "bytes": 30 << 20,
            "ready": i % 3,
            "slots_in_use": 5,
            "workers": [
                {"number": 0, "pid": 4712, "busy_s": 0.26 * i, "on_task_s": 0.0},  # read later than the time
                {"number": 1, "pid": 4713, "busy_s": 0.125 * i, "on_task_s": 0.0},
            ],
            "slowest": [{"source": "external_source of photos", "sample": 1234, "epoch": 2, "duration_s": 0.0417}],
            "calls": [
                {
                    "source": "external_source of photos",
                    "unit": "sample",
                    "counts": [3, 40, 9, 0, 0, 1],
                    "edges_s": [0.001, 0.00125, 0.0015, 0.00175, 0.002, 0.0025, 0.003],
                }
            ],
            "operators": [
                {"name": "fn.decoders.image_0", "place": "workers", "seconds": 0.3 * i},
                {"name": "fn.resize_1", "place": "threads", "seconds": 0.1 * i},
            ],
            "memory": {"at_s": 0.0, "bytes": 300 << 20, "main_bytes": 100 << 20, "worker_bytes": 150 << 20},
            "recent": {
                "seconds": 20.0,
                "batches": 25 * i,
                "wait_s": wait_s,
                "work_s": 0.01 - wait_s,
                "wait_share": 100 * wait_s,
                "diagnosis": DIAGNOSIS,
                "stages": [{"name": "fn.decoders.image_0", "wait_s": wait_s, "share": 1.0}],
            },
        }

    def snapshots() -> dict[str, Any]:
        i = next(times)
        shown = [snapshot(i, rank) for rank in range(num_pipelines)]
        return {"pipelines": shown, "slowest_rank": slowest_rank_text(shown)}

    return {"about.json": lambda: {"kind": "live"}, "live.json": snapshots}


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
    assert html.count("<canvas") == 5  # timeline, batches, ring, memory, times of tasks
    assert "Bottleneck: workers" in text
    assert "More workers: py_num_workers=8." in text
    assert table_of(html, "workers") == [["worker 0", "90 %", "20"], ["worker 1", "43 %", "20"]]
    assert table_of(html, "slowest")[0] == ["10 ms", "external_source of photos", "0", "7", "120 to 127", "worker 1"]
    operators = table_of(html, "operators")
    assert operators == [["fn.decoders.image_0", "workers", "160 ms", "71 %"], ["fn.resize_1", "workers", "66.5 ms", "29 %"]]


def test_the_page_adds_up_operators_as_statistics_do(browser: Browser, serve: Serve) -> None:
    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=1, py_start_method="thread")
    def blurred() -> Any:
        images = fn.external_source(
            lambda info: np.full((32, 32, 3), info.idx_in_batch, np.uint8), batch=False, parallel=True
        )
        return fn.resize(fn.gaussian_blur(images, window_size=5), size=[16, 16])

    with closing(blurred()) as pipe:
        with pipe.trace() as trace:
            for _ in range(4):
                pipe.run()
        html = browser.dom(serve(data_of(trace.records)).url)
    totals = {
        name: sum(span.end_ns - span.begin_ns for span in trace.records.spans if span.name == name) / 1e6
        for name in ("fn.gaussian_blur_0", "fn.resize_1")
    }
    shown = {row[0]: row[2] for row in table_of(html, "operators")}
    assert shown == {name: browser.imported(f"milliseconds({total})") for name, total in totals.items()}


def test_ticks_and_numbers_are_round(browser: Browser, serve: Serve) -> None:
    browser.open(serve(data_of(Records(0, 1))).url)

    assert browser.imported("ticks(-1.2, 0, 10).map(rounded)") == ["-1.2", "-1", "-0.8", "-0.6", "-0.4", "-0.2", "0"]
    assert browser.imported("ticks(0, 0.35, 3).map(rounded)") == ["0", "0.2"]
    assert browser.imported("[0.0123, 12.34, 20000].map(milliseconds)") == ["12.3 µs", "12.3 ms", "20 s"]


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
    assert "300 MiB in all processes" in text
    assert "Bottleneck: workers" in text
    assert html.count("<canvas") == 5  # throughput, waiting, ring, memory, times of samples
    assert table_of(html, "workers") == [["worker 0", "4712", "100 %"], ["worker 1", "4713", "50 %"]]
    assert table_of(html, "stages") == [["fn.decoders.image_0", "100 %", "4 ms"]]
    assert [row[0] for row in table_of(html, "operators")] == ["fn.decoders.image_0", "fn.resize_1"]
    assert table_of(html, "slowest") == [["41.7 ms", "external_source of photos", "1234", "2"]]


def test_one_of_several_pipelines_can_be_chosen(browser: Browser, serve: Serve) -> None:
    browser.open(serve(live_data(3)).url)
    assert "process 4711, rank 0 of 3" in text_of(browser.html)
    assert "Rank 2, stage fn.decoders.image_0, holds the job up" in text_of(browser.html)
    assert [row[0].rpartition(", ")[2] for row in table_of(browser.html, "pipelines")] == [
        f"rank {i} of 3" for i in range(3)
    ]

    browser.evaluate("(choice.value = '4713-9', choice.dispatchEvent(new Event('change')))")

    assert "process 4713, rank 2 of 3" in text_of(browser.html)


def test_the_page_can_be_paused(browser: Browser, serve: Serve) -> None:
    requests = itertools.count()
    data = live_data()
    browser.open(serve({**data, "live.json": lambda: (next(requests), data["live.json"]())[1]}).url)
    browser.evaluate("pause.click()")
    assert browser.evaluate("pause.textContent") == "Continue"
    before = browser.html

    browser.evaluate(IN_A_WHILE)
    wait_until(lambda: browser.evaluate("window.waited === 5"), "five periods of the page")
    assert browser.html == before

    browser.evaluate("pause.click()")
    wait_until(lambda: browser.html != before, "the page to go on")


def test_the_end_of_a_pipeline_is_shown(browser: Browser, serve: Serve) -> None:
    def ended() -> Any:
        raise NotRunningError("pipeline 1 of train.py (process 4711) has ended")

    data = {**live_data(), "live.json": ended}
    assert "pipeline 1 of train.py (process 4711) has ended" in text_of(browser.dom(serve(data).url))


def test_without_the_token_nothing_is_shown(browser: Browser, serve: Serve) -> None:
    html = browser.dom(serve(data_of(trace_of())).url.partition("#")[0])
    assert "missing token" in text_of(html)
    assert "run.json" not in html


@pytest.fixture
def photos(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline of two workers that decode and resize photographs."""
    demo_data = pytest.importorskip("examples.demo_data")
    files = demo_data.make_crops(tmp_path, demo_data.packaged_photographs(), per_photograph=4)

    def read(info: SampleInfo) -> Any:
        i = info.idx_in_epoch % len(files.files)
        return np.fromfile(files.files[i], np.uint8), files.labels[i]

    @pipeline_def(batch_size=32, py_num_workers=2, py_start_method="fork")
    def photos() -> Any:
        encoded, labels = fn.external_source(read, num_outputs=2, batch=False, parallel=True)
        images = fn.decoders.image(encoded)
        return fn.flip(fn.resize(images, size=[224, 224])), labels

    with closing(photos()) as pipe:
        yield pipe


#: To draw the pictures of docs: batches of the trace, and of the running pipeline.
PICTURES = os.environ.get("DALI_LIKE_SCREENSHOTS")
FEW, MANY = (80, 1000) if PICTURES else (12, 60)


def save(browser: Browser, name: str) -> None:
    """Save a picture of the page in docs, if wanted."""
    if PICTURES:
        browser.screenshot(Path("docs/pictures") / name)


def test_a_real_trace_is_drawn(browser: Browser, serve: Serve, photos: Pipeline) -> None:
    with photos.trace() as trace:
        for _ in range(FEW):
            photos.run()
    browser.open(serve(data_of(trace.records)).url)
    save(browser, "view-trace.png")

    assert "Bottleneck: " in text_of(browser.html)
    assert {row[0] for row in table_of(browser.html, "operators")} == {
        "fn.decoders.image_0",
        "fn.resize_1",
        "fn.flip_2",
    }


def test_a_real_pipeline_is_watched(browser: Browser, serve: Serve, photos: Pipeline) -> None:
    photos.publish("photos")
    watching = Watching(os.getpid(), "photos")
    url = serve({"about.json": lambda: {"kind": "live"}, "live.json": watching.read}).url
    with ThreadPoolExecutor(1) as thread:
        opened = thread.submit(browser.open, url)
        for _ in range(MANY):
            photos.run()
        wait_until(lambda: (photos.run(), opened.done())[1], "the page to be drawn")
        opened.result()
    save(browser, "view-live.png")

    text = text_of(browser.html)
    assert f"photos, process {os.getpid()}" in text
    assert "Time of a sample in external_source of" in text
    assert {row[0] for row in table_of(browser.html, "operators")} >= {"fn.decoders.image_0", "fn.resize_1"}


def profile_of_an_example(folder: Path) -> dict[str, Any]:
    """Return the data of the page of a real profile."""
    profile_workers = pytest.importorskip("examples.profile_workers")
    profile_workers.profiled(folder / "profile.json", epochs=4 if PICTURES else 2)
    content = (folder / "profile.json").read_bytes()
    return {"about.json": lambda: {"kind": "profile", "name": "profile.json"}, "profile.json": content}


def test_a_real_profile_is_drawn(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    browser.open(serve(profile_of_an_example(tmp_path)).url, height=760)
    save(browser, "gallery/profile_workers.jpg")

    html = browser.html
    assert html.count("<canvas") == 1
    lines = [" ".join(row) for row in table_of(html, "lines")]
    assert any("PIL/" in line and "profile_workers.py" in line for line in lines)  # with the line that has called it
    assert {row[0] for row in table_of(html, "workers")} >= {"worker 0", "worker 1"}


def check_of_an_example(folder: Path) -> str:
    """Return the address of the page of a real check."""
    from examples import check_data

    assert check_data.check(folder / "findings.html") == 1
    return (folder / "findings.html").as_uri()


def test_findings_of_a_check_are_on_its_page_with_their_origins(browser: Browser, tmp_path: Path) -> None:
    browser.visit(check_of_an_example(tmp_path), width=900, height=760)
    save(browser, "gallery/check_data.jpg")

    text = text_of(browser.html)
    assert "400 samples" in text
    assert "No such file or directory" in text
    for number in (50, 60, 70, 90, 111, 120):
        assert f"{number} scans/{number:04d}.npy" in text


@pytest.fixture
def asked(browser: Browser, serve: Serve, photos: Pipeline) -> Callable[[str, str], None]:
    """``asked(button, wanted)``: open the page of a running pipeline, press a button, and run until something is there."""

    def ask(button: str, wanted: str) -> None:
        photos.publish("photos", pictures=True)
        watching = Watching(os.getpid(), "photos")
        live = {"about.json": lambda: {"kind": "live"}, "live.json": watching.read, "pictures.json": watching.pictures}
        with ThreadPoolExecutor(1) as thread:
            opened = thread.submit(browser.open, serve(live).url)
            wait_until(lambda: (photos.run(), opened.done())[1], "the page to be drawn")
            opened.result()
            pressed = thread.submit(browser.evaluate, f"document.getElementById('{button}').click()")
            wait_until(lambda: (photos.run(), pressed.done())[1], "the button to be pressed")
            pressed.result()
        wait_until(lambda: (photos.run(), browser.evaluate(wanted))[1], "the answer")

    return ask


def test_a_batch_of_a_running_pipeline_is_shown(browser: Browser, asked: Callable[[str, str], None]) -> None:
    pytest.importorskip("PIL")

    asked("ask", "document.querySelector('#batch img')?.naturalWidth > 400")

    assert browser.evaluate("document.querySelector('#batch h2').textContent") == "Batch"


def test_the_steps_of_a_sample_are_shown_in_order(browser: Browser, asked: Callable[[str, str], None]) -> None:
    pytest.importorskip("PIL")

    asked("ask-steps", "document.querySelectorAll('#batch figure').length && !document.getElementById('ask-steps').disabled")
    if PICTURES:
        browser.evaluate("document.getElementById('charts').remove()")
        save(browser, "view-steps.png")

    captions = "[...document.querySelectorAll('#batch figcaption')].map((each) => each.textContent)"
    assert browser.evaluate(captions)[1:] == ["fn.decoders.image_0", "fn.resize_1", "fn.flip_2"]
    notes = browser.evaluate("[...document.querySelectorAll('#batch .hint')].map((each) => each.textContent)")
    assert notes[-1] == "uint8 (224, 224, 3) HWC"
    assert browser.evaluate("[...document.querySelectorAll('#batch img')].every((each) => each.naturalWidth > 40)")
    for width in (1180, 400):
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out_of_the_pages_of_a_profile_and_a_check(
    browser: Browser, serve: Serve, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.open(serve(profile_of_an_example(tmp_path)).url, width, dark=dark)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.visit(check_of_an_example(tmp_path), width, dark=dark)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert (browser.evaluate(LUMINANCE) < 128) == dark


#: The brightness of the paper, from 0 to 255. A transparent page has the color of its scheme.
LUMINANCE = """
(() => { const probe = document.createElement('i'); probe.style.color = 'Canvas'; document.body.append(probe);
  return Number(getComputedStyle(probe).color.match(/\\d+/)[0]); })()
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1180, 400])
def test_nothing_sticks_out_of_the_page(browser: Browser, serve: Serve, width: int, dark: bool) -> None:
    for data in (data_of(trace_of()), live_data(3)):
        browser.open(serve(data).url, width, dark=dark)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
