"""Programs that use the wider surface of ``nvidia.dali.Pipeline`` 1.53, run by the real DALI and by dali_like.

In this order: arguments and properties; outputs, constants and classes that derive from Pipeline; running in two steps; what
outputs are expected to be; batches and tensors; where dali_like differs on purpose. Everything runs in the main process.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

import nvidia.dali

import dali_like
from tests.parity.conftest import END, copied, error_of

pytestmark = pytest.mark.peers

Program = Callable[[ModuleType], Any]


def same(program: Program) -> None:
    """Both libraries answer the same."""
    assert program(dali_like) == run_by_dali(program)


def run_by_dali(program: Program) -> Any:
    """The results of the real one; it warns of more than we do."""
    with warnings.catch_warnings(action="ignore"):
        return program(nvidia.dali)


def raises_the_same(program: Program, expected: type[Exception]) -> None:
    """DALI raises this builtin class; an `except` clause for it must go on working."""
    with warnings.catch_warnings(action="ignore"):
        theirs = error_of(program, nvidia.dali)
    ours = error_of(program, dali_like)

    assert type(theirs) is expected
    assert isinstance(ours, expected), f"{type(ours).__mro__}: {ours}"


def numbers(dali: Any, length: int | None = None, **options: Any) -> Any:
    """A source of consecutive numbers, with so many batches in an epoch."""

    def source(info: Any) -> Any:
        if info.iteration == length:
            raise StopIteration
        return np.array([info.idx_in_epoch])

    return dali.fn.external_source(source=source, batch=False, **options)


@contextlib.contextmanager
def pipeline(dali: Any, *outputs: Callable[[Any], Any], kind: Any = None, **options: Any) -> Iterator[Any]:
    """A pipeline with the results of these functions, or by default of consecutive numbers; closed in the end."""
    pipe = (kind or dali.Pipeline)(**{"batch_size": 2, "num_threads": 2, "device_id": None, **options})
    try:
        if kind is None:
            with pipe:
                pipe.set_outputs(*(output(dali) for output in outputs or [numbers]))
        yield pipe
    finally:
        if isinstance(pipe, dali_like.Pipeline):
            pipe.close()


def log_of(call: Callable[[], Any]) -> Any:
    """The results of a call, as plain values."""
    try:
        result = call()
    except StopIteration:
        return END
    return [copied(batch) for batch in result] if isinstance(result, (tuple, list)) else result


# Arguments and properties


def test_arguments_have_the_same_order_and_defaults() -> None:
    ours = inspect.signature(dali_like.Pipeline).parameters
    theirs = inspect.signature(nvidia.dali.Pipeline).parameters
    # Names that are not there are not compared.
    theirs = {name: theirs[name] for name in theirs if name in ours}
    own = {
        "py_worker_threads",
        "py_worker_restarts",
        "py_timeout_s",
        "max_held_bytes",
        "py_worker_options",
        "py_import_main",
    }

    assert [name for name in ours if name not in own] == list(theirs)
    for name, parameter in theirs.items():
        assert (ours[name].kind, ours[name].default) == (parameter.kind, parameter.default)


PROPERTIES = (
    *("max_batch_size", "num_threads", "device_id", "seed", "exec_pipelined", "exec_async", "exec_dynamic"),
    *("exec_separated", "set_affinity", "max_streams", "prefetch_queue_depth", "default_cuda_stream_priority"),
    *("enable_memory_stats", "py_num_workers", "py_start_method", "cpu_queue_size", "gpu_queue_size", "num_outputs"),
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"exec_pipelined": False},
        {"exec_async": False},
        {"exec_dynamic": False},
        {"exec_dynamic": True},
        {"prefetch_queue_depth": {"cpu_size": 3, "gpu_size": 4}},
        {"prefetch_queue_depth": 7},
        {"seed": -1},
        {"seed": 12},
        {"max_streams": 3, "default_cuda_stream_priority": 2},
        {"set_affinity": True, "enable_memory_stats": True, "bytes_per_sample": 100},
        {"py_num_workers": 5, "py_start_method": "spawn"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_properties_show_the_same(options: dict[str, Any]) -> None:
    def program(dali: ModuleType) -> Any:
        with pipeline(dali, **options) as pipe:
            return {name: getattr(pipe, name) for name in PROPERTIES}

    same(program)


def test_properties_before_the_build_are_the_same() -> None:
    same(lambda dali: [getattr(dali.Pipeline(num_threads=1), name) for name in PROPERTIES if name != "num_outputs"])


def test_enumerations_have_the_same_names() -> None:
    same(lambda dali: [list(kind.__members__) for kind in (dali.StreamPolicy, dali.OperatorConcurrency)])
    same(lambda dali: [(str(member), member.value) for member in dali.types.PipelineAPIType])


def test_types_have_the_same_names() -> None:
    """Except for names of the module's own."""
    of_the_module = "ConstantNode Enum backend_impl ctypes dali_type_converters re tfrec unique"
    theirs, ours = ({name for name in dir(dali.types) if name[0] != "_"} for dali in (nvidia.dali, dali_like))

    assert theirs - ours == set(of_the_module.split())


