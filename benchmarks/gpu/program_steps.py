"""Steps that end badly, each in a process of its own; and decoding of unusual images."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.access import Figures, Gpu, check
from benchmarks.gpu.memory_steps import MIB, MOST_GROWTH_MIB
from dali_like import fn, pipeline_def

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PROGRAM_S = 60.0
IMAGES = 32
#: Maximum mean difference between pixels decoded by the GPU and by the CPU.
MOST_MEAN_DIFFERENCE = 2.0

_PIPELINE = """
import os, signal, sys, threading
import numpy as np
from dali_like import fn, pipeline_def

@pipeline_def(batch_size=8, num_threads=2, device_id=0, py_num_workers=2, py_start_method="spawn")
def pipeline():
    source = lambda info: np.full((256, 256), info.idx_in_epoch, np.int32)
    return fn.external_source(source, batch=False, parallel=True, prefetch_queue_depth=4).gpu()

pipe = pipeline()
held = [pipe.run() for _ in range(3)]
"""

_EXIT = """
for _ in range(20):
    last = pipe.run()
print("workers:", *pipe.py_worker_pids, flush=True)
"""

_INTERRUPT = """
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

interrupted = 0
for delay in range(5):
    try:
        timer = threading.Timer(0.05 + 0.01 * delay, interrupt)
        timer.start()
        while True:
            pipe.run()
    except KeyboardInterrupt:
        interrupted += 1
    timer.join()
last = pipe.run()[0].as_cpu().as_array()
assert (last == last[:, :1, :1]).all(), "a sample has several numbers"
assert (np.diff(last[:, 0, 0]) == 1).all(), "samples are not consecutive"
print("interrupted:", interrupted)
print("workers:", *pipe.py_worker_pids, flush=True)
pipe.close()
"""

_FAILURE = """
print("workers:", *pipe.py_worker_pids, flush=True)
break_gpu()
try:
    for _ in range(1000):
        pipe.run()
    print("no error")
except RuntimeError as error:
    print("error:", type(error).__name__)
sys.stdout.flush()
pipe.close()
"""


def exit_without_close(gpu: Gpu, seconds: float) -> Figures:
    """End a program while copies are in progress, without ``close``."""
    finished = _run(gpu, _EXIT)
    check(finished.returncode == 0, f"the program ended with {finished.returncode}: {_last_line(finished.stderr)}")
    check(not finished.stderr.strip(), f"the program printed at its end: {_last_line(finished.stderr)}")
    return {"exit status": finished.returncode}


def interrupts(gpu: Gpu, seconds: float) -> Figures:
    """Interrupt a program by SIGINT while it copies; the next batches must be right."""
    finished = _run(gpu, _INTERRUPT)
    check(finished.returncode == 0, f"the program ended with {finished.returncode}: {_last_line(finished.stderr)}")
    check("interrupted: 5" in finished.stdout, f"not all interrupts arrived: {finished.stdout.strip()}")
    return {"interrupts": 5}


def device_failure(gpu: Gpu, seconds: float) -> Figures:
    """Let a kernel fail: ``run`` must raise an error, and the program must end."""
    finished = _run(gpu, _FAILURE)
    check("error:" in finished.stdout, f"run raised no RuntimeError: {_last_line(finished.stdout + finished.stderr)}")
    fatal = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGKILL}
    check(finished.returncode not in fatal, f"the program was ended by a signal: {finished.returncode}")
    error = finished.stdout.partition("error:")[2].split()[0]
    return {"error": error, "exit status": finished.returncode}


def _run(gpu: Gpu, program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", gpu.prelude + _PIPELINE + program]
    try:
        finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    except subprocess.TimeoutExpired:
        check(False, f"the program has not ended after {PROGRAM_S:.0f} s")
        raise
    pids = [pid for line in finished.stdout.splitlines() if line.startswith("workers:") for pid in line.split()[1:]]
    deadline = time.monotonic() + 10
    while (alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    check(not alive, f"workers are still alive: {alive}")
    return finished


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing was printed"])[-1][:200]


def decoding(gpu: Gpu, seconds: float) -> Figures:
    """Decode unusual JPEG files by the mixed decoder again and again, and compare them with the CPU's decoder."""
    files = unusual_jpegs()

    @pipeline_def(batch_size=IMAGES, num_threads=4, device_id=0)
    def pipeline() -> Any:
        encoded = fn.external_source(lambda info: files[info.idx_in_epoch % len(files)], batch=False)
        return fn.decoders.image(encoded, device="mixed"), fn.decoders.image(encoded)

    begin, count, early = time.perf_counter(), 0, None
    with contextlib.closing(pipeline()) as pipe:
        while count < 3 or time.perf_counter() - begin < seconds:
            on_gpu, on_cpu = pipe.run()
            count += 1
            if count < 10:
                for decoded, expected in zip(on_gpu.as_cpu(), on_cpu, strict=True):
                    _check_image(np.asarray(decoded), np.asarray(expected))
            if count == 10:
                early = _resident_mib()
        growth = _resident_mib() - early if early is not None else 0.0
    check(growth < MOST_GROWTH_MIB, f"the memory of the process grew by {growth:.0f} MiB")
    return {"images": count * IMAGES, "images/s": count * IMAGES / (time.perf_counter() - begin), "grew by MiB": growth}


def _check_image(decoded: Any, expected: Any) -> None:
    check(decoded.shape == expected.shape, f"an image is {decoded.shape} on the GPU, {expected.shape} on the CPU")
    difference = float(np.abs(decoded.astype(int) - expected).mean())
    check(difference <= MOST_MEAN_DIFFERENCE, f"pixels of the GPU and the CPU differ by {difference:.1f}")


def _resident_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / MIB
    return 0.0


def unusual_jpegs() -> list[Any]:
    """Return JPEG files of many kinds: progressive, gray, CMYK, with every subsampling, rotated, tiny and odd sizes."""
    from PIL import Image

    sizes = [(1, 1), (7, 3), (16, 16), (17, 33), (640, 427), (99, 1000)]
    files = []
    for i, (width, height) in enumerate(sizes):
        small = np.random.default_rng(i).integers(0, 255, (6, 8, 3), np.uint8)
        image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
        exif = Image.Exif()
        exif[0x0112] = 1 + i % 8  # the orientation
        options: list[tuple[Any, dict[str, Any]]] = [
            *((image, {"subsampling": subsampling}) for subsampling in (0, 1, 2)),
            (image, {"progressive": True}),
            (image, {"exif": exif}),
            (image, {"restart_marker_rows": 1}),
            (image.convert("L"), {}),
            (image.convert("CMYK"), {}),
        ]
        for converted, given in options:
            file = io.BytesIO()
            converted.save(file, "JPEG", quality=90, **given)
            files.append(np.frombuffer(file.getvalue(), np.uint8))
    return files
