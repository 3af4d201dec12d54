"""Ends of the main process: however it ends, its workers end, nothing stays behind, and a normal end is silent."""

from __future__ import annotations

import gc
import itertools
import json
import signal
import textwrap
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest

from dali_like import Pipeline
from dali_like.engine.backends import processes
from dali_like.types import SampleInfo
from tests.conftest import is_running, skip_without, wait_until
from tests.faults.programs import GONE_S, Program, StartProgram

#: Interpreters that report everything that could have been left open, and fail of every warning.
STRICT = ("-X", "dev", "-W", "error")
#: Except that programs fork while they have threads, which Python 3.12 warns of.
STRICT_BUT_FORKING = (*STRICT, "-W", "ignore::DeprecationWarning")

#: Builds a pipeline whose workers wait for the next task, or hang in a callback, and then ends in the given way.
ENDING = """
    import ctypes, json, signal, threading, time
    import numpy as np
    from dali_like import fn, pipeline_def

    way, method, workers_are = sys.argv[1:]

    def source(info):
        if info.iteration:
            if workers_are == "holding the GIL":
                tell("hangs: true")
                ctypes.PyDLL(None).sleep(1000)
        return np.int64(info.idx_in_epoch)

    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, py_start_method=method)
    def numbers():
        return fn.external_source(source=source, batch=False, parallel=True)

    def main():
        pipe = numbers()
        pipe.run()
        while len(pipe.py_worker_pids) < 2:
            time.sleep(0.001)
        tell(f"pids: {json.dumps(pipe.py_worker_pids)}")
        if way == "is killed in run" and workers_are != "idle":
            pipe.run()
        wait_for_the_test()
        if way == "os._exit":
            os._exit(4)
        elif way == "sys.exit":
            sys.exit(4)
        elif way == "raise":
            raise ValueError("the end")
        elif way == "close":
            pipe.close()
        elif way == "del":
            del pipe
        return globals()

    if way == "thread":
        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
    else:
        main()
"""

STATES = ("idle", "holding the GIL")
#: How the program ends, and its exit status then.
ENDINGS = {"os._exit": 4, "sys.exit": 4, "raise": 1, "return": 0, "close": 0, "del": 0, "thread": 0}


def started(start: StartProgram, way: str, start_method: str, workers_are: str) -> Program:
    """The program above, when its workers are in that state and known to the program."""
    program = start(ENDING, arguments=(way, start_method, workers_are))
    pids = program.wait_for("pids")[0]
    if workers_are != "idle":
        program.wait_for("hangs", 2)
    assert {*pids, psutil.Process(pids[0]).ppid()} < program.processes()
    return program


class TestWorkersEndWithTheMainProcess:
    """The fixture `start` asserts that they do."""

    @pytest.mark.parametrize(
        ("number", "workers_are", "start_method"),
        [
            *itertools.product([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], STATES, ["fork"]),
            (signal.SIGKILL, "holding the GIL", "spawn"),
            (signal.SIGINT, "idle", "spawn"),
        ],
    )
    def test_when_a_signal_kills_it(
        self, number: signal.Signals, workers_are: str, start: StartProgram, start_method: str
    ) -> None:
        program = started(start, "is killed in run", start_method, workers_are)

        program.kill(number)

        end = program.end()
        assert end.status == -number
        assert end.stderr == "" or number == signal.SIGINT

    @pytest.mark.parametrize(
        ("way", "workers_are", "start_method"),
        [
            *itertools.product(ENDINGS, ["idle"], ["fork"]),
            *itertools.product(["os._exit", "return", "close"], ["holding the GIL"], ["fork"]),
            ("return", "idle", "spawn"),
            ("os._exit", "holding the GIL", "spawn"),
        ],
    )
    def test_when_it_ends_itself(self, way: str, workers_are: str, start: StartProgram, start_method: str) -> None:
        program = started(start, way, start_method, workers_are)

        program.go_on()

        assert program.end().status == ENDINGS[way]

    def test_when_it_is_killed_while_they_start(self, start: StartProgram, start_method: str) -> None:
        program = start(
            """
            import numpy as np
            from dali_like import fn, pipeline_def

            @pipeline_def(batch_size=4, num_threads=1, py_num_workers=8, py_start_method=sys.argv[1])
            def numbers():
                return fn.external_source(source=lambda info: np.int64(0), batch=False, parallel=True)

            pipe = numbers()
            pipe.start_py_workers()
            tell("started: true")
            wait_for_the_test()
            """,
            arguments=(start_method,),
        )
        program.wait_for("started")

        program.kill(signal.SIGKILL)

        end = program.end()
        assert (end.status, end.stderr) == (-signal.SIGKILL, "")

    def test_when_it_is_killed_and_a_child_of_it_lives_on(self, start: StartProgram, start_method: str) -> None:
        """The child has copies of the main process's ends of all pipes."""
        program = start(
            """
            import numpy as np
            from dali_like import fn, pipeline_def

            @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, py_start_method=sys.argv[1])
            def numbers():
                return fn.external_source(source=lambda info: np.int64(info.idx_in_epoch), batch=False, parallel=True)

            pipe = numbers()
            pipe.run()
            child = os.fork()
            if child:
                tell(f"child: {child}")
            wait_for_the_test()
            """,
            arguments=(start_method,),
        )
        (child,) = program.wait_for("child")

        program.kill(signal.SIGKILL)

        wait_until(lambda: program.processes() == {child}, "the end of all others", GONE_S)
        program.go_on()


