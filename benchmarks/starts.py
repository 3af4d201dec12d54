"""Measure the first second of a program, and what its main process pays: beside PyTorch and DALI, in one run.

    python -m benchmarks.starts --quick

Each part of each system is a separate process; the systems take turns. The program prints a Markdown table of medians over
the repeats. Ratios are computed within each repeat.

- import: CPU time of the imports of a program with worker processes, up to the first `build()` or `iter()`, in a fresh
  interpreter that has imported NumPy and `numpy.random`. It is that of the importing thread: the threads that NumPy's
  OpenBLAS has started spin meanwhile. Bytecode is there: an uncounted run writes it. The loader of the plugin for PyTorch is
  imported behind PyTorch.
- first: wall clock and CPU time of a program behind `import numpy`, imports included, up to its first batch of 256 tiny
  images from two forked workers.
- start: `build()` or `iter()`, and the first batch: of 64 samples of 10 ms each under fork, of 256 tiny ones under spawn.
- warm-up: the rate of the first 200 batches of images behind the first one, as a share of the rate of the next 400. By CPU
  time, it depends less on other programs. Page faults are counted from the beginning of the start.
- restart: `iter()` and the first batch of later epochs, with spawned workers that are not kept.
- serial: sources without workers. The callback returns the same memory each time, so the library's own work remains.
- main: CPU time of the main process per batch, all its threads, in steady state.

Limitation: "dali_like" is the loader in restart and in the second row of imports, and otherwise the pipeline.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.adapters import SYSTEMS, Loader
from benchmarks.turns import FULL_REPEATS, QUICK_REPEATS, last_line_of, names
from benchmarks.workloads import WORKERS, WORKLOADS, Sample, Workload, check_batch, tiny

__all__ = ["PARTS", "PEERS", "ROWS", "Row", "main", "table"]

OURS = "dali_like"
PEERS = ("torch", "dali")
TITLES = {"torch": "PyTorch", "dali": "DALI"}
MODULES = {OURS: "dali_like", "torch": "torch", "dali": "nvidia.dali"}

FULL_SECONDS, QUICK_SECONDS = 1.0, 0.3
DEADLINE_S = 120.0
WARM_UP_BATCHES, STEADY_BATCHES = 200, 400
EPOCHS, EPOCH_BATCHES = 6, 8

_POOLS = "import dali_like.engine.backends.pools"
#: The first `build()`, and the first iterator of a loader, import the engine in this way.
_PAUSED = f"from dali_like.common.collector import paused_collector\nwith paused_collector(): {_POOLS}"
IMPORTS = {
    OURS: f"from dali_like import Pipeline, pipeline_def, fn, types; fn.external_source\n{_PAUSED}",
    "dali": "from nvidia.dali import Pipeline, pipeline_def, fn, types",
}
LOADER_IMPORTS = {OURS: f"from dali_like.data import DataLoader\n{_PAUSED}", "torch": "import torch.utils.data"}

PLUGIN_IMPORTS = {OURS: f"from dali_like.plugin.pytorch import DataLoader\n{_PAUSED}"}

#: A program behind `import numpy`, up to its first batch of 256 images of 28 x 28 bytes.
_BEFORE_FIRST = """
import os, time, numpy
sample = lambda index: numpy.full((28, 28), index % 251, numpy.uint8)
began, began_cpu = time.perf_counter(), time.process_time()
"""
_AFTER_FIRST = """
took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
assert len(batch) == 256
print(took, cpu, flush=True)
os._exit(0)
"""
_PIPELINE = """
from dali_like import fn, pipeline_def

@pipeline_def(batch_size=256, num_threads=1, device_id=None, py_num_workers=2)
def pipeline():
    return fn.external_source(source=lambda info: sample(info.idx_in_epoch), parallel=True, batch=False)

pipe = pipeline()
pipe.build()
(batch,) = pipe.run()
"""
_LOADER = """
from dali_like.data import DataLoader

class Samples:
    def __getitem__(self, index):
        return sample(index)
    def __len__(self):
        return 1 << 20

batches = iter(DataLoader(Samples(), batch_size=256, num_workers=2, multiprocessing_context="fork"))
batch = next(batches)
"""
FIRST_PROGRAMS = {"pipeline": _PIPELINE, "loader": _LOADER}

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        figure: its name.
        digits: decimal places.
        goals: what to reach: of a peer's figure, or with "" absolute.
        is_rate: whether more is better.
    """

    figure: str
    digits: int = 1
    goals: Mapping[str, float] | None = None
    is_rate: bool = False


