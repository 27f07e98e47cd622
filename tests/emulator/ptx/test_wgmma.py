# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""wgmma against NumPy: every kind of operand and accumulator, layouts in shared memory, widths, signs, several steps."""

import ml_dtypes
import numpy as np
import pytest
from hopper_text import (
    COMMIT,
    COPY_IN,
    FENCE,
    a_index,
    d_index,
    described,
    laid_out,
    launch,
    module,
    multiply,
    registers_of,
    wgmma_text,
)
from wavedsl.codegen.ptx.isa_wgmma import TYPES, Descriptor, wgmma, widths
from wavedsl.ir import dtypes as dt
from wavedsl.runtime.emulator.ptx.wgmma_layout import addresses

NUMPY = {dt.f16: np.float16, dt.bf16: ml_dtypes.bfloat16, dt.tf32: np.float32, dt.f8e4m3: ml_dtypes.float8_e4m3fn,
         dt.f8e5m2: ml_dtypes.float8_e5m2, dt.i8: np.int8, dt.u8: np.uint8}  # fmt: skip
LOW = {dt.u8: 0}


def values(rng, shape, dtype):
    return rng.integers(LOW.get(dtype, -3), 4, shape).astype(NUMPY[dtype])


def fragments(a, dtype):
    """A [64, k] as registers [128, 4]."""
    rows, columns = a_index(dtype.bits)
    return np.ascontiguousarray(a[rows, columns]).view(np.uint32).reshape(128, 4)


