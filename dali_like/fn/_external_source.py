"""``fn.external_source``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Unpack, overload

from dali_like.common.checks import list_unknown
from dali_like.common.notices import warn
from dali_like.errors import ArgumentClashError, ArgumentTypeError
from dali_like.graph.defining import current_pipeline
from dali_like.graph.nodes import DataNode, SourceNode
from dali_like.sources.external_source import SourceOptions, default_options
from dali_like.sources.source_checks import make_external_source


@overload
def external_source(source: Any = None, num_outputs: None = None, **options: Unpack[SourceOptions]) -> DataNode: ...


@overload
def external_source(source: Any, num_outputs: int, **options: Unpack[SourceOptions]) -> list[DataNode]: ...


def external_source(
    source: Any = None, num_outputs: int | None = None, **options: Unpack[SourceOptions]
) -> DataNode | list[DataNode]:
    """Data from Python: a callable, an iterable, or what the user feeds, as in ``nvidia.dali.fn.external_source``.

    With ``batch=False`` a callable makes one sample. It is told which by a `dali_like.types.SampleInfo`, and ends the epoch
    by raising StopIteration: the batch with that sample is not delivered (but see ``last_batch_policy``), nor is any after
    it. With ``batch=True`` a callable makes a batch, and is told its number in the epoch. What a callable returns must
    depend on what it is told alone, since any worker may be asked for anything, and asked again.

    An iterable is walked through, anew in each epoch: an object with ``__iter__`` or ``__getitem__``, an array (its rows),
    or a generator function. An iterator of the interpreter or a generator cannot begin anew: each epoch goes on with it.

    Args:
        source: None: the user feeds the node, see `Pipeline.feed_input`. Else a callable (function, method,
            functools.partial, object) or an iterable. Under ``py_start_method="spawn"`` it travels to the workers by value,
            what it refers to in ``__main__`` or a notebook included. A coroutine function makes several samples at once.
        num_outputs: None: the callable returns an array, or a batch of them. An integer: it returns a tuple or list of so
            many, and this function returns a list of so many nodes.
        cycle: for iterables. None: they end the epoch, and begin anew in the next one. False or "no": they do not begin
            anew. True or "quiet": they begin anew at once, and never end an epoch. "raise": as None.
        name: how messages call the source, and `Pipeline.feed_input` an input.
        device: where the data is wanted: "cpu" or "gpu". On the GPU, a source that is not parallel may return arrays that
            are there: of CuPy, PyTorch, or whatever has ``__cuda_array_interface__``. They are copied when all samples of
            the batch have been made. For arrays on the CPU, ``.gpu()`` is the faster way.
        layout: a letter for each dimension of a sample, such as "HWC"; a list has one for each output. Default: that of the
            tensors, if a source in the main process returns such.
        dtype: the element type, as a `dali_like.types.DALIDataType`, NumPy dtype or name; a list has one for each output.
            Without it, the first batch fixes the type. ``types.OBJECT``: any Python objects, which are pickled on the way,
            and delivered as a list.
        ndim: the number of dimensions of a sample; a list has one for each output. Without it, the first batch fixes it.
        blocking: for inputs. True: `run` waits until they are fed. Otherwise it raises NoInputError.
        batch: whether the source makes batches: lists or tuples of arrays, an array whose first dimension counts the
            samples, or a TensorList; of any number of samples up to ``batch_size``. False: single samples.
        repeat_last: for inputs. True: what was fed last is delivered again if there is nothing new.
        parallel: True: worker processes call copies of the source; an iterable is walked through in one of them. False: the
            main process does, in `run`.
        no_copy: for inputs, and for arrays on the GPU. True: they are not copied, and must not be changed as long as anybody
            uses the batch.
        prefetch_queue_depth: how many batches parallel workers compute ahead, on top of the pipeline's own
            prefetch_queue_depth; with ``sharded=True``, each of them. Default 1.
        batch_info: True: a callable that makes batches is told by a `dali_like.types.BatchInfo`.
        preserve: True: the source is called even if no output of the current pipeline needs it.
        cuda_stream: for arrays on the GPU: the stream that has made them. Default: any of the GPU's default stream, and the
            current ones of PyTorch and CuPy.
        use_copy_kernel: for arrays on the GPU. True: a kernel copies them, and not the copy engine.
        bytes_per_sample_hint: without effect.
        on_error: what happens when the callable raises, or returns what cannot be delivered. "raise": `run` raises it.
            "skip": the sample (or batch) of the next index that succeeds stands in, which no other row notices. Or a
            callable: it is given the SampleInfo (or BatchInfo) and the exception, and returns what stands in. Replacements
            are logged, to the logger "dali_like", and counted in `Pipeline.statistics`.
        worker_setup: called without arguments in each worker before its first sample; for a source that is not parallel, in
            the main process. The place to open a database connection: give a method of the callable object, say. It travels
            together with the source, so that both refer to the same object there. It may be a coroutine function.
        worker_teardown: likewise, when the worker is told to end, or the pipeline is closed. Workers that are killed do
            without.
        size: how many samples (with ``batch=True``, batches) an epoch has, where the source does not end it. Default: the
            ``len()`` of the source, if it has one. With shards: of all of them together.
        last_batch_policy: what becomes of the samples of a batch that the end of the epoch leaves incomplete. "drop": they
            are dropped, as in DALI. "partial": they are a batch. "fill": they are, and the last of them is repeated until
            it is full. Also as a `dali_like.plugin.LastBatchPolicy`.
        sharded: True: every worker walks through an iterable of its own, and learns from `dali_like.get_worker_info` which
            part is its. The epoch is one batch of each worker in turn, as in PyTorch.
        shard: "auto": this process is one of several ranks, each of which delivers its part of every epoch. Which it is, is
            found out; see `dali_like.sources.ranks.detect_shard`.
        shard_id, num_shards: in the place of "auto": which rank this is, from 0 on, and of how many. A callable is told the
            position in the epoch of all ranks: by ``idx_in_epoch``, or the number of the batch. In iteration i, rank r
            makes batch ``i * num_shards + r``, so that what all ranks make in one iteration lies side by side. Nothing
            comes twice, and nothing is missing, up to the rest. Of an iterable, each rank walks through all, and delivers
            what is its. All callables of a pipeline name the same shard.
        shard_rest: what becomes of the last samples of an epoch that do not fill a batch on each rank. "drop", the default:
            they are left out. "pad": the first samples come again. Either way all ranks have as many full batches.
            "uneven": the first ranks have a last batch of them, or a part of one, and the others have none; the only one
            where the length of an epoch is not known.
        concurrency: how many samples a coroutine function makes at once in each worker. Default: as many as it is given,
            which is its share of a batch.

    Returns:
        A node, or a list of nodes if `num_outputs` is given.

    Raises:
        ArgumentError, DefinitionError, DeviceError: an argument is wrong, or the source cannot be used like that.
    """
    given: dict[str, Any] = dict(options)
    if given.pop("seed", None) is not None:  # every operator of DALI has this argument
        warn("external_source: seed has no effect, since there are no random numbers", DeprecationWarning)
    defaults = default_options()
    if unknown := sorted(given.keys() - defaults.keys()):
        known = ("source", "num_outputs", *defaults)
        raise ArgumentTypeError(f"external_source got unexpected arguments: {list_unknown(unknown, known)}")
    complete: Any = {**defaults, **given}
    external = make_external_source(source, num_outputs, complete)
    node = SourceNode(external)
    names = [f"{external.name}[{i}]" for i in range(len(external.declared))]
    if num_outputs is None and external.key is not None:
        names = [external.key]
    nodes = [DataNode(name, "cpu", node, i) for i, name in enumerate(names)]
    outputs = nodes if external.options["device"] == "cpu" else [node.gpu() for node in nodes]
    if external.options["preserve"]:
        _preserve(outputs)
    return outputs[0] if num_outputs is None else outputs


def _preserve(nodes: Iterable[DataNode]) -> None:
    pipeline = current_pipeline()
    if pipeline is None:
        raise ArgumentClashError("preserve=True needs a current pipeline: use it in `with pipeline:`")
    for node in nodes:
        pipeline.add_sink(node)


def _signature() -> inspect.Signature:
    """Return the signature with the names of all arguments, for `help`."""
    plain = inspect.signature(external_source)
    first = [parameter for parameter in plain.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    types = SourceOptions.__annotations__
    others = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=types[name])
        for name, default in default_options().items()
    ]
    return plain.replace(parameters=[*first, *others])


external_source.__signature__ = _signature()  # type: ignore[attr-defined]
