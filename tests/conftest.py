"""Fixtures and checks of all tests: above all the check that no test leaves anything behind."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib.util
import io
import multiprocessing.process
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
from _pytest.mark import ParameterSet

from dali_like import Pipeline, fn, pipeline_def
from dali_like.device.opening import substitute
from dali_like.engine.backends.forkserver_link import reap_forkservers
from dali_like.testing.simulated_device import SimulatedDevice
from tests.compiled import SHARED_FOLDER

#: How long anything may take that should happen at once, on a machine that is busy with other things.
DEADLINE_S = 60.0

START_METHODS = ("fork", "spawn")
#: Also where a callback neither ends its process nor counts on having one to itself.
WAYS = ("serial", *START_METHODS, "thread")

# The same examples in each run, however busy the machine is. For others: --hypothesis-profile=default.
hypothesis.settings.register_profile(
    "suite",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")

#: Part of the names of semaphores and shared memory that multiprocessing makes here and in forks. The names are short.
_MARK = f"t{os.getpid():x}-"
multiprocessing.process.current_process()._config["semprefix"] = f"/{_MARK}"  # type: ignore[attr-defined]
shared_memory._SHM_NAME_PREFIX = f"/{_MARK}"  # type: ignore[attr-defined]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a shell; tests of Ctrl-C, and the programs that they start, are to see it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def skip_without(*packages: str) -> None:
    """Skip a test, or a module, if packages are missing; do not import them, which takes scikit-learn a second."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed", allow_module_level=True)


def without_notes_of_libpng(stderr: str) -> str:
    """Return the output of a program without the notes on color profiles that OpenCV 4 lets through."""
    return re.sub("^libpng warning: .*\n", "", stderr, flags=re.MULTILINE)


def without_addresses(value: object) -> str:
    """The id of a parametrized test: `repr`, the same in each process. They could not share the tests otherwise."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


def once(way: str) -> ParameterSet:
    """Return a way of calling sources that each test takes once, with the first of its other parameters.

    Starting processes takes fifty times as long as most tests. ``PARITY=full`` runs all combinations.
    """
    return pytest.param(way, marks=pytest.mark.once(way))


def is_repeated(item: pytest.Item, taken: set[tuple[str, str]]) -> bool:
    """Return whether a test with a parameter from `once` follows another one; `taken` has those before."""
    marker = item.get_closest_marker("once")
    if marker is None:
        return False
    key = item.nodeid.partition("[")[0], str(marker.args[0])
    if key in taken:
        return True
    taken.add(key)
    return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests whose names differ from process to process, apply `once`, and mark the tests of smoke.txt."""
    if os.environ.get("PARITY") != "full":
        taken: set[tuple[str, str]] = set()
        repeated = {item for item in items if is_repeated(item, taken)}
        config.hook.pytest_deselected(items=list(repeated))
        items[:] = [item for item in items if item not in repeated]
    if addressed := [item.nodeid for item in items if re.search(" at 0x[0-9a-f]+", item.nodeid)]:
        raise pytest.UsageError(f"use ids=without_addresses, of conftest, for {addressed[0]}")
    wanted = set(Path(__file__).with_name("smoke.txt").read_text("utf-8").splitlines())
    found = set()
    for item in items:  # a line names a function with all its parameters, or a single test
        name = f"{item.nodeid.partition('::')[0]}::{getattr(item, 'originalname', item.name)}"
        if names := wanted & {name, item.nodeid}:
            item.add_marker(pytest.mark.smoke)
            found |= names
    if config.option.markexpr == "smoke" and wanted != found:
        raise pytest.UsageError(f"smoke.txt names tests that do not exist: {sorted(wanted - found)}")


#: After so long in one test, the Python stacks of the process are shown.
_STACKS_AFTER_S = 120
#: After so long, the test fails: later than the stacks are shown.
_ENDS_AFTER_S = 300.0

