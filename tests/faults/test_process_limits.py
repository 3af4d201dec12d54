"""No further process may be started: `ulimit -u` of the user, or `pids.max` of the control group. Root has no such limit."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from dali_like import Pipeline
from dali_like.errors import ProcessLimitError, WorkerStartError
from tests.callbacks import number

MakePipeline = Callable[..., Pipeline]


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.mark.parametrize(("way", "module", "name"), [("fork", os, "fork"), ("spawn", subprocess, "Popen")])
def test_pipeline_runs_after_its_first_process_could_not_start(
    way: str, module: Any, name: str, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = make_pipeline(number, way)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, refuse)

        with pytest.raises(ProcessLimitError, match="raise `ulimit -u`") as caught:
            pipe.run()

    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.EAGAIN
    assert pipe.run()[0].as_array().tolist() == [0, 1, 2, 3], "there are fewer processes again"


def test_workers_that_the_template_cannot_fork_are_an_error(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    main, fork = os.getpid(), os.fork
    monkeypatch.setattr(os, "fork", lambda: fork() if os.getpid() == main else refuse())
    pipe = make_pipeline(number, "fork")

    with pytest.raises(WorkerStartError, match="raise `ulimit -u`") as caught:
        pipe.run()

    assert isinstance(caught.value.__cause__, ProcessLimitError)
    assert capfd.readouterr().err == ""
