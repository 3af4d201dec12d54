"""Optional modules."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

from dali_like.common import extras
from dali_like.errors import MissingExtraError


def test_modules_that_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ModuleType("found")
    monkeypatch.setitem(sys.modules, "found", found)
    assert extras.installed("found") is found
    assert extras.optional("found", "testing", "images") is found


def test_modules_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert extras.installed("cv2") is None
    with pytest.raises(MissingExtraError, match="testing needs cv2"):
        extras.optional("cv2", "testing", "images")


def test_a_module_that_another_thread_imports_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    half, whole = ModuleType("half"), ModuleType("half")
    half.__spec__ = SimpleNamespace(_initializing=True)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "half", half)
    monkeypatch.setattr(importlib, "import_module", lambda name: whole)
    assert extras.installed("half") is whole
    assert extras.optional("half", "testing", "images") is whole
