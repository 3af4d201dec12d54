"""Ctrl-C: one traceback, and a pipeline that goes on where the user catches the exception.

Interrupts come in three ways here: as SIGINT to all processes of a program, as a terminal sends it; as SIGINT at random
moments; and as SIGINT at each point in turn at which the interpreter looks for signals (see `faults.interrupting`).
"""

from __future__ import annotations

import itertools
import time
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.types import SampleInfo
from tests.conftest import skip_without
from tests.faults.interrupting import STRIDE, interrupt_at, wait_until_no_child_is_left
from tests.faults.programs import StartProgram, assert_is_interrupted

BATCH_SIZE = 4

# One traceback

#: A pipeline whose callbacks are slow from the second batch on.
SLOW = """
    import signal, time
    import numpy as np
    from dali_like import fn, pipeline_def

    method = sys.argv[1]

    def source(info):
        if info.iteration:
            tell("slow: true")
            end = time.monotonic() + 1000
            while time.monotonic() < end:
                time.sleep(0.001)
        return np.int64(info.idx_in_epoch)

    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, py_start_method=method)
    def numbers():
        return fn.external_source(source=source, batch=False, parallel=True)

    pipe = numbers()
"""


class TestCtrlC:
    @pytest.mark.parametrize("way", ["fork", "spawn", "thread", "thread_copies"])
    def test_while_callbacks_are_slow_shows_one_traceback(self, start: StartProgram, way: str) -> None:
        program = start(SLOW, "first = pipe.run(); tell('waits: true'); pipe.run()", arguments=(way,))
        program.wait_for("waits")
        program.wait_for("slow", 2)

        program.press_ctrl_c()

        assert_is_interrupted(program)

    def test_while_workers_start_shows_one_traceback(self, start: StartProgram, start_method: str) -> None:
        program = start(SLOW, "pipe.start_py_workers(); os.killpg(0, signal.SIGINT)", arguments=(start_method,))

        assert_is_interrupted(program)

    def test_while_workers_start_leaves_a_pipeline_that_can_be_used(self, start: StartProgram, start_method: str) -> None:
        program = start(
            SLOW,
            """
            try:
                pipe.start_py_workers()
                os.killpg(0, signal.SIGINT)
            except KeyboardInterrupt:
                tell(f"batch: {pipe.run()[0].as_array().tolist()}")
            """,
            arguments=(start_method,),
        )

        end = program.end()

        assert end.stderr == ""
        assert program.lines("batch") == [[0, 1, 2, 3]]

    def test_just_after_the_fork_shows_one_traceback(self, start: StartProgram) -> None:
        program = start(
            SLOW,
            """
            def press_ctrl_c_in_child(frame, event, arg):
                if os.getpid() != main and frame.f_globals["__name__"].startswith("dali_like"):
                    sys.setprofile(None)
                    os.kill(os.getpid(), signal.SIGINT)

            main = os.getpid()
            sys.setprofile(press_ctrl_c_in_child)
            pipe.start_py_workers()
            sys.setprofile(None)
            pipe.run()
            os.kill(main, signal.SIGINT)
            """,
            arguments=("fork",),
        )

        assert_is_interrupted(program)

    def test_while_the_program_waits_for_something_else_shows_one_traceback(
        self, start: StartProgram, start_method: str
    ) -> None:
        program = start(SLOW, "pipe.run(); tell('waits: true'); wait_for_the_test()", arguments=(start_method,))
        program.wait_for("waits")

        program.press_ctrl_c()

        assert_is_interrupted(program)

    def test_does_not_reach_workers_that_another_program_would_reach(self, start: StartProgram, start_method: str) -> None:
        """Workers continue with their sample: a program that catches KeyboardInterrupt gets it."""
        program = start(
            """
            import signal, time
            import numpy as np
            from dali_like import fn, pipeline_def

            gate = os.path.abspath("gate")
            os.mkfifo(gate)

            def source(info):
                if info.iteration == 1:
                    tell("slow: true")
                    os.close(os.open(gate, os.O_RDONLY))  # returns when the other end is opened
                return np.int64(info.idx_in_epoch)

            @pipeline_def(batch_size=4, num_threads=1, py_num_workers=4, py_start_method=sys.argv[1])
            def numbers():
                return fn.external_source(source=source, batch=False, parallel=True)

            pipe = numbers()
            pipe.run()
            try:
                tell("waits: true")
                pipe.run()
            except KeyboardInterrupt:
                tell("interrupted: true")
            opened = os.open(gate, os.O_RDWR)
            for _ in range(2):
                tell(f"batch: {pipe.run()[0].as_array().tolist()}")
            os.unlink(gate)  # not before: a worker may have told that it comes to it, and not have opened it yet
            """,
            arguments=(start_method,),
        )
        program.wait_for("waits")
        program.wait_for("slow", 4)

        program.press_ctrl_c()

        assert program.end().stderr == ""
        assert program.lines("interrupted") == [True]
        assert program.lines("batch") == [[4, 5, 6, 7], [8, 9, 10, 11]]


