"""A profile: time by stack and worker, and its forms: lines, functions, collapsed stacks, speedscope, JSON."""

from __future__ import annotations

import json
import os
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from dali_like.engine.worker.sampling import PACKAGE, PERIOD_S, Counts, Frame, Stack, StackCounts
from dali_like.errors import TraceFileError
from dali_like.monitor.measure.text import seconds_text

__all__ = ["HotLine", "Profile", "shown_file"]

#: In files that `Profile.write` has written.
_FORMAT = "dali_like profile"
_SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = ("site-packages", "dist-packages")


class HotLine(NamedTuple):
    """A line, or a function, with the time that was spent in it and not in its calls.

    Attributes:
        file: its file: of a package from the package on, of the program relative to the current folder.
        line: its number; for a function, that of its hottest line.
        function: its function.
        caller: ``file:line`` of the program that has called it, over functions of packages; "" if it is of the program.
        share: of the time of all workers in functions of the program.
        wall_s, cpu_s, free_s: time, CPU time, and CPU time without the GIL.
        path: the whole path of the file.
    """

    file: str
    line: int
    function: str
    caller: str
    share: float
    wall_s: float
    cpu_s: float
    free_s: float
    path: str

    @property
    def waiting_s(self) -> float:
        """Time without the CPU: for a disk, a network, a lock, or another process."""
        return max(self.wall_s - self.cpu_s, 0.0)

    def __str__(self) -> str:
        called = f", called from {self.caller}" if self.caller else ""
        wait = f", {self.waiting_s / self.wall_s:.0%} of it waiting" if self.waiting_s > 0.1 * self.wall_s else ""
        return f"{self.file}:{self.line} {self.function}{called}: {self.share:.0%}{wait}"


