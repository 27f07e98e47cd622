"""Atomics on shared memory: what they leave, on every level; what may pass them; what they take; their clocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from wavedsl.codegen.amdgcn.emit import compile_kernel_ir as amdgcn
from wavedsl.codegen.ptx.emit import compile_kernel_ir as ptx
from wavedsl.ir import dtypes
from wavedsl.ir.errors import CompileError, EmulationError
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.dead_stores import remove_dead_stores
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.ir.kernel.kernel_ir import B32, F32, F64, I32, I64, Kernel, Param, Type, vector
from wavedsl.ir.kernel.kernel_meaning import ANY_ORDER, ATOMIC
from wavedsl.ir.kernel.kernel_parse import parse
from wavedsl.ir.kernel.kernel_text import text
from wavedsl.ir.kernel.kernel_verify import verify
from wavedsl.ir.kernel.late_loads import latest
from wavedsl.ir.kernel.needless_barriers import remove_needless_barriers
from wavedsl.ir.kernel.passes import no_dead_stores, no_needless_barriers
from wavedsl.runtime import emulator
from wavedsl.runtime.emulator.amdgcn.cost import atomic_clocks
from wavedsl.runtime.emulator.ptx.warp_events import shared_clocks

from wavedsl.targets import get_target

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
PLACES = 24
"""Elements that 256 threads change."""


def kernel_of(target: str, how: str, kind: Type, barriers: str = "||") -> Kernel:
    """cells[t % 24] = how(cells[t % 24], x[t]) for all threads but every fifth, in shared memory. `barriers`: whether
    there is one in front of the atomics (the first `|`), and one behind."""
    chip, size = get_target(target), 4 * kind.words
    params = [Param(name, "pointer", dtypes.i32, 8 * i, 8, access="readwrite") for i, name in enumerate("xc")]
    kernel = new_kernel(
        "k", target, wave_size=chip.wave_size, waves=256 // chip.wave_size, params=params, shared_bytes=1024,
        shared_names={"cells": (256, 256)}, grid=(1, 1, 1),
    )  # fmt: skip
    b = Builder(kernel, chip)
    x, cells = b.buffer(b.param(0), 256 * size), b.buffer(b.param(1), PLACES * size)
    tid, raw = b.tid(), vector(kind.words) if kind.words > 1 else B32
    own, inside = b.mul(tid, size), b.cmp("ult", tid, PLACES)
    start = b.load_global(cells, b.select(inside, own, b.i32(0)), bytes=size, type=raw)
    b.store_shared(b.add(own, 256), start, bytes=size, mask=inside, buffer="cells")
    if barriers[0] == "|":
        b.barrier()
    value = b.bitcast(b.load_global(x, own, bytes=size, type=raw), kind)
    place = b.add(b.mul(b.urem(tid, PLACES), size), 256)
    b.atomic_shared(place, how, value, mask=b.cmp("ne", b.urem(tid, 5), 0), buffer="cells")
    if barriers[1] == "|":
        b.barrier()
    where = b.add(b.select(inside, own, b.i32(0)), 256)
    end = b.load_shared(where, bytes=size, buffer="cells", type=raw)
    b.store_global(cells, own, end, bytes=size, mask=inside)
    return b.finish()


def emulated(kernel: Kernel, args: list[np.ndarray]) -> str:
    """The text, which has run on the emulator with all checks."""
    chip = get_target(kernel.target)
    made = (ptx if kernel.target.startswith("sm") else amdgcn)(kernel, chip)
    asm = made.text if hasattr(made, "text") else made.asm
    emulator.run(asm, target=kernel.target, grid=(1, 1, 1), block=(256, 1, 1), args=args, kernel="k")
    return str(asm)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", ANY_ORDER)
def test_what_they_leave(how: str, target: str) -> None:
    """The interpreter, the emulated text and a loop agree; the text of the kernel is read back as it is."""
    for kind in (F32, F64) if how == "fadd" else (I32, I64):
        if (how, kind.kind) not in get_target(target).shared_atomics:
            assert (kind is I64 or how == "fadd") and target.startswith("sm_")
            continue
        dtype = np.dtype(f"{'f' if how == 'fadd' else 'i'}{4 * kind.words}")
        rng = np.random.default_rng(7)
        x, start = (np.frombuffer(rng.bytes(n * dtype.itemsize), dtype).copy() for n in (256, PLACES))
        if how == "fadd":  # whole numbers: the same in any order
            x, start = (rng.integers(-99, 99, n).astype(dtype) for n in (256, PLACES))
        want = start.copy()
        for t in range(256):
            if t % 5:
                want[t % PLACES] = ATOMIC[how](want[t % PLACES], x[t])
        kernel = kernel_of(target, how, kind)
        verify(kernel, get_target(target))
        assert text(parse(text(kernel), get_target(target))) == text(kernel)
        meant, got = start.copy(), start.copy()
        run(kernel, [x.view(np.uint8), meant.view(np.uint8)], target=get_target(target))
        np.testing.assert_array_equal(meant, want)
        asm = emulated(kernel, [x, got])
        np.testing.assert_array_equal(got, want)
        name = "red.shared." if target.startswith("sm_") else "ds_" + how.split("_")[0].removeprefix("f")
        assert name in asm


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_80", "sm_90a"])
@pytest.mark.parametrize("barriers", [".|", "|."])
def test_a_barrier_that_lacks_is_found(barriers: str, target: str) -> None:
    """Between atomics and other accesses, in front and behind; both are needed, and stay."""
    x, cells = np.ones(256, np.int32), np.zeros(PLACES, np.int32)
    with pytest.raises(EmulationError, match="race: "):
        emulated(kernel_of(target, "add", I32, barriers), [x, cells])
    whole = kernel_of(target, "add", I32)
    assert remove_needless_barriers(whole) == 0 and no_needless_barriers(whole) == []
    assert remove_dead_stores(whole) == 0 and no_dead_stores(whole) == []


def small(parts: str) -> tuple[Kernel, dict[str, Any]]:
    """`a`, `b`: an atomic on buffer a or b; `s`, `l`: a store to a, a load of it; `|`: a barrier."""
    b = Builder(new_kernel(target="sm_80", wave_size=32, waves=4))
    b.kernel.shared_names.update(a=(0, 1024), b=(1024, 1024))
    b.kernel.shared_bytes = 2048
    at, ops = b.mul(b.lane(), 4), {}
    for i, part in enumerate(parts):
        if part in "ab":
            place = at if part == "a" else b.add(at, 1024)
            ops[f"{part}{i}"] = b.atomic_shared(place, "add", b.i32(1), mask=b.true, buffer=part)
        elif part == "s":
            ops[f"s{i}"] = b.store_shared(at, b.i32(1), bytes=4, buffer="a")
        elif part == "l":
            ops[f"l{i}"] = b.load_shared(at, bytes=4, buffer="a").op
        else:
            ops[f"|{i}"] = b.barrier()
    b.store_shared(b.add(at, 1024), b.i32(2), bytes=4, buffer="b")
    return b.finish(), ops


@pytest.mark.parametrize(("parts", "stay"), [
    ("a|a", 0), ("a|b|a", 1), ("s|a|l", 2), ("a|l", 1), ("l|a", 1), ("l|b", 0),  # (a store to b stands at the end)
])  # fmt: skip
def test_they_need_no_barrier_among_each_other(parts: str, stay: int) -> None:
    kernel, _ = small(parts)
    remove_needless_barriers(kernel)
    assert sum(op.name == "barrier" for op in kernel.body.walk()) == stay


def test_how_far_loads_move() -> None:
    """Over atomics on another buffer, and not over one on their own, nor over the barrier in front of it."""
    kernel, ops = small("s|lb|b|ab")
    until = latest(kernel, kernel.body)
    assert until[ops["l2"]] is ops["|6"]
    kernel, ops = small("s|lbab")
    assert latest(kernel, kernel.body)[ops["l2"]] is ops["a4"]


@pytest.mark.parametrize(("how", "kind", "why"), [
    ("xchg", I32, "legal are add"), ("cas", I32, "legal are add"), ("add", I64, "no add of i64 in shared memory"),
])  # fmt: skip
def test_what_they_do_not_do(how: str, kind: Type, why: str) -> None:
    kernel = kernel_of("sm_80", how, kind)
    with pytest.raises(CompileError, match=why):
        verify(kernel, get_target("sm_80"))


LANES = np.arange(64)


@pytest.mark.parametrize(("target", "lanes", "clocks"), [
    ("gfx942", 4 * LANES, 2), ("gfx942", 0 * LANES, 64), ("gfx942", 128 * LANES, 64), ("gfx942", LANES // 2 * 4, 4),
    ("gfx950", 4 * LANES, 1), ("gfx950", 0 * LANES, 64), ("gfx950", LANES // 2 * 4, 2),
])  # fmt: skip
def test_lanes_that_meet_take_turns_on_amd(target: str, lanes: np.ndarray, clocks: int) -> None:
    """In a place as in a bank, and those that are off do not."""
    both = np.stack([lanes, 4 * LANES])
    extra, found = atomic_clocks(both, None, 4, target)
    assert found.tolist() == [clocks, 128 // (64 if target == "gfx950" else 32) // 2]
    assert (extra == found - found[1]).all()
    off = np.stack([LANES < 1, LANES < 1])
    assert atomic_clocks(both, off, 4, target)[0].tolist() == [0, 0]


@pytest.mark.parametrize(("lanes", "clocks"), [(4 * LANES, 1), (0 * LANES, 32), (LANES // 2 * 4, 2), (8 * LANES, 2)])
def test_lanes_that_meet_take_turns_on_nvidia(lanes: np.ndarray, clocks: int) -> None:
    assert shared_clocks(4, lanes[:32].astype(np.int64), True) == clocks
