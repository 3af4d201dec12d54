"""Wrong input: a clear error of its own type, with the same text for every start method, and right batches after it."""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, errors, fn, pipeline_def, types
from dali_like.engine.pool.backend_traits import start_methods
from dali_like.types import SampleInfo
from tests.conftest import in_both_places

MakePipeline = Callable[..., Pipeline]


def full_text(error: BaseException) -> str:
    """The message of an error and its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def assert_words(error: BaseException, *words: str) -> None:
    for word in words:
        assert word in full_text(error)


# Results that a callable may not return


class Wrong(NamedTuple):
    """A wrong sample: a callable that returns it, the class of the error, and words of its message."""

    make: Callable[[], Any]
    error: type[Exception]
    words: tuple[str, ...]


def wrong_samples() -> dict[str, Wrong]:
    """In place of the right sample, an array of three float32."""

    async def coroutine() -> NDArray[Any]:
        return np.zeros(3, np.float32)

    def generator() -> Iterator[NDArray[Any]]:
        yield np.zeros(3, np.float32)

    class OnGpu:
        __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}  # noqa: RUF012

    class BrokenInterface:
        def __array__(self, *args: Any, **options: Any) -> Any:
            raise ZeroDivisionError("the interface is broken")

    class DLPackOnGpu:
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("not on this device")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    kind = errors.SampleTypeError
    return {
        "None": Wrong(lambda: None, kind, ("None", "return")),
        "list": Wrong(lambda: [1.0, 2.0, 3.0], kind, ("a list", "np.array()", "num_outputs")),
        "list of ragged lists": Wrong(lambda: [[1.0], [2.0, 3.0]], kind, ("a list", "np.array()")),
        "tuple": Wrong(lambda: (np.zeros(3, np.float32),), kind, ("a tuple", "num_outputs")),
        "str": Wrong(lambda: "abc", kind, ("a str", "not an array")),
        "bytes": Wrong(lambda: b"abc", kind, ("a bytes", "np.frombuffer(data, np.uint8)")),
        "bytearray": Wrong(lambda: bytearray(b"abc"), kind, ("a bytearray", "np.frombuffer")),
        "dict": Wrong(lambda: {"x": np.zeros(3)}, kind, ("a dict", "not an array")),
        "set": Wrong(lambda: {1, 2}, kind, ("a set", "not an array", "types.OBJECT")),
        "object": Wrong(object, kind, ("an object", "not an array")),
        "function": Wrong(lambda: np.zeros, kind, ("not an array",)),
        "complex": Wrong(lambda: 1j, kind, ("a complex", "not an array")),
        "int of many bits": Wrong(lambda: 1 << 70, kind, ("an int", "tensors cannot have that dtype")),
        "array of objects": Wrong(lambda: np.array([None, 1]), kind, ("dtype object", "cannot have", "types.OBJECT")),
        "array of complex": Wrong(lambda: np.zeros(3, np.complex64), kind, ("dtype complex64 and shape (3,)",)),
        "array of dates": Wrong(lambda: np.zeros(3, "M8[s]"), kind, ("dtype datetime64[s]", "cannot have", "float64")),
        "array of strings": Wrong(lambda: np.array(["a", "bc"]), kind, ("dtype <U2", "cannot have")),
        "array of records": Wrong(lambda: np.zeros(3, [("a", "f4")]), kind, ("'a'", "cannot have")),
        "array of too many dimensions": Wrong(lambda: np.zeros((1,) * 13), kind, ("13 dimensions", "at most 12")),
        "masked array": Wrong(lambda: np.ma.masked_less(np.float32([0, 1, 2]), 1), kind, ("masked array", "filled")),
        "on a GPU": Wrong(OnGpu, kind, ("OnGpu", "GPU", "CPU arrays")),
        "DLPack on a GPU": Wrong(DLPackOnGpu, kind, ("DLPackOnGpu", "not on this device")),
        "broken interface": Wrong(BrokenInterface, kind, ("BrokenInterface", "the interface is broken")),
        "coroutine": Wrong(coroutine, kind, ("a coroutine", "async def")),
        "generator": Wrong(generator, kind, ("a generator", "not an array")),
        "other dtype": Wrong(
            lambda: np.zeros(3, np.int32),
            errors.DtypeMismatchError,
            ("type int32", "was float32", "astype(np.float32)"),
        ),
        "more dimensions": Wrong(
            lambda: np.zeros((3, 1), np.float32),
            errors.NdimMismatchError,
            ("2 dimensions", "had 1", "reshape"),
        ),
        "no dimensions": Wrong(lambda: np.float32(1), errors.NdimMismatchError, ("0 dimensions", "had 1")),
    }


WRONG = wrong_samples()


@pytest.mark.parametrize("case", WRONG)
@in_both_places
def test_wrong_sample_is_an_error_and_later_batches_are_right(case: str, way: str, make_pipeline: MakePipeline) -> None:
    make, kind, words = WRONG[case]

    def source(info: SampleInfo) -> Any:
        if info.iteration in (1, 3) and info.idx_in_batch == 2:
            return make()
        return np.full(3, info.idx_in_epoch, np.float32)

    pipe = make_pipeline(source, way, source_options={"name": "numbers"})

    for iteration in range(6):
        if iteration in (1, 3):
            with pytest.raises(kind) as info:
                pipe.run()
            assert_words(info.value, *words, "external_source 'numbers' returned")
            assert_words(info.value, f"sample 2 of iteration {iteration} in epoch 0 (idx_in_epoch {4 * iteration + 2})")
            if case not in ("coroutine", "None"):
                assert_words(info.value, "in output 0")
        else:
            assert pipe.run()[0].as_array()[:, 0].tolist() == [4 * iteration + i for i in range(4)]


@pytest.mark.parametrize("case", ["None", "list", "array of objects", "other dtype", "more dimensions", "no dimensions"])
def test_wrong_sample_in_the_first_batch(case: str, way: str, make_pipeline: MakePipeline) -> None:
    make, kind, _ = WRONG[case]

    def source(info: SampleInfo) -> Any:
        return make() if info.idx_in_epoch == 1 else np.full(3, info.idx_in_epoch, np.float32)

    pipe = make_pipeline(source, way, source_options={"name": "numbers"})

    with pytest.raises(kind) as info:
        pipe.run()
    for iteration in range(1, 4):
        assert pipe.run()[0].as_array()[:, 0].tolist() == [4 * iteration + i for i in range(4)]

    assert_words(info.value, "numbers", "sample 1", "iteration 0")


@pytest.mark.parametrize("odd", [np.int32, np.float64])
@in_both_places
def test_first_sample_of_all_is_the_odd_one(odd: Any, way: str, make_pipeline: MakePipeline) -> None:
    """An undelivered batch does not fix the schema of the next ones."""

    def source(info: SampleInfo) -> NDArray[Any]:
        return np.full(3, info.idx_in_epoch, odd if info.idx_in_epoch == 0 else np.float32)

    pipe = make_pipeline(source, way, workers=1)

    with pytest.raises(errors.DtypeMismatchError):
        pipe.run()
    for iteration in range(1, 4):
        assert pipe.run()[0].as_array()[:, 0].tolist() == [4 * iteration + i for i in range(4)]


def test_first_batch_fails_after_its_first_sample(way: str, make_pipeline: MakePipeline) -> None:
    """As above: the dtype is fixed by the first batch that is delivered."""

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == 3:
            raise ZeroDivisionError
        return np.full(3, info.idx_in_epoch, np.int8 if info.iteration == 0 else np.float32)

    pipe = make_pipeline(source, way, workers=1)

    with pytest.raises(ZeroDivisionError):
        pipe.run()
    for iteration in range(1, 4):
        assert pipe.run()[0].as_array()[:, 0].tolist() == [4 * iteration + i for i in range(4)]


def wrong_tuples() -> dict[str, Wrong]:
    """In place of the right sample of two outputs."""
    kind = errors.OutputCountError
    right = np.zeros(2)

    async def coroutine() -> tuple[NDArray[Any], ...]:
        return right, right

    return {
        "too few": Wrong(lambda: (right,), kind, ("returned 1 outputs instead of 2", "pass num_outputs=1")),
        "too many": Wrong(lambda: (right, right, right), kind, ("returned 3 outputs instead of 2", "pass num_outputs=3")),
        "none at all": Wrong(tuple, kind, ("returned 0 outputs instead of 2",)),
        "too few in a list": Wrong(lambda: [right], kind, ("returned 1 outputs",)),
        "an array": Wrong(lambda: right, kind, ("array of dtype float64 and shape (2,)", "tuple or list of 2 arrays")),
        "None": Wrong(lambda: None, errors.SampleTypeError, ("returned None", "ends without a return")),
        "dict": Wrong(lambda: {0: right, 1: right}, errors.SampleTypeError, ("a dict", "tuple or list of 2 arrays")),
        "coroutine": Wrong(coroutine, errors.SampleTypeError, ("a coroutine", "async def")),
        "wrong first output": Wrong(lambda: ("a", right), errors.SampleTypeError, ("a str in output 0",)),
        "a list as an output": Wrong(
            lambda: ([1], right), errors.SampleTypeError, ("a list in output 0: wrap it in np.array()\nraised",)
        ),
        "wrong last output": Wrong(lambda: (right, b"b"), errors.SampleTypeError, ("a bytes in output 1",)),
        "other dtype": Wrong(
            lambda: (right, np.zeros(2, np.uint8)),
            errors.DtypeMismatchError,
            ("type uint8 in output 1", "was float64"),
        ),
        "other ndim": Wrong(
            lambda: (right, np.zeros((2, 2))), errors.NdimMismatchError, ("2 dimensions in output 1", "had 1")
        ),
    }


WRONG_TUPLES = wrong_tuples()


@pytest.mark.parametrize("case", WRONG_TUPLES)
@in_both_places
def test_wrong_outputs_are_an_error_and_later_batches_are_right(case: str, way: str, make_pipeline: MakePipeline) -> None:
    make, kind, words = WRONG_TUPLES[case]

    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 4 + 3:
            return make()
        return np.full(2, info.idx_in_epoch, np.float64), np.full(info.idx_in_epoch % 3, info.idx_in_epoch, np.float64)

    pipe = make_pipeline(source, way, num_outputs=2, source_options={"name": "pairs"})

    pipe.run()
    with pytest.raises(kind) as info:
        pipe.run()
    for iteration in range(2, 5):
        dense, ragged = pipe.run()
        assert dense.as_array()[:, 1].tolist() == [4 * iteration + i for i in range(4)]
        assert ragged.shape() == [((4 * iteration + i) % 3,) for i in range(4)]

    assert_words(info.value, *words, "external_source 'pairs'", "sample 3 of iteration 1")


# Declarations


@pytest.mark.parametrize("dtype", [types.FLOAT, np.float32, "float32", np.dtype("f4"), [types.FLOAT]])
@in_both_places
def test_dtype_other_than_declared(dtype: Any, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        return np.full(3, info.idx_in_epoch, np.float64 if info.idx_in_epoch == 2 else np.float32)

    pipe = make_pipeline(source, way, source_options={"dtype": dtype})

    with pytest.raises(errors.DtypeMismatchError) as info:
        pipe.run()

    assert_words(info.value, "type float64 in output 0", "declared as float32 by dtype=", "sample 2 of iteration 0")
    assert pipe.run()[0].as_array()[:, 0].tolist() == [4, 5, 6, 7]


def test_ndim_other_than_declared(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        return np.full((1,) * (3 if info.idx_in_epoch == 2 else 2), info.idx_in_epoch)

    pipe = make_pipeline(source, way, source_options={"ndim": 2})

    with pytest.raises(errors.NdimMismatchError) as info:
        pipe.run()

    assert_words(info.value, "3 dimensions in output 0", "declared with 2 by ndim=", "sample 2 of iteration 0")
    assert pipe.run()[0].as_array()[:, 0, 0].tolist() == [4, 5, 6, 7]


def test_each_output_has_its_own_declaration(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> tuple[NDArray[Any], ...]:
        return np.zeros(1, np.uint8), np.zeros((1, 1), np.int16), np.zeros(1 if info.iteration == 1 else ())

    pipe = make_pipeline(source, way, num_outputs=3, source_options={"dtype": [types.UINT8, types.INT16], "ndim": [1, 2, 0]})

    assert [batch.dtype for batch in pipe.run()] == [types.UINT8, types.INT16, types.FLOAT64]
    with pytest.raises(errors.NdimMismatchError, match="1 dimensions in output 2, declared with 0 by ndim="):
        pipe.run()
    pipe.run()


def test_layout_of_the_wrong_length(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(
        lambda info: np.zeros((4, 4) if info.iteration == 0 else (4, 4, 3)), way, source_options={"layout": "HWC"}
    )

    with pytest.raises(errors.NdimMismatchError) as info:
        pipe.run()

    assert_words(info.value, "2 dimensions in output 0", "3", "iteration 0")
    assert pipe.run()[0].shape() == [(4, 4, 3)] * 4


# Unsuitable sources


def unsuitable_sources() -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Each with the words of the error."""

    def two_arguments(info: SampleInfo, other: Any) -> NDArray[Any]:
        return np.zeros(1)

    def three_arguments(one: Any, two: Any, three: Any) -> NDArray[Any]:
        return np.zeros(1)

    def keyword_only(*, info: SampleInfo) -> NDArray[Any]:
        return np.zeros(1)

    async def async_generator(info: SampleInfo) -> AsyncIterator[NDArray[Any]]:
        yield np.zeros(1)

    def generator(info: SampleInfo) -> Iterator[NDArray[Any]]:
        yield np.zeros(1)

    class TwoArguments:
        def __call__(self, info: SampleInfo, other: Any) -> NDArray[Any]:
            return np.zeros(1)

    class Generator:
        def __call__(self, info: SampleInfo) -> Iterator[NDArray[Any]]:
            yield np.zeros(1)

    return {
        "two arguments": (two_arguments, ("two_arguments", "(info: 'SampleInfo', other: 'Any')", "one positional")),
        "two arguments of an object": (TwoArguments(), ("TwoArguments", "one positional argument, the SampleInfo")),
        "partial that leaves two": (functools.partial(three_arguments, 1), ("three_arguments", "one positional")),
        "keyword only": (keyword_only, ("keyword_only", "one positional")),
        "generator function": (generator, ("generator", "with arguments")),
        "object with a generator": (Generator(), ("Generator", "with arguments")),
        "partial of a generator": (functools.partial(generator), ("with arguments",)),
        "async generator function": (async_generator, ("async_generator", "one sample a call")),
        "number": (1, ("callable, iterable", "int")),
    }


