"""The main module of the program in spawned workers: the time of its import, and its names there."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dali_like
from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.engine.backends import main_import
from dali_like.engine.backends.main_import import IMPORTED_MAIN, MainModule
from dali_like.engine.worker.patched_names import advice, patched_name
from dali_like.errors import ArgumentClashError, ArgumentError, PipelineStateError
from dali_like.sources.travel.main_module import find_main, text_of
from tests.callbacks import number

#: The beginning of programs: settings, and objects that cannot be pickled.
SETTINGS = """
    import contextvars, enum, functools, sys, threading, typing
    import numpy as np
    import helpers
    from dali_like import fn, pipeline_def
    from dali_like.data import DataLoader

    print("imported", flush=True)
    helpers.number = 7
    np.seterr(all="raise")

    lock = threading.Lock()
    variable = contextvars.ContextVar("variable", default=1)
    file = open(__file__)
    generator = (i for i in range(3))
    marks = []

    class Color(enum.Enum):
        RED = 1

    class Point(typing.NamedTuple):
        x: int

    class Wrong(Exception):
        pass

    @functools.lru_cache
    def total(index):
        with lock:
            return helpers.number + index + variable.get() + file.closed

    def source(info):
        assert np.geterr()["over"] == "raise"
        return np.int64(total(info.idx_in_epoch))

    class Numbers:
        color = Color.RED

        def __len__(self):
            return 2

        def __getitem__(self, index):
            assert self.color is Color.RED and generator is not None
            if "wrong" in sys.argv:
                raise Wrong(index)
            return Point(int(source(types.SimpleNamespace(idx_in_epoch=index))))

    @pipeline_def(batch_size=2, py_num_workers=2, py_start_method="spawn")
    def pipeline(source):
        return fn.external_source(source, batch=False, parallel=True)

    def load(dataset, collate_fn=list, **options):
        return DataLoader(dataset, 2, num_workers=2, multiprocessing_context="spawn", collate_fn=collate_fn, **options)

    def run(source):
        with pipeline(source) as pipe:
            return pipe.run()[0].as_array().tolist()
""".replace("import contextvars,", "import contextvars, types,")

GUARDED = """
    if __name__ == "__main__":
        print(list(load(Numbers())), run(source), flush=True)
