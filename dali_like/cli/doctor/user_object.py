"""Checks of an object of the user: a dataset, loader, source, or a function that makes one.

Does every worker copy millions of its objects, share its files, or draw the same random numbers? Does a sample depend on
anything but its index? Does its module take long to import? The last two questions are answered by fresh interpreters, see
`dali_like.cli.doctor.sample_trial`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from typing import Any

from dali_like.cli.check.subjects import object_to_check
from dali_like.cli.doctor.findings import Check, Finding, note, ok, warning
from dali_like.cli.doctor.sample_trial import BEGINS_IMPORT
from dali_like.data.options import is_iterable
from dali_like.sources.travel.hazards import UseInWorkers, hazards_of
from dali_like.sources.travel.introspection import large_containers

#: Processor time of an import, in seconds, from which on it is slow.
_SLOW_S = 1.0
#: Packages that are named as slow.
_MOST_PACKAGES = 3
#: Time limit of a fresh interpreter with the user's module and three samples.
_TRIAL_S = 120.0


def checks_of(text: str) -> tuple[Check, ...]:
    """Return the checks of an object that the user has named as ``module:name``.

    Raises:
        ArgumentError: there is no such object.
    """
    found = object_to_check(text, {})
    has_setup = getattr(found, "worker_init_fn", None) is not None
    dataset, name = getattr(found, "dataset", found), text.rpartition(":")[2]
    hazards = [
        hazard.partition(". ")
        for hazard in hazards_of(dataset, name, _use_in_workers(repeats=not (has_setup or is_iterable(dataset))))
    ]
    of_generators = [each for each in hazards if "a random generator" in each[0]]
    others = [each for each in hazards if each not in of_generators]
    return (
        partial(_containers, dataset, name),
        partial(_hazards, "shared objects", others, f"{name} has no open files, connections, locked locks or threads"),
        partial(_hazards, "random numbers", of_generators, f"{name} has no random generator that workers would copy"),
        *_trial_checks(text, is_callable=callable(dataset) and not hasattr(type(dataset), "__getitem__")),
    )


def _use_in_workers(*, repeats: bool) -> UseInWorkers:
    return UseInWorkers(
        start_method="fork",
        are_several=True,
        repeats=repeats,
        setup="worker_setup (worker_init_fn of a DataLoader)",
        random="Draw from info.rng() in a source; in a dataset, from the global generators, which loaders seed",
    )


def _containers(dataset: object, name: str) -> Finding:
    large = large_containers(dataset, name)
    if not large:
        return ok("dataset", f"{name} has no list or dict of 100,000 objects or more")
    return warning(
        "dataset",
        "copied by each worker: " + "; ".join(found.text for found in large),
        "share it: dali_like.data.SharedList(...) or SharedDict(...)",
    )


def _hazards(subject: str, hazards: list[tuple[str, str, str]], nothing: str) -> Finding:
    if not hazards:
        return ok(subject, nothing)
    return warning(subject, "; ".join(problem for problem, _, _ in hazards), hazards[0][2])


def _trial_checks(text: str, *, is_callable: bool) -> tuple[Check, Check]:
    """Return the checks that need samples in fresh interpreters. The interpreters run when the first check does."""
    trials: list[tuple[dict[str, Any], str]] = []

    def run() -> list[tuple[dict[str, Any], str]]:
        if not trials:
            trials.extend(_trial(text, hash_seed) for hash_seed in (1, 2))
        return trials

    def determinism() -> Finding:
        return _determinism([result for result, _ in run()], is_callable=is_callable)

    def imports() -> Finding:
        (result, log), _ = run()
        return _imports(result, log)

    return determinism, imports


def _trial(text: str, hash_seed: int) -> tuple[dict[str, Any], str]:
    """Return the result of `dali_like.cli.doctor.sample_trial` in a fresh interpreter, and its log of imports."""
    child = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dali_like.cli.doctor.sample_trial", text],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TRIAL_S,
        check=False,
    )
    line = child.stdout.rstrip().rpartition("\n")[2]  # the user's code may print before
    if child.returncode:
        last = child.stderr.rstrip().rpartition("\n")[2]
        return {"error": f"a fresh interpreter has ended with status {child.returncode}: {last}"}, child.stderr
    return json.loads(line), child.stderr


def _determinism(results: list[dict[str, Any]], *, is_callable: bool) -> Finding:
    subject = "determinism"
    if error := next((result["error"] for result in results if result.get("error")), None):
        return note(subject, f"not checked: {error}")
    first, other = (result["samples"] for result in results)
    unread = [sample["index"] for sample in first if sample["digests"][0] is None]
    if unread or not first:
        return note(subject, f"not checked: {first[0]['problem'] if first else 'there are no samples'}")
    for sample in first:
        digest, again, reseeded = sample["digests"]
        if again != digest:
            return warning(
                subject,
                f"sample {sample['index']} differs between two calls with the same state of the global generators",
                "let it depend on its index and on seeded random numbers only, not on earlier calls or the time; otherwise "
                "a resumed or repeated run has other samples",
            )
        if is_callable and reseeded != digest:
            return warning(
                subject,
                f"sample {sample['index']} has random numbers of a global generator, which each worker has a copy of",
                "draw from info.rng(), whose numbers depend on the sample",
            )
    if differing := [a["index"] for a, b in zip(first, other, strict=True) if a["digests"][0] != b["digests"][0]]:
        return warning(
            subject,
            f"sample {differing[0]} differs between two processes",
            "sort sets before iterating over them, and use no hash() of texts, no address, no time",
        )
    is_random = any(sample["digests"][2] != sample["digests"][0] for sample in first)
    how = "random, from the global generators, which loaders seed" if is_random else "equal in each call and process"
    return ok(subject, f"{len(first)} samples are {how}")


def _imports(result: dict[str, Any], log: str) -> Finding:
    subject = "imports"
    if "cpu_s" not in result:
        return note(subject, f"not measured: {result['error']}")
    taken = f"importing {result['module']} takes {result['wall_s']:.1f} s, {result['cpu_s']:.1f} s of processor time"
    if result["cpu_s"] < _SLOW_S:
        return ok(subject, taken)
    slowest = sorted(_seconds_by_package(log).items(), key=lambda each: -each[1])[:_MOST_PACKAGES]
    return warning(
        subject,
        f"{taken}: {', '.join(f'{name} {seconds:.1f} s' for name, seconds in slowest)}",
        "each spawned worker imports it again: import what only some functions need inside of them, and what only the "
        'program needs below if __name__ == "__main__"',
    )


def _seconds_by_package(log: str) -> dict[str, float]:
    """Return the import time of each top-level package, from the lines of ``-X importtime`` behind the mark."""
    seconds: dict[str, float] = {}
    for line in log.rpartition(BEGINS_IMPORT)[2].splitlines():
        columns = line.removeprefix("import time:").split("|")
        if len(columns) == 3 and columns[0].strip().isdigit():
            package = columns[2].strip().partition(".")[0]
            seconds[package] = seconds.get(package, 0.0) + int(columns[0]) / 1e6
    return seconds
