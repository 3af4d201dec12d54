"""The messages of frequent mistakes, whole: the docstring of each mistake is the text that the user sees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dali_like
from dali_like import Pipeline, data, fn, ops, pipeline_def, types
from dali_like.data import DataLoader
from dali_like.plugin.numpy import DALIGenericIterator
from dali_like.tensors import TensorCPU
from dali_like.types import SampleInfo
from tests.conftest import DEADLINE_S
from tests.messages.mistakes import Mistake, command, expected_of, run, shown_by

FILES = [f"{i}.png" for i in range(100)]

MISTAKES: list[Mistake] = []


def mistake(function: Mistake) -> Mistake:
    MISTAKES.append(function)
    return function


@pytest.mark.parametrize("wrong", MISTAKES, ids=lambda wrong: wrong.__name__)
def test_the_user_sees(wrong: Mistake) -> None:
    assert shown_by(wrong) == expected_of(wrong)


# The argument of the callback: batch=False


@mistake
def forgot_batch_false() -> Any:
    """AttributeError: 'int' object has no attribute 'idx_in_epoch'
    hint: the callback gets the number of the batch, an int, because batch=True is the default. Pass batch=False to
    fn.external_source to get a SampleInfo for each sample
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: np.float32(info.idx_in_epoch))


@mistake
def forgot_batch_false_and_reads_the_iteration() -> Any:
    """AttributeError: 'int' object has no attribute 'iteration'
    hint: the callback gets the number of the batch, an int, because batch=True is the default. Pass batch=False to
    fn.external_source to get a SampleInfo for each sample, or batch_info=True to get a BatchInfo
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: np.float32(info.iteration))


@mistake
def forgot_batch_false_and_unpacks() -> Any:
    """TypeError: cannot unpack non-iterable int object
    hint: the callback gets the number of the batch, an int, because batch=True is the default. Pass batch=False to
    fn.external_source to get a SampleInfo for each sample
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """

    def source(info: Any) -> Any:
        idx_in_epoch, *_others = info
        return np.float32(idx_in_epoch)

    run(source)


@mistake
def forgot_batch_false_and_subscripts() -> Any:
    """TypeError: 'int' object is not subscriptable
    hint: the callback gets the number of the batch, an int, because batch=True is the default. Pass batch=False to
    fn.external_source to get a SampleInfo for each sample
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: np.float32(info[0]))


@mistake
def gave_batch_info_instead_of_batch_false() -> Any:
    """AttributeError: 'BatchInfo' object has no attribute 'idx_in_epoch'
    hint: the callback gets a BatchInfo, because of batch_info=True. Pass batch=False to fn.external_source to get a
    SampleInfo for each sample
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: np.float32(info.idx_in_epoch), batch_info=True)


@mistake
def takes_a_batch_info_for_a_number() -> Any:
    """TypeError: list indices must be integers or slices, not BatchInfo
    hint: the callback gets a BatchInfo, because of batch_info=True. Use info.iteration, the number of the batch, or
    leave batch_info=True out of fn.external_source to get that number
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: [FILES[i]], batch_info=True)


@mistake
def forgot_batch_false_and_returns_one_number() -> Any:
    """SampleTypeError: external_source 'images' returned a numpy.float32 in output 0; a batch is a list or tuple of
    arrays, an array whose first dimension counts the samples, or a TensorList. For one sample a call, pass
    batch=False
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: np.float32(10 * i))


@mistake
def forgot_batch_false_and_returns_one_image() -> Any:
    """BatchSizeError: external_source 'images' returned an unexpected batch size. Expected batch_size <= 4, actual:
    64. The first dimension of an array counts the samples. For one sample a call, pass batch=False
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: np.zeros((64, 64, 3), np.uint8))


@mistake
def takes_a_sample_info_for_an_index() -> Any:
    """TypeError: list indices must be integers or slices, not SampleInfo
    hint: the callback gets a SampleInfo, because of batch=False. Use info.idx_in_epoch, the number of the sample in
    the epoch; or leave batch=False out of fn.external_source to get the number of the batch, and return a batch
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: FILES[i], batch=False)


@mistake
def takes_a_sample_info_for_an_index_of_an_array() -> Any:
    """IndexError: too many indices for array: array is 1-dimensional, but 4 were indexed
    hint: the callback gets a SampleInfo, because of batch=False. Use info.idx_in_epoch, the number of the sample in
    the epoch; or leave batch=False out of fn.external_source to get the number of the batch, and return a batch
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: np.arange(100)[i], batch=False)


