"""``fn.readers.nemo_asr`` beside the real DALI: manifests, parts of files, filters, types, shards."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import nvidia.dali
import pytest

import dali_like
from tests.audio_files import audio, encoded

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("audio")
    for i in range(4):
        encoded(audio(100 + 10 * i, 1 + i % 2, seed=i), 16000 if i < 3 else 8000).tofile(root / f"{i}.wav")
    (root / "broken.wav").write_bytes(b"RIFFxxxx")
    entries = [
        {"audio_filepath": "0.wav", "duration": 1.5, "text": "hello"},
        {"audio_filepath": "1.wav", "duration": 2.5, "text": "wörld 😀"},
        {"audio_filepath": "2.wav", "offset": 0.002, "duration": 0.00206, "text": "x", "other": {"text": ["no"]}},
        {"audio_filepath": "3.wav"},
        {"audio_filepath": "2.wav", "offset": 0.0012, "text": ""},
        {"audio_filepath": "0.wav", "offset": -1, "duration": 0.001, "text": "line\nfeed"},
        {"audio_filepath": "0.wav", "offset": 0.00625, "duration": 1, "text": "at the end"},
    ]
    for entry in entries:
        entry["audio_filepath"] = str(root / str(entry["audio_filepath"]))
    lines = [json.dumps(entry, ensure_ascii=i % 2 == 0) for i, entry in enumerate(entries)]
    (root / "all.json").write_text("\n".join(lines) + "\n")
    (root / "second.json").write_text("\r\n".join(lines[:2]))
    (root / "gaps.json").write_bytes(
        b'\n\n{"text": "x"}\nhello\n'
        + os.fsencode(f'{{"audio_filepath": "{root}/0.wav", "text": "')
        + b'\xff"}\n[1, 2]\n  \n'
    )
    (root / "nothing.json").write_text('{"text": "x"}\n')
    (root / "missing.json").write_text('{"audio_filepath": "/none.wav"}\n')
    (root / "broken.json").write_text(json.dumps({"audio_filepath": str(root / "broken.wav")}))
    (root / "beyond.json").write_text(json.dumps({"audio_filepath": str(root / "0.wav"), "offset": 0.01}))
    return root


def read(dali: ModuleType, root: Path, *manifests: str, count: int = 0, **options: Any) -> list[list[np.ndarray]]:
    """The outputs of the first samples; all of an epoch by default."""
    if "dtype" in options:
        options["dtype"] = getattr(dali.types, options["dtype"])
    pipe = dali.Pipeline(1, 1, None, **({"py_num_workers": 0} if dali is dali_like else {}))
    try:
        with pipe:
            made = dali.fn.readers.nemo_asr(
                manifest_filepaths=[str(root / manifest) for manifest in manifests], name="reader", **options
            )
            pipe.set_outputs(*(made if isinstance(made, (list, tuple)) else [made]))
        pipe.build()
        batches = []
        for _ in range(count or pipe.epoch_size("reader")):
            batches.append([np.array(output.at(0)) for output in pipe.run()])
        return batches
    finally:
        if dali is dali_like:
            pipe.close()


@pytest.mark.filterwarnings("ignore:.*lines are skipped")
@pytest.mark.parametrize(
    ("manifests", "options"),
    [
        (["all.json"], {"read_idxs": True}),
        (["all.json"], {"read_sample_rate": False, "read_text": False}),
        (["all.json"], {"read_sample_rate": False, "read_text": False, "read_idxs": True, "downmix": False}),
        (["all.json"], {"dtype": "INT16"}),
        (["all.json"], {"dtype": "INT32", "downmix": False}),
        (["all.json"], {"min_duration": 0.0005, "read_idxs": True}),
        (["all.json"], {"max_duration": 1.5, "read_idxs": True}),
        (["all.json"], {"min_duration": 1.5, "max_duration": 1.5, "read_idxs": True}),
        (["all.json"], {"num_shards": 3, "shard_id": 1, "read_idxs": True, "count": 9}),
        (["all.json"], {"num_shards": 2, "shard_id": 1, "stick_to_shard": True, "pad_last_batch": True, "count": 9}),
        (["all.json"], {"sample_rate": 0.0, "quality": 0.0}),
        (["second.json", "all.json"], {"read_idxs": True}),
        (["gaps.json"], {"read_idxs": True}),
    ],
    ids=str,
)
def test_the_same_samples(manifests: list[str], options: dict[str, Any], root: Path) -> None:
    theirs, ours = (read(dali, root, *manifests, **options) for dali in (nvidia.dali, dali_like))

    assert len(ours) == len(theirs)
    for sample, other in zip(ours, theirs, strict=True):
        assert [(each.dtype, each.shape) for each in sample] == [(each.dtype, each.shape) for each in other]
        # The mean of two channels is rounded another way.
        np.testing.assert_allclose(sample[0], other[0], atol=256 if sample[0].dtype == np.int32 else 2.0**-23)
        for each, one in zip(sample[1:], other[1:], strict=True):
            np.testing.assert_array_equal(each, one)


def test_resampled_files_keep_their_rate_in_the_output(root: Path) -> None:
    theirs, ours = (read(dali, root, "all.json", sample_rate=4000.0) for dali in (nvidia.dali, dali_like))

    assert [sample[0].shape for sample in ours] == [sample[0].shape for sample in theirs]
    assert [sample[1].item() for sample in ours] == [sample[1].item() for sample in theirs]


@pytest.mark.filterwarnings("ignore:.*lines are skipped")
@pytest.mark.parametrize(
    ("manifests", "options"),
    [
        ([], {}),
        (["none.json"], {}),
        (["nothing.json"], {}),
        (["missing.json"], {}),
        (["broken.json"], {}),
        (["beyond.json"], {}),
        (["all.json"], {"min_duration": 100.0}),
        (["all.json"], {"quality": 101.0}),
        (["all.json"], {"dtype": "FLOAT64"}),
    ],
    ids=str,
)
def test_errors(manifests: list[str], options: dict[str, Any], root: Path) -> None:
    for dali in (nvidia.dali, dali_like):
        with pytest.raises((RuntimeError, ValueError)):
            read(dali, root, *manifests, count=1, **options)
