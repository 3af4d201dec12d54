"""``Pipeline.origins_of``: where the samples of a batch come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def
from dali_like.data import ComposedDataset
from dali_like.errors import OriginError
from dali_like.sources.origins import UNKNOWN, Origin
from dali_like.types import SampleInfo


def number(info: SampleInfo) -> Any:
    return np.array(info.idx_in_epoch)


def is_kept(value: int) -> bool:
    return value % 3 > 0


def as_array(value: int) -> Any:
    return np.array(value)


def numbers_in(batch: Any) -> list[int]:
    return [int(np.asarray(value).ravel()[0]) for value in batch[0]]


def pipeline_of(source: Any, **said: Any) -> Any:
    @pipeline_def(batch_size=4, py_num_workers=2, num_threads=1, py_start_method="fork", enable_checkpointing=True)
    def pipeline() -> Any:
        given = fn.external_source(source, batch=False, **said)
        return given + 0 if said.get("parallel") else given

    return pipeline()


@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "workers"])
def test_origins_of_a_callable_are_the_positions_in_the_epoch(parallel: bool) -> None:
    with pipeline_of(number, size=18, parallel=parallel) as pipe:
        for _ in range(2):
            for batch in pipe:
                assert pipe.origins_of(batch) == [Origin(number) for number in numbers_in(batch)]


@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "workers"])
@pytest.mark.parametrize("is_sharded", [False, True], ids=["random access", "logical shards"])
def test_origins_of_a_composed_dataset_are_the_indices_of_its_inputs(is_sharded: bool, parallel: bool) -> None:
    dataset = ComposedDataset.source(range(40)).shuffle(seed=5).map(as_array)
    if is_sharded:
        dataset = dataset.filter(is_kept)
    with pipeline_of(dataset, parallel=parallel) as pipe:
        for _ in range(2):
            for batch in pipe:
                assert [row.index for row in pipe.origins_of(batch)] == numbers_in(batch)
        pipe.reset()
        taken = pipe.run(), pipe.run()
        state = pipe.state_dict()
    with pipeline_of(dataset, parallel=parallel) as resumed:
        resumed.load_state_dict(state)
        batch = resumed.run()
        assert taken
        assert [row.index for row in resumed.origins_of(batch)] == numbers_in(batch)


def test_origins_of_a_reader_are_the_index_and_the_file(tmp_path: Path) -> None:
    names = [str(tmp_path / f"{i}.bin") for i in range(6)]
    for i, name in enumerate(names):
        Path(name).write_bytes(bytes([i]))

    @pipeline_def(batch_size=4, num_threads=1)
    def pipeline() -> Any:
        data, _ = fn.readers.file(files=names, random_shuffle=True, seed=3)
        return data + 0

    with pipeline() as pipe:
        for _ in range(3):
            batch = pipe.run()
            indices = numbers_in(batch)
            assert pipe.origins_of(batch) == [Origin(i, names[i]) for i in indices]


def test_origins_are_known_for_the_latest_batches_of_the_epoch() -> None:
    with pipeline_of(number, size=80) as pipe:
        batches = [pipe.run() for _ in range(10)]
        assert pipe.origins_of(batches[2])[0] == Origin(8)
        with pytest.raises(OriginError, match="not one of the last 8 batches"):
            pipe.origins_of(batches[1])
        with pytest.raises(OriginError, match="the tuple that run"):
            pipe.origins_of((*batches[9], batches[9][0])[:1])


def test_origins_behind_a_failed_batch_are_those_of_the_next_one() -> None:
    def failing(info: SampleInfo) -> Any:
        if info.iteration == 1:
            raise ValueError("broken")
        return np.array(info.idx_in_epoch)

    with pipeline_of(failing, size=16) as pipe:
        first = pipe.run()
        with pytest.raises(ValueError, match="broken"):
            pipe.run()
        batch = pipe.run()
        assert [row.index for row in pipe.origins_of(batch)] == [8, 9, 10, 11]
        with pytest.raises(OriginError):
            pipe.origins_of(first)


def test_origins_of_a_fed_input_are_unknown() -> None:
    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline() -> Any:
        return fn.external_source(name="fed")

    with pipeline() as pipe:
        pipe.feed_input("fed", np.zeros((2, 3)))
        batch = pipe.run()
        with pytest.raises(OriginError, match="the program feeds"):
            pipe.origins_of(batch)


@pytest.mark.parametrize("failing", [0, 5], ids=["in an earlier batch", "in the batch"])
def test_origins_in_logical_shards_raise_the_error_of_an_element_of_the_batch_alone(failing: int) -> None:
    calls: list[int] = []

    def fails_again(value: int) -> Any:
        calls.append(value)
        if value == failing and calls.count(value) > 1:
            raise FileNotFoundError(f"{value} is gone")
        return np.array(value)

    dataset = ComposedDataset.source(range(40)).filter(lambda value: value < 40).map(fails_again)
    with pipeline_of(dataset.with_options(shards=1)) as pipe:
        pipe.run()
        batch = pipe.run()
        if failing in numbers_in(batch):
            with pytest.raises(FileNotFoundError, match="is gone"):
                pipe.origins_of(batch)
        else:
            assert pipe.origins_of(batch) == [Origin(value) for value in numbers_in(batch)]


def test_origins_in_logical_shards_are_unknown_for_elements_that_on_error_has_replaced() -> None:
    def broken(value: int) -> Any:
        if value == 5:
            raise ValueError("broken")
        return np.array(value)

    dataset = ComposedDataset.source(range(40)).filter(lambda value: value < 40).map(broken)
    with pipeline_of(dataset, on_error=lambda info, error: np.array(-1)) as pipe:
        found = {}
        for batch in pipe:
            found.update(zip(numbers_in(batch), pipe.origins_of(batch), strict=True))
    assert found.pop(-1) == UNKNOWN
    assert all(row == Origin(value) for value, row in found.items())
