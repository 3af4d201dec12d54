"""Shared lists and dicts: they equal the objects they were made of, and no process has a copy of the memory."""

from __future__ import annotations

import copy
import os
import pickle
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like.data import DataLoader, SharedDict, SharedList
from dali_like.errors import ArgumentError, ArgumentTypeError, OutOfMemoryError, PicklingError
from dali_like.sources import shared_objects
from dali_like.sources.travel import hazards
from dali_like.sources.travel.introspection import LargeContainer, large_containers
from tests.internals import block_of

MIB = 1 << 20
KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda keys: st.tuples(keys, keys),
    max_leaves=4,
)


@given(st.lists(st.integers() | st.text() | st.dictionaries(st.text(), st.floats(allow_nan=False)) | st.binary()))
def test_a_list_has_the_objects_it_was_made_of(items: list[Any]) -> None:
    shared = SharedList(items)

    assert list(shared) == items
    assert [shared[i] for i in range(-len(items), len(items))] == items + items
    assert shared[1:] == items[1:]
    assert shared[::-2] == items[::-2]
    assert len(shared) == len(items)


@settings(max_examples=200)
@given(st.dictionaries(KEYS, st.integers()), st.lists(KEYS))
def test_a_shared_dict_finds_the_items_of_the_dict(items: dict[Any, int], others: list[Any]) -> None:
    shared = SharedDict(items)

    assert dict(shared) == items
    assert list(shared) == list(items)
    assert [shared.get(key) for key in others] == [items.get(key) for key in others]


def test_half_the_hash_of_a_key_may_be_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = {"a": 7 << 32 | 5, "b": 7 << 32 | 1 << 20 | 5, "c": 7 << 32 | 1 << 21 | 5}
    monkeypatch.setattr(shared_objects, "_hash_of", hashes.__getitem__)

    shared = SharedDict({"a": 1, "b": 2})

    assert (shared["a"], shared["b"], shared.get("c")) == (1, 2, None)


def test_numpy_integers_are_keys_and_indices() -> None:
    assert SharedDict({np.int64(3): "x"})[3] == "x"
    assert SharedList("ab")[np.int32(1)] == "b"


@pytest.mark.parametrize("index", [2, -3, 10**30])
def test_an_index_out_of_range_is_an_error(index: int) -> None:
    with pytest.raises(IndexError, match=f"index {index} is out of range for a SharedList of 2 objects"):
        SharedList("ab")[index]


def test_a_missing_key_is_an_error() -> None:
    with pytest.raises(KeyError, match="'b'"):
        SharedDict({"a": 1})["b"]


def test_wrong_keys_are_named() -> None:
    with pytest.raises(ArgumentError, match="key 'a' occurs twice"):
        SharedDict([("a", 1), ("b", 2), ("a", 3)])
    with pytest.raises(ArgumentTypeError, match="strings, bytes, numbers, None, or tuples of these, not PosixPath"):
        SharedDict({Path("a"): 1})


def test_an_object_that_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    with pytest.raises(PicklingError, match="object 1, a function, cannot be pickled"):
        SharedList([0, lambda: 0], path=tmp_path / "list")
    with pytest.raises(PicklingError, match="the value of 'a', a generator, cannot be pickled"):
        SharedDict({"a": (i for i in ())})
    assert not list(tmp_path.iterdir())


def test_there_must_be_memory_for_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_objects, "available_bytes", lambda: MIB)

    with pytest.raises(OutOfMemoryError, match=r"more than the 1 MiB that are available; give .* or pass path="):
        SharedList([bytes(2 * MIB)])


# Other processes


class Sizes:
    """A dataset of a shared list and a shared dict."""

    def __init__(self) -> None:
        self.names = SharedList(f"{i}.jpg" for i in range(100))
        self.sizes = SharedDict({f"{i}.jpg": i * i for i in range(100)})

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> int:
        return self.sizes[self.names[index]]


@pytest.mark.parametrize("method", ["fork", "spawn", "thread"])
def test_workers_have_the_objects(method: str) -> None:
    loader = DataLoader(Sizes(), batch_size=10, num_workers=2, multiprocessing_context=method)
    found = np.concatenate(list(loader))

    assert found.tolist() == [i * i for i in range(100)]


class Inodes:
    """A dataset of the files that hold a list, as seen by a worker."""

    def __init__(self) -> None:
        self.names = SharedList(["x"] * 4)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return inode_of_mapping(self.names[index] and "dali_like_objects")


