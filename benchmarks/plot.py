"""Plot the tables of a report: a bar for the median of each system, and a line from the lowest to the highest value.

The benchmarks draw a picture beside each report. ``python -m benchmarks.plot report.md picture.svg`` draws that of an older
report. ``python -m benchmarks.plot`` draws the pictures of the documentation, `PICTURES`, from the tables in
docs/benchmarks/, so that pictures and tables agree; a test compares them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.svg import Picture, text_width

__all__ = ["PICTURES", "Chart", "Plot", "Spread", "charts_of", "draw", "draw_documentation"]

DOCS = Path(__file__).resolve().parents[1] / "docs"
OURS = "dali_like"
_WIDTH = 720
_BAR = 16
_STEP = 22
_RIGHT = 150  #: place for the figures


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest value of a figure."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Chart:
    """The figures of one workload: of each system, or ours as a multiple of each other system's."""

    workload: str
    unit: str
    figures: Mapping[str, Spread]

    @property
    def is_ratio(self) -> bool:
        """Whether figures are multiples of the rate of others."""
        return self.unit.endswith("ratio")


@dataclass(frozen=True)
class Plot:
    """A picture of the documentation: part of the tables in docs/benchmarks/.

    Attributes:
        title: headline of the picture.
        section: heading of the section with the tables.
        workloads: names of workloads, with their descriptions.
        without: systems that are left out.
    """

    title: str
    section: str
    workloads: Mapping[str, str]
    without: Collection[str] = ()


#: Names of systems in pictures.
_NAMES = {
    "torch": "PyTorch",
    "torch_packed": "PyTorch, packed",
    "dali": "DALI",
    "grain": "Grain",
    "spdl": "SPDL",
    "limit": "bare loops",
    "ray_data": "Ray Data",
    "webdataset": "WebDataset",
    "litdata": "LitData",
    "mosaicml": "MosaicML",
    "decoding": "decoding only",
}
_EXTERNAL = {
    "tiny": "28 x 28 bytes and a label, batches of 256",
    "image": "224 x 224 x 3 bytes and a label, batches of 64",
    "encoded": "20 to 200 KB and a label, batches of 64",
}
#: Pictures in docs/pictures, by their names.
PICTURES: Mapping[str, Plot] = {
    "benchmark-summary.svg": Plot(
        "Samples per second, two workers", "Results", _EXTERNAL, ("limit", "torch_packed", "grain", "spdl", "ray_data")
    ),
    "benchmark-sources.svg": Plot(
        "Sources: samples per second", "Results", {**_EXTERNAL, "large": "64 MB and a label, batches of 4"}
    ),
    "benchmark-loader.svg": Plot(
        "DataLoader: samples per second",
        "DataLoader: results",
        {
            "tiny": "28 x 28 bytes",
            "image": "224 x 224 x 3 bytes",
            "dict": "a dict of 20 arrays",
            "collate": "a collate_fn",
            "augment": "augmentation in NumPy",
            "augment_large": "augmentation of large images",
        },
    ),
    "benchmark-readers.svg": Plot(
        "Training input from files: multiples of the others' samples per second",
        "Training pipelines from readers",
        {"resnet_folders": "JPEG folders", "tfrecord_224": "TFRecord files", "tar_224": "tar shards"},
    ),
    "benchmark-training.svg": Plot(
        "Training input from a source: multiples of the others' samples per second",
        "Training pipelines: results",
        {
            "resnet": "ResNet input",
            "resnet_antialias": "with antialiasing",
            "resnet_large": "of large photographs",
            "resnet_to_size": "decoded at a smaller size",
            "ssd": "SSD input",
        },
    ),
}


def charts_of(report: str) -> list[Chart]:
    """Return the charts of the tables in a report that have samples per second, or ratios of them."""
    charts: list[Chart] = []
    heading = ""
    header: list[str] = []
    for line in report.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").partition(":")[0]
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")] if line.startswith("| ") else []
        if not cells:
            header = header if line.startswith("|") else []
        elif not header:
            header = cells
        else:
            charts += _chart_of_row(heading, header, cells)
    return _merged(charts)


def _chart_of_row(heading: str, header: Sequence[str], cells: Sequence[str]) -> list[Chart]:
    row = dict(zip(header, cells, strict=False))
    if header[0] == "system" and "samples/s" in row:
        found = [(heading, "samples/s", cells[0], row["samples/s"])]
    elif cells[0].endswith(", samples/s"):
        systems = [name for name in header[1:] if name in ("torch", OURS)]
        found = [(cells[0].removesuffix(", samples/s"), "samples/s", name, row[name]) for name in systems]
    elif "beside" in row and "samples/s, ratio" in row:
        found = [(cells[0], "samples/s, ratio", row["beside"], row["samples/s, ratio"])]
    else:
        found = []
    return [Chart(workload, unit, {system: value}) for workload, unit, system, text in found if (value := _spread_of(text))]


