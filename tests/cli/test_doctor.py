"""``dali-like doctor``: findings on simulated machines, kernels and installations, and the report."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dali_like import __version__, cli
from dali_like.cli import doctor
from dali_like.cli.doctor import findings, gpu, kernel, libraries, machine, user_object, worker_start
from dali_like.cli.doctor.findings import Finding, Verdict
from dali_like.device.opening import substitute
from dali_like.engine.memory import system_calls
from dali_like.engine.memory.space import SharedSpace
from dali_like.testing.simulated_device import SimulatedDevice
from tests.compiled import kernels_from

UNLIMITED = resource.RLIM_INFINITY


def write_files(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def set_limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """``set_limit(which, soft)``: change the result of `resource.getrlimit`, not the limit itself."""

    def set_limit(which: int, soft: int) -> None:
        real = resource.getrlimit
        monkeypatch.setattr(resource, "getrlimit", lambda asked: (soft, UNLIMITED) if asked == which else real(asked))

    return set_limit


# The report


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """``report(checks, *arguments)``: run the command with these checks. Return its exit status and output."""

    def report(checks: list[findings.Check], *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(doctor, "CHECKS", checks)
        status = cli.main(["doctor", *arguments])
        return status, capsys.readouterr().out

    return report


def house(*others: findings.Check) -> list[findings.Check]:
    return [
        lambda: findings.ok("floor", "dry"),
        lambda: findings.note("cellar", "none"),
        lambda: findings.note("bell", "silent", "wind it up"),
        lambda: findings.warning("roof", "a hole", "mend it"),
        *others,
    ]


def test_report_lists_findings_that_need_action_the_worst_first(report: Callable[..., tuple[int, str]]) -> None:
    status, text = report(house(lambda: findings.failure("door", "none", "make one")))

    assert status == 1
    assert text == (
        "failure  door                   none\n"
        "                                -> make one\n"
        "warning  roof                   a hole\n"
        "                                -> mend it\n"
        "\n"
        "Optional:\n"
        "note     bell                   silent -> wind it up\n"
        "\n"
        f"dali_like {__version__}: 1 failure, 1 warning, 2 notes, 1 ok; --verbose shows all\n"
    )


@pytest.mark.parametrize(
    ("fork", "spawn", "thread", "headline"),
    [
        ("ok", "ok", "ok", "Ready: fork and spawn work."),
        ("failure", "ok", "ok", "Ready in part: only spawn and thread work, not fork."),
        ("failure", "failure", "ok", "Ready in part: only thread works, not fork and spawn."),
        ("failure", "failure", "failure", "Not ready: no workers start."),
    ],
)
def test_report_begins_with_the_workers(
    fork: str, spawn: str, thread: str, headline: str, report: Callable[..., tuple[int, str]]
) -> None:
    verdicts = {"fork": fork, "spawn": spawn, "thread": thread}
    checks = [
        lambda method=method, verdict=verdict: Finding(f"workers by {method}", Verdict(verdict), "")
        for method, verdict in verdicts.items()
    ]

    _, text = report([*house()[:3], *checks])

    assert text.splitlines()[:2] == [headline, ""]


def test_report_says_that_no_action_is_needed(report: Callable[..., tuple[int, str]]) -> None:
    status, text = report(house()[:2])

    assert (status, text.splitlines()[0]) == (0, "No action is needed.")


def test_whole_report_has_a_line_for_each_finding_and_one_for_its_remedy(report: Callable[..., tuple[int, str]]) -> None:
    status, text = report([house()[0], house()[3]], "--verbose")

    roof, remedy, _, floor, _, summary = text.splitlines()
    assert status == 0
    assert floor.split() == ["ok", "floor", "dry"]
    assert roof.split() == ["warning", "roof", "a", "hole"]
    assert remedy.split() == ["->", "mend", "it"]
    assert summary.endswith(": 1 warning, 1 ok")


@pytest.mark.parametrize(("verdict", "status"), [("ok", 0), ("note", 0), ("warning", 0), ("failure", 1)])
def test_exit_status_tells_of_failures(verdict: str, status: int, report: Callable[..., tuple[int, str]]) -> None:
    assert report([lambda: Finding("roof", Verdict(verdict), "", "")])[0] == status


def test_json_has_the_same(report: Callable[..., tuple[int, str]]) -> None:
    status, text = report([lambda: findings.failure("roof", "a hole", "mend it")], "--json")

    assert status == 1
    assert json.loads(text)["findings"] == [
        {"subject": "roof", "verdict": "failure", "found": "a hole", "remedy": "mend it"}
    ]


def test_a_check_that_breaks_down_is_a_failure_and_the_others_go_on(report: Callable[..., tuple[int, str]]) -> None:
    def roof() -> Finding:
        raise ZeroDivisionError("no tiles")

    status, text = report([roof, lambda: findings.ok("floor", "dry")], "--verbose")

    assert status == 1
    assert "ZeroDivisionError: no tiles" in text
    assert "floor" in text


def test_all_is_well_here() -> None:
    """The library works on any machine that runs these tests."""
    found = [finding for check in (*machine.CHECKS, *kernel.CHECKS) for finding in doctor.examine([check])]

    assert [finding for finding in found if finding.verdict is Verdict.FAILURE] == []
    assert all(finding.remedy for finding in found if finding.verdict is not Verdict.OK)


# The machine


@pytest.mark.parametrize(
    ("files", "verdict", "found"),
    [
        ({}, "ok", "no quota"),
        ({"sys/fs/cgroup/job/cpu.max": "max 100000\n"}, "ok", "no quota"),
        ({"sys/fs/cgroup/job/cpu.max": "50000 100000\n"}, "warning", "a quota of 0.5"),
        ({"sys/fs/cgroup/cpu.max": "6400000 100000\n"}, "ok", "a quota of 64"),
    ],
)
def test_processors(files: dict[str, str], verdict: str, found: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"proc/self/cgroup": "0::/job\n", **files})

    finding = machine.cpus(tmp_path)

    assert finding.verdict == verdict
    assert found in finding.found
    assert ("py_num_workers=1" in finding.remedy) == (verdict == "warning")


@pytest.mark.parametrize(("quota", "found"), [("-1", "no quota"), ("150000", "a quota of 1.5")])
def test_processors_under_control_groups_of_the_first_version(quota: str, found: str, tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/job\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": f"{quota}\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
        },
    )

    assert found in machine.cpus(tmp_path).found


@pytest.mark.parametrize(("kib", "verdict"), [(1 << 19, "warning"), (1 << 24, "ok")])
def test_memory(kib: int, verdict: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"proc/meminfo": f"MemAvailable: {kib} kB\n"})

    assert machine.memory(tmp_path).verdict == verdict


def test_size_of_shared_memory_folder_does_not_matter(tmp_path: Path) -> None:
    assert machine.shared_memory_folder(tmp_path).verdict == "ok"  # this root has no /dev/shm


@pytest.mark.parametrize(("soft", "verdict"), [(64, "warning"), (1 << 20, "ok"), (UNLIMITED, "ok")])
def test_open_files(soft: int, verdict: str, set_limit: Callable[[int, int], None]) -> None:
    set_limit(resource.RLIMIT_NOFILE, soft)

    assert machine.open_files().verdict == verdict


@pytest.mark.parametrize(("most", "verdict"), [("max", "ok"), ("100000", "ok"), ("7", "warning")])
def test_processes_that_control_groups_allow(most: str, verdict: str, tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/pids.max": f"{most}\n",
            "sys/fs/cgroup/job/pids.current": "6\n",
        },
    )

    assert machine.processes(tmp_path).verdict == verdict


def test_processes_of_a_user(set_limit: Callable[[int, int], None], tmp_path: Path) -> None:
    set_limit(resource.RLIMIT_NPROC, 1)

    assert machine.processes(tmp_path).verdict == "warning"


@pytest.mark.parametrize(("limit", "verdict"), [(UNLIMITED, "ok"), (4 << 30, "warning")])
def test_address_space(limit: int, verdict: str, set_limit: Callable[[int, int], None]) -> None:
    set_limit(resource.RLIMIT_AS, limit)

    assert machine.address_space().verdict == verdict


@pytest.mark.parametrize(("held", "verdict"), [(1 << 16, "ok"), (4096, "warning")])
def test_pipes(held: int, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "pipe_bytes", lambda _: held)

    assert machine.pipes().verdict == verdict


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP", "ok"),
        ("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016", "warning"),  # gVisor
        ("Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1) #1 SMP", "note"),
        ("Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com) #1237-Microsoft", "failure"),  # WSL 1
    ],
)
def test_kernels(version: str, verdict: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"proc/version": version})

    assert machine.sandbox(tmp_path).verdict == verdict


# System calls that the engine needs


def refuse(*_: Any, **__: Any) -> Any:
    raise OSError(38, "Function not implemented")


@pytest.mark.parametrize(
    ("call", "subjects", "verdict", "effect"),
    [
        ("memfd_create", ["anonymous memory", "seals"], "warning", "a file in /dev/shm instead, whose size limits"),
        ("posix_fallocate", ["allocating memory"], "warning", "allocated by writing, more slowly"),
        ("splice", ["taking tasks"], "warning", "the tasks of a slow worker wait for it"),
        ("pidfd_open", ["watching processes"], "failure", ""),
    ],
)
def test_kernels_that_lack_something(
    call: str, subjects: list[str], verdict: str, effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, call, refuse)

    found = [finding for finding in doctor.examine(kernel.CHECKS) if finding.verdict is not Verdict.OK]

    assert [finding.subject for finding in found] == subjects
    assert found[0].verdict == verdict
    assert "ENOSYS, errno 38" in found[0].found
    assert effect in found[0].found
    assert found[0].remedy.endswith("use a newer kernel, or a sandbox or seccomp profile that allows the call")


def test_memory_that_workers_cannot_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(system_calls, "SHARED_MEMORY_FOLDER", str(tmp_path / "absent"))

    found = {finding.subject: finding for finding in doctor.examine(kernel.CHECKS)}

    assert found["shared memory"].verdict == "failure"
    assert found["shared memory"].remedy.startswith('use py_start_method="thread"')


def test_seals_that_are_not_kept_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.fcntl
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, call, arg=0: 0 if call == fcntl.F_GET_SEALS else real(fd, call, arg))

    with pytest.raises(OSError, match="seals are not kept"):
        kernel.seals()


def test_memory_that_is_not_freed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedSpace, "used_bytes", 4096)

    with pytest.raises(OSError, match="no memory is freed"):
        kernel.freeing()


def test_splice_that_puts_bytes_elsewhere_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.splice
    monkeypatch.setattr(os, "splice", lambda source, target, count, offset_dst: real(source, target, count, offset_dst=0))

    with pytest.raises(OSError, match="do not arrive"):
        kernel.taking_tasks()


# Workers


@pytest.mark.parametrize("method", ["fork", "spawn", "thread"])
def test_workers_make_a_batch(method: str) -> None:
    assert worker_start.start_method(method).verdict == "ok"


def test_workers_that_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", refuse)

    finding = worker_start.start_method("fork")

    assert finding.verdict == "failure"
    assert "Function not implemented" in finding.found


# Libraries


def test_extra_of_older_metadata_is_noted_and_does_not_end_the_check() -> None:
    finding = libraries.libraries("gone", {"lmdb": "1.4"})

    assert (finding.verdict, finding.remedy) == ("note", "pip install -e . once more")


def test_requirements_are_read_from_metadata() -> None:
    lines = ["numpy>=1.26", "opencv-python-headless>=4.9; extra == 'images'", 'ray[data]>=2.40 ; extra == "ray"', "six"]
    lines.append("array-record>=0.8; extra == 'array-record'")

    assert libraries.requirements(lines) == {
        "": {"numpy": "1.26", "six": ""},
        "images": {"opencv-python-headless": "4.9"},
        "ray": {"ray": "2.40"},
        "array-record": {"array-record": "0.8"},
    }


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Replace the installed versions, by name."""
    versions: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    return versions


