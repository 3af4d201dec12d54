"""Other names of operators and arguments: deprecated ones, which work as in DALI and warn, and those of DALI 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dali_like.common.notices import warn
from dali_like.common.stability import warn_deprecated
from dali_like.errors import ArgumentTypeError
from dali_like.operators.machinery.description import Description

#: Deprecated names of operators in ``fn``, and their current names.
OPERATORS = {
    "audio_decoder": "decoders.audio",
    "coin_flip": "random.coin_flip",
    "image_decoder": "decoders.image",
    "image_decoder_crop": "decoders.image_crop",
    "image_decoder_random_crop": "decoders.image_random_crop",
    "image_decoder_slice": "decoders.image_slice",
    "normal_distribution": "random.normal",
    "transform_translation": "transforms.translation",
    "uniform": "random.uniform",
}
#: Names in DALI 2 of operators that DALI 1.53 has as experimental ones. Both names remain.
OF_DALI_2 = {
    "debayer": "experimental.debayer",
    "decoders.inflate": "experimental.inflate",
    "decoders.video": "experimental.decoders.video",
    "equalize": "experimental.equalize",
    "filter": "experimental.filter",
    "tensor_resize": "experimental.tensor_resize",
}
#: Deprecated operators with arguments of their own, and their successors.
SUPERSEDED = {"experimental.audio_resample": "audio_resample", "fast_resize_crop_mirror": "resize_crop_mirror"}
#: Deprecated names of arguments by operator, and their current names.
ARGUMENTS = {
    "crop": {"output_dtype": "dtype"},
    "crop_mirror_normalize": {"output_dtype": "dtype"},
    "lookup_table": {"output_dtype": "dtype"},
    "peek_image_shape": {"type": "dtype"},
    "readers.coco": {
        "dump_meta_files": "save_preprocessed_annotations",
        "dump_meta_files_path": "save_preprocessed_annotations_dir",
        "meta_files_path": "preprocessed_annotations",
        "save_img_ids": "image_ids",
    },
    "rotate": {"output_dtype": "dtype"},
    "shapes": {"type": "dtype"},
    "slice": {"output_dtype": "dtype"},
    "warp_affine": {"output_dtype": "dtype"},
}
#: Arguments by operator that only had an effect in earlier versions of DALI.
WITHOUT_EFFECT = {
    "crop": ("image_type",),
    "crop_mirror_normalize": ("image_type",),
    "decoders.image": ("split_stages", "use_chunk_allocator"),
    "decoders.image_crop": ("split_stages", "use_chunk_allocator"),
    "decoders.image_random_crop": ("split_stages", "use_chunk_allocator"),
    "decoders.image_slice": ("split_stages", "use_chunk_allocator"),
    "experimental.resize": ("image_type",),
    **{
        f"experimental.decoders.{name}": ("memory_stats", "split_stages", "use_chunk_allocator")
        for name in ("image", "image_crop", "image_random_crop", "image_slice")
    },
    "resize": ("image_type",),
    "slice": ("image_type",),
}
#: Argument of all operators; operators without random numbers ignore it.
SEED = "seed"


def known_arguments(description: Description) -> set[str]:
    """Return the names of all arguments an operator accepts."""
    return {*description.all_parameters, *ARGUMENTS.get(description.path, ()), SEED}


def current_arguments(description: Description, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by their current names, without an ineffective seed. Warn if the operator is deprecated.

    Raises:
        ArgumentTypeError: an argument is given by both of its names.
    """
    if description.path in SUPERSEDED:
        warn(f"{description.name} is deprecated; use fn.{SUPERSEDED[description.path]}", DeprecationWarning)
    current = renamed_arguments(description, given)
    for name in WITHOUT_EFFECT.get(description.path, ()):
        if name in current:
            warn(f"{description.name}: {name} has no effect", DeprecationWarning)
    if SEED in current and not description.random:
        warn(f"{description.name}: seed has no effect, because this operator uses no random numbers", DeprecationWarning)
        del current[SEED]
    return current


def renamed_arguments(description: Description, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by their current names.

    Raises:
        ArgumentTypeError: an argument is given by both of its names.
    """
    current = dict(given)
    for older, name in ARGUMENTS.get(description.path, {}).items():
        if older in current:
            if name in current:
                raise ArgumentTypeError(f"{description.name}: {older} is a deprecated name of {name}; pass only {name}")
            warn_deprecated(f"{description.name}: the argument {older}", name)
            current[name] = current.pop(older)
    return current
