"""Vector pictures of boxes, texts and arrows, for the documentation. They have colors for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape

__all__ = ["LINE_HEIGHT", "Picture", "text_width"]

LINE_HEIGHT = 18
_FONT_SIZE = 13
#: Mean width of a character of a sans-serif font, as a share of its size. A little too much, so that texts fit.
_WIDTH = 0.58
_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1c2733 }
.strong { font-weight: 600 } .small { font-size: 11px } .code { font-family: ui-monospace, monospace; font-size: 12px }
.paper { fill: #ffffff } .box { fill: #eef2f6; stroke: #8796a5 } .accent { fill: #2f6fb3; stroke: #2f6fb3 }
.soft { fill: #d6e4f3; stroke: #2f6fb3 } .quiet { fill: #b4bfca; stroke: #b4bfca } .line { stroke: #55677a; fill: none }
.head { fill: #55677a } .dim { fill: #5b6b7b } .warn { fill: #fbe3d6; stroke: #b5562b }
@media (prefers-color-scheme: dark) {
  text { fill: #e3e9ef } .paper { fill: #16191d } .box { fill: #242b33; stroke: #718093 }
  .accent { fill: #5b9be0; stroke: #5b9be0 } .soft { fill: #1f3650; stroke: #5b9be0 }
  .quiet { fill: #55616e; stroke: #55616e }
  .line { stroke: #9fb0c0 } .head { fill: #9fb0c0 } .dim { fill: #a9b6c3 } .warn { fill: #4a2a1b; stroke: #e08a5f }
}"""

Kind = Literal["box", "soft", "warn", "accent", "quiet"]


def text_width(text: str, size: float = _FONT_SIZE) -> float:
    """Return the estimated width of a text, in pixels."""
    return len(text) * size * _WIDTH


@dataclass(frozen=True)
class Box:
    """A drawn box, for arrows that begin or end at it. Coordinates are in pixels, from the top left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def top(self) -> tuple[float, float]:
        """The middle of the upper side."""
        return self.x + self.width / 2, self.y

    @property
    def bottom(self) -> tuple[float, float]:
        """The middle of the lower side."""
        return self.x + self.width / 2, self.y + self.height

    @property
    def left(self) -> tuple[float, float]:
        """The middle of the left side."""
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> tuple[float, float]:
        """The middle of the right side."""
        return self.x + self.width, self.y + self.height / 2


class Picture:
    """A picture in the making.

    Args:
        width: its width in pixels. The height follows from its content.
        title: text for readers of the page without the picture.
    """

    def __init__(self, width: int, title: str) -> None:
        self._width = width
        self._title = title
        self._parts: list[str] = []
        self._height = 0.0

    def text(
        self, x: float, y: float, text: str, kind: str = "", anchor: Literal["start", "middle", "end"] = "start"
    ) -> None:
        """Write a line of text; `y` is its baseline, `kind` the names of styles."""
        self._grow(y + LINE_HEIGHT / 2)
        self._parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def bar(self, x: float, y: float, width: float, height: float, kind: Kind) -> None:
        """Draw a filled rectangle."""
        self._grow(y + height)
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:.4g}" height="{height:g}" class="{kind}"/>')

    def box(self, x: float, y: float, width: float, lines: Sequence[str], kind: Kind = "box") -> Box:
        """Draw a box around lines of text. The first is strong; lines in backquotes are code."""
        height = LINE_HEIGHT * len(lines) + 14
        self._grow(y + height)
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{kind}"/>')
        for number, line in enumerate(lines):
            if text_width(line, 11 if number else _FONT_SIZE) > width:
                raise ValueError(f"this text is too wide for a box of {width:g} pixels: {line}")
            style = "code dim" if line.startswith("`") else "small" if number else "strong"
            self.text(x + width / 2, y + 20 + LINE_HEIGHT * number, line.strip("`"), style, "middle")
        return Box(x, y, width, height)

    def line(self, *points: tuple[float, float]) -> None:
        """Draw a line through points."""
        self._grow(max(y for _, y in points))
        places = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polyline points="{places}" class="line"/>')

    def arrow(self, *points: tuple[float, float], label: str = "", dx: float = 6, dy: float = -5) -> None:
        """Draw a line through points with a head at its end, and a label beside the middle of its first part."""
        self.line(*points)
        (x0, y0), (x1, y1) = points[-2:]
        length = max(abs(x1 - x0) + abs(y1 - y0), 1e-9)
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        corners = ((x1, y1), (x1 - 9 * ux - 4 * uy, y1 - 9 * uy + 4 * ux), (x1 - 9 * ux + 4 * uy, y1 - 9 * uy - 4 * ux))
        self._parts.append(f'<polygon points="{" ".join(f"{x:.4g},{y:.4g}" for x, y in corners)}" class="head"/>')
        if label:
            (x0, y0), (x1, y1) = points[:2]
            self.text((x0 + x1) / 2 + dx, (y0 + y1) / 2 + dy, label, "small dim")

    def __str__(self) -> str:
        """The SVG file."""
        height = int(self._height) + 12
        size = f'width="{self._width}" height="{height}" viewBox="0 0 {self._width} {height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
                f"<title>{escape(self._title)}</title>",
                f"<style>\n{_STYLE}\n</style>",
                '<rect width="100%" height="100%" rx="8" class="paper"/>',
                *self._parts,
                "</svg>\n",
            ]
        )

    def _grow(self, bottom: float) -> None:
        self._height = max(self._height, bottom)
