"""Inputs: external sources without a source. The program feeds them, and the batches reach the outputs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.common.interrupts import InterruptSafeLock
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    BatchSizeError,
    ClosedError,
    DefinitionError,
    DtypeMismatchError,
    InputNameError,
    LayoutMismatchError,
    NdimMismatchError,
    NoInputError,
    PipelineStateError,
    SampleTypeError,
)
from dali_like.graph.execution import inputs
from dali_like.graph.language.nodes import DataNode
from dali_like.tensors import TensorCPU, TensorListCPU
from dali_like.types import SampleInfo
from tests.conftest import wait_until
from tests.image_files import image_file, stored_pixels

BATCH_SIZE = 3

MakeInputs = Callable[..., Pipeline]


@pytest.fixture
def make() -> Iterator[MakeInputs]:
    """Create pipelines with the outputs of a function, or with inputs named "x", "y" and so on."""
    pipelines = []

    def make(
        define: Callable[[], Any] | None = None, *, num_inputs: int = 1, options: Any = None, **arguments: Any
    ) -> Pipeline:
        @pipeline_def(**{"batch_size": BATCH_SIZE, "num_threads": 2, **arguments})
        def pipeline() -> Any:
            if define is not None:
                return define()
            return tuple(fn.external_source(name=name, **(options or {})) for name in "xyz"[:num_inputs])

        pipelines.append(pipeline())
        return pipelines[-1]

    yield make
    for pipe in pipelines:
        pipe.close()


def batch_of(value: Any, size: int = BATCH_SIZE) -> list[NDArray[Any]]:
    """Return a batch of equal samples."""
    return [np.full(2, value, np.int32) for _ in range(size)]


def batch_source(value: Any) -> list[NDArray[Any]]:
    return batch_of(value)


def first(outputs: tuple[Any, ...]) -> list[int]:
    """Return the first number of each output."""
    return [int(np.asarray(output[0]).flat[0]) for output in outputs]


def samples_of(output: TensorListCPU) -> list[Any]:
    return [output.at(i).tolist() for i in range(len(output))]


# Accepted and refused data


def test_batches_come_in_the_order_of_feeding(make: MakeInputs) -> None:
    pipe = make()
    for number in range(5):
        pipe.feed_input("x", batch_of(number))

    assert [first(pipe.run()) for _ in range(5)] == [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_feeding_and_running_in_turn(depth: int, make: MakeInputs) -> None:
    pipe = make(prefetch_queue_depth=depth)

    for number in range(2 * depth):
        pipe.feed_input("x", batch_of(number))
        assert first(pipe.run()) == [number]


def test_run_feeds_by_name(make: MakeInputs) -> None:
    pipe = make(num_inputs=2)

    assert first(pipe.run(y=batch_of(2), x=batch_of(1))) == [1, 2]
    assert first(pipe.run(None, x=batch_of(3), y=batch_of(4))) == [3, 4]


def test_nodes_name_inputs_as_well(make: MakeInputs) -> None:
    nodes: list[DataNode] = []
    pipe = make(lambda: nodes.append(fn.external_source()) or nodes[0])

    pipe.feed_input(nodes[0], batch_of(7))

    assert first(pipe.run()) == [7]


NUMBERS = np.arange(12, dtype=np.int16).reshape(3, 4)
BATCHES = {
    "list of arrays": list(NUMBERS),
    "tuple of arrays": tuple(NUMBERS),
    "array": NUMBERS,
    "TensorList": TensorListCPU(NUMBERS),
    "TensorList of several arrays": TensorListCPU(list(NUMBERS)),
    "tensor": TensorCPU(NUMBERS),
    "list of tensors": [TensorCPU(row) for row in NUMBERS],
    "array with strides": np.repeat(NUMBERS, 2, axis=1)[:, ::2],
    "arrays with strides": [np.repeat(row, 2)[::2] for row in NUMBERS],
    "array of the other byte order": NUMBERS.astype(NUMBERS.dtype.newbyteorder()),
    "read-only array": np.frombuffer(NUMBERS.tobytes(), NUMBERS.dtype).reshape(NUMBERS.shape),
}


@pytest.mark.parametrize("no_copy", [False, True])
@pytest.mark.parametrize("kind", BATCHES)
def test_each_form_of_a_batch_can_be_fed(kind: str, no_copy: bool, make: MakeInputs) -> None:
    pipe = make(options={"no_copy": no_copy})

    pipe.feed_input("x", BATCHES[kind])
    (batch,) = pipe.run()

    assert batch.dtype is types.INT16
    np.testing.assert_array_equal(batch.as_array(), NUMBERS)


def test_samples_may_be_of_different_shapes_and_numbers(make: MakeInputs) -> None:
    pipe = make()

    for shapes in ([(2, 3), (0, 1), (5, 0)], [(1, 1)], [], [(2, 2)] * 3):
        pipe.feed_input("x", [np.ones(shape) for shape in shapes])
        assert pipe.run()[0].shape() == shapes


def test_numbers_are_scalars(make: MakeInputs) -> None:
    pipe = make()

    pipe.feed_input("x", [1, 2, 3])

    assert samples_of(pipe.run()[0]) == [1, 2, 3]


def test_objects(make: MakeInputs) -> None:
    pipe = make(options={"dtype": types.OBJECT})
    given = [{"a": 1}, None, "text"]

    pipe.feed_input("x", given)
    given[0]["a"] = 2  # type: ignore[index]

    assert pipe.run() == ([{"a": 1}, None, "text"],)


# Copies


@pytest.mark.parametrize("kind", [np.asarray, list], ids=["array", "list"])
def test_a_fed_batch_may_be_changed_at_once(kind: Callable[[Any], Any], make: MakeInputs) -> None:
    pipe = make()
    given = kind(np.ones((BATCH_SIZE, 2)))

    pipe.feed_input("x", given)
    given[0][:] = 5

    assert pipe.run()[0].as_array().max() == 1


@pytest.mark.parametrize("kind", [np.asarray, list], ids=["array", "list"])
def test_no_copy_delivers_the_memory_that_was_fed(kind: Callable[[Any], Any], make: MakeInputs) -> None:
    pipe = make(options={"no_copy": True})
    given = kind(np.ones((BATCH_SIZE, 2)))

    pipe.feed_input("x", given)
    (batch,) = pipe.run()

    assert all(np.shares_memory(batch.at(i), given[i]) for i in range(BATCH_SIZE))


def test_batches_that_are_held_stay_as_they_were(make: MakeInputs) -> None:
    pipe = make()
    held = [pipe.run(x=batch_of(number))[0] for number in range(5)]

    pipe.close()

    assert [first((batch,)) for batch in held] == [[0], [1], [2], [3], [4]]


# Layouts


def test_layouts(make: MakeInputs) -> None:
    pipe = make(prefetch_queue_depth=1)

    pipe.feed_input("x", batch_of(0), layout="C")
    assert pipe.run()[0].layout() == "C"
    assert pipe.run(x=batch_of(1))[0].layout() == "C"


def test_declared_layout(make: MakeInputs) -> None:
    pipe = make(options={"layout": "W"})

    assert pipe.run(x=batch_of(0))[0].layout() == "W"


@pytest.mark.parametrize("kind", [lambda batch: batch, list], ids=["TensorList", "list of tensors"])
def test_tensors_bring_their_layout_along(kind: Callable[[Any], Any], make: MakeInputs) -> None:
    pipe = make()

    (batch,) = pipe.run(x=kind(TensorListCPU(batch_of(0), layout="W")))

    assert batch.layout() == "W"


def test_tensors_may_be_given_another_layout(make: MakeInputs) -> None:
    pipe = make()

    pipe.feed_input("x", TensorListCPU(batch_of(0), layout="W"), layout="C")

    assert pipe.run()[0].layout() == "C"


@pytest.mark.parametrize(("declared", "given"), [("C", "W"), (None, "WC")], ids=["another one", "of the wrong length"])
def test_wrong_layouts_are_refused_when_they_are_fed(declared: str | None, given: str, make: MakeInputs) -> None:
    pipe = make(options={"layout": declared})

    with pytest.raises((LayoutMismatchError, NdimMismatchError), match=given):
        pipe.feed_input("x", batch_of(0), layout=given)

    assert first(pipe.run(x=batch_of(1))) == [1]


# Declarations and earlier batches

WRONG_BATCHES: dict[str, tuple[Any, type[Exception], str]] = {
    "another dtype": ([np.zeros(2)] * 3, DtypeMismatchError, "float64.*int32"),
    "more dimensions": ([np.zeros((2, 2), np.int32)] * 3, NdimMismatchError, "2 dimensions.*(had|with) 1"),
    "two dtypes": ([np.zeros(2, np.int32), np.zeros(2)], DtypeMismatchError, "float64.*int32"),
    "two numbers of dimensions": ([np.zeros(2, np.int32), np.int32(3)], NdimMismatchError, "0 dimensions.*(had|with) 1"),
    "too many samples": (batch_of(0, 4), BatchSizeError, "batch_size <= 3, actual: 4"),
    "no batch": (np.int32(3), SampleTypeError, "a batch is a list or tuple"),
    "None": (None, SampleTypeError, "None"),
    "texts": (["a"] * 3, SampleTypeError, "str"),
}


@pytest.mark.parametrize("way", ["declared", "fed before"])
@pytest.mark.parametrize("case", WRONG_BATCHES)
def test_wrong_batches_are_refused_when_they_are_fed(case: str, way: str, make: MakeInputs) -> None:
    wrong, kind, words = WRONG_BATCHES[case]
    pipe = make(options={"dtype": types.INT32, "ndim": 1} if way == "declared" else None)
    if way == "fed before":
        pipe.feed_input("x", batch_of(1))
        pipe.run()

    with pytest.raises(kind, match=f"input 'x'.*{words}"):
        pipe.feed_input("x", wrong)
    with pytest.raises(kind):
        pipe.run(x=wrong)

    assert first(pipe.run(x=batch_of(2))) == [2]


def test_a_batch_that_was_refused_fixes_nothing(make: MakeInputs) -> None:
    pipe = make(num_inputs=2)

    with pytest.raises(BatchSizeError):
        pipe.run(x=[np.zeros(2)] * 3, y=batch_of(0, 4))

    assert first(pipe.run(x=batch_of(1), y=batch_of(2))) == [1, 2]


@pytest.mark.parametrize("wrong", [{"y": batch_of(0, 4)}, {"nobody": batch_of(0)}], ids=["batch", "name"])
def test_run_feeds_all_or_nothing(wrong: dict[str, Any], make: MakeInputs) -> None:
    pipe = make(num_inputs=2)

    with pytest.raises((BatchSizeError, InputNameError)):
        pipe.run(x=batch_of(1), **wrong)

    assert first(pipe.run(x=batch_of(2), y=batch_of(3))) == [2, 3]


def test_inputs_of_one_iteration_have_the_same_size(make: MakeInputs) -> None:
    pipe = make(num_inputs=2)

    with pytest.raises(BatchSizeError, match="input 'x' returned 3 samples, input 'y' returned 2 samples"):
        pipe.run(x=batch_of(0), y=batch_of(0, 2))

    assert first(pipe.run(x=batch_of(1), y=batch_of(2))) == [1, 2]


# Names of inputs


@pytest.mark.parametrize("call", ["feed_input", "input_feed_count", "run"])
def test_unknown_names_are_refused(call: str, make: MakeInputs) -> None:
    pipe = make(num_inputs=2)
    calls = {
        "feed_input": lambda: pipe.feed_input("nobody", batch_of(0)),
        "input_feed_count": lambda: pipe.input_feed_count("nobody"),
        "run": lambda: pipe.run(nobody=batch_of(0)),
    }

    with pytest.raises(InputNameError, match="\"nobody\"; the pipeline has: 'x', 'y'"):
        calls[call]()


def test_feeding_an_unused_input_is_an_error(make: MakeInputs) -> None:
    nodes: list[DataNode] = []

    def define() -> DataNode:
        nodes.append(fn.external_source(name="unused"))
        return fn.external_source(name="x")

    pipe = make(define)

    for name in ("unused", *nodes):
        with pytest.raises(InputNameError, match="unused"):
            pipe.feed_input(name, batch_of(0))


def test_an_input_of_another_pipeline_is_refused(make: MakeInputs) -> None:
    nodes: list[DataNode] = []
    make(lambda: nodes.append(fn.external_source(name="theirs")) or nodes[0])
    pipe = make()

    with pytest.raises(InputNameError, match="'theirs' does not belong to this pipeline"):
        pipe.feed_input(nodes[0], batch_of(0))


def test_a_source_feeds_itself(make: MakeInputs) -> None:
    pipe = make(lambda: fn.external_source(source=batch_source, name="x"))

    with pytest.raises(ArgumentClashError, match="'x' has a `source`"):
        pipe.feed_input("x", batch_of(0))


@pytest.mark.parametrize("what", [3, None, b"x"])
def test_other_names_of_inputs_are_refused(what: Any, make: MakeInputs) -> None:
    with pytest.raises(ArgumentTypeError, match="an input is a DataNode or its name"):
        make().feed_input(what, batch_of(0))


def test_an_operator_is_no_input(make: MakeInputs) -> None:
    nodes: list[DataNode] = []
    pipe = make(lambda: nodes.append(fn.external_source(name="x").shape()) or nodes[0])

    with pytest.raises(ArgumentTypeError, match="is not an input"):
        pipe.feed_input(nodes[0], batch_of(0))


@pytest.mark.parametrize("source", [None, batch_source], ids=["inputs", "sources"])
def test_names_must_differ(source: Any, make: MakeInputs) -> None:
    pipe = make(lambda: tuple(fn.external_source(source=source, name="x") for _ in range(2)))

    with pytest.raises(ArgumentClashError, match="several external sources have the name 'x'"):
        pipe.build()


def test_one_input_may_be_several_outputs(make: MakeInputs) -> None:
    pipe = make(lambda: (fn.external_source(name="x"),) * 2)

    assert first(pipe.run(x=batch_of(4))) == [4, 4]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_input_feed_count(depth: int, make: MakeInputs) -> None:
    assert make(prefetch_queue_depth=depth).input_feed_count("x") == depth


WRONG_OPTIONS: dict[str, dict[str, Any]] = {
    "num_outputs": {"num_outputs": 2},
    "parallel": {"parallel": True},
    "size": {"size": 4},
    "sharded": {"sharded": True},
    "concurrency": {"concurrency": 4},
    "cycle": {"cycle": "raise"},
    "batch_info": {"batch_info": True},
    "worker_setup": {"worker_setup": print},
}


@pytest.mark.parametrize("option", WRONG_OPTIONS)
def test_options_of_sources_are_refused_for_inputs(option: str) -> None:
    with pytest.raises((ArgumentError, DefinitionError), match=f"{option} is only valid when using ``source``"):
        fn.external_source(name="x", **WRONG_OPTIONS[option])


@pytest.mark.parametrize("option", ["repeat_last"])
def test_options_of_inputs_are_refused_for_sources(option: str) -> None:
    with pytest.raises(ArgumentClashError, match=option):
        fn.external_source(source=batch_source, **{option: True})


# Inputs without a batch


def test_run_without_data_is_an_error_and_the_iteration_is_still_to_come(make: MakeInputs) -> None:
    pipe = make(lambda: (fn.external_source(name="x"), fn.external_source(source=lambda i: batch_of(10 + i))))

    assert first(pipe.run(x=batch_of(0))) == [0, 10]
    for _ in range(2):
        with pytest.raises(NoInputError, match=r"input 'x' has no batch left: call feed_input\(\)"):
            pipe.run()

    assert first(pipe.run(x=batch_of(1))) == [1, 11]


def test_one_input_of_two_was_fed(make: MakeInputs) -> None:
    pipe = make(num_inputs=2)
    pipe.feed_input("x", batch_of(0))

    with pytest.raises(NoInputError, match="input 'y'"):
        pipe.run()

    assert first(pipe.run(y=batch_of(1))) == [0, 1]


class TestRepeatLast:
    def test_gives_the_last_batch_until_there_is_another(self, make: MakeInputs) -> None:
        pipe = make(options={"repeat_last": True})

        seen = []
        for number in range(2):
            pipe.feed_input("x", batch_of(number))
            seen += [first(pipe.run())[0] for _ in range(3)]

        assert seen == [0, 0, 0, 1, 1, 1]

    def test_skips_nothing_that_was_fed(self, make: MakeInputs) -> None:
        pipe = make(options={"repeat_last": True})
        for number in range(4):
            pipe.feed_input("x", batch_of(number))

        assert [first(pipe.run())[0] for _ in range(6)] == [0, 1, 2, 3, 3, 3]

    def test_skips_nothing_that_is_fed_behind_a_repetition(self, make: MakeInputs) -> None:
        pipe = make(options={"repeat_last": True})
        pipe.feed_input("x", batch_of(0))
        seen = [first(pipe.run())[0] for _ in range(2)]

        for number in (1, 2):
            pipe.feed_input("x", batch_of(number))

        assert seen + [first(pipe.run())[0] for _ in range(3)] == [0, 0, 1, 2, 2]

    def test_has_nothing_to_give_at_first(self, make: MakeInputs) -> None:
        with pytest.raises(NoInputError):
            make(options={"repeat_last": True}).run()

    @pytest.mark.parametrize("kind", [np.asarray, list], ids=["array", "list"])
    def test_gives_it_as_it_was_fed(self, kind: Callable[[Any], Any], make: MakeInputs) -> None:
        pipe = make(options={"repeat_last": True})
        pipe.feed_input("x", kind(np.ones((3, 2))))

        batches = [pipe.run()[0] for _ in range(3)]
        batches[0].at(0)[:] = 5
        batches += pipe.run()

        assert [batch.at(0).tolist() for batch in batches] == [[5, 5], [1, 1], [1, 1], [1, 1]]

    def test_goes_with_an_input_that_is_fed_each_time(self, make: MakeInputs) -> None:
        pipe = make(lambda: (fn.external_source(name="x", repeat_last=True), fn.external_source(name="y")))
        pipe.feed_input("x", batch_of(5))

        assert [first(pipe.run(y=batch_of(number))) for number in range(3)] == [[5, 0], [5, 1], [5, 2]]


# Threads


def waits_for_input(thread: int | None) -> bool:
    """Whether a thread is in a run() that waits for input."""
    frame = sys._current_frames().get(thread or 0)
    while frame is not None:
        if frame.f_code is inputs.InputPool.wait.__code__:
            return True
        frame = frame.f_back
    return False


def waits_for_lock(thread: int | None) -> bool:
    """Whether a thread waits for another thread's call to end."""
    frame = sys._current_frames().get(thread or 0)
    return frame is not None and frame.f_code is InterruptSafeLock.take_unless.__code__