@mistake
def calculates_with_a_sample_info() -> Any:
    """TypeError: unsupported operand types: 'SampleInfo' and 'int'
    hint: the callback gets a SampleInfo, because of batch=False. Use info.idx_in_epoch, the number of the sample in
    the epoch; or leave batch=False out of fn.external_source to get the number of the batch, and return a batch
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: np.float32(i * 2), batch=False)


@mistake
def calculates_with_a_sample_info_and_an_array() -> Any:
    """TypeError: unsupported operand types: 'SampleInfo' and 'ndarray'
    hint: the callback gets a SampleInfo, because of batch=False. Use info.idx_in_epoch, the number of the sample in
    the epoch; or leave batch=False out of fn.external_source to get the number of the batch, and return a batch
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: np.zeros(4) + i, batch=False)


@mistake
def takes_a_sample_info_for_a_key() -> Any:
    """KeyError: SampleInfo(idx_in_epoch=0, idx_in_batch=0, iteration=0, epoch_idx=0)
    hint: the callback gets a SampleInfo, because of batch=False. Use info.idx_in_epoch, the number of the sample in
    the epoch; or leave batch=False out of fn.external_source to get the number of the batch, and return a batch
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: {0: np.zeros(2)}[i], batch=False)


@mistake
def writes_a_sample_info_into_a_path() -> Any:
    """FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/SampleInfo(idx_in_epoch=0, idx_in_batch=0,
    iteration=0, epoch_idx=0).png'
    hint: the callback gets a SampleInfo, because of batch=False. Use info.idx_in_epoch, the number of the sample in
    the epoch; or leave batch=False out of fn.external_source to get the number of the batch, and return a batch
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: np.fromfile(f"/nowhere/{i}.png"), batch=False)


