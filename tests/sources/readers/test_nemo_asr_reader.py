"""``fn.readers.nemo_asr``: manifests, parts of files, broken input. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops, types
from dali_like.errors import ArgumentError, BrokenFileError, DaliLikeError, MissingFileError
from tests.audio_files import audio, encoded
from tests.conftest import in_both_places

from .reading import pipeline_with


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three files, of 100, 110 and 120 frames at 16 kHz; the second one has two channels."""
    for i in range(3):
        encoded(audio(100 + 10 * i, 1 + i % 2, seed=i), subtype="FLOAT").tofile(tmp_path / f"{i}.wav")
    return tmp_path


def manifest(root: Path, *entries: Any, name: str = "manifest.json") -> Path:
    """Write a manifest. An entry is the number of a file, with other values, or a line of text."""
    lines = [
        entry
        if isinstance(entry, str)
        else json.dumps({"audio_filepath": str(root / f"{entry[0]}.wav"), **entry[1]}, ensure_ascii=False)
        for entry in entries
    ]
    (root / name).write_bytes(os.fsencode("\n".join(lines) + "\n"))
    return root / name


def outputs(path: Any, count: int = 1, **options: Any) -> list[list[np.ndarray]]:
    """The outputs of the first samples."""
    with pipeline_with(fn.readers.nemo_asr, count, manifest_filepaths=path, **options) as pipe:
        batch = pipe.run()
        return [[np.array(output.at(i)) for output in batch] for i in range(count)]


def test_audio_rate_text_and_number(root: Path) -> None:
    path = manifest(root, (0, {"text": "hello"}), (1, {"text": "wörld\u2028://"}), (2, {}))
    first, second, third = outputs(path, 3, read_idxs=True)

    np.testing.assert_array_equal(first[0], audio(100)[:, 0])
    np.testing.assert_allclose(second[0], audio(110, 2, seed=1).mean(axis=1), atol=1e-6)
    assert [each[1].item() for each in (first, second, third)] == [16000] * 3
    assert [each[2].tobytes().decode() for each in (first, second, third)] == ["hello", "wörld\u2028://", ""]
    assert [each[3].tolist() for each in (first, second, third)] == [[0], [1], [2]]
    assert [output.dtype for output in first] == [np.float32, np.float32, np.uint8, np.int64]


def test_chosen_outputs(root: Path) -> None:
    path = str(manifest(root, (0, {}), (1, {})))
    with pipeline_with(fn.readers.nemo_asr, manifest_filepaths=[path], read_sample_rate=False, read_text=False) as pipe:
        [batch] = pipe.run()
        assert [batch.at(i).shape for i in range(2)] == [(100,), (110,)]
    [first] = outputs(path, read_sample_rate=False, read_text=False, read_idxs=True, downmix=False, dtype=types.INT16)
    assert [(output.dtype.name, output.shape) for output in first] == [("int16", (100, 1)), ("int64", (1,))]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"offset": 0.001, "duration": 0.0015}, (16, 40)),
        ({"offset": 0.001}, (16, 100)),
        ({"duration": 0.00106}, (0, 16)),
        ({"offset": -1, "duration": 0.001}, (0, 16)),
        ({"offset": 0.006, "duration": 100}, (96, 100)),
        ({"duration": -1}, (0, 100)),
        ({"duration": 0}, (0, 0)),
    ],
    ids=str,
)
def test_parts_of_files(part: dict[str, float], expected: tuple[int, int], root: Path) -> None:
    [[samples, *_]] = outputs(manifest(root, (0, part)))
    np.testing.assert_array_equal(samples, audio(100)[slice(*expected), 0])


def test_durations_filter(root: Path) -> None:
    path = manifest(root, (0, {}), (1, {"duration": 0.001}), (2, {"duration": 0.003}))

    def lengths(**options: float) -> list[int]:
        with pipeline_with(fn.readers.nemo_asr, 1, manifest_filepaths=path, name="reader", **options) as pipe:
            pipe.build()
            return [len(pipe.run()[0].at(0)) for _ in range(pipe.epoch_size("reader"))]

    assert lengths() == [100, 16, 48]
    assert lengths(min_duration=0.001) == [16, 48]
    assert lengths(max_duration=0.002) == [100, 16]
    assert lengths(min_duration=0.002, max_duration=0.003) == [48]
    with pytest.raises(ArgumentError, match="No files found"):
        lengths(min_duration=5)


def test_resampling_keeps_the_rate_of_the_file_in_the_output(root: Path) -> None:
    [[samples, rate, _]] = outputs(manifest(root, (0, {})), sample_rate=8000)
    assert (len(samples), rate.item()) == (50, 16000)


