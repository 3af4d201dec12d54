"""What an operator is to the graph: something that makes samples of samples, one at a time or a batch at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.limits import LEAST_IMAGE_LIMIT_BYTES
from dali_like.graph.operator_random import RandomKey, generator_at
from dali_like.graph.scratch import scratch
from dali_like.types import SampleInfo

if TYPE_CHECKING:
    from dali_like.device.copier import Copier, DeviceSamples

Array: TypeAlias = NDArray[Any]
#: Given a shape and a dtype: memory for a result, where there is a place that it should lie in.
Place: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], Array | None]


class SampleShape(NamedTuple):
    """The shape and dtype of a sample that has not been computed yet."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class OperatorCall:
    """One call of an operator, as its function sees it: which sample it is about, and where the result may go.

    Attributes:
        info: the sample that is being made; for an operator on batches, the first of the batch.
        layouts: of the operator's inputs, each with as many letters as the input has dimensions, or empty.
        framed: arguments by name, and inputs by number, but for the first, whose layouts say that they begin with frames.
        count: how many samples it is about: 1, but for an operator on batches.
        image_limit_bytes: what an image may take that is decoded.
    """

    __slots__ = ("_key", "_owner", "_place", "count", "framed", "image_limit_bytes", "info", "layouts")

    def __init__(
        self,
        info: SampleInfo,
        layouts: Sequence[str] = (),
        key: RandomKey | None = None,
        place: Place | None = None,
        owner: Hashable | None = None,
        count: int = 1,
        image_limit_bytes: int = LEAST_IMAGE_LIMIT_BYTES,
        framed: Collection[str | int] = (),
    ) -> None:
        self.info = info
        self.framed = framed
        self.count = count
        self.image_limit_bytes = image_limit_bytes
        self.layouts = layouts
        self._key = key
        self._place = place
        self._owner = owner  # of the scratch memory for a result that other operators use up

    @property
    def layout(self) -> str:
        """The layout of the first input."""
        return self.layouts[0]

    @property
    def is_output(self) -> bool:
        """Whether the result is an output of the pipeline, and not only for other operators."""
        return self._place is not None

    def rng(self) -> np.random.Generator:
        """Random numbers that depend on the seed, the operator, the epoch and the sample alone.

        Every call begins anew. The generator is the thread's own, and is only good until the next call of any operator.
        """
        assert self._key is not None, "the description of the operator must say random=True"
        return generator_at(self._key, self.info.epoch_idx, self.info.idx_in_epoch)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An uninitialised, C-contiguous array to make the result in.

        If the result is an output of the pipeline, this is the memory that the user will get, and a copy is saved. If it is
        for other operators, it is memory that is used again for the next sample. Return it; more than one such array at a
        time is an ordinary one.
        """
        if self._place is not None and (place := self._place(shape, np.dtype(dtype))) is not None:
            return place
        if self._owner is not None:
            owner, self._owner = self._owner, None
            return scratch(owner, shape, dtype)
        return np.empty(shape, dtype)

    def part(self, array: Array) -> Array:
        """A part of an input, or of scratch memory, as the result: a view if it is for other operators, else a copy."""
        if self._place is None:
            return array
        out = self.empty(array.shape, array.dtype)
        np.copyto(out, array)
        return out


class Operator(Protocol):
    """An operator with its constant arguments. Its methods may run in any thread, or process, for several samples at once.

    Attributes:
        name: as in ``fn``: "fn.decoders.image", say. Together with `arguments` it makes the operator again elsewhere.
        arguments: what the function of that name is given besides nodes; numbers, strings, and lists of them.
        layouts: of each output. Words of different lengths, with blanks between them: that of as many letters as there are
            dimensions; empty: none.
        seed: None: nothing is random; -1: the pipeline's seed decides; from 0 on: this one does.
        per_sample: whether a sample of the result depends on the same sample of the inputs alone.
    """

    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> Mapping[str, Any]: ...

    @property
    def layouts(self) -> Sequence[str]: ...

    @property
    def seed(self) -> int | None: ...

    @property
    def per_sample(self) -> bool: ...

    def compute(self, call: OperatorCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs.

        Args:
            call: see there. Only for an operator with one output its place may be used.
            inputs: a sample of each input; for an operator on batches, a list of the samples of each.
            arguments: likewise those of the arguments that are nodes.
        """


class GpuOperator(Operator, Protocol):
    """An operator on batches whose output is on a GPU."""

    def compute_on_gpu(
        self,
        call: OperatorCall,
        samples: Sequence[Array],
        copier: Copier,
        for_each: Callable[[int, Callable[[int], None]], None],
    ) -> DeviceSamples:
        """The results for the samples of its input.

        Args:
            call: see `Operator.compute`.
            samples: at least one.
            copier: to the GPU.
            for_each: calls a function for each index below a number, in several threads.
        """


@runtime_checkable
class OrderedOperator(Protocol):
    """What an operator on batches may say besides.

    Attributes:
        in_order: whether the batches must come to it one after the other, in their order.
    """

    @property
    def in_order(self) -> bool: ...


@functools.cache
def choose_layout(layouts: str, ndim: int) -> str:
    """The one of several layouts that is for so many dimensions; empty if none is."""
    return next((layout for layout in layouts.split() if len(layout) == ndim), "")


class ShapeOf(NamedTuple):
    """The shape of each sample; see `dali_like.graph.nodes.DataNode.shape`."""

    dtype: np.dtype[Any]
    name: str = "DataNode.shape"
    layouts: Sequence[str] = ("",)
    seed: int | None = None
    per_sample: bool = True

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {"dtype": self.dtype.name}

    def compute(self, call: OperatorCall, inputs: Sequence[Array], arguments: Mapping[str, Any]) -> Sequence[Array]:
        return (np.array(inputs[0].shape, self.dtype),)
