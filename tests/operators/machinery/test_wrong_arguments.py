"""Wrong arguments raise an error when the graph is built. It names the operator, the argument and the allowed values.

``tests/parity`` has the wrong arguments that DALI accepts.
"""

from __future__ import annotations

import enum
import re
from typing import Any, Literal, get_origin

import numpy as np
import pytest

from dali_like import fn, types
from dali_like.errors import ArgumentError, SampleError
from dali_like.operators.machinery.description import Description, description_of, descriptions
from dali_like.operators.machinery.functions import make_function
from dali_like.operators.parameters import REQUIRED, FloatArray, Floats, Ints, Parameter, Strings
from tests.operators.running import run

#: Required arguments of operators, without nodes.
NEEDED: dict[str, dict[str, Any]] = {
    "audio_resample": {"scale": 2.0},
    "bbox_paste": {"ratio": 2.0},
    "bbox_rotate": {"angle": 30.0, "input_shape": [9, 9]},
    "box_encoder": {"anchors": [0, 0, 1, 1]},
    "cast": {"dtype": types.FLOAT},
    "clahe": {"tiles_x": 2, "tiles_y": 2, "clip_limit": 2.0},
    "color_space_conversion": {"image_type": types.RGB, "output_type": types.GRAY},
    "constant": {"fdata": 1.0},
    "dl_tensor_python_function": {"function": len},
    "element_extract": {"element_map": 0},
    "expand_dims": {"axes": 0},
    "experimental.debayer": {"blue_position": 0},
    "experimental.audio_resample": {"scale": 2.0},
    "experimental.resize": {"size": 3},
    "experimental.tensor_resize": {"sizes": 3},
    "fast_resize_crop_mirror": {"size": 3},
    "experimental.inflate": {"shape": 3},
    "experimental.numba_function": {
        "run_fn": len,
        "in_types": [types.UINT8],
        "ins_ndim": [1],
        "out_types": [types.UINT8],
        "outs_ndim": [1],
    },
    "experimental.warp_perspective": {"matrix": [1.0, 0, 0, 0, 1, 0, 0, 0, 1]},
    "gaussian_blur": {"sigma": 1.0},
    "get_property": {"key": "layout"},
    "paste": {"ratio": 2.0, "fill_value": 0},
    "permute_batch": {"indices": [0]},
    "python_function": {"function": len},
    "random_resized_crop": {"size": 3},
    "transforms.rotation": {"angle": 30.0},
    "transforms.scale": {"scale": [1.0, 2.0]},
    "transforms.shear": {"shear": [1.0, 2.0], "angles": None},
    "transforms.translation": {"offset": [1.0, 2.0]},
    "reinterpret": {"shape": 3},
    "reshape": {"shape": 3},
    "resize": {"size": 3},
    "resize_crop_mirror": {"size": 3},
    "roi_random_crop": {"crop_shape": 1, "roi_start": 0, "roi_end": 1},
    "rotate": {"angle": 30.0},
    "sequence_rearrange": {"new_order": 0},
    "squeeze": {"axes": 0},
    "torch_python_function": {"function": len},
    "warp_affine": {"matrix": [1, 0, 0, 0, 1, 0]},
}
#: Values with a wrong one for every rule.
NUMBERS = (-2, -0.5, 0, 0.5, 1.5, 2, 1e6, float("nan"), float("inf"), [], [1, 1], [2, 1], [1] * 20)
OTHERS = ("HH", types.UINT8, types.BOOL)


def any_node(layout: str | None = None) -> Any:
    return fn.external_source(source=lambda info: np.zeros(1), batch=False, layout=layout)


def build(path: str, layout: str | None = None, /, **arguments: Any) -> Any:
    description = description_of(path)
    nodes = [any_node(layout if i == 0 else None) for i in range(max(description.min_inputs, bool(description.inputs)))]
    return make_function(description)(*nodes, **{**NEEDED.get(path, {}), **arguments})


def refusal(path: str, parameter: Parameter, value: Any) -> str:
    """Return the message of the error that an argument raises; "" if it raises none."""
    try:
        build(path, **{parameter.name: value})
    except ArgumentError as error:
        return str(error)
    return ""


