"""The debug mode: a pipeline's function sees values. The comparison with DALI is in tests/parity/test_debug_mode.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.errors import (
    BatchSizeError,
    ChangedCallError,
    DefinitionError,
    DtypeMismatchError,
    InputNameError,
    NoInputError,
    PipelineStateError,
    SampleError,
)
from dali_like.pipeline import experimental
from dali_like.testing.simulated_device import SimulatedDevice
from dali_like.types import SampleInfo

debugged = functools.partial(pipeline_def, debug=True, batch_size=4, num_threads=1, seed=5)


def number(info: SampleInfo) -> np.ndarray:
    if info.iteration == 3:
        raise StopIteration
    return np.array(info.idx_in_epoch + 100 * info.epoch_idx, np.int32)


def numbers(**options: Any) -> Any:
    return fn.external_source(number, batch=False, **options)


def image(info: SampleInfo) -> np.ndarray:
    return info.rng().integers(0, 255, (9, 7 + info.idx_in_batch, 3), np.uint8)


def images(**options: Any) -> Any:
    return fn.external_source(image, batch=False, layout="HWC", **options)


def listed(batches: Any) -> list[Any]:
    return [[np.asarray(sample).tolist() for sample in batch] for batch in batches]


def test_nodes_have_their_batches_while_the_function_runs() -> None:
    seen = []

    @debugged
    def pipeline() -> Any:
        x = numbers()
        seen.append(x.get().as_array().tolist())
        y = x * 2
        seen.append(y.get().as_array().tolist())
        assert "[0 2 4 6]" in repr(y) or "[ 8 10 12 14]" in str(y)
        return y, y.shape(), 7

    with closing(pipeline()) as pipe:
        assert isinstance(pipe, Pipeline)
        assert listed(pipe.run()) == [[0, 2, 4, 6], [[]] * 4, [7] * 4]
        assert listed(pipe.run())[0] == [8, 10, 12, 14]
    assert seen == [[0, 1, 2, 3], [0, 2, 4, 6], [4, 5, 6, 7], [8, 10, 12, 14]]


def test_sources_are_called_where_the_function_calls_them() -> None:
    log: list[str] = []

    def source(info: SampleInfo) -> np.ndarray:
        log.append(f"sample {info.idx_in_epoch}")
        return np.array(0)

    @debugged(batch_size=1, py_num_workers=2)
    def pipeline() -> Any:
        log.append("before")
        x = fn.external_source(source, batch=False, parallel=True, prefetch_queue_depth=3)
        log.append("after")
        return x

    with closing(pipeline()) as pipe:
        pipe.start_py_workers()
        pipe.build()
        assert log == []
        pipe.run()
        assert pipe.py_worker_pids == []
    assert log == ["before", "sample 0", "after"]


def programs() -> dict[str, Callable[[], Any]]:
    def of_operators() -> Any:
        x = images()
        y = fn.random_resized_crop(x, size=(4, 5))
        y = fn.brightness(y, brightness=fn.random.uniform(range=[0.5, 1.5]))
        return x, y, y[1:, 0], fn.reductions.mean(y, axis_names="HW") + 1.5, fn.random.coin_flip(), fn.cat(y, y, axis=1)

    def of_batches() -> Any:
        return fn.batch_permutation(), fn.permute_batch(numbers(), indices=[3, 1, 0, 2])

    def of_input_sets() -> Any:
        return fn.flip([images(), images()], horizontal=fn.random.coin_flip())

    def of_a_constant() -> Any:
        return numbers() + types.Constant([1, 2]), fn.cast(types.Constant(2.5), dtype=types.INT32)

    def of_objects() -> Any:
        return fn.external_source(lambda info: {"i": info.idx_in_epoch}, batch=False, dtype=types.OBJECT)

    def of_iterables() -> Any:
        one, other = fn.external_source([(np.zeros((3, 2)), np.ones((3, 1)))] * 2, num_outputs=2)
        return fn.cat(one, other, axis=0)

    return {name: value for name, value in locals().items() if callable(value)}


@pytest.mark.parametrize("name", programs())
def test_batches_are_those_without_debug_mode(name: str) -> None:
    define = programs()[name]
    results = []
    for debug in (False, True):
        with closing(pipeline_def(define)(batch_size=4, num_threads=1, seed=5, py_num_workers=0, debug=debug)) as pipe:
            taken = [pipe.run() for _ in range(2)] if name != "of_objects" else [pipe.run()[0] for _ in range(2)]
            if name != "of_objects":
                assert [batch.layout() for batch in taken[0]] == [batch.layout() for batch in taken[1]]
            results.append([listed(batches) if name != "of_objects" else batches for batches in taken])
    assert results[0] == results[1]


def test_readers(tmp_path: Path) -> None:
    for i in range(5):
        np.save(tmp_path / f"{i}.npy", np.full((2,), i, np.uint8))
    seen = []

    @debugged(batch_size=2)
    def pipeline() -> Any:
        data = fn.readers.numpy(file_root=str(tmp_path), name="files")
        seen.append([bytes(np.asarray(name)).decode().rpartition("/")[2] for name in data.source_info().get()])
        return data

    with closing(pipeline()) as pipe:
        assert [listed(pipe.run())[0][0][0] for _ in range(4)] == [0, 2, 4, 1]
        pipe.reset()  # readers go on
        assert listed(pipe.run())[0][0][0] == 3
    assert seen[:2] == [["0.npy", "1.npy"], ["2.npy", "3.npy"]]


def test_the_graph_is_known_without_a_run(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.zeros(2))

    @debugged
    def pipeline() -> Any:
        return fn.readers.numpy(file_root=str(tmp_path), name="files")

    with closing(pipeline()) as pipe:
        assert pipe.epoch_size("files") == 1
        assert pipe.num_outputs == 1
        assert b"readers" in pipe.serialize()
        assert listed(pipe.run()) == [[[0, 0]] * 4]


def test_epochs() -> None:
    with closing(debugged(lambda: numbers() + 0)()) as pipe:
        assert [batch[0].at(0).item() for batch in pipe] == [0, 4, 8]
        with pytest.raises(StopIteration):
            pipe.run()
        assert [batch[0].at(0).item() for batch in pipe] == [100, 104, 108]
        pipe.reset()
        pipe.run()
        pipe.reset()
        assert pipe.run()[0].at(0).item() == 300


def test_scheduled_runs() -> None:
    with closing(debugged(lambda: numbers() + 0)()) as pipe:
        pipe.schedule_run()
        assert pipe.share_outputs()[0].at(0).item() == 0


def test_inputs() -> None:
    @debugged
    def pipeline() -> Any:
        return fn.external_source(name="a") + fn.external_source(name="b")

    with closing(pipeline()) as pipe:
        pipe.feed_input("a", np.arange(4))
        pipe.feed_input("b", [np.int64(1)] * 4)
        assert listed(pipe.run()) == [[1, 2, 3, 4]]
        assert listed(pipe.run(a=np.arange(3), b=np.arange(3))) == [[0, 2, 4]]
        with pytest.raises(NoInputError):
            pipe.run()
        with pytest.raises(InputNameError, match='"c"'):
            pipe.feed_input("c", np.arange(4))


@pytest.mark.parametrize("change", [lambda x: [np.array(np.asarray(one) * 2) for one in x.get()], lambda x: (x * 2).get()])
def test_batches_changed_outside_of_operators(change: Callable[[Any], Any]) -> None:
    @debugged
    def pipeline() -> Any:
        x = numbers()
        return fn.reshape(change(x), shape=[1]), fn.cast(x, dtype=types.FLOAT), change(x)

    with closing(pipeline()) as pipe:
        assert listed(pipe.run()) == [[[0], [2], [4], [6]], [0, 1, 2, 3], [0, 2, 4, 6]]


def test_arguments_changed_outside_of_operators() -> None:
    @debugged
    def pipeline() -> Any:
        x = numbers()
        angles = [np.float32(90 * one.item()) for one in map(np.asarray, x.get())]
        return fn.transforms.rotation(angle=[np.array(angle) for angle in angles])

    with closing(pipeline()) as pipe:
        assert [abs(round(matrix[0][1])) for matrix in listed(pipe.run())[0]] == [0, 1, 0, 1]


def test_conditionals() -> None:
    seen = []

    @debugged(enable_conditionals=True)
    def pipeline() -> Any:
        x = numbers()
        if x - x // 2 * 2 == 0:
            y = x * 10
            seen.append(y.get().as_array().tolist())
            if x > 3 and x < 100:
                y = fn.random.uniform(range=[1, 2], dtype=types.INT32) * 0 + 1000
        else:
            y = -x
            seen.append(len(y.get()))
        return y

    with closing(pipeline()) as pipe:
        assert listed(pipe.run()) == [[0, -1, 20, -3]]
        assert listed(pipe.run()) == [[1000, -5, 1000, -7]]
    assert seen == [[0, 20], 2, [40, 60], 2]


def test_errors_are_raised_where_they_arise() -> None:
    reached = []

    @debugged
    def pipeline() -> Any:
        x = images()
        reached.append("resize")
        y = fn.crop(x, crop=(100, 100))
        reached.append("end")
        return y

    with closing(pipeline()) as pipe:
        with pytest.raises(SampleError) as error:
            pipe.run()
        assert any("fn.crop" in note for note in error.value.__notes__)
    assert reached == ["resize"]


def test_a_failed_run_skips_its_batch_of_all_sources() -> None:
    def failing(info: SampleInfo) -> np.ndarray:
        if info.iteration == 1:
            raise ZeroDivisionError
        return np.array(info.idx_in_epoch)

    @debugged
    def pipeline() -> Any:
        return fn.external_source(failing, batch=False), numbers()

    with closing(pipeline()) as pipe:
        pipe.run()
        with pytest.raises(ZeroDivisionError):
            pipe.run()
        assert listed(pipe.run()) == [[8, 9, 10, 11]] * 2


CHANGES: dict[str, tuple[Callable[[bool], Any], str]] = {
    "another operator": (
        lambda first: fn.flip(images()) if first else fn.rotate(images(), angle=1),
        r"Unexpected operator 'rotate'. .*test_debug_mode.py:\d+, and was 'flip' in .*:\d+ in the first run. Call",
    ),
    "one more": (
        lambda first: (numbers(), *(numbers() for _ in range(0 if first else 1))),
        "Unexpected operator 'ExternalSource'. .*and the first run made 1",
    ),
    "inputs": (lambda first: fn.cat(*[images()] * (1 if first else 2)), "different number of inputs .* 1 inputs, got 2"),
    "arguments": (
        lambda first: fn.cat(images(), **({} if first else {"axis": 0})),
        "different number of keyword arguments .* 0 keyword arguments, got 1",
    ),
    "other arguments": (
        lambda first: fn.flip(images(), **({"horizontal": 0} if first else {"vertical": 0})),
        "Argument 'vertical' for operator 'flip' was not given in the first run",
    ),
    "a constant": (
        lambda first: fn.constant(fdata=1.5 if first else 2.5),
        r"Argument 'fdata' for operator 'constant' unexpectedly changed value from '\(?\[?1.5.* to '\(?\[?2.5",
    ),
    "NaN": (lambda first: fn.constant(fdata=float("nan") if first else 1), "changed value from .*nan"),
    "a batch": (
        lambda first: fn.random.coin_flip(probability=0.5 if first else [np.zeros(1)] * 4),
        "Argument probability for operator 'random.coin_flip' is a batch but was a constant when created.",
    ),
    "a constant input": (
        lambda first: fn.cast(1 if first else [np.zeros(1)] * 4, dtype=types.FLOAT),
        "Input 0 for operator 'cast' is a batch but was a constant when created.",
    ),
    "a device": (
        lambda first: fn.flip(images() if first else images().gpu()).cpu(),
        "Input 0 for operator 'flip' is on 'gpu' but was on 'cpu' when created.",
    ),
    "a dtype": (
        lambda first: fn.cast([np.zeros(1, "f4" if first else "i4")] * 4, dtype=types.UINT8),
        "Input 0 for operator 'cast' has dtype = int32, expected: float32.",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_run_makes_the_same_calls(name: str) -> None:
    define, message = CHANGES[name]
    runs = iter([True, True, False])
    with closing(debugged(lambda: define(next(runs)))()) as pipe:
        pipe.run()
        pipe.run()
        with pytest.raises(ChangedCallError, match=message):
            pipe.run()


def test_not_a_number_stays_the_same() -> None:
    with closing(debugged(lambda: fn.constant(fdata=float("nan")))()) as pipe:
        pipe.run()
        pipe.run()


def test_batch_sizes() -> None:
    batches = [np.zeros((size, 3), np.uint8) for size in (2, 4, 3)]
    with closing(debugged(lambda: fn.cast(fn.external_source(batches), dtype=types.FLOAT))()) as pipe:
        assert [len(batch) for (batch,) in pipe] == [2, 4, 3]


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: (fn.random.coin_flip(), fn.external_source(np.zeros((1, 2, 3)))), "uniform .* batch size: 2, expected: 4"),
        (lambda: (numbers(), fn.cast([np.zeros(1)] * 3, dtype=types.FLOAT)), "uniform .* 3 samples: expected"),
        (
            lambda: fn.external_source([([np.zeros(1)] * 4, [np.zeros(1)] * 2)], num_outputs=2),
            "Batch size clash! The outputs of external_source of list",
        ),
    ],
)
def test_different_batch_sizes(define: Callable[[], Any], message: str) -> None:
    with closing(debugged(define)()) as pipe, pytest.raises(BatchSizeError, match=message):
        pipe.run()


def test_values_exist_only_in_debug_mode() -> None:
    def define() -> Any:
        return numbers().get()

    with pytest.raises(DefinitionError, match="has no batch while the pipeline is defined: pass debug=True"):
        pipeline_def(define)(batch_size=1)
    with closing(debugged(define)()) as pipe:
        assert listed(pipe.run()) == [[0, 1, 2, 3]]
        with pytest.raises(DefinitionError, match="has no batch"):
            len(pipe)


def test_values_outlive_the_run() -> None:
    kept: list[Any] = []

    def define() -> Any:
        kept.append(numbers() + 1)
        return kept[-1]

    with closing(debugged(define)()) as pipe:
        pipe.run()
        pipe.run()
    assert [node.get().as_array().tolist() for node in kept] == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_expected_outputs() -> None:
    with (
        closing(debugged(numbers, output_dtype=types.FLOAT)()) as pipe,
        pytest.raises(DtypeMismatchError),
    ):
        pipe.run()


def test_nested_outputs() -> None:
    with closing(debugged(lambda: ([numbers()], 1))()) as pipe, pytest.raises(DefinitionError, match="nested"):
        pipe.run()


def test_outputs_of_a_branch() -> None:
    from dali_like.graph.language.branches import condition, in_branch

    def define() -> Any:
        x = numbers()
        return in_branch(condition(x, expression="if", where="here"), True, lambda: x + 1)

    with closing(debugged(define)()) as pipe, pytest.raises(DefinitionError, match="in a branch"):
        pipe.run()


@pytest.mark.parametrize(
    "use",
    [lambda pipe: pipe.checkpoint(), lambda pipe: pipe.load_state_dict({})],
)
def test_there_are_no_checkpoints(use: Callable[[Any], Any]) -> None:
    with closing(debugged(numbers)(enable_checkpointing=True)) as pipe:
        pipe.run()
        with pytest.raises(PipelineStateError, match="pass debug=False"):
            use(pipe)


def test_sinks_and_preserved_operators_are_computed_anyway() -> None:
    called = []

    def look(x: Any) -> Any:
        called.append(x.item())
        return x

    @debugged
    def pipeline() -> Any:
        x = numbers(preserve=True)
        fn.python_function(x, function=look)
        return 1

    with closing(pipeline()) as pipe:
        pipe.run()
    assert called == [0, 1, 2, 3]


def test_a_pipeline_made_by_a_callback_is_an_ordinary_one() -> None:
    def source(info: SampleInfo) -> np.ndarray:
        with closing(pipeline_def(lambda: fn.cast(np.ones(1), dtype=types.INT32))(batch_size=1)) as inner:
            return inner.run()[0].as_array()[0]

    with closing(debugged(lambda: fn.external_source(source, batch=False))()) as pipe:
        assert listed(pipe.run()) == [[[1]] * 4]


@pytest.mark.parametrize("decorator", [pipeline_def, experimental.pipeline_def])
def test_the_call_decides(decorator: Any) -> None:
    make = decorator(batch_size=4, debug=True)(lambda: 1)
    for pipe, debug in ((make(), True), (make(debug=False), False), (decorator(lambda: 1)(batch_size=4, debug=True), True)):
        assert (type(pipe) is not Pipeline) == debug


def test_gpu(gpus: list[SimulatedDevice]) -> None:
    @debugged(device_id=0)
    def pipeline() -> Any:
        x = images().gpu()
        assert "GPU" in type(x.get()).__name__
        y = fn.flip(x)
        assert y.get().as_cpu().at(0).shape == (9, 7, 3)
        z = fn.flip(y.get())
        return z, z.cpu()

    with closing(pipeline()) as pipe:
        on_gpu, on_cpu = pipe.run()
        assert "GPU" in type(on_gpu).__name__
        assert listed([on_gpu.as_cpu()]) == listed([on_cpu])
