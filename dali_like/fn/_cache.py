"""``fn.cache``."""

from __future__ import annotations

import os
from typing import overload

from dali_like.common.suggestions import suggest_arguments
from dali_like.common.tracebacks import user_frames_first
from dali_like.errors import ArgumentTypeError
from dali_like.graph.execution.cache_operator import cached
from dali_like.graph.language.nodes import DataNode
from dali_like.sources.caching.cache_options import CacheOptions


@overload
def cache(
    data: DataNode,
    /,
    *,
    memory: int | str | None = None,
    disk: str | os.PathLike[str] | None = None,
    key: str | None = None,
    policy: str = "keep",
) -> DataNode: ...


@overload
def cache(
    *inputs: DataNode,
    memory: int | str | None = None,
    disk: str | os.PathLike[str] | None = None,
    key: str | None = None,
    policy: str = "keep",
) -> list[DataNode]: ...


@user_frames_first
@suggest_arguments
def cache(
    *inputs: DataNode,
    memory: int | str | None = None,
    disk: str | os.PathLike[str] | None = None,
    key: str | None = None,
    policy: str = "keep",
) -> DataNode | list[DataNode]:
    """Store results in memory that all workers share, and compute them once for each sample.

    In later epochs, the operators before the cache do not run. In workers, the source is not called either, if the pipeline
    needs nothing else from it. Call it behind deterministic work such as decoding, and before random operators.

    A sample of a reader is identified by its number in the dataset, whatever its order. Other samples are identified by
    their position in the epoch: the source must return the same sample for the same ``idx_in_epoch`` in each epoch.

    The cache belongs to the pipeline and lives as long.

    Args:
        inputs: the results to store: one node, or several that are needed together, such as image and label.
        memory: limit of the results in memory: bytes, or a text such as "16GiB". None: only on disk.
        disk: folder that only this user may enter; it is created. The results of each sample are a file there, without a
            limit, and later runs read it. Damaged files are computed again.
        key: identifies the results on disk, together with the operators, their arguments, and the sizes and times of the
            reader's files. Required with `disk` behind a function of the program, such as a callable source: change it after
            each change of such a function.
        policy: when the memory is used up: "keep" stores no more results, "lru" replaces those used least recently.

    Returns:
        A node for one input, otherwise a list of nodes.

    Raises:
        ArgumentError: an operator or stage before the cache is random or depends on whole batches; the message names it. Or
            the inputs depend on several sources, or on one whose samples have no positions; or an argument has an unknown
            value. Building the pipeline raises it for a missing `key`, and for a folder that others may enter.
        ArgumentTypeError: an input is not a node.
    """
    if not inputs or not all(isinstance(node, DataNode) for node in inputs):
        raise ArgumentTypeError("fn.cache takes nodes, such as fn.cache(images, labels, memory='16GiB')")
    nodes = cached(inputs, CacheOptions.of(memory=memory, disk=disk, key=key, policy=policy))
    return nodes[0] if len(nodes) == 1 else nodes
