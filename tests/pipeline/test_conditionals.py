# ruff: noqa: SIM108  # statements are the subject
"""Conditional execution: each sample takes its branch. The comparison with DALI is in tests/parity/test_conditionals.py."""

from __future__ import annotations

import functools
import json
import linecache
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.errors import (
    ArgumentClashError,
    ArgumentTypeError,
    DefinitionError,
    DeviceError,
    DtypeMismatchError,
    LayoutMismatchError,
    MissingExtraError,
    NdimMismatchError,
    SampleError,
    SampleTypeError,
    SerializationError,
)
from dali_like.graph.language.branches import adapted
from dali_like.pipeline import experimental
from dali_like.pipeline.definition import do_not_convert
from dali_like.types import SampleInfo

conditional = functools.partial(pipeline_def, enable_conditionals=True, batch_size=4, num_threads=1)


def index(info: SampleInfo) -> np.ndarray:
    return np.array(info.idx_in_epoch, np.int32)


def numbers(**options: Any) -> Any:
    """A source of consecutive numbers, one a sample."""
    return fn.external_source(source=index, batch=False, **options)


def run(define: Callable[..., Any], *arguments: Any, **options: Any) -> list[list[Any]]:
    """The samples of the first batch of each output."""
    with closing(conditional(**options)(define)(*arguments)) as pipe:
        return [[np.asarray(output.at(i)).tolist() for i in range(len(output))] for output in pipe.run()]


# Laziness


def test_an_operator_runs_only_for_samples_of_its_branch() -> None:
    def define() -> Any:
        x = numbers()
        text = fn.external_source(source=lambda info: np.zeros(4, np.uint8), batch=False)
        if x >= 0:
            y = x
        else:
            y = fn.cast(fn.decoders.image(text)[0, 0, 0], dtype=types.INT32)  # these are not images
        return y

    assert run(define) == [[0, 1, 2, 3]]


def test_an_operator_before_the_conditional_runs_only_for_samples_that_need_it() -> None:
    def define() -> Any:
        x = numbers()
        quotient = 12 // x  # raises for 0
        if x == 0:
            y = 100
        else:
            y = quotient
        return y

    assert run(define) == [[100, 12, 6, 4]]


def test_the_right_operand_of_a_logical_expression_is_lazy() -> None:
    def define() -> Any:
        x = numbers()
        return x > 0 and 12 // x > 5, x == 0 or 12 // x > 5

    assert run(define) == [[False, True, True, False], [True, True, True, False]]


def test_an_error_in_a_branch_names_the_operator_and_the_sample() -> None:
    def define() -> Any:
        x = numbers()
        if x < 2:
            y = 12 // x
        else:
            y = x
        return y

    with pytest.raises(SampleError, match="integer division by zero") as caught:
        run(define)
    assert any("math.div" in note and "sample 0" in note for note in caught.value.__notes__)


def test_random_numbers_do_not_depend_on_the_branches_of_other_samples() -> None:
    def define(limit: int) -> Any:
        x = numbers()
        if x < limit:
            y = fn.random.uniform(seed=3)
            z = fn.random.normal()
        else:
            y = z = -1.0
        return y, z

    few, all_ = run(define, 2, seed=1), run(define, 4, seed=1)

    assert [output[:2] for output in few] == [output[:2] for output in all_]
    assert [output[2:] for output in few] == [[-1, -1], [-1, -1]]


# Functions across samples


def test_a_function_of_batches_gets_the_samples_of_its_branch() -> None:
    batches = []

    def record(batch: list[np.ndarray]) -> list[np.ndarray]:
        batches.append([int(sample) for sample in batch])
        return [(sample + 10 * len(batch)).astype(sample.dtype) for sample in batch]  # NumPy 1 promotes to int64

    def define() -> Any:
        x = numbers()
        if x > 0:
            if x != 2:
                y = fn.python_function(x, function=record, batch_processing=True) + 100
            else:
                y = x
        else:
            y = x + 5
        return y

    assert run(define) == [[5, 121, 2, 123]]
    assert batches == [[1, 3]]


