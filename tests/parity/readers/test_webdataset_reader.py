"""``fn.readers.webdataset`` beside the real DALI."""

from __future__ import annotations

import tarfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import nvidia.dali
import pytest

import dali_like
import dali_like.types
from tests.parity.readers.epochs import delivered
from tests.sources.readers.writing import wds_index, write_tar

pytestmark = pytest.mark.peers

FILES: list[tuple[str, bytes | None]] = [
    ("a/x.jpg", b"xjpg"),
    ("a/x.cls", b"1234"),
    ("b.c/x.jpg", b"bj"),
    ("b.c/x.left.png", b"bl"),
    ("c.cls", b"cc"),
    ("folder", None),
    ("c.txt", b"still c"),
    ("noext", b"no"),
    (".hidden.jpg", b"h."),
    ("e.JPG", b"eJ"),
    ("e.cls", b""),
    ("c.cls", b"a1"),
    ("f.jpg", b"f1"),
    ("f.jpeg", b"f2"),
    ("f.jpg", b"f3"),
    ("only.txt", b"tt"),
    ("l.jpg -> f.jpg", None),
    ("s p. jpg", b"sp"),
    ("z.jpg", b"zz"),
]
CASES: dict[str, dict[str, Any]] = {
    "two": {"ext": ["jpg", "cls"]},
    "one": {"ext": "jpg"},
    "list of one": {"ext": ["cls"]},
    "empty": {"ext": ["jpg", "cls"], "missing_component_behavior": "empty"},
    "skip": {"ext": ["jpg", "cls"], "missing_component_behavior": "Skip"},
    "alternatives": {"ext": ["jpeg;jpg", "left.png;cls", "jpeg", "jpg;jpg"]},
    "dots and spaces": {"ext": ["jpg; jpg", "left.png", ";png;"]},
    "any case": {"ext": ["jPg", "CLS"], "case_sensitive_extensions": False},
    "no extension": {"ext": ["noext", ""]},
    "nothing": {"ext": "zzz"},
    "one dtype": {"ext": "jpg;JPG", "dtypes": "INT16"},
    "dtypes": {"ext": ["cls", "jpg"], "dtypes": ["INT16", "UINT8"]},
    "halves": {"ext": ["cls", "jpg"], "dtypes": ["FLOAT16", "INT8"], "missing_component_behavior": "skip"},
}
WRONG: dict[str, dict[str, Any]] = {
    "error": {"ext": ["jpg", "cls"], "missing_component_behavior": "error"},
    "behavior": {"ext": ["jpg", "cls"], "missing_component_behavior": "foo"},
    "count of dtypes": {"ext": ["jpg", "cls"], "dtypes": "INT16"},
    "size": {"ext": ["jpg", "cls"], "dtypes": ["INT32", "UINT8"]},
    "bool": {"ext": "jpg", "dtypes": "BOOL"},
    "nothing": {"ext": "zzz", "missing_component_behavior": "skip"},
    "count of indexes": {"ext": "jpg", "index_paths": ["a", "b"]},
    "missing index": {"ext": "jpg", "index_paths": "missing"},
    "missing": {"ext": "jpg", "paths": "missing"},
    "no archives": {"ext": "jpg", "paths": []},
}
INDEXES = {
    "v1.2": "v1.2 2\nb 512 8 a.b\nb 1536 8 b.b\n",
    "v1.1": "v1.1 2\nb 512 8\nb 1536 8\n",
    "fewer": "v1.1 1\nb 512 8\nb 1536 8\n",
    "both": "v1.1 1\nb 512 8 b 1536 8\n",
    "other order": "v1.1 2\nb 1536 4 c 512 8\nb 512 1\n",
}
WRONG_INDEXES = {
    "more": "v1.1 3\nb 512 8\nb 1536 8\n",
    "v1.0": "v1.0 1\nb 512 8\n",
    "no version": "b 512 8\n",
    "no samples": "v1.1 0\n",
    "no file": "",
    "no block": "v1.1 1\nb 510 8\n",
    "no size": "v1.1 1\nb 512\n",
    "no number": "v1.1 1\nb x 8\n",
    "no name": "v1.2 1\nb 512 8\n",
    "empty line": "v1.1 1\n\nb 512 8\n",
    "negative": "v1.1 1\nb 512 -8\n",
}


