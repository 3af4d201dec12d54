"""The demo: its input files, its parts without a pipeline, and the whole program."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like.types import SampleInfo

cv2: Any = pytest.importorskip("cv2")

from examples import demo_data  # noqa: E402  (needs OpenCV)
from examples.demo_data import FolderError, LabeledFiles  # noqa: E402
from tests.conftest import skip_without  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


class ListOfArrays:
    """Replaces the TensorList of a pipeline."""

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays)

    def at(self, index: int) -> NDArray[Any]:
        return self.arrays[index]

    def as_array(self) -> NDArray[Any]:
        return np.stack(self.arrays)


@pytest.fixture
def demo() -> ModuleType:
    pytest.importorskip("tqdm")
    from examples import demo

    return demo


@pytest.fixture(scope="module")
def crops(tmp_path_factory: pytest.TempPathFactory) -> LabeledFiles:
    pytest.importorskip("skimage")
    return demo_data.make_crops(tmp_path_factory.mktemp("photos"), demo_data.packaged_photographs())


@pytest.fixture(scope="module")
def user_folder(tmp_path_factory: pytest.TempPathFactory, crops: LabeledFiles) -> Path:
    """50 images: fewer than two full batches, as .jpg and .JPEG, some of them two folders deep, one of them broken."""
    folder = tmp_path_factory.mktemp("user")
    for directory in ("cats", "dogs/big"):
        (folder / directory).mkdir(parents=True)
    for i, file in enumerate(crops.files[:25]):
        shutil.copy(file, folder / "cats" / f"{i}.jpg")
        shutil.copy(file, folder / "dogs" / "big" / f"{i}.JPEG")
    (folder / "notes.txt").write_text("not an image")
    (folder / "dogs" / "big" / "7.JPEG").write_text("not an image either")
    return folder


def labeled(count: int) -> LabeledFiles:
    return LabeledFiles([Path(f"/{i}") for i in range(count)], np.zeros(count, np.int32), ["none"])


def digit_batches(digits: LabeledFiles, batch_size: int) -> list[tuple[Any, ...]]:
    images = [cv2.imread(str(file), cv2.IMREAD_GRAYSCALE)[:, :, None] for file in digits.files]
    labels = list(digits.labels[:, None])
    starts = range(0, len(images), batch_size)
    parts = [slice(start, start + batch_size) for start in starts]
    return [(ListOfArrays(images[part]), ListOfArrays(labels[part]), None) for part in parts]


def demo_command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "examples.demo", *map(str, arguments)]


def test_crops_are_at_least_500_decodable_files_of_many_sizes(crops: LabeledFiles) -> None:
    shapes = [cv2.imread(str(file)).shape for file in crops.files]
    assert len(shapes) == len(crops.labels) >= 500
    assert len(set(shapes)) > len(shapes) / 2
    assert all(96 <= side <= 400 for shape in shapes for side in shape[:2])


def test_a_crop_has_the_name_of_its_photograph_as_label(crops: LabeledFiles) -> None:
    assert {"astronaut", "chelsea", "coffee", "rocket"} <= set(crops.names)
    for file, label in zip(crops.files, crops.labels, strict=True):
        assert file.name.startswith(crops.names[label] + "-")


def test_the_file_list_beside_the_crops_names_files_and_labels(crops: LabeledFiles) -> None:
    lines = (crops.files[0].parent / demo_data.FILE_LIST).read_text().splitlines()
    expected = zip(crops.files, crops.labels, strict=True)
    assert lines == [f"{file.name}\t{crops.names[label]}" for file, label in expected]


def test_crops_are_the_same_every_time(crops: LabeledFiles, tmp_path: Path) -> None:
    again = demo_data.make_crops(tmp_path, demo_data.packaged_photographs())
    assert [file.read_bytes() for file in again.files] == [file.read_bytes() for file in crops.files]


def test_complete_crops_are_used_again_without_the_photographs(crops: LabeledFiles) -> None:
    missing = {name: Path("/nowhere") for name in crops.names}
    again = demo_data.make_crops(crops.files[0].parent, missing)
    assert again.files == crops.files
    np.testing.assert_array_equal(again.labels, crops.labels)


def test_crops_that_are_not_complete_are_made_again(tmp_path: Path) -> None:
    pytest.importorskip("skimage")
    photographs = demo_data.packaged_photographs()
    first = demo_data.make_crops(tmp_path, photographs, per_photograph=2)
    first.files[1].unlink()
    second = demo_data.make_crops(tmp_path, photographs, per_photograph=2)
    assert second.files == first.files
    assert all(file.is_file() for file in second.files)


def test_digits_are_stored_exactly(tmp_path: Path) -> None:
    original = pytest.importorskip("sklearn.datasets").load_digits()
    digits = demo_data.make_digits(tmp_path)
    stored = np.stack([cv2.imread(str(file), cv2.IMREAD_UNCHANGED) for file in digits.files])
    np.testing.assert_array_equal(stored, original.images * demo_data.DIGIT_SCALE)
    np.testing.assert_array_equal(digits.labels, original.target)


def test_a_users_folder_is_labelled_by_its_sub_folders(user_folder: Path) -> None:
    data = demo_data.scan_folder(user_folder, minimum=50)
    assert data.names == ["cats", "dogs"]
    assert data.labels.tolist() == [0] * 25 + [1] * 25
    assert all(file.is_absolute() for file in data.files)


def test_images_in_no_sub_folder_are_labelled_by_the_folder(user_folder: Path) -> None:
    assert demo_data.scan_folder(user_folder / "cats", minimum=25).names == ["cats"]


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("missing", "missing does not exist"),
        ("notes.txt", "notes.txt is not a folder"),
        ("cats", "cats holds 25 images, and one batch needs 32"),
    ],
)
def test_an_unusable_folder_is_an_error_with_the_reason(user_folder: Path, folder: str, message: str) -> None:
    with pytest.raises(FolderError, match=re.escape(message)):
        demo_data.scan_folder(user_folder / folder, minimum=32)


@pytest.mark.parametrize("folder", ["missing", "cats"])
def test_the_demo_exits_with_2_for_such_a_folder(
    demo: ModuleType, user_folder: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        demo.main(["--data", str(user_folder / folder)])
    assert exit_info.value.code == 2
    assert str(user_folder / folder) in capsys.readouterr().err


def test_shards_share_out_every_epoch_in_another_order(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "fromfile", lambda file, dtype: np.zeros(1, dtype))
    sources = [demo.ImageFiles(labeled(12), 3, shard_id=i, num_shards=2) for i in range(2)]

    def indices(epoch: int) -> list[int]:
        infos = [SampleInfo(i, i % 3, i // 3, epoch) for i in range(6)]
        return [int(source(info)[2][0]) for source in sources for info in infos]

    first, second = indices(0), indices(1)
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert indices(0) == first


def test_the_source_ends_the_epoch_after_its_last_full_batch(demo: ModuleType) -> None:
    source = demo.ImageFiles(labeled(11), 4)
    with pytest.raises(StopIteration):
        source(SampleInfo(8, 0, 2, 0))


@pytest.mark.parametrize("delivered", [[0, 1, 2, 3], [0, 0]], ids=["twice", "too few"])
def test_the_demo_notices_wrong_shards(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, delivered: list[int]
) -> None:
    monkeypatch.setattr(demo, "read_shard", lambda *arguments: [delivered])
    with pytest.raises(demo.DemoError, match="epoch 0"):
        demo.read_photographs(labeled(8), 1, tmp_path / "sheet.png")


def test_the_stopwatch_counts_images_and_time(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 4.0, 6.0])
    monkeypatch.setattr(demo.time, "perf_counter", lambda: next(clock))
    stopwatch = demo.Stopwatch()
    for _ in stopwatch.watch([("abc",), ("abc",)]):
        pass
    assert stopwatch == demo.Stopwatch(images=6, waited_s=2.0, worked_s=4.0)
    assert stopwatch.images_per_s == 1.0


def test_the_contact_sheet_shows_every_image_in_its_colors(demo: ModuleType, tmp_path: Path) -> None:
    red, blue = np.zeros((300, 20, 3), np.uint8), np.zeros((5, 7, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    demo.write_contact_sheet(tmp_path / "new" / "sheet.png", ListOfArrays([red] * 8 + [blue]), ["label"] * 9)
    sheet = cv2.imread(str(tmp_path / "new" / "sheet.png"))[..., ::-1]
    cell_height = demo.THUMBNAIL_PX + demo.CAPTION_PX
    middle = demo.THUMBNAIL_PX // 2
    assert sheet.shape == (2 * cell_height, 8 * demo.THUMBNAIL_PX, 3)
    assert sheet[middle, middle].tolist() == [255, 0, 0]
    assert sheet[cell_height + middle, middle].tolist() == [0, 0, 255]


def test_digits_are_learnt(demo: ModuleType, tmp_path: Path) -> None:
    skip_without("sklearn")
    digits = demo_data.make_digits(tmp_path)
    order = np.random.default_rng(0).permutation(len(digits.files))
    training, held_out = digits.subset(order[360:]), digits.subset(order[:360])
    assert demo.learn_digits(digit_batches(training, 32), digit_batches(held_out, 40)) > demo.TARGET_ACCURACY


def test_digits_with_wrong_labels_are_not_learnt(demo: ModuleType, tmp_path: Path) -> None:
    skip_without("sklearn")
    digits = demo_data.make_digits(tmp_path)
    mixed = LabeledFiles(digits.files, np.random.default_rng(0).permutation(digits.labels), digits.names)
    with pytest.raises(demo.DemoError, match="held-out digits are correct after 15 epochs"):
        demo.learn_digits(digit_batches(mixed, 32), digit_batches(digits, 40))


def test_the_whole_demo_on_a_users_folder(demo: ModuleType, user_folder: Path, tmp_path: Path) -> None:
    skip_without("sklearn")
    command = demo_command("--data", user_folder, "--output", tmp_path, "--epochs", "2")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    speed, accuracy = done.stdout.splitlines()[-2:]
    assert re.fullmatch(r"images/s: \d+ \(100 images, [\d.]+ s of waiting\)", speed)
    percent = re.fullmatch(r"accuracy: ([\d.]+)% of 360 held-out digits", accuracy)
    assert percent is not None
    assert float(percent[1]) > 90
    assert "50 of 50 files in 2 disjoint shards" in done.stdout
    assert f"skipped, since they cannot be decoded, 1 of them:\n  {user_folder / 'dogs' / 'big' / '7.JPEG'}\n" in done.stdout
    assert "Traceback" not in done.stderr
    sheet = cv2.imread(str(tmp_path / "contact_sheet.png"))
    assert sheet.shape[1] == demo.SHEET_COLUMNS * demo.THUMBNAIL_PX


def test_ctrl_c_leaves_with_one_line(demo: ModuleType, user_folder: Path, tmp_path: Path) -> None:
    command = demo_command("--data", user_folder, "--output", tmp_path, "--epochs", "100000")
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True, text=True) as process:
        assert process.stderr is not None
        shown = ""
        while "epoch 2" not in shown:
            shown = process.stderr.readline()
            assert shown, "the demo ended early"
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, rest = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "demo: interrupted"
    assert "Traceback" not in rest
