"""``Pipeline.batch_at``: the batch of any iteration again, without workers, without disturbing the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.data import ComposedDataset
from dali_like.errors import ArgumentError, CheckpointError, NotRepeatableError, PipelineStateError, SampleIndexError
from dali_like.types import SampleInfo


def noise(info: SampleInfo) -> Any:
    return info.rng().random(3) + info.idx_in_epoch


def is_kept(number: int) -> bool:
    return number % 3 > 0


class Batches:
    """An iterable that begins anew in each epoch."""

    def __iter__(self) -> Iterator[Any]:
        return iter(np.arange(40.0).reshape(10, 4))


class Stateful(Batches):
    """An iterable with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[Any]:
        while self.at < 10:
            self.at += 1
            yield np.arange(4.0) + self.at
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def composed(sharded: bool = False) -> ComposedDataset:
    dataset = ComposedDataset.source(np.arange(30)).shuffle(seed=1)
    return dataset.filter(is_kept) if sharded else dataset


#: Sources with their options.
SOURCES: dict[str, tuple[Any, dict[str, Any]]] = {
    "callable": (noise, {"batch": False, "size": 36}),
    "batches": (lambda number: np.full(4, number), {"size": 9}),
    "iterable": (Batches(), {}),
    "stateful iterable": (Stateful(), {}),
    "composed": (composed(), {}),
    "composed in shards": (composed(sharded=True), {}),
    "rank": (noise, {"batch": False, "size": 36, "shard_id": 1, "num_shards": 2, "shard_rest": "drop"}),
}


@pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, seed=3, enable_checkpointing=True)
def numbers(name: str, parallel: bool = True) -> Any:
    source, options = SOURCES[name]
    samples = fn.external_source(source, parallel=parallel, **options)
    return samples + fn.random.uniform(range=[0, 0.5]), samples * 2


@pipeline_def(batch_size=4, num_threads=1, seed=3, enable_conditionals=True)
def branching() -> Any:
    numbers = fn.external_source(lambda info: np.float32(info.idx_in_epoch), batch=False, size=12)
    if numbers > 5:
        drawn = fn.random.uniform(range=[0, 0.5])
        result = numbers + drawn
    else:
        result = numbers * 100.0
    return result


def rows(outputs: Any) -> list[list[Any]]:
    return [[np.asarray(output.at(i)).tolist() for i in range(len(output))] for output in outputs]


def test_batch_of_a_pipeline_with_branches_is_the_same_again() -> None:
    with branching() as pipe:
        batches = [rows(outputs) for outputs in pipe]
        assert [rows(pipe.batch_at(0, iteration)) for iteration in range(3)] == batches


def check_epochs(pipe: Pipeline, num_epochs: int = 2, *, goes_back: bool = True) -> None:
    """Compare all batches with their repetitions, from states before and behind them, and in the middle of the loop."""
    for epoch in range(num_epochs):
        batches, states = [], []
        for outputs in pipe:
            batches.append(rows(outputs))
            states.append(json.loads(json.dumps(pipe.state_dict())))
            if len(batches) == 3 and goes_back:
                assert rows(pipe.batch_at(epoch, 2)) == batches[2]
                assert rows(pipe.batch_at(epoch, 0)) == batches[0]
        assert len(batches) >= 4
        for state in (states[0], states[-2]):
            first = 0 if goes_back else state["iteration"]
            for iteration, batch in enumerate(batches[first:], first):
                assert rows(pipe.batch_at(epoch, iteration, state)) == batch, (epoch, iteration)
        with pytest.raises(SampleIndexError, match=f"epoch {epoch} has no iteration 99"):
            pipe.batch_at(epoch, 99, states[0])


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("method", ["fork", "serial"])
def test_batches_of_all_sources_are_repeated_bit_for_bit(name: str, method: str) -> None:
    with closing(numbers(name, parallel=method == "fork")) as pipe:
        check_epochs(pipe, goes_back=name != "stateful iterable")


def test_an_iterable_with_a_state_does_not_go_back() -> None:
    with closing(numbers("stateful iterable")) as pipe:
        for _ in range(3):
            pipe.run()
        with pytest.raises(NotRepeatableError, match="has a state, which cannot go back"):
            pipe.batch_at(0, 1)


def test_spawned_workers_and_another_process_do_not_matter() -> None:
    with closing(numbers("callable", py_start_method="spawn")) as pipe:
        check_epochs(pipe, num_epochs=1)


