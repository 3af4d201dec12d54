"""Kernels of operators on signals and spectra; see `dali_like.graph.language.batch_calls`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dali_like.common.kernel_library import ELEMENTS, address_of, kernels
from dali_like.engine.memory.ring import SampleList
from dali_like.graph.language.batch_calls import BatchCall, Samples
from dali_like.graph.language.operator_interface import scratch
from dali_like.operators.geometry.window_kernels import each
from dali_like.operators.sound.spectra import hann
from dali_like.sources.readers.audio_decoding import of_16_bits

_BYTE, _FLOAT = np.dtype(np.uint8), np.dtype(np.float32)
#: The head of a WAV file without other chunks before its samples.
_HEAD = np.dtype(
    [
        ("riff", "S4"),
        ("file_bytes", "<u4"),
        ("wave", "S8"),
        ("format_bytes", "<u4"),
        ("kind", "<u2"),
        ("channels", "<u2"),
        ("rate", "<u4"),
        ("rate_bytes", "<u4"),
        ("step", "<u2"),
        ("bits", "<u2"),
        ("data", "S4"),
        ("nbytes", "<u4"),
    ]
)
#: Windows of `spectrogram` that are transformed at once: their samples and spectra stay in the cache of the CPU.
_WINDOWS = 256


def decode_audio(
    call: BatchCall,
    data: Samples,
    *,
    sample_rate: Any = 0.0,
    quality: float = 50.0,
    downmix: bool = False,
    dtype: np.dtype[Any] = _FLOAT,
) -> Any:
    """Serve ``fn.decoders.audio`` for WAV files of 16 bits at their own rate. Needs no compiled loops."""
    if data.dtype != _BYTE or data.shapes.shape[1] != 1 or isinstance(sample_rate, list) or sample_rate > 0:
        return None
    begin, sizes = _HEAD.itemsize, data.shapes[:, 0]
    if (sizes < begin).any():
        return None
    files: Any = data.data.arrays() if isinstance(data.data, SampleList) else data.data
    is_stack = isinstance(files, np.ndarray)
    heads = np.ascontiguousarray(files[:, :begin]) if is_stack else np.stack([file[:begin] for file in files])
    head = heads.view(_HEAD)[:, 0]
    channels, nbytes, step = int(head["channels"][0]), head["nbytes"].astype(np.int64), head["step"].astype(np.int64)
    are_wav = (head["riff"] == b"RIFF") & (head["wave"] == b"WAVEfmt ") & (head["data"] == b"data")
    are_plain = are_wav & (head["format_bytes"] == 16) & (head["kind"] == 1) & (head["bits"] == 16) & (head["rate"] > 0)
    are_plain &= (head["channels"] == channels) & (step == 2 * channels) & (nbytes > 0) & (begin + nbytes <= sizes)
    if not channels or (downmix and channels > 1) or not are_plain.all() or (nbytes % step).any():
        return None
    counts = nbytes // step
    if int(counts.max()) * channels * max(_FLOAT.itemsize, dtype.itemsize) > call.image_limit_bytes:
        return None
    memory, made = call.place_rows(counts, () if downmix else (channels,), dtype)
    ends = np.add.accumulate(counts).tolist()
    shape = (-1, *memory.shape[1:])

    def work(first: int, stop: int) -> None:
        for i in range(first, stop):
            samples = files[i][begin : begin + nbytes[i]].view("<i2")
            of_16_bits(samples.reshape(shape), memory[ends[i - 1] if i else 0 : ends[i]])

    call.share(work)
    rates = call.place((), _FLOAT)
    rates.data.reshape(-1)[:] = head["rate"]
    return made, rates.data


def preemphasis_filter(
    call: BatchCall,
    signal: Samples,
    *,
    preemph_coeff: Any = 0.97,
    border: str = "clamp",
    dtype: np.dtype[Any] = _FLOAT,
) -> Any:
    """Serve ``fn.preemphasis_filter`` from FLOAT to FLOAT."""
    if signal.dtype != _FLOAT or dtype != _FLOAT:
        return None
    out = call.place(signal.shapes, dtype)
    jobs = np.empty((call.count, 3), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2] = signal.addresses, out.addresses, signal.sizes
    coefficients = each(preemph_coeff, call.count, np.float32)
    borders = ("zero", "clamp", "reflect").index(border)
    first, factors, compiled = address_of(jobs), address_of(coefficients), kernels()
    call.share(lambda begin, stop: compiled.preemphasis(stop - begin, first + 24 * begin, factors + 4 * begin, borders))
    return out.data


def nonsilent_region(
    call: BatchCall,
    signal: Samples,
    *,
    cutoff_db: float = -60.0,
    window_length: int = 2048,
    reference_power: float = 0.0,
    reset_interval: int = 8192,
) -> Any:
    """Serve ``fn.nonsilent_region`` for FLOAT and INT16."""
    resets = signal.dtype == _FLOAT and reset_interval != -1
    if signal.dtype not in (_FLOAT, np.int16) or signal.shapes.shape[1] != 1 or (resets and reset_interval % window_length):
        return None
    begins, lengths = call.place((), np.int32), call.place((), np.int32)
    jobs = np.empty((call.count, 2), np.int64)
    jobs[:, 0], jobs[:, 1] = signal.addresses, signal.shapes[:, 0]
    cutoff = np.float32(10) ** np.float32(cutoff_db / 10)
    element, interval = ELEMENTS[signal.dtype], reset_interval if resets else 0
    first, to_begins, to_lengths = map(address_of, (jobs, begins.data, lengths.data))
    power, compiled = float(np.float32(reference_power)), kernels()

    def work(begin: int, stop: int) -> Any:
        return compiled.nonsilent(
            stop - begin,
            element,
            first + 16 * begin,
            window_length,
            interval,
            power,
            float(cutoff),
            to_begins + 4 * begin,
            to_lengths + 4 * begin,
        )

    return None if call.share(work) else (begins.data, lengths.data)


def spectrogram(
    call: BatchCall,
    signal: Samples,
    *,
    nfft: int | None = None,
    window_length: int = 512,
    window_step: int = 256,
    window_fn: Any = None,
    power: int = 2,
    center_windows: bool = True,
    reflect_padding: bool = True,
    layout: str = "ft",
) -> Any:
    """Serve ``fn.spectrogram``: windows of all samples are transformed together."""
    lengths = signal.sizes
    if signal.dtype != _FLOAT or not lengths.all() or (lengths != signal.shapes.max(axis=1, initial=1)).any():
        return None
    if center_windows:
        before = window_length // 2
        counts = lengths // window_step + 1
    else:
        before = 0
        if (lengths < window_length).any():
            return None
        counts = (lengths - window_length) // window_step + 1
    size = window_length if nfft is None else nfft
    bins = size // 2 + 1
    shapes = np.empty((call.count, 2), np.int64)
    of_time, of_frequency = (0, 1) if layout == "tf" else (1, 0)
    shapes[:, of_time], shapes[:, of_frequency] = counts, bins
    out = call.place(shapes, _FLOAT)
    factors = np.array(window_fn, np.float32) if window_fn else hann(window_length)
    # Parts of samples, and samples, of altogether some windows.
    parts = [
        (i, begin, min(_WINDOWS, count - begin))
        for i, count in enumerate(counts.tolist())
        for begin in range(0, count, _WINDOWS)
    ]
    compiled = kernels()
    first = 0
    while first < len(parts):
        last, total = first + 1, parts[first][2]
        while last < len(parts) and total + parts[last][2] <= _WINDOWS:
            total += parts[last][2]
            last += 1
        chosen = np.array(parts[first:last], np.int64)
        frames = scratch("frames", (total, size), _FLOAT)
        ends = chosen[:, 2].cumsum()
        starts = ends - chosen[:, 2]
        jobs = np.empty((len(chosen), 5), np.int64)
        jobs[:, 0], jobs[:, 1] = signal.addresses[chosen[:, 0]], address_of(frames) + starts * (size * 4)
        jobs[:, 2], jobs[:, 3:] = lengths[chosen[:, 0]], chosen[:, 1:]
        compiled.frames(
            len(jobs),
            address_of(jobs),
            address_of(factors),
            window_length,
            window_step,
            before,
            size,
            center_windows and reflect_padding,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            spectrum = np.fft.rfft(frames)
        if spectrum.dtype != np.complex64:  # NumPy 1 transforms in double precision
            return None
        strides = np.where(layout == "tf", bins, 1), np.where(layout == "tf", 1, counts[chosen[:, 0]])
        jobs[:, 0] = address_of(spectrum) + starts * (bins * 8)
        jobs[:, 1] = out.addresses[chosen[:, 0]] + 4 * chosen[:, 1] * strides[0]
        jobs[:, 2], jobs[:, 3], jobs[:, 4] = chosen[:, 2], strides[0], strides[1]
        compiled.power(len(jobs), address_of(jobs), bins, power == 1)
        first = last
    return out.data


def to_decibels(
    call: BatchCall, data: Samples, *, multiplier: float = 10.0, reference: float = 0.0, cutoff_db: float = -200.0
) -> Any:
    """Serve ``fn.to_decibels``: logarithms of all samples are computed together."""
    if data.dtype != _FLOAT:
        return None
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        least = np.float32(10) ** (np.float32(cutoff_db) / np.float32(multiplier))
        least = np.maximum(least, np.finfo(np.float32).smallest_subnormal)
        out = call.place(data.shapes, _FLOAT)
        jobs = np.empty((call.count, 3), np.int64)
        jobs[:, 0], jobs[:, 1], jobs[:, 2] = data.addresses, out.addresses, data.sizes
        kernels().relative(call.count, address_of(jobs), float(np.float32(reference)), float(least))
        elements = out.data if isinstance(out.data, np.ndarray) else out.data.elements
        np.log10(elements, out=elements)
        np.multiply(elements, np.float32(multiplier), out=elements)
    return out.data