def test_a_function_of_batches_without_samples_is_not_called() -> None:
    def fail(batch: Any) -> Any:
        raise AssertionError

    def define() -> Any:
        x = numbers()
        if x > 100:
            y = fn.python_function(x, function=fail, batch_processing=True)
        else:
            y = x
        return y

    assert run(define) == [[0, 1, 2, 3]]


def test_a_function_without_uses_is_called_for_the_samples_of_its_branch() -> None:
    calls = []

    def define() -> Any:
        x = numbers()
        if x > 1:
            fn.python_function(x, function=lambda sample: (calls.append(int(sample)), sample)[1])
        return x

    assert run(define) == [[0, 1, 2, 3]]
    assert calls == [2, 3]


def test_branches_of_varying_size_follow_each_other() -> None:
    def define() -> Any:
        x = numbers()
        if x > 6:
            y = fn.python_function(fn.random.uniform(range=[0, 1], shape=[3]), function=lambda a: a * 0 + a.size)
        else:
            y = fn.cast(fn.stack(x, x), dtype=types.FLOAT)
        return y

    with closing(conditional()(define)()) as pipe:
        lengths = [
            [len(np.asarray(pipe_output.at(i))) for i in range(4)] for (pipe_output,) in (pipe.run() for _ in range(3))
        ]
    assert lengths == [[2, 2, 2, 2], [2, 2, 2, 3], [3, 3, 3, 3]]


# Places


def two_sources(parallel: bool) -> Any:
    x = numbers(parallel=parallel)
    z = fn.external_source(source=lambda info: np.array(info.idx_in_epoch + 50, np.int32), batch=False, parallel=parallel)
    kept = numbers(parallel=parallel)
    if x > 1:
        y = x * 2  # a result for some samples, wanted next to the other source
    else:
        y = z
    if fn.cast(kept, dtype=types.FLOAT) > fn.random.coin_flip(seed=7):
        kept = kept + 100
    return y, kept


def test_workers_return_no_result_that_exists_for_some_samples_only() -> None:
    options = {"py_num_workers": 2, "py_start_method": "thread"}
    with closing(conditional(**options)(two_sources)(True)) as pipe:
        pipe.build()
        places = pipe.operator_places

    assert run(two_sources, True, **options) == run(two_sources, False)
    assert run(two_sources, False)[0] == [50, 51, 4, 6]
    assert {place for name, place in places.items() if "mul" in name} == {"threads"}
    assert {place for name, place in places.items() if "coin_flip" in name} == {"workers"}


def test_a_conditional_of_one_source_runs_in_workers() -> None:
    def define() -> Any:
        x = numbers(parallel=True)
        if x > 1:
            y = x * 2
        elif x > 0:
            y = x
        else:
            y = 7
        return y

    with closing(conditional(py_num_workers=1, py_start_method="fork")(define)()) as pipe:
        assert pipe.run()[0].as_array().tolist() == [7, 1, 4, 6]
        assert set(pipe.operator_places.values()) == {"workers"}


def test_threads_define_pipelines_at_a_time() -> None:
    def define(limit: int) -> Any:
        x = numbers()
        if x > limit:
            y = x
        else:
            y = -1
        return y

    results: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: run(define, i)})) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {0: [[-1, 1, 2, 3]], 1: [[-1, -1, 2, 3]], 2: [[-1, -1, -1, 3]]}


def test_a_pipeline_defined_in_a_branch_is_apart() -> None:
    @conditional()
    def inner() -> Any:
        return numbers() + 1

    def define() -> Any:
        x = numbers()
        if x > 1:
            with closing(inner()) as pipe:
                (first,) = pipe.run()
            y = int(first.as_array()[3])
        else:
            y = 0
        return y

    assert run(define) == [[0, 0, 4, 4]]


# Saving


def branches() -> Any:
    x = fn.random.uniform(range=[0, 1])
    if x > 0.8:
        y = fn.random.normal()
    elif (x > 0.3 and x < 0.6) or not x > 0.1:
        y = x + 10
    else:
        y = 20.0
    return y


def test_a_pipeline_with_conditionals_can_be_serialized() -> None:
    with closing(conditional(seed=5, batch_size=20)(branches)()) as pipe:
        text = pipe.serialize()
        expected = pipe.run()[0].as_array()
    with closing(Pipeline.deserialize(text)) as copy:
        again = copy.serialize()
        np.testing.assert_array_equal(copy.run()[0].as_array(), expected)

    assert again == text
    assert len({round(float(value), -1) for value in expected}) == 3  # all branches were taken


