"""Releases: the checks before them, the metadata of the package, the changelog, and bills of materials."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.project.try_release import BARE, OF_EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "pyproject.toml"
DOCKER = ROOT / "docker"
REPOSITORY = "https://forge.example/dali/dali_like"


def test_each_extra_is_in_the_table_of_the_documentation() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    rows = [line for line in (PROJECT.parent / "docs/install.md").read_text().splitlines() if line.startswith("| `")]

    listed = [name for row in rows for name in re.findall("`([a-z0-9-]+)`", row.split("|")[1])]

    assert sorted(listed) == sorted(extras)


def test_each_extra_is_tried_alone() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]

    assert set(OF_EXTRAS) == set(extras)


def test_programs_can_be_compiled() -> None:
    for program in (BARE, *OF_EXTRAS.values()):
        compile(program, "program", "exec")


def test_recipe_of_conda_and_citation_have_the_version_description_and_requirements_of_the_package() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    recipe = (ROOT / "conda/recipe.yaml").read_text()
    host, run = (re.search(rf"^  {part}:\n((?:    .*\n)+)", recipe, re.MULTILINE) for part in ("host", "run"))

    assert f'version: "{project["version"]}"' in recipe
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert project["description"] in recipe
    for part in (host, run):
        assert part is not None
        listed = [line.strip().removeprefix("- ").replace(" ", "") for line in part[1].splitlines()]
        assert {*project["dependencies"], f"python{project['requires-python']}"} <= {*listed}
    ((name, entry),) = project["scripts"].items()
    assert f"- {name} = {entry}" in recipe


# Metadata


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that completes the metadata. Hatchling is only there while the package is built."""
    interface = "hatchling.builders.hooks.plugin.interface"
    monkeypatch.setitem(sys.modules, interface, SimpleNamespace(BuildHookInterface=list))
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", SimpleNamespace(MetadataHookInterface=object))
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def relative_links(text: str) -> list[str]:
    return re.findall(r"\]\((?![a-z]+:|#)([^)]*)\)", text)


def test_without_a_repository_there_are_no_urls_and_no_links_to_files(hook: ModuleType) -> None:
    made = hook.published("", "", ROOT)

    assert set(made) == {"readme"}
    assert relative_links(made["readme"]["text"]) == []


def test_with_a_repository_links_are_absolute(hook: ModuleType) -> None:
    made = hook.published(REPOSITORY, "team@forge.example", ROOT)

    assert relative_links(made["readme"]["text"]) == []
    assert f"({REPOSITORY}/blob/main/docs/install.md)" in made["readme"]["text"]
    assert made["urls"]["Changelog"] == f"{REPOSITORY}/blob/main/CHANGELOG.md"
    assert made["maintainers"][0]["email"] == "team@forge.example"


def test_links_that_need_no_repository_stay(hook: ModuleType) -> None:
    text = "[a](https://a.example), [b](#b), [c\nd](docs/c.md#d), ![e](docs/e.png)"

    assert hook.readme(text, "") == "[a](https://a.example), [b](#b), c\nd, "
    links = f"[c\nd]({REPOSITORY}/blob/main/docs/c.md#d), ![e]({REPOSITORY}/raw/main/docs/e.png)"
    assert hook.readme(text, REPOSITORY) == f"[a](https://a.example), [b](#b), {links}"


def test_one_setting_has_the_repository_and_the_contact() -> None:
    hook = tomllib.loads(PROJECT.read_text())["tool"]["hatch"]["metadata"]["hooks"]["custom"]

    assert set(hook) == {"repository", "contact"}
    assert (ROOT / "docs" / "conf.py").read_text().count('"repository"') == 1


def test_the_changelog_has_the_version() -> None:
    version = tomllib.loads(PROJECT.read_text())["project"]["version"]
    [first, *_] = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert re.fullmatch(rf"{re.escape(version)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", first)


# Bills of materials


def bill(name: str, tmp_path: Path, *arguments: Any) -> dict[str, Any]:
    out = tmp_path / "sbom" / "image.cdx.json"
    command = [sys.executable, DOCKER / "sbom.py", DOCKER / name, *arguments, "--out", out]
    subprocess.run(command, check=True)
    return dict(json.loads(out.read_text()))


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-demo.txt", "requirements-cuda.txt"])
def test_a_bill_lists_all_pins_with_their_checksums(name: str, tmp_path: Path) -> None:
    made, pins = bill(name, tmp_path), (DOCKER / name).read_text()

    listed = [f"{component['name']}=={component['version']}" for component in made["components"]]
    assert listed == [pin.lower() for pin in re.findall(r"^[\w.-]+==[^\s;\\]+", pins, re.MULTILINE)]
    checksums = {
        each["content"]
        for component in made["components"]
        for file in component["externalReferences"]
        for each in file["hashes"]
    }
    assert checksums == set(re.findall(r"sha256:([0-9a-f]{64})", pins))
    assert made["dependencies"][0]["dependsOn"] == [component["purl"] for component in made["components"]]


STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12
Description: GNU C Library

Package: removed
Status: deinstall ok config-files
Architecture: all
Version: 1
"""


def test_a_bill_of_an_image_lists_the_packages_of_debian(tmp_path: Path) -> None:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)

    made = bill("requirements.txt", tmp_path, "--root", tmp_path)

    assert [component["purl"] for component in made["components"] if component["purl"].startswith("pkg:deb/")] == [
        "pkg:deb/debian/libc6@2.41-12?arch=amd64"
    ]


# Workflows

WORKFLOWS = ROOT / ".github" / "workflows"


def test_the_matrix_has_all_supported_versions_on_both_architectures() -> None:
    text = (WORKFLOWS / "test.yml").read_text()
    classifiers = tomllib.loads(PROJECT.read_text())["project"]["classifiers"]
    supported = [
        match[1] for line in classifiers if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    ]

    assert re.search(r"python: \[(.*)\]", text)[1] == ", ".join(f'"{each}"' for each in [*supported, "3.14t"])  # type: ignore[index]
    assert re.search(r"os: \[(.*)\]", text)[1] == "ubuntu-24.04, ubuntu-24.04-arm"  # type: ignore[index]


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.name)
def test_workflows_run_targets_that_exist(path: Path) -> None:
    targets = re.findall(r"run: make ([\w-]+)", path.read_text())

    assert targets
    assert set(targets) <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_release_checks_its_tag_against_the_version() -> None:
    [command] = re.findall(r"run: (test .*)", (WORKFLOWS / "release.yml").read_text())
    version = tomllib.loads(PROJECT.read_text())["project"]["version"]

    for tag, status in ((f"v{version}", 0), ("v9.9.9", 1)):
        environment = {"GITHUB_REF_NAME": tag, "PATH": os.environ["PATH"]}
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, check=False)
        assert done.returncode == status
