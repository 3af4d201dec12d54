"""The findings of a check as a page in one file, without scripts."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0 1.5rem; }
td, th { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid #8885; vertical-align: top; }
td:first-child { text-align: right; font-variant-numeric: tabular-nums; width: 5rem; }
h2 { font-size: 1.1rem; margin-bottom: 0; }
"""


def page_of(document: Mapping[str, Any]) -> str:
    """Return the page. All texts of the dataset are escaped."""
    problems = document["problems"]
    summary = f"{document['samples']:,} samples, " + (f"{len(problems)} problems" if problems else "nothing found")
    parts = [f"<h1>{escape(document['name'])}</h1>", f"<p>{summary}</p>"]
    for problem in problems:
        parts.append(f"<h2>{problem['samples']:,} &times; {escape(problem['text'])}</h2>")
        rows = [
            f"<tr><td>{each['index']}</td><td>{escape(each['origin'])}</td><td>{escape(each['words'])}</td></tr>"
            for each in problem["examples"]
        ]
        head = "<tr><th>sample</th><th>origin</th><th></th></tr>"
        parts.append(f"<table>{head}{''.join(rows)}</table>")
        if (rest := problem["samples"] - len(rows)) > 0:
            parts.append(f"<p>and {rest:,} more</p>")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(document["name"])}: check</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