@pytest.mark.parametrize("scope", ["[[[0, 0]]]", "[[[0, 0], 1]]", "[[[99, 0], true]]", "[3]"])
def test_a_broken_scope_is_refused(scope: str) -> None:
    with closing(conditional()(branches)()) as pipe:
        document = json.loads(pipe.serialize())
    node = next(node for node in document["nodes"] if node["kind"] == "operator in branch")
    node["scope"] = json.loads(scope)

    with pytest.raises(SerializationError, match="scope"):
        Pipeline.deserialize(json.dumps(document).encode())


def test_a_checkpoint_resumes_in_the_middle() -> None:
    def define() -> Any:
        x = numbers()
        if x < 5:
            y = fn.random.uniform()
        else:
            y = fn.random.normal()
        return y

    make = conditional(enable_checkpointing=True, seed=1)(define)
    with closing(make()) as pipe:
        pipe.run()
        state = pipe.checkpoint()
        expected = pipe.run()[0].as_array()
    with closing(make(checkpoint=state)) as pipe:
        np.testing.assert_array_equal(pipe.run()[0].as_array(), expected)


# Functions


def module_function(x: Any, *, limit: int = 1) -> Any:
    if x > limit:
        return x + 10
    return x


@do_not_convert
def unconverted(x: Any) -> Any:
    return module_function(x)


class Base:
    limit = 1

    def apply(self, x: Any) -> Any:
        return x > self.limit and x < 3


class Derived(Base):
    def apply(self, x: Any) -> Any:
        if super().apply(x):
            y = 1
        else:
            y = 0
        return y

    __call__ = apply


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (module_function, [0, 1, 12, 13]),
        (functools.partial(module_function, limit=2), [0, 1, 2, 13]),
        (logged(module_function), [0, 1, 12, 13]),
        (Derived().apply, [0, 0, 1, 0]),
        (Derived(), [0, 0, 1, 0]),
        (lambda x: x > 1 and x < 3, [False, False, True, False]),
        (lambda x: 5 if x > 1 else x, [0, 1, 5, 5]),
        (lambda x: 0 < x < 3, [False, True, True, False]),
        (lambda x: next(iter(map(module_function, [x]))), [0, 1, 12, 13]),
        (lambda x: functools.reduce(lambda a, b: b if a > 1 else a, [x, x + 3]), [0, 1, 5, 6]),
    ],
    ids=["function", "partial", "decorated", "method", "callable", "lambda", "ternary", "chain", "map", "reduce"],
)
def test_functions_of_all_kinds_are_converted(function: Callable[..., Any], expected: list[Any]) -> None:
    assert run(lambda: function(numbers())) == [expected]


def test_lambdas_of_one_line_are_told_apart() -> None:
    one, other = (lambda x: x > 1 and x < 3), (lambda x: x > 2 or x < 1)

    def define() -> Any:
        x = numbers()
        third, fourth = (lambda x: x > 1 and x < 3), (lambda x: x > 2 or x < 1)
        return one(x), other(x), third(x), fourth(x)

    assert run(define) == [[False, False, True, False], [True, False, False, True]] * 2


def test_functions_keep_closures_and_defaults() -> None:
    count = 0

    def define(first: int = 1, *rest: int, last: int = 2) -> Any:
        nonlocal count
        count += 1
        step = 10

        def add(x: Any, by: int = step) -> Any:
            if x > first:
                x += by
            return x

        return add(numbers()), add(numbers(), last)

    assert run(define) == [[0, 1, 12, 13], [0, 1, 4, 5]]
    assert count == 1


def test_callbacks_are_not_converted() -> None:
    """They may run in other processes, a million times."""
    stacks = []

    def define() -> Any:
        def source(info: SampleInfo) -> np.ndarray:
            stacks.append([frame.name for frame in traceback.extract_stack()])
            return index(info) if info.idx_in_epoch > 1 else np.array(7, np.int32)

        x = fn.external_source(source=source, batch=False)
        return x if x > 2 else -x

    assert run(define) == [[7, 7, -2, 3]]
    assert not any("converted_call" in stack[stack.index("run") :] for stack in stacks)


