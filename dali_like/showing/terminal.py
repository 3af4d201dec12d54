"""Pictures in a terminal: by the protocol of kitty or iTerm2 where the terminal has it, otherwise by colored half blocks."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

#: Bytes of base64 in one command of kitty's protocol.
_CHUNK = 4096
#: Height of a cell of a terminal, in widths of it.
_ITERM = ("iTerm.app", "WezTerm", "vscode", "mintty")


def in_terminal(image: Image, variables: Mapping[str, str]) -> str:
    """Return the text that draws a picture.

    Args:
        variables: the environment, which tells the terminal.

    Source: https://sw.kovidgoyal.net/kitty/graphics-protocol and https://iterm2.com/documentation-images.html
    """
    if "KITTY_WINDOW_ID" in variables or variables.get("TERM_PROGRAM") == "ghostty":
        return _kitty(image)
    if variables.get("TERM_PROGRAM") in _ITERM:
        data = _png(image)
        return f"\x1b]1337;File=inline=1;size={len(data)}:{base64.b64encode(data).decode()}\a\n"
    width = min(shutil.get_terminal_size().columns, image.width)
    height = max(round(image.height * width / image.width / 2), 1) * 2
    pixels = np.asarray(image.convert("RGB").resize((width, height)))
    lines = []
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=True):
        cells = [
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m▀"
            for a, b in zip(upper.tolist(), lower.tolist(), strict=True)
        ]
        lines.append("".join(cells) + "\x1b[0m\n")
    return "".join(lines)


def _kitty(image: Image) -> str:
    data = base64.b64encode(_png(image)).decode()
    chunks = [data[begin : begin + _CHUNK] for begin in range(0, len(data), _CHUNK)]
    parts = []
    for number, chunk in enumerate(chunks):
        keys = "a=T,f=100," if number == 0 else ""
        parts.append(f"\x1b_G{keys}m={int(number < len(chunks) - 1)};{chunk}\x1b\\")
    return "".join(parts) + "\n"


def _png(image: Image) -> bytes:
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
