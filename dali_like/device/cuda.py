"""An NVIDIA GPU, through CuPy: see ``cupy.cuda`` in CuPy's reference.

Memory comes from CuPy's current allocator, so `cupy.cuda.set_allocator` and the limits of its pool apply. Streams, events
and copies are those of `dali_like.device.cuda_copies`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dali_like.common.articles import full_kind_of
from dali_like.common.extras import GPU_EXTRAS, optional
from dali_like.device.cuda_copies import CudaCopies
from dali_like.device.cuda_driver import OUT_OF_MEMORY, CopyKind, driver, is_fatal
from dali_like.device.cuda_streams import in_place_of_cupys, streams_in_use
from dali_like.device.interface import GpuArray
from dali_like.errors import ArgumentTypeError, DeviceError


class CudaBlock:
    """Memory of the GPU, from CuPy's allocator; see `dali_like.device.interface.Block`."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer
        self.address: int = pointer.ptr


class CudaDevice(CudaCopies):
    """A GPU with memory from CuPy; see `dali_like.device.interface.Device`.

    Args:
        device_id: the number of the GPU.

    Attributes:
        hooks: see `Device`.

    Raises:
        DeviceError: the GPU cannot be used.
        MissingExtraError: CuPy is not installed.
    """

    def __init__(self, device_id: int) -> None:
        self._cupy = optional("cupy", "a GPU as the place of batches", *GPU_EXTRAS)
        super().__init__(device_id, driver())
        #: Errors of CUDA's runtime, of its driver, and of the compiler of kernels.
        self._failures = (
            self._cupy.cuda.runtime.CUDARuntimeError,
            self._cupy.cuda.driver.CUDADriverError,
            self._cupy.cuda.compiler.CompileException,
        )
        self._decoding = threading.Lock()
        self._decoder: Any = None
        with self._errors("a stream cannot be created"):
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        if self._stream.device_id != device_id:
            raise DeviceError(
                f"GPU {device_id} cannot be used: CUDA's runtime uses GPU {self._stream.device_id} in its context. Set "
                f"CUDA_VISIBLE_DEVICES to one GPU and pass device_id=0"
            )
        self.stream = int(self._stream.ptr)

    def allocate(self, nbytes: int) -> CudaBlock:
        """See `Device.allocate`."""
        try:
            with self._errors("memory cannot be allocated"), in_place_of_cupys(self._stream, self.device_id):
                return CudaBlock(self._cupy.cuda.alloc(nbytes))
        except (MemoryError, DeviceError) as error:
            if isinstance(error, DeviceError) and getattr(error.__cause__, "status", None) != OUT_OF_MEMORY:
                raise
            raise self._shortage(nbytes, "Hold fewer batches, lower prefetch_queue_depth or the batch size") from error

    def move(self, target: int, source: int, nbytes: int, *, by_kernel: bool = False) -> None:
        """See `Device.move`."""
        if by_kernel:
            self.hooks.begin_copy("on the GPU", self._copy_by_kernel, target, source, nbytes)
        else:
            self.hooks.begin_copy("on the GPU", self._copy, target, source, nbytes, CopyKind.DEVICE_TO_DEVICE)

    def _copy_by_kernel(self, target: int, source: int, nbytes: int) -> None:
        arrays = [GpuArray(address, (nbytes,), np.dtype(np.uint8), None) for address in (source, target)]
        with self._kernels():
            self._cupy.add(self._array(arrays[0]), 0, out=self._array(arrays[1]), dtype=np.uint8)

    def gather(self, target: int, array: GpuArray) -> None:
        """See `Device.gather`."""
        with self._kernels():
            self._cupy.copyto(self._array(GpuArray(target, array.shape, array.dtype, None)), self._array(array))

    def adopt(self, value: Any) -> GpuArray:
        """See `Device.adopt`. Streams wait for each other on the GPU; CuPy's ``asarray`` would make this process wait."""
        try:
            interface = getattr(value, "__cuda_array_interface__", None)
            with self._on_gpu(), in_place_of_cupys(self._stream, self.device_id):
                if interface is None:
                    # Libraries let our stream wait for their current one, which would pull it into that one's graph.
                    self._refuse_captures(streams_in_use(self.device_id))
                    array = self._cupy.from_dlpack(value)
                else:
                    array = self._of_interface(interface, value)
        except DeviceError:
            raise
        except Exception as error:  # from CuPy, or from the library of the array
            if is_fatal(error) and isinstance(error, self._failures):
                raise DeviceError(f"GPU {self.device_id}: an array cannot be taken in: {error}") from error
            raise ArgumentTypeError(f"{full_kind_of(value)} is not an array on a GPU: {error}") from error
        if array.device.id != self.device_id:
            raise ArgumentTypeError(
                f"an array on GPU {array.device.id} was given to a pipeline with device_id={self.device_id}"
            )
        strides = None if array.flags.c_contiguous else tuple(array.strides)
        return GpuArray(int(array.data.ptr), tuple(array.shape), np.dtype(array.dtype), array, strides)

    def export(self, array: GpuArray, **options: Any) -> Any:
        """See `Device.export`."""
        with self._errors("an array cannot be exported"):
            exported = self._array(array)
            try:
                return exported.__dlpack__(stream=-1, **options)
            except TypeError:  # older versions of CuPy lack some options
                return exported.__dlpack__(stream=-1)

    def decode_images(self, encoded: Sequence[bytes], *, is_gray: bool, is_upright: bool) -> Sequence[Any]:
        """See `Device.decode_images`. Uses nvImageCodec, with the same upsampling as libjpeg.

        Raises:
            DeviceError: nvImageCodec fails on this GPU.
            MissingExtraError: nvImageCodec is not installed.
        """
        codec = optional("nvidia.nvimgcodec", "decoding images on a GPU", *GPU_EXTRAS)
        spec = codec.ColorSpec.GRAY if is_gray else codec.ColorSpec.SRGB
        try:
            with self._decoding, self._on_gpu():
                if self._decoder is None:
                    self._decoder = codec.Decoder(device_id=self.device_id, options=":fancy_upsampling=1")
                params = codec.DecodeParams(apply_exif_orientation=is_upright, color_spec=spec)
                decoded: Sequence[Any] = self._decoder.decode(list(encoded), params=params, cuda_stream=self.stream)
        except Exception as error:  # from nvImageCodec or CUDA; an undecodable image is not an exception but None
            raise DeviceError(f"GPU {self.device_id}: nvImageCodec has failed: {error}") from error
        return decoded

    def close(self) -> None:
        """See `Device.close`. Frees the memory that CuPy's pool keeps for the device's stream, which has no other user.

        Batches that are dropped later return their memory to that pool. CuPy frees it when memory is short.
        """
        super().close()
        with contextlib.suppress(Exception), self._on_gpu():
            pool = getattr(self._cupy.cuda.get_allocator(), "__self__", None)
            if (free_all_blocks := getattr(pool, "free_all_blocks", None)) is not None:
                free_all_blocks(stream=self._stream)

    def _of_interface(self, interface: Mapping[str, Any], owner: Any) -> Any:
        """Return a CuPy array over the memory that the CUDA Array Interface describes."""
        if (stream := interface.get("stream")) is not None:
            self.hold(self.fence_of(stream))
        if interface.get("mask") is not None:
            raise TypeError("masked arrays are not supported")
        address, strides = interface["data"][0], interface.get("strides")
        dtype = np.dtype(interface["typestr"])
        array = GpuArray(address, tuple(interface["shape"]), dtype, owner, None if strides is None else tuple(strides))
        return self._array(array, -1 if array.nbytes else self.device_id)  # -1: the GPU that has the memory

    def _array(self, array: GpuArray, device_id: int | None = None) -> Any:
        """Return an array as a CuPy array, which keeps the owner alive."""
        offset, nbytes = 0, array.nbytes
        if array.strides is not None and nbytes:
            reaches = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
            offset = -sum(reach for reach in reaches if reach < 0)  # of the first element, with negative strides
            nbytes = sum(map(abs, reaches)) + array.dtype.itemsize
        place = self.device_id if device_id is None else device_id
        memory = self._cupy.cuda.UnownedMemory(array.address - offset, nbytes, array.owner, place)
        pointer = self._cupy.cuda.MemoryPointer(memory, offset)
        return self._cupy.ndarray(array.shape, array.dtype, pointer, array.strides)

    @contextlib.contextmanager
    def _kernels(self) -> Any:
        """Let CuPy launch kernels on the device's stream; see `_errors`."""
        with self._errors("a kernel that copies could not be launched"), in_place_of_cupys(self._stream, self.device_id):
            yield
