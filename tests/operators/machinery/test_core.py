"""Description and application of operators: inputs, arguments, layouts, and their errors."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import dali_like
from dali_like import Pipeline, fn, ops, types
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    DefinitionError,
    DeviceError,
    DtypeMismatchError,
    NdimMismatchError,
    SampleError,
    SampleTypeError,
)
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import description_of, descriptions
from dali_like.operators.machinery.reader_functions import arguments_of_all, own_reader_descriptions
from dali_like.operators.parameters import Floats, Ints, PerSample
from dali_like.types import DALIImageType
from tests.operators.running import WAYS, batches, pipeline, run
from tools.operator_pages import pages, parts_of
from tools.operator_pictures import EXAMPLES, name_of
from tools.reader_pages import pages as reader_pages

NUMBERS = [np.arange(6, dtype=np.int32).reshape(2, 3) + 10 * i for i in range(4)]
#: Samples of more than 16 KiB each.
LARGE = [np.full((70, 80, 3), i, np.uint8) + np.arange(80, dtype=np.uint8)[:, np.newaxis] for i in range(6)]
IMAGES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(4)]


def any_node(layout: str | None = None) -> Any:
    return fn.external_source(source=lambda info: np.zeros(1), batch=False, layout=layout)


def add(call: OperatorCall, data: Array, *, by: PerSample[float] = 1.0, times: PerSample[int] = 1) -> Array:
    """Add a number."""
    return data + np.asarray(by * times, data.dtype)


class TestArguments:
    def test_constants(self, operator):
        fn_add = operator()(add)

        ((results,),) = run(lambda data: fn_add(data, by=2, times=3), NUMBERS)

        np.testing.assert_array_equal(results, np.add(NUMBERS, 6))

    @pytest.mark.parametrize("way", WAYS)
    def test_nodes_have_a_value_for_each_sample(self, way, operator):
        fn_add = operator()(add)
        by = [np.float32(i) for i in range(4)]

        ((results,),) = run(lambda data, by: fn_add(data, by=by), NUMBERS, by, way=way)

        np.testing.assert_array_equal(results, [number + i for i, number in enumerate(NUMBERS)])

    def test_each_annotation_converts_its_arguments(self, operator):
        seen = []

        @operator()
        def taking(
            call: OperatorCall,
            data: Array,
            *,
            ints: Ints = (),
            floats: PerSample[Floats | None] = None,
            dtype: np.dtype[Any] | None = None,
            kind: DALIImageType = types.RGB,
            policy: Literal["error", "pad"] = "error",
            flag: bool = False,
            text: str = "",
        ) -> Array:
            seen.append((ints, floats, dtype, kind, policy, flag, text))
            return data

        run(
            lambda data: taking(
                data, ints=[1, 2], floats=3, dtype=types.FLOAT16, kind=2, policy="pad", flag=1, text="x", device=None
            ),
            NUMBERS[:1],
        )
        run(lambda data: taking(data, ints=np.array([1, 2]), floats=data, dtype="int8"), [np.array([1, 2])])

        assert set(seen) == {
            ((1, 2), (3.0,), np.dtype(np.float16), types.GRAY, "pad", True, "x"),
            ((1, 2), (1.0, 2.0), np.dtype(np.int8), types.RGB, "error", False, ""),
        }

    @pytest.mark.parametrize(
        ("arguments", "kind", "message"),
        [
            ({"horizontal": "a"}, ArgumentTypeError, "fn.flip: horizontal must be an integer, or a DataNode .* not 'a'"),
            ({"horizontal": 1.5}, ArgumentTypeError, "fn.flip: horizontal must be an integer, .* not 1.5"),
            ({"horizontal": [1, 0]}, ArgumentTypeError, r"horizontal must be an integer, .* not \[1, 0\]"),
            ({"sideways": 1}, ArgumentTypeError, "fn.flip got unexpected arguments: sideways. It has horizontal, vertical"),
            ({"device": "cuda"}, DeviceError, """fn.flip: device='cuda' is not a device .* pass "cpu" or "gpu"$"""),
            ({"device": "mixed"}, DeviceError, '"mixed" is for decoders'),
            ({"name": 3}, ArgumentTypeError, "fn.flip: name must be a string, not 3"),
        ],
    )
    def test_wrong_ones_are_refused_when_the_graph_is_made(self, arguments, kind, message):
        with pytest.raises(kind, match=message):
            fn.flip(any_node(), **arguments)

    def test_more_wrong_ones(self, operator):
        @operator()
        def picky(call: OperatorCall, data: Array, *, needed: int, policy: Literal["error", "pad"] = "error") -> Array:
            return data

        with pytest.raises(ArgumentTypeError, match=r"fn.picky needs the argument needed"):
            picky(any_node())
        with pytest.raises(ArgumentError, match=r"fn.picky: policy must be one of 'error', 'pad', not 'crop'"):
            picky(any_node(), needed=1, policy="crop")
        with pytest.raises(ArgumentTypeError, match=r"needed must be an integer, not a DataNode. It cannot differ"):
            picky(any_node(), needed=any_node())

    def test_arguments_that_do_not_go_together(self):
        with pytest.raises(ArgumentClashError, match=r"fn.random.uniform: range and values exclude each other"):
            fn.random.uniform(range=[0, 1], values=[1, 2])

    def test_a_node_of_something_else_is_refused_when_it_runs(self, operator):
        fn_add = operator()(add)

        with pytest.raises(SampleTypeError, match=r"the argument times must be an integer; this sample .* float32") as info:
            run(lambda data, times: fn_add(data, times=times), NUMBERS, [np.float32(1.5)] * 4)
        assert info.value.__notes__ == ["raised by fn.add for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)"]
        with pytest.raises(SampleTypeError, match=r"the argument times must be a single value; this .* shape \(2, 3\)"):
            run(lambda data: fn_add(data, times=data), NUMBERS)


class TestInputs:
    def test_optional_ones_and_constants(self, operator):
        @operator()
        def plus(call: OperatorCall, data: Array, other: Array | None = None) -> Array:
            return data if other is None else data + other

        ((without, with_constant),) = run(lambda data: [plus(data), plus(data, [10, 20, 30])], NUMBERS)

        np.testing.assert_array_equal(without, NUMBERS)
        np.testing.assert_array_equal(with_constant, np.add(NUMBERS, [10, 20, 30]))

    def test_any_number_of_them(self, operator):
        @operator()
        def total(call: OperatorCall, *inputs: Array) -> Array:
            return sum(inputs)

        ((results,),) = run(lambda a, b: total(a, b, a), NUMBERS, NUMBERS)

        np.testing.assert_array_equal(results, np.multiply(NUMBERS, 3))

    def test_lists_of_nodes_are_several_applications(self, operator):
        fn_add = operator()(add)

        ((one, other),) = run(lambda a, b: fn_add([a, b], by=5), NUMBERS, [-number for number in NUMBERS])

        np.testing.assert_array_equal(one, np.add(NUMBERS, 5))
        np.testing.assert_array_equal(other, 5 - np.array(NUMBERS))

    def test_several_outputs(self, operator):
        @operator(num_outputs=2)
        def halves(call: OperatorCall, data: Array) -> tuple[Array, Array]:
            return data[0], data[1]

        ((first, second),) = run(halves, NUMBERS)
        of_lists = halves([any_node(), any_node(), any_node()])

        np.testing.assert_array_equal(np.stack([first, second], axis=1), NUMBERS)
        assert [len(column) for column in of_lists] == [3, 3]

    def test_wrong_ones(self):
        with pytest.raises(DefinitionError, match=r"fn.flip: the input image must be a DataNode, a number, .* not a str"):
            fn.flip("image")
        with pytest.raises(ArgumentTypeError, match=r"fn.flip takes 1 inputs \(image\), not 2"):
            fn.flip(any_node(), any_node())
        with pytest.raises(ArgumentTypeError, match=r"fn.flip takes 1 inputs \(image\), not 0"):
            fn.flip()

    def test_preserved_without_being_used(self, operator):
        made = []

        @operator()
        def note(call: OperatorCall, data: Array) -> Array:
            made.append(call.info.idx_in_epoch)
            return data

        def define(data):
            note(data, preserve=True)
            return data

        run(define, NUMBERS)

        assert {0, 1, 2, 3} <= set(made)


class TestLayouts:
    def test_that_of_the_input_is_kept(self):
        ((batch, shape),) = batches(lambda data: [fn.flip(data), fn.flip(data).shape()], IMAGES, layouts=["HWC"])

        assert (batch.layout(), shape.layout()) == ("HWC", "")

    def test_without_one_it_is_the_first_of_as_many_letters(self):
        ((flat, moving),) = batches(lambda a, b: [fn.flip(a), fn.flip(b)], IMAGES, [image[None] for image in IMAGES])

        assert (flat.layout(), moving.layout()) == ("HWC", "FHWC")
        np.testing.assert_array_equal(moving.at(0), IMAGES[0][None, :, ::-1])

    def test_one_that_the_operator_does_not_know(self):
        with pytest.raises(ArgumentError, match=r"fn.flip: the input image has the layout 'WHC'; allowed are HWC, CHW"):
            fn.flip(any_node("WHC"))

    def test_no_layout_and_no_such_number_of_dimensions(self):
        with pytest.raises(SampleError, match=r"fn.flip: the input image has 2 dimensions and no layout; allowed are HWC"):
            run(fn.flip, NUMBERS)

    def test_of_the_result_may_depend_on_the_arguments(self, operator):
        @operator(output_layout=lambda layout, given: layout[: given["keep"]])
        def first_of(call: OperatorCall, data: Array, *, keep: int = 1) -> Array:
            return data[(0,) * (data.ndim - keep)] if keep < data.ndim else data

        ((two, one),) = batches(lambda data: [first_of(data, keep=2), first_of(data)], IMAGES, layouts=["HWC"])

        assert (two.layout(), one.layout()) == ("HW", "H")


class TestResults:
    @pytest.mark.parametrize("way", WAYS)
    def test_samples_of_different_shapes(self, way, operator):
        @operator()
        def first_rows(call: OperatorCall, data: Array, *, count: PerSample[int]) -> Array:
            return data[:count]

        counts = [np.int32(i % 3) for i in range(4)]
        (results,) = run(lambda data, count: first_rows(data, count=count), NUMBERS, counts, way=way)[0]

        for result, number, count in zip(results, NUMBERS, counts, strict=True):
            np.testing.assert_array_equal(result, number[:count], strict=True)

    @pytest.mark.parametrize("way", WAYS)
    def test_shapes_that_change_from_batch_to_batch(self, way, operator):
        @operator()
        def as_many(call: OperatorCall, data: Array) -> Array:
            i = call.info.iteration
            out = call.empty((i % 3 if i < 6 else call.info.idx_in_batch,), np.float32)
            out[...] = call.info.idx_in_epoch
            return out

        results = run(as_many, NUMBERS, way=way, iterations=8)

        for i, (samples,) in enumerate(results):
            for j, sample in enumerate(samples):
                np.testing.assert_array_equal(sample, np.full(i % 3 if i < 6 else j, 4 * i + j, np.float32), strict=True)

    def test_those_that_are_alike_are_one_array(self, operator):
        fn_add = operator()(add)

        results = batches(fn_add, NUMBERS, iterations=2)

        assert [batch.is_dense_tensor() for (batch,) in results] == [True, True]

    def test_memory_that_was_asked_for_is_the_batch(self, operator):
        places = []

        @operator()
        def into(call: OperatorCall, data: Array) -> Array:
            out = call.empty(data.shape, data.dtype)
            out[...] = data
            places.append(out.__array_interface__["data"][0])
            return out

        ((batch,),) = batches(into, NUMBERS)

        assert {batch.at(i).__array_interface__["data"][0] for i in range(4)} <= set(places)

    def test_inputs_are_not_shared_with_outputs(self, operator):
        @operator()
        def same(call: OperatorCall, data: Array) -> Array:
            return data

        ((source, result),) = batches(lambda data: [data, same(data)], NUMBERS)
        result.at(0)[...] = -1

        np.testing.assert_array_equal(source.at(0), NUMBERS[0])

    def test_several_dtypes_or_numbers_of_dimensions_in_a_batch(self, operator):
        @operator()
        def any_kind(call: OperatorCall, data: Array, *, dtype: PerSample[str] = "", ndim: int = 0) -> Array:
            i = call.info.idx_in_batch
            return np.zeros(2, np.int16 if i == 2 else np.int8) if not ndim else np.zeros((1,) * (1 + (i == 2)))

        with pytest.raises(DtypeMismatchError, match=r"fn.any_kind returned int8 for sample 0, and int16 for sample 2"):
            run(any_kind, NUMBERS)
        with pytest.raises(NdimMismatchError, match=r"fn.any_kind returned 1 dimensions for sample 0, and 2 for sample 2"):
            run(lambda data: any_kind(data, ndim=1), NUMBERS)

    def test_operators_on_batches(self, operator):
        @operator(per_sample=False)
        def reversed_batch(call: OperatorCall, data: list[Array], *, add: PerSample[int] = 0) -> list[Array]:
            return [array + add[0] for array in reversed(data)]

        fn_add = operator()(add)

        ((before, after),) = run(
            lambda data, by: [fn_add(data), fn_add(reversed_batch(fn_add(data), add=by), by=by)],
            NUMBERS,
            [np.int32(i) for i in range(4)],
        )

        np.testing.assert_array_equal(before, np.add(NUMBERS, 1))
        np.testing.assert_array_equal(after, [number + 1 + i for i, number in enumerate(NUMBERS[::-1])])


class TestFromOneDescription:
    def test_classes(self):
        flip = ops.Flip(horizontal=0)

        ((results,),) = run(lambda data, vertical: flip(data, vertical=vertical), IMAGES, [np.int32(1)] * 4)

        np.testing.assert_array_equal(results, np.array(IMAGES)[:, ::-1])
        assert not isinstance(ops.Erase(fill_value=None)(any_node(), fill_value=any_node()), list)  # None: not given
        with pytest.raises(ArgumentClashError, match=r"ops.Flip: horizontal already specified in constructor"):
            flip(any_node(), horizontal=1)
        with pytest.raises(ArgumentTypeError, match=r"ops.Flip got unexpected arguments: sideways"):
            ops.Flip(sideways=1)
        assert ops.decoders.Image.__doc__ == fn.decoders.image.__doc__

    def test_signatures(self):
        parameters = inspect.signature(fn.flip).parameters

        assert [*parameters][:4] == ["image", "horizontal", "vertical", "depthwise"]
        assert parameters["image"].kind is inspect.Parameter.POSITIONAL_ONLY
        assert parameters["horizontal"].default == 1

    def test_pages_are_those_of_the_descriptions(self):
        """If this fails, run ``python -m tools.operator_pages``."""
        folder = Path(dali_like.__file__).parents[1] / "docs" / "operators"

        for name, text in pages().items():
            assert (folder / name).read_text(encoding="utf-8") == text, name
        for name, text in reader_pages().items():  # if this fails, run ``python -m tools.reader_pages``
            assert (folder.parent / "readers" / name).read_text(encoding="utf-8") == text, name
        for path in EXAMPLES:  # if this fails, run ``python -m tools.operator_pictures``
            assert path in descriptions()
            assert (folder / "pictures" / name_of(path)).exists()

    @pytest.mark.parametrize("path", descriptions())
    def test_every_input_and_argument_is_documented(self, path):
        description = description_of(path)
        text = inspect.getdoc(description.function) or ""

        documented = [line.split(":")[0].strip() for line in text.partition("Args:")[2].splitlines() if ":" in line]
        names = {name.strip() for part in documented for name in part.split(",")}
        assert {*description.inputs, *description.parameters} - {"seed"} <= names

    @pytest.mark.parametrize("path", own_reader_descriptions())
    def test_every_argument_of_readers_is_documented(self, path):
        described = own_reader_descriptions()[path]
        for parameters, text in (
            (described.parameters, described.doc),
            (described.common, inspect.getdoc(arguments_of_all)),
        ):
            assert {*parameters} <= {name for names, _ in parts_of(text)[1] for name in names}

    def test_serialization(self):
        def define(image, turn):
            flipped = fn.flip(image, horizontal=turn, vertical=1)
            return flipped, fn.random.coin_flip(probability=0.25, seed=3)

        pipe = pipeline(define, IMAGES, [np.int32(1)] * 4, layouts=["HWC"])
        text = pipe.serialize()
        again = Pipeline.deserialize(text)
        try:
            described = json.loads(text)["nodes"][1]
            assert described["arguments"] == {"vertical": 1}
            assert described["argument_inputs"] == {"horizontal": [0, 1]}
            for name, data in zip(
                ("__ExternalSource_0_0", "__ExternalSource_0_1"), (IMAGES, [np.int32(1)] * 4), strict=True
            ):
                again.feed_input(name, data)
            for ours, theirs in zip(pipe.run(), again.run(), strict=True):
                np.testing.assert_array_equal(ours.as_array(), theirs.as_array())
        finally:
            pipe.close()
            again.close()


class TestInputsThatAreFed:
    def test_their_layout_is_heeded(self):
        pipe = Pipeline(batch_size=1)
        with pipe:
            pipe.set_outputs(fn.flip(fn.external_source(name="x")))
        try:
            image = np.arange(24, dtype=np.uint8).reshape(3, 2, 4)
            pipe.feed_input("x", [image], layout="CHW")
            (batch,) = pipe.run()

            assert batch.layout() == "CHW"
            np.testing.assert_array_equal(batch.at(0), image[:, :, ::-1])
        finally:
            pipe.close()

    def test_one_that_the_operator_does_not_know(self):
        pipe = Pipeline(batch_size=1)
        with pipe:
            pipe.set_outputs(fn.flip(fn.external_source(name="x")))
        try:
            pipe.feed_input("x", [np.zeros((2, 3), np.uint8)], layout="XY")
            with pytest.raises(ArgumentError, match=r"fn.flip: the input image has the layout 'XY'; allowed are HWC"):
                pipe.run()
        finally:
            pipe.close()


class TestMemoryBetweenOperators:
    """Memory of intermediate results is reused for the next sample of the same thread."""

    @pytest.mark.parametrize("way", WAYS)
    def test_samples_do_not_mix(self, way, operator):
        @operator()
        def sum_of(call: OperatorCall, one: Array, other: Array) -> Array:
            return np.asarray(one.astype(np.int64).sum() - other.astype(np.int64).sum())

        def define(image):
            back = fn.flip(image)
            window = fn.crop(fn.flip(back, vertical=1), crop=[50, 60])
            return [
                fn.flip(window),
                fn.resize(window, size=[50, 60], interp_type=types.INTERP_NN),
                sum_of(back, image),
                back,
            ]

        for mirrored, same, difference, back in run(define, LARGE, layouts=["HWC"], way=way, iterations=3):
            for i, image in enumerate(LARGE):
                window = image[::-1][10:60, 10:70]
                np.testing.assert_array_equal(mirrored[i], window[:, ::-1])
                np.testing.assert_array_equal(same[i], window)
                np.testing.assert_array_equal(back[i], image[:, ::-1])
                assert difference[i] == 0

    def test_is_used_again_and_a_second_request_gets_other_memory(self, operator):
        addresses = []

        @operator()
        def twice(call: OperatorCall, data: Array) -> Array:
            out, other = call.empty(data.shape, data.dtype), call.empty(data.shape, data.dtype)
            assert not np.may_share_memory(out, other)
            addresses.append(out.__array_interface__["data"][0])
            return np.add(data, data, out=out)

        ((results,),) = run(lambda image: fn.flip(twice(image)), LARGE, layouts=["HWC"], num_threads=1)

        assert len(set(addresses[:6])) == 1
        np.testing.assert_array_equal(results, np.multiply(LARGE, 2)[:, :, ::-1])

    def test_views_are_copied_for_operators_that_need_contiguous_data(self, operator):
        @operator()
        def is_whole(call: OperatorCall, data: Array) -> Array:
            return np.asarray(data.flags.c_contiguous)

        ((whole,),) = run(lambda image: is_whole(fn.crop(image, crop=[50, 60])), LARGE, layouts=["HWC"])

        assert all(whole)
