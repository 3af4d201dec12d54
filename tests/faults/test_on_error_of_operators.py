"""`on_error` of a source covers the operators behind it, wherever these run."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import SampleError
from dali_like.types import SampleInfo

BATCH_SIZE = 4
LENGTH = 12
#: For each place of the operators: options of the source and of the pipeline.
PLACES: dict[str, tuple[bool, dict[str, Any]]] = {
    "forked workers": (True, {"py_num_workers": 2}),
    "thread workers": (True, {"py_num_workers": 2, "py_start_method": "thread"}),
    "threads behind workers": (True, {"py_num_workers": 1}),
    "threads behind a serial source": (False, {}),
}
IN_WORKERS = {"forked workers", "thread workers"}
BAD = {5, 6, 11}
TOO_SHORT = r"not inside the input of shape \(2,\)"


def numbers(info: SampleInfo) -> tuple[Any, Any]:
    """The data of each sample is three times its label, its index; or only twice, which is too short for the operator."""
    index = info.idx_in_epoch
    if index >= LENGTH:
        raise StopIteration
    is_bad = index in BAD and info.epoch_idx == 0  # workers are ahead, and would count samples of the next epoch
    return np.full(2 if is_bad else 3, index), np.int64(index)


def three_of(x: Any) -> Any:
    """An operator that fails for arrays of fewer elements."""
    return fn.slice(x, start=[0], shape=[3], axes=[0])


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make() -> Iterator[Callable[..., Pipeline]]:
    """Makes pipelines of a source, a failing operator, and one more operator behind it."""
    with_pipes: list[Pipeline] = []

    def make(place: str, on_error: Any, source: Any = numbers) -> Pipeline:
        parallel, options = PLACES[place]
        pipe = Pipeline(BATCH_SIZE, 2, None, seed=1, **options)
        with_pipes.append(pipe)
        with pipe:
            x, label = fn.external_source(
                source, num_outputs=2, batch=False, parallel=parallel, on_error=on_error, name="numbers"
            )
            pipe.set_outputs(three_of(x) + 0, label)
        pipe.build()
        assert set(pipe.operator_places.values()) == {"workers" if place in IN_WORKERS else "threads"}
        return pipe

    yield make
    for pipe in with_pipes:
        pipe.close()


def pairs_of(pipe: Pipeline) -> list[Any]:
    """The labels of each batch, after a comparison with the data; or the text of an exception."""
    batches: list[Any] = []
    while True:
        try:
            data, labels = pipe.run()
        except StopIteration:
            return batches
        except Exception as error:
            batches.append("too short" if "not inside the input of shape (2,)" in str(error) else repr(error))
        else:
            assert data.as_array().tolist() == [[label] * 3 for label in labels.as_array().tolist()]
            batches.append(labels.as_array().tolist())


def test_skip_takes_the_next_sample_with_its_label(make: Callable[..., Pipeline], place: str) -> None:
    pipe = make(place, "skip")

    # Without a next sample in the epoch, workers raise; threads know the batch only, and take the one before.
    last = "too short" if place in IN_WORKERS else [8, 9, 10, 10]
    assert pairs_of(pipe) == [[0, 1, 2, 3], [4, 7, 7, 7], last]
    assert pipe.statistics().replaced_samples == (2 if place in IN_WORKERS else 3)


@pytest.mark.parametrize("parallel", [True, False], ids=["worker", "thread"])
def test_failed_samples_of_a_stack_are_replaced_one_by_one(parallel: bool) -> None:
    """Operators compute several small samples of equal shapes at once, and do not know which one fails."""

    def source(info: SampleInfo) -> tuple[Any, Any]:
        is_bad = 20 <= info.idx_in_epoch < 40
        return np.full(2 if is_bad else 3, info.idx_in_epoch), np.int64(info.idx_in_epoch)

    options = {"py_num_workers": 1, "py_start_method": "thread"} if parallel else {}
    with closing(Pipeline(64, 1, None, **options)) as pipe:
        with pipe:
            x, label = fn.external_source(source, num_outputs=2, batch=False, parallel=parallel, on_error="skip")
            pipe.set_outputs(three_of(x) + 0, label)
        data, labels = pipe.run()

        assert labels.as_array().tolist() == [*range(20), *[40] * 20, *range(40, 64)]
        assert data.as_array().tolist() == [[label] * 3 for label in labels.as_array().tolist()]


def test_a_callable_replaces_the_sample_of_the_source(make: Callable[..., Pipeline], place: str) -> None:
    def replacement(info: SampleInfo, error: Exception) -> Any:
        number = 100 + info.idx_in_epoch if isinstance(error, SampleError) else 0
        return np.full(3, number), np.int64(number)

    pipe = make(place, replacement)

    assert pairs_of(pipe) == [[0, 1, 2, 3], [4, 105, 106, 7], [8, 9, 10, 111]]
    assert pipe.statistics().replaced_samples == 3


def test_by_default_the_error_is_raised(make: Callable[..., Pipeline], place: str) -> None:
    pipe = make(place, "raise")

    assert pairs_of(pipe) == [[0, 1, 2, 3], "too short", "too short"]
    assert pipe.statistics().replaced_samples == 0


def test_without_a_sample_that_succeeds_the_error_is_raised(make: Callable[..., Pipeline], place: str) -> None:
    def bad(info: SampleInfo) -> Any:
        return np.zeros(2), np.int64(0)

    with pytest.raises(SampleError, match=TOO_SHORT):
        make(place, "skip", bad).run()


@pytest.mark.parametrize(
    ("replacement", "message"),
    [((np.zeros(2), np.int64(0)), "not inside the input of shape"), (np.zeros(2), "on_error of .*'numbers'")],
    ids=["too short", "without label"],
)
def test_a_wrong_replacement_is_an_error(make: Callable[..., Pipeline], place: str, replacement: Any, message: str) -> None:
    pipe = make(place, lambda info, error: replacement)
    pipe.run()

    with pytest.raises(SampleError, match=message):
        pipe.run()


def test_other_sources_keep_their_samples(place: str) -> None:
    parallel, options = PLACES[place]
    with closing(Pipeline(BATCH_SIZE, 2, None, **options)) as pipe:
        with pipe:
            x, label = fn.external_source(numbers, num_outputs=2, batch=False, parallel=parallel, on_error="skip")
            other = fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False)
            pipe.set_outputs(three_of(x), label, other + 0)
        pipe.run()
        _, labels, others = pipe.run()

        assert labels.as_array().tolist() == [4, 7, 7, 7]
        assert others.as_array().tolist() == [4, 5, 6, 7]


def test_operators_of_several_sources_raise_their_errors(place: str) -> None:
    parallel, options = PLACES[place]
    with closing(Pipeline(BATCH_SIZE, 2, None, **options)) as pipe:
        with pipe:
            x, label = fn.external_source(numbers, num_outputs=2, batch=False, parallel=parallel, on_error="skip")
            other = fn.external_source(lambda info: np.int64([0]), batch=False)
            pipe.set_outputs(three_of(x + other), label)
        pipe.run()

        with pytest.raises(SampleError, match=TOO_SHORT):
            pipe.run()


@pytest.fixture
def broken_files(tmp_path: Path) -> list[Path]:
    """Files of three bytes, one of them shorter."""
    files = [tmp_path / f"{i}.bin" for i in range(LENGTH)]
    for i, file in enumerate(files):
        file.write_bytes(bytes(2 if i == 5 else 3))
    return files


@pytest.mark.parametrize("place", sorted(IN_WORKERS))
def test_errors_of_operators_in_workers_name_the_files_that_the_callback_has_read(
    make: Callable[..., Pipeline], place: str, broken_files: list[Path]
) -> None:
    def source(info: SampleInfo) -> Any:
        return np.fromfile(broken_files[info.idx_in_epoch], np.uint8), np.int64(0)

    pipe = make(place, "raise", source)
    pipe.run()

    with pytest.raises(SampleError, match=TOO_SHORT) as caught:
        pipe.run()
    assert f"the sample is from {broken_files[5]}" in caught.value.__notes__


@pytest.mark.parametrize("place", ["thread workers", "threads behind workers"])
def test_the_log_names_the_file_of_a_reader(place: str, broken_files: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    with closing(Pipeline(BATCH_SIZE, 2, None, **PLACES[place][1])) as pipe, caplog.at_level(logging.WARNING, "dali_like"):
        with pipe:
            data, labels = fn.readers.file(files=[*map(str, broken_files)], on_error="skip")
            pipe.set_outputs(three_of(data), labels)
        batches = [pipe.run()[1].as_array().ravel().tolist() for _ in range(2)]

    assert batches == [[0, 1, 2, 3], [4, 6, 6, 7]]
    text = next(record.getMessage() for record in caplog.records if "of idx_in_epoch 5 is" in record.getMessage())
    assert "the sample of idx_in_epoch 5 is replaced by that of idx_in_epoch 6: SampleError(" in text
    assert str(broken_files[5]) in text


def whole_batches(x: Any, least: int) -> Any:
    """An operator on whole batches that fails if a sample has fewer elements."""

    def function(batch: Sequence[Any]) -> list[Any]:
        if min(map(len, batch)) < least:
            raise SampleError("a sample is too short")
        return [*batch]

    return fn.python_function(x, function=function, batch_processing=True)


@pytest.mark.parametrize(
    ("define", "reason"),
    [
        (lambda x, _: whole_batches(x, 3), r"'numbers' .* fn\.python_function_\d computes whole batches"),
        (lambda x, _: three_of(whole_batches(x, 2)), r"'numbers' .* fn\.slice_\d depends on several sources or on whole"),
        (lambda x, start: fn.slice(x, start=start, shape=[3], axes=[0]), "'numbers', .*'others' .* depends on several"),
    ],
    ids=["whole batches", "behind whole batches", "several sources"],
)
@pytest.mark.parametrize("on_error", ["skip", lambda info, error: np.zeros(3)], ids=["skip", "callable"])
def test_an_error_that_no_policy_covers_says_so(define: Callable[[Any, Any], Any], reason: str, on_error: Any) -> None:
    with closing(Pipeline(BATCH_SIZE, 2, None)) as pipe:
        with pipe:
            x = fn.external_source(lambda info: numbers(info)[0], batch=False, on_error=on_error, name="numbers")
            start = fn.external_source(lambda info: np.zeros(1, np.int32), batch=False, on_error="skip", name="others")
            pipe.set_outputs(define(x, start))
        pipe.run()

        with pytest.raises(SampleError) as caught:
            pipe.run()

    assert [note for note in caught.value.__notes__ if re.match(f"on_error of external_source {reason}", note)]


def test_an_error_of_sources_without_a_policy_has_no_note_on_it() -> None:
    with closing(Pipeline(BATCH_SIZE, 2, None)) as pipe:
        with pipe:
            x = fn.external_source(lambda info: numbers(info)[0], batch=False, name="numbers")
            pipe.set_outputs(whole_batches(x, 3))
        pipe.run()

        with pytest.raises(SampleError) as caught:
            pipe.run()

    assert not any("on_error" in note for note in caught.value.__notes__)


def test_on_error_of_an_input_replaces_samples_that_operators_refuse() -> None:
    def replacement(info: SampleInfo, error: Exception) -> Any:
        return np.full(3, -info.idx_in_batch)

    with Pipeline(2, 1, None) as pipe:
        pipe.set_outputs(three_of(fn.external_source(name="fed", on_error=replacement)))
    with closing(pipe):
        pipe.feed_input("fed", [np.full(3, 7), np.full(2, 8)])

        assert pipe.run()[0].as_array().tolist() == [[7, 7, 7], [-1, -1, -1]]
