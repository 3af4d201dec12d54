"""Programs in the documentation, for tests that run them."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
README = DOCS.parent / "README.md"
FROM_PYTORCH = DOCS / "migrating-from-pytorch.md"
SCALING = DOCS / "scaling.md"


def program_of(document: Path, language: str) -> str:
    """All blocks of code of a document that are in a language, as one program; blank lines keep the numbers of lines.

    Args:
        language: what stands behind the backquotes: "python", or "python torch" where PyTorch is needed; in documents that
            have pieces of programs besides, "python run".
    """
    program, inside = [], False
    for line in document.read_text("utf-8").splitlines():
        inside = inside and not line.startswith("```")
        program.append(line if inside else "")
        inside = inside or line == f"```{language}"
    return "\n".join(program)


def run_program_of(document: Path, language: str) -> None:
    """Run what `program_of` finds."""
    exec(compile(program_of(document, language), document, "exec"), {"__name__": document.stem})
