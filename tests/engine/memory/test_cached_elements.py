"""The form of elements in caches, and the steps that storing one takes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from dali_like.engine.memory.sample_cache import CacheMemory, shares_of_task
from dali_like.sources.caching import cached_elements
from dali_like.sources.caching.cache_options import CacheOptions
from dali_like.sources.caching.cached_callback import cached_callback, sample_key
from dali_like.sources.caching.cached_elements import decode, encode
from dali_like.sources.caching.element_cache import SampleCache
from dali_like.types import SampleInfo

ELEMENTS: dict[str, Any] = {
    "image and label": (np.arange(12, dtype=np.uint8).reshape(3, 4), np.array([7], np.int32)),
    "numbers without dimensions": (np.array(1.5), np.array(True), np.array(2j)),
    "other byte orders": (np.arange(3, dtype=">i4"), np.arange(3, dtype="<f2")),
    "columns": (np.arange(12).reshape(3, 4).T, np.arange(12)[::2]),
    "no elements": (np.zeros((0, 3), np.float32), np.ones(2)),
    "dates and texts": (np.array(["2026-01-02"], "M8[D]"), np.array(["a", "bc"])),
    "large": (np.zeros(20_000, np.uint8), np.ones(3)),
    "nothing": (),
}


@pytest.mark.parametrize("element", ELEMENTS.values(), ids=ELEMENTS.keys())
def test_the_short_way_to_encode_tuples_writes_the_same_bytes(element: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(encode(element, "map"))
    monkeypatch.setattr(cached_elements, "_joined", lambda _: None)
    assert b"".join(encode(element, "map")) == content

    decoded = decode(memoryview(content))

    assert type(decoded) is tuple
    for array, original in zip(decoded, element, strict=True):
        assert (array.dtype, array.shape) == (original.dtype, original.shape)
        assert array.tobytes() == original.tobytes()
        assert not array.size or not array.flags.writeable


def test_filling_a_cache_takes_a_dozen_python_calls_for_each_sample() -> None:
    memory = CacheMemory.create(1 << 40, 1000, 16 << 20, replaces=False)
    cache = SampleCache(CacheOptions.of(memory="1MiB"), 1000, None, "map", memory.ident)
    element = np.zeros((28, 28), np.uint8), np.zeros(1, np.int32)
    call = cached_callback(lambda info: element, cache, sample_key, is_async=False)
    grant = memory.grant(1, 500)
    memory.is_owned = False  # as in a worker process
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    with shares_of_task(memory.ident, grant.offset // 4096, 0):
        call(SampleInfo(0, 0, 0, 0))
        sys.setprofile(count)
        try:
            for i in range(1, 101):
                call(SampleInfo(i, i, 0, 0))
        finally:
            sys.setprofile(None)
    memory.is_owned = True
    grant.end(0b1)

    assert calls < 100 * 13
    assert memory.statistics().stored == 101
    assert decode(memory.get(50, 0) or memoryview(b""))[0].shape == (28, 28)
