"""Memory ops through the PTX back end: widths, masks, addresses, shared memory, asynchronous copies, ldmatrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from wavedsl.codegen.ptx.emit import PtxProgram, compile_kernel_ir
from wavedsl.codegen.ptx.target import TARGETS
from wavedsl.ir import dtypes as dt
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_ir import B64, F64, I32, I64, Kernel, Param, vector
from wavedsl.runtime.toolchain import assemble_ptx

SM80 = TARGETS["sm_80"]
THREADS = 64


def kernel_of(
    build: Callable[[Builder, Any, Any], None], *, shared: int = 0, size: int = 4096, scalars: int = 0
) -> Kernel:
    """Two byte arrays `x` (read) and `y` (written) of `size` bytes, 64 threads; then i32 arguments."""
    params = [
        Param("x", "pointer", dt.u8, 0, 8, access="read"),
        Param("y", "pointer", dt.u8, 8, 8, access="write"),
        *(Param(f"n{i}", "scalar", dt.i32, 16 + 4 * i, 4) for i in range(scalars)),
    ]
    kernel = new_kernel("k", "sm_80", wave_size=32, waves=2, params=params, grid=(1, 1, 1), shared_bytes=shared)
    b = Builder(kernel, SM80)
    build(b, b.buffer(b.param(0), size), b.buffer(b.param(1), size))
    return b.finish()


def run(kernel: Kernel, size: int = 4096, scalars: tuple[int, ...] = ()) -> tuple[np.ndarray, np.ndarray, PtxProgram]:
    from wavedsl.runtime import emulator

    program = compile_kernel_ir(kernel, SM80)
    x = np.random.default_rng(3).integers(0, 256, size, dtype=np.uint8)
    y = np.full(size, 0xEE, np.uint8)
    emulator.run(
        program.text,
        target="sm_80",
        grid=(1, 1, 1),
        block=(THREADS, 1, 1),
        args=[x, y, *(np.int32(s) for s in scalars)],
        shared_bytes=program.dynamic_shared_bytes,
        checks=True,
    )
    return x, y, program


@pytest.mark.parametrize(
    ("bytes_", "type_"),
    [
        (1, vector(1)),
        (2, vector(1)),
        (4, vector(1)),
        (8, vector(2)),
        (12, vector(3)),
        (16, vector(4)),
        (8, F64),
        (8, I64),
        (16, vector(2, "f64")),
        (8, B64),
        (4, I32),
        (16, vector(4, "f32")),
    ],
)
@pytest.mark.parametrize("through_shared", [False, True])
def test_every_width_copies(bytes_: int, type_: Any, through_shared: bool) -> None:
    pitch = 16

    def build(b: Builder, x: Any, y: Any) -> None:
        at = b.mul(b.tid(), pitch)
        value = b.load_global(x, at, bytes=bytes_, type=type_)
        if through_shared:
            b.store_shared(at, value, bytes=bytes_)
            b.barrier()
            other = b.xor(at, 16 * 33)
            value = b.load_shared(other, bytes=bytes_, type=type_)
            at = other
        b.store_global(y, at, value, bytes=bytes_)

    x, y, _ = run(kernel_of(build, shared=1024 if through_shared else 0))
    want = np.full(4096, 0xEE, np.uint8).reshape(-1, pitch)
    want[:THREADS, :bytes_] = x.reshape(-1, pitch)[:THREADS, :bytes_]
    np.testing.assert_array_equal(y, want.reshape(-1))


def test_narrow_loads_are_zero_extended_and_high_stores_the_upper_half() -> None:
    def build(b: Builder, x: Any, y: Any) -> None:
        at = b.mul(b.tid(), 4)
        b.store_global(y, at, b.load_global(x, at, bytes=1), bytes=4)
        b.store_global(y, at, b.load_global(x, at, bytes=2), bytes=4, imm=1024)
        b.store_global(y, at, b.load_global(x, at, bytes=4), bytes=2, imm=2048, high=True)

    x, y, _ = run(kernel_of(build))
    words = x.view(np.uint32)[:THREADS]
    out = y.view(np.uint32)
    np.testing.assert_array_equal(out[:64], words & 0xFF)
    np.testing.assert_array_equal(out[256:320], words & 0xFFFF)
    np.testing.assert_array_equal(y.view(np.uint16)[1024:1152:2], words >> 16)


def test_masks_and_guards() -> None:
    def build(b: Builder, x: Any, y: Any) -> None:
        tid = b.tid()
        at = b.mul(tid, 16)
        guard = b.cmp("sgt", b.param(2), 0)
        off = b.cmp("sgt", b.param(2), 5)
        odd = b.cmp("ne", b.and_(tid, 1), 0)
        # Masked-off lanes would read and write far outside.
        far = b.select(odd, at, b.i32(1 << 20))
        value = b.load_global(x, far, bytes=16, mask=odd, guard=guard)
        b.store_global(y, at, value, bytes=16)
        b.store_global(y, far, b.slice(value, 0, 2), mask=odd, imm=1024)
        b.store_global(y, at, b.slice(value, 3), guard=off, imm=2048)
        b.store_global(y, at, b.load_global(x, at, mask=b.false), bytes=4, imm=2048 + 4)

    x, y, program = run(kernel_of(build, scalars=1), scalars=(1,))
    rows, out = x.reshape(-1, 16), y.reshape(-1, 16)
    odd = np.arange(64) % 2 == 1
    np.testing.assert_array_equal(out[:64], np.where(odd[:, None], rows[:64], 0))
    np.testing.assert_array_equal(out[64:128, :8], np.where(odd[:, None], rows[:64, :8], 0xEE))
    assert (out[128:192, :4] == 0xEE).all() and (out[128:192, 4:8] == 0).all()
    assert program.text.count("and.pred") == 1


def test_offsets_are_unsigned_and_sums_may_pass_two_gigabytes() -> None:
    """voff with its top bit set is a large offset, not a negative one."""

    def build(b: Builder, x: Any, y: Any) -> None:
        top = b.add(b.param(2), b.mul(b.tid(), 4))
        value = b.load_global(x, top, b.param(3), bytes=4)
        b.store_global(y, b.mul(b.tid(), 4), value)

    kernel = kernel_of(build, scalars=2)
    text = compile_kernel_ir(kernel, SM80).text
    assert text.count("cvt.u64.u32") == 3
    assert "cvt.s64" not in text


def test_accesses_that_differ_in_the_immediate_share_an_address() -> None:
    def build(b: Builder, x: Any, y: Any) -> None:
        at = b.mul(b.tid(), 4)
        values = [b.load_global(x, at, imm=256 * i) for i in range(8)]
        for i, v in enumerate(values):
            b.store_global(y, at, v, imm=256 * (7 - i))

    x, y, program = run(kernel_of(build))
    np.testing.assert_array_equal(y[:2048].reshape(8, 256), x[:2048].reshape(8, 256)[::-1])
    assert program.text.count("add.s64") == 2
    # At the last load: 7 words are there, and two words each of its address, the lane offset and the output's base.
    assert program.pressure == 7 + 6


def test_constant_terms_of_an_offset_go_to_the_immediate() -> None:
    """The same two addresses, the constant once in the lane offset and once in the uniform one."""

    def build(b: Builder, x: Any, y: Any) -> None:
        lane, base = b.mul(b.tid(), 4), b.mul(b.param(2, lo=0, hi=100), 4)
        first = b.load_global(x, lane, b.add(base, 128), imm=8, split=False)
        second = b.load_global(x, b.add(lane, 256), base, imm=4, split=False)
        b.store_global(y, lane, first)
        b.store_global(y, lane, second, imm=256)

    x, y, program = run(kernel_of(build, scalars=1), scalars=(5,))
    np.testing.assert_array_equal(y[:256], x[156 : 156 + 256])
    np.testing.assert_array_equal(y[256:512], x[280 : 280 + 256])
    assert program.text.count("add.s64") == 3 and "+136]" in program.text and "+260]" in program.text


def test_loop_invariant_address_parts_stay_before_the_loop() -> None:
    def build(b: Builder, x: Any, y: Any) -> None:
        lane = b.mul(b.tid(), 4)
        with b.for_(0, 1024, 256, [b.i32(0)], label="walk") as loop:
            v = b.load_global(x, lane, loop.iv, bytes=4, type=I32, split=False)
            b.store_shared(lane, v)
            w = b.load_shared(b.add(lane, b.and_(loop.carried[0], 0)), type=I32)
            loop.yield_(b.add(loop.carried[0], w))
        b.store_global(y, lane, loop.results[0])

    x, y, program = run(kernel_of(build, shared=256))
    words = x.view(np.int32)[:256].reshape(4, 64)
    np.testing.assert_array_equal(y.view(np.int32)[:64], words.sum(0, dtype=np.int32))
    (loop,) = program.resources.loops
    body = program.text.split("$walk:")[1].split("bra")[0]
    # One conversion and one 64-bit addition per trip, nothing of the shared address.
    assert body.count("cvt.u64.u32") == 1 and body.count("add.s64") == 1
    assert "smem" not in body and loop.instructions["lsu"] == 3


@pytest.mark.parametrize("bytes_", [4, 8, 16])
def test_asynchronous_copies(bytes_: int) -> None:
    def build(b: Builder, x: Any, y: Any) -> None:
        tid = b.tid()
        at = b.mul(tid, 16)
        keep = b.cmp("slt", tid, b.param(2))
        # Lanes that do not copy point far outside; their slots become zero.
        source = b.select(keep, at, b.i32(1 << 24))
        b.copy_async(x, source, at, bytes=bytes_, mask=keep, buffer="t", cache="keep")
        b.copy_commit()
        b.copy_async(x, at, b.add(at, 1024), bytes=bytes_, imm=1024, buffer="t")
        b.copy_commit()
        b.copy_wait(1)
        b.barrier()
        flipped = b.xor(at, 16 * 33)
        n = bytes_ // 4
        b.store_global(y, flipped, b.load_shared(flipped, bytes=bytes_, type=vector(n)))
        b.copy_wait(0)
        b.barrier()
        b.store_global(y, flipped, b.load_shared(b.add(flipped, 1024), bytes=bytes_, type=vector(n)), imm=1024)

    x, y, program = run(kernel_of(build, shared=2048, scalars=1), scalars=(40,))
    rows, out = x.reshape(-1, 16), y.reshape(-1, 16)
    keep = (np.arange(64) < 40)[:, None]
    np.testing.assert_array_equal(out[:64, :bytes_], np.where(keep, rows[:64, :bytes_], 0))
    np.testing.assert_array_equal(out[64:128, :bytes_], rows[64:128, :bytes_])
    assert ("cp.async.cg" if bytes_ == 16 else "cp.async.ca") in program.text
    assert "L2::cache_hint" not in program.text  # ptxas 13.0 can make an illegal instruction of it


@pytest.mark.parametrize(
    "atom", [a for a in SM80.load_atoms if a.name != "vector"], ids=lambda a: f"{a.name} of {a.elsizes[0]} bytes"
)
def test_ldmatrix_follows_its_layout(atom: Any) -> None:
    """Value (lane, element) comes from the row that lane L supplies, at position x: strings of the target's atom."""
    words = atom.bytes // 4

    def build(b: Builder, x: Any, y: Any) -> None:
        tid, lane = b.tid(), b.lane()
        at = b.mul(tid, 16)
        b.store_shared(at, b.load_global(x, at, bytes=16), buffer="t")
        b.barrier()
        row = b.add(b.mul(b.wave(), 512), b.mul(b.xor(lane, 3), 16))
        value = b.load_shared(row, bytes=atom.bytes, type=vector(words), atom=atom.name)
        for i, w in enumerate(b.elements(value)):
            b.store_global(y, b.mul(tid, 4 * words), w, imm=4 * i)

    x, y, _ = run(kernel_of(build, shared=1024))
    (size,) = atom.elsizes
    count = atom.bytes // size
    rows = x.view(f"u{size}").reshape(-1, 16 // size)
    out = y.view(f"u{size}")[: THREADS * count].reshape(THREADS, count)
    for thread in range(THREADS):
        for element in range(count):

            def bits(text: str, lane: int = thread % 32, element: int = element) -> int:
                source = {"l": lane, "e": element}
                return sum(((source[t[0]] >> int(t[1:])) & 1) << i for i, t in enumerate(text.split()))

            row = thread // 32 * 32 + (bits(atom.lane) ^ 3)
            assert out[thread, element] == rows[row, bits(atom.element)]


def test_large_shared_memory_is_dynamic(oracle: Callable[[str], str]) -> None:
    oracle("ptxas")

    def build(b: Builder, x: Any, y: Any) -> None:
        at = b.mul(b.tid(), 4)
        b.store_shared(b.add(at, 60000), b.load_global(x, at))
        b.store_global(y, at, b.load_shared(b.add(at, 60000)))

    kernel = kernel_of(build, shared=64 * 1024)
    x, y, program = run(kernel)
    np.testing.assert_array_equal(x[:256], y[:256])
    assert program.dynamic_shared_bytes == 65536
    assert ".extern .shared .align 1024 .b8 smem[]" in program.text
    for arch in ("sm_80", "sm_90", "sm_100"):
        assert assemble_ptx(program.text, arch).entries[0].spill_stores == 0


def test_too_much_shared_memory_names_the_limit() -> None:
    with pytest.raises(ConstraintError, match="166912"):
        compile_kernel_ir(kernel_of(lambda b, x, y: None, shared=200_000), SM80)


def test_fp8_conversions_name_the_chip_they_need() -> None:
    def build(b: Builder, x: Any, y: Any) -> None:
        at = b.mul(b.tid(), 4)
        b.store_global(y, at, b.unpack(b.load_global(x, at), dt.f8e4m3, 0))

    kernel = kernel_of(build)
    with pytest.raises(CompileError, match="sm_89"):
        compile_kernel_ir(kernel, SM80)
    assert "cvt.rn.f16x2.e4m3x2" in compile_kernel_ir(kernel, TARGETS["sm_89"]).text


def test_unknown_load_atom_is_refused() -> None:
    def build(b: Builder, x: Any, y: Any) -> None:
        b.load_shared(b.mul(b.tid(), 16), bytes=16, atom="tr_b16")

    with pytest.raises(CompileError, match="tr_b16"):
        compile_kernel_ir(kernel_of(build, shared=1024), SM80)


def test_a_neighbour_before_the_first_stands_in_the_brackets() -> None:
    """Its offset is below zero for lane 0, which a mask keeps away; all lanes' addresses are one register."""
    def build(b: Builder, x: Any, y: Any) -> None:
        at = b.shl(b.tid(), 2)
        before = b.sub(at, 4)
        inside = b.cmp("sge", before, 0)
        found = b.load_global(x, before, type=I32, mask=inside, split=False)
        own = b.load_global(x, b.add(before, 4), type=I32, split=False)
        b.store_global(y, at, b.add(found, own))

    x, y, program = run(kernel_of(build))
    words = x.view(np.uint32)[:64]
    want = words + np.r_[0, words[:-1]].astype(np.uint32)
    assert (y.view(np.uint32)[:64] == want).all()
    assert "+-4]" in program.text and program.text.count("cvt.u64") == 1 and "cvt.s64" not in program.text


def test_offsets_of_any_value_keep_their_32_bits() -> None:
    """What may be more than 2 GiB, or a sum that may wrap, is one number without a sign."""
    def build(b: Builder, x: Any, y: Any) -> None:
        far = b.param(2)  # of any value, and no less than the distance is taken off
        at = b.add(b.add(far, b.shl(b.tid(), 2)), -(1 << 30))
        b.store_global(y, b.shl(b.tid(), 2), b.load_global(x, at, split=False))

    x, y, program = run(kernel_of(build, scalars=1), scalars=((1 << 30) + 16,))
    assert (y[:256] == x[16:272]).all()
    assert "cvt.s64" not in program.text and "+-" not in program.text
