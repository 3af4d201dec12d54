"""Containers: the promises of docs/containers.md, and the versions that the files in docker/ pin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "containers.md").read_text("utf-8")
DOCKER = ROOT / "docker"
DOCKERFILES = [DOCKER / "Dockerfile", DOCKER / "Dockerfile.cuda"]
PINS = sorted(DOCKER.glob("requirements*.txt"))
SMALL = "mount -t tmpfs -o size=64k none /dev/shm"


def block(beginning: str) -> str:
    """The first block of the document that begins so."""
    return next(block for block in re.findall(r"```\w*\n(.*?)```", DOCUMENT, re.DOTALL) if block.startswith(beginning))


def test_the_size_of_dev_shm_does_not_matter(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--mount", "sh", "-c", SMALL], capture_output=True, check=False).returncode:
        pytest.skip("this system allows no mounts, not even to root")
    (tmp_path / "program.py").write_text(block("import os"))
    command, _, promised = block("$ unshare").partition("\n")

    result = subprocess.run(
        ["/bin/sh", "-c", command.removeprefix("$ ").replace("python ", f"{sys.executable} ")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert result.stderr == ""
    assert result.stdout == promised


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_images_do_not_run_as_root(path: Path) -> None:
    last_stage = path.read_text().rpartition("\nFROM ")[2]

    assert re.findall(r"^USER (.*)$", last_stage, re.MULTILINE) == ["1000"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_everything_in_images_is_pinned(path: Path) -> None:
    text = path.read_text().replace("\\\n", "")

    packages = re.findall(r"apt-get install --yes --no-install-recommends (\S+)", text)
    installs = [line for line in re.split(r"&&|\n", text) if re.search(r"pip\b.* install ", line)]

    assert re.search(r"^ARG DEBIAN=trixie-\d{8}-slim$", text, re.MULTILINE)
    assert packages
    assert all("=" in package for package in packages)
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)


@pytest.mark.parametrize("path", PINS, ids=lambda path: path.name)
def test_pins_have_checksums(path: Path) -> None:
    entries = [entry for entry in path.read_text().replace("\\\n", "").splitlines() if not entry.lstrip().startswith("#")]

    assert entries
    assert all(re.match(r"[\w.-]+==\S+ .*--hash=sha256:", entry) for entry in entries)


@pytest.mark.parametrize(
    ("path", "extras"),
    [
        ("requirements.txt", ["images"]),
        ("requirements-cuda.txt", ["images", "cuda13"]),
        ("requirements-demo.txt", ["images"]),
    ],
)
def test_pins_are_those_of_the_requirements(path: str, extras: list[str]) -> None:
    """The message for a new requirement: renew the lists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [requirement for extra in extras for requirement in project["optional-dependencies"][extra]]
    needed = {re.split(r"[\[><=]", requirement)[0] for requirement in [*project["dependencies"], *optional]}

    pinned = set(re.findall(r"^([\w.-]+)==", (DOCKER / path).read_text(), re.MULTILINE))

    assert needed <= pinned
