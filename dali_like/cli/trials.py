"""Measure a pipeline with certain settings.

Each trial runs in a fork of this process, so that no trial sees the CUDA context, threads or memory of another one. It
reports JSON lines through a pipe.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from dali_like.cli.stage_loads import busiest_stage, enough_workers_of
from dali_like.common.tracebacks import collapse
from dali_like.errors import ArgumentError, TrialError
from dali_like.monitor.measure.disturbances import lost_to_others
from dali_like.pipeline.pipeline import Pipeline

#: Returns a new pipeline.
Make = Callable[[], Pipeline]
#: Called with the progress of a trial, from 0 to 1, and its rate in samples/s.
OnProgress = Callable[[float, float], None]

#: Share of the time before measuring starts.
_WARM_UP = 0.25
#: Number of progress reports.
_PARTS = 50


@dataclass(frozen=True)
class Outcome:
    """Result of a trial.

    Attributes:
        samples_per_s: samples per second of an empty loop.
        batches_per_s: batches per second of an empty loop.
        first_batch_s: seconds until the first batch, including the start of the workers.
        memory_bytes: proportional set size of the process and its workers; 0 where the system does not report it.
        stage: the busiest stage; see `dali_like.cli.stage_loads`.
        share_of_limit: share of its time that is work of callbacks and operators, from 0 to 1.
        enough_workers: the number of workers that keeps the CPUs busy, as chosen with "auto"; 0 without workers.
        lost_share: share of the callbacks' time in which other programs had the CPUs; 0 if it is small or unknown.
    """

    samples_per_s: float
    batches_per_s: float
    first_batch_s: float
    memory_bytes: int
    stage: str
    share_of_limit: float
    enough_workers: int = 0
    lost_share: float = 0.0

    @property
    def limit_per_s(self) -> float:
        """Samples per second if the busiest stage did nothing else; infinite if it had nothing to do."""
        return self.samples_per_s / self.share_of_limit if self.share_of_limit else math.inf


def try_pipeline(make: Make, seconds: float, on_progress: OnProgress) -> Outcome:
    """Run a pipeline for some time with an empty loop.

    Raises:
        TrialError: the pipeline cannot run.
    """
    return Outcome(**_in_child(lambda tell: vars(_run(make(), seconds, tell)), on_progress))


def ask(make: Make, question: Callable[[Pipeline], dict[str, Any]]) -> dict[str, Any]:
    """Return the answer of a function about a pipeline, made in another process.

    Raises:
        TrialError: the pipeline cannot be made.
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
    before = pipe.statistics()
    begin_s, num_samples, num_batches, told = time.monotonic(), 0, 0, 0
    while (elapsed_s := time.monotonic() - begin_s) < seconds:
        num_samples += next(batches)
        num_batches += 1
        if elapsed_s * _PARTS > told * seconds:
            told += 1
            tell(elapsed_s / seconds, num_samples / (time.monotonic() - begin_s))
    elapsed_s = time.monotonic() - begin_s
    now = pipe.statistics(memory=True)
    pipe.close()
    load = busiest_stage(now.since(before), elapsed_s)
    return Outcome(
        samples_per_s=num_samples / elapsed_s,
        batches_per_s=num_batches / elapsed_s,
        first_batch_s=first_batch_s,
        memory_bytes=0 if now.memory is None else now.memory.total_bytes,
        stage=load.stage,
        share_of_limit=load.share,
        enough_workers=enough_workers_of(now.since(before)),
        lost_share=lost_to_others(now.since(before)),
    )


def _endless(pipe: Pipeline) -> Iterator[int]:
    """Yield the sizes of batches, epoch after epoch.

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


# Child processes


def _in_child(work: Callable[[OnProgress], dict[str, Any]], on_progress: OnProgress) -> dict[str, Any]:
    """Do work in a forked child, and return its result."""
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # modules may have started threads
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
    except BaseException:  # the child receives Ctrl-C, too, unless it is blocked
        os.kill(pid, signal.SIGTERM)
        raise
    finally:
        _, status = os.waitpid(pid, 0)
    if found is None and os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        raise TrialError(f"its process was killed by {name}, perhaps for lack of memory")
    if found is None:
        raise TrialError(f"its process has ended with exit status {os.waitstatus_to_exitcode(status)}")
    if "error" in found:
        raise TrialError(found["error"], found["traceback"])
    return dict(found["result"])


def _work(work: Callable[[OnProgress], dict[str, Any]], write: int) -> NoReturn:
    """Run the child."""
    try:
        with os.fdopen(write, "w", buffering=1) as lines:

            def say(**what: Any) -> None:
                lines.write(json.dumps(what) + "\n")

            try:
                say(result=work(lambda done, rate: say(progress=(done, rate))))
            except Exception as error:
                collapse(error)
                first_line = f"{type(error).__name__}: {error}".splitlines()[0]
                say(error=first_line, traceback=traceback.format_exc())
    except BaseException:  # the pipe is closed, or Ctrl-C
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