"""


def run(
    folder: Path, *parts: str, arguments: tuple[str, ...] = (), flags: tuple[str, ...] = ("program.py",), stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    (folder / "helpers.py").write_text("")
    (folder / "program.py").write_text("".join(map(textwrap.dedent, parts)))
    package = str(Path(dali_like.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *flags, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("flags", [("program.py",), ("-m", "program")], ids=["file", "module"])
def test_a_guarded_main_module_is_imported_once_for_all_workers_and_its_objects_travel_by_name(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    result = run(tmp_path, SETTINGS, GUARDED, flags=flags)

    assert (result.returncode, result.stderr) == (0, "")
    imports = "imported\n" * 3  # the program, the loader and the pipeline
    assert sorted(result.stdout.splitlines(keepends=True)) == sorted(
        [*imports.splitlines(keepends=True), "[[Point(x=8), Point(x=9)]] [8, 9]\n"]
    )


def test_objects_below_the_guard_travel_by_value_and_use_the_variables_of_the_imported_module(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        SETTINGS,
        """
        def main():
            class Local(Numbers):
                def __getitem__(self, index):
                    marks.append(index)
                    return lock.locked(), super().__getitem__(index)

            return list(load(Local(), collate_fn=lambda batch: (batch, bool(marks), offset)))

        if __name__ == "__main__":
            offset = 5
            class Own(Numbers):
                def __getitem__(self, index):
                    return offset + index
            print(main(), list(load(Own())), flush=True)
        """,
    )

    assert result.stderr == ""
    assert "[([(False, Point(x=8)), (False, Point(x=9))], True, 5)] [[5, 6]]\n" in result.stdout


def test_exceptions_of_the_main_module_have_their_class(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        SETTINGS,
        """
        if __name__ == "__main__":
            try:
                list(load(Numbers()))
            except Wrong as error:
                print(repr(error), flush=True)
        """,
        arguments=("wrong",),
    )

    assert result.stderr == ""
    assert "Wrong(0)\n" in result.stdout


def test_a_main_module_without_a_guard_is_not_imported_and_a_warning_names_its_settings_once(tmp_path: Path) -> None:
    result = run(tmp_path, SETTINGS, "for _ in range(2): print(list(load(range(2))))\nrun(lambda info: np.int64(0))")

    assert result.returncode == 0
    assert result.stdout == "imported\n[[0, 1]]\n[[0, 1]]\n"
    assert result.stderr.count("RuntimeWarning") == 1
    assert (
        "spawned workers do not have the settings of the main module: helpers.number in line 9, np.seterr in line 10. "
        'Workers import the main module if the code that starts the program is under `if __name__ == "__main__":`.'
    ) in result.stderr


def test_error_for_unpicklable_objects_of_an_unguarded_main_module_proposes_a_guard(tmp_path: Path) -> None:
    result = run(tmp_path, SETTINGS, "list(load(Numbers()))", flags=("-W", "ignore", "program.py"))

    assert result.stdout == "imported\n"
    assert "Numbers cannot be pickled for spawned workers" in result.stderr
    assert (
        'Or put the code that starts the program under `if __name__ == "__main__":`; workers import the rest'
    ) in result.stderr


def test_names_that_only_the_program_has_are_explained(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        SETTINGS,
        """
        class Late(Numbers):
            def __getitem__(self, index):
                return late
        if __name__ == "__main__":
            late = 3
            list(load(Late()))
        """,
    )

    assert "NameError: name 'late' is not defined" in result.stderr
    assert "The program has __main__.late, and spawned workers do not." in result.stderr


def test_a_guarded_main_module_is_left_out_on_request(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        SETTINGS,
        """
        if __name__ == "__main__":
            print(list(load(range(2), import_main=False)), flush=True)
        """,
    )

    assert (result.stdout, result.stderr) == ("imported\n[[0, 1]]\n", "")


@pytest.mark.parametrize(
    ("unguarded", "message"),
    [
        ("list(load(Numbers()))", "the main module starts workers when it is imported, and workers import it. Put this"),
        ("sys.exit(3) if __name__ != '__main__' else 0", "the main module ends the program when workers import it, by"),
        (
            "import multiprocessing; multiprocessing.get_context('spawn').Process(target=print).start() "
            "if __name__ != '__main__' else 0",
            "current process has finished its bootstrapping phase",
        ),
    ],
    ids=["loader", "exit", "process"],
)
def test_a_main_module_that_cannot_be_imported_is_an_error(unguarded: str, message: str, tmp_path: Path) -> None:
    result = run(tmp_path, SETTINGS, unguarded, "\nif __name__ == '__main__':\n    list(load(Numbers()))\n")

    assert result.returncode == 1
    assert message in result.stderr


@pytest.mark.parametrize("how", ["/dev/stdin", "-c"])
def test_programs_without_a_file_send_their_objects_by_value(how: str, tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        from dali_like.data import DataLoader
        class Numbers:
            def __len__(self): return 2
            def __getitem__(self, index): return index
        if __name__ == "__main__":
            print(list(DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="spawn", collate_fn=list)))
        """
    )
    flags = {"/dev/stdin": ("/dev/stdin",), "-c": ("-c", program)}[how]
    result = run(tmp_path, flags=flags, stdin="" if how == "-c" else program)

    assert (result.stdout, result.stderr) == ("[[0, 1]]\n", "")


def test_processes_of_multiprocessing_start_workers_with_their_main_module(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        SETTINGS,
        """
        def rank():
            print(list(load(Numbers())), flush=True)

        if __name__ == "__main__":
            import multiprocessing
            process = multiprocessing.get_context("spawn").Process(target=rank)
            process.start()
            process.join()
        """,
    )

    assert result.stderr == ""
    assert "[[Point(x=8), Point(x=9)]]\n" in result.stdout


def test_workers_of_any_kind_are_refused_within_the_import(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_import, "_importing", [None])
    loader = DataLoader(range(2), num_workers=1, multiprocessing_context="thread")

    for start in (make_pipeline(number, "fork").build, loader.__iter__):
        with pytest.raises(PipelineStateError, match="the main module starts workers"):
            start()


def test_while_it_is_imported_multiprocessing_says_that_this_is_not_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.py").write_text(
        "import multiprocessing.process as process\n"
        "seen = process.current_process().name, process.parent_process().pid, __name__, __file__\n"
    )
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.delitem(sys.modules, IMPORTED_MAIN, raising=False)
    MainModule(None, str(tmp_path / "main.py")).load()

    assert sys.modules["__main__"] is sys.modules[IMPORTED_MAIN]
    seen = sys.modules["__main__"].seen
    assert seen == ("dali_like:start", os.getppid(), IMPORTED_MAIN, str(tmp_path / "main.py"))
    assert multiprocessing.process.parent_process() is None
    del sys.modules[IMPORTED_MAIN]


# The decision


def main_of(monkeypatch: pytest.MonkeyPatch, **attributes: Any) -> None:
    main = types.ModuleType("__main__")
    vars(main).update(attributes)
    monkeypatch.setitem(sys.modules, "__main__", main)


