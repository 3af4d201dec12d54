"""``fn.cache``, and the argument `cache` of external sources."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, errors, fn, pipeline_def, types
from dali_like.data import ComposedDataset
from dali_like.types import SampleInfo

SIZE = 20
ARGUMENTS: dict[str, Any] = {"batch_size": 5, "num_threads": 1, "device_id": None}
#: Arguments of a pipeline for each way to run operators.
WAYS: dict[str, dict[str, Any]] = {
    "serial": {"num_threads": 2},
    "threads": {"num_threads": 4, "py_num_workers": 1, "py_start_method": "thread"},
    "fork": {"py_num_workers": 2, "py_start_method": "fork"},
    "spawn": {"py_num_workers": 2, "py_start_method": "spawn"},
}


class Images:
    """Images of one value each, with that value as label. Writes a line to a file for each call."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __call__(self, info: SampleInfo) -> tuple[Any, Any]:
        if info.idx_in_epoch >= SIZE:
            raise StopIteration
        with self.log.open("a") as file:
            file.write(f"{info.idx_in_epoch}\n")
        return np.full((8, 8, 3), info.idx_in_epoch, np.uint8), np.int64(info.idx_in_epoch)

    @property
    def called(self) -> list[int]:
        return sorted(map(int, self.log.read_text().split()))


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "log")


def epochs_of(pipe: Pipeline, count: int = 3) -> Iterator[list[int]]:
    """Yield the labels of each epoch, in order, after a comparison with the images."""
    for _ in range(count):
        labels: list[int] = []
        for batch in pipe:
            image, label = (np.asarray(output.as_array()) for output in batch)
            assert (image == label.reshape(-1, *[1] * (image.ndim - 1))).all()
            labels += label.ravel().tolist()
        yield labels


def make(define: Callable[[], Any], **arguments: Any) -> Pipeline:
    return pipeline_def(define)(**{**ARGUMENTS, **arguments})


def counts_of(pipe: Pipeline) -> list[tuple[int, int]]:
    """Return hits and misses of each epoch of the only cache."""
    (cache,) = pipe.statistics().sources[0].caches
    return [(counts.hits, counts.misses) for counts in cache.epochs.values()]


