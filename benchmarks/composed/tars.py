"""Tar files of small images beside Energon: ``python -m benchmarks.composed.tars SYSTEM [--batches N] [--folder PATH]``.

Four datasets of two tar files each are shuffled, mixed 4 : 3 : 2 : 1, decoded and batched by two workers. Prints a line: the
CPU time per sample of all processes, samples/s, and the time to the first batch. Energon (`megatron-energon`, which is in no
group of this project) shuffles slices of 100 samples through a buffer of 1,000. dali_like shuffles whole datasets.
"""

from __future__ import annotations

import argparse
import importlib
import io
import itertools
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.workloads import WORKERS

__all__ = ["SYSTEMS", "main", "write_tars"]

SYSTEMS = ("dali_like", "energon")
WEIGHTS = (4, 3, 2, 1)
BATCH_SIZE = 256
SIDE = 28
#: Images that repeat after a prime number of them.
PERIOD = 251


def write_tars(folder: Path, count: int) -> None:
    """Write two files of so many images for each dataset, unless they exist."""
    for place in range(len(WEIGHTS)):
        dataset = folder / f"d{place}"
        dataset.mkdir(parents=True, exist_ok=True)
        for part in range(2):
            if (path := dataset / f"{part}.tar").exists():
                continue
            with tarfile.open(path, "w") as tar:
                for number in range(part * count, (part + 1) * count):
                    _add(tar, f"{number:06}.img", bytes([number % PERIOD]) * SIDE**2)
                    _add(tar, f"{number:06}.num", np.int64(number).tobytes())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def decoded(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the inverted image of a sample of a tar file, and its number."""
    image = np.frombuffer(sample["img"], np.uint8).reshape(SIDE, SIDE) ^ 255
    return {"image": image, "number": np.frombuffer(sample["num"], np.int64)[0]}


def of_dali_like(folder: Path) -> Iterator[Any]:
    """Return the batches of dali_like."""
    data = importlib.import_module("dali_like.data")
    tars = [data.ComposedDataset.from_tar(str(folder / f"d{place}" / "*.tar")) for place in range(len(WEIGHTS))]
    mixture = data.ComposedDataset.mix([each.shuffle() for each in tars], WEIGHTS, stop="never").map(decoded)
    return iter(data.DataLoader(mixture, batch_size=BATCH_SIZE, num_workers=WORKERS))


def of_energon(folder: Path) -> Iterator[Any]:
    """Return the batches of Energon, whose preparation of the files is left out of the times."""
    energon: Any = importlib.import_module("megatron.energon")
    torch: Any = importlib.import_module("torch")

    @energon.edataclass
    class Image(energon.Sample):  # type: ignore[misc]
        image: Any
        number: Any

    @energon.stateless  # type: ignore[untyped-decorator]
    def cook(sample: dict[str, Any]) -> Any:
        return Image(**energon.basic_sample_keys(sample), **decoded(sample))

    class Encoder(energon.DefaultTaskEncoder):  # type: ignore[misc]
        cookers = (energon.Cooker(cook),)

        def batch(self, samples: list[Any]) -> Any:
            images = torch.from_numpy(np.stack([sample.image for sample in samples]))
            return {"image": images, "number": torch.tensor([int(sample.number) for sample in samples])}

    dataset = energon.get_train_dataset(
        folder / "blend.yaml",
        batch_size=BATCH_SIZE,
        shuffle_buffer_size=1_000,
        max_samples_per_sequence=100,
        worker_config=energon.WorkerConfig(rank=0, world_size=1, num_workers=WORKERS),
        task_encoder=Encoder(),
    )
    return iter(energon.get_loader(dataset))


def prepare_for_energon(folder: Path) -> None:
    """Let Energon index the files, and describe the blend."""
    lines = ["__module__: megatron.energon", "__class__: MetadatasetV2", "splits:", "  train:", "    blend:"]
    for place, weight in enumerate(WEIGHTS):
        lines += [f"      - weight: {weight}", f"        path: ./d{place}"]
        if not (folder / f"d{place}" / ".nv-meta" / "dataset.yaml").exists():
            code = "import sys; from megatron.energon.cli.main import main; sys.exit(main())"
            options = ["--non-interactive", "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset"]
            command = [sys.executable, "-c", code, "prepare", str(folder / f"d{place}"), *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (folder / "blend.yaml").write_text("\n".join(lines) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Measure one system, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.composed.tars", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--images", type=int, default=4_000, help="images of a file")
    parser.add_argument("--folder", type=Path, help="of the files, which are kept; default: a temporary one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        write_tars(folder, options.images)
        if options.system == "energon":
            prepare_for_energon(folder)
        began = time.perf_counter()
        batches = of_dali_like(folder) if options.system == "dali_like" else of_energon(folder)
        next(batches)
        first_s = time.perf_counter() - began
        for _ in itertools.islice(batches, 10):
            pass
        pids = {os.getpid(), *processes.descendants(os.getpid())}
        cpu_s, began = -processes.cpu_s(pids), time.perf_counter()
        for batch in itertools.islice(batches, options.batches):
            images, numbers = np.asarray(batch["image"]), np.asarray(batch["number"])
        seconds = time.perf_counter() - began
        cpu_s += processes.cpu_s(pids)
        if not (images == (numbers % PERIOD ^ 255)[:, None, None]).all():
            raise ValueError("the last batch is wrong")
        samples = options.batches * BATCH_SIZE
        print(
            f"{options.system}: {1e6 * cpu_s / samples:.1f} us of CPU per sample, {samples / seconds:,.0f} samples/s, first "
            f"batch after {first_s:.2f} s"
        )
        del batches
    return 0


if __name__ == "__main__":
    sys.exit(main())
