"""Write a software bill of materials of a container, in the JSON format of CycloneDX 1.6.

    python docker/sbom.py docker/requirements.txt [--root build/containers/cpu/runtime] --out build/sbom/cpu.cdx.json

It lists the Python packages that the requirements pin, with their checksums, and, given the root of a built image, Debian's
packages. The format: https://cyclonedx.org/docs/1.6/json/. Package URLs: https://github.com/package-url/purl-spec.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]


def bill_of(requirements: Path, image: Path | None = None) -> dict[str, Any]:
    """Return the bill of an image.

    Args:
        requirements: the file with the pinned Python packages.
        image: root of the built image; None: without Debian's packages.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    components = list(python_packages(requirements.read_text()))
    if image is not None:
        components += debian_packages((image / "var/lib/dpkg/status").read_text("utf-8"))
    this = {**_component("pypi", name, version), "type": "container", "licenses": [{"license": {"id": project["license"]}}]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": this},
        "components": components,
        "dependencies": [{"ref": this["bom-ref"], "dependsOn": [component["bom-ref"] for component in components]}],
    }


def python_packages(pins: str) -> Iterator[dict[str, Any]]:
    """Yield the components of a file of pinned requirements. Each file of a package has a checksum of its own."""
    for pin in re.finditer(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?P<rest>.*(?:\n[ \t]+.*)*)", pins, re.MULTILINE):
        checksums = re.findall(r"--hash=sha256:([0-9a-f]{64})", pin["rest"])
        files = [
            {"type": "distribution", "url": f"https://pypi.org/project/{pin['name']}/{pin['version']}/", "hashes": [hashed]}
            for hashed in ({"alg": "SHA-256", "content": checksum} for checksum in checksums)
        ]
        yield {**_component("pypi", pin["name"].lower(), pin["version"]), "externalReferences": files}


def debian_packages(status: str) -> Iterator[dict[str, Any]]:
    """Yield the components of the status file of dpkg: the installed packages."""
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Architecture|Status): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            yield _component("deb/debian", fields["Package"], fields["Version"], f"?arch={fields['Architecture']}")


def _component(kind: str, name: str, version: str, qualifiers: str = "") -> dict[str, Any]:
    url = f"pkg:{kind}/{quote(name)}@{quote(version)}{qualifiers}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def main() -> None:
    """Write the bill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirements", type=Path, help="the pinned Python packages")
    parser.add_argument("--root", type=Path, help="root of the built image, for Debian's packages")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(bill_of(given.requirements, given.root), indent=1) + "\n")


if __name__ == "__main__":
    main()
