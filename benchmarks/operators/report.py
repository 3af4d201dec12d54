"""Write the page and the picture of the measured operators.

``python -m benchmarks.operators.report`` writes docs/operators/costs.md and docs/pictures/benchmark-operators.svg from
benchmarks/operators/results.json, which `python -m benchmarks.operators --json benchmarks/operators/results.json` measures.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.operators.cases import CASES, LEFT_OUT, REASONS
from tools.svg import Picture, text_width

__all__ = [
    "COLUMNS",
    "RESULTS",
    "WITH_LOOPS",
    "column",
    "geometric_mean",
    "of_operator",
    "page",
    "picture",
    "reason_of",
    "results",
]

#: Behind the version of DALI where dali-like-kernels was installed.
WITH_LOOPS = ", with dali-like-kernels"
RESULTS = Path(__file__).with_name("results.json")
DOCS = Path(__file__).resolve().parents[2] / "docs"
#: The versions of DALI; the tables are of the first. For the last, this library had its compiled loops.
VERSIONS = ("1.53.0", "2.4.0", f"1.53.0{WITH_LOOPS}")
COLUMNS = ("small, alike", "small, ragged", "large, alike", "large, ragged")
_NOTE = "<!-- Written by benchmarks.operators.report from the results; do not edit. -->"
_SHOWN_THREADS = "2 threads"
_WIDTH, _STEP, _BAR = 720, 18, 12
_LEAST, _MOST = 1 / 16, 8

#: Why rows of a column are slower than DALI's, if their case has no reason of its own.
GENERAL: Mapping[str, str] = {
    "small, alike": "a",
    "small, ragged": "b",
    "large, alike": "c",
    "large, ragged": "c",
}


def results() -> Mapping[str, Mapping[str, float]]:
    """Return the ratios of all rows, by the version of DALI."""
    stored: Mapping[str, Mapping[str, float]] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return stored


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers; NaN without any."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def column(rows: Mapping[str, float], case: str, name: str, threads: str = _SHOWN_THREADS) -> float | None:
    """Return the ratio of a case in a column."""
    return rows.get(f"{case}: {name}, {threads}")


def reason_of(case: str, name: str) -> str:
    """Return the letter of the reason for a ratio above 1."""
    return REASONS.get(case, GENERAL[name])


@functools.cache
def _means() -> Mapping[str, float]:
    rows = results().get(VERSIONS[0], {})
    ratios: dict[str, list[float]] = {}
    for row, ratio in rows.items():
        ratios.setdefault(row.rpartition(": ")[0].partition(" ")[0], []).append(ratio)
    return {path: geometric_mean(each) for path, each in ratios.items()}


def of_operator(path: str) -> float | None:
    """Return the geometric mean of the ratios of an operator, in all of its cases."""
    return _means().get(path)


def _cell(rows: Mapping[str, float], case: str, name: str) -> str:
    ratio = column(rows, case, name)
    if ratio is None:
        return "-"
    return f"{ratio:.2f} {reason_of(case, name)}" if round(ratio, 2) > 1 else f"{ratio:.2f}"


def _mean(rows: Mapping[str, float], case: str) -> str:
    ratios = [ratio for name in COLUMNS if (ratio := column(rows, case, name)) is not None]
    return f"{geometric_mean(ratios):.2f}" if ratios else "-"


def _summary(version: str, rows: Mapping[str, float]) -> str:
    means = [f"{name} {geometric_mean(v for k, v in rows.items() if f': {name},' in k):.2f}" for name in COLUMNS]
    slower = sum(round(ratio, 2) > 1 for ratio in rows.values())
    return f"| DALI {version} | {geometric_mean(rows.values()):.2f} | {', '.join(means)} | {slower} of {len(rows)} |"


def page() -> str:
    """Return the page with the tables."""
    stored = results()
    first = stored.get(VERSIONS[0], {})
    lines = [
        _NOTE,
        "# Costs of operators",
        "",
        "CPU time of a batch of 16, as a share of DALI's: `python -m benchmarks.operators`. Above 1, DALI is faster. Each",
        "row is a pipeline of one operator behind a source without workers, with two threads. Both libraries run in one",
        "process and take turns; a ratio is that of the medians. *Small* images have 28x36 pixels, *large* ones 360x480,",
        "*small* sounds an eighth of a second, *large* ones six seconds; `benchmarks/operators/inputs.py` has the others.",
        "*Alike* samples have one shape, *ragged* ones seven different ones.",
        "",
        "Measured on 28 November 2026 with `--threads 2 --repeats 2`, `--seconds 0.004`, on two cores that many other",
        "programs shared, which costs Python code more than compiled loops: its caches are cold. Rows of large samples, and",
        "those beside DALI 2.4.0, are from the morning, before operators cost less. The target, a mean of 0.6, is not",
        "reached. Most columns are without [compiled loops](../install.md#compiled-loops-for-operators).",
        "",
        "| beside | geometric mean | by column | rows above 1 |",
        "|---|--:|---|--:|",
        *[_summary(version, stored[version]) for version in VERSIONS if version in stored],
        "",
        "![Cost of each operator as a share of DALI's](../pictures/benchmark-operators.svg)",
        "",
        f"| operator | {' | '.join(COLUMNS)} | beside DALI {VERSIONS[1]}, mean | with dali-like-kernels, mean |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for case in CASES:
        cells = [_cell(first, case, name) for name in COLUMNS]
        cells += [_mean(stored.get(version, {}), case) for version in VERSIONS[1:]]
        lines.append(f"| `{case}` | {' | '.join(cells)} |")
    lines += [
        "",
        "Reasons for ratios above 1:",
        "",
        "- a: a batch costs about 0.1 ms in Python, whatever the operator; all of DALI's batch takes as long.",
        "- b: samples of different shapes are computed one by one. Each is some calls in Python, 10 us or more. Operators",
        "  on elements and on pixels compute them together, but the source needs as long as DALI's for their shapes alone.",
        "- c: both libraries do little but copy memory, most of it into the slot of the source; or the operator takes more",
        "  passes over a sample than DALI's compiled loop.",
        "- d: simplejpeg decodes whole rows of a JPEG. With dali-like-kernels or TurboJPEG 3 (`DALI_LIKE_TURBOJPEG`), only",
        "  the window is decoded.",
        "- e: every sample has a random generator of its own, so that it does not depend on the batch.",
        "- f: the headers of files are read by Python code.",
        "- g: results differ in size, or a window is searched at random: 20 to 200 us of calls for each sample.",
        "- h: samples are computed one by one, even if they are alike.",
        "",
        "Without a row:",
        "",
        *[f"- `{name}`: {reason}" for name, reason in LEFT_OUT.items()],
        "- readers: see [training pipelines](../benchmarks/training.md#training-pipelines-from-readers).",
        "",
    ]
    return "\n".join(lines)


def picture() -> str:
    """Return an SVG picture with a bar for each case, the slowest last; the axis is logarithmic."""
    rows = results().get(VERSIONS[0], {})
    ratios = {}
    for case in CASES:
        found = [ratio for name in COLUMNS if (ratio := column(rows, case, name)) is not None]
        if found:
            ratios[case] = geometric_mean(found)
    title = f"CPU time of operators as a share of DALI {VERSIONS[0]}'s: shorter is faster"
    drawn = Picture(_WIDTH, title)
    drawn.text(16, 26, title, "strong")
    left = 32 + max((text_width(case, 11) for case in ratios), default=0)
    unit = (_WIDTH - left - 60) / math.log(_MOST / _LEAST)

    def place(ratio: float) -> float:
        return round(left + unit * math.log(min(max(ratio, _LEAST), _MOST) / _LEAST), 1)

    y = 46.0
    for case, ratio in sorted(ratios.items(), key=lambda pair: pair[1]):
        drawn.text(left - 8, y + 10, case, "small", "end")
        drawn.bar(left, y, max(place(ratio) - left, 1), _BAR, "accent" if ratio <= 1 else "quiet")
        drawn.text(place(ratio) + 6, y + 10, f"{ratio:.2f}", "small")
        y += _STEP
    drawn.line((place(1), 40), (place(1), y))
    drawn.text(
        16, y + 14, "Geometric means of small, large, alike and ragged samples; the line is DALI's time.", "small dim"
    )
    return str(drawn)


def write(texts: Sequence[tuple[Path, str]]) -> None:
    """Write files."""
    for path, text in texts:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(
        [(DOCS / "operators" / "costs.md", page()), (DOCS / "pictures" / "benchmark-operators.svg", picture())],
    )
