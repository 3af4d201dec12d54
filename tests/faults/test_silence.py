"""Programs that wait for a batch while no sample is finished: the log and Ctrl-C name the sample and its worker."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.engine.pool import hangs
from dali_like.types import SampleInfo
from tests.conftest import wait_until
from tests.faults.programs import StartProgram

MakePipeline = Callable[..., Pipeline]

#: The time without a finished sample after which these programs say so.
SILENCE_S = 0.2


class Gate(logging.Handler):
    """Collects the lines of the log, and opens a gate at the first: samples may be finished from then on."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._monkeypatch = monkeypatch
        self.file = folder / "gate"
        self.lines: list[str] = []

    def begin(self) -> None:
        """Begin to watch."""
        self._monkeypatch.setattr(hangs, "SILENCE_S", SILENCE_S)
        self._monkeypatch.setattr(hangs, "_SILENCE_INTERVAL_S", SILENCE_S / 4)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.file.touch()

    def wait(self) -> None:
        wait_until(self.file.exists, "a line in the log")


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    handler = Gate(tmp_path, monkeypatch)
    log = logging.getLogger("dali_like")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


class TestAProgramThatWaits:
    def test_for_a_hanging_sample_says_so_once_with_sample_and_worker(
        self, gate: Gate, make_pipeline: MakePipeline, start_method: str
    ) -> None:
        file = str(gate.file)

        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch in (6, 9):
                if info.idx_in_epoch == 9:
                    os.remove(file)
                while not os.path.exists(file):
                    os.sched_yield()
            return np.int64(info.idx_in_epoch)

        pipe = make_pipeline(source, start_method, workers=1, source_options={"name": "numbers"})
        (first,) = pipe.run()
        gate.begin()
        (second,) = pipe.run()

        assert first.as_array().tolist() + second.as_array().tolist() == list(range(8))
        (line,) = gate.lines
        assert re.search(r"worker 0 \((pid|thread) \d+\): .*'numbers' was computing sample 2 of iteration 1", line)
        assert "py_timeout_s" in line
        gate.file.touch()

    def test_for_the_start_of_its_workers_says_so(self, gate: Gate, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(lambda info: np.int64(0), "fork", workers=1, source_options={"worker_setup": gate.wait})
        gate.begin()

        pipe.run()

        assert "has taken no task since it was started" in gate.lines[0]

    def test_for_a_sample_of_a_loader_says_so(self, gate: Gate) -> None:
        class Slow:
            def __len__(self) -> int:
                return 4

            def __getitem__(self, index: int) -> int:
                if index == 2:
                    gate.wait()
                return index

        batches = iter(DataLoader(Slow(), 2, num_workers=1, multiprocessing_context="fork"))
        next(batches)
        gate.begin()

        assert next(batches).tolist() == [2, 3]
        assert re.search(r"worker 0 \(pid \d+\): .*index 2", gate.lines[0])


class TestTheWatch:
    """Of a program, by a clock of the test's."""

    def noticed_at(
        self, monkeypatch: pytest.MonkeyPatch, progress: Callable[[float], Any], *moments_s: float
    ) -> list[float]:
        """Return at which of these moments the watch notices silence, if the program waits at each of them."""
        now_s = 0.0
        monkeypatch.setattr("dali_like.engine.pool.hangs.time", SimpleNamespace(monotonic=lambda: now_s))
        watch = hangs.SilenceWatch()
        noticed = []
        for now_s in moments_s:  # the clock reads it
            if watch.due() and watch.lasts_too_long(progress(now_s)):
                noticed.append(now_s)
        return noticed

    def test_notices_a_minute_of_silence_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.noticed_at(monkeypatch, lambda now_s: "one sample", *range(1, 200)) == [61]

    def test_does_not_notice_slow_samples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.noticed_at(monkeypatch, lambda now_s: now_s // 55, *range(1, 300)) == []

    def test_does_not_count_the_time_of_the_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.noticed_at(monkeypatch, lambda now_s: "one sample", 1, 100, 101, 200, 201) == []


#: One sample of this program never ends.
HANGS = """
    import time
    import numpy as np
    from dali_like import fn, pipeline_def

    def hanging(info):
        if info.idx_in_epoch == 5:
            tell("slow: true")
            time.sleep(1000)
        return np.int64(info.idx_in_epoch)

    @pipeline_def(batch_size=4, py_num_workers=int(sys.argv[1]), num_threads=1)
    def numbers():
        return fn.external_source(hanging, batch=False, parallel=sys.argv[1] != "0")

    pipe = numbers()
    for outputs in pipe:
        pass
"""


class TestCtrlC:
    @pytest.mark.parametrize("workers", ["0", "1"])
    def test_names_the_sample_that_the_program_waits_for(self, start: StartProgram, workers: str) -> None:
        program = start(HANGS, arguments=(workers,))
        program.wait_for("slow")

        program.press_ctrl_c()

        lines = program.end().stderr.splitlines()
        note = lines[lines.index("KeyboardInterrupt") + 1]
        assert "external_source of hanging was computing sample 1 of iteration 1 in epoch 0 (idx_in_epoch 5)" in note
        assert ("worker 0 (pid " in note) == (workers == "1")

    def test_shows_no_frames_of_the_library(self, start: StartProgram) -> None:
        program = start(HANGS, arguments=("1",))
        program.wait_for("slow")

        program.press_ctrl_c()

        files = re.findall(r'File "([^"]*)"', program.end().stderr)
        assert [os.path.basename(file) for file in files] == ["program.py"]
