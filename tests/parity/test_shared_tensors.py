"""Tensors in shared memory inside of sources and datasets: workers share them with the program, as with PyTorch."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

# The rest needs PyTorch.
from dali_like import Pipeline  # noqa: E402
from dali_like.data.fingerprints import fingerprint_of  # noqa: E402
from dali_like.engine.backends.inherited import inheriting  # noqa: E402
from dali_like.plugin.pytorch import DataLoader  # noqa: E402
from dali_like.sources.travel.callback_pickler import dumps  # noqa: E402

pytestmark = pytest.mark.peers

MakePipeline = Callable[..., Pipeline]


class Named(torch.Tensor):  # type: ignore[misc]
    """A subclass, which has its own way of being pickled."""


#: Sent objects, and the tensor in each that is written to.
KINDS: dict[str, Callable[[], tuple[Any, Callable[[Any], Any]]]] = {
    "tensor": lambda: (torch.zeros(4).share_memory_(), lambda sent: sent),
    "view": lambda: (torch.zeros(8).share_memory_()[1::2], lambda sent: sent),
    "gradient": lambda: (torch.zeros(4, requires_grad=True).share_memory_(), lambda sent: sent.detach()),
    "bfloat16": lambda: (torch.zeros(4, dtype=torch.bfloat16).share_memory_(), lambda sent: sent),
    "module": lambda: (torch.nn.Linear(4, 1).share_memory(), lambda sent: sent.weight.data[0]),
    "buffer": lambda: (torch.nn.BatchNorm1d(4).share_memory(), lambda sent: sent.running_mean),
    "subclass": lambda: (torch.zeros(4).share_memory_().as_subclass(Named), lambda sent: sent),
    "attribute": lambda: (with_attribute(torch.zeros(4).share_memory_()), lambda sent: sent),
    "storage": lambda: (torch.zeros(4).share_memory_().untyped_storage(), lambda sent: torch.tensor([]).set_(sent)),
}


def with_attribute(tensor: Any) -> Any:
    tensor.label = "seven"
    return tensor


def sent(value: Any) -> Any:
    """A value as a spawned worker gets it."""
    pickled = dumps({"source": value}, "the source")
    with inheriting(pickled.descriptors):
        (there,) = pickle.loads(pickled.data, buffers=[bytearray(buffer.raw()) for buffer in pickled.buffers])
    return there


@pytest.mark.parametrize("kind", KINDS)
def test_shared_memory_stays_shared_in_both_directions(kind: str) -> None:
    here, tensor_of = KINDS[kind]()
    there = sent(here)

    tensor_of(here)[1] = 5
    tensor_of(there)[2] = 7

    assert type(there) is type(here)
    assert tensor_of(here)[1:3].tolist() == tensor_of(there)[1:3].tolist() == [5, 7]


def test_tensors_of_one_storage_stay_so() -> None:
    whole = torch.zeros(4).share_memory_()
    there = sent([whole, whole[1:]])

    assert there[0].untyped_storage().data_ptr() == there[1].untyped_storage().data_ptr() != whole.data_ptr()


def test_memory_with_a_name_stays_shared(tmp_path: Path) -> None:
    """In a process of its own: PyTorch starts another process, which keeps such memory and ends with it."""
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "torch.multiprocessing.set_sharing_strategy('file_system')\n"
        "from tests.parity.test_shared_tensors import fingerprint_of, sent\n"
        "here = torch.zeros(4).share_memory_()\n"
        "before, there = fingerprint_of(here), [sent([here, here[1:]]) for _ in range(3)]\n"
        "here[1] = 5\n"
        "there[0][1][1] = 7\n"
        "assert fingerprint_of(here) == before\n"
        "print([tensor.tolist() for tensor in (here, there[2][0], sent(here))])\n"
    )
    result = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (result.stdout, result.stderr) == (f"{[[0.0, 5.0, 7.0, 0.0]] * 3}\n", "")


def of_file(folder: Path, shared: bool) -> Any:
    (folder / "values").write_bytes(bytes(16))
    return torch.from_file(str(folder / "values"), shared=shared, size=4)


@pytest.mark.parametrize("shared", [False, True])
def test_tensors_of_files_are_copied(shared: bool, tmp_path: Path) -> None:
    here = of_file(tmp_path, shared)
    there = sent(here)

    here[1] = 5

    assert there.tolist() == [0, 0, 0, 0]


def test_other_tensors_and_those_for_other_machines_are_copied() -> None:
    plain, shared, empty = torch.zeros(4), torch.zeros(4).share_memory_(), torch.zeros(0).share_memory_()
    elsewhere = dumps({"source": shared}, "the source", inherits=False)
    there = [*sent([plain, empty]), *pickle.loads(elsewhere.data)]

    plain[1] = shared[1] = 5

    assert [tensor.tolist() for tensor in there] == [[0, 0, 0, 0], [], [0, 0, 0, 0]]
    assert not elsewhere.descriptors


def test_comparisons_of_kept_datasets_look_at_the_memory_and_not_at_its_content() -> None:
    kept = [torch.zeros(4).share_memory_()]
    before = fingerprint_of(kept)
    kept[0][1] = 5

    assert fingerprint_of(kept) == before
    kept[0] = kept[0].clone().share_memory_()
    assert fingerprint_of(kept) != before


class Permuted(torch.utils.data.Dataset):  # type: ignore[misc]
    """Reads through an order that the program changes, and counts its reads."""

    def __init__(self) -> None:
        self.order = torch.arange(20_000).share_memory_()
        self.reads = torch.zeros(4, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        self.reads[index] += 1
        return int(self.order[index])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_kept_workers_and_program_see_each_others_writes(method: str) -> None:
    dataset = Permuted()
    loader = DataLoader(dataset, 4, num_workers=1, multiprocessing_context=method, persistent_workers=True)
    epochs, workers = [], set()
    for epoch in range(3):
        dataset.order[:4] = torch.tensor([3, 2, 1, 0]) + epoch
        epochs += [batch.tolist() for batch in loader]
        workers |= {worker.pid for worker in loader._iterator._workers}  # type: ignore[union-attr]

    assert epochs == [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2]]
    assert dataset.reads.tolist() == [3, 3, 3, 3]
    assert len(workers) == 1


class Counting:
    """Holds tensors, and returns the number of descriptors of the process."""

    def __init__(self, count: int) -> None:
        self.tensors = [torch.full((2,), i).share_memory_() for i in range(count)]

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return len(os.listdir("/proc/self/fd")), self.tensors[index]


def test_a_tensor_in_shared_memory_takes_one_descriptor_in_each_process() -> None:
    dataset, limit = Counting(600), 600 + 100  # more than one message to the forkserver
    batches = iter(DataLoader(dataset, batch_size=600, num_workers=1, multiprocessing_context="spawn"))

    in_worker, tensors = next(batches)

    assert tensors[:, 0].tolist() == list(range(600))
    assert int(in_worker.max()) < limit
    assert dataset[0][0] < limit


def test_sources_of_pipelines_share_as_well(make_pipeline: MakePipeline) -> None:
    counter = torch.zeros(4, dtype=torch.int64).share_memory_()

    def source(info: Any) -> Any:
        counter[info.idx_in_epoch] += 1
        return np.int64(0)

    pipe = make_pipeline(source, "spawn", source_options={"size": 4, "last_batch_policy": "partial"})
    pipe.run()
    pipe.close()

    assert counter.min() >= 1  # workers may be in the second epoch
