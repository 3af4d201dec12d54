"""Makes datasets of TensorFlow from pipelines."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dali_like.common.articles import kind_of
from dali_like.common.extras import optional
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, PipelineStateError
from dali_like.pipeline.pipeline import Pipeline
from dali_like.plugin._outputs import dense

__all__ = ["DALIDataset", "DALIDatasetWithInputs", "Input"]


def DALIDataset(  # noqa: N802  # DALI's name
    pipeline: Pipeline,
    output_dtypes: Any = None,
    output_shapes: Any = None,
    fail_on_device_mismatch: bool = True,
    *,
    batch_size: int | None = None,
    num_threads: int | None = None,
    device_id: int | None = None,
    dtypes: Any = None,
    shapes: Any = None,
    **ignored: Any,
) -> Any:
    """Return a ``tf.data.Dataset`` of the batches of a pipeline.

    Each iterator over the dataset yields one epoch: until the sources end. A pipeline of readers alone has no end, as in
    DALI; use ``take``, or ``steps_per_epoch``. Only one iterator at a time can use the pipeline. The pipeline is built at
    once, so that its workers start before the threads of TensorFlow. Follows ``nvidia.dali.plugin.tf.DALIDataset`` 1.53,
    which has no external sources.

    Args:
        pipeline: whose outputs have samples of one shape in each batch.
        output_dtypes: the type of each output, as of TensorFlow: one, or a tuple of all.
        output_shapes: the shape of each output with the dimension of the batch, as TensorFlow takes it. None: any shape.
        fail_on_device_mismatch: accepted; TensorFlow copies batches to where they are used.
        batch_size, num_threads, device_id: as in the pipeline, or None.
        dtypes, shapes: older names of `output_dtypes` and `output_shapes`.
        ignored: other arguments of DALI about the execution, such as `prefetch_queue_depth`.

    Raises:
        MissingExtraError: TensorFlow is not installed.
        ArgumentTypeError: `pipeline` has another type, or an argument is unknown.
        ArgumentError: `batch_size` and so on differ from the pipeline's; there is no dtype for each output.
        ArgumentClashError: an argument is given by both of its names.
    """
    given = {"batch_size": batch_size, "num_threads": num_threads, "device_id": device_id}
    return _dataset(pipeline, (output_dtypes, dtypes), (output_shapes, shapes), {}, given, ignored)


def DALIDatasetWithInputs(  # noqa: N802  # DALI's name
    pipeline: Pipeline,
    output_dtypes: Any = None,
    output_shapes: Any = None,
    fail_on_device_mismatch: bool = True,
    *,
    input_datasets: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    num_threads: int | None = None,
    device_id: int | None = None,
    dtypes: Any = None,
    shapes: Any = None,
    **ignored: Any,
) -> Any:
    """Return a ``tf.data.Dataset`` of the batches of a pipeline whose inputs are other datasets.

    An epoch ends with the shortest of the datasets. Samples behind the last full batch make a smaller one.

    Other arguments and errors: see `DALIDataset`.

    Args:
        input_datasets: a ``tf.data.Dataset`` of samples, or an `Input`, for each ``fn.external_source`` without source, by
            its name.
    """
    inputs = {name: value if isinstance(value, Input) else Input(value) for name, value in (input_datasets or {}).items()}
    given = {"batch_size": batch_size, "num_threads": num_threads, "device_id": device_id}
    return _dataset(pipeline, (output_dtypes, dtypes), (output_shapes, shapes), inputs, given, ignored)


@dataclass(frozen=True)
class Input:
    """A dataset as input of a pipeline.

    Args:
        dataset: a ``tf.data.Dataset`` of single tensors.
        layout: a letter for each dimension of a sample. None: that of the ``fn.external_source``.
        batch: whether its elements are batches.
    """

    dataset: Any
    layout: str | None = None
    batch: bool = False

    def batches(self, size: int) -> Iterator[Any]:
        """Yield batches of NumPy arrays: with `size` samples each, unless the dataset has batches."""
        elements = iter(self.dataset.as_numpy_iterator())
        if self.batch:
            yield from elements
        while not self.batch and (samples := list(itertools.islice(elements, size))):
            yield samples


#: Arguments of DALI's datasets about the execution, which the pipeline decides here.
_EXECUTION = {
    *("exec_separated", "exec_dynamic", "prefetch_queue_depth", "cpu_prefetch_queue_depth", "gpu_prefetch_queue_depth"),
}


def _dataset(
    pipeline: Pipeline,
    dtypes: tuple[Any, Any],
    shapes: tuple[Any, Any],
    inputs: Mapping[str, Input],
    given: Mapping[str, Any],
    ignored: Mapping[str, Any],
) -> Any:
    tf = optional("tensorflow", "dali_like.plugin.tf", "tensorflow")
    if not isinstance(pipeline, Pipeline):
        raise ArgumentTypeError(f"pipeline must be a Pipeline, not {kind_of(pipeline)}")
    if unknown := [name for name in ignored if name not in _EXECUTION]:
        raise ArgumentTypeError(f"DALIDataset has no argument {unknown[0]!r}")
    own = {"batch_size": pipeline.max_batch_size, "num_threads": pipeline.num_threads, "device_id": pipeline.device_id}
    for name, value in given.items():
        if value is not None and value != own[name]:
            raise ArgumentError(f"{name}={value}, but the pipeline has {own[name]}: leave it out, or make them equal")
    for name, each in inputs.items():
        if not isinstance(each.dataset, tf.data.Dataset):
            raise ArgumentTypeError(f"input_datasets[{name!r}] must be a tf.data.Dataset, not {type(each.dataset).__name__}")

    pipeline.build()
    kinds = _one_of("dtypes", dtypes)
    kinds = tuple(kinds) if isinstance(kinds, (tuple, list)) else (kinds,)
    if kinds == (None,) or len(kinds) != pipeline.num_outputs:
        raise ArgumentError(f"output_dtypes must have a type for each of the {pipeline.num_outputs} outputs of the pipeline")
    sizes = _sizes(_one_of("shapes", shapes), len(kinds), tf)
    signature = tuple(tf.TensorSpec(size, kind) for size, kind in zip(sizes, kinds, strict=True))
    return tf.data.Dataset.from_generator(_Epochs(pipeline, inputs), output_signature=signature)


def _one_of(name: str, values: tuple[Any, Any]) -> Any:
    """Return an argument that has two names."""
    current, older = values
    if current is not None and older is not None:
        raise ArgumentClashError(f"output_{name} and {name} are the same argument: pass one of them")
    return older if current is None else current


def _sizes(shapes: Any, count: int, tf: Any) -> Sequence[Any]:
    if shapes is None:
        return [None] * count
    is_single = isinstance(shapes, tf.TensorShape) or not any(
        isinstance(each, (tuple, list, tf.TensorShape)) for each in shapes
    )
    sizes = [shapes] if is_single else list(shapes)
    if len(sizes) != count:
        raise ArgumentError(f"output_shapes has {len(sizes)} shapes for {count} outputs")
    return sizes


class _Epochs:
    """Called by TensorFlow for each iterator, in one of its threads: returns the batches of an epoch."""

    def __init__(self, pipeline: Pipeline, inputs: Mapping[str, Input]) -> None:
        self._pipeline = pipeline
        self._inputs = inputs
        self._lock = threading.Lock()
        self._latest = 0
        self._is_used = False

    def __call__(self) -> Iterator[tuple[Any, ...]]:
        with self._lock:
            self._latest += 1
            if self._is_used:
                self._pipeline.reset()
            self._is_used = True
        return self._batches(self._latest)

    def _batches(self, number: int) -> Iterator[tuple[Any, ...]]:
        fed = {name: each.batches(self._pipeline.max_batch_size or 1) for name, each in self._inputs.items()}
        while True:
            with self._lock:
                if number != self._latest:
                    raise PipelineStateError(
                        "another iterator over this dataset has begun, and one pipeline serves one iterator"
                    )
                try:
                    for name, batches in fed.items():
                        self._pipeline.feed_input(name, next(batches), layout=self._inputs[name].layout)
                    outputs = self._pipeline.run()
                except StopIteration:
                    return
            yield tuple(np.asarray(dense(f"output {i}", output.as_cpu())) for i, output in enumerate(outputs))
