"""Make the functions ``fn.readers.file(...)`` and the classes ``ops.readers.File(...)`` from the classes of readers.

A reader becomes an external source with ``parallel=True``: the workers read, decode, and run the operators behind it. In a
pipeline with ``py_num_workers=0`` the main process does.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from dali_like.common.class_names import class_name
from dali_like.common.saved_arguments import SAVED, SavedText
from dali_like.errors import ArgumentTypeError, DaliLikeError, DeviceError
from dali_like.graph.language.nodes import source_nodes
from dali_like.operators.machinery.deprecations import renamed_arguments
from dali_like.operators.machinery.description import Description, description_of
from dali_like.operators.machinery.functions import (
    apply,
    check_names,
    deprecated_class,
    deprecated_function,
    make_class,
    make_function,
    preserve,
)
from dali_like.operators.parameters import Parameter, at_least, parameters_of, to_plain
from dali_like.sources.readers.reader import Reader
from dali_like.sources.readers.reader_order import ReaderOptions
from dali_like.sources.readers.reader_stream import ReaderStream
from dali_like.sources.readers.registered import registered_readers
from dali_like.sources.source_arguments import default_options
from dali_like.sources.source_checks import make_external_source
from dali_like.types import NO_TYPE

T = TypeVar("T")

#: Readers that DALI has introduced after the older names were deprecated.
_NEWER = {"webdataset"}


#: Arguments that a serialized pipeline does not need: its nodes know where they are wanted.
_NOT_NEEDED = {"device", "preserve"}


def arguments_of_all(
    *,
    name: SavedText | None = None,
    device: SavedText | None = "cpu",
    random_shuffle: bool = False,
    shuffle_after_epoch: bool = False,
    shuffle_after_epoch_seed: int | None = None,
    shard_id: Annotated[int, at_least(0)] = 0,
    num_shards: Annotated[int, at_least(1)] = 1,
    stick_to_shard: bool = False,
    pad_last_batch: bool = False,
    seed: int = -1,
    prefetch_queue_depth: Annotated[int, at_least(1)] = 1,
    preserve: bool = False,
    on_error: Annotated[Any, SAVED] = "raise",
    remote_options: Any = None,
    bytes_per_sample_hint: Any = 0,
    dont_use_mmap: bool = False,
    initial_fill: Annotated[int, at_least(0)] = 1024,
    lazy_init: bool = False,
    read_ahead: bool = False,
    skip_cached_images: bool = False,
    tensor_init_bytes: Annotated[int, at_least(0)] = 1 << 20,
) -> None:
    """The arguments of all readers.

    Args:
        name: name of the reader, for `Pipeline.reader_meta`, for ``reader_name`` of iterators, and in messages.
        device: where the data is wanted: "cpu" or "gpu".
        random_shuffle: deliver the samples in a random order, another one in each epoch.
        shuffle_after_epoch: the same, but all readers with equally many samples have the same order, whatever the seeds
            are, so readers of corresponding files deliver pairs. Each epoch reads the same shard of the new order. Readers
            of archives and records of MXNet shuffle the files, and keep the order within each.
        shuffle_after_epoch_seed: of the order of `shuffle_after_epoch`, the same in all ranks. Default: a fixed one.
        shard_id: the shard to read, from 0 on.
        num_shards: number of shards. Each begins at sample ``size * shard_id // num_shards``.
        stick_to_shard: read the same shard in each epoch. Otherwise the next epoch reads the next shard.
        pad_last_batch: repeat the last sample of the shard, so that all shards have equally many full batches.
        seed: of the order of `random_shuffle`. Default: the seed of the pipeline.
        prefetch_queue_depth: batches that the workers read ahead, on top of the pipeline's own prefetch_queue_depth.
        preserve: read even if the outputs are unused.
        on_error: "raise", "skip", or a function that returns a replacement; see ``fn.external_source``.
        remote_options: a dict of arguments of `dali_like.remote.RemoteFiles`, for paths that are URLs.
        lazy_init: list files and read indexes at the first run, or when `Pipeline.reader_meta` asks for them, and start the
            workers at the first run. Default: `Pipeline.build` does so, and raises the errors.
        bytes_per_sample_hint, dont_use_mmap, initial_fill: without effect.
        read_ahead, skip_cached_images, tensor_init_bytes: without effect.
    """


def reader_descriptions() -> Mapping[str, Description]:
    """Return the descriptions of all readers by their names in ``fn``."""
    return {path: description_of_reader(cls) for path, cls in registered_readers().items()}


def own_reader_descriptions() -> Mapping[str, Description]:
    """Return the descriptions of the readers that belong to this package, and not to users."""
    return {path: each for path, each in reader_descriptions().items() if is_own_reader(each)}


def is_own_reader(description: Description) -> bool:
    """Return whether a reader belongs to this package, and not to users."""
    return description.function.__module__.startswith("dali_like.")


@functools.cache
def description_of_reader(cls: type[Reader]) -> Description:
    """Return the description of a reader, which has no inputs."""
    fixed = cls.num_outputs if isinstance(cls.num_outputs, int) else 1
    own = parameters_of(cls.__init__)
    if cls.behind:
        own |= description_of(cls.behind).parameters
    return Description(
        path=cls.path,
        function=cls,
        doc=_doc_of(cls),
        parameters=own,
        common={name: parameter for name, parameter in _arguments_of_all().items() if name not in own},
        inputs=(),
        min_inputs=0,
        max_inputs=0,
        layouts="",
        num_outputs=fixed if cls.num_outputs is None or isinstance(cls.num_outputs, int) else lambda _: fixed,
        output_layout=None,
        check=None,
        random=False,
        per_sample=True,
    )


def _doc_of(cls: type[Reader]) -> str:
    """Return the docstring of a reader, with the arguments of the operator behind it."""
    doc = inspect.getdoc(cls) or ""
    if not cls.behind:
        return doc
    described = description_of(cls.behind)
    entries = re.split(r"\n(?=    \w)", described.doc.partition("\nArgs:")[2].partition("\n\n")[0])[1:]
    arguments = [entry for entry in entries if entry.strip().partition(":")[0] not in described.inputs]
    return doc.replace("\n\nReturns:", "\n".join(["", *arguments, "\nReturns:"]), 1)


@functools.cache
def _arguments_of_all() -> Mapping[str, Parameter]:
    return parameters_of(arguments_of_all)


def apply_reader(
    description: Description, inputs: Sequence[Any], given: Mapping[str, Any], *, stores_indexes: bool = True
) -> Any:
    """Add a reader to the graph.

    Args:
        description: of the reader.
        inputs: none.
        given: the arguments; None and NO_TYPE count as not given.
        stores_indexes: whether the reader stores the indexes that it builds, for later runs.

    Returns:
        A node; a list of nodes for a reader with several outputs; or a dict of nodes, if these have names.

    Raises:
        ArgumentError, DeviceError: an argument is not allowed; the message names it.
    """
    given = {name: _plain_paths(value) for name, value in given.items() if value is not None and value is not NO_TYPE}
    if inputs:
        raise ArgumentTypeError(f"{description.name} takes no inputs; give its arguments by name")
    given = renamed_arguments(description, given)
    check_names(description, given)
    cls: Any = description.function
    behind = description_of(cls.behind) if cls.behind else None
    for_behind = {name: given.pop(name) for name in [*given] if behind is not None and name in behind.parameters}
    values = {name: description.all_parameters[name].convert(value, description.name) for name, value in given.items()}
    common = {name: values.get(name, parameter.default) for name, parameter in description.common.items()}
    if common["device"] not in ("cpu", "gpu"):
        raise DeviceError(f'{description.name}: device={common["device"]!r}: a reader delivers to the "cpu" or to the "gpu"')
    stream = _named(description, lambda: _stream_of(cls, values, common, stores_indexes=stores_indexes))
    stream.reader.has_operator_behind = bool(for_behind)
    nodes = source_nodes(make_external_source(stream, stream.reader.num_outputs, _source_options(stream.reader, common)))
    if behind is not None and for_behind:
        nodes[0] = _named(description, lambda: apply(behind, [nodes[0]], for_behind))
    if common["device"] == "gpu":
        nodes = [node.gpu() for node in nodes]
    if common["preserve"]:
        preserve(description, nodes)
    if stream.reader.output_names:
        return dict(zip(stream.reader.output_names, nodes, strict=True))
    return nodes[0] if stream.reader.num_outputs is None else nodes


def _stream_of(cls: Any, values: Mapping[str, Any], common: Mapping[str, Any], *, stores_indexes: bool) -> ReaderStream:
    order = {name: common[name] for name in ReaderOptions.__dataclass_fields__ if name in common}
    options = ReaderOptions(**order, shuffles_files=cls.shuffles_files)
    own = parameters_of(cls.__init__)
    reader: Reader = cls(**{name: value for name, value in values.items() if name in own})
    reader.remote_options = common["remote_options"]
    reader.stores_indexes = stores_indexes
    _ = reader.files  # made here, so that wrong options raise now
    again = {name: to_plain(value) for name, value in values.items() if name not in _NOT_NEEDED}
    return ReaderStream(reader, options, again, is_lazy=common["lazy_init"])


def _source_options(reader: Reader, common: Mapping[str, Any]) -> Any:
    return {
        **default_options(),
        "name": common["name"],
        "batch": False,
        "parallel": True,
        "prefetch_queue_depth": common["prefetch_queue_depth"],
        "on_error": common["on_error"],
        "dtype": _listed(reader.dtype),
        "ndim": _listed(reader.ndim),
        "layout": _listed(reader.layout),
    }


def _named(description: Description, make: Callable[[], T]) -> T:
    """Return the result of a function. Its errors about arguments get the name of the reader."""
    try:
        return make()
    except DaliLikeError as error:
        if error.args and not str(error).startswith("fn."):
            error.args = (f"{description.name}: {error}", *error.args[1:])
        raise


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plain_paths(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain_paths(part) for part in value] if isinstance(value, (list, tuple)) else value


# Modules


def reader_names(module_name: str) -> list[str]:
    """Return the names of the readers in a module of ``fn`` or ``ops``."""
    return [name for _, name in _members(module_name)]


def reader_member(module_name: str, name: str) -> Any:
    """Return a reader of a module of ``fn`` (a function) or ``ops`` (a class) by its name, or None."""
    for description, its_name in _members(module_name):
        if its_name == name:
            is_function = module_name.startswith("dali_like.fn")
            made: Any = make_function(description, apply_reader) if is_function else make_class(description, apply_reader)
            made.__module__ = module_name
            setattr(sys.modules[module_name], name, made)
            return made
    return None


def older_reader_names() -> Mapping[str, Description]:
    """Return the readers that have deprecated names in ``fn`` by these names, such as "file_reader"."""
    found = {}
    for description in own_reader_descriptions().values():
        where, _, name = description.path.rpartition(".")
        if where != "readers" or name in _NEWER:
            continue
        first, _, rest = name.partition("_") if name == "video_resize" else (name, "", "")
        found[f"{first}_reader_{rest}" if rest else f"{name}_reader"] = description
    return found


def add_older_names(module_name: str) -> None:
    """Add the deprecated names of readers to ``fn`` or ``ops``, such as ``fn.file_reader`` and ``ops.FileReader``."""
    module = sys.modules[module_name]
    for older, description in older_reader_names().items():
        if module_name == "dali_like.fn":
            setattr(module, older, deprecated_function(older, make_function(description, apply_reader), description))
        else:
            name = class_name(older)
            setattr(module, name, deprecated_class(name, make_class(description, apply_reader)))


def _members(module_name: str) -> list[tuple[Description, str]]:
    _, root, *modules = module_name.split(".")
    members = []
    for description in reader_descriptions().values():
        *path, name = description.path.split(".")
        if path == modules:
            members.append((description, name if root == "fn" else class_name(name)))
    return members