@pytest.mark.parametrize("name", ["DALIDataType", "DALIImageType", "DALIInterpType"])
def test_enumerations_of_types_have_the_same_members(name: str) -> None:
    theirs = {key: int(member) for key, member in getattr(nvidia.dali.types, name).__members__.items()}
    ours = {key: int(member) for key, member in getattr(dali_like.types, name).__members__.items()}

    assert {key: value for key, value in ours.items() if key != "OBJECT"} == theirs


def test_types_of_arguments_have_no_equal_in_numpy() -> None:
    raises_the_same(lambda dali: dali.types.to_numpy_type(dali.types.STRING), KeyError)


def test_handles_of_streams_are_the_same() -> None:
    same(lambda dali: [dali.types.CUDAStream().ptr, dali.types.CUDAStream(7).ptr])


NO_TYPES: dict[str, Program] = {
    "source": lambda dali: of_no_type(dali, lambda image, dtype: image),
    "operator": lambda dali: of_no_type(dali, lambda image, dtype: dali.fn.brightness(image, brightness=2.0, dtype=dtype)),
}


def of_no_type(dali: Any, operator: Callable[[Any, Any], Any]) -> Any:
    """Results for images, without their type and the type of the result."""

    def outputs(dali: Any) -> Any:
        no_type = dali.types.NO_TYPE
        source = lambda: ([np.full((1, 2, 3), 5, np.uint8)],)  # noqa: E731
        (image,) = dali.fn.external_source(source, num_outputs=1, dtype=[no_type], layout="HWC")
        return operator(image, no_type)

    with pipeline(dali, outputs, batch_size=1) as pipe:
        (batch,) = pipe.run()
        return batch.dtype.name, np.array(batch.at(0)).tolist()


@pytest.mark.parametrize("program", NO_TYPES.values(), ids=NO_TYPES)
def test_no_type_counts_as_not_given(program: Program) -> None:
    same(program)


@pytest.mark.parametrize(
    "program",
    [
        lambda dali: dali.Pipeline(1, 1, output_dtype=dali.types.NO_TYPE),
        lambda dali: dali.Pipeline(1, 1, output_dtype=[dali.types.NO_TYPE]),
    ],
)
def test_no_type_is_expected_of_no_output(program: Program) -> None:
    raises_the_same(program, ValueError)


def test_no_type_has_no_equal_in_numpy() -> None:
    raises_the_same(lambda dali: dali.types.to_numpy_type(dali.types.NO_TYPE), KeyError)


@pytest.mark.parametrize("name", ["StreamPolicy.SINGLE", "StreamPolicy.UNSPECIFIED"])
def test_policies_are_shown(name: str) -> None:
    def program(dali: Any) -> str:
        return str(dali.Pipeline(1, 1, stream_policy=dali.StreamPolicy[name.partition(".")[2]]).stream_policy)

    same(program)


def test_statistics_without_workers_and_readers_are_the_same() -> None:
    def program(dali: ModuleType) -> Any:
        with pipeline(dali) as pipe:
            pipe.run()
            return pipe.epoch_size(), pipe.reader_meta(), pipe.executor_statistics(), pipe.external_source_shm_statistics()

    same(program)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch_size": None}, ValueError),
        ({"batch_size": 0}, ValueError),
        ({"batch_size": "2"}, TypeError),
        ({"num_threads": 0}, ValueError),
        ({"num_threads": "1"}, TypeError),
        ({"device_id": "0"}, TypeError),
        ({"device_id": 1.0}, TypeError),
        ({"seed": "1"}, TypeError),
        ({"seed": 1.5}, TypeError),
        ({"bytes_per_sample": "1"}, TypeError),
        ({"enable_memory_stats": "yes"}, TypeError),
        ({"prefetch_queue_depth": 0}, ValueError),
        ({"prefetch_queue_depth": -1}, ValueError),
        ({"prefetch_queue_depth": {"cpu_size": 0, "gpu_size": 1}}, ValueError),
        ({"prefetch_queue_depth": {"cpu_size": "1", "gpu_size": 1}}, TypeError),
        ({"prefetch_queue_depth": {"cpu_size": 1, "gpu_size": 1}, "exec_async": False}, ValueError),
        ({"output_dtype": 3}, TypeError),
        ({"output_ndim": "1"}, TypeError),
        ({"output_ndim": -1}, ValueError),
        ({"output_ndim": [-1]}, ValueError),
        ({"output_layout": 3}, TypeError),
        ({"output_ndim": [1, 1]}, RuntimeError),
    ],
    ids=str,
)
def test_wrong_arguments_raise_as_in_dali(options: dict[str, Any], expected: type[Exception]) -> None:
    def program(dali: ModuleType) -> None:
        with pipeline(dali, **options) as pipe:
            pipe.run()

    raises_the_same(program, expected)


