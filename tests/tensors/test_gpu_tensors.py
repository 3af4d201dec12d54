"""Tensors and batches on a simulated GPU, and the errors without a GPU."""

from __future__ import annotations

import ctypes
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.device import opening
from dali_like.device.copier import Copier
from dali_like.device.cuda_streams import stream_handle
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    DefinitionError,
    DeviceError,
    MissingExtraError,
    RaggedError,
    SampleIndexError,
)
from dali_like.tensors import TensorCPU, TensorGPU, TensorListCPU, TensorListGPU
from dali_like.testing.simulated_device import SimulatedArray, SimulatedDevice
from tests.internals import as_gpu, pending_of


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice(1)


def on(device: SimulatedDevice, samples: Any, layout: str = "") -> TensorListGPU:
    """Return a batch on a device; its copy is still queued."""
    copier = Copier(device, lambda nbytes: np.empty(nbytes, np.uint8))
    (sent,) = copier.send([samples])
    pending_of(copier).clear()  # otherwise the copier waits on deletion
    return TensorListGPU.of_arrays(sent, layout)


def images() -> NDArray[np.uint8]:
    return np.arange(4 * 2 * 1 * 3, dtype=np.uint8).reshape(4, 2, 1, 3)


def of_two_sizes() -> list[NDArray[np.int16]]:
    return [np.full((n, 2), n, np.int16) for n in (1, 3)]


def test_a_dense_batch_has_its_shape_dtype_and_layout(device: SimulatedDevice) -> None:
    batch = on(device, images(), "HWC")

    assert len(batch) == 4
    assert batch.shape() == [(2, 1, 3)] * 4
    assert (batch.dtype, batch.ndim(), batch.layout()) == (types.UINT8, 3, "HWC")
    assert (batch.device_id(), batch.stream, batch.is_dense_tensor()) == (1, device.stream, True)
    assert repr(batch) == 'TensorListGPU(dtype=DALIDataType.UINT8, layout="HWC", num_samples=4, shape=' + f"{batch.shape()})"


def test_reading_facts_of_a_batch_does_not_wait_for_its_copy(device: SimulatedDevice) -> None:
    batch = on(device, images())
    batch.shape(), batch.dtype, batch.data_ptr(), batch[0], batch.at(1), batch.as_tensor(), repr(batch)

    assert device.num_waiting()


@pytest.mark.parametrize("index", [0, 3, -1, -4, np.int64(2)])
def test_samples_are_tensors(index: Any, device: SimulatedDevice) -> None:
    batch = on(device, images(), "HWC")

    for sample in (batch[index], batch.at(index)):
        assert isinstance(sample, TensorGPU)
        assert (sample.shape(), sample.layout()) == ([2, 1, 3], "HWC")
        assert np.array_equal(sample.as_cpu(), images()[index])


@pytest.mark.parametrize("index", [4, -5])
def test_there_are_no_other_samples(index: int, device: SimulatedDevice) -> None:
    with pytest.raises(SampleIndexError, match=f"the batch has no sample {index}: it has 4"):
        on(device, images())[index]


def test_a_dense_batch_is_one_tensor(device: SimulatedDevice) -> None:
    batch = on(device, images(), "HWC")
    tensor = batch.as_tensor()

    assert (tensor.shape(), tensor.layout(), tensor.data_ptr()) == ([4, 2, 1, 3], "NHWC", batch.data_ptr())
    assert np.array_equal(tensor.as_cpu(), images())
    assert batch.as_reshaped_tensor([4, 6]).shape() == [4, 6]
    with pytest.raises(ArgumentClashError, match="24 elements"):
        batch.as_reshaped_tensor([5, 5])


def test_a_ragged_batch_is_no_tensor(device: SimulatedDevice) -> None:
    batch = on(device, of_two_sizes())

    assert not batch.is_dense_tensor()
    with pytest.raises(RaggedError, match="same shape"):
        batch.as_tensor()
    assert np.array_equal(batch.as_reshaped_tensor([8]).as_cpu(), np.concatenate([a.ravel() for a in of_two_sizes()]))
    assert [np.asarray(sample).tolist() for sample in batch.as_cpu()] == [a.tolist() for a in of_two_sizes()]


