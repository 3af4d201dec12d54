"""States that earlier versions have written, in files: programs resume from them with the batches that followed then."""

from __future__ import annotations

import json

import pytest

from tests.states.programs import FOLDER, PROGRAMS, file_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*are dropped:UserWarning"),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_resumes_from_each_saved_state_with_the_batches_that_followed(name: str) -> None:
    for number, kept in enumerate(json.loads(file_of(name).read_text())):
        with PROGRAMS[name].opened(kept["state"]) as running:
            following = [running.step() for _ in kept["following"]]

        assert following == kept["following"], f"state {number}"


def test_each_file_of_states_belongs_to_a_program() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {file_of(name).name for name in PROGRAMS}
