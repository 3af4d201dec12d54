"""The benchmark of ordinary loaders beside PyTorch's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks import losses  # noqa: E402


@pytest.mark.parametrize("name", ["texts", "TensorDataset", "stream with a state", "dicts of 50 tensors"])
def test_a_case_yields_equal_batches_and_a_time_for_each_library(name: str) -> None:
    their_s, our_s = losses.measured(losses.CASES[name](), num_workers=0, repeats=1)

    assert their_s > 0
    assert our_s > 0


def test_batches_that_differ_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(losses.DataLoader):  # type: ignore[misc]
        def __iter__(self) -> object:
            return iter(["wrong"])

    monkeypatch.setattr(losses, "LIBRARIES", (torch.utils.data.DataLoader, Wrong))

    with pytest.raises(AssertionError, match="the batches differ"):
        losses.measured(losses.CASES["16 numbers"](), num_workers=0, repeats=1)


def test_parts_of_batches_are_compared() -> None:
    batch = {"x": torch.zeros(2), "names": ["a", "b"]}

    assert losses.are_equal(batch, {"x": torch.zeros(2), "names": ["a", "b"]})
    assert not losses.are_equal(batch, {"x": torch.ones(2), "names": ["a", "b"]})
    assert not losses.are_equal(batch, {"x": torch.zeros(2).double(), "names": ["a", "b"]})
    assert not losses.are_equal(batch, {"x": torch.zeros(2), "names": ["a", "c"]})
