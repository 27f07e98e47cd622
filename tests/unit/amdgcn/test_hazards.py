"""Nops: enough of them, and no more, on every path; against the hazard rules and the emulator's count."""

from __future__ import annotations

import re
from itertools import pairwise

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, emit, get_target
from wavedsl.codegen.amdgcn.clauses import break_clauses
from wavedsl.codegen.amdgcn.hazard_fill import _pads_from, check_order, movable
from wavedsl.codegen.amdgcn.hazards import flow, walk
from wavedsl.codegen.amdgcn.machine import V_BASE, Block, fixed_register
from wavedsl.codegen.amdgcn.machine import Program as MachineProgram
from wavedsl.codegen.amdgcn.rows import rows_of, set_physical
from wavedsl.ir.errors import EmulationError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32, I32, Kernel, Value, vector
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")


def chained(chip: str) -> Kernel:
    """A matrix result, a mask and an exp2 used at once, a DPP read, a lane read into an address."""
    target = get_target(chip)
    atom = next(a for a in target.mma_atoms if a.name == "F32_16x16x16_F16")
    kernel = kernels.new_kernel("chained", chip, ["x", "y"])
    b = Builder(kernel, target)
    tid = b.tid()
    x = b.load_global(b.buffer(b.param(0), 1024), b.mul(tid, 16), bytes=16, type=vector(4))
    d = b.mma(atom, b.slice(x, 0, 2), b.slice(x, 2, 2), b.zero(vector(4, "f32")))
    first = b.fadd(b.slice(d, 0), b.f32(1.0))
    e = b.fadd(b.exp2(b.fmul(first, b.f32(0.125))), first)
    swapped = b.shuffle_xor(b.bitcast(e, I32), 1)
    picked = b.select(b.cmp("slt", swapped, 0), b.bitcast(swapped, F32), e)
    where = b.emit("readfirst", (b.and_(b.bitcast(picked, I32), 0),))
    b.store_global(b.buffer(b.param(1), 1024), b.mul(tid, 4), b.bitcast(picked, B32), soff=where, bytes=4)
    return kernel


def execute(text: str, chip: str) -> set[str]:
    """Kinds of findings; the result must be right when there is none."""
    x = np.random.default_rng(0).integers(-2, 3, (64, 8)).astype(np.float16)
    y = np.zeros(256, np.float32)
    try:
        run(text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[x, y], checks=True)
    except EmulationError as error:
        return {f.kind for f in error.report.findings}  # type: ignore[attr-defined]
    return set()


@pytest.mark.parametrize("chip", CHIPS)
def test_every_shortened_nop_is_a_hazard(chip: str) -> None:
    text = compile_kernel_ir(chained(chip), get_target(chip)).text
    assert execute(text, chip) == set()
    nops = list(re.finditer(r"\ts_nop +(\d+)\n", text))
    assert nops
    for m in nops:
        n = int(m.group(1))
        shorter = f"\ts_nop {n - 1}\n" if n else ""
        assert execute(text[: m.start()] + shorter + text[m.end() :], chip) == {"hazard"}, m.group()


@pytest.mark.parametrize("chip", CHIPS)
def test_hazard_across_the_back_edge(chip: str) -> None:
    """The matrix result of one trip is read by the first instruction of the next."""
    target = get_target(chip)
    atom = next(a for a in target.mma_atoms if a.name == "F32_32x32x8_F16")
    kernel = kernels.new_kernel("edge", chip, ["x", "y"])
    b = Builder(kernel, target)
    tid = b.tid()
    x = b.load_global(b.buffer(b.param(0), 1024), b.mul(tid, 16), bytes=16, type=vector(4))
    with b.for_(0, 3, 1, [b.f32(0.0), b.zero(vector(16, "f32"))], uniform=[False, False]) as loop:
        total, acc = loop.carried
        total = b.fadd(total, b.slice(acc, 3))
        loop.yield_(total, b.mma(atom, b.slice(x, 0, 2), b.slice(x, 2, 2), acc))
    b.store_global(b.buffer(b.param(1), 1024), b.mul(tid, 4), b.bitcast(loop.results[0], B32), bytes=4)
    text = compile_kernel_ir(kernel, target).text
    assert execute(text, chip) == set()
    assert "s_nop" in text.split("loop over")[1]
    assert execute(re.sub(r"\ts_nop +\d+\n", "", text), chip) == {"hazard"}