@mistake
def misspelt_an_attribute_of_a_sample_info() -> Any:
    """AttributeError: 'SampleInfo' object has no attribute 'index_in_epoch'
    hint: a SampleInfo has idx_in_epoch, idx_in_batch, iteration, epoch_idx, rng, empty (did you mean idx_in_epoch?)
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: np.float32(info.index_in_epoch), batch=False)


# Pipelines that are not called


@pipeline_def(batch_size=4, num_threads=1, device_id=None)
def my_pipe() -> Any:
    return fn.external_source(source=lambda info: np.int32(info.idx_in_epoch), batch=False)


@mistake
def runs_a_function() -> Any:
    """DefinitionError: my_pipe is a function that makes a pipeline, not a pipeline: call it first, pipe = my_pipe(),
    then pipe.run(...)
    """
    my_pipe.run()


@mistake
def builds_a_function() -> Any:
    """DefinitionError: my_pipe is a function that makes a pipeline, not a pipeline: call it first, pipe = my_pipe(),
    then pipe.build(...)
    """
    my_pipe.build()


@mistake
def iterates_over_a_function() -> Any:
    """ArgumentTypeError: my_pipe is a function that makes a pipeline, not a pipeline: call it, my_pipe()"""
    DALIGenericIterator(my_pipe, ["x"])


@mistake
def iterates_over_a_list_with_a_function() -> Any:
    """ArgumentTypeError: my_pipe is a function that makes a pipeline, not a pipeline: call it, my_pipe()"""
    DALIGenericIterator([my_pipe], ["x"])


@mistake
def loads_from_a_function() -> Any:
    """ArgumentTypeError: dataset is a function, without __getitem__. A dataset has __getitem__ and __len__, or is an
    IterableDataset. If it returns the dataset, call it
    """
    list(DataLoader(my_pipe))


# Empty epochs


@mistake
def empty_source() -> Any:
    """UserWarning: epoch 0 is empty: external_source 'images' has no batches. Check what it reads StopIteration"""
    run([])


@mistake
def source_that_ends_at_once() -> Any:
    """UserWarning: epoch 0 is empty: external_source 'images' raised StopIteration for its first sample. Check what it
    reads, and when it ends StopIteration
    """

    def source(info: SampleInfo) -> NDArray[Any]:
        raise StopIteration

    run(source, batch=False)


@mistake
def size_of_zero() -> Any:
    """UserWarning: epoch 0 is empty: external_source 'images' has no samples. Check what it reads StopIteration"""
    run(lambda info: np.zeros(2), batch=False, size=0)


@mistake
def batch_larger_than_the_data() -> Any:
    """UserWarning: epoch 0 is empty: external_source 'images' has 3 samples, which do not fill a batch of 4. Lower
    batch_size, or pass last_batch_policy="partial" to get them as a smaller batch StopIteration
    """

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == 3:
            raise StopIteration
        return np.zeros(2)

    run(source, batch=False)


@mistake
def batch_larger_than_the_data_of_workers() -> Any:
    """UserWarning: epoch 0 is empty: external_source 'images' has 3 samples, which do not fill a batch of 4. Lower
    batch_size, or pass last_batch_policy="partial" to get them as a smaller batch StopIteration
    """

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == 3:
            raise StopIteration
        return np.zeros(2)

    run(source, batch=False, parallel=True, py_num_workers=1, py_start_method="thread")


@mistake
def batch_larger_than_the_length() -> Any:
    """UserWarning: epoch 0 is empty: external_source 'images' has 3 samples, which do not fill a batch of 4. Lower
    batch_size, or pass last_batch_policy="partial" to get them as a smaller batch StopIteration
    """
    run([np.zeros(2)] * 3, batch=False)


@mistake
def second_epoch_of_a_generator() -> Any:
    """UserWarning: epoch 1 is empty: external_source 'images' is an iterator, which has ended and cannot restart. Pass
    the iterable itself, for example a list, or a generator function without its parentheses
    """

    def batches() -> Iterator[Any]:
        yield [np.zeros(2)] * 4

    with Pipeline(batch_size=4, num_threads=1, device_id=None) as pipe:
        pipe.set_outputs(fn.external_source(batches(), name="images"))
    for _ in range(2):
        list(pipe)
    pipe.close()


@mistake
def iterator_over_an_empty_source() -> Any:
    """UserWarning: epoch 0 is empty: external_source 'images' has no batches. Check what it reads"""
    with Pipeline(batch_size=4, num_threads=1, device_id=None) as pipe:
        pipe.set_outputs(fn.external_source([], name="images"))
    list(DALIGenericIterator(pipe, ["x"], auto_reset=True))
    pipe.close()


class Nothing(data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


@mistake
def loader_of_an_empty_dataset() -> Any:
    """UserWarning: this epoch is empty: the dataset has no samples. Check what it reads"""
    list(DataLoader([]))


@mistake
def loader_of_an_empty_dataset_in_random_order() -> Any:
    """ArgumentError: num_samples should be a positive integer value, but got num_samples=0 the dataset is empty. Check
    what it reads
    """
    list(DataLoader([], shuffle=True))


@mistake
def loader_that_drops_everything() -> Any:
    """UserWarning: this epoch is empty: the 3 samples do not fill a batch of 4, and drop_last=True drops them. Lower
    batch_size, or pass drop_last=False
    """
    list(DataLoader(range(3), batch_size=4, drop_last=True))


@mistake
def loader_of_an_empty_iterable() -> Any:
    """UserWarning: this epoch is empty: the dataset yields no items. Check what its __iter__ reads; an iterator that
    has ended cannot restart
    """
    list(DataLoader(Nothing()))


@mistake
def loader_of_an_empty_sampler() -> Any:
    """UserWarning: this epoch is empty: the sampler yields no indices. Check what it selects"""
    list(DataLoader(range(3), sampler=[]))


@mistake
def loader_with_workers_of_an_empty_dataset() -> Any:
    """UserWarning: this epoch is empty: the dataset has no samples. Check what it reads"""
    list(DataLoader([], num_workers=1, multiprocessing_context="thread"))


# Memory


@mistake
def too_small_a_limit() -> Any:
    """OutOfMemoryError: batches take 0.3 MiB and need 2.0 MiB more; the limit is 0.5 MiB. Hold fewer batches (one
    view of a sample holds its whole batch: copy what you keep), lower the prefetch depths or the batch size, or pass
    max_held_bytes=7 << 20 (7 MiB), which suffices
    """
    run(lambda info: np.zeros((256, 256), np.uint8), batch=False, batch_size=16, max_held_bytes=1 << 19)


# Misspelt names


@mistake
def argument_of_a_loader() -> Any:
    """ArgumentTypeError: DataLoader.__init__() got an unexpected keyword argument 'batchsize' (did you mean
    batch_size?)
    """
    DataLoader(range(3), batchsize=4)


@mistake
def another_argument_of_a_loader() -> Any:
    """ArgumentTypeError: DataLoader.__init__() got an unexpected keyword argument 'workers' (did you mean
    num_workers?)
    """
    DataLoader(range(3), workers=4)


@mistake
def argument_of_a_sampler() -> Any:
    """ArgumentTypeError: RandomSampler.__init__() got an unexpected keyword argument 'replacment' (did you mean
    replacement?)
    """
    data.RandomSampler(range(3), replacment=True)


@mistake
def argument_of_a_dataset() -> Any:
    """ArgumentTypeError: Subset.__init__() got an unexpected keyword argument 'indexes' (did you mean indices?)"""
    data.Subset(range(3), indexes=[1])


@mistake
def argument_of_a_transform() -> Any:
    """ArgumentTypeError: Normalize.__init__() got an unexpected keyword argument 'stdev' (did you mean std?)"""
    data.transforms.Normalize(0, stdev=1)


@mistake
def argument_of_an_iterator() -> Any:
    """ArgumentTypeError: DALIGenericIterator.__init__() got an unexpected keyword argument 'autoreset' (did you mean
    auto_reset?)
    """
    DALIGenericIterator(my_pipe(), ["x"], autoreset=True)


@mistake
def argument_of_a_pipeline() -> Any:
    """ArgumentTypeError: Pipeline.__init__() got an unexpected keyword argument 'batchsize' (did you mean batch_size?)"""
    Pipeline(batchsize=4)


@mistake
def argument_of_a_decorated_function() -> Any:
    """DefinitionError: my_pipe got unexpected arguments: num_workers (did you mean py_num_workers?); neither the
    function nor Pipeline has them
    """
    my_pipe(num_workers=2)


@mistake
def argument_of_a_source() -> Any:
    """ArgumentTypeError: external_source got unexpected arguments: paralel (did you mean parallel?)"""
    run(lambda info: np.zeros(2), paralel=True)


@mistake
def argument_of_the_class_of_a_source() -> Any:
    """ArgumentTypeError: external_source got unexpected arguments: bach (did you mean batch?)"""
    ops.ExternalSource([], bach=False)()


@mistake
def argument_of_an_operator() -> Any:
    """ArgumentTypeError: fn.flip got unexpected arguments: horisontal (did you mean horizontal?). It has horizontal,
    vertical, depthwise, device, name, preserve, bytes_per_sample_hint
    """
    fn.flip(fn.external_source([]), horisontal=1)


@mistake
def argument_of_the_class_of_an_operator() -> Any:
    """ArgumentTypeError: ops.Flip got unexpected arguments: horisontal (did you mean horizontal?)"""
    ops.Flip(horisontal=1)


@mistake
def operator() -> Any:
    """AttributeError: module 'dali_like.fn' has no attribute 'resise' (did you mean resize?)"""
    return fn.resise


@mistake
def operator_of_a_module() -> Any:
    """AttributeError: module 'dali_like.fn.random' has no attribute 'unifrom' (did you mean uniform?)"""
    return fn.random.unifrom


@mistake
def class_of_an_operator() -> Any:
    """AttributeError: module 'dali_like.ops' has no attribute 'Resise' (did you mean Resize?)"""
    return ops.Resise


@mistake
def name_of_the_package() -> Any:
    """AttributeError: module 'dali_like' has no attribute 'Pipline' (did you mean Pipeline?)"""
    return dali_like.Pipline


@mistake
def name_of_the_data_package() -> Any:
    """AttributeError: module 'dali_like.data' has no attribute 'Dataloader' (did you mean DataLoader?)"""
    return data.Dataloader


@mistake
def subcommand() -> Any:
    """dali-like: error: argument command: invalid choice: 'bnech' (choose from COMMANDS) (did you mean bench?)"""
    command("bnech")


@mistake
def option_of_a_subcommand() -> Any:
    """dali-like bench: error: unrecognized arguments: --secnds (did you mean --seconds?), 1"""
    command("bench tests.messages.test_table:my_pipe --secnds 1")


@mistake
def function_of_the_command_line() -> Any:
    """dali-like bench: tests.messages.test_table has no function my_pip (did you mean my_pipe?)"""
    command("bench tests.messages.test_table:my_pip")


@mistake
def file_of_the_command_line() -> Any:
    """dali-like bench: no such file: tests/messages/test_tabel.py (did you mean test_table.py?)"""
    command("bench tests/messages/test_tabel.py:my_pipe")


# Values that callbacks return


@mistake
def forgot_num_outputs() -> Any:
    """SampleTypeError: external_source 'images' returned a tuple of 2 in output 0. If it is one array, wrap it in
    np.array(); if its parts are the outputs, pass num_outputs=2 to fn.external_source
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: (np.zeros(2), np.int32(1)), batch=False)