def test_marked_functions_are_not_converted() -> None:
    with pytest.raises(DefinitionError, match="pass enable_conditionals=True to pipeline_def"):
        run(lambda: unconverted(numbers()))


def test_modules_of_libraries_may_ask_for_conversion(tmp_path: Path) -> None:
    file = tmp_path / "augmentations.py"
    file.write_text("def f(x):\n    return x > 1 and x < 3\n", "utf-8")
    code = compile(file.read_text("utf-8"), file, "exec")
    plain: dict[str, Any] = {"__name__": "dali_like.augmentations"}
    converted = {**plain, "CONVERT_CONDITIONALS": True}
    exec(code, plain)
    exec(code, converted)

    assert run(lambda: converted["f"](numbers())) == [[False, False, True, False]]
    with pytest.raises(DefinitionError, match="pass enable_conditionals=True"):
        run(lambda: plain["f"](numbers()))


def test_without_conditionals_nodes_have_no_truth_value() -> None:
    with pytest.raises(DefinitionError, match="pass enable_conditionals=True to pipeline_def"):
        pipeline_def(lambda: module_function(numbers()))(batch_size=1)


def test_the_experimental_decorator_has_conditionals() -> None:
    pipe = experimental.pipeline_def(enable_conditionals=True, debug=True, batch_size=4)(
        lambda: module_function(numbers())
    )()
    with closing(pipe):
        assert pipe.run()[0].as_array().tolist() == [0, 1, 12, 13]


def test_loops_over_constants_stay_loops() -> None:
    def define() -> Any:
        x = numbers()
        for i in range(3):
            if i == 1:
                continue
            if x > i:
                x = x + 10
        return x

    assert run(define) == [[0, 21, 22, 23]]


def test_an_object_of_both_branches_stays_as_it_is() -> None:
    def define() -> Any:
        x = numbers()
        if x > 1:
            y, kind, text, number = x, types.INT64, "a", 1
        else:
            y, kind, text, number = -x, types.INT64, "a", 1
        assert (kind, text) == (types.INT64, "a")
        return fn.cast(y, dtype=kind), number + 1

    assert run(define) == [[0, -1, 2, 3], [2, 2, 2, 2]]


def test_functions_defined_in_a_notebook_are_converted() -> None:
    name, source = (
        "<ipython-input-7>",
        "def cell(x):\n    if x > 1:\n        y = 1\n    else:\n        y = 0\n    return y\n",
    )
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), namespace)
    try:
        assert run(lambda: namespace["cell"](numbers())) == [[0, 0, 1, 1]]
    finally:
        del linecache.cache[name]


def test_a_function_without_source_runs_as_it_is_with_a_warning() -> None:
    namespace: dict[str, Any] = {"__name__": "elsewhere"}
    exec(compile("def f(x): return x + 1", "<nowhere>", "exec"), namespace)

    with pytest.warns(UserWarning, match=r"^f runs without conversion .* do_not_convert$"):
        assert run(lambda: namespace["f"](numbers())) == [[1, 2, 3, 4]]


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Point:
    value: Any


def test_generated_methods_run_as_they_are() -> None:
    def define() -> Any:
        x = numbers()
        pair = Pair(x, Point(x))._replace(first=x + 1)
        assert Point(1).__eq__(Point(1))
        if pair.second.value > 1:
            pair = pair._replace(first=-x)
        return pair.first, Pair._make([x, x])[0]

    assert run(define) == [[1, 2, -2, -3], [0, 1, 2, 3]]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "malt", None)

    with pytest.raises(MissingExtraError, match=r"enable_conditionals=True\) needs malt: pip install 'diastatic-malt"):
        run(numbers)


# Errors


def test_errors_show_the_lines_of_the_program() -> None:
    def define() -> Any:
        x = numbers()
        for _ in range(2):
            if x > 1:
                x = call(x)
        return x

    call = lambda x: fn.flip(x, nonsense=1)  # noqa: E731
    with pytest.raises(ArgumentTypeError) as caught:
        run(define)
    lines = [entry.line for entry in traceback.extract_tb(caught.value.__traceback__) if entry.filename == __file__]
    assert lines[-1] == "call = lambda x: fn.flip(x, nonsense=1)  # noqa: E731"
    assert "x = call(x)" in lines
    packages = {
        str(frame.f_globals["__name__"]).partition(".")[0] for frame, _ in traceback.walk_tb(caught.value.__traceback__)
    }
    assert packages == {"tests"}


