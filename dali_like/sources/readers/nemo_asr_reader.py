"""``fn.readers.nemo_asr``: audio and transcripts, listed in manifests of NVIDIA NeMo."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from dali_like.common.checks import positive
from dali_like.common.json_text import json_value
from dali_like.common.notices import warn
from dali_like.common.saved_arguments import SavedTexts
from dali_like.errors import ArgumentError, BrokenFileError, DecodeError
from dali_like.images.decoding_limit import READER_LIMIT_BYTES, DecodingLimit
from dali_like.sources.readers.audio_decoding import AudioOptions, decode_audio
from dali_like.sources.readers.reader import Reader, reader
from dali_like.sources.readers.stored_files import FileNames, is_url, shown
from dali_like.types import SampleInfo

_FLOAT = np.dtype(np.float32)


@reader(path="readers.nemo_asr")
class NemoAsrReader(Reader):
    """Reads audio and its transcripts, as listed in manifests of NVIDIA NeMo.

    A manifest has a JSON object per line, with `audio_filepath`, and optionally `duration` and `offset` in seconds and
    `text`. An entry without a duration is read up to the end of its file. Relative paths begin from the current folder.
    Other lines are skipped with a warning. DALI 1.53 respects durations and offsets as well, although its
    documentation denies it.

    Args:
        manifest_filepaths: paths of manifests.
        sample_rate: resample to this rate in Hz. Default: the rate of each file.
        quality: quality of resampling, from 0 to 100; see ``fn.decoders.audio``.
        downmix: return the mean of all channels, in one dimension.
        dtype: data type of the audio: FLOAT with values from -1 to 1, INT16 or INT32.
        min_duration: if positive, skip entries with a shorter duration in the manifest, in seconds, or without one.
        max_duration: if positive, skip entries with a longer duration.
        read_sample_rate: return the sample rate of the file, which `sample_rate` does not change.
        read_text: return the transcript.
        read_idxs: return the number of the entry in its manifest, among those that are not skipped.
        normalize_text: deprecated, and without effect.
        max_sample_bytes: largest audio, after decoding. A small file can contain many GiB.

    Returns:
        The audio, of shape (frames,), or (frames, channels) with ``downmix=False``; if wanted, the sample rate, a scalar of
        dtype FLOAT; the transcript in UTF-8, of dtype UINT8; and the number, of shape (1,) and dtype INT64.
    """

    def __init__(
        self,
        *,
        manifest_filepaths: SavedTexts,
        sample_rate: float = -1.0,
        quality: float = 50.0,
        downmix: bool = True,
        dtype: np.dtype[Any] = _FLOAT,
        min_duration: float = 0.0,
        max_duration: float = 0.0,
        read_sample_rate: bool = True,
        read_text: bool = True,
        read_idxs: bool = False,
        normalize_text: bool | None = None,
        max_sample_bytes: int = READER_LIMIT_BYTES,
    ) -> None:
        if not manifest_filepaths:
            raise ArgumentError("manifest_filepaths can not be empty: pass the path of a manifest")
        if not 0 <= quality <= 100:
            raise ArgumentError(f"quality must be from 0 to 100, not {quality:g}")
        if dtype not in ("int16", "int32", "float32"):
            raise ArgumentError(f"dtype must be INT16, INT32 or FLOAT, not {dtype}")
        if normalize_text is not None:
            warn("fn.readers.nemo_asr: normalize_text has no effect", DeprecationWarning)
        self._manifests = (manifest_filepaths,) if isinstance(manifest_filepaths, str) else manifest_filepaths
        self._options = AudioOptions(sample_rate=sample_rate, quality=quality, downmix=downmix, dtype=dtype)
        self._limit = DecodingLimit.of_reader(positive("max_sample_bytes", max_sample_bytes))
        self._durations = min_duration, max_duration
        self._reads = read_sample_rate, read_text, read_idxs
        others = [each for each, wanted in zip(_OTHER_OUTPUTS, self._reads, strict=True) if wanted]
        self.num_outputs = 1 + len(others) if others else None
        dtypes, ndims = zip((dtype, 1 if downmix else 2), *others, strict=True)
        self.dtype = dtypes if others else dtype
        self.ndim = ndims if others else ndims[0]
        self._names = FileNames(())
        self._texts = FileNames(())
        self._parts = np.zeros((0, 2))
        self._numbers = np.zeros(0, np.int64)

    def prepare(self) -> None:
        manifests = [list(self._entries(path)) for path in self._manifests]
        entries = [entry for manifest in manifests for entry in manifest]
        self._names = FileNames(name for name, _, _ in entries)
        self._texts = FileNames(text for _, text, _ in entries)
        self._numbers = np.concatenate([np.arange(len(manifest)) for manifest in manifests])
        self._parts = np.array([part for _, _, part in entries], np.float64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def is_remote(self) -> bool:
        return self._names.have_urls

    async def read(self, index: int, info: SampleInfo) -> Any:
        path = self._names[index]
        offset_s, duration_s = self._parts[index].tolist()
        part = {"offset_s": offset_s, "duration_s": None if duration_s < 0 else duration_s}
        try:
            if is_url(path):
                decoded = decode_audio(await self.files.read(path), self._options, self._limit, info.empty, **part)
            else:
                with self.files.open(path) as file:
                    decoded = decode_audio(file, self._options, self._limit, info.empty, **part)
        except DecodeError as error:
            raise BrokenFileError(f"{shown(path)}: {error}", path) from None
        if self.num_outputs is None:
            return decoded.samples
        outputs = (
            np.array(decoded.file_rate, np.float32),
            np.frombuffer(os.fsencode(self._texts[index]), np.uint8),
            self._numbers[index : index + 1],
        )
        return decoded.samples, *(output for output, wanted in zip(outputs, self._reads, strict=True) if wanted)

    def _entries(self, path: str) -> Iterator[tuple[str, str, tuple[float, float]]]:
        """Yield audio file, transcript, and (offset, duration) in seconds of each entry. A duration of -1 is unknown."""
        least, most = self._durations
        skipped = []
        for number, line in enumerate(self.files.text_lines(path), 1):
            if not line.strip():
                continue
            entry = _parsed(line)
            if not entry.get("audio_filepath"):
                skipped.append(number)
                continue
            where = f"{shown(path)}:{number}"
            name, text = (_text(entry, key, where, path) for key in ("audio_filepath", "text"))
            offset, duration = _seconds(entry, "offset", 0.0, where, path), _seconds(entry, "duration", -1.0, where, path)
            if (least > 0 and duration < least) or (0 < most < duration):
                continue
            yield name, text, (offset, duration)
        if skipped:
            warn(
                f"{shown(path)}: {len(skipped)} lines are skipped, because they are not JSON objects with audio_filepath; "
                f"the first one is line {skipped[0]}",
                UserWarning,
            )


#: Dtypes and numbers of dimensions of the outputs after the audio.
_OTHER_OUTPUTS = ((np.dtype(np.float32), 0), (np.dtype(np.uint8), 1), (np.dtype(np.int64), 1))


def _parsed(line: str) -> dict[str, Any]:
    try:
        entry = json_value(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _text(entry: dict[str, Any], key: str, where: str, path: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise BrokenFileError(f'{where}: "{key}" must be a string, not {value!r}', path)
    try:
        os.fsencode(value)
    except UnicodeEncodeError as error:
        raise BrokenFileError(f'{where}: "{key}" is not valid Unicode: {error.reason}', path) from None
    return value


def _seconds(entry: dict[str, Any], key: str, default: float, where: str, path: str) -> float:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BrokenFileError(f'{where}: "{key}" must be a number of seconds, not {value!r}', path)
    return float(value)
