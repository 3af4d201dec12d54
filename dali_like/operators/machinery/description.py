"""Operator descriptions: the single source for ``fn``, ``ops``, the documentation and the type stubs.

A description decorates a plain function of one sample::

    @operator(layouts="HWC FHWC")
    def brighten(call: OperatorCall, image: Array, *, by: PerSample[float] = 10.0) -> Array:
        \"\"\"Make images brighter.

        Args:
            image: any dtype.
            by: summand for each element.
        \"\"\"
        return image + np.asarray(by, image.dtype)

This provides ``fn.brighten(data, *, by=10.0, device=None, name=None, ...)`` and ``ops.Brighten``. Both accept constants or
nodes for `by` and lists of nodes for `data`, and reject other values when the graph is built. A thread or a worker calls the
function with the data of one sample; `by` is then a float.

The first parameter is the `OperatorCall`, with the sample's layout, its random numbers and memory for the result. The other
positional parameters are the inputs. Inputs with a default are optional, and ``*inputs`` accepts any number. Keyword
parameters are the arguments; `dali_like.operators.parameters` lists the possible annotations. With several outputs the
function returns a tuple. ``**others`` are not arguments of the operator: `takes_arguments_of` replaces them, or functions of
other operators pass them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dali_like.common.class_names import class_name
from dali_like.common.kernel_library import kernels
from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentError, DefinitionError, NdimMismatchError, SampleError, SampleTypeError
from dali_like.graph.language.batch_calls import BatchCall, samples_of
from dali_like.graph.language.nodes import DataNode
from dali_like.graph.language.operator_interface import Array, OperatorCall, choose_layout
from dali_like.operators.parameters import Parameter, parameters_of, to_plain
from dali_like.types import to_dali_type

F = TypeVar("F", bound=Callable[..., Any])

#: Layouts of images, volumes and sequences of these that DALI's operators accept.
IMAGES = "HWC CHW FHWC FCHW CFHW"
VOLUMES = "DHWC CDHW FDHWC FCDHW CFDHW"

#: A smaller sample takes the function of its operator less time than a kernel needs to begin.
_LEAST_FOR_KERNEL_BYTES = 1 << 14

registry: dict[str, Description] = {}
#: Operators that other functions of ``fn`` apply. They are not public.
_internal: dict[str, Description] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Description:
    """Everything known about an operator.

    Attributes:
        path: name in ``fn``, such as "decoders.image".
        function: computes one sample; see this module.
        doc: docstring of the function and the class.
        parameters: arguments that have an effect.
        common: arguments of all operators, and arguments that are accepted for DALI compatibility but have no effect.
        inputs: names of the inputs.
        min_inputs, max_inputs: allowed number of inputs; None: any number.
        layouts: allowed layouts of the first input, separated by spaces; empty: any or none.
        num_outputs: number of outputs, or a function of the arguments, and of the names of the given inputs, that returns
            it.
        output_layout: function of the first input's layout and the arguments. It returns the layout of the output, or a
            tuple with one for each output. It raises ArgumentError if the layout is not possible with these arguments. None:
            the layout of the first input.
        check: function of the converted arguments, with nodes as they are, and of the inputs. It raises ArgumentError if
            they contradict each other.
        random: whether the operator uses random numbers.
        stacks: whether `function` accepts stacks of samples; see `OperatorCall.lead`. If so, the names of the inputs after
            the first, and of the arguments, that may be nodes then; for such an argument, `function` gets a list of values.
            None: it does not. ``*inputs`` need not be named.
        elementwise: whether each element of the result depends on the same element of its only input.
        rowwise: the length of vectors along the last axis, such as pixels, if this holds for vectors; ANY_LENGTH: for
            vectors of any length; 0: it does not. Vectors of the result may have another length.
        kernel: name of the function that computes batches with compiled loops, if they are installed, by its
            module in ``dali_like/operators``; see `dali_like.graph.language.batch_calls`. It gets `Samples` for each input,
            and arguments as for stacks. Empty: none.
        kernel_is_compiled: whether the kernel needs the compiled loops.
        kernel_for_stacks: whether the kernel takes less time than `function` for stacks and for large samples, too.
            Otherwise it computes samples of different shapes.
        kernel_for_one: likewise for one large sample.
        kernel_for_large: whether the kernel computes batches of large samples, too: it shares the samples among threads, or
            takes little time. Otherwise threads share calls of `function`.
        kernel_serves: tells by the constant arguments whether the kernel may serve. None: it may.
        per_sample: whether `function` receives single samples; otherwise it receives lists of all samples of a batch. Or a
            function of the constant arguments that returns this.
        strided: whether `function` accepts inputs that are not C-contiguous.
        views: whether the result has all bytes of the first input, and may be a view of it.
        needs_shapes_only: whether the elements of the first input do not matter.
        in_order: whether batches must be passed to `function` one at a time, in their order.
        for_frames: for operators that are called for each frame of a sequence: a function of the layout and shape of a frame
            and the arguments of all frames. It returns additional arguments for every call.
        replace_inputs: function of the nodes of the inputs and the arguments that returns the nodes to use instead.
        writes: whether the operator does more than return outputs, such as writing files. Pipelines from untrusted texts
            cannot have it.
        travels: for operators of the user's: a function, and its arguments, that make this description again in a worker.
            None: the worker has the operator by its name.
    """

    path: str
    function: Callable[..., Any]
    doc: str
    parameters: Mapping[str, Parameter]
    common: Mapping[str, Parameter]
    inputs: tuple[str, ...]
    min_inputs: int
    max_inputs: int | None
    layouts: str
    num_outputs: int | Callable[[Mapping[str, Any]], int]
    output_layout: Callable[[str, Mapping[str, Any]], str | Sequence[str]] | None
    check: Callable[[Mapping[str, Any]], None] | None
    random: bool
    per_sample: bool | Callable[[Mapping[str, Any]], bool]
    strided: bool = False
    views: bool = False
    needs_shapes_only: bool = False
    stacks: Collection[str] | None = None
    elementwise: bool = False
    rowwise: int = 0
    kernel: str = ""
    kernel_is_compiled: bool = True
    kernel_for_stacks: bool = True
    kernel_for_one: bool = True
    kernel_for_large: bool = False
    kernel_serves: Callable[[Mapping[str, Any]], bool] | None = None
    in_order: bool = False
    writes: bool = False
    for_frames: Callable[[str, tuple[int, ...], Sequence[Mapping[str, Any]]], Mapping[str, Any]] | None = None
    travels: tuple[Any, ...] | None = None
    replace_inputs: Callable[[Sequence[DataNode], Mapping[str, Any]], Sequence[DataNode]] | None = None

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"fn.{self.path}"

    @property
    def class_path(self) -> str:
        """Name in ``ops``, such as "decoders.Image"."""
        *modules, name = self.path.split(".")
        return ".".join((*modules, class_name(name)))

    @functools.cached_property
    def kernel_function(self) -> Callable[..., Any]:
        """The function that `kernel` names."""
        module, _, name = self.kernel.rpartition(".")
        function: Callable[..., Any] = getattr(importlib.import_module(f"dali_like.operators.{module}"), name)
        return function

    @property
    def all_parameters(self) -> Mapping[str, Parameter]:
        """All arguments the operator accepts."""
        return {**self.parameters, **self.common}

    def bind(self, layouts: Sequence[str], given: Mapping[str, Any]) -> BoundOperator:
        """Return the operator with its constant arguments.

        Args:
            layouts: layouts of the inputs, as far as known.
            given: the arguments that are not nodes, as given by the user.

        Raises:
            ArgumentError: an argument is not allowed.
        """
        values = {name: self.parameters[name].convert(value, self.name) for name, value in given.items()}
        if layouts:
            self._check_layout(layouts[0])
        outputs = self._output_layouts(layouts, values)
        return BoundOperator(self, values, outputs, int(values.pop("seed", -1)) if self.random else None)

    def _check_layout(self, layouts: str) -> None:
        allowed = self.layouts.split()
        if allowed and layouts and not set(layouts.split()) & set(allowed):
            raise ArgumentError(
                f"{self.name}: the input {self.inputs[0]} has the layout {layouts!r}; allowed are {', '.join(allowed)}"
            )

    def _output_layouts(self, layouts: Sequence[str], values: Mapping[str, Any]) -> tuple[str, ...]:
        given = {**{name: parameter.default for name, parameter in self.parameters.items()}, **values}
        with_inputs = {**given, **dict.fromkeys(self.inputs[: len(layouts)], True)}
        count = self.num_outputs if isinstance(self.num_outputs, int) else self.num_outputs(with_inputs)
        inputs = (layouts[0] if layouts else "") or self.layouts
        if self.output_layout is None:
            return (inputs,) + ("",) * (count - 1)
        candidates, errors = [], []
        for layout in inputs.split() or [""]:
            try:
                outputs = self.output_layout(layout, given)
            except ArgumentError as error:
                errors.append(error)
            else:
                candidates.append((outputs,) if isinstance(outputs, str) else tuple(outputs))
        if not candidates:
            raise type(errors[0])(f"{self.name}: {errors[0]}")
        columns = zip(*((*outputs, *[""] * count)[:count] for outputs in candidates), strict=True)
        return tuple(" ".join(dict.fromkeys(column)) for column in columns)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.travels is not None:
            make, *arguments = self.travels
            return make, tuple(arguments)
        return description_of, (self.path,)


class _Frame(NamedTuple):
    """Inputs and arguments of the operator's function for one frame of a sequence."""

    inputs: Sequence[Array]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class BoundOperator:
    """An operator with its constant arguments; a `dali_like.graph.language.operator_interface.Operator`."""

    description: Description
    values: Mapping[str, Any]
    layouts: tuple[str, ...]
    seed: int | None

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def arguments(self) -> Mapping[str, Any]:
        values = {name: to_plain(value) for name, value in self.values.items()}
        return values if self.seed is None else {**values, "seed": self.seed}

    @functools.cached_property
    def per_sample(self) -> bool:
        per_sample = self.description.per_sample
        return per_sample if isinstance(per_sample, bool) else per_sample(self.values)

    @property
    def in_order(self) -> bool:
        return self.description.in_order

    @property
    def elementwise(self) -> bool:
        return self.description.elementwise

    @property
    def rowwise(self) -> int:
        return self.description.rowwise

    @property
    def views(self) -> bool:
        return self.description.views

    def stacks(self, num_inputs: int, arguments: Collection[str]) -> bool:
        names = self.description.stacks
        others = () if self.description.max_inputs is None else self.description.inputs[1:num_inputs]
        return names is not None and all(name in names for name in (*others, *arguments))

    def compute(self, call: OperatorCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Sequence[Any]:
        description, per_sample = self.description, self.per_sample
        if (
            self.has_kernel
            and description.kernel_for_stacks
            and (call.lead or description.kernel_for_one)
            and (served := self._by_kernel(call, inputs, arguments)) is not None
        ):
            return served
        if description.layouts and call.layouts and not call.layouts[0]:
            call.layouts = ("N" * call.lead + self._assumed_layout(inputs[0].ndim - call.lead), *call.layouts[1:])
        if call.framed and per_sample and (frames := self._frames_of(call, inputs, arguments)):
            return self._compute_frames(call, frames)
        if not description.strided and per_sample:
            inputs = [array if array.flags.c_contiguous else array.copy() for array in inputs]
        values = self.values
        if arguments:
            each = per_sample and not call.lead
            values = {**values, **{name: self._values(name, arguments[name], call.framed, each) for name in arguments}}
        result = description.function(call, *inputs, **values)
        if len(self.layouts) == 1:
            return (_checked(result),) if per_sample else (result,)
        return [_checked(output) for output in result] if per_sample else result

    @functools.cached_property
    def has_kernel(self) -> bool:
        serves = self.description.kernel_serves
        return bool(self.description.kernel) and (serves is None or serves(self.values))

    @property
    def needs_shapes_only(self) -> bool:
        return self.description.needs_shapes_only

    @property
    def kernel_is_compiled(self) -> bool:
        return self.description.kernel_is_compiled

    @property
    def kernel_for_large(self) -> bool:
        return self.description.kernel_for_large

    def compute_batch(
        self, call: BatchCall, inputs: Sequence[Any], arguments: Mapping[str, Any], *, is_stack: bool = True
    ) -> Sequence[Any] | None:
        description = self.description
        layouts = call.layouts
        if description.layouts and layouts and not layouts[0]:
            call.layouts = (self._assumed_layout(inputs[0].ndim - 1), *layouts[1:])
        samples = [samples_of(data, is_stack=is_stack) for data in inputs]
        if None in samples:
            return None
        values = self.values
        if arguments:
            values = {**values, **{name: self._values(name, arguments[name], (), not is_stack) for name in arguments}}
        result = description.kernel_function(call, *samples, **values)
        return (result,) if len(self.layouts) == 1 and result is not None else result

    def _by_kernel(self, call: OperatorCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return the outputs for a sample or a stack, if the kernel of the operator serves it."""
        lead = call.lead
        is_worth = lead or (inputs and inputs[0].nbytes >= _LEAST_FOR_KERNEL_BYTES)
        if not is_worth or call.framed or not self.per_sample or kernels() is None:
            return None
        layouts = [layout[lead:] for layout in call.layouts]
        if self.description.layouts and layouts and not layouts[0]:
            layouts[0] = self._assumed_layout(inputs[0].ndim - lead)
        batch = BatchCall(call, layouts, call.count if lead else 1, is_stack=bool(lead))
        return self.compute_batch(batch, inputs, arguments, is_stack=bool(lead))

    def _frames_of(self, call: OperatorCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> list[_Frame]:
        """Return inputs and arguments of each frame; an empty list if the operator works on whole samples.

        Raises:
            SampleError: the number of values differs from the number of frames.
        """
        parameters = self.description.parameters
        if not call.layouts or "F" not in call.layout or not any(each.per_frame for each in parameters.values()):
            return []
        framed = {name for name in call.framed if isinstance(name, int) or parameters[name].per_frame}
        if not framed:
            return []
        frames = np.moveaxis(inputs[0], call.layout.index("F"), 0)
        given: dict[str | int, Array] = dict(enumerate(inputs))
        given.update(arguments.items())
        for name in framed:
            if not len(frames) or len(given[name]) not in (1, len(frames)):
                what = f"input {self.description.inputs[name]}" if isinstance(name, int) else f"argument {name}"
                raise SampleError(f"the {what} has {len(given[name])} values for a sequence of {len(frames)} frames")

        def of_frame(name: str | int, i: int) -> Array:
            return given[name][i % len(given[name]), ...] if name in framed else given[name]

        others = range(1, len(inputs))
        return [
            _Frame(
                [frame, *(of_frame(number, i) for number in others)],
                {**self.values, **{name: self._values(name, of_frame(name, i), call.framed) for name in arguments}},
            )
            for i, frame in enumerate(frames)
        ]

    def _compute_frames(self, call: OperatorCall, frames: Sequence[_Frame]) -> Sequence[Array]:
        """Compute each frame and stack the results along the frame axis."""
        axis, description = call.layout.index("F"), self.description
        layouts = [call.layout.replace("F", ""), *call.layouts[1:]]
        besides: Mapping[str, Any] = {}
        if description.for_frames is not None:
            besides = description.for_frames(layouts[0], frames[0].inputs[0].shape, [frame.values for frame in frames])
        made = [
            description.function(
                OperatorCall(call.info, layouts),
                *(np.asarray(array, order="C") for array in frame.inputs),
                **{**frame.values, **besides},
            )
            for frame in frames
        ]
        shape = (*made[0].shape[:axis], len(made), *made[0].shape[axis:])
        return [np.stack(made, axis, out=call.empty(shape, made[0].dtype))]

    def _values(self, name: str, data: Any, framed: Collection[str | int], is_one: bool = True) -> Any:
        """Return the value of an argument that is a node for one sample, or for each of several."""
        parameter = self.description.parameters[name]
        try:
            return parameter.convert_sample(data) if is_one else parameter.convert_samples(data)
        except SampleTypeError as error:
            if name not in framed or parameter.per_frame:
                raise
            raise SampleTypeError(f"{error}. It may differ from sample to sample, but not from frame to frame") from None

    def _assumed_layout(self, ndim: int) -> str:
        """Return the first allowed layout with as many dimensions as a sample without a layout, as DALI does."""
        if layout := choose_layout(self.description.layouts, ndim):
            return layout
        raise NdimMismatchError(
            f"{self.name}: the input {self.description.inputs[0]} has {ndim} dimensions and no layout; allowed are "
            f"{', '.join(self.description.layouts.split())}"
        )


def _checked(output: Any) -> Array:
    array = output if output.__class__ is np.ndarray else np.asarray(output)
    _check_dtype(array.dtype)
    return array


@functools.cache
def _check_dtype(dtype: np.dtype[Any]) -> None:
    to_dali_type(dtype)


def describe(
    function: Callable[..., Any],
    *,
    module: str = "",
    name: str = "",
    layouts: str = "",
    min_inputs: int | None = None,
    num_outputs: int | Callable[[Mapping[str, Any]], int] = 1,
    output_layout: str | Callable[[str, Mapping[str, Any]], str | Sequence[str]] | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
    random: bool = False,
    per_sample: bool | Callable[[Mapping[str, Any]], bool] = True,
    strided: bool = False,
    views: bool = False,
    needs_shapes_only: bool = False,
    stacks: Collection[str] | None = None,
    elementwise: bool = False,
    rowwise: int = 0,
    kernel: str = "",
    kernel_is_compiled: bool = True,
    kernel_for_stacks: bool = True,
    kernel_for_one: bool = True,
    kernel_for_large: bool = False,
    kernel_serves: Callable[[Mapping[str, Any]], bool] | None = None,
    in_order: bool = False,
    writes: bool = False,
    for_frames: Callable[[str, tuple[int, ...], Sequence[Mapping[str, Any]]], Mapping[str, Any]] | None = None,
    preserve: bool = False,
    ignored: Mapping[str, Any] | None = None,
    travels: tuple[Any, ...] | None = None,
    replace_inputs: Callable[[Sequence[DataNode], Mapping[str, Any]], Sequence[DataNode]] | None = None,
) -> Description:
    """Make a `Description` from a function; see this module.

    Args:
        function: the function of one sample.
        module: submodule of ``fn``, such as "decoders". Default: ``fn`` itself.
        name: name in this module. Default: the name of the function.
        layouts: see `Description`.
        min_inputs: minimum number of inputs. Default: the number of inputs without a default, or one for ``*inputs``.
        num_outputs: see `Description`.
        output_layout: see `Description`; a string is the layout of every result.
        check: see `Description`.
        random: see `Description`; adds the argument ``seed``.
        per_sample, strided, views, needs_shapes_only, stacks, elementwise, rowwise, kernel, kernel_is_compiled,
            kernel_for_stacks, kernel_for_one, kernel_for_large, kernel_serves, in_order, writes, for_frames: see
            `Description`.
        preserve: whether to run the operator even if its outputs are unused.
        ignored: arguments of DALI's operator that have no effect here, with their defaults.
        travels, replace_inputs: see `Description`.
    """
    fixed = output_layout
    layout_function = (lambda _, __: fixed) if isinstance(fixed, str) else fixed
    own = inspect.signature(function).parameters.values()
    inputs = [parameter for parameter in own if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)][1:]
    variadic = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in inputs)
    fixed_inputs = [parameter for parameter in inputs if parameter.kind is not parameter.VAR_POSITIONAL]
    needed = [parameter for parameter in fixed_inputs or inputs if parameter.default is parameter.empty]
    parameters = parameters_of(function)
    if random:
        parameters["seed"] = Parameter("seed", int, -1)
    return Description(
        path=f"{module}.{name or function.__name__}" if module else name or function.__name__,
        function=function,
        doc=inspect.getdoc(function) or "",
        parameters=parameters,
        common={
            **_common(preserve=preserve),
            **{key: Parameter(key, Any, default) for key, default in (ignored or {}).items()},
        },
        inputs=tuple(parameter.name for parameter in inputs),
        min_inputs=len(needed) if min_inputs is None else min_inputs,
        max_inputs=None if variadic else len(inputs),
        layouts=layouts,
        num_outputs=num_outputs,
        output_layout=layout_function,
        check=check,
        random=random,
        per_sample=per_sample,
        strided=strided,
        views=views,
        needs_shapes_only=needs_shapes_only,
        stacks=stacks,
        elementwise=elementwise,
        rowwise=rowwise,
        kernel=kernel,
        kernel_is_compiled=kernel_is_compiled,
        kernel_for_stacks=kernel_for_stacks,
        kernel_for_one=kernel_for_one,
        kernel_for_large=kernel_for_large,
        kernel_serves=kernel_serves,
        in_order=in_order,
        writes=writes,
        for_frames=for_frames,
        travels=travels,
        replace_inputs=replace_inputs,
    )


def takes_arguments_of(other: Description, *, without: Collection[str] = ()) -> Callable[[F], F]:
    """Let a function have the arguments of another operator, in place of its ``**others``. It passes them on.

    Args:
        other: the operator.
        without: its arguments that the function does not have.
    """

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        theirs = inspect.signature(other.function).parameters.values()
        parameters = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        names = {each.name for each in parameters} | set(without)
        taken = [each for each in theirs if each.kind is each.KEYWORD_ONLY and each.name not in names]
        positional = [each for each in parameters if each.kind is not each.KEYWORD_ONLY]
        # The names in annotations of the other operator are those of its module.
        hints = typing.get_type_hints(other.function, include_extras=True)
        function.__annotations__ = {**{each.name: hints[each.name] for each in taken}, **function.__annotations__}
        vars(function)["__signature__"] = own.replace(parameters=[*positional, *taken, *parameters[len(positional) :]])
        return function

    return decorate


def operator(*, internal: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Description]:
    """Make a `Description` from a function, and register it as an operator of the library.

    Args:
        internal: whether the operator is only for readers, see `Reader.behind`, and not in ``fn`` and ``ops``.
        options: see `describe`.
    """

    def decorate(function: Callable[..., Any]) -> Description:
        described = describe(function, **options)
        if described.path in registry or described.path in _internal:
            raise ValueError(f"two operators have the name {described.path}")
        (_internal if internal else registry)[described.path] = described
        return described

    return decorate


def view_kernel(name: str) -> Mapping[str, Any]:
    """Return the arguments of `operator` for a kernel of dali_like/operators/arrays/view_kernels.py."""
    return {
        "kernel": f"arrays.view_kernels.{name}",
        "kernel_is_compiled": False,
        "kernel_for_stacks": False,
        "kernel_for_large": True,
    }


def register(description: Description) -> None:
    """Register an operator of the user's. It replaces an earlier one of the user's with the same name.

    Raises:
        DefinitionError: the library has an operator with this name.
    """
    earlier = descriptions().get(description.path)
    if earlier is not None and earlier.travels is None:
        raise DefinitionError(f"{description.name} is an operator of dali_like: choose another name, or pass module=")
    registry[description.path] = description


def _common(*, preserve: bool) -> dict[str, Parameter]:
    return {
        "device": Parameter("device", SavedText | None, None),
        "name": Parameter("name", str | None, None),
        "preserve": Parameter("preserve", bool, preserve),
        "bytes_per_sample_hint": Parameter("bytes_per_sample_hint", Any, 0),
    }


def descriptions() -> Mapping[str, Description]:
    """Return all operators by their names in ``fn``. Importing the package of this module has registered them."""
    return registry


def own_descriptions() -> Mapping[str, Description]:
    """Return the operators of this library, without those of users."""
    return {path: description for path, description in descriptions().items() if description.travels is None}


def internal_descriptions() -> Mapping[str, Description]:
    """Return the internal operators by their paths."""
    descriptions()
    return _internal


def description_of(path: str) -> Description:
    """Return the operator with this name in ``fn``, or an internal one."""
    public = descriptions()
    return _internal[path] if path in _internal else public[path]
