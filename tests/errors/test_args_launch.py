"""What a user reads when a compiled kernel is given other arguments than it was compiled for, or no device fits."""

from __future__ import annotations

import types

import numpy as np
import pytest
from wavedsl.ir import dtypes
from wavedsl.ir.errors import ConstraintError, LaunchError
from wavedsl.ir.kernel.kernel_ir import Param
from wavedsl.runtime import devices, prepare


def compiled(shapes=None, expects=None, source=""):
    params = [
        Param("a", "pointer", dtypes.f16, 0, 8, access="read"),
        Param("c", "pointer", dtypes.f16, 8, 8, access="write"),
    ]
    if source:
        params.append(Param("_hidden", "scalar", dtypes.i32, 16, 4, source=source))
    return types.SimpleNamespace(
        target="gfx942",
        name="copy",
        asm="",
        grid=(1,),
        block=(64,),
        shared_bytes=0,
        params=params,
        shapes=shapes or {"a": ("M", "N"), "c": ("M", "N")},
        expects=expects or {},
        divisors={},
        tiles={},
        location=None,
    )


def refusal(kernel, *arguments, parts):
    with pytest.raises(LaunchError) as caught:
        prepare.prepare(kernel, arguments)
    for part in parts:
        assert part in str(caught.value)


def half(*shape):
    return np.zeros(shape, np.float16)


def test_number_of_arguments():
    refusal(compiled(), half(2, 2), parts=["copy takes 2 arguments (a, c), not 1"])


def test_extents_differ_from_what_was_compiled():
    kernel = compiled(expects={"a": ((16, None), (None, 1), 16)})
    refusal(kernel, half(8, 4), half(8, 4), parts=["argument `a` has shape (8, 4)", "compiled for (16, ?)", "dynamic"])
    prepare.prepare(kernel, [half(16, 4), half(16, 4)])


def test_strides_differ_from_what_was_compiled():
    kernel = compiled(expects={"a": ((16, 4), (4, 1), 16)})
    refusal(kernel, half(16, 8)[:, :4], half(16, 4), parts=["strides of (8, 1) elements", "compiled for (4, 1)"])


def test_alignment_differs_from_what_was_compiled():
    def on_gpu(pointer):
        return types.SimpleNamespace(
            __cuda_array_interface__={"shape": (16, 4), "typestr": "<f2", "data": (pointer, False), "version": 3}
        )

    kernel = compiled(expects={"a": ((16, 4), (4, 1), 16)})
    refusal(kernel, on_gpu(0x1008), on_gpu(0x2000), parts=["`a` lies at 0x1008", "aligned to 16 bytes"])
    refusal(kernel, on_gpu(1 << 48), on_gpu(0x2000), parts=["`a` lies at 0x1000000000000", "addresses of 48 bits"])
    prepare.prepare(kernel, [on_gpu(0x1010), on_gpu(0x2008)])


def test_arguments_disagree_on_a_dimension():
    refusal(compiled(), half(4, 6), half(4, 8), parts=["dimension N is 8 in argument `c`, but 6 in `a`"])


def test_a_hidden_parameter_without_a_source():
    refusal(compiled(source="extent K"), half(2, 2), half(2, 2), parts=["no value for its hidden parameter _hidden"])


def test_output_overlaps_input():
    memory = half(4, 4)
    refusal(compiled(), memory, memory, parts=["argument `c` is written by the kernel and overlaps `a`"])


@pytest.mark.parametrize("name", ["gpu:0", "cuda:first", "", "emulators"])
def test_a_device_that_is_none(name, monkeypatch):
    with pytest.raises(LaunchError, match="is not a device") as caught:
        devices.parse(name)
    assert "emulator:gfx950" in str(caught.value)


def test_an_unknown_target():
    for name in ("gfx1100", "sm_70", "sm_x"):
        with pytest.raises(ConstraintError, match=f"'{name}' is not a target") as caught:
            devices.parse(f"emulator:{name}")
        assert "gfx942" in str(caught.value) and "sm_80" in str(caught.value)
    assert devices.parse("emulator:sm_100").target == "sm_80"


def test_device_from_the_environment(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx950")
    assert str(devices.default()) == "emulator:gfx950"
    monkeypatch.setenv("WAVEDSL_DEVICE", "nowhere")
    with pytest.raises(LaunchError, match="'nowhere' is not a device"):
        devices.default()
    monkeypatch.delenv("WAVEDSL_DEVICE")
    monkeypatch.setattr(devices, "gpus", lambda: ())
    assert str(devices.default()) == "emulator:gfx942"
    monkeypatch.setattr(devices, "gpus", lambda: (devices.Device("cuda", 0, "sm_80"),))
    assert str(devices.default()) == "cuda:0"


def test_a_driver_without_bindings_is_warned_of(monkeypatch):
    from wavedsl.ir.errors import ToolchainError

    def missing(kind):
        raise ToolchainError("cuda-python cannot be imported", hint="install it")

    monkeypatch.setattr(devices, "driver_present", lambda kind: kind == "cuda")
    monkeypatch.setattr(devices, "device_count", missing)
    devices.gpus.cache_clear()
    with pytest.warns(RuntimeWarning, match="CUDA driver is there, but not used: cuda-python cannot be imported"):
        assert devices.gpus() == ()
    devices.gpus.cache_clear()


def test_run_time_extent_that_is_no_multiple():
    """Text with wide vectors for run-time extents names the argument and the multiples it needs."""
    kernel = compiled()
    kernel.divisors = {"a": ((1, 8), (16, 1))}
    refusal(kernel, half(4, 7), half(4, 7), parts=["argument `a` has extents (4, 7)", "multiples of (1, 8)"])
