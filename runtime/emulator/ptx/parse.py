"""PTX text to a `Module`: functions with registers, variables, parameters, instructions and source locations.

In: any PTX text. Out: `parse(text) -> Module`. The idea: a statement-level scanner (statements end with `;`, labels
with `:`, a brace at the start of a statement is a scope). Raises CompileError with the line of the text for what
cannot be parsed.
"""

from __future__ import annotations

import re

from wavedsl.ir.errors import CompileError
from wavedsl.ir.loc import Loc
from wavedsl.runtime.emulator.ptx.body import Body
from wavedsl.runtime.emulator.ptx.module import Function, Module, Param, Sym
from wavedsl.runtime.emulator.ptx.scan import WORD, Scanner, add_file, parameters, variables

_LINKAGE = {".visible", ".weak", ".extern", ".common"}


def parse(text: str) -> Module:
    """Parse PTX text. Raises CompileError with the line where it cannot."""
    s, mod = Scanner(text), Module()
    while s.skip():
        line = s.line()
        try:
            _module_statement(s, mod, line)
        except CompileError as e:
            if e.location is None:
                raise CompileError(e.message, Loc("<ptx>", s.line()), e.hint) from None
            raise
    return mod


def _module_statement(s: Scanner, mod: Module, line: int) -> None:
    m = WORD.match(s.text, s.pos)
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
        add_file(s.rest_of_line(), mod)
    elif word == ".section":
        s.pos = s.text.index("{", s.pos)
        s.braces()
    elif word == ".pragma":
        s.until(";")
    elif word in (".loc", ".alias"):
        s.rest_of_line()
    else:
        _declaration(s, mod, line)


def _declaration(s: Scanner, mod: Module, line: int) -> None:
    start = s.pos
    extern = False
    while True:
        s.skip()
        m = WORD.match(s.text, s.pos)
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
        for v in variables(s.until(";"), extern):
            mod.variables[v.name] = v
    else:
        raise CompileError(f"PTX directive not understood: {s.text[start : start + 60].split(chr(10))[0]!r}")


def _function(s: Scanner, mod: Module, entry: bool, line: int) -> None:
    s.skip()
    returns: list[Param] = []
    if s.text[s.pos] == "(":
        s.pos += 1
        returns = parameters(s.until(")"))
        s.skip()
    m = re.compile(r"[%$\w]+").match(s.text, s.pos)
    if not m:
        raise CompileError("a function without a name")
    s.pos = m.end()
    f = Function(m.group(), entry, returns=returns, line=line)
    s.skip()
    if s.text[s.pos] == "(":
        s.pos += 1
        f.params = parameters(s.until(")"))
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
        word = WORD.match(s.text, s.pos)
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
    body = Body(s, mod, f)
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