UNSUITABLE = unsuitable_sources()


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("case", UNSUITABLE)
def test_unsuitable_source_is_refused_when_it_is_given(case: str, parallel: bool) -> None:
    source, words = UNSUITABLE[case]

    with pytest.raises(errors.DefinitionError) as info:
        fn.external_source(source=source, batch=False, parallel=parallel)

    assert_words(info.value, "external_source", *words)


def iterables_of_samples() -> dict[str, Any]:
    def generator() -> Iterator[NDArray[Any]]:
        yield np.zeros(1)

    return {
        "generator function": generator,
        "generator object": generator(),
        "array": np.zeros(3),
        "list": [np.zeros(3)],
    }


@pytest.mark.parametrize("case", iterables_of_samples())
def test_samples_of_an_iterable_cannot_be_divided_among_workers(case: str) -> None:
    with pytest.raises(errors.DefinitionError, match="must be run in a batch mode"):
        fn.external_source(source=iterables_of_samples()[case], batch=False, parallel=True)


def test_nothing_is_no_source_for_workers() -> None:
    with pytest.raises(errors.DefinitionError, match="parallel is only valid when using ``source``"):
        fn.external_source(source=None, batch=False, parallel=True)


class Called:
    """A source with __call__; users sometimes pass the class."""

    def __call__(self, info: SampleInfo) -> NDArray[Any]:
        return np.zeros(1)


