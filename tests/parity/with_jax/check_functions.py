"""Functions of JAX arrays as operators. DALI's needs an older JAX, so these are compared with its documentation."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import ArgumentError, OutputCountError, SampleTypeError
from dali_like.plugin import jax as plugin

PICTURES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(4)]
jax_function = plugin.fn.jax_function


def run(define: Any, samples: Any = PICTURES, layout: str | None = "HWC") -> list[Any]:
    pipe = Pipeline(batch_size=len(samples), num_threads=1)
    with pipe:
        outputs = define(fn.external_source(lambda: samples, layout=layout))
        pipe.set_outputs(*(outputs if isinstance(outputs, (list, tuple)) else [outputs]))
    try:
        return [(batch.layout(), [np.array(batch.at(i)) for i in range(len(batch))]) for batch in pipe.run()]
    finally:
        pipe.close()


def test_batches() -> None:
    seen = []

    @jax_function
    def flipped(batch: Any) -> Any:
        seen.append((isinstance(batch, jax.Array), batch.shape, batch.dtype))
        return batch[:, :, ::-1, :]

    ((layout, samples),) = run(flipped)

    assert layout == "HWC"
    assert seen == [(True, (4, 2, 4, 3), np.uint8)]
    np.testing.assert_array_equal(samples, np.array(PICTURES)[:, :, ::-1])


def test_transformed_functions() -> None:
    turned = jax_function(jax.jit(jax.vmap(lambda image: image.transpose(1, 0, 2))), output_layouts="WHC")

    ((layout, samples),) = run(turned)

    assert layout == "WHC"
    np.testing.assert_array_equal(samples, np.array(PICTURES).transpose(0, 2, 1, 3))


def test_several_outputs() -> None:
    @jax_function(num_outputs=2)
    def both(one: Any, other: Any) -> Any:
        return one + other, other.sum(axis=(1, 2, 3))

    (layout, sums), (other_layout, totals) = run(lambda data: both(data, data))

    assert (layout, other_layout) == ("HWC", "")
    np.testing.assert_array_equal(sums, 2 * np.array(PICTURES))
    np.testing.assert_array_equal(totals, np.array(PICTURES).sum(axis=(1, 2, 3)))


@pytest.mark.parametrize("preserve", [True, False])
def test_no_outputs(preserve: bool) -> None:
    seen = []

    def note(batch: Any) -> None:
        seen.append(batch.shape)

    def define(data: Any) -> Any:
        assert jax_function(note, num_outputs=0, preserve=preserve)(data) is None
        return data

    run(define)

    assert bool(seen) == preserve


def test_no_inputs() -> None:
    ((_, samples),) = run(lambda _: jax_function(lambda: jax.numpy.arange(4))())

    assert [int(sample) for sample in samples] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (np.asarray, SampleTypeError, "must return JAX arrays, not an ndarray"),
        (lambda batch: batch[:1], OutputCountError, r"shape \(1, 2, 4, 3\) for a batch of 4 samples"),
        (lambda batch: batch.sum(), OutputCountError, r"shape \(\) for a batch of 4 samples"),
        (lambda batch: (batch, batch), OutputCountError, "returned 2 arrays, but num_outputs is 1"),
    ],
)
def test_wrong_results(function: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        run(jax_function(function))


def test_samples_of_different_shapes() -> None:
    with pytest.raises(SampleTypeError, match=r"have different shapes.*resize or pad them first"):
        run(jax_function(lambda batch: batch), [PICTURES[0], PICTURES[1][:1]])


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match="function must be callable, not an int"):
        jax_function(3)
    with pytest.raises(ArgumentError, match="sharding must be a NamedSharding, not a str"):
        jax_function(lambda batch: batch, sharding="all")
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    with pytest.raises(ArgumentError, match="sharding needs processes with one device each, but this one has 8"):
        jax_function(lambda batch: batch, sharding=sharding)


def test_sharding(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one of the devices, as in a process that has no other."""
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("batch",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    seen = []

    def double(batch: Any) -> Any:
        seen.append(batch.sharding)
        return batch * 2

    ((_, samples),) = run(jax_function(double, sharding=sharding))

    assert seen == [sharding]
    np.testing.assert_array_equal(samples, 2 * np.array(PICTURES))
