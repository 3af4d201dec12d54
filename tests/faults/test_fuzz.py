"""Garbage where the main process reads: in the pipe of reports, in descriptors, headers, cells and messages.

A callback runs as the user and can write into all files and memory of its worker. Damage may cost batches, and then a
typed error says so; it never costs the main process its life, a `run` that does not return, or a look beyond the slot.
"""

from __future__ import annotations

import functools
import mmap
import os
import pickle
import random
import resource
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_like import Pipeline, fn
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import (
    CELL_BYTES,
    DESCRIPTOR_WORDS,
    DONE,
    DTYPES,
    HEADER_WORDS,
    PAGE_BYTES,
    TASK,
    WORD_BYTES,
    Header,
    Status,
    Word,
    cell_offset,
)
from dali_like.engine.memory.ring import Ring, Slot
from dali_like.engine.memory.shared_file import SharedFile
from dali_like.engine.memory.slot_layout import OutputSchema, SlotLayout
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import ArrayAssembler
from dali_like.engine.pool.batch import Batch, Output, assemble, schemas_at
from dali_like.engine.worker.exceptions import pack_exception, unpack_exception
from dali_like.engine.worker.source import LastBatch, Source
from dali_like.errors import CorruptionError, DaliLikeError
from dali_like.types import SampleInfo
from tests.conftest import time_limit
from tests.internals import in_flight_of, note_report, pool_of

BATCH_SIZE = 8
WORKERS = 1  # so that the order of events is known
TASKS = 4
#: Time limit of `run` for any data. It usually takes some milliseconds.
RUN_S = 60.0


# Memory and descriptors that a callback can reach


def open_files() -> dict[tuple[int, int], int]:
    """The descriptors of this process, by device and inode."""
    files = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:  # the one that the listing itself used
            continue
        files[status.st_dev, status.st_ino] = int(name)
    return files


def access_mode(fd: int) -> int:
    flags = Path(f"/proc/self/fdinfo/{fd}").read_text().split("flags:")[1].split()[0]
    return int(flags, 8) & os.O_ACCMODE


