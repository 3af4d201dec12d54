"""The debug mode: one run of a pipeline's function, in which each node is computed before the function continues.

It runs in the thread of the program, without workers and threads, so that a debugger sees everything. Operators are the same
as without debug mode, and get the same random numbers: those depend on the seed, the sample and the number of the call.

Source: https://docs.nvidia.com/deeplearning/dali/user-guide/docs/examples/general/debug_mode.html, and DALI 1.53.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dali_like.errors import BatchSizeError, ChangedCallError
from dali_like.graph.execution.batch_runs import BatchId, run_program
from dali_like.graph.execution.buffers import BatchMemory, BufferPool, PreviousSamples, PrivateSpace
from dali_like.graph.execution.program import ProgramContext, key, make_program
from dali_like.graph.language.conditions import label_of
from dali_like.graph.language.nodes import ConstantNode, DataNode, OperatorNode, Producer, SourceNode, refuse_objects
from dali_like.graph.language.operator_interface import Operator, choose_layout
from dali_like.graph.language.operator_random import RandomKey, key_of, key_of_seed
from dali_like.graph.language.stepping import Computed, computed_by, record, stepping
from dali_like.sources.external_source import ExternalSource
from dali_like.sources.source_arguments import default_options
from dali_like.sources.source_checks import make_external_source
from dali_like.tensors import TensorListCPU

#: Packages whose frames are not the user's.
_LIBRARIES = ("dali_like", "malt")
#: Arguments that are compared between runs. Functions may be made anew in each run.
_PLAIN = (bool, int, float, str, list, tuple, type(None))


class InputKind(NamedTuple):
    """The properties of an input, or of an argument that differs from sample to sample. They stay the same in all runs.

    Attributes:
        form: "batch" or "constant".
        device: "cpu" or "gpu".
        layout, dtype, ndim: of the samples; None if there are no samples.
    """

    form: str
    device: str
    layout: str | None = None
    dtype: np.dtype[Any] | None = None
    ndim: int | None = None


@dataclass(frozen=True)
class Call:
    """One call of an operator or a source, to compare with the same call of later runs.

    Attributes:
        place: file, line and function of the user's code.
        name: of the operator.
        inputs: the kinds of the inputs.
        arguments: the kinds of the arguments that are nodes, and the values of the others.
    """

    place: tuple[str, int, str]
    name: str
    inputs: tuple[InputKind, ...] = ()
    arguments: Mapping[str, Any] | None = None


class CallLog:
    """The calls of the first run. Later runs must make the same ones, as a graph does."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._complete = False
        self._next = 0

    @property
    def is_complete(self) -> bool:
        """Whether a run has ended."""
        return self._complete

    def begin(self) -> None:
        """Begin a run."""
        self._next = 0
        if not self._complete:
            self._calls.clear()

    def end(self) -> None:
        """End a run: from now on, the calls are fixed."""
        self._complete = True

    def add(self, call: Call) -> None:
        """Record a call of the first run, or compare it.

        Raises:
            ChangedCallError: it differs from that of the first run.
        """
        number = self._next
        self._next += 1
        if not self._complete:
            self._calls.append(call)
            return
        if number >= len(self._calls) or (self._calls[number].place, self._calls[number].name) != (call.place, call.name):
            raise ChangedCallError(
                f"Unexpected operator '{call.name}'. Debug mode does not support changing the order of operators executed "
                f"within the pipeline. Call {number + 1} of this run is in {_shown(call.place)}, "
                f"{self._expectation(number)}. Call the same operators in each run"
            )
        _compare(self._calls[number], call)

    def _expectation(self, number: int) -> str:
        if number >= len(self._calls):
            return f"and the first run made {len(self._calls)}"
        first = self._calls[number]
        return f"and was '{first.name}' in {_shown(first.place)} in the first run"


def _shown(place: tuple[str, int, str]) -> str:
    return f"{place[0]}:{place[1]}"


