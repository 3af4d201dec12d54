"""Outputs of Python objects: accepted objects arrive unchanged; others raise errors that say why."""

from __future__ import annotations

import collections
import dataclasses
import enum
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.engine.worker.out_of_band import LEAST_BUFFER_BYTES
from dali_like.errors import (
    ArgumentClashError,
    BatchSizeError,
    DefinitionError,
    DtypeMismatchError,
    LayoutMismatchError,
    NdimMismatchError,
    SampleTypeError,
)
from dali_like.plugin.numpy import DALIGenericIterator, DALIRaggedIterator
from dali_like.types import OBJECT, BatchInfo, SampleInfo
from tests.conftest import wait_until

MakePipeline = Callable[..., Pipeline]


def objects(value: Callable[[int], Any], length: int | None = None) -> Callable[[SampleInfo], Any]:
    """Return a source whose samples are a function of their index."""

    def source(info: SampleInfo) -> Any:
        if length is not None and info.idx_in_epoch >= length:
            raise StopIteration
        return value(info.idx_in_epoch)

    return source


@pytest.fixture
def make(make_pipeline: MakePipeline) -> MakePipeline:
    """`make_pipeline` for a source of objects named 'things'."""

    def make(source: Any, way: str, source_options: dict[str, Any] | None = None, **options: Any) -> Pipeline:
        given = {"dtype": OBJECT, "name": "things", **(source_options or {})}
        return make_pipeline(source, way, source_options=given, **options)

    return make


# Accepted objects


class Plain(NamedTuple):
    """A class that pickle finds by name."""

    number: int


