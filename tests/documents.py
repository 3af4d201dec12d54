"""Programs in the documentation, for tests that run them."""

from __future__ import annotations

import linecache
from pathlib import Path

from tests.custom_operators import removed_at_the_end

DOCS = Path(__file__).resolve().parent.parent / "docs"
README = DOCS.parent / "README.md"
FROM_PYTORCH = DOCS / "migrating-from-pytorch.md"
SCALING = DOCS / "scaling.md"


def program_of(document: Path, language: str) -> str:
    """Return all code blocks of a document in a language, as one program. Blank lines keep the line numbers.

    Args:
        language: text behind the backquotes: "python"; "python torch" for blocks that need PyTorch; "python run" in
            documents that also have incomplete pieces of programs.
    """
    program, inside = [], False
    for line in document.read_text("utf-8").splitlines():
        inside = inside and not line.startswith("```")
        program.append(line if inside else "")
        inside = inside or line == f"```{language}"
    return "\n".join(program)


def run_program_of(document: Path, language: str) -> None:
    """Run the program that `program_of` returns."""
    program = program_of(document, language)
    lines = program.splitlines(keepends=True)
    linecache.cache[str(document)] = (len(program), None, lines, str(document))  # conversion reads the source
    with removed_at_the_end():
        exec(compile(program, document, "exec"), {"__name__": document.stem})