class CalledAndIndexed(Called):
    """A dataset that can be called, too."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> NDArray[Any]:
        return np.zeros(1)


def test_class_of_callable_instances_is_refused_as_source() -> None:
    with pytest.raises(errors.DefinitionError, match=r"is a class whose instances can be called; .* Called\(\.\.\.\)"):
        fn.external_source(source=Called, batch=False)


def test_iterated_object_with_a_call_method_is_refused_with_advice(way: str, make_pipeline: MakePipeline) -> None:
    source = CalledAndIndexed()

    with pytest.raises(errors.DefinitionError, match=r"has __iter__ or __getitem__; .* source=yours\.__call__"):
        fn.external_source(source=source, batch=False, parallel=True)

    assert make_pipeline(source.__call__, way).run()[0].as_array().shape == (4, 1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("paralel", "paralel (did you mean parallel?)"), ("num_output", "(did you mean num_outputs?)"), ("xyz", "xyz")],
)
def test_unknown_arguments_of_sources_are_refused(wrong: str, words: str) -> None:
    with pytest.raises(errors.ArgumentTypeError) as info:
        fn.external_source(source=np.zeros, **{wrong: True})  # type: ignore[call-overload]

    assert str(info.value).endswith(words)


@pytest.mark.parametrize("argument", ["py_num_workers", "prefetch_queue_depth"])
def test_a_misspelled_choice_is_an_error_with_the_choices(argument: str) -> None:
    options: dict[str, Any] = {argument: "atuo"}

    with pytest.raises(errors.ArgumentError, match=r'positive integer or "auto".*\'atuo\''):
        Pipeline(**options)


def test_parallel_source_without_argument_is_refused() -> None:
    with pytest.raises(errors.DefinitionError, match=r"takes no argument; with parallel=True .*exactly one, the SampleInfo"):
        fn.external_source(source=lambda: np.zeros(1), batch=False, parallel=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_outputs": 0}, ("num_outputs", "positive integer", "0")),
        ({"num_outputs": -1}, ("num_outputs", "-1")),
        ({"num_outputs": 1.0}, ("num_outputs", "1.0")),
        ({"num_outputs": True}, ("num_outputs", "True")),
        ({"num_outputs": "2"}, ("num_outputs", "'2'")),
        ({"prefetch_queue_depth": 2}, ("prefetch_queue_depth", "parallel=True")),
        ({"parallel": True, "prefetch_queue_depth": 0}, ("prefetch_queue_depth", "positive integer", "0")),
        ({"parallel": True, "prefetch_queue_depth": 1.5}, ("prefetch_queue_depth", "1.5")),
        ({"parallel": True, "prefetch_queue_depth": 10**9}, ("prefetch_queue_depth", "at most 65536", "1000000000")),
        ({"dtype": np.complex64}, ("complex64", "not a data type", "UINT8")),
        ({"dtype": "text"}, ("'text'", "not a data type")),
        ({"dtype": 3.5}, ("3.5", "not a data type")),
        ({"num_outputs": 2, "dtype": [np.uint8] * 3}, ("dtype", "3 entries for 2 outputs")),
        ({"layout": 5}, ("layout", "str", "5")),
        ({"layout": ["HW", "HW"]}, ("layout", "2 entries for 1 outputs")),
        ({"num_outputs": 2, "layout": ["HW", 7]}, ("layout", "7")),
        ({"ndim": 13}, ("ndim", "between 0", "12", "13")),
        ({"ndim": -2}, ("ndim", "-2")),
        ({"ndim": "2"}, ("ndim", "int", "'2'")),
        ({"ndim": 2, "layout": "HWC"}, ("ndim = 2", "layout: 'HWC'")),
        ({"on_error": "ignore"}, ("on_error", "'ignore'", "skip")),
        ({"name": 3}, ("name must be a string", "3")),
        ({"worker_setup": 3}, ("worker_setup must be callable", "3")),
        ({"worker_teardown": "stop"}, ("worker_teardown must be callable", "'stop'")),
    ],
    ids=str,
)
def test_wrong_argument_of_external_source(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(errors.ArgumentError) as info:
        fn.external_source(source=lambda info: np.zeros(1), batch=False, **options)

    assert_words(info.value, *words)


@pytest.mark.parametrize("name", ["parallel", "repeat_last", "sharded", "preserve", "batch_info", "blocking", "no_copy"])
def test_flag_of_external_source_is_true_or_false(name: str) -> None:
    with pytest.raises(errors.ArgumentTypeError, match=f"{name} must be True or False, not 'no'"):
        fn.external_source(source=lambda info: np.zeros(1), batch=False, **{name: "no"})


# Sources that cannot travel to spawned workers


class WithLock:
    """A source that holds something which cannot be pickled."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __call__(self, info: SampleInfo) -> NDArray[Any]:
        return np.zeros(1)

    def method(self, info: SampleInfo) -> NDArray[Any]:
        return np.zeros(1)