def wrong_types(parameter: Parameter) -> list[Any]:
    """Return values of another type than the parameter."""
    annotation = parameter.annotation
    if annotation in (int, float, Ints, Floats, FloatArray):
        return ["some", {"a": 1}, object(), [[1], "b"]]
    if annotation in (bool, str, Strings):
        return [3.5, {"a": 1}, object(), [1]]
    if annotation == np.dtype[Any] or get_origin(annotation) is Literal:
        return ["some", 3.5, object(), [1, 2]]
    if isinstance(annotation, type) and issubclass(annotation, enum.IntEnum):
        return ["some", 99, object(), [1]]
    return []


@pytest.mark.parametrize("path", descriptions())
def test_values_of_another_type(path):
    for parameter in description_of(path).parameters.values():
        for value in wrong_types(parameter):
            assert refusal(path, parameter, value).startswith(f"fn.{path}: {parameter.name} must be ")


@pytest.mark.parametrize("path", descriptions())
def test_values_that_a_rule_does_not_allow(path):
    for parameter in description_of(path).parameters.values():
        if parameter.rules:
            values = [value for value in (*NUMBERS, *OTHERS) if is_of_type(parameter, value)]
            refused = [value for value in values if not is_allowed(parameter, value)]
            assert refused, f"a rule of {parameter.name} that forbids nothing of all this"
            for value in refused:
                expected = f"fn.{path}: {parameter.name} must be {parameter.allowed}"
                assert refusal(path, parameter, value).startswith(expected)


def is_of_type(parameter: Parameter, value: Any) -> bool:
    try:
        parameter.check(value)
    except ArgumentError:
        return False
    return True


def is_allowed(parameter: Parameter, value: Any) -> bool:
    return all(rule.holds(parameter.check(value)) for rule in parameter.rules)


@pytest.mark.filterwarnings("ignore:fn.ssd_random_crop is deprecated:DeprecationWarning")
@pytest.mark.parametrize("path", descriptions())
def test_none_counts_as_not_given(path):
    description: Description = description_of(path)
    optional = {
        name: None
        for name, parameter in description.all_parameters.items()
        if parameter.default is not REQUIRED and name not in NEEDED.get(path, {})
    }

    build(path, **optional)


