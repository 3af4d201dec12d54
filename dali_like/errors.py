"""All exceptions that the library raises itself.

Exceptions of the user's code keep their own type. Each class also derives from the builtin class that DALI or PyTorch raises
in the same situation, shown in parentheses, so existing ``except`` clauses keep working::

    DaliLikeError
    |-- ArgumentError(ValueError, RuntimeError)
    |   |-- ArgumentTypeError(TypeError)
    |   |-- ArgumentClashError
    |   |   `-- AxisError(IndexError)
    |   |-- DatasetError(AssertionError)
    |   |-- TargetMismatchError(AssertionError)
    |   `-- IteratorArgumentError(AssertionError)
    |       `-- OutputMapError(IndexError)
    |-- InputNameError(KeyError)
    |-- DefinitionError(TypeError)
    |   |-- NoOutputsError(NotImplementedError)
    |   `-- MissingMethodError(NotImplementedError)
    |-- SerializationError(RuntimeError)
    |-- TraceFileError(ValueError)
    |-- CheckpointError(ValueError, RuntimeError)
    |   |-- CheckpointNameError(KeyError)
    |   `-- CheckpointTypeError(TypeError)
    |-- NotRepeatableError(RuntimeError)
    |-- OriginError(LookupError)
    |-- PicklingError(TypeError)
    |-- IteratorPicklingError(NotImplementedError)
    |-- TrialError(RuntimeError)
    |-- NotRunningError(ProcessLookupError)
    |-- UnavailableAttributeError(AttributeError)
    |-- MissingExtraError(ImportError)
    |-- DeviceError(RuntimeError)
    |   `-- BuffersInUseError
    |-- PluginError(RuntimeError)
    |-- PipelineStateError(RuntimeError)
    |   |-- NoInputError(IndexError)
    |   |-- ClosedError
    |   `-- ForkedError
    |-- ChangedCallError(RuntimeError)
    |-- SampleError(RuntimeError)
    |   |-- SampleTypeError(TypeError)
    |   |   `-- SampleDtypeError(ValueError)
    |   |-- OutputCountError(ValueError, IndexError)
    |   |-- BatchSizeError
    |   |-- DtypeMismatchError
    |   |-- NdimMismatchError(ValueError)
    |   |-- LayoutMismatchError
    |   |-- ShardError(AssertionError)
    |   |-- SpecError(ValueError)
    |   `-- CollateError(ValueError)
    |       |-- CollateTypeError(TypeError)
    |       `-- CollateKeyError(KeyError)
    |-- IncompleteReadError(ConnectionError)
    |-- LostItemError(RuntimeError)
    |-- ServerError(RuntimeError, ConnectionError)
    |   |-- PeerError
    |   `-- ServerTimeoutError(TimeoutError)
    |-- ConsumerTimeoutError(RuntimeError, TimeoutError)
    |-- EmptyFilterError(RuntimeError)
    |-- DatasetCheckError(AssertionError)
    |-- DecodeError(RuntimeError)
    |-- FolderError(FileNotFoundError)
    |-- FileReadError(RuntimeError, OSError)
    |   |-- MissingFileError(FileNotFoundError)
    |   `-- BrokenFileError
    |-- SampleIndexError(IndexError, RuntimeError)
    |-- RaggedError(RuntimeError)
    |-- WorkerError(RuntimeError)
    |   |-- WorkerStartError
    |   |-- CudaForkError
    |   |-- WorkerDiedError
    |   |-- WorkerTimeoutError(TimeoutError)
    |   |   `-- LoaderTimeoutError
    |   `-- CorruptionError
    |-- DescriptorLimitError(OSError)
    |-- ProcessLimitError(BlockingIOError)
    |-- UnsupportedSystemError(OSError)
    `-- OutOfMemoryError(MemoryError)

There is one warning, `UnstableWarning`. Others are the builtin `UserWarning` and `DeprecationWarning`.
"""

from __future__ import annotations

