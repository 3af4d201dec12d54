"""Programs: operators that compute one sample from one sample, in order. They run in threads, and in workers behind a
source.

A program has numbered registers. The first hold the input samples, the next ones constants, and each step writes its
results to further ones. A program has no state between samples, and can be pickled. A program with branches runs only the
steps that a sample needs: operators of the branch that it does not take cost nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dali_like.engine.pool.batch import describe_info
from dali_like.graph.conditions import Merge
from dali_like.graph.nodes import ConstantNode, DataNode, OperatorNode, Producer, SourceNode
from dali_like.graph.operator_interface import Array, Operator, OperatorCall, choose_layout
from dali_like.graph.operator_random import RandomKey
from dali_like.types import SampleInfo

#: Identity of a node's data: a producer and the number of one of its outputs.
Key = tuple[Producer, int]
#: Given the number of an export, a shape and a dtype, returns memory for the result; None if it has no fixed place.
Empty = Callable[[int, tuple[int, ...], np.dtype[Any]], Array | None]


def key(node: DataNode) -> Key:
    """Return the identity of a node's data."""
    return node.producer, node.output


class ProgramContext(NamedTuple):
    """Data that programs depend on besides the nodes.

    Attributes:
        operators: the operators of the nodes.
        seen: observed layouts of sources where they differ from the declared ones.
        random_keys: of the nodes with random numbers.
        image_limit_bytes: the largest decoded image.
    """

    operators: Mapping[OperatorNode, Operator]
    seen: Mapping[SourceNode, Sequence[str]]
    random_keys: Mapping[OperatorNode, RandomKey]
    image_limit_bytes: int

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
        export: number of the export that is its only output; None if there is none.
        is_between: whether the output is one array that only other steps use, so its memory is reused.
        scope: registers of conditions, with the values that they must have for the step to run.
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

    def applies(self, registers: Sequence[Any]) -> bool:
        """Whether the sample takes the branch of the step. An inner condition may have no value if it does not."""
        return all(bool(registers[i]) is value for i, value in self.scope)

    def run(self, registers: list[Any], info: SampleInfo, empty: Empty | None = None, count: int = 1) -> None:
        """Compute the outputs of one sample; for an operator on batches, of all `count` samples."""
        inputs = [registers[i] for i in self.inputs]
        place = None if self.export is None or empty is None else functools.partial(empty, self.export)
        owner = id(self) if self.is_between else None
        layouts = [*map(_layout_of, self.layouts, inputs)]
        arguments = {name: registers[i] for name, i in self.arguments.items()}
        framed = self.framed and [
            name
            for name, words in self.framed.items()
            if _layout_of(words, inputs[name] if isinstance(name, int) else arguments[name]).startswith("F")
        ]
        call = OperatorCall(info, layouts, self.random_key, place, owner, count, self.image_limit_bytes, framed)
        try:
            outputs = self.operator.compute(call, inputs, arguments)
        except Exception as error:
            where = (
                describe_info(info) if self.operator.per_sample else f"iteration {info.iteration} in epoch {info.epoch_idx}"
            )
            error.add_note(f"raised by {self.operator.name} for {where}{_files_of(registers)}")
            raise
        registers[self.output : self.output + len(outputs)] = outputs


class Program(NamedTuple):
    """Operators that compute a sample from a sample.

    Attributes:
        constants: the contents of the registers after the input samples.
        num_registers: total number of registers.
        steps: in the order of execution.
        exports: registers of the results.
        producers: the step that computes each register, if the program has branches; otherwise empty.
    """

    constants: tuple[Array, ...]
    num_registers: int
    steps: tuple[ProgramStep, ...]
    exports: tuple[int, ...]
    producers: Mapping[int, ProgramStep]

    def run(self, samples: Sequence[Any], info: SampleInfo, empty: Empty | None = None) -> tuple[Any, ...]:
        """Return the results for one sample: None for those of a branch that the sample does not take.

        Results may lie in memory from `empty`, but need not.
        """
        registers = [*samples, *self.constants]
        registers += [None] * (self.num_registers - len(registers))
        if self.producers:
            for i in self.exports:
                self._need(i, registers, info, empty)
        else:
            for step in self.steps:
                step.run(registers, info, empty)
        return tuple([registers[i] for i in self.exports])

    def _need(self, register: int, registers: list[Any], info: SampleInfo, empty: Empty | None) -> None:
        """Compute a register and all that it depends on, but of the inputs of a merge only the one that it takes."""
        step = self.producers.get(register)
        if step is None or registers[register] is not None:
            return
        for condition, value in step.scope:
            if registers[condition] is None:
                self._need(condition, registers, info, empty)
            if bool(registers[condition]) is not value:
                return
        needed = (*step.inputs, *step.arguments.values())
        if isinstance(step.operator, Merge):
            condition, if_true, if_false = step.inputs
            self._need(condition, registers, info, empty)
            needed = (if_true if registers[condition] else if_false,)
        for i in needed:
            if registers[i] is None:
                self._need(i, registers, info, empty)
        if isinstance(step.operator, Merge) and step.export is None:
            registers[register] = registers[needed[0]]
        else:
            step.run(registers, info, empty)


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
    steps = []
    for node in nodes:
        first = len(registers)
        registers |= {(node, output): first + output for output in range(len(node.layouts))}
        steps.append(make_step(node, registers, exports, context))
    used = tuple(registers[data] for data in exports)
    producers = {}
    if any(step.scope or isinstance(step.operator, Merge) for step in steps):
        producers = {step.output + i: step for step in steps for i in range(len(step.operator.layouts))}
    return Program(tuple(constants), len(registers), tuple(steps), used, producers)


def make_step(
    node: OperatorNode, registers: Mapping[Key, int], exports: Sequence[Key], context: ProgramContext
) -> ProgramStep:
    """Return the step of one operator, given the registers of all data."""
    others: dict[str | int, str] = {i: context.layouts_of(data) for i, data in enumerate(node.inputs) if i}
    others |= {name: context.layouts_of(data) for name, data in node.argument_inputs.items()}
    export = exports.index((node, 0)) if (node, 0) in exports and len(node.layouts) == 1 else None
    operator = context.operators[node]
    return ProgramStep(
        operator,
        inputs=tuple(registers[key(data)] for data in node.inputs),
        arguments={name: registers[key(data)] for name, data in node.argument_inputs.items()},
        layouts=tuple(map(context.layouts_of, node.inputs)),
        output=registers[node, 0],
        random_key=context.random_keys.get(node),
        image_limit_bytes=context.image_limit_bytes,
        framed={name: layouts for name, layouts in others.items() if "F" in layouts},
        export=export,
        is_between=export is None and operator.per_sample and len(operator.layouts) == 1,
        scope=tuple((registers[key(condition)], value) for condition, value in node.scope),
    )


def _files_of(samples: Sequence[Any]) -> str:
    """Return the names of the files that samples come from; arrays of `numpy.memmap` know theirs."""
    files = {str(sample.filename): None for sample in samples if isinstance(sample, np.memmap) and sample.filename}
    return f", from {' and '.join(files)}" if files else ""


def _layout_of(layouts: str, samples: Any) -> str:
    if not layouts or samples is None:
        return ""
    sample = samples[0] if isinstance(samples, list) else samples
    return choose_layout(layouts, sample.ndim)