#: Pipelines, for programs that do something with them and end.
USING = """
    import gc, sys
    import numpy as np
    from dali_like import fn, pipeline_def
    from dali_like.errors import ForkedError

    way = sys.argv[1]

    def make_source(failing):
        def source(info):
            if info.idx_in_epoch == failing:
                raise ValueError("no such sample")
            if info.iteration == 12:
                raise StopIteration
            return np.full(3, info.idx_in_epoch)
        return source

    @pipeline_def(batch_size=4, num_threads=2, py_num_workers=2, **({} if way == "serial" else {"py_start_method": way}))
    def numbers(failing=-1):
        return fn.external_source(source=make_source(failing), batch=False, parallel=way != "serial")

    def check(batch, iteration):
        samples = [set(array.ravel()) for array in batch.as_array()]
        assert samples == [{iteration * 4 + i} for i in range(4)], samples
"""

#: The same with an operator: pixels of images take the place of the numbers.
USING_OPERATORS = (
    USING
    + """
    import cv2

    def make_file(info):
        if info.iteration == 12:
            raise StopIteration
        return cv2.imencode(".png", np.full((3, 5, 3), info.idx_in_epoch, np.uint8))[1].reshape(-1)

    @pipeline_def(batch_size=4, num_threads=3, py_num_workers=2, **({} if way == "serial" else {"py_start_method": way}))
    def images():
        return fn.decoders.image(fn.external_source(source=make_file, batch=False, parallel=way != "serial"))
"""
)


class TestANormalEndIsSilent:
    #: Everything with forked workers, and with others that which ends in a way of its own.
    ENDINGS: ClassVar = {
        "closed": "pipe = numbers(); pipe.run(); pipe.close()",
        "not closed": "pipe = numbers(); pipe.run()",
        "never run": "pipe = numbers(); pipe.build()",
        "after an epoch": "pipe = numbers(); assert sum(1 for _ in pipe) == 12",
        "in a cycle": "pipe = numbers(); pipe.run(); pipe.itself = pipe; del pipe",
        "in a frame that has failed": """
                def fail():
                    pipe = numbers()
                    pipe.run()
                    raise ValueError("the end")
                try:
                    fail()
                except ValueError as error:
                    kept = error
            """,
        "batches held": "pipe = numbers(); held = [pipe.run() for _ in range(3)]",
        "batches held after close": "pipe = numbers(); held = [pipe.run() for _ in range(3)]; pipe.close()",
        "an array held in a cycle": "pipe = numbers(); held = [pipe.run()[0].at(1)]; held.append(held)",
        "closed by __del__": """
                class Trainer:
                    def __init__(self):
                        self.pipe = numbers()
                        self.pipe.run()
                    def __del__(self):
                        self.pipe.close()
                trainer = Trainer()
            """,
        "closed by a generator": """
                def batches():
                    pipe = numbers()
                    try:
                        yield pipe.run()
                    finally:
                        pipe.close()
                iterator = batches()
                next(iterator)
            """,
        "several pipelines": "pipes = [numbers() for _ in range(3)]; [pipe.run() for pipe in pipes]",
        "in a thread": """
                import threading
                def work():
                    pipe = numbers()
                    check(pipe.run()[0], 0)
                    kept.append(pipe)
                kept = []
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            """,
        "after an exception in a callback": """
                pipe = numbers(failing=6)
                pipe.run()
                try:
                    pipe.run()
                except ValueError as error:
                    kept = error
                check(pipe.run()[0], 2)
            """,
    }

    @pytest.mark.parametrize(
        ("way", "ending"),
        [
            *(("fork", ending) for ending in ENDINGS),
            *itertools.product(
                ["serial", "thread"], ["not closed", "in a cycle", "in a frame that has failed", "in a thread"]
            ),
            *itertools.product(["spawn"], ["not closed", "never run", "batches held"]),
            ("thread", "batches held"),
        ],
    )
    def test_with_a_pipeline(self, way: str, ending: str, start: StartProgram) -> None:
        program = start(USING, self.ENDINGS[ending], arguments=(way,), flags=STRICT)

        end = program.end()

        assert (end.stdout, end.stderr, end.status) == ("", "", 0)

    @pytest.mark.parametrize(
        ("way", "ending"),
        [
            *itertools.product(["fork"], ["pipe.close()", "", "held = pipe.run()", "pipe.itself = pipe; del pipe"]),
            *itertools.product(["serial", "spawn", "thread"], [""]),
        ],
    )
    def test_with_a_pipeline_that_has_operators(self, way: str, ending: str, start: StartProgram) -> None:
        skip_without("cv2")
        program = start(USING_OPERATORS, "pipe = images(); check(pipe.run()[0], 0)", ending, arguments=(way,), flags=STRICT)

        end = program.end()

        assert (end.stdout, end.stderr, end.status) == ("", "", 0)


