"""JAX with eight devices on the CPU, and DALI's plugin for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

NUM_DEVICES = 8
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={NUM_DEVICES}"

jax: Any = pytest.importorskip("jax")


@pytest.fixture(scope="session", autouse=True)
def _jax_is_up() -> None:
    """Descriptors and threads that JAX opens once are not test's."""
    jax.jit(lambda value: value + 1)(jax.numpy.zeros(3)).block_until_ready()
    assert jax.device_count() == NUM_DEVICES


@pytest.fixture(autouse=True)
def _jax_lets_go() -> Iterator[None]:
    """JAX lets go of NumPy's arrays that it does not use any more when it is next called."""
    yield
    jax.device_put(0).block_until_ready()


class ArraySpec(NamedTuple):
    """Stands in for that of ``clu``, the only thing of it that DALI uses."""

    shape: Any
    dtype: Any


@pytest.fixture(scope="session")
def theirs() -> Any:
    """``nvidia.dali.plugin.jax``, with its imports from older versions of JAX, and of ``clu``."""
    pytest.importorskip("nvidia.dali")
    if not hasattr(jax.sharding, "PositionalSharding"):
        jax.sharding.PositionalSharding = type("PositionalSharding", (), {})
    if "clu" not in sys.modules:
        module: Any = ModuleType("clu.data.dataset_iterator")
        module.ArraySpec, module.ElementSpec = ArraySpec, Any
        sys.modules.update({"clu": ModuleType("clu"), "clu.data": ModuleType("clu.data"), module.__name__: module})
    import nvidia.dali.plugin.jax.clu as peekable
    from nvidia.dali.plugin import jax as plugin

    plugin.clu = peekable
    return plugin
