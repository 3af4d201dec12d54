"""Shows running pipelines in the terminal: bottleneck, throughput, waiting, operators, workers, slow samples.

The program must call publish() on its pipeline, or run with DALI_LIKE_PUBLISH=1. Several pipelines are listed, with the rank
that holds the job up; choose one with --pid and --name. Ends with Ctrl-C, or when the pipeline is closed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dali_like.common.extras import optional
from dali_like.errors import NotRunningError
from dali_like.monitor.measure.text import seconds_text, sparkline

if TYPE_CHECKING:
    from dali_like.engine.pool.host_budget import Entry

__all__ = ["add_arguments", "run"]

_PERIOD_S = 0.5
#: Older statistics are marked with their age.
_STALE_S = 2.0
_BAR_CELLS = 24
_MOST_STAGES = 3
_MOST_OPERATORS = 6
_MIB = float(1 << 20)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    parser.add_argument("--pid", type=int, help="process id of the program, if there are several")
    parser.add_argument("--name", help="name of the pipeline, if there are several")
    parser.add_argument("--once", action="store_true", help="print once, over the time until something has changed")


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    console = optional("rich.console", "dali-like top", "top").Console()
    from dali_like.monitor.show import live

    found = live.find(options.pid, options.name)
    if len(found) > 1:
        return _show_all(options, console)
    shown = live.choose(options.pid, options.name)
    before = shown.read()
    try:
        if options.once:
            while (now := shown.read())["at_ns"] == before["at_ns"] and now["age_s"] < _STALE_S:
                time.sleep(_PERIOD_S)
            console.print(screen(before, now, entries()))
            return 0
        with _display(console, screen(before, before)) as show:
            now = before
            while True:
                time.sleep(_PERIOD_S)
                latest = shown.read()
                if latest["at_ns"] != now["at_ns"]:
                    before, now = now, latest
                show(screen(before, {**now, "age_s": latest["age_s"]}, entries()))
    except NotRunningError as ended:
        print(ended, file=sys.stderr)
        return 0


@contextlib.contextmanager
def _display(console: Any, first: Any) -> Iterator[Callable[[Any], None]]:
    """A function that shows a screen in place of the one before; behind it, if the output is a file or a pipe."""
    if not console.is_terminal:
        yield lambda shown: console.print(shown, "")
        return
    screens = optional("rich.live", "dali-like top", "top")
    with screens.Live(first, console=console, screen=True, auto_refresh=False) as display:
        yield lambda shown: display.update(shown, refresh=True)


def _show_all(options: argparse.Namespace, console: Any) -> int:
    """List all running pipelines until they have ended."""
    from dali_like.monitor.show import live

    if options.once:
        console.print(overview(live.read_all(options.pid, options.name), entries()))
        return 0
    with _display(console, "") as show:
        while snapshots := live.read_all(options.pid, options.name):
            show(overview(snapshots, entries()))
            time.sleep(_PERIOD_S)
    print("all pipelines have ended", file=sys.stderr)
    return 0


def entries() -> list[Entry]:
    """Return the entries of all pools in the budget of this host that count."""
    from dali_like.engine.pool import host_budget

    return [entry for entry in host_budget.read(host_budget.places()) if host_budget.is_valid(entry)]


def overview(snapshots: Sequence[dict[str, Any]], budget: Sequence[Entry] = ()) -> Any:
    """Return a screen with one line for each of several pipelines, and the rank that holds the job up.

    Args:
        snapshots: see `dali_like.monitor.show.live.snapshot`.
        budget: the result of `entries`.
    """
    from dali_like.monitor.show.slowest_rank import slowest_rank_text

    console = optional("rich.console", "dali-like top", "top")
    tables = optional("rich.table", "dali-like top", "top")
    table = tables.Table(
        "rank", "pipeline", "process", "bottleneck", "waiting", "a batch", "for", box=None, header_style="dim"
    )
    for shown in sorted(snapshots, key=lambda shown: (shown["rank"], shown["name"])):
        recent = shown["recent"]
        rank = f"{shown['rank']} of {shown['num_ranks']}" if shown["num_ranks"] > 1 else ""
        stages = ", ".join(f"{_plain(stage['name'])} {stage['share']:.0%}" for stage in recent["stages"][:_MOST_STAGES])
        bottleneck = recent["diagnosis"]["bottleneck"]
        waiting = ("", "", "")
        if recent["batches"]:
            waiting = (f"{recent['wait_share']:.0%}", seconds_text(recent["wait_s"]), stages)
        table.add_row(rank, _plain(shown["name"]), str(shown["pid"]), bottleneck, *waiting)
    verdict = slowest_rank_text(snapshots)
    hint = "[dim]one of them: dali-like top --pid PROCESS --name PIPELINE[/]"
    parts = [table, "", *itertools.chain.from_iterable((part, "") for part in _budget(tables, budget)), hint]
    return console.Group(*([f"[bold]{_plain(verdict)}[/]", ""] if verdict else []), *parts)


def screen(before: dict[str, Any], now: dict[str, Any], budget: Sequence[Entry] = ()) -> Any:
    """Return the screen: rates between two moments, and the state at the second.

    Args:
        before, now: see `dali_like.monitor.show.live.snapshot`.
        budget: the result of `entries`.
    """
    console = optional("rich.console", "dali-like top", "top")
    tables = optional("rich.table", "dali-like top", "top")
    seconds = (now["at_ns"] - before["at_ns"]) / 1e9

    def rate(name: str) -> float | None:
        return (now[name] - before[name]) / seconds if seconds else None

    head = tables.Table.grid(padding=(0, 3))
    age = f"[yellow]no batch requested for {now['age_s']:.0f} s[/]" if now["age_s"] > _STALE_S else ""
    head.add_row(f"[bold]{_plain(now['name'])}[/], process {now['pid']}", age)
    numbers = tables.Table.grid(padding=(0, 3))
    rates = ((rate(unit), unit) for unit in ("samples", "batches"))
    numbers.add_row("throughput", *("" if value is None else f"{value:,.0f} {unit}/s" for value, unit in rates))
    wait = rate("wait_s")
    numbers.add_row("waiting", _bar(wait), "of the loop's time")
    if stages := now["recent"]["stages"]:
        numbers.add_row(
            "", "for " + ", ".join(f"{_plain(stage['name'])} {stage['share']:.0%}" for stage in stages[:_MOST_STAGES])
        )
    numbers.add_row("ring", f"{now['ready']} ready, {now['slots_in_use']} in use", f"{now['bytes'] / _MIB:.1f} MiB")
    counts = {"errors": now["errors"], "restarts of workers": now["restarts"], "samples replaced": now["replaced"]}
    troubles = ", ".join(f"[yellow]{count} {name}[/]" for name, count in counts.items() if count) or "no errors"
    numbers.add_row("so far", f"{now['batches']} batches, {now['epochs']} epochs", troubles)
    found = {name: _plain(text) for name, text in now["recent"]["diagnosis"].items()}
    texts = (f"[bold]Bottleneck: {found['bottleneck']}[/]", found["sentence"], found["advice"], found["expected"])
    parts = [
        "\n".join(filter(None, texts)),
        numbers,
        _workers(tables, before, now, seconds),
        *_operators(tables, before, now),
        *_calls(tables, now),
        _slowest(tables, now),
        *_budget(tables, budget),
    ]
    return console.Group(head, *itertools.chain.from_iterable(("", part) for part in parts))


def _budget(tables: Any, budget: Sequence[Entry]) -> Iterator[Any]:
    """Yield a table of the pools that share the CPUs of this host; nothing without such pools."""
    if budget:
        cpus = min(entry.budget for entry in budget)
        table = tables.Table(f"{cpus:g} CPUs", "workers", "at rest", "used", "needed", "share", box=None, header_style="dim")
        for entry in sorted(budget):
            share = "fixed" if entry.is_fixed else f"{entry.share:.2f}"
            numbers = (str(entry.num_workers), str(entry.num_workers - entry.num_active), f"{entry.used:.2f}")
            table.add_row(f"process {entry.pid}", *numbers, f"{entry.needed:.2f}", share)
        yield table


def _operators(tables: Any, before: dict[str, Any], now: dict[str, Any]) -> Iterator[Any]:
    """Yield a table of the time by operator between two moments; nothing without operators."""
    past = {(each["name"], each["place"]): each["seconds"] for each in before["operators"]}
    spent = [(each, each["seconds"] - past.get((each["name"], each["place"]), 0.0)) for each in now["operators"]]
    whole_s = sum(max(took_s, 0.0) for _, took_s in spent)
    if whole_s:
        table = tables.Table("operators", "share", "in", box=None, header_style="dim")
        for each, took_s in sorted(spent, key=lambda pair: -pair[1])[:_MOST_OPERATORS]:
            table.add_row(_plain(each["name"]), _bar(took_s / whole_s), each["place"])
        yield table


def _calls(tables: Any, now: dict[str, Any]) -> Iterator[Any]:
    """Yield a table of the histograms of calls."""
    if now["calls"]:
        table = tables.Table("calls so far", "fastest", "number by time", "slowest", box=None, header_style="dim")
        for calls in now["calls"]:
            edges_s = calls["edges_s"]
            bars = sparkline(calls["counts"], _BAR_CELLS)
            table.add_row(_plain(calls["source"]), seconds_text(edges_s[0]), bars, seconds_text(edges_s[-1]))
        yield table


def _workers(tables: Any, before: dict[str, Any], now: dict[str, Any], seconds: float) -> Any:
    table = tables.Table("worker", "process", "busy", "current task", box=None, header_style="dim")
    past = {worker["number"]: worker["busy_s"] for worker in before["workers"]}
    for worker in now["workers"]:
        busy_s = worker["busy_s"] - past.get(worker["number"], 0.0)
        share = busy_s / seconds if seconds else None
        on_task = f"{worker['on_task_s'] * 1000:.0f} ms" if worker["on_task_s"] else ""
        table.add_row(str(worker["number"]), str(worker["pid"] or "not started"), _bar(share), on_task)
    return table if now["workers"] else "no workers"


def _slowest(tables: Any, now: dict[str, Any]) -> Any:
    table = tables.Table("slowest samples", "took", "epoch", "sample", box=None, header_style="dim")
    for call in now["slowest"]:
        table.add_row(_plain(call["source"]), f"{call['duration_s'] * 1000:.1f} ms", str(call["epoch"]), str(call["sample"]))
    return table


def _plain(text: str) -> str:
    """Escape markup and control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text).replace("[", "\\[")


def _bar(share: float | None) -> str:
    if share is None:
        return ""
    share = min(max(share, 0.0), 1.0)
    filled = round(share * _BAR_CELLS)
    return f"[green]{'━' * filled}[/][dim]{'·' * (_BAR_CELLS - filled)}[/] {share:4.0%}"  # readable without color