class TestAProgramWithoutAMainGuard:
    def test_runs_once_under_spawn_and_its_definitions_travel(self, start: StartProgram) -> None:
        program = start(
            """
            import numpy as np
            from dali_like import fn, pipeline_def

            tell("top level: true")
            FACTOR = 10

            def scaled(number):
                return number * FACTOR

            class Source:
                def __init__(self, offset):
                    self.offset = offset

                def __call__(self, info):
                    return np.int64(scaled(info.idx_in_epoch) + self.offset)

            def make_closure(offset):
                def closure(info):
                    return np.int64(scaled(info.idx_in_epoch) + offset)
                return closure

            @pipeline_def(batch_size=2, num_threads=1, py_num_workers=2, py_start_method="spawn")
            def numbers():
                function = lambda info: np.int64(scaled(info.idx_in_epoch) + 2)
                sources = [Source(1), function, make_closure(3), Source(4).__call__]
                return tuple(fn.external_source(source=source, batch=False, parallel=True) for source in sources)

            pipe = numbers()
            tell(f"batch: {[output.as_array().tolist() for output in pipe.run()]}")
            pipe.close()
            """
        )

        end = program.end()

        assert end.stderr == ""
        assert program.lines("top level") == [True]
        assert program.lines("batch") == [[[1, 11], [2, 12], [3, 13], [4, 14]]]

    @pytest.mark.parametrize("arguments", ["'broken'", "7, reason='broken'"])
    def test_catches_its_own_exceptions(self, arguments: str, start: StartProgram, start_method: str) -> None:
        program = start(
            f"""
            import numpy as np
            from dali_like import fn, pipeline_def

            class BrokenError(Exception):
                if {"reason" in arguments}:
                    def __init__(self, code, *, reason):
                        super().__init__(reason)
                        self.code = code

            def source(info):
                raise BrokenError({arguments})

            @pipeline_def(batch_size=2, num_threads=1, py_num_workers=2, py_start_method=sys.argv[1])
            def numbers():
                return fn.external_source(source=source, batch=False, parallel=True)

            pipe = numbers()
            try:
                pipe.run()
            except BrokenError as error:
                tell(f"caught: {{len(str(error))}}")
            pipe.close()
            """,
            arguments=(start_method,),
        )

        end = program.end()

        assert end.stderr == ""
        assert program.lines("caught") == [len("broken")]


