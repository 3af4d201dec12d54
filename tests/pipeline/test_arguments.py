"""Arguments of pipelines: order, defaults, checks, and the properties that show them."""

from __future__ import annotations

import inspect
import sys
import typing
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from dali_like import OperatorConcurrency, Pipeline, StreamPolicy, fn, pipeline_def, types
from dali_like.common.arguments import Argument
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, MissingExtraError
from dali_like.graph.execution.pipeline_arguments import Arguments
from dali_like.sources.source_arguments import SourceOptions, default_options

#: The properties of a pipeline without arguments.
DEFAULTS: dict[str, Any] = {
    "max_batch_size": None,
    "batch_size": None,
    "device_id": None,
    "seed": None,
    "exec_pipelined": True,
    "exec_async": True,
    "exec_dynamic": True,
    "exec_separated": False,
    "prefetch_queue_depth": 2,
    "cpu_queue_size": 2,
    "gpu_queue_size": 2,
    "set_affinity": False,
    "max_streams": -1,
    "default_cuda_stream_priority": 0,
    "enable_memory_stats": False,
    "stream_policy": None,
    "concurrency": None,
    "py_num_workers": 1,
    "py_start_method": "fork",
}


def test_positional_arguments_come_in_dalis_order() -> None:
    kinds = inspect.signature(Pipeline).parameters

    positional = [name for name, parameter in kinds.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]

    assert positional == [
        *("batch_size", "num_threads", "device_id", "seed", "exec_pipelined", "prefetch_queue_depth", "exec_async"),
        *("bytes_per_sample", "set_affinity", "max_streams", "default_cuda_stream_priority"),
    ]


def test_signature_repeats_the_defaults_of_the_arguments() -> None:
    shown = inspect.signature(Pipeline).parameters

    for each in fields(Arguments):
        assert shown[each.name].default is each.default, each.name


@pytest.mark.parametrize(
    ("annotations", "defaults"),
    [
        (typing.get_type_hints(Arguments, include_extras=True), vars(Arguments)),
        (SourceOptions.__annotations__, default_options()),
    ],
    ids=["pipelines", "sources"],
)
def test_defaults_pass_their_checks_unchanged(annotations: Any, defaults: Any) -> None:
    for name, hint in annotations.items():
        assert Argument(name, hint).convert(defaults[name]) is defaults[name], name


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(name: str) -> None:
    assert getattr(Pipeline(), name) == DEFAULTS[name]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("device_id", 3),
        ("device_id", np.int64(1)),
        ("seed", 7),
        ("exec_pipelined", False),
        ("exec_async", False),
        ("exec_dynamic", False),
        ("set_affinity", True),
        ("enable_memory_stats", True),
        ("stream_policy", StreamPolicy.SINGLE),
        ("concurrency", OperatorConcurrency.FULL),
        ("prefetch_queue_depth", 5),
        ("prefetch_queue_depth", {"cpu_size": 3, "gpu_size": 4}),
        ("py_num_workers", 0),
        ("py_num_workers", None),
        ("py_start_method", "spawn"),
    ],
)
def test_properties_have_the_given_values(argument: str, value: Any) -> None:
    assert getattr(Pipeline(4, **{argument: value}), argument) == value


def test_bytes_per_sample_is_accepted() -> None:
    assert Pipeline(4, bytes_per_sample=100).max_batch_size == 4


def test_two_depths() -> None:
    pipe = Pipeline(4, prefetch_queue_depth={"cpu_size": 3, "gpu_size": 4})

    assert (pipe.cpu_queue_size, pipe.gpu_queue_size) == (3, 4)
    assert pipe.exec_separated
    assert pipe.exec_dynamic is None


def test_the_depth_of_the_cpu_counts() -> None:
    polled = []

    @pipeline_def(batch_size=1, prefetch_queue_depth={"cpu_size": 3, "gpu_size": 9})
    def pipeline() -> Any:
        return fn.external_source(source=lambda info: polled.append(info.iteration) or np.zeros(1), batch=False)

    pipe = pipeline()
    pipe.run()
    pipe.close()

    assert polled == [0, 1, 2]


@pytest.mark.parametrize("options", [{"exec_pipelined": False}, {"exec_async": False}])
def test_dalis_default_executor_is_not_shown_where_dali_does_without(options: dict[str, Any]) -> None:
    assert Pipeline(4, **options).exec_dynamic is None


@pytest.mark.parametrize("seed", [-1, -(2**40)])
def test_a_negative_seed_means_a_random_one(seed: int) -> None:
    assert Pipeline(4, seed=seed).seed is None


def test_the_cpu_only_device_id_means_no_device() -> None:
    assert Pipeline(4, device_id=types.CPU_ONLY_DEVICE_ID).device_id is None


