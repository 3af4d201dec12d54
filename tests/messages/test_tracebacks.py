"""Tracebacks of users' exceptions show the user's frames, in at most 15 lines, and none of the library's."""

from __future__ import annotations

import contextlib
import io
import pdb
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import WAYS

MOST_LINES = 15

PROGRAM = """
import contextlib
import numpy as np
from dali_like import Pipeline, fn, ops, pipeline_def
from dali_like.data import DataLoader, IterableDataset, RandomSampler, Subset

def read(path):
    with open(path, "rb") as file:
        return np.frombuffer(file.read(), np.uint8)

def sample(info):
    return read(f"/no_such_folder/{info.idx_in_epoch}.bin")

async def coroutine(info):
    return read("/no_such_folder/0.bin")

def batches():
    yield np.zeros((2, 3), np.uint8)
    yield read("/no_such_folder/1.bin")

def zeros(info):
    return np.zeros(3, np.uint8)

class Files:
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return read(f"/no_such_folder/{index}.bin")

class Lines(IterableDataset):
    def __iter__(self):
        yield read("/no_such_folder/0.bin")

class Outer(Files):
    def __getitem__(self, index):
        return Subset(Files(), range(5))[index]

class Indices:
    def __init__(self, count=0):
        self.count = count

    def __iter__(self):
        yield from range(self.count)
        read("/no_such_folder/indices")

def collate(samples):
    return read("/no_such_folder/labels")

def set_up(worker):
    read("/no_such_folder/settings")

def nothing(info):
    return None

def run(source, way, operator=lambda node: node, batch=False):
    @pipeline_def(batch_size=2, num_threads=1, py_num_workers=1, py_start_method="fork" if way == "serial" else way)
    def pipeline():
        return operator(fn.external_source(source, batch=batch, parallel=way != "serial"))

    with contextlib.closing(pipeline()) as pipe:
        for _ in range(2):
            pipe.run()

def load(dataset, way, **options):
    if way != "serial":
        options |= {"num_workers": 1, "multiprocessing_context": way}
    for batch in DataLoader(dataset, batch_size=2, **options):
        pass

"""

IN_RUN = """\
  File "train.py", line N, in <module>
    run(sample, 'WAY')
  File "train.py", line N, in run
    pipe.run()
"""

IN_LOAD = """\
  File "train.py", line N, in <module>
    load(Files(), 'WAY')
  File "train.py", line N, in load
    for batch in DataLoader(dataset, batch_size=2, **options):
"""

IN_READ = """\
    return read(f"/no_such_folder/{NAME}.bin")
  File "train.py", line N, in read
    with open(path, "rb") as file:
"""

#: The calls that fail, for each kind of user's code. {} is the way.
FAILURES = {
    "callable": "run(sample, {!r})",
    "coroutine": "run(coroutine, {!r})",
    "generator": "run(batches, {!r}, batch=True)",
    "python_function": "run(zeros, {!r}, lambda node: fn.python_function(node, function=collate))",
    "dataset": "load(Files(), {!r})",
    "nested dataset": "load(Outer(), {!r})",
    "iterable dataset": "load(Lines(), {!r})",
    "collate_fn": "load(range(10), {!r}, collate_fn=collate)",
    "sampler": "load(range(10), {!r}, sampler=Indices())",
    "worker_init_fn": "load(range(10), {!r}, worker_init_fn=set_up)",
}


@pytest.fixture
def fail(tmp_path: Path) -> Callable[[str], Exception]:
    """Returns the exception that a call in a program raises, as the program's user sees it."""

    def call(text: str) -> Exception:
        file = tmp_path / "train.py"
        file.write_text(PROGRAM + text)
        code = compile(file.read_text(), str(file), "exec")
        try:
            exec(code, {"__name__": "__main__"})
        except Exception as error:
            return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)  # without this frame
        raise AssertionError(f"{text} raises no error")

    return call


def shown(error: Exception) -> str:
    """Return the traceback as Python shows it, without the lines of carets, and with numbers that do not vary."""
    text = "".join(traceback.format_exception(error))
    text = re.sub(r'"/\S*/train\.py", line \d+', '"train.py", line N', text)
    text = re.sub(r"\n +[~^]+(?=\n)", "", text)
    return re.sub(r"(worker|pid|thread) \d+", r"\1 N", text)


