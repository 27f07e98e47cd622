"""A hand-written GEMM through the whole back end: numbers, counts, text, and what happens when registers run short."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.errors import RegisterPressureError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Kernel, vector
from wavedsl.ir.loc import Loc
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")
GOLDEN = Path(__file__).parents[2] / "golden" / "amdgcn"


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("size", [(64, 64, 32), (64, 128, 96), (128, 64, 256)])
def test_gemm_equals_numpy(chip: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (m, k)).astype(np.float16)
    b = rng.integers(-3, 4, (n, k)).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    text = compile_kernel_ir(kernels.gemm(chip, m, n, k), get_target(chip)).text
    run(text, target=chip, grid=(m // 64, n // 64, 1), block=(256, 1, 1), args=[a, b, c], checks=True)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("chip", CHIPS)
def test_text_is_the_golden_one(chip: str) -> None:
    """WAVEDSL_UPDATE_GOLDEN=1 rewrites the file; read the difference before committing it."""
    text = compile_kernel_ir(kernels.gemm(chip, 256, 256, 256, Loc("gemm.py", 12, 4, 20)), get_target(chip)).text
    path = GOLDEN / f"gemm_{chip}.s"
    if os.environ.get("WAVEDSL_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("chip", CHIPS)
def test_resources(chip: str) -> None:
    """Counts of the text equal the report; the loop holds what it must and nothing more."""
    program = compile_kernel_ir(kernels.gemm(chip, 256, 256, 256, Loc("gemm.py", 12)), get_target(chip))
    r = program.resources
    code = program.text.split("gemm:\n")[1].split(".Lgemm_end")[0]
    lines = [x.split()[0] for x in code.splitlines() if x.startswith("\t") and not x.strip().startswith((".", ";"))]
    assert sum(r.instructions.values()) == len(lines)
    assert r.instructions["mfma"] == sum("mfma" in x for x in lines) == 8
    assert r.instructions["vmem"] == sum(x.startswith("buffer") for x in lines) == 20
    (loop,) = r.loops
    assert loop.instructions["mfma"] == 8 and loop.instructions["vmem"] == 2 and loop.instructions["ds"] == 8
    assert loop.instructions["valu"] <= 2 and loop.instructions["accmove"] == 0
    assert loop.instructions["barrier"] == 2 and loop.line == 12 and loop.steps == 1
    assert r.vgprs <= 48 and r.occupancy == 8 and r.agprs == 0 and r.shared_bytes == 8192 and r.spills == 0


@pytest.mark.parametrize("chip", CHIPS)
def test_assembles_and_links(chip: str, oracle: Callable[[str], str], tmp_path: Path) -> None:
    source, object_, binary = (tmp_path / f"k.{x}" for x in ("s", "o", "hsaco"))
    source.write_text(compile_kernel_ir(kernels.gemm(chip, 64, 64, 64, Loc("gemm.py", 12)), get_target(chip)).text)
    zig = oracle("zig")
    clang = [zig, "clang", "-target", "amdgcn-amd-amdhsa", f"-mcpu={chip}", "-c", str(source), "-o", str(object_)]
    for command in (clang, [zig, "ld.lld", "-shared", str(object_), "-o", str(binary)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert binary.read_bytes()[:4] == b"\x7fELF"


def many_accumulators(chip: str, count: int, waves: int = 4) -> Kernel:
    """`count` 32x32 accumulators carried through a loop, then stored as they are."""
    target = get_target(chip)
    atom = next(a for a in target.mma_atoms if a.name == "F32_32x32x8_F16")
    kernel = kernels.new_kernel("many", chip, ["a", "b", "c"], waves)
    b = Builder(kernel, target)
    tid = b.tid()
    size = 64 * waves
    off = b.mul(tid, 8)
    bufs = [b.buffer(b.param(i), size * 8 * (count if i else 1) * 4) for i in range(2)]
    with b.for_(0, 4, 1, [b.zero(vector(16, "f32"))] * count, label="k") as loop:
        acc = list(loop.carried)
        where = b.add(off, b.mul(loop.iv, 8 * size))
        x = b.load_global(bufs[0], where, bytes=8, type=vector(2))
        for i in range(count):
            y = b.load_global(bufs[1], where, bytes=8, type=vector(2), imm=8 * 4 * size * i, split=False)
            acc[i] = b.mma(atom, x, y, acc[i])
        loop.yield_(acc)
    out = b.buffer(b.param(2), size * 64 * count)
    for i, d in enumerate(loop.results):
        doubled = b.fadd(d, d)
        for part in range(4):
            words = b.bitcast(b.slice(doubled, 4 * part, 4), vector(4))
            b.store_global(out, b.mul(tid, 64), words, bytes=16, imm=64 * size * i + 16 * part, split=False)
    return kernel


@pytest.mark.parametrize("chip", CHIPS)
def test_accumulators_move_to_the_accumulation_file(chip: str) -> None:
    """320 registers of accumulators do not fit 256 vector registers."""
    count, waves = 20, 4
    size = 64 * waves
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (4, size, 4)).astype(np.float16)
    b = rng.integers(-2, 3, (count, 4, size, 4)).astype(np.float16)
    c = np.zeros((count, size, 16), np.float32)
    program = compile_kernel_ir(many_accumulators(chip, count), get_target(chip))
    r = program.resources
    assert 64 <= r.agprs <= 256 and r.vgprs <= 256 and r.registers == (r.vgprs + 3) // 4 * 4 + r.agprs
    assert r.occupancy == 1
    assert r.loops[0].instructions["accmove"] == 0
    run(program.text, target=chip, grid=(1, 1, 1), block=(size, 1, 1), args=[a, b, c], checks=True)
    lane = np.arange(64)
    for w in range(waves):
        part = slice(64 * w, 64 * w + 64)
        for i in range(count):
            want = np.zeros((32, 32))
            for step in range(4):
                fa, fb = a[step, part].astype(float), b[i, step, part].astype(float)
                matrix_a, matrix_b = np.zeros((32, 8)), np.zeros((8, 32))
                for e in range(4):
                    matrix_a[lane % 32, 4 * (lane // 32) + e] = fa[:, e]
                    matrix_b[4 * (lane // 32) + e, lane % 32] = fb[:, e]
                want += matrix_a @ matrix_b
            r = np.arange(16)
            rows = 8 * (r // 4)[None] + 4 * (lane // 32)[:, None] + (r % 4)[None]
            assert np.array_equal(c[i, part], 2 * want[rows, (lane % 32)[:, None]])


def test_too_many_registers_is_an_error_that_names_them() -> None:
    """1600 registers of accumulators: not even scratch takes what 256 registers do not."""
    with pytest.raises(RegisterPressureError) as failure:
        compile_kernel_ir(many_accumulators("gfx942", 100, waves=8), get_target("gfx942"))
    message = str(failure.value)
    assert "carried" in message and "256 are available" in message and "smaller wave tile" in message
