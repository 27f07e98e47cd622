"""Machine code to PTX text.

In: a `Kernel` and its coalesced code. Out: the module's text and the instruction counts. Every instruction's operands
are checked against its row while it is printed. Registers are numbered in order of appearance, so the text depends on
nothing but the code. A `.loc` and the user's source line stand where the line changes.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from wavedsl.codegen.ptx.isa import Arg, Inst, Unit, parse_target
from wavedsl.codegen.ptx.machine import (
    PREFIX,
    Code,
    Imm,
    Ins,
    Label,
    Mem,
    Operand,
    Paired,
    Reg,
    Symbol,
    Tensor,
)
from wavedsl.codegen.ptx.mma import WARP
from wavedsl.codegen.ptx.operand_rules import check_operands
from wavedsl.codegen.ptx.select_entry import param_name
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import Kernel, Param, entry_name
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass

RUN_TIME = -1
"""Workgroups along an axis of the grid that the launch counts."""
STATIC_SHARED_LIMIT = 48 * 1024
"""Bytes of statically declared shared memory that every chip and every ptxas takes; more is passed at launch."""

CLASSES = (*(u.value for u in Unit), "accmove")
"""Classes of instruction lines: the row's unit, and copies of loop-carried accumulators."""


def oldest_version(target: str) -> tuple[int, int]:
    """The oldest `.version` that knows the target, so that drivers of its day take the text."""
    sm = parse_target(target).number
    return (7, 4) if sm < 89 else (7, 8) if sm < 90 else (8, 0) if sm == 90 else (8, 7)


@dataclass
class LoopCount:
    """One loop of the text: where it is and what it holds, inner loops included."""

    label: str
    location: Loc | None
    steps: float
    instructions: dict[str, int]

    @property
    def line(self) -> int | None:
        """The user's line."""
        return None if self.location is None else self.location.line


@dataclass
class Printed:
    """The text of a module with one entry, and what was counted in it."""

    text: str
    entry: str
    instructions: dict[str, int]
    loops: list[LoopCount] = field(default_factory=list)


def print_module(kernel: Kernel, target: str, code: Code, lines: list[Any], together: int = 1) -> Printed:
    """The whole module. `lines` is flat code without parallel copies, `together` the workgroups on an SM that ptxas
    leaves registers for. Raises CompileError for operands that do not fit."""
    body = _Body(entry_name(kernel.name), oldest_version(target))
    for item in lines:
        if type(item) is Label:
            body.label(item)
        else:
            body.instruction(item)
    major, minor = body.version
    grid = " x ".join("dynamic" if g == RUN_TIME else str(g) for g in kernel.grid)
    waves = f"{kernel.waves} {'warp' if kernel.wave_size == WARP else 'warpgroup'}{'s' * (kernel.waves != 1)}"
    head = [
        f"// {_ascii(kernel.name)} for {target}: grid {_ascii(grid)}, block {kernel.block} ({waves})",
        f".version {major}.{minor}",
        f".target {target}",
        ".address_size 64",
    ]
    head += [f".file {n} {_quoted(name)}" for name, n in body.files.items()]
    head.append("")
    dynamic = kernel.shared_bytes > STATIC_SHARED_LIMIT
    shared = code.shared_symbol or "smem" if kernel.shared_bytes else ""
    if shared and dynamic:
        head.append(f".extern .shared .align 1024 .b8 {shared}[];  // {kernel.shared_bytes} bytes at launch")
        head += _shared_map(kernel, "")
        head.append("")
    head.append(f".visible .entry {body.entry}(")
    head += _params(kernel.params)
    head.append(")")
    head.append(f".reqntid {kernel.block}, 1, 1")
    if kernel.cluster > 1:
        head += [".explicitcluster", f".reqnctapercluster {kernel.cluster}, 1, 1"]
    # Without it ptxas holds registers down to fit more workgroups on an SM, if it takes a few spills to get there.
    head.append(f".minnctapersm {together}")
    head.append("{")
    if shared and not dynamic:
        head.append(f"    .shared .align 1024 .b8 {shared}[{kernel.shared_bytes}];")
        head += _shared_map(kernel, "    ")
    head += [f"    .reg .{kind:<5}{prefix}<{body.count[kind]}>;" for kind, prefix in PREFIX.items() if body.count[kind]]
    text = "\n".join([*head, "", *body.lines, "}", ""])
    return Printed(text, body.entry, body.counts, body.loops)


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode().replace("\n", " ")


def _quoted(path: str) -> str:
    return '"' + _ascii(path.replace("\\", "/").replace('"', "'")) + '"'


def _params(params: list[Param]) -> list[str]:
    rows = []
    for i, p in enumerate(params):
        type_ = "u64" if p.kind == "pointer" else f"b{8 * p.size}"
        comma = "," if i + 1 < len(params) else ""
        what = p.source or (f"{p.dtype} array, {p.access}" if p.kind == "pointer" else f"{p.dtype} by value")
        left = f"    .param .{type_} {param_name(p)}{comma}"
        if p.map is not None:
            what = f"tensor map of {p.map.array}: boxes of {' x '.join(map(str, p.map.box))}, {p.access}"
            left = f"    .param .align 64 .b8 {param_name(p)}[{p.size}]{comma}"
        rows.append((left, what))
    width = max((len(r[0]) for r in rows), default=0)
    return [f"{left:<{width}}  // {_ascii(what)}" for left, what in rows]