@pytest.mark.parametrize(
    ("version", "of_extra", "of_package"),
    [("4.10.0.84", "ok", "ok"), ("4.9", "ok", "ok"), ("4.8.1", "warning", "failure"), ("", "note", "failure")],
)
def test_versions(version: str, of_extra: str, of_package: str, installed: dict[str, str]) -> None:
    if version:
        installed["opencv"] = version

    assert libraries.libraries("images", {"opencv": "4.9"}).verdict == of_extra
    assert libraries.libraries("", {"opencv": "4.9"}).verdict == of_package


def test_absent_extras_are_one_line_and_with_verbose_one_each(report: Callable[..., tuple[int, str]]) -> None:
    extras = [lambda extra=extra: findings.note(f"extra {extra}", "not installed: it", "get it") for extra in ("ray", "jax")]

    _, short = report([*extras, lambda: findings.note("bell", "silent", "wind it up")])
    _, whole = report([*extras], "--verbose")

    assert short.splitlines()[2:5] == [
        "Optional:",
        "note     extras                 not installed: ray, jax -> --verbose names the packages",
        "note     bell                   silent -> wind it up",
    ]
    assert [line.split()[:3] for line in whole.splitlines() if "get it" in line] == [
        ["note", "extra", "ray"],
        ["note", "extra", "jax"],
    ]