def unpicklable_sources() -> dict[str, tuple[Any, str]]:
    """Sources, each with the path to the part that refuses to be pickled."""
    lock = threading.Lock()
    holder = WithLock(lock=threading.Lock())

    def with_variable(info: SampleInfo) -> NDArray[Any]:
        with lock:
            return np.zeros(1)

    def with_object(info: SampleInfo) -> NDArray[Any]:
        return holder(info)

    def with_argument(held: Any, info: SampleInfo) -> NDArray[Any]:
        return np.zeros(1)

    def with_keyword(info: SampleInfo, held: Any) -> NDArray[Any]:
        return np.zeros(1)

    return {
        "attribute": (WithLock(size=3, lock=threading.Lock()), "source.lock"),
        "nested attribute": (WithLock(files=WithLock(index=WithLock(lock=threading.Lock()))), "source.files.index.lock"),
        "in a dict": (WithLock(parts={"a": 1, "b": threading.Lock()}), "source.parts['b']"),
        "in a list": (WithLock(parts=[1, threading.Lock()]), "source.parts[1]"),
        "of a bound method": (WithLock(lock=threading.Lock()).method, "source.__self__.lock"),
        "closure variable": (with_variable, "source -> lock"),
        "attribute of a closure variable": (with_object, "source -> holder.lock"),
        "argument of a partial": (functools.partial(with_argument, threading.Lock()), "source.args[0]"),
        "keyword of a partial": (functools.partial(with_keyword, held=threading.Lock()), "source.keywords['held']"),
    }