def test_copies_in_host_memory_come_behind_earlier_work_on_the_users_stream(device: SimulatedDevice) -> None:
    batch = on(device, images())
    device.launch(lambda: ctypes.memset(batch.data_ptr(), 7, 24) and None)  # its stream does not wait for the batch

    batch.wait_for_copies(None)
    device.launch(lambda: ctypes.memset(batch.data_ptr(), 9, 1) and None)

    assert batch.as_cpu().as_array().ravel()[:2].tolist() == [9, 7]


def test_samples_of_two_pipelines_are_copied_after_both_streams(device: SimulatedDevice) -> None:
    one, other = on(device, images()), on(SimulatedDevice(1), images() + 1)

    both = TensorListGPU([one[0], other[0]]).as_cpu()

    assert np.array_equal(both.at(0), images()[0])
    assert np.array_equal(both.at(1), images()[0] + 1)


def test_a_copy_in_host_memory_that_fails_is_an_error(device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = on(device, images())

    def fail() -> None:
        raise DeviceError("cudaErrorLaunchFailure")

    monkeypatch.setattr(device, "download", lambda *_: device.launch(fail, device.stream))
    with pytest.raises(DeviceError, match="cudaErrorLaunchFailure"):
        batch.as_cpu()


def test_memory_of_a_tensor_that_was_put_together_is_used_again_behind_the_users_kernels(device: SimulatedDevice) -> None:
    tensor = TensorListGPU([on(device, images())[i] for i in range(2)]).as_tensor()
    has_run: list[bool] = []
    device.launch(lambda: has_run.append(True))

    del tensor
    device.run()  # the next work on the device's own stream in that memory

    assert has_run


def test_numpy_finds_the_array_interface_of_no_gpu(device: SimulatedDevice) -> None:
    assert not hasattr(on(device, images())[0], "__array_interface__")


def test_cuda_array_interface_is_that_of_filled_memory(device: SimulatedDevice) -> None:
    tensor = on(device, images()).as_tensor()

    interface = tensor.__cuda_array_interface__
    device.run(0)  # the user's kernel runs after the fences that its stream waits for

    assert (interface["shape"], interface["typestr"], interface["version"]) == ((4, 2, 1, 3), "|u1", 3)
    assert interface["data"] == (tensor.data_ptr(), False)
    assert interface["stream"] is None
    assert ctypes.string_at(tensor.data_ptr(), 24) == images().tobytes()


def test_dlpack_shares_the_memory_and_keeps_it(device: SimulatedDevice) -> None:
    batch = on(device, images())
    address = batch.data_ptr()
    array = np.from_dlpack(batch.as_tensor())  # type: ignore[arg-type]
    del batch

    assert array.__array_interface__["data"][0] == address
    assert np.array_equal(array, images())
    assert address in device.blocks


def test_dlpack_lets_the_stream_wait_that_it_is_given(device: SimulatedDevice) -> None:
    tensor = on(device, images()).as_tensor()
    stream = device.make_stream()

    tensor.__dlpack__(stream=-1)
    assert not device.num_waiting(stream)
    tensor.__dlpack__(stream=stream)

    assert device.num_waiting(stream)
    assert tensor.__dlpack_device__() == device.dlpack_device


def odd_sample(device: SimulatedDevice) -> TensorGPU:
    """A sample at an address that is not a multiple of 16, as by its size."""
    return on(device, np.arange(24, dtype=np.uint8).reshape(4, 6))[1]


def test_dlpack_exports_aligned_memory(device: SimulatedDevice) -> None:
    sample = odd_sample(device)
    exported = np.from_dlpack(sample)  # type: ignore[arg-type]

    assert exported.__array_interface__["data"][0] % 16 == 0
    assert exported.tolist() == list(range(6, 12))
    with pytest.raises(BufferError, match="leave copy=False out"):
        sample.__dlpack__(copy=False)


def test_dlpack_copies_if_it_is_told_to(device: SimulatedDevice) -> None:
    batch = on(device, images())
    tensor = batch.as_tensor()

    class Copied:
        def __dlpack__(self, **_: Any) -> Any:
            return tensor.__dlpack__(copy=True)

        def __dlpack_device__(self) -> tuple[int, int]:
            return tensor.__dlpack_device__()

    exported = np.from_dlpack(Copied())  # type: ignore[arg-type]
    assert exported.__array_interface__["data"][0] != tensor.data_ptr()
    assert np.array_equal(exported, images())


def test_dlpack_refuses_other_devices_than_its_own_and_the_cpu(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = on(device, images()).as_tensor()
    monkeypatch.setattr(SimulatedDevice, "dlpack_device", (2, 1))

    for other in ((2, 0), (1, 1), (3, 0)):
        with pytest.raises(BufferError, match=r"on device \(2, 1\) cannot be exported"):
            tensor.__dlpack__(dl_device=other)
    with pytest.raises(BufferError, match="leave copy=False out"):
        tensor.__dlpack__(dl_device=(1, 0), copy=False)
    assert tensor.__dlpack__(dl_device=(1, 0))


def test_squeezing_and_reinterpreting_change_the_tensor_and_not_the_memory(device: SimulatedDevice) -> None:
    batch = on(device, images(), "HWC")
    tensor = batch[1]

    assert (tensor.squeeze(1), tensor.squeeze(), tensor.shape(), tensor.layout()) == (True, False, [2, 3], "HC")
    tensor.reinterpret(types.INT8)
    assert tensor.dtype is types.INT8
    assert np.array_equal(tensor.as_cpu(), images()[1, :, 0].view(np.int8))
    assert batch[1].shape() == [2, 1, 3]
    with pytest.raises(ArgumentClashError, match="axis 5"):
        tensor.squeeze(5)
    with pytest.raises(ArgumentClashError, match="the sizes differ"):
        batch.reinterpret(types.FLOAT)


def test_layouts_have_a_letter_for_each_dimension(device: SimulatedDevice) -> None:
    batch = on(device, images(), "HWC")
    batch.set_layout("")
    assert batch.layout() == ""
    with pytest.raises(ArgumentError, match="'HW' cannot describe 3-dimensional data"):
        batch.set_layout("HW")
    with pytest.raises(ArgumentError, match="'HW'"):
        batch[0].set_layout("HW")
    assert batch[0].get_property("layout") is None


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("samples", [images(), of_two_sizes()], ids=["dense", "ragged"])
def test_copying_to_an_address_comes_in_the_order_of_a_stream(samples: Any, waits: bool, device: SimulatedDevice) -> None:
    batch = on(device, samples)
    place = device.allocate(64)
    stream = device.make_stream()
    device.launch(lambda: ctypes.memset(place.address, 1, 64) and None, stream)

    batch.copy_to_external(ctypes.c_void_p(place.address), stream, non_blocking=not waits)
    assert waits or device.num_waiting(stream)
    device.run(stream)

    expected = b"".join(np.asarray(sample).tobytes() for sample in samples)
    assert ctypes.string_at(place.address, 64) == expected.ljust(64, b"\1")
    with pytest.raises(ArgumentError, match="null pointer"):
        batch.copy_to_external(0)


def test_arrays_of_other_libraries_can_be_wrapped(gpus: list[SimulatedDevice]) -> None:
    array = SimulatedArray(images())

    tensor = TensorGPU(array, "NHWC")
    dense = TensorListGPU(array, "HWC")
    listed = TensorListGPU([SimulatedArray(sample) for sample in images()], "HWC")
    shared = TensorListGPU(dense)
    repeated = TensorListGPU.broadcast(dense[2], 3)

    assert np.array_equal(tensor.as_cpu(), images())
    assert tensor.data_ptr() == array.__cuda_array_interface__["data"][0]
    assert np.array_equal(dense.as_cpu().as_array(), images())
    assert np.array_equal(listed.as_tensor().as_cpu(), images())
    assert (shared.data_ptr(), shared.layout()) == (dense.data_ptr(), "HWC")
    assert [np.array_equal(sample.as_cpu(), images()[2]) for sample in repeated] == [True] * 3
    assert len(gpus) == 1  # one device, so one stream, for all
    with pytest.raises(ArgumentTypeError, match="not an array on a GPU"):
        TensorGPU(np.zeros(3))


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::2]], ids=["T", "reversed", "strided"])
def test_a_strided_array_is_copied_before_the_user_overwrites_it(view: Any, gpus: list[SimulatedDevice]) -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    expected = view(array).copy()
    tensor = TensorGPU(SimulatedArray(view(array)))
    gpus[0].launch(lambda: array.fill(-1))  # the user's next kernel
    gpus[0].run(0)

    assert np.array_equal(tensor.as_cpu(), expected)


