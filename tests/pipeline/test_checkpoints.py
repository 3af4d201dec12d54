"""Checkpoints: a pipeline goes on exactly where another one was, and believes nothing that is not a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import CheckpointError, PipelineStateError
from dali_like.types import SampleInfo

END = "end"


def samples(info: SampleInfo) -> Any:
    if info.idx_in_epoch >= 10:
        raise StopIteration
    return np.array([info.epoch_idx, info.idx_in_epoch, info.rng().integers(1 << 30)])


def batches() -> Iterator[Any]:
    for number in range(3):
        yield np.full((2, 1), number)


SOURCES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "samples": (lambda: samples, {"batch": False}),
    "samples, the last batch too": (lambda: samples, {"batch": False, "last_batch_policy": "partial"}),
    "generator function": (lambda: batches, {}),
    "generator function, once": (lambda: batches, {"cycle": "no"}),
    "generator function, for ever": (lambda: batches, {"cycle": "quiet"}),
    "iterator": (lambda: iter([[number] * 2 for number in range(7)]), {}),
}


def pipeline_of(name: str, way: str, **options: Any) -> Pipeline:
    make, source_options = SOURCES[name]
    method = {} if way == "serial" else {"py_start_method": way, "py_num_workers": 2}
    pipe = Pipeline(4, **method, **{"enable_checkpointing": True, **options})
    pipe.set_outputs(fn.external_source(make(), parallel=way != "serial", **source_options))
    return pipe


def take(pipe: Pipeline, count: int) -> list[Any]:
    """So many steps; the end of an epoch is one, and reset() comes after it."""
    log: list[Any] = []
    for _ in range(count):
        try:
            log.append(pipe.run()[0].as_array().tolist())
        except StopIteration:
            log.append(END)
            pipe.reset()
    return log


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("name", SOURCES)
def test_every_position_is_gone_on_from(name: str, way: str) -> None:
    for position in (0, 1, 4, 8) if way == "fork" else range(9):  # starting workers takes its time
        with closing(pipeline_of(name, way)) as pipe:
            take(pipe, position)
            checkpoint = pipe.checkpoint()
            expected = take(pipe, 6)

        with closing(pipeline_of(name, way, checkpoint=checkpoint)) as pipe:
            assert take(pipe, 6) == expected, position


def test_other_workers_and_depths_go_on_alike() -> None:
    with closing(pipeline_of("samples", "serial")) as pipe:
        take(pipe, 2)
        checkpoint = pipe.checkpoint()
        expected = take(pipe, 5)

    with closing(pipeline_of("samples", "fork", checkpoint=checkpoint, prefetch_queue_depth=5)) as pipe:
        assert take(pipe, 5) == expected


def test_checkpoint_is_written_to_a_file(tmp_path: Any) -> None:
    with closing(pipeline_of("samples", "serial")) as pipe:
        take(pipe, 1)

        assert pipe.checkpoint(tmp_path / "checkpoint") == (tmp_path / "checkpoint").read_bytes()


def test_checkpoints_must_be_asked_for() -> None:
    with closing(pipeline_of("samples", "serial", enable_checkpointing=False)) as pipe, pytest.raises(PipelineStateError):
        pipe.checkpoint()


def valid() -> dict[str, Any]:
    with closing(pipeline_of("samples", "serial")) as pipe:
        words: dict[str, Any] = json.loads(pipe.checkpoint())
    return words


@pytest.mark.parametrize(
    "change",
    [
        {"format": "another"},
        {"version": 1},
        {"epoch": -1},
        {"epoch": 1.5},
        {"epoch": True},
        {"iteration": "0"},
        {"iteration": 1 << 70},
        {"ended": 1},
        {"seed": None},
        {"seed": 1 << 128},
        {"sources": None},
        {"sources": [None]},
        *(
            {"sources": [{"position": 0, "states": {}, "dataset": None, **wrong}]}
            for wrong in (
                *({"position": -1}, {"position": [[]]}, {"states": None}, {"states": {"a": [0, None]}}, {"dataset": 0}),
                *(
                    {"states": {"0": entry}}
                    for entry in (0, [], [0], [-1, None], [True, None], [0, None, -1], [0, None, 0, 0])
                ),
            )
        ),
        {"num_shards": 1.0},
        {"batch_size": None},
        {"another": 1},
        {"iterator": 1},
        {"iterator": {"size": 8}},
        *(
            {"iterator": {"size": 8, "first": 0, "count": 4, "persists": False, "ended": False, **wrong}}
            for wrong in ({"size": None}, {"first": 0.0}, {"count": -1}, {"persists": 0}, {"ended": 1}, {"another": 1})
        ),
    ],
    ids=str,
)
def test_a_damaged_checkpoint_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        pipeline_of("samples", "serial", checkpoint=json.dumps(valid() | change))


@pytest.mark.parametrize("data", [b"", b"garbage", b"\xff\x00", "[" * 100_000, b"[]", b"null", 7, object()], ids=range(8))
def test_garbage_is_refused(data: Any) -> None:
    with pytest.raises(CheckpointError):
        pipeline_of("samples", "serial", checkpoint=data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 5}, "batch_size=5, not batch_size=4$"),
        ({"sources": []}, "0 sources, not 1"),
        (
            {"sources": [{"position": 3, "states": {}, "dataset": None}]},
            "source 0 is an iterator in the checkpoint, and not in this pipeline",
        ),
    ],
)
def test_checkpoint_of_another_pipeline_is_refused(change: dict[str, Any], words: str) -> None:
    pipe = pipeline_of("samples", "serial", checkpoint=json.dumps(valid() | change))

    with closing(pipe), pytest.raises(CheckpointError, match=words):
        pipe.run()


def test_source_that_is_not_told_where_to_go_on_is_pointed_out() -> None:
    pipe = Pipeline(4, enable_checkpointing=True, checkpoint=json.dumps(valid()))
    pipe.set_outputs(fn.external_source(lambda: np.zeros(1), batch=False))

    with closing(pipe), pytest.warns(UserWarning, match="starts at its beginning"):
        pipe.run()
