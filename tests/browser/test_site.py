"""The documentation site in a browser: on a desk and on a phone, light and dark. `make docs` builds it in build/docs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import Browser, served
from tests.browser.searches import SEARCHES
from tests.conftest import wait_until
from tests.documents import DOCS

SITE = Path(os.environ.get("DALI_LIKE_SITE") or DOCS.parent / "build" / "docs")

pytestmark = pytest.mark.skipif(not (SITE / "index.html").exists(), reason="there is no site: run `make docs`")

#: Pages of each kind, and the longest ones.
PAGES = (
    *("index", "tutorial", "gallery", "programs/replay_batch", "cookbook/index", "comparison", "benchmarks"),
    *(f"benchmarks/{name}" for name in ("hand-over", "loaders", "streams", "training", "operators-and-features")),
    *("composed-tutorial", "composed-datasets", "composed-resume", "scaling", "migrating-from-dali", "dali-in-detail"),
    *("beyond-dali", "dali-errors"),
    *("operators/index", "operators/geometry", "readers/index", "reference/index", "reference/pipeline"),
    *("how-to/look-at-batches", "how-to/profile-the-workers", "how-to/check-the-data", "how-to/repeat-a-batch"),
)
SCHEMES = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
#: The number of links of the sidebar that can be seen on the first page.
MOST_LINKS = 80


@pytest.fixture
def site() -> Iterator[str]:
    """Serve the site, and return its address."""
    with served(SITE) as address:
        yield address


@SCHEMES
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_window(browser: Browser, site: str, width: int, dark: bool) -> None:
    wide = []
    for page in PAGES:
        browser.visit(f"{site}/{page}.html", width, dark=dark)
        if browser.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(page)
    assert wide == []


@SCHEMES
def test_paper_and_ink_follow_the_color_scheme(browser: Browser, site: str, dark: bool) -> None:
    browser.visit(f"{site}/index.html", dark=dark)
    color = "Number(getComputedStyle({}).{}.match(/\\d+/)[0])"

    assert (browser.evaluate(color.format("document.body", "backgroundColor")) < 128) == dark
    assert (browser.evaluate(color.format("document.querySelector('article p')", "color")) > 128) == dark


@pytest.mark.parametrize("width", [1280, 390])
def test_without_a_list_of_versions_no_page_shows_their_choice(browser: Browser, site: str, width: int) -> None:
    browser.visit(f"{site}/index.html", width)

    asked = "performance.getEntriesByType('resource').some((entry) => entry.name.endsWith('versions.json'))"
    wait_until(lambda: browser.evaluate(asked), "the request for the list")
    assert browser.evaluate("getComputedStyle(document.getElementById('versions')).display") == "none"


def test_tables_of_the_comparison_fit_a_window_of_1280_pixels(browser: Browser, site: str) -> None:
    browser.visit(f"{site}/comparison.html", 1280)

    columns = browser.evaluate("[...document.querySelectorAll('article thead tr')].map((row) => row.children.length)")
    assert len(columns) >= 3
    assert max(columns) <= 6
    sizes = "[...document.querySelectorAll('.table-wrapper')].map((each) => each.scrollWidth - each.clientWidth)"
    assert max(browser.evaluate(sizes)) <= 0


def test_index_of_operators_has_their_pictures_as_links(browser: Browser, site: str) -> None:
    browser.visit(f"{site}/operators/index.html")

    images = "[...document.querySelectorAll('.thumbnails a img')]"
    assert browser.evaluate(f"{images}.length") == len(list((DOCS / "operators" / "pictures").glob("*.jpg")))
    assert browser.evaluate(f"{images}.every((each) => each.naturalWidth > 0 && each.height <= 80)")
    assert browser.evaluate(f"{images}.find((each) => each.alt === 'fn.crop').closest('a').getAttribute('href')").startswith(
        "geometry.html#"
    )


def test_sidebar_shows_pages_of_operators_and_programs_only_among_them(browser: Browser, site: str) -> None:
    visible = (
        "[...document.querySelectorAll('.sidebar-tree a')].filter((each) => each.offsetParent).map((each) => each.href)"
    )

    browser.visit(f"{site}/index.html")
    links = browser.evaluate(visible)
    assert 20 < len(links) <= MOST_LINKS
    assert [link for link in links if "/operators/geometry" in link or "/programs/" in link] == []

    browser.visit(f"{site}/operators/geometry.html")
    assert any("/operators/color" in link for link in browser.evaluate(visible))


def test_programs_of_the_gallery_are_shown_on_pages(browser: Browser, site: str) -> None:
    browser.visit(f"{site}/gallery.html")
    links = browser.evaluate("[...document.querySelectorAll('article a[href*=\"programs/\"]')].map((each) => each.href)")

    programs = set(re.findall(r"examples/(\w+)\.py\)", (DOCS / "gallery.md").read_text("utf-8")))
    assert {link.rpartition("/")[2] for link in links} == {f"{name}.html" for name in programs}
    assert browser.evaluate("document.querySelectorAll('article a.download[href$=\".py\"]').length") == 0
    browser.visit(next(link for link in links if "replay_batch" in link))
    assert "def replay(" in browser.evaluate("document.querySelector('article .highlight-python').textContent")
    assert browser.evaluate("document.querySelector('article img').naturalWidth > 400")


def test_each_page_of_the_reference_has_a_summary(browser: Browser, site: str) -> None:
    browser.visit(f"{site}/reference/index.html")
    cells = (
        "[...document.querySelectorAll('article tbody tr')].map((row) => [...row.children].map((each) => each.textContent))"
    )

    rows = browser.evaluate(cells)
    assert len(rows) == len(list((DOCS / "reference").glob("*.md"))) - 1
    assert min(len(summary) for _, summary in rows) > 20


@pytest.mark.parametrize("word", SEARCHES)
def test_search_finds_the_page_for(browser: Browser, site: str, word: str) -> None:
    browser.visit(f"{site}/search.html?q={word}")

    done = "/found|did not match/.test(document.querySelector('#search-results p.search-summary')?.textContent ?? '')"
    wait_until(lambda: browser.evaluate(done), "the results")
    links = browser.evaluate("[...document.querySelectorAll('#search-results li a')].map((each) => each.href)")
    assert any(SEARCHES[word] in link for link in links), links
