"""Are waits and hazards of an AMDGCN text kept on every path? Answered from the text alone.

In: text. Out: `Broken` rules, each a consumer and the producer it does not wait for. The idea: waits by walking every
path with the two queues of operations in flight written out; hazards by walking forward from each producer. What
instructions read and write is told from their names, for the mnemonics that the examples use, and what hardware asks
of neighbours is spelled out below from the ISA guides. Nothing is shared with the tables or the passes of the back end,
nor with the emulator, so that what one of them gets wrong shows as a disagreement.

Rules, by name:
(COUNTERS) `vmcnt` counts vector memory in order, `lgkmcnt` LDS operations in order and scalar loads in any order.
(TOUCH) A register that an operation in flight will write is neither read nor written, but by a younger load of the same
ordered queue.
(BARRIER) At `s_barrier` no LDS write is in flight if a read may follow, and no read if a write may follow. Copies that
load to LDS may be in flight: whether what follows reads their bytes is a matter of addresses (`order`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mutants import Instruction, split_operands

REACH = 19
"""No hazard needs more wait states."""
PASSES = {
    # stem of a matrix instruction's name: passes on gfx90a, gfx942, gfx950
    "32x32x8": (16, 8, 8), "16x16x16": (8, 4, 4), "32x32x16": (0, 8, 8), "16x16x32": (0, 4, 4),
}  # fmt: skip
_MATRIX = ("v_mfma_", "v_smfmac_")
_COLUMN = {"gfx90a": 0, "gfx942": 1, "gfx950": 2}
_STATES = 200_000
_OTHER = {"read": "write", "write": "read"}


class Unknown(Exception):
    """A mnemonic or operand that this replay does not know: nothing can be said about the text."""


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold between two lines (from 0)."""

    rule: str
    line: int
    other: int


@dataclass(frozen=True)
class Effect:
    """What one instruction does, as far as order goes. Registers are words such as `v5`, `s12`, `scc`."""

    line: int
    name: str
    reads: frozenset[str]
    writes: frozenset[str]
    queue: str = ""
    """`vm`, `lds`, `scalar` or nothing."""
    lds: str = ""
    """`read`, `write` or nothing."""
    sources: tuple[frozenset[str], ...] = ()
    """Registers of each operand."""


@dataclass(frozen=True)
class Program:
    effects: tuple[Effect, ...]
    follow: tuple[tuple[int, ...], ...]
    """Indices of what may come next."""
    text: tuple[Instruction, ...]


# ---- what instructions touch


_TOKEN = re.compile(r"^[-|]?([vsa])(?:(\d+)|\[(\d+):(\d+)\])\|?$")
_NAMED = {"vcc": ("vcc",), "exec": ("exec",), "m0": ("m0",), "scc": ("scc",), "off": ()}
_CONSTANT = re.compile(r"^-?(0x[0-9a-f]+|\d+(\.\d+)?)$")
_NO_SCC = ("s_mov", "s_cselect", "s_mul_", "s_pack", "s_movk", "s_bfm", "s_sext", "s_brev", "s_cmov")
_PLAIN = re.compile(
    r"^v_(and|or|xor|not|lshl|lshr|ashr|lshlrev|lshrrev|ashrrev|add|sub|subrev|mul|mad|bfe|bfi|mov|min|max|cndmask|cvt|"
    r"lshl_add|lshl_or|and_or|or3|add3|add_lshl|xad|perm|alignbit|alignbyte|pack|pk|fma|exp|log|rcp|rsq|sqrt|med3|max3|min3|"
    r"addc|subb|subbrev|fmac|floor|ceil|trunc|rndne|fract|frexp|ldexp|sin|cos|bcnt|mbcnt|ffbh|ffbl|bfrev|bfm|sad|div)(_|$)"
)


def registers(operand: str) -> tuple[str, ...]:
    """The registers an operand names."""
    word = operand.split()[0] if operand else ""
    if word in _NAMED:
        return _NAMED[word]
    m = _TOKEN.match(word)
    if m is not None:
        if m[2] is not None:
            return (m[1] + m[2],)
        return tuple(f"{m[1]}{i}" for i in range(int(m[3]), int(m[4]) + 1))
    if _CONSTANT.match(word):
        return ()
    raise Unknown(operand)


