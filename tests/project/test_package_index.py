"""The metadata of the package for an index."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = """\
![A plot](docs/a.svg) and [two
words](docs/b.md#c), [below](#below), [elsewhere](https://example.org/d)
"""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the module, with a stand-in for hatchling, which is there only while a package is built."""
    interface = types.ModuleType("hatchling.metadata.plugin.interface")

    class MetadataHookInterface:
        def __init__(self, root: str, config: dict[str, Any]) -> None:
            self.root = root
            self.config = config

    interface.MetadataHookInterface = MetadataHookInterface  # type: ignore[attr-defined]
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    return runpy.run_path(str(ROOT / "tools" / "package_index.py"))


def test_links_are_absolute(hook: dict[str, Any]) -> None:
    place = "https://forge.example/x"

    assert hook["published"](README, place) == (
        f"![A plot]({place}/raw/main/docs/a.svg) and [two\nwords]({place}/blob/main/docs/b.md#c), "
        f"[below]({place}#below), [elsewhere](https://example.org/d)\n"
    )


def test_without_a_repository_only_their_text_stays(hook: dict[str, Any]) -> None:
    assert hook["published"](README, "") == " and two\nwords, below, [elsewhere](https://example.org/d)\n"


@pytest.mark.parametrize(("repository", "names"), [("", []), ("https://forge.example/x/", ["Source", "Issues"])])
def test_project_urls_come_from_one_setting(hook: dict[str, Any], repository: str, names: list[str]) -> None:
    metadata: dict[str, Any] = {}

    hook["PackageIndex"](str(ROOT), {"repository": repository}).update(metadata)

    assert [name for name in names if not metadata["urls"][name].startswith("https://forge.example/x")] == []
    assert bool(metadata["urls"]) == bool(repository)
    assert "](docs/" not in metadata["readme"]["text"]
    assert metadata["readme"]["content-type"] == "text/markdown"
