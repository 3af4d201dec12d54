"""Count indirect phrases in comments, docstrings and documentation pages, per 1,000 words.

Prose that leaves out its nouns (``what was made``, ``who waits``, ``those that are told``) is hard to read. This script
counts one symptom of it. Ordinary uses are fine, so a part of the project may have some.

Run ``python -m tools.wordiness`` for the figures of the parts, with ``--check`` to fail above the limit, as ``make lint``
does, or ``python -m tools.wordiness PATH ...`` for a list by file.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

PHRASES = re.compile(
    r"\b(what|whatever|who|whoever|whom|those (?:that|who|which|of|in|with)|of which|"
    r"(?:is|are|was|were|be|been) (?:said|told))\b",
    re.IGNORECASE,
)
#: Phrases that are not plain English, apart from some idioms: "None if there is none", "is not a file".
UNCLEAR = re.compile(
    r"\bthere (?:is|are|was|were) none\b|\b(?:is|are|was|were) none\b"
    r"|(?<!here )\b(?:is|are|was|were) no (?!longer|more|less|fewer|better|worse|faster|slower|larger|smaller)[a-zA-Z]"
)
#: Most phrases per 1,000 words of a part.
LIMIT = 1.0
_ROOT = Path(__file__).resolve().parents[1]
#: Parts of the project, each with its folders and files.
PARTS = {
    "package": [_ROOT / "dali_like"],
    "tests": [_ROOT / "tests"],
    "tools": [_ROOT / "tools"],
    "benchmarks and examples": [_ROOT / "benchmarks", _ROOT / "examples"],
}
#: Parts whose figures are shown and not checked.
OTHER_PARTS = {"pages": [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", _ROOT / "docs"]}
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_CODE_BLOCK = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``[^`]*``|`[^`]*`|https?://\S+")


def prose_of(path: Path) -> str:
    """Return the comments and docstrings of a Python file, or the text of a page without its code."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return _CODE.sub(" ", _CODE_BLOCK.sub(" ", text))
    return _CODE.sub(" ", "\n".join([*_docstrings(text), *_comments(text)]))


def _docstrings(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (ast.get_docstring(node) or "").splitlines()
            yield "\n".join(line for line in lines if not line.lstrip().startswith((">>>", "...")))


def _comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string and "type: ignore" not in token.string:
            yield token.string.lstrip("#: ")


def count(paths: Iterable[Path]) -> tuple[int, int]:
    """Return how many indirect phrases and how many words the prose of files has."""
    texts = [prose_of(path) for path in paths]
    return sum(len(PHRASES.findall(text)) for text in texts), sum(len(_WORD.findall(text)) for text in texts)


def files_in(place: Path) -> list[Path]:
    """Return the Python files and pages below a folder, or the file itself."""
    if place.is_file():
        return [place]
    return sorted(path for path in place.rglob("*") if path.suffix in (".py", ".md"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the counts: by file where places are given, otherwise for each part of the project."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help=f"fail if a part has more than {LIMIT} per 1,000 words")
    options = parser.parse_args(arguments)
    for path in (path for place in options.paths for path in files_in(place)):
        phrases, words = count([path])
        if phrases:
            print(f"{phrases:4} in {words:6} words  {path}")
            text = prose_of(path)
            for match in PHRASES.finditer(text):
                print("      ", " ".join(text[max(0, match.start() - 50) : match.end() + 40].split()))
    if options.paths:
        return
    above = []
    for name, places in {**PARTS, **OTHER_PARTS}.items():
        phrases, words = count([path for place in places for path in files_in(place)])
        figure = 1000 * phrases / words
        line = f"{name}: {phrases} phrases in {words} words, {figure:.2f} per 1,000"
        print(line)
        if name in PARTS and figure > LIMIT:
            above.append(f"{line}; at most {LIMIT:.2f}. `python -m tools.wordiness {' '.join(map(str, places))}` lists them")
    if options.check and above:
        sys.exit("\n".join(above))


if __name__ == "__main__":
    main()
