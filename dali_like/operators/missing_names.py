"""Operators of DALI that do not exist here, with their alternatives, for the error at the access of a missing name."""

from __future__ import annotations

import sys

from dali_like.common.suggestions import with_suggestion

__all__ = ["attribute_error"]

_WRITE = "write it as a function of one sample, with the decorator dali_like.operator or fn.python_function"
_ON_GPU = "it is an operator for the GPU: compute it with PyTorch or CuPy on the batch, behind the pipeline"
_AUDIO = "decode with fn.decoders.audio, transform in the source, for example with librosa, or " + _WRITE
_CONSTANT = "pass a number, an array or types.Constant(value, shape=...) where a node is expected"
_MATRIX = "compute the matrix in the source or by fn.python_function, and pass it to fn.warp_affine(matrix=...)"
_BOXES = "compute boxes in the source or by fn.python_function, together with the image if both change"
_CURRENT = "it is fn.{0} here, without `experimental`"

#: DALI's operators by alternative: names in ``fn``, separated by spaces. A dot at the end marks a module.
_ALTERNATIVES = {
    _AUDIO: "audio_resample experimental.audio_resample mel_filter_bank mfcc "
    "nonsilent_region power_spectrum preemphasis_filter spectrogram to_decibels",
    _ON_GPU: "optical_flow experimental.debayer experimental.dilate experimental.equalize experimental.erode "
    "experimental.filter experimental.inflate experimental.median_blur experimental.remap experimental.warp_perspective",
    _CONSTANT: "full full_like ones ones_like zeros zeros_like",
    _MATRIX: "transforms. transform_translation transforms.combine transforms.crop transforms.rotation transforms.scale "
    "transforms.shear transforms.translation",
    _BOXES: "coord_flip coord_transform",
    "use fn.resize, then fn.crop and fn.flip": "fast_resize_crop_mirror resize_crop_mirror experimental.tensor_resize",
    "add numbers of fn.random.normal or fn.random.uniform to the images": "noise. noise.gaussian noise.salt_and_pepper "
    "noise.shot",
    "draw it in the source from info.rng()": "random.beta random_crop_generator batch_permutation permute_batch",
    "use indices in brackets: node[i, begin:end]": "element_extract sequence_rearrange subscript_dim_check tensor_subscript "
    "hidden. hidden.arithmetic_generic_op hidden.constant hidden.subscript_dim_check hidden.tensor_subscript "
    "hidden.transform_translation",
    "use the operators of Python: node + 1": "arithmetic_generic_op",
    "use node.property(key)": "get_property",
    "use fn.python_function": "dl_tensor_python_function dump_image",
    "its operators are in fn itself, if they exist here": "experimental.decoders.",
    _WRITE: "grid_mask jitter laplacian sphere water",
}
_EXPERIMENTAL = "decoders.image decoders.image_crop decoders.image_random_crop decoders.image_slice peek_image_shape resize"


def _alternatives() -> dict[str, str]:
    """Return the alternatives by plain names; see `_plain`."""
    found = {_plain(path): alternative for alternative, names in _ALTERNATIVES.items() for path in names.split()}
    return found | {_plain(f"experimental.{name}"): _CURRENT.format(name) for name in _EXPERIMENTAL.split()}


def _plain(path: str) -> str:
    """Return a form that functions of ``fn`` and classes of ``ops`` share."""
    return path.rstrip(".").replace("_", "").lower()


def attribute_error(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module of ``fn`` or ``ops`` lacks.

    Args:
        module: full name of the module.
        name: the missing name.
    """
    text = f"module {module!r} has no attribute {name!r}"
    path = ".".join((*module.split(".")[2:], name))
    if alternative := _alternatives().get(_plain(path)):
        text += f": DALI has {path}, dali_like has not. Instead, {alternative}"
    elif (suggestion := with_suggestion(text, name, getattr(sys.modules[module], "__all__", ()))) != text:
        text = suggestion
    else:
        text += f". See dir({module.removeprefix('dali_like.')}), or {_WRITE}"
    return AttributeError(text, name=name)  # Python's own guess would follow if there were no name here
