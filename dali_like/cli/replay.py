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

from dali_like.cli.factories import object_of, parse_argument
from dali_like.cli.reports import table
from dali_like.common.articles import kind_of
from dali_like.errors import ArgumentError, CheckpointError, NotRepeatableError, OriginError, SampleIndexError
from dali_like.pipeline.pipeline import Pipeline
from dali_like.sources.origins import texts_of

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
            return found._repeat(epoch, step, state, lambda other, outputs: (outputs, _text_of(epoch, other, outputs)))
    from dali_like.data.repeated_batches import repeat_batch

    again = repeat_batch(found, step, state)
    if again.origins is None:
        return again.batch, "samples of an iterable dataset"
    return again.batch, f"samples {texts_of(again.origins)}"


def _text_of(epoch: int, pipe: Pipeline, outputs: Any) -> str:
    """Describe where the samples of a pipeline's batch come from."""
    try:
        return f"epoch {epoch}, samples {texts_of(pipe.origins_of(outputs))}"
    except OriginError as error:
        return f"epoch {epoch}; {error}"


def _object_of(options: argparse.Namespace) -> Any:
    """Return the loader or pipeline that the user has named.

    Raises:
        ArgumentError: it is another object.
    """
    found = object_of(options.object, "loader or pipeline", lambda value: value is not None)
    if callable(found) and (getattr(found, "_is_pipeline_def", False) or not hasattr(found, "batch_at")):
        found = found(**dict(map(parse_argument, options.given)))
    if not hasattr(found, "batch_at"):
        raise ArgumentError(f"{options.object} is {kind_of(found)}, not a loader or pipeline of this library")
    return found


def _state_in(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ArgumentError(f"{path} is not JSON: {error}") from error


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