def assigned_in_one_branch(x: Any) -> Any:
    if x > 1:
        y = x
    return y


def returned_in_one_branch(x: Any) -> Any:
    for _ in range(1):
        if x > 1:
            return x
    return None


def none_is_returned(x: Any) -> Any:
    if x > 1:
        return x
    return None


def list_and_node(x: Any) -> Any:
    if x > 1:
        y = [x, x]
    else:
        y = x
    return y


def other_keys(x: Any) -> Any:
    if x > 1:
        y = {"a": x}
    else:
        y = {"b": x}
    return y


def text_and_node(x: Any) -> Any:
    if x > 1:
        y = "text"
    else:
        y = x
    return y


def too_large(x: Any) -> Any:
    if x > 1:
        y = 2**70
    else:
        y = x
    return y


def other_layouts(x: Any) -> Any:
    if x > 1:
        y = fn.reshape(x, shape=[1, 1], layout="HW")
    else:
        y = fn.reshape(x, shape=[1, 1], layout="WH")
    return y


LAYOUTS = {"HWC": (2, 2, 3), "FHWC": (1, 2, 2, 3), "DHWC": (2, 2, 2, 3), "FDHWC": (1, 2, 2, 2, 3)}


@pytest.mark.parametrize("batched", [False, True])
def test_branches_with_a_common_layout_are_merged(batched: bool) -> None:
    """The images have one layout for both operators; the operators could have results of others."""

    @pipeline_def(batch_size=4, num_threads=1, device_id=None, enable_conditionals=True)
    def define() -> Any:
        x = fn.external_source(lambda info: np.full((2, 2, 3), info.idx_in_batch, np.uint8), batch=False)
        takes = fn.external_source(lambda info: np.array(batched or info.idx_in_batch % 2 == 0), batch=False)
        if takes:
            y = fn.color_twist(x)
        else:
            y = fn.warp_affine(x, matrix=np.eye(2, 3))
        return y

    with define() as pipe:
        (output,) = pipe.run()

    assert output.layout() == "HWC"
    assert [sample[0, 0, 0] for sample in output.as_array()] == [0, 1, 2, 3]


def test_merged_layouts_are_those_that_both_branches_may_have() -> None:
    merged = adapted("`y`", ["", "HWC FHWC DHWC FDHWC", "FHWC HWC DHWC"])

    assert merged.layouts == ("HWC FHWC DHWC",)
    for layout, shape in LAYOUTS.items():
        if layout == "FDHWC":
            with pytest.raises(LayoutMismatchError, match=r"`y`: .* condition that is True has the layout 'FDHWC'"):
                merged.check(len(shape), True)
        else:
            merged.check(len(shape), True)


def test_layout_of_one_branch_only_is_an_error_of_its_sample() -> None:
    @pipeline_def(batch_size=2, num_threads=1, device_id=None, enable_conditionals=True)
    def define() -> Any:
        volumes = fn.external_source(lambda info: np.ones(LAYOUTS["DHWC"], np.uint8), batch=False, layout="DHWC")
        images = fn.external_source(lambda info: np.ones(LAYOUTS["HWC"], np.uint8), batch=False)
        takes = fn.external_source(lambda info: np.array(info.idx_in_batch == 0), batch=False)
        if takes:
            y = fn.warp_affine(volumes, matrix=np.eye(3, 4))  # DHWC or FDHWC
        else:
            y = fn.hue(images)  # HWC, FHWC or DHWC
        return y

    expected = (
        r"(?s)`y` after `if` in .* for a condition that is False has the layout 'HWC'.* Both may have DHWC.* sample 1 "
    )
    with define() as pipe, pytest.raises(LayoutMismatchError, match=expected):
        pipe.run()


def condition_on_gpu(x: Any) -> Any:
    if (x > 1).gpu():
        return x
    return x + 1


