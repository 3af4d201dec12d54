"""TurboJPEG 3 from the package ``turbojpeg``, for machines whose own is older."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["packaged_turbojpeg"]


def packaged_turbojpeg() -> str | None:
    """Return the path of the library in the package; None if it is not installed."""
    spec = find_spec("turbojpeg")
    if spec is None or spec.origin is None:
        return None
    return str(next(Path(spec.origin).parent.glob("turbojpeg.libs/libturbojpeg*")))
