"""Progress bars of the iterators, and tqdm around loaders and pipelines."""

from __future__ import annotations

import io
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, progress
from dali_like.data import DataLoader
from dali_like.errors import ArgumentError, MissingExtraError
from dali_like.monitor.measure.statistics import Statistics
from dali_like.monitor.show.progress import EpochBar
from dali_like.plugin.numpy import DALIGenericIterator, DALIRaggedIterator
from tests.monitor.made_up import everything

MakePipeline = Callable[..., Pipeline]


class Bar:
    """Stand-in for tqdm, with the methods that the library uses."""

    bars: list[Bar]
    monitor_interval = 10

    def __init__(self, total: int | None, unit: str) -> None:
        self.total, self.unit, self.n, self.is_closed, self.postfix = total, unit, 0, False, ""
        self.bars.append(self)

    def update(self) -> None:
        assert not self.is_closed
        self.n += 1

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        self.postfix = text

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    """Replace tqdm. The returned list collects all bars."""
    module: Any = type(sys)("tqdm.auto")
    module.tqdm = type("tqdm", (Bar,), {"bars": []})
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    return module.tqdm.bars  # type: ignore[no-any-return]


@pytest.fixture
def ten(make_pipeline: MakePipeline) -> Pipeline:
    """Return a pipeline with epochs of ten samples, in batches of four."""
    options = {"size": 10, "last_batch_policy": "partial"}
    return make_pipeline(lambda info: np.array(info.idx_in_epoch), "serial", source_options=options)


def test_each_epoch_has_a_bar(ten: Pipeline, bars: list[Bar]) -> None:
    iterator = DALIGenericIterator(ten, ["index"], progress=True, auto_reset=True)
    for _ in range(2):
        assert len(list(iterator)) == 3

    assert [(bar.total, bar.n, bar.unit, bar.is_closed) for bar in bars] == [(3, 3, "batch", True)] * 2


def test_the_bar_is_there_before_the_first_batch(ten: Pipeline, bars: list[Bar]) -> None:
    iterator = DALIGenericIterator(ten, ["index"], progress=True)
    assert bars == []
    next(iterator)

    assert [bar.n for bar in bars] == [1]


def test_an_epoch_without_a_length_has_a_bar_too(make_pipeline: MakePipeline, bars: list[Bar]) -> None:
    pipe = make_pipeline(lambda info: np.array(info.idx_in_epoch), "serial")
    next(DALIGenericIterator(pipe, ["index"], progress=True))

    assert [(bar.total, bar.n) for bar in bars] == [(None, 1)]


def test_an_epoch_that_is_broken_off_ends_its_bar(ten: Pipeline, bars: list[Bar]) -> None:
    iterator = DALIGenericIterator(ten, ["index"], progress=True)
    next(iterator)
    iterator.reset()
    next(iterator)

    assert [bar.is_closed for bar in bars] == [True, False]


def test_the_bar_shows_the_waiting_time_of_the_loop(ten: Pipeline, bars: list[Bar]) -> None:
    list(DALIGenericIterator(ten, ["index"], progress=True))

    assert bars[0].is_closed
    assert bars[0].postfix.startswith("waiting ")


def test_no_thread_looks_after_it(ten: Pipeline, bars: list[Bar]) -> None:
    next(DALIRaggedIterator(ten, ["index"], progress=True))

    assert type(bars[0]).monitor_interval == 0


def test_without_the_argument_no_bar_appears(ten: Pipeline, bars: list[Bar]) -> None:
    list(DALIGenericIterator(ten, ["index"]))

    assert bars == []


def test_without_tqdm_the_extra_is_named(ten: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)

    with pytest.raises(MissingExtraError, match=r"progress=True needs tqdm.auto: pip install 'tqdm>=4\.66'"):
        DALIGenericIterator(ten, ["index"], progress=True)


# progress()


