"""Reads NVIDIA's machine code as nvdisasm prints it: instructions by class, loops, what a trip of each executes.

In: PTX text, ours or that of others, for ptxas. Out: `Machine`: registers, spilled bytes, ptxas' warnings that matrix
instructions run one after the other, the instructions and the loops. A loop is a natural one, from the edges between
basic blocks: ptxas puts what is seldom executed (waiting once more for a barrier) behind the end of the kernel, so a
branch backwards in the text need not be one. What a trip executes is what lies in a loop but in none of its inner ones,
and in no loop that only asks a barrier again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from wavedsl.runtime import toolchain

SERIALISED = re.compile(r"C75(?:08|1[0-5])")
"""ptxas' codes: setmaxnreg is ignored, or matrix instructions run one after the other."""

CLASSES = (
    # the first that matches: nvdisasm's spelling → class
    (r"[HIQBD]G?MMA\b", "product"), (r"MUFU", "mufu"), (r"F2FP|F2F|F2I|I2F|I2IP|FRND|HADD2\.F32", "convert"),
    (r"FFMA|HFMA2|DFMA", "ffma"), (r"FADD|HADD2|DADD", "fadd"), (r"FMUL|HMUL2|DMUL", "fmul"),
    (r"FMNMX|HMNMX|FSETP|FSEL|FSET|FCHK|HSETP|DSETP", "compare"), (r"SHFL|REDUX|MATCH", "shuffle"),
    (r"MEMBAR|ERRBAR|CGAERRBAR|FENCE|CCTL", "fence"),
    (r"SYNCS|BAR|B2R|WARP|DEPBAR|LDGDEPBAR|UCGABAR|ARRIVES|ELECT|USETMAXREG|NANOSLEEP|YIELD", "signal"),
    (r"LDGSTS", "async copy"), (r"UTMA|UBLK", "bulk copy"), (r"LDSM|STSM|LDS|STS|ATOMS", "shared"),
    (r"LDG|STG|LD\.|ST\.|RED|ATOM", "global"), (r"LDL|STL", "local"),
    (r"BRA|EXIT|CALL|RET|BSSY|BSYNC|BREAK|BRX|JMP", "branch"), (r"NOP", "nop"),
    (r"R2UR|S2U?R|CS2R|U?MOV|IMAD\.MOV|P2R|R2P|U?LDC", "move"), (r"U?ISETP|U?PLOP3|VOTE|PSETP", "predicate"),
    (r"U[A-Z]", "uniform"), (r"[A-Z]", "integer"),
)  # fmt: skip
"""`uniform`: what the uniform data path computes, which takes an issue slot but no lane's unit."""
ADDRESS = ("integer", "uniform", "move", "predicate")
"""Classes that compute addresses and conditions in kernels whose values are floats."""


@cache
def _kind(name: str) -> str:
    return next(kind for pattern, kind in CLASSES if re.match(pattern, name))


@dataclass(frozen=True)
class Instruction:
    """One line of the listing: guard (`@!P0`, or empty), mnemonic with modifiers, and operands."""

    guard: str
    name: str
    operands: str

    @property
    def kind(self) -> str:
        return _kind(self.name)

    @property
    def bits(self) -> int:
        """Width of a memory access of one lane."""
        found = re.search(r"\.(U?8|U?16|S8|S16|64|128)\b", self.name)
        return int(re.sub(r"\D", "", found[1])) if found else 32

    @property
    def flops(self) -> int:
        """Multiplications and additions of a matrix instruction, per warp."""
        if found := re.search(r"GMMA\.(\d+)x(\d+)x(\d+)", self.name):
            m, n, k = map(int, found.groups())
            return 2 * m * n * k // 4
        if found := re.search(r"DMMA\.(\d+)x(\d+)x(\d+)|DMMA\.(8)(8)(4)", self.name):
            m, n, k = (int(x) for x in found.groups() if x)
            return 2 * m * n * k
        if found := re.search(r"MMA\.(?:SP\.)?(16)(8)(\d+)", self.name):
            return 2 * int(found[1]) * int(found[2]) * int(found[3])
        return 0

    def __str__(self) -> str:
        return f"{self.guard} {self.name} {self.operands}".strip()


