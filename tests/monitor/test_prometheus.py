"""Statistics in the text format of Prometheus."""

from __future__ import annotations

import re
from dataclasses import replace

from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.statistics import LoopStatistics, Statistics
from dali_like.monitor.prometheus import text
from tests.monitor.show.test_report import everything

_LINE = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"\n]*"(,\w+="[^"\n]*")*\})? [0-9.e+-]+)')


def values_of(page: str) -> dict[str, float]:
    """Return all samples of a page, by name and labels."""
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    names = [line.rpartition(" ")[0] for line in lines]
    assert len(set(names)) == len(names)
    return {name: float(line.rpartition(" ")[2]) for name, line in zip(names, lines, strict=True)}


def test_each_line_is_in_the_format() -> None:
    page = text(everything(num_sources=2), {"job": "train"})

    assert page.endswith("\n")
    assert [line for line in page.splitlines() if not _LINE.fullmatch(line)] == []


def test_each_metric_is_described_once_before_its_values() -> None:
    page = text(everything(num_sources=2))
    described: list[str] = re.findall(r"# TYPE (\w+)", page)

    assert len(described) == len(set(described))
    assert re.findall(r"# HELP (\w+)", page) == described
    for name in values_of(page):
        bare = re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", name)
        assert bare in described


def test_metrics_are_those_of_the_statistics() -> None:
    values = values_of(text(everything()))
    name = 'source="external_source of a_function_with_quite_a_long_name",number="0"'

    assert values["dali_like_batches_total"] == 101
    assert values["dali_like_worker_restarts_total"] == 1
    assert values['dali_like_worker_busy_seconds_total{worker="1"}'] == 4
    assert values[f"dali_like_made_samples_total{{{name}}}"] == 6400
    assert values["dali_like_held_bytes"] == 3e6


def test_histograms_add_up() -> None:
    wait = Durations.of([1e-7, 1e-4, 1e-4, 0.01, 1000.0])
    values = values_of(text(Statistics(loop=LoopStatistics(wait=wait))))
    buckets = {
        float(name.split('"')[1]): value for name, value in values.items() if name.startswith("dali_like_wait_seconds_bu")
    }

    assert list(buckets) == sorted(buckets)
    assert list(buckets.values()) == sorted(buckets.values())
    for limit, count in buckets.items():
        assert count == sum(second <= limit for second in (1e-7, 1e-4, 1e-4, 0.01, 1000.0))
    assert values["dali_like_wait_seconds_count"] == 5
    assert values["dali_like_wait_seconds_sum"] == 1000.0102001


def test_labels_of_the_user_s_are_with_each_value_and_escaped() -> None:
    [source] = everything().sources
    page = text(replace(everything(), sources=(replace(source, name='a "b"\\c\nd'),)), {"job": "train"})

    assert all('job="train"' in name for name in values_of(page))
    assert 'source="a \\"b\\"\\\\c\\nd"' in page
