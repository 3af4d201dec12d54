"""``ops.ExternalSource``."""

from __future__ import annotations

from typing import Any, Unpack

from dali_like.common.tracebacks import user_frames_first
from dali_like.errors import ArgumentClashError
from dali_like.fn._external_source import external_source
from dali_like.graph.language.nodes import DataNode
from dali_like.sources.source_arguments import SourceOptions


class ExternalSource:
    """An external source, as in ``nvidia.dali.ops.ExternalSource``.

    It takes the arguments of `dali_like.fn.external_source`, with two differences, as in DALI: the default of ``batch`` is
    ``not parallel``; and without a source, ``num_outputs`` makes so many inputs. Each argument may be given once, to the
    constructor or to a call.

    >>> import numpy as np
    >>> from dali_like import Pipeline, ops
    >>> source = ops.ExternalSource(source=lambda info: np.int32(info.idx_in_batch), batch=False)
    >>> pipe = Pipeline(batch_size=3)
    >>> pipe.set_outputs(source(layout=""))
    >>> pipe.run()[0].as_array()
    array([0, 1, 2], dtype=int32)
    >>> pipe.close()
    """

    @user_frames_first
    def __init__(self, source: Any = None, num_outputs: int | None = None, **options: Unpack[SourceOptions]) -> None:
        self._source = source
        self._num_outputs = num_outputs
        self._options: dict[str, Any] = dict(options)

    @user_frames_first
    def __call__(self, *, source: Any = None, **options: Unpack[SourceOptions]) -> DataNode | list[DataNode]:
        """Return the node, or nodes.

        Raises:
            ArgumentClashError: an argument was given to the constructor, too.
            ArgumentError, DefinitionError, DeviceError: see `dali_like.fn.external_source`.
        """
        given = {name for name, value in self._options.items() if value is not None}
        again = sorted(name for name, value in options.items() if value is not None and name in given)
        if source is not None and self._source is not None:
            again.append("source")
        if again:
            raise ArgumentClashError(f"{', '.join(again)}: already specified in constructor")
        merged: dict[str, Any] = {"batch": None, **self._options, **options}
        source = self._source if source is None else source
        if source is None and self._num_outputs is not None:
            return [external_source(**merged) for _ in range(self._num_outputs)]
        return external_source(source, self._num_outputs, **merged)
