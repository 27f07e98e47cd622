"""PTX machine code before registers have names: instructions over virtual registers, labels, parallel copies.

Selection builds a `Code` here; `coalesce` merges registers that a copy joins; `text` names and prints. A register has
one definition except where a parallel copy (loop-carried values, results of a conditional) writes it. A parallel copy
reads all its sources before it writes. Code is kept as nested lists, so that selection can append to the block before a
loop while it is inside the loop; `flatten` makes one list of it.
"""

from __future__ import annotations

import struct
from dataclasses import field
from typing import Any

from wavedsl.codegen.ptx.isa import Inst
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass

PREFIX = {"b32": "%r", "b64": "%rd", "b16": "%h", "pred": "%p"}
"""Register classes and how their registers are spelled."""


class Reg:
    """One virtual register. `level` is the nesting depth of the scope that defines it; `home` the register it was
    merged into (itself if none); `text` its name once assigned."""

    __slots__ = ("arg", "home", "id", "kind", "level", "text")

    def __init__(self, id: int, kind: str, level: int):
        self.id = id
        self.kind = kind
        self.level = level
        self.home: Reg = self
        self.text = ""
        self.arg: Any = None

    def __repr__(self) -> str:
        return self.text or f"{PREFIX[self.kind]}v{self.id}"

    def find(self) -> Reg:
        """The register that stands for this one after merging."""
        here = self
        while here.home is not here:
            here.home = here.home.home
            here = here.home
        return here


class Imm:
    """A constant. `kind` is how it was given: `i` (an integer), `f32` or `f64` (a float)."""

    __slots__ = ("kind", "value")

    def __init__(self, value: int | float, kind: str = "i"):
        self.value = value
        self.kind = kind

    def __repr__(self) -> str:
        return f"{self.value}"

    def spell(self, type_: str) -> str:
        """The literal for an operand of this PTX type: floats by their bits, so that nothing is rounded twice."""
        if self.kind != "i":
            wide = self.kind == "f64"
            bits = struct.unpack("<Q" if wide else "<I", struct.pack("<d" if wide else "<f", self.value))[0]
            if type_[0] == "f":
                return f"0d{bits:016X}" if wide else f"0f{bits:08X}"
            return f"0x{bits:x}"
        value = int(self.value)
        bits = 64 if type_.endswith("64") else 32
        if type_[0] == "f":
            value &= (1 << bits) - 1
            return f"0d{value:016X}" if bits == 64 else f"0f{value:08X}"
        if type_[0] == "s":
            value &= (1 << bits) - 1
            value -= (value >> (bits - 1)) << bits
            return str(value)
        value &= (1 << bits) - 1
        return str(value) if value < 1024 or type_[0] == "u" else f"0x{value:x}"


UNDEFINED = Imm(0)
"""What a register holds that nobody relies on (compare with `is`). A copy of it begins a live range, so that nothing
is taken to live from before, and is no instruction."""


class Mem:
    """An address `[base + offset]`: a register, or the name of a variable."""

    __slots__ = ("base", "offset")

    def __init__(self, base: Reg | str, offset: int = 0):
        self.base = base
        self.offset = offset


class Tensor:
    """`[map, {coordinates}]`: a tensor map's address and a position in the tensor, innermost first."""

    __slots__ = ("at", "map")

    def __init__(self, map: Reg, at: tuple[Reg, ...]):
        self.map = map
        self.at = at


class Paired:
    """The destinations `_|p`: the first is not wanted, the second is a predicate."""

    __slots__ = ("reg",)

    def __init__(self, reg: Reg):
        self.reg = reg


class Symbol:
    """A special register, a variable's address or a label, printed as it stands."""

    __slots__ = ("kind", "text")

    def __init__(self, text: str, kind: str = "sym"):
        self.text = text
        self.kind = kind


Operand = Any
"""Reg, Imm, Mem, Tensor, Paired, Symbol, or a tuple of registers (a vector in braces)."""


class Ins:
    """One instruction: `args` in PTX order. `guard` predicates it (`negated`: runs where the predicate is false)."""

    __slots__ = ("args", "guard", "inst", "kind", "loc", "negated", "note")

    def __init__(
        self,
        inst: Inst,
        args: tuple[Operand, ...],
        loc: Loc | None,
        guard: Reg | None = None,
        negated: bool = False,
        note: str = "",
        kind: str = "",
    ):
        self.inst = inst
        self.args = args
        self.loc = loc
        self.guard = guard
        self.negated = negated
        self.note = note
        self.kind = kind
        """A class for `resources` that overrides the unit's (`accmove`), or empty."""

    def __repr__(self) -> str:
        return f"{self.inst.name} {self.args}"


class Copy:
    """Parallel copy: every destination takes its source's value from before the copy. `carried`: on a loop's back
    edge."""

    __slots__ = ("carried", "loc", "pairs")

    def __init__(self, pairs: list[tuple[Reg, Operand]], loc: Loc | None, carried: bool = False):
        self.pairs = pairs
        self.loc = loc
        self.carried = carried


class Label:
    """A branch target. `loop` is set on the head of a loop."""

    __slots__ = ("loop", "name")

    def __init__(self, name: str, loop: Loop | None = None):
        self.name = name
        self.loop = loop


@dataclass
class Loop:
    """What reports say of one loop: where it is, and how many source iterations one trip does."""

    label: str
    loc: Loc | None
    steps: float = 1
    depth: int = 0
    rolled: bool = False
    """Whether ptxas is told to leave the loop as it is."""
    end: str = ""
    """Label behind the loop's last instruction."""


@dataclass
class Code:
    """All code of a kernel. `body` holds `Ins`, `Copy`, `Label` and nested lists of them."""

    body: list[Any] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    registers: int = 0
    """Virtual registers made so far."""
    shared_symbol: str = ""
    """Name of the shared array if it is used, else empty."""


def flatten(body: list[Any]) -> list[Any]:
    """Nested lists to one list, in order."""
    out: list[Any] = []
    stack = [iter(body)]
    while stack:
        for item in stack[-1]:
            if type(item) is list:
                stack.append(iter(item))
                break
            out.append(item)
        else:
            stack.pop()
    return out


def operands_of(ins: Ins) -> tuple[list[Reg], list[Reg]]:
    """Registers that an instruction writes and reads (its guard included), as they were before merging."""
    writes: list[Reg] = []
    reads: list[Reg] = []
    for operand, arg in zip(ins.inst.plain, ins.args):
        kind = type(arg)
        if kind is Reg:
            (writes if operand.write else reads).append(arg)
        elif kind is tuple:
            (writes if operand.write else reads).extend(a for a in arg if type(a) is Reg)
        elif kind is Mem and type(arg.base) is Reg:
            reads.append(arg.base)
        elif kind is Tensor:
            reads.extend((arg.map, *arg.at))
        elif kind is Paired:
            writes.append(arg.reg)
    if "multiply" in ins.inst.effects:
        reads.extend(ins.args[0])  # the sum so far
    if ins.guard is not None:
        reads.append(ins.guard)
    return writes, reads
