"""``fn.readers.webdataset``: components of samples in tar archives."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.notices import warn
from dali_like.common.saved_arguments import SAVED, SavedText, SavedTexts
from dali_like.errors import ArgumentError, BrokenFileError, DaliLikeError
from dali_like.sources.readers.file_reader import listed
from dali_like.sources.readers.index_cache import cached_index
from dali_like.sources.readers.reader import Reader, reader
from dali_like.sources.readers.stored_files import FileNames, is_url, shown
from dali_like.sources.readers.webdataset_index import Component, from_bytes, parse_index, scan_archive, to_bytes
from dali_like.types import DALIDataType, SampleInfo, numpy_dtype, to_dali_type

_BEHAVIORS = ("empty", "skip", "error")
_SUPPORTED = tuple(map(np.dtype, ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")))


@reader(path="readers.webdataset")
class WebdatasetReader(Reader):
    """Reads samples from tar archives, as WebDataset writes them.

    Consecutive files in an archive with the same name before the first dot are the components of a sample. The rest of the
    name is the extension. Files whose name begins with a dot, folders and links are left out. The archives may be of the
    formats ustar, GNU and pax. Compressed archives are refused.

    DALI's ``wds2idx`` writes indexes. Without indexes, the reader builds them, and stores each beside its archive as
    ``.name.index``, or in ``~/.cache/dali_like`` if the folder is read-only.

    Args:
        paths: paths of the archives.
        ext: for each output, its extension, or alternatives separated by semicolons, such as ``"jpg;jpeg;png"``. If a
            sample has several of them, the output is the first one in the archive.
        index_paths: paths of the indexes, one for each archive. Default: the reader builds the indexes.
        missing_component_behavior: treatment of a sample that lacks a component: "empty" for an empty array, "skip" to
            leave the sample out, or "error". Default: "empty".
        case_sensitive_extensions: whether upper and lower case of extensions are distinguished.
        dtypes: data types of the outputs. Default: UINT8 for each.

    Returns:
        For each output, the bytes of its component as an array of one dimension and of its data type.
    """

    ndim = 1
    shuffles_files = True

    def __init__(
        self,
        *,
        paths: SavedTexts,
        ext: SavedTexts,
        index_paths: SavedTexts | None = None,
        missing_component_behavior: SavedText = "",
        case_sensitive_extensions: bool = True,
        dtypes: Annotated[Any, SAVED] = None,
    ) -> None:
        self._names = FileNames(listed(paths) or ())
        self._indexes = listed(index_paths) or ()
        if not len(self._names):
            raise ArgumentError("No webdataset archives provided: paths is empty")
        if self._indexes and len(self._indexes) != len(self._names):
            raise ArgumentError(
                "The number of index files, if any, must match the number of archives in the dataset: paths has "
                f"{len(self._names)}, index_paths has {len(self._indexes)}"
            )
        self._behavior = missing_component_behavior.lower() or "empty"
        if self._behavior not in _BEHAVIORS:
            raise ArgumentError(
                f"Invalid value for missing_component_behavior {missing_component_behavior!r}; possible values are: "
                f"{', '.join(_BEHAVIORS)}"
            )
        self._ignores_case = not case_sensitive_extensions
        outputs = listed(ext) or ()
        if not outputs:
            raise ArgumentError("ext must have at least one extension")
        self._num_outputs = len(outputs)
        self._outputs_of: dict[str, list[int]] = {}
        for output, alternatives in enumerate(outputs):
            for each in alternatives.split(";"):
                self._outputs_of.setdefault(self._folded(each), []).append(output)
        num_outputs = len(outputs)
        if dtypes is None:
            self._dtypes = (np.dtype(np.uint8),) * num_outputs
        else:
            given = list(dtypes) if isinstance(dtypes, (list, tuple)) else [dtypes]
            if len(given) != num_outputs:
                raise ArgumentError(
                    f"Number of extensions does not match the number of provided types: ext has {num_outputs}, dtypes "
                    f"has {len(given)}"
                )
            self._dtypes = tuple(map(_checked_dtype, given))
        self._first: list[Component] | None = None  # sample of any archive
        self._archives = np.empty(0, np.int32)
        self._begins = self._ends = np.empty((0, len(outputs)), np.int64)
        self._files_of = FileNames(())  # the names of all outputs of all samples

    @property
    def num_outputs(self) -> int | None:  # type: ignore[override]
        return None if self._num_outputs == 1 else self._num_outputs

    @property
    def dtype(self) -> Any:
        return self._dtypes[0] if self._num_outputs == 1 else self._dtypes

    def prepare(self) -> None:
        archives: list[int] = []
        components: list[list[Component]] = []
        for number, path in enumerate(self._names):
            samples = self._samples(number, path)
            if samples and self._first is None:
                self._first = samples[0]
            found = [each for sample in samples if (each := self._outputs(path, sample)) is not None]
            components += found
            archives += [number] * len(found)
        self._archives = np.array(archives, np.int32)
        spans = [[(each.offset, each.offset + each.size) for each in outputs] for outputs in components]
        table = np.array(spans, np.int64).reshape(-1, self._num_outputs, 2)
        self._begins, self._ends = table[..., 0].copy(), table[..., 1].copy()
        self._files_of = FileNames(each.name for outputs in components for each in outputs)

    def __len__(self) -> int:
        return len(self._archives)

    def file_sizes(self) -> list[int]:
        sizes: list[int] = np.bincount(self._archives, minlength=len(self._names)).tolist()
        return sizes

    def why_empty(self) -> str:
        archives = f"the archive {shown(self._names[0])}" if len(self._names) == 1 else f"the {len(self._names)} archives"
        if self._first is None:
            return f"No files found in {archives}: folders, links, and names that begin with a dot do not count. Check paths"
        found = ", ".join(shown(component.ext) for component in self._first)
        return (
            f"no sample in {archives} has a component for each output of ext: {', '.join(self._outputs_of)}. The first "
            f"sample has {found}. missing_component_behavior='skip' leaves out samples that lack a component. Correct ext"
        )

    def source_info(self, index: int, output: int) -> str:
        """Return the archive, the position of the component in it, and its name, as in DALI."""
        begin = int(self._begins[index, output])
        if not begin:  # the sample lacks the component: a header stands before each one
            return ""
        name = self._files_of[index * self._num_outputs + output]
        return f"{self._names[int(self._archives[index])]}:{begin}:{name}"

    async def read(self, index: int, info: SampleInfo) -> Any:
        path = self._names[int(self._archives[index])]
        begins, ends = self._begins[index].tolist(), self._ends[index].tolist()
        if is_url(path):
            outputs = await self._read_at_once(path, begins, ends)
        else:
            outputs = [await self._read_output(path, *span, info) for span in enumerate(zip(begins, ends, strict=True))]
        return outputs[0] if self._num_outputs == 1 else tuple(outputs)

    async def _read_output(self, path: str, output: int, span: tuple[int, int], info: SampleInfo) -> NDArray[Any]:
        """Read an output, straight into the batch."""
        begin, end = span
        dtype = self._dtypes[output]
        array: NDArray[Any] | None = None

        def empty(size: int) -> NDArray[np.uint8]:
            nonlocal array
            array = info.empty(size // dtype.itemsize, dtype, output)
            return array.view(np.uint8)

        if end > begin:  # the file has so many bytes, or else an error comes before memory is allocated
            await self.files.read(path, begin, end, empty)
        return info.empty(0, dtype, output) if array is None else array

    async def _read_at_once(self, path: str, begins: list[int], ends: list[int]) -> list[NDArray[Any]]:
        """Read all outputs of a sample by one request. They lie close together."""
        wanted = [begin for begin, end in zip(begins, ends, strict=True) if end > begin]
        first = min(wanted, default=0)
        data = await self.files.read(path, first, max(ends)) if wanted else np.empty(0, np.uint8)
        parts = [
            data[begin - first : end - first] if end > begin else data[:0] for begin, end in zip(begins, ends, strict=True)
        ]
        return [part.view(dtype) for part, dtype in zip(parts, self._dtypes, strict=True)]

    def _samples(self, number: int, path: str) -> list[list[Component]]:
        if self._indexes:
            index = self._indexes[number]
            return parse_index(index, self.files.text_lines(index))

        def build() -> bytes:
            with self.files.open(path) as file:
                return to_bytes(scan_archive(path, file))

        size = self.files.size(path)
        return cached_index(self.files, path, "webdataset-names", build, lambda stored: from_bytes(stored, size))

    def _outputs(self, path: str, sample: list[Component]) -> list[Component] | None:
        """Return the component of each output; None if the sample is to be left out."""
        outputs: list[Component | None] = [None] * self._num_outputs
        for component in sample:
            for output in self._outputs_of.get(self._folded(component.ext), ()):
                if outputs[output] is not None:
                    warn(
                        f"Multiple components matching output {output} in {shown(path)}: the first one is used", UserWarning
                    )
                    continue
                if component.size % self._dtypes[output].itemsize:
                    raise BrokenFileError(
                        f"{shown(path)}: the component {shown(component.ext)} at byte {component.offset} has "
                        f"{component.size} bytes - component size and dtype incompatible: output {output} "
                        f"has the dtype {self._dtypes[output]}",
                        path,
                        component.offset,
                    )
                outputs[output] = component
        if None in outputs and self._behavior == "skip":
            return None
        if None in outputs and self._behavior == "error":
            found = ", ".join(shown(component.ext) for component in sample)
            raise BrokenFileError(
                f"{shown(path)}: Underful sample detected: the sample at byte {sample[0].offset} has no component for "
                f"output {outputs.index(None)}, only {found}. To go on, pass missing_component_behavior='skip' or 'empty'",
                path,
                sample[0].offset,
            )
        return [each or Component("", 0, 0) for each in outputs]

    def _folded(self, ext: str) -> str:
        return ext.lower() if self._ignores_case else ext


def _checked_dtype(given: Any) -> np.dtype[Any]:
    try:  # a serialized pipeline has numbers
        dtype = numpy_dtype(DALIDataType(given) if type(given) is int else to_dali_type(given))
    except (DaliLikeError, ValueError, KeyError):
        dtype = np.dtype(object)
    if dtype not in _SUPPORTED:
        raise ArgumentError(
            f"Unsupported output dtype {given!r}. Supported types are: {', '.join(str(each) for each in _SUPPORTED)}"
        )
    return dtype
