"""Sample caches of composed datasets."""

import contextlib
import logging
import os
import random
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dali_like import errors, fn, pipeline_def
from dali_like.data import CachedDataset, ComposedDataset, DataLoader


class Images:
    """Images of one value each. Writes a line to a file for each computed image."""

    def __init__(self, log: Path, size: int = 60) -> None:
        self.log = log
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, object]:
        with self.log.open("a") as file:
            file.write(f"{index}\n")
        return {"image": np.full((40, 40, 3), index, np.uint8), "label": index, "name": f"image {index}"}

    @property
    def computed(self) -> list[int]:
        return [int(line) for line in self.log.read_text().split()]


def shifted(element, generator):
    return {**element, "shift": int(generator.integers(1000))}


def loader_arguments(method: str | None) -> dict[str, object]:
    return {} if method is None else {"num_workers": 2, "multiprocessing_context": method}


def epoch_of(dataset, **arguments):
    labels = []
    for batch in DataLoader(dataset, batch_size=8, **arguments):
        images = np.asarray(batch["image"])
        assert (images == np.asarray(batch["label"])[:, None, None, None]).all()
        assert list(batch["name"]) == [f"image {label}" for label in np.asarray(batch["label"])]
        labels += np.asarray(batch["label"]).tolist()
    return labels


@pytest.fixture
def images(tmp_path):
    return Images(tmp_path / "log")


@pytest.mark.parametrize("method", [None, "thread", "fork", "spawn"])
@pytest.mark.parametrize("policy", ["keep", "lru"])
def test_each_element_is_computed_once(images, method, policy):
    cached = ComposedDataset.source(images).cache("10MiB", policy=policy)
    dataset = cached.shuffle().map(shifted, rng=True)
    for _ in range(3):
        assert sorted(epoch_of(dataset, **loader_arguments(method))) == list(range(60))
    assert sorted(images.computed) == list(range(60))
    counts = cached.caches[0].statistics().epochs
    assert (counts[0].misses, counts[0].hits) == (60, 120)  # each loader begins with epoch 0
    assert counts[0].hit_bytes > 120 * 4800


@pytest.mark.parametrize("method", [None, "fork"])
@pytest.mark.parametrize("policy", ["keep", "lru"])
def test_the_budget_holds(images, method, policy):
    dataset = ComposedDataset.source(images).cache(10 * 8192, policy=policy)
    for _ in range(3):
        assert sorted(epoch_of(dataset.shuffle(), **loader_arguments(method))) == list(range(60))
        statistics = dataset.caches[0].statistics()
        assert 0 < statistics.stored < 60
        assert statistics.used_bytes <= statistics.budget_bytes == 10 * 8192
    assert (statistics.evicted > 0) == (policy == "lru")


def test_the_stream_is_the_same_with_a_cache(images):
    plain = ComposedDataset.source(images)
    cached = plain.cache("10MiB")
    assert cached.description == plain.description
    streams = [
        [(e["label"], e["shift"]) for e in dataset.shuffle().map(shifted, rng=True)] for dataset in (plain, cached, cached)
    ]
    assert streams[0] == streams[1] == streams[2]


def test_hits_are_read_only_views(images):
    dataset = ComposedDataset.source(images).cache("10MiB")
    first, second = dataset[3], dataset[3]
    assert first["image"].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        second["image"][0] = 1
    third = dataset[3]["image"]
    assert np.shares_memory(second["image"], third)


def test_lru_returns_copies(images):
    dataset = ComposedDataset.source(images).cache(4 * 8192, policy="lru")
    dataset[0]
    hit = dataset[0]["image"]
    for i in range(1, 60):
        dataset[i]
    assert (hit == 0).all()
    assert dataset.caches[0].statistics().evicted >= 50


def test_least_recently_used_entries_are_replaced(images):
    dataset = ComposedDataset.source(images).cache(3 * 8192, policy="lru")
    for i in (0, 1, 2, 0, 3, 0, 4, 0):
        dataset[i]
    assert images.computed.count(0) == 1


def values_of(index):
    return (
        [np.arange(index), np.float32(index), True, None, b"\0bytes", 1.5],
        {"nested": {"empty": np.zeros((0, 3)), "scalar": np.array(7)}},
        -index,
        "déjà",
    )


def test_elements_keep_their_types():
    dataset = ComposedDataset.source(range(4)).map(values_of).cache("1MiB")
    for _ in range(2):
        for index, element in enumerate(dataset):
            (array, scalar, flag, nothing, data, number), nested, integer, text = element
            assert (array.tolist(), array.dtype) == (list(range(index)), np.arange(1).dtype)
            assert (scalar, scalar.__class__) == (index, np.float32)
            assert (flag, nothing, data, number) == (True, None, b"\0bytes", 1.5)
            assert (nested["nested"]["empty"].shape, nested["nested"]["scalar"].shape) == ((0, 3), ())
            assert (integer, text) == (-index, "déjà")
            assert (element.__class__, element[0].__class__) == (tuple, list)