def test_several_manifests_and_urls(root: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/nemo/2.wav", (root / "2.wav").read_bytes())
    memory.pipe("/nemo/m.json", json.dumps({"audio_filepath": "memory://nemo/2.wav", "text": "far"}).encode())
    try:
        near, far = outputs([str(manifest(root, (0, {"text": "near"}))), "memory://nemo/m.json"], 2, read_idxs=True)
    finally:
        memory.rm("/nemo", recursive=True)

    assert [each[2].tobytes() for each in (near, far)] == [b"near", b"far"]
    assert [each[3].item() for each in (near, far)] == [0, 0]
    np.testing.assert_array_equal(far[0], audio(120, seed=2)[:, 0])


@in_both_places
def test_in_workers(root: Path, way: str) -> None:
    options: dict[str, Any] = {"py_num_workers": 0} if way == "serial" else {"py_start_method": way}
    pipe = Pipeline(2, 2, None, **options)
    with pipe:
        samples, _, text = ops.readers.NemoAsr(
            manifest_filepaths=str(manifest(root, (0, {"text": "a"}), (2, {"text": "b"})))
        )()
        pipe.set_outputs(samples * 2.0, text)
    try:
        samples, text = pipe.run()
        np.testing.assert_array_equal(samples.at(1), audio(120, seed=2)[:, 0] * 2)
        assert [bytes(text.at(i)) for i in range(2)] == [b"a", b"b"]
    finally:
        pipe.close()


def test_useless_lines_are_skipped(root: Path) -> None:
    useless = ["", "  ", "hello", "[1, 2]", '{"text": "x"}', '{"audio_filepath": ""}', '{"audio_filepath": "1.w']
    path = manifest(root, *useless, (0, {"text": "kept"}))
    with pytest.warns(UserWarning, match=r"manifest.json: 5 lines are skipped, .* the first one is line 3"):
        [[_, _, text, number]] = outputs(path, read_idxs=True)
    assert (text.tobytes(), number.item()) == (b"kept", 0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"text": 5}, '"text" must be a string, not 5'),
        ({"text": None}, '"text" must be a string, not None'),
        ({"audio_filepath": 3}, '"audio_filepath" must be a string, not 3'),
        ({"duration": "1.0"}, "\"duration\" must be a number of seconds, not '1.0'"),
        ({"offset": float("nan")}, '"offset" must be a number of seconds, not nan'),
    ],
    ids=str,
)
def test_wrong_values(entry: dict[str, Any], message: str, root: Path) -> None:
    with pytest.raises(BrokenFileError, match=f"manifest.json:2: {message}") as caught:
        outputs(manifest(root, (0, {}), (0, entry)))
    assert caught.value.file == str(root / "manifest.json")


def test_text_that_is_not_unicode(root: Path) -> None:
    with pytest.raises(BrokenFileError, match=r'manifest.json:1: "text" is not valid Unicode'):
        outputs(manifest(root, '{"audio_filepath": "a", "text": "\\ud800"}'))


def test_names_and_texts_that_are_not_utf8(root: Path) -> None:
    name = os.fsencode(root) + b"/\xff\xe9.wav"
    os.rename(root / "0.wav", os.fsdecode(name))
    (root / "manifest.json").write_bytes(b'{"audio_filepath": "' + name + b'", "text": "\xff"}')

    [[samples, _, text]] = outputs(root / "manifest.json")
    assert (len(samples), text.tobytes()) == (100, b"\xff")


def test_broken_files(root: Path) -> None:
    (root / "3.wav").write_bytes(b"RIFFxxxx")
    (root / "4.wav").write_bytes(encoded(audio(1000), 16000, "FLAC")[:1500].tobytes())
    for entry, message in (
        ((3, {}), "3.wav: cannot decode audio"),
        ((4, {}), "4.wav: cannot decode audio: .*flac"),
        ((0, {"offset": 0.01}), "0.wav: the offset of 0.01 s is beyond the end of the audio, at 0.00625 s"),
    ):
        with pytest.raises(BrokenFileError, match=message) as caught:
            outputs(manifest(root, entry))
        assert caught.value.file == str(root / f"{entry[0]}.wav")
        assert "sample 0" in "".join(caught.value.__notes__)
    with pytest.raises(MissingFileError, match=r"5.wav does not exist"):
        outputs(manifest(root, (5, {})))
    with pytest.raises(MissingFileError, match=r"none.json does not exist"):
        outputs(root / "none.json")
    [_, [samples, *_]] = outputs(manifest(root, (0, {}), (3, {}), (2, {})), 2, on_error="skip")
    assert len(samples) == 120


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"manifest_filepaths": []}, "manifest_filepaths can not be empty"),
        ({"quality": 101}, "quality must be .* 0 to 100"),
        ({"dtype": types.FLOAT64}, "dtype must be .*INT16, INT32"),
    ],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DaliLikeError, match=f"fn.readers.nemo_asr: {message}"):
        fn.readers.nemo_asr(**{"manifest_filepaths": "a", **options})


def test_normalize_text_is_deprecated(root: Path) -> None:
    with pytest.warns(DeprecationWarning, match="normalize_text has no effect"):
        fn.readers.nemo_asr(manifest_filepaths=str(root), normalize_text=True)
