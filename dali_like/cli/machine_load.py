"""Do other programs use the CPUs now? Timings of a busy machine say little, so the commands say it first."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from dali_like.engine.memory.limits import allowed_cpus

#: Duration of a measurement, in which this process sleeps.
_INTERVAL_S = 0.3
#: From this share of the CPUs on, other programs distort measurements.
_MUCH = 0.15
#: Columns of /proc/stat: see proc(5). A CPU that waits for a disk is idle.
_IDLE, _IOWAIT, _NUM_COLUMNS = 3, 4, 8


def busy_cpus(root: Path = Path("/"), interval_s: float = _INTERVAL_S) -> float | None:
    """Return how many of the CPUs of this process are in use, while it sleeps; None where the system does not say."""
    before = _ticks(root)
    time.sleep(interval_s)
    after = _ticks(root)
    busy, total = (now - then for now, then in zip(after, before, strict=True))
    return allowed_cpus() * busy / total if total > 0 else None


def _ticks(root: Path) -> tuple[int, int]:
    """Return the busy ticks and all ticks of the CPUs of this process since the start of the machine."""
    try:
        lines = (root / "proc/stat").read_text().splitlines()
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        rows = [[int(number) for number in line.split()[1:]][:_NUM_COLUMNS] for line in lines if line.split()[0] in mine]
        total = sum(map(sum, rows))
        return total - sum(row[_IDLE] + row[_IOWAIT] for row in rows), total
    except (AttributeError, IndexError, OSError, ValueError):  # another system
        return 0, 0


def load_text(busy: float | None, lost: Iterable[float] = ()) -> str:
    """Return a sentence about other programs on the CPUs; "" if they use few.

    Args:
        busy: the result of `busy_cpus` before a measurement.
        lost: for each measurement, the share of the callbacks' time in which other programs had the CPUs.
    """
    cpus = allowed_cpus()
    parts = []
    if busy is not None and busy >= _MUCH * cpus:
        parts.append(f"they used {busy:.1f} of {cpus} before the measurement")
    if (most := max(lost, default=0.0)) > 0:
        parts.append(f"callbacks waited for a CPU up to {most:.0%} of their time")
    return f"Other programs take the CPUs: {', and '.join(parts)}. Repeat this on an idle machine." if parts else ""
