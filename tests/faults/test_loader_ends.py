"""Ctrl-C while a DataLoader is iterated over, the end of the program, and forks of it."""

from __future__ import annotations

import itertools
import os
import signal
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader, IterableDataset
from dali_like.errors import LostItemError
from tests.faults.interrupting import STRIDE, interrupt_at, wait_until_no_child_is_left
from tests.faults.programs import GONE_S, StartProgram, assert_is_interrupted

#: Interpreters that report everything that could have been left open, and fail of every warning.
STRICT = ("-X", "dev", "-W", "error")
#: Except that programs fork while they have threads, which Python 3.12 warns of.
STRICT_BUT_FORKING = (*STRICT, "-W", "ignore::DeprecationWarning")

BATCH_SIZE = 4

#: Loaders of the numbers from 0 on.
KINDS = ("samples", "batches", "iterable", "serial")

#: Makes such loaders. The program chooses the event before a sample.
LOADING = """
    import gc, itertools, json, random, signal, sys, threading, time
    import numpy as np
    from dali_like.data import DataLoader, IterableDataset
    from dali_like.errors import ForkedError

    kind, method = sys.argv[1:3]

    def event(index):
        pass

    class Numbers:
        def __len__(self):
            return 400

        def __getitem__(self, index):
            event(index)
            return np.full(3, index)

    class Walk(IterableDataset):
        def __iter__(self):
            return map(Numbers().__getitem__, range(400))

    def make(**options):
        options = {"batch_size": 4, **options}
        if kind != "serial":
            options |= {"num_workers": 1 if kind == "iterable" else 2, "multiprocessing_context": method}
        if kind == "batches":
            options["collate_fn"] = lambda samples: np.stack(samples)
        return DataLoader(Walk() if kind == "iterable" else Numbers(), **options)

    def number_of(batch):
        number = int(batch[0, 0]) // 4
        assert batch.tolist() == [[4 * number + i] * 3 for i in range(4)], batch
        return number
"""


# Ctrl-C

HANGING = """
    def event(index):
        if index >= 4:
            tell("hangs: true")
            end = time.monotonic() + 1000
            while time.monotonic() < end:
                time.sleep(0.001)
"""


class TestCtrlC:
    @pytest.mark.parametrize(("kind", "start_method"), [*((kind, "fork") for kind in KINDS), ("samples", "spawn")])
    def test_while_samples_are_slow_shows_one_traceback(self, kind: str, start: StartProgram, start_method: str) -> None:
        text = "batches = iter(make()); first = next(batches); tell('waits: true'); next(batches)"
        program = start(LOADING, HANGING, text, arguments=(kind, start_method))
        program.wait_for("waits")
        program.wait_for("hangs")

        program.press_ctrl_c()

        assert_is_interrupted(program)

    def test_while_workers_start_shows_one_traceback(self, start: StartProgram, start_method: str) -> None:
        text = "loader = make(); batches = iter(loader); os.killpg(0, signal.SIGINT); next(batches)"

        assert_is_interrupted(start(LOADING, text, arguments=("samples", start_method)))

    def test_in_the_loop_shows_one_traceback(self, start: StartProgram, start_method: str) -> None:
        text = "for batch in make(persistent_workers=True): os.killpg(0, signal.SIGINT)"

        assert_is_interrupted(start(LOADING, text, arguments=("samples", start_method)))

    def test_while_the_main_process_waits_costs_nothing(self, start: StartProgram, start_method: str) -> None:
        program = start(
            LOADING,
            """
            gate = os.path.abspath("gate")

            def event(index):
                if index == 4:
                    tell("waits: true")
                    while not os.path.exists(gate):
                        time.sleep(0.001)

            batches = iter(make())
            seen = [number_of(next(batches))]
            try:
                tell("goes on: true")
                seen.extend(map(number_of, batches))
            except KeyboardInterrupt:
                tell("interrupted: true")
            open(gate, "w").close()
            seen.extend(map(number_of, batches))
            assert seen == list(range(100)), seen
            os.unlink(gate)
            """,
            arguments=("samples", start_method),
        )
        program.wait_for("waits")
        program.wait_for("goes on")

        program.press_ctrl_c()

        end = program.end()
        assert (end.stderr, end.status) == ("", 0)
        assert program.lines("interrupted") == [True]

    @pytest.mark.parametrize("kind", KINDS)
    def test_again_and_again_loses_batches_at_worst(self, kind: str, start: StartProgram) -> None:
        program = start(LOADING, STORM, arguments=(kind, "fork"))

        end = program.end()

        assert end.stderr == ""
        assert program.lines("done") == [True]


