"""Shows a batch of a loader or pipeline again: the one of a step, computed from a saved state.

The state is any one that was saved in that epoch, as JSON of state_dict(), or a checkpoint. After a loss
spike at step 4711, for example, the command shows the shapes and statistics of that batch and names its samples;
--picture draws it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dali_like.cli.check.subjects import file_of
from dali_like.cli.factories import object_of, parse_argument
from dali_like.cli.reports import table
from dali_like.errors import ArgumentError, CheckpointError, NotRepeatableError, SampleIndexError
from dali_like.pipeline.pipeline import Pipeline
from dali_like.sources.composed import is_composed

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    parser.add_argument("object", help="module:name or file.py:name of a loader or pipeline, or of a function that makes it")
    parser.add_argument(
        "--with", dest="given", metavar="NAME=VALUE", action="append", default=[], help="argument of that function"
    )
    parser.add_argument(
        "--state",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="JSON of state_dict() in that epoch; repeated for the states of all ranks",
    )
    parser.add_argument("--step", type=int, required=True, metavar="N", help="number of the batch in its epoch, from 0 on")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the batch")


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    found = _object_of(options)
    states = [_state_in(path) for path in options.state]
    if options.step < 0:
        raise ArgumentError(f"--step must not be negative, but is {options.step}")
    try:
        batch, origins = _batch_of(found, options.step, states if len(states) > 1 else states[0])
    except (CheckpointError, NotRepeatableError, SampleIndexError) as error:
        raise ArgumentError(str(error)) from error
    print(f"{options.object}, step {options.step}: {origins}\n")
    from dali_like.showing.batch_columns import columns_of

    head = ("column", "samples", "shape", "dtype", "min", "mean", "max", "NaN or infinite")
    print(table(head, [tuple(_cells(column.name, column.values)) for column in columns_of(batch)]))
    if options.picture is not None:
        from dali_like.showing.pictures import show

        show(batch).save(options.picture)
    return 0


def _batch_of(found: Any, step: int, state: Any) -> tuple[Any, str]:
    """Return the batch, and where its samples come from."""
    if isinstance(found, Pipeline):
        first = state[0] if isinstance(state, list) else state
        epoch = first.get("epoch") if isinstance(first, dict) else None
        if not isinstance(epoch, int):
            raise CheckpointError("the state is not one of a pipeline")
        with contextlib.closing(found):
            outputs = found.batch_at(epoch, step, state)
        if files := _files_of(outputs):
            return outputs, files
        first_position = step * (found.max_batch_size or len(outputs[0]))
        return outputs, f"positions {first_position} to {first_position + len(outputs[0]) - 1} of epoch {epoch}"
    from dali_like.data.repeated_batches import repeat_batch

    repeated = repeat_batch(found, step, state)
    return repeated.batch, _origins(found.dataset, repeated.keys)


def _files_of(outputs: Any) -> str:
    """Return the names of the files that readers have read the samples from; "" if they are unknown."""
    for output in outputs:
        names = [tensor.source_info() for tensor in output.as_cpu()]
        if all(names):
            return f"samples {', '.join(names)}"
    return ""


def _object_of(options: argparse.Namespace) -> Any:
    """Return the loader or pipeline that the user has named.

    Raises:
        ArgumentError: it is another object.
    """
    found = object_of(options.object, "loader or pipeline", lambda value: value is not None)
    if callable(found) and (getattr(found, "_is_pipeline_def", False) or not hasattr(found, "batch_at")):
        found = found(**dict(map(parse_argument, options.given)))
    if not hasattr(found, "batch_at"):
        raise ArgumentError(f"{options.object} is a {type(found).__qualname__}, not a loader or pipeline of this library")
    return found


def _state_in(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ArgumentError(f"{path} is not JSON: {error}") from error


def _origins(dataset: Any, keys: Any) -> str:
    """Describe where the samples come from: their indices or positions, and their files if the dataset lists them."""
    if keys is None:
        return "samples of an iterable dataset"
    numbers = list(keys) if isinstance(keys, list | tuple | range) else [keys]
    if is_composed(dataset):
        return f"positions {', '.join(map(str, numbers))}"
    files = [file_of(dataset, number) for number in numbers]
    return "samples " + ", ".join(
        f"{number} ({file})" if file else str(number) for number, file in zip(numbers, files, strict=True)
    )


def _cells(name: str, values: Any) -> Iterator[str]:
    """Yield the cells of a column of a batch: shape, dtype, and the range of the values of its arrays."""
    yield name or "batch"
    yield str(len(values))
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if len(arrays) < len(values) or not arrays:
        yield from ("", type(values[0]).__name__ if len(values) else "", "", "", "", "")
        return
    shapes = {array.shape for array in arrays}
    yield str(shapes.pop()) if len(shapes) == 1 else f"{len(shapes)} shapes"
    yield str(arrays[0].dtype)
    numbers = np.concatenate([array.ravel() for array in arrays])
    if numbers.dtype.kind not in "biuf" or not numbers.size:
        yield from ("", "", "", "")
        return
    finite = numbers[np.isfinite(numbers)]
    for function in (np.min, np.mean, np.max):
        yield f"{float(function(finite)):.4g}" if finite.size else ""
    yield str(numbers.size - finite.size)
