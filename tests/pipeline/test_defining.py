"""Defining pipelines: outputs and constants, sinks, the current pipeline, classes that derive from Pipeline, nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.errors import ArgumentError, ArgumentTypeError, DefinitionError, DeviceError, PipelineStateError
from dali_like.graph.language.nodes import DataNode
from dali_like.pipeline import experimental
from dali_like.pipeline.definition import do_not_convert
from dali_like.types import Constant, SampleInfo


def numbers(**options: Any) -> Any:
    """A source of consecutive numbers, one a sample."""
    return fn.external_source(source=lambda info: np.array(info.idx_in_epoch), batch=False, **options)


def outputs_of(*outputs: Any, batch_size: int = 2) -> list[Any]:
    """The first batch of each output."""
    pipe = Pipeline(batch_size, 1)
    pipe.set_outputs(*outputs)
    with closing(pipe):
        return list(pipe.run())


# Constants


@pytest.mark.parametrize(
    ("value", "dtype", "sample"),
    [
        (3, types.INT32, 3),
        (-1, types.INT32, -1),
        (2.5, types.FLOAT, 2.5),
        (True, types.BOOL, True),
        ([1, 2], types.INT32, [1, 2]),
        ((1, 2), types.INT32, [1, 2]),
        ([1, 2.5], types.FLOAT, [1, 2.5]),
        ([True, False], types.BOOL, [True, False]),
        ([True, 2], types.INT32, [1, 2]),
        ([], types.FLOAT, []),
        (float("inf"), types.FLOAT, float("inf")),
        (np.float16(2), types.FLOAT16, 2),
        (np.uint8(5), types.UINT8, 5),
        (np.bool_(1), types.BOOL, True),
        (np.array(7), types.INT32, 7),
        (np.array([[1, 2], [3, 4]]), types.INT32, [[1, 2], [3, 4]]),
        (np.array([1.5]), types.FLOAT, [1.5]),
        (np.array([1, 2], np.uint64), types.UINT32, [1, 2]),
        (np.array([[1], [2]], np.int16)[::-1], types.INT16, [[2], [1]]),
        (np.array([1, 2], ">i2"), types.INT16, [1, 2]),
        (np.zeros((0, 3), np.uint8), types.UINT8, []),
    ],
)
def test_numbers_and_arrays_are_delivered_as_constants(value: Any, dtype: Any, sample: Any) -> None:
    (batch,) = outputs_of(value)

    assert batch.dtype is dtype
    assert [tensor.tolist() for tensor in map(np.asarray, batch)] == [sample, sample]
    assert batch.is_dense_tensor()


def test_a_constant_has_as_many_samples_as_the_batches_of_sources() -> None:
    batch, constant = outputs_of(numbers(), 7, batch_size=5)

    assert len(batch) == len(constant) == 5


def test_a_constant_is_as_short_as_a_short_batch() -> None:
    batches = fn.external_source(source=[np.zeros((size, 2)) for size in (4, 3, 1)])
    pipe = Pipeline(4, 1)
    pipe.set_outputs(batches, 7)

    with closing(pipe):
        assert [[len(batch) for batch in run] for run in pipe] == [[4, 4], [3, 3], [1, 1]]


def test_constants_alone_make_a_pipeline_without_end() -> None:
    pipe = Pipeline(3, 1)
    pipe.set_outputs(1, [2, 3])

    with closing(pipe):
        for _ in range(10):
            one, other = pipe.run()
            assert one.as_array().tolist() == [1, 1, 1]
            assert other.as_array().tolist() == [[2, 3]] * 3


def test_a_constant_stays_the_same_after_a_write_into_its_batch() -> None:
    value = np.zeros(2, np.uint8)
    pipe = Pipeline(1, 1)
    pipe.set_outputs(value)
    with closing(pipe):
        pipe.run()[0].as_array()[:] = 9
        value[:] = 8

        assert pipe.run()[0].as_array().tolist() == [[0, 0]]


def test_a_tensor_of_another_library_keeps_its_type_and_is_copied() -> None:
    class Tensor:
        array = np.array([1, 2], np.int64)

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
            return self.array

    constant = Constant(Tensor())
    Tensor.array[:] = 9

    assert constant.dtype is types.INT64
    assert constant.array.tolist() == [1, 2]


def test_a_constant_next_to_an_operator() -> None:
    shape, constant = outputs_of(numbers().shape(), 4)

    assert shape.as_array().shape == (2, 0)
    assert constant.as_array().tolist() == [4, 4]


def test_constants_of_another_type_shape_and_layout() -> None:
    (batch,) = outputs_of(Constant([1, 2, 3, 4], dtype=types.INT64, shape=(2, 2), layout="HW"))

    assert batch.dtype is types.INT64
    assert batch.layout() == "HW"
    assert batch.at(1).tolist() == [[1, 2], [3, 4]]


def test_a_number_fills_a_shape() -> None:
    assert Constant(2, shape=(1, 3)).array.tolist() == [[2, 2, 2]]


def test_a_constant_tells_its_properties() -> None:
    constant = Constant([1.5], layout="X")

    assert (constant.dtype, constant.shape, constant.layout) == (types.FLOAT, [1], "X")
    assert repr(constant) == "Constant(array([1.5], dtype=float32), layout='X')"


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**70, 1e300, [1, 2**31]])
def test_numbers_that_do_not_fit_are_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"does not fit|too large"):
        Pipeline(2).set_outputs(value)


@pytest.mark.parametrize("value", [np.array([2**40]), np.array([1, 2**62], np.uint64), np.array([[1e300]])])
def test_arrays_that_do_not_fit_into_32_bits_keep_their_type(value: NDArray[Any]) -> None:
    output, product, constant = outputs_of(value, Constant(1, value.dtype) * value, Constant(value))

    assert output.dtype is constant.dtype is types.to_dali_type(value.dtype)
    assert output.at(0).tolist() == constant.at(0).tolist() == value.tolist()
    assert product.at(0).tolist() == value.tolist()


def test_numbers_that_do_not_fit_by_default_may_be_given_a_type() -> None:
    (batch,) = outputs_of(Constant(2**40, types.INT64))

    assert batch.as_array().tolist() == [2**40] * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"value": 300, "dtype": types.UINT8}, "does not fit into UINT8"),
        ({"value": -1, "dtype": "uint16"}, "does not fit"),
        ({"value": float("nan"), "dtype": types.INT32}, "does not fit"),
        ({"value": [1, 2, 3], "shape": (2, 2)}, r"3 elements does not have the shape \(2, 2\)"),
        ({"value": 1, "shape": "x"}, "does not have the shape 'x'"),
        ({"value": [1, 2], "layout": "HW"}, "'HW' cannot describe 1-dimensional data"),
    ],
)
def test_constants_that_cannot_be(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Constant(**arguments)


@pytest.mark.parametrize("value", ["text", b"bytes", None, {}, [[1], [2]], ["a"], [None], 1j, types.UINT8, range(3)])
def test_constants_are_made_of_numbers(value: Any) -> None:
    with pytest.raises(ArgumentTypeError):
        Constant(value)
    with pytest.raises(DefinitionError, match=r"Illegal output type\. The output 0 is a"):
        Pipeline(2).set_outputs(value)


def test_constants_are_on_the_cpu_or_on_a_gpu() -> None:
    assert (Constant(1).device, Constant(1, device="gpu").device) == ("cpu", "gpu")
    with pytest.raises(DeviceError, match="device='tpu'"):
        Constant(1, device="tpu")


def test_a_list_without_nodes_is_one_constant_of_a_pipelines_function() -> None:
    with closing(pipeline_def(lambda: [1, 2])(batch_size=1)) as pipe:
        assert [batch.as_array().tolist() for batch in pipe.run()] == [[[1, 2]]]


# Sinks


def counting(calls: list[int]) -> Any:
    def source(info: SampleInfo) -> NDArray[Any]:
        calls.append(info.idx_in_epoch)
        return np.zeros(1)

    return fn.external_source(source=source, batch=False)


def test_a_sink_is_computed_and_not_delivered() -> None:
    calls: list[int] = []
    pipe = Pipeline(2, 1, prefetch_queue_depth=1)
    pipe.set_outputs(numbers())
    pipe.add_sink(counting(calls))

    with closing(pipe):
        assert len(pipe.run()) == 1

    assert calls == [0, 1]


def test_operators_before_a_sink_run() -> None:
    calls: list[int] = []
    pipe = Pipeline(2, 1)
    pipe.set_outputs(numbers())
    pipe.add_sink(counting(calls).shape())

    with closing(pipe):
        pipe.run()

    assert calls[:2] == [0, 1]


@pytest.mark.parametrize("what", [3, "text", None])
def test_a_sink_is_a_node(what: Any) -> None:
    with pytest.raises(DefinitionError, match=r"add_sink\(\) takes a DataNode"):
        Pipeline(2).add_sink(what)


def test_sinks_come_before_build() -> None:
    pipe = Pipeline(2)
    pipe.set_outputs(1)
    pipe.build()

    with closing(pipe), pytest.raises(DefinitionError, match=r"add_sink\(\) must be called before build"):
        pipe.add_sink(numbers())


# Outputs


def test_outputs_set_last_count() -> None:
    pipe = Pipeline(1)
    pipe.set_outputs(1)
    pipe.set_outputs(2, 3)

    with closing(pipe):
        assert [batch.as_array().tolist() for batch in pipe.run()] == [[2], [3]]
        assert pipe.num_outputs == 2


@pytest.mark.parametrize("wrap", [lambda node: [node], lambda node: (node, node), lambda node: [1, [node]]])
def test_nested_nodes_are_refused(wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(DefinitionError, match="The output 1 contains a nested `DataNode`"):
        Pipeline(1).set_outputs(1, wrap(numbers()))


# The current pipeline


def test_the_current_pipeline_is_the_innermost() -> None:
    outer, inner = Pipeline(1), Pipeline(2)

    assert Pipeline.current() is None
    with outer as entered:
        assert entered is outer
        with inner:
            assert Pipeline.current() is inner
        assert Pipeline.current() is outer
    assert Pipeline.current() is None


def test_push_and_pop() -> None:
    pipe = Pipeline(1)

    assert Pipeline.push_current(pipe) is None
    assert Pipeline.push_current(pipe) is pipe
    Pipeline.pop_current()
    assert Pipeline.current() is pipe
    Pipeline.pop_current()
    assert Pipeline.current() is None


def test_pop_without_push() -> None:
    with pytest.raises(PipelineStateError, match="pop_current"):
        Pipeline.pop_current()


def test_each_thread_has_its_own_current_pipeline() -> None:
    seen = []

    with Pipeline(1):
        thread = threading.Thread(target=lambda: seen.append(Pipeline.current()))
        thread.start()
        thread.join()

    assert seen == [None]


def test_an_exception_ends_the_context() -> None:
    with pytest.raises(ZeroDivisionError), Pipeline(1):
        raise ZeroDivisionError

    assert Pipeline.current() is None


def test_leaving_the_context_does_not_close_the_pipeline() -> None:
    pipe = Pipeline(1)
    with pipe:
        pipe.set_outputs(numbers())

    with closing(pipe):
        assert pipe.run()[0].as_array().tolist() == [0]


def test_a_pipelines_function_sees_its_pipeline() -> None:
    @pipeline_def
    def pipeline() -> Any:
        pipe = Pipeline.current()
        assert pipe is not None
        return pipe.max_batch_size

    with closing(pipeline(batch_size=3)) as pipe:
        assert pipe.run()[0].as_array().tolist() == [3, 3, 3]
    assert Pipeline.current() is None


# pipeline_def


def test_pipeline_def_takes_the_function_by_name() -> None:
    assert pipeline_def(fn=lambda: 1)(batch_size=2).max_batch_size == 2


def test_pipeline_def_with_empty_brackets() -> None:
    assert pipeline_def()(lambda: 1)(batch_size=2).max_batch_size == 2


@pytest.mark.parametrize("options", [{"enable_conditionals": True}, {"enable_conditionals": False}, {"debug": False}])
def test_switches_of_dali_are_accepted_by_calls(options: dict[str, bool]) -> None:
    assert pipeline_def(lambda: 1)(batch_size=2, **options).max_batch_size == 2


def test_methods_make_pipelines_of_their_object() -> None:
    class Task:
        size = 3

        @pipeline_def(batch_size=1)
        def pipeline(self, extra: int) -> Any:
            return self.size + extra

    with closing(Task().pipeline(4)) as pipe:
        assert pipe.run()[0].as_array().tolist() == [7]


def test_functions_of_pipeline_def_are_marked() -> None:
    assert pipeline_def(lambda: 1)._is_pipeline_def  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", [2, "text"])
def test_pipeline_def_of_no_function(wrong: Any) -> None:
    with pytest.raises(TypeError):
        pipeline_def(wrong)


def test_do_not_convert_changes_nothing() -> None:
    def function() -> Any:
        return 1

    assert do_not_convert(function) is function
    assert do_not_convert()(function) is function
    assert pipeline_def(do_not_convert(function))(batch_size=1).max_batch_size == 1


def test_do_not_convert_is_not_for_pipelines() -> None:
    with pytest.raises(ArgumentError, match="cannot be marked"):
        do_not_convert(pipeline_def(lambda: 1))


# Classes that derive from Pipeline


class Counting(Pipeline):
    """Delivers consecutive numbers, and lets an epoch have so many batches."""

    def __init__(self, length: int = 3, outputs: Callable[[], Any] = numbers, **options: Any) -> None:
        super().__init__(2, 1, **options)
        self.length = length
        self.make_outputs = outputs
        self.log: list[str] = []

    def define_graph(self) -> Any:
        assert Pipeline.current() is self
        self.log.append("defined")
        return self.make_outputs()

    def iter_setup(self) -> None:
        self.log.append("set up")
        if self.log.count("set up") > self.length:
            self.log.clear()
            raise StopIteration


def test_define_graph_is_called_once_when_the_pipeline_is_built() -> None:
    pipe = Counting()
    assert pipe.log == []

    with closing(pipe):
        pipe.build()
        pipe.run()

    assert pipe.log == ["defined", "set up"]


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (lambda: [numbers(), 5], 2),
        (lambda: (numbers(), [5, 6]), 2),
        (lambda: [5, 6], 2),
        (lambda: 5, 1),
    ],
)
def test_define_graph_returns_one_output_or_several(outputs: Callable[[], Any], expected: int) -> None:
    with closing(Counting(outputs=outputs)) as pipe:
        assert len(pipe.run()) == pipe.num_outputs == expected


@pytest.mark.parametrize("outputs", [lambda: None, lambda: [[numbers()]], lambda: {"a": 1}])
def test_define_graph_with_illegal_outputs(outputs: Callable[[], Any]) -> None:
    with closing(Counting(outputs=outputs)) as pipe, pytest.raises(DefinitionError, match="Illegal"):
        pipe.build()


@pytest.mark.parametrize("outputs", [list, tuple])
def test_define_graph_without_outputs(outputs: Callable[[], Any]) -> None:
    with closing(Counting(outputs=outputs)) as pipe, pytest.raises(NotImplementedError, match="no outputs"):
        pipe.build()


def test_an_exception_of_define_graph_is_raised_by_build() -> None:
    with closing(Counting(outputs=lambda: 1 / 0)) as pipe, pytest.raises(ZeroDivisionError):
        pipe.build()


def test_outputs_that_are_set_replace_define_graph() -> None:
    with closing(Counting()) as pipe:
        pipe.set_outputs(9)

        assert pipe.run()[0].as_array().tolist() == [9, 9]
    assert "defined" not in pipe.log


def batches(pipe: Pipeline, count: int) -> list[Any]:
    """The first numbers of so many batches; None where the epoch has ended."""
    return [next((batch.at(0).tolist() for batch in run), None) for run in (next(pipe, []) for _ in range(count))]


def test_iter_setup_ends_epochs_until_reset() -> None:
    with closing(Counting()) as pipe:
        assert batches(pipe, 6) == [0, 2, 4, None, None, None]
        pipe.reset()
        assert batches(pipe, 5) == [0, 2, 4, None, None]


def test_iter_setup_is_not_called_once_the_epoch_has_ended() -> None:
    with closing(Counting()) as pipe:
        batches(pipe, 6)

        assert pipe.log == []


def test_iter_setup_ends_a_loop() -> None:
    with closing(Counting()) as pipe:
        assert [len(list(pipe)) for _ in range(2)] == [3, 3]


def test_epochs_that_iter_setup_ends_are_counted() -> None:
    epochs = fn.external_source(source=lambda info: np.array(info.epoch_idx), batch=False)

    with closing(Counting(outputs=lambda: epochs)) as pipe:
        assert [[run[0].at(0).tolist() for run in pipe] for _ in range(2)] == [[0] * 3, [1] * 3]


def test_iter_setup_may_use_the_pipeline() -> None:
    class Curious(Counting):
        def iter_setup(self) -> None:
            self.log.append(f"{self.num_outputs} outputs")

    with closing(Curious()) as pipe:
        pipe.run()

    assert pipe.log == ["defined", "1 outputs"]


def test_error_of_iter_setup_is_raised_by_run_and_loses_no_batch() -> None:
    class Failing(Counting):
        def iter_setup(self) -> None:
            self.log.append("set up")
            if self.log.count("set up") == 2:
                raise LookupError("not now")

    with closing(Failing()) as pipe:
        assert pipe.run()[0].at(0) == 0
        with pytest.raises(LookupError, match="not now"):
            pipe.run()
        assert pipe.run()[0].at(0) == 2


# Nodes


def test_a_node_knows_its_producer() -> None:
    one, other = fn.external_source(source=lambda info: (1, 2), num_outputs=2, batch=False)

    assert one.source is other.source is one.producer
    assert (one.device, one.output, other.output) == ("cpu", 0, 1)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (len, "len"),
        (float, "float"),
        (lambda node: 1 in node, "iterable|unpacked"),
        (lambda node: node["x"], "index of a DataNode"),
    ],
)
def test_unsupported_questions_to_a_node_are_type_errors(question: Callable[[DataNode], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        question(numbers())


@pytest.mark.parametrize(("dtype", "expected"), [(None, types.INT64), (types.INT32, types.INT32), ("int16", types.INT16)])
def test_shapes_of_samples(dtype: Any, expected: Any) -> None:
    ragged = fn.external_source(source=lambda info: np.zeros((info.idx_in_batch, 3)), batch=False)

    (batch,) = outputs_of(ragged.shape(dtype=dtype))

    assert batch.dtype is expected
    assert batch.as_array().tolist() == [[0, 3], [1, 3]]


def test_properties_of_a_node() -> None:
    node = fn.external_source(source=lambda info: np.zeros((2, 3)), batch=False, layout="HW")

    layout, source_info, same = outputs_of(node.property("layout"), node.source_info(), node.property("source_info"))

    assert layout.at(0).tobytes() == b"HW"
    assert source_info.at(1).shape == same.at(1).shape == (0,)
    assert layout.dtype is source_info.dtype is types.UINT8


def test_unknown_properties_of_a_node_are_refused() -> None:
    with pytest.raises(ArgumentError, match="keys layout, source_info, not 'colour'"):
        numbers().property("colour")


@pytest.mark.parametrize("call", [DataNode.shape, DataNode.source_info])
def test_facts_about_a_node_can_be_placed_on_the_gpu(call: Callable[..., Any]) -> None:
    assert (call(numbers()).device, call(numbers().gpu(), device="gpu").device) == ("cpu", "gpu")
    with pytest.raises(DeviceError, match="device='tpu'"):
        call(numbers(), device="tpu")


# Variadic functions


def test_functions_with_further_arguments() -> None:
    seen: list[Any] = []

    @pipeline_def(num_threads=1)
    def pipeline(first: int, *others: int, key: int = 0, **rest: int) -> Any:
        seen.append((first, others, key, rest))
        return numbers()

    with closing(pipeline(1, 2, 3, key=4, mine=5, others=6, batch_size=2)) as pipe:
        assert pipe.max_batch_size == 2
    assert seen == [(1, (2, 3), 4, {"mine": 5, "others": 6})]


@pytest.mark.parametrize("debug", [False, True])
def test_experimental_pipelines(debug: bool) -> None:
    @experimental.pipeline_def(batch_size=2, num_threads=1, debug=debug)
    def pipeline() -> Any:
        return numbers()

    with closing(pipeline(debug=debug)) as pipe:
        assert pipe.run()[0].as_array().tolist() == [0, 1]
