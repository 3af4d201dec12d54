"""``fn.readers.file``: files, labels and errors beside the real DALI."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import nvidia.dali
import pytest

import dali_like


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of all kinds. Their content is their name."""
    root = tmp_path_factory.mktemp("root")
    names = ["b/2.JPG", "b/10.jpg", "a/x.png", "a/sub/deep.jpg", "top.jpg", "a/y.txt", "B/z.jpg", "\xe9/z.jpg", "a/.hid.jpg"]
    names += [".h/z.jpg", "my file.jpg", "c/a[1].jpg", "c/k.flac", "c/\u0131.jpg"]
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (root / "empty").mkdir()
    (root / "nothing").mkdir()
    (root / "a" / "link.jpg").symlink_to("../b/10.jpg")
    (root / "link").symlink_to("b")
    Path(os.fsdecode(os.fsencode(root) + b"/a/\xff.jpg")).write_bytes(b"not UTF-8")
    lists = {
        "plain": "a/x.png 3\nb/10.jpg   7\n",
        "blank": "a/x.png 3\n\ntop.jpg 1\n",
        "spaces": "my file.jpg 3\n",
        "crlf": "a/x.png 3\r\n",
        "tab": "a/x.png\t5 \n",
        "no end": "top.jpg 3",
        "no label": "a/x.png\n",
        "word": "a/x.png foo\n",
        "negative": "a/x.png -1\n",
        "fraction": "a/x.png 3.7\n",
        "absolute": f"{root}/top.jpg 4\n",
        "nobody": "",
        "leading": "  top.jpg 4\n",
    }
    for name, text in lists.items():
        (root / f"{name}.list").write_text(text)
    return root


CASES: dict[str, dict[str, Any]] = {
    "root": {"file_root": "{root}"},
    "root/": {"file_root": "{root}/"},
    "filters": {"file_root": "{root}", "file_filters": ["*.txt", "*.JPG"]},
    "filter": {"file_root": "{root}", "file_filters": "*.JPG", "case_sensitive_filter": True},
    "brackets": {"file_root": "{root}", "file_filters": ["[xz]*"]},
    "range": {"file_root": "{root}", "file_filters": ["[!x-z]*.jpg"]},
    "question mark": {"file_root": "{root}", "file_filters": ["?.jpg"]},
    "folders": {"file_root": "{root}", "dir_filters": ["b*"]},
    "folder": {"file_root": "{root}", "dir_filters": "B", "case_sensitive_filter": True},
    "files": {"files": ["{root}/top.jpg", "{root}/b/10.jpg"]},
    "files in root": {"files": ["top.jpg"], "file_root": "{root}"},
    "labels": {"files": ["{root}/top.jpg"], "labels": [5]},
    "one file": {"files": "{root}/top.jpg"},
    "absolute": {"files": ["{root}/top.jpg"], "file_root": "{root}/a"},
    **{f"list {name}": {"file_list": "{root}/" + name + ".list"} for name in ("plain", "blank", "spaces", "crlf", "tab")},
    **{f"list {name}": {"file_list": "{root}/" + name + ".list"} for name in ("no end", "absolute")},
    "list and root": {"file_list": "{root}/plain.list", "file_root": "{root}"},
}
WRONG: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no filters": {"file_root": "{root}", "file_filters": []},
    "no folders": {"file_root": "{root}", "dir_filters": []},
    "no match": {"file_root": "{root}", "dir_filters": ["q"]},
    "too many labels": {"files": ["{root}/top.jpg"], "labels": [5, 6]},
    "labels of a root": {"file_root": "{root}", "labels": [1]},
    "no files": {"files": []},
    "list and files": {"file_list": "{root}/plain.list", "files": ["{root}/top.jpg"]},
    **{f"list {name}": {"file_list": "{root}/" + name + ".list"} for name in ("no label", "word", "negative", "fraction")},
    **{f"list {name}": {"file_list": "{root}/" + name + ".list"} for name in ("nobody", "missing", "leading")},
    "missing": {"file_root": "{root}/missing"},
    "empty": {"file_root": "{root}/nothing"},
    "file": {"file_root": "{root}/top.jpg"},
    "vanished": {"files": ["{root}/vanished.jpg"]},
}


def read(dali: ModuleType, root: Path, options: dict[str, Any]) -> list[tuple[bytes, list[int]]]:
    """The content and the label of each file."""

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [*map(filled, value)]
        return value.format(root=root) if isinstance(value, str) else value

    given = {name: filled(value) for name, value in options.items()}
    pipe = dali.Pipeline(1, 1, None, **({"py_num_workers": 0} if dali is dali_like else {}))
    with pipe:
        pipe.set_outputs(*dali.fn.readers.file(name="reader", **given))
    try:
        pipe.build()
        return [
            (bytes(np.asarray(data.at(0))), np.asarray(label.at(0)).tolist())
            for data, label in (pipe.run() for _ in range(pipe.epoch_size("reader") + 1))
        ]
    finally:
        if dali is dali_like:
            pipe.close()


@pytest.mark.parametrize("case", CASES)
def test_files_and_labels(case: str, root: Path) -> None:
    assert read(dali_like, root, CASES[case]) == read(nvidia.dali, root, CASES[case])


@pytest.mark.parametrize("case", WRONG)
def test_errors(case: str, root: Path) -> None:
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            read(dali, root, WRONG[case])


@pytest.mark.parametrize("lazy_init", [False, True])
def test_lazy_init_leaves_errors_to_the_first_use(lazy_init: bool, tmp_path: Path) -> None:
    for dali in (nvidia.dali, dali_like):
        pipe = dali.Pipeline(1, 1, None)
        with pipe:
            pipe.set_outputs(*dali.fn.readers.file(file_root=str(tmp_path / "missing"), lazy_init=lazy_init))
        if lazy_init:
            pipe.build()
        with pytest.raises(RuntimeError):
            (pipe.run if lazy_init else pipe.build)()
        if dali is dali_like:
            pipe.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_tensors_know_their_files_also_behind_operators(num_workers: int, numbered_files: list[str]) -> None:
    """Of labels and of data that an operator has made from nothing, neither library knows one."""

    def names(library: Any) -> list[list[list[str]]]:
        own = {"py_num_workers": num_workers} if library is dali_like else {}
        pipe = library.Pipeline(3, 2, None, **own)
        with pipe:
            data, label = library.fn.readers.file(files=numbered_files[:7])
            outputs = [data, label, library.fn.cast(data, dtype=library.types.INT32), library.fn.pad(data), data + 1]
            pipe.set_outputs(*outputs, library.fn.random.uniform())
        pipe.build()
        batches = [[[tensor.source_info() for tensor in output] for output in pipe.run()] for _ in range(4)]
        if library is dali_like:
            pipe.close()
        return batches

    assert names(dali_like) == names(nvidia.dali)


def test_tensors_of_a_reader_alone_know_their_files(numbered_files: list[str]) -> None:
    pipe = dali_like.Pipeline(3, 2, None, py_num_workers=0)
    with pipe:
        pipe.set_outputs(*dali_like.fn.readers.file(files=numbered_files[:4]))
    batches = [[tensor.source_info() for tensor in pipe.run()[0]] for _ in range(2)]
    pipe.close()

    assert batches == [numbered_files[:3], [numbered_files[3], *numbered_files[:2]]]