#: Iterates on and on under a rain of SIGINT upon all of its processes, and checks every batch.
STORM = """
    INTERRUPTS = 200

    def event(index):
        if index % 12 > 8:
            time.sleep(0.001 * random.random())

    def press_ctrl_c(*_):
        os.killpg(0, signal.SIGINT)

    def interrupt(*_):
        global interrupts, inside
        if inside:
            inside = False
            interrupts += 1
            raise KeyboardInterrupt

    sys.unraisablehook = lambda _: None  # finalizers cannot raise their interrupts
    inside = False
    interrupts = interrupts_before = delivered = 0
    last = -1
    batches = iter(make())
    signal.signal(signal.SIGALRM, press_ctrl_c)
    signal.signal(signal.SIGINT, interrupt)
    while interrupts < INTERRUPTS:
        signal.setitimer(signal.ITIMER_REAL, 10 ** random.uniform(-5, -2.5))
        try:
            inside = True
            batch = next(batches)
            inside = False
        except KeyboardInterrupt:
            continue
        except StopIteration:
            inside = False
            assert delivered + interrupts - interrupts_before >= 100
            batches, last, delivered, interrupts_before = iter(make()), -1, 0, interrupts
            continue
        number = number_of(batch)
        delivered += 1
        assert last < number < delivered + interrupts - interrupts_before, (last, number, delivered, interrupts)
        last = number
    signal.setitimer(signal.ITIMER_REAL, 0)
    rest = list(map(number_of, batches))
    # A batch lost to an interrupt may have been requested ahead of time, and be missing only here.
    assert rest == sorted({*rest} - {*range(last + 1)})
    assert delivered + len(rest) + interrupts - interrupts_before >= 100, (rest, delivered, interrupts)
    tell("done: true")
"""


class Numbers:
    """The numbers from 0 on."""

    def __len__(self) -> int:
        return 400_000

    def __getitem__(self, index: int) -> Any:
        return np.full(3, index)


