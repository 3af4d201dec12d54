"""Profiles: hottest lines and their callers, forms for other tools, and advice."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import pytest

from dali_like.engine.worker.sampling import Counts, Frame, StackCounts
from dali_like.errors import TraceFileError
from dali_like.monitor.measure.statistics import Statistics
from dali_like.monitor.profile.advice import advice_for
from dali_like.monitor.profile.profile import Profile, is_of_program, merged, shown_file
from dali_like.monitor.show.report import Report

PIL = sysconfig.get_path("purelib") + "/PIL/Image.py"
TRAIN = "/program/train.py"
MS = 1_000_000


def profile_of(**workers: list[tuple[list[Frame], Counts]]) -> Profile:
    profile = Profile()
    for name, stacks in workers.items():
        counts = StackCounts()
        counts.idle_ns = 5 * MS
        for stack, each in stacks:
            counts.add(tuple(stack), each)
        profile.add(name, counts)
    return profile


def decoding() -> Profile:
    """61 % in Pillow, called from a line of the program; the rest in another line, which waits."""
    item, load = Frame(TRAIN, "__getitem__", 41), Frame(PIL, "load", 300)
    return profile_of(
        main=[([item, load], Counts(30, 300 * MS, 300 * MS, 100 * MS))],
        other=[
            ([item, load], Counts(31, 310 * MS, 310 * MS, 0)),
            ([Frame(TRAIN, "__getitem__", 40)], Counts(39, 390 * MS, 40 * MS, 0)),
        ],
    )


def test_hottest_line_has_its_file_its_caller_and_its_share() -> None:
    hottest, other = decoding().lines()

    assert str(hottest) == f"PIL/Image.py:300 load, called from {TRAIN}:41: 61%"
    assert str(other) == f"{TRAIN}:40 __getitem__: 39%, 90% of it waiting"
    assert (hottest.wall_s, hottest.cpu_s, hottest.free_s) == pytest.approx((0.61, 0.61, 0.1))
    assert decoding().lines(1) == [hottest]


def test_functions_sum_their_lines_and_name_the_hottest() -> None:
    profile = profile_of(
        main=[
            ([Frame(TRAIN, "f", 1)], Counts(1, 10)),
            ([Frame(TRAIN, "f", 2)], Counts(1, 30)),
            ([Frame(TRAIN, "g", 9)], Counts(1, 20)),
        ]
    )

    assert [(each.function, each.line, round(each.share, 2)) for each in profile.functions()] == [
        ("f", 2, 0.67),
        ("g", 9, 0.33),
    ]


def test_text_has_lines_workers_and_advice() -> None:
    text = str(decoding())

    assert "100 samples: 1.0 s in functions of the program, CPU 65%, of that without the GIL 15%" in text
    assert "other: 700 ms, idle 5.0 ms" in text
    assert "61%: decode with simplejpeg" in text
    assert "No function of the program was seen" in str(Profile())


def test_report_has_the_three_hottest_lines_and_the_advice() -> None:
    report = str(Report(statistics(), decoding()))

    assert f"hottest lines of the program:\n  PIL/Image.py:300 load, called from {TRAIN}:41: 61%" in report
    assert "decode with simplejpeg" in report
    assert "hottest" not in str(Report(statistics()))


def statistics() -> Statistics:
    from dali_like.data import DataLoader

    return DataLoader([1]).statistics()


def test_collapsed_stacks_have_a_line_for_each_stack() -> None:
    assert decoding().collapsed().splitlines() == [
        f"main;__getitem__ ({TRAIN}:41);load (PIL/Image.py:300) 300",
        f"other;__getitem__ ({TRAIN}:40) 390",
        f"other;__getitem__ ({TRAIN}:41);load (PIL/Image.py:300) 310",
    ]


def test_speedscope_has_a_profile_for_each_worker() -> None:
    document = decoding().speedscope("run")

    assert [each["name"] for each in document["profiles"]] == ["main", "other"]
    other = document["profiles"][1]
    assert other["weights"] == pytest.approx([0.31, 0.39])
    assert other["endValue"] == pytest.approx(0.7)
    frames = document["shared"]["frames"]
    assert [[frames[i]["line"] for i in sample] for sample in other["samples"]] == [[41, 300], [40]]


@pytest.mark.parametrize("name", ["profile.json", "a.speedscope.json", "a.collapsed", "a.folded"])
def test_files_have_the_form_of_their_name(name: str, tmp_path: Path) -> None:
    decoding().write(tmp_path / name)

    text = (tmp_path / name).read_text()
    if name == "profile.json":
        assert Profile.from_json(json.loads(text)).collapsed() == decoding().collapsed()
    elif name.endswith(".json"):
        assert json.loads(text)["exporter"] == "dali_like"
    else:
        assert text == decoding().collapsed()


@pytest.mark.parametrize("saved", [None, [], {}, {"format": "x"}, {"format": "dali_like profile", "workers": {"a": {}}}])
def test_other_files_are_refused(saved: object) -> None:
    with pytest.raises(TraceFileError, match="not a profile"):
        Profile.from_json(saved)


def test_merged_profiles_have_the_workers_of_all() -> None:
    whole = merged({"rank 0": decoding(), "rank 1": decoding()})

    assert sorted(whole.workers) == ["rank 0 main", "rank 0 other", "rank 1 main", "rank 1 other"]
    assert whole.total.samples == 200


def test_files_are_shown_from_their_package_on() -> None:
    assert shown_file(PIL) == "PIL/Image.py"
    assert shown_file(json.__file__) == "json/__init__.py"
    assert shown_file(str(Path.cwd() / "train.py")) == "train.py"
    assert shown_file(TRAIN) == TRAIN
    assert shown_file(Profile.__module__.replace(".", "/")) == "dali_like/monitor/profile/profile"
    assert is_of_program(TRAIN)
    assert not any(map(is_of_program, (PIL, json.__file__, "<string>")))


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("    image = cv2.imdecode(data, 1)", "decode with simplejpeg"),
        ("    image = image.resize((224, 224))", "resize with an operator"),
        ("    with h5py.File(path) as file:", "open the file once per worker"),
        ("    sample = json.loads(line)", "faster library"),
        ("    x = 1", ""),
    ],
)
def test_advice_knows_lines_that_call_functions_in_c(line: str, advice: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"def f():\n{line}\n")
    found = advice_for(profile_of(main=[([Frame(str(path), "f", 2)], Counts(1, 10, 10))]))

    assert len(found) == bool(advice)
    assert advice in "".join(found)


def test_advice_against_waiting_names_the_arguments() -> None:
    (found,) = advice_for(profile_of(main=[([Frame(TRAIN, "f", 2)], Counts(1, 10, 2))]))

    assert found.startswith("80% of the time is waiting")
    assert "read_threads=" in found