class TestWholeText:
    def test_of_a_callable_in_the_main_process(self, fail: Callable[[str], Exception]) -> None:
        assert shown(fail("run(sample, 'serial')")) == (
            "Traceback (most recent call last):\n"
            + IN_RUN.replace("WAY", "serial")
            + '  File "train.py", line N, in sample\n'
            + IN_READ.replace("NAME", "info.idx_in_epoch")
            + "FileNotFoundError: [Errno 2] No such file or directory: '/no_such_folder/0.bin'\n"
            "raised by external_source of sample for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)\n"
        )

    @pytest.mark.parametrize("way", ["fork", "spawn", "thread"])
    def test_of_a_callable_in_a_worker(self, fail: Callable[[str], Exception], way: str) -> None:
        unit = "thread" if way == "thread" else "pid"

        assert shown(fail(f"run(sample, {way!r})")) == (
            "dali_like.common.tracebacks.TracebackText: in a worker:\n"
            '  File "train.py", line N, in sample\n'
            + IN_READ.replace("NAME", "info.idx_in_epoch")
            + "\nThe above exception was the direct cause of the following exception:\n\n"
            "Traceback (most recent call last):\n"
            + IN_RUN.replace("WAY", way)
            + "FileNotFoundError: [Errno 2] No such file or directory: '/no_such_folder/0.bin'\n"
            "raised by external_source of sample for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0), "
            f"in worker N ({unit} N)\n"
        )

    def test_of_a_dataset_in_the_main_process(self, fail: Callable[[str], Exception]) -> None:
        assert shown(fail("load(Files(), 'serial')")) == (
            "Traceback (most recent call last):\n"
            + IN_LOAD.replace("WAY", "serial")
            + '  File "train.py", line N, in __getitem__\n'
            + IN_READ.replace("NAME", "index")
            + "FileNotFoundError: [Errno 2] No such file or directory: '/no_such_folder/0.bin'\n"
            "raised by dataset Files for index 0 (sample 0 of batch 0)\n"
        )

    def test_of_a_dataset_in_a_worker(self, fail: Callable[[str], Exception]) -> None:
        assert shown(fail("load(Files(), 'fork')")) == (
            "dali_like.common.tracebacks.TracebackText: in a worker:\n"
            '  File "train.py", line N, in __getitem__\n'
            + IN_READ.replace("NAME", "index")
            + "\nThe above exception was the direct cause of the following exception:\n\n"
            "Traceback (most recent call last):\n"
            + IN_LOAD.replace("WAY", "fork")
            + "FileNotFoundError: [Errno 2] No such file or directory: '/no_such_folder/0.bin'\n"
            "raised by dataset Files for index 0 (sample 0 of batch 0), in worker N (pid N)\n"
        )

    @pytest.mark.parametrize("way", ["serial", "fork"])
    def test_of_an_error_of_the_library(self, fail: Callable[[str], Exception], way: str) -> None:
        """Its message suffices: it has no cause in the worker."""
        where = "" if way == "serial" else ", in worker N (pid N)"

        text = shown(fail(f"run(nothing, {way!r})"))

        heading, _, rest = text.partition("dali_like.errors.SampleTypeError: ")
        assert heading == "Traceback (most recent call last):\n" + IN_RUN.replace("sample", "nothing").replace("WAY", way)
        assert rest.endswith(
            f"\nraised by external_source of nothing for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0){where}\n"
        )

    @pytest.mark.parametrize("way", ["serial", "fork"])
    def test_of_an_object_that_fails_without_a_frame_of_its_own(self, fail: Callable[[str], Exception], way: str) -> None:
        """The innermost frame of the library says where it is called."""
        text = shown(fail(f"load({{5: 1}}, {way!r})"))

        assert text.count("dali_like/data/fetcher.py") == text.count("dali_like/") == 1
        assert "dataset[key]" in text
        assert "\nKeyError: 0\nraised by dataset dict for index 0" in text


@pytest.mark.parametrize(
    "call",
    [
        "Pipeline(batch_size=0)",
        "Pipeline(batch_sise=2)",
        "Pipeline(batch_size=2).serialize()",
        "DataLoader([1], shuffle=True, sampler=[0])",
        "DataLoader([1]).load_state_dict({'position': 1})",
        "RandomSampler([])",
        "fn.external_source(zeros, bach=False)",
        "fn.resize(np.zeros(3), sise=2)",
        "fn.readers.file(file_rot='.')",
        "ops.Resize(sise=2)",
        "ops.ExternalSource(zeros, bach=False)()",
        "pipeline_def(zeros, batch_size=2).run()",
    ],
)
def test_of_a_wrong_definition_ends_at_the_call(fail: Callable[[str], Exception], call: str) -> None:
    heading, frames, *message = shown(fail(call)).splitlines()

    assert heading == "Traceback (most recent call last):"
    assert frames == '  File "train.py", line N, in <module>'
    assert message[0].strip() == call
    assert message[1].startswith("dali_like.errors.")


