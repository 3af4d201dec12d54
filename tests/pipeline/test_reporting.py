"""The properties and descriptions of pipelines: outputs, memory, graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import ArgumentClashError, ClosedError, NoOutputsError

MakePipeline = Callable[..., Pipeline]


def test_there_are_no_readers(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(1), "serial")

    assert pipe.epoch_size() == pipe.reader_meta() == pipe.executor_statistics() == {}
    for call in (pipe.epoch_size, pipe.reader_meta):
        with pytest.raises(ArgumentClashError, match="Operator train not found"):
            call("train")


# Shared memory


def test_shared_memory_of_parallel_sources(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(10_000, np.uint8), start_method)
    batches = [pipe.run() for _ in range(6)]

    statistics = pipe.external_source_shm_statistics()

    assert len(statistics["capacities"]) >= len(batches)
    assert all(40_000 <= capacity < 80_000 for capacity in statistics["capacities"])
    assert statistics["per_sample_capacities"] == [capacity // 4 for capacity in statistics["capacities"]]


def test_shared_memory_of_samples_of_many_sizes(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(10_000 + info.idx_in_epoch, np.uint8), "fork")
    for _ in range(6):
        pipe.run()

    assert all(capacity >= 40_000 for capacity in pipe.external_source_shm_statistics()["capacities"])


def test_shared_memory_of_two_sources_is_counted_once() -> None:
    one, other = (fn.external_source(source=lambda info: np.zeros(1), batch=False, parallel=True) for _ in range(2))
    pipe = Pipeline(4, py_num_workers=1)
    pipe.set_outputs(one, other)
    pipe.run()

    count = len(pipe.external_source_shm_statistics()["capacities"])
    pipe.close()

    assert 2 <= count <= 12


@pytest.mark.parametrize("state", ["before", "after"])
def test_no_shared_memory_without_workers(state: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(1), "serial" if state == "before" else "fork")
    pipe.run()
    if state == "after":
        pipe.close()

    assert pipe.external_source_shm_statistics() == {"capacities": [], "per_sample_capacities": []}


# Drawings


@pytest.fixture
def pipe() -> Pipeline:
    """Two outputs of one source, the second behind an operator, and a constant."""
    image, label = fn.external_source(
        source=lambda info: (np.zeros((2, 3)), np.zeros(1)), num_outputs=2, batch=False, parallel=True
    )
    pipe = Pipeline(4)
    pipe.set_outputs(image.shape(), label, 3)
    pipe.add_sink(image)
    return pipe


def drawing(pipe: Pipeline, path: Path, **options: Any) -> str:
    pipe.save_graph_to_dot_file(path / "pipeline.dot", **options)
    return (path / "pipeline.dot").read_text()


def edges(text: str) -> set[tuple[str, str]]:
    return set(re.findall(r'"([^"]+)" -> "([^"]+)";', text))


def test_drawing_of_the_graph(pipe: Pipeline, tmp_path: Path) -> None:
    text = drawing(pipe, tmp_path)

    assert text.startswith("digraph pipeline {\n")
    assert text.endswith("}\n")
    assert edges(text) == {
        ("__ExternalSource_0", "DataNode.shape_0"),
        ("DataNode.shape_0", "output 0"),
        ("__ExternalSource_0", "output 1"),
        ("__Constant_0", "output 2"),
        ("__ExternalSource_0", "sink 0"),
    }
    assert "color" not in text


def test_drawing_with_tensors(pipe: Pipeline, tmp_path: Path) -> None:
    assert edges(drawing(pipe, tmp_path, show_tensors=True)) == {
        ("__ExternalSource_0", "__ExternalSource_0[0]"),
        ("__ExternalSource_0", "__ExternalSource_0[1]"),
        ("__ExternalSource_0[0]", "DataNode.shape_0"),
        ("DataNode.shape_0", "DataNode.shape_0[0]"),
        ("__Constant_0", "__Constant_0[0]"),
        ("DataNode.shape_0[0]", "output 0"),
        ("__ExternalSource_0[1]", "output 1"),
        ("__Constant_0[0]", "output 2"),
        ("__ExternalSource_0[0]", "sink 0"),
    }


def test_drawing_in_colours(pipe: Pipeline, tmp_path: Path) -> None:
    text = drawing(pipe, tmp_path, use_colors=True)

    colours = dict(re.findall(r'"([^"]+)" \[color=(\w+)\]', text))
    assert set(colours) == {"__ExternalSource_0", "DataNode.shape_0", "__Constant_0"}
    assert len(set(colours.values())) == 3


def test_drawing_does_not_start_the_workers(pipe: Pipeline, tmp_path: Path) -> None:
    drawing(pipe, tmp_path)

    assert "not built" in repr(pipe)


def test_identities_are_deprecated(pipe: Pipeline, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="show_ids") as caught:
        pipe.save_graph_to_dot_file(tmp_path / "pipeline.dot", show_ids=True)

    assert caught[0].filename == __file__


def test_nothing_to_draw(tmp_path: Path, pipe: Pipeline) -> None:
    with pytest.raises(NoOutputsError):
        drawing(Pipeline(1), tmp_path)
    pipe.close()
    with pytest.raises(ClosedError):
        drawing(pipe, tmp_path)
    assert list(tmp_path.iterdir()) == []
