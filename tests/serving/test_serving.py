"""One loader or pipeline for several consumers. Most tests serve in a thread of their own process."""

# ruff: noqa: SIM117, PT012  # one context per side of the connection
from __future__ import annotations

import errno
import gc
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dali_like
from dali_like import fn, pipeline_def
from dali_like.data import DataLoader
from dali_like.engine.memory.shared_file import SharedFile
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import (
    ArgumentError,
    ClosedError,
    ConsumerTimeoutError,
    DefinitionError,
    ForkedError,
    OutOfMemoryError,
    ServerError,
    ServerTimeoutError,
    UnsupportedSystemError,
)
from dali_like.serving import lender as lender_module
from dali_like.serving import parcels, wire
from dali_like.serving.batch_server import Server
from dali_like.serving.consumer import Consumer
from tests.conftest import DEADLINE_S, wait_until
from tests.internals import consumers_of, packer_of, untaken_of

pytestmark = pytest.mark.usefixtures("limited_time")

SIDE = 160  # a row takes more than 64 KiB: smaller arrays travel in the pickle


class Squares:
    """Samples are large arrays, numbers and texts; counts the ones computed."""

    def __init__(self, length: int = 12) -> None:
        self.length = length
        self.computed = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Any, int, str]:
        self.computed += 1
        return np.full((SIDE, SIDE), index, np.float32), index, f"sample {index}"


def is_right(batch: Any) -> bool:
    images, labels, texts = batch
    return bool((images == np.asarray(labels)[:, None, None]).all()) and list(texts) == [f"sample {i}" for i in labels]


def labels_of(batch: Any) -> list[int]:
    assert is_right(batch)
    return [int(label) for label in batch[1]]


@pytest.fixture(autouse=True)
def _free_abandoned() -> Iterator[None]:
    """Free the memory of batches that consumers held when their server closed. It would be kept until the process ends."""
    yield
    for kept in lender_module.abandoned:
        if isinstance(kept, SharedFile):
            kept.is_lent = False
    lender_module.abandoned.clear()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "private" / "socket")


@contextmanager
def running(server: Server, epochs: int | None = 1) -> Iterator[list[BaseException]]:
    """Run a server in a thread, until it is done or closed."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            server.run(epochs)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        server.close()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@contextmanager
def connected(server: Server, count: int) -> Iterator[list[Consumer]]:
    """Connect consumers to a running server."""
    consumers = [dali_like.connect(server.path) for _ in range(count)]
    try:
        yield consumers
    finally:
        for consumer in consumers:
            consumer.close()


def forked(work: Callable[[], Any]) -> int:
    """Do something in a forked process, and return its process id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


WORKERS = [{}, {"num_workers": 1, "multiprocessing_context": "thread"}]


@pytest.mark.parametrize("workers", WORKERS, ids=["serial", "thread"])
def test_all_consumers_get_each_batch_and_may_write_to_it(path: str, workers: dict[str, Any]) -> None:
    loader = DataLoader(Squares(), batch_size=3, shuffle=True, **workers)
    with loader.serve(path, consumers=2) as server, running(server, 3), connected(server, 2) as consumers:
        assert [len(consumer) for consumer in consumers] == [4, 4]
        for epoch in range(3):
            seen: list[int] = []
            for iteration, (ours, others) in enumerate(zip(*consumers, strict=True)):
                assert labels_of(ours) == labels_of(others)
                assert (consumers[0].epoch, consumers[1].iteration) == (epoch, iteration)
                ours[0][:] = -1.0
                assert is_right(others)
                seen += labels_of(others)
            assert sorted(seen) == list(range(12))
        del ours, others


