"""Which versions of other libraries are installed, and whether they are new enough: as this package's own metadata says it.

None of them is imported: some take seconds, and one or the other must not be imported before a fork.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import metadata

from dali_like.cli.doctor.findings import Check, Finding, failure, note, ok, warning

_NAME = "dali-like"
#: What programs use beside this library, or in its place.
_PEERS = ("torch", "jax", "ray", "nvidia-dali-cuda130", "nvidia-dali-cuda120", "torchdata", "webdataset", "grain", "spdl-io")
_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+)(\[.*?\])?(>=(?P<least>[\d.]+))?.*?(extra == ['"](?P<extra>\w+)['"])?""")


def requirements(lines: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """What an installed package needs: for each of its extras, and for itself as "", the least versions of others by name.

    Args:
        lines: as `importlib.metadata.requires` gives them.
    """
    needed: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for line in lines:
        if match := _REQUIREMENT.fullmatch(line):
            needed[match["extra"] or ""][match["name"]] = match["least"] or ""
    return needed


def libraries(extra: str, needed: Mapping[str, str]) -> Finding:
    """Whether what an extra brings is installed, and new enough.

    Args:
        extra: its name; empty for what is always needed.
        needed: the least versions, by name.
    """
    subject, remedy = (
        (f"extra {extra}", f"pip install 'dali_like[{extra}]'") if extra else ("needed", "pip install dali_like")
    )
    versions = {name: _version(name) for name in needed}
    missing = [name for name, version in versions.items() if version is None]
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    if missing:
        absent = f"not installed: {', '.join(missing)}"
        return (note if extra else failure)(subject, f"{found}; {absent}" if found else absent, remedy)
    old = [f"{name}>={needed[name]}" for name, version in versions.items() if _numbers(version) < _numbers(needed[name])]
    if old:
        return (warning if extra else failure)(subject, f"{found}; needed are {', '.join(old)}", f"{remedy} --upgrade")
    return ok(subject, found)


def peers(names: Iterable[str] = _PEERS) -> Finding:
    """What programs use beside this library, or in its place."""
    found = [f"{name} {version}" for name in names if (version := _version(name)) is not None]
    return ok("peers", ", ".join(found) or "none")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str | None) -> tuple[int, ...]:
    """The numbers that a version begins with, up to what is no number."""
    parts = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(map(int, parts[0].split("."))) if parts else ()


def _installation() -> Finding:
    return note(_NAME, "runs from a folder, without being installed", "pip install -e . says which libraries it needs")


def _checks() -> tuple[Check, ...]:
    try:
        lines = metadata.requires(_NAME) or ()
    except metadata.PackageNotFoundError:
        return (_installation,)
    return tuple(partial(libraries, extra, needed) for extra, needed in requirements(lines).items())


CHECKS: tuple[Check, ...] = (*_checks(), peers)
