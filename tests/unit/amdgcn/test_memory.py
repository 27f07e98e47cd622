"""Global and shared memory: widths, offsets, masks, guards, bounds, exec regions; against NumPy on the emulator."""

from __future__ import annotations

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.dtypes import i32, i64
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32, I64, Kernel, Param, vector
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")


def emulate(kernel: Kernel, args: list, waves: int = 1, grid: tuple[int, int, int] = (1, 1, 1)) -> str:
    """Compile, run with all checks; the text."""
    program = compile_kernel_ir(kernel, get_target(kernel.target))
    run(program.text, target=kernel.target, grid=grid, block=(64 * waves, 1, 1), args=args, checks=True)
    return program.text


def start(chip: str, pointers: list[str], waves: int = 1, **rest: object) -> Builder:
    return Builder(kernels.new_kernel("memory", chip, pointers, waves, **rest), get_target(chip))


def words(bytes_: int) -> object:
    return vector(bytes_ // 4) if bytes_ > 4 else B32


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("width", [1, 2, 4, 8, 12, 16])
def test_global_widths_and_shared_round_trip(chip: str, width: int) -> None:
    b = start(chip, ["x", "y"], shared_bytes=64 * 16 + 64)
    tid = b.tid()
    off = b.mul(tid, width)
    v = b.load_global(b.buffer(b.param(0), 64 * width), off, bytes=width, type=words(width))
    b.store_shared(b.mul(tid, max(width, 4)), v, bytes=width, imm=64)
    b.barrier()
    back = b.load_shared(b.mul(b.xor(tid, 1), max(width, 4)), bytes=width, type=words(width), imm=64)
    b.store_global(b.buffer(b.param(1), 64 * width), off, back, bytes=width)
    x = np.random.default_rng(0).integers(0, 256, 64 * width, dtype=np.uint8)
    y = np.zeros_like(x)
    emulate(b.kernel, [x, y])
    assert np.array_equal(y.reshape(64, width), x.reshape(64, width)[np.arange(64) ^ 1])


@pytest.mark.parametrize("chip", CHIPS)
def test_store_of_the_high_half(chip: str) -> None:
    b = start(chip, ["x", "y"])
    tid = b.tid()
    v = b.load_global(b.buffer(b.param(0), 256), b.mul(tid, 4), bytes=4, type=B32)
    b.store_global(b.buffer(b.param(1), 128), b.mul(tid, 2), v, bytes=2, high=True)
    x = np.random.default_rng(0).integers(0, 2**32, 64, dtype=np.uint32)
    y = np.zeros(64, np.uint16)
    emulate(b.kernel, [x, y])
    assert np.array_equal(y, (x >> 16).astype(np.uint16))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("imm", [0, 4092, 4096, 70000])
def test_immediates_beyond_the_field(chip: str, imm: int) -> None:
    b = start(chip, ["x", "y"])
    tid = b.tid()
    v = b.load_global(b.buffer(b.param(0), 256 + imm), b.mul(tid, 4), bytes=4, type=B32, imm=imm, split=False)
    b.store_global(b.buffer(b.param(1), 256 + imm), b.mul(tid, 4), v, bytes=4, imm=imm, split=False)
    x = np.arange(64 + imm // 4, dtype=np.uint32)
    y = np.zeros_like(x)
    emulate(b.kernel, [x, y])
    assert np.array_equal(y[imm // 4 :], x[imm // 4 :])
    assert not y[: imm // 4].any()


@pytest.mark.parametrize("chip", CHIPS)
def test_masks_of_loads_and_stores(chip: str) -> None:
    b = start(chip, ["x", "y"])
    tid = b.tid()
    odd = b.cmp("eq", b.and_(tid, 1), 1)
    v = b.load_global(b.buffer(b.param(0), 256), b.mul(tid, 4), bytes=4, type=B32, mask=odd)
    third = b.cmp("ne", b.urem(tid, 3), 0)
    b.store_global(b.buffer(b.param(1), 256), b.mul(tid, 4), v, bytes=4, mask=third)
    x = np.arange(1, 65, dtype=np.uint32)
    y = np.full(64, 99, np.uint32)
    emulate(b.kernel, [x, y])
    lane = np.arange(64)
    assert np.array_equal(y, np.where(lane % 3 != 0, np.where(lane % 2 == 1, x, 0), 99))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("count", [1, 10, 63, 64, 200])
def test_run_time_size_bounds_the_buffer(chip: str, count: int) -> None:
    """The size is an argument: what lies past it loads 0 and is not stored, masked or not."""
    kernel = kernels.new_kernel("bounded", chip, ["x", "y"])
    kernel.params.append(Param("n", "scalar", i64, 16, 8))
    b = Builder(kernel, get_target(chip))
    tid = b.tid()
    size = b.mul(b.param(2, I64), 4)
    even = b.cmp("eq", b.and_(tid, 1), 0)
    v = b.load_global(b.buffer(b.param(0), size), b.mul(tid, 4), bytes=4, type=B32)
    w = b.load_global(b.buffer(b.param(0), size), b.mul(tid, 4), bytes=4, type=B32, mask=even)
    total = b.add(b.bitcast(v, I32), b.mul(b.bitcast(w, I32), 1000))
    b.store_global(b.buffer(b.param(1), size), b.mul(tid, 4), b.bitcast(total, B32), bytes=4)
    x = np.arange(1, count + 1, dtype=np.uint32)
    y = np.zeros(count, np.uint32)
    emulate(kernel, [x, y, np.int64(count)])
    lane = np.arange(count)
    assert np.array_equal(y[:64], (x + np.where(lane % 2 == 0, 1000 * x, 0))[:64])


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_uniform_guard(chip: str, limit: int) -> None:
    """Workgroups below the limit load and store; two guards take turns on one buffer."""
    kernel = kernels.new_kernel("guarded", chip, ["x", "y"], grid=(4, 1, 1))
    kernel.params.append(Param("n", "scalar", i32, 16, 4))
    b = Builder(kernel, get_target(chip))
    tid, group = b.tid(), b.wgid(0)
    inside = b.cmp("slt", group, b.param(2, I32))
    outside = b.cmp("sge", group, b.param(2, I32))
    x_buf, y_buf = b.buffer(b.param(0), 1024), b.buffer(b.param(1), 2048)
    off = b.add(b.mul(tid, 4), b.mul(group, 256))
    one = b.load_global(x_buf, off, bytes=4, type=B32, guard=inside)
    two = b.load_global(x_buf, off, bytes=4, type=B32, guard=outside)
    three = b.load_global(x_buf, off, bytes=4, type=B32, guard=inside)
    total = b.add_many([b.bitcast(one, I32), b.mul(b.bitcast(two, I32), 1000), b.bitcast(three, I32)])
    b.store_global(y_buf, off, b.bitcast(total, B32), bytes=4)
    b.store_global(y_buf, off, b.bitcast(one, B32), bytes=4, imm=1024, guard=outside)
    x = np.arange(1, 257, dtype=np.uint32)
    y = np.full(512, 7, np.uint32)
    emulate(kernel, [x, y, np.int32(limit)], grid=(4, 1, 1))
    low = np.arange(256) // 64 < limit
    assert np.array_equal(y[:256], np.where(low, 2 * x, 1000 * x))
    assert np.array_equal(y[256:], np.where(low, 7, 0))


@pytest.mark.parametrize("chip", CHIPS)
def test_masked_shared_stores_share_one_exec_region(chip: str) -> None:
    b = start(chip, ["x", "y"], shared_bytes=1024)
    tid = b.tid()
    off = b.mul(tid, 4)
    v = b.load_global(b.buffer(b.param(0), 256), off, bytes=4, type=B32)
    b.store_shared(off, b.bitcast(b.i32(5), B32))
    b.store_shared(off, b.bitcast(b.i32(6), B32), imm=256)
    low = b.cmp("ult", tid, 20)
    b.store_shared(off, v, mask=low)
    b.store_shared(off, v, mask=low, imm=256)
    b.barrier()
    both = b.add(b.bitcast(b.load_shared(off), I32), b.mul(b.bitcast(b.load_shared(off, imm=256), I32), 1000))
    b.store_global(b.buffer(b.param(1), 256), off, b.bitcast(both, B32))
    x = np.arange(100, 164, dtype=np.uint32)
    y = np.zeros(64, np.uint32)
    text = emulate(b.kernel, [x, y])
    lane = np.arange(64)
    assert np.array_equal(y, np.where(lane < 20, 1001 * x, 6005))
    assert text.count("s_and_saveexec_b64") == 1


@pytest.mark.parametrize("chip", CHIPS)
def test_constant_masks_cost_nothing(chip: str) -> None:
    b = start(chip, ["x", "y"])
    off = b.mul(b.tid(), 4)
    v = b.load_global(b.buffer(b.param(0), 256), off, bytes=4, type=B32, mask=b.false)
    w = b.load_global(b.buffer(b.param(0), 256), off, bytes=4, type=B32, guard=b.false)
    b.store_global(
        b.buffer(b.param(1), 256), off, b.bitcast(b.add(b.bitcast(v, I32), b.bitcast(w, I32)), B32), bytes=4
    )
    b.store_global(b.buffer(b.param(1), 256), off, v, bytes=4, mask=b.false)
    x, y = np.arange(64, dtype=np.uint32), np.ones(64, np.uint32)
    text = emulate(b.kernel, [x, y])
    assert not y.any()
    assert "buffer_load" not in text and text.count("buffer_store") == 1


@pytest.mark.parametrize("chip", CHIPS)
def test_data_crosses_waves_behind_a_barrier(chip: str) -> None:
    waves = 4
    b = start(chip, ["x", "y"], waves, shared_bytes=1024)
    tid = b.tid()
    off = b.mul(tid, 4)
    v = b.load_global(b.buffer(b.param(0), 1024), off, bytes=4, type=B32)
    b.store_shared(off, v)
    b.barrier()
    other = b.load_shared(b.xor(off, 0x3FC))
    plus = b.add(b.bitcast(other, I32), b.mul(b.wave(), 1000))
    b.store_global(b.buffer(b.param(1), 1024), off, b.bitcast(plus, B32))
    x, y = np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)
    emulate(b.kernel, [x, y], waves)
    assert np.array_equal(y, x[::-1] + np.arange(256) // 64 * 1000)


def test_direct_to_lds_copies_land_behind_their_wait() -> None:
    for chip, width in (("gfx90a", 4), ("gfx942", 4), ("gfx950", 16)):
        b = start(chip, ["x", "y"], shared_bytes=64 * width * 2)
        tid = b.tid()
        off = b.mul(tid, width)
        buf = b.buffer(b.param(0), 128 * width)
        b.copy_async(buf, off, off, bytes=width, split=False)
        b.copy_commit()
        b.copy_async(buf, off, off, bytes=width, imm=64 * width, simm=64 * width, split=False)
        b.copy_commit()
        b.copy_wait(1)
        b.barrier()
        first = b.load_shared(off, bytes=width, type=words(width))
        b.copy_wait(0)
        b.barrier()
        second = b.load_shared(off, bytes=width, type=words(width), imm=64 * width)
        out = b.buffer(b.param(1), 128 * width)
        b.store_global(out, off, first, bytes=width)
        b.store_global(out, off, second, bytes=width, imm=64 * width)
        x = np.arange(128 * width // 4, dtype=np.uint32)
        y = np.zeros_like(x)
        text = emulate(b.kernel, [x, y])
        assert np.array_equal(x, y)
        assert "vmcnt(1)" in text


def test_transposing_read() -> None:
    """tr_b16: lane t of 16 gets column t of the 4 x 16 matrix that the group's 8-byte pieces form."""
    b = start("gfx950", ["x", "y"], shared_bytes=512)
    tid = b.tid()
    off = b.mul(tid, 8)
    v = b.load_global(b.buffer(b.param(0), 512), off, bytes=8, type=vector(2))
    b.store_shared(off, v, bytes=8)
    b.barrier()
    t = b.load_shared(off, bytes=8, type=vector(2), atom="tr_b16")
    b.store_global(b.buffer(b.param(1), 512), off, t, bytes=8)
    x = np.arange(256, dtype=np.uint16)
    y = np.zeros_like(x)
    emulate(b.kernel, [x, y])
    for group in range(4):
        rows = x[64 * group : 64 * group + 64].reshape(4, 16)
        assert np.array_equal(y[64 * group : 64 * group + 64].reshape(16, 4), rows.T)
