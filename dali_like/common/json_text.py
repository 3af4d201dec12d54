"""Values of JSON texts that anyone may have written."""

from __future__ import annotations

import json
from typing import Any


def json_value(text: str | bytes) -> Any:
    """Return the value that a text of JSON describes.

    Raises:
        ValueError: it is not JSON, or nested too deeply for Python.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
