"""``tools.dependency_versions`` lists the oldest and the newest allowed version of each dependency."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from tools.dependency_versions import APART, LINTERS, PROJECT, newest, oldest, requirements, requirements_apart


@pytest.mark.parametrize(
    ("requirement", "of_oldest", "of_newest"),
    [
        ("numpy>=1.26", "numpy==1.26", "numpy"),
        ("fsspec[http]>=2024.12", "fsspec[http]==2024.12", "fsspec[http]"),
        ("both>=2, <4", "both==2", "both"),
        ("marked>=1; python_version < '3.14'", "marked==1; python_version < '3.14'", "marked; python_version < '3.14'"),
        ("toolkit[a,b]==12.*", "toolkit[a,b]==12.*", "toolkit[a,b]==12.*"),
        ("free", "free", "free"),
    ],
)
def test_bounds_of_a_requirement(requirement: str, of_oldest: str, of_newest: str) -> None:
    assert oldest(requirement) == of_oldest
    assert newest(requirement) == of_newest


def test_a_requirement_of_another_form_is_an_error() -> None:
    with pytest.raises(ValueError, match="is not a requirement that this program understands"):
        oldest("name @ file:///folder")


@pytest.fixture(scope="module")
def project() -> Any:
    return tomllib.loads(PROJECT.read_text("utf-8"))["project"]


def name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_each_dependency_of_core_and_extras_is_listed_once(which: str, project: Any) -> None:
    extras = project["optional-dependencies"]
    dependencies = project["dependencies"] + [r for extra in extras if extra not in APART for r in extras[extra]]

    listed = [name(requirement) for requirement in requirements(which)]

    assert {name(requirement) for requirement in dependencies} <= set(listed)
    assert len(set(listed)) == len(listed)
    assert "pytest" in listed
    assert not set(LINTERS) & set(listed)


def test_each_dependency_of_the_package_has_a_lower_bound(project: Any) -> None:
    extras = project["optional-dependencies"]
    for extra in ("", *extras):
        for requirement in requirements_apart("oldest", extra):
            assert "==" in requirement, "without a bound, the oldest version is unknown"


def test_test_dependencies_have_the_bounds_of_the_package(project: Any) -> None:
    bounds = {name(r): r for requirements in project["optional-dependencies"].values() for r in requirements}
    groups = tomllib.loads(PROJECT.read_text("utf-8"))["dependency-groups"]
    for group in ("test", "stores", "notebooks", "demo"):
        for requirement in groups[group]:
            if isinstance(requirement, str) and (bound := bounds.get(name(requirement))):
                assert requirement == bound