_TERMINAL = pytest.StashKey[int]()
_ARMED_S = pytest.StashKey[float]()
_SHARED = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the descriptor of the terminal, for the stacks of a test that hangs. pytest replaces it during tests.

    The processes of pytest-xdist inherit the folder for files that are made once in a run.
    """
    config.stash[_TERMINAL] = os.dup(2)
    if SHARED_FOLDER not in os.environ:
        config.stash[_SHARED] = tempfile.TemporaryDirectory(prefix="tests-of-dali-like-")
        os.environ[SHARED_FOLDER] = config.stash[_SHARED].name


def pytest_unconfigure(config: pytest.Config) -> None:
    """Undo `pytest_configure`."""
    faulthandler.cancel_dump_traceback_later()
    os.close(config.stash[_TERMINAL])
    if (folder := config.stash.get(_SHARED, None)) is not None:
        del os.environ[SHARED_FOLDER]
        folder.cleanup()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Show the stacks `_STACKS_AFTER_S` to twice as long after the start of a test that hangs.

    pytest's own ``faulthandler_timeout`` starts and joins a thread for each test, which takes longer than most tests.
    """
    stash = item.config.stash
    if time.monotonic() - stash.get(_ARMED_S, float("-inf")) > _STACKS_AFTER_S:
        faulthandler.dump_traceback_later(2 * _STACKS_AFTER_S, file=stash[_TERMINAL])
        stash[_ARMED_S] = time.monotonic()


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait for a condition to become true and return its value; fail when it does not before the deadline."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"{what} has not come about within {deadline_s} s")
        time.sleep(0.002)
    return value


@contextlib.contextmanager
def time_limit(seconds: float = DEADLINE_S) -> Iterator[None]:
    """Fail the test inside a call that takes longer, such as one that hangs. For the main thread."""

    def stop(*_: Any) -> None:
        pytest.fail(f"this takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left_s)  # of the limit around this one, if there is one


def renew_time_limit(seconds: float = DEADLINE_S) -> None:
    """Restart the clock of `time_limit`, if one is running."""
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, seconds)


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """Fail a test that hangs, in place of all tests after it. With ``PARITY=full`` single tests may take an hour."""
    with contextlib.nullcontext() if os.environ.get("PARITY") == "full" else time_limit(_ENDS_AFTER_S):
        yield


@pytest.fixture
def limited_time() -> Iterator[None]:
    """Fail a test that takes longer than `DEADLINE_S`."""
    with time_limit():
        yield


def is_running(pid: int) -> bool:
    """Whether a process is there and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Resources:
    """Resources of this process: children, descriptors, mappings of shared memory, threads, names in /dev/shm.

    Listing the mappings takes longer than all else. A mapping makes the address space larger, so their number is that of the
    resources before unless the space has grown since.

    Attributes:
        descriptors: of open files.
        size: of the address space, in pages.
    """

    def __init__(self, before: Resources | None = None) -> None:
        self.children = set(descendants_of(os.getpid()))
        self.descriptors = {fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_open(fd)}
        self.size = int(Path("/proc/self/statm").read_bytes().split()[0])
        self.mappings = before.mappings if before is not None and self.size <= before.size else count_mappings()
        self.threads = {thread.name for thread in threading.enumerate()}
        self.shared_memory = names_of_ours()

    def more_than(self, before: Resources) -> dict[str, Any]:
        """The resources that are there and were not before."""
        more = {
            "children": self.children - before.children,
            "descriptors": {fd: target for fd in self.descriptors - before.descriptors if (target := _target(fd))},
            "mappings": max(0, self.mappings - before.mappings),
            "threads": self.threads - before.threads,
            "shared memory": self.shared_memory - before.shared_memory,
        }
        return {name: value for name, value in more.items() if value}


#: Resources after the last test. Fixtures of a wider scope map no shared memory.
_RESOURCES = pytest.StashKey[Resources]()


def count_mappings() -> int:
    """Return how many mappings of shared memory this process has."""
    return Path("/proc/self/maps").read_bytes().count(b"/memfd:dali_like")


def names_of_ours() -> set[str]:
    """Return the names in /dev/shm that this process, or a process of its tests, has made.

    Multiprocessing names its semaphores and shared memory by prefixes; this module replaces these. The library itself makes
    no names; one of its own would contain "dali_like".
    """
    return {name for name in os.listdir("/dev/shm") if _MARK in name or "dali_like" in name}


def descendants_of(pid: int) -> Iterator[int]:
    """The processes that a process has made, and their own ones. psutil would look at all there are."""
    if pid == os.getpid():
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # one call for most tests, in place of two files for each thread
            return
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()):
                yield child
                yield from descendants_of(child)


def _target(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # closed by another thread since the listing
        return ""


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:  # the one that the listing itself used
        return False
    return True


_elder: set[int] = set()


def children() -> set[int]:
    """The descendants that began with the test: no processes that were there before it and stay, such as
    multiprocessing's resource tracker.
    """
    reap_forkservers()  # a loader does not wait for the end of its forkserver
    return set(descendants_of(os.getpid())) - _elder


@pytest.fixture(scope="session", autouse=True)
def _hypothesis_has_begun() -> None:
    """Let Hypothesis ask the collector once for the users of its random numbers. Frozen objects do not count;
    on Python 3.14 that would be all that does.
    """
    hypothesis.given(hypothesis.strategies.none())(lambda _: None)()


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(pytestconfig: pytest.Config) -> Iterator[None]:
    """Fail a test that leaves a process, a descriptor, a mapping, a thread or a name in /dev/shm."""
    gc.collect()
    gc.freeze()  # collections then look at objects of this test, and not at modules and the results of all tests before it
    before = Resources(pytestconfig.stash.get(_RESOURCES, None))
    _elder.clear()
    _elder.update(before.children)
    yield
    gc.collect()
    reap_forkservers()
    now = Resources(before)
    end = time.monotonic() + DEADLINE_S / 3
    while (more := now.more_than(before)) and time.monotonic() < end:
        time.sleep(0.01)
        gc.collect()
        reap_forkservers()
        now = Resources(before)
    pytestconfig.stash[_RESOURCES] = now
    assert not more, f"the test has left behind: {more}"


@pytest.fixture(scope="session")
def threads_of_zarr(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let Zarr start its threads, which last as long as the process, before a test looks for threads left behind."""
    if importlib.util.find_spec("zarr") is not None:
        import zarr

        array = zarr.create_array(tmp_path_factory.mktemp("zarr") / "x", shape=(99,), chunks=(1,), dtype="i4")
        array[:] = 1
        assert array[:].sum() == 99