def test_batches_of_workers_are_not_copied(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[parcels.Parcel] = []
    pack = parcels.Packer.pack

    def record(self: parcels.Packer, batch: Any) -> parcels.Parcel:
        packed.append(pack(self, batch))
        return packed[-1]

    monkeypatch.setattr(parcels.Packer, "pack", record)
    loader = DataLoader(Squares(90), batch_size=3, **WORKERS[1])
    with loader.serve(path) as server, running(server), connected(server, 1) as (consumer,):
        assert sum(len(labels_of(batch)) for batch in consumer) == 90
        wait_until(lambda: not untaken_of(server), "the end of the epoch")
        used_bytes = packer_of(server).space.used_bytes
    capacities = [parcel.capacity for parcel in packed]
    assert capacities[0] > 1 << 17
    assert capacities[-1] == mmap.PAGESIZE  # the first batches have shown the schema of the rows
    assert used_bytes < capacities[0]  # their memory has been freed


def test_each_batch_goes_to_one_consumer(path: str) -> None:
    with connected_later(path) as one, connected_later(path) as two:
        with DataLoader(Squares(40), batch_size=2).serve(path, consumers=2, policy="split") as server:
            one.start()
            two.start()
            server.run()
    assert one.seen
    assert two.seen
    assert sorted(label for labels in one.seen + two.seen for label in labels) == list(range(40))


def test_the_slowest_consumer_sets_the_pace(path: str) -> None:
    dataset = Squares(100)
    with DataLoader(dataset, batch_size=1).serve(path, consumers=2, lead=3) as server, running(server):
        with connected(server, 2) as (fast, slow):
            for _ in range(3):
                next(fast)
            asking = threading.Thread(target=next, args=(fast,))
            asking.start()
            wait_until(lambda: len(consumers_of(server)) == 4 and dataset.computed == 3, "three batches")
            next(slow)
            asking.join(DEADLINE_S)
            assert dataset.computed == 4


def test_late_consumers_begin_at_the_current_batch(path: str) -> None:
    with (
        DataLoader(Squares(10), batch_size=1).serve(path, lead=1) as server,
        running(server),
        connected(server, 1) as (early,),
    ):
        for _ in range(5):
            next(early)
        joined: list[Consumer] = []
        thread = threading.Thread(target=lambda: joined.append(dali_like.connect(path)))
        thread.start()
        seen = [early.iteration]
        thread.join(DEADLINE_S)  # the server answers while it waits for `early`
        (late,) = joined
        next(early)
        next(late)
        assert late.iteration >= seen[0] + 1
        late.close()


def test_a_state_is_that_of_the_last_batch_that_all_have_taken(path: str) -> None:
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, "generator": np.random.default_rng(5)}
    with DataLoader(Squares(20), **options).serve(path, consumers=2, lead=4) as server, running(server):
        with connected(server, 2) as (one, two):
            assert labels_of(next(one)) == labels_of(next(two))
            ahead = [labels_of(next(one)) for _ in range(3)]
            second = labels_of(next(two))
            state = wait_until(
                lambda: (found := server.state_dict()) and (found["iterator"] or {}).get("position") == 2 and found,
                "the state",
            )
    assert second == ahead[0]
    resumed = DataLoader(Squares(20), **{**options, "generator": np.random.default_rng(6)})
    resumed.load_state_dict(state)
    assert [labels_of(batch) for batch in resumed][:2] == ahead[1:]


def test_a_held_batch_outlives_server_and_consumer(path: str) -> None:
    loader = DataLoader(Squares(30), batch_size=3)
    with loader.serve(path) as server, running(server), connected(server, 1) as (consumer,):
        batch = next(consumer)
        later = [labels_of(next(consumer)) for _ in range(5)]
    del server
    gc.collect()
    assert len(later) == 5
    assert labels_of(batch) == [0, 1, 2]


def test_memory_is_used_again_when_leases_end(path: str) -> None:
    loader = DataLoader(Squares(600), batch_size=3)
    with loader.serve(path) as server, running(server), connected(server, 1) as (consumer,):
        used = [packer_of(server).space.used_bytes for batch in consumer if is_right(batch)]
        assert len(used) == 200
        assert max(used[20:]) <= 8 * (1 << 19)


