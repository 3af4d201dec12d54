"""Write the table of DALI's functions: which exist here, and why the others do not.

``python -m tools.dali_functions [folder]`` writes the page, to ``docs/operators`` by default. The file
``dali_like/compat/dali_functions.txt`` lists the functions and the reasons; whether a function exists is looked up.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from dali_like import fn
from dali_like.compat.missing_names import dali_functions
from dali_like.operators.machinery.deprecations import OPERATORS
from dali_like.operators.machinery.description import own_descriptions
from dali_like.operators.machinery.reader_functions import older_reader_names, own_reader_descriptions
from tools.operator_pages import link_to, write_pages
from tools.reader_pages import page_of

_NOTE = "<!-- Written by tools.dali_functions from dali_like/compat/dali_functions.txt; do not edit. -->"
_PAGE = "dali_functions.md"


def exists(path: str) -> bool:
    """Return whether ``fn`` has a function."""
    found: object = fn
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is not None


def pages() -> dict[str, str]:
    """Return the text of the page by its file name."""
    return {_PAGE: "\n".join(_page())}


def _page() -> Iterator[str]:
    here = [path for path in dali_functions() if exists(path)]
    yield _NOTE
    yield "# Functions of DALI"
    yield ""
    again = {path for path in dali_functions() if path.startswith("hidden.")}
    count = f"{len(set(here) - again)} of the {len(dali_functions()) - len(again)} functions"
    yield f"{count} of `nvidia.dali.fn` in DALI 1.53 exist here, with the same names and arguments. Internal ones are not in"
    yield f"DALI's documentation. `hidden` has second names of {len(again)} functions."
    yield ""
    yield "| function | here |"
    yield "|---|---|"
    links = _links()
    for path, missing in dali_functions().items():
        if path in here:
            yield f"| `fn.{path}` | {links.get(path, 'yes')} |"
        else:
            assert missing is not None, f"fn.{path} does not exist: give a reason in dali_functions.txt"
            yield f"| `fn.{path}` | no: {missing.reason}. Instead, {missing.alternative}. |"
    yield ""


def _links() -> Mapping[str, str]:
    """Return the references to the documentation of functions by their names."""
    operators, readers = own_descriptions(), own_reader_descriptions()
    older = {**OPERATORS, **{name: reader.path for name, reader in older_reader_names().items()}}
    links = {path: f"[yes]({link_to(description)})" for path, description in operators.items()}
    links |= {path: f"[yes](../readers/{page_of(description)}.md)" for path, description in readers.items()}
    renamed = {name: links[path].replace("[yes]", f"[`fn.{path}`]") for name, path in older.items()}
    return links | {name: f"yes, deprecated name of {link}" for name, link in renamed.items()}


if __name__ == "__main__":
    write_pages(pages(), Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "operators"))
