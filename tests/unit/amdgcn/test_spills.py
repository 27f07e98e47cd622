"""Too few vector registers: kernels stay right, say what they spill, and the checker sees every defect of it."""

from __future__ import annotations

import random

import amdgcn_kernels as kernels
import numpy as np
import oracles
import pytest
from amdgcn_random import random_kernel
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target, isa
from wavedsl.codegen.amdgcn.allocation_check import check_allocation
from wavedsl.codegen.amdgcn.emit import AmdProgram, _allocate
from wavedsl.codegen.amdgcn.machine import COPY, FILE_BASE, GONE, KEPT, Inst, Ref
from wavedsl.codegen.amdgcn.machine import Program as Machine
from wavedsl.codegen.amdgcn.rematerialise import Candidate, make_again
from wavedsl.codegen.amdgcn.resources import Spilled
from wavedsl.codegen.amdgcn.rows import rows_of
from wavedsl.codegen.amdgcn.select import select
from wavedsl.codegen.amdgcn.spill_rewrite import Home, spill
from wavedsl.ir.errors import EmulationError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32, Kernel, Value
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")


def run_gemm(program: AmdProgram, chip: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (64, 128)).astype(np.float16) for _ in range(2))
    c = np.full((64, 64), np.nan, np.float32)
    run(program.text, target=chip, grid=(1, 1, 1), block=(256, 1, 1), args=[a, b, c], checks=True)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("registers", [36, 28, 24])
def test_a_product_with_few_registers(chip: str, registers: int) -> None:
    """Accumulators in scratch, in a loop with barriers, shared memory and loads in flight."""
    program = compile_kernel_ir(kernels.gemm(chip, 64, 64, 128), get_target(chip), registers=registers)
    r = program.resources
    assert r.vgprs <= registers and r.agprs == 0
    assert r.spills == r.spilled.scratch + r.spilled.scalars and (r.spills > 0 or r.spilled.again > 0)
    assert (r.scratch_bytes > 0) == (r.spilled.scratch > 0) == (r.instructions["scratch"] > 0)
    assert "; spills: " in program.text
    run_gemm(program, chip)


def pressing(chip: str, count: int, waves: int = 1) -> Kernel:
    """`count` values that are loaded before a loop, changed in it, and stored after it."""
    kernel = kernels.new_kernel("pressing", chip, ["x", "y"], waves)
    b = Builder(kernel, get_target(chip))
    size = 64 * waves
    tid = b.tid()
    source, target = b.buffer(b.param(0), 4 * size * count), b.buffer(b.param(1), 4 * size * count)
    at = b.mul(tid, 4)
    values = [
        b.bitcast(b.load_global(source, at, bytes=4, type=B32, imm=0, split=False), I32)
        if i == 0
        else b.bitcast(b.load_global(source, b.add(at, 4 * size * i), bytes=4, type=B32, split=False), I32)
        for i in range(count)
    ]
    with b.for_(0, 3, 1, values, uniform=[False] * count) as loop:
        carried = list(loop.carried)
        loop.yield_([b.add(b.xor(v, carried[(i + 1) % count]), loop.iv) for i, v in enumerate(carried)])
    for i, v in enumerate(loop.results):
        b.store_global(target, b.add(at, 4 * size * i), b.bitcast(v, B32), bytes=4, split=False)
    return kernel


def run_pressing(program: AmdProgram, chip: str, count: int, waves: int) -> None:
    data = np.random.default_rng(count).integers(0, 1 << 31, (count, 64 * waves), dtype=np.int64).astype(np.int32)
    out = np.zeros_like(data)
    run(program.text, target=chip, grid=(1, 1, 1), block=(64 * waves, 1, 1), args=[data, out], checks=True)
    want = data
    for iv in range(3):
        want = (want ^ np.roll(want, -1, axis=0)) + np.int32(iv)
    assert np.array_equal(out, want)