def branch_on_gpu(x: Any) -> Any:
    if x > 1:
        y = x.gpu()
    else:
        y = x
    return y


def result_that_escapes(x: Any) -> Any:
    found = []
    if x > 1:
        found.append(x + 1)
    return found[0] * 2


def output_that_escapes(x: Any) -> Any:
    found = []
    if x > 1:
        found.append(x + 1)
    return found[0]


def loop_on_a_node(x: Any) -> Any:
    while x > 1:
        x = x - 1
    return x


def break_on_a_node(x: Any) -> Any:
    for _ in range(2):
        if x > 1:
            break
        x = x + 1
    return x


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            assigned_in_one_branch,
            ArgumentClashError,
            r"`if` in test_conditionals.py:\d+: variable 'y' must also be init.*`else`",
        ),
        (list_and_node, ArgumentTypeError, r"different structures to `y`: a list of 2 and a DataNode\. Assign"),
        (other_keys, ArgumentTypeError, r"`y`: a dictionary with the keys \['a'\] and a dictionary with the keys \['b'\]"),
        (text_and_node, ArgumentTypeError, r"a branch of `if` in test_conditionals.py:\d+ assigns 'text' to `y`"),
        (too_large, ValueError, r"`y` in a branch of `if` in test_conditionals.py:\d+: \d+ is too large"),
        (other_layouts, ArgumentClashError, r"`y` after `if` in .*: the branches have the layouts 'HW' and 'WH'"),
        (
            lambda x: x > 1 and [x],
            ArgumentTypeError,
            r"^`and` in .*: the right operand is a list; operands are DataNodes or",
        ),
        (condition_on_gpu, DeviceError, r"the condition math.gt is on the GPU: compute it on the CPU"),
        (branch_on_gpu, DeviceError, r"`y` after `if` .* is on the GPU, the other on the CPU"),
        (
            result_that_escapes,
            ArgumentClashError,
            r"math.mul: the input math.add was computed in .* that has ended",
        ),
        (output_that_escapes, DefinitionError, r"the output math.add was computed in a branch of a conditional"),
        (loop_on_a_node, DefinitionError, r"`while`, `in`, `break`"),
        (break_on_a_node, DefinitionError, r"`while`, `in`, `break`"),
        (returned_in_one_branch, ArgumentClashError, r"the `else` branch must also have a return statement"),
        (none_is_returned, ArgumentTypeError, r"assigns None to `return value`"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_wrong_conditionals_are_refused(function: Callable[..., Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        run(lambda: function(numbers()))


IF = r"`if` in test_conditionals.py:\d+"


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x: 1 if fn.stack(x, x) else 2,
            NdimMismatchError,
            rf"^{IF}: a condition must be a scalar \(0-d\)",
        ),
        (lambda x: not fn.stack(x, x), NdimMismatchError, r"^`not` in test_.*:\d+: a condition"),
        (lambda x: x and x > 1, SampleTypeError, r"^`and` in test_.*:\d+: operands must be Booleans, not int32"),
        (lambda x: x > 1 or x, SampleTypeError, r"^`or` in test_.*:\d+: operands must be Booleans, not int32"),
        (
            lambda x: x if x > 1 else 2.5,
            DtypeMismatchError,
            rf"^`value` after {IF} returned float32 for sample 0",
        ),
        (
            lambda x: x if x > 1 else fn.stack(x, x),
            NdimMismatchError,
            rf"^`value` after {IF} returned 1 dimensions for",
        ),
    ],
)
def test_wrong_samples_are_refused(function: Callable[..., Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        run(lambda: function(numbers()))


def test_scalars_may_have_another_dtype_in_another_batch() -> None:
    @pipeline_def(batch_size=2, num_threads=1, enable_conditionals=True)
    def pipeline() -> Any:
        number = fn.external_source(lambda info: np.array(info.iteration, np.int32), batch=False)
        if number > 0:
            result = number + 0.5
        else:
            result = number
        return result

    with closing(pipeline()) as pipe:
        batches = [pipe.run()[0].as_array().copy() for _ in range(3)]

    assert [(str(batch.dtype), batch.tolist()) for batch in batches] == [
        ("int32", [0, 0]),
        ("float32", [1.5, 1.5]),
        ("float32", [2.5, 2.5]),
    ]
