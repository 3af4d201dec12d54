"""Results that a function keeps, up to a number of bytes."""

from __future__ import annotations

from collections.abc import Callable

from dali_like.common.kept_results import kept_within


def counted(most_bytes: int) -> tuple[Callable[..., bytes], list[int]]:
    """Return a function that makes so many bytes and keeps them, and the sizes that it has made."""
    made: list[int] = []

    @kept_within(most_bytes, len)
    def make(size: int) -> bytes:
        made.append(size)
        return bytes(size)

    return make, made


def test_a_kept_result_is_the_same_object() -> None:
    make, made = counted(100)

    assert make(60) is make(60)
    assert made == [60]


def test_the_results_used_last_are_kept() -> None:
    make, made = counted(100)

    for size in (40, 50, 40, 30, 50, 40):  # 30 takes the place of 50, and 50 then that of 40
        make(size)

    assert made == [40, 50, 30, 50, 40]


def test_the_last_result_is_kept_however_large() -> None:
    make, made = counted(100)

    for size in (10, 300, 300):
        make(size)

    assert made == [10, 300]
