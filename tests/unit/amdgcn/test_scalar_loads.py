"""What all lanes load from one place comes through the scalar unit: where nobody writes it, and no wait for LDS is a
wait for it."""

from __future__ import annotations

import re

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.dtypes import DType, f16, f32, i32, i64
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32, I32, I64, Kernel, Param, Value, vector
from wavedsl.runtime.emulator import run

import wavedsl as wd

CHIPS = ("gfx90a", "gfx942", "gfx950")
M, N, BN, E = wd.sym.M, wd.sym.N, wd.sym.BN, wd.sym.E


def start(chip: str, access: str = "read", dtype: DType = f32) -> Builder:
    """x, y and a number n."""
    kernel = kernels.new_kernel("scalar", chip, ["x", "y"], grid=(4, 1, 1))
    kernel.params[0] = Param("x", "pointer", dtype, 0, 8, access=access)
    kernel.params.append(Param("n", "scalar", i32, 16, 4))
    return Builder(kernel, get_target(chip))


def emulate(kernel: Kernel, args: list[object]) -> str:
    """Compile, run four workgroups with all checks; the text."""
    text = compile_kernel_ir(kernel, get_target(kernel.target)).text
    run(text, target=kernel.target, grid=(4, 1, 1), block=(64, 1, 1), args=args, checks=True)
    return text


def stored(b: Builder, v: Value) -> None:
    """y[64 workgroup + lane] = v"""
    at = b.add(b.mul(b.wgid(0), 256), b.mul(b.tid(), 4))
    b.store_global(b.buffer(b.param(1), 1024), at, b.bitcast(v, B32), bytes=4)


def number(b: Builder, size: int = 64, **rest: object) -> Value:
    """The workgroup's element of x, which has `size` bytes."""
    return b.load_global(b.buffer(b.param(0), size), b.mul(b.wgid(0), 4), bytes=4, type=B32, **rest)


def vector_loads(text: str) -> int:
    return len(re.findall(r"^\tbuffer_load", text, re.M))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("size", [16, 8])
