"""Every exception that the library raises on its own account.

Exceptions of the user's callbacks are not here: they keep their own type. Each class below also derives from the builtin
that DALI or PyTorch raises in that situation, so that existing ``except`` clauses go on working::

    DaliLikeError
    |-- ArgumentError(ValueError, RuntimeError)  an argument has a value that is not allowed
    |   |-- ArgumentTypeError(TypeError)      ... nor even a type that is
    |   |-- ArgumentClashError                ... in view of the others, or of what it is for
    |   |   `-- AxisError(IndexError)         ... as a dimension, of which there are not so many
    |   |-- DatasetError(AssertionError)      ... for a dataset that is made of arrays or of other datasets
    |   |-- TargetMismatchError(AssertionError)  ... as what a tensor is to be copied into
    |   `-- IteratorArgumentError(AssertionError)  ... for an iterator over pipelines, or of a loader
    |       `-- OutputMapError(IndexError)    ... as the names of their outputs
    |-- InputNameError(KeyError)              a pipeline has no input of that name
    |-- DefinitionError(TypeError)            a pipeline or a source is put together wrongly
    |   |-- NoOutputsError(NotImplementedError)  ... a pipeline that delivers nothing
    |   `-- MissingMethodError(NotImplementedError)  ... a dataset or a sampler whose class lacks a method
    |-- SerializationError(RuntimeError)      what is to be loaded is no serialised pipeline
    |-- TraceFileError(ValueError)            what should be a trace is none
    |-- CheckpointError(ValueError, RuntimeError)  a checkpoint that is none, or is of another pipeline or sampler
    |-- PicklingError(TypeError)              a source cannot travel to a spawned worker
    |-- IteratorPicklingError(NotImplementedError)  an iterator of a loader is to be pickled
    |-- TrialError(RuntimeError)              a pipeline that is to be measured cannot be run
    |-- NotRunningError(ProcessLookupError)   a pipeline of another program is to be looked at that does not run
    |-- MissingExtraError(ImportError)        an optional dependency is not installed
    |-- DeviceError(RuntimeError)             a GPU was asked for where there is none
    |-- PipelineStateError(RuntimeError)      a call that this state of the pipeline does not allow
    |   |-- NoInputError(IndexError)          ... because an input has not been fed
    |   |-- ClosedError                       ... because it has been closed
    |   `-- ForkedError                       ... because this is a forked copy of its process
    |-- SampleError(RuntimeError)             a callback returned something that cannot be delivered
    |   |-- SampleTypeError(TypeError)        ... not an array on the CPU
    |   |   `-- SampleDtypeError(ValueError)  ... an array of a dtype that tensors cannot have
    |   |-- OutputCountError(ValueError, IndexError)  too few or too many outputs
    |   |-- BatchSizeError                    ... a batch that is too large, or not as large as the others of its iteration
    |   |-- DtypeMismatchError                ... another dtype than declared or than before
    |   |-- NdimMismatchError(ValueError)     ... another number of dimensions than declared, than before, or than allowed
    |   |-- LayoutMismatchError               ... another layout than declared
    |   |-- ShardError(AssertionError)        ... batches of several pipelines that do not make one array
    |   |-- SpecError(ValueError)             ... a batch unlike those before it, where all are to be alike
    |   `-- CollateError(ValueError)          samples of a dataset that do not make a batch
    |       |-- CollateTypeError(TypeError)   ... because of their types
    |       `-- CollateKeyError(KeyError)     ... because one lacks a key that the first one has
    |-- IncompleteReadError(ConnectionError)  a store has sent less of a file than was asked for
    |-- LostItemError(RuntimeError)           an interrupt has cost what cannot be made again
    |-- DecodeError(RuntimeError)             encoded data that no decoder can read
    |-- FolderError(FileNotFoundError)        a folder that has no classes, or a class without files
    |-- SampleIndexError(IndexError, RuntimeError)  a batch or a dataset has no such sample
    |-- RaggedError(RuntimeError)             one array was asked for of samples of different shapes
    |-- WorkerError(RuntimeError)             the worker processes
    |   |-- WorkerStartError                  ... could not be started
    |   |-- CudaForkError                     ... cannot be forked, since this process uses CUDA
    |   |-- WorkerDiedError                   ... ended without being told to
    |   |-- WorkerTimeoutError(TimeoutError)  ... are on one sample for too long
    |   |   `-- LoaderTimeoutError            ... on one batch of a loader
    |   `-- CorruptionError                   ... have written what no worker writes
    |-- DescriptorLimitError(OSError)         no file descriptors are left
    |-- ProcessLimitError(BlockingIOError)    no further processes may be started
    `-- OutOfMemoryError(MemoryError)         no memory to hold another batch
"""

