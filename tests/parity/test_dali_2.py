"""DALI 2.4.0: the schema of each operator on the CPU, and the results of what DALI 1.53 does not have.

``make dali2`` runs it. Where both versions differ, dali_like follows DALI 1.53: the tables have these differences.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

nvidia_dali: Any = pytest.importorskip("nvidia.dali")
if int(nvidia_dali.__version__.partition(".")[0]) < 2:
    pytest.skip("needs DALI 2", allow_module_level=True)

from nvidia.dali import backend  # noqa: E402

import dali_like  # noqa: E402
from dali_like.operators.machinery.deprecations import ARGUMENTS, OF_DALI_2  # noqa: E402
from dali_like.operators.machinery.description import Description, descriptions  # noqa: E402
from dali_like.operators.machinery.reader_functions import reader_descriptions  # noqa: E402
from tests.image_files import GRAY_PIXELS, ORIENTED_FILES, RGB_PIXELS, as_file, image_file  # noqa: E402
from tests.parity import test_operator_schemas as operators_of_1_53  # noqa: E402
from tests.parity import test_reader_schemas as readers_of_1_53  # noqa: E402
from tests.parity.alike import assert_both_refuse  # noqa: E402
from tests.parity.side_by_side import assert_alike, run_one  # noqa: E402
from tests.sources.readers.videos import make_video  # noqa: E402

pytestmark = pytest.mark.peers

_DECODERS = ("image", "image_crop", "image_random_crop", "image_slice")
_FORMER = "the default of DALI 1.53"
#: Differences from the schemas of DALI 2.4.0, as `differences` names them, with the reasons.
DIFFERENCES: dict[tuple[str, str], str] = {
    **{(f"decoders.{name}", "default of adjust_orientation"): _FORMER for name in _DECODERS},
    **{(f"decoders.{name}", "default of dtype"): "UINT8 without rounding, as in DALI 1.53" for name in _DECODERS},
    **{(f"experimental.decoders.{name}", "default of hw_decoder_load"): "it has no effect" for name in _DECODERS},
    ("experimental.readers.video", "default of enable_frame_num"): "False is 'none'",
    ("peek_image_shape", "default of adjust_orientation"): _FORMER,
    ("peek_image_shape", "default of image_type"): _FORMER,
    ("transpose", "default of output_layout"): "an empty text is None",
}
#: Functions that are not operators here, but have the arguments of others.
NO_OPERATORS = {"external_source", "experimental.inputs.video"}


def functions(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the operators on the CPU, with their names in ``fn`` and their schemas. Older names are left out."""
    for name, member in vars(module).items():
        if name.startswith("_") or name == "hidden":
            continue
        if isinstance(member, ModuleType) and member.__name__ == f"{module.__name__}.{name}":
            yield from ((f"{name}.{inner}", schema) for inner, schema in functions(member))
        elif getattr(member, "_schema_name", None) in {*backend.RegisteredCPUOps(), *backend.RegisteredMixedOps()}:
            schema = backend.GetSchema(member._schema_name)
            if not schema.IsDeprecated() and not schema.IsDocHidden():
                yield name, schema


SCHEMAS = dict(functions(nvidia_dali.fn))


def test_each_operator_exists() -> None:
    missing = []
    for path in SCHEMAS:
        try:
            functools.reduce(getattr, path.split("."), dali_like.fn)
        except AttributeError:
            missing.append(path)
    assert missing == []


def description_of(path: str) -> Description:
    return {**descriptions(), **reader_descriptions()}[OF_DALI_2.get(path, path)]


@pytest.mark.parametrize("path", sorted({*SCHEMAS} - NO_OPERATORS))
def test_arguments_of_each_operator(path: str) -> None:
    found = differences(description_of(path), SCHEMAS[path])

    assert found == {what for operator, what in DIFFERENCES if operator == path}


