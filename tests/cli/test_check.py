"""``dali-like check``: each kind of problem in a dataset is found, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import cli
from dali_like.cli.check.examining import ExaminedSamples, examine
from dali_like.cli.check.problems import Findings
from dali_like.errors import ClosedError
from tests.data.loader_cases import MANY_WORKERS

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

PROGRAM = """
import os
import signal
import numpy as np
from dali_like import fn, pipeline_def
from dali_like.data import ComposedDataset, DataLoader, IterableDataset

class Images:
    files = [f"photo-{number}.png" for number in range(300)]

    def __len__(self):
        return 300

    def __getitem__(self, index):
        image = np.random.default_rng(index).random((2, 4, 4), np.float32)
        if index == 7:
            raise ValueError("no label")
        if index == 8:
            os.stat("/no/such/file")
        if index == 9:
            image[0, 1, 1] = np.nan
        if index == 10:
            image = image[:, :0]
        if index == 11:
            image = image[0]
        if index == 12:
            image = image.astype(np.float64)
        if index == 13:
            return self[14]
        if index == 15:
            return {"image": image}
        return {"image": image, "name": f"{index}", "label": index % 3}

class Deadly:
    def __len__(self):
        return 120

    def __getitem__(self, index):
        if index == 60:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(2, index)

class Same(IterableDataset):
    def __iter__(self):
        return map(str, range(20))

def is_kept(number):
    return number % 3 > 0

def fails(number):
    if number == 7:
        raise ValueError("seven")
    return number

def sample(info):
    if info.idx_in_epoch == 5:
        raise KeyError("five")
    return np.full(3, info.idx_in_epoch)

@pipeline_def(batch_size=4, num_threads=1)
def pipeline(size=20):
    return fn.external_source(sample, batch=False, size=size)

def rows(count=4):
    return list(range(count))