@pytest.mark.parametrize("case", unpicklable_sources())
def test_source_that_cannot_be_pickled_is_refused_by_build(case: str, make_pipeline: MakePipeline) -> None:
    source, path = unpicklable_sources()[case]
    pipe = make_pipeline(source, "spawn")

    with pytest.raises(errors.PicklingError) as info:
        pipe.build()
    assert_words(info.value, f"{path}, a lock, refuses", "py_start_method='fork'")

    traceback.clear_frames(info.tb)


@pytest.mark.parametrize("case", unpicklable_sources())
def test_the_same_source_works_in_forked_workers(case: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(unpicklable_sources()[case][0], "fork")

    assert pipe.run()[0].as_array().shape == (4, 1)


def test_exception_during_pickling_of_a_source_is_the_cause(make_pipeline: MakePipeline) -> None:
    class Refusing:
        def __call__(self, info: SampleInfo) -> NDArray[Any]:
            return np.zeros(1)

        def __reduce__(self) -> Any:
            raise ZeroDivisionError("this one stays here")

    pipe = make_pipeline(Refusing(), "spawn")

    with pytest.raises(errors.PicklingError, match="Refusing, refuses: this one stays here") as info:
        pipe.build()

    assert isinstance(info.value.__cause__, ZeroDivisionError)
    traceback.clear_frames(info.tb)


# Arguments of pipelines


@pytest.mark.parametrize("py_num_workers", [0, -1, None])
def test_parallel_source_needs_workers(py_num_workers: Any, start_method: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(1), start_method, workers=py_num_workers)

    for call in (pipe.start_py_workers, pipe.build, pipe.run):
        with pytest.raises(errors.ArgumentError) as info:
            call()
        assert_words(info.value, "py_num_workers", "parallel", "positive integer", repr(py_num_workers))


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("batch_size", [0, -1, "4", True, 2.0]),
        ("num_threads", [0, -2, "1", 1.5, True]),
        ("prefetch_queue_depth", [0, -1, None, "2", {"cpu_size": 2}, 10**9]),
        ("py_start_method", ["threads", "", None, 0]),
        ("py_worker_threads", [0, -1, "1"]),
        ("py_worker_restarts", [-1, 1.5, True, "3"]),
        ("py_timeout_s", [0, -1.0, "5", True]),
        ("max_held_bytes", [0, -1, 1e9, "1G"]),
    ],
)
def test_wrong_argument_of_pipeline(argument: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(errors.ArgumentError) as info:
            Pipeline(**{"batch_size": 4, argument: value})
        assert_words(info.value, argument, repr(value))


def test_unknown_start_method_names_the_known_ones() -> None:
    with pytest.raises(errors.ArgumentError, match=f"one of {', '.join(start_methods())}, not 'threads'"):
        Pipeline(4, py_start_method="threads")


# Outputs of pipelines


def unsuitable_outputs() -> dict[str, tuple[Callable[[], Any], tuple[str, ...]]]:
    def node() -> Any:
        return fn.external_source(source=lambda info: np.zeros(1), batch=False)

    return {
        "a nested list": (lambda: [node(), [node(), node()]], ("output 1", "nested", "star")),
        "an array of text": (lambda: (node(), np.array(["text"])), ("output 1", "`ndarray`")),
        "a string": (lambda: "data", ("output 0", "`str`")),
        "a dict": (lambda: {"data": node()}, ("output 0", "`dict`")),
        "None among nodes": (lambda: (node(), None), ("output 1", "`NoneType`")),
        "the function itself": (lambda: (node(), node), ("output 1", "`function`")),
    }


UNSUITABLE_OUTPUTS = unsuitable_outputs()


@pytest.mark.parametrize("case", UNSUITABLE_OUTPUTS)
def test_unsuitable_outputs_are_refused(case: str) -> None:
    make, words = UNSUITABLE_OUTPUTS[case]

    @pipeline_def(batch_size=4)
    def pipeline() -> Any:
        return make()

    with pytest.raises(errors.DefinitionError) as info:
        pipeline()

    assert_words(info.value, *words)


@pytest.mark.parametrize("call", [Pipeline.build, Pipeline.run, Pipeline.start_py_workers])
@pytest.mark.parametrize("make", [Pipeline, pipeline_def(lambda: None), pipeline_def(lambda: ())])
def test_pipeline_without_outputs(make: Callable[..., Pipeline], call: Callable[[Pipeline], Any]) -> None:
    with pytest.raises(errors.NoOutputsError, match="no outputs: return the nodes"):
        call(make(batch_size=4))


# Closed pipelines


@pytest.mark.parametrize("when", ["before it was built", "before it was run", "while it ran"])
def test_closed_pipeline_says_so(when: str, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(1), way)
    {"before it was built": lambda: None, "before it was run": pipe.build, "while it ran": pipe.run}[when]()

    pipe.close()

    for call in (pipe.run, pipe.build, pipe.start_py_workers, pipe.reset, lambda: next(iter(pipe))):
        with pytest.raises(errors.ClosedError, match="has been closed"):
            call()
    assert pipe.py_worker_pids == [] or way != "serial"


# Texts


def test_error_of_a_worker_shows_the_stack_there(start_method: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        return the_inner_function(info)

    def the_inner_function(info: SampleInfo) -> NDArray[Any]:
        raise KeyError("no such sample")

    pipe = make_pipeline(source, start_method)

    with pytest.raises(KeyError) as info:
        pipe.run()

    text = "".join(traceback.format_exception(info.value))
    assert "in the_inner_function" in text
    assert "in worker " in text
    assert "sample 0 of iteration 0 in epoch 0" in text


def test_error_text_is_the_same_in_all_ways(make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        return "text" if info.idx_in_epoch == 5 else np.zeros(1)

    texts = set()
    for way in ("serial", "fork", "spawn"):
        pipe = make_pipeline(source, way)
        pipe.run()
        with pytest.raises(errors.SampleTypeError) as info:
            pipe.run()
        texts.add(full_text(info.value).partition(", in worker")[0])

    assert len(texts) == 1


def test_sources_without_a_name_are_called_by_that_of_the_callable(make_pipeline: MakePipeline) -> None:
    class Photographs:
        def __call__(self, info: SampleInfo) -> None:
            return None

    for source in (Photographs(), functools.partial(Photographs())):
        with pytest.raises(errors.SampleTypeError, match=r"external_source of .*(Photographs|partial)"):
            make_pipeline(source, "serial").run()


def test_exception_object_that_is_raised_again_has_one_note(make_pipeline: MakePipeline) -> None:
    error = ValueError("the same each time")

    def source(info: SampleInfo) -> NDArray[Any]:
        raise error

    pipe = make_pipeline(source, "serial", prefetch_queue_depth=1)

    for iteration in range(3):
        with pytest.raises(ValueError, match="the same") as info:
            pipe.run()
        assert f"iteration {iteration}" in full_text(info.value)
        assert len(info.value.__notes__) == 1
