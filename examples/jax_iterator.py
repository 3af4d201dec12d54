"""Train a digit classifier with JAX on all of its devices, through DALI's `data_iterator`.

    python -m examples.jax_iterator [--epochs 3] [--workers 0]
    XLA_FLAGS=--xla_force_host_platform_device_count=4 python -m examples.jax_iterator

Each device has its own pipeline, which reads the shard `shard_id` of the digits. The loop receives one array for all
devices. On the CPU, the shards of this array are the batches themselves, without a copy.

Requires JAX and scikit-learn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dali_like import fn, types
from dali_like.plugin.jax import data_iterator
from examples.digit_source import DigitSource, digits

BATCH_SIZE = 32
LEARNING_RATE = 0.5

Parameters = dict[str, Any]


def labeled(sharding: Any) -> Callable[..., Any]:
    """Return a function that makes iterators over images and labels for the devices of a sharding."""

    @data_iterator(output_map=["image", "label"], auto_reset=True, sharding=sharding)
    def iterator(images: Any, labels: Any, parallel: bool, shard_id: int = 0, num_shards: int = 1) -> Any:
        return tuple(
            fn.external_source(
                source=DigitSource(images, labels, shard_id, num_shards),
                num_outputs=2,
                batch=False,
                parallel=parallel,
                dtype=[types.FLOAT, types.INT32],
                last_batch_policy="drop",
            )
        )

    return iterator


def scores(parameters: Parameters, images: Any) -> Any:
    """Return a score for each digit, given images of shape (8, 8), from a network of two layers."""
    hidden = jnp.tanh(images.reshape(-1, 64) @ parameters["first"] + parameters["bias"])
    return hidden @ parameters["second"]


def loss_of(parameters: Parameters, images: Any, labels: Any) -> Any:
    """Return the mean cross-entropy."""
    chances = jax.nn.log_softmax(scores(parameters, images))
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], axis=1))


@jax.jit
def step(parameters: Parameters, images: Any, labels: Any) -> tuple[Parameters, Any]:
    """Return the parameters after a batch, and its loss."""
    loss, slopes = jax.value_and_grad(loss_of)(parameters, images, labels)
    return jax.tree.map(lambda value, slope: value - LEARNING_RATE * slope, parameters, slopes), loss


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits from data_iterator.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0, help="workers per device; 0: compute digits in this process")
    options = parser.parse_args(arguments)

    training, (images, labels) = digits()
    mesh = Mesh(np.array(jax.devices()), ("device",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    first, second = jax.random.split(jax.random.key(7))
    parameters = {
        "first": 0.1 * jax.random.normal(first, (64, 64)),
        "bias": jnp.zeros(64),
        "second": 0.1 * jax.random.normal(second, (64, 10)),
    }
    parameters = jax.device_put(parameters, everywhere)

    make_iterator = labeled(NamedSharding(mesh, PartitionSpec("device")))
    batches = make_iterator(
        *training,
        options.workers > 0,
        batch_size=BATCH_SIZE,
        py_num_workers=options.workers,
        py_start_method="spawn",
    )
    for epoch in range(options.epochs):
        losses = []
        for batch in batches:
            parameters, loss = step(parameters, batch["image"], batch["label"])
            losses.append(loss)
        named = scores(parameters, images).argmax(1)
        accuracy = float((named == labels).mean())
        print(f"epoch {epoch}: loss {float(sum(losses) / len(losses)):.4f}, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