def in_thread(function: Callable[[], Any], *, when: Callable[[], Any] = lambda: True) -> threading.Thread:
    """Start a thread that calls the function as soon as a condition is true."""

    def call() -> None:
        wait_until(when, "the condition of a thread")
        function()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


class TestBlocking:
    def test_run_waits_until_another_thread_feeds(self, make: MakeInputs) -> None:
        pipe = make(options={"blocking": True})
        here = threading.get_ident()

        for number in range(3):
            feeder = in_thread(lambda: pipe.feed_input("x", batch_of(number)), when=lambda: waits_for_input(here))  # noqa: B023
            assert first(pipe.run()) == [number]
            feeder.join()

    def test_run_in_a_thread_waits_until_this_one_feeds(self, make: MakeInputs) -> None:
        pipe = make(options={"blocking": True})
        seen: list[list[int]] = []
        runner = in_thread(lambda: seen.extend(first(pipe.run()) for _ in range(3)))

        for number in range(3):
            wait_until(lambda: waits_for_input(runner.ident), "a run() that waits")
            pipe.feed_input("x", batch_of(number))
            wait_until(lambda number=number: len(seen) == number + 1, "a batch")
        runner.join()

        assert seen == [[0], [1], [2]]

    def test_thread_that_feeds_during_build_does_not_wait_for_the_run(self) -> None:
        begun = threading.Event()

        class Slow(Pipeline):
            def define_graph(self) -> Any:
                begun.set()
                wait_until(lambda: waits_for_lock(feeder.ident), "the thread that feeds")
                return fn.external_source(name="x", blocking=True)

        with closing(Slow(BATCH_SIZE, 1)) as pipe:
            feeder = in_thread(lambda: pipe.feed_input("x", batch_of(1)), when=begun.is_set)

            assert first(pipe.run()) == [1]
            feeder.join()

    def test_close_ends_the_wait(self, make: MakeInputs) -> None:
        pipe = make(options={"blocking": True})
        here = threading.get_ident()
        closer = in_thread(pipe.close, when=lambda: waits_for_input(here))

        with pytest.raises(ClosedError):
            pipe.run()
        closer.join()

        with pytest.raises(ClosedError):
            pipe.feed_input("x", batch_of(0))

    def test_ctrl_c_ends_the_wait_and_loses_nothing(self, make: MakeInputs) -> None:
        pipe = make(lambda: (fn.external_source(name="x", blocking=True), fn.external_source(source=batch_source)))
        here = threading.get_ident()
        presser = in_thread(lambda: os.kill(os.getpid(), signal.SIGINT), when=lambda: waits_for_input(here))

        with pytest.raises(KeyboardInterrupt):
            pipe.run()
        presser.join()

        assert first(pipe.run(x=batch_of(5))) == [5, 0]

    def test_batches_fed_by_a_busy_thread_come_in_order(self, make: MakeInputs) -> None:
        pipe = make(options={"blocking": True})
        feeder = in_thread(lambda: [pipe.feed_input("x", batch_of(number)) for number in range(300)])

        seen = [first(pipe.run())[0] for _ in range(300)]
        feeder.join()

        assert seen == list(range(300))


