"""``dali-like bench`` and ``dali-like tune``: measurements, chosen settings, and printed tables."""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, cli, fn, pipeline_def
from dali_like.cli import bench, trials, tune
from dali_like.cli.factories import Factory, add_factory_arguments, factory_of
from dali_like.cli.reports import table
from dali_like.cli.stage_loads import busiest_stage
from dali_like.cli.trials import Outcome
from dali_like.errors import ArgumentError, TrialError
from dali_like.monitor.measure.statistics import OperatorStatistics, OperatorTime, Settings, SourceStatistics, Statistics
from dali_like.types import SampleInfo

SECONDS = 0.05
BATCH = 4

PROGRAM = """
import numpy as np
from dali_like import fn, pipeline_def

def sample(info):
    return np.full(8, info.idx_in_epoch)

@pipeline_def(batch_size=4, num_threads=1, py_num_workers=1)
def parallel():
    return fn.external_source(sample, batch=False, parallel=True)

@pipeline_def(batch_size=4, num_threads=1)
def serial(factor=1):
    return fn.external_source(sample, batch=False) * factor

def broken():
    raise ZeroDivisionError("no data")

def by_hand(py_num_workers):
    return parallel(py_num_workers=py_num_workers)

number = 3
made = serial()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create the module ``a_program`` in the current folder. Other programs on the CPUs are not mentioned."""
    monkeypatch.chdir(tmp_path)
    for command in (bench, tune):
        monkeypatch.setattr(command, "load_text", lambda busy, shares: "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "a_program.py"
    path.write_text(PROGRAM)
    yield path
    sys.modules.pop("a_program", None)


def options_of(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_factory_arguments(parser)
    return parser.parse_args(arguments)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, seconds: float = SECONDS) -> tuple[int, str, str]:
    """Run a subcommand. Return its exit status, stdout and stderr."""
    status = cli.main([*arguments, "--seconds", str(seconds)])
    return status, *capsys.readouterr()


# Which pipeline


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("where", ["a_program", "a_program.py"])
def test_a_function_is_named_by_its_module_or_file(where: str) -> None:
    pipe = factory_of(options_of(f"{where}:serial", "--with", "factor=2")).make(batch_size=2)
    assert pipe.run()[0].as_array().tolist() == [[0] * 8, [2] * 8]
    pipe.close()


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a_program", "use module:function"),
        ("a_program:nothing", "has no function nothing"),
        ("a_program:number", "has no function number"),
        ("a_program:made", "name the function that makes it"),
        ("no_program:serial", "no module no_program"),
        ("no_program.py:serial", "no such file: no_program.py"),
        ("a_program:sample", "a_program:sample needs info: pass --with info=..., or name a function that makes a pipeline"),
    ],
)
def test_a_missing_program_or_name_is_a_usage_error(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", name]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("program")
def test_a_function_that_cannot_be_told_the_settings_is_refused() -> None:
    factory = factory_of(options_of("a_program:by_hand"))
    factory.make(py_num_workers=3).close()
    with pytest.raises(ArgumentError, match="by_hand does not accept prefetch_queue_depth"):
        factory.make(prefetch_queue_depth=3, py_num_workers=1)


def test_a_function_that_makes_something_else_is_refused() -> None:
    with pytest.raises(ArgumentError, match="zeros returned an ndarray"):
        Factory(np.zeros, "zeros", {"shape": 3}).make()


@pytest.mark.usefixtures("program")
def test_arguments_are_read_as_python_writes_them_and_else_as_text() -> None:
    factory = factory_of(
        options_of("a_program:serial", "--with", "a=[1, 2]", "--with", "b=/data/photos", "--with", "c=None")
    )
    assert factory.given == {"a": [1, 2], "b": "/data/photos", "c": None}
    assert factory.line(py_num_workers=2) == "serial(a=[1, 2], b='/data/photos', c=None, py_num_workers=2)"


# The limit


BATCHES = 100


def source(busy_s: float, place: str = "workers", **given: Any) -> SourceStatistics:
    return SourceStatistics("load", place, batches=BATCHES, busy_s=busy_s, callback_s=busy_s / 2, **given)


@pytest.mark.parametrize(
    ("statistics", "load"),
    [
        (Statistics(settings=Settings(num_workers=4), sources=(source(8.0, operators_s=2.0),)), ("workers", 0.75)),
        (Statistics(settings=Settings(num_workers=4), sources=(source(3.0, is_bound=True),)), ("load", 0.75)),
        (Statistics(settings=Settings(num_workers=4), sources=(source(6.0, concurrency=8),)), ("workers", 0.75)),
        (Statistics(sources=(source(3.0, "main process"),)), ("main process", 0.75)),
        (
            Statistics(
                settings=Settings(num_threads=2),
                sources=(source(1.0, "main process"),),
                operators=OperatorStatistics(operator_times=(OperatorTime("a", 1.0), OperatorTime("b", 2.0))),
            ),
            ("threads", 0.75),
        ),
        (Statistics(settings=Settings(num_workers=1), sources=(source(9.0),)), ("workers", 1.0)),
    ],
    ids=["workers", "one worker iterates", "coroutines", "main process", "threads", "tasks longer than the run"],
)
def test_the_busiest_stage_sets_the_limit(statistics: Statistics, load: tuple[str, float]) -> None:
    assert busiest_stage(statistics, 2.0) == load


def test_a_rate_is_never_above_its_limit() -> None:
    assert outcome(100.0, share=0.8).limit_per_s == 125.0
    assert outcome(100.0, share=0.0).limit_per_s == math.inf


def ten(info: SampleInfo) -> Any:
    if info.idx_in_epoch >= 10:
        raise StopIteration
    return np.array(0)


# Trials


@pipeline_def(batch_size=BATCH, num_threads=1, py_num_workers=1)
def small(source: Callable[..., Any] = ten) -> Any:
    return fn.external_source(source, batch=False, parallel=True)


def ignore(done: float, rate: float) -> None:
    pass


def test_a_trial_measures_and_tells_its_progress() -> None:
    told: list[tuple[float, float]] = []
    outcome = trials.try_pipeline(small, SECONDS, lambda *how: told.append(how))
    assert outcome.samples_per_s > outcome.batches_per_s > 0
    assert outcome.first_batch_s > 0
    assert outcome.memory_bytes > 1 << 20
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_the_limit_is_measured() -> None:
    measured = trials.try_pipeline(small, SECONDS, ignore)
    assert measured.stage == "workers"
    assert 0 < measured.share_of_limit <= 1
    assert measured.limit_per_s >= measured.samples_per_s


def test_a_trial_leaves_this_process_as_it_is() -> None:
    changed = []

    def make() -> Pipeline:
        changed.append(1)
        return small()

    trials.try_pipeline(make, SECONDS, ignore)
    assert not changed


def test_an_exception_of_a_pipeline_in_a_trial_is_a_trial_error() -> None:
    def broken(info: SampleInfo) -> Any:
        raise ZeroDivisionError("no\ndata")

    with pytest.raises(TrialError, match=r"^ZeroDivisionError: no$") as error:
        trials.try_pipeline(lambda: small(broken), SECONDS, ignore)
    assert "in broken" in error.value.traceback


def test_a_trial_that_is_killed_is_told() -> None:
    def killed(info: SampleInfo) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    @pipeline_def(batch_size=BATCH, num_threads=1)
    def pipeline() -> Any:
        return fn.external_source(killed, batch=False)

    with pytest.raises(TrialError, match="was killed by SIGKILL"):
        trials.try_pipeline(pipeline, SECONDS, ignore)


def test_a_pipeline_without_batches_cannot_be_tried() -> None:
    def empty(info: SampleInfo) -> Any:
        raise StopIteration

    with pytest.raises(TrialError, match="has ended"):
        trials.try_pipeline(lambda: small(empty), SECONDS, ignore)


# bench


@pytest.mark.usefixtures("program")
def test_bench_prints_a_line_for_each_number_of_workers(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "bench", "a_program:parallel", "--workers", "2,1")
    lines = out.splitlines()
    assert (status, err) == (0, "")  # no progress bar without a terminal
    assert lines[0].split("   ")[0] == "workers"
    assert [line.split()[0] for line in lines[1:3]] == ["1", "2"]
    assert re.search(r"py_num_workers=[12], on \d+ CPUs", out)


@pytest.mark.usefixtures("program")
def test_bench_shows_the_gain_of_each_number_of_workers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter([outcome(100), outcome(160), outcome(200, share=0.5)])
    monkeypatch.setattr(bench, "try_pipeline", lambda make, seconds, on_progress: next(rates))
    _, out, _ = run(capsys, "bench", "a_program:parallel", "--workers", "1,2,4")
    gains = [re.findall(r"[+-]\d+%", line) for line in out.splitlines()[1:4]]
    assert gains == [[], ["+60%"], ["+12%"]]
    assert "The fastest is py_num_workers=4" in out
    assert "You have 1, at 50% of that rate" in out
    assert re.search(r"4 +200 +\+12% +400 +50% +workers", out.splitlines()[3])


@pytest.mark.parametrize(
    ("numbers", "message"), [("1;2", "expected numbers of workers such as 1,2,4, not '1;2'"), ("0", "at least one")]
)
def test_bench_refuses_wrong_numbers_of_workers(numbers: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "a_program:parallel", "--workers", numbers])

    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["bench", "tune"])