def differences(description: Description, schema: Any) -> set[str]:
    """Return the differences between an operator and its schema that the tables for DALI 1.53 do not have."""
    is_reader = description.path in reader_descriptions()
    tables = readers_of_1_53 if is_reader else operators_of_1_53
    path, common = description.path, tables.COMMON
    renamed = {*ARGUMENTS.get(path, ())}
    theirs = {*schema.GetArgumentNames()} - renamed
    ours = set(description.all_parameters)
    left_out = {name for name in theirs - ours if name in tables.LEFT_OUT or (path, name) in tables.LEFT_OUT}
    found = {f"{name} is missing" for name in theirs - ours - left_out}
    found |= {f"{name} is ours" for name in ours - theirs - common if (path, name) not in tables.ADDED}
    for name in (ours & theirs) - common:
        parameter = description.all_parameters[name]
        if (path, name) not in tables.NO_NODES and bool(parameter.per_sample) != bool(schema.IsTensorArgument(name)):
            found.add(f"{name} as a node")
        if not is_reader and parameter.per_frame != schema.ArgSupportsPerFrameInput(name):
            found.add(f"{name} by frame")
        if (path, name) not in tables.OTHER_DEFAULTS and not _same_default(parameter, schema, is_reader=is_reader):
            found.add(f"default of {name}")
    if not is_reader:
        inputs = (description.min_inputs, description.max_inputs or schema.MaxNumInput(), description.random)
        if inputs != (schema.MinNumInput(), schema.MaxNumInput(), schema.HasRandomSeedArg()):
            found.add("inputs")
    return found


def _same_default(parameter: Any, schema: Any, *, is_reader: bool) -> bool:
    theirs = operators_of_1_53.theirs(schema, parameter.name)
    if is_reader:
        return bool(readers_of_1_53.plain(parameter.default) == readers_of_1_53.plain(theirs))
    return bool(operators_of_1_53.ours(parameter) == pytest.approx(theirs))


# Results


