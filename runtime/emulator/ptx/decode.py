"""PTX instructions to closures, once per static instruction.

In: an instruction as written. Out: `step(mask)`, bound to views of the registers it names. The idea: semantics come
from the table row and see typed arrays; this file reads operands, applies the guard, and writes results. What is not
plain register arithmetic goes to `memory`, `matrix`, or the warp section below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa import TYPE_BITS
from wavedsl.codegen.ptx.operand_rules import used_operands
from wavedsl.ir.errors import CompileError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx import address, atomic, matrix, matrix_move, memory, tensor, wmma
from wavedsl.runtime.emulator.ptx.bulk import BulkCopies
from wavedsl.runtime.emulator.ptx.copies import AsyncCopies
from wavedsl.runtime.emulator.ptx.machine import Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.mbarrier import MBarriers
from wavedsl.runtime.emulator.ptx.module import NOTHING, Imm, Inst, Label, Vector
from wavedsl.runtime.emulator.ptx.operands import Destination, put, source
from wavedsl.runtime.emulator.ptx.wgmma import Wgmmas

Step = Callable[[Mask], None]


@dataclass
class Engines:
    """What works beside the threads: copies of threads, mbarriers, bulk copies, warpgroup matrix instructions."""

    copies: AsyncCopies
    barriers: MBarriers
    bulk: BulkCopies
    wgmmas: Wgmmas | None

    def reset(self) -> None:
        """Nothing is under way."""
        self.copies.reset()
        self.barriers.reset()
        self.bulk.reset()
        if self.wgmmas is not None:
            self.wgmmas.reset()


def decode(m: Machine, engines: Engines, inst: Inst, row: isa.Inst, pc: int) -> Step:
    """The closure of one instruction that is not control flow, its guard applied."""
    if "wgmma" in row.effects:
        # Whole warpgroups execute it, so its guard is the scheduler's.
        assert engines.wgmmas is not None
        return engines.wgmmas.step(inst, row, pc)
    step = _body(m, engines, inst, row, pc)
    return guarded(m, inst, step)


def guarded(m: Machine, inst: Inst, step: Step) -> Step:
    """`@p` and `@!p`: the step runs under the lanes whose predicate holds."""
    if inst.guard is None:
        return step
    reg, negated = inst.guard
    p = m.reg(reg)

    def run(mask: Mask) -> None:
        on = ~p if negated else p
        if mask is not None:
            on = on & mask
        if on.all():
            step(None)
        elif on.any():
            step(on if on is not p else on.copy())

    return run


def _body(m: Machine, engines: Engines, inst: Inst, row: isa.Inst, pc: int) -> Step:
    effects, opcode = row.effects, row.row.opcode
    copies = engines.copies
    if "wmma" in effects:
        return wmma.step_of(m, inst, row, pc)
    if "matrix" in effects:
        return matrix.mma(m, inst, row, pc) if opcode == "mma" else matrix_move.matrix_move(m, inst, row, pc)
    if "bulk" in effects:
        return engines.bulk.step(inst, row, pc)
    if "atomic" in effects:
        return atomic.atomic(m, inst, row, pc)
    if "address" in effects:
        return address.convert_address(m, inst, row)
    if opcode in ("ld", "ldu"):
        return memory.load(m, inst, row, pc)
    if opcode == "st":
        return memory.store(m, inst, row, pc)
    if "mbarrier" in effects:
        return engines.barriers.step(inst, row, pc)
    if "tensormap" in effects:
        return (tensor.publish if "copy" in effects else tensor.replace)(m, inst, row, pc)
    if "mapa" in effects:
        return address.map_address(m, inst, row)
    if "async" in effects:
        return copies.copy(inst, row, pc)
    if "commit" in effects:
        return copies.commit
    if "wait" in effects:
        keep = inst.args[0].value if inst.args else None
        return copies.wait(keep) if m.checks else _nothing
    if "shuffle" in effects:
        return _warp(m, inst, row)
    if "fence" in effects and m.checks:
        return _fence(m, row)
    if "warpsync" in effects and m.checks:
        return _warp_barrier(m, inst)
    if effects & {"fence", "hint", "warpsync"}:
        return _nothing
    if "policy" in effects:
        d = m.reg(inst.args[0].reg)
        return lambda mask: put(d, np.zeros(1, d.dtype), mask)
    if "move" in effects:
        return _move(m, inst, row)
    return _arithmetic(m, inst, row)


def _nothing(mask: Mask) -> None:
    return None


def _fence(m: Machine, row: isa.Inst) -> Step:
    """Fences that the shadow knows: between proxies, and of initialised mbarriers."""
    if "initialised" in row.effects:
        return lambda mask: m.shadow.fence_inits(_warps(m, mask))
    if "grid" in row.effects:
        return lambda mask: m.shadow.grids_end(m.every if mask is None else m.lanes(mask))
    if "proxy" in row.effects and row.mods.get("kind") != "alias":
        space = row.mods.get("space")

        def between_proxies(mask: Mask) -> None:
            threads = m.every if mask is None else m.lanes(mask)
            if m.globals is not None and space in (None, "global"):
                m.globals.fence_proxies(threads)
            m.shadow.fence(threads, space)

        return between_proxies
    if m.globals is not None and "scope" in row.mods and "mbarrier" not in row.effects:
        return m.globals.fence(row) or _nothing
    return _nothing


def _warp_barrier(m: Machine, inst: Inst) -> Step:
    """`bar.warp.sync`: the lanes that its member mask names meet."""
    members = source(m, inst.args[0], "b32")

    everybody = isinstance(inst.args[0], Imm) and inst.args[0].value & 0xFFFFFFFF == 0xFFFFFFFF

    def meet(mask: Mask) -> None:
        if mask is None and everybody:
            m.shadow.lanes_meet(m.shadow.rows)
            return
        given = np.broadcast_to(members() if callable(members) else members, (m.T,))
        named: Array = given.astype(np.uint32).reshape(m.NW, 32)
        live = m.live.reshape(m.NW, 32)
        on = live if mask is None else mask.reshape(m.NW, 32)
        _members(m, inst, named, on)
        word: Array = np.where(live, _BIT, np.uint32(0)).sum(axis=1, dtype=np.uint32, keepdims=True)
        here = on.any(axis=1)
        whole = here & ((named & word == word) | ~on).all(axis=1)
        m.shadow.lanes_meet(np.flatnonzero(whole))
        for warp in np.flatnonzero(here & ~whole).tolist():
            for lanes in np.unique(named[warp][on[warp]]).tolist():
                m.shadow.some_meet(warp, lanes)

    return meet


def _warps(m: Machine, mask: Mask) -> Array:
    """Global warps of which any thread is in a mask."""
    return np.arange(m.NW) if mask is None else np.flatnonzero(mask.reshape(m.NW, 32).any(axis=1))


# ------------------------------------------------------------------------------------------------ arithmetic


def _arithmetic(m: Machine, inst: Inst, row: isa.Inst) -> Step:
    """A row whose semantics say it all."""
    if row.row.semantics is None:
        raise CompileError(f"{row.name} has a row but the emulator does not execute it")
    f = row.row.semantics(row.mods)
    dests = [Destination(m, a, op.type) for a, op in zip(inst.args, row.operands) if op.write and not op.paired]
    paired = [op for op in row.operands if op.paired]
    second = Destination(m, inst.pair, paired[0].type) if paired and inst.pair is not None else None
    plain = used_operands(row, len(inst.args))
    sources: list[Any] = []
    for a, op in zip(inst.args, plain):
        if op.write:
            continue
        if op.kind == "imm":
            if not isinstance(a, Imm):
                raise CompileError(f"{row.name}: operand {op.name} must be an immediate")
            sources.append(a.value)
        else:
            sources.append(source(m, a, op.type))
    changing = any(callable(s) for s in sources)

    def read() -> list[Any]:
        return [s() if callable(s) else s for s in sources]

    if "carry" in row.effects:
        carry = m.carry
        d = dests[0]

        def with_carry(mask: Mask) -> None:
            value, out = f(*read(), carry)
            d.put(value, mask)
            put(carry, out, mask)

        return with_carry
    if paired:
        d = dests[0]
        if second is None and hasattr(f, "single"):
            f = f.single
        elif second is None:
            both = f

            def f(*args: Array) -> Array:
                return both(*args)[0]

        else:
            q = second

            def pair_step(mask: Mask) -> None:
                p_value, q_value = f(*read())
                d.put(p_value, mask)
                q.put(q_value, mask)

            return pair_step
    d = dests[0]
    target = d.target
    if isinstance(f, np.ufunc) and not changing and target is not None and d.bits is None and target.ndim == 1:
        if all(s.dtype == sources[0].dtype for s in sources) and (
            target.dtype == sources[0].dtype or target.dtype == np.bool_
        ):
            return _ufunc_step(f, sources, target)
    if changing:

        def slow(mask: Mask) -> None:
            d.put(f(*read()), mask)

        return slow
    write = d.put
    if len(sources) == 1:
        a = sources[0]
        return lambda mask: write(f(a), mask)
    if len(sources) == 2:
        a, b = sources
        return lambda mask: write(f(a, b), mask)
    if len(sources) == 3:
        a, b, c = sources
        return lambda mask: write(f(a, b, c), mask)
    return lambda mask: write(f(*sources), mask)


def _ufunc_step(f: np.ufunc, sources: list[Array], target: Array) -> Step:
    if len(sources) == 1:
        a = sources[0]

        def one(mask: Mask) -> None:
            if mask is None:
                f(a, out=target)
            else:
                f(a, out=target, where=mask)

        return one
    a, b = sources

    def two(mask: Mask) -> None:
        if mask is None:
            f(a, b, out=target)
        else:
            f(a, b, out=target, where=mask)

    return two


def _move(m: Machine, inst: Inst, row: isa.Inst) -> Step:
    """`mov`: between registers, from a special register or an address, and packing or unpacking vectors."""
    type_ = row.mods["type"]
    d, a = inst.args
    if isinstance(d, Vector):
        return _unpack(m, d, a, type_)
    if isinstance(a, Vector):
        return _pack(m, d, a, type_)
    if isinstance(a, Imm) and a.float_bits and type_[0] != "f":
        type_ = {32: "b32", 64: "b64"}[TYPE_BITS[type_]]
    to = Destination(m, d, type_)
    if isinstance(a, Label):
        raise CompileError(f"{a.name} is neither a register nor a variable")
    if type_ == "pred" and isinstance(a, Imm):
        value = np.array([a.value != 0])
        return lambda mask: to.put(value, mask)
    s = source(m, a, type_)
    if callable(s):
        return lambda mask: to.put(s(), mask)
    write = to.put
    return lambda mask: write(s, mask)


def _unpack(m: Machine, d: Vector, a: Any, type_: str) -> Step:
    bits = TYPE_BITS[type_] // len(d.parts)
    s = source(m, a, f"b{TYPE_BITS[type_]}")
    if callable(s):
        raise CompileError("cannot unpack this operand")
    pieces = s.view(f"u{bits // 8}").reshape(len(s), len(d.parts))
    targets = [(i, Destination(m, p, f"b{bits}")) for i, p in enumerate(d.parts) if p is not NOTHING]

    def step(mask: Mask) -> None:
        values = [pieces[:, i].copy() for i, _ in targets]
        for (_, t), v in zip(targets, values):
            t.put(v, mask)

    return step


def _pack(m: Machine, d: Any, a: Vector, type_: str) -> Step:
    bits = TYPE_BITS[type_] // len(a.parts)
    parts = [source(m, p, f"b{bits}") for p in a.parts]
    if any(callable(p) for p in parts):
        raise CompileError("cannot pack this operand")
    target = m.reg(d.reg)
    n, k = m.T, len(parts)

    def step(mask: Mask) -> None:
        buffer = np.empty((n, k), f"u{bits // 8}")
        for i, p in enumerate(parts):
            buffer[:, i] = p
        value = buffer.view(f"u{bits * k // 8}")[:, 0]
        put(target, value.astype(target.dtype) if value.dtype != target.dtype else value, mask)

    return step


# ------------------------------------------------------------------------------------------------ within a warp


def _warp(m: Machine, inst: Inst, row: isa.Inst) -> Step:
    """Shuffles, votes, matches, reductions: arrays [warps, 32]."""
    NW = m.NW
    if "activemask" in row.effects:
        d = m.reg(inst.args[0].reg)
        bit = (np.uint32(1) << m.lane_of.astype(np.uint32)).reshape(NW, 32)

        def active(mask: Mask) -> None:
            on = (m.live if mask is None else mask).reshape(NW, 32)
            word = np.where(on, bit, np.uint32(0)).sum(axis=1, dtype=np.uint32)
            put(d, np.repeat(word, 32), mask)

        return active
    f = row.row.semantics(row.mods)  # type: ignore[misc]
    plain = [op for op in row.operands if not op.paired]
    paired = [op for op in row.operands if op.paired]
    out = Destination(m, inst.args[0], plain[0].type)
    second = Destination(m, inst.pair, paired[0].type) if paired and inst.pair is not None else None
    sources = [source(m, a, op.type) for a, op in zip(inst.args[1:], plain[1:])]
    is_shfl = row.row.opcode == "shfl"

    def rows(s: Any) -> Array:
        s = s() if callable(s) else s
        return s.reshape(NW, 32) if len(s) == m.T else np.broadcast_to(s, (NW, 32))

    def step(mask: Mask) -> None:
        args = [rows(s) for s in sources]
        member = args[-1]
        on = (m.live if mask is None else mask).reshape(NW, 32)
        if m.checks and mask is not None:
            _members(m, inst, member, on)
        if not is_shfl and mask is not None:
            # Only lanes that execute take part.
            word = np.where(on, _BIT, np.uint32(0)).sum(axis=1, dtype=np.uint32, keepdims=True)
            args[-1] = member & word
        result = f(*args)
        if is_shfl:
            result = result[:2]
        if isinstance(result, tuple):
            out.put(np.ascontiguousarray(result[0]).reshape(-1), mask)
            if second is not None:
                second.put(np.ascontiguousarray(np.broadcast_to(result[1], (NW, 32))).reshape(-1), mask)
        else:
            out.put(np.ascontiguousarray(result).reshape(-1), mask)

    return step


_BIT = (np.uint32(1) << np.arange(32, dtype=np.uint32))[None, :]


def _members(m: Machine, inst: Inst, member: Array, on: Array) -> None:
    """Every live lane that a `.sync` instruction names must execute it together with the others."""
    named = ((member[:, :, None] & _BIT[:, None, :]) != 0) & on[:, :, None]
    missing = named.any(axis=1) & m.live.reshape(m.NW, 32) & ~on
    if missing.any() and not m.seen("barrier-divergence", inst):
        thread = int(np.flatnonzero(missing.reshape(-1))[0])
        m.report("barrier-divergence", inst, "the member mask names a lane that does not execute it", thread)
    outside = on & ((member & _BIT) == 0)
    if outside.any() and not m.seen("barrier-divergence", inst):
        thread = int(np.flatnonzero(outside.reshape(-1))[0])
        m.report("barrier-divergence", inst, "a lane executes it that its member mask does not name", thread)
