"""Threads that Python does not wait for, and that go on with a pipeline while the program ends and its workers with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dali_like import Pipeline
from dali_like.errors import ClosedError
from tests.callbacks import number
from tests.faults.programs import Program
from tests.internals import backend_of, pool_of

MakePipeline = Callable[..., Pipeline]


@pytest.mark.parametrize("way", ["fork", "thread"])
def test_workers_that_have_ended_with_the_program_are_no_failure(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(number, way)
    pipe.run()
    pool = pool_of(pipe)

    # Private: runs as at the end of the program
    backend_of(pool)._finalizer()  # as the end of the program does

    with pytest.raises(ClosedError, match="the program is exiting"):
        pipe.run()


@pytest.mark.parametrize("way", ["fork", "spawn", "thread"])
def test_a_program_ends_while_a_daemon_thread_runs_a_pipeline(way: str, tmp_path: Path) -> None:
    program = Program(
        tmp_path,
        [
            """
            import threading
            from dali_like import fn, pipeline_def

            def source(info):
                return info.idx_in_epoch

            @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, py_start_method=sys.argv[1])
            def pipeline():
                return fn.external_source(source=source, batch=False, parallel=True)

            def run():
                pipe = pipeline()
                while True:
                    pipe.run()
                    is_running.set()

            if __name__ == "__main__":
                is_running = threading.Event()
                threading.Thread(target=run, daemon=True).start()
                is_running.wait()
            """
        ],
        [way],
    )
    try:
        end = program.end()
    finally:
        program.finish()

    assert end.status == 0
    told = [line for line in end.stderr.splitlines() if line.startswith("dali_like.errors.")]
    error = "dali_like.errors.ClosedError: the pipeline has been closed, because the program is exiting"
    assert told in ([], [error]), end.stderr
