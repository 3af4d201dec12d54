"""The documentation as a site: ``make docs``."""

from __future__ import annotations

import tomllib
from pathlib import Path

import dali_like

project = "dali_like"
author = "The dali_like authors"
copyright = "2026, The dali_like authors"  # the name that Sphinx knows
release = dali_like.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"dali_like {release}"
#: The address of the public repository, for the links "Edit this page". Empty: no links.
_tools = tomllib.loads(Path(__file__).parent.with_name("pyproject.toml").read_text())["tool"]
repository = _tools["hatch"]["metadata"]["hooks"]["custom"]["repository"]
html_theme_options = (
    {"source_repository": repository, "source_branch": "main", "source_directory": "docs/"} if repository else {}
)
html_extra_path = ["llms.txt"]  # a guide for coding agents
copybutton_exclude = ".linenos, .gp, .go"
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]

#: Names in docstrings stand in single backquotes, names of arguments included: they are code, not references.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings describe arguments, with shapes, dtypes and units
autodoc_default_options = {"members": True}
autodoc_mock_imports = ["torch", "jax", "ray", "cupy"]
napoleon_use_rtype = False
napoleon_use_ivar = True
