"""Headers for C: what a C program gives the driver is what a call from Python gives it, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import c_driver
import numpy as np
import pytest
from wavedsl.ir.kernel.kernel_ir import TensorBoxes
from wavedsl.runtime.parameters import ParameterBlock
from wavedsl.runtime.prepare import prepare
from wavedsl.runtime.workspace import ALIGN, need_of

import wavedsl as wd
from wavedsl.cli import main
from wavedsl.compiled_kernel import CompiledKernel
from wavedsl.precompile import compile_open

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")
WORKSPACE = 0x7000_0000_0000


def gemm(
    dtype: wd.DType = wd.f16, schedule: wd.Schedule | None = None, dynamic: tuple = (), waves: list[Any] | None = None
) -> wd.Kernel:
    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            *(waves or []),
        ],
        subs={BM: 64, BN: 64, BK: 32},
        schedule=schedule,
        dynamic=dynamic,
    )
    def gemm(
        a: wd.Memory[M, K, dtype], b: wd.Memory[N, K, dtype], c: wd.Memory[M, N, wd.f32],
        alpha: wd.Scalar[wd.f32], shift: wd.Scalar[wd.i64], small: wd.Scalar[wd.i8], half: wd.Scalar[wd.f16],
    ):  # fmt: skip
        acc = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        number = wd.cast(shift, wd.f32) + wd.cast(small, wd.f32) + wd.cast(half, wd.f32)
        wd.write(loop * alpha + number, c)

    return gemm


SCALARS = {"alpha": 1.5, "shift": -(2**40), "small": -3, "half": np.float16(0.25)}


def from_python(compiled: CompiledKernel, values: dict[str, Any]) -> tuple[str, list[bytes]]:
    """The line that a launch with `values` is recorded as, and its tensor maps."""
    call = prepare(compiled, list(values.values()))
    need, maps = need_of(call.values), c_driver.Maps()
    places: dict[int, int] = {}
    if need is not None:
        places = {i: WORKSPACE + at + (0 if counters else need.counters) for i, counters, at in need.places}
    block = ParameterBlock(compiled.params, call.values, places, maps)  # type: ignore[arg-type]
    parameters = [bytes(block.memory[p.offset : p.offset + p.size]).hex() for p in compiled.params]
    dynamic = compiled.shared_bytes if ".extern .shared" in compiled.asm else 0
    attributes = int("griddepcontrol.wait" in compiled.asm)
    numbers = (*call.grid, *(*compiled.block, 1, 1)[:3], dynamic, 77, attributes)
    return f"launch {' '.join(map(str, numbers))} {' '.join(parameters)}", maps.said


def in_c(name: str, compiled: CompiledKernel, fields: dict[str, str], refused: str | None = None) -> str:
    """C that binds and launches, or prints why it cannot."""
    given = ", ".join(f".{k} = {v}" for k, v in fields.items())
    sizes = ", ".join(str(p.size) for p in compiled.params)
    return f"""  {{ static const int sizes[] = {{{sizes}, 0}};
    {name}_kernel kernel; {name}_call call; {name}_arguments arguments = {{{given}}};
    const char *wrong = {name}_bind(&call, &arguments);
    sizes_of = sizes;
    if (wrong) printf("wrong: %s\\n", wrong);
    else if ({name}_load(&kernel) == 0) {{
      if ({name}_launch(&kernel, &call, (void *)77) != 0) printf("refused\\n");
      (void){name}_unload(&kernel);
    }} }}"""


def fields_of(values: dict[str, Any], **more: Any) -> dict[str, str]:
    """Arguments as C: the arrays' addresses, scalars, bits of a half."""
    found = {}
    for key, value in values.items():
        if isinstance(value, np.ndarray):
            found[key] = f"(void *){value.ctypes.data}u"
        elif isinstance(value, np.float16):
            found[key] = str(int(value.view(np.uint16)))
        else:
            found[key] = repr(value)
    return found | {k: str(v) for k, v in more.items()}


