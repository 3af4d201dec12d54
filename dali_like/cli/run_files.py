"""The files of ``dali-like run``: one trace of several processes, and one page with everything."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from dali_like.monitor.profile.profile import Profile, merged
from dali_like.running.run_settings import RunSettings
from dali_like.running.summary import summary_lines

__all__ = ["merged_profile", "merged_trace", "page", "traces_in"]

#: Groups of tracks in the trace of one loader: main process, workers, GPU.
_GROUPS = 10


def traces_in(folder: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the process id and the content of each trace in a folder."""
    for path in sorted(Path(folder).glob("*.trace")):
        yield int(path.name.partition("-")[0]), json.loads(path.read_text(encoding="utf-8"))


def merged_trace(folder: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one trace of all loaders of all processes, in the Trace Event Format. One loader's trace stays as it is."""
    traces = list(traces_in(folder))
    if len(traces) == 1:
        return traces[0][1]
    ranks = {record["pid"]: record["rank"] for record in records}
    begin_ns = min((trace["otherData"]["begin_ns"] for _, trace in traces), default=0)
    events = []
    for number, (pid, trace) in enumerate(traces):
        late_us = (trace["otherData"]["begin_ns"] - begin_ns) / 1e3
        where = f"rank {ranks[pid]}" if ranks.get(pid) else f"process {pid}"
        for event in trace["traceEvents"]:
            moved = {**event, "pid": event["pid"] + number * _GROUPS}
            if "ts" in moved:
                moved["ts"] += late_us
            if event["name"] == "process_name":
                moved["args"] = {"name": f"{where}, loader {number + 1}: {event['args']['name']}"}
            events.append(moved)
    return {"displayTimeUnit": "ms", "otherData": {"made_by": "dali_like", "begin_ns": begin_ns}, "traceEvents": events}


def merged_profile(folder: str, records: Sequence[Mapping[str, Any]]) -> Profile:
    """Return one profile of all loaders of all processes."""
    ranks = {record["pid"]: record["rank"] for record in records}
    profiles: dict[str, Profile] = {}
    paths = sorted(Path(folder).glob("*.profile"))
    for number, path in enumerate(paths, 1):
        pid = int(path.name.partition("-")[0])
        where = f"rank {ranks[pid]}, " if ranks.get(pid) else ""
        name = f"{where}loader {number}:" if len(paths) > 1 else ""
        profiles[name] = Profile.from_json(json.loads(path.read_text(encoding="utf-8")))
    return merged(profiles)


def page(records: Sequence[Mapping[str, Any]], settings: RunSettings) -> str:
    """Return a page with the summary, all reports, and the longest trace. It needs no other file and no server."""
    reports = [(record, loader) for record in records for loader in record["loaders"]]
    parts = [f"<h2>{html.escape(_title(*each))}</h2><pre>{html.escape(each[1]['report'])}</pre>" for each in reports]
    summary = html.escape("\n".join(summary_lines(records, settings)))
    traces = (trace for _, trace in traces_in(settings.folder))
    trace = max(traces, key=lambda trace: len(trace["traceEvents"]), default=None)
    return _with_trace(f"<pre>{summary}</pre>{''.join(parts)}", trace)


def _title(record: Mapping[str, Any], loader: Mapping[str, Any]) -> str:
    rank = f"rank {record['rank']}, " if record["rank"] else ""
    return f"{rank}{loader['place']}"


def _with_trace(text: str, trace: dict[str, Any] | None) -> str:
    """Return the page of ``dali-like view`` with its scripts and data inside, below some text."""
    files = {
        file.name: file.read_text("utf-8") for file in resources.files("dali_like.monitor.show").joinpath("page").iterdir()
    }
    whole = files["index.html"].replace('<link rel="stylesheet" href="style.css">', f"<style>{files['style.css']}</style>")
    if trace is None:
        whole = whole.replace("loading", "without a trace")
        return whole.replace("<main>", f"<section>{text}</section><main>").replace(_SCRIPT, "")
    # Modules of a page without a server have no addresses, so they import each other by name.
    modules = {
        name.removesuffix(".js"): re.sub(r'from "\./(\w+)\.js"', r'from "\1"', content)
        for name, content in files.items()
        if name.endswith(".js")
    }
    addresses = {
        name: f"data:text/javascript;base64,{base64.b64encode(module.encode()).decode()}" for name, module in modules.items()
    }
    data = json.dumps(trace, separators=(",", ":")).replace("<", "\\u003c")
    script = (
        f'<script type="importmap">{json.dumps({"imports": addresses})}</script>'
        f'<script type="application/json" id="trace">{data}</script>'
        '<script type="module">import { showTrace } from "trace";\n'
        'showTrace(JSON.parse(document.getElementById("trace").textContent), "dali-like run");\n'
        'document.body.dataset.state = "drawn";</script>'
    )
    return whole.replace(_SCRIPT, script).replace("<main>", f"<section>{text}</section><main>")


_SCRIPT = '<script type="module" src="view.js"></script>'
