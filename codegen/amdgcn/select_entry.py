"""The kernel's entry: what registers hold when a wave starts, and ops that only read it.

ABI (LLVM, *User Guide for AMDGPU Backend*, initial kernel execution state): the kernel argument pointer in s[0:1],
the requested workgroup ids in order from s2, the workitem id in v0 (one-dimensional, so unmasked). All parameters are
loaded first, with the widest scalar loads that fit.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn import roles
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import V_BASE, Operand, Program, Ref, Reg
from wavedsl.codegen.amdgcn.select import Selector, lower
from wavedsl.ir.kernel.kernel_ir import Kernel, Op


def begin(s: Selector) -> None:
    """Name the inputs that the kernel uses and load its parameters."""
    axes: set[int] = set()
    params: list[int] = []
    for op in s.kernel.body.walk():
        if not op.results or op.results[0].id not in s.uses:
            continue
        if op.name == "wgid":
            axes.add(op.attrs["axis"])
        elif op.name == "param":
            if op.attrs["index"] not in params:
                params.append(op.attrs["index"])
    thread = _needs_thread(s.kernel)
    at = 2 if params else 0
    for axis in sorted(axes):
        s.workgroup[axis] = s.fixed("s", at, 1, f"workgroup {'xyz'[axis]}")
        s.inputs.append(s.workgroup[axis])
        at += 1
    if thread:
        s.thread = s.fixed("v", V_BASE, 1, "workitem")
        s.inputs.append(s.thread)
    if params:
        _load_params(s, sorted(params))


def _needs_thread(kernel: Kernel) -> bool:
    names = {"tid", "lane", "wave", "shuffle_xor"}
    return any(op.name in names for op in kernel.body.walk())


def _load_params(s: Selector, params: list[int]) -> None:
    """The used words of the argument block. A pointer is a load of its own, so that it can land in the descriptor
    that is built from it; neighbouring scalars are loaded together, in runs of 16, 8, 4, 2 or 1 words."""
    pointer = s.fixed("s", 0, 2, "kernel arguments")
    s.inputs.append(pointer)
    where: dict[int, Ref] = {}

    def load(first: int, width: int) -> None:
        dst = s.new("s", width, "kernel arguments")
        s.emit(s.rows.named(roles.SCALAR_LOADS[width]), dst, pointer, 4 * first)
        for k in range(width):
            where[first + k] = dst.part(k)

    words: list[int] = []
    for index in params:
        p = s.kernel.params[index]
        if p.kind == "pointer":
            load(p.offset // 4, 2)
        else:
            words += range(p.offset // 4, (p.offset + max(4, p.size)) // 4)
    words = sorted(set(words))
    i = 0
    while i < len(words):
        run = 1
        while i + run < len(words) and words[i + run] == words[i] + run:
            run += 1
        width = next(w for w in roles.SCALAR_LOADS if w <= run)
        load(words[i], width)
        i += width
    for index in params:
        p = s.kernel.params[index]
        first = p.offset // 4
        s.params[index] = [where[first + k] for k in range(max(1, p.size // 4))]


@lower("param")
def param(s: Selector, op: Op) -> None:
    parts = s.params[op.attrs["index"]]
    if op.results[0].type.words == 1:
        into = s.kernel.params[op.attrs["index"]].offset % 4
        if not into:
            s.bind(op, parts[0])
            return
        # Narrow scalars share a word; whoever asks for one takes its low bits.
        s.emit(s.rows.s_lshr_b32, s.result(op, "s"), parts[0], 8 * into)
        return
    low, high = parts[0], parts[1]
    if low.reg is high.reg and high.start == low.start + 1 and low.start % 2 == 0:
        s.bind(op, Ref(low.reg, low.start, 2))
        return
    pair = s.result(op, "s")
    s.copy(pair.part(0), low)
    s.copy(pair.part(1), high)


@lower("wgid")
def wgid(s: Selector, op: Op) -> None:
    s.bind(op, s.workgroup[op.attrs["axis"]])


@lower("tid")
def tid(s: Selector, op: Op) -> None:
    s.bind(op, s.thread)


@lower("lane")
def lane(s: Selector, op: Op) -> None:
    s.bind(op, s.thread if "lane" in s.from_thread else s.lane())


@lower("wave")
def wave(s: Selector, op: Op) -> None:
    if s.kernel.waves == 1:
        s.bind(op, 0)
        return

    first = s.first_thread()
    if "wave" in s.from_thread:
        s.bind(op, first)
        return

    def make() -> Operand:
        return s.stemp(s.rows.s_lshr_b32, first, s.kernel.wave_size.bit_length() - 1)

    s.bind(op, s.remember("wave", make))


def finish(s: Selector) -> Program:
    """The program: pooled constants go where execution starts, behind the loads of the parameters."""
    entry = s.blocks[0].insts
    at = 0
    while at < len(entry) and entry[at].row.__class__ is not str and entry[at].row.unit is Unit.SMEM:
        at += 1
    entry[at:at] = s.pool_insts
    regs: list[Reg] = s.regs
    program = Program(
        s.kernel.name,
        s.chip,
        s.blocks,
        regs,
        s.loops,
        s.kernel.shared_bytes,
        s.kernel.block,
        s.inputs,
        2 if s.params else 0,
        tuple(sorted(s.workgroup)),
    )
    program.number_predecessors()
    return program