def arrays(m: int, n: int, k: int, pitch: int | None = None) -> dict[str, Any]:
    """Row-major operands, aligned to 64 bytes as the kernels ask; `pitch` elements from row to row of A."""

    def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        room = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 64, np.uint8)
        start = -room.ctypes.data % 64
        return room[start : start + room.nbytes - 64].view(dtype).reshape(shape)

    a = aligned((m, pitch or k), np.float16)[:, :k]
    return {"a": a, "b": aligned((n, k), np.float16), "c": aligned((m, n), np.float32)}


def test_a_launch_on_nvidia_is_that_of_python(tmp_path: Path) -> None:
    """Tensor maps with run-time extents and pitches, split sums with a workspace, a static kernel; launches that wait
    for the one in front of them; all headers in one program."""
    bulk = compile_open(gemm(dynamic=(M,)), {N: 128}, {"K": 16}, "sm_90a")
    assert {p.kind for p in bulk.params} >= {"tensormap", "scalar"}
    plain = gemm(dynamic=(M, N, K)).compile(target="sm_80")
    shared = gemm(schedule=wd.Schedule(stream_k=True), dynamic=(M,)).compile(target="sm_90a", subs={N: 128, K: 512})
    waits = gemm(schedule=wd.Schedule(dependent=True)).compile(target="sm_90a", subs={M: 64, N: 128, K: 64})
    found = {"bulk": bulk, "plain": plain, "parts": shared, "waits": waits}
    calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("bulk", arrays(130, 128, 96, 112), {"M": 130, "K": 96, "a_stride_0": 112}),
        ("bulk", arrays(1, 128, 16), {"M": 1, "K": 16}),
        ("plain", arrays(33, 65, 7), {"M": 33, "N": 65, "K": 7}),
        ("parts", arrays(200, 128, 512), {"M": 200, "workspace": f"(void *){WORKSPACE}u"}),
        ("waits", arrays(64, 128, 64), {}),
    ]
    body, want, maps = "", [], []
    for name, values, more in calls:
        values |= SCALARS
        body += in_c(name, found[name], fields_of(values, **more))
        line, said = from_python(found[name], values)
        renumbered = line
        for at in reversed(range(len(said))):  # maps count on through the program
            renumbered = renumbered.replace(_map_bytes(at), _map_bytes(at + len(maps)))
        want.append(renumbered)
        maps += said
    headers = {name: compiled.c_header(name) for name, compiled in found.items()}
    run = c_driver.program(tmp_path, headers, "cuda", body)
    lines = run(False)
    assert [x.split()[1] for x in lines if x.startswith("map")] == [said.hex() for said in maps]
    assert [x for x in lines if x.startswith("launch")] == want
    limit = [x for x in lines if x.startswith("attribute")]
    assert f"attribute 8 {bulk.shared_bytes}" in limit
    assert lines.count("unload") == len(calls) and lines.count("load binary") == len(calls)
    again = run(True)  # a driver that does not know the binary
    assert again.count("load text") == len(calls) == len([x for x in again if x.startswith("launch")])


def _map_bytes(number: int) -> str:
    return number.to_bytes(4, "little").ljust(128, b"\0").hex()