__all__ = [
    "ArgumentClashError",
    "ArgumentError",
    "ArgumentTypeError",
    "AxisError",
    "BatchSizeError",
    "BrokenFileError",
    "BuffersInUseError",
    "ChangedCallError",
    "CheckpointError",
    "CheckpointNameError",
    "CheckpointTypeError",
    "ClosedError",
    "ConsumerTimeoutError",
    "CollateError",
    "CollateKeyError",
    "CollateTypeError",
    "CorruptionError",
    "CudaForkError",
    "DaliLikeError",
    "DatasetCheckError",
    "DatasetError",
    "DecodeError",
    "DefinitionError",
    "DescriptorLimitError",
    "DeviceError",
    "DtypeMismatchError",
    "EmptyFilterError",
    "FileReadError",
    "FolderError",
    "ForkedError",
    "IncompleteReadError",
    "InputNameError",
    "IteratorArgumentError",
    "LayoutMismatchError",
    "LoaderTimeoutError",
    "LostItemError",
    "MissingExtraError",
    "MissingFileError",
    "MissingMethodError",
    "NdimMismatchError",
    "NoInputError",
    "NoOutputsError",
    "NotRepeatableError",
    "OriginError",
    "NotRunningError",
    "OutOfMemoryError",
    "OutputCountError",
    "OutputMapError",
    "IteratorPicklingError",
    "PeerError",
    "PicklingError",
    "PipelineStateError",
    "PluginError",
    "ProcessLimitError",
    "RaggedError",
    "SampleDtypeError",
    "SampleError",
    "SampleIndexError",
    "SampleTypeError",
    "SerializationError",
    "ServerError",
    "ServerTimeoutError",
    "ShardError",
    "SpecError",
    "TargetMismatchError",
    "TraceFileError",
    "TrialError",
    "UnstableWarning",
    "UnavailableAttributeError",
    "UnsupportedSystemError",
    "WorkerDiedError",
    "WorkerError",
    "WorkerStartError",
    "WorkerTimeoutError",
]


class DaliLikeError(Exception):
    """Base class of all exceptions in this module.

    ``except DaliLikeError`` catches every error of the library, and none of the user's callbacks.
    """


class ArgumentError(DaliLikeError, ValueError, RuntimeError):
    """An argument has an invalid value.

    The message names the argument, the value and the allowed values. It is raised by the call that receives the
    argument, before any process starts. DALI raises ValueError, or RuntimeError for arguments of operators.
    """


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has an invalid type."""


class ArgumentClashError(ArgumentError):
    """An argument contradicts other arguments, or its purpose."""


class AxisError(ArgumentClashError, IndexError):
    """An argument names a dimension that does not exist."""


class DatasetError(ArgumentError, AssertionError):
    """The given arrays or datasets cannot form a dataset."""


class TargetMismatchError(ArgumentError, AssertionError):
    """The target of a copy has another dtype or shape than the tensor."""


class IteratorArgumentError(ArgumentError, AssertionError):
    """An argument of an iterator over pipelines, or an attribute of a loader during iteration, is invalid."""


class OutputMapError(IteratorArgumentError, IndexError):
    """An iterator's ``output_map`` does not have one name for each output."""


class DefinitionError(DaliLikeError, TypeError):
    """A pipeline or a source is composed in a way that cannot work.

    Raised while the pipeline is defined or built: a data node is used as a value, an operator is applied to Python
    objects, or a source is neither callable nor iterable.
    """


class NoOutputsError(DefinitionError, NotImplementedError):
    """A pipeline has no outputs: none were set, and there is no ``define_graph``."""


class MissingMethodError(DefinitionError, NotImplementedError):
    """The class of a dataset or sampler lacks a required method."""


class SerializationError(DaliLikeError, RuntimeError):
    """The data to load is not a pipeline written by `Pipeline.serialize`, or this version does not know its format."""


class CheckpointError(DaliLikeError, ValueError, RuntimeError):
    """A state to restore is not a checkpoint, or does not fit this pipeline, loader or sampler.

    The message names the part that differs, such as the number of sources, the batch size or the number of ranks. An
    iterator that would have to go back also raises it; load the state into a new pipeline then.
    """


class CheckpointNameError(CheckpointError, KeyError):
    """A checkpoint of dynamic mode has no object or no state of that name."""

    __str__ = Exception.__str__  # KeyError shows the repr of a message


class CheckpointTypeError(CheckpointError, TypeError):
    """A state in a checkpoint of dynamic mode is of another class than the object of its name."""


class NotRepeatableError(DaliLikeError, RuntimeError):
    """A batch cannot be computed again; the message says what it depends on."""


class OriginError(DaliLikeError, LookupError):
    """Where the samples of a batch come from is not known; the message says why."""


