"""Make the public functions ``fn.flip(data, ...)`` and classes ``ops.Flip(...)(data, ...)`` from operator descriptions."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from dali_like.common.articles import kind_of
from dali_like.common.class_names import class_name
from dali_like.common.stability import deprecated, unstable, warn_deprecated
from dali_like.common.suggestions import list_unknown
from dali_like.common.tracebacks import user_frames_first
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, DefinitionError, DeviceError
from dali_like.graph.language.constants import Constant
from dali_like.graph.language.defining import current_pipeline
from dali_like.graph.language.nodes import DataNode, OperatorNode, device_of_result, output_nodes
from dali_like.graph.language.stepping import current_stepper
from dali_like.operators.machinery.deprecations import OF_DALI_2, OPERATORS, current_arguments, known_arguments
from dali_like.operators.machinery.description import BoundOperator, Description, descriptions
from dali_like.operators.machinery.mixed import ON_GPU, MixedImage
from dali_like.operators.parameters import REQUIRED
from dali_like.types import NO_TYPE


def apply(description: Description, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """Add an operator to the graph.

    Args:
        inputs: nodes, constants, or lists of nodes. With lists, the operator is applied to each element, with the same
            random numbers.
        given: the arguments; None and NO_TYPE count as not given.

    Returns:
        A node, or a list of nodes for an operator with several outputs. With lists of nodes as inputs, a list of those; with
        several outputs, one list for each output.

    Raises:
        ArgumentError, DefinitionError, DeviceError: an input or an argument is not allowed; the message names it.
    """
    if current_stepper() is not None:
        inputs = [_stepped(value) for value in inputs]
        given = {name: _stepped(value) for name, value in given.items()}
    input_sets = _input_sets(description, inputs)
    given = current_arguments(
        description, {name: value for name, value in given.items() if value is not None and value is not NO_TYPE}
    )
    check_names(description, given)
    device = _device_of_result(description, given.get("device"), inputs)
    nodes, constants = {}, {}
    for name, value in given.items():
        value = value.array.tolist() if isinstance(value, Constant) else value  # noqa: PLW2901
        if name in description.common:
            description.common[name].convert(value, description.name)
        elif isinstance(value, DataNode) and description.parameters[name].per_sample:
            nodes[name] = value
        else:
            constants[name] = value
    if description.check is not None:
        given_inputs = {name: value for name, value in zip(description.inputs, inputs, strict=False) if value is not None}
        _check_together(description, constants, {**given_inputs, **nodes})
    results = []
    number: dict[str, Any] = {}  # applications to elements of lists share the number, and so the random numbers
    for one_set in input_sets or [list(inputs)]:
        data = _as_nodes(description, one_set)
        if description.replace_inputs is not None:
            data = tuple(description.replace_inputs(data, constants))
        bind: Callable[[Sequence[str]], Any] = functools.partial(description.bind, given=constants)
        if given.get("device") == "mixed" and description.path in ON_GPU:
            bind = functools.partial(_bind_mixed, bind)
        bound = bind([_layouts_of(node) for node in data])
        node = OperatorNode(bound, data, nodes, **number, adapt=bind, device=device)
        number = {"number": node.number}
        name = given.get("name") or description.name
        results.append([DataNode(name, device, node, i) for i in range(len(bound.layouts))])
    if given.get("preserve") or (description.common["preserve"].default and current_pipeline() is not None):
        preserve(description, [node for outputs in results for node in outputs])
    if not input_sets:
        return results[0][0] if len(results[0]) == 1 else results[0]
    columns = [list(column) for column in zip(*results, strict=True)]
    return columns[0] if len(columns) == 1 else columns


def _stepped(value: Any) -> Any:
    """Return a node for a batch that the user has computed in debug mode, a list of nodes for a list of batches."""
    stepper = current_stepper()
    assert stepper is not None
    if isinstance(value, list) and value and all(hasattr(part, "is_dense_tensor") for part in value):
        return [stepper.node_of(part) for part in value]
    node = stepper.node_of(value)
    return value if node is None else node


def _input_sets(description: Description, inputs: Sequence[Any]) -> list[list[Any]]:
    """Return the inputs of each application if some inputs are lists of nodes, else an empty list."""
    least, most = description.min_inputs, description.max_inputs
    if len(inputs) < least or (most is not None and len(inputs) > most):
        allowed = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        names = f" ({', '.join(description.inputs)})" if description.inputs else ""
        others = ". Other arguments are given by name" if len(inputs) > least else ""
        raise ArgumentTypeError(f"{description.name} takes {allowed} inputs{names}, not {len(inputs)}{others}")
    lists = [value for value in inputs if _is_list_of_nodes(value)]
    if not lists:
        return []
    sizes = {len(value) for value in lists}
    if len(sizes) > 1:
        raise DefinitionError(f"{description.name}: its inputs are lists of different lengths: {sorted(sizes)} nodes")
    return [[value[i] if _is_list_of_nodes(value) else value for value in inputs] for i in range(sizes.pop())]


def _is_list_of_nodes(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(part, DataNode) for part in value)


def _as_nodes(description: Description, inputs: Sequence[Any]) -> tuple[DataNode, ...]:
    nodes: list[DataNode] = []
    for i, value in enumerate(inputs):
        name = description.inputs[min(i, len(description.inputs) - 1)]
        try:
            nodes += output_nodes([_without_enumerations(value)])
        except DefinitionError:
            raise DefinitionError(
                f"{description.name}: the input {name} must be a DataNode, a number, a list of numbers or an array, not "
                f"{kind_of(value)}"
            ) from None
    return tuple(nodes)


def _without_enumerations(value: Any) -> Any:
    """Return a list of members of one of DALI's enumerations as numbers, which arguments accept in their place."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(member, IntEnum) for member in value):
        return np.array(value, np.int32)
    return value