# Together with sources and operators


def test_inputs_and_sources_of_all_kinds(way: str, make: MakeInputs) -> None:
    def numbers(info: SampleInfo) -> NDArray[Any]:
        return np.array(100 + info.idx_in_epoch)

    def define() -> list[DataNode]:
        return [
            fn.external_source(name="x"),
            fn.external_source(source=lambda i: batch_of(200 + i)),
            fn.external_source(name="y"),
            fn.external_source(source=numbers, batch=False, parallel=way != "serial"),
        ]

    pipe = make(define, py_num_workers=2, py_start_method="fork" if way == "serial" else way)

    for i in range(4):
        assert first(pipe.run(x=batch_of(i), y=batch_of(-i))) == [i, 200 + i, -i, 100 + 3 * i]


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("with_operator", [False, True])
def test_an_epoch_that_a_source_ends_takes_no_input_along(depth: int, with_operator: bool, make: MakeInputs) -> None:
    def source(iteration: int) -> Any:
        if iteration == 2:
            raise StopIteration
        return batch_of(100 + iteration)

    def define() -> list[DataNode]:
        data = fn.external_source(name="x")
        return [data, fn.external_source(source=source), *([data.shape()] if with_operator else [])]

    pipe = make(define, prefetch_queue_depth=depth)
    for number in range(6):
        pipe.feed_input("x", batch_of(number))

    seen = []
    for _ in range(3):
        seen.append([first(outputs)[:2] for outputs in pipe])

    assert seen == [[[0, 100], [1, 101]], [[2, 100], [3, 101]], [[4, 100], [5, 101]]]


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("with_operator", [False, True])
def test_reset_drops_nothing_that_was_fed(depth: int, with_operator: bool, make: MakeInputs) -> None:
    def define() -> tuple[DataNode, ...]:
        data = fn.external_source(name="x")
        return (data, data.shape()) if with_operator else (data,)

    pipe = make(define, prefetch_queue_depth=depth)
    for number in range(8):
        pipe.feed_input("x", batch_of(number))

    seen = []
    for _ in range(4):
        seen += [first(pipe.run())[0], first(pipe.run())[0]]
        pipe.reset()

    assert seen == list(range(8))


