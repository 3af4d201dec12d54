"""Write the documentation of operators, one page for each group, from their descriptions.

``python -m tools.operator_pages [folder]`` writes the pages, to ``docs/operators`` by default.
"""

from __future__ import annotations

import enum
import itertools
import re
import sys
import typing
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from benchmarks.operators.report import of_operator
from dali_like import types
from dali_like.operators.machinery.description import Description, own_descriptions
from dali_like.operators.parameters import REQUIRED, Floats, Ints, Parameter, Strings
from tools.operator_examples import CALLS, MEANINGS, result_of
from tools.operator_pictures import EXAMPLES, SOUNDS, name_of

_NOTE = "<!-- Written by tools.operator_pages from the descriptions of the operators; do not edit. -->"
_KINDS: dict[Any, str] = {
    bool: "True or False",
    int: "integer",
    float: "number",
    str: "string",
    Ints: "integers",
    Floats: "numbers",
    Strings: "strings",
    np.dtype[Any]: "data type",
}
_COMMON = """\
Every operator also takes these arguments: `device` (where the result is wanted: "cpu" or "gpu"; default: on the GPU if an
input is wanted there; see [gpu.md](../gpu.md)), `name` (of the node, for messages), `preserve` (run the operator even if its
outputs are unused) and `bytes_per_sample_hint` (no effect). Random operators take `seed`. Where a table says "or node", the
argument may be a `DataNode` with a value for each sample. "By frame" also allows a value for each frame of a sequence; see
[`fn.per_frame`](shaping.md#fnper_frame). None counts as an argument that is not given. If an input is a list of nodes, the
result is a list, too. `ops` has a class for each operator. Pass its arguments to the constructor or to the call;
`ops.Compose` chains several operators.

Deprecated names of operators and arguments work with a DeprecationWarning: `fn.image_decoder`, `fn.coin_flip`, `fn.uniform`,
`fn.normal_distribution`, and `output_dtype` for `dtype`. The same holds for `seed` of operators without random numbers, and
for `image_type`, `split_stages` and `use_chunk_allocator` where they have no effect.

Operators run in the workers, directly after a parallel source, or in threads; results are the same.
`Pipeline.operator_places` returns where each one runs; [architecture.md](../architecture.md#operators) explains the choice.

A wrong argument raises an error when the graph is built. Errors that depend on the data, such as a window larger than an
image or a missing axis, are raised when the pipeline runs."""

#: The sidebar shows the pages of the groups on this page and on theirs only.
_PAGES = ("```{toctree}", ":hidden:", ":glob:", "", "*", "```", "")


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    groups: dict[str, list[Description]] = defaultdict(list)
    for description in own_descriptions().values():
        groups[description.function.__module__].append(description)
    ordered = {module: sorted(groups[module], key=lambda description: description.path) for module in sorted(groups)}
    texts = {f"{_name_of(module)}.md": _page(sys.modules[module], members) for module, members in ordered.items()}
    return {"index.md": _index(ordered), **texts}


def _index(groups: Mapping[str, list[Description]]) -> str:
    see = (
        "As in `nvidia.dali.fn`, on the CPU. See [the table of DALI's functions](dali_functions.md) for missing ones, and "
        "[costs](costs.md) for their time."
    )
    lines = [_NOTE, "# Operators", "", see, "", *_thumbnails(groups), "## All operators", ""]
    lines += ["| group | operators |", "|---|---|"]
    for module, members in groups.items():
        links = ", ".join(f"[`fn.{member.path}`]({link_to(member)})" for member in members)
        lines.append(f"| {_name_of(module).replace('_', ' ')} | {links} |")
    lines.append("| expressions | [arithmetic, comparisons, logic, `math.*`, indices](../arithmetic.md), constants |")
    return "\n".join([*lines, "", "## Common arguments", "", _COMMON, "", *_PAGES])


def _thumbnails(groups: Mapping[str, list[Description]]) -> Iterator[str]:
    """Yield the pictures of operators before and after, as links to their sections."""
    yield ":::{container} thumbnails"
    for member in itertools.chain.from_iterable(groups.values()):
        if member.path in EXAMPLES:
            name, link = f"fn.{member.path}", link_to(member)
            yield f"[![{name}](pictures/{name_of(member.path)})]({link})"
            yield f"[`{name}`]({link})"
            yield ""
    yield ":::"
    yield ""


def _page(module: ModuleType, members: list[Description]) -> str:
    title = _name_of(module.__name__).capitalize().replace("_", " ")
    lines = [_NOTE, f"# {title}", "", as_markdown(_first_line(module)), ""]
    for member in members:
        lines += _section(member)
    return "\n".join([*lines, "See [the index](index.md) for the arguments of all operators.", ""])


def _call(path: str) -> Iterator[str]:
    """Yield a call with its results, and the meaning of its names."""
    yield "```python"
    yield CALLS[path]
    yield from (f"# {line}" for line in result_of(path).splitlines())
    yield "```"
    yield ""
    for name, meaning in MEANINGS.items():
        if re.search(rf"\b{name}\b", CALLS[path]):
            yield f"`{name}` is {meaning}."
            yield ""