def test_peers_are_named(installed: dict[str, str]) -> None:
    installed.update(torch="2.13.0", jax="0.10.2")

    assert libraries.peers().found == "torch 2.13.0, jax 0.10.2"


@pytest.mark.parametrize(
    ("find", "verdict", "found"),
    [
        (lambda: None, Verdict.NOTE, "takes longer"),
        (lambda: ctypes.CDLL(None), Verdict.OK, "TurboJPEG 3"),
        (lambda: ctypes.CDLL("/nowhere.so"), Verdict.FAILURE, "/nowhere.so"),
    ],
)
def test_a_decoder_of_windows_without_kernels(
    find: Callable[[], Any], verdict: Verdict, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "kernels", lambda: None)
    monkeypatch.setattr(libraries, "find_turbojpeg", find)

    finding = libraries.jpeg_windows()

    assert finding.verdict is verdict
    assert found in finding.found


@pytest.mark.parametrize(("decode", "found"), [(print, "by dali-like-kernels"), (None, "takes longer")])
def test_a_decoder_of_windows_in_kernels(decode: Any, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "kernels", lambda: SimpleNamespace(decode_window=decode))
    monkeypatch.setattr(libraries, "find_turbojpeg", lambda: None)

    assert found in libraries.jpeg_windows().found