@pytest.mark.parametrize("name", ["epoch_size", "reader_meta"])
def test_unknown_readers_raise_as_in_dali(name: str) -> None:
    def program(dali: ModuleType) -> None:
        with pipeline(dali) as pipe:
            getattr(pipe, name)("train")

    raises_the_same(program, RuntimeError)


# Outputs, constants and classes that derive from Pipeline


@pytest.mark.parametrize(
    "value",
    [
        *(3, -1, 2**31 - 1, 2.5, True, [1, 2], (1, 2), [1, 2.5], [True, False], [True, 2], [], float("inf")),
        *(np.float32(2), np.float16(2), np.float64(2), np.int64(5), np.uint8(5), np.array(3), np.array(2.5)),
        *(np.array([[1, 2], [3, 4]]), np.array([1.5]), np.array([1], np.uint64), np.zeros((2, 3), np.uint8)),
        *(np.array([True, False]), np.array([1], np.float16), np.zeros((0, 3)), np.arange(6).reshape(2, 3)[:, ::-1]),
    ],
    ids=repr,
)
def test_constants_are_the_same(value: Any) -> None:
    def program(dali: ModuleType) -> Any:
        with pipeline(dali, numbers, lambda dali: value, batch_size=3) as pipe:
            return log_of(pipe.run)

    same(program)


@pytest.mark.parametrize(
    "arguments",
    [
        {"value": 3, "dtype": "UINT8"},
        {"value": [1, 2], "dtype": "INT64"},
        {"value": [1, 2, 3, 4], "shape": (2, 2), "layout": "HW"},
        {"value": 1, "shape": (2, 2)},
        {"value": np.array([1, 2]), "dtype": "FLOAT16"},
        {"value": 2, "device": "cpu"},
        {"value": [1, 2], "name": "numbers"},
        *[{"value": value, "dtype": "INT32"} for value in (2.5, 2.6, -2.6, np.float64(2.6), [2.5, 2.6, -2.5])],
        *[{"value": value, "dtype": "INT32", "device": "cpu"} for value in (2.5, 2.6, -2.6, np.array([2.5, -2.6]))],
        *[{"value": value} for value in (np.int64(5), np.array(5), np.array([5]), np.float32(5), np.uint64(7))],
        *[{"value": value, "device": "cpu"} for value in (np.int64(5), np.array(5), np.array([5.5]), np.uint64(7))],
    ],
    ids=str,
)
def test_constants_with_a_type_or_a_shape_are_the_same(arguments: dict[str, Any]) -> None:
    def program(dali: Any) -> Any:
        given = {**arguments, "dtype": getattr(dali.types, arguments["dtype"])} if "dtype" in arguments else arguments
        with pipeline(dali, lambda dali: dali.types.Constant(**given)) as pipe:
            return log_of(pipe.run)

    same(program)


def test_constants_next_to_short_batches_are_the_same() -> None:
    def short(dali: Any) -> Any:
        return dali.fn.external_source(source=[[np.array([1])] * size for size in (4, 3, 1)])

    def program(dali: ModuleType) -> Any:
        with pipeline(dali, short, lambda dali: 7, batch_size=4) as pipe:
            return [log_of(pipe.run) for _ in range(4)]

    same(program)


def test_constants_alone_are_the_same() -> None:
    def program(dali: ModuleType) -> Any:
        with pipeline(dali, lambda dali: 5, batch_size=3) as pipe:
            return [log_of(pipe.run) for _ in range(3)]

    same(program)


@pytest.mark.parametrize("value", ["text", None, {}, b"x", [[1]], ["a"], 1j, np.array(["a"]), np.array([1j])], ids=repr)
def test_invalid_output_raises_as_in_dali(value: Any) -> None:
    def program(dali: ModuleType) -> None:
        with pipeline(dali, lambda dali: value) as pipe:
            pipe.build()

    raises_the_same(program, TypeError)