def _layouts_of(node: DataNode) -> str:
    return node.producer.layouts[node.output]


def check_names(description: Description, given: Mapping[str, Any]) -> None:
    """Refuse unknown arguments, and a lack of required ones."""
    allowed = description.all_parameters
    if unknown := sorted(set(given) - set(allowed)):
        raise ArgumentTypeError(
            f"{description.name} got unexpected arguments: {list_unknown(unknown, allowed)}. It has {', '.join(allowed)}"
        )
    missing = [name for name, parameter in description.parameters.items() if parameter.default is REQUIRED]
    if missing := [name for name in missing if name not in given]:
        raise ArgumentTypeError(f"{description.name} needs the argument {', '.join(missing)}")


def _device_of_result(description: Description, device: Any, inputs: Sequence[Any]) -> str:
    """Return where the result of an operator is wanted, given its argument `device`, if any."""
    if device is None:
        each = (part for value in inputs for part in (value if _is_list_of_nodes(value) else [value]))
        return device_of_result(node for node in each if isinstance(node, DataNode))
    if device == "mixed" and "decoders" in description.path.split("."):
        return "gpu"
    if device not in ("cpu", "gpu"):
        also = '; "mixed" is for decoders' if device == "mixed" else ""
        raise DeviceError(
            f'{description.name}: device={device!r} is not a device of this operator: pass "cpu" or "gpu"{also}'
        )
    return str(device)


def _bind_mixed(bind: Callable[[Sequence[str]], BoundOperator], layouts: Sequence[str]) -> MixedImage:
    return MixedImage(bind(layouts))


def _check_together(description: Description, constants: Mapping[str, Any], others: Mapping[str, Any]) -> None:
    assert description.check is not None
    values = {name: description.parameters[name].convert(value, description.name) for name, value in constants.items()}
    try:
        description.check({**values, **others})
    except ArgumentError as error:
        raise type(error)(f"{description.name}: {error}") from None


def preserve(description: Description, nodes: Sequence[DataNode]) -> None:
    """Compute nodes although no output needs them."""
    pipeline = current_pipeline()
    if pipeline is None:
        raise ArgumentClashError(
            f"{description.name}: preserve=True needs a current pipeline; call the operator inside `with pipeline:`"
        )
    for node in nodes:
        pipeline.add_sink(node)


# Making functions, classes and modules

#: Adds an operator to the graph, given its inputs and arguments; see `apply`.
Apply = Callable[[Description, Sequence[Any], Mapping[str, Any]], Any]


def populate(module_name: str) -> list[str]:
    """Add the operators to a module of ``fn`` or ``ops``, and return their names."""
    module = sys.modules[module_name]
    if module_name.startswith("dali_like.fn"):
        if module_name == "dali_like.fn":
            for older, path in OPERATORS.items():
                setattr(module, older, deprecated_function(older, make_function(descriptions()[path]), descriptions()[path]))
        return _populate(module_name, "dali_like.fn", lambda description: description.path, make_function)
    if module_name == "dali_like.ops":
        for older, path in OPERATORS.items():
            setattr(module, class_name(older), deprecated_class(class_name(older), make_class(descriptions()[path])))
    return _populate(module_name, "dali_like.ops", lambda description: description.class_path, make_class)


