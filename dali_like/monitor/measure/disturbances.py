"""Find disturbances of a loop, beside its bottleneck: pure functions of its statistics.

- Other programs take the CPUs. Then all times are longer than on an idle machine.
- A few calls take a large part of the time. Then medians say little.
"""

from __future__ import annotations

from dali_like.engine.worker.meters import SlowCall
from dali_like.monitor.measure.statistics import SourceStatistics, Statistics
from dali_like.monitor.measure.text import seconds_text

#: From this share on, the time that callbacks wait for a CPU is worth mentioning.
_MUCH_DELAY = 0.2
#: If this program alone uses this share of the CPUs, its own workers are in each other's way.
_NEARLY_ALL = 0.85
#: The calls that may be outliers, their share of the time from which on they are, and the least number of calls.
_FEW, _LARGE_PART, _LEAST_CALLS = 0.01, 0.2, 200


def lost_to_others(statistics: Statistics) -> float:
    """Return the share of the callbacks' time in which other programs had the CPUs; 0 if it is small or unknown."""
    busy_s = sum(source.busy_s for source in statistics.sources)
    if not busy_s or not statistics.seconds:
        return 0.0
    share = sum(source.delayed_s for source in statistics.sources) / busy_s
    return share if share >= _MUCH_DELAY and cpus_used(statistics) < _NEARLY_ALL * statistics.settings.num_cpus else 0.0


def cpus_used(statistics: Statistics) -> float:
    """Return the mean number of CPUs that the program and its workers use."""
    workers_s = sum(source.cpu_s for source in statistics.sources if source.place == "workers")
    return (workers_s + statistics.cpu_s) / statistics.seconds if statistics.seconds else 0.0


def load_finding(statistics: Statistics) -> str:
    """Return a sentence about other programs on the CPUs; "" without any."""
    share = lost_to_others(statistics)
    if not share:
        return ""
    cpus = statistics.settings.num_cpus
    load = f"the load is {statistics.load_average:.1f} on" if statistics.load_average else "there are"
    return (
        f"Other programs take the CPUs: {load} {cpus} CPU{'s' * (cpus != 1)}, of which this program uses "
        f"{cpus_used(statistics):.1f}, and its callbacks wait for a CPU {share:.0%} of their time. All times suffer."
    )


def outliers_finding(statistics: Statistics) -> str:
    """Name the sources with a few calls that take a large part of the time; "" without any."""
    return " ".join(filter(None, map(_outliers_of, statistics.sources)))


def _outliers_of(source: SourceStatistics) -> str:
    if source.callback.count < _LEAST_CALLS:
        return ""
    share = source.callback.share_of_slowest(_FEW)
    if share < _LARGE_PART:
        return ""
    example = f", such as {call_text(source.slowest[0])}" if source.slowest else ""
    return f"{_FEW:.0%} of the calls of {source.name} take {share:.0%} of the time of all{example}."


def call_text(call: SlowCall) -> str:
    """Name the samples of a call, and its duration."""
    which = f"sample {call.sample}" if call.sample >= 0 else f"one of batch {call.iteration}"
    if call.num_samples > 1 and call.sample >= 0:
        which = f"samples {call.sample} to {call.sample + call.num_samples - 1}"
    return f"{which} of epoch {call.epoch} {seconds_text(call.duration_ns / 1e9)}"
