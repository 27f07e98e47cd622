"""PTX text to a `Module`: functions with registers, variables, parameters, instructions and source locations.

In: any PTX text. Out: `parse(text) -> Module`. The idea: a statement-level scanner (statements end with `;`, labels
with `:`, a brace at the start of a statement is a scope) and operands classified by their first character. Names are
resolved to registers here, through nested scopes; calls are inlined by `inline`, so that the executor sees one flat
list. Invariant: every instruction keeps the line of the text it stands on and the `.loc` that was current there.
Raises CompileError with the line of the text for what cannot be parsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from wavedsl.codegen.ptx.isa import TYPE_BITS, Arg, spell
from wavedsl.ir.errors import CompileError
from wavedsl.ir.loc import Loc


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


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_WORD = re.compile(r"\s*([%$A-Za-z_][\w$.]*|\.[A-Za-z_]\w*)")
_LABEL = re.compile(r"([%$A-Za-z_][\w$]*)\s*:(?!:)")
_GUARD = re.compile(r"@(!?)\s*([%$A-Za-z_][\w$]*)\s*")
_OPCODE = re.compile(r"[a-z][\w.:]*")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_HEXFLOAT = re.compile(r"0([fFdD])([0-9a-fA-F]+)$")
_DECFLOAT = re.compile(r"[-+]?\d+\.\d*(?:[eE][-+]?\d+)?$|[-+]?\d+[eE][-+]?\d+$")
_TYPE = re.compile(r"\.(pred|[bsu](?:8|16|32|64|128)|f16x2|bf16x2|f16|bf16|f32|f64|tf32)\b")
_ALIGN = re.compile(r"\.align\s+(\d+)")
_LINKAGE = {".visible", ".weak", ".extern", ".common"}
_SPECIAL = {
    "%tid",
    "%ntid",
    "%ctaid",
    "%nctaid",
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%smid",
    "%nsmid",
    "%gridid",
    "%clock",
    "%clock64",
    "%clock_hi",
    "%globaltimer",
    "%globaltimer_lo",
    "%globaltimer_hi",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
    "%dynamic_smem_size",
    "%total_smem_size",
    "%aggr_smem_size",
    "%clusterid",
    "%nclusterid",
    "%cluster_ctaid",
    "%cluster_nctaid",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%is_explicit_cluster",
    "%envreg",
}


class _Scanner:
    def __init__(self, text: str):
        self.text = _COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text)
        self.pos = 0
        self._at, self._line = 0, 1

    def line(self) -> int:
        """Line number of the current position; positions only grow."""
        self._line += self.text.count("\n", self._at, self.pos)
        self._at = self.pos
        return self._line

    def skip(self) -> bool:
        """To the next character that is not white space; False at the end."""
        self.pos = _SPACE.match(self.text, self.pos).end()  # type: ignore[union-attr]
        return self.pos < len(self.text)

    def until(self, stop: str) -> str:
        end = self.text.find(stop, self.pos)
        if end < 0:
            raise CompileError(f"PTX text ends inside a statement that begins {self.text[self.pos : self.pos + 40]!r}")
        out = self.text[self.pos : end]
        self.pos = end + len(stop)
        return out

    def rest_of_line(self) -> str:
        end = self.text.find("\n", self.pos)
        end = len(self.text) if end < 0 else end
        out = self.text[self.pos : end]
        self.pos = end
        return out

    def braces(self) -> str:
        """The text between the brace at the current position and its partner."""
        depth, i = 0, self.pos
        while i < len(self.text):
            c = self.text[i]
            depth += (c == "{") - (c == "}")
            i += 1
            if depth == 0:
                out = self.text[self.pos + 1 : i - 1]
                self.pos = i
                return out
        raise CompileError("PTX text has a brace that is never closed")


def parse(text: str) -> Module:
    """Parse PTX text. Raises CompileError with the line where it cannot."""
    s, mod = _Scanner(text), Module()
    while s.skip():
        line = s.line()
        try:
            _module_statement(s, mod, line)
        except CompileError as e:
            if e.location is None:
                raise CompileError(e.message, Loc("<ptx>", s.line()), e.hint) from None
            raise
    return mod


def _module_statement(s: _Scanner, mod: Module, line: int) -> None:
    m = _WORD.match(s.text, s.pos)
    if not m:
        raise CompileError(f"PTX text cannot be understood at {s.text[s.pos : s.pos + 40]!r}")
    word = m.group(1)
    if word == ".version":
        major, minor = s.rest_of_line().split()[1].split(".")
        mod.version = int(major), int(minor)
    elif word == ".target":
        mod.target = s.rest_of_line().split(None, 1)[1].split(",")[0].strip()
    elif word == ".address_size":
        mod.address_bits = int(s.rest_of_line().split()[1])
    elif word == ".file":
        _file(s.rest_of_line(), mod)
    elif word == ".section":
        s.pos = s.text.index("{", s.pos)
        s.braces()
    elif word == ".pragma":
        s.until(";")
    elif word in (".loc", ".alias"):
        s.rest_of_line()
    else:
        _declaration(s, mod, line)


def _file(text: str, mod: Module) -> None:
    m = re.match(r'\s*\.file\s+(\d+)\s+"([^"]*)"', text)
    if m:
        mod.files[int(m.group(1))] = m.group(2)


def _declaration(s: _Scanner, mod: Module, line: int) -> None:
    start = s.pos
    extern = False
    while True:
        s.skip()
        m = _WORD.match(s.text, s.pos)
        if m and m.group(1) in _LINKAGE:
            extern |= m.group(1) == ".extern"
            s.pos = m.end()
            continue
        break
    word = m.group(1) if m else ""
    if word in (".entry", ".func"):
        s.pos = m.end()  # type: ignore[union-attr]
        _function(s, mod, word == ".entry", line)
    elif word in (".global", ".const", ".shared", ".tex", ".local"):
        for v in _variables(s.until(";"), extern, mod.address_bits):
            mod.variables[v.name] = v
    else:
        raise CompileError(f"PTX directive not understood: {s.text[start : start + 60].split(chr(10))[0]!r}")


def _split(text: str) -> list[str]:
    """Top-level commas."""
    if not any(c in text for c in "{[("):
        return [t.strip() for t in text.split(",")] if text.strip() else []
    out, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    if last or out:
        out.append(last)
    return out


def _variables(text: str, extern: bool, address_bits: int) -> list[Variable]:
    """`.shared .align 16 .b8 name[64] = {…}` to variables."""
    text = text.strip()
    space = text.split(None, 1)[0][1:]
    align_m, type_m = _ALIGN.search(text), _TYPE.search(text)
    if not type_m:
        raise CompileError(f"variable without a type: {text[:60]!r}")
    size = TYPE_BITS[type_m.group(1)] // 8
    vec = re.search(r"\.v([24])\b", text)
    size *= int(vec.group(1)) if vec else 1
    out = []
    for item in _split(text[type_m.end() :]):
        head, _, init = item.partition("=")
        m = re.match(r"\s*([%$\w]+)((?:\s*\[[^\]]*\])*)", head)
        if not m:
            raise CompileError(f"variable not understood: {item[:60]!r}")
        count = 1
        dims = re.findall(r"\[([^\]]*)\]", m.group(2))
        for d in dims:
            count *= int(d, 0) if d.strip() else 0
        init_bytes, refs = _initial(init, size) if init.strip() else (None, [])
        if init_bytes is not None and dims and not dims[0].strip():
            count = len(init_bytes) // size
        total = size * count
        if init_bytes is not None:
            init_bytes = init_bytes.ljust(total, b"\0")
        align = int(align_m.group(1)) if align_m else size
        unsized = extern and space == "shared"
        out.append(Variable(m.group(1), space, align, total, init_bytes, unsized and total == 0, refs))
    return out


def _initial(text: str, size: int) -> tuple[bytes, list[tuple[int, str]]]:
    data, refs = bytearray(), []
    for item in _split(text.strip().replace("{", " ").replace("}", " ")):
        if not item:
            continue
        value = _literal(item)
        if value is None:
            m = re.match(r"(?:generic\s*\()?\s*([%$\w]+)\s*\)?\s*(?:\+\s*(\d+))?$", item)
            if not m:
                raise CompileError(f"initialiser not understood: {item!r}")
            refs.append((len(data), m.group(1)))
            data += int(m.group(2) or 0).to_bytes(size, "little")
        else:
            data += (value.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return bytes(data), refs


def _literal(t: str) -> Imm | None:
    c = t[0]
    if not (c.isdigit() or c in "-+"):
        return Imm(32) if t == "WARP_SZ" else None
    if _NUMBER.match(t):
        body = t.rstrip("U")
        sign = -1 if body[0] == "-" else 1
        body = body.lstrip("+-")
        if len(body) > 1 and body[0] == "0" and body[1] in "01234567":
            return Imm(sign * int(body, 8))
        return Imm(sign * int(body, 0))
    m = _HEXFLOAT.match(t)
    if m:
        return Imm(int(m.group(2), 16), 32 if m.group(1) in "fF" else 64)
    if _DECFLOAT.match(t):
        import struct

        return Imm(int.from_bytes(struct.pack("<d", float(t)), "little"), 64)
    return None


def _param_list(text: str) -> list[Param]:
    out, at = [], 0
    for item in _split(text):
        if not item:
            continue
        tm, am = _TYPE.search(item), _ALIGN.search(item)
        m = re.search(r"([%$\w]+)\s*(?:\[\s*(\d*)\s*\])?\s*$", item)
        if not tm or not m:
            raise CompileError(f"parameter not understood: {item!r}")
        element = max(1, TYPE_BITS[tm.group(1)] // 8)
        array = "[" in item
        size = element * int(m.group(2) or 0) if array else element
        # `.ptr … .align n` speaks of what the pointer points at.
        align = int(am.group(1)) if am and ".ptr" not in item else element
        at = (at + align - 1) // align * align
        out.append(Param(m.group(1), at, size, align, tm.group(1)))
        at += size
    return out


class _Scope:
    """Names visible in a brace scope: registers and local variables."""

    __slots__ = ("names", "outer", "ranges", "tag")

    def __init__(self, outer: _Scope | None, tag: str):
        self.outer, self.tag = outer, tag
        self.names: dict[str, Any] = {}
        self.ranges: dict[str, tuple[int, str]] = {}


class _Body:
    """Parses one function's body."""

    def __init__(self, s: _Scanner, mod: Module, f: Function):
        self.s, self.mod, self.f = s, mod, f
        self.scope = _Scope(None, "")
        self.loc: tuple[int, int, int] | None = None
        self.scopes = 0
        self.label_scopes: list[dict[str, str]] = [{}]

    def run(self) -> None:
        s = self.s
        s.pos += 1
        depth = 1
        stack: list[_Scope] = []
        while depth:
            if not s.skip():
                raise CompileError(f"function {self.f.name} is never closed")
            c = s.text[s.pos]
            if c == "}":
                s.pos += 1
                depth -= 1
                if depth:
                    self.scope = stack.pop()
            elif c == "{":
                s.pos += 1
                depth += 1
                stack.append(self.scope)
                self.scopes += 1
                self.scope = _Scope(self.scope, f"{self.scopes}")
                # Labels of a scope are local to it: find them before they are used.
                self._local_labels()
            elif c == ".":
                self._directive()
            elif c == ";":
                s.pos += 1
            else:
                self._labelled_or_instruction()

    def _local_labels(self) -> None:
        s = self.s
        saved = s.pos
        s.pos -= 1
        body = s.braces()
        s.pos = saved
        for m in re.finditer(r"(?:^|[;{}\n])\s*([%$A-Za-z_][\w$]*)\s*:(?!:)", body):
            self.scope.names.setdefault(m.group(1), Label(f"{m.group(1)}@{self.scope.tag}"))

    def _directive(self) -> None:
        s, f = self.s, self.f
        word = _WORD.match(s.text, s.pos).group(1)  # type: ignore[union-attr]
        if word == ".reg":
            self._registers(s.until(";"))
        elif word == ".loc":
            fields = s.rest_of_line().replace(",", " ").split()
            self.loc = int(fields[1]), int(fields[2]), int(fields[3])
        elif word == ".file":
            _file(s.rest_of_line(), self.mod)
        elif word == ".pragma":
            s.until(";")
        elif word in (".shared", ".local", ".param", ".global", ".const", ".extern"):
            text = s.until(";")
            extern = word == ".extern"
            for v in _variables(text.strip()[len(".extern") :] if extern else text, extern, self.mod.address_bits):
                name = v.name
                if self.scope.tag:
                    v.name = f"{name}@{self.scope.tag}"
                self.scope.names[name] = Sym(v.name)
                f.variables[v.name] = v
        elif word == ".branchtargets":
            raise CompileError(".branchtargets without a label before it")
        elif word == ".callprototype":
            s.until(";")
        elif word == ".section":
            s.pos = s.text.index("{", s.pos)
            s.braces()
        else:
            raise CompileError(f"directive {word} is not understood inside a function", Loc("<ptx>", s.line()))

    def _registers(self, text: str) -> None:
        m = _TYPE.search(text)
        if not m:
            raise CompileError(f"registers without a type: {text.strip()!r}")
        if re.search(r"\.v[248]\b", text):
            raise CompileError("vector registers (.reg .v2, .v4) are not supported")
        for item in text[m.end() :].split(","):
            item = item.strip()
            if item.endswith(">"):
                prefix, count = item[:-1].split("<")
                self.scope.ranges[prefix.strip()] = int(count), m.group(1)
            else:
                self.scope.names[item] = self._new(item, m.group(1))

    def _new(self, name: str, type_: str) -> Reg:
        r = Reg(len(self.f.regs), name, type_)
        self.f.regs.append(r)
        return r

    def _labelled_or_instruction(self) -> None:
        s, f = self.s, self.f
        line = s.line()
        m = _LABEL.match(s.text, s.pos)
        if m:
            s.pos = m.end()
            s.skip()
            name = m.group(1)
            known = self.scope.names.get(name)
            name = known.name if isinstance(known, Label) else name
            after = _WORD.match(s.text, s.pos)
            if after and after.group(1) == ".branchtargets":
                s.pos = after.end()
                f.targets[name] = [self._label_name(t) for t in _split(s.until(";"))]
                return
            if after and after.group(1) == ".callprototype":
                s.until(";")
                return
            if name in f.labels:
                raise CompileError(f"label {m.group(1)} is defined twice", Loc("<ptx>", line))
            f.labels[name] = len(f.insts)
            return
        text = s.until(";")
        try:
            f.insts.append(self._instruction(text, line))
        except CompileError as e:
            raise CompileError(f"{e.message} in {' '.join(text.split())!r}", Loc("<ptx>", line), e.hint) from None

    def _label_name(self, name: str) -> str:
        found = self.lookup(name)
        return found.name if isinstance(found, Label) else name

    def lookup(self, name: str) -> Any:
        scope: _Scope | None = self.scope
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            if scope.ranges:
                i = len(name)
                while i and name[i - 1].isdigit():
                    i -= 1
                if i < len(name):
                    hit = scope.ranges.get(name[:i])
                    if hit is not None and int(name[i:]) < hit[0]:
                        r = scope.names[name] = self._new(name, hit[1])
                        return r
            scope = scope.outer
        return None

    def _instruction(self, text: str, line: int) -> Inst:
        text = text.strip()
        guard, at = None, 0
        if text[0] == "@":
            m = _GUARD.match(text)
            reg = self.lookup(m.group(2)) if m else None
            if not isinstance(reg, Reg):
                raise CompileError(f"guard {text.split()[0]} is not a register")
            guard, at = (reg, bool(m.group(1))), m.end()  # type: ignore[union-attr]
        m = _OPCODE.match(text, at)
        if not m:
            raise CompileError("not an instruction")
        name = m.group()
        inst = Inst(name, [], guard, line, self.loc, text)
        for i, t in enumerate(_split(text[m.end() :])):
            if i == 0 and "|" in t:
                t, _, second = t.partition("|")
                inst.pair = self._operand(second.strip())
                t = t.strip()
            inst.args.append(self._operand(t))
        return inst

    def _operand(self, t: str) -> Any:
        if not t:
            raise CompileError("an operand is missing")
        c = t[0]
        if c == "[":
            return self._address(t[1:-1].strip())
        if c == "{":
            return Vector(tuple(self._operand(p) for p in _split(t[1:-1])))
        if c == "(":
            return Vector(tuple(self._operand(p) for p in _split(t[1:-1])))
        if t == "_":
            return NOTHING
        if c == "!":
            reg = self.lookup(t[1:].strip())
            if not isinstance(reg, Reg):
                raise CompileError(f"{t[1:]} is not declared")
            return RegUse(reg, True)
        if c.isdigit() or c in "+-":
            imm = _literal(t.replace(" ", ""))
            if imm is None:
                raise CompileError(f"number not understood: {t}")
            return imm
        found = self.lookup(t)
        if found is not None:
            return RegUse(found) if isinstance(found, Reg) else found
        if c == "%":
            base = t.split(".")[0]
            if base in _SPECIAL or base.rstrip("0123456789") == "%envreg" or base.startswith("%reserved_smem"):
                return Special(t)
            raise CompileError(f"register {t} is not declared")
        if t == "WARP_SZ":
            return Imm(32)
        m = re.match(r"([$\w%]+)\s*([+-]\s*\w+)$", t)
        if m:
            base_ = self._operand(m.group(1))
            offset = _literal(m.group(2).replace(" ", ""))
            if isinstance(base_, Label) and base_.name in self._variables():
                base_ = Sym(base_.name)
            if isinstance(base_, Sym) and offset is not None:
                return Sym(base_.name, base_.offset + offset.value)
        if re.match(r"[$\w]+$", t):
            if t in self._variables() or any(p.name == t for p in self.f.params + self.f.returns):
                return Sym(t)
            return Label(t)
        raise CompileError(f"operand not understood: {t}")

    def _variables(self) -> dict[str, Variable]:
        return self.f.variables if not self.mod.variables else {**self.mod.variables, **self.f.variables}

    def _address(self, t: str) -> Address:
        coords: tuple[Any, ...] = ()
        if "{" in t:
            head, _, tail = t.partition("{")
            coords = tuple(self._operand(p) for p in _split(tail.rstrip().rstrip("}")))
            t = head.strip().rstrip(",").strip()
        offset = 0
        m = re.match(r"(.+?)\s*(\+\s*-|\+|-)\s*(0[xX][0-9a-fA-F]+|\d+)$", t)
        if m:
            t, offset = m.group(1).strip(), int(m.group(3), 0) * (-1 if "-" in m.group(2) else 1)
        base = self._operand(t)
        if isinstance(base, Imm):
            return Address(None, base.value + offset, coords)
        if isinstance(base, RegUse):
            return Address(base.reg, offset, coords)
        if isinstance(base, Sym):
            return Address(Sym(base.name, base.offset), offset, coords)
        if isinstance(base, Label):
            raise CompileError(f"address {t} is neither a register nor a variable")
        raise CompileError(f"address not understood: [{t}]")