def test_number_of_a_workgroup(chip: str, size: int) -> None:
    """Also behind the end of the buffer, by a register and an immediate, and as operand of both units."""
    b = start(chip)
    x = number(b, size)
    y = number(b, size, imm=4)
    total = b.add(b.readfirst(b.bitcast(x, I32), same=True), b.mul(b.bitcast(y, I32), b.tid()))
    stored(b, total)
    x, y = np.arange(5, 9, dtype=np.uint32), np.zeros((4, 64), np.uint32)
    text = emulate(b.kernel, [x, y, np.int32(0)])
    inside = np.where(np.arange(5) < size // 4, np.append(x, 0), 0)
    assert np.array_equal(y, inside[:4, None] + inside[1:, None] * np.arange(64))
    assert not vector_loads(text) and text.count("s_buffer_load_dword") == 2 and "v_readfirstlane" not in text


@pytest.mark.parametrize("chip", CHIPS)
def test_numbers_of_8_bytes(chip: str) -> None:
    b = start(chip, dtype=i64)
    x = b.load_global(b.buffer(b.param(0), 32), b.mul(b.wgid(0), 8), bytes=8, type=vector(2))
    wide = b.readfirst(b.bitcast(x, I64), same=True)
    stored(b, b.add(b.trunc(b.lshr(wide, 16)), b.tid()))
    x, y = np.random.default_rng(0).integers(0, 1 << 63, 4, np.int64), np.zeros((4, 64), np.uint32)
    text = emulate(b.kernel, [x, y, np.int32(0)])
    assert np.array_equal(y, ((x >> 16)[:, None] + np.arange(64)).astype(np.uint32))
    assert not vector_loads(text) and "s_buffer_load_dwordx2" in text


@pytest.mark.parametrize("chip", CHIPS)
def test_floats_are_operands_of_vector_instructions(chip: str) -> None:
    """Two of one instruction, a pair of the same one, one whose lanes move."""
    b = start(chip)
    x, y = (b.bitcast(number(b, 16, imm=i), F32) for i in (0, 4))
    lane = b.cvt(b.tid(), F32)
    a = b.ffma(x, y, b.fmul(lane, x))
    pair = b.fmul(b.vec(a, lane), b.vec(y, y))
    moved = b.fadd(b.bitcast(b.shuffle_xor(b.bitcast(x, B32), 1), F32), b.fmax(x, b.fneg(y)))
    stored(b, b.add_many([b.cvt(v, I32) for v in (b.slice(pair, 0), b.slice(pair, 1), moved)]))
    given, out = np.array([2, 3, 5, 7], np.float32), np.zeros((4, 64), np.int32)
    text = emulate(b.kernel, [given, out, np.int32(0)])
    p, q = given[:, None], np.append(given[1:], 0)[:, None]
    n = np.arange(64)
    assert np.array_equal(out, (p * q + n * p) * q + n * q + p + np.maximum(p, -q))
    assert not vector_loads(text)


@pytest.mark.parametrize("chip", CHIPS)
def test_guard(chip: str) -> None:
    b = start(chip)
    stored(b, number(b, 16, guard=b.cmp("slt", b.wgid(0), b.param(2, I32))))
    x, y = np.arange(5, 9, dtype=np.uint32), np.zeros((4, 64), np.uint32)
    text = emulate(b.kernel, [x, y, np.int32(3)])
    assert np.array_equal(y, np.broadcast_to([[5], [6], [7], [0]], y.shape))
    assert not vector_loads(text)


def written(b: Builder) -> Value:
    return number(b)


def half(b: Builder) -> Value:
    return b.load_global(b.buffer(b.param(0), 64), b.mul(b.wgid(0), 2), bytes=2, type=B32)


def wider(b: Builder) -> Value:
    wide = b.load_global(b.buffer(b.param(0), 64), b.mul(b.wgid(0), 8), bytes=8, type=vector(2))
    return b.add(b.bitcast(b.slice(wide, 0), I32), b.bitcast(b.slice(wide, 1), I32))


def hinted(b: Builder) -> Value:
    return number(b, cache="stream")


def masked(b: Builder) -> Value:
    return number(b, mask=b.cmp("slt", b.wgid(0), b.param(2, I32)))


def in_lane_order(b: Builder) -> Value:
    return b.load_global(b.buffer(b.param(0), 256), b.mul(b.tid(), 4), bytes=4, type=B32)


def beside_lds(b: Builder) -> Value:
    with b.for_(0, b.param(2, I32), 1, [b.i32(0)], label="trips") as loop:
        b.store_shared(b.mul(b.tid(), 4), b.bitcast(loop.carried[0], B32), bytes=4)
        x = b.load_global(b.buffer(b.param(0), 64), b.mul(loop.iv, 4), bytes=4, type=B32)
        own = b.load_shared(b.mul(b.tid(), 4), bytes=4, type=B32)
        loop.yield_([b.add(b.bitcast(x, I32), b.bitcast(own, I32))])
    return loop.results[0]


def apart_from_lds(b: Builder, between: bool = False, ahead: bool = False) -> Value:
    """A number per trip that is used before a lane's own goes through LDS, and after that of the trip before came back.
    `between`: it is used while that is on its way. `ahead`: what the next trip reads of LDS is on its way meanwhile."""
    at, start = b.mul(b.tid(), 4), b.i32(0)
    b.store_shared(at, b.bitcast(b.tid(), B32), bytes=4)
    first = b.load_shared(at, bytes=4, type=B32) if ahead else b.bitcast(start, B32)
    with b.for_(0, b.param(2, I32), 1, [start, first], label="trips", uniform=[False, False]) as loop:
        total, last = loop.carried
        x = b.load_global(b.buffer(b.param(0), 64), b.mul(loop.iv, 4), bytes=4, type=B32)
        own = b.add(total, b.tid()) if between else b.add(b.bitcast(x, I32), total)
        if ahead:
            own = b.add(own, b.bitcast(last, I32))
        b.store_shared(at, b.bitcast(own, B32), bytes=4)
        b.barrier()
        back = b.load_shared(at, bytes=4, type=B32)
        if not ahead:
            own = b.add(b.bitcast(x if between else back, I32), b.bitcast(back, I32))
        loop.yield_([own, back if ahead else last])
    return loop.results[0]


def between(b: Builder) -> Value:
    return apart_from_lds(b, between=True)


def ahead(b: Builder) -> Value:
    return apart_from_lds(b, ahead=True)


def handed_on(b: Builder) -> Value:
    with b.for_(0, b.param(2, I32), 1, [b.bitcast(in_lane_order(b), I32)], label="trips", uniform=[False]) as loop:
        x = b.load_global(b.buffer(b.param(0), 64), b.mul(loop.iv, 4), bytes=4, type=B32)
        loop.yield_([b.bitcast(x, I32)])
    return loop.results[0]


@pytest.mark.parametrize(
    ("make", "access", "dtype"),
    [
        (written, "readwrite", f32), (half, "read", f16), (wider, "read", f32), (hinted, "read", f32),
        (masked, "read", f32), (in_lane_order, "read", f32), (beside_lds, "read", f32), (handed_on, "read", f32),
        (between, "read", f32), (ahead, "read", f32),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chip", CHIPS)
def test_what_stays_with_the_vector_unit(chip: str, make: object, access: str, dtype: DType) -> None:
    b = start(chip, access, dtype)
    b.kernel.shared_bytes = 256
    stored(b, make(b))
    x, y = np.arange(64, dtype=np.uint32), np.zeros((4, 64), np.uint32)
    text = emulate(b.kernel, [x, y, np.int32(3)])
    assert "s_buffer_load" not in text and vector_loads(text)


@pytest.mark.parametrize("chip", CHIPS)
def test_numbers_that_nothing_of_lds_waits_for(chip: str) -> None:
    b = start(chip)
    b.kernel.shared_bytes = 256
    stored(b, apart_from_lds(b))
    x, y = np.arange(5, 9, dtype=np.uint32), np.zeros((4, 64), np.uint32)
    text = emulate(b.kernel, [np.resize(x, 16), y, np.int32(2)])
    assert (y == 2 * (2 * 5 + 6)).all()
    assert text.count("s_buffer_load_dword") == 1 and not vector_loads(text)


@pytest.mark.parametrize("chip", CHIPS)
def test_embedding_has_no_vector_load_of_its_index(chip: str) -> None:
    constraints = [wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, BN, 1), wd.WaveConstraint(N, BN)]

    @wd.wave(constraints, subs={BN: 512})
    def embed(table: wd.Memory[E, N, wd.f16], ids: wd.Memory[M, wd.i32], y: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(table, mapping=wd.IndexMapping((M, N), {E: wd.read(ids)})), y)

    table = np.random.default_rng(0).standard_normal((10, 512)).astype(np.float16)
    ids, y = np.array([3, 9, 0, 7, 11, -1], np.int32), np.ones((6, 512), np.float16)
    made = embed.compile(table, ids, y, target=chip)
    made.emulate(table, ids, y)
    assert np.array_equal(y[:4], table[ids[:4]]) and not y[4:].any()
    assert vector_loads(made.asm) == made.asm.count("buffer_load_dwordx4") == 1
    assert made.asm.count("s_buffer_load_dword") == 1
