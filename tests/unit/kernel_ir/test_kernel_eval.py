"""The interpreter against NumPy and by hand: memory, lanes, conversions, fragments."""

import ml_dtypes
import numpy as np
import pytest
from wavedsl.ir import dtypes
from wavedsl.ir.errors import CompileError, LaunchError
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_eval import evaluate, run
from wavedsl.ir.kernel.kernel_ir import B32, F32, F64, I32, I64, Param, vector
from wavedsl.ir.layouts.convert import ConvertPlan, Swap, replay
from wavedsl.ir.target import LoadAtom

from .kernels import gemm, make_target


def with_array(waves=1, dtype=dtypes.f32, size=256, **kw):
    b = Builder(new_kernel(waves=waves, params=[Param("x", "pointer", dtype, 0, 8)], **kw))
    return b, b.buffer(b.param(0), size)


@pytest.mark.parametrize("name", ["popcount", "clz", "ctz", "brev"])
def test_facts_of_counted_bits_admit_every_number(name):
    """Numbers of a range, and of a range of multiples; and what is one number is a constant."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        lo, hi = sorted(int(v) for v in rng.integers(-(1 << 31), 1 << 31, 2) >> rng.integers(0, 31))
        multiple = 1 << int(rng.integers(0, 6))
        lo, hi = -(-lo // multiple) * multiple, hi // multiple * multiple
        if lo > hi:
            continue
        b = Builder(new_kernel(waves=1, params=[Param("x", "scalar", dtypes.i32, 0, 4)]))
        v = b.emit(name, (b.param(0, I32, lo=lo, hi=hi, multiple=multiple),))
        some = [lo + int(k) * multiple for k in rng.integers(0, (hi - lo) // multiple + 1, 8)]
        for x in (lo, hi, 0 if lo <= 0 <= hi else lo, *some):
            text = f"{x & 0xFFFFFFFF:032b}"
            found = {
                "popcount": text.count("1"), "clz": 32 - len(text.lstrip("0")), "ctz": 32 - len(text.rstrip("0")),
                "brev": int(text[::-1], 2) - (1 << 32) * (text[-1] == "1"),
            }[name]  # fmt: skip
            assert v.lo <= found <= v.hi and not found & v.zeros, (lo, hi, multiple, x)
            assert b.emit(name, (b.const(x),)).const == found


def test_loads_beyond_the_end_are_zero_and_stores_nothing():
    x = np.arange(32, dtype=np.uint32)
    b, buf = with_array(size=100)
    v = b.load_global(buf, b.shl(b.lane(), 2))
    b.store_global(buf, b.shl(b.lane(), 2), b.const(7, B32), mask=b.cmp("sge", b.lane(), 20))
    out = evaluate(b.finish(), {0: x})
    assert np.array_equal(out[v], [*range(25), *[0] * 39])
    assert np.array_equal(x, [*range(20), *[7] * 5, *range(25, 32)])
    with pytest.raises(CompileError, match="does not check bounds"):
        evaluate(b.kernel, {0: x}, target=make_target(buffer_bounds=False))


def test_a_lie_about_the_size_is_found():
    b, buf = with_array(size=1024)
    b.load_global(buf, b.shl(b.lane(), 2))
    with pytest.raises(CompileError, match="outside its array"):
        evaluate(b.finish(), {0: np.zeros(16, np.uint32)})


def test_guards_masks_and_narrow_accesses():
    x = np.arange(64, dtype=np.uint16)
    b, buf = with_array(size=128, waves=2)
    off = b.and_(b.shl(b.lane(), 1), 126)
    v = b.load_global(buf, off, bytes=2, type=I32, guard=b.cmp("eq", b.wave(), 1))
    w = b.bitcast(b.add(v, 0x50000), B32)
    b.store_global(buf, off, w, bytes=2, high=True, guard=b.cmp("eq", b.wave(), 0))
    out = evaluate(b.finish(), {0: x})
    assert (out[v][:64] == 0).all() and np.array_equal(out[v][64:], np.arange(64))
    assert (x == 5).all() and (v.lo, v.hi) == (0, 65535)


def test_shared_memory_and_asynchronous_copies():
    x = np.arange(256, dtype=np.float32)
    b, buf = with_array(size=1024, waves=2, shared_bytes=1024)
    at = b.shl(b.lane(), 4)
    b.copy_async(buf, at, at, bytes=16, mask=b.cmp("slt", b.lane(), 60), buffer="s")
    b.copy_commit()
    b.copy_wait(0)
    b.barrier()
    v = b.load_shared(b.shl(b.lane(), 4), bytes=16, type=vector(4, "f32"), buffer="s")
    out = evaluate(b.finish(), {0: x})[v]
    want = np.where(np.arange(256) < 240, x, 0).reshape(64, 4).T
    assert np.array_equal(out[:, :64], want) and np.array_equal(out[:, 64:], want)
    b, _ = with_array(shared_bytes=64)
    b.load_shared(b.shl(b.lane(), 2))
    with pytest.raises(CompileError, match="shared memory"):
        evaluate(b.finish(), {0: x})


def test_lanes_exchange():
    b = Builder(new_kernel(waves=2))
    x = b.add(b.mul(b.tid(), 3), 1)
    values = b.readfirst(x), b.shuffle_xor(x, 17), b.shuffle_index(x, b.sub(63, b.lane()))
    out = evaluate(b.finish(), {})
    tid = np.arange(128)
    assert np.array_equal(out[values[0]], np.repeat([1, 193], 64))
    assert np.array_equal(out[values[1]], (tid ^ 17) * 3 + 1)
    assert np.array_equal(out[values[2]], (tid // 64 * 64 + 63 - tid % 64) * 3 + 1)


@pytest.mark.parametrize(("register", "lane"), [(0, 4), (1, 4), (0, 5), (1, 5), (1, 0)])
def test_lanes_swap_registers(register: int, lane: int) -> None:
    """As `convert.replay` defines the exchange."""
    b = Builder(new_kernel(waves=2))
    words = [b.bitcast(b.add(b.mul(b.tid(), 4), i), B32) for i in range(4)]
    moved = b.swap_lanes(b.vec(*words), register, lane)
    out = evaluate(b.finish(), {})[moved]
    held = np.arange(2 * 64 * 4).reshape(2, 64, 4)
    want = replay(ConvertPlan("lane exchange", (Swap(register, lane),)), held)
    assert np.array_equal(out.astype(np.int64), want.reshape(128, 4).T)


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"])
def test_packed_floats(name):
    dtype = dtypes.ALL[name]
    b = Builder(new_kernel(waves=1))
    numbers = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32) * 9
    parts = [b.param(i, F32) for i in range(32 // dtype.bits)]
    word = b.pack(parts, dtype)
    back = [b.unpack(word, dtype, i) for i in range(len(parts))]
    out = evaluate(b.finish(), dict(enumerate(numbers)))
    for v, n in zip(back, numbers):
        assert np.array_equal(out[v], n.astype(dtype.numpy).astype(np.float32))


def test_packed_integers():
    b = Builder(new_kernel(waves=1))
    numbers = np.random.default_rng(2).integers(-200, 200, (8, 64))
    inputs = [b.param(i, I32) for i in range(8)]
    i8, u8, i4 = b.pack(inputs[:4], dtypes.i8), b.pack(inputs[:4], dtypes.u8), b.pack(inputs, dtypes.i4)
    outs = [(b.unpack(w, d, 1), d) for w, d in ((i8, dtypes.i8), (u8, dtypes.u8), (i4, dtypes.i4))]
    out = evaluate(b.finish(), dict(enumerate(numbers)))
    assert np.array_equal(out[outs[0][0]], numbers[1].astype(np.int8))
    assert np.array_equal(out[outs[1][0]], numbers[1].astype(np.uint8))
    assert np.array_equal(out[outs[2][0]], numbers[1].astype(ml_dtypes.int4).astype(np.int32))
    assert (outs[2][0].lo, outs[2][0].hi) == (-8, 7)


def test_conversions_saturate():
    b = Builder(new_kernel(waves=1))
    f = np.array([0.9, -0.9, 3e9, -3e9, 5e9, np.nan, np.inf, -np.inf] * 8, np.float32)
    x = b.param(0, F32)
    i, u, l, d = b.cvt(x, I32), b.cvt(x, I32, unsigned=True), b.cvt(x, I64), b.cvt(x, F64)
    out = evaluate(b.finish(), {0: f})
    top, low = (1 << 31) - 1, -(1 << 31)
    assert out[i][:8].tolist() == [0, 0, top, low, top, 0, top, low]
    assert out[u].view(np.uint32)[:8].tolist() == [0, 0, 3000000000, 0, (1 << 32) - 1, 0, (1 << 32) - 1, 0]
    assert out[l][:8].tolist() == [0, 0, 3000000000, -3000000000, 5000000000, 0, (1 << 63) - 1, -(1 << 63)]
    assert np.array_equal(out[d], f.astype(np.float64), equal_nan=True)


def test_bits_and_bytes():
    b = Builder(new_kernel(waves=1))
    hi, lo = b.param(0, B32), b.param(1, B32)
    p = b.permute_bytes(hi, lo, 0x07020500)
    x = b.param(2, I32)
    s, u = b.bfe(x, 5, 7, signed=True), b.bfe(x, 5, 7)
    t = b.round_tf32(b.param(3, F32))
    xs = np.random.default_rng(3).integers(-(1 << 31), 1 << 31, 64).astype(np.int32)
    fs = np.array([1.0, 1 + 2**-11, 1 + 2**-10, 1 + 3 * 2**-11, -1 - 2**-11, np.inf, 3e38, np.nan] * 8, np.float32)
    out = evaluate(b.finish(), {0: np.uint32(0xAABBCCDD), 1: np.uint32(0x11223344), 2: xs, 3: fs})
    assert (out[p] == 0xAA22CC44).all()
    bits = xs.view(np.uint32) >> 5 & 127
    assert np.array_equal(out[u], bits) and np.array_equal(
        out[s], np.where(bits > 63, bits.astype(np.int64) - 128, bits)
    )
    assert out[t][:6].tolist() == [1, 1 + 2**-10, 1 + 2**-10, 1 + 2**-9, -1 - 2**-10, np.inf]
    assert np.isnan(out[t][7])


def test_matrix_load_atoms():
    """ldmatrix x4: lane l receives row l/4 columns 2(l%4)+{0,1} of matrix r in register r."""
    atom = LoadAtom("ldmatrix.x4", 16, 16, (2,), "l2 l3 l4 e1 e2", "e0 l0 l1")
    b = Builder(new_kernel(wave_size=32, shared_bytes=512))
    for i in range(4):
        pair = [b.cvt(b.add(b.mul(b.lane(), 8), 2 * i + j), F32) for j in range(2)]
        b.store_shared(b.add(b.mul(b.lane(), 16), 4 * i), b.pack(pair, dtypes.f16))
    b.barrier()
    v = b.load_shared(b.mul(b.lane(), 16), bytes=16, atom="ldmatrix.x4")
    parts = [b.unpack(b.slice(v, r), dtypes.f16, j) for r in range(4) for j in range(2)]
    kernel = b.finish()
    out = evaluate(kernel, {}, target=make_target(load_atoms=(atom,), wave_size=32))
    lane = np.arange(32)
    for r in range(4):
        for j in range(2):
            assert np.array_equal(out[parts[2 * r + j]], (8 * r + lane // 4) * 8 + 2 * (lane % 4) + j)
    with pytest.raises(CompileError, match="needs the target's row"):
        evaluate(kernel, {})


def test_gemm():
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((128, 128)).astype(np.float16) for _ in range(2))
    c = np.zeros((128, 128), np.float32)
    run(gemm(m=128, n=128), [a, b, c])
    want = a.astype(np.float64) @ b.T.astype(np.float64)
    assert np.abs(c - want).max() <= 136 * 2.0**-24 * np.abs(a.astype(np.float64)).sum(1).max() * np.abs(b).max()


def test_what_cannot_be_run():
    with pytest.raises(LaunchError, match="gemm takes 3 arguments, not 1"):
        run(gemm(), [np.zeros(1)])
    b = Builder(new_kernel(waves=2))
    with b.if_(b.cmp("eq", b.wave(), 0)):
        b.barrier()
    with pytest.raises(CompileError, match="not all waves"):
        evaluate(b.finish(), {})
    b = Builder(new_kernel(waves=1))
    b.trap(b.cmp("eq", b.lane(), 5), "lane five")
    with pytest.raises(CompileError, match="trap: lane five"):
        evaluate(b.finish(), {})
