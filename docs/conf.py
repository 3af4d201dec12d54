"""The documentation as a site: ``make docs``."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import dali_like

ROOT = Path(__file__).resolve().parent.parent

project = "dali_like"
author = "The dali_like authors"
copyright = "2026, The dali_like authors"  # the name that Sphinx knows
release = dali_like.__version__

extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.viewcode"),
    "sphinx_copybutton",
]
html_theme = "furo"
html_title = f"dali_like {release}"
#: The address of the public repository, for the links "Edit this page". Empty: no links.
hooks = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
repository = hooks["custom"]["repository"]
html_theme_options = (
    {
        "source_edit_link": f"{repository}/edit/main/docs/{{filename}}",
        "source_view_link": f"{repository}/blob/main/docs/{{filename}}",
    }
    if repository
    else {}
)
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"type": "module"})]
html_extra_path = ["llms.txt"]  # a guide for coding agents
html_copy_source = True  # the pages as Markdown, below _sources/: llms.txt links there
html_sourcelink_suffix = ""
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = "$ "
exclude_patterns = ["_build", "_templates", "_static"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure", "autosummary.import_cycle"]

#: Names in docstrings stand in single backquotes, names of arguments included: they are code, not references.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"  # docstrings describe shapes, dtypes and units
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_mock_imports = ["torch", "jax", "ray", "cupy"]
autosummary_generate = False  # only tables of methods
python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True
napoleon_use_rtype = False
napoleon_use_ivar = True
#: Types in signatures: some are not documented, or belong to other projects.
nitpick_ignore_regex = [("py:.*", ".*")]


def _with_program_pages(text: str) -> str:
    """Return a page in which links to example programs lead to their pages, which show them."""
    return re.sub(r"\]\((?:\.\./)+examples/(\w+)\.py\)", r"](/programs/\1.md)", text)


def _show_programs(app: Any, page: str, source: list[str]) -> None:
    source[0] = _with_program_pages(source[0])


def _with_links(lines: list[str]) -> list[str]:
    """Return a docstring in which paths of pages, such as docs/performance.md, are links."""
    return [re.sub(r"\bdocs/([\w/-]+)\.md", r":doc:`/\1`", line) for line in lines]


def _documented_methods(kind: type, options: Any) -> list[str]:
    """Return the public methods and properties with a docstring, in the order of the source."""
    if not options.get("members"):
        return []
    inherited = options.get("inherited-members") or options.get("inherited_members")
    excluded = options.get("exclude-members") or options.get("exclude_members") or ()
    classes = [each for each in kind.__mro__ if each.__module__.startswith("dali_like")] if inherited else [kind]
    names = dict.fromkeys(name for each in classes for name in vars(each))
    members = {name: inspect.getattr_static(kind, name) for name in names if name[0] != "_" and name not in excluded}
    kinds = (classmethod, staticmethod, property)
    return [
        name
        for name, member in members.items()
        if (inspect.isfunction(member) or isinstance(member, kinds)) and inspect.getdoc(getattr(kind, name))
    ]


def _describe(app: Any, what: str, name: str, described: Any, options: Any, lines: list[str]) -> None:
    """Add links to a docstring, and a table of methods to that of a class."""
    lines[:] = _with_links(lines)
    if what == "class" and isinstance(described, type) and described.__module__.startswith("dali_like"):
        methods = _documented_methods(described, options)
        if len(methods) > 2:
            lines += ["", ".. rubric:: Methods and properties", "", ".. autosummary::", "   :nosignatures:", ""]
            lines += [f"   ~{name}.{method}" for method in methods]
            lines += [""]


def setup(app: Any) -> None:
    """Register the changes of pages, and of docstrings, before napoleon reads them."""
    app.connect("source-read", _show_programs)
    app.connect("autodoc-process-docstring", _describe, priority=400)
