"""PTX text as data: a `Module` of functions with registers, variables, parameters and instructions.

Made by `parse.py`. Invariant: every instruction keeps the line of the text it stands on and the `.loc` that was
current there.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from wavedsl.codegen.ptx.isa import Arg
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass


class Reg:
    """A virtual register; `index` is its number in the function."""

    __slots__ = ("index", "name", "type")

    def __init__(self, index: int, name: str, type_: str):
        self.index, self.name, self.type = index, name, type_

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Special:
    """A special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Imm:
    """An immediate: an integer, or the bits of a float literal with their width (32 or 64)."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True)
class RegUse:
    """A register operand, perhaps a negated predicate."""

    reg: Reg
    negated: bool = False


@dataclass(frozen=True)
class Sym:
    """The address of a variable, plus a constant."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(frozen=True)
class Address:
    """`[base + offset]`: base a register, a symbol or None; `coords` of a tensor access."""

    base: Reg | Sym | None
    offset: int = 0
    coords: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Vector:
    parts: tuple[Any, ...]


NOTHING = Label("_")
"""The operand `_`."""


@dataclass
class Inst:
    """One instruction as written. `guard` is `(predicate, negated)`."""

    name: str
    args: list[Any]
    guard: tuple[Reg, bool] | None
    line: int
    loc: tuple[int, int, int] | None
    text: str
    pair: Any = None
    """The `q` of a destination `d|q`."""


@dataclass
class Variable:
    """A variable: state space, alignment, size in bytes, initial bytes (None: not initialised); `extern`: dynamic."""

    name: str
    space: str
    align: int
    size: int
    init: bytes | None = None
    extern: bool = False
    refs: list[tuple[int, str]] = field(default_factory=list)
    """(byte offset, symbol) of initialisers that are addresses."""


@dataclass
class Param:
    name: str
    offset: int
    size: int
    align: int
    type: str


@dataclass
class Function:
    name: str
    entry: bool
    params: list[Param] = field(default_factory=list)
    returns: list[Param] = field(default_factory=list)
    regs: list[Reg] = field(default_factory=list)
    insts: list[Inst] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    targets: dict[str, list[str]] = field(default_factory=dict)
    """`.branchtargets` lists by label."""
    reqntid: tuple[int, ...] = ()
    maxntid: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    """CTAs per cluster that the text requires."""
    maxnreg: int = 0
    minnctapersm: int = 0
    line: int = 0
    declared_only: bool = False


@dataclass
class Module:
    version: tuple[int, int] = (0, 0)
    target: str = ""
    address_bits: int = 64
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)

    def location(self, loc: tuple[int, int, int] | None, line: int, text: str = "<ptx>") -> Loc:
        """The user's line where there is a `.loc`, else the line of the PTX text."""
        if loc is not None and loc[0] in self.files and loc[1] > 0:
            return Loc(self.files[loc[0]], loc[1], max(0, loc[2] - 1))
        return Loc(text, line)


def as_arg(a: Any) -> Arg:
    """An operand as `operand_rules.check_operands` wants it."""
    if isinstance(a, RegUse):
        return Arg("reg", a.reg.type, text=a.reg.name)
    if isinstance(a, Imm):
        return Arg("imm", text=str(a.value))
    if isinstance(a, Address):
        if not a.coords:
            return Arg("addr")
        return Arg("tensor", text=a.base.name if isinstance(a.base, Sym) else "", parts=tuple(map(as_arg, a.coords)))
    if isinstance(a, Vector):
        return Arg("vec", parts=tuple(as_arg(p) for p in a.parts))
    if a is NOTHING:
        return Arg("none", text="_")
    if isinstance(a, Special):
        return Arg("sym", text=a.name)
    return Arg("sym" if isinstance(a, Sym) else "label", text=a.name)
