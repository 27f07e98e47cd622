"""CUDA and HIP launches without hardware: the real bindings call libraries that record what they are given."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import standin
from forks import Forks
from wavedsl.ir import dtypes
from wavedsl.ir.kernel.kernel_ir import Param
from wavedsl.runtime import devices, launch

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 in, .param .u64 out, .param .u32 n)
{
  .reg .u64 %rd<6>;
  .reg .u32 %r<6>;
  .reg .f32 %f<3>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r5, 4;
  add.u64 %rd4, %rd1, %rd3;
  add.u64 %rd5, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd5], %f2;
DONE:
  ret;
}
"""
AMDGCN = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.amdhsa_code_object_version 5
.text
.globl twice
.p2align 8
.type twice,@function
twice:
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel twice
  .amdhsa_next_free_vgpr 4
  .amdhsa_next_free_sgpr 16
  .amdhsa_accum_offset 4
.end_amdhsa_kernel
"""


def turns(cluster: int) -> str:
    """A text that reads how many workgroups there are, as those do whose workgroups take tiles in turn."""
    clusters = f".explicitcluster\n.reqnctapercluster {cluster}, 1, 1\n" if cluster > 1 else ""
    text = PTX.replace("sm_80", "sm_90").replace("n)\n{", f"n)\n.reqntid 32, 1, 1\n{clusters}{{")
    return text.replace("  mov.u32 %r3, %ntid.x;", "  mov.u32 %r3, %nctaid.x;\n  mov.u32 %r3, %ntid.x;")


class Twice:
    """A compiled kernel, as `Launchable` describes one: out[i] = 2 in[i]; `n` comes from the shape."""

    name = "twice"
    grid = (4,)
    block = (32,)
    shapes = {"source": ("N",), "out": ("N",)}  # noqa: RUF012
    expects = {}  # noqa: RUF012
    divisors = {}  # noqa: RUF012
    tiles = {}  # noqa: RUF012
    sites = ()
    location = None

    def __init__(self, target: str, shared_bytes: int = 0):
        self.target = target
        self.asm = PTX if target.startswith("sm") else AMDGCN
        if shared_bytes > 48 << 10:
            self.asm = self.asm.replace(".visible", ".extern .shared .align 1024 .b8 smem[];\n.visible")
        self.shared_bytes = shared_bytes
        if os.environ.get("STANDIN_TURNS"):
            self.grid, self.asm = (400,), turns(int(os.environ["STANDIN_TURNS"]))
        self.params = [
            Param("source", "pointer", dtypes.f32, 0, 8, access="read"),
            Param("out", "pointer", dtypes.f32, 8, 8, access="write"),
            Param("extent_N", "scalar", dtypes.i32, 16, 4, source="extent N"),
        ]


def on_standin(side: str, shared_bytes: int, without_ptxas: bool) -> dict:
    """Run in a process that finds the stand-in as its driver: launch, and tell what became of the arrays."""
    if without_ptxas:
        from wavedsl.runtime import toolchain

        toolchain.find_cuda_tool = lambda program: None
    source, out = np.arange(100, dtype=np.float32), np.full(100, -1, np.float32)
    answers: dict = {}
    try:
        device = devices.parse(f"{side}:0")
        answers["device"] = [device.kind, device.index, device.target]
        compiled = Twice(device.target, shared_bytes)
        launch.launch(compiled, [source, out], device)
        answers["right"] = bool((out == 2 * source).all())
        launch.launch(compiled, [source, out], device)
        if os.environ.get("STANDIN_TIMING"):
            from wavedsl.runtime import timing

            from wavedsl.testing import bench_compiled

            timing.FLUSH_BYTES = 1000
            times = bench_compiled(compiled, [source, out], device, 0.0, 1e-9)
            answers["times"] = [times.clock, *times.seconds]
    except Exception as error:
        answers["error"] = [type(error).__name__, str(error)]
    answers["out"] = sorted(set(out.tolist()))[:2]
    answers["base"] = bool((source == np.arange(100)).all())
    return answers


@pytest.fixture(scope="module", params=["cuda", "hip"])
def library(request, standins, tmp_path_factory) -> Iterator[tuple[str, Path, Forks]]:
    """Side, the folder of its stand-in, and processes that find it there."""
    folder = standins(request.param)
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path_factory.getbasetemp() / "bytecode")}
    surroundings = {**kept, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(Path(standin.__file__).parent)}
    processes = Forks(tmp_path_factory.mktemp("forks"), "numpy", "pytest", "wavedsl.ir.kernel.kernel_ir",
                      "wavedsl.runtime.launch", environment=surroundings)  # fmt: skip
    yield request.param, folder, processes
    processes.close()


def launched(
    library, tmp_path, *, fail="", shared_bytes=0, static_shared=0, without_ptxas=False, timing=False, turns=0
):
    """(answers, recorded calls) of `on_standin` in a process of its own."""
    side, folder, processes = library
    log = tmp_path / "log"
    log.write_text("")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": str(Path(standin.__file__).parent),
        "ROCM_PATH": str(tmp_path / "no-rocm"),
        "STANDIN_FOLDER": str(folder),
        "STANDIN_LOG": str(log),
        "STANDIN_FAIL": fail,
        "STANDIN_TIMING": "1" if timing else "",
        "STANDIN_TURNS": str(turns) if turns else "",
        "STANDIN_STATIC_SHARED": str(static_shared),
        "STANDIN_ARCH_OFFSET": str(standin.arch_offset()) if side == "hip" else "0",
    }
    done = processes.run(
        __file__, side, str(shared_bytes), str(int(without_ptxas)), env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), log.read_text().splitlines()


def names(calls: list[str]) -> list[str]:
    return [call.split()[0].rstrip(",") for call in calls]


def test_a_launch_step_by_step(library, tmp_path):
    answers, calls = launched(library, tmp_path)
    cuda = library[0] == "cuda"
    assert answers["right"] and "error" not in answers
    assert answers["device"] == (["cuda", 0, "sm_90a"] if cuda else ["hip", 0, "gfx942"])
    enter = "cuCtxSetCurrent" if cuda else "hipSetDevice"
    steps = [call for call in calls if not call.startswith(enter)]
    if cuda:
        assert steps[:5] == [
            "cuInit 0",
            "cuDevicePrimaryCtxRetain 40",
            "cuModuleLoadData \x7fELF",
            "cuModuleGetFunction 0x4200 twice",
            "cuMemAlloc 400",
        ]
        assert set(calls) & {f"{enter} 0x4100"}
        start = "cuLaunchKernelEx 0x4300 grid 4 1 1 block 32 1 1 shared 0 stream (nil) attrs 0 extra (nil)"
        prefix = "cu"
    else:
        assert steps[:4] == ["hipInit 0", "hipModuleLoadData ELF", "hipModuleGetFunction 0x4200 twice", "hipMalloc 400"]
        start = "hipModuleLaunchKernel 0x4300 grid 4 1 1 block 32 1 1 shared 0 stream (nil) extra (nil)"
        prefix = "hip"
    allocate = "cuMemAlloc 400" if cuda else "hipMalloc 400"
    once = [
        allocate,
        f"{prefix}MemcpyHtoD 400",
        allocate,
        f"{prefix}MemcpyHtoD 400",
        start,
        f"{prefix}StreamSynchronize (nil)",
        f"{prefix}MemcpyDtoH 400",
        "cuMemFree, 1 left" if cuda else "hipFree, 1 left",
        "cuMemFree, 0 left" if cuda else "hipFree, 0 left",
    ]
    assert steps[-18:] == once * 2  # the second launch loads nothing
    assert names(calls).count(f"{prefix}ModuleLoadData") == 1


def test_timing_by_the_device_s_clock(library, tmp_path):
    """Every timed launch stands between two events, with the L2 cleared before; all is given back."""
    answers, calls = launched(library, tmp_path, timing=True)
    prefix = "cu" if library[0] == "cuda" else "hip"
    assert "error" not in answers
    # The stand-in's clock goes on by 0.25 ms from one event to the next.
    assert answers["times"] == ["device", *[0.25e-3] * 5]
    clear = "cuMemsetD8Async 1000 stream (nil)" if prefix == "cu" else "hipMemsetAsync 1000 stream (nil)"
    enter = ("cuCtxSetCurrent", "hipSetDevice")
    timed = [c for c in calls[calls.index(clear) :] if not c.startswith(enter)]
    launch_of = "cuLaunchKernelEx" if prefix == "cu" else "hipModuleLaunchKernel"
    assert names(timed)[:6] == [clear.split()[0], *[f"{prefix}EventCreate", f"{prefix}EventRecord"], launch_of,
                                *[f"{prefix}EventCreate", f"{prefix}EventRecord"]]  # fmt: skip
    assert names(calls).count(f"{prefix}EventCreate") == names(calls).count(f"{prefix}EventDestroy") == 10
    assert [c for c in calls if "left" in c][-1].endswith(" 0 left")


FAILURES = {
    "cuda": ["cuMemAlloc:2:2", "cuMemcpyHtoD:1:2", "cuModuleLoadData:2", "cuModuleGetFunction:500",
             "cuLaunchKernelEx:701", "cuStreamSynchronize:700", "cuMemcpyDtoH:719"],
    "hip": ["hipMalloc:2:2", "hipMemcpyHtoD:1:2", "hipModuleLoadData:209", "hipModuleGetFunction:500",
            "hipModuleLaunchKernel:701", "hipStreamSynchronize:700", "hipMemcpyDtoH:719"],
}  # fmt: skip


@pytest.mark.parametrize("which", [i if i in (0, 2, 4) else pytest.param(i, marks=pytest.mark.slow) for i in range(7)])
def test_a_failing_call_is_named_and_leaves_the_arrays(library, tmp_path, which):
    fail = FAILURES[library[0]][which]
    call, code = fail.split(":")[:2]
    answers, calls = launched(library, tmp_path, fail=fail)
    kind, text = answers["error"]
    assert kind == "LaunchError"
    assert f"{call} failed: " in text and f"({code})" in text and "as the stand-in was told" in text
    assert answers["out"] == [-1] and answers["base"]
    if "Module" not in call or "Launch" in call:
        assert "the arguments are as they were" in text
        # What was allocated is freed: the last line that counts says so.
        assert [c for c in calls if "left" in c][-1].endswith(" 0 left")


def test_a_device_that_is_not_there(library, tmp_path):
    side, *_ = library
    fail = "cuInit:100" if side == "cuda" else "hipInit:100"
    answers, _ = launched(library, tmp_path, fail=fail)
    assert answers["error"][0] == "LaunchError" and f"{fail[:-4]} failed" in answers["error"][1]


@pytest.mark.parametrize("cluster, most", [(1, 132), (2, 132), (4, 128)])
def test_workgroups_that_take_turns_all_run_at_once(library, tmp_path, cluster, most):
    """The stand-in has 132 SMs, a workgroup on each, and no room for the last cluster of four; 400 workgroups are asked
    for. One that had to wait for another to end would double the time."""
    if library[0] == "hip":
        pytest.skip("clusters are NVIDIA's, and so is what counts its workgroups")
    answers, calls = launched(library, tmp_path, turns=cluster)
    assert answers["right"] and "error" not in answers
    asked = [c for c in calls if c.startswith("cuOccupancy")]
    assert asked == [
        f"cuOccupancyMaxActiveClusters 0x4300 grid {cluster} block 32 shared 0" if cluster > 1 else
        "cuOccupancyMaxActiveBlocksPerMultiprocessor 0x4300 32 0"
    ]  # fmt: skip
    starts = [c for c in calls if c.startswith("cuLaunchKernelEx")]
    assert len(starts) == 2 and all(f" grid {most} 1 1 " in c for c in starts)


def test_a_driver_that_cannot_tell_limits_nothing(library, tmp_path):
    if library[0] == "hip":
        pytest.skip("clusters are NVIDIA's")
    answers, calls = launched(library, tmp_path, turns=4, fail="cuOccupancyMaxActiveClusters:801:0")
    assert answers["right"] and any(" grid 400 1 1 " in c for c in calls)
    _, calls = launched(library, tmp_path)  # tiles are not taken in turn
    assert not any(c.startswith("cuOccupancy") for c in calls)


def test_much_shared_memory_is_asked_for(library, tmp_path):
    if library[0] == "hip":
        pytest.skip("shared memory is static on AMD")
    # What the driver reserves for itself may count as static: the launch still brings all that the text expects.
    _, calls = launched(library, tmp_path, shared_bytes=100_000, static_shared=1024)
    assert "cuFuncSetAttribute 0x4300 8 100000" in calls
    assert any("shared 100000 " in call for call in calls)
    _, calls = launched(library, tmp_path, shared_bytes=40_000, static_shared=40_000)  # declared in the text
    assert "cuFuncSetAttribute" not in names(calls)
    assert any("shared 0 " in call for call in calls)


def test_the_driver_assembles_where_there_is_no_ptxas(library, tmp_path):
    if library[0] == "hip":
        pytest.skip("HIP gets linked code")
    answers, calls = launched(library, tmp_path, without_ptxas=True)
    assert answers["right"]
    assert f"cuModuleLoadDataEx 2 options, 5 6, size 16384, text of {len(PTX)}" in calls
    answers, _ = launched(library, tmp_path, without_ptxas=True, fail="cuModuleLoadDataEx:218")
    kind, text = answers["error"]
    assert kind == "ToolchainError" and "for sm_90" in text and "ptxas" in text


def test_the_driver_assembles_what_it_does_not_take_from_ptxas(library, tmp_path):
    """A driver of CUDA 12 does not load what a ptxas of CUDA 13 makes."""
    if library[0] == "hip":
        pytest.skip("HIP gets linked code")
    answers, calls = launched(library, tmp_path, fail="cuModuleLoadData:200")
    assert answers["right"]
    assert "cuModuleLoadDataEx" in names(calls)  # the call that fails leaves no line


def test_neither_ptxas_binary_nor_text_is_taken(library, tmp_path, monkeypatch):
    if library[0] == "hip":
        pytest.skip("HIP gets linked code")
    from wavedsl.ir.errors import LaunchError, ToolchainError
    from wavedsl.runtime.cuda import Cuda

    def refused(*_: object) -> None:
        raise LaunchError("cuModuleLoadData failed: CUDA_ERROR_INVALID_IMAGE (200)")

    def no_text(*_: object) -> None:
        raise ToolchainError("the driver does not assemble the text")

    cuda = object.__new__(Cuda)
    monkeypatch.setattr(Cuda, "_call", refused)
    monkeypatch.setattr(Cuda, "_assembled_by_driver", no_text)
    with pytest.raises(ToolchainError, match=r"INVALID_IMAGE(.|\n)*does not assemble(.|\n)*one CUDA release"):
        cuda._module(PTX, "sm_90", "twice")


def test_a_thread_without_a_context_makes_tensor_maps(library, monkeypatch):
    if library[0] == "hip":
        pytest.skip("HIP has no tensor maps")
    import contextlib
    import types

    from wavedsl.runtime import cuda

    entered = []

    class OfThread(cuda.Cuda):
        @contextlib.contextmanager
        def entered(self):
            entered.append(True)
            yield 0

    answers = [201, 0]  # CUDA_ERROR_INVALID_CONTEXT (cuda.h), which cuTensorMapEncodeTiled may answer
    driver = types.SimpleNamespace(cuTensorMapEncodeTiled=lambda *_: answers[len(entered)])
    monkeypatch.setattr(cuda, "_library", lambda: driver)
    make = object.__new__(OfThread).tensor_maps(dtype="f32", dims=(64, 64), strides=(256,), box=(32, 8), swizzle=128)
    assert len(make(4096, (64, 64), (256,))) == 128 and entered == [True]


def test_prototypes_have_the_sizes_that_are_passed(library):
    """The types that bodies rely on: a changed one would be received wrongly without a compiler's notice."""
    heads = {name: head for name, (head, _) in standin.prototypes(library[0]).items()}
    if library[0] == "cuda":
        assert heads["cuMemcpyHtoD"].endswith("(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount)")
        assert heads["cuLaunchKernelEx"].count("void** ") == 2
    else:
        assert heads["hipModuleLaunchKernel"].count("unsigned int ") == 7
        assert re.search(r"\(void \* dst, void \* src, (size_t|unsigned long) sizeBytes\)$", heads["hipMemcpyDtoH"])


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_missing_bindings_say_what_to_install(kind, monkeypatch):
    from wavedsl.ir.errors import ToolchainError
    from wavedsl.runtime import cuda, hip

    side = {"cuda": cuda, "hip": hip}[kind]
    side.bindings.cache_clear()
    monkeypatch.setitem(sys.modules, {"cuda": "cuda.bindings", "hip": "hip"}[kind], None)
    with pytest.raises(ToolchainError, match=r"pip install 'wavedsl\[(cuda|rocm)\]'"):
        side.bindings()


