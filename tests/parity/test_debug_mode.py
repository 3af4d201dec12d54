"""The debug mode of the real DALI and of dali_like: the same values, and errors of the same classes for the same mistakes.

The programs follow DALI's own tests of the debug mode.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvidia.dali")

import nvidia.dali
import nvidia.dali.pipeline.experimental
import nvidia.dali.tensors

import dali_like
import dali_like.pipeline.experimental
import dali_like.tensors
from tests.image_files import with_opencv

pytestmark = pytest.mark.peers

LIBRARIES = (nvidia.dali, dali_like)
PHOTO = np.random.default_rng(3).integers(0, 255, (20, 24, 3), np.uint8)
ROWS = np.random.default_rng(4).random((3, 4, 5, 1))


@pytest.fixture(autouse=True)
def _no_current_pipeline() -> Iterator[None]:
    """DALI's pipelines in debug mode stay the current ones behind an error, and take the nodes of later tests."""
    yield
    while nvidia.dali.Pipeline.current() is not None:
        nvidia.dali.Pipeline.pop_current()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(6):
        (tmp_path / "some").mkdir(exist_ok=True)
        (tmp_path / "some" / f"{i}.png").write_bytes(with_opencv(np.roll(PHOTO, i, 1), ".png"))
    return tmp_path


def run(library: Any, program: Callable[..., Any], *arguments: Any, runs: int = 2, **options: Any) -> Any:
    """The outputs of some runs."""
    given = {"batch_size": 4, "num_threads": 1, "device_id": None, "seed": 47, "debug": True, **options}
    with warnings.catch_warnings(action="ignore"):
        pipe = library.pipeline.experimental.pipeline_def(**given)(program)(library, *arguments)
        with contextlib.ExitStack() as stack:
            if library is dali_like:
                stack.enter_context(contextlib.closing(pipe))
            pipe.build()
            return [[*map(described, pipe.run())] for _ in range(runs)]


def described(batch: Any) -> tuple[str, list[Any]]:
    return batch.layout(), [np.array(sample).tolist() for sample in batch]


def position(info: Any) -> Any:
    return np.int32([info.idx_in_epoch, info.idx_in_batch, info.iteration])


def of_a_reader(lib: Any, folder: Path) -> Any:
    files, labels = lib.fn.readers.file(file_root=str(folder), shard_id=0, num_shards=2)
    images = lib.fn.decoders.image(files, output_type=lib.types.RGB)
    cropped = lib.fn.crop(images, crop=(8, 10))
    output = lib.fn.crop_mirror_normalize(cropped, mirror=labels ^ 1, dtype=lib.types.FLOAT, mean=[1.0, 2.0, 3.0])
    return images, labels, cropped, output


def of_conditionals(lib: Any, _: Path) -> Any:
    x = lib.fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False)
    if x > 1:
        y = x * 10
        if x == 2:
            y = y + 1
    else:
        y = -x
    return y, x > 0 and x < 3


def of_arithmetic(lib: Any, _: Path) -> Any:
    x = lib.fn.external_source(ROWS)
    return (x * 2 + 1) / 3 > 1, x[1:3, 0], x + lib.types.Constant(2), 3, 1.5


def of_input_sets(lib: Any, _: Path) -> Any:
    return tuple(lib.fn.cat([lib.fn.external_source(ROWS)] * 3, [lib.fn.external_source(ROWS)] * 3))


@pytest.mark.parametrize("program", [of_a_reader, of_conditionals, of_arithmetic, of_input_sets])
def test_operators(program: Callable[..., Any], folder: Path) -> None:
    """DALI's debug mode asks CUDA for a device before it runs an operator. So the reference is DALI without debug mode."""
    options = {"enable_conditionals": program is of_conditionals}
    assert run(dali_like, program, folder, **options) == run(nvidia.dali, program, folder, debug=False, **options)


INJECTED: dict[str, Callable[[Any], Any]] = {
    "torch tensors": lambda batch: [torch.tensor(np.array(sample)) for sample in batch],
    "a tensor list": lambda batch: batch,
    "tensors": lambda batch: [*batch],
}


