"""Properties of samples, and images as files."""

from __future__ import annotations

import numpy as np
import pytest

from dali_like import Pipeline, fn, types
from dali_like.errors import ArgumentError, SampleError
from tests.operators.running import WAYS, run

PICTURES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(2)]


@pytest.mark.parametrize("way", WAYS)
def test_layouts(way):
    def define(pictures):
        return [fn.get_property(pictures, key="layout"), fn.get_property(pictures[0], key="layout")]

    ((whole, row),) = run(define, PICTURES, layouts=["HWC"], way=way)

    assert [bytes(text) for text in (*whole, *row)] == [b"HWC", b"HWC", b"WC", b"WC"]


def test_sources_without_names():
    ((info, same),) = run(lambda data: [fn.get_property(data, key="source_info"), data.source_info()], PICTURES)

    assert [part.shape for part in (*info, *same)] == [(0,)] * 4


@pytest.mark.parametrize("way", WAYS)
def test_images_become_files(way, tmp_path, monkeypatch):
    cv2 = pytest.importorskip("cv2")
    monkeypatch.chdir(tmp_path)

    def define(pictures):
        gray = fn.dump_image(pictures[:, :, :1], suffix="gray")
        return [fn.dump_image(pictures), gray]

    ((images, gray),) = run(define, PICTURES, layouts=["HWC"], way=way)

    for i, picture in enumerate(PICTURES):
        np.testing.assert_array_equal(images[i], picture, strict=True)
        np.testing.assert_array_equal(cv2.imread(str(tmp_path / f"{i}--0.ppm"))[:, :, ::-1], picture)
        np.testing.assert_array_equal(gray[i], picture[:, :, :1], strict=True)
        np.testing.assert_array_equal(cv2.imread(str(tmp_path / f"{i}-gray-0.ppm"), 0), picture[:, :, 0])


def test_dump_image_refuses_arrays_that_are_not_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for samples in ([np.zeros((2, 2), np.uint8)], [np.zeros((2, 2, 2), np.uint8)], [np.zeros((2, 2, 3), np.float32)]):
        with pytest.raises(SampleError, match="writes uint8 images of shape"):
            run(fn.dump_image, samples)
    with pytest.raises(ArgumentError, match="input_layout must be 'HWC', not 'CHW'"):
        fn.dump_image(fn.external_source(name="x"), input_layout="CHW")
    assert [*tmp_path.iterdir()] == []


class TestNamesOfFiles:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "a").mkdir()
        for i in range(3):
            (tmp_path / "a" / f"{i}.png").write_bytes(bytes([i] * (5 + i)))
        return tmp_path

    def define(self, folder):
        data, label = fn.readers.file(file_root=str(folder), name="files", random_shuffle=True, seed=3)
        chosen = fn.cast(data, dtype=types.INT16)[:1]
        return [fn.get_property(chosen, key="source_info"), chosen, data.source_info(), label.source_info()]

    def texts(self, pipe):
        try:
            return [[bytes(np.array(batch.at(i))) for i in range(3)] for batch in pipe.run()]
        finally:
            pipe.close()

    @pytest.mark.parametrize("options", [{"py_num_workers": 0}, {"py_num_workers": 1, "py_start_method": "thread"}])
    def test_behind_operators(self, folder, options):
        pipe = Pipeline(batch_size=3, num_threads=1, **options)
        with pipe:
            pipe.set_outputs(*self.define(folder))

        infos, firsts, same, of_labels = self.texts(pipe)

        assert sorted(infos) == [b"a/0.png", b"a/1.png", b"a/2.png"]
        assert [f"a/{first[0]}.png".encode() for first in firsts] == infos == same
        assert of_labels == [b""] * 3

    def test_in_a_serialized_pipeline(self, folder):
        pipe = Pipeline(batch_size=3, num_threads=1, py_num_workers=0)
        with pipe:
            pipe.set_outputs(*self.define(folder))
        again = Pipeline.deserialize(pipe.serialize())

        assert self.texts(again) == self.texts(pipe)
