"""Checks of the installed libraries against the minimum versions in this package's metadata.

The checks import none of these libraries: some take seconds, and some must not be imported before a fork.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import metadata

from dali_like.cli.doctor.findings import Check, Finding, failure, note, ok, warning
from dali_like.common.extras import REQUIREMENTS, install_command
from dali_like.common.kernel_library import VARIABLE as KERNELS_VARIABLE
from dali_like.common.kernel_library import kernels
from dali_like.images.jpeg_windows import LIBRARY_VARIABLE, find_turbojpeg

_NAME = "dali-like"
_EXTRA = "extra "
#: Libraries that programs use together with this one, or instead of it.
_PEERS = ("torch", "jax", "ray", "nvidia-dali-cuda130", "nvidia-dali-cuda120", "torchdata", "webdataset", "grain", "spdl-io")
_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+)(\[.*?\])?(>=(?P<minimum>[\d.]+))?.*?(extra == ['"](?P<extra>[\w-]+)['"])?""")


def requirements(lines: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the minimum versions that a package requires: {extra: {name: version}}, with "" for the package itself.

    Args:
        lines: the result of `importlib.metadata.requires`.
    """
    needed: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for line in lines:
        if match := _REQUIREMENT.fullmatch(line):
            needed[match["extra"] or ""][match["name"]] = match["minimum"] or ""
    return needed


def libraries(extra: str, needed: Mapping[str, str]) -> Finding:
    """Check that the packages of an extra are installed in a sufficient version.

    Args:
        extra: the name of the extra; empty for the packages that are always required.
        needed: the minimum versions, by name.
    """
    if extra and extra not in REQUIREMENTS:
        # The metadata of an editable installation is as old as its last `pip install`.
        return note(f"{_EXTRA}{extra}", f"of an older {_NAME} than the one that runs", "pip install -e . once more")
    if extra:
        subject, remedy = f"{_EXTRA}{extra}", install_command(extra)
    else:
        packages = [f"{name}>={minimum}" if minimum else name for name, minimum in needed.items()]
        subject, remedy = "needed", f"pip install {' '.join(map(repr, packages))}"
    versions = {name: _version(name) for name in needed}
    missing = [name for name, version in versions.items() if version is None]
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    if missing:
        absent = f"not installed: {', '.join(missing)}"
        return (note if extra else failure)(subject, f"{found}; {absent}" if found else absent, remedy)
    old = [f"{name}>={needed[name]}" for name, version in versions.items() if _numbers(version) < _numbers(needed[name])]
    if old:
        return (warning if extra else failure)(subject, f"{found}; required: {', '.join(old)}", f"{remedy} --upgrade")
    return ok(subject, found)


def join_extras(found: Sequence[Finding]) -> list[Finding]:
    """Replace the findings on absent extras by one, if there are several. Most programs need few extras."""
    of_extras = [finding for finding in found if finding.subject.startswith(_EXTRA)]
    if len(of_extras) < 2:
        return [*found]
    names = ", ".join(finding.subject.removeprefix(_EXTRA) for finding in of_extras)
    joined = note("extras", f"not installed: {names}", "--verbose names the packages")
    return [joined, *(finding for finding in found if finding not in of_extras)]


def peers(names: Iterable[str] = _PEERS) -> Finding:
    """List the installed libraries that programs use together with this one, or instead of it."""
    found = [f"{name} {version}" for name in names if (version := _version(name)) is not None]
    return ok("peers", ", ".join(found) or "none")


def jpeg_windows() -> Finding:
    """Look for a decoder that decodes only the windows of JPEGs."""
    subject = "windows of JPEGs"
    try:
        compiled = kernels()
    except OSError as error:
        return failure(subject, str(error), f"correct the path in {KERNELS_VARIABLE}, or unset it")
    if compiled is not None and compiled.decode_window is not None:
        return ok(subject, "decoded by dali-like-kernels")
    try:
        found = find_turbojpeg()
    except OSError as error:
        return failure(subject, str(error), f"correct the path in {LIBRARY_VARIABLE}, or unset it")
    if found is None:
        return note(
            subject, "decoded with the rest of the image, which takes longer", "docs/install.md shows what decodes them"
        )
    return ok(subject, "decoded by TurboJPEG 3")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str | None) -> tuple[int, ...]:
    """Return the leading numeric parts of a version."""
    parts = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(map(int, parts[0].split("."))) if parts else ()


def _installation() -> Finding:
    return note(_NAME, "runs from a folder and is not installed: its requirements are unknown", "pip install -e .")


def _checks() -> tuple[Check, ...]:
    try:
        lines = metadata.requires(_NAME) or ()
    except metadata.PackageNotFoundError:
        return (_installation,)
    return tuple(partial(libraries, extra, needed) for extra, needed in requirements(lines).items())


CHECKS: tuple[Check, ...] = (*_checks(), jpeg_windows, peers)