@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_wrong_times_are_refused(command: str, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([command, "a_program:parallel", "--seconds", seconds])

    assert "expected a positive number of seconds" in capsys.readouterr().err


@pytest.mark.usefixtures("program")
def test_bench_of_a_pipeline_without_workers(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "bench", "a_program:serial")
    assert status == 0
    assert "of the limit" in out
    assert "No source is parallel" in out


@pytest.mark.usefixtures("program")
def test_bench_shows_the_exception_of_the_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "bench", "a_program:broken")
    assert (status, out) == (1, "")
    assert "Traceback" in err
    assert "broken() cannot be measured: ZeroDivisionError: no data" in err


def test_columns_are_as_wide_as_they_have_to_be() -> None:
    assert table(["a", "long"], [["100", "1"], ["2", ""]]) == "  a   long\n100      1\n  2"


# tune

MIB = 1 << 20


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[dict[str, Any]], Outcome]], list[dict[str, Any]]]:
    """Replace measurements by a function of the settings. The returned list collects the tried settings."""

    def replace(outcome_of: Callable[[dict[str, Any]], Outcome]) -> list[dict[str, Any]]:
        tried: list[dict[str, Any]] = []

        def try_pipeline(make: Any, seconds: float, on_progress: Any) -> Outcome:
            tried.append({name: value for name, value in make.keywords.items() if name != "max_held_bytes"})
            return outcome_of(tried[-1])

        monkeypatch.setattr(tune, "try_pipeline", try_pipeline)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
        return tried

    return replace


