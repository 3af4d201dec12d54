"""The other benchmark programs: limits, scale, comparison of commits, pictures. Figures are not checked."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import compare, plot, scale
from benchmarks.adapters import SYSTEMS, System
from benchmarks.limits import __main__ as limits
from benchmarks.limits.rows import GROUPS
from benchmarks.measurement import Measurement
from benchmarks.workloads import WORKLOADS

REPOSITORY = Path(__file__).resolve().parents[2]


def measurement(system: str, repeat: int, rate: float) -> Measurement:
    return Measurement(workload="tiny", system=system, repeat=repeat, batch_size=256, samples_per_s=rate)


class TestSystems:
    def test_only_ours_makes_samples_in_place(self) -> None:
        assert [name for name, system in SYSTEMS.items() if system.runs(WORKLOADS["in_place"])] == ["dali_like"]

    def test_those_that_stack_do_not_get_samples_of_different_sizes(self) -> None:
        assert {name for name, system in SYSTEMS.items() if not system.runs(WORKLOADS["encoded"])} == {
            *("grain", "spdl", "ray_data")
        }

    def test_missing_modules_are_found_without_importing_them(self) -> None:
        system = System(SYSTEMS["dali_like"].open, ("numpy", "no_such_module", "no_such.module_either"))

        assert system.missing == ["no_such_module", "no_such.module_either"]


class TestLimits:
    @pytest.mark.parametrize("group", ["main_cpu", "hand_over", "next_epoch", "slots"])
    def test_each_group_measures_the_figures_of_its_rows(self, group: str) -> None:
        figures = GROUPS[group].measure(0.02)

        assert set(figures) == {row.name for row in GROUPS[group].rows}
        assert all(figure.ours > 0 for figure in figures.values())

    def test_a_quick_run_writes_a_table(self, tmp_path: Path) -> None:
        options = ["--groups", "in_place", "--repeats", "1", "--seconds", "0.02", "--csv", str(tmp_path / "limits.csv")]
        command = [sys.executable, "-m", "benchmarks.limits", *options]

        finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)

        assert finished.returncode == 0, finished.stdout + finished.stderr
        assert "\n| in_place " in (tmp_path / "limits.md").read_text("utf-8")
        assert (tmp_path / "limits.csv").read_text("utf-8").startswith("figure,repeat,ours,limit\nin_place,0,")

    def test_rows_have_names_of_their_own(self) -> None:
        rows = limits.all_rows(GROUPS)

        assert len({row.name for row in rows}) == len(rows)

    def test_the_table_judges_ours_by_the_limit_of_the_same_run(self) -> None:
        measured = {
            "tiny": [(80.0, 100.0), (74.0, 100.0), (76.0, 100.0)],
            "import dali_like": [(200.0, 100.0)],
            "first batch of slow samples": [(1.0, 1.0)],
        }

        lines = limits.table(["tiny", "import", "slow"], measured).splitlines()[2:]

        assert [line.split("|")[4].split()[0] for line in lines] == ["0.76", "100", "1.00"]
        assert [line.split("|")[-2].strip() for line in lines] == ["yes", "NO", "yes"]

    def test_rows_without_a_measurement_have_no_line(self) -> None:
        assert len(limits.table(["tiny"], {}).splitlines()) == 2


class TestScale:
    def test_a_case_is_measured(self) -> None:
        cost = scale.measure(scale.Case(workers=16, sources=2, pipelines=2), seconds=0.02)

        assert all(math.isfinite(figure) and figure > 0 for figure in cost)

    def test_a_series_is_flat_where_the_most_cost_little_more_than_the_fewest(self) -> None:
        costs = {case: [scale.Cost(50.0 + case.workers, 50.0, 1.0)] for case in scale.SERIES["workers"]}

        assert scale.table(costs).splitlines()[-1] == (
            "workers, most to fewest: batch 3.42 times (NOT FLAT), sample 1.00 times (flat)"
        )


class TestCompare:
    def test_ratios_are_formed_within_a_repeat(self) -> None:
        rates = [("before", 0, 100.0), ("after", 0, 200.0), ("before", 1, 10.0), ("after", 1, 30.0), ("before", 2, 1.0)]

        lines = compare.ratios([measurement(*each) for each in rates]).splitlines()

        assert lines[-1].split("|")[1:3] == [" tiny           ", " 2.50 (2.00..3.00) "]

    def test_a_commit_is_checked_out_beside_the_benchmarks_of_now(self) -> None:
        if subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, check=False).returncode:
            pytest.skip("no git repository")

        with compare.checked_out("HEAD") as place:
            assert (place / "dali_like" / "__init__.py").exists()
            assert (place / "benchmarks" / "compare.py").read_text() == Path(compare.__file__).read_text()

        assert not place.exists()

    def test_without_a_commit_it_is_the_working_tree(self) -> None:
        with compare.checked_out(None) as place:
            assert place == REPOSITORY

    def test_commits_that_there_are_not(self) -> None:
        with pytest.raises(SystemExit, match="no_such_commit"), compare.checked_out("no_such_commit"):
            pass


class TestPlot:
    REPORT = """\
### tiny: batches of 256

| system    | samples/s              | MB/s |
|-----------|------------------------|------|
| dali_like | 2,500 (2,000..3,000)   | 1    |
| torch     | 500                    | 1    |
| ray_data  | -                      | -    |

### results

| workload         | dali_like  | torch      |
|------------------|------------|------------|
| dict, samples/s  | 20 (19..21) | 10 (9..11) |
| slow, first ms   | 7          | 8          |

| workload | beside | samples/s, ratio |
|---|---|---|
| resnet | DALI | 1.5 (1.4..1.6) |
"""

    def test_every_kind_of_table_is_read(self) -> None:
        charts = {chart.workload: chart for chart in plot.charts_of(self.REPORT)}

        assert list(charts) == ["tiny", "dict", "resnet"]
        assert charts["tiny"].figures == {"dali_like": plot.Spread(2500, 2000, 3000), "torch": plot.Spread(500, 500, 500)}
        assert list(charts["dict"].figures) == ["dali_like", "torch"]
        assert charts["resnet"].is_ratio

    def test_a_picture_of_a_report(self, tmp_path: Path) -> None:
        (tmp_path / "mine.md").write_text(self.REPORT)

        plot.main([str(tmp_path / "mine.md"), str(tmp_path / "mine.svg")])

        texts = [text.text for text in ElementTree.parse(tmp_path / "mine.svg").iter("{http://www.w3.org/2000/svg}text")]
        assert {"dali_like", "PyTorch", "2,500", "1.50 times"} <= set(texts)

    def test_pictures_of_the_documentation_agree_with_its_tables(self) -> None:
        """If this fails, run ``python -m benchmarks.plot``."""
        for name, drawn in plot.draw_documentation().items():
            assert (REPOSITORY / "docs" / "pictures" / name).read_text(encoding="utf-8") == drawn