def test_a_killed_consumer_loses_its_leases(path: str) -> None:
    read, write = os.pipe()

    def hold() -> None:
        consumer = dali_like.connect(path)
        held = [next(consumer), next(consumer)]
        os.write(write, b"x")
        signal.pause()
        del held

    pid = forked(hold)
    with DataLoader(Squares(40), batch_size=2).serve(path, consumers=2, lead=2) as server, running(server):
        with connected(server, 1) as (consumer,):
            labels_of(next(consumer))
            os.read(read, 1)
            os.kill(pid, signal.SIGKILL)
            assert sum(len(labels_of(batch)) for batch in consumer) == 38
            wait_until(lambda: server.consumer_pids == [os.getpid()], "the end of the other")
    assert exit_code(pid) == -signal.SIGKILL
    os.close(read)
    os.close(write)


def test_a_killed_consumer_is_noticed_where_pidfd_open_is_forbidden(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    read, write = os.pipe()

    def hold() -> None:
        with dali_like.connect(path) as consumer:
            held = next(consumer)
            os.write(write, b"x" * len(held[1]))
            signal.pause()

    pid = forked(hold)
    with DataLoader(Squares(40), batch_size=2).serve(path, consumers=2) as server, running(server):
        with connected(server, 1) as (consumer,):
            labels_of(next(consumer))
            os.read(read, 2)
            os.kill(pid, signal.SIGKILL)
            assert sum(len(labels_of(batch)) for batch in consumer) == 38
    assert exit_code(pid) == -signal.SIGKILL
    os.close(read)
    os.close(write)


def test_the_batches_that_a_killed_consumer_has_not_taken_go_to_others(path: str) -> None:
    read, write = os.pipe()

    def stop_early() -> None:
        consumer = dali_like.connect(path)
        os.write(write, b"x" * len(labels_of(next(consumer))))
        signal.pause()

    pid = forked(stop_early)
    with DataLoader(Squares(40), batch_size=2).serve(path, consumers=2, policy="split", lead=4) as server, running(server):
        with connected(server, 1) as (consumer,):
            os.read(read, 8)
            os.kill(pid, signal.SIGKILL)
            seen = [label for batch in consumer for label in labels_of(batch)]
    assert len(seen) == len(set(seen)) == 38
    exit_code(pid)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("policy", ["same", "split"])
def test_random_kills_of_consumers(path: str, policy: Any) -> None:
    def consume() -> None:
        consumer = dali_like.connect(path)
        while True:
            for batch in consumer:
                assert is_right(batch)
                batch[0][:] = 7

    choice = random.Random(3)
    pids = [forked(consume) for _ in range(4)]
    with DataLoader(Squares(30), batch_size=3).serve(path, consumers=5, policy=policy) as server, running(server, 4):
        with connected(server, 1) as (consumer,):
            for _ in range(4):
                when = choice.randrange(2)
                seen = []
                for number, batch in enumerate(consumer):
                    seen += labels_of(batch)
                    if number == when:
                        victim = pids.pop(choice.randrange(len(pids)))
                        os.kill(victim, signal.SIGKILL)
                        assert exit_code(victim) == -signal.SIGKILL  # and no error of its own
                assert len(set(seen)) == len(seen)
                assert seen == list(range(30)) or policy == "split"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        exit_code(pid)


class Hooked(Squares):
    """Calls a function when a sample is drawn."""

    def __init__(self, index: int, hook: Callable[[], None]) -> None:
        super().__init__()
        self._index, self._hook = index, hook

    def __getitem__(self, index: int) -> tuple[Any, int, str]:
        if index == self._index:
            self._hook()
        return super().__getitem__(index)


@pytest.mark.parametrize("unread", [False, True], ids=["that has read all", "with batches in its socket"])
def test_a_batch_taken_by_a_consumer_that_ends_goes_to_no_other_consumer(path: str, unread: bool) -> None:
    """The consumer ends while the server draws a batch, so the server finds out when it sends that."""

    def take_one_and_end() -> None:
        seen: list[int] = []
        while len(seen) < (1 if unread else 2):
            record = victim.receive(takes_descriptors=True)
            assert record is not None
            seen += [record.words[0]] if record.kind == wire.Kind.BATCH else []
        victim.send(wire.Kind.TAKEN, 0)
        victim.close()
        later.start()

    later = connected_later(path)
    dataset = Hooked(2, take_one_and_end)
    with later, DataLoader(dataset, batch_size=1).serve(path, policy="split", lead=3) as server:
        victim = wire.dial(path)
        victim.send(wire.Kind.HELLO, wire.VERSION)
        server.run()

    assert later.seen == [[i] for i in range(1, len(dataset))]


class _Client:
    """A consumer that takes batches on command."""

    def __init__(self, path: str) -> None:
        self.connection = wire.dial(path)
        self.connection.send(wire.Kind.HELLO, wire.VERSION)

    def next_batch(self) -> int:
        """Wait for the number of the next batch in the socket."""
        while self.connection.wait(DEADLINE_S):
            record = self.connection.receive(takes_descriptors=True)
            if record is not None and record.kind == wire.Kind.BATCH:
                return record.words[0]
        raise TimeoutError

    def take(self, number: int) -> None:
        self.connection.send(wire.Kind.TAKEN, number)


def test_batches_that_come_back_behind_later_ones_are_not_lost(path: str) -> None:
    with DataLoader(Squares(), batch_size=1).serve(path, policy="split", lead=2) as server, running(server):
        first = _Client(path)
        assert [first.next_batch() for _ in range(2)] == [0, 1]
        second = _Client(path)
        assert [second.next_batch() for _ in range(2)] == [2, 3]
        first.connection.close()
        second.take(2)
        assert second.next_batch() == 0
        second.take(3)
        second.connection.close()
        with dali_like.connect(path) as third:
            seen = [label for batch in third for label in labels_of(batch)]

    assert sorted(seen) == [0, 1, *range(4, 12)]


def test_a_stalled_consumer_is_detached(path: str) -> None:
    loader = DataLoader(Squares(20), batch_size=2)
    with loader.serve(path, consumers=2, consumer_timeout_s=0.2) as server, running(server, None):
        with connected(server, 2) as (one, stalled):
            first = next(stalled)
            taken = [labels_of(next(one)) for _ in range(10)]
            assert len(taken) == 10
            with pytest.raises(ServerError, match=r"consumer_timeout_s=0\.2 s .* connect again"):
                next(stalled)
            assert labels_of(first) == [0, 1]
            with pytest.raises(ServerError, match="detached it"):
                next(stalled)


def test_a_server_waits_for_consumers(path: str) -> None:
    with DataLoader(Squares()).serve(path, consumers=3, consumer_timeout_s=0.05) as server:
        with pytest.raises(ConsumerTimeoutError, match=r"0 of 3 consumers are connected to .* dali_like\.connect\("):
            server.run()


def test_the_death_of_the_server_is_an_error(path: str) -> None:
    pid = forked(lambda: DataLoader(Squares(), batch_size=1).serve(path).run(None))
    with dali_like.connect(path) as consumer:
        batch = next(consumer)
        assert consumer.server_pid == pid
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ServerError, match=f"process {pid}: it has ended unexpectedly"):
            for _ in range(100):
                next(consumer)
        assert labels_of(batch) == [0]
        del batch
    exit_code(pid)
    assert os.path.exists(path)
    with DataLoader(Squares()).serve(path):  # replaces the socket of the dead one
        pass
    assert not os.path.exists(path)


