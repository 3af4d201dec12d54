"""Packs by the real Grain and by dali_like side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

grain = pytest.importorskip("grain")

from dali_like.data import ComposedDataset  # noqa: E402

pytestmark = pytest.mark.peers

LENGTH = 8_192


def documents(seed: int, number: int, longest: int) -> list[dict[str, NDArray[np.int32]]]:
    sizes = np.random.default_rng(seed).integers(1, longest, number)
    return [{"tokens": np.arange(size, dtype=np.int32) + 1} for size in sizes]


def of_grain(elements: list[Any], name: str, **options: Any) -> list[dict[str, NDArray[Any]]]:
    source = grain.MapDataset.source(elements).to_iter_dataset(grain.ReadOptions(num_threads=0))
    return list(getattr(grain.experimental, name)(source, **options))


def of_ours(elements: list[Any], length: int, **options: Any) -> list[dict[str, NDArray[Any]]]:
    return list(ComposedDataset.source(elements).with_options(shards=1).pack({"tokens": length}, **options))


def padding(packs: list[dict[str, NDArray[Any]]]) -> float:
    return float(np.mean([(pack["tokens_segment_ids"] == 0).mean() for pack in packs]))


@pytest.mark.parametrize("num_bins", [64, 256])
@pytest.mark.parametrize(("method", "name"), [("first_fit", "FirstFit"), ("best_fit", "BestFit")])
def test_packs_have_no_more_padding(method: str, name: str, num_bins: int) -> None:
    elements = documents(num_bins, 2_500, 4_000)
    reference = of_grain(elements, f"{name}PackIterDataset", length_struct={"tokens": LENGTH}, num_packing_bins=num_bins)
    ours = of_ours(elements, LENGTH, method=method)
    assert padding(ours) <= padding(reference)
    assert {key: value.dtype for key, value in ours[0].items() if key in reference[0]} == {
        key: value.dtype for key, value in reference[0].items()
    }


def test_concatenated_packs_are_the_same() -> None:
    elements = documents(1, 300, 40)
    reference = of_grain(
        elements, "ConcatThenSplitIterDataset", length_struct={"tokens": 16}, split_full_length_features=True
    )
    ours = of_ours(elements, 16, method="concat")
    assert len(ours) == len(reference)
    for mine, theirs in zip(ours, reference, strict=True):
        for key, value in theirs.items():
            np.testing.assert_array_equal(mine[key], value, strict=True)
