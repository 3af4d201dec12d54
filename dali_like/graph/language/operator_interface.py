"""The contract between the graph and operators: an operator computes output samples from input samples.

Most operators work on one sample at a time, some on a whole batch. They run in threads of the main process and in
workers.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.limits import LEAST_IMAGE_LIMIT_BYTES
from dali_like.graph.language.operator_random import BLOCK, RandomKey, generator_at, numbers_at
from dali_like.types import SampleInfo

if TYPE_CHECKING:
    from dali_like.device.copier import Copier, DeviceSamples
    from dali_like.graph.language.batch_calls import BatchCall

Array: TypeAlias = NDArray[Any]
#: Smaller blocks are as cheap from the C library; larger ones are too large to keep.
_MIN_SCRATCH_BYTES = 1 << 14
_MAX_SCRATCH_BYTES = 1 << 28
#: From so many samples on, computing their random numbers together takes less time than setting a generator to each.
_MANY_POSITIONS = 40
#: See `RowwiseOperator`.
ANY_LENGTH = -1
#: Given a shape and a dtype, returns memory for a result; None if the result has no fixed place.
Place: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], Array | None]


class SampleShape(NamedTuple):
    """The shape and dtype of a sample before it is computed."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class OperatorCall:
    """One call of an operator: the sample, and memory for its result.

    A call may also compute a stack: several samples whose inputs have equal shapes. Inputs and result then have a leading
    axis that counts the samples, with the letter "N" in the layouts. See `Operator.stacks`.

    Attributes:
        info: the sample to compute; for a stack, and for an operator on batches, the first sample.
        layouts: of the inputs: one letter for each dimension, or empty.
        framed: arguments by name, and inputs after the first by number, whose layouts begin with frames.
        count: number of samples: 1, except for stacks and operators on batches.
        image_limit_bytes: the largest decoded image.
        lead: number of axes before those of a sample: 1 for a stack, otherwise 0.
    """

    __slots__ = (
        "_key",
        "_owner",
        "_place",
        "_positions",
        "count",
        "framed",
        "image_limit_bytes",
        "info",
        "layouts",
        "lead",
    )

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
        positions: Sequence[int] | None = None,
    ) -> None:
        self.info = info
        self.lead = 0 if positions is None else 1
        self._positions = positions  # idx_in_epoch of each sample of a stack
        self.framed = framed
        self.count = count
        self.image_limit_bytes = image_limit_bytes
        self.layouts = layouts
        self._key = key
        self._place = place
        self._owner = owner  # name of the scratch memory for a result that only other operators use

    def renew(self, info: SampleInfo, layouts: Sequence[str], owner: Hashable | None) -> None:
        """Use this object for another sample; a new one takes three times as long."""
        self.info, self.layouts, self._owner = info, layouts, owner

    @property
    def layout(self) -> str:
        """The layout of the first input."""
        return self.layouts[0]

    @property
    def is_output(self) -> bool:
        """Whether the result is an output of the pipeline, not only an input of other operators."""
        return self._place is not None

    def rng(self) -> np.random.Generator:
        """Return a random generator that depends only on the seed, the operator, the epoch and the sample.

        Every call starts the sequence again. The generator belongs to the thread and is valid until the next operator
        runs.
        """
        assert self._key is not None, "the description of the operator must say random=True"
        return generator_at(self._key, self.info.epoch_idx, self.info.idx_in_epoch)

    def draw(self, function: Callable[[np.random.Generator], Any]) -> Any:
        """Return what a function draws from the generator of the sample; for a stack, an array with that of each sample."""
        if self._positions is None:
            return function(self.rng())
        assert self._key is not None
        epoch = self.info.epoch_idx
        return np.array([function(generator_at(self._key, epoch, position)) for position in self._positions])

    def random(self, shape: tuple[int, ...] = ()) -> Any:
        """Return what ``rng().random(shape)`` does; for a stack, an array with that of each sample."""
        positions, count = self._positions, math.prod(shape)
        if positions is None or len(positions) < _MANY_POSITIONS or count > BLOCK:
            return self.draw(lambda rng: rng.random(shape))
        assert self._key is not None
        numbers = numbers_at(self._key, self.info.epoch_idx, positions)
        return numbers[:, :count].reshape(len(positions), *shape)

    def places_of_draws(self) -> tuple[RandomKey, int, Sequence[int]]:
        """Return the key of the random numbers, the epoch, and the ``idx_in_epoch`` of each sample."""
        assert self._key is not None, "the description of the operator must say random=True"
        positions = [self.info.idx_in_epoch] if self._positions is None else self._positions
        return self._key, self.info.epoch_idx, positions

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an uninitialized, C-contiguous array for the result.

        For an output of the pipeline it is the memory that the user gets, which saves a copy. For an intermediate
        result it is memory that is reused for the next sample. The operator must return this array. Further calls for
        the same sample return ordinary arrays.
        """
        if self._place is not None and (place := self._place(shape, np.dtype(dtype))) is not None:
            return place
        if self._owner is not None:
            owner, self._owner = self._owner, None
            return scratch(owner, shape, dtype)
        return np.empty(shape, dtype)

    def part(self, array: Array) -> Array:
        """Return a part of an input, or of scratch memory, as the result: a view if the result is intermediate, otherwise
        a copy.
        """
        if self._place is None:
            return array
        out = self.empty(array.shape, array.dtype)
        out[...] = array  # takes half the time of np.copyto for few numbers
        return out


class Operator(Protocol):
    """An operator with its constant arguments. Methods may run for several samples at once, in any thread or process.

    Attributes:
        name: as in ``fn``, for example "fn.decoders.image". With `arguments`, it suffices to create the operator
            elsewhere.
        arguments: the arguments of that function other than nodes: numbers, strings, and lists of them.
        layouts: of each output. Several words separated by blanks: the one with as many letters as dimensions applies.
            Empty: none.
        seed: None: not random; -1: the pipeline's seed applies; 0 or more: the operator's own seed.
        per_sample: whether an output sample depends only on the same sample of the inputs.
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

    def stacks(self, num_inputs: int, arguments: Collection[str]) -> bool:
        """Return whether `compute` accepts a stack of samples (`OperatorCall.lead`), with the same bits as results.

        Args:
            num_inputs: the number of inputs.
            arguments: the names of the arguments that are nodes.
        """

    def compute(self, call: OperatorCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Sequence[Any]:
        """Return the outputs.

        Args:
            call: describes the call. Only an operator with one output may use its memory.
            inputs: a sample of each input; for an operator on batches, a sequence of samples for each; or a stack of each.
            arguments: the same for arguments that are nodes.

        An operator on batches returns a sequence of samples for each output, or one array whose first axis counts them.
        """


class GpuOperator(Operator, Protocol):
    """An operator on batches with its output on a GPU.

    Attributes:
        on_cpu: computes the same on the CPU.
    """

    @property
    def on_cpu(self) -> Operator: ...

    def compute_on_gpu(
        self,
        call: OperatorCall,
        samples: Sequence[Array],
        copier: Copier,
        for_each: Callable[[int, Callable[[int], None]], None],
    ) -> DeviceSamples:
        """Return the results for the samples of its input.

        Args:
            call: see `Operator.compute`.
            samples: at least one.
            copier: copies to the GPU.
            for_each: calls a function for each index below a number, in several threads.
        """


@runtime_checkable
class ElementwiseOperator(Protocol):
    """Optional attribute of an operator on samples with one output.

    Attributes:
        elementwise: whether each element of the result depends on the same elements of the inputs, whatever their shape.
    """

    @property
    def elementwise(self) -> bool: ...


@runtime_checkable
class RowwiseOperator(Protocol):
    """Optional attribute of an operator on samples with one output.

    Attributes:
        rowwise: the length of the vectors along the last axis, or ANY_LENGTH, if each vector of the result depends on the
            same vector of the only input, whatever their number. The other axes are those of the input. 0: it does not.
    """

    @property
    def rowwise(self) -> int: ...


@runtime_checkable
class KernelOperator(Protocol):
    """Optional attributes of an operator on samples.

    Attributes:
        has_kernel: whether `compute_batch` may return results.
        kernel_is_compiled: whether it needs the compiled loops.
        kernel_for_large: whether it computes batches of large samples, too.
    """

    @property
    def has_kernel(self) -> bool: ...

    @property
    def kernel_is_compiled(self) -> bool: ...

    @property
    def kernel_for_large(self) -> bool: ...

    def compute_batch(self, call: BatchCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return the outputs for a batch of samples of any shapes: a stack or a list of samples for each.

        Args:
            call: see `dali_like.graph.language.batch_calls`.
            inputs: a stack, or the samples of a batch, for each.
            arguments: the same for arguments that are nodes.

        Returns:
            None if the samples must be computed one by one.
        """


@runtime_checkable
class OrderedOperator(Protocol):
    """Optional attribute of an operator on batches.

    Attributes:
        in_order: whether the operator must see the batches one after another, in order.
    """

    @property
    def in_order(self) -> bool: ...


@runtime_checkable
class ViewingOperator(Protocol):
    """Optional attribute of an operator on samples.

    Attributes:
        views: whether its result has all bytes of its first input, and may be a view of it.
    """

    @property
    def views(self) -> bool: ...


@functools.cache
def choose_layout(layouts: str, ndim: int) -> str:
    """Return the layout for `ndim` dimensions among several; empty without a layout."""
    return next((layout for layout in layouts.split() if len(layout) == ndim), "")


class ShapeOf(NamedTuple):
    """Computes the shape of each sample; see `dali_like.graph.language.nodes.DataNode.shape`."""

    dtype: np.dtype[Any]
    name: str = "DataNode.shape"
    layouts: Sequence[str] = ("",)
    seed: int | None = None
    per_sample: bool = True

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {"dtype": self.dtype.name}

    has_kernel: bool = True
    kernel_is_compiled: bool = False
    kernel_for_large: bool = True
    #: Whether the elements of the first input do not matter.
    needs_shapes_only: bool = True

    def stacks(self, num_inputs: int, arguments: Collection[str]) -> bool:
        return True

    def compute_batch(self, call: BatchCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Sequence[Array] | None:
        return (inputs[0].shapes.astype(self.dtype),) if hasattr(inputs[0], "shapes") else None

    def compute(self, call: OperatorCall, inputs: Sequence[Array], arguments: Mapping[str, Any]) -> Sequence[Array]:
        shape = np.array(inputs[0].shape[call.lead :], self.dtype)
        return (np.broadcast_to(shape, (call.count, *shape.shape)) if call.lead else shape,)


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.blocks: dict[Hashable, Array] = {}


_scratch = _Scratch()


def scratch(name: Hashable, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an uninitialized array, valid until this thread asks for the next one of that name.

    For intermediate results within and between operators. The C library returns large blocks to the system when they are
    freed, and each new block costs a page fault per 4 KiB: often more than the operator itself. Threads of the main process
    and workers need the same sizes again and again, so each thread keeps one block per name.
    """
    if not shape:
        return np.empty(shape, dtype)
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    if not _MIN_SCRATCH_BYTES <= nbytes <= _MAX_SCRATCH_BYTES:
        return np.empty(shape, dtype)
    block = _scratch.blocks.get(name)
    if block is None or block.nbytes < nbytes:
        block = _scratch.blocks[name] = np.empty(nbytes, np.uint8)
    return np.ndarray(shape, dtype, block)