def inode_of_mapping(name: str) -> int:
    """Return the inode of the only mapped file with this name."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    (found,) = {int(line.split()[4]) for line in lines if name in line}
    return found


def test_spawned_workers_map_the_same_file() -> None:
    dataset = Inodes()
    own = os.fstat(block_of(dataset.names).file.fileno()).st_ino

    loader = DataLoader(dataset, batch_size=1, num_workers=2, multiprocessing_context="spawn")

    assert {int(batch[0]) for batch in loader} == {own}


def test_the_file_is_sealed() -> None:
    shared = SharedList("abc")

    with pytest.raises(PermissionError):
        os.pwrite(block_of(shared).file.fileno(), b"x", 0)


def test_without_a_path_a_pickle_is_refused() -> None:
    with pytest.raises(PicklingError, match="create it with path="):
        pickle.dumps(SharedList("abc"))


def test_copies_are_the_object_itself() -> None:
    shared = SharedList("abc")

    assert copy.copy(shared) is copy.deepcopy(shared) is shared


# Files


def test_with_a_path_a_pickle_names_the_file(tmp_path: Path) -> None:
    shared = SharedDict({"a": 1}, path=tmp_path / "dict")

    again = pickle.loads(pickle.dumps(shared))

    assert dict(again) == {"a": 1}
    assert again.path == shared.path == str(tmp_path / "dict")


def test_another_process_opens_the_file(tmp_path: Path) -> None:
    SharedList(range(5), path=tmp_path / "list")

    assert list(SharedList.open(tmp_path / "list")) == [0, 1, 2, 3, 4]
    assert stat.S_IMODE((tmp_path / "list").stat().st_mode) == 0o600


def test_a_replaced_file_leaves_open_lists_as_they_are(tmp_path: Path) -> None:
    first = SharedList("ab", path=tmp_path / "list")
    SharedList("cd", path=tmp_path / "list")

    assert list(first) == ["a", "b"]
    assert list(SharedList.open(tmp_path / "list")) == ["c", "d"]
    assert [file.name for file in tmp_path.iterdir()] == ["list"]


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    SharedList("ab", path=tmp_path / "list")
    (tmp_path / "list").chmod(0o620)

    with pytest.raises(ArgumentError, match="others may write to it"):
        SharedList.open(tmp_path / "list")


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list").write_bytes(content)
    (tmp_path / "list").chmod(0o600)

    with pytest.raises(ArgumentError, match=r"holds no shared objects; create it with SharedList\(items, path=...\)"):
        SharedList.open(tmp_path / "list")


def test_a_list_is_not_opened_as_a_dict(tmp_path: Path) -> None:
    SharedList("ab", path=tmp_path / "list")

    with pytest.raises(ArgumentError, match="holds a SharedList"):
        SharedDict.open(tmp_path / "list")


# Advice


class Long:
    """A dataset with a long list and a long dict."""

    def __init__(self) -> None:
        self.names = ["a"] * 100_000
        self.nested = {"sizes": dict.fromkeys(range(100_000))}
        self.short = [1, 2, 3]

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return index


def test_large_containers_are_found() -> None:
    assert tuple(found.text for found in large_containers(Long(), "dataset")) == (
        "dataset.names, a list of 100,000 objects",
        "dataset.nested['sizes'], a dict of 100,000 objects",
    )
    assert large_containers(Sizes(), "dataset") == ()


def test_the_report_recommends_to_share_them() -> None:
    loader = DataLoader(Long(), batch_size=2, num_workers=1)
    list(loader)
    lines = str(loader.report()).splitlines()

    assert (
        "copied by each worker: dataset.names, a list of 100,000 objects; share it: dali_like.data.SharedList(...)" in lines
    )
    assert (
        "copied by each worker: dataset.nested['sizes'], a dict of 100,000 objects; "
        "share it: dali_like.data.SharedDict(...)" in lines
    )


class Rows:
    """A dataset with a list of dicts."""

    def __init__(self) -> None:
        self.rows = [{"path": f"{index:09}.jpg"} for index in range(100_000)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> str:
        return self.rows[index]["path"]


class TestWarningOfCopies:
    @pytest.mark.parametrize("method", ["fork", "spawn", "thread_copies"])
    def test_names_a_list_with_copies_of_half_of_the_memory(self, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hazards, "recently_available_bytes", lambda: 100 << 20)  # a dict of one text takes 250 bytes

        with pytest.warns(RuntimeWarning, match=r"dataset\.rows, a list of 100,000 objects: .*SharedList\(\.\.\.\)"):
            hazards.warn_of_copies(Rows(), "dataset", method, 4)

    @pytest.mark.parametrize(
        ("method", "num_workers", "available"),
        [("thread", 4, 1 << 20), ("ray", 4, 1 << 20), ("fork", 1, 1 << 20), ("fork", 4, 1 << 30)],
    )
    def test_is_left_out_without_copies_or_with_enough_memory(
        self, method: str, num_workers: int, available: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hazards, "recently_available_bytes", lambda: available)

        hazards.warn_of_copies(Rows(), "dataset", method, num_workers)

    def test_the_estimate_is_near_the_size_of_all_objects(self) -> None:
        rows = Rows().rows
        every = sys.getsizeof(rows) + sum(sys.getsizeof(row) + sys.getsizeof(row["path"]) for row in rows)

        assert LargeContainer("rows", rows).bytes_to_copy() == pytest.approx(every, rel=0.1)

    def test_large_texts_count_as_one_page(self) -> None:
        rows = ["x" * (1 << 16) for _ in range(1000)]

        assert LargeContainer("rows", rows).bytes_to_copy() < 1000 * 5000
