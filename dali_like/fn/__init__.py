"""The functional API: each function adds a node to the pipeline's graph. Names and arguments follow ``nvidia.dali.fn``."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Unpack, overload

from dali_like.errors import DefinitionError
from dali_like.external_source import SourceArguments, SourceOptions, make_external_source
from dali_like.fn import decoders
from dali_like.graph.nodes import DataNode, SourceNode

__all__ = ["decoders", "external_source"]


def __dir__() -> list[str]:
    return __all__


@overload
def external_source(source: Any = None, num_outputs: None = None, **options: Unpack[SourceOptions]) -> DataNode: ...


@overload
def external_source(source: Any, num_outputs: int, **options: Unpack[SourceOptions]) -> list[DataNode]: ...


def external_source(
    source: Any = None, num_outputs: int | None = None, **options: Unpack[SourceOptions]
) -> DataNode | list[DataNode]:
    """Data from a Python callable, as in ``nvidia.dali.fn.external_source``.

    The callable makes one sample. It is told which by a `dali_like.types.SampleInfo`, and ends the epoch by raising
    StopIteration: the batch with that sample is not delivered, nor is any after it. What it returns must depend on the
    SampleInfo alone, since any worker may be asked for any sample, and asked again.

    Args:
        source: a function, method, functools.partial or callable object. Under ``py_start_method="spawn"`` it travels to the
            workers by value, what it refers to in ``__main__`` or a notebook included.
        num_outputs: None: the callable returns an array. An integer: it returns a tuple or list of so many arrays, and
            this function returns a list of so many nodes.
        name: how messages call the source.
        device: where the data is wanted: "cpu".
        layout: a letter for each dimension of a sample, such as "HWC"; a list has one for each output.
        dtype: the element type, as a `dali_like.types.DALIDataType`, NumPy dtype or name; a list has one for each output.
            Without it, the first batch fixes the type.
        ndim: the number of dimensions of a sample; a list has one for each output. Without it, the first batch fixes it.
        batch: False: the callable makes single samples.
        parallel: True: worker processes call copies of the source. False: the main process does, in `run`.
        prefetch_queue_depth: how many batches parallel workers compute ahead, on top of the pipeline's own
            prefetch_queue_depth. Default 1.
        on_error: what happens when the callable raises, or returns what cannot be delivered. "raise": `run` raises it.
            "skip": the sample of the next index that succeeds stands in, which no other row notices. Or a callable: it is
            given the SampleInfo and the exception, and returns what stands in. Replaced samples are logged, to the logger
            "dali_like", and counted in `Pipeline.statistics`.
        worker_setup: called without arguments in each worker before its first sample; for a source that is not parallel, in
            the main process. The place to open a database connection: give a method of the callable object, say. It travels
            together with the source, so that both refer to the same object there.
        worker_teardown: likewise, when the worker is told to end, or the pipeline is closed. Workers that are killed do
            without.

    Returns:
        A node, or a list of nodes if `num_outputs` is given.

    Raises:
        ArgumentError, DefinitionError, DeviceError: an argument is wrong, or the callable cannot be called with one.
    """
    unknown = sorted(set(options) - {field.name for field in dataclasses.fields(SourceArguments)})
    if unknown:
        raise DefinitionError(f"external_source got unexpected arguments: {', '.join(unknown)}")
    external = make_external_source(source, num_outputs, SourceArguments(**options))
    node = SourceNode(external)
    outputs = [DataNode(f"{external.name}[{i}]", "cpu", node, i) for i in range(len(external.declared))]
    return outputs[0] if num_outputs is None else outputs


def _signature() -> inspect.Signature:
    """With the names of all arguments, for `help`."""
    plain = inspect.signature(external_source)
    first = [parameter for parameter in plain.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    others = inspect.signature(SourceArguments).parameters.values()
    return plain.replace(parameters=[*first, *others])


external_source.__signature__ = _signature()  # type: ignore[attr-defined]
