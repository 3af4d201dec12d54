"""The programs in the documentation that need PyTorch run."""

from __future__ import annotations

import pytest
from documents import FROM_PYTORCH, run_program_of

pytest.importorskip("torch")

pytestmark = pytest.mark.peers


def test_programs_run() -> None:
    run_program_of(FROM_PYTORCH, "python torch")