def test_the_end_of_the_service_is_an_error(path: str) -> None:
    with DataLoader(Squares(2)).serve(path) as server, running(server), connected(server, 1) as (consumer,):
        assert len(list(consumer)) == 2
        server.close()
        with pytest.raises(ServerError, match="the server has been closed"):
            next(consumer)
        with pytest.raises(ClosedError):
            server.run()


def test_an_error_of_the_dataset_is_raised_by_run_and_told_to_consumers(path: str) -> None:
    class Broken(Squares):
        def __getitem__(self, index: int) -> Any:
            if index == 3:
                raise ValueError("no sample 3")
            return super().__getitem__(index)

    with pytest.raises(ValueError, match="no sample 3"), connected_later(path) as told:
        with DataLoader(Broken(6), batch_size=1).serve(path, lead=8) as server:
            told.start()
            server.run()
    assert told.seen == [[0], [1], [2]]
    assert "raised ValueError: no sample 3" in str(told.error)


class connected_later(threading.Thread):  # noqa: N801
    """A consumer in a thread."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.seen: list[list[int]] = []
        self.error: Exception | None = None

    def run(self) -> None:
        with dali_like.connect(self.path) as consumer:
            try:
                for batch in consumer:
                    self.seen.append(labels_of(batch))
            except ServerError as error:
                self.error = error
            batch = None

    def __enter__(self) -> connected_later:
        return self

    def __exit__(self, *_: object) -> None:
        self.join(DEADLINE_S)
        assert not self.is_alive()


# Pipelines


@pipeline_def(batch_size=4)
def ragged_pipeline() -> Any:
    sizes = fn.external_source(
        lambda info: np.full((100 + info.idx_in_epoch, 200), info.idx_in_epoch, np.int32), batch=False, size=12
    )
    return sizes, fn.external_source(lambda info: np.array(info.idx_in_epoch), batch=False, size=12)


@pytest.mark.parametrize("options", [{}, {"enable_checkpointing": True}], ids=["plain", "checkpoints"])
def test_pipelines_serve_their_tuples(path: str, options: dict[str, Any]) -> None:
    pipe = ragged_pipeline(**options)
    with pipe, pipe.serve(path) as server, running(server, 2), connected(server, 1) as (consumer,):
        assert len(consumer) == 3
        for _ in range(2):
            numbers = []
            for arrays, indices in consumer:
                numbers += np.asarray(indices.as_array()).tolist()
                for i in range(4):
                    at = int(indices.at(i))
                    assert arrays.at(i).shape == (100 + at, 200)
                    assert (arrays.at(i) == at).all()
            assert numbers == list(range(12))
        assert (server.state_dict() is None) == (not options)
        del arrays, indices


# Security, arguments and processes


def test_only_a_private_folder_will_do(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o755)
    for use in (DataLoader(Squares()).serve, lambda path: dali_like.connect(path, timeout_s=0)):
        with pytest.raises(ArgumentError, match=r"other users may use .*/open \(mode 755\).*/open/private/"):
            use(open_folder / "socket")
    with DataLoader(Squares()).serve(tmp_path / "private" / "socket"):
        assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700


def test_without_proc_both_sides_say_so_at_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda name: not str(name).startswith("/proc/self/fd/") and exists(name))

    for use in (DataLoader(Squares()).serve, dali_like.connect):
        with pytest.raises(UnsupportedSystemError, match=r"serving batches needs /proc"):
            use(path)


def test_a_path_has_one_server(path: str) -> None:
    with DataLoader(Squares()).serve(path):
        with pytest.raises(ArgumentError, match="another server uses"):
            DataLoader(Squares()).serve(path)
        assert os.path.exists(path)
    Path(path).write_text("")
    with pytest.raises(ArgumentError, match="is not a socket"):
        DataLoader(Squares()).serve(path)


def test_both_sides_check_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with theirs, pytest.raises(ServerError, match=f"and this one to {other}"):
        wire.Connection(ours)


def test_consumers_cannot_write_to_the_file() -> None:
    space = SharedSpace.create(1 << 20)
    file = parcels.read_only(space.file)
    with pytest.raises(PermissionError):
        mmap.mmap(file.fileno(), mmap.PAGESIZE)
    with pytest.raises(OSError, match=r"Bad file descriptor"):
        os.write(file.fileno(), b"x")


def test_a_consumer_without_address_space_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(12, "Cannot allocate memory")

    space = SharedSpace.create(1 << 20)
    monkeypatch.setattr(parcels.mmap, "mmap", refuse)
    with pytest.raises(OutOfMemoryError, match="raise `ulimit -v`"):
        parcels.PrivateMapping(parcels.read_only(space.file), space.size)


def test_descriptors_that_a_client_sends_are_dropped(path: str, tmp_path: Path) -> None:
    sent = (tmp_path / "sent").open("w")
    with sent, DataLoader(Squares()).serve(path) as server:
        client = wire.dial(path)
        raw = socket.socket(fileno=os.dup(client.fileno()))
        with raw, running(server) as errors, connected(server, 1) as (ours,):
            for kind in (wire.Kind.HELLO, wire.Kind.TAKEN, 99):
                socket.send_fds(raw, [struct.pack("=6q", kind, 0, 0, 0, 0, 0)], [sent.fileno()] * 4)
            seen = [labels_of(batch) for batch in ours]
            targets = [os.readlink(f"/proc/self/fd/{fd}") for fd in map(int, os.listdir("/proc/self/fd")) if fd_exists(fd)]
        client.close()

    assert seen == [[i] for i in range(12)]
    assert targets.count(sent.name) == 1
    assert all(isinstance(error, ClosedError) for error in errors)  # it may end before it has read the last record


def fd_exists(fd: int) -> bool:
    """Whether a descriptor is still open: the one that has listed them is not."""
    return os.path.lexists(f"/proc/self/fd/{fd}")


#: Serves batches with few descriptors, until its input ends.
SERVER_WITH_FEW_DESCRIPTORS = """
import os, resource, sys, threading
import numpy as np
from dali_like.data import DataLoader

