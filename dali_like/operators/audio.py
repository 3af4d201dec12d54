"""Operators for audio, as in ``nvidia.dali.fn.decoders``."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from dali_like.errors import SampleTypeError
from dali_like.graph.operator_interface import Array, OperatorCall
from dali_like.operators.description import operator
from dali_like.operators.parameters import PerSample, between, one_of_types
from dali_like.sources.readers.audio_decoding import AudioOptions, decode_audio

_FLOAT = np.dtype(np.float32)


@operator(module="decoders", name="audio", num_outputs=2, output_layout=lambda _, __: ("", ""))
def decode(
    call: OperatorCall,
    data: Array,
    *,
    sample_rate: PerSample[float] = 0.0,
    quality: Annotated[float, between(0, 100)] = 50.0,
    downmix: bool = False,
    dtype: Annotated[np.dtype[Any], one_of_types("int16 int32 float32")] = _FLOAT,
) -> tuple[Array, Array]:
    """Decode audio: WAV, FLAC, Ogg (Vorbis and Opus), MP3, and other formats of libsndfile. DALI does not decode MP3.

    Requires soundfile, and soxr for resampling: ``pip install soundfile soxr``.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        sample_rate: resample to this rate in Hz. Default, or with 0 or less: the rate of the file.
        quality: quality of resampling from 0, the fastest, to 100: "MQ" of soxr below 50, "HQ" below 75, otherwise "VHQ".
        downmix: return the mean of all channels, in one dimension.
        dtype: data type of the samples: FLOAT with values from -1 to 1, INT16 or INT32.

    Without resampling, the result is DALI's. DALI resamples to a lower rate without a low-pass filter, so that frequencies
    above half of the new rate turn up at others; soxr removes them. The rest differs by about a thousandth.

    Returns:
        Samples of shape (frames, channels), or (frames,) with `downmix`; and their rate in Hz, a scalar of dtype FLOAT.
    """
    if data.ndim != 1 or data.dtype != np.uint8:
        raise SampleTypeError(
            f"encoded audio must be a one-dimensional uint8 array, not of {data.dtype} and shape {data.shape}: "
            "pass the bytes of the file"
        )
    options = AudioOptions(sample_rate=sample_rate, quality=quality, downmix=downmix, dtype=dtype)
    decoded = decode_audio(data, options, call.empty)
    return decoded.samples, np.array(sample_rate if sample_rate > 0 else decoded.file_rate, np.float32)
