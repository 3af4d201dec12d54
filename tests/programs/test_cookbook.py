"""The recipes of the cookbook print the outputs of their pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.cookbook import FOLDER, Recipe, missing_packages, recipes, run

RECIPES = recipes()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_recipes_print_the_output_of_their_page(recipe: Recipe, tmp_path: Path) -> None:
    if missing := missing_packages(recipe):
        pytest.skip(f"{', '.join(missing)} not installed; see `make cookbook`")
    assert run(recipe, tmp_path).output == recipe.output


def test_each_section_is_a_recipe_with_a_row_in_the_index() -> None:
    pages = [(path.stem, path.read_text("utf-8")) for path in FOLDER.glob("*.md")]
    sections = [(page, title) for page, text in pages for title in re.findall(r"^## (.+)", text, re.M)]
    assert sorted(sections) == sorted((recipe.page, recipe.title) for recipe in RECIPES)
    rows = re.findall(r"^\| \[(.+?)\]\((\w+)\.md#", (FOLDER / "index.md").read_text(), re.M)
    assert rows == [(recipe.title, recipe.page) for recipe in RECIPES]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_recipes_fit_on_a_screen(recipe: Recipe) -> None:
    lines = recipe.code.splitlines()
    assert len(lines) <= 36
    assert max(map(len, lines)) <= 125
