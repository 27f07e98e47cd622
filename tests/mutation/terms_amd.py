"""Names of all bytes of an AMDGCN run: see `terms.py`.

The instructions are those that the examples use; what they read and write comes from `amd_replay`, what they mean here
is spelled out below from the ISA guides: copies, selections and bit masks move names, memory and matrix instructions
combine the bytes they combine on the chip, anything else gives a name to the whole expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from unittest import mock

import amd_replay
import names
import numpy as np
import order
import trial
from mutants import Instruction, instructions, split_operands
from names import Unknown, fold, known, label, mix, spread, unwritten, value_of, written
from sums import element
from wavedsl.runtime.emulator.amdgcn import emulator as amdgcn
from wavedsl.runtime.emulator.amdgcn import state as amdgcn_state

if TYPE_CHECKING:
    from terms import Recorder

GARBAGE = 0x5EEDBAD1
"""What registers hold at first: those that hold something else were set by the launch."""
LANES = 64
COPIES = 1 << 16
"""A wave's copies to LDS are an actor of their own: the wave itself must wait for them like any other."""
_COPIES = ("v_mov_b", "s_mov_b", "v_accvgpr_", "v_readfirstlane")
_ACROSS = re.compile(r"dpp|quad_perm|row_|wave_|sdwa|sel:|op_sel")
_RAW = 0x20000
"""Descriptor word 3 but for DST_SEL and NUM_FORMAT, which untyped accesses do not look at."""
_BUFFER = {"ushort": 2, "short": 2, "short_d16_hi": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
_DS = re.compile(r"ds_(?:read|write)_[bu](8|16|32|64|96|128)$")
_DS2 = re.compile(r"ds_(?:read|write)2(st64)?_b(32|64)$")


class _Garbage(amdgcn_state.State):
    def __init__(self, registers: int, waves: int):
        super().__init__(registers, waves)
        self.U[:] = GARBAGE
        self.S32[:63] = GARBAGE


class Shadow:
    """Names beside a group of waves: V [register, byte, wave, lane], S [register, byte, wave], scc [wave]."""

    def __init__(self, v: Any, s: Any, scc: Any):
        self.V, self.S, self.scc = v, s, scc

    def select(self, index: Any) -> Shadow:
        return Shadow(self.V[:, :, index], self.S[:, :, index], self.scc[index])

    def merge(self, other: Shadow, a: Any, b: Any) -> Shadow:
        v, s = (np.concatenate(x, axis=2) for x in ((self.V, other.V), (self.S, other.S)))
        return Shadow(v, s, np.concatenate((self.scc, other.scc)))


def run(case: trial.Case, text: str, r: Recorder, data: int = 0) -> None:
    """Execute and record. Raises Unknown, and what a run raises."""
    if "by_value" in text:
        raise Unknown("an argument that is no array")
    at = {i.line: i for i in instructions(text)}
    machines: dict[int, _Machine] = {}
    engine_type = amdgcn._Engine
    initial, decode, terminate = engine_type.initial, engine_type._decode, engine_type._terminate

    def begin(engine: Any, groups: Any) -> Any:
        st = initial(engine, groups)
        if id(engine) in machines:
            raise Unknown("more workgroups than run at a time")
        machines[id(engine)] = machine = _Machine(engine, st, r)
        r.arrays += [(a.base, a.end) for a in engine.memory.allocations if a.name != "kernel arguments"]
        st.check = machine.start(st)
        return st

    def step_of(engine: Any, line: Any, index: int) -> Any:
        return machines[id(engine)].step(at[line.number - 1], decode(engine, line, index))

    def end_of(engine: Any, st: Any, block: Any) -> None:
        name = engine.program.lines[block.last].mnemonic
        if name.startswith("s_cbranch"):
            names.demand(st.check.scc if "scc" in name else st.check.S[_words(name[10:-1].rstrip("n"))], "a branch")
        terminate(engine, st, block)

    with (
        mock.patch.object(engine_type, "initial", begin), mock.patch.object(engine_type, "_decode", step_of),
        mock.patch.object(engine_type, "_terminate", end_of), mock.patch.object(amdgcn, "State", _Garbage),
    ):  # fmt: skip
        trial.execute(case, text, 0, checks=False, data=data)
    for machine in machines.values():
        machine.finish()


def _words(register: str) -> list[int]:
    """Numbers of the scalar registers that a word of `amd_replay` stands for."""
    named = {"vcc": [106, 107], "exec": [126, 127], "m0": [124]}
    return named[register] if register in named else [int(register[1:])]


def _constant(text: str, size: int) -> Any | None:
    """The bytes of an integer operand, or None for anything else."""
    if not re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", text):
        return None
    return np.array(list((int(text, 0) & (1 << 8 * size) - 1).to_bytes(size, "little")), np.uint64)


def _normal(number: Any) -> Any:
    """The bytes [4, …] of an f32 addend as MI200's matrix unit takes them: known denormals are 0."""
    tiny = names.known(number).all(axis=0) & (number[3] & np.uint64(0x7F) == 0) & (number[2] < 0x80)
    return np.where(tiny, np.uint64(0), number)


class _Machine:
    """The names of one launch: makes the steps that keep them."""

    def __init__(self, engine: Any, st: Any, r: Recorder):
        self.engine, self.r = engine, r
        self.vgprs = engine.regs.vgprs
        groups = int(st.wg.max()) + 1
        place = fold(label("lds"), np.ix_(np.arange(groups), np.arange(max(1, engine.lds))))
        self.lds = unwritten(place, 1)[0]
        """[workgroup, byte]"""
        shape = (groups, max(1, int(st.wave.max()) + 1))
        self.issued = np.zeros(shape, np.int64)
        """Vector memory instructions of each wave, in order: what `vmcnt` counts."""
        self.arriving: list[tuple[order.Access, Any]] = []
        """Copies to LDS, and the number of each lane's among those of its wave."""

    def finish(self) -> None:
        """What was never waited for may arrive at any time until the end."""
        end = max((int(a.last.max(initial=0)) for a in self.r.accesses), default=0)
        for access, _ in self.arriving:
            access.last = np.where(access.last < 0, max(end, int(access.first.max(initial=0))), access.last)

    def start(self, st: Any) -> Shadow:
        """Names at the kernel's entry: what the launch sets is known but for the address of the arguments."""
        who = (st.wg * 64 + st.wave).astype(np.uint64)
        place = fold(label("vector"), np.ix_(np.arange(len(st.U)), who, np.arange(LANES)))
        v = np.moveaxis(unwritten(place, 4), 0, 1)
        values = np.moveaxis(names.bytes_of(st.U), 0, 1)
        v = np.where((st.U == GARBAGE)[:, None], v, values)
        flat = np.moveaxis(st.S32, 1, 2).reshape(128, st.waves)
        s = np.moveaxis(unwritten(fold(label("scalar"), np.ix_(np.arange(128), who)), 4), 0, 1)
        s = np.where((flat == GARBAGE)[:, None], s, np.moveaxis(names.bytes_of(flat), 0, 1))
        self.argument = spread(label("arguments"), 8)
        if flat[:2, 0].tolist() != [self.engine.launch.kernarg & 0xFFFFFFFF, self.engine.launch.kernarg >> 32]:
            raise Unknown("the address of the arguments is not in s[0:1]")
        s[0], s[1] = self.argument[:4, None], self.argument[4:, None]
        return Shadow(v, s, mix(label("scc"), who))

    # ---- registers

    def row(self, register: str) -> int:
        return int(register[1:]) + (self.vgprs if register[0] == "a" else 0)

    def read(self, sh: Shadow, register: str) -> list[Any]:
        """Names of a register's words, each [byte, wave, lane or 1]."""
        if register == "scc":
            return [sh.scc[None, :, None]]
        if register[0] in "va" and register != "vcc":
            return [sh.V[self.row(register)]]
        return [sh.S[w][:, :, None] for w in _words(register)]

    def put_vector(self, st: Any, register: str, what: Any, mask: Any) -> None:
        """Write names of a vector register's bytes in the lanes of a mask (None: all)."""
        row = self.row(register)
        target = st.check.V[row]
        np.copyto(target, what, where=True if mask is None else mask)
        self.r.wrote(target, names.bytes_of(st.U[row]))

    def put_scalar(self, st: Any, word: int, what: Any) -> None:
        st.check.S[word] = what
        self.r.wrote(st.check.S[word], names.bytes_of(_scalar(st, word)))

    # ---- instructions

    def step(self, i: Instruction, inner: Callable[[Any], None]) -> Callable[[Any], None]:
        """The emulator's step with names kept beside."""
        name = re.sub(r"_e(32|64)$", "", i.mnemonic)
        if name == "s_waitcnt" and "vmcnt" in i.operands:
            return self.wait(i, inner)
        if name in ("s_nop", "s_waitcnt", "s_setprio"):
            return inner
        try:
            e = amd_replay.effect(i)
        except amd_replay.Unknown as unknown:
            raise Unknown(str(unknown)) from None
        if _ACROSS.search(i.mnemonic + " " + i.operands):
            raise Unknown(i.operands)
        parts = split_operands(i.operands)
        if name.startswith("s_load_"):
            rule: Any = self.scalar_load
        elif name.startswith("s_buffer_load_"):
            rule = self.scalar_buffer
        elif amd_replay.copies_to_lds(i):
            rule = self.copy
        elif name.startswith("buffer_"):
            rule = self.buffer
        elif name.startswith("ds_"):
            rule = self.shared
        elif name.startswith(("global_", "flat_", "scratch_")):
            raise Unknown(name)
        elif name.startswith("v_mfma_"):
            rule = self.matrix
        elif name.startswith("v_smfmac_"):
            rule = self.sparse_matrix
        elif name.startswith("v_cmp_"):
            rule = self.compare
        elif name.startswith("v_readfirstlane"):
            rule = self.first_lane
        elif name.startswith("v_permlane"):
            rule = self.lane_swap
        elif name.startswith("v_"):
            rule = self.vector
        else:
            rule = self.scalar
        finish = rule(e, parts, name)
        by_lane = "exec" in e.reads and not name.startswith(("s_", "ds_write"))

        def traced(st: Any) -> None:
            if by_lane:
                names.demand(st.check.S[_words("exec")], "EXEC")
            if e.queue == "vm":
                self.issued[st.wg, st.wave] += 1
            # a rule reads the names of sources, yields for the step, and writes the names of results
            for _ in finish(st):
                inner(st)

        return traced

    def vector(self, e: Any, parts: list[str], name: str) -> Any:
        """Lane by lane."""
        operation = label(name + "|" + "|".join(_shape(p) for p in parts[1:]))
        writes = sorted(e.writes, key=lambda r: int(r[1:]))
        sources = [sorted(s, key=_number) for s in e.sources[1:]]
        copies = name.startswith(_COPIES)
        ands = name == "v_and_b32"
        selects, permutes = name == "v_cndmask_b32", name == "v_perm_b32"
        if not writes or any(r[0] not in "va" or r == "vcc" for r in writes):
            raise Unknown(name)

        def finish(st: Any) -> Any:
            sh, mask = st.check, st.mask
            words = [[w.copy() for r in s for w in self.read(sh, r)] for s in sources]
            flat = [w for s in words for w in s]
            yield
            values = [names.bytes_of(st.U[self.row(r)]) for r in writes]
            sure = np.ones((st.waves, LANES), bool)
            for w in flat:
                sure &= known(w).all(axis=0)
            if sure.all() or not flat:
                out = values
            elif copies:
                out = [np.broadcast_to(w, values[0].shape) for w in flat]
            elif ands:
                out = [_and(_operand(words[0], parts[1], 4, 3), _operand(words[1], parts[2], 4, 3), operation)]
            elif selects and known(np.stack(words[2])).all():
                lanes = _lanes(words[2])
                first, second = (np.broadcast_to(w[0], values[0].shape) if w else values[0] for w in words[:2])
                out = [np.where(lanes, second, first)]
            elif permutes and len(words[2]) == 1 and known(words[2][0]).all() and (words[2][0] < 8).all():
                # selectors 0 to 3: bytes of the second source, 4 to 7: of the first
                held = np.concatenate([np.broadcast_to(_operand(w, p, 4, 3), (4, st.waves, LANES))
                                       for w, p in ((words[1], parts[2]), (words[0], parts[1]))])  # fmt: skip
                chosen = np.broadcast_to(words[2][0], (4, st.waves, LANES)).astype(np.intp)
                out = [np.take_along_axis(held, chosen, axis=0)]
            else:
                term = fold(operation, (b for w in flat for b in w))
                out = [np.where(sure, v, spread(term, 4, 4 * n)) for n, v in enumerate(values)]
            for register, what in zip(writes, out):
                self.put_vector(st, register, what, mask)

        return finish

    def compare(self, e: Any, parts: list[str], name: str) -> Any:
        """A bit per lane; inactive lanes give 0."""
        operation = label(name + "|" + "|".join(_shape(p) for p in parts[1:]))
        sources = [r for s in e.sources[1:] for r in sorted(s, key=_number)]
        targets = [w for r in sorted(e.writes, key=_number) for w in _words(r)]

        def finish(st: Any) -> Any:
            active = np.ones((st.waves, LANES), bool) if st.mask is None else st.mask.copy()
            flat = [np.broadcast_to(w, (4, st.waves, LANES)).copy() for r in sources for w in self.read(st.check, r)]
            yield
            sure = (np.stack([known(w).all(axis=0) for w in flat]).all(axis=0) | ~active).all(axis=1)
            term = np.full(st.waves, operation)
            if not sure.all():
                for w in flat:
                    for b in w:
                        term = fold(term, np.where(active, b, np.uint64(0)).T)
            for n, word in enumerate(targets):
                value = names.bytes_of(_scalar(st, word))
                self.put_scalar(st, word, np.where(sure, value, spread(term, 4, 4 * n)))

        return finish

    def first_lane(self, e: Any, parts: list[str], name: str) -> Any:
        (source,), (target,) = e.sources[1], e.writes

        def finish(st: Any) -> Any:
            lane = np.zeros(st.waves, int) if st.mask is None else st.mask.argmax(axis=1)
            what = self.read(st.check, source)[0][:, np.arange(st.waves), lane].copy()
            yield
            self.put_scalar(st, _words(target)[0], what)

        return finish

    def lane_swap(self, e: Any, parts: list[str], name: str) -> Any:
        """Odd groups of 16 or 32 lanes of the first register change places with even ones of the second."""
        size = int(re.findall(r"\d+", name)[0])
        lane = np.arange(LANES)
        odd = lane // size % 2 == 1

        def finish(st: Any) -> Any:
            first, second = (self.read(st.check, p)[0].copy() for p in parts)
            yield
            self.put_vector(st, parts[0], np.where(odd, second[..., lane ^ size], first), st.mask)
            self.put_vector(st, parts[1], np.where(odd, second, first[..., lane ^ size]), st.mask)

        return finish

    def scalar(self, e: Any, parts: list[str], name: str) -> Any:
        """Scalar arithmetic, and EXEC and VCC as registers."""
        compares = name.startswith(("s_cmp_", "s_bitcmp"))
        operation = label(name + "|" + "|".join(_shape(p) for p in parts))
        operands = list(e.sources) if compares else list(e.sources[1:])
        used = [sorted(s, key=_number) for s in operands]
        implied = sorted(set(e.reads) - {r for s in used for r in s}, key=_number)
        targets = [] if compares else [w for r in sorted(e.sources[0], key=_number) for w in _words(r)]
        extra = [w for r in sorted(e.writes, key=_number) if r != "scc" for w in _words(r) if w not in targets]
        copies, selects = name.startswith(_COPIES), name.startswith("s_cselect")
        ands = name.startswith(("s_and_b32", "s_and_b64"))
        size = 4 * len(targets)

        def finish(st: Any) -> Any:
            sh = st.check
            words = [[w[:, :, 0].copy() for r in s for w in self.read(sh, r)] for s in used]
            flat = [*(w for s in words for w in s), *(w[:, :, 0].copy() for r in implied for w in self.read(sh, r))]
            yield
            sure = np.ones(st.waves, bool)
            for w in flat:
                sure &= known(w).all(axis=0)
            term = fold(operation, (b for w in flat for b in w)) if not sure.all() else operation
            for n, word in enumerate((*targets, *extra)):
                value = names.bytes_of(_scalar(st, word))
                if sure.all():
                    out = value
                elif copies:
                    out = flat[n]
                elif selects and known(sh.scc).all():
                    first, second = (w[n] if w else value for w in words)
                    out = np.where(sh.scc != 0, first, second)
                elif ands and n < len(targets):
                    a, b = (_operand([np.concatenate(w)] if w else [], p, size, 2) for w, p in zip(words, parts[1:]))
                    out = np.broadcast_to(_and(a, b, operation), (size, st.waves))[4 * n : 4 * n + 4]
                else:
                    out = np.where(sure, value, spread(term, 4, 4 * n))
                self.put_scalar(st, word, out)
            if "scc" in e.writes:
                sh.scc = np.where(sure, st.scc.astype(np.uint64), mix(term, label("scc")))

        return finish

    # ---- memory

    def scalar_load(self, e: Any, parts: list[str], name: str) -> Any:
        """Arguments, all of them addresses of arrays, below 2**48."""
        if not re.fullmatch(r"0x[0-9a-f]+|\d+", parts[2]):
            raise Unknown(parts[2])
        offset = int(parts[2], 0)
        base = sorted(e.sources[1], key=_number)
        targets = sorted(e.writes, key=_number)
        if offset % 8 or len(targets) % 2 or len(base) != 2:
            raise Unknown("half an address")

        def finish(st: Any) -> Any:
            held = np.concatenate([st.check.S[int(r[1:])] for r in base])
            if (held != self.argument[:, None]).any():
                raise Unknown("a load from elsewhere than the arguments")
            yield
            for n, register in enumerate(targets):
                out = np.array([0 if b % 8 > 5 else mix(self.argument[0], np.uint64(b))
                                for b in range(offset + 4 * n, offset + 4 * n + 4)], np.uint64)  # fmt: skip
                self.put_scalar(st, int(register[1:]), np.broadcast_to(out[:, None], (4, st.waves)))

        return finish

    def scalar_buffer(self, e: Any, parts: list[str], name: str) -> Any:
        """Words of a buffer, one address for the wave."""
        targets, descriptor, scalar = (sorted(s, key=_number) for s in e.sources)
        constant, size = _constant(parts[2], 4), 4 * len(targets)
        if not scalar and constant is None:
            raise Unknown(parts[2])

        def finish(st: Any) -> Any:
            everyone = np.ones((st.waves, LANES), bool)
            place, address, inside = self.located(st, everyone, [], descriptor, scalar, constant, 0, size)
            there = inside[:, 0]
            what = np.zeros((size, st.waves), np.uint64)
            what[:, there] = self.r.loaded(place[:, there, 0], address[:, there, 0])
            yield
            for n, register in enumerate(targets):
                self.put_scalar(st, int(register[1:]), what[4 * n : 4 * n + 4])

        return finish

    def wait(self, i: Instruction, inner: Callable[[Any], None]) -> Callable[[Any], None]:
        """Copies to LDS that a wait covers have arrived."""
        left = int(re.search(r"vmcnt\((\d+)\)", i.operands)[1])  # type: ignore[index]

        def traced(st: Any) -> None:
            inner(st)
            done = np.full(self.issued.shape, -1, np.int64)
            epoch = np.zeros(self.issued.shape, np.int64)
            done[st.wg, st.wave] = self.issued[st.wg, st.wave] - left
            epoch[st.wg, st.wave] = st.epoch
            for access, number in self.arriving:
                wave = access.actor - COPIES
                on = (number <= done[access.group, wave]) & (access.last < 0)
                access.last = np.where(on, epoch[access.group, wave], access.last)
            self.arriving = [x for x in self.arriving if (x[0].last < 0).any()]

        return traced

    def copy(self, e: Any, parts: list[str], name: str) -> Any:
        """A load to LDS: lane after lane from the byte in M0 on, zeros for lanes beyond the buffer's end. The
        instruction's offset counts for both addresses."""
        size = _BUFFER.get(name.partition("_load_")[2])
        tail = parts[-1].split()
        if size not in (4, 16) or "idxen" in tail or len(e.sources) != 3:
            raise Unknown(name)
        lane, descriptor, scalar = (sorted(s, key=_number) for s in e.sources)
        offset = sum(int(w[7:]) for w in tail if w.startswith("offset:"))
        constant = _constant(tail[0], 4)

        def finish(st: Any) -> Any:
            mask = np.ones((st.waves, LANES), bool) if st.mask is None else st.mask.copy()
            place, address, inside = self.located(st, mask, lane, descriptor, scalar, constant, offset, size)
            what = np.zeros((size, *mask.shape), np.uint64)
            what[:, inside] = self.r.loaded(place[:, inside], address[:, inside])
            start = value_of(st.check.S[_words("m0")[0]], "M0") + offset
            at = (start[:, None] + size * np.arange(LANES))[mask]
            if (at + size > self.engine.lds).any():
                raise Unknown("a copy beyond LDS")
            group, wave, epoch = (np.broadcast_to(x[:, None], mask.shape)[mask] for x in (st.wg, st.wave, st.epoch))
            access = order.Access(True, group, wave + COPIES, epoch, np.full(at.shape, -1), at, size, what[:, mask])
            self.r.accesses.append(access)
            self.arriving.append((access, self.issued[group, wave]))
            for b in range(size):
                self.lds[group, at + b] = access.names[b]
            yield

        return finish

    def located(
        self, st: Any, mask: Any, lane: list[str], descriptor: list[str], scalar: list[str], constant: Any, offset: int,
        size: int,
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        """(names of the places, addresses, [byte, wave, lane]; which lanes' bytes lie in the buffer)."""
        sh = st.check
        w = np.concatenate([sh.S[int(r[1:])] for r in descriptor])
        value_of(w[6:8], "a stride")
        if w[6:8].any() or ((value_of(w[12:16], "a format") & ~0x7FFF) != _RAW).any():
            raise Unknown("a descriptor of no plain buffer")
        soffset = value_of(sh.S[int(scalar[0][1:])] if scalar else constant[:, None], "an offset")
        at = np.full((st.waves, LANES), offset, np.int64)
        if lane:
            own = np.where(mask, self.read(sh, lane[0])[0], np.uint64(0))
            at = at + value_of(own, "an address")
        room = (value_of(w[8:12], "a size") - soffset)[:, None]
        inside = mask & (at < room)
        if (inside & (at + size > room)).any():
            raise Unknown("an access across the end of a buffer")
        base = fold(label("array"), w[:6])[:, None]
        where = at + np.broadcast_to(soffset, (st.waves,))[:, None]
        first = _scalar(st, int(descriptor[0][1:])).astype(np.int64)
        first |= (_scalar(st, int(descriptor[1][1:])).astype(np.int64) & 0xFFFF) << 32
        place = np.stack([mix(base, (where + b).astype(np.uint64)) for b in range(size)])
        return place, np.stack([where + first[:, None] + b for b in range(size)]), inside

    def buffer(self, e: Any, parts: list[str], name: str) -> Any:
        stores = "_store_" in name
        size = _BUFFER.get(name.partition("_store_" if stores else "_load_")[2])
        tail = parts[3].split()
        if size is None or (not stores and "d16" in name) or {"idxen", "lds"} & set(tail) or len(e.sources) != 4:
            raise Unknown(name)
        data, lane, descriptor, scalar = (sorted(s, key=_number) for s in e.sources)
        offset = sum(int(w[7:]) for w in tail if w.startswith("offset:"))
        constant = _constant(tail[0], 4)
        high = 2 if name.endswith("d16_hi") else 0

        def finish(st: Any) -> Any:
            sh, mask = st.check, np.ones((st.waves, LANES), bool) if st.mask is None else st.mask.copy()
            place, address, inside = self.located(st, mask, lane, descriptor, scalar, constant, offset, size)
            address = address[:, inside]
            what = np.zeros((size, *mask.shape), np.uint64)
            if stores:
                held = np.concatenate([self.read(sh, r)[0] for r in data])[high : high + size]
                self.r.stored(place[:, inside], address, held[:, inside])
            else:
                what[:, inside] = self.r.loaded(place[:, inside], address)
            yield
            if not stores:
                self.put_words(st, data, what, mask)

        return finish

    def put_words(self, st: Any, registers: list[str], what: Any, mask: Any) -> None:
        """Loaded bytes [byte, wave, lane] into registers; what is left of the last is 0."""
        for n, register in enumerate(registers):
            part = np.zeros((4, st.waves, LANES), np.uint64)
            held = what[4 * n : 4 * n + 4]
            part[: len(held)] = held
            self.put_vector(st, register, part, mask)

    def shared(self, e: Any, parts: list[str], name: str) -> Any:
        """Accesses to LDS; those with two offsets are two of them."""
        width, double = _DS.match(name), _DS2.match(name)
        if width is None and double is None:
            raise Unknown(name)
        size = int((width or double)[1 if width else 2]) // 8  # type: ignore[index]
        writes = e.lds == "write"
        addresses = sorted(e.sources[0 if writes else 1])
        if len(addresses) != 1:
            raise Unknown("an address of several registers")
        (register,) = addresses
        data = sorted(e.sources[1 if writes else 0], key=_number)
        if double is None:
            pieces = [(sum(int(x) for x in re.findall(r"offset:(\d+)", parts[-1])), data)]
        else:
            unit = size * (64 if double[1] else 1)
            at = [sum(int(x) for x in re.findall(rf"offset{n}:(\d+)", parts[-1])) * unit for n in (0, 1)]
            half = size // 4
            more = sorted(e.sources[2], key=_number) if writes else data[half:]
            pieces = [(at[0], data[:half]), (at[1], more)]

        def finish(st: Any) -> Any:
            sh = st.check
            certain = known(sh.S[_words("exec")]).all()
            # where EXEC is not known, a write may happen in any lane, or not
            mask = np.ones((st.waves, LANES), bool) if st.mask is None or not certain else st.mask.copy()
            base = value_of(np.where(mask, self.read(sh, register)[0], np.uint64(0)), "an LDS address")
            group = np.broadcast_to(st.wg[:, None], mask.shape)[mask]
            wave = np.broadcast_to(st.wave[:, None], mask.shape)[mask]
            epoch = np.broadcast_to(st.epoch[:, None], mask.shape)[mask]
            places = []
            for offset, held in pieces:
                at = base + offset
                if (at[mask] + size > self.engine.lds).any():
                    raise Unknown("an access beyond LDS")
                where = at[mask]
                places.append((where, held))
                access = order.Access(writes, group, wave, epoch, epoch, where, size)
                self.r.accesses.append(access)
                if writes:
                    access.names = written(np.concatenate([self.read(sh, r)[0] for r in held])[:size, mask])
                    if not certain:
                        old = np.stack([self.lds[group, where + b] for b in range(size)])
                        access.names = mix(mix(label("either"), old), access.names)
                    for b in range(size):
                        self.lds[group, where + b] = access.names[b]
            yield
            for where, held in () if writes else places:
                what = np.zeros((size, *mask.shape), np.uint64)
                for b in range(size):
                    what[b, mask] = self.lds[group, where + b]
                self.put_words(st, held, what, mask)

        return finish

    # ---- matrices

    def matrix(self, e: Any, parts: list[str], name: str) -> Any:
        """D = A·B + C of 16-bit inputs: an element depends on its row of A, its column of B and its element of C."""
        shape = re.search(r"f32_(\d+)x(\d+)x(\d+)_?f16$", name)
        if shape is None or shape[1] != shape[2] or len(parts) != 4:
            raise Unknown(name)
        m, k = int(shape[1]), int(shape[3])
        each = k * m // LANES
        d, a, b, c = (sorted(s, key=_number) for s in e.sources)
        if (parts[3] != "0" and not c) or len(a) != each // 2 or len(b) != each // 2 or len(d) != m * m // LANES:
            raise Unknown(name)

        def finish(st: Any) -> Any:
            sh = st.check
            rows, columns = self.operand(sh, a, m), self.operand(sh, b, m)
            sums = [written(self.read(sh, r)[0]).copy() for r in c]
            yield
            for n, register in enumerate(d):
                i, j = _place(n, m)
                start = sums[n] if sums else np.zeros((4, st.waves, LANES), np.uint64)
                if self.engine.target == "gfx90a":
                    start = _normal(start)
                self.put_sum(st, register, name, start, rows[:, :, i], columns[:, :, j])

        return finish

    def sparse_matrix(self, e: Any, parts: list[str], name: str) -> Any:
        """D += A·B of 16-bit inputs, where A has two of every four elements of K: the fourth operand's byte ABID holds
        two bits per element of a lane, its place among its four (CDNA3 guide). What is not picked of B is not used."""
        shape = re.search(r"f32_(\d+)x(\d+)x(\d+)_f16$", name)
        modifiers = parts[3].split()[1:]
        if shape is None or shape[1] != shape[2] or not all(re.fullmatch(r"abid:[0-3]", x) for x in modifiers):
            raise Unknown(name)
        m, k = int(shape[1]), int(shape[3])
        d, a, b, (index,) = (sorted(s, key=_number) for s in e.sources)
        held = k // 2 * m // LANES
        if len(a) != held // 2 or len(b) != held or len(d) != m * m // LANES:
            raise Unknown(name)
        byte = int(modifiers[0][-1]) if modifiers else 0
        fours = 4 * (np.arange(k // 2) // 2)

        def finish(st: Any) -> Any:
            sh = st.check
            rows, columns = self.operand(sh, a, m), self.operand(sh, b, m)
            sums = [written(self.read(sh, r)[0]).copy() for r in d]
            bits = value_of(written(self.read(sh, index)[0])[byte : byte + 1], "the places of a sparse operand")
            bits = np.broadcast_to(bits, (st.waves, LANES))
            places = bits[..., None] >> 2 * np.arange(held) & 3  # [wave, lane, element]
            picked = places.reshape(st.waves, LANES // m, m, held).transpose(0, 2, 1, 3).reshape(st.waves, m, k // 2)
            picked = picked + fours
            wave = np.arange(st.waves)[:, None, None]
            yield
            for n, register in enumerate(d):
                i, j = _place(n, m)
                self.put_sum(st, register, name, sums[n], rows[:, :, i], columns[:, wave, j[:, None], picked[:, i]])

        return finish

    def operand(self, sh: Shadow, registers: list[str], m: int) -> Any:
        """Elements of a matrix instruction's A or B, [byte, wave, row or column, k]: lane l has those of row or column
        l % m, its share of k by l // m. Raises Unknown where nothing has written one."""
        held = np.concatenate([self.read(sh, r)[0] for r in registers])
        waves, each, blocks = held.shape[1], 2 * len(registers), LANES // m
        ordered = held.reshape(each, 2, waves, blocks, m).transpose(1, 2, 4, 3, 0)
        return written(ordered.reshape(2, waves, m, blocks * each))

    def put_sum(self, st: Any, register: str, name: str, start: Any, a: Any, b: Any) -> None:
        """Write the names of `start` + A·B, element by element, as a matrix instruction's result."""
        value = names.bytes_of(st.U[self.row(register)])
        self.put_vector(st, register, element(label(name), start, a, b, value), None)


def _place(n: int, m: int) -> tuple[Any, Any]:
    """Row and column, per lane, of element n of a matrix instruction's result of m rows."""
    lane = np.arange(LANES)
    return 4 * (lane // m) + n // 4 * 4 * (LANES // m) + n % 4, lane % m


def _shape(part: str) -> str:
    """An operand without its register's number: what is left tells operations apart."""
    return re.sub(r"(?<![\w.])[vsa](\d+|\[\d+:\d+\])", "R", part)


def _number(register: str) -> tuple[str, int]:
    return (register[0], int(register[1:])) if register[1:].isdigit() else (register, 0)


def _scalar(st: Any, word: int) -> Any:
    return st.S32[word >> 1, :, word & 1].copy()


def _operand(words: list[Any], text: str, size: int, axes: int) -> Any:
    """Names of a source's bytes, with so many axes: of registers, or of an integer constant."""
    if words:
        return words[0]
    constant = _constant(text, size)
    if constant is None:
        raise Unknown(text)
    return constant.reshape(-1, *(1,) * (axes - 1))


def _and(a: Any, b: Any, operation: Any) -> Any:
    """Bitwise and, byte by byte."""
    both = known(a) & known(b)
    out = np.where(both, a & b, mix(mix(operation, a), b))
    zero = (a == 0) | (b == 0)
    return np.where(zero, np.uint64(0), np.where(a == 255, b, np.where(b == 255, a, out)))


def _lanes(words: list[Any]) -> Any:
    """bool [wave, lane] of a mask's known words [byte, wave, 1]."""
    bits = np.concatenate([w[:, :, 0] for w in words]).astype(np.uint8)
    return np.unpackbits(bits.T.copy(), axis=1, bitorder="little").view(bool)
