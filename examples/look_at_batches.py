"""Look at batches: pictures with boxes and names of classes, a sound, and the tokens of a pack.

    python -m examples.look_at_batches [prefix]

Prints the pictures in the terminal, or writes them to files. Requires OpenCV and Pillow. Pictures and sound are made up.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from dali_like import fn, pipeline_def, show
from dali_like.data import ComposedDataset, DataLoader
from dali_like.showing.pictures import Picture
from examples.spoken_words import word

CLASSES = ("nothing", "bright", "dark")
SIDE = 96


class Scene:
    """Pictures of two rectangles, as a source of samples."""

    def __call__(self, info: Any) -> tuple[Any, ...]:
        rng = info.rng()
        picture = rng.integers(90, 150, (SIDE, SIDE, 3), np.uint8)
        corners = rng.integers(0, SIDE // 2, (2, 2))
        boxes = np.concatenate([corners, corners + rng.integers(16, SIDE // 2, (2, 2))], axis=1)
        labels = rng.integers(1, 3, 2)
        for (left, top, right, bottom), label in zip(boxes, labels, strict=True):
            picture[top:bottom, left:right] = 230 if label == 1 else 30
        return picture, boxes.astype(np.float32), labels


@pipeline_def(batch_size=6, num_threads=1, py_num_workers=2, seed=3)  # type: ignore[untyped-decorator,unused-ignore]
def scenes() -> Any:
    """Define a pipeline of normalized pictures of shape (3, height, width), and the boxes and labels of their objects."""
    pictures, boxes, labels = fn.external_source(Scene(), num_outputs=3, batch=False, parallel=True, layout=["HWC", "", ""])
    mean, std = [0.485 * 255, 0.456 * 255, 0.406 * 255], [0.229 * 255, 0.224 * 255, 0.225 * 255]
    return fn.crop_mirror_normalize(pictures, mean=mean, std=std, output_layout="CHW"), boxes, labels


def show_scenes() -> Picture:
    """Show a batch of a pipeline. Shapes and dtypes tell which outputs are boxes and labels."""
    pipe = scenes()
    with pipe:
        return show(pipe.run(), classes=CLASSES, columns=6, size=SIDE)


def show_sounds() -> Picture:
    """Show sounds with the spoken words."""
    rng = np.random.default_rng(0)
    words = ["ai", "iu", "ea"]
    return show([{"audio": word(each, rng), "text": each} for each in words], size=120)


def show_packs() -> Picture:
    """Show the tokens of packs: each sequence has its color."""
    rng = np.random.default_rng(1)
    texts = [rng.integers(100, 9999, rng.integers(4, 14)) for _ in range(60)]
    packs = ComposedDataset.source(texts).map(lambda ids: {"tokens": ids}).pack(length={"tokens": 24}).with_options(shards=1)
    return show(next(iter(DataLoader(packs, batch_size=2))), size=150)


#: The batches, by name.
DRAWN = {"scenes": show_scenes, "sounds": show_sounds, "packs": show_packs}


def main(arguments: list[str] | None = None) -> None:
    """Show the three batches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", nargs="?", help="write the pictures to files whose names begin with this")
    options = parser.parse_args(arguments)
    for name, draw in DRAWN.items():
        picture = draw()
        if options.prefix is not None:
            picture.save(f"{options.prefix}{name}.png")


if __name__ == "__main__":
    main()