def _shared_map(kernel: Kernel, indent: str) -> list[str]:
    return [
        f"{indent}// {offset:>6} .. {offset + size:>6}  {_ascii(name)}"
        for name, (offset, size) in sorted(kernel.shared_names.items(), key=lambda kv: (kv[1][0], kv[0]))
    ]


_TEXT_WIDTH = 46
_LABEL_ARG: dict[str, Arg] = {}


class _Body:
    """The entry's body being printed: names of registers, source files, counts."""

    def __init__(self, entry: str, version: tuple[int, int]):
        self.entry = entry
        self.version = version
        """The oldest `.version` that has everything printed so far."""
        self.lines: list[str] = []
        self.count = dict.fromkeys(PREFIX, 0)
        self.files: dict[str, int] = {}
        self.counts = dict.fromkeys(CLASSES, 0)
        self.loops: list[LoopCount] = []
        self.open: list[tuple[str, LoopCount]] = []
        self.last: tuple[str, int] | None = None

    def label(self, label: Label) -> None:
        if self.open and self.open[-1][0] == label.name:
            self.open.pop()
        if label.loop is not None:
            here = LoopCount(label.name, label.loop.loc, label.loop.steps, dict.fromkeys(CLASSES, 0))
            self.loops.append(here)
            self.open.append((label.loop.end, here))
        self.lines.append(f"{label.name}:")
        if label.loop is not None and label.loop.rolled:
            self.lines.append('    .pragma "nounroll";')

    def instruction(self, ins: Ins) -> None:
        if ins.loc is not None and (ins.loc.file, ins.loc.line) != self.last:
            self.source_line(ins.loc)
        inst = ins.inst
        texts, args = [], []
        pair: Arg | None = None
        for operand, arg in zip(inst.plain, ins.args):
            a = self.register(arg) if arg.__class__ is Reg else self.operand(arg, operand.type)
            texts.append(a.text)
            if a.kind == "tensor":
                a = Arg("tensor", "", a.parts)
            elif a.kind == "none" and a.parts:
                pair = a.parts[0]
            args.append(a)
        try:
            check_operands(inst, args, pair)
        except CompileError as error:
            raise CompileError(f"the PTX back end made an illegal instruction: {error.message}", ins.loc) from error
        guard = ""
        if ins.guard is not None:
            guard = f"@{'!' if ins.negated else ''}{self.register(ins.guard).text} "
        line = f"    {guard}{inst.name:<{26 - len(guard)}} {', '.join(texts)};" if texts else f"    {guard}{inst.name};"
        self.lines.append(f"{line:<{_TEXT_WIDTH}}  // {_ascii(ins.note)}" if ins.note else line)
        if inst.row.min_ptx > self.version:
            self.version = inst.row.min_ptx
        class_ = ins.kind or inst.unit.value
        self.counts[class_] += 1
        for _, loop in self.open:
            loop.instructions[class_] += 1

    def source_line(self, loc: Loc) -> None:
        self.last = (loc.file, loc.line)
        n = self.files.setdefault(loc.file, len(self.files) + 1)
        text = _ascii(loc.text().strip())
        self.lines.append(f"    .loc {n} {loc.line} {loc.col + 1}" + (f"  // {text}" if text else ""))

    def register(self, reg: Reg) -> Arg:
        home = reg.find()
        if home.arg is None:
            n = self.count[home.kind]
            self.count[home.kind] = n + 1
            home.text = f"{PREFIX[home.kind]}{n}"
            home.arg = Arg("reg", home.kind, (), home.text)
        return home.arg

    def operand(self, arg: Operand, type_: str) -> Arg:
        kind = type(arg)
        if kind is Reg:
            return self.register(arg)
        if kind is Imm:
            return Arg("imm", "", (), arg.spell(type_ or "u32"))
        if kind is tuple:
            parts = tuple(self.operand(a, type_) for a in arg)
            return Arg("vec", "", parts, "{" + ", ".join(p.text for p in parts) + "}")
        if kind is Mem:
            if type(arg.base) is Reg:
                base = self.register(arg.base)
                parts, text = (base,), base.text
            else:
                parts, text = (), arg.base
            return Arg("addr", "", parts, f"[{text}+{arg.offset}]" if arg.offset else f"[{text}]")
        if kind is Tensor:
            at = tuple(self.register(r) for r in arg.at)
            text = f"[{self.register(arg.map).text}, {{{', '.join(a.text for a in at)}}}]"
            return Arg("tensor", "", at, text)
        if kind is Paired:
            return Arg("none", "", (self.register(arg.reg),), f"_|{self.register(arg.reg).text}")
        if kind is Symbol:
            return Arg(arg.kind, "", (), arg.text)
        raise CompileError(f"{arg!r} is no operand")


def moves(target: str, lookup: Any) -> dict[str, Inst]:
    """The register-to-register and constant moves by register class or float type."""
    return {k: lookup(target, "mov", k) for k in ("b32", "b64", "b16", "pred", "f32", "f64")}
