"""Metadata of the package for an index: hatchling calls `PackageIndex` when it builds a wheel or an sdist.

The address of the repository is the option ``repository`` of this hook in pyproject.toml. With it, the links of README.md
become absolute, and the package gets project URLs. While it is empty, only the text of the links stays, without pictures.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]*)\)")


def published(readme: str, repository: str) -> str:
    """Return a README whose relative links are absolute ones to the repository; without links if that is empty."""

    def link(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        if not repository:
            return "" if mark else text
        if target.startswith("#"):
            return f"[{text}]({repository}{target})"
        return f"{mark}[{text}]({repository}/{'raw' if mark else 'blob'}/main/{target})"

    return _RELATIVE_LINK.sub(link, readme)


def urls(repository: str) -> dict[str, str]:
    """Return the project URLs; none if the repository is empty."""
    if not repository:
        return {}
    return {
        "Documentation": f"{repository}/blob/main/docs/index.md",
        "Source": repository,
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


class PackageIndex(MetadataHookInterface):
    """Sets the readme and the project URLs."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the dynamic fields of the metadata."""
        repository = self.config["repository"].rstrip("/")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": published(text, repository)}
        metadata["urls"] = urls(repository)