def test_a_path_of_kernels_that_cannot_be_loaded_is_a_failure() -> None:
    with kernels_from("/nowhere/kernels.so"):
        finding = libraries.jpeg_windows()

    assert finding.verdict is Verdict.FAILURE
    assert "DALI_LIKE_KERNELS" in finding.remedy


# GPUs


def library(version: int) -> Callable[[str], Any]:
    """Return a loader of a driver library for a version of CUDA."""

    def get_version(pointer: Any) -> int:
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int)).contents.value = version
        return 0

    return lambda name: SimpleNamespace(cuDriverGetVersion=get_version)


def no_library(name: str) -> None:
    return None


def test_driver(tmp_path: Path) -> None:
    assert gpu.driver(no_library).verdict == "note"
    assert gpu.driver(library(13010), tmp_path).found == "for CUDA up to 13.1"


@pytest.mark.parametrize("kind", ["Kernel Module", "Open Kernel Module for x86_64"])
def test_version_of_the_driver(kind: str, tmp_path: Path) -> None:
    line = f"NVRM version: NVIDIA UNIX {kind}  580.159.04  Release Build  (dvs-builder)\nGCC version: 12.3.0\n"
    write_files(tmp_path, {"proc/driver/nvidia/version": line})

    assert gpu.driver(library(13000), tmp_path).found == "580.159.04, for CUDA up to 13.0"