@pytest.mark.parametrize("cluster, most", [(1, 100), (2, 22), (4, 44)])
def test_workgroups_that_take_turns_all_run_at_once(tmp_path: Path, cluster: int, most: int) -> None:
    """132 are wanted. The driver here has room for 2 on each of 50 SMs, or for 11 clusters."""
    shape = {1: (1, 1, 1), 2: (2, 1, 1), 4: (2, 2, 1)}[cluster]
    schedule = wd.Schedule(persistent=True, cluster=shape)
    waves = [wd.WaveConstraint(M, BM)]
    compiled = gemm(schedule=schedule, waves=waves).compile(target="sm_90a", subs={M: 1024, N: 1024, K: 64})
    assert compiled.grid == (132, 1, 1)
    fields = fields_of(arrays(1024, 1024, 64) | SCALARS)
    headers = {"turns": compiled.c_header("turns")}
    lines = c_driver.program(tmp_path, headers, "cuda", in_c("turns", compiled, fields))(False)
    shared = compiled.shared_bytes if ".extern .shared" in compiled.asm else 0
    assert [x for x in lines if x.startswith("at once")] == [
        f"at once: clusters of {cluster}, {compiled.block[0]} threads, {shared} bytes" if cluster > 1 else
        f"at once per SM: {compiled.block[0]} threads, {shared} bytes"
    ]  # fmt: skip
    (launch,) = [x.split()[1:5] for x in lines if x.startswith("launch")]
    assert launch == [str(most), "1", "1", str(compiled.block[0])]


def test_a_launch_on_amd_is_that_of_python(tmp_path: Path) -> None:
    compiled = gemm(schedule=wd.Schedule(split_k=4), dynamic=(M,)).compile(target="gfx942", subs={N: 128, K: 512})
    values = arrays(200, 128, 512) | SCALARS
    line, _ = from_python(compiled, values)
    fields = fields_of(values, M=200, workspace=f"(void *){WORKSPACE}u")
    sizes = 'printf("%zu %zu\\n", parts_counter_bytes(&(parts_arguments){.M = 200}), '
    sizes += "parts_workspace_bytes(&(parts_arguments){.M = 200}));"
    lines = c_driver.program(
        tmp_path, {"parts": compiled.c_header("parts")}, "hip", in_c("parts", compiled, fields) + sizes
    )(False)
    assert lines[:4] == ["load binary", "function gemm", line, "unload"]
    need = need_of(prepare(compiled, list(values.values())).values)
    assert (
        need is not None and lines[4] == f"{need.counters} {need.counters + need.sums}" and need.counters % ALIGN == 0
    )


def test_maps_of_every_kind(tmp_path: Path) -> None:
    """An axis that is there once more, rows in fours, bytes of packed elements: as `map_geometry` has them."""
    compiled = compile_open(gemm(), {N: 128}, {"M": 4, "K": 16}, "sm_90a")
    boxes = [TensorBoxes("a", (1, 0), (32, 64, 1), 64, 0, None), TensorBoxes("a", (1, 0), (32, 4, 16), 64, None, 0)]
    body, maps, headers = "", [], {}
    values = arrays(132, 128, 96, 112) | SCALARS
    for i, kind in enumerate(boxes):
        params = [replace(p, map=kind) if p.name == "a" else p for p in compiled.params]
        other = replace(compiled, params=params)
        headers[f"kind{i}"] = other.c_header(f"kind{i}")
        body += in_c(f"kind{i}", other, fields_of(values, M=132, K=96, a_stride_0=112))
        maps += from_python(other, values)[1]
    lines = c_driver.program(tmp_path, headers, "cuda", body)(False)
    assert [x.split()[1] for x in lines if x.startswith("map")] == [said.hex() for said in maps]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    """And nothing is launched. A launch of no workgroups is none."""
    compiled = compile_open(gemm(dynamic=(M,)), {N: 128}, {"K": 16}, "sm_90a")
    good = fields_of(arrays(130, 128, 96) | SCALARS, M=130, K=96)
    cases = {
        "a is a null pointer": {"a": "NULL"},
        "b is not aligned to 16 bytes": {"b": "(void *)0x1008u"},
        "c lies beyond 48 bits of address": {"c": "(void *)0x1000000000000u"},
        "extent 1 of a is no multiple of 16": {"K": "100"},
        "a_stride_0 is negative": {"a_stride_0": "-96"},
        "a_stride_0 is no multiple of 16 bytes": {"a_stride_0": "97"},
        "M is negative": {"M": "-1"},
        "extent M is too large": {"M": "3000000000"},
        "a: the elements of a tile lie too far apart": {"a_stride_0": "1 << 30"},
        "the driver refuses a tensor map of a": {"M": "4321"},
    }  # fmt: skip
    body = "".join(in_c("bulk", compiled, good | change) for change in cases.values())
    body += in_c("bulk", compiled, good | {"M": "0"})
    lines = c_driver.program(tmp_path, {"bulk": compiled.c_header("bulk")}, "cuda", body)(False)
    said = [x.removeprefix("wrong: ") for x in lines if x.startswith("wrong")]
    assert said == list(cases)
    assert not [x for x in lines if x.startswith("launch")]


