"""What a pipeline's outputs have been declared to be, held against every batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dali_like.errors import ArgumentClashError, DtypeMismatchError, LayoutMismatchError, NdimMismatchError
from dali_like.types import OBJECT, DALIDataType, numpy_dtype

_OBJECTS = "Python objects"


class Expectation(NamedTuple):
    """What one output is expected to be; None, or an empty layout: anything."""

    output: int
    dtype: DALIDataType | None
    ndim: int | None
    layout: str

    def check(self, batch: Any) -> None:
        """Raise if a batch, a TensorList or a list, is something else.

        Raises:
            DtypeMismatchError, NdimMismatchError, LayoutMismatchError: it is.
        """
        if not len(batch):
            return  # of no samples, nothing is known
        if isinstance(batch, list):
            self._check_objects()
            return
        if self.ndim is not None and batch.ndim() != self.ndim:
            raise NdimMismatchError(self._text("Number of dimensions", self.ndim, batch.ndim()))
        if self.dtype is not None and batch.dtype is not self.dtype:
            raise DtypeMismatchError(self._text("Data type", numpy_dtype(self.dtype), numpy_dtype(batch.dtype)))
        if self.layout and batch.layout() != self.layout:
            raise LayoutMismatchError(self._text("Layout", self.layout, batch.layout()))

    def _check_objects(self) -> None:
        if self.ndim is not None:
            raise NdimMismatchError(self._text("Number of dimensions", self.ndim, _OBJECTS))
        if self.dtype not in (None, OBJECT):
            raise DtypeMismatchError(self._text("Data type", numpy_dtype(self.dtype), _OBJECTS))
        if self.layout:
            raise LayoutMismatchError(self._text("Layout", self.layout, _OBJECTS))

    def _text(self, what: str, expected: Any, received: Any) -> str:
        return f"{what} in the output_idx={self.output} does not match. Expected: {expected}. Received: {received}."


def make_expectations(num_outputs: int, dtype: Any, ndim: Any, layout: Any) -> tuple[Expectation, ...]:
    """What is expected of those outputs of which anything is.

    Args:
        dtype, ndim, layout: one value for all outputs, or a list with one for each.

    Raises:
        ArgumentClashError: a list has another length than the pipeline has outputs.
    """
    dtypes, ndims, layouts = (
        per_output(name, value, num_outputs)
        for name, value in (("output_dtype", dtype), ("output_ndim", ndim), ("output_layout", layout))
    )
    return tuple(
        Expectation(i, dtype, ndim, layout or "")
        for i, (dtype, ndim, layout) in enumerate(zip(dtypes, ndims, layouts, strict=True))
        if dtype is not None or ndim is not None or layout
    )


def per_output(name: str, value: Any, num_outputs: int) -> list[Any]:
    """A value for each output.

    Raises:
        ArgumentClashError: there are more or fewer.
    """
    values = list(value) if isinstance(value, list) else [value] * num_outputs
    if len(values) != num_outputs:
        raise ArgumentClashError(
            f"Lengths of provided output descriptions do not match: {name} has {len(values)} entries, and the pipeline "
            f"{num_outputs} outputs"
        )
    return values


def check_outputs(expectations: Sequence[Expectation], outputs: Sequence[Any]) -> None:
    """Hold a batch of each output against what is expected.

    Raises:
        DtypeMismatchError, NdimMismatchError, LayoutMismatchError: one is something else.
    """
    for expectation in expectations:
        expectation.check(outputs[expectation.output])