class TestOperator:
    @pytest.mark.parametrize("way", WAYS)
    def test_results_are_computed_once(self, images: Images, way: str) -> None:
        @pipeline_def
        def define() -> Any:
            image, label = fn.external_source(images, num_outputs=2, batch=False, parallel=way != "serial")
            image, label = fn.cache(fn.resize(image, size=[4, 4]), label, memory="1MiB")
            return fn.flip(image, horizontal=fn.random.coin_flip()), label

        with define(**{**ARGUMENTS, **WAYS[way]}) as pipe:
            assert [*epochs_of(pipe)] == 3 * [[*range(SIZE)]]
            counts = counts_of(pipe)
        assert sum(hits for hits, _ in counts) + sum(misses for _, misses in counts) >= 3 * SIZE
        assert counts[2] == (SIZE, 0)
        if way in ("fork", "spawn"):  # the source is not called for hits; workers begin the second epoch during the first
            assert len(images.called) < 2 * SIZE

    def test_the_source_is_called_for_other_outputs(self, images: Images) -> None:
        @pipeline_def
        def define() -> Any:
            image, label = fn.external_source(images, num_outputs=2, batch=False, parallel=True)
            return fn.cache(fn.resize(image, size=[4, 4]), memory="1MiB"), label

        with define(**ARGUMENTS, **WAYS["fork"]) as pipe:
            assert [*epochs_of(pipe)] == 3 * [[*range(SIZE)]]
            assert counts_of(pipe)[2] == (SIZE, 0)

    @pytest.mark.parametrize("way", ["serial", "fork"])
    def test_samples_of_a_shuffled_reader_are_known_by_their_number(self, tmp_path: Path, way: str) -> None:
        write_files(tmp_path / "files")

        @pipeline_def
        def define() -> Any:
            data = fn.readers.numpy(file_root=str(tmp_path / "files"), random_shuffle=True, name="reader")
            return fn.cache(fn.cast(data, dtype=types.INT64), memory="1MiB")

        with define(**{**ARGUMENTS, **WAYS[way]}) as pipe:
            for _ in range(3):
                values = [int(value) for _ in range(SIZE // 5) for value in pipe.run()[0].as_array()[:, 0]]
                assert sorted(values) == [*range(SIZE)]
            (cache,) = pipe.statistics().sources[0].caches
        assert cache.stored == SIZE
        assert sum(counts.hits for counts in cache.epochs.values()) >= SIZE

    def test_a_branch_may_have_a_cache(self, images: Images) -> None:
        @pipeline_def(enable_conditionals=True)
        def define() -> Any:
            image, label = fn.external_source(images, num_outputs=2, batch=False, parallel=True)
            if label < SIZE // 2:
                image = fn.cache(fn.resize(image, size=[8, 8]), memory="1MiB")
            return image, label

        with define(**ARGUMENTS, **WAYS["fork"]) as pipe:
            assert [*epochs_of(pipe)] == 3 * [[*range(SIZE)]]
            (cache,) = pipe.statistics().sources[0].caches
        assert cache.stored == SIZE // 2

    def test_two_caches_behind_each_other(self, images: Images) -> None:
        @pipeline_def
        def define() -> Any:
            image, label = fn.external_source(images, num_outputs=2, batch=False, parallel=True, cache="1MiB")
            image = fn.cache(fn.resize(image, size=[4, 4]), memory="1MiB")
            return fn.cache(fn.resize(image, size=[2, 2]), label, memory="1MiB")

        with define(**ARGUMENTS, **WAYS["fork"]) as pipe:
            assert [*epochs_of(pipe)] == 3 * [[*range(SIZE)]]
            caches = pipe.statistics().sources[0].caches
        assert [cache.stored for cache in caches] == [SIZE, SIZE, SIZE]
        assert len(images.called) < 2 * SIZE

    def test_padding_is_not_stored(self, images: Images) -> None:
        def define() -> Any:
            image, label = fn.external_source(images, num_outputs=2, batch=False, last_batch_policy="fill", size=SIZE)
            return fn.cache(image, label, memory="1MiB")

        with make(define, batch_size=8) as pipe:
            assert [*epochs_of(pipe)] == 3 * [[*range(SIZE), *4 * [SIZE - 1]]]
            (cache,) = pipe.statistics().sources[0].caches
        assert cache.stored == SIZE

    def test_arrays_of_hits_belong_to_the_batch(self, images: Images) -> None:
        def define() -> Any:
            return tuple(fn.cache(*fn.external_source(images, num_outputs=2, batch=False), memory="1MiB"))

        with make(define) as pipe:
            for _ in range(2):
                for batch in pipe:
                    array = np.asarray(batch[0].as_array())
                    assert (array == array[:, :1, :1, :1]).all()
                    array[:] = 99

    def test_user_functions_get_tensors_of_hits(self, images: Images) -> None:
        def define() -> Any:
            image, label = fn.external_source(images, num_outputs=2, batch=False)
            image = fn.python_function(fn.cache(image, memory="1MiB"), function=lambda array: array + 0)
            return image, label

        with make(define) as pipe:
            assert [*epochs_of(pipe, 2)] == 2 * [[*range(SIZE)]]


class TestBudget:
    @pytest.mark.parametrize("policy", ["keep", "lru"])
    def test_holds_while_workers_are_killed(self, images: Images, tmp_path: Path, policy: str) -> None:
        images_with_deaths = Deaths(images, tmp_path / "died")

        @pipeline_def
        def define() -> Any:
            image, label = fn.external_source(images_with_deaths, num_outputs=2, batch=False, parallel=True)
            return fn.cache(fn.resize(image, size=[64, 64]), label, memory=10 * 16384, policy=policy)

        with define(**ARGUMENTS, **WAYS["fork"], py_worker_restarts=None) as pipe:
            for labels in epochs_of(pipe, 4):
                assert labels == [*range(SIZE)]
                (cache,) = pipe.statistics().sources[0].caches
                assert cache.used_bytes <= cache.budget_bytes == 10 * 16384
        assert len(list(tmp_path.glob("died*"))) == 4
        assert cache.stored < SIZE
        assert (cache.evicted > 0) == (policy == "lru")


class Deaths:
    """A source whose worker is killed at every fifth sample, once."""

    def __init__(self, images: Images, marker: Path) -> None:
        self.images = images
        self.marker = marker

    def __call__(self, info: SampleInfo) -> tuple[Any, Any]:
        sample = self.images(info)
        if info.idx_in_epoch % 5 == 3:
            try:
                os.close(os.open(f"{self.marker}{info.idx_in_epoch}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return sample
            os.kill(os.getpid(), signal.SIGKILL)
        return sample


class TestSource:
    @pytest.mark.parametrize("way", WAYS)
    def test_samples_are_computed_once(self, images: Images, way: str) -> None:
        @pipeline_def
        def define() -> Any:
            return tuple(
                fn.external_source(images, num_outputs=2, batch=False, parallel=way != "serial", size=SIZE, cache="1MiB")
            )

        with define(**{**ARGUMENTS, **WAYS[way]}) as pipe:
            assert [*epochs_of(pipe)] == 3 * [[*range(SIZE)]]
            assert counts_of(pipe)[2] == (SIZE, 0)
        if way == "serial":
            assert images.called == [*range(SIZE)]

    def test_batches_are_computed_once(self, images: Images) -> None:
        numbers = []

        def batch_of(iteration: int) -> Any:
            numbers.append(iteration)
            if iteration == 4:
                raise StopIteration
            labels = np.arange(5 * iteration, 5 * iteration + 5)
            return np.repeat(labels[:, None], 7, axis=1), labels

        with make(lambda: tuple(fn.external_source(batch_of, num_outputs=2, cache="1MiB"))) as pipe:
            assert [*epochs_of(pipe)] == 3 * [[*range(SIZE)]]
        assert numbers == [0, 1, 2, 3, 4, 4, 4]

    def test_coroutines(self, images: Images) -> None:
        async def sample(info: SampleInfo) -> Any:
            return images(info)

        def define() -> Any:
            return tuple(fn.external_source(sample, num_outputs=2, batch=False, parallel=True, size=SIZE, cache="1MiB"))

        with make(define, py_num_workers=1, py_start_method="thread") as pipe:
            assert [*epochs_of(pipe)] == 3 * [[*range(SIZE)]]
        assert sorted(set(images.called)) == [*range(SIZE)]
        assert len(images.called) < 2 * SIZE

    def test_composed_datasets(self, images: Images) -> None:
        dataset = ComposedDataset.source(range(SIZE)).map(lambda i: (np.full(3, i), np.int64(i)))
        with make(lambda: tuple(fn.external_source(dataset, num_outputs=2, cache="1MiB"))) as pipe:
            assert [*epochs_of(pipe)] == 3 * [[*range(SIZE)]]
            assert counts_of(pipe)[0] == (0, SIZE)
            assert counts_of(pipe)[2] == (SIZE, 0)

    def test_its_arguments_may_be_a_dict(self, images: Images, tmp_path: Path) -> None:
        options = {"disk": tmp_path / "disk", "key": "1"}
        for _ in range(2):
            with make(lambda: tuple(fn.external_source(images, num_outputs=2, batch=False, cache=options))) as pipe:
                assert [*epochs_of(pipe, 1)] == [[*range(SIZE)]]
        assert images.called == [*range(SIZE)]

    def test_wrong_arguments(self, images: Images) -> None:
        for options, message in (
            ({"memroy": 1}, "cache got unexpected arguments: memroy .did you mean memory"),
            ({"memory": 1 << 20, "policy": "fifo"}, "policy"),
            ("much", "memory should be a number of bytes"),
        ):
            with pytest.raises(errors.ArgumentError, match=message):
                make(lambda options=options: fn.external_source(images, batch=False, cache=options))

    def test_samples_need_positions(self) -> None:
        for source, options in (([np.zeros(3)], {}), (lambda: np.zeros(3), {"batch": False})):
            with pytest.raises(errors.ArgumentError, match=r"cache=: the samples of .* depend on what came before"):
                make(lambda source=source, options=options: fn.external_source(source, cache="1MiB", **options))
        with pytest.raises(errors.DefinitionError, match="cache is only valid when using ``source``"):
            make(lambda: fn.external_source(name="fed", cache="1MiB"))

    def test_random_stages_are_refused_by_name(self) -> None:
        dataset = ComposedDataset.source(range(SIZE)).shuffle()
        with pytest.raises(errors.ArgumentError, match=r"cache\(\) is behind the random stage shuffle"):
            make(lambda: fn.external_source(dataset, cache="1MiB"))


class TestRefusals:
    """Messages of ``fn.cache``; they name the place and the remedy."""

    def refused(self, define: Callable[[], Any], message: str, **arguments: Any) -> None:
        with pytest.raises((errors.ArgumentError, errors.ArgumentTypeError), match=message):
            make(define, **arguments).build()

    def source(self) -> Any:
        return fn.external_source(lambda info: np.zeros((2, 2, 3), np.uint8), batch=False)

    def test_random_operators(self) -> None:
        for define in (
            lambda: fn.cache(fn.flip(self.source(), horizontal=fn.random.coin_flip()), memory="1MiB"),
            lambda: fn.cache(fn.resize(fn.noise.gaussian(self.source()), size=[2, 2]), memory="1MiB"),
        ):
            self.refused(
                define, r"fn.cache is behind the random operator fn\.(random.coin_flip|noise.gaussian): .* Call fn.cache"
            )

    def test_operators_on_batches(self) -> None:
        self.refused(
            lambda: fn.cache(fn.permute_batch(self.source(), indices=[*range(5)]), memory="1MiB"),
            "fn.cache is behind fn.permute_batch, whose results depend on the whole batch",
        )

    def test_random_stages(self) -> None:
        dataset = ComposedDataset.source(range(SIZE)).shuffle()
        self.refused(lambda: fn.cache(fn.external_source(dataset), memory="1MiB"), "behind the random stage shuffle")

    def test_sources(self) -> None:
        fed = "fn.cache: input 'x' is fed by the program"
        self.refused(lambda: fn.cache(fn.external_source(name="x"), memory="1MiB"), fed)
        self.refused(lambda: fn.cache(fn.external_source([[1]]), memory="1MiB"), "depend on what came before")
        self.refused(
            lambda: fn.cache(types.Constant(1) + self.source(), self.source(), memory="1MiB"), "of their own: cache"
        )
        self.refused(lambda: fn.cache(fn.cast(types.Constant(1), dtype=types.INT8), memory="1MiB"), "depends on no source")

    def test_arguments(self) -> None:
        self.refused(lambda: fn.cache(memory="1MiB"), "fn.cache takes nodes")
        self.refused(lambda: fn.cache(5, memory="1MiB"), "fn.cache takes nodes")
        self.refused(lambda: fn.cache(self.source()), 'a cache needs memory="1GiB"')

    def test_threads_need_to_know_positions(self, tmp_path: Path) -> None:
        write_files(tmp_path)

        def define() -> Any:
            data = fn.readers.numpy(file_root=str(tmp_path))
            return fn.cache(fn.resize(data, size=[2, 2]), memory="1MiB"), self.source()

        self.refused(
            define, "operators behind fn.readers.numpy run in threads.*py_num_workers=", num_threads=9, py_num_workers=1
        )


class TestOnDisk:
    def test_a_function_needs_a_key(self, images: Images, tmp_path: Path) -> None:
        def define() -> Any:
            return tuple(fn.cache(*fn.external_source(images, num_outputs=2, batch=False), disk=tmp_path / "disk"))

        with pytest.raises(errors.ArgumentError, match=r"behind external_source of Images cannot see.*Pass a key"):
            make(define).build()

    def test_a_reader_needs_none(self, tmp_path: Path) -> None:
        write_files(tmp_path / "files")
        write_files(tmp_path / "files")
        folders = []
        for dtype, value in ((types.INT64, 0), (types.INT64, 0), (types.FLOAT, 0), (types.FLOAT, 7)):
            if value:
                np.save(tmp_path / "files" / "00.npy", np.full(3, value))

            def define(dtype: Any = dtype) -> Any:
                data = fn.readers.numpy(file_root=str(tmp_path / "files"))
                return fn.cache(fn.cast(data, dtype=dtype), disk=tmp_path / "disk")

            with make(define) as pipe:
                assert np.asarray(pipe.run()[0].as_array())[0, 0] == value
            folders.append(len(list((tmp_path / "disk").iterdir())))
        assert folders == [1, 1, 2, 3]  # the same for the second run; others for other arguments and files

    def test_a_key_replaces_knowledge_of_functions(self, images: Images, tmp_path: Path) -> None:
        for key in ("1", "1", "2"):

            def define(key: str = key) -> Any:
                nodes = fn.external_source(images, num_outputs=2, batch=False, parallel=True)
                return tuple(fn.cache(*nodes, disk=tmp_path / "disk", key=key))

            with make(define, py_num_workers=1, py_start_method="thread") as pipe:
                assert [*epochs_of(pipe, 1)] == [[*range(SIZE)]]
        assert images.called == sorted(2 * [*range(SIZE)])


def test_a_serialized_pipeline_has_no_caches(images: Images) -> None:
    def define() -> Any:
        image = fn.external_source(images, num_outputs=2, batch=False)[0]
        return fn.resize(fn.cache(image, memory="1MiB"), size=[4, 4])

    text = make(define).serialize()
    assert b"cache" not in text
    forged = text.replace(b'"fn.resize"', b'"fn.cache"')
    assert Pipeline.deserialize(text).batch_size == 5
    with pytest.raises(errors.SerializationError, match=r"there is no operator 'fn\.cache'"):
        Pipeline.deserialize(forged)


def test_statistics_have_the_size_of_a_cache(images: Images) -> None:
    def define() -> Any:
        return tuple(fn.external_source(images, num_outputs=2, batch=False, size=SIZE))

    with make(define) as pipe:
        list(pipe)
        (source,) = pipe.statistics().sources
    assert SIZE * 200 <= source.cacheable_bytes < SIZE * 300


def test_the_report_shows_hits(images: Images) -> None:
    def define() -> Any:
        return tuple(fn.external_source(images, num_outputs=2, batch=False, cache="1MiB"))

    with make(define) as pipe:
        list(epochs_of(pipe, 2))
        text = str(pipe.report())
    assert "20 elements" in text
    assert "epoch 1: 20 hits" in text


def write_files(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for i in range(SIZE):
        np.save(folder / f"{i:02}.npy", np.full(3, i))
        os.utime(folder / f"{i:02}.npy", (1, 1))
