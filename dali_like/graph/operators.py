"""What an operator is: a function of samples that may know the shape of its result beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class SampleShape(NamedTuple):
    """The shape and dtype of a sample that has not been computed yet."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Operator(Protocol):
    """An operator with one output. Its methods may run in any thread, for several samples at once.

    Attributes:
        name: as in ``fn``: "fn.decoders.image", say. Together with `arguments` it makes the operator again elsewhere.
        arguments: what the function of that name is given besides nodes; numbers, strings, and lists of them.
        layout: of its output.
    """

    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> Mapping[str, Any]: ...

    @property
    def layout(self) -> str: ...

    def infer(self, samples: Sequence[NDArray[Any]]) -> SampleShape | None:
        """The shape and dtype of the result for one sample of each input, where that is cheap to know; else None."""

    def compute(self, samples: Sequence[NDArray[Any]], out: NDArray[Any] | None) -> NDArray[Any]:
        """The result for one sample of each input; written into `out`, an array as inferred, if that is given."""


@dataclass(frozen=True)
class ShapeOf:
    """The shape of each sample; see `dali_like.graph.nodes.DataNode.shape`."""

    dtype: np.dtype[Any]
    name: str = "DataNode.shape"
    layout: str = ""

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {"dtype": self.dtype.name}

    def infer(self, samples: Sequence[NDArray[Any]]) -> SampleShape:
        return SampleShape((samples[0].ndim,), self.dtype)

    def compute(self, samples: Sequence[NDArray[Any]], out: NDArray[Any] | None) -> NDArray[Any]:
        shape = np.empty(samples[0].ndim, self.dtype) if out is None else out
        shape[:] = samples[0].shape
        return shape
