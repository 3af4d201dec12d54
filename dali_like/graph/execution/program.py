"""Programs: operators that compute one sample from one sample, in order. They run in threads, and in workers behind a
source.

A program has numbered registers. The first hold the input samples, the next ones constants, and each step writes its
results to further ones. A program has no state between samples, and can be pickled. A program with branches runs only the
steps that a sample needs: operators of the branch that it does not take cost nothing.

If each step can, a program also runs over a stack: samples of equal shapes, as one array with a leading axis. A step then
costs one call for all of them. Results have the same bits. An error in a stack says nothing about its sample, so the caller
runs the same samples one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic_ns
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.foreign_errors import add_note
from dali_like.engine.memory.limits import LEAST_IMAGE_LIMIT_BYTES
from dali_like.engine.memory.ring import SampleList
from dali_like.engine.pool.batch import describe_info
from dali_like.errors import SampleError
from dali_like.graph.execution.cache_operator import CacheOperator
from dali_like.graph.language.batch_calls import BatchCall, ForEach
from dali_like.graph.language.conditions import Merge
from dali_like.graph.language.nodes import ConstantNode, DataNode, OperatorNode, Producer, SourceNode
from dali_like.graph.language.operator_interface import (
    ANY_LENGTH,
    Array,
    ElementwiseOperator,
    KernelOperator,
    Operator,
    OperatorCall,
    RowwiseOperator,
    ViewingOperator,
    choose_layout,
)
from dali_like.graph.language.operator_random import RandomKey
from dali_like.types import SampleInfo

if TYPE_CHECKING:
    from dali_like.engine.memory.sample_cache import CacheMemory

#: Identity of a node's data: a producer and the number of one of its outputs.
Key = tuple[Producer, int]
#: Given the number of an export, a shape and a dtype, returns memory for the result; None if it has no fixed place.
Empty = Callable[[int, tuple[int, ...], np.dtype[Any]], Array | None]


_FIRST = SampleInfo(0, 0, 0, 0)
_NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


def _no_place(export: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """Let an operator return memory of its own: not that of its inputs, nor memory that is used again."""
    return None


def key(node: DataNode) -> Key:
    """Return the identity of a node's data."""
    return node.producer, node.output


class BatchPlaces(NamedTuple):
    """Memory for the results of a batch; each function gets the number of an export first.

    Attributes:
        rows: as `Empty`, for a stack of all samples.
        elements: given a number of elements and a dtype, returns memory in one dimension.
    """

    rows: Empty
    elements: Callable[[int, int, np.dtype[Any]], Array]


class ProgramContext(NamedTuple):
    """Data that programs depend on besides the nodes.

    Attributes:
        operators: the operators of the nodes.
        seen: observed layouts of sources where they differ from the declared ones.
        random_keys: of the nodes with random numbers.
        image_limit_bytes: the largest decoded image.
        names: of the nodes, for statistics and traces; see `dali_like.graph.language.nodes.producer_names`.
    """

    operators: Mapping[OperatorNode, Operator]
    seen: Mapping[SourceNode, Sequence[str]]
    random_keys: Mapping[OperatorNode, RandomKey]
    image_limit_bytes: int
    names: Mapping[Producer, str]

    def layouts_of(self, data: DataNode) -> str:
        """Return the possible layouts of a node's data."""
        if isinstance(data.producer, OperatorNode):
            return self.operators[data.producer].layouts[data.output]
        if isinstance(data.producer, SourceNode) and data.producer in self.seen:
            return self.seen[data.producer][data.output]
        return data.producer.layouts[data.output]