def test_readers_are_repeated(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number}.txt").write_bytes(bytes([number]))

    @pipeline_def(batch_size=3, num_threads=1, py_num_workers=2, seed=5, enable_checkpointing=True)
    def files() -> Any:
        contents, labels = fn.readers.file(
            files=[str(tmp_path / f"{number}.txt") for number in range(12)], random_shuffle=True, name="files"
        )
        return contents, labels

    with closing(files()) as pipe:
        first = [rows(pipe.run()) for _ in range(3)]
        assert rows(pipe.batch_at(0, 1)) == first[1]
        assert rows(pipe.batch_at(0, 2, pipe.state_dict())) == first[2]


def test_conditionals_and_functions_are_repeated() -> None:
    pytest.importorskip("malt")

    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=1, seed=3, enable_conditionals=True)
    def branches() -> Any:
        samples = fn.external_source(noise, batch=False, parallel=True, size=20)
        result = samples
        if fn.random.coin_flip():
            result = fn.python_function(samples, function=lambda sample: sample * 10)
        return result + 1.0

    with closing(branches()) as pipe:
        batches = [rows(outputs) for outputs in pipe]
        assert [rows(pipe.batch_at(0, iteration)) for iteration in range(5)] == batches


def test_callables_need_no_state_and_no_earlier_epoch() -> None:
    with closing(numbers("callable", enable_checkpointing=False)) as pipe:
        assert rows(pipe.batch_at(1, 4)) != rows(pipe.batch_at(0, 4))
        epochs = [[rows(outputs) for outputs in pipe] for _ in range(2)]

        assert rows(pipe.batch_at(1, 4)) == epochs[1][4]


def test_only_the_samples_of_the_batch_are_computed() -> None:
    asked = []

    def sample(info: SampleInfo) -> Any:
        asked.append(info.idx_in_epoch)
        return np.zeros(1)

    pipe = Pipeline(4, num_threads=1)
    pipe.set_outputs(fn.external_source(sample, batch=False, size=40))
    with closing(pipe):
        pipe.batch_at(0, 6)

    assert asked == [24, 25, 26, 27]


def test_batches_stay_valid_after_the_pipeline() -> None:
    with closing(numbers("callable")) as pipe:
        again = pipe.batch_at(0, 1)
        expected = rows(again)
        for _ in range(4):
            pipe.batch_at(0, 2)

    assert rows(again) == expected


def test_errors_of_callbacks_name_the_sample() -> None:
    def sample(info: SampleInfo) -> Any:
        return np.zeros(1) if info.idx_in_epoch != 9 else 1 // 0

    pipe = Pipeline(4, num_threads=1, py_num_workers=1)
    pipe.set_outputs(fn.external_source(sample, batch=False, size=40, parallel=True))
    with closing(pipe), pytest.raises(ZeroDivisionError) as caught:
        pipe.batch_at(0, 2)

    assert any("idx_in_epoch 9" in note for note in caught.value.__notes__)


def _of(source: Any, **options: Any) -> Pipeline:
    pipe = Pipeline(4, num_threads=1, py_num_workers=2, enable_checkpointing=True)
    pipe.set_outputs(fn.external_source(source, **options))
    return pipe


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (None, {"name": "fed"}, "'fed' cannot be computed again: the program feeds it"),
        (iter([np.zeros(4)]), {}, "it is an iterator"),
        (Batches(), {"parallel": True, "sharded": True}, "each worker iterates its own part"),
    ],
)
def test_batch_that_depends_on_more_than_the_state_is_refused(source: Any, options: dict[str, Any], message: str) -> None:
    with closing(_of(source, **options)) as pipe, pytest.raises(NotRepeatableError, match=message):
        pipe.batch_at(0, 0)


def test_wrong_numbers_and_states_are_errors() -> None:
    with closing(numbers("iterable")) as pipe:
        pipe.run()
        state = pipe.state_dict()
        with pytest.raises(CheckpointError, match="the state is of epoch 0; pass one that was saved in epoch 1"):
            pipe.batch_at(1, 0, state)
        with pytest.raises(ArgumentError, match="iteration"):
            pipe.batch_at(0, -1)
    with (
        closing(numbers("iterable", enable_checkpointing=False)) as pipe,
        pytest.raises(PipelineStateError, match="enable_checkpointing=True"),
    ):
        pipe.batch_at(0, 0)
