"""Independent check of an emitted PTX module: reads the text alone and shares nothing with selection or printing.

In: PTX text as `text` prints it (one statement per line, registers declared as ranges). Out: a list of complaints,
empty for a good program. Checked: every name has a row on the text's own target and version, and its operands fit the
row (count, kind, width, vector length); registers, labels and variables are declared; every register is written on all
paths before it is read (a predicated write does not count as one); guards are predicates; control leaves the entry
through `ret`.
"""

from __future__ import annotations

import re
from dataclasses import field

from wavedsl.codegen.ptx.isa import Arg, lookup
from wavedsl.codegen.ptx.operand_rules import check_operands
from wavedsl.ir.errors import CompileError
from wavedsl.ir.quick_dataclass import dataclass

_KINDS = {"r": "b32", "rd": "b64", "h": "b16", "p": "pred"}
_REGISTER = re.compile(r"%(r|rd|h|p)(\d+)$")
_DECLARATION = re.compile(r"\.reg \.(\w+)\s+%(\w+)<(\d+)>;")
_SPECIAL = frozenset(
    {
        *(f"%{s}.{d}" for s in ("tid", "ntid", "ctaid", "nctaid") for d in "xyz"),
        *("%laneid", "%warpid", "%cluster_ctarank"),
    }
)
_NUMBER = re.compile(r"-?(0x[0-9a-fA-F]+|0f[0-9A-F]{8}|0d[0-9A-F]{16}|\d+)$")


@dataclass
class _Line:
    """One parsed instruction: register numbers read and written are indices into `_Entry.names`."""

    number: int
    reads: list[int]
    writes: list[int]
    guarded: bool
    target: str
    leaves: bool
    branches: bool


@dataclass
class _Entry:
    target: str = ""
    version: tuple[int, int] = (0, 0)
    limits: dict[str, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    lines: list[_Line] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    args: dict[str, Arg] = field(default_factory=dict)
    """Registers by name."""
    parsed: dict[str, tuple[Arg, tuple[int, ...]]] = field(default_factory=dict)
    """Operands by their text, with the numbers of the registers in them (an address's included)."""


def verify(text: str) -> list[str]:
    """Complaints about a module, each with its line number; empty if there is nothing wrong."""
    entry = _Entry()
    inside = False
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.split("//", 1)[0].strip()
        if not line:
            continue
        if inside and line == "}":
            inside = False
        elif line == "{":
            inside = True
        elif line[0] == ".":
            _directive(entry, line)
        elif not inside:
            if line != ")":
                entry.problems.append(f"line {number}: {line!r} stands outside the entry")
        elif line.endswith(":"):
            name = line[:-1]
            if name in entry.labels:
                entry.problems.append(f"line {number}: label {name} is defined twice")
            entry.labels[name] = len(entry.lines)
        else:
            _instruction(entry, number, line)
    if inside:
        entry.problems.append("the entry is not closed")
    if not entry.problems:
        _flow(entry)
    return entry.problems


def _directive(entry: _Entry, line: str) -> None:
    if line.startswith(".version"):
        major, minor = line.split()[1].split(".")
        entry.version = int(major), int(minor)
    elif line.startswith(".target"):
        entry.target = line.split()[1]
    elif line.startswith(".reg"):
        m = _DECLARATION.match(line)
        if m is None or _KINDS.get(m.group(2)) != m.group(1):
            entry.problems.append(f"register declaration {line!r} is not understood")
        else:
            entry.limits[m.group(2)] = int(m.group(3))
    elif line.startswith(".param"):
        entry.variables.add(line.rstrip(",").split()[-1].partition("[")[0])
    elif ".shared" in line:
        m = re.search(r"(\w+)\[", line)
        if m:
            entry.variables.add(m.group(1))


def _instruction(entry: _Entry, number: int, line: str) -> None:
    what = _parse(entry, number, line)
    if what:
        entry.problems.append(f"line {number}: {what}: {line}")


def _parse(entry: _Entry, number: int, line: str) -> str:
    """Append the instruction of a line to the entry, or say what is wrong with it."""
    if line[-1] != ";":
        return "no semicolon"
    head, _, rest = line[:-1].partition(" ")
    guard = ""
    if head[0] == "@":
        guard = head[1:].lstrip("!")
        head, _, rest = rest.strip().partition(" ")
    try:
        inst = lookup(head, entry.target, entry.version)
    except CompileError as error:
        return error.message
    reads: list[int] = []
    writes: list[int] = []
    if guard:
        arg = _register(entry, guard)
        if arg is None or arg.type != "pred":
            return f"guard {guard} is no declared predicate"
        reads.append(entry.names[guard])
    args: list[Arg] = []
    pair: Arg | None = None
    target = ""
    operands = inst.plain
    pieces = _split(rest)
    if len(pieces) > len(operands):
        return "too many operands"
    for operand, piece in zip(operands, pieces):
        known = entry.parsed.get(piece)
        if known is None:
            arg = _operand(entry, piece)
            if arg is None:
                return f"operand {piece!r} is not understood or not declared"
            registers = [entry.names[part.text] for part in (arg, *arg.parts) if part.kind == "reg"]
            if arg.kind == "tensor":
                holder = _register(entry, _split(piece[1:-1])[0])
                if holder is None or holder.type != "b64":
                    return f"operand {piece!r} has no 64-bit register with the map's address"
                registers.append(entry.names[holder.text])
            known = entry.parsed[piece] = arg, tuple(registers)
        arg, numbers = known
        kind = arg.kind
        if operand.kind == "label":
            target = arg.text
        elif kind == "none" and arg.parts:
            pair = arg.parts[0]
        if operand.write and kind != "addr" and kind != "tensor":
            writes += numbers
        else:
            reads += numbers
        args.append(arg)
    try:
        check_operands(inst, args, pair)
    except CompileError as error:
        return error.message
    for i, arg in enumerate(args):
        if arg.kind != "addr":
            continue
        if not arg.parts:
            if arg.text not in entry.variables:
                return f"{arg.text} is not declared"
            continue
        # A copy goes from global to shared memory; every other access is in the space its name says.
        shared = i == 0 if "async" in inst.effects else "shared" in head  # bulk copies' map is no address
        base, want = arg.parts[0].type, "b32" if shared else "b64"
        if base != want:
            return f"address register {arg.parts[0].text} is .{base}, .{want} is wanted"
    effects = inst.effects
    entry.lines.append(_Line(number, reads, writes, bool(guard), target, "exit" in effects, "branch" in effects))
    return ""


def _split(text: str) -> list[str]:
    """Operands at the commas outside braces and brackets."""
    if "{" not in text:
        return [piece.strip() for piece in text.split(",")] if text else []
    out, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "{[":
            depth += 1
        elif c in "}]":
            depth -= 1
        elif c == "," and not depth:
            out.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*out, last] if last else out


