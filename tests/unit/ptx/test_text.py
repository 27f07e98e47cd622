"""What a reader of the text sees: parameters, names, source lines, versions, literals."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from ptx_kernels import gemm, pointwise
from wavedsl.codegen.ptx.emit import compile_kernel_ir
from wavedsl.codegen.ptx.machine import Imm
from wavedsl.codegen.ptx.target import TARGETS
from wavedsl.ir import dtypes as dt
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_ir import F32, F64, I32, I64, Param
from wavedsl.ir.loc import Loc
from wavedsl.runtime.toolchain import assemble_ptx

import wavedsl as wd

SM80 = TARGETS["sm_80"]


def test_source_lines_are_named(tmp_path: Path, oracle: Callable[[str], str]) -> None:
    oracle("ptxas")
    source = tmp_path / "kérnel.py"
    source.write_text("first\nc = a + b  # Größe\nthird\n")

    def build(b: Builder, x, y):
        with b.loc(Loc(str(source), 2, 4, 9)):
            total = b.fadd(x, y)
        with b.loc(Loc(str(source), 3, 0, 5)):
            return [b.fmul(total, y)]

    text = compile_kernel_ir(pointwise(SM80, [dt.f32, dt.f32], [dt.f32], build), SM80).text
    assert text.isascii() and '.file 1 "' in text
    lines = [line.strip() for line in text.split("\n")]
    at = lines.index(".loc 1 2 5  // c = a + b  # Gr\\xf6\\xdfe")
    assert lines[at + 1].startswith("add.rn.f32")
    assert lines[at + 2].startswith(".loc 1 3 1")
    assert assemble_ptx(text, "sm_80").entries


@pytest.mark.parametrize("name", ["copy", "add", "_k", "größe", "9lives", "mov", "a.b"])
def test_any_python_name_makes_a_legal_entry(name: str, oracle: Callable[[str], str]) -> None:
    oracle("ptxas")
    kernel = pointwise(SM80, [dt.i32], [dt.i32], lambda b, x: [x])
    kernel.name = name
    kernel.params[0].name = name
    program = compile_kernel_ir(kernel, SM80)
    assert assemble_ptx(program.text, "sm_80").entries[0].name == program.entry


def test_parameters_keep_order_width_and_alignment(oracle: Callable[[str], str]) -> None:
    oracle("ptxas")
    scalars = [
        (dt.i32, I32),
        (dt.f64, F64),
        (dt.f32, F32),
        (dt.i64, I64),
        (dt.i8, I32),
        (dt.f16, F32),
        (dt.u16, I32),
        (dt.bf16, F32),
    ]
    params, offset = [], 0
    for i, (d, _) in enumerate(scalars):
        offset = -(-offset // d.bytes) * d.bytes
        params.append(Param(f"s{i}", "scalar", d, offset, d.bytes))
        offset += d.bytes
    params.append(Param("y", "pointer", dt.f64, -(-offset // 8) * 8, 8, access="write"))
    b = Builder(new_kernel("scalars", "sm_80", wave_size=32, waves=1, params=params, grid=(1, 1, 1)), SM80)
    y = b.buffer(b.param(len(scalars)), 64)
    total = b.f64(0.0)
    for i, (_, t) in enumerate(scalars):
        v = b.param(i, t)
        total = b.fadd(total, v if t is F64 else b.cvt(v, F64))
    b.store_global(y, b.mul(b.lane(), 0), total)
    program = compile_kernel_ir(b.finish(), SM80)
    declared = [line.split()[1] for line in program.text.split("\n") if line.startswith("    .param")]
    assert declared == [".b32", ".b64", ".b32", ".b64", ".b8", ".b16", ".b16", ".b16", ".u64"]
    assert assemble_ptx(program.text, "sm_80").entries

    import numpy as np
    from wavedsl.runtime import emulator

    given = [
        np.int32(-3),
        np.float64(0.25),
        np.float32(1.5),
        np.int64(2**40),
        np.int8(-7),
        np.float16(0.5),
        np.uint16(65535),
        np.dtype(dt.bf16.numpy).type(4),
    ]
    out = np.zeros(8)
    emulator.run(program.text, target="sm_80", grid=(1, 1, 1), block=(32, 1, 1), args=[*given, out], checks=True)
    assert out[0] == sum(float(g) for g in given)


def test_the_version_is_the_oldest_that_has_everything() -> None:
    text = compile_kernel_ir(gemm(SM80, 64, 64, 32), SM80).text
    assert ".version 7.4\n" in text
    fp8 = pointwise(SM80, [dt.f16], [dt.f32], lambda b, w: [b.unpack(w, dt.f8e5m2, 1)])
    assert ".version 8.1\n" in compile_kernel_ir(fp8, TARGETS["sm_89"]).text


def test_a_workgroup_that_no_chip_has_is_refused() -> None:
    kernel = pointwise(SM80, [dt.i32], [dt.i32], lambda b, x: [x])
    kernel.waves = 33
    with pytest.raises(ConstraintError, match="1056 threads"):
        compile_kernel_ir(kernel, SM80)


@pytest.mark.parametrize(
    ("imm", "type_", "text"),
    [
        (Imm(-1), "s32", "-1"),
        (Imm(-1), "u32", "4294967295"),
        (Imm(-1), "b32", "0xffffffff"),
        (Imm(0xFFFFFFFF), "s32", "-1"),
        (Imm(5), "b32", "5"),
        (Imm(-1), "s64", "-1"),
        (Imm(-1), "u64", str(2**64 - 1)),
        (Imm(1.0, "f32"), "f32", "0f3F800000"),
        (Imm(1.0, "f32"), "b32", "0x3f800000"),
        (Imm(-0.0, "f64"), "f64", "0d8000000000000000"),
        (Imm(0), "f32", "0f00000000"),
        (Imm(math.inf, "f32"), "f32", "0f7F800000"),
        (Imm(0.1, "f64"), "f64", "0d3FB999999999999A"),
    ],
)
def test_literals(imm: Imm, type_: str, text: str) -> None:
    assert imm.spell(type_) == text


def test_the_header_counts_waves_as_what_they_are():
    """Warpgroups of 128 threads are no warps, and a grid of run-time extents has no number."""
    m, n, k = wd.symbols("M N K")

    def head(target, dynamic=()):
        @wd.wave([wd.WorkgroupConstraint(m, 128, 0), wd.WorkgroupConstraint(n, 128, 1), wd.TilingConstraint(k, 64)])
        def gemm(a: wd.Memory[m, k, wd.SHARED, wd.f16], b: wd.Memory[n, k, wd.SHARED, wd.f16],
                 c: wd.Memory[m, n, wd.f32]):  # fmt: skip
            @wd.iterate(k, init_args=[wd.Register[m, n, wd.f32](0.0)])
            def loop(acc):
                return wd.mma(wd.read(a), wd.read(b), acc)

            wd.write(loop, c)

        sizes = {s: x for s, x in {m: 256, n: 256, k: 256}.items() if s not in dynamic}
        return gemm.compile(target=target, subs=sizes, dynamic=list(dynamic)).asm.splitlines()[0]

    assert head("sm_90a").endswith("grid 2 x 2 x 1, block 384 (3 warpgroups)")
    assert head("sm_80", (m,)).endswith("grid dynamic x 2 x 1, block 128 (4 warps)")
