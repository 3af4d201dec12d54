"""States in files, written by this version and earlier ones: programs resume with the batches that followed then."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from dali_like.errors import CheckpointError
from dali_like.sources.state_format import DATASET, LOADER, PIPELINE, VERSION, read_state
from tests.states.programs import FOLDERS, PROGRAMS, file_of, names_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*are dropped:UserWarning"),
    # The programs of these states yield all items in each worker, as programs did when their states were written.
    pytest.mark.filterwarnings("ignore:.*the first batches of workers 0 and 1 have the same content:UserWarning"),
]


PAIRS = [(name, version) for version in FOLDERS for name in names_of(version)]


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_program_resumes_from_each_saved_state_with_the_batches_that_followed(name: str, version: str) -> None:
    for number, kept in enumerate(json.loads(file_of(name, version).read_text())):
        with PROGRAMS[name].opened(kept["state"]) as running:
            following = [running.step() for _ in kept["following"]]

        assert following == kept["following"], f"state {number}"


@pytest.mark.parametrize("version", FOLDERS)
def test_each_file_of_states_belongs_to_a_program(version: str) -> None:
    assert {file.name for file in FOLDERS[version].iterdir()} == {file_of(name, version).name for name in names_of(version)}


@pytest.mark.parametrize("version", FOLDERS)
def test_all_states_have_one_version_since_version_3(version: str) -> None:
    found = {each for name in names_of(version) for each in versions(json.loads(file_of(name, version).read_text()))}

    assert found == ({VERSION} if version == f"version {VERSION}" else {1, 2})


def versions(value: Any) -> Iterator[int]:
    """Yield the versions of all states in a value."""
    if isinstance(value, dict) and "version" in value:
        yield value["version"]
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from versions(part)


FORMS = {"description": DATASET, "iterable": LOADER, "sources": PIPELINE}
JUNK = (None, True, -1, 0.5, 10**30, "a", [], {}, [0, None, 1], {"state": 1})


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_a_state_with_a_wrong_value_is_read_or_refused(name: str, version: str) -> None:
    kept = json.loads(file_of(name, version).read_text())[-1]["state"]
    for state in kept if isinstance(kept, list) else [kept]:
        form = next(form for mark, form in FORMS.items() if mark in state)
        for *before, last in places(state):
            for junk in JUNK:
                damaged = json.loads(json.dumps(state))
                part = damaged
                for key in before:
                    part = part[key]
                part[last] = junk
                with contextlib.suppress(CheckpointError):
                    read_state(damaged, form, "the state", CheckpointError)
        assert read_state(state, form, "the state", CheckpointError)["version"] == VERSION


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the ways to all values of a state, but to few of a list."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part[:4]) if isinstance(part, list) else ():
        yield (*path, key)
        yield from places(value, (*path, key))
