"""Calls of a PTX function replaced by the callees' bodies, so that the executor sees one flat list.

In: a module and a function. Out: a function without calls, but for those of the runtime's own.
"""

from __future__ import annotations

from typing import Any

from wavedsl.codegen.ptx.isa import spell
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
    Sym,
    Variable,
    Vector,
)

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
    """A call as the callee's own instructions, with registers and variables of their own; external ones stay calls."""
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
