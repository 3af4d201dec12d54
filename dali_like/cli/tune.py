"""Tries settings of your pipeline within a memory budget, and prints the best as a line of code.

It tries one setting after the other: workers, operator threads, prefetch depth, start method. An empty loop measures each
value in a process of its own. Values not far from the fastest are measured again, in turns; their median counts. The
smallest value within 3 % of the fastest wins. Where measurements of several values overlap, the difference is noise, and the
present value stays.
"""

from __future__ import annotations

import argparse
import functools
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dali_like.cli.bench import facts_of
from dali_like.cli.factories import Factory, add_factory_arguments, factory_of, seconds
from dali_like.cli.machine_load import busy_cpus, load_text
from dali_like.cli.reports import StatusLine, rate_text, size_text, table
from dali_like.cli.trials import Outcome, ask, try_pipeline
from dali_like.engine.memory.limits import allowed_cpus, available_bytes
from dali_like.engine.pool.backend_traits import BACKENDS
from dali_like.errors import ArgumentError, TrialError

__all__ = ["add_arguments", "run"]

#: A cheaper setting may be this much slower than the fastest.
_TOLERANCE = 0.03
#: Values within this distance of the fastest single trial are measured again: single trials may be off by so much.
_CLOSE = 0.3
#: Number of measurements of these values.
_REPEATS = 3
_DEPTHS = (1, 2, 4, 8)
#: More workers than CPUs are tried while they gain at least this much.
_WORTH = 0.1
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SHORT_NAMES = {
    "py_num_workers": "workers",
    "prefetch_queue_depth": "ahead",
    "py_start_method": "start method",
    "num_threads": "threads",
}

Settings = dict[str, Any]


