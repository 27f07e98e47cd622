"""Stores to shared memory that nothing reads go from the kernel's last stretch; all others stay."""

from __future__ import annotations

import pytest
from amdgcn_kernels import new_kernel
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.dead_stores import remove_dead_stores
from wavedsl.ir.kernel.kernel_ir import B32, Kernel, vector
from wavedsl.ir.kernel.passes import no_dead_stores


def kernel(last_read: int, in_loop: bool = False) -> Kernel:
    """Stores at bytes 0 and 4096, a barrier, a read at `last_read`, then again a store at 0."""
    b = Builder(new_kernel("k", "gfx942", ["y"], waves=4))
    b.kernel.shared_names["a"] = (0, 8192)
    b.kernel.shared_bytes = 8192
    at = b.mul(b.tid(), 4)
    word = b.bitcast(b.tid(), B32)

    def body() -> None:
        b.store_shared(at, word, bytes=4, buffer="a")
        b.store_shared(b.add(at, 4096), word, bytes=4, buffer="a")
        b.barrier()
        got = b.load_shared(b.add(at, last_read), bytes=4, buffer="a", type=B32)
        b.store_shared(at, got, bytes=4, buffer="a")
        b.store_global(b.buffer(b.param(0), 1024), at, got, bytes=4)
        b.barrier()

    if in_loop:
        with b.for_(0, 3) as loop:
            body()
            loop.yield_()
    else:
        body()
    return b.finish()


def ops(k: Kernel, name: str) -> int:
    return sum(op.name == name for op in k.body.walk())


@pytest.mark.parametrize("last_read", [0, 4096])
def test_the_store_that_is_read_stays(last_read: int) -> None:
    k = kernel(last_read)
    assert len(no_dead_stores(k)) == 2
    assert remove_dead_stores(k) == 3  # the other slot, the copy behind the last read, the last barrier
    assert ops(k, "store.shared") == 1 and ops(k, "barrier") == 1
    (store,) = (op for op in k.body.walk() if op.name == "store.shared")
    assert store.args[0].lo + store.attrs.get("imm", 0) == last_read
    assert no_dead_stores(k) == []


@pytest.mark.parametrize("last_read", [0, 4096])
def test_copies_for_nobody_go(last_read: int) -> None:
    """Direct copies of 1024 bytes a wave to either slot; a transposing read of one of them."""
    b = Builder(new_kernel("k", "gfx950", ["x", "y"], waves=4))
    b.kernel.shared_names["a"] = (0, 8192)
    b.kernel.shared_bytes = 8192
    x, own = b.buffer(b.param(0), 8192), b.mul(b.wave(), 1024)
    for slot in (0, 4096):
        b.copy_async(x, b.mul(b.tid(), 16), b.add(own, slot), bytes=16, buffer="a", linear=True)
    b.copy_commit()
    b.copy_wait()
    b.barrier()
    at = b.add(b.mul(b.tid(), 8), last_read)
    got = b.load_shared(at, bytes=8, buffer="a", atom="tr_b16", type=vector(2))
    b.copy_async(x, b.mul(b.tid(), 16), own, bytes=16, buffer="a", linear=True)
    b.store_global(b.buffer(b.param(1), 2048), b.mul(b.tid(), 8), got, bytes=8)
    k = b.finish()
    assert len(no_dead_stores(k)) == 2
    assert remove_dead_stores(k) == 2
    (copy,) = (op for op in k.body.walk() if op.name == "copy.async")
    assert copy.args[-1].lo + copy.attrs["simm"] == last_read
    assert no_dead_stores(k) == []


def test_loops_are_left_alone() -> None:
    k = kernel(0, in_loop=True)
    assert remove_dead_stores(k) == 0
    assert ops(k, "store.shared") == 3 and ops(k, "barrier") == 2
