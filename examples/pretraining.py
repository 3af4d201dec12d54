"""Data of a language model: 35 text sources, mixed by weight, tokenized, packed, and resumed on other ranks.

    python -m examples.pretraining [--steps 6] [--folder build/pretraining]

The program writes its sources as JSON Lines. Then it reads the stream in three parts, each with another number of ranks and
workers, as a job does that loses and gets machines. The table compares each step with a plain iteration in one process. The
program needs neither a GPU nor PyTorch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.data import ComposedDataset
from examples.elastic_run import Element, run_in_parts

NUM_SOURCES = 35
SYLLABLES = ("ka", "lo", "mi", "ne", "pu", "ra", "si", "to", "ve", "zu")
PACK_TOKENS = 512
#: All numbers of ranks divide it.
SHARDS = 12
#: Packs of a rank in a step.
BATCH_SIZE = 4
PADDING, END_OF_TEXT, FIRST_BYTE = 0, 1, 2


def write_sources(folder: Path) -> list[Path]:
    """Write the sources, one file of JSON Lines each, and return the paths. Existing files are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"source-{number:02}.jsonl" for number in range(NUM_SOURCES)]
    for number, path in enumerate(paths):
        if path.exists():
            continue
        rng = np.random.default_rng(number)
        texts = [" ".join(rng.choice(SYLLABLES, rng.integers(3, 120))) for _ in range(20 + 5 * number)]
        records = [{"id": f"{number}/{i}", "text": text} for i, text in enumerate(texts)]
        path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return paths


def tokenize(record: dict[str, Any]) -> NDArray[np.int32]:
    """Return the bytes of a text as tokens, and the end of the text."""
    tokens = np.frombuffer(record["text"].encode(), np.uint8).astype(np.int32) + FIRST_BYTE
    return np.append(tokens, np.int32(END_OF_TEXT))


def describe(paths: Sequence[Path]) -> ComposedDataset:
    """Describe the stream: packs of whole documents from all sources, endless."""
    sources = [ComposedDataset.from_jsonl(path).shuffle() for path in paths]
    weights = [1 / (1 + number) for number in range(len(sources))]
    mixture = ComposedDataset.mix(sources, weights, stop="never")
    packs = mixture.map(tokenize).pack(PACK_TOKENS, method="best_fit", block=128, pad=PADDING)
    return packs.with_options(seed=1, shards=SHARDS)


def summary(packs: Sequence[Element]) -> str:
    """Return numbers of documents and tokens, and the share of padding."""
    segments = np.stack([pack["tokens_segment_ids"] for pack in packs])
    tokens = np.count_nonzero(segments)
    return f"{segments.max(axis=1).sum():11}{tokens:8}{1 - tokens / segments.size:9.1%}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; return 1 if a resumed run differs from the plain iteration."""
    parser = argparse.ArgumentParser(prog="python -m examples.pretraining", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6, help="steps of each part (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/pretraining"), help="for the sources (%(default)s)")
    options = parser.parse_args(arguments)
    dataset = describe(write_sources(options.folder))
    return 0 if run_in_parts(dataset, BATCH_SIZE, options.steps, "documents  tokens  padding", summary) else 1


if __name__ == "__main__":
    sys.exit(main())
