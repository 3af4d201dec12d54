"""The parts of docs/conf.py that need no Sphinx, and the entries of operators in its index."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest

from dali_like.operators.machinery.description import own_descriptions
from dali_like.operators.machinery.reader_functions import own_reader_descriptions
from dali_like.pipeline.pipeline import Pipeline
from tests.browser.searches import SEARCHES
from tests.documents import DOCS
from tools import program_pages


@pytest.fixture(scope="module")
def conf() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "conf.py"))


def test_paths_of_pages_in_docstrings_are_links(conf: dict[str, Any]) -> None:
    lines = ["the settings; see docs/performance.md.", "docs/how-to/readers.md has an example"]

    assert conf["_with_links"](lines) == ["the settings; see :doc:`/performance`.", ":doc:`/how-to/readers` has an example"]


def test_links_to_example_programs_lead_to_pages_that_show_them(conf: dict[str, Any]) -> None:
    text = "[one](../examples/demo.py), [two](../../examples/jax_iterator.py), [other](../benchmarks/plot.py)"

    assert conf["_with_program_pages"](text) == (
        "[one](/programs/demo.md), [two](/programs/jax_iterator.md), [other](../benchmarks/plot.py)"
    )


def test_each_example_program_has_a_page() -> None:
    """If this fails, run ``python -m tools.program_pages``."""
    written = {path.name: path.read_text("utf-8") for path in (DOCS / "programs").glob("*.md")}

    assert written == program_pages.pages()


def test_a_class_has_a_table_of_its_methods(conf: dict[str, Any]) -> None:
    lines = ["A pipeline."]

    conf["_describe"](None, "class", "dali_like.Pipeline", Pipeline, {"members": True, "inherited-members": True}, lines)

    assert lines.index(".. autosummary::") < lines.index("   ~dali_like.Pipeline.run")
    assert "   ~dali_like.Pipeline.close" in lines
    assert not [line for line in lines if "Pipeline._" in line]


def test_without_a_repository_no_page_has_a_link_to_edit_it(conf: dict[str, Any]) -> None:
    assert ("source_edit_link" in conf["html_theme_options"]) == bool(conf["repository"])


@pytest.mark.parametrize(("word", "page"), SEARCHES.items())
def test_words_that_users_search_for_are_on_the_page_that_answers(word: str, page: str) -> None:
    """The search of the site finds words of the text; tests/browser searches for them."""
    text = (DOCS / page.replace(".html", ".md")).read_text("utf-8")

    assert re.search(rf"\b{word}\b", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.IGNORECASE)


def test_each_operator_and_reader_is_in_the_index() -> None:
    described = {**own_descriptions(), **own_reader_descriptions()}
    pages = "\n".join(
        page.read_text("utf-8") for folder in ("operators", "readers") for page in (DOCS / folder).glob("*.md")
    )

    assert [path for path in described if f"{{py:function}} dali_like.fn.{path}(" not in pages] == []
    assert [each for each in described.values() if f"{{py:class}} dali_like.ops.{each.class_path}(" not in pages] == []
