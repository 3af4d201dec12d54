"""Programs over stacks give the bits of the same programs over single samples: random chains of operators.

`PARITY=full` tests 20,000 programs instead of 150.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pytest

from dali_like import Pipeline, fn, math, pipeline_def, types
from dali_like.engine.memory.protocol import DESCRIPTOR_WORDS, DTYPE_CODES, SAMPLE_ALIGNMENT, align
from dali_like.engine.memory.ring import SampleList
from dali_like.errors import DaliLikeError
from dali_like.graph.execution.batch_runs import BatchId, run_program
from dali_like.graph.execution.buffers import BatchMemory, BufferPool, PreviousSamples, PrivateSpace
from dali_like.graph.execution.placement import sample_program
from dali_like.graph.execution.program import Program, operator_program, repeated
from dali_like.graph.language.branches import condition, in_branch, merge
from dali_like.graph.language.nodes import DataNode, make_graph
from dali_like.pipeline import do_not_convert
from dali_like.types import SampleInfo
from tests.compiled import kernels_from, library, sample_by_sample

NUM_PROGRAMS = 20_000 if os.environ.get("PARITY") == "full" else 150
NUM_PARTS = 10
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bool")
TYPES = (types.UINT8, types.INT16, types.INT64, types.FLOAT16, types.FLOAT, types.FLOAT64, types.BOOL)
UNARY = ("sqrt", "rsqrt", "cbrt", "exp", "log", "log2", "log10", "abs", "fabs", "floor", "ceil", "sin", "cos", "tan")
UNARY_OF_SMALL = ("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
#: Of the operators that refuse the first sample.
SHARE_OF_ERRORS = 0.02
SIZES = (0, 1, 2, 3, 5, 17, 28)


class Chain:
    """Adds random operators to data. An operator that refuses a sample must refuse the same sample in a stack."""

    def __init__(self, draw: random.Random, layout: str) -> None:
        self.draw = draw
        self.layout = layout

    @do_not_convert
    def extend(self, data: list[DataNode], length: int, works: Callable[[DataNode], bool]) -> list[DataNode]:
        """Add operators. Few of them refuse the samples."""
        while length:
            one, other = self.draw.choice(data), self.draw.choice(data)
            try:
                made = self.draw.choice((*self.steps, Chain.branches))(self, one, other)
            except DaliLikeError:  # an argument does not suit the layout
                continue
            if works(made) or self.draw.random() < SHARE_OF_ERRORS:
                data = [*data, made]
                length -= 1
        return data

    def arithmetic(self, one: DataNode, other: DataNode) -> DataNode:
        constant: Any = self.draw.choice([2, 0.5, -3, True, 255, types.Constant([1, 2, 3]), types.Constant(7, types.UINT8)])
        operand: Any = self.draw.choice([other, constant])
        compute: Callable[[Any, Any], Any] = self.draw.choice(
            [
                lambda a, b: a + b,
                lambda a, b: b - a,
                lambda a, b: a * b,
                lambda a, b: a / b,
                lambda a, b: a // b,
                lambda a, b: a > b,
                lambda a, b: a == b,
                lambda a, b: -a,
                lambda a, b: a & b,
                math.min,
                math.max,
                math.pow,
                lambda a, b: math.clamp(a, b, 9),
                math.atan2,
                lambda a, b: getattr(math, self.draw.choice(UNARY))(a),
                lambda a, b: getattr(math, self.draw.choice(UNARY_OF_SMALL))(a),
            ]
        )
        made: DataNode = compute(one, operand)
        return made

    def conversion(self, one: DataNode, other: DataNode) -> DataNode:
        dtype = self.draw.choice(TYPES)
        choices: list[Callable[[], DataNode]] = [
            lambda: fn.cast(one, dtype=dtype),
            lambda: fn.cast_like(one, other),
            lambda: fn.copy(one),
            lambda: fn.shapes(one),
            one.shape,
            lambda: fn.lookup_table(one, keys=[1, 3, 250], values=[0.5, 9, -1], dtype=dtype),
            lambda: fn.one_hot(one, num_classes=4, axis=self.draw.choice([None, -1, 0, 1]), dtype=dtype),
            lambda: fn.zeros_like(one),
        ]
        return self.draw.choice(choices)()

    def shape(self, one: DataNode, other: DataNode) -> DataNode:
        axis = self.draw.randint(-3, 3)
        choices: list[Callable[[], DataNode]] = [
            lambda: fn.stack(one, other, axis=axis),
            lambda: fn.cat(one, other, one, axis=axis),
            lambda: fn.reshape(one, shape=self.draw.choice([[-1], [], [1, -1]])),
            lambda: fn.reshape(one, rel_shape=[0.5, -1]),
            lambda: fn.reshape(one, src_dims=[1, -1, 0]),
            lambda: fn.transpose(one, perm=self.draw.choice([None, [1, 0], [2, 0, 1]])),
            lambda: fn.expand_dims(one, axes=[self.draw.randint(0, 2)]),
            lambda: fn.squeeze(one, axes=[self.draw.randint(0, 2)]),
            lambda: one[0],
            lambda: one[..., ::2],
            lambda: one[-1:, 0],
            lambda: fn.slice(one, start=[1], end=[3], axes=[0], out_of_bounds_policy="pad", fill_values=[7]),
            lambda: fn.slice(one, rel_start=[0.2], rel_shape=[0.5], axes=[0]),
            lambda: fn.pad(one, shape=[30], axes=[0], fill_value=3),
        ]
        return self.draw.choice(choices)()

    def reduction(self, one: DataNode, other: DataNode) -> DataNode:
        name = self.draw.choice(["sum", "mean", "mean_square", "rms", "min", "max"])
        axes: Any = self.draw.choice([{}, {"axes": [0]}, {"axes": [-1]}, {"axes": [0, 1]}, {"axes": [1], "keep_dims": True}])
        reduce = getattr(fn.reductions, name)
        if self.draw.random() < 0.2:
            return fn.reductions.std_dev(one, fn.reductions.mean(one, **axes), ddof=1, **axes)
        made: DataNode = reduce(one, **axes)
        return made

    def image(self, one: DataNode, other: DataNode) -> DataNode:
        window: Any = {"crop": [self.draw.randint(0, 6), self.draw.randint(0, 6)], "crop_pos_x": self.draw.random()}
        policy = self.draw.choice(["error", "pad", "trim_to_shape"])
        dtype = self.draw.choice([types.FLOAT, types.FLOAT16, types.UINT8])
        choices: list[Callable[[], DataNode]] = [
            lambda: fn.flip(one, horizontal=self.draw.randint(0, 1), vertical=self.draw.randint(0, 1)),
            lambda: fn.crop(one, out_of_bounds_policy=policy, fill_values=[3], **window),
            lambda: fn.crop_mirror_normalize(
                one,
                mean=[9.5],
                std=[3.5],
                mirror=self.draw.choice([0, 1, fn.random.coin_flip()]),
                dtype=dtype,
                output_layout=self.draw.choice(["", "CHW", "HWC"]),
                pad_output=self.draw.random() < 0.3,
                out_of_bounds_policy=policy,
                **(window if self.draw.random() < 0.5 else {}),
            ),
            lambda: fn.normalize(one, axes=self.draw.choice([[0], [0, 1], [1], [0, 1, 2]]), ddof=self.draw.randint(0, 1)),
            lambda: fn.normalize(one, dtype=dtype, mean=3.5),
        ]
        return self.draw.choice(choices)()

    def picture(self, one: DataNode, other: DataNode) -> DataNode:
        dtype = self.draw.choice([types.UINT8, types.FLOAT])
        noise = fn.random.uniform(range=[0, 250], shape=[self.draw.choice([6, 9]), 7, self.draw.choice([1, 3, 3])])
        x = fn.cast(self.draw.choice([one, noise, noise]), dtype=dtype)
        pixels = fn.cast(x, dtype=types.UINT8)
        some = {"interp_type": self.draw.choice([types.INTERP_NN, types.INTERP_LINEAR]), "fill_value": 7.0}
        angle = self.draw.choice([0.0, 0.3])
        choices: list[Callable[[], DataNode]] = [
            lambda: fn.brightness_contrast(x, brightness=1.3, contrast=0.7, brightness_shift=0.1),
            lambda: fn.hsv(x, hue=40.0, saturation=1.3, dtype=dtype),
            lambda: fn.color_twist(x, contrast=1.2, brightness=0.8),
            lambda: fn.color_space_conversion(
                pixels,
                image_type=self.draw.choice([types.RGB, types.GRAY]),
                output_type=self.draw.choice([types.BGR, types.YCbCr]),
            ),
            lambda: fn.experimental.equalize(pixels),
            lambda: fn.gaussian_blur(x, sigma=0.8),
            lambda: fn.experimental.median_blur(x, window_size=[3, 3]),
            lambda: fn.experimental.dilate(x),
            lambda: fn.experimental.erode(x, mask_size=[1, 3]),
            lambda: fn.jpeg_compression_distortion(pixels),
            lambda: fn.grid_mask(x, tile=4, angle=angle),
            lambda: fn.erase(x, anchor=[1, 0], shape=[2, 2], axes=[0, 1], fill_value=[5]),
            lambda: fn.erase(x, anchor=[1] * 2, shape=[2] * 2, fill_value=[5, 6, 7]),
            lambda: fn.rotate(x, angle=30.0, **some),
            lambda: fn.warp_affine(x, matrix=[1, 0.2, 0.5, 0, 1, -1], **some),
            lambda: fn.sphere(x, **some),
            lambda: fn.water(x, ampl_x=2.0, freq_y=0.4, **some),
            lambda: fn.resize(x, size=[self.draw.choice([3, -9]), 5], antialias=self.draw.random() < 0.5),
            lambda: fn.resize(x, resize_shorter=7, interp_type=types.INTERP_CUBIC, save_attrs=True)[self.draw.randint(0, 1)],
            lambda: fn.resize_crop_mirror(x, resize_shorter=9, crop=[5, 4], mirror=self.draw.randint(0, 3)),
            lambda: fn.element_extract(x, element_map=[1]),
            lambda: fn.sequence_rearrange(x, new_order=[1, 0, 1]),
            lambda: fn.full(other, shape=[2, *[3] * self.draw.randint(0, 2)]),
            lambda: fn.full_like(one, other),
            lambda: fn.zeros(shape=[2, 3]) + one[0],
        ]
        return self.draw.choice(choices)()

    def points(self, one: DataNode, other: DataNode) -> DataNode:
        choices: list[Callable[[], DataNode]] = [
            lambda: fn.bb_flip(one, vertical=1, ltrb=self.draw.random() < 0.5),
            lambda: fn.coord_transform(one, M=2.5, T=1.5),
            lambda: fn.coord_transform(one, MT=[0.5]),
            lambda: fn.coord_flip(one, flip_y=1),
            lambda: fn.random.uniform(one, range=[2, 3]),
            lambda: fn.random.coin_flip(shape=[2]),
            lambda: one * fn.random.normal(),
        ]
        return self.draw.choice(choices)()

    def matrices(self, one: DataNode, other: DataNode) -> DataNode:
        frames = self.draw.choice([[], [2]])
        numbers = [fn.reshape(fn.cast(each, dtype=types.FLOAT), shape=[-1]) for each in (one, other)]
        matrix, alone = (
            fn.reshape(
                fn.slice(data, start=[0], end=[6 * size], axes=[0], out_of_bounds_policy="pad", fill_values=[0.5]),
                shape=[size, 2, 3] if size > 1 else [2, 3],
            )
            for data, size in zip(numbers, ([*frames, 1][0], 1), strict=True)
        )
        center: Any = self.draw.choice([{}, {"center": [3.5, -1]}])
        order = self.draw.random() < 0.5
        inputs = self.draw.choice([[], [matrix]])
        choices: list[Callable[[], DataNode]] = [
            lambda: fn.transforms.translation(*inputs, offset=[1.5, 20], reverse_order=order),
            lambda: (
                fn.transforms.scale(*inputs, scale=self.draw.choice([[2, 0.3], [1.7]]), reverse_order=order, **center)
                if inputs
                else fn.transforms.scale(scale=[2, 0.3])
            ),
            lambda: fn.transforms.rotation(*inputs, angle=33.0, reverse_order=order, **center),
            lambda: fn.transforms.shear(*inputs, angles=[10, 0.3], reverse_order=order, **center),
            lambda: fn.transforms.crop(*inputs, from_start=[1, 2], from_end=[4, 5], to_end=[0.3], reverse_order=order),
            lambda: fn.transforms.combine(matrix, alone, alone, reverse_order=order),
        ]
        return self.draw.choice(choices)()

    def sound(self, one: DataNode, other: DataNode) -> DataNode:
        signal = fn.reshape(fn.cast(one, dtype=types.FLOAT), shape=[-1])
        spectrum = fn.spectrogram(
            signal,
            nfft=self.draw.choice([None, 16]),
            window_length=self.draw.choice([4, 10]),
            window_step=self.draw.choice([1, 3]),
            power=self.draw.choice([1, 2]),
            center_windows=self.draw.random() < 0.7,
            layout=self.draw.choice(["ft", "tf"]),
        )
        choices: list[Callable[[], Any]] = [
            lambda: spectrum,
            lambda: fn.power_spectrum(signal, nfft=self.draw.choice([None, 8])),
            lambda: fn.mel_filter_bank(spectrum, nfilter=self.draw.choice([1, 3, 20]), normalize=self.draw.random() < 0.5),
            lambda: fn.mfcc(spectrum, axis=self.draw.randint(0, 1), n_mfcc=3, dct_type=self.draw.choice([2, 3])),
            lambda: fn.to_decibels(spectrum, reference=self.draw.choice([0.0, 2.0])),
            lambda: fn.to_decibels(signal),
            lambda: fn.preemphasis_filter(
                fn.reshape(one, shape=[-1]),
                border=self.draw.choice(["zero", "clamp", "reflect"]),
                dtype=self.draw.choice([types.FLOAT, types.INT16]),
            ),
            lambda: fn.nonsilent_region(fn.reshape(one, shape=[-1]), window_length=2, cutoff_db=-3.0)[
                self.draw.randint(0, 1)
            ],
        ]
        made: DataNode = self.draw.choice(choices)()
        return made

    def branches(self, one: DataNode, other: DataNode) -> DataNode:
        """Add operators for some samples, by data of the samples, or by chance."""
        decides = self.draw.choice([lambda: fn.reductions.max(other), fn.random.coin_flip])
        decision = condition(decides() > self.draw.choice([0, 20, 300]), expression="if", where="test")
        sides = [in_branch(decision, taken, lambda: self._in_branch(one, other)) for taken in (True, False)]
        return merge(decision, *sides, variable="test")

    def _in_branch(self, one: DataNode, other: DataNode) -> DataNode:
        return self.draw.choice((*self.steps, Chain.branches))(self, one, other) if self.draw.random() < 0.7 else one

    steps = (arithmetic, arithmetic, conversion, shape, shape, reduction, image, picture, picture, points, matrices, sound)


def make_program(draw: random.Random) -> tuple[Program, list[np.ndarray]]:
    """Return a random program that computes stacks, and an array for each of its inputs."""
    layout = draw.choice(["", "", "HWC", "CHW"])
    shape = [draw.choice(SIZES) for _ in range(len(layout) or draw.randint(0, 3))]
    numbers = np.random.default_rng(draw.getrandbits(32))

    def array() -> np.ndarray:
        kept = shape if draw.random() < 0.8 else shape[-1:]
        return (numbers.standard_normal([8, *kept]) * draw.choice([1, 100])).astype(draw.choice(DTYPES))

    arrays = [array(), array()]
    with Pipeline(1) as pipe:
        inputs = [
            fn.external_source(name=f"input {i}", layout=layout if data.ndim == len(layout) + 1 else None)
            for i, data in enumerate(arrays)
        ]
        entropy = draw.getrandbits(16)

        def of_outputs(outputs: list[DataNode]) -> tuple[Program, list[np.ndarray]]:
            program, names = sample_program(make_graph(outputs), entropy)
            return program, [arrays[int(name.split()[1])] for name in names]

        def works(made: DataNode) -> bool:
            program, inputs = of_outputs([made])
            result = outcome(program.run, [data[0, ...] for data in inputs], SampleInfo(0, 0, 0, 0))
            return not isinstance(result, Exception)

        made = Chain(draw, layout).extend(inputs, draw.randint(1, 5), works)
    pipe.close()
    return of_outputs(made[2:])


def outcome(compute: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the arrays that a function returns, or the exception that it raises."""
    try:
        return [np.asarray(array).copy() for array in compute(*args, **options)]
    except Exception as error:
        return error


