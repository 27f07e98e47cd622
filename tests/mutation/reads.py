"""What every instruction of a run reads, and where in LDS, to tell whether a mutant computes anything else.

In: a case and a text. Out: per wave group, in order, one record for each executed instruction: its line and a digest of
the registers it read (in the lanes that were active) and of what it loaded from memory. The idea: if all instructions
but the mutated ones read what they read in the original, the slip changed nothing that anybody looks at.

Runs have checks off: memory results arrive at once, so the records show values, never timing. Registers start as
garbage, or a use of one that nothing wrote would look like a use of zero.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import amd_replay
import numpy as np
import trial
from mutants import Instruction, instructions
from wavedsl.runtime.emulator import amdgcn, amdgcn_state, ptx_flow, ptx_machine, ptx_run

Record = tuple[int, int]
"""Line of the text from 0, digest."""


GARBAGE = 0x5EEDBAD1


class _Garbage(amdgcn_state.State):
    """Waves whose registers hold what others left there."""

    def __init__(self, registers: int, waves: int):
        super().__init__(registers, waves)
        self.U[:] = GARBAGE
        self.S32[:51] = GARBAGE
        self.S32[53] = GARBAGE
        self.scc[:] = True


@dataclass
class Access:
    """One executed LDS instruction. Per wave: workgroup, wave, barriers passed; per lane: address; bytes each."""

    kind: str
    size: int
    wave: tuple[np.ndarray, np.ndarray, np.ndarray]
    address: np.ndarray
    active: np.ndarray
    data: np.ndarray | None
    """The bytes that a write stores, [wave, lane, size]."""


def trace(case: trial.Case, text: str, accesses: list[Access] | None = None) -> list[Record]:
    """The records of a run; `accesses` gathers those to the LDS of AMDGCN text. Raises what a run raises, and Unknown
    for text that is not understood or does not end."""
    try:
        with trial.limited(trial.CPU_LIMIT):
            return _trace(case, text, accesses)
    except trial.Endless:
        raise amd_replay.Unknown("a run that does not end") from None


def _trace(case: trial.Case, text: str, accesses: list[Access] | None) -> list[Record]:
    log: list[Record] = []
    if case.target.startswith("gfx"):
        original = amdgcn._Engine._decode
        at = {i.line: i for i in instructions(text)}

        def decode(engine: Any, line: Any, index: int) -> Callable[[Any], None]:
            step = original(engine, line, index)
            instruction = at[line.number - 1]
            e = amd_replay.effect(instruction)
            if e.lds and accesses is not None:
                step = _amd_access(step, instruction, e, accesses)
            return _amd(step, e, engine.regs.vgprs, log)

        with mock.patch.object(amdgcn._Engine, "_decode", decode), mock.patch.object(amdgcn, "State", _Garbage):
            trial.execute(case, text, 0, checks=False)
        return log
    inner = ptx_run.decode

    def ptx_decode(machine: Any, *rest: Any) -> Callable[[Any], None]:
        step = inner(machine, *rest)
        inst, row = rest[-3], rest[-2]
        writes = sum(op.write and not op.paired for op in row.operands)
        defs, uses = ptx_flow.defs_and_uses(inst, writes)
        loaded = defs if inst.name.startswith(("ld.", "ldmatrix")) else ()
        return _ptx(step, machine, inst.line - 1, list(uses), list(loaded), log)

    plain = ptx_machine.Machine.reg

    def garbage(machine: Any, register: Any) -> np.ndarray:
        new = register.index not in machine.regs
        array = plain(machine, register)
        if new:
            array[...] = True if array.dtype == np.bool_ else GARBAGE & np.iinfo(array.dtype).max
        return array

    with mock.patch.object(ptx_run, "decode", ptx_decode), mock.patch.object(ptx_machine.Machine, "reg", garbage):
        trial.execute(case, text, 0, checks=False)
    return log


def _amd(step: Callable[[Any], None], e: amd_replay.Effect, vgprs: int, log: list[Record]) -> Callable[[Any], None]:
    reads = sorted(e.reads)
    loaded = sorted(e.writes) if e.queue else []
    every_lane = e.name.startswith("v_mfma")

    def traced(st: Any) -> None:
        digest = 0
        for r in reads:
            digest = zlib.crc32(_amd_value(st, r, vgprs, every_lane), digest)
        mask = st.mask
        step(st)
        for r in loaded:
            digest = zlib.crc32(_amd_value(st, r, vgprs, mask is None), digest)
        log.append((e.line, digest))

    return traced


_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "96": 12, "128": 16}


def _amd_access(
    step: Callable[[Any], None], i: Instruction, e: amd_replay.Effect, out: list[Access]
) -> Callable[[Any], None]:
    width = re.match(r"ds_(?:read|write)_[bui](\d+)(?:_d16(?:_hi)?)?$", e.name)
    if width is None:
        raise amd_replay.Unknown(e.name)
    size = _SIZES[width[1]]
    addresses = e.sources[0 if e.lds == "write" else 1]
    if len(addresses) != 1:
        raise amd_replay.Unknown(i.operands)
    (register,) = addresses
    offset = re.search(r"offset:(\d+)", i.operands)
    start = int(offset[1]) if offset is not None else 0
    first = min(int(r[1:]) for r in e.sources[1]) if e.lds == "write" else 0

    def traced(st: Any) -> None:
        active = np.ones((st.waves, 64), bool) if st.mask is None else st.mask.copy()
        address = st.U[int(register[1:])].astype(np.int64) + start
        stored = None
        if e.lds == "write":
            words = st.U[first : first + max(1, size // 4)].copy()
            stored = np.ascontiguousarray(np.moveaxis(words, 0, -1)).view(np.uint8)[..., :size]
        out.append(Access(e.lds, size, (st.wg.copy(), st.wave.copy(), st.epoch.copy()), address, active, stored))
        step(st)

    return traced


_SEVERAL = -1
"""Stands for the waves that have written a byte, where they are more than one."""


def races(accesses: list[Access]) -> int:
    """Bytes of LDS that one wave writes and another touches between the same two barriers, if it is not the same value
    that both write."""
    writers: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
    found = 0
    for kind in ("write", "read"):
        for a in accesses:
            if a.kind != kind:
                continue
            for w, (group, wave, epoch) in enumerate(zip(*(x.tolist() for x in a.wave))):
                touched = (a.address[w][a.active[w]][:, None] + np.arange(a.size)).reshape(-1).tolist()
                known = writers.setdefault((group, epoch), {})
                if a.data is not None:
                    for byte, value in zip(touched, a.data[w][a.active[w]].reshape(-1).tolist()):
                        other, there = known.setdefault(byte, (wave, value))
                        if other != wave:
                            found += there != value
                            known[byte] = (_SEVERAL, value)
                elif known:
                    nobody = (wave, 0)
                    found += sum(known.get(byte, nobody)[0] != wave for byte in touched)
    return found


def _amd_value(st: Any, register: str, vgprs: int, every_lane: bool) -> bytes:
    if register == "scc":
        return np.ascontiguousarray(st.scc).tobytes()
    if register in ("vcc", "exec"):
        return st.S[53 if register == "vcc" else 63].tobytes()
    if register == "m0":
        return np.ascontiguousarray(st.S32[62, :, 0]).tobytes()
    number = int(register[1:])
    if register[0] == "s":
        return np.ascontiguousarray(st.S32[number >> 1, :, number & 1]).tobytes()
    row = st.U[number + (vgprs if register[0] == "a" else 0)]
    return (row if every_lane or st.mask is None else row[st.mask]).tobytes()


def _ptx(
    step: Callable[[Any], None], machine: Any, line: int, uses: list[Any], loaded: list[Any], log: list[Record]
) -> Callable[[Any], None]:
    def traced(mask: Any) -> None:
        digest = 0
        for r in uses:
            digest = zlib.crc32(_ptx_value(machine, r, mask), digest)
        step(mask)
        for r in loaded:
            digest = zlib.crc32(_ptx_value(machine, r, mask), digest)
        log.append((line, digest))

    return traced


def _ptx_value(machine: Any, register: Any, mask: Any) -> bytes:
    value = np.broadcast_to(machine.reg(register), (machine.T,))
    return (value[machine.live] if mask is None else value[mask]).tobytes()
