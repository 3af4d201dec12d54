"""The benchmark of ordinary loaders beside PyTorch's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks import losses  # noqa: E402


@pytest.mark.parametrize("name", list(losses.CASES))
def test_a_case_yields_equal_batches_and_a_time_for_each_library(name: str) -> None:
    case = losses.CASES[name]()
    if name.startswith("holds"):
        case = case._replace(dataset=range(64))  # the dataset matters to the time only

    for cost in losses.measured(case, num_workers=0, repeats=1):
        assert cost.seconds > 0
        assert cost.worker_bytes == 0


def test_workers_have_a_cpu_time_and_memory() -> None:
    for cost in losses.measured(losses.CASES["texts"](), num_workers=1, repeats=2)[:2]:
        assert cost.cpu_s > 0
        assert cost.worker_bytes > 1 << 20


@pytest.mark.parametrize("name", ["texts", "stream with a state", "single numbers"])
def test_a_bare_loop_yields_the_batches_of_the_loaders(name: str) -> None:
    case = losses.CASES[name]()
    loader = torch.utils.data.DataLoader(case.dataset, **case.options)

    assert losses.are_equal(list(loader), list(losses.BareLoop(loader)))


def test_the_row_of_a_failed_library_has_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(losses, "measured", fail)

    assert (
        losses.row_of("16 numbers", "spawn", 8, 1) == "| 16 numbers | spawn | 8 | OSError: [Errno 24] Too many open files |"
    )


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
