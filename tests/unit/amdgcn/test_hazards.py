"""Nops: enough of them, and no more, on every path; against the hazard rules and the emulator's count."""

from __future__ import annotations

import re

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.builder import Builder
from wavedsl.ir.errors import EmulationError
from wavedsl.ir.kernel_ir import B32, F32, I32, Kernel, vector
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")


def chained(chip: str) -> Kernel:
    """A matrix result, a mask and an exp2 used at once, a DPP read, a lane read into an address."""
    target = get_target(chip)
    atom = next(a for a in target.mma_atoms if a.name == "F32_16x16x16_F16")
    kernel = kernels.new_kernel("chained", chip, ["x", "y"])
    b = Builder(kernel, target)
    tid = b.tid()
    x = b.load_global(b.buffer(b.param(0), 1024), b.mul(tid, 16), bytes=16, type=vector(4))
    d = b.mma(atom, b.slice(x, 0, 2), b.slice(x, 2, 2), b.zero(vector(4, "f32")))
    first = b.fadd(b.slice(d, 0), b.f32(1.0))
    e = b.fadd(b.exp2(b.fmul(first, b.f32(0.125))), first)
    swapped = b.shuffle_xor(b.bitcast(e, I32), 1)
    picked = b.select(b.cmp("slt", swapped, 0), b.bitcast(swapped, F32), e)
    where = b.emit("readfirst", (b.and_(b.bitcast(picked, I32), 0),))
    b.store_global(b.buffer(b.param(1), 1024), b.mul(tid, 4), b.bitcast(picked, B32), soff=where, bytes=4)
    return kernel


def execute(text: str, chip: str) -> set[str]:
    """Kinds of findings; the result must be right when there is none."""
    x = np.random.default_rng(0).integers(-2, 3, (64, 8)).astype(np.float16)
    y = np.zeros(256, np.float32)
    try:
        run(text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[x, y], checks=True)
    except EmulationError as error:
        return {f.kind for f in error.report.findings}  # type: ignore[attr-defined]
    return set()


@pytest.mark.parametrize("chip", CHIPS)
def test_every_shortened_nop_is_a_hazard(chip: str) -> None:
    text = compile_kernel_ir(chained(chip), get_target(chip)).text
    assert execute(text, chip) == set()
    nops = list(re.finditer(r"\ts_nop +(\d+)\n", text))
    assert nops
    for m in nops:
        n = int(m.group(1))
        shorter = f"\ts_nop {n - 1}\n" if n else ""
        assert execute(text[: m.start()] + shorter + text[m.end() :], chip) == {"hazard"}, m.group()


@pytest.mark.parametrize("chip", CHIPS)
def test_hazard_across_the_back_edge(chip: str) -> None:
    """The matrix result of one trip is read by the first instruction of the next."""
    target = get_target(chip)
    atom = next(a for a in target.mma_atoms if a.name == "F32_32x32x8_F16")
    kernel = kernels.new_kernel("edge", chip, ["x", "y"])
    b = Builder(kernel, target)
    tid = b.tid()
    x = b.load_global(b.buffer(b.param(0), 1024), b.mul(tid, 16), bytes=16, type=vector(4))
    with b.for_(0, 3, 1, [b.f32(0.0), b.zero(vector(16, "f32"))], uniform=[False, False]) as loop:
        total, acc = loop.carried
        total = b.fadd(total, b.slice(acc, 3))
        loop.yield_(total, b.mma(atom, b.slice(x, 0, 2), b.slice(x, 2, 2), acc))
    b.store_global(b.buffer(b.param(1), 1024), b.mul(tid, 4), b.bitcast(loop.results[0], B32), bytes=4)
    text = compile_kernel_ir(kernel, target).text
    assert execute(text, chip) == set()
    assert "s_nop" in text.split("loop over")[1]
    assert execute(re.sub(r"\ts_nop +\d+\n", "", text), chip) == {"hazard"}


@pytest.mark.parametrize("chip", CHIPS)
def test_no_nop_where_distance_is_enough(chip: str) -> None:
    """The GEMM's loop needs none: matrix results are chained, and read long after."""
    program = compile_kernel_ir(kernels.gemm(chip, 128, 128, 128), get_target(chip))
    assert program.resources.loops[0].instructions["nop"] == 0
