"""Kernel IR as text. `text(kernel)` prints; `parse(source, target)` (`kernel_parse.py`) reads; the two round-trip.

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

INVARIANT: reading what was printed gives a kernel that `differences` (`tests/helpers`) finds equal: same ops,
types, uniformity, facts, attributes and locations. Only the place and number of constants are free. `notes` are not
printed.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.facts import BITS, full, normalise
from wavedsl.ir.kernel.kernel_ir import I32, PRED, Kernel, Op, Param, Region, Type, Value
from wavedsl.ir.loc import Loc
from wavedsl.ir.target import MmaAtom


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
