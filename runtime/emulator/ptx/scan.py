"""Pieces of PTX text: statements, comma lists, numbers, declarations of variables and parameters.

In: text. Out: strings, `Imm`, `Variable`, `Param`. Raises CompileError for what cannot be parsed.
"""

from __future__ import annotations

import re

from wavedsl.codegen.ptx.isa import TYPE_BITS
from wavedsl.ir.errors import CompileError
from wavedsl.runtime.emulator.ptx.module import Imm, Module, Param, Variable

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
WORD = re.compile(r"\s*([%$A-Za-z_][\w$.]*|\.[A-Za-z_]\w*)")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_HEXFLOAT = re.compile(r"0([fFdD])([0-9a-fA-F]+)$")
_DECFLOAT = re.compile(r"[-+]?\d+\.\d*(?:[eE][-+]?\d+)?$|[-+]?\d+[eE][-+]?\d+$")
TYPE = re.compile(r"\.(pred|[bsu](?:8|16|32|64|128)|f16x2|bf16x2|f16|bf16|f32|f64|tf32)\b")
_ALIGN = re.compile(r"\.align\s+(\d+)")


class Scanner:
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


def add_file(text: str, mod: Module) -> None:
    m = re.match(r'\s*\.file\s+(\d+)\s+"([^"]*)"', text)
    if m:
        mod.files[int(m.group(1))] = m.group(2)


def at_commas(text: str) -> list[str]:
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


def variables(text: str, extern: bool) -> list[Variable]:
    """`.shared .align 16 .b8 name[64] = {…}` to variables."""
    text = text.strip()
    space = text.split(None, 1)[0][1:]
    align_m, type_m = _ALIGN.search(text), TYPE.search(text)
    if not type_m:
        raise CompileError(f"variable without a type: {text[:60]!r}")
    size = TYPE_BITS[type_m.group(1)] // 8
    vec = re.search(r"\.v([24])\b", text)
    size *= int(vec.group(1)) if vec else 1
    out = []
    for item in at_commas(text[type_m.end() :]):
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
    for item in at_commas(text.strip().replace("{", " ").replace("}", " ")):
        if not item:
            continue
        value = literal(item)
        if value is None:
            m = re.match(r"(?:generic\s*\()?\s*([%$\w]+)\s*\)?\s*(?:\+\s*(\d+))?$", item)
            if not m:
                raise CompileError(f"initialiser not understood: {item!r}")
            refs.append((len(data), m.group(1)))
            data += int(m.group(2) or 0).to_bytes(size, "little")
        else:
            data += (value.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return bytes(data), refs


def literal(t: str) -> Imm | None:
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


def parameters(text: str) -> list[Param]:
    out, at = [], 0
    for item in at_commas(text):
        if not item:
            continue
        tm, am = TYPE.search(item), _ALIGN.search(item)
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