@pytest.mark.parametrize("kind", ["pipeline", "loader"])
def test_progress_draws_a_bar_for_an_epoch_of_a_pipeline_or_loader(ten: Pipeline, bars: list[Bar], kind: str) -> None:
    loader: DataLoader[Any] = DataLoader(np.arange(10), batch_size=4)

    assert len(list(progress(ten if kind == "pipeline" else loader))) == 3
    assert [(bar.total, bar.n, bar.is_closed) for bar in bars] == [(3, 3, True)]
    assert bars[0].postfix.startswith("waiting ")


def test_progress_counts_a_batch_when_the_loop_gets_it_and_ends_with_the_loop(ten: Pipeline, bars: list[Bar]) -> None:
    for _ in progress(ten):
        assert [(bar.n, bar.is_closed) for bar in bars] == [(1, False)]
        break

    assert bars[0].is_closed


def test_progress_keeps_no_batch(ten: Pipeline, bars: list[Bar]) -> None:
    batches = progress(ten)
    kept = weakref.ref(next(batches)[0])
    next(batches)

    assert kept() is None


def test_a_bar_names_the_bottleneck_of_the_epoch(bars: list[Bar]) -> None:
    now = [Statistics()]
    bar = EpochBar(lambda: now, "tqdm")
    bar.begin(lambda: 100)
    now = [everything()]
    bar.advance()
    bar.end()

    assert bars[0].postfix == "waiting 80% (workers)"


def test_a_bar_leaves_out_earlier_epochs(bars: list[Bar]) -> None:
    now = [everything()]
    bar = EpochBar(lambda: now, "tqdm")
    bar.begin(lambda: 100)
    bar.end()

    assert bars[0].postfix == "waiting 0%"


@pytest.mark.parametrize("wrong", ["bars", 1, None])
def test_another_library_is_refused(ten: Pipeline, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match='progress must be True, False, "tqdm" or "rich"'):
        DALIGenericIterator(ten, ["index"], progress=wrong)


def test_other_iterables_are_refused() -> None:
    with pytest.raises(ArgumentError, match="is for pipelines and loaders"):
        progress([1, 2])


def test_rich_draws_the_bar_too(ten: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich.progress")
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")

    assert len(list(DALIGenericIterator(ten, ["index"], progress="rich"))) == 3
    drawn = capsys.readouterr().out

    assert "3/3" in drawn
    assert "batches/s" in drawn
    assert "waiting" in drawn


# The real tqdm


@pytest.fixture(scope="module")
def real_tqdm() -> Any:
    """The real tqdm without its thread. Its lock remains, and on Python 3.14 also multiprocessing's resource tracker."""
    tqdm = pytest.importorskip("tqdm").tqdm
    tqdm.get_lock()
    return type("Bar", (tqdm,), {"monitor_interval": 0})


@pytest.mark.usefixtures("real_tqdm")
def test_the_real_tqdm_draws_it(ten: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    list(DALIGenericIterator(ten, ["index"], progress=True))
    drawn = capsys.readouterr().err

    assert "3/3" in drawn
    assert "waiting" in drawn


@pytest.mark.parametrize("kind", ["pipeline", "iterator", "loader"])
def test_tqdm_gets_the_length_of_pipelines_iterators_and_loaders(ten: Pipeline, kind: str, real_tqdm: Any) -> None:
    loader: DataLoader[Any] = DataLoader(np.arange(10), batch_size=4)
    batches = {"pipeline": lambda: ten, "iterator": lambda: DALIGenericIterator(ten, ["index"]), "loader": lambda: loader}
    screen = io.StringIO()
    assert len(list(real_tqdm(batches[kind](), file=screen))) == 3

    assert "3/3" in screen.getvalue()


def test_tqdm_around_a_pipeline_without_a_length(make_pipeline: MakePipeline, real_tqdm: Any) -> None:
    with real_tqdm(make_pipeline(lambda info: np.array(0), "serial"), file=io.StringIO()) as bar:
        assert bar.total is None


def test_rich_knows_the_length(ten: Pipeline) -> None:
    progress = pytest.importorskip("rich.progress")
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), force_terminal=False)
    with progress.Progress(console=console, disable=True) as bar:
        assert len(list(bar.track(ten))) == 3
        assert bar.tasks[0].total == 3
