"""``fn.readers.numpy``: arrays, regions and errors beside the real DALI."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import nvidia.dali
import pytest

import dali_like

ARRAY = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("arrays")
    arrays = {
        "f": ARRAY,
        "i": ARRAY.astype(np.int32),
        "b": ARRAY > 3,
        "h": ARRAY.astype(np.float16),
        "scalar": np.float64(3),
        "empty": np.zeros((0, 3), np.int16),
        "fortran": np.asfortranarray(np.arange(60).reshape(3, 4, 5)),
        "sub/z": np.arange(3, dtype=np.uint8),
        "aa/.hidden": np.arange(4, dtype=np.uint8),
        "aa/deep/x": np.arange(5, dtype=np.uint8),
        "complex": ARRAY.astype(np.complex64),
        "text": np.array(["a"]),
    }
    for name, array in arrays.items():
        path = root / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
    data = (root / "f.npy").read_bytes()
    (root / "truncated.npy").write_bytes(data[:-5])
    (root / "header.npy").write_bytes(data[:20])
    (root / "other.npy").write_bytes(b"hello world, this is not an array" * 10)
    (root / "upper.NPY").write_bytes(data)
    (root / "list.txt").write_text("aa/.hidden.npy\n\nsub/z.npy\n")
    return root


def arrays_of(dali: ModuleType, root: Path, number: int | None = None, **options: Any) -> list[np.ndarray]:
    """The first arrays of a reader; all of an epoch by default."""
    given = {
        name: [str(root / each) for each in value]
        if name == "files"
        else value.format(root=root)
        if name in ("file_root", "file_list")
        else value
        for name, value in options.items()
    }
    pipe = dali.Pipeline(1, 1, None, **({"py_num_workers": 0} if dali is dali_like else {}))
    try:
        with pipe:
            nodes = {
                name: dali.fn.external_source(_constant(value.value), batch=False)
                for name, value in given.items()
                if isinstance(value, Node)
            }
            pipe.set_outputs(dali.fn.readers.numpy(name="reader", **{**given, **nodes}))
        pipe.build()
        return [np.array(pipe.run()[0].at(0)) for _ in range(number or pipe.epoch_size("reader"))]
    finally:
        if dali is dali_like:
            pipe.close()


def _constant(value: Any) -> Any:
    return lambda info: np.asarray(value)


class Node:
    """A value that comes from a node."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return f"node {self.value}"

    __repr__ = __str__


def assert_alike(root: Path, **options: Any) -> None:
    theirs, ours = (arrays_of(dali, root, **options) for dali in (nvidia.dali, dali_like))

    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours, strict=True):
        assert (their.dtype, their.shape) == (our.dtype, our.shape)
        np.testing.assert_array_equal(their, our)


@pytest.mark.parametrize(
    "options",
    [
        {"file_root": "{root}", "file_filter": "[.z]*.npy"},
        {"file_root": "{root}/aa", "file_filter": "*.npy"},
        {"file_root": "{root}", "file_filter": "*.NPY"},
        {"file_list": "{root}/list.txt"},
        {"file_list": "{root}/list.txt", "file_root": "{root}"},
        *({"files": [f"{name}.npy"]} for name in ("f", "i", "b", "h", "scalar", "empty", "fortran", "aa/.hidden")),
        {"files": ["f.npy"], "cache_header_information": True, "number": 3},
        {"files": ["f.npy"], "dont_use_mmap": True, "use_o_direct": True},
    ],
    ids=str,
)
def test_files(options: dict[str, Any], root: Path) -> None:
    assert_alike(root, **options)