def bits_of(array: Any) -> bytes:
    """Return the bytes of an array. The sign of NaN is that of either operand: NumPy's vector instructions differ in it."""
    array = np.asarray(array)
    return (
        np.where(np.isnan(array), np.nan, array).astype(array.dtype).tobytes()
        if array.dtype.kind == "f"
        else array.tobytes()
    )


@pytest.mark.parametrize("part", range(NUM_PARTS))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_stacks_give_the_bits_of_their_samples(part: int) -> None:
    num_stacks = num_branches = num_refused = 0
    for seed in range(part, NUM_PROGRAMS, NUM_PARTS):
        program, inputs = make_program(random.Random(seed))
        num_stacks += program.stacks
        if not program.stacks:
            continue
        inputs = [data[seed % 3 :] for data in inputs]
        infos = [SampleInfo(10 + 2 * i, i, 0, 1) for i in range(8 - seed % 3)]

        alone = [outcome(program.run, [data[i, ...] for data in inputs], info) for i, info in enumerate(infos)]
        stack = outcome(program.run_stack, inputs, infos[0], count=len(infos), stride=2)

        if any(isinstance(made, Exception) for made in alone):
            assert isinstance(stack, Exception), f"program {seed}: only single samples raise {alone}"
            continue
        num_branches += bool(program.producers)
        if program.producers and isinstance(stack, Exception):  # such as branches with results of different shapes
            num_refused += 1
            continue
        assert not isinstance(stack, Exception), f"program {seed}: only the stack raises {stack!r}"
        for output, results in enumerate(stack):
            for sample, result in zip(alone, results, strict=True):
                expected = sample[output]
                assert (result.dtype, result.shape) == (expected.dtype, expected.shape), f"program {seed}"
                assert bits_of(result) == bits_of(expected), f"program {seed}, output {output}"
    assert num_stacks > NUM_PROGRAMS // NUM_PARTS // 3
    assert num_refused < 2 + num_branches * 2 // 3