images, deadly, same = Images(), Deadly(), Same()
loader = DataLoader(images, batch_size=8, num_workers=2)
composed = ComposedDataset.source(images)
sharded = ComposedDataset.source(range(100)).filter(is_kept).map(fails)
alike = [np.full(2, number) for number in range(40)]
number = 3
"""

#: Kinds and samples of the problems of the images.
PROBLEMS = {
    "error": [7],
    "file": [8],
    "not finite": [9],
    "empty": [10],
    "odd": [10, 11, 12, 15],
    "duplicate": [14],
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create the module ``checked_program`` in the current folder."""
    (tmp_path / "checked_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("checked_program", None)


def check(name: str, *options: str, workers: int = 2) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the JSON document of a check."""
    status = cli.main(["check", f"checked_program:{name}", "--workers", str(workers), "--json-file", "found.json", *options])
    return status, json.loads(Path("found.json").read_text())


def samples_of(document: dict[str, Any]) -> dict[str, list[int]]:
    """Return the samples of each kind of problem, without slow ones: other programs may delay a sample twice."""
    found: dict[str, list[int]] = {}
    for problem in document["problems"]:
        if problem["kind"] != "slow":
            found.setdefault(problem["kind"], []).extend(each["index"] for each in problem["examples"])
    return {kind: sorted({*indices}) for kind, indices in found.items()}


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("name", ["images", "loader", "composed"])
@pytest.mark.parametrize("workers", [0, 2])
def test_samples_with_problems_are_found(name: str, workers: int) -> None:
    status, document = check(name, workers=workers)

    assert (status, document["samples"]) == (1, 300)
    assert samples_of(document) == PROBLEMS


@pytest.mark.usefixtures("program")
def test_a_right_dataset_has_no_problems(capsys: pytest.CaptureFixture[str]) -> None:
    findings = Findings()
    for index in range(40):
        findings.add(examine(index, np.full(2, index), 0.001))
    assert findings.problems() == []

    _, document = check("alike")

    assert samples_of(document) == {}
    assert "checked_program:alike: 40 samples" in capsys.readouterr().out


@pytest.mark.usefixtures("program")
def test_a_sample_that_kills_its_worker_is_named_and_the_others_are_checked() -> None:
    status, document = check("deadly")

    assert (status, document["samples"], samples_of(document)) == (1, 120, {"error": [60]})
    assert "ends its worker" in document["problems"][0]["text"]
    assert "SIGKILL" in document["problems"][0]["text"]


@pytest.mark.usefixtures("program")
def test_workers_that_iterate_the_same_samples_show_as_duplicates() -> None:
    assert samples_of(check("same")[1]) == {"duplicate": list(range(1, 40, 2))}
    assert samples_of(check("same", workers=0)[1]) == {}


@pytest.mark.usefixtures("program")
def test_elements_of_logical_shards_are_checked_behind_one_that_fails() -> None:
    _, document = check("sharded")

    assert document["samples"] == 66
    assert samples_of(document).keys() == {"error"}
    assert "ValueError: seven" in document["problems"][0]["text"]


@pytest.mark.usefixtures("program")
def test_outputs_of_pipelines_are_checked_behind_a_batch_that_fails() -> None:
    _, document = check("pipeline", "--with", "size=12")

    assert document["samples"] == 9  # two batches, and a record of the one that fails
    assert "sample 1 of iteration 1" in document["problems"][0]["text"]


@pytest.mark.parametrize("options", [[], ["--samples", "3"]], ids=["all samples", "the first samples"])
def test_the_pipeline_is_closed_after_the_check(options: list[str], program: Path) -> None:
    with (program / "checked_program.py").open("a") as file:
        file.write("built = pipeline(size=12)\nbuilt.build()\n")

    check("built", *options)

    with pytest.raises(ClosedError):
        sys.modules["checked_program"].built.run()


@pytest.mark.usefixtures("program")
def test_callables_and_functions_that_make_datasets_are_checked() -> None:
    assert samples_of(check("sample", "--samples", "9")[1]) == {"error": [5]}
    assert check("rows", "--with", "count=6")[1]["samples"] == 6
    assert check("rows")[1]["samples"] == 4


@pytest.mark.usefixtures("program")
def test_a_part_is_spread_over_the_dataset() -> None:
    _, document = check("images", "--samples", "30")

    assert document["samples"] == 30
    assert samples_of(document) == {"empty": [10]}  # 29 of 30 samples are less than 99 %


def test_text_and_page_name_the_sample_and_its_file(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("images", "--html", "page.html")

    assert re.search("1 x ValueError: no label .*\n    sample 7  photo-7.png\n", capsys.readouterr().out)
    page = (program / "page.html").read_text()
    assert "<td>7</td><td>photo-7.png</td>" in page
    assert "&#x27;/no/such/file&#x27;" in page


@pytest.mark.parametrize("damage", ["", '\n[3, 0.1, 0, 5, "half'])
def test_a_check_continues_with_its_state(program: Path, damage: str) -> None:
    state = program / "state.jsonl"
    complete = samples_of(check("images", "--state", str(state))[1])
    lines = state.read_text().splitlines()
    state.write_text("\n".join(lines[:50]) + damage)
    source = (program / "checked_program.py").read_text()
    computed = "        with open('computed', 'a') as file:\n            file.write(f'{index} ')\n"
    (program / "checked_program.py").write_text(source.replace("        image = np", f"{computed}        image = np", 1))
    sys.modules.pop("checked_program")

    _, document = check("images", "--state", str(state), workers=0)

    known = sum(line.startswith("[") for line in lines[:50])
    computed_again = set(map(int, (program / "computed").read_text().split()))
    # Known samples that seemed slow are measured again: on a busy machine, a few.
    assert 300 - known <= len(computed_again) < 300 - known // 2
    assert samples_of(document) == complete == PROBLEMS
    assert cli.main(["check", "checked_program:alike", "--state", str(state)]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["number"], "is of type int; a dataset, loader, pipeline, source"),
        (["sample"], "the number of samples is unknown: pass --samples"),
        (["same", "--state", "state"], "--state needs samples with an index"),
        (["imagse"], "has no dataset imagse (did you mean images?)"),
        (["images", "--workers", "-1"], "--workers must not be negative, but is -1"),
    ],
)
@pytest.mark.usefixtures("program")
def test_wrong_arguments_are_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", f"checked_program:{arguments[0]}", *arguments[1:]]) == 2
    assert message in capsys.readouterr().err


def test_interrupt_prints_the_partial_result(program: Path) -> None:
    with (program / "checked_program.py").open("a") as file:
        file.write("import time\nclass Slow(Images):\n    def __getitem__(self, index):\n")
        file.write("        open('begun', 'w').close()\n        return time.sleep(0.05)\nslow = Slow()\n")
    code = (
        "import os, signal, sys, threading\n"
        "from dali_like import cli\n"
        "def interrupt():\n"
        "    while not os.path.exists('begun'): pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "sys.exit(cli.main(['check', 'checked_program:slow', '--workers', '1', '--state', 'state']))\n"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)

    assert (ended.returncode, ended.stderr) == (130, "")
    assert "Interrupted; the same command continues." in ended.stdout


# Samples and findings


def test_content_is_compared_without_numbers_unless_there_is_nothing_else() -> None:
    image = np.arange(6.0)

    assert examine(0, (image, 1)).digest == examine(1, (image.copy(), 2)).digest
    assert examine(0, (image, 1)).digest != examine(0, (image + 1, 1)).digest
    assert examine(0, {"a": image}).digest != examine(0, {"b": image}).digest
    assert examine(0, image).digest != examine(0, image.astype(np.float32)).digest
    assert examine(0, (1, 2)).digest != examine(0, (1, 3)).digest
    assert examine(0, object()).digest is None


def test_a_sample_is_slow_at_ten_times_the_median_and_ten_milliseconds() -> None:
    durations = {**dict.fromkeys(range(20), 0.002), 20: 0.019, 21: 0.021, 22: 0.5}
    findings = Findings()
    for index, duration_s in durations.items():
        findings.add(examine(index, index, duration_s))
    assert findings.slow() == [22, 21]

    findings.measured_again(examine(21, 21, 0.001))

    [problem] = findings.problems()
    assert (problem.kind, problem.examples) == ("slow", [(22, "0.5 s")])


def test_shapes_that_vary_are_no_problem() -> None:
    findings = Findings()
    for index in range(100):
        findings.add(examine(index, np.full(index % 50 + 1, index)))

    assert findings.problems() == []


def test_exceptions_are_described_with_their_line() -> None:
    def compute(index: int) -> int:
        return 1 // index

    sample = ExaminedSamples(compute, 1)[0]

    assert sample.error is not None
    assert re.fullmatch(r"ZeroDivisionError: .* \(test_check.py:\d+\)", sample.error)