class Walk(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return map(Numbers().__getitem__, range(400_000))


def make(kind: str, **options: Any) -> DataLoader[Any]:
    if kind != "serial":
        options = {"num_workers": 1 if kind == "iterable" else 2, "multiprocessing_context": "fork", **options}
    if kind == "batches":
        options["collate_fn"] = np.stack
    return DataLoader(Walk() if kind == "iterable" else Numbers(), BATCH_SIZE, **options)


def number_of(batch: Any) -> int:
    """Which batch it is."""
    number = int(batch[0, 0]) // BATCH_SIZE
    assert batch.tolist() == [[BATCH_SIZE * number + i] * 3 for i in range(BATCH_SIZE)]
    return number


class TestAnInterruptAtEachPoint:
    @pytest.mark.parametrize("kind", KINDS)
    def test_of_next_loses_a_batch_at_worst(self, kind: str) -> None:
        batches = iter(make(kind))
        seen = [number_of(next(batches))]
        for point in itertools.count():
            has_come, batch = interrupt_at(point, lambda: next(batches))
            seen += [] if batch is None else [number_of(batch)]
            seen += [number_of(next(batches)) for _ in range(2)]
            assert seen[-1] < len(seen) + point + has_come
            if not has_come:
                break

        assert seen == sorted(set(seen))

    def test_of_the_first_next_without_workers_loses_a_batch_at_worst(self) -> None:
        for point in itertools.count():
            batches = iter(make("serial"))
            has_come, batch = interrupt_at(point, lambda batches=batches: next(batches))
            assert number_of(next(batches) if batch is None else batch) <= has_come
            if not has_come:
                break

    @pytest.mark.parametrize("persistent", [False, True])
    def test_of_iter_leaves_a_loader_that_can_be_used(self, persistent: bool) -> None:
        for point in itertools.count(step=7 * STRIDE):
            loader = make("samples", persistent_workers=persistent)
            has_come = interrupt_at(point, lambda loader=loader: iter(loader))[0]
            batches = iter(loader)
            assert [number_of(next(batches)) for _ in range(3)] == [0, 1, 2]
            del loader, batches
            wait_until_no_child_is_left()
            if not has_come:
                break

    def test_of_the_end_leaves_nothing_behind(self) -> None:
        for point in itertools.count(step=STRIDE):
            batches: Any = iter(make("samples"))
            next(batches)
            has_come, _ = interrupt_at(point, batches._shutdown_workers)
            del batches
            wait_until_no_child_is_left()
            if not has_come:
                break


class InterruptedSampler:
    """Is interrupted while it draws the indices of a batch."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.draw, range(100))

    def draw(self, number: int) -> list[int]:
        if number == self.at:
            os.kill(os.getpid(), signal.SIGINT)
        return [4 * number + i for i in range(BATCH_SIZE)]


class InterruptedGenerator(InterruptedSampler):
    def __iter__(self) -> Iterator[list[int]]:
        for number in range(100):
            yield self.draw(number)


class TestAnInterruptOfTheUsersCode:
    @pytest.mark.parametrize("at", [0, 9])
    def test_in_the_sampler_loses_the_indices_drawn_for_the_batch(self, at: int, start_method: str) -> None:
        loader = DataLoader(
            Numbers(), batch_sampler=InterruptedSampler(at), num_workers=2, multiprocessing_context=start_method
        )
        seen: list[int] = []

        with pytest.raises(KeyboardInterrupt):
            seen += map(number_of, batches := iter(loader))

        if at:  # else there is no iterator
            seen += map(number_of, batches)
            assert seen == [number for number in range(100) if number != at]

    def test_in_a_sampler_that_is_a_generator_is_not_the_end_of_the_epoch(self) -> None:
        loader = DataLoader(Numbers(), batch_sampler=InterruptedGenerator(9), num_workers=2, multiprocessing_context="fork")
        seen: list[int] = []
        batches = iter(loader)
        with pytest.raises(KeyboardInterrupt):
            seen += map(number_of, batches)

        with pytest.raises(LostItemError, match="generator"):
            seen += map(number_of, batches)

        assert seen == list(range(9))
        assert list(batches) == []

    def test_in_the_collation_costs_no_batch(self) -> None:
        interrupts = [signal.SIGINT]

        def collate(samples: list[Any]) -> Any:
            if samples[0][0] == 20 and interrupts:
                os.kill(os.getpid(), interrupts.pop())
            return np.stack(samples)

        batches = iter(DataLoader(Numbers(), BATCH_SIZE, collate_fn=collate))
        seen: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            seen += map(number_of, batches)

        seen += map(number_of, itertools.islice(batches, 5))

        assert seen == list(range(10))

    def test_where_a_batch_is_unpickled_costs_it(self) -> None:
        def collate(samples: list[Any]) -> Any:
            return Interrupting() if samples[0][0] == 20 else np.stack(samples)

        loader = DataLoader(Numbers(), BATCH_SIZE, num_workers=2, multiprocessing_context="fork", collate_fn=collate)
        batches = iter(loader)
        seen: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            seen += map(number_of, batches)

        seen += map(number_of, itertools.islice(batches, 5))

        assert seen == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


class Interrupting:
    def __reduce__(self) -> Any:
        return press_ctrl_c, ()


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


# The end of the program


class TestANormalEndIsSilent:
    @pytest.mark.parametrize(
        "ending",
        {
            "in the middle of an epoch": "batches = iter(make()); number_of(next(batches))",
            "the iterator dropped": "batches = iter(make()); number_of(next(batches)); del batches",
            "batches held": "batches = iter(make()); held = [next(batches) for _ in range(5)]",
            "workers kept": """
                loader = make(persistent_workers=True)
                for batch in loader:
                    break
            """,
            "the next epoch begun": """
                loader = make(prefetch_epochs=True)
                seen = list(map(number_of, loader))
                assert seen == list(range(100))
            """,
            "in a cycle": "batches = iter(make()); next(batches); batches.itself = batches; del batches",
            "in a frame that has failed": """
                def fail():
                    for batch in make():
                        raise ValueError("the end")
                try:
                    fail()
                except ValueError as error:
                    kept = error
            """,
            "after an exception of the dataset": """
                def event(index):
                    if index == 6:
                        raise ValueError("no such sample")
                batches = iter(make())
                next(batches)
                try:
                    next(batches)
                except ValueError as error:
                    kept = error
            """,
            "in a thread": """
                def work():
                    batches = iter(make())
                    number_of(next(batches))
                    kept.append(batches)
                kept = []
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            """,
            "in a daemon thread that goes on": """
                def work():
                    while True:
                        for batch in make():
                            begun.set()
                begun = threading.Event()
                threading.Thread(target=work, daemon=True).start()
                begun.wait()
            """,
        }.items(),
        ids=lambda item: item[0],
    )
    def test_with_a_loader(self, ending: tuple[str, str], start: StartProgram) -> None:
        program = start(LOADING, ending[1], arguments=("samples", "fork"), flags=STRICT)

        end = program.end()

        assert (end.stdout, end.stderr, end.status) == ("", "", 0)

    @pytest.mark.parametrize(("kind", "method"), [("samples", "spawn"), *((kind, "fork") for kind in KINDS[1:])])
    def test_with_any_loader(self, kind: str, method: str, start: StartProgram) -> None:
        text = "batches = iter(make()); number_of(next(batches))"
        program = start(LOADING, text, arguments=(kind, method), flags=STRICT)

        end = program.end()

        assert (end.stdout, end.stderr, end.status) == ("", "", 0)

    def test_by_sys_exit_in_the_loop(self, start: StartProgram, start_method: str) -> None:
        program = start(LOADING, "for batch in make(): sys.exit(4)", arguments=("samples", start_method), flags=STRICT)

        end = program.end()

        assert (end.stdout, end.stderr, end.status) == ("", "", 4)

    def test_with_workers_that_hang(self, start: StartProgram, start_method: str) -> None:
        text = "batches = iter(make()); next(batches); wait_for_the_test()"
        program = start(LOADING, HANGING.replace("hangs: true", "hangs: 1"), text, arguments=("samples", start_method))
        program.wait_for("hangs", 2)

        end = program.end(GONE_S)

        assert (end.stderr, end.status) == ("", 0)


class TestWorkersEndWithTheMainProcess:
    @pytest.mark.parametrize(
        ("number", "workers_are", "start_method"),
        [
            *itertools.product([signal.SIGKILL, signal.SIGTERM], ["idle", "hanging"], ["fork"]),
            (signal.SIGKILL, "hanging", "spawn"),
        ],
    )
    def test_when_a_signal_kills_it(
        self, number: signal.Signals, workers_are: str, start: StartProgram, start_method: str
    ) -> None:
        program = start(
            LOADING,
            HANGING if workers_are == "hanging" else "",
            """
            batches = iter(make())
            next(batches)
            while len(batches._workers) < 2:
                time.sleep(0.001)
            tell("goes: true")
            wait_for_the_test()
            """,
            arguments=("batches", start_method),
        )
        program.wait_for("goes")
        if workers_are == "hanging":
            program.wait_for("hangs", 2)

        program.kill(number)

        assert program.end().status == -number


# Forks

#: Forks in the middle of an epoch, lets the child run its part after the parent has continued, and continues.
FORKING = """
    loader = make(**({} if kind == "serial" else {"persistent_workers": True}))
    batches = iter(loader)
    held = [next(batches) for _ in range(5)]
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(readable, 1)
        exec(sys.argv[3])
        sys.exit(0)
    held += itertools.islice(batches, 10)
    os.write(writable, b".")
    assert os.waitpid(child, 0) == (child, 0)
    held += batches
    assert list(map(number_of, held)) == list(range(100))
    assert list(map(number_of, loader)) == list(range(100))
"""

CHILDREN = {
    "does nothing": "",
    "goes on": """
        try:
            next(batches)
        except ForkedError as error:
            assert kind != "serial" and "begin another iterator" in str(error)
        else:
            assert kind == "serial"
    """,
    "drops everything": "del batches, loader, held; gc.collect()",
    "begins an epoch": "assert list(map(number_of, itertools.islice(loader, 20))) == list(range(20))",
    "makes a loader of its own": "assert list(map(number_of, itertools.islice(make(), 20))) == list(range(20))",
}


class TestAForkedChild:
    @pytest.mark.parametrize(
        ("kind", "does"), [*(("samples", does) for does in CHILDREN), *((kind, "goes on") for kind in KINDS[1:])]
    )
    def test_leaves_its_parent_alone(self, does: str, kind: str, start: StartProgram) -> None:
        arguments = (kind, "fork", textwrap.dedent(CHILDREN[does]))
        program = start(LOADING, FORKING, arguments=arguments, flags=STRICT_BUT_FORKING)

        end = program.end()

        assert (end.stdout, end.stderr, end.status) == ("", "", 0)

    def test_may_come_of_multiprocessing(self, start: StartProgram) -> None:
        program = start(
            LOADING,
            """
            import multiprocessing

            def work():
                try:
                    next(batches)
                except ForkedError:
                    assert list(map(number_of, itertools.islice(loader, 20))) == list(range(20))
                    sys.exit(5)

            loader = make()
            batches = iter(loader)
            assert number_of(next(batches)) == 0
            processes = [multiprocessing.get_context("fork").Process(target=work) for _ in range(2)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            assert [process.exitcode for process in processes] == [5, 5]
            assert list(map(number_of, batches)) == list(range(1, 100))
            """,
            arguments=("samples", "fork"),
            flags=STRICT_BUT_FORKING,
        )

        end = program.end()

        assert (end.stdout, end.stderr, end.status) == ("", "", 0)

    def test_may_be_made_while_another_thread_waits(self, start: StartProgram) -> None:
        """The locks that this thread has are taken for ever in the child."""
        program = start(
            LOADING,
            """
            def event(index):
                if index == 8:
                    tell("waits: true")
                    time.sleep(1000)

            loader = make(persistent_workers=True)
            batches = iter(loader)
            thread = threading.Thread(target=lambda: [None for _ in batches], daemon=True)
            thread.start()
            wait_for_the_test()
            child = os.fork()
            if child == 0:
                event = lambda index: None
                assert list(map(number_of, itertools.islice(loader, 20))) == list(range(20))
                os._exit(0)
            assert os.waitpid(child, 0) == (child, 0)
            os._exit(6)
            """,
            arguments=("samples", "fork"),
            flags=STRICT_BUT_FORKING,
        )
        program.wait_for("waits")

        end = program.end()

        assert (end.stderr, end.status) == ("", 6)


class TestFewDescriptors:
    def test_are_enough_for_many_batches(self, start: StartProgram, start_method: str) -> None:
        program = start(
            LOADING,
            """
            import resource

            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            held = list(make())
            assert list(map(number_of, held)) == list(range(100))
            """,
            arguments=("samples", start_method),
        )

        end = program.end()

        assert (end.stderr, end.status) == ("", 0)

    def test_are_an_error_that_says_so(self, start: StartProgram) -> None:
        program = start(
            LOADING,
            """
            import resource
            from dali_like.errors import DescriptorLimitError

            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            taken = []
            try:
                while True:
                    taken.append(iter(make()))
            except DescriptorLimitError as error:
                assert "ulimit -n" in str(error), error
            taken.pop()
            assert number_of(next(iter(make()))) == 0
            """,
            arguments=("samples", "fork"),
        )

        end = program.end()

        assert (end.stderr, end.status) == ("", 0)
