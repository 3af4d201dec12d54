"""``get_property`` and ``dump_image``, against DALI."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.parity.conftest import OURS
from tests.parity.operators import compare, error_of, outputs

pytestmark = pytest.mark.peers

PICTURES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(2)]


@pytest.mark.parametrize("layout", ["HWC", "", "ABC"])
def test_layouts(layout, dali):
    def define(library, data):
        fn = library.fn
        return [
            fn.get_property(data, key="layout"),
            fn.get_property(fn.transpose(data, perm=[2, 0, 1]), key="layout"),
            fn.get_property(fn.expand_dims(data, axes=[0]), key="layout"),
            fn.get_property(data, key="source_info"),
        ]

    compare(dali, define, [PICTURES], [layout])


def test_unknown_properties(dali):
    for library in (OURS, dali):
        assert error_of(library, lambda library, data: library.fn.get_property(data, key="colour"), [PICTURES]) is not None
        assert error_of(library, lambda library, data: library.fn.get_property(data), [PICTURES]) is not None


def test_files(dali, tmp_path, monkeypatch):
    def define(library, data):
        return [library.fn.dump_image(data), library.fn.dump_image(data[:, :, :1], suffix="abc")]

    written = []
    for library in (OURS, dali):
        folder = tmp_path / str(len(written))
        folder.mkdir()
        monkeypatch.chdir(folder)
        results = outputs(library, define, [PICTURES], ["HWC"])
        files = {path.name: path.read_text("ascii").split() for path in folder.iterdir()}
        written.append((files, [(result.layout, [sample.tolist() for sample in result.samples]) for result in results]))

    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("samples", "arguments"),
    [
        (PICTURES, {"input_layout": "CHW"}),
        ([picture[:, :, :2] for picture in PICTURES], {}),
        ([picture[:, :, 0] for picture in PICTURES], {}),
        ([picture.astype(np.float32) for picture in PICTURES], {}),
    ],
    ids=["layout", "channels", "dimensions", "dtype"],
)
def test_dump_image_refuses_samples_that_are_not_images(samples, arguments, dali, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for library in (OURS, dali):
        assert error_of(library, lambda library, data: library.fn.dump_image(data, **arguments), [samples]) is not None


def file_names(library, define):
    """Return the text of each output of the first batch."""
    with library.pipeline(define, batch_size=2) as pipe:
        return [[bytes(np.array(batch.at(i))) for i in range(2)] for batch in pipe.run()]


def test_names_of_files(dali, tmp_path):
    for i in range(2):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{i}.png").write_bytes(bytes(10 + i))
        np.save(tmp_path / f"{i}.npy", np.arange(6).reshape(2, 3) + i)
        np.save(tmp_path / "a" / f"{i}.npy", np.arange(6).reshape(2, 3))
    paths = [str(tmp_path / "a" / f"{i}.png") for i in range(2)]

    def define(library):
        fn = library.fn
        data, label = fn.readers.file(file_root=str(tmp_path))
        array = fn.readers.numpy(file_root=str(tmp_path), file_filter="*.npy")
        nodes = [
            data,
            label,
            fn.cat(data, fn.cast(label, dtype=library.types.UINT8)),
            fn.reshape(data, shape=[1, -1])[0] + 1,
            fn.readers.file(files=paths)[0],
            array,
            fn.transpose(array),
            fn.slice(array, start=[0], end=[1], axes=[0]),
            fn.readers.numpy(file_root=str(tmp_path), files=["1.npy", "a/0.npy"]),
        ]
        return (
            *(fn.get_property(node, key="source_info") for node in nodes),
            data.source_info(),
            array.property("source_info"),
            data.property("layout"),
        )

    ours, theirs = (file_names(library, lambda library=library: define(library)) for library in (OURS, dali))

    assert ours == theirs
    assert ours[0] == [b"a/0.png", b"a/1.png"]
