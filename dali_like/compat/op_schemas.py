"""Descriptions of operators in the form of DALI's ``OpSchema``, which DALI's test helpers and wrappers ask."""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dali_like.common.class_names import class_name
from dali_like.operators.machinery.deprecations import ARGUMENTS, OPERATORS, WITHOUT_EFFECT
from dali_like.operators.machinery.description import Description, descriptions
from dali_like.operators.machinery.mixed import ON_GPU
from dali_like.operators.parameters import REQUIRED, FloatArray, Floats, Ints, Parameter, Strings, to_plain
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType, TensorLayout

__all__ = ["OpSchema", "operator_names", "schemas"]

#: Arguments that DALI does not list in schemas.
_UNLISTED = ("device", "name")
#: Maximum number of inputs of operators that take any number, as in DALI.
_ANY_NUMBER = 999
_TYPES: dict[Any, DALIDataType] = {
    bool: DALIDataType.BOOL,
    int: DALIDataType.INT32,
    float: DALIDataType.FLOAT,
    str: DALIDataType.STRING,
    Ints: DALIDataType._INT32_VEC,
    Floats: DALIDataType._FLOAT_VEC,
    FloatArray: DALIDataType._FLOAT_VEC,
    Strings: DALIDataType._STRING_VEC,
    np.dtype[Any]: DALIDataType.DATA_TYPE,
    DALIDataType: DALIDataType.DATA_TYPE,
    DALIImageType: DALIDataType.IMAGE_TYPE,
    DALIInterpType: DALIDataType.INTERP_TYPE,
}
#: Arguments that are layouts, or dimensions by their letters.
_LAYOUTS = {
    *("layout", "input_layout", "output_layout", "bbox_layout", "shape_layout"),
    *("axis_names", "new_axis_names", "sequence_axis_name"),
}
_ARGUMENT_LINE = re.compile(r"    (\*?\w[\w, ]*): (.*)")


