"""``dali-like run``: the programs it starts, and the view of their processes. Programs with PyTorch are in tests/parity."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from dali_like import cli
from dali_like.cli.run import environment_of
from dali_like.cli.run_compare import OURS, PYTORCH, Figures, comparison_lines, figures_of
from dali_like.cli.run_files import merged_profile
from dali_like.engine.worker.sampling import Counts, Frame, StackCounts
from dali_like.monitor.profile.profile import Profile
from dali_like.running.run_settings import RunSettings
from dali_like.running.summary import summary_lines
from tests.conftest import wait_until


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def start(*arguments: str, folder: Path, **options: Any) -> subprocess.Popen[str]:
    package = str(Path(cli.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": package, **options}
    return subprocess.Popen(
        [sys.executable, "-m", "dali_like", "run", *arguments],
        cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run(*arguments: str, folder: Path, **options: Any) -> tuple[int, str, str]:
    process = start(*arguments, folder=folder, **options)
    out, err = process.communicate()
    return process.returncode, out, err


# The program


def test_arguments_after_the_script_belong_to_the_program(tmp_path: Path) -> None:
    written(tmp_path, "show.py", "import sys; print(sys.argv)")

    status, out, _ = run("show.py", "--fast", "-m", "x", "--steps", "no number", folder=tmp_path)

    assert (status, out) == (0, "['show.py', '--fast', '-m', 'x', '--steps', 'no number']\n")


def test_module_runs_with_its_arguments(tmp_path: Path) -> None:
    written(tmp_path, "package/show.py", "import sys; print(__name__, sys.argv[1:])")

    assert run("-m", "package.show", "--skip", "a", folder=tmp_path)[1] == "__main__ ['--skip', 'a']\n"


def test_command_starts_python_processes_that_take_part(tmp_path: Path) -> None:
    written(tmp_path, "below.py", "import sys; print('dali_like.running.hook' in sys.modules)")

    assert run("sh", "-c", f"cd / && {sys.executable} {tmp_path}/below.py", folder=tmp_path)[1] == "True\n"


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_isolated_interpreters_do_not_take_part(flag: str, tmp_path: Path) -> None:
    written(tmp_path, "below.py", "import sys; print('dali_like.running.hook' in sys.modules)")

    assert run(sys.executable, flag, "below.py", folder=tmp_path)[1] == "False\n"


def test_exit_status_is_that_of_the_program(tmp_path: Path) -> None:
    written(tmp_path, "fail.py", "raise SystemExit(7)")
    written(tmp_path, "die.py", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")

    assert run("fail.py", folder=tmp_path)[0] == 7
    assert run("die.py", folder=tmp_path)[0] == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_program_that_a_signal_ends_is_waited_for(number: int, tmp_path: Path) -> None:
    written(
        tmp_path,
        "wait.py",
        """
        import signal, time
        def end(*_):
            print("ended by", signal.Signals(_[0]).name, flush=True)
            raise SystemExit(3)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, end)
        print("ready", flush=True)
        time.sleep(60)
        """,
    )
    process = start("wait.py", folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    if number == signal.SIGINT:  # the terminal sends it to both
        [child] = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(process.pid, number)
        os.kill(child, number)
    else:
        process.send_signal(number)
    out, err = process.communicate()

    assert out == f"ended by {signal.Signals(number).name}\n"
    assert process.returncode == 3
    assert "No loader was iterated over" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "which program"),
        (["missing.py"], "there is no file missing.py"),
        (["missing-command"], "there is no file or command missing-command"),
        (["-m"], "-m needs the name of a module"),
        (["--fast", "--baseline", "x.py"], "give one of them"),
        (["--compare", "x.py"], "--compare needs --steps"),
        (["--compare", "--steps", "3", "--baseline", "x.py"], "leave --baseline out"),
    ],
)
def test_wrong_arguments_are_usage_errors(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", *arguments]) == 2
    assert reason in capsys.readouterr().err


# Its processes


def test_process_sees_no_folder_of_ours_and_its_own_sitecustomize(tmp_path: Path) -> None:
    written(tmp_path, "hidden/sitecustomize.py", "import builtins; builtins.hidden = __file__")
    script = written(tmp_path, "show.py", "import sys; print(hidden, [each for each in sys.path if 'startup' in each])")
    package = str(Path(cli.__file__).parents[2])

    status, out, err = run(str(script), folder=tmp_path, PYTHONPATH=f"{package}:{tmp_path}/hidden")

    assert (status, out) == (0, f"{tmp_path}/hidden/sitecustomize.py []\n"), err


def test_process_without_pytorch_imports_few_modules_of_ours(tmp_path: Path) -> None:
    written(tmp_path, "show.py", "import sys; print(sorted(name for name in sys.modules if name.startswith('dali_like')))")

    assert run("show.py", folder=tmp_path)[1] == "['dali_like.running.hook']\n"


def test_process_that_takes_part_imports_one_module_more_than_others(tmp_path: Path) -> None:
    """`typing`, for example, takes longer to import than the rest of the start."""
    script = written(tmp_path, "show.py", "import sys; print(*sorted(sys.modules))")

    [alone, below] = (
        set(subprocess.run([sys.executable, script], env=env, text=True, capture_output=True, check=True).stdout.split())
        for env in (dict(os.environ), environment_of(RunSettings(folder=str(tmp_path))))
    )

    # Some systems have a sitecustomize of their own.
    assert below - alone - {"sitecustomize"} == {"__future__", "dali_like.running.hook"}
    assert "sitecustomize" in below


def test_workers_of_ours_do_not_take_part(tmp_path: Path) -> None:
    written(
        tmp_path,
        "load.py",
        """
        import os, sys
        from dali_like.data import DataLoader

        class Seen:
            def __len__(self):
                return 2
            def __getitem__(self, index):
                return int("DALI_LIKE_RUN" in os.environ) + 2 * ("dali_like.running.hook" in sys.modules)

        if __name__ == "__main__":
            print([batch.tolist() for batch in DataLoader(Seen(), num_workers=1, multiprocessing_context="spawn")])
        """,
    )

    assert run("load.py", folder=tmp_path)[1] == "[[0], [0]]\n"


def test_interpreter_without_the_package_runs(tmp_path: Path) -> None:
    written(tmp_path, "show.py", "print('runs')")
    environment = environment_of(RunSettings(folder=str(tmp_path)))
    startup = environment["PYTHONPATH"].split(os.pathsep)[0]

    done = subprocess.run(
        [sys._base_executable, "-P", "show.py"],  # type: ignore[attr-defined]
        cwd=tmp_path, env={**environment, "PYTHONPATH": startup}, text=True,
        capture_output=True, check=True,
    )  # fmt: skip

    assert done.stdout == "runs\n"
    assert done.stderr == ""


# DALI

#: Where the real DALI is installed, programs get it.
without_dali = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None,
    reason="DALI is installed",
)

PIPELINE = """
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import pipeline_def, types
from nvidia.dali.pipeline import Pipeline
import nvidia.dali

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def pipe():
    return fn.cast(fn.external_source(lambda info: np.array(info.idx_in_epoch), batch=False), dtype=types.FLOAT)

