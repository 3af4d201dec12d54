"""The arguments of operators against those of DALI's schemas: names, defaults, and which of them may be nodes."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

backend = pytest.importorskip("nvidia.dali.backend")

from dali_like.operators.machinery.deprecations import ARGUMENTS, SEED, WITHOUT_EFFECT  # noqa: E402
from dali_like.operators.machinery.description import Description, descriptions  # noqa: E402
from dali_like.operators.parameters import REQUIRED, Parameter  # noqa: E402
from dali_like.types import to_dali_type  # noqa: E402

pytestmark = pytest.mark.peers

#: Arguments of DALI's that we do not have, and why.
LEFT_OUT = {
    "image_type": "deprecated, without effect",
}
#: Arguments that may be nodes for DALI, but not for us: on them depends how many dimensions the result has, and its layout.
NO_NODES = {("reshape", "src_dims"), ("reinterpret", "src_dims"), ("squeeze", "axes"), ("expand_dims", "axes")}
#: Arguments of ours that DALI does not have.
ADDED = {
    ("decoders.image", "min_size"),
    ("decoders.image_random_crop", "min_size"),
    ("io.file.read", "remote_options"),
}
#: Arguments of DALI 2; see test_dali_2.py.
ADDED_OF_DALI_2 = {
    *((f"decoders.{name}", "adjust_orientation") for name in ("image", "image_crop", "image_random_crop", "image_slice")),
    *((f"decoders.{name}", "dtype") for name in ("image", "image_crop", "image_random_crop", "image_slice")),
    *(("peek_image_shape", name) for name in ("image_type", "adjust_orientation")),
    *((name, "layout") for name in ("zeros", "ones", "full")),
    ("random_bbox_crop", "quiet"),
}
#: Operators of DALI 2.
OF_DALI_2 = {"clahe"}
OPERATORS = [path for path in descriptions() if path not in OF_DALI_2]
#: Defaults that say the same in another way.
OTHER_DEFAULTS = {
    **{
        (operator, name): "None is interp_type, which is what DALI's default is for as well"
        for operator in (
            *("resize", "random_resized_crop", "resize_crop_mirror", "fast_resize_crop_mirror"),
            *("experimental.resize", "experimental.tensor_resize"),
        )
        for name in ("min_filter", "mag_filter")
    },
    **{
        (operator, name): "None is WH or (1, 0), according to whether there is a layout"
        for operator in ("slice", "decoders.image_slice", "experimental.decoders.image_slice")
        for name in ("axes", "axis_names")
    },
    **{
        (operator, "contrast_center"): "None is the middle of the range of the dtype, which is what DALI does"
        for operator in ("brightness_contrast", "contrast")
    },
    ("erase", "axis_names"): "None is all axes but the channels, as without the argument in DALI",
    ("erase", "axes"): "likewise",
    ("warp_affine", "size"): "an empty list",
    ("rotate", "size"): "an empty list",
    ("bbox_rotate", "size"): "an empty list",
    (
        "segmentation.random_object_bbox",
        "background",
    ): "None is 0, or below the classes if 0 is one, which is what DALI does",
    ("warp_affine", "matrix"): "an empty list",
    ("zeros_like", "dtype"): "None is the dtype of the input, as without the argument in DALI",
    ("ones_like", "dtype"): "likewise",
    ("experimental.debayer", "algorithm"): "None is bilinear_ocv on the CPU",
    ("noise.shot", "factor"): "DALI uses 12, not the 20 of its schema: see test_noises.py",
    ("dl_tensor_python_function", "batch_processing"): "DALI's class passes True",
    ("experimental.numba_function", "setup_fn"): "the address of none",
    **{("water", name): "pi / 64, which DALI's schema shows with five digits" for name in ("freq_x", "freq_y")},
    ("experimental.warp_perspective", "matrix"): "None is not a matrix",
    ("experimental.warp_perspective", "size"): "None is the size of the image",
    ("experimental.warp_perspective", "fill_value"): "the number for all channels",
    **{("transforms.crop", name): "None is 0 or 1" for name in ("from_start", "from_end", "to_start", "to_end")},
    ("one_hot", "axis"): "None is -1; but then a number in an array gets no further dimension",
}
#: Of every operator.
COMMON = {"device", "name", "preserve", "bytes_per_sample_hint"}


#: Names of schemas that differ from the names of operators.
SCHEMAS = {"experimental.numba_function": "NumbaFuncImpl"}


def schema_of(description: Description) -> Any:
    return backend.GetSchema(SCHEMAS.get(description.path, description.class_path.replace(".", "__")))


@pytest.mark.parametrize("path", OPERATORS)
def test_arguments(path):
    description = descriptions()[path]
    schema = schema_of(description)

    theirs = {name for name in schema.GetArgumentNames() if name not in ARGUMENTS.get(path, ())}
    ours = set(description.all_parameters)
    missing = {name for name in theirs - ours if name not in LEFT_OUT and (path, name) not in LEFT_OUT}
    more = {name for name in ours - theirs - COMMON if (path, name) not in ADDED | ADDED_OF_DALI_2}
    assert (missing, more) == (set(), set())


@pytest.mark.parametrize("path", [path for path in ARGUMENTS if path in descriptions()])  # test_reader_schemas has readers
def test_older_names_of_arguments(path):
    schema = schema_of(descriptions()[path])

    renamed = {name: schema.DeprecatedArgInfo(name)["renamed_to"] for name in ARGUMENTS[path]}
    assert renamed == ARGUMENTS[path]


@pytest.mark.parametrize("path", OPERATORS)
def test_arguments_that_have_lost_their_effect(path):
    description = descriptions()[path]
    schema = schema_of(description)

    shared = (name for name in description.all_parameters if name != SEED and schema.HasArgument(name))
    deprecated = {name for name in shared if schema.IsDeprecatedArg(name)}
    assert deprecated == {*WITHOUT_EFFECT.get(path, ())}


@pytest.mark.parametrize("path", OPERATORS)
def test_defaults(path):
    description = descriptions()[path]
    schema = schema_of(description)

    for name, parameter in description.all_parameters.items():
        if name in COMMON or (path, name) in {*OTHER_DEFAULTS, *ADDED, *ADDED_OF_DALI_2}:
            continue
        assert ours(parameter) == pytest.approx(theirs(schema, name)), name


@pytest.mark.parametrize("path", OPERATORS)
def test_arguments_per_sample_are_those_of_dali(path):
    description = descriptions()[path]
    schema = schema_of(description)

    nodes = {name for name, parameter in description.parameters.items() if parameter.per_sample}
    allowed = {name for name in description.parameters if schema.HasArgument(name) and schema.IsTensorArgument(name)}
    assert nodes == {name for name in allowed if (path, name) not in NO_NODES}


@pytest.mark.parametrize("path", OPERATORS)
def test_arguments_per_frame_are_those_of_dali(path):
    description = descriptions()[path]
    schema = schema_of(description)

    framed = {name for name, parameter in description.parameters.items() if parameter.per_frame}
    names = (name for name in description.parameters if schema.HasArgument(name))
    assert framed == {name for name in names if schema.ArgSupportsPerFrameInput(name)}


@pytest.mark.parametrize("path", OPERATORS)
def test_inputs_and_randomness(path):
    description = descriptions()[path]
    schema = schema_of(description)

    assert schema.MinNumInput() == description.min_inputs
    assert schema.MaxNumInput() == description.max_inputs or description.max_inputs is None
    assert schema.HasRandomSeedArg() == description.random
    layouts = [str(layout) for layout in schema.GetSupportedLayouts(0)] if schema.MaxNumInput() else []
    assert {*description.layouts.split()} <= {*layouts} or not layouts


def ours(parameter: Parameter) -> Any:
    default = parameter.default
    if default is REQUIRED:
        return "required"
    if isinstance(default, np.dtype):
        return int(to_dali_type(default))
    if isinstance(default, enum.Enum):
        return int(default)
    if isinstance(default, tuple) and len(default) == 1:
        return default[0]
    return list(default) if isinstance(default, tuple) else default


def theirs(schema: Any, name: str) -> Any:
    if not schema.IsArgumentOptional(name):
        return "required"
    if not schema.HasArgumentDefaultValue(name):
        return None
    text = schema.GetArgumentDefaultValueString(name)
    value = eval(text, {"nan": np.nan})  # the text of a literal, by DALI
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    return value
