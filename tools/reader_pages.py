"""Write the documentation of readers, one page for each, from their classes.

``python -m tools.reader_pages [folder]`` writes the pages, to ``docs/readers`` by default.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dali_like.operators.machinery.description import Description
from dali_like.operators.machinery.reader_functions import arguments_of_all, own_reader_descriptions
from tools.operator_pages import as_markdown, parts_of, rows, signature, write_pages

_NOTE = "<!-- Written by tools.reader_pages from the classes of the readers; do not edit. -->"
_INDEX = """\
# Readers

As in `nvidia.dali.fn.readers`. The worker processes read, decode, and run the operators behind a reader. In a pipeline with
`py_num_workers=0` the main process does. `ops.readers` has a class for each reader. To read a format of your own, see
[readers of your own formats](../how-to/readers.md).

| reader | reads |
|---|---|
"""
_EPOCHS = """\
A pipeline with readers never raises StopIteration: behind the last sample, each reader goes on with the first one. Pass
`reader_name=` to an iterator, and it ends the epochs; with `pad_last_batch=True` of the reader, each epoch has each sample
once, also behind a last batch that is not full. `Pipeline.epoch_size(name)` and `Pipeline.reader_meta(name)` return the size
of the dataset. Without shuffling, the order of samples is DALI's: through epochs, shards and padding.

With `random_shuffle`, the order is a permutation of the whole dataset in each epoch, and not a walk through a buffer of
`initial_fill` samples: neighbors in the dataset are not neighbors in the epoch. All ranks together deliver each sample once
per epoch, even if their pipelines have different seeds. A checkpoint resumes at the exact sample.

For images and masks in separate files, use two readers with `shuffle_after_epoch`. As in DALI, its order has a fixed seed:
readers with equally many samples deliver pairs, in one pipeline or in several. With `random_shuffle`, pairs need the same
`seed` in both readers.

Without `py_num_workers`, a pipeline with readers starts as many workers as `num_threads`. The workers are forked. If CUDA is
in use already, and only readers are parallel, they are spawned.

Paths with `://` are URLs for [fsspec](https://filesystem-spec.readthedocs.io/): `s3://bucket/folder`,
`https://host/file`. Install `dali_like[remote]`. Each worker reads several files at once, retries, and can keep a cache:
`remote_options={"cache_dir": "/cache", "cache_bytes": 200 << 30}`; see [remote data](../remote-data.md).

A missing file raises `MissingFileError`, a damaged one `BrokenFileError`, with the path in `file` and the position in
`offset`. With `on_error="skip"`, the next sample replaces it, also if an operator behind the reader fails, such as a
decoder; see [debug a callback](../how-to/debug-a-callback.md).
"""


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    described = [own_reader_descriptions()[path] for path in sorted(own_reader_descriptions())]
    texts = {f"{page_of(description)}.md": "\n".join([_NOTE, *_section(description)]) for description in described}
    return {"index.md": "\n".join([_NOTE, *_index(described)]), **texts}


def page_of(description: Description) -> str:
    """Return the name of a reader's page."""
    return description.path.replace("readers.", "").replace(".", "_")


def _index(described: list[Description]) -> Iterator[str]:
    lines = [
        f"| [`fn.{each.path}`]({page_of(each)}.md) | {as_markdown(_first_line(each)).removeprefix('Reads ')} |"
        for each in described
    ]
    yield _INDEX + "\n".join(lines)
    yield ""
    yield _EPOCHS
    yield "## Arguments of all readers"
    yield ""
    everywhere = next(iter(described))
    yield from _table(replace(everywhere, parameters=everywhere.common), inspect.getdoc(arguments_of_all) or "")
    yield ""
    yield from ("```{toctree}", ":hidden:", ":glob:", "", "*", "```", "")


def _section(description: Description) -> Iterator[str]:
    text, _, returned = parts_of(description.doc)
    yield f"# fn.{description.path}"
    yield ""
    yield from signature(description)
    yield as_markdown(text)
    yield ""
    yield from _table(description, description.doc)
    yield ""
    if returned:
        yield f"Returns: {as_markdown(returned)}"
        yield ""
    yield "See [the index](index.md) for shards, epochs, URLs, and the arguments of all readers."
    yield ""


def _table(description: Description, doc: str) -> Iterator[str]:
    yield "| argument | kind | default | |"
    yield "|---|---|---|---|"
    for names, what in parts_of(doc)[1]:
        yield from rows(description, names, what)


def _first_line(description: Description) -> str:
    return description.doc.partition("\n")[0]


if __name__ == "__main__":
    write_pages(pages(), Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "readers"))
