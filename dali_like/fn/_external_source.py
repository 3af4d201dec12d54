"""``fn.external_source``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Unpack, overload

from dali_like.common.notices import warn
from dali_like.common.suggestions import list_unknown
from dali_like.common.tracebacks import user_frames_first
from dali_like.errors import ArgumentClashError, ArgumentTypeError
from dali_like.graph.language.defining import current_pipeline
from dali_like.graph.language.nodes import DataNode, source_nodes
from dali_like.sources.source_arguments import SourceOptions, default_options, plain_types
from dali_like.sources.source_checks import make_external_source


@overload
def external_source(source: Any = None, num_outputs: None = None, **options: Unpack[SourceOptions]) -> DataNode: ...


@overload
def external_source(source: Any, num_outputs: int, **options: Unpack[SourceOptions]) -> list[DataNode]: ...


@user_frames_first
def external_source(
    source: Any = None, num_outputs: int | None = None, **options: Unpack[SourceOptions]
) -> DataNode | list[DataNode]:
    """Return data from Python: from a callable, an iterable, or the user, as in ``nvidia.dali.fn.external_source``.

    With ``batch=False`` a callable returns one sample. A `dali_like.types.SampleInfo` tells it which one. It ends the epoch
    by raising StopIteration: the batch of that sample and all later batches are not delivered (but see
    ``last_batch_policy``). With ``batch=True`` a callable returns a batch, and its argument is the number of the batch in
    the epoch. The result must depend on the argument alone: any worker may be asked for any sample, and asked again.

    An iterable is an object with ``__iter__`` or ``__getitem__``, an array (its rows), or a generator function. It restarts
    in each epoch. An iterator of the interpreter or a generator cannot restart: each epoch continues it.

    Args:
        source: None: the user feeds the node, see `Pipeline.feed_input`. Else a callable (function, method,
            functools.partial, object) or an iterable. Under ``py_start_method="spawn"`` it travels to the workers by value,
            including everything in ``__main__`` or a notebook that it uses. A coroutine function computes several samples
            at once. A `dali_like.data.ComposedDataset`: its elements are the samples, whatever ``batch`` is, and its length
            ends the epoch. See below.
        num_outputs: None: the callable returns an array, or a batch of arrays. An integer: it returns a tuple or list of so
            many, and this function returns a list of so many nodes.
        cycle: for iterables. None: they end the epoch, and restart in the next one. False or "no": they do not restart.
            True or "quiet": they restart at once, and never end an epoch. "raise": as None.
        name: name of the source in messages, and of an input for `Pipeline.feed_input`.
        device: where the data is wanted: "cpu" or "gpu". With "gpu", a source that is not parallel may return arrays on the
            GPU: of CuPy, PyTorch, or another library with ``__cuda_array_interface__``. They are copied after all samples
            of the batch have been computed. For arrays on the CPU, ``.gpu()`` is faster.
        layout: a letter for each dimension of a sample, such as "HWC"; a list has one layout per output. Default: the
            layout of the tensors, if a source in the main process returns tensors.
        dtype: the element type, as a `dali_like.types.DALIDataType`, NumPy dtype or name; a list has one per output.
            Default: the first batch fixes the type. ``types.OBJECT``: any Python objects; they travel as pickles and are
            delivered as a list.
        ndim: the number of dimensions of a sample; a list has one per output. Default: the first batch fixes it.
        blocking: for inputs. True: `run` waits until they are fed. Otherwise it raises NoInputError.
        batch: True: the source returns batches: lists or tuples of arrays, an array whose first dimension counts the
            samples, or a TensorList; of up to ``batch_size`` samples. False: it returns single samples.
        repeat_last: for inputs. True: the last batch is delivered again if no new one has been fed.
        parallel: True: worker processes call copies of the source; one worker iterates an iterable. False: the main process
            does, in `run`.
        no_copy: for inputs, and for arrays on the GPU. True: they are not copied, and must not be changed while the batch
            is in use.
        prefetch_queue_depth: batches that parallel workers compute ahead, on top of the pipeline's own
            prefetch_queue_depth; with ``sharded=True``, per worker. Default 1.
        batch_info: True: the argument of a callable that returns batches is a `dali_like.types.BatchInfo`.
        preserve: True: the source is called even if no output of the current pipeline needs it.
        cuda_stream: for arrays on the GPU: the stream that computes them. Default: the GPU's default stream, and the
            current ones of PyTorch and CuPy.
        use_copy_kernel: for arrays on the GPU. True: a kernel copies them, instead of the copy engine.
        bytes_per_sample_hint: without effect.
        on_error: the reaction to an exception of the callable, or to an invalid result. "raise": `run` raises it. "skip":
            the next sample (or batch) that succeeds replaces it; no other row changes. A callable: it is called with the
            SampleInfo (or BatchInfo) and the exception, and returns the replacement. Errors of operators that use single
            samples of this source only are treated alike. Replacements are logged to the logger "dali_like", and counted
            in `Pipeline.statistics`.
        worker_setup: called without arguments in each worker before its first sample; for a source that is not parallel, in
            the main process. Open database connections here, for example in a method of the callable object. It travels
            together with the source: both refer to the same object in the worker. It may be a coroutine function.
        worker_teardown: likewise, when the worker is stopped or the pipeline is closed. Killed workers do not call it.
        size: samples (with ``batch=True``, batches) after which the epoch ends. With shards: the total of all shards.
            Default: with `last_batch_policy` or a shard, the ``len()`` of the source, if it has one. Otherwise the source
            ends the epoch, by StopIteration; as in DALI, its ``len()`` does not.
        last_batch_policy: the treatment of samples that do not fill the last batch of an epoch. "drop": they are dropped,
            the default. "partial": they form a smaller batch. "fill": the last sample is repeated until the batch is full.
            A `dali_like.plugin.LastBatchPolicy` is accepted, too.
        sharded: True: every worker iterates its own iterable, and learns its part from `dali_like.get_worker_info`. An
            epoch takes one batch of each worker in turn, as in PyTorch.
        shard: "auto": this process is one of several ranks. Each rank delivers its part of every epoch. The rank is
            detected; see `dali_like.sources.ranks.detect_shard`.
        shard_id, num_shards: instead of "auto": the rank, from 0 on, and the number of ranks. The argument of a callable is
            the position in the epoch of all ranks: ``idx_in_epoch``, or the number of the batch. In iteration i, rank r
            computes batch ``i * num_shards + r``, so the batches of one iteration on all ranks are consecutive. Every
            sample is delivered exactly once, except for the rest. Each rank iterates a whole iterable, and delivers its
            part. All callables of a pipeline must have the same shard.
        shard_rest: the treatment of the last samples of an epoch that do not fill a batch on each rank. "drop", the default:
            they are left out. "pad": the first samples are repeated. In both cases all ranks have equally many full batches.
            "uneven": the first ranks have a last batch, or a part of one, and the others have none. Required if the length
            of an epoch is unknown.
        mesh: instead of `shard_id` and `num_shards`: the ``DeviceMesh`` of PyTorch, or the ``Mesh`` of JAX, that this
            process is part of. Peers in tensor, context and pipeline parallelism have the same batches. See
            `dali_like.sources.meshes.shard_in_mesh`.
        mesh_dims: the data-parallel dimensions of the mesh. None: those with names such as "dp", "data" and "dp_shard".
        cache: stores what a callable returns, and calls it once for each sample, or with ``batch=True`` for each batch: the
            limit of the memory, such as "16GiB", or a dict with the arguments of `fn.cache`. The callable must return the
            same for the same position in each epoch. Of a composed dataset, the elements are stored.
        share_batches: whether several workers compute a batch together. False: one worker computes all of its samples, in
            order. That is better where neighbors are cheap to read together, such as samples of one chunk or of one file.
            "auto": True, or False where measurements show such neighbors. The batches are the same.
        concurrency: samples that a coroutine function computes at once in each worker, also of the next batches. Default: as
            many as a batch has.

    A composed dataset delivers its positions as `dali_like.data.DataLoader` does: those of the ranks interleave, rank r of
    ``num_shards`` has the positions p with ``p % num_shards == r``. With random access, any worker computes any element, and
    a checkpoint of one rank serves any number of ranks and any batch size. The logical shards of a dataset are divided among
    all workers. Batches are smaller where shards have ended; ``last_batch_policy="drop"`` drops these. To resume on another
    number of ranks, pass the list of the checkpoints of all ranks. Elements that are tuples need ``num_outputs``.

    Returns:
        A node, or a list of nodes if `num_outputs` is given.

    Raises:
        ArgumentError, DefinitionError, DeviceError: an argument is wrong, or the source cannot be used with the options.
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
    nodes = source_nodes(external)
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
    types = plain_types()
    others = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=types[name])
        for name, default in default_options().items()
    ]
    return plain.replace(parameters=[*first, *others])


vars(external_source)["__signature__"] = _signature()