def test_headers_are_cpp_too(tmp_path: Path) -> None:
    compiled = gemm().compile(target="sm_90a", subs={M: 64, N: 64, K: 64})
    (tmp_path / "k.h").write_text(compiled.c_header("k"))
    (tmp_path / "k.cpp").write_text('#include "k.h"\n#include "k.h"\nk_call call;\nauto how = k_launch;\n')
    c_driver.zig(tmp_path, "c++", "-std=c++11", "-Wno-unused-function", "-c", "k.cpp")


def test_names_are_fields() -> None:
    """Words of C and names that meet get an underscore."""
    A = wd.sym.register

    @wd.wave([wd.WorkgroupConstraint(A, 64, 0)], dynamic=(A,))
    def double(double: wd.Memory[A, wd.f32], workspace: wd.Memory[A, wd.f32]):
        wd.write(wd.read(double) * 2, workspace)

    text = double.compile(target="sm_80").c_header("twice")
    assert "const void *double_;" in text and "void *workspace_;" in text and "int64_t register_;" in text


def test_what_has_no_header() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def loud(a: wd.Memory[M, wd.f32]):
        wd.device_print("a", wd.read(a))

    with pytest.raises(wd.LaunchError, match="prints or asserts"):
        loud.compile(target="sm_80", subs={M: 64}).c_header()
    with pytest.raises(wd.LaunchError, match="cannot begin names"):
        gemm().compile(target="sm_80", subs={M: 64, N: 64, K: 64}).c_header("2fast")
    with pytest.raises(wd.LaunchError, match="workgroups along axis 1"):
        gemm().compile(target="sm_80", subs={M: 64, N: 1 << 23, K: 64}).c_header()


def test_without_ptxas_the_driver_assembles(monkeypatch: pytest.MonkeyPatch) -> None:
    """On NVIDIA; AMD's drivers take no text."""

    def none(*_: object) -> bytes:
        raise wd.ToolchainError("no assembler")

    monkeypatch.setattr(CompiledKernel, "binary", none)
    text = gemm().compile(target="sm_80", subs={M: 64, N: 64, K: 64}).c_header()
    assert "gemm_text[" in text and "gemm_binary" not in text
    with pytest.raises(wd.ToolchainError, match="no assembler"):
        gemm().compile(target="gfx942", subs={M: 64, N: 64, K: 64}).c_header()


ADD = """
import wavedsl as wd
N = wd.sym.N
@wd.wave([wd.WorkgroupConstraint(N, 1024, 0)])
def add(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32], c: wd.Memory[N, wd.f32]):
    wd.write(wd.read(a) + wd.read(b), c)
"""


def test_the_command_line_writes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "adding.py"
    source.write_text(ADD)
    out = tmp_path / "add.h"
    assert main(["compile", str(source), "--target", "sm_80", "--dynamic", "N:4", "-o", str(out)]) == 0
    assert "add_launch(" in out.read_text() and "is no multiple of 4" in out.read_text()
    assert main(["compile", str(source), "--target", "sm_80", "--dynamic", "N:3"]) == 1
    assert "is no run-time dimension" in capsys.readouterr().err
    assert main(["compile", str(source), "--target", "sm_80", "--dynamic", "Q"]) == 1
    assert "Q is no dimension of an argument" in capsys.readouterr().err