@pytest.mark.parametrize(
    ("argument", "value"), [("max_streams", 3), ("default_cuda_stream_priority", 1), ("experimental_exec_dynamic", False)]
)
def test_deprecated_arguments_are_warned_of_where_they_are_given(argument: str, value: Any) -> None:
    with pytest.warns(DeprecationWarning, match=f"{argument} is deprecated") as caught:
        Pipeline(4, **{argument: value})

    assert caught[0].filename == __file__


def test_experimental_exec_dynamic_is_exec_dynamic() -> None:
    with pytest.warns(DeprecationWarning, match="exec_dynamic"):
        assert Pipeline(4, experimental_exec_dynamic=False).exec_dynamic is False


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("batch_size", ["4", 2.0, True]),
        ("device_id", ["0", 0.0, True]),
        ("seed", ["1", 1.5]),
        ("exec_pipelined", [None, "yes", 2]),
        ("exec_async", [None, 0.0]),
        ("exec_dynamic", ["yes", 7]),
        ("bytes_per_sample", [None, 1.5, "1"]),
        ("set_affinity", [None, "a"]),
        ("enable_memory_stats", [None, "a"]),
        ("stream_policy", [16, "SINGLE", OperatorConcurrency.NONE]),
        ("concurrency", [2, "NONE"]),
        ("prefetch_queue_depth", [None, "2", 1.5, {"cpu_size": "3", "gpu_size": 1}]),
        ("output_dtype", [object(), [None, "text"], 3]),
        ("output_ndim", ["1", 1.0, [1, "2"]]),
        ("output_layout", [3, ["HWC", 3]]),
    ],
)
def test_wrong_types_are_type_errors(argument: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ArgumentTypeError, match=argument):
            Pipeline(**{"batch_size": 4, argument: value})


@pytest.mark.parametrize("value", [1.5, True, "2", [1]])
def test_a_wrong_number_of_workers_is_refused_at_once(value: Any) -> None:
    with pytest.raises(RuntimeError, match="py_num_workers must be a positive integer"):
        Pipeline(4, py_num_workers=value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bytes_per_sample": -1}, "bytes_per_sample must be an integer from 0 on, not -1"),
        ({"output_ndim": -1}, "output_ndim must be an integer from 0 on, not -1"),
        ({"output_ndim": [0, -2]}, r"output_ndim\[1\] must be"),
        ({"prefetch_queue_depth": {"cpu_size": 0, "gpu_size": 1}}, r"prefetch_queue_depth\['cpu_size'\] must be a positive"),
        ({"prefetch_queue_depth": {"cpu": 1, "gpu": 1}}, '"cpu_size" and "gpu_size"'),
        ({"prefetch_queue_depth": {"cpu_size": 1, "gpu_size": 1}, "exec_async": False}, "needs exec_async=True"),
    ],
)
def test_wrong_values_are_value_errors(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Pipeline(4, **options)


@pytest.mark.parametrize("flag", [1, np.True_, True])
def test_flags_may_be_numbers(flag: Any) -> None:
    assert Pipeline(4, set_affinity=flag).set_affinity is True


@pytest.mark.parametrize("argument", ["exec_pipelined", "exec_async", "exec_dynamic", "set_affinity", "enable_memory_stats"])
@pytest.mark.parametrize("value", [False, True])
def test_choices_among_dalis_executors_change_nothing(argument: str, value: bool) -> None:
    @pipeline_def(batch_size=2, num_threads=1, **{argument: value})
    def pipeline() -> Any:
        return fn.external_source(source=lambda info: np.array(info.idx_in_epoch), batch=False)

    pipe = pipeline()
    batches = [pipe.run()[0].as_array() for _ in range(4)]
    pipe.close()

    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5], [6, 7]]


class TestWorkersOnRay:
    """Checks before there is a cluster; tests/on_ray has the others."""

    @pytest.mark.parametrize("options", [["num_cpus"], {1: 2}])
    def test_options_are_a_dict(self, options: Any) -> None:
        with pytest.raises(ArgumentTypeError, match="py_worker_options must be a dict"):
            Pipeline(1, py_start_method="ray", py_worker_options=options)

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_others_have_no_options(self, method: str) -> None:
        with pytest.raises(ArgumentClashError, match="py_start_method='ray'"):
            Pipeline(1, py_start_method=method, py_worker_options={"num_cpus": 1})

    def test_hangs_are_not_noticed_there(self) -> None:
        with pytest.raises(ArgumentClashError, match="py_timeout_s cannot be set"):
            Pipeline(1, py_start_method="ray", py_timeout_s=1)

    def test_the_extra_is_named_where_ray_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ray", None)

        @pipeline_def(batch_size=1, num_threads=1, py_start_method="ray")
        def pipeline() -> Any:
            return fn.external_source(source=lambda info: np.zeros(1), parallel=True, batch=False)

        with pytest.raises(MissingExtraError, match=r"pip install 'ray>="):
            pipeline().build()