@pytest.mark.parametrize(
    ("count", "find", "verdict"), [(0, no_library, "note"), (0, library(13000), "warning"), (2, library(13000), "ok")]
)
def test_devices(count: int, find: Callable[[str], Any], verdict: str) -> None:
    assert gpu.devices(lambda: count, find).verdict == verdict


def test_devices_that_may_not_be_used_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALI_LIKE_DEVICE", "cpu")

    assert gpu.devices(lambda: 2, library(13000)).found == "2, and none is used, because DALI_LIKE_DEVICE=cpu is set"


def test_devices_that_are_hidden_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert "CUDA_VISIBLE_DEVICES" in gpu.devices(lambda: 0, library(13000)).found


@pytest.mark.parametrize(
    ("names", "find", "verdict"),
    [
        ([], no_library, "note"),
        ([], library(13000), "warning"),
        (["cupy-cuda12x"], library(13000), "ok"),
        (["cupy-cuda13x"], library(12080), "failure"),
        (["cupy-cuda12x", "cupy-cuda13x"], library(13000), "failure"),
    ],
)
def test_cupy(
    names: list[str],
    find: Callable[[str], Any],
    verdict: str,
    installed: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed.update(dict.fromkeys(names, "14.0.1"))
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"cupy": names})

    assert gpu.cupy(find).verdict == verdict


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedDevice]:
    """Make the checks find a simulated GPU."""
    simulated = SimulatedDevice()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with substitute(lambda number: simulated):
        yield simulated
    assert not simulated.faults
    assert not simulated.registered


def test_page_locking_is_tried(device: SimulatedDevice) -> None:
    assert gpu.page_locking(lambda: 1).verdict == "ok"
    assert [is_locked for _, is_locked in device.copies] == [True]


def test_page_locking_that_is_refused(device: SimulatedDevice) -> None:
    device.refuses_to_lock = True

    assert gpu.page_locking(lambda: 1).verdict == "warning"


def test_gpus_that_fail(device: SimulatedDevice) -> None:
    device.fail(when_carried_out=True)

    finding = gpu.page_locking(lambda: 1)

    assert finding.verdict == "failure"
    assert "cudaErrorLaunchFailure" in finding.found


def test_gpus_that_change_bytes(device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "download", lambda target, source, nbytes: None)

    assert gpu.page_locking(lambda: 1).verdict == "failure"


def test_page_locking_is_not_tried_without_a_gpu() -> None:
    assert gpu.page_locking(lambda: 0).verdict == "note"


# A dataset


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("long", "copied by each worker: long, a list of 100,000 objects"),
        ("loader", "copied by each worker: loader.names, a dict of 100,000 objects"),
        ("short", "short has no list or dict of 100,000 objects or more"),
    ],
)
def test_large_containers_of_a_dataset_are_named(tmp_path: Path, name: str, found: str) -> None:
    (tmp_path / "my_data.py").write_text(
        "from types import SimpleNamespace\n"
        "long, short = [0] * 100_000, [0]\n"
        "loader = SimpleNamespace(dataset=SimpleNamespace(names=dict.fromkeys(range(100_000))))\n"
    )

    assert user_object.checks_of(f"{tmp_path}/my_data.py:{name}")[0]().found == found


def test_a_missing_dataset_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "tests.cli.test_doctor:nothing"]) == 2
    assert "tests.cli.test_doctor has no dataset nothing" in capsys.readouterr().err