def _compare(first: Call, call: Call) -> None:
    name = call.name
    before, now = first.arguments or {}, call.arguments or {}
    pairs = (("inputs", len(first.inputs), len(call.inputs)), ("keyword arguments", len(before), len(now)))
    for what, expected, count in pairs:
        if expected != count:
            raise ChangedCallError(
                f"Trying to use operator '{name}' with different number of {what} than when it was built. Expected: "
                f"{expected} {what}, got {count}."
            )
    for i, (one, other) in enumerate(zip(first.inputs, call.inputs, strict=True)):
        _compare_kinds(f"Input {i} for operator '{name}'", one, other)
    for argument, value in now.items():
        if argument not in before:
            raise ChangedCallError(f"Argument '{argument}' for operator '{name}' was not given in the first run")
        _compare_values(argument, name, before[argument], value)


def _compare_values(argument: str, name: str, before: Any, now: Any) -> None:
    if isinstance(before, InputKind) or isinstance(now, InputKind):
        one, other = (value if isinstance(value, InputKind) else InputKind("constant", "cpu") for value in (before, now))
        _compare_kinds(f"Argument {argument} for operator '{name}'", one, other)
    elif isinstance(now, _PLAIN) and repr(before) != repr(now):  # of NaN, the text is equal
        raise ChangedCallError(
            f"Argument '{argument}' for operator '{name}' unexpectedly changed value from '{before}' to '{now}'"
        )


def _compare_kinds(what: str, before: InputKind, now: InputKind) -> None:
    if now.form != before.form:
        raise ChangedCallError(f"{what} is a {now.form} but was a {before.form} when created.")
    if now.device != before.device:
        raise ChangedCallError(f"{what} is on '{now.device}' but was on '{before.device}' when created.")
    if now.ndim is None or before.ndim is None:
        return
    for name in ("layout", "dtype", "ndim"):
        if getattr(now, name) != getattr(before, name):
            raise ChangedCallError(f"{what} has {name} = {getattr(now, name)}, expected: {getattr(before, name)}.")


