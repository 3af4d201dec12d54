"""``profile()`` of loaders and pipelines: where the functions of the program are, in all workers."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def
from dali_like.data import ComposedDataset, DataLoader
from dali_like.engine.worker.sampling import StackSampler
from dali_like.errors import PipelineStateError
from dali_like.monitor.profile.profile import Profile
from dali_like.types import SampleInfo
from tests.data.loader_cases import MANY_WORKERS

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

WAYS: dict[str, dict[str, Any]] = {
    "serial": {},
    "thread": {"num_workers": 2, "multiprocessing_context": "thread"},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "spawn": {"num_workers": 1, "multiprocessing_context": "spawn"},
}


def slept(index: int) -> int:
    time.sleep(0.03)
    return index


class Sleepy:
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        return slept(index)


def test_profile_names_the_line_and_the_workers_in_several_epochs() -> None:
    for way, options in WAYS.items():
        loader = DataLoader(Sleepy(), 2, **options)
        with loader.profile() as profiling:
            for _ in range(2):
                assert len(list(loader)) == 8

        profile = profiling.profile
        (line,) = profile.functions(1)
        assert (line.function, line.path) == ("slept", __file__), way
        assert line.share > 0.7
        assert set(profile.workers) <= {"main", "worker 0", "worker 1"}
        assert ("main" in profile.workers) == (way == "serial")
        assert str(profile.lines()[0]) in str(loader.report())


def test_profile_of_a_pipeline_is_written_to_a_file(tmp_path: Path) -> None:
    def sample(info: SampleInfo) -> Any:
        return np.array(slept(info.idx_in_epoch))

    @pipeline_def(batch_size=4, py_num_workers=1, num_threads=1, py_start_method="fork")
    def pipeline() -> Any:
        return fn.external_source(sample, batch=False, parallel=True, size=24)

    path = tmp_path / "profile.json"
    with pipeline() as pipe:
        with pipe.profile(path):
            assert len(list(pipe)) == 6
        assert "hottest lines" in str(pipe.report())

    saved = Profile.from_json(json.loads(path.read_text()))
    assert saved.functions(1)[0].function == "slept"


def test_profile_of_threads_that_read_has_their_functions() -> None:
    loader = DataLoader(Sleepy(), 4, num_workers=1, multiprocessing_context="fork", read_threads=4)
    with loader.profile() as profiling:
        list(loader)

    assert "slept" in {frame.function for counts in profiling.profile.workers.values() for s in counts.stacks for frame in s}


def test_profile_of_a_composed_dataset_has_its_functions() -> None:
    loader = DataLoader(ComposedDataset.source(range(16)).map(slept).filter(bool), 2, num_workers=1)
    with loader.profile() as profiling:
        list(loader)

    assert profiling.profile.functions(1)[0].function == "slept"


def test_profile_of_running_workers_begins_behind_their_task_and_can_be_read_meanwhile() -> None:
    loader = DataLoader(Sleepy(), 1, num_workers=1, multiprocessing_context="fork", persistent_workers=True)
    batches = iter(loader)
    next(batches)
    with loader.profile() as profiling:
        while not profiling.profile.total.samples:
            next(batches)
        rest = len(list(batches))
    before = profiling.profile.total

    assert rest
    list(loader)
    assert profiling.profile.total == before


def test_second_profile_at_the_same_time_is_refused() -> None:
    loader = DataLoader(Sleepy(), 2)
    with loader.profile(), pytest.raises(PipelineStateError, match="being profiled already"), loader.profile():
        pass
    with loader.profile():
        pass


def test_workers_without_a_profile_have_no_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(StackSampler, "__init__", fail)
    loader = DataLoader(Sleepy(), 8, **WAYS["fork"])

    assert len(list(loader)) == 2


def test_profile_of_a_loader_that_has_been_dropped_has_its_workers() -> None:
    loader = DataLoader(Sleepy(), 4, num_workers=1)
    profiling = loader.profile()
    with profiling:
        list(loader)
        del loader
        gc.collect()

    assert "worker 0" in profiling.profile.workers
    assert profiling.profile.functions(1)[0].function == "slept"


def test_profile_of_a_loader_with_workers_has_no_functions_of_other_loaders() -> None:
    loader, other = DataLoader(Sleepy(), 4, num_workers=1), DataLoader(Sleepy(), 4)
    with loader.profile() as profiling:
        list(loader)
        list(other)

    assert set(profiling.profile.workers) == {"worker 0"}