#: A module with an object of each kind.
OBJECTS = """
import itertools
import numpy as np
from dali_like import fn, pipeline_def

class Dataset:
    def __init__(self, sample, file=None):
        self.sample, self.file = sample, file
    def __len__(self):
        return 5
    def __getitem__(self, index):
        return self.sample(index)

calls = itertools.count()
texts = {"a", "b", "c", "d", "e", "f", "g"}
drawn = Dataset(lambda index: np.random.rand(3))
counted = Dataset(lambda index: next(calls))
in_order_of_a_set = Dataset(lambda index: "".join(texts))
broken = Dataset(lambda index: 1 / 0)
own_generator = Dataset(np.random.default_rng(0))
opened = Dataset(None, open(__file__))
def source(info):
    return np.random.rand(3)
def made():
    return Dataset(np.random.default_rng(0))
def made_drawn():
    return drawn
@pipeline_def(batch_size=1)
def pipeline():
    return fn.external_source(lambda info: np.array([info.idx_in_epoch]), batch=False, size=10)
number = 5
"""
OF_OBJECTS = ["dataset", "shared objects", "random numbers", "determinism", "imports"]


@pytest.mark.parametrize(
    ("name", "subject", "verdict", "found"),
    [
        ("own_generator", "random numbers", Verdict.WARNING, "is a random generator"),
        ("drawn", "random numbers", Verdict.OK, "no random generator"),
        ("opened", "shared objects", Verdict.WARNING, "is an open file"),
        ("drawn", "shared objects", Verdict.OK, "no open files"),
        ("drawn", "determinism", Verdict.OK, "3 samples are random, from the global generators"),
        ("counted", "determinism", Verdict.WARNING, "sample 0 differs between two calls"),
        ("in_order_of_a_set", "determinism", Verdict.WARNING, "sample 0 differs between two processes"),
        ("source", "determinism", Verdict.WARNING, "sample 0 has random numbers of a global generator"),
        ("broken", "determinism", Verdict.NOTE, "not checked: ZeroDivisionError"),
        ("made", "random numbers", Verdict.WARNING, "is a random generator"),
        ("made_drawn", "determinism", Verdict.OK, "3 samples are random, from the global generators"),
        ("pipeline", "determinism", Verdict.NOTE, "not checked: it is a pipeline; name its source"),
        ("number", "determinism", Verdict.NOTE, "my_data.py:number is of type int; a dataset, loader"),
    ],
)
def test_an_object_is_examined(tmp_path: Path, name: str, subject: str, verdict: Verdict, found: str) -> None:
    (tmp_path / "my_data.py").write_text(OBJECTS)
    checks = user_object.checks_of(f"{tmp_path}/my_data.py:{name}")

    finding = checks[OF_OBJECTS.index(subject)]()
    sys.modules["my_data"].opened.file.close()

    assert finding.subject == subject
    assert (finding.verdict, found in finding.found) == (verdict, True), finding
    assert bool(finding.remedy) == (verdict is Verdict.WARNING)


def test_a_list_is_deterministic_and_slow_imports_of_its_module_are_named_by_package(tmp_path: Path) -> None:
    (tmp_path / "slow_package.py").write_text(
        "import time\nend = time.process_time() + 1.1\nwhile time.process_time() < end: pass\n"
    )
    (tmp_path / "my_data.py").write_text("import slow_package\nitems = [1, 2]\n")

    *_, determinism, imports = doctor.examine(user_object.checks_of(f"{tmp_path}/my_data.py:items"))

    assert "2 samples are equal in each call and process" in determinism.found
    assert imports.verdict is Verdict.WARNING
    assert ": slow_package " in imports.found


def test_a_module_that_ends_a_fresh_interpreter_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_data.py").write_text("import os\nitems = [1]\nif 'PYTEST_VERSION' not in os.environ: os._exit(3)\n")
    checks = user_object.checks_of(f"{tmp_path}/my_data.py:items")
    monkeypatch.delenv("PYTEST_VERSION")

    *_, determinism, imports = doctor.examine(checks)

    assert "status 3" in determinism.found
    assert "status 3" in imports.found


def test_findings_about_an_object_are_shown_although_they_are_good(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda: findings.ok("system", "Linux"),))
    monkeypatch.setattr(user_object, "checks_of", lambda text: (lambda: findings.ok("imports", "fast"),))

    assert cli.main(["doctor", "train.py:dataset"]) == 0
    shown = capsys.readouterr().out

    assert "ok       imports                fast" in shown
    assert "Linux" not in shown