@dataclass
class Profile:
    """Time by stack, for each worker.

    Attributes:
        workers: the counts by name: "worker 0" and so on, or "main" for functions that the main process calls.
    """

    workers: dict[str, StackCounts] = field(default_factory=lambda: defaultdict(StackCounts))

    def add(self, worker: str, counts: StackCounts) -> None:
        """Add counts of a worker."""
        self.workers.setdefault(worker, StackCounts()).add_all(counts)

    @property
    def total(self) -> Counts:
        """The time of all workers in functions of the program."""
        total = Counts()
        for _, _, counts in self._stacks():
            total = total.plus(counts)
        return total

    @property
    def idle_s(self) -> float:
        """The time in which workers had nothing to compute."""
        return sum(each.idle_ns for each in self.workers.values()) / 1e9

    def lines(self, most: int | None = None) -> list[HotLine]:
        """Return the lines with the most time of their own, the hottest first."""
        return self._hottest(lambda frame: frame, most)

    def functions(self, most: int | None = None) -> list[HotLine]:
        """Return the functions with the most time of their own, the hottest first."""
        return self._hottest(lambda frame: frame._replace(line=0), most)

    def _hottest(self, key_of: Callable[[Frame], Frame], most: int | None) -> list[HotLine]:
        counts: defaultdict[Frame, Counts] = defaultdict(Counts)
        callers: defaultdict[Frame, Counter[str]] = defaultdict(Counter)
        hottest: defaultdict[Frame, Counter[int]] = defaultdict(Counter)
        for _, stack, counted in self._stacks():
            key = key_of(stack[-1])
            counts[key] = counts[key].plus(counted)
            callers[key][_caller_in(stack)] += counted.wall_ns
            hottest[key][stack[-1].line] += counted.wall_ns
        whole_ns = max(self.total.wall_ns, 1)
        found = [
            HotLine(
                shown_file(key.file),
                hottest[key].most_common(1)[0][0],
                key.function,
                callers[key].most_common(1)[0][0],
                counted.wall_ns / whole_ns,
                counted.wall_ns / 1e9,
                counted.cpu_ns / 1e9,
                counted.free_ns / 1e9,
                key.file,
            )
            for key, counted in counts.items()
        ]
        return sorted(found, key=lambda line: (-line.wall_s, line.file, line.line))[:most]

    def _stacks(self) -> Iterator[tuple[str, Stack, Counts]]:
        for worker, each in self.workers.items():
            for stack, counts in each.stacks.items():
                yield worker, stack, counts

    # Forms

    def __str__(self) -> str:
        return "\n".join(self.text_lines())

    def text_lines(self, most: int = 10) -> Iterator[str]:
        """Yield a head, the hottest lines, the workers, and remedies."""
        from dali_like.monitor.profile.advice import advice_for

        total = self.total
        if not total.samples:
            yield "No function of the program was seen: the workers had nothing to compute, or too little for a sample."
            return
        yield (
            f"{total.samples:,} samples: {seconds_text(total.wall_ns / 1e9)} in functions of the program, "
            f"CPU {total.cpu_ns / total.wall_ns:.0%}, of that without the GIL {total.free_ns / max(total.cpu_ns, 1):.0%}"
        )
        for line in self.lines(most):
            yield f"  {line.share:>4.0%}  {line}"
        for worker, each in sorted(self.workers.items()):
            wall_s = sum(counts.wall_ns for counts in each.stacks.values()) / 1e9
            yield f"  {worker}: {seconds_text(wall_s)}, idle {seconds_text(each.idle_ns / 1e9)}"
        yield from (f"  {text}" for text in advice_for(self))

    def collapsed(self) -> str:
        """Return the stacks as lines for ``flamegraph.pl`` and similar tools: frames, outermost first, and milliseconds."""
        rows = [
            ";".join([worker, *map(_name_of, stack)]) + f" {max(round(counts.wall_ns / 1e6), 1)}\n"
            for worker, stack, counts in self._stacks()
        ]
        return "".join(sorted(rows))

    def speedscope(self, name: str = "dali_like") -> dict[str, Any]:
        """Return the profile in the file format of speedscope (https://www.speedscope.app), a profile for each worker."""
        numbers: dict[Frame, int] = {}
        profiles = []
        for worker, each in sorted(self.workers.items()):
            samples = [[numbers.setdefault(frame, len(numbers)) for frame in stack] for stack in each.stacks]
            weights = [counts.wall_ns / 1e9 for counts in each.stacks.values()]
            shape = {"type": "sampled", "name": worker, "unit": "seconds", "startValue": 0, "endValue": sum(weights)}
            profiles.append({**shape, "samples": samples, "weights": weights})
        frames = [{"name": each.function, "file": each.file, "line": each.line} for each in numbers]
        return {
            "$schema": _SPEEDSCOPE,
            "name": name,
            "exporter": "dali_like",
            "activeProfileIndex": 0,
            "shared": {"frames": frames},
            "profiles": profiles,
        }

    def as_json(self) -> dict[str, Any]:
        """Return the profile as values for JSON, for `from_json` and the page of ``dali-like view``."""
        from dali_like.monitor.profile.advice import advice_for

        names = {frame.file: shown_file(frame.file) for _, stack, _ in self._stacks() for frame in stack}
        return {
            "format": _FORMAT,
            "version": 1,
            "period_s": PERIOD_S,
            "files": names,
            "workers": {worker: each.as_json() for worker, each in self.workers.items()},
            "lines": [[*line[:-1]] for line in self.lines(20)],
            "advice": advice_for(self),
        }

    @classmethod
    def from_json(cls, saved: Any) -> Self:
        """Return the profile in the result of `as_json`.

        Raises:
            TraceFileError: it is not one.
        """
        try:
            if saved["format"] != _FORMAT:
                raise TraceFileError("this is not a profile")
            return cls({str(name): StackCounts.from_json(each) for name, each in saved["workers"].items()})
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise TraceFileError(f"this is not a profile: {type(error).__name__}: {error}") from error

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the profile to a file, by its name: ``*.speedscope.json``; ``*.collapsed`` or ``*.folded``; else JSON for
        ``dali-like view``.
        """
        name = os.fspath(path)
        if name.endswith((".collapsed", ".folded")):
            text = self.collapsed()
        else:
            is_for_speedscope = name.endswith(".speedscope.json")
            text = json.dumps(self.speedscope(os.path.basename(name)) if is_for_speedscope else self.as_json())
        Path(path).write_text(text, encoding="utf-8")


def merged(profiles: Mapping[str, Profile]) -> Profile:
    """Return the profiles of several loaders or processes as one, with their names before the names of the workers."""
    whole = Profile()
    for name, profile in profiles.items():
        for worker, counts in profile.workers.items():
            whole.add(f"{name} {worker}".strip(), counts)
    return whole


def shown_file(path: str) -> str:
    """Return a short name of a file: from its package on, or relative to the current folder."""
    for folder in _PACKAGES:
        if (found := path.rfind(f"{os.sep}{folder}{os.sep}")) >= 0:
            return path[found + len(folder) + 2 :]
    for folder, name in ((PACKAGE, f"dali_like{os.sep}"), (_STDLIB, ""), (os.getcwd() + os.sep, "")):
        if path.startswith(folder):
            return name + path[len(folder) :]
    return path


def is_of_program(path: str) -> bool:
    """Return whether a file belongs to the program, not to a package, to Python, or to this library."""
    if path.startswith(("<", PACKAGE, _STDLIB)):
        return False
    return not any(f"{os.sep}{folder}{os.sep}" in path for folder in _PACKAGES)


def _caller_in(stack: Sequence[Frame]) -> str:
    """Return the line of the program that has called the innermost function; "" if that is of the program."""
    if is_of_program(stack[-1].file):
        return ""
    frame = next((frame for frame in reversed(stack[:-1]) if is_of_program(frame.file)), None)
    return "" if frame is None else f"{shown_file(frame.file)}:{frame.line}"


def _name_of(frame: Frame) -> str:
    return f"{frame.function} ({shown_file(frame.file)}:{frame.line})".replace(";", ",")