from __future__ import annotations

__all__ = [
    "ArgumentClashError",
    "ArgumentError",
    "ArgumentTypeError",
    "AxisError",
    "BatchSizeError",
    "CheckpointError",
    "ClosedError",
    "CollateError",
    "CollateKeyError",
    "CollateTypeError",
    "CorruptionError",
    "CudaForkError",
    "DaliLikeError",
    "DatasetError",
    "DecodeError",
    "DefinitionError",
    "DescriptorLimitError",
    "DeviceError",
    "DtypeMismatchError",
    "FolderError",
    "ForkedError",
    "IncompleteReadError",
    "InputNameError",
    "IteratorArgumentError",
    "LayoutMismatchError",
    "LoaderTimeoutError",
    "LostItemError",
    "MissingExtraError",
    "MissingMethodError",
    "NdimMismatchError",
    "NoInputError",
    "NoOutputsError",
    "NotRunningError",
    "OutOfMemoryError",
    "OutputCountError",
    "OutputMapError",
    "IteratorPicklingError",
    "PicklingError",
    "PipelineStateError",
    "ProcessLimitError",
    "RaggedError",
    "SampleDtypeError",
    "SampleError",
    "SampleIndexError",
    "SampleTypeError",
    "SerializationError",
    "ShardError",
    "SpecError",
    "TargetMismatchError",
    "TraceFileError",
    "TrialError",
    "WorkerDiedError",
    "WorkerError",
    "WorkerStartError",
    "WorkerTimeoutError",
]


class DaliLikeError(Exception):
    """Base class of every exception in this module."""


class ArgumentError(DaliLikeError, ValueError, RuntimeError):
    """An argument has a value that is not allowed. DALI raises a ValueError, or a RuntimeError where it is an operator's."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has a type that is not allowed."""


class ArgumentClashError(ArgumentError):
    """An argument does not go with the others, or with what it is for."""


class AxisError(ArgumentClashError, IndexError):
    """An argument names a dimension that there is not."""


class DatasetError(ArgumentError, AssertionError):
    """A dataset cannot be made of these arrays or of these datasets."""


class TargetMismatchError(ArgumentError, AssertionError):
    """What a tensor is to be copied into has another dtype or shape."""


class IteratorArgumentError(ArgumentError, AssertionError):
    """An argument of an iterator over pipelines, or an attribute of a loader that is iterated over, is not allowed."""


class OutputMapError(IteratorArgumentError, IndexError):
    """An iterator's names for the outputs of its pipelines are not one for each."""


class DefinitionError(DaliLikeError, TypeError):
    """A pipeline or a source is put together in a way that cannot work."""


class NoOutputsError(DefinitionError, NotImplementedError):
    """A pipeline has no outputs: none were set, and there is no ``define_graph``."""


class MissingMethodError(DefinitionError, NotImplementedError):
    """The class of a dataset or of a sampler lacks a method that is needed."""


class SerializationError(DaliLikeError, RuntimeError):
    """What is to be loaded is not a pipeline that `Pipeline.serialize` has written, or not one that this version knows."""


class CheckpointError(DaliLikeError, ValueError, RuntimeError):
    """What should be a checkpoint is none, or belongs to another pipeline or sampler."""


class TraceFileError(DaliLikeError, ValueError):
    """A file that should hold a trace holds something else."""


class InputNameError(DaliLikeError, KeyError):
    """A pipeline has no input of that name."""

    __str__ = Exception.__str__  # KeyError shows the repr of a message


class PicklingError(DaliLikeError, TypeError):
    """A source, or what the workers of a loader need, cannot be pickled; the message names the attribute that refuses."""


