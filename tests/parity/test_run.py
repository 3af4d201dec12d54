"""``dali-like run`` of programs that use PyTorch, compared with the same programs alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dali_like import cli
from dali_like.monitor.profile.profile import Profile
from tests.cli.test_run import run, start, written

pytestmark = pytest.mark.peers

#: Each program imports PyTorch at least twice, which takes seconds of CPU time.
in_full = pytest.mark.skipif(os.environ.get("PARITY") != "full", reason="runs with PARITY=full")

TRAIN = """\
import random, sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Noise(Dataset):
    def __init__(self):
        self.own = np.random.RandomState(3)

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.rand(4), np.random.randint(1 << 30), random.random(), self.own.randint(1 << 30), index

class Named(DataLoader):
    def __init__(self, name, *args, **options):
        super().__init__(*args, **options)
        self.name = name

def main():
    torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    loader = DataLoader(Noise(), batch_size=4, shuffle=True, num_workers=2)
    for epoch in range(2):
        for batch in loader:
            print(*(each.sum().item() for each in batch))
    for batch in Named("validation", Noise(), batch_size=16):
        print(batch[-1].tolist())

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written(tmp_path, "train.py", TRAIN)
    return tmp_path


def alone(*arguments: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, text=True, capture_output=True, check=True)
    return done.stdout


def rows_of(err: str) -> list[list[str]]:
    """The rows of the summary: rank, loader, batches and so on."""
    lines = err[err.index("dali-like run:") :].splitlines()
    return [line.split() for line in lines if line and line[0] in "-0123456789"]


def test_program_prints_the_same_to_the_bit(folder: Path) -> None:
    expected = alone("train.py", "5", folder=folder)

    status, out, err = run("train.py", "5", folder=folder)

    assert (status, out) == (0, expected)
    assert [row[:3] for row in rows_of(err)] == [["-", "train.py:23", "24"], ["-", "train.py:27", "3"]]
    assert "PyTorch's random numbers" in err
    assert "PyTorch's iterator" not in err


@in_full
def test_baseline_runs_pytorchs_iterators_under_the_meter(folder: Path) -> None:
    expected = alone("train.py", folder=folder)

    _, out, err = run("--baseline", "train.py", folder=folder)

    assert out == expected
    assert [row[1:3] for row in rows_of(err)] == [["train.py:23", "24"], ["train.py:27", "3"]]
    assert "--baseline asks for it" in err


@in_full
def test_fast_mode_depends_on_samples_only(folder: Path) -> None:
    two = run("--fast", "train.py", folder=folder)[1]
    text = TRAIN.replace("self.own.randint(1 << 30), ", "").replace("num_workers=2", "num_workers=1")
    written(folder, "train.py", text)
    one = run("--fast", "train.py", folder=folder)[1]

    parts = [[line.split()[:3] for line in out.splitlines()[:24]] for out in (one, two)]
    assert parts[0] == parts[1]


@in_full
@pytest.mark.parametrize(
    ("options", "pytorchs"),
    [
        (["--skip", "train.py"], {"train.py:3"}),
        (["--only", "other.py"], {"train.py:3"}),
        (["--only", "other"], {"train.py:3"}),
        (["--skip", "other", "--skip", "train.py"], {"train.py:3", "other.py:4"}),
    ],
)
def test_loaders_of_some_files_only(options: list[str], pytorchs: set[str], tmp_path: Path) -> None:
    written(
        tmp_path, "other.py", "from torch.utils.data import DataLoader\n\ndef make():\n    return DataLoader(range(3))\n"
    )
    written(
        tmp_path,
        "train.py",
        """\
        import other, json
        from torch.utils.data import DataLoader
        loaders = DataLoader(range(3)), other.make()
        print(json.dumps([[int(each) for each in loader] for loader in loaders]))
        """,
    )

    _, out, err = run(*options, "--json-file", "run.json", "train.py", folder=tmp_path)

    assert json.loads(out) == [[0, 1, 2], [0, 1, 2]], err
    [process] = json.loads((tmp_path / "run.json").read_text())["processes"]
    assert {each["place"] for each in process["loaders"] if each["foreign"]} == pytorchs


