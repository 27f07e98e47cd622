"""Selection of what a thread finds when it starts: special registers, parameters (see `select`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wavedsl.codegen.ptx.machine import Imm, Mem, Reg, Symbol
from wavedsl.ir import dtypes as dt
from wavedsl.ir.kernel.kernel_ir import Param, Type

if TYPE_CHECKING:
    from wavedsl.codegen.ptx.select import Selector


def special(s: Selector, register: str) -> Reg:
    """A special register, read once at the top of the kernel."""
    found = s.scopes[0].cache.get(register)
    if found is None:
        saved = s.out, s.level, s.loc
        s.out, s.level, s.loc = s.prologue, 0, None
        found = s.scopes[0].cache[register] = s.set("b32", ("mov", "u32"), Symbol(register))
        s.out, s.level, s.loc = saved
    return found


def load_param(s: Selector, param: Param, type_: Type) -> Reg:
    """A parameter into a register of the op's type; narrow integers are widened, narrow floats too if it is a
    float, else they keep their bits."""
    place = Mem(param_name(param))
    if param.kind == "tensormap":
        own = s.set("b64", ("mov", "b64"), Symbol(param_name(param)))
        return s.set("b64", ("cvta", "param", "u64"), own)
    if param.kind == "pointer":
        return s.set("b64", ("ld", "param", "u64"), place)
    size, dtype = param.size, param.dtype
    if size == 8:
        return s.set("b64", ("ld", "param", "b64"), place)
    if size == 4:
        return s.set("b32", ("ld", "param", "b32"), place)
    if dtype is dt.f16 and type_.is_float:
        return s.set("b32", ("cvt", "f32", "f16"), s.set("b16", ("ld", "param", "b16"), place))
    if dtype is dt.bf16 and type_.is_float:
        return s.set("b32", ("shl", "b32"), s.set("b32", ("ld", "param", "u16"), place), Imm(16))
    sign = "s" if dtype.is_signed and dtype.is_int else "u"
    return s.set("b32", ("ld", "param", f"{sign}{8 * size}"), place)


def param_name(param: Param) -> str:
    """The parameter's name in the text: the user's, with what PTX does not allow written as hexadecimal."""
    return "param_" + "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"_{ord(c):x}_" for c in param.name)