@pytest.mark.parametrize(
    ("chip", "count", "waves", "where"),
    [
        ("gfx90a", 280, 1, "accumulation"), ("gfx942", 140, 16, "scratch"),
        *(pytest.param(chip, 560, 1, "both", marks=pytest.mark.slow) for chip in CHIPS),
        *(pytest.param(chip, 270, 8, "scratch", marks=pytest.mark.slow) for chip in CHIPS),
    ],
)  # fmt: skip
def test_the_accumulation_file_comes_before_scratch(chip: str, count: int, waves: int, where: str) -> None:
    """One wave may use 512 registers, eight waves 256 and sixteen 128 in all: only the first has an accumulation file
    to spare."""
    program = compile_kernel_ir(pressing(chip, count, waves), get_target(chip))
    s = program.resources.spilled
    assert (s.accumulation > 0) == (where in ("accumulation", "both")), s
    assert (s.scratch > 0) == (where in ("scratch", "both")), s
    assert program.resources.occupancy == {1: 1, 8: 2, 16: 4}[waves]
    run_pressing(program, chip, count, waves)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_with_few_registers(seed: int) -> None:
    chip = CHIPS[seed % 3]
    kernel, data, want = random_kernel(seed, chip)
    out = np.zeros((64, 4), np.int32)
    program = compile_kernel_ir(kernel, get_target(chip), registers=10 + seed % 3)
    run(program.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[data, out], checks=True)
    assert np.array_equal(out, want)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_spilling_text_assembles(chip: str, tmp_path) -> None:
    """The descriptor asks for scratch as the chip wants it, and LLVM's own disassembly agrees on the instructions."""
    import subprocess

    program = compile_kernel_ir(kernels.gemm(chip, 64, 64, 128), get_target(chip), registers=24)
    source, object_ = tmp_path / "k.s", tmp_path / "k.o"
    source.write_text(program.text)
    llvm = [oracles.require("llvm-mc"), "-triple=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-filetype=obj"]
    done = subprocess.run([*llvm, str(source), "-o", str(object_)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    r = program.resources
    assert f".private_segment_fixed_size: {r.scratch_bytes}" in program.text
    asked = "user_sgpr_flat_scratch_init 1" if chip == "gfx90a" else "enable_private_segment 1"
    assert f".amdhsa_{asked}" in program.text
    disassemble = [oracles.require("llvm-objdump"), "-d", f"--mcpu={chip}", str(object_)]
    dump = subprocess.run(disassemble, capture_output=True, text=True, check=True).stdout
    assert sum("\tscratch_" in line for line in dump.splitlines()) == r.instructions["scratch"]


# ---- the checker, by mutation


def spilled(chip: str, kind: str) -> tuple[Machine, Spilled]:
    """An allocated program that spills: to scratch, to the accumulation file, scalars to lanes."""
    kernel, registers = KERNELS[kind](chip)
    program = select(kernel, chip)
    _, found, _ = _allocate(program, rows_of(chip), registers)
    assert check_allocation(program) == []
    return program, found


def scalars(chip: str) -> Kernel:
    kernel = kernels.new_kernel("scalars", chip, ["x", "y"])
    b = Builder(kernel, get_target(chip))
    tid = b.tid()
    x = b.bitcast(b.load_global(b.buffer(b.param(0), 256), b.mul(tid, 4), bytes=4, type=B32), I32)
    values = [b.emit("readfirst", (b.xor(x, 1000 * i + 7),)) for i in range(140)]
    total = tid
    for v in reversed(values):
        total = b.add(b.xor(total, v), 1)
    b.store_global(b.buffer(b.param(1), 256), b.mul(tid, 4), b.bitcast(total, B32), bytes=4)
    return kernel


def run_scalars(program: AmdProgram, chip: str) -> None:
    data, out = np.arange(5, 69, dtype=np.int32), np.zeros(64, np.int32)
    run(program.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[data, out], checks=True)
    want = np.arange(64, dtype=np.int32)
    for i in reversed(range(140)):
        want = (want ^ (5 ^ (1000 * i + 7))) + 1
    assert np.array_equal(out, want)


def carried_scalars(chip: str) -> Kernel:
    """130 scalars that a loop of three trips carries, each to its neighbour's place."""
    kernel = kernels.new_kernel("carried_scalars", chip, ["x", "y"])
    b = Builder(kernel, get_target(chip))
    tid = b.tid()
    x = b.bitcast(b.load_global(b.buffer(b.param(0), 256), b.mul(tid, 4), bytes=4, type=B32), I32)
    values = [b.emit("readfirst", (b.xor(x, 1000 * i + 7),)) for i in range(130)]
    with b.for_(0, 3, 1, values, uniform=[True] * len(values)) as loop:
        carried = list(loop.carried)
        loop.yield_([b.add(v, loop.iv) if i % 2 else v for i, v in enumerate(carried)])
    total = tid
    for v in loop.results:
        total = b.add(b.xor(total, v), 1)
    b.store_global(b.buffer(b.param(1), 256), b.mul(tid, 4), b.bitcast(total, B32), bytes=4)
    return kernel


@pytest.mark.parametrize("chip", ["gfx942", *(pytest.param(c, marks=pytest.mark.slow) for c in ("gfx90a", "gfx950"))])
def test_scalars_that_a_loop_carries_keep_their_lanes(chip: str) -> None:
    """Copies between what a loop starts with, carries and gives cost nothing where one lane has all three; the checker
    sees when it is another lane."""
    kernel = carried_scalars(chip)
    compiled = compile_kernel_ir(kernel, get_target(chip))
    data, out = np.arange(5, 69, dtype=np.int32), np.zeros(64, np.int32)
    run(compiled.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[data, out], checks=True)
    want = np.arange(64, dtype=np.int32)
    for i in range(130):
        want = (want ^ ((5 ^ (1000 * i + 7)) + (3 if i % 2 else 0))) + 1
    assert np.array_equal(out, want)
    assert 28 < compiled.resources.spilled.scalars < 60
    program = select(kernel, chip)
    _allocate(program, rows_of(chip), None)
    assert check_allocation(program) == []
    kept = [inst for block in program.blocks for inst in block.insts if inst.row is KEPT]
    assert len(kept) >= 28
    for inst in kept[::8]:
        assert inst.mods is not None
        good = inst.mods["home"]
        inst.mods["home"] = tuple((register, (lane + 1) % 64) for register, lane in good)
        assert check_allocation(program), f"{inst} instead of {good}"
        inst.mods["home"] = good


KERNELS = {
    "scratch": lambda chip: (kernels.gemm(chip, 64, 64, 128), 28),
    "accumulation": lambda chip: (pressing(chip, 270), None),
    "lanes": lambda chip: (scalars(chip), None),
}
SAMPLES = {"scratch": 60, "accumulation": 12, "lanes": 20}
"""Mutants that are tried of each kind: every how many of them."""
RUNS = {
    "scratch": run_gemm,
    "accumulation": lambda program, chip: run_pressing(program, chip, 270, 1),
    "lanes": run_scalars,
}


def added(program: Machine, *kinds: str) -> list[tuple[list[Inst], int]]:
    return [(b.insts, i) for b in program.blocks for i, inst in enumerate(b.insts) if inst.added in kinds]


def is_right(program: Machine, chip: str, kind: str) -> bool:
    """Finish compiling an allocated program and run it: the judge of mutants that the checker lets pass."""
    from wavedsl.codegen.amdgcn.finalize import make_physical
    from wavedsl.codegen.amdgcn.hazards import insert_nops
    from wavedsl.codegen.amdgcn.resources import describe
    from wavedsl.codegen.amdgcn.text import render
    from wavedsl.codegen.amdgcn.waits import insert_waits

    rows = rows_of(chip)
    make_physical(program, rows, verify=False)
    insert_waits(program, rows)
    insert_nops(program, rows)
    kernel = KERNELS[kind](chip)[0]
    resources = describe(program, {"v": 256, "a": 256, "s": 102}, 1)
    compiled = AmdProgram(kernel.name, render(program, resources, kernel.params), resources, program)
    try:
        RUNS[kind](compiled, chip)
    except (AssertionError, EmulationError):
        return False
    return True


@pytest.mark.parametrize("kind", ["scratch", pytest.param("accumulation", marks=pytest.mark.slow), "lanes"])
def test_every_dropped_spill_is_found(kind: str) -> None:
    """Without any one of the moves that the spiller added, some reader gets a wrong value. What the checker lets pass
    is right all the same: the value is still where it was, or is saved again before anybody reads it."""
    chip = "gfx942"
    program, found = spilled(chip, kind)
    assert {"scratch": found.scratch, "accumulation": found.accumulation, "lanes": found.scalars}[kind] > 0
    places = added(program, "spill", "reload", "again")
    caught = passed = 0
    for n in range(0, len(places), max(1, len(places) // SAMPLES[kind])):
        insts, i = places[n]
        inst = insts.pop(i)
        if check_allocation(program):
            caught += 1
        else:
            passed += 1
            mutant, _ = spilled(chip, kind)
            other, j = added(mutant, "spill", "reload", "again")[n]
            del other[j]
            assert is_right(mutant, chip, kind), f"without {inst}"
        insts.insert(i, inst)
    assert caught >= 8 and passed <= caught // 4, (caught, passed)


@pytest.mark.parametrize("chip", ["gfx90a", *(pytest.param(c, marks=pytest.mark.slow) for c in CHIPS[1:])])
def test_every_wrong_address_of_scratch_is_found(chip: str) -> None:
    program, _ = spilled(chip, "scratch")
    tried = 0
    for insts, i in added(program, "spill", "reload"):
        inst = insts[i]
        good = inst.mods
        offset = (good or {}).get("offset", 0)
        for wrong in (offset + 4, offset - 4, offset + 2):
            inst.mods = {**(good or {}), "offset": wrong}
            tried += 1
            assert check_allocation(program), f"{inst} instead of {offset}"
        inst.mods = good
    assert tried >= 30


@pytest.mark.parametrize("kind", ["scratch", pytest.param("accumulation", marks=pytest.mark.slow), "lanes"])
def test_wrong_registers_of_spills_are_found(kind: str) -> None:
    """What is saved from, or filled into, the next register; scalars in the next lane."""
    program, _ = spilled("gfx942", kind)
    caught = passed = 0
    places = added(program, "spill", "reload")
    for n in range(0, len(places), max(1, len(places) // SAMPLES[kind])):
        insts, i = places[n]
        inst = insts[i]
        good = inst.ops
        for k, operand in enumerate(good):
            other = shifted(operand, kind)
            if other is None:
                continue
            inst.ops = (*good[:k], other, *good[k + 1 :])
            if check_allocation(program):
                caught += 1
            else:
                passed += 1
                mutant, _ = spilled("gfx942", kind)
                block, j = added(mutant, "spill", "reload")[n]
                wrong = block[j]
                wrong.ops = (*wrong.ops[:k], shifted(wrong.ops[k], kind), *wrong.ops[k + 1 :])
                wrong.defs = tuple(shifted(r, kind) if r is good[k] else r for r in wrong.defs)
                assert is_right(mutant, "gfx942", kind), f"{inst} instead of {good}"
            inst.ops = good
    assert caught >= 16 and passed <= caught // 4, (caught, passed)


def shifted(operand, kind: str):
    """The next register, or the next lane; None where there is none."""
    if operand.__class__ is Ref and operand.reg.id >= 0:
        other = Ref(operand.reg, operand.start + 1, operand.n)
        last = other.at + other.n - 1 - FILE_BASE[operand.reg.cls]
        return None if last >= (100 if operand.reg.cls == "s" else 256) else other
    if kind == "lanes" and operand.__class__ is int:
        return (operand + 1) % 64
    return None


def test_a_changed_instruction_is_found() -> None:
    """Spilling must not change, drop, or exchange what was selected."""
    program, _ = spilled("gfx942", "scratch")
    block = max(program.blocks, key=lambda b: len(b.insts))
    ours = [i for i, inst in enumerate(block.insts) if not inst.added and inst.row not in (COPY, KEPT, GONE)]
    for i in random.Random(1).sample(ours, 20):
        inst = block.insts.pop(i)
        assert any("spilling changed" in c for c in check_allocation(program))
        block.insts.insert(i, inst)
        row, inst.row = inst.row, isa.lookup("v_add3_u32", "gfx942")
        assert any("spilling changed" in c for c in check_allocation(program))
        inst.row = row
    assert check_allocation(program) == []


def test_making_again_with_changed_operands_is_found() -> None:
    """The instruction that is repeated must be the one that was there, on operands that nobody has written since."""
    program, found = spilled("gfx942", "scratch")
    places = added(program, "again")
    assert found.again > 0 and places
    for insts, i in places:
        inst = insts[i]
        good = inst.ops
        for k, operand in enumerate(inst.ops):
            if operand.__class__ is int:
                inst.ops = (*inst.ops[:k], operand + 1, *inst.ops[k + 1 :])
                assert any("again" in c for c in check_allocation(program))
                inst.ops = good


def two_loops(chip: str, places: int) -> Kernel:
    """A loop that carries 4 values, then one that carries 24; both read `places` numbers that are made before."""
    kernel = kernels.new_kernel("two_loops", chip, ["x", "y"])
    b = Builder(kernel, get_target(chip))
    at = b.mul(b.tid(), 4)
    source, target = (b.buffer(b.param(i), 4 * 64 * 24) for i in (0, 1))

    def loaded(numbers: range) -> list[Value]:
        return [b.bitcast(b.load_global(source, b.add(at, 256 * i), bytes=4, type=B32), I32) for i in numbers]

    made = [b.xor(at, 0x1000 + 4 * i) for i in range(places)]
    few = loaded(range(4))
    with b.for_(0, 3, 1, few, uniform=[False] * 4, label="first") as loop:
        loop.yield_([b.add(v, b.xor(made[(3 * i) % places], loop.iv)) for i, v in enumerate(loop.carried)])
    with b.for_(0, 3, 1, [*loop.results, *loaded(range(4, 24))], uniform=[False] * 24, label="second") as last:
        now = list(last.carried)
        last.yield_([b.add(b.xor(v, now[(i + 1) % 24]), made[i % places]) for i, v in enumerate(now)])
    for i, v in enumerate(last.results):
        b.store_global(target, b.add(at, 256 * i), b.bitcast(v, B32), bytes=4)
    return kernel


def test_loops_that_have_room_keep_what_later_ones_make_again() -> None:
    """Registers are short in the second loop: it makes numbers again that the first one, which has room, just reads."""
    chip = "gfx942"
    roomy = compile_kernel_ir(two_loops(chip, 12), get_target(chip)).resources
    program = compile_kernel_ir(two_loops(chip, 12), get_target(chip), registers=34)
    tight = program.resources
    assert tight.vgprs <= 34 < roomy.vgprs and tight.spilled.again > 0 and tight.spills == 0
    (first, second), (kept, made) = roomy.loops, tight.loops
    assert kept.instructions["valu"] == first.instructions["valu"]
    assert made.instructions["valu"] > second.instructions["valu"]
    data = np.random.default_rng(0).integers(0, 1 << 30, (24, 64), dtype=np.int64).astype(np.int32)
    out, want = np.zeros_like(data), data.copy()
    number = (4 * np.arange(64)) ^ (0x1000 + 4 * np.arange(12))[:, None]
    for trip in range(3):
        want[:4] += np.stack([number[3 * i % 12] ^ trip for i in range(4)]).astype(np.int32)
    for _ in range(3):
        want = (want ^ np.roll(want, -1, 0)) + number[np.arange(24) % 12].astype(np.int32)
    run(program.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[data, out])
    assert np.array_equal(out, want)


# ---- occupancy


def early(chip: str, count: int) -> Kernel:
    """`count` addresses are computed before a loop that carries 40 values, and used once each behind it."""
    kernel = kernels.new_kernel("early", chip, ["x", "y"])
    b = Builder(kernel, get_target(chip))
    tid = b.tid()
    source = b.buffer(b.param(0), 4 * 64 * 40)
    target = b.buffer(b.param(1), 4 * 64 * (1 << 12))
    values = [
        b.bitcast(b.load_global(source, b.add(b.mul(tid, 4), 256 * i), bytes=4, type=B32, split=False), I32)
        for i in range(40)
    ]
    at = b.mul(tid, 4)
    where = [b.xor(at, 4 * (i + 1)) for i in range(count)]
    with b.for_(0, 2, 1, values, uniform=[False] * 40) as loop:
        loop.yield_([b.add(b.xor(v, loop.carried[(i + 1) % 40]), loop.iv) for i, v in enumerate(loop.carried)])
    for i in range(count):
        word = b.bitcast(loop.results[i % 40], B32)
        b.store_global(target, where[i], word, bytes=4, imm=256 * i, split=False)
    return kernel


def test_a_step_of_occupancy_is_taken_where_it_costs_nothing() -> None:
    """The addresses move behind the loop: more waves, not one instruction more, and the same numbers."""
    chip = "gfx942"
    count = 30
    program = compile_kernel_ir(early(chip, count), get_target(chip))
    r = program.resources
    assert r.spilled.again > 0 and r.spills == 0
    plain = select(early(chip, count), chip)
    used, _, _ = _allocate(plain, rows_of(chip))
    assert used["v"] > r.vgprs
    assert get_target(chip).occupancy(used["v"], 0, 64) < r.occupancy
    vector = [i for b in plain.blocks for i in b.insts if i.row.__class__ is not str and i.row.unit is isa.Unit.VALU]
    assert r.instructions["valu"] <= len(vector) + sum(i.row == COPY for b in plain.blocks for i in b.insts)
    data = np.random.default_rng(1).integers(0, 1 << 30, (40, 64), dtype=np.int64).astype(np.int32)
    out = np.zeros(1 << 12 << 6, np.int32)
    run(program.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[data, out], checks=True)
    want = data
    for iv in range(2):
        want = (want ^ np.roll(want, -1, axis=0)) + np.int32(iv)
    for i in range(count):
        assert np.array_equal(out[64 * i + (np.arange(64) ^ (i + 1))], want[i % 40])


# ---- both files are full


def crowded(chip: str, vectors: int) -> Kernel:
    """60 masks of lanes that live through a loop which works on so many vectors."""
    kernel = kernels.new_kernel("crowded", chip, ["x", "y"], 16)
    b = Builder(kernel, get_target(chip))
    at = b.mul(b.tid(), 4)
    source = b.buffer(b.param(0), 4096 * vectors)
    values = [
        b.bitcast(b.load_global(source, b.add(at, 4096 * i), bytes=4, type=B32, split=False), I32)
        for i in range(vectors)
    ]
    masks = [b.cmp("slt", values[0], (i << 24) + 5) for i in range(60)]
    with b.for_(0, 3, 1, values, uniform=[False] * vectors) as loop:
        carried = list(loop.carried)
        for shift in (1, 2, 3):
            carried = [b.add(b.xor(v, carried[(i + shift) % vectors]), loop.iv) for i, v in enumerate(carried)]
        loop.yield_(carried)
    total = b.tid()
    for v in [*(b.select(m, i, 3) for i, m in enumerate(masks)), *loop.results]:
        total = b.add(b.xor(total, v), 1)
    b.store_global(b.buffer(b.param(1), 4096), at, b.bitcast(total, B32), bytes=4, split=False)
    return kernel


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942"])
def test_vectors_that_keep_scalars_stay(chip: str) -> None:
    """What lanes keep, no move under a partial EXEC takes along: such a vector does not leave, idle as it may be."""
    vectors = 130
    program = compile_kernel_ir(crowded(chip, vectors), get_target(chip))
    found = program.resources.spilled
    assert found.scalars > 0 and found.scratch > 0, found
    data = np.random.default_rng(0).integers(0, 1 << 31, (vectors, 1024), dtype=np.int64).astype(np.int32)
    out = np.zeros(1024, np.int32)
    run(program.text, target=chip, grid=(1, 1, 1), block=(1024, 1, 1), args=[data, out], checks=True)
    carried = data
    for iv in range(3):
        for shift in (1, 2, 3):
            carried = (carried ^ np.roll(carried, -shift, axis=0)) + np.int32(iv)
    chosen = [np.where(data[0] < (i << 24) + 5, i, 3).astype(np.int32) for i in range(60)]
    want = np.arange(1024, dtype=np.int32)
    for v in [*chosen, *carried]:
        want = (want ^ v) + np.int32(1)
    assert np.array_equal(out, want)


@pytest.mark.parametrize("how", ["reload", "again"])
@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950"])
def test_what_is_filled_with_lanes_off_serves_nobody_behind(chip: str, how: str) -> None:
    """Fuzz seed 528610: an address was filled for the lanes that store, and the next access of all lanes took it."""
    kernel = kernels.new_kernel("masked", chip, ["x", "y"], 2)
    kernel.shared_bytes = 1024
    b = Builder(kernel, get_target(chip))
    tid = b.tid()
    source, target = b.buffer(b.param(0), 1024), b.buffer(b.param(1), 1024)
    at = b.mul(tid, 4)
    x = b.load_global(source, at, bytes=4, type=B32, split=False)
    b.store_shared(at, x, mask=b.cmp("ult", tid, 64), buffer="s")
    b.store_global(target, at, b.load_shared(at, bytes=4, buffer="s"), bytes=4, split=False)
    program = select(kernel, chip)
    (stored,) = [i for block in program.blocks for i in block.insts if "ds_write" in repr(i)]
    address = next(r.reg for r in stored.uses if r.reg.cls == "v" and r.reg is not stored.uses[-1].reg)
    if how == "reload":
        spill(program, rows_of(chip), {address.id: Home(None, 0)})
    else:
        (maker,) = [i for block in program.blocks for i in block.insts if any(r.reg is address for r in i.defs)]
        make_again(program, rows_of(chip), [Candidate(address, maker, 0)])
    some, filled, served = False, set(), 0
    for inst in (i for block in program.blocks for i in block.insts):
        some = (some or "saveexec" in repr(inst)) and not ("s_mov_b64" in repr(inst) and "exec" in repr(inst))
        if inst.added == how:
            filled |= {r.reg for r in inst.defs} if some else set()
            served += some
        else:
            assert some or not filled & {r.reg for r in inst.uses}, inst
    assert served
