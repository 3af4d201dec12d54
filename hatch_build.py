"""Type stubs, and metadata that depends on where the project is published.

The stubs are written into the package when a wheel is built, and when the package is installed for development.

See `[tool.hatch.metadata.hooks.custom]` in pyproject.toml for the metadata. While no repository is set, the package has no
URLs, and README has no links to other files. With one, they are absolute, so that they work on a package index.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_BRANCH = "main"
#: A link or a picture whose target is a file of the repository.
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?![a-z]+:|#)[^)\s]+)\)")


class Stubs(BuildHookInterface[Any]):
    """Writes the stubs of operators into the package, as ``python -m tools.stubs`` does."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write them before the files of the wheel are collected; called by hatchling."""
        subprocess.run([sys.executable, "-m", "tools.stubs"], cwd=self.root, check=True)


class PublishedMetadata(MetadataHookInterface):
    """Adds URLs, contact and README."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Change the metadata in place; called by hatchling."""
        metadata.update(published(self.config["repository"], self.config["contact"], Path(self.root)))


def published(repository: str, contact: str, root: Path) -> dict[str, Any]:
    """Return the metadata for a repository and a contact.

    Args:
        repository: address of the public repository; "": none.
        contact: e-mail address for users; "": none.
        root: the folder of README.md.
    """
    text = readme((root / "README.md").read_text("utf-8"), repository)
    found: dict[str, Any] = {"readme": {"content-type": "text/markdown", "text": text}}
    if repository:
        found["urls"] = {
            "Repository": repository,
            "Documentation": f"{repository}/blob/{_BRANCH}/docs/index.md",
            "Changelog": f"{repository}/blob/{_BRANCH}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
            "Security": f"{repository}/blob/{_BRANCH}/SECURITY.md",
        }
    if contact:
        found["maintainers"] = [{"name": "The dali_like authors", "email": contact}]
    return found


def readme(text: str, repository: str) -> str:
    """Return README with absolute links; without a repository, with the texts of the links alone, and without pictures."""

    def absolute(link: re.Match[str]) -> str:
        if not repository:
            return "" if link["picture"] else link["text"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({repository}/{kind}/{_BRANCH}/{link['target']})"

    return _LINK.sub(absolute, text)