@pytest.mark.parametrize("name", INJECTED)
def test_batches_changed_outside_of_operators(name: str) -> None:
    def program(lib: Any, inject: Callable[[Any], Any]) -> Any:
        x = lib.fn.external_source(lambda info: PHOTO + np.uint8(info.idx_in_epoch), batch=False, layout="HWC")
        return lib.fn.crop(inject(x), crop=(4, 4))

    ours = run(dali_like, program, lambda node: INJECTED[name](node.get()))
    assert ours == run(nvidia.dali, program, lambda node: node, debug=False)


SOURCES: dict[str, Callable[[Any], Any]] = {
    "of batches": lambda lib: lib.fn.external_source(ROWS),
    "of samples": lambda lib: lib.fn.external_source(ROWS, batch=False, cycle=True),
    "of several outputs": lambda lib: tuple(lib.fn.external_source([[ROWS[0], ROWS[1]]] * 3, num_outputs=2)),
    "of a callable": lambda lib: lib.fn.external_source(position, batch=False),
    "of batches of a callable": lambda lib: lib.fn.external_source(lambda i: [np.int32(i * np.ones(2))] * 4),
    "of batch infos": lambda lib: lib.fn.external_source(
        lambda i: [np.int32([i.iteration, i.epoch_idx])] * 4, batch_info=True
    ),
    "parallel": lambda lib: lib.fn.external_source(position, batch=False, parallel=True),
    "of changing sizes": lambda lib: lib.fn.external_source([ROWS[0][:2], ROWS[1][:3], ROWS[2]]),
    "of a layout": lambda lib: lib.fn.external_source(lambda info: PHOTO, batch=False, layout="HWC"),
    "besides constants": lambda lib: (lib.fn.external_source(ROWS), 3, 1.5, np.float32([1, 2])),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name: str) -> None:
    theirs, ours = (run(library, SOURCES[name]) for library in LIBRARIES)
    assert ours == theirs


def test_inputs() -> None:
    def results(library: Any) -> Any:
        make = library.pipeline.experimental.pipeline_def(batch_size=4, num_threads=1, device_id=None, debug=True)
        pipe = make(lambda: (library.fn.external_source(name="a"), library.fn.external_source(name="b")))()
        with contextlib.closing(pipe) if library is dali_like else contextlib.nullcontext():
            pipe.build()
            for i in range(3):
                pipe.feed_input("a", ROWS[i])
                pipe.feed_input("b", [np.array(row) for row in ROWS[i]])
            return [[batch.as_array().tolist() for batch in pipe.run()] for _ in range(3)]

    theirs, ours = map(results, LIBRARIES)
    assert ours == theirs


def _first(values: list[Any]) -> Callable[[], Any]:
    rest = iter(values)
    return lambda: next(rest)


def _either(lib: Any, is_first: bool) -> Any:
    if is_first:
        return lib.fn.external_source(ROWS)
    return lib.fn.external_source(ROWS)


#: Messages about operators are in tests/pipeline/test_debug_mode.py: DALI needs a GPU to raise them.
ERRORS: dict[str, tuple[Callable[[Any, Callable[[], Any]], Any], str]] = {
    "another place": (
        lambda lib, is_first: _either(lib, is_first()),
        "Unexpected operator 'ExternalSource'. Debug mode does not support changing the order of operators executed within "
        "the pipeline.",
    ),
    "batch sizes": (
        lambda lib, is_first: (lib.fn.external_source(ROWS), lib.fn.external_source(ROWS[:, :2])),
        "Batch size must be uniform across an iteration. External Source operator returned batch size: 2, expected: 4",
    ),
    "nested outputs": (lambda lib, is_first: ([lib.fn.external_source(ROWS)], 1), "Illegal pipeline output type"),
    "the exception of a source": (lambda lib, is_first: lib.fn.external_source(lambda: 1 / 0), "division by zero"),
    "the end": (lambda lib, is_first: lib.fn.external_source(ROWS[:1]), ""),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    define, message = ERRORS[name]
    errors = []
    for library in LIBRARIES:
        is_first = _first([True, False])
        with pytest.raises(Exception) as error:  # noqa: PT011  # its class is compared below
            run(library, lambda lib, is_first=is_first: define(lib, is_first))
        assert re.search(message, str(error.value)), library
        errors.append(error.value)
    theirs, ours = errors
    assert isinstance(ours, type(theirs))
