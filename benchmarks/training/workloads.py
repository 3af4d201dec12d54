"""The workloads: a pipeline of the examples, its files, the same work in OpenCV, and checks of its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.opencv import detect, recognize
from benchmarks.training.photographs import make_photographs
from benchmarks.training.sources import EndlessDetections, EndlessPhotographs
from benchmarks.workloads import WrongBatchError
from dali_like.types import SampleInfo
from examples import resnet_pipeline, ssd_pipeline
from examples.demo_data import LabeledFiles
from examples.photograph_source import PhotographSource

__all__ = ["WORKLOADS", "Workload", "check_batch"]

Arrays = Sequence[NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One workload.

    Attributes:
        example: the module of `examples` whose function ``training`` is the pipeline.
        sides: minimum and maximum height and width of the files, in pixels.
        per_photograph: number of files of each photograph.
        make_source: makes a source of samples from files.
        in_opencv: computes the pipeline's result, given a sample and its index.
        systems: systems that support this workload.
        arguments: arguments of the pipeline.
        ours: further arguments that only dali_like has.
        dalis: further arguments that only DALI needs.
        augmented: whether images are augmented at random: then only their shape and dtype are checked.
        shape: shape of an image in a batch.
        bound: maximum difference between dali_like's and OpenCV's pixels, in normalized units; None: images are only
            similar.
    """

    name: str
    example: str
    batch_size: int
    sides: tuple[int, int]
    per_photograph: int
    make_source: Callable[[LabeledFiles], PhotographSource]
    in_opencv: Callable[..., tuple[NDArray[Any], ...]]
    systems: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    ours: Mapping[str, Any] = field(default_factory=dict)
    dalis: Mapping[str, Any] = field(default_factory=dict)
    augmented: bool = False
    shape: tuple[int, int, int]
    bound: float | None

    def source(self) -> PhotographSource:
        """Return the source of samples; creates the files if needed."""
        return self.make_source(make_photographs(self.sides, self.per_photograph))

    def sample(self, source: PhotographSource, index: int) -> tuple[NDArray[Any], ...]:
        """Compute a sample in OpenCV."""
        return self.in_opencv(index, *self.inputs(source, index))

    def inputs(self, source: PhotographSource, index: int) -> tuple[NDArray[Any], ...]:
        """Return a sample of the source: the encoded photograph, with boxes or labels."""
        return source(SampleInfo(index, index % self.batch_size, index // self.batch_size, 0))


_SMALL, _LARGE = (256, 500), (900, 1400)
_PIPELINES = ("dali_like", "dali_like_kernels", "dali_like_turbojpeg", "dali_like_threads", "dali")
_ALL = (*_PIPELINES, "torch", "decoding")
#: Rounding colors at another step may change them by a gray level, which contrast and brightness amplify.
_TWO_GREY_LEVELS = 2.5 / min(ssd_pipeline.STD)

_RESNET = Workload(
    name="resnet",
    example="resnet_pipeline",
    batch_size=64,
    sides=_SMALL,
    per_photograph=48,
    make_source=EndlessPhotographs,
    in_opencv=recognize,
    systems=(*_ALL, "dali_like_profiled", "grain", "spdl"),
    arguments={"antialias": False},
    shape=(3, resnet_pipeline.SIDE, resnet_pipeline.SIDE),
    bound=0.0,
)
_RESNET_LARGE = replace(_RESNET, name="resnet_large", sides=_LARGE, per_photograph=12, systems=(*_ALL, "grain", "spdl"))

WORKLOADS = {
    workload.name: workload
    for workload in (
        _RESNET,
        replace(
            _RESNET,
            name="resnet_antialias",
            systems=_PIPELINES,
            arguments={},
            bound=None,
        ),
        _RESNET_LARGE,
        replace(
            _RESNET_LARGE,
            name="resnet_to_size",
            systems=_ALL,
            ours={"decoding": {"min_size": [resnet_pipeline.SIDE, resnet_pipeline.SIDE]}},
            bound=None,
        ),
        replace(
            _RESNET,
            name="trivial_augment",
            systems=(
                "dali_like",
                "dali_like_kernels",
                "dali_like_turbojpeg",
                "dali_like_threads",
                "dali",
                "torchvision",
                "torchvision_opencv",
            ),
            arguments={"antialias": False, "augment": True},
            dalis={"enable_conditionals": True},
            augmented=True,
            bound=None,
        ),
        Workload(
            name="ssd",
            example="ssd_pipeline",
            batch_size=32,
            sides=_SMALL,
            per_photograph=48,
            make_source=EndlessDetections,
            in_opencv=detect,
            systems=_ALL,
            arguments={"antialias": False},
            shape=(3, ssd_pipeline.SIDE, ssd_pipeline.SIDE),
            bound=_TWO_GREY_LEVELS,
        ),
    )
}

#: Similar images are compared by averages of so many pixels a side, because fine patterns differ after another filter.
_BLOCK = 8
#: Maximum average difference of these, in normalized units. It is at most 0.06 in 600 images, and 0.2 to 2 to another one.
_ALIKE = 0.1


def check_batch(
    workload: Workload, source: PhotographSource, batch: Sequence[Arrays], number: int, *, same_windows: bool
) -> None:
    """Compare a batch with OpenCV's results for its samples; `WrongBatchError` names the difference.

    Args:
        batch: the arrays of each sample.
        number: number of the batch.
        same_windows: whether the random numbers are dali_like's. Otherwise only results that do not depend on them are
            compared.
    """
    if len(batch) != workload.batch_size:
        raise WrongBatchError(f"{workload.name}: a batch has {len(batch)} samples, expected {workload.batch_size}")
    for index, (image, *others) in enumerate(batch, start=number * workload.batch_size):
        expected, *expected_others = workload.sample(source, index)
        where = f"{workload.name}: sample {index}"
        if image.shape != workload.shape or image.dtype != np.float32:
            raise WrongBatchError(f"{where} has the shape {image.shape} and dtype {image.dtype}")
        for array, right in zip(others, expected_others, strict=True):
            if not np.array_equal(array, right):
                raise WrongBatchError(f"{where} has the boxes or labels {array}, expected {right}")
        if same_windows and not workload.augmented:
            _compare(image, expected, workload.bound, where)


def _compare(image: NDArray[Any], expected: NDArray[Any], bound: float | None, where: str) -> None:
    if bound is None:
        difference = np.abs(_averages(image) - _averages(expected)).mean()
        if difference > _ALIKE:
            raise WrongBatchError(f"{where} is {difference:.2f} from OpenCV's on average")
    else:
        difference = np.abs(image - expected).max()
        if difference > bound:
            raise WrongBatchError(f"{where} has pixels that are {difference:.4f} from OpenCV's, {bound:.4f} is allowed")


def _averages(image: NDArray[Any]) -> NDArray[Any]:
    channels, height, width = image.shape
    averages: NDArray[Any] = image.reshape(channels, height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK).mean(axis=(2, 4))
    return averages
