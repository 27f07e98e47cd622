"""AMDGCN assembler text to a program: instructions with their rows, labels, kernels, constants.

In: text as LLVM's assembler takes it (ours, LLVM's, Triton's). Out: `Program`. Every operand becomes `Reg`, `Src`, a
number or a string; modifiers a dict. Locations come from `.file` and `.loc`. The idea: one pass over the lines with a
tiny tokenizer; no macros. An instruction without a row stays in the program with `inst=None`: it is a finding only if
it is executed.

Addresses: instruction i lies at `CODE_BASE + 8 i` (a model: real sizes are 4 to 12 bytes), which only code that
computes with the program counter can see.
"""

from __future__ import annotations

import functools
import re
import struct
from dataclasses import field
from typing import Any

from wavedsl.codegen.amdgcn.isa import NAMED, OFF, WAITCNT, Inst, Reg, Src, lookup
from wavedsl.ir.errors import WaveError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.amdgcn.metadata import parse_yaml

CODE_BASE = 0x2000_0000
DATA_BASE = 0x4000_0000


@dataclass
class Line:
    """One instruction of the text."""

    mnemonic: str
    operands: tuple[Any, ...]
    modifiers: dict[str, Any]
    inst: Inst | None
    number: int
    text: str
    location: Loc | None
    problem: str = ""
    facts: dict[Any, Any] = field(default_factory=dict)
    """What others derive from the spelling alone, by name. Shared by all lines that are spelled alike."""


@dataclass(frozen=True)
class Spelling:
    """What the words of one instruction say, wherever it stands."""

    mnemonic: str
    operands: tuple[Any, ...]
    modifiers: dict[str, Any]
    """Nobody changes it."""
    inst: Inst | None
    problem: str
    facts: dict[Any, Any] = field(default_factory=dict)


@dataclass
class Kernel:
    """One entry: its label, descriptor directives and argument layout."""

    name: str
    directives: dict[str, int] = field(default_factory=dict)
    args: list[dict[str, Any]] | None = None
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass
class Program:
    lines: list[Line]
    labels: dict[str, int]
    kernels: dict[str, Kernel]
    data: bytearray
    symbols: dict[str, int]
    """Symbols of the data sections, as addresses."""
    infos: dict[int, Any] = field(default_factory=dict)
    needs: dict[tuple[int, int], tuple[int, str]] = field(default_factory=dict)
    """What checks have found out about instructions, and about pairs of them: the same in every run."""
    hazards: dict[str, dict[Any, Any]] = field(default_factory=dict)
    """By kernel, what they have found in its blocks after what history: the same in every run, too."""
    replays: bool = True
    """Whether a chip that issues instructions again after a page fault may load the text."""

    def index_of(self, label: str) -> int:
        if label not in self.labels:
            raise WaveError(f"the text jumps to {label}, which it does not define")
        return self.labels[label]


_REG = re.compile(r"^(v|s|a|ttmp)(\d+)$")
_RANGE = re.compile(r"^(v|s|a|ttmp)\[(\w+)(?::(\w+))?\]$")
_LIST = re.compile(r"^\[(.*)\]$")
_NUMBER = re.compile(r"^[+-]?(0[xX][0-9a-fA-F]+|\d+)$")
_FLOAT = re.compile(r"^[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?$")
_REL = re.compile(r"^([\w.$]+)@(rel32|gotpcrel32)@(lo|hi)([+-]\d+)?$")
_LABEL = re.compile(r"^([\w.$@]+):")
_MOD = re.compile(r"^([a-z_0-9]+):(.+)$", re.S)
_FLAGS = frozenset(
    (
        "offen",
        "idxen",
        "glc",
        "slc",
        "dlc",
        "sc0",
        "sc1",
        "nt",
        "lds",
        "clamp",
        "gds",
        "tfe",
        "scc",
        "fi",
        "high",
        "r128",
    )
)
_DPP = re.compile(
    r"^(quad_perm|row_shl|row_shr|row_ror|row_bcast|row_newbcast|row_mirror|row_half_mirror|wave_shl|wave_shr|wave_rol|"
    r"wave_ror|row_share|row_xmask)(?::(.+))?$"
)
_COUNTERS = re.compile(r"(vmcnt|expcnt|lgkmcnt)(?:_sat)?\((\w+)\)")
_OUTSIDE = {at: re.compile(rf"{at}(?![^\[\]]*\])") for at in ", "}
"""A separator that no bracket closes behind; brackets do not nest where there is no parenthesis."""