@mistake
def forgot_num_outputs_of_batches() -> Any:
    """SampleTypeError: external_source 'images' returned a tuple of 2 in output 0. If it is one batch, make its
    samples arrays; if its parts are the outputs, pass num_outputs=2 to fn.external_source
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: ([np.zeros(2)] * 4, [np.int32(1)] * 4))


@mistake
def forgot_num_outputs_where_it_unpacks() -> Any:
    """DefinitionError: a DataNode cannot be unpacked: it is a single output. For a source with several outputs, pass
    num_outputs= to fn.external_source
    """
    with Pipeline(batch_size=4, num_threads=1, device_id=None):
        _images, _labels = fn.external_source(lambda info: (np.zeros(2), np.int32(1)), batch=False)


@mistake
def wrong_num_outputs() -> Any:
    """OutputCountError: external_source 'images' returned 3 outputs instead of 2; return 2, or pass num_outputs=3
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: (np.zeros(2),) * 3, batch=False, num_outputs=2)


@mistake
def one_output_instead_of_two() -> Any:
    """OutputCountError: external_source 'images' returned an array of dtype float64 and shape (2,); with num_outputs=2
    a sample is a tuple or list of 2 arrays. Return that, or leave num_outputs=2 out
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: np.zeros(2), batch=False, num_outputs=2)


@mistake
def returned_none() -> Any:
    """SampleTypeError: external_source 'images' returned None: some path through the callback ends without a return.
    Return the sample on every path
    raised by external_source 'images' for sample 2 of iteration 0 in epoch 0 (idx_in_epoch 2)
    """
    run(lambda info: np.zeros(2) if info.idx_in_epoch < 2 else None, batch=False)


@mistake
def returned_none_instead_of_two_outputs() -> Any:
    """SampleTypeError: external_source 'images' returned None: some path through the callback ends without a return.
    Return the sample on every path
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: None, batch=False, num_outputs=2)


