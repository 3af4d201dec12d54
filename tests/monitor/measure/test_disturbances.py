"""What distorts the figures of a loop: other programs on the CPUs, and a few calls that take long. Of made-up statistics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dali_like.monitor.measure.diagnosis import diagnose
from dali_like.monitor.measure.disturbances import load_finding, lost_to_others, outliers_finding
from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.statistics import SlowCall, Statistics
from dali_like.monitor.show.report import Report
from tests.monitor.made_up import everything


def busy_machine(delayed: float, cpu: float = 0.05, main_s: float = 0.1) -> Statistics:
    """Return statistics of a program on eight CPUs whose callbacks wait for a CPU for a share of their time."""
    made_up = everything()
    source = replace(made_up.sources[0], delayed_s=delayed * 8.0, cpu_s=cpu * 8.0)
    return replace(made_up, sources=(source,), cpu_s=main_s, load_average=13.04)


class TestOtherPrograms:
    def test_are_named_first_in_the_report(self) -> None:
        lines = str(Report(busy_machine(delayed=0.84))).splitlines()

        assert lines[2].startswith(
            "Other programs take the CPUs: the load is 13.0 on 8 CPUs, of which this program uses 0.1,"
        )
        assert "wait for a CPU 84% of their time" in " ".join(lines[2:4])
        assert next(line for line in lines[3:] if line.startswith("Bottleneck")).startswith("Bottleneck: workers")

    def test_are_part_of_the_sentence_of_pages_and_traces(self) -> None:
        assert diagnose(busy_machine(0.5)).texts(1.0)["sentence"].startswith("Other programs take the CPUs")

    @pytest.mark.parametrize(
        "statistics",
        [busy_machine(0.1), busy_machine(0.5, cpu=4.5), busy_machine(0.5, main_s=40.0), Statistics()],
        ids=["little delay", "own workers", "own threads", "nothing measured"],
    )
    def test_are_not_blamed_without_reason(self, statistics: Statistics) -> None:
        assert lost_to_others(statistics) == 0
        assert load_finding(statistics) == ""


def with_calls(*seconds: float) -> Statistics:
    made_up = everything()
    slowest = (SlowCall(410_000_000, 2537, 1, 0, 39),)
    return replace(made_up, sources=(replace(made_up.sources[0], callback=Durations.of(seconds), slowest=slowest),))


class TestOutliers:
    def test_are_named_with_their_share_of_the_time(self) -> None:
        text = outliers_finding(with_calls(*[0.004] * 990, *[0.4] * 10))

        assert text == (
            "1% of the calls of external_source of a_function_with_quite_a_long_name take 49% of the time of all, such as "
            "sample 2537 of epoch 0 410 ms."
        )
        assert text.replace("-", "") in " ".join(str(Report(with_calls(*[0.004] * 990, *[0.4] * 10))).split())

    @pytest.mark.parametrize(
        "seconds", [[0.004] * 1000, [0.004] * 900 + [0.02] * 100, [0.001] * 50 + [1.0]], ids=["equal", "spread", "few calls"]
    )
    def test_are_not_found_among_similar_or_few_calls(self, seconds: list[float]) -> None:
        assert outliers_finding(with_calls(*seconds)) == ""


def test_the_cpu_time_of_a_part_is_a_difference_and_the_load_the_current_one() -> None:
    before = busy_machine(0.5, main_s=1.0)
    part = replace(before, cpu_s=3.0, load_average=2.0).since(before)

    assert (part.cpu_s, part.load_average) == (2.0, 2.0)
