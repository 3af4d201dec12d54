"""How sources travel to spawned workers: by value where those could not import them, or as a pickler of the user's says."""

from __future__ import annotations

import functools
import io
import pickle
import subprocess
import sys
import textwrap
import threading
import traceback
import typing
import urllib.parse
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import dill
import numpy as np
import pytest

import dali_like
from dali_like import Pipeline
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, PicklingError, WorkerStartError
from dali_like.sources.travel.callback_pickler import dumps, pickle_by_value
from dali_like.types import SampleInfo
from tests.conftest import DEADLINE_S, without_addresses

MakePipeline = Callable[..., Pipeline]
Source = Callable[[SampleInfo], Any]


def sent(value: Any) -> Any:
    """A value after pickling and unpickling. This process stands for the worker, so objects sent by name are identical."""
    pickled = dumps({"source": value}, "the source")
    return pickle.loads(pickled.data, buffers=pickled.buffers)[0]


def first_batch(pipe: Pipeline) -> list[Any]:
    values: list[Any] = pipe.run()[0].as_array().tolist()
    return values


def run_program(folder: Path, text: str) -> str:
    """The output of a program, with everything defined in ``__main__``."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(text))
    package = str(Path(dali_like.__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={"PYTHONPATH": package, "PYTHONWARNINGS": "error"},
    )
    assert done.stderr == ""
    return done.stdout


# By value


@functools.cache
def cached_in_this_module(number: int) -> int:
    return number


@functools.singledispatch
def generic_in_this_module(value: Any) -> str:
    return "anything"


def helpers() -> dict[str, Callable[[int], int]]:
    """Functions that double a number, with objects that pickle sends by name and workers cannot import."""

    @functools.cache
    def cached(number: int) -> int:
        return 2 * number

    @functools.lru_cache(maxsize=2)
    def recursive(number: int) -> int:
        return 2 + recursive(number - 1) if number else 0

    @functools.singledispatch
    def generic(value: Any) -> int:
        raise NotImplementedError

    @generic.register
    def _(value: int) -> int:
        return generic([value, value])

    @generic.register
    def _(value: list) -> int:  # type: ignore[type-arg]
        return sum(value)

    class Doubling:
        def __init__(self, number: int) -> None:
            self.number = number

        @functools.lru_cache  # noqa: B019  # of a few numbers
        def method(self) -> int:
            return 2 * self.number

        @functools.cached_property
        def doubled(self) -> int:
            return 2 * self.number

        @functools.singledispatchmethod
        def dispatched(self, other: Any) -> int:
            return 2 * self.number

    number_type = typing.NewType("number_type", int)

    def annotated(number: int) -> int:
        return 2 * number

    annotated.__annotations__["number"] = number_type

    return {
        "cache": cached,
        "recursive lru_cache": recursive,
        "singledispatch": generic,
        "cached method": lambda number: Doubling(number).method(),
        "cached_property": lambda number: Doubling(number).doubled,
        "singledispatchmethod": lambda number: Doubling(number).dispatched(0),
        "NewType": annotated,
    }


@pytest.mark.parametrize("kind", helpers())
def test_helpers_that_workers_cannot_import_travel_by_value(kind: str, make_pipeline: MakePipeline) -> None:
    helper = helpers()[kind]

    pipe = make_pipeline(lambda info: np.int64(helper(info.idx_in_epoch)), "spawn")

    assert first_batch(pipe) == [0, 2, 4, 6]


def test_helpers_of_the_main_program_travel_by_value(tmp_path: Path) -> None:
    output = run_program(
        tmp_path,
        """
        import functools, typing
        import numpy as np
        from dali_like import fn, pipeline_def

        Number = typing.NewType("Number", int)

        @functools.cache
        def fibonacci(n: Number) -> Number:
            return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

        @functools.singledispatch
        def decode(value): return decode(int(value))

        @decode.register
        def _(value: int): return value

        class Offset:
            @functools.cached_property
            def value(self): return decode("10")

        def source(info): return np.int64(fibonacci(info.idx_in_epoch) + Offset().value)

        @pipeline_def(batch_size=8, py_num_workers=1, py_start_method="spawn")
        def pipeline(): return fn.external_source(source=source, batch=False, parallel=True)

        pipe = pipeline()
        print(pipe.run()[0].as_array().tolist())
        pipe.close()
        """,
    )

    assert output == "[10, 11, 11, 12, 13, 15, 18, 23]\n"


def test_cached_function_keeps_its_parameters_and_starts_with_an_empty_cache() -> None:
    @functools.lru_cache(maxsize=3, typed=True)
    def cached(number: float) -> float:
        """Doubles."""
        return 2 * number

    cached(1)

    travelled = sent(cached)

    assert travelled.cache_parameters() == {"maxsize": 3, "typed": True}
    assert travelled.cache_info().currsize == 0
    assert travelled.__doc__ == "Doubles."


def test_recursive_cached_function_calls_itself_there() -> None:
    recursive = sent(helpers()["recursive lru_cache"])

    assert recursive(5) == 10
    assert recursive.cache_info().misses == 6


def test_generic_function_keeps_its_name_its_attributes_and_its_implementations() -> None:
    @functools.singledispatch
    def generic(value: Any) -> str:
        """Names kinds."""
        return "anything"

    generic.register(int, lambda value: "integer")
    generic.register(list | tuple, lambda value: "sequence")
    generic.mark = 7  # type: ignore[attr-defined]

    travelled = sent(generic)

    assert [travelled(value) for value in (1, [], (), "")] == ["integer", "sequence", "sequence", "anything"]
    assert (travelled.__name__, travelled.__qualname__) == (generic.__name__, generic.__qualname__)  # type: ignore[attr-defined]
    assert (travelled.__doc__, travelled.mark) == ("Names kinds.", 7)
    assert travelled.__wrapped__ is travelled.registry[object]


@pytest.mark.parametrize("helper", [cached_in_this_module, generic_in_this_module])
def test_helpers_that_workers_can_import_travel_by_name(helper: Any) -> None:
    assert sent(helper) is helper


def test_functions_of_modules_registered_by_value_with_cloudpickle_go_by_value() -> None:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        assert sent(cached_in_this_module) is not cached_in_this_module
        assert sent(generic_in_this_module) is not generic_in_this_module
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_functions_of_packages_registered_by_value_with_cloudpickle_go_by_value() -> None:
    cloudpickle.register_pickle_by_value(urllib)
    try:
        travelled = sent(urllib.parse.urlsplit)
    finally:
        cloudpickle.unregister_pickle_by_value(urllib)

    assert travelled is not urllib.parse.urlsplit
    assert travelled("http://host/path").path == "/path"


def test_objects_shared_by_the_parts_of_a_source_stay_shared_in_workers(make_pipeline: MakePipeline) -> None:
    class Opened:
        def __init__(self) -> None:
            self.offset = 0

        def open(self) -> None:
            self.offset = 100

        def __call__(self, info: SampleInfo) -> Any:
            return np.int64(self.offset + info.idx_in_epoch)

    source = Opened()

    pipe = make_pipeline(source, "spawn", source_options={"worker_setup": source.open})

    assert first_batch(pipe) == [100, 101, 102, 103]


@pytest.mark.parametrize("name", ["stdout", "stderr", "__stdout__", "__stderr__"])
def test_standard_streams_are_those_of_the_worker(name: str) -> None:
    assert sent([getattr(sys, name)])[0] is getattr(sys, name)


# Functions with the mark to travel by value


def function_of_this_module(info: SampleInfo) -> Any:
    return np.int64(info.idx_in_epoch)


class TestPickleByValue:
    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A module that this process has imported, and that workers cannot."""
        file = tmp_path / "module_that_goes_away.py"
        file.write_text(
            "import numpy\n"
            "from dali_like.pickling import pickle_by_value\n"
            "OFFSET = 10\n"
            "@pickle_by_value\n"
            "def by_value(info): return numpy.int64(OFFSET + info.idx_in_epoch)\n"
            "def by_name(info): return by_value(info)\n"
        )
        with monkeypatch.context() as context:
            context.syspath_prepend(tmp_path)
            import module_that_goes_away  # written above
        yield module_that_goes_away
        del sys.modules["module_that_goes_away"]

    def test_sends_a_function_with_its_code(self, module: Any, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(module.by_value, "spawn")

        assert first_batch(pipe) == [10, 11, 12, 13]

    def test_other_functions_of_a_module_that_workers_cannot_import_travel_so_too(
        self, module: Any, make_pipeline: MakePipeline
    ) -> None:
        pipe = make_pipeline(module.by_name, "spawn")

        assert first_batch(pipe) == [10, 11, 12, 13]

    def test_returns_the_function(self) -> None:
        def function() -> None: ...

        assert pickle_by_value(function) is function

    def test_leaves_functions_of_modules_alone_that_workers_can_import(self, module: Any) -> None:
        assert sent(module.by_value) is not module.by_value
        assert sent(module.by_value).__module__ == "module_that_goes_away"
        assert sent(function_of_this_module) is function_of_this_module

    @pytest.mark.parametrize(
        "value",
        [len, str, functools.partial(print), SimpleNamespace(), cached_in_this_module, "".join, None, 3],
        ids=without_addresses,
    )
    def test_takes_plain_functions_only(self, value: Any) -> None:
        with pytest.raises(ArgumentTypeError, match=f"not an? {type(value).__qualname__}") as info:
            pickle_by_value(value)

        assert isinstance(info.value, TypeError)


# Objects that cannot travel


class Refusing:
    """Says why it cannot be pickled."""

    def __reduce__(self) -> Any:
        raise ZeroDivisionError("this one stays here")


class WithSlots:
    __slots__ = ("__private", "inner")

    def __init__(self, inner: Any) -> None:
        self.inner = inner


refusing_global = Refusing()


def refused() -> dict[str, tuple[Any, str]]:
    """Values that hold something which refuses, each with the path to it."""

    class WithClassAttribute:
        attribute = Refusing()

    class WithState:
        def __getstate__(self) -> Any:
            return {"made": Refusing()}

    def with_nested_function(info: SampleInfo) -> Any:
        return [lambda: refusing_global for _ in range(3)]

    ring = SimpleNamespace(around=SimpleNamespace())
    ring.around.ring = ring
    ring.inner = Refusing()
    itself = Refusing()
    itself.itself = itself  # type: ignore[attr-defined]

    return {
        "itself": (Refusing(), "source"),
        "an attribute": (SimpleNamespace(inner=Refusing()), "source.inner"),
        "a slot": (WithSlots(Refusing()), "source.inner"),
        "an attribute of the class": (WithClassAttribute(), "source.__class__.attribute"),
        "a global of a nested function": (with_nested_function, "source -> refusing_global"),
        "an element of a deque": (deque([1, Refusing()]), "source[1]"),
        "a value of a dict": ({"a": [0, Refusing()]}, "source['a'][1]"),
        "made when pickled": (SimpleNamespace(inner=WithState()), "source.inner"),
        "behind a circle": (ring, "source.inner"),
        "what refers to itself": (SimpleNamespace(inner=itself), "source.inner"),
        "an argument of a cached function": (functools.cache(lambda x=Refusing(): x), "source.__wrapped__ -> x"),  # noqa: B008
    }


@pytest.mark.parametrize("kind", refused())
def test_the_path_of_an_unpicklable_object_is_named(kind: str) -> None:
    value, path = refused()[kind]

    with pytest.raises(PicklingError, match="this one stays here") as info:
        dumps({"source": value}, "the source")

    assert f"workers: {path}, a " in str(info.value)
    assert isinstance(info.value.__cause__, ZeroDivisionError)
    traceback.clear_frames(info.tb)


@pytest.mark.parametrize("part", ["on_error", "worker_setup", "worker_teardown"])
def test_part_of_the_source_that_refuses_is_named(part: str) -> None:
    with pytest.raises(PicklingError, match=f"{part}.inner, a lock, refuses"):
        dumps({"source": print, part: SimpleNamespace(inner=threading.Lock())}, "the source")


def test_error_without_a_text_is_named() -> None:
    class Silent:
        def __reduce__(self) -> Any:
            raise NotImplementedError

    with pytest.raises(PicklingError, match=r"refuses: NotImplementedError\(\)"):
        dumps({"source": Silent()}, "the source")


def test_a_structure_deeper_than_the_stack_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    with pytest.raises(PicklingError, match=r"source(\[0\])+, a list, refuses: .* recursion") as info:
        dumps({"source": value}, "the source")

    assert len(str(info.value)) < 500


@pytest.mark.parametrize("mode", ["r", "w", "r+"])
def test_open_text_file_is_not_copied(mode: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    with (tmp_path / "file").open(mode) as file, pytest.raises(PicklingError) as info:
        dumps({"source": SimpleNamespace(index=file)}, "the source")

    assert "source.index, a TextIOWrapper, refuses" in str(info.value)
    assert "open it in the worker" in str(info.value)
    traceback.clear_frames(info.tb)


def test_text_in_memory_travels() -> None:
    assert sent(io.StringIO("content")).read() == "content"


def test_name_in_the_main_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def __reduce__(self) -> str:
            return "MISSING"

    Missing.__module__ = "__main__"
    missing = Missing()
    monkeypatch.setattr(sys.modules["__main__"], "MISSING", missing, raising=False)

    with pytest.raises(PicklingError, match=r"source\.default, a .*Missing, refuses.*'MISSING' in __main__.*into a module"):
        dumps({"source": SimpleNamespace(default=missing)}, "the source")


# Picklers of the user's own


class Shifting:
    """A pickler whose results show its keyword arguments."""

    @staticmethod
    def dumps(value: Any, add: int = 0) -> bytes:
        assert callable(value)  # the source itself, as DALI gives it
        return cloudpickle.dumps((value, add))

    @staticmethod
    def loads(data: bytes, times: int = 1) -> Source:
        value, add = pickle.loads(data)
        return lambda info: (value(info) + add) * times


class Keyed:
    """A pickler that is an object with a state."""

    def __init__(self, key: int) -> None:
        self.key = key

    def dumps(self, value: Any) -> bytes:
        return bytes(byte ^ self.key for byte in cloudpickle.dumps(value))

    def loads(self, data: bytes) -> Any:
        return pickle.loads(bytes(byte ^ self.key for byte in data))


def local_pickler() -> Any:
    class Local:
        @classmethod
        def dumps(cls, value: Any) -> bytes:
            return cls.__name__.encode() + cloudpickle.dumps(value)

        @classmethod
        def loads(cls, data: bytes) -> Any:
            return pickle.loads(data.removeprefix(cls.__name__.encode()))

    return Local


PICKLERS = {
    "cloudpickle": cloudpickle,
    "dill": (dill, {"recurse": True}),
    "an object": Keyed(0x55),
    "a local class": local_pickler(),
    "a list with one": [cloudpickle],
    "no keyword arguments": (cloudpickle, None, {}),
}


class TestCallbackPickler:
    @pytest.mark.parametrize("pickler", PICKLERS.values(), ids=PICKLERS)
    def test_makes_sources_travel(self, pickler: Any, make_pipeline: MakePipeline) -> None:
        offset = 10

        pipe = make_pipeline(lambda info: np.int64(offset + info.idx_in_epoch), "spawn", py_callback_pickler=pickler)

        assert first_batch(pipe) == [10, 11, 12, 13]

    @pytest.mark.parametrize("pickler", PICKLERS.values(), ids=PICKLERS)
    def test_keeps_objects_shared_by_the_parts_of_a_source(self, pickler: Any, make_pipeline: MakePipeline) -> None:
        state = {"offset": 0}
        options = {"worker_setup": lambda: state.update(offset=100)}

        pipe = make_pipeline(
            lambda info: np.int64(state["offset"] + info.idx_in_epoch),
            "spawn",
            py_callback_pickler=pickler,
            source_options=options,
        )

        assert first_batch(pipe) == [100, 101, 102, 103]

    @pytest.mark.parametrize(
        ("pickler", "expected"),
        [
            (Shifting, [0, 1, 2, 3]),
            ((Shifting, {"add": 5}), [5, 6, 7, 8]),
            ((Shifting, {"add": 5}, {"times": 2}), [10, 12, 14, 16]),
            ((Shifting, None, {"times": 2}), [0, 2, 4, 6]),
        ],
    )
    def test_gets_its_keyword_arguments(self, pickler: Any, expected: list[int], make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(function_of_this_module, "spawn", py_callback_pickler=pickler)

        assert first_batch(pipe) == expected

    @pytest.mark.parametrize("pickler", ["Reversed", "(dill, {'recurse': True})", "sys.modules['__main__']"])
    def test_travels_for_a_program_of_one_file(self, pickler: str, tmp_path: Path) -> None:
        output = run_program(
            tmp_path,
            f"""
            import pickle, sys
            import cloudpickle, dill
            import numpy as np
            from dali_like import fn, pipeline_def

            def dumps(value): return cloudpickle.dumps(value)[::-1]

            def loads(data): return pickle.loads(data[::-1])

            class Reversed:
                @staticmethod
                def dumps(value): return dumps(value)

                @classmethod
                def loads(cls, data): return Reversed and loads(data)

            class Source:
                def __init__(self, offset): self.offset = offset
                def __call__(self, info): return np.int64(self.offset + double(info.idx_in_epoch))

            def double(number): return 2 * number

            @pipeline_def(batch_size=3, py_num_workers=1, py_start_method="spawn", py_callback_pickler={pickler})
            def pipeline(): return fn.external_source(source=Source(10), batch=False, parallel=True)

            pipe = pipeline()
            print(pipe.run()[0].as_array().tolist())
            """,
        )

        assert output == "[10, 12, 14]\n"

    def test_with_dumps_that_raises_is_an_error_of_build(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(function_of_this_module, "spawn", py_callback_pickler=Keyed(256))

        with pytest.raises(PicklingError, match="source, a function, refuses: bytes must be in range") as info:
            pipe.build()

        assert isinstance(info.value.__cause__, ValueError)
        traceback.clear_frames(info.tb)

    def test_names_the_unpicklable_object(self, make_pipeline: MakePipeline) -> None:
        options = {"on_error": functools.partial(print, SimpleNamespace(lock=threading.Lock()))}
        pipe = make_pipeline(function_of_this_module, "spawn", py_callback_pickler=cloudpickle, source_options=options)

        with pytest.raises(PicklingError, match=r"on_error\.args\[0\]\.lock, a lock, refuses") as info:
            pipe.build()

        traceback.clear_frames(info.tb)

    def test_with_loads_that_raises_is_an_error_of_the_first_run(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(function_of_this_module, "spawn", py_callback_pickler=(Shifting, None, {"wrong": 1}))

        with pytest.raises(WorkerStartError, match="unexpected keyword argument 'wrong'") as info:
            pipe.run()

        assert isinstance(info.value.__cause__, TypeError)

    def test_with_loads_that_cannot_travel_is_an_error_of_build(self, make_pipeline: MakePipeline) -> None:
        pickler = Keyed(0)
        pickler.lock = threading.Lock()  # type: ignore[attr-defined]
        pipe = make_pipeline(function_of_this_module, "spawn", py_callback_pickler=pickler)

        with pytest.raises(PicklingError, match="loads of py_callback_pickler") as info:
            pipe.build()

        traceback.clear_frames(info.tb)

    @pytest.mark.parametrize(
        "value",
        [
            "dill",
            7,
            (),
            ("dill",),
            object(),
            SimpleNamespace(dumps=pickle.dumps),
            SimpleNamespace(dumps=1, loads=2),
            (pickle, {}, {}, {}),
            (pickle, 4),
            (pickle, {4: 4}),
            (pickle, {}, "kwargs"),
        ],
        ids=without_addresses,
    )
    def test_must_be_one_with_or_without_keyword_arguments(self, value: Any) -> None:
        with pytest.raises(ArgumentError, match="Unsupported py_callback_pickler value provided") as info:
            Pipeline(4, py_start_method="spawn", py_callback_pickler=value)

        assert isinstance(info.value, ValueError)

    def test_is_refused_with_fork(self) -> None:
        with pytest.raises(ArgumentClashError, match="py_callback_pickler should not be set when the 'fork'") as info:
            Pipeline(4, py_start_method="fork", py_callback_pickler=cloudpickle)

        assert isinstance(info.value, ValueError)