def effect(i: Instruction) -> Effect:
    """What an instruction reads and writes. Raises Unknown."""
    name = re.sub(r"_e(32|64)$", "", i.mnemonic)
    parts = split_operands(i.operands)
    if name in ("s_nop", "s_waitcnt", "s_barrier", "s_branch", "s_endpgm", "s_setprio"):
        return Effect(i.line, name, frozenset(), frozenset())
    if name.startswith("s_cbranch_"):
        flag = name[10:]
        return Effect(i.line, name, frozenset(("scc",) if flag[:3] == "scc" else (flag.rstrip("nz"),)), frozenset())
    if name.startswith(("buffer_wbl2", "buffer_inv", "buffer_wbinvl1")):
        return Effect(i.line, name, frozenset(), frozenset(), "vm")
    operands = tuple(frozenset(registers(p)) for p in parts)
    everything = frozenset().union(*operands)
    first, rest = operands[0], frozenset().union(*operands[1:])
    modifiers = i.operands.split()
    if name.startswith(("s_load_", "s_buffer_load_")):
        return Effect(i.line, name, rest, first, "scalar", "", operands)
    if name.startswith(("s_cmp_", "s_bitcmp")):
        return Effect(i.line, name, everything, frozenset(("scc",)), sources=operands)
    if name.startswith("s_"):
        writes = set(first)
        reads = set(rest)
        if not name.startswith(_NO_SCC):
            writes.add("scc")
        if name.startswith(("s_cselect", "s_addc", "s_subb", "s_cmov")):
            reads.add("scc")
        if "saveexec" in name:
            reads.add("exec")
            writes.add("exec")
        return Effect(i.line, name, frozenset(reads), frozenset(writes), sources=operands)
    lanes = frozenset(("exec",))
    if name.startswith(("buffer_", "global_")):
        if "_atomic" in name:  # the old value comes back in the first operand, if at all
            returns = "glc" in modifiers or "sc0" in modifiers
            return Effect(i.line, name, everything | lanes, first if returns else frozenset(), "vm", "", operands)
        if "lds" in modifiers:  # no register is loaded: what arrives lies in LDS, from the byte in M0 on
            return Effect(i.line, name, everything | lanes | {"m0"}, frozenset(), "vm", "write", operands)
        if "_store_" in name:
            return Effect(i.line, name, everything | lanes, frozenset(), "vm", "", operands)
        merged = first if "d16" in name else frozenset()
        return Effect(i.line, name, rest | merged | lanes, first, "vm", "", operands)
    if name.startswith("ds_write"):
        return Effect(i.line, name, everything | lanes, frozenset(), "lds", "write", operands)
    if name.startswith("ds_read"):
        merged = first if "d16" in name else frozenset()
        return Effect(i.line, name, rest | merged | lanes, first, "lds", "read", operands)
    if name.startswith(("ds_swizzle", "ds_bpermute", "ds_permute")):  # lanes exchange values, no byte of LDS is touched
        return Effect(i.line, name, rest | lanes, first, "lds", "", operands)
    if name.startswith("v_mfma_"):
        return Effect(i.line, name, rest, first, sources=operands)
    if name.startswith("v_smfmac_"):  # adds to what it writes; its last operand says where the elements of A stand
        return Effect(i.line, name, everything, first, sources=operands)
    if name.startswith("v_permlane"):  # two registers exchange lanes
        return Effect(i.line, name, everything | lanes, everything, sources=operands)
    if name.startswith(("v_readlane", "v_writelane")) and operands[2]:
        raise Unknown(f"{name} of a lane that a register names")
    if name.startswith("v_writelane"):  # the other lanes stay
        return Effect(i.line, name, everything, first, sources=operands)
    if name.startswith(("v_readfirstlane", "v_readlane")):
        return Effect(i.line, name, rest | lanes, first, sources=operands)
    if name.startswith("v_cmp_"):
        return Effect(i.line, name, rest | lanes, first, sources=operands)
    if name.startswith("v_accvgpr_"):
        return Effect(i.line, name, rest | lanes, first, sources=operands)
    if _PLAIN.match(name):
        merged = first if "sel:" in i.operands else frozenset()  # a part of it is written
        flags = frozenset(("vcc",)) if name.startswith("v_div_fmas") else frozenset()
        return Effect(i.line, name, rest | merged | flags | lanes, first, sources=operands)
    raise Unknown(name)


def program(text: str) -> Program:
    """The instructions of a text and what follows what. Raises Unknown."""
    labels: dict[str, int] = {}
    found: list[Instruction] = []
    inside = False
    for number, raw in enumerate(text.split("\n")):
        line = raw.partition(";")[0].strip()
        if line.startswith((".size", ".section")):
            break
        if line.endswith(":"):
            inside = True
            labels[line[:-1]] = len(found)
        elif inside and line and not line.startswith("."):
            name, _, rest = line.partition(" ") if " " in line else line.partition("\t")
            found.append(Instruction(number, name, rest.strip()))
    effects = tuple(effect(i) for i in found)
    follow: list[tuple[int, ...]] = []
    for at, i in enumerate(found):
        if i.mnemonic == "s_endpgm":
            follow.append(())
        elif i.mnemonic == "s_branch":
            follow.append((labels[i.operands],))
        elif i.mnemonic.startswith("s_cbranch"):
            follow.append((labels[i.operands], at + 1))
        else:
            follow.append((at + 1,) if at + 1 < len(found) else ())
    return Program(effects, tuple(follow), tuple(found))


