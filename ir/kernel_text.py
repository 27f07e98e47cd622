"""Kernel IR as text and back. `text(kernel)` prints; `parse(source, target)` reads; the two round-trip.

    kernel axpy(x: pointer f32 read, y: pointer f32 write, n: scalar i32 "extent n") target=gfx942 waves=4 grid=(8, 1)
      shared tile at 0 bytes 1024
      %base: i64 = param {index=0}
      %size: i64 = param {index=2}                       ; axpy.py:3
      %buf = buffer %base, 4096:i64
      %t = tid
      %off = shl %t, 2
      %x: b32 = load.global %buf, %off, 0, true, true {bytes=4, imm=0}
      %acc: f32x4 = for %i = 0 to 256 step 16 carry (%a: f32x4 = 0.0:f32x4) {label="K"} do
        %c: f32x4 = mma %p, %q, %a {atom=@F32_16x16x16_F16}
        yield %c
      end
      %r: i32 = if %cond do
        yield 1
      else
        yield 2
      end
      store.global %buf, %off, 0, true, true, %x {bytes=4, imm=0}
    end

Lines are ops; indentation is for the eye. Values are `%name`, `%12` or `%name.12`. Constants stand where they are used:
`16` is i32, others carry their type (`16:i64`, `0x3f800000:b32`, `1.5:f32`, `0.0:f32x4`, `inf:f32`), predicates are
`true` and `false`. After a result's `: type` may come `uniform`, `in lo..hi` and `zeros 0xmask`. When reading, the type
may be left out where the op's row says it, `uniform` is implied where all operands are, and missing facts are
derived. Attributes stand in `{}`: ints, floats, `true`, `"strings"`, dtype names, and `@name` for a matrix instruction
of the target. `;` starts the location: `file:line`, optionally `:col-end`, ` in function`, and ` < ` before its caller.

INVARIANT: reading what was printed gives a kernel that `differences` finds equal: same ops, types, uniformity, facts,
attributes and locations. Only the place and number of constants are free. `notes` are not printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from wavedsl.ir import dtypes
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.facts import BITS, MASKS, TRANSFER, full, induction_facts, leaf_facts, normalise
from wavedsl.ir.kernel_ir import (
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

# ------------------------------------------------------------------------------------------------------------ printing


def text(kernel: Kernel, *, facts: bool = True, locations: bool = True) -> str:
    """The kernel as text. Without `facts` or `locations` it is shorter, and reads back with them derived or missing."""
    return _Printer(facts, locations).kernel(kernel)


class _Printer:
    def __init__(self, facts: bool, locations: bool):
        self.facts = facts
        self.locations = locations
        self.names: dict[Value, str] = {}
        self.lines: list[str] = []

    def kernel(self, k: Kernel) -> str:
        params = ", ".join(_param(p) for p in k.params)
        head = f"kernel {k.name}({params})"
        if k.target:
            head += f" target={k.target}"
        grid = ", ".join(str(g) if isinstance(g, int) else _quote(str(g)) for g in k.grid)
        head += f" wave_size={k.wave_size} waves={k.waves} shared={k.shared_bytes} grid=({grid})"
        self.lines.append(head)
        for name, (offset, size) in k.shared_names.items():
            self.lines.append(f"  shared {_quote(name)} at {offset} bytes {size}")
        self.region(k.body, 1)
        self.lines.append("end")
        return "\n".join(self.lines) + "\n"

    def region(self, region: Region, depth: int) -> None:
        for op in region.ops:
            if op.name != "const":
                self.op(op, depth)

    def op(self, op: Op, depth: int) -> None:
        pad = "  " * depth
        if op.name == "for":
            body = op.regions[0]
            operands = [self.operand(a) for a in op.args]
            iv = self.define(body.args[0])
            line = f"for {iv} = {operands[0]} to {operands[1]} step {operands[2]}"
            if len(operands) > 3:
                carried = [f"{self.define(a)} = {i}" for a, i in zip(body.args[1:], operands[3:])]
                line += f" carry ({', '.join(carried)})"
        else:
            line = " ".join([op.name, ", ".join(self.operand(a) for a in op.args)]).rstrip()
        line += _attributes(op.attrs)
        if op.results:
            line = ", ".join(self.define(r) for r in op.results) + " = " + line
        if op.regions:
            line += " do"
        if self.locations and op.loc is not None:
            line = f"{pad + line:<79} ; {_location(op.loc)}"
        else:
            line = pad + line
        self.lines.append(line)
        for i, region in enumerate(op.regions):
            if i:
                self.lines.append(f"{pad}else")
            self.region(region, depth + 1)
        if op.regions:
            self.lines.append(f"{pad}end")

    def define(self, v: Value) -> str:
        number = len(self.names)
        self.names[v] = name = f"%{v.name}.{number}" if v.name else f"%{number}"
        out = f"{name}: {v.type}"
        if v.uniform:
            out += " uniform"
        if self.facts and v.lo is not None and v.hi is not None:
            bits = BITS[v.type.kind]
            if (v.lo, v.hi) != full(bits)[:2]:
                out += f" in {v.lo}..{v.hi}"
            if v.zeros & ~normalise(v.lo, v.hi, 0, bits)[2]:
                out += f" zeros {v.zeros:#x}"
        return out

    def operand(self, v: Value) -> str:
        if v.op is not None and v.op.name == "const":
            return _constant(v.op.attrs["value"], v.type)
        found = self.names.get(v)
        return found if found is not None else f"%undefined.{v.id}"


def _param(p: Param) -> str:
    parts = [f"{p.name}: {p.kind} {p.dtype.name}"]
    if p.access:
        parts.append(p.access)
    if p.source:
        parts.append(_quote(p.source))
    parts.append(f"offset={p.offset} size={p.size}")
    return " ".join(parts)


def _constant(value: Any, t: Type) -> str:
    if t is PRED:
        return "true" if value else "false"
    if t is I32:
        return str(value)
    if t.kind in ("b32", "b64") and value > 9:
        return f"{value:#x}:{t}"
    return f"{value!r}:{t}"


def _quote(s: str) -> str:
    return '"' + s.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _attribute(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, MmaAtom):
        return f"@{value.name}"
    if isinstance(value, (int, float)):
        return repr(value)
    raise CompileError(f"a kernel IR attribute of type {type(value).__name__} has no text form")


def _attributes(attrs: dict[str, Any]) -> str:
    return " {" + ", ".join(f"{k}={_attribute(v)}" for k, v in attrs.items()) + "}" if attrs else ""


def _location(loc: Loc) -> str:
    parts = []
    here: Loc | None = loc
    while here is not None:
        span = f":{here.col}-{here.end_col}" if here.col or here.end_col else ""
        parts.append(f"{here.file}:{here.line}{span}" + (f" in {here.function}" if here.function else ""))
        here = here.call_site
    return " < ".join(parts)


# ------------------------------------------------------------------------------------------------------------- reading

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


# ---------------------------------------------------------------------------------------------------------- comparison


def differences(a: Kernel, b: Kernel, *, facts: bool = True, locations: bool = True) -> list[str]:
    """What distinguishes two kernels, up to numbering and the place of constants; empty when they are equal."""
    out: list[str] = []
    for key in ("name", "target", "params", "wave_size", "waves", "shared_bytes", "shared_names"):
        if getattr(a, key) != getattr(b, key):
            out.append(f"{key}: {getattr(a, key)} and {getattr(b, key)}")
    if [str(g) for g in a.grid] != [str(g) for g in b.grid]:
        out.append(f"grid: {a.grid} and {b.grid}")
    same: dict[Value, Value] = {}

    def match(x: Value, y: Value, where: str) -> None:
        same[x] = y
        if (x.type, x.uniform, x.name) != (y.type, y.uniform, y.name):
            out.append(f"{where}: {x}: {x.type} uniform={x.uniform} and {y}: {y.type} uniform={y.uniform}")
        if facts and (x.lo, x.hi, x.zeros) != (y.lo, y.hi, y.zeros):
            out.append(
                f"{where}: {x} in {x.lo}..{x.hi} zeros {x.zeros:#x} and {y} in {y.lo}..{y.hi} zeros {y.zeros:#x}"
            )

    def operands_equal(x: Value, y: Value) -> bool:
        cx, cy = x.const, y.const
        if cx is not None or cy is not None:
            return x.type is y.type and repr(cx) == repr(cy)
        return same.get(x) is y

    def region(x: Region, y: Region, where: str) -> None:
        if len(x.args) != len(y.args):
            out.append(f"{where}: {len(x.args)} and {len(y.args)} region arguments")
            return
        for p, q in zip(x.args, y.args):
            match(p, q, where)
        xs = [op for op in x.ops if op.name != "const"]
        ys = [op for op in y.ops if op.name != "const"]
        if len(xs) != len(ys):
            out.append(f"{where}: {len(xs)} and {len(ys)} ops")
        for i, (f, g) in enumerate(zip(xs, ys)):
            here = f"{where}[{i}] {f.name}"
            if f.name != g.name or f.attrs != g.attrs or len(f.args) != len(g.args):
                out.append(f"{here}: {f} and {g}")
                return
            if not all(map(operands_equal, f.args, g.args)):
                out.append(f"{here}: operands {f.args} and {g.args}")
            if locations and f.loc != g.loc:
                out.append(f"{here}: locations {f.loc} and {g.loc}")
            if len(f.regions) != len(g.regions) or len(f.results) != len(g.results):
                out.append(f"{here}: {f} and {g}")
                return
            for s, t in zip(f.regions, g.regions):
                region(s, t, here)
            for u, v in zip(f.results, g.results):
                match(u, v, here)

    region(a.body, b.body, "body")
    return out