def _section(description: Description) -> Iterator[str]:
    text, arguments, returned = parts_of(description.doc)
    yield f"## fn.{description.path}"
    yield ""
    yield from signature(description)
    yield as_markdown(text)
    yield ""
    if description.path in EXAMPLES:
        subject = "sound" if description.path in SOUNDS else "photograph"
        yield f"![A {subject} before and after fn.{description.path}](pictures/{name_of(description.path)})"
        yield ""
        yield f"Example with {_example(description.path)}."
        yield ""
    if description.path in CALLS:
        yield from _call(description.path)
    if (share := of_operator(description.path)) is not None:
        yield f"CPU time: {share:.2f} of DALI's; see [costs](costs.md)."
        yield ""
    if description.layouts:
        yield f"Layouts: {', '.join(description.layouts.split())}."
        yield ""
    yield "| argument | kind | default | |"
    yield "|---|---|---|---|"
    for names, what in arguments:
        yield from rows(description, names, what)
    ignored = [name for name in description.common if name not in ("device", "name", "preserve", "bytes_per_sample_hint")]
    yield ""
    if returned:
        yield f"Returns: {as_markdown(returned)}"
        yield ""
    if ignored:
        yield f"Without effect: {', '.join(f'`{name}`' for name in ignored)}."
        yield ""


def signature(description: Description) -> Iterator[str]:
    """Yield the names in `fn` and `ops` as entries of the index and of Sphinx's inventory, which other projects link to."""
    keywords = [
        name if parameter.default is REQUIRED else f"{name}={_literal(parameter.default)}"
        for name, parameter in description.parameters.items()
    ]
    given = [
        name if number <= description.min_inputs else f"{name}=None" for number, name in enumerate(description.inputs, 1)
    ]
    inputs = ["*inputs"] if description.max_inputs is None else [*given, *(["*"] if keywords else [])]
    yield f"```{{py:function}} dali_like.fn.{description.path}({', '.join([*inputs, *keywords])})"
    yield ":single-line-parameter-list:"
    yield "```"
    yield ""
    yield f"```{{py:class}} dali_like.ops.{description.class_path}(**arguments)"
    yield "```"
    yield ""


def _literal(default: object) -> str:
    """Return a default as an expression."""
    if isinstance(default, enum.Enum):
        return f"types.{default.name}"
    if isinstance(default, np.dtype):
        return f"types.{types.to_dali_type(default).name}"
    return _default_text(default)


def _example(path: str) -> str:
    arguments = [f"`{name}={getattr(value, 'name', value)}`" for name, value in EXAMPLES[path].items()]
    return ", ".join(arguments) if arguments else "the defaults"


def rows(description: Description, names: list[str], what: str) -> Iterator[str]:
    """Yield table rows for arguments that share a docstring line: one row for each kind and default."""
    if names[0] in description.inputs:
        yield f"| {_as_code(names)} | input | | {as_markdown(what)} |"
        return
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in names:
        parameter = description.parameters.get(name)
        alike[("", "") if parameter is None else (_kind(parameter), _default(parameter))].append(name)
    for (kind, default), members in alike.items():
        yield f"| {_as_code(members)} | {kind} | {default} | {as_markdown(what)} |"
        what = "the same."


def _as_code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def parts_of(doc: str) -> tuple[str, list[tuple[list[str], str]], str]:
    """Return the text of a docstring, its arguments (several names may share a line), and its "Returns" section."""
    text, _, rest = doc.partition("\nArgs:\n")
    described, _, returned = rest.partition("\nReturns:\n")
    entries: list[tuple[list[str], str]] = []
    for line in described.splitlines():
        match = re.match(r"    (\w[\w, ]*): (.*)", line)
        if match:
            entries.append((match[1].split(", "), match[2]))
        elif line.strip() and line.startswith("        "):
            names, what = entries.pop()
            entries.append((names, f"{what} {line.strip()}"))
    result = returned.partition("\n\n")[0]
    return text.strip(), entries, " ".join(result.split())


def _kind(parameter: Parameter) -> str:
    annotation = parameter.annotation
    if typing.get_origin(annotation) is Literal:
        kind = " or ".join(f'"{value}"' for value in typing.get_args(annotation))
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        kind = f"`types.{annotation.__name__}`"
    else:
        kind = _KINDS.get(annotation, "")
    rules = [rule.text for rule in parameter.rules]
    kind = (", " if kind.endswith("s") else " ").join([kind, *rules])
    node = "or node, by frame" if parameter.per_frame else "or node"
    return f"{kind}{', ' if ', ' in kind else ' '}{node}" if parameter.per_sample else kind


def _default(parameter: Parameter) -> str:
    default = parameter.default
    if default is REQUIRED:
        return "required"
    if default is None:
        return ""
    return default.name if isinstance(default, enum.Enum) else _default_text(default)


def _default_text(default: object) -> str:
    if isinstance(default, tuple):
        return str([float(f"{part:.4g}") if isinstance(part, float) else part for part in default])
    return f'"{default}"' if isinstance(default, str) else str(default)


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    return text.replace("``", "`").replace("|", "\\|")


def _name_of(module: str) -> str:
    return module.rpartition(".")[2]


def link_to(description: Description) -> str:
    """Return the link to an operator's section, from the folder of the pages."""
    return f"{_name_of(description.function.__module__)}.md#fn{description.path.replace('.', '')}"


def _first_line(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


def write_pages(texts: Mapping[str, str], folder: Path) -> None:
    """Write pages to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(pages(), Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "operators"))