@mistake
def returned_none_as_an_output() -> Any:
    """SampleTypeError: external_source 'images' returned None in output 1: each output of each sample has to be an
    array
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: (np.zeros(2), None), batch=False, num_outputs=2)


@mistake
def returned_none_instead_of_a_batch() -> Any:
    """SampleTypeError: external_source 'images' returned None: some path through the callback ends without a return.
    Return the batch on every path
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda i: None)


@mistake
def returned_a_batch_with_none() -> Any:
    """SampleTypeError: external_source 'images' returned None in output 0: each output of each sample has to be an
    array
    raised by external_source 'images' for sample 1 of iteration 0 in epoch 0 (idx_in_epoch 1)
    """
    run(lambda i: [np.zeros(2), None, np.zeros(2)])


@mistake
def dataset_that_returns_none() -> Any:
    """CollateTypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found
    <class 'NoneType'>, in sample 1 of the batch. Some path through the dataset's __getitem__ returns None, or ends
    without a return
    raised by dataset list for batch 0 (indices 0, 1)
    """
    list(DataLoader([np.zeros(2), None], batch_size=2))


@mistake
def dtype_other_than_declared() -> Any:
    """DtypeMismatchError: external_source 'images' returned data of type float64 in output 0, declared as float32 by
    dtype=. Convert it, array.astype(np.float32), or declare dtype=types.FLOAT64
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: np.zeros(2), batch=False, dtype=types.FLOAT)


@mistake
def dtype_other_than_in_the_first_batch() -> Any:
    """DtypeMismatchError: external_source 'images' returned data of type float64 in output 0, which was float32 in the
    first batch. All samples have one dtype: convert this one, array.astype(np.float32), or the others
    raised by external_source 'images' for sample 0 of iteration 1 in epoch 0 (idx_in_epoch 4)
    """
    run(lambda info: np.zeros(2, np.float64 if info.iteration else np.float32), 2, batch=False)


@mistake
def dtype_other_than_in_the_batch() -> Any:
    """DtypeMismatchError: external_source 'images' returned data of type float64 in output 0, which was float32 in
    sample 0 of the batch. All samples have one dtype: convert this one, array.astype(np.float32), or the others
    raised by external_source 'images' for sample 2 of iteration 0 in epoch 0 (idx_in_epoch 2)
    """
    run(lambda info: np.zeros(2, np.float64 if info.idx_in_batch > 1 else np.float32), batch=False)


@mistake
def ndim_other_than_declared() -> Any:
    """NdimMismatchError: external_source 'images' returned data with 1 dimensions in output 0, declared with 2 by
    ndim=. Reshape the array, by array[..., np.newaxis], or pass ndim=1
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: np.zeros(2), batch=False, ndim=2)