class OpSchema:
    """The inputs and arguments of an operator, with the methods of DALI's class that have a meaning here.

    Args:
        description: the operator.
        deprecated_path: an older name of the operator in ``fn``.
    """

    def __init__(self, description: Description, deprecated_path: str = "") -> None:
        self._description = description
        self._deprecated_path = deprecated_path

    def __repr__(self) -> str:
        return f"OpSchema({self.Name()!r})"

    def Name(self) -> str:  # noqa: N802  # DALI's names, here and below
        """Return the name of the operator's class, such as "decoders__Image"."""
        return "__".join((*self.ModulePath(), self.OperatorName()))

    def OperatorName(self) -> str:  # noqa: N802
        """Return the name without its module."""
        if self._deprecated_path:
            return class_name(self._deprecated_path)
        return self._description.class_path.rpartition(".")[2]

    def ModulePath(self) -> list[str]:  # noqa: N802
        """Return the submodules of ``ops`` that lead to the operator."""
        return [] if self._deprecated_path else self._description.path.split(".")[:-1]

    def Dox(self) -> str:  # noqa: N802
        """Return the text of the operator's documentation, without its arguments."""
        return self._description.doc.partition("\nArgs:\n")[0].strip()

    def MinNumInput(self) -> int:  # noqa: N802
        """Return the minimum number of inputs."""
        return self._description.min_inputs

    def MaxNumInput(self) -> int:  # noqa: N802
        """Return the maximum number of inputs; 999 if it is unlimited."""
        most = self._description.max_inputs
        return _ANY_NUMBER if most is None else most

    def HasInputDox(self) -> bool:  # noqa: N802
        """Whether the inputs are documented."""
        return bool(self._description.inputs)

    def GetInputName(self, index: int) -> str:  # noqa: N802
        """Return the name of an input.

        Raises:
            IndexError: there is no such input.
        """
        inputs = self._description.inputs
        return inputs[min(index, len(inputs) - 1)] if index < self.MaxNumInput() else inputs[index]

    def GetInputDox(self, index: int) -> str:  # noqa: N802
        """Return the documentation of an input."""
        return self._docs.get(self.GetInputName(index), "")

    def GetSupportedLayouts(self, index: int) -> list[TensorLayout]:  # noqa: N802
        """Return the allowed layouts of an input; an empty list if any is allowed."""
        return [TensorLayout(layout) for layout in self._description.layouts.split()] if index == 0 else []

    def GetSupportedBackends(self) -> list[str]:  # noqa: N802
        """Return the devices of the operator."""
        return ["cpu", "mixed"] if self._description.path in ON_GPU else ["cpu"]

    def GetArgumentNames(self, include_hidden: bool = False) -> list[str]:  # noqa: N802
        """Return the names of all arguments, deprecated ones included."""
        return sorted({*self._arguments, *ARGUMENTS.get(self._description.path, ())} - {*_UNLISTED})

    def HasArgument(self, name: str) -> bool:  # noqa: N802
        """Whether the operator has an argument."""
        return name in self.GetArgumentNames()

    def GetArgumentType(self, name: str) -> DALIDataType:  # noqa: N802
        """Return the type of an argument, such as ``types.DATA_TYPE``; ``NO_TYPE`` for others than DALI's.

        Raises:
            KeyError: the operator has no such argument.
        """
        parameter = self._parameter(name)
        annotation = parameter.annotation
        if name in _LAYOUTS:
            return DALIDataType.TENSOR_LAYOUT
        if typing.get_origin(annotation) is Literal:
            return DALIDataType.STRING
        if annotation is Any and isinstance(parameter.default, (bool, int, float, str)):
            annotation = type(parameter.default)
        return _TYPES.get(annotation, DALIDataType.NO_TYPE)

    def GetArgumentDox(self, name: str) -> str:  # noqa: N802
        """Return the documentation of an argument.

        Raises:
            KeyError: the operator has no such argument.
        """
        return self._docs.get(self._parameter(name).name, "")

    def IsArgumentOptional(self, name: str) -> bool:  # noqa: N802
        """Whether an argument may be left out."""
        return self.HasArgument(name) and self._parameter(name).default is not REQUIRED

    def HasArgumentDefaultValue(self, name: str) -> bool:  # noqa: N802
        """Whether an argument has a default.

        Raises:
            KeyError: the operator has no such argument.
        """
        return self._parameter(name).default not in (REQUIRED, None)

    def GetArgumentDefaultValueString(self, name: str) -> str:  # noqa: N802
        """Return the default of an argument as Python writes it.

        Raises:
            KeyError: the operator has no such argument.
        """
        default = self._parameter(name).default
        return repr(int(default) if isinstance(default, enum.IntEnum) else to_plain(default))

    def IsTensorArgument(self, name: str) -> bool:  # noqa: N802
        """Whether an argument may be a node."""
        return self.HasArgument(name) and self._parameter(name).per_sample

    def ArgSupportsPerFrameInput(self, name: str) -> bool:  # noqa: N802
        """Whether an argument may differ from frame to frame."""
        return self.HasArgument(name) and self._parameter(name).per_frame

    def IsDeprecatedArg(self, name: str) -> bool:  # noqa: N802
        """Whether an argument is deprecated."""
        path = self._description.path
        return name in ARGUMENTS.get(path, ()) or name in WITHOUT_EFFECT.get(path, ())

    def DeprecatedArgInfo(self, name: str) -> dict[str, Any]:  # noqa: N802
        """Return the current name of a deprecated argument, or that it has no effect.

        Raises:
            KeyError: the argument is not deprecated.
        """
        if not self.IsDeprecatedArg(name):
            raise KeyError(f"{self.Name()}: {name} is not deprecated")
        renamed = ARGUMENTS.get(self._description.path, {}).get(name, "")
        text = f"use {renamed}" if renamed else f"{name} has no effect"
        return {"msg": text, "removed": not renamed, "renamed_to": renamed}

    def IsDeprecated(self) -> bool:  # noqa: N802
        """Whether the name of the operator is deprecated."""
        return bool(self._deprecated_path)

    def DeprecatedInFavorOf(self) -> str:  # noqa: N802
        """Return the current name of a deprecated operator."""
        return OpSchema(self._description).Name() if self._deprecated_path else ""

    def HasRandomSeedArg(self) -> bool:  # noqa: N802
        """Whether the operator uses random numbers."""
        return self._description.random

    def IsNoPrune(self) -> bool:  # noqa: N802
        """Whether the operator runs even if its outputs are unused."""
        return bool(self._description.common["preserve"].default)

    def IsDocHidden(self) -> bool:  # noqa: N802
        """Return False: all operators are documented."""
        return False

    IsDocPartiallyHidden = IsInternal = IsDocHidden

    @property
    def _arguments(self) -> Mapping[str, Parameter]:
        return self._description.all_parameters

    def _parameter(self, name: str) -> Parameter:
        if not self.HasArgument(name):
            raise KeyError(f'Argument "{name}" is not defined for operator "{self.Name()}".')
        return self._arguments[ARGUMENTS.get(self._description.path, {}).get(name, name)]

    @cached_property
    def _docs(self) -> dict[str, str]:
        """The lines of the docstring about inputs and arguments, by name."""
        described = self._description.doc.partition("\nArgs:\n")[2]
        docs: dict[str, str] = {}
        names: list[str] = []
        for line in described.splitlines():
            if not line.strip():
                break
            if match := _ARGUMENT_LINE.match(line):
                names = [name.strip("* ") for name in match[1].split(",")]
                docs.update(dict.fromkeys(names, match[2]))
            else:
                docs.update({name: f"{docs[name]} {line.strip()}" for name in names})
        return docs


def schemas() -> dict[str, OpSchema]:
    """Return the schemas of all operators by the names of their classes, deprecated names included."""
    current = [OpSchema(description) for description in descriptions().values()]
    older = [OpSchema(descriptions()[path], name) for name, path in OPERATORS.items()]
    return {schema.Name(): schema for schema in (*current, *older)}


def operator_names(device: str) -> list[str]:
    """Return the names of the classes of all operators for a device: "cpu", "mixed" or "gpu"."""
    return [name for name, schema in schemas().items() if device in schema.GetSupportedBackends()]