class ProgramStep(NamedTuple):
    """The application of one operator.

    Attributes:
        inputs, arguments: registers of its inputs, and of its arguments that are nodes.
        layouts: of the inputs, as far as known.
        output: the first register of its outputs.
        random_key: of its random numbers; None if it has none.
        image_limit_bytes: the largest decoded image.
        framed: layouts of inputs and arguments that may have a value for each frame; see `OperatorCall.framed`.
        export: number of the export that is its only output, or None.
        is_between: whether the output is one array that only other steps use, so its memory is reused.
        scope: registers of conditions, with the values that they must have for the step to run.
        name: of the node, for statistics and traces; empty for operators of no graph.
        number: position in the program.
        stacks: whether it also computes stacks.
        has_kernel: whether it may also compute a batch of any shapes, see
            `dali_like.graph.language.operator_interface.KernelOperator`.
    """

    operator: Operator
    inputs: tuple[int, ...]
    arguments: Mapping[str, int]
    layouts: tuple[str, ...]
    output: int
    random_key: RandomKey | None
    image_limit_bytes: int
    framed: Mapping[str | int, str]
    export: int | None = None
    is_between: bool = False
    scope: tuple[tuple[int, bool], ...] = ()
    name: str = ""
    number: int = 0
    stacks: bool = False
    has_kernel: bool = False

    def applies(self, registers: Sequence[Any]) -> bool:
        """Whether the sample takes the branch of the step. An inner condition may have no value if it does not."""
        return all(bool(registers[i]) is value for i, value in self.scope)

    def compute(
        self,
        inputs: Sequence[Any],
        arguments: Mapping[str, Any],
        info: SampleInfo,
        empty: Empty | None = None,
        count: int = 1,
        positions: Sequence[int] | None = None,
    ) -> Sequence[Any]:
        """Return the outputs of one sample, of a stack, or of a whole batch for an operator on batches.

        Args:
            inputs, arguments: a sample of each, a stack of each, or a sequence of all samples of each.
            info: of the first sample.
            empty: as for `Program.run`.
            count: the number of samples.
            positions: the ``idx_in_epoch`` of each sample of a stack.
        """
        if positions is not None:
            layouts = [_stacked_layout(words, stack.ndim) for words, stack in zip(self.layouts, inputs, strict=True)]
            return self.call(inputs, arguments, info, layouts, empty, self.framed, count, positions)
        layouts = [*map(_layout_of, self.layouts, inputs)]
        framed: Any = self.framed and self._framed(inputs, arguments)
        return self.call(inputs, arguments, info, layouts, empty, framed, count)

    def call(
        self,
        inputs: Sequence[Any],
        arguments: Mapping[str, Any],
        info: SampleInfo,
        layouts: Sequence[str],
        empty: Empty | None = None,
        framed: Any = (),
        count: int = 1,
        positions: Sequence[int] | None = None,
    ) -> Sequence[Any]:
        """As `compute`, given the layouts of the inputs, and the inputs and arguments with a value for each frame."""
        # Unpacking all fields takes less time than looking up a few.
        operator, _, _, _, _, key, limit_bytes, _, export, is_between, *_ = self
        place = None if export is None or empty is None else functools.partial(empty, export)
        owner = id(self) if is_between else None
        call = OperatorCall(info, layouts, key, place, owner, count, limit_bytes, framed, positions)
        return operator.compute(call, inputs, arguments)

    def run(self, registers: list[Any], info: SampleInfo, empty: Empty | None = None, count: int = 1) -> None:
        """Compute the outputs of one sample; for an operator on batches, sequences of those of all `count` samples."""
        inputs = [registers[i] for i in self.inputs]
        arguments = {name: registers[i] for name, i in self.arguments.items()} if self.arguments else _NO_ARGUMENTS
        try:
            outputs = self.compute(inputs, arguments, info, empty, count)
        except Exception as error:
            add_note(error, f"raised by {self.operator.name} for {self._describe(info)}{_files_of(registers)}")
            raise
        registers[self.output : self.output + len(outputs)] = outputs

    def run_batch(
        self,
        registers: Sequence[Any],
        info: SampleInfo,
        positions: Sequence[int],
        memory: BatchPlaces | None,
        for_each: ForEach | None = None,
        times_ns: list[int] | None = None,
    ) -> Sequence[Any] | None:
        """Return the outputs of a batch of samples of any shapes; see `Program.run_batch`."""
        inputs = [registers[i] for i in self.inputs]
        arguments = {name: registers[i] for name, i in self.arguments.items()}
        count = len(positions)
        are_stacks = self.stacks and all(isinstance(data, np.ndarray) for data in (*inputs, *arguments.values()))
        if are_stacks and (for_each is None or not self.has_kernel):
            return self.compute(inputs, arguments, info, memory and memory.rows, count, positions)
        operator: Any = self.operator
        export = self.export
        if self.has_kernel:
            place = elements = None
            if export is not None and memory is not None:
                place, elements = functools.partial(memory.rows, export), functools.partial(memory.elements, export)
            stack_call = OperatorCall(info, (), self.random_key, place, None, count, self.image_limit_bytes, (), positions)
            layouts = [_layout_of_batch(words, data) for words, data in zip(self.layouts, inputs, strict=True)]
            call = BatchCall(stack_call, layouts, count, is_stack=True, elements=elements, for_each=for_each)
            made: Sequence[Any] | None = operator.compute_batch(call, inputs, arguments)
            if times_ns is not None:
                times_ns[self.number] += call.others_ns
            return made
        if arguments or memory is None or not getattr(operator, "elementwise", False):
            return None
        return self._run_on_elements(inputs, info, memory)

    def _run_on_elements(self, inputs: Sequence[Any], info: SampleInfo, memory: BatchPlaces) -> Sequence[Any] | None:
        """Compute an elementwise operator on the memory of samples of different shapes. The other inputs are numbers."""
        lists = [data for data in inputs if isinstance(data, SampleList)]
        numbers = [data for data in inputs if isinstance(data, np.ndarray) and data.ndim == 1 and not data.strides[0]]
        if len(lists) != 1 or len(numbers) != len(inputs) - 1 or lists[0].dtype == np.float16:
            return None
        operands = [data.elements if data is lists[0] else data[:1].reshape(()) for data in inputs]
        ndims = [lists[0].ndim if data is lists[0] else 0 for data in inputs]
        layouts = [*map(choose_layout, self.layouts, ndims)]
        (made,) = self.call(
            operands, _NO_ARGUMENTS, info, layouts, lambda export, shape, dtype: memory.elements(export, shape[0], dtype)
        )
        return None if made.dtype == np.float16 else (lists[0].placed_in(made),)

    def runner(self, empty: Empty | None, times_ns: list[int] | None) -> Callable[[list[Any], SampleInfo], None]:
        """Return a function that does as `run` or `run_timed`, for many samples in one thread.

        All that is the same for each sample is settled here: a call of `run` takes twice the time.
        """
        operator, inputs_of, arguments_of, words_of, first, key, limit_bytes, framed_words, export, is_between, *_ = self
        number, owner = self.number, id(self) if is_between else None
        place = None if export is None or empty is None else functools.partial(empty, export)
        call = OperatorCall(_FIRST, (), key, place, owner, 1, limit_bytes)
        arguments, compute = _NO_ARGUMENTS, operator.compute
        seen: list[int] = []
        layouts: list[str] = []

        def run(registers: list[Any], info: SampleInfo) -> None:
            nonlocal arguments, seen, layouts
            begin_ns = 0 if times_ns is None else monotonic_ns()
            inputs = [registers[i] for i in inputs_of]
            if arguments_of:
                arguments = {name: registers[i] for name, i in arguments_of.items()}
            try:
                if (ndims := [array.ndim for array in inputs]) != seen or not seen:
                    seen, layouts = ndims, [*map(_layout_of, words_of, inputs)]
                if framed_words:
                    call.framed = self._framed(inputs, arguments)
                call.renew(info, layouts, owner)
                outputs = compute(call, inputs, arguments)
            except Exception as error:
                add_note(error, f"raised by {operator.name} for {self._describe(info)}{_files_of(registers)}")
                raise
            finally:
                if times_ns is not None:
                    times_ns[number] += monotonic_ns() - begin_ns
            if len(outputs) == 1:
                registers[first] = outputs[0]
            else:
                registers[first : first + len(outputs)] = outputs

        return run

    def _framed(self, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> list[str | int]:
        """Return the inputs and arguments of one sample that have a value for each frame."""
        return [
            name
            for name, words in self.framed.items()
            if _layout_of(words, inputs[name] if isinstance(name, int) else arguments[name]).startswith("F")
        ]

    def _describe(self, info: SampleInfo) -> str:
        if not self.name:
            return f"sample {info.idx_in_batch} of the batch" if self.operator.per_sample else "the batch"
        return describe_info(info) if self.operator.per_sample else f"iteration {info.iteration} in epoch {info.epoch_idx}"

    def run_timed(
        self, registers: list[Any], info: SampleInfo, empty: Empty | None, count: int, times_ns: list[int]
    ) -> None:
        """As `run`; add the duration to the entry of this step."""
        begin_ns = monotonic_ns()
        try:
            self.run(registers, info, empty, count)
        finally:
            times_ns[self.number] += monotonic_ns() - begin_ns


class Program(NamedTuple):
    """Operators that compute a sample from a sample.

    Attributes:
        constants: the contents of the registers after the input samples.
        num_registers: total number of registers.
        steps: in the order of execution.
        exports: registers of the results.
        producers: the step that computes each register, if the program has branches or caches; otherwise empty.
        caches: steps whose results suffice for all exports, without the input samples. Empty: the samples are needed.
        stacks: whether all steps compute stacks, and all samples have all results.
        per_sample: whether it computes a sample from a sample. Otherwise its only step is an operator on batches.
        packs: for each result, the input with the same shape, if all steps are elementwise; otherwise empty.
        rows: whether all steps are elementwise or rowwise, and there is one input. Then the results have its shape, except
            for the last axis.
        views: whether all steps return views of input samples.
        has_kernels: whether a step has a kernel, and all may compute a batch of any shapes.
        compiled: whether one of these kernels needs the compiled loops.
        for_large: whether all steps have kernels for large samples, and one of them has inputs. Then no intermediate result
            is as large as a batch.
        unread: inputs of which steps need the shapes only.
    """

    constants: tuple[Array, ...]
    num_registers: int
    steps: tuple[ProgramStep, ...]
    exports: tuple[int, ...]
    producers: Mapping[int, ProgramStep]
    caches: tuple[ProgramStep, ...] = ()
    stacks: bool = False
    per_sample: bool = True
    packs: tuple[int, ...] = ()
    rows: bool = False
    views: bool = False
    has_kernels: bool = False
    compiled: bool = False
    for_large: bool = False
    unread: frozenset[int] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the steps."""
        return tuple(step.name for step in self.steps)

    def with_key(self, random_key: RandomKey) -> Program:
        """Return the program of one operator with a key for its random numbers."""
        return self._replace(steps=(self.steps[0]._replace(random_key=random_key),))

    def apply(self, arrays: Sequence[Any], info: SampleInfo = _FIRST, empty: Empty = _no_place) -> Sequence[Any]:
        """Return the outputs of one operator for a sample: arrays with memory of their own. For `operator_program`."""
        step = self.steps[0]
        if not step.arguments:
            return step.compute(arrays, _NO_ARGUMENTS, info, empty)
        count = len(step.inputs)
        return step.compute(arrays[:count], dict(zip(step.arguments, arrays[count:], strict=True)), info, empty)

    def recall(self, info: SampleInfo) -> Recalled:
        """Return the results for one sample that are in caches."""
        found = {step.output: outputs for step in self.caches if (outputs := _recall(step, info)) is not None}
        return Recalled(found, bool(self.caches) and len(found) == len(self.caches))

    def run(
        self,
        samples: Sequence[Any],
        info: SampleInfo,
        empty: Empty | None = None,
        recalled: Mapping[int, Sequence[Any]] = MappingProxyType({}),
        times_ns: list[int] | None = None,
    ) -> tuple[Any, ...]:
        """Return the results for one sample: None for those of a branch that the sample does not take.

        Args:
            samples: the input samples; None for each if they are not needed.
            info: of the sample.
            empty: returns memory for results, which may lie there, but need not.
            recalled: of `recall`.
            times_ns: nanoseconds of each step, to add to. Measuring a step takes 0.2 us.
        """
        registers = [*samples, *self.constants]
        registers += [None] * (self.num_registers - len(registers))
        for output, values in recalled.items():
            registers[output : output + len(values)] = values
        if self.producers:
            for i in self.exports:
                self._need(i, registers, info, empty, times_ns)
        elif times_ns is None:
            for step in self.steps:
                step.run(registers, info, empty)
        else:
            for step in self.steps:
                step.run_timed(registers, info, empty, 1, times_ns)
        return tuple([registers[i] for i in self.exports])

    def runner(
        self, empty: Empty | None, times_ns: list[int] | None
    ) -> Callable[[Sequence[Any], SampleInfo], tuple[Any, ...]]:
        """Return a function that does as `run`, for many samples in one thread."""
        if self.producers:
            return lambda samples, info: self.run(samples, info, empty, times_ns=times_ns)
        steps = [step.runner(empty, times_ns) for step in self.steps]
        constants, exports, num_registers = self.constants, self.exports, self.num_registers

        def run(samples: Sequence[Any], info: SampleInfo) -> tuple[Any, ...]:
            registers: list[Any] = [*samples, *constants]
            registers += [None] * (num_registers - len(registers))
            for step in steps:
                step(registers, info)
            return tuple([registers[i] for i in exports])

        return run

    def run_stack(
        self,
        stacks: Sequence[Array],
        info: SampleInfo,
        *,
        count: int,
        stride: int = 1,
        empty: Empty | None = None,
        times_ns: list[int] | None = None,
    ) -> tuple[Array, ...]:
        """Return the results for several samples, each as an array whose first axis counts them.

        Args:
            stacks: the input samples, likewise.
            info: of the first sample.
            count: the number of samples.
            stride: from the ``idx_in_epoch`` of one sample to the next.
            empty, times_ns: as for `run`; shapes have the leading axis.
        """
        registers: list[Any] = [*stacks, *[repeated(array, count) for array in self.constants]]
        registers += [None] * (self.num_registers - len(registers))
        positions = range(info.idx_in_epoch, info.idx_in_epoch + count * stride, stride)
        run = _run_on_stack if not self.producers else _run_on_parts
        for step in self.steps:
            begin_ns = 0 if times_ns is None else monotonic_ns()
            run(step, registers, info, positions, empty)
            if times_ns is not None and registers[step.output] is not None:  # None: no sample takes its branch
                times_ns[step.number] += monotonic_ns() - begin_ns
        return tuple([registers[i] for i in self.exports])

    def run_packed(
        self,
        packed: Sequence[Array],
        ndims: Sequence[int],
        info: SampleInfo,
        empty: Empty | None = None,
        times_ns: list[int] | None = None,
    ) -> tuple[Array, ...] | None:
        """Return the results for several samples of any shapes; None if the bits would differ.

        Args:
            packed: for each input, the elements of all samples, one after another, in one dimension, if the program `packs`;
                if it has `rows`, the vectors of all samples, as one sample with the same number of dimensions.
            ndims: for each input, the number of dimensions of a sample.
            info: of the first sample.
            empty, times_ns: as for `run`.

        Returns:
            For each result, the elements of all samples. They may lie in memory that the next call uses again.
        """
        if any(array.dtype == np.float16 for array in packed):  # see `dali_like.graph.language.arithmetic`
            return None
        around = packed[0].ndim - (1 if self.rows else 0)
        registers: list[Any] = [*packed, *self.constants]
        like = [*ndims, *[0] * len(self.constants)]
        for step in self.steps:
            begin_ns = 0 if times_ns is None else monotonic_ns()
            inputs = [registers[i] for i in step.inputs]
            if getattr(step.operator, "rowwise", 0) not in (0, ANY_LENGTH, inputs[0].shape[-1]):
                return None
            layouts = [choose_layout(words, like[i]) for words, i in zip(step.layouts, step.inputs, strict=True)]
            (made,) = step.call(inputs, _NO_ARGUMENTS, info, layouts, empty)
            largest = max(inputs, key=_size_of)
            if made.dtype == np.float16 or made.shape[:around] != largest.shape[:around]:
                return None
            registers.append(made)
            like.append(max([like[i] for i in step.inputs]))
            if times_ns is not None:
                times_ns[step.number] += monotonic_ns() - begin_ns
        return tuple([registers[i] for i in self.exports])

    def run_batch(
        self,
        inputs: Sequence[Any],
        info: SampleInfo,
        *,
        count: int,
        stride: int,
        memory: BatchPlaces | None,
        for_each: ForEach | None = None,
        times_ns: list[int] | None = None,
    ) -> tuple[Any, ...] | None:
        """Return the results for a batch of samples of any shapes; None if the samples must be computed one by one.

        Args:
            inputs: for each input, a stack or the samples of a batch.
            info: of the first sample.
            count: the number of samples.
            stride: from the ``idx_in_epoch`` of one sample to the next.
            memory: for results; None: they may be views of the inputs.
            for_each: shares large samples among threads; None: the calling thread computes all.
            times_ns: as for `run`.
        """
        registers: list[Any] = [*inputs, *[repeated(array, count) for array in self.constants]]
        registers += [None] * (self.num_registers - len(registers))
        positions = range(info.idx_in_epoch, info.idx_in_epoch + count * stride, stride)
        for step in self.steps:
            begin_ns = 0 if times_ns is None else monotonic_ns()
            outputs = step.run_batch(registers, info, positions, memory, for_each, times_ns)
            if outputs is None:
                return None
            registers[step.output : step.output + len(outputs)] = outputs
            if times_ns is not None:
                times_ns[step.number] += monotonic_ns() - begin_ns
        return tuple([registers[i] for i in self.exports])

    def _need(
        self, register: int, registers: list[Any], info: SampleInfo, empty: Empty | None, times_ns: list[int] | None
    ) -> None:
        """Compute a register and all that it depends on, but of the inputs of a merge only the one that it takes."""
        step = self.producers.get(register)
        if step is None or registers[register] is not None:
            return
        for condition, value in step.scope:
            if registers[condition] is None:
                self._need(condition, registers, info, empty, times_ns)
            if bool(registers[condition]) is not value:
                return
        if (found := _recall(step, info)) is not None:
            registers[step.output : step.output + len(found)] = found
            return
        needed = (*step.inputs, *step.arguments.values())
        if isinstance(step.operator, Merge):
            condition, if_true, if_false = step.inputs
            self._need(condition, registers, info, empty, times_ns)
            needed = (if_true if registers[condition] else if_false,)
        for i in needed:
            if registers[i] is None:
                self._need(i, registers, info, empty, times_ns)
        if isinstance(step.operator, Merge) and step.export is None:
            step.operator.check(np.ndim(registers[needed[0]]), bool(registers[step.inputs[0]]))
            registers[register] = registers[needed[0]]
        elif times_ns is None:
            step.run(registers, info, empty)
        else:
            step.run_timed(registers, info, empty, 1, times_ns)


def _run_on_stack(
    step: ProgramStep, registers: list[Any], info: SampleInfo, positions: Sequence[int], empty: Empty | None
) -> None:
    inputs = [registers[i] for i in step.inputs]
    arguments = {name: registers[i] for name, i in step.arguments.items()}
    outputs = step.compute(inputs, arguments, info, empty, len(positions), positions)
    registers[step.output : step.output + len(outputs)] = outputs


class _StackPart(NamedTuple):
    """Results for some samples of a stack.

    Attributes:
        stack: the results.
        samples: the numbers of the samples, in ascending order.
    """

    stack: Array
    samples: NDArray[np.intp]

    def of(self, samples: NDArray[np.intp]) -> Array:
        """Return the results for some of these samples."""
        if len(samples) == len(self.samples):
            return self.stack
        return _rows_of(self.stack, np.searchsorted(self.samples, samples))


def _rows_of(stack: Array, numbers: NDArray[np.intp]) -> Array:
    rows: Array = np.take(stack, numbers, 0)  # takes a third of the time of an index for few bytes in a row
    return rows


def _run_on_parts(
    step: ProgramStep, registers: list[Any], info: SampleInfo, positions: Sequence[int], empty: Empty | None
) -> None:
    """Compute a step for the samples of a stack that take its branch. Registers hold stacks of all samples, or parts."""
    operator = step.operator
    is_merge = isinstance(operator, Merge)
    needs = (*step.inputs, *step.arguments.values())
    if not (step.scope or is_merge or any(isinstance(registers[i], (_StackPart, NoneType)) for i in needs)):
        _run_on_stack(step, registers, info, positions, empty)
        return
    takes = np.ones(len(positions), bool)
    for condition, value in step.scope:
        takes &= _mask(registers[condition], value, len(positions))
    samples = np.flatnonzero(takes)
    if not len(samples):
        return
    takes_all = len(samples) == len(positions)
    if isinstance(operator, Merge):
        place = empty if takes_all and step.export is not None else None
        merged = _merged(operator, [registers[i] for i in step.inputs], samples, step.export or 0, place)
        registers[step.output] = merged if takes_all else _StackPart(merged, samples)
        return
    inputs = [_chosen(registers[i], samples) for i in step.inputs]
    arguments = {name: _chosen(registers[i], samples) for name, i in step.arguments.items()}
    chosen = [positions[i] for i in samples.tolist()] if step.random_key is not None else range(len(samples))
    for number, output in enumerate(step.compute(inputs, arguments, info, None, len(chosen), chosen), step.output):
        registers[number] = _StackPart(output, samples)


def _mask(register: Any, value: bool, count: int) -> NDArray[np.bool_]:
    """Return which samples have this value of a condition."""
    mask = np.zeros(count, bool)
    if isinstance(register, _StackPart):
        mask[register.samples] = register.stack == value
    elif register is not None:
        mask[:] = register == value
    return mask


def _chosen(register: Any, samples: NDArray[np.intp]) -> Array:
    if isinstance(register, _StackPart):
        return register.of(samples)
    if not register.strides[0] or len(samples) == len(register):  # operators recognize a constant by its stride
        chosen: Array = register[: len(samples)]
        return chosen
    return _rows_of(register, samples)


def _merged(operator: Merge, inputs: Sequence[Any], samples: NDArray[np.intp], export: int, empty: Empty | None) -> Array:
    """Return the results of the branches that samples take.

    Args:
        export, empty: where the results of all samples of the stack may lie.

    Raises:
        SampleError: the results have different shapes, or a layout that only one branch may have.
    """
    condition, *branches = inputs
    taken = _chosen(condition, samples)
    parts = [(np.flatnonzero(taken == value), branch) for value, branch in zip((True, False), branches, strict=True)]
    results = [(places, _chosen(branch, samples[places])) for places, branch in parts if len(places)]
    first = results[0][1]
    operator.check(first.ndim - 1, bool(taken[results[0][0][0]]))
    if any(result.shape[1:] != first.shape[1:] or result.dtype != first.dtype for _, result in results):
        raise SampleError("the branches have results of different kinds")  # the samples are then computed one by one
    shape = (len(samples), *first.shape[1:])
    merged = None if empty is None else empty(export, shape, first.dtype)
    if merged is None:
        merged = np.empty(shape, first.dtype)
    for places, result in results:
        merged[places] = result
    return merged


class Recalled(NamedTuple):
    """Results from caches, by their first register, and whether they suffice without the input samples."""

    results: Mapping[int, Sequence[Any]]
    is_complete: bool


NOT_RECALLED = Recalled(MappingProxyType({}), is_complete=False)


def _recall(step: ProgramStep, info: SampleInfo) -> Sequence[Any] | None:
    return step.operator.recall(info) if isinstance(step.operator, CacheOperator) else None


def make_program(
    inputs: Sequence[Key], nodes: Sequence[OperatorNode], exports: Sequence[Key], context: ProgramContext
) -> Program:
    """Return the program of some operators of a graph.

    Args:
        inputs: the data that the program receives.
        nodes: the operators, in an order of execution.
        exports: the data that the program returns.
        context: of the graph.
    """
    registers: dict[Key, int] = {data: i for i, data in enumerate(inputs)}
    constants = []
    for data in (data for node in nodes for data in node.needs):
        if isinstance(data.producer, ConstantNode) and key(data) not in registers:
            registers[key(data)] = len(registers)
            constants.append(data.producer.constant.array)
    steps: list[ProgramStep] = []
    for node in nodes:
        first = len(registers)
        registers |= {(node, output): first + output for output in range(len(node.layouts))}
        steps.append(_make_step(node, registers, exports, context, len(steps)))
    used = tuple(registers[data] for data in exports)
    producers = {}
    if any(step.scope or isinstance(step.operator, (Merge, CacheOperator)) for step in steps):
        producers = {step.output + i: step for step in steps for i in range(len(step.operator.layouts))}
    caches = _sufficient_caches(used, producers, len(inputs)) if producers else ()
    is_whole = not any(producers[i].scope for i in used if i in producers)
    stacks = is_whole and all(step.stacks for step in steps)
    per_sample = all(step.operator.per_sample for step in steps)
    packs: tuple[int, ...] = ()
    rows = False
    if stacks and not producers:
        packs = _shapes_of(used, steps, len(inputs), constants)
        rows = not packs and len(inputs) == 1 and bool(_shapes_of(used, steps, 1, constants, rows=True))
    have_kernels = any(step.has_kernel for step in steps) and all(step.has_kernel or step.stacks for step in steps)
    views = not producers and all(_returns_view(step, len(inputs), len(inputs) + len(constants)) for step in steps)
    return Program(
        tuple(constants),
        len(registers),
        tuple(steps),
        used,
        producers,
        caches,
        stacks,
        per_sample,
        packs=packs,
        rows=rows,
        views=views,
        has_kernels=is_whole and not producers and have_kernels,
        compiled=any(map(_is_compiled, steps)),
        for_large=_are_for_large(steps),
        unread=_unread(len(inputs), used, steps),
    )


def _unread(num_inputs: int, exports: Sequence[int], steps: Sequence[ProgramStep]) -> frozenset[int]:
    """Return the inputs of which steps need the shapes only."""
    read = {*exports}
    for step in steps:
        needs = {*step.inputs, *step.arguments.values()}
        read |= needs - {step.inputs[0]} if getattr(step.operator, "needs_shapes_only", False) else needs
    return frozenset({*range(num_inputs)} - read)


def _is_compiled(step: ProgramStep) -> bool:
    operator: Any = step.operator
    return step.has_kernel and bool(operator.kernel_is_compiled)


def _are_for_large(steps: Sequence[ProgramStep]) -> bool:
    operators: list[Any] = [step.operator for step in steps]
    are_fit = all(step.has_kernel and operator.kernel_for_large for step, operator in zip(steps, operators, strict=True))
    return are_fit and sum(bool(step.inputs) for step in steps) == 1


def _size_of(array: Array) -> int:
    return array.size


def _shapes_of(
    exports: Sequence[int], steps: Sequence[ProgramStep], num_inputs: int, constants: Sequence[Array], *, rows: bool = False
) -> tuple[int, ...]:
    """Return the input whose shape each export has; nothing if a step is not elementwise, or combines several inputs.

    Args:
        rows: whether steps may be rowwise, too, and constants vectors. Exports have the shapes but for the last axis.
    """
    like: dict[int, int] = {i: i for i in range(num_inputs)}
    numbers = {num_inputs + i for i, array in enumerate(constants) if array.ndim <= rows}
    for step in steps:
        operator = step.operator
        is_fit = isinstance(operator, ElementwiseOperator) and operator.elementwise
        is_fit |= rows and isinstance(operator, RowwiseOperator) and operator.rowwise != 0
        if not is_fit or step.arguments:
            return ()
        inputs = [i for i in step.inputs if i not in numbers]
        found = {like.get(i) for i in inputs}
        if len(found) != 1 or None in found:
            return ()
        like[step.output] = like[inputs[0]]
    return tuple([like[i] for i in exports]) if all(i in like for i in exports) else ()


def _returns_view(step: ProgramStep, num_inputs: int, first_output: int) -> bool:
    """Whether the result of a step is a view of an input sample, if those of all earlier steps are."""
    of_input = bool(step.inputs) and not num_inputs <= step.inputs[0] < first_output
    return of_input and isinstance(step.operator, ViewingOperator) and step.operator.views


def repeated(array: Array, count: int) -> Array:
    """Return a stack of the same sample, in its memory. A tenth of the time of `numpy.broadcast_to`."""
    if not array.flags.c_contiguous:
        return np.broadcast_to(array, (count, *array.shape))
    return np.ndarray((count, *array.shape), array.dtype, array, strides=(0, *array.strides))


def operator_program(
    operator: Operator,
    layouts: Sequence[str],
    arguments: Mapping[str, str],
    image_limit_bytes: int = LEAST_IMAGE_LIMIT_BYTES,
) -> Program:
    """Return the program that applies one operator to arrays, without a graph. Results lie in memory of their own.

    Args:
        layouts: of the inputs.
        arguments: the layouts of the arguments that differ from sample to sample. They are inputs after the others.
    """
    count = len(layouts)
    others: list[tuple[str | int, str]] = [*[*enumerate(layouts)][1:], *arguments.items()]
    framed = {name: words for name, words in others if "F" in words}
    step = ProgramStep(
        operator,
        inputs=tuple(range(count)),
        arguments={name: count + i for i, name in enumerate(arguments)},
        layouts=tuple(layouts),
        output=count + len(arguments),
        random_key=None,
        image_limit_bytes=image_limit_bytes,
        framed=framed,
        export=0,
        stacks=operator.per_sample and not framed and operator.stacks(count, arguments),
        has_kernel=_has_kernel(operator, framed),
    )
    exports = tuple(range(step.output, step.output + len(operator.layouts)))
    return Program(
        (),
        step.output + len(exports),
        (step,),
        exports,
        {},
        (),
        step.stacks,
        operator.per_sample,
        has_kernels=step.has_kernel,
        compiled=_is_compiled(step),
        for_large=_are_for_large([step]),
    )


def _sufficient_caches(
    exports: Sequence[int], producers: Mapping[int, ProgramStep], num_inputs: int
) -> tuple[ProgramStep, ...]:
    """Return the caches between the exports and the input samples, if there is one on each way; otherwise nothing."""
    found: dict[int, ProgramStep] = {}
    pending = list(exports)
    while pending:
        register = pending.pop()
        step = producers.get(register)
        if step is None:
            if register < num_inputs:
                return ()
        elif not isinstance(step.operator, CacheOperator):
            pending += (*step.inputs, *step.arguments.values(), *(condition for condition, _ in step.scope))
        elif step.scope:  # samples of other branches must not be looked up
            return ()
        else:
            found[step.output] = step
    return tuple(found.values())


def memories_of(program: Program) -> list[CacheMemory]:
    """Return the memories of the caches in a program. Call it before workers start."""
    caches = [step.operator.cache for step in program.steps if isinstance(step.operator, CacheOperator)]
    return [memory for cache in caches if cache is not None for memory in cache.memories()]


def _make_step(
    node: OperatorNode, registers: Mapping[Key, int], exports: Sequence[Key], context: ProgramContext, number: int = 0
) -> ProgramStep:
    """Return the step of one operator, given the registers of all data and its position in the program."""
    others: dict[str | int, str] = {i: context.layouts_of(data) for i, data in enumerate(node.inputs) if i}
    others |= {name: context.layouts_of(data) for name, data in node.argument_inputs.items()}
    export = exports.index((node, 0)) if (node, 0) in exports and len(node.layouts) == 1 else None
    operator = context.operators[node]
    framed = {name: layouts for name, layouts in others.items() if "F" in layouts}
    return ProgramStep(
        operator,
        inputs=tuple(registers[key(data)] for data in node.inputs),
        arguments={name: registers[key(data)] for name, data in node.argument_inputs.items()},
        layouts=tuple(map(context.layouts_of, node.inputs)),
        output=registers[node, 0],
        random_key=context.random_keys.get(node),
        image_limit_bytes=context.image_limit_bytes,
        framed=framed,
        export=export,
        is_between=export is None and operator.per_sample and len(operator.layouts) == 1,
        scope=tuple((registers[key(condition)], value) for condition, value in node.scope),
        name=context.names[node],
        number=number,
        stacks=operator.per_sample and not framed and operator.stacks(len(node.inputs), node.argument_inputs),
        has_kernel=_has_kernel(operator, framed),
    )


def _has_kernel(operator: Operator, framed: Mapping[str | int, str]) -> bool:
    return operator.per_sample and not framed and isinstance(operator, KernelOperator) and operator.has_kernel


def note_origins(error: Exception, origins: Iterable[Callable[[SampleInfo], str]], info: SampleInfo) -> None:
    """Add the files that readers have read a sample from to an error of an operator."""
    note_files(error, [name for origin in origins if (name := origin(info))])


def note_files(error: Exception, names: Sequence[str]) -> None:
    """Add the files that a sample is from to an error of an operator."""
    if names:
        add_note(error, f"the sample is from {' and '.join(names)}")


def _files_of(samples: Sequence[Any]) -> str:
    """Return the names of the files that samples come from; arrays of `numpy.memmap` know theirs."""
    files = {str(sample.filename): None for sample in samples if isinstance(sample, np.memmap) and sample.filename}
    return f", from {' and '.join(files)}" if files else ""


def _layout_of_batch(layouts: str, samples: Any) -> str:
    if not layouts:
        return ""
    if isinstance(samples, np.ndarray):
        return choose_layout(layouts, samples.ndim - 1)
    return choose_layout(layouts, samples.ndim if isinstance(samples, SampleList) else samples[0].ndim)


def _layout_of(layouts: str, samples: Any) -> str:
    if not layouts or samples is None:
        return ""
    return choose_layout(layouts, samples.ndim if isinstance(samples, np.ndarray) else samples[0].ndim)


def _stacked_layout(layouts: str, ndim: int) -> str:
    layout = choose_layout(layouts, ndim - 1)
    return layout and f"N{layout}"