@mistake
def ndim_other_than_in_the_first_batch() -> Any:
    """NdimMismatchError: external_source 'images' returned data with 2 dimensions in output 0, which had 1 in the
    first batch. All samples have the same number of dimensions: reshape the array, by array[..., np.newaxis], or
    the others
    raised by external_source 'images' for sample 0 of iteration 1 in epoch 0 (idx_in_epoch 4)
    """
    run(lambda info: np.zeros((2,) * (1 + info.iteration)), 2, batch=False)


@mistake
def ndim_other_than_in_the_batch() -> Any:
    """NdimMismatchError: external_source 'images' returned data with 2 dimensions in output 0, which had 1 in sample 0
    of the batch. All samples have the same number of dimensions: reshape the array, by array[..., np.newaxis], or
    the others
    raised by external_source 'images' for sample 1 of iteration 0 in epoch 0 (idx_in_epoch 1)
    """
    run(lambda info: np.zeros((2,) * (1 + info.idx_in_batch)), batch=False)


@mistake
def ndim_other_than_the_layout() -> Any:
    """NdimMismatchError: external_source 'images' returned data with 1 dimensions in output 0, declared with 2 by
    layout="HW". Return arrays of that layout, or change layout=
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: np.zeros(2), batch=False, layout="HW")


@mistake
def layout_other_than_before() -> Any:
    """LayoutMismatchError: external_source 'images': Expected data with layout: "HW" and got: "WH" in output 0. The
    first tensors had layout "HW": give all the same one, or pass layout=
    raised by external_source 'images' for sample 0 of iteration 1 in epoch 0 (idx_in_epoch 4)
    """
    run(lambda info: TensorCPU(np.zeros((2, 2)), "WH" if info.iteration else "HW"), 2, batch=False)


@mistake
def dtype_other_than_the_pipelines() -> Any:
    """DtypeMismatchError: Data type in the output_idx=0 does not match. Expected: float32. Received: float64. The
    pipeline declares it by output_dtype=: change that, or the output
    """
    run(lambda info: np.zeros(2), batch=False, output_dtype=types.FLOAT)


@mistake
def ndim_other_than_the_pipelines() -> Any:
    """NdimMismatchError: Number of dimensions in the output_idx=0 does not match. Expected: 2. Received: 1. The
    pipeline declares it by output_ndim=: change that, or the output
    """
    run(lambda info: np.zeros(2), batch=False, output_ndim=2)


@mistake
def layout_other_than_the_pipelines() -> Any:
    """LayoutMismatchError: Layout in the output_idx=0 does not match. Expected: C. Received: . The output has no
    layout. The pipeline declares it by output_layout=: change that, or the output
    """
    run(lambda info: np.zeros(2), batch=False, output_layout="C")


class OnGpu:
    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (0, False), "version": 3}  # noqa: RUF012


@mistake
def array_on_a_gpu() -> Any:
    """SampleTypeError: external_source 'images' returned a tests.messages.test_table.OnGpu in output 0: an array on a
    GPU; callbacks return CPU arrays, and .gpu() moves the batch
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: OnGpu(), batch=False)