def parse(asm: str, target: str) -> Program:
    """Parse a whole text for one target."""
    return _Parser(target).run(asm)


@functools.lru_cache(maxsize=1 << 14)
def _spelling(line: str, target: str) -> Spelling:
    """An instruction that names no symbol of its text: kernels of one kind have most of theirs in common."""
    return _Parser(target).read(line)


class _Parser:
    def __init__(self, target: str):
        self.target = target
        self.lines: list[Line] = []
        self.labels: dict[str, int] = {}
        self.kernels: dict[str, Kernel] = {}
        self.sets: dict[str, int] = {}
        self.files: dict[int, str] = {}
        self.loc: Loc | None = None
        self.data = bytearray()
        self.symbols: dict[str, int] = {}
        self.section = ".text"
        self.fixups: list[tuple[int, int, str]] = []
        self.replays = True

    def run(self, asm: str) -> Program:
        kernel: Kernel | None = None
        metadata: list[str] | None = None
        comment = False
        for number, raw in enumerate(asm.splitlines(), 1):
            if metadata is not None:
                if raw.strip() in (".end_amdgpu_metadata",):
                    self._metadata(metadata)
                    metadata = None
                else:
                    metadata.append(raw)
                continue
            line = _strip(raw)
            if comment or "/*" in line:
                line, comment = _block_comment(line, comment)
            if not line:
                continue
            while (m := _LABEL.match(line)) is not None:
                self._label(m.group(1))
                line = line[m.end() :].strip()
            if not line:
                continue
            if line[0] == ".":
                word, _, rest = line.partition(" ") if " " in line.split("\t")[0] else line.partition("\t")
                word, rest = word.strip(), rest.strip()
                if word == ".amdhsa_kernel":
                    kernel = self.kernels.setdefault(rest, Kernel(rest))
                elif word == ".end_amdhsa_kernel":
                    kernel = None
                elif kernel is not None and word.startswith(".amdhsa_"):
                    kernel.directives[word[8:]] = self._value(rest)
                elif word == ".amdgpu_metadata":
                    metadata = []
                else:
                    try:
                        self._directive(word, rest)
                    except (ValueError, IndexError, struct.error):
                        raise WaveError(f"line {number} of the text cannot be read: {line}") from None
                continue
            name, eq, value = line.partition("=")
            if eq and name.strip().replace(".", "_").isidentifier() and not value.startswith("="):
                self.sets[name.strip()] = self._value(value.strip())
                continue
            for part in line.split("\n"):
                self._instruction(part.strip(), number)
        for at, size, symbol in self.fixups:
            self.data[at : at + size] = self._address(symbol).to_bytes(8, "little")[:size]
        return Program(
            self.lines, self.labels, self.kernels, self.data, self.symbols, replays=self.replays
        )

    # ---- directives

    def _label(self, name: str) -> None:
        if self.section == ".text":
            self.labels[name] = len(self.lines)
        else:
            self.symbols[name] = DATA_BASE + len(self.data)

    def _address(self, symbol: str) -> int:
        if symbol in self.labels:
            return CODE_BASE + 8 * self.labels[symbol]
        if symbol in self.symbols:
            return self.symbols[symbol]
        raise WaveError(f"the text names {symbol}, which it does not define")

    def _directive(self, word: str, rest: str) -> None:
        if word in (".text", ".data", ".bss", ".rodata"):
            self.section = word
        elif word in (".section", ".pushsection"):
            self.section = rest.split(",")[0].strip().strip('"')
            if self.section.startswith(".text"):
                self.section = ".text"
        elif word in (".set", ".equ", ".equiv"):
            name, _, value = rest.partition(",")
            try:
                self.sets[name.strip()] = self._value(value.strip())
            except ValueError:
                pass  # a resource expression of another function; only matters if an operand names it
        elif word == ".amdgcn_target":
            self.replays = "xnack-" not in rest
        elif word == ".file":
            parts = re.findall(r'"([^"]*)"|(\S+)', rest)
            words = [a or b for a, b in parts]
            if words and words[0].isdigit():
                path = words[2] if len(words) > 2 and parts[2][0] else words[1]
                bare = path is words[1] or path.startswith("/") or words[1] == "."  # "." beside a cell's name, say
                folder = "" if bare else words[1] + "/"
                self.files[int(words[0])] = folder + path
        elif word == ".loc":
            fields = rest.split()
            line = int(fields[1])
            column = int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else 0
            self.loc = Loc(self.files.get(int(fields[0]), "?"), line, max(0, column - 1)) if line else None
        elif self.section not in (".text",) and not self.section.startswith((".debug", ".note", ".AMDGPU", ".comment")):
            self._emit(word, rest)

    def _emit(self, word: str, rest: str) -> None:
        sizes = {
            ".byte": 1,
            ".short": 2,
            ".2byte": 2,
            ".hword": 2,
            ".long": 4,
            ".4byte": 4,
            ".int": 4,
            ".quad": 8,
            ".8byte": 8,
        }
        if word in sizes:
            for item in rest.split(","):
                n = sizes[word]
                try:
                    self.data += (self._value(item.strip()) & (1 << 8 * n) - 1).to_bytes(n, "little")
                except ValueError:
                    self.fixups.append((len(self.data), n, item.strip()))
                    self.data += bytes(n)
        elif word in (".zero", ".skip", ".space"):
            count, _, fill = rest.partition(",")
            self.data += bytes([self._value(fill.strip() or "0") & 255]) * self._value(count.strip())
        elif word == ".fill":
            fields = [self._value(x.strip()) for x in rest.split(",")]
            repeat, width, value = (*fields, *(1, 0)[len(fields) - 1 :])
            self.data += (value & (1 << 8 * width) - 1).to_bytes(width, "little") * repeat
        elif word in (".p2align", ".balign", ".align"):
            n = self._value(rest.split(",")[0].strip())
            n = n if word == ".balign" else 1 << n
            self.data += bytes(-len(self.data) % n)
        elif word in (".asciz", ".ascii", ".string"):
            text = rest.strip()[1:-1].encode().decode("unicode_escape").encode("latin1")
            self.data += text + (b"" if word == ".ascii" else b"\0")
        elif word == ".float":
            for item in rest.split(","):
                self.data += struct.pack("<f", float(item))

    def _value(self, text: str) -> int:
        """An integer, a name set before, or sums and differences of those. Raises ValueError for anything else."""
        if _NUMBER.match(text):
            return int(text, 0) if not re.match(r"^[+-]?0\d", text) else int(text, 8)
        if text in self.sets:
            return self.sets[text]
        parts = re.split(r"\s*([+\-*/|&]|<<|>>)\s*", text.strip("()"))
        if len(parts) > 2 and parts[0]:
            total = self._value(parts[0])
            for op, item in zip(parts[1::2], parts[2::2]):
                value = self._value(item)
                total = {"+": total + value, "-": total - value, "*": total * value, "|": total | value,
                         "&": total & value, "<<": total << value, ">>": total >> value}.get(op, total)  # fmt: skip
            return total
        raise ValueError(text)

    def _metadata(self, lines: list[str]) -> None:
        tree = parse_yaml(lines)
        for entry in (tree or {}).get("amdhsa.kernels") or ():
            name = str(entry.get(".name", entry.get(".symbol", "")[:-3]))
            kernel = self.kernels.setdefault(name, Kernel(name))
            kernel.meta = entry
            kernel.args = entry.get(".args") or []

    # ---- instructions

    def _instruction(self, line: str, number: int) -> None:
        if self.section != ".text" or "_unittest" in line.replace("\t", " ").partition(" ")[0]:
            return
        found = self.read(line) if self.sets else _spelling(line, self.target)
        self.lines.append(
            Line(found.mnemonic, found.operands, found.modifiers, found.inst, number, line, self.loc, found.problem,
                 found.facts)
        )  # fmt: skip

    def read(self, line: str) -> Spelling:
        """One instruction; what cannot be understood of it is its `problem`."""
        mnemonic, _, rest = line.replace("\t", " ").partition(" ")
        operands, modifiers, problem = [], {}, ""
        inst = None
        try:
            if mnemonic == WAITCNT:
                modifiers = self._waitcnt(rest)
                operands = ["counters"]
            else:
                operands, modifiers = self._operands(rest.strip())
            inst = self._find(mnemonic, modifiers)
        except KeyError as e:
            problem = str(e.args[0])
        except (ValueError, IndexError) as e:
            problem = f"cannot read the operands of `{line}`: {e}"
        if inst is not None and len(operands) != len(inst.explicit):
            problem = f"{mnemonic} takes {len(inst.explicit)} operands, the text has {len(operands)}"
            inst = None
        return Spelling(mnemonic, tuple(operands), modifiers, inst, problem)

    def _find(self, mnemonic: str, modifiers: dict[str, Any]) -> Inst:
        if modifiers.get("lds") and mnemonic.startswith("buffer_load"):
            return lookup(mnemonic + " lds", self.target)
        if "_atomic_" in mnemonic and (modifiers.get("glc") or modifiers.get("sc0")):
            return lookup(mnemonic + " rtn", self.target)
        inst = lookup(mnemonic, self.target)
        if inst.encoding in ("VOP1", "VOP2", "VOPC", "VOP3") and mnemonic == inst.base and "dpp" in modifiers:
            return lookup(mnemonic + "_dpp", self.target)
        if (
            inst.encoding in ("VOP1", "VOP2", "VOPC", "VOP3")
            and mnemonic == inst.base
            and ("src0_sel" in modifiers or "dst_sel" in modifiers)
        ):
            return lookup(mnemonic + "_sdwa", self.target)
        return inst

    def _waitcnt(self, text: str) -> dict[str, Any]:
        found = {name: int(n, 0) for name, n in _COUNTERS.findall(text)}
        if not found:
            value = self._value(text.strip())
            found = {"vmcnt": (value >> 10 & 0x30) | (value & 15), "expcnt": value >> 4 & 7, "lgkmcnt": value >> 8 & 15}
        return found

    def _operands(self, text: str) -> tuple[list[Any], dict[str, Any]]:
        """Split at commas outside brackets; what follows the last operand after a space are modifiers."""
        operands: list[Any] = []
        modifiers: dict[str, Any] = {}
        if not text:
            return operands, modifiers
        pieces = _split(text, ",")
        for piece in pieces:
            words = _split(piece.strip(), " ")
            if words and not self._modifier(words[0], modifiers):
                operands.append(self._operand(words[0]))
            for word in words[1:]:
                if not self._modifier(word, modifiers):
                    raise ValueError(f"`{word}` is no modifier")
        return operands, modifiers

    def _modifier(self, word: str, modifiers: dict[str, Any]) -> bool:
        if word in _FLAGS:
            modifiers[word] = True
            return True
        if (m := _DPP.match(word)) is not None:
            value = m.group(2)
            modifiers["dpp"] = word if value is None or value[0] == "[" else f"{m.group(1)}:{value}"
            return True
        m = _MOD.match(word)
        if m is None:
            return False
        name, value = m.groups()
        if name in ("mul", "div"):
            modifiers["omod"] = word
            return True
        if name in ("dst_sel", "src0_sel", "src1_sel", "dst_unused"):
            modifiers[name] = value
            return True
        if name == "offset" and value.startswith("swizzle"):
            modifiers[name] = swizzle_offset(value)
            return True
        found = _LIST.match(value)
        if found is not None:
            modifiers[name] = tuple(int(x) for x in found.group(1).split(","))
        elif name == "op_sel" or name == "neg_lo":
            raise ValueError(word)
        else:
            modifiers[name] = self._value(value)
        return True

    def _operand(self, t: str) -> Any:
        m = _REG.match(t)
        if m is not None:
            return _reg(m.group(1), int(m.group(2)), 1)
        if t in NAMED:
            return NAMED[t]
        m = _RANGE.match(t)
        if m is not None:
            low = self._value(m.group(2))
            high = self._value(m.group(3)) if m.group(3) else low
            return _reg(m.group(1), low, high - low + 1)
        if t == OFF or t == "null":
            return OFF
        if _NUMBER.match(t):
            return int(t, 0)
        if _FLOAT.match(t):
            return float(t)
        if t[0] == "-" and not _NUMBER.match(t) and not _FLOAT.match(t):
            inner = self._operand(t[1:])
            if isinstance(inner, Src):
                return Src(inner.value, not inner.neg, inner.abs, inner.sext)
            return Src(inner, neg=True)
        if t[0] == "|" and t[-1] == "|":
            return Src(self._operand(t[1:-1]), abs=True)
        if t.endswith(")"):
            head, _, inside = t[:-1].partition("(")
            if head in ("abs", "neg", "sext"):
                inner = self._operand(inside)
                base = inner if isinstance(inner, Src) else Src(inner)
                return Src(
                    base.value, base.neg or head == "neg", base.abs or head == "abs", base.sext or head == "sext"
                )
            if head == "lit":
                return self._operand(inside)
            return t
        if t[0] == "[":
            regs = [self._operand(x.strip()) for x in t[1:-1].split(",")]
            if not all(isinstance(r, Reg) for r in regs):
                raise ValueError(f"`{t}` lists no registers")
            return Reg(regs[0].file, regs[0].index, len(regs))
        if t in self.sets:
            return self.sets[t]
        m = _REL.match(t)
        if m is not None:
            return t
        if re.search(r"[+\-*]", t):
            try:
                return self._value(t)
            except ValueError:
                return t
        return t


