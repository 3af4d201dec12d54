"""Serialized pipelines of strangers write nothing, unpickle nothing and run nothing, with any contents."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import pickle
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dali_like import Pipeline, fn
from dali_like.errors import SerializationError
from dali_like.operators.machinery.description import Description, describe, descriptions, own_descriptions, register
from dali_like.operators.machinery.functions import apply
from dali_like.operators.machinery.reader_functions import apply_reader, description_of_reader, own_reader_descriptions
from dali_like.operators.parameters import Parameter
from dali_like.pipeline import serialization
from dali_like.readers import Reader, reader
from dali_like.sources.readers.registered import registered_readers
from dali_like.types import SampleInfo
from tests.canary import watched
from tests.image_files import image_file
from tests.sources.readers.coco_writing import write_coco
from tests.sources.readers.writing import example, integers, recordio, tfrecord, write_records, write_tar
from tools.operator_examples import CALLS, pipeline_of

_IS_FULL = os.environ.get("PARITY") == "full"
DESCRIPTIONS: Mapping[str, Description] = {**own_descriptions(), **own_reader_descriptions()}


#: Arguments of readers with which they work; `data` has the files.
READERS: Mapping[str, Mapping[str, Any]] = {
    "readers.coco": {"file_root": "", "annotations_file": "annotations.json"},
    "readers.file": {"files": "a.npy"},
    "readers.mxnet": {"path": "a.rec"},
    "readers.numpy": {"files": "a.npy"},
    "readers.tfrecord": {"path": "a.tfrecord", "features": {"label": [0, 0, [1], []]}},
    "readers.webdataset": {"paths": "a.tar", "ext": ["txt"]},
}
FILES = ["", "annotations.json", "a.npy", "a.rec", "a.tfrecord", "a.tar"]
#: Operators whose examples have no text, because they call functions.
WITHOUT_TEXT = {"dl_tensor_python_function", "python_function", "torch_python_function", "experimental.numba_function"}


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def document(*nodes: Mapping[str, Any]) -> str:
    """The text of a pipeline that returns the first output of each node."""
    arguments = {"batch_size": 1, "num_threads": 1, "device_id": None}
    outputs = [[i, 0] for i in range(len(nodes))]
    return json.dumps(
        {
            "format": "dali_like pipeline",
            "version": 1,
            "arguments": arguments,
            "nodes": nodes,
            "outputs": outputs,
            "sinks": [],
        }
    )


def of_reader(name: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "reader", "name": f"fn.{name}", "arguments": arguments}


def of_operator(name: str, *inputs: int, **arguments: Any) -> dict[str, Any]:
    return {
        "kind": "operator",
        "name": f"fn.{name}",
        "arguments": arguments,
        "inputs": [[i, 0] for i in inputs],
        "argument_inputs": {},
    }


def constant(array: np.ndarray) -> dict[str, Any]:
    data = base64.b64encode(array.tobytes()).decode()
    return {"kind": "constant", "dtype": "UINT8", "shape": array.shape, "layout": "", "data": data}


def acts_of(text: str) -> list[str]:
    """The events while a text is loaded, and run if possible."""
    with watched() as acts, contextlib.suppress(Exception), contextlib.ExitStack() as stack:
        pipe = Pipeline.deserialize(text, py_num_workers=0)
        stack.callback(pipe.close)
        pipe.run()
    return acts


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, and the user's cache."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files for the readers."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "images").mkdir()
    (folder / "images" / "a.jpg").write_bytes(image_file("jpeg_444").tobytes())
    np.save(folder / "a.npy", np.arange(6))
    write_coco(folder)
    write_records(folder / "a.rec", [recordio(1.0, b"abc")])
    write_records(folder / "a.tfrecord", [tfrecord(example(label=integers(3)))])
    write_tar(folder / "a.tar", [("1.txt", b"abc")])
    return folder


# Harmful texts


def test_a_cache_for_remote_files_is_refused(tmp_path: Path) -> None:
    options = {"cache_dir": str(tmp_path), "cache_bytes": 1 << 20}
    path = np.frombuffer(b"memory://x", np.uint8)

    for nodes in (
        [of_reader("readers.file", files=["memory://x"], remote_options=options)],
        [constant(path), of_operator("io.file.read", 0, remote_options=options)],
        [of_reader("readers.file", files=["memory://x"], remote_options={"storage_options": {}})],
    ):
        with pytest.raises(SerializationError, match=r"takes remote_options from a program only: .* pass trusted=True"):
            Pipeline.deserialize(document(*nodes))


def test_annotations_are_not_written(data: Path, tmp_path: Path) -> None:
    given = {"file_root": str(data), "annotations_file": str(data / "annotations.json")}
    saving = {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": str(tmp_path)}

    older = {"dump_meta_files": True, "dump_meta_files_path": str(tmp_path)}

    for named, words in ((saving, "takes save_preprocessed_annotations, "), (older, "it has no dump_meta_files, ")):
        with pytest.raises(SerializationError, match=words):
            Pipeline.deserialize(document(of_reader("readers.coco", **given, **named)))


def test_operators_that_write_files_are_refused(elsewhere: Path) -> None:
    text = document(constant(np.zeros((2, 2, 3), np.uint8)), of_operator("dump_image", 0))

    with pytest.raises(SerializationError, match=r"node 1: fn\.dump_image writes files\. If you trust"):
        Pipeline.deserialize(text)
    with closing(Pipeline.deserialize(text, trusted=True)) as pipe:
        pipe.run()
    assert [path.name for path in elsewhere.iterdir()] == ["0--0.ppm"]


@pytest.mark.parametrize("name", ["readers.mxnet", "readers.tfrecord", "readers.webdataset"])
def test_indexes_are_stored_only_for_trusted_texts(name: str, data: Path, elsewhere: Path) -> None:
    (archive,) = (value for value in READERS[name].values() if value in ("a.rec", "a.tfrecord", "a.tar"))
    (elsewhere / archive).write_bytes((data / archive).read_bytes())
    index = elsewhere / f".{archive}.index"
    text = document(of_reader(name, **READERS[name]))

    assert acts_of(text) == []
    assert not index.exists()
    Pipeline.deserialize(text, py_num_workers=0, trusted=True).close()
    assert index.exists()


def test_operators_and_readers_of_the_user_need_trust() -> None:
    @reader(path="readers.of_this_test")
    class Numbers(Reader):
        """Numbers.

        Args:
            path: a text.
        """

        def __init__(self, *, path: str) -> None:
            self.path = path

        def __len__(self) -> int:
            return 1

        def read(self, index: int, info: SampleInfo) -> Any:
            return np.array(len(self.path))

    described = describe(lambda call, *, path: np.array(len(path)), name="of_this_test", travels=(int,))
    register(described)
    try:
        pipe = Pipeline(1, 1, None, py_num_workers=0)
        with pipe:
            pipe.set_outputs(
                apply_reader(description_of_reader(Numbers), [], {"path": "abc"}), apply(described, [], {"path": "ab"})
            )
        text = pipe.serialize()

        with pytest.raises(SerializationError, match=r"fn\.readers\.of_this_test is not part of dali_like.*trusted=True"):
            Pipeline.deserialize(text)
        with closing(Pipeline.deserialize(text, py_num_workers=0, trusted=True)) as loaded:
            assert [batch.at(0) for batch in loaded.run()] == [3, 2]
        with pytest.raises(SerializationError, match=r"fn\.of_this_test is not part of dali_like"):
            Pipeline.deserialize(document(of_operator("of_this_test", path="x")))
    finally:
        descriptions().pop("of_this_test")
        registered_readers().pop("readers.of_this_test")


def test_a_serialized_text_lacks_paths_to_write_to(data: Path, tmp_path: Path) -> None:
    saving = {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": str(tmp_path / "saved")}
    (tmp_path / "saved").mkdir()
    pipe = Pipeline(1, 1, None, py_num_workers=0)
    with pipe:
        given = {"file_root": str(data), "annotations_file": str(data / "annotations.json")}
        images = fn.readers.coco(**given, **saving, remote_options={"attempts": 2})[0]
        pipe.set_outputs(images, fn.io.file.read(images, remote_options={"attempts": 2}))

    reading, file = json.loads(pipe.serialize())["nodes"]

    assert reading["arguments"] == given
    assert file["arguments"] == {}


# Any contents


def values_of(parameter: Parameter, folder: str) -> st.SearchStrategy[Any]:
    """Values in JSON, most of them allowed."""
    kinds = {int: st.integers(-2, 8), float: st.floats(-2, 8), bool: st.booleans()}
    texts = st.sampled_from(["HWC", "HW", "WH", "gpu", "cpu", "x", "skip", "/etc/passwd", folder, f"{folder}/images"])
    numbers = st.integers(-2, 8)
    anything = st.one_of(numbers, texts, st.lists(numbers, max_size=4), st.lists(texts, max_size=2))
    if parameter.annotation in kinds:
        return st.one_of(kinds[parameter.annotation], numbers)
    if not parameter.saved:
        options = {"cache_dir": folder, "cache_bytes": 1 << 20, "storage_options": {}}
        return st.one_of(anything, st.just(options), st.just(folder))
    return anything


@st.composite
def texts(draw: st.DrawFn, folder: Path, here: Path) -> tuple[str, list[str]]:
    """The text of a pipeline with an operator or reader, and the names of arguments in it that must be refused."""
    name = draw(st.sampled_from(sorted(DESCRIPTIONS)))
    description = DESCRIPTIONS[name]
    nodes, target = base_of(name, folder)
    chosen = draw(st.lists(st.sampled_from(sorted(description.all_parameters)), max_size=3, unique=True))
    for argument in chosen:
        target["arguments"][argument] = draw(values_of(description.all_parameters[argument], str(here)))
    forbidden = [argument for argument in chosen if not description.all_parameters[argument].saved]
    return document(*nodes), forbidden


def base_of(name: str, folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The nodes of a pipeline that works, if there is an example of it, and the node of that name among them."""
    if name in READERS:
        given = {key: str(folder / value) if value in FILES else value for key, value in READERS[name].items()}
        node = of_reader(name, **given)
        return [node], node
    if name in CALLS and name not in WITHOUT_TEXT:
        nodes = json.loads(example_text(name))["nodes"]
        return nodes, next(node for node in nodes if node.get("name") == f"fn.{name}")
    pixels = image_file("jpeg_444") if "decode" in name else np.zeros((8, 6, 3), np.uint8)
    node = of_operator(name, *[0] * DESCRIPTIONS[name].min_inputs)
    return [{**constant(pixels), "layout": "" if pixels.ndim == 1 else "HWC"}, node], node


