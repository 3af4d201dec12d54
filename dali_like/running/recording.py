"""Record the loaders of a process, and write the record at its end for the summary of ``dali-like run``.

Loaders come and go, so the records hold their counters and not the loaders. Nothing is called per batch, unless the process
is to end after a number of batches.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dali_like.running.run_settings import settings

__all__ = ["note", "shortened", "watched", "write"]

#: Loaders of one place whose counters are kept. Of further ones, only the sums are.
_MOST_LOADERS = 64
#: An epoch that begins later than this after the last record writes the record again: a killed program leaves it.
_RENEWAL_S = 5.0
#: Number of batches whose content is compared between two runs.
_COMPARED = 3
#: Columns of /proc/PID/stat behind the name: user and system time of the process, and of its children that have ended.
_CPU_COLUMNS = slice(11, 15)


@dataclass
class _Loader:
    """The record of a loader.

    Attributes:
        counters: of the loader.
        options: its options, without its objects.
        foreign: why it uses PyTorch's iterator; "" if it does not.
        trace: the trace in progress.
        profile: the profile in progress.
    """

    counters: Any
    options: Any
    foreign: str
    trace: Any = None
    profile: Any = None


@dataclass
class _CallSite:
    """All loaders that one line of the program has made."""

    loaders: list[_Loader] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)


class _Process:
    """The records of this process."""

    def __init__(self) -> None:
        self.places: dict[str, _CallSite] = {}
        self.written_s = time.monotonic()
        self.is_registered = False
        self.steps = 0
        #: CPU time of the process and its descendants until the first batch.
        self.begin_cpu_s = 0.0
        self.digests: list[str] = []


_process = _Process()


class _DatasetName:
    """Stands for a dataset in the options that are kept: only the name of its class is known."""


def shortened(path: str) -> str:
    """Return a path relative to the current folder, if it is within it."""
    try:
        folder = f"{os.getcwd()}/"
    except FileNotFoundError:
        return path
    return path.removeprefix(folder)


def note(loader: Any) -> None:
    """Note that an iterator of a loader begins."""
    factory = loader._dali_like_factory
    place = _process.places.setdefault(loader._dali_like_place or type(loader).__qualname__, _CallSite())
    foreign = loader._dali_like_why_foreign or ""
    if (kept := next((each for each in place.loaders if each.counters is factory.counters), None)) is not None:
        kept.foreign = foreign
    else:
        place.loaders.append(kept := _Loader(factory.counters, _light_options(loader), foreign))
        if not _process.is_registered:
            _write_at_end()
        if settings().trace:
            from dali_like.data.loader_trace import LoaderTrace

            number = sum(len(place.loaders) for place in _process.places.values())
            if settings().folder:
                kept.trace = LoaderTrace(loader, Path(settings().folder) / f"{os.getpid()}-{number}.trace")
                kept.trace.__enter__()
        if settings().profile and settings().folder:
            from dali_like.data.base_loader import BaseDataLoader

            number = sum(len(place.loaders) for place in _process.places.values())
            kept.profile = BaseDataLoader.profile(loader, Path(settings().folder) / f"{os.getpid()}-{number}.profile")
            kept.profile.__enter__()
        if len(place.loaders) > _MOST_LOADERS:
            oldest = place.loaders.pop(0)
            _add(place.sums, _sums_of(_statistics(oldest)))
    if time.monotonic() - _process.written_s > _RENEWAL_S:
        write()


def watched(iterator: Any) -> Any:
    """Let an iterator end the process after some batches, if that is wanted."""
    if settings().steps:
        from dali_like.plugin.pytorch.metered_iterators import noted

        noted(iterator, _count_step)
    return iterator


def write() -> None:
    """Write the record of this process."""
    _process.written_s = time.monotonic()
    record = _record()
    folder = settings().folder
    if not folder:
        return
    path = Path(folder) / f"{os.getpid()}.json"
    temporary = path.with_suffix(".part")
    try:
        temporary.write_text(json.dumps(record), encoding="utf-8")
        temporary.replace(path)
    except FileNotFoundError:  # the program has left processes behind, and `dali-like run` has ended
        return


def _write_at_end() -> None:
    _process.is_registered = True
    atexit.register(_at_exit)
    if not settings().folder:
        return
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize  # these processes end without `atexit`

        Finalize(None, _finish, exitpriority=0)


def _at_exit() -> None:
    if settings().folder:
        _finish()
    else:
        from dali_like.running.summary import print_summary

        print_summary([_record()], settings())
    # Python notes that Ctrl-C has ended the program, for its exit status, and forgets it when it executes a text, as classes
    # of the modules imported above do when they are created. A text that raises the same error makes Python note it again.
    if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # a constant


def _finish() -> None:
    for loader in (each for place in _process.places.values() for each in place.loaders):
        if loader.trace is not None:
            trace, loader.trace = loader.trace, None
            trace.__exit__(None, None, None)
        if loader.profile is not None:
            profile, loader.profile = loader.profile, None
            profile.__exit__(None, None, None)
    write()


def _light_options(loader: Any) -> Any:
    from dali_like.data.options import LoaderOptions

    options = LoaderOptions.of(loader)
    dataset = type(type(options.dataset).__qualname__, (_DatasetName,), {})()
    nothing: dict[str, Any] = dict.fromkeys(("collate_fn", "worker_init_fn", "generator"))
    return options._replace(dataset=dataset, index_sampler=(), own={**options.own, "on_error": "raise"}, **nothing)


def _statistics(loader: _Loader) -> Any:
    from dataclasses import replace

    from dali_like.data.counters import statistics_of

    found = statistics_of(loader.counters, loader.options, None, memory=False)
    return replace(found, settings=replace(found.settings, foreign=loader.foreign))


def _sums_of(statistics: Any) -> dict[str, float]:
    loop = statistics.loop
    batches, size = loop.batches, statistics.settings.batch_size
    samples = statistics.sources[0].samples
    return {
        "loaders": 1,
        "batches": batches,
        "samples": min(samples, batches * size) if size else samples,  # without batches on their way
        "epochs": loop.epochs,
        "timed": loop.wait.count,
        "wait_s": loop.wait.total_s,
        "work_s": loop.work.total_s,
        "restarts": statistics.worker_restarts,
    }


def _add(sums: dict[str, float], more: dict[str, float]) -> None:
    for name, value in more.items():
        sums[name] = sums.get(name, 0) + value


def _record() -> dict[str, Any]:
    """Return the record of this process."""
    return {
        "pid": os.getpid(),
        "rank": os.environ.get("RANK", ""),
        "program": [shortened(sys.argv[0]) if sys.argv else "", *sys.argv[1:]],
        "dali": getattr(sys.modules.get("nvidia.dali"), "__name__", "") == "dali_like",
        "memory_bytes": _memory_bytes() if settings().steps else 0,
        "steps": max(_process.steps - 1, 0),
        "cpu_s": _cpu_s() - _process.begin_cpu_s if settings().steps else 0.0,
        "digests": _process.digests,
        "loaders": [_of_place(name, place) for name, place in _process.places.items()],
    }


def _of_place(name: str, place: _CallSite) -> dict[str, Any]:
    from dali_like.monitor.show.report import Report

    sums = dict(place.sums)
    found = [_statistics(each) for each in place.loaders]
    for each in found:
        _add(sums, _sums_of(each))
    main = max(found, key=lambda each: each.loop.batches)
    report = Report(main)
    return {
        "place": name,
        **sums,
        "batch_size": main.settings.batch_size,
        "num_workers": main.settings.num_workers,
        "first_batch_s": main.loop.first_batch_s,
        "foreign": main.settings.foreign,
        **report.diagnosis.texts(main.loop.batches_per_s),
        "report": str(report),
    }


# The end after a number of batches


def _count_step(batch: Any) -> None:
    if len(_process.digests) < _COMPARED:
        _process.digests.append(_digest(batch))
    _process.steps += 1
    if _process.steps == 1:
        _process.begin_cpu_s = _cpu_s()
    if _process.steps >= settings().steps:
        _finish()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # workers end with their process


def _digest(batch: Any) -> str:
    """Return a hash of the content of a batch; "" if it has content that cannot be pickled."""
    import hashlib
    import pickle

    import torch

    from dali_like.common.nesting import leaves_of

    found = hashlib.sha256()
    try:
        for path, value in leaves_of(batch):
            found.update(path.encode())
            if isinstance(value, torch.Tensor):
                tensor = value.detach().cpu().contiguous()
                found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
            else:
                found.update(pickle.dumps(value))
    except Exception:  # objects of any class: their batches are not compared
        return ""
    return found.hexdigest()


def _memory_bytes() -> int:
    """Return the memory of this process and its descendants."""
    from dali_like.monitor.measure.process_memory import descendants_of, pss_bytes

    return sum(map(pss_bytes, [os.getpid(), *descendants_of(os.getpid())]))


def _cpu_s() -> float:
    """Return the CPU time of this process and its descendants, also of those that have ended and been waited for."""
    from dali_like.engine.memory.limits import read_file
    from dali_like.monitor.measure.process_memory import descendants_of

    pids = [os.getpid(), *descendants_of(os.getpid())]
    # The name of a command, in parentheses, may contain anything: the columns are counted from behind it.
    stats = filter(None, (read_file(f"/proc/{pid}/stat").rpartition(")")[2] for pid in pids))
    return sum(int(ticks) for stat in stats for ticks in stat.split()[_CPU_COLUMNS]) / os.sysconf("SC_CLK_TCK")


def _forget() -> None:
    global _process  # noqa: PLW0603  # a forked child has its own
    _process = _Process()


os.register_at_fork(after_in_child=_forget)