def test_other_elements_are_refused():
    dataset = ComposedDataset.source([{1, 2}], name="sets").cache("1MiB")
    with pytest.raises(errors.SampleTypeError, match=r"cache behind sets\[1\] cannot store a set"):
        dataset[0]


def test_random_stages_are_refused_by_name(images):
    dataset = ComposedDataset.source(images)
    with pytest.raises(errors.ArgumentError, match=r"behind the random stage map\(shifted, rng=True\)"):
        dataset.map(shifted, rng=True).map(len).cache("1MiB")
    for other in (dataset.shuffle(), dataset.shuffle(block=8), ComposedDataset.mix([dataset, dataset])):
        with pytest.raises(errors.ArgumentError, match="behind the random stage"):
            other.take(3).cache("1MiB")


def test_streams_without_random_access_are_refused(images):
    dataset = ComposedDataset.source(images)
    with pytest.raises(errors.ArgumentError, match="runs in logical shards"):
        dataset.filter(bool).cache("1MiB")
    with pytest.raises(errors.ArgumentError, match="endless"):
        dataset.repeat().cache("1MiB")


@pytest.mark.parametrize("memory", ["1 GiB ", "0.5kB", "much", 0, -1, "0MB"])
def test_sizes_are_checked(images, memory):
    dataset = ComposedDataset.source(images)
    if memory == "1 GiB ":
        assert dataset.cache(memory).caches[0].options.memory_bytes == 1 << 30
        return
    with pytest.raises(errors.ArgumentError, match="memory"):
        dataset.cache(memory)


def test_a_filter_may_follow(images):
    dataset = (
        ComposedDataset.source(images).cache("10MiB").filter(lambda element: element["label"] % 2).with_options(shards=2)
    )
    for _ in range(2):
        assert sorted(epoch_of(dataset, **loader_arguments("fork"))) == list(range(1, 60, 2))
    assert set(images.computed) == set(range(60))
    assert len(images.computed) < 90  # the end of an epoch may stop workers before their last report