def outcome(rate: float, memory: int = MIB, share: float = 0.8, enough_workers: int = 0) -> Outcome:
    return Outcome(rate, rate / BATCH, 0.1, memory, "workers", share, enough_workers=enough_workers)


Measured = Callable[[Callable[[dict[str, Any]], Outcome]], list[dict[str, Any]]]


def best_of(capsys: pytest.CaptureFixture[str], *arguments: str, name: str = "parallel") -> str:
    status, out, _ = run(capsys, "tune", f"a_program:{name}", *arguments)
    assert status == 0
    return out.splitlines()[-1]


@pytest.mark.usefixtures("program")
def test_tune_writes_the_fastest_settings_as_a_line_of_code(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    measured(
        lambda settings: outcome(
            100 * min(settings["py_num_workers"], 3)
            + 10 * (settings["prefetch_queue_depth"] == 4)
            + 50 * (settings["py_start_method"] == "spawn")
        )
    )
    assert best_of(capsys) == "parallel(prefetch_queue_depth=4, py_num_workers=4, py_start_method='spawn')"


@pytest.mark.usefixtures("program")
def test_tune_takes_less_where_more_brings_next_to_nothing(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    measured(lambda settings: outcome(100 + settings["py_num_workers"] / 2 + settings["prefetch_queue_depth"] / 10))
    assert best_of(capsys) == "parallel(prefetch_queue_depth=1, py_num_workers=1, py_start_method='fork')"


@pytest.mark.usefixtures("program")
def test_tune_keeps_within_the_memory_budget(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    measured(lambda settings: outcome(100 * settings["py_num_workers"], 100 * MIB * settings["py_num_workers"]))
    assert "py_num_workers=2" in best_of(capsys, "--memory", "200M")


@pytest.mark.usefixtures("program")
def test_tune_tries_more_workers_than_cpus_as_long_as_they_bring_much(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = measured(lambda settings: outcome(100 * min(settings["py_num_workers"], 16), enough_workers=40))
    assert "py_num_workers=16" in best_of(capsys)
    assert max(settings["py_num_workers"] for settings in tried) == 32


@pytest.mark.usefixtures("program")
def test_tune_repeats_only_settings_close_to_the_fastest(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    tried = measured(lambda settings: outcome(100 if settings["py_num_workers"] >= 2 else 50))
    assert "py_num_workers=2" in best_of(capsys)
    times = Counter(tuple(settings.items()) for settings in tried)
    assert {count for settings, count in times.items() if ("py_num_workers", 1) in settings} == {1}
    assert {count for settings, count in times.items() if ("py_num_workers", 1) not in settings} == {3}


Rates = dict[int, list[float]]


def by_workers(rates: Rates) -> Callable[[dict[str, Any]], Outcome]:
    """Return measurements by number of workers: the first, the second, and all later ones."""
    taken: Counter[int] = Counter()

    def measure(settings: dict[str, Any]) -> Outcome:
        workers = settings["py_num_workers"]
        taken[workers] += 1
        return outcome(rates[workers][min(taken[workers], 3) - 1])

    return measure


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ({1: [95, 95, 96], 2: [100, 100, 100], 4: [105, 100, 100]}, 2),
        ({1: [98, 98, 98], 2: [100, 100, 100], 4: [105, 100, 100]}, 1),
        ({1: [70, 99, 99], 2: [100, 100, 100], 4: [100, 100, 100]}, 1),
    ],
    ids=["one trial was fast", "a difference too small to matter", "one trial was slow"],
)
def test_tune_is_not_misled_by_one_trial(
    rates: Rates, chosen: int, measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(by_workers(rates))
    assert f"py_num_workers={chosen}" in best_of(capsys)


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    ("present", "chosen", "why"),
    [
        (2, 2, "the present value stays: 2"),
        (1, 1, "the present value stays: 1"),
        (8, 4, "the fastest on average is taken: 4"),
    ],
)
def test_tune_does_not_choose_from_noise(
    present: int, chosen: int, why: str, measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(by_workers({1: [85, 105, 90], 2: [86, 110, 92], 4: [120, 100, 102], 8: [10, 10, 10]}))
    status, out, _ = run(capsys, "tune", "a_program:parallel", "--with", f"py_num_workers={present}")

    assert status == 0
    assert f"Not decided: py_num_workers 1, 2, 4. Their measurements overlap; {why}." in out
    assert f"py_num_workers={chosen}" in out.splitlines()[-1]
    assert re.search(r"differ by up to 2[0-9]%", out)


@pytest.mark.usefixtures("program")
def test_settings_that_fail_are_shown_and_not_taken(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(settings: dict[str, Any]) -> Outcome:
        if settings["py_start_method"] == "spawn":
            raise TrialError("PicklingError: a lock")
        return outcome(100)

    measured(measure)
    status, out, _ = run(capsys, "tune", "a_program:parallel")
    assert status == 0
    assert re.search(r"spawn .*failed: PicklingError: a lock", out)
    assert "py_start_method='fork'" in out.splitlines()[-1]


@pytest.mark.usefixtures("program")
def test_tune_says_so_if_nothing_works(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    measured(lambda settings: outcome(100, 10 * MIB))
    status, out, _ = run(capsys, "tune", "a_program:parallel", "--memory", "1MiB")
    assert status == 1
    assert re.search(r"No settings work within 1 MiB; the smallest use was \d+ MiB: raise --memory\.", out)


@pytest.mark.usefixtures("program")
def test_threads_are_tried_where_operators_run_in_them(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    measured(lambda settings: outcome(100 * min(settings["num_threads"], 2)))
    assert best_of(capsys, name="serial") == "serial(prefetch_queue_depth=1, num_threads=2)"


@pytest.mark.usefixtures("program", "fonts")
def test_tune_draws_its_results(measured: Measured, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    measured(lambda settings: outcome(100))
    best_of(capsys, "--plot", str(tmp_path / "tune.svg"))
    assert "<svg" in (tmp_path / "tune.svg").read_text(encoding="utf-8")


@pytest.mark.usefixtures("program", "fonts")
def test_a_folder_for_the_picture_is_missed_before_measuring(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, err = run(capsys, "tune", "a_program:parallel", "--plot", str(tmp_path / "nowhere" / "tune.svg"))
    assert (status, out) == (2, "")
    assert f"there is no folder {tmp_path / 'nowhere'}" in err


@pytest.mark.usefixtures("program")
def test_tune_measures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "_choices", lambda settings: [("py_num_workers", [1])])
    monkeypatch.setattr(tune, "_worth_trying", lambda trials: None)
    assert "py_num_workers=1" in best_of(capsys)


@pytest.mark.parametrize(
    ("text", "nbytes"), [("100", 100), ("1K", 1024), ("512M", 512 << 20), ("1.5GiB", 3 << 29), ("2 tb", 2 << 40)]
)
def test_sizes_of_memory(text: str, nbytes: int) -> None:
    # Private: parses an option of the command line; a whole run of it takes seconds
    assert tune._bytes(text) == nbytes


def test_other_sizes_are_usage_errors() -> None:
    for text in ("many", "0", "0.1"):
        with pytest.raises(ArgumentError, match=f"--memory {text}: expected"):
            # Private: parses an option of the command line; a whole run of it takes seconds
            tune._bytes(text)