@pytest.mark.parametrize("chip", CHIPS)
def test_no_nop_where_distance_is_enough(chip: str) -> None:
    """The GEMM's loop needs none: matrix results are chained, and read long after."""
    program = compile_kernel_ir(kernels.gemm(chip, 128, 128, 128), get_target(chip))
    assert program.resources.loops[0].instructions["nop"] == 0


def beside_other_work(chip: str, apart: bool) -> Kernel:
    """`chained`'s kind of gaps, with arithmetic on other data behind them (`apart`: or before them) that fits in."""
    target = get_target(chip)
    atom = next(a for a in target.mma_atoms if a.name == "F32_16x16x16_F16")
    kernel = kernels.new_kernel("beside", chip, ["x", "y"])
    b = Builder(kernel, target)
    tid = b.tid()
    x = b.load_global(b.buffer(b.param(0), 1024), b.mul(tid, 16), bytes=16, type=vector(4))

    def work() -> list[Value]:
        out = []
        for k in range(6):
            word = b.bitcast(b.slice(x, k % 4), I32)
            for n in range(1 + k):
                word = b.xor(b.mul(word, 3 + n), k)
            out.append(word)
        return out

    others = work() if apart else []
    d = b.mma(atom, b.slice(x, 0, 2), b.slice(x, 2, 2), b.zero(vector(4, "f32")))
    sums = [b.fadd(b.exp2(b.slice(d, k)), b.f32(float(k))) for k in range(4)]
    others = others or work()
    words = [*(b.bitcast(s, I32) for s in sums), *others[:4]]
    words[0] = b.xor(words[0], b.xor(others[4], others[5]))
    for k in range(2):
        part = b.vec(*(b.bitcast(w, B32) for w in words[4 * k : 4 * k + 4]))
        b.store_global(b.buffer(b.param(1), 2048), b.add(b.mul(tid, 32), 16 * k), part, bytes=16)
    return kernel