@pytest.mark.gpu
def test_on_the_gpu():
    device = devices.gpus()[0]
    if device.kind != "cuda":
        pytest.skip("the text is PTX")
    source, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    launch.launch(Twice(device.target), [source, out], device)
    np.testing.assert_array_equal(out, 2 * source)


TWO_RUNTIMES = """
import ctypes, json, os, sys
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime import hip, hip_library
first, second = sys.argv[1:]
ctypes.CDLL(first)  # what importing torch does
kept = os.environ["ROCM_PATH"]
hip.bindings()
one = hip_library.loaded(), hip._library()._name, hip._hint("hipErrorContextIsDestroyed")
ctypes.CDLL(second)
print(json.dumps([one, hip._hint("hipErrorContextIsDestroyed"), os.environ["ROCM_PATH"] == kept]))
"""


def test_the_hip_runtime_that_is_there_is_used(standins, tmp_path):
    """torch's packages bring one of their own: its streams are unknown to the system's."""
    folder = standins("hip")
    places = [tmp_path / name / "lib" / "libamdhip64.so" for name in ("torch", "system")]
    for place in places:
        place.parent.mkdir(parents=True)
        shutil.copy(folder / "libamdhip64.so", place)
    environment = {
        **os.environ, "ROCM_PATH": str(tmp_path / "system"), "STANDIN_FOLDER": str(folder),
        "STANDIN_LOG": str(tmp_path / "log"),
    }  # fmt: skip
    command = [sys.executable, "-c", TWO_RUNTIMES, *map(str, places)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    (loaded, library, hint), mixed, restored = json.loads(done.stdout)
    assert loaded == [library] == [str(places[0])] and hint == "" and restored
    assert mixed.startswith("two HIP runtimes are loaded, ") and all(str(place) in mixed for place in places)


if __name__ == "__main__":
    print(json.dumps(on_standin(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1")))