def _function(s: _Scanner, mod: Module, entry: bool, line: int) -> None:
    s.skip()
    returns: list[Param] = []
    if s.text[s.pos] == "(":
        s.pos += 1
        returns = _param_list(s.until(")"))
        s.skip()
    m = re.compile(r"[%$\w]+").match(s.text, s.pos)
    if not m:
        raise CompileError("a function without a name")
    s.pos = m.end()
    f = Function(m.group(), entry, returns=returns, line=line)
    s.skip()
    if s.text[s.pos] == "(":
        s.pos += 1
        f.params = _param_list(s.until(")"))
    while True:
        s.skip()
        c = s.text[s.pos]
        if c == ";":
            s.pos += 1
            f.declared_only = True
            mod.functions.setdefault(f.name, f)
            return
        if c == "{":
            break
        word = _WORD.match(s.text, s.pos)
        if not word:
            raise CompileError(f"function {f.name}: header not understood at {s.text[s.pos : s.pos + 30]!r}")
        s.pos = word.end()
        if word.group(1) not in _DIRECTIVES:
            raise CompileError(f"function {f.name}: directive {word.group(1)} is not understood")
        numbers = re.compile(r"\s*\d+(?:\s*,\s*\d+)*").match(s.text, s.pos)
        values: tuple[int, ...] = ()
        if numbers and word.group(1) not in (".noreturn", ".explicitcluster"):
            values = tuple(int(x) for x in numbers.group().split(","))
            s.pos = numbers.end()
        if word.group(1) == ".reqntid":
            f.reqntid = values
        elif word.group(1) == ".maxntid":
            f.maxntid = values
        elif word.group(1) == ".reqnctapercluster":
            f.cluster = values
        elif word.group(1) == ".maxnreg":
            f.maxnreg = values[0]
        elif word.group(1) == ".minnctapersm":
            f.minnctapersm = values[0]
    mod.functions[f.name] = f
    # Parameters of a .func given as registers are declared by its signature; ABI text uses .param only.
    body = _Body(s, mod, f)
    for p in f.params + f.returns:
        body.scope.names[p.name] = Sym(p.name)
    body.run()