import dali_like
print(pipe().run()[0].as_array().tolist(), nvidia.dali is dali_like, dali_like.__spec__.name, Pipeline.__module__)
"""


@without_dali
def test_program_for_dali_runs_where_dali_is_missing(tmp_path: Path) -> None:
    written(tmp_path, "pipe.py", PIPELINE)

    status, out, err = run("pipe.py", folder=tmp_path)

    assert (status, out) == (0, "[0.0, 1.0] True dali_like dali_like.pipeline.pipeline\n"), err
    assert err.count("nvidia.dali is dali_like") == 1


@without_dali
def test_dali_option_prefers_ours(tmp_path: Path) -> None:
    written(tmp_path, "lib/nvidia/dali/__init__.py", "raise ImportError('the real one')")
    written(tmp_path, "pipe.py", PIPELINE)
    package = str(Path(cli.__file__).parents[2])
    path = f"{package}:{tmp_path}/lib"

    assert run("--dali", "pipe.py", folder=tmp_path, PYTHONPATH=path)[0] == 0
    assert "the real one" in run("pipe.py", folder=tmp_path, PYTHONPATH=path)[2]


def test_missing_module_of_dali_is_an_import_error(tmp_path: Path) -> None:
    written(tmp_path, "pipe.py", "import nvidia.dali.no_such_module")

    status, _, err = run("pipe.py", folder=tmp_path)

    assert status == 1
    assert "No module named 'nvidia.dali.no_such_module'" in err, err


@without_dali
def test_autoload_is_an_import(tmp_path: Path) -> None:
    script = written(tmp_path, "pipe.py", f"import dali_like.autoload\n{PIPELINE}")
    package = str(Path(cli.__file__).parents[2])

    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": package}, text=True, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0.0, 1.0] True")


# Summary and comparison


def loader(**changes: Any) -> dict[str, Any]:
    return {
        "place": "train.py:8", "batches": 101, "samples": 404, "timed": 100, "wait_s": 1.0, "work_s": 3.0, "foreign": "",
        "first_batch_s": 0.5, "bottleneck": "loop", "sentence": "Busy.", "advice": "Rest.", "expected": "", "report": "all",
        **changes,
    }  # fmt: skip


def record(rank: str = "", **changes: Any) -> dict[str, Any]:
    figures = {"memory_bytes": 5, "cpu_s": 3.0, "steps": 6, "digests": ["a"]}
    return {"pid": 1, "rank": rank, "dali": False, **figures, "loaders": [loader()], **changes}


def test_summary_has_a_row_for_each_rank_and_loader() -> None:
    records = [record("1", pid=5), record("0", pid=7, loaders=[loader(), loader(place="val.py:3", batches=0, timed=0)])]

    lines = list(summary_lines(records, RunSettings()))

    rows = [line.split() for line in lines if line[0].isdigit()]
    assert [row[:2] for row in rows] == [["0", "train.py:8"], ["0", "val.py:3"], ["1", "train.py:8"]]
    assert rows[0][2:6] == ["101", "100", "25.0", "25%"]
    assert "Bottleneck: loop. Busy. Rest." in lines[3]


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        (RunSettings(), "PyTorch's random numbers"),
        (RunSettings(fast=True), "--fast"),
        (RunSettings(baseline=True), "PyTorch's own"),
    ],
)
def test_summary_names_the_mode(settings: RunSettings, mode: str) -> None:
    assert mode in next(iter(summary_lines([], settings)))


def figures(**changes: Any) -> Figures:
    return figures_of([record(**changes)])


@pytest.mark.parametrize(
    ("theirs", "ours", "fast", "verdict"),
    [
        (["a", "a"], ["a", "a"], False, "equal to the bit"),
        (["a", "a"], ["a", "b"], False, "DIFFERENT"),
        (["a", "a"], ["b", "b"], True, "as --fast draws other random numbers"),
        (["a", "b"], ["a", "a"], False, "the program is not deterministic"),
        (["", ""], ["", ""], False, "cannot be pickled"),
    ],
)
def test_comparison_tells_whether_batches_are_equal(theirs: list[str], ours: list[str], fast: bool, verdict: str) -> None:
    found = {PYTORCH: [figures(digests=[each]) for each in theirs], OURS: [figures(digests=[each]) for each in ours]}

    assert verdict in "\n".join(comparison_lines(found, 101, fast=fast))


def test_comparison_adds_ranks_and_shows_the_spread() -> None:
    runs = [figures_of([record("0"), record("1", loaders=[loader(wait_s=wait_s)])]) for wait_s in (1.0, 2.0)]

    lines = list(comparison_lines({PYTORCH: runs, OURS: runs}, 500, fast=False))

    assert lines[1].split() == ["samples/s", *2 * ["190", "(180", "to", "200)"], "1.00"]
    assert lines[6].split()[:4] == ["CPU", "per", "batch", "500"]
    assert lines[-1] == "The program ended by itself before 500 batches."


def test_nothing_is_left_of_a_run(tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    (tmp_path / "tmp").mkdir()
    written(tmp_path, "show.py", "print(1)")

    run("show.py", folder=tmp_path, TMPDIR=str(tmp_path / "tmp"))

    wait_until(lambda: not list((tmp_path / "tmp").iterdir()), "the folder of records is gone")
    assert {path.name for path in set(tmp_path.iterdir()) - before} == {"tmp", "show.py"}


def test_profiles_of_all_loaders_of_all_ranks_are_one(tmp_path: Path) -> None:
    for pid, number in ((5, 0), (5, 1), (7, 0)):
        profile = Profile()
        counts = StackCounts()
        counts.add((Frame(str(tmp_path / "train.py"), "busy", 3),), Counts(2, 20_000_000, 15_000_000, 0))
        profile.add("worker 0", counts)
        profile.write(tmp_path / f"{pid}-{number}.profile")

    found = merged_profile(str(tmp_path), [record("1", pid=5), record("0", pid=7)])

    assert set(found.workers) == {"rank 1, loader 1: worker 0", "rank 1, loader 2: worker 0", "rank 0, loader 3: worker 0"}
    assert [each.function for each in found.functions()] == ["busy"]


def test_program_without_a_loader_has_an_empty_profile(tmp_path: Path) -> None:
    written(tmp_path, "show.py", "print(1)")

    status, _, err = run("--profile", "p.json", "show.py", folder=tmp_path)

    assert status == 0, err
    assert not Profile.from_json(json.loads((tmp_path / "p.json").read_text())).workers