ROWS = (
    Row("import of a pipeline, ms of CPU", goals={"": 40}),
    Row("import of a loader, ms of CPU", goals={"": 40}),
    Row("import of plugin.pytorch behind torch, ms of CPU", goals={"": 80}),
    Row("NumPy to the first batch of a pipeline, ms", 0, {"": 150}),
    Row("the same, ms of CPU of the main process", 0),
    Row("NumPy to the first batch of a loader, ms", 0, {"": 150}),
    Row("start under fork, 10 ms samples, ms", 0, {"torch": 0.55, "dali": 0.6}),
    Row("start under spawn, tiny, ms", 0),
    Row("warm-up, share of the steady rate", 2, {"": 0.85}, is_rate=True),
    Row("warm-up, the same by CPU time", 2, is_rate=True),
    Row("page faults of the main process until then", 0),
    Row("page faults of the workers until then", 0),
    Row("restart, spawned workers not kept, ms", goals={"": 6}),
    Row("serial, a batch of tiny, samples/ms", 0, {"dali": 1}, is_rate=True),
    Row("serial, an iterator over batches of tiny, samples/ms", 0, {"dali": 1}, is_rate=True),
    Row("serial, samples of tiny, samples/ms", 0, {"dali": 1}, is_rate=True),
    Row("serial, a batch of image, samples/ms", goals={"dali": 1}, is_rate=True),
    Row("serial, an iterator over batches of image, samples/ms", goals={"dali": 1}, is_rate=True),
    Row("serial, samples of image, samples/ms", goals={"dali": 1}, is_rate=True),
    Row("main process per batch of image, us of CPU", 0, {"torch": 0.06}),
    Row("main process per batch of tiny, us of CPU", 0, {"torch": 0.12}),
)


# The parts: each runs in a process of its own


def imports(system: str, _: float) -> Figures:
    """Measure the imports of a program."""
    figures = {}
    for figure, before, programs in (
        ("import of a pipeline, ms of CPU", "numpy.random", IMPORTS),
        ("import of a loader, ms of CPU", "numpy.random", LOADER_IMPORTS),
        ("import of plugin.pytorch behind torch, ms of CPU", "torch", PLUGIN_IMPORTS),
    ):
        if system in programs and importlib.util.find_spec(before.partition(".")[0]) is not None:
            program = (
                f"import time, {before}; began = time.thread_time()\n{programs[system]}\nprint(time.thread_time() - began)"
            )
            figures[figure] = 1e3 * float(_output_of(program))
    return figures


def first(_system: str, _: float) -> Figures:
    """Measure a program behind the import of NumPy, up to its first batch from forked workers."""
    figures = {}
    for kind, program in FIRST_PROGRAMS.items():
        wall_s, cpu_s = map(float, _output_of(_BEFORE_FIRST + program + _AFTER_FIRST).split())
        figures[f"NumPy to the first batch of a {kind}, ms"] = 1e3 * wall_s
        if kind == "pipeline":
            figures["the same, ms of CPU of the main process"] = 1e3 * cpu_s
    return figures


def fork(system: str, _: float) -> Figures:
    """Measure the start of forked workers."""
    return {"start under fork, 10 ms samples, ms": _first_batch_ms(system, WORKLOADS["slow"])}


def spawn(system: str, _: float) -> Figures:
    """Measure the start of spawned workers."""
    return {"start under spawn, tiny, ms": _first_batch_ms(system, WORKLOADS["startup"])}


def warm_up(system: str, _: float) -> Figures:
    """Measure the first batches of images."""
    faults = _page_faults()
    loader = _opened(system, WORKLOADS["image"])
    loader.consume(1)
    first_s, first_cpu_s = _seconds_of(loader, WARM_UP_BATCHES)
    tree = processes.descendants(os.getpid())
    main_faults, worker_faults = _page_faults() - faults, sum(map(_page_faults_of, tree))
    steady_s, steady_cpu_s = _seconds_of(loader, STEADY_BATCHES)
    loader.close()
    return {
        "warm-up, share of the steady rate": WARM_UP_BATCHES / first_s / (STEADY_BATCHES / steady_s),
        "warm-up, the same by CPU time": WARM_UP_BATCHES / first_cpu_s / (STEADY_BATCHES / steady_cpu_s),
        "page faults of the main process until then": main_faults,
        "page faults of the workers until then": worker_faults,
    }


