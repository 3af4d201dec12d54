"""Write the type stubs of the modules that no file defines, and of ``fn`` and ``ops``, into the package.

The stubs are made from the descriptions of the operators and from the tables of modules, and are not in the repository. The
build hook in ``hatch_build.py`` writes them when the package is built, or installed for development; ``make lint`` and
``python -m tools.stubs`` write them again.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import textwrap
import typing
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import dali_like
from dali_like.compat.operator_modules import GROUPS, OTHERS, submodules
from dali_like.operators.machinery.description import Description, own_descriptions
from dali_like.operators.machinery.reader_functions import own_reader_descriptions
from dali_like.operators.parameters import REQUIRED, FloatArray, Floats, Ints, Parameter, Strings

_HEAD = '''\
"""{title} Written by tools.stubs from the descriptions of the operators; do not edit."""

from collections.abc import Callable
from collections.abc import Sequence as _Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.language.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType
{imports}
_Constant: TypeAlias = _Fixed | float | _Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | _Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | _Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | _Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str
'''
#: Other public names, and their modules.
_OURS = {
    "fn": {"cache": "_cache", "external_source": "_external_source"},
    "ops": {
        "Compose": "_compose",
        "ExternalSource": "_external_source",
        "cpu_ops": "_registry",
        "gpu_ops": "_registry",
        "mixed_ops": "_registry",
    },
}
_NAMES: dict[Any, str] = {
    Ints: "_Ints",
    Floats: "_Floats",
    FloatArray: "_Floats",
    Strings: "_Strings",
    np.dtype[Any]: "_DataType",
    Any: "Any",
}


def stubs() -> dict[str, str]:
    """Return the text of each stub by its path in the package. Each has a folder: pyright warns of files without code."""
    texts = {f"{name}/__init__.pyi": _alias(doc, source, names) for name, (doc, source, names) in dali_like.ALIASES.items()}
    for root in ("fn", "ops"):
        members: dict[str, list[Description]] = defaultdict(list)
        for description in (*own_descriptions().values(), *own_reader_descriptions().values()):
            members[description.path.rpartition(".")[0]].append(description)
        for group in ("", *GROUPS):
            path = "/".join([root, *filter(None, group.split("."))])
            texts[f"{path}/__init__.pyi"] = _stub(root, group, members[group])
    return texts


def _alias(doc: str, source: str, names: Sequence[str]) -> str:
    names = names or importlib.import_module(source).__all__
    return "\n".join(
        [
            f'"""{doc} Written by tools.stubs; do not edit."""\n',
            *(f"from {source} import {name} as {name}" for name in names),
            "",
        ]
    )


def _stub(root: str, group: str, members: list[Description]) -> str:
    module = f"{root}.{group}".rstrip(".")
    if (source := OTHERS.get(f"dali_like.{module}")) is not None:
        return _alias(f"``nvidia.dali.{module}``.", *source)
    write = _function if root == "fn" else _class
    head = _HEAD.format(title=f"``nvidia.dali.{module}``.", imports=_imports(root, group))
    return "\n".join([head, *map(write, members)])


def _imports(root: str, group: str) -> str:
    package = f"dali_like.{root}.{group}".rstrip(".")
    lines = [f"from {package} import {name} as {name}" for name in submodules(group)]
    if not group:
        lines += [f"from {package}.{own} import {name} as {name}" for name, own in _OURS[root].items()]
    return "\n".join([*lines, ""]) if lines else ""


def _function(description: Description) -> str:
    arguments = [f"    {name}," for name in _keywords(description)]
    name = description.path.rpartition(".")[2]
    return "\n".join(_overloads(description, name, arguments, "", single=description.max_inputs == 0))


def _class(description: Description) -> str:
    name = description.class_path.rpartition(".")[2]
    optional = [f"    {text}," for text in _keywords(description, all_optional=True)]
    lines = [f"class {name}:", *_doc(description, "    ")]
    lines += [
        "    def __init__(",
        "        self,",
        "        *,",
        *("    " + line for line in optional),
        "    ) -> None: ...",
    ]
    lines += ["    " + line for line in _overloads(description, "__call__", optional, "self, ", documented=False)]
    return "\n".join([*lines, ""])


def _overloads(
    description: Description, name: str, arguments: list[str], first: str, *, single: bool = False, documented: bool = True
) -> Iterator[str]:
    if flags := _flags_of_outputs(description):
        (flag,) = flags
        with_more = [f"    {flag}: Literal[True]," if f" {flag}: " in line else line for line in arguments]
        more = replace(description, num_outputs=2)
        yield from _overloads(more, name, with_more, first, documented=False)
        arguments = [line.replace(f"{flag}: bool", f"{flag}: Literal[False]") for line in arguments]
        description = replace(description, num_outputs=1)
    one = _result(description.num_outputs)
    if description.max_inputs == 0 or not description.inputs:
        yield from (f"def {name}(", *([f"    {first.rstrip(' ,')},"] if first else []), "    *,", *arguments, f") -> {one}:")
        yield from _body(description, documented)
        return
    for kind, result in (("DataNode", one), ("_Sequence[DataNode]", f"list[{one}]")):
        yield "@overload"
        yield f"def {name}("
        if first:
            yield "    self,"
        yield from _inputs(description, kind)
        yield from arguments
        yield f") -> {result}:"
        yield from _body(description, documented and kind == "DataNode")


def _result(num_outputs: object) -> str:
    if not isinstance(num_outputs, int):
        return "Any"
    return "DataNode" if num_outputs == 1 else "list[DataNode]"


def _flags_of_outputs(description: Description) -> list[str]:
    """Return the Boolean arguments that change the number of outputs."""
    count = description.num_outputs
    if isinstance(count, int):
        return []
    defaults = {name: parameter.default for name, parameter in description.parameters.items()}
    flags = [name for name, parameter in description.parameters.items() if parameter.annotation is bool]
    return [name for name in flags if count({**defaults, name: True}) != count(defaults)]


def _body(description: Description, documented: bool) -> Iterator[str]:
    yield from _doc(description, "    ") if documented else ["    ..."]
    yield ""


def _doc(description: Description, indent: str) -> list[str]:
    doc = description.doc
    return textwrap.indent(f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""', indent).splitlines()


def _inputs(description: Description, kind: str) -> Iterator[str]:
    parameters = inspect.signature(description.function).parameters
    if description.max_inputs is None:
        yield f"    *{description.inputs[0]}: {kind}{' | _Fixed | float' if kind == 'DataNode' else ''},"
        return
    for i, name in enumerate(description.inputs):
        default = " = None" if parameters[name].default is None else ""
        others = " | _Constant" if i or not description.min_inputs or kind == "DataNode" else ""
        none = " | None" if default else ""
        yield f"    {name}: {kind}{others}{none}{default},"
    yield "    /,"
    yield "    *,"


def _keywords(description: Description, *, all_optional: bool = False) -> Iterator[str]:
    """Yield the keyword arguments with their types and defaults."""
    for name, parameter in description.all_parameters.items():
        text = _type(parameter)
        if parameter.default is REQUIRED and not all_optional:
            yield f"{name}: {text}"
        else:
            default = "..." if parameter.default is REQUIRED or all_optional else _literal(parameter.default)
            yield f"{name}: {text} = {default}"


def _type(parameter: Parameter) -> str:
    parts = [_name(parameter.annotation)]
    if parameter.per_sample:
        parts.append("DataNode")
    if (parameter.optional or parameter.default is None) and parts != ["Any"]:
        parts.append("None")
    return " | ".join(parts)


def _name(annotation: Any) -> str:
    if annotation in _NAMES:
        return _NAMES[annotation]
    if typing.get_origin(annotation) is Literal:
        return f"Literal[{', '.join(map(repr, typing.get_args(annotation)))}]".replace("'", '"')
    if isinstance(annotation, type):
        return annotation.__name__
    return "Callable[..., Any]" if "Callable" in str(annotation) else "Any"


def _literal(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, np.dtype):
        return "..."
    return repr(value).replace("'", '"')


def write(package: Path) -> None:
    """Write the stubs that have changed into the folder of the package, and remove the ones of former modules."""
    texts = stubs()
    for path, text in texts.items():
        place = package / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists() or place.read_text("utf-8") != text:
            place.write_text(text, "utf-8")
    for place in package.rglob("*.pyi"):
        if str(place.relative_to(package)) not in texts:
            place.unlink()


if __name__ == "__main__":
    write(Path(dali_like.__file__).parent)
