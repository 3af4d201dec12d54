"""Operators that make a sample of a sample, one behind the other: what runs in threads, and in workers behind a source.

A program has numbered registers. The first hold the samples that it is given, others constants, and each step leaves its
results in further ones. It keeps nothing between samples, and can be pickled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dali_like.engine.pool.batch import describe_info
from dali_like.graph.nodes import ConstantNode, DataNode, OperatorNode, Producer, SourceNode
from dali_like.graph.operator_interface import Array, Operator, OperatorCall, choose_layout
from dali_like.graph.operator_random import RandomKey
from dali_like.types import SampleInfo

#: What a node stands for: a producer and one of its outputs.
Key = tuple[Producer, int]
#: Given the number of an export, a shape and a dtype: the memory that it should lie in, if there is any.
Empty = Callable[[int, tuple[int, ...], np.dtype[Any]], Array | None]


def key(node: DataNode) -> Key:
    """What a node stands for."""
    return node.producer, node.output


class Facts(NamedTuple):
    """What programs depend on besides the nodes.

    Attributes:
        operators: of the nodes.
        seen: the layouts of the data of sources, where they are not those that were declared.
        random_keys: of the nodes that have random numbers.
        image_limit_bytes: what an image may take that is decoded.
    """

    operators: Mapping[OperatorNode, Operator]
    seen: Mapping[SourceNode, Sequence[str]]
    random_keys: Mapping[OperatorNode, RandomKey]
    image_limit_bytes: int

    def layouts_of(self, data: DataNode) -> str:
        """The layouts that data may have."""
        if isinstance(data.producer, OperatorNode):
            return self.operators[data.producer].layouts[data.output]
        if isinstance(data.producer, SourceNode) and data.producer in self.seen:
            return self.seen[data.producer][data.output]
        return data.producer.layouts[data.output]


class ProgramStep(NamedTuple):
    """The application of one operator.

    Attributes:
        inputs, arguments: the registers of its inputs, and of its arguments that are nodes.
        layouts: of the inputs, as far as they are known.
        output: the first of the registers of its outputs.
        random_key: of its random numbers, if it has any.
        image_limit_bytes: what an image may take that is decoded.
        framed: the layouts of those that may have a value for each frame; see `OperatorCall.framed`.
        export: which export its only output is, if it is one.
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

    def run(self, registers: list[Any], info: SampleInfo, empty: Empty | None = None, count: int = 1) -> None:
        """Make the outputs of one sample; of an operator on batches, of all samples, which are `count`."""
        inputs = [registers[i] for i in self.inputs]
        place = None if self.export is None or empty is None else functools.partial(empty, self.export)
        is_between = self.export is None and self.operator.per_sample and len(self.operator.layouts) == 1
        owner = id(self) if is_between else None
        layouts = [*map(_layout_of, self.layouts, inputs)]
        arguments = {name: registers[i] for name, i in self.arguments.items()}
        framed = [
            name
            for name, words in self.framed.items()
            if _layout_of(words, inputs[name] if isinstance(name, int) else arguments[name]).startswith("F")
        ]
        call = OperatorCall(info, layouts, self.random_key, place, owner, count, self.image_limit_bytes, framed)
        try:
            outputs = self.operator.compute(call, inputs, arguments)
        except Exception as error:
            what = (
                describe_info(info) if self.operator.per_sample else f"iteration {info.iteration} in epoch {info.epoch_idx}"
            )
            error.add_note(f"raised by {self.operator.name} for {what}{_files_of(registers)}")
            raise
        registers[self.output : self.output + len(outputs)] = outputs


class Program(NamedTuple):
    """Operators that make a sample of a sample.

    Attributes:
        constants: what stands in the registers behind the samples that it is given.
        num_registers: how many registers there are in all.
        steps: in the order in which they are to run.
        exports: the registers of its results.
    """

    constants: tuple[Array, ...]
    num_registers: int
    steps: tuple[ProgramStep, ...]
    exports: tuple[int, ...]

    def run(self, samples: Sequence[Any], info: SampleInfo, empty: Empty | None = None) -> tuple[Any, ...]:
        """The results for one sample; those may lie where `empty` says, but need not."""
        registers = [*samples, *self.constants]
        registers += [None] * (self.num_registers - len(registers))
        for step in self.steps:
            step.run(registers, info, empty)
        return tuple([registers[i] for i in self.exports])


def make_program(inputs: Sequence[Key], nodes: Sequence[OperatorNode], exports: Sequence[Key], facts: Facts) -> Program:
    """The program of some operators of a graph.

    Args:
        inputs: what it is given.
        nodes: the operators, in an order in which they can run.
        exports: what it returns.
        facts: about the graph.
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
        steps.append(make_step(node, registers, exports, facts))
    used = tuple(registers[data] for data in exports)
    return Program(tuple(constants), len(registers), tuple(steps), used)


def make_step(node: OperatorNode, registers: Mapping[Key, int], exports: Sequence[Key], facts: Facts) -> ProgramStep:
    """The application of one operator, given which data is in which register."""
    others: dict[str | int, str] = {i: facts.layouts_of(data) for i, data in enumerate(node.inputs) if i}
    others |= {name: facts.layouts_of(data) for name, data in node.argument_inputs.items()}
    export = exports.index((node, 0)) if (node, 0) in exports and len(node.layouts) == 1 else None
    return ProgramStep(
        facts.operators[node],
        tuple(registers[key(data)] for data in node.inputs),
        {name: registers[key(data)] for name, data in node.argument_inputs.items()},
        tuple(map(facts.layouts_of, node.inputs)),
        registers[node, 0],
        facts.random_keys.get(node),
        facts.image_limit_bytes,
        {name: layouts for name, layouts in others.items() if "F" in layouts},
        export,
    )


def _files_of(samples: Sequence[Any]) -> str:
    """The files that samples are parts of, as far as these say so: arrays of `numpy.memmap` do."""
    files = {str(sample.filename): None for sample in samples if isinstance(sample, np.memmap) and sample.filename}
    return f", from {' and '.join(files)}" if files else ""


def _layout_of(layouts: str, samples: Any) -> str:
    if not layouts:
        return ""
    sample = samples[0] if isinstance(samples, list) else samples
    return choose_layout(layouts, sample.ndim)
