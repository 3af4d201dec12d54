"""Shows a running pipeline in the terminal: throughput, waiting, workers, slow samples.

The program must call publish() on its pipeline, or run with DALI_LIKE_PUBLISH=1. Ends with Ctrl-C, or when the pipeline is
closed.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from dali_like.common.extras import optional
from dali_like.errors import NotRunningError

__all__ = ["add_arguments", "run"]

_PERIOD_S = 0.5
#: Older statistics are marked with their age.
_STALE_S = 2.0
_BAR_CELLS = 24
_MIB = float(1 << 20)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    parser.add_argument("--pid", type=int, help="process id of the program, if there are several")
    parser.add_argument("--name", help="name of the pipeline, if there are several")
    parser.add_argument("--once", action="store_true", help="print once, over the time until something has changed")


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    console = optional("rich.console", "dali-like top", "top").Console()
    screens = optional("rich.live", "dali-like top", "top")
    from dali_like.monitor import live  # noqa: PLC0415

    shown = live.choose(options.pid, options.name)
    before = shown.read()
    try:
        if options.once:
            while (now := shown.read())["at_ns"] == before["at_ns"] and now["age_s"] < _STALE_S:
                time.sleep(_PERIOD_S)
            console.print(screen(before, now))
            return 0
        with screens.Live(
            screen(before, before), console=console, screen=console.is_terminal, auto_refresh=False
        ) as display:
            now = before
            while True:
                time.sleep(_PERIOD_S)
                latest = shown.read()
                if latest["at_ns"] != now["at_ns"]:
                    before, now = now, latest
                display.update(screen(before, {**now, "age_s": latest["age_s"]}), refresh=True)
    except NotRunningError as ended:
        print(ended, file=sys.stderr)
        return 0


def screen(before: dict[str, Any], now: dict[str, Any]) -> Any:
    """Return the screen: rates between two moments, and the state at the second.

    Args:
        before, now: see `dali_like.monitor.live.snapshot`.
    """
    console = optional("rich.console", "dali-like top", "top")
    tables = optional("rich.table", "dali-like top", "top")
    seconds = (now["at_ns"] - before["at_ns"]) / 1e9

    def rate(name: str) -> float | None:
        return (now[name] - before[name]) / seconds if seconds else None

    head = tables.Table.grid(padding=(0, 3))
    head.add_row(f"[bold]{_plain(now['name'])}[/], process {now['pid']}", _age(now["age_s"]))
    numbers = tables.Table.grid(padding=(0, 3))
    numbers.add_row("throughput", _number(rate("samples"), "samples/s"), _number(rate("batches"), "batches/s"))
    wait = rate("wait_s")
    numbers.add_row("waiting", _bar(wait), "of the loop's time")
    numbers.add_row("ring", f"{now['ready']} ready, {now['slots_in_use']} in use", f"{now['bytes'] / _MIB:.1f} MiB")
    numbers.add_row("so far", f"{now['batches']} batches, {now['epochs']} epochs", _troubles(now))
    return console.Group(head, "", numbers, "", _workers(tables, before, now, seconds), "", _slowest(tables, now))


def _workers(tables: Any, before: dict[str, Any], now: dict[str, Any], seconds: float) -> Any:
    table = tables.Table("worker", "process", "busy", "current task", box=None, header_style="dim")
    past = {worker["number"]: worker["busy_s"] for worker in before["workers"]}
    for worker in now["workers"]:
        busy_s = max(0.0, worker["busy_s"] - past.get(worker["number"], 0.0))
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


def _age(age_s: float) -> str:
    return f"[yellow]no batch requested for {age_s:.0f} s[/]" if age_s > _STALE_S else ""


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,.0f} {unit}"


def _bar(share: float | None) -> str:
    if share is None:
        return ""
    share = min(max(share, 0.0), 1.0)
    filled = round(share * _BAR_CELLS)
    return f"[green]{'━' * filled}[/][dim]{'━' * (_BAR_CELLS - filled)}[/] {share:4.0%}"


def _troubles(now: dict[str, Any]) -> str:
    counts = {"errors": now["errors"], "restarts of workers": now["restarts"], "samples replaced": now["replaced"]}
    return ", ".join(f"[yellow]{count} {what}[/]" for what, count in counts.items() if count) or "no errors"
