"""Trials: how fast a pipeline is with certain settings, and how fast its callbacks alone would be.

Each trial runs in a process of its own, a fork of this one, so that none sees what another has left behind: CUDA, threads,
memory. It reports by lines of JSON through a pipe.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from dali_like.cli.bare_loop import bare_rate
from dali_like.errors import ArgumentError, TrialError
from dali_like.pipeline.pipeline import Pipeline

#: Makes a pipeline.
Make = Callable[[], Pipeline]
#: Told how far a trial is, from 0 to 1, and at which rate of samples.
OnProgress = Callable[[float, float], None]

#: This part of the time of a trial goes by before anything is measured.
_WARM_UP = 0.25
#: Progress is reported in so many parts.
_PARTS = 50


@dataclass(frozen=True)
class Outcome:
    """What a trial has measured.

    Attributes:
        samples_per_s: how many samples a loop has got that does nothing with them.
        batches_per_s: the same in batches.
        first_batch_s: how long the first has taken, with the start of the workers.
        memory_bytes: of the process, and of its workers, by PSS; 0 where the system does not tell.
    """

    samples_per_s: float
    batches_per_s: float
    first_batch_s: float
    memory_bytes: int


def try_pipeline(make: Make, seconds: float, on_progress: OnProgress) -> Outcome:
    """Run a pipeline for some time, with a loop that does nothing.

    Raises:
        TrialError: it cannot be run.
    """
    return Outcome(**_in_child(lambda tell: vars(_run(make(), seconds, tell)), on_progress))


def try_bare(make: Make, num_processes: int, seconds: float, on_progress: OnProgress) -> float:
    """How many samples a second its callbacks make in so many processes that do nothing else; see `bare_rate`.

    Raises:
        TrialError: they cannot be called.
    """
    found = _in_child(lambda tell: {"rate": bare_rate(make(), num_processes, seconds)}, on_progress)
    return float(found["rate"])


def ask(make: Make, question: Callable[[Pipeline], dict[str, Any]]) -> dict[str, Any]:
    """What a function says of a pipeline, which is made in another process.

    Raises:
        TrialError: it cannot be made.
    """
    return _in_child(lambda tell: question(make()), lambda done, rate: None)


def _run(pipe: Pipeline, seconds: float, tell: OnProgress) -> Outcome:
    begin_s = time.monotonic()
    batches = _endless(pipe)
    next(batches)
    first_batch_s = time.monotonic() - begin_s
    warm_s = time.monotonic() + _WARM_UP * seconds
    while time.monotonic() < warm_s:
        next(batches)
    begin_s, num_samples, num_batches, told = time.monotonic(), 0, 0, 0
    while (elapsed_s := time.monotonic() - begin_s) < seconds:
        num_samples += next(batches)
        num_batches += 1
        if elapsed_s * _PARTS > told * seconds:
            told += 1
            tell(elapsed_s / seconds, num_samples / (time.monotonic() - begin_s))
    elapsed_s = time.monotonic() - begin_s
    memory = pipe.statistics(memory=True).memory
    pipe.close()
    return Outcome(
        num_samples / elapsed_s, num_batches / elapsed_s, first_batch_s, 0 if memory is None else memory.total_bytes
    )


def _endless(pipe: Pipeline) -> Iterator[int]:
    """The sizes of batches, epoch after epoch.

    Raises:
        ArgumentError: an epoch has no batches.
    """
    for _ in itertools.count():
        size = None
        for outputs in pipe:
            size = len(outputs[0])
            yield size
            del outputs
        if size is None:
            raise ArgumentError("the pipeline has ended without a batch")


# Processes of their own


def _in_child(work: Callable[[OnProgress], dict[str, Any]], on_progress: OnProgress) -> dict[str, Any]:
    """What some work returns in a forked child."""
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads about, which modules may have started
        pid = os.fork()
    if pid == 0:
        os.close(read)
        _work(work, write)
    os.close(write)
    found: dict[str, Any] | None = None
    try:
        with os.fdopen(read) as lines:
            for line in lines:
                told = json.loads(line)
                if "progress" in told:
                    on_progress(*told["progress"])
                else:
                    found = told
    except BaseException:  # Ctrl-C, which the child has got, too, unless it is blocked
        os.kill(pid, signal.SIGTERM)
        raise
    finally:
        _, status = os.waitpid(pid, 0)
    if found is None:
        raise TrialError(f"its process {_end_of(status)}")
    if "error" in found:
        raise TrialError(found["error"], found["traceback"])
    return dict(found["result"])


def _end_of(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}, for want of memory perhaps"
    return f"has ended with exit status {os.waitstatus_to_exitcode(status)}"


def _work(work: Callable[[OnProgress], dict[str, Any]], write: int) -> NoReturn:
    """The life of the child."""
    try:
        with os.fdopen(write, "w", buffering=1) as lines:

            def say(**what: Any) -> None:
                lines.write(json.dumps(what) + "\n")

            try:
                say(result=work(lambda done, rate: say(progress=(done, rate))))
            except Exception as error:
                say(error=_summary(error), traceback=traceback.format_exc())
    except BaseException:  # nobody listens any more, or Ctrl-C
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