def restart(system: str, _: float) -> Figures:
    """Measure the beginning of later epochs of a loader."""
    library: Any = importlib.import_module("dali_like.data" if system == OURS else "torch.utils.data")
    size = WORKLOADS["tiny"].batch_size
    dataset = _Samples(size * EPOCH_BATCHES)
    loader = library.DataLoader(dataset, batch_size=size, num_workers=WORKERS, multiprocessing_context="spawn")
    times = []
    for _epoch in range(EPOCHS):
        began = time.perf_counter()
        batches = iter(loader)
        next(batches)
        times.append(1e3 * (time.perf_counter() - began))
        for _batch in batches:
            pass
    return {"restart, spawned workers not kept, ms": statistics.median(times[1:])}


def serial(system: str, seconds: float) -> Figures:
    """Measure sources without workers."""
    figures = {}
    for name in ("tiny", "image"):
        size = WORKLOADS[name].batch_size
        samples = [WORKLOADS[name].make(i) for i in range(size)]
        batch = tuple(np.stack(column) for column in zip(*samples, strict=True))
        kinds: dict[str, tuple[Any, dict[str, Any]]] = {
            "a batch": (_always(batch), {"batch": True}),
            "an iterator over batches": (_Endless(batch), {}),
            "samples": (_sample_of(samples), {"batch": False}),
        }
        for kind, (source, options) in kinds.items():
            rate = _serial_rate(MODULES[system], source, options, samples, seconds)
            figures[f"serial, {kind} of {name}, samples/ms"] = rate
    return figures


def main_cpu(system: str, seconds: float) -> Figures:
    """Measure the CPU time of the main process."""
    figures = {}
    for name in ("image", "tiny"):
        loader = _opened(system, WORKLOADS[name])
        loader.consume(WARM_UP_BATCHES)
        batches, began, end = 0, time.process_time(), time.perf_counter() + seconds
        while time.perf_counter() < end:
            loader.consume(20)
            batches += 20
        figures[f"main process per batch of {name}, us of CPU"] = 1e6 * (time.process_time() - began) / batches
        loader.close()
    return figures


#: Each part, with the systems that it is for.
PARTS: dict[str, tuple[Callable[[str, float], Figures], Sequence[str]]] = {
    "import": (imports, (OURS, *PEERS)),
    "first": (first, (OURS,)),
    "fork": (fork, (OURS, *PEERS)),
    "spawn": (spawn, (OURS, *PEERS)),
    "warm_up": (warm_up, (OURS, *PEERS)),
    "restart": (restart, (OURS, "torch")),
    "serial": (serial, (OURS, "dali")),
    "main": (main_cpu, (OURS, *PEERS)),
}


class _Samples:
    """Some tiny samples, as a map-style dataset."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Sample:
        return tiny(index)


class _Endless:
    """Returns the same batch again and again."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __iter__(self) -> _Endless:
        return self

    def __next__(self) -> Any:
        return self._batch


def _always(batch: Any) -> Callable[[Any], Any]:
    return lambda _: batch


def _sample_of(samples: Sequence[Sample]) -> Callable[[Any], Sample]:
    return lambda info: samples[info.idx_in_batch]


