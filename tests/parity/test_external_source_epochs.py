"""Which SampleInfo samples are made with, where epochs end, and several sources: by the real DALI 1.53, and by dali_like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("nvidia.dali")

from dali_like.types import SampleInfo
from tests.parity.conftest import END, OURS, RESET, Library, play, values
from tests.parity.samples import Source

pytestmark = pytest.mark.peers

#: When sources say that the epoch has ended; batches have four samples.
ENDINGS: dict[str, Callable[[SampleInfo], bool]] = {
    "by iteration": lambda info: info.iteration >= 3,
    "by sample, in the middle of a batch": lambda info: info.idx_in_epoch >= 7,
    "by sample, at the start of a batch": lambda info: info.idx_in_epoch >= 8,
    "by sample, at the end of a batch": lambda info: info.idx_in_epoch >= 11,
    "by place in the batch": lambda info: info.iteration >= 2 and info.idx_in_batch >= 2,
    "at once": lambda info: True,
    "later in every epoch, at first at once": lambda info: info.idx_in_epoch >= 5 * info.epoch_idx,
    "earlier in every epoch": lambda info: info.idx_in_epoch >= 13 - 5 * info.epoch_idx,
}

#: How far ahead sources are asked: way, the pipeline's depth, the source's depth.
AHEAD = [("serial", 1, None), ("serial", 3, None), ("fork", 1, 1), ("fork", 2, 2), ("fork", 3, 1)]


def log_infos(
    library: Library,
    ends: Callable[[SampleInfo], bool],
    steps: Sequence[int | str],
    way: str,
    depth: int,
    source_depth: int | None,
) -> list[Any]:
    """The infos that the delivered samples were made with."""

    def source(info: SampleInfo) -> Any:
        if ends(info):
            raise StopIteration
        return np.int64([info.idx_in_epoch, info.idx_in_batch, info.iteration, info.epoch_idx])

    source_options = {} if source_depth is None else {"prefetch_queue_depth": source_depth}
    with library.source_pipeline(source, way, prefetch_queue_depth=depth, source_options=source_options) as pipe:
        return play(pipe, steps, values)


@pytest.mark.parametrize(("way", "depth", "source_depth"), AHEAD)
@pytest.mark.parametrize("ends", ENDINGS.values(), ids=ENDINGS)
def test_epochs_have_the_same_samples_and_ends(
    dali: Library, ends: Callable[[SampleInfo], bool], way: str, depth: int, source_depth: int | None
) -> None:
    steps = (6, RESET, 6, RESET, RESET, 6, RESET)

    theirs = log_infos(dali, ends, steps, way, depth, source_depth)

    assert log_infos(OURS, ends, steps, way, depth, source_depth) == theirs
    assert theirs.count(END) >= 3


def test_spawned_workers_are_told_the_same(dali: Library) -> None:
    ends = ENDINGS["later in every epoch, at first at once"]

    assert log_infos(OURS, ends, (2, RESET, 3, RESET, 4), "spawn", 2, 1) == log_infos(
        dali, ends, (2, RESET, 3, RESET, 4), "spawn", 2, 1
    )


@pytest.mark.parametrize(("way", "depth", "source_depth"), AHEAD)
def test_reset_before_the_first_run_changes_nothing(dali: Library, way: str, depth: int, source_depth: int | None) -> None:
    ends, steps = ENDINGS["by iteration"], (RESET, RESET, 5, RESET, 1)

    assert log_infos(OURS, ends, steps, way, depth, source_depth) == log_infos(dali, ends, steps, way, depth, source_depth)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_failures_beyond_the_end_of_the_epoch_are_not_raised(dali: Library, way: str) -> None:
    items = [np.int32([i]) for i in range(7)]

    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == len(items):
            raise StopIteration
        return items[info.idx_in_epoch]

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(source, way, workers=1, prefetch_queue_depth=3) as pipe:
            return play(pipe, (4, RESET, 4))

    assert program(OURS) == program(dali)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    lengths=st.lists(st.integers(0, 14), min_size=1, max_size=4),
    surplus=st.integers(0, 2),
    batch_size=st.integers(1, 6),
    workers=st.integers(1, 3),
    depths=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    parallel=st.booleans(),
)
def test_epochs_of_any_length_are_the_same(
    dali: Library, lengths: list[int], surplus: int, batch_size: int, workers: int, depths: tuple[int, int], parallel: bool
) -> None:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= lengths[min(info.epoch_idx, len(lengths) - 1)]:
            raise StopIteration
        return np.int64([info.idx_in_epoch, info.idx_in_batch, info.iteration, info.epoch_idx])

    def program(library: Library) -> list[Any]:
        steps = [step for length in lengths for step in (length // batch_size + 1 + surplus, RESET)]
        with library.source_pipeline(
            source,
            "fork" if parallel else "serial",
            batch_size=batch_size,
            workers=workers,
            prefetch_queue_depth=depths[0],
            source_options={"prefetch_queue_depth": depths[1]} if parallel else {},
        ) as pipe:
            return play(pipe, steps, values)

    assert program(OURS) == program(dali)


# Several sources


def tagged(tag: int, length: int) -> Source:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= length:
            raise StopIteration
        return np.int64([tag, info.idx_in_epoch, info.epoch_idx])

    return source


@pytest.mark.parametrize(
    "ways",
    [("serial", "serial"), ("fork", "fork"), ("serial", "fork"), ("fork", "serial"), ("fork", "serial", "fork")],
    ids=" and ".join,
)
@pytest.mark.parametrize("lengths", [(8, 8, 8), (6, 12, 9), (12, 6, 9), (0, 5, 5), (8, 9, 10)], ids=str)
def test_sources_advance_and_end_together(dali: Library, ways: tuple[str, ...], lengths: tuple[int, ...]) -> None:
    """Where lengths differ, the shortest ends the epoch, and the next one begins aligned."""

    def program(library: Library) -> list[Any]:
        def define() -> Any:
            return tuple(
                library.fn.external_source(
                    source=tagged(tag, length), batch=False, parallel=way != "serial", name=f"source_{tag}"
                )
                for tag, (way, length) in enumerate(zip(ways, lengths, strict=False))
            )

        with library.pipeline(define, "fork" if "fork" in ways else "serial", batch_size=3) as pipe:
            return play(pipe, (5, RESET, 2, 3, RESET, 5), values)

    assert program(OURS) == program(dali)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_sources_of_one_pipeline_may_share_a_callable(dali: Library, way: str) -> None:
    source = tagged(1, 9)

    def program(library: Library) -> list[Any]:
        def define() -> Any:
            return tuple(library.fn.external_source(source=source, batch=False, parallel=way != "serial") for _ in range(2))

        with library.pipeline(define, way) as pipe:
            return play(pipe, (4, RESET, 4), values)

    assert program(OURS) == program(dali)


def test_pipelines_run_side_by_side(dali: Library) -> None:
    def program(library: Library) -> list[Any]:
        with (
            library.source_pipeline(tagged(1, 9), "fork") as one,
            library.source_pipeline(tagged(2, 13), "fork") as two,
        ):
            return [play(pipe, steps, values) for steps in ((2,), (2, RESET), (2,)) for pipe in (one, two)]

    assert program(OURS) == program(dali)


class Weather:
    """Like NVIDIA's makani: knows 40 samples, and has 25 batches of four."""

    def __len__(self) -> int:
        return 40

    def __call__(self, info: SampleInfo) -> Any:
        if info.iteration >= 25:
            raise StopIteration
        return np.int64([info.idx_in_epoch])


class WeatherBatches:
    """The same as an iterable of batches."""

    def __len__(self) -> int:
        return 9

    def __iter__(self) -> Any:
        return iter([np.full((4, 1), i) for i in range(25)])


@pytest.mark.filterwarnings("ignore:.* which does not end the epoch:UserWarning")
@pytest.mark.parametrize(
    ("source", "way"),
    [(Weather(), "serial"), (Weather(), "fork"), (WeatherBatches(), "serial")],
    ids=["callable, serial", "callable, fork", "iterable"],
)
def test_length_of_a_source_does_not_end_its_epoch(dali: Library, source: Any, way: str) -> None:
    def epoch(library: Library) -> list[Any]:
        is_iterable = isinstance(source, WeatherBatches)
        options = {"batch": True, "cycle": "raise"} if is_iterable else {"batch": False}

        def define() -> Any:
            return library.fn.external_source(source=source, parallel=way != "serial", **options)

        with library.pipeline(define, way) as pipe:
            return play(pipe, [27], values)

    assert epoch(OURS) == epoch(dali)
    assert len(epoch(OURS)) >= 25