@in_full
def test_each_rank_has_its_row(tmp_path: Path) -> None:
    written(
        tmp_path,
        "train.py",
        """
        import os
        from torch.utils.data import DataLoader
        list(DataLoader(range(3 + int(os.environ["RANK"]))))
        """,
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]

    status, _, err = run(*command, folder=tmp_path, OMP_NUM_THREADS="1")

    assert status == 0, err
    assert [row[:3] for row in rows_of(err)] == [["0", "train.py:4", "3"], ["1", "train.py:4", "4"]]


@in_full
def test_tests_run_with_our_loader(tmp_path: Path) -> None:
    written(
        tmp_path,
        "test_loader.py",
        """
        from torch.utils.data import DataLoader

        def test_loader():
            assert [int(each) for each in DataLoader(range(2), num_workers=1)] == [0, 1]
            assert DataLoader.__module__ == "dali_like.running.run_loader"
        """,
    )

    status, out, err = run("pytest", "-q", "-p", "no:cacheprovider", folder=tmp_path)

    assert status == 0, out + err
    assert "test_loader.py:5" in err


def test_interrupt_prints_the_partial_report(tmp_path: Path) -> None:
    written(
        tmp_path,
        "train.py",
        """
        import time
        from torch.utils.data import DataLoader
        for number, _ in enumerate(DataLoader(range(100))):
            if number == 5:
                print("here", flush=True)
                time.sleep(60)
        """,
    )
    process = start("train.py", folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"

    [child] = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    os.kill(process.pid, signal.SIGINT)
    os.kill(child, signal.SIGINT)
    _, err = process.communicate()

    assert process.returncode == 130
    assert [row[1:3] for row in rows_of(err)] == [["train.py:4", "6"]]


def test_files_of_a_run(folder: Path) -> None:
    _, _, err = run("--trace", "t.json", "--html", "t.html", "--json-file", "s.json", "train.py", folder=folder)

    trace, page, figures = (folder / name for name in ("t.json", "t.html", "s.json"))
    events = json.loads(trace.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {name.partition(": ")[2] for name in names} >= {"main process", "workers"}, err
    assert [loader["batches"] for loader in json.loads(figures.read_text())["processes"][0]["loaders"]] == [24, 3]
    text = page.read_text()
    assert "train.py:23" in text
    assert "Loader: 24 batches of 4" in text
    assert 'src="' not in text.replace('src="view.js"', "")
    assert 'from \\"./' not in text


HOT = """\
import torch
from torch.utils.data import DataLoader, Dataset

class Hot(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.tensor(busy(index))

def busy(index):
    total = 0
    for number in range(400_000):
        total += number % 7
    return total + index

if __name__ == "__main__":
    for batch in DataLoader(Hot(), batch_size=4, num_workers=2):
        pass
    for batch in DataLoader(Hot(), batch_size=48):
        pass
"""


def test_profile_names_the_hot_function_in_the_workers_and_in_the_program(folder: Path) -> None:
    written(folder, "hot.py", HOT)

    status, _, err = run("--profile", "p.json", "hot.py", folder=folder)

    assert status == 0, err
    profile = Profile.from_json(json.loads((folder / "p.json").read_text()))
    assert {name.partition(":")[2].strip() for name in profile.workers} == {"worker 0", "worker 1", "main"}
    hottest = profile.functions()[0]
    assert (hottest.function, Path(hottest.path).name) == ("busy", "hot.py")
    assert hottest.share > 0.5
    assert re.search(r"Profile: [\d,]+ samples: .* in functions of the program", err)


def test_comparison_is_made_in_temporary_folders(folder: Path) -> None:
    written(folder, "train.py", TRAIN.replace("def main():", "def main():\n    open('left-behind', 'w').close()"))

    status, out, err = run("--compare", "--steps", "10", "--json-file", "c.json", "train.py", folder=folder)

    assert status == 0, err
    assert "First batches: equal to the bit." in out
    assert {line.split()[0] for line in out.splitlines() if "(" in line} == {
        "samples/s",
        "batches/s",
        "waiting",
        "first",
        "memory",
        "CPU",
    }
    assert [run["batches"] for run in json.loads((folder / "c.json").read_text())["PyTorch"]] == [10, 10]
    assert not (folder / "left-behind").exists()


def test_compared_program_finds_its_data_beside_its_folder_and_sees_no_state_of_pytorchs_loader(tmp_path: Path) -> None:
    """Lightning looks at classes, and calls `state_dict` of each loader whose class has it."""
    (tmp_path / "data").mkdir()
    written(tmp_path, "data/numbers", "1 2 3")
    (tmp_path / "program").mkdir()
    written(
        tmp_path / "program",
        "train.py",
        """
        import inspect, os
        from torch.utils.data import DataLoader
        numbers = [int(text) for text in open("../data/numbers").read().split()]
        loader = DataLoader(numbers)
        if inspect.getattr_static(loader, "state_dict", None) is not None:
            loader.state_dict()
        for batch in loader:
            pass
        """,
    )

    status, out, err = run("--compare", "--steps", "3", "train.py", folder=tmp_path / "program")

    assert status == 0, err
    assert "First batches: equal to the bit." in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "program"]


@in_full
def test_comparison_says_when_a_program_is_not_deterministic(tmp_path: Path) -> None:
    written(
        tmp_path,
        "train.py",
        """
        import os, torch
        from torch.utils.data import DataLoader
        list(DataLoader([os.urandom(8).hex() for _ in range(4)]))
        """,
    )

    assert "the program is not deterministic" in run("--compare", "--steps", "3", "train.py", folder=tmp_path)[1]


@in_full
def test_comparison_ends_with_the_first_failure(tmp_path: Path) -> None:
    written(tmp_path, "train.py", "raise SystemExit(4)")

    status, out, err = run("--compare", "--steps", "3", "train.py", folder=tmp_path)

    assert (status, out) == (4, "")
    assert "failed with status 4" in err


@in_full
def test_class_has_pytorchs_name_signature_and_place(tmp_path: Path) -> None:
    written(
        tmp_path,
        "show.py",
        """
        import inspect, pickle, json
        import torch.utils.data.dataloader
        from torch.utils.data import *
        from torch.utils import data
        names = list(inspect.signature(DataLoader).parameters)
        same = DataLoader is data.DataLoader is torch.utils.data.dataloader.DataLoader
        copy = pickle.loads(pickle.dumps(DataLoader(range(3), batch_size=3)))
        print(json.dumps([same, DataLoader.__name__, names[:3], [each.tolist() for each in copy], copy.worker_seeding]))
        """,
    )

    _, out, err = run("show.py", folder=tmp_path)

    assert json.loads(out) == [True, "DataLoader", ["dataset", "batch_size", "shuffle"], [[0, 1, 2]], "torch"], err


def test_program_that_makes_no_loader_imports_no_engine(tmp_path: Path) -> None:
    written(
        tmp_path,
        "show.py",
        """
        import sys
        from torch.utils.data import DataLoader

        class Own(DataLoader):
            pass

        heavy = ("data.iterator_factory", "data.loader_iterator", "engine.pool.pool", "monitor.monitoring")
        print([name for name in heavy if f"dali_like.{name}" in sys.modules])
        for batch in Own([1]):
            pass
        print("dali_like.data.iterator_factory" in sys.modules)
        """,
    )

    _, out, err = run("show.py", folder=tmp_path)

    assert out == "[]\nTrue\n", err


FIRST_ITERATIONS = """\
import sys
import torch
from torch.utils.data import DataLoader

opened = []
sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == "open" else None)

def loaded():
    return {name.removeprefix("dali_like.") for name in sys.modules if name.startswith("dali_like.")}

def iterate(**options):
    before = loaded()
    opened.clear()
    next(iter(DataLoader(range(4), **options)))
    late = {"engine.pool.pool", "monitor.show.report", "monitor.measure.statistics", "monitor.measure.diagnosis"}
    print(len(loaded() - before), len(opened), *sorted(loaded() & late), *["numpy.random"] * ("numpy.random" in sys.modules))

iterate()
iterate(num_workers=1)
"""


def test_first_iteration_imports_no_engine_without_workers_and_no_reports(tmp_path: Path) -> None:
    written(tmp_path, "count.py", FIRST_ITERATIONS)

    alone, with_worker = (line.split() for line in run("count.py", folder=tmp_path)[1].splitlines())

    assert int(alone[0]) <= 64  # modules: 59
    assert int(alone[1]) <= 130  # files, with those of bytecode that Python looks for: 60
    assert alone[2:] == []
    assert int(with_worker[0]) <= 42  # 38 more
    assert int(with_worker[1]) <= 250  # 96
    assert with_worker[2:] == ["engine.pool.pool", "numpy.random"]


def test_imports_behind_pytorch_make_python_look_for_garbage_only_a_few_times(tmp_path: Path) -> None:
    written(
        tmp_path,
        "count.py",
        """
        import gc, torch
        gc.set_threshold(700, 10, 10)
        before = [each["collections"] for each in gc.get_stats()]
        from torch.utils.data import DataLoader
        next(iter(DataLoader([1])))
        print(sum(each["collections"] for each in gc.get_stats()) - sum(before), gc.isenabled())
        """,
    )

    collections, is_enabled = run("count.py", folder=tmp_path)[1].split()

    assert is_enabled == "True"
    assert int(collections) <= 12  # 33 without pauses


def test_late_autoload_replaces_the_class_in_modules_of_the_program(tmp_path: Path) -> None:
    written(tmp_path, "early.py", "from torch.utils.data import DataLoader")
    script = written(tmp_path, "late.py", "import early, dali_like.autoload; print(early.DataLoader.__module__)")
    package = str(Path(cli.__file__).parents[2])

    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": package}, text=True, capture_output=True, check=True
    )

    assert done.stdout == "dali_like.running.run_loader\n"