def _output_of(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def _opened(system: str, workload: Workload) -> Loader:
    loader = SYSTEMS[system].open(workload)
    loader.start()
    return loader


def _first_batch_ms(system: str, workload: Workload) -> float:
    loader = SYSTEMS[system].open(workload)
    began = time.perf_counter()
    loader.start()
    batch = loader.consume(1)
    took_ms = 1e3 * (time.perf_counter() - began)
    check_batch(workload, loader.samples(batch), 0)
    loader.close()
    return took_ms


def _seconds_of(loader: Loader, batches: int) -> tuple[float, float]:
    """Return the wall seconds of some batches, and the CPU seconds of all processes."""
    tree = [os.getpid(), *processes.descendants(os.getpid())]
    began, cpu_s = time.perf_counter(), processes.cpu_s(tree)
    loader.consume(batches)
    return time.perf_counter() - began, processes.cpu_s(tree) - cpu_s


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _page_faults_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def _serial_rate(library: str, source: Any, options: dict[str, Any], samples: Sequence[Sample], seconds: float) -> float:
    """Return the samples per millisecond of a pipeline without workers."""
    dali: Any = importlib.import_module(library)
    size = len(samples)
    pipe = dali.Pipeline(size, num_threads=1, device_id=None)
    with pipe:
        pipe.set_outputs(*dali.fn.external_source(source, num_outputs=2, **options))
    pipe.build()
    arrays, labels = pipe.run()
    for i in range(size):
        if not (np.array_equal(arrays.at(i), samples[i][0]) and np.array_equal(labels.at(i), samples[i][1])):
            raise AssertionError(f"sample {i} is wrong")
    for _ in range(10):
        pipe.run()
    batches, began = 0, time.perf_counter()
    while (took_s := time.perf_counter() - began) < seconds:
        for _ in range(5):
            arrays, labels = pipe.run()
        batches += 5
    return batches * size / (1e3 * took_s)


# The program


def table(measured: Mapping[str, Sequence[Figures]], systems: Sequence[str]) -> str:
    """Return the table of all rows that have figures.

    Args:
        measured: for each system, the figures of each repeat.
        systems: the peers that were measured.
    """
    titles = ["", OURS, *(TITLES[peer] for peer in systems), *(f"of {TITLES[peer]}'s" for peer in systems), "to reach", ""]
    lines = ["| " + " | ".join(titles) + " |", "|---" + "|--:" * (1 + 2 * len(systems)) + "|---|---|"]
    for row in ROWS:
        if any(row.figure in figures for figures in measured[OURS]):
            lines.append("| " + " | ".join(_cells(row, measured, systems)) + " |")
    return "\n".join(lines)


def _cells(row: Row, measured: Mapping[str, Sequence[Figures]], systems: Sequence[str]) -> Iterable[str]:
    values = {system: [figures.get(row.figure) for figures in measured[system]] for system in (OURS, *systems)}
    medians = {system: _median(values[system]) for system in values}
    ratios = {
        peer: _median([one / other for one, other in zip(values[OURS], values[peer], strict=False) if one and other])
        for peer in systems
    }
    goals = {name: goal for name, goal in (row.goals or {}).items() if not name or ratios.get(name) is not None}
    reached = [_reaches(row, medians[OURS] if not name else ratios[name], goal) for name, goal in goals.items()]
    yield row.figure
    yield from ("-" if median is None else f"{median:,.{row.digits}f}" for median in medians.values())
    yield from ("-" if ratio is None else f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}" for ratio in ratios.values())
    yield ", ".join(f"{goal:g}" + (f" of {TITLES[name]}'s" if name else "") for name, goal in goals.items())
    yield "" if not goals else "yes" if all(reached) else "NO"


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _reaches(row: Row, value: float | None, goal: float) -> bool:
    assert value is not None
    return value >= goal if row.is_rate else value <= goal


def _run(part: str, system: str, seconds: float) -> Figures:
    arguments = ["--part", part, "--system", system, "--seconds", str(seconds)]
    figures: Figures = json.loads(last_line_of("benchmarks.starts", arguments, deadline_s=DEADLINE_S + 20 * seconds))
    return figures


def _peers(text: str) -> list[str]:
    return names(PEERS)(text) if text else []


def _measure_all(parts: Sequence[str], systems: Sequence[str], *, repeats: int, seconds: float) -> dict[str, list[Figures]]:
    measured: dict[str, list[Figures]] = defaultdict(list)
    for repeat in range(repeats):
        row: dict[str, dict[str, float]] = {system: {} for system in systems}
        for part in parts:
            taking_part = [system for system in systems if system in PARTS[part][1]]
            turn = repeat % len(taking_part)
            for system in taking_part[turn:] + taking_part[:turn]:
                print(f"[{repeat + 1}/{repeats}] {part} {system}", file=sys.stderr, flush=True)
                if part in ("import", "first") and not repeat:
                    _run(part, system, seconds)  # writes missing bytecode
                row[system].update(_run(part, system, seconds))
        for system in systems:
            measured[system].append(row[system])
    return measured


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program."""
    installed = [peer for peer in PEERS if importlib.util.find_spec(MODULES[peer].partition(".")[0]) is not None]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_REPEATS} repeats of {QUICK_SECONDS} s")
    parser.add_argument("--repeats", type=int, help=f"runs of each part ({FULL_REPEATS})")
    parser.add_argument("--seconds", type=float, help=f"length of timed parts ({FULL_SECONDS})")
    parser.add_argument("--parts", type=names(PARTS), default=list(PARTS), metavar="A,B", help=", ".join(PARTS))
    parser.add_argument("--peers", type=_peers, default=installed, metavar="A,B", help=", ".join(PEERS))
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--system", choices=MODULES, default=OURS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    seconds = options.seconds or (QUICK_SECONDS if options.quick else FULL_SECONDS)
    if options.part is not None:
        print(json.dumps(PARTS[options.part][0](options.system, seconds)), flush=True)
        os._exit(0)  # exit without library finalizers, which are not measured and may hang
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    repeats = options.repeats or (QUICK_REPEATS if options.quick else FULL_REPEATS)
    print(table(_measure_all(options.parts, (OURS, *options.peers), repeats=repeats, seconds=seconds), options.peers))


if __name__ == "__main__":
    main()
