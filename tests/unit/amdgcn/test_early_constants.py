"""Sums are zero before the first loads are there: where the moves stand, that nothing else changed, and the checker."""

from __future__ import annotations

import re

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.codegen.amdgcn.early_constants import check_early, is_constant, set_early
from wavedsl.codegen.amdgcn.emit import allocated
from wavedsl.codegen.amdgcn.finalize import make_physical
from wavedsl.codegen.amdgcn.machine import Program
from wavedsl.codegen.amdgcn.rows import rows_of
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Kernel, Value, vector
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")
TRIPS = 3


def store_sums(b: Builder, sums: Value) -> None:
    """A lane's 16 sums, one behind the other in y."""
    for part in range(4):
        words = b.bitcast(b.slice(sums, 4 * part, 4), vector(4))
        b.store_global(b.buffer(b.param(1), 8192), b.mul(b.tid(), 64), words, bytes=16, imm=16 * part)


def summed(chip: str) -> Kernel:
    """y += x x^T over some trips, x in shared memory before a branch and the loop."""
    target = get_target(chip)
    atom = next(a for a in target.mma_atoms if a.name == "F32_32x32x8_F16")
    kernel = kernels.new_kernel("summed", chip, ["x", "y"], 2, shared_bytes=1024)
    b = Builder(kernel, target)
    tid = b.tid()
    x = b.load_global(b.buffer(b.param(0), 1024), b.mul(tid, 8), bytes=8, type=vector(2))
    b.store_shared(b.mul(tid, 8), x)
    b.barrier()
    with b.if_(b.cmp("eq", b.wave(), 1)):
        b.store_shared(b.mul(tid, 8), x)
    with b.for_(0, TRIPS, 1, [b.zero(vector(16, "f32"))], label="k") as loop:
        part = b.load_shared(b.add(b.mul(tid, 8), b.mul(loop.iv, 0)), bytes=8, type=vector(2))
        loop.yield_([b.mma(atom, part, part, loop.carried[0])])
    store_sums(b, loop.results[0])
    return kernel


def placed(chip: str) -> Program:
    program, _, _ = allocated(summed(chip), get_target(chip))
    assert not make_physical(program, rows_of(chip))
    return program


@pytest.mark.parametrize("chip", CHIPS)
def test_sums_are_zero_before_the_first_wait_for_memory(chip: str) -> None:
    text = compile_kernel_ir(summed(chip), get_target(chip)).text
    load, wait, branch = (text.index(x) for x in ("buffer_load", "vmcnt(0)", "s_cbranch"))
    zeros = [m.start() for m in re.finditer(r"v_mov_b(32|64)_e32\s+v\S+, 0\n", text)]
    # the two registers of the operand that the branch stores again are not free before it
    early = [load < at < wait for at in zeros]
    assert wait < branch and sum(early) == len(zeros) - (1 if "b64" in text[zeros[-1] :][:16] else 2), text
    x = np.random.default_rng(0).integers(-3, 4, (2, 64, 4)).astype(np.float16)
    y = np.zeros((2, 64, 16), np.float32)
    run(text, target=chip, grid=(1, 1, 1), block=(128, 1, 1), args=[x, y], checks=True)
    for got, given in zip(y, x):
        rows = given.reshape(2, 32, 4).transpose(1, 0, 2).reshape(32, 8).astype(np.float32)
        lane_rows = got.reshape(2, 32, 4, 4).transpose(2, 0, 3, 1).reshape(32, 32)
        assert np.array_equal(lane_rows, TRIPS * rows @ rows.T)


@pytest.mark.parametrize("chip", CHIPS)
def test_checker_of_places(chip: str) -> None:
    """A moved constant put anywhere else: a complaint wherever its register or EXEC is another there."""
    program = placed(chip)
    before = [list(block.insts) for block in program.blocks]
    assert set_early(program)
    assert not check_early(before, program)
    good = [list(block.insts) for block in program.blocks]
    first = next(i for i, insts in enumerate(good) if any(map(is_constant, insts)))
    move = next(inst for inst in good[first] if is_constant(inst))
    without = [[x for x in insts if x is not move] for insts in good]
    refused = accepted = 0
    for block, insts in zip(program.blocks, without):
        block.insts = insts
    for b, insts in enumerate(without):
        for n in range(len(insts)):
            program.blocks[b].insts = [*insts[:n], move, *insts[n:]]
            fine = not check_early(before, program)
            # above the first reader, below whatever used the register before
            reader = any(x.reads & move.writes for k in range(b + 1) for x in without[k][: n if k == b else None])
            assert not (fine and reader), (b, n)
            refused += not fine
            accepted += fine
            program.blocks[b].insts = insts
    assert refused > 5 and accepted > 1
    for block, insts in zip(program.blocks, without):
        block.insts = insts
    assert check_early(before, program)


def branching(chip: str) -> Kernel:
    """x is first asked for inside a branch; behind it, a sum starts with zeros."""
    target = get_target(chip)
    atom = next(a for a in target.mma_atoms if a.name == "F32_32x32x8_F16")
    kernel = kernels.new_kernel("branching", chip, ["x", "y"], 2, shared_bytes=1024)
    b = Builder(kernel, target)
    tid = b.tid()
    x = b.load_global(b.buffer(b.param(0), 1024), b.mul(tid, 8), bytes=8, type=vector(2))
    with b.if_(b.cmp("eq", b.wave(), 1)):
        b.store_shared(b.mul(tid, 8), x)
    with b.for_(0, TRIPS, 1, [b.zero(vector(16, "f32"))], label="k") as loop:
        loop.yield_([b.mma(atom, x, x, loop.carried[0])])
    store_sums(b, loop.results[0])
    return kernel


@pytest.mark.parametrize("chip", CHIPS)
def test_a_shadow_inside_a_branch_is_not_on_the_way(chip: str) -> None:
    """Constants once went into a branch that the wave that needs them need not take, and the checker let it pass."""
    program, _, _ = allocated(branching(chip), get_target(chip))
    assert not make_physical(program, rows_of(chip))
    inside = [len(block.insts) for block in program.blocks]
    taken = next(b for b, block in enumerate(program.blocks) if any("ds_write" in repr(x) for x in block.insts))
    set_early(program)
    assert len(program.blocks[taken].insts) <= inside[taken]

    before = [list(block.insts) for block in program.blocks]
    later = next(b for b in range(taken + 1, len(before)) if any(map(is_constant, before[b])))
    move = next(x for x in before[later] if is_constant(x))
    program.blocks[later].insts = [x for x in before[later] if x is not move]
    program.blocks[taken].insts = [move, *before[taken]]
    assert check_early(before, program)

    text = compile_kernel_ir(branching(chip), get_target(chip)).text
    x = np.random.default_rng(0).integers(-3, 4, (2, 64, 4)).astype(np.float16)
    y = np.zeros((2, 64, 16), np.float32)
    run(text, target=chip, grid=(1, 1, 1), block=(128, 1, 1), args=[x, y], checks=True)
    for got, given in zip(y, x):
        rows = given.reshape(2, 32, 4).transpose(1, 0, 2).reshape(32, 8).astype(np.float32)
        assert np.array_equal(got.reshape(2, 32, 4, 4).transpose(2, 0, 3, 1).reshape(32, 32), TRIPS * rows @ rows.T)
