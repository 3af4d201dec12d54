"""The whole text that a user sees after a mistake.

A mistake is a function, and its docstring is the text: warnings, the exception, and its notes. Line breaks do not count.
"""

from __future__ import annotations

import contextlib
import io
import re
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dali_like import Pipeline, cli, fn
from dali_like.tensors import TensorListCPU

#: Replaces text that differs from run to run, and the lists that argparse writes differently in each version of Python.
_VARIABLE = {
    re.escape(str(Path.cwd())): "FOLDER",
    r"process \d+": "process PID",
    r" at 0x[0-9a-f]+": " at ADDRESS",
    r"\(choose from [^)]*\)": "(choose from COMMANDS)",
    r"usage: .*?dali-like( \w+)?: error": r"dali-like\1: error",
    r"\(pid \d+\)": "(pid PID)",
    r'Current thread .*?: (File "[^"]*", line \d+ in \w+ )+': "STACK ",
}

Mistake = Callable[[], Any]


def run(source: Any, batches: int = 1, *, name: str = "images", **options: Any) -> tuple[TensorListCPU, ...]:
    """Run a pipeline with batches of four samples of a source, and return the last batch."""
    own = {key: options.pop(key) for key in list(options) if key.startswith(("py_", "output_", "max_held", "batch_size"))}
    with Pipeline(**{"batch_size": 4, "num_threads": 1, "device_id": None, **own}) as pipe:
        nodes = fn.external_source(source, name=name, **options)
        pipe.set_outputs(*(nodes if isinstance(nodes, list) else [nodes]))
    try:
        for _ in range(batches):
            outputs = pipe.run()
        return outputs
    finally:
        pipe.close()


def command(line: str) -> None:
    """Run ``dali-like`` with these arguments, and raise its printed errors."""
    with contextlib.redirect_stderr(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        cli.main(line.split())
    raise SystemExit(printed.getvalue())


def shown_by(mistake: Mistake) -> str:
    """Return the warnings and the exception of a mistake as Python prints them, without the traceback."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            mistake()
            lines = []
        except BaseException as error:
            lines = traceback.format_exception_only(error)
    text = " ".join([*(f"{each.category.__name__}: {each.message}" for each in caught), *lines])
    text = " ".join(text.split())
    for pattern, replacement in _VARIABLE.items():
        text = re.sub(pattern, replacement, text)
    return text.removeprefix("SystemExit: ").replace("dali_like.errors.", "")


def expected_of(mistake: Mistake) -> str:
    """Return the text that the docstring of a mistake promises."""
    return " ".join((mistake.__doc__ or "").split())