# ---- waits


def broken_waits(p: Program) -> set[Broken]:
    """(TOUCH) and (BARRIER) on every path: states are a place and the two queues, oldest first."""
    out: set[Broken] = set()
    after = {at: {x.lds for x in reachable(p, e.line)} for at, e in enumerate(p.effects) if e.name == "s_barrier"}
    start: tuple[int, tuple[int, ...], tuple[int, ...]] = (0, (), ())
    seen = {start}
    work = [start]
    while work:
        if len(seen) > _STATES:
            raise Unknown("too many states")
        at, vm, lgkm = work.pop()
        e = p.effects[at]
        if e.name == "s_waitcnt":
            for counter, left in re.findall(r"(vmcnt|lgkmcnt)\((\d+)\)", p.text[at].operands):
                n = int(left)
                if counter == "vmcnt":
                    vm = vm[-n:] if n else ()
                elif n == 0:
                    lgkm = ()
                else:
                    ordered = [x for x in lgkm if p.effects[x].queue == "lds"]
                    younger = len(lgkm)
                    # an LDS operation is done when n operations issued after it can at most remain
                    done = set(ordered[: max(0, younger - n)]) if len(ordered) == younger else set()
                    lgkm = tuple(x for x in lgkm if x not in done)
        elif e.name == "s_barrier":
            out.update(Broken("an LDS operation is in flight at the barrier", e.line, p.effects[x].line)
                       for x in lgkm if _OTHER.get(p.effects[x].lds) in after[at])  # fmt: skip
        else:
            for queue in (vm, lgkm):
                for x in queue:
                    f = p.effects[x]
                    hit = f.writes & (e.reads | e.writes)
                    if hit and not (e.queue == f.queue and e.queue != "scalar" and not f.writes & e.reads):
                        out.add(Broken("its result is not waited for", e.line, f.line))
            if e.queue == "vm":
                vm = (*vm, at)[-63:]
            elif e.queue:
                lgkm = (*lgkm, at)[-15:]
        for to in p.follow[at]:
            state = (to, vm, lgkm)
            if state not in seen:
                seen.add(state)
                work.append(state)
    return out


# ---- hazards


