"""Machine code before it is text: instructions over virtual register tuples, in basic blocks.

A `Reg` is a tuple of `n` consecutive 32-bit registers of one file: `v` (vector), `a` (accumulation) or `s` (scalar).
A `Ref` names some consecutive registers of a tuple; it is what instructions hold, so a vector is built and cut up
without moves. Registers may be written several times (a loop-carried value is one `Reg` for life); control flow is a
list of blocks in text order with explicit successors.

Physical registers are numbered as in `isa.Reg.code`: scalar registers 0.. (vcc = 106, m0 = 124, exec = 126, scc = 253),
v0-v255 = 256.., a0-a255 = 512... Sets of them are Python ints used as bit sets. The allocator gives each `Reg` its
first number in `at`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from wavedsl.codegen.amdgcn import isa
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass

S_BASE, V_BASE, A_BASE = 0, 256, 512
VCC, M0, EXEC, SCC = (r.index for r in (isa.VCC, isa.M0, isa.EXEC, isa.SCC))
UNITS = A_BASE + 256
FILE_BASE = {"v": V_BASE, "a": A_BASE, "s": S_BASE}


class Reg:
    """A tuple of `n` registers of file `cls`; `align` is what its first register's number is a multiple of.

    `at` is the physical number of the first register (-1 before allocation), given from the start for fixed ones.
    `origin` = (tuple, start) says whose value a temporary of the spiller holds, from which of its registers on.
    """

    __slots__ = ("align", "at", "cls", "fixed", "id", "loc", "n", "name", "origin")

    def __init__(self, id: int, cls: str, n: int, align: int, at: int = -1, name: str = "", loc: Loc | None = None):
        self.id = id
        self.cls = cls
        self.n = n
        self.align = align
        self.at = at
        self.fixed = at >= 0
        self.name = name
        self.loc = loc
        self.origin: tuple[Reg, int] | None = None

    def __repr__(self) -> str:
        return f"%{self.cls}{self.id}" + (f":{self.n}" if self.n > 1 else "")


class Ref:
    """`n` registers of `reg` from its `start`-th."""

    __slots__ = ("n", "reg", "start")

    def __init__(self, reg: Reg, start: int, n: int):
        self.reg = reg
        self.start = start
        self.n = n

    def part(self, start: int, n: int = 1) -> Ref:
        """Registers [start, start + n) of this reference."""
        return Ref(self.reg, self.start + start, n)

    @property
    def at(self) -> int:
        """The physical number of the first register."""
        return self.reg.at + self.start

    @property
    def whole(self) -> bool:
        return self.n == self.reg.n

    def same(self, other: object) -> bool:
        return isinstance(other, Ref) and self.reg is other.reg and self.start == other.start and self.n == other.n

    def __repr__(self) -> str:
        return f"{self.reg}" if self.whole else f"{self.reg}[{self.start}:{self.start + self.n}]"


Operand = Any
"""A `Ref`, an int (inline constant, literal bits or field), a float inline constant, or a `str` (a block's label,
`off`)."""


def fixed_register(cls: str, at: int, n: int = 1, name: str = "") -> Ref:
    """A reference to architectural registers, outside any program's numbering."""
    return Ref(Reg(-1, cls, n, 1, at, name), 0, n)


class Inst:
    """One machine instruction: its table row, operands as printed, modifiers, and the registers it reads and writes.

    `defs` and `uses` are `Ref`s, implicit registers (vcc, exec, scc, m0) included. `early` marks that the results are
    written while sources are still read: they share no register, except that a result may lie exactly on the source
    that `hint` pairs it with. `reads`, `writes` are the physical registers as bit sets, filled in after allocation.
    `tokens` counts what the instruction sets in flight besides registers (a direct-to-LDS copy). `added` says that the
    spiller put the instruction there, and as what: `spill`, `reload`, `again` (a value computed anew), `setup`.
    """

    __slots__ = (
        "added",
        "comment",
        "defs",
        "early",
        "hint",
        "loc",
        "mods",
        "ops",
        "reads",
        "row",
        "tokens",
        "uses",
        "writes",
    )

    def __init__(self, row: Any, ops: tuple[Operand, ...], mods: dict[str, Any] | None = None, loc: Loc | None = None):
        self.row = row
        self.ops = ops
        self.mods = mods
        self.loc = loc
        self.defs: tuple[Ref, ...] = ()
        self.uses: tuple[Ref, ...] = ()
        self.early = False
        self.hint: tuple[Ref, Ref] | None = None
        """(result, source) that should share a register: what a copy or an accumulating instruction wants."""
        self.added = ""
        self.comment = ""
        self.reads = 0
        self.writes = 0
        self.tokens = 0

    def __repr__(self) -> str:
        name = self.row if isinstance(self.row, str) else self.row.mnemonic
        return f"{name} {', '.join(map(str, self.ops))} {self.mods or ''}"