def test_operators_run_on_fed_batches(make: MakeInputs) -> None:
    pipe = make(lambda: fn.decoders.image(fn.external_source(name="x")))
    files = [image_file("png_rgb"), image_file("png_gray")]

    for i in range(5):
        pipe.feed_input("x", files[i % 2 :][:1] * BATCH_SIZE)
    batches = [pipe.run()[0] for _ in range(5)]

    for i, batch in enumerate(batches):
        pixels = stored_pixels(("png_rgb", "png_gray")[i % 2])
        assert pixels is not None
        np.testing.assert_array_equal(batch.at(2), np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def test_inputs_are_scheduled(make: MakeInputs) -> None:
    pipe = make(prefetch_queue_depth=2)
    for number in range(3):
        pipe.feed_input("x", batch_of(number))

    pipe.schedule_run()
    pipe.schedule_run()

    assert [first(pipe.outputs()) for _ in range(3)] == [[0], [1], [2]]


def test_a_pipeline_of_inputs_has_no_length(make: MakeInputs) -> None:
    with pytest.raises(DefinitionError, match="unknown"):
        len(make())


# iter_setup


class Feeding(Pipeline):
    """A pipeline that feeds itself three batches per epoch."""

    def __init__(self, *, by_name: bool, with_operator: bool = False, **options: Any) -> None:
        super().__init__(BATCH_SIZE, 2, **options)
        self.by_name = by_name
        self.with_operator = with_operator
        self.iteration = 0

    def define_graph(self) -> Any:
        self.node = fn.external_source(name="x")
        return [self.node, self.node.shape()] if self.with_operator else self.node

    def iter_setup(self) -> None:
        if self.iteration == 3:
            self.iteration = 0
            raise StopIteration
        self.feed_input("x" if self.by_name else self.node, batch_of(self.iteration))
        self.iteration += 1


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("with_operator", [False, True])
def test_iter_setup_feeds(by_name: bool, with_operator: bool) -> None:
    with closing(Feeding(by_name=by_name, with_operator=with_operator)) as pipe:
        for _ in range(3):
            assert [first(outputs)[0] for outputs in pipe] == [0, 1, 2]
            with pytest.raises(StopIteration):
                pipe.run()


def test_iter_setup_feeds_the_scheduled_batches() -> None:
    with closing(Feeding(by_name=True)) as pipe:
        for _ in range(2):
            seen = []
            pipe.schedule_run()
            while not pipe.empty():
                seen.append(first(pipe.outputs())[0])
                pipe.schedule_run()
            pipe.reset()
            assert seen == [0, 1, 2]


def test_feeding_in_a_callback_is_refused_before_the_pipeline_is_built(make: MakeInputs) -> None:
    class Wrong(Pipeline):
        def define_graph(self) -> Any:
            self.feed_input("x", batch_of(0))

    with closing(Wrong(BATCH_SIZE, 1)) as pipe, pytest.raises(PipelineStateError, match="own callbacks"):
        pipe.build()
