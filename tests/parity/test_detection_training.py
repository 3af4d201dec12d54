"""The detection example learns."""

from __future__ import annotations

import pytest

pytest.importorskip("cv2")
torch = pytest.importorskip("torch")

from examples.detection_training import Detector, evaluate, train  # noqa: E402

pytestmark = pytest.mark.peers


def test_a_few_steps_find_objects():
    torch.manual_seed(1)
    model = Detector()

    losses = train(model, 20, workers=0)

    assert len(losses) == 20
    assert sum(losses[-5:]) / 5 < losses[0] / 2
    right, error = evaluate(model, 1, workers=0)
    assert right > 0.2
    assert error < 1