@pytest.mark.parametrize("part", range(NUM_PARTS))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operators_applied_one_by_one_to_batches_give_the_bits_of_their_program(part: int) -> None:
    """As dynamic mode and debug mode apply them, to batches of alike samples and to lists of samples of two shapes."""
    buffers, num_compared = BufferPool(PrivateSpace()), 0
    for seed in range(part, NUM_PROGRAMS // 3, NUM_PARTS):
        program, inputs = make_program(random.Random(seed))
        if program.producers or any(step.random_key is not None or not step.operator.per_sample for step in program.steps):
            continue
        columns: list[Any] = [
            data if seed % 2 else [data[i, ..., : 1 + i % 2] if data.ndim > 1 else data[i, ...] for i in range(len(data))]
            for data in inputs
        ]
        infos = [SampleInfo(i, i, 0, 0) for i in range(8)]
        alone = [outcome(program.run, [column[i] for column in map(list, columns)], info) for i, info in enumerate(infos)]
        if any(isinstance(made, Exception) for made in alone):
            continue
        if any(len({(made[k].dtype, made[k].ndim) for made in alone}) > 1 for k in range(len(program.exports))):
            continue  # such as scalars beside arrays, which no batch may hold

        registers: list[Any] = [*columns, *[repeated(array, 8) for array in program.constants]]
        for step in program.steps:
            single = operator_program(step.operator, step.layouts, dict.fromkeys(step.arguments, ""))
            results = [BatchMemory(buffers, 8, PreviousSamples()) for _ in single.exports]
            operands = [registers[i] for i in (*step.inputs, *step.arguments.values())]
            run_program(single, operands, 8, BatchId(0, 0, 0), results)
            registers += [result.finish("test") for result in results]

        num_compared += 1
        for k, register in enumerate(program.exports):
            for expected, made in zip(alone, map(np.asarray, registers[register]), strict=True):
                assert (made.dtype, made.shape) == (expected[k].dtype, expected[k].shape), f"program {seed}"
                assert made.tobytes() == expected[k].tobytes(), f"program {seed}, output {k}"
    assert num_compared > NUM_PROGRAMS // NUM_PARTS // 20


def elementwise_program(draw: random.Random, sample: np.ndarray) -> Program:
    """Return a random program of elementwise and rowwise operators on samples like the given one."""
    with Pipeline(1) as pipe:
        data = fn.external_source(name="input", layout="HWC")

        def of_output(made: DataNode) -> Program:
            return sample_program(make_graph([made]), 0)[0]

        def works(made: DataNode) -> bool:
            program = of_output(made)
            return bool(program.packs or program.rows)

        chain = Chain(draw, "HWC")
        chain.steps = (Chain.arithmetic, Chain.conversion, *(Chain.picture, Chain.points) * 2)
        wants_rows = sample.ndim > 1 and sample.shape[-1] in (3, 4) and draw.random() < 0.4
        while True:
            *_, made = chain.extend([data], draw.randint(1, 4), works)
            if made is data or not works(made):
                continue
            program = of_output(made)
            if wants_rows and not program.rows:
                continue
            if not isinstance(outcome(program.run, [sample], SampleInfo(0, 0, 0, 0)), Exception):
                break
    pipe.close()
    return program


def spread(arrays: list[np.ndarray], gap: int) -> SampleList:
    """Return samples in one piece of memory, with garbage between them."""
    begins = [0, *itertools.accumulate(align(array.nbytes + gap, SAMPLE_ALIGNMENT) for array in arrays)]
    memory = np.random.default_rng(0).integers(0, 256, begins[-1] + 1, np.uint8)
    table = np.zeros((len(arrays), DESCRIPTOR_WORDS), np.int64)
    for begin, words, array in zip(begins, table, arrays, strict=False):
        memory[begin : begin + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        words[: 4 + array.ndim] = begin, array.nbytes, DTYPE_CODES[array.dtype], array.ndim, *array.shape
    return SampleList(memory, memory.__array_interface__["data"][0], table)


@pytest.mark.parametrize("part", range(NUM_PARTS))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_elementwise_and_rowwise_programs_over_all_samples_together_give_the_bits_of_each_sample(part: int) -> None:
    buffers, num_packed, num_rows = BufferPool(PrivateSpace()), 0, 0
    for seed in range(part, NUM_PROGRAMS, NUM_PARTS):
        draw, numbers = random.Random(seed), np.random.default_rng(seed)
        count, dtype, channels = draw.randint(2, 9), draw.choice(DTYPES), draw.choice([[1, 3], [3], [3], [4]])
        shapes = [(draw.choice([1, 5, 50]), draw.choice([1, 7, 40]), draw.choice(channels)) for _ in range(count)]
        arrays = [(100 * numbers.standard_normal(shape)).astype(dtype) for shape in shapes]
        program = elementwise_program(draw, arrays[0])
        alone = [outcome(program.run, [array], SampleInfo(i, i, 0, 0)) for i, array in enumerate(arrays)]
        result, samples = BatchMemory(buffers, count, PreviousSamples()), spread(arrays, draw.choice([0, 0, 64]))
        if errors := [each for each in alone if isinstance(each, Exception)]:
            with pytest.raises(type(errors[0])):
                run_program(program, [samples], count, BatchId(0, 0, 0), [result])
            continue
        run_program(program, [samples], count, BatchId(0, 0, 0), [result])
        made = result.finish("test")
        num_packed += isinstance(made, SampleList)
        num_rows += program.rows and isinstance(made, SampleList)
        for (expected,), sample in zip(alone, made, strict=True):
            assert (sample.dtype, sample.shape) == (expected.dtype, expected.shape), f"program {seed}"
            assert sample.tobytes() == expected.tobytes(), f"program {seed}"
    assert num_packed > NUM_PROGRAMS // NUM_PARTS // 4
    assert num_rows > 0


class Samples:
    """A source of arrays, some of other shapes than their neighbors. It may fail at one of them.

    Each thread returns the same memory again and again, as sources may.
    """

    def __init__(self, draw: random.Random) -> None:
        numbers = np.random.default_rng(draw.getrandbits(32))
        dtype = draw.choice(["uint8", "int16", "float32"])
        shapes = [(draw.choice([1, 4, 28]), draw.choice([3, 6]), 2) for _ in range(2)]
        ragged = draw.choice([0, 0, 0.1, 0.5])
        self.arrays = [
            (40 * numbers.standard_normal(shapes[draw.random() < ragged])).astype(dtype) for _ in range(draw.randint(1, 40))
        ]
        self.broken = draw.choice([-1, draw.randrange(60)])
        self._local = threading.local()

    def __call__(self, info: SampleInfo) -> tuple[Any, ...]:
        i = info.idx_in_epoch
        if i == self.broken:
            raise ValueError("broken")
        if i >= len(self.arrays):
            raise StopIteration
        array = self.arrays[i]
        memory = self._local.__dict__.setdefault("memory", np.empty(1 << 12))
        lent = memory.view(array.dtype)[: array.size].reshape(array.shape)
        lent[...] = array
        return lent, np.array(i % 5, np.int32)


class Delivered(NamedTuple):
    """The samples that a pipeline has delivered, and the text of the error behind them."""

    samples: list[list[np.ndarray]]
    error: str


def run_all(draw: random.Random, source: Samples, batch_size: int, **options: Any) -> Delivered:
    """Run a random pipeline over a source."""

    @pipeline_def(batch_size=batch_size, seed=5, enable_conditionals=True, **options)
    def pipeline() -> Any:
        x, i = fn.external_source(
            source, num_outputs=2, batch=False, parallel=bool(options.get("py_num_workers")), layout=["HWC", ""]
        )
        first = x
        if draw.random() < 0.3:
            if i > 2:  # noqa: SIM108
                first = x + 1
            else:
                first = x - 1
        if draw.random() < 0.2:
            first = first + fn.random.uniform(range=[0, 1])
        made = Chain(draw, "HWC").extend([x, first, i], draw.randint(1, 4), lambda _: True)
        return (*made[1:], x)

    samples: list[list[np.ndarray]] = []
    with closing(pipeline()) as pipe:
        while True:
            try:
                batches = pipe.run()
            except StopIteration:
                return Delivered(samples, "")
            except Exception as error:
                notes = [note for note in getattr(error, "__notes__", ()) if "idx_in_epoch" in note]
                numbers = [re.findall(r"raised by (.*) for sample .* \(idx_in_epoch (\d+)\)", note) for note in notes[:1]]
                return Delivered(samples, f"{type(error).__name__} {error} {numbers}")
            samples += [[np.array(batch.at(k)) for batch in batches] for k in range(len(batches[0]))]


@pytest.mark.parametrize("seed", range(NUM_PROGRAMS // 30))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_pipelines_give_the_same_wherever_and_however_batches_are_cut(seed: int) -> None:
    draw = random.Random(seed)
    source = Samples(draw)
    for chain in range(1000 * seed, 1000 * seed + 1000):
        try:
            alone = run_all(random.Random(chain), source, 1, num_threads=1)
        except DaliLikeError:  # an argument does not suit another one
            continue
        if alone.samples or source.broken == 0:
            break

    workers = {"py_num_workers": 2, "py_start_method": "thread", "num_threads": 2}
    for options in ({"num_threads": 2}, workers):
        cut = draw.randint(1, 9)
        many = run_all(random.Random(chain), source, cut, **options)

        count = len(many.samples)
        is_mismatch = many.error.startswith(("DtypeMismatchError", "NdimMismatchError"))
        if is_mismatch and many.error != alone.error:  # branches with results of different kinds
            columns = zip(*alone.samples[: count + cut], strict=True)
            assert any(len({(array.dtype, array.ndim) for array in column}) > 1 for column in columns)
        elif alone.error and not many.error:  # the failing sample was in an incomplete batch, which is dropped
            assert count == len(source.arrays) // cut * cut <= len(alone.samples)
        else:
            assert count == len(alone.samples) // cut * cut
            assert many.error == alone.error
        for expected, got in zip(alone.samples, many.samples, strict=False):
            for a, b in zip(expected, got, strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                assert bits_of(a) == bits_of(b)


RAGGED = [np.random.default_rng(i).integers(1, 100, 1 + i * 7 % 50, np.int32) for i in range(60)]


def run_ragged(
    define: Callable[[DataNode], Any], source: Callable[[SampleInfo], Any], batch_size: int, layout: str | None = None
) -> Delivered:
    """Run a pipeline over a ragged source in one worker."""

    @pipeline_def(batch_size=batch_size, seed=5, py_num_workers=1, py_start_method="thread", num_threads=1)
    def pipeline() -> Any:
        return define(fn.external_source(source, batch=False, parallel=True, layout=layout))

    samples: list[list[np.ndarray]] = []
    with closing(pipeline()) as pipe:
        while True:
            try:
                (batch,) = pipe.run()
            except StopIteration:
                return Delivered(samples, "")
            except Exception as error:
                return Delivered(samples, f"{error} {re.findall('idx_in_epoch [0-9]+', str(error.__notes__))}")
            samples += [[np.array(batch.at(i))] for i in range(len(batch))]


def ragged(info: SampleInfo) -> np.ndarray:
    if info.idx_in_epoch >= len(RAGGED):
        raise StopIteration
    return RAGGED[info.idx_in_epoch]


def broken(info: SampleInfo) -> np.ndarray:
    if info.idx_in_epoch == 33:
        raise ValueError("broken")
    return ragged(info)


def test_elementwise_operators_compute_ragged_samples_together(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"run": 0, "run_packed": 0}

    def count(name: str) -> None:
        compute = getattr(Program, name)

        def counted(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return compute(*args, **options)

        monkeypatch.setattr(Program, name, counted)

    count("run")
    count("run_packed")

    samples, _ = run_ragged(lambda x: fn.cast((x - 3) * 2, dtype=types.INT64), ragged, 20)

    assert [sample.tolist() for (sample,) in samples] == [((data - 3) * 2).tolist() for data in RAGGED]
    assert calls["run"] == 0
    assert 0 < calls["run_packed"] <= 10


CHAINS: dict[str, Callable[[DataNode], Any]] = {
    "arithmetic": lambda x: x / 3,
    "division by zero in some samples": lambda x: 7 // (x - RAGGED[8][0]),
    "table": lambda x: fn.lookup_table(x, keys=[1, 2], values=[5, 6]) + 1,
    "float16": lambda x: fn.cast(x, dtype=types.FLOAT16) * 1.5,
    "constant that does not suit some samples": lambda x: x * types.Constant([1, 2]),
    "the input twice": lambda x: math.max(x, x + 1),
}


@pytest.mark.parametrize("source", [ragged, broken])
@pytest.mark.parametrize("name", CHAINS)
def test_ragged_samples_give_the_same_however_they_are_cut(name: str, source: Callable[[SampleInfo], Any]) -> None:
    alone = run_ragged(CHAINS[name], source, 1)

    for batch_size in (7, 20):
        together = run_ragged(CHAINS[name], source, batch_size)

        assert together.error == alone.error
        assert len(together.samples) == len(alone.samples) // batch_size * batch_size
        for (one,), (other,) in zip(alone.samples, together.samples, strict=False):
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


IMAGES = [np.random.default_rng(i).integers(0, 256, (9 + i % 5, 8 + i % 7, 3), np.uint8) for i in range(60)]

TOGETHER: dict[str, Callable[[DataNode], Any]] = {
    "views": lambda x: fn.reshape(x[1:-1], shape=[-1]),
    "flip": fn.flip,
    "window": lambda x: fn.crop(x, crop=(6, 6)),
    "pixels": lambda x: fn.crop_mirror_normalize(x, mean=[1, 2, 3], std=[4, 5, 6], dtype=types.FLOAT),
    "sums": fn.reductions.mean,
    "normalize": fn.normalize,
    "elements behind a kernel": lambda x: fn.cast(fn.flip(x), dtype=types.FLOAT) + 1,
}


def image(info: SampleInfo) -> np.ndarray:
    if info.idx_in_epoch >= len(IMAGES):
        raise StopIteration
    return IMAGES[info.idx_in_epoch]


@pytest.mark.parametrize("name", TOGETHER)
def test_workers_compute_images_of_different_shapes_together_with_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sample_by_sample():
        alone = run_ragged(TOGETHER[name], image, 1, "HWC")
    calls = 0
    compute = Program.run_batch

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return compute(*args, **options)

    monkeypatch.setattr(Program, "run_batch", counted)
    with kernels_from(library()):
        together = run_ragged(TOGETHER[name], image, 20, "HWC")

    assert 0 < calls <= 12
    assert together.error == alone.error == ""
    for (one,), (other,) in zip(alone.samples, together.samples, strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@pytest.mark.parametrize(
    ("dtype", "compute"),
    [
        ("float32", lambda x: math.pow(x, 0.5)),
        ("float32", lambda x: math.fpow(x, x)),
        ("float16", math.asin),
        ("float16", math.log10),
        ("float64", math.sqrt),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operations_with_bits_that_depend_on_the_number_of_elements_are_not_stacked(
    dtype: str, compute: Callable[[DataNode], DataNode]
) -> None:
    data = np.array([-3, -0.0, 0.5, 0.7, 19, 142.5, 31.25, 7], dtype)
    with Pipeline(1) as pipe:
        program, _ = sample_program(make_graph([compute(fn.external_source(name="input"))]), 0)
    pipe.close()

    alone = [np.asarray(program.run([data[i, ...]], SampleInfo(i, i, 0, 0))[0]) for i in range(8)]

    assert not program.stacks or [
        result.tobytes() for result in program.run_stack([data], SampleInfo(0, 0, 0, 0), count=8)[0]
    ] == [result.tobytes() for result in alone]