COPY = "copy"
"""Row of the pseudo-instruction `copy dst, src`: any number of registers, src a `Ref` or a constant."""


KEPT = "kept"
"""Row of `kept dst, src`: a copy between tuples that were spilled to one place. It stands for no instruction; `mods`
has the place (`home`: a `Ref`, the number of a scratch word, or a vector register and lane for every word)."""
SCRATCH_BASE = "scratch base"
"""Name of the scalar register that scratch instructions of gfx90a address by; it must not be spilled itself."""
SCALAR_HOME = "spilled scalars"
"""Name of the vector registers whose lanes keep spilled scalars. They must not be spilled themselves: lanes are written
whatever EXEC is, and moves to the accumulation file or to scratch take along only those that EXEC has."""
GONE = "gone"
"""Row of `gone inst`: where `inst` was, which is now computed anew by every reader. It stands for no instruction."""


def copy(dst: Ref, src: Operand, loc: Loc | None = None) -> Inst:
    """A register copy; it disappears when both sides get the same register."""
    inst = Inst(COPY, (dst, src), None, loc)
    inst.defs = (dst,)
    if isinstance(src, Ref):
        inst.uses = (src,)
        inst.hint = (dst, src)
    return inst


class Block:
    """Instructions that run in order; control enters at the top and leaves at the end to `succs` (block indices)."""

    __slots__ = ("comment", "depth", "insts", "label", "preds", "succs")

    def __init__(self, label: str, depth: int = 0):
        self.label = label
        self.depth = depth
        self.insts: list[Inst] = []
        self.succs: list[int] = []
        self.preds: list[int] = []
        self.comment = ""


@dataclass
class Loop:
    """One loop: blocks [first, last] in text order, entered and repeated at `first`."""

    label: str
    first: int
    last: int
    loc: Loc | None = None
    steps: float = 1
    """Source iterations in one trip."""
    carried: list[tuple[Ref, str]] = field(default_factory=list)
    """Registers of loop-carried values, with a name for messages."""


@dataclass
class Program:
    """One kernel as machine code, from selection to text."""

    name: str
    chip: str
    blocks: list[Block]
    regs: list[Reg]
    loops: list[Loop]
    shared_bytes: int
    block_threads: int
    inputs: list[Ref] = field(default_factory=list)
    """Fixed registers that hold a value on entry (kernarg pointer, workgroup ids, workitem id)."""
    user_sgprs: int = 0
    workgroup_ids: tuple[int, ...] = ()
    """Axes whose workgroup id is requested."""
    scratch_bytes: int = 0
    """Scratch per lane."""
    scratch_base: Ref | None = None
    """A scalar register that holds 0, where scratch instructions need an address; set when scratch was asked for."""
    original: list[list[tuple[Any, tuple[Any, ...], Any]]] | None = None
    """(row, operands, modifiers) of every instruction as selected, block by block; kept when spilling begins."""
    apart: set[int] = field(default_factory=set)
    """Ids of tuples that copies do not lay over narrower or wider ones: bundles of them found no place."""

    def number_predecessors(self) -> None:
        """Fill `preds` of every block from `succs`."""
        for block in self.blocks:
            block.preds = []
        for i, block in enumerate(self.blocks):
            for s in block.succs:
                self.blocks[s].preds.append(i)