def _populate(
    module_name: str, root: str, path_of: Callable[[Description], str], make: Callable[[Description], Any]
) -> list[str]:
    module = sys.modules[module_name]
    names = []
    for description in descriptions().values():
        *modules, name = path_of(description).split(".")
        if ".".join((root, *modules)) == module_name:
            member = make(description)
            member.__module__ = module_name
            setattr(module, name, member)
            names.append(name)
    for path, current in OF_DALI_2.items():
        *modules, name = path.split(".")
        if ".".join((root, *modules)) == module_name:
            member = make(descriptions()[current])
            member.__module__ = module_name
            setattr(module, name if root == "dali_like.fn" else class_name(name), member)
    return names


def make_function(description: Description, apply: Apply = apply) -> Callable[..., Any]:
    """Make the operator's function in ``fn``."""
    apply = _noted(description, apply)

    @user_frames_first
    def function(*inputs: Any, **arguments: Any) -> Any:
        return apply(description, inputs, arguments)

    function.__name__ = function.__qualname__ = description.path.rsplit(".", 1)[-1]
    function.__doc__ = description.doc
    vars(function)["__signature__"] = signature_of(description)
    return function


def _noted(description: Description, apply: Apply) -> Apply:
    """Return ``apply``, which notes the use of an experimental operator."""
    return unstable(description.name)(apply) if description.path.startswith("experimental.") else apply


def signature_of(description: Description) -> inspect.Signature:
    """Return the signature of the operator's function in ``fn``."""
    plain = inspect.signature(description.function).parameters
    parameters = []
    for name in description.inputs:
        variadic = plain[name].kind is inspect.Parameter.VAR_POSITIONAL
        kind = inspect.Parameter.VAR_POSITIONAL if variadic else inspect.Parameter.POSITIONAL_ONLY
        parameters.append(inspect.Parameter(name, kind, default=plain[name].default, annotation="DataNode"))
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=parameter.default)
        for name, parameter in description.all_parameters.items()
    ]
    return inspect.Signature(parameters)


class OperatorClass:
    """Base class of ``ops`` classes: an operator with some of its arguments. Calling it adds nodes.

    Each argument may be given once, either to the constructor or to the call.
    """

    description: typing.ClassVar[Description]
    apply: typing.ClassVar[Apply]

    @user_frames_first
    def __init__(self, **arguments: Any) -> None:
        unknown = sorted(set(arguments) - known_arguments(self.description))
        if unknown:
            raise ArgumentTypeError(
                f"ops.{self.description.class_path} got unexpected arguments: "
                f"{list_unknown(unknown, known_arguments(self.description))}"
            )
        self._arguments = _without_none(arguments)

    @user_frames_first
    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """Add the node or nodes."""
        arguments = _without_none(arguments)
        if again := sorted(set(arguments) & set(self._arguments)):
            raise ArgumentClashError(
                f"ops.{self.description.class_path}: {', '.join(again)} already specified in constructor"
            )
        return type(self).apply(self.description, inputs, {**self._arguments, **arguments})


def _without_none(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def make_class(description: Description, apply: Apply = apply) -> type[OperatorClass]:
    """Make the operator's class in ``ops``."""
    apply = _noted(description, apply)
    name = description.class_path.rsplit(".", 1)[-1]
    members = {"description": description, "apply": staticmethod(apply), "__doc__": description.doc}
    return type(name, (OperatorClass,), members)


def deprecated_function(name: str, current: Callable[..., Any], description: Description) -> Callable[..., Any]:
    """Make a function of ``fn`` under a deprecated name."""

    return deprecated(f"fn.{name}", description.name)(current)


def deprecated_class(name: str, current: type[OperatorClass]) -> type[OperatorClass]:
    """Make a class of ``ops`` under a deprecated name."""

    def __init__(self: OperatorClass, **arguments: Any) -> None:  # noqa: N807
        warn_deprecated(f"ops.{name}", f"ops.{current.description.class_path}")
        OperatorClass.__init__(self, **arguments)

    return type(name, (current,), {"__init__": __init__})
