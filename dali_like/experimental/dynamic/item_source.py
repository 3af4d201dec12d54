"""``ndd.ExternalSource``: tensors and batches of a user's function or iterable, in dynamic mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dali_like.errors import ArgumentError, BatchSizeError, DefinitionError, OutputCountError, SampleTypeError
from dali_like.experimental.dynamic.evaluation import EvalContext
from dali_like.experimental.dynamic.values import Batch, Tensor, as_batch, as_tensor
from dali_like.sources.kinds import is_iterable
from dali_like.sources.source_arguments import cycle_of
from dali_like.tensors import TensorListCPU

__all__ = ["ExternalSource"]


class ExternalSource:
    """Returns the next item of a function or an iterable with each call.

    Args:
        source: a callable without parameters, a generator function, or an iterable. An item is a tensor, an array or a
            batch; with several outputs, a sequence of these.
        num_outputs: outputs of an item, at least 1.
        cycle: at the end of an iterable: "no", False, None: StopIteration for ever; "raise": StopIteration, then its begin
            again; "quiet", True: its begin.
        device: where the data is wanted.
        layout: of the outputs, or one for each.
        dtype: to convert the outputs to, or one for each.

    Raises:
        ArgumentError: an argument is out of range, or is for iterables and `source` is a callable.
        DefinitionError: `source` cannot be called without arguments, nor iterated.
    """

    def __init__(
        self,
        source: Any,
        num_outputs: int = 1,
        *,
        cycle: str | bool | None = None,
        device: Any = "cpu",
        layout: str | Sequence[str] | None = None,
        dtype: Any = None,
    ) -> None:
        if num_outputs < 1:
            raise ArgumentError(f"num_outputs must be strictly positive, not {num_outputs}")
        self._next = _callback_of(source, cycle)
        self._num_outputs = num_outputs
        self._device = device
        self._layouts = self._for_each("layout", layout)
        self._dtypes = self._for_each("dtype", dtype)

    def __call__(self, *, batch_size: int | None = None) -> Any:
        """Return the next item: a tensor or a batch, or a tuple of several outputs.

        Args:
            batch_size: samples in a batch. A tensor is repeated so often.

        Raises:
            StopIteration: the source has ended; see `cycle`.
            BatchSizeError: a batch has another size.
            OutputCountError: the item has another number of outputs.
            SampleTypeError: some outputs are tensors, and some are batches.
        """
        item = self._next()
        outputs = [item] if self._num_outputs == 1 else item
        if not isinstance(outputs, Sequence) or len(outputs) != self._num_outputs:
            raise OutputCountError(f"Expected {self._num_outputs} outputs from the source")
        made = [self._converted(number, output, batch_size) for number, output in enumerate(outputs)]
        if len({type(each) for each in made}) > 1:
            raise SampleTypeError("Outputs must be uniformly Tensors or uniformly Batches")
        return made[0] if self._num_outputs == 1 else tuple(made)

    def captured(self, batch_size: int, ctx: EvalContext | None = None) -> Iterator[Any]:
        """Return an iterator over the items until the source ends. Nothing is computed ahead of the loop.

        Args:
            batch_size: see `__call__`.
            ctx: without effect.
        """
        while True:
            try:
                item = self(batch_size=batch_size)
            except StopIteration:
                return
            yield item

    def _converted(self, number: int, output: Any, batch_size: int | None) -> Tensor | Batch:
        options = {"dtype": self._dtypes[number], "device": self._device, "layout": self._layouts[number]}
        if isinstance(output, (Batch, TensorListCPU)):
            batch = as_batch(output, **options)
            if batch_size not in (None, batch.batch_size):
                raise BatchSizeError(f"Expected batch size {batch_size}, got {batch.batch_size}")
            return batch
        tensor = as_tensor(output, **options)
        return tensor if batch_size is None else Batch.broadcast(tensor, batch_size, device=self._device)

    def _for_each(self, name: str, value: Any) -> Sequence[Any]:
        if not isinstance(value, (list, tuple)):
            return (value,) * self._num_outputs
        if len(value) != self._num_outputs:
            raise ArgumentError(f"{name}: expected a sequence of size {self._num_outputs}, got {len(value)}")
        return value


def _callback_of(source: Any, cycle: Any) -> Callable[[], Any]:
    """Return a function that returns the next item of a source."""
    kind = cycle_of("cycle", cycle)
    if inspect.isgeneratorfunction(source) or is_iterable(source):
        return _ItemsOf(source, kind or "no")
    if kind is not None:
        raise ArgumentError("ndd.ExternalSource: `cycle` can only be specified if `source` is iterable")
    if not callable(source) or not _takes_nothing(source):
        raise DefinitionError("ndd.ExternalSource needs an iterable, or a callable with no parameters")
    callback: Callable[[], Any] = source
    return callback


def _takes_nothing(source: Callable[..., Any]) -> bool:
    try:
        inspect.signature(source).bind()
    except TypeError:
        return False
    except ValueError:  # functions of C code tell nothing
        return True
    return True


class _ItemsOf:
    """Calls return the items of an iterable, or of a generator function."""

    def __init__(self, source: Any, cycle: str) -> None:
        if inspect.isgenerator(source) and cycle != "no":
            raise ArgumentError("ndd.ExternalSource: Cannot cycle through a generator: pass its function instead")
        self._source = source
        self._cycle = cycle
        self._items: Iterator[Any] | None = None

    def __call__(self) -> Any:
        if self._items is None:
            self._items = iter(self._source() if inspect.isgeneratorfunction(self._source) else self._source)
        try:
            return next(self._items)
        except StopIteration:
            if self._cycle == "no":
                raise
            self._items = None
            if self._cycle == "raise":
                raise
        self._items = iter(self._source() if inspect.isgeneratorfunction(self._source) else self._source)
        return next(self._items)