def _spread_of(text: str) -> Spread | None:
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]
    if not numbers:
        return None
    return Spread(numbers[0], *(numbers[1:3] if len(numbers) == 3 else numbers[:1] * 2))


def _merged(charts: Sequence[Chart]) -> list[Chart]:
    merged: dict[tuple[str, str], dict[str, Spread]] = {}
    for chart in charts:
        merged.setdefault((chart.workload, chart.unit), {}).update(chart.figures)
    return [Chart(workload, unit, figures) for (workload, unit), figures in merged.items()]


def draw(title: str, charts: Sequence[Chart], descriptions: Mapping[str, str] | None = None) -> str:
    """Return an SVG picture of charts, one below the other."""
    picture = Picture(_WIDTH, title)
    picture.text(16, 26, title, "strong")
    y = 46.0
    left = 32 + max(text_width(_NAMES.get(name, name)) for chart in charts for name in chart.figures)
    for chart in charts:
        description = (descriptions or {}).get(chart.workload)
        picture.text(16, y + 12, f"{chart.workload}: {description}" if description else chart.workload, "dim")
        compared = charts if chart.is_ratio else [chart]
        highest = max(value.high for each in compared for value in each.figures.values())
        y = _draw_bars(picture, chart, left, y + 22, (_WIDTH - left - _RIGHT) / highest) + 12
    picture.text(16, y + 4, _footnote(charts[0]), "small dim")
    return str(picture)


def _footnote(chart: Chart) -> str:
    lines = "lines show the lowest and highest of the repeats"
    return f"More than 1 is faster than the system named; {lines}." if chart.is_ratio else f"Bars are medians; {lines}."


def _draw_bars(picture: Picture, chart: Chart, left: float, y: float, per_unit: float) -> float:
    def place(value: float) -> float:
        return round(left + value * per_unit, 1)

    first_y = y
    for system, value in chart.figures.items():
        is_ours = chart.is_ratio or system.startswith(OURS)
        strong = "strong" if system.startswith(OURS) else ""
        picture.text(left - 10, y + 13, _NAMES.get(system, system), strong, "end")
        picture.bar(left, y, max(place(value.median) - left, 1), _BAR, "accent" if is_ours else "quiet")
        picture.line((place(value.low), y + _BAR / 2), (place(value.high), y + _BAR / 2))
        number = f"{value.median:,.2f} times" if chart.is_ratio else _number(value.median)
        picture.text(place(value.high) + 8, y + 13, number)
        y += _STEP
    if chart.is_ratio:
        picture.line((place(1), first_y - 4), (place(1), y - 2))
    return y


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def section_of(report: str, heading: str) -> str:
    """Return the text below a heading, with the headings below it."""
    match = re.search(rf"^(#+) {re.escape(heading)}$", report, re.MULTILINE)
    if match is None:
        raise ValueError(f"the report has no section {heading!r}")
    rest = report[match.end() :]
    end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def draw_documentation() -> dict[str, str]:
    """Return the pictures of the documentation by their names, drawn from the tables in docs/benchmarks/."""
    report = "".join(page.read_text("utf-8") for page in sorted((DOCS / "benchmarks").glob("*.md")))
    pictures = {}
    for name, plot in PICTURES.items():
        by_workload = {chart.workload: chart for chart in charts_of(section_of(report, plot.section))}
        charts = [_without(by_workload[workload], plot.without) for workload in plot.workloads]
        pictures[name] = draw(plot.title, charts, plot.workloads)
    return pictures


def _without(chart: Chart, systems: Collection[str]) -> Chart:
    return Chart(chart.workload, chart.unit, {name: value for name, value in chart.figures.items() if name not in systems})


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a report, or the pictures of the documentation."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path, nargs="?", help="a report in Markdown")
    parser.add_argument("picture", type=Path, nargs="?", help="the SVG file to write")
    options = parser.parse_args(arguments)
    if options.report is None:
        for name, text in draw_documentation().items():
            (DOCS / "pictures" / name).write_text(text, encoding="utf-8")
    elif options.picture is None:
        parser.error("name the SVG file to write")
    else:
        charts = charts_of(options.report.read_text("utf-8"))
        options.picture.write_text(draw(f"{options.report.stem}: samples per second", charts), encoding="utf-8")


if __name__ == "__main__":
    main()