@pytest.mark.parametrize("wrap", [lambda node: [node], lambda node: (node, node), lambda node: [1, [node]]])
def test_nested_nodes_raise_as_in_dali(wrap: Callable[[Any], Any]) -> None:
    def program(dali: ModuleType) -> None:
        with pipeline(dali, lambda dali: wrap(numbers(dali))) as pipe:
            pipe.build()

    raises_the_same(program, TypeError)


@pytest.mark.parametrize("define", [lambda: None, lambda: ()], ids=["None", "nothing"])
def test_missing_outputs_raise_as_in_dali(define: Callable[[], Any]) -> None:
    raises_the_same(
        lambda dali: dali.pipeline_def(define)(batch_size=1, num_threads=1, device_id=None).build(), NotImplementedError
    )


def test_a_pipelines_function_may_return_a_list_of_numbers() -> None:
    def program(dali: Any) -> Any:
        with contextlib.ExitStack() as stack:
            pipe = dali.pipeline_def(lambda: [1, 2])(batch_size=2, num_threads=1, device_id=None)
            stack.callback(getattr(pipe, "close", lambda: None))
            return log_of(pipe.run)

    same(program)


def test_the_current_pipeline_is_the_same() -> None:
    def program(dali: Any) -> Any:
        one, other = dali.Pipeline(1, 1), dali.Pipeline(2, 1)
        names = {id(one): "one", id(other): "other", id(None): "none"}
        log = [dali.Pipeline.current()]
        with one as entered:
            log += [entered, dali.Pipeline.current()]
            log += [dali.Pipeline.push_current(other), dali.Pipeline.current(), dali.Pipeline.pop_current()]
            log.append(dali.Pipeline.current())
        log.append(dali.Pipeline.current())
        return [names[id(pipe)] for pipe in log]

    same(program)


def test_pipeline_def_takes_the_same_forms() -> None:
    def program(dali: Any) -> Any:
        def define(extra: int = 1) -> Any:
            return dali.Pipeline.current().max_batch_size + extra

        class Task:
            size = 5

            @dali.pipeline_def(num_threads=1, device_id=None)
            def method(self) -> Any:
                return self.size

        options = {"batch_size": 2, "num_threads": 1, "device_id": None}
        pipes = [
            dali.pipeline_def(define)(**options),
            dali.pipeline_def()(define)(**options),
            dali.pipeline_def(fn=define)(extra=7, **options),
            dali.pipeline_def(**options)(define)(8, batch_size=3),
            dali.pipeline_def(enable_conditionals=True, **options)(define)(),
            dali.pipeline_def(define)(enable_conditionals=False, debug=False, **options),
            dali.pipeline_def(dali.pipeline.do_not_convert()(lambda: 1) and define)(**options),
            Task().method(batch_size=2),
        ]
        log = [log_of(pipe.run) for pipe in pipes]
        for pipe in pipes:
            getattr(pipe, "close", lambda: None)()
        return log

    same(program)


def test_pipelines_are_not_for_do_not_convert() -> None:
    raises_the_same(lambda dali: dali.pipeline.do_not_convert(dali.pipeline_def(lambda: 1)), ValueError)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_iter_setup_ends_epochs_alike(depth: int) -> None:
    def program(dali: Any) -> Any:
        class Counting(dali.Pipeline):  # type: ignore[misc]
            calls = 0

            def define_graph(self) -> Any:
                assert dali.Pipeline.current() is self
                return [numbers(dali), 5]

            def iter_setup(self) -> None:
                self.calls += 1
                if self.calls == 4:
                    self.calls = 0
                    raise StopIteration

        with pipeline(dali, kind=Counting, prefetch_queue_depth=depth) as pipe:
            log = []
            for _ in range(2):
                log += [log_of(pipe.run) for _ in range(6)]
                pipe.reset()
            return log

    same(program)


@pytest.mark.parametrize("outputs", [lambda: None, lambda: [[1, "a"]]])
def test_illegal_outputs_of_define_graph_raise_as_in_dali(outputs: Callable[[], Any]) -> None:
    def program(dali: Any) -> None:
        kind = type("Derived", (dali.Pipeline,), {"define_graph": lambda self: outputs()})
        with pipeline(dali, kind=kind) as pipe:
            pipe.build()

    raises_the_same(program, TypeError)


@pytest.mark.parametrize("question", [bool, iter, len, list, float, lambda node: 1 in node])
def test_invalid_use_of_a_node_raises_as_in_dali(question: Callable[[Any], Any]) -> None:
    raises_the_same(lambda dali: question(numbers(dali)), TypeError)


