"""Picklers for sources, as the real DALI 1.53 and dali_like take them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

dali_pickling = pytest.importorskip("nvidia.dali.pickling")

import dali_like.pickling  # noqa: E402
from dali_like.types import SampleInfo  # noqa: E402
from tests.parity.conftest import OURS, Library, values  # noqa: E402

pytestmark = pytest.mark.peers

PICKLING = [dali_pickling, dali_like.pickling]


def source(info: SampleInfo) -> Any:
    return np.full(1, info.idx_in_epoch)


class Plain:
    """Sees the callback itself, and tells its reader."""

    @staticmethod
    def dumps(value: Any) -> bytes:
        return pickle.dumps((value, value.__name__))

    @staticmethod
    def loads(data: bytes) -> Callable[[SampleInfo], Any]:
        value, name = pickle.loads(data)
        return lambda info: value(info) + 100 * len(name)


class WithKeywords:
    @staticmethod
    def dumps(value: Any, add: int) -> bytes:
        return pickle.dumps((value, add))

    @staticmethod
    def loads(data: bytes, times: int = 1) -> Callable[[SampleInfo], Any]:
        value, add = pickle.loads(data)
        return lambda info: (value(info) + add) * times


@pytest.mark.parametrize(
    "pickler",
    [Plain, [Plain], (Plain, None), (WithKeywords, {"add": 5}), (WithKeywords, {"add": 5}, {"times": 2})],
    ids=["alone", "in a list", "None", "of dumps", "of dumps and loads"],
)
def test_picklers_are_called_with_the_same(dali: Library, pickler: Any) -> None:
    def deliver(library: Library) -> Any:
        with library.source_pipeline(source, "spawn", workers=1, py_callback_pickler=pickler) as pipe:
            return values(pipe.run()[0])

    assert deliver(OURS) == deliver(dali)


@pytest.mark.parametrize("pickler", ["dill", 7, object()], ids=["a name", "a number", "an object"])
def test_anything_else_is_the_same_error(dali: Library, pickler: Any) -> None:
    for library in (OURS, dali):
        with (
            pytest.raises(ValueError, match="Unsupported py_callback_pickler value provided"),
            library.source_pipeline(source, "spawn", workers=1, py_callback_pickler=pickler) as pipe,
        ):
            pipe.build()


def test_pickler_with_fork_is_the_same_error(dali: Library) -> None:
    for library in (OURS, dali):
        with (
            pytest.raises(ValueError, match=r"py_callback_pickler.* should not be set when .*fork"),
            library.source_pipeline(source, "fork", workers=1, py_callback_pickler=pickle),
        ):
            pass


@pytest.mark.parametrize("value", [len, Plain, Plain(), None], ids=["builtin", "class", "object", "None"])
def test_pickle_by_value_takes_the_same(value: Any) -> None:
    for module in PICKLING:
        with pytest.raises(TypeError):
            module.pickle_by_value(value)
        assert module.pickle_by_value(source) is source
