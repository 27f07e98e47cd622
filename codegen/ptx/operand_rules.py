"""What the operands of a PTX instruction may be.

In: an instruction of the table and the operands that are written. Out: nothing, or a CompileError that says which
operand does not fit: count, kind, register type, vector length, and what the row itself asks of their values.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.codegen.ptx.isa import TYPE_BITS, Arg, Inst, Operand
from wavedsl.ir.errors import CompileError


def compatible(register: str, wanted: str, *, relaxed: bool = False) -> bool:
    """Whether a register of one type may stand where an instruction wants another (PTX's operand type rules).

    Sizes agree; `.bN` goes with any type of that size, signed with unsigned, a float only with itself or `.bN`.
    `relaxed` (ld, st, cvt) lets a wider integer or untyped register stand in.
    """
    if register == wanted:
        return True
    if "pred" in (register, wanted):
        return False
    r, w = TYPE_BITS[register], TYPE_BITS[wanted]
    if r < w or (r > w and not relaxed):
        return False
    rf, wf = register[0] not in "bsu" or register.startswith("bf"), wanted[0] not in "bsu" or wanted.startswith("bf")
    if rf and wf:
        return register.rstrip("x2") == wanted or {register, wanted} == {"f32", "tf32"}
    if rf:
        return wanted[0] == "b" and r == w
    if wf:
        return (register[0] == "b" and r == w) or (relaxed and register[0] == "b")
    return True


def used_operands(instruction: Inst, count: int) -> list[Operand]:
    """The row's operands that `count` written ones stand for (the `q` of `d|q` aside), optional ones left out.

    A cache policy or a multicast mask is there when the name says so, the second operand of an atomic when it is a
    compare-and-swap. Raises CompileError for a wrong number.
    """
    mods = instruction.mods
    ops = list(instruction.plain)
    drop = []
    if "cache_hint" not in mods:
        drop.append("policy")
    if "multicast" not in mods:
        drop.append("ctas")
    if "atomic" in instruction.effects and mods.get("op") != "cas":
        drop.append("b")
    ops = [o for o in ops if not (o.optional and o.name in drop)]
    most = len(ops)
    for o in [o for o in ops if o.optional]:
        if len(ops) > count and o.name not in ("policy", "ctas"):
            ops.remove(o)
    if len(ops) != count:
        need = sum(not o.optional or o.name in ("policy", "ctas") for o in ops)
        span = str(most) if most == need else f"{need} to {most}"
        raise CompileError(f"{instruction.name} takes {span} operands, got {count}")
    return ops


def check_operands(instruction: Inst, args: Sequence[Arg], pair: Arg | None = None) -> None:
    """Raises CompileError unless the operands fit: count, kind, register type, vector length. `pair`: the `q` of
    `d|q`.
    """
    shapes = tuple([a.shape for a in args])
    if pair is not None:
        shapes = (*shapes, "|", pair.shape)
    if shapes not in instruction.accepted:
        _check_shapes(instruction, args, pair)
        instruction.accepted.add(shapes)
    why = instruction.row.check(args) if instruction.row.check is not None else ""
    if why:
        raise CompileError(f"{instruction.name}: {why}")


def _check_shapes(instruction: Inst, args: Sequence[Arg], pair: Arg | None) -> None:
    """The rules of `check_operands` that every row has."""
    name = instruction.name
    ops = used_operands(instruction, len(args))
    paired = [o for o in instruction.operands if o.paired]
    if pair is not None and not paired:
        raise CompileError(f"{name} has one destination")
    if pair is None and paired and not paired[0].optional:
        raise CompileError(f"{name} has two destinations, written d|{paired[0].name}")
    if pair is not None and pair.kind == "reg" and not compatible(pair.type, paired[0].type):
        raise CompileError(
            f"{name}: operand {paired[0].name} wants .{paired[0].type}, register {pair.text} is .{pair.type}"
        )
    vec = {"v2": 2, "v4": 4, "v8": 8}.get(instruction.mods.get("vec", ""), 0)
    relaxed = instruction.row.opcode in ("ld", "ldu", "st", "cvt", "atom", "red")
    for op, arg in zip(ops, args):
        where = f"{name}: operand {op.name}"
        if arg.kind == "none":
            if not op.write:
                raise CompileError(f"{where} is read, so it cannot be '_'")
        elif op.kind == "addr":
            if arg.kind != "addr":
                raise CompileError(f"{where} is an address in brackets, got {arg.text or arg.kind}")
        elif op.kind == "tensor":
            need = int(instruction.mods["dim"][0])
            if arg.kind != "tensor":
                raise CompileError(f"{where} is a tensor map with coordinates, got {arg.text or arg.kind}")
            if arg.text:
                raise CompileError(f"{where} is the generic address of a tensor map in a register, got {arg.text}")
            if len(arg.parts) != need:
                raise CompileError(f"{where} has {len(arg.parts)} coordinates, {need} are needed")
            for part in arg.parts:
                if part.kind == "reg" and not compatible(part.type, "b32"):
                    raise CompileError(f"{where}: coordinate {part.text} is .{part.type}, .b32 is wanted")
        elif op.kind == "frag" and arg.kind == "vec":
            want = instruction.registers(op.name)
            if len(arg.parts) != want:
                raise CompileError(f"{where} has {len(arg.parts)} members, {want} are needed")
            for part in arg.parts:
                if part.kind != "reg" or not compatible(part.type, "b32"):
                    raise CompileError(f"{where} wants .b32 registers, got {part.text or part.kind}")
        elif op.kind == "frag":
            if arg.kind != "reg" or not compatible(arg.type, "b64"):
                raise CompileError(f"{where} is a 64-bit matrix descriptor, got {arg.text or arg.kind}")
        elif op.kind == "label":
            if arg.kind not in ("label", "sym"):
                raise CompileError(f"{where} is a label, got {arg.text or arg.kind}")
        elif op.kind == "imm":
            if arg.kind != "imm":
                raise CompileError(f"{where} is an immediate, got {arg.text or arg.kind}")
        elif op.kind == "vec" and arg.kind == "vec":
            want = vec or instruction.registers(op.name)
            if want and len(arg.parts) != want:
                raise CompileError(f"{where} has {len(arg.parts)} members, {want} are needed")
            for part in arg.parts:
                if part.kind == "reg" and not compatible(part.type, op.type, relaxed=relaxed):
                    raise CompileError(f"{where} wants .{op.type}, register {part.text} is .{part.type}")
        elif arg.kind == "reg":
            if op.kind == "vec" and vec:
                raise CompileError(f"{where} is a vector of {vec}, got one register")
            if not compatible(arg.type, op.type, relaxed=relaxed):
                raise CompileError(f"{where} wants .{op.type}, register {arg.text} is .{arg.type}")
        elif arg.kind in ("imm", "sym"):
            if op.write:
                raise CompileError(f"{where} is written, so it must be a register, got {arg.text or arg.kind}")
        elif arg.kind == "vec" and instruction.row.opcode == "mov":
            total = sum(TYPE_BITS[p.type] for p in arg.parts if p.type)
            if all(p.type for p in arg.parts) and total != TYPE_BITS[op.type]:
                raise CompileError(f"{where} is {TYPE_BITS[op.type]} bits, the vector has {total}")
        else:
            raise CompileError(f"{where} cannot be {arg.text or arg.kind}")