@mistake
def text_instead_of_an_array() -> Any:
    """SampleTypeError: external_source 'images' returned a str in output 0: not an array; bytes become one by
    np.frombuffer(data, np.uint8); pass dtype=types.OBJECT for any Python object
    raised by external_source 'images' for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)
    """
    run(lambda info: "0.png", batch=False)


@mistake
def argument_of_an_operator_by_position() -> Any:
    """ArgumentTypeError: fn.resize takes 1 inputs (image), not 2. Other arguments are given by name"""
    fn.resize(fn.external_source([]), 224)


@mistake
def sample_that_a_batch_does_not_have() -> Any:
    """SampleIndexError: the batch has no sample 4: it has 4, numbered from 0"""
    run(lambda info: np.zeros(2), batch=False)[0].at(4)


# Objects that are not datasets


@mistake
def generator_for_a_dataset() -> Any:
    """ArgumentTypeError: dataset is a generator, without __getitem__. A dataset has __getitem__ and __len__, or is an
    IterableDataset. Pass list(dataset), or derive its class from dali_like.data.IterableDataset
    """
    list(DataLoader(i for i in range(3)))


@mistake
def class_for_a_dataset() -> Any:
    """ArgumentTypeError: dataset is the class Nothing, without __getitem__. A dataset has __getitem__ and __len__, or
    is an IterableDataset. Pass an instance, Nothing(...)
    """
    list(DataLoader(Nothing))


# Workers, and the end of a pipeline


@mistake
def lock_in_a_lambda() -> Any:
    """PicklingError: external_source 'images' cannot be pickled for spawned workers: source -> lock, a lock, refuses:
    cannot pickle '_thread.lock' object. Create it in the worker instead (in worker_setup, in __setstate__ or at the
    first call), or use py_start_method='fork'
    """
    lock = threading.Lock()
    run(lambda info: np.zeros(lock.locked()), batch=False, parallel=True, py_num_workers=1, py_start_method="spawn")


@mistake
def run_after_close() -> Any:
    """ClosedError: the pipeline has been closed"""
    pipe = my_pipe()
    pipe.run()
    pipe.close()
    pipe.run()


@mistake
def control_c() -> Any:
    """KeyboardInterrupt while external_source 'images' was computing sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)"""

    def source(info: SampleInfo) -> NDArray[Any]:
        signal.raise_signal(signal.SIGINT)
        return np.zeros(2)

    run(source, batch=False)


@mistake
def hang() -> Any:
    """WorkerTimeoutError: worker 0 (pid PID) has shown no progress for 1.0 s while external_source 'images' was
    computing sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0): STACK it is not replaced: the limit is 0 restarts
    of each worker within a minute; raise py_worker_restarts (worker_restarts of a DataLoader)
    """

    def source(info: SampleInfo) -> NDArray[Any]:
        time.sleep(1000)
        return np.zeros(2)

    run(
        source,
        batch=False,
        parallel=True,
        py_num_workers=1,
        py_timeout_s=1.0,
        py_worker_restarts=0,
    )


def test_a_program_needs_no_main_guard(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\n"
        "from dali_like import Pipeline, fn\n"
        "pipe = Pipeline(batch_size=2, num_threads=1, device_id=None, py_num_workers=1, py_start_method='spawn')\n"
        "with pipe:\n"
        "    pipe.set_outputs(fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False, parallel=True))\n"
        "print(pipe.run()[0].as_array())\n"
    )

    end = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(Path(dali_like.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert (end.returncode, end.stdout, end.stderr) == (0, "[0 1]\n", "")
