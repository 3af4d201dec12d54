"""Replacements of system calls that the system refuses: files, memory behind them, and freeing it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.engine.memory import system_calls
from dali_like.engine.memory.protocol import PAGE_BYTES
from dali_like.engine.memory.ring import Slot
from dali_like.engine.memory.slot_layout import OutputSchema, SlotLayout
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import OutOfMemoryError, UnsupportedSystemError

Refuse = Callable[..., None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """``refuse(name, number)``: a function of `os` fails with this error number."""

    def refuse(name: str, number: int = errno.ENOSYS) -> None:
        def call(*_: Any, **__: Any) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, name, call)

    return refuse


@pytest.fixture
def unfreeable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system cannot free the pages of files, as gVisor cannot."""
    for module in ("space", "system_calls"):
        monkeypatch.setattr(f"dali_like.engine.memory.{module}.free_pages", lambda *_: False)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_a_file_in_dev_shm_has_no_name_and_is_for_its_owner(number: int, refuse: Refuse) -> None:
    refuse("memfd_create", number)

    space = SharedSpace.create()
    link = os.readlink(f"/proc/self/fd/{space.fd.fileno()}")

    assert link.startswith("/dev/shm/dali_like.")
    assert link.endswith(" (deleted)")
    assert os.fstat(space.fd.fileno()).st_mode & 0o777 == 0o600
    assert not os.get_inheritable(space.fd.fileno())
    assert system_calls.is_anonymous_file(link, "dali_like")


def test_other_errors_are_not_taken_for_a_refusal(refuse: Refuse) -> None:
    refuse("memfd_create", errno.EMFILE)

    with pytest.raises(OSError, match="Too many open files") as info:
        SharedSpace.create()

    assert not isinstance(info.value, UnsupportedSystemError)


def test_memory_is_allocated_by_writing(refuse: Refuse) -> None:
    refuse("posix_fallocate", errno.EOPNOTSUPP)
    space = SharedSpace.create()
    offset = space.allocate(3 << 20)
    space.bytes[offset + PAGE_BYTES] = 7

    space.commit(offset, 3 << 20)

    assert space.used_bytes == 3 << 20
    assert space.bytes[offset + PAGE_BYTES] == 7
    assert np.count_nonzero(space.bytes[offset : offset + (3 << 20)]) == 1


def test_a_full_dev_shm_is_named(refuse: Refuse) -> None:
    refuse("memfd_create")
    space = SharedSpace.create()
    refuse("posix_fallocate", errno.ENOSPC)

    with pytest.raises(OutOfMemoryError) as info:
        space.take(PAGE_BYTES, PAGE_BYTES)

    assert str(info.value) == (
        "batches need 0.0 MiB more, which the system refuses; they lie in /dev/shm: enlarge that (docker run --shm-size)"
    )


@pytest.mark.usefixtures("unfreeable")
def test_memory_that_cannot_be_freed_is_cleared_for_reuse() -> None:
    space = SharedSpace.create()
    offset = space.take(2 * PAGE_BYTES, 2 * PAGE_BYTES)
    space.bytes[offset : offset + 2 * PAGE_BYTES] = 7

    space.clear(offset, PAGE_BYTES)
    space.free(offset, 2 * PAGE_BYTES)

    assert not space.bytes[offset : offset + PAGE_BYTES].any()
    assert space.used_bytes == 2 * PAGE_BYTES
    assert space.take(2 * PAGE_BYTES, 2 * PAGE_BYTES) == offset
    assert space.used_bytes == 2 * PAGE_BYTES


@pytest.mark.usefixtures("unfreeable")
def test_a_slot_where_memory_cannot_be_freed_begins_without_memory_behind_its_regions() -> None:
    space, slot_layout = SharedSpace.create(), SlotLayout(8, 2, 1 << 16, (OutputSchema(),))
    before = Slot(space, slot_layout)
    before.marks[:] = PAGE_BYTES
    before.free()

    slot = Slot(space, slot_layout)

    assert slot.offset == before.offset
    assert slot.committed_bytes == 0


@pytest.fixture
def plain(refuse: Refuse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SharedSpace:
    """A space of a process without workers, where the system has no file for it."""
    refuse("memfd_create")
    monkeypatch.setattr(system_calls, "SHARED_MEMORY_FOLDER", str(tmp_path / "absent"))
    with pytest.raises(UnsupportedSystemError):
        SharedSpace.create()
    return SharedSpace.create(1 << 20, for_processes=False)


def test_memory_without_a_file_is_counted(plain: SharedSpace) -> None:
    first, second = (plain.take(4 * PAGE_BYTES, 2 * PAGE_BYTES) for _ in range(2))
    plain.bytes[first] = 7
    assert plain.used_bytes == 4 * PAGE_BYTES

    plain.free(first, 4 * PAGE_BYTES)

    assert plain.used_bytes == 2 * PAGE_BYTES
    assert plain.bytes[first] == 0
    plain.free(second, 4 * PAGE_BYTES)
    assert plain.used_bytes == 0


def test_memory_without_a_file_is_limited(plain: SharedSpace) -> None:
    plain.take(1 << 19, 1 << 19)

    with pytest.raises(OutOfMemoryError, match="max_held_bytes"):
        plain.take(1 << 20, 1 << 20)


def test_memory_without_a_file_is_no_reason_to_splice(plain: SharedSpace) -> None:
    system_calls.can_splice.cache_clear()
    assert not plain.has_file
    assert not system_calls.can_splice()
    system_calls.can_splice.cache_clear()


def test_seals_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl  # as the code under test does

    def refuse(*_: Any) -> int:
        raise OSError(errno.EINVAL, "no seals")

    monkeypatch.setattr(fcntl, "fcntl", refuse)

    assert SharedSpace.create().has_file
