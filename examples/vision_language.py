"""Data of a vision-language model: images and texts from tar shards, in batches of a token budget, resumed on other ranks.

    python -m examples.vision_language [--steps 4] [--folder build/vision-language]

The program writes parts of the demo's photographs with captions as tar shards, as WebDataset does. An image becomes patches
of 16 x 16 pixels, one token each, and a caption its bytes. A batch has as many pairs as fit into the budget. As in
`examples.pretraining`, each part of the run has another number of ranks and workers, and the table compares each step with a
plain iteration. The program requires ``pip install '.[images]' scikit-image scikit-learn``, and neither a GPU nor PyTorch.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from dali_like.data import ComposedDataset, jagged_collate
from examples.demo_data import make_crops, packaged_photographs
from examples.elastic_run import Element, run_in_parts

NUM_TAR_FILES = 3
PATCH = 16
#: Patches and bytes of a batch.
TOKEN_BUDGET = 2_048
#: All numbers of ranks divide it.
SHARDS = 12


def write_shards(folder: Path, per_photograph: int) -> list[Path]:
    """Write the tar files, and return their paths. Existing files are kept."""
    files = make_crops(folder / "photographs", packaged_photographs(), per_photograph)
    paths = [folder / f"{per_photograph}-{number}.tar" for number in range(NUM_TAR_FILES)]
    for number, path in enumerate(paths):
        if path.exists():
            continue
        with tarfile.open(path, "w") as shard:
            for i in range(number, len(files.files), NUM_TAR_FILES):
                caption = f"a part of the photograph {files.names[files.labels[i]]}"
                for suffix, content in (("jpg", files.files[i].read_bytes()), ("txt", caption.encode())):
                    member = tarfile.TarInfo(f"{i:05}.{suffix}")
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))
    return paths


def decode(sample: dict[str, bytes]) -> dict[str, NDArray[Any]]:
    """Return the patches of an image, and the bytes of its caption."""
    image = simplejpeg.decode_jpeg(sample["jpg"])
    rows, columns = image.shape[0] // PATCH, image.shape[1] // PATCH
    patches = image[: rows * PATCH, : columns * PATCH].reshape(rows, PATCH, columns, PATCH, 3).swapaxes(1, 2)
    return {
        "patches": patches.reshape(rows * columns, PATCH * PATCH * 3),
        "text": np.frombuffer(sample["txt"], np.uint8),
    }


def num_tokens(pair: dict[str, NDArray[Any]]) -> int:
    """Return the cost of an image with its text."""
    return len(pair["patches"]) + len(pair["text"])


def describe(paths: Sequence[Path]) -> ComposedDataset:
    """Describe the stream: batches of pairs, endless."""
    pairs = ComposedDataset.from_tar(paths).shuffle().repeat().map(decode)
    batches = pairs.batch_by_budget(TOKEN_BUDGET, num_tokens, block=32)
    return batches.map(jagged_collate).with_options(seed=1, shards=SHARDS)


def summary(batches: Sequence[Element]) -> str:
    """Return for each batch the numbers of pairs and tokens."""
    numbers = [(len(batch["text"].offsets) - 1, sum(len(batch[name].values) for name in batch)) for batch in batches]
    return "  ".join(f"{pairs:2} pairs, {tokens:4} tokens" for pairs, tokens in numbers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; return 1 if a resumed run differs from the plain iteration."""
    parser = argparse.ArgumentParser(prog="python -m examples.vision_language", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4, help="steps of each part (%(default)s)")
    parser.add_argument("--per-photograph", type=int, default=16, help="parts of each photograph (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/vision-language"), help="for the files (%(default)s)")
    options = parser.parse_args(arguments)
    dataset = describe(write_shards(options.folder, options.per_photograph))
    return 0 if run_in_parts(dataset, None, options.steps, "batches", summary) else 1


if __name__ == "__main__":
    sys.exit(main())