_DIRECTIVES = frozenset(
    f".{d}"
    for d in (
        "reqntid maxntid minnctapersm maxnctapersm maxnreg explicitcluster reqnctapercluster maxclusterrank noreturn "
        "pragma abi_preserve abi_preserve_control"
    ).split()
)
"""What may stand between a function's parameters and its body."""
_MAX_INLINE = 64


def inline(mod: Module, f: Function) -> Function:
    """`f` with every call replaced by the callee's body. Raises CompileError for recursion or an unknown callee.

    A callee's parameters are the variables the caller named; its other names are made fresh. Calls of the runtime's
    `__assertfail` and `vprintf` stay, for the executor to treat.
    """
    if not any(i.name.startswith("call") for i in f.insts):
        return f
    out = Function(
        f.name,
        f.entry,
        f.params,
        f.returns,
        list(f.regs),
        [],
        {},
        dict(f.variables),
        dict(f.targets),
        f.reqntid,
        f.maxntid,
        f.cluster,
        f.maxnreg,
        f.minnctapersm,
        f.line,
    )
    _copy(mod, f, out, {}, {}, "", None, (f.name,))
    return out


EXTERNAL = ("__assertfail", "vprintf", "__nanosleep", "free", "malloc")


def _copy(
    mod: Module,
    f: Function,
    out: Function,
    regs: dict[int, Reg],
    syms: dict[str, str],
    tag: str,
    after: str | None,
    chain: tuple[str, ...],
) -> None:
    place = {i: [n for n, at in f.labels.items() if at == i] for i in set(f.labels.values())}
    for i, inst in enumerate(f.insts):
        for n in place.get(i, ()):
            out.labels[n + tag] = len(out.insts)
        if inst.name.startswith("call"):
            _call(mod, inst, out, regs, syms, tag, chain)
            continue
        args = [_rename(a, regs, syms, tag) for a in inst.args]
        name = inst.name
        if name.split(".", 1)[0] == "ret" and after is not None:
            name, args = "bra", [Label(after)]
        guard = None if inst.guard is None else (regs.get(inst.guard[0].index, inst.guard[0]), inst.guard[1])
        out.insts.append(Inst(name, args, guard, inst.line, inst.loc, inst.text, _rename(inst.pair, regs, syms, tag)))
    for n in place.get(len(f.insts), ()):
        out.labels[n + tag] = len(out.insts)