def _reg(file: str, index: int, count: int) -> Reg:
    return Reg("s", 108 + index, count) if file == "ttmp" else Reg(file, index, count)


def _strip(line: str) -> str:
    """The line without its comment."""
    if '"' in line:
        out, quoted = [], False
        for i, ch in enumerate(line):
            if ch == '"':
                quoted = not quoted
            if not quoted and (ch == ";" or line.startswith("//", i)):
                break
            out.append(ch)
        return "".join(out).strip()
    line = line.partition(";")[0]
    return line.partition("//")[0].strip()


def _block_comment(line: str, inside: bool) -> tuple[str, bool]:
    out = ""
    while line:
        if inside:
            _, end, line = line.partition("*/")
            if not end:
                return out.strip(), True
            inside = False
        else:
            head, start, line = line.partition("/*")
            out += head
            inside = bool(start)
    return out.strip(), inside


def _split(text: str, at: str) -> list[str]:
    """Split at a character outside brackets, parentheses and quotes; empty parts are dropped."""
    if "(" not in text and '"' not in text:
        pieces = _OUTSIDE[at].split(text) if "[" in text else text.split(at)
        return [x for x in (p.strip() for p in pieces) if x]
    out: list[str] = []
    current: list[str] = []
    depth, quoted = 0, False
    for ch in text:
        if ch == '"':
            quoted = not quoted
        if not quoted:
            depth += (ch in "[(") - (ch in "])")
        if ch == at and not depth and not quoted:
            out.append("".join(current))
            current = []
        else:
            current.append(ch)
    out.append("".join(current))
    return [x for x in (p.strip() for p in out) if x]


def swizzle_offset(value: str) -> int:
    """The 16-bit offset of `swizzle(MODE, ...)`."""
    args = [x.strip() for x in value[value.index("(") + 1 : -1].split(",")]
    mode, rest = args[0], args[1:]
    if mode == "QUAD_PERM":
        return 0x8000 | sum(int(x) << 2 * i for i, x in enumerate(rest))
    if mode == "BITMASK_PERM":
        control = rest[0].strip('"')
        and_, or_, xor = 0, 0, 0
        for i, ch in enumerate(reversed(control)):
            and_ |= (ch in "pi") << i
            or_ |= (ch == "1") << i
            xor |= (ch == "i") << i
        return and_ | or_ << 5 | xor << 10
    n = int(rest[0])
    if mode == "SWAP":
        return 0x1F | n << 10
    if mode == "REVERSE":
        return 0x1F | (n - 1) << 10
    if mode == "BROADCAST":
        return (0x1F & ~(n - 1)) | int(rest[1]) << 5
    raise ValueError(value)
