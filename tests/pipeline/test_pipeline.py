"""Pipelines: how they are defined, built and run, and operators in them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.errors import ArgumentClashError, ArgumentError, DecodeError, DefinitionError, DeviceError, SampleTypeError
from dali_like.graph.language.nodes import DataNode

# Private: the module is private as a whole
from dali_like.operators.images import _image_parts as decoding_module
from dali_like.types import SampleInfo
from tests.conftest import in_both_places, is_running, wait_until

MakePipeline = Callable[..., Pipeline]


def numbers(first: int = 0, **options: Any) -> DataNode:
    """A source of consecutive numbers, one a sample."""
    return fn.external_source(source=lambda info: np.array(first + info.idx_in_epoch), batch=False, **options)


def samples_of(pipe: Pipeline) -> list[list[int]]:
    """The next batch, as a list for each output."""
    return [batch.as_array().tolist() for batch in pipe.run()]


# Defining


def test_pipeline_def_with_arguments() -> None:
    @pipeline_def(batch_size=3, num_threads=2, seed=7)
    def pipeline() -> DataNode:
        return numbers()

    with closing(pipeline()) as pipe:
        assert (pipe.batch_size, pipe.num_threads, pipe.seed) == (3, 2, 7)
        assert samples_of(pipe) == [[0, 1, 2]]


def test_pipeline_def_without_arguments() -> None:
    @pipeline_def
    def pipeline() -> DataNode:
        return numbers()

    with closing(pipeline(batch_size=2)) as pipe:
        assert samples_of(pipe) == [[0, 1]]


def test_keywords_of_the_call_override_those_of_the_decorator() -> None:
    @pipeline_def(batch_size=3, prefetch_queue_depth=5)
    def pipeline() -> DataNode:
        return numbers()

    with closing(pipeline(batch_size=2, seed=1)) as pipe:
        assert (pipe.batch_size, pipe.prefetch_queue_depth, pipe.seed) == (2, 5, 1)


def test_arguments_of_the_function() -> None:
    @pipeline_def(batch_size=2)
    def pipeline(first: int, *others: int, last: int) -> list[DataNode]:
        return [numbers(number) for number in (first, *others, last)]

    with closing(pipeline(10, 20, last=30)) as pipe:
        assert samples_of(pipe) == [[10, 11], [20, 21], [30, 31]]


def test_arguments_of_the_function_win_over_those_of_pipeline_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"`seed` of .*pipeline shadows an argument of Pipeline"):

        @pipeline_def(batch_size=2, seed=5)
        def pipeline(seed: int) -> DataNode:
            return numbers(seed)

    with closing(pipeline(seed=100)) as pipe:
        assert samples_of(pipe) == [[100, 101]]
        assert pipe.seed == 5


def test_each_call_makes_a_pipeline_of_its_own() -> None:
    @pipeline_def(batch_size=1)
    def pipeline() -> DataNode:
        return numbers()

    with closing(pipeline()) as one, closing(pipeline()) as other:
        assert samples_of(one) == [[0]]
        assert samples_of(one) == [[1]]
        assert samples_of(other) == [[0]]


def test_decorated_function_keeps_its_name_and_text() -> None:
    @pipeline_def(batch_size=1)
    def pipeline() -> DataNode:
        """The purpose of the pipeline."""
        return numbers()

    assert pipeline.__name__ == "pipeline"
    assert inspect.getdoc(pipeline) == "The purpose of the pipeline."


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"batchsize \(did you mean batch_size\?\), threads \(did you mean num_threads\?\)$"
    ):
        pipeline_def(batchsize=1, threads=2)

    @pipeline_def(batch_size=1)
    def pipeline() -> DataNode:
        return numbers()

    with pytest.raises(DefinitionError, match=r"pipeline got unexpected arguments: frist; neither"):
        pipeline(frist=1)
    with pytest.raises(DefinitionError, match=r"py_num_worker \(did you mean py_num_workers\?\)"):
        pipeline(py_num_worker=1)


def test_batch_size_must_come_from_somewhere() -> None:
    @pipeline_def
    def pipeline() -> DataNode:
        return numbers()

    with closing(pipeline()) as pipe, pytest.raises(ArgumentError, match="batch size must be set"):
        pipe.build()


def test_pipeline_by_hand(way: str) -> None:
    pipe = Pipeline(4, 2, **({} if way == "serial" else {"py_start_method": way}))
    pipe.set_outputs(numbers(5, parallel=way != "serial"), numbers(9))

    with closing(pipe):
        pipe.build()
        assert samples_of(pipe) == [[5, 6, 7, 8], [9, 10, 11, 12]]


@pytest.mark.parametrize("shape", [tuple, list])
def test_outputs_may_be_a_tuple_or_a_list(shape: Callable[..., Any]) -> None:
    @pipeline_def(batch_size=1)
    def pipeline() -> Any:
        return shape([numbers(1), numbers(2)])

    with closing(pipeline()) as pipe:
        assert samples_of(pipe) == [[1], [2]]


def test_same_node_several_times_as_output(way: str) -> None:
    @pipeline_def(batch_size=2, **({} if way == "serial" else {"py_start_method": way}))
    def pipeline() -> list[DataNode]:
        node = numbers(parallel=way != "serial")
        return [node, numbers(50), node]

    with closing(pipeline()) as pipe:
        for iteration in range(3):
            first = 2 * iteration
            assert samples_of(pipe) == [[first, first + 1], [first + 50, first + 51], [first, first + 1]]


def test_outputs_of_a_source_in_any_order() -> None:
    @pipeline_def(batch_size=2)
    def pipeline() -> list[DataNode]:
        nodes = fn.external_source(source=lambda info: (np.array(1), np.array(2), np.array(3)), num_outputs=3, batch=False)
        return [nodes[2], nodes[0], nodes[1]]

    with closing(pipeline()) as pipe:
        assert samples_of(pipe) == [[3, 3], [1, 1], [2, 2]]


def test_unused_outputs_are_reported() -> None:
    @pipeline_def(batch_size=2)
    def pipeline() -> list[DataNode]:
        nodes = fn.external_source(source=lambda info: (np.array(1), np.array(2), np.array(3)), num_outputs=3, batch=False)
        return [nodes[1]]

    with (
        closing(pipeline()) as pipe,
        pytest.warns(UserWarning, match=r"returns 3 outputs, and the outputs \[0, 2\] .* are not used"),
    ):
        assert samples_of(pipe) == [[2, 2]]


def test_source_that_no_output_needs_is_called_if_it_is_preserved() -> None:
    calls = []

    @pipeline_def(batch_size=2)
    def pipeline() -> DataNode:
        fn.external_source(source=lambda info: np.int32(calls.append(info.idx_in_batch) or 0), batch=False, preserve=True)
        return fn.external_source(source=lambda info: np.array(1), batch=False)

    with closing(pipeline()) as pipe:
        pipe.run()

    assert calls[:2] == [0, 1]


def test_nothing_can_be_preserved_without_a_pipeline() -> None:
    with pytest.raises(ArgumentClashError, match="needs a current pipeline"):
        fn.external_source(source=lambda info: np.array(1), batch=False, preserve=True)


def test_sources_that_no_output_needs_are_not_called_and_need_no_workers() -> None:
    def unwanted(info: SampleInfo) -> NDArray[Any]:
        raise AssertionError("called")

    @pipeline_def(batch_size=2, py_num_workers=0)
    def pipeline() -> DataNode:
        for parallel in (False, True):
            fn.external_source(source=unwanted, batch=False, parallel=parallel)
        return numbers()

    with closing(pipeline()) as pipe:
        assert samples_of(pipe) == [[0, 1]]
        assert pipe.py_worker_pids == []


def test_node_has_no_truth_value_and_cannot_be_unpacked() -> None:
    node = numbers()

    with pytest.raises(DefinitionError, match="no truth value"):
        bool(node)
    with pytest.raises(DefinitionError, match=r"cannot be unpacked.*num_outputs"):
        _, _ = node  # type: ignore[misc]
    with pytest.raises(DefinitionError, match="cannot be unpacked"):
        list(node)  # type: ignore[call-overload]
    assert node.cpu() is node


# Building and running


def test_properties() -> None:
    pipe = Pipeline(8, 3, 0, 42, prefetch_queue_depth=4, py_num_workers=5, py_start_method="spawn", py_worker_threads=None)

    assert (pipe.max_batch_size, pipe.batch_size) == (8, 8)
    assert pipe.num_threads == 3
    assert pipe.device_id == 0
    assert pipe.seed == 42
    assert pipe.prefetch_queue_depth == 4
    assert pipe.py_num_workers == 5
    assert pipe.py_start_method == "spawn"
    assert pipe.py_worker_pids == []


def test_threads_are_as_many_as_cpus_unless_given() -> None:
    assert Pipeline(1).num_threads == len(os.sched_getaffinity(0))


def test_repr_says_the_state() -> None:
    pipe = Pipeline(8)
    pipe.set_outputs(numbers())

    assert repr(pipe) == "<Pipeline of batches of 8, not built>"
    pipe.build()
    assert repr(pipe) == "<Pipeline of batches of 8, built>"
    pipe.close()
    assert repr(pipe) == "<Pipeline of batches of 8, closed>"


@pytest.mark.parametrize("steps", ["", "s", "b", "sb", "ss", "bb", "bs", "sbsb"])
def test_workers_start_once_after_any_sequence_of_start_and_build(
    steps: str, start_method: str, make_pipeline: MakePipeline
) -> None:
    pipe = make_pipeline(lambda info: np.array(info.idx_in_epoch), start_method)

    for step in steps:
        {"s": pipe.start_py_workers, "b": pipe.build}[step]()
    if steps:
        pids = wait_until(lambda: len(pipe.py_worker_pids) == 2 and pipe.py_worker_pids, "the start of both workers")
        assert all(map(is_running, pids))

    assert samples_of(pipe) == [[0, 1, 2, 3]]
    if steps:
        pipe.build()
        assert pipe.py_worker_pids == pids


def test_outputs_cannot_be_set_once_workers_have_started(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.array(0), "fork")
    pipe.start_py_workers()

    with pytest.raises(DefinitionError, match=r"before build\(\)"):
        pipe.set_outputs(numbers())


def test_device_id_needs_no_gpu(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.array(info.idx_in_batch), "serial", device_id=0)

    assert samples_of(pipe) == [[0, 1, 2, 3]]


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(DeviceError, match=r"device='tpu'"):
        numbers(device="tpu")
    with pytest.raises(DeviceError, match=r"fn\.decoders\.image: device='tpu'"):
        fn.decoders.image(numbers(), device="tpu")  # type: ignore[arg-type]


def numbered(first: int, info: SampleInfo) -> NDArray[Any]:
    return np.array([first, info.idx_in_epoch])


@pytest.mark.parametrize("ways", [("fork", "fork"), ("spawn", "fork"), ("fork", "spawn"), ("serial", "fork")])
def test_two_pipelines_at_once(ways: tuple[str, str], make_pipeline: MakePipeline) -> None:
    one, other = (make_pipeline(functools.partial(numbered, first), way) for first, way in zip((0, 1000), ways, strict=True))

    for iteration in range(20):
        for pipe, first in ((one, 0), (other, 1000)):
            (batch,) = pipe.run()
            assert batch.as_array().tolist() == [[first, 4 * iteration + i] for i in range(4)]


def test_closing_one_pipeline_leaves_the_other_running(make_pipeline: MakePipeline) -> None:
    one, other = (make_pipeline(lambda info: np.array(info.idx_in_epoch), "fork") for _ in range(2))
    one.run()
    other.run()

    one.close()

    for iteration in range(1, 10):
        assert samples_of(other) == [[4 * iteration + i for i in range(4)]]


def test_close_ends_the_workers_and_may_be_called_again(start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.array(0), start_method)
    pipe.build()
    pids = wait_until(lambda: len(pipe.py_worker_pids) == 2 and pipe.py_worker_pids, "the start of both workers")

    pipe.close()
    assert not any(map(is_running, pids))
    pipe.close()


def test_close_without_build() -> None:
    pipe = Pipeline(1)

    pipe.close()

    assert "closed" in repr(pipe)


# The threads of libraries in workers


@pytest.mark.parametrize(("options", "expected"), [({}, 1), ({"py_worker_threads": 3}, 3), ({"py_worker_threads": None}, 0)])
def test_environment_tells_libraries_the_number_of_threads(
    options: dict[str, Any],
    expected: int,
    start_method: str,
    make_pipeline: MakePipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    pipe = make_pipeline(lambda info: np.array(int(os.environ.get("OMP_NUM_THREADS", "0"))), start_method, **options)

    assert samples_of(pipe) == [[expected] * 4]
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize(("options", "expected"), [({}, 1), ({"py_worker_threads": 3}, 3)])
def test_threads_of_opencv_in_workers(
    options: dict[str, Any], expected: int, start_method: str, make_pipeline: MakePipeline
) -> None:
    cv2: Any = pytest.importorskip("cv2")
    threads_here = cv2.getNumThreads()

    def source(info: SampleInfo) -> NDArray[Any]:
        import cv2

        return np.array(cv2.getNumThreads())

    pipe = make_pipeline(source, start_method, **options)

    assert samples_of(pipe) == [[expected] * 4]
    assert cv2.getNumThreads() == threads_here


# Operators


def photographs() -> list[NDArray[np.uint8]]:
    """One photograph in five sizes."""
    cv2: Any = pytest.importorskip("cv2")
    data: Any = pytest.importorskip("skimage.data")
    return [cv2.resize(data.astronaut(), (width, width * 3 // 4)) for width in (64, 33, 97, 16, 50)]


def encoded(image: NDArray[np.uint8], suffix: str = ".png") -> NDArray[np.uint8]:
    cv2: Any = pytest.importorskip("cv2")
    file: NDArray[np.uint8] = cv2.imencode(suffix, cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1]
    return file


def decoding(
    files: list[NDArray[np.uint8]], way: str = "serial", decoder: dict[str, Any] | None = None, **options: Any
) -> AbstractContextManager[Pipeline]:
    """A pipeline that decodes the files in turn."""
    method = {} if way == "serial" else {"py_start_method": way}

    @pipeline_def(**{"batch_size": 4, "num_threads": 2, "py_num_workers": 2, **method, **options})
    def pipeline() -> list[DataNode]:
        source = lambda info: files[info.idx_in_epoch % len(files)]  # noqa: E731
        data = fn.external_source(source=source, batch=False, parallel=way != "serial")
        return [fn.decoders.image(data, **(decoder or {})), data]

    return closing(pipeline())


def test_images_of_many_sizes_are_decoded(way: str) -> None:
    images = photographs()

    with decoding([encoded(image) for image in images], way) as pipe:
        for iteration in range(6):
            batch, files = pipe.run()
            expected = [images[(4 * iteration + i) % 5] for i in range(4)]
            assert batch.shape() == [image.shape for image in expected]
            assert not batch.is_dense_tensor()
            assert batch.layout() == "HWC"
            for i, image in enumerate(expected):
                np.testing.assert_array_equal(batch.at(i), image, strict=True)
                np.testing.assert_array_equal(files.at(i), encoded(image))


def test_images_of_one_size_are_one_array(way: str) -> None:
    image = photographs()[0]
    images = [np.roll(image, 5 * i, axis=1) for i in range(8)]

    with decoding([encoded(image) for image in images], way) as pipe:
        for iteration in range(4):
            batch, _ = pipe.run()
            array = batch.as_array()
            np.testing.assert_array_equal(array, np.stack(images[4 * iteration % 8 :][:4]), strict=True)
            assert np.shares_memory(array, batch.at(3))


def test_jpeg_is_decoded() -> None:
    image = photographs()[2]

    with decoding([encoded(image, ".jpg")]) as pipe:
        (batch, _) = pipe.run()

    assert batch.as_array().shape == (4, *image.shape)
    assert np.abs(batch.at(0).astype(int) - image).mean() < 5


@pytest.mark.parametrize(("output_type", "channels"), [(types.GRAY, 1), (types.BGR, 3), (types.ANY_DATA, 3)])
def test_output_type_reaches_the_decoder(output_type: types.DALIImageType, channels: int) -> None:
    image = photographs()[0]

    with decoding([encoded(image)], decoder={"output_type": output_type}) as pipe:
        (batch, _) = pipe.run()

    assert batch.shape() == [(48, 64, channels)] * 4
    if output_type == types.BGR:
        np.testing.assert_array_equal(batch.at(1), image[:, :, ::-1])


def test_two_decoders_of_one_source() -> None:
    image = photographs()[0]
    file = encoded(image)

    @pipeline_def(batch_size=3, num_threads=2)
    def pipeline() -> list[DataNode]:
        data = fn.external_source(source=lambda info: file, batch=False)
        return [fn.decoders.image(data, output_type=types.BGR), fn.decoders.image(data)]

    with closing(pipeline()) as pipe:
        bgr, rgb = pipe.run()

    np.testing.assert_array_equal(bgr.as_array()[:, :, :, ::-1], rgb.as_array(), strict=True)
    np.testing.assert_array_equal(rgb.at(0), image)


@pytest.mark.parametrize("num_threads", [1, 4])
@pytest.mark.parametrize("iteration", [0, 1, 5])
@in_both_places
def test_broken_file_is_an_error_that_names_it(iteration: int, num_threads: int, way: str) -> None:
    images = photographs()
    files = [encoded(images[i % 5]) for i in range(40)]
    for i in (2, 3):
        files[iteration * 4 + i] = files[iteration * 4 + i][:100]

    with decoding(files, way, num_threads=num_threads) as pipe:
        for earlier in range(iteration):
            np.testing.assert_array_equal(pipe.run()[0].at(3), images[(4 * earlier + 3) % 5])
        with pytest.raises(DecodeError) as info:
            pipe.run()
        for later in range(iteration + 1, 10):
            np.testing.assert_array_equal(pipe.run()[0].at(3), images[(4 * later + 3) % 5])

    where = f"sample 2 of iteration {iteration} in epoch 0 (idx_in_epoch {4 * iteration + 2})"
    assert f"raised by fn.decoders.image for {where}" in info.value.__notes__


def test_decoding_an_array_that_is_not_a_file_is_an_error() -> None:
    with decoding([np.zeros((2, 2), np.float32)]) as pipe, pytest.raises(SampleTypeError, match="1-D uint8") as info:
        pipe.run()

    assert "raised by fn.decoders.image for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)" in info.value.__notes__


def test_exception_of_a_source_passes_the_operators_in_its_turn(way: str) -> None:
    file = encoded(photographs()[3])

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 2:
            raise ZeroDivisionError("not this one")
        if info.iteration == 4:
            raise StopIteration
        return file

    @pipeline_def(batch_size=4, py_num_workers=2, **({} if way == "serial" else {"py_start_method": way}))
    def pipeline() -> DataNode:
        return fn.decoders.image(fn.external_source(source=source, batch=False, parallel=way != "serial"))

    with closing(pipeline()) as pipe:
        for _ in range(2):
            pipe.run()
            pipe.run()
            with pytest.raises(ZeroDivisionError, match="not this one"):
                pipe.run()
            pipe.run()
            for _ in range(2):
                with pytest.raises(StopIteration):
                    pipe.run()
            pipe.reset()


def test_reset_in_the_middle_with_operators(way: str) -> None:
    images = photographs()

    with decoding([encoded(image) for image in images], way) as pipe:
        for _ in range(4):
            for iteration in range(2):
                np.testing.assert_array_equal(pipe.run()[0].at(0), images[4 * iteration % 5])
            pipe.reset()


@pytest.mark.parametrize("depth", [1, 3])
def test_operators_run_ahead(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    decode_image = decoding_module.decode_image

    def recording(*args: Any, **options: Any) -> NDArray[np.uint8]:
        image = decode_image(*args, **options)
        decoded.append(image)
        return image

    monkeypatch.setattr(decoding_module, "decode_image", recording)

    with decoding([encoded(photographs()[0])], prefetch_queue_depth=depth) as pipe:
        pipe.run()
        wait_until(lambda: len(decoded) >= 4 * (1 + depth), "that the decoder is ahead")

    assert len(decoded) <= 4 * (2 + depth)


def test_closing_while_operators_work() -> None:
    with decoding([encoded(image) for image in photographs()], "fork", prefetch_queue_depth=4) as pipe:
        pipe.run()


def test_decoder_checks_its_arguments() -> None:
    with pytest.raises(DefinitionError, match="must be a DataNode, a number, a list of numbers or an array, not a str"):
        fn.decoders.image("file.jpg")  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match=r"fn.decoders.image: output_type must be one of RGB, BGR, GRAY, .* not 17"):
        fn.decoders.image(numbers(), output_type=17)  # type: ignore[arg-type]