def _rename(a: Any, regs: dict[int, Reg], syms: dict[str, str], tag: str) -> Any:
    if not tag:
        return a
    if isinstance(a, RegUse):
        return RegUse(regs[a.reg.index], a.negated)
    if isinstance(a, Sym):
        return Sym(syms.get(a.name, a.name), a.offset)
    if isinstance(a, Label):
        return a if a is NOTHING else Label(a.name + tag)
    if isinstance(a, Vector):
        return Vector(tuple(_rename(p, regs, syms, tag) for p in a.parts))
    if isinstance(a, Address):
        base = regs[a.base.index] if isinstance(a.base, Reg) else _rename(a.base, regs, syms, tag)
        return Address(base, a.offset, tuple(_rename(c, regs, syms, tag) for c in a.coords))
    return a


def _call(
    mod: Module, inst: Inst, out: Function, regs: dict[int, Reg], syms: dict[str, str], tag: str, chain: tuple[str, ...]
) -> None:
    args = list(inst.args)
    results: tuple[Any, ...] = ()
    if args and isinstance(args[0], Vector):
        results = args.pop(0).parts
    callee = args[0].name if args and isinstance(args[0], Label | Sym) else ""
    actual = args[1].parts if len(args) > 1 and isinstance(args[1], Vector) else ()
    target = mod.functions.get(callee)
    guard = None if inst.guard is None else (regs.get(inst.guard[0].index, inst.guard[0]), inst.guard[1])
    if target is None or target.declared_only:
        if callee not in EXTERNAL:
            raise CompileError(
                f"call of {callee or 'a function pointer'}, which the text does not define", Loc("<ptx>", inst.line)
            )
        out.insts.append(Inst("call", [Label(callee)], guard, inst.line, inst.loc, inst.text))
        for r in results:
            # What printing returns is not modelled: zero.
            r = _rename(r, regs, syms, tag)
            if isinstance(r, Sym):
                size = 8 * min(8, max(1, out.variables[r.name].size)) if r.name in out.variables else 32
                name = spell("st", space="param", type=f"b{size}")
                store = Inst(name, [Address(r), Imm(0)], guard, inst.line, inst.loc, inst.text)
                out.insts.append(store)
        return
    if callee in chain or len(chain) > _MAX_INLINE:
        raise CompileError(f"recursive call of {callee}", Loc("<ptx>", inst.line), "the emulator inlines calls")
    fresh = f"#{len(out.insts)}"
    inner_regs = {}
    for r in target.regs:
        inner_regs[r.index] = Reg(len(out.regs), r.name, r.type)
        out.regs.append(inner_regs[r.index])
    inner_syms = {}
    for formal, given in zip(target.params + target.returns, tuple(actual) + tuple(results)):
        given = _rename(given, regs, syms, tag)
        if not isinstance(given, Sym):
            raise CompileError(
                f"call of {callee}: parameter {formal.name} is not passed in .param space", Loc("<ptx>", inst.line)
            )
        inner_syms[formal.name] = given.name
    for v in target.variables.values():
        name = v.name if v.space in ("shared", "global", "const") else v.name + fresh
        inner_syms[v.name] = name
        out.variables[name] = Variable(name, v.space, v.align, v.size, v.init, v.extern, v.refs)
    end = f"$return{fresh}"
    if guard is not None:
        out.insts.append(Inst("bra", [Label(end)], (guard[0], not guard[1]), inst.line, inst.loc, inst.text))
    for name, labels in target.targets.items():
        out.targets[name + fresh] = [x + fresh for x in labels]
    _copy(mod, target, out, inner_regs, inner_syms, fresh, end, (*chain, callee))
    out.labels[end] = len(out.insts)


def as_arg(a: Any) -> Arg:
    """An operand as `isa.check_operands` wants it."""
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
