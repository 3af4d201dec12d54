"""Log-mel features of spoken words, from a folder with a sub-folder of audio files for each word.

    python -m examples.speech_pipeline [--data DIR] [--workers 2]

The folders of Google's Speech Commands have this form. Without ``--data``, the words are synthesized. The pipeline also runs
with DALI, where only the import differs. `examples.speech_training` trains with it.

Requires soundfile.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dali_like import fn, pipeline_def, types
from examples.spoken_words import make_folders

RATE_HZ = 16000
BANDS = 64
#: Windows of 25 ms, every 10 ms; 0.8 s in all.
WINDOWS = 80


@pipeline_def  # type: ignore[untyped-decorator,unused-ignore]
def log_mel(data_dir: str, is_training: bool = True) -> Any:
    """Define a pipeline of log-mel spectrograms of shape (BANDS, WINDOWS), float32, and labels of shape (1,), int32.

    Args:
        data_dir: folder of the words.
        is_training: whether to shuffle the files, and to add noise.
    """
    files, labels = fn.readers.file(file_root=data_dir, random_shuffle=is_training, name="Reader")
    audio, _ = fn.decoders.audio(files, dtype=types.FLOAT, downmix=True)
    start, length = fn.nonsilent_region(audio, cutoff_db=-40.0, window_length=512)
    audio = fn.slice(audio, start, length, axes=[0])
    if is_training:
        audio = audio + fn.random.normal(audio, stddev=0.002)
    audio = fn.preemphasis_filter(audio)
    spectrum = fn.spectrogram(audio, nfft=512, window_length=400, window_step=160)
    bands = fn.mel_filter_bank(spectrum, sample_rate=RATE_HZ, nfilter=BANDS, freq_low=60.0)
    features = fn.to_decibels(bands, multiplier=10.0, cutoff_db=-80.0)
    features = fn.normalize(features, axes=[1])
    features = fn.slice(features, start=[0], shape=[WINDOWS], axes=[1], out_of_bounds_policy="pad")
    return features, labels


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that this example and `examples.speech_training` share."""
    parser.add_argument("--data", type=Path, help="folder of the words; default: synthesized words")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2, help="num_threads, which is the number of worker processes")
    parser.add_argument("--per-word", type=int, default=40, help="synthesized files for each word")
    parser.add_argument("--scratch", type=Path, default=Path("build/examples/speech"), help="folder for these")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print the speed of a pipeline of log-mel features.")
    add_options(parser)
    options = parser.parse_args(arguments)

    pipe = log_mel(
        str(options.data or make_folders(options.scratch / str(options.per_word), options.per_word, seed=1)),
        batch_size=options.batch_size,
        num_threads=options.workers,
        device_id=None,
        seed=5,
    )
    pipe.build()
    size = pipe.reader_meta("Reader")["epoch_size"]
    batches = -(-size // options.batch_size)
    print(f"{'epoch':>5} {'words':>6} {'each':>6} {'words/s':>8}")
    for epoch in range(options.epochs):
        began = time.perf_counter()
        for _ in range(batches):
            features, _ = pipe.run()
        rate = batches * options.batch_size / (time.perf_counter() - began)
        shape = "x".join(map(str, features.as_tensor().shape()[1:]))
        print(f"{epoch:5} {size:6} {shape:>6} {rate:8,.0f}", flush=True)


if __name__ == "__main__":
    main()