class Rows:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return np.full(30_000, index)

with DataLoader(Rows()).serve(sys.argv[1], lead=1) as server:
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, used + 8))
    threading.Thread(target=lambda: (sys.stdin.read(), server.close())).start()
    try:
        server.run(None)
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_server_without_descriptors_refuses_a_consumer_and_serves_the_others(path: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", SERVER_WITH_FEW_DESCRIPTORS, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with ExitStack() as stack:
        consumers: list[Consumer] = []
        with pytest.raises(ServerError, match=r"no file descriptor left for another consumer; raise `ulimit -n`"):
            for _ in range(20):
                consumers.append(stack.enter_context(closing(dali_like.connect(path, timeout_s=DEADLINE_S))))
        firsts = [int(next(consumer)[0, 0]) for consumer in consumers for _ in range(1)]
        consumers[0].close()  # its descriptors are for the next one
        again = stack.enter_context(closing(dali_like.connect(path, timeout_s=DEADLINE_S)))
        for _ in range(3):
            numbers = [int(next(consumer)[0, 0]) for consumer in [*consumers[1:], again]]
    output, errors = program.communicate(timeout=DEADLINE_S)

    assert len(consumers) >= 3
    assert len(firsts) == len(consumers)
    assert max(numbers) >= 3
    assert output == "ClosedError\n"
    assert "is refused" in errors


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ServerTimeoutError, match=r"no server has answered at .*/socket for 0 s; start it with serve"):
        dali_like.connect(tmp_path / "absent" / "socket", timeout_s=0)


