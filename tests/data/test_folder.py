"""Datasets of files in folders: samples, classes and loading."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import Compose, DatasetFolder, ImageFolder
from dali_like.data.folder import IMG_EXTENSIONS
from dali_like.errors import ArgumentError, DecodeError, FolderError, MissingExtraError

RGB = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)


def write(path: Path, content: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def encoded(suffix: str, pixels: Any = RGB) -> bytes:
    cv2 = pytest.importorskip("cv2")
    return bytes(cv2.imencode(suffix, pixels[..., ::-1] if pixels.ndim == 3 else pixels)[1])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create two classes, with files at several depths; some are not images."""
    for name in ("dog/b.PNG", "dog/a.jpg", "dog/old/c.bmp", "dog/notes.txt", "cat/z.webp", "stray.png"):
        write(tmp_path / name)
    return tmp_path


def relative(dataset: DatasetFolder) -> list[tuple[str, int]]:
    return [(str(Path(path).relative_to(dataset.root)), target) for path, target in dataset.samples]


# The list of samples


def test_folders_are_classes_in_order_of_their_names(root: Path) -> None:
    dataset = ImageFolder(root)

    assert dataset.classes == ["cat", "dog"]
    assert dataset.class_to_idx == {"cat": 0, "dog": 1}


def test_images_at_any_depth_are_samples_in_order_of_their_paths(root: Path) -> None:
    dataset = ImageFolder(root)

    assert relative(dataset) == [("cat/z.webp", 0), ("dog/a.jpg", 1), ("dog/b.PNG", 1), ("dog/old/c.bmp", 1)]
    assert dataset.targets == [0, 1, 1, 1]
    assert dataset.imgs is dataset.samples
    assert len(dataset) == 4


@pytest.mark.parametrize("extension", IMG_EXTENSIONS)
def test_extensions_of_images(tmp_path: Path, extension: str) -> None:
    write(tmp_path / "a" / f"1{extension}")
    write(tmp_path / "a" / f"2{extension.upper()}")

    assert len(ImageFolder(tmp_path)) == 2


def test_folders_behind_links_are_followed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere / "far.png")
    (root / "cat" / "link").symlink_to(elsewhere)

    assert ("cat/link/far.png", 0) in relative(ImageFolder(root))


def test_the_root_may_be_in_the_home_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root.parent))

    assert ImageFolder(f"~/{root.name}").root == str(root)


def test_is_valid_file_selects_the_samples(root: Path) -> None:
    dataset = ImageFolder(root, is_valid_file=lambda path: "o" in Path(path).name, allow_empty=True)

    assert relative(dataset) == [("dog/notes.txt", 1)]


@pytest.mark.parametrize("extensions", [".txt", (".txt",), [".txt"]])
def test_extensions_may_be_one_or_several(root: Path, extensions: Any) -> None:
    dataset = DatasetFolder(root, str, extensions, allow_empty=True)

    assert relative(dataset) == [("dog/notes.txt", 1)]


def test_a_subclass_may_choose_the_classes(root: Path) -> None:
    class Dogs(ImageFolder):
        def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
            return ["dog"], {"dog": 7}

    assert Dogs(root).targets == [7, 7, 7]


def test_a_class_without_files_is_an_error(root: Path) -> None:
    (root / "emu").mkdir()
    (root / "ant").mkdir()
    message = r"Found no valid file for the classes ant, emu\. Supported extensions are: \.jpg, \.jpeg, \.png, "

    with pytest.raises(FolderError, match=message):
        ImageFolder(root)


def test_a_class_without_files_may_be_allowed(root: Path) -> None:
    (root / "ant").mkdir()

    dataset = ImageFolder(root, allow_empty=True)

    assert dataset.class_to_idx == {"ant": 0, "cat": 1, "dog": 2}
    assert dataset.targets == [1, 2, 2, 2]


def test_a_root_without_classes(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=f"Couldn't find any class folder in {tmp_path}"):
        ImageFolder(tmp_path)


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ImageFolder(tmp_path / "nowhere")


@pytest.mark.parametrize("arguments", [{}, {"extensions": (".png",), "is_valid_file": bool}])
def test_one_of_extensions_and_function_has_to_be_given(root: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="Both extensions and is_valid_file cannot be None or not None at the same time"):
        DatasetFolder(root, str, **arguments)


def test_files_cannot_be_collected_for_no_classes(root: Path) -> None:
    with pytest.raises(ArgumentError, match="'class_to_index' must have at least one entry to collect any samples"):
        DatasetFolder.make_dataset(root, {}, ".png")