@functools.cache
def example_text(name: str) -> bytes:
    with closing(pipeline_of(name)) as pipe:
        return pipe.serialize()


@settings(
    max_examples=10_000 if _IS_FULL else 150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(choices=st.data())
def test_no_text_writes_or_unpickles_anything(choices: st.DataObject, data: Path, elsewhere: Path) -> None:
    text, forbidden = choices.draw(texts(data, elsewhere))

    if forbidden:
        with pytest.raises(SerializationError):
            serialization.loads(text)
    assert acts_of(text) == []


@pytest.mark.parametrize("name", sorted({*CALLS, *READERS} - WITHOUT_TEXT))
def test_examples_run(name: str, data: Path) -> None:
    nodes, _ = base_of(name, data)

    with watched() as acts, closing(Pipeline.deserialize(document(*nodes), py_num_workers=0)) as pipe:
        pipe.run()
    assert acts == []


def test_the_canary_notices_unpickling_and_writing(tmp_path: Path) -> None:
    with watched() as acts:
        pickle.loads(pickle.dumps(Bomb(tmp_path / "x")))
        (tmp_path / "y").write_text("")
        (tmp_path / "y").read_text()

    assert [act.split()[0] for act in acts] == ["pickle.find_class"] * 2 + ["open"] * 2