def wait_states(p: Effect, c: Effect, target: str) -> int:
    """How many wait states must lie between two instructions (LLVM's GCNHazardRecognizer)."""
    column = _COLUMN[target]
    newer = target != "gfx90a"
    valu, matrix = _is_valu(c), c.name.startswith(_MATRIX)
    vector = frozenset(r for r in p.writes if r[0] in "va" and r != "vcc")
    scalar = frozenset(r for r in p.writes if r == "vcc" or (r[0] == "s" and r != "scc"))
    need = 0
    if "m0" in p.writes & c.reads and c.queue == "vm":
        return 1
    if p.name.startswith(_MATRIX):
        return _after_matrix(p, c, column)
    if _is_valu(p):
        if matrix and vector & c.reads:
            need = 2
        if c.queue == "vm" and scalar & c.reads:
            need = max(need, 5)
        if valu and newer and scalar & c.reads:
            need = max(need, 2)
        if c.name.startswith(("v_readfirstlane", "v_readlane")) and newer and vector & c.reads:
            need = max(need, 1)
        if c.name.startswith("v_permlane") and valu and vector & c.reads:
            need = max(need, 2)
        if re.match(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_", p.name) and newer and valu and vector & c.reads:
            need = max(need, 1)
    if p.queue == "vm" and "_store_dwordx" in p.name and p.name[-1] in "34" and valu:
        buffer = p.name.startswith("buffer")
        data = p.sources[0] if buffer else p.sources[1]
        by_register = buffer and bool(p.sources[3])
        if c.writes & data and not by_register:
            need = max(need, 2 if newer else 1)
    return need


def _is_valu(e: Effect) -> bool:
    return e.name.startswith("v_") and not e.name.startswith(_MATRIX)


def _addend(e: Effect) -> frozenset[str]:
    """Registers of what a matrix instruction adds to: sparse products name them once, as their result."""
    return e.writes if e.name.startswith("v_smfmac") else e.sources[3]


def _after_matrix(p: Effect, c: Effect, column: int) -> int:
    shape = re.search(r"(\d+x\d+x\d+)", p.name)
    if shape is None or not _in_table(p):
        raise Unknown(p.name)
    n = PASSES[shape[1]][column]
    result = {8: 11, 16: 19}[n] if column == 0 else n + 3 if column == 1 else n + 4
    chained = n if column == 0 else n + 1 if column == 1 else n + 2
    d = p.writes
    if c.name.startswith(_MATRIX):
        added = _addend(c)
        factors = c.sources[1] | c.sources[2] | (c.sources[3] if c.name.startswith("v_smfmac") else frozenset())
        need = result if d & factors else 0
        if added == d:
            return need
        overlaps = d & added or (d & c.writes and d != c.writes)
        return max(need, chained) if overlaps else need
    if not (_is_valu(c) or c.queue in ("vm", "lds")):
        return 0
    need = result if d & (c.reads | c.writes) else 0
    if c.writes & _addend(p):
        need = max(need, {8: 7, 16: 15}[n] if column == 0 else n - 1)
    return need


def _in_table(e: Effect) -> bool:
    """Whether the table above has a matrix instruction."""
    shape = re.search(r"(\d+x\d+x\d+)", e.name)
    return shape is not None and shape[1] in PASSES and bool(re.search(r"_?f16$", e.name))


def broken_hazards(p: Program, target: str, known: bool = False) -> set[Broken]:
    """Pairs with too few wait states between them on some path; `known`: behind what is in the table alone."""
    out: set[Broken] = set()
    for at, e in enumerate(p.effects):
        if not (e.name.startswith("v_") or "_store_dwordx" in e.name or "m0" in e.writes):
            continue
        if known and e.name.startswith(_MATRIX) and not _in_table(e):
            continue
        for to, passed in _behind(p, at).items():
            if passed < wait_states(e, p.effects[to], target):
                out.add(Broken("too few wait states", p.effects[to].line, e.line))
    return out


def _behind(p: Program, at: int) -> dict[int, int]:
    """What may come behind an instruction, and after how many wait states at the least, if fewer than `REACH`."""
    best = dict.fromkeys(p.follow[at], 0)
    work = list(best)
    while work:
        to = work.pop()
        after = best[to] + (int(p.text[to].operands) + 1 if p.effects[to].name == "s_nop" else 1)
        if after < REACH:
            for further in p.follow[to]:
                if after < best.get(further, REACH):
                    best[further] = after
                    work.append(further)
    return best


def _untabled(p: Program) -> dict[tuple[int, int], int]:
    """Wait states between matrix instructions that are not in the table and those behind them that any of these has to
    keep away from, by lines; of what is nearer than `REACH`. Chips add up in one place without waiting (of what is no
    4 x 4), and let an operand's register be written at once, but for VALU writes of what is added to."""
    found = {}
    for at, e in enumerate(p.effects):
        if not e.name.startswith(_MATRIX) or _in_table(e):
            continue
        for to, passed in _behind(p, at).items():
            c = p.effects[to]
            chained = c.name == e.name and _addend(c) == e.writes == c.writes and "4x4x4" not in e.name
            if chained and not e.writes & (c.sources[1] | c.sources[2]):
                continue
            if e.writes & (c.reads | c.writes) or (_is_valu(c) and _addend(e) & c.writes):
                found[e.line, c.line] = passed
    return found


def broken(text: str, target: str) -> set[Broken]:
    """Every rule that the text breaks. Raises Unknown where it holds what this replay does not know."""
    p = program(text)
    return broken_waits(p) | broken_hazards(p, target)


def as_good(text: str, other: str, target: str, exchanged: tuple[int, ...] = ()) -> bool:
    """Whether a text breaks no rule that the first one keeps; two `exchanged` lines have changed places. Of matrix
    instructions that are not in the table what comes behind must not be nearer than it was. Raises Unknown.
    """
    before, after = program(text), program(other)
    rules = [broken_waits(p) | broken_hazards(p, target, known=True) for p in (before, after)]
    if not rules[1] <= rules[0]:
        return False
    was = _untabled(before)
    line = dict(zip(exchanged, reversed(exchanged)))
    return all(
        passed >= was.get((line.get(e, e), line.get(c, c)), REACH) for (e, c), passed in _untabled(after).items()
    )


def copies_to_lds(i: Instruction) -> bool:
    """Whether an instruction loads to LDS without a register."""
    return i.mnemonic.startswith("buffer_load") and "lds" in i.operands.split()


def reachable(p: Program, line: int) -> Iterator[Effect]:
    """What may be executed after an instruction line."""
    first = next(at for at, e in enumerate(p.effects) if e.line == line)
    seen: set[int] = set()
    work = list(p.follow[first])
    while work:
        at = work.pop()
        if at not in seen:
            seen.add(at)
            work.extend(p.follow[at])
            yield p.effects[at]
