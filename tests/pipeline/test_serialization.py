"""Serialized pipelines: the loaded pipeline is the same, and wrong texts are refused."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dali_like import OperatorConcurrency, Pipeline, StreamPolicy, fn, types
from dali_like.errors import (
    ArgumentError,
    ArgumentTypeError,
    DaliLikeError,
    DefinitionError,
    DtypeMismatchError,
    NoOutputsError,
    PipelineStateError,
    SerializationError,
)
from dali_like.graph.language.nodes import DataNode
from dali_like.pipeline import serialization
from dali_like.pipeline.serialization import InputSpec
from dali_like.types import Constant


def number(value: int = 7, **options: Any) -> Any:
    """A source of one number."""
    return fn.external_source(source=lambda info: np.array(value), batch=False, **options)


def pipeline_of(*outputs: Any, **options: Any) -> Pipeline:
    pipe = Pipeline(**{"batch_size": 2, "num_threads": 1, **options})
    pipe.set_outputs(*outputs)
    return pipe


def text_of(*outputs: Any, **options: Any) -> bytes:
    return pipeline_of(*outputs, **options).serialize()


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> list[InputSpec]:
    """The inputs of loaded pipelines. They become sources that return their number."""
    specs: list[InputSpec] = []

    def make_input(spec: InputSpec) -> list[DataNode]:
        index = len(specs)
        specs.append(spec)
        nodes = fn.external_source(
            source=lambda info: [np.array(10 * index + i) for i in range(len(spec.layouts))],
            num_outputs=len(spec.layouts),
            batch=False,
        )
        return list(nodes)

    monkeypatch.setattr(serialization, "make_input", make_input)
    return specs


# There and back


def test_arguments_come_back() -> None:
    text = text_of(
        1,
        batch_size=3,
        num_threads=2,
        device_id=1,
        seed=2**70,
        prefetch_queue_depth={"cpu_size": 3, "gpu_size": 1},
        exec_pipelined=False,
        set_affinity=True,
        enable_memory_stats=True,
        stream_policy=StreamPolicy.PER_OPERATOR,
        concurrency=OperatorConcurrency.FULL,
        output_dtype=types.INT32,
        output_ndim=[0],
        output_layout="",
    )

    with closing(Pipeline.deserialize(text)) as pipe:
        assert (pipe.max_batch_size, pipe.num_threads, pipe.device_id, pipe.seed) == (3, 2, 1, 2**70)
        assert pipe.prefetch_queue_depth == {"cpu_size": 3, "gpu_size": 1}
        assert (pipe.exec_pipelined, pipe.set_affinity, pipe.enable_memory_stats) == (False, True, True)
        assert (pipe.stream_policy, pipe.concurrency) == (StreamPolicy.PER_OPERATOR, OperatorConcurrency.FULL)
        assert (pipe.output_dtype(), pipe.output_ndim()) == ([types.INT32], [0])


def test_arguments_about_workers_are_not_serialized() -> None:
    text = text_of(1, py_num_workers=50, py_start_method="spawn", max_held_bytes=12_345_678)

    assert b"py_" not in text
    assert b"max_held" not in text


@pytest.mark.parametrize(
    "constant",
    [
        Constant(3),
        Constant([True, False]),
        Constant([], layout="X"),
        Constant(np.arange(6, dtype=np.int16).reshape(2, 3), layout="HW"),
        Constant(2**40, types.INT64),
        Constant([0.1, float("inf"), float("nan")], types.FLOAT64),
        Constant(1.5, types.FLOAT16, shape=(1, 1)),
    ],
    ids=repr,
)
def test_constants_come_back(constant: Constant) -> None:
    with closing(Pipeline.deserialize(text_of(constant))) as pipe:
        (batch,) = pipe.run()

    np.testing.assert_array_equal(batch.at(1), constant.array, strict=True)
    assert batch.layout() == constant.layout


def test_operators_come_back() -> None:
    node = fn.decoders.image(number(name="files"), output_type=types.GRAY, adjust_orientation=True)

    document = json.loads(text_of(node, node.shape(dtype=types.INT16)))

    decoder, shape = document["nodes"][1:]
    assert decoder == {
        "kind": "operator",
        "name": "fn.decoders.image",
        "arguments": {"output_type": 2, "adjust_orientation": True},
        "inputs": [[0, 0]],
        "argument_inputs": {},
    }
    assert shape == {
        "kind": "operator",
        "name": "DataNode.shape",
        "arguments": {"dtype": "int16"},
        "inputs": [[1, 0]],
        "argument_inputs": {},
    }
    assert document["outputs"] == [[1, 0], [2, 0]]


def test_a_pipeline_of_operators_runs_again(inputs: list[InputSpec]) -> None:
    node = number()
    text = text_of(node.shape(), node, 5, node.property("layout"))

    with closing(Pipeline.deserialize(text)) as pipe:
        shape, value, constant, layout = pipe.run()

    assert shape.as_array().shape == (2, 0)
    assert value.as_array().tolist() == [0, 0]
    assert constant.as_array().tolist() == [5, 5]
    assert layout.at(0).size == 0
    assert len(inputs) == 1


def test_sources_become_inputs(inputs: list[InputSpec]) -> None:
    one = fn.external_source(
        source=lambda info: (np.zeros((2, 3), np.uint8), 1.5),
        num_outputs=2,
        batch=False,
        parallel=True,
        layout=["HW"],
        dtype=[types.UINT8],
        ndim=[2, 0],
    )
    text = text_of(one[1], number(), one[0])

    with closing(Pipeline.deserialize(text)) as pipe:
        batches = [batch.at(0).tolist() for batch in pipe.run()]

    assert inputs == [
        InputSpec("__ExternalSource_0", 2, ["HW", ""], ["UINT8", None], [2, 0], False),
        InputSpec("__ExternalSource_1", None, [""], [None], [None], False),
    ]
    assert batches == [1, 10, 0]


def test_sinks_come_back(inputs: list[InputSpec]) -> None:
    pipe = pipeline_of(1)
    pipe.add_sink(number().shape())

    with closing(Pipeline.deserialize(pipe.serialize())) as loaded:
        assert len(loaded.run()) == 1
        again = json.loads(loaded.serialize())

    assert len(inputs) == 1
    assert again["sinks"] == json.loads(pipe.serialize())["sinks"] == [[2, 0]]


def test_a_loaded_pipeline_can_be_serialised_again(inputs: list[InputSpec]) -> None:
    text = text_of(number().shape(), 3)

    with closing(Pipeline.deserialize(text)) as pipe:
        again = pipe.serialize()

    assert [node["kind"] for node in json.loads(again)["nodes"]] == ["source", "constant", "operator"]
    assert json.loads(again)["arguments"] == json.loads(text)["arguments"]


def test_sources_become_inputs_of_the_same_name() -> None:
    source = fn.external_source(source=lambda info: np.float32(1), batch=False, name="images", dtype=types.FLOAT, ndim=0)

    with closing(Pipeline.deserialize(text_of(source))) as pipe:
        assert pipe.run(images=[np.float32(3), np.float32(4)])[0].as_array().tolist() == [3, 4]
        with pytest.raises(DtypeMismatchError):
            pipe.feed_input("images", [np.float64(3)])


def test_source_of_several_outputs_becomes_as_many_inputs() -> None:
    outputs = fn.external_source(source=lambda info: (np.int32(1), "text"), num_outputs=2, dtype=[None, types.OBJECT])

    with closing(Pipeline.deserialize(text_of(*outputs))) as pipe:
        numbers, texts = pipe.run(__ExternalSource_0_0=[1, 2], __ExternalSource_0_1=["a", "b"])

    assert numbers.as_array().tolist() == [1, 2]
    assert texts == ["a", "b"]


# The methods


def test_text_may_be_bytes_or_a_string() -> None:
    text = text_of(4)

    for form in (text, text.decode(), bytearray(text)):
        with closing(Pipeline.deserialize(form)) as pipe:
            assert pipe.run()[0].as_array().tolist() == [4, 4]


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.json"
    text = pipeline_of(4).serialize(filename=path)

    assert path.read_bytes() == text
    for form in (path, str(path)):
        with closing(Pipeline.deserialize(filename=form)) as pipe:
            assert pipe.run()[0].as_array().tolist() == [4, 4]


def test_a_loaded_pipeline_has_been_built() -> None:
    with closing(Pipeline.deserialize(text_of(4))) as pipe:
        assert "not built" not in repr(pipe)


def test_serialising_starts_no_workers_and_changes_nothing() -> None:
    with closing(pipeline_of(number(parallel=True))) as pipe:
        text = pipe.serialize()
        assert "not built" in repr(pipe)
        assert pipe.run()[0].as_array().tolist() == [7, 7]
        assert pipe.serialize() == text


def test_arguments_of_deserialize_count() -> None:
    with closing(Pipeline.deserialize(text_of(4, seed=1), batch_size=3, seed=None, py_num_workers=2)) as pipe:
        assert len(pipe.run()[0]) == 3
        assert (pipe.seed, pipe.py_num_workers) == (1, 2)


def test_a_pipeline_becomes_another() -> None:
    pipe = Pipeline(batch_size=5, prefetch_queue_depth=1)
    pipe.deserialize_and_build(text_of(4, seed=3, num_threads=7, prefetch_queue_depth=4))

    with closing(pipe):
        assert len(pipe.run()[0]) == 5
        assert (pipe.seed, pipe.num_threads, pipe.prefetch_queue_depth) == (3, 7, 1)


def test_a_pipeline_that_has_been_built_does_not_become_another() -> None:
    with closing(pipeline_of(1)) as pipe:
        pipe.build()

        with pytest.raises(DefinitionError, match="must be called before build"):
            pipe.deserialize_and_build(text_of(2))
        assert pipe.run()[0].at(0) == 1


def test_a_batch_size_may_be_said_when_loading() -> None:
    text = text_of(4, batch_size=None)

    with pytest.raises(ArgumentError, match="batch size must be set"):
        Pipeline.deserialize(text)
    with closing(Pipeline.deserialize(text, batch_size=1)) as pipe:
        assert len(pipe.run()[0]) == 1


def test_classes_that_derive_from_pipeline_load_themselves() -> None:
    class Derived(Pipeline):
        pass

    with closing(Derived.deserialize(text_of(4))) as pipe:
        assert type(pipe) is Derived


def test_outputs_may_come_from_a_function() -> None:
    assert b'"outputs": [\n' in Pipeline(1).serialize(lambda: 5)
    assert len(json.loads(Pipeline(1).serialize(define_graph=lambda: (5, 6)))["outputs"]) == 2


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (Pipeline.deserialize, ArgumentError, "either a serialized_pipeline or a filename"),
        (lambda: Pipeline.deserialize(b"", filename="x"), ArgumentError, "either"),
        (lambda: Pipeline.deserialize(3), ArgumentTypeError, "bytes or a string, not 3"),
        (lambda: Pipeline.deserialize(text_of(1), colour=3), DefinitionError, "does not have: colour"),
        (lambda: Pipeline.deserialize(text_of(1), batch_size="x"), ArgumentTypeError, "batch_size"),
        (lambda: Pipeline.deserialize(filename="/nonexistent"), FileNotFoundError, "nonexistent"),
        (lambda: pipeline_of(1).serialize("file"), ArgumentTypeError, r"serialize\(filename=\.\.\.\)"),
        (lambda: pipeline_of(1).serialize(lambda: 2), PipelineStateError, "Duplicate graph definition"),
        (lambda: Pipeline(1).serialize(), NoOutputsError, "no outputs"),
    ],
)
def test_wrong_calls(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# Texts that are not believed


@pytest.mark.parametrize(
    "text",
    [b"", b"abc", b"\x80\x04.", "null", "[]", "{}", '{"format": "another"}', b"\xff\xfe", "[" * 100_000, "1" * 10_000],
)
def test_a_text_that_is_not_a_pipeline_is_refused(text: str | bytes) -> None:
    with pytest.raises(SerializationError, match="this is not a serialized pipeline") as caught:
        Pipeline.deserialize(text)

    assert isinstance(caught.value, RuntimeError)


def valid() -> dict[str, Any]:
    """A document of each kind of node."""
    one = fn.external_source(source=lambda info: (1, 2), num_outputs=2, batch=False, layout=["", ""], dtype=[types.INT64])
    pipe = pipeline_of(one[0], one[1].shape(), [True, False], output_dtype=[types.INT64, None, None])
    pipe.add_sink(fn.decoders.image(one[1]))
    document: dict[str, Any] = json.loads(pipe.serialize())
    return document


SOURCE, CONSTANT, SHAPE, DECODER = range(4)


def changed(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    """Changes one value of a document."""

    def change(document: dict[str, Any]) -> None:
        part: Any = document
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed("version", to=2), "has version 2 of the format; this version"),
        (changed("version", to=None), "version None"),
        (changed("nodes", to={}), "the document: nodes should be a list"),
        (changed("nodes", 0, to=[]), "node 0 should be an object"),
        (changed("nodes", 0, "kind", to="pickle"), "kind should be one of source, reader, .*, not 'pickle'"),
        (changed("nodes", 0, "kind", to=None), "node 0: kind should be a string"),
        (changed("arguments", to=[]), "arguments should be an object"),
        (changed("arguments", "py_num_workers", to=3), "unknown entries py_num_workers"),
        (changed("arguments", "__class__", to=3), "unknown entries __class__"),
        (changed("arguments", "stream_policy", to="mro"), "stream_policy should be one of SINGLE, PER_BACKEND"),
        (changed("arguments", "output_dtype", to=["FLOAT", 3]), "output_dtype should be one of UINT8"),
        (changed("arguments", "output_dtype", to="__init__"), "output_dtype should be one of UINT8"),
        (changed("outputs", to=None), "outputs should be a list"),
        (changed("outputs", to=[0, 0]), "outputs should be a list, not 0"),
        (changed("outputs", to=[[0, 0, 0]]), r"outputs: \[0, 0, 0\] should be the numbers of an earlier node"),
        (changed("outputs", to=[[0, 0, "cpu", 0]]), r"\[0, 0, 'cpu', 0\] should be the numbers of an earlier node"),
        (changed("outputs", to=[[9, 0]]), r"\[9, 0\] should be the numbers"),
        (changed("outputs", to=[[0, 2]]), r"\[0, 2\] should be the numbers"),
        (changed("outputs", to=[[-1, 0]]), "should be an integer from 0 on, not -1"),
        (changed("outputs", to=[[0, True]]), "should be an integer from 0 on, not True"),
        (changed("outputs", to=[["0", 0]]), "should be an integer from 0 on, not '0'"),
        (changed("sinks", to=[[0]]), r"sinks: \[0\] should be the numbers"),
        (changed("nodes", SOURCE, "name", to=3), "node 0: name should be a string"),
        (changed("nodes", SOURCE, "num_outputs", to=3), "an entry for each output"),
        (changed("nodes", SOURCE, "num_outputs", to=-1), "num_outputs should be an integer from 0 on"),
        (changed("nodes", SOURCE, "layouts", to=["", None]), "layouts should be a string, not None"),
        (changed("nodes", SOURCE, "dtypes", to=["INT64", "void"]), "dtypes should be one of UINT8"),
        (changed("nodes", SOURCE, "ndims", to=[1.5, None]), "ndims should be an integer"),
        (changed("nodes", SOURCE, "batch", to=1), "batch should be true or false, not 1"),
        (changed("nodes", CONSTANT, "dtype", to="OBJECT"), "node 1 is not a valid constant"),
        (changed("nodes", CONSTANT, "shape", to=[3]), "node 1 is not a valid constant: cannot reshape"),
        (changed("nodes", CONSTANT, "shape", to=[2**70]), "node 1 is not a valid constant"),
        (changed("nodes", CONSTANT, "shape", to=[1] * 100 + [2]), "node 1 is not a valid constant"),
        (changed("nodes", CONSTANT, "shape", to=[-1]), "shape should be an integer from 0 on"),
        (changed("nodes", CONSTANT, "layout", to="HW"), "'HW' cannot describe 1-dimensional data"),
        (changed("nodes", CONSTANT, "data", to="!!!!"), "node 1 is not a valid constant"),
        (changed("nodes", CONSTANT, "data", to="!AQA="), "node 1 is not a valid constant"),
        (changed("nodes", CONSTANT, "data", to=[1, 0]), "data should be a string"),
        (
            changed("nodes", SHAPE, "inputs", to=[[2, 0]]),
            r"node 2: inputs: \[2, 0\] should be the numbers of an earlier node",
        ),
        (changed("nodes", SHAPE, "inputs", to=[]), "refuses its arguments"),
        (changed("nodes", SHAPE, "arguments", to={"dtype": "object"}), "refuses its arguments"),
        (changed("nodes", SHAPE, "arguments", to={"device": "tpu"}), "refuses its arguments"),
        (changed("nodes", SHAPE, "arguments", to=[]), "arguments should be an object"),
        (changed("nodes", DECODER, "arguments", to={"quality": 1}), "refuses its arguments"),
        (changed("nodes", DECODER, "arguments", to={"output_type": 99}), "refuses its arguments"),
    ],
)
def test_documents_that_do_not_hang_together(
    change: Callable[[dict[str, Any]], None], words: str, inputs: list[InputSpec]
) -> None:
    document = valid()
    change(document)

    with pytest.raises(SerializationError, match=words):
        Pipeline.deserialize(json.dumps(document))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "os.system",
            "fn.os.system",
            "fn",
            "",
            "fn.",
            "fn.external_source",
            "fn.decoders",
            "fn.__class__",
            "fn.decoders._image",
        ),
        *(
            "fn.decoders.image.__call__",
            "fn.decoders.image.__globals__",
            "DataNode.gpu",
            "DataNode",
            "builtins.eval",
            "eval",
            "math",
            "math.system",
        ),
    ],
)
def test_only_operators_are_looked_up(name: str, inputs: list[InputSpec]) -> None:
    document = valid()
    document["nodes"][DECODER]["name"] = name

    with pytest.raises(SerializationError, match="there is no operator"):
        Pipeline.deserialize(json.dumps(document))


@pytest.mark.parametrize("key", ["arguments", "nodes", "outputs", "sinks"])
def test_a_missing_key_of_the_document_is_named(key: str, inputs: list[InputSpec]) -> None:
    document = valid()
    del document[key]

    with pytest.raises(SerializationError, match=f"the document has no '{key}'"):
        Pipeline.deserialize(json.dumps(document))


@pytest.mark.parametrize("node", range(4))
def test_a_missing_key_of_a_node_is_named(node: int, inputs: list[InputSpec]) -> None:
    for key in valid()["nodes"][node]:
        document = valid()
        del document["nodes"][node][key]
        if key == "num_outputs":
            continue  # None, then

        with pytest.raises(SerializationError, match=f"node {node} has no '{key}'"):
            Pipeline.deserialize(json.dumps(document))


def test_a_boolean_constant_with_another_byte_than_1_is_true(inputs: list[InputSpec]) -> None:
    document = valid()
    document["nodes"][CONSTANT]["data"] = base64.b64encode(b"\x00\x07").decode()
    document["outputs"] = [[CONSTANT, 0]]
    document["sinks"] = []
    document["arguments"]["output_dtype"] = None

    with closing(Pipeline.deserialize(json.dumps(document))) as pipe:
        assert pipe.run()[0].at(0).view(np.uint8).tolist() == [0, 1]


def test_arguments_are_checked_like_those_of_a_program(inputs: list[InputSpec]) -> None:
    for name, value in {"batch_size": "4", "seed": 1.5, "prefetch_queue_depth": 0, "exec_pipelined": None}.items():
        document = valid()
        document["arguments"][name] = value

        with pytest.raises(ArgumentError, match=name):
            Pipeline.deserialize(json.dumps(document))


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values of a document."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield (*path, key)
        yield from places(value, (*path, key))


VALID = valid()
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=8),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=8), parts, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(list(places(VALID))), junk=JUNK)
def test_junk_is_refused_in_an_orderly_way(place: tuple[Any, ...], junk: Any, inputs: list[InputSpec]) -> None:
    """A document is loaded, or refused by an error of this package; building a large one is another matter."""
    document = copy.deepcopy(VALID)
    changed(*place, to=junk)(document)

    with contextlib.suppress(DaliLikeError):
        serialization.loads(json.dumps(document))