class Hands:
    """The pipe and the memory of a worker, as a callback finds them.

    Args:
        foreign: the files and memory that the process had open before the pipeline was built.
    """

    def __init__(self, foreign: frozenset[tuple[int, int]]) -> None:
        files = [fd for file, fd in open_files().items() if file not in foreign]
        pipes = [fd for fd in files if stat.S_ISFIFO(os.fstat(fd).st_mode)]
        (self.done,) = [fd for fd in pipes if access_mode(fd) == os.O_WRONLY]
        (memory,) = [fd for fd in files if os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:dali_like ")]
        self.space = os.open(f"/proc/self/fd/{memory}", os.O_RDWR)
        self.worker = int(Path("/proc/self/comm").read_text().partition(":")[2])
        self.cell = cell_offset(self.worker)

    @property
    def task(self) -> tuple[int, int, int]:
        """Ticket, page and number of the task that this worker is on."""
        ticket, page, task = TASK.unpack(os.pread(self.space, TASK.size, self.cell))
        return ticket, page, task

    @property
    def slot(self) -> int:
        """Where the slot begins."""
        return self.task[1] * PAGE_BYTES

    def header(self, word: Header) -> int:
        (value,) = struct.unpack("<q", os.pread(self.space, WORD_BYTES, self.slot + word * WORD_BYTES))
        return int(value)

    @property
    def region(self) -> int:
        """Where the region of the task begins."""
        return self.slot + self.header(Header.REGIONS_OFFSET) + self.task[2] * self.header(Header.REGION_BYTES)

    def write(self, offset: int, data: bytes) -> None:
        os.pwrite(self.space, data, offset)

    def report(self, status: Status, value: int) -> None:
        """Report the task."""
        ticket, _, task = self.task
        os.write(self.done, DONE.pack(ticket, task, self.worker, status, value))


#: The sample at which callbacks write into foreign memory: the second of a task in the second batch.
CULPRIT = BATCH_SIZE + 3


def saboteur(sabotage: Callable[[Hands], None], *, ragged: bool = False) -> Callable[[SampleInfo], NDArray[Any]]:
    """A source of samples that show their index, and whose callback once does something else too, in its worker."""
    foreign = frozenset(open_files())
    done = mmap.mmap(-1, 1)  # shared with workers, so that one does it only once though its sample is made again

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == CULPRIT and not done[0]:
            done[0] = 1
            sabotage(Hands(foreign))
        return np.full(100 + (info.idx_in_epoch % 3 if ragged else 0), info.idx_in_epoch)

    return source


@contextmanager
def running(source: Callable[[SampleInfo], NDArray[Any]]) -> Iterator[Pipeline]:
    pipe = Pipeline(BATCH_SIZE, 1, py_num_workers=WORKERS)
    pipe.set_outputs(fn.external_source(source=source, batch=False, parallel=True))
    try:
        yield pipe
    finally:
        pipe.close()


def outcome_of(pipe: Pipeline) -> int | str:
    """The number of the batch that `run` delivers, or the type of the library's error that it raises, before long."""
    with time_limit(RUN_S):
        try:
            (batch,) = pipe.run()
        except (DaliLikeError, StopIteration) as error:
            return type(error).__name__
    samples = [batch.at(i) for i in range(len(batch))]
    if not all(sample.size and (sample == sample[0]).all() for sample in samples):
        return "mixed samples"
    indices = [int(sample[0]) for sample in samples]
    first = indices[0]
    return first // BATCH_SIZE if indices == list(range(first, first + BATCH_SIZE)) else f"wrong samples {indices}"


def outcomes(pipe: Pipeline, count: int = 5) -> list[int | str]:
    return [outcome_of(pipe) for _ in range(count)]


def assert_right_or_corrupt(seen: Sequence[int | str], errors: Sequence[str] = ("CorruptionError",)) -> None:
    """Batches are right, come in order and once; where one does not come there is an error."""
    numbers = [outcome for outcome in seen if outcome not in errors]
    assert all(isinstance(number, int) for number in numbers), seen
    assert numbers == sorted(set(numbers)), seen  # type: ignore[type-var]
    assert all(number <= position for position, number in enumerate(seen) if isinstance(number, int)), seen


# The pipe of reports


@given(garbage=st.binary(min_size=1, max_size=100))
@example(garbage=b"x")
@example(garbage=b"progress: 50 %\n")
@example(garbage=bytes(DONE.size))
@example(garbage=bytes(3 * DONE.size))
@example(garbage=bytes(DONE.size // 2))
@example(garbage=b"\xff" * DONE.size)
@example(garbage=b"\xff" * (DONE.size + 1))
@example(garbage=b"\1" * 4096)
@settings(max_examples=15, deadline=None)
def test_garbage_in_the_pipe_of_reports(garbage: bytes) -> None:
    with running(saboteur(lambda hands: os.write(hands.done, garbage) and None)) as pipe:
        assert_right_or_corrupt(outcomes(pipe))


@pytest.mark.parametrize("cut", [1, 7, 8, 12, 16, 23])
def test_part_of_a_report(cut: int) -> None:
    def report_in_part(hands: Hands) -> None:
        ticket, _, task = hands.task
        os.write(hands.done, DONE.pack(ticket, task, hands.worker, Status.DENSE, 0)[:cut])

    with running(saboteur(report_in_part)) as pipe:
        assert_right_or_corrupt(outcomes(pipe))


def test_report_with_the_ticket_that_no_batch_has() -> None:
    """It must not hide later reports."""

    def report_nothing(hands: Hands) -> None:
        os.write(hands.done, bytes(DONE.size))

    with running(saboteur(report_nothing)) as pipe:
        assert_right_or_corrupt(outcomes(pipe))


class Waiting:
    """A pipeline that has delivered one batch, and whose other batches are on their way and stay there until `go_on`.

    Attributes:
        tickets: of the batches on their way.
        region_bytes: of their tasks.
    """

    def __init__(self, pipe: Pipeline, gate: mmap.mmap) -> None:
        pool = pool_of(pipe)
        self._gate = gate
        self.pipe = pipe
        self.note = functools.partial(note_report, pool)
        self.tickets = sorted(in_flight_of(pool))
        slots = [batch.slot for batch in in_flight_of(pool).values() if batch.slot is not None]
        self.region_bytes = slots[0].slot_layout.region_bytes

    def go_on(self) -> None:
        self._gate[0] = 1


@contextmanager
def waiting() -> Iterator[Waiting]:
    gate = mmap.mmap(-1, 1)

    def source(info: SampleInfo) -> NDArray[Any]:
        while info.iteration > 0 and not gate[0]:
            time.sleep(0.001)
        return np.full(100, info.idx_in_epoch)

    with running(source) as pipe:
        assert outcome_of(pipe) == 0
        yield Waiting(pipe, gate)


#: Invalid reports for a batch in flight; `t` is its ticket, `r` the size of its regions.
IMPLAUSIBLE: dict[str, Callable[[int, int], tuple[int, int, int, int, int]]] = {
    "ticket never given out": lambda t, r: (t + 1000, 0, 0, Status.DENSE, 0),
    "ticket of nobody": lambda t, r: (0, 0, 0, Status.DENSE, 0),
    "ticket of a batch long delivered": lambda t, r: (1, 0, 0, Status.FAILED, 0),
    "no such task": lambda t, r: (t, TASKS, 0, Status.DENSE, 0),
    "no such task by far": lambda t, r: (t, 2**32 - 1, 0, Status.DENSE, 0),
    "no such worker": lambda t, r: (t, 0, WORKERS, Status.FAILED, 0),
    "no such worker by far": lambda t, r: (t, 0, 2**16 - 1, Status.DENSE, 0),
    "no such status": lambda t, r: (t, 0, 0, len(Status), 0),
    "no such status by far": lambda t, r: (t, 0, 0, 2**16 - 1, 0),
    "failed at no sample": lambda t, r: (t, 0, 0, Status.FAILED, BATCH_SIZE),
    "failed at a sample below none": lambda t, r: (t, 0, 0, Status.FAILED, -1),
    "stopped at no sample": lambda t, r: (t, 0, 0, Status.STOPPED, BATCH_SIZE),
    "stopped at a sample below none": lambda t, r: (t, 0, 0, Status.STOPPED, -(2**63)),
    "more than a region holds": lambda t, r: (t, 0, 0, Status.DESCRIBED, r + 1),
    "less than nothing": lambda t, r: (t, 0, 0, Status.DESCRIBED, -1),
    "too large for less than a region": lambda t, r: (t, 0, 0, Status.TOO_LARGE, r),
    "too large for nothing": lambda t, r: (t, 0, 0, Status.TOO_LARGE, 0),
    "skipped though not cancelled": lambda t, r: (t, 0, 0, Status.SKIPPED, 0),
}


@pytest.mark.parametrize("what", IMPLAUSIBLE)
def test_an_implausible_report_is_an_error_or_ignored(what: str) -> None:
    with waiting() as wait:
        wait.note(*IMPLAUSIBLE[what](wait.tickets[0], wait.region_bytes))
        wait.go_on()

        assert_right_or_corrupt([0, *outcomes(wait.pipe)])


def test_report_of_rows_where_there_are_none() -> None:
    """The first batch has no rows: its shape is unknown."""

    def report_rows(hands: Hands) -> None:
        for task in range(TASKS):
            os.write(hands.done, DONE.pack(hands.task[0], task, hands.worker, Status.DENSE, 0))

    foreign = frozenset(open_files())

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == 0:
            report_rows(Hands(foreign))
        return np.full(100, info.idx_in_epoch)

    with running(source) as pipe:
        assert_right_or_corrupt(outcomes(pipe))


#: Small numbers mean something in all fields, and hypothesis finds the rest.
REPORTS = st.tuples(
    st.integers(0, 8) | st.integers(0, 2**64 - 1),
    st.integers(0, TASKS) | st.integers(0, 2**32 - 1),
    st.integers(0, WORKERS) | st.integers(0, 2**16 - 1),
    st.integers(0, len(Status)) | st.integers(0, 2**16 - 1),
    st.integers(-1, 10) | st.integers(0, 1 << 40) | st.integers(-(2**63), 2**63 - 1),
)


@given(st.lists(REPORTS, min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_reports_of_anything(reports: list[tuple[int, int, int, int, int]]) -> None:
    """A well-forged report looks like a true one. But `run` returns, or raises the library's errors."""
    with waiting() as wait:
        for report in reports:
            wait.note(*report)
        wait.go_on()

        outcomes(wait.pipe, 4)


@pytest.mark.parametrize("message", [b"", b"\xff" * 64, struct.pack("<q", 20) + b"\xff" * 20, struct.pack("<q", -1)])
def test_report_of_a_failure_that_has_left_no_message(message: bytes) -> None:
    def fail(hands: Hands) -> None:
        hands.write(hands.region, message)
        hands.report(Status.FAILED, CULPRIT % BATCH_SIZE)

    with running(saboteur(fail)) as pipe:
        seen = outcomes(pipe)

    assert seen[1] == "CorruptionError"
    assert_right_or_corrupt(seen)


def test_message_that_claims_to_be_huge_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading shared memory takes memory: that of the page read, and that of the copy."""
    gate = mmap.mmap(-1, 1)
    foreign = frozenset(open_files())

    def source(info: SampleInfo) -> NDArray[Any]:
        hands = Hands(foreign)
        hands.write(hands.region, struct.pack("<q", 1 << 40))
        for task in range(TASKS):
            os.write(hands.done, DONE.pack(hands.task[0], task, hands.worker, Status.FAILED, 0))
        while not gate[0]:
            time.sleep(0.001)
        return np.zeros(1)

    # Small enough for the test to survive its failure: regions are a part of the address space.
    monkeypatch.setattr("resource.getrlimit", lambda which: (1 << 36, 1 << 36))
    with running(source) as pipe:
        assert outcome_of(pipe) == "CorruptionError"
        assert pipe.statistics().held_bytes < 16 << 20
        gate[0] = 1


# Headers, marks, cells: read by the callback's own worker, and by the main process when that worker dies


GARBAGE = {
    "zeros": bytes,
    "ones": lambda size: b"\xff" * size,
    "random": lambda size: random.Random(5).randbytes(size),
}

#: Workers that read garbage may die of it, all of them, or take it for a lack of memory, or for a declared schema.
WHAT_WORKERS_SAY = ("CorruptionError", "WorkerDiedError", "OutOfMemoryError", "DtypeMismatchError", "NdimMismatchError")

#: Where, given the hands: offset and number of bytes.
PLACES: dict[str, Callable[[Hands], tuple[int, int]]] = {
    "cancelled": lambda hands: (hands.slot + Header.CANCELLED * WORD_BYTES, WORD_BYTES),
    "header": lambda hands: (hands.slot, HEADER_WORDS * WORD_BYTES),
    "slot_layout": lambda hands: (hands.slot + Header.LAYOUT * WORD_BYTES, (HEADER_WORDS - Header.LAYOUT) * WORD_BYTES),
    "expectations": lambda hands: (hands.slot + HEADER_WORDS * WORD_BYTES, DESCRIPTOR_WORDS * WORD_BYTES),
    "marks": lambda hands: (hands.slot + hands.header(Header.MARKS_OFFSET), TASKS * WORD_BYTES),
    "cell": lambda hands: (hands.cell, CELL_BYTES),
    "sample in the cell": lambda hands: (hands.cell + TASK.size, WORD_BYTES),
}


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("place", PLACES)
def test_garbage_in_memory_that_a_worker_reads_is_an_error_or_ignored(place: str, garbage: str, ragged: bool) -> None:
    def scribble(hands: Hands) -> None:
        offset, size = PLACES[place](hands)
        hands.write(offset, GARBAGE[garbage](size))

    with running(saboteur(scribble, ragged=ragged)) as pipe:
        seen = outcomes(pipe, 8)

    assert_right_or_corrupt(seen, WHAT_WORKERS_SAY)


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("place", PLACES)
def test_garbage_left_by_a_dying_worker_is_an_error_or_ignored(place: str, garbage: str) -> None:
    def scribble(hands: Hands) -> None:
        offset, size = PLACES[place](hands)
        hands.write(offset, GARBAGE[garbage](size))
        os._exit(3)

    with running(saboteur(scribble)) as pipe:
        seen = outcomes(pipe, 8)

    assert_right_or_corrupt(seen, WHAT_WORKERS_SAY)


@pytest.mark.parametrize("status", [0, 1, 70, 255])
def test_exit_status_of_a_callback_means_nothing(status: int) -> None:
    """One of them is that of a worker that could not start, and has left a message which says why."""
    with running(saboteur(lambda hands: os._exit(status))) as pipe:
        assert outcomes(pipe) == [0, 1, 2, 3, 4]


# Descriptors


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_descriptors_costs_their_batch_and_no_other(garbage: str) -> None:
    def scribble(hands: Hands) -> None:
        size = BATCH_SIZE * DESCRIPTOR_WORDS * WORD_BYTES
        hands.write(hands.slot + hands.header(Header.DESCRIPTORS_OFFSET), GARBAGE[garbage](size))

    with running(saboteur(scribble, ragged=True)) as pipe:
        assert outcomes(pipe) == [0, "CorruptionError", 2, 3, 4]


SIZE = 4
REGION_BYTES = 1 << 14
LAYOUTS = (OutputSchema(), OutputSchema(DTYPES.index(np.dtype(np.float32)), 2, (2, 3)))
SOURCE = Source("source", lambda info: None, 2)
U1 = DTYPES.index(np.dtype(np.uint8))
F4 = DTYPES.index(np.dtype(np.float32))


class Described:
    """A slot in the middle of a small space, and a batch in it all of whose samples are described."""

    def __init__(self) -> None:
        size = 1 << 20
        fd = Descriptor(os.memfd_create("dali_like", os.MFD_CLOEXEC))
        os.ftruncate(fd.fileno(), size)
        self.space = SharedSpace(SharedFile(fd, size), size)
        self.space.allocate(1 << 18)
        self.ring = Ring(self.space, SlotLayout(SIZE, 2, REGION_BYTES, LAYOUTS))
        self.slot: Slot = self.ring.acquire(0)
        self.slot_bytes = self.slot.slot_layout.slot_bytes
        self.batch = Batch(BatchKey(0, 0, 0, 0, SIZE))
        num_tasks = self.slot.slot_layout.num_tasks(SIZE)
        self.batch.begin(1, self.slot)
        self.batch.described = (1 << num_tasks) - 1
        for sample in range(SIZE):
            self.describe(sample, 0, 128 * sample, 100, U1, (100,))
            self.describe(sample, 1, 1024 + 24 * sample, 24, F4, (2, 3))

    def describe(self, sample: int, output: int, offset: int, nbytes: int, dtype: int, shape: Sequence[int]) -> None:
        words = np.array([offset, nbytes, dtype, len(shape), *shape], np.int64)
        self.slot.descriptors[sample, output, : len(words)] = words

    def read(self) -> None:
        """Assemble the batch and look at all that it consists of."""
        outputs, _ = assemble(self.batch, self.slot, self.ring, SOURCE)
        for output in outputs:
            self._look_at(output)

    def _look_at(self, output: Output) -> None:
        begin = self.space.address + self.slot.offset
        for i in range(SIZE):
            array = output[i]
            address, _ = array.__array_interface__["data"]
            assert not array.nbytes or begin <= address <= address + array.nbytes <= begin + self.slot_bytes
            array.tobytes()


def test_descriptors_that_are_right() -> None:
    Described().read()


_probe = Described()
SLOT_BYTES = _probe.slot_bytes
del _probe

NUMBERS = st.sampled_from(
    [0, 1, -1, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, -(2**63)]
    + [near + by for near in (SLOT_BYTES, SLOT_BYTES - 100, SLOT_BYTES - 24) for by in (-1, 0, 1)]
) | st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(
        st.tuples(st.integers(0, SIZE - 1), st.integers(0, 1), st.integers(0, DESCRIPTOR_WORDS - 1), NUMBERS),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=300, deadline=None)
def test_descriptors_with_any_words(words: list[tuple[int, int, int, int]]) -> None:
    described = Described()
    for sample, output, word, value in words:
        described.slot.descriptors[sample, output, word] = value

    try:
        described.read()
    except DaliLikeError:
        return


@given(st.lists(NUMBERS, min_size=DESCRIPTOR_WORDS, max_size=DESCRIPTOR_WORDS))
@settings(max_examples=200, deadline=None)
def test_descriptors_of_any_words_alike(words: list[int]) -> None:
    """Where all samples are described alike, nothing is noticed by comparing them."""
    described = Described()
    described.slot.descriptors[:, 0] = words

    try:
        described.read()
    except DaliLikeError:
        return


@pytest.mark.parametrize(
    ("offset", "nbytes", "dtype", "shape"),
    [
        (SLOT_BYTES - 99, 100, U1, (100,)),
        (SLOT_BYTES - 23, 24, F4, (2, 3)),
        (SLOT_BYTES, 1, U1, (1,)),
        (SLOT_BYTES + 1, 0, U1, (0,)),
        (-1, 1, U1, (1,)),
        (-128, 100, U1, (100,)),
        (2**63 - 1, 1, U1, (1,)),
        (2**63 - 50, 100, U1, (100,)),
        (0, -1, U1, (1,)),
        (0, 2**63 - 1, U1, (2**63 - 1,)),
        (0, 100, U1, (101,)),
        (0, 100, F4, (100,)),
        (0, 100, len(DTYPES), (100,)),
        (0, 100, -1, (100,)),
        (0, 1, U1, (-1, -1)),
        (0, 0, U1, (2**32, 2**32)),
        (0, 0, U1, (2**62, 4)),
        (0, 8, U1, (2**61 + 1, 8)),
        (0, 0, F4, (2**62,)),
        (0, 0, U1, (2**31, 2**31, 4)),
        (0, 16, F4, (2**62 + 1, 4)),
    ],
)
def test_descriptor_that_reaches_beyond_its_slot_or_bytes(
    offset: int, nbytes: int, dtype: int, shape: tuple[int, ...]
) -> None:
    described = Described()
    for sample in range(SIZE):
        described.describe(sample, 0, offset, nbytes, dtype, shape)

    with pytest.raises(CorruptionError, match="sample 0 of source"):
        described.read()


@pytest.mark.parametrize("ndim", [-1, -(2**63), DESCRIPTOR_WORDS - Word.SHAPE + 1, 2**63 - 1])
def test_descriptor_of_impossible_dimensions(ndim: int) -> None:
    described = Described()
    described.describe(2, 0, 0, 1, U1, ())
    described.slot.descriptors[2, 0, Word.NDIM] = ndim

    with pytest.raises(CorruptionError, match="sample 2 of source"):
        described.read()


@pytest.mark.parametrize(("nbytes", "dtype", "shape"), [(100, U1, (100,)), (24, F4, (2, 3)), (0, U1, (0,)), (1, U1, ())])
def test_descriptor_that_ends_where_its_slot_ends(nbytes: int, dtype: int, shape: tuple[int, ...]) -> None:
    described = Described()
    for sample in range(SIZE):
        described.describe(sample, 0, SLOT_BYTES - nbytes, nbytes, dtype, shape)

    described.read()


@given(st.lists(NUMBERS, min_size=DESCRIPTOR_WORDS, max_size=DESCRIPTOR_WORDS))
@settings(max_examples=100, deadline=None)
def test_layout_that_the_first_samples_suggest(words: list[int]) -> None:
    described = Described()
    described.slot.descriptors[:2, 0] = words

    try:
        (layout, _) = schemas_at(described.batch, described.slot, slice(2), SOURCE)
    except DaliLikeError:
        return
    assert layout.shape is not None
    assert layout.row_bytes <= SLOT_BYTES


# Messages


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Lets pickle fail where garbage makes it ask for terabytes."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * PAGE_BYTES + (4 << 30), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


class NotAnException:
    pass


VALID = pack_exception(ValueError("no such sample"))
MESSAGES = (
    st.binary(max_size=200)
    | st.integers(0, len(VALID) - 1).map(lambda end: VALID[:end])
    | st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)).map(
        lambda flip: VALID[: flip[0]] + bytes([flip[1]]) + VALID[flip[0] + 1 :]
    )
)


@pytest.mark.usefixtures("little_memory")
@given(MESSAGES)
@settings(max_examples=400, deadline=None)
def test_message_of_anything(message: bytes) -> None:
    try:
        error = unpack_exception(message)
    except CorruptionError:
        return
    assert isinstance(error, Exception)


@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        b"",
        (),
        (b"", "text", "", []),
        (b"garbage", "text", "", []),
        (pickle.dumps(ValueError(1)), None, []),
        (pickle.dumps(ValueError(1)), "text", 7),
        (pickle.dumps(ValueError(1)), "text", [], "more"),
        ("not bytes", "text", "", []),
        (pickle.dumps(7), "text", "", []),
        (pickle.dumps(KeyboardInterrupt()), "text", "", []),
        (pickle.dumps((KeyboardInterrupt, (), {})), "text", "", []),
        (pickle.dumps((SystemExit, (3,), {})), "text", "", []),
        (pickle.dumps((NotAnException, (), {})), "text", "", []),
        (pickle.dumps((SimpleNamespace, (), {})), "text", "", []),
        (pickle.dumps((int, (), {})), "text", "", []),
        (pickle.dumps((ValueError, 7, {})), "text", "", []),
        (pickle.dumps((ValueError, (), 7)), "text", "", []),
    ],
    ids=repr,
)
def test_message_of_something_else(content: Any) -> None:
    try:
        error = unpack_exception(pickle.dumps(content))
    except CorruptionError:
        return
    assert isinstance(error, Exception)
    error.add_note("as the pool does")
    assert "text" in str(error.__cause__) or "None" in str(error.__cause__)


# Counts


#: Of these batches the counts are overwritten, while and after they are made.
MISCOUNTED = (0, 2, 3)


def miscounted_batches(garbage: Callable[[int], bytes], *, ragged: bool) -> Callable[[int], Any]:
    """A source of batches of five samples that show their number; a thread in its worker writes into the counts of some."""
    foreign = frozenset(open_files())
    threads: list[threading.Thread] = []

    def scribble(hands: Hands, offset: int) -> None:
        for _ in range(2000):
            hands.write(offset, garbage(WORD_BYTES))

    def source(number: int) -> Any:
        for thread in threads:
            thread.join()  # before others have that slot
        if number in MISCOUNTED:
            hands = Hands(foreign)
            offset = hands.slot + hands.header(Header.MARKS_OFFSET) + WORD_BYTES  # behind the mark of the only task
            threads.append(threading.Thread(target=scribble, args=(hands, offset)))
            threads[-1].start()
        lengths = [100 + (i % 3 if ragged else 0) for i in range(5)]
        batch = [np.full(length, number) for length in lengths]
        return batch if ragged else np.stack(batch)

    return source


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_the_counts_costs_their_batches_and_no_others(garbage: str, ragged: bool) -> None:
    pipe = Pipeline(BATCH_SIZE, 1, py_num_workers=WORKERS)
    pipe.set_outputs(fn.external_source(miscounted_batches(GARBAGE[garbage], ragged=ragged), batch=True, parallel=True))
    seen: list[Any] = []
    try:
        for _ in range(6):
            with time_limit(RUN_S):
                try:
                    (batch,) = pipe.run()
                except DaliLikeError as error:
                    seen.append(type(error).__name__)
                else:
                    seen.append([int(np.asarray(sample)[0]) for sample in batch])
    finally:
        pipe.close()

    assert [numbers for i, numbers in enumerate(seen) if i not in MISCOUNTED] == [[i] * 5 for i in (1, 4, 5)]
    if garbage == "random":  # others can be true
        assert all(seen[i] in ("CorruptionError", [i] * 5) for i in MISCOUNTED), seen


@pytest.mark.parametrize("batch", [False, True], ids=["samples", "batches"])
@given(counts=st.lists(st.integers(-3, SIZE + 2) | NUMBERS, min_size=2, max_size=2))
@settings(max_examples=100, deadline=None)
def test_counts_of_anything(batch: bool, counts: list[int]) -> None:
    described = Described()
    source = Source("source", lambda info: None, 2, batch=batch, last_batch=LastBatch.PARTIAL)
    assembler = ArrayAssembler(described.space, source, SIZE, declared=LAYOUTS, num_workers=1)
    described.slot.counts[:] = counts

    try:
        size = assembler.end_of(described.batch, described.slot)
    except CorruptionError:
        return

    assert 0 <= size <= SIZE
    described.batch.size = size
    outputs, _ = assemble(described.batch, described.slot, described.ring, source)
    assert [len(output) for output in outputs] == [size, size]
