"""The waiting of a loop by stage, and the rank that holds the job up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dali_like.monitor.measure.stages import waiting_by_stage
from dali_like.monitor.measure.statistics import (
    CopyStatistics,
    Durations,
    LoopStatistics,
    OperatorStatistics,
    OperatorTime,
    SourceStatistics,
    Statistics,
)
from dali_like.monitor.show.report import Report
from dali_like.monitor.show.slowest_rank import slowest_rank_text

BATCHES = 100
TIMES = (OperatorTime("fn.decoders.image_0", 5.0), OperatorTime("fn.resize_1", 2.0))


def loop(wait_s: float = 0.04, **given: float) -> LoopStatistics:
    wait = Durations(wait_s * BATCHES, Durations.of([wait_s] * BATCHES).counts)
    return LoopStatistics(BATCHES + 1, wait=wait, work=Durations.of([0.01] * BATCHES), **given)


def source(place: str = "workers", **given: Any) -> SourceStatistics:
    return SourceStatistics("external_source of load", place, batches=BATCHES, busy_s=8.0, **given)


def shares(statistics: Statistics) -> dict[str, float]:
    stages = waiting_by_stage(statistics)
    assert sum(stage.wait_s for stage in stages) == pytest.approx(0.04)
    assert sum(stage.share for stage in stages) == pytest.approx(1)
    return {stage.name: round(stage.share, 3) for stage in stages}


def test_waiting_for_workers_is_divided_by_their_work() -> None:
    in_workers = source(callback_s=0.5, operators_s=7.0, operator_times=TIMES)
    statistics = Statistics(loop=loop(waited_for_workers_s=4.0), sources=(in_workers,))

    assert shares(statistics) == {"fn.decoders.image_0": 0.625, "fn.resize_1": 0.25, "load": 0.062, "writing": 0.062}
    assert list(shares(statistics)) == sorted(shares(statistics), key=lambda name: -shares(statistics)[name])


def test_waiting_for_threads_is_divided_among_their_operators() -> None:
    operators = OperatorStatistics(Durations.of([0.05] * BATCHES), TIMES)
    statistics = Statistics(loop=loop(waited_for_operators_s=4.0), operators=operators)

    assert shares(statistics) == {"fn.decoders.image_0": 0.714, "fn.resize_1": 0.286}


def test_callbacks_in_the_main_process_copies_and_the_rest() -> None:
    statistics = Statistics(
        loop=loop(), sources=(replace(source("main process"), busy_s=2.0),), copies=CopyStatistics(BATCHES, 0, 0.0, 1.0)
    )

    assert shares(statistics) == {"load": 0.5, "copies to the GPU": 0.25, "assembly": 0.25}


def test_without_waiting_there_are_no_stages() -> None:
    assert waiting_by_stage(Statistics()) == []
    assert waiting_by_stage(Statistics(loop=loop(0.0))) == []


def test_the_report_has_stages_and_operators() -> None:
    in_workers = source(
        callback_s=0.5, operators_s=7.0, operator_times=TIMES, callback=Durations.of([0.001] * 90 + [0.005] * 10)
    )
    text = str(Report(Statistics(loop=loop(waited_for_workers_s=4.0), sources=(in_workers,))))

    assert "  for fn.decoders.image_0 62%, fn.resize_1 25%, load 6%" in text
    assert f"{'    fn.decoders.image_0':38}{'5.0 s':>9}{'62%':>8}" in text
    assert "71% of that is fn.decoders.image_0" in text
    assert "calls by time: 918 us █        ▁ 5.2 ms" in text


# Ranks


def shown(rank: int, wait_s: float, stage: str = "fn.decoders.image_0", num_ranks: int = 3, batches: int = 50) -> Any:
    return {
        "rank": rank,
        "num_ranks": num_ranks,
        "recent": {
            "batches": batches,
            "wait_s": wait_s,
            "wait_share": wait_s / 0.1,
            "stages": [{"name": stage, "wait_s": wait_s, "share": 1.0}] if wait_s else [],
        },
    }


def test_the_rank_that_waits_for_data_holds_the_others_up() -> None:
    text = slowest_rank_text([shown(0, 0.001), shown(1, 0.002), shown(2, 0.04, "decode")])

    assert text == (
        "Rank 2, stage decode, holds the job up: it waits 40 ms a batch for data, 40% of its time; the other ranks 1.5 ms."
    )


def test_ranks_with_equal_waits_have_no_slowest_rank() -> None:
    text = slowest_rank_text([shown(0, 0.030), shown(1, 0.035), shown(2, 0.04, "decode")])

    assert text.startswith("All ranks wait for data alike; rank 2, stage decode, the longest: it waits 40 ms a batch")


def test_no_rank_may_wait() -> None:
    assert (
        slowest_rank_text([shown(0, 0.0), shown(1, 0.001)])
        == "No rank waits for data: rank 1 waits longest, 1% of its time."
    )


@pytest.mark.parametrize(
    "snapshots",
    [
        [],
        [shown(0, 0.04)],
        [shown(0, 0.04, num_ranks=1), shown(0, 0.01, num_ranks=1)],
        [shown(0, 0.04), shown(1, 0.0, batches=0)],
    ],
    ids=["none", "one rank", "no ranks", "one without batches"],
)
def test_there_is_nothing_to_compare(snapshots: list[Any]) -> None:
    assert slowest_rank_text(snapshots) == ""


def test_of_two_loops_of_a_rank_the_one_that_waits_longer_counts() -> None:
    assert slowest_rank_text([shown(0, 0.04), shown(0, 0.0), shown(1, 0.001)]).startswith("Rank 0, stage")
