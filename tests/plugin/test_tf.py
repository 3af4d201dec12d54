"""Datasets of TensorFlow from pipelines. Each program runs in a process of its own: TensorFlow starts threads."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dali_like
from dali_like import fn, pipeline_def
from dali_like.errors import MissingExtraError

needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")

HEAD = """
import numpy as np
import tensorflow as tf
from dali_like import fn, pipeline_def
from dali_like.plugin import tf as plugin

def number(info):
    if info.iteration > 2:
        raise StopIteration
    return np.int32([info.idx_in_epoch, info.epoch_idx])

@pipeline_def(batch_size=2, num_threads=1, device_id=None, py_num_workers=1)
def numbers(parallel=False):
    data = fn.external_source(number, batch=False, parallel=parallel)
    return data, fn.cast(data[0], dtype=plugin_types.FLOAT)

from dali_like import types as plugin_types
"""


def printed_by(program: str) -> list[str]:
    text = HEAD + textwrap.dedent(program)
    root = Path(str(dali_like.__file__)).parents[1]
    done = subprocess.run([sys.executable, "-c", text], cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is not None, reason="TensorFlow is installed")
def test_without_tensorflow_the_error_names_the_package_to_install() -> None:
    from dali_like.plugin.tf import DALIDataset

    @pipeline_def(batch_size=2)
    def pipeline():
        return fn.random.uniform()

    with pytest.raises(MissingExtraError, match=r"dali_like\.plugin\.tf needs tensorflow: pip install 'tensorflow>="):
        DALIDataset(pipeline(), "float32")


@needs_tensorflow
@pytest.mark.parametrize("parallel", [False, True])
def test_each_iterator_is_an_epoch_of_the_sources(parallel: bool) -> None:
    lines = printed_by(f"""
    dataset = plugin.DALIDataset(numbers(parallel={parallel}), (tf.int32, tf.float32), ((2, 2), (2,)), batch_size=2)
    print(isinstance(dataset, tf.data.Dataset), dataset.element_spec[0].shape)
    for epoch in range(2):
        print([(pairs.numpy().tolist(), firsts.numpy().tolist()) for pairs, firsts in dataset])
    """)

    epochs = [[([[i, epoch], [i + 1, epoch]], [float(i), float(i + 1)]) for i in (0, 2, 4)] for epoch in range(2)]
    assert lines == ["True (2, 2)", *map(str, epochs)]


@needs_tensorflow
def test_a_model_trains_with_it() -> None:
    lines = printed_by("""
    @pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def pairs():
        x = fn.random.uniform(shape=[3])
        return x, fn.reductions.sum(x, axes=[0], keep_dims=True)

    dataset = plugin.DALIDataset(pairs(), (tf.float32, tf.float32), ((4, 3), (4, 1)))
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(dataset, steps_per_epoch=5, epochs=2, verbose=0)
    print(len(history.history["loss"]))
    """)

    assert lines == ["2"]


@needs_tensorflow
def test_inputs_are_other_datasets() -> None:
    lines = printed_by("""
    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def sums():
        return fn.external_source(name="a") * 10

    dataset = plugin.experimental.DALIDatasetWithInputs(sums(), tf.int64, input_datasets={"a": tf.data.Dataset.range(5)})
    for _ in range(2):
        print([batch.numpy().tolist() for batch, in dataset])
    batches = plugin.experimental.Input(tf.data.Dataset.range(6).batch(3), batch=True)
    dataset = plugin.experimental.DALIDatasetWithInputs(sums(batch_size=3), tf.int64, input_datasets={"a": batches})
    print([batch.numpy().tolist() for batch, in dataset])
    """)

    assert lines == ["[[0, 10], [20, 30], [40]]"] * 2 + ["[[0, 10, 20], [30, 40, 50]]"]


@needs_tensorflow
def test_wrong_arguments_and_a_second_iterator_are_errors() -> None:
    lines = printed_by("""
    from dali_like.errors import DaliLikeError

    for arguments in (
        {"batch_size": 3}, {"output_dtypes": tf.int32}, {"output_shapes": (2, 2)}, {"foo": 1}, {"dtypes": tf.int32},
    ):
        try:
            plugin.DALIDataset(numbers(), **{"output_dtypes": (tf.int32, tf.float32), **arguments})
        except DaliLikeError as error:
            print(error)
    dataset = plugin.DALIDataset(numbers(), (tf.int32, tf.float32), prefetch_queue_depth=3)
    first, second = iter(dataset), None
    next(first)
    second = iter(dataset)
    next(second)
    try:
        list(first)
    except tf.errors.OpError as error:
        print("another iterator over this dataset has begun" in str(error))
    """)

    assert lines == [
        "batch_size=3, but the pipeline has 2: leave it out, or make them equal",
        "output_dtypes must have a type for each of the 2 outputs of the pipeline",
        "output_shapes has 1 shapes for 2 outputs",
        "DALIDataset has no argument 'foo'",
        "output_dtypes and dtypes are the same argument: pass one of them",
        "True",
    ]