@pytest.mark.parametrize("way", ["serial", "fork", "thread"])
@pytest.mark.parametrize("kind", FAILURES)
def test_has_few_lines_and_no_frames_of_the_library(fail: Callable[[str], Exception], kind: str, way: str) -> None:
    if kind == "worker_init_fn" and way == "serial":
        pytest.skip("there is no worker")

    error = fail(FAILURES[kind].format(way))

    text = shown(error)
    assert type(error) is FileNotFoundError
    assert error.filename.startswith("/no_such_folder/")
    assert len(text.splitlines()) <= MOST_LINES + 2 * (kind == "nested dataset")  # it has a frame more
    assert set(re.findall(r'File "(.*?)"', text)) == {"train.py"}
    assert "in read\n" in text


def test_of_a_sampler_comes_after_its_batches(fail: Callable[[str], Exception]) -> None:
    """It was raised while the workers were computing the batch before."""
    error = fail("load(range(10), 'fork', sampler=Indices(4))")

    assert "in the sampler:\n" in shown(error)
    assert error.__notes__ == ["raised by the sampler"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call", ["run(sample, {!r})", "load(Files(), {!r})"])
def test_shows_all_frames_on_request(
    fail: Callable[[str], Exception], call: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALI_LIKE_FULL_TRACEBACK", "1")

    text = shown(fail(call.format(way)))

    assert re.search("dali_like/(pipeline|data)/", text)  # in the main process
    assert "dali_like/engine/worker/" in text
    assert 'File "train.py", line N, in read' in text


CELLS = {
    "pipeline": (
        """
def sample(info):
    return np.fromfile(f"/no_such_folder/{info.idx_in_epoch}.bin", np.uint8)

@pipeline_def(batch_size=2, num_threads=1, py_num_workers=1, py_start_method="fork")
def pipeline():
    return fn.external_source(sample, batch=False, parallel=WAY != "serial")

pipe = pipeline()
close = pipe.close
""",
        "batch = pipe.run()",
    ),
    "loader": (
        """
class Files:
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return np.fromfile(f"/no_such_folder/{index}.bin", np.uint8)

loader = DataLoader(Files(), num_workers=int(WAY != "serial"), multiprocessing_context=None if WAY == "serial" else WAY)
close = int
""",
        "for batch in loader:\n    pass",
    ),
}


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("kind", CELLS)
def test_has_few_lines_in_a_notebook(tmp_path: Path, kind: str, way: str) -> None:
    ultratb = pytest.importorskip("IPython.core.ultratb")
    definitions, cell = tmp_path / "definitions.py", tmp_path / "cell.py"
    definitions.write_text(PROGRAM + CELLS[kind][0])
    cell.write_text(CELLS[kind][1])
    names: dict[str, Any] = {"__name__": "__main__", "WAY": way}
    exec(compile(definitions.read_text(), str(definitions), "exec"), names)

    with pytest.raises(FileNotFoundError) as raised, contextlib.closing(SimpleNamespace(close=names["close"])):
        exec(compile(cell.read_text(), str(cell), "exec"), names)

    error = raised.value
    assert error.__traceback__ is not None
    text = ultratb.FormattedTB(mode="Context").text(type(error), error, error.__traceback__.tb_next)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert len(lines) <= MOST_LINES
    assert "dali_like/" not in text
    assert lines[-1].startswith("raised by ")
    assert sum("np.fromfile(" in line for line in lines) == 1


class TestDebugger:
    @staticmethod
    def say(error: Exception, *commands: str) -> str:
        stdout = io.StringIO()
        debugger = pdb.Pdb(stdin=io.StringIO("\n".join([*commands, "quit", ""])), stdout=stdout, nosigint=True, readrc=False)
        debugger.reset()
        debugger.interaction(None, error.__traceback__)  # type: ignore[arg-type]
        return stdout.getvalue()

    def test_stands_in_the_callback_without_workers(self, fail: Callable[[str], Exception]) -> None:
        text = self.say(fail("run(sample, 'serial')"), "print(path)", "up", "print(info.iteration)")

        assert "(Pdb) /no_such_folder/0.bin\n" in text
        assert "(Pdb) 0\n" in text

    def test_stands_at_the_call_of_the_library_with_workers(self, fail: Callable[[str], Exception]) -> None:
        text = self.say(fail("run(sample, 'fork')"), "print(pipe.max_batch_size)")

        assert "-> pipe.run()\n" in text
        assert "(Pdb) 2\n" in text


def test_causes_are_shown_as_well(fail: Callable[[str], Exception]) -> None:
    text = shown(
        fail(
            """
def chained(info):
    try:
        return {}["no such key"]
    except KeyError as error:
        raise ValueError("no such sample") from error

run(chained, 'fork')
"""
        )
    )

    assert text.startswith(
        "dali_like.common.tracebacks.TracebackText: in a worker:\n\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line N, in chained\n'
        '    return {}["no such key"]\n'
        "KeyError: 'no such key'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line N, in chained\n'
        '    raise ValueError("no such sample") from error\n\n'
        "The above exception was the direct cause of the following exception:\n\n"
    )
    assert text.count("dali_like/") == 0
