"""The stack sampler: counted frames, kinds of time, and forms of the counts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from dali_like.engine.worker import sampling
from dali_like.engine.worker.sampling import Counts, Frame, StackCounts, StackSampler, stack_of
from tests.conftest import wait_until

HERE = frozenset({__file__})


def deepest(depth: int) -> FrameType:
    return deepest(depth - 1) if depth else sys._getframe()


def test_stack_begins_inside_the_last_frame_of_the_boundary() -> None:
    code = compile("def function(call):\n    return call()\n", "/program/train.py", "exec")
    names: dict[str, object] = {}
    exec(code, names)
    function = names["function"]

    frame = function(compile_call())  # type: ignore[operator]

    assert stack_of(frame, HERE) == (Frame("/program/train.py", "function", 2), Frame("/program/other.py", "<lambda>", 1))
    assert stack_of(frame, frozenset({"/other.py"})) is None
    assert stack_of(sys._getframe(), HERE) is None
    assert stack_of(None, HERE) is None


def compile_call() -> object:
    return eval(compile("lambda: __import__('sys')._getframe()", "/program/other.py", "eval"))


def test_stack_leaves_the_outer_frames_of_the_package_out() -> None:
    inner = eval(compile("lambda: __import__('sys')._getframe()", "/program/other.py", "eval"))
    outer = eval(compile("lambda call: call()", sampling.PACKAGE + "data/fetcher.py", "eval"))

    assert stack_of(outer(inner), HERE) == (Frame("/program/other.py", "<lambda>", 1),)
    in_package = outer(eval(compile("lambda: __import__('sys')._getframe()", sampling.PACKAGE + "images/x.py", "eval")))
    assert [frame.function for frame in stack_of(in_package, HERE) or ()] == ["<lambda>", "<lambda>"]


def test_stacks_of_deep_recursion_are_cut() -> None:
    assert stack_of(deepest(300), HERE) is None  # the boundary is this file, which is the innermost frame, too


@contextmanager
def sampled_thread() -> Iterator[StackSampler]:
    """Yield a sampler of another thread. The thread waits in this file, and the test calls the sampler."""
    made: list[StackSampler] = []
    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        made.append(StackSampler(frozenset({threading.__file__}), lambda: True, lambda counts: None))
        ready.set()
        eval(compile("wait()", "/program/train.py", "eval"), {"wait": done.wait})

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    wait_until(lambda: any("train.py" in f.f_code.co_filename for f in frames_of(thread)), "the thread to wait")
    wait_until(lambda: is_asleep(thread), "the kernel to see that the thread sleeps")
    yield made[0]
    done.set()
    thread.join()
    for state in made[0].states.values():
        state.close()


def is_asleep(thread: threading.Thread) -> bool:
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text("utf-8")
    return stat.rpartition(")")[2].split()[0] == "S"


def frames_of(thread: threading.Thread) -> Iterator[FrameType]:
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back


def test_a_look_in_time_at_a_sleeping_thread_counts_as_waiting_and_a_late_one_as_cpu_time() -> None:
    with sampled_thread() as sampler:
        sampler.boundary = HERE
        sampler.look(20, is_late=False)
        sampler.look(30, is_late=True)
        ((stack, counts),) = sampler.counts.stacks.items()

    assert stack[0] == Frame("/program/train.py", "<module>", 1)
    assert counts == Counts(samples=2, wall_ns=50, cpu_ns=30, free_ns=0)


def test_a_look_outside_of_the_boundary_counts_as_idle() -> None:
    with sampled_thread() as sampler:
        sampler.boundary = frozenset({"/other.py"})
        sampler.look(20, is_late=False)

        assert sampler.counts.idle_ns == 20
        assert not sampler.counts.stacks


def test_a_sampler_puts_the_switch_interval_back_and_publishes_at_its_end() -> None:
    before, published = sys.getswitchinterval(), []
    sampler = StackSampler(HERE, lambda: True, published.append, is_alone=True)
    sampler.start()
    wait_until(lambda: sys.getswitchinterval() < before, "a short switch interval")
    sampler.stop()

    assert sys.getswitchinterval() == pytest.approx(before)
    assert published[-1] is sampler.counts


def counts_of(*lines: int) -> StackCounts:
    counts = StackCounts()
    for line in lines:
        counts.add((Frame("/a.py", "f", 1), Frame("/b.py", "g", line)), Counts(1, 10 * line, line, 0))
    counts.idle_ns = 7
    return counts


def test_counts_survive_json_and_are_added() -> None:
    found = StackCounts.from_json(counts_of(1, 2).as_json())
    found.add_all(counts_of(2, 3))

    assert found.idle_ns == 14
    assert {stack[1].line: counts for stack, counts in found.stacks.items()} == {
        1: Counts(1, 10, 1),
        2: Counts(2, 40, 4),
        3: Counts(1, 30, 3),
    }


def test_counts_that_need_more_room_lose_the_rarest_stacks() -> None:
    counts = counts_of(*range(1, 101))
    whole = len(counts.as_text(1 << 20))

    text = counts.as_text(whole // 2)

    import json

    kept = StackCounts.from_json(json.loads(text))
    assert len(text) <= whole // 2
    assert min(stack[1].line for stack in kept.stacks) > 50
    assert kept.idle_ns == 7