def test_the_copy_of_a_strided_array_is_kept_for_the_users_kernels(gpus: list[SimulatedDevice]) -> None:
    tensor = TensorGPU(SimulatedArray(np.zeros((4, 6)).T))
    has_run: list[bool] = []
    gpus[0].run()
    gpus[0].launch(lambda: has_run.append(True))

    del tensor
    gpus[0].run()  # the next work on the device's own stream in that memory

    assert has_run


def test_an_array_that_is_not_copied_does_not_make_the_user_wait(gpus: list[SimulatedDevice]) -> None:
    TensorGPU(SimulatedArray(images()))

    assert not gpus[0].num_waiting(0)


def test_samples_of_one_batch_are_of_one_kind(gpus: list[SimulatedDevice]) -> None:
    with pytest.raises(ArgumentTypeError, match="different data types"):
        TensorListGPU([SimulatedArray(np.zeros(2)), SimulatedArray(np.zeros(2, np.uint8))])
    with pytest.raises(ArgumentClashError, match="0-dim"):
        TensorListGPU(Scalar())


class Scalar:
    """Return an array without dimensions."""

    value = np.array(3)
    __cuda_array_interface__ = value.__array_interface__


@pytest.mark.parametrize("samples", [images(), of_two_sizes(), []], ids=["dense", "ragged", "empty"])
def test_batches_of_the_cpu_are_copied_to_the_first_gpu(samples: Any, gpus: list[SimulatedDevice]) -> None:
    batch = TensorListCPU(samples, "HW" if isinstance(samples, list) else "HWC")

    on_gpu = as_gpu(batch)
    expected = [sample.copy() for sample in samples]
    for sample in samples:
        sample.fill(0)  # the source of an ended copy may be overwritten

    assert isinstance(on_gpu, TensorListGPU)
    assert on_gpu.layout() == batch.layout()
    assert [sample.tolist() for sample in map(np.asarray, on_gpu.as_cpu())] == [sample.tolist() for sample in expected]


