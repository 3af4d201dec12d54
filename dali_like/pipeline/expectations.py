"""Declared dtype, ndim and layout of a pipeline's outputs, checked for every batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dali_like.errors import ArgumentClashError, DtypeMismatchError, LayoutMismatchError, NdimMismatchError
from dali_like.types import OBJECT, DALIDataType, numpy_dtype

_OBJECTS = "Python objects"
_ARGUMENTS = {"Number of dimensions": "output_ndim", "Data type": "output_dtype", "Layout": "output_layout"}


class Expectation(NamedTuple):
    """Declaration of one output; None, or an empty layout, allows any value."""

    output: int
    dtype: DALIDataType | None
    ndim: int | None
    layout: str

    def check(self, batch: Any) -> None:
        """Check a batch: a TensorList, or a list of objects.

        Raises:
            DtypeMismatchError, NdimMismatchError, LayoutMismatchError: the batch differs.
        """
        if not len(batch):
            return  # a batch without samples has neither dtype nor ndim
        if isinstance(batch, list):
            if self.ndim is not None:
                raise NdimMismatchError(self._text("Number of dimensions", self.ndim, _OBJECTS))
            if self.dtype not in (None, OBJECT):
                raise DtypeMismatchError(self._text("Data type", numpy_dtype(self.dtype), _OBJECTS))
            if self.layout:
                raise LayoutMismatchError(self._text("Layout", self.layout, _OBJECTS))
            return
        if self.ndim is not None and batch.ndim() != self.ndim:
            raise NdimMismatchError(self._text("Number of dimensions", self.ndim, batch.ndim()))
        if self.dtype is not None and batch.dtype is not self.dtype:
            raise DtypeMismatchError(self._text("Data type", numpy_dtype(self.dtype), numpy_dtype(batch.dtype)))
        if self.layout and batch.layout() != self.layout:
            raise LayoutMismatchError(self._text("Layout", self.layout, batch.layout()))

    def _text(self, attribute: str, expected: Any, received: Any) -> str:
        none = " The output has no layout." if received == "" else ""
        return (
            f"{attribute} in the output_idx={self.output} does not match. Expected: {expected}. Received: {received}.{none} "
            f"The pipeline declares it by {_ARGUMENTS[attribute]}=: change that, or the output"
        )


def make_expectations(num_outputs: int, dtype: Any, ndim: Any, layout: Any) -> tuple[Expectation, ...]:
    """Return the declarations of all outputs that have one.

    Args:
        dtype, ndim, layout: one value for all outputs, or a list with one value for each.

    Raises:
        ArgumentClashError: the length of a list differs from the number of outputs.
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
    """Return a list with one value for each output.

    Raises:
        ArgumentClashError: the list has more or fewer values than the pipeline has outputs.
    """
    values = list(value) if isinstance(value, list) else [value] * num_outputs
    if len(values) != num_outputs:
        raise ArgumentClashError(
            f"Lengths of provided output descriptions do not match: {name} has {len(values)} entries, and the pipeline "
            f"{num_outputs} outputs"
        )
    return values


def check_outputs(expectations: Sequence[Expectation], outputs: Sequence[Any]) -> None:
    """Check one batch of every output against the declarations.

    Raises:
        DtypeMismatchError, NdimMismatchError, LayoutMismatchError: a batch differs.
    """
    for expectation in expectations:
        expectation.check(outputs[expectation.output])