class MissingExtraError(DaliLikeError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


class DeviceError(DaliLikeError, RuntimeError):
    """A GPU was asked for on a machine, or in an installation, without one."""


class PipelineStateError(DaliLikeError, RuntimeError):
    """A call came in a state of the pipeline that does not allow it."""


class NoInputError(PipelineStateError, IndexError):
    """An input has no batch for the next iteration."""


class ClosedError(PipelineStateError):
    """The pipeline has been closed, or the workers of a loader's iterator have been ended."""


class ForkedError(PipelineStateError):
    """The pipeline, or the iterator of a loader, belongs to the process that this one was forked from."""


class TrialError(DaliLikeError, RuntimeError):
    """A pipeline that is to be measured cannot be run.

    Attributes:
        traceback: of what it has raised in its process; "" if that was killed.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class NotRunningError(DaliLikeError, ProcessLookupError):
    """A pipeline of another program is to be looked at, and there is none, or none that is published."""


class SampleError(DaliLikeError, RuntimeError):
    """A callback returned something that cannot be delivered."""


class SampleTypeError(SampleError, TypeError):
    """A callback returned an object that is not a CPU array of a supported dtype."""


class SampleDtypeError(SampleTypeError, ValueError):
    """A callback returned an array of a dtype that tensors cannot have."""


class OutputCountError(SampleError, ValueError, IndexError):
    """A callback returned more or fewer outputs than ``num_outputs`` says."""


class BatchSizeError(SampleError):
    """A source returned a batch that is too large, or has another number of samples than those it goes with."""


class DtypeMismatchError(SampleError):
    """A sample has another dtype than declared, or than the samples before it."""


class NdimMismatchError(SampleError, ValueError):
    """A sample has another number of dimensions than declared, than the samples before it, or than an operator takes."""


class LayoutMismatchError(SampleError):
    """An output has another layout than declared."""


class ShardError(SampleError, AssertionError):
    """The batches that several pipelines have given for one step do not make one array."""


class SpecError(SampleError, ValueError):
    """An iterator whose batches are to have one shape and dtype has one that is unlike those before it."""


class CollateError(SampleError, ValueError):
    """The samples that a dataset returned do not make a batch."""


class CollateTypeError(CollateError, TypeError):
    """The samples that a dataset returned are of a type that does not make batches, or of types that do not go together."""


class CollateKeyError(CollateError, KeyError):
    """A sample lacks a key that the first one of the batch has."""

    __str__ = Exception.__str__  # KeyError shows the repr of a message


class IncompleteReadError(DaliLikeError, ConnectionError):
    """A store has sent less of a file than was asked for, or more."""


class LostItemError(DaliLikeError, RuntimeError):
    """An iterator has been interrupted on its way to an item, and cannot go back to it."""


class DecodeError(DaliLikeError, RuntimeError):
    """Encoded data that no decoder can read."""


class FolderError(DaliLikeError, FileNotFoundError):
    """A folder of samples has no folders of classes in it, or a class has no files."""


class SampleIndexError(DaliLikeError, IndexError, RuntimeError):
    """A batch or a dataset has no sample of this number."""


class RaggedError(DaliLikeError, RuntimeError):
    """One array was asked for of a list whose samples have different shapes."""


class WorkerError(DaliLikeError, RuntimeError):
    """Something went wrong with the worker processes."""


class WorkerStartError(WorkerError):
    """A worker process could not be started; the cause is the exception that it met."""


class CudaForkError(WorkerError):
    """Workers were to be forked from a process that has initialised CUDA, which does not survive that."""


class WorkerDiedError(WorkerError):
    """A worker process ended without being told to.

    Attributes:
        pid: process id of the worker.
        exitcode: as `multiprocessing.Process.exitcode`: the exit status, or minus the number of the signal.
    """

    def __init__(self, message: str, pid: int = 0, exitcode: int = 0) -> None:
        super().__init__(message)
        self.pid = pid
        self.exitcode = exitcode


class WorkerTimeoutError(WorkerError, TimeoutError):
    """A worker has been on one sample, or on its start, for longer than ``py_timeout_s``; the message shows its stack."""


class LoaderTimeoutError(WorkerTimeoutError):
    """A batch of a loader has taken longer than its ``timeout``; the message shows which workers are on it, and where."""


class IteratorPicklingError(DaliLikeError, NotImplementedError):
    """An iterator of a loader is to be pickled, which makes no sense."""


class CorruptionError(WorkerError):
    """A pipe or the shared memory holds what no worker writes: a callback has written where it must not."""


class DescriptorLimitError(DaliLikeError, OSError):
    """The process may not open more files; the message says how to raise the limit."""


class ProcessLimitError(DaliLikeError, BlockingIOError):
    """No further process may be started; the message says how to raise the limit."""


class OutOfMemoryError(DaliLikeError, MemoryError):
    """There is no memory to hold another batch; the message says what is needed and what is available."""