# Going on after an interrupt

#: Runs on and on under a rain of SIGINT upon all of its processes, and checks every batch.
STORM = """
    import random, signal, time
    import numpy as np
    from dali_like import fn, pipeline_def

    way, operators = sys.argv[1:]
    INTERRUPTS = 300
    LOSS = 2 if operators else 1  # one that is delivered, and one that operators begin with
    random.seed(1)

    def source(info):
        if info.iteration % 3 == 2:
            time.sleep(0.002 * random.random())
        return np.full(1 + (info.iteration % 2) * info.idx_in_batch, info.idx_in_epoch)

    def make_file(info):
        pixel = (info.idx_in_epoch >> 16 & 255, info.idx_in_epoch >> 8 & 255, info.idx_in_epoch & 255)
        return cv2.imencode(".png", np.full((3, 5, 3), pixel[::-1], np.uint8))[1].reshape(-1)

    @pipeline_def(batch_size=4, num_threads=2, py_num_workers=2, **({} if way == "serial" else {"py_start_method": way}))
    def make():
        node = fn.external_source(source=make_file if operators else source, batch=False, parallel=way != "serial")
        return fn.decoders.image(node) if operators else node

    def numbers_of(sample):
        if operators:
            sample = sample.astype(np.int64) @ [1 << 16, 1 << 8, 1]
        return set(sample.ravel().tolist())

    def iteration_of(batch):
        samples = [numbers_of(batch.at(i)) for i in range(4)]
        first = min(samples[0])
        assert first % 4 == 0 and samples == [{first + i} for i in range(4)], samples
        return first // 4

    def press_ctrl_c(*_):
        os.killpg(0, signal.SIGINT)

    def interrupt(*_):
        global interrupts, inside
        if inside:
            inside = False
            interrupts += 1
            raise KeyboardInterrupt

    if operators:
        import cv2
    sys.unraisablehook = lambda _: None  # finalizers cannot raise their interrupts
    inside = False
    interrupts = 0
    last = 0
    delivered = 1
    pipe = make()
    assert iteration_of(*pipe.run()) == 0
    signal.signal(signal.SIGALRM, press_ctrl_c)
    signal.signal(signal.SIGINT, interrupt)
    while interrupts < INTERRUPTS:
        signal.setitimer(signal.ITIMER_REAL, 10 ** random.uniform(-5, -2.3))
        try:
            inside = True
            (batch,) = pipe.run()
            inside = False
        except KeyboardInterrupt:
            continue
        except BaseException:
            inside = False
            raise
        iteration = iteration_of(batch)
        delivered += 1
        assert last < iteration < delivered + LOSS * interrupts, (last, iteration, delivered, interrupts)
        last = iteration
    signal.setitimer(signal.ITIMER_REAL, 0)
    for _ in range(10):
        (batch,) = pipe.run()
        iteration = iteration_of(batch)
        assert iteration > last
        last = iteration
    tell("done: true")
"""


