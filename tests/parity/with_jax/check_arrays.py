"""Batches as arrays of JAX: their values, the owner of their memory, and its reuse."""

from __future__ import annotations

import doctest
import importlib
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def, plugin, types
from dali_like.device.opening import substitute
from dali_like.errors import RaggedError
from dali_like.plugin.jax import DALIGenericIterator
from dali_like.plugin.jax.batches import to_array
from dali_like.tensors import TensorGPU, TensorListCPU
from dali_like.testing.simulated_device import SimulatedArray, SimulatedDevice

from ..conftest import OURS, Library

MakePipeline = Callable[..., Pipeline]

DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
)


def described(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch, bit for bit."""
    return {
        name: (str(value.dtype), value.shape, value.devices(), np.asarray(value).tobytes()) for name, value in batch.items()
    }


# Their values


@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3, 4)], ids=str)
def test_dtypes(shape: tuple[int, ...], dali: Library, theirs: Any) -> None:
    def make(info: Any) -> Any:
        return tuple(np.full(shape, 1 + info.idx_in_epoch, dtype) for dtype in DTYPES)

    def first(library: Library, module: Any) -> Any:
        with library.source_pipeline(make, num_outputs=len(DTYPES)) as pipe:
            return described(next(module.DALIGenericIterator(pipe, list(DTYPES))))

    assert first(OURS, plugin.jax) == first(dali, theirs)


def test_elements_of_64_bits_where_jax_has_them(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.int64(2**40 + info.idx_in_batch), "serial")
    iterator = DALIGenericIterator(pipe, ["x"])

    with jax.enable_x64(True):
        batch = next(iterator)

    assert batch["x"].dtype == np.int64
    assert np.asarray(batch["x"]).tolist() == [2**40 + i for i in range(4)]


def test_objects_come_as_lists(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: {"number": info.idx_in_epoch}, "serial", source_options={"dtype": types.OBJECT})

    assert next(DALIGenericIterator(pipe, ["x"])) == {"x": [{"number": i} for i in range(4)]}


def test_samples_of_different_shapes(make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(make_pipeline(lambda info: np.zeros(info.idx_in_batch), "serial"), ["x"])

    with pytest.raises(RaggedError, match="'x' have 4 different shapes"):
        next(iterator)


# Whose memory it is


def numbered(info: Any) -> Any:
    """A large sample, full of its number."""
    return np.full(5001, info.idx_in_epoch, np.int32)


@pytest.mark.parametrize("way", ["serial", "spawn"])
def test_arrays_are_the_memory_of_the_batch(way: str, make_pipeline: MakePipeline) -> None:
    """Batches after the first one, in which the shapes of samples are found out, lie at multiples of 64 bytes.

    A small output beside a large one is a copy, wherever it lies.
    """

    class Spy(DALIGenericIterator):
        def _convert(self, name: str, output: TensorListCPU) -> Any:
            if name == "x":
                self.addresses = (*getattr(self, "addresses", ()), output.data_ptr())
            return super()._convert(name, output)

    pipe = make_pipeline(lambda info: (numbered(info), np.float32(info.idx_in_epoch)), way, num_outputs=2)
    iterator = Spy(pipe, ["x", "y"])

    batches = list(itertools.islice(iterator, 3))

    addresses = [batch["x"].unsafe_buffer_pointer() for batch in batches]
    assert addresses[1:] == list(iterator.addresses[1:])


@pytest.mark.parametrize(
    "keep",
    [lambda array: array, jax.device_put, np.asarray],
    ids=["array", "put", "numpy"],
)
def test_kept_batches_do_not_change(keep: Callable[[Any], Any], make_pipeline: MakePipeline) -> None:
    iterator = DALIGenericIterator(make_pipeline(numbered, "serial"), ["x"])

    kept = [keep(batch["x"]) for batch in itertools.islice(iterator, 30)]

    assert [np.asarray(array)[:, -1].tolist() for array in kept] == [list(range(4 * i, 4 * i + 4)) for i in range(30)]


def test_memory_of_dropped_batches_is_reused(make_pipeline: MakePipeline) -> None:
    """Else the test above would pass with memory that is never used again."""
    iterator = DALIGenericIterator(make_pipeline(numbered, "serial"), ["x"])

    addresses = {batch["x"].unsafe_buffer_pointer() for batch in itertools.islice(iterator, 100)}

    assert len(addresses) < 20


def test_running_computations_keep_their_input(make_pipeline: MakePipeline) -> None:
    @jax.jit
    def compute(x: Any) -> Any:
        matrix = jnp.outer(x[0, :300], jnp.ones(300)) / 300
        slowly = jax.lax.fori_loop(0, 30, lambda _, value: jnp.tanh(value @ matrix), matrix)
        return x[:, 0] + (0 * slowly[0, 0]).astype(x.dtype)

    iterator = DALIGenericIterator(make_pipeline(numbered, "serial"), ["x"])

    results = [compute(batch["x"]) for batch in itertools.islice(iterator, 20)]

    assert [result.tolist() for result in results] == [list(range(4 * i, 4 * i + 4)) for i in range(20)]


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_donated_batches_are_not_written_to(make_pipeline: MakePipeline) -> None:
    """JAX may compute in donated memory, but not in ours: the next batch would be in it."""
    increase = jax.jit(lambda x: x + 1, donate_argnums=0)
    iterator = DALIGenericIterator(make_pipeline(numbered, "serial"), ["x"])

    results = [increase(batch["x"]) for batch in itertools.islice(iterator, 20)]

    assert [result[:, -1].tolist() for result in results] == [list(range(4 * i + 1, 4 * i + 5)) for i in range(20)]


def test_arrays_that_jax_cannot_take_over(make_pipeline: MakePipeline) -> None:
    """They are fed, and may not be copied."""
    array = np.arange(60, dtype=np.float32).reshape(2, 30)
    frozen = array.copy()
    frozen.flags.writeable = False
    for given in (frozen, array[:, ::-1], array[:, ::2], np.broadcast_to(np.float32([1, 2]), (2, 2))):
        assert delivered(given).tolist() == given.tolist()


def delivered(array: Any) -> Any:
    """The result of an iterator for an array that is fed to an input of no copies."""

    @pipeline_def(batch_size=2)
    def pipeline() -> Any:
        return fn.external_source(name="x", no_copy=True)

    pipe = pipeline()
    pipe.feed_input("x", array)
    batch = next(DALIGenericIterator(pipe, ["x"]))
    pipe.close()
    return batch["x"]


# The modules


@pytest.mark.parametrize("name", ["", ".iterator", ".clu", ".batches"])
def test_modules(name: str) -> None:
    module = importlib.import_module(f"dali_like.plugin.jax{name}")

    assert module.__doc__
    assert [member for member in getattr(module, "__all__", []) if not getattr(module, member).__doc__] == []
    assert doctest.testmod(module).failed == 0


# From a GPU


def test_tensors_on_a_gpu_are_copied() -> None:
    memory = np.zeros(4096 + 64, np.uint8)
    begin = -memory.__array_interface__["data"][0] % 64  # JAX shares memory that is aligned so
    array = memory[begin : begin + 4096].reshape(8, 512)
    array[:] = 1
    with substitute(SimulatedDevice):
        tensor = TensorGPU(SimulatedArray(array))
        made = to_array(tensor)
        array[:] = 2

    assert (np.asarray(made) == 1).all()
