"""`fn.external_source(on_error=...)`: replacements of samples that could not be computed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.errors import (
    ArgumentError,
    DtypeMismatchError,
    NdimMismatchError,
    OutputCountError,
    SampleTypeError,
    WorkerDiedError,
)
from dali_like.types import SampleInfo
from tests.faults.streams import Source, die_of_sigkill

BATCH_SIZE = 4
LENGTH = 16

MakePipeline = Callable[..., Pipeline]


@pytest.fixture(params=["serial", "fork"])
def way(request: pytest.FixtureRequest) -> str:
    """How sources are called. Spawned workers do the same; one test shows that they get the option."""
    return str(request.param)


@pytest.fixture
def make(make_pipeline: MakePipeline) -> MakePipeline:
    """`make_pipeline` for a source called 'numbers' with an ``on_error``."""

    def make(source: Source, way: str, on_error: Any, **options: Any) -> Pipeline:
        return make_pipeline(source, way, source_options={"name": "numbers", "on_error": on_error}, **options)

    return make


def bad_at(indices: Collection[int], *, length: int = LENGTH, epochs: int = 1) -> Source:
    """Each sample is its own index in the epoch, but that some cannot be made in the first epochs."""

    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= length:
            raise StopIteration
        if info.idx_in_epoch in indices and info.epoch_idx < epochs:
            raise ValueError(f"sample {info.idx_in_epoch} is bad")
        return np.int64(info.idx_in_epoch)

    return source


#: A sample far enough from the first batch for types to be settled that have not been declared, and its batch.
LATE = 22
LATE_BATCH = [20, 21, 22, 23]


def wrong_at_late(wrong: Any) -> Source:
    """Each sample is its own index in the epoch, but for one."""

    def source(info: SampleInfo) -> Any:
        return wrong if info.idx_in_epoch == LATE else np.int64(info.idx_in_epoch)

    return source


def run_until_late(pipe: Pipeline) -> None:
    """Receive the batches before that with the sample `LATE`."""
    for first in range(0, LATE_BATCH[0], BATCH_SIZE):
        assert pipe.run()[0].as_array()[0] == first


def samples_of(pipe: Pipeline) -> list[Any]:
    """An epoch: the samples of each batch, or the text of the exception in its place."""
    batches: list[Any] = []
    while True:
        try:
            batches.append([np.asarray(sample).tolist() for sample in pipe.run()[0]])
        except StopIteration:
            return batches
        except Exception as error:
            batches.append(str(error))


class TestRaise:
    @pytest.mark.parametrize("options", [{}, {"on_error": "raise"}], ids=["by default", "explicitly"])
    def test_raises_the_exception_in_place_of_the_batch(
        self, options: dict[str, Any], make_pipeline: MakePipeline, way: str
    ) -> None:
        pipe = make_pipeline(bad_at({6}), way, source_options=options)

        assert samples_of(pipe) == [[0, 1, 2, 3], "sample 6 is bad", [8, 9, 10, 11], [12, 13, 14, 15]]
        assert pipe.statistics().replaced_samples == 0


class TestSkip:
    @pytest.mark.parametrize("way", ["serial", "fork", "spawn"])
    def test_puts_the_next_sample_in_the_place_and_shifts_nothing(self, make: MakePipeline, way: str) -> None:
        pipe = make(bad_at({6}), way, "skip")

        assert samples_of(pipe) == [[0, 1, 2, 3], [4, 5, 7, 7], [8, 9, 10, 11], [12, 13, 14, 15]]

    @pytest.mark.parametrize(
        ("bad", "expected"),
        [
            ({0}, [[1, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]),
            ({3}, [[0, 1, 2, 4], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]),
            ({5, 6, 7, 8}, [[0, 1, 2, 3], [4, 9, 9, 9], [9, 9, 10, 11], [12, 13, 14, 15]]),
            (set(range(15)), [[15, 15, 15, 15]] * 4),
        ],
        ids=["the first", "the last of a batch", "several", "all but the last"],
    )
    def test_may_have_to_look_far(self, bad: set[int], expected: list[list[int]], make: MakePipeline, way: str) -> None:
        pipe = make(bad_at(bad), way, "skip")

        assert samples_of(pipe) == expected
        assert pipe.statistics().replaced_samples == len(bad)

    def test_does_so_in_every_epoch(self, make: MakePipeline, way: str) -> None:
        pipe = make(bad_at({6}, epochs=2), way, "skip")

        first = samples_of(pipe)
        pipe.reset()

        assert samples_of(pipe) == first
        assert pipe.statistics().replaced_samples == 2

    def test_tells_the_source_the_row_of_the_sample(self, make: MakePipeline, way: str) -> None:
        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch in (6, 7):
                raise ValueError("bad")
            return np.array(info)

        pipe = make(source, way, "skip")
        pipe.run()

        assert np.asarray(pipe.run()[0][2]).tolist() == [8, 2, 1, 0]

    def test_gives_up_at_the_end_of_the_epoch(self, make: MakePipeline, way: str) -> None:
        pipe = make(bad_at({14, 15}), way, "skip")

        assert samples_of(pipe) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], "sample 14 is bad"]

    def test_gives_up_where_all_are_bad(self, make: MakePipeline, way: str) -> None:
        pipe = make(bad_at(range(LENGTH)), way, "skip")

        assert samples_of(pipe) == [f"sample {first} is bad" for first in range(0, LENGTH, BATCH_SIZE)]
        assert pipe.statistics().replaced_samples == 0

    def test_gives_up_where_all_are_bad_and_there_is_no_end(self, make: MakePipeline, way: str) -> None:
        pipe = make(bad_at(range(10**9), length=10**9), way, "skip")

        with pytest.raises(ValueError, match="sample 0 is bad") as caught:
            pipe.run()

        assert "'numbers' for sample 0 of iteration 0 in epoch 0" in caught.value.__notes__[0]

    def test_does_not_look_beyond_the_end_of_the_epoch(self, make: MakePipeline) -> None:
        asked = []

        def source(info: SampleInfo) -> Any:
            asked.append(info.idx_in_epoch)
            return bad_at({14, 15})(info)

        samples_of(make(source, "serial", "skip"))

        assert max(asked) == LENGTH

    @pytest.mark.parametrize(("num_bad", "outcome"), [(1000, [1000] * BATCH_SIZE), (1001, "sample 0 is bad")])
    def test_tries_a_thousand_others(self, num_bad: int, outcome: Any, make: MakePipeline) -> None:
        pipe = make(bad_at(range(num_bad), length=10**9), "serial", "skip")

        try:
            seen = pipe.run()[0].as_array().tolist()
        except ValueError as error:
            seen = str(error)

        assert seen == outcome

    def test_keeps_the_end_of_the_epoch_where_it_is(self, make: MakePipeline, way: str) -> None:
        pipe = make(bad_at({6}, length=14), way, "skip")

        assert samples_of(pipe) == [[0, 1, 2, 3], [4, 5, 7, 7], [8, 9, 10, 11]]

    def test_works_for_samples_of_any_shape(self, make: MakePipeline, way: str) -> None:
        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch >= LENGTH:
                raise StopIteration
            if info.idx_in_epoch % 4 == 2:
                raise ValueError("bad")
            return np.full(info.idx_in_epoch, info.idx_in_epoch, np.uint8)

        pipe = make(source, way, "skip")

        expected = [0, 1, 3, 3, 4, 5, 7, 7, 8, 9, 11, 11, 12, 13, 15, 15]
        assert [sample for batch in samples_of(pipe) for sample in batch] == [[index] * index for index in expected]

    def test_replaces_all_outputs_of_a_sample(self, make: MakePipeline, way: str) -> None:
        def source(info: SampleInfo) -> Any:
            index = info.idx_in_epoch
            return np.int64(index), None if index == 6 else np.float32(index)

        pipe = make(source, way, "skip", num_outputs=2)
        pipe.run()

        assert [output.as_array().tolist() for output in pipe.run()] == [[4, 5, 7, 7], [4, 5, 7, 7]]

    @pytest.mark.parametrize(
        "wrong",
        [None, "text", [1, 2], np.float32(1), np.zeros(3, np.int64), np.array(["text"]), (np.int64(1), np.int64(2))],
        ids=["None", "a string", "a list", "another dtype", "another ndim", "no numbers", "two outputs"],
    )
    def test_takes_wrong_results_for_errors(self, wrong: Any, make: MakePipeline, way: str) -> None:
        pipe = make(wrong_at_late(wrong), way, "skip")
        run_until_late(pipe)

        assert pipe.run()[0].as_array().tolist() == [20, 21, 23, 23]
        assert pipe.statistics().replaced_samples == 1

    @pytest.mark.parametrize("wrong", [np.float32(1), np.zeros(3, np.int64)], ids=["another dtype", "another ndim"])
    def test_replaces_samples_of_an_undeclared_dtype_or_shape_from_the_first_batch_on(
        self, wrong: Any, make_pipeline: MakePipeline, way: str
    ) -> None:
        def source(info: SampleInfo) -> Any:
            return wrong if info.idx_in_epoch == 2 else np.int64(info.idx_in_epoch)

        options = {"on_error": "skip", "dtype": np.int64, "ndim": 0}
        pipe = make_pipeline(source, way, source_options=options)

        assert pipe.run()[0].as_array().tolist() == [0, 1, 3, 3]

    def test_replaces_samples_of_another_than_the_declared_dtype_in_each_batch(
        self, make_pipeline: MakePipeline, start_method: str
    ) -> None:
        def source(info: SampleInfo) -> Any:
            return np.float32(1) if info.idx_in_epoch % 4 == 2 else np.int64(info.idx_in_epoch)

        pipe = make_pipeline(source, start_method, source_options={"on_error": "skip", "dtype": np.int64})

        batches = [pipe.run()[0].as_array().tolist() for _ in range(3)]

        assert batches == [[0, 1, 3, 3], [4, 5, 7, 7], [8, 9, 11, 11]]

    def test_does_not_know_the_dtype_of_the_first_batch_and_says_to_declare_it(
        self, make: MakePipeline, start_method: str
    ) -> None:
        pipe = make(lambda info: np.float32(1) if info.idx_in_epoch == 2 else np.int64(1), start_method, "skip")

        with pytest.raises(DtypeMismatchError) as caught:
            pipe.run()

        assert caught.value.__notes__[-1].startswith("on_error= covers this from the first batch on if dtype= and ndim=")

    def test_does_not_take_the_end_of_the_epoch_for_an_error(self, make: MakePipeline, way: str) -> None:
        pipe = make(bad_at(()), way, "skip")

        assert samples_of(pipe)[-1] == [12, 13, 14, 15]
        assert pipe.statistics().replaced_samples == 0

    def test_is_no_help_against_samples_that_kill(self, make: MakePipeline, start_method: str) -> None:
        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 6:
                die_of_sigkill()
            return np.int64(info.idx_in_epoch)

        pipe = make(source, start_method, "skip")
        pipe.run()

        with pytest.raises(WorkerDiedError):
            pipe.run()


class TestACallable:
    def test_returns_the_replacement(self, make: MakePipeline, way: str) -> None:
        pipe = make(bad_at({6, 7, 12}), way, lambda info, error: np.int64(-info.idx_in_epoch))

        assert samples_of(pipe) == [[0, 1, 2, 3], [4, 5, -6, -7], [8, 9, 10, 11], [-12, 13, 14, 15]]
        assert pipe.statistics().replaced_samples == 3

    def test_is_given_the_sample_info(self, make: MakePipeline, way: str) -> None:
        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 6:
                raise ValueError("bad")
            return np.zeros(4, np.int64)

        pipe = make(source, way, lambda info, error: np.array(info))
        pipe.run()
        pipe.reset()
        pipe.run()

        assert np.asarray(pipe.run()[0][2]).tolist() == [6, 2, 1, 1]

    def test_is_given_the_exception(self, make: MakePipeline, way: str) -> None:
        def stand_in(info: SampleInfo, error: Exception) -> Any:
            return np.int64(1000 if type(error) is ValueError and str(error) == "sample 6 is bad" else 0)

        pipe = make(bad_at({6}), way, stand_in)
        pipe.run()

        assert pipe.run()[0].as_array().tolist() == [4, 5, 1000, 7]

    @pytest.mark.parametrize(
        ("wrong", "kind"),
        [
            (None, SampleTypeError),
            (np.float32(1), DtypeMismatchError),
            (np.zeros(3, np.int64), NdimMismatchError),
        ],
        ids=["None", "another dtype", "another ndim"],
    )
    def test_is_called_with_the_error_of_a_wrong_result(
        self, wrong: Any, kind: type[Exception], make: MakePipeline, way: str
    ) -> None:
        pipe = make(wrong_at_late(wrong), way, lambda info, error: np.int64(1000 if isinstance(error, kind) else 0))
        run_until_late(pipe)

        assert pipe.run()[0].as_array().tolist() == [20, 21, 1000, 23]

    def test_may_return_all_outputs(self, make: MakePipeline, way: str) -> None:
        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 6:
                raise ValueError("bad")
            return np.int64(info.idx_in_epoch), np.float32(info.idx_in_epoch)

        pipe = make(source, way, lambda info, error: (np.int64(-1), np.float32(-2)), num_outputs=2)
        pipe.run()

        assert [output.as_array().tolist() for output in pipe.run()] == [[4, 5, -1, 7], [4, 5, -2, 7]]

    def test_may_return_another_shape(self, make: MakePipeline, way: str) -> None:
        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 6:
                raise ValueError("bad")
            return np.full(2, info.idx_in_epoch)

        pipe = make(source, way, lambda info, error: np.zeros(5, np.int64))
        pipe.run()

        assert [np.asarray(sample).tolist() for sample in pipe.run()[0]] == [[4, 4], [5, 5], [0] * 5, [7, 7]]

    @pytest.mark.parametrize("lists", [True, False], ids=["a list", "an array"])
    def test_replaces_all_samples_of_a_batch_that_was_half_written(
        self, lists: bool, make_pipeline: MakePipeline, way: str
    ) -> None:
        """Its second sample had another shape than the rows."""

        def stand_in(info: Any, error: Exception) -> Any:
            return [*np.ones((4, 2))] if lists else np.ones((4, 2))

        def source(number: int) -> Any:
            return [np.zeros(2), np.zeros(3), np.zeros(2), "bad"] if number == 12 else [*np.zeros((4, 2))]

        pipe = make_pipeline(source, way, source_options={"batch": True, "on_error": stand_in})
        for _ in range(12):
            pipe.run()

        assert [np.asarray(sample).tolist() for sample in pipe.run()[0]] == [[1.0, 1.0]] * 4

    def test_may_raise_and_its_exception_counts(self, make: MakePipeline, way: str) -> None:
        def stand_in(info: SampleInfo, error: Exception) -> Any:
            raise KeyError("no replacement") from error

        pipe = make(bad_at({6}), way, stand_in)
        pipe.run()

        with pytest.raises(KeyError, match="no replacement") as caught:
            pipe.run()

        assert "'numbers' for sample 2 of iteration 1 in epoch 0 (idx_in_epoch 6)" in caught.value.__notes__[0]
        assert pipe.run()[0].as_array().tolist() == [8, 9, 10, 11]
        assert pipe.statistics().replaced_samples == 0

    @pytest.mark.parametrize(
        ("wrong", "kind"),
        [
            (None, SampleTypeError),
            ("text", SampleTypeError),
            (np.float32(1), DtypeMismatchError),
            (np.zeros(3, np.int64), NdimMismatchError),
        ],
        ids=["None", "a string", "another dtype", "another ndim"],
    )
    def test_that_returns_a_wrong_sample_is_an_error_of_the_source(
        self, wrong: Any, kind: type[Exception], make: MakePipeline, way: str
    ) -> None:
        pipe = make(bad_at({LATE}, length=100), way, lambda info, error: wrong)
        run_until_late(pipe)

        with pytest.raises(kind, match=r"on_error.*'numbers'|'numbers'.*on_error"):
            pipe.run()

        assert pipe.run()[0].as_array().tolist() == [24, 25, 26, 27]
        assert pipe.statistics().replaced_samples == 0

    def test_must_return_as_many_outputs(self, make: MakePipeline, way: str) -> None:
        def source(info: SampleInfo) -> Any:
            raise ValueError("bad")

        pipe = make(source, way, lambda info, error: (np.int64(1),), num_outputs=2)

        with pytest.raises(OutputCountError, match="on_error"):
            pipe.run()

    def test_must_not_end_the_epoch(self, make: MakePipeline, way: str) -> None:
        spare = iter([np.int64(1000)])
        pipe = make(bad_at({6, 7, 9, 10, 11}), way, lambda info, error: next(spare))

        with pytest.raises(Exception, match=r"on_error.*StopIteration|StopIteration.*on_error"):  # noqa: PT012
            for _ in range(4):
                pipe.run()


class TestTheLog:
    def test_names_source_sample_and_error(self, make: MakePipeline, caplog: pytest.LogCaptureFixture) -> None:
        pipe = make(bad_at({6}), "serial", "skip")

        with caplog.at_level(logging.WARNING, "dali_like"):
            samples_of(pipe)

        ((name, level, text),) = caplog.record_tuples
        assert (name, level) == ("dali_like", logging.WARNING)
        assert "'numbers'" in text
        assert "idx_in_epoch 6 " in text
        assert "idx_in_epoch 7" in text
        assert "ValueError('sample 6 is bad')" in text

    def test_names_batches_likewise(self, make_pipeline: MakePipeline, caplog: pytest.LogCaptureFixture) -> None:
        def source(iteration: int) -> Any:
            if iteration == 1:
                raise ValueError("bad")
            return np.full(BATCH_SIZE, iteration)

        pipe = make_pipeline(source, "serial", source_options={"name": "numbers", "batch": True, "on_error": "skip"})

        assert [pipe.run()[0].as_array()[0] for _ in range(3)] == [0, 2, 2]
        (text,) = caplog.messages
        assert "'numbers': the batch of iteration 1 is replaced by that of iteration 2: ValueError('bad')" in text

    def test_says_where_a_callable_has_made_the_replacement(
        self, make: MakePipeline, caplog: pytest.LogCaptureFixture
    ) -> None:
        pipe = make(bad_at({6}), "serial", lambda info, error: np.int64(0))

        samples_of(pipe)

        assert "on_error" in caplog.text

    def test_is_silent_where_nothing_is_replaced(self, make: MakePipeline, caplog: pytest.LogCaptureFixture) -> None:
        samples_of(make(bad_at({15}), "serial", "skip"))
        samples_of(make(bad_at({6}), "serial", "raise"))

        assert not caplog.records

    def test_is_written_by_forked_workers_as_the_program_has_set_it_up(self, make: MakePipeline, tmp_path: Path) -> None:
        handler = logging.FileHandler(tmp_path / "log")
        logging.getLogger("dali_like").addHandler(handler)
        try:
            samples_of(make(bad_at({6}), "fork", "skip"))
        finally:
            logging.getLogger("dali_like").removeHandler(handler)
            handler.close()

        assert "sample of idx_in_epoch 6" in (tmp_path / "log").read_text()

    def test_is_written_to_stderr_by_spawned_workers(self, make: MakePipeline, capfd: pytest.CaptureFixture[str]) -> None:
        samples_of(make(bad_at({6}), "spawn", "skip"))

        assert "sample of idx_in_epoch 6" in capfd.readouterr().err

    def test_keeps_no_pipeline_alive(self, make: MakePipeline, caplog: pytest.LogCaptureFixture) -> None:
        """The exception itself would, by the frames of its traceback."""
        samples_of(make(bad_at({6}), "serial", "skip"))

        assert not any(isinstance(argument, BaseException) for record in caplog.records for argument in record.args or ())


@pytest.mark.parametrize("value", ["ignore", "", None, 7, b"skip", ["skip"], ValueError("skip")], ids=repr)
def test_anything_else_is_an_error_of_the_definition(value: Any) -> None:
    @pipeline_def(batch_size=1)
    def pipeline() -> Any:
        return fn.external_source(source=bad_at(()), batch=False, on_error=value)

    with pytest.raises(ArgumentError, match="on_error"):
        pipeline()


def test_sources_of_one_pipeline_have_each_their_own(way: str) -> None:
    method = {} if way == "serial" else {"py_start_method": way}

    @pipeline_def(batch_size=BATCH_SIZE, py_num_workers=2, **method)
    def pipeline() -> Any:
        return [
            fn.external_source(source=bad_at({1}), batch=False, parallel=way != "serial", on_error=on_error)
            for on_error in ("skip", lambda info, error: np.int64(-1))
        ]

    pipe = pipeline()
    batch = [output.as_array().tolist() for output in pipe.run()]
    replaced = pipe.statistics().replaced_samples
    pipe.close()

    assert batch == [[0, 2, 2, 3], [0, -1, 2, 3]]
    assert replaced == 2