#: Arguments that contradict each other or the layout.
CLASHES = [
    ("crop", "HWC", {"crop": 40}, "crop must be a number, or a list of numbers, 2 or 3 of them"),
    ("crop", "HWC", {"crop": [-1, 5]}, "crop must be .* from 0 on"),
    ("crop", "HWC", {"crop_w": 5}, "crop_w and crop_h must be given together"),
    ("pad", "", {"axes": [0, 0]}, "axes must be .* each only once"),
    ("pad", "", {"axes": [0, 1], "shape": [1, 2, 3]}, "shape must have one element, or one for each of the 2 axes, not 3"),
    ("pad", "HWC", {"axes": [], "shape": [1, 2]}, "shape must have one element, or one for each of the 3 axes, not 2"),
    ("pad", "HWC", {"axes": [3]}, r"axes=\[3\]: the input has 3 dimensions"),
    ("pad", "HWC", {"axis_names": "D"}, "axis_names='D' are not all in the layout 'HWC'"),
    ("pad", "HWC", {"axis_names": "H", "align": [2, 3]}, "align must have one element, or one for each of the 1 axes"),
    ("slice", "", {"start": [1, 2, 3]}, "start must have one element, or one for each of the 2 axes, not 3"),
    ("slice", "", {"axes": [0], "start": [1, 2]}, "start must have one element, or one for each of the 1 axes, not 2"),
    ("slice", "HWC", {"axis_names": "D", "start": [1]}, "axis_names='D' are not all in the layout 'HWC'"),
    ("slice", "", {"start": [-1, 2]}, "start has -1, outside of any input; pass out_of_bounds_policy"),
    ("slice", "", {"rel_end": [0.5, 1.5]}, "rel_end has 1.5, outside of any input; pass out_of_bounds_policy"),
    ("slice", "", {"start": [1, 5], "end": [3, 3]}, "start=5 is greater than end=3; a window must not end before it begins"),
    ("slice", "", {"shape": [-1, 2]}, "shape must be .* from 0 on"),
    ("decoders.image_slice", "", {"axes": [2], "start": [0]}, "it has all channels"),
    ("decoders.image_slice", "", {"axes": [], "start": [0]}, "it has all channels"),
    ("decoders.image_slice", "", {"start": [1, 2, 3]}, "start must have one element, or one for each of the 2 axes"),
    ("erase", "", {"anchor": [1, 2], "shape": [3]}, "anchor and shape must have . numbers"),
    ("erase", "", {"axes": [0, 1], "shape": [3, 3, 3]}, "2 numbers for each region, not 3 and 3"),
    ("erase", "HWC", {"anchor": [1] * 3, "shape": [3] * 3}, "2 numbers for each region, not 3 and 3"),
    ("erase", "HWC", {"axes": [4], "shape": [3]}, r"axes=\[4\]: the input has 3 dimensions"),
    (
        "paste",
        "HWC",
        {"fill_value": [1, 2]},
        "fill_value has 2 elements; it must have one, or n_channels=3",
    ),
    ("resize", "HWC", {"size": [1, 2, 3]}, "size must have one element, or one for each of the 2 axes, not 3"),
    ("resize", "DHWC", {"size": [1, 2]}, "size must have one element, or one for each of the 3 axes, not 2"),
    ("resize", "HWC", {"max_size": [1, 2, 3]}, "max_size must have one element, or one for each of the 2 axes, not 3"),
    ("rotate", "HWC", {"size": [1, 2, 3]}, "size must have 2 elements, not 3"),
    ("rotate", "DHWC", {"axis": [0, 0, 0]}, "axis must not be zero"),
    ("warp_affine", "DHWC", {}, "matrix must have 12 elements, not 6"),
    ("warp_affine", "HWC", {"matrix": None}, "the transform is missing; pass matrix= or a second input"),
    ("gaussian_blur", "", {"sigma": [0.0, 1.0]}, "sigma and window_size shouldn't be 0 at the same time"),
    ("gaussian_blur", "HCW", {}, "only channel-first and channel-last layouts of one to three axes"),
    ("gaussian_blur", "HWC", {"sigma": [1.0] * 3}, "sigma must have one element, or one for each of the 2 axes, not 3"),
    ("normalize", "HWC", {"mean": np.zeros((1, 3))}, "mean and stddev must be numbers, or have 3 dimensions"),
    (
        "normalize",
        "",
        {"mean": np.zeros((1, 3)), "stddev": np.ones(3)},
        "mean and stddev must be numbers, or have the same number of dimensions",
    ),
    ("normalize", "HWC", {"axes": [3]}, r"axes=\[3\]: the input has 3 dimensions"),
    ("reshape", "", {"shape": [-1, -1]}, "only one extent of shape may be negative"),
]


@pytest.mark.parametrize(("path", "layout", "arguments", "message"), CLASHES)
def test_clashing_arguments_are_refused(path, layout, arguments, message):
    with pytest.raises(ArgumentError, match=rf"^fn\.{re.escape(path)}: .*{message}"):
        build(path, layout, **arguments)


def test_arguments_that_are_nodes_pass_the_checks_of_the_definition():
    node = any_node()

    build("erase", "HWC", anchor=[1, 2], shape=node)
    build("erase", "HWC", anchor=node, shape=[1, 2])
    build("slice", "HWC", axes=node, start=[1, 2, 3])
    build("pad", "HWC", axes=node, shape=[1, 2])
    build("gaussian_blur", "HWC", sigma=node)
    build("resize", "HWC", size=node)


def test_nodes_are_held_to_the_same_rules():
    image = np.zeros((4, 5, 3), np.uint8)

    with pytest.raises(SampleError, match=r"the argument crop_pos_x must be a number from 0 to 1; this sample of it .*1\.5"):
        run(lambda data, place: fn.crop(data, crop=[2, 2], crop_pos_x=place), [image], [np.float32(1.5)], layouts=["HWC"])
