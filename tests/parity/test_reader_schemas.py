"""The arguments of readers against those of DALI's schemas: names, defaults, and which of them may be nodes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import nvidia.dali
import pytest

import dali_like
from dali_like.common.class_names import class_name
from dali_like.operators.machinery.deprecations import ARGUMENTS as DEPRECATED
from dali_like.operators.machinery.description import Description
from dali_like.operators.machinery.reader_functions import own_reader_descriptions
from dali_like.operators.parameters import REQUIRED
from dali_like.types import to_dali_type
from tests.parity.test_operator_schemas import backend, theirs

pytestmark = pytest.mark.peers

#: Of every reader, but not of every one of DALI's.
COMMON = {
    *("device", "name", "preserve", "bytes_per_sample_hint", "on_error", "remote_options"),
    *("shuffle_after_epoch", "shuffle_after_epoch_seed"),
}
#: Arguments of DALI's that we do not have, and why.
LEFT_OUT: dict[tuple[str, str], str] = {
    (path, older): "a deprecated name" for path, renamed in DEPRECATED.items() for older in renamed
}
#: Arguments of ours that DALI does not have, and why.
ADDED: dict[tuple[str, str], str] = {
    ("experimental.readers.fits", "max_file_bytes"): "a limit for files of strangers",
    ("experimental.readers.video", "uniform_sample"): "of DALI 2",
    **{
        (path, "max_sample_bytes"): "a limit for files of strangers"
        for path in ("readers.video", "readers.video_resize", "experimental.readers.video", "readers.nemo_asr")
    },
    **{
        (path, "decoder_cache_bytes"): "bounds the memory of open videos"
        for path in ("readers.video", "readers.video_resize", "experimental.readers.video")
    },
}
#: Arguments that may be nodes in DALI's schema only, and why.
NO_NODES = {("experimental.readers.video", "pad_mode"): "a reader has no inputs"}
#: Defaults that say the same in another way.
OTHER_DEFAULTS = {
    ("experimental.readers.fits", "hdu_indices"): "a list of one number",
    **{("readers.video_resize", name): "that of interp_type" for name in ("min_filter", "mag_filter")},
    ("experimental.readers.video", "fill_value"): "one number for all channels",
    **{(path, "dtype"): "the number of UINT8" for path in ("readers.video", "readers.video_resize")},
    ("readers.numpy", "roi_axes"): "an empty list",
}


def schema_of(description: Description) -> Any:
    try:
        return backend.GetSchema(description.class_path.replace(".", "__"))
    except RuntimeError:
        pytest.fail(f"DALI has no ops.{description.class_path}")


@pytest.mark.parametrize("path", own_reader_descriptions())
def test_arguments(path: str) -> None:
    description = own_reader_descriptions()[path]
    schema = schema_of(description)

    theirs = {name for name in schema.GetArgumentNames() if (path, name) not in LEFT_OUT}
    ours = {name for name in description.all_parameters if (path, name) not in ADDED}
    assert (theirs - ours, ours - theirs - COMMON) == (set(), set())


@pytest.mark.parametrize("path", own_reader_descriptions())
def test_defaults_and_nodes(path: str) -> None:
    description = own_reader_descriptions()[path]
    schema = schema_of(description)
    for name, parameter in description.all_parameters.items():
        if name in COMMON or (path, name) in ADDED:
            continue
        if (path, name) not in NO_NODES:
            assert bool(parameter.per_sample) == bool(schema.IsTensorArgument(name)), name
        if (path, name) in OTHER_DEFAULTS:
            continue
        assert plain(parameter.default) == plain(theirs(schema, name)), name


def plain(value: Any) -> Any:
    """A default in a form that can be compared. DALI does not tell optional arguments without a default from others."""
    if value is REQUIRED or value is None or value == "required":
        return None
    if isinstance(value, np.dtype):
        return int(to_dali_type(value))
    return tuple(value) if isinstance(value, (list, tuple, np.ndarray)) else value


@pytest.mark.parametrize("path", [path for path in own_reader_descriptions() if path.startswith("readers.")])
def test_older_names(path: str) -> None:
    name = path.removeprefix("readers.")
    older = "video_reader_resize" if name == "video_resize" else f"{name}_reader"
    description = own_reader_descriptions()[path]
    if name == "webdataset":
        pytest.skip("it is newer than these names")

    assert hasattr(nvidia.dali.fn, older)
    assert hasattr(nvidia.dali.ops, class_name(older))
    with (
        pytest.warns(DeprecationWarning, match=rf"fn.{older} is deprecated; use fn.{path}"),
        suppress(TypeError, ValueError),
    ):
        getattr(dali_like.fn, older)()
    with pytest.warns(DeprecationWarning, match=f"use ops.{description.class_path}"):
        getattr(dali_like.ops, class_name(older))()