class Recursive:
    """An object that refers to itself."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.itself = self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recursive) and other.itself is other and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


VALUES: dict[str, Callable[[int], Any]] = {
    "string": lambda i: f"text {i} \N{GREEK SMALL LETTER OMEGA} \ud800",
    "empty string": lambda i: "",
    "bytes": lambda i: bytes([i % 256, 0, 255]),
    "None": lambda i: None,
    "int": lambda i: i - (1 << 100),
    "float": lambda i: i / 3,
    "dict": lambda i: {"number": i, "nested": {(i,): [i]}},
    "list": lambda i: [i, "a", None],
    "tuple": lambda i: (i, i),
    "empty list": lambda i: [],
    "set": lambda i: {i, "b"},
    "type": lambda i: [int, Path, np.ndarray][i % 3],
    "function of a module": lambda i: [os.path.join, os.path.split][i % 2],
    "path": lambda i: Path("/tmp") / str(i),
    "deque": lambda i: collections.deque([i], maxlen=3),
    "named tuple": Plain,
    "one that holds itself": Recursive,
    "data type": lambda i: types.DALIDataType(i % 3),
    "SampleInfo": lambda i: SampleInfo(i, i, i, i),
}


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("kind", VALUES)
def test_objects_arrive_as_they_were(kind: str, way: str, make: MakePipeline) -> None:
    value = VALUES[kind]
    pipe = make(objects(value), way)

    for iteration in range(3):
        (batch,) = pipe.run()
        assert batch == [value(4 * iteration + i) for i in range(4)]
        assert [type(thing) for thing in batch] == [type(value(0))] * 4


def test_objects_arrive_from_spawned_workers(make: MakePipeline) -> None:
    pipe = make(objects(lambda i: [value(i) for value in VALUES.values()]), "spawn")

    for iteration in range(3):
        assert pipe.run()[0] == [[value(4 * iteration + i) for value in VALUES.values()] for i in range(4)]


def test_arrays_may_be_objects(way: str, make: MakePipeline) -> None:
    def value(i: int) -> NDArray[Any]:
        return np.array([[i, 1 + 2j]], complex) if i % 2 else np.array(["text", None], object)

    pipe = make(objects(value), way)
    pipe.run()

    (batch,) = pipe.run()

    assert all(type(array) is np.ndarray for array in batch)
    for i, array in enumerate(batch):
        np.testing.assert_array_equal(array, value(4 + i), strict=True)
        array[...] = array  # it is a copy, and may be kept and written to


def test_local_classes_are_those_of_the_program(way: str, make: MakePipeline) -> None:
    @dataclasses.dataclass
    class Data:
        number: int

    class Other:
        def __init__(self, number: int) -> None:
            self.number = number

    class Colour(enum.Enum):
        RED = 1

    class Source:
        kind = Other

        def __call__(self, info: SampleInfo) -> Any:
            return Data(info.idx_in_epoch), self.kind(info.idx_in_epoch), Colour.RED, Data

    pipe = make(Source(), way, num_outputs=4)
    pipe.run()
    data, others, colours, classes = pipe.run()

    assert data == [Data(number) for number in range(4, 8)]
    assert [(type(thing), thing.number) for thing in others] == [(Other, number) for number in range(4, 8)]
    assert all(colour is Colour.RED for colour in colours)
    assert all(kind is Data for kind in classes)


def test_local_functions_travel_with_their_closures(way: str, make: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        return lambda: info.idx_in_epoch

    pipe = make(source, way)

    assert [function() for function in pipe.run()[0]] == [0, 1, 2, 3]


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_each_delivery_has_objects_of_its_own(way: str, make: MakePipeline) -> None:
    shared: list[int] = []
    pipe = make(objects(lambda i: shared), way)

    pipe.run()[0][0].append(1)

    assert shared == []
    assert pipe.run() == ([[], [], [], []],)


def test_batches_that_are_held_stay_as_they_were(way: str, make: MakePipeline) -> None:
    pipe = make(objects(lambda i: {"number": i, "bytes": bytes([i])}), way)

    held = [pipe.run()[0] for _ in range(20)]
    pipe.close()

    assert [thing for batch in held for thing in batch] == [{"number": i, "bytes": bytes([i])} for i in range(80)]


# Sizes


@pytest.mark.parametrize("sizes", [(24 << 20, 1), (1, 24 << 20), (10, 1 << 20), (3 << 20, 1)])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_large_objects_among_small_ones(sizes: tuple[int, int], way: str, make: MakePipeline) -> None:
    def value(i: int) -> bytes:
        return bytes([i]) * sizes[i >= 6]

    pipe = make(objects(value), way)

    for iteration in range(4):
        assert pipe.run()[0] == [value(4 * iteration + i) for i in range(4)]


def test_a_serial_source_without_argument_loses_no_batch_when_batches_grow(make_pipeline: MakePipeline) -> None:
    numbers = iter(range(24))

    def source() -> Any:
        number = next(numbers)
        return np.full(1 if number < 9 else 3 << 20, number, np.uint8), {"number": number, "pad": " " * (number * 1000)}

    pipe = make_pipeline(source, "serial", num_outputs=2, source_options={"dtype": [None, OBJECT]})

    seen = []
    for arrays, things in pipe:
        seen += [(int(arrays.at(i)[0]), thing["number"]) for i, thing in enumerate(things)]

    assert seen == [(number, number) for number in range(24)]


def large(i: int) -> dict[str, Any]:
    """An object whose array lies beside its pickle, and whose other array is part of it."""
    return {"large": np.full(LEAST_BUFFER_BYTES, i, np.uint16), "small": np.full(3, i)}


def test_large_arrays_in_objects_may_be_held_and_written_to(way: str, make: MakePipeline) -> None:
    pipe = make(objects(large), way)

    held = [thing for _ in range(12) for thing in pipe.run()[0]]
    for i, thing in enumerate(held):
        assert thing["large"].flags.writeable
        thing["large"][-1] = thing["small"][-1] = 1000 + i
    later = [thing for _ in range(12) for thing in pipe.run()[0]]
    pipe.close()

    for i, thing in enumerate([*held, *later]):
        assert set(thing["large"][:-1].tolist()) == {i}
        assert thing["small"][:-1].tolist() == [i, i]
    assert [thing["large"][-1] for thing in held] == [1000 + i for i in range(48)]


def test_large_arrays_in_objects_are_not_copied_in_the_main_process(make: MakePipeline) -> None:
    pipe = make(objects(large), "fork")
    (batch,) = pipe.run()

    assert all(lies_in_a_space(thing["large"]) and not lies_in_a_space(thing["small"]) for thing in batch)


def lies_in_a_space(array: NDArray[Any]) -> bool:
    """Whether an array lies in memory that this process shares with workers."""
    address = array.__array_interface__["data"][0]
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, _, end = line.split()[0].partition("-")
            if int(begin, 16) <= address < int(end, 16):
                return "memfd:dali_like" in line
    return False


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("size", [4, LEAST_BUFFER_BYTES])
def test_objects_may_hold_memory_that_was_lent_for_another_output(
    size: int, is_first: bool, way: str, make_pipeline: MakePipeline
) -> None:
    def source(info: SampleInfo) -> Any:
        lent = info.empty((size,), output=int(is_first))
        lent[:] = info.idx_in_epoch
        outputs = [lent], np.full(size, 100 + info.idx_in_epoch, np.uint8)
        return outputs if is_first else outputs[::-1]

    dtypes = [OBJECT, None] if is_first else [None, OBJECT]
    pipe = make_pipeline(source, way, num_outputs=2, source_options={"dtype": dtypes})

    for iteration in range(4):
        outputs = pipe.run()
        things, arrays = outputs if is_first else outputs[::-1]
        for i in range(4):
            number = 4 * iteration + i
            assert set(things[i][0].tolist()) == {number}
            assert set(arrays.at(i).tolist()) == {100 + number}


# Objects next to other things


def test_objects_next_to_arrays(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        i = info.idx_in_epoch
        return np.int32(i), f"image {i}", np.full(i % 3, i, np.uint8), {"width": i}

    options = {"dtype": [types.INT32, OBJECT, None, OBJECT]}
    pipe = make_pipeline(source, way, num_outputs=4, source_options=options)

    for iteration in range(12):
        indices = range(4 * iteration, 4 * iteration + 4)
        numbers, names, ragged, sizes = pipe.run()
        assert numbers.as_array().tolist() == list(indices)
        assert names == [f"image {i}" for i in indices]
        assert [sample.shape() for sample in ragged] == [[i % 3] for i in indices]
        assert sizes == [{"width": i} for i in indices]


def test_objects_and_operators_side_by_side(way: str) -> None:
    @pipeline_def(batch_size=4, num_threads=2, py_num_workers=2, **({} if way == "serial" else {"py_start_method": way}))
    def pipeline() -> Any:
        source = lambda info: (np.zeros(info.idx_in_epoch), str(info.idx_in_epoch))  # noqa: E731
        options = {"batch": False, "parallel": way != "serial"}
        data, names = fn.external_source(source=source, num_outputs=2, dtype=[None, OBJECT], **options)
        return names, data.shape()

    with closing(pipeline()) as pipe:
        for iteration in range(6):
            names, shapes = pipe.run()
            assert names == [str(4 * iteration + i) for i in range(4)]
            assert [shape.tolist() for shape in map(np.asarray, shapes)] == [[4 * iteration + i] for i in range(4)]


def test_one_output_may_be_delivered_twice(make: MakePipeline) -> None:
    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline() -> Any:
        node = fn.external_source(source=objects(lambda i: [i]), batch=False, dtype=OBJECT)
        return node, node

    with closing(pipeline()) as pipe:
        assert pipe.run() == ([[0], [1]], [[0], [1]])


@pytest.mark.parametrize("container", [list, tuple, lambda batch: np.array([*batch, None], object)[:-1]])
def test_batches_of_objects(container: Callable[[Any], Any], way: str, make: MakePipeline) -> None:
    def source(info: BatchInfo) -> Any:
        return container([{"number": info.iteration}] * (info.iteration % 4 + 1))

    pipe = make(source, way, {"batch": True, "batch_info": True})

    for iteration in range(6):
        assert pipe.run() == ([{"number": iteration}] * (iteration % 4 + 1),)


@pytest.mark.parametrize("batch", ["text", {"a": 1}, None, 5, {1, 2}, np.array(5)], ids=repr)
def test_a_batch_of_objects_that_is_not_a_list_is_an_error(batch: Any, make: MakePipeline) -> None:
    pipe = make(lambda i: batch, "serial", {"batch": True})

    with pytest.raises(SampleTypeError, match=r"'things' returned (None|.* in output 0; a batch of objects is a list)"):
        pipe.run()


def test_batches_of_too_many_objects(make: MakePipeline) -> None:
    pipe = make(lambda i: ["a"] * 5, "serial", {"batch": True})

    with pytest.raises(BatchSizeError, match="batch_size <= 4, actual: 5"):
        pipe.run()


def test_iterables_of_objects(make: MakePipeline) -> None:
    pipe = make([{"number": i} for i in range(8)], "serial")

    for _ in range(2):
        assert [outputs[0] for outputs in pipe] == [[{"number": 4 * i + j} for j in range(4)] for i in range(2)]


def test_coroutines_that_return_objects(way: str, make: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        return f"text {info.idx_in_epoch}"

    pipe = make(source, way)

    for iteration in range(3):
        assert pipe.run()[0] == [f"text {4 * iteration + i}" for i in range(4)]


# Refused objects


class Unpicklable:
    """An object whose pickling fails with a message."""

    def __reduce__(self) -> Any:
        raise ValueError("a connection stays where it is")


UNPICKLABLES: dict[str, tuple[Callable[[], Any], str]] = {
    "lock": (threading.Lock, "_thread.lock"),
    "generator": (lambda: (i for i in ()), "generator"),
    "one deep inside": (lambda: {"a": [threading.Lock()]}, "_thread.lock"),
    "one that says why": (Unpicklable, "a connection stays where it is"),
}


@pytest.mark.parametrize("case", UNPICKLABLES)
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_an_unpicklable_object_is_an_error_and_later_batches_are_right(case: str, way: str, make: MakePipeline) -> None:
    value, why = UNPICKLABLES[case]

    def source(info: SampleInfo) -> Any:
        return 0, value() if info.idx_in_epoch == 6 else info.idx_in_epoch

    pipe = make(source, way, num_outputs=2)

    assert pipe.run()[1] == [0, 1, 2, 3]
    with pytest.raises(SampleTypeError, match=rf"'things' .* in output 1, which cannot be pickled: .*{why}") as info:
        pipe.run()
    assert "for sample 2 of iteration 1" in info.value.__notes__[0]
    assert pipe.run()[1] == [8, 9, 10, 11]


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_on_error_replaces_an_unpicklable_object(way: str, make: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        return threading.Lock() if info.idx_in_epoch == 2 else info.idx_in_epoch

    pipe = make(source, way, {"on_error": lambda info, error: type(error).__name__})

    assert pipe.run()[0] == [0, 1, "SampleTypeError", 3]


class Refusing:
    """An object that can be pickled, but not unpickled."""

    def __getstate__(self) -> Any:
        return {"a": 1}

    def __setstate__(self, state: Any) -> None:
        raise LookupError("the database is not here")


@pytest.mark.parametrize("with_operator", [False, True])
def test_failed_unpickling_is_an_error_and_later_batches_are_right(with_operator: bool, way: str) -> None:
    @pipeline_def(batch_size=4, num_threads=2, py_num_workers=2, **({} if way == "serial" else {"py_start_method": way}))
    def pipeline() -> Any:
        source = lambda info: (info.idx_in_epoch, Refusing() if info.idx_in_epoch == 6 else info.idx_in_epoch)  # noqa: E731
        options = {"batch": False, "parallel": way != "serial", "name": "things"}
        numbers, things = fn.external_source(source=source, num_outputs=2, dtype=[None, OBJECT], **options)
        return (things, numbers.shape()) if with_operator else (things, numbers)

    with closing(pipeline()) as pipe:
        assert pipe.run()[0] == [0, 1, 2, 3]
        with pytest.raises(
            SampleTypeError, match=r"output 1 of .*'things' cannot be unpickled here: .*database is not here"
        ):
            pipe.run()
        assert pipe.run()[0] == [8, 9, 10, 11]


class Slow:
    """An object whose unpickling waits for Ctrl-C."""

    begun = threading.Event()

    def __getstate__(self) -> Any:
        return {"a": 1}

    def __setstate__(self, state: Any) -> None:
        self.begun.set()
        wait_until(lambda: False, "Ctrl-C")


def test_ctrl_c_reaches_an_object_that_is_being_unpickled(make: MakePipeline) -> None:
    def press_ctrl_c() -> None:
        wait_until(Slow.begun.is_set, "the unpickling")
        os.kill(os.getpid(), signal.SIGINT)

    pipe = make(objects(lambda i: Slow() if i == 1 else i), "serial")
    thread = threading.Thread(target=press_ctrl_c)
    thread.start()

    with pytest.raises(KeyboardInterrupt):
        pipe.run()
    thread.join()

    assert pipe.run()[0] == [4, 5, 6, 7]


# Properties of tensors that objects lack


@pytest.mark.parametrize("options", [{"ndim": 1}, {"layout": "HWC"}])
def test_objects_have_neither_dimensions_nor_a_layout(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentClashError, match="OBJECT has no dimensions"):
        fn.external_source(source=objects(str), batch=False, dtype=OBJECT, **options)


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "fn.decoders.image": fn.decoders.image,
    "shape": lambda node: node.shape(),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_refuse_objects(operator: str) -> None:
    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline() -> Any:
        return OPERATORS[operator](fn.external_source(source=objects(str), batch=False, dtype=OBJECT, name="things"))

    with (
        closing(pipeline()) as pipe,
        pytest.raises(DefinitionError, match=r"works on tensors; .*things.* returns Python objects"),
    ):
        pipe.build()


@pytest.mark.parametrize("dtype", [None, OBJECT])
def test_objects_are_as_expected(dtype: Any, make: MakePipeline) -> None:
    pipe = make(objects(str), "serial", output_dtype=dtype)

    assert pipe.run() == (["0", "1", "2", "3"],)


@pytest.mark.parametrize(
    ("expectation", "error", "words"),
    [
        ({"output_dtype": types.UINT8}, DtypeMismatchError, "Expected: uint8. Received: Python objects"),
        ({"output_ndim": 1}, NdimMismatchError, "Expected: 1. Received: Python objects"),
        ({"output_layout": "C"}, LayoutMismatchError, "Expected: C. Received: Python objects"),
    ],
)
def test_objects_are_not_as_expected(
    expectation: dict[str, Any], error: type[Exception], words: str, make: MakePipeline
) -> None:
    pipe = make(objects(str), "serial", **expectation)

    with pytest.raises(error, match=words):
        pipe.run()


def test_tensors_are_not_objects(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(objects(np.int32), "serial", output_dtype=OBJECT)

    with pytest.raises(DtypeMismatchError, match=r"Expected: object\. Received: int32"):
        pipe.run()


@pytest.mark.parametrize("iterator", [DALIGenericIterator, DALIRaggedIterator])
def test_iterators_deliver_lists(iterator: Any, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= 6:
            raise StopIteration
        return np.int64(info.idx_in_epoch), {"number": info.idx_in_epoch}

    options = {"dtype": [None, OBJECT], "last_batch_policy": "partial"}
    pipe = make_pipeline(source, "serial", num_outputs=2, source_options=options)

    batches = [batch for [batch] in iterator(pipe, ["label", "meta"])]

    assert [batch["meta"] for batch in batches] == [[{"number": i} for i in part] for part in (range(4), range(4, 6))]
    assert [batch["label"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5]]