class TestAStormOfInterrupts:
    def test_loses_batches_at_worst(self, start: StartProgram, way: str) -> None:
        program = start(STORM, arguments=(way, ""))

        end = program.end()

        assert end.stderr == ""
        assert program.lines("done") == [True]

    def test_loses_batches_at_worst_also_with_operators(self, start: StartProgram, way: str) -> None:
        skip_without("cv2")
        program = start(STORM, arguments=(way, "operators"))

        end = program.end()

        assert end.stderr == ""
        assert program.lines("done") == [True]


def make(way: str, pause_s: float = 0.0) -> Pipeline:
    """A pipeline with an output whose samples lie in rows, and one whose samples do not."""

    def source(info: SampleInfo) -> tuple[Any, Any]:
        if pause_s:
            time.sleep(pause_s)
        return np.int64(info.idx_in_epoch), np.full(info.idx_in_epoch % 5, info.idx_in_epoch)

    method = {} if way == "serial" else {"py_start_method": way}

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1, py_num_workers=2, **method)
    def pipeline() -> Any:
        return tuple(fn.external_source(source=source, num_outputs=2, batch=False, parallel=way != "serial"))

    return pipeline()


def iteration_of(batch: tuple[Any, ...]) -> int:
    """Which iteration a batch is of; all of its samples must be, in both outputs."""
    rows, others = batch
    numbers = rows.as_array().tolist()
    assert numbers == list(range(numbers[0], numbers[0] + BATCH_SIZE))
    assert [others.at(i).tolist() for i in range(BATCH_SIZE)] == [[number] * (number % 5) for number in numbers]
    return int(numbers[0]) // BATCH_SIZE


class TestAnInterruptAtEachPoint:
    @pytest.mark.parametrize(
        ("way", "pause_s"),
        [("serial", 0.0), ("thread_copies", 0.0), *itertools.product(("fork", "spawn", "thread"), (0.0, 0.001))],
    )
    def test_of_run_loses_a_batch_at_worst(self, way: str, pause_s: float) -> None:
        with closing(make(way, pause_s)) as pipe:
            seen = [iteration_of(pipe.run())]
            for point in itertools.count():
                has_come, batch = interrupt_at(point, pipe.run)
                seen.extend(iteration_of(outputs) for outputs in (batch, pipe.run(), pipe.run()) if outputs)
                assert seen[-1] < len(seen) + point + has_come
                if not has_come:
                    break

        assert seen == sorted(set(seen))

    @pytest.mark.parametrize("way", ["serial", "fork"])
    def test_of_the_first_run_loses_a_batch_at_worst(self, way: str) -> None:
        for point in itertools.count(step=STRIDE):
            with closing(make(way)) as pipe:
                pipe.build()
                has_come, _ = interrupt_at(point, pipe.run)
                assert iteration_of(pipe.run()) <= 1
            if not has_come:
                break

    def test_of_the_start_leaves_a_pipeline_that_can_be_used(self) -> None:
        for point in itertools.count(step=2 * STRIDE):
            with closing(make("fork")) as pipe:
                has_come, _ = interrupt_at(point, pipe.build)
                assert iteration_of(pipe.run()) == 0
            wait_until_no_child_is_left()
            if not has_come:
                break

    def test_of_the_start_leaves_nothing_behind(self) -> None:
        for point in itertools.count(STRIDE, step=2 * STRIDE):  # between the points of the test above
            pipe = make("fork")
            has_come, _ = interrupt_at(point, pipe.build)
            del pipe
            wait_until_no_child_is_left()
            if not has_come:
                break

    def test_of_reset_leaves_a_pipeline_that_can_be_reset(self, way: str) -> None:
        with closing(make(way)) as pipe:
            for point in itertools.count():
                pipe.run()
                has_come, _ = interrupt_at(point, pipe.reset)
                pipe.reset()
                assert iteration_of(pipe.run()) == 0
                if not has_come:
                    break

    def test_of_close_leaves_a_pipeline_that_can_be_closed(self) -> None:
        for point in itertools.count(step=STRIDE):
            with closing(make("fork")) as pipe:
                pipe.run()
                has_come, _ = interrupt_at(point, pipe.close)
            wait_until_no_child_is_left()
            if not has_come:
                break
