"""Write a page of the site for each example program: ``python -m tools.program_pages [folder]``.

A page has the program's docstring, its picture in the gallery, if there is one, and its code. `docs/conf.py` leads the links
of other pages to the files in ``examples/`` there.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NOTE = "<!-- Written by tools.program_pages from the programs; do not edit. -->"


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    programs = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__")
    return {f"{path.stem}.md": _page(path) for path in programs}


def _page(program: Path) -> str:
    docstring = ast.get_docstring(ast.parse(program.read_text("utf-8"))) or ""
    lines = [_NOTE, f"# examples/{program.name}", "", _as_markdown(docstring), ""]
    if (ROOT / "docs" / "pictures" / "gallery" / f"{program.stem}.jpg").exists():
        lines += [f"![The picture of {program.stem} in the gallery](../pictures/gallery/{program.stem}.jpg)", ""]
    lines += [f"```{{literalinclude}} ../../examples/{program.name}", ":language: python", "```", ""]
    return "\n".join([*lines, "See [the gallery](../gallery.md) for the other programs.", ""])


def _as_markdown(docstring: str) -> str:
    """Return a docstring as Markdown: with single backquotes, and blocks of code between fences."""
    blocks = docstring.replace("``", "`").split("\n\n")
    return "\n\n".join(
        f"```text\n{re.sub('^    ', '', block, flags=re.MULTILINE)}\n```"
        if block.startswith("    ")
        else block.replace("::", ":")
        for block in blocks
    )


def write(folder: Path) -> None:
    """Write all pages to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "programs"))