def test_batches_cost_no_more_calls_than_without_the_command(tmp_path: Path) -> None:
    written(
        tmp_path,
        "count.py",
        """
        import sys
        if "own" in sys.argv:
            from dali_like.plugin.pytorch import DataLoader
        else:
            from torch.utils.data import DataLoader
        calls = 0
        def count(frame, event, argument):
            global calls
            calls += event == "call"
        iterator = iter(DataLoader(range(200), worker_seeding="torch"))
        next(iterator)
        least = 10**6  # some batches take more: the meter notes one task in many
        for _ in range(100):
            calls = 0
            sys.setprofile(count)
            next(iterator)
            sys.setprofile(None)
            least = min(least, calls)
        print(least)
        """,
    )

    assert run("count.py", folder=tmp_path)[1] == run("count.py", "own", folder=tmp_path)[1]


def test_a_module_of_pytorch_is_as_it_was_but_for_the_class(tmp_path: Path) -> None:
    written(
        tmp_path,
        "show.py",
        """
        import inspect, torch.utils.data as data, importlib.resources
        print(type(data.__loader__).__name__, type(data.__spec__.loader).__name__, len(inspect.getsource(data)) > 100)
        try:
            data.no_such_name
        except AttributeError as error:
            print(error)
        """,
    )

    expected = alone("show.py", folder=tmp_path)

    assert run("show.py", folder=tmp_path)[1] == expected
