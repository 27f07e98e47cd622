"""Reading kernel IR from its text, whose grammar `kernel_text.py` describes.

In: the text, a `Target` for the names of matrix instructions. Out: a `Kernel`; facts that the text leaves out are
derived. Raises CompileError with the line at which it is no kernel IR.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from wavedsl.ir import dtypes
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.facts import BITS, MASKS, TRANSFER, full, induction_facts, leaf_facts, normalise
from wavedsl.ir.kernel.kernel_ir import (
    B32,
    B64,
    BUFFER,
    F32,
    F64,
    I32,
    I64,
    PRED,
    ROWS,
    Kernel,
    Op,
    Param,
    Region,
    Type,
    Value,
)
from wavedsl.ir.loc import Loc
from wavedsl.ir.target import MmaAtom, Target

_TOKEN = re.compile(
    r"""\s*(?: (?P<string>"(?:[^"\\]|\\.)*") | (?P<value>%[A-Za-z0-9_.]+) | (?P<atom>@[\w.]+)
      | (?P<number>-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)|\d+\.\d+|\d+|inf\b|nan\b))
      | (?P<word>[A-Za-z_][\w.]*) | (?P<mark>\.\.|[=:,(){}]) | (?P<comment>;.*) )""",
    re.VERBOSE,
)
_TYPE = re.compile(r"(pred|[ifb]32|[ifb]64|buffer)(?:x(\d+))?$")
_SPAN = re.compile(r"(?P<file>.*?):(?P<line>\d+)(?::(?P<col>\d+)-(?P<end>\d+))?(?: in (?P<function>.*))?$")
_FIXED = {"i32": I32, "i64": I64, "f32": F32, "f64": F64, "b32": B32, "b64": B64, "pred": PRED, "buffer": BUFFER}


def parse(source: str, target: Target | None = None, *, atoms: Iterable[MmaAtom] = ()) -> Kernel:
    """The kernel written in `source`. `@name` is looked up in `atoms` and the target's `mma_atoms`.

    Raises CompileError with the line of the text where it is not understood.
    """
    known = {a.name: a for a in (target.mma_atoms if target is not None else ())}
    known.update({a.name: a for a in atoms})
    return _Parser(source, known).kernel()


class _Line:
    """The tokens of one line, read from left to right."""

    def __init__(self, number: int, source: str):
        self.number = number
        self.source = source
        self.tokens: list[tuple[str, str]] = []
        self.loc: Loc | None = None
        self.at = 0
        pos, end = 0, len(source.rstrip())
        while pos < end:
            m = _TOKEN.match(source, pos)
            if m is None or m.lastgroup is None:
                raise self.error(f"cannot read {source[pos:].strip()!r}")
            pos = m.end()
            if m.lastgroup == "comment":
                self.loc = _read_location(m.group("comment")[1:].strip())
                break
            self.tokens.append((m.lastgroup, m.group(m.lastgroup)))

    def error(self, message: str) -> CompileError:
        return CompileError(f"kernel text, line {self.number}: {message}\n    {self.source.strip()}")

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, kind: str = "") -> str:
        if self.at >= len(self.tokens):
            raise self.error(f"expected {kind or 'more'} at the end of the line")
        found, token = self.tokens[self.at]
        if kind and found != kind:
            raise self.error(f"expected {kind} and found {token!r}")
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at][1] == token and self.tokens[self.at][0] != "string":
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected {token!r} and found {self.peek() or 'the end of the line'!r}")

    def integer(self) -> int:
        token = self.take("number")
        try:
            return int(token, 0)
        except ValueError:
            raise self.error(f"expected an integer and found {token!r}") from None


def _read_location(comment: str) -> Loc | None:
    """The location in a comment; None for any other comment."""
    loc: Loc | None = None
    for part in reversed(comment.split(" < ")):
        m = _SPAN.match(part)
        if m is None:
            return None
        loc = Loc(m["file"], int(m["line"]), int(m["col"] or 0), int(m["end"] or 0), m["function"] or "", call_site=loc)
    return loc


class _Declared:
    """A value as declared in the text, before its op is known."""

    __slots__ = ("facts", "name", "type", "uniform")

    def __init__(self, name: str, type: Type | None, uniform: bool, facts: tuple[int | None, int | None, int] | None):
        self.name, self.type, self.uniform, self.facts = name, type, uniform, facts


class _Parser:
    def __init__(self, source: str, atoms: dict[str, MmaAtom]):
        lines = (_Line(i, s) for i, s in enumerate(source.splitlines(), 1))
        self.lines = [line for line in lines if line.tokens]
        self.next = 0
        self.atoms = atoms
        self.values: dict[str, Value] = {}
        self.consts: dict[Any, Value] = {}
        self.const_ops: list[Op] = []
        self.count = 0

    def line(self) -> _Line:
        if self.next >= len(self.lines):
            raise CompileError("kernel text: `end` is missing")
        self.next += 1
        return self.lines[self.next - 1]

    # ----------------------------------------------------------------------------------------------------- structure

    def kernel(self) -> Kernel:
        line = self.line()
        line.expect("kernel")
        name = line.take("word")
        line.expect("(")
        params = []
        while not line.accept(")"):
            params.append(self.param(line))
            line.accept(",")
        k = Kernel(name, "", params, Region(), 64, 1)
        while line.peek():
            key = line.take("word")
            line.expect("=")
            if key == "target":
                k.target = line.take("word")
            elif key == "grid":
                k.grid = self.grid(line)
            elif key in ("wave_size", "waves", "shared"):
                setattr(k, "shared_bytes" if key == "shared" else key, line.integer())
            else:
                raise line.error(f"no such property of a kernel: {key}")
        while self.next < len(self.lines) and self.lines[self.next].peek() == "shared":
            line = self.line()
            line.take()
            name = line.take()
            line.expect("at")
            offset = line.integer()
            line.expect("bytes")
            k.shared_names[_unquote(name)] = (offset, line.integer())
        self.k = k
        self.region(k.body, ("end",))
        k.body.ops[:0] = self.const_ops
        return k

    def grid(self, line: _Line) -> tuple[Any, ...]:
        line.expect("(")
        out: list[Any] = []
        while not line.accept(")"):
            if line.kind() == "string":
                from wavedsl.ir.symbols import parse

                out.append(parse(_unquote(line.take())))
            else:
                out.append(line.integer())
            line.accept(",")
        return tuple(out)

    def param(self, line: _Line) -> Param:
        name = line.take("word")
        line.expect(":")
        kind = line.take("word")
        if kind not in ("pointer", "scalar"):
            raise line.error(f"a parameter is a `pointer` or a `scalar`, not {kind!r}")
        dtype = self.dtype(line, line.take("word"))
        size = 8 if kind == "pointer" else max(dtype.bits // 8, 4)
        p = Param(name, kind, dtype, 0, size)
        if line.peek() in ("read", "write", "readwrite"):
            p.access = line.take()
        if line.kind() == "string":
            p.source = _unquote(line.take())
        while line.peek() in ("offset", "size"):
            key = line.take()
            line.expect("=")
            setattr(p, key, line.integer())
        return p

    def dtype(self, line: _Line, name: str) -> DType:
        if name not in dtypes.ALL:
            raise line.error(f"no such dtype: {name}")
        return dtypes.ALL[name]

    def region(self, region: Region, ends: tuple[str, ...]) -> str:
        """Ops up to a line that is one of `ends`, which is returned."""
        while True:
            line = self.line()
            if line.peek() in ends and len(line.tokens) == 1:
                return line.take()
            self.op(line, region)

    def op(self, line: _Line, region: Region) -> None:
        declared: list[_Declared] = []
        if line.kind() == "value":
            while True:
                declared.append(self.declaration(line))
                if not line.accept(","):
                    break
            line.expect("=")
        name = line.take("word")
        if name not in ROWS:
            raise line.error(f"the kernel IR has no op {name}")
        if name == "for":
            op = self.loop(line, region)
        else:
            args = []
            while line.peek() and line.peek() not in ("{", "do"):
                args.append(self.operand(line))
                line.accept(",")
            op = Op(name, tuple(args), self.attributes(line), line.loc)
            if name == "if":
                line.expect("do")
                first, second = Region(region.depth + 1, op), Region(region.depth + 1, op)
                op.regions = (first, second)
                if self.region(first, ("else", "end")) == "else":
                    self.region(second, ("end",))
                for body in op.regions:
                    self.end(body)
        if line.peek():
            raise line.error(f"cannot read {line.peek()!r}")
        self.results(line, op, declared)
        region.ops.append(op)

    def loop(self, line: _Line, region: Region) -> Op:
        iv = self.declaration(line)
        line.expect("=")
        args = [self.operand(line)]
        line.expect("to")
        args.append(self.operand(line))
        line.expect("step")
        args.append(self.operand(line))
        carried: list[_Declared] = []
        if line.accept("carry"):
            line.expect("(")
            while not line.accept(")"):
                carried.append(self.declaration(line))
                line.expect("=")
                args.append(self.operand(line))
                line.accept(",")
        op = Op("for", tuple(args), self.attributes(line), line.loc)
        line.expect("do")
        body = Region(region.depth + 1, op)
        op.regions = (body,)
        iv.facts = iv.facts or induction_facts(args[0], args[1], args[2])
        body.args.append(self.define(line, iv, I32, True, None, body))
        for d, init in zip(carried, args[3:]):
            body.args.append(self.define(line, d, init.type, d.uniform, None, body))
        self.region(body, ("end",))
        self.end(body)
        return op

    @staticmethod
    def end(body: Region) -> None:
        """An empty yield may be left out."""
        if not body.ops or body.ops[-1].name != "yield":
            body.ops.append(Op("yield", ()))

    # -------------------------------------------------------------------------------------------------------- values

    def declaration(self, line: _Line) -> _Declared:
        name = line.take("value")
        t, uniform, facts = None, False, None
        if line.accept(":"):
            t = self.type(line)
            uniform = line.accept("uniform")
            lo = hi = None
            if line.accept("in"):
                lo = line.integer()
                line.expect("..")
                hi = line.integer()
            if lo is not None or line.peek() == "zeros":
                facts = (lo, hi, line.integer() if line.accept("zeros") else 0)
        return _Declared(name, t, uniform, facts)

    def type(self, line: _Line) -> Type:
        word = line.take("word")
        m = _TYPE.match(word)
        if m is None:
            raise line.error(f"no such type: {word}")
        return Type(m.group(1), int(m.group(2) or 1))

    def define(self, line: _Line, d: _Declared, t: Type, uniform: bool, op: Op | None, region: Region | None) -> Value:
        if d.name in self.values:
            raise line.error(f"{d.name} is defined twice")
        v = Value(self.count, d.type or t, uniform or d.uniform, op, region)
        self.count += 1
        name = d.name[1:].rpartition(".")[0] if "." in d.name else d.name[1:]
        v.name = "" if name.isdigit() else name
        if v.type is I32 or v.type is I64:
            bits = BITS[v.type.kind]
            if d.facts is not None:
                lo, hi, zeros = d.facts
                v.lo, v.hi, v.zeros = normalise(
                    full(bits)[0] if lo is None else lo, full(bits)[1] if hi is None else hi, zeros, bits
                )
            elif op is None or op.regions:
                v.lo, v.hi, v.zeros = full(bits)
            elif op.args and op.name in TRANSFER:
                v.lo, v.hi, v.zeros = TRANSFER[op.name](op.args, op.attrs, bits)
            else:
                v.lo, v.hi, v.zeros = leaf_facts(self.k, op.name, op.attrs, v.type)
        self.values[d.name] = v
        return v

    def results(self, line: _Line, op: Op, declared: list[_Declared]) -> None:
        row = ROWS[op.name]
        if op.regions:
            yields = [body.ops[-1].args for body in op.regions]
            types = [v.type for v in yields[0]]
        elif row.result == "none":
            types, yields = [], []
        else:
            types, yields = [self.result_type(line, op, declared)], []
        if len(types) != len(declared):
            raise line.error(f"{op.name} has {len(types)} results, not {len(declared)}")
        out = []
        for i, (d, t) in enumerate(zip(declared, types)):
            if op.regions:
                uniform = d.uniform or (d.type is None and all(y[i].uniform for y in yields if i < len(y)))
            else:
                uniform = row.uniform == "always" or (row.uniform == "args" and all(a.uniform for a in op.args))
            out.append(self.define(line, d, t, uniform, op, None))
        op.results = tuple(out)

    def result_type(self, line: _Line, op: Op, declared: list[_Declared]) -> Type:
        if declared and declared[0].type is not None:
            return declared[0].type
        result = ROWS[op.name].result
        at = {"same": 0, "second": 1, "third": 2}.get(result)
        if at is not None:
            if at >= len(op.args):
                raise line.error(f"{op.name} takes {ROWS[op.name].args or 'no operands'}")
            return op.args[at].type
        if result == "attr":
            raise line.error(f"{op.name} needs the type of its result: `%name: type = {op.name} …`")
        return _FIXED[result]

    def operand(self, line: _Line) -> Value:
        if line.kind() == "value":
            name = line.take()
            if name not in self.values:
                raise line.error(f"{name} is not defined here")
            return self.values[name]
        if line.accept("true"):
            return self.const(True, PRED)
        if line.accept("false"):
            return self.const(False, PRED)
        token = line.take("number")
        t = self.type(line) if line.accept(":") else I32
        if t.is_float:
            return self.const(float(token), t)
        try:
            return self.const(int(token, 0), t)
        except ValueError:
            raise line.error(f"a constant of {t} is an integer, not {token}; floats are written {token}:f32") from None

    def const(self, value: Any, t: Type) -> Value:
        key = (t, repr(value))
        found = self.consts.get(key)
        if found is None:
            op = Op("const", (), {"value": value})
            found = Value(self.count, t, True, op)
            self.count += 1
            if t is I32 or t is I64:
                found.lo = found.hi = value
                found.zeros = ~value & MASKS[BITS[t.kind]]
            op.results = (found,)
            self.const_ops.append(op)
            self.consts[key] = found
        return found

    def attributes(self, line: _Line) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if line.accept("{"):
            while not line.accept("}"):
                key = line.take("word")
                line.expect("=")
                out[key] = self.attribute(line)
                line.accept(",")
        return out

    def attribute(self, line: _Line) -> Any:
        kind, token = line.kind(), line.take()
        if kind == "string":
            return _unquote(token)
        if kind == "atom":
            if token[1:] not in self.atoms:
                raise line.error(f"the target has no matrix instruction {token[1:]}; it has {', '.join(self.atoms)}")
            return self.atoms[token[1:]]
        if kind == "number":
            return float(token) if re.search(r"[.]|inf|nan|(?<!0x)\de", token) and "0x" not in token else int(token, 0)
        if token in ("true", "false"):
            return token == "true"
        return self.dtype(line, token)


def _unquote(s: str) -> str:
    if not s.startswith('"'):
        return s
    return re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), s[1:-1])