# Loading


def test_a_sample_is_the_loaders_result_and_the_class(root: Path) -> None:
    dataset = ImageFolder(root, loader=lambda path: Path(path).name)

    assert [dataset[i] for i in range(2)] == [("z.webp", 0), ("a.jpg", 1)]


def test_transforms_are_applied(root: Path) -> None:
    dataset = ImageFolder(root, str.upper, lambda target: -target, lambda path: Path(path).name)

    assert dataset[1] == ("A.JPG", -1)


def test_errors_of_loaders_and_transforms_name_the_file(root: Path) -> None:
    def fail(what: Any) -> Any:
        raise ValueError("damaged")

    for arguments in ({"loader": fail}, {"loader": str, "transform": fail}):
        with pytest.raises(ValueError, match="damaged") as caught:
            DatasetFolder(str(root), extensions=(".webp",), allow_empty=True, **arguments)[0]
        assert caught.value.__notes__ == [f"raised for the file {root}/cat/z.webp"]


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".ppm", ".tiff"])
def test_images_are_rgb_arrays(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / "a" / f"1{suffix}", encoded(suffix))

    image, target = ImageFolder(tmp_path)[0]

    assert np.array_equal(image, RGB)
    assert (image.dtype, target) == (np.uint8, 0)
    assert image.flags.c_contiguous


@pytest.mark.parametrize("suffix", [".png", ".pgm"])
def test_gray_images_are_rgb_arrays_too(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / "a" / f"1{suffix}", encoded(suffix, RGB[..., 0]))

    assert np.array_equal(ImageFolder(tmp_path)[0][0], np.repeat(RGB[..., :1], 3, axis=2))


def test_the_content_counts_and_not_the_name(tmp_path: Path) -> None:
    write(tmp_path / "a" / "1.jpg", encoded(".ppm"))

    assert np.array_equal(ImageFolder(tmp_path)[0][0], RGB)


def test_images_are_those_of_pillow(tmp_path: Path) -> None:
    from PIL import Image

    from tests import image_files

    names = ["jpeg_420", "jpeg_gray", "png_rgba", "png_palette", "bmp_rgb", "webp_lossless", "tiff_rgb_lzw"]
    for name in names:
        write(tmp_path / "a" / f"{name}.jpg", image_files.image_file(name).tobytes())
    write(tmp_path / "a" / "lying on its side.jpg", image_files.ORIENTED_FILES["jpeg"](6))

    dataset = ImageFolder(tmp_path)

    for number, (path, _) in enumerate(dataset.samples):
        assert np.array_equal(dataset[number][0], np.asarray(Image.open(path).convert("RGB"))), path


@pytest.mark.parametrize("content", [b"", b"no image at all", b"P6 broken", b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_cannot_be_decoded_is_named(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("cv2")
    write(tmp_path / "a" / "broken.png", content)

    with pytest.raises(DecodeError, match=r"a/broken\.png: "):
        ImageFolder(tmp_path)[0]


def test_a_small_file_that_promises_a_large_image_is_refused(tmp_path: Path) -> None:
    from tests import image_files

    write(tmp_path / "a" / "bomb.png", image_files.png_promising(14000, 14000))

    with pytest.raises(DecodeError, match=r"a/bomb\.png: .*declares 14000x14000 pixels"):
        ImageFolder(tmp_path)[0]


def test_without_opencv_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a" / "1.ppm", b"P6 1 1 255 abc")
    monkeypatch.setitem(sys.modules, "cv2", None)

    with pytest.raises(MissingExtraError, match=r"needs cv2: pip install 'simplejpeg>=1\.8' 'opencv-python-headless>=4\."):
        ImageFolder(tmp_path)[0]


# repr and pickling


def test_repr_lists_folder_and_transforms(root: Path) -> None:
    dataset = ImageFolder(root, transform=Compose([]), target_transform=abs)

    assert repr(dataset).splitlines() == [
        "Dataset ImageFolder",
        "    Number of datapoints: 4",
        f"    Root location: {root}",
        "    Transform: Compose(",
        "    )",
        "    Target transform: <built-in function abs>",
    ]


def test_a_dataset_can_be_pickled(root: Path) -> None:
    load: Callable[[Any], Any] = pickle.loads

    assert load(pickle.dumps(ImageFolder(root))).samples == ImageFolder(root).samples