def states(text: str) -> int:
    """Wait states that nops spend."""
    return sum(int(n) + 1 for n in re.findall(r"\ts_nop +(\d+)", text))


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("chip", CHIPS)
def test_useful_instructions_come_before_nops(chip: str, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same instructions in another order, with fewer nops, no hazard and the same results."""
    target = get_target(chip)
    filled = compile_kernel_ir(beside_other_work(chip, apart), target).text
    monkeypatch.setattr(emit, "fill_gaps", lambda program, flow: False)
    plain = compile_kernel_ir(beside_other_work(chip, apart), target).text
    assert states(plain) >= 5
    assert states(filled) <= states(plain) - 5
    code = [sorted(re.findall(r"^\t[vsbg]\w+_(?!nop).*", t.split(".section")[0], re.M)) for t in (filled, plain)]
    assert code[0] == code[1]
    x = np.random.default_rng(0).integers(-2, 3, (64, 8)).astype(np.float16)
    results = []
    for text in (filled, plain):
        y = np.zeros(512, np.uint32)
        run(text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[x, y], checks=True)
        results.append(y)
    assert results[0].any()
    assert np.array_equal(*results)


@pytest.mark.parametrize("chip", CHIPS)
def test_wait_states_of_a_trial_are_those_of_the_whole_block(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial is walked around what it moves; a walk of the whole block in that order says the same."""
    monkeypatch.setattr(emit, "fill_gaps", lambda program, flow: False)
    monkeypatch.setattr(emit, "insert_nops", lambda program, rows, flow: None)
    found = flow(compile_kernel_ir(beside_other_work(chip, True), get_target(chip)).program)
    b = max(range(len(found.facts)), key=lambda b: len(found.facts[b]))
    facts, pads, entry = found.facts[b], found.pads[b], found.entry[b]
    assert entry is not None
    assert sum(pads) > 4
    shorter = different = 0
    for k in range(len(facts)):
        for at in range(k + 2, min(len(facts), k + 50), 7):
            trial = [*facts[k + 1 : at], facts[k]]
            part = _pads_from(k, trial, facts, pads, entry, chip)
            whole, _ = walk([*facts[:k], *trial, *facts[at:]], entry, chip)
            assert [*pads[:k], *part, *pads[k + len(part) :]] == whole, (k, at)
            shorter += k + len(part) < len(facts)
            different += whole != pads
    assert shorter > 100
    assert different > 50


def test_checker_of_orders_finds_every_dependence() -> None:
    """Neighbours that depend on each other, exchanged: a complaint each; others may be exchanged."""
    program = compile_kernel_ir(beside_other_work("gfx942", False), get_target("gfx942")).program
    block = max(program.blocks, key=lambda block: len(block.insts))
    before = [list(b.insts) for b in program.blocks]
    refused = accepted = 0
    good = block.insts
    for k, (first, second) in enumerate(pairwise(good)):
        block.insts = [*good[:k], second, first, *good[k + 2 :]]
        depends = first.writes & (second.reads | second.writes) or first.reads & second.writes
        effects = not (movable(first) or movable(second))
        found = check_order(before, program)
        if depends or effects:
            assert found, (first, second)
            refused += 1
        elif movable(first) and movable(second):
            assert not found, (first, second)
            accepted += 1
    assert refused > 10
    assert accepted > 10
    block.insts = good[1:]
    assert check_order(before, program)


@pytest.mark.parametrize("chip", CHIPS)
def test_nothing_overtakes_a_wait_for_what_it_reads(chip: str) -> None:
    """The wait's own result is what the gap could take: it stays behind the wait."""
    target = get_target(chip)
    kernel = kernels.new_kernel("behind", chip, ["x", "y"])
    b = Builder(kernel, target)
    tid = b.tid()
    data = b.load_global(b.buffer(b.param(0), 1024), b.mul(tid, 8), bytes=8, type=vector(2))
    late = b.load_global(b.buffer(b.param(0), 1024), b.add(b.mul(tid, 8), 512), bytes=4)
    e = b.fadd(b.exp2(b.bitcast(b.slice(data, 0), F32)), b.f32(1.0))
    own = b.xor(b.mul(b.bitcast(late, I32), 5), 7)
    b.store_global(b.buffer(b.param(1), 1024), b.mul(tid, 8), b.vec(b.bitcast(e, B32), b.bitcast(own, B32)), bytes=8)
    text = compile_kernel_ir(kernel, target).text
    x = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    run(text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[x, np.zeros(256, np.float32)], checks=True)


# ---- clauses


def loaded_in_a_row(chip: str, *addresses: tuple[int, int]) -> MachineProgram:
    """Loads of (destination, address) registers, one behind the other."""
    rows = rows_of(chip)
    block = Block("")
    for to, address in addresses:
        d, v, srd = fixed_register("v", V_BASE + to), fixed_register("v", V_BASE + address), fixed_register("s", 4, 4)
        inst = rows.make(rows.buffer_load_dword, (d, v, srd, 0), {"offen": True})
        set_physical(inst)
        block.insts.append(inst)
    return MachineProgram("row", chip, [block], [], [], 0, 64)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_load_does_not_overwrite_an_address_of_its_clause(chip: str) -> None:
    def kinds(*addresses: tuple[int, int]) -> list[str]:
        program = loaded_in_a_row(chip, *addresses)
        break_clauses(program, rows_of(chip))
        return [inst.row.base for inst in program.blocks[0].insts]

    load, nop = "buffer_load_dword", "s_nop"
    assert kinds((1, 9), (9, 10)) == [load, nop, load]
    assert kinds((1, 9), (2, 10), (9, 11)) == [load, load, nop, load]
    assert kinds((1, 9), (2, 9), (3, 10)) == [load] * 3
