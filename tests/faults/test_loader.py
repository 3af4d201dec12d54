"""A DataLoader whose workers die or hang, whose dataset raises, or whose batches find no memory."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import re
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dali_like.data import DataLoader, IterableDataset
from dali_like.errors import (
    ClosedError,
    LoaderTimeoutError,
    OutOfMemoryError,
    SampleTypeError,
    WorkerDiedError,
)
from tests.conftest import descendants_of, wait_until
from tests.faults.datasets import (
    BATCH_SIZE,
    KINDS,
    NOTE,
    Counting,
    Happening,
    Raising,
    Samples,
    digest,
    indices_of,
    make_loader,
    outcomes,
    stacked,
)
from tests.faults.processes import kill_and_wait, wait_until_all
from tests.faults.streams import (
    CRASHES,
    HANGS,
    MUTE_HANGS,
    die_of_sigkill,
    happens,
    sleep_for_ever,
    times_made,
)
from tests.internals import dispatcher_of, loader_workers_of, pending_of

# Where they are seeded as in PyTorch.
pytestmark = pytest.mark.filterwarnings("ignore:A worker has died and been replaced")

#: Of an epoch of `Samples`.
LENGTH = 12
NUM_KILLS = 50
#: The name in messages of the batch with sample 6, for batched requests.
TOGETHER = "batch 1 (indices 4, 5, 6, 7)"
#: Kinds of loaders, without kinds that behave like another one here.
MAIN_KINDS = [kind for kind in KINDS if kind != "__getitems__"]
ONE_OF_EACH = ("iterable", "sample by sample")
MAP_KINDS = [kind for kind in KINDS if kind != "iterable"]


def undisturbed(kind: str, epochs: int = 1, **options: Any) -> list[str]:
    """The checksums of all batches where no worker dies."""
    loader = make_loader(kind, **options)
    return [digest(batch) for _ in range(epochs) for batch in loader]


def workers_of(batches: Any) -> list[int]:
    """The process ids of the workers of an iterator, once all have started."""
    wait_until(lambda: len(batches._workers) == 2, "the start of all workers")
    return [worker.pid for worker in batches._workers]


class TestAWorkerThatDies:
    @pytest.mark.parametrize(
        ("crash", "way", "kind"),
        [
            *(("SIGKILL", "fork", kind) for kind in KINDS),
            *((crash, "fork", kind) for crash in ("SIGSEGV", "os._exit(3)", "sys.exit()") for kind in ONE_OF_EACH),
            *(("SIGKILL", "spawn", kind) for kind in ONE_OF_EACH),
        ],
    )
    def test_is_replaced_without_a_trace_in_the_batches(self, crash: str, way: str, kind: str, tmp_path: Path) -> None:
        loader = make_loader(kind, way, Happening({0, 6, 21, 47}, CRASHES[crash], tmp_path), worker_restarts=None)

        assert list(map(digest, loader)) == undisturbed(kind)
        assert len(list(tmp_path.iterdir())) == 4

    @pytest.mark.parametrize("kind", MAIN_KINDS)
    def test_may_be_idle_and_all_that_it_has_made_waiting(self, kind: str, tmp_path: Path) -> None:
        loader = make_loader(kind, "fork", Counting(tmp_path))
        batches = iter(loader)
        seen = [digest(next(batches))]
        wait_until(lambda: len(times_made(tmp_path)) >= 5 * BATCH_SIZE, "the batches ahead")
        wait_until_all(workers_of(batches), psutil.STATUS_SLEEPING)

        kill_and_wait(workers_of(batches))

        assert seen + list(map(digest, batches)) == undisturbed(kind)
        made = times_made(tmp_path)
        assert (made == [1] * len(made)) == (kind != "iterable")

    @pytest.mark.parametrize("kind", MAIN_KINDS)
    def test_may_die_between_epochs(self, kind: str, start_method: str) -> None:
        loader = make_loader(kind, start_method, persistent_workers=True)
        batches = iter(loader)
        seen = list(map(digest, batches))

        kill_and_wait([worker.pid for worker in loader_workers_of(loader).handles])

        seen += map(digest, loader)
        assert seen == undisturbed(kind, 2, persistent_workers=True)

    @pytest.mark.parametrize("kind", MAIN_KINDS)
    def test_may_be_any_at_any_time(self, kind: str) -> None:
        rng = random.Random(5)
        loader = make_loader(kind, "fork", worker_restarts=None, persistent_workers=True)
        seen: list[str] = []
        kills = epochs = 0

        while kills < NUM_KILLS:
            epochs += 1
            batches = iter(loader)
            for batch in batches:
                seen.append(digest(batch))
                kills += sum(kill_any(batches, rng) for _ in range(rng.randrange(6)))

        assert seen == undisturbed(kind, epochs, persistent_workers=True)

    def test_may_have_begun_its_task_before_the_sample_schema_was_known(self, tmp_path: Path) -> None:
        """The worker that does its task again knows by then."""
        known = tmp_path / "known"

        def event(index: int) -> None:
            if index >= 4 * BATCH_SIZE:
                known.touch()
            if index == 5 and happens(tmp_path / "5"):
                wait_until(known.exists, "a batch of the form that was found")
                die_of_sigkill()

        loader = make_loader("sample by sample", event=event)

        assert list(map(digest, loader)) == undisturbed("sample by sample")

    @pytest.mark.parametrize("kind", MAP_KINDS)
    def test_of_one_sample_again_and_again_costs_its_batch(self, kind: str, tmp_path: Path) -> None:
        loader = make_loader(kind, "fork", Happening({6}, die_of_sigkill, tmp_path, times=0))

        first, error, *others = outcomes(iter(loader))

        assert isinstance(error, WorkerDiedError)
        where = TOGETHER if kind == "__getitems__" else "index 6 (sample 2 of batch 1)"
        assert re.search(rf"worker \d \(pid {error.pid}\) was killed by SIGKILL while .* was computing ", str(error))
        assert str(error).endswith(where)
        assert "given up" in error.__notes__[0]
        assert [first, *others] == [list(range(4 * i, 4 * i + 4)) for i in range(LENGTH) if i != 1]

    @pytest.mark.parametrize("kind", KINDS)
    def test_without_replacement_is_an_error(self, kind: str, tmp_path: Path) -> None:
        event = Happening({6}, CRASHES["os._exit(3)"], tmp_path)
        loader = make_loader(kind, event=event, worker_restarts=0, persistent_workers=True)
        where = {"__getitems__": TOGETHER, "iterable": "batch 0 of worker 0"}.get(kind, "index 6 (sample 2 of batch 1)")

        with pytest.raises(
            WorkerDiedError, match=rf"exit code 3 while dataset .* was computing {re.escape(where)}\n"
        ) as info:
            list(loader)

        assert info.value.__notes__[-1].endswith(
            "the limit is 0 restarts of each worker within a minute; raise py_worker_restarts (worker_restarts of a "
            "DataLoader)"
        )
        assert info.value.exitcode == 3
        assert f"(pid {info.value.pid})" in str(info.value)
        assert len(list(map(digest, loader))) == LENGTH  # by new workers

    def test_leaves_held_batches_unchanged(self, tmp_path: Path) -> None:
        event = Happening(range(4, 48, 5), die_of_sigkill, tmp_path)

        held = list(make_loader("sample by sample", "fork", event, worker_restarts=None))

        assert list(map(digest, held)) == undisturbed("sample by sample")


def kill_any(batches: Any, rng: random.Random) -> bool:
    """Kill one of the workers; whether there was one."""
    pids = [worker.pid for worker in batches._workers if worker.is_alive()]
    if not pids:
        return False
    try:
        os.kill(rng.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class ShapeError(Exception):
    """Its constructor does not take its arguments, and it holds an object that cannot be pickled."""

    def __init__(self, shape: Any, *, wanted: int) -> None:
        super().__init__(f"{shape} is not {wanted}")
        self.wanted = wanted
        self.lock = threading.Lock()


class BareError(Exception):
    """Its notes, and all other attributes, are not pickled. botocore has such."""

    def __reduce__(self) -> Any:
        return BareError, self.args


class TestADatasetThatRaises:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "make",
        [partial(KeyError, "no such key", 3), partial(ShapeError, (3, 4), wanted=5), partial(BareError, "no more")],
        ids=["pickled", "rebuilt", "without attributes"],
    )
    def test_costs_one_batch(self, make: Callable[[], Exception], kind: str) -> None:
        loader = make_loader(kind, "fork", Raising({6}, make))
        where = {"__getitems__": TOGETHER, "iterable": "batch 0 of worker 0"}.get(kind, "index 6 (sample 2 of batch 1)")

        seen = outcomes(iter(loader))

        (raised,) = (item for item in seen if not isinstance(item, list))
        assert (type(raised), raised.args) == (type(make()), make().args)
        assert raised.__notes__[0] == NOTE
        assert re.fullmatch(rf"raised by dataset \w+ for {re.escape(where)}, in worker \d \(pid \d+\)", raised.__notes__[-1])
        assert "in __call__\n    raise error" in str(raised.__cause__)
        if kind != "iterable":  # a generator that has raised has ended
            assert [item for item in seen if item is not raised] == [
                list(range(4 * i, 4 * i + 4)) for i in range(LENGTH) if i != 1
            ]

    def test_costs_one_batch_of_an_iterable_that_goes_on(self) -> None:
        loader = DataLoader(Resilient({5, 6}), BATCH_SIZE, num_workers=1, multiprocessing_context="fork")

        seen = outcomes(iter(loader), read=np.ndarray.tolist)

        assert [str(item) for item in seen] == ["[0, 1, 2, 3]", "item 5", "item 6", "[7, 8, 9, 10]", "[11]"]

    def test_has_it_raised_once_also_if_the_walk_is_done_again(self, tmp_path: Path) -> None:
        dataset = Resilient({5}, Happening({9}, die_of_sigkill, tmp_path))

        loader = DataLoader(dataset, BATCH_SIZE, num_workers=1, multiprocessing_context="fork")

        seen = outcomes(iter(loader), read=np.ndarray.tolist)

        assert [str(item) for item in seen] == ["[0, 1, 2, 3]", "item 5", "[6, 7, 8, 9]", "[10, 11]"]

    @pytest.mark.parametrize("kind", MAP_KINDS)
    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_StopIteration_ends_the_epoch(self, num_workers: int, kind: str) -> None:  # noqa: N802
        loader = make_loader(kind, event=Raising({21}, StopIteration), num_workers=num_workers)

        assert [indices_of(batch)[0] for batch in loader] == [0, 4, 8, 12, 16]

    def test_does_not_keep_the_workers_by_its_exception(self) -> None:
        gc.disable()
        try:
            batches = iter(make_loader("sample by sample", "fork", Raising({0}, partial(ValueError, "none"))))
            gone = weakref.ref(batches)
            with contextlib.suppress(ValueError):
                next(batches)

            del batches

            assert gone() is None
        finally:
            gc.enable()

    @pytest.mark.parametrize("kind", MAP_KINDS)
    def test_may_have_the_next_sample_instead(self, kind: str, caplog: pytest.LogCaptureFixture) -> None:
        loader = make_loader(kind, event=Raising({6, 11}, partial(ValueError, "none")), on_error="skip", num_workers=0)

        with caplog.at_level(logging.WARNING, "dali_like"):
            seen = outcomes(iter(loader))

        assert seen[1:3] == [[4, 5, 7, 7], [8, 9, 10, 8]]
        assert [record.getMessage() for record in caplog.records] == [
            "sample 6 is replaced by sample 7: ValueError('none'); look it up",
            "sample 11 is replaced by sample 8: ValueError('none'); look it up",
        ]

    @pytest.mark.parametrize("kind", MAP_KINDS)
    def test_may_have_it_in_workers(self, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
        loader = make_loader(kind, "spawn", Raising({6, 11}, partial(ValueError, "none")), on_error="skip")

        assert outcomes(iter(loader))[1:3] == [[4, 5, 7, 7], [8, 9, 10, 8]]
        assert capfd.readouterr().err.count("is replaced by sample") == 2

    @pytest.mark.parametrize("num_workers", [0, 2])
    @pytest.mark.parametrize("kind", MAP_KINDS)
    def test_on_error_function_replaces_its_samples(
        self, kind: str, num_workers: int, capfd: pytest.CaptureFixture[str]
    ) -> None:
        loader = make_loader(
            kind, event=Raising({6}, partial(ValueError, "none")), on_error=replacement, num_workers=num_workers
        )

        assert outcomes(iter(loader))[1] == [4, 5, -6, 7]

    @pytest.mark.parametrize("num_workers", [0, 1])
    @pytest.mark.parametrize("kind", [*MAP_KINDS, "iterable"])
    def test_is_not_the_end_of_the_epoch_if_such_a_function_raises_StopIteration(  # noqa: N802
        self, kind: str, num_workers: int
    ) -> None:
        def give_up(index: int, error: Exception) -> Any:
            raise StopIteration

        loader = make_loader(
            kind, event=Raising({6}, partial(ValueError, "none")), on_error=give_up, num_workers=num_workers
        )

        with pytest.raises(RuntimeError, match="on_error raised StopIteration; return a sample or raise another error"):
            list(loader)

    @pytest.mark.parametrize("kind", MAP_KINDS)
    def test_raises_where_no_sample_of_the_batch_can_be_had(self, kind: str) -> None:
        loader = make_loader(kind, event=Raising(range(4, 8), partial(ValueError, "none")), on_error="skip")

        seen = outcomes(iter(loader))

        assert [str(item) for item in seen if not isinstance(item, list)] == ["none"]
        assert len(seen) == LENGTH

    @pytest.mark.parametrize("num_workers", [0, 1])
    @pytest.mark.parametrize(
        ("on_error", "expected"),
        [
            ("skip", [[0, 1, 2, 3], [4, 6, 7, 8], [9, 10, 11]]),
            (lambda *_: -1, [[0, 1, 2, 3], [4, -1, 6, 7], [8, 9, 10, 11]]),
        ],
        ids=["skip", "callable"],
    )
    def test_may_be_iterable_and_go_on(
        self, on_error: Any, expected: list[list[int]], num_workers: int, capfd: pytest.CaptureFixture[str]
    ) -> None:
        context = "fork" if num_workers else None
        loader = DataLoader(
            Resilient({5}), BATCH_SIZE, num_workers=num_workers, multiprocessing_context=context, on_error=on_error
        )

        assert [batch.tolist() for batch in loader] == expected

    def test_raises_in_the_end_where_no_item_can_be_had(self, capfd: pytest.CaptureFixture[str]) -> None:
        loader = DataLoader(Hopeless(), BATCH_SIZE, on_error="skip")

        with pytest.raises(ValueError, match="never"):
            next(iter(loader))


def replacement(index: int, error: Exception) -> Any:
    assert isinstance(error, ValueError)
    return -index, np.full((2, 3), -index), 0.0, 0.0


class Resilient(IterableDataset[int]):
    """Twelve numbers; instead of some there is an exception, after which it goes on."""

    def __init__(self, bad: set[int], event: Callable[[int], Any] = lambda index: None) -> None:
        self.bad = bad
        self.event = event

    def __iter__(self) -> Iterator[int]:
        return map(self.item, range(12))

    def item(self, index: int) -> int:
        self.event(index)
        if index in self.bad:
            raise ValueError(f"item {index}")
        return index


class Hopeless(IterableDataset[int]):
    """Has no item that can be had, and no end."""

    def __iter__(self) -> Iterator[int]:
        return map(self.fail, iter(int, 1))

    def fail(self, number: int) -> int:
        raise ValueError("never")


class TestASamplerThatRaises:
    def test_loses_no_earlier_batch(self) -> None:
        loader = DataLoader(Samples(), batch_sampler=Drawing(fails_at=5), num_workers=2, multiprocessing_context="fork")

        seen = outcomes(iter(loader))

        assert [str(item) for item in seen] == ["[0]", "[1]", "[2]", "[3]", "[4]", "no indices"]


class Drawing:
    """Lists of an index each, except for one that cannot be drawn."""

    def __init__(self, fails_at: int) -> None:
        self.fails_at = fails_at

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.draw, range(LENGTH))

    def draw(self, number: int) -> list[int]:
        if number == self.fails_at:
            raise ValueError("no indices")
        return [number]


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("it stays where it is")


class Homesick:
    """Is made again nowhere but where it comes from."""

    def __reduce__(self) -> Any:
        return be_at_home, (os.getpid(),)


def be_at_home(pid: int) -> Homesick:
    if pid != os.getpid():
        raise LookupError("this is not home")
    return Homesick()


def third_is(kind: type, samples: list[Any]) -> Any:
    return kind() if samples[0][0] == 2 * BATCH_SIZE else stacked(samples)


class TestResultsThatCannotTravel:
    @pytest.mark.parametrize(
        ("kind", "error", "message"),
        [(Unpicklable, SampleTypeError, "cannot be pickled.*it stays where it is"), (Homesick, LookupError, "not home")],
    )
    def test_cost_one_batch(self, kind: type, error: type, message: str) -> None:
        loader = DataLoader(
            Samples(),
            BATCH_SIZE,
            num_workers=2,
            multiprocessing_context="fork",
            collate_fn=partial(third_is, kind),
        )

        seen = outcomes(iter(loader))

        assert isinstance(seen[2], error)
        assert re.search(message, str(seen[2]))
        assert "batch 2" in seen[2].__notes__[-1]
        assert [item for item in seen if isinstance(item, list)] == [
            list(range(4 * i, 4 * i + 4)) for i in range(LENGTH) if i != 2
        ]

    def test_may_be_exceptions_of_classes_that_the_main_process_lacks(self, tmp_path: Path) -> None:
        def event(index: int) -> None:
            if index == 9:

                class LocalError(Exception):
                    def __reduce__(self) -> Any:
                        raise TypeError("it stays where it is")

                raise LocalError("none")

        seen = outcomes(iter(make_loader("sample by sample", event=event)))

        assert [str(item) for item in seen if not isinstance(item, list)] == ["none"]
        assert len(seen) == LENGTH

    def test_may_be_samples_that_do_not_make_a_batch(self) -> None:
        loader = DataLoader(OneOdd(), BATCH_SIZE, num_workers=2, multiprocessing_context="fork")

        batches = iter(loader)
        seen = [next(batches) for _ in range(2)]
        with pytest.raises(ValueError, match=r"equal|shape|size") as info:
            next(batches)
        seen += batches

        assert "batch 2" in info.value.__notes__[-1]
        assert [batch[0, 0] for batch in seen] == [4 * i for i in range(LENGTH) if i != 2]


class OneOdd(Samples):
    def __getitem__(self, index: int) -> Any:
        return np.full(4 if index == 9 else 3, index)


class TestAHang:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("hang", HANGS)
    def test_is_an_error_that_says_where(self, hang: str, kind: str, tmp_path: Path) -> None:
        batches = iter(make_loader(kind, event=Happening({6}, HANGS[hang], tmp_path), timeout=0.2))
        where = {"__getitems__": TOGETHER, "iterable": "batch 0 of worker 0"}.get(kind, "index 6 (sample 2 of batch 1)")
        if kind != "iterable":
            next_patiently(batches)
        wait_until(lambda: list(tmp_path.iterdir()), "a worker to hang")

        with pytest.raises(LoaderTimeoutError) as info:
            next(batches)

        head, worker, *stack = str(info.value).splitlines()
        assert head == "DataLoader timed out after 0.2 seconds"
        pids = workers_of(batches)
        assert worker in [
            f"worker {i} (pid {pids[i]}): dataset {KINDS[kind][0].__name__} was computing {where}:" for i in (0, 1)
        ]
        assert any(HANGS[hang].__name__ in line for line in stack)

    def test_shows_its_stack_once_each_time(self, tmp_path: Path) -> None:
        batches = iter(make_loader("batch by batch", event=Happening({0}, sleep_for_ever, tmp_path), timeout=0.2))
        wait_until(lambda: list(tmp_path.iterdir()), "a worker to hang")

        for _ in range(3):
            with pytest.raises(LoaderTimeoutError) as info:
                next(batches)
            assert str(info.value).count("in sleep_for_ever") == 1

    @pytest.mark.parametrize("kind", KINDS)
    def test_that_ends_costs_nothing(self, kind: str, tmp_path: Path) -> None:
        gate = tmp_path / "gate"
        loader = make_loader(kind, "fork", Happening({6}, partial(wait_for, gate), tmp_path), timeout=0.2)
        batches = iter(loader)
        seen: list[str] = []

        for _ in range(3):
            with pytest.raises(LoaderTimeoutError, match=r"^DataLoader timed out after 0\.2 seconds\n"):
                seen += map(digest, batches)
        gate.touch()
        while len(seen) < LENGTH:
            try:
                seen += map(digest, batches)
            except LoaderTimeoutError:  # the machine is busy
                continue

        assert seen == undisturbed(kind)

    def test_in_another_iterator_is_shown_as_well(self, tmp_path: Path) -> None:
        loader = make_loader("batch by batch", event=Happening({8, 12}, sleep_for_ever, tmp_path), persistent_workers=True)
        first = iter(loader)
        next(first)
        loader.timeout = 0.2
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, "both workers to hang")

        with pytest.raises(LoaderTimeoutError) as info:
            list(iter(loader))

        assert str(info.value).count("in sleep_for_ever") == 2

    @pytest.mark.parametrize("hang", {**HANGS, **MUTE_HANGS})
    @pytest.mark.parametrize("persistent", [False, True])
    def test_does_not_keep_a_loader_from_going(self, persistent: bool, hang: str, tmp_path: Path) -> None:
        event = Happening({4, 5, 6, 7, 8, 12}, {**HANGS, **MUTE_HANGS}[hang], tmp_path)
        loader = make_loader("batch by batch", event=event, persistent_workers=persistent)
        batches = iter(loader)
        next(batches)
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, "both workers to hang")
        pids = workers_of(batches)

        del batches, loader

        assert not any(map(psutil.pid_exists, pids))

    def test_does_not_keep_a_loader_from_going_where_SIGTERM_is_ignored(self, tmp_path: Path) -> None:  # noqa: N802
        event = Happening({4, 8}, partial(ignore_and_sleep, signal.SIGTERM), tmp_path)
        batches = iter(make_loader("batch by batch", event=event))
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, "both workers to hang")
        pids = workers_of(batches)

        batches._shutdown_workers()

        assert not any(map(psutil.pid_exists, pids))

    def test_does_not_keep_the_next_epoch_waiting_for_ever(self, tmp_path: Path) -> None:
        """Kept workers also serve the next epoch, which gets their positions."""
        event = Happening({5}, sleep_for_ever, tmp_path)
        loader = make_loader("seeded as in PyTorch", event=event, persistent_workers=True, timeout=0.2)
        next_patiently(iter(loader))
        wait_until(lambda: list(tmp_path.iterdir()), "a worker to hang")

        with pytest.raises(LoaderTimeoutError, match="in sleep_for_ever"):
            list(loader)


def next_patiently(batches: Iterator[Any]) -> Any:
    """The next batch, though the machine be so busy that waiting for it takes longer than the time-out."""
    while True:
        with contextlib.suppress(LoaderTimeoutError):
            return next(batches)


def wait_for(gate: Path) -> None:
    wait_until(gate.exists, "the end of a hang")


def ignore_and_sleep(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    sleep_for_ever()


class Large(Samples):
    """Samples of 256 KiB."""

    def __getitem__(self, index: int) -> Any:
        self.event(index)
        return np.full((64, 512), index)


def large_walk(index: int) -> Any:
    return np.full((64, 512), index)


class TestMemory:
    @pytest.mark.parametrize("collate_fn", [None, np.stack], ids=["sample by sample", "batch by batch"])
    def test_that_is_used_up_by_batches_is_an_error_and_costs_nothing(self, collate_fn: Any) -> None:
        loader = DataLoader(
            Large(),
            BATCH_SIZE,
            num_workers=2,
            multiprocessing_context="fork",
            max_held_bytes=8 << 20,
            collate_fn=collate_fn,
        )
        batches = iter(loader)
        held: list[Any] = []

        with pytest.raises(OutOfMemoryError, match="max_held_bytes"):
            held.extend(batches)  # which keeps the batches before the error
        seen = [batch[0, 0, 0] for batch in held]
        held.clear()
        seen += [batch[0, 0, 0] for batch in batches]

        assert seen == list(range(0, 48, 4))

    @pytest.mark.parametrize("kind", KINDS)
    def test_is_not_that_of_dev_shm(self, kind: str) -> None:
        before = names_in_dev_shm(os.getpid())  # of semaphores, say, that earlier tests have made
        batches = iter(make_loader(kind, "fork"))
        for _ in range(3):
            next(batches)

        pids = [os.getpid(), *descendants_of(os.getpid())]

        assert len(pids) > 2
        assert not set().union(*map(names_in_dev_shm, pids)) - before
        list(batches)

    def test_of_a_batch_that_is_too_large_for_its_slot_does_not_cost_a_walk(self, tmp_path: Path) -> None:
        loader = DataLoader(Growing(Counting(tmp_path)), None, num_workers=1, multiprocessing_context="fork")

        assert [len(item) for item in loader] == list(Growing.sizes)
        assert times_made(tmp_path) == [1] * len(Growing.sizes)

    @staticmethod
    def _pool_with_batches(batches: Any, number: int) -> Any:
        """The pool of a pass, once it has so many batches ready."""
        pool = loader_workers_of(batches).pool

        def are_ready() -> bool:
            with loader_workers_of(batches):
                pool.poll()
            return bool(pool.occupancy(0) == (0, number))

        wait_until(are_ready, "the batches ahead")
        return pool

    def test_of_a_batch_that_cannot_be_made_again_stays_its_own(self) -> None:
        """Where the dataset is its own iterator, which goes only forward."""
        batches = iter(DataLoader(OwnIterator(), batch_size=2, num_workers=1, prefetch_factor=4))
        seen = [next(batches).tolist()]
        pool = self._pool_with_batches(batches, 4)

        assert not dispatcher_of(pool).retract(pending_of(batches)[0])

        assert seen + [batch.tolist() for batch in batches] == [[i, i + 1] for i in range(0, 12, 2)]

    @pytest.mark.parametrize("kind", MAIN_KINDS)
    def test_of_a_batch_that_is_ready_may_go_to_another_one(self, kind: str) -> None:
        """It is made again then, by a worker that has come further."""
        options = {"num_workers": 1, "prefetch_factor": 4}
        batches = iter(make_loader(kind, **options))
        seen = [digest(next(batches))]
        pool = self._pool_with_batches(batches, 4)
        for _ in range(2):
            assert dispatcher_of(pool).retract(pending_of(batches)[0])

        assert seen + list(map(digest, batches)) == undisturbed(kind, **options)


def names_in_dev_shm(pid: int) -> set[str]:
    """Of the files there that a process maps."""
    return set(re.findall(r"/dev/shm/\S+", Path(f"/proc/{pid}/maps").read_text()))


class OwnIterator(IterableDataset[int]):
    """The numbers up to 12, once."""

    def __init__(self) -> None:
        self.numbers = iter(range(12))

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return next(self.numbers)


class Growing(IterableDataset[Any]):
    """Items that become larger than those before let expect."""

    sizes = (10, 10, 10, 10, 10, 10, 1 << 23, 10, 1 << 24)

    def __init__(self, event: Callable[[int], Any]) -> None:
        self.event = event

    def __iter__(self) -> Iterator[Any]:
        for index, size in enumerate(self.sizes):
            self.event(index)
            yield np.zeros(size, np.uint8)


class TestThreads:
    def test_may_have_an_iterator_each(self) -> None:
        loader = make_loader("sample by sample", "fork", persistent_workers=True)
        seen: list[list[list[int]]] = []
        begun: list[Any] = []

        def load() -> None:
            batches = iter(loader)
            begun.append(batches)
            seen.append(list(map(indices_of, batches)))

        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            run_in_threads([load] * 8)
        finally:
            sys.setswitchinterval(interval_s)

        assert sorted(seen) == [[list(range(4 * i, 4 * i + 4)) for i in range(LENGTH)]] * 8
        assert len({worker.pid for batches in begun for worker in batches._workers}) == 2

    @pytest.mark.parametrize("kind", MAIN_KINDS)
    def test_may_see_workers_die(self, kind: str, tmp_path: Path) -> None:
        event = Happening({0, 21, 47}, die_of_sigkill, tmp_path)
        seen: list[str] = []

        run_in_threads([lambda: seen.extend(map(digest, make_loader(kind, "fork", event)))])

        assert seen == undisturbed(kind)

    def test_dropping_an_iterator_in_another_thread_ends_its_workers(self) -> None:
        batches = [iter(make_loader("sample by sample", "fork"))]
        next(batches[0])
        pids = workers_of(batches[0])

        run_in_threads([batches.clear])

        assert not any(map(psutil.pid_exists, pids))

    def test_closing_an_iterator_ends_the_wait_of_another_thread(self, tmp_path: Path) -> None:
        event = Happening({4, 8}, sleep_for_ever, tmp_path)
        batches = iter(make_loader("batch by batch", event=event))
        seen = [indices_of(next(batches))]
        thread = threading.Thread(target=lambda: seen.extend(outcomes(batches, 1)))
        thread.start()
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, "both workers to hang")

        batches._shutdown_workers()
        thread.join()

        # It may not have come to wait.
        assert len(seen) == 1 or isinstance(seen[1], ClosedError)

    def test_may_collect_an_iterator_while_another_one_waits(self, tmp_path: Path) -> None:
        gate = tmp_path / "gate"
        loader = make_loader(
            "batch by batch", event=Happening({8}, partial(wait_for, gate), tmp_path, times=2), persistent_workers=True
        )
        dropped, waiting = iter(loader), iter(loader)
        loader._iterator = None
        seen: list[list[int]] = []
        thread = threading.Thread(target=lambda: seen.extend(map(indices_of, waiting)))
        thread.start()
        wait_until((tmp_path / "8.1").exists, "both workers to hang")
        wait_until(lambda: len(seen) == 2, "the thread to wait")

        del dropped  # which must not wait for the other thread

        assert thread.is_alive()
        gate.touch()
        thread.join()
        assert seen == [list(range(4 * i, 4 * i + 4)) for i in range(LENGTH)]


def run_in_threads(functions: list[Callable[[], Any]]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