def test_shapes_and_properties_of_nodes_are_the_same() -> None:
    def program(dali: Any) -> Any:
        def outputs(question: Callable[[Any], Any]) -> Callable[[Any], Any]:
            return lambda dali: question(
                dali.fn.external_source(source=lambda info: np.zeros((2, 3)), batch=False, layout="HW")
            )

        questions = [
            lambda node: node.shape(),
            lambda node: node.shape(dtype=dali.types.INT32),
            lambda node: node.property("layout"),
            lambda node: node.source_info(),
        ]
        with pipeline(dali, *map(outputs, questions)) as pipe:
            return log_of(pipe.run)

    same(program)


# Running in two steps

STEPS = {
    "in turn": "s o s o s o",
    "shared and released": "s p r s p r",
    "more outputs than scheduled": "s o o o s o",
    "outputs before anything": "o s o",
    "emptiness": "e s e o e o e o e",
    "over the end of the epoch": "s o s o s o s o e s o e",
    "epochs": "s o s o s o s o R s o s o s o s o s o R s o",
    "reset of nothing": "R s o R",
}


@pytest.mark.parametrize("options", [{}, {"prefetch_queue_depth": 1}, {"exec_pipelined": False}], ids=str)
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_scheduled_batches_come_alike(steps: str, options: dict[str, Any]) -> None:
    methods = {"s": "schedule_run", "o": "outputs", "p": "share_outputs", "r": "release_outputs", "e": "empty", "R": "reset"}

    def program(dali: ModuleType) -> Any:
        # DALI goes on with the epoch that has not ended; we begin the next.
        with pipeline(dali, lambda dali: numbers(dali, length=3), **options) as pipe:
            return [log_of(getattr(pipe, methods[step])) for step in steps.split()]

    same(program)


@pytest.mark.parametrize("second", ["schedule_run", "outputs", "share_outputs", "release_outputs"])
def test_mixed_ways_to_run_raise_as_in_dali(second: str) -> None:
    texts = []

    def program(dali: ModuleType) -> None:
        with pipeline(dali) as pipe:
            pipe.run()
            try:
                getattr(pipe, second)()
            except RuntimeError as error:
                texts.append(str(error))
                raise

    raises_the_same(program, RuntimeError)
    assert texts[0] == texts[1]


def test_without_the_check_the_ways_to_run_mix_alike() -> None:
    def program(dali: ModuleType) -> Any:
        with pipeline(dali, prefetch_queue_depth=1) as pipe:
            pipe.enable_api_check(False)
            log = [log_of(pipe.run), pipe.schedule_run(), log_of(pipe.outputs), log_of(pipe.run)]
            pipe.enable_api_check(True)
            return [*log, log_of(pipe.run)]

    same(program)


def test_unreleased_batches_block_no_call_and_stay() -> None:
    def program(dali: ModuleType) -> Any:
        with pipeline(dali) as pipe:
            held = []
            for _ in range(5):
                pipe.schedule_run()
                held.append(pipe.share_outputs()[0])
            return [copied(batch) for batch in held]

    same(program)


# Expected types and layouts of outputs


@pytest.mark.parametrize(
    "options",
    [
        lambda types: {"output_dtype": types.INT64, "output_ndim": 1, "output_layout": "X"},
        lambda types: {"output_dtype": [types.INT64, None], "output_ndim": [None, 1]},
        lambda types: {"output_layout": ""},
        lambda types: {"output_dtype": [None, types.UINT8]},
        lambda types: {"output_dtype": types.UINT8},
        lambda types: {"output_ndim": 3},
        lambda types: {"output_layout": "HWC"},
        lambda types: {"output_dtype": types.UINT8, "output_ndim": 3, "output_layout": "HWC"},
    ],
)
def test_outputs_are_held_against_the_same(options: Callable[[Any], dict[str, Any]]) -> None:
    def text(error: Exception) -> str:
        return str(error).rpartition("failed: ")[2].partition(" The pipeline declares")[0]  # our advice

    def program(dali: Any) -> Any:
        outputs = [lambda dali: numbers(dali, layout="X")] * 2
        with pipeline(dali, *outputs, **options(dali.types)) as pipe:
            log: list[Any] = [pipe.num_outputs, list(map(str, pipe.output_dtype())), pipe.output_ndim()]
            for _ in range(2):
                try:
                    log.append(log_of(pipe.run))
                except RuntimeError as error:
                    log.append(text(error))
            return log

    same(program)


# Batches and tensors

ARRAY = np.arange(24, dtype=np.float32).reshape(4, 2, 3)


def facts(tensors: Any) -> Any:
    """All that a tensor or a list says of itself."""
    arrays = [np.asarray(tensors)] if hasattr(tensors, "squeeze") else [tensors.at(i) for i in range(len(tensors))]
    return str(tensors.dtype), list(tensors.shape()), tensors.layout(), [array.tolist() for array in arrays]