class DebugRun:
    """One run; a `dali_like.graph.language.stepping.Stepper`.

    Args:
        log: the calls of the first run.
        batch_id: returns the place of the batch in its epoch, given the sources taken so far.
        capacity: the size of batches without sources.
        entropy: the seed of the pipeline.
        image_limit_bytes: the largest decoded image.
        fetch: returns the next batch of a source, given its number and options: the samples and the layout of each output.
    """

    def __init__(
        self,
        *,
        log: CallLog,
        batch_id: Callable[[Sequence[ExternalSource]], BatchId],
        capacity: int,
        entropy: int,
        image_limit_bytes: int,
        fetch: Callable[[int, ExternalSource], Computed],
    ) -> None:
        self._log = log
        self._batch_id = batch_id
        self._capacity = capacity
        self._entropy = entropy
        self._image_limit_bytes = image_limit_bytes
        self._fetch = fetch
        self._buffers = BufferPool(PrivateSpace())
        self._size: int | None = None
        self._sources: list[ExternalSource] = []
        self._random_numbers: dict[int, int] = {}

    @property
    def size(self) -> int:
        return self._capacity if self._size is None else self._size

    def take(self, external: ExternalSource) -> SourceNode:
        self._log.add(Call(_place(), external.kind_name))
        external = external.with_all_infos()
        number = len(self._sources)
        self._sources.append(external)
        with stepping(None):
            computed = self._fetch(number, external)
        name = external.name
        size = len(computed.columns[0])
        if self._size not in (None, size):
            raise BatchSizeError(
                f"Batch size must be uniform across an iteration. External Source operator returned batch size: {size}, "
                f"expected: {self._size}. Call sources of batches that vary in size, such as {name}, before other operators"
            )
        self._size = size
        node = SourceNode(external.replaced(layouts=computed.layouts))
        record(node, computed)
        return node

    def node_of(self, batch: Any) -> DataNode | None:
        if not _is_batch(batch):
            return None
        tensors = [batch] if hasattr(batch, "as_cpu") else batch
        on_gpu = hasattr(tensors[0], "__cuda_array_interface__") or "GPU" in type(tensors[0]).__name__
        made = batch.as_cpu() if hasattr(batch, "as_cpu") else TensorListCPU([*map(_on_host, batch)])
        if len(made) != self.size and self._size is not None:
            raise BatchSizeError(
                f"Batch size must be uniform across an iteration. Input with {len(made)} samples: expected batch size = "
                f"{self.size}. Pass one array for each sample"
            )
        self._size = len(made)
        options: Any = {**default_options(), "name": "input"}
        node = SourceNode(make_external_source(None, None, options).replaced(layouts=(made.layout(),)))
        record(node, Computed(([made.at(i) for i in range(len(made))],), (made.layout(),)))
        return DataNode("input", "gpu" if on_gpu else "cpu", node)

    def compute(self, node: OperatorNode) -> None:
        for data in node.needs:
            refuse_objects(node, data)
        self._log.add(self._call(node))
        self._size = self.size
        operator: Operator = getattr(node.operator, "on_cpu", node.operator)
        columns = {key(data): self._column(data) for data in node.needs if not isinstance(data.producer, ConstantNode)}
        outputs = [(node, i) for i in range(len(operator.layouts))]
        operators = {data.producer: data.producer.operator for data in node.needs if isinstance(data.producer, OperatorNode)}
        keys = {} if operator.seed is None else {node: self._random_key(node, operator.seed)}
        context = ProgramContext({**operators, node: operator}, {}, keys, self._image_limit_bytes, {node: operator.name})
        program = make_program([*columns], [node], outputs, context)
        results = [BatchMemory(self._buffers, self._size, PreviousSamples()) for _ in outputs]
        run_program(program, [*columns.values()], self._size, self._batch_id(self._sources), results)
        made = [result.finish(label_of(operator)) for result in results]
        record(node, Computed(tuple(made), tuple(operator.layouts)))

    def _random_key(self, node: OperatorNode, seed: int) -> RandomKey:
        if seed >= 0:
            return key_of_seed(seed)
        return key_of(self._entropy, self._random_numbers.setdefault(node.number, len(self._random_numbers)))

    def _column(self, data: DataNode) -> Sequence[Any]:
        return column_of(data.producer, data.output, self.size)

    def _call(self, node: OperatorNode) -> Call:
        given = {name: self._kind(data) for name, data in node.argument_inputs.items()}
        arguments = {**node.operator.arguments, **given}
        return Call(_place(), node.operator.name.removeprefix("fn."), tuple(map(self._kind, node.inputs)), arguments)

    def _kind(self, data: DataNode) -> InputKind:
        form = "constant" if isinstance(data.producer, ConstantNode) else "batch"
        sample = next((sample for sample in self._column(data) if sample is not None), None)
        if sample is None:
            return InputKind(form, data.device)
        layout = choose_layout(data.producer.layouts[data.output], sample.ndim)
        return InputKind(form, data.device, layout, sample.dtype, sample.ndim)


def column_of(producer: Producer, output: int, size: int) -> Sequence[Any]:
    """Return the samples of an output of a producer; of a constant, as often as `size` says."""
    if isinstance(producer, ConstantNode):
        return [producer.constant.array] * size
    computed = computed_by(producer)
    if computed is None:
        raise ChangedCallError("a DataNode of another pipeline, or of its definition without debug mode, has no batch here")
    column: Sequence[Any] = computed.columns[output]
    return column


def _is_batch(value: Any) -> bool:
    """Whether a value that is not a node is a batch, as DALI decides: a list of a pipeline, or of arrays and tensors."""
    if hasattr(value, "is_dense_tensor"):
        return True
    return isinstance(value, list) and bool(value) and all(map(_is_array, value))


def _is_array(value: Any) -> bool:
    if isinstance(value, (np.generic, TensorListCPU)):
        return False
    return any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__cuda_array_interface__"))


def _on_host(array: Any) -> Any:
    if hasattr(array, "as_cpu"):
        return array.as_cpu()
    if type(array).__module__ == "torch":
        return array.detach().cpu()
    return array.get() if hasattr(array, "__cuda_array_interface__") else array


def _place() -> tuple[str, int, str]:
    """Return file, line and function of the user's code that is being executed."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