def product(
    what,
    span=128,
    orders=(0, 0),
    signs=(1, 1),
    scale_d="1",
    steps=1,
    in_registers=False,
    seed=0,
    saturate=False,
    checks=True,
    run_seed=0,
):
    """Run D = ± A B^T (+ D) over `steps` of k and compare with NumPy."""
    rng = np.random.default_rng(seed)
    depth = what.k * steps
    a, b = values(rng, (64, depth), what.a_dtype), values(rng, (what.n, depth), what.b_dtype)
    item = a.dtype.itemsize
    image_a, la, sa = laid_out(a, span, orders[0])
    image_b, lb, sb = laid_out(b, span, orders[1])
    start_b = -(-len(image_a) // 1024) * 1024
    image = np.zeros(start_b + len(image_b), np.uint8)
    image[: len(image_a)], image[start_b:] = image_a, image_b

    def step(base, leading, stride, rows, mn, s):
        if mn:
            forward = what.k * span * s if span else what.k // 8 * leading * s
        elif span:
            byte = what.k * item * s
            forward = byte // span * rows * span + byte % span
        else:
            forward = what.k * item // 16 * leading * s
        return described(base + forward, leading, stride, span)

    pairs = [
        (None if in_registers else step(0, la, sa, 64, orders[0], s), step(start_b, lb, sb, what.n, orders[1], s))
        for s in range(steps)
    ]
    half = what.d_dtype == dt.f16
    kind = np.float16 if half else np.int32 if what.d_dtype == dt.i32 else np.float32
    old = rng.integers(-5, 6, (64, what.n)).astype(kind)
    rows, columns = d_index(what.n)
    init = np.ascontiguousarray(old[rows, columns]).view(np.uint32).reshape(128, -1)
    out = np.zeros_like(init)
    frag = np.concatenate([fragments(a[:, what.k * s : what.k * (s + 1)], what.a_dtype) for s in range(steps)], axis=1)
    text = wgmma_text(what, len(image), pairs, scale_d, in_registers, signs=signs, orders=orders, saturate=saturate)
    report = launch(
        text, [image, init, out, np.ascontiguousarray(frag)], shared=len(image), checks=checks, seed=run_seed
    )
    want = signs[0] * signs[1] * (a.astype(np.float64) @ b.astype(np.float64).T)
    if scale_d == "1":
        want = want + old
    got = np.zeros((64, what.n), kind)
    got[rows, columns] = out.view(kind).reshape(rows.shape)
    assert np.array_equal(got, want.astype(kind)), np.argwhere(got != want.astype(kind))[:5]
    return report


@pytest.mark.parametrize("a, b, d, k", TYPES, ids=lambda x: str(x))
@pytest.mark.parametrize("in_registers", [False, True])
def test_types(a, b, d, k, in_registers):
    product(wgmma(a, b, d, 32), in_registers=in_registers, steps=2)


@pytest.mark.parametrize("n", [8, 16, 24, 56, 104, 128, 192, 248, 256])
def test_widths(n):
    assert n in widths(dt.bf16)
    product(wgmma(dt.bf16, dt.bf16, dt.f32, n))


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("orders", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_layouts_of_16_bit_operands(span, orders):
    """Both orders under every swizzle, over several steps of k: past the end of a span or a group of k."""
    product(wgmma(dt.f16, dt.f16, dt.f32, 64), span, orders, steps=6 if span == 32 else 8)


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("a", [dt.tf32, dt.f8e4m3, dt.i8])
def test_layouts_of_other_operands(span, a):
    product(wgmma(a, a, dt.i32 if a == dt.i8 else dt.f32, 48), span, steps=4)


@pytest.mark.parametrize("signs", [(1, -1), (-1, 1), (-1, -1)])
@pytest.mark.parametrize("scale_d", ["0", "1"])
def test_signs_and_scale(signs, scale_d):
    product(wgmma(dt.f16, dt.f16, dt.f32, 24), signs=signs, scale_d=scale_d, steps=1 if scale_d == "0" else 3)


def test_order_flag_of_b_with_a_in_registers():
    product(wgmma(dt.bf16, dt.bf16, dt.f32, 64), orders=(0, 1), in_registers=True, steps=4)


def test_saturation():
    what = wgmma(dt.i8, dt.i8, dt.i32, 16)
    a, b = np.full((64, 32), 127, np.int8), np.full((16, 32), 127, np.int8)
    image = np.concatenate([laid_out(a, 32, 0)[0], laid_out(b, 32, 0)[0]])
    step = described(0, 16, 256, 32), described(2048, 16, 256, 32)
    init = np.full((128, 8), 2**31 - 100, np.int32)
    frag = np.zeros((128, 4), np.uint32)
    for saturate, want in ((True, 2**31 - 1), (False, 2**31 - 100 + 32 * 127 * 127 - 2**32)):
        out = np.zeros((128, 8), np.int32)
        text = wgmma_text(what, len(image), [step], "1", False, saturate=saturate)
        launch(text, [image, init.view(np.uint32), out.view(np.uint32), frag], shared=4096, checks=True)
        assert (out == want).all()


def test_tf32_drops_low_bits():
    """Operands lose the 13 bits that tf32 lacks."""
    what = wgmma(dt.tf32, dt.tf32, dt.f32, 8)
    a, b = np.full((64, 8), 1 + 2**-12, np.float32), np.full((8, 8), 1 + 2**-10, np.float32)
    image = np.concatenate([laid_out(a, 32, 0)[0], laid_out(b, 32, 0)[0]])
    out = np.zeros((128, 4), np.uint32)
    text = wgmma_text(what, len(image), [(described(0, 16, 256, 32), described(2048, 16, 256, 32))], "0", False)
    launch(
        text, [image, np.zeros((128, 4), np.uint32), out, np.zeros((128, 4), np.uint32)], shared=len(image), checks=True
    )
    assert (out.view(np.float32) == np.float32(8 * (1 + 2**-10))).all()


def test_address_bits_and_base_offset():
    """A tile that starts off the pattern's alignment reads the same bytes with the base offset of its start."""
    for span in (32, 64, 128):
        aligned = addresses(Descriptor(8 * span, 16, 8 * span, span), 2, 16, 16, False)
        for rows in range(8 * span // 128):
            start = 8 * span + 128 * rows
            moved = addresses(Descriptor(start, 16, 8 * span, span, start >> 7 & 7), 2, 16, 16, False)
            assert np.array_equal(moved - start, aligned - 8 * span)
    # Without one, absolute address bits count: what a bulk copy to that place has done.
    plain = addresses(Descriptor(1024 + 128, 16, 1024, 128), 2, 8, 64, False)
    assert plain[0] == 1024 + 128 + 16 and plain[8] == 1024 + 256 + 32


TWO = """{copy}
ld.param.u64 %d4, [out]; mul.wide.u32 %d5, %r0, 4; add.s64 %d4, %d4, %d5; setp.ne.u32 %p1, %r0, 1000;
cvt.u64.u32 %d10, %r1; shr.u64 %d10, %d10, 4; add.s64 %d11, %d10, {a}; add.s64 %d12, %d10, {b};
shr.u32 %r9, %r0, 7; setp.ne.u32 %p2, %r9, 0; @%p2 bra SECOND;
{fence}{multiply}{commit}wgmma.wait_group.sync.aligned 0;
bra DONE;
SECOND: mov.u32 %r10, 0;
SPIN: add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 20; @%p3 bra SPIN;
{fence}{twice}{commit}wgmma.wait_group.sync.aligned 0;
DONE: st.global.b32 [%d4], %f0; ret;"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threads", [256, 288])
def test_warpgroups_go_their_own_ways(seed, threads):
    """Two warpgroups, the second of which adds twice; a fifth warp in a warpgroup of its own only copies."""
    what = wgmma(dt.f16, dt.f16, dt.f32, 8)
    a, b = np.ones((64, 16), np.float16), np.ones((8, 16), np.float16)
    image = np.concatenate([laid_out(a, 32, 0)[0], laid_out(b, 32, 0)[0]])
    copy = COPY_IN.replace("BYTES", str(len(image))).replace("2048", str(16 * threads))
    first = multiply(what, "%d11", "%d12", "0")
    text = TWO.format(copy=copy, a=described(0, 16, 256, 32).encode(), b=described(2048, 16, 256, 32).encode(), fence=FENCE, commit=COMMIT,
                      multiply=first, twice=first + multiply(what, "%d11", "%d12", "1"))  # fmt: skip
    if threads == 288:
        text = text.replace(
            "shr.u32 %r9", "setp.ge.u32 %p5, %r0, 256; mov.f32 %f0, 0f3F800000; @%p5 bra DONE; shr.u32 %r9"
        )
    out = np.zeros(threads, np.float32)
    text = module(".param .u64 image, .param .u64 out", text, threads)
    report = launch(text, [image, out], block=threads, shared=len(image), checks=True, seed=seed)
    assert (out[:128] == 16).all() and (out[128:256] == 32).all() and (out[256:] == 1).all()
    assert report.instructions[what.mnemonic] == 4 + 8


def test_accumulators_stay_in_their_registers():
    """The chain keeps exact sums in float32, whatever came before in the registers of other lists."""
    what = wgmma(dt.f16, dt.f16, dt.f32, 128)
    assert len(registers_of(what)) == 64
    product(what, steps=4, run_seed=3)


def test_cost_follows_the_width():
    from wavedsl.codegen.ptx import isa

    for n in (8, 64, 256):
        row = isa.lookup(wgmma(dt.bf16, dt.bf16, dt.f32, n).mnemonic, "sm_90a")
        # 4096 16-bit floating-point operations per clock and SM.
        assert row.interval == 2 * 64 * n * 16 // 4096