def test_a_server_that_does_not_run(path: str) -> None:
    with DataLoader(Squares()).serve(path), pytest.raises(ServerTimeoutError, match=r"answers in server\.run\(\)"):
        dali_like.connect(path, timeout_s=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "all"}, 'policy must be "same" or "split"'),
        ({"consumers": 0}, "consumers must be a positive integer"),
        ({"lead": 65}, "lead must be an integer from 1 to 64"),
        ({"consumer_timeout_s": 0}, "consumer_timeout_s must be positive"),
    ],
)
def test_wrong_arguments(path: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        DataLoader(Squares()).serve(path, **arguments)
    assert not os.path.exists(path)


def test_forks_have_no_part_in_it(path: str) -> None:
    with DataLoader(Squares()).serve(path) as server, running(server), connected(server, 1) as (consumer,):
        batch = next(consumer)

        def use(batch: Any = batch) -> None:
            for call in (lambda: next(consumer), server.run):
                with pytest.raises(ForkedError):
                    call()
            consumer.close()
            server.close()
            assert is_right(batch)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
            assert exit_code(forked(use)) == 0
        assert len(list(consumer)) == 11
        del batch


def test_outputs_on_a_gpu_are_refused() -> None:
    from dali_like.pipeline import lending
    from dali_like.tensors.gpu_tensor_lists import TensorListGPU

    with pytest.raises(DefinitionError, match=r"output 1 is on a GPU.*leave out \.gpu\(\)"):
        # Private: with a batch that only a GPU could compute
        lending._on_cpu((1, TensorListGPU.__new__(TensorListGPU)))