class TraceFileError(DaliLikeError, ValueError):
    """A file is not a trace."""


class InputNameError(DaliLikeError, KeyError):
    """A pipeline has no input of that name."""

    __str__ = Exception.__str__  # KeyError shows the repr of a message


class PicklingError(DaliLikeError, TypeError):
    """A source, or an object that a loader's workers need, cannot be pickled; the message names the attribute."""


class MissingExtraError(DaliLikeError, ImportError):
    """An optional dependency is not installed.

    The message names the feature that needs it and the command that installs it, for example
    ``pip install 'matplotlib>=3.9'``.
    """


class PluginError(DaliLikeError, RuntimeError):
    """A library of operators for DALI cannot be used here."""


class DeviceError(DaliLikeError, RuntimeError):
    """A GPU cannot be used.

    Raised if there is no GPU, if none is selected, or if CUDA reports an error during a copy. Pipelines whose data
    stays on the CPU never raise it.
    """


class BuffersInUseError(DeviceError):
    """With ``static_buffers=True``: a tensor of an earlier batch at the same addresses is alive."""


class PipelineStateError(DaliLikeError, RuntimeError):
    """The state of the pipeline does not allow the call.

    For example, a callback calls its own pipeline, calls of `Pipeline.run` and `Pipeline.schedule_run` are mixed, or
    checkpoints are requested without ``enable_checkpointing=True``.
    """


class NoInputError(PipelineStateError, IndexError):
    """An input has no batch for the next iteration; feed it first."""


class ClosedError(PipelineStateError):
    """The pipeline is closed, or the workers of a loader's iterator have been stopped."""


class ForkedError(PipelineStateError):
    """The pipeline or loader iterator belongs to the parent of this forked process."""


class ChangedCallError(DaliLikeError, RuntimeError):
    """With ``debug=True``, a run calls other operators than the first run, or with other constants."""


class TrialError(DaliLikeError, RuntimeError):
    """A pipeline to be measured cannot run.

    Attributes:
        traceback: of the exception in its process; "" if the process was killed.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class NotRunningError(DaliLikeError, ProcessLookupError):
    """There is no running pipeline to observe, or it does not publish statistics."""


class UnavailableAttributeError(DaliLikeError, AttributeError):
    """This object does not have the attribute or method, for the given reason; ``hasattr`` is false."""


class SampleError(DaliLikeError, RuntimeError):
    """A source returned data that cannot be delivered.

    The message names the source, the output and the sample, and shows the received and the expected value. The next
    call of `Pipeline.run` continues with the following batch.
    """


class SampleTypeError(SampleError, TypeError):
    """A source returned an object that is not an array on the CPU."""


class SampleDtypeError(SampleTypeError, ValueError):
    """A source returned an array of a dtype that tensors cannot have."""


class OutputCountError(SampleError, ValueError, IndexError):
    """A source returned more or fewer outputs than ``num_outputs``."""


class BatchSizeError(SampleError):
    """A source returned a batch that is too large, or differs in size from the other batches of the iteration."""


class DtypeMismatchError(SampleError):
    """A sample has another dtype than declared, or than earlier samples."""


class NdimMismatchError(SampleError, ValueError):
    """A sample has another number of dimensions than declared, than earlier samples, or than an operator accepts."""


class LayoutMismatchError(SampleError):
    """An output has another layout than declared."""


class ShardError(SampleError, AssertionError):
    """The batches of several pipelines for one step cannot form one array."""


class SpecError(SampleError, ValueError):
    """A batch differs in shape or dtype from earlier ones, in an iterator that promises equal batches."""


class CollateError(SampleError, ValueError):
    """The samples of a dataset cannot form a batch."""


class CollateTypeError(CollateError, TypeError):
    """The types of a dataset's samples cannot form a batch."""


class CollateKeyError(CollateError, KeyError):
    """A sample lacks a key of the first sample of the batch."""

    __str__ = Exception.__str__  # KeyError shows the repr of a message


class IncompleteReadError(DaliLikeError, ConnectionError):
    """A store sent fewer or more bytes of a file than requested."""


class EmptyFilterError(DaliLikeError, RuntimeError):
    """A filter of a composed dataset has rejected very many inputs in a row."""


