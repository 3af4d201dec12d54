"""The public names and signatures are those of `public_surface.txt`; see `public_surface` on how to renew it."""

from __future__ import annotations

from tests.project import public_surface


def test_public_names_and_signatures_are_those_of_the_file() -> None:
    """If the change is meant, run ``python -m tests.project.public_surface``."""
    assert [*public_surface.surface()] == public_surface.FILE.read_text("utf-8").splitlines()