def as_outputs(element):
    return element["image"], np.int64(element["label"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pipelines(images, method):
    dataset = ComposedDataset.source(images).map(as_outputs).cache("10MiB")

    @pipeline_def(batch_size=10, num_threads=1, device_id=None, py_num_workers=2, py_start_method=method)
    def pipe():
        return tuple(fn.external_source(dataset.shuffle(), num_outputs=2, parallel=True))

    with pipe() as pipeline:
        for _ in range(2):
            seen = []
            for _ in range(6):
                arrays, labels = (np.asarray(output.as_array()) for output in pipeline.run())
                assert (arrays == labels[:, None, None, None]).all()
                seen += labels.tolist()
            assert sorted(seen) == list(range(60))
            with pytest.raises(StopIteration):
                pipeline.run()
            pipeline.reset()
    assert set(images.computed) == set(range(60))
    assert len(images.computed) < 100  # workers begin the second epoch during the first


def killing(marker, element):
    if element["label"] % 7 == 3:
        try:
            os.close(os.open(f"{marker}{element['label']}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return element
        os.kill(os.getpid(), signal.SIGKILL)
    return element


def test_workers_may_be_killed_while_it_fills(images, tmp_path):
    dataset = ComposedDataset.source(images).map(partial(killing, tmp_path / "died")).cache("2MiB")
    for _ in range(3):
        assert epoch_of(dataset, worker_restarts=None, **loader_arguments("fork")) == list(range(60))
        statistics = dataset.caches[0].statistics()
        assert statistics.used_bytes <= statistics.budget_bytes
    assert len(list(tmp_path.glob("died*"))) == 9
    assert statistics.stored == 60
    assert statistics.epochs[0].misses == 60


@pytest.mark.parametrize("policy", ["keep", "lru"])
def test_any_worker_may_be_killed_at_any_time_while_it_fills(images, policy):
    choose = random.Random(0)
    dataset = ComposedDataset.source(images).cache(20 * 8192, policy=policy)
    loader = DataLoader(dataset, batch_size=4, num_workers=2, worker_restarts=None, multiprocessing_context="fork")
    for _ in range(3):
        labels = []
        for number, batch in enumerate(loader):
            assert (batch["image"] == batch["label"][:, None, None, None]).all()
            labels += batch["label"].tolist()
            pids = [worker.pid for worker in loader.statistics().workers if worker.pid]
            if number % 3 == 0 and pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(choose.choice(pids), signal.SIGKILL)
            statistics = dataset.caches[0].statistics()
            assert statistics.used_bytes <= statistics.budget_bytes == 20 * 8192
        assert labels == list(range(60))


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_map_style_datasets(images, method):
    dataset = CachedDataset(images, "10MiB")
    for _ in range(2):
        assert sorted(epoch_of(dataset, shuffle=True, **loader_arguments(method))) == list(range(60))
    assert len(images.computed) == 60
    assert dataset[-1]["label"] == 59
    with pytest.raises(IndexError):
        dataset[60]


def test_statistics_and_report_show_hits(images):
    loader = DataLoader(ComposedDataset.source(images).cache("10MiB"), batch_size=8)
    for _ in range(2):
        list(loader)
    (cache,) = loader.statistics().sources[0].caches
    assert [(counts.hits, counts.misses) for counts in cache.epochs.values()] == [(0, 60), (60, 0)]
    assert "60 elements" in str(loader.report())
    assert "epoch 1: 60 hits" in str(loader.report())


class TestOnDisk:
    @pytest.mark.parametrize("memory", [None, "1MiB"])
    @pytest.mark.parametrize("method", [None, "fork"])
    def test_another_run_reads_the_files(self, images, tmp_path, method, memory):
        for _ in range(2):
            dataset = ComposedDataset.source(images).cache(memory, disk=tmp_path / "disk", key="1")
            assert epoch_of(dataset, **loader_arguments(method)) == list(range(60))
        assert len(images.computed) == 60
        assert dataset.caches[0].statistics().epochs[0].disk_hits == 60
        assert (tmp_path / "disk").stat().st_mode & 0o777 == 0o700

    def test_another_key_is_another_cache(self, images, tmp_path):
        for key in "12":
            list(ComposedDataset.source(images).cache(disk=tmp_path / "disk", key=key))
        assert len(images.computed) == 120

    def test_a_changed_input_file_is_noticed(self, tmp_path):
        path = tmp_path / "input"
        for content in (b"one", b"three", b"three"):
            path.write_bytes(content)
            dataset = ComposedDataset.source([str(path)]).map(read).cache(disk=tmp_path / "disk", key="1")
            assert dataset[0] == content
        os.utime(path, (1, 1))
        changed = ComposedDataset.source([str(path)]).map(read).cache(disk=tmp_path / "disk", key="1")
        assert changed.caches[0].folder.path != dataset.caches[0].folder.path

    @pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:20] + b"!" + data[21:], lambda data: b""])
    @pytest.mark.parametrize("place", [1, -2])
    def test_a_damaged_file_is_computed_again(self, images, tmp_path, damage, place, caplog):
        for _ in range(2):
            dataset = ComposedDataset.source(images).take(1).cache(disk=tmp_path / "disk", key="1")
            assert (dataset[0]["image"] == 0).all()
            (file,) = (tmp_path / "disk").glob("*/*/*.entry")
            data = file.read_bytes()
            file.write_bytes(damage(data) if place == 1 else data[:place] + b"??")
        with caplog.at_level(logging.WARNING, "dali_like"):
            assert (dataset[0]["image"] == 0).all()
        assert "is damaged, and the element is computed again" in caplog.text
        assert file.read_bytes() == data
        assert len(images.computed) == 3

    def test_a_folder_open_to_other_users_is_refused(self, images, tmp_path):
        (tmp_path / "disk").mkdir(mode=0o755)
        (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
        for name in ("disk", "link"):
            with pytest.raises(errors.ArgumentError, match=r"nobody else may enter.*chmod 700"):
                ComposedDataset.source(images).cache(disk=tmp_path / name, key="1")

    def test_files_of_killed_writers_are_removed(self, images, tmp_path):
        list(ComposedDataset.source(images).take(1).cache(disk=tmp_path / "disk", key="1"))
        (file,) = (tmp_path / "disk").glob("*/*/*.entry")
        old, young = file.with_name("1.entry.7.part"), file.with_name("2.entry.7.part")
        for part in (old, young):
            part.write_bytes(b"")
        os.utime(old, (1, 1))
        dataset = ComposedDataset.source(images).take(1).cache(disk=tmp_path / "disk", key="1")
        assert (old.exists(), young.exists()) == (False, True)
        assert dataset[0]["label"] == 0

    def test_arguments_are_checked(self, images, tmp_path):
        with pytest.raises(errors.ArgumentError, match="a cache needs memory="):
            ComposedDataset.source(images).cache()
        with pytest.raises(errors.ArgumentError, match='key="decode-1"'):
            ComposedDataset.source(images).cache(disk=tmp_path / "disk")


def read(path):
    return Path(path).read_bytes()