def squeezed(dim: int | None, shape: tuple[int, ...] = (1, 2, 1, 3)) -> Callable[[Any], Any]:
    def program(dali: Any) -> Any:
        tensor = dali.tensors.TensorCPU(np.zeros(shape), "ABCD"[: len(shape)])
        return tensor.squeeze(dim), facts(tensor)

    return program


def after(change: Callable[[Any, Any], Any], make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def program(dali: Any) -> Any:
        tensors = make(dali.tensors)
        return change(dali, tensors), facts(tensors)

    return program


def as_tensor(tensors: Any) -> Any:
    return tensors.TensorCPU(ARRAY, "NHW")


def as_list(tensors: Any) -> Any:
    return tensors.TensorListCPU(ARRAY, "HW")


def as_ragged(tensors: Any) -> Any:
    return tensors.TensorListCPU([tensors.TensorCPU(np.arange(i + 1, dtype=np.int16)) for i in range(3)])


def copied_out(dali: Any, tensors: Any) -> list[Any]:
    copy = np.zeros(24, np.asarray(tensors[0] if hasattr(tensors, "at") else tensors).dtype)
    tensors.copy_to_external(ctypes.c_void_p(copy.ctypes.data))
    return list(copy.tolist())


@pytest.mark.parametrize(
    "program",
    [
        *(pytest.param(squeezed(dim), id=f"squeeze {dim}") for dim in (None, 0, 1, 2, -1, -2)),
        pytest.param(squeezed(None, (1, 1)), id="squeeze to a scalar"),
        pytest.param(squeezed(None, ()), id="squeeze a scalar"),
        *(
            pytest.param(after(change, make), id=f"{what} of {make.__name__}")
            for make in (as_tensor, as_list)
            for what, change in {
                "no layout": lambda dali, tensors: tensors.set_layout(None),
                "empty layout": lambda dali, tensors: tensors.set_layout(""),
                "reinterpret": lambda dali, tensors: tensors.reinterpret(dali.types.INT32),
                "copy": copied_out,
            }.items()
        ),
        pytest.param(after(lambda dali, tensors: tensors.set_layout("XYZ"), as_tensor), id="layout of a tensor"),
        pytest.param(after(lambda dali, tensors: tensors.set_layout("XY"), as_list), id="layout of a list"),
        pytest.param(after(copied_out, as_ragged), id="copy of a ragged list"),
        pytest.param(lambda dali: facts(as_list(dali.tensors).as_reshaped_tensor([8, 3])), id="another shape"),
        pytest.param(lambda dali: facts(as_list(dali.tensors).as_reshaped_tensor([4, 2, 3])), id="the same shape"),
        pytest.param(lambda dali: facts(as_list(dali.tensors).as_reshaped_tensor([24])), id="one dimension"),
        pytest.param(
            lambda dali: facts(dali.tensors.TensorListCPU(ARRAY).as_reshaped_tensor([24])), id="one dimension without layout"
        ),
        pytest.param(lambda dali: facts(as_ragged(dali.tensors).as_reshaped_tensor([6])), id="shape of a ragged list"),
        pytest.param(lambda dali: facts(dali.tensors.TensorListCPU.broadcast(as_tensor(dali.tensors), 3)), id="broadcast"),
        pytest.param(lambda dali: facts(dali.tensors.TensorListCPU(as_list(dali.tensors))), id="list of a list"),
        pytest.param(lambda dali: facts(dali.tensors.TensorListCPU(as_list(dali.tensors), "XY")), id="and a layout"),
        pytest.param(lambda dali: facts(dali.tensors.TensorListCPU([as_tensor(dali.tensors)] * 2)), id="layouts of tensors"),
        pytest.param(lambda dali: facts(dali.tensors.TensorCPU(ARRAY, "NHW", False)), id="pinned"),
        pytest.param(lambda dali: facts(dali.tensors.TensorCPU(b=ARRAY, layout="NHW")), id="tensor by name"),
        pytest.param(lambda dali: facts(dali.tensors.TensorListCPU(b=ARRAY, is_pinned=False)), id="list by name"),
        pytest.param(lambda dali: as_tensor(dali.tensors).source_info(), id="source_info"),
        pytest.param(
            lambda dali: [as_tensor(dali.tensors).get_property(name) for name in ("layout", "source_info", "x")],
            id="get_property",
        ),
        pytest.param(lambda dali: as_tensor(dali.tensors).data_ptr() == ARRAY.ctypes.data, id="data_ptr"),
        pytest.param(lambda dali: as_list(dali.tensors).data_ptr() == ARRAY.ctypes.data, id="data_ptr of a list"),
        pytest.param(lambda dali: repr(as_list(dali.tensors)), id="repr of a list"),
        pytest.param(lambda dali: repr(as_ragged(dali.tensors)), id="repr of a ragged list"),
        pytest.param(lambda dali: str(as_list(dali.tensors)), id="str of a list"),
        pytest.param(lambda dali: str(as_ragged(dali.tensors)), id="str of a ragged list"),
        pytest.param(lambda dali: repr(dali.tensors.TensorCPU(ARRAY)), id="repr of a tensor"),
        pytest.param(lambda dali: str(dali.tensors.TensorCPU(ARRAY)), id="str of a tensor"),
        pytest.param(lambda dali: [dali.backend.TensorListCPU is dali.tensors.TensorListCPU], id="backend"),
    ],
)
def test_tensors_do_the_same(program: Program) -> None:
    same(program)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (lambda tensors: as_tensor(tensors).set_layout("H"), ValueError),
        (lambda tensors: as_list(tensors).set_layout("HWC"), ValueError),
        (lambda tensors: as_tensor(tensors).squeeze(3), RuntimeError),
        (lambda tensors: as_list(tensors).as_reshaped_tensor([5]), RuntimeError),
        (lambda tensors: as_list(tensors).as_reshaped_tensor([-1]), RuntimeError),
        (lambda tensors: tensors.TensorListCPU(np.array(3.0)), RuntimeError),
        (lambda tensors: tensors.TensorListCPU([as_tensor(tensors), tensors.TensorCPU(np.zeros((4, 2, 3)))]), TypeError),
        (lambda tensors: tensors.TensorListCPU([as_tensor(tensors), tensors.TensorCPU(np.zeros(2))]), TypeError),
        (lambda tensors: as_list(tensors).at("0"), TypeError),
    ],
)
def test_wrong_calls_raise_as_in_dali(question: Callable[[Any], Any], expected: type[Exception]) -> None:
    raises_the_same(lambda dali: question(dali.tensors), expected)