@pytest.mark.parametrize(("tiles_x", "tiles_y"), [(1, 1), (8, 8), (5, 3)])
@pytest.mark.parametrize("clip_limit", [0.0, 1.0, 2.5, 40.0])
def test_clahe(tiles_x: int, tiles_y: int, clip_limit: float) -> None:
    arguments = {"tiles_x": tiles_x, "tiles_y": tiles_y, "clip_limit": clip_limit}
    assert_alike(
        lambda library, gray, color: {
            "gray": library.fn.clahe(gray, **arguments),
            "lightness": library.fn.clahe(color, **arguments),
            "channels": library.fn.clahe(color, luma_only=False, **arguments),
        },
        [GRAY_PIXELS, GRAY_PIXELS[:33, :57] // 3 + 40],
        [RGB_PIXELS, RGB_PIXELS[:50, :31] // 2],
        layouts=["HWC", "HWC"],
    )


def test_layouts_of_filled_arrays() -> None:
    def define(library: Any, shape: Any, value: Any) -> dict[str, Any]:
        fn = library.fn
        return {
            "zeros": fn.zeros(shape=[2, 3], layout="HW"),
            "ones": fn.ones(shape=shape, layout="AB"),
            "full": fn.full(value, shape=[4, 2], layout="XY"),
            "no layout": fn.zeros(shape=[2, 3], layout=""),
        }

    assert_alike(define, [np.int32([2, 3]), np.int32([1, 2])], [np.float32([1, 2])] * 2)


def test_wrong_layouts_of_filled_arrays() -> None:
    assert_both_refuse(lambda library, _: library.fn.zeros(shape=[2, 3], layout="HWC"), [0], match="layout")
    assert_both_refuse(lambda library, shape: library.fn.ones(shape=shape, layout="HWC"), [np.int32([2, 3])], match="layout")


def test_shapes_of_images() -> None:
    files = [as_file(ORIENTED_FILES["jpeg"](6)), image_file("png_rgba"), image_file("png_gray")]

    def define(library: Any, data: Any) -> dict[str, Any]:
        types = library.types
        return {
            f"{color} {upright}": library.fn.peek_image_shape(
                data, image_type=getattr(types, color), adjust_orientation=upright, dtype=types.INT32
            )
            for color in ("RGB", "GRAY", "ANY_DATA")
            for upright in (True, False)
        }

    assert_alike(define, files)


@pytest.mark.parametrize("dtype", ["UINT8", "UINT16", "INT16", "FLOAT"])
def test_types_and_orientation_of_decoded_images(dtype: str) -> None:
    files = [as_file(ORIENTED_FILES["tiff_rgb_16"](6)), image_file("png_rgb"), as_file(ORIENTED_FILES["tiff_rgb_16"](1))]

    def define(library: Any, data: Any) -> dict[str, Any]:
        decoders, outputs = library.fn.decoders, {}
        for upright in (True, False):
            given = {"dtype": getattr(library.types, dtype), "adjust_orientation": upright}
            outputs |= {
                f"whole {upright}": decoders.image(data, **given),
                f"crop {upright}": decoders.image_crop(data, crop=[20, 30], crop_pos_x=0.0, crop_pos_y=1.0, **given),
                f"slice {upright}": decoders.image_slice(data, start=[3, 5], shape=[40, 21], **given),
            }
        return outputs

    assert_alike(define, files)


@pytest.mark.parametrize(
    "options",
    [
        {"enable_frame_num": "sequence", "pad_mode": "constant"},
        {"enable_frame_num": "sequence", "pad_mode": "reflect"},
        {"enable_frame_num": "scalar"},
        {"enable_frame_num": True},
        {"enable_frame_num": "none"},
        *({"uniform_sample": True, "sequence_length": length, "enable_frame_num": "sequence"} for length in (1, 3, 5, 30)),
    ],
    ids=str,
)
def test_numbers_of_frames(options: dict[str, Any], tmp_path: Path) -> None:
    names = [str(tmp_path / f"{length}.webm") for length in (13, 1, 4)]
    for name, length in zip(names, (13, 1, 4), strict=True):
        make_video(Path(name), length, codec="libvpx-vp9")  # DALI 2 does not decode H.264 on the CPU
    given = {"sequence_length": 4, "filenames": names, "labels": [1, 2, 3], **options}

    def define(library: Any) -> dict[str, Any]:
        return dict(zip(("frames", "label", "numbers"), library.fn.experimental.readers.video(**given), strict=False))

    assert_alike(define, batch_size=3)


def test_each_seed_of_the_order_after_an_epoch_gives_each_sample_once(tmp_path: Path) -> None:
    """The orders differ from DALI's. Both depend on the seed alone."""
    names = []
    for number in range(9):
        names.append(str(tmp_path / f"{number}.npy"))
        np.save(names[-1], np.int32([number]))

    def orders(library: Any) -> list[list[int]]:
        def define(library: Any) -> dict[str, Any]:
            return {
                str(seed): library.fn.readers.numpy(
                    files=names, shuffle_after_epoch=True, **({} if seed is None else {"shuffle_after_epoch_seed": seed})
                )
                for seed in (None, 5, 5, -5)
            }

        outputs = run_one(library, define, (), (), batch_size=27)
        return [[int(sample[0]) for sample in output.samples[18:]] for output in outputs.values()]

    for library in (nvidia_dali, dali_like):
        found = orders(library)
        assert all(sorted(order) == [*range(9)] for order in found)
        assert len({tuple(order) for order in found}) == len(found) == 3


# Dynamic mode

DYNAMIC = [
    *("", "capture", "checkpoint", "decoders", "io", "io.file", "math", "noise", "random", "readers", "reductions"),
    *("segmentation", "transforms", "experimental"),
]
#: Imports of DALI's modules, and implementations of Python's operators.
INTERNAL = {
    *("Any", "DeviceLike", "NamedTuple", "NoReturn", "Optional", "TypeAlias", "Union", "annotations", "local"),
    *("arithmetic_generic_op", "tensor_subscript", "subscript_dim_check"),
}
#: Methods and arguments that pass data between DALI's parts.
OF_PARTS = {"batch", "cached_results", "cache_results", "docs", "index_in_batch", "invocation_result", "num_inputs"}


def dynamic(library: Any, path: str) -> Any:
    importlib.import_module(f"{library.__name__}.experimental.dynamic")
    return functools.reduce(getattr, filter(None, path.split(".")), library.experimental.dynamic)


def public(member: Any) -> set[str]:
    return {name for name in vars(member) if not name.startswith("_")} - INTERNAL


@pytest.mark.parametrize("path", DYNAMIC)
def test_names_of_dynamic_mode_exist_or_are_listed(path: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "dynamic-mode.md").read_text("utf-8")
    missing = public(dynamic(nvidia_dali, path)) - public(dynamic(dali_like, path))
    prefix = f"{path}." if path else ""
    assert sorted(name for name in missing if f"`{prefix}{name}`" not in page) == []


@pytest.mark.parametrize(
    "path",
    [
        *("Batch", "Device", "DType", "EvalContext", "EvalMode", "ExternalSource", "Stream", "Tensor", "ThreadPool"),
        *("as_batch", "as_tensor", "batch", "checkpoint.Checkpoint", "checkpoint.current", "device", "dtype", "tensor"),
        *("get_current_stream", "get_default_stream", "get_num_threads", "random.RNG", "random.get_default_rng"),
        *("random.set_seed", "readers.File", "set_current_stream", "set_default_stream", "set_num_threads", "stream"),
        *("type_id", "capture.invariant"),
    ],
)
def test_methods_and_arguments_of_dynamic_mode(path: str) -> None:
    theirs, ours = dynamic(nvidia_dali, path), dynamic(dali_like, path)
    names = [""]
    if isinstance(theirs, type):
        inherited = {name for kind in theirs.__mro__ if kind.__module__.startswith("nvidia.") for name in public(kind)}
        names += sorted(inherited - OF_PARTS)
    missing = []
    for name in names:
        pair = [getattr(each, name, None) if name else each for each in (theirs, ours)]
        if pair[1] is None:
            missing.append(name)
        elif all(callable(each) for each in pair) and not _takes_any(pair[1]):
            arguments = [_arguments_of(each) for each in pair]
            missing += [f"{name}({argument}=)" for argument in sorted(arguments[0] - arguments[1] - OF_PARTS)]
    assert missing == []


def _takes_any(function: Any) -> bool:
    """Return whether a function takes arguments that its signature does not name. Members of enumerations do."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found)


def _arguments_of(function: Any) -> set[str]:
    """Return the names of the arguments. Classes of enumerations and of C++ have none to compare."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {each.name for each in found if each.kind in kinds and not each.name.startswith("_")}


def both_dynamic() -> Iterator[Any]:
    yield dynamic(nvidia_dali, "")
    yield dynamic(dali_like, "")


@pytest.mark.parametrize("cycle", [None, "raise", "quiet"])
def test_items_of_external_sources(cycle: str | None) -> None:
    items = [np.full((2, 3), number, np.int32) for number in range(3)]
    found = []
    for ndd in both_dynamic():
        source = ndd.ExternalSource(items, cycle=cycle, layout="HW", dtype=ndd.float32)
        seen: list[Any] = []
        for step in range(6):
            try:
                item = source(batch_size=2 if step % 2 else None)
            except StopIteration:
                seen.append(None)
                continue
            array = np.asarray(item.tensors[1] if step % 2 else item)
            seen.append((type(item).__name__, item.layout, array.dtype.str, array.tolist()))
        found.append(seen)
    assert found[0] == found[1]


def test_reader_continues_within_an_epoch_from_its_state(tmp_path: Path) -> None:
    for number in range(7):
        np.save(tmp_path / f"{number}.npy", np.int32([number]))
    found = []
    for ndd in both_dynamic():
        files = [str(tmp_path / f"{number}.npy") for number in range(7)]
        checkpoint = ndd.checkpoint.Checkpoint()
        reader = ndd.readers.Numpy(max_batch_size=2, files=files)
        checkpoint.register(reader, "reader")
        epoch = reader.next_epoch()
        next(epoch)
        next(epoch)
        checkpoint.collect()
        loaded, again = ndd.checkpoint.Checkpoint(), ndd.readers.Numpy(max_batch_size=2, files=files)
        loaded.deserialize(checkpoint.serialize())
        loaded.register(again, "reader")
        rest = [[int(np.asarray(sample)[0]) for sample in batch] for (batch,) in again.next_epoch()]
        found.append((checkpoint.names, loaded.is_loaded, rest))
    assert found[0] == found[1]
