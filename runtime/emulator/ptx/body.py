"""The body of a PTX function: registers, local variables, labels and instructions.

In: a scanner at the body's opening brace. Out: the `Function`, filled. Operands are classified by their first
character, and names are resolved through nested scopes.
"""

from __future__ import annotations

import re
from typing import Any

from wavedsl.ir.errors import CompileError
from wavedsl.ir.loc import Loc
from wavedsl.runtime.emulator.ptx.module import (
    NOTHING,
    Address,
    Function,
    Imm,
    Inst,
    Label,
    Module,
    Reg,
    RegUse,
    Special,
    Sym,
    Variable,
    Vector,
)
from wavedsl.runtime.emulator.ptx.scan import TYPE, WORD, Scanner, add_file, at_commas, literal, variables

LABEL = re.compile(r"([%$A-Za-z_][\w$]*)\s*:(?!:)")
_GUARD = re.compile(r"@(!?)\s*([%$A-Za-z_][\w$]*)\s*")
_OPCODE = re.compile(r"[a-z][\w.:]*")
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


class _Scope:
    """Names visible in a brace scope: registers and local variables."""

    __slots__ = ("names", "outer", "ranges", "tag")

    def __init__(self, outer: _Scope | None, tag: str):
        self.outer, self.tag = outer, tag
        self.names: dict[str, Any] = {}
        self.ranges: dict[str, tuple[int, str]] = {}


class Body:
    """Parses one function's body."""

    def __init__(self, s: Scanner, mod: Module, f: Function):
        self.s, self.mod, self.f = s, mod, f
        self.scope = _Scope(None, "")
        self.loc: tuple[int, int, int] | None = None
        self.scopes = 0

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
        word = WORD.match(s.text, s.pos).group(1)  # type: ignore[union-attr]
        if word == ".reg":
            self._registers(s.until(";"))
        elif word == ".loc":
            fields = s.rest_of_line().replace(",", " ").split()
            self.loc = int(fields[1]), int(fields[2]), int(fields[3])
        elif word == ".file":
            add_file(s.rest_of_line(), self.mod)
        elif word == ".pragma":
            s.until(";")
        elif word in (".shared", ".local", ".param", ".global", ".const", ".extern"):
            text = s.until(";")
            extern = word == ".extern"
            for v in variables(text.strip()[len(".extern") :] if extern else text, extern):
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
        m = TYPE.search(text)
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
        m = LABEL.match(s.text, s.pos)
        if m:
            s.pos = m.end()
            s.skip()
            name = m.group(1)
            known = self.scope.names.get(name)
            name = known.name if isinstance(known, Label) else name
            after = WORD.match(s.text, s.pos)
            if after and after.group(1) == ".branchtargets":
                s.pos = after.end()
                f.targets[name] = [self._label_name(t) for t in at_commas(s.until(";"))]
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
        for i, t in enumerate(at_commas(text[m.end() :])):
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
            return Vector(tuple(self._operand(p) for p in at_commas(t[1:-1])))
        if c == "(":
            return Vector(tuple(self._operand(p) for p in at_commas(t[1:-1])))
        if t == "_":
            return NOTHING
        if c == "!":
            reg = self.lookup(t[1:].strip())
            if not isinstance(reg, Reg):
                raise CompileError(f"{t[1:]} is not declared")
            return RegUse(reg, True)
        if c.isdigit() or c in "+-":
            imm = literal(t.replace(" ", ""))
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
            offset = literal(m.group(2).replace(" ", ""))
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
            coords = tuple(self._operand(p) for p in at_commas(tail.rstrip().rstrip("}")))
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