class TestAPipelineThatIsDropped:
    def test_ends_its_workers(self, start_method: str, make_and_run: Callable[[str], Pipeline]) -> None:
        pipe = make_and_run(start_method)
        pids = pipe.py_worker_pids

        del pipe
        gc.collect()

        assert not any(map(is_running, pids))

    def test_ends_its_workers_also_in_a_cycle(self, start_method: str, make_and_run: Callable[[str], Pipeline]) -> None:
        pipe: Any = make_and_run(start_method)
        pids = pipe.py_worker_pids
        pipe.itself = pipe

        del pipe
        gc.collect()

        assert not any(map(is_running, pids))

    # The exception has nowhere to go but the log of Python.
    @pytest.mark.filterwarnings("ignore:Exception ignored in.*finalize:pytest.PytestUnraisableExceptionWarning")
    def test_ends_its_workers_although_its_thread_is_ended_meanwhile(
        self, start_method: str, make_and_run: Callable[[str], Pipeline], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pipe = make_and_run(start_method)
        pids = pipe.py_worker_pids
        interruptions = [SystemExit()]
        # Private: interrupts the stop of the workers
        original = processes.ProcessGroup._stop_forkservers

        def interrupted(group: processes.ProcessGroup) -> None:
            if interruptions:
                raise interruptions.pop()
            original(group)

        monkeypatch.setattr(processes.ProcessGroup, "_stop_forkservers", interrupted)
        del pipe
        gc.collect()

        assert not interruptions
        wait_until(lambda: not any(map(is_running, pids)), "the end of the workers", GONE_S)

    def test_leaves_a_held_batch_unchanged(self, start_method: str, make_and_run: Callable[[str], Pipeline]) -> None:
        pipe = make_and_run(start_method)
        (batch,) = pipe.run()

        del pipe
        gc.collect()

        assert batch.as_array().tolist() == [4, 5, 6, 7]

    def test_is_not_kept_by_a_batch(self, start_method: str, make_and_run: Callable[[str], Pipeline]) -> None:
        pipe = make_and_run(start_method)
        gone = weakref.ref(pipe)
        batch = pipe.run()

        del pipe

        assert gone() is None
        del batch

    def test_is_not_kept_by_an_exception_of_its_callback(self, start_method: str) -> None:
        def source(info: SampleInfo) -> np.int64:
            raise ValueError("no such sample")

        pipe = make_pipeline_of(source, start_method)
        with pytest.raises(ValueError, match="no such sample"):
            pipe.run()
        pids = pipe.py_worker_pids

        del pipe
        gc.collect()

        wait_until(lambda: not any(map(is_running, pids)), "the end of the workers", GONE_S)


#: For each part of a child: forks while batches are held, lets the child run the part after the parent has continued, and
#: continues. One program for all parts: starting it takes longer than they do.
FORKING = """
    import json

    for name, part in json.loads(sys.argv[2]).items():
        pipe = make()
        held = [pipe.run()[0] for _ in range(2)]
        dropped = [pipe.run()[0] for _ in range(3)]
        del dropped
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(readable, 1)
            exec(part)
            sys.exit(0)
        held.extend(pipe.run()[0] for _ in range(6))
        os.write(writable, b".")
        assert os.waitpid(child, 0) == (child, 0), name
        os.close(readable)
        os.close(writable)
        for batch, iteration in zip(held, (0, 1, *range(5, 11))):
            check(batch, iteration)
        for epoch in range(3):
            pipe.reset()
            for iteration in range(12):
                batch, = pipe.run()
                check(batch, iteration)
        for batch, iteration in zip(held, (0, 1, *range(5, 11))):
            check(batch, iteration)
"""

CHILDREN = {
    "does nothing": "",
    "runs": """
        try:
            pipe.run()
        except ForkedError:
            pass
        else:
            tell("the child has got a batch")
    """,
    "resets and runs": """
        try:
            pipe.reset()
            pipe.run()
        except ForkedError:
            pass
        else:
            tell("the child has got a batch")
    """,
    "closes": "pipe.close()",
    "drops the pipeline": "del pipe; gc.collect()",
    "drops the batches": "del held; gc.collect()",
    "drops everything": "pipe.close(); del pipe, held; gc.collect()",
    "makes a pipeline of its own": "own = make()\nfor iteration in range(12): check(own.run()[0], iteration)",
}


class TestAForkedChild:
    """It does not own its parent's pipeline, and cannot disturb it."""

    @pytest.mark.parametrize(
        ("way", "parts"),
        [
            ("fork", [*CHILDREN]),
            ("thread", ["runs", "closes", "drops everything", "makes a pipeline of its own"]),
            ("serial", ["runs", "drops everything"]),
            ("spawn", ["runs", "drops everything"]),
        ],
        ids=["fork", "thread", "serial", "spawn"],
    )
    def test_leaves_its_parent_alone(self, way: str, parts: list[str], start: StartProgram) -> None:
        program = start(USING, "make = numbers", FORKING, arguments=(way, texts_of(parts)), flags=STRICT_BUT_FORKING)

        end = program.end()

        assert (end.stdout, end.stderr, end.status) == ("", "", 0)

    def test_leaves_its_parent_alone_also_with_operators(self, start: StartProgram) -> None:
        skip_without("cv2")
        parts = texts_of(["runs", "drops everything", "makes a pipeline of its own"])
        program = start(USING_OPERATORS, "make = images", FORKING, arguments=("fork", parts), flags=STRICT_BUT_FORKING)

        end = program.end()

        assert (end.stdout, end.stderr, end.status) == ("", "", 0)


def texts_of(parts: list[str]) -> str:
    return json.dumps({name: textwrap.dedent(CHILDREN[name]) for name in parts})


def make_pipeline_of(source: Callable[[SampleInfo], Any], start_method: str) -> Pipeline:
    """A pipeline that is not closed."""
    from dali_like import fn, pipeline_def

    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, py_start_method=start_method)
    def pipeline() -> Any:
        return fn.external_source(source=source, batch=False, parallel=True)

    return pipeline()


@pytest.fixture
def make_and_run() -> Callable[[str], Pipeline]:
    """Makes a pipeline that is not closed, takes a batch, and returns the pipeline when all workers have started."""

    def make(start_method: str) -> Pipeline:
        pipe = make_pipeline_of(lambda info: np.int64(info.idx_in_epoch), start_method)
        pipe.run()
        wait_until(lambda: len(pipe.py_worker_pids) == 2, "the start of all workers")
        return pipe

    return make