def test_tensors_of_the_cpu_are_copied_to_the_first_gpu(gpus: list[SimulatedDevice]) -> None:
    on_gpu = as_gpu(TensorCPU(images()[0], "HWC"))

    assert isinstance(on_gpu, TensorGPU)
    assert (on_gpu.layout(), on_gpu.device_id()) == ("HWC", 0)
    assert np.array_equal(on_gpu.as_cpu(), images()[0])


def test_an_empty_batch_has_nothing(device: SimulatedDevice) -> None:
    batch = on(device, images())
    batch.reset()

    assert (len(batch), batch.shape(), batch.is_dense_tensor()) == (0, [], True)
    assert len(batch.as_cpu()) == 0
    with pytest.raises(ArgumentClashError, match="no GPU"):
        batch.device_id()


def test_tensors_on_a_gpu_are_not_pickled(device: SimulatedDevice) -> None:
    batch = on(device, images())
    for value in (batch, batch[0]):
        with pytest.raises(ArgumentTypeError, match=r"as_cpu\(\)"):
            pickle.dumps(value)


def test_text_shows_the_numbers(device: SimulatedDevice) -> None:
    batch = on(device, images())

    assert str(batch) == str(TensorListCPU(images())).replace("CPU", "GPU")
    assert str(batch[0]).startswith("TensorGPU(\n    [[[0 1 2]]")


class Torchlike:
    cuda_stream = 77


class Cupylike:
    ptr = 78


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 79


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        *((None, None), (0, 0), (5, 5), (ctypes.c_void_p(), 0), (ctypes.c_void_p(6), 6)),
        *((Torchlike(), 77), (Cupylike(), 78), (Protocol(), 79)),
    ],
)
def test_streams_of_libraries_are_accepted(stream: Any, handle: int | None) -> None:
    assert stream_handle(stream) == handle


