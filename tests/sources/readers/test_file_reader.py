"""``fn.readers.file``: labels, filters, lists, broken input. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops
from dali_like.errors import ArgumentError, BrokenFileError, FileReadError, MissingFileError, SampleError
from tests.conftest import in_both_places

from .reading import make_files, pipeline_with, read_all, samples_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_files(tmp_path, "dog/2.JPG", "dog/10.jpg", "cat/x.png", "cat/y.txt", "cat/sub/deep.jpg", "top.jpg")
    (tmp_path / "bird").mkdir()
    return tmp_path


def test_folders_are_classes(root: Path) -> None:
    with pipeline_with(fn.readers.file, 3, file_root=root) as pipe:
        data, labels = pipe.run()

    assert [bytes(data.at(i)) for i in range(3)] == [b"cat/x.png", b"dog/10.jpg", b"dog/2.JPG"]
    assert [labels.at(i).tolist() for i in range(3)] == [[1], [2], [2]]
    assert labels.at(0).dtype == np.int32


@in_both_places
def test_operators_behind_it(root: Path, way: str) -> None:
    options: dict[str, Any] = {"py_num_workers": 0} if way == "serial" else {"py_start_method": way}
    pipe = Pipeline(3, 2, None, **options)
    with pipe:
        data, labels = ops.readers.File(file_root=str(root), name="files")()
        pipe.set_outputs(data[:3], labels + 1)
    try:
        data, labels = pipe.run()
        assert [bytes(data.at(i)) for i in range(3)] == [b"cat", b"dog", b"dog"]
        assert [labels.at(i).item() for i in range(3)] == [2, 3, 3]
        assert set(pipe.operator_places.values()) == {"threads" if way == "serial" else "workers"}
        assert pipe.statistics().settings.num_workers == (0 if way == "serial" else 2)
    finally:
        pipe.close()


@in_both_places
def test_errors_of_operators_name_the_file(root: Path, way: str) -> None:
    """In threads of the main process, and in workers, in random order."""
    options: dict[str, Any] = {"py_num_workers": 0} if way == "serial" else {"py_start_method": way}
    pipe = Pipeline(3, 2, None, seed=3, **options)
    with pipe:
        data, _ = fn.readers.file(file_root=str(root), random_shuffle=True, name="files")
        pipe.set_outputs(fn.reshape(data, shape=[9]))  # "dog/10.jpg" has ten bytes
    with contextlib.closing(pipe), pytest.raises(SampleError) as caught:
        pipe.run()

    assert "the sample is from dog/10.jpg" in caught.value.__notes__


def test_threads_share_a_reader(root: Path) -> None:
    of_pipeline = {"py_num_workers": 3, "py_start_method": "thread"}
    with pipeline_with(fn.readers.file, 6, of_pipeline=of_pipeline, file_root=root, random_shuffle=True) as pipe:
        seen = samples_of(pipe, 20)
    with pipeline_with(fn.readers.file, 6, file_root=root, random_shuffle=True) as pipe:
        assert samples_of(pipe, 20) == seen
    assert set(seen) == {b"cat/x.png", b"dog/10.jpg", b"dog/2.JPG"}


def test_the_decoder_behind_it_names_the_sample(root: Path) -> None:
    pipe = Pipeline(2, 1, None, py_num_workers=0)
    with pipe:
        pipe.set_outputs(fn.decoders.image(fn.readers.file(file_root=root)[0]))
    try:
        with pytest.raises(RuntimeError) as caught:
            pipe.run()
        assert "sample 0" in "".join(caught.value.__notes__)
    finally:
        pipe.close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"file_filters": "*.txt"}, [b"cat/y.txt"]),
        ({"file_filters": ["*.txt", "[x]*"]}, [b"cat/x.png", b"cat/y.txt"]),
        ({"file_filters": "*.jpg", "case_sensitive_filter": True}, [b"dog/10.jpg"]),
        ({"dir_filters": "D*"}, [b"dog/10.jpg", b"dog/2.JPG"]),
    ],
    ids=str,
)
def test_filters(options: dict[str, Any], expected: list[bytes], root: Path) -> None:
    assert read_all(len(expected), 1, file_root=root, **options) == expected


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    name = os.fsencode(tmp_path / "a") + b"/\xff\xe9.jpg"
    Path(os.fsdecode(name)).write_bytes(b"content")
    (tmp_path / "list.txt").write_bytes(name + b" 7\n")

    assert read_all(1, 1, file_root=tmp_path) == [b"content"]
    assert read_all(1, 1, file_list=tmp_path / "list.txt") == [b"content"]

    Path(os.fsdecode(name)).unlink()
    with pytest.raises(MissingFileError, match=r"a/\\xff\\xe9.jpg does not exist"):
        read_all(1, 1, file_list=tmp_path / "list.txt")


def test_lists(root: Path) -> None:
    (root / "list.txt").write_text("dog/10.jpg   7\n\nmy cat.jpg 3\r\n/" + str(root / "top.jpg").lstrip("/") + "\t5 \n")
    make_files(root, "my cat.jpg")
    with pipeline_with(fn.readers.file, 3, file_list=root / "list.txt") as pipe:
        data, labels = pipe.run()

    assert [bytes(data.at(i)) for i in range(3)] == [b"dog/10.jpg", b"my cat.jpg", b"top.jpg"]
    assert [labels.at(i).item() for i in range(3)] == [7, 3, 5]


def test_files_and_labels(root: Path) -> None:
    with pipeline_with(fn.readers.file, 2, file_root=root, files=["top.jpg", "cat/x.png"], labels=[5, -1]) as pipe:
        assert [label for batch in (pipe.run()[1],) for label in (batch.at(0).item(), batch.at(1).item())] == [5, -1]
    with pipeline_with(fn.readers.file, 1, files=str(root / "top.jpg")) as pipe:
        assert samples_of(pipe, 2, output=1) == [[0], [0]]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ArgumentError, "fn.readers.file: file_root argument is required when not using files or file_list"),
        ({"files": []}, ArgumentError, "files specified an empty list"),
        ({"files": ["a"], "file_list": "b"}, ArgumentError, "through files or file_list but not both"),
        ({"files": ["a"], "labels": [1, 2]}, ArgumentError, "Provided 2 labels for 1 files"),
        ({"file_root": "a", "labels": [1]}, ArgumentError, "labels is valid only when"),
        ({"file_root": "a", "file_filters": []}, ArgumentError, "file_filters list cannot be empty"),
        ({"file_root": 3}, ArgumentError, "file_root must be a string"),
        ({"file_rot": "a"}, ArgumentError, "file_rot .did you mean file_root"),
        ({"file_root": "a", "device": "mixed"}, RuntimeError, "mixed"),
        ({"file_root": "a", "remote_options": {"timeout": 3}}, ArgumentError, "remote_options has no timeout: it may have"),
    ],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fn.readers.file(**options)


def test_inputs_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"fn.readers.file takes no inputs"):
        fn.readers.file("folder")


def test_empty_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(
        ArgumentError, match=r"fn.readers.file: No files found: all folders in .*test_empty_folders0 are empty"
    ):
        read_all(1, file_root=tmp_path)
    with pytest.raises(ArgumentError, match=r"No files found: .* has no folder, or none that matches dir_filters"):
        read_all(1, file_root=tmp_path, dir_filters="b")
    with pytest.raises(MissingFileError, match="nothing does not exist"):
        read_all(1, file_root=tmp_path / "nothing")


def test_a_folder_without_classes_is_an_error_that_names_it_and_the_other_arguments(tmp_path: Path) -> None:
    make_files(tmp_path, "1.jpg", "2.jpg")
    message = (
        r"No files found in folders of .*, but 2 directly in it, such as 1.jpg. With file_root .* pass files=, or file_list="
    )
    with pytest.raises(ArgumentError, match=message):
        read_all(1, file_root=tmp_path)


def test_names_with_nul_characters_are_refused_by_an_error_of_readers() -> None:
    with pytest.raises(FileReadError, match=r"'a\\x00.jpg' cannot be read: names of files have no NUL characters"):
        read_all(1, files=["a\0.jpg"])


def test_filters_that_leave_nothing_are_named(tmp_path: Path) -> None:
    make_files(tmp_path, "a/1.heic", "b/2.heic")
    with pytest.raises(
        ArgumentError, match=r"none of the 2 files in the folders of .*, such as a/1.heic, matches file_filters"
    ):
        read_all(1, file_root=tmp_path)
    (tmp_path / "list.txt").write_text("\n")
    with pytest.raises(ArgumentError, match=r"No files found: .*list.txt has no lines"):
        read_all(1, file_list=tmp_path / "list.txt")


@pytest.mark.parametrize("line", ["top.jpg", "top.jpg one", "top.jpg 3.5", "top.jpg -1", "7", "top.jpg 99999999999"])
def test_broken_lists(line: str, root: Path) -> None:
    path = root / "list.txt"
    path.write_text(f"top.jpg 1\n{line}\n")

    with pytest.raises(BrokenFileError, match=f"{path}.*:2 ") as caught:
        read_all(1, file_list=path)
    assert caught.value.file == str(path)


@in_both_places
def test_a_file_that_vanishes(root: Path, way: str) -> None:
    of_pipeline = {} if way == "serial" else {"py_num_workers": 1, "py_start_method": way}
    with pipeline_with(fn.readers.file, 1, of_pipeline=of_pipeline, file_root=root, name="mine") as pipe:
        pipe.start_py_workers()
        assert pipe.epoch_size("mine") == 3
        (root / "dog" / "10.jpg").unlink()
        assert samples_of(pipe, 1) == [b"cat/x.png"]
        with pytest.raises(MissingFileError, match=r"dog/10.jpg does not exist") as caught:
            pipe.run()
        assert "idx_in_epoch 1" in "".join(caught.value.__notes__)
        assert caught.value.file == str(root / "dog" / "10.jpg")
        assert samples_of(pipe, 1) == [b"dog/2.JPG"]  # the next run goes on


def test_on_error(root: Path) -> None:
    files = [str(root / name) for name in ("top.jpg", "gone.jpg", "cat/x.png")]

    assert read_all(1, 3, files=files, on_error="skip") == [b"top.jpg", b"cat/x.png", b"cat/x.png"]

    def replace(info: Any, error: Exception) -> Any:
        assert isinstance(error, MissingFileError)
        return np.zeros(2, np.uint8), np.array([-1], np.int32)

    assert read_all(1, 3, files=files, on_error=replace)[1] == b"\0\0"


def test_folders_cannot_be_read(root: Path) -> None:
    with pytest.raises(FileReadError, match="cannot be read: Is a directory"):
        read_all(1, 1, files=[str(root / "cat")])


def test_empty_files(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    assert read_all(1, 1, files=[str(tmp_path / "empty")]) == [b""]


def test_files_are_read_into_the_batch(tmp_path: Path) -> None:
    """Without a copy: the second batch has rows for files of that size."""
    (tmp_path / "a").write_bytes(b"1234")
    with pipeline_with(fn.readers.file, 2, files=[str(tmp_path / "a")] * 2) as pipe:
        pipe.run()
        assert pipe.run()[0].is_dense_tensor()


def test_lazy_init_leaves_the_files_to_the_first_run(root: Path) -> None:
    options = {"file_root": root / "later", "lazy_init": True}
    with pipeline_with(fn.readers.file, 1, of_pipeline={"py_num_workers": 1}, **options) as pipe:
        pipe.build()
        with pytest.raises(MissingFileError, match="later does not exist"):
            pipe.reader_meta()
        assert pipe.py_worker_pids == []
        make_files(root, "later/a/1.jpg")
        assert samples_of(pipe, 1) == [b"later/a/1.jpg"]
        assert len(pipe.py_worker_pids) == 1


def test_lazy_init_does_not_defer_a_start_of_the_workers(root: Path) -> None:
    options = {"file_root": root / "later", "lazy_init": True}
    of_pipeline = {"py_num_workers": 1}
    with (
        pipeline_with(fn.readers.file, 1, of_pipeline=of_pipeline, **options) as pipe,
        pytest.raises(MissingFileError, match="later does not exist"),
    ):
        pipe.start_py_workers()


def test_lazy_init_is_serialized(root: Path) -> None:
    with pipeline_with(fn.readers.file, 1, file_root=root / "later", lazy_init=True) as pipe:
        text = pipe.serialize()
    other = Pipeline.deserialize(text)
    try:
        other.build()
        make_files(root, "later/a/1.jpg")
        assert samples_of(other, 1) == [b"later/a/1.jpg"]
    finally:
        other.close()
