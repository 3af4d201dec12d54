"""``dali-like check`` of PyTorch's datasets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dali_like import cli

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

PROGRAM = """
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

class Parts(IterableDataset):
    def __len__(self):
        return 20

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return map(torch.tensor, range(first, 20, step))

parts = DataLoader(Parts(), batch_size=4)
values = torch.rand(30, 3)
values[7, 1] = float("nan")
rows = TensorDataset(values, torch.arange(30))
"""


@pytest.mark.parametrize(("name", "samples", "found"), [("parts", 20, {}), ("rows", 30, {"not finite": [7]})])
@pytest.mark.parametrize("workers", ["0", "2"])
def test_datasets_of_pytorch_are_checked(
    name: str, samples: int, found: dict[str, list[int]], workers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "torch_program", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))

    cli.main(["check", f"torch_program:{name}", "--workers", workers, "--json-file", "found.json"])

    document = json.loads(Path("found.json").read_text())
    assert document["samples"] == samples
    kinds = {each["kind"]: [one["index"] for one in each["examples"]] for each in document["problems"]}
    kinds.pop("slow", None)
    assert kinds == found
    sys.modules.pop("torch_program", None)