def read(dali: ModuleType, options: dict[str, Any], *args: Any) -> Any:
    types = options.get("dtypes")
    if types is not None:
        named = [getattr(dali.types, name) for name in ([types] if isinstance(types, str) else types)]
        options = {**options, "dtypes": named[0] if isinstance(types, str) else named}
    with warnings.catch_warnings(action="ignore"):  # several components for an output
        return delivered(dali, "webdataset", *args, **options)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("archive") / "w.tar"
    write_tar(path, FILES)
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    write_tar(tmp_path / "two.tar", [("a.b", bytes(8)), ("b.b", b"12345678")])
    return tmp_path / "two.tar"


@pytest.mark.parametrize("case", CASES)
def test_components(case: str, archive: str) -> None:
    options = {"paths": archive, **CASES[case]}

    assert read(dali_like, options) == read(nvidia.dali, options)


@pytest.mark.parametrize("case", WRONG)
def test_errors(case: str, archive: str) -> None:
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            read(dali, {"paths": archive, **WRONG[case]})


@pytest.mark.parametrize("case", INDEXES)
def test_indexes(case: str, two: Path) -> None:
    two.with_suffix(".idx").write_text(INDEXES[case])
    options = {"paths": str(two), "ext": ["b", "c"], "index_paths": str(two.with_suffix(".idx"))}

    assert read(dali_like, options) == read(nvidia.dali, options)


@pytest.mark.parametrize("case", WRONG_INDEXES)
def test_wrong_indexes(case: str, two: Path) -> None:
    two.with_suffix(".idx").write_text(WRONG_INDEXES[case])
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            read(dali, {"paths": str(two), "ext": "b", "index_paths": str(two.with_suffix(".idx"))})


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_long_names(form: int, tmp_path: Path) -> None:
    name = "d" * 60 + "/" + "n" * 60
    write_tar(tmp_path / "a.tar", [(f"{name}.jpg", b"1"), (f"{name}.cls", b"2"), ("\xe9.jpg", b"3")], form)
    options = {"paths": [str(tmp_path / "a.tar")], "ext": ["jpg", "cls"]}

    assert read(dali_like, options) == read(nvidia.dali, options)


@pytest.mark.parametrize("kind", ["other", "truncated"])
def test_no_archives(kind: str, two: Path) -> None:
    two.write_bytes(two.read_bytes()[:1539] if kind == "truncated" else b"hello world" * 200)
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            read(dali, {"paths": str(two), "ext": "b"})


@pytest.mark.parametrize("options", [{"num_shards": 3, "shard_id": 1}, {"num_shards": 2, "pad_last_batch": True}], ids=str)
@pytest.mark.parametrize("indexed", [False, True])
def test_archives_and_shards(options: dict[str, Any], indexed: bool, tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.tar" for i in range(3)]
    for i, path in enumerate(paths):
        write_tar(path, [(f"{k}.x", f"{i}{k}".encode()) for k in range(2 + i)])
        path.with_suffix(".idx").write_text(wds_index([[("x", 512 + 1024 * k, 2, f"{k}.x")] for k in range(2 + i)]))
    options = {"paths": [*map(str, paths)], "ext": "x", "batch_size": 4, **options}
    if indexed:
        options["index_paths"] = [str(path.with_suffix(".idx")) for path in paths]

    assert read(dali_like, options, 8) == read(nvidia.dali, options, 8)


def origins(dali: ModuleType, options: dict[str, Any]) -> list[list[str]]:
    """Return ``source_info`` of each output, for the samples of the first batch."""

    @dali.pipeline_def(batch_size=8, num_threads=1, device_id=None)
    def define() -> Any:
        return tuple(dali.fn.get_property(node, key="source_info") for node in dali.fn.readers.webdataset(**options))

    pipe = define()
    with warnings.catch_warnings(action="ignore"):  # several components for an output
        pipe.build()
        texts = [[bytes(np.array(batch.at(i))).decode() for i in range(8)] for batch in pipe.run()]
    if dali is dali_like:
        pipe.close()
    return texts


@pytest.mark.parametrize("behavior", ["empty", "skip"])
def test_origins(archive: str, behavior: str) -> None:
    options = {"paths": archive, "ext": ["jpg", "cls"], "missing_component_behavior": behavior}

    assert origins(dali_like, options) == origins(nvidia.dali, options)


@pytest.mark.parametrize("case", ["v1.2", "v1.1", "other order"])
def test_origins_of_indexes(case: str, two: Path) -> None:
    two.with_suffix(".idx").write_text(INDEXES[case])
    options = {"paths": str(two), "ext": ["b", "c"], "index_paths": str(two.with_suffix(".idx"))}

    assert origins(dali_like, options) == origins(nvidia.dali, options)
