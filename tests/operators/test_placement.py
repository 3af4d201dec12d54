"""Placement of operators, in workers after a source or in threads, does not change results."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, types
from dali_like.errors import DecodeError, DtypeMismatchError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from tests.operators.running import batches, pipeline, run

IMAGES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(4)]
LABELS = [np.int32(i) for i in range(4)]


def augment(image: Any, label: Any) -> list[Any]:
    turned = fn.flip(image, horizontal=fn.random.coin_flip(), vertical=label)
    return [turned, label, fn.random.uniform(shape=[2]), turned.shape()]


def places(define: Any, **options: Any) -> dict[str, str]:
    pipe = pipeline(define, IMAGES, LABELS, layouts=["HWC"], way="workers", **options)
    try:
        return pipe.operator_places
    finally:
        pipe.close()


class TestTheDecision:
    @pytest.mark.parametrize(
        ("arguments", "place"),
        [
            ({"shape": [5, 6, 3]}, "workers"),
            ({"shape": 7, "align": 2}, "workers"),
            ({}, "threads"),
            ({"shape": [-1, 5, 3]}, "threads"),
        ],
    )
    def test_padding_needs_the_batch_where_its_largest_sample_counts(self, arguments, place):
        assert places(lambda image, label: [fn.pad(image, **arguments), label]) == {"fn.pad_0": place}

    def test_operators_behind_one_source_run_in_its_workers(self):
        assert places(augment) == {
            "fn.random.coin_flip_0": "workers",
            "fn.flip_1": "workers",
            "fn.random.uniform_2": "threads",
            "DataNode.shape_3": "workers",
        }

    @pytest.mark.parametrize(
        ("options", "place"),
        [
            ({"num_threads": 1, "py_num_workers": 1}, "workers"),
            ({"num_threads": 2, "py_num_workers": 1}, "threads"),
            ({"num_threads": 2, "py_num_workers": 2}, "workers"),
            ({"num_threads": None, "py_num_workers": 2}, "workers"),
        ],
    )
    def test_where_there_are_more_hands(self, options, place):
        assert places(lambda image, label: [fn.flip(image), label], **options) == {"fn.flip_0": place}

    @pytest.mark.parametrize(
        "options",
        [{"parallel": False}, {"batch": True}],
        ids=["serial", "batches"],
    )
    def test_other_sources_leave_it_to_threads(self, options):
        options = {"parallel": True, "batch": False, **options}
        pipe = Pipeline(batch_size=4, num_threads=1)
        with pipe:
            pipe.set_outputs(fn.flip(fn.external_source(lambda info: IMAGES[0], **options)))

        assert pipe.operator_places == {"fn.flip_0": "threads"}

    def test_an_operator_on_two_sources_runs_in_threads(self, operator):
        @operator()
        def plus(call: OperatorCall, a: Array, b: Array) -> Array:
            return a + b

        def source() -> Any:
            return fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False, parallel=True)

        pipe = Pipeline(batch_size=4, num_threads=1)
        with pipe:
            pipe.set_outputs(plus(plus(source(), 10), plus(source(), 20)))

        assert pipe.operator_places == {"fn.plus_0": "workers", "fn.plus_1": "workers", "fn.plus_2": "threads"}
        assert pipe.run()[0].as_array().tolist() == [30, 32, 34, 36]
        pipe.close()

    def test_behind_an_operator_on_batches(self, operator):
        @operator(per_sample=False)
        def reversed_batch(call: OperatorCall, data: list[Array]) -> list[Array]:
            return data[::-1]

        def define(image: Any, label: Any) -> Any:
            return reversed_batch(fn.flip(image)), fn.flip(reversed_batch(image)), label

        assert [*places(define).values()] == ["workers", "threads", "threads", "threads"]
        assert_alike(define)

    def test_is_drawn(self, tmp_path):
        pipe = pipeline(augment, IMAGES, LABELS, layouts=["HWC"], way="workers")
        pipe.save_graph_to_dot_file(tmp_path / "pipeline.dot", use_colors=True)
        pipe.close()

        text = (tmp_path / "pipeline.dot").read_text()
        assert '"fn.flip_1" [color=green peripheries=2];' in text
        assert '"fn.random.uniform_2" [color=green];' in text


def assert_alike(define: Any, **options: Any) -> None:
    """Check equal results in threads, in one worker, and in several spawned workers, over interrupted and complete
    epochs.
    """
    ways = [{"way": "threads"}, {"way": "workers"}, {"way": "workers", "py_num_workers": 3, "py_start_method": "fork"}]
    given = {"layouts": ["HWC"], "iterations": 4, "reset_before": [2], **options}
    expected, *others = [run(define, IMAGES, LABELS, **given, **way) for way in ways]
    for results in others:
        for ours, theirs in zip(results, expected, strict=True):
            for samples, same in zip(ours, theirs, strict=True):
                assert len(samples) == len(same)
                for sample, other in zip(samples, same, strict=True):
                    np.testing.assert_array_equal(sample, other, strict=True)


class TestNoDifference:
    def test_of_samples_and_random_numbers(self):
        assert_alike(augment)

    def test_of_spawned_workers(self):
        spawned = run(augment, IMAGES, LABELS, layouts=["HWC"], way="workers", py_start_method="spawn")
        threads = run(augment, IMAGES, LABELS, layouts=["HWC"])

        for samples, same in zip(spawned[0], threads[0], strict=True):
            np.testing.assert_array_equal(samples, same)

    def test_of_workers_that_are_replaced(self):
        expected = run(augment, IMAGES, LABELS, layouts=["HWC"], iterations=6)

        pipe = pipeline(augment, IMAGES, LABELS, layouts=["HWC"], way="workers")
        killed = set()
        try:
            for i, batch in enumerate(expected):
                # Prefetched batches are delivered before the death of the first worker is noticed.
                if i in (1, 4) and (pid := pipe.py_worker_pids[0]) not in killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                for output, samples in zip(pipe.run(), batch, strict=True):
                    np.testing.assert_array_equal(output.as_array(), samples)
            assert pipe.statistics().worker_restarts
        finally:
            pipe.close()

    def test_of_samples_that_are_repeated_to_fill_a_batch(self):
        def epoch(way: str) -> Any:
            def define() -> Any:
                number = lambda info: np.int32(info.idx_in_epoch)  # noqa: E731
                options = {"size": 6, "last_batch_policy": "fill", "batch": False, "parallel": way == "workers"}
                source = fn.external_source(number, **options)
                return source, source + 10, fn.random.uniform(source), source + fn.random.uniform()

            made = batches(define, way=way, iterations=2, batch_size=4)
            return [[output.as_array().tolist() for output in outputs] for outputs in made]

        expected = epoch("threads")

        assert epoch("workers") == expected
        assert expected[1][0] == [4, 5, 5, 5]

    def test_of_layouts(self):
        define = lambda image, label: [fn.flip(image), image, label]  # noqa: E731
        ((flat, _, _),) = batches(define, IMAGES, LABELS, way="workers")
        ((known, source, _),) = batches(define, IMAGES, LABELS, way="workers", layouts=["HWC"])

        assert [flat.layout(), known.layout(), source.layout()] == ["HWC", "HWC", "HWC"]

    @pytest.mark.parametrize("way", ["threads", "workers"])
    def test_of_errors(self, way, operator):
        @operator()
        def fussy(call: OperatorCall, data: Array) -> Array:
            if call.info.idx_in_epoch == 6:
                raise ValueError("not this one")
            return data

        pipe = pipeline(fussy, LABELS, way=way)
        try:
            assert pipe.run()[0].as_array().tolist() == [0, 1, 2, 3]
            with pytest.raises(ValueError, match=r"not this one") as info:
                pipe.run()
            assert "raised by fn.fussy for sample 2 of iteration 1 in epoch 0 (idx_in_epoch 6)" in info.value.__notes__
            assert pipe.run()[0].as_array().tolist() == [0, 1, 2, 3]
        finally:
            pipe.close()

    @pytest.mark.parametrize("way", ["threads", "workers"])
    def test_in_errors_of_declared_dtypes(self, way):
        def define() -> Any:
            return fn.flip(
                fn.external_source(lambda info: IMAGES[0], dtype=types.FLOAT, batch=False, parallel=way == "workers")
            )

        with pytest.raises(DtypeMismatchError, match=r"returned data of type uint8 in output 0"):
            run(define, way=way)

    def test_of_objects_beside(self):
        pipe = Pipeline(batch_size=2, num_threads=1)
        with pipe:
            image, text = fn.external_source(
                lambda info: (IMAGES[0], f"sample {info.idx_in_epoch}"),
                num_outputs=2,
                dtype=[types.UINT8, types.OBJECT],
                batch=False,
                parallel=True,
            )
            pipe.set_outputs(fn.flip(image), text)
        try:
            assert pipe.operator_places == {"fn.flip_0": "workers"}
            assert pipe.run()[1] == ["sample 0", "sample 1"]
        finally:
            pipe.close()

    def test_of_memory_that_the_callback_asks_for(self):
        """It is not memory of the batch, which holds the operators' results."""

        def source(info: types.SampleInfo) -> np.ndarray:
            image = info.empty((2, 4, 3))
            image[...] = IMAGES[info.idx_in_batch]
            return image

        pipe = Pipeline(batch_size=4, num_threads=1)
        with pipe:
            image = fn.external_source(source, batch=False, parallel=True)
            pipe.set_outputs(fn.flip(image), image, fn.flip(image, horizontal=0))
        try:
            for _ in range(4):
                flipped, same, again = pipe.run()
                np.testing.assert_array_equal(same.as_array(), IMAGES)
                np.testing.assert_array_equal(again.as_array(), IMAGES)
                np.testing.assert_array_equal(flipped.as_array(), np.array(IMAGES)[..., ::-1, :])
        finally:
            pipe.close()

    def test_of_where_results_are_made(self, operator):
        """Results are computed in the batch's memory, which the callback does not receive."""

        @operator()
        def place(call: OperatorCall, data: Array) -> Array:
            out = call.empty((4000,), np.uint64)
            out[...] = out.__array_interface__["data"][0]  # the same in a forked worker
            return out

        def source(info: types.SampleInfo) -> np.ndarray:
            sample = info.empty((4000,), np.uint64)
            sample[...] = 0
            return sample

        pipe = Pipeline(batch_size=4, num_threads=1)
        with pipe:
            pipe.set_outputs(place(fn.external_source(source, batch=False, parallel=True)))
        try:
            for _ in range(8):  # the first batches are computed before their schema is known
                (batch,) = pipe.run()
            assert [batch.at(i)[0] for i in range(4)] == [batch.at(i).__array_interface__["data"][0] for i in range(4)]
        finally:
            pipe.close()


@pytest.mark.parametrize("start_method", ["fork", "thread"])
def test_error_of_an_operator_names_the_file_of_its_sample(start_method: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.npy"
    path.write_bytes(b"no array")

    def source(info: Any) -> Any:
        return np.memmap(path, np.uint8, "r")

    pipe = Pipeline(2, num_threads=1, py_num_workers=1, py_start_method=start_method)
    with pipe:
        pipe.set_outputs(fn.decoders.numpy(fn.external_source(source, batch=False, parallel=True)))
    with pipe, pytest.raises(DecodeError) as caught:
        pipe.run()

    where = f"sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0), from {path}"
    assert f"raised by fn.decoders.numpy for {where}" in caught.value.__notes__
