"""Runs the tests of another project: with PyTorch's loader twice, then with this library's."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
#: Nothing is fetched: tests that need the network fail with PyTorch's loader, too, and do not count.
_OFFLINE = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1"),
    **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "WANDB_DISABLED"), "1"),
    "WANDB_MODE": "offline",
}


@dataclass(frozen=True)
class Project:
    """A project whose tests use data loaders; see ``projects.toml``.

    Attributes:
        name: also of its folder among the sources.
        repository: where its sources are.
        tests: files and folders of tests that use data loaders, and other arguments of pytest.
        paths: folders below that of the project that belong on PYTHONPATH.
        requirements: packages that its tests need, besides PyTorch and pytest.
        excepted: tests that may fail with this library's loader, with the reason.
    """

    name: str
    repository: str
    tests: Sequence[str]
    paths: Sequence[str] = (".",)
    requirements: Sequence[str] = ()
    excepted: Mapping[str, str] = field(default_factory=dict)


def projects() -> dict[str, Project]:
    """Return the projects by name."""
    described = tomllib.loads((HERE / "projects.toml").read_text(encoding="utf-8"))
    return {name: Project(name, **description) for name, description in described.items()}


class NoTestError(Exception):
    """No test of a project has run."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of the tests of a project.

    Attributes:
        counted: tests that passed twice with PyTorch's loader.
        lost: the tests of these that do not pass with this library's, with their outcome there.
        excepted: those among the lost that the project excepts, with the reason.
    """

    counted: frozenset[str]
    lost: Mapping[str, str]
    excepted: Mapping[str, str]

    @property
    def faults(self) -> dict[str, str]:
        """Lost tests that are not excepted."""
        return {test: outcome for test, outcome in self.lost.items() if test not in self.excepted}


def verdict(
    first: Mapping[str, str], second: Mapping[str, str], ours: Mapping[str, str], excepted: Mapping[str, str]
) -> Verdict:
    """Compare the outcomes of two runs with PyTorch's loader and of one with this library's."""
    counted = frozenset(test for test, outcome in first.items() if outcome == second.get(test) == "passed")
    lost = {test: ours.get(test, "not reached") for test in sorted(counted) if ours.get(test) != "passed"}
    return Verdict(counted, lost, {test: reason for test in lost if (reason := _exception(test, excepted))})


def _exception(test: str, excepted: Mapping[str, str]) -> str:
    """Return the reason for a test, which may be given for all its parameters."""
    return excepted.get(test) or excepted.get(test.partition("[")[0], "")


class Runner:
    """Runs tests of projects.

    Args:
        sources: a folder with one folder for each project.
        python: the interpreter, with PyTorch, pytest, this package, and the requirements of the project.
        limit_s: of one run of a suite; with this library's loader, twice this time.
        test_limit_s: of one test.
    """

    def __init__(self, sources: Path, python: str, limit_s: float, test_limit_s: float) -> None:
        self._sources = sources
        self._python = python
        self._limit_s = limit_s
        self._test_limit_s = test_limit_s

    def verdict(self, project: Project) -> Verdict:
        """Run the tests of a project three times. Lost tests run once more: some fail now and then on busy machines."""
        first, second = (self._outcomes(project, project.tests, [], self._limit_s) for _ in range(2))
        command = [self._python, "-m", "dali_like", "run"]
        ours = self._outcomes(project, project.tests, command, 2 * self._limit_s)
        found = verdict(first, second, ours, project.excepted)
        if again := list(found.faults):
            ours = {**ours, **self._outcomes(project, again, command, self._limit_s)}
        return verdict(first, second, ours, project.excepted)

    def _outcomes(self, project: Project, tests: Sequence[str], prefix: Sequence[str], limit_s: float) -> dict[str, str]:
        """Run tests in a copy of the sources, and return the outcomes that the limit of time allows."""
        with tempfile.TemporaryDirectory(prefix="suite-") as scratch:
            folder, record = Path(scratch) / project.name, Path(scratch) / "record"
            shutil.copytree(self._sources / project.name, folder, symlinks=True, ignore=shutil.ignore_patterns(".git"))
            paths = [*(str(folder / path) for path in project.paths), str(HERE / "plugin")]
            environment = {
                **os.environ,
                **_OFFLINE,
                "PYTHONPATH": os.pathsep.join(paths),
                "DALI_LIKE_RECORD": str(record),
                "DALI_LIKE_TEST_LIMIT_S": str(self._test_limit_s),
            }
            pytest = [
                self._python,
                "-m",
                "pytest",
                "-q",
                "-p",
                "dali_like_recording",
                "-p",
                "no:cacheprovider",
                "--continue-on-collection-errors",
            ]
            command = [*prefix, *pytest, *tests]
            with (
                open(Path(scratch) / "output", "wb") as output,
                _group(command, environment, folder, output) as process,
                contextlib.suppress(subprocess.TimeoutExpired),
            ):
                process.wait(limit_s)
            if not record.exists():
                text = (Path(scratch) / "output").read_text(encoding="utf-8", errors="replace")
                raise NoTestError(f"no test of {project.name} has run: {' '.join(command)}\n{text[-4000:]}")
            return dict(json.loads(line) for line in record.read_text(encoding="utf-8").splitlines())


@contextlib.contextmanager
def _group(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, output: object
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a group of its own, and end the whole group afterwards: tests leave processes."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