@pytest.mark.parametrize(
    "region",
    [
        {"roi_start": [1, 2], "roi_end": [3, 4]},
        {"roi_start": [1, 2], "roi_shape": [2, 2]},
        {"roi_start": [1], "roi_shape": [2]},
        {"roi_start": [1], "roi_shape": [2], "roi_axes": [1]},
        {"roi_start": [1], "roi_shape": [2], "roi_axes": [-1]},
        {"roi_start": [2, 1], "roi_end": [4, 3], "roi_axes": [1, 0]},
        {"roi_start": 1, "roi_axes": [0]},
        {"roi_end": [2, 2]},
        {"roi_shape": [2, 2]},
        {"rel_roi_start": [0.25, 0.5], "rel_roi_end": [0.75, 1.0]},
        {"rel_roi_start": [0.1, 0.1], "rel_roi_end": [0.9, 0.9]},
        {"rel_roi_start": [0.3, 0.3], "rel_roi_shape": [0.3, 0.3]},
        {"rel_roi_start": [0.125, 0.25], "rel_roi_shape": [0.375, 0.25]},
        {"roi_start": [1, 1], "rel_roi_shape": [0.5, 0.5]},
        {"rel_roi_start": [0.5, 0.5], "roi_shape": [1, 1]},
        {"roi_start": [1, 1], "roi_end": [1, 4]},
        {"roi_start": Node(np.int32([1, 2])), "roi_end": [3, 4]},
        {"rel_roi_start": Node(np.float32([0.25, 0.5])), "roi_shape": Node(np.int32([1, 2]))},
        *(
            {"out_of_bounds_policy": policy, "fill_value": fill, **window}
            for policy in ("pad", "trim_to_shape")
            for fill in (8.5, -1.0)
            for window in (
                {"roi_start": [-1, 0], "roi_end": [2, 2]},
                {"roi_start": [3, 3], "roi_end": [5, 8]},
                {"roi_start": [7, 7], "roi_end": [9, 9]},
                {"roi_start": [-3, 0], "roi_end": [-1, 2]},
            )
        ),
    ],
    ids=str,
)
def test_regions(region: dict[str, Any], root: Path) -> None:
    assert_alike(root, files=["f.npy"], **region)
    if "fill_value" in region:
        for name in ("i.npy", "b.npy", "h.npy"):
            assert_alike(root, files=[name], **region)


def test_regions_of_fortran_order(root: Path) -> None:
    assert_alike(root, files=["fortran.npy"], roi_start=[1, 1, 1], roi_shape=[2, 2, 2])
    assert_alike(
        root, files=["fortran.npy"], roi_start=[2, 2, 2], roi_end=[4, 5, 6], out_of_bounds_policy="pad", fill_value=-1
    )
    assert_alike(root, files=["fortran.npy"], roi_start=[1], roi_shape=[2], roi_axes=[1], dont_use_mmap=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"files": ["f.npy"], "file_list": "{root}/list.txt"},
        {"file_root": "{root}/missing"},
        {"file_root": "{root}", "file_filter": "q"},
        *({"files": [f"{name}.npy"]} for name in ("complex", "text", "truncated", "header", "other", "missing")),
        {"files": ["truncated.npy"], "roi_start": [1, 1]},
        {"files": ["f.npy"], "use_o_direct": True},
        {"files": ["f.npy"], "out_of_bounds_policy": "x"},
        {"files": ["f.npy"], "roi_start": [3, 3], "roi_end": [2, 4]},
        {"files": ["f.npy"], "roi_start": [-1, 0], "roi_end": [2, 2]},
        {"files": ["f.npy"], "roi_start": [3, 3], "roi_end": [5, 8]},
        {"files": ["f.npy"], "roi_end": [3, 4], "roi_shape": [1, 1]},
        {"files": ["f.npy"], "roi_start": [1, 2], "rel_roi_start": [0.1, 0.1]},
        {"files": ["f.npy"], "roi_start": [1, 2, 3]},
        {"files": ["f.npy"], "roi_start": [1], "roi_axes": [5]},
        {"files": ["f.npy"], "roi_start": [1, 1], "roi_axes": [0, 0]},
        {"files": ["f.npy"], "roi_start": [1, 2], "roi_axes": [0]},
    ],
    ids=str,
)
def test_errors(options: dict[str, Any], root: Path) -> None:
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            arrays_of(dali, root, **options)