@pytest.mark.parametrize("make", [as_tensor, as_list])
def test_elements_of_another_size_raise_as_in_dali(make: Callable[[Any], Any]) -> None:
    raises_the_same(lambda dali: make(dali.tensors).reinterpret(dali.types.UINT8), RuntimeError)


# Saving


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda kind: kind.deserialize(), ValueError),
        (lambda kind: kind.deserialize(b"", filename="x"), ValueError),
        (lambda kind: kind.deserialize(b"abc"), RuntimeError),
        (lambda kind: kind.deserialize(3), TypeError),
        (lambda kind: kind.deserialize(filename="/nonexistent"), FileNotFoundError),
        (lambda kind: kind(1, 1).serialize("file"), TypeError),
        (lambda kind: kind(1, 1).serialize(), NotImplementedError),
    ],
)
def test_failed_saves_and_loads_raise_as_in_dali(call: Callable[[Any], Any], expected: type[Exception]) -> None:
    raises_the_same(lambda dali: call(dali.Pipeline), expected)


def test_repeated_outputs_raise_as_in_dali() -> None:
    def program(dali: ModuleType) -> None:
        with pipeline(dali) as pipe:
            pipe.serialize(lambda: 1)

    raises_the_same(program, RuntimeError)


@pytest.mark.parametrize(
    "form", [{}, {"batch_size": 5}, {"num_threads": 3, "seed": 9}, {"prefetch_queue_depth": 1}], ids=str
)
def test_saved_pipeline_is_loaded_alike(form: dict[str, Any]) -> None:
    def program(dali: Any) -> Any:
        with pipeline(dali, lambda dali: 5, lambda dali: [1.5], seed=4, output_ndim=[0, 1]) as pipe:
            loaded = dali.Pipeline.deserialize(pipe.serialize(), **form)
        log = [log_of(loaded.run), loaded.max_batch_size, loaded.num_threads, loaded.seed, loaded.prefetch_queue_depth]
        log += [loaded.num_outputs, loaded.output_ndim()]
        getattr(loaded, "close", lambda: None)()
        return log

    same(program)


def test_a_pipeline_becomes_another_alike() -> None:
    def program(dali: Any) -> Any:
        with pipeline(dali, lambda dali: 5, seed=4, prefetch_queue_depth=5) as pipe:
            text = pipe.serialize()
        loaded = dali.Pipeline(batch_size=3, num_threads=1, device_id=None)
        loaded.deserialize_and_build(text)
        log = [log_of(loaded.run), loaded.max_batch_size, loaded.num_threads, loaded.seed, loaded.prefetch_queue_depth]
        getattr(loaded, "close", lambda: None)()
        return log

    same(program)


# Where dali_like differs on purpose