class DatasetCheckError(DaliLikeError, AssertionError):
    """A composed dataset delivers different elements after a resume, a restart, or on other ranks and workers."""


class LostItemError(DaliLikeError, RuntimeError):
    """An interrupt has made an iterator lose an item that it cannot produce again."""


class DecodeError(DaliLikeError, RuntimeError):
    """No decoder can read the encoded data."""


class FolderError(DaliLikeError, FileNotFoundError):
    """A folder of samples has no class folders, or a class has no files."""


class FileReadError(DaliLikeError, RuntimeError, OSError):
    """A reader cannot read a file.

    Attributes:
        file: path or URL of the file.
        offset: position in the file, in bytes; None if it does not matter.
    """

    def __init__(self, message: str, file: str = "", offset: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset


class MissingFileError(FileReadError, FileNotFoundError):
    """A file or folder that a reader needs does not exist, or has vanished since it was listed."""


class BrokenFileError(FileReadError):
    """The content of a file is damaged, truncated, or of another format than the reader expects."""


class SampleIndexError(DaliLikeError, IndexError, RuntimeError):
    """A batch or dataset has no sample with this index."""


class RaggedError(DaliLikeError, RuntimeError):
    """Samples of different shapes were requested as one array."""


class ServerError(DaliLikeError, RuntimeError, ConnectionError):
    """A server gives this consumer no more batches: it has ended, has detached the consumer, or belongs to another user."""


class ServerTimeoutError(ServerError, TimeoutError):
    """No server has answered in time; the message says how to start it."""


class PeerError(ServerError):
    """The rank that loads for this one gives no more batches: it has died, has left its loop, or has another loop.

    Attributes:
        rank: that rank.
    """

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class ConsumerTimeoutError(DaliLikeError, RuntimeError, TimeoutError):
    """Fewer consumers than needed have connected to a server within ``consumer_timeout_s``."""


class WorkerError(DaliLikeError, RuntimeError):
    """Base class of errors of the worker processes."""


class WorkerStartError(WorkerError):
    """A worker process could not start; the cause is the exception it met."""


class CudaForkError(WorkerError):
    """Workers cannot be forked: this process has initialized CUDA, which does not survive a fork."""


class WorkerDiedError(WorkerError):
    """A worker process, or the process that starts them, ended unexpectedly, more often than restarts are allowed.

    The message names the process, the signal or exit status, and the sample in progress.

    Attributes:
        pid: process id of the process; 0 if it is unknown.
        exitcode: as `multiprocessing.Process.exitcode`: the exit status, or the negative number of the signal. None if it
            is unknown.
        out_of_memory: whether the kernel has killed the process for lack of memory, according to its counters. The message
            then names the limit, the memory of the workers, and the arguments to change.
    """

    def __init__(self, message: str, pid: int = 0, exitcode: int | None = 0, *, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.pid = pid
        self.exitcode = exitcode
        self.out_of_memory = out_of_memory


class WorkerTimeoutError(WorkerError, TimeoutError):
    """A worker has spent longer than ``py_timeout_s`` on one sample or on its start.

    The message shows the Python stack of the worker. Raise the timeout, or make the callback faster.
    """


class LoaderTimeoutError(WorkerTimeoutError):
    """A batch of a loader has taken longer than its ``timeout``; the message shows the workers' stacks."""


class IteratorPicklingError(DaliLikeError, NotImplementedError):
    """An iterator of a loader cannot be pickled."""


class CorruptionError(WorkerError):
    """A pipe or the shared memory holds invalid records: a callback has written to memory that is not its own."""


class DescriptorLimitError(DaliLikeError, OSError):
    """The process cannot open more files; the message says how to raise the limit."""


class ProcessLimitError(DaliLikeError, BlockingIOError):
    """The system starts no further process; the message says how to raise the limit."""


class UnsupportedSystemError(DaliLikeError, OSError):
    """The operating system, its kernel or a sandbox lacks a call that workers need; the message names call and remedy."""


class OutOfMemoryError(DaliLikeError, MemoryError):
    """Memory for another batch is short, in host memory or on a GPU.

    The message says how much is needed, how much is free, and which option reduces the need. Batches that the user
    holds count, too.
    """


class UnstableWarning(FutureWarning):
    """The program uses an interface that may change in each minor version; shown with ``DALI_LIKE_WARN_UNSTABLE=1``."""
