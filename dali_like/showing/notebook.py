"""Displays of batches, reports, loaders and pipelines in notebooks."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from dali_like.errors import MissingExtraError

#: Samples of a batch that a notebook shows by itself.
_MOST_SAMPLES = 8


def text_html(text: str) -> str:
    """Return a text as HTML that keeps its columns."""
    return f'<pre style="line-height: 1.3">{escape(text)}</pre>'


def batch_html(batch: Any) -> str:
    """Return the text of a batch, under a picture if it has pictures, clips or sounds, and Pillow is installed."""
    html = text_html(repr(batch))
    if not len(batch):
        return html
    try:
        from dali_like.showing.pictures import show
    except MissingExtraError:
        return html
    picture = show(batch, samples=_MOST_SAMPLES)
    if not {"image", "clip", "audio"} & {*picture.roles.values()}:
        return html
    return f'<img src="data:image/png;base64,{base64.b64encode(picture._repr_png_()).decode()}">{html}'
