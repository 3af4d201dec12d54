"""Sources in memory, whose elements cost almost nothing, and checks of the batches made of them.

The content of an element follows from its number, or from its length. So a batch can be checked in any order of elements.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads import WrongBatchError

__all__ = [
    "GROUP_TOKENS",
    "LENGTH",
    "PACK_TOKENS",
    "WINDOW_TOKENS",
    "Documents",
    "Images",
    "Multimodal",
    "Numbers",
    "alone",
    "brighten",
    "check_groups",
    "check_images",
    "check_numbers",
    "check_packs",
    "check_windows",
    "costs_of",
    "first_of",
    "log_normal_costs",
    "noisy",
    "one",
    "same",
    "summary",
    "token_file",
    "twice",
    "two_thirds",
]

#: Elements of each source.
LENGTH = 1_000_000
PACK_TOKENS = 8_192
#: Of packs of images and texts, and of one image.
GROUP_TOKENS, IMAGE_TOKENS, MOST_IMAGES = 16_384, 256, 40
SHORTEST, LONGEST = 10, 4_000
#: Of the file of tokens: of a window, and the length after which tokens repeat, a prime number.
WINDOW_TOKENS, TOKEN_PERIOD = 2_048, 50_021

#: A prime number of images, so that neighbors differ.
_NUM_IMAGES = 251
_NUM_LENGTHS = 1 << 12


class Images:
    """Images of 28 x 28 bytes of one color, with a number.

    Args:
        place: of the source among all sources.
    """

    def __init__(self, place: int) -> None:
        self._begin = place * LENGTH
        self._images = np.repeat(np.arange(_NUM_IMAGES, dtype=np.uint8), 28 * 28).reshape(-1, 28, 28)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: Any) -> dict[str, Any]:
        number = self._begin + int(index)
        return {"image": self._images[number % _NUM_IMAGES], "number": number}


class Numbers:
    """The numbers from 0 on: elements that cost next to nothing."""

    def __init__(self, place: int) -> None:
        self._begin = place * LENGTH

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: Any) -> int:
        return self._begin + int(index)


def same(element: int) -> int:
    """Return the element: a map."""
    return element


def noisy(element: int, generator: np.random.Generator) -> int:
    """Return the element: a map that draws a random number."""
    generator.random()
    return element


def two_thirds(element: int) -> bool:
    """Return whether to keep an element: two of three."""
    return element % 3 != 0


def twice(element: int) -> tuple[int, int]:
    """Return two items for an element."""
    return element, element


def alone(element: int) -> NDArray[Any]:
    """Return an array with the element: a document of one token."""
    return np.array([element])


def first_of(element: Any) -> Any:
    """Return a number that stands for a list, a tuple or a pack of elements."""
    return element["tokens"][0] if isinstance(element, dict) else element[0]


def one(_element: int) -> int:
    """Return the cost of an element."""
    return 1


def check_numbers(batch: Any, batch_size: int) -> None:
    """Check that a batch has so many numbers.

    Raises:
        WrongBatchError: it has not.
    """
    numbers = np.asarray(batch)
    if numbers.shape != (batch_size,) or numbers.dtype.kind != "i":
        raise WrongBatchError(f"the numbers have the shape {numbers.shape} and dtype {numbers.dtype}")


def brighten(element: Mapping[str, Any]) -> dict[str, Any]:
    """Return the element with its image inverted: the map of the benchmark."""
    return {"image": 255 - element["image"], "number": element["number"]}


class Documents:
    """Documents of 10 to 4,000 tokens, evenly distributed: new arrays, as of a tokenizer. Token i of each is ``i + 1``."""

    def __init__(self, place: int) -> None:
        self._tokens = np.arange(1, LONGEST + 1, dtype=np.int32)
        self._lengths = np.random.default_rng(place).integers(SHORTEST, LONGEST + 1, _NUM_LENGTHS)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: Any) -> dict[str, NDArray[Any]]:
        return {"tokens": self._tokens[: self._lengths[int(index) % _NUM_LENGTHS]].copy()}


class Multimodal:
    """Texts with images: numbers of both. Texts have a log-normal number of tokens (median 600, sigma 1), at most so many
    that the element fits into a pack, and there are 1 to 40 images.
    """

    def __init__(self, place: int) -> None:
        rng = np.random.default_rng(place)
        self._images = rng.integers(1, MOST_IMAGES + 1, _NUM_LENGTHS)
        most = GROUP_TOKENS - IMAGE_TOKENS * self._images
        self._texts = np.minimum(rng.lognormal(np.log(600), 1, _NUM_LENGTHS).astype(int), most)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: Any) -> dict[str, int]:
        place = int(index) % _NUM_LENGTHS
        return {"text": int(self._texts[place]), "images": int(self._images[place])}


def costs_of(element: Mapping[str, int]) -> dict[str, int]:
    """Return the tokens of text and images of an element: its cost."""
    return {"tokens": element["text"] + IMAGE_TOKENS * element["images"]}


def log_normal_costs() -> NDArray[np.float64]:
    """Return a cost for each image of a source: sigma is 1."""
    return np.random.default_rng(0).lognormal(0, 1, LENGTH)


def summary(pack: list[Mapping[str, int]]) -> dict[str, int]:
    """Return the numbers of elements and tokens in a pack."""
    return {"elements": len(pack), "tokens": sum(costs_of(element)["tokens"] for element in pack)}


def check_groups(batch: Mapping[str, Any], batch_size: int) -> None:
    """Check that the packs of a batch have elements, and stay within the budget.

    Raises:
        WrongBatchError: they do not.
    """
    elements, tokens = np.asarray(batch["elements"]), np.asarray(batch["tokens"])
    if elements.shape != (batch_size,) or not (elements > 0).all() or not (tokens <= GROUP_TOKENS).all():
        raise WrongBatchError(f"the packs have {elements.tolist()} elements and {tokens.tolist()} tokens")


def check_images(batch: Mapping[str, Any], batch_size: int, num_sources: int) -> None:
    """Compare every byte of a batch of images with its numbers.

    Raises:
        WrongBatchError: something differs, or a number occurs twice.
    """
    images, numbers = np.asarray(batch["image"]), np.asarray(batch["number"])
    if images.shape != (batch_size, 28, 28) or images.dtype != np.uint8:
        raise WrongBatchError(f"the images have the shape {images.shape} and dtype {images.dtype}")
    if len(np.unique(numbers)) != batch_size or not ((numbers >= 0) & (numbers < num_sources * LENGTH)).all():
        raise WrongBatchError(f"the numbers are {numbers.tolist()}")
    if not (images == (255 - numbers % _NUM_IMAGES)[:, np.newaxis, np.newaxis]).all():
        raise WrongBatchError("the images do not fit their numbers")


def token_file() -> Path:
    """Return a file of 64 Mi tokens in 16 bits, 128 MiB, which is written once. Token i is ``i % TOKEN_PERIOD``."""
    path = Path("build/benchmarks/tokens.bin")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        tokens = np.resize(np.arange(TOKEN_PERIOD, dtype=np.uint16), 64 << 20)
        written = path.with_suffix(f".{os.getpid()}")
        tokens.tofile(written)
        written.replace(path)
    return path


def check_windows(batch: NDArray[Any], batch_size: int) -> None:
    """Check that each row of a batch is a window of the file of tokens.

    Raises:
        WrongBatchError: it is not.
    """
    rows = np.asarray(batch)
    if rows.shape != (batch_size, WINDOW_TOKENS) or rows.dtype != np.uint16:
        raise WrongBatchError(f"the windows have the shape {rows.shape} and dtype {rows.dtype}")
    if not np.array_equal(rows, (rows[:, :1].astype(int) + np.arange(WINDOW_TOKENS)) % TOKEN_PERIOD):
        raise WrongBatchError("the tokens of a window do not follow each other")


def check_packs(batch: Mapping[str, Any], batch_size: int) -> None:
    """Check that each segment of a batch of packs is a document from its beginning, with its positions, and the rest zeros.

    Raises:
        WrongBatchError: something differs.
    """
    tokens, segments, positions = (np.asarray(batch[name]) for name in ("tokens", "tokens_segment_ids", "tokens_positions"))
    if tokens.shape != (batch_size, PACK_TOKENS):
        raise WrongBatchError(f"the packs have the shape {tokens.shape}")
    is_used = segments > 0
    if not np.array_equal(tokens, np.where(is_used, positions + 1, 0)):
        raise WrongBatchError("the tokens do not fit their positions")
    begins = positions[:, 1:] == 0
    if not np.array_equal(begins & is_used[:, 1:], (segments[:, 1:] != segments[:, :-1]) & is_used[:, 1:]):
        raise WrongBatchError("the segments do not begin where the positions do")
    if not (is_used[:, :-1] | ~is_used[:, 1:]).all():
        raise WrongBatchError("there is padding within a pack")