@pytest.mark.parametrize("attributes", [{}, {"__file__": "/dev/stdin"}, {"__file__": "absent.py"}])
def test_programs_without_a_main_module(attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    main_of(monkeypatch, **attributes)

    assert find_main(None) is None
    with pytest.raises(ArgumentError, match="no main module that workers could import"):
        find_main(True)


@pytest.mark.parametrize("name", ["pytest.__main__", "__main__"])
def test_main_modules_of_packages_and_archives_are_not_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main_of(monkeypatch, __spec__=types.SimpleNamespace(name=name))

    assert find_main(None) is None


@pytest.mark.parametrize(
    ("test", "is_guard"),
    [
        ("__name__ == '__main__'", True),
        ("'__main__' == __name__", True),
        ("__name__ == '__main__' and sys.argv", True),
        ("__name__ == '__main__' or sys.argv", False),
        ("__name__ in ('__main__', '__mp_main__')", False),
        ("__name__ != '__main__'", False),
        ("name == '__main__'", False),
        ("True", False),
    ],
)
def test_guards(test: str, is_guard: bool, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(f"import sys\nif {test}:\n    pass\n")

    assert text_of(None, str(tmp_path / "main.py")).has_guard is is_guard


def test_names_are_those_that_the_import_binds_for_good(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        textwrap.dedent(
            """
            import os.path, sys as system
            from json import loads
            try:
                a = b, (c, *d) = 1, (2, 3)
            except Exception:
                def e(inside): outside = 1
            with open("f") as f, g[0]:
                for h in i: j += 1
            class k:
                inside = 1
                def inside(self):
                    global l
            l = 1
            m = 1
            if __name__ == "__main__":
                m = 2
                n = 3
            else:
                o = 4
            """
        )
    )

    text = text_of(None, str(tmp_path / "main.py"))

    assert text.names == {"os", "system", "loads", *"abcdefhjko"}


def test_settings_are_attributes_of_other_modules_and_known_calls(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        textwrap.dedent(
            """
            import sys, warnings, torch, pillow_heif
            import pandas as pd
            from PIL import Image, ImageFile
            from pillow_heif import register_heif_opener
            ImageFile.LOAD_TRUNCATED_IMAGES = True
            if sys.argv:
                Image.MAX_IMAGE_PIXELS = None
            pd.options.mode.copy_on_write = True
            torch.set_default_dtype(torch.float64)
            warnings.filterwarnings("ignore")
            register_heif_opener()
            model = torch.nn.Linear(1, 1)
            model.number = 1
            model.register_decoder()
            sys.stdout = None
            torch.backends.cudnn.benchmark = True
            torch.manual_seed(1)
            def later():
                Image.other = 1
            """
        )
    )

    assert text_of(None, str(tmp_path / "main.py")).settings == (
        "ImageFile.LOAD_TRUNCATED_IMAGES in line 6",
        "Image.MAX_IMAGE_PIXELS in line 8",
        "pd.options.mode.copy_on_write in line 9",
        "torch.set_default_dtype in line 10",
        "warnings.filterwarnings in line 11",
        "register_heif_opener in line 12",
    )


@pytest.mark.parametrize("content", ["def", "\0", None], ids=["syntax", "compiled", "absent"])
def test_main_modules_without_a_text_have_no_guard(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "main.py").write_text(content)

    assert text_of(None, str(tmp_path / "main.py")) == (False, frozenset(), ())


def test_the_argument_is_checked() -> None:
    with pytest.raises(ArgumentError, match="import_main"):
        DataLoader(range(2), import_main="yes")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="py_import_main"):
        Pipeline(2, py_import_main="yes")  # type: ignore[arg-type]
    with pytest.raises(ArgumentClashError, match="py_import_main is for spawned processes"):
        Pipeline(2, py_start_method="ray", py_import_main=True)


def test_a_forkserver_is_spawned() -> None:
    assert Pipeline(2, py_start_method="forkserver").py_start_method == "spawn"


# Names that the main process has


class Patched:
    added = 1


def attribute_error(value: Any, name: str) -> AttributeError:
    with pytest.raises(AttributeError) as caught:
        getattr(value, name)
    return caught.value


def test_names_that_this_process_has() -> None:
    bare = type("Patched", (), {})
    texts = [attribute_error(bare, "added"), attribute_error(bare(), "added")]
    texts += [AttributeError("module 'os' has no attribute 'getpid'")]
    texts += [AttributeError("Can't get attribute 'getpid' on <module 'os' from 'os.py'>")]

    texts += [NameError("name '__name__' is not defined")]

    ours = f"{__name__}.Patched.added"
    assert [patched_name(error) for error in texts] == [ours, ours, "os.getpid", "os.getpid", "__main__.__name__"]
    assert "The program has os.getpid" in str(advice(texts[2]))


@pytest.mark.parametrize(
    "error",
    [
        attribute_error(os, "no_such_name"),
        attribute_error(Patched(), "no_such_name"),
        AttributeError("something else"),
        NameError("name 'no_such_name' is not defined"),
        NameError("something else"),
        KeyError("module 'os' has no attribute 'getpid'"),
    ],
    ids=["module", "class", "text", "name", "name's text", "type"],
)
def test_other_errors_get_no_advice(error: Exception) -> None:
    assert advice(error) is None