@dataclass
class _Trial:
    """One combination of settings.

    Attributes:
        outcomes: measurements; empty after a failure.
        note: why the settings cannot be used; "" if they can.
    """

    settings: Settings
    outcomes: list[Outcome] = field(default_factory=list)
    note: str = ""

    @property
    def rate(self) -> float:
        """Median of the samples per second; 0 if the settings cannot be used."""
        return self.measured.samples_per_s if self.outcomes and not self.note else 0.0

    @property
    def measured(self) -> Outcome:
        """Medians of the measurements, and the largest memory; zeros without measurements."""
        if not self.outcomes:
            return Outcome(0.0, 0.0, 0.0, 0, "", 0.0)
        return Outcome(
            samples_per_s=statistics.median(outcome.samples_per_s for outcome in self.outcomes),
            batches_per_s=statistics.median(outcome.batches_per_s for outcome in self.outcomes),
            first_batch_s=statistics.median(outcome.first_batch_s for outcome in self.outcomes),
            memory_bytes=max(outcome.memory_bytes for outcome in self.outcomes),
            stage=self.outcomes[0].stage,
            share_of_limit=statistics.median(outcome.share_of_limit for outcome in self.outcomes),
            enough_workers=max(outcome.enough_workers for outcome in self.outcomes),
            lost_share=max(outcome.lost_share for outcome in self.outcomes),
        )

    @property
    def rates(self) -> tuple[float, float]:
        """The lowest and the highest rate of the measurements."""
        rates = [outcome.samples_per_s for outcome in self.outcomes]
        return min(rates), max(rates)

    @property
    def spread(self) -> float:
        """Range of the rates, relative to their median."""
        lowest, highest = self.rates
        return (highest - lowest) / self.rate if self.rate else 0.0

    def overlaps(self, faster: _Trial) -> bool:
        """Whether a measurement of this trial was as fast as one of a faster trial."""
        return self.rates[1] >= faster.rates[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    add_factory_arguments(parser)
    parser.add_argument("--memory", help="memory limit of all processes, such as 4G; default: half of the available memory")
    parser.add_argument("--seconds", type=seconds, default=2.0, help="time of each measurement; default: %(default)s")
    parser.add_argument("--plot", type=Path, help="draw the results into this file; needs Matplotlib")


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    factory = factory_of(options)
    budget = available_bytes() // 2 if options.memory is None else _bytes(options.memory)
    if options.plot is not None and not options.plot.parent.is_dir():
        raise ArgumentError(f"--plot {options.plot}: there is no folder {options.plot.parent}")
    try:
        told = ask(factory.make, facts_of)
    except TrialError as error:
        raise ArgumentError(f"cannot make {factory.line()}: {error}") from error
    busy = busy_cpus()
    tuning = _Tuning(factory, budget, options.seconds)
    best = tuning.tune(told)
    if disturbed := load_text(busy, (trial.measured.lost_share for trial in tuning.trials)):
        print(f"{disturbed}\n")
    print(table(*_table_of(tuning.trials, best)))
    if best is None:
        least = min((trial.measured.memory_bytes for trial in tuning.trials if trial.outcomes), default=0)
        hint = f"; the smallest use was {size_text(least)}: raise --memory" if least > budget else ""
        print(f"\nNo settings work within {size_text(budget)}{hint}.")
        return 1
    print(f"\n{tuning.noise_text()}\n\n{factory.line(**best.settings)}", flush=True)
    if options.plot is not None:
        _draw(tuning.trials, best, factory.line(), options.plot)
    return 0


class _Tuning:
    """Coordinate search over the settings.

    Attributes:
        trials: all trials so far.
        undecided: for each setting whose values are too close to choose from: a sentence.
    """

    def __init__(self, factory: Factory, budget_bytes: int, seconds: float) -> None:
        self._factory = factory
        self._budget_bytes = budget_bytes
        self._seconds = seconds
        self.trials: list[_Trial] = []
        self.undecided: list[str] = []

    def noise_text(self) -> str:
        """Describe the spread of repeated measurements, and the settings that are undecided because of it."""
        spread = max((trial.spread for trial in self.trials if len(trial.outcomes) > 1), default=0.0)
        lines = [
            f"Measurements of the same settings differ by up to {spread:.0%}. Of values within {_TOLERANCE:.0%} of the "
            "fastest, the smallest is taken.",
            *self.undecided,
        ]
        return "\n".join(lines)

    def tune(self, told: dict[str, Any]) -> _Trial | None:
        """Return the best settings, starting from the current ones; None if none work."""
        settings: Settings = {"prefetch_queue_depth": told["depth"]}
        if told["has_parallel"]:
            settings |= {"py_num_workers": max(told["workers"], 1), "py_start_method": told["start_method"]}
        if told["has_threads"]:
            settings["num_threads"] = told["threads"]
        for name, values in _choices(settings):
            settings = self._choose(settings, name, values)
        # The chosen settings have a trial, unless all trials failed.
        return next((trial for trial in self.trials if trial.settings == settings and trial.rate), None)

    def _choose(self, settings: Settings, name: str, values: list[Any]) -> Settings:
        """Return the settings with the best of some values for one name."""
        trials = [self._try({**settings, name: value}) for value in values]
        while name == "py_num_workers" and (more := _worth_trying(trials)):
            trials.append(self._try({**settings, name: more}))
        fastest = max(trial.rate for trial in trials)
        if not fastest:
            return settings
        close = [trial for trial in trials if trial.rate >= fastest * (1 - _CLOSE)]
        # In turns, so that a disturbance hits all of them.
        for _ in range(_REPEATS - 1):
            for trial in close:
                if len(trial.outcomes) < _REPEATS and trial.rate:
                    self._measure(trial)
        usable = [trial for trial in close if trial.rate]
        if not usable:  # they have worked only once
            return settings
        best = max(usable, key=lambda trial: trial.rate)
        equal = [trial for trial in usable if trial.rate >= best.rate * (1 - _TOLERANCE)]
        unsure = [trial for trial in usable if trial not in equal and trial.overlaps(best)]
        if not unsure:
            return equal[0].settings
        present = next((trial for trial in (*equal, *unsure) if trial.settings == settings), None)
        chosen = best if present is None else present
        between = ", ".join(str(trial.settings[name]) for trial in usable if trial in equal or trial in unsure)
        why = "the fastest on average is taken" if present is None else "the present value stays"
        self.undecided.append(
            f"Not decided: {name} {between}. Their measurements overlap; {why}: {chosen.settings[name]}. More --seconds "
            "may decide it."
        )
        return chosen.settings

    def _try(self, settings: Settings) -> _Trial:
        for trial in self.trials:
            if trial.settings == settings:
                return trial
        self.trials.append(trial := _Trial(settings))
        self._measure(trial)
        return trial

    def _measure(self, trial: _Trial) -> None:
        make = functools.partial(self._factory.make, **trial.settings, max_held_bytes=self._budget_bytes)
        try:
            with StatusLine(", ".join(f"{name}={value}" for name, value in trial.settings.items())) as progress:
                trial.outcomes.append(try_pipeline(make, self._seconds, progress.show))
        except TrialError as error:
            trial.note = f"failed: {error}"
        else:
            trial.note = "too much memory" if trial.measured.memory_bytes > self._budget_bytes else ""


def _worth_trying(trials: list[_Trial]) -> int | None:
    """Return more workers, up to twice as many, if the CPUs can keep more busy and the last ones helped."""
    last, others = trials[-1], trials[:-1]
    workers: int = last.settings["py_num_workers"]
    enough = max(trial.measured.enough_workers for trial in trials)
    is_worth_it = last.rate > (1 + _WORTH) * max((trial.rate for trial in others), default=0.0)
    return min(2 * workers, enough) if is_worth_it and workers < enough else None


def _choices(settings: Settings) -> list[tuple[str, list[Any]]]:
    """Return the values to try for each name in ``settings``, the cheapest first."""
    cpus = allowed_cpus()
    counts = sorted({*(1 << i for i in range(cpus.bit_length())), cpus})
    start_method = settings.get("py_start_method")
    processes = [each.name for each in BACKENDS.values() if each.has_processes]
    tried: dict[str, list[Any]] = {
        "py_num_workers": sorted({*counts, settings.get("py_num_workers", 1)}),
        "num_threads": sorted({*counts, settings.get("num_threads", 1)}),
        "prefetch_queue_depth": sorted({*_DEPTHS, settings["prefetch_queue_depth"]}),
        # Backends without processes have further requirements.
        "py_start_method": [*processes] if start_method in processes else [start_method],
    }
    return [(name, values) for name, values in tried.items() if name in settings]


def _table_of(trials: list[_Trial], best: _Trial | None) -> tuple[list[str], list[list[str]]]:
    names = [name for name in _SHORT_NAMES if any(name in trial.settings for trial in trials)]
    head = [*(_SHORT_NAMES[name] for name in names), "samples/s", "spread", "memory", "first batch", ""]
    rows = []
    for trial in trials:
        outcome = trial.measured
        measured = ["", "", "", ""]
        if trial.outcomes:
            spread = f"{trial.spread:.0%}" if len(trial.outcomes) > 1 else ""
            memory, first = size_text(outcome.memory_bytes), f"{outcome.first_batch_s:.2f} s"
            measured = [rate_text(outcome.samples_per_s), spread, memory, first]
        rows.append([*(str(trial.settings[name]) for name in names), *measured, "<- best" if trial is best else trial.note])
    return head, rows


def _draw(trials: list[_Trial], best: _Trial | None, title: str, path: Path) -> None:
    """Draw the rate and the memory of each trial as bars. Lines show the range of repeated measurements."""
    from dali_like.common.extras import optional

    figure = optional("matplotlib.figure", "--plot", "plot").Figure(
        figsize=(9, 1 + 0.35 * len(trials)), layout="constrained"
    )
    rates, memory = figure.subplots(1, 2, sharey=True)
    labels = [
        ", ".join(f"{_SHORT_NAMES[name]} {value}" for name, value in trial.settings.items())
        + (f" ({trial.note.partition(':')[0]})" if trial.note else "")
        for trial in trials
    ]
    colors = ["#5cb85c" if trial is best else "#d9534f" if trial.note else "#4a7fb5" for trial in trials]
    measured = [trial.measured for trial in trials]
    medians = [outcome.samples_per_s for outcome in measured]
    ranges = [trial.rates if trial.outcomes else (0.0, 0.0) for trial in trials]
    below = [max(0.0, median - lowest) for median, (lowest, _) in zip(medians, ranges, strict=True)]
    above = [max(0.0, highest - median) for median, (_, highest) in zip(medians, ranges, strict=True)]
    bars = rates.barh(range(len(trials)), medians, color=colors, xerr=(below, above), error_kw={"capsize": 3})
    rates.bar_label(bars, [rate_text(median) for median in medians], label_type="center", color="white")
    figure.suptitle(
        f"dali-like tune: {title}; median, and range of {_REPEATS} measurements where repeated", fontsize="medium"
    )
    rates.set_yticks(range(len(trials)), labels)
    rates.invert_yaxis()
    rates.set_xlabel("samples/s")
    memory.barh(range(len(trials)), [outcome.memory_bytes / (1 << 20) for outcome in measured], color=colors)
    rates.set_title("rate of an empty loop", loc="left", fontsize="medium")
    memory.set_xlabel("MiB")
    memory.set_title("memory of all processes", loc="left", fontsize="medium")
    figure.savefig(path)


def _bytes(text: str) -> int:
    """Parse a number of bytes such as "512M" or "4GiB"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    nbytes = 0 if match is None else int(float(match[1]) * _UNITS[match[2].upper()])
    if not nbytes:
        raise ArgumentError(f"--memory {text}: expected a number of bytes, such as 512M or 4GiB")
    return nbytes
