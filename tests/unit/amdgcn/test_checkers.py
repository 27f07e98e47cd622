"""The checkers of the back end, by mutation: good output with one defect must be refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import amdgcn_kernels as kernels
import pytest
from wavedsl.codegen.amdgcn import get_target, liveness
from wavedsl.codegen.amdgcn.allocate import allocate
from wavedsl.codegen.amdgcn.allocation_check import check_allocation, check_moves
from wavedsl.codegen.amdgcn.emit import SGPRS, VGPRS, compile_kernel_ir
from wavedsl.codegen.amdgcn.finalize import expand_copies, make_physical
from wavedsl.codegen.amdgcn.machine import COPY, FILE_BASE, Inst, Program
from wavedsl.codegen.amdgcn.rows import rows_of
from wavedsl.codegen.amdgcn.select import select
from wavedsl.codegen.amdgcn.waits import insert_waits
from wavedsl.codegen.amdgcn.waits_check import check_waits
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Kernel

CHIP = "gfx942"


def rotating(chip: str = CHIP) -> Kernel:
    """Three carried values that trade places, and one that is built from parts."""
    kernel = kernels.new_kernel("rotating", chip, ["y"])
    b = Builder(kernel, get_target(chip))
    t = b.tid()
    with b.for_(0, 5, 1, [t, b.add(t, 1000), b.add(t, 5000)]) as loop:
        x, y, z = loop.carried
        loop.yield_(y, z, b.add(x, loop.iv))
    words = [b.bitcast(v, kernels.B32) for v in loop.results]
    b.store_global(b.buffer(b.param(0), 768), b.mul(t, 12), b.vec(*words), bytes=12)
    return kernel


def allocated(kernel: Kernel) -> Program:
    program = select(kernel, kernel.target)
    allocate(program, liveness.analyse(program), {"v": VGPRS, "a": 0, "s": SGPRS})
    return program


KERNELS = {"gemm": lambda: kernels.gemm(CHIP, 64, 64, 64), "rotating": rotating}


def live_points(program: Program) -> dict[int, list[int]]:
    """Per tuple and register, the points at which it is live, from the liveness analysis."""
    live = liveness.analyse(program)
    out = {}
    for reg in program.regs:
        first = live.first[reg.id]
        out[reg.id] = [live.live[first + (k if live.split[reg.id] else 0)] for k in range(reg.n)]
    return out


@pytest.mark.parametrize("name", KERNELS)
def test_good_allocation_has_no_complaint(name: str) -> None:
    assert check_allocation(allocated(KERNELS[name]())) == []


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("how", ["shift", "swap"])
def test_moved_registers_are_found(name: str, how: str) -> None:
    """Every tuple moved by one step, or exchanged with another: found wherever the new place is taken by a value
    that is live at the same time and is not the same value."""
    program = allocated(KERNELS[name]())
    points = live_points(program)
    regs = [r for r in program.regs if any(points[r.id])]
    good = {r.id: r.at for r in program.regs}
    tried = found = 0
    for i, reg in enumerate(regs):
        if how == "shift":
            moves = {
                reg.id: reg.at + reg.align
                if reg.at + reg.align + reg.n <= FILE_BASE[reg.cls] + 100
                else reg.at - reg.align
            }
        else:
            other = next((r for r in regs[i + 1 :] if r.cls == reg.cls and r.n == reg.n and r.at != reg.at), None)
            if other is None:
                continue
            moves = {reg.id: other.at, other.id: reg.at}
        for r in program.regs:
            r.at = moves.get(r.id, good[r.id])
        clash = clashes(program, points) - clashes_of(program, points, good)
        if clash:
            tried += 1
            if check_allocation(program):
                found += 1
            else:
                assert all(same_value(program, pair) for pair in clash), (reg, clash)
        for r in program.regs:
            r.at = good[r.id]
    assert tried >= 4
    assert found >= tried // 2


def clashes_of(program: Program, points: dict[int, list[int]], places: dict[int, int]) -> set[tuple[int, int]]:
    moved = {r.id: r.at for r in program.regs}
    for r in program.regs:
        r.at = places[r.id]
    out = clashes(program, points)
    for r in program.regs:
        r.at = moved[r.id]
    return out


def clashes(program: Program, points: dict[int, list[int]]) -> set[tuple[int, int]]:
    """Pairs of tuples that share a register at a point where both are live."""
    by_place: dict[int, list[tuple[int, int]]] = {}
    for reg in program.regs:
        for k in range(reg.n):
            if points[reg.id][k]:
                by_place.setdefault(reg.at + k, []).append((reg.id, points[reg.id][k]))
    out = set()
    for users in by_place.values():
        for i, (a, live_a) in enumerate(users):
            for b, live_b in users[i + 1 :]:
                if live_a & live_b:
                    out.add((a, b))
    return out


def same_value(program: Program, pair: tuple[int, int]) -> bool:
    """Whether a chain of copies connects two tuples, so that they may hold one value."""
    groups = {r.id: r.id for r in program.regs}

    def find(x: int) -> int:
        while groups[x] != x:
            x = groups[x]
        return x

    for block in program.blocks:
        for inst in block.insts:
            if inst.hint is not None:
                groups[find(inst.hint[0].reg.id)] = find(inst.hint[1].reg.id)
    return find(pair[0]) == find(pair[1])


@pytest.mark.parametrize("name", KERNELS)
def test_dropped_and_exchanged_moves_are_found(name: str) -> None:
    program = allocated(KERNELS[name]())
    rows = rows_of(CHIP)
    checked = 0
    for block in program.blocks:
        group: list[Inst] = []
        for inst in [*block.insts, None]:
            if inst is not None and inst.row == COPY:
                group.append(inst)
                continue
            moves: list[Inst] = []
            expand_copies(group, rows, moves)
            assert check_moves(group, moves) == []
            for i in range(len(moves)):
                assert check_moves(group, moves[:i] + moves[i + 1 :]), f"without {moves[i]}"
                checked += 1
            group = []
    assert checked >= 3


def waited(kernel: Kernel) -> Program:
    program = allocated(kernel)
    rows = rows_of(kernel.target)
    make_physical(program, rows)
    insert_waits(program, rows)
    return program


@pytest.mark.parametrize("name", KERNELS)
def test_every_dropped_or_weakened_wait_is_found(name: str) -> None:
    """Without it, or with any counter one higher, a wait is missed: so the waits are also minimal."""
    program = waited(KERNELS[name]())
    assert check_waits(program) == []
    seen = 0
    for block in program.blocks:
        for i, inst in enumerate(block.insts):
            if inst.row.unit.value != "waitcnt":
                continue
            seen += 1
            block.insts.pop(i)
            assert check_waits(program), f"without {inst}"
            block.insts.insert(i, inst)
            good = inst.ops
            parts = good[0].split()
            for k, part in enumerate(parts):
                counter, n = part[:-1].split("(")
                weaker = [*parts[:k], f"{counter}({int(n) + 1})", *parts[k + 1 :]]
                inst.ops = (" ".join(weaker),)
                # one scalar load in flight makes every count but 0 worthless: then 1 is found as well
                assert check_waits(program), f"{good} as {inst.ops}"
            inst.ops = good
    assert seen >= 1


def test_loop_carried_load_is_waited_for_in_the_loop() -> None:
    """The prefetch of one trip is used in the next: the waits stand in the loop. Each load has one: the first
    frees registers while memory still brings the other."""
    program = waited(kernels.gemm(CHIP, 64, 64, 128))
    loop = program.loops[0]
    waits = [
        str(i.ops[0])
        for b in program.blocks[loop.first : loop.last + 1]
        for i in b.insts
        if i.row.unit.value == "waitcnt"
    ]
    assert [w for w in waits if "vmcnt" in w] == ["vmcnt(1)", "vmcnt(0)"]


def test_accumulators_keep_their_registers() -> None:
    """D = C in every matrix instruction of the loop, and no move in it."""
    program = compile_kernel_ir(kernels.gemm(CHIP, 64, 64, 128), get_target(CHIP)).program
    loop = program.loops[0]
    insts = [i for b in program.blocks[loop.first : loop.last + 1] for i in b.insts]
    mfmas = [i for i in insts if i.row.encoding == "MFMA"]
    assert len(mfmas) == 8
    assert all(i.ops[0] == i.ops[3] for i in mfmas)
    assert not [i for i in insts if i.row.mnemonic.startswith("v_mov")]


def test_text_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import amdgcn_kernels as k; from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target; "
        "print(compile_kernel_ir(k.gemm('gfx942', 64, 64, 128), get_target('gfx942')).text)"
    )
    helpers = Path(kernels.__file__).parent
    texts = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(helpers)}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        texts.add(done.stdout)
    assert len(texts) == 1 and "s_endpgm" in texts.pop()