def _register(entry: _Entry, text: str) -> Arg | None:
    found = entry.args.get(text)
    if found is None:
        m = _REGISTER.match(text)
        if m is None or int(m.group(2)) >= entry.limits.get(m.group(1), 0):
            return None
        entry.names[text] = len(entry.names)
        found = entry.args[text] = Arg("reg", _KINDS[m.group(1)], (), text)
    return found


def _operand(entry: _Entry, text: str) -> Arg | None:
    first = text[0]
    if first == "%":
        return Arg("sym", "", (), text) if text in _SPECIAL else _register(entry, text)
    if first == "{":
        parts = [_operand(entry, p) for p in _split(text[1:-1])]
        members = tuple(p for p in parts if p is not None)
        return Arg("vec", "", members, text) if len(members) == len(parts) else None
    if text == "_":
        return Arg("none", "", (), text)
    if text[:2] == "_|":
        chosen = _register(entry, text[2:])
        return None if chosen is None else Arg("none", "", (chosen,), text)
    if first == "[" and "{" in text:
        _, place = _split(text[1:-1])
        at = _operand(entry, place)
        return None if at is None else Arg("tensor", "", at.parts)
    if first == "[":
        base, _, offset = text[1:-1].partition("+")
        if offset and not _NUMBER.match(offset):
            return None
        if base[0] == "%":
            r = _register(entry, base)
            return None if r is None else Arg("addr", "", (r,), base)
        return Arg("addr", "", (), base)
    if first == "$":
        return Arg("label", "", (), text)
    if _NUMBER.match(text):
        return Arg("imm", "", (), text)
    return Arg("sym", "", (), text) if text in entry.variables else None


def _flow(entry: _Entry) -> None:
    """Forward data flow: a register is written where every path has written it (sets of registers as bits of an
    int)."""
    lines = entry.lines
    if not lines or not lines[-1].leaves or lines[-1].guarded:
        entry.problems.append("control can run off the end of the entry")
        return
    for line in lines:
        if line.target and line.target not in entry.labels:
            entry.problems.append(f"line {line.number}: label {line.target} is not defined")
            return
    n = len(lines)
    starts = {0, *(i for i in entry.labels.values() if i < n)}
    starts |= {i + 1 for i, line in enumerate(lines) if (line.branches or line.leaves) and i + 1 < n}
    order = sorted(starts)
    number = {s: b for b, s in enumerate(order)}
    ends = [*order[1:], n]
    everything = (1 << len(entry.names)) - 1
    into = [everything] * len(order)
    into[0] = 0
    made = []
    follows: list[list[int]] = []
    for b, start in enumerate(order):
        bits = 0
        for line in lines[start : ends[b]]:
            if not line.guarded:
                for w in line.writes:
                    bits |= 1 << w
        made.append(bits)
        last = lines[ends[b] - 1]
        next_ = []
        if last.branches:
            at = entry.labels[last.target]
            if at < n:
                next_.append(number[at])
        if (not (last.branches or last.leaves) or last.guarded) and b + 1 < len(order):
            next_.append(b + 1)
        follows.append(next_)
    work = [0]
    seen = {0}
    while work:
        b = work.pop()
        out = into[b] | made[b]
        for s in follows[b]:
            new = into[s] & out
            if new != into[s] or s not in seen:
                into[s] = new
                seen.add(s)
                work.append(s)
    by_index = {i: name for name, i in entry.names.items()}
    for b, start in enumerate(order):
        if b not in seen:
            entry.problems.append(f"line {lines[start].number}: no path leads here")
            continue
        have = into[b]
        for line in lines[start : ends[b]]:
            for r in line.reads:
                if not have >> r & 1:
                    entry.problems.append(f"line {line.number}: {by_index[r]} may be read before it is written")
            if not line.guarded:
                for w in line.writes:
                    have |= 1 << w