def test_a_value_that_is_not_a_stream_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="cuda_stream must be"):
        stream_handle("default")


# Definitions


def test_nodes_on_both_devices_are_the_same_data() -> None:
    node = fn.external_source(lambda info: np.zeros(3), batch=False)
    moved = node.gpu()

    assert (node.device, moved.device, moved.name) == ("cpu", "gpu", node.name)
    assert moved.gpu() is moved
    assert node.cpu() is node
    assert moved.cpu().producer is node.producer


def test_objects_stay_on_the_cpu() -> None:
    objects = {"dtype": types.OBJECT, "batch": False}
    with pytest.raises(DefinitionError, match="Python objects"):
        fn.external_source(lambda info: {}, **objects).gpu()
    with pytest.raises(DefinitionError, match="Python objects"):
        fn.external_source(lambda info: {}, device="gpu", **objects)


def test_a_serialized_pipeline_keeps_the_devices_of_its_outputs(gpus: list[SimulatedDevice]) -> None:
    @pipeline_def(batch_size=2, num_threads=1, device_id=0)
    def pipeline() -> Any:
        node = fn.external_source(name="x")
        return node.gpu(), node, node.shape().gpu()

    original = pipeline()
    loaded = Pipeline.deserialize(original.serialize())
    outputs = loaded.run(x=[np.zeros(3), np.ones(3)])

    assert [type(output).__name__ for output in outputs] == ["TensorListGPU", "TensorListCPU", "TensorListGPU"]
    for pipe in (original, loaded):
        pipe.close()


# Without a GPU


def on_gpu(**options: Any) -> Any:
    @pipeline_def(batch_size=1, num_threads=1, **options)
    def pipeline() -> Any:
        return fn.external_source(lambda info: np.zeros(3), batch=False, name="numbers").gpu()

    return pipeline()


def test_without_device_id_the_error_names_the_output_on_the_gpu() -> None:
    pipe = on_gpu()
    with pytest.raises(DeviceError, match=r"numbers.* on the GPU needs a GPU.*device_id=None.*device_id=0"):
        pipe.build()


def test_without_a_gpu_the_error_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "count_accelerators", lambda: 0)

    with pytest.raises(DeviceError, match=r"needs a GPU, but this process sees none.*CUDA_VISIBLE_DEVICES.*use_cpu\(\)"):
        on_gpu(device_id=0).run()


@pytest.mark.parametrize(("count", "words"), [(1, "one GPU, number 0"), (4, "4 GPUs, numbers 0 to 3")])
def test_numbers_of_gpus_are_checked(count: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "count_accelerators", lambda: count)

    for number in (count, -1):
        with pytest.raises(ArgumentError, match=f"device_id={number}: this process sees {words}"):
            on_gpu(device_id=number).build()


def test_without_cupy_the_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "count_accelerators", lambda: 1)
    monkeypatch.setattr(opening.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(MissingExtraError, match=r"needs cupy: pip install 'cupy-cuda13x.* or pip install 'cupy-cuda12x"):
        on_gpu(device_id=0).build()


def test_no_worker_is_started_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "count_accelerators", lambda: 0)

    @pipeline_def(batch_size=1, num_threads=1, device_id=0, py_num_workers=1)
    def pipeline() -> Any:
        return fn.external_source(lambda info: np.zeros(3), batch=False, parallel=True).gpu()

    pipe = pipeline()
    with pytest.raises(DeviceError):
        pipe.start_py_workers()
    # Private: the pipeline has not been built
    assert pipe._runtime is None


def test_pipelines_of_the_cpu_import_nothing_for_gpus() -> None:
    program = (
        "import sys, numpy as np\n"
        "from dali_like import fn, pipeline_def\n"
        "@pipeline_def(batch_size=1, num_threads=1, device_id=0)\n"
        "def pipeline():\n"
        "    return fn.external_source(lambda info: np.zeros(3), batch=False)\n"
        "pipeline().run()\n"
        "assert not {'cupy', 'torch', 'pynvml', 'nvidia', 'dali_like.device.cuda'} & set(sys.modules)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
