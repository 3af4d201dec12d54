"""Imports of torchvision and Albumentations, for tests of their transforms."""

from __future__ import annotations

import os
from typing import Any

import pytest

from benchmarks import with_torchvision


def import_torchvision(module: str = "torchvision") -> Any:
    """Return torchvision or a module of it, or skip the test."""
    if not with_torchvision.has_torchvision():
        pytest.skip("needs torchvision")
    return with_torchvision.import_torchvision(module)


def import_albumentations() -> Any:
    """Return Albumentations, or skip the test."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # the import would ask the network for a newer version
    return pytest.importorskip("albumentations")