@pytest.fixture(scope="session")
def fonts() -> None:
    """Let Matplotlib, or the test is skipped, open its fonts, which stay open."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    figure.subplots().set_title("any")
    figure.savefig(io.BytesIO())


@pytest.fixture
def gpus() -> Iterator[list[SimulatedDevice]]:
    """Lets pipelines find a GPU, played by the stand-in; yields the opened GPUs, one for each pipeline.

    Fails a test whose calls a GPU would have refused, or that has left pages locked.
    """
    opened: list[SimulatedDevice] = []

    def open_one(device_id: int) -> SimulatedDevice:
        opened.append(SimulatedDevice(device_id))
        return opened[-1]

    with substitute(open_one):
        yield opened
    gc.collect()
    for device in opened:
        assert not device.faults
        assert not device.registered


@pytest.fixture(params=["serial", "fork", once("spawn"), "thread", once("thread_copies")])
def way(request: pytest.FixtureRequest) -> str:
    """How sources are called: in the main process, in forked workers, in spawned workers, in threads, with copies or not."""
    return str(request.param)


#: For tests of sources that count on a process of their own.
in_processes = pytest.mark.parametrize("way", ["serial", "fork", once("spawn")])

#: For tests that do not depend on the way workers start. Threads are the fastest workers.
in_both_places = pytest.mark.parametrize("way", ["serial", "thread", once("fork")])


@pytest.fixture(params=["fork", once("spawn")])
def start_method(request: pytest.FixtureRequest) -> str:
    """How workers are started."""
    return str(request.param)


@pytest.fixture
def make_pipeline() -> Iterator[Callable[..., Pipeline]]:
    """Makes pipelines of one source and closes them after the test.

    ``make_pipeline(source, way, num_outputs=None, batch_size=4, workers=2, pipeline options..., source={options})``
    """
    pipelines: list[Pipeline] = []

    def make(
        source: Callable[..., Any],
        way: str = "fork",
        *,
        num_outputs: int | None = None,
        batch_size: int = 4,
        workers: int | str = 2,
        source_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Pipeline:
        method = {} if way == "serial" else {"py_start_method": way}

        @pipeline_def(batch_size=batch_size, num_threads=2, py_num_workers=workers, **method, **options)
        def pipeline() -> Any:
            given = {"batch": False, "parallel": way != "serial", **(source_options or {})}
            return fn.external_source(source=source, num_outputs=num_outputs, **given)

        pipelines.append(pipeline())
        return pipelines[-1]

    yield make
    for pipe in pipelines:
        pipe.close()
