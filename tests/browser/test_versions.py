"""The choice of the version on the documentation site, in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import Browser, served
from tests.conftest import wait_until
from tests.documents import DOCS

PAGE = """<!DOCTYPE html>
<html data-content_root="{root}"><head><meta charset="utf-8">
<script type="module" src="{root}_static/versions.js"></script></head>
<body data-state="drawn">{selector}<p>{text}</p></body></html>
"""


def write_page(path: Path, root: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    selector = (DOCS / "_templates/sidebar/variant-selector.html").read_text("utf-8")
    path.write_text(PAGE.format(root=root, selector=selector, text=path), "utf-8")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Serve two versions; only the newer one has the page how-to/new.html."""
    root = tmp_path / "site"
    for version in ("0.1.0", "0.2.0"):
        write_page(root / version / "index.html", "./")
        write_page(root / version / "how-to" / "old.html", "../")
        (root / version / "_static").mkdir()
        (root / version / "_static" / "versions.js").write_bytes((DOCS / "_static" / "versions.js").read_bytes())
    write_page(root / "0.2.0" / "how-to" / "new.html", "../")
    (root / "versions.json").write_text(json.dumps(["0.2.0", "0.1.0"]))
    with served(root) as address:
        yield address


def choose(browser: Browser, version: str) -> None:
    browser.evaluate(
        f"(() => {{ const select = document.querySelector('#versions select'); select.value = '{version}'; "
        "select.dispatchEvent(new Event('change')); })()"
    )


def shown(browser: Browser) -> bool:
    return bool(browser.evaluate("!document.getElementById('versions').hidden"))


def test_version_menu_leads_to_the_same_page_of_another_version(browser: Browser, site: str) -> None:
    browser.open(f"{site}/0.2.0/how-to/old.html")
    wait_until(lambda: shown(browser), "the choice")
    options = "[...document.querySelectorAll('#versions option')].map((o) => [o.value, o.selected])"
    assert browser.evaluate(options) == [["0.2.0", True], ["0.1.0", False]]

    choose(browser, "0.1.0")

    wait_until(lambda: browser.evaluate("location.pathname") == "/0.1.0/how-to/old.html", "the other version")


def test_version_menu_leads_to_the_start_of_a_version_without_the_page(browser: Browser, site: str) -> None:
    browser.open(f"{site}/0.2.0/how-to/new.html")
    wait_until(lambda: shown(browser), "the choice")

    choose(browser, "0.1.0")

    wait_until(lambda: browser.evaluate("location.pathname") == "/0.1.0/", "the other version")


def test_without_a_list_there_is_no_choice(browser: Browser, site: str, tmp_path: Path) -> None:
    (tmp_path / "site" / "versions.json").unlink()

    browser.open(f"{site}/0.2.0/index.html")

    asked = "performance.getEntriesByType('resource').some((entry) => entry.name.endsWith('versions.json'))"
    wait_until(lambda: browser.evaluate(asked), "the request for the list")
    assert not shown(browser)
