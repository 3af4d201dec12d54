"""The message about ``max_held_bytes`` names a limit that suffices, at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, types
from dali_like.data import DataLoader
from dali_like.errors import OutOfMemoryError

BATCH_SIZE = 16
NUM_BATCHES = 6
LITTLE_BYTES = 1 << 20

Make = Callable[[int], NDArray[np.uint8]]


def dense(i: int) -> NDArray[np.uint8]:
    return np.full((256, 256, 3), i, np.uint8)


def ragged(i: int) -> NDArray[np.uint8]:
    return np.full((64 + 37 * (i % 9), 256, 3), i, np.uint8)


def pipeline_batches(make: Make, way: str, depth: int, limit: int) -> Iterator[Any]:
    workers = {} if way == "serial" else {"py_num_workers": 2, "py_start_method": way}
    with Pipeline(
        batch_size=BATCH_SIZE, num_threads=1, device_id=None, prefetch_queue_depth=depth, max_held_bytes=limit, **workers
    ) as pipe:
        pipe.set_outputs(fn.external_source(lambda info: make(info.idx_in_epoch), batch=False, parallel=way != "serial"))
    try:
        for _ in range(NUM_BATCHES):
            yield pipe.run()
    finally:
        pipe.close()


class Samples:
    def __init__(self, make: Make) -> None:
        self.make = make

    def __len__(self) -> int:
        return NUM_BATCHES * BATCH_SIZE

    def __getitem__(self, i: int) -> NDArray[np.uint8]:
        return self.make(i)


def loader_batches(make: Make, way: str, depth: int, limit: int) -> Iterator[Any]:
    return iter(
        DataLoader(
            Samples(make),
            BATCH_SIZE,
            num_workers=2,
            prefetch_factor=depth,
            multiprocessing_context=way,
            max_held_bytes=limit,
            collate_fn=list,
        )
    )


@pytest.mark.parametrize("make", [dense, ragged])
@pytest.mark.parametrize(
    ("batches", "way", "depth"),
    [
        (pipeline_batches, "serial", 2),
        (pipeline_batches, "thread", 1),
        (pipeline_batches, "thread", 4),
        (pipeline_batches, "fork", 2),
        (loader_batches, "thread", 2),
        (loader_batches, "fork", 2),
    ],
)
def test_the_named_limit_suffices(batches: Callable[..., Iterator[Any]], way: str, depth: int, make: Make) -> None:
    with pytest.raises(OutOfMemoryError, match=r"the limit is 1\.0 MiB") as caught:
        list(batches(make, way, depth, LITTLE_BYTES))
    found = re.search(r"pass max_held_bytes=(\d+) << 20 \(\d+ MiB\), which suffices$", str(caught.value))
    assert found is not None

    last = None
    for number, last in enumerate(batches(make, way, depth, int(found[1]) << 20)):  # noqa: B007  # one batch is held
        pass

    assert last is not None
    assert number == NUM_BATCHES - 1


def test_the_named_limit_has_room_for_the_batches_that_the_program_holds() -> None:
    limit = LITTLE_BYTES << 2
    for _ in range(3):  # at the first batch, the number of batches that the program will hold is unknown
        kept: list[Any] = []
        try:
            for batch in pipeline_batches(dense, "serial", 1, limit):
                kept = [*kept, batch][-2:]
            break
        except OutOfMemoryError as error:
            found = re.search(r"max_held_bytes=(\d+) << 20", str(error))
            assert found is not None
            limit = int(found[1]) << 20
    else:
        pytest.fail(f"{limit} bytes do not suffice")


def test_operators_in_the_main_process_may_need_more_than_the_named_limit() -> None:
    """The sizes of their results are unknown before they have run once."""

    def run(limit: int) -> None:
        with Pipeline(batch_size=BATCH_SIZE, num_threads=1, max_held_bytes=limit) as pipe:
            samples = fn.external_source(lambda info: dense(0), batch=False)
            pipe.set_outputs(fn.cast(samples, dtype=types.FLOAT))
        try:
            for _ in range(NUM_BATCHES):
                pipe.run()
        finally:
            pipe.close()

    limit, num_errors = LITTLE_BYTES, 0
    while num_errors < 3:
        try:
            run(limit)
            break
        except OutOfMemoryError as error:
            found = re.search(
                r"pass max_held_bytes=(\d+) << 20 \(\d+ MiB\); operators in the main process may need more$", str(error)
            )
            assert found is not None
            limit, num_errors = int(found[1]) << 20, num_errors + 1
    assert 0 < num_errors < 3