def count(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Instructions by class."""
    found: dict[str, int] = {}
    for one in instructions:
        found[one.kind] = found.get(one.kind, 0) + 1
    return found


def operand_reads(instructions: Iterable[Instruction]) -> float:
    """Registers that a multiply-add reads on average, without those that are at hand; 0 without any.

    What an instruction marked `.reuse` has read stays, per bank of registers (even and odd) and position among the
    operands, until another register of that bank is read in that position (Huerta and others, "Analyzing Modern NVIDIA
    GPU Cores", 2025, from memory). Two banks give two registers in the clock that a multiply-add takes."""
    kept: dict[tuple[int, int], int] = {}
    reads = count = 0
    for one in instructions:
        sources = one.operands.split(",")[1:]
        adds = one.name == "FFMA"
        count += adds
        for position, source in enumerate(sources if adds else sources[:3]):
            found = re.search(r"\bR(\d+)(\.reuse)?", source)
            if not found:
                continue
            register = int(found[1])
            place = position, register % 2
            reads += adds and kept.get(place) != register
            if found[2]:
                kept[place] = register
            else:
                kept.pop(place, None)
    return reads / count if count else 0.0


@dataclass(frozen=True)
class Loop:
    """What a trip executes, in the order of the text; `depth`: 1 for outermost loops."""

    trip: tuple[Instruction, ...]
    depth: int

    @property
    def counts(self) -> dict[str, int]:
        return count(self.trip)

    @property
    def flops(self) -> int:
        """Of matrix instructions, per trip and warp."""
        return sum(one.flops for one in self.trip)

    def named(self, pattern: str) -> int:
        """How many instructions match a regular expression from their start."""
        return sum(bool(re.match(pattern, one.name)) for one in self.trip)


@dataclass(frozen=True)
class Machine:
    """What the assembler made of a kernel. `spills`: bytes stored and loaded; `codes`: of serialised products."""

    registers: int
    spills: int
    codes: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int] = field(repr=False)
    """Label → the number of the instruction behind it."""

    @property
    def counts(self) -> dict[str, int]:
        return count(one for one in self.instructions if one.name != "NOP")

    def accesses(self) -> list[int]:
        """Bits per lane of each access to global memory that is no bulk copy."""
        return [one.bits for one in self.instructions if re.match(r"(LDG|STG|LDGSTS)\b", one.name)]

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """In the order of their beginnings; without those that only wait for a barrier."""
        edges = _edges(self.instructions, self.labels)
        found = _natural(edges)
        out = []
        for start, body in sorted(found.items()):
            inner = {block for other, more in found.items() if other != start and other in body for block in more}
            whole = [self.instructions[i] for block in sorted(body) for i in range(block, edges[block][1])]
            if all(one.kind in ("signal", "branch", "nop", "predicate", "move") for one in whole) and len(whole) < 12:
                continue
            trip = [self.instructions[i] for block in sorted(body - inner) for i in range(block, edges[block][1])]
            out.append(Loop(tuple(trip), sum(start in more for more in found.values())))
        return tuple(out)


def assembled(text: str, arch: str) -> Machine:
    """What ptxas makes of PTX for a chip (`sm_90a`). ToolchainError where it does not, or without the tools."""
    done = toolchain.assemble_ptx(text, arch)
    return Machine(*said(done.log), *listed(toolchain.disassemble_cubin(done.cubin)))


def said(log: str) -> tuple[int, int, tuple[str, ...]]:
    """Registers, spilled bytes and codes of serialised products, of what ptxas says while it assembles."""
    spills = sum(map(int, re.findall(r"(\d+) bytes spill", log)))
    registers = max(map(int, re.findall(r"Used (\d+) registers", log)), default=0)
    return registers, spills, tuple(found[0] for found in SERIALISED.finditer(log))


def listed(listing: str) -> tuple[tuple[Instruction, ...], dict[str, int]]:
    """(instructions, labels) of nvdisasm's text, without what fills up behind the end."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            labels[label[1]] = len(found)
        elif one := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+)?\s*([A-Z][\w.]*)\s*(.*?)\s*;", line):
            found.append(Instruction(one[1] or "", one[2], one[3]))
    while found and found[-1].name == "NOP":
        found.pop()
    return tuple(found), labels


# ----------------------------------------------------------------------------------------------------------- the graph


def _edges(instructions: Sequence[Instruction], labels: dict[str, int]) -> dict[int, tuple[list[int], int]]:
    """First instruction of each block → (blocks that may follow, one past its last instruction)."""
    meetings: dict[str, int] = {}
    leaves: dict[int, list[int]] = {}
    for i, one in enumerate(instructions):
        at = re.search(r"`\((\.L_\w+)\)", one.operands)
        target = labels.get(at[1]) if at else None
        always = not one.guard and "," not in one.operands and ".DIV" not in one.name
        if one.name.startswith("BSSY") and target is not None:
            meetings[one.operands.split(",")[0]] = target
        elif one.name.startswith("BSYNC"):
            meeting = meetings.get(one.operands.split(",")[0].split()[-1])
            leaves[i] = [meeting] if meeting is not None and always else [i + 1]
        elif one.name.startswith("BRA") and target is not None:
            leaves[i] = [target] if always else [target, i + 1]
        elif one.name.startswith(("EXIT", "RET")):
            leaves[i] = [] if always or one.name.startswith("RET") else [i + 1]
    ends = len(instructions)
    starts = sorted({0, *(t for found in leaves.values() for t in found), *(i + 1 for i in leaves)} - {ends})
    edges: dict[int, tuple[list[int], int]] = {}
    for start, end in zip(starts, [*starts[1:], ends]):
        follow = leaves.get(end - 1, [end])
        edges[start] = [x for x in follow if x < ends], end
    return edges


def _natural(edges: dict[int, tuple[list[int], int]]) -> dict[int, set[int]]:
    """Header → blocks of the natural loops with that header. A block dominates what is unreachable without it."""
    reached = _reach(edges, 0)
    before: dict[int, list[int]] = {block: [] for block in reached}
    for block in reached:
        for after in edges[block][0]:
            before[after].append(block)
    found: dict[int, set[int]] = {}
    for block in reached:
        for header in edges[block][0]:
            if block in _reach(edges, 0, without=header):
                continue  # the edge leads forward, or into a loop that is entered elsewhere too
            body, todo = {header}, [block]
            while todo:
                here = todo.pop()
                if here not in body:
                    body.add(here)
                    todo += before[here]
            found[header] = found.get(header, set()) | body
    return found


def _reach(edges: dict[int, tuple[list[int], int]], start: int, without: int = -1) -> set[int]:
    found, todo = set(), [start]
    while todo:
        here = todo.pop()
        if here not in found and here != without:
            found.add(here)
            todo += edges[here][0]
    return found