@pytest.mark.parametrize(("value", "theirs"), [(2**31, -(2**31)), (2**40, 0), ([2**32 + 7], [7]), (1e300, float("inf"))])
def test_constants_that_do_not_fit_are_refused(value: Any, theirs: Any) -> None:
    """DALI delivers other numbers."""

    def program(dali: ModuleType) -> Any:
        with pipeline(dali, lambda dali: value) as pipe:
            return pipe.run()[0].at(0).tolist()

    assert isinstance(error_of(program, dali_like), ValueError)
    assert run_by_dali(program) == theirs


def test_a_boolean_of_numpy_is_a_constant() -> None:
    """DALI takes numbers of Python only."""

    def program(dali: ModuleType) -> Any:
        with pipeline(dali, lambda dali: np.bool_(1)) as pipe:
            return pipe.run()[0].at(0).tolist()

    assert program(dali_like) is True
    assert type(error_of(program, nvidia.dali)) is TypeError


@pytest.mark.parametrize("options", [{"output_dtype": np.int64}, {"output_dtype": "int64"}, {"output_ndim": np.int64(1)}])
def test_types_and_numbers_of_numpy_may_be_expected(options: dict[str, Any]) -> None:
    """DALI takes its own types and Python's numbers only."""

    def program(dali: ModuleType) -> Any:
        with pipeline(dali, **options) as pipe:
            return len(pipe.run())

    assert program(dali_like) == 1
    assert type(error_of(program, nvidia.dali)) is TypeError


@pytest.mark.parametrize(("layouts", "theirs"), [(["X"], 1), (["X", None, None], 2)])
def test_a_list_of_layouts_of_another_length_is_refused(layouts: list[str | None], theirs: int) -> None:
    """DALI forgets outputs."""

    def program(dali: ModuleType) -> Any:
        with pipeline(dali, numbers, numbers, output_layout=layouts) as pipe:
            pipe.build()
            return pipe.num_outputs

    assert "output_layout has" in str(error_of(program, dali_like))
    assert run_by_dali(program) == theirs


def test_expectations_may_be_a_tuple() -> None:
    """DALI gives the whole tuple to each output."""

    def program(dali: Any) -> Any:
        with pipeline(dali, numbers, numbers, output_dtype=(dali.types.INT64, None)) as pipe:
            return len(pipe.run())

    assert program(dali_like) == 2
    assert type(error_of(program, nvidia.dali)) is TypeError


def test_a_sink_is_computed() -> None:
    """DALI cannot find it among the inputs."""

    def program(dali: ModuleType) -> Any:
        polled = []

        def source(info: Any) -> Any:
            polled.append(info.idx_in_epoch)
            return np.zeros(1)

        with pipeline(dali, prefetch_queue_depth=1) as pipe:
            with pipe:
                pipe.add_sink(dali.fn.external_source(source=source, batch=False))
            pipe.run()
        return polled

    assert program(dali_like) == [0, 1]
    assert type(error_of(program, nvidia.dali)) is KeyError


def test_a_pipelines_function_may_return_a_list_of_nodes() -> None:
    """DALI wants a tuple."""

    def program(dali: Any) -> Any:
        pipe = dali.pipeline_def(lambda: [numbers(dali), numbers(dali)])(batch_size=1, num_threads=1, device_id=None)
        count = len(pipe.run())
        pipe.close()
        return count

    assert program(dali_like) == 2
    assert type(error_of(program, nvidia.dali)) is TypeError


def test_outputs_that_are_set_too_late_are_refused() -> None:
    """DALI goes on with those from before."""

    def program(dali: ModuleType) -> Any:
        with pipeline(dali) as pipe:
            pipe.build()
            pipe.set_outputs(1, 2)
            return len(pipe.run())

    assert "before build()" in str(error_of(program, dali_like))
    assert run_by_dali(program) == 1


def test_tensors_can_be_pickled() -> None:
    """DALI's cannot."""
    import pickle

    def program(dali: Any) -> Any:
        return facts(pickle.loads(pickle.dumps(as_list(dali.tensors))))

    assert program(dali_like) == facts(as_list(dali_like.tensors))
    assert type(error_of(program, nvidia.dali)) is TypeError


def test_a_loaded_pipeline_can_be_saved_again() -> None:
    """DALI's has no graph."""

    def program(dali: Any) -> Any:
        with pipeline(dali, lambda dali: 5) as pipe:
            loaded = dali.Pipeline.deserialize(pipe.serialize())
        text = loaded.serialize()
        loaded.close()
        return type(text)

    assert program(dali_like) is bytes
    assert type(error_of(program, nvidia.dali)) is NotImplementedError
