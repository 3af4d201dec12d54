"""The programs of docs/statistics.md run, with stand-ins for the loggers of other libraries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dali_like.monitor.measure import statistics
from dali_like.monitor.scalars import scalars
from tests.documents import DOCS, program_of
from tests.monitor.made_up import everything

STATISTICS = DOCS / "statistics.md"


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[dict[str, Any]]:
    """Run the page's program. Return its variables."""
    names: dict[str, Any] = {"__name__": "statistics", "folder": str(tmp_path)}
    exec(compile(program_of(STATISTICS, "python"), STATISTICS, "exec"), names)
    yield names
    names["pipe"].close()
    names.clear()


def run_recipe(names: dict[str, Any], language: str, batches: int = 61) -> None:
    exec(compile(program_of(STATISTICS, f"python {language}"), STATISTICS, "exec"), names)
    for _ in range(batches):
        names["pipe"].run()


def test_the_page_s_program_prints_reports(program: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    printed = capsys.readouterr().out

    assert printed.count("Bottleneck: ") == 2
    assert printed.startswith("Pipeline: 50 batches of 16")


def test_tensorboard(program: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            pass

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=SummaryWriter))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch.utils", SimpleNamespace())
    run_recipe(program, "tensorboard")

    rates = [(value, step) for name, value, step in written if name == "data/batches_per_s"]
    assert [step for _, step in rates] == [120, 140, 160]
    assert all(value > 0 for value, _ in rates)


def test_weights_and_biases(program: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, float]] = []

    class Run:
        def log(self, values: dict[str, float], commit: bool) -> None:
            logged.append(values)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda project: Run()))
    run_recipe(program, "wandb")

    assert len(logged) == 3
    assert logged[0].keys() == scalars(everything()).keys()


def test_prometheus(program: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exec(compile(program_of(STATISTICS, "python prometheus"), STATISTICS, "exec"), program)
    program["export"](None)

    page = (tmp_path / "dali_like.prom").read_text()
    assert 'dali_like_batches_total{job="training"} 100' in page.splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["dali_like.prom"]


# Logged names, and names on the page


def test_scalars_are_numbers_of_a_part_of_the_time() -> None:
    values = scalars(everything(num_sources=2), "x/")

    assert values["x/batches_per_s"] == pytest.approx(20)
    assert values["x/wait_share"] == pytest.approx(0.8)
    assert values["x/workers_busy_share"] == pytest.approx(0.8)
    assert values["x/source_1/mean_ready"] == 2.5
    assert all(type(value) is float for value in values.values())


@pytest.mark.parametrize("name", statistics.__all__)
def test_every_field_is_told_on_the_page(name: str) -> None:
    kind, text = getattr(statistics, name), STATISTICS.read_text("utf-8")
    names = getattr(kind, "__dataclass_fields__", None) or kind._fields
    properties = [name for name, value in vars(kind).items() if isinstance(value, property)]
    names = [name for name in (*names, *properties) if name != "counts"]  # the other properties derive from `counts`

    assert [name for name in names if f"`{name}" not in text and f".{name}" not in text] == []
