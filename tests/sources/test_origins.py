"""Origins of samples of map-style datasets, and their texts."""

from __future__ import annotations

from typing import Any

import pytest

from dali_like.sources.origins import UNKNOWN, Origin, Origins, file_of, origin_at, text_of, texts_of


class Listed:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize("name", ["samples", "imgs", "files", "paths"])
def test_file_of_a_dataset_is_the_text_of_its_list(name: str) -> None:
    assert origin_at(Listed(**{name: [("a.png", 0), ("b.png", 1)]}), 1) == Origin(1, "b.png")


@pytest.mark.parametrize("files", [["a.png"], [1, 2], None, {"a", "b"}])
def test_other_attributes_are_no_files(files: Any) -> None:
    assert file_of(Listed(files=files), 1) == ""


def test_a_dataset_with_a_list_that_raises_has_no_files() -> None:
    class Raising(list[str]):
        def __getitem__(self, index: Any) -> Any:
            raise RuntimeError

    assert file_of(Listed(files=Raising("ab")), 1) == ""


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Origin(3), "3"),
        (Origin(3, "a.png"), "3 (a.png)"),
        (Origin(3, "a.png", "web"), "web 3 (a.png)"),
        (Origin(None, "a.png"), "a.png"),
        (UNKNOWN, "?"),
        ((Origin(3), Origin(4, source="b")), "[3, b 4]"),
    ],
)
def test_text_of_an_origin_is_short(row: Origins, text: str) -> None:
    assert text_of(row) == text
    assert texts_of([row, Origin(9)]) == f"{text}, 9"
