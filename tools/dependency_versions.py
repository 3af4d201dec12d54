"""Print requirements for pip: the oldest or the newest allowed versions of the package's dependencies.

    python -m tools.dependency_versions {oldest,newest}

``make oldest`` and ``make newest`` install them. The list has the dependencies of core and of all extras, apart from those
in `APART`, and the test environment without linters. ``oldest`` turns each lower bound of pyproject.toml into the version
itself, so each must be a version that exists; the other packages of the test environment stay as they are. ``newest`` drops
all bounds, but for ``==``: such a version is chosen for a reason.

Requires nothing but Python.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
#: Extras that are installed alone: several gigabytes, packages that exclude each other, that hold NumPy back, or that are
#: built from this repository.
APART = ("pytorch", "jax", "tensorflow", "paddle", "ray", "cuda12", "cuda13", "numba", "kernels")
#: Each version of these reports other things, so the project chooses one.
LINTERS = ("mypy", "ruff", "import-linter")

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+(?:\[[\w,.-]+\])?)\s*(?P<versions>(?:[<>=!~][^;]*)?)(?P<marker>;.*)?")


def oldest(requirement: str) -> str:
    """Return a requirement with its lower bound as the version. Without a lower bound, return it as it is."""
    name, versions, marker = _parts(requirement)
    bounds = [version.strip() for version in versions.split(",")]
    lower = [version.removeprefix(">=") for version in bounds if version.startswith(">=")]
    return f"{name}=={lower[0]}{marker}" if lower else requirement


def newest(requirement: str) -> str:
    """Return a requirement without its bounds. An exact version remains."""
    name, versions, marker = _parts(requirement)
    return requirement if versions.startswith("==") else name + marker


def _parts(requirement: str) -> tuple[str, str, str]:
    found = _REQUIREMENT.fullmatch(requirement)
    if found is None:
        raise ValueError(f"{requirement!r} is not a requirement that this program understands, such as 'numpy>=1.26'")
    return found["name"], found["versions"].strip(), found["marker"] or ""


def of_extra(project: Mapping[str, Any], extra: str) -> list[str]:
    """Return the requirements of the core and of an extra; "" stands for the core alone."""
    extras = project["project"]["optional-dependencies"]
    return [*project["project"]["dependencies"], *(extras[extra] if extra else ())]


def of_tests(project: Mapping[str, Any]) -> Iterator[str]:
    """Yield the requirements of the tests, without linters and without packages that core or extras name, too."""
    named = {
        _name(requirement)
        for extra in project["project"]["optional-dependencies"]
        for requirement in of_extra(project, extra)
    }
    for requirement in _of_group(project["dependency-groups"], "test"):
        if _name(requirement) not in named and _name(requirement) not in LINTERS:
            yield requirement


def _of_group(groups: Mapping[str, Any], name: str) -> Iterator[str]:
    for entry in groups[name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from _of_group(groups, entry["include-group"])


def _name(requirement: str) -> str:
    return _parts(requirement)[0].partition("[")[0]


def requirements(which: str) -> list[str]:
    """Return the requirements of the environment of ``make oldest`` or ``make newest``."""
    project = _project()
    choose = CHOICES[which]
    extras = [extra for extra in project["project"]["optional-dependencies"] if extra not in APART]
    chosen = {choose(requirement): None for extra in ("", *extras) for requirement in of_extra(project, extra)}
    return [*chosen, *(of_tests(project) if which == "oldest" else map(newest, of_tests(project)))]


def requirements_apart(which: str, extra: str) -> list[str]:
    """Return the requirements of an environment for the package with one extra alone; "" stands for none."""
    return [CHOICES[which](requirement) for requirement in of_extra(_project(), extra)]


def _project() -> Any:
    return tomllib.loads(PROJECT.read_text("utf-8"))


#: How a requirement is rewritten.
CHOICES: dict[str, Callable[[str], str]] = {"oldest": oldest, "newest": newest}


if __name__ == "__main__":
    if sys.argv[1:] not in (["oldest"], ["newest"]):
        sys.exit(__doc__)
    print(*requirements(sys.argv[1]), sep="\n")
