"""The workloads: sources, the kind of elements, and the measured part of a loader's life."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from benchmarks.composed.sources import (
    GROUP_TOKENS,
    PACK_TOKENS,
    Documents,
    Images,
    Multimodal,
    Numbers,
    check_groups,
    check_images,
    check_numbers,
    check_packs,
    check_windows,
)

__all__ = ["COMMON_SYSTEMS", "RESUMED_STEP", "STAGES", "WORKLOADS", "Workload", "weights"]

COMMON_SYSTEMS = ("dali_like", "grain")
RESUMED_STEP = 1_000_000

Part = Literal["steady", "first", "resume", "memory"]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One workload: a mixture of shuffled, repeated sources. Images are mapped, documents packed, and texts with images
    packed by their costs. Numbers go through a single stage. Windows are of a flat file of tokens.

    Attributes:
        part: the measured part. "steady": the rate after warm-up; "first": the time to the first batch; "resume": the time
            from a state at step `RESUMED_STEP` to the next batch; "memory": memory added by the loader.
        systems: systems that run it.
        counted_packs: packs in which padding is counted, before the steady part.
        num_ranks: ranks that share the stream; the first one is measured. More than one: images have log-normal costs, which
            are dealt to the ranks.
        stage: the single stage, one of `STAGES`.
    """

    name: str
    part: Part
    element: Literal["images", "documents", "multimodal", "numbers", "windows"]
    num_sources: int
    batch_size: int
    systems: tuple[str, ...] = COMMON_SYSTEMS
    counted_packs: int = 0
    num_ranks: int = 1
    stage: str = ""

    def sources(self) -> list[Any]:
        """Return the sources."""
        make = {"images": Images, "documents": Documents, "multimodal": Multimodal, "numbers": Numbers}[self.element]
        return [make(place) for place in range(self.num_sources)]

    @property
    def check(self) -> Callable[[Any], None]:
        """Raises `benchmarks.workloads.WrongBatchError` unless a batch is right."""
        if self.element == "images":
            return partial(check_images, batch_size=self.batch_size, num_sources=self.num_sources)
        if self.element == "multimodal":
            return partial(check_groups, batch_size=self.batch_size)
        if self.element == "numbers":
            return partial(check_numbers, batch_size=self.batch_size)
        if self.element == "windows":
            return partial(check_windows, batch_size=self.batch_size)
        return partial(check_packs, batch_size=self.batch_size)

    @property
    def pack_tokens(self) -> int:
        """Tokens that a pack may have."""
        return GROUP_TOKENS if self.element == "multimodal" else PACK_TOKENS

    def used_tokens(self, batch: Mapping[str, Any]) -> int:
        """Return the tokens of the packs of a batch, without padding."""
        if self.element == "multimodal":
            return int(np.sum(batch["tokens"]))
        return int(np.count_nonzero(np.asarray(batch["tokens_segment_ids"])))


def weights(num_sources: int) -> list[int]:
    """Return the weights of the sources: n, n - 1, ..., 1."""
    return list(range(num_sources, 0, -1))


#: The stages that are measured alone. "none" is the source, shuffled and repeated, to which the others are compared.
STAGES = (
    "none",
    "map",
    "map_rng",
    "enumerate",
    "slice",
    "concat",
    "zip",
    "mix",
    "shuffle_block",
    "window",
    "filter",
    "filter_map",
    "flat_map",
    "shards_mix",
    "pack_concat",
    "pack_first_fit",
    "bucket",
    "batch_by_budget",
)

_STARTS = (*COMMON_SYSTEMS, "dali_like_spawn")

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(name="mixture", part="steady", element="images", num_sources=8, batch_size=256),
        Workload(
            name="packing",
            part="steady",
            element="documents",
            num_sources=1,
            batch_size=8,
            systems=(*COMMON_SYSTEMS, "grain_64"),
            counted_packs=4_096,
        ),
        Workload(
            name="multimodal",
            part="steady",
            element="multimodal",
            num_sources=1,
            batch_size=8,
            systems=("dali_like",),
            counted_packs=4_096,
        ),
        Workload(
            name="balance",
            part="steady",
            element="images",
            num_sources=1,
            batch_size=16,
            systems=("dali_like",),
            num_ranks=8,
        ),
        Workload(
            name="windows", part="steady", element="windows", num_sources=1, batch_size=256, systems=("dali_like", "loop")
        ),
        Workload(name="start", part="first", element="images", num_sources=8, batch_size=256, systems=_STARTS),
        Workload(name="resume", part="resume", element="images", num_sources=8, batch_size=256, systems=_STARTS),
        Workload(name="memory", part="memory", element="images", num_sources=35, batch_size=256, systems=_STARTS),
        Workload(name="memory_packed", part="memory", element="documents", num_sources=35, batch_size=8, systems=_STARTS),
        *(
            Workload(
                name=f"stage_{stage}",
                part="steady",
                element="numbers",
                num_sources=1,
                batch_size=256,
                systems=("dali_like",),
                stage=stage,
            )
            for stage in STAGES
        ),
    )
}
