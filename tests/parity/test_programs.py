"""Many programs with sources of every kind, run by the real DALI 1.53 and by dali_like.

Any two circumstances of `programs.COLUMNS` meet in some program. With ``PARITY=3`` in the environment any three do, which
takes some minutes; with ``PARITY=full`` all of `programs.FULL_COLUMNS`, which takes hours: ``make parity-full``.
"""

from __future__ import annotations

import dataclasses

import pytest

pytest.importorskip("nvidia.dali")

from tests.parity.conftest import OURS, Library
from tests.parity.kinds import FAULTY
from tests.parity.programs import Program, differences, faulty_programs, programs, reference, run

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("program", programs(), ids=str)
def test_programs_do_the_same(dali: Library, program: Program) -> None:
    theirs = reference(program)

    found = differences(run(OURS, program), run(dali, theirs), calls=program.has_log and theirs.has_log)

    if found:
        pytest.fail("\n".join([f"{len(found)} differences:", *found[:4], repr(program)]), pytrace=False)


@pytest.mark.parametrize("program", faulty_programs(), ids=str)
def test_faulty_programs_raise_the_same(dali: Library, program: Program) -> None:
    """Only right batches are delivered; dali_like delivers all of them, and DALI none after an error."""
    right = [each.outcome for each in run(dali, dataclasses.replace(reference(program), fault="none"))]
    ours = [each.outcome for each in run(OURS, program)]
    theirs = [each.outcome for each in run(dali, reference(program))]

    error = next((outcome for outcome in theirs if isinstance(outcome, type)), None)
    assert error is not None
    assert theirs[: theirs.index(error)] == right[: theirs.index(error)]
    assert ours[:FAULTY] == right[:FAULTY]
    assert isinstance(ours[FAULTY], type)
    assert issubclass(ours[FAULTY], error)
    if not program.kind.is_iterable:
        assert ours[FAULTY + 1 :] == right[FAULTY + 1 :]
